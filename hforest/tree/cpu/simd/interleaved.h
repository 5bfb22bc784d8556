/* Walks in rows of x, several interleaved, because a single walk waits for a chain of dependent loads. */
#ifndef HFOREST_TREE_INTERLEAVED_H
#define HFOREST_TREE_INTERLEAVED_H
#include "tree/cpu/packed.h"
#include "tree/route.h"

/* Returns the child of packed node v. row: IN (n_features,). NaN goes left, and thus stays in the tree. */
HF_INLINE int32_t hf_packed_child(int single, const void *node, int32_t v, const void *row) {
    if (single) {
        const hf_float_node at = ((const hf_float_node *)node)[v];
        return at.next + (((const float *)row)[at.feature] > at.threshold);
    }
    const hf_double_node at = ((const hf_double_node *)node)[v];
    return at.next + (((const double *)row)[at.feature] > at.threshold);
}

/* Returns a sum after adding n entries, with the arithmetic of hf_compared. */
HF_INLINE double hf_sum(int single, const void *entry, uint32_t n, const void *row, double sum) {
    if (single) {
        const hf_float_entry *e = (const hf_float_entry *)entry;
        for (uint32_t j = 0; j < n; ++j) sum += (double)e[j].weight * (double)((const float *)row)[e[j].place];
        return sum;
    }
    const hf_double_entry *e = (const hf_double_entry *)entry;
    for (uint32_t j = 0; j < n; ++j) sum += e[j].weight * ((const double *)row)[e[j].place];
    return sum;
}

/* Returns the child of packed node v, which compares a projection. */
HF_INLINE int32_t hf_projected_child(int single, int width, const hf_walked *w, int32_t v, const void *row) {
    const size_t size = single ? 8 : 16; /* of an entry */
    const char *at = (const char *)w->node + (size_t)v * size * (1 + width + (width != HF_PAIR)), *entry = at + size;
    double sum = hf_sum(single, entry, width, row, 0);
    if (width != HF_PAIR) {
        const hf_entries of_node = *(const hf_entries *)(entry + width * size);
        if (width == 0 || of_node.n)
            sum = hf_sum(single, (const char *)w->entry + (size_t)of_node.first * size, of_node.n, row, sum);
    }
    if (single) return ((const hf_float_projection *)at)->next + ((float)sum > ((const hf_float_projection *)at)->threshold);
    const hf_double_projection *node = (const hf_double_projection *)at;
    return (int32_t)node->next + (sum > node->threshold);
}

/* Returns the child of node v. width: -1 for nodes that compare features, else the width of projections (packed.h). */
HF_INLINE int32_t hf_child_of(int single, int width, const hf_walked *w, int32_t v, const void *row) {
    if (width < 0) return hf_packed_child(single, w->node, v, row);
    return hf_projected_child(single, width, w, v, row);
}

HF_INLINE const char *hf_row(int single, const hf_walked *w, int64_t i) {
    return (const char *)w->x + (w->base ? w->base[i] : i * w->n_features) * (single ? 4 : 8);
}

/* Writes the leaves that n samples reach in one packed tree. */
HF_INLINE void hf_walk_nodes(int single, int width, const hf_walked *w, int64_t n, int32_t *leaf) {
    int64_t i = 0;
    for (; i + HF_DOWN <= n; i += HF_DOWN) {
        const char *row[HF_DOWN];
        int32_t v[HF_DOWN] = {0}, moved;
        for (int u = 0; u < HF_DOWN; ++u) row[u] = hf_row(single, w, i + u);
        do {
            moved = 0;
            _Pragma("GCC unroll 16") for (int u = 0; u < HF_DOWN; ++u) {
                const int32_t to = hf_child_of(single, width, w, v[u], row[u]);
                moved |= to ^ v[u];
                v[u] = to;
            }
        } while (moved);
        _Pragma("GCC unroll 16") for (int u = 0; u < HF_DOWN; ++u) leaf[i + u] = v[u];
    }
    for (; i < n; ++i) {
        const char *row = hf_row(single, w, i);
        int32_t v = 0, from;
        do {
            from = v;
            v = hf_child_of(single, width, w, v, row);
        } while (v != from);
        leaf[i] = v;
    }
}

/* The position and number of the entries of a width-0 node, and the row of its sample. */
typedef struct {
    const char *entry, *row;
    uint32_t n;
} hf_pending_sum;

HF_INLINE hf_pending_sum hf_sum_of(int single, const hf_walked *w, int32_t v, const char *row) {
    const int word = single ? 4 : 8;
    const hf_entries of_node = *(const hf_entries *)((const char *)w->node + (size_t)v * 4 * word + 2 * word);
    const hf_pending_sum s = {(const char *)w->entry + (size_t)of_node.first * 2 * word, row, of_node.n};
    return s;
}

/* Adds entries first to last - 1 of n pending sums side by side: the additions of one sum depend on each other. n is a
   constant for the compiler. */
