/* Sets of small numbers as bits of words. */
#ifndef HFOREST_HINGE_BITS_H
#define HFOREST_HINGE_BITS_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/simd.h"

#if defined(__GNUC__) || defined(__clang__)
static inline int hf_lowest_bit(uint64_t word) { return __builtin_ctzll(word); }
#else
static inline int hf_lowest_bit(uint64_t word) {
    int bit = 0;
    for (; !(word & 1); word >>= 1) ++bit;
    return bit;
}
#endif

#if HF_X86
/* Sixteen columns; a shift by 32 or more gives 0. */
HF_AVX512_CODE static void hf_mark_sixteen(const int32_t *index, ptrdiff_t step, ptrdiff_t n, uint64_t *seen) {
    const __m512i one = _mm512_set1_epi32(1), half = _mm512_set1_epi32(32);
    __m512i low = _mm512_setzero_si512(), high = low;
    uint32_t words[32];
    for (ptrdiff_t s = 0; s < n; ++s) {
        const __m512i v = _mm512_loadu_si512(index + s * step);
        if (s + 32 < n) HF_PREFETCH(index + (s + 32) * step);
        low = _mm512_or_epi32(low, _mm512_sllv_epi32(one, v));
        high = _mm512_or_epi32(high, _mm512_sllv_epi32(one, _mm512_sub_epi32(v, half)));
    }
    _mm512_storeu_si512(words, low);
    _mm512_storeu_si512(words + 16, high);
    for (int j = 0; j < 16; ++j) seen[j] = (uint64_t)words[16 + j] << 32 | words[j];
}
#endif

/* seen[j]: a bit for each value, below 64, in column j of index (n, count) with `step` elements a row. */
static void hf_mark_columns(int path, const int32_t *index, ptrdiff_t step, ptrdiff_t n, int count, uint64_t *seen) {
    int j;
#if HF_X86
    if (path == HF_PATH_AVX512 && count == 16) {
        hf_mark_sixteen(index, step, n, seen);
        return;
    }
#endif
    (void)path;
    for (j = 0; j < count; ++j) seen[j] = 0;
    for (ptrdiff_t s = 0; s < n; ++s)
        for (j = 0; j < count; ++j) seen[j] |= (uint64_t)1 << index[s * step + j];
}

/* Sets of slots as bytes, for `count` columns side by side: seen[j * n_slots + value]. A store does not wait for
   the one before, as a bit of the same word does. */
static void hf_mark_bytes(
    const int32_t *index, ptrdiff_t step, ptrdiff_t n, int count, ptrdiff_t n_slots, unsigned char *seen) {
    memset(seen, 0, (size_t)(count * n_slots));
    for (ptrdiff_t s = 0; s < n; ++s) {
        const int32_t *row = index + s * step;
        if (s + 32 < n) hf_fetch(row + 32 * step, 4 * count);
        for (int j = 0; j < count; ++j) seen[j * n_slots + row[j]] = 1;
    }
}

/* offset + the number of each marked slot, at most `most` of them; how many there are. */
static ptrdiff_t hf_list_bytes(
    const unsigned char *seen, ptrdiff_t n_slots, int64_t offset, ptrdiff_t most, int64_t *rows) {
    ptrdiff_t i = 0;
    /* Written whether marked or not: no branch depends on the data. */
    for (ptrdiff_t slot = 0; slot < n_slots && i < most; ++slot) {
        rows[i] = offset + slot;
        i += seen[slot];
    }
    return i;
}

#endif
