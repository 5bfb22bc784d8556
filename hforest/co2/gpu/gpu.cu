// Surrogates of splits (Norouzi et al. 2015, section 4), and the choice of splits of a tree that grows; stumps.cuh fits
// oblique stumps, trees.cuh whole trees. Sixteen threads compute a product w.x, one per lane of the reference. Sums over
// samples are those of chunks of HF_CHUNK samples, each in its order, added in their order, so results are bit-identical
// to it.

#include "co2/fit.h"
#include "co2/visits.h"
#include "growth/units.h"

// Threads per product, one per lane; threads per block, but where stumps.cuh has more; products that the same threads
// compute together; products of a warp; terms of a sum that a thread computes before it adds them.
constexpr int LANES = HF_LANES, BLOCK = 128, WARP = 32, EACH = 4, OF_WARP = WARP / LANES * EACH;

// Samples with their labels (log losses) or targets (squared losses). Sample i is row i of x or, if has_rows, row
// rows[i] followed by the constant -1. Functions of samples take theta and table (2, n_outputs), left and right.
struct Samples {
    const real *x;         // IN  (n_rows, n_features)
    const int *labels;     // IN  (n_rows,) if has_labels
    const double *targets; // IN  (n_rows, n_outputs) if not
    const double *weight;  // IN  (n,)
    const int *rows;       // IN  (n,) if has_rows
    size has_labels, has_rows, n, n_features, n_outputs;
};

// The settings of Alg. 1: Schedule of descent.py.
struct Schedule {
    double nu, eta, momentum, decay, tolerance, smooth;
    size tau, batch, min_steps, patience, max_rounds, convex_rounds, min_samples;
};

// Returns the number of columns of a sample.
__device__ static size width_of(const Samples &s) { return s.n_features + s.has_rows; }

// Returns the row of x of sample i.
__device__ static size row_of(const Samples &s, size i) { return s.has_rows ? s.rows[i] : i; }

// Returns column j of sample i.
__device__ static real number_of(const Samples &s, size i, size j) {
    return j < s.n_features ? s.x[row_of(s, i) * s.n_features + j] : (real)-1;
}

// Returns the label of the sample with this row of x; 0 without labels.
__device__ static int label_of(const Samples &s, size row) { return s.has_labels ? s.labels[row] : 0; }

// Returns the loss on a side (0 left, 1 right) of the sample with this row of x and this label.
__device__ static double loss_at(
    const Samples &s, const double *theta, const double *table, int side, size row, int label
) {
    if (s.has_labels) return table[side * s.n_outputs + label];
    double sum = 0;
    for (size k = 0; k < s.n_outputs; ++k) {
        const double d = s.targets[row * s.n_outputs + k] - theta[side * s.n_outputs + k];
        sum += d * d;
    }
    return sum;
}

// Returns the loss of sample i on a side.
__device__ static double loss_of(const Samples &s, const double *theta, const double *table, int side, size i) {
    const size row = row_of(s, i);
    return loss_at(s, theta, table, side, row, label_of(s, row));
}

// Returns output k of sample i: whether it has class k, or its target k.
__device__ static double output_of(const Samples &s, size i, size k) {
    const size row = row_of(s, i);
    return s.has_labels ? (double)(k == s.labels[row]) : s.targets[row * s.n_outputs + k];
}

// Writes the log losses of all classes on one side to the table (eq. 3); nothing for squared losses. One thread calls it
// or, with n_lanes = WARP, a whole warp.
__device__ static void fill_table(
    const Samples &s, const double *theta, double *table, int side, int lane = 0, int n_lanes = 1
) {
    if (!s.has_labels) return;
    const double *t = theta + side * s.n_outputs;
    double *loss = table + side * s.n_outputs, high = t[0], sum = 0;
    for (size k = 1; k < s.n_outputs; ++k) high = t[k] > high ? t[k] : high;
    for (size k = lane; k < s.n_outputs; k += n_lanes) loss[k] = hf_exp(t[k] - high);
    if (n_lanes == WARP) __syncwarp();
    for (size k = 0; k < s.n_outputs; ++k) sum += loss[k];
    const double log_sum = high + hf_log(sum);
    if (n_lanes == WARP) __syncwarp();
    for (size k = lane; k < s.n_outputs; k += n_lanes) loss[k] = log_sum - t[k];
}

// Returns the slope with respect to number `at` of theta. sum: the weighted sum of its output over the samples on its
// side; weight: their total weight.
__device__ static double slope_of_theta(
    const Samples &s, const double *theta, const double *table, size at, double sum, double weight
) {
    return s.has_labels ? weight * hf_exp(-table[at]) - sum : 2 * (weight * theta[at] - sum);
}

