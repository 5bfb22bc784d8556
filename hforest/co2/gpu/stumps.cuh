// Fits oblique stumps (Norouzi et al. 2015, Alg. 1). fit_stumps is one block per stump; a step has these phases, with a
// barrier of the block after each:
//
//     copy_rows, choose_sides     x of the next chunk; products w.x    sixteen threads a row; a warp per OF_WARP
//                                 of this one, sides, factors          samples
//     add_slopes, add_outputs     sums over the samples of a chunk     a thread per column; per sum, from the last one
//     move, read_samples          w and theta; the next chunk          the same; a thread per sample
//     settle                      |w|**2; log losses of both sides     the first warp; the last two
//                                 scales w                             a thread per column
//
// Versions. Counts are of a step of 100 samples of 256 features and ten classes, instructions those of the SASS for sm_90
// (NVRTC 12.9, float32).
//
//   1. Blocks of 128 threads. A stump of 20,000 samples took 132 ms, where 16 CPU cores take 11. Each term of a sum read
//      order, weight and label of its sample from global memory, one after the other, behind a 64-bit remainder: 60 to 70
//      instructions part two additions of slopes, 105 to 113 those of outputs. Requests to global memory 3971, barriers
//      88, registers 180. One thread made the order of the samples, and one added the surrogate.
//   2. A chunk of samples, w and theta are in shared memory, AHEAD terms are read before they are added, warps share the
//      phases, and all threads make the order. 1 to 3 instructions part two additions of slopes, 1 to 7 those of outputs.
//      Requests to global memory 1680, barriers 5, registers 128, of up to 512 threads. It is not timed.
//   3. Where two buffers fit the shared memory of a block (of 227 KB: up to 260 features), rows of x are copied there
//      while the chunk before is visited, and both phases read them there. Requests to global memory 216: 200 of the
//      copies, and 16 of read_samples. Requested sectors 115 KB in place of 224. Passes of shared memory 5463 in place
//      of 3879, 1 % of them by conflicts of banks. A term of the slopes takes 5 instructions in place of 9; 0 to 4 part
//      two additions, because a turn reads some terms between them; those of outputs are as before. Registers 128,
//      shared memory 223 KB. Without buffers the requests are those of version 2. It is not timed.

#include "co2/fit.h"
#include "co2/visits.h"
#include "core/async.cuh"

// Most threads of a block, where a launch has few stumps.
constexpr int STUMP = 512;

// Where blocks have their state: in memory of all blocks or, if n_state is 0, in block_memory behind n_front numbers.
struct Places {
    double *state;                 // (n_stumps, n_state), workspace
    size n_state, n_front, stride; // stride: numbers from one row of a buffer to the next; 0 without buffers
};

// The workspace of the stump that a block fits.
struct Workspace {
    double *slope; // (width,): sums over a batch
    double *sums;  // (2 n_outputs + 3,): sums over a batch of outputs on both sides, then weights of the sides and of all
    double *theta; // (2, n_outputs)
    double *speed; // (2, n_outputs): the velocity of theta
    double *table; // (2, n_outputs)
    real *w;       // (width,)
    real *v;       // (width,): the velocity of w
    double *term;  // (n,): terms of eq. 10
    int *order;    // (n,): the shuffled samples
    int *sign;     // (n,): the signs of w.x
    size stride;   // of Places
};

// Samples of a chunk of a batch: rows of x; n_outputs side + label; signs of w.x at the start of the round; factors of
// x in the slope. With buffers, there are two chunks of at most HF_CHUNK / 2 samples, visited in turn.
__shared__ unsigned row_here[HF_CHUNK], key_here[HF_CHUNK];
__shared__ signed char sign_here[HF_CHUNK];
__shared__ real factor_here[HF_CHUNK];

// Their weights, at the beginning of block_memory. Two buffers of rows of x are behind the weights of both chunks.
__device__ static double &weight_here(int a) { return block_memory[a]; }

