// Gradients of hinge trees and ferns (Lay et al. 2018, eq. 11-12); part of gpu.cu. A block owns a tree, or a part of
// its rows, in shared memory, and adds the samples in their order: so results are bit-identical to the CPU's, without a
// sort or a float atomic. MNIST's trees (1024 leaves, ten outputs) are one part on an H100, two on an A100.
//
// Versions of backward_parameters and backward_x, of 1000 samples and 100 trees, counted by bench/gpu_counts.py. On
// record are 8.7 ms for 10,000 samples and 1000 trees, of which backward_parameters took 7.8, before all of them; none
// is timed.
//
//   1. The loop that adds samples reads no global memory: requests to it 122,000 -> 53,000; lanes 43 -> 99 %; steps
//      3764 -> 2522, of ferns 4799 -> 4509; sectors the same.
//   2. Warps own rows by a hash that starts anew for each sixteen rows (owner_of). A warp owned each 16th row: the
//      leaves of a fern that end with the same decisions. Steps 2522 -> 2333, of ferns 4509 -> 2454. The warp with most
//      adds on average 344 samples of a tree (343 before) and 335 of a fern (566), where the leaf with most has 313 and
//      315. So rows dealt to warps by their counts could save 9 and 6 % at most, and half a warp a row 5 and 2 %: left
//      out.
//   3. A block of backward_x has eight samples in place of one, and writes leaf, margin, vertex and slope with trees
//      first, so that backward_parameters reads whole sectors: 44 bytes of a pair in place of 144. Sectors 32.4 -> 18.4
//      MB; bytes used in backward_parameters 38 -> 100 %, in backward_x 63 -> 76 % (a leaf's weights are 40 bytes of
//      two sectors), in both 49 -> 85 %; lanes of backward_x 82 -> 100 %; launches 2, as before. Its steps are 103 ->
//      438, in 125 blocks in place of 1000, of which an H100 holds 264 at a time by registers. Memory: 12 bytes a pair
//      more for float32, 16 for projections and windows, whose slopes backward_slopes writes to the same arrays.
//   4. A warp lists its samples of a tile, reads AHEAD of them together, then adds these in order (sum_rows). In the
//      SASS for sm_90 (NVRTC 12.9, float32), 9 or 10 instructions part two additions of leaves, 11 to 14 those of
//      vertices; 6 of them run at a change of row. Before, a turn of the loop had 35: a load of the place, a branch on
//      it, two loads, a product and the addition. Steps of backward_parameters 2333 -> 3177, of ferns 2454 -> 3327;
//      requests to shared memory .79 -> 1.24 million; registers 56 -> 64, static shared memory 6144 -> 7232 bytes: two
//      blocks per multiprocessor, as before. pull_features_projection_windows has 92 registers, so one block, in place
//      of 64.
//   5. In backward_x each thread of a warp adds the slopes of its own places, from the list of sum_rows; ballots of the
//      bits of their owners say which are its own. Before, one thread added those of a warp in turn. Steps of
//      backward_x 438 -> 259, of ferns 447 -> 250, of 53 samples and 1000 trees 464 -> 282; passes of shared memory
//      512,000 -> 427,000, of which 116,000 are conflicts of banks; registers 56 -> 64, static shared memory 6144 ->
//      7232 bytes: two blocks per multiprocessor, as before.
//   Left out: a block for the leaves and the vertices of a tree, eight warps each. They read no common array but
//      grad_y's; the fullest warp has 386 samples of leaves in place of 345, of ferns 447 in place of 336, of vertices
//      353 in place of 300; the blocks are half as many.
//   Left out: addresses of shared arrays taken once. SASS for sm_90 takes three in a turn of four vertices, two of
//      leaves, all before the first addition, and none in adam_parameters. With pointers 26, 20 and 20 instructions
//      part additions of vertices, with an added base 15, 13 and 13, in place of 14, 12 and 11.
//
// With fewer than 1000 samples, or eight rows of x of more than a quarter of the shared memory of a block, a block of
// backward_x has one sample, and backward_parameters reads the arrays of the route.

