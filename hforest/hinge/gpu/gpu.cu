// Random hinge trees and ferns (Lay et al. 2018): routes and outputs of samples; gradients.cuh and steps.cuh have the
// rest. A pair is one sample in one tree; its number is sample * n_trees + tree. One block computes each floating-point
// sum, in an order that does not depend on the size of the block, so that results are bit-identical to the CPU's.
//
// route_column_shared: from 256 samples on half a warp reads one row of x, and writes 64 bytes in a line.
//
// Versions of leaf_outputs_sum, of 53 samples with 1000 trees and ten outputs; none but the first is timed (with
// route_column 39 us as a CUDA graph).
//
//   1. Blocks of 32 outputs: 17 blocks, steps 1129.
//   2. A block has one sample where blocks of 32 outputs would be fewer than multiprocessors: 53 blocks, steps 1065, of
//      which 1000 are the additions in the order of the trees; sectors 3.66 -> 3.82 MB.
//   3. Eight outputs are read before they are added: in the SASS for sm_90 (NVRTC 12.9, float32) one instruction parts two
//      additions, where a turn of the loop had a load, a conversion and an addition. The first warp adds while the others
//      read the outputs of the next trees, 204 at a time in place of 128. Registers 32 -> 30, no spills.

#include "optim/adam.cuh"

// ------------------------------------------------------------------------------------------- routing

// Trees or ferns, the sizes of their samples, and the routes of these samples: of each pair its leaf, its margin of
// least magnitude, and the vertex of this margin.
struct Routing {
    const real *__restrict__ thresholds;  // IN (n_trees, n_vertices)
    size n_samples, n_columns, n_trees, n_vertices, depth, fern;
    int *__restrict__ leaf;               // OUT (n_samples, n_trees)
    real *__restrict__ margin;            // OUT (n_samples, n_trees)
    int *__restrict__ vertex;             // OUT (n_samples, n_trees)
};

// Images and the windows of a kernel on them, as core/windows.py declares them. A sample is a window, a column a tap.
struct Geometry {
    size channels, size0, size1, size2, kernel0, kernel1, kernel2, stride0, stride1, stride2;
    size padding0, padding1, padding2, dilation0, dilation1, dilation2, out0, out1, out2;
};

// Returns the place in x (n_images, image) of a tap of a window, or -1 in the padding.
__device__ static inline size place_of(const Geometry &w, size sample, size tap) {
    const size c = tap % w.kernel2, b = tap / w.kernel2 % w.kernel1;
    const size a = tap / (w.kernel2 * w.kernel1) % w.kernel0, channel = tap / (w.kernel2 * w.kernel1 * w.kernel0);
    const size k = sample % w.out2, j = sample / w.out2 % w.out1, i = sample / (w.out2 * w.out1) % w.out0;
    const size image = sample / (w.out2 * w.out1 * w.out0);
    const size i0 = i * w.stride0 - w.padding0 + a * w.dilation0;
    const size i1 = j * w.stride1 - w.padding1 + b * w.dilation1;
    const size i2 = k * w.stride2 - w.padding2 + c * w.dilation2;
    if (i0 < 0 || i0 >= w.size0 || i1 < 0 || i1 >= w.size1 || i2 < 0 || i2 >= w.size2) return -1;
    return (((image * w.channels + channel) * w.size0 + i0) * w.size1 + i1) * w.size2 + i2;
}

// A sample that is a row of x.
struct Row {
    const real *row;
    __device__ real operator[](size column) const { return row[column]; }
};

// Samples that are the rows of x.
struct Rows {
    const real *x;  // IN (n_samples, n_columns)
    size n_columns;
    __device__ Row at(size sample) const { return Row{.row = x + sample * n_columns}; }
};

// A sample that is a window of an image in x; 0 in the padding.
struct Window {
    const real *x;
    const Geometry *windows;
    size sample;
    __device__ real operator[](size tap) const {
        const size place = place_of(*windows, sample, tap);
        return place < 0 ? (real)0 : x[place];
    }
};

// Samples that are the windows of images.
struct Images {
    const real *x;  // IN (n_images, image)
    const Geometry *windows;
    __device__ Window at(size sample) const { return Window{.x = x, .windows = windows, .sample = sample}; }
};

