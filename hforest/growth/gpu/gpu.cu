// The tree builder of the GPU: trees grow together, level by level, and a level is a few launches for all trees.
//
// A level has two nodes for each node of the previous level: its children or, if it became a leaf, two empty places
// without samples. So the children of a node lie at twice its place, and the host lays out no level. The nodes that are
// to be split are pending. A candidate is a column or a projection whose splits a pending node compares; a node has
// `slots` candidates:
//
//     sample, u   | node 0 | node 1 |  node 3 ...        first[v], count[v]: the samples of node v, ascending; nodes
//                                                        divide the place of their parent, in the other of two arrays
//     key         | node 0, slot 0 | node 0, slot 1 | node 1, slot 0 ...
//                                                        of the samples of pending nodes, once for each candidate;
//                                                        pending.begin: no gaps
//
// The files, by what they do in a level:
//
//     units.cuh               sums of nodes as integers, in any order
//     constraints.cuh         monotonic constraints: bounds of nodes
//     levels.cuh              settle, list_pending: leaves, and the list of pending nodes; move_samples: children
//     gpu.cu                  draw_columns, bin_keys: candidates that are columns of bins (the column source)
//     projections.cuh         candidates that are projections of x (the projection source)
//     candidate_keys.cuh      where keys of candidates are, and what they hold
//     node_orders.cuh         orders of columns with missing values, and of categories
//     histogram.cuh           scorers of bins of a byte: histogram and pairwise
//     sorted_scan.cuh         scorer of sorted keys
//     gpu.cu                  random_splits: one random threshold of a candidate; pick_splits: the split of a node
//     small_nodes.cuh         grow_small, grow_counted: a block does all of this for a node of few samples
//
// Kernels of a level are launched for the numbers of pending nodes and samples, which the host reads once per level. A
// large node has more than LARGE samples, or FEW where bins are counted, and blocks share its work; one thread
// processes any other. One list of large nodes serves all kernels. The random numbers of a node depend only on its key,
// and sums are integers, so the trees are those of the other backends.
//
// A comment at a function says what it writes. const arguments are IN; others are OUT or, where a comment says so,
// workspace. Members of structs are IN, except in the kernels that their comments name.

#include "core/keys.cuh"
#include "core/projections.h"
#include "growth/leaf.h"
#include "growth/poisson.h"

typedef unsigned long long word;

constexpr double LARGEST_DOUBLE = 1.7976931348623157e308;
constexpr int BLOCK = 128; // threads per block
constexpr size LARGE = 256; // samples of a node that one thread processes, at most
constexpr size FEW = 32; // the same where bins are counted
constexpr size CHUNK = 4096, CHUNKS = 64; // of a large node whose bins are counted: samples of a chunk; chunks, at most

// The labels or targets of all samples, and their weights in each tree. An empty CuPy array is null, so has_labels says
// which of the two there are.
struct Target {
    const int *labels;          // (n,) if has_labels
    const double *targets;      // (n, n_outputs) if not
    size *q;                    // (n_trees, n, n_outputs): targets as integers in the units of nodes; OUT of measure
    const double *weight;       // (n_trees, n): weights times in-bag counts, or (n,); not read if is_whole
    const unsigned char *whole; // (n_trees,): whether the weights of a tree are whole; not read if all are, of labels
    const int *sign;            // (n_columns,): signs of monotonic constraints, or 0; null if not MONOTONIC
    size has_labels, n_outputs, n, is_whole; // is_whole: the weights of all trees are whole
    size from_0;                             // whether the centres of units are 0
    size stride;                             // distance of the weights of two trees: n, or 0 if all have the same
};

// The limits that a node must keep to be split.
struct Limits {
    size max_depth, min_samples_split, min_samples_leaf;
    double min_impurity_decrease, min_weight_fraction_leaf;
    size max_leaf_nodes; // 0: no limit; the host cuts grown trees back
};

