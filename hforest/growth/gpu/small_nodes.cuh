// Small nodes: one block grows each to its leaves, level by level, so that launches and waits do not depend on the
// levels below. All small nodes of a batch are one launch. A level of a small node is one tile of the functions of
// levels.cuh; arrays have room for all small nodes. A node whose n samples begin at position f of the level has
//
//     2 n places from 2 f on      for all nodes below it, level by level: at most 2 n - 1, empty places among them
//     n from f on                 for the nodes of a level, for pending nodes, and for samples
//     n / 2 from f / 2 on         for pending nodes, which have at least two samples each
//
// Lists of pending nodes, and the keys that are sorted with their orders, are in shared memory, which holds the keys of
// some slots of all pending nodes at a time, of one at least. So the keys of the candidates that nodes choose are
// written and sorted once more, unless all slots fit. A round of a sort is a dependent chain of as many reads as a
// key's binary search has steps.
//
// Versions, counted by bench/gpu_counts.py; not timed on a GPU since. Times were those of levels alone: 80.8 ms for 100
// trees on 50,000 rows, 1.8 ms a level.
//
//     launches and waits of four trees on 20,000 rows of 30 columns, 5 candidates
//                                     levels alone    with small nodes
//         keys of bins                408, 44         266, 29
//         bins counted                324, 43         209, 28
//         targets                     454, 47         220, 24
//     a tree on 5000 rows, 28 candidates: megabytes of sectors; steps
//         keys of bins                69; 56,000      26; 171,000
//         bins counted                53; 48,000      17; 200,000
//
//     grow_small of that tree                     keys in global memory     in shared memory
//         requests of warps to global memory      2,100,000                 545,000
//         the same to shared memory               661,000                   2,873,000
//         megabytes of sectors of blocks          6.3                       2.2
//         steps                                   166,000                   158,000
//         shared memory of a block                28 KB                     52 KB
//     the same with 5 of 30 candidates
//         requests of warps to global memory      606,000                   153,000
//         steps                                   96,000                    54,000
//     bytes of a sample of a growing tree, 5 of 30 candidates and 28 of 784
//                                                 535 and 2825              399 and 2137
//
// All but 13,000 of the steps are in this kernel. With counted bins, of a byte each, it uses 28 % of the bytes of its
// sectors.
//
// A small node has at most 512 samples (SMALL of small_nodes.py). Ten trees on 50,000 rows have 35 levels, of which 21
// have nodes of more than 256 samples, 14 of more than 512, 10 of more than 1024, and 6 of more than 4096. With these
// limits the kernel made 41, 82, 138 and 472 thousand steps for a tree on 5000 rows with 5 candidates, with keys in
// global memory; levels alone make 51 thousand. If a step takes 10 to 20 ns (an estimate) and a level 1.8 ms, 512 saves
// 21 levels for 1 to 2 ms.
//
// Columns of categories, whose orders take too many bytes per node, and `co2` grow by levels alone.

constexpr size MOST = 1024; // the most samples that a small node may have

