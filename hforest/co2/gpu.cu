// Surrogates and oblique stumps (p2 section 4). Sixteen threads sum a product w.x, each a lane of the reference;
// sums over samples run in their order, one thread an element, so the bits are those of the reference.

#include "co2/visits.h"

constexpr int LANES = 16, BLOCK = 128, TOGETHER = BLOCK / LANES;
constexpr int HALVINGS = 3;
constexpr double ABSENT = 0x1p-20;

// Samples and their losses: labels, or targets if `squared`. theta and table are (2, n_outputs). A sample is a row
// of x, or where `rows` is given, rows[i]; it has width = n_features numbers, or one more with the constant -1 at the end.
struct Samples {
    const real *x;
    const int *labels;
    const double *targets, *weight;
    size n, n_features, n_outputs;
    int squared;
    const int *rows;
    size width;
};

__device__ static size row_of(const Samples &s, size i) { return s.rows ? s.rows[i] : i; }

__device__ static real number_of(const Samples &s, size i, size j) {
    return j < s.n_features ? s.x[row_of(s, i) * s.n_features + j] : (real)-1;
}

__device__ static double loss_of(const Samples &s, const double *theta, const double *table, int side, size i) {
    if (!s.squared) return table[side * s.n_outputs + s.labels[row_of(s, i)]];
    double sum = 0;
    for (size k = 0; k < s.n_outputs; ++k) {
        const double d = s.targets[row_of(s, i) * s.n_outputs + k] - theta[side * s.n_outputs + k];
        sum += d * d;
    }
    return sum;
}

__device__ static double output_of(const Samples &s, size i, size k) {
    const size row = row_of(s, i);
    return s.squared ? s.targets[row * s.n_outputs + k] : (double)(k == s.labels[row]);
}

// Writes the log losses of all classes of a side (eq 3).
__device__ static void fill_table(const Samples &s, const double *theta, double *table, int side) {
    if (s.squared) return;
    const double *t = theta + side * s.n_outputs;
    double high = t[0], sum = 0;
    for (size k = 1; k < s.n_outputs; ++k) high = t[k] > high ? t[k] : high;
    for (size k = 0; k < s.n_outputs; ++k) sum += hf_exp(t[k] - high);
    const double log_sum = high + hf_log2(sum) * HF_LN2;
    for (size k = 0; k < s.n_outputs; ++k) table[side * s.n_outputs + k] = log_sum - t[k];
}

__device__ static double slope_of_theta(
    const Samples &s, const double *theta, const double *table, const double *sums, const double *weights, int side,
    size k
) {
    const size at = side * s.n_outputs + k;
    return s.squared ? 2 * (weights[side] * theta[at] - sums[at]) : weights[side] * hf_exp(-table[at]) - sums[at];
}

