// Small nodes: one block grows each to its leaves, level by level, with the functions of the kernels of a level. Arrays
// have room for all small nodes. A node whose n samples begin at position f of the level has
//
//     2 n places from 2 f on      for all nodes below it, level by level: at most 2 n - 1, empty places among them
//     n from f on                 for the nodes of a level, for pending nodes, and for samples
//     n / 2 from f / 2 on         for pending nodes, which have at least two samples each

static_assert(BLOCK * NEAR <= 2 * TILE, "sums of threads");
constexpr size SMALL = 4096; // samples of a small node, at most; as in gpu_levels.py

// Samples and nodes below small nodes, and workspace. n_samples: of all trees.
struct Rooms {
    int *sample;                         // (n_samples,) of the levels 0, 2, ..; those of the others are in Children
    double *sample_weight;               // as sample
    int *__restrict__ mixed;             // (n_samples,)
    unsigned char *__restrict__ pending; // (n_samples,)
    int *__restrict__ swap;              // (n_samples / 2, n_columns)
    int *__restrict__ column;            // (n_samples / 2, slots)
    size *order;                         // (n_samples, slots); null: nothing is sorted
    size *other;                         // as order
};

// Projections of x, as draw_projections and value_keys take them.
struct Projected {
    const real *x;
    const size *distribution;
    const int *groups;
    size n_features;
    double density, zero_probability;
};

