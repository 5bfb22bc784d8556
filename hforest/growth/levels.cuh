// The step from a level to the next: sums of nodes, the list of pending nodes, and the move of samples to children.

constexpr size NODES = 1024, NODES_EACH = NODES / BLOCK; // nodes per tile of settle, and per thread
constexpr size SIDES = 2048; // samples per tile of sides and move_samples
constexpr size COUNTS = 5;   // totals over pending nodes: struct Count

// The place of a node among those of its tree has the number of its level, and below, in FIRST_BITS bits, the position of
// its first sample. Ascending places are breadth-first, because the nodes of a level divide the samples.
constexpr size FIRST_BITS = 40, NOWHERE = 0x7fffffffffffffff;

// ---------------------------------------------------------------------------------------------------- sums

// Adds the integer weight of a sample to sum (n_nodes, n_classes), at its class.
__device__ static inline void add_whole(const Target &y, unsigned long long *sum, size v, size s, double w) {
    atomicAdd(&sum[v * y.n_outputs + y.labels[s]], (unsigned long long)w);
}

// Adds integer weights to sum (n_nodes, n_classes), OUT, 0 before, for nodes that are roots. One thread per sample.
extern "C" __global__ void sum_whole(Target y, Level level, unsigned long long *__restrict__ sum) {
    const size i = thread_number();
    if (i >= level.n_samples) return;
    add_whole(y, sum, segment(level.first, level.n_nodes, i), level.sample[i], level.sample_weight[i]);
}

// Does the work of sum_up for the large node v. All threads of a block call it.
__device__ static inline void sum_up_large(const Target &y, const Level &level, size v, int *mixed) {
    __shared__ double tile[2][TILE];
    const size K = y.n_outputs, first = level.first[v], n = level.count[v], one = level.sample[first];
    const int width = (int)K + 1, t = (int)threadIdx.x, adders = (width + 31) / 32 * 32;
    const int rows = TILE / width < ROWS ? TILE / width : ROWS;
    double sum = 0, all = 0;
    bool differ = false;
    for (int pass = y.has_labels ? 1 : 0; pass < 2; ++pass) {
        const auto load = [&](size from, int into, int thread, int n_threads) {
            for (size i = thread; i < rows && from + i < n; i += n_threads) {
                const size s = level.sample[first + from + i];
                write_terms(y, level, v, first + from + i, !y.has_labels && pass > 0, tile[into] + i * width);
                if (y.has_labels) differ |= y.labels[s] != y.labels[one];
                else
                    for (size k = 0; k < K; ++k) differ |= y.targets[s * K + k] != y.targets[one * K + k];
            }
        };
        int here = 0;
        sum = 0;
        load(0, 0, t, BLOCK);
        __syncthreads();
        for (size from = 0; from < n; from += rows, here ^= 1) {
            const int count = from + rows < n ? rows : (int)(n - from);
            if (t < width) sum = add_in_order(tile[here] + t, count, width, sum);
            else if (t >= adders) load(from + rows, here ^ 1, t - adders, BLOCK - adders);
            __syncthreads();
        }
        if (t == width - 1) tile[0][0] = sum;
        __syncthreads();
        all = tile[0][0];
        if (pass == 0 && t < K) level.mean[v * K + t] = sum / all;
        __syncthreads();
    }
    if (t < K) level.total[v * K + t] = sum;
    if (t == 0) level.weight[v] = all;
    if (differ) atomicOr(&mixed[v], 1);
}

// Computes sum i of a level, of one output of a node, unless the node is large and `by_blocks`.
__device__ static inline void sum_up_one(const Target &y, const Level &level, size i, bool by_blocks, int *__restrict__ mixed) {
    // Loads use the read-only cache only if the pointers of all stores are __restrict__ variables.
    double *__restrict__ total = level.total, *__restrict__ mean = level.mean, *__restrict__ weight = level.weight;
    const size K = y.n_outputs;
    const size v = i / K, k = i % K, from = level.first[v], to = from + level.count[v];
    if (from == to || (by_blocks && to - from > LARGE)) return;
    double sum = 0, all = 0;
    bool differ = false;
    for (size j = from; j < to; ++j) {
        const double w = level.sample_weight[j];
        all += w;
        if (!y.has_labels) {
            const double target = y.targets[level.sample[j] * K + k];
            sum += w * target;
            differ |= target != y.targets[level.sample[from] * K + k];
        } else {
            const int label = y.labels[level.sample[j]];
            if (label == k) sum += w;
            differ |= label != y.labels[level.sample[from]];
        }
    }
    if (!y.has_labels) {
        const double centre = sum / all;
        mean[i] = centre;
        sum = 0;
        for (size j = from; j < to; ++j) sum += level.sample_weight[j] * (y.targets[level.sample[j] * K + k] - centre);
    }
    total[i] = sum;
    if (k == 0) weight[v] = all;
    if (differ) atomicOr(&mixed[v], 1);
}

