/* Random sparse projections (p3 section 2.3 and 3; p2 section 6.2), drawn from a key: atoms.py is the law, number by
   number. A draw costs its non-zeros, not the number of features. */
#ifndef HFOREST_ATOMS_H
#define HFOREST_ATOMS_H
#include <stdint.h>

#include "philox.h"

enum { HF_ATOM_AXIS = 0, HF_ATOM_SPARSE = 1, HF_ATOM_PATCH = 2, HF_ATOM_PROBES = 3 };
enum { HF_STREAM_ATOM = 5, HF_STREAM_ENTRY = 6, HF_ATOM_AXES = 3 };

typedef struct {
    int kind;
    int64_t n_features;
    double rate, none;      /* of HF_ATOM_SPARSE: mean number of non-zeros, and exp(-rate) */
    int64_t shape[HF_ATOM_AXES], channels;
    int64_t low[HF_ATOM_AXES], high[HF_ATOM_AXES]; /* least and greatest size of a patch along each axis */
    int cyclic;
    int64_t most;           /* entries of the largest atom */
} hf_atoms;

/* What HF_ATOM_PATCH drew: for whoever has a faster way to its sum than entry by entry. */
typedef struct {
    int64_t corner[HF_ATOM_AXES], size[HF_ATOM_AXES], channel;
} hf_patch;

static hf_patch hf_draw_patch(const hf_atoms *a, uint64_t key) {
    const hf_draw sizes = hf_philox(key, 0, HF_STREAM_ENTRY), corners = hf_philox(key, 1, HF_STREAM_ENTRY);
    hf_patch p;
    for (int i = 0; i < HF_ATOM_AXES; ++i) {
        p.size[i] = a->low[i] + hf_below(sizes.word[i], (uint32_t)(a->high[i] - a->low[i] + 1));
        p.corner[i] = hf_below(corners.word[i], (uint32_t)(a->cyclic ? a->shape[i] : a->shape[i] - p.size[i] + 1));
    }
    p.channel = hf_below(sizes.word[3], (uint32_t)a->channels);
    return p;
}

static int64_t hf_patch_entries(const hf_atoms *a, hf_patch p, uint32_t *index, float *weight) {
    int64_t n = 0, at[HF_ATOM_AXES];
    for (int64_t i = 0; i < p.size[0]; ++i)
        for (int64_t j = 0; j < p.size[1]; ++j)
            for (int64_t k = 0; k < p.size[2]; ++k) {
                at[0] = p.corner[0] + i, at[1] = p.corner[1] + j, at[2] = p.corner[2] + k;
                for (int axis = 0; axis < HF_ATOM_AXES; ++axis)
                    if (at[axis] >= a->shape[axis]) at[axis] -= a->shape[axis];
                index[n] = (uint32_t)(((at[0] * a->shape[1] + at[1]) * a->shape[2] + at[2]) * a->channels + p.channel);
                weight[n++] = 1;
            }
    return n;
}

/* Entries of the atom of a key; how many they are, at most a->most. */
static int64_t hf_draw_atom(const hf_atoms *a, uint64_t key, uint32_t *index, float *weight) {
    if (a->kind == HF_ATOM_PATCH) return hf_patch_entries(a, hf_draw_patch(a, key), index, weight);
    const hf_draw draw = hf_philox(key, 0, HF_STREAM_ENTRY);
    const uint32_t n = (uint32_t)a->n_features;
    if (a->kind == HF_ATOM_AXIS) {
        index[0] = hf_below(draw.word[0], n);
        weight[0] = 1;
        return 1;
    }
    if (a->kind == HF_ATOM_PROBES) {
        index[0] = hf_below(draw.word[0], n);
        index[1] = hf_below(draw.word[1], n - 1);
        index[1] += index[1] >= index[0];
        weight[0] = 1, weight[1] = -1;
        return 2;
    }
    /* How many: Poisson, by inversion. */
    const double u = hf_unit(draw);
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

HF_INLINE uint64_t hf_atom_key(uint64_t key, uint64_t number) {
    return hf_draw_key(hf_philox(key, number, HF_STREAM_ATOM), 0);
}

#endif
