/* Philox 4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3; SC 2011): four words from a key
   and a counter, so that a draw depends on what it is for and not on what was drawn before. philox.py is the
   same in Python. */
#ifndef HFOREST_PHILOX_H
#define HFOREST_PHILOX_H
#include <stdint.h>

#include "simd.h"

typedef struct {
    uint32_t word[4];
} hf_draw;

HF_INLINE hf_draw hf_philox(uint64_t key, uint64_t counter, uint64_t stream) {
    uint32_t a = (uint32_t)counter, b = (uint32_t)(counter >> 32), c = (uint32_t)stream, d = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const uint64_t p = (uint64_t)0xD2511F53u * a, q = (uint64_t)0xCD9E8D57u * c;
        a = (uint32_t)(q >> 32) ^ b ^ k0;
        b = (uint32_t)q;
        c = (uint32_t)(p >> 32) ^ d ^ k1;
        d = (uint32_t)p;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const hf_draw draw = {{a, b, c, d}};
    return draw;
}

HF_INLINE uint64_t hf_draw_key(hf_draw draw, int which) {
    return (uint64_t)draw.word[2 * which + 1] << 32 | draw.word[2 * which];
}

/* 0 <= result < stop <= 2**32 - 1, each with a probability off by at most 2**-32. */
HF_INLINE uint32_t hf_below(uint32_t word, uint32_t stop) { return (uint32_t)((uint64_t)word * stop >> 32); }

/* Uniform in [0, 1), of 53 bits. */
HF_INLINE double hf_unit(hf_draw draw) { return (double)(hf_draw_key(draw, 0) >> 11) * 0x1p-53; }

#endif
