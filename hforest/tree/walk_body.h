/* Included by walk.h once a dtype, with `real`, the integer `word` of its size and HF(name) set. */

/* The nodes of one forest. `start`, `index` and `weight` are its projections, NULL without any. */
typedef struct {
    const int64_t *tree_start;
    const int32_t *feature;
    const real *threshold;
    const int32_t *left;
    const int64_t *start;
    const int32_t *index;
    const real *weight;
} HF(hf_forest);

/* How samples are to meet the trees. Columns are made once and read in every tree. */
static int HF(hf_way)(int path, int gathers, int64_t n_features, int64_t n_trees) {
    if (gathers && HF(hf_vector)(path, n_features)) return HF_BY_GATHERS;
    return n_features <= n_trees * HF_READS ? HF_BY_COLUMNS : HF_BY_ROWS;
}

/* Packs a tree into its part of `node`. */
static void HF(hf_pack)(int way, const HF(hf_forest) *f, int64_t n_features, int64_t tree, HF(hf_node) *node) {
    const int64_t root = f->tree_start[tree], n_nodes = f->tree_start[tree + 1] - root;
    const int small = way == HF_BY_GATHERS && hf_is_small(n_nodes, n_features);
    hf_small_node *const less = (hf_small_node *)(node + root);
    for (int64_t v = 0; v < n_nodes; ++v) {
        const int leaf = f->feature[root + v] < 0;
        const HF(hf_node) at = {
            leaf ? (real)INFINITY : f->threshold[root + v], leaf ? 0 : f->feature[root + v],
            leaf ? (int32_t)v : f->left[root + v]
        };
        if (small) {
            const hf_small_node packed = {(float)at.threshold, (uint32_t)at.next << 16 | (uint32_t)at.feature};
            less[v] = packed;
        } else {
            node[root + v] = at;
        }
    }
}

/* Whether a tree packed for columns has nodes of 8 bytes: a column is that many units from the first one. */
static int HF(hf_is_small_by_columns)(int64_t n_nodes, int64_t n_features) {
    return sizeof(real) == 4 && hf_is_small(n_nodes, n_features * (HF_DOWN * (int64_t)sizeof(real) / 8));
}

/* An integer in the order of the numbers, with one zero; no NaN. */
HF_INLINE word HF(hf_key)(real number) {
    const real sum = number + 0;
    word bits;
    memcpy(&bits, &sum, sizeof(bits));
    return bits ^ ((word)-(bits >> (8 * sizeof(word) - 1)) | (word)1 << (8 * sizeof(word) - 1));
}

/* Packs a tree for columns into its part of `node`; depth has room for its nodes. */
static void HF(hf_pack_keys)(
    const HF(hf_forest) *f, int64_t n_features, int64_t tree, HF(hf_node) *node, HF(hf_crown) *crown, int32_t *depth
) {
    const int64_t root = f->tree_start[tree], n_nodes = f->tree_start[tree + 1] - root;
    const int small = HF(hf_is_small_by_columns)(n_nodes, n_features);
    hf_small_key_node *const less = (hf_small_key_node *)(node + root);
    HF(hf_key_node) *const more = (HF(hf_key_node) *)(node + root);
    uint32_t place[2 * HF_TOP + 1] = {0};
    int32_t deepest = 0;
    depth[0] = 0;
    for (int64_t v = 0; v < n_nodes; ++v) {
        /* All ones in a leaf: half the nodes are, so that a branch would often be guessed wrong. */
        const int32_t leaf = f->feature[root + v] >> 31, below = (f->left[root + v] & ~leaf) | ((int32_t)v & leaf);
        const real threshold = f->threshold[root + v];
        const HF(hf_key_node) at = {
            /* Nothing is above NaN either. */
            HF(hf_key)(threshold) | (word)(int64_t)leaf | (word)-(threshold != threshold),
            (uint32_t)(f->feature[root + v] & ~leaf) * (HF_DOWN * sizeof(real) / 8), (uint32_t)below
        };
        if (small) {
            const hf_small_key_node packed = {(uint32_t)at.key, (uint16_t)at.column, (uint16_t)at.next};
            less[v] = packed;
        } else {
            more[v] = at;
        }
        deepest = depth[v] > deepest ? depth[v] : deepest;
        depth[below] = depth[below + 1 + leaf] = depth[v] + 1;
    }
    crown->depth = deepest;
    for (int i = 0; i < HF_TOP; ++i) {
        const uint32_t v = place[i];
        const uint32_t next = small ? less[v].next : more[v].next;
        crown->key[i] = small ? less[v].key : more[v].key;
        crown->column[i] = small ? less[v].column : more[v].column;
        place[2 * i + 1] = next;
        place[2 * i + 2] = next + (next != v);
    }
    memcpy(crown->exit, place + HF_TOP, sizeof(crown->exit));
}

