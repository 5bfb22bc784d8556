// Random hinge trees and ferns (p1 = Lay et al., Random Hinge Forest). A pair is one sample in one tree,
// numbered sample * n_trees + tree. An output element is computed by one block: no sum is shared between
// blocks and no order depends on the size of a block.

// ------------------------------------------------------------------------------------------- routing

// p1 Alg. 3; one decision a level at vertex `level` (fern) or down a heap (tree). A thread is a pair:
// neighbours are trees of one sample, so they read one row of x and write neighbouring elements.
__device__ static inline void route(
    const real *__restrict__ x, const real *__restrict__ thresholds, const int *__restrict__ features,
    size n_samples, size n_features, size n_trees, size n_vertices, size depth, bool fern,
    int *__restrict__ leaf, real *__restrict__ margin, int *__restrict__ vertex
) {
    const size pair = thread_number();
    if (pair >= n_samples * n_trees) return;
    const size tree = pair % n_trees;
    const real *row = x + pair / n_trees * n_features;
    const real *t = thresholds + tree * n_vertices;
    const int *f = features + tree * n_vertices;
    real lowest = row[f[0]] - t[0];
    int lowest_vertex = 0, v = 0, bits = 0;
    for (int level = 0; level < depth; ++level) {
        if (fern) v = level;
        const real r = row[f[v]] - t[v];
        // Strictly closer: on equal margins the vertex nearest the root stays.
        if (magnitude(r) < magnitude(lowest)) {
            lowest = r;
            lowest_vertex = v;
        }
        const int right = r > 0;
        bits = 2 * bits + right;
        v = 2 * v + right + 1;
    }
    leaf[pair] = bits;
    margin[pair] = lowest;
    vertex[pair] = lowest_vertex;
}

extern "C" __global__ void tree_traverse(
    const real *__restrict__ x, const real *__restrict__ thresholds, const int *__restrict__ features,
    size n_samples, size n_features, size n_trees, size n_vertices, size depth,
    int *__restrict__ leaf, real *__restrict__ margin, int *__restrict__ vertex
) {
    route(x, thresholds, features, n_samples, n_features, n_trees, n_vertices, depth, false, leaf, margin, vertex);
}

extern "C" __global__ void fern_traverse(
    const real *__restrict__ x, const real *__restrict__ thresholds, const int *__restrict__ features,
    size n_samples, size n_features, size n_trees, size n_vertices, size depth,
    int *__restrict__ leaf, real *__restrict__ margin, int *__restrict__ vertex
) {
    route(x, thresholds, features, n_samples, n_features, n_trees, n_vertices, depth, true, leaf, margin, vertex);
}

// ------------------------------------------------------------------------------------------- outputs

// p1 eq 10, trees apart. A thread is an element of y.
extern "C" __global__ void leaf_outputs_each(
    const int *__restrict__ leaf, const real *__restrict__ margin, const real *__restrict__ weights,
    size n_samples, size n_trees, size n_leaves, size n_outputs, real *__restrict__ y
) {
    const size i = thread_number();
    if (i >= n_samples * n_trees * n_outputs) return;
    const size pair = i / n_outputs;
    const size row = pair % n_trees * n_leaves + leaf[pair];
    y[i] = weights[row * n_outputs + i % n_outputs] * magnitude(margin[pair]);
}

constexpr int COLUMNS = 32;  // elements of y that a block owns; gpu.py knows this number
constexpr int TREES = 32;    // trees whose outputs a block holds at a time

