// Steps of Adam without weight decay that update only the rows a batch touches, and the first vertices of each tree
// (Lay et al. 2018, eq. 10-12; Kingma & Ba 2015). Other rows catch up when a batch next reads them. Part of gpu.cu.
//
// adam_route: the thread that first raises the step of a row takes its missed steps, so one integer atomic suffices. It
// reads the features of the next two vertices together with a number of x: of 53 samples and ten levels the longest
// chain of loads is 11 in place of 20, steps 46 -> 55, sectors 25.2 MB as before; left out: thresholds and features of
// the first ten levels in shared memory, 31.1 MB. Counted, not timed.
// adam_parameters reads and writes only rows that move: 13 MB for 53 samples, where a dense step of 1000 such trees
// takes 250 MB.
//
// Versions of adam_parameters, counted by bench/gpu_counts.py: blocks of 512 threads with 83 KB of shared memory took
// 93 of the 160 us of a step as a CUDA graph. Now, not timed: 128 threads and 16 KB, so that 8 blocks in place of 2
// share a multiprocessor; requests to global memory 369,000 -> 268,000, to shared memory 1.60 -> .78 million; lanes 70
// -> 98 %; steps 347 -> 255; sectors the same; a launch less where a row has more than 10,000 outputs. Version 4 of
// sum_rows (gradients.cuh): steps 259 -> 321; requests to shared memory .71 -> .92 million; registers 62 -> 64.

// loss_slopes: outputs, softmax loss and slopes of a sample in one block, so that a step is three launches in place of six,
// with a copy of the labels seven. Steps of all launches 1834 -> 1650, sectors 77.4 -> 73.6 MB; 64 registers, no spills.

#include "hinge/eager.h"
#include "layers/softmax.cuh"

constexpr int RESIDENT = sizeof(real) == 4 ? 2 : 1;  // blocks per multiprocessor; two of float64 would spill registers

// A parameter (n_trees, n_slots, width), its moments, and the last step that each row has taken (n_trees, n_slots).
struct Moved {
    real *param;  // IN and OUT
    real *m;      // IN and OUT
    real *v;      // IN and OUT
    size *last;   // IN and OUT
};

// A step of Adam: its number, and what rate_and_scale of optim/exact.py returns for it.
struct Step {
    size number;
    double rate, scale;
};

// The losses of samples, and their mean; or null.
struct Losses {
    const double *__restrict__ of_samples;  // IN (n_samples,)
    double *__restrict__ mean;              // OUT (1,)
};

// Takes steps from + 1 to `to` of element `at`, whose gradients are zero.
__device__ static inline void catch_up(const Moved &a, size at, size from, size to, const Adam &adam, const Missed &t) {
    take_missed(a.param + at, a.m + at, a.v + at, from, to, adam, t);
}

// Raises `last` to `step` and returns its earlier value. Of several threads, at most one gets a value below `step`.
__device__ static inline size claim(size *last, size step) {
    return (size)atomicMax((unsigned long long *)last, (unsigned long long)step);
}