// The nodes of a level, of all trees, and their samples.
struct Level {
    const size *first;              // (n_nodes,): position of a node's first sample
    const size *count;              // (n_nodes,): number of its samples; 0: there is no such node
    const int *tree;                // (n_nodes,); n_trees: there is no such node
    const unsigned long long *key;  // (n_nodes,): the key of a node's random numbers
    const double *root_weight;      // (n_trees,): weights of the roots; in the level of roots the same as `weight`
    const int *sample;              // (n_samples,): number of a sample; the samples of a node are neighbours
    size *u;                        // (n_samples,): weight of a sample in its node's unit; OUT of measure
    unsigned long long *measured;   // (n_nodes, n_measures), 0 before, or empty: extremes and sums for units;
                                    // OUT of measure
    double *unit;                   // (n_nodes, UNIT), or empty: units of nodes; OUT of finish_units, bounds OUT
                                    // of settle
    size *total;                    // (n_nodes, n_outputs + 1), 0 before: sums by class or output, then the sum of u;
                                    // OUT of measure, and of labels with whole weights OUT of move_samples
    double *__restrict__ mean;      // (n_nodes, n_outputs), empty for labels: q per u; OUT of settle and finish_units
    double *weight;                 // (n_nodes,): weight of the samples of a node; OUT of settle and finish_units
    real *__restrict__ value;       // (n_nodes, ..): rows as leaves (leaf.h); null for targets of nodes that are none;
                                    // OUT of settle and finish_units for labels, of write_leaves for targets
    int *__restrict__ feature;      // (n_nodes,): feature of the split, -1 of a leaf; OUT of settle and pick_splits
    double *__restrict__ threshold; // (n_nodes,): threshold of the split, 0 of a leaf; OUT of settle and pick_splits
    double *__restrict__ gain;      // (n_nodes,): gain of the split, 0 of a leaf; OUT of settle and pick_splits
    unsigned char *__restrict__ default_left; // (n_nodes,), 0 before, or empty: bits of core/defaults.h; OUT of
                                              // pick_splits
    size *__restrict__ place;       // (n_nodes,): place of a node in its tree, or NOWHERE (levels.cuh); OUT of settle
                                    // and, of nodes that become small nodes, of list_pending
    size n_nodes, n_samples, number; // number: the depth of the nodes
};

// The pending nodes of a level; OUT of list_pending.
struct Pending {
    size *__restrict__ node;  // (n_nodes,): number of a pending node in the level
    size *__restrict__ begin; // (n_nodes + 1,): number of samples of the pending nodes before each
    size *__restrict__ large; // (n_large,): index in `node` of each large node
    size *__restrict__ run;   // (n_large + 1,): number of runs, or chunks, of a slot before each large node
    size n_nodes, n_samples, n_large, n_runs;
    size counts_bins; // bytes of a histogram's count, or 0: bins are not counted; IN of list_pending
    size small;       // samples of a small node, at most, which is not listed here: small_nodes.cuh; IN of list_pending
};

// The nodes of the next level; OUT of move_samples.
struct Children {
    size *__restrict__ first;             // (2 n,) where n nodes are pending: as in the Level of the children
    size *__restrict__ count;             // (2 n,)
    int *__restrict__ tree;               // (2 n,)
    unsigned long long *__restrict__ key; // (2 n,)
    int *__restrict__ sample;             // (n_samples,) of the level above
    size *__restrict__ u;                 // (n_samples,) of the level above
    double *__restrict__ unit;            // (2 n, UNIT), or empty: units of the parents
    size *__restrict__ total;             // (2 n, n_outputs + 1), 0 before: sums by class and, 0 yet, of u; null if
                                          // nodes have units
    size n_trees;
};

// The small nodes, each of which a block grows to its leaves (small_nodes.cuh); OUT of list_pending.
struct SmallNodes {
    size *__restrict__ first;             // (n_nodes,), as in the Level from which a node comes, and so on
    size *__restrict__ count;             // (n_nodes,)
    int *__restrict__ tree;               // (n_nodes,)
    unsigned long long *__restrict__ key; // (n_nodes,)
    int *__restrict__ depth;              // (n_nodes,): the number of that level
    double *__restrict__ unit;            // (n_nodes, UNIT), or null
    size n_nodes;                         // number of nodes that earlier levels listed; IN of list_pending
};

// Columns of bins: the candidates of the column source. Columns are contiguous or, for windows, overlap in one row.
struct Columns {
    const unsigned char *bins; // (n_columns, n), or (1, size of x) for windows
    const double *low;         // (n_columns, n_bins), or (1, n_bins) for windows: the least value of each bin; null for
                               // projections
    const double *high;        // as low: the greatest value of each bin
    const size *base;          // (n,): position of a sample; null: no windows
    const size *offset;        // (n_columns,): position of a feature relative to the sample's; or null
    size width, n, n_columns, n_bins, n_sampled; // width: bytes of a bin; n_sampled: columns that a node samples
};

