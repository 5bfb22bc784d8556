/* An edge of a tree, for a block of samples (shap_paths.pyx). */
#ifndef HFOREST_TREE_PATHS_H
#define HFOREST_TREE_PATHS_H
#include <stdint.h>

enum { HF_LANES = 8 /* samples of a group */ };

/* Arrays of a block have the shape (n_groups, n_points, HF_LANES), masks (n_groups, HF_LANES), with -1 for true. Factors
   are (n_points,): with o = 1, and with o = 0 if the last edge above by the same feature has o = 1. In all other cases
   the product changes by `share`, and the feature's c not at all. */
typedef struct {
    int64_t n_groups, n_points, n_outputs;
    const int64_t *one, *above;    /* IN: o of the feature of the edge, and that of the last edge above */
    const double *ratio1, *ratio0; /* IN: factors of the product */
    double share;
    const double *change1, *change0; /* IN: changes of c */
    const double *before;          /* IN: w P above the edge */
    double *product;               /* OUT: w P below the edge */
    double *below;                 /* (n_outputs, a block): v w P of the leaves below the edge */
    double *of_parent;             /* (n_outputs, a block): and below its parent */
    double *values;                /* (n_outputs, n_groups, HF_LANES): of the feature */
} hf_edge;

typedef struct {
    void (*enter)(const hf_edge *e);
    void (*leave)(const hf_edge *e);
    void (*add_leaf)(const hf_edge *e, const double *v);
} hf_edge_bodies;

#endif
