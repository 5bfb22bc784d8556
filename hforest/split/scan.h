/* The best split of one candidate's values: sort them, then scan the thresholds between neighbours of
   different value. */
#ifndef HFOREST_SPLIT_SCAN_H
#define HFOREST_SPLIT_SCAN_H
#include <stdint.h>
#include <stdlib.h>

#include "core/order.h"
#include "core/score.h"
#include "core/watch.h"

/* The state of a scan. `left`, `right` and `total` are sums over classes or outputs. */
typedef struct {
    double *left, *right, *total;
    double left_weight, total_weight, left_square, right_square;
} hf_sums;

/* Sums of integers below this are exact in any order, products of two of them too. */
#define HF_EXACT 67108864.0

/* Replaces sorted keys by the numbers of their bins, if they have more than max_bins different values: no threshold
   separates equal ones. A value is in the bin where the middle of its samples lies. */
static void hf_make_bins(uint64_t *key, int64_t n, int64_t max_bins) {
    int64_t n_distinct = 1;
    for (int64_t i = 1; i < n; ++i) n_distinct += key[i] != key[i - 1];
    if (n_distinct <= max_bins) return;
    for (int64_t i = 0; i < n;) {
        int64_t stop = i + 1;
        while (stop < n && key[stop] == key[i]) ++stop;
        const uint64_t bin = (uint64_t)((i + stop) * max_bins / (2 * n));
        for (; i < stop; ++i) key[i] = bin;
    }
}

/* Writes the best threshold of n > 0 values and its gain; returns 0 if memory is out. `y` are classes (outputs ==
   NULL), or `outputs` are n rows of n_out centred targets. A gain of -inf means that no threshold is allowed.
   Returns early where `watch` says so. */
static int hf_best_of(
    const double *value, const int32_t *y, const double *outputs, const double *weight, int64_t n, int64_t n_out,
    int criterion, int64_t min_leaf, int64_t max_bins, int single, double *threshold, double *gain, hf_watch *watch
) {
    char *workspace = malloc(n * 24 + 3 * n_out * sizeof(double));
    if (!workspace) return 0;
    hf_sums s = {(double *)workspace, (double *)workspace + n_out, (double *)workspace + 2 * n_out, 0, 0, 0, 0};
    uint64_t *key = (uint64_t *)((double *)workspace + 3 * n_out), *key2 = key + n;
    uint32_t *index = (uint32_t *)(key2 + n), *index2 = index + n;
    for (int64_t i = 0; i < n; ++i) {
        key[i] = hf_ordered(value[i]);
        index[i] = (uint32_t)i;
    }
    const int swapped = hf_sort(key, index, key2, index2, n, watch);
    if (swapped < 0) {
        free(workspace);
        return 1;
    }
    if (swapped) key = key2, index = index2;
    if (max_bins) hf_make_bins(key, n, max_bins);

    int whole = 1; /* all weights are integers: squares may be updated instead of summed again */
    for (int64_t k = 0; k < n_out; ++k) s.left[k] = s.total[k] = 0;
    for (int64_t i = 0; i < n; ++i) {
        s.total_weight += weight[i];
        whole &= weight[i] < HF_EXACT && weight[i] == (double)(int64_t)weight[i];
        if (outputs)
            for (int64_t k = 0; k < n_out; ++k) s.total[k] += weight[i] * outputs[i * n_out + k];
        else
            s.total[y[i]] += weight[i];
    }
    whole &= criterion == HF_GINI && s.total_weight < HF_EXACT;
    const double base = hf_node_score(criterion, s.total, n_out, s.total_weight);
    for (int64_t k = 0; k < n_out; ++k) {
        s.right[k] = s.total[k];
        s.right_square += s.total[k] * s.total[k];
    }
    double best = -INFINITY;
    int64_t best_at = -1, n_steps = 0;
    for (int64_t i = 0; i + 1 < n; ++i) {
        if (hf_stopped_after(watch, &n_steps, n_out)) break;
        const uint32_t at = index[i];
        const double w = weight[at];
        s.left_weight += w;
        if (outputs) {
            for (int64_t k = 0; k < n_out; ++k) s.left[k] += w * outputs[at * n_out + k];
        } else {
            const int32_t k = y[at];
            if (whole) {
                s.left_square += w * (2 * s.left[k] + w);
                s.right_square -= w * (2 * (s.total[k] - s.left[k]) - w);
            }
            s.left[k] += w;
        }
        if (key[i] == key[i + 1] || i + 1 < min_leaf || n - i - 1 < min_leaf) continue;
        const double right_weight = s.total_weight - s.left_weight;
        if (!(right_weight > 0)) continue; /* the right weight is lost in rounding */
        double score;
        if (whole) {
            score = s.left_square / s.left_weight + s.right_square / right_weight;
        } else {
            for (int64_t k = 0; k < n_out; ++k) s.right[k] = s.total[k] - s.left[k];
            score = hf_node_score(criterion, s.left, n_out, s.left_weight) +
                    hf_node_score(criterion, s.right, n_out, right_weight);
        }
        if (score > best) {
            best = score;
            best_at = i;
        }
    }
    *gain = -INFINITY;
    *threshold = NAN;
    if (best_at >= 0) {
        const double low = value[index[best_at]], high = value[index[best_at + 1]];
        *gain = best - base;
        *threshold = single ? hf_between_f32(low, high) : hf_between_f64(low, high);
    }
    free(workspace);
    return 1;
}

#endif