/* Columns of n samples: the features of HF_DOWN of them side by side, in whole groups; the last sample fills up. NaN
   is above nothing, and so goes left. */
static void HF(hf_make_columns)(const real *x, int64_t n_features, int64_t n, word *columns) {
    enum { SOME = 256 };
    for (int64_t i = 0; i < n + (-n & (HF_DOWN - 1)); ++i) {
        const real *row = x + (i < n ? i : n - 1) * n_features;
        word *to = columns + i / HF_DOWN * HF_DOWN * n_features + i % HF_DOWN;
        for (int64_t j = 0; j < n_features; j += SOME) {
            /* Keys by themselves, as compilers make vectors of them. */
            word key[SOME];
            const int n_keys = n_features - j < SOME ? (int)(n_features - j) : SOME;
            for (int k = 0; k < n_keys; ++k) key[k] = HF(hf_key)(row[j + k]) & (word)-(row[j + k] == row[j + k]);
            for (int k = 0; k < n_keys; ++k) to[(j + k) * HF_DOWN] = key[k];
        }
    }
}

HF_INLINE uint32_t HF(hf_step)(int small, const void *node, uint32_t v, const word *x) {
    if (small) {
        const hf_small_key_node *at = (const hf_small_key_node *)node + v;
        return at->next + (*(const word *)((const char *)x + (size_t)at->column * 8) > at->key);
    }
    const HF(hf_key_node) *at = (const HF(hf_key_node) *)node + v;
    return at->next + (*(const word *)((const char *)x + (size_t)at->column * 8) > at->key);
}

HF_INLINE int HF(hf_inside)(int small, const void *node, uint32_t v) {
    return (small ? ((const hf_small_key_node *)node)[v].next : ((const HF(hf_key_node) *)node)[v].next) != v;
}

#define WORD word
#define CROWN HF(hf_crown)
#define STEP HF(hf_step)
#define INSIDE HF(hf_inside)

#define BYTES 0
#define CODE
#define NAME(x) HF(hf_columns_plain_##x)
#include "columns_body.h"

#if HF_VECTORS
#define BYTES 16
#define CODE
#define NAME(x) HF(hf_columns_vector_##x)
#define KEEP(m, x, t, left) ((m) & ~((KEYS)((x) > (t)) & (left)))
#include "columns_body.h"
#endif

#if HF_X86
#define BYTES 32
#define CODE HF_AVX2_CODE
#define NAME(x) HF(hf_columns_avx2_##x)
#define KEEP(m, x, t, left) ((m) & ~((KEYS)((x) > (t)) & (left)))
#include "columns_body.h"

#define BYTES 64
#define CODE HF_AVX512_CODE
#define NAME(x) HF(hf_columns_avx512_##x)
#define KEEP KEEP_AVX512
#include "columns_body.h"
#endif

#undef WORD
#undef CROWN
#undef STEP
#undef INSIDE

static void HF(hf_walk_columns)(
    int path, const HF(hf_crown) *crown, const HF(hf_node) *node, int64_t n_nodes, const word *columns,
    int64_t n_features, int64_t n, int32_t *leaf
) {
    const int small = HF(hf_is_small_by_columns)(n_nodes, n_features);
    const int64_t n_groups = (n + HF_DOWN - 1) / HF_DOWN;
    /* Below the first levels most leaves of a tree lie this deep, or less. */
    int often = 1;
    while (n_nodes >> (often + HF_LEVELS - 2)) ++often;
#if HF_X86
    if (path == HF_PATH_AVX512)
        HF(hf_columns_avx512_walk)(small, crown, node, often, columns, n_features, n_groups, leaf);
    else if (path == HF_PATH_AVX2)
        HF(hf_columns_avx2_walk)(small, crown, node, often, columns, n_features, n_groups, leaf);
    else
#endif
#if HF_VECTORS
    if (path != HF_PATH_PLAIN)
        HF(hf_columns_vector_walk)(small, crown, node, often, columns, n_features, n_groups, leaf);
    else
#endif
        HF(hf_columns_plain_walk)(small, crown, node, often + HF_LEVELS, columns, n_features, n_groups, leaf);
}

