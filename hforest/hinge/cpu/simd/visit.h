/* The contributions of a sample to the gradients of its leaf and its vertex, by AVX2, bit-identical to gradients.pyx.
   The eight partial sums of w . G are the lanes of two vectors; the elements of a leaf's sums are independent. */
#ifndef HFOREST_HINGE_SIMD_VISIT_H
#define HFOREST_HINGE_SIMD_VISIT_H
#include <math.h>

#include "core/counting.h"
#include "core/x86.h"
#include "hinge/cpu/visits.h"

typedef struct {
    /* visit_samples and take_row of gradients.pyx; with one output, `visit` requires contiguous gradients. */
    void (*visit)(const hf_visits *a, void *slope);
    void (*take)(double *total, ptrdiff_t n, double divisor, void *row);
} hf_visitor;

#if HF_X86
typedef double hf_f64 __attribute__((vector_size(32), aligned(8), may_alias));
typedef int64_t hf_i64 __attribute__((vector_size(32)));

static const hf_i64 hf_signs = {INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN};

#define REAL float
#define NAME(what) hf_##what##_f32_avx2
#define WIDENED(from) (hf_f64)_mm256_cvtps_pd(_mm_loadu_ps(from))
#define TWO(from) (hf_f64)_mm256_zextpd128_pd256(_mm_cvtps_pd(_mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(from)))))
#define NARROW(to, v) _mm_storeu_ps(to, _mm256_cvtpd_ps((__m256d)(v)))
#include "hinge/cpu/simd/visit_body.h"

#define REAL double
#define NAME(what) hf_##what##_f64_avx2
#define WIDENED(from) (*(const hf_f64 *)(from))
#define TWO(from) (hf_f64)_mm256_zextpd128_pd256(_mm_loadu_pd(from))
#define NARROW(to, v) *(hf_f64 *)(to) = (v)
#include "hinge/cpu/simd/visit_body.h"
#endif

/* Returns the functions of a path, or NULL if it has none. */
static const hf_visitor *hf_visitor_of(int path, int itemsize) {
#if HF_X86
    static const hf_visitor f32 = {hf_visit_f32_avx2, hf_take_f32_avx2}, f64 = {hf_visit_f64_avx2, hf_take_f64_avx2};
    if (path >= HF_PATH_AVX2) return itemsize == 4 ? &f32 : &f64;
#endif
    (void)path, (void)itemsize;
    return NULL;
}

#endif