// Routes samples (Lay et al. 2018, Alg. 3) through trees with missed steps. Thresholds and leaves that a sample reads
// first catch up to step `reach`. One block per tree, one thread per sample. Threads beyond the last sample follow
// sample 0. a.thresholds is null: the thresholds are in `thresholds`. The features of the next vertices are read
// together with a vertex's number of x, so that a level waits for one load.
extern "C" __global__ void adam_route(
    const real *__restrict__ x, const int *__restrict__ features, Routing a, Moved thresholds, Moved weights,
    size n_outputs, size reach, Adam adam, Missed missed
) {
    __shared__ int leaf[MAX_THREADS];
    __shared__ size reached[MAX_THREADS];
    const size tree = blockIdx.x, first_vertex = tree * a.n_vertices, first_leaf = tree << a.depth;
    for (size begin = 0; begin < a.n_samples; begin += blockDim.x) {
        const bool is_sample = begin + threadIdx.x < a.n_samples;
        const size sample = is_sample ? begin + threadIdx.x : 0;
        real lowest = 0;
        int lowest_vertex = 0, v = 0, bits = 0, column = features[first_vertex];
        for (int level = 0; level < a.depth; ++level) {
            const size vertex = first_vertex + v;
            if (v >= HF_EAGER) {  // true for all threads or none, because they are at one level
                // If its first moment is 0, a threshold does not change in missed steps: there is no weight decay.
                const bool lags = thresholds.m[vertex] != 0 && thresholds.last[vertex] < reach;
                __syncthreads();
                if (lags) {
                    const size from = claim(thresholds.last + vertex, reach);
                    if (from < reach) catch_up(thresholds, vertex, from, reach, adam, missed);
                }
                __syncthreads();
            }
            const int next = a.fern ? v + 1 : 2 * v + 1, other = a.fern ? next : next + 1;
            const bool is_last = level + 1 == a.depth;
            const int left_column = is_last ? 0 : features[first_vertex + next];
            const int right_column = is_last ? 0 : features[first_vertex + other];
            const real r = x[sample * a.n_columns + column] - thresholds.param[vertex];
            if (level == 0 || magnitude(r) < magnitude(lowest)) {
                lowest = r;
                lowest_vertex = v;
            }
            const int right = r > 0;
            bits = 2 * bits + right;
            v = right ? other : next;
            column = right ? right_column : left_column;
        }
        leaf[threadIdx.x] = bits;
        reached[threadIdx.x] = claim(weights.last + first_leaf + bits, reach);
        if (is_sample) {
            const size pair = sample * a.n_trees + tree;
            a.leaf[pair] = bits;
            a.margin[pair] = lowest;
            a.vertex[pair] = lowest_vertex;
        }
        __syncthreads();
        for (size i = threadIdx.x; i < blockDim.x * n_outputs; i += blockDim.x) {
            const size j = i / n_outputs, at = (first_leaf + leaf[j]) * n_outputs + i % n_outputs;
            if (reached[j] < reach) catch_up(weights, at, reached[j], reach, adam, missed);
        }
        __syncthreads();
    }
}

// Writes the outputs of each sample (Lay et al. 2018, eq. 10), its softmax loss and the gradient of the mean loss with
// respect to them, the slopes, and grad_x (eq. 11): what leaf_outputs_sum, softmax and backward_x write. y and grad_y
// (n_samples, n_outputs), OUT; losses (n_samples,), OUT. a.grad_y is null. One block per sample, of 32 threads and
// `columns` or more.
extern "C" __global__ void __launch_bounds__(ADDING, 2) loss_slopes(
    const int *__restrict__ labels, Routed a, Pairs to, const int *__restrict__ features, size n_vertices,
    size n_features, size columns, size is_local, real *y, real *grad_y, double *__restrict__ losses,
    real *__restrict__ grad_x
) {
    const size sample = blockIdx.x, K = a.n_outputs;
    y += sample * K;
    grad_y += sample * K;
    for (size first = 0; first < K; first += columns) {
        const unsigned n = (unsigned)min(columns, K - first);
        const double total = sum_of_trees(
            a.leaf, a.margin, a.weights, to.n_trees, a.n_leaves, K, (unsigned)columns, sample * K + first, n
        );
        if (threadIdx.x < n) y[first + threadIdx.x] = (real)(total / a.divisor);
    }
    __syncthreads();
    if (threadIdx.x < HF_WARP) {
        const double loss = softmax_of<Warp>(y, labels[sample], to.n_samples, K, grad_y);
        if (threadIdx.x == 0) losses[sample] = loss;
    }
    __syncthreads();
    const auto grad_of = [=](size, size) { return (const real *)grad_y; };
    write_grad_x(a, to, features, n_vertices, n_features, 1, is_local, grad_x, grad_of);
}

