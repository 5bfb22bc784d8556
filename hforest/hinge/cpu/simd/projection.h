/* Inner products and sums of rows for the margin of projections, by AVX2, bit-identical to projection.pyx. The eight
   partial sums of an inner product are the lanes of two vectors; in a sum of rows, elements are independent. Vectors
   of 16 bytes are slower than the code compiled from Cython, and vectors of 64 bytes are no faster. */
#ifndef HFOREST_HINGE_SIMD_PROJECTION_H
#define HFOREST_HINGE_SIMD_PROJECTION_H
#include <string.h>

#include "core/counting.h"
#include "core/x86.h"
#include "hinge/cpu/margin.h"

#if HF_X86
typedef double hf_wide __attribute__((vector_size(32), aligned(8), may_alias));

#define REAL float
#define NAME(what) hf_##what##_f32_avx2
#define WIDENED(from) (hf_wide)_mm256_cvtps_pd(_mm_loadu_ps(from))
#include "hinge/cpu/simd/projection_body.h"

#define REAL double
#define NAME(what) hf_##what##_f64_avx2
#define WIDENED(from) (*(const hf_wide *)(from))
#include "hinge/cpu/simd/projection_body.h"
#endif

/* Returns the functions of a path, or NULL if it has none. */
static const hf_margin *hf_projection_of(int path, int itemsize) {
#if HF_X86
    if (path >= HF_PATH_AVX2) return itemsize == 4 ? &hf_projection_f32_avx2 : &hf_projection_f64_avx2;
#endif
    (void)path, (void)itemsize;
    return NULL;
}

#endif