// The entries of the projections that pending nodes compare; OUT of draw_projections.
struct Entries {
    int *__restrict__ index;      // (n_candidates, max_entries): feature of an entry
    float *__restrict__ weight;   // (n_candidates, max_entries): factor of that feature
    size *__restrict__ n_entries; // (n_candidates,): number of entries of a candidate
    size max_entries;
};

// The candidates of the pending nodes, `slots` per node, and their splits: of all thresholds the best, written by a
// scorer, or a random one, written by random_splits. Keys of labels with whole weights have label and weight of the
// sample in their low bits and are sorted themselves; the scan reads others by `order`. Where bins are counted there
// are no keys, and `greatest` is a bin.
struct Candidates {
    const unsigned long long *key;              // (n_samples * slots,), or null: keys in the order of the samples
    const unsigned long long *sorted;           // (n_samples * slots,), or null: the keys in ascending order
    const size *order;                          // (n_samples * slots,), or null: index of the e-th key in that order
    const unsigned short *near;                 // as order, or null: indices from a candidate's first key on
    size *__restrict__ left;                    // workspace (n_threads of the scan, n_outputs); of random splits
                                                // (n_candidates, n_outputs)
    unsigned long long *__restrict__ score;     // (n_candidates,): score of the split, as `ordered`; OUT of the scorer,
                                                // and 0 before except where bins are counted
    unsigned long long *__restrict__ n_right;   // (n_candidates,): samples on the right, 0: no split; OUT, as score
    unsigned long long *__restrict__ greatest;  // (n_candidates,), or null: the greatest key, or bin, that goes left;
                                                // OUT of random_splits, score_bins, compare_bins
    double *__restrict__ threshold;             // (n_candidates,), or null: the threshold; OUT, as greatest
    int *__restrict__ flipped;                  // (n_candidates,), or null: whether keys up to the greatest go right;
                                                // OUT of random_splits
    const int *column;                          // (n_candidates,): column of a candidate, or -1; null for projections
    size slots, n_orders, weight_bits, label_bits, value_bits; // n_orders: neighbouring slots of one column
    size start, together;                       // slots whose keys are in memory: start, .., start + together - 1; if
                                                // together is 1, any one of each node
};

// The splits of the pending nodes; OUT of pick_splits.
struct Split {
    size *__restrict__ chosen;                 // (n_nodes,): the candidate with the best score, or -1
    unsigned long long *__restrict__ greatest; // (n_nodes,): the greatest key, or bin, that goes left
    size *__restrict__ n_left;                 // (n_nodes,): number of samples on the left; -1: no split
    unsigned char *__restrict__ right;         // (n_samples,) of pending nodes: whether a sample goes right; OUT of
                                               // sides
    size *__restrict__ tail;                   // (n_tiles,): samples in a tile of its last node that go right; OUT of
                                               // sides
};

// The entries of the projections that split nodes: contiguous per node, in any order of nodes; OUT of pick_splits.
struct NodeEntries {
    size *__restrict__ begin;             // (n_nodes of the level,): position of a node's first entry
    size *__restrict__ count;             // (n_nodes of the level,), 0 before
    int *__restrict__ index;              // (n_nodes of the pending nodes * max_entries,) at most
    float *__restrict__ factor;           // as index
    unsigned long long *__restrict__ end; // (1,), 0 before: number of entries of all nodes
};

// ------------------------------------------------------------------------------------------ random numbers

// key (n_trees,), OUT: the keys of the roots of trees `first` to first + n_trees - 1. One thread per tree.
extern "C" __global__ void tree_keys(size seed, size first, size n_trees, unsigned long long *__restrict__ key) {
    const size m = thread_number();
    if (m < n_trees) key[m] = hf_draw_key(hf_philox((uint64_t)seed, (uint64_t)(first + m), 0), 0);
}

// Adds to counts (n_trees, n), 0 before, the number of times that a tree draws a sample in n_draws draws. One thread
// per four draws.
extern "C" __global__ void bootstrap_counts(
    const unsigned long long *__restrict__ key, size n_trees, size n, size n_draws, int *__restrict__ counts
) {
    const size i = thread_number(), n_fours = (n_draws + 3) / 4;
    if (i >= n_trees * n_fours) return;
    const size tree = i / n_fours, at = i % n_fours;
    const hf_draw draw = hf_philox(key[tree], (uint64_t)at, HF_STREAM_BOOTSTRAP);
    for (size j = 0; j < 4 && 4 * at + j < n_draws; ++j)
        atomicAdd(&counts[tree * n + hf_below(draw.word[j], (unsigned)n)], 1);
}

