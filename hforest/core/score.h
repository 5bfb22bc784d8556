/* Scores of splits, from the sums of their branches. The operations and their order are those of split/reference.py
   and core/common.cuh, so that a score has the same bits everywhere. */
#ifndef HFOREST_SCORE_H
#define HFOREST_SCORE_H
#include <math.h>
#include <stdint.h>

#include "core/simd.h"

enum { HF_GINI = 0, HF_ENTROPY = 1, HF_SQUARED = 2 };

/* Returns log2 of a positive number, off by at most two roundings. The library functions of C and CUDA differ in the
   last bit; this one has exact steps and a fixed series: a = m 2**e with m in [sqrt(1/2), sqrt(2)),
   s = (m - 1) / (m + 1), ln m = 2 (s + s**3/3 + s**5/5 + ...). */
HF_INLINE double hf_log2(double a) {
    int e;
    double m = frexp(a, &e);
    if (m < 0.70710678118654752) {
        m = 2 * m;
        e = e - 1;
    }
    const double s = (m - 1) / (m + 1), q = s * s;
    double sum = 1.0 / 23;
    for (int k = 21; k >= 1; k -= 2) sum = sum * q + 1.0 / k;
    return e + s * sum * 2.8853900817779268;
}

HF_INLINE double hf_xlogx(double a) { return a > 0 ? a * hf_log2(a) : 0.0; }

/* Returns the score of a branch of weight W and impurity H: -W H plus a term that is the same for all splits of a
   node, so that the best split has the largest sum over its branches.

   count    IN (n,)  weight of each class
   weight   their sum W */
HF_INLINE double hf_node_score(int criterion, const double *count, int64_t n, double weight) {
    double sum = 0;
    if (criterion == HF_ENTROPY) {
        for (int64_t k = 0; k < n; ++k) sum += hf_xlogx(count[k]);
        return sum - hf_xlogx(weight);
    }
    for (int64_t k = 0; k < n; ++k) sum += count[k] * count[k];
    return sum / weight;
}

/* Returns a threshold t with low <= t < high, so that `value <= t` sends low to the left and high to the right: the
   mean, or low where the mean rounds to high. */
HF_INLINE double hf_between_f64(double low, double high) {
    const double t = low / 2 + high / 2;
    return t < high && t >= low ? t : low;
}
HF_INLINE double hf_between_f32(double low, double high) {
    const float t = (float)(low / 2 + high / 2);
    return t < high && t >= low ? t : low;
}

#endif
