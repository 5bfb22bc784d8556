/* Cells of the histograms of one target, the order of few bins, and an upper bound of the gain of a split.

   A split with sums q and u on the left, of a node with sums Q and U, gains

       dl^2 / u + dr^2 / (U - u)        dl = q - mean u,  dr = (Q - q) - mean (U - u)

   In exact arithmetic dr = -dl. Each distance is computed with at most six roundings of numbers below 2^62, so
   |dr| <= |dl| + 2^13, and

       gain u (U - u) <= (|dl| + 2^13)^2 U

   up to the roundings of the products and sums, which a factor of 1 + 2^-40 covers: 2^-53 for each of up to 2^13 sums.

   By Gini the score of a split exceeds that of the node by the gains of the weights of all classes, of which those of two
   classes are equal. A score is at most the weight of the node, and is off by 2^-40 of it at most. */
#ifndef HFOREST_GROWTH_TERM_CELLS_H
#define HFOREST_GROWTH_TERM_CELLS_H
#include <stdint.h>
#include <string.h>

#define HF_DISTANCE_ERROR 8192.0
#define HF_GAIN_ERROR (1 + 0x1p-40)
#define HF_SCORE_ERROR 0x1p-40

/* Adds the two numbers of a term to those of a cell. */
static inline void hf_add_term(void *cell, const void *term) {
    typedef int64_t pair __attribute__((vector_size(16), aligned(16)));
    *(pair *)cell += *(const pair *)term;
}

/* Adds the four numbers of hf_weighed to those of a cell. */
static inline void hf_add_weighed(void *cell, const void *term) {
    typedef int64_t four __attribute__((vector_size(32), aligned(8)));
    *(four *)cell += *(const four *)term;
}

/* Bins that hf_order_few orders, at most. */
#define HF_FEW 32

/* Writes the positions of n bins from `lowest` to lowest + 2^26 - 1 in ascending order; equal bins keep their order.
   Every bin is compared with every other, so that no branch depends on a bin.

   bin    IN   (n,)
   order  OUT  (n,) */
static inline void hf_order_few(const int32_t *bin, int n, int32_t lowest, uint8_t *order) {
    typedef int32_t lanes __attribute__((vector_size(16)));
    enum { LANES = 4 };
    union {
        int32_t one[HF_FEW];
        lanes some[HF_FEW / LANES];
    } key, rank;
    for (int i = 0; i < n; ++i) key.one[i] = (bin[i] - lowest) * HF_FEW + i;
    for (int i = n; i % LANES; ++i) key.one[i] = 0;
    for (int at = 0; LANES * at < n; ++at) {
        const lanes here = key.some[at];
        lanes below = {0};
        for (int j = 0; j < n; ++j) below -= (lanes){key.one[j], key.one[j], key.one[j], key.one[j]} < here;
        rank.some[at] = below;
    }
    for (int i = 0; i < n; ++i) order[rank.one[i]] = (uint8_t)i;
}

#endif