// p1 eq 10, summed over trees in their order. All threads of a block fetch outputs of a tile of trees,
// then the first 32 add them up: the fetches overlap although the sum is in sequence. The block must be
// a multiple of COLUMNS.
extern "C" __global__ void leaf_outputs_sum(
    const int *__restrict__ leaf, const real *__restrict__ margin, const real *__restrict__ weights,
    size n_samples, size n_trees, size n_leaves, size n_outputs, double divisor, real *__restrict__ y
) {
    __shared__ real output[TREES][COLUMNS];
    const int column = threadIdx.x % COLUMNS;
    const size i = (size)blockIdx.x * COLUMNS + column;
    const bool owned = i < n_samples * n_outputs;
    const size first_pair = i / n_outputs * n_trees, k = i % n_outputs;
    double total = 0;
    for (size first = 0; first < n_trees; first += TREES) {
        const int n = (int)(n_trees - first < TREES ? n_trees - first : TREES);
        for (int j = threadIdx.x / COLUMNS; owned && j < n; j += blockDim.x / COLUMNS) {
            const size pair = first_pair + first + j;
            const size row = (first + j) * n_leaves + leaf[pair];
            output[j][column] = weights[row * n_outputs + k] * magnitude(margin[pair]);
        }
        __syncthreads();
        if (owned && threadIdx.x < COLUMNS)
            for (int j = 0; j < n; ++j) total += (double)output[j][column];
        __syncthreads();
    }
    if (owned && threadIdx.x < COLUMNS) y[i] = (real)(total / divisor);
}

// ----------------------------------------------------------------------------------------- gradients

constexpr int DOT = 8;  // independent partial sums of a dot product, added in the order of the CPU backend

// Where a pair's row of grad_y begins: trees share one row when they are aggregated (grad_trees is 1).
__device__ static inline size grad_row(size pair, size n_trees, size grad_trees, size n_outputs) {
    return (pair / n_trees * grad_trees + pair % n_trees % grad_trees) * n_outputs;
}

// p1 eq 11: slope = sgn(r*) w_leaf . dL/dy. A thread is a pair.
extern "C" __global__ void backward_slopes(
    const real *__restrict__ grad_y, const int *__restrict__ leaf, const real *__restrict__ margin,
    const real *__restrict__ weights, size n_samples, size n_trees, size grad_trees, size n_leaves,
    size n_outputs, double divisor, real *__restrict__ slope
) {
    const size pair = thread_number();
    if (pair >= n_samples * n_trees) return;
    const real *w = weights + (pair % n_trees * n_leaves + leaf[pair]) * n_outputs;
    const real *g = grad_y + grad_row(pair, n_trees, grad_trees, n_outputs);
    double part[DOT] = {0, 0, 0, 0, 0, 0, 0, 0};
    size k = 0;
    for (; k + DOT <= n_outputs; k += DOT)
        for (int j = 0; j < DOT; ++j) part[j] += (double)w[k + j] * (double)g[k + j];
    // The bound on j is a constant, so that the partial sums stay in registers.
    for (int j = 0; j < DOT; ++j)
        if (k + j < n_outputs) part[j] += (double)w[k + j] * (double)g[k + j];
    const double dot =
        ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
    slope[pair] = (real)(sign(margin[pair]) * (dot / divisor));
}

constexpr int TILE = 128;  // pairs that a block holds at a time

// p1 eq 11 by the input. A block is a sample, a thread owns the features that leave its number when
// divided by the size of the block. Every thread sees every pair, in the order of the trees, and adds
// those of its features.
extern "C" __global__ void backward_x(
    const int *__restrict__ vertex, const int *__restrict__ features, const real *__restrict__ slope,
    size n_trees, size n_vertices, size n_features, real *__restrict__ grad_x
) {
    __shared__ int feature[TILE];
    __shared__ unsigned owner[TILE];
    __shared__ real s[TILE];
    real *sum = grad_x + (size)blockIdx.x * n_features;
    for (size f = threadIdx.x; f < n_features; f += blockDim.x) sum[f] = 0;
    for (size first = 0; first < n_trees; first += TILE) {
        const int n = (int)(n_trees - first < TILE ? n_trees - first : TILE);
        for (int j = threadIdx.x; j < n; j += blockDim.x) {
            const size pair = (size)blockIdx.x * n_trees + first + j;
            feature[j] = features[(first + j) * n_vertices + vertex[pair]];
            owner[j] = feature[j] % blockDim.x;
            s[j] = slope[pair];
        }
        __syncthreads();
        for (int j = 0; j < n; ++j)
            if (owner[j] == threadIdx.x) sum[feature[j]] += s[j];
        __syncthreads();
    }
}

