/* Targets and weights as integers, whose sums have no order. The same operations as reference/units.py, on host and
   device.

   A unit (c, k, m) turns the samples i of a node, with in-bag counts b, weights w and targets t, into
       u_i = max(1, round(b_i w_i 2^m))          0 if b_i w_i = 0
       q_i = round(b_i w_i (t_i - c) 2^k)        per output, with a centre c of its own
   m is 0 if all b_i w_i are integers; c is 0 where ratios are scored (hf_is_of_ratios). Sums of u_i and of |q_i| are below 2^62. */
#ifndef HFOREST_GROWTH_UNITS_H
#define HFOREST_GROWTH_UNITS_H
#include "core/score.h"

#if defined(__SSE2__) && !defined(__CUDACC__)
#include <emmintrin.h>
#endif

enum { HF_UNIT_BITS = 62, HF_NARROWED = 8 }; /* a node gets a unit of its own below 2^-HF_NARROWED of its unit's range */

/* Returns e with n a 2^e < 2^62; 0 if a is 0.

   n   the number of samples
   a   their greatest absolute value */
HF_BOTH int hf_unit_exponent(double n, double a) {
    int exponent = 0;
    if (!(a > 0)) return 0;
    frexp(n * a, &exponent);
    return HF_UNIT_BITS - exponent;
}

/* Returns how many bits a sum of absolute values, at least 0, leaves free: what an exponent is raised by. */
HF_BOTH int hf_spare_bits(int64_t sum) {
    int n_bits = 0;
    for (; sum > 0; sum >>= 1) ++n_bits;
    return HF_UNIT_BITS - 1 - n_bits;
}

/* The multiplication by a power of two: by two factors, for one would not do for exponents beyond 1023. */
typedef struct {
    double first, second;
} hf_scaling;

HF_BOTH hf_scaling hf_scaling_of(int exponent) {
    const hf_scaling by = {ldexp(1.0, exponent / 2), ldexp(1.0, exponent - exponent / 2)};
    return by;
}

/* Returns a 2^exponent, rounded to the nearest integer, to the even one of two. */
HF_BOTH int64_t hf_scaled(double a, hf_scaling by) {
#if defined(__SSE2__) && !defined(__CUDACC__)
    return _mm_cvtsd_si64(_mm_set_sd(a * by.first * by.second)); /* rint is a call before SSE4.1 */
#else
    return (int64_t)rint(a * by.first * by.second);
#endif
}

/* Returns u for the product of a weight and an in-bag count. */
HF_BOTH int64_t hf_scaled_weight(double weight, hf_scaling by) {
    const int64_t u = hf_scaled(weight, by);
    return weight > 0 && u < 1 ? 1 : u;
}

/* Returns the middle of the targets of a node; the target itself if all are equal. */
HF_BOTH double hf_middle(double least, double greatest) { return least == greatest ? least : least / 2 + greatest / 2; }

/* Returns the mean of the targets of a node, from sums in a unit (c, k, m). */
HF_BOTH double hf_mean(double c, int k, int m, int64_t q, int64_t u) {
    return c + ldexp((double)q / (double)u, m - k);
}

/* Returns a weight from a sum of u. */
HF_BOTH double hf_weight_of(int64_t u, int m) { return ldexp((double)u, -m); }

/* Returns the score of a branch. The score of a split is the sum of those of its branches.

   By the Poisson deviance it is the sum of e (S / e) log2(S / e), with S the sum of the targets, in a unit of centre 0,
   and e = mean u. ln 2 times the score of a split is the decrease of half the deviance, in the unit of q; the logarithms
   are of numbers near 1, so that it does not cancel. Negative infinity if S is 0; an output that is 0 in the whole node
   does not count. By the entropy of several labels it is the same sum over indicators of classes, where S may be 0: that
   of a split is the decrease of the entropies of all labels in bits, for S of the classes of a label add up to W.

   sums   IN (n,)  sums of the branch by class or output; with `node`, of the other branch
   node   IN (n,)  sums of the node, or NULL
   mean   IN (n,)  means of the node; not read if there are classes
   u      the sum of u of the branch
   m      exponent of weights of the unit; read if there are classes */
HF_BOTH double hf_score_in_unit(
    int criterion, const int64_t *sums, const int64_t *node, const double *mean, int64_t n, int64_t u, int m
) {
    const double one = ldexp(1.0, -m), weight = (double)u * one;
    const int of_ratios = hf_is_of_ratios(criterion);
    double total = 0;
    if (criterion == HF_SQUARED_ERROR) return hf_branch_gain(sums, node, mean, n, u);
    for (int64_t k = 0; k < n; ++k) {
        const double sum = (double)(node ? node[k] - sums[k] : sums[k]);
        const double a = of_ratios ? sum / (mean[k] * (double)u) : sum * one;
        /* One logarithm for all criteria: a kernel has registers for one. */
        if (criterion == HF_GINI) total += a * a;
        else if (!of_ratios) total += hf_xlogx(a);
        else if (sum > 0) total += hf_xlogx(a) * (mean[k] * (double)u);
        else if (mean[k] > 0 && criterion == HF_POISSON) return -HF_INFINITY;
    }
    if (of_ratios) return total;
    return criterion == HF_ENTROPY ? total - hf_xlogx(weight) : total / weight;
}

/* Returns the decrease of the impurity by a split, from its score and the node's sums (n + 1,), of u last. */
HF_BOTH double hf_gain_in_unit(int criterion, double score, const int64_t *node, int64_t n, int k, int m) {
    if (criterion == HF_SQUARED_ERROR) return ldexp(score, m - 2 * k);
    if (criterion == HF_POISSON) return ldexp(score * HF_LN2, -k);
    if (criterion == HF_LABEL_ENTROPY) return ldexp(score, -k);
    return score - hf_score_in_unit(criterion, node, NULL, NULL, n, node[n], m);
}

/* Returns whether a node gets a unit of its own.

   spread, heaviest             the greatest range of q over the outputs, or for weights that are not whole the greatest
                                |q - mean u|, and the greatest u, of the node; 0 as the spread of labels
   unit_spread, unit_heaviest   the same of the node from which its unit was made */
HF_BOTH int hf_needs_unit(double spread, double unit_spread, double heaviest, double unit_heaviest) {
    return ldexp(spread, HF_NARROWED) < unit_spread || ldexp(heaviest, HF_NARROWED) < unit_heaviest;
}

#endif
