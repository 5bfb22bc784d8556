/* Neural decision forests on the CPU: includes simd/tile.h for each dtype and vector path. */
#ifndef HFOREST_NEURAL_TILES_H
#define HFOREST_NEURAL_TILES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/counting.h"
#include "core/watch.h"
#include "core/x86.h"
#include "neural/mass.h"

#if defined(__GNUC__) || defined(__clang__)
#define HF_PREFETCH_TO_WRITE(address) __builtin_prefetch(address, 1, 2)
#else
#define HF_PREFETCH_TO_WRITE(address) ((void)(address))
#endif

/* IN: the forest and its decision functions. f (n_samples, n_functions); index (n_trees, n_vertices), or NULL if the
   functions are the vertices of all trees in order; leaves (n_trees, n_vertices + 1, n_classes); weight (n_samples,),
   the factors of posteriors in `expect`, or NULL for 1. */
typedef struct {
    const void *f;
    const int32_t *index;
    const void *leaves;
    const double *weight;
    ptrdiff_t n_samples, n_functions, n_trees, n_vertices, n_classes;
    hf_watch *watch; /* says whether the call has to stop; tiles are then left unfinished */
} hf_forest;

/* The operations on a tile, `count` <= row samples from `first` on: a table for each dtype and vector path. Arrays of
   void have that dtype. workspace: rows of 64 bytes, aligned to 64. Samples whose likelihood is too small for plain
   products are left to exact.pyx. */
typedef struct {
    int row;                    /* samples per tile */
    double least, least_update; /* likelihoods below which products lose digits, and those for the leaf update */

    /* Writes mu of the leaves of tree m.
       workspace (3 n_vertices + 2) rows; mu: OUT (n_samples, n_trees, n_leaves) */
    void (*route)(
        const hf_forest *a, ptrdiff_t first, int count, ptrdiff_t m, unsigned char *workspace, void *mu);

    /* Writes the means over trees of the leaves' probabilities.
       workspace (3 n_vertices + 2) rows, total (n_classes, row); p: OUT (n_samples, n_classes) */
    void (*forward)(
        const hf_forest *a, ptrdiff_t first, int count, unsigned char *workspace, double *total, void *p);

    /* Writes the gradient of the labels' loss; with `forest` (one loss of all trees) without a factor per sample.
       y: IN (n_samples,); workspace (4 n_vertices + 2) rows; likelihood: OUT (n_trees, row); total and p: as in
       `forward`, or p is NULL; grad_f: OUT (n_samples, n_functions) */
    void (*labels)(
        const hf_forest *a, const int32_t *y, int forest, ptrdiff_t first, int count, unsigned char *workspace,
        double *likelihood, double *total, void *grad_f, void *p);

    /* Writes the gradient of any loss, from its gradient with respect to the result of `forward`.
       grad_p: IN (n_samples, n_classes); workspace (4 n_vertices + 2 + n_classes) rows;
       grad_f: OUT (n_samples, n_functions) */
    void (*outputs)(
        const hf_forest *a, const void *grad_p, ptrdiff_t first, int count, unsigned char *workspace, void *grad_f);

    /* Adds the weighted posteriors of tree m's leaves, for samples of one class, to `total` (n_leaves,). Samples whose
       likelihood is below least_update add nothing.
       order: IN (count,) samples; column: IN (n_leaves,) probabilities of the class; workspace (3 n_vertices + 2) rows;
       memory: (n_leaves, row), mu of the leaves, OUT the first time, IN afterwards; or NULL; p: OUT (row,) */
    void (*expect)(
        const hf_forest *a, const int32_t *order, int count, ptrdiff_t m, const void *column, unsigned char *workspace,
        void *memory, int first_time, double *p, double *total);

    /* Multiplies n elements by a factor. */
    void (*multiply)(void *a, ptrdiff_t n, double factor);
} hf_tiles;

enum {
    AHEAD = 64,   /* elements between the prefetch of a row of f and its use */
    CLASSES = 13, /* sums per block of leaves that fit in the sixteen registers of AVX2 */
    LEAVES = 1 << HF_LEVELS, /* leaves summed in the arrays' dtype before the sum is added to float64 */
};

/* Flushes subnormal numbers to 0 inside the kernels, because products of decisions pass through them and processors are
   slow there. A likelihood that this could change is below LEAST and is computed again in logarithms. A likelihood
   whose inverse could scale the loss of flushing up to HF_LEAST_MASS in a leaf is below LEAST_UPDATE. */