constexpr int MAX_THREADS = 1024;  // the most threads of a block
constexpr int DOT = 8;  // number of partial sums of a dot product, each of a thread; their order is that of the CPU backend

// The members of a margin. Column lacks the last two: backward_x and backward_images compute its gradient.
//   Feature                 the type of an element of features
//   LANES                   the number of neighbouring threads that compute one value together
//   width(n)                the number of elements of the features of a vertex, for samples of n columns
//   value(f, x, n, lane)    the value from which the threshold is subtracted; all threads of a block call it
//   pull_x(s, f, x, k)      the term of slope s in column k of the gradient with respect to x
//   pull_feature(s, x, k)   the term of slope s in element k of the gradient with respect to learned features

// A column of x; its feature is the column's index.
struct Column {
    typedef int Feature;
    static constexpr int LANES = 1;
    __device__ static size width(size) { return 1; }
    template <class Sample>
    __device__ static real value(const int *f, const Sample &x, size, int) {
        return x[*f];
    }
};

// An inner product f . x. DOT threads compute it together: thread j computes partial sum j, so that neighbouring
// threads read neighbouring elements. Then each thread adds the partial sums.
struct Projection {
    typedef real Feature;
    static constexpr int LANES = DOT;
    __device__ static size width(size n) { return n; }
    template <class Sample>
    __device__ static real value(const real *f, const Sample &x, size n, int lane) {
        __shared__ double parts[MAX_THREADS];
        double sum = 0;
        for (size k = lane; k < n; k += DOT) sum += (double)f[k] * (double)x[k];
        parts[threadIdx.x] = sum;
        __syncthreads();
        const double *part = parts + threadIdx.x - lane;
        const double dot =
            ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
        __syncthreads();
        return (real)dot;
    }
    template <class Sample>
    __device__ static real pull_x(real s, const real *f, const Sample &, size k) {
        return s * f[k];
    }
    template <class Sample>
    __device__ static double pull_feature(real s, const Sample &x, size k) {
        return (double)s * (double)x[k];
    }
};

// Routes a pair (Lay et al. 2018, Alg. 3). At each level, a fern tests vertex `level`, and a tree, in heap order, a
// child of the last vertex. t and f are thresholds and features of the tree. A thread without `writes` only helps in
// value().
template <class Margin, class Sample>
__device__ static inline void walk(
    const Routing &a, const real *t, const typename Margin::Feature *f, const Sample &sample, int lane, size pair,
    bool writes
) {
    const size width = Margin::width(a.n_columns);
    real lowest = 0;
    int lowest_vertex = 0, v = 0, bits = 0;
    for (int level = 0; level < a.depth; ++level) {
        const real r = Margin::value(f + v * width, sample, a.n_columns, lane) - t[v];
        // With `<`, of vertices with equal magnitudes the one nearest the root remains.
        if (level == 0 || magnitude(r) < magnitude(lowest)) {
            lowest = r;
            lowest_vertex = v;
        }
        const int right = r > 0;
        bits = 2 * bits + right;
        v = a.fern ? v + 1 : 2 * v + right + 1;
    }
    if (!writes) return;
    a.leaf[pair] = bits;
    a.margin[pair] = lowest;
    a.vertex[pair] = lowest_vertex;
}

// Routes all pairs. LANES threads per pair. Neighbouring pairs are trees of one sample, so that their threads read one
// row of x and write neighbouring elements. The block size is a multiple of LANES. Threads beyond the last pair compute
// pair 0, because all threads of a block must call value().
template <class Margin, class Samples>
__device__ static inline void route(
    const Routing &a, const typename Margin::Feature *features, const Samples &samples
) {
    const size number = thread_number() / Margin::LANES, pair = number < a.n_samples * a.n_trees ? number : 0;
    const int lane = threadIdx.x % Margin::LANES;
    const size tree = pair % a.n_trees, first = tree * a.n_vertices;
    const typename Margin::Feature *f = features + first * Margin::width(a.n_columns);
    const auto sample = samples.at(pair / a.n_trees);
    walk<Margin>(a, a.thresholds + first, f, sample, lane, pair, number == pair && lane == 0);
}

