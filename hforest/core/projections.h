/* Entries of random sparse projections (Perry et al. 2019, sections 2.3 and 3; Norouzi et al. 2015, section 6.2), drawn
   from a key. projections.py is the reference implementation with the same numbers. The cost of a draw is proportional
   to its entries, not to the number of features. */
#ifndef HFOREST_PROJECTIONS_H
#define HFOREST_PROJECTIONS_H
#include "core/philox.h"

enum { HF_AXIS = 0, HF_SPARSE = 1, HF_PATCH = 2, HF_PROBES = 3, HF_KERNELS = 4 };
enum { HF_AXES = 3 };

/* A distribution of projections. */
typedef struct {
    int kind;
    int64_t n_features;
    double density;          /* HF_SPARSE: mean number of entries */
    double zero_probability; /* HF_SPARSE: exp(-density); HF_PROBES: share of single features */
    int64_t shape[HF_AXES], channels;
    int64_t low[HF_AXES], high[HF_AXES]; /* least and greatest size of a patch along each axis */
    int cyclic;
    int64_t max_entries;
    /* Groups: all columns, group by group (n_features,), then for each candidate the first place and the number of
       columns of its group (n_candidates, 2). Without groups n_candidates is 0.
       HF_KERNELS: the number of kernels, then for each its size along each axis and the place of its first weight
       (n_kernels, HF_AXES + 1), then the bits of all weights, float32. */
    const int32_t *table;
    int64_t n_candidates;
} hf_distribution;

/* The input of a projection's draw. */
typedef struct {
    uint64_t key;
    const int32_t *group; /* (2,): first place and number of the columns of its group; or NULL: all features */
} hf_candidate;

typedef struct {
    int64_t corner[HF_AXES], size[HF_AXES], channel;
    const int32_t *weight; /* bits of the weights in C order, float32; or NULL: all are 1 */
} hf_patch;

/* Returns candidate `number` for the key of a node, or for a seed. */
HF_BOTH hf_candidate hf_candidate_of(const hf_distribution *a, uint64_t key, uint64_t number) {
    hf_candidate candidate = {hf_draw_key(hf_philox(key, number, HF_STREAM_PROJECTION), 0), 0};
    if (a->n_candidates) candidate.group = a->table + a->n_features + 2 * (number % (uint64_t)a->n_candidates);
    return candidate;
}

/* Returns the patch or the kernel of a projection, given its draws 0 and 1. */
HF_BOTH hf_patch hf_patch_of(const hf_distribution *a, hf_draw sizes, hf_draw corners) {
    hf_patch p;
    const int32_t *kernel = 0;
    if (a->kind == HF_KERNELS) kernel = a->table + 1 + (HF_AXES + 1) * hf_below(sizes.word[0], (uint32_t)a->table[0]);
    p.weight = kernel ? a->table + kernel[HF_AXES] : 0;
    for (int i = 0; i < HF_AXES; ++i) {
        p.size[i] = kernel ? kernel[i] : a->low[i] + hf_below(sizes.word[i], (uint32_t)(a->high[i] - a->low[i] + 1));
        p.corner[i] = hf_below(corners.word[i], (uint32_t)(a->cyclic ? a->shape[i] : a->shape[i] - p.size[i] + 1));
    }
    p.channel = hf_below(sizes.word[3], (uint32_t)a->channels);
    return p;
}

/* Writes the entries of a patch, or those of a kernel that are not 0, and returns their number.
   index, weight: OUT (a->max_entries,). */
HF_BOTH int64_t hf_patch_entries(const hf_distribution *a, hf_patch p, uint32_t *index, float *weight) {
    int64_t n = 0;
    for (int64_t i = 0; i < p.size[0]; ++i) {
        const int64_t plane = p.corner[0] + i - (p.corner[0] + i >= a->shape[0] ? a->shape[0] : 0);
        for (int64_t j = 0; j < p.size[1]; ++j) {
            const int64_t row = p.corner[1] + j - (p.corner[1] + j >= a->shape[1] ? a->shape[1] : 0);
            int64_t at = ((plane * a->shape[1] + row) * a->shape[2] + p.corner[2]) * a->channels + p.channel;
            /* The part of a patch beyond the end of a row wraps around to the row's beginning. */
            const int64_t before_end = a->shape[2] - p.corner[2];
            for (int64_t k = 0; k < p.size[2]; ++k, at += a->channels) {
                if (k == before_end) at -= a->shape[2] * a->channels;
                index[n] = (uint32_t)at;
                weight[n] = 1;
                if (p.weight) memcpy(&weight[n], p.weight++, sizeof *weight);
                n += weight[n] != 0;
            }
        }
    }
    return n;
}

/* Writes the entries of a sparse projection, as places in its group, given its draw 0, and returns their number. */
HF_BOTH int64_t
hf_sparse_entries(const hf_distribution *a, hf_candidate c, hf_draw first, uint32_t *index, float *weight) {
    /* The number of entries: Poisson, by inversion. */
    const double u = hf_unit(first);
    const int64_t n_columns = c.group ? c.group[1] : a->n_features;
    const int64_t most = a->max_entries < n_columns ? a->max_entries : n_columns;
    int64_t count = 0;
    for (double p = a->zero_probability, sum = p; u >= sum && count < most; sum += p) {
        ++count;
        p = p * (a->density / (double)count);
    }
    count = count < 1 ? 1 : count;
    /* The entries: Floyd's sampling without replacement. */
    for (int64_t i = 0; i < count; ++i) {
        const hf_draw entry = hf_philox(c.key, (uint64_t)(1 + i), HF_STREAM_ENTRY);
        const uint32_t last = (uint32_t)(n_columns - count + i);
        uint32_t at = hf_below(entry.word[0], last + 1);
        for (int64_t j = 0; j < i; ++j)
            if (index[j] == at) {
                at = last;
                break;
            }
        index[i] = at;
        weight[i] = entry.word[1] & 1 ? 1.0f : -1.0f;
    }
    return count;
}

/* Does the same for a single feature, or a difference of two. */
HF_BOTH int64_t
hf_probe_entries(const hf_distribution *a, hf_candidate c, hf_draw first, uint32_t *index, float *weight) {
    const uint32_t n = (uint32_t)(c.group ? c.group[1] : a->n_features);
    index[0] = hf_below(first.word[0], n);
    weight[0] = 1;
    if (a->kind == HF_AXIS || n == 1 || first.word[2] < a->zero_probability * 0x1p32) return 1;
    index[1] = hf_below(first.word[1], n - 1);
    index[1] += index[1] >= index[0];
    weight[1] = -1;
    return 2;
}

/* Writes the entries of a candidate, given its draw 0, and returns their number.
   index, weight: OUT (a->max_entries,). */
HF_BOTH int64_t
hf_draw_projection(const hf_distribution *a, hf_candidate c, hf_draw first, uint32_t *index, float *weight) {
    if (a->kind == HF_PATCH || a->kind == HF_KERNELS)
        return hf_patch_entries(a, hf_patch_of(a, first, hf_philox(c.key, 1, HF_STREAM_ENTRY)), index, weight);
    const int64_t n = a->kind == HF_SPARSE ? hf_sparse_entries(a, c, first, index, weight)
                                           : hf_probe_entries(a, c, first, index, weight);
    for (int64_t j = 0; c.group && j < n; ++j) index[j] = (uint32_t)a->table[c.group[0] + index[j]];
    return n;
}

#endif
