// Neural decision forests (Zhang 2017, section 2), level by level. A pair is one sample of the chunk in one tree.
// Arrays over vertices have a row of 2 * n_vertices + 1 numbers per pair, in heap order: vertices, then leaves. One
// thread computes each number, without atomics. One launch computes all levels: a block has some pairs, and waits after
// each level.
//
// Versions of descend, ascend_logs and descend_shares, counted by bench/gpu_counts.py: with a launch for each level
// they took 5.4 of the 7.6 ms of a gradient of a million pairs of depth 6. Now a block takes its pairs through all
// levels with their rows in shared memory; not timed. Launches of loss_backward 16 -> 4; sectors 206 -> 98 MB; functions
// of float64 a vertex 13 -> 9, as both logarithms of a decision share one. The bits are the same.
//
// Versions of outputs: it read mu, which descend had written for all vertices and leaves, and summed products in float64;
// with a launch for each level forward took 2.25 ms of a million pairs of depth 6. Now a thread computes the sums of a
// pair from f in shared memory, with the bits of the CPU; not timed. Of 20,000 such pairs with ten classes, sectors 65 ->
// 8.2 MB, where arguments and results are 5.1; launches 3 -> 2; steps of the longest warp 173 -> 682, as a warp has 32
// pairs from f to the sums, in 160 blocks in place of 5000.

#include "neural/gpu/subtrees.cuh"

// Returns the value of the decision function of vertex v for a pair of the chunk.
__device__ static inline real function(const Functions& a, size pair, size v) {
    return function(a, pair / a.n_trees, pair % a.n_trees, v);
}

// The pairs of a block: `each` of them, fewer in the last block. Their rows are in block_memory if is_local is 1, else
// in global memory.
struct Block {
    size first, n, step, is_local;

    __device__ Block(size n_pairs, size each, size n_vertices, size is_local)
        : first(blockIdx.x * each), n(min(each, n_pairs - blockIdx.x * each)), step(2 * n_vertices + 1),
          is_local(is_local) {}

    // Returns the rows of the block's pairs; `all` are the rows of all pairs in global memory.
    template <class T>
    __device__ T* rows(T* all) const {
        return is_local ? (T*)block_memory : all + first * step;
    }

    // Copies columns `from` to step - 1 of rows in block_memory to `all`. The caller has synchronised the block.
    template <class T>
    __device__ void write(const T* rows, T* all, size from) const {
        const size width = step - from;
        for (size j = threadIdx.x; is_local && j < n * width; j += blockDim.x) {
            const size at = j / width * step + from + j % width;
            all[first * step + at] = rows[at];
        }
    }

    // Calls at(i, v) for each vertex v of each pair i of the block, level by level, upwards or downwards.
    template <class At>
    __device__ void levels(bool upwards, const At& at) const {
        const size n_leaves = (step + 1) / 2;
        for (size level = 1; level < n_leaves; level *= 2) {
            const unsigned width = (unsigned)(upwards ? n_leaves / 2 / level : level);
            for (unsigned j = threadIdx.x; j < (unsigned)n * width; j += blockDim.x)
                at(j / width, width - 1 + j % width);
            __syncthreads();
        }
    }
};

// Writes d = sigmoid(f) and c = 1 - d, with the bits of the CPU.
__device__ static inline void decide(real f, real* d, real* c) { scalar_decide(f, scalar_decay(f), d, c); }

// Writes log sigmoid(f) and log sigmoid(-f) from one logarithm.
__device__ static inline void log_decisions(double f, double* d, double* c) {
    const double log_sum = hf_log1p(hf_exp(-fabs(f)));
    *d = f < 0 ? f - log_sum : -log_sum;
    *c = f < 0 ? -log_sum : -f - log_sum;
}

// mu (n_pairs, 2 * n_vertices + 1), OUT: the probability that a sample reaches each vertex and leaf.
extern "C" __global__ void descend(Functions a, size n_pairs, size each, size is_local, real* mu) {
    const Block block(n_pairs, each, a.n_vertices, is_local);
    real* const rows = block.rows(mu);
    block.levels(false, [&](size i, size v) {
        real d, c, *row = rows + i * block.step;
        decide(function(a, block.first + i, v), &d, &c);
        if (v == 0) row[0] = 1;
        const real here = row[v];
        row[2 * v + 1] = flushed(here * d);
        row[2 * v + 2] = flushed(here * c);
    });
    block.write(rows, mu, 0);
}

