/* What growing a tree works on: its task, its room, the tree to come, and what all ways to score a node share.

   Three ways to score, with equal results where they overlap: Gini with whole weights in integers, with keys of 32
   or 64 bits that hold code, class and weight; everything else in float64, in the order of codes, then samples. */
#ifndef HFOREST_GROWTH_TASK_H
#define HFOREST_GROWTH_TASK_H
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/atoms.h"
#include "core/order.h"
#include "core/philox.h"
#include "core/score.h"
#include "core/simd.h"
#include "core/watch.h"

enum {
    HF_FEW = 48,   /* keys up to which insertion beats a radix pass */
    HF_TERMS = 1 << 17, /* terms that a table of them holds at most: 1 MB */
    HF_NEAR_CODES = 1 << 19, /* bytes of codes that stay in L2 */
    HF_DIGIT = 11, /* most bits of a radix pass */
    HF_STREAM_BAG = 1,
    HF_STREAM_CHILDREN = 2,
    HF_STREAM_CANDIDATES = 3,
    HF_STREAM_CUT = 4
};

/* Sums of whole weights below this are exact in float64, and their squares too. */
#define HF_WHOLE 67108864.0

typedef struct {
    /* Candidates: codes (n_columns, n) of `width` bytes; column f's code c stands for the values from
       low[f * n_codes + c] to high[f * n_codes + c]. */
    const void *codes;
    int width;
    int64_t n, n_columns;
    const double *low, *high;
    int64_t n_codes; /* numbers of a row of the tables */
    const void *rows; /* codes again, (n, n_columns), for vectors; or NULL */
    int path;         /* vector instructions to use */
    /* Or windows: one row of codes and tables for all columns, column f's code of sample i standing at
       base[i] + offset[f]. NULL for codes of columns. Only with labels. */
    const int64_t *base, *offset;
    int single; /* x and thresholds are float32 */
    /* Or projections of x (n, n_features), float or double; NULL for codes. */
    const hf_atoms *atoms;
    const void *x;
    int whole;            /* x is whole numbers, and sums of them are exact */
    const uint8_t *small; /* x again, if that holds it, or NULL */
    const void *columns;  /* x, or `small`, features first, with 64 numbers to spare; for vectors, or NULL */
    const void *table;    /* sums over corners of 32 bits, or of 16 if narrow; or NULL */
    int narrow;
    /* Labels, or n rows of targets (labels NULL). */
    const int32_t *labels;
    const double *targets;
    int64_t n_outputs;
    const double *weight; /* of samples, before the bag */
    int criterion;
    /* When to stop. */
    int64_t n_drawn; /* candidates of a node */
    int64_t max_depth, min_split, min_leaf;
    double min_decrease;
    int completely_random;
    int in_floats; /* score in float64 even where integers would do */
    uint64_t seed;
    hf_watch *watch; /* whether the call is to end */
} hf_task;

/* A tree as it grows, depth-first. A leaf of one class has left[v] = -1 - class, any other its row of `value`. */
typedef struct {
    int32_t *feature, *left;
    double *threshold, *gain;
    void *value; /* (n_rows, n_outputs), float or double */
    int64_t n_nodes, n_leaves, n_rows, node_room, row_room;
    /* Projections: node v has the entries start[v] to start[v + 1] - 1, the last node those up to n_entries. */
    int64_t *start;
    uint32_t *index;
    float *weight;
    int64_t n_entries, entry_room;
} hf_tree;

typedef struct {
    double score;
    int64_t column; /* -1: none */
    uint32_t low, high;
    double threshold; /* of completely random trees */
    double below, above; /* of projections: values on both sides of the cut */
} hf_cut;

#define HF_KEY uint32_t
#define HF_CODE_SHIFT 16
#define HF(name) name##_32
#include "growth/sort.h"
#include "growth/sweep.h"
#undef HF_KEY
#undef HF_CODE_SHIFT
#undef HF
#define HF_KEY uint64_t
#define HF_CODE_SHIFT 32
#define HF(name) name##_64
#include "growth/sort.h"
#include "growth/sweep.h"
#undef HF_KEY
#undef HF_CODE_SHIFT
#undef HF

