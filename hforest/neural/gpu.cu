// Neural decision forests (Zhang 2017, section 2), level by level.
// A pair is a sample of the chunk and a tree; arrays over vertices are in heap order, a row of
// 2 * n_vertices + 1 (vertices, then leaves) a pair. One thread owns one number: nothing is atomic and
// nothing waits for another thread, so a level is a launch.

// Decision function of vertex v for pair `pair` of the chunk. With has_index, index (n_trees, n_vertices) names the
// function; without, functions are the vertices of all trees in order.
__device__ static inline real function(
    const real* f, const int* index, size has_index, size n_functions, size n_trees, size n_vertices, size pair,
    size v
) {
    const size m = pair % n_trees;
    const size at = has_index ? (size)index[m * n_vertices + v] : m * n_vertices + v;
    return f[pair / n_trees * n_functions + at];
}

// d = sigmoid(f), and 1 - d, without cancellation.
__device__ static inline void decide(real f, real* d, real* c) {
    const real e = exp(-fabs(f)), high = 1 / (1 + e), low = e * high;
    *d = f < 0 ? low : high;
    *c = f < 0 ? high : low;
}

// log sigmoid(f).
__device__ static inline double log_decision(double f) {
    return f < 0 ? f - log1p(exp(f)) : -log1p(exp(-f));
}

// mu of the children of a level's `width` vertices; the root's is 1.
extern "C" __global__ void descend(
    const real* f, const int* index, size has_index, size n_functions, size n_trees, size n_vertices, size width,
    size n_pairs, real* mu
) {
    const size i = thread_number();
    if (i >= n_pairs * width) return;
    const size pair = i / width, v = width - 1 + i % width;
    real d, c, *row = mu + pair * (2 * n_vertices + 1);
    decide(function(f, index, has_index, n_functions, n_trees, n_vertices, pair, v), &d, &c);
    if (v == 0) row[0] = 1;
    const real here = row[v];
    row[2 * v + 1] = here * d;
    row[2 * v + 2] = here * c;
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

// logs of the leaves: log of the probability of each sample's class.
extern "C" __global__ void leaf_logs(
    const real* leaves, const int* y, size n_trees, size n_vertices, size n_classes, size n_pairs, double* logs
) {
    const size i = thread_number(), n_leaves = n_vertices + 1;
    if (i >= n_pairs * n_leaves) return;
    const size pair = i / n_leaves, l = i % n_leaves, m = pair % n_trees;
    const double leaf = (double)leaves[(m * n_leaves + l) * n_classes + y[pair / n_trees]];
    logs[pair * (2 * n_vertices + 1) + n_vertices + l] = log(leaf);
}

// Likelihoods below a level's vertices, in logarithms, from those below their children.
extern "C" __global__ void ascend_logs(
    const real* f, const int* index, size has_index, size n_functions, size n_trees, size n_vertices, size width,
    size n_pairs, double* logs
) {
    const size i = thread_number();
    if (i >= n_pairs * width) return;
    const size pair = i / width, v = width - 1 + i % width;
    double* row = logs + pair * (2 * n_vertices + 1);
    const double here = function(f, index, has_index, n_functions, n_trees, n_vertices, pair, v);
    const double left = log_decision(here) + row[2 * v + 1], right = log_decision(-here) + row[2 * v + 2];
    const double high = left > right ? left : right, low = left > right ? right : left;
    row[v] = isinf(high) ? high : high + log1p(exp(low - high));
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

// A of the children of a level's vertices: the sum over the leaves below, divided by P (Zhang 2017); the root's is 1.
extern "C" __global__ void descend_shares(
    const real* f, const int* index, size has_index, size n_functions, size n_trees, size n_vertices, size width,
    const double* logs, size n_pairs, double* shares
) {
    const size i = thread_number();
    if (i >= n_pairs * width) return;
    const size pair = i / width, v = width - 1 + i % width;
    const double* row = logs + pair * (2 * n_vertices + 1);
    double* a = shares + pair * (2 * n_vertices + 1);
    const double here = function(f, index, has_index, n_functions, n_trees, n_vertices, pair, v);
    if (v == 0) a[0] = isinf(row[0]) ? 0.0 : 1.0;
    const double share = a[v];
    a[2 * v + 1] = share > 0 ? share * exp(log_decision(here) + row[2 * v + 1] - row[v]) : 0.0;
    a[2 * v + 2] = share > 0 ? share * exp(log_decision(-here) + row[2 * v + 2] - row[v]) : 0.0;
}

// dL/df_v = d A_right - (1 - d) A_left, times the tree's weight: one thread a vertex.
extern "C" __global__ void gradient_by_labels(
    const real* f, const int* index, size has_index, size n_functions, size n_trees, size n_vertices,
    const double* shares, const double* weight, size n_pairs, real* grad
) {
    const size i = thread_number();
    if (i >= n_pairs * n_vertices) return;
    const size pair = i / n_vertices, v = i % n_vertices;
    const double* a = shares + pair * (2 * n_vertices + 1);
    const double here = function(f, index, has_index, n_functions, n_trees, n_vertices, pair, v);
    const double e = exp(-fabs(here)), high = 1 / (1 + e), low = e / (1 + e);
    const double d = here < 0 ? low : high, c = here < 0 ? high : low;
    grad[i] = (real)(weight[pair] * (d * a[2 * v + 2] - c * a[2 * v + 1]));
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

extern "C" __global__ void ascend(
    const real* f, const int* index, size has_index, size n_functions, size n_trees, size n_vertices, size width,
    size n_pairs, double* value
) {
    const size i = thread_number();
    if (i >= n_pairs * width) return;
    const size pair = i / width, v = width - 1 + i % width;
    double* row = value + pair * (2 * n_vertices + 1);
    real d, c;
    decide(function(f, index, has_index, n_functions, n_trees, n_vertices, pair, v), &d, &c);
    row[v] = (double)d * row[2 * v + 1] + (double)c * row[2 * v + 2];
}

extern "C" __global__ void gradient_by_outputs(
    const real* f, const int* index, size has_index, size n_functions, size n_trees, size n_vertices,
    const double* value, const real* mu, size n_pairs, real* grad
) {
    const size i = thread_number();
    if (i >= n_pairs * n_vertices) return;
    const size pair = i / n_vertices, v = i % n_vertices;
    const double* row = value + pair * (2 * n_vertices + 1);
    real d, c;
    decide(function(f, index, has_index, n_functions, n_trees, n_vertices, pair, v), &d, &c);
    const double slope = (row[2 * v + 1] - row[2 * v + 2]) / (double)n_trees;
    grad[i] = (real)((double)mu[pair * (2 * n_vertices + 1) + v] * (double)d * (double)c * slope);
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
