/* The best cut of a candidate in float64: whatever weights, criteria and targets there are. */
#ifndef HFOREST_GROWTH_FLOATS_H
#define HFOREST_GROWTH_FLOATS_H
#include "growth/task.h"

/* a log2 a, looked up where a is whole. */
HF_INLINE double hf_entropy_term(const hf_workspace *r, double a) {
    return r->term ? r->term[(int64_t)a] : hf_xlogx(a);
}

/* The best cut by entropy: a sample changes one term of either side, and the sums run over the terms kept. */
static void hf_sweep_entropy(
    const hf_task *t, const hf_workspace *r, const uint64_t *key, int64_t n, double total_weight, hf_cut *best
) {
    double left_weight = 0;
    int64_t n_steps = 0;
    for (int64_t k = 0; k < t->n_outputs; ++k) {
        r->left[k] = r->left_term[k] = 0;
        r->right_term[k] = hf_entropy_term(r, r->total[k]);
    }
    for (int64_t i = 0; i + 1 < n; ++i) {
        if (hf_stopped_after(t->watch, &n_steps, t->n_outputs)) return;
        const int64_t at = (int64_t)(key[i] & 0xffffffff), label = r->label[at];
        r->left[label] += r->weight[at];
        left_weight += r->weight[at];
        r->left_term[label] = hf_entropy_term(r, r->left[label]);
        r->right_term[label] = hf_entropy_term(r, r->total[label] - r->left[label]);
        const uint32_t low = (uint32_t)(key[i] >> 32), high = (uint32_t)(key[i + 1] >> 32);
        const double right_weight = total_weight - left_weight;
        if (low == high || i + 1 < t->min_leaf || n - i - 1 < t->min_leaf || !(right_weight > 0)) continue;
        double left = 0, right = 0;
        for (int64_t k = 0; k < t->n_outputs; ++k) {
            left += r->left_term[k];
            right += r->right_term[k];
        }
        const double score = (left - hf_entropy_term(r, left_weight)) + (right - hf_entropy_term(r, right_weight));
        if (score > best->score) {
            best->score = score;
            best->low = low;
            best->high = high;
        }
    }
}

/* The best cut in float64, O(n_outputs) a cut. Payloads are positions in the tree. */
static void hf_sweep_floats(
    const hf_task *t, const hf_workspace *r, const uint64_t *key, int64_t n, double total_weight, hf_cut *best
) {
    if (t->labels && t->criterion == HF_ENTROPY) {
        hf_sweep_entropy(t, r, key, n, total_weight, best);
        return;
    }
    double left_weight = 0;
    int64_t n_steps = 0;
    for (int64_t k = 0; k < t->n_outputs; ++k) r->left[k] = 0;
    for (int64_t i = 0; i + 1 < n; ++i) {
        if (hf_stopped_after(t->watch, &n_steps, t->n_outputs)) return;
        const int64_t at = (int64_t)(key[i] & 0xffffffff);
        hf_add(t, r, at, r->left);
        left_weight += r->weight[at];
        const uint32_t low = (uint32_t)(key[i] >> 32), high = (uint32_t)(key[i + 1] >> 32);
        const double right_weight = total_weight - left_weight;
        if (low == high || i + 1 < t->min_leaf || n - i - 1 < t->min_leaf || !(right_weight > 0)) continue;
        for (int64_t k = 0; k < t->n_outputs; ++k) r->right[k] = r->total[k] - r->left[k];
        const double score = hf_node_score(t->criterion, r->left, t->n_outputs, left_weight) +
                             hf_node_score(t->criterion, r->right, t->n_outputs, right_weight);
        if (score > best->score) {
            best->score = score;
            best->low = low;
            best->high = high;
        }
    }
}

#endif
