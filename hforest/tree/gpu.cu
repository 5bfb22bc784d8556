// Walks down forests. A thread is a pair of a sample and a tree; an output is summed by one thread over trees
// in their order.

// What a split compares: a feature, or a projection, summed in float64 in its order.
__device__ static inline real candidate(
    const real *row, int feature, const size *start, const int *index, const real *weight, size at
) {
    if (feature >= 0) return row[feature];
    double sum = 0;
    for (size j = start[at]; j < start[at + 1]; ++j) sum += (double)weight[j] * (double)row[index[j]];
    return (real)sum;
}

extern "C" __global__ void leaves(
    const real *__restrict__ x, const size *__restrict__ tree_start, const int *__restrict__ feature,
    const real *__restrict__ threshold, const int *__restrict__ left, const size *__restrict__ start,
    const int *__restrict__ index, const real *__restrict__ weight, size n_samples, size n_features, size n_trees,
    int *__restrict__ leaf
) {
    const size pair = thread_number();
    if (pair >= n_samples * n_trees) return;
    const real *row = x + pair / n_trees * n_features;
    const size root = tree_start[pair % n_trees];
    int v = 0;
    for (int f = feature[root]; f != -1; f = feature[root + v])
        v = left[root + v] + (candidate(row, f, start, index, weight, root + v) > threshold[root + v]);
    leaf[pair] = v;
}

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

// found[0] = the first node with a fault, then found[1] = its kind: see reference.py. A thread is a node.
__device__ static inline int fault(
    const size *tree_start, const int *feature, const real *threshold, const int *left, const size *start,
    const int *index, size n_trees, size n_index, size has_projections, size n_features, size at
) {
    size low = 0, high = n_trees;
    while (high - low > 1) {
        const size middle = (low + high) / 2;
        if (tree_start[middle] <= at) low = middle;
        else high = middle;
    }
    const size n_nodes = tree_start[low + 1] - tree_start[low], v = at - tree_start[low];
    const size f = feature[at], to = left[at];
    if (f == -1) return to >= 0 && to < (n_nodes + 1) / 2 ? 0 : 1;
    if (!(v < to && to < n_nodes - 1)) return 2;
    if (threshold[at] != threshold[at]) return 3;
    if (f == -2 && has_projections) {
        if (!(start[at] >= 0 && start[at] <= start[at + 1] && start[at + 1] <= n_index)) return 5;
        for (size j = start[at]; j < start[at + 1]; ++j)
            if (index[j] < 0 || index[j] >= n_features) return 6;
        return 0;
    }
    return f >= 0 && f < n_features ? 0 : 4;
}

extern "C" __global__ void first_fault(
    const size *tree_start, const int *feature, const real *threshold, const int *left, const size *start,
    const int *index, size n_trees, size n_index, size has_projections, size n_features, size n_nodes,
    unsigned long long *lowest
) {
    const size at = thread_number();
    if (at >= n_nodes) return;
    const int kind = fault(
        tree_start, feature, threshold, left, start, index, n_trees, n_index, has_projections, n_features, at
    );
    // Node and kind in one number: the least has the first node.
    if (kind) atomicMin(lowest, (unsigned long long)at * 8 + kind);
}
