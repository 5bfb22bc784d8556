/* Walks by AVX-512 gathers, for processors with fast ones, and sums of leaf values by AVX-512. */
#ifndef HFOREST_TREE_GATHERS_H
#define HFOREST_TREE_GATHERS_H
#include "core/x86.h"
#include "tree/packed.h"

enum {
    HF_PART = 128, /* samples walked by gathers together: their rows stay in L1 */
    HF_FLIGHT = 4  /* vectors of walks that are interleaved, because a single one waits for its loads */
};

#if HF_X86
/* The current nodes of sixteen walks. */
typedef struct {
    __m512i feature, next;
    __m512 threshold;
} hf_nodes;

/* The nodes of a tree's top levels, in registers; `to` as in hf_small_node. */
typedef struct {
    __m512i to;
    __m512 threshold;
} hf_top_nodes;

enum { HF_OF_TOP, HF_OF_SMALL, HF_OF_LARGE };

HF_AVX512_CODE HF_INLINE __m512i hf_words(__m512i low, __m512i high, int odd) {
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return _mm512_permutex2var_epi32(low, _mm512_or_si512(even, _mm512_set1_epi32(odd)), high);
}

HF_AVX512_CODE HF_INLINE hf_nodes hf_load_nodes(int form, const void *node, const hf_top_nodes *top, __m512i v) {
    hf_nodes at;
    /* Gathers into zeros do not depend on the previous content of the register. */
    const __m512i zero = _mm512_setzero_si512();
    if (form == HF_OF_LARGE) {
        const int32_t *words = (const int32_t *)node;
        const __m512i first = _mm512_add_epi32(v, _mm512_add_epi32(v, v));
        at.feature = _mm512_mask_i32gather_epi32(zero, 0xffff, first, words + 1, 4);
        at.next = _mm512_mask_i32gather_epi32(zero, 0xffff, first, words + 2, 4);
        at.threshold = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), 0xffff, first, words, 4);
        return at;
    }
    __m512i to;
    if (form == HF_OF_TOP) {
        to = _mm512_permutexvar_epi32(v, top->to);
        at.threshold = _mm512_permutexvar_ps(v, top->threshold);
    } else {
        /* One load per node: half as many loads as for its two words. */
        const __m512i low = _mm512_mask_i32gather_epi64(zero, 0xff, _mm512_castsi512_si256(v), node, 8);
        const __m256i second = _mm512_extracti64x4_epi64(v, 1);
        const __m512i high = _mm512_mask_i32gather_epi64(zero, 0xff, second, node, 8);
        to = hf_words(low, high, 1);
        at.threshold = _mm512_castsi512_ps(hf_words(low, high, 0));
    }
    at.feature = _mm512_and_si512(to, _mm512_set1_epi32(0xffff));
    at.next = _mm512_srli_epi32(to, 16);
    return at;
}

/* Loads the first sixteen nodes of a small tree. Returns 0 if the first HF_LEVELS levels use other nodes. */
HF_AVX512_CODE static int hf_load_top(const hf_small_node *node, int64_t n_nodes, hf_top_nodes *top) {
    const uint32_t have = n_nodes < 16 ? (1u << n_nodes) - 1 : 0xffff;
    const __m512i low = _mm512_maskz_loadu_epi64((__mmask8)have, node);
    const __m512i high = _mm512_maskz_loadu_epi64((__mmask8)(have >> 8), node + 8);
    top->to = hf_words(low, high, 1);
    top->threshold = _mm512_castsi512_ps(hf_words(low, high, 0));
    const __m512i next = _mm512_srli_epi32(top->to, 16);
    return !(_mm512_cmpgt_epi32_mask(next, _mm512_set1_epi32(14)) & 0x7f);
}

/* Returns the positions of the rows of sixteen samples. These are the low halves of `base`: x then has less than 2**31
   elements. */
HF_AVX512_CODE HF_INLINE __m512i hf_begin_of(const hf_walked *w, __m512i s) {
    if (w->base) return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), 0xffff, s, w->base, 8);
    return _mm512_mullo_epi32(s, _mm512_set1_epi32((int32_t)w->n_features));
}