HF_INLINE unsigned hf_flush(void) {
    const uint64_t before = hf_state();
    hf_set_state(before | HF_FLUSH);
    return (unsigned)before;
}
HF_INLINE void hf_unflush(unsigned before) { hf_set_state(before); }

/* ------------------------------------------------------------------------------------- float32 */

#define DIGITS 24
#define ROW HF_ROW_F32
#define LEAST HF_LEAST_F32
#define LEAST_UPDATE HF_LEAST_UPDATE_F32

#define T(name) hf_##name##_f32_plain
#define TILES hf_tiles_f32_plain
#define CODE
#define LANES 1
#include "neural/cpu/simd/tile.h"

#if HF_VECTORS
#define T(name) hf_##name##_f32_vector
#define TILES hf_tiles_f32_vector
#define CODE
#define LANES 4
#include "neural/cpu/simd/tile.h"
#endif

#if HF_X86
/* Returns row[labels[0..7]] for a row of n <= 32 elements, held in four registers. */
HF_AVX2_CODE HF_INLINE __m256 hf_pick_avx2(const float *row, ptrdiff_t n, const int32_t *labels) {
    HF_COUNT("neural", __func__);
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
#define TILES hf_tiles_f32_avx2
#define CODE HF_AVX2_CODE
#define LANES 8
#include "neural/cpu/simd/tile.h"

/* Returns row[labels[0..15]] for a row of n <= 32 elements, held in two registers. */
HF_AVX512_CODE HF_INLINE __m512 hf_pick_avx512(const float *row, ptrdiff_t n, const int32_t *labels) {
    HF_COUNT("neural", __func__);
    const __m512i y = _mm512_loadu_si512(labels);
    if (n <= 16) return _mm512_permutexvar_ps(y, _mm512_maskz_loadu_ps((__mmask16)((1 << n) - 1), row));
    return _mm512_permutex2var_ps(
        _mm512_loadu_ps(row), y, _mm512_maskz_loadu_ps((__mmask16)((1ll << (n - 16)) - 1), row + 16));
}
#define PICK hf_pick_avx512
#define T(name) hf_##name##_f32_avx512
#define TILES hf_tiles_f32_avx512
#define CODE HF_AVX512_CODE
#define LANES 16
#include "neural/cpu/simd/tile.h"
#endif

#undef DIGITS
#undef ROW
#undef LEAST
#undef LEAST_UPDATE

/* ------------------------------------------------------------------------------------- float64 */

#define DIGITS 53
#define ROW HF_ROW_F64
#define LEAST HF_LEAST_F64
#define LEAST_UPDATE HF_LEAST_UPDATE_F64

#define T(name) hf_##name##_f64_plain
#define TILES hf_tiles_f64_plain
#define CODE
#define LANES 1
#include "neural/cpu/simd/tile.h"

#if HF_VECTORS
#define T(name) hf_##name##_f64_vector
#define TILES hf_tiles_f64_vector
#define CODE
#define LANES 2
#include "neural/cpu/simd/tile.h"
#endif

#if HF_X86
#define T(name) hf_##name##_f64_avx2
#define TILES hf_tiles_f64_avx2
#define CODE HF_AVX2_CODE
#define LANES 4
#include "neural/cpu/simd/tile.h"

#define T(name) hf_##name##_f64_avx512
#define TILES hf_tiles_f64_avx512
#define CODE HF_AVX512_CODE
#define LANES 8
#include "neural/cpu/simd/tile.h"
#endif

/* Returns the functions of a dtype and a vector path. */
static const hf_tiles *hf_tiles_of(int single, int path) {
#if HF_X86
    if (path == HF_PATH_AVX512) return single ? &hf_tiles_f32_avx512 : &hf_tiles_f64_avx512;
    if (path == HF_PATH_AVX2) return single ? &hf_tiles_f32_avx2 : &hf_tiles_f64_avx2;
#endif
#if HF_VECTORS
    if (path == HF_PATH_VECTOR) return single ? &hf_tiles_f32_vector : &hf_tiles_f64_vector;
#endif
    (void)path;
    return single ? &hf_tiles_f32_plain : &hf_tiles_f64_plain;
}

#endif
