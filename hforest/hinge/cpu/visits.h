/* The samples of one tree, in the order in which the gradients visit them. */
#ifndef HFOREST_HINGE_VISITS_H
#define HFOREST_HINGE_VISITS_H
#include <stddef.h>
#include <stdint.h>

typedef struct {
    ptrdiff_t n, n_outputs;
    ptrdiff_t step;          /* elements of grad_y from one sample to the next */
    double divisor;
    const int32_t *leaf;     /* IN (n,) */
    const int32_t *place;    /* IN (n,): rows of the leaves in `total` */
    const void *margin;      /* IN (n,); float or double, as are the arrays below */
    const void *grad_y;      /* IN (n, n_outputs) */
    const void *weights;     /* IN (n_leaves, n_outputs) */
    double *total;           /* IN and OUT (n_places, n_outputs): sums over the samples of each leaf */
    const int32_t *next_leaf; /* IN (n,): leaves of the next tree, whose rows are prefetched; or NULL */
    const void *next_rows[3]; /* n_next arrays (n_leaves, n_outputs) of the next tree */
    int n_next;
} hf_visits;

#endif