// Writes to counts (n_trees, n) the Poisson counts of a tree for the rows from first_row on.
extern "C" __global__ void poisson_counts(
    const unsigned long long *__restrict__ key, size n_trees, size n, size first_row, int *__restrict__ counts
) {
    const size i = thread_number();
    if (i >= n_trees * n) return;
    const size row = first_row + i % n;
    counts[i] = hf_poisson(hf_philox(key[i / n], (uint64_t)(row / 4), HF_STREAM_POISSON).word[row % 4]);
}

// Returns the index of the last of n ascending starts that is at most i.
__device__ static inline size segment(const size *start, size n, size i) {
    size low = 0, high = n;
    while (high - low > 1) {
        const size middle = low + (high - low) / 2;
        if (start[middle] <= i) low = middle;
        else high = middle;
    }
    return low;
}

// Returns whether a node of n samples is large.
__device__ static inline bool is_large(size n, size counts_bins) { return n > (counts_bins ? FEW : LARGE); }

#include "growth/gpu/constraints.cuh"
#include "growth/gpu/units.cuh"

// ---------------------------------------------------------------------------------------------- candidates

// Returns the bin of a sample.
__device__ static inline unsigned bin_at(const Columns &c, size column, size sample) {
    const size at = c.base ? c.base[sample] + c.offset[column] : column * c.n + sample;
    if (c.width == 1) return c.bins[at];
    if (c.width == 2) return ((const unsigned short *)c.bins)[at];
    return ((const unsigned *)c.bins)[at];
}

// Returns the position of a column's row in low and high.
__device__ static inline size row_of_bins(const Columns &c, size column) { return c.base ? 0 : column * c.n_bins; }

#include "growth/gpu/candidate_keys.cuh"
#include "growth/gpu/node_orders.cuh"

// Returns whether a column varies among n samples. Thread `lane` of `lanes` calls it: a single thread, or all of a
// block.
__device__ static inline bool varies(const Columns &c, size column, const int *sample, size n, size lane, size lanes) {
    __shared__ int differs;
    const unsigned bin = bin_at(c, column, sample[0]);
    if (lanes == 1) {
        size j = 1;
        while (j < n && bin_at(c, column, sample[j]) == bin) ++j;
        return j < n;
    }
    bool any = false;
    for (size j = lane; j - lane < n && !any; j += 8 * lanes) {
        if (lane == 0) differs = 0;
        __syncthreads();
        bool here = false;
        for (size i = j; i < j + 8 * lanes && i < n; i += lanes) here |= bin_at(c, column, sample[i]) != bin;
        if (here) atomicOr(&differs, 1);
        __syncthreads();
        any = differs;
        __syncthreads();
    }
    return any;
}

// Writes the columns that a node samples to `column` (n_nodes, slots), n_sampled per node; -1 is none. They are sampled
// without replacement by a Fisher-Yates shuffle, whose swaps are not made but looked up backwards in the workspace
// `swap` (n_nodes, n_columns). If none of the first n_sampled columns varies in the node, the next one that varies
// takes the first place. A column is in the slots of all orders in which it may be scanned. Columns that do not vary
// have no threshold; they are left out if draws or orders depend on it. This is pending node a. Thread `lane` of
// `lanes` calls it: all of a block for a large node, else a single thread.
__device__ static inline void draw_columns_of(
    const Columns &c, const Level &level, const Pending &pending, const Orders &o, int *__restrict__ swap,
    int *__restrict__ column, size a, size lane, size lanes
) {
    const bool by_block = lanes > 1;
    const size v = pending.node[a], slots = c.n_sampled * o.n_orders, n = level.count[v];
    if (!by_block && is_large(n, pending.counts_bins)) return;
    const int *sample = level.sample + level.first[v];
    int *__restrict__ swaps = swap + a * c.n_columns, *__restrict__ mine = column + a * slots;
    if (lane == 0)
        for (size i = 0; i < slots; ++i) mine[i] = -1;
    bool some = false;
    hf_draw draw = {};
    for (size i = 0; i < c.n_columns && (i < c.n_sampled || !some); ++i) {
        if (i % 4 == 0) draw = hf_philox(level.key[v], (uint64_t)(i / 4), HF_STREAM_CANDIDATES);
        size place = i + hf_below(draw.word[i % 4], (unsigned)(c.n_columns - i));
        if (lane == 0) swaps[i] = (int)place;
        for (size j = i; j-- > 0;)
            if (swaps[j] == place) place = j;
        if (by_block) __syncthreads();
        if (!some || o.random || o.kind != PLAIN) {
            if (!varies(c, place, sample, n, lane, lanes)) continue;
            some = true;
        }
        size count = o.n_orders;
        if (count > 2 && !is_categorical(o, place)) count = 2;
        if (lane == 0)
            for (size order = 0; order < count; ++order)
                mine[(i < c.n_sampled ? i : 0) * o.n_orders + order] = (int)place;
    }
}

