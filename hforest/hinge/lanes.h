/* Routing with sixteen trees in the lanes of a vector (AVX-512, float32; p1 Alg. 3).

   One sample passes through sixteen trees at once: its row of x lies in L1, whatever the number of features,
   and results are stored where they belong, sixteen neighbours of a row. The first three levels keep
   thresholds and features in registers and blend; later ones gather them. HF_FLIGHT samples are in flight,
   or every gather would wait for the one before. */
#ifndef HFOREST_HINGE_LANES_H
#define HFOREST_HINGE_LANES_H
#include <stddef.h>
#include <stdint.h>

#include "core/simd.h"

enum {
    HF_WIDTH = 16,          /* trees of a vector */
    HF_FLIGHT = 6,          /* samples in flight */
    HF_LANES_DEPTH = 26     /* deepest tree whose sixteen heaps an int32 numbers */
};

#if HF_X86

/* One level's bookkeeping of sample u. */
#define HF_LEVEL(u)                                                                                     \
    do {                                                                                                \
        __mmask16 closer_ = _mm512_cmp_ps_mask(_mm512_abs_ps(r), _mm512_abs_ps(lowest[u]), _CMP_LT_OQ); \
        lowest[u] = _mm512_mask_mov_ps(lowest[u], closer_, r);                                          \
        nearest[u] = _mm512_mask_mov_epi32(nearest[u], closer_, at[u]);                                 \
        before[u] = right[u];                                                                           \
        right[u] = _mm512_cmp_ps_mask(r, zero, _CMP_GT_OQ);                                             \
        at[u] = _mm512_add_epi32(_mm512_add_epi32(at[u], at[u]), one);                                  \
        at[u] = _mm512_mask_add_epi32(at[u], right[u], at[u], one);                                     \
    } while (0)

#define HF_GATHER(index, from) _mm512_i32gather_ps(index, from, 4)

/* Samples first to first + n - 1 of x through `count` <= 16 trees, which start at `thresholds` and `features`
   with n_vertices each; results of sample s and tree j at s * step + j. */
HF_AVX512_CODE static void hf_route_lanes(
    const float *x, ptrdiff_t n_features, ptrdiff_t n, const float *thresholds, const int32_t *features,
    int n_vertices, int depth, int count, int32_t *leaf, float *margin, int32_t *vertex, ptrdiff_t step) {
    const __mmask16 used = (__mmask16)((1u << count) - 1);
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    /* Spare lanes route through the last tree; their results are not stored. */
    const __m512i base = _mm512_mullo_epi32(
        _mm512_min_epi32(lane, _mm512_set1_epi32(count - 1)), _mm512_set1_epi32(n_vertices));
    const __m512i one = _mm512_set1_epi32(1), leaves = _mm512_set1_epi32((int)((1u << depth) - 1));
    const __m512 zero = _mm512_setzero_ps();
    __m512 t[7];
    __m512i f[7];
    int v, u, level;
    for (v = 0; v < 7; ++v) {
        const __m512i i = _mm512_add_epi32(base, _mm512_set1_epi32(v < n_vertices ? v : 0));
        t[v] = HF_GATHER(i, thresholds);
        f[v] = _mm512_i32gather_epi32(i, features, 4);
    }
    for (ptrdiff_t s = 0; s < n; s += HF_FLIGHT) {
        const int flying = n - s < HF_FLIGHT ? (int)(n - s) : HF_FLIGHT;
        const float *row[HF_FLIGHT];
        __m512 lowest[HF_FLIGHT], r;
        __m512i at[HF_FLIGHT], nearest[HF_FLIGHT];
        __mmask16 right[HF_FLIGHT], before[HF_FLIGHT];
        for (u = 0; u < HF_FLIGHT; ++u) {
            row[u] = x + (u < flying ? s + u : s) * n_features;
            r = _mm512_sub_ps(HF_GATHER(f[0], row[u]), t[0]);
            lowest[u] = r;
            nearest[u] = _mm512_setzero_si512();
            right[u] = _mm512_cmp_ps_mask(r, zero, _CMP_GT_OQ);
            before[u] = 0;
            at[u] = _mm512_mask_add_epi32(one, right[u], one, one);
        }
        if (depth > 1)
            for (u = 0; u < HF_FLIGHT; ++u) {
                const __m512i i = _mm512_mask_mov_epi32(f[1], right[u], f[2]);
                r = _mm512_sub_ps(HF_GATHER(i, row[u]), _mm512_mask_mov_ps(t[1], right[u], t[2]));
                HF_LEVEL(u);
            }
        if (depth > 2)
            for (u = 0; u < HF_FLIGHT; ++u) {
                const __m512 a = _mm512_mask_mov_ps(t[3], right[u], t[4]);
                const __m512 b = _mm512_mask_mov_ps(t[5], right[u], t[6]);
                const __m512i i = _mm512_mask_mov_epi32(f[3], right[u], f[4]);
                const __m512i j = _mm512_mask_mov_epi32(f[5], right[u], f[6]);
                r = _mm512_sub_ps(
                    HF_GATHER(_mm512_mask_mov_epi32(i, before[u], j), row[u]), _mm512_mask_mov_ps(a, before[u], b));
                HF_LEVEL(u);
            }
        for (level = 3; level < depth; ++level)
            for (u = 0; u < HF_FLIGHT; ++u) {
                const __m512i i = _mm512_add_epi32(base, at[u]);
                r = _mm512_sub_ps(
                    HF_GATHER(_mm512_i32gather_epi32(i, features, 4), row[u]), HF_GATHER(i, thresholds));
                HF_LEVEL(u);
            }
        for (u = 0; u < flying; ++u) {
            const ptrdiff_t i = (s + u) * step;
            _mm512_mask_storeu_epi32(leaf + i, used, _mm512_sub_epi32(at[u], leaves));
            _mm512_mask_storeu_ps(margin + i, used, lowest[u]);
            _mm512_mask_storeu_epi32(vertex + i, used, nearest[u]);
        }
    }
}

#endif

/* Whether hf_route_lanes can route these trees. */
static int hf_has_lanes(int path, int itemsize, int depth) {
    return HF_X86 && path == HF_PATH_AVX512 && itemsize == 4 && depth <= HF_LANES_DEPTH;
}

#if !HF_X86
static void hf_route_lanes(
    const float *x, ptrdiff_t n_features, ptrdiff_t n, const float *thresholds, const int32_t *features,
    int n_vertices, int depth, int count, int32_t *leaf, float *margin, int32_t *vertex, ptrdiff_t step) {
    (void)x, (void)n_features, (void)n, (void)thresholds, (void)features, (void)n_vertices, (void)depth;
    (void)count, (void)leaf, (void)margin, (void)vertex, (void)step;
}
#endif

#endif
