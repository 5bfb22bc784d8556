/* Walks by columns: features are read from columns of keys (packed.h), in which the HF_DOWN samples of a group are
   contiguous. */
#ifndef HFOREST_TREE_COLUMNS_H
#define HFOREST_TREE_COLUMNS_H
#include "core/x86.h"
#include "tree/packed.h"

#if HF_X86
/* Returns sixteen bit masks of exits, from one vector for float32 or two vectors for float64. */
HF_AVX512_CODE HF_INLINE __m512i hf_exits(int size, __m512i low, __m512i high) {
    if (size == 4) return low;
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(low)), _mm512_cvtepi64_epi32(high), 1);
}

/* Writes the node of the first exit in each mask: the lowest set bit, converted to float, has its index as exponent. */
HF_AVX512_CODE HF_INLINE void hf_first_exits(__m512i exits, const uint32_t *exit, uint32_t *at) {
    const __m512i lowest = _mm512_and_si512(exits, _mm512_sub_epi32(_mm512_setzero_si512(), exits));
    const __m512i exponent = _mm512_srli_epi32(_mm512_castps_si512(_mm512_cvtepi32_ps(lowest)), 23);
    const __m512i number = _mm512_sub_epi32(exponent, _mm512_set1_epi32(127));
    _mm512_storeu_si512(at, _mm512_permutexvar_epi32(number, _mm512_loadu_si512(exit)));
}
#endif

#if HF_VECTORS
#define NAME hf_enter_floats_vector
#define WORD uint32_t
#define BYTES 16
#define CODE
#define KEEP(m, x, t, left) ((m) & ~((KEYS)((x) > (t)) & (left)))
#include "tree/simd/enter.h"
#define NAME hf_enter_doubles_vector
#define WORD uint64_t
#define BYTES 16
#define CODE
#define KEEP(m, x, t, left) ((m) & ~((KEYS)((x) > (t)) & (left)))
#include "tree/simd/enter.h"
#if HF_X86
#define NAME hf_enter_floats_avx2
#define WORD uint32_t
#define BYTES 32
#define CODE HF_AVX2_CODE
#define KEEP(m, x, t, left) ((m) & ~((KEYS)((x) > (t)) & (left)))
#include "tree/simd/enter.h"
#define NAME hf_enter_doubles_avx2
#define WORD uint64_t
#define BYTES 32
#define CODE HF_AVX2_CODE
#define KEEP(m, x, t, left) ((m) & ~((KEYS)((x) > (t)) & (left)))
#include "tree/simd/enter.h"
#define NAME hf_enter_floats_avx512
#define WORD uint32_t
#define BYTES 64
#define CODE HF_AVX512_CODE
#define KEEP(m, x, t, left)                                                                                  \
    ((KEYS)_mm512_mask_andnot_epi32(                                                                                 \
        (__m512i)(m), _mm512_cmpgt_epu32_mask((__m512i)(x), (__m512i)(t)), (__m512i)(left), (__m512i)(m)             \
    ))
#include "tree/simd/enter.h"
#define NAME hf_enter_doubles_avx512
#define WORD uint64_t
#define BYTES 64
#define CODE HF_AVX512_CODE
#define KEEP(m, x, t, left)                                                                                  \
    ((KEYS)_mm512_mask_andnot_epi64(                                                                                 \
        (__m512i)(m), _mm512_cmpgt_epu64_mask((__m512i)(x), (__m512i)(t)), (__m512i)(left), (__m512i)(m)             \
    ))
#include "tree/simd/enter.h"
#endif
#endif

/* Writes the nodes that samples of n_groups groups reach by whole vectors. Returns the number of levels walked.

   columns      IN (n_groups, group_words)  keys of 32 bits if `single`, else of 64
   at           OUT (n_groups, HF_DOWN) */
static int hf_enter(
    int path, int single, const hf_top *top, const void *columns, int64_t group_words, int n_groups, uint32_t *at
) {
#if HF_X86
    if (path == HF_PATH_AVX512 || path == HF_PATH_AVX2) {
        if (path == HF_PATH_AVX512 && single) hf_enter_floats_avx512(top, columns, group_words, n_groups, at);
        else if (path == HF_PATH_AVX512) hf_enter_doubles_avx512(top, columns, group_words, n_groups, at);
        else if (single) hf_enter_floats_avx2(top, columns, group_words, n_groups, at);
        else hf_enter_doubles_avx2(top, columns, group_words, n_groups, at);
        return HF_LEVELS;
    }
#endif
#if HF_VECTORS
    /* SSE2 has no 64-bit comparison. */
    if (path == HF_PATH_VECTOR && (single || !HF_X86)) {
        if (single) hf_enter_floats_vector(top, columns, group_words, n_groups, at);
        else hf_enter_doubles_vector(top, columns, group_words, n_groups, at);
        return HF_LEVELS;
    }
#endif
    memset(at, 0, (size_t)n_groups * HF_DOWN * sizeof *at);
    return 0;
}

