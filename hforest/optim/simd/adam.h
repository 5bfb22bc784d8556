/* Adam's step and missed steps for vectors: a table for each dtype and width. adam_step.pxd has the scalar versions. */
#ifndef HFOREST_OPTIM_SIMD_ADAM_H
#define HFOREST_OPTIM_SIMD_ADAM_H
#include <float.h>
#include <string.h>

#include "core/counting.h"
#include "core/x86.h"
#include "optim/adam.h"

#if HF_X86
#define HF_ROOTS_F32(a) _mm_sqrt_ps((__m128)(a))
#define HF_ROOTS_F64(a) _mm_sqrt_pd((__m128d)(a))
#elif HF_VECTORS && defined(__aarch64__)
#include <arm_neon.h>
#define HF_ROOTS_F32(a) vsqrtq_f32((float32x4_t)(a))
#define HF_ROOTS_F64(a) vsqrtq_f64((float64x2_t)(a))
#endif

#if HF_X86
/* Masks of the first n lanes of a vector of 32 bytes. */
static const int32_t hf_first_lanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
#define HF_LANES_F32(n) _mm256_loadu_si256((const __m256i *)(hf_first_lanes + 8 - (n)))
#define HF_LANES_F64(n) _mm256_loadu_si256((const __m256i *)(hf_first_lanes + 8 - 2 * (n)))
#endif

#ifdef HF_ROOTS_F32
#define REAL float
#define BITS int32_t
#define LEAST FLT_MIN
#define LARGEST FLT_MAX

#define BODIES hf_adam_f32_vector
#define STEP hf_adam_step_f32_vector
#define PASS hf_adam_pass_f32_vector
#define BYTES 16
#define CODE
#define ROOT(a) (VEC)HF_ROOTS_F32(a)
#define PART(from, n) {(from)[0], (n) > 1 ? (from)[1] : 0, (n) > 2 ? (from)[2] : 0, 0}
#define SET(to, a, n) ((to)[0] = (a)[0], (n) > 1 ? (to)[1] = (a)[1] : 0, (n) > 2 ? (to)[2] = (a)[2] : 0)
#include "optim/simd/adam_body.h"

#if HF_X86
#define BODIES hf_adam_f32_avx2
#define STEP hf_adam_step_f32_avx2
#define PASS hf_adam_pass_f32_avx2
#define BYTES 32
#define CODE HF_AVX2_CODE
#define ROOT(a) (VEC)_mm256_sqrt_ps((__m256)(a))
#define PART(from, n) _mm256_maskload_ps(from, HF_LANES_F32(n))
#define SET(to, a, n) _mm256_maskstore_ps(to, HF_LANES_F32(n), (__m256)(a))
#include "optim/simd/adam_body.h"

#define BODIES hf_adam_f32_avx512
#define STEP hf_adam_step_f32_avx512
#define PASS hf_adam_pass_f32_avx512
#define BYTES 64
#define CODE HF_AVX512_CODE
#define ROOT(a) (VEC)_mm512_sqrt_ps((__m512)(a))
#define PART(from, n) _mm512_maskz_loadu_ps((__mmask16)((1 << (n)) - 1), from)
#define SET(to, a, n) _mm512_mask_storeu_ps(to, (__mmask16)((1 << (n)) - 1), (__m512)(a))
#include "optim/simd/adam_body.h"
#endif

#undef REAL
#undef BITS
#undef LEAST
#undef LARGEST

#define REAL double
#define BITS int64_t
#define LEAST DBL_MIN
#define LARGEST DBL_MAX

#define BODIES hf_adam_f64_vector
#define STEP hf_adam_step_f64_vector
#define PASS hf_adam_pass_f64_vector
#define BYTES 16
#define CODE
#define ROOT(a) (VEC)HF_ROOTS_F64(a)
#define PART(from, n) {(from)[0], 0}
#define SET(to, a, n) ((to)[0] = (a)[0])
#include "optim/simd/adam_body.h"

#if HF_X86
#define BODIES hf_adam_f64_avx2
#define STEP hf_adam_step_f64_avx2
#define PASS hf_adam_pass_f64_avx2
#define BYTES 32
#define CODE HF_AVX2_CODE
#define ROOT(a) (VEC)_mm256_sqrt_pd((__m256d)(a))
#define PART(from, n) _mm256_maskload_pd(from, HF_LANES_F64(n))
#define SET(to, a, n) _mm256_maskstore_pd(to, HF_LANES_F64(n), (__m256d)(a))
#include "optim/simd/adam_body.h"

#define BODIES hf_adam_f64_avx512
#define STEP hf_adam_step_f64_avx512
#define PASS hf_adam_pass_f64_avx512
#define BYTES 64
#define CODE HF_AVX512_CODE
#define ROOT(a) (VEC)_mm512_sqrt_pd((__m512d)(a))
#define PART(from, n) _mm512_maskz_loadu_pd((__mmask8)((1 << (n)) - 1), from)
#define SET(to, a, n) _mm512_mask_storeu_pd(to, (__mmask8)((1 << (n)) - 1), (__m512d)(a))
#include "optim/simd/adam_body.h"
#endif

#undef REAL
#undef BITS
#undef LEAST
#undef LARGEST
#endif

/* Returns the functions of a dtype and a vector path; NULL if the path has none. */
static const hf_adam_bodies *hf_adam_bodies_of(int single, int path) {
#if HF_X86
    if (path == HF_PATH_AVX512) return single ? &hf_adam_f32_avx512 : &hf_adam_f64_avx512;
    if (path == HF_PATH_AVX2) return single ? &hf_adam_f32_avx2 : &hf_adam_f64_avx2;
#endif
#ifdef HF_ROOTS_F32
    if (path == HF_PATH_VECTOR) return single ? &hf_adam_f32_vector : &hf_adam_f64_vector;
#endif
    (void)single, (void)path;
    return NULL;
}

#endif
