/* The loops over rows of x for each dtype, with vectors of 32 bytes (AVX2) and 64 (AVX-512). rows.pyx has the scalar
   loops and says what each computes. There are none for 16 bytes (SSE2, NEON): with them, fits of 16 to 784 features
   were at most 1.22 times as fast as with the compiled scalar loops, and slower in float64. */
#ifndef HFOREST_CO2_SIMD_ROWS_H
#define HFOREST_CO2_SIMD_ROWS_H
#include <stdint.h>
#include <string.h>

#include "co2/rows.h"
#include "core/counting.h"
#include "core/simd.h"

#if HF_X86
#define REAL float
#define INT int32_t
#define HF_BYTES 32
#define HF_W(name) name##_f32_v32
#define HF_W_CODE HF_AVX2_CODE
#include "co2/simd/rows_body.h"

#define REAL double
#define INT int64_t
#define HF_BYTES 32
#define HF_W(name) name##_f64_v32
#define HF_W_CODE HF_AVX2_CODE
#include "co2/simd/rows_body.h"
#endif

/* A test compiles this file with HF_ANY_WIDTH: the 64-byte loops then run on every processor. */
#if HF_X86 || (HF_VECTORS && defined(HF_ANY_WIDTH))
#ifdef HF_ANY_WIDTH
#define HF_V64_CODE
#else
#define HF_V64_CODE HF_AVX512_CODE
#endif

#define REAL float
#define INT int32_t
#define HF_BYTES 64
#define HF_W(name) name##_f32_v64
#define HF_W_CODE HF_V64_CODE
#include "co2/simd/rows_body.h"

#define REAL double
#define INT int64_t
#define HF_BYTES 64
#define HF_W(name) name##_f64_v64
#define HF_W_CODE HF_V64_CODE
#include "co2/simd/rows_body.h"
#endif

/* Returns the loops of a dtype and a vector path; NULL for the plain path. */
static const hf_row_loops *hf_vector_loops(int single, int path) {
#if HF_X86
    if (path == HF_PATH_AVX512) return single ? &hf_row_loops_f32_v64 : &hf_row_loops_f64_v64;
    if (path == HF_PATH_AVX2) return single ? &hf_row_loops_f32_v32 : &hf_row_loops_f64_v32;
#endif
    return NULL;
}

#endif