// Nodes below small nodes, then the workspace of blocks; OUT of grow_small and grow_counted unless a member is IN.
// Below, n is n_samples: the samples of all trees.
struct Workspace {
    size *__restrict__ first;                 // (2 n,): the nodes of all levels, with members as in Level
    size *__restrict__ count;                 // (2 n,)
    int *__restrict__ tree;                   // (2 n,)
    unsigned long long *__restrict__ key;     // (2 n,)
    real *__restrict__ value;                 // (2 n, HF_LEAF_VALUES * n_outputs), or null for targets
    int *__restrict__ feature;                // (2 n,)
    double *__restrict__ threshold;           // (2 n,)
    double *__restrict__ gain;                // (2 n,)
    unsigned char *__restrict__ default_left; // (2 n,), 0 before, or empty
    size *__restrict__ place;                 // (2 n,), NOWHERE before
    double *__restrict__ unit;                // (2 n, UNIT), or null
    unsigned long long *measured;             // (n, n_measures): one level, as are total, mean and weight
    size *total;                              // (n, n_outputs + 1)
    double *__restrict__ mean;                // (n, n_outputs), empty for labels
    double *__restrict__ weight;              // (n,)
    const double *root_weight;                // (n_trees,); IN
    int *sample;                              // (n,): samples of the levels 0, 2, ..; IN and OUT
    size *u;                                  // (n,): u of these samples; IN and OUT
    int *other_sample;                        // (n,): samples of the levels 1, 3, ..; IN and OUT
    size *other_u;                            // (n,): u of these samples; IN and OUT
    unsigned char *__restrict__ marks;        // (n,): IS_PENDING and WANTS_UNIT of the nodes of a level
    size *__restrict__ pending;               // (n, 2): the arrays large and run of Pending
    int *__restrict__ swap;                   // (n / 2, n_columns): workspace of draw_columns_of
    int *__restrict__ column;                 // (n / 2, slots): column of a candidate, or -1
    unsigned long long *__restrict__ score;   // (n / 2, slots): members of Candidates, as are the next five
    unsigned long long *__restrict__ n_right;
    unsigned long long *__restrict__ greatest;
    double *__restrict__ bound;               // Candidates.threshold
    int *__restrict__ flipped;
    size *__restrict__ left;                  // (n / 2, slots, n_outputs), or empty
    unsigned long long *__restrict__ keys;    // (n, slots), empty unless splits are random: Candidates.key
    size *__restrict__ chosen;                // (n / 2,): members of Split, as are the next three
    unsigned long long *__restrict__ split;   // (n / 2,): Split.greatest
    size *__restrict__ n_left;                // (n / 2,)
    unsigned char *__restrict__ right;        // (n,)
    int *__restrict__ entry;                  // (n / 2, slots, max_entries): Entries.index
    float *__restrict__ factor;               // (n / 2, slots, max_entries): Entries.weight
    size *__restrict__ n_entries;             // (n / 2, slots)
    size n_trees, slots, value_bits, max_entries, is_random, counts_bins;
    size n_before, n_keys; // of block_memory: numbers before the lists of pending nodes; keys behind them
};

// The candidates of the projection source: x and the distribution from which projections are drawn.
struct Projections {
    const real *x;            // (n_samples, n_features)
    const size *distribution; // numbers of the distribution, in the order of distribution_of (projections.cuh)
    const int *table;         // the groups or kernels, as draw_table of core/projections.py makes it
    size n_features;
    double density, zero_probability;
};

// Returns the number of times that a run of one key doubles until it has n.
__device__ static inline int doublings(size n) {
    int rounds = 0;
    while ((size)1 << rounds < n) ++rounds;
    return rounds;
}

// Writes the order of the keys of each candidate whose keys are in memory to candidates.near. Equal keys keep their
// order. In a round, each key finds its place in two runs that merge. other: workspace, as near.
__device__ static inline void
sort_keys(const Pending &pending, const Candidates &candidates, unsigned short *order, unsigned short *other) {
    __shared__ int most;
    const unsigned long long *key = candidates.key;
    const size slots = candidates.together;
    if (threadIdx.x == 0) most = 0;
    __syncthreads();
    for (size a = threadIdx.x; a < pending.n_nodes; a += BLOCK)
        atomicMax(&most, doublings(pending.begin[a + 1] - pending.begin[a]));
    __syncthreads();
    for (int round = 0; round < most; ++round) {
        const size width = (size)1 << round;
        for (size i = threadIdx.x; i < pending.n_samples; i += BLOCK) {
            const size a = segment(pending.begin, pending.n_nodes, i), begin = pending.begin[a];
            const size n = pending.begin[a + 1] - begin;
            const int left = doublings(n) - round;
            if (left <= 0) continue;
            const size run = (i - begin) >> round, low = (run ^ 1) * width, high = low + width < n ? low + width : n;
            for (size slot = 0; slot < slots; ++slot) {
                const size start = begin * slots + slot * n;
                const unsigned short *from = (left & 1 ? other : order) + start;
                const size e = round > 0 ? from[i - begin] : i - begin;
                const uint64_t own = key[start + e];
                size at = low, end = high;
                while (at < end) {
                    const size middle = (at + end) / 2;
                    const uint64_t here = key[start + (round > 0 ? from[middle] : middle)];
                    if (here < own || (here == own && low < i - begin)) at = middle + 1;
                    else end = middle;
                }
                (left & 1 ? order : other)[start + (run & 1 ? i - begin - width : i - begin) + at - low] =
                    (unsigned short)e;
            }
        }
        __syncthreads();
    }
}