// Writes what hf_shuffle writes to order (n,), OUT; head and next (n,) are workspace. All threads of the block call it.
//
// Step i of the shuffle exchanges the numbers at i and at other[i] >= i. So before step i place c has the number that
// place j had before step j, where j < i is the last step with other[j] = c; without such a step it has c. Threads
// follow these steps back. head[c] is any step with other = c, next[j] is one more with the same other as j. Until thread
// i writes order[i], other[i] is there.
__device__ static void shuffle_together(unsigned long long key, int *order, int *head, int *next, size n) {
    for (size i = threadIdx.x; i < n; i += blockDim.x) head[i] = -1;
    for (size four = threadIdx.x; four * 4 < n; four += blockDim.x) {
        const hf_draw draw = hf_philox(key, (uint64_t)four, HF_STREAM_ORDER);
        for (size i = four * 4; i < four * 4 + 4 && i < n; ++i)
            order[i] = (int)(i + hf_below(draw.word[i % 4], (uint32_t)(n - i)));
    }
    __syncthreads();
    for (size i = threadIdx.x; i < n; i += blockDim.x)
        if (order[i] != i) next[i] = atomicExch(head + order[i], (int)i);
    __syncthreads();
    for (size i = threadIdx.x; i < n; i += blockDim.x) {
        int place = order[i], step = (int)i;
        for (int last = 0; last >= 0;) {
            last = -1;
            for (int j = head[place]; j >= 0; j = next[j]) last = j < step && j > last ? j : last;
            if (last >= 0) place = step = last;
        }
        order[i] = place;
    }
    __syncthreads();
}

// Reads a chunk of n samples, of which sample(a) is the number, to places from `at` on; sides are 0.
template <typename Sample>
__device__ static void read_samples(const Samples &s, const Workspace &r, int at, int n, Sample sample) {
    for (int a = threadIdx.x; a < n; a += blockDim.x) {
        const size i = sample(a), row = row_of(s, i);
        row_here[at + a] = (unsigned)row;
        key_here[at + a] = (unsigned)label_of(s, row);
        sign_here[at + a] = (signed char)r.sign[i];
        weight_here(at + a) = s.weight[i];
    }
}

// Begins to copy the rows of x of the n samples from place `at` on to the same places of the buffers.
__device__ static void copy_rows(const Samples &s, int at, int n, real *buffer, int stride) {
    const int lane = threadIdx.x % LANES, n_features = (int)s.n_features, n_bytes = n_features * (int)sizeof(real);
    const bool by_sixteen = (n_bytes | (size)s.x) % sizeof(Sixteen) == 0;
    for (int a = at + threadIdx.x / LANES; a < at + n; a += blockDim.x / LANES) {
        real *const to = buffer + a * stride;
        const real *const from = s.x + (size)row_here[a] * n_features;
        if (by_sixteen) copy_ahead((Sixteen *)to, (const Sixteen *)from, n_bytes / (int)sizeof(Sixteen), lane, LANES);
        else copy_ahead(to, from, n_features, lane, LANES);
    }
}

// Writes the sides with the larger bound of the n samples from place `at` on, and the factors of x (Alg. 1, lines 8 to
// 12). row(a) points to the row of x of sample a of them.
template <typename Row>
__device__ static void choose_sides(const Samples &s, const Workspace &r, int at, int n, Row row) {
    for_products(s, r.w, n, threadIdx.x / WARP, blockDim.x / WARP, row, [&](size i, double p) {
        const int a = at + (int)i, label = (int)key_here[a], sign = sign_here[a];
        const double left = loss_at(s, r.theta, r.table, 0, row_here[a], label) - p;
        const double right = loss_at(s, r.theta, r.table, 1, row_here[a], label) + p;
        const int side = !(left >= right);
        key_here[a] = side * (unsigned)s.n_outputs + label;
        factor_here[a] = (real)((side ? 1 - sign : -1 - sign) * weight_here(a));
    });
}

// Adds outputs and weights of the n samples from place `first` on to r.sums, or writes them there if their chunk is the
// first of its batch. Threads are taken from the last, because the first ones add slopes.
__device__ static void add_outputs(const Samples &s, const Workspace &r, int first, int n, bool is_first) {
    const unsigned n_outputs = (unsigned)s.n_outputs, n_sums = 2 * n_outputs;
    for (unsigned at = blockDim.x - 1 - threadIdx.x; at < n_sums + 3; at += blockDim.x) {
        // The sum is over samples with low <= key < low + span: one output of a side, a side, or both.
        const bool is_output = at < n_sums && s.has_labels;
        const unsigned side = at < n_sums ? at / n_outputs : at - n_sums;
        const unsigned low = is_output ? at : side % 2 * n_outputs, span = is_output ? 1 : side < 2 ? n_outputs : n_sums;
        const double *const targets = s.targets + at % n_outputs;
        const auto weight = [=](int a) { return key_here[first + a] - low < span ? weight_here(first + a) : 0.0; };
        const auto target = [=](int a) { return weight(a) * targets[(size)row_here[first + a] * n_outputs]; };
        const bool has_targets = at < n_sums && !s.has_labels;
        const double sum = has_targets ? sum_ahead(0, n, target) : sum_ahead(0, n, weight);
        r.sums[at] = is_first ? sum : r.sums[at] + sum;
    }
}

