/* Inner products of rows with columns of a matrix, by AVX2 and AVX-512, bit-identical to rows.pyx: each lane is one
   product, summed in float32 in the order of the columns of the rows. Vectors of 16 bytes are no faster than the code
   compiled from Cython. */
#ifndef HFOREST_TABULAR_PRODUCTS_H
#define HFOREST_TABULAR_PRODUCTS_H
#include <stdint.h>

#include "core/counting.h"
#include "core/simd.h"

enum { HF_STRIP = 64 /* products whose matrix is contiguous (rows.pyx) */ };

#if HF_X86
#define CODE HF_AVX2_CODE
#define BYTES 32
#define NAME(what) hf_##what##_avx2
#include "tabular/cpu/simd/products_body.h"

#define CODE HF_AVX512_CODE
#define BYTES 64
#define NAME(what) hf_##what##_avx512
#include "tabular/cpu/simd/products_body.h"
#endif

/* Writes the products of a strip. Returns whether the path has a body for it.

   x       IN (n, n_columns)
   matrix  IN (n_columns, HF_STRIP)
   y       OUT (n, HF_STRIP), with `width` floats from row to row */
static int hf_strip(
    int path, const float *x, int64_t n, int64_t n_columns, const float *matrix, float *y, int64_t width
) {
#if HF_X86
    if (path == HF_PATH_AVX2 || path == HF_PATH_AVX512) {
        (path == HF_PATH_AVX2 ? hf_strip_avx2 : hf_strip_avx512)(x, n, n_columns, matrix, y, width);
        return 1;
    }
#endif
    (void)path, (void)x, (void)n, (void)n_columns, (void)matrix, (void)y, (void)width;
    return 0;
}

#endif