// w.x by sixteen threads of a block; all threads of the block call it, for rows of their own.
__device__ static real dot(const Samples &s, size i, const real *w, real *lanes) {
    const int lane = threadIdx.x % LANES;
    real sum = 0;
    for (size j = lane; j < s.width; j += LANES) sum = sum + number_of(s, i, j) * w[j];
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

extern "C" __global__ void tables(
    const real *__restrict__ x, const int *__restrict__ labels, size n_outputs, size squared,
    const double *__restrict__ theta, double *__restrict__ table
) {
    const Samples s = {x, labels, nullptr, nullptr, 0, 0, n_outputs, (int)squared, nullptr, 0};
    if (thread_number() < 2) fill_table(s, theta, table, (int)thread_number());
}

// Writes for each sample its term of eq 10, the side of the larger bound, and the factor of x in the slope.
extern "C" __global__ void terms(
    const real *__restrict__ w, const double *__restrict__ theta, const double *__restrict__ table,
    const real *__restrict__ x, const int *__restrict__ labels, const double *__restrict__ targets,
    const double *__restrict__ weight, size n, size n_features, size n_outputs, size squared, double *__restrict__ term,
    int *__restrict__ side, real *__restrict__ factor
) {
    __shared__ real lanes[BLOCK];
    const Samples s = {
        x, labels, targets, weight, n, n_features, n_outputs, (int)squared, nullptr, n_features
    };
    const size i = thread_number() / LANES, at = i < n ? i : n - 1;
    const double p = dot(s, at, w, lanes);
    if (i >= n || threadIdx.x % LANES) return;
    const double left = loss_of(s, theta, table, 0, i) - p, right = loss_of(s, theta, table, 1, i) + p;
    term[i] = weight[i] * ((left >= right ? left : right) - fabs(p));
    side[i] = !(left >= right);
    const int turn = side[i] ? 1 - ((p > 0) - (p < 0)) : -1 - ((p > 0) - (p < 0));
    factor[i] = (real)(turn * weight[i]);
}

extern "C" __global__ void total(const double *__restrict__ term, size n, double *__restrict__ out) {
    if (thread_number() > 0) return;
    double sum = 0;
    for (size i = 0; i < n; ++i) sum += term[i];
    out[0] = sum;
}

// A thread is a feature of a chunk of samples.
extern "C" __global__ void chunk_slopes(
    const real *__restrict__ x, const real *__restrict__ factor, size n, size n_features, size chunk, size n_chunks,
    real *__restrict__ slope
) {
    const size i = thread_number();
    if (i >= n_chunks * n_features) return;
    const size first = i / n_features * chunk, j = i % n_features;
    real sum = 0;
    for (size s = first; s < first + chunk && s < n; ++s)
        if (factor[s] != 0) sum = sum + x[s * n_features + j] * factor[s];
    slope[i] = sum;
}

extern "C" __global__ void chunk_sums(
    const real *__restrict__ slope, size n_features, size n_chunks, double *__restrict__ grad
) {
    const size j = thread_number();
    if (j >= n_features) return;
    double sum = 0;
    for (size c = 0; c < n_chunks; ++c) sum += slope[c * n_features + j];
    grad[j] = sum;
}

// A thread is an output of a side.
extern "C" __global__ void theta_slopes(
    const double *__restrict__ theta, const double *__restrict__ table, const int *__restrict__ side,
    const real *__restrict__ x, const int *__restrict__ labels, const double *__restrict__ targets,
    const double *__restrict__ weight, size n, size n_features, size n_outputs, size squared,
    double *__restrict__ sums, double *__restrict__ grad0, double *__restrict__ grad1
) {
    const Samples s = {
        x, labels, targets, weight, n, n_features, n_outputs, (int)squared, nullptr, n_features
    };
    const size at = thread_number(), k = at % n_outputs;
    if (at >= 2 * n_outputs) return;
    const int mine = (int)(at / n_outputs);
    double sum = 0, weights[2] = {0, 0};
    for (size i = 0; i < n; ++i)
        if (side[i] == mine) {
            sum += weight[i] * output_of(s, i, k);
            weights[mine] += weight[i];
        }
    sums[at] = sum;
    (mine ? grad1 : grad0)[k] = slope_of_theta(s, theta, table, sums, weights, mine, k);
}

// ------------------------------------------------------------------------------------------- a stump

// Workspace of the stump that a block fits.
struct Workspace {
    real *w, *v, *best_w, *factor;
    double *theta, *speed, *best_theta, *table, *sums, *term; // (2, n_outputs) but for term
    int *order, *sign, *side;
};

// Eq 10 in the shuffled order, into term; signs of w.x.
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
    if (threadIdx.x == 0) {
        double sum = 0;
        for (size at = 0; at < s.n; ++at) sum += r.term[at];
        *shared = sum;
    }
    __syncthreads();
    const double value = *shared;
    __syncthreads();
    return value;
}