constexpr int MAX_THREADS = 1024;  // of a block

// Sum of one number from each of `lanes` neighbouring threads, in their order; the first of them gets it.
// The block must be a multiple of lanes, and all its threads must come here.
__device__ static inline double add_lanes(double part, int lane, int lanes) {
    __shared__ double parts[MAX_THREADS];
    if (lanes == 1) return part;
    parts[threadIdx.x] = part;
    __syncthreads();
    if (lane == 0)
        for (int j = 1; j < lanes; ++j) part += parts[threadIdx.x + j];
    return part;
}

// p1 eq 11 by the thresholds: r falls as t rises. Row i has the pairs order[start[i]:start[i + 1]], in the
// order of the samples; `lanes` threads share a row.
extern "C" __global__ void backward_thresholds(
    const real *__restrict__ slope, const size *__restrict__ order, const size *__restrict__ start,
    size n_rows, size lanes, real *__restrict__ grad_thresholds
) {
    const size row = thread_number() / lanes;
    const int lane = (int)(thread_number() % lanes);
    double total = 0;
    if (row < n_rows)
        for (size i = start[row] + lane; i < start[row + 1]; i += lanes) total -= (double)slope[order[i]];
    total = add_lanes(total, lane, (int)lanes);
    if (row < n_rows && lane == 0) grad_thresholds[row] = (real)total;
}

// p1 eq 12: |r*| dL/dy. `lanes` threads share an element of a row.
extern "C" __global__ void backward_weights(
    const real *__restrict__ grad_y, const real *__restrict__ margin, const size *__restrict__ order,
    const size *__restrict__ start, size n_trees, size grad_trees, size n_outputs, double divisor,
    size n_rows, size lanes, real *__restrict__ grad_weights
) {
    const size element = thread_number() / lanes, row = element / n_outputs, k = element % n_outputs;
    const int lane = (int)(thread_number() % lanes);
    double total = 0;
    if (row < n_rows)
        for (size i = start[row] + lane; i < start[row + 1]; i += lanes) {
            const size pair = order[i];
            const double g = (double)grad_y[grad_row(pair, n_trees, grad_trees, n_outputs) + k];
            total += (double)magnitude(margin[pair]) * g;
        }
    total = add_lanes(total, lane, (int)lanes);
    if (row < n_rows && lane == 0) grad_weights[element] = (real)(total / divisor);
}

// -------------------------------------------------------------------------------------- touched rows

// Each key of a sorted list once. rank counts the distinct keys up to and including a place.
extern "C" __global__ void touched_rows(
    const size *__restrict__ keys, const size *__restrict__ rank, size n, size *__restrict__ rows
) {
    const size i = thread_number();
    if (i < n && (i == 0 || rank[i] != rank[i - 1])) rows[rank[i] - 1] = keys[i];
}

// Samples in each leaf of each tree. Integers: the order in which they are added does not matter.
extern "C" __global__ void leaf_counts(
    const int *__restrict__ leaf, size n_samples, size n_trees, size n_leaves, size *__restrict__ counts
) {
    const size pair = thread_number();
    if (pair >= n_samples * n_trees) return;
    atomicAdd((unsigned long long *)&counts[pair % n_trees * n_leaves + leaf[pair]], 1ull);
}

// --------------------------------------------------------------------- an inner product for each vertex