// mu (n_samples, n_trees, n_subtrees * n_leaves), OUT: the probability that a sample reaches each leaf. A block a tile.
extern "C" __global__ void route(Functions a, Tiles t, real* mu) {
    const Tile tile(a, t);
    tile.load(a);
    if (tile.has_row()) tile.descend(a);
    __syncthreads();
    tile.each([&](unsigned i, unsigned l) {
        const size subtree = ((tile.first + i) * a.n_trees + tile.m) * t.n_subtrees + tile.root - t.n_subtrees;
        mu[subtree * tile.n_leaves + l] = ((real*)block_memory)[i * tile.step + place(tile.n_leaves + l)];
    });
}

// Probabilities of the leaves of a subtree, for CLASSES classes at most; threads read four at once.
struct alignas(16) Four {
    real at[4];
};
constexpr int CLASSES = 12;
__shared__ Four probabilities[CLASSES / 4 << HF_LEVELS];
__shared__ int has_small;  // whether one of them is_below LEAST_LEAF

// Writes sum_l mu_l pi_l of a thread's row for n <= 4 * N classes, to numbers `apart` apart.
template <int N, bool FLUSHES>
__device__ static inline void write_sums(const Tile& tile, int n, size apart, real* sums) {
    const real* const row = tile.row();
    real sum[4 * N] = {};
    for (unsigned l = 0; l < tile.n_leaves; ++l) {
        const real mu = row[place(tile.n_leaves + l)];
        for (int j = 0; j < N; ++j) {
            const Four pi = probabilities[l * N + j];
            for (int i = 0; i < 4; ++i) {
                const real product = mu * pi.at[i];
                sum[4 * j + i] = FLUSHES ? flushed(sum[4 * j + i] + flushed(product)) : sum[4 * j + i] + product;
            }
        }
    }
    for (int k = 0; k < 4 * N; ++k)
        if (k < n) sums[k * apart] = sum[k];
}

template <int N>
__device__ static inline void write_sums(const Tile& tile, bool flushes, int n, size apart, real* sums) {
    if (flushes) write_sums<N, true>(tile, n, apart, sums);
    else write_sums<N, false>(tile, n, apart, sums);
}

// sums (n_trees, n_subtrees, n_classes, n_samples), OUT: sum_l mu_l pi_l over the leaves of a subtree, in `real`, in the
// order of the CPU. leaves (n_trees, n_subtrees * n_leaves, n_classes). A block a tile.
extern "C" __global__ void outputs(
    Functions a, Tiles t, const real* __restrict__ leaves, size n_classes, real* __restrict__ sums
) {
    const Tile tile(a, t);
    const size subtree = tile.m * t.n_subtrees + tile.root - t.n_subtrees;
    if (threadIdx.x == 0) has_small = 0;
    tile.load(a);
    const bool small_mu = tile.has_row() && tile.descend(a);
    for (size first = 0; first < n_classes; first += CLASSES) {
        const int n = (int)min((size)CLASSES, n_classes - first), fours = (n + 3) / 4;
        if (first) __syncthreads();
        for (unsigned j = threadIdx.x; j < tile.n_leaves * fours * 4; j += blockDim.x) {
            const int l = (int)j / (4 * fours), k = (int)j % (4 * fours);
            const real pi = k < n ? leaves[(subtree * tile.n_leaves + l) * n_classes + first + k] : 0;
            probabilities[j / 4].at[j % 4] = pi;
            if (is_below(pi, LEAST_LEAF)) atomicOr(&has_small, 1);
        }
        __syncthreads();
        if (!tile.has_row()) continue;
        real* const to = sums + (subtree * n_classes + first) * t.n_samples + tile.first + threadIdx.x;
        const bool flushes = small_mu || has_small;
        if (fours == 1) write_sums<1>(tile, flushes, n, t.n_samples, to);
        else if (fours == 2) write_sums<2>(tile, flushes, n, t.n_samples, to);
        else write_sums<3>(tile, flushes, n, t.n_samples, to);
    }
}

// p (n_samples, n_classes), OUT: the sums of all n_sums subtrees, in float64 in the order of the CPU, divided by n_trees.
// sums (n_sums, n_classes, n_samples), IN. One thread per number.
extern "C" __global__ void means(
    const real* sums, size n_sums, size n_trees, size n_classes, size n_samples, real* p
) {
    const size i = thread_number(), k = i / n_samples, n = i % n_samples;
    if (k >= n_classes) return;
    double total = 0;
    for (size j = 0; j < n_sums; ++j) {
        total += (double)sums[(j * n_classes + k) * n_samples + n];
        if (DIGITS == 53) total = flushed((real)total);
    }
    p[n * n_classes + k] = flushed((real)(total / (double)n_trees));
}

// ---------------------------------------------------------------------------- gradients of the loss

