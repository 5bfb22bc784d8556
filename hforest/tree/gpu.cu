// Forests applied to samples. A thread is a pair of a sample and a tree; an output is summed by one thread over
// trees in their order.

#include "tree/route.h"

// x (n_samples, n_features), IN; leaf (n_samples, n_trees), OUT: node numbers within their trees.
extern "C" __global__ void apply(
    const real *__restrict__ x, const size *__restrict__ tree_start, const int *__restrict__ feature,
    const real *__restrict__ threshold, const int *__restrict__ left, const size *__restrict__ indptr,
    const int *__restrict__ indices, const real *__restrict__ data, size n_samples, size n_features, size n_trees,
    int *__restrict__ leaf
) {
    const size pair = thread_number();
    if (pair >= n_samples * n_trees) return;
    const hf_forest forest = {tree_start, feature, threshold, left, indptr, indices, data};
    leaf[pair] = hf_leaf_of(&forest, sizeof(real) == 4, pair % n_trees, x + pair / n_trees * n_features);
}

// leaf (n_samples, n_trees), IN; y (n_samples, n_outputs), OUT: means of leaf values, or vote shares.
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
            // The first of the largest.
            bool chosen = true;
            for (size j = 0; j < n_outputs; ++j) chosen &= j < k ? row[j] < row[k] : row[j] <= row[k];
            total += chosen;
        } else {
            total += (double)row[k];
        }
    }
    y[i] = (real)(total / (double)n_trees);
}

// Returns the tree of node `at`.
__device__ static inline size tree_of(const size *tree_start, size n_trees, size at) {
    size low = 0, high = n_trees;
    while (high - low > 1) {
        const size middle = (low + high) / 2;
        if (tree_start[middle] <= at) low = middle;
        else high = middle;
    }
    return low;
}

// Whether node v of a tree of n_nodes nodes can have the children `to` and `to + 1`.
__device__ static inline bool is_below(size v, size to, size n_nodes) { return v < to && to < n_nodes - 1; }

// n_parents (n_nodes,), 0 before, OUT: of how many splits each node is a child. A thread is a node.
extern "C" __global__ void count_parents(
    const size *tree_start, const int *feature, const int *left, size n_trees, size n_nodes, int *n_parents
) {
    const size at = thread_number();
    if (at >= n_nodes || feature[at] == -1) return;
    const size tree = tree_of(tree_start, n_trees, at), root = tree_start[tree], to = left[at];
    if (!is_below(at - root, to, tree_start[tree + 1] - root)) return;
    atomicAdd(&n_parents[root + to], 1);
    atomicAdd(&n_parents[root + to + 1], 1);
}

// Returns the fault of node `at`, or 0: see reference.py.
__device__ static inline int fault(
    const size *tree_start, const int *feature, const real *threshold, const int *left, const size *indptr,
    const int *indices, size n_trees, size n_entries, size has_projections, size n_features, const int *n_parents,
    size at
) {
    const size tree = tree_of(tree_start, n_trees, at), root = tree_start[tree];
    const size n_nodes = tree_start[tree + 1] - root, v = at - root;
    const size f = feature[at], to = left[at];
    const int of_parents = v == 0 || n_parents[at] == 1 ? 0 : n_parents[at] ? 7 : 8;
    if (f == -1) return to >= 0 && to < (n_nodes + 1) / 2 ? of_parents : 1;
    if (!is_below(v, to, n_nodes)) return 2;
    if (threshold[at] != threshold[at]) return 3;
    if (f == -2 && has_projections) {
        if (!(indptr[at] >= 0 && indptr[at] <= indptr[at + 1] && indptr[at + 1] <= n_entries)) return 5;
        for (size j = indptr[at]; j < indptr[at + 1]; ++j)
            if (indices[j] < 0 || indices[j] >= n_features) return 6;
        return of_parents;
    }
    return f >= 0 && f < n_features ? of_parents : 4;
}

// lowest (1,), OUT: the first node with a fault and the kind of the fault. A thread is a node.
extern "C" __global__ void first_fault(
    const size *tree_start, const int *feature, const real *threshold, const int *left, const size *indptr,
    const int *indices, size n_trees, size n_entries, size has_projections, size n_features, size n_nodes,
    const int *n_parents, unsigned long long *lowest
) {
    const size at = thread_number();
    if (at >= n_nodes) return;
    const int kind = fault(
        tree_start, feature, threshold, left, indptr, indices, n_trees, n_entries, has_projections, n_features,
        n_parents, at
    );
    // Node and kind in one number: the least has the first node.
    if (kind) atomicMin(lowest, (unsigned long long)at * 16 + kind);
}
