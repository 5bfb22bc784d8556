/* Neural decision forests on the CPU: tile.h for each dtype and vector path, and what cpu.pyx calls. */
#ifndef HFOREST_NEURAL_PATHS_H
#define HFOREST_NEURAL_PATHS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/simd.h"
#include "core/watch.h"

#if defined(__GNUC__) || defined(__clang__)
#define HF_VECTORS 1
#define HF_APART __attribute__((noinline))
#define HF_PREFETCH_TO_WRITE(address) __builtin_prefetch(address, 1, 2)
#else
#define HF_VECTORS 0
#define HF_APART
#define HF_PREFETCH_TO_WRITE(address) ((void)(address))
#endif

/* IN: the forest and its decision functions. f (n_samples, n_functions); index (n_trees, n_vertices), or NULL where the
   functions are the vertices of all trees in order; leaves (n_trees, n_vertices + 1, n_classes). */
typedef struct {
    const void *f;
    const int32_t *index;
    const void *leaves;
    ptrdiff_t n_samples, n_functions, n_trees, n_vertices, n_classes;
    hf_watch *watch; /* whether the call is to end: then tiles are left unfinished */
} hf_forest;

/* Posterior mass of all samples below which a leaf counts as not reached. */
#define HF_LEAST_MASS 0x1p-40

enum {
    AHEAD = 64,   /* numbers by which rows of f are prefetched ahead */
    CLASSES = 13, /* sums of a leaf block that fit the sixteen registers of AVX2 */
    LEAVES = 64,  /* leaves summed in the arrays' dtype before the sum goes into float64 */
};

/* Subnormal numbers become 0 inside the kernels: products of decisions pass through them, and processors
   are slow there. A likelihood that this could touch is below LEAST and done again in logarithms; one whose
   inverse could lift what was lost to a leaf's mass of HF_LEAST_MASS is below LEAST_UPDATE. */
#if HF_X86
HF_INLINE unsigned hf_flush(void) {
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040u);
    return before;
}
HF_INLINE void hf_unflush(unsigned before) { _mm_setcsr(before); }
#else
HF_INLINE unsigned hf_flush(void) { return 0; }
HF_INLINE void hf_unflush(unsigned before) { (void)before; }
#endif

#define HF_JOIN2(a, b, c, d) a##b##c##d
#define HF_JOIN(a, b, c, d) HF_JOIN2(a, b, c, d)

/* ------------------------------------------------------------------------------------- float32 */

#define REAL float
#define BITS uint32_t
#define INTS int32_t
#define ROW 16
#define LEAST 0x1p-80
#define LEAST_UPDATE 0x1p-40
#define LOG2_E 0x1.715476p+0f
#define LN2_HIGH 0x1.62e4p-1f
#define LN2_LOW 0x1.7f7d1cp-20f
#define EXP_LIMIT 86.0f
#define EXP_MAGIC 0x1.8p23f
#define EXP_SHIFT 23
#define EXP_DEGREE 4
#define EXP_COEFFICIENTS {0x1.0p-1f, 0x1.5554dcp-3f, 0x1.555518p-5f, 0x1.120be2p-7f, 0x1.6d117cp-10f}

#define X(name) hf_##name##_f32
#include "neural/exact.h"

#define T(name) hf_##name##_f32_plain
#define CODE
#if HF_VECTORS
#define LANES 4
#else
#define LANES 1
#endif
#include "neural/tile.h"

#if HF_X86
/* row[labels[0..7]] for a row of n <= 32 numbers, held in four registers. */
HF_AVX2_CODE HF_INLINE __m256 hf_pick_avx2(const float *row, ptrdiff_t n, const int32_t *labels) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), y = _mm256_loadu_si256((const __m256i *)labels);
    __m256 picked = _mm256_setzero_ps();
    for (int s = 0; s < n; s += 8) {
        const __m256i there = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n - s), lane);
        const __m256i mine = _mm256_cmpgt_epi32(y, _mm256_set1_epi32(s - 1));
        picked = _mm256_blendv_ps(
            picked, _mm256_permutevar8x32_ps(_mm256_maskload_ps(row + s, there), y), _mm256_castsi256_ps(mine));
    }
    return picked;
}
#define PICK hf_pick_avx2
#define T(name) hf_##name##_f32_avx2
#define CODE HF_AVX2_CODE
#define LANES 8
#include "neural/tile.h"

/* row[labels[0..15]] for a row of n <= 32 numbers, held in two registers. */
HF_AVX512_CODE HF_INLINE __m512 hf_pick_avx512(const float *row, ptrdiff_t n, const int32_t *labels) {
    const __m512i y = _mm512_loadu_si512(labels);
    if (n <= 16) return _mm512_permutexvar_ps(y, _mm512_maskz_loadu_ps((__mmask16)((1 << n) - 1), row));
    return _mm512_permutex2var_ps(
        _mm512_loadu_ps(row), y, _mm512_maskz_loadu_ps((__mmask16)((1ll << (n - 16)) - 1), row + 16));
}
#define PICK hf_pick_avx512
#define T(name) hf_##name##_f32_avx512
#define CODE HF_AVX512_CODE
#define LANES 16
#include "neural/tile.h"
#endif

#define HF_DTYPE _f32_
#include "neural/units.h"
#undef HF_DTYPE
#undef REAL
#undef BITS
#undef INTS
#undef ROW
#undef LEAST
#undef LEAST_UPDATE
#undef LOG2_E
#undef LN2_HIGH
#undef LN2_LOW
#undef EXP_LIMIT
#undef EXP_MAGIC
#undef EXP_SHIFT
#undef EXP_DEGREE
#undef EXP_COEFFICIENTS
#undef X

/* ------------------------------------------------------------------------------------- float64 */

#define REAL double
#define BITS uint64_t
#define INTS int64_t
#define ROW 8
#define LEAST 0x1p-900
#define LEAST_UPDATE LEAST
#define LOG2_E 0x1.71547652b82fep+0
#define LN2_HIGH 0x1.62e42feep-1
#define LN2_LOW 0x1.a39ef35793c76p-33
#define EXP_LIMIT 707.0
#define EXP_MAGIC 0x1.8p52
#define EXP_SHIFT 52
#define EXP_DEGREE 9
#define EXP_COEFFICIENTS                                                                                  \
    {0x1.0000000000001p-1, 0x1.5555555555556p-3, 0x1.5555555553d37p-5, 0x1.11111111109a6p-7,               \
     0x1.6c16c1789d1d7p-10, 0x1.a01a01a7cebcdp-13, 0x1.a019b8ca26fcfp-16, 0x1.71de0d85293b8p-19,           \
     0x1.2891d4ffbb0f9p-22, 0x1.af390ba7e6f47p-26}

#define X(name) hf_##name##_f64
#include "neural/exact.h"

#define T(name) hf_##name##_f64_plain
#define CODE
#if HF_VECTORS
#define LANES 2
#else
#define LANES 1
#endif
#include "neural/tile.h"

#if HF_X86
#define T(name) hf_##name##_f64_avx2
#define CODE HF_AVX2_CODE
#define LANES 4
#include "neural/tile.h"

#define T(name) hf_##name##_f64_avx512
#define CODE HF_AVX512_CODE
#define LANES 8
#include "neural/tile.h"
#endif

#define HF_DTYPE _f64_
#include "neural/units.h"

#endif
