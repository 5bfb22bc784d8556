// Neural decision forests (Zhang 2017, section 2), level by level.
// A pair is a sample of the chunk and a tree; arrays over vertices are in heap order, a row of
// 2 * n_vertices + 1 (vertices, then leaves) a pair. A thread owns one number; nothing is atomic. Levels that follow
// each other are one launch: a block has some pairs, and a barrier after each level.

// Decision functions of a chunk. With has_index, index (n_trees, n_vertices) names them; without, functions are the
// vertices of all trees in order.
struct Functions {
    const real *__restrict__ f;     // IN (n_samples, n_functions)
    const int *__restrict__ index;  // IN (n_trees, n_vertices)
    size has_index, n_functions, n_trees, n_vertices;
};

// Returns the function of vertex v for pair `pair` of the chunk.
__device__ static inline real function(const Functions& a, size pair, size v) {
    const size m = pair % a.n_trees;
    const size at = a.has_index ? (size)a.index[m * a.n_vertices + v] : m * a.n_vertices + v;
    return a.f[pair / a.n_trees * a.n_functions + at];
}

// The pairs of a block, `each` but for the last: their rows are in block_memory (is_local is 1) or in memory.
struct Block {
    size first, n, step, is_local;

    __device__ Block(size n_pairs, size each, size n_vertices, size is_local)
        : first(blockIdx.x * each), n(min(each, n_pairs - blockIdx.x * each)), step(2 * n_vertices + 1),
          is_local(is_local) {}

    // Returns the rows of the block, of those of all pairs.
    template <class T>
    __device__ T* rows(T* all) const {
        return is_local ? (T*)block_memory : all + first * step;
    }

    // Writes rows to those of all pairs, columns `from` to step - 1. All threads of the block have passed a barrier.
    template <class T>
    __device__ void write(const T* rows, T* all, size from) const {
        const size width = step - from;
        for (size j = threadIdx.x; is_local && j < n * width; j += blockDim.x) {
            const size at = j / width * step + from + j % width;
            all[first * step + at] = rows[at];
        }
    }

    // Calls at(i, v) for vertex v of the block's pair i, for all, level by level: upwards or downwards.
    template <class At>
    __device__ void levels(bool upwards, const At& at) const {
        const size n_leaves = (step + 1) / 2;
        for (size level = 1; level < n_leaves; level *= 2) {
            const unsigned width = (unsigned)(upwards ? n_leaves / 2 / level : level);
            for (unsigned j = threadIdx.x; j < (unsigned)n * width; j += blockDim.x) at(j / width, width - 1 + j % width);
            __syncthreads();
        }
    }
};

// d = sigmoid(f), and 1 - d, without cancellation.
__device__ static inline void decide(real f, real* d, real* c) {
    const real e = exp(-fabs(f)), high = 1 / (1 + e), low = e * high;
    *d = f < 0 ? low : high;
    *c = f < 0 ? high : low;
}

// log sigmoid(f) and log sigmoid(-f), which share a logarithm.
__device__ static inline void log_decisions(double f, double* d, double* c) {
    const double log_sum = log1p(exp(-fabs(f)));
    *d = f < 0 ? f - log_sum : -log_sum;
    *c = f < 0 ? -log_sum : -f - log_sum;
}

// mu of all vertices and leaves; the root's is 1.
extern "C" __global__ void descend(Functions a, size n_pairs, size each, size is_local, real* mu) {
    const Block block(n_pairs, each, a.n_vertices, is_local);
    real* const rows = block.rows(mu);
    block.levels(false, [&](size i, size v) {
        real d, c, *row = rows + i * block.step;
        decide(function(a, block.first + i, v), &d, &c);
        if (v == 0) row[0] = 1;
        const real here = row[v];
        row[2 * v + 1] = here * d;
        row[2 * v + 2] = here * c;
    });
    block.write(rows, mu, 0);
}

extern "C" __global__ void leaf_rows(const real* mu, size n_vertices, size n_pairs, real* out) {
    const size i = thread_number(), n_leaves = n_vertices + 1;
    if (i >= n_pairs * n_leaves) return;
    out[i] = mu[i / n_leaves * (2 * n_vertices + 1) + n_vertices + i % n_leaves];
}