/* Advances n walks by HF_LEVELS levels and removes those that are finished. Returns the number of remaining walks. */
HF_AVX512_CODE HF_INLINE int hf_descend_by_gathers(
    int form, const hf_top_nodes *top, const hf_walked *w, int n, int32_t *at, int32_t *sample, int32_t *leaf
) {
    int kept = 0;
    for (int g = 0; g < n; g += 16 * HF_FLIGHT) {
        __m512i v[HF_FLIGHT], s[HF_FLIGHT], row[HF_FLIGHT];
        __mmask16 moved[HF_FLIGHT];
        _Pragma("GCC unroll 4") for (int u = 0; u < HF_FLIGHT; ++u) {
            v[u] = _mm512_loadu_si512(at + g + 16 * u);
            s[u] = _mm512_loadu_si512(sample + g + 16 * u);
            row[u] = hf_begin_of(w, s[u]);
        }
        _Pragma("GCC unroll 4") for (int level = 0; level < HF_LEVELS; ++level)
            _Pragma("GCC unroll 4") for (int u = 0; u < HF_FLIGHT; ++u) {
                const hf_nodes to = hf_load_nodes(form, w->node, top, v[u]);
                const __m512 value = _mm512_mask_i32gather_ps(
                    _mm512_setzero_ps(), 0xffff, _mm512_add_epi32(row[u], to.feature), w->x, 4
                );
                const __mmask16 right = _mm512_cmp_ps_mask(value, to.threshold, _CMP_GT_OQ);
                const __m512i next = _mm512_mask_add_epi32(to.next, right, to.next, _mm512_set1_epi32(1));
                moved[u] = _mm512_cmpneq_epi32_mask(next, v[u]);
                v[u] = next;
            }
        _Pragma("GCC unroll 4") for (int u = 0; u < HF_FLIGHT; ++u) {
            const int left = n - g - 16 * u;
            const __mmask16 here = left >= 16 ? 0xffff : left > 0 ? (1u << left) - 1 : 0;
            _mm512_mask_i32scatter_epi32(leaf, here & ~moved[u], s[u], v[u], 4);
            _mm512_storeu_si512(at + kept, _mm512_maskz_compress_epi32(here & moved[u], v[u]));
            _mm512_storeu_si512(sample + kept, _mm512_maskz_compress_epi32(here & moved[u], s[u]));
            kept += __builtin_popcount(here & moved[u]);
        }
    }
    return kept;
}

/* Writes the leaves that samples reach in a packed tree, HF_PART samples at a time. */
HF_AVX512_CODE HF_INLINE void hf_walk_form(
    int form, const hf_top_nodes *top, hf_walked w, int64_t n_samples, int32_t *leaf
) {
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    for (int64_t i = 0; i < n_samples; i += HF_PART, leaf += HF_PART) {
        int32_t at[HF_PART + 16 * HF_FLIGHT], sample[HF_PART + 16 * HF_FLIGHT];
        int n = n_samples - i < HF_PART ? (int)(n_samples - i) : HF_PART;
        for (int g = 0; g < n + 16 * (HF_FLIGHT - 1); g += 16) {
            /* Lanes after the last sample repeat it. */
            const __m512i number = _mm512_add_epi32(lane, _mm512_set1_epi32(g));
            _mm512_storeu_si512(at + g, _mm512_setzero_si512());
            _mm512_storeu_si512(sample + g, _mm512_min_epi32(number, _mm512_set1_epi32(n - 1)));
        }
        if (top) n = hf_descend_by_gathers(HF_OF_TOP, top, &w, n, at, sample, leaf);
        while (n > 0) n = hf_descend_by_gathers(form, NULL, &w, n, at, sample, leaf);
        if (w.base) w.base += HF_PART;
        else w.x = (const float *)w.x + HF_PART * w.n_features;
    }
}