// Returns the same sum, of each chunk in the type of the terms, of the chunks in double.
template <typename Term> __device__ static double sum_chunks(size first, size last, Term term) {
    double sum = 0;
    for (size chunk = first; chunk < last; chunk += HF_CHUNK)
        sum += sum_ahead(chunk, chunk + HF_CHUNK < last ? chunk + HF_CHUNK : last, term);
    return sum;
}

// Returns in the first of sixteen neighbouring threads the sum of their numbers, by halves. All threads of a warp call
// it.
template <typename T> __device__ static T fold_lanes(T own) {
    for (int width = LANES / 2; width >= 1; width /= 2) own = own + __shfl_down_sync(~0u, own, width, LANES);
    return own;
}

// Calls visit(i, w.x) for n samples; row(i) points to sample i's row of x. Warp `warp` of n_warps calls it; OF_WARP
// samples are its own at a time. One thread visits a sample.
template <typename Row, typename Visit>
__device__ static void for_products(
    const Samples &s, const real *w, size n, size warp, size n_warps, Row row, Visit visit
) {
    const int lane = threadIdx.x % LANES, group = threadIdx.x % WARP / LANES, n_features = (int)s.n_features;
    for (size begin = warp * OF_WARP; begin < n; begin += n_warps * OF_WARP) {
        const size first = begin + group * EACH;
        const real *x[EACH];
        real sum[EACH] = {}, product = 0;
        for (int l = 0; l < EACH; ++l) x[l] = row(first + l < n ? first + l : n - 1);
        for (int j = lane; j < n_features; j += LANES)
            for (int l = 0; l < EACH; ++l) sum[l] = sum[l] + x[l][j] * w[j];
        for (int l = 0; l < EACH; ++l) {
            if (s.has_rows && lane == n_features % LANES) sum[l] = sum[l] - w[n_features];
            const real whole = __shfl_sync(~0u, fold_lanes(sum[l]), 0, LANES);
            product = lane == l ? whole : product;
        }
        if (lane < EACH && first + lane < n) visit(first + lane, product);
    }
}

// ------------------------------------------------------------------------------ surrogate and gradient

// table (2, n_outputs), OUT; theta (2, n_outputs), IN. One warp per side.
extern "C" __global__ void tables(Samples s, const double *__restrict__ theta, double *__restrict__ table) {
    const int side = (int)thread_number() / WARP;
    if (side < 2) fill_table(s, theta, table, side, threadIdx.x % WARP, WARP);
}

// Writes for each sample its term of eq. 10, the side with the larger bound, and the factor of x in the slope: term,
// side and factor (n,), OUT. w (n_features,), theta and table (2, n_outputs), IN.
extern "C" __global__ void terms(
    Samples s, const real *__restrict__ w, const double *__restrict__ theta, const double *__restrict__ table,
    double *__restrict__ term, int *__restrict__ side, real *__restrict__ factor
) {
    const auto row = [&](size i) { return s.x + row_of(s, i) * s.n_features; };
    const size n_warps = gridDim.x * (size)blockDim.x / WARP;
    for_products(s, w, s.n, thread_number() / WARP, n_warps, row, [&](size i, double p) {
        const double left = loss_of(s, theta, table, 0, i) - p, right = loss_of(s, theta, table, 1, i) + p;
        term[i] = s.weight[i] * ((left >= right ? left : right) - fabs(p));
        side[i] = !(left >= right);
        const int turn = side[i] ? 1 - ((p > 0) - (p < 0)) : -1 - ((p > 0) - (p < 0));
        factor[i] = (real)(turn * s.weight[i]);
    });
}

// Copies what a block reads of its chunk of samples to shared memory; returns the number of samples.
template <typename T> __device__ static int read_chunk(const T *from, size n, T *to) {
    const size first = blockIdx.x * (size)HF_CHUNK, here = n - first < HF_CHUNK ? n - first : HF_CHUNK;
    for (size i = threadIdx.x; i < here; i += blockDim.x) to[i] = from[first + i];
    return (int)here;
}

// part (n_chunks,), OUT: the sums of term (n,), IN, over chunks. One block per chunk.
extern "C" __global__ void chunk_terms(const double *__restrict__ term, size n, double *__restrict__ part) {
    __shared__ double tile[HF_CHUNK];
    const int here = read_chunk(term, n, tile);
    __syncthreads();
    if (threadIdx.x == 0) part[blockIdx.x] = sum_chunks(0, here, [&](size i) { return tile[i]; });
}

