/* Routing of ferns with sixteen samples in a vector (AVX-512, float32; p1 Alg. 3 with one decision a level).

   The input of HF_TILE samples is held feature-major (route.h), so a level is one load of each vector. What is
   carried from level to level is little: the least |r|, the level it was met at, and the leaf's bits. The
   margin's sign follows from the leaf: r > 0 is the bit of the nearest level. Only a margin of zero, whose
   sign may be either, is computed once more.

   Sixteen ferns' results are turned over together; leaf and vertex travel in one word. */
#ifndef HFOREST_HINGE_FERNS_H
#define HFOREST_HINGE_FERNS_H
#include <stddef.h>
#include <stdint.h>

#include "hinge/route.h"
#include "core/simd.h"

enum { HF_FERN_DEPTH = 26 /* deepest fern whose leaf and vertex fit one word */ };

#if HF_X86

/* Signs of margins of zero, by the subtraction itself. */
static void hf_zero_margins(const float *x, const float *t, const int32_t *f, int depth, const int32_t *word,
                            float *margin) {
    for (int s = 0; s < HF_TILE; ++s)
        if (margin[s] == 0) {
            const int at = (int)((uint32_t)word[s] >> depth);
            margin[s] = x[((ptrdiff_t)f[at] << HF_TILE_SHIFT) + s] - t[at];
        }
}

/* HF_TILE samples through one fern: words of leaf | vertex << depth, and margins. */
HF_AVX512_CODE HF_INLINE void hf_route_fern(
    const float *x, const float *t, const int32_t *f, int depth, int32_t *word, float *margin) {
    const __m512 zero = _mm512_setzero_ps();
    const __m512i one = _mm512_set1_epi32(1), last = _mm512_set1_epi32(depth - 1);
    __m512 least[2];
    __m512i leaf[2], vertex[2];
    __mmask16 none = 0;
    int u, level;
    const float *column = x + ((ptrdiff_t)f[0] << HF_TILE_SHIFT);
    __m512i bit = _mm512_set1_epi32((int)(1u << (depth - 1))), at;
    for (u = 0; u < 2; ++u) {
        const __m512 r = _mm512_sub_ps(_mm512_loadu_ps(column + 16 * u), _mm512_set1_ps(t[0]));
        least[u] = _mm512_abs_ps(r);
        vertex[u] = _mm512_setzero_si512();
        leaf[u] = _mm512_maskz_mov_epi32(_mm512_cmp_ps_mask(r, zero, _CMP_GT_OQ), bit);
    }
    for (level = 1; level < depth; ++level) {
        const __m512 threshold = _mm512_set1_ps(t[level]);
        column = x + ((ptrdiff_t)f[level] << HF_TILE_SHIFT);
        at = _mm512_set1_epi32(level);
        bit = _mm512_srli_epi32(bit, 1);
        for (u = 0; u < 2; ++u) {
            const __m512 r = _mm512_sub_ps(_mm512_loadu_ps(column + 16 * u), threshold);
            /* The smaller magnitude, its sign cleared. */
            const __m512 nearer = _mm512_range_ps(r, least[u], 0x0a);
            const __mmask16 closer = _mm512_cmp_ps_mask(nearer, least[u], _CMP_LT_OQ);
            const __mmask16 right = _mm512_cmp_ps_mask(r, zero, _CMP_GT_OQ);
            least[u] = nearer;
            vertex[u] = _mm512_mask_mov_epi32(vertex[u], closer, at);
            leaf[u] = _mm512_mask_or_epi32(leaf[u], right, leaf[u], bit);
        }
    }
    for (u = 0; u < 2; ++u) {
        const __m512i turned = _mm512_srlv_epi32(leaf[u], _mm512_sub_epi32(last, vertex[u]));
        const __m512i sign = _mm512_slli_epi32(_mm512_andnot_epi32(turned, one), 31);
        none |= _mm512_cmp_ps_mask(least[u], zero, _CMP_EQ_OQ);
        _mm512_store_ps(margin + 16 * u, _mm512_castsi512_ps(_mm512_or_epi32(_mm512_castps_si512(least[u]), sign)));
        _mm512_store_epi32(word + 16 * u, _mm512_or_epi32(leaf[u], _mm512_slli_epi32(vertex[u], (unsigned)depth)));
    }
    if (none) hf_zero_margins(x, t, f, depth, word, margin);
}