// Projects w onto the ball (Alg. 1, lines 15 and 16).
__device__ static void project(const Samples &s, const Workspace &r, double nu, double *squares) {
    if (threadIdx.x < LANES) {
        double sum = 0;
        for (size j = threadIdx.x; j < s.width; j += LANES) sum += (double)r.w[j] * (double)r.w[j];
        squares[threadIdx.x] = sum;
    }
    __syncthreads();
    for (int width = LANES / 2; width >= 1; width /= 2) {
        if ((int)threadIdx.x < width) squares[threadIdx.x] = squares[threadIdx.x] + squares[threadIdx.x + width];
        __syncthreads();
    }
    const double square = squares[0];
    if (square > nu) {
        const real factor = (real)(sqrt(nu / square) * (1 - (sizeof(real) == 4 ? 0x1p-22 : 0x1p-50)));
        for (size j = threadIdx.x; j < s.width; j += BLOCK) r.w[j] = r.w[j] * factor;
    }
    __syncthreads();
}

// Alg. 1, line 2.
__device__ static void start_theta(const Samples &s, const Workspace &r, double smooth, double *shared) {
    for (size at = threadIdx.x; at < 2 * s.n_outputs; at += BLOCK) {
        double sum = 0;
        for (size i = 0; i < s.n; ++i)
            if ((r.sign[i] >= 0) == (int)(at / s.n_outputs)) sum += s.weight[i] * output_of(s, i, at % s.n_outputs);
        r.sums[at] = sum;
    }
    if (threadIdx.x < 2) {
        double weight = 0;
        for (size i = 0; i < s.n; ++i)
            if ((r.sign[i] >= 0) == (int)threadIdx.x) weight += s.weight[i];
        shared[threadIdx.x] = weight;
    }
    __syncthreads();
    double added = 0;
    for (size k = 0; k < s.n_outputs; ++k) added += smooth * (r.sums[k] + r.sums[s.n_outputs + k] > 0 ? 1.0 : ABSENT);
    for (size at = threadIdx.x; at < 2 * s.n_outputs; at += BLOCK) {
        const int side = (int)(at / s.n_outputs);
        const double both = r.sums[at % s.n_outputs] + r.sums[s.n_outputs + at % s.n_outputs];
        if (s.squared) r.theta[at] = shared[side] > 0 ? r.sums[at] / shared[side] : both / shared[1 - side];
        else
            r.theta[at] = hf_log2((r.sums[at] + smooth * (both > 0 ? 1.0 : ABSENT)) / (shared[side] + added)) * HF_LN2;
    }
    __syncthreads();
}

__device__ static void prepare(const Samples &s, const Workspace &r) {
    if (threadIdx.x < 2) fill_table(s, r.theta, r.table, threadIdx.x);
    __syncthreads();
}

// A step on the samples at places first to last - 1 of an epoch.
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
    for (size at = threadIdx.x; at < 2 * s.n_outputs; at += BLOCK) {
        double sum = 0;
        for (size a = first; a < last; ++a)
            if (r.side[a] == (int)(at / s.n_outputs)) {
                const size i = r.order[(start + stride * a) % s.n];
                sum += s.weight[i] * output_of(s, i, at % s.n_outputs);
            }
        r.sums[at] = sum;
    }
    if (threadIdx.x == 0) {
        double weight = 0;
        shared[0] = shared[1] = 0;
        for (size a = first; a < last; ++a) {
            const double w = s.weight[r.order[(start + stride * a) % s.n]];
            shared[r.side[a]] += w;
            weight += w;
        }
        shared[2] = eta / weight;
    }
    __syncthreads();
    const double rate = shared[2];
    for (size at = threadIdx.x; at < 2 * s.n_outputs; at += BLOCK) {
        const int side = (int)(at / s.n_outputs);
        r.speed[at] = momentum * r.speed[at] -
                      rate * slope_of_theta(s, r.theta, r.table, r.sums, shared, side, at % s.n_outputs);
    }
    for (size j = threadIdx.x; j < s.width; j += BLOCK) {
        real slope = 0;
        for (size a = first; a < last; ++a)
            if (r.factor[a] != 0) {
                const size i = r.order[(start + stride * a) % s.n];
                slope = slope + number_of(s, i, j) * r.factor[a];
            }
        r.v[j] = (real)momentum * r.v[j] + (real)-rate * slope;
        r.w[j] = r.w[j] + r.v[j];
    }
    for (size at = threadIdx.x; at < 2 * s.n_outputs; at += BLOCK) r.theta[at] = r.theta[at] + r.speed[at];
    __syncthreads();
    project(s, r, nu, shared);
    prepare(s, r);
}

