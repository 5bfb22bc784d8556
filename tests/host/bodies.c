/* Compares the vector bodies of growth's scorers, of 16, 32 and 64 bytes, with loops over single numbers, on random
   nodes. Prints a line for each width; the exit status is the number of widths with a disagreement. */
#define HF_ANY_WIDTH
#include <stdio.h>
#include <stdlib.h>

#include "growth/cpu/scorers/simd/bodies.h"

static uint32_t state = 1;
static uint32_t below(uint32_t stop) {
    state = state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(state >> 4) * stop >> 28);
}

static int64_t wrong, spoilt; /* spoilt: added to all sums, which must show */
static void same(int64_t got, int64_t want) { wrong += got + spoilt != want; }

/* Random classes of n samples, class by class. Returns their number; last: OUT. */
static int64_t classes_of(int64_t n, int64_t most, int32_t *last) {
    int64_t n_classes = 0;
    for (int64_t i = 0; i < n;) {
        const int64_t rest = n - i, count = n_classes + 1 == most ? rest : 1 + below((uint32_t)rest);
        i += count;
        last[n_classes++] = (int32_t)i;
    }
    return n_classes;
}

static uint32_t sum_totals(const uint8_t *weight, int64_t n_classes, const int32_t *last, uint32_t *total, uint32_t *square) {
    uint32_t all = 0;
    *square = 0;
    for (int64_t k = 0, j = 0; k < n_classes; ++k) {
        total[k] = 0;
        for (; j < last[k]; ++j) total[k] += weight[j];
        all += total[k];
        *square += total[k] * total[k];
    }
    return all;
}

static void test_pairs(const hf_bodies *bodies) {
    static hf_pairwise p;
    const int per = 1 << below(4);
    p.n = 2 + below((uint32_t)(HF_PAIRWISE_SAMPLES / per - 1));
    p.n_present = classes_of(p.n, 1 + below(20), p.last);
    for (int64_t i = 0; i < p.n; ++i) p.weight[i] = 1 + (p.n < 80 ? below(3) : 0);
    p.all = sum_totals(p.weight, p.n_present, p.last, p.total, &p.square);
    for (int64_t i = 0; i < p.n * per; ++i) p.bin[i] = (uint8_t)below(1 + below(256));
    memset(p.bin + p.n * per, 255, 64);
    bodies->sum_pairs(per, &p);
    const float most = bodies->rate_pairs(per, &p);
    float found = 0;
    for (int64_t at = 0; at < p.n * per; ++at) {
        uint32_t weight = 0, left_square = 0, right_square = 0;
        for (int64_t k = 0, j = 0; k < p.n_present; ++k) {
            uint32_t left = 0;
            for (; j < p.last[k]; ++j) left += p.bin[j * per + at % per] <= p.bin[at] ? p.weight[j] : 0;
            weight += left;
            left_square += left * left;
            right_square += (p.total[k] - left) * (p.total[k] - left);
        }
        same(p.left_weight[at], weight);
        same(p.left_square[at & 1][at >> 1], left_square);
        same(p.right_square[at & 1][at >> 1], right_square);
        const float rate = p.rate[at & 1].value[at >> 1];
        const float want = weight == p.all ? 0
                                           : ((float)left_square * (float)(p.all - weight) + (float)right_square * (float)weight) /
                                                 ((float)weight * (float)(p.all - weight));
        wrong += rate != want;
        found = want > found ? want : found;
    }
    wrong += most != found;
}

static void test_value_pairs(const hf_bodies *bodies) {
    static hf_value_pairs p;
    uint8_t weight[HF_VALUE_PAIRS];
    p.n = 2 + below(HF_VALUE_PAIRS - 1);
    p.n_present = classes_of(p.n, 1 + below(HF_VALUE_PAIRS), p.last);
    for (int64_t i = 0; i < p.n; ++i) p.weight[i] = weight[i] = (uint8_t)(1 + below(200));
    p.splits.all = sum_totals(weight, p.n_present, p.last, p.total, &p.splits.square);
    for (int64_t i = 0; i < p.n; ++i) p.bin[i] = (int32_t)below(1 + below(1 << 27)) - (1 << 26);
    for (int64_t i = p.n; i < p.n + 32; ++i) p.bin[i] = INT32_MAX;
    bodies->sum_values(&p);
    for (int64_t i = 0; i < p.n; ++i) {
        uint32_t all = 0, left_square = 0, right_square = 0;
        for (int64_t k = 0, j = 0; k < p.n_present; ++k) {
            uint32_t left = 0;
            for (; j < p.last[k]; ++j) left += p.bin[j] <= p.bin[i] ? p.weight[j] : 0;
            all += left;
            left_square += left * left;
            right_square += (p.total[k] - left) * (p.total[k] - left);
        }
        same(p.splits.left_weight[i], all);
        same(p.splits.left_square[i], left_square);
        same(p.splits.right_square[i], right_square);
    }
}

