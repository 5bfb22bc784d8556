/* The data of the inner loops of the scorers. bodies.pyx has the scalar loops and says what each computes;
   simd/bodies.h has the vector loops. */
#ifndef HFOREST_GROWTH_BODIES_H
#define HFOREST_GROWTH_BODIES_H
#include <stdint.h>

/* Tuned with `python bench/grow.py`. */
enum {
    HF_PAIRWISE_SAMPLES = 128, /* samples up to which 8-bit bins are scored pairwise */
    HF_PAIRWISE_NUMBERS = HF_PAIRWISE_SAMPLES + 64,
    HF_HISTOGRAM_CLASSES = 32,
    HF_HISTOGRAM_BINS = 256,
    HF_TILE_CANDIDATES = 16, /* candidates whose bins are read from rows together, */
    HF_TILE_SAMPLES = 512,   /* for this number of samples, so that the bins stay in L1 */
    HF_VALUE_PAIRS = 48,     /* samples up to which 32-bit bins are scored pairwise */
    HF_BUCKETS = 256
};

typedef union {
    float value[256];
    int32_t bits[256];
} hf_rates;

/* Sums of the splits after each place, and their rates: scores in float32, with a relative error below 2**-13. */
typedef struct {
    uint32_t left_weight[HF_BUCKETS], left_square[HF_BUCKETS], right_square[HF_BUCKETS];
    hf_rates rate;
    uint32_t all, square; /* weight of the node; sum of the squares of its classes' weights */
} hf_splits;

/* The same sums as integers in float64, exact below 2**53, for nodes whose weight is too large for 32-bit sums. */
typedef struct {
    double left_weight[HF_BUCKETS], left_square[HF_BUCKETS], right_square[HF_BUCKETS];
    double all, square;
} hf_wide_splits;

/* The pairwise scorer of 8-bit bins. */
typedef struct {
    uint8_t bin[HF_PAIRWISE_NUMBERS]; /* interleaved over candidates: simd/pairwise.h */
    uint8_t left_weight[HF_PAIRWISE_NUMBERS];
    uint16_t left_square[2][HF_PAIRWISE_NUMBERS / 2], right_square[2][HF_PAIRWISE_NUMBERS / 2]; /* even, odd numbers */
    hf_rates rate[2];
    uint32_t sample[HF_PAIRWISE_SAMPLES]; /* numbers of the samples, ordered by class */
    uint8_t weight[HF_PAIRWISE_SAMPLES];  /* weight of each of these samples */
    int32_t last[HF_PAIRWISE_SAMPLES];    /* (n_present,): end of the samples of each class */
    uint32_t total[HF_PAIRWISE_SAMPLES];  /* (n_present,): weight of each class */
    int64_t n, n_present;
    uint32_t all, square;
} hf_pairwise __attribute__((aligned(64)));

/* The pairwise scorer of 32-bit bins. */
typedef struct {
    hf_splits splits;
    int32_t bin[HF_VALUE_PAIRS + 32]; /* bins of the samples, ordered by class */
    uint32_t weight[HF_VALUE_PAIRS];  /* weight of each of these samples */
    int32_t last[HF_VALUE_PAIRS];     /* (n_present,): end of the samples of each class */
    uint32_t total[HF_VALUE_PAIRS];   /* (n_present,): weight of each class */
    uint8_t place[HF_VALUE_PAIRS];    /* place in this order of each sample of the node */
    int64_t n, n_present;
} hf_value_pairs __attribute__((aligned(64)));

/* The histogram scorer of 8-bit bins. */
typedef struct {
    uint16_t counts[4][HF_HISTOGRAM_CLASSES * HF_HISTOGRAM_BINS]; /* weights by class, then place of the bin, of four candidates */
    uint16_t *count; /* counts of the candidate that is scored */
    hf_splits splits;
    uint8_t tile[HF_TILE_CANDIDATES][HF_TILE_SAMPLES]; /* bins of the samples of a node */
    uint32_t number[HF_TILE_SAMPLES];                  /* 0, 1, ...: positions in a tile */
    uint8_t place[HF_HISTOGRAM_BINS];                  /* place of each bin among the lanes: simd/histogram.h */
    uint32_t total[HF_HISTOGRAM_CLASSES];
    int64_t n_present;
    int n_steps, n_bins;
} hf_histogram __attribute__((aligned(64)));