// Draws the columns of all nodes. One block per large node, one thread per small node.
extern "C" __global__ void draw_columns(
    Columns c, Level level, Pending pending, Orders o, int *__restrict__ swap, int *__restrict__ column
) {
    const bool by_block = (size)blockIdx.x < pending.n_large;
    const size lanes = by_block ? blockDim.x : 1, lane = by_block ? threadIdx.x : 0;
    const size a = by_block ? pending.large[blockIdx.x] : thread_number() - pending.n_large * blockDim.x;
    if (a < pending.n_nodes) draw_columns_of(c, level, pending, o, swap, column, a, lane, lanes);
}

// Returns the key of a place: the bin, or its place in an order, of a sample of a candidate. column (n_nodes, slots).
__device__ static inline uint64_t bin_key(
    const Columns &c, const Target &y, const Level &level, const Pending &pending, size slots, const Orders &o,
    const KeyBits &bits, const int *column, const Place &at
) {
    const size own = column[at.node * slots + at.slot];
    unsigned place = 0;
    if (own >= 0) place = place_of_bin(c, o, level, pending, column, at.node, at.slot, bin_at(c, own, at.sample));
    return packed_key(bits, y, level, at, slots, place);
}

// Writes the keys of all candidates. One thread per key.
extern "C" __global__ void bin_keys(
    Columns c, Target y, Level level, Pending pending, size slots, Orders o, KeyBits bits,
    const int *__restrict__ column, unsigned long long *__restrict__ key
) {
    const size e = thread_number();
    if (e < pending.n_samples * slots)
        key[e] = bin_key(c, y, level, pending, slots, o, bits, column, place_of(level, pending, slots, e));
}

#include "growth/gpu/projections.cuh"

// -------------------------------------------------------------------------------------------------- splits

// Returns whether the gain of node v is below the limit.
__device__ static inline bool too_small(const Limits &limits, const Level &level, size v, double decrease) {
    return decrease / level.root_weight[level.tree[v]] < limits.min_impurity_decrease;
}

// Writes the score of the split of node v that sends n_left samples left, and returns whether it is allowed. sums
// (n_outputs,) and u: sums of the samples on the left. sign: of the constraint on the column.
__device__ static inline bool scored(
    const Target &y, size criterion, const Limits &limits, const Level &level, size v, const size *sums, size u,
    size n_left, int sign, double *score
) {
    const size n_right = level.count[v] - n_left, K = y.n_outputs, *total = total_of(y, level, v), rest = total[K] - u;
    const int m = exponent_of(y, level, v, 1);
    if (n_right < 1 || n_left < limits.min_samples_leaf || n_right < limits.min_samples_leaf) return false;
    const double least = limits.min_weight_fraction_leaf * level.root_weight[level.tree[v]];
    if (hf_weight_of(u, m) < least || hf_weight_of(rest, m) < least) return false;
    if (sign && !is_monotonic(y, level, v, total, sums, u, sign)) return false;
    const double *mean = level.mean + v * K;
    *score = hf_score_in_unit((int)criterion, sums, NULL, mean, K, u, m) +
             hf_score_in_unit((int)criterion, sums, total, mean, K, rest, m);
    return *score > -HF_INFINITY;
}

#include "growth/gpu/sorted_scan.cuh"
#include "growth/gpu/histogram.cuh"

// Returns the random threshold of a node's candidate `number`: uniform in [least, greatest).
__device__ static inline double random_threshold(uint64_t key, size number, double least, double greatest) {
    double at = least + hf_unit(hf_philox(key, (uint64_t)number, HF_STREAM_THRESHOLD)) * (greatest - least);
    if (!(at <= LARGEST_DOUBLE)) at = least / 2 + greatest / 2;
    at = (double)(real)at;
    return at >= least && at < greatest ? at : least;
}