// Sets of categories of nodes, as category_words takes them.
struct Words {
    size *__restrict__ count;
    unsigned *__restrict__ word;
    size max_words;
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

// Grows a small node: all arguments are as in grow_small. COUNTED: bins are counted.
template <bool COUNTED>
__device__ static inline void grow_node(
    const Target &y, size criterion, const Limits &limits, const Small &small, const Level &levels, const Part &parts,
    const Children &grown, const Rooms &all_rooms, const Columns &c, const Orders &all_orders, const Bits &bits,
    const Pairs &all_pairs, const Split &splits, const Projected &x, const Entries &all_entries, const Kept &all_kept,
    const Words &all_words, size by_blocks, size is_random
) {
    // In shared memory, as registers would not hold them.
    __shared__ Level level;
    __shared__ Part part;
    __shared__ Children after;
    __shared__ Rooms rooms;
    __shared__ Orders o;
    __shared__ Pairs pairs;
    __shared__ Split split;
    __shared__ Entries entries;
    __shared__ Kept kept;
    __shared__ Words words;
    __shared__ size counts[COUNTS * (SMALL / NODES / BLOCK)], tail[SMALL / SIDES];
    __shared__ unsigned long long end[COUNTS];
    const size K = y.n_outputs, slots = all_pairs.slots, t = threadIdx.x, b = blockIdx.x;
    const size first = small.first[b], n = small.count[b], half = first / 2;
    const auto enter = [&](size number) {
        const bool odd = number % 2;
        level.number = number;
        level.sample = odd ? grown.sample : rooms.sample;
        level.sample_weight = odd ? grown.sample_weight : rooms.sample_weight;
        after.sample = odd ? rooms.sample : grown.sample;
        after.sample_weight = odd ? rooms.sample_weight : grown.sample_weight;
    };
    if (t == 0) {
        level = levels, part = parts, after = grown, rooms = all_rooms, o = all_orders, pairs = all_pairs;
        split = splits, entries = all_entries, kept = all_kept, words = all_words;
        part.small = part.n_nodes = part.n_large = 0;
        level.n_nodes = 1;
        grown.first[2 * first] = first;
        grown.count[2 * first] = n;
        grown.tree[2 * first] = small.tree[b];
        grown.key[2 * first] = small.key[b];
        level.first = grown.first, level.count = grown.count, level.tree = grown.tree, level.key = grown.key;
        shift(2 * first, level.first, level.count, level.tree, level.key, level.feature, level.threshold, level.gain);
        shift(2 * first, level.default_left, level.depth, kept.begin, kept.count, words.count);
        shift(2 * first * K, level.value);
        shift(2 * first * words.max_words, words.word);
        shift(2 * first + 1, after.first, after.count, after.tree, after.key);
        shift(first, level.weight, part.node, part.begin, part.large, part.run, rooms.mixed, rooms.pending, split.right);
        shift(first * K, level.total, level.mean, after.sum);
        shift(first * slots, pairs.key, rooms.order, rooms.other);
        shift(half, split.chosen, split.greatest, split.n_left, o.flipped);
        shift(half * c.n_columns, rooms.swap);
        shift(half * slots, rooms.column, pairs.score, pairs.n_right, pairs.greatest, pairs.threshold, pairs.flipped);
        shift(half * slots, entries.n_entries);
        shift(half * slots * K, pairs.left);
        shift(half * slots * entries.max_entries, entries.index, entries.weight);
        split.tail = tail;
        pairs.order = rooms.order;
        enter(small.depth[b]);
    }
    __syncthreads();
    unsigned long long *const key = (unsigned long long *)pairs.key;
    if (after.is_whole) {
        for (size k = t; k < K; k += BLOCK) after.sum[k] = 0;
        __syncthreads();
        for (size i = first + t; i < first + n; i += BLOCK)
            add_whole(y, after.sum, 0, level.sample[i], level.sample_weight[i]);
    }
    for (;;) {
        __syncthreads();
        if (!after.is_whole) {
            for (size v = t; v < level.n_nodes; v += BLOCK) rooms.mixed[v] = 0;
            __syncthreads();
            for (size i = 0; by_blocks && i < (level.n_nodes == 1 ? 1 : 2 * part.n_large); ++i) {
                const size v = level.n_nodes == 1 ? 0 : 2 * part.large[i / 2] + i % 2;
                if (level.count[v] > LARGE) sum_up_large(y, level, v, rooms.mixed);
            }
            for (size i = t; i < level.n_nodes * K; i += BLOCK) sum_up_one(y, level, i, by_blocks, rooms.mixed);
            __syncthreads();
        }
        const size n_tiles = (level.n_nodes + NODES * BLOCK - 1) / (NODES * BLOCK);
        for (size tile = 0; tile < n_tiles; ++tile)
            settle_tile(y, limits, level, after.is_whole, part, after.sum, rooms.mixed, rooms.pending, counts, tile);
        __syncthreads();
        for (size tile = 0; tile < n_tiles; ++tile)
            list_tile(level, rooms.pending, counts, part, small, end, tile);
        __syncthreads();
        if (end[0] == 0) return;
        if (t == 0) part.n_nodes = end[0], part.n_samples = end[1], part.n_large = end[2], part.n_runs = end[3];
        __syncthreads();
        const size n_pairs = part.n_nodes * slots;
        if (after.is_whole)
            for (size i = t; i < 2 * part.n_nodes * K; i += BLOCK) after.sum[i] = 0;
        if (c.low) {
            for (size l = 0; l < part.n_large; ++l)
                draw_columns_of(c, level, part, o, rooms.swap, rooms.column, part.large[l], t, BLOCK);
            for (size a = t; a < part.n_nodes; a += BLOCK)
                draw_columns_of(c, level, part, o, rooms.swap, rooms.column, a, 0, 1);
        }
        if constexpr (COUNTED) {
            __syncthreads();
            for (size i = 0; i < part.n_large * slots; ++i)
                score_pair(y, criterion, limits, level, part, pairs, c, rooms.column, 0, i / slots, i % slots);
            for (size a = 0; a < part.n_nodes; ++a)
                compare_node(y, criterion, limits, level, part, pairs, c, rooms.column, a);
        } else {
            for (size pair = t; pair < n_pairs; pair += BLOCK) {
                pairs.score[pair] = pairs.n_right[pair] = 0;
                if (c.low) continue;
                const hf_distribution d = distribution_of(x.distribution, x.groups, x.density, x.zero_probability);
                draw_projection(d, level, part, slots, o, entries, pair);
            }
            __syncthreads();
            for (size e = t; e < part.n_samples * slots; e += BLOCK) {
                if (c.low) bin_key(c, y, level, part, slots, o, bits, rooms.column, key, e);
                else value_key(x.x, x.n_features, y, level, part, slots, entries, o, bits, key, e);
            }
            __syncthreads();
            if (is_random) {
                for (size pair = t; pair < n_pairs; pair += BLOCK)
                    random_split(y, criterion, limits, level, part, pairs, c, o, rooms.column, pair);
            } else {
                const size n_threads = n_pairs < BLOCK ? n_pairs : BLOCK;
                sort_keys(part, key, slots, rooms.order, rooms.other);
                double *sums = K <= NEAR ? *tiles() + t * NEAR : pairs.left + t * K;
                if (t < n_threads)
                    scan_pairs(y, criterion, limits, level, part, pairs, by_blocks ? LARGE : n, t, n_threads, sums);
                __syncthreads();
                for (size i = 0; by_blocks && i < part.n_large * slots; ++i)
                    scan_pair(y, criterion, limits, level, part, pairs, i / slots, i % slots);
            }
        }
        __syncthreads();
        for (size a = t; a < part.n_nodes; a += BLOCK) {
            pick_split(y, criterion, limits, level, part, pairs, c, o, rooms.column, entries, split, kept, a);
            if (words.max_words)
                words_of(c, level, part, pairs, split, rooms.column, o, words.max_words, words.word, words.count, a);
        }
        __syncthreads();
        for (size from = 0; from < part.n_samples; from += SIDES)
            sides_of(level, part, pairs, c, o, rooms.column, split, from / SIDES);
        __syncthreads();
        for (size from = 0; from < part.n_samples; from += SIDES) {
            move_tile(y, level, part, split, after, from / SIDES);
            __syncthreads();
        }
        if (t == 0) {
            const size n_places = level.n_nodes;
            shift(n_places, level.first, level.count, level.tree, level.key, level.feature, level.threshold, level.gain);
            shift(n_places, level.default_left, level.depth, kept.begin, kept.count, words.count);
            shift(n_places * K, level.value);
            shift(n_places * words.max_words, words.word);
            level.n_nodes = 2 * part.n_nodes;
            shift(level.n_nodes, after.first, after.count, after.tree, after.key);
            enter(level.number + 1);
        }
    }
}

// Grows small nodes whose bins are counted. One block per node, with the `block_memory` of score_bins.
extern "C" __global__ void __launch_bounds__(BLOCK, 4) grow_counted(
    Target y, size criterion, Limits limits, Small small, Level levels, Part parts, Children grown, Rooms rooms,
    Columns c, Orders o, Pairs pairs, Split split, Kept kept
) {
    grow_node<true>(
        y, criterion, limits, small, levels, parts, grown, rooms, c, o, {0, 0, 0}, pairs, split, {}, {}, kept, {}, 0, 0
    );
}

// Grows small nodes by keys of bins, or of projections if columns have no bins. One block per node.
extern "C" __global__ void __launch_bounds__(BLOCK, 4) grow_small(
    Target y, size criterion, Limits limits, Small small, Level levels, Part parts, Children grown, Rooms rooms,
    Columns c, Orders o, Bits bits, Pairs pairs, Split split, Projected x, Entries entries, Kept kept, Words words,
    size by_blocks, size is_random
) {
    grow_node<false>(
        y, criterion, limits, small, levels, parts, grown, rooms, c, o, bits, pairs, split, x, entries, kept, words,
        by_blocks, is_random
    );
}
