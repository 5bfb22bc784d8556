/* Walks of one row through prepared trees, several interleaved: a single one waits for a chain of loads.

   The children of a node stand `next` and `next + 1` places behind it; a leaf has `next` 0 and a threshold that no number
   exceeds, so that a step has no branch. A node and some levels below it stand in one cache line. */
#ifndef HFOREST_TREE_ONE_ROW_H
#define HFOREST_TREE_ONE_ROW_H
#include "tree/packed.h"

enum { HF_ROW_WALKS = 16 /* trees that one row is walked in at once */ };

/* Which nodes: hf_small_node, hf_float_node or hf_double_node of packed.h, whose `feature` is a column of the row. */
enum { HF_SMALL_NODES, HF_FLOAT_NODES, HF_DOUBLE_NODES };

/* Returns how far the next node of a walk stands behind node v; 0 at a leaf. row: IN the columns of the row. */
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

/* Writes the places of the leaves that a row reaches in n trees, whose first nodes are at `root`. */
HF_INLINE void hf_walk_row(
    int form, const void *node, const uint32_t *root, int64_t n, const void *row, uint32_t *leaf
) {
    HF_COUNT("tree", __func__);
    for (int64_t first = 0; first < n; first += HF_ROW_WALKS) {
        uint32_t v[HF_ROW_WALKS], moved;
        /* Spare walks repeat the last tree. */
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

#endif
