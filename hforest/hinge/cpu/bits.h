#ifndef HFOREST_HINGE_BITS_H
#define HFOREST_HINGE_BITS_H
#include <stdint.h>

/* Returns the number of the lowest set bit of a word that is not 0. */
static inline int hf_lowest_bit(uint64_t word) {
#if defined(__GNUC__) || defined(__clang__)
    return __builtin_ctzll(word);
#else
    int bit = 0;
    for (; !(word & 1); word >>= 1) ++bit;
    return bit;
#endif
}

#endif
