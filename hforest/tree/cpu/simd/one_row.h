/* Walks of one row through prepared trees, several interleaved, because a single walk waits for a chain of loads.

   The children of a node are `next` and `next + 1` places after it. A leaf has `next` 0 and a threshold that no value
   exceeds, so that a step has no branch. A node and some levels below it are in one cache line. */
#ifndef HFOREST_TREE_ONE_ROW_H
#define HFOREST_TREE_ONE_ROW_H
#include "tree/cpu/simd/interleaved.h"

enum { HF_ROW_WALKS = 16 /* trees that one row walks concurrently */ };

/* The node form: hf_small_node, hf_float_node or hf_double_node of packed.h, with a column of the row as `feature`. */
enum { HF_SMALL_NODES, HF_FLOAT_NODES, HF_DOUBLE_NODES };

/* Returns the distance from node v to the next node of a walk; 0 at a leaf. row: IN, the columns of the row. */
HF_INLINE uint32_t hf_step(int form, const void *node, uint32_t v, const void *row) {
    if (form == HF_SMALL_NODES) {
        const hf_small_node at = ((const hf_small_node *)node)[v];
        return (at.to >> 16) + (((const float *)row)[at.to & 0xffff] > at.threshold);
    }
    if (form == HF_FLOAT_NODES) {
        const hf_float_node at = ((const hf_float_node *)node)[v];
        return (uint32_t)at.next + (((const float *)row)[at.feature] > at.threshold);
    }
    const hf_double_node at = ((const hf_double_node *)node)[v];
    return (uint32_t)at.next + (((const double *)row)[at.feature] > at.threshold);
}

/* Writes the places of the leaves that a row reaches in n trees, whose roots are at the places `root`. */
HF_INLINE void hf_walk_row(
    int form, const void *node, const uint32_t *root, int64_t n, const void *row, uint32_t *leaf
) {
    HF_COUNT("tree", __func__);
    for (int64_t first = 0; first < n; first += HF_ROW_WALKS) {
        uint32_t v[HF_ROW_WALKS], moved;
        /* Unused slots repeat the last tree. */
        for (int g = 0; g < HF_ROW_WALKS; ++g) v[g] = root[first + g < n ? first + g : n - 1];
        do {
            moved = 0;
            _Pragma("GCC unroll 16") for (int g = 0; g < HF_ROW_WALKS; ++g) {
                const uint32_t step = hf_step(form, node, v[g], row);
                moved |= step;
                v[g] += step;
            }
        } while (moved);
        for (int g = 0; g < HF_ROW_WALKS && first + g < n; ++g) leaf[first + g] = v[g];
    }
}

/* Writes the leaves that a row reaches in n packed trees with projections (packed.h), and in those that compare features.
   node: IN, the nodes of all trees; tree_start: IN (n + 1,), the first node of each. */
HF_INLINE void hf_project_row(
    int single, int width, const void *node, const void *entry, const int64_t *tree_start, int64_t n, const void *row,
    int32_t *leaf
) {
    HF_COUNT("tree", __func__);
    const size_t size = (size_t)(single ? 8 : 16) * (1 + width + (width != HF_PAIR));
    for (int64_t first = 0; first < n; first += HF_ROW_WALKS) {
        hf_walked w[HF_ROW_WALKS];
        int32_t v[HF_ROW_WALKS], moved;
        /* Unused slots repeat the last tree. */
        for (int g = 0; g < HF_ROW_WALKS; ++g) {
            w[g].node = (const char *)node + (size_t)tree_start[first + g < n ? first + g : n - 1] * size;
            w[g].entry = entry;
            v[g] = 0;
        }
        do {
            moved = 0;
            _Pragma("GCC unroll 16") for (int g = 0; g < HF_ROW_WALKS; ++g) {
                const int32_t to = hf_projected_child(single, width, &w[g], v[g], row);
                moved |= to ^ v[g];
                v[g] = to;
            }
        } while (moved);
        for (int g = 0; g < HF_ROW_WALKS && first + g < n; ++g) leaf[first + g] = v[g];
    }
}

#endif
