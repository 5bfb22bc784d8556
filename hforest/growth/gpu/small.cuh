// Small nodes: one block grows each to its leaves, level by level, with the functions of the kernels of a level. A tile
// has all nodes of a level, or their samples, and a thread adds up those of a pair. Arrays have room for all small nodes.
// A node whose n samples begin at position f of the level has
//
//     2 n places from 2 f on      for all nodes below it, level by level: at most 2 n - 1, empty places among them
//     n from f on                 for the nodes of a level, for pending nodes, and for samples
//     n / 2 from f / 2 on         for pending nodes, which have at least two samples each

constexpr size MOST = 1024; // samples of a small node, at most

// What blocks write: nodes below small nodes, then workspace. n_samples: of all trees.
struct Rooms {
    size *__restrict__ first;                 // (2 n_samples,), and so on, as in Level
    size *__restrict__ count;
    int *__restrict__ tree;
    unsigned long long *__restrict__ key;
    real *__restrict__ value;
    int *__restrict__ feature;
    double *__restrict__ threshold;
    double *__restrict__ gain;
    unsigned char *__restrict__ default_left; // 0 before
    size *__restrict__ place;                 // NOWHERE before
    double *__restrict__ unit;                // (2 n_samples, UNIT)
    unsigned long long *measured;             // (n_samples, ..), as in Level
    size *total;                              // (n_samples, n_outputs + 1)
    double *__restrict__ mean;                // (n_samples, n_outputs) of targets
    double *__restrict__ weight;              // (n_samples,)
    const double *root_weight;                // (n_trees,); IN
    int *sample;                              // (n_samples,) of the levels 0, 2, ..; IN
    size *u;                                  // as sample; IN
    int *other_sample;                        // (n_samples,) of the levels 1, 3, ..; IN
    size *other_u;                            // as other_sample; IN
    unsigned char *__restrict__ pending;      // (n_samples,)
    size *__restrict__ part;                  // (n_samples, 4): node, begin, large and run of Part
    int *__restrict__ swap;                   // (n_samples / 2, n_columns)
    int *__restrict__ column;                 // (n_samples / 2, slots), and so on
    unsigned long long *__restrict__ score;
    unsigned long long *__restrict__ n_right;
    unsigned long long *__restrict__ greatest;
    double *__restrict__ bound;               // thresholds of pairs
    int *__restrict__ flipped;
    size *__restrict__ left;                  // (n_samples / 2, slots, n_outputs)
    unsigned long long *__restrict__ keys;    // (n_samples, slots)
    size *__restrict__ order;                 // as keys; null: nothing is sorted
    size *__restrict__ other;                 // as order
    size *__restrict__ chosen;                // (n_samples / 2,), and so on, as in Split
    unsigned long long *__restrict__ split;
    size *__restrict__ n_left;
    unsigned char *__restrict__ right;        // (n_samples,)
    int *__restrict__ entry;                  // (n_samples / 2, slots, max_entries)
    float *__restrict__ factor;               // as entry
    size *__restrict__ n_entries;             // (n_samples / 2, slots)
    size n_trees, slots, value_bits, max_entries, is_random, counts_bins;
};

// Projections of x, as draw_projections and value_keys take them.
struct Projected {
    const real *x;
    const size *distribution;
    const int *groups;
    size n_features;
    double density, zero_probability;
};

// Returns the number of times that a run of one key doubles until it has n.
__device__ static inline int doublings(size n) {
    int rounds = 0;
    while ((size)1 << rounds < n) ++rounds;
    return rounds;
}

// Writes the order of the keys of each pair to order (n_samples * slots,), which has the index of the e-th key. Equal
// keys keep their order. In a round, each key finds its place in two runs that merge. `other` is workspace.
__device__ static inline void
sort_keys(const Part &part, const unsigned long long *key, size slots, size *order, size *other) {
    __shared__ int most;
    if (threadIdx.x == 0) most = 0;
    __syncthreads();
    for (size a = threadIdx.x; a < part.n_nodes; a += BLOCK) atomicMax(&most, doublings(part.begin[a + 1] - part.begin[a]));
    __syncthreads();
    for (int round = 0; round < most; ++round) {
        const size width = (size)1 << round;
        for (size i = threadIdx.x; i < part.n_samples; i += BLOCK) {
            const size a = segment(part.begin, part.n_nodes, i), begin = part.begin[a], n = part.begin[a + 1] - begin;
            const int left = doublings(n) - round;
            if (left <= 0) continue;
            const size run = (i - begin) >> round, low = (run ^ 1) * width, high = low + width < n ? low + width : n;
            for (size slot = 0; slot < slots; ++slot) {
                const size start = begin * slots + slot * n;
                const size *from = (left & 1 ? other : order) + start;
                const size e = round > 0 ? from[i - begin] : start + i - begin;
                const uint64_t own = key[e];
                size at = low, end = high;
                while (at < end) {
                    const size middle = (at + end) / 2;
                    const uint64_t here = key[round > 0 ? from[middle] : start + middle];
                    if (here < own || (here == own && low < i - begin)) at = middle + 1;
                    else end = middle;
                }
                (left & 1 ? order : other)[start + (run & 1 ? i - begin - width : i - begin) + at - low] = e;
            }
        }
        __syncthreads();
    }
}