// Sums gradients, and takes a step for the rows that samples touch and the first n_eager rows of each tree. A block
// owns `each` rows of a tree, and numbers those that take the step. Their order does not matter, because each row is
// summed and updated separately. The layout of `numbers`:
//   [0, each)           the number of each row, or -1
//   [each, 2 each)      the row of each number
template <class Term>
__device__ static inline void move_rows(
    const Sums &a, size block, int *numbers, const Term &term, const Moved &moved, size n_eager, const Step &step,
    const Adam &adam, const Missed &missed
) {
    __shared__ int n_moving;
    const size tree = block / a.n_parts, each = (a.n_slots + a.n_parts - 1) / a.n_parts, low = block % a.n_parts * each;
    const int n = (int)min(each, a.n_slots - low), eager = (int)min((size)n, max((size)0, n_eager - low));
    const size tree_row = tree * a.n_slots + low;
    int *const rows = numbers + each;
    if (threadIdx.x == 0) n_moving = eager;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        numbers[i] = i < eager ? i : -1;
        if (i < eager) rows[i] = i;
    }
    __syncthreads();
    const auto number_of = [=](int index) { return index < low || index >= low + n ? -1 : numbers[index - low]; };
    for (size sample = threadIdx.x; sample < a.n_samples; sample += blockDim.x) {
        const size row = a.index[sample * a.sample_step + tree * a.tree_step] - low;
        if (row < 0 || row >= n || atomicCAS(numbers + row, -1, n) != -1) continue;
        const int number = atomicAdd(&n_moving, 1);
        atomicExch(numbers + row, number);
        rows[number] = (int)row;
    }
    __syncthreads();
    const unsigned width = (unsigned)a.width;
    for (size first = 0; first < n_moving * a.width; first += a.n_numbers) {
        const unsigned n_numbers = (unsigned)min(n_moving * a.width - first, a.n_numbers);
        sum_rows(a, tree, first, (int)n_numbers, number_of, term);
        const int *const some = rows + first / width;
        const unsigned skipped = (unsigned)(first % width);
        for (unsigned i = threadIdx.x; i < n_numbers; i += blockDim.x) {
            const unsigned j = (i + skipped) / width;  // 32 bits: a 64-bit division would take as long as the rest
            const size row = tree_row + some[j], at = row * width + (i + skipped) % width;
            const real grad = (real)(block_memory[i] / a.divisor);
            if (low + some[j] >= n_eager) catch_up(moved, at, moved.last[row], step.number - 1, adam, missed);
            adam_one(moved.param + at, grad, moved.m + at, moved.v + at, step.rate, step.scale, adam);
        }
        __syncthreads();
    }
    for (int j = eager + threadIdx.x; j < n_moving; j += blockDim.x) moved.last[tree_row + rows[j]] = step.number;
}

// Computes the gradients with respect to leaf weights and thresholds (Lay et al. 2018, eq. 11-12) from slopes, and
// takes a step of Adam. The first blocks have the leaves. A block behind the last one computes the mean of the losses; it
// has a thread for each sample. The layout of block_memory:
//   sums | n_tile rows of grad_y, for leaves | from double n_before on, the numbers of rows
extern "C" __global__ void __launch_bounds__(ADDING, RESIDENT) adam_parameters(
    const real *__restrict__ grad_y, size n_tile, size n_before, Sums leaves, Sums vertices, Moved weights,
    Moved thresholds, Step step, Adam adam, Missed missed, Losses losses
) {
    const size n_blocks = leaves.n_trees * leaves.n_parts, block = blockIdx.x;
    int *const numbers = (int *)(block_memory + n_before);
    if (block < n_blocks) {
        const OfLeaf term = {
            .grad_y = grad_y, .grad_trees = 1, .tree = 0, .n_outputs = leaves.width, .n_tile = n_tile,
            .tile = (real *)(block_memory + leaves.n_numbers)
        };
        move_rows(leaves, block, numbers, term, weights, 0, step, adam, missed);
    } else if (block == n_blocks + vertices.n_trees * vertices.n_parts) {
        const double mean = mean_of(losses.of_samples, leaves.n_samples);
        if (threadIdx.x == 0) *losses.mean = mean;
    } else {
        const size vertex_block = block - n_blocks;
        move_rows(vertices, vertex_block, numbers, of_vertex(), thresholds, HF_EAGER, step, adam, missed);
    }
}
