// Gradients of hinge trees and ferns (Lay et al. 2018, eq. 11-12); part of gpu.cu.

// Lay et al. 2018, eq. 11: slope = sgn(r*) w_leaf . dL/dy of a pair; w and g (n_outputs,) are rows.
__device__ static inline real slope_of(real margin, const real *w, const real *g, size n_outputs, double divisor) {
    double part[DOT] = {0, 0, 0, 0, 0, 0, 0, 0};
    size k = 0;
    for (; k + DOT <= n_outputs; k += DOT)
        for (int j = 0; j < DOT; ++j) part[j] += (double)w[k + j] * (double)g[k + j];
    // The bound on j is a constant, so that the partial sums stay in registers.
    for (int j = 0; j < DOT; ++j)
        if (k + j < n_outputs) part[j] += (double)w[k + j] * (double)g[k + j];
    const double dot =
        ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
    return (real)(sign(margin) * (dot / divisor));
}

// Routed samples, and what eq. 11 reads: slopes are those of pairs.
struct Routed {
    const real *__restrict__ grad_y;   // IN (n_samples, grad_trees, n_outputs)
    const int *__restrict__ leaf;      // IN (n_samples, n_trees)
    const real *__restrict__ margin;   // IN (n_samples, n_trees)
    const int *__restrict__ vertex;    // IN (n_samples, n_trees)
    const real *__restrict__ weights;  // IN (n_trees, n_leaves, n_outputs)
    size grad_trees, n_leaves, n_outputs;
    double divisor;
    real *__restrict__ slope;          // OUT (n_samples, n_trees) or null
};

// The slopes that sums over samples read, and a copy of the route or null. A pair is sample * sample_step + tree * tree_step.
struct Pairs {
    int *__restrict__ leaf;     // OUT or null
    real *__restrict__ margin;  // OUT or null
    int *__restrict__ vertex;   // OUT or null
    real *__restrict__ slope;   // OUT
    size n_samples, n_trees, sample_step, tree_step;
};

// Writes and returns the slope of a pair. Trees share a row of grad_y when they are aggregated (grad_trees is 1).
__device__ static inline real write_slope(const Routed &a, const Pairs &to, size sample, size tree) {
    const size pair = sample * to.n_trees + tree, at = sample * to.sample_step + tree * to.tree_step;
    const int leaf = a.leaf[pair];
    const real margin = a.margin[pair];
    const real *w = a.weights + (tree * a.n_leaves + leaf) * a.n_outputs;
    const real *g = a.grad_y + (sample * a.grad_trees + tree % a.grad_trees) * a.n_outputs;
    const real slope = slope_of(margin, w, g, a.n_outputs, a.divisor);
    if (a.slope) a.slope[pair] = slope;
    if (to.leaf) {
        to.leaf[at] = leaf;
        to.margin[at] = margin;
        to.vertex[at] = a.vertex[pair];
    }
    return to.slope[at] = slope;
}

constexpr int TOGETHER = 8;  // samples of neighbouring threads: 32 bytes or more of Pairs; gpu.py knows this number

// A thread is a pair; neighbours are TOGETHER samples of a tree.
extern "C" __global__ void backward_slopes(Routed a, Pairs to) {
    const size i = thread_number(), row = i / TOGETHER / to.n_trees, sample = row * TOGETHER + i % TOGETHER;
    if (sample < to.n_samples) write_slope(a, to, sample, i / TOGETHER % to.n_trees);
}

// Of what a block adds up at a time, an element a thread: numbers, where they go to, and the warps that add them, or -1.
constexpr int ADDING = 512;  // the most threads of such a block; gpu.py knows this number
__shared__ real factor[ADDING];
__shared__ int place[ADDING], owner[ADDING];

