/* Walks by columns: features are read from columns of keys (packed.h), in which the HF_DOWN samples of a group are
   contiguous. */
#ifndef HFOREST_TREE_COLUMNS_H
#define HFOREST_TREE_COLUMNS_H
#include "core/x86.h"
#include "tree/cpu/packed.h"

#if HF_X86
/* Writes the nodes of the samples of n_groups groups after HF_LEVELS levels.

   There are many samples and few nodes. Each node is compared with its column for all samples, so that no sample loads
   a node or a feature of its own. An exit is an edge to the nodes below. A node that sends a sample right removes the
   exits on its left; the sample takes the first exit that remains. Nodes and exits are numbered from left to right,
   level by level. */
#define LEVEL(i) ((i) < 1 ? 0 : (i) < 3 ? 1 : (i) < 7 ? 2 : 3)
#define HALF(i) (HF_DOWN / 2 >> LEVEL(i))
#define LEFT(i) (((1 << HALF(i)) - 1) << 2 * HALF(i) * ((i) + 1 - (1 << LEVEL(i)))) /* the exits left of node i */
HF_AVX512_CODE static void hf_enter_avx512(
    const hf_top *top, const uint32_t *columns, int64_t group_words, int n_groups, uint32_t *at
) {
    HF_COUNT("tree", __func__);
    for (int g = 0; g < n_groups; ++g, columns += group_words, at += HF_DOWN) {
        __m512i exits = _mm512_set1_epi32(0xffff);
        _Pragma("GCC unroll 15") for (int i = 0; i < HF_TOP; ++i) {
            const __m512i x = _mm512_loadu_si512(columns + (size_t)top->column[i] * 2);
            const __mmask16 right = _mm512_cmpgt_epu32_mask(x, _mm512_set1_epi32((int32_t)top->key[i]));
            exits = _mm512_mask_andnot_epi32(exits, right, _mm512_set1_epi32(LEFT(i)), exits);
        }
        /* The lowest set bit, converted to float, has its index as exponent. */
        const __m512i lowest = _mm512_and_si512(exits, _mm512_sub_epi32(_mm512_setzero_si512(), exits));
        const __m512i exponent = _mm512_srli_epi32(_mm512_castps_si512(_mm512_cvtepi32_ps(lowest)), 23);
        const __m512i number = _mm512_sub_epi32(exponent, _mm512_set1_epi32(127));
        _mm512_storeu_si512(at, _mm512_permutexvar_epi32(number, _mm512_loadu_si512(top->exit)));
    }
}
#undef LEVEL
#undef HALF
#undef LEFT
#endif

/* Writes the nodes that samples of n_groups groups reach by whole vectors. Returns the number of levels walked.

   columns      IN (n_groups, group_words)  keys of 32 bits if `single`, else of 64
   at           OUT (n_groups, HF_DOWN) */
static int hf_enter(
    int path, int single, const hf_top *top, const void *columns, int64_t group_words, int n_groups, uint32_t *at
) {
#if HF_X86
    if (path == HF_PATH_AVX512 && single) {
        hf_enter_avx512(top, columns, group_words, n_groups, at);
        return HF_LEVELS;
    }
#else
    (void)path, (void)single, (void)top, (void)columns, (void)group_words;
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