// Writes the total, mean and weight of the nodes of a level; and to mixed (n_nodes,), 0 before, whether the samples of
// a node differ. large (n_large,), IN: the large parents; not read with is_root, since every node may be large then.
// n_blocks: blocks that take one large node each, or 0; all other threads compute one sum each.
extern "C" __global__ void sum_up(
    Target y, Level level, const size *__restrict__ large, size is_root, size n_blocks, int *__restrict__ mixed
) {
    const size b = blockIdx.x, i = thread_number() - n_blocks * blockDim.x;
    if (b < n_blocks) {
        const size v = is_root ? b : 2 * large[b / 2] + b % 2;
        if (level.count[v] > LARGE) sum_up_large(y, level, v, mixed);
    } else if (i < level.n_nodes * y.n_outputs) {
        sum_up_one(y, level, i, n_blocks > 0, mixed);
    }
}

// --------------------------------------------------------------------------------------------- pending nodes

// Totals over pending nodes: of those of the part, and the number of small ones.
struct Count {
    size nodes, samples, large, runs, small;
    __device__ Count operator+(const Count &o) const {
        return {nodes + o.nodes, samples + o.samples, large + o.large, runs + o.runs, small + o.small};
    }
};

// Returns the totals of one node of n samples.
__device__ static inline Count count_of(size n, const Part &part) {
    if (n <= part.small) return {0, 0, 0, 0, 1};
    const size large = is_large(n, part.counts_bins), each = part.counts_bins ? CHUNK : RUN, runs = (n + each - 1) / each;
    return {1, n, large, part.counts_bins ? (runs > 1) * (runs < CHUNKS ? runs : CHUNKS) : large * runs, 0};
}

// Returns the totals of the threads of the block before this one.
__device__ static inline Count counts_before(const Count &own) {
    __shared__ Count shared[BLOCK];
    return sum_before(own, shared);
}

// Completes the sums of a tile of the nodes of a level, writes the nodes as leaves, and marks those that are pending:
// none at the greatest depth. sum (n_nodes, n_classes), IN if is_whole: sums of integer weights; else mixed (n_nodes,), IN.
// counts (n_tiles, COUNTS), OUT: totals over the nodes of a tile. A thread has NODES_EACH nodes; all of the block call it.
__device__ static inline void settle_tile(
    const Target &y, const Limits &limits, const Level &level, size is_whole, const Part &part,
    const unsigned long long *sum, const int *mixed, unsigned char *__restrict__ pending, size *__restrict__ counts,
    size tile
) {
    const size K = y.n_outputs, from = (tile * BLOCK + threadIdx.x) * NODES_EACH;
    size least = limits.min_samples_split > 2 * limits.min_samples_leaf ? limits.min_samples_split : 2 * limits.min_samples_leaf;
    if (least < 2) least = 2;
    Count own = {0, 0, 0, 0, 0};
    for (size v = from; v < from + NODES_EACH && v < level.n_nodes; ++v) {
        const size n = level.count[v];
        pending[v] = 0;
        level.feature[v] = -1;
        level.place[v] = n > 0 ? level.number << FIRST_BITS | level.first[v] : NOWHERE;
        level.threshold[v] = level.gain[v] = 0;
        if (n == 0) continue;
        bool mixes = !is_whole && mixed[v];
        if (is_whole) {
            double all = 0;
            for (size k = 0; k < K; ++k) {
                const double here = (double)sum[v * K + k];
                mixes |= all > 0 && here > 0;
                all += here;
                level.total[v * K + k] = here;
            }
            level.weight[v] = all;
        }
        for (size k = 0; k < K; ++k)
            level.value[v * K + k] = (real)(y.has_labels ? level.total[v * K + k] / level.weight[v] : level.mean[v * K + k]);
        if (!mixes || n < least || level.number >= limits.max_depth) continue;
        pending[v] = 1;
        own = own + count_of(n, part);
    }
    const Count all = counts_before(own) + own;
    if (threadIdx.x < BLOCK - 1) return;
    size *__restrict__ mine = counts + COUNTS * tile;
    mine[0] = all.nodes;
    mine[1] = all.samples;
    mine[2] = all.large;
    mine[3] = all.runs;
    mine[4] = all.small;
}

