/* Outputs of routed samples, as leaf_sums.pyx adds them. */
#ifndef HFOREST_HINGE_SUMS_H
#define HFOREST_HINGE_SUMS_H
#include <stddef.h>
#include <stdint.h>

/* Routes of n samples in adjacent trees: that of sample s in tree j is at s * sample_step + j * tree_step. */
typedef struct {
    int32_t *leaf;
    void *margin; /* float or double, as are the weights */
    int32_t *vertex;
    ptrdiff_t n, n_trees, sample_step, tree_step;
} hf_group;

typedef struct {
    hf_group group;                      /* IN */
    const void *weights;                 /* IN (n_trees, n_leaves, n_outputs), of the group's trees */
    double *total;                       /* IN and OUT (n, n_outputs) */
    ptrdiff_t n_leaves, n_outputs;
    ptrdiff_t next_samples, next_trees;  /* distance of the pair whose row of weights is prefetched */
} hf_sums;

#endif
