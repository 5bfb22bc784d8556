/* Entries of random sparse projections (p3 sections 2.3 and 3; p2 section 6.2), drawn from a key: projections.py is the
   reference implementation, number by number. A draw costs its entries, not the number of features. */
#ifndef HFOREST_ENTRIES_H
#define HFOREST_ENTRIES_H
#include "core/philox.h"

enum { HF_ATOM_AXIS = 0, HF_ATOM_SPARSE = 1, HF_ATOM_PATCH = 2, HF_ATOM_PROBES = 3 };
enum { HF_STREAM_ATOM = 5, HF_STREAM_ENTRY = 6 };
enum {
    HF_ATOM_AXES = 3,
    HF_READY = 3 /* entries of a sparse projection that vectors draw for many at once, at most */
};

/* A distribution of projections. */
typedef struct {
    int kind;
    int64_t n_features;
    double rate, none; /* HF_ATOM_SPARSE: mean number of entries, and exp(-rate) */
    int64_t shape[HF_ATOM_AXES], channels;
    int64_t low[HF_ATOM_AXES], high[HF_ATOM_AXES]; /* least and greatest size of a patch along each axis */
    int cyclic;
    int64_t most;               /* entries of the largest projection */
    double up_to[HF_READY + 1]; /* HF_ATOM_SPARSE, vectors: the probability of up to so many (hf_fill_up_to) */
} hf_atoms;

typedef struct {
    int64_t corner[HF_ATOM_AXES], size[HF_ATOM_AXES], channel;
} hf_patch;

/* Returns the key of projection `number` of a node or a seed. */
HF_BOTH uint64_t hf_atom_key(uint64_t key, uint64_t number) {
    return hf_draw_key(hf_philox(key, number, HF_STREAM_ATOM), 0);
}

/* Returns the patch of a projection's draws 0 and 1. */
HF_BOTH hf_patch hf_patch_of(const hf_atoms *a, hf_draw sizes, hf_draw corners) {
    hf_patch p;
    for (int i = 0; i < HF_ATOM_AXES; ++i) {
        p.size[i] = a->low[i] + hf_below(sizes.word[i], (uint32_t)(a->high[i] - a->low[i] + 1));
        p.corner[i] = hf_below(corners.word[i], (uint32_t)(a->cyclic ? a->shape[i] : a->shape[i] - p.size[i] + 1));
    }
    p.channel = hf_below(sizes.word[3], (uint32_t)a->channels);
    return p;
}

/* Writes the entries of a patch and returns their number. index, weight: OUT (a->most,). */
HF_BOTH int64_t hf_patch_entries(const hf_atoms *a, hf_patch p, uint32_t *index, float *weight) {
    int64_t n = 0;
    for (int64_t i = 0; i < p.size[0]; ++i) {
        const int64_t plane = p.corner[0] + i - (p.corner[0] + i >= a->shape[0] ? a->shape[0] : 0);
        for (int64_t j = 0; j < p.size[1]; ++j) {
            const int64_t row = p.corner[1] + j - (p.corner[1] + j >= a->shape[1] ? a->shape[1] : 0);
            int64_t at = ((plane * a->shape[1] + row) * a->shape[2] + p.corner[2]) * a->channels + p.channel;
            /* Of a patch that runs over the end of the row the rest stands at its beginning. */
            const int64_t before_end = a->shape[2] - p.corner[2];
            for (int64_t k = 0; k < p.size[2]; ++k, at += a->channels) {
                if (k == before_end) at -= a->shape[2] * a->channels;
                index[n] = (uint32_t)at;
                weight[n++] = 1;
            }
        }
    }
    return n;
}

/* Writes the entries of a sparse projection, whose draw 0 is `first`, and returns their number. */
HF_BOTH int64_t hf_sparse_entries(const hf_atoms *a, uint64_t key, hf_draw first, uint32_t *index, float *weight) {
    /* How many: Poisson, by inversion. */
    const double u = hf_unit(first);
    int64_t count = 0;
    for (double p = a->none, sum = p; u >= sum && count < a->most; sum += p) {
        ++count;
        p = p * (a->rate / (double)count);
    }
    count = count < 1 ? 1 : count;
    /* Which: Floyd's sampling without replacement. */
    for (int64_t i = 0; i < count; ++i) {
        const hf_draw entry = hf_philox(key, (uint64_t)(1 + i), HF_STREAM_ENTRY);
        const uint32_t last = (uint32_t)(a->n_features - count + i);
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

/* Writes the entries of the projection with this key, whose draw 0 is `first`, and returns their number.
   index, weight: OUT (a->most,). */
HF_BOTH int64_t hf_draw_entries(const hf_atoms *a, uint64_t key, hf_draw first, uint32_t *index, float *weight) {
    const uint32_t n = (uint32_t)a->n_features;
    if (a->kind == HF_ATOM_PATCH)
        return hf_patch_entries(a, hf_patch_of(a, first, hf_philox(key, 1, HF_STREAM_ENTRY)), index, weight);
    if (a->kind == HF_ATOM_SPARSE) return hf_sparse_entries(a, key, first, index, weight);
    index[0] = hf_below(first.word[0], n);
    weight[0] = 1;
    if (a->kind == HF_ATOM_AXIS) return 1;
    index[1] = hf_below(first.word[1], n - 1);
    index[1] += index[1] >= index[0];
    weight[1] = -1;
    return 2;
}

#endif