// Settles the nodes of a level; part has only numbers. A block has a tile.
extern "C" __global__ void settle(
    Target y, Limits limits, Level level, size is_whole, Part part,
    const unsigned long long *__restrict__ sum, const int *__restrict__ mixed, unsigned char *__restrict__ pending,
    size *__restrict__ counts
) {
    settle_tile(y, limits, level, is_whole, part, sum, mixed, pending, counts, blockIdx.x);
}

// Moves pending node v from its level to the small nodes, as number i.
__device__ static inline void list_small(const Level &level, const Small &small, size v, size i) {
    small.first[i] = level.first[v];
    small.count[i] = level.count[v];
    small.tree[i] = level.tree[v];
    small.key[i] = level.key[v];
    small.depth[i] = (int)level.number;
    level.place[v] = NOWHERE;
}

// Lists the pending nodes of a tile in the part, or as small nodes. end (COUNTS,), OUT: numbers of nodes of the part, of
// their samples, of large nodes, of their runs, and of small nodes. pending (n_nodes,) and counts (n_tiles, COUNTS), IN.
// A thread has NODES_EACH nodes; all of the block call it.
__device__ static inline void list_tile(
    const Level &level, const unsigned char *pending, const size *counts, const Part &part, const Small &small,
    unsigned long long *__restrict__ end, size tile
) {
    const size from = (tile * BLOCK + threadIdx.x) * NODES_EACH;
    Count own = {0, 0, 0, 0, 0};
    for (size b = threadIdx.x; b < tile; b += BLOCK) {
        const size *all = counts + COUNTS * b;
        own = own + Count{all[0], all[1], all[2], all[3], all[4]};
    }
    __shared__ Count start;
    Count at = counts_before(own);
    if (threadIdx.x == BLOCK - 1) start = at + own;
    __syncthreads();
    own = {0, 0, 0, 0, 0};
    for (size v = from; v < from + NODES_EACH && v < level.n_nodes; ++v)
        if (pending[v]) own = own + count_of(level.count[v], part);
    at = counts_before(own) + start;
    for (size v = from; v < from + NODES_EACH && v < level.n_nodes; ++v) {
        if (!pending[v]) continue;
        const Count more = count_of(level.count[v], part);
        if (more.small) {
            list_small(level, small, v, small.n_nodes + at.small);
        } else {
            part.node[at.nodes] = v;
            part.begin[at.nodes] = at.samples;
        }
        if (more.large) {
            part.large[at.large] = at.nodes;
            part.run[at.large] = at.runs;
        }
        at = at + more;
    }
    if (from + NODES_EACH < level.n_nodes || from >= level.n_nodes) return;
    part.begin[at.nodes] = at.samples;
    part.run[at.large] = at.runs;
    end[0] = at.nodes;
    end[1] = at.samples;
    end[2] = at.large;
    end[3] = at.runs;
    end[4] = at.small;
}

// Lists the pending nodes of a level. A block has a tile.
extern "C" __global__ void list_pending(
    Level level, const unsigned char *__restrict__ pending, const size *__restrict__ counts, Part part, Small small,
    unsigned long long *__restrict__ end
) {
    list_tile(level, pending, counts, part, small, end, blockIdx.x);
}

// ----------------------------------------------------------------------------------------------- partition

