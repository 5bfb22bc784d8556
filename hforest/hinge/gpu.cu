// Random hinge trees and ferns (Lay et al. 2018). A pair is one sample in one tree,
// numbered sample * n_trees + tree. An output element is computed by one block: no sum is shared between
// blocks and no order depends on the size of a block.

// ------------------------------------------------------------------------------------------- routing

// Trees or ferns, the samples that they route, and where the samples go.
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

// Samples that are rows of x.
struct Row {
    const real *row;
    __device__ real operator[](size column) const { return row[column]; }
};

struct Rows {
    const real *x;
    size n_columns;
    __device__ Row at(size sample) const { return Row{x + sample * n_columns}; }
};

// Samples that are windows of images x.
struct Window {
    const real *x;
    const Geometry *windows;
    size sample;
    __device__ real operator[](size tap) const {
        const size place = place_of(*windows, sample, tap);
        return place < 0 ? (real)0 : x[place];
    }
};

struct Images {
    const real *x;
    const Geometry *windows;
    __device__ Window at(size sample) const { return Window{x, windows, sample}; }
};

constexpr int MAX_THREADS = 1024;  // of a block
constexpr int DOT = 8;  // independent partial sums of a dot product, added in the order of the CPU backend

// A margin has
//   Feature, LANES          what features are made of; neighbouring threads that share a value
//   width(n)                of the features of a vertex, for samples of n columns
//   value(f, x, n, lane)    before the threshold is subtracted; all threads of a block come here
//   pull_x(s, f, x, k)      what slope s adds to column k of the gradient with respect to x
//   pull_feature(s, x, k)   likewise, of element k of features that are learned

// A column of x.
struct Column {
    typedef int Feature;
    static constexpr int LANES = 1;
    __device__ static size width(size) { return 1; }
    template <class Sample>
    __device__ static real value(const int *f, const Sample &x, size, int) {
        return x[*f];
    }
};

// An inner product f . x. Thread j of DOT makes partial sum j, so neighbours read neighbouring elements, and each adds
// up all of them.
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

// Lay et al. 2018, Alg. 3; one decision a level at vertex `level` (fern) or down a heap (tree). LANES threads are a
// pair: neighbours are trees of one sample, so they read one row of x and write neighbouring elements. The block is a
// multiple of LANES, and all its threads take every step: those beyond the last pair take that of pair 0.
template <class Margin, class Samples>
__device__ static inline void route(
    const Routing &a, const typename Margin::Feature *features, const Samples &samples
) {
    const size number = thread_number() / Margin::LANES, pair = number < a.n_samples * a.n_trees ? number : 0;
    const int lane = threadIdx.x % Margin::LANES;
    const size tree = pair % a.n_trees, width = Margin::width(a.n_columns);
    const real *t = a.thresholds + tree * a.n_vertices;
    const typename Margin::Feature *f = features + tree * a.n_vertices * width;
    const auto sample = samples.at(pair / a.n_trees);
    real lowest = 0;
    int lowest_vertex = 0, v = 0, bits = 0;
    for (int level = 0; level < a.depth; ++level) {
        const real r = Margin::value(f + v * width, sample, a.n_columns, lane) - t[v];
        // Strictly closer: on equal margins the vertex nearest the root stays.
        if (level == 0 || magnitude(r) < magnitude(lowest)) {
            lowest = r;
            lowest_vertex = v;
        }
        const int right = r > 0;
        bits = 2 * bits + right;
        v = a.fern ? v + 1 : 2 * v + right + 1;
    }
    if (number != pair || lane != 0) return;
    a.leaf[pair] = bits;
    a.margin[pair] = lowest;
    a.vertex[pair] = lowest_vertex;
}

extern "C" __global__ void route_column(
    const real *__restrict__ x, const int *__restrict__ features, Routing a
) {
    route<Column>(a, features, Rows{x, a.n_columns});
}

extern "C" __global__ void route_column_windows(
    const real *__restrict__ x, Geometry windows, const int *__restrict__ features, Routing a
) {
    route<Column>(a, features, Images{x, &windows});
}

extern "C" __global__ void route_projection(
    const real *__restrict__ x, const real *__restrict__ features, Routing a
) {
    route<Projection>(a, features, Rows{x, a.n_columns});
}

