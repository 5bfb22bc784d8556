/* A column's values as codes. */
#ifndef HFOREST_GROWTH_ENCODE_H
#define HFOREST_GROWTH_ENCODE_H
#include "core/order.h"

/* hf_encode where the values are whole numbers below 256 and not more different ones than n_codes, such as pixels; else 0.
   Nothing is sorted. */
static int64_t hf_encode_bytes(
    const double *value, int64_t n, int64_t n_codes, uint32_t *code, double *low, double *high
) {
    uint8_t present[256] = {0};
    uint32_t rank[256];
    int64_t n_distinct = 0;
    for (int64_t i = 0; i < n; ++i) {
        if (!(value[i] >= 0 && value[i] < 256) || value[i] != (double)(int32_t)value[i]) return 0;
        present[(int32_t)value[i]] = 1;
    }
    for (int c = 0; c < 256; ++c) n_distinct += present[c];
    if (n_distinct > n_codes) return 0;
    n_distinct = 0;
    for (int c = 0; c < 256; ++c) {
        if (!present[c]) continue;
        low[n_distinct] = high[n_distinct] = c;
        rank[c] = (uint32_t)n_distinct++;
    }
    for (int64_t i = 0; i < n; ++i) code[i] = rank[(int32_t)value[i]];
    return n_distinct;
}

/* Codes of n > 0 values `value`, already as keys of hf_ordered in `key` with index 0..n-1 beside them; how many codes
   there are. Ranks of the distinct values, or where those are more than n_codes, bins of about as many samples
   each. low and high get the least and the greatest value of each code. 0 if the call is to end. */
static int64_t hf_encode(
    const double *value, int64_t n, int64_t n_codes, uint64_t *key, uint32_t *index, uint64_t *key2,
    uint32_t *index2, uint32_t *code, double *low, double *high, hf_watch *watch
) {
    const int swapped = hf_sort(key, index, key2, index2, n, watch);
    if (swapped < 0) return 0;
    if (swapped) key = key2, index = index2;
    int64_t n_distinct = 1;
    for (int64_t i = 1; i < n; ++i) n_distinct += key[i] != key[i - 1];
    int64_t last = -1, bin = -1, n_steps = 0;
    for (int64_t i = 0; i < n;) {
        int64_t stop = i + 1;
        while (stop < n && key[stop] == key[i]) ++stop;
        /* Values and codes of neighbours lie anywhere in memory: a step is slow. */
        if (hf_stopped_after(watch, &n_steps, 8 * (stop - i))) return 0;
        /* A value's bin is where the middle of its samples lies. */
        const int64_t wanted = n_distinct <= n_codes ? bin + 1 : (i + stop) * n_codes / (2 * n);
        if (wanted != bin) {
            bin = wanted;
            low[++last] = value[index[i]] + 0.0;
        }
        high[last] = value[index[i]] + 0.0;
        for (; i < stop; ++i) code[index[i]] = (uint32_t)last;
    }
    return last + 1;
}

#endif
