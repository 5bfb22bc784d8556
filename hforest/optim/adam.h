/* Adam for rows of numbers, one step or many missed ones (Kingma & Ba 2015; tables.py), in the arithmetic of
   their dtype: an optimiser step is bound by memory, and twice the lanes fit a vector. */
#ifndef HFOREST_OPTIM_ADAM_H
#define HFOREST_OPTIM_ADAM_H
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/simd.h"

enum {
    HF_CENTRE = 2,  /* column of the tail table; the coefficients follow */
    HF_FEW = 4      /* missed steps that are cheaper taken one by one */
};

typedef struct {
    double lr, beta1, beta2, eps;
    double rate;             /* lr / (1 - beta1**step) */
    double scale;            /* 1 / sqrt(1 - beta2**step) */
    const double *powers;    /* (2, n_powers): beta1 and beta2 to the powers 1, 2, 4, ... */
    const double *decay;     /* (3, n_decays): beta1, beta2 and sqrt(beta2) to the powers 0, 1, 2, ... */
    const double *tail;      /* (n_steps, n_columns) */
    const int64_t *visible;  /* (n_steps): column of the last coefficient that float32 can tell from 0 */
    ptrdiff_t n_powers, n_decays, n_steps, n_columns;
    int64_t closed;
} hf_adam;

/* The base to the power n from its powers 1, 2, 4, 8, ...: what the table of decays holds. */
static double hf_power(const double *squares, int64_t n) {
    double result = 1;
    for (; n > 0; ++squares, n >>= 1)
        if (n & 1) result *= *squares;
    return result;
}

static inline double hf_decay(const hf_adam *a, int which, int64_t n) {
    if (n < a->n_decays) return a->decay[which * a->n_decays + n];
    return which == 2 ? sqrt(hf_power(a->powers + a->n_powers, n)) : hf_power(a->powers + which * a->n_powers, n);
}

static inline int64_t hf_saturated(const hf_adam *a, int64_t step) {
    return step < a->n_steps ? step : a->n_steps - 1;
}

static inline const double *hf_row(const hf_adam *a, int64_t step) {
    return a->tail + hf_saturated(a, step) * a->n_columns;
}

static inline ptrdiff_t hf_top(const hf_adam *a, int64_t step, int single) {
    return single ? (ptrdiff_t)a->visible[hf_saturated(a, step)] : a->n_columns - 1;
}

/* ---------------------------------------------------------------------------------------- plain */

#define HF_CODE
#define NAME(f) hf_adam_##f##_f32_plain
#define REAL float
#define VEC float
#define MASK int
#define LANES 1
#define LANES_OF(n) 1
#define LOAD(k, p) ((void)(k), *(p))
#define STORE(k, p, a) (*(p) = (a))
#define SET1(a) (a)
#define ADD(a, b) ((a) + (b))
#define SUB(a, b) ((a) - (b))
#define MUL(a, b) ((a) * (b))
#define DIV(a, b) ((a) / (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define ROOT(a) sqrtf(a)
#define ANY(a) ((a) != 0)
#define FLUSH(a) (fabsf(a) < FLT_MIN ? 0.0f : (a))
#include "optim/adam_loops.h"

#define HF_CODE
#define NAME(f) hf_adam_##f##_f64_plain
#define REAL double
#define VEC double
#define MASK int
#define LANES 1
#define LANES_OF(n) 1
#define LOAD(k, p) ((void)(k), *(p))
#define STORE(k, p, a) (*(p) = (a))
#define SET1(a) (a)
#define ADD(a, b) ((a) + (b))
#define SUB(a, b) ((a) - (b))
#define MUL(a, b) ((a) * (b))
#define DIV(a, b) ((a) / (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define ROOT(a) sqrt(a)
#define ANY(a) ((a) != 0)
#define FLUSH(a) (fabs(a) < DBL_MIN ? 0.0 : (a))
#include "optim/adam_loops.h"

#if HF_X86

/* ------------------------------------------------------------------------------------- AVX-512 */

#define HF_CODE HF_AVX512_CODE
#define NAME(f) hf_adam_##f##_f32_avx512
#define REAL float
#define VEC __m512
#define MASK __mmask16
#define LANES 16
#define LANES_OF(n) ((n) >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << (n)) - 1))
#define LOAD(k, p) _mm512_maskz_loadu_ps(k, p)
#define STORE(k, p, a) _mm512_mask_storeu_ps(p, k, a)
#define SET1(a) _mm512_set1_ps(a)
#define ADD(a, b) _mm512_add_ps(a, b)
#define SUB(a, b) _mm512_sub_ps(a, b)
#define MUL(a, b) _mm512_mul_ps(a, b)
#define DIV(a, b) _mm512_div_ps(a, b)
#define MIN(a, b) _mm512_min_ps(a, b)
#define ROOT(a) _mm512_sqrt_ps(a)
#define ANY(a) (_mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_NEQ_UQ) != 0)
#define FLUSH(a) \
    _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(_mm512_abs_ps(a), _mm512_set1_ps(FLT_MIN), _CMP_NLT_UQ), a)
#include "optim/adam_loops.h"