// Returns the last bin in [lowest, highest) whose values are at most the threshold, else `lowest`.
__device__ static inline unsigned last_bin(const double *high, double threshold, unsigned lowest, unsigned highest) {
    while (highest - lowest > 1) {
        const unsigned middle = lowest + (highest - lowest) / 2;
        if (high[middle] <= threshold) lowest = middle;
        else highest = middle;
    }
    return lowest;
}

// Writes a random threshold of a candidate, and its score. The number of a column in the draw of its threshold counts
// the columns before it that vary in the node; that of a projection counts all.
__device__ static inline void random_split(
    const Target &y, size criterion, const Limits &limits, const Level &level, const Pending &pending,
    const Candidates &candidates, const Columns &c, const Orders &o, size candidate
) {
    const size slots = candidates.slots, n_outputs = y.n_outputs;
    const size a = candidate / slots, v = pending.node[a], first = level.first[v], n = level.count[v];
    const unsigned long long *keys = candidates.key + first_key(candidates, candidate, pending.begin[a], n);
    const size own = c.low ? candidates.column[candidate] : 0;
    uint64_t lowest = ~0ull, highest = 0, greatest, missing = 0;
    size n_missing = 0;
    if (own < 0) return;
    const bool can_miss = has_missing_key(o, own);
    for (size i = 0; i < n; ++i) {
        const uint64_t here = place_in_key(o, keys[i]);
        if (can_miss && (here == missing_place(o, own, true) || here == missing_place(o, own, false))) {
            ++n_missing;
            missing = here;
            continue;
        }
        lowest = keys[i] < lowest ? keys[i] : lowest;
        highest = keys[i] > highest ? keys[i] : highest;
    }
    if (n_missing == n || (lowest == highest && n_missing == 0)) return;
    const size number = c.low ? varying_number(candidates.column, a * slots, candidate % slots) : candidate % slots;
    bool flipped = false;
    double at;
    if (lowest == highest) { // missing values against all others
        flipped = missing == 0;
        greatest = flipped ? highest - place_in_key(o, highest) : highest;
        at = largest();
    } else if (c.low && is_categorical(o, own)) {
        greatest = (uint64_t)candidate << 32;
        at = 0;
    } else if (c.low) {
        const double *low = c.low + row_of_bins(c, own), *high = c.high + row_of_bins(c, own);
        const unsigned from = (unsigned)bin_of_place(o, own, 0, (unsigned)lowest);
        const unsigned to = (unsigned)bin_of_place(o, own, 0, (unsigned)highest);
        at = random_threshold(level.key[v], number, high[from], low[to]);
        greatest = ((uint64_t)candidate << 32) + (unsigned)lowest + (last_bin(high, at, from, to) - from);
    } else {
        at = random_threshold(level.key[v], number, unordered(lowest, real()), unordered(highest, real()));
        greatest = (sizeof(real) == 4 ? (uint64_t)candidate << 32 : 0) | ordered((real)at);
    }
    size *__restrict__ sums = candidates.left + candidate * n_outputs, u = 0, count = 0;
    for (size k = 0; k < n_outputs; ++k) sums[k] = 0;
    for (size i = 0; i < n; ++i) {
        if ((keys[i] <= greatest) == flipped) continue;
        u += add(y, level, v, first + i, sums);
        ++count;
    }
    double score;
    const int sign = sign_of(y, candidates, candidate);
    if (!scored(y, criterion, limits, level, v, sums, u, count, sign, &score)) return;
    candidates.score[candidate] = ordered(score);
    candidates.n_right[candidate] = n - count;
    candidates.greatest[candidate] = greatest;
    candidates.threshold[candidate] = at;
    if (o.kind != PLAIN) candidates.flipped[candidate] = flipped;
}

// Draws the splits of all candidates. One thread per candidate.
extern "C" __global__ void random_splits(
    Target y, size criterion, Limits limits, Level level, Pending pending, Candidates candidates, Columns c,
    Orders o
) {
    const size candidate = thread_number();
    if (candidate < pending.n_nodes * candidates.slots)
        random_split(y, criterion, limits, level, pending, candidates, c, o, candidate);
}

