// Steps of Adam at the cost of what a batch touches (Lay et al. 2018, eq. 10-12; Kingma & Ba 2015); part of gpu.cu.

constexpr int EAGER = 1023;  // vertices that move at every step: shared.py

// A parameter (n_trees, n_slots, width), its moments, and the steps that its rows have reached (n_trees, n_slots).
struct Moved {
    real *param;  // IN and OUT
    real *m;      // IN and OUT
    real *v;      // IN and OUT
    size *last;   // IN and OUT
};

__device__ static inline void catch_up(const Moved &a, size at, size from, size to, const Adam &adam, const Missed &t) {
    take_missed(a.param + at, a.m + at, a.v + at, from, to, adam, t);
}

// Makes `last` at least `step`; returns what it was. Of several threads one gets less than `step`.
__device__ static inline size claim(size *last, size step) {
    return (size)atomicMax((unsigned long long *)last, (unsigned long long)step);
}

// Lay et al. 2018, Alg. 3, on parameters with missed steps: what the samples read takes its steps up to `reach` first.
// A block is a tree, a thread a sample; threads beyond the last sample take the way of sample 0. a.thresholds is null.
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
        int lowest_vertex = 0, v = 0, bits = 0;
        for (int level = 0; level < a.depth; ++level) {
            const size vertex = first_vertex + v;
            if (v >= EAGER) {  // of all threads: they are at one level
                // Without a first moment a vertex does not move, however many steps it has missed.
                const bool lags = thresholds.m[vertex] != 0 && thresholds.last[vertex] < reach;
                __syncthreads();
                if (lags) {
                    const size from = claim(thresholds.last + vertex, reach);
                    if (from < reach) catch_up(thresholds, vertex, from, reach, adam, missed);
                }
                __syncthreads();
            }
            const real r = x[sample * a.n_columns + features[vertex]] - thresholds.param[vertex];
            if (level == 0 || magnitude(r) < magnitude(lowest)) {
                lowest = r;
                lowest_vertex = v;
            }
            const int right = r > 0;
            bits = 2 * bits + right;
            v = a.fern ? v + 1 : 2 * v + right + 1;
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

// Sums gradients, and moves the rows that samples touch, and the first n_eager of each tree. After a block's sums come
// marks of its rows. `last` of rows that several blocks share is left to adam_reach.
template <class Term>
__device__ static inline void move_rows(
    const Sums &a, size block, const Term &term, const Moved &moved, size n_eager, size step, double rate, double scale,
    const Adam &adam, const Missed &missed
) {
    unsigned char *const seen = (unsigned char *)(block_memory + a.n_numbers);
    for (size i = threadIdx.x; i < a.n_numbers / a.width + 2; i += blockDim.x) seen[i] = 0;
    __syncthreads();
    const size first_row = block % a.n_parts * a.n_numbers / a.width;
    const Part part = sum_rows(a, block, term, [=](int row) { seen[row - first_row] = 1; });
    const size tree_row = part.tree * a.n_slots;
    const unsigned width = (unsigned)a.width, skipped = (unsigned)(part.first - first_row * a.width);
    for (unsigned i = threadIdx.x; i < part.n(); i += blockDim.x) {
        const unsigned j = (i + skipped) / width;  // 64 bits would take as long as the rest
        const size row = first_row + j, at = tree_row * a.width + part.first + i;
        if (row >= n_eager && !seen[j]) continue;
        const real grad = (real)(block_memory[i] / a.divisor);
        if (row >= n_eager) catch_up(moved, at, moved.last[tree_row + row], step - 1, adam, missed);
        adam_one(moved.param + at, grad, moved.m + at, moved.v + at, rate, scale, adam);
    }
    __syncthreads();
    if (a.n_numbers < a.width) return;
    for (size row = first_row + threadIdx.x; row < part.last / a.width; row += blockDim.x)
        if (row >= n_eager && seen[row - first_row]) moved.last[tree_row + row] = step;
}

// Lay et al. 2018, eq. 11-12, and a step of Adam. The slopes are known. The first blocks are those of the leaves.
extern "C" __global__ void adam_parameters(
    const real *__restrict__ grad_y, Sums leaves, Sums vertices, Moved weights, Moved thresholds, size step,
    double rate, double scale, Adam adam, Missed missed
) {
    const size n_blocks = leaves.n_trees * leaves.n_parts, block = blockIdx.x;
    if (block < n_blocks) {
        const OfLeaf term = {grad_y, 1, 0, leaves.width};
        move_rows(leaves, block, term, weights, 0, step, rate, scale, adam, missed);
    } else {
        move_rows(vertices, block - n_blocks, OfVertex{}, thresholds, EAGER, step, rate, scale, adam, missed);
    }
}

// last (n_trees, n_leaves), OUT: `step` for the leaves of samples. A thread is a pair.
extern "C" __global__ void adam_reach(
    const int *__restrict__ leaf, size n_samples, size n_trees, size n_leaves, size step, size *__restrict__ last
) {
    const size pair = thread_number();
    if (pair < n_samples * n_trees) claim(last + pair % n_trees * n_leaves + leaf[pair], step);
}
