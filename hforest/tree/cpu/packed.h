/* Tree nodes packed for calls on many samples. Both children of a leaf are the leaf itself, so that a step has no
   branch: a leaf has a threshold that no value exceeds, and itself as left child. */
#ifndef HFOREST_TREE_PACKED_H
#define HFOREST_TREE_PACKED_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/counting.h"
#include "core/simd.h"

enum {
    HF_WALKS = 8,      /* trees that one sample walks concurrently: enough to hide the latency of a load from L2 */
    HF_DOWN = 16,      /* samples that walk one packed tree concurrently, and samples of a group of columns */
    HF_SUMS = 4,       /* walks whose projections, if they have HF_LONG entries or more, are summed concurrently */
    HF_LONG = 32,
    HF_LEVELS = 4,     /* levels between two tests for finished walks; these levels have 15 nodes */
    HF_TOP = 15,       /* nodes of the first HF_LEVELS levels */
    HF_SMALL = 1 << 16 /* nodes and features below which a node fits into 8 bytes */
};

/* Nodes that compare features of rows of x. */
typedef struct {
    float threshold;
    int32_t feature, next;
} hf_float_node;

typedef struct {
    double threshold;
    int32_t feature, next;
} hf_double_node;

/* A node as above in 8 bytes: `to` has feature in the low half, next in the high half. */
typedef struct {
    float threshold;
    uint32_t to;
} hf_small_node;

/* Nodes that compare projections. If no projection has more than HF_PAIR entries, as in two-probe trees, each node is
   followed by HF_PAIR entries, where missing ones have weight 0, so that a step has no branch. Else each node (width 0)
   is followed by the position and the number of its entries:

       HF_PAIR | threshold next | weight place | weight place |      width 0 | threshold next | first n |
       HF_QUAD | threshold next | weight place | weight place | weight place | weight place | first n |

   If at most one split in HF_RARE has more than HF_QUAD entries, HF_QUAD entries follow a node, then the position and
   the number of its other ones. The entries at positions are in one array; a node that compares a feature has one entry,
   of weight 1. A leaf
   refers to the entries of the root: if all splits have the same number of entries, so have all nodes. */
enum { HF_PAIR = 2, HF_QUAD = 4, HF_RARE = 8 };

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
    const void *entry;   /* entries of projections, for width 0 */
    const void *x;       /* (n, n_features), or the array into which `base` points */
    const int64_t *base; /* (n,): positions of the rows in x; or NULL if they are contiguous */
    int64_t n_features;
} hf_walked;

/* Nodes that compare features in columns. Samples form groups of HF_DOWN; in a group, the samples of a feature are
   contiguous, as unsigned integers that have the order of the values (keys). `column` is the position of a feature in a
   group, in units of 8 bytes.

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

/* Selects one of these three. */
enum { HF_SMALL_KEYS, HF_FLOAT_KEYS, HF_DOUBLE_KEYS };

/* The top HF_LEVELS levels of a tree of float32 as a complete tree, and the nodes below them. A leaf within these levels
   is extended downwards by keys that no value exceeds. */
typedef struct {
    uint32_t key[HF_TOP];
    uint32_t column[HF_TOP];
    uint32_t exit[HF_TOP + 1];
    int32_t depth; /* depth of the tree */
} hf_top;

/* Return an unsigned integer that has the order of the values; -0 and +0 are equal. The value must not be NaN. */
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
