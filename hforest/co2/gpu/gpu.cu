// Surrogates and oblique stumps (Norouzi et al. 2015, section 4); trees.cuh has whole trees. Sixteen threads compute a
// product w.x, one per lane of the reference. Sums over samples are those of chunks of HF_CHUNK samples, each in its
// order, added in their order, so results are bit-identical to it.
// fit_stumps is one block per stump: its warps make 249,000 accesses in sequence in the job co2.fit_stump of
// bench/gpu_counts.py. A stump of 20,000 samples of 256 features took 132 ms, where 16 CPU cores take 11.

#include "co2/fit.h"
#include "co2/visits.h"
#include "growth/units.h"

// Threads per product, one per lane; threads per block; products that a block computes at a time.
constexpr int LANES = HF_LANES, BLOCK = 128, TOGETHER = BLOCK / LANES;

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

// Returns the loss of sample i on a side (0 left, 1 right).
__device__ static double loss_of(const Samples &s, const double *theta, const double *table, int side, size i) {
    if (s.has_labels) return table[side * s.n_outputs + s.labels[row_of(s, i)]];
    double sum = 0;
    for (size k = 0; k < s.n_outputs; ++k) {
        const double d = s.targets[row_of(s, i) * s.n_outputs + k] - theta[side * s.n_outputs + k];
        sum += d * d;
    }
    return sum;
}

// Returns output k of sample i: whether it has class k, or its target k.
__device__ static double output_of(const Samples &s, size i, size k) {
    const size row = row_of(s, i);
    return s.has_labels ? (double)(k == s.labels[row]) : s.targets[row * s.n_outputs + k];
}

// Writes the log losses of all classes on one side to the table (eq. 3); nothing for squared losses.
__device__ static void fill_table(const Samples &s, const double *theta, double *table, int side) {
    if (!s.has_labels) return;
    const double *t = theta + side * s.n_outputs;
    double high = t[0], sum = 0;
    for (size k = 1; k < s.n_outputs; ++k) high = t[k] > high ? t[k] : high;
    for (size k = 0; k < s.n_outputs; ++k) sum += hf_exp(t[k] - high);
    const double log_sum = high + hf_log(sum);
    for (size k = 0; k < s.n_outputs; ++k) table[side * s.n_outputs + k] = log_sum - t[k];
}

// Returns the slope with respect to number `at` of theta. sum: the weighted sum of its output over the samples on its
// side; weight: their total weight.
__device__ static double slope_of_theta(
    const Samples &s, const double *theta, const double *table, size at, double sum, double weight
) {
    return s.has_labels ? weight * hf_exp(-table[at]) - sum : 2 * (weight * theta[at] - sum);
}

// Returns the sum of term(a) over first <= a < last: of each chunk in the type of the terms, of the chunks in double.
template <typename Term> __device__ static double sum_chunks(size first, size last, Term term) {
    double sum = 0;
    for (size chunk = first; chunk < last; chunk += HF_CHUNK) {
        auto part = term(chunk);
        for (size a = chunk + 1; a < last && a < chunk + HF_CHUNK; ++a) part = part + term(a);
        sum += part;
    }
    return sum;
}

// Returns w.x. All threads of the block call it, sixteen neighbours with the same row i.
__device__ static real dot(const Samples &s, size i, const real *w, real *lanes) {
    const int lane = threadIdx.x % LANES;
    real sum = 0;
    for (size j = lane; j < width_of(s); j += LANES) sum = sum + number_of(s, i, j) * w[j];
    lanes[threadIdx.x] = sum;
    __syncthreads();
    for (int width = LANES / 2; width >= 1; width /= 2) {
        if (lane < width) lanes[threadIdx.x] = lanes[threadIdx.x] + lanes[threadIdx.x + width];
        __syncthreads();
    }
    const real result = lanes[threadIdx.x - lane];
    __syncthreads();
    return result;
}

// ------------------------------------------------------------------------------ surrogate and gradient

// table (2, n_outputs), OUT; theta (2, n_outputs), IN. One thread per side.
extern "C" __global__ void tables(Samples s, const double *__restrict__ theta, double *__restrict__ table) {
    if (thread_number() < 2) fill_table(s, theta, table, (int)thread_number());
}