// part (n_samples, n_parts, n_classes), OUT: sums of sum_l mu_l pi_l over every n_parts-th tree: one thread a number.
extern "C" __global__ void outputs(
    const real* mu, const real* leaves, size n_trees, size n_vertices, size n_classes, size n_samples, size n_parts,
    double* part
) {
    const size i = thread_number(), n_leaves = n_vertices + 1;
    if (i >= n_samples * n_parts * n_classes) return;
    const size n = i / n_classes / n_parts, k = i % n_classes;
    double total = 0;
    for (size m = i / n_classes % n_parts; m < n_trees; m += n_parts) {
        const real* row = mu + (n * n_trees + m) * (2 * n_vertices + 1) + n_vertices;
        const real* leaf = leaves + m * n_leaves * n_classes + k;
        for (size l = 0; l < n_leaves; ++l) total += (double)row[l] * (double)leaf[l * n_classes];
    }
    part[i] = total;
}

// p = mean over trees of sum_l mu_l pi_l: one thread a sample and class.
extern "C" __global__ void means(
    const double* part, size n_trees, size n_classes, size n_samples, size n_parts, real* p
) {
    const size i = thread_number();
    if (i >= n_samples * n_classes) return;
    double total = 0;
    for (size j = 0; j < n_parts; ++j) total += part[(i / n_classes * n_parts + j) * n_classes + i % n_classes];
    p[i] = (real)(total / (double)n_trees);
}

// ---------------------------------------------------------------------------- gradients by labels

// Likelihoods below all vertices, in logarithms: of the leaves those of the probability of each sample's class.
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
        rows[i * block.step + a.n_vertices + l] = log(leaf);
    }
    __syncthreads();
    block.levels(true, [&](size i, size v) {
        double d, c, *row = rows + i * block.step;
        log_decisions(function(a, block.first + i, v), &d, &c);
        const double left = d + row[2 * v + 1], right = c + row[2 * v + 2];
        const double high = left > right ? left : right, low = left > right ? right : left;
        row[v] = isinf(high) ? high : high + log1p(exp(low - high));
    });
    block.write(rows, logs, 0);
}

// Loss of a sample, and what the gradient of each of its trees counts: one thread a sample.
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
        const double share = isinf(high) ? 0.0 : exp(root[m * step] - high);
        weight[n * n_trees + m] = share;
        total += share;
    }
    loss[n] = isinf(high) ? -high : -(high + log(total / (double)n_trees));
    for (size m = 0; m < n_trees; ++m)
        weight[n * n_trees + m] = isinf(high) ? 0.0 : weight[n * n_trees + m] / (total * (double)n_all);
}

// What becomes of shares: either of rows and grad may be null, rows only if the shares are in block_memory.
struct Shares {
    double* rows;          // OUT (n_pairs, 2 * n_vertices + 1): of the leaves
    const double* weight;  // IN (n_pairs,): of trees, or null without grad
    real* grad;            // OUT (n_pairs, n_vertices): dL/df_v = d A_right - (1 - d) A_left, times the weight
};

// A of all vertices: the sum over the leaves below, divided by P (Zhang 2017); the root's is 1. logs as of ascend_logs.
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
        const double left = own > 0 ? own * exp(log_d + row[2 * v + 1] - row[v]) : 0.0;
        const double right = own > 0 ? own * exp(log_c + row[2 * v + 2] - row[v]) : 0.0;
        share[2 * v + 1] = left;
        share[2 * v + 2] = right;
        if (!out.grad) return;
        const double e = exp(-fabs(here)), high = 1 / (1 + e), low = e / (1 + e);
        const double d = here < 0 ? low : high, c = here < 0 ? high : low;
        out.grad[pair * a.n_vertices + v] = (real)(out.weight[pair] * (d * right - c * left));
    });
    if (out.rows) block.write(rows, out.rows, a.n_vertices);
}

// grad_f of a function: the sum over the vertices that use it, in the order of trees and vertices;
// order[start[j]:start[j + 1]] are those of function j.
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

// --------------------------------------------------------------------------- gradients by outputs

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

// Values of all vertices from those of the leaves, which are in `value`.
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

// total[m, l, k] += weight times posteriors of the chunk's samples of class k, order[start[k]:start[k + 1]].
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

// Posterior mass of all samples below which a leaf counts as not reached.
#define LEAST_MASS 9.094947017729282e-13  // 2**-40

// A leaf's row divided by its mass; one that is not reached stays. One thread a leaf.
extern "C" __global__ void normalise(const double* total, size n_leaves, size n_classes, real* leaves) {
    const size l = thread_number();
    if (l >= n_leaves) return;
    double mass = 0;
    for (size k = 0; k < n_classes; ++k) mass += total[l * n_classes + k];
    if (!(mass >= LEAST_MASS) || isinf(mass)) return;
    for (size k = 0; k < n_classes; ++k) leaves[l * n_classes + k] = (real)(total[l * n_classes + k] / mass);
}