#define HF_CODE HF_AVX512_CODE
#define NAME(f) hf_adam_##f##_f64_avx512
#define REAL double
#define VEC __m512d
#define MASK __mmask8
#define LANES 8
#define LANES_OF(n) ((n) >= 8 ? (__mmask8)0xff : (__mmask8)((1u << (n)) - 1))
#define LOAD(k, p) _mm512_maskz_loadu_pd(k, p)
#define STORE(k, p, a) _mm512_mask_storeu_pd(p, k, a)
#define SET1(a) _mm512_set1_pd(a)
#define ADD(a, b) _mm512_add_pd(a, b)
#define SUB(a, b) _mm512_sub_pd(a, b)
#define MUL(a, b) _mm512_mul_pd(a, b)
#define DIV(a, b) _mm512_div_pd(a, b)
#define MIN(a, b) _mm512_min_pd(a, b)
#define ROOT(a) _mm512_sqrt_pd(a)
#define ANY(a) (_mm512_cmp_pd_mask(a, _mm512_setzero_pd(), _CMP_NEQ_UQ) != 0)
#define FLUSH(a) \
    _mm512_maskz_mov_pd(_mm512_cmp_pd_mask(_mm512_abs_pd(a), _mm512_set1_pd(DBL_MIN), _CMP_NLT_UQ), a)
#include "optim/adam_loops.h"

/* ---------------------------------------------------------------------------------------- AVX2 */

HF_AVX2_CODE HF_INLINE __m256i hf_lanes8(ptrdiff_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n < 8 ? (int)n : 8), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
}

HF_AVX2_CODE HF_INLINE __m256i hf_lanes4(ptrdiff_t n) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n < 4 ? n : 4), _mm256_set_epi64x(3, 2, 1, 0));
}

#define HF_CODE HF_AVX2_CODE
#define NAME(f) hf_adam_##f##_f32_avx2
#define REAL float
#define VEC __m256
#define MASK __m256i
#define LANES 8
#define LANES_OF(n) hf_lanes8(n)
#define LOAD(k, p) _mm256_maskload_ps(p, k)
#define STORE(k, p, a) _mm256_maskstore_ps(p, k, a)
#define SET1(a) _mm256_set1_ps(a)
#define ADD(a, b) _mm256_add_ps(a, b)
#define SUB(a, b) _mm256_sub_ps(a, b)
#define MUL(a, b) _mm256_mul_ps(a, b)
#define DIV(a, b) _mm256_div_ps(a, b)
#define MIN(a, b) _mm256_min_ps(a, b)
#define ROOT(a) _mm256_sqrt_ps(a)
#define ANY(a) (_mm256_movemask_ps(_mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_NEQ_UQ)) != 0)
#define FLUSH(a) \
    _mm256_and_ps(a, _mm256_cmp_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a), _mm256_set1_ps(FLT_MIN), _CMP_NLT_UQ))
#include "optim/adam_loops.h"

#define HF_CODE HF_AVX2_CODE
#define NAME(f) hf_adam_##f##_f64_avx2
#define REAL double
#define VEC __m256d
#define MASK __m256i
#define LANES 4
#define LANES_OF(n) hf_lanes4(n)
#define LOAD(k, p) _mm256_maskload_pd(p, k)
#define STORE(k, p, a) _mm256_maskstore_pd(p, k, a)
#define SET1(a) _mm256_set1_pd(a)
#define ADD(a, b) _mm256_add_pd(a, b)
#define SUB(a, b) _mm256_sub_pd(a, b)
#define MUL(a, b) _mm256_mul_pd(a, b)
#define DIV(a, b) _mm256_div_pd(a, b)
#define MIN(a, b) _mm256_min_pd(a, b)
#define ROOT(a) _mm256_sqrt_pd(a)
#define ANY(a) (_mm256_movemask_pd(_mm256_cmp_pd(a, _mm256_setzero_pd(), _CMP_NEQ_UQ)) != 0)
#define FLUSH(a) \
    _mm256_and_pd(a, _mm256_cmp_pd(_mm256_andnot_pd(_mm256_set1_pd(-0.0), a), _mm256_set1_pd(DBL_MIN), _CMP_NLT_UQ))
#include "optim/adam_loops.h"

#endif /* HF_X86 */

/* --------------------------------------------------------------------------------- by the path */

#if HF_X86
#define HF_BY_PATH(F, SUFFIX, ...)                                          \
    do {                                                                    \
        if (path == HF_PATH_AVX512) hf_adam_##F##_##SUFFIX##_avx512(__VA_ARGS__); \
        else if (path == HF_PATH_AVX2) hf_adam_##F##_##SUFFIX##_avx2(__VA_ARGS__); \
        else hf_adam_##F##_##SUFFIX##_plain(__VA_ARGS__);                   \
    } while (0)
#else
#define HF_BY_PATH(F, SUFFIX, ...)                      \
    do {                                                \
        (void)path;                                     \
        hf_adam_##F##_##SUFFIX##_plain(__VA_ARGS__);    \
    } while (0)
#endif

/* The step whose rate and scale are in a, for n numbers. */
#define HF_ADAM_STEP(SUFFIX, REAL)                                                                            \
    static inline void hf_adam_step_##SUFFIX(                                                                 \
        int path, REAL *p, const REAL *g, REAL *m, REAL *v, ptrdiff_t n, const hf_adam *a) {                  \
        HF_BY_PATH(step, SUFFIX, p, g, m, v, n, a);                                                           \
    }

/* The missed steps start + 1 to stop, for n numbers. */
#define HF_ADAM_PASS(SUFFIX, REAL)                                                                            \
    static inline void hf_adam_pass_##SUFFIX(                                                                 \
        int path, REAL *p, REAL *m, REAL *v, ptrdiff_t n, int64_t start, int64_t stop, const hf_adam *a) {    \
        if (start < 0) start = 0;                                                                             \
        if (start < stop) HF_BY_PATH(pass, SUFFIX, p, m, v, n, start, stop, a);                               \
    }

HF_ADAM_STEP(f32, float)
HF_ADAM_STEP(f64, double)
HF_ADAM_PASS(f32, float)
HF_ADAM_PASS(f64, double)

#endif