/* Leaves that n samples reach in one packed tree. NaN goes left, and so never out of the tree. */
static void HF(hf_walk_packed)(const HF(hf_node) *node, const real *x, int64_t n_features, int64_t n, int32_t *leaf) {
    int64_t i = 0;
    for (; i + HF_DOWN <= n; i += HF_DOWN) {
        const real *row = x + i * n_features;
        int32_t v[HF_DOWN] = {0}, moved;
        do {
            moved = 0;
#pragma GCC unroll 16
            for (int g = 0; g < HF_DOWN; ++g) {
                const HF(hf_node) at = node[v[g]];
                const int32_t to = at.next + (row[g * n_features + at.feature] > at.threshold);
                moved |= to ^ v[g];
                v[g] = to;
            }
        } while (moved);
#pragma GCC unroll 16
        for (int g = 0; g < HF_DOWN; ++g) leaf[i + g] = v[g];
    }
    for (; i < n; ++i) {
        const real *row = x + i * n_features;
        int32_t v = 0, from;
        do {
            from = v;
            v = node[v].next + (row[node[v].feature] > node[v].threshold);
        } while (v != from);
        leaf[i] = v;
    }
}

/* Leaves that one sample reaches in n <= HF_WALKS trees from `first`. */
static void HF(hf_walk_trees)(const HF(hf_forest) *f, int64_t first, int n, const real *row, int32_t *leaf) {
    int32_t v[HF_WALKS] = {0}, moved;
    const int32_t *feature[HF_WALKS], *left[HF_WALKS];
    const real *threshold[HF_WALKS];
    for (int g = 0; g < HF_WALKS; ++g) {
        /* Walks to spare repeat the last tree. */
        const int64_t root = f->tree_start[first + (g < n ? g : n - 1)];
        feature[g] = f->feature + root;
        left[g] = f->left + root;
        threshold[g] = f->threshold + root;
    }
    do {
        moved = 0;
#pragma GCC unroll 8
        for (int g = 0; g < HF_WALKS; ++g) {
            const int32_t at = feature[g][v[g]], inside = ~(at >> 31);
            const int32_t to = left[g][v[g]] + (row[at & inside] > threshold[g][v[g]]);
            moved |= inside;
            v[g] = (to & inside) | (v[g] & ~inside);
        }
    } while (moved);
    for (int g = 0; g < n; ++g) leaf[g] = v[g];
}

/* What node v compares with its threshold: a feature, or a projection, summed in float64 in its order. */
HF_INLINE real HF(hf_candidate)(const HF(hf_forest) *f, int64_t v, const real *row) {
    if (f->feature[v] >= 0) return row[f->feature[v]];
    double sum = 0;
    for (int64_t j = f->start[v]; j < f->start[v + 1]; ++j) sum += (double)f->weight[j] * (double)row[f->index[j]];
    return (real)sum;
}

static int32_t HF(hf_walk_oblique)(const HF(hf_forest) *f, int64_t tree, const real *row) {
    const int64_t root = f->tree_start[tree];
    int32_t v = 0;
    while (f->feature[root + v] != -1) v = f->left[root + v] + (HF(hf_candidate)(f, root + v, row) > f->threshold[root + v]);
    return v;
}

/* Leaves of n samples in trees [first, last): leaf[i * row_stride + (tree - first) * tree_stride]. `node` is
   NULL where trees were not packed, `columns` where samples meet them otherwise. `scratch`, or where that is NULL
   a tree's part of `leaf`, holds n numbers rounded up to whole groups of HF_DOWN. */