extern "C" __global__ void route_projection_windows(
    const real *__restrict__ x, Geometry windows, const real *__restrict__ features, Routing a
) {
    route<Projection>(a, features, Images{x, &windows});
}

// ------------------------------------------------------------------------------------------- outputs

// Lay et al. 2018, eq. 10, trees apart. A thread is an element of y.
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

constexpr int COLUMNS = 32;  // elements of y that a block owns; gpu.py knows this number
constexpr int TREES = 32;    // trees whose outputs a block holds at a time

// Lay et al. 2018, eq. 10, summed over trees in their order. All threads of a block fetch outputs of a tile of trees,
// then the first 32 add them up: the fetches overlap although the sum is in sequence. The block must be
// a multiple of COLUMNS.
extern "C" __global__ void leaf_outputs_sum(
    const int *__restrict__ leaf, const real *__restrict__ margin, const real *__restrict__ weights,
    size n_samples, size n_trees, size n_leaves, size n_outputs, double divisor, real *__restrict__ y
) {
    __shared__ real output[TREES][COLUMNS];
    const int column = threadIdx.x % COLUMNS;
    const size i = (size)blockIdx.x * COLUMNS + column;
    const bool owned = i < n_samples * n_outputs;
    const size first_pair = i / n_outputs * n_trees, k = i % n_outputs;
    double total = 0;
    for (size first = 0; first < n_trees; first += TREES) {
        const int n = (int)(n_trees - first < TREES ? n_trees - first : TREES);
        for (int j = threadIdx.x / COLUMNS; owned && j < n; j += blockDim.x / COLUMNS) {
            const size pair = first_pair + first + j;
            const size row = (first + j) * n_leaves + leaf[pair];
            output[j][column] = weights[row * n_outputs + k] * magnitude(margin[pair]);
        }
        __syncthreads();
        if (owned && threadIdx.x < COLUMNS)
            for (int j = 0; j < n; ++j) total += (double)output[j][column];
        __syncthreads();
    }
    if (owned && threadIdx.x < COLUMNS) y[i] = (real)(total / divisor);
}

// ----------------------------------------------------------------------------------------- gradients

// Where a pair's row of grad_y begins: trees share one row when they are aggregated (grad_trees is 1).
__device__ static inline size grad_row(size pair, size n_trees, size grad_trees, size n_outputs) {
    return (pair / n_trees * grad_trees + pair % n_trees % grad_trees) * n_outputs;
}

// Lay et al. 2018, eq. 11: slope = sgn(r*) w_leaf . dL/dy. A thread is a pair.
extern "C" __global__ void backward_slopes(
    const real *__restrict__ grad_y, const int *__restrict__ leaf, const real *__restrict__ margin,
    const real *__restrict__ weights, size n_samples, size n_trees, size grad_trees, size n_leaves,
    size n_outputs, double divisor, real *__restrict__ slope
) {
    const size pair = thread_number();
    if (pair >= n_samples * n_trees) return;
    const real *w = weights + (pair % n_trees * n_leaves + leaf[pair]) * n_outputs;
    const real *g = grad_y + grad_row(pair, n_trees, grad_trees, n_outputs);
    double part[DOT] = {0, 0, 0, 0, 0, 0, 0, 0};
    size k = 0;
    for (; k + DOT <= n_outputs; k += DOT)
        for (int j = 0; j < DOT; ++j) part[j] += (double)w[k + j] * (double)g[k + j];
    // The bound on j is a constant, so that the partial sums stay in registers.
    for (int j = 0; j < DOT; ++j)
        if (k + j < n_outputs) part[j] += (double)w[k + j] * (double)g[k + j];
    const double dot =
        ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
    slope[pair] = (real)(sign(margin[pair]) * (dot / divisor));
}

constexpr int TILE = 128;  // pairs that a block holds at a time

