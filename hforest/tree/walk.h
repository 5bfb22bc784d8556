/* Walks down trees of a forest, for float32 and float64.

   Several walks are taken at once: one alone waits for a chain of loads. Where many samples meet a tree, its
   nodes are first packed, leaves as nodes that lead to themselves, so that a step has no branch. */
#ifndef HFOREST_TREE_WALK_H
#define HFOREST_TREE_WALK_H
#include <math.h>
#include <stdint.h>

#include "simd.h"

enum {
    HF_WALKS = 8 /* walks at once: enough to hide the latency of a load from L2 */
};

/* A packed node: leaves lead to themselves, nothing being above infinity. */
typedef struct {
    float threshold;
    int32_t feature;
    int32_t next;
} hf_node_f32;

typedef struct {
    double threshold;
    int32_t feature;
    int32_t next;
} hf_node_f64;

/* The same in 8 bytes, for trees that fit: feature in the low half of `to`, next in the high one. */
typedef struct {
    float threshold;
    uint32_t to;
} hf_small_node;

enum { HF_SMALL = 1 << 16 /* nodes and features below which a tree fits */ };

static int hf_is_small(int64_t n_nodes, int64_t n_features) {
    return n_nodes < HF_SMALL && n_features < HF_SMALL;
}

#if HF_X86
/* Leaves that 32 samples reach in a packed tree: two vectors in flight, three or four gathers a step. */
#define HF_WALK_32(NAME, LOAD)                                                                              \
    HF_AVX512_CODE static void NAME(const void *node, const float *x, int64_t n_features, int32_t *leaf) {  \
        const int32_t *words = (const int32_t *)node;                                                       \
        const __m512i one = _mm512_set1_epi32(1);                                                           \
        const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);        \
        const __m512i row = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int32_t)n_features));               \
        const float *const half[2] = {x, x + 16 * n_features};                                              \
        __m512i v[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};                                    \
        int moved;                                                                                          \
        do {                                                                                                \
            moved = 0;                                                                                      \
            _Pragma("GCC unroll 2") for (int u = 0; u < 2; ++u) {                                           \
                __m512i feature, next;                                                                      \
                __m512 threshold;                                                                           \
                LOAD;                                                                                       \
                const __m512 value = _mm512_i32gather_ps(_mm512_add_epi32(row, feature), half[u], 4);       \
                const __mmask16 right = _mm512_cmp_ps_mask(value, threshold, _CMP_GT_OQ);                   \
                const __m512i to = _mm512_mask_add_epi32(next, right, next, one);                           \
                moved |= _mm512_cmpneq_epi32_mask(to, v[u]);                                                \
                v[u] = to;                                                                                  \
            }                                                                                               \
        } while (moved);                                                                                    \
        _mm512_storeu_si512(leaf, v[0]);                                                                    \
        _mm512_storeu_si512(leaf + 16, v[1]);                                                               \
    }

HF_WALK_32(hf_walk_32_small, {
    const __m512i to_ = _mm512_i32gather_epi32(v[u], words + 1, 8);
    threshold = _mm512_i32gather_ps(v[u], words, 8);
    feature = _mm512_and_si512(to_, _mm512_set1_epi32(0xffff));
    next = _mm512_srli_epi32(to_, 16);
})
HF_WALK_32(hf_walk_32_large, {
    const __m512i at_ = _mm512_add_epi32(v[u], _mm512_add_epi32(v[u], v[u]));
    threshold = _mm512_i32gather_ps(at_, words, 4);
    feature = _mm512_i32gather_epi32(at_, words + 1, 4);
    next = _mm512_i32gather_epi32(at_, words + 2, 4);
})

/* Adds values of the leaves that one sample reached in several trees to its sums, for at most 16 outputs. */
HF_AVX512_CODE static void hf_add_rows_avx512(const float *const *row, int n_rows, int n_outputs, double *sum) {
    const __mmask16 mask = (__mmask16)((1u << n_outputs) - 1);
    __m512d low = _mm512_maskz_loadu_pd((__mmask8)mask, sum);
    __m512d high = _mm512_maskz_loadu_pd((__mmask8)(mask >> 8), sum + 8);
    for (int t = 0; t < n_rows; ++t) {
        const __m512 values = _mm512_maskz_loadu_ps(mask, row[t]);
        low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm512_castps512_ps256(values)));
        high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(values, 1)));
    }
    _mm512_mask_storeu_pd(sum, (__mmask8)mask, low);
    _mm512_mask_storeu_pd(sum + 8, (__mmask8)(mask >> 8), high);
}
#endif

/* Samples that vectors take at once, 0 where there are none: all indices of a gather must fit in 32 bits. */
static int64_t hf_vector_f32(int path, int64_t n_features) {
    return HF_X86 && path == HF_PATH_AVX512 && n_features < 1 << 26 ? 32 : 0;
}
static int64_t hf_vector_f64(int path, int64_t n_features) { return 0; }

static void hf_walk_vector_f32(const void *node, int small, const float *x, int64_t n_features, int32_t *leaf) {
#if HF_X86
    if (small) hf_walk_32_small(node, x, n_features, leaf);
    else hf_walk_32_large(node, x, n_features, leaf);
#endif
}
static void hf_walk_vector_f64(const void *node, int small, const double *x, int64_t n_features, int32_t *leaf) {}

static int hf_add_rows_f32(int path, const float *const *row, int n_rows, int64_t n_outputs, double *sum) {
#if HF_X86
    if (path == HF_PATH_AVX512 && n_outputs <= 16) {
        hf_add_rows_avx512(row, n_rows, (int)n_outputs, sum);
        return 1;
    }
#endif
    return 0;
}
static int hf_add_rows_f64(int path, const double *const *row, int n_rows, int64_t n_outputs, double *sum) {
    return 0;
}

#define real float
#define HF(name) name##_f32
#include "walk_body.h"
#undef real
#undef HF
#define real double
#define HF(name) name##_f64
#include "walk_body.h"
#undef real
#undef HF

#endif