// A sum over places of candidates, and whether a candidate begins among them. later + earlier is that of both.
struct SumSince {
    size sum;
    bool begins;
    __device__ SumSince operator+(const SumSince &earlier) const {
        return {.sum = begins ? sum : sum + earlier.sum, .begins = begins || earlier.begins};
    }
};

// Returns the places from i on of a candidate whose keys are in memory, at most to `end`. Places are those of the keys.
__device__ static inline Run
part_from(const Level &level, const Pending &pending, const Candidates &candidates, size i, size end) {
    const size a = segment(pending.begin, pending.n_nodes, i / candidates.together), begin = pending.begin[a];
    const size n = pending.begin[a + 1] - begin, in_node = i - begin * candidates.together, from = in_node % n;
    return {
        .candidate = a * candidates.slots + candidates.start + in_node / n, .v = pending.node[a], .from = from,
        .to = n - from < end - i ? n : from + end - i, .start = i - from
    };
}

// The best split of a part of a candidate. n_right: number of samples on its right; 0: no split.
struct PartBest {
    size candidate, n_right;
    double score;
};

// Writes the best splits of the candidates whose keys are in memory and sorted. A thread scans `each` places, in which
// there may be several candidates or parts of them, four at least: so many have room for sums in candidates.left.
__device__ static inline void scan_together(
    const Target &y, size criterion, const Limits &limits, const Level &level, const Pending &pending,
    const Candidates &candidates
) {
    __shared__ SumSince shared[BLOCK];
    const size K = y.n_outputs, n = pending.n_samples * candidates.together, least = (n + BLOCK - 1) / BLOCK;
    const size each = least > 4 ? least : 4, from = threadIdx.x * each, to = from + each < n ? from + each : n;
    size u = 0, *sums = K <= NEAR ? own_sums(y) : candidates.left + threadIdx.x * K;
    bool begins = false;
    for (size k = 0; k < K && from < to; ++k) sums[k] = 0;
    for (size i = from; i < to;) {
        const Run part = part_from(level, pending, candidates, i, to);
        if (part.from == 0) {
            begins = true;
            u = 0;
            for (size k = 0; k < K; ++k) sums[k] = 0;
        }
        for (size j = part.from; j < part.to; ++j) u += add_place(y, level, candidates, part, j, sums);
        i += part.to - part.from;
    }
    for (size k = 0; k < K; ++k) {
        const size before = sum_before(SumSince{.sum = from < to ? sums[k] : 0, .begins = begins}, shared).sum;
        if (from < to) sums[k] = before;
    }
    u = sum_before(SumSince{.sum = u, .begins = begins}, shared).sum;
    PartBest first = {}, last = {}; // of candidates of which other threads have parts, too
    for (size i = from; i < to;) {
        const Run part = part_from(level, pending, candidates, i, to);
        const size count = level.count[part.v];
        double best;
        if (part.from == 0) {
            u = 0;
            for (size k = 0; k < K; ++k) sums[k] = 0;
        }
        const size n_left = scan_run(y, criterion, limits, level, candidates, part, sums, u, &best);
        if (n_left) {
            const PartBest own = {.candidate = part.candidate, .n_right = count - n_left, .score = best};
            if (i == from) first = own;
            else last = own;
            atomicMax(&candidates.score[own.candidate], (unsigned long long)ordered(best));
            if (part.to - part.from == count) candidates.n_right[own.candidate] = own.n_right;
        }
        i += part.to - part.from;
    }
    __syncthreads();
    for (int i = 0; i < 2; ++i) {
        const PartBest own = i == 0 ? first : last;
        if (own.n_right && candidates.score[own.candidate] == ordered(own.score))
            atomicMax(&candidates.n_right[own.candidate], (unsigned long long)own.n_right);
    }
}

// Moves pointers by n elements, unless they are null.
template <typename... P> __device__ static inline void shift(size n, P &...array) {
    ((array = array ? array + n : array), ...);
}

// Returns a pointer to element i of an array, or null if there is none.
template <typename T> __device__ static inline T *at(T *array, size i) { return array ? array + i : array; }

