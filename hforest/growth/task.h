/* What growing a tree works on, for Cython (task.pxd) and C: the task, a tree as it grows, a tree's workspace. */
#ifndef HFOREST_GROWTH_TASK_H
#define HFOREST_GROWTH_TASK_H
#include <float.h>
#include <stdint.h>

#include "core/simd.h"
#include "core/watch.h"

enum { HF_STREAM_BOOTSTRAP = 1, HF_STREAM_CHILDREN = 2, HF_STREAM_CANDIDATES = 3, HF_STREAM_THRESHOLD = 4, HF_STREAM_DIRECTION = 5 };

/* Bits of default_left. */
enum { HF_MISSING_LEFT = 1, HF_UNKNOWN_LEFT = 2 };

typedef struct hf_task hf_task;
typedef struct hf_workspace hf_workspace;

/* A node to be split. Its samples are number `first` to last - 1 of the workspace. */
typedef struct {
    int64_t first, last;
    uint64_t key; /* of the parent, but for the root */
    int32_t depth, side;
    int64_t at; /* its number in a tree that grows depth-first */
} hf_pending;

/* A split of a node. Samples with codes up to `low` go left, those from `high` on go right; or, of projections, those
   with values up to `below`, and from `above` on. */
typedef struct {
    double score;
    int64_t column; /* -1: none */
    uint32_t low, high;
    double below, above;
    double threshold;
    int missing;      /* 1 or 0: missing values of the node go left or right; -1: it has none */
    int default_left; /* bits: where those go that the split does not compare */
} hf_split;

/* Returns the largest finite number: the threshold of a split between all numbers and missing values. */
HF_INLINE double hf_largest(int single) { return single ? (double)FLT_MAX : DBL_MAX; }

/* A tree as it grows, depth-first. A leaf of one class has left[v] = -1 - class, any other its row of `value`. */
typedef struct {
    int32_t *feature, *left;
    double *threshold, *gain;
    void *value; /* (n_rows, n_outputs), float or double */
    int64_t n_nodes, n_leaves, n_rows, node_capacity, row_capacity;
    /* Projections: node v has the entries indptr[v] to indptr[v + 1] - 1, the last node those up to n_entries. */
    int64_t *indptr;
    uint32_t *indices;
    double *data;
    int64_t n_entries, entry_capacity;
    /* Of trees that know missing values or categories: node v has n_words[v] words from word_at[v] on. */
    uint8_t *default_left;
    int64_t *word_at;
    int32_t *n_words;
    uint32_t *words;
    int64_t n_all_words, word_capacity;
    int has_defaults;
} hf_tree;

/* Where the candidates of a node come from. */
typedef struct {
    const void *data; /* IN  the source's own struct */
    int has_short_codes; /* IN  codes fit in 16 bits */
    /* Allocates r->own for a tree on r->n samples; returns 0 if memory is out. */
    int (*start)(const hf_task *t, hf_workspace *r);
    void (*finish)(const hf_task *t, hf_workspace *r);
    /* Returns the best split of a node, with its score and threshold, and writes to r->goes_right the side of each of
       its samples; column is -1 where there is no split. */
    hf_split (*best_split)(const hf_task *t, hf_workspace *r, const hf_pending *node, uint64_t key, double weight);
    /* Writes the feature of node v, or its projection; returns 0 if memory is out. */
    int (*write)(const hf_task *t, hf_workspace *r, const hf_split *split, hf_tree *tree, int64_t v);
} hf_source;

/* Nodes of other trees, each the root of a tree here. Tree m has the samples indptr[m] to indptr[m + 1] - 1. */
typedef struct {
    const int64_t *indptr; /* (n_trees + 1,), or NULL: whole trees */
    const uint64_t *key;   /* (n_trees,) the node's key */
    const double *weight;  /* (n_trees,) the weight of its whole tree */
    const int64_t *depth;  /* (n_trees,) the node's depth there */
} hf_roots;

struct hf_task {
    hf_source source;
    hf_roots roots;
    int64_t n;
    int single; /* x and thresholds are float32 */
    int path;   /* vector path */
    const int32_t *labels;  /* (n,), or NULL */
    const double *targets;  /* (n, n_outputs), or NULL */
    const double *weight;   /* (n,), before in-bag counts */
    const int64_t *base;    /* (n,): where a sample's codes begin, or NULL */
    int64_t n_outputs;
    int criterion;
    int has_defaults; /* trees know missing values, or categories */
    int in_floats; /* scores in float64 even where integers would do */
    int64_t n_candidates, max_depth, min_split, min_leaf;
    double min_decrease;
    double min_weight_fraction; /* of a tree's weight, in a side of a split */
    uint64_t seed;
    hf_watch *watch;
};

/* How sums over samples are kept: Gini with whole weights in integers, with keys that hold code, class and weight (16, 8
   and 8 bits; or 32, 16 and 16); everything else in float64, with keys of code and number of the sample (32 bits). */
enum { HF_KEYS_32 = 0, HF_KEYS_64 = 1, HF_FLOATS = 2 };

/* The workspace of one tree. Arrays of samples have r->n numbers, and follow the partition of the nodes. */
struct hf_workspace {
    int kind;
    int64_t n;
    uint32_t *sample, *sample2;
    uint32_t *payload, *payload2; /* class and weight of a sample; of HF_FLOATS its number in this tree */
    double *weight, *weight2;     /* HF_FLOATS */
    int32_t *label, *label2;      /* HF_FLOATS */
    uint8_t *goes_right;
    void *key, *key2;             /* a node's keys, to be sorted: 8 bytes a sample */
    double *total, *left, *right, *mean;           /* (n_outputs,) */
    double *term, *left_term, *right_term; /* entropy: a log2 a of whole a, or NULL; terms of both sides */
    uint32_t *count, *count_left, *class_number;   /* (n_outputs,) */
    hf_pending *pending;
    int64_t n_pending, pending_capacity;
    double least_weight; /* of a side of a split */
    void *columns, *own; /* of the columns; of other sources */
    void *stored;        /* of a sparse matrix, or NULL */
};

/* Adds weight * (target - mean) of sample i of the tree, or its weight to its class.

   sum  IN, OUT  (n_outputs,) */
HF_INLINE void hf_add(const hf_task *t, const hf_workspace *r, int64_t i, double *sum) {
    const double w = r->weight[i];
    if (t->labels) {
        sum[r->label[i]] += w;
        return;
    }
    const double *row = t->targets + r->sample[i] * t->n_outputs;
    for (int64_t k = 0; k < t->n_outputs; ++k) sum[k] += w * (row[k] - r->mean[k]);
}

#endif
