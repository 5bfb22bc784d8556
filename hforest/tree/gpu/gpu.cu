// Applies forests to samples, and checks their nodes. One thread sums each output over trees in their order.

#include "tree/route.h"

// The nodes of a forest, with their projections, as tree/route.h describes them.
struct Forest {
    const size *tree_start; // IN  (n_trees + 1,)
    const int *feature;     // IN  (n_nodes,)
    const real *threshold;  // IN  (n_nodes,)
    const int *left;        // IN  (n_nodes,)
    const size *indptr;     // IN  (n_nodes + 1,), or empty: no projections
    const int *indices;     // IN  (n_entries,)
    const real *data;       // IN  (n_entries,), or null if only the nodes are checked
    // IN; default_left is null if the forest handles neither missing values nor categories, the others if it has no
    // sets of categories.
    const unsigned char *default_left; // (n_nodes,)
    const size *category_indptr;       // (n_nodes + 1,)
    const unsigned *category_bits;     // (n_words,)
    const size *offset; // IN  (n_features,): positions of the features of a window, or null for rows
    size n_trees, n_nodes, n_entries, n_features, has_projections;
};

// Samples: rows or windows. Windows have at least one feature in every launch.
struct Samples {
    const real *x;    // IN  (n_samples, n_features), or the array into which base points
    const size *base; // IN  (n_samples,): positions of the windows in x, or null for rows
    size n_samples;
};

// A node as one load of 16 bytes.
struct alignas(16) Node {
    real threshold;
    int feature, left;
};

// nodes (n_nodes,), OUT. One thread per node.
extern "C" __global__ void pack(Forest f, unsigned char *__restrict__ nodes) {
    const size at = thread_number();
    if (at < f.n_nodes) ((Node *)nodes)[at] = {.threshold = f.threshold[at], .feature = f.feature[at], .left = f.left[at]};
}

// leaf (n_samples, n_trees), OUT: the node that each sample reaches, numbered within its tree. A block has ROWS
// samples, one per thread, and `group` trees. Its threads walk one tree at a time, so that they share the nodes near
// the root. Rows of at most KEPT features are copied to shared memory by columns, so that threads that read different
// columns use different banks. Columns start STRIDE numbers apart, which has no common divisor with the number of banks,
// so that threads that write the columns of a row use different banks, too.
#define ROWS 128
#define STRIDE (ROWS + 1)
#define KEPT 32
extern "C" __global__ void apply(
    Forest f, Samples s, const unsigned char *__restrict__ packed, size n_tiles, size group, int *__restrict__ leaf
) {
    __shared__ real kept[KEPT * STRIDE];
    const hf_forest forest = {
        .tree_start = f.tree_start, .feature = f.feature, .threshold = f.threshold, .left = f.left, .indptr = f.indptr,
        .indices = f.indices, .data = f.data, .default_left = f.default_left, .category_indptr = f.category_indptr,
        .category_bits = f.category_bits, .offset = f.offset
    };
    const size tile = blockIdx.x % n_tiles * ROWS, first = blockIdx.x / n_tiles * group;
    const size i = tile + threadIdx.x, n_rows = s.n_samples - tile < ROWS ? s.n_samples - tile : ROWS;
    const bool is_kept = !s.base && f.n_features <= KEPT;
    if (is_kept)
        for (size j = threadIdx.x; j < n_rows * f.n_features; j += ROWS)
            kept[j % f.n_features * STRIDE + j / f.n_features] = s.x[tile * f.n_features + j];
    __syncthreads();
    if (i >= s.n_samples) return;
    const real *row = s.x + (s.base ? s.base[i] : i * f.n_features);
    for (size tree = first; tree < first + group && tree < f.n_trees; ++tree) {
        const size root = f.tree_start[tree];
        const Node *nodes = (const Node *)packed + root;
        int v = 0;
        for (Node node = nodes[0]; node.feature != -1; node = nodes[v]) {
            const double a = is_kept && node.feature >= 0
                                 ? (double)kept[node.feature * STRIDE + threadIdx.x]
                                 : hf_compared(&forest, sizeof(real) == 4, root + v, node.feature, row);
            v = node.left + hf_goes_right(&forest, root + v, (double)node.threshold, a);
        }
        leaf[i * f.n_trees + tree] = v;
    }
}