// out (1,), OUT: the sum of part (n_chunks,), IN, in order. A single thread computes it.
extern "C" __global__ void total(const double *__restrict__ part, size n_chunks, double *__restrict__ out) {
    if (thread_number() > 0) return;
    double sum = 0;
    for (size c = 0; c < n_chunks; ++c) sum += part[c];
    out[0] = sum;
}

// Writes the slopes with respect to w, summed over each chunk of samples. One thread per feature and chunk.
extern "C" __global__ void chunk_slopes(
    const real *__restrict__ x, const real *__restrict__ factor, size n, size n_features, size n_chunks,
    real *__restrict__ slope
) {
    const size i = thread_number();
    if (i >= n_chunks * n_features) return;
    const size first = i / n_features * HF_CHUNK, j = i % n_features;
    const size last = first + HF_CHUNK < n ? first + HF_CHUNK : n;
    slope[i] = sum_ahead(first, last, [&](size a) { return x[a * n_features + j] * factor[a]; });
}

// grad (n_features,), OUT: the sums of slope (n_chunks, n_features), IN, over chunks in order. One thread per feature.
extern "C" __global__ void chunk_sums(
    const real *__restrict__ slope, size n_features, size n_chunks, double *__restrict__ grad
) {
    const size j = thread_number();
    if (j >= n_features) return;
    double sum = 0;
    for (size c = 0; c < n_chunks; ++c) sum += slope[c * n_features + j];
    grad[j] = sum;
}

// part (n_chunks, 2 n_outputs + 2), OUT: of each chunk, the weighted sums of the outputs on the left and on the right,
// and the weights of both sides. side (n,), IN. One block per chunk; it reads sides and weights once.
extern "C" __global__ void chunk_sides(Samples s, const int *__restrict__ side, double *__restrict__ part) {
    __shared__ double weight_of[HF_CHUNK];
    __shared__ int side_of[HF_CHUNK];
    const size n_sums = 2 * s.n_outputs, first = blockIdx.x * (size)HF_CHUNK;
    const int here = read_chunk(s.weight, s.n, weight_of);
    read_chunk(side, s.n, side_of);
    __syncthreads();
    for (size at = threadIdx.x; at < n_sums + 2; at += blockDim.x) {
        const int mine = (int)(at < n_sums ? at / s.n_outputs : at - n_sums);
        part[blockIdx.x * (n_sums + 2) + at] = sum_chunks(0, here, [&](size i) {
            const double output = at < n_sums ? output_of(s, first + i, at % s.n_outputs) : 1.0;
            return side_of[i] == mine ? weight_of[i] * output : 0.0;
        });
    }
}

// Writes the slopes with respect to theta: grad0 and grad1 (n_outputs,), OUT. theta and table (2, n_outputs) and part of
// chunk_sides, IN. One thread per output and side.
extern "C" __global__ void theta_slopes(
    Samples s, const double *__restrict__ theta, const double *__restrict__ table, const double *__restrict__ part,
    size n_chunks, double *__restrict__ grad0, double *__restrict__ grad1
) {
    const size at = thread_number(), n_sums = 2 * s.n_outputs, mine = at / s.n_outputs;
    if (at >= n_sums) return;
    double sum = 0, weight = 0;
    for (size c = 0; c < n_chunks; ++c) {
        sum += part[c * (n_sums + 2) + at];
        weight += part[c * (n_sums + 2) + n_sums + mine];
    }
    double *const grad = mine ? grad1 : grad0;
    grad[at % s.n_outputs] = slope_of_theta(s, theta, table, at, sum, weight);
}

// --------------------------------------------------------------------------------------------- trees

// Nodes that are split, with samples begin[a] to begin[a + 1] - 1, and the limits of their splits.
struct Nodes {
    const size *begin;         // IN  (n_nodes + 1,)
    const size *u;             // IN  (n,): weights in the units of nodes
    const size *q;             // IN  (n, n_outputs): the same of targets; not read if there are labels
    const size *total;         // IN  (n_nodes, n_outputs + 1): sums of the samples by class or output, and of u
    const double *mean;        // IN  (n_nodes, n_outputs); not read if there are labels
    const size *exponent;      // IN  (n_nodes, 2): of targets and weights in the unit
    const double *root_weight; // IN  (n_nodes,): of the node's tree
    size n_nodes, criterion, min_samples_leaf;
    double min_impurity_decrease, min_weight_fraction_leaf;
};

// w (n_nodes, n_features + 1), 0 before, OUT: univariate splits as stumps. feature and threshold (n_nodes,), IN. One
// thread per node.
extern "C" __global__ void start_stumps(
    const int *__restrict__ feature, const double *__restrict__ threshold, size n_nodes, size n_features,
    real *__restrict__ w
) {
    const size i = thread_number();
    if (i >= n_nodes) return;
    w[i * (n_features + 1) + feature[i]] = 1;
    w[i * (n_features + 1) + n_features] = (real)threshold[i];
}

