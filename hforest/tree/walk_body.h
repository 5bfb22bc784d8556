/* Included by walk.h once a dtype, with `real`, the integer `word` of its size and HF(name) set. */

/* The nodes of one forest. `indptr`, `indices` and `data` are its projections, NULL without any. */
typedef struct {
    const int64_t *tree_start;
    const int32_t *feature;
    const real *threshold;
    const int32_t *left;
    const int64_t *indptr;
    const int32_t *indices;
    const real *data;
} HF(hf_forest);

/* Returns how features are read. Columns are made once and read in every tree; without fast gathers they are faster
   if trees are many or deep compared with the number of features. */
static int HF(hf_way)(int path, int gathers, int64_t n_features, int64_t n_trees, int64_t n_nodes) {
    const int vector = HF(hf_vector)(path, n_features);
    int levels = 0;
    while (n_nodes >> levels > n_trees) ++levels;
    if (!(vector && gathers) && n_features <= n_trees * levels * HF_READS && n_features <= HF_WIDEST)
        return HF_BY_COLUMNS;
    return vector ? HF_BY_GATHERS : HF_BY_ROWS;
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

/* Packs a tree for columns into its part of `node`; depth has space for its nodes. */
static void HF(hf_pack_keys)(
    const HF(hf_forest) *f, int64_t n_features, int64_t tree, HF(hf_node) *node, HF(hf_top) *top, int32_t *depth
) {
    const int64_t root = f->tree_start[tree], n_nodes = f->tree_start[tree + 1] - root;
    const int small = HF(hf_is_small_by_columns)(n_nodes, n_features);
    hf_small_key_node *const less = (hf_small_key_node *)(node + root);
    HF(hf_key_node) *const more = (HF(hf_key_node) *)(node + root);
    uint32_t place[2 * HF_TOP + 1] = {0};
    int32_t deepest = 0;
    memset(depth, 0, (size_t)n_nodes * sizeof(*depth));
    for (int64_t v = 0; v < n_nodes; ++v) {
        /* All ones in a leaf: half the nodes are, so that a branch would often be guessed wrong. */
        const int32_t leaf = f->feature[root + v] >> 31, below = (f->left[root + v] & ~leaf) | ((int32_t)v & leaf);
        const real threshold = f->threshold[root + v];
        const HF(hf_key_node) at = {
            /* No number exceeds NaN either. */
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
        /* The longest path, should a node of an unchecked forest have two parents (`check` refuses them). The depth of
           a leaf is not read again. */
        const int32_t here = depth[below] > depth[v] ? depth[below] : depth[v] + 1;
        const int32_t beside = depth[below + 1 + leaf] > depth[v] ? depth[below + 1 + leaf] : depth[v] + 1;
        depth[below] = here;
        depth[below + 1 + leaf] = beside;
    }
    top->depth = deepest;
    for (int i = 0; i < HF_TOP; ++i) {
        const uint32_t v = place[i];
        const uint32_t next = small ? less[v].next : more[v].next;
        top->key[i] = small ? less[v].key : more[v].key;
        top->column[i] = small ? less[v].column : more[v].column;
        place[2 * i + 1] = next;
        place[2 * i + 2] = next + (next != v);
    }
    memcpy(top->exit, place + HF_TOP, sizeof(top->exit));
}

/* Writes the columns of n samples: the features of HF_DOWN of them next to each other, in whole groups, of which the
   last is filled up with the last sample. NaN exceeds nothing, and so goes left. */
static void HF(hf_make_columns)(const real *x, int64_t n_features, int64_t n, HF(hf_columns) *columns) {
    enum { SOME = 256 };
    for (int s = 0; s < HF_LISTED && s < n + HF_DOWN; ++s)
        columns->place[s] = (uint32_t)(s / HF_DOWN * HF_DOWN * n_features + s % HF_DOWN);
    for (int64_t i = 0; i < n + (-n & (HF_DOWN - 1)); ++i) {
        const real *row = x + (i < n ? i : n - 1) * n_features;
        word *to = columns->x + i / HF_DOWN * HF_DOWN * n_features + i % HF_DOWN;
        for (int64_t j = 0; j < n_features; j += SOME) {
            /* Keys in a loop of their own, which compilers vectorise. */
            word key[SOME];
            const int n_keys = n_features - j < SOME ? (int)(n_features - j) : SOME;
            for (int k = 0; k < n_keys; ++k) key[k] = HF(hf_key)(row[j + k]) & (word)-(row[j + k] == row[j + k]);
            for (int k = 0; k < n_keys; ++k) to[(j + k) * HF_DOWN] = key[k];
        }
    }
}

#if HF_VECTORS
#define WORD word
#define TOP_LEVELS HF(hf_top)

#define BYTES 16
#define CODE
#define NAME HF(hf_enter_vector)
#define KEEP(m, x, t, left) ((m) & ~((KEYS)((x) > (t)) & (left)))
#include "tree/columns_body.h"

#if HF_X86
#define BYTES 32
#define CODE HF_AVX2_CODE
#define NAME HF(hf_enter_avx2)
#define KEEP(m, x, t, left) ((m) & ~((KEYS)((x) > (t)) & (left)))
#include "tree/columns_body.h"

#define BYTES 64
#define CODE HF_AVX512_CODE
#define NAME HF(hf_enter_avx512)
#define KEEP KEEP_AVX512
#include "tree/columns_body.h"
#endif

#undef WORD
#undef TOP_LEVELS
#endif

/* Writes the nodes that samples of n_groups groups reach by whole vectors. Returns the number of levels above them. */
static int HF(hf_enter)(
    int path, const HF(hf_top) *top, const word *columns, int64_t group_words, int n_groups, uint32_t *at
) {
#if HF_X86
    if (path == HF_PATH_AVX512) {
        HF(hf_enter_avx512)(top, columns, group_words, n_groups, at);
        return HF_LEVELS;
    }
    if (path == HF_PATH_AVX2) {
        HF(hf_enter_avx2)(top, columns, group_words, n_groups, at);
        return HF_LEVELS;
    }
#endif
#if HF_VECTORS
    /* SSE2 has no comparison of 64 bits. */
    if (path == HF_PATH_VECTOR && (sizeof(real) == 4 || !HF_X86)) {
        HF(hf_enter_vector)(top, columns, group_words, n_groups, at);
        return HF_LEVELS;
    }
#endif
    memset(at, 0, (size_t)n_groups * HF_DOWN * sizeof(*at));
    return 0;
}

HF_INLINE int HF(hf_inside)(int small, const void *node, uint32_t v) {
    return (small ? ((const hf_small_key_node *)node)[v].next : ((const HF(hf_key_node) *)node)[v].next) != v;
}

/* Advances the walks of HF_DOWN samples, interleaved, as each waits for its loads. They are of one group, from lane 0
   on, or each has its lane in row. */
HF_INLINE void HF(hf_descend)(
    int small, const void *node, int levels, const word *group, const word *const *row, uint32_t *at
) {
    uint32_t v[HF_DOWN];
    _Pragma("GCC unroll 16") for (int u = 0; u < HF_DOWN; ++u) v[u] = at[u];
    for (int level = 0; level < levels; ++level)
        _Pragma("GCC unroll 16") for (int u = 0; u < HF_DOWN; ++u) {
            const char *x = (const char *)(row ? row[u] : group + u);
            if (small) {
                const hf_small_key_node *from = (const hf_small_key_node *)node + v[u];
                v[u] = from->next + (*(const word *)(x + (size_t)from->column * 8) > from->key);
            } else {
                const HF(hf_key_node) *from = (const HF(hf_key_node) *)node + v[u];
                v[u] = from->next + (*(const word *)(x + (size_t)from->column * 8) > from->key);
            }
        }
    _Pragma("GCC unroll 16") for (int u = 0; u < HF_DOWN; ++u) at[u] = v[u];
}

/* Separate functions, so that other values do not take the registers that the nodes need. */
HF_APART static void HF(hf_descend_small)(const void *node, int levels, const word *group, uint32_t *at) {
    HF(hf_descend)(1, node, levels, group, NULL, at);
}
HF_APART static void HF(hf_descend_large)(const void *node, int levels, const word *group, uint32_t *at) {
    HF(hf_descend)(0, node, levels, group, NULL, at);
}
HF_APART static void HF(hf_descend_rows_small)(const void *node, const word *const *row, uint32_t *at) {
    HF(hf_descend)(1, node, HF_LEVELS, NULL, row, at);
}
HF_APART static void HF(hf_descend_rows_large)(const void *node, const word *const *row, uint32_t *at) {
    HF(hf_descend)(0, node, HF_LEVELS, NULL, row, at);
}

/* Finishes the walks of n samples of columns from the nodes in `at`. Unfinished ones are listed, a node below the
   number of its sample, and advanced together. */
static void HF(hf_finish)(
    int small, const void *node, const word *x, const uint32_t *place, int n, uint32_t *at
) {
    uint64_t list[HF_LISTED + HF_DOWN];
    int listed = 0;
    for (int s = 0; s < n; ++s) {
        list[listed] = (uint64_t)s << 32 | at[s];
        listed += HF(hf_inside)(small, node, at[s]);
    }
    while (listed > 0) {
        int still = 0;
        /* Lanes after the last sample repeat it. */
        for (int u = 0; u < HF_DOWN; ++u) list[listed + u] = list[listed - 1];
        for (int i = 0; i < listed; i += HF_DOWN) {
            const word *row[HF_DOWN];
            uint32_t v[HF_DOWN];
            for (int u = 0; u < HF_DOWN; ++u) {
                row[u] = x + place[list[i + u] >> 32];
                v[u] = (uint32_t)list[i + u];
            }
            if (small) HF(hf_descend_rows_small)(node, row, v);
            else HF(hf_descend_rows_large)(node, row, v);
            for (int u = 0; u < HF_DOWN; ++u) {
                const uint64_t s = list[i + u] >> 32;
                at[s] = v[u];
                list[still] = s << 32 | v[u];
                still += HF(hf_inside)(small, node, v[u]) & (i + u < listed);
            }
        }
        listed = still;
    }
}

/* Leaves that the samples of whole groups reach. */
static void HF(hf_walk_columns)(
    int path, const HF(hf_top) *top, const HF(hf_node) *node, int64_t n_nodes, const HF(hf_columns) *columns,
    int64_t n_features, int64_t n, int32_t *leaf
) {
    const int small = HF(hf_is_small_by_columns)(n_nodes, n_features);
    const int64_t group_words = n_features * HF_DOWN;
    /* Few walks end more than three levels below the depth of a balanced tree of as many nodes. */
    int often = 2;
    while (n_nodes >> (often - 2)) ++often;
    for (int64_t done = 0; done < n; done += HF_LISTED) {
        const int n_groups = (int)((n - done < HF_LISTED ? n - done : HF_LISTED) + HF_DOWN - 1) / HF_DOWN;
        const word *part = columns->x + done / HF_DOWN * group_words;
        uint32_t *at = (uint32_t *)leaf + done;
        const int above = HF(hf_enter)(path, top, part, group_words, n_groups, at);
        const int first = (top->depth < often + 2 ? top->depth : often) - above;
        for (int g = 0; g < n_groups; ++g) {
            if (small) HF(hf_descend_small)(node, first, part + g * group_words, at + g * HF_DOWN);
            else HF(hf_descend_large)(node, first, part + g * group_words, at + g * HF_DOWN);
        }
        if (above + first < top->depth) HF(hf_finish)(small, node, part, columns->place, n_groups * HF_DOWN, at);
    }
}

/* Leaves that n samples reach in one packed tree. NaN goes left, and so stays in the tree. */
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
        /* Spare walks repeat the last tree. */
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
    for (int64_t j = f->indptr[v]; j < f->indptr[v + 1]; ++j) sum += (double)f->data[j] * (double)row[f->indices[j]];
    return (real)sum;
}

static int32_t HF(hf_walk_oblique)(const HF(hf_forest) *f, int64_t tree, const real *row) {
    const int64_t root = f->tree_start[tree];
    int32_t v = 0;
    while (f->feature[root + v] != -1) v = f->left[root + v] + (HF(hf_candidate)(f, root + v, row) > f->threshold[root + v]);
    return v;
}

/* Leaves of n samples in trees [first, last): leaf[i * row_stride + (tree - first) * tree_stride]. `node` is
   NULL if trees were not packed, `columns` if features are not read in columns. `scratch`, or if that is NULL a
   tree's part of `leaf`, holds n numbers rounded up to whole groups of HF_DOWN. */
static void HF(hf_leaves)(
    int path, int way, const HF(hf_forest) *f, const HF(hf_node) *node, const HF(hf_top) *top, const real *x,
    const HF(hf_columns) *columns, int64_t n_features, int64_t n, int64_t first, int64_t last, int32_t *scratch, int32_t *leaf,
    int64_t row_stride, int64_t tree_stride
) {
    int64_t done = 0;
    if (node && (way == HF_BY_ROWS || n >= HF_FEW)) {
        done = n;
        for (int64_t tree = first; tree < last; ++tree) {
            const int64_t root = f->tree_start[tree], n_nodes = f->tree_start[tree + 1] - root;
            int32_t *to = leaf + (tree - first) * tree_stride, *reached = scratch ? scratch : to;
            if (way == HF_BY_COLUMNS)
                HF(hf_walk_columns)(path, top + tree, node + root, n_nodes, columns, n_features, n, reached);
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
        if (f->indptr) {
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

/* Writes for each leaf of a tree its only class, or the one it votes for. Returns whether every leaf has one, as in
   trees grown to purity: then classes are counted instead of adding rows of shares, with the same sums. */
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
