/* The path of one sample through one tree. */
#ifndef HFOREST_TREE_ROUTE_H
#define HFOREST_TREE_ROUTE_H
#include "core/both.h"
#include "core/defaults.h"

/* The nodes of a forest, with their projections. Thresholds and data are float if `single`, else double. */
typedef struct {
    const int64_t *tree_start; /* (n_trees + 1,) */
    const int32_t *feature;    /* (n_nodes,): a feature, -1 for a leaf, -2 for a projection */
    const void *threshold;     /* (n_nodes,) */
    const int32_t *left;       /* (n_nodes,): the left child, within the tree; for a leaf, the number of the leaf */
    const int64_t *indptr;     /* (n_nodes + 1,): entries of projections; or NULL if there are none */
    const int32_t *indices;
    const void *data;
    /* For forests that handle missing values or categories, else NULL. */
    const uint8_t *default_left;    /* (n_nodes,): bits of core/defaults.h */
    const int64_t *category_indptr; /* (n_nodes + 1,): words of the set of categories that go left; or NULL */
    const uint32_t *category_bits;
    /* (n_features,): positions of the features relative to the start of a row; or NULL if they are contiguous. */
    const int64_t *offset;
} hf_forest;

/* Returns the position of a feature in a row. */
HF_BOTH int64_t hf_place(const hf_forest *f, int32_t feature) { return f->offset ? f->offset[feature] : feature; }

HF_BOTH double hf_number(const void *a, int single, int64_t i) {
    return single ? ((const float *)a)[i] : ((const double *)a)[i];
}

/* Returns the value that node v compares with its threshold: `feature`, or its projection, summed in float64 in the
   order of the entries and rounded once. row: IN, float or double. */
HF_BOTH double hf_compared(const hf_forest *f, int single, int64_t v, int32_t feature, const void *row) {
    double sum = 0;
    if (feature >= 0) return hf_number(row, single, hf_place(f, feature));
    for (int64_t j = f->indptr[v]; j < f->indptr[v + 1]; ++j)
        sum += hf_number(f->data, single, j) * hf_number(row, single, hf_place(f, f->indices[j]));
    return single ? (double)(float)sum : sum;
}

/* Returns whether category a goes right at node v, whose set has n_words words from `first` on. */
HF_BOTH int hf_is_outside(const hf_forest *f, int64_t v, int64_t first, int64_t n_words, double a) {
    uint32_t category;
    if (!(a >= 0 && a < 32.0 * (double)n_words)) return !hf_sends_unknown_left(f->default_left[v]);
    category = (uint32_t)a;
    if ((double)category != a) return !hf_sends_unknown_left(f->default_left[v]);
    return !(f->category_bits[first + category / 32] >> category % 32 & 1);
}

/* Returns whether the value a goes to the right child of node v. `threshold` is that of the node. In a forest that does
   not handle missing values, NaN goes left. */
HF_BOTH int hf_goes_right(const hf_forest *f, int64_t v, double threshold, double a) {
    if (f->default_left) {
        if (a != a) return !hf_sends_missing_left(f->default_left[v]);
        if (f->category_indptr && f->category_indptr[v] < f->category_indptr[v + 1])
            return hf_is_outside(f, v, f->category_indptr[v], f->category_indptr[v + 1] - f->category_indptr[v], a);
    }
    return a > threshold;
}

/* Returns the leaf that a sample reaches, as a node number within the tree. */
HF_BOTH int32_t hf_leaf_of(const hf_forest *f, int single, int64_t tree, const void *row) {
    const int64_t root = f->tree_start[tree];
    int32_t v = 0;
    while (f->feature[root + v] != -1) {
        const int64_t at = root + v;
        const double a = hf_compared(f, single, at, f->feature[at], row);
        v = f->left[at] + hf_goes_right(f, at, hf_number(f->threshold, single, at), a);
    }
    return v;
}

#endif