// Likewise adds the slopes of w to r.slope.
template <typename Row>
__device__ static void add_slopes(const Samples &s, const Workspace &r, int at, int n, bool is_first, Row row) {
    const unsigned n_features = (unsigned)s.n_features;
    for (unsigned j = threadIdx.x; j < width_of(s); j += blockDim.x) {
        const auto term = [=](int a) { return row(a)[j] * factor_here[at + a]; };
        const auto of_offset = [=](int a) { return -factor_here[at + a]; };
        const real sum = j < n_features ? sum_ahead(0, n, term) : sum_ahead(0, n, of_offset);
        r.slope[j] = is_first ? sum : r.slope[j] + sum;
    }
}

// Chooses the sides of these samples, and adds the slopes of w.
template <typename Row>
__device__ static void visit_samples(const Samples &s, const Workspace &r, int at, int n, bool is_first, Row row) {
    choose_sides(s, r, at, n, row);
    __syncthreads();
    add_slopes(s, r, at, n, is_first, row);
}

// Returns the factor that moves a w of this |w|**2 into the ball |w|**2 <= nu.
__device__ static real inside(double square, double nu) {
    return (real)(sqrt(nu / square) * (1 - (sizeof(real) == 4 ? 0x1p-22 : 0x1p-50)));
}

// Projects w onto the ball |w|**2 <= nu (Alg. 1, lines 15 and 16), and writes the table.
__device__ static void settle(const Samples &s, const Workspace &r, double nu) {
    __shared__ real scale;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, last = blockDim.x / WARP - 1;
    if (warp == 0) {
        double sum = 0;
        for (size j = lane; lane < LANES && j < width_of(s); j += LANES) sum += (double)r.w[j] * (double)r.w[j];
        const double square = fold_lanes(sum);
        if (lane == 0) scale = square > nu ? inside(square, nu) : (real)1;
    }
    if (last - warp < 2) fill_table(s, r.theta, r.table, last - warp, lane, WARP);
    __syncthreads();
    for (size j = threadIdx.x; j < width_of(s); j += blockDim.x) r.w[j] = r.w[j] * scale;
    __syncthreads();
}

// Moves w and theta by r.slope and r.sums (Alg. 1, lines 13 and 14).
__device__ static void move(const Samples &s, const Workspace &r, double eta, double momentum) {
    const int n_outputs = (int)s.n_outputs, n_sums = 2 * n_outputs;
    const double rate = eta / r.sums[n_sums + 2];
    for (int at = blockDim.x - 1 - threadIdx.x; at < n_sums; at += blockDim.x) {
        const double slope = slope_of_theta(s, r.theta, r.table, at, r.sums[at], r.sums[n_sums + at / n_outputs]);
        r.speed[at] = momentum * r.speed[at] - rate * slope;
        r.theta[at] = r.theta[at] + r.speed[at];
    }
    for (size j = threadIdx.x; j < width_of(s); j += blockDim.x) {
        r.v[j] = (real)momentum * r.v[j] + (real)-rate * (real)r.slope[j];
        r.w[j] = r.w[j] + r.v[j];
    }
}