/* The histogram scorer of 32-bit bins, with bounds. Bucket c is at place (c % n_steps) * lanes + c / n_steps. */
typedef struct {
    hf_splits splits;
    hf_wide_splits wide; /* the sums if is_wide; then splits has only the rates */
    uint32_t count[HF_HISTOGRAM_CLASSES * HF_BUCKETS]; /* weights by class, then place of the bucket */
    uint32_t inside[HF_BUCKETS], second[HF_BUCKETS];   /* the two largest weights of a class in a bucket */
    int32_t alive[HF_BUCKETS];
    uint32_t total[HF_HISTOGRAM_CLASSES];
    int64_t n, n_present;
    int log_steps, log_lanes;
    int is_wide, whole, exact; /* whole: bins are the values; exact: each bucket holds one value */
    int32_t lowest, usual;     /* usual: a frequent bin, with its own bucket */
    int32_t usual_place;       /* place of this bucket, whose counts sum_buckets computes as the rest of the totals */
    float least, scale;
} hf_buckets __attribute__((aligned(64)));

/* Four candidates with random thresholds. The samples of a node are ordered by class. */
typedef struct {
    const void *column[4]; /* the value of sample s is number s * stride: float or double */
    int64_t stride, n;
    const uint32_t *sample;  /* (n,) */
    const uint32_t *payload; /* (n,): class and weight of each sample; the weight is in the bits of `mask` */
    void *value;             /* (n, 4): values of the samples, which read_lanes writes */
    const int64_t *last;     /* (n_runs,): the end of the samples of each class */
    const double *total;     /* (n_runs,): weight of each class */
    int64_t n_runs;
    uint32_t mask;
    double least[4], greatest[4], threshold[4];
    double weight[4], left_square[4], right_square[4]; /* sums over the left side of each candidate; integers */
} hf_lanes;

/* Splits of one candidate inside and after buckets of terms (term_buckets.pyx). */
typedef struct {
    double length[HF_BUCKETS + 1];  /* |D| before each bucket, and after the last */
    double product[HF_BUCKETS + 1]; /* u (U - u) before each bucket, and after the last */
    double path[HF_BUCKETS];        /* sum of |d| in a bucket; -INFINITY if no split is inside */
    int64_t alive[HF_BUCKETS];
} hf_gains;

typedef struct {
    int log_lanes; /* log2 of the 32-bit lanes of a vector */
    void (*sum_pairs)(int per, hf_pairwise *p);
    float (*rate_pairs)(int per, hf_pairwise *p);
    void (*sum_values)(hf_value_pairs *p);
    void (*sum_bins)(hf_histogram *h);
    void (*find_range)(const int32_t *bin, int64_t n, int32_t *range);
    void (*fill_buckets)(const hf_buckets *s, const int32_t *bin, int64_t n, uint8_t *bucket);
    void (*sum_buckets)(hf_buckets *s);
    void (*find_alive)(hf_buckets *s, float limit);
    float (*rate)(int n, hf_splits *s);
    void (*add_row)(int64_t *sum, const int64_t *q, int64_t n);
    void (*measure_row)(int64_t *sum, int64_t *least, int64_t *greatest, const int64_t *q, int64_t n);
    double (*distances)(const int64_t *sum, const double *mean, double left, int64_t n);
    double (*greatest_gain)(const hf_gains *g, double margin, int n);
    void (*mark_gains)(hf_gains *g, double total, double bound, int n);
    void (*read_lanes)(int single, hf_lanes *l);
    void (*sum_lanes)(int single, hf_lanes *l);
    void (*count_smaller)(int single, const void *value, int64_t n, uint32_t *count);
} hf_bodies;

#endif