// Writes the feature of the projection that pending node a chose and, unless the projection is one feature, its
// entries.
__device__ static inline void write_projection(
    const Level &level, const Pending &pending, const Entries &entries, const NodeEntries &node_entries,
    const Split &split, size a
) {
    const size v = pending.node[a], candidate = split.chosen[a];
    if (entries.max_entries == 0 || split.n_left[a] < 0) return;
    const size from = candidate * entries.max_entries, count = entries.n_entries[candidate];
    if (count == 1 && entries.weight[from] == 1) {
        level.feature[v] = entries.index[from];
        return;
    }
    const size to = (size)atomicAdd(node_entries.end, (unsigned long long)count);
    for (size j = 0; j < count; ++j) {
        node_entries.index[to + j] = entries.index[from + j];
        node_entries.factor[to + j] = entries.weight[from + j];
    }
    node_entries.begin[v] = to;
    node_entries.count[v] = count;
    level.feature[v] = -2;
}

// Returns the score of a candidate.
__device__ static inline double score_of(const Candidates &candidates, size candidate) {
    return unordered(candidates.score[candidate], double());
}

// Writes the best candidate of pending node a; of equal scores the first.
__device__ static inline void choose(const Candidates &candidates, const Split &split, size a) {
    size best = -1;
    for (size candidate = a * candidates.slots; candidate < (a + 1) * candidates.slots; ++candidate)
        if (candidates.n_right[candidate] > 0 &&
            (best < 0 || hf_beats(score_of(candidates, candidate), score_of(candidates, best))))
            best = candidate;
    split.chosen[a] = best;
}

// Writes the split of pending node a by the candidate that it chose. A node without a split, or with too small a gain,
// gets -1 samples on its left.
__device__ static inline void pick_split(
    const Target &y, size criterion, const Limits &limits, const Level &level, const Pending &pending,
    const Candidates &candidates, const Columns &c, const Orders &o, const Split &split, size a
) {
    const size v = pending.node[a], n = level.count[v], best = split.chosen[a];
    split.n_left[a] = -1;
    if (best < 0) return;
    const double decrease = hf_gain_in_unit(
        (int)criterion, score_of(candidates, best), total_of(y, level, v), y.n_outputs, exponent_of(y, level, v, 0),
        exponent_of(y, level, v, 1)
    );
    if (too_small(limits, level, v, decrease)) return;
    const size n_left = n - (size)candidates.n_right[best];
    split.n_left[a] = n_left;
    level.gain[v] = decrease > 0 ? decrease : 0.0;
    if (c.low) level.feature[v] = candidates.column[best];
    if (!candidates.order && !candidates.near && !candidates.sorted) {
        split.greatest[a] = candidates.greatest[best];
        level.threshold[v] = candidates.threshold[best];
        if (o.kind != PLAIN) finish_split(level, pending, candidates, c, o, split, a, 0, 0);
        return;
    }
    const size first = first_key(candidates, best, pending.begin[a], n);
    const size low_bits = candidates.weight_bits + candidates.label_bits;
    uint64_t below = key_at(candidates, first, n_left - 1), above = key_at(candidates, first, n_left);
    split.greatest[a] = below | (((uint64_t)1 << low_bits) - 1);
    below >>= low_bits;
    above >>= low_bits;
    if (o.kind != PLAIN) {
        finish_split(level, pending, candidates, c, o, split, a, below, above);
        return;
    }
    const uint64_t mask = candidates.value_bits < 64 ? ((uint64_t)1 << candidates.value_bits) - 1 : ~0ull;
    if (c.low) {
        const size row = row_of_bins(c, candidates.column[best]);
        level.threshold[v] = between(c.high[row + (size)(below & mask)], c.low[row + (size)(above & mask)]);
    } else {
        level.threshold[v] = between(unordered(below & mask, real()), unordered(above & mask, real()));
    }
}

// Picks the splits of all nodes. One thread per node.
extern "C" __global__ void pick_splits(
    Target y, size criterion, Limits limits, Level level, Pending pending, Candidates candidates, Columns c,
    Orders o, Entries entries, Split split, NodeEntries node_entries
) {
    const size a = thread_number();
    if (a >= pending.n_nodes) return;
    choose(candidates, split, a);
    pick_split(y, criterion, limits, level, pending, candidates, c, o, split, a);
    write_projection(level, pending, entries, node_entries, split, a);
}

#include "growth/gpu/levels.cuh"
#include "growth/gpu/small_nodes.cuh"
