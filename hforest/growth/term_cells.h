/* Cells of the histograms of one target, and an upper bound of the gain of a split.

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

#endif
