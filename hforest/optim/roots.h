/* Square roots of an array. C's sqrt may set errno, so a loop over it is not vectorised; these
   instructions are part of every x86-64 and aarch64 processor, and a square root is rounded
   correctly on each, so all paths give the same bits. */
#ifndef HFOREST_OPTIM_ROOTS_H
#define HFOREST_OPTIM_ROOTS_H

#include <math.h>
#include <stddef.h>

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
static inline ptrdiff_t hf_root_pairs(double* a, ptrdiff_t n) {
    ptrdiff_t i;
    for (i = 0; i + 2 <= n; i += 2) _mm_storeu_pd(a + i, _mm_sqrt_pd(_mm_loadu_pd(a + i)));
    return i;
}
#elif defined(__aarch64__) && defined(__ARM_NEON)
#include <arm_neon.h>
static inline ptrdiff_t hf_root_pairs(double* a, ptrdiff_t n) {
    ptrdiff_t i;
    for (i = 0; i + 2 <= n; i += 2) vst1q_f64(a + i, vsqrtq_f64(vld1q_f64(a + i)));
    return i;
}
#else
static inline ptrdiff_t hf_root_pairs(double* a, ptrdiff_t n) {
    (void)a, (void)n;
    return 0;
}
#endif

static inline void hf_roots(double* a, ptrdiff_t n) {
    for (ptrdiff_t i = hf_root_pairs(a, n); i < n; ++i) a[i] = sqrt(a[i]);
}

#endif
