/* Included by walk.h once a dtype, with `real` and HF(name) set. */

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

/* Packs a tree into its part of `node`, in the small form where vectors are to walk it and it fits. */
static void HF(hf_pack)(
    int path, const HF(hf_forest) *f, int64_t n_features, int64_t tree, HF(hf_node) *node
) {
    const int64_t root = f->tree_start[tree], n_nodes = f->tree_start[tree + 1] - root;
    const int small = HF(hf_vector)(path, n_features) && hf_is_small(n_nodes, n_features);
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
   NULL where trees were not packed. `scratch` holds n numbers. */
static void HF(hf_leaves)(
    int path, const HF(hf_forest) *f, const HF(hf_node) *node, const real *x, int64_t n_features, int64_t n, int64_t first,
    int64_t last, int32_t *scratch, int32_t *leaf, int64_t row_stride, int64_t tree_stride
) {
    int64_t done = 0;
    if (node) {
        const int vector = HF(hf_vector)(path, n_features);
        done = vector && n < HF_FEW ? 0 : n;
        for (int64_t tree = first; tree < last; ++tree) {
            const int64_t root = f->tree_start[tree], n_nodes = f->tree_start[tree + 1] - root;
            int32_t *to = leaf + (tree - first) * tree_stride, *reached = row_stride == 1 ? to : scratch;
            if (vector)
                HF(hf_walk_vector)(node + root, n_nodes, x, n_features, done, reached);
            else
                HF(hf_walk_packed)(node + root, x, n_features, n, reached);
            for (int64_t i = 0; row_stride != 1 && i < done; ++i) to[i * row_stride] = scratch[i];
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

/* Adds the leaf values (or votes) of n samples in at most HF_WALKS trees from `first` to their sums; leaf is
   (trees, n). A sample's sums stay in registers over the trees. */
static void HF(hf_add_leaves)(
    int path, const HF(hf_forest) *f, const real *value, int64_t n_outputs, int vote, int64_t first, int64_t last,
    int64_t n, const int32_t *leaf, double *sum
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
        for (int t = 0; t < n_trees; ++t) row[t] = values[t] + (int64_t)left[t][leaf[t * n + i]] * n_outputs;
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