// The small node of a block and the level below it that the block grows, in shared memory, as registers would not hold
// it: what kernels of a level take as arguments. OUT of enter_node; the phases that are named write the rest.
struct SmallNode {
    size first, count;                   // the samples of the small node: first, .., first + count - 1 of its level
    size place;                          // its place in arrays of 2 n_samples elements
    size candidate;                      // its first candidate in arrays of (n_samples / 2) slots elements
    Level level;                         // the current level; OUT of move_level
    Children after;                      // the next level; OUT of move_level
    Pending pending;                     // the pending nodes of the current level; OUT of settle_level
    Orders orders;
    Candidates candidates;
    Split split;
    Entries entries;
    NodeEntries node_entries;            // entries of the nodes of the current level; OUT of move_level
    unsigned long long *keys;            // (n_keys,), in shared memory; OUT of write_keys
    unsigned short *order;               // (2, n_keys), in shared memory: Candidates.near, and workspace

    // Makes `number` the number of the level: samples move from one of two arrays to the other.
    __device__ void start_level(const Workspace &r, size number) {
        const bool is_odd = number % 2;
        level.number = number;
        level.sample = is_odd ? r.other_sample : r.sample;
        level.u = is_odd ? r.other_u : r.u;
        after.sample = is_odd ? r.sample : r.other_sample;
        after.u = is_odd ? r.u : r.other_u;
    }
};

static_assert(MOST <= NODES && MOST <= SIDES && MOST <= CHUNK, "a level of a small node is one tile");

// Returns the level that has the small node alone, before its number and its samples are known.
__device__ static inline Level root_level(const Target &y, const Workspace &r, const SmallNode &node) {
    const size K = y.n_outputs, first = node.first, place = node.place;
    return {
        .first = r.first + place,
        .count = r.count + place,
        .tree = r.tree + place,
        .key = r.key + place,
        .root_weight = r.root_weight,
        .measured = at(r.measured, first * n_measures(y)),
        .unit = at(r.unit, place * UNIT),
        .total = r.total + first * (K + 1),
        .mean = at(r.mean, first * K),
        .weight = r.weight + first,
        .value = at(r.value, place * HF_LEAF_VALUES * K),
        .feature = r.feature + place,
        .threshold = r.threshold + place,
        .gain = r.gain + place,
        .default_left = at(r.default_left, place),
        .place = r.place + place,
        .n_nodes = 1,
        .n_samples = node.count,
    };
}

// Returns the candidates of the pending nodes of a level.
__device__ static inline Candidates candidates_of(const Target &y, const Workspace &r, const SmallNode &node) {
    const size candidate = node.candidate;
    return {
        .key = at(r.keys, node.first * r.slots),
        .left = at(r.left, candidate * y.n_outputs),
        .score = r.score + candidate,
        .n_right = r.n_right + candidate,
        .greatest = at(r.greatest, candidate),
        .threshold = at(r.bound, candidate),
        .flipped = at(r.flipped, candidate),
        .column = r.column + candidate,
        .slots = r.slots,
        .n_orders = node.orders.n_orders,
        .value_bits = r.value_bits,
    };
}

// Enters small node blockIdx.x: writes it as the one node of a level. One thread calls it.
//   IN   small; r; orders and node_entries, as in grow_small
//   OUT  node; the first of its places in r: first, count, tree, key and unit
__device__ static inline void enter_node(
    const Target &y, const SmallNodes &small, const Workspace &r, const Orders &orders,
    const NodeEntries &node_entries, SmallNode &node
) {
    __shared__ size tail; // not in node, whose address would escape: members would be read again after each write
    const size b = blockIdx.x, first = small.first[b], n = small.count[b], place = 2 * first;
    const size candidate = first / 2 * r.slots, entry = candidate * r.max_entries, child = place + 1;
    size *const near = (size *)block_memory + r.n_before, *const far = r.pending + 2 * first;
    r.first[place] = first;
    r.count[place] = n;
    r.tree[place] = small.tree[b];
    r.key[place] = small.key[b];
    for (size j = 0; j < UNIT && has_units(y); ++j) r.unit[place * UNIT + j] = small.unit[b * UNIT + j];
    node.first = first;
    node.count = n;
    node.place = place;
    node.candidate = candidate;
    node.orders = orders, node.node_entries = node_entries;
    node.level = root_level(y, r, node);
    node.after = {
        .first = r.first + child, .count = r.count + child, .tree = r.tree + child, .key = r.key + child,
        .unit = at(r.unit, child * UNIT), .total = has_units(y) ? NULL : node.level.total, .n_trees = r.n_trees
    };
    node.pending = {
        .node = near, .begin = near + n / 2, .large = far, .run = far + n, .counts_bins = r.counts_bins
    };
    node.candidates = candidates_of(y, r, node);
    if (r.n_keys > 0) {
        node.keys = (unsigned long long *)near + n + 1;
        node.order = (unsigned short *)(node.keys + r.n_keys);
        node.candidates.key = node.keys, node.candidates.near = node.order;
    }
    node.split = {
        .chosen = r.chosen + first / 2, .greatest = r.split + first / 2, .n_left = r.n_left + first / 2,
        .right = r.right + first, .tail = &tail
    };
    node.entries = {
        .index = at(r.entry, entry), .weight = at(r.factor, entry), .n_entries = at(r.n_entries, candidate),
        .max_entries = r.max_entries
    };
    node.orders.flipped = at(orders.flipped, first / 2);
    shift(place, node.node_entries.begin, node.node_entries.count);
    node.start_level(r, small.depth[b]);
}

