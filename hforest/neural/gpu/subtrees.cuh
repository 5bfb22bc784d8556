// Soft routing of a tile: some samples, one per thread, through a subtree of a tree; part of gpu.cu. A subtree has at
// most HF_LEVELS levels, so as many leaves as the CPU sums in `real`. A deeper tree has several subtrees, whose roots are
// at one level.
//
// Vertex a = 1 of a subtree is its root, and 2a and 2a + 1 are the left and the right child of a. A thread has a row of
// shared memory, of n_leaves + 1 numbers: the number is odd, so that threads use different banks. Gradients have a second
// row, into which `descend` writes.
//
//     row        0          1          2          3          for two levels, leaves 4 to 7
//     load       -          f of 1     f of 2     f of 3     as exp(-|f|) with the sign of f
//     descend    mu of 7    mu of 6    mu of 4    mu of 5    mu of a is row[place(a)]

#include "neural/mass.h"

#define DIGITS_float 24
#define DIGITS_double 53
#define DIGITS_OF(type) DIGITS_##type
#define DIGITS_OF_MACRO(type) DIGITS_OF(type)
#define DIGITS DIGITS_OF_MACRO(real)
#define LANES 1
#define CODE
#define T(name) scalar_##name
#include "neural/decide.h"

// The forest and the samples of a chunk. With has_index, index is the function of each vertex. Without it, the functions
// are those of the vertices of all trees in order.
struct Forest {
    const real* __restrict__ f;       // IN (n_samples, n_functions), or more samples
    const int* __restrict__ order;    // IN (n_samples,): the samples' rows of f, or null if they are the first ones
    const int* __restrict__ index;    // IN (n_trees, n_vertices), read only if has_index
    const real* __restrict__ leaves;  // IN (n_trees, n_leaves, n_classes), or null
    const int* __restrict__ y;        // IN (n_samples,): labels, or null
    size has_index, n_samples, n_functions, n_trees, n_vertices, n_classes;
};

// Returns the value of the decision function of vertex v of tree m for a sample of the chunk.
__device__ static inline real function(const Forest& a, size sample, size m, size v) {
    const size at = m * a.n_vertices + v;
    return a.f[(a.order ? (size)a.order[sample] : sample) * a.n_functions + (a.has_index ? (size)a.index[at] : at)];
}

// Returns 0 with the sign of `a` for subnormal numbers: the CPU's kernels flush them.
template <class T>
__device__ static inline T flushed(T a) {
    return fabs(a) < (sizeof(T) == 4 ? (T)0x1p-126 : (T)0x1p-1022) ? a * 0 : a;
}

// Sums of products of a mu and a leaf, each 0 or at least as large, are exact multiples of a normal number.
constexpr double LEAST_MU = DIGITS == 24 ? 0x1p-76 : 0x1p-700, LEAST_LEAF = DIGITS == 24 ? 0x1p-26 : 0x1p-250;

// The likelihood below which products lose digits.
constexpr double LEAST = DIGITS == 24 ? HF_LEAST_F32 : HF_LEAST_F64;

// Returns whether `a` is neither 0 nor at least `least` in magnitude.
__device__ static inline bool is_below(real a, double least) { return a != 0 && magnitude(a) < (real)least; }

// Returns where the row of a thread has mu of vertex or leaf a: left children are where f of their parent was, right
// children where mu of their parent was.
__device__ static inline int place(unsigned a) { return (int)(a >> __ffs((int)~a)); }

// Returns the level of vertex a.
__device__ static inline int level(unsigned a) { return 31 - __clz((int)a); }

// The tiles of a launch: `rows` samples in one of n_subtrees subtrees of a tree.
struct Tiles {
    size rows, levels, n_subtrees;
};

// The tile of this block.
struct Tile {
    size first, n, m, n_subtrees;  // its samples, its tree, and the subtrees of the tree
    size root;                     // number of the root of its subtree in the tree, from 1
    unsigned levels, n_leaves, step;

    __device__ Tile(const Forest& a, const Tiles& t)
        : first(blockIdx.x / t.n_subtrees / a.n_trees * t.rows), n(min(t.rows, a.n_samples - first)),
          m(blockIdx.x / t.n_subtrees % a.n_trees), n_subtrees(t.n_subtrees),
          root(n_subtrees + blockIdx.x % n_subtrees), levels((unsigned)t.levels), n_leaves(1u << levels),
          step(n_leaves + 1) {}

    __device__ bool has_row() const { return threadIdx.x < n; }
    __device__ real* row(size second = 0) const { return (real*)block_memory + (second + threadIdx.x) * step; }
    __device__ size subtree() const { return m * n_subtrees + root - n_subtrees; }  // among those of all trees

    // Returns the decision function of vertex a of the subtree among those of the tree.
    __device__ size vertex(unsigned a) const { return (size)a + ((root - 1) << level(a)) - 1; }

    // Calls at(i, a) for each number a < n_leaves of each row i, by neighbouring threads for neighbouring numbers.
    template <class At>
    __device__ void each(const At& at) const {
        for (unsigned j = threadIdx.x; j < (unsigned)n << levels; j += blockDim.x) at(j >> levels, j & (n_leaves - 1));
    }

    // Writes f of the vertices of all rows. All threads of the block call it.
    __device__ void load(const Forest& of) const {
        each([&](unsigned i, unsigned a) {
            if (!a) return;
            const real f = function(of, first + i, m, vertex(a));
            ((real*)block_memory)[i * step + a] = copysign(scalar_decay(f), f);
        });
        __syncthreads();
    }

    // Writes mu of this thread's leaves to `to`, from the numbers that `load` wrote to `from`; both may be one row.
    // Returns whether a mu is_below LEAST_MU.
    __device__ bool descend(const Forest& of, const real* from, real* to) const {
        real d, c;
        to[0] = 1;
        for (int up = level((unsigned)root); up > 0; --up) {
            const real f = function(of, first + threadIdx.x, m, (root >> up) - 1);
            scalar_decide(f, scalar_decay(f), &d, &c);
            to[0] = flushed(to[0] * (root >> (up - 1) & 1 ? c : d));
        }
        bool found = false;
        for (unsigned a = 1; a < n_leaves; ++a) {
            const int at = place(a);
            scalar_decide(from[a], magnitude(from[a]), &d, &c);
            const real here = to[at], left = flushed(here * d), right = flushed(here * c);
            found |= is_below(left, LEAST_MU) | is_below(right, LEAST_MU);
            to[a] = left;
            to[at] = right;
        }
        return found;
    }

    // Replaces each vertex's number in `from` by d w_right - c w_left, and writes w of the root to w[0]. w of a vertex,
    // at w[place(a)], is the sum of those of its children; w of the leaves is IN.
    __device__ void ascend(real* from, real* w) const {
        real d, c;
        for (unsigned a = n_leaves - 1; a > 0; --a) {
            const int at = place(a);
            const real left = w[a], right = w[at];
            scalar_decide(from[a], magnitude(from[a]), &d, &c);
            from[a] = flushed(flushed(d * right) - flushed(c * left));
            w[at] = flushed(left + right);
        }
    }
};