// logs (n_pairs, 2 * n_vertices + 1), OUT: the logarithm of the likelihood of a sample's label below each vertex. At a
// leaf it is the leaf's probability of the label.
extern "C" __global__ void ascend_logs(
    Functions a, size n_pairs, size each, size is_local, const real* __restrict__ leaves, const int* __restrict__ y,
    size n_classes, double* logs
) {
    const Block block(n_pairs, each, a.n_vertices, is_local);
    const size n_leaves = a.n_vertices + 1;
    double* const rows = block.rows(logs);
    for (size j = threadIdx.x; j < block.n * n_leaves; j += blockDim.x) {
        const size i = j / n_leaves, l = j % n_leaves, pair = block.first + i, m = pair % a.n_trees;
        const double leaf = (double)leaves[(m * n_leaves + l) * n_classes + y[pair / a.n_trees]];
        rows[i * block.step + a.n_vertices + l] = hf_log(leaf);
    }
    __syncthreads();
    block.levels(true, [&](size i, size v) {
        double d, c, *row = rows + i * block.step;
        log_decisions(function(a, block.first + i, v), &d, &c);
        const double left = d + row[2 * v + 1], right = c + row[2 * v + 2];
        const double high = left > right ? left : right, low = left > right ? right : left;
        row[v] = isinf(high) ? high : high + hf_log1p(hf_exp(low - high));
    });
    block.write(rows, logs, 0);
}

// loss (n_samples,), OUT: of the forest if `forest` is 1, else the mean of the trees' losses. weight (n_samples,
// n_trees), OUT: the factor of a tree in the gradient of the mean loss of n_all samples. One thread per sample.
extern "C" __global__ void losses(
    const double* logs, size n_trees, size n_vertices, size forest, size n_samples, size n_all, double* loss,
    double* weight
) {
    const size n = thread_number();
    if (n >= n_samples) return;
    const size step = 2 * n_vertices + 1;
    const double* root = logs + n * n_trees * step;
    double total = 0, high = root[0];
    for (size m = 1; m < n_trees; ++m) high = root[m * step] > high ? root[m * step] : high;
    if (!forest) {
        for (size m = 0; m < n_trees; ++m) {
            total += root[m * step];
            weight[n * n_trees + m] = 1.0 / ((double)n_all * (double)n_trees);
        }
        loss[n] = -total / (double)n_trees;
        return;
    }
    for (size m = 0; m < n_trees; ++m) {
        const double share = isinf(high) ? 0.0 : hf_exp(root[m * step] - high);
        weight[n * n_trees + m] = share;
        total += share;
    }
    loss[n] = isinf(high) ? -high : -(high + hf_log(total / (double)n_trees));
    for (size m = 0; m < n_trees; ++m)
        weight[n * n_trees + m] = isinf(high) ? 0.0 : weight[n * n_trees + m] / (total * (double)n_all);
}

// The results of descend_shares. rows may be null if the shares are in block_memory, and grad may be null.
struct Shares {
    double* rows;          // OUT (n_pairs, 2 * n_vertices + 1): shares, if in block_memory those of leaves alone
    const double* weight;  // IN (n_pairs,): as losses writes it, or null without grad
    real* grad;            // OUT (n_pairs, n_vertices): dL/df_v = d A_right - (1 - d) A_left, times the weight
};

// Computes the share A of each vertex: the sum over the leaves below it, divided by P (Zhang 2017). The share of the
// root is 1, or 0 if P is 0. ascend_logs has written logs.
extern "C" __global__ void descend_shares(
    Functions a, size n_pairs, size each, size is_local, const double* __restrict__ logs, Shares out
) {
    const Block block(n_pairs, each, a.n_vertices, is_local);
    double* const rows = block.rows(out.rows);
    block.levels(false, [&](size i, size v) {
        const size pair = block.first + i;
        const double *row = logs + pair * block.step, here = function(a, pair, v);
        double log_d, log_c, *share = rows + i * block.step;
        log_decisions(here, &log_d, &log_c);
        if (v == 0) share[0] = isinf(row[0]) ? 0.0 : 1.0;
        const double own = share[v];
        const double left = own > 0 ? own * hf_exp(log_d + row[2 * v + 1] - row[v]) : 0.0;
        const double right = own > 0 ? own * hf_exp(log_c + row[2 * v + 2] - row[v]) : 0.0;
        share[2 * v + 1] = left;
        share[2 * v + 2] = right;
        if (!out.grad) return;
        const double e = hf_exp(-fabs(here)), high = 1 / (1 + e), low = e / (1 + e);
        const double d = here < 0 ? low : high, c = here < 0 ? high : low;
        out.grad[pair * a.n_vertices + v] = (real)(out.weight[pair] * (d * right - c * left));
    });
    if (out.rows) block.write(rows, out.rows, a.n_vertices);
}