static void HF(hf_leaves)(
    int path, int way, const HF(hf_forest) *f, const HF(hf_node) *node, const HF(hf_crown) *crown, const real *x,
    const word *columns, int64_t n_features, int64_t n, int64_t first, int64_t last, int32_t *scratch, int32_t *leaf,
    int64_t row_stride, int64_t tree_stride
) {
    int64_t done = 0;
    if (node && (way == HF_BY_ROWS || n >= HF_FEW)) {
        done = n;
        for (int64_t tree = first; tree < last; ++tree) {
            const int64_t root = f->tree_start[tree], n_nodes = f->tree_start[tree + 1] - root;
            int32_t *to = leaf + (tree - first) * tree_stride, *reached = scratch ? scratch : to;
            if (way == HF_BY_COLUMNS)
                HF(hf_walk_columns)(path, crown + tree, node + root, n_nodes, columns, n_features, n, reached);
            else if (way == HF_BY_GATHERS)
                HF(hf_walk_vector)(node + root, n_nodes, x, n_features, n, reached);
            else
                HF(hf_walk_packed)(node + root, x, n_features, n, reached);
            for (int64_t i = 0; scratch && i < n; ++i) to[i * row_stride] = scratch[i];
        }
    }
    for (int64_t i = done; i < n; ++i) {
        const real *row = x + i * n_features;
        int32_t *to = leaf + i * row_stride;
        if (f->start) {
            for (int64_t tree = first; tree < last; ++tree)
                to[(tree - first) * tree_stride] = HF(hf_walk_oblique)(f, tree, row);
            continue;
        }
        for (int64_t tree = first; tree < last; tree += HF_WALKS) {
            int32_t found[HF_WALKS];
            const int count = last - tree < HF_WALKS ? (int)(last - tree) : HF_WALKS;
            HF(hf_walk_trees)(f, tree, count, row, found);
            for (int g = 0; g < count; ++g) to[(tree + g - first) * tree_stride] = found[g];
        }
    }
}

/* Writes for each leaf of a tree the class that alone it holds, or votes for; whether every leaf has one. Trees grown
   to purity do: then a sample counts classes instead of adding rows of shares, with the same sums. */
static int HF(hf_class_leaves)(
    int path, const HF(hf_forest) *f, const real *value, int64_t n_outputs, int vote, int64_t tree, int32_t *class_of
) {
    const int64_t root = f->tree_start[tree], last = f->tree_start[tree + 1];
    value += (root + tree) / 2 * n_outputs;
    for (int64_t v = root; v < last; ++v) {
        if (f->feature[v] >= 0) continue;
        const real *row = value + (int64_t)f->left[v] * n_outputs;
        int64_t best = 0;
        if (vote) {
            for (int64_t k = 1; k < n_outputs; ++k)
                if (row[k] > row[best]) best = k;
        } else {
            best = HF(hf_one_class)(path, row, n_outputs);
            if (best < 0) return 0;
        }
        class_of[v] = (int32_t)best;
    }
    return 1;
}

/* Adds the leaf values (or votes) of n samples in at most HF_WALKS trees from `first` to their sums; leaf[tree *
   tree_stride + i]. A sample's sums stay in registers over the trees. */
static void HF(hf_add_leaves)(
    int path, const HF(hf_forest) *f, const real *value, int64_t n_outputs, int vote, int64_t first, int64_t last,
    int64_t n, const int32_t *leaf, int64_t tree_stride, double *sum
) {
    const int n_trees = (int)(last - first);
    const int32_t *left[HF_WALKS];
    const real *values[HF_WALKS];
    for (int t = 0; t < n_trees; ++t) {
        const int64_t root = f->tree_start[first + t];
        left[t] = f->left + root;
        /* A tree of N nodes has (N + 1) / 2 leaves. */
        values[t] = value + (root + first + t) / 2 * n_outputs;
    }
    for (int64_t i = 0; i < n; ++i) {
        const real *row[HF_WALKS];
        double *to = sum + i * n_outputs;
        for (int t = 0; t < n_trees; ++t) row[t] = values[t] + (int64_t)left[t][leaf[t * tree_stride + i]] * n_outputs;
        if (!vote && HF(hf_add_rows)(path, row, n_trees, n_outputs, to)) continue;
        for (int t = 0; t < n_trees; ++t) {
            int64_t best = 0;
            for (int64_t k = 1; vote && k < n_outputs; ++k)
                if (row[t][k] > row[t][best]) best = k;
            if (vote) to[best] += 1;
            for (int64_t k = 0; !vote && k < n_outputs; ++k) to[k] += (double)row[t][k];
        }
    }
}