// Takes the steps of an epoch (Alg. 1, lines 5 to 16). It visits places walk[0], walk[0] + walk[1], ... of the shuffled
// order, modulo s.n. Once a chunk is visited, other samples are read to its places: the next chunk or, with buffers,
// the one after.
__device__ static void take_epoch(const Samples &s, const Workspace &r, const Schedule &a, double eta, const size *walk) {
    const int n_all = (int)s.n, batch = (int)(a.batch < s.n ? a.batch : s.n);
    const int most = batch < HF_CHUNK ? batch : HF_CHUNK, stride = (int)r.stride;
    const int second = stride ? (most + 3) & ~3 : 0; // place of the second chunk: four factors of it are read at once
    const unsigned n_features = (unsigned)s.n_features;
    const real *const x = s.x;
    real *const buffer = (real *)&weight_here(2 * second);
    int n_read = 0, end = batch; // of the batch of which samples are read
    const auto read_next = [&](int at) {
        const int n = end - n_read < most ? end - n_read : most;
        read_samples(s, r, at, n, [&](int a) { return r.order[(walk[0] + walk[1] * (n_read + a)) % s.n]; });
        n_read += n;
        if (n_read == end) end += batch < n_all - end ? batch : n_all - end;
        return n;
    };
    int n = read_next(0), n_next = stride ? read_next(second) : 0;
    __syncthreads();
    if (stride) copy_rows(s, 0, n, buffer, stride);
    wait_for_copies();
    __syncthreads();
    bool is_first = true, is_second = false;
    for (int n_visited = 0, last = batch; n_visited < n_all; is_second = !is_second) {
        const int at = is_second ? second : 0;
        if (stride) {
            copy_rows(s, second - at, n_next, buffer, stride);
            visit_samples(s, r, at, n, is_first, [=](int a) { return buffer + (at + a) * stride; });
        } else visit_samples(s, r, at, n, is_first, [=](int a) { return x + (size)row_here[at + a] * n_features; });
        add_outputs(s, r, at, n, is_first);
        __syncthreads();
        n_visited += n;
        is_first = n_visited == last;
        if (is_first) {
            last += batch < n_all - last ? batch : n_all - last;
            move(s, r, eta, a.momentum);
        }
        const int n_read_now = read_next(at);
        n = stride ? n_next : n_read_now;
        n_next = n_read_now;
        wait_for_copies();
        __syncthreads();
        if (is_first) settle(s, r, a.nu);
    }
}

// Writes the terms of eq. 10 in the shuffled order to `term`, and the signs of w.x; returns the surrogate.
__device__ static double surrogate_of(const Samples &s, const Workspace &r) {
    __shared__ double value;
    const auto row = [&](size at) { return s.x + row_of(s, r.order[at]) * s.n_features; };
    for_products(s, r.w, s.n, threadIdx.x / WARP, blockDim.x / WARP, row, [&](size at, double p) {
        const size i = r.order[at];
        const double left = loss_of(s, r.theta, r.table, 0, i) - p, right = loss_of(s, r.theta, r.table, 1, i) + p;
        r.term[at] = s.weight[i] * ((left >= right ? left : right) - fabs(p));
        r.sign[i] = (p > 0) - (p < 0);
    });
    __syncthreads();
    for (size c = threadIdx.x * (size)HF_CHUNK; c < s.n; c += blockDim.x * (size)HF_CHUNK)
        r.term[c] = sum_ahead(c, c + HF_CHUNK < s.n ? c + HF_CHUNK : s.n, [&](size at) { return r.term[at]; });
    __syncthreads();
    if (threadIdx.x == 0)
        value = sum_ahead((size)0, (s.n + HF_CHUNK - 1) / HF_CHUNK, [&](size c) { return r.term[c * HF_CHUNK]; });
    __syncthreads();
    return value;
}

// Writes theta of both sides, from the samples that the signs send there (Alg. 1, line 2).
__device__ static void start_theta(const Samples &s, const Workspace &r, double smooth) {
    for (size first = 0; first < s.n; first += HF_CHUNK) {
        const int n = (int)(s.n - first < HF_CHUNK ? s.n - first : HF_CHUNK);
        read_samples(s, r, 0, n, [=](int a) { return first + a; });
        for (int a = threadIdx.x; a < n; a += blockDim.x) key_here[a] += sign_here[a] >= 0 ? (unsigned)s.n_outputs : 0;
        __syncthreads();
        add_outputs(s, r, 0, n, first == 0);
        __syncthreads();
    }
    const size n_sums = 2 * s.n_outputs;
    double added = 0;
    for (size k = 0; k < s.n_outputs; ++k) added += smooth * (r.sums[k] + r.sums[s.n_outputs + k] > 0 ? 1.0 : HF_ABSENT);
    for (size at = threadIdx.x; at < n_sums; at += blockDim.x) {
        const double *const weight = r.sums + n_sums;
        const int side = (int)(at / s.n_outputs);
        const double both = r.sums[at % s.n_outputs] + r.sums[s.n_outputs + at % s.n_outputs];
        if (!s.has_labels) r.theta[at] = weight[side] > 0 ? r.sums[at] / weight[side] : both / weight[1 - side];
        else r.theta[at] = hf_log((r.sums[at] + smooth * (both > 0 ? 1.0 : HF_ABSENT)) / (weight[side] + added));
    }
    __syncthreads();
}