// Lay et al. 2018, eq. 11 with respect to the input. A block is a sample, a thread owns the features that leave its
// number when divided by the size of the block. Every thread sees every pair, in the order of the trees, and adds those
// of its features.
extern "C" __global__ void backward_x(
    const int *__restrict__ vertex, const int *__restrict__ features, const real *__restrict__ slope,
    size n_trees, size n_vertices, size n_features, real *__restrict__ grad_x
) {
    __shared__ int feature[TILE];
    __shared__ unsigned owner[TILE];
    __shared__ real s[TILE];
    real *sum = grad_x + (size)blockIdx.x * n_features;
    for (size f = threadIdx.x; f < n_features; f += blockDim.x) sum[f] = 0;
    for (size first = 0; first < n_trees; first += TILE) {
        const int n = (int)(n_trees - first < TILE ? n_trees - first : TILE);
        for (int j = threadIdx.x; j < n; j += blockDim.x) {
            const size pair = (size)blockIdx.x * n_trees + first + j;
            feature[j] = features[(first + j) * n_vertices + vertex[pair]];
            owner[j] = feature[j] % blockDim.x;
            s[j] = slope[pair];
        }
        __syncthreads();
        for (int j = 0; j < n; ++j)
            if (owner[j] == threadIdx.x) sum[feature[j]] += s[j];
        __syncthreads();
    }
}

// ------------------------------------------------------------------------- gradients of the parameters

// Sums over the samples of each tree, in their order, as rows: one for each leaf, or for each vertex; an index of -1
// is left out. Dense (start is null): row tree * n_slots + index. Else rows start[tree] to start[tree + 1] - 1 are those
// of the numbers tree * n_slots + index in `rows`, ascending. A pair is sample * sample_step + tree * tree_step. A block
// owns `n_numbers` numbers of the rows of a tree; there are n_parts such blocks for a tree.
struct Sums {
    const int *__restrict__ index;    // IN of a pair: leaf or vertex
    const real *__restrict__ factor;  // IN of a pair: margin or slope
    const size *__restrict__ start;   // IN (n_trees + 1,) or null
    const size *__restrict__ rows;    // IN (n_rows,) or null
    size n_samples, n_trees, sample_step, tree_step, n_slots, width, n_parts, n_numbers;
    double divisor;
    real *__restrict__ sums;          // OUT (n_rows, width)
};

// Of a block's samples, as many as it has threads; `owner` is the warp that adds a sample up, or -1.
__shared__ real factor[MAX_THREADS];
__shared__ int row_in_tree[MAX_THREADS], owner[MAX_THREADS];

// Returns the row of leaf or vertex `index` among those of its tree.
__device__ static inline size row_of(const Sums &a, size tree, int index) {
    if (!a.start) return index;
    size low = a.start[tree], high = a.start[tree + 1] - 1;
    while (low < high) {
        const size middle = (low + high) / 2;
        if (a.rows[middle] < tree * a.n_slots + index) low = middle + 1;
        else high = middle;
    }
    return low - a.start[tree];
}

// Writes the part of the rows of a tree that block number `block` owns, summed in block_memory. All warps see all
// samples; each adds those of its rows, in order. add(sample, factor, k) is what a sample adds to number k of its row.
template <class Term>
__device__ static inline void sum_rows(const Sums &a, size block, const Term &term) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
    const size tree = block / a.n_parts, first = block % a.n_parts * a.n_numbers;
    const size n_rows = a.start ? a.start[tree + 1] - a.start[tree] : a.n_slots;
    const size last = min(n_rows * a.width, first + a.n_numbers);
    for (size i = threadIdx.x; i < last - first; i += blockDim.x) block_memory[i] = 0;
    for (size begin = 0; begin < a.n_samples && first < last; begin += blockDim.x) {
        const size sample = begin + threadIdx.x;
        __syncthreads();
        owner[threadIdx.x] = -1;
        if (sample < a.n_samples) {
            const size pair = sample * a.sample_step + tree * a.tree_step, row = row_of(a, tree, a.index[pair]);
            row_in_tree[threadIdx.x] = (int)row;
            factor[threadIdx.x] = a.factor[pair];
            if (row >= 0 && row * a.width < last && (row + 1) * a.width > first) owner[threadIdx.x] = (int)row % n_warps;
        }
        __syncthreads();
        for (int some = 0; some < 32 * n_warps && begin + some < a.n_samples; some += 32)
            for (unsigned ours = __ballot_sync(~0u, owner[some + lane] == warp); ours; ours &= ours - 1) {
                const int i = some + __ffs(ours) - 1;
                const size place = row_in_tree[i] * a.width - first;  // of the row, from the block's first number
                const size stop = min(a.width, last - first - place);
                for (size k = place < 0 ? lane - place : lane; k < stop; k += 32)
                    block_memory[place + k] += term(begin + i, factor[i], k);
            }
    }
    __syncthreads();
    real *out = a.sums + (a.start ? a.start[tree] : tree * a.n_slots) * a.width + first;
    for (size i = threadIdx.x; i < last - first; i += blockDim.x)
        out[i] = (real)(a.divisor == 1 ? block_memory[i] : block_memory[i] / a.divisor);
}