// y (n_samples, n_outputs), OUT: the mean leaf value over trees, or, if `vote` is 1, the share of trees that vote for
// each class. leaf (n_samples, n_trees), IN. One thread per output.
extern "C" __global__ void leaf_means(
    const int *__restrict__ leaf, const size *__restrict__ tree_start, const int *__restrict__ left,
    const real *__restrict__ value, size n_samples, size n_trees, size n_outputs, size vote, real *__restrict__ y
) {
    const size i = thread_number();
    if (i >= n_samples * n_outputs) return;
    const int *at = leaf + i / n_outputs * n_trees;
    const size k = i % n_outputs;
    double total = 0;
    for (size tree = 0; tree < n_trees; ++tree) {
        const size root = tree_start[tree];
        // A tree of N nodes has (N + 1) / 2 leaves.
        const real *row = value + ((root + tree) / 2 + left[root + at[tree]]) * n_outputs;
        if (vote) {
            // A leaf votes for the first of its largest values.
            bool chosen = true;
            for (size j = 0; j < n_outputs; ++j) chosen &= j < k ? row[j] < row[k] : row[j] <= row[k];
            total += chosen;
        } else {
            total += (double)row[k];
        }
    }
    y[i] = (real)(total / (double)n_trees);
}

// Returns whether node v of a tree with n_nodes nodes can have the children `to` and `to + 1`.
__device__ static inline bool is_below(size v, size to, size n_nodes) { return v < to && to < n_nodes - 1; }

// n_parents (n_nodes,), 0 before, OUT: the number of splits of which each node is a child. One thread per node.
extern "C" __global__ void count_parents(Forest f, int *n_parents) {
    const size at = thread_number();
    if (at >= f.n_nodes || f.feature[at] == -1) return;
    const size tree = part_with(f.tree_start, f.n_trees, at), root = f.tree_start[tree], to = f.left[at];
    if (!is_below(at - root, to, f.tree_start[tree + 1] - root)) return;
    atomicAdd(&n_parents[root + to], 1);
    atomicAdd(&n_parents[root + to + 1], 1);
}

// Returns the number of the first fault of node `at`, or 0; reference.py lists the faults.
__device__ static inline int fault(const Forest &f, const int *n_parents, size at) {
    const size tree = part_with(f.tree_start, f.n_trees, at), root = f.tree_start[tree];
    const size n_nodes = f.tree_start[tree + 1] - root, v = at - root;
    const size feature = f.feature[at], to = f.left[at];
    const int of_parents = v == 0 || n_parents[at] == 1 ? 0 : n_parents[at] ? 7 : 8;
    if (feature == -1) return to >= 0 && to < (n_nodes + 1) / 2 ? of_parents : 1;
    if (!is_below(v, to, n_nodes)) return 2;
    if (f.threshold[at] != f.threshold[at]) return 3;
    if (feature == -2 && f.has_projections) {
        const size first = f.indptr[at], last = f.indptr[at + 1];
        if (!(first >= 0 && first <= last && last <= f.n_entries)) return 5;
        for (size j = first; j < last; ++j)
            if (f.indices[j] < 0 || f.indices[j] >= f.n_features) return 6;
        return of_parents;
    }
    return feature >= 0 && feature < f.n_features ? of_parents : 4;
}

// lowest (1,), OUT: the first node with a fault, and the number of the fault. n_parents (n_nodes,), IN. One thread per
// node.
extern "C" __global__ void first_fault(Forest f, const int *n_parents, unsigned long long *lowest) {
    const size at = thread_number();
    if (at >= f.n_nodes) return;
    const int kind = fault(f, n_parents, at);
    // Node and fault are one number, whose minimum belongs to the first node.
    if (kind) atomicMin(lowest, (unsigned long long)at * 16 + kind);
}