// Moves pointers by n elements, unless they are null.
template <typename... P> __device__ static inline void shift(size n, P &...array) {
    ((array = array ? array + n : array), ...);
}

// Returns a pointer to element i of an array, or null if there is none.
template <typename T> __device__ static inline T *at(T *array, size i) { return array ? array + i : array; }

// Grows a small node: all arguments are as in grow_small. COUNTED: bins are counted.
template <bool COUNTED>
__device__ static inline void grow_node(
    const Target &y, size criterion, const Limits &limits, const Small &small, const Rooms &r, const Columns &c,
    const Orders &orders, const Projected &x, const Kept &all_kept
) {
    // In shared memory, as registers would not hold them.
    __shared__ Level level;
    __shared__ Part part;
    __shared__ Children after;
    __shared__ Orders o;
    __shared__ Pairs pairs;
    __shared__ Split split;
    __shared__ Entries entries;
    __shared__ Kept kept;
    static_assert(MOST <= NODES && MOST <= SIDES && MOST <= CHUNK, "tiles");
    __shared__ size counts[COUNTS], tail;
    __shared__ unsigned long long end[COUNTS + 1];
    const size K = y.n_outputs, slots = r.slots, t = threadIdx.x, b = blockIdx.x;
    const size first = small.first[b], n = small.count[b], place = 2 * first, pair = first / 2 * slots;
    int *const column = r.column + pair;
    const auto enter = [&](size number) {
        const bool odd = number % 2;
        level.number = number;
        level.sample = odd ? r.other_sample : r.sample;
        level.u = odd ? r.other_u : r.u;
        after.sample = odd ? r.sample : r.other_sample;
        after.u = odd ? r.u : r.other_u;
    };
    if (t == 0) {
        r.first[place] = first;
        r.count[place] = n;
        r.tree[place] = small.tree[b];
        r.key[place] = small.key[b];
        for (size j = 0; j < UNIT && has_units(y); ++j) r.unit[place * UNIT + j] = small.unit[b * UNIT + j];
        level = {
            r.first + place, r.count + place, r.tree + place, r.key + place, r.root_weight, 0, 0,
            at(r.measured, first * words_of_node(y)), at(r.unit, place * UNIT), r.total + first * (K + 1), at(r.mean, first * K), r.weight + first,
            at(r.value, place * HF_LEAF_VALUES * K), r.feature + place, r.threshold + place, r.gain + place,
            at(r.default_left, place), r.place + place, 1, n, 0
        };
        after = {
            r.first + place + 1, r.count + place + 1, r.tree + place + 1, r.key + place + 1, 0, 0,
            at(r.unit, (place + 1) * UNIT), has_units(y) ? 0 : level.total, r.n_trees
        };
        size *const list = r.part + 4 * first;
        part = {list, list + n, list + 2 * n, list + 3 * n, 0, 0, 0, 0, r.counts_bins, 0};
        pairs = {
            at(r.keys, first * slots), 0, at(r.order, first * slots), at(r.left, pair * K), r.score + pair,
            r.n_right + pair, at(r.greatest, pair), at(r.bound, pair), at(r.flipped, pair), slots, 0, 0, r.value_bits
        };
        split = {r.chosen + first / 2, r.split + first / 2, r.n_left + first / 2, r.right + first, &tail};
        entries = {
            at(r.entry, pair * r.max_entries), at(r.factor, pair * r.max_entries), at(r.n_entries, pair), r.max_entries
        };
        o = orders, kept = all_kept;
        o.flipped = at(o.flipped, first / 2);
        shift(place, kept.begin, kept.count);
        enter(small.depth[b]);
    }
    __syncthreads();
    unsigned long long *const key = at(r.keys, first * slots);
    size *const order = at(r.order, first * slots);
    int *const swap = at(r.swap, first / 2 * c.n_columns);
    unsigned char *const pending = r.pending + first;
    const auto measure_in = [&](int stage, const unsigned char *wants) {
        __syncthreads();
        measure_tile(y, level, level.first, level.n_nodes, false, wants, stage, first, first + n);
        __syncthreads();
    };
    for (bool is_first = true;; is_first = false) {
        __syncthreads();
        if (t == 0) end[COUNTS] = 0;
        if (is_first || has_units(y)) {
            for (size i = t; i < level.n_nodes * (K + 1); i += BLOCK) level.total[i] = 0;
            for (size i = t; i < level.n_nodes * words_of_node(y); i += BLOCK) level.measured[i] = 0;
            measure_in(INHERITED, 0);
            if (last_stage(y) == SPREAD) measure_in(SPREAD, 0);
        }
        settle_tile(y, limits, level, part, pending, counts, end, 0);
        __syncthreads();
        list_tile(y, level, pending, counts, part, small, end, 0);
        __syncthreads();
        if (end[COUNTS] > 0) {
            for (int stage = EXTREMES; stage <= last_stage(y); ++stage) measure_in(stage, pending);
            for (size v = t; v < level.n_nodes; v += BLOCK)
                if (pending[v] & WANTS_UNIT) finish_unit(y, level, v);
        }
        if (end[0] == 0) return;
        if (t == 0) part.n_nodes = end[0], part.n_samples = end[1], part.n_large = end[2], part.n_runs = end[3];
        __syncthreads();
        const size n_pairs = part.n_nodes * slots;
        if (c.low) {
            for (size l = 0; l < part.n_large; ++l)
                draw_columns_of(c, level, part, o, swap, column, part.large[l], t, BLOCK);
            for (size a = t; a < part.n_nodes; a += BLOCK)
                draw_columns_of(c, level, part, o, swap, column, a, 0, 1);
        }
        if constexpr (COUNTED) {
            __syncthreads();
            for (size i = 0; i < part.n_large * slots; ++i)
                score_pair(y, criterion, limits, level, part, pairs, c, column, 0, i / slots, i % slots);
            for (size a = 0; a < part.n_nodes; ++a)
                compare_node(y, criterion, limits, level, part, pairs, c, column, a);
        } else {
            for (size pair = t; pair < n_pairs; pair += BLOCK) {
                pairs.score[pair] = pairs.n_right[pair] = 0;
                if (c.low) continue;
                const hf_distribution d = distribution_of(x.distribution, x.groups, x.density, x.zero_probability);
                draw_projection(d, level, part, slots, o, entries, pair);
            }
            __syncthreads();
            for (size e = t; e < part.n_samples * slots; e += BLOCK) {
                if (c.low) bin_key(c, y, level, part, slots, o, {0, 0, r.value_bits}, column, key, e);
                else value_key(x.x, x.n_features, y, level, part, slots, entries, o, {0, 0, r.value_bits}, key, e);
            }
            __syncthreads();
            if (r.is_random) {
                for (size pair = t; pair < n_pairs; pair += BLOCK)
                    random_split(y, criterion, limits, level, part, pairs, c, o, column, pair);
            } else {
                sort_keys(part, key, slots, order, at(r.other, first * slots));
                size *sums = sums_of_thread(y, at(pairs.left, t * K));
                for (size pair = t; pair < n_pairs; pair += BLOCK)
                    scan_pair(y, criterion, limits, level, part, pairs, n, pair, sums);
            }
        }
        __syncthreads();
        for (size a = t; a < part.n_nodes; a += BLOCK) {
            pick_split(y, criterion, limits, level, part, pairs, c, o, column, split, a);
            keep_projection(level, part, entries, kept, split, a);
        }
        __syncthreads();
        if (!has_units(y))
            for (size i = t; i < 2 * part.n_nodes * (K + 1); i += BLOCK) level.total[i] = 0;
        sides_of(level, part, pairs, c, o, column, split, 0);
        __syncthreads();
        move_tile(y, level, part, split, after, 0);
        __syncthreads();
        if (t == 0) {
            const size n_places = level.n_nodes;
            shift(n_places, level.first, level.count, level.tree, level.key, level.feature, level.threshold, level.gain);
            shift(n_places, level.default_left, level.place, kept.begin, kept.count);
            shift(n_places * HF_LEAF_VALUES * K, level.value);
            shift(n_places * UNIT, level.unit);
            level.n_nodes = 2 * part.n_nodes;
            shift(level.n_nodes, after.first, after.count, after.tree, after.key);
            shift(level.n_nodes * UNIT, after.unit);
            enter(level.number + 1);
        }
    }
}

// Grows small nodes whose bins are counted. One block per node, with the `block_memory` of score_bins.
extern "C" __global__ void __launch_bounds__(BLOCK, 4) grow_counted(
    Target y, size criterion, Limits limits, Small small, Rooms rooms, Columns c, Orders o
) {
    grow_node<true>(y, criterion, limits, small, rooms, c, o, {}, {});
}

// Grows small nodes by keys of bins, or of projections if columns have no bins. One block per node. kept
// (2 n_samples,), OUT.
extern "C" __global__ void __launch_bounds__(BLOCK, 4) grow_small(
    Target y, size criterion, Limits limits, Small small, Rooms rooms, Columns c, Orders o, Projected x, Kept kept
) {
    grow_node<false>(y, criterion, limits, small, rooms, c, o, x, kept);
}
