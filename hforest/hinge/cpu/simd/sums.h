/* Sums of outputs over trees (Lay et al. 2018, eq. 10) by AVX2, bit-identical to leaf_sums.pyx. The sums of a sample
   stay in registers while the rows of its leaves are added in the order of the trees:

       sample s:  sums[0] sums[1] ... last   +=  |margin(s, j)| * weights[j, leaf(s, j), :]   for j = 0, 1, ...

   `last` has 1 to 4 elements, which are read and written with a mask. Vectors of 64 bytes were not faster up to 26
   outputs. */
#ifndef HFOREST_HINGE_SIMD_SUMS_H
#define HFOREST_HINGE_SIMD_SUMS_H
#include <math.h>

#include "core/counting.h"
#include "core/x86.h"
#include "hinge/cpu/sums.h"

/* add_outputs of leaf_sums.pyx. */
typedef void (*hf_adder)(const hf_sums *a);

enum { HF_VECTORS_EACH = 8 /* vectors of sums that stay in registers */ };

#if HF_X86
/* From element 4 - n on: a mask of the first n of 4 lanes. */
static const int32_t hf_mask_words[8] = {-1, -1, -1, -1, 0, 0, 0, 0};
static const int64_t hf_mask_longs[8] = {-1, -1, -1, -1, 0, 0, 0, 0};
#define HF_MASK(n) _mm256_loadu_si256((const __m256i *)(hf_mask_longs + 4 - (n)))
#define HF_WORDS_MASK(n) _mm_loadu_si128((const __m128i *)(hf_mask_words + 4 - (n)))

#define REAL float
#define NAME(what) hf_##what##_f32_avx2
#define FOUR __m128
#define TO_FOUR(x) _mm_set1_ps(x)
#define PRODUCT(from, x) _mm256_cvtps_pd(_mm_mul_ps(_mm_loadu_ps(from), x))
#define PRODUCT_LAST(from, x, n) _mm256_cvtps_pd(_mm_mul_ps(_mm_maskload_ps(from, HF_WORDS_MASK(n)), x))
#include "hinge/cpu/simd/sums_body.h"

#define REAL double
#define NAME(what) hf_##what##_f64_avx2
#define FOUR __m256d
#define TO_FOUR(x) _mm256_set1_pd(x)
#define PRODUCT(from, x) _mm256_mul_pd(_mm256_loadu_pd(from), x)
#define PRODUCT_LAST(from, x, n) _mm256_mul_pd(_mm256_maskload_pd(from, HF_MASK(n)), x)
#include "hinge/cpu/simd/sums_body.h"
#endif

/* Returns the function of a path, or NULL if it has none. */
static hf_adder hf_adder_of(int path, int itemsize) {
#if HF_X86
    if (path >= HF_PATH_AVX2) return itemsize == 4 ? hf_add_f32_avx2 : hf_add_f64_avx2;
#endif
    (void)path, (void)itemsize;
    return NULL;
}

#endif