HF_INLINE void hf_add_entries(int single, int n, const hf_pending_sum *s, uint32_t first, uint32_t last, double *sum) {
    for (uint32_t j = first; j < last; ++j)
        _Pragma("GCC unroll 4") for (int k = 0; k < n; ++k) {
            if (single) {
                const hf_float_entry e = ((const hf_float_entry *)s[k].entry)[j];
                sum[k] += (double)e.weight * (double)((const float *)s[k].row)[e.place];
            } else {
                const hf_double_entry e = ((const hf_double_entry *)s[k].entry)[j];
                sum[k] += e.weight * ((const double *)s[k].row)[e.place];
            }
        }
}

/* Returns the child of node v of width 0, given its projection in float64. */
HF_INLINE int32_t hf_child_by_sum(int single, const hf_walked *w, int32_t v, double sum) {
    const char *at = (const char *)w->node + (size_t)v * (single ? 16 : 32);
    if (single) return ((const hf_float_projection *)at)->next + ((float)sum > ((const hf_float_projection *)at)->threshold);
    const hf_double_projection *node = (const hf_double_projection *)at;
    return (int32_t)node->next + (sum > node->threshold);
}

/* Returns whether node v of width 0 is a leaf. */
HF_INLINE int hf_is_leaf(int single, const hf_walked *w, int32_t v) {
    const char *at = (const char *)w->node + (size_t)v * (single ? 16 : 32);
    return v == (single ? ((const hf_float_projection *)at)->next : (int32_t)((const hf_double_projection *)at)->next);
}

/* Does the work of hf_walk_nodes for projections with many entries: HF_SUMS walks are summed side by side, and when a
   walk ends, the next sample takes its slot. */
HF_INLINE void hf_walk_long(int single, const hf_walked *w, int64_t n, int32_t *leaf) {
    int64_t sample[HF_SUMS], next = 0;
    int32_t v[HF_SUMS];
    hf_pending_sum s[HF_SUMS];
    int walks = 0;
    HF_COUNT("tree", __func__);
    if (hf_is_leaf(single, w, 0)) {
        memset(leaf, 0, (size_t)n * sizeof *leaf);
        return;
    }
    for (; walks < HF_SUMS && next < n; ++walks, ++next) {
        sample[walks] = next;
        v[walks] = 0;
        s[walks] = hf_sum_of(single, w, 0, hf_row(single, w, next));
    }
    while (walks) {
        double sum[HF_SUMS] = {0};
        uint32_t common = 0;
        if (walks == HF_SUMS) {
            common = s[0].n;
            for (int k = 1; k < HF_SUMS; ++k) common = s[k].n < common ? s[k].n : common;
            hf_add_entries(single, HF_SUMS, s, 0, common, sum);
        }
        for (int k = 0; k < walks; ++k) {
            hf_add_entries(single, 1, s + k, common, s[k].n, sum + k);
            v[k] = hf_child_by_sum(single, w, v[k], sum[k]);
        }
        for (int k = walks - 1; k >= 0; --k) {
            if (hf_is_leaf(single, w, v[k])) {
                leaf[sample[k]] = v[k];
                v[k] = 0;
                if (next < n) {
                    sample[k] = next++;
                } else {
                    --walks;
                    sample[k] = sample[walks];
                    v[k] = v[walks];
                    if (k == walks) continue;
                }
            }
            s[k] = hf_sum_of(single, w, v[k], hf_row(single, w, sample[k]));
        }
    }
}

HF_INLINE void hf_walk_packed(int single, const hf_walked *w, int64_t n, int32_t *leaf) {
    HF_COUNT("tree", __func__);
    hf_walk_nodes(single, -1, w, n, leaf);
}

HF_INLINE void hf_walk_projections(int single, int width, const hf_walked *w, int64_t n, int32_t *leaf) {
    HF_COUNT("tree", __func__);
    if (width == HF_PAIR) hf_walk_nodes(single, HF_PAIR, w, n, leaf);
    else if (width == HF_QUAD) hf_walk_nodes(single, HF_QUAD, w, n, leaf);
    else if (hf_sum_of(single, w, 0, NULL).n >= HF_LONG) hf_walk_long(single, w, n, leaf);
    else hf_walk_nodes(single, 0, w, n, leaf);
}

/* Writes the leaves that one sample reaches in n <= HF_WALKS trees from `first`. */
HF_INLINE void hf_walk_trees(const hf_forest *f, int single, int64_t first, int n, const void *row, int32_t *leaf) {
    HF_COUNT("tree", __func__);
    int32_t v[HF_WALKS] = {0}, moved;
    int64_t root[HF_WALKS];
    /* Unused slots repeat the last tree. */
    for (int g = 0; g < HF_WALKS; ++g) root[g] = f->tree_start[first + (g < n ? g : n - 1)];
    do {
        moved = 0;
        _Pragma("GCC unroll 8") for (int g = 0; g < HF_WALKS; ++g) {
            const int64_t at = root[g] + v[g];
            const int32_t feature = f->feature[at], inside = ~(feature >> 31);
            const int right = hf_number(row, single, hf_place(f, feature & inside)) > hf_number(f->threshold, single, at);
            moved |= inside;
            v[g] = ((f->left[at] + right) & inside) | (v[g] & ~inside);
        }
    } while (moved);
    for (int g = 0; g < n; ++g) leaf[g] = v[g];
}

#endif
