/* Philox 4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3; SC 2011), a counter-based generator:
   its four words are a function of key, counter and stream, and do not depend on earlier draws. philox.py is the same
   in Python. */
#ifndef HFOREST_PHILOX_H
#define HFOREST_PHILOX_H
#include "core/both.h"

typedef struct {
    uint32_t word[4];
} hf_draw;

/* Streams, which make draws of one key independent. Those of rows from which bins are made have the seed as key. */
enum {
    HF_STREAM_BOOTSTRAP = 1, HF_STREAM_CHILDREN = 2, HF_STREAM_CANDIDATES = 3, HF_STREAM_THRESHOLD = 4,
    HF_STREAM_DIRECTION = 5, HF_STREAM_PROJECTION = 5, HF_STREAM_ENTRY = 6, HF_STREAM_ORDER = 8, HF_STREAM_EPOCH = 9,
    HF_STREAM_RESTART = 10, HF_STREAM_JUMP = 11, HF_STREAM_POISSON = 12, HF_STREAM_WEIGHTED = 13, HF_STREAM_ROWS = 13
};

/* Returns the four words of (key, counter, stream). */
HF_BOTH hf_draw hf_philox(uint64_t key, uint64_t counter, uint64_t stream) {
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

/* Returns words 0 and 1 (which = 0), or 2 and 3 (which = 1), as one 64-bit word, the first one low. */
HF_BOTH uint64_t hf_draw_key(hf_draw draw, int which) {
    return (uint64_t)draw.word[2 * which + 1] << 32 | draw.word[2 * which];
}

/* Returns an integer in 0 <= result < stop; the probability of each is 1 / stop within 2**-32. */
HF_BOTH uint32_t hf_below(uint32_t word, uint32_t stop) { return (uint32_t)((uint64_t)word * stop >> 32); }

/* Returns a multiple of 2**-53, uniform in [0, 1). */
HF_BOTH double hf_unit(hf_draw draw) { return (double)(hf_draw_key(draw, 0) >> 11) * 0x1p-53; }

#endif
