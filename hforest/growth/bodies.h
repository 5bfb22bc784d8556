/* What the vector bodies of the scorers work on, and a table of the bodies by vector path. */
#ifndef HFOREST_GROWTH_BODIES_H
#define HFOREST_GROWTH_BODIES_H
#include "growth/task.h"

#if HF_VECTORS

typedef struct hf_bodies hf_bodies;

enum {
    HF_PAIRWISE_SAMPLES = 128, /* at most */
    HF_PAIRWISE_DRAWS = 16,    /* candidates that are read together */
    HF_PAIRWISE_NUMBERS = HF_PAIRWISE_SAMPLES * HF_PAIRWISE_DRAWS + 64
};

typedef struct {
    uint8_t code[HF_PAIRWISE_NUMBERS]; /* of one pack of candidates after another, see simd/pairwise.h */
    uint8_t left_weight[HF_PAIRWISE_NUMBERS];
    uint16_t left_square[2][HF_PAIRWISE_NUMBERS / 2], right_square[2][HF_PAIRWISE_NUMBERS / 2]; /* even, odd numbers */
    union {
        float value[HF_PAIRWISE_NUMBERS / 2];
        int32_t bits[HF_PAIRWISE_NUMBERS / 2];
    } rate[2];
    uint32_t sample[HF_PAIRWISE_SAMPLES]; /* class by class */
    uint8_t weight[HF_PAIRWISE_SAMPLES];
    int32_t last[HF_PAIRWISE_SAMPLES]; /* of a class: where its samples end */
    uint32_t total[HF_PAIRWISE_SAMPLES];
    int64_t n, n_present;
    uint32_t all, square; /* weight of the node; sum of the squares of its classes' weights */
} hf_pairwise;

enum {
    HF_HISTOGRAM_CLASSES = 32,
    HF_HISTOGRAM_BINS = 256,
    HF_TILE_DRAWS = 16,   /* candidates whose codes are read from rows together, */
    HF_TILE_SAMPLES = 512 /* and samples, so that these codes stay in L1 */
};

typedef struct {
    uint16_t counts[4][HF_HISTOGRAM_CLASSES * HF_HISTOGRAM_BINS]; /* of a candidate, by class, then place of the bin */
    const uint16_t *count; /* of the candidate to be scored */
    uint32_t left_weight[HF_HISTOGRAM_BINS], left_square[HF_HISTOGRAM_BINS], right_square[HF_HISTOGRAM_BINS];
    union {
        float value[HF_HISTOGRAM_BINS];
        int32_t bits[HF_HISTOGRAM_BINS];
    } rate;
    uint8_t tile[HF_TILE_DRAWS][HF_TILE_SAMPLES]; /* codes */
    uint32_t number[HF_TILE_SAMPLES];             /* 0, 1, ... */
    uint8_t place[HF_HISTOGRAM_BINS]; /* of a bin: see simd/histogram.h */
    uint32_t total[HF_HISTOGRAM_CLASSES];
    int64_t n_present;
    int n_steps, n_bins;
    uint32_t all, square;
} hf_histogram;

enum {
    HF_VALUES_CLASSES = 32,
    HF_VALUES_PAIRWISE = 48, /* samples up to which the pairwise scorer is faster */
    HF_SORTED_STEPS = 3, /* what sorting a sample costs, in additions to a bucket */
    HF_BUCKETS = 256
};

typedef struct {
    int64_t n, n_present;
    uint32_t all, square, total[HF_VALUES_CLASSES];
    int whole;
    const hf_bodies *bodies;
    /* Of splits, behind samples or behind buckets. */
    uint32_t left_weight[HF_BUCKETS], left_square[HF_BUCKETS], right_square[HF_BUCKETS];
    union {
        float value[HF_BUCKETS];
        int32_t bits[HF_BUCKETS];
    } rate;
    /* Pairwise: samples class by class. */
    int32_t code[HF_VALUES_PAIRWISE + 32], last[HF_VALUES_PAIRWISE];
    uint32_t weight[HF_VALUES_PAIRWISE];
    uint8_t place[HF_VALUES_PAIRWISE]; /* of a sample of the node */
    /* Histogram. Bucket c has the place (c % n_steps) * lanes + c / n_steps. */
    uint32_t count[HF_VALUES_CLASSES * HF_BUCKETS]; /* by class, then place */
    uint32_t inside[HF_BUCKETS], second[HF_BUCKETS];
    int32_t alive[HF_BUCKETS];
    int log_steps, exact;  /* exact: every bucket holds one value */
    int32_t lowest, usual; /* usual: a code that has a bucket of its own */
    float least, scale;
} hf_values;

/* The functions of simd/, compiled for one width of vectors. */
struct hf_bodies {
    int log_lanes; /* log2 of the numbers of 32 bits in a vector */
    void (*sum_pairs)(int per, hf_pairwise *p);
    float (*rate_pairs)(int per, hf_pairwise *p);
    void (*sum_bins)(hf_histogram *h);
    float (*rate_bins)(hf_histogram *h);
    void (*sum_values)(hf_values *s);
    float (*rate_values)(int n, hf_values *s);
    void (*fill_buckets)(const hf_values *s, const int32_t *code, int64_t n, uint8_t *bucket);
    void (*sum_buckets)(hf_values *s);
    int (*find_alive)(hf_values *s, float limit);
};

#define HF_BODIES(W, LOG_LANES)                                                                             \
    {                                                                                                       \
        LOG_LANES, hf_sum_pairs_v##W, hf_rate_pairs_v##W, hf_sum_bins_v##W, hf_rate_bins_v##W, hf_sum_values_v##W, \
            hf_rate_v##W, hf_fill_buckets_v##W, hf_sum_buckets_v##W, hf_find_alive_v##W                         \
    }

#define HF_BYTES 16
#define HF_W(name) name##_v16
#define HF_W_CODE
#include "growth/simd/pairwise.h"
#include "growth/simd/histogram.h"
#include "growth/simd/values.h"
#undef HF_BYTES
#undef HF_W
#undef HF_W_CODE

#if HF_X86
#define HF_BYTES 32
#define HF_W(name) name##_v32
#define HF_W_CODE HF_AVX2_CODE
#include "growth/simd/pairwise.h"
#include "growth/simd/histogram.h"
#include "growth/simd/values.h"
#undef HF_BYTES
#undef HF_W
#undef HF_W_CODE
#endif

/* Returns the bodies of a vector path; NULL for the plain one. */
static const hf_bodies *hf_bodies_of(int path) {
    static const hf_bodies of_16 = HF_BODIES(16, 2);
#if HF_X86
    static const hf_bodies of_32 = HF_BODIES(32, 3);
    if (path == HF_PATH_AVX2) return &of_32;
#endif
    return path == HF_PATH_VECTOR ? &of_16 : NULL;
}
#endif

#endif
