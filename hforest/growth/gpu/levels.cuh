// The tree builder's step from a level to the next: leaves and the list of pending nodes, then the move of samples to
// children. Both need a sum over everything before a node or a sample, so each is two launches over tiles: the first
// writes the total of a tile, the second adds the totals of earlier tiles to the sums within its own.
//
//     settle        leaves; totals of pending nodes of a tile      list_pending    the list of pending nodes
//     sides         side of each sample; totals of a tile          move_samples    children, and their samples in order

constexpr size NODES = 1024, NODES_EACH = NODES / BLOCK; // nodes of a tile of settle, and of a thread
constexpr size SIDES = 2048; // samples of a tile of sides and move_samples
constexpr size COUNTS = 5;   // members of Count

// The place of a node among those of its tree has the number of its level, and below, in FIRST_BITS bits, the position
// of its first sample. Ascending places are breadth-first, because the nodes of a level divide the samples.
constexpr size FIRST_BITS = 40, NOWHERE = 0x7fffffffffffffff;

// --------------------------------------------------------------------------------------------- pending nodes

// Totals of some nodes: of those that are pending the numbers of nodes, samples, large nodes and runs; the number of
// small nodes.
struct Count {
    size nodes, samples, large, runs, small;
    __device__ Count operator+(const Count &o) const {
        return {
            .nodes = nodes + o.nodes, .samples = samples + o.samples, .large = large + o.large, .runs = runs + o.runs,
            .small = small + o.small
        };
    }
};

// Returns the totals of one node of n samples that is to be split.
__device__ static inline Count count_of(size n, const Pending &pending) {
    if (n <= pending.small) return {.small = 1};
    const size large = is_large(n, pending.counts_bins), each = pending.counts_bins ? CHUNK : RUN, runs = (n +
        each - 1) / each;
    const size n_chunks = runs == 1 ? 0 : runs < CHUNKS ? runs : CHUNKS;
    return {.nodes = 1, .samples = n, .large = large, .runs = pending.counts_bins ? n_chunks : large * runs};
}

// Returns the totals of the threads of the block before this one.
__device__ static inline Count counts_before(const Count &own) {
    __shared__ Count shared[BLOCK];
    return sum_before(own, shared);
}

static_assert(NODES_EACH % 2 == 0, "siblings have one thread");