/* Counts how often each scorer is taken, for tests: in bounds-checked builds alone. */
enum {
    HF_BY_SORTING,
    HF_BY_PAIRS,
    HF_BY_HISTOGRAM,
    HF_BY_PAIRS_OF_VALUES,
    HF_BY_HISTOGRAM_OF_VALUES,
    HF_BY_BOUNDS,
    HF_SCORERS
};
#ifdef HF_DEBUG
static int64_t hf_taken[HF_SCORERS];
#define HF_TAKE(SCORER) __atomic_fetch_add(&hf_taken[SCORER], 1, __ATOMIC_RELAXED)
#else
#define HF_TAKE(SCORER) ((void)0)
#endif

typedef struct {
    int64_t first, last;
    uint64_t key; /* of the parent, but for the root */
    int32_t depth, side;
    int64_t at; /* its number in a tree that grows depth-first */
} hf_pending; /* a node to be looked at */

enum { HF_BLOCKS = 3 };

/* Rows of the samples of a node, features first (blocks.h). */
typedef struct {
    void *columns;
    uint32_t *place;     /* of a sample, in the columns */
    int64_t room;        /* samples */
    int64_t first, last; /* of the node */
} hf_block;

/* Columns from which a node's samples are read: number f * step + place[i] is feature f of its sample i. */
typedef struct {
    const void *numbers; /* or NULL */
    int64_t step;
    const uint32_t *place; /* ascending */
    int is_block, are_marked;
} hf_columns;

/* A tree's room. */
typedef struct {
    enum { HF_INT32_KEYS, HF_INT64_KEYS, HF_FLOATS } kind;
    int64_t n;
    uint32_t *sample, *sample2;
    uint32_t *payload, *payload2; /* of a sample of the tree: class and weight; of HF_FLOATS its number */
    void *key, *key2;
    double *weight, *weight2;    /* HF_FLOATS */
    int32_t *label, *label2;     /* HF_FLOATS */
    double *total, *left, *right, *mean;
    double *term, *left_term, *right_term; /* entropy: a log2 a of whole a, or NULL; and of both sides' weights */
    uint32_t *count, *count_left;
    uint32_t *column, *drawn;
    /* Projections: a candidate's values and entries; values and key of the best so far. */
    void *projected, *best_projected;
    uint32_t *index;
    float *factor;
    uint64_t best_atom;
    int32_t *code;   /* values.h: a candidate's values, in the order of signed integers */
    uint32_t *slot;  /* buckets.h: a sample's class and weight, and where its value is counted */
    uint8_t *bucket;
    uint64_t *present; /* columns.h: which places are samples' */
    hf_block block[HF_BLOCKS];
    uint32_t *place_in_block;
    hf_columns columns;
    uint64_t *order, *order2; /* float64: values as keys, to be ranked */
    uint32_t *place, *place2;
    const uint32_t *sorted_place; /* place or place2 */
    hf_pending *open;
    int64_t n_open, open_room;
} hf_workspace;

static void hf_free_tree(hf_tree *tree) {
    free(tree->feature), free(tree->left), free(tree->threshold), free(tree->gain), free(tree->value);
    free(tree->start), free(tree->index), free(tree->weight);
    memset(tree, 0, sizeof *tree);
}

static void hf_free_workspace(hf_workspace *r) {
    free(r->sample), free(r->sample2), free(r->payload), free(r->payload2), free(r->key), free(r->key2);
    free(r->weight), free(r->weight2), free(r->label), free(r->label2), free(r->total), free(r->left);
    free(r->right), free(r->mean), free(r->count), free(r->count_left), free(r->column), free(r->drawn), free(r->open);
    free(r->projected), free(r->best_projected), free(r->index), free(r->factor), free(r->term), free(r->left_term);
    free(r->right_term), free(r->order), free(r->order2), free(r->place), free(r->place2);
    free(r->code), free(r->slot), free(r->bucket), free(r->present), free(r->place_in_block);
    for (int level = 0; level < HF_BLOCKS; ++level) free(r->block[level].columns), free(r->block[level].place);
}

/* Doubles an array's room; 0 if memory is out. */
static int hf_widen(void **a, int64_t room, int64_t size) {
    void *more = realloc(*a, (size_t)(room * size));
    if (!more) return 0;
    *a = more;
    return 1;
}