// Copies w and theta to best_w and best_theta, OUT.
__device__ static void keep(const Samples &s, const Workspace &r, real *best_w, double *best_theta) {
    for (size j = threadIdx.x; j < width_of(s); j += blockDim.x) best_w[j] = r.w[j];
    for (size at = threadIdx.x; at < 2 * s.n_outputs; at += blockDim.x) best_theta[at] = r.theta[at];
}

// Fits stumps (Alg. 1): w (n_stumps, width), IN and OUT; theta (n_stumps, 2, n_outputs), OUT; history (n_stumps,
// max_rounds + 1), OUT: the surrogate at the start and after each round. One block per stump; it has the samples
// first[block] to first[block + 1] - 1. term (n,) and ints (3 n,) are workspace, laid out by samples.
extern "C" __global__ void __launch_bounds__(STUMP, 1) fit_stumps(
    Samples all, const size *__restrict__ first, const unsigned long long *__restrict__ keys, Schedule a, real *w,
    double *theta, double *history, double *term, int *ints, Places places
) {
    __shared__ size walk[2];
    // In registers, their members would spill.
    __shared__ Samples s;
    __shared__ Workspace r;
    const size stump = blockIdx.x, from = first[stump], n = first[stump + 1] - from;
    const size width = width_of(all), n_outputs = all.n_outputs;
    const int *const rows = all.has_rows ? all.rows + from : nullptr;
    if (threadIdx.x == 0) s = {
        .x = all.x, .labels = all.labels, .targets = all.targets, .weight = all.weight + from, .rows = rows,
        .has_labels = all.has_labels, .has_rows = all.has_rows, .n = n, .n_features = all.n_features, .n_outputs = n_outputs
    };
    double *const slope =
        places.n_state ? places.state + stump * places.n_state : block_memory + places.n_front;
    double *const sums = slope + width, *const thetas = sums + 2 * n_outputs + 3;
    real *const moving = (real *)(thetas + 6 * n_outputs);
    int *const order = ints + 3 * from;
    if (threadIdx.x == 0) r = {
        .slope = slope, .sums = sums, .theta = thetas, .speed = thetas + 2 * n_outputs, .table = thetas + 4 * n_outputs,
        .w = moving, .v = moving + width, .term = term + from, .order = order, .sign = order + n,
        .stride = places.stride
    };
    __syncthreads();
    w += stump * width, theta += 2 * stump * n_outputs, history += stump * (a.max_rounds + 1);
    if (n < a.min_samples) { // w = 0 separates nothing, so the node keeps the univariate split
        for (size j = threadIdx.x; j < width; j += blockDim.x) w[j] = 0;
        return;
    }
    for (size j = threadIdx.x; j < width; j += blockDim.x) r.w[j] = w[j], r.v[j] = 0;
    for (size at = threadIdx.x; at < 2 * n_outputs; at += blockDim.x) r.theta[at] = r.speed[at] = 0;
    shuffle_together(keys[stump], r.order, r.sign, order + 2 * n, n);
    const size batch = a.batch < n ? a.batch : n, n_steps = (n + batch - 1) / batch;
    const size n_epochs = a.tau * n_steps < a.min_steps ? (a.min_steps + n_steps - 1) / n_steps : a.tau;
    double eta = a.eta, value = 0, best = 0;
    int waiting = 0, lowered = 0;
    // Round -1 writes theta from the signs of w.x, round 0 is the start.
    for (size round = -1; round < 1 || (round <= a.max_rounds && lowered < HF_HALVINGS && value > 0); ++round) {
        if (round <= 0) settle(s, r, a.nu);
        else if (round <= a.convex_rounds)
            for (size i = threadIdx.x; i < s.n; i += blockDim.x) r.sign[i] = 0;
        for (size e = (round - 1) * n_epochs; round > 0 && e < round * n_epochs; ++e) {
            if (threadIdx.x == 0) {
                const hf_visits visits = hf_draw_visits(keys[stump], (unsigned long long)e, s.n);
                walk[0] = visits.start;
                walk[1] = visits.stride;
            }
            __syncthreads();
            take_epoch(s, r, a, eta, walk);
        }
        const double before = value;
        value = surrogate_of(s, r);
        if (round < 0) {
            start_theta(s, r, a.smooth);
            continue;
        }
        if (threadIdx.x == 0) history[round] = value;
        if (round == 0 || hf_beats(-value, -best)) {
            best = value;
            keep(s, r, w, theta);
        }
        if (round > a.convex_rounds) waiting += !(value < before - a.tolerance * before);
        if (waiting > a.patience) {
            waiting = 0;
            ++lowered;
            eta = eta * a.decay;
        }
    }
}