// Measures the samples of a level in a stage, or of its nodes that want a unit (units.cuh).
//   IN   wants (n_nodes,) of the level, or null
//   OUT  level.measured, and what the stage writes
__device__ static inline void measure_level(const Target &y, int stage, const unsigned char *wants, SmallNode &node) {
    const Level &level = node.level;
    __syncthreads();
    measure_tile(y, level, level.first, level.n_nodes, false, wants, stage, node.first, node.first + node.count);
    __syncthreads();
}

// Sums the samples of each node of a level: of the first one and, where nodes have units, of all. In other levels
// move_level has added up the samples.
//   OUT  level.measured and level.total
__device__ static inline void sum_level(const Target &y, SmallNode &node) {
    const Level &level = node.level;
    for (size i = threadIdx.x; i < level.n_nodes * (y.n_outputs + 1); i += BLOCK) level.total[i] = 0;
    for (size i = threadIdx.x; i < level.n_nodes * n_measures(y); i += BLOCK) level.measured[i] = 0;
    measure_level(y, INHERITED, NULL, node);
    if (last_stage(y) == SPREAD) measure_level(y, SPREAD, NULL, node);
}

// Settles the nodes of a level: writes each as a leaf, lists those that are pending, and makes units where nodes want
// them. Returns whether nodes are pending.
//   IN   level.total
//   OUT  leaves in level; part
__device__ static inline bool settle_level(
    const Target &y, const Limits &limits, const SmallNodes &small, const Workspace &r, SmallNode &node
) {
    __shared__ size counts[COUNTS];
    __shared__ unsigned long long end[COUNTS + 1];
    unsigned char *const marks = r.marks + node.first;
    Pending &pending = node.pending;
    if (threadIdx.x == 0) end[COUNTS] = 0;
    __syncthreads();
    settle_tile(y, limits, node.level, pending, marks, counts, end, 0);
    __syncthreads();
    list_tile(y, node.level, marks, counts, pending, small, end, 0);
    __syncthreads();
    if (end[COUNTS] > 0) {
        for (int stage = EXTREMES; stage <= last_stage(y); ++stage) measure_level(y, stage, marks, node);
        for (size v = threadIdx.x; v < node.level.n_nodes; v += BLOCK)
            if (marks[v] & WANTS_UNIT) finish_unit(y, node.level, v);
    }
    if (end[0] == 0) return false;
    if (threadIdx.x == 0)
        pending.n_nodes = end[0], pending.n_samples = end[1], pending.n_large = end[2], pending.n_runs = end[3];
    __syncthreads();
    return true;
}

// Draws the columns of the pending nodes; those of a large node by all threads together.
//   IN   pending
//   OUT  r.column, r.swap
__device__ static inline void draw_level(const Columns &c, const Workspace &r, const SmallNode &node) {
    int *const swap = at(r.swap, node.first / 2 * c.n_columns), *const column = r.column + node.candidate;
    const Pending &pending = node.pending;
    for (size l = 0; l < pending.n_large; ++l)
        draw_columns_of(c, node.level, pending, node.orders, swap, column, pending.large[l], threadIdx.x, BLOCK);
    for (size a = threadIdx.x; a < pending.n_nodes; a += BLOCK)
        draw_columns_of(c, node.level, pending, node.orders, swap, column, a, 0, 1);
}

