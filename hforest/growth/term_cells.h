/* Cells of the histograms of one target, the order of few bins, and an upper bound of the gain of a split.

   A split with sums q and u on the left, of a node with sums Q and U, gains

       dl^2 / u + dr^2 / (U - u)        dl = q - mean u,  dr = (Q - q) - mean (U - u)

   In exact arithmetic dr = -dl. Each distance is computed with at most six roundings of numbers below 2^62, so
   |dr| <= |dl| + 2^13, and

       gain u (U - u) <= (|dl| + 2^13)^2 U

   up to the roundings of the products, which a factor of 1 + 2^-40 covers. */
#ifndef HFOREST_GROWTH_TERM_CELLS_H
#define HFOREST_GROWTH_TERM_CELLS_H
#include <stdint.h>
#include <string.h>

#define HF_DISTANCE_ERROR 8192.0
#define HF_GAIN_ERROR (1 + 0x1p-40)

/* Adds the two numbers of a term to those of a cell. */
static inline void hf_add_term(void *cell, const void *term) {
    typedef int64_t pair __attribute__((vector_size(16), aligned(16)));
    *(pair *)cell += *(const pair *)term;
}

/* Bins that hf_order_few orders, at most. */
#define HF_FEW 32

/* Writes the positions of n bins in ascending order; equal bins keep their order. Every bin is compared with every
   other, so that there is no branch that depends on a bin.

   bin    IN, OUT  (HF_FEW,)  n bins; then filled up
   order  OUT      (n,) */
static inline void hf_order_few(int32_t *bin, int n, uint32_t *order) {
    enum { LANES = 4 };
    typedef int32_t lanes __attribute__((vector_size(16)));
    const lanes step = {LANES, LANES, LANES, LANES};
    lanes here, place = {0, 1, 2, 3};
    for (int i = n; i < HF_FEW && i % LANES; ++i) bin[i] = 0;
    for (int at = 0; at < n; at += LANES, place += step) {
        lanes rank = {0};
        memcpy(&here, bin + at, sizeof here);
        for (int j = 0; j < n; ++j) {
            const lanes one = {bin[j], bin[j], bin[j], bin[j]}, number = {j, j, j, j};
            rank -= (one < here) | ((one == here) & (number < place));
        }
        for (int l = 0; l < LANES && at + l < n; ++l) order[rank[l]] = (uint32_t)(at + l);
    }
}

#endif