// Calls add(i), in order, for the first n elements that this warp owns. All threads of the warp come here.
template <class Add>
__device__ static inline void for_own(int n, const Add &add) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int some = 0; some < n; some += 32)
        for (unsigned own = __ballot_sync(~0u, owner[some + lane] == warp); own; own &= own - 1)
            add(some + __ffs(own) - 1);
}

// Slopes, and eq. 11 with respect to the input. A block is `together` samples, neighbouring threads are those of a tree. A
// warp owns the sums whose place leaves its number when divided by that of the warps, and adds the slopes of theirs, in
// the order of the trees: in block_memory where they fit (is_local is 1).
extern "C" __global__ void backward_x(
    Routed a, Pairs to, const int *__restrict__ features, size n_vertices, size n_features, size together,
    size is_local, real *__restrict__ grad_x
) {
    const size begin = blockIdx.x * together, n = min(together, to.n_samples - begin), n_sums = n * n_features;
    const unsigned i = threadIdx.x % (unsigned)together, each = blockDim.x / (unsigned)together;
    real *const out = grad_x + begin * n_features, *const sum = is_local ? (real *)block_memory : out;
    for (size f = threadIdx.x; f < n_sums; f += blockDim.x) sum[f] = 0;
    for (size first = 0; first < to.n_trees; first += each) {
        const size tree = first + threadIdx.x / (unsigned)together, sample = begin + i;
        __syncthreads();
        owner[threadIdx.x] = -1;
        if (tree < to.n_trees && i < n) {
            const int at = (int)(i * n_features) + features[tree * n_vertices + a.vertex[sample * to.n_trees + tree]];
            place[threadIdx.x] = at;
            factor[threadIdx.x] = write_slope(a, to, sample, tree);
            owner[threadIdx.x] = at % (int)(blockDim.x / 32);
        }
        __syncthreads();
        for_own((int)min((size)blockDim.x, (to.n_trees - first) * together), [=](int j) {
            if (threadIdx.x % 32 == 0) sum[place[j]] += factor[j];
        });
    }
    __syncthreads();
    for (size f = threadIdx.x; is_local && f < n_sums; f += blockDim.x) out[f] = sum[f];
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

// Returns a number that, divided by that of the warps, leaves the warp that adds a row. It counts up within sixteen rows,
// and starts anew for the next (Knuth's multiplicative hash): a fern's leaves with most samples often differ in the first
// decisions alone.
__device__ static inline unsigned owner_of(unsigned row) { return row + (row / 16 * 2654435761u >> 16); }

// Sums n numbers, from `first` on, of the rows of a tree in block_memory. row_of_index(index) is the row, or -1.
// All warps see all samples; each adds those of its rows, in order, and keeps a number in a register while its row stays
// the same. A tile has term.most() samples, term.fetch(begin, n) reads what they add, and term(begin, i, factor, k) is what
// sample begin + i adds to number k of its row.
template <class Row, class Term>
__device__ static inline void sum_rows(
    const Sums &a, size tree, size first, int n, const Row &row_of_index, const Term &term
) {
    const int lane = threadIdx.x % 32, n_warps = blockDim.x / 32, width = (int)a.width;
    for (int i = threadIdx.x; i < n; i += blockDim.x) block_memory[i] = 0;
    for (size begin = 0; begin < a.n_samples && n > 0; begin += term.most()) {
        const int n_tile = (int)min(term.most(), a.n_samples - begin);
        __syncthreads();
        owner[threadIdx.x] = -1;
        if ((int)threadIdx.x < n_tile) {
            const size pair = (begin + threadIdx.x) * a.sample_step + tree * a.tree_step;
            const size row = row_of_index(a.index[pair]), at = row * width - first;
            factor[threadIdx.x] = a.factor[pair];
            place[threadIdx.x] = (int)at;
            if (row >= 0 && at < n && at + width > 0) owner[threadIdx.x] = owner_of((unsigned)row) % n_warps;
        }
        term.fetch(begin, n_tile);
        __syncthreads();
        for (int k = lane; k - lane < width; k += 32) {
            double sum = 0;
            int number = -1;  // of which `sum` is the sum
            for_own(n_tile, [&](int i) {
                const int at = place[i] + k;
                if (k >= width || at < 0 || at >= n) return;
                if (number != at) {
                    if (number >= 0) block_memory[number] = sum;
                    sum = block_memory[number = at];
                }
                sum += term(begin, i, factor[i], k);
            });
            if (number >= 0) block_memory[number] = sum;
        }
    }
    __syncthreads();
}

// Writes gradients: the sums divided by the divisor.
template <class Term>
__device__ static inline void write_rows(const Sums &a, size block, const Term &term) {
    const size tree = block / a.n_parts, first = block % a.n_parts * a.n_numbers;
    const size n_rows = a.start ? a.start[tree + 1] - a.start[tree] : a.n_slots;
    const int n = (int)max((size)0, min(n_rows * a.width - first, a.n_numbers));
    sum_rows(a, tree, first, n, [&](int index) { return row_of(a, tree, index); }, term);
    real *out = a.sums + (a.start ? a.start[tree] : tree * a.n_slots) * a.width + first;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
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

// What samples add that is a function of their numbers alone.
template <class Value>
struct Each {
    Value value;  // of a sample, its factor, and k
    __device__ size most() const { return blockDim.x; }
    __device__ void fetch(size, int) const {}
    __device__ double operator()(size begin, int i, real factor, int k) const { return value(begin + i, factor, k); }
};
template <class Value>
Each(Value) -> Each<Value>;

// Lay et al. 2018, eq. 11 by the numbers of images, over the windows and trees in their order.
extern "C" __global__ void backward_images(Sums slopes) {
    write_rows(slopes, blockIdx.x, Each{[](size, real slope, size) { return (double)slope; }});
}

// Lay et al. 2018, eq. 12: |r*| dL/dy. The rows of grad_y of a tile come to `tile`, unless n_tile is 0.
struct OfLeaf {
    const real *grad_y;
    size grad_trees, tree, n_outputs, n_tile;
    real *tile;
    __device__ size most() const { return n_tile ? n_tile : blockDim.x; }
    __device__ const real *row(size sample) const {
        return grad_y + (sample * grad_trees + tree % grad_trees) * n_outputs;
    }
    __device__ void fetch(size begin, int n) const {
        const unsigned width = (unsigned)n_outputs;
        for (unsigned j = threadIdx.x; n_tile && j < (unsigned)n * width; j += blockDim.x)
            tile[j] = row(begin + j / width)[j % width];
    }
    __device__ double operator()(size begin, int i, real margin, int k) const {
        const real g = n_tile ? tile[i * (int)n_outputs + k] : row(begin + i)[k];
        return (double)magnitude(margin) * (double)g;
    }
};

// Lay et al. 2018, eq. 11 with respect to the thresholds: r falls as t rises.
__device__ static inline auto of_vertex() {
    return Each{[](size, real slope, size) { return -(double)slope; }};
}

// The first blocks are those of the leaves, which hold n_tile rows of grad_y after their sums.
extern "C" __global__ void backward_parameters(
    const real *__restrict__ grad_y, size grad_trees, size n_tile, Sums leaves, Sums vertices
) {
    const size n_blocks = leaves.n_trees * leaves.n_parts, tree = blockIdx.x / leaves.n_parts;
    real *const tile = (real *)(block_memory + leaves.n_numbers);
    if (blockIdx.x < n_blocks)
        write_rows(leaves, blockIdx.x, OfLeaf{grad_y, grad_trees, tree, leaves.width, n_tile, tile});
    else
        write_rows(vertices, blockIdx.x - n_blocks, of_vertex());
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
    write_rows(a, blockIdx.x, Each{[=](size sample, real slope, size k) {
        return Margin::pull_feature(slope, samples.at(sample), k);
    }});
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