// Draws the projections of the pending nodes.
//   IN   pending
//   OUT  entries
__device__ static inline void draw_level(const Projections &x, const Workspace &r, const SmallNode &node) {
    const hf_distribution d = distribution_of(x.distribution, x.table, x.density, x.zero_probability);
    for (size candidate = threadIdx.x; candidate < node.pending.n_nodes * r.slots; candidate += BLOCK)
        draw_projection(d, node.level, node.pending, r.slots, node.orders, node.entries, candidate);
}

// Scores the splits of the candidates from counts of their bins (histogram.cuh).
//   IN   pending, r.column
//   OUT  candidates: score, n_right, greatest, threshold; split.chosen
__device__ static inline void score_histograms(
    const Target &y, size criterion, const Limits &limits, const Workspace &r, const Columns &c,
    const SmallNode &node
) {
    const size slots = r.slots;
    for (size i = 0; i < node.pending.n_large * slots; ++i)
        score_candidate(y, criterion, limits, node.level, node.pending, node.candidates, c, NULL, i / slots, i % slots);
    for (size a = 0; a < node.pending.n_nodes; ++a)
        score_pairwise(y, criterion, limits, node.level, node.pending, node.candidates, c, a);
    __syncthreads();
    for (size a = threadIdx.x; a < node.pending.n_nodes; a += BLOCK) choose(node.candidates, node.split, a);
}

// Writes the keys of slots start, .., start + together - 1, or those of the candidates that nodes chose: their bins, or
// the values of projections if columns have no bins. All threads call it.
//   IN   pending; r.column, or entries
//   OUT  node.keys, or r.keys; start and together of candidates
__device__ static inline void write_keys(
    const Target &y, const Workspace &r, const Columns &c, const Projections &x, size start, size together,
    const size *chosen, SmallNode &node
) {
    const Level &level = node.level;
    const int *const column = r.column + node.candidate;
    const KeyBits bits = {.weight = 0, .label = 0, .value = r.value_bits};
    unsigned long long *const key = r.is_random ? r.keys + node.first * r.slots : node.keys;
    if (threadIdx.x == 0) node.candidates.start = start, node.candidates.together = together;
    for (size e = threadIdx.x; e < node.pending.n_samples * together; e += BLOCK) {
        Place at = place_of(level, node.pending, together, e);
        at.slot = !chosen ? at.slot + start : chosen[at.node] < 0 ? 0 : chosen[at.node] % r.slots;
        key[e] = c.low ? bin_key(c, y, level, node.pending, r.slots, node.orders, bits, column, at) :
            value_key(x.x, x.n_features, y, level, node.pending, r.slots, node.entries, node.orders, bits, at);
    }
    __syncthreads();
}

// Scores the splits of the candidates from their keys: random ones, or all.
//   IN   r.column, or entries
//   OUT  candidates: score, n_right, and of random splits greatest, threshold and flipped; split.chosen; the keys of
//        chosen candidates, and their order, are in memory
__device__ static inline void score_keys(
    const Target &y, size criterion, const Limits &limits, const Workspace &r, const Columns &c, const Projections &x,
    SmallNode &node
) {
    const Pending &pending = node.pending;
    const Candidates &candidates = node.candidates;
    const size slots = r.slots, n_candidates = pending.n_nodes * slots;
    const size fit = r.is_random ? slots : r.n_keys / pending.n_samples, most = fit < slots ? fit : slots;
    for (size candidate = threadIdx.x; candidate < n_candidates; candidate += BLOCK)
        candidates.score[candidate] = candidates.n_right[candidate] = 0;
    for (size start = 0; start < slots; start += most) {
        const size together = most < slots - start ? most : slots - start;
        write_keys(y, r, c, x, start, together, NULL, node);
        for (size candidate = threadIdx.x; r.is_random && candidate < n_candidates; candidate += BLOCK)
            random_split(y, criterion, limits, node.level, pending, candidates, c, node.orders, candidate);
        if (!r.is_random) {
            sort_keys(pending, candidates, node.order, node.order + r.n_keys);
            scan_together(y, criterion, limits, node.level, pending, candidates);
        }
        __syncthreads();
    }
    for (size a = threadIdx.x; a < pending.n_nodes; a += BLOCK) choose(candidates, node.split, a);
    __syncthreads();
    if (most == slots) return;
    write_keys(y, r, c, x, 0, 1, node.split.chosen, node);
    sort_keys(pending, candidates, node.order, node.order + r.n_keys);
}