/* Adds w |r| of `count` ferns with one output a leaf, in their order, to the tile's totals. */
HF_AVX512_CODE HF_INLINE void hf_sum_ferns(
    const int32_t *words, const float *margins, int depth, int count, const float *weights, double *total) {
    const __m512i mask = _mm512_set1_epi32((int)((1u << depth) - 1));
    __m512d sum[4];
    int i, j, u;
    for (i = 0; i < 4; ++i) sum[i] = _mm512_loadu_pd(total + 8 * i);
    for (j = 0; j < count; ++j)
        for (u = 0; u < 2; ++u) {
            const int at = j * HF_TILE + 16 * u;
            const __m512i leaf = _mm512_and_epi32(_mm512_load_epi32(words + at), mask);
            const __m512 w = _mm512_i32gather_ps(leaf, weights + ((ptrdiff_t)j << depth), 4);
            const __m512 y = _mm512_mul_ps(w, _mm512_abs_ps(_mm512_load_ps(margins + at)));
            sum[2 * u] = _mm512_add_pd(sum[2 * u], _mm512_cvtps_pd(_mm512_castps512_ps256(y)));
            sum[2 * u + 1] = _mm512_add_pd(sum[2 * u + 1], _mm512_cvtps_pd(_mm512_extractf32x8_ps(y, 1)));
        }
    for (i = 0; i < 4; ++i) _mm512_storeu_pd(total + 8 * i, sum[i]);
}

/* n <= HF_TILE samples of a tile through `count` <= HF_GROUP ferns. Results of sample s and fern j go to
   s * step + j, unless leaf is NULL; unless weights (count, 2**depth) is NULL, its HF_TILE sums grow. */
HF_AVX512_CODE static void hf_route_ferns(
    const float *tile, ptrdiff_t n, const float *thresholds, const int32_t *features, int depth, int count,
    int32_t *leaf, float *margin, int32_t *vertex, ptrdiff_t step, const float *weights, double *total) {
    int32_t words[HF_GROUP * HF_TILE] __attribute__((aligned(64)));
    float margins[HF_GROUP * HF_TILE] __attribute__((aligned(64)));
    const int32_t mask = (int32_t)((1u << depth) - 1);
    ptrdiff_t s = 0;
    int j;
    for (j = 0; j < count; ++j)
        hf_route_fern(
            tile, thresholds + j * depth, features + j * depth, depth, words + j * HF_TILE, margins + j * HF_TILE);
    if (weights) hf_sum_ferns(words, margins, depth, count, weights, total);
    if (!leaf) return;
    if (count == HF_GROUP)
        for (; s + 16 <= n; s += 16) {
            __m512i row[16];
            int i;
            hf_turn_registers_avx512(words + s, HF_TILE, row);
            for (i = 0; i < 16; ++i) {
                _mm512_storeu_si512(leaf + (s + i) * step, _mm512_and_epi32(row[i], _mm512_set1_epi32(mask)));
                _mm512_storeu_si512(vertex + (s + i) * step, _mm512_srli_epi32(row[i], (unsigned)depth));
            }
            hf_turn16_avx512((const int32_t *)margins + s, HF_TILE, (int32_t *)margin + s * step, step);
        }
    for (; s < n; ++s)
        for (j = 0; j < count; ++j) {
            leaf[s * step + j] = words[j * HF_TILE + s] & mask;
            vertex[s * step + j] = (int32_t)((uint32_t)words[j * HF_TILE + s] >> depth);
            margin[s * step + j] = margins[j * HF_TILE + s];
        }
}

#endif

/* Whether hf_route_ferns can route these ferns. */
static int hf_has_ferns(int path, int itemsize, int depth) {
    return HF_X86 && path == HF_PATH_AVX512 && itemsize == 4 && depth <= HF_FERN_DEPTH;
}

#if !HF_X86
static void hf_route_ferns(
    const float *tile, ptrdiff_t n, const float *thresholds, const int32_t *features, int depth, int count,
    int32_t *leaf, float *margin, int32_t *vertex, ptrdiff_t step, const float *weights, double *total) {
    (void)tile, (void)n, (void)thresholds, (void)features, (void)depth, (void)count;
    (void)leaf, (void)margin, (void)vertex, (void)step, (void)weights, (void)total;
}
#endif

#endif
