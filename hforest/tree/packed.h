/* Nodes of trees that are packed for many samples: the children of a leaf are the leaf itself, so that a step has no
   branch. A leaf has a threshold that no number exceeds, and itself as left child. */
#ifndef HFOREST_TREE_PACKED_H
#define HFOREST_TREE_PACKED_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/counting.h"
#include "core/simd.h"

enum {
    HF_WALKS = 8,      /* trees that one sample is walked in at once: enough to hide the latency of a load from L2 */
    HF_DOWN = 16,      /* samples walked in one packed tree at once, and samples of a group of columns */
    HF_SUMS = 4,       /* walks whose projections, of HF_LONG entries and more, are summed at once */
    HF_LONG = 32,
    HF_LEVELS = 4,     /* levels between two tests for finished walks; these levels have 15 nodes */
    HF_TOP = 15,       /* nodes of the first HF_LEVELS levels */
    HF_SMALL = 1 << 16 /* nodes and features below which a node fits into 8 bytes */
};

/* Nodes that compare features in rows of x as given. */
typedef struct {
    float threshold;
    int32_t feature, next;
} hf_float_node;

typedef struct {
    double threshold;
    int32_t feature, next;
} hf_double_node;

/* The same in 8 bytes: feature in the low half of `to`, next in the high one. */
typedef struct {
    float threshold;
    uint32_t to;
} hf_small_node;

/* Nodes that compare projections. Where none has more than HF_PAIR entries, as in two-probe trees, that many follow each
   node, those that it lacks with weight 0: a step has no branch. Else it is followed by where its entries are:

       HF_PAIR | threshold next | weight place | weight place |      width 0 | threshold next | first n |

   Entries of width 0 stand among those of all nodes; a node that compares a feature has one, of weight 1. A leaf
   has the entries of the root: where all splits have as many, so has every node. */
enum { HF_PAIR = 2 };

typedef struct {
    float weight;
    int32_t place;
} hf_float_entry;

typedef struct {
    double weight;
    int64_t place;
} hf_double_entry;

typedef struct {
    uint32_t first, n;
} hf_entries;

typedef struct {
    float threshold;
    int32_t next;
} hf_float_projection;

typedef struct {
    double threshold;
    int64_t next;
} hf_double_projection;

/* Samples that walk through one packed tree. */
typedef struct {
    const void *node;    /* (n_nodes,) */
    const void *entry;   /* of projections */
    const void *x;       /* (n, n_features), or the numbers that `base` counts */
    const int64_t *base; /* (n,): where the rows begin in x; or NULL: one after another */
    int64_t n_features;
} hf_walked;

/* Nodes that compare features in columns: the features of HF_DOWN samples, a group, next to each other, as unsigned
   integers in the order of the numbers (keys). `column` is the place of a feature in a group, in units of 8 bytes.

       group of 3 features | feature 0 of 16 samples | feature 1 of 16 samples | feature 2 of 16 samples | */
typedef struct {
    uint32_t key, column, next;
} hf_float_key_node;

typedef struct {
    uint64_t key;
    uint32_t column, next;
} hf_double_key_node;

typedef struct {
    uint32_t key;
    uint16_t column, next;
} hf_small_key_node;

/* Which of these three. */
enum { HF_SMALL_KEYS, HF_FLOAT_KEYS, HF_DOUBLE_KEYS };

/* The top HF_LEVELS levels of a tree as a complete tree, and the nodes below them. A leaf above them is extended
   downwards by keys that no number exceeds. */
typedef struct {
    uint64_t key[HF_TOP];
    uint32_t column[HF_TOP];
    uint32_t exit[HF_TOP + 1];
    int32_t depth; /* of the tree */
} hf_top;

/* Return an integer in the order of the numbers, with one zero; no NaN. */
HF_INLINE uint32_t hf_float_key(float number) {
    const float sum = number + 0;
    uint32_t bits;
    memcpy(&bits, &sum, sizeof bits);
    return bits ^ (-(bits >> 31) | 1u << 31);
}

HF_INLINE uint64_t hf_double_key(double number) {
    const double sum = number + 0;
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    return bits ^ (-(bits >> 63) | 1ull << 63);
}

#endif