HF_AVX512_CODE static void hf_walk_small(const hf_walked *w, int64_t n_nodes, int64_t n, int32_t *leaf) {
    HF_COUNT("tree", __func__);
    hf_top_nodes top;
    if (hf_load_top(w->node, n_nodes, &top)) hf_walk_form(HF_OF_SMALL, &top, *w, n, leaf);
    else hf_walk_form(HF_OF_SMALL, NULL, *w, n, leaf);
}

HF_AVX512_CODE static void hf_walk_large(const hf_walked *w, int64_t n, int32_t *leaf) {
    HF_COUNT("tree", __func__);
    hf_walk_form(HF_OF_LARGE, NULL, *w, n, leaf);
}

/* Adds the values of the leaves that one sample reaches in several trees to the sums of the sample. */
HF_AVX512_CODE static void hf_add_two_avx512(const float *const *row, int n_rows, double *sum) {
    HF_COUNT("tree", __func__);
    __m128d sums = _mm_loadu_pd(sum);
    for (int t = 0; t < n_rows; ++t)
        sums = _mm_add_pd(sums, _mm_cvtps_pd(_mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)row[t]))));
    _mm_storeu_pd(sum, sums);
}

HF_AVX512_CODE static void hf_add_eight_avx512(const float *const *row, int n_rows, int n_outputs, double *sum) {
    HF_COUNT("tree", __func__);
    const __mmask8 mask = (__mmask8)((1u << n_outputs) - 1);
    __m512d sums = _mm512_maskz_loadu_pd(mask, sum);
    for (int t = 0; t < n_rows; ++t)
        sums = _mm512_add_pd(sums, _mm512_cvtps_pd(_mm256_maskz_loadu_ps(mask, row[t])));
    _mm512_mask_storeu_pd(sum, mask, sums);
}

HF_AVX512_CODE static void hf_add_more_avx512(const float *const *row, int n_rows, int n_outputs, double *sum) {
    HF_COUNT("tree", __func__);
    const __mmask8 mask = (__mmask8)((1u << (n_outputs - 8)) - 1);
    __m512d low = _mm512_loadu_pd(sum), high = _mm512_maskz_loadu_pd(mask, sum + 8);
    for (int t = 0; t < n_rows; ++t) {
        low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm256_loadu_ps(row[t])));
        high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm256_maskz_loadu_ps(mask, row[t] + 8)));
    }
    _mm512_storeu_pd(sum, low);
    _mm512_mask_storeu_pd(sum + 8, mask, high);
}
#endif

/* Returns whether walks can use gathers. Gathers read a feature even at a leaf, and have 32-bit indices. */
static int hf_has_gathers(int path, int single, int64_t n_features) {
    return HF_X86 && single && path == HF_PATH_AVX512 && n_features > 0 && n_features <= (1ll << 31) / HF_PART;
}

/* Writes the leaves that n samples reach in a packed tree of float32, whose nodes are hf_small_node if `small`. */
static void hf_walk_by_gathers(const hf_walked *w, int small, int64_t n_nodes, int64_t n, int32_t *leaf) {
#if HF_X86
    if (small) hf_walk_small(w, n_nodes, n, leaf);
    else hf_walk_large(w, n, leaf);
#else
    (void)w, (void)small, (void)n_nodes, (void)n, (void)leaf;
#endif
}

/* Adds rows of float32 leaf values to `sum` (n_outputs,) if vectors can. Returns whether they did. */
static int hf_add_rows(int path, const float *const *row, int n_rows, int64_t n_outputs, double *sum) {
#if HF_X86
    if (path == HF_PATH_AVX512 && n_outputs <= 16) {
        if (n_outputs == 2) hf_add_two_avx512(row, n_rows, sum);
        else if (n_outputs <= 8) hf_add_eight_avx512(row, n_rows, (int)n_outputs, sum);
        else hf_add_more_avx512(row, n_rows, (int)n_outputs, sum);
        return 1;
    }
#else
    (void)path, (void)row, (void)n_rows, (void)n_outputs, (void)sum;
#endif
    return 0;
}

#endif