// Routes rows by columns. A block holds the vertices of `trees_each` trees in block_memory, and routes `samples_each`
// samples through them. Neighbouring threads are trees of one sample.
extern "C" __global__ void route_column_shared(
    const real *__restrict__ x, const int *__restrict__ features, Routing a, size trees_each, size samples_each
) {
    const size n_groups = (a.n_trees + trees_each - 1) / trees_each, tree = blockIdx.x % n_groups * trees_each;
    const size first = blockIdx.x / n_groups * samples_each;
    // 32 bits: 64-bit divisions would take as long as the walks.
    const unsigned n = (unsigned)min(trees_each, a.n_trees - tree);
    const unsigned n_pairs = n * (unsigned)min(samples_each, a.n_samples - first);
    real *const t = (real *)block_memory;
    int *const f = (int *)(t + trees_each * a.n_vertices);
    for (size i = threadIdx.x; i < n * a.n_vertices; i += blockDim.x) {
        t[i] = a.thresholds[tree * a.n_vertices + i];
        f[i] = features[tree * a.n_vertices + i];
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < n_pairs; i += blockDim.x) {
        const size sample = first + i / n, j = i % n, vertex = j * a.n_vertices;
        const Row row = {.row = x + sample * a.n_columns};
        walk<Column>(a, t + vertex, f + vertex, row, 0, sample * a.n_trees + tree + j, true);
    }
}

extern "C" __global__ void route_column(
    const real *__restrict__ x, const int *__restrict__ features, Routing a
) {
    route<Column>(a, features, Rows{.x = x, .n_columns = a.n_columns});
}

extern "C" __global__ void route_column_windows(
    const real *__restrict__ x, Geometry windows, const int *__restrict__ features, Routing a
) {
    route<Column>(a, features, Images{.x = x, .windows = &windows});
}

extern "C" __global__ void route_projection(
    const real *__restrict__ x, const real *__restrict__ features, Routing a
) {
    route<Projection>(a, features, Rows{.x = x, .n_columns = a.n_columns});
}

extern "C" __global__ void route_projection_windows(
    const real *__restrict__ x, Geometry windows, const real *__restrict__ features, Routing a
) {
    route<Projection>(a, features, Images{.x = x, .windows = &windows});
}

// ------------------------------------------------------------------------------------------- outputs

// y (n_samples, n_trees, n_outputs), OUT: the outputs of each tree (Lay et al. 2018, eq. 10). One thread per element.
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

constexpr int COLUMNS = 32;                   // the most elements of y that a block adds at a time
constexpr int OUTPUTS = 8192 / sizeof(real);  // the most outputs of trees that it reads at a time

// Returns, for thread t < n, element at + t of y (n_samples, n_outputs) before its division: the outputs (Lay et al.
// 2018, eq. 10), summed over trees in their order. n is at most n_columns, which is at most COLUMNS. The first warp adds
// the outputs of some trees while the other threads, n_columns or more, read those of the next ones: so reads overlap
// although each sum is sequential. All threads of the block call it.
__device__ static inline double sum_of_trees(
    const int *leaf, const real *margin, const real *weights, size n_trees, size n_leaves, size n_outputs,
    unsigned n_columns, size at, unsigned n
) {
    __shared__ real output[2 * OUTPUTS];
    const unsigned reader = threadIdx.x - 32, row = reader / n_columns, column = reader % n_columns;
    const unsigned n_rows = (blockDim.x - 32) / n_columns, each = OUTPUTS / n_columns;
    const size sample = (at + column) / n_outputs, first_pair = sample * n_trees, k = at + column - sample * n_outputs;
    const bool reads = threadIdx.x >= 32 && row < n_rows && column < n;
    const auto n_from = [=](size first) { return (unsigned)min(n_trees - first, (size)each); };
    const auto read = [=](size first, real *to) {
        for (unsigned j = row; reads && j < n_from(first); j += n_rows) {
            const size pair = first_pair + first + j, leaves = (first + j) * n_leaves;
            to[j * n_columns + column] = weights[(leaves + leaf[pair]) * n_outputs + k] * magnitude(margin[pair]);
        }
    };
    double total = 0;
    read(0, output);
    __syncthreads();
    for (size first = 0, half = 0; first < n_trees; first += each, half = OUTPUTS - half) {
        if (first + each < n_trees) read(first + each, output + OUTPUTS - half);
        const auto term = [=](unsigned j) { return (double)output[half + j * n_columns + threadIdx.x]; };
        if (threadIdx.x < n) total = sum_ahead(0u, n_from(first), term, total);
        __syncthreads();
    }
    return total;
}