// Settles the nodes of a tile: writes their bounds, completes their sums, writes them as leaves, and marks them in
// `marks` (n_nodes,), OUT. Nodes at the greatest depth are not pending. A node that is to be split, or has values of
// labels, may want a unit of its own; its sums become 0. counts (n_tiles, COUNTS), OUT: totals over the nodes of the
// tile, in the order of Count. end[COUNTS], 0 before, OUT: number of nodes that want units. A thread has NODES_EACH
// nodes; all threads of the block call it.
__device__ static inline void settle_tile(
    const Target &y, const Limits &limits, const Level &level, const Pending &pending,
    unsigned char *__restrict__ marks, size *__restrict__ counts, word *__restrict__ end, size tile
) {
    const size K = y.n_outputs, from = (tile * BLOCK + threadIdx.x) * NODES_EACH;
    size least = limits.min_samples_split > 2 * limits.min_samples_leaf ? limits.min_samples_split :
        2 * limits.min_samples_leaf;
    if (least < 2) least = 2;
    Count own = {};
    for (size v = from; v < from + NODES_EACH && v < level.n_nodes; ++v) {
        const size n = level.count[v];
        size *total = total_of(y, level, v);
        marks[v] = 0;
        level.feature[v] = -1;
        level.place[v] = n > 0 ? level.number << FIRST_BITS | level.first[v] : NOWHERE;
        level.threshold[v] = level.gain[v] = 0;
        if (MONOTONIC) bound_siblings(y, level, v, total);
        if (n == 0) continue;
        if (!has_units(y)) {
            total[K] = 0;
            for (size k = 0; k < K; ++k) total[K] += total[k];
        }
        complete(y, level, v);
        if (!is_mixed(y, level, v)) continue;
        const bool splits = n >= least && level.number < limits.max_depth;
        if (splits) own = own + count_of(n, pending);
        marks[v] = splits ? IS_PENDING : 0;
        if (!(splits ? n > pending.small : y.has_labels) || !wants_unit(y, level, v)) continue;
        marks[v] |= WANTS_UNIT;
        atomicAdd(end + COUNTS, 1ull);
        for (size k = 0; k <= K; ++k) total[k] = 0;
        for (size i = 0; i < n_measures(y); ++i) measured_of(y, level, v)[i] = 0;
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

// Settles the nodes of a level; of `pending` it reads counts_bins and small. A block has a tile.
extern "C" __global__ void settle(
    Target y, Limits limits, Level level, Pending pending, unsigned char *__restrict__ marks,
    size *__restrict__ counts, unsigned long long *__restrict__ end
) {
    settle_tile(y, limits, level, pending, marks, counts, end, blockIdx.x);
}

// Makes node v of a level small node i: it is no pending node, and has no place in this level.
__device__ static inline void list_small(const Target &y, const Level &level, const SmallNodes &small, size v, size i) {
    small.first[i] = level.first[v];
    small.count[i] = level.count[v];
    small.tree[i] = level.tree[v];
    small.key[i] = level.key[v];
    small.depth[i] = (int)level.number;
    inherit_unit(y, level, v, small.unit, i);
    level.place[v] = NOWHERE;
}

// Writes the nodes of a tile that are to be split to `pending` or, if they have few samples, to `small`. marks
// (n_nodes,) and counts (n_tiles, COUNTS), IN: as settle writes them. end (COUNTS,), OUT: totals over the level, in the
// order of Count. A thread has NODES_EACH nodes; all threads of the block call it.
__device__ static inline void list_tile(
    const Target &y, const Level &level, const unsigned char *marks, const size *counts, const Pending &pending,
    const SmallNodes &small, unsigned long long *__restrict__ end, size tile
) {
    const size from = (tile * BLOCK + threadIdx.x) * NODES_EACH;
    Count own = {};
    for (size b = threadIdx.x; b < tile; b += BLOCK) {
        const size *all = counts + COUNTS * b;
        own = own + Count{.nodes = all[0], .samples = all[1], .large = all[2], .runs = all[3], .small = all[4]};
    }
    __shared__ Count start;
    Count at = counts_before(own);
    if (threadIdx.x == BLOCK - 1) start = at + own;
    __syncthreads();
    own = {};
    for (size v = from; v < from + NODES_EACH && v < level.n_nodes; ++v)
        if (marks[v] & IS_PENDING) own = own + count_of(level.count[v], pending);
    at = counts_before(own) + start;
    for (size v = from; v < from + NODES_EACH && v < level.n_nodes; ++v) {
        if (!(marks[v] & IS_PENDING)) continue;
        const Count more = count_of(level.count[v], pending);
        if (more.small) {
            list_small(y, level, small, v, small.n_nodes + at.small);
        } else {
            pending.node[at.nodes] = v;
            pending.begin[at.nodes] = at.samples;
        }
        if (more.large) {
            pending.large[at.large] = at.nodes;
            pending.run[at.large] = at.runs;
        }
        at = at + more;
    }
    if (from + NODES_EACH < level.n_nodes || from >= level.n_nodes) return;
    pending.begin[at.nodes] = at.samples;
    pending.run[at.large] = at.runs;
    end[0] = at.nodes;
    end[1] = at.samples;
    end[2] = at.large;
    end[3] = at.runs;
    end[4] = at.small;
}

// Lists the pending and the small nodes of a level. A block has a tile.
extern "C" __global__ void list_pending(
    Target y, Level level, const unsigned char *__restrict__ marks, const size *__restrict__ counts,
    Pending pending, SmallNodes small, unsigned long long *__restrict__ end
) {
    list_tile(y, level, marks, counts, pending, small, end, blockIdx.x);
}

// ----------------------------------------------------------------------------------------------- partition

// Writes split.right of the samples of a tile, unless candidates.slots is 0 and the caller has written it, and
// split.tail of the tile. All threads of a block call it.
__device__ static inline void sides_of(
    const Level &level, const Pending &pending, const Candidates &candidates, const Columns &c, const Orders &o,
    const Split &split, size tile
) {
    __shared__ int tail;
    const size from = tile * SIDES, t = threadIdx.x;
    const size to = from + SIDES < pending.n_samples ? from + SIDES : pending.n_samples;
    const size last = pending.begin[segment(pending.begin, pending.n_nodes, to - 1)];
    if (t == 0) tail = 0;
    __syncthreads();
    int mine = 0;
    for (size i = from + t; i < to; i += BLOCK) {
        const size a = segment(pending.begin, pending.n_nodes, i), begin = pending.begin[a];
        const size n = pending.begin[a + 1] - begin;
        if (candidates.slots > 0) {
            bool right = false;
            if (split.n_left[a] >= 0) {
                const size candidate = split.chosen[a], place = i - begin;
                const uint64_t key =
                    candidates.key ? candidates.key[first_key(candidates, candidate, begin, n) + place]
                                   : bin_at(c, candidates.column[candidate],
                                            level.sample[level.first[pending.node[a]] + place]);
                right = goes_right(level, pending, candidates, c, o, split, a, place, key);
            }
            split.right[i] = right;
        }
        mine += i >= last && split.right[i];
    }
    if (mine) atomicAdd(&tail, mine);
    __syncthreads();
    if (t == 0) split.tail[tile] = tail;
}

// Writes the sides of the samples of the pending nodes. One block per tile.
extern "C" __global__ void sides(
    Level level, Pending pending, Candidates candidates, Columns c, Orders o, Split split
) {
    sides_of(level, pending, candidates, c, o, split, blockIdx.x);
}

// Writes the children of pending node a.
__device__ static inline void make_children(
    const Target &y, const Level &level, const Pending &pending, const Split &split, const Children &after, size a
) {
    const size v = pending.node[a], n_left = split.n_left[a];
    const hf_draw draw = hf_philox(level.key[v], 0, HF_STREAM_CHILDREN);
    for (int side = 0; side < 2; ++side) {
        const size child = 2 * a + side;
        after.first[child] = level.first[v] + (side && n_left > 0 ? n_left : 0);
        after.count[child] = n_left < 0 ? 0 : side ? level.count[v] - n_left : n_left;
        after.tree[child] = n_left < 0 ? (int)after.n_trees : level.tree[v];
        after.key[child] = hf_draw_key(draw, side);
        inherit_unit(y, level, v, after.unit, child);
        if (MONOTONIC) after.unit[child * UNIT + ORDER] = n_left < 0 ? 0 : y.sign[level.feature[v]];
    }
}

// Writes the children of the pending nodes whose first sample is in a tile, and moves the samples of the tile to
// children, in order. All threads of a block call it.
__device__ static inline void move_tile(
    const Target &y, const Level &level, const Pending &pending, const Split &split, const Children &after,
    size tile
) {
    constexpr int EACH = (int)SIDES / BLOCK;
    __shared__ unsigned short before[SIDES]; // for each sample of the tile: earlier ones that go right
    __shared__ int shared[BLOCK], in_front;  // in_front: the same for the first node in earlier tiles
    const size from = tile * SIDES, to = from + SIDES < pending.n_samples ? from + SIDES : pending.n_samples;
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
    const size start = pending.begin[segment(pending.begin, pending.n_nodes, from)];
    for (size b = start / SIDES + t; b < tile; b += BLOCK) earlier += (int)split.tail[b];
    if (earlier) atomicAdd(&in_front, earlier);
    __syncthreads();
    for (size i = from + t; i < to; i += BLOCK) {
        const size a = segment(pending.begin, pending.n_nodes, i), begin = pending.begin[a], n_left = split.n_left[a];
        if (i == begin) make_children(y, level, pending, split, after, a);
        if (n_left < 0) continue;
        const size right = split.right[i], n_right = before[i - from] + (begin < from ? in_front :
            -before[begin - from]);
        const size first = level.first[pending.node[a]], at = first + i - begin;
        const size to_place = first + (right ? n_left + n_right : i - begin - n_right), s = level.sample[at];
        after.sample[to_place] = (int)s;
        after.u[to_place] = level.u[at];
        if (after.total) add_to(after.total + (2 * a + right) * (y.n_outputs + 1) + y.labels[s], level.u[at]);
    }
}

// Moves the samples of the pending nodes. One block per tile.
extern "C" __global__ void move_samples(Target y, Level level, Pending pending, Split split, Children after) {
    move_tile(y, level, pending, split, after, blockIdx.x);
}