/* Returns the child of node v for the sample whose key of feature 0 is at x. */
HF_INLINE uint32_t hf_child(int form, const void *node, uint32_t v, const char *x) {
    if (form == HF_SMALL_KEYS) {
        const hf_small_key_node *from = (const hf_small_key_node *)node + v;
        return from->next + (*(const uint32_t *)(x + (size_t)from->column * 8) > from->key);
    }
    if (form == HF_FLOAT_KEYS) {
        const hf_float_key_node *from = (const hf_float_key_node *)node + v;
        return from->next + (*(const uint32_t *)(x + (size_t)from->column * 8) > from->key);
    }
    const hf_double_key_node *from = (const hf_double_key_node *)node + v;
    return from->next + (*(const uint64_t *)(x + (size_t)from->column * 8) > from->key);
}

/* Advances the walks of HF_DOWN samples, interleaved because each waits for its loads. The samples are those of one
   group, or sample u has its keys at x[u]. */
HF_INLINE void hf_advance(
    int form, const void *node, int levels, const char *group, const char *const *x, uint32_t *at
) {
    const size_t key = form == HF_DOUBLE_KEYS ? 8 : 4;
    uint32_t v[HF_DOWN];
    _Pragma("GCC unroll 16") for (int u = 0; u < HF_DOWN; ++u) v[u] = at[u];
    for (int level = 0; level < levels; ++level)
        _Pragma("GCC unroll 16") for (int u = 0; u < HF_DOWN; ++u)
            v[u] = hf_child(form, node, v[u], x ? x[u] : group + u * key);
    _Pragma("GCC unroll 16") for (int u = 0; u < HF_DOWN; ++u) at[u] = v[u];
}

/* These are separate functions, so that no other variables occupy the registers that the nodes need. */
HF_APART static void hf_advance_group_small(const void *node, int levels, const char *group, uint32_t *at) {
    HF_COUNT("tree", __func__);
    hf_advance(HF_SMALL_KEYS, node, levels, group, NULL, at);
}
HF_APART static void hf_advance_group_floats(const void *node, int levels, const char *group, uint32_t *at) {
    HF_COUNT("tree", __func__);
    hf_advance(HF_FLOAT_KEYS, node, levels, group, NULL, at);
}
HF_APART static void hf_advance_group_doubles(const void *node, int levels, const char *group, uint32_t *at) {
    HF_COUNT("tree", __func__);
    hf_advance(HF_DOUBLE_KEYS, node, levels, group, NULL, at);
}
HF_APART static void hf_advance_each_small(const void *node, const char *const *x, uint32_t *at) {
    HF_COUNT("tree", __func__);
    hf_advance(HF_SMALL_KEYS, node, HF_LEVELS, NULL, x, at);
}
HF_APART static void hf_advance_each_floats(const void *node, const char *const *x, uint32_t *at) {
    HF_COUNT("tree", __func__);
    hf_advance(HF_FLOAT_KEYS, node, HF_LEVELS, NULL, x, at);
}
HF_APART static void hf_advance_each_doubles(const void *node, const char *const *x, uint32_t *at) {
    HF_COUNT("tree", __func__);
    hf_advance(HF_DOUBLE_KEYS, node, HF_LEVELS, NULL, x, at);
}

/* Advances the samples of a group by `levels` levels. at: IN and OUT (HF_DOWN,). */
static void hf_advance_group(int form, const void *node, int levels, const char *group, uint32_t *at) {
    if (form == HF_SMALL_KEYS) hf_advance_group_small(node, levels, group, at);
    else if (form == HF_FLOAT_KEYS) hf_advance_group_floats(node, levels, group, at);
    else hf_advance_group_doubles(node, levels, group, at);
}

/* Advances HF_DOWN samples, whose keys are at x[u], by HF_LEVELS levels. at: IN and OUT (HF_DOWN,). */
static void hf_advance_each(int form, const void *node, const char *const *x, uint32_t *at) {
    if (form == HF_SMALL_KEYS) hf_advance_each_small(node, x, at);
    else if (form == HF_FLOAT_KEYS) hf_advance_each_floats(node, x, at);
    else hf_advance_each_doubles(node, x, at);
}

#endif