/* Adds what sample i of the tree weighs to sums. */
HF_INLINE void hf_add(const hf_task *t, const hf_workspace *r, int64_t i, double *sum) {
    const double w = r->weight[i];
    if (t->labels) {
        sum[r->label[i]] += w;
        return;
    }
    const double *row = t->targets + r->sample[i] * t->n_outputs;
    for (int64_t k = 0; k < t->n_outputs; ++k) sum[k] += w * (row[k] - r->mean[k]);
}

/* Where the codes of a column begin, and its row of the tables. */
HF_INLINE int64_t hf_codes(const hf_task *t, int64_t column) {
    return t->offset ? t->offset[column] : column * t->n;
}
HF_INLINE int64_t hf_table(const hf_task *t, int64_t column) { return t->offset ? 0 : column * t->n_codes; }

/* Code of a column at a sample. */
HF_INLINE uint32_t hf_code(const hf_task *t, int64_t at, uint32_t sample) {
    if (t->width == 1) return ((const uint8_t *)t->codes)[at + sample];
    if (t->width == 2) return ((const uint16_t *)t->codes)[at + sample];
    return ((const uint32_t *)t->codes)[at + sample];
}

/* Where a sample's codes begin, and how many codes behind lies a column's. */
HF_INLINE const uint8_t *hf_row(const hf_task *t, uint32_t sample) {
    if (t->offset) return (const uint8_t *)t->codes + (int64_t)sample * t->width;
    return (const uint8_t *)t->rows + (int64_t)sample * t->n_columns * t->width;
}
HF_INLINE int64_t hf_place_in_row(const hf_task *t, uint32_t column) { return t->offset ? t->offset[column] : column; }

/* Whether n samples of a node have their codes read by rows: where the cache lines of these are fewer than of the
   candidates' columns, or where all columns stay near and rows are for few samples alone. */
HF_INLINE int hf_is_by_rows(const hf_task *t, int64_t n) {
    const int64_t row = t->n_columns * t->width / 64 + 1, column = t->n * t->width / 64 + 1;
    if (!t->rows || t->completely_random) return 0;
    if (t->n * t->n_columns * t->width <= HF_NEAR_CODES) return n <= 64;
    return n * (row < t->n_drawn ? row : t->n_drawn) <= t->n_drawn * (column < n ? column : n);
}

/* Whether vectors look at codes of bytes (pairs.h, counted.h). */
HF_INLINE int hf_has_bytes(const hf_task *t, const hf_workspace *r) {
    return t->path == HF_PATH_AVX512 && r->kind == HF_INT32_KEYS && t->width == 1 && (t->rows || t->offset) &&
           t->min_leaf == 1 && !t->completely_random;
}

/* Whether no cut can be better: sides of one class each score their weight. With whole weights no rounding says so
   too early, nor lifts another score above it. */
HF_INLINE int hf_is_perfect(const hf_workspace *r, double score, double weight) {
    return r->kind != HF_FLOATS && score >= weight;
}

/* Draws the next candidate of a node, without replacement: a step of a Fisher-Yates shuffle of r->column. */
HF_INLINE uint32_t hf_draw_column(const hf_task *t, hf_workspace *r, uint64_t key, int64_t n_drawn, hf_draw *draw) {
    if (n_drawn % 4 == 0) *draw = hf_philox(key, (uint64_t)(n_drawn / 4), HF_STREAM_CANDIDATES);
    const int64_t other = n_drawn + hf_below(draw->word[n_drawn % 4], (uint32_t)(t->n_columns - n_drawn));
    const uint32_t column = r->column[other];
    r->column[other] = r->column[n_drawn];
    r->column[n_drawn] = column;
    r->drawn[n_drawn] = (uint32_t)other;
    return column;
}

/* Puts the columns back, so that what the next node draws does not depend on this one. */
static void hf_undraw_columns(hf_workspace *r, int64_t n_drawn) {
    while (n_drawn-- > 0) {
        const uint32_t other = r->drawn[n_drawn], column = r->column[n_drawn];
        r->column[n_drawn] = r->column[other];
        r->column[other] = column;
    }
}

/* Share of the best rate, in float32, from which a cut is rated in full: rates are good to 1 in 2**13. */
#define HF_NEAR 0.9995f

#endif
