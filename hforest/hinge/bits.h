/* Compiler built-ins that Cython has no name for. */
#ifndef HFOREST_HINGE_BITS_H
#define HFOREST_HINGE_BITS_H
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
static inline int hf_lowest_bit(uint64_t word) { return __builtin_ctzll(word); }
#else
static inline int hf_lowest_bit(uint64_t word) {
    int bit = 0;
    for (; !(word & 1); word >>= 1) ++bit;
    return bit;
}
#endif

#endif
