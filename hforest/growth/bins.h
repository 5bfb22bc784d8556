/* Counts of one candidate's weights by class and bucket (buckets.h), and what counting shares: lane l holds the buckets
   from l * n_steps on, a vector one of them for each lane, so that sums over lower buckets are sums over earlier vectors,
   and over lower lanes. All sums are the integers of hf_sweep. */
#ifndef HFOREST_GROWTH_BINS_H
#define HFOREST_GROWTH_BINS_H
#include "growth/task.h"

#if HF_X86

enum {
    HF_MOST_BINNED = 32, /* classes of a node, at most */
    HF_MOST_STEPS = 16   /* 256 buckets in 16 lanes */
};

/* Sums of weights below this have squares that a signed multiplication of 16 bits gives in full. */
#define HF_BINNED_WEIGHT 32768.0

typedef struct {
    __m512i count[HF_MOST_BINNED][HF_MOST_STEPS]; /* by class, then place of the bucket */
    __m512i left_square[HF_MOST_STEPS], right_square[HF_MOST_STEPS], left_weight[HF_MOST_STEPS];
    __m512 rate[HF_MOST_STEPS];
    uint32_t total[HF_MOST_BINNED];
    int64_t n_present;
    uint32_t weight, square; /* of the node, and of its classes together */
} hf_bins;

/* Sums over the lanes below each. */
HF_AVX512_CODE HF_INLINE __m512i hf_sums_below(__m512i a) {
    const __m512i zero = _mm512_setzero_si512();
    a = _mm512_alignr_epi32(a, zero, 15);
    a = _mm512_add_epi32(a, _mm512_alignr_epi32(a, zero, 15));
    a = _mm512_add_epi32(a, _mm512_alignr_epi32(a, zero, 14));
    a = _mm512_add_epi32(a, _mm512_alignr_epi32(a, zero, 12));
    return _mm512_add_epi32(a, _mm512_alignr_epi32(a, zero, 8));
}

#endif

#endif
