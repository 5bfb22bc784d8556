/* Sorting of floating-point numbers: unsigned integer keys in the same order, and a stable radix sort of such keys. */
#ifndef HFOREST_ORDER_H
#define HFOREST_ORDER_H
#include <stdint.h>
#include <string.h>

#include "core/simd.h"
#include "core/watch.h"

enum { HF_INSERTION = 40 /* number of keys up to which insertion sort is faster than a radix pass */ };

/* Returns the key of a number: hf_ordered(a) < hf_ordered(b) if and only if a < b. -0 has the key of 0. */
HF_INLINE uint64_t hf_ordered(double a) {
    uint64_t bits;
    a += 0.0;
    memcpy(&bits, &a, sizeof bits);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}

/* Returns the bits of a float as a signed integer in the order of the floats; -0 has the code of 0. */
HF_INLINE int32_t hf_code_of_float(float a) {
    int32_t bits;
    a += 0.0f;
    memcpy(&bits, &a, sizeof bits);
    return bits ^ (bits >> 31 & 0x7fffffff);
}

/* Returns the float that has a code. */
HF_INLINE float hf_float_of_code(int32_t code) {
    const int32_t bits = code ^ (code >> 31 & 0x7fffffff);
    float a;
    memcpy(&a, &bits, sizeof a);
    return a;
}

/* Sorts keys with their indices, stably.

   key, index     IN (n,), OUT if 0 is returned
   key2, index2   scratch (n,), OUT if 1 is returned

   Returns -1, with undefined contents, if `watch` says that the call has to stop.

   Passes over bytes in which all keys agree are skipped: float32 values converted to double need four of eight. */
static int hf_sort(
    uint64_t *key, uint32_t *index, uint64_t *key2, uint32_t *index2, int64_t n, hf_watch *watch
) {
    if (n <= HF_INSERTION) {
        for (int64_t i = 1; i < n; ++i) {
            const uint64_t k = key[i];
            const uint32_t at = index[i];
            int64_t j = i;
            for (; j > 0 && key[j - 1] > k; --j) {
                key[j] = key[j - 1];
                index[j] = index[j - 1];
            }
            key[j] = k;
            index[j] = at;
        }
        return 0;
    }
    uint32_t count[8][256];
    memset(count, 0, sizeof count);
    for (int64_t i = 0; i < n; ++i)
        for (int b = 0; b < 8; ++b) ++count[b][key[i] >> (8 * b) & 255];
    int swapped = 0;
    for (int b = 0; b < 8; ++b) {
        if (count[b][key[0] >> (8 * b) & 255] == (uint64_t)n) continue;
        uint32_t start[256], total = 0;
        for (int d = 0; d < 256; ++d) {
            start[d] = total;
            total += count[b][d];
        }
        for (int64_t i = 0; i < n;) {
            if (n > HF_WORK && hf_stopped(watch)) return -1;
            const int64_t stop = n - i < HF_WORK ? n : i + HF_WORK;
            for (; i < stop; ++i) {
                const uint32_t to = start[key[i] >> (8 * b) & 255]++;
                key2[to] = key[i];
                index2[to] = index[i];
            }
        }
        uint64_t *k = key;
        uint32_t *at = index;
        key = key2, key2 = k;
        index = index2, index2 = at;
        swapped = !swapped;
    }
    return swapped;
}

#endif