__device__ static void keep(const Samples &s, const real *w, const double *theta, real *to_w, double *to_theta) {
    for (size j = threadIdx.x; j < s.width; j += BLOCK) to_w[j] = w[j];
    for (size at = threadIdx.x; at < 2 * s.n_outputs; at += BLOCK) to_theta[at] = theta[at];
    __syncthreads();
}

// A block fits a stump (Alg. 1) to the samples from first[block] on, up to those of the next; with `rows` they are
// samples of a node, and a constant -1 is implied. Scratch is laid out by blocks and samples.
extern "C" __global__ void fit_stumps(
    const real *__restrict__ x, const int *__restrict__ labels, const double *__restrict__ targets,
    const double *__restrict__ weight, const int *__restrict__ rows, size has_rows, const size *__restrict__ first,
    const unsigned long long *__restrict__ keys, size n_features, size n_outputs, size squared, double nu,
    double eta, double momentum, double decay, double tolerance, double smooth, size tau, size batch,
    size min_steps, size patience, size max_rounds, size convex_rounds, size min_samples, real *w, real *reals,
    double *theta, double *doubles, int *ints, double *history
) {
    __shared__ real lanes[BLOCK];
    __shared__ double shared[LANES];
    __shared__ size walk[2];
    const size stump = blockIdx.x, from = first[stump], n = first[stump + 1] - from, width = n_features + has_rows;
    const Samples s = {
        x, labels, targets, weight + from, n, n_features, n_outputs, (int)squared, has_rows ? rows + from : nullptr, width
    };
    real *v = reals + 2 * stump * width + from;
    double *speed = doubles + 8 * stump * n_outputs + from;
    int *order = ints + 3 * from;
    const Workspace r = {
        w + stump * width, v, v + width, v + 2 * width, theta + 2 * stump * n_outputs, speed, speed + 2 * n_outputs,
        speed + 4 * n_outputs, speed + 6 * n_outputs, speed + 8 * n_outputs, order, order + n, order + 2 * n
    };
    const unsigned long long key = keys[stump];
    history += stump * (max_rounds + 1);
    if (n < min_samples) { // w = 0 separates nothing: the univariate split stays
        for (size j = threadIdx.x; j < width; j += BLOCK) r.w[j] = 0;
        return;
    }
    for (size j = threadIdx.x; j < width; j += BLOCK) r.v[j] = 0;
    for (size at = threadIdx.x; at < 2 * n_outputs; at += BLOCK) r.theta[at] = r.speed[at] = 0;
    if (threadIdx.x == 0) hf_shuffle(key, (unsigned *)r.order, n);
    __syncthreads();
    project(s, r, nu, shared);
    prepare(s, r);
    surrogate_of(s, r, lanes, shared);
    start_theta(s, r, smooth, shared);
    prepare(s, r);
    double value = surrogate_of(s, r, lanes, shared), best = value;
    keep(s, r.w, r.theta, r.best_w, r.best_theta);
    if (threadIdx.x == 0) history[0] = value;

    batch = batch < n ? batch : n;
    const size n_steps = (n + batch - 1) / batch;
    const size n_epochs = tau * n_steps < min_steps ? (min_steps + n_steps - 1) / n_steps : tau;
    size waiting = 0, lowered = 0, round = 0;
    unsigned long long epoch = 0;
    while (round < max_rounds && lowered < HALVINGS && value > 0) {
        if (round < convex_rounds) {
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
                step(s, r, first, first + batch < n ? first + batch : n, walk[0], walk[1], eta, momentum, nu, lanes,
                     shared);
        }
        const double before = value;
        value = surrogate_of(s, r, lanes, shared);
        ++round;
        if (threadIdx.x == 0) history[round] = value;
        if (value < best) {
            best = value;
            keep(s, r.w, r.theta, r.best_w, r.best_theta);
        }
        if (round > convex_rounds) waiting += !(value < before - tolerance * before);
        if (waiting > patience) {
            waiting = 0;
            ++lowered;
            eta = eta * decay;
        }
    }
    keep(s, r.best_w, r.best_theta, r.w, r.theta);
}

