/* The samples of one tree, in their order, as gradients go through them. */
#ifndef HFOREST_HINGE_VISITS_H
#define HFOREST_HINGE_VISITS_H
#include <stddef.h>
#include <stdint.h>

typedef struct {
    ptrdiff_t n, n_outputs;
    ptrdiff_t step;          /* elements of grad_y from a sample to the next */
    double divisor;
    const int32_t *leaf;     /* IN (n,) */
    const void *margin;      /* IN (n,), float or double as all that follow */
    const void *grad_y;      /* IN (n, n_outputs) */
    const void *weights;     /* IN (n_leaves, n_outputs) */
    double *total;           /* IN, OUT (n_leaves, n_outputs): sums over the samples of each leaf */
    const int32_t *next_leaf; /* IN (n,) of the tree that follows, or NULL; prefetched are its leaves' rows of */
    const void *next_rows[3]; /* (n_leaves, n_outputs) each, */
    int n_next;               /* so many arrays */
} hf_visits;

#endif