// The place in its image of the tap that each pair's slope goes to, or -1 in the padding.
extern "C" __global__ void window_places(
    const int *__restrict__ vertex, const int *__restrict__ features, size n_samples, size n_trees, size n_vertices,
    Geometry windows, size n_places, int *__restrict__ places
) {
    const size pair = thread_number();
    if (pair >= n_samples * n_trees) return;
    const size tap = features[pair % n_trees * n_vertices + vertex[pair]];
    const size place = place_of(windows, pair / n_trees, tap);
    places[pair] = place < 0 ? -1 : (int)(place % n_places);
}

// Lay et al. 2018, eq. 11 by the numbers of images, over the windows and trees in their order.
extern "C" __global__ void backward_images(Sums slopes) {
    sum_rows(slopes, blockIdx.x, [](size, real slope, size) { return (double)slope; });
}

// Lay et al. 2018, eq. 11 with respect to the thresholds: r falls as t rises. And eq. 12: |r*| dL/dy. The first blocks
// are those of `leaves`.
extern "C" __global__ void backward_parameters(
    const real *__restrict__ grad_y, size grad_trees, Sums leaves, Sums vertices
) {
    const size n_outputs = leaves.width, n_blocks = leaves.n_trees * leaves.n_parts;
    if (blockIdx.x < n_blocks) {
        const size tree = blockIdx.x / leaves.n_parts % grad_trees;
        sum_rows(leaves, blockIdx.x, [=](size sample, real margin, size k) {
            return (double)magnitude(margin) * (double)grad_y[(sample * grad_trees + tree) * n_outputs + k];
        });
    } else {
        sum_rows(vertices, blockIdx.x - n_blocks, [](size, real slope, size) { return -(double)slope; });
    }
}

// -------------------------------------------------------------------------------------- touched rows

// Each key of a sorted list once. rank counts the distinct keys up to and including a place.
extern "C" __global__ void touched_rows(
    const size *__restrict__ keys, const size *__restrict__ rank, size n, size *__restrict__ rows
) {
    const size i = thread_number();
    if (i < n && (i == 0 || rank[i] != rank[i - 1])) rows[rank[i] - 1] = keys[i];
}

// Samples in each leaf of each tree. Integers: the order in which they are added does not matter.
extern "C" __global__ void leaf_counts(
    const int *__restrict__ leaf, size n_samples, size n_trees, size n_leaves, size *__restrict__ counts
) {
    const size pair = thread_number();
    if (pair >= n_samples * n_trees) return;
    atomicAdd((unsigned long long *)&counts[pair % n_trees * n_leaves + leaf[pair]], 1ull);
}

// ---------------------------------------------------------- gradients of margins that are not a column

// Trees, the slopes of their pairs, and what these pull back to.
struct Pull {
    const int *__restrict__ vertex;  // IN (n_samples, n_trees)
    const real *__restrict__ slope;  // IN (n_samples, n_trees)
    size n_samples, n_columns, n_trees, n_vertices;
};

// Returns the features, of all, of the vertex of a pair.
template <class Margin>
__device__ static inline const typename Margin::Feature *features_of(
    const Pull &a, const typename Margin::Feature *features, size pair
) {
    const size row = pair % a.n_trees * a.n_vertices + a.vertex[pair];
    return features + row * Margin::width(a.n_columns);
}

// Lay et al. 2018, eq. 11 with respect to rows: added in the order of the trees. A thread is an element of grad_x.
template <class Margin>
__device__ static inline void pull_x(
    const Pull &a, const typename Margin::Feature *features, const real *x, real *grad_x
) {
    const size i = thread_number(), k = i % a.n_columns;
    if (i >= a.n_samples * a.n_columns) return;
    const size first = i / a.n_columns * a.n_trees;
    const Row sample = {x + i / a.n_columns * a.n_columns};
    real sum = 0;
    for (size m = 0; m < a.n_trees; ++m)
        sum += Margin::pull_x(a.slope[first + m], features_of<Margin>(a, features, first + m), sample, k);
    grad_x[i] = sum;
}

