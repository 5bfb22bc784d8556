/* In-bag counts from the Poisson distribution of mean 1, for Cython and CUDA. core/philox.py has the same table. */
#ifndef HFOREST_GROWTH_POISSON_H
#define HFOREST_GROWTH_POISSON_H
#include "core/both.h"

/* Returns k with probability exp(-1) / k!, within 2**-32, given a 32-bit word; at most 12. */
HF_BOTH int hf_poisson(uint32_t word) {
    /* 2**32 times the probability of at most k. */
    const uint32_t up_to[12] = {1580030168u, 3160060337u, 3950075421u, 4213413783u, 4279248373u, 4292415291u,
                                4294609777u, 4294923276u, 4294962463u, 4294966817u, 4294967252u, 4294967292u};
    int k = 0;
    while (k < 12 && word >= up_to[k]) ++k;
    return k;
}

#endif