// --------------------------------------------------------------------------------------------- trees

// The sides of samples, computed as in a prediction: sums in double in the order of the features, rounded once. A
// thread is a sample of a node that is split.
extern "C" __global__ void stump_sides(
    const real *__restrict__ x, const int *__restrict__ rows, const size *__restrict__ begin, size n_stumps,
    size n_features, const real *__restrict__ w, const real *__restrict__ limit, size n, size *__restrict__ right
) {
    const size i = thread_number();
    if (i >= n) return;
    size low = 0, high = n_stumps;
    while (high - low > 1) {
        const size middle = (low + high) / 2;
        if (begin[middle] <= i) low = middle;
        else high = middle;
    }
    const real *own = w + low * (n_features + 1), *row = x + (size)rows[i] * n_features;
    double sum = 0;
    for (size j = 0; j < n_features; ++j)
        if (own[j] != 0) sum += (double)own[j] * (double)row[j];
    right[i] = (real)sum > limit[low];
}

// Whether a stump leaves both sides enough, and the gain if so; else the univariate split stays, if it gains enough.
// A thread is a node; left: workspace for its sums.
extern "C" __global__ void take_stumps(
    const int *__restrict__ rows, const double *__restrict__ weights, const int *__restrict__ labels,
    const double *__restrict__ targets, size fit_targets, size n_outputs, size criterion, size min_leaf,
    double min_decrease, const size *__restrict__ begin, const size *__restrict__ right,
    const size *__restrict__ univariate, const double *__restrict__ total, const double *__restrict__ mean,
    const double *__restrict__ weight, const double *__restrict__ root_weight, size n_stumps, double *__restrict__ left,
    size *__restrict__ taken, size *__restrict__ n_left, double *__restrict__ gain
) {
    const size a = thread_number();
    if (a >= n_stumps) return;
    double *sums = left + a * n_outputs;
    const double *all = total + a * n_outputs;
    const size n = begin[a + 1] - begin[a];
    taken[a] = 0;
    for (int oblique = 1; oblique >= 0; --oblique) {
        const size *side = oblique ? right : univariate;
        double left_weight = 0;
        size count = 0;
        for (size k = 0; k < n_outputs; ++k) sums[k] = 0;
        for (size i = begin[a]; i < begin[a + 1]; ++i) {
            if (side[i]) continue;
            if (fit_targets)
                for (size k = 0; k < n_outputs; ++k)
                    sums[k] += weights[i] * (targets[rows[i] * n_outputs + k] - mean[a * n_outputs + k]);
            else sums[labels[rows[i]]] += weights[i];
            left_weight += weights[i];
            ++count;
        }
        const double rest = weight[a] - left_weight;
        if (oblique && (count < min_leaf || n - count < min_leaf || !(left_weight > 0 && rest > 0))) continue;
        const double decrease = hf_node_score(criterion, sums, n_outputs, left_weight) +
                                hf_branch_score(criterion, sums, all, n_outputs, rest) -
                                hf_node_score(criterion, all, n_outputs, weight[a]);
        const int enough = !(decrease / root_weight[a] < min_decrease);
        taken[a] = enough ? 1 + oblique : 0; // a leaf, the univariate split, the stump
        n_left[a] = count;
        if (oblique) gain[a] = decrease > 0 ? decrease : 0.0;
        break;
    }
}