// Writes for each sample its term of eq. 10, the side with the larger bound, and the factor of x in the slope: term,
// side and factor (n,), OUT. w (n_features,), theta and table (2, n_outputs), IN.
extern "C" __global__ void terms(
    Samples s, const real *__restrict__ w, const double *__restrict__ theta, const double *__restrict__ table,
    double *__restrict__ term, int *__restrict__ side, real *__restrict__ factor
) {
    __shared__ real lanes[BLOCK];
    const size i = thread_number() / LANES, at = i < s.n ? i : s.n - 1;
    const double p = dot(s, at, w, lanes);
    if (i >= s.n || threadIdx.x % LANES) return;
    const double left = loss_of(s, theta, table, 0, i) - p, right = loss_of(s, theta, table, 1, i) + p;
    term[i] = s.weight[i] * ((left >= right ? left : right) - fabs(p));
    side[i] = !(left >= right);
    const int turn = side[i] ? 1 - ((p > 0) - (p < 0)) : -1 - ((p > 0) - (p < 0));
    factor[i] = (real)(turn * s.weight[i]);
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
    real sum = 0;
    for (size s = first; s < first + HF_CHUNK && s < n; ++s)
        if (factor[s] != 0) sum = sum + x[s * n_features + j] * factor[s];
    slope[i] = sum;
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
            if (side_of[i] != mine) return 0.0;
            return at < n_sums ? weight_of[i] * output_of(s, first + i, at % s.n_outputs) : weight_of[i];
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

// ------------------------------------------------------------------------------------------- a stump

// The workspace of the stump that a block fits.
struct Workspace {
    real *w;            // (width,)
    real *v;            // (width,): the velocity of w
    real *best_w;       // (width,)
    real *factor;       // (n,): factors of x in the slope
    double *theta;      // (2, n_outputs)
    double *speed;      // (2, n_outputs): the velocity of theta
    double *best_theta; // (2, n_outputs)
    double *table;      // (2, n_outputs)
    double *sums;       // (2, n_outputs)
    double *term;       // (n,): terms of eq. 10
    int *order;         // (n,): the shuffled samples
    int *sign;          // (n,): the signs of w.x
    int *side;          // (n,): the side with the larger bound
};

// Writes the terms of eq. 10 in the shuffled order to `term`, and the signs of w.x; returns the surrogate.
__device__ static double surrogate_of(const Samples &s, const Workspace &r, real *lanes, double *shared) {
    for (size first = 0; first < s.n; first += TOGETHER) {
        const size at = first + threadIdx.x / LANES, i = r.order[at < s.n ? at : s.n - 1];
        const double p = dot(s, i, r.w, lanes);
        if (at >= s.n || threadIdx.x % LANES) continue;
        const double left = loss_of(s, r.theta, r.table, 0, i) - p, right = loss_of(s, r.theta, r.table, 1, i) + p;
        r.term[at] = s.weight[i] * ((left >= right ? left : right) - fabs(p));
        r.sign[i] = (p > 0) - (p < 0);
    }
    __syncthreads();
    for (size c = threadIdx.x * (size)HF_CHUNK; c < s.n; c += BLOCK * HF_CHUNK)
        r.term[c] = sum_chunks(c, c + HF_CHUNK < s.n ? c + HF_CHUNK : s.n, [&](size at) { return r.term[at]; });
    __syncthreads();
    if (threadIdx.x == 0) {
        double sum = 0;
        for (size c = 0; c < s.n; c += HF_CHUNK) sum += r.term[c];
        *shared = sum;
    }
    __syncthreads();
    const double value = *shared;
    __syncthreads();
    return value;
}

// Returns the factor that moves a w of this |w|**2 into the ball |w|**2 <= nu.
__device__ static real inside(double square, double nu) {
    return (real)(sqrt(nu / square) * (1 - (sizeof(real) == 4 ? 0x1p-22 : 0x1p-50)));
}

// Projects w onto the ball |w|**2 <= nu (Alg. 1, lines 15 and 16).
__device__ static void project(const Samples &s, const Workspace &r, double nu, double *squares) {
    if (threadIdx.x < LANES) {
        double sum = 0;
        for (size j = threadIdx.x; j < width_of(s); j += LANES) sum += (double)r.w[j] * (double)r.w[j];
        squares[threadIdx.x] = sum;
    }
    __syncthreads();
    for (int width = LANES / 2; width >= 1; width /= 2) {
        if ((int)threadIdx.x < width) squares[threadIdx.x] = squares[threadIdx.x] + squares[threadIdx.x + width];
        __syncthreads();
    }
    const double square = squares[0];
    if (square > nu) {
        const real factor = inside(square, nu);
        for (size j = threadIdx.x; j < width_of(s); j += BLOCK) r.w[j] = r.w[j] * factor;
    }
    __syncthreads();
}

// Writes theta of both sides, from the samples that the signs send there (Alg. 1, line 2).
__device__ static void start_theta(const Samples &s, const Workspace &r, double smooth, double *shared) {
    for (size at = threadIdx.x; at < 2 * s.n_outputs; at += BLOCK)
        r.sums[at] = sum_chunks(0, s.n, [&](size i) {
            return (r.sign[i] >= 0) == (int)(at / s.n_outputs) ? s.weight[i] * output_of(s, i, at % s.n_outputs) : 0.0;
        });
    if (threadIdx.x < 2)
        shared[threadIdx.x] = sum_chunks(0, s.n, [&](size i) {
            return (r.sign[i] >= 0) == (int)threadIdx.x ? s.weight[i] : 0.0;
        });
    __syncthreads();
    double added = 0;
    for (size k = 0; k < s.n_outputs; ++k) added += smooth * (r.sums[k] + r.sums[s.n_outputs + k] > 0 ? 1.0 : HF_ABSENT);
    for (size at = threadIdx.x; at < 2 * s.n_outputs; at += BLOCK) {
        const int side = (int)(at / s.n_outputs);
        const double both = r.sums[at % s.n_outputs] + r.sums[s.n_outputs + at % s.n_outputs];
        if (!s.has_labels) r.theta[at] = shared[side] > 0 ? r.sums[at] / shared[side] : both / shared[1 - side];
        else
            r.theta[at] = hf_log((r.sums[at] + smooth * (both > 0 ? 1.0 : HF_ABSENT)) / (shared[side] + added));
    }
    __syncthreads();
}

// Writes the table of theta.
__device__ static void prepare(const Samples &s, const Workspace &r) {
    if (threadIdx.x < 2) fill_table(s, r.theta, r.table, threadIdx.x);
    __syncthreads();
}

// Takes a step on the samples at places first to last - 1 of an epoch (Alg. 1, lines 6 to 16). The epoch visits places
// start, start + stride, ... of the shuffled order, modulo n.
__device__ static void step(
    const Samples &s, const Workspace &r, size first, size last, size start, size stride, double eta, double momentum,
    double nu, real *lanes, double *shared
) {
    for (size block = first; block < last; block += TOGETHER) {
        const size at = block + threadIdx.x / LANES, place = at < last ? at : last - 1;
        const size i = r.order[(start + stride * place) % s.n];
        const double p = dot(s, i, r.w, lanes);
        if (at >= last || threadIdx.x % LANES) continue;
        const int side = !(loss_of(s, r.theta, r.table, 0, i) - p >= loss_of(s, r.theta, r.table, 1, i) + p);
        r.side[at] = side;
        r.factor[at] = (real)((side ? 1 - r.sign[i] : -1 - r.sign[i]) * s.weight[i]);
    }
    __syncthreads();
    for (size at = threadIdx.x; at < 2 * s.n_outputs; at += BLOCK)
        r.sums[at] = sum_chunks(first, last, [&](size a) {
            if (r.side[a] != (int)(at / s.n_outputs)) return 0.0;
            const size i = r.order[(start + stride * a) % s.n];
            return s.weight[i] * output_of(s, i, at % s.n_outputs);
        });
    if (threadIdx.x < 3) // the weights of both sides, and of all
        shared[threadIdx.x] = sum_chunks(first, last, [&](size a) {
            const bool counts = threadIdx.x == 2 || r.side[a] == (int)threadIdx.x;
            return counts ? s.weight[r.order[(start + stride * a) % s.n]] : 0.0;
        });
    __syncthreads();
    const double rate = eta / shared[2];
    for (size at = threadIdx.x; at < 2 * s.n_outputs; at += BLOCK)
        r.speed[at] = momentum * r.speed[at] - rate * slope_of_theta(s, r.theta, r.table, at, r.sums[at],
                                                                     shared[at / s.n_outputs]);
    for (size j = threadIdx.x; j < width_of(s); j += BLOCK) {
        const real slope = (real)sum_chunks(first, last, [&](size a) {
            return r.factor[a] != 0 ? number_of(s, r.order[(start + stride * a) % s.n], j) * r.factor[a] : (real)0;
        });
        r.v[j] = (real)momentum * r.v[j] + (real)-rate * slope;
        r.w[j] = r.w[j] + r.v[j];
    }
    for (size at = threadIdx.x; at < 2 * s.n_outputs; at += BLOCK) r.theta[at] = r.theta[at] + r.speed[at];
    __syncthreads();
    project(s, r, nu, shared);
    prepare(s, r);
}

// Copies w and theta.
__device__ static void keep(const Samples &s, const real *w, const double *theta, real *to_w, double *to_theta) {
    for (size j = threadIdx.x; j < width_of(s); j += BLOCK) to_w[j] = w[j];
    for (size at = threadIdx.x; at < 2 * s.n_outputs; at += BLOCK) to_theta[at] = theta[at];
    __syncthreads();
}

// Fits stumps (Alg. 1): w (n_stumps, width), IN and OUT; theta (n_stumps, 2, n_outputs), OUT; history (n_stumps,
// max_rounds + 1), OUT: the surrogate at the start and after each round. One block per stump; it has the samples
// first[block] to first[block + 1] - 1. reals (2 n_stumps width + n,), doubles (8 n_stumps n_outputs + n,) and ints
// (3 n,) are workspace, laid out by blocks and samples.
extern "C" __global__ void fit_stumps(
    Samples all, const size *__restrict__ first, const unsigned long long *__restrict__ keys, Schedule a, real *w,
    double *theta, double *history, real *reals, double *doubles, int *ints
) {
    __shared__ real lanes[BLOCK];
    __shared__ double shared[LANES];
    __shared__ size walk[2];
    const size stump = blockIdx.x, from = first[stump], n = first[stump + 1] - from;
    const size width = width_of(all), n_outputs = all.n_outputs;
    const int *const rows = all.has_rows ? all.rows + from : nullptr;
    const Samples s = {
        .x = all.x, .labels = all.labels, .targets = all.targets, .weight = all.weight + from, .rows = rows,
        .has_labels = all.has_labels, .has_rows = all.has_rows, .n = n, .n_features = all.n_features, .n_outputs = n_outputs
    };
    real *v = reals + 2 * stump * width + from;
    double *speed = doubles + 8 * stump * n_outputs + from;
    int *order = ints + 3 * from;
    const Workspace r = {
        .w = w + stump * width, .v = v, .best_w = v + width, .factor = v + 2 * width,
        .theta = theta + 2 * stump * n_outputs, .speed = speed, .best_theta = speed + 2 * n_outputs,
        .table = speed + 4 * n_outputs, .sums = speed + 6 * n_outputs, .term = speed + 8 * n_outputs,
        .order = order, .sign = order + n, .side = order + 2 * n
    };
    const unsigned long long key = keys[stump];
    history += stump * (a.max_rounds + 1);
    if (n < a.min_samples) { // w = 0 separates nothing, so the node keeps the univariate split
        for (size j = threadIdx.x; j < width; j += BLOCK) r.w[j] = 0;
        return;
    }
    for (size j = threadIdx.x; j < width; j += BLOCK) r.v[j] = 0;
    for (size at = threadIdx.x; at < 2 * n_outputs; at += BLOCK) r.theta[at] = r.speed[at] = 0;
    if (threadIdx.x == 0) hf_shuffle(key, (unsigned *)r.order, n);
    __syncthreads();
    project(s, r, a.nu, shared);
    prepare(s, r);
    surrogate_of(s, r, lanes, shared);
    start_theta(s, r, a.smooth, shared);
    prepare(s, r);
    double value = surrogate_of(s, r, lanes, shared), best = value;
    keep(s, r.w, r.theta, r.best_w, r.best_theta);
    if (threadIdx.x == 0) history[0] = value;

    const size batch = a.batch < n ? a.batch : n, n_steps = (n + batch - 1) / batch;
    const size n_epochs = a.tau * n_steps < a.min_steps ? (a.min_steps + n_steps - 1) / n_steps : a.tau;
    double eta = a.eta;
    size waiting = 0, lowered = 0, round = 0;
    unsigned long long epoch = 0;
    while (round < a.max_rounds && lowered < HF_HALVINGS && value > 0) {
        if (round < a.convex_rounds) {
            for (size i = threadIdx.x; i < n; i += BLOCK) r.sign[i] = 0;
            __syncthreads();
        }
        for (size e = 0; e < n_epochs; ++e, ++epoch) {
            if (threadIdx.x == 0) {
                const hf_visits visits = hf_draw_visits(key, epoch, n);
                walk[0] = visits.start;
                walk[1] = visits.stride;
            }
            __syncthreads();
            for (size first = 0; first < n; first += batch)
                step(s, r, first, first + batch < n ? first + batch : n, walk[0], walk[1], eta, a.momentum, a.nu, lanes,
                     shared);
        }
        const double before = value;
        value = surrogate_of(s, r, lanes, shared);
        ++round;
        if (threadIdx.x == 0) history[round] = value;
        if (hf_beats(-value, -best)) {
            best = value;
            keep(s, r.w, r.theta, r.best_w, r.best_theta);
        }
        if (round > a.convex_rounds) waiting += !(value < before - a.tolerance * before);
        if (waiting > a.patience) {
            waiting = 0;
            ++lowered;
            eta = eta * a.decay;
        }
    }
    keep(s, r.best_w, r.best_theta, r.w, r.theta);
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

// --------------------------------------------------------------------------------------- whole trees

#include "co2/gpu/trees.cuh"