// y (n_samples, n_outputs), OUT: the outputs (Lay et al. 2018, eq. 10), summed over trees in their order, and divided. A
// block has `columns` elements of y, and 32 threads and a multiple of `columns`.
extern "C" __global__ void leaf_outputs_sum(
    const int *__restrict__ leaf, const real *__restrict__ margin, const real *__restrict__ weights,
    size n_samples, size n_trees, size n_leaves, size n_outputs, size columns, double divisor, real *__restrict__ y
) {
    const size at = blockIdx.x * columns, n = min(columns, n_samples * n_outputs - at);
    const double total = sum_of_trees(
        leaf, margin, weights, n_trees, n_leaves, n_outputs, (unsigned)columns, at, (unsigned)n
    );
    if (threadIdx.x < n) y[at + threadIdx.x] = (real)(total / divisor);
}

// -------------------------------------------------------------------------------------- touched rows

// Finds the distinct values of each column of index (n_samples, n_trees), IN, in two launches. Values are below
// n_slots. Without `writes`: counts (n_trees,), OUT, are the numbers of distinct values. With `writes`: counts is IN;
// start (n_trees + 1,) and rows are OUT, and rows has tree * n_slots + value, ascending, from start[tree] on. One block
// per tree. block_memory holds n_words words; each bit marks one value, so that a pass covers 32 * n_words values.
extern "C" __global__ void touched_rows(
    const int *__restrict__ index, size n_samples, size n_trees, size n_slots, size n_words, size writes,
    size *__restrict__ counts, size *__restrict__ start, size *__restrict__ rows
) {
    __shared__ size sums[MAX_THREADS];
    unsigned *const words = (unsigned *)block_memory;
    const size tree = blockIdx.x, each = (n_words + blockDim.x - 1) / blockDim.x;  // words of a thread
    const size first = min(n_words, each * threadIdx.x), last = min(n_words, first + each);
    size done = 0;  // rows written before, by this block and those of earlier trees
    for (size m = threadIdx.x; writes && m < tree; m += blockDim.x) done += counts[m];
    sum_before(done, sums);
    done = sums[blockDim.x - 1];
    if (writes && threadIdx.x == 0) start[tree] = done;
    for (size low = 0; low < n_slots; low += 32 * n_words) {
        for (size i = first; i < last; ++i) words[i] = 0;
        __syncthreads();
        for (size sample = threadIdx.x; sample < n_samples; sample += blockDim.x) {
            const size value = index[sample * n_trees + tree] - low;
            if (value >= 0 && value < 32 * n_words) atomicOr(words + value / 32, 1u << value % 32);
        }
        __syncthreads();
        size own = 0;
        for (size i = first; i < last; ++i) own += __popc(words[i]);
        size place = done + sum_before(own, sums);
        done += sums[blockDim.x - 1];
        for (size i = first; writes && i < last; ++i)
            for (unsigned bits = words[i]; bits; bits &= bits - 1)
                rows[place++] = tree * n_slots + low + 32 * i + __ffs(bits) - 1;
        __syncthreads();
    }
    if (threadIdx.x > 0) return;
    if (!writes) counts[tree] = done;
    else if (tree == n_trees - 1) start[n_trees] = done;
}

// counts (n_trees, n_leaves), 0 before, OUT: the number of samples in each leaf. One thread per pair. The order of the
// additions does not matter, because the counts are integers.
extern "C" __global__ void leaf_counts(
    const int *__restrict__ leaf, size n_samples, size n_trees, size n_leaves, size *__restrict__ counts
) {
    const size pair = thread_number();
    if (pair >= n_samples * n_trees) return;
    atomicAdd((unsigned long long *)&counts[pair % n_trees * n_leaves + leaf[pair]], 1ull);
}

#include "hinge/gpu/gradients.cuh"
#include "hinge/gpu/steps.cuh"