static void test_bins(const hf_bodies *bodies) {
    static hf_histogram h;
    const int lanes = 1 << bodies->log_lanes;
    h.n_bins = 2 + (int)below(255), h.n_present = 1 + below(HF_HISTOGRAM_CLASSES);
    h.n_steps = (h.n_bins + lanes - 1) / lanes;
    const int size = h.n_steps * lanes;
    h.count = h.counts[0];
    memset(h.counts[0], 0, sizeof h.counts[0]);
    h.splits.all = h.splits.square = 0;
    for (int64_t k = 0; k < h.n_present; ++k) {
        h.total[k] = 0;
        for (int b = 0; b < h.n_bins; ++b) {
            const uint16_t w = (uint16_t)(below(4) ? 0 : below(6));
            h.count[k * size + b % h.n_steps * lanes + b / h.n_steps] = w;
            h.total[k] += w;
        }
        h.splits.all += h.total[k];
        h.splits.square += h.total[k] * h.total[k];
    }
    bodies->sum_bins(&h);
    const float most = bodies->rate(size, &h.splits);
    float found = 0;
    for (int b = 0; b < h.n_bins; ++b) {
        uint32_t all = 0, left_square = 0, right_square = 0;
        for (int64_t k = 0; k < h.n_present; ++k) {
            uint32_t left = 0;
            for (int c = 0; c <= b; ++c) left += h.count[k * size + c % h.n_steps * lanes + c / h.n_steps];
            all += left;
            left_square += left * left;
            right_square += (h.total[k] - left) * (h.total[k] - left);
        }
        const int place = b % h.n_steps * lanes + b / h.n_steps;
        same(h.splits.left_weight[place], all);
        same(h.splits.left_square[place], left_square);
        same(h.splits.right_square[place], right_square);
        const float rate = all && all != h.splits.all
                               ? ((float)left_square * (float)(h.splits.all - all) + (float)right_square * (float)all) /
                                     ((float)all * (float)(h.splits.all - all))
                               : 0;
        wrong += h.splits.rate.value[place] != rate;
        found = rate > found ? rate : found;
    }
    wrong += most != found;
}

/* What a scan within a bucket scores at most is not above the bound: a bucket that holds such a split is alive. */
static void test_buckets(const hf_bodies *bodies) {
    static hf_buckets s;
    enum { SAMPLES = 400 };
    int32_t bin[SAMPLES], class_of[SAMPLES];
    uint8_t bucket[SAMPLES];
    uint32_t left[HF_HISTOGRAM_CLASSES] = {0};
    s.n = SAMPLES, s.log_lanes = bodies->log_lanes, s.log_steps = 6 - s.log_lanes, s.n_present = 1 + below(10);
    s.whole = (int)below(2), s.exact = 0, s.splits.all = SAMPLES, s.splits.square = 0;
    memset(s.count, 0, sizeof s.count);
    memset(s.total, 0, sizeof s.total);
    int32_t lowest = INT32_MAX, highest = INT32_MIN;
    for (int i = 0; i < SAMPLES; ++i) {
        bin[i] = (int32_t)below(30000) + (s.whole ? 0 : 1 << 29);
        class_of[i] = (int32_t)((bin[i] / 7000 + (below(4) ? 0 : (int32_t)below(10))) % s.n_present);
        ++s.total[class_of[i]];
        lowest = bin[i] < lowest ? bin[i] : lowest, highest = bin[i] > highest ? bin[i] : highest;
    }
    for (int64_t k = 0; k < s.n_present; ++k) s.splits.square += s.total[k] * s.total[k];
    float least, greatest;
    memcpy(&least, &lowest, 4), memcpy(&greatest, &highest, 4);
    if (s.whole) least = (float)lowest, greatest = (float)highest;
    s.lowest = lowest, s.usual = bin[0], s.least = least, s.scale = 62 * 0.999999f / (greatest - least);
    bodies->fill_buckets(&s, bin, SAMPLES, bucket);
    int place_of[64];
    for (int c = 0; c < 64; ++c) place_of[c] = (c & ((1 << s.log_steps) - 1)) << s.log_lanes | c >> s.log_steps;
    s.usual_place = bucket[0];
    for (int i = 0; i < SAMPLES; ++i) s.count[class_of[i] * 64 + bucket[i]] += bucket[i] != s.usual_place;
    bodies->sum_buckets(&s);
    bodies->rate(64, &s.splits);
    /* Sorted by bin, all splits; of a bucket the best one. */
    int order[SAMPLES];
    for (int i = 0; i < SAMPLES; ++i) {
        int j = i;
        for (; j > 0 && bin[order[j - 1]] > bin[i]; --j) order[j] = order[j - 1];
        order[j] = i;
    }
    const float limit = (float)(SAMPLES * (0.3 + below(60) / 100.0));
    bodies->find_alive(&s, limit);
    for (int i = 0; i < SAMPLES; ++i) {
        ++left[class_of[order[i]]];
        if (i + 1 == SAMPLES) continue;
        if (i && bucket[order[i]] != bucket[order[i - 1]])
            for (int c = 1; c < 64; ++c) /* buckets follow the bins */
                if (place_of[c] == bucket[order[i - 1]])
                    for (int d = 0; d < c; ++d) wrong += place_of[d] == bucket[order[i]];
        double left_square = 0, right_square = 0;
        for (int64_t k = 0; k < s.n_present; ++k) {
            left_square += (double)left[k] * left[k];
            right_square += (double)(s.total[k] - left[k]) * (s.total[k] - left[k]);
        }
        const double score = left_square / (i + 1) + right_square / (SAMPLES - i - 1);
        if (bin[order[i]] != bin[order[i + 1]] && bucket[order[i]] == bucket[order[i + 1]])
            wrong += score >= limit * 1.000001 && !s.alive[bucket[order[i]]];
        if (bucket[order[i]] != bucket[order[i + 1]]) {
            same(s.splits.left_weight[bucket[order[i]]], i + 1);
            same(s.splits.left_square[bucket[order[i]]], (int64_t)left_square);
            same(s.splits.right_square[bucket[order[i]]], (int64_t)right_square);
        }
    }
}