// limit (n_nodes,), OUT: the next number below each offset of w, so that `<= limit` is equivalent to `w.x < offset`.
// One thread per node.
extern "C" __global__ void limits_of_stumps(
    const real *__restrict__ w, size n_nodes, size n_features, double *__restrict__ limit
) {
    const size i = thread_number();
    if (i >= n_nodes) return;
    const real offset = w[i * (n_features + 1) + n_features], below = offset - magnitude(offset) - 1;
    limit[i] = sizeof(real) == 4 ? (double)nextafterf((float)offset, (float)below) : nextafter((double)offset, (double)below);
}

// right (n,), OUT: the sides of samples, computed as in a prediction: sums in double in the order of the features,
// rounded once. w (n_nodes, n_features + 1) and limit (n_nodes,), IN. One thread per sample of a node that is split.
extern "C" __global__ void stump_sides(
    Samples s, Nodes nodes, const real *__restrict__ w, const double *__restrict__ limit, size *__restrict__ right
) {
    const size i = thread_number(), n_features = s.n_features;
    if (i >= s.n) return;
    const size node = part_with(nodes.begin, nodes.n_nodes, i);
    const real *own = w + node * (n_features + 1), *row = s.x + row_of(s, i) * n_features;
    double sum = 0;
    for (size j = 0; j < n_features; ++j)
        if (own[j] != 0) sum += (double)own[j] * (double)row[j];
    right[i] = (real)sum > limit[node];
}

// The choice for a node: its stump if both sides are large enough, else the univariate split. If the chosen split
// decreases the impurity too little, the node becomes a leaf.
struct Choice {
    size *__restrict__ left;   // workspace (n_nodes, n_outputs)
    size *__restrict__ taken;  // OUT (n_nodes,): 0 a leaf, 1 the univariate split, 2 the stump
    size *__restrict__ n_left; // OUT (n_nodes,): number of samples on the left
    double *__restrict__ gain; // IN and OUT (n_nodes,): of the univariate split; of the stump if it is taken
};

// Writes the choices for nodes. right and univariate (n,), IN: whether a sample goes right by the stump, and by the
// univariate split. One thread per node.
extern "C" __global__ void take_stumps(
    Samples s, Nodes nodes, const size *__restrict__ right, const size *__restrict__ univariate, Choice choice
) {
    const size a = thread_number(), n_outputs = s.n_outputs;
    if (a >= nodes.n_nodes) return;
    const int criterion = (int)nodes.criterion, k = (int)nodes.exponent[2 * a], m = (int)nodes.exponent[2 * a + 1];
    size *__restrict__ sums = choice.left + a * n_outputs;
    const size *all = nodes.total + a * (n_outputs + 1);
    const double *mean = nodes.mean + a * n_outputs;
    const size first = nodes.begin[a], last = nodes.begin[a + 1], n = last - first;
    choice.taken[a] = 0;
    for (int oblique = 1; oblique >= 0; --oblique) {
        const size *side = oblique ? right : univariate;
        size count = 0, u = 0;
        for (size j = 0; j < n_outputs; ++j) sums[j] = 0;
        for (size i = first; i < last; ++i) {
            if (side[i]) continue;
            if (s.has_labels) sums[s.labels[row_of(s, i)]] += nodes.u[i];
            else
                for (size j = 0; j < n_outputs; ++j) sums[j] += nodes.q[i * n_outputs + j];
            u += nodes.u[i];
            ++count;
        }
        const size least = nodes.min_samples_leaf;
        const size rest = all[n_outputs] - u;
        const double left = hf_weight_of(u, m), right = hf_weight_of(rest, m);
        const double lightest = nodes.min_weight_fraction_leaf * nodes.root_weight[a];
        if (oblique && (left < lightest || right < lightest || count < least || n - count < least)) continue;
        const double score = hf_score_in_unit(criterion, sums, NULL, mean, n_outputs, u, m) +
                             hf_score_in_unit(criterion, sums, all, mean, n_outputs, rest, m);
        const double decrease = hf_gain_in_unit(criterion, score, all, n_outputs, k, m);
        const int enough = !(decrease / nodes.root_weight[a] < nodes.min_impurity_decrease);
        choice.taken[a] = enough ? 1 + oblique : 0;
        choice.n_left[a] = count;
        if (oblique) choice.gain[a] = decrease > 0 ? decrease : 0.0;
        break;
    }
}

// ---------------------------------------------------------------------------------- stumps and whole trees

#include "co2/gpu/stumps.cuh"
#include "co2/gpu/trees.cuh"
