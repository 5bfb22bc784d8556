/* Adam's step and missed steps for vectors, of each dtype and width; adam.pxd has them number by number. */
#ifndef HFOREST_OPTIM_SIMD_ADAM_H
#define HFOREST_OPTIM_SIMD_ADAM_H
#include <float.h>
#include <string.h>

#include "core/simd.h"
#include "optim/adam.h"

#if HF_X86
#define STEP hf_adam_step_f32_vector
#define PASS hf_adam_pass_f32_vector
#define REAL float
#define BITS int32_t
#define BYTES 16
#define CODE
#define ROOT(a) (VEC)_mm_sqrt_ps((__m128)(a))
#define LEAST FLT_MIN
#define LARGEST FLT_MAX
#include "optim/simd/adam_body.h"

#define STEP hf_adam_step_f64_vector
#define PASS hf_adam_pass_f64_vector
#define REAL double
#define BITS int64_t
#define BYTES 16
#define CODE
#define ROOT(a) (VEC)_mm_sqrt_pd((__m128d)(a))
#define LEAST DBL_MIN
#define LARGEST DBL_MAX
#include "optim/simd/adam_body.h"

#define STEP hf_adam_step_f32_avx2
#define PASS hf_adam_pass_f32_avx2
#define REAL float
#define BITS int32_t
#define BYTES 32
#define CODE HF_AVX2_CODE
#define ROOT(a) (VEC)_mm256_sqrt_ps((__m256)(a))
#define LEAST FLT_MIN
#define LARGEST FLT_MAX
#include "optim/simd/adam_body.h"

#define STEP hf_adam_step_f64_avx2
#define PASS hf_adam_pass_f64_avx2
#define REAL double
#define BITS int64_t
#define BYTES 32
#define CODE HF_AVX2_CODE
#define ROOT(a) (VEC)_mm256_sqrt_pd((__m256d)(a))
#define LEAST DBL_MIN
#define LARGEST DBL_MAX
#include "optim/simd/adam_body.h"

#define STEP hf_adam_step_f32_avx512
#define PASS hf_adam_pass_f32_avx512
#define REAL float
#define BITS int32_t
#define BYTES 64
#define CODE HF_AVX512_CODE
#define ROOT(a) (VEC)_mm512_sqrt_ps((__m512)(a))
#define LEAST FLT_MIN
#define LARGEST FLT_MAX
#include "optim/simd/adam_body.h"

#define STEP hf_adam_step_f64_avx512
#define PASS hf_adam_pass_f64_avx512
#define REAL double
#define BITS int64_t
#define BYTES 64
#define CODE HF_AVX512_CODE
#define ROOT(a) (VEC)_mm512_sqrt_pd((__m512d)(a))
#define LEAST DBL_MIN
#define LARGEST DBL_MAX
#include "optim/simd/adam_body.h"

#elif HF_VECTORS && defined(__aarch64__)
#include <arm_neon.h>
#define STEP hf_adam_step_f32_vector
#define PASS hf_adam_pass_f32_vector
#define REAL float
#define BITS int32_t
#define BYTES 16
#define CODE
#define ROOT(a) (VEC)vsqrtq_f32((float32x4_t)(a))
#define LEAST FLT_MIN
#define LARGEST FLT_MAX
#include "optim/simd/adam_body.h"

#define STEP hf_adam_step_f64_vector
#define PASS hf_adam_pass_f64_vector
#define REAL double
#define BITS int64_t
#define BYTES 16
#define CODE
#define ROOT(a) (VEC)vsqrtq_f64((float64x2_t)(a))
#define LEAST DBL_MIN
#define LARGEST DBL_MAX
#include "optim/simd/adam_body.h"

#endif

/* Take the step whose rate and scale are in a, for n numbers, in vectors. Return whether the path has vectors. */
static inline int hf_adam_step_f32(
    int path, float *p, const float *g, float *m, float *v, ptrdiff_t n, const hf_adam *a
) {
#if HF_X86
    if (path == HF_PATH_AVX512) hf_adam_step_f32_avx512(p, g, m, v, n, a);
    if (path == HF_PATH_AVX2) hf_adam_step_f32_avx2(p, g, m, v, n, a);
#endif
#if HF_X86 || (HF_VECTORS && defined(__aarch64__))
    if (path == HF_PATH_VECTOR) hf_adam_step_f32_vector(p, g, m, v, n, a);
    return path != HF_PATH_PLAIN;
#else
    return 0;
#endif
}

static inline int hf_adam_step_f64(
    int path, double *p, const double *g, double *m, double *v, ptrdiff_t n, const hf_adam *a
) {
#if HF_X86
    if (path == HF_PATH_AVX512) hf_adam_step_f64_avx512(p, g, m, v, n, a);
    if (path == HF_PATH_AVX2) hf_adam_step_f64_avx2(p, g, m, v, n, a);
#endif
#if HF_X86 || (HF_VECTORS && defined(__aarch64__))
    if (path == HF_PATH_VECTOR) hf_adam_step_f64_vector(p, g, m, v, n, a);
    return path != HF_PATH_PLAIN;
#else
    return 0;
#endif
}

/* Take the missed steps start + 1 to stop. Return whether the path has vectors. */
static inline int hf_adam_pass_f32(
    int path, float *p, float *m, float *v, ptrdiff_t n, int64_t start, int64_t stop, const hf_adam *a
) {
#if HF_X86
    if (path == HF_PATH_AVX512) hf_adam_pass_f32_avx512(p, m, v, n, start, stop, a);
    if (path == HF_PATH_AVX2) hf_adam_pass_f32_avx2(p, m, v, n, start, stop, a);
#endif
#if HF_X86 || (HF_VECTORS && defined(__aarch64__))
    if (path == HF_PATH_VECTOR) hf_adam_pass_f32_vector(p, m, v, n, start, stop, a);
    return path != HF_PATH_PLAIN;
#else
    return 0;
#endif
}

static inline int hf_adam_pass_f64(
    int path, double *p, double *m, double *v, ptrdiff_t n, int64_t start, int64_t stop, const hf_adam *a
) {
#if HF_X86
    if (path == HF_PATH_AVX512) hf_adam_pass_f64_avx512(p, m, v, n, start, stop, a);
    if (path == HF_PATH_AVX2) hf_adam_pass_f64_avx2(p, m, v, n, start, stop, a);
#endif
#if HF_X86 || (HF_VECTORS && defined(__aarch64__))
    if (path == HF_PATH_VECTOR) hf_adam_pass_f64_vector(p, m, v, n, start, stop, a);
    return path != HF_PATH_PLAIN;
#else
    return 0;
#endif
}

#endif