/* Rows of several targets, and the gains of splits between and in buckets. */
static void test_terms(const hf_bodies *bodies) {
    enum { MOST = 40 };
    static hf_gains gains;
    int64_t q[MOST], sum[MOST], least[MOST], greatest[MOST];
    double mean[MOST], square = 0, most = 0;
    const int64_t n = 1 + below(MOST);
    const double left = 1 + below(100), margin = below(20), total = 1000, bound = below(40) - 1.0;
    for (int k = 0; k < n; ++k) {
        q[k] = (int64_t)below(2000) - 1000, sum[k] = (int64_t)below(2000) - 1000, mean[k] = below(10) - 5.0;
        least[k] = -(int64_t)below(1000), greatest[k] = below(1000);
        const double d = fabs((double)sum[k] - mean[k] * left) + HF_DISTANCE_ERROR;
        square += d * d;
    }
    wrong += fabs(bodies->distances(sum, mean, left, n) + (double)spoilt - square) > 1e-9 * square;
    for (int twice = 0; twice < 2; ++twice) {
        int64_t before[3][MOST];
        memcpy(before[0], sum, sizeof sum), memcpy(before[1], least, sizeof least);
        memcpy(before[2], greatest, sizeof greatest);
        if (twice) bodies->measure_row(sum, least, greatest, q, n);
        else bodies->add_row(sum, q, n);
        for (int k = 0; k < n; ++k) {
            same(sum[k], before[0][k] + q[k]);
            same(least[k], twice && q[k] < before[1][k] ? q[k] : before[1][k]);
            same(greatest[k], twice && q[k] > before[2][k] ? q[k] : before[2][k]);
        }
    }
    const int n_buckets = 16 << below(5);
    for (int c = 0; c <= n_buckets; ++c) {
        gains.length[c] = below(100), gains.product[c] = c && below(8) ? 1 + below(10000) : 0;
        if (c < n_buckets) gains.path[c] = below(3) ? below(50) : -INFINITY;
    }
    for (int c = 1; c <= n_buckets; ++c) {
        const double d = gains.length[c] - margin, gain = d * d / gains.product[c];
        if (d > 0 && gains.product[c] > 0 && gain > most) most = gain;
    }
    wrong += bodies->greatest_gain(&gains, margin, n_buckets) + (double)spoilt != most;
    bodies->mark_gains(&gains, total, bound, n_buckets);
    for (int c = 0; c < n_buckets; ++c) {
        const double before = gains.product[c], after = gains.product[c + 1], length = gains.length[c + 1];
        const double far = fmax((gains.length[c] + length + gains.path[c]) / 2, 0);
        const int inside = far > 0 && far * far * total > bound * (before < after ? before : after);
        same(gains.alive[c], inside | (length * length * total > bound * after ? 2 : 0));
    }
}

static int test(const char *name, const hf_bodies *bodies) {
    wrong = 0;
    for (int round = 0; round < 300; ++round) {
        test_pairs(bodies);
        test_value_pairs(bodies);
        test_bins(bodies);
        test_buckets(bodies);
        test_terms(bodies);
    }
    printf("%s: %lld disagreements\n", name, (long long)wrong);
    return wrong != 0;
}

int main(int n_arguments, char **arguments) {
    int failed = 0;
    spoilt = n_arguments > 1 && !strcmp(arguments[1], "spoil");
#if HF_VECTORS
    failed += test("16 bytes", &hf_bodies_v16);
    failed += test("64 bytes", &hf_bodies_v64);
#endif
#if HF_X86
    if (__builtin_cpu_supports("avx2")) failed += test("32 bytes", &hf_bodies_v32);
#endif
    return failed;
}