// p1 Alg. 3 with r_v = p_v . x - t_v, of the vertices on the path. DOT neighbouring threads are a pair: thread j makes
// partial sum j of an inner product, so neighbours read neighbouring elements, and each adds up all of them. The block
// must be a multiple of DOT, and all its threads take every step.
__device__ static inline void linear_route(
    const real *__restrict__ x, const real *__restrict__ thresholds, const real *__restrict__ projections,
    size n_samples, size n_features, size n_trees, size n_vertices, size depth, bool fern,
    int *__restrict__ leaf, real *__restrict__ margin, int *__restrict__ vertex
) {
    __shared__ double parts[MAX_THREADS];
    const int lane = threadIdx.x % DOT;
    const size pair = thread_number() / DOT;
    const bool owned = pair < n_samples * n_trees;
    const size tree = owned ? pair % n_trees : 0;
    const real *row = x + (owned ? pair / n_trees : 0) * n_features;
    const real *t = thresholds + tree * n_vertices, *p = projections + tree * n_vertices * n_features;
    const double *part = parts + threadIdx.x - lane;
    real lowest = 0;
    int lowest_vertex = 0, v = 0, bits = 0;
    for (int level = 0; level < depth; ++level) {
        double sum = 0;
        if (fern) v = level;
        for (size k = lane; owned && k < n_features; k += DOT) sum += (double)p[v * n_features + k] * (double)row[k];
        parts[threadIdx.x] = sum;
        __syncthreads();
        const double dot =
            ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
        __syncthreads();
        const real r = (real)dot - t[v];
        // Strictly closer: on equal margins the vertex nearest the root stays.
        if (level == 0 || magnitude(r) < magnitude(lowest)) {
            lowest = r;
            lowest_vertex = v;
        }
        const int right = r > 0;
        bits = 2 * bits + right;
        v = 2 * v + right + 1;
    }
    if (!owned || lane != 0) return;
    leaf[pair] = bits;
    margin[pair] = lowest;
    vertex[pair] = lowest_vertex;
}

extern "C" __global__ void tree_linear_traverse(
    const real *__restrict__ x, const real *__restrict__ thresholds, const real *__restrict__ projections,
    size n_samples, size n_features, size n_trees, size n_vertices, size depth,
    int *__restrict__ leaf, real *__restrict__ margin, int *__restrict__ vertex
) {
    linear_route(
        x, thresholds, projections, n_samples, n_features, n_trees, n_vertices, depth, false, leaf, margin, vertex
    );
}

extern "C" __global__ void fern_linear_traverse(
    const real *__restrict__ x, const real *__restrict__ thresholds, const real *__restrict__ projections,
    size n_samples, size n_features, size n_trees, size n_vertices, size depth,
    int *__restrict__ leaf, real *__restrict__ margin, int *__restrict__ vertex
) {
    linear_route(
        x, thresholds, projections, n_samples, n_features, n_trees, n_vertices, depth, true, leaf, margin, vertex
    );
}

// p1 eq 11 by the input: slopes times the projections of their vertices, added in the order of the trees. A thread is
// an element of grad_x.
extern "C" __global__ void linear_backward_x(
    const int *__restrict__ vertex, const real *__restrict__ projections, const real *__restrict__ slope,
    size n_samples, size n_trees, size n_vertices, size n_features, real *__restrict__ grad_x
) {
    const size i = thread_number();
    if (i >= n_samples * n_features) return;
    const size first = i / n_features * n_trees, k = i % n_features;
    real sum = 0;
    for (size m = 0; m < n_trees; ++m)
        sum += slope[first + m] * projections[(m * n_vertices + vertex[first + m]) * n_features + k];
    grad_x[i] = sum;
}

// p1 eq 11 by the projections: slopes times samples. Row i has the pairs order[start[i]:start[i + 1]], in the order of
// the samples. A thread is an element of grad_projections.
extern "C" __global__ void backward_projections(
    const real *__restrict__ x, const real *__restrict__ slope, const size *__restrict__ order,
    const size *__restrict__ start, size n_trees, size n_features, size n_rows, real *__restrict__ grad_projections
) {
    const size element = thread_number(), row = element / n_features, k = element % n_features;
    if (row >= n_rows) return;
    double total = 0;
    for (size i = start[row]; i < start[row + 1]; ++i)
        total += (double)slope[order[i]] * (double)x[order[i] / n_trees * n_features + k];
    grad_projections[element] = (real)total;
}
