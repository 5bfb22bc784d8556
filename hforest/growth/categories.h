/* The order in which the categories of a node are scanned, for Cython and CUDA. Operations and their order are those of
   reference/sources.py, so that the order of categories is the same on all backends. */
#ifndef HFOREST_GROWTH_CATEGORIES_H
#define HFOREST_GROWTH_CATEGORIES_H
#include "core/both.h"

enum {
    HF_POWER_STEPS = 16,   /* steps of the power iteration */
    HF_ALL_DIVISIONS = 4,  /* categories up to which all divisions are scored if no order has the best one */
    HF_COMMON = 4,         /* samples in the node with which a category has a place of its own */
    HF_CATEGORY_BITS = 7   /* log2 of the number of categories whose random sides come from one draw */
};

/* Return the number of the draw of random sides for a candidate's category, and the word and bit of the category. */
HF_BOTH uint64_t hf_side_number(int64_t candidate, uint32_t category) {
    return (uint64_t)candidate << 16 | category >> HF_CATEGORY_BITS;
}
HF_BOTH int hf_side_word(uint32_t category) { return (int)(category >> 5 & 3); }
HF_BOTH int hf_side_bit(uint32_t category) { return (int)(category & 31); }

/* Writes the groups of the k categories of a node; returns their number. Where a node has more than HF_ALL_DIVISIONS
   categories, those of fewer than HF_COMMON samples are one group, which goes to one side: an order by their own targets
   would separate them by noise. Each other category is a group. Groups are numbered by their first category.

   count  IN   (k,)  samples of the node in each category
   group  OUT  (k,)  the group of each category */
HF_BOTH int64_t hf_group_categories(const int32_t *count, int64_t k, int32_t *group) {
    int64_t n = 0, j;
    int32_t rare = -1;
    for (j = 0; j < k; ++j) {
        const int is_rare = k > HF_ALL_DIVISIONS && count[j] < HF_COMMON;
        group[j] = is_rare && rare >= 0 ? rare : (int32_t)n++;
        if (is_rare) rare = group[j];
    }
    return n;
}

HF_BOTH double hf_dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
}

/* Writes the score of each of k groups of categories: its share of the last class, or its mean. With more classes or outputs, the
   score is the projection on the first principal direction of the means (Coppersmith, Hong and Hosking 1999).

   is_ordered  IN       whether there is one output, or two classes
   sums        IN, OUT  (k, n_outputs)  sums of a group's samples; overwritten
   size        IN       (k,)            their weight
   total       IN       (n_outputs,)    sums of the node, whose weight is `weight`
   axis        OUT      (2, n_outputs)  workspace
   score       OUT      (k,) */
HF_BOTH void hf_score_categories(
    int is_ordered, double *sums, const double *size, const double *total, double weight, int64_t k, int64_t n_outputs,
    double *axis, double *score
) {
    double *next = axis + n_outputs, *swap, most = -1;
    int64_t j, i, first = 0;
    int step;
    if (is_ordered) {
        for (j = 0; j < k; ++j) score[j] = sums[j * n_outputs + n_outputs - 1] / size[j];
        return;
    }
    for (j = 0; j < k; ++j) {
        double *share = sums + j * n_outputs, spread;
        for (i = 0; i < n_outputs; ++i) share[i] = share[i] / size[j] - total[i] / weight;
        spread = size[j] * hf_dot(share, share, n_outputs);
        if (spread > most) {
            most = spread;
            first = j;
        }
    }
    for (i = 0; i < n_outputs; ++i) axis[i] = sums[first * n_outputs + i];
    for (step = 0; step < HF_POWER_STEPS; ++step) {
        double largest = 0;
        for (i = 0; i < n_outputs; ++i) next[i] = 0;
        for (j = 0; j < k; ++j) {
            const double *share = sums + j * n_outputs;
            const double by = size[j] * hf_dot(share, axis, n_outputs);
            for (i = 0; i < n_outputs; ++i) next[i] += by * share[i];
        }
        for (i = 0; i < n_outputs; ++i) {
            const double a = next[i] < 0 ? -next[i] : next[i];
            if (a > largest) largest = a;
        }
        if (!(largest > 0)) break;
        for (i = 0; i < n_outputs; ++i) next[i] = next[i] / largest;
        swap = axis;
        axis = next;
        next = swap;
    }
    for (j = 0; j < k; ++j) score[j] = hf_dot(sums + j * n_outputs, axis, n_outputs);
}

/* Writes the place of each of k groups in ascending order of scores; of equal scores the first comes first.

   order  OUT  (k,)  workspace
   place  OUT  (k,) */
HF_BOTH void hf_place_categories(const double *score, int64_t k, int32_t *order, int32_t *place) {
    int64_t gap = 1, i, j;
    for (i = 0; i < k; ++i) order[i] = (int32_t)i;
    while (gap < k / 3) gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3) { /* Shell's sort */
        for (i = gap; i < k; ++i) {
            const int32_t one = order[i];
            for (j = i; j >= gap; j -= gap) {
                const int32_t other = order[j - gap];
                if (score[other] < score[one] || (score[other] == score[one] && other < one)) break;
                order[j] = other;
            }
            order[j] = one;
        }
    }
    for (i = 0; i < k; ++i) place[order[i]] = (int32_t)i;
}

#endif
