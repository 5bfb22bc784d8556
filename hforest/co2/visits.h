/* The order in which a stump visits its samples. */
#ifndef HFOREST_CO2_VISITS_H
#define HFOREST_CO2_VISITS_H
#include "core/philox.h"

/* Writes a permutation of 0 to n - 1 that depends only on the key, by a Fisher-Yates shuffle. order: OUT (n,). */
HF_BOTH void hf_shuffle(uint64_t key, uint32_t *order, int64_t n) {
    hf_draw draw = {{0, 0, 0, 0}};
    for (int64_t i = 0; i < n; ++i) order[i] = (uint32_t)i;
    for (int64_t i = 0; i + 1 < n; ++i) {
        if (i % 4 == 0) draw = hf_philox(key, (uint64_t)(i / 4), HF_STREAM_ORDER);
        const int64_t other = i + hf_below(draw.word[i % 4], (uint32_t)(n - i));
        const uint32_t at = order[other];
        order[other] = order[i];
        order[i] = at;
    }
}

/* Visit i of an epoch takes place (start + i stride) mod n of the permutation; stride < n is coprime to n. */
typedef struct {
    int64_t start, stride;
} hf_visits;

/* Returns the visits of an epoch over n > 0 places. */
HF_BOTH hf_visits hf_draw_visits(uint64_t key, uint64_t epoch, int64_t n) {
    const hf_draw draw = hf_philox(key, epoch, HF_STREAM_EPOCH);
    const int64_t start = hf_below(draw.word[0], (uint32_t)n);
    for (uint32_t stride = 1 + hf_below(draw.word[1], (uint32_t)n);; ++stride) {
        uint32_t divisor = stride, rest = (uint32_t)n;  /* GPUs divide numbers of 64 bits slowly */
        while (rest) {
            const uint32_t next = divisor % rest;
            divisor = rest;
            rest = next;
        }
        if (divisor == 1) {
            const hf_visits visits = {start, stride % n};
            return visits;
        }
    }
}

#endif