// grad_f (n_samples, n_functions), OUT: the sum of grad (n_samples, n_numbers), IN, over the vertices that use a
// function, in the order of trees and vertices; order[start[j]:start[j + 1]] are the vertices of function j. One thread
// per number.
extern "C" __global__ void gather_functions(
    const real* grad, const size* order, const size* start, size n_numbers, size n_functions, size n_samples,
    real* grad_f
) {
    const size i = thread_number();
    if (i >= n_samples * n_functions) return;
    const size n = i / n_functions, j = i % n_functions;
    double total = 0;
    for (size s = start[j]; s < start[j + 1]; ++s) total += (double)grad[n * n_numbers + order[s]];
    grad_f[i] = (real)total;
}

// ------------------------------------------------------------ gradients of any function of the outputs

// Writes to `value`, at each leaf, the product of its probabilities with grad_p. One thread per leaf of a pair.
extern "C" __global__ void leaf_products(
    const real* grad_p, const real* leaves, size n_trees, size n_vertices, size n_classes, size n_pairs,
    double* value
) {
    const size i = thread_number(), n_leaves = n_vertices + 1;
    if (i >= n_pairs * n_leaves) return;
    const size pair = i / n_leaves, l = i % n_leaves, m = pair % n_trees;
    const real *leaf = leaves + (m * n_leaves + l) * n_classes, *grad = grad_p + pair / n_trees * n_classes;
    double total = 0;
    for (size k = 0; k < n_classes; ++k) total += (double)leaf[k] * (double)grad[k];
    value[pair * (2 * n_vertices + 1) + n_vertices + l] = total;
}

// value (n_pairs, 2 * n_vertices + 1), IN at leaves, OUT at vertices: the mean of the values of a vertex's children,
// weighted by d and 1 - d.
extern "C" __global__ void ascend(Functions a, size n_pairs, size each, size is_local, double* value) {
    const Block block(n_pairs, each, a.n_vertices, is_local);
    double* const rows = block.rows(value);
    block.levels(true, [&](size i, size v) {
        double* row = rows + i * block.step;
        real d, c;
        decide(function(a, block.first + i, v), &d, &c);
        row[v] = (double)d * row[2 * v + 1] + (double)c * row[2 * v + 2];
    });
}

// grad (n_pairs, n_vertices), OUT: the gradient with respect to f of each vertex. One thread per number.
extern "C" __global__ void gradient_by_outputs(
    Functions a, const double* value, const real* mu, size n_pairs, real* grad
) {
    const size i = thread_number();
    if (i >= n_pairs * a.n_vertices) return;
    const size pair = i / a.n_vertices, v = i % a.n_vertices;
    const double* row = value + pair * (2 * a.n_vertices + 1);
    real d, c;
    decide(function(a, pair, v), &d, &c);
    const double slope = (row[2 * v + 1] - row[2 * v + 2]) / (double)a.n_trees;
    grad[i] = (real)((double)mu[pair * (2 * a.n_vertices + 1) + v] * (double)d * (double)c * slope);
}

// ------------------------------------------------------------------------------------------ leaves

// total (n_trees, n_leaves, n_classes), IN and OUT: adds weight times share of the chunk's samples of class k, which
// are order[start[k]:start[k + 1]]. One thread per number.
extern "C" __global__ void expect(
    const double* shares, const size* order, const size* start, const double* weight, size n_trees,
    size n_vertices, size n_classes, double* total
) {
    const size i = thread_number(), n_leaves = n_vertices + 1;
    if (i >= n_trees * n_leaves * n_classes) return;
    const size k = i % n_classes, l = i / n_classes % n_leaves, m = i / n_classes / n_leaves;
    double sum = total[i];
    for (size s = start[k]; s < start[k + 1]; ++s)
        sum += weight[order[s]] * shares[(order[s] * n_trees + m) * (2 * n_vertices + 1) + n_vertices + l];
    total[i] = sum;
}

// leaves (n_leaves, n_classes), OUT: the rows of total, IN, divided by their sums. The row of a leaf that is not
// reached does not change. One thread per leaf.
extern "C" __global__ void normalise(const double* total, size n_leaves, size n_classes, real* leaves) {
    const size l = thread_number();
    if (l >= n_leaves) return;
    double mass = 0;
    for (size k = 0; k < n_classes; ++k) mass += total[l * n_classes + k];
    if (!(mass >= HF_LEAST_MASS) || isinf(mass)) return;
    for (size k = 0; k < n_classes; ++k) leaves[l * n_classes + k] = (real)(total[l * n_classes + k] / mass);
}
