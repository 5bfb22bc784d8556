/* Scores of splits, from the sums of their branches. The operations and their order are those of core/scores.py, so
   that scores are bit-identical on all backends. */
#ifndef HFOREST_SCORE_H
#define HFOREST_SCORE_H
#include "core/series.h"

/* The criteria of core/scores.py, whose numbers modules compare with these when they are imported or compiled. */
enum { HF_GINI = 0, HF_ENTROPY = 1, HF_SQUARED_ERROR = 2, HF_POISSON = 3, HF_LABEL_ENTROPY = 4 };

/* Returns whether a criterion of targets scores ratios of their sums, which are in units of centre 0. */
HF_BOTH int hf_is_of_ratios(int criterion) { return criterion == HF_POISSON || criterion == HF_LABEL_ENTROPY; }

/* Returns whether a split takes the place of the best so far: of equal scores the first remains, which is the lowest
   split of the first candidate. */
HF_BOTH int hf_beats(double score, double best) { return score > best; }

/* The same where splits are not scored in that order. is_before: whether the split precedes the best. */
HF_BOTH int hf_beats_in_any_order(double score, double best, int is_before) {
    return hf_beats(score, best) || (score == best && is_before);
}

HF_BOTH double hf_xlogx(double a) { return a > 0 ? a * hf_log2(a) : 0.0; }

/* Returns the score of a branch of weight W and impurity H: -W H plus a term that is the same for all splits of a
   node, so that the best split has the largest sum over its branches.

   sums     IN (n,)  weights by class, or sums of targets, of the branch; with `node`, of the other branch
   node     IN (n,)  the sums of the node, or NULL
   weight   the weight W of the branch */
HF_BOTH double hf_branch_score(int criterion, const double *sums, const double *node, int64_t n, double weight) {
    double total = 0;
    if (criterion == HF_ENTROPY) {
        for (int64_t k = 0; k < n; ++k) total += hf_xlogx(node ? node[k] - sums[k] : sums[k]);
        return total - hf_xlogx(weight);
    }
    for (int64_t k = 0; k < n; ++k) {
        const double sum = node ? node[k] - sums[k] : sums[k];
        total += sum * sum;
    }
    return total / weight;
}

/* Returns the score of a branch, given its own sums. */
HF_BOTH double hf_node_score(int criterion, const double *sums, int64_t n, double weight) {
    return hf_branch_score(criterion, sums, NULL, n, weight);
}

enum { HF_SQUARES = 8 }; /* partial sums of squares: output k belongs to number k % 8 */

/* Returns the sum of squares of distances over outputs, from 8 partial sums, in a fixed order. */
HF_BOTH double hf_sum_of_squares(const double *partial) {
    return ((partial[0] + partial[4]) + (partial[2] + partial[6])) +
           ((partial[1] + partial[5]) + (partial[3] + partial[7]));
}

/* Returns the distance of the targets of a branch from the mean of its node: the sum of q - mean u.

   q, u   sums over the branch, in the unit of the node
   mean   sum of q over sum of u of the node */
HF_BOTH double hf_distance(int64_t q, int64_t u, double mean) { return (double)q - mean * (double)u; }

/* Returns the gain of a branch by squared error, in the unit of the node. The gain of a split is the sum of those of its
   branches.

   q      IN (n,)  sums of the branch; with `node`, of the other branch
   node   IN (n,)  sums of the node, or NULL
   mean   IN (n,)  means of the node
   u      the sum of u of the branch */
HF_BOTH double hf_branch_gain(const int64_t *q, const int64_t *node, const double *mean, int64_t n, int64_t u) {
    double partial[HF_SQUARES] = {0, 0, 0, 0, 0, 0, 0, 0};
    if (n == 1) {
        const double d = hf_distance(node ? *node - *q : *q, u, *mean);
        return d * d / (double)u;
    }
    for (int64_t first = 0; first < n; first += HF_SQUARES) {
        const int64_t count = n - first < HF_SQUARES ? n - first : HF_SQUARES;
        for (int64_t k = 0; k < count; ++k) {
            const int64_t at = first + k;
            const double d = hf_distance(node ? node[at] - q[at] : q[at], u, mean[at]);
            partial[k] += d * d;
        }
    }
    return hf_sum_of_squares(partial) / (double)u;
}

/* Returns the impurity of a node of n classes: the last total, which starts at 0, with the share of each class added by
   hf_add_share. */
HF_BOTH double hf_add_share(int criterion, double total, double p) {
    return total + (criterion == HF_ENTROPY ? hf_xlogx(p) : p * p);
}
HF_BOTH double hf_impurity(int criterion, double total) { return (criterion == HF_ENTROPY ? 0.0 : 1.0) - total; }

/* Returns a threshold t with low <= t < high, so that `value <= t` sends low to the left and high to the right: the
   mean, or low if the mean rounds to high. */
HF_BOTH double hf_between_f64(double low, double high) {
    const double t = low / 2 + high / 2;
    return t < high && t >= low ? t : low;
}
HF_BOTH double hf_between_f32(double low, double high) {
    const float t = (float)(low / 2 + high / 2);
    return t < high && t >= low ? t : low;
}

#endif