// Picks the split of each pending node.
//   IN   candidates, split.chosen, r.column, entries
//   OUT  split but chosen, right and tail; feature, threshold, gain and default_left of level; node_entries
__device__ static inline void pick_level(
    const Target &y, size criterion, const Limits &limits, const Workspace &r, const Columns &c,
    const SmallNode &node
) {
    const Level &level = node.level;
    for (size a = threadIdx.x; a < node.pending.n_nodes; a += BLOCK) {
        pick_split(y, criterion, limits, level, node.pending, node.candidates, c, node.orders, node.split, a);
        write_projection(level, node.pending, node.entries, node.node_entries, node.split, a);
    }
}

// Moves the samples of the pending nodes to children, which become the current level.
//   IN   pending, candidates, split
//   OUT  right and tail of split; level, after and node_entries of the next level
__device__ static inline void move_level(const Target &y, const Workspace &r, const Columns &c, SmallNode &node) {
    Level &level = node.level;
    Children &after = node.after;
    const size K = y.n_outputs;
    if (!has_units(y))
        for (size i = threadIdx.x; i < 2 * node.pending.n_nodes * (K + 1); i += BLOCK) level.total[i] = 0;
    sides_of(level, node.pending, node.candidates, c, node.orders, node.split, 0);
    __syncthreads();
    move_tile(y, level, node.pending, node.split, after, 0);
    __syncthreads();
    if (threadIdx.x > 0) return;
    const size n_places = level.n_nodes, n_children = 2 * node.pending.n_nodes;
    shift(n_places, level.first, level.count, level.tree, level.key, level.feature, level.threshold, level.gain);
    shift(n_places, level.default_left, level.place, node.node_entries.begin, node.node_entries.count);
    shift(n_places * HF_LEAF_VALUES * K, level.value);
    shift(n_places * UNIT, level.unit);
    shift(n_children, after.first, after.count, after.tree, after.key);
    shift(n_children * UNIT, after.unit);
    level.n_nodes = n_children;
    node.start_level(r, level.number + 1);
}

// Grows small node blockIdx.x: the arguments are those of grow_small. COUNTED: bins are counted.
template <bool COUNTED>
__device__ static inline void grow_node(
    const Target &y, size criterion, const Limits &limits, const SmallNodes &small, const Workspace &r,
    const Columns &c, const Orders &orders, const Projections &x, const NodeEntries &node_entries
) {
    __shared__ SmallNode node;
    if (threadIdx.x == 0) enter_node(y, small, r, orders, node_entries, node);
    __syncthreads();
    sum_level(y, node);
    while (settle_level(y, limits, small, r, node)) {
        if (COUNTED || c.low) draw_level(c, r, node);
        else draw_level(x, r, node);
        __syncthreads();
        if constexpr (COUNTED) score_histograms(y, criterion, limits, r, c, node);
        else score_keys(y, criterion, limits, r, c, x, node);
        __syncthreads();
        pick_level(y, criterion, limits, r, c, node);
        __syncthreads();
        move_level(y, r, c, node);
        __syncthreads();
        if (has_units(y)) sum_level(y, node);
    }
}

// Grows small nodes whose bins are counted. One block per node, with the `block_memory` of score_bins and behind it, as
// in grow_small, n + 1 numbers, where n is the number of samples.
extern "C" __global__ void __launch_bounds__(BLOCK, 4) grow_counted(
    Target y, size criterion, Limits limits, SmallNodes small, Workspace workspace, Columns c, Orders o
) {
    grow_node<true>(y, criterion, limits, small, workspace, c, o, {}, {});
}

// Grows small nodes by keys of bins, or of projections if columns have no bins. One block per node, with block_memory:
//
//     n_before numbers                sums of threads, unless splits are random or NEAR is less than n_outputs
//     n / 2, then n / 2 + 1           node and begin of Pending
//     n_keys, unless 0                keys of 8 bytes; then, twice, orders of 2 bytes
//
// node_entries (2 n_samples,), OUT.
extern "C" __global__ void __launch_bounds__(BLOCK, 4) grow_small(
    Target y, size criterion, Limits limits, SmallNodes small, Workspace workspace, Columns c, Orders o,
    Projections x, NodeEntries node_entries
) {
    grow_node<false>(y, criterion, limits, small, workspace, c, o, x, node_entries);
}