// Writes whether each sample of a tile of a part goes right, or without slots reads it; and the number of samples of its
// last node that go right. column (n_nodes, slots), IN, where bins are counted. All threads of a block call it.
__device__ static inline void sides_of(
    const Level &level, const Part &part, const Pairs &pairs, const Columns &c, const Orders &o, const int *column,
    const Split &split, size tile
) {
    __shared__ int tail;
    const size slots = pairs.slots, from = tile * SIDES, t = threadIdx.x;
    const size to = from + SIDES < part.n_samples ? from + SIDES : part.n_samples;
    const size last = part.begin[segment(part.begin, part.n_nodes, to - 1)];
    if (t == 0) tail = 0;
    __syncthreads();
    int mine = 0;
    for (size i = from + t; i < to; i += BLOCK) {
        const size a = segment(part.begin, part.n_nodes, i), begin = part.begin[a], n = part.begin[a + 1] - begin;
        if (slots > 0) {
            bool right = false;
            if (split.n_left[a] >= 0) {
                const size pair = split.chosen[a], place = i - begin;
                const uint64_t key = pairs.key ? pairs.key[begin * slots + pair % slots * n + place]
                                               : bin_at(c, column[pair], level.sample[level.first[part.node[a]] + place]);
                right = (key > split.greatest[a]) != (o.kind != PLAIN && o.flipped[a]);
            }
            split.right[i] = right;
        }
        mine += i >= last && split.right[i];
    }
    if (mine) atomicAdd(&tail, mine);
    __syncthreads();
    if (t == 0) split.tail[tile] = tail;
}

// Writes the sides of the samples of a part. One block per tile.
extern "C" __global__ void sides(
    Level level, Part part, Pairs pairs, Columns c, Orders o, const int *__restrict__ column, Split split
) {
    sides_of(level, part, pairs, c, o, column, split, blockIdx.x);
}

// Writes the children of node a of a part.
__device__ static inline void make_children(const Level &level, const Part &part, const Split &split, const Children &after, size a) {
    const size v = part.node[a], n_left = split.n_left[a];
    const hf_draw draw = hf_philox(level.key[v], 0, HF_STREAM_CHILDREN);
    for (int side = 0; side < 2; ++side) {
        const size child = 2 * a + side;
        after.first[child] = level.first[v] + (side && n_left > 0 ? n_left : 0);
        after.count[child] = n_left < 0 ? 0 : side ? level.count[v] - n_left : n_left;
        after.tree[child] = n_left < 0 ? (int)after.n_trees : level.tree[v];
        after.key[child] = hf_draw_key(draw, side);
    }
}

// Writes the children of the nodes of a part that begin in a tile of its samples, and moves the samples of the tile to
// children, in order. All threads of a block call it.
__device__ static inline void move_tile(
    const Target &y, const Level &level, const Part &part, const Split &split, const Children &after, size tile
) {
    constexpr int EACH = (int)SIDES / BLOCK;
    __shared__ unsigned short before[SIDES]; // for each sample of the tile: earlier ones that go right
    __shared__ int shared[BLOCK], in_front;  // in_front: the same for the first node in earlier tiles
    const size from = tile * SIDES, to = from + SIDES < part.n_samples ? from + SIDES : part.n_samples;
    const int t = (int)threadIdx.x;
    for (size i = from + t; i < from + SIDES; i += BLOCK) before[i - from] = i < to && split.right[i];
    if (t == 0) in_front = 0;
    __syncthreads();
    int sum = 0;
    for (int j = t * EACH; j < (t + 1) * EACH; ++j) sum += before[j];
    sum = sum_before(sum, shared);
    for (int j = t * EACH; j < (t + 1) * EACH; ++j) {
        const int own = before[j];
        before[j] = (unsigned short)sum;
        sum += own;
    }
    int earlier = 0;
    const size start = part.begin[segment(part.begin, part.n_nodes, from)];
    for (size b = start / SIDES + t; b < tile; b += BLOCK) earlier += (int)split.tail[b];
    if (earlier) atomicAdd(&in_front, earlier);
    __syncthreads();
    for (size i = from + t; i < to; i += BLOCK) {
        const size a = segment(part.begin, part.n_nodes, i), begin = part.begin[a], n_left = split.n_left[a];
        if (i == begin) make_children(level, part, split, after, a);
        if (n_left < 0) continue;
        const size right = split.right[i], n_right = before[i - from] + (begin < from ? in_front : -before[begin - from]);
        const size first = level.first[part.node[a]], at = first + i - begin;
        const size to_place = first + (right ? n_left + n_right : i - begin - n_right), s = level.sample[at];
        const double w = level.sample_weight[at];
        after.sample[to_place] = (int)s;
        after.sample_weight[to_place] = w;
        if (after.is_whole) add_whole(y, after.sum, 2 * a + right, s, w);
    }
}

// Moves the samples of a part. One block per tile.
extern "C" __global__ void move_samples(Target y, Level level, Part part, Split split, Children after) {
    move_tile(y, level, part, split, after, blockIdx.x);
}