// Returns the slope of a pair, sgn(r*) w . dL/dy / divisor (Lay et al. 2018, eq. 11). w (n_outputs,) is the row of its
// leaf, g (n_outputs,) that of its sample.
__device__ static inline real slope_of(real margin, const real *w, const real *g, size n_outputs, double divisor) {
    double part[DOT] = {};
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

// The routes of samples, and the arrays from which eq. 11 computes the slopes of pairs.
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

// The slopes for sums over samples, and a copy of the route or null. These arrays have their own layout: the place of a
// pair is sample * sample_step + tree * tree_step.
struct Pairs {
    int *__restrict__ leaf;     // OUT or null
    real *__restrict__ margin;  // OUT or null
    int *__restrict__ vertex;   // OUT or null
    real *__restrict__ slope;   // OUT
    size n_samples, n_trees, sample_step, tree_step;
};

// Returns the row of grad_y of a pair. If grad_trees is 1, the outputs of trees are summed, and trees share a row.
__device__ static inline const real *row_of_pair(const Routed &a, size sample, size tree) {
    return a.grad_y + (sample * a.grad_trees + tree % a.grad_trees) * a.n_outputs;
}

// Writes and returns the slope of a pair, whose gradient with respect to y is g (n_outputs,).
__device__ static inline real write_slope(const Routed &a, const Pairs &to, size sample, size tree, const real *g) {
    const size pair = sample * to.n_trees + tree, at = sample * to.sample_step + tree * to.tree_step;
    const int leaf = a.leaf[pair];
    const real margin = a.margin[pair];
    const real *w = a.weights + (tree * a.n_leaves + leaf) * a.n_outputs;
    const real slope = slope_of(margin, w, g, a.n_outputs, a.divisor);
    if (a.slope) a.slope[pair] = slope;
    if (to.leaf) {
        to.leaf[at] = leaf;
        to.margin[at] = margin;
        to.vertex[at] = a.vertex[pair];
    }
    return to.slope[at] = slope;
}

// The number of samples of neighbouring threads, which so write 32 bytes or more of Pairs.
constexpr int TOGETHER = 8;

// Writes the slopes. One thread per pair; neighbouring threads are TOGETHER samples of one tree.
extern "C" __global__ void backward_slopes(Routed a, Pairs to) {
    const size i = thread_number(), row = i / TOGETHER / to.n_trees, sample = row * TOGETHER + i % TOGETHER;
    const size tree = i / TOGETHER % to.n_trees;
    if (sample < to.n_samples) write_slope(a, to, sample, tree, row_of_pair(a, sample, tree));
}

// A block that sums adds one tile of samples at a time, one element per thread: factor is the number that it adds,
// place the index of the sum, and owner the thread that adds it, the first of a warp that adds it together, or NOBODY.
constexpr int ADDING = 512;  // the most threads of such a block
constexpr unsigned NOBODY = ADDING;
__shared__ real factor[ADDING];
__shared__ int place[ADDING];
__shared__ unsigned owner[ADDING];

// The elements of a tile by the warps that own them, those of a warp in ascending order, and how many each warp owns.
__shared__ unsigned short listed[ADDING];
__shared__ int n_own[ADDING / 32];

// Writes `listed` and n_own for a tile of n elements; returns the place in `listed` of the first element of this warp.
// All threads of the block call it. A thread may read what its warp wrote.
__device__ static inline int list_own(int n) {
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int count = 0, first = 0;
    for (int some = 0; some < n; some += 32) count += __popc(__ballot_sync(~0u, owner[some + lane] / 32 == warp));
    if (lane == 0) n_own[warp] = count;
    __syncthreads();
    for (unsigned w = 0; w < warp; ++w) first += n_own[w];
    int at = first;
    for (int some = 0; some < n; some += 32) {
        const unsigned own = __ballot_sync(~0u, owner[some + lane] / 32 == warp);
        if (own >> lane & 1) listed[at + __popc(own & ((1u << lane) - 1))] = (unsigned short)(some + lane);
        at += __popc(own);
    }
    __syncwarp();
    return first;
}

// Writes the slopes, and grad_x (n_samples, n_features), OUT: the gradient with respect to rows, for margins that are
// columns (Lay et al. 2018, eq. 11). A block has `together` samples, which are neighbouring threads of one tree;
// grad_of(sample, tree) is the row of grad_y of a pair. Of n warps, that of place % n has the sum at a place, and its
// thread place / n % 32 adds the slopes, in the order of the trees. The sums are in block_memory if they fit (is_local is
// 1), else in grad_x. All threads of the block call it.
template <class Grad>
__device__ static inline void write_grad_x(
    const Routed &a, const Pairs &to, const int *features, size n_vertices, size n_features, size together,
    size is_local, real *grad_x, const Grad &grad_of
) {
    const size begin = blockIdx.x * together, n = min(together, to.n_samples - begin), n_sums = n * n_features;
    const unsigned i = threadIdx.x % (unsigned)together, each = blockDim.x / (unsigned)together;
    const unsigned lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
    real *const sum = is_local ? (real *)block_memory : grad_x + begin * n_features;
    for (size f = threadIdx.x; f < n_sums; f += blockDim.x) sum[f] = 0;
    for (size first = 0; first < to.n_trees; first += each) {
        const size tree = first + threadIdx.x / (unsigned)together, sample = begin + i;
        __syncthreads();
        owner[threadIdx.x] = NOBODY;
        if (tree < to.n_trees && i < n) {
            const int at = (int)(i * n_features) + features[tree * n_vertices + a.vertex[sample * to.n_trees + tree]];
            place[threadIdx.x] = at;
            owner[threadIdx.x] = (unsigned)at % n_warps * 32 + (unsigned)at / n_warps % 32;
            factor[threadIdx.x] = write_slope(a, to, sample, tree, grad_of(sample, tree));
        }
        __syncthreads();
        const int own = list_own((int)min((size)blockDim.x, (to.n_trees - first) * together));
        const int last = own + n_own[threadIdx.x / 32];
        for (int j = own; j < last; j += 32) {
            const unsigned adder = owner[listed[min(j + (int)lane, last - 1)]];
            unsigned mine = __ballot_sync(~0u, j + (int)lane < last);  // of 32 elements, those of this thread
            for (int bit = 0; bit < 5; ++bit) {
                const unsigned set = __ballot_sync(~0u, adder >> bit & 1);
                mine &= lane >> bit & 1 ? set : ~set;
            }
            for (; mine; mine &= mine - 1) {
                const int k = listed[j + __ffs(mine) - 1];
                sum[place[k]] += factor[k];
            }
        }
    }
    __syncthreads();
    for (size f = threadIdx.x; is_local && f < n_sums; f += blockDim.x) grad_x[begin * n_features + f] = sum[f];
}

// Writes the slopes, and grad_x: see write_grad_x.
extern "C" __global__ void __launch_bounds__(ADDING, 2) backward_x(
    Routed a, Pairs to, const int *__restrict__ features, size n_vertices, size n_features, size together,
    size is_local, real *__restrict__ grad_x
) {
    const auto grad_of = [&](size sample, size tree) { return row_of_pair(a, sample, tree); };
    write_grad_x(a, to, features, n_vertices, n_features, together, is_local, grad_x, grad_of);
}

// ------------------------------------------------------------------------- gradients of the parameters

// Sums over the samples of each tree, in their order. Each leaf, or each vertex, has a row of `width` sums. The place
// of a pair is sample * sample_step + tree * tree_step.
//   dense (start is null)   the row of `index` is tree * n_slots + index; pairs with index -1 are omitted
//   sparse                  rows start[tree] to start[tree + 1] - 1 belong to the numbers tree * n_slots + index that
//                           `rows` lists in ascending order
// n_parts blocks share a tree; each computes `n_numbers` of its sums.
struct Sums {
    const int *__restrict__ index;    // IN: the leaf or vertex of each pair
    const real *__restrict__ factor;  // IN: the margin or slope of each pair
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

// Returns a number which, modulo the number of warps, is the warp that adds a row. Sixteen neighbouring rows have
// consecutive numbers; a multiplicative hash (Knuth) sets the first of them. Without the hash, one warp could own most
// samples of a fern, because its fullest leaves often differ in their first decisions alone.
__device__ static inline unsigned owner_of(unsigned row) { return row + (row / 16 * 2654435761u >> 16); }

constexpr int AHEAD = 4;  // samples that a warp reads before it adds them; eight would spill registers

// Writes sums `first` to first + n - 1 of a tree to block_memory. row_of_index(index) is the row of a leaf or vertex,
// or -1. A warp adds the samples of its rows in order, and reads AHEAD of them before it adds. A sum stays in a
// register while successive samples have the same row. The members of a term:
//   most()                   the most samples of a tile
//   fetch(begin, n)          reads the data of a tile of n samples; all threads of the block call it
//   (begin, i, factor, k)    returns the term of sample begin + i in sum k of its row
template <class Row, class Term>
__device__ static inline void sum_rows(
    const Sums &a, size tree, size first, int n, const Row &row_of_index, const Term &term
) {
    const int lane = threadIdx.x % 32, n_warps = blockDim.x / 32, width = (int)a.width;
    for (int i = threadIdx.x; i < n; i += blockDim.x) block_memory[i] = 0;
    for (size begin = 0; begin < a.n_samples && n > 0; begin += term.most()) {
        const int n_tile = (int)min(term.most(), a.n_samples - begin);
        __syncthreads();
        owner[threadIdx.x] = NOBODY;
        if ((int)threadIdx.x < n_tile) {
            const size pair = (begin + threadIdx.x) * a.sample_step + tree * a.tree_step;
            const size row = row_of_index(a.index[pair]), at = row * width - first;
            factor[threadIdx.x] = a.factor[pair];
            place[threadIdx.x] = (int)at;
            if (row >= 0 && at < n && at + width > 0) owner[threadIdx.x] = owner_of((unsigned)row) % n_warps * 32;
        }
        term.fetch(begin, n_tile);
        __syncthreads();
        const int own = list_own(n_tile), last = own + n_own[threadIdx.x / 32];
        for (int k = lane; k - lane < width; k += 32) {
            // Threads beyond the width read as the others do, and their sums are not stored.
            const int column = min(k, width - 1);
            const unsigned end = k < width ? n : 0;
            double sum = 0;
            int number = -1;  // the place of `sum` in block_memory, or -1
            for (int j = own; j < last; j += AHEAD) {
                int at[AHEAD];
                double value[AHEAD];
                for (int l = 0; l < AHEAD; ++l) {
                    const int i = listed[min(j + l, last - 1)], to = place[i] + k;
                    at[l] = (j + l < last) & ((unsigned)to < end) ? to : -1;
                    value[l] = term(begin, i, factor[i], column);
                }
                for (int l = 0; l < AHEAD; ++l) {
                    if (number != at[l]) {
                        if (number >= 0) block_memory[number] = sum;
                        number = at[l];
                        if (number >= 0) sum = block_memory[number];
                    }
                    sum += value[l];
                }
            }
            if (number >= 0) block_memory[number] = sum;
        }
    }
    __syncthreads();
}

// Writes the gradients that a block computes: sums divided by the divisor.
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

// places (n_samples, n_trees), OUT: the place in its image of the tap to whose gradient each pair adds its slope, or -1
// in the padding. One thread per pair.
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

// A term of sum_rows that needs no data of a tile.
template <class Value>
struct Each {
    Value value;  // a function of a sample, its factor, and k
    __device__ size most() const { return blockDim.x; }
    __device__ void fetch(size, int) const {}
    __device__ double operator()(size begin, int i, real factor, int k) const { return value(begin + i, factor, k); }
};
template <class Value>
Each(Value) -> Each<Value>;

// Writes the gradient with respect to images, for margins that are columns (Lay et al. 2018, eq. 11): sums over windows
// and trees in their order. In `slopes`, an image takes the place of a tree, and a pair that of a sample.
extern "C" __global__ void __launch_bounds__(ADDING, 2) backward_images(Sums slopes) {
    write_rows(slopes, blockIdx.x, Each{[](size, real slope, size) { return (double)slope; }});
}

// The term |r*| dL/dy of the gradient with respect to leaf weights (Lay et al. 2018, eq. 12). fetch copies the rows of
// grad_y to `tile`; if n_tile is 0, they are read from grad_y.
struct OfLeaf {
    const real *grad_y;
    size grad_trees, tree, n_outputs, n_tile;
    real *tile;
    __device__ size most() const { return n_tile ? n_tile : blockDim.x; }
    // Returns the row of grad_y of a sample.
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

// Returns the term of the gradient with respect to thresholds (Lay et al. 2018, eq. 11): minus the slope, because the
// margin is a value minus the threshold.
__device__ static inline auto of_vertex() {
    return Each{[](size, real slope, size) { return -(double)slope; }};
}

// Writes the gradients with respect to leaf weights and thresholds. The first blocks compute those of the leaves; their
// block_memory holds the sums, then n_tile rows of grad_y.
extern "C" __global__ void __launch_bounds__(ADDING, 2) backward_parameters(
    const real *__restrict__ grad_y, size grad_trees, size n_tile, Sums leaves, Sums vertices
) {
    const size n_blocks = leaves.n_trees * leaves.n_parts, tree = blockIdx.x / leaves.n_parts;
    real *const tile = (real *)(block_memory + leaves.n_numbers);
    if (blockIdx.x < n_blocks)
        write_rows(leaves, blockIdx.x, OfLeaf{
            .grad_y = grad_y, .grad_trees = grad_trees, .tree = tree, .n_outputs = leaves.width, .n_tile = n_tile,
            .tile = tile
        });
    else
        write_rows(vertices, blockIdx.x - n_blocks, of_vertex());
}

// ---------------------------------------------------------- gradients of margins that are not a column

// The slopes of pairs, from which gradients with respect to samples and features are computed.
struct Pull {
    const int *__restrict__ vertex;  // IN (n_samples, n_trees)
    const real *__restrict__ slope;  // IN (n_samples, n_trees)
    size n_samples, n_columns, n_trees, n_vertices;
};

// Returns the features of the vertex of a pair.
template <class Margin>
__device__ static inline const typename Margin::Feature *features_of(
    const Pull &a, const typename Margin::Feature *features, size pair
) {
    const size row = pair % a.n_trees * a.n_vertices + a.vertex[pair];
    return features + row * Margin::width(a.n_columns);
}

// grad_x (n_samples, n_columns), OUT: the gradient with respect to rows (Lay et al. 2018, eq. 11), summed over trees in
// their order. One thread per element.
template <class Margin>
__device__ static inline void pull_x(
    const Pull &a, const typename Margin::Feature *features, const real *x, real *grad_x
) {
    const size i = thread_number(), k = i % a.n_columns;
    if (i >= a.n_samples * a.n_columns) return;
    const size first = i / a.n_columns * a.n_trees;
    const Row sample = {.row = x + i / a.n_columns * a.n_columns};
    real sum = 0;
    for (size m = 0; m < a.n_trees; ++m)
        sum += Margin::pull_x(a.slope[first + m], features_of<Margin>(a, features, first + m), sample, k);
    grad_x[i] = sum;
}

// Returns, along an axis, the first output position whose window can contain place i.
__device__ static inline size first_position(size i, size kernel, size stride, size padding, size dilation) {
    const size least = i + padding - dilation * (kernel - 1);
    return least <= 0 ? 0 : (least + stride - 1) / stride;
}

// Returns, along an axis, the last output position whose window can contain place i.
__device__ static inline size last_position(size i, size stride, size padding, size out) {
    const size last = (i + padding) / stride;
    return last < out ? last : out - 1;
}

// grad_x, OUT: the gradient with respect to images, summed in float64 over windows and trees in their order. One thread
// per element, which goes through the windows that contain it.
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
                const Window window = {.x = x, .windows = &w, .sample = sample};
                for (size m = 0; m < a.n_trees; ++m) {
                    const size pair = sample * a.n_trees + m;
                    const auto f = features_of<Margin>(a, features, pair);
                    total += (double)Margin::pull_x(a.slope[pair], f, window, tap);
                }
            }
    grad_x[place] = (real)total;
}

// Writes the gradient with respect to learned features (Lay et al. 2018, eq. 11). Each vertex has a row; sums are those
// of thresholds with other terms.
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

extern "C" __global__ void __launch_bounds__(ADDING, 2) pull_features_projection(
    const real *__restrict__ x, size n_columns, Sums a
) {
    pull_features<Projection>(Rows{.x = x, .n_columns = n_columns}, a);
}

extern "C" __global__ void __launch_bounds__(ADDING, 1) pull_features_projection_windows(
    const real *__restrict__ x, Geometry windows, Sums a
) {
    pull_features<Projection>(Images{.x = x, .windows = &windows}, a);
}