// The first and the last output position along an axis whose windows may have place i.
__device__ static inline size first_position(size i, size kernel, size stride, size padding, size dilation) {
    const size least = i + padding - dilation * (kernel - 1);
    return least <= 0 ? 0 : (least + stride - 1) / stride;
}

__device__ static inline size last_position(size i, size stride, size padding, size out) {
    const size last = (i + padding) / stride;
    return last < out ? last : out - 1;
}

// The same with respect to images, in float64 in the order of the windows and trees. A thread is a number of an image,
// and goes through the windows that have it.
template <class Margin>
__device__ static inline void pull_images(
    const Pull &a, const Geometry &w, const typename Margin::Feature *features, const real *x, size n_places,
    real *grad_x
) {
    const size place = thread_number();
    if (place >= n_places) return;
    const size i2 = place % w.size2, i1 = place / w.size2 % w.size1, i0 = place / (w.size2 * w.size1) % w.size0;
    const size channel = place / (w.size2 * w.size1 * w.size0) % w.channels;
    const size image = place / (w.size2 * w.size1 * w.size0 * w.channels);
    const size low0 = first_position(i0, w.kernel0, w.stride0, w.padding0, w.dilation0);
    const size low1 = first_position(i1, w.kernel1, w.stride1, w.padding1, w.dilation1);
    const size low2 = first_position(i2, w.kernel2, w.stride2, w.padding2, w.dilation2);
    double total = 0;
    for (size o0 = low0; o0 <= last_position(i0, w.stride0, w.padding0, w.out0); ++o0)
        for (size o1 = low1; o1 <= last_position(i1, w.stride1, w.padding1, w.out1); ++o1)
            for (size o2 = low2; o2 <= last_position(i2, w.stride2, w.padding2, w.out2); ++o2) {
                const size d0 = i0 + w.padding0 - o0 * w.stride0, d1 = i1 + w.padding1 - o1 * w.stride1;
                const size d2 = i2 + w.padding2 - o2 * w.stride2;
                if (d0 % w.dilation0 || d1 % w.dilation1 || d2 % w.dilation2) continue;
                const size tap = ((channel * w.kernel0 + d0 / w.dilation0) * w.kernel1 + d1 / w.dilation1) * w.kernel2
                    + d2 / w.dilation2;
                const size sample = ((image * w.out0 + o0) * w.out1 + o1) * w.out2 + o2;
                const Window window = {x, &w, sample};
                for (size m = 0; m < a.n_trees; ++m) {
                    const size pair = sample * a.n_trees + m;
                    const auto f = features_of<Margin>(a, features, pair);
                    total += (double)Margin::pull_x(a.slope[pair], f, window, tap);
                }
            }
    grad_x[place] = (real)total;
}

// Lay et al. 2018, eq. 11 with respect to features: rows of vertices, summed as thresholds are.
template <class Margin, class Samples>
__device__ static inline void pull_features(const Samples &samples, const Sums &a) {
    sum_rows(a, blockIdx.x, [=](size sample, real slope, size k) {
        return Margin::pull_feature(slope, samples.at(sample), k);
    });
}

extern "C" __global__ void pull_x_projection(
    const real *__restrict__ x, const real *__restrict__ features, Pull a, real *__restrict__ grad_x
) {
    pull_x<Projection>(a, features, x, grad_x);
}

extern "C" __global__ void pull_x_projection_windows(
    const real *__restrict__ x, Geometry windows, const real *__restrict__ features, Pull a, size n_places,
    real *__restrict__ grad_x
) {
    pull_images<Projection>(a, windows, features, x, n_places, grad_x);
}

extern "C" __global__ void pull_features_projection(
    const real *__restrict__ x, size n_columns, Sums a
) {
    pull_features<Projection>(Rows{x, n_columns}, a);
}

extern "C" __global__ void pull_features_projection_windows(
    const real *__restrict__ x, Geometry windows, Sums a
) {
    pull_features<Projection>(Images{x, &windows}, a);
}
