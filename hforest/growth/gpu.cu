// Trees grow level by level. The arrays of a level hold its nodes in order, each with its samples in ascending order.
// A pair is a node and one of its candidates:
//
//     sample, sample_weight    | node 0      | node 1 | node 2 ...     first[v]: where the samples of node v begin
//     key                      | pair 0,0 | pair 0,1 | pair 1,0 ...   samples of a node, once for each candidate (slot)
//
// The samples of a pair have keys (bin or value), which the array module sorts; then a thread scans the thresholds of
// a pair, and a thread picks the split of a node. All sums run in float64 in the order of reference.py. What a node
// samples depends on its key alone, so these are the trees of the other backends.
// Every kernel returns nothing: arguments that are const are IN, the others OUT or, where it says so, workspace.
// Members of structs are IN but in the kernels that their comment names.

#include "core/keys.cuh"
#include "core/projections.h"
#include "growth/poisson.h"

constexpr size BOOTSTRAP = 1, CHILDREN = 2, CANDIDATES = 3, THRESHOLD = 4, DIRECTION = 5;
constexpr double LARGEST_DOUBLE = 1.7976931348623157e308;

// What trees learn: labels, whose sums are weights by class, or targets, whose sums are distances from the node's mean.
// Which of the two is told by a number: an empty array of CuPy is null too.
struct Target {
    const int *labels;     // (n_samples,) if has_labels
    const double *targets; // (n_samples, n_outputs) if not
    size has_labels, n_outputs;
};

// Where trees stop.
struct Limits {
    size max_depth, min_samples_split, min_samples_leaf;
    double min_impurity_decrease, min_weight_fraction_leaf;
};

// The nodes of a level and their samples.
struct Level {
    const size *first;              // (n_nodes + 1,): where the samples of a node begin
    const int *tree;                // (n_nodes,)
    const unsigned long long *key;  // (n_nodes,): of random numbers
    const double *root_weight;      // (n_trees,); `weight` itself where the nodes are roots
    const int *sample;              // (n_samples,)
    const double *sample_weight;    // (n_samples,)
    double *__restrict__ total;     // (n_nodes, n_outputs): sums of what the samples learn; OUT of sum_up
    double *__restrict__ mean;      // (n_nodes, n_outputs) of targets, else empty; OUT of sum_up
    double *weight;                 // (n_nodes,): sums of sample_weight; OUT of sum_up
    int *__restrict__ feature;      // (n_nodes,), -1 before; OUT of name_columns and name_projections
    double *__restrict__ threshold; // (n_nodes,), 0 before; OUT of pick_splits
    double *__restrict__ gain;      // (n_nodes,), 0 before; OUT of pick_splits
    const size *n_left;             // (n_nodes,): samples of the left child, -1: a leaf
    size *__restrict__ right;       // (n_samples,), 0 before: 1 where a sample goes right; OUT of sides
    unsigned char *__restrict__ default_left; // (n_nodes,), 0 before; or null; OUT of pick_splits
};

// Nodes of a level that are split together.
struct Part {
    const size *node;  // (n_nodes,): their places in the level
    const size *begin; // (n_nodes + 1,): samples before those of each node
    size n_nodes, n_samples;
};

// Columns of bins. Columns follow each other, or (windows) overlap in one row. low and high: least and greatest value
// of each bin. width: bytes of a bin.
struct Columns {
    const unsigned char *bins; // (n_columns, n), or of windows (1, size of x)
    const double *low;         // (n_columns, n_bins), or of windows (1, n_bins); null of projections
    const double *high;        // as low
    const size *base;          // (n,): where a sample begins; or null: no windows
    const size *offset;        // (n_columns,): the distance of each of its numbers from there; or null
    size width, n, n_columns, n_bins, n_sampled;
};

// The entries of the projections of pairs; OUT of draw_projections.
struct Entries {
    int *__restrict__ index;      // (n_pairs, max_entries)
    float *__restrict__ weight;   // (n_pairs, max_entries)
    size *__restrict__ n_entries; // (n_pairs,)
    size max_entries;
};

// The pairs of a part, `slots` a node, and their splits: the best thresholds, of scan_splits, or random ones, of
// random_splits. Where these are random there is no order; where they are the best, no greatest and no threshold.
struct Pairs {
    const unsigned long long *key;              // (n_samples * slots,)
    const size *order;                          // (n_samples * slots,): the place of the e-th key in ascending order
    double *__restrict__ left;                  // workspace (n_pairs, n_outputs)
    double *__restrict__ score;                 // (n_pairs,); OUT
    size *__restrict__ n_left;                  // (n_pairs,): samples on the left, 0: there is no split; OUT
    unsigned long long *__restrict__ greatest;  // (n_pairs,): the greatest key that may lie on the left; OUT
    double *__restrict__ threshold;             // (n_pairs,); OUT
    int *__restrict__ flipped;                  // (n_pairs,): whether keys up to the greatest go right; OUT
    size slots;
};

// The splits of the nodes of a part; OUT of pick_splits.
struct Split {
    size *__restrict__ chosen;                 // (n_nodes,): a pair, or -1
    unsigned long long *__restrict__ greatest; // (n_nodes,): the greatest key on the left
    size *__restrict__ n_left;                 // (n_nodes,): samples on the left, or -1: no split
};

// ------------------------------------------------------------------------------------------ random numbers

extern "C" __global__ void tree_keys(size seed, size first, size n_trees, unsigned long long *__restrict__ key) {
    const size m = thread_number();
    if (m < n_trees) key[m] = hf_draw_key(hf_philox((uint64_t)seed, (uint64_t)(first + m), 0), 0);
}

// Adds to counts (n_trees, n), which begin at 0, how often a tree draws a sample. A thread draws four samples.
extern "C" __global__ void bootstrap_counts(
    const unsigned long long *__restrict__ key, size n_trees, size n, int *__restrict__ counts
) {
    const size i = thread_number(), n_draws = (n + 3) / 4;
    if (i >= n_trees * n_draws) return;
    const size tree = i / n_draws, at = i % n_draws;
    const hf_draw draw = hf_philox(key[tree], (uint64_t)at, BOOTSTRAP);
    for (size j = 0; j < 4 && 4 * at + j < n; ++j) atomicAdd(&counts[tree * n + hf_below(draw.word[j], (unsigned)n)], 1);
}

// Writes to counts (n_trees, n) how often a tree has each of the rows from first_row on.
extern "C" __global__ void poisson_counts(
    const unsigned long long *__restrict__ key, size n_trees, size n, size first_row, int *__restrict__ counts
) {
    const size i = thread_number();
    if (i >= n_trees * n) return;
    const size row = first_row + i % n;
    counts[i] = hf_poisson(hf_philox(key[i / n], (uint64_t)(row / 4), HF_STREAM_POISSON).word[row % 4]);
}

extern "C" __global__ void child_keys(
    const unsigned long long *__restrict__ key, const size *__restrict__ parent, size n,
    unsigned long long *__restrict__ child
) {
    const size i = thread_number();
    if (i >= n) return;
    const hf_draw draw = hf_philox(key[parent[i]], 0, CHILDREN);
    child[2 * i] = hf_draw_key(draw, 0);
    child[2 * i + 1] = hf_draw_key(draw, 1);
}

// Adds to sums (n_outputs,) what sample `at` of a level adds: its weight w at its class, or w times its distance from
// the mean of node v.
__device__ static inline void add(const Target &y, const Level &level, size v, size at, double *sums) {
    const size s = level.sample[at];
    const double w = level.sample_weight[at];
    if (y.has_labels) sums[y.labels[s]] += w;
    else
        for (size k = 0; k < y.n_outputs; ++k)
            sums[k] += w * (y.targets[s * y.n_outputs + k] - level.mean[v * y.n_outputs + k]);
}

// Writes the total, mean and weight of the nodes of a level. A thread owns one sum. pure (n_nodes,) begins at 1 and
// becomes 0 where samples of a node differ.
extern "C" __global__ void sum_up(Target y, Level level, size n_nodes, int *__restrict__ pure) {
    // Loads may use the read-only cache if the pointers of all stores are __restrict__ variables.
    double *__restrict__ total = level.total, *__restrict__ mean = level.mean, *__restrict__ weight = level.weight;
    const size i = thread_number(), n_outputs = y.n_outputs;
    if (i >= n_nodes * n_outputs) return;
    const size node = i / n_outputs, k = i % n_outputs, from = level.first[node], to = level.first[node + 1];
    double sum = 0, all = 0;
    int same = 1;
    for (size j = from; j < to; ++j) {
        const double w = level.sample_weight[j];
        all += w;
        if (!y.has_labels) {
            const double target = y.targets[level.sample[j] * n_outputs + k];
            sum += w * target;
            same &= target == y.targets[level.sample[from] * n_outputs + k];
        } else if (y.labels[level.sample[j]] == k) {
            sum += w;
            same &= y.labels[level.sample[from]] == k;
        } else {
            same &= y.labels[level.sample[from]] != k;
        }
    }
    if (!y.has_labels) {
        const double centre = sum / all;
        mean[i] = centre;
        sum = 0;
        for (size j = from; j < to; ++j)
            sum += level.sample_weight[j] * (y.targets[level.sample[j] * n_outputs + k] - centre);
    }
    total[i] = sum;
    if (k == 0) weight[node] = all;
    atomicAnd(&pure[node], same);
}

// value (n_leaves, n_outputs), OUT: shares of the classes, or the mean target. node (n_leaves,), IN: places in the
// level. A thread owns one number.
extern "C" __global__ void leaf_values(
    Target y, Level level, const size *__restrict__ node, size n_leaves, real *__restrict__ value
) {
    const size i = thread_number();
    if (i >= n_leaves * y.n_outputs) return;
    const size v = node[i / y.n_outputs], at = v * y.n_outputs + i % y.n_outputs;
    value[i] = (real)(y.has_labels ? level.total[at] / level.weight[v] : level.mean[at]);
}

// ---------------------------------------------------------------------------------------------- candidates

// Returns the index of the last of n starts, in ascending order, that is at most i.
__device__ static inline size segment(const size *start, size n, size i) {
    size low = 0, high = n;
    while (high - low > 1) {
        const size middle = low + (high - low) / 2;
        if (start[middle] <= i) low = middle;
        else high = middle;
    }
    return low;
}

// Returns the bin of a sample.
__device__ static inline unsigned bin_at(const Columns &c, size column, size sample) {
    const size at = c.base ? c.base[sample] + c.offset[column] : column * c.n + sample;
    if (c.width == 1) return c.bins[at];
    if (c.width == 2) return ((const unsigned short *)c.bins)[at];
    return ((const unsigned *)c.bins)[at];
}

// Returns where a row of low and high begins.
__device__ static inline size row_of_bins(const Columns &c, size column) { return c.base ? 0 : column * c.n_bins; }

#include "growth/orders.cuh"

// Writes the columns that a node samples to `column` (n_nodes, slots), n_sampled a node; -1 stands for none. Without
// replacement, by a Fisher-Yates shuffle whose swaps are looked up backwards in the workspace `swap` (n_nodes,
// n_columns) instead of being made. If none of the first n_sampled columns varies in the node, the next that varies is
// the only one. A column stands in the slots of all orders in which it may be scanned.
extern "C" __global__ void draw_columns(
    Columns c, Level level, Part part, Orders o, int *__restrict__ swap, int *__restrict__ column
) {
    const size a = thread_number();
    if (a >= part.n_nodes) return;
    const size v = part.node[a], slots = c.n_sampled * o.n_orders, first = level.first[v], last = level.first[v + 1];
    int *__restrict__ swaps = swap + a * c.n_columns, *__restrict__ mine = column + a * slots;
    for (size i = 0; i < slots; ++i) mine[i] = -1;
    bool varies = false;
    hf_draw draw = {{0, 0, 0, 0}};
    for (size i = 0; i < c.n_columns && (i < c.n_sampled || !varies); ++i) {
        if (i % 4 == 0) draw = hf_philox(level.key[v], (uint64_t)(i / 4), CANDIDATES);
        size place = i + hf_below(draw.word[i % 4], (unsigned)(c.n_columns - i));
        swaps[i] = (int)place;
        for (size j = i; j-- > 0;)
            if (swaps[j] == place) place = j;
        const unsigned bin = bin_at(c, place, level.sample[first]);
        size j = first + 1;
        while (j < last && bin_at(c, place, level.sample[j]) == bin) ++j;
        if (j == last) continue;
        varies = true;
        size count = o.n_orders;
        if (count > 2 && !is_categorical(o, place)) count = 2;
        for (size order = 0; order < count; ++order)
            mine[(i < c.n_sampled ? i : 0) * o.n_orders + order] = (int)place;
    }
}

// A key of a part: its pair, and its sample.
struct Place {
    size pair, sample;
};

// Returns where key e of a part comes from.
__device__ static inline Place place_of(const Level &level, const Part &part, size slots, size e) {
    const size a = segment(part.begin, part.n_nodes, e / slots), begin = part.begin[a];
    const size count = part.begin[a + 1] - begin, in_node = e - begin * slots;
    return {a * slots + in_node / count, level.sample[level.first[part.node[a]] + in_node % count]};
}

// key (n_samples * slots,), OUT: pair, then bin or its place, of the samples of all pairs. column (n_nodes, slots), IN.
extern "C" __global__ void bin_keys(
    Columns c, Level level, Part part, size slots, Orders o, const int *__restrict__ column,
    unsigned long long *__restrict__ key
) {
    const size e = thread_number();
    if (e >= part.n_samples * slots) return;
    const Place at = place_of(level, part, slots, e);
    unsigned place = 0;
    if (column[at.pair] >= 0)
        place = place_of_bin(
            c, o, level, part, column, at.pair / slots, at.pair % slots, bin_at(c, column[at.pair], at.sample)
        );
    key[e] = (uint64_t)at.pair << 32 | place;
}

// Returns hforest.core.projections.Distribution from its numbers: kind, n_features, channels, cyclic, max_entries,
// n_candidates of groups, then shape, patch_min and patch_max by axis; and from its groups.
__device__ static inline hf_distribution
distribution_of(const size *numbers, const int *groups, double density, double zero_probability) {
    hf_distribution a;
    a.kind = (int)numbers[0];
    a.n_features = numbers[1];
    a.channels = numbers[2];
    a.cyclic = (int)numbers[3];
    a.max_entries = numbers[4];
    a.n_candidates = numbers[5];
    a.groups = groups;
    a.density = density;
    a.zero_probability = zero_probability;
    for (int i = 0; i < HF_AXES; ++i) {
        a.shape[i] = numbers[6 + i];
        a.low[i] = numbers[6 + HF_AXES + i];
        a.high[i] = numbers[6 + 2 * HF_AXES + i];
    }
    return a;
}

// Writes the entries of the projection of each pair. A thread owns a pair.
extern "C" __global__ void draw_projections(
    const size *__restrict__ distribution, const int *__restrict__ groups, double density, double zero_probability,
    Level level, Part part, size slots, Orders o, Entries entries
) {
    const size pair = thread_number();
    if (pair >= part.n_nodes * slots) return;
    const hf_distribution a = distribution_of(distribution, groups, density, zero_probability);
    const hf_candidate own =
        hf_candidate_of(&a, level.key[part.node[pair / slots]], (uint64_t)(pair % slots / o.n_orders));
    entries.n_entries[pair] = hf_draw_projection(
        &a, own, hf_philox(own.key, 0, HF_STREAM_ENTRY), (unsigned *)entries.index + pair * entries.max_entries,
        entries.weight + pair * entries.max_entries
    );
}

// As bin_keys, of projections of x (n_samples, n_features): values are summed in float64 in the order of the entries
// and rounded once. A key of float64 has no bits left for the pair, which goes to pair_of (n_samples * slots,) instead.
extern "C" __global__ void value_keys(
    const real *__restrict__ x, size n_features, Level level, Part part, size slots, Entries entries, Orders o,
    unsigned long long *__restrict__ key, unsigned *__restrict__ pair_of
) {
    const size e = thread_number();
    if (e >= part.n_samples * slots) return;
    const Place at = place_of(level, part, slots, e);
    const real *row = x + at.sample * n_features;
    const size entry = at.pair * entries.max_entries, end = entry + entries.n_entries[at.pair];
    double sum = 0;
    for (size j = entry; j < end; ++j) sum += (double)entries.weight[j] * (double)row[entries.index[j]];
    uint64_t value = ordered((real)sum);
    if (sum != sum) {
        const size number = at.pair % slots;
        const uint64_t own = level.key[part.node[at.pair / slots]];
        value = missing_place(o, 0, o.random ? draws_left(own, number) : number % o.n_orders > 0);
    }
    key[e] = sizeof(real) == 4 ? (uint64_t)at.pair << 32 | value : value;
    if (sizeof(real) == 8) pair_of[e] = (unsigned)at.pair;
}

// -------------------------------------------------------------------------------------------------- splits

// Returns the gain of node v from the score of its split.
__device__ static inline double decrease_of(const Target &y, size criterion, const Level &level, size v, double score) {
    return score - hf_node_score(criterion, level.total + v * y.n_outputs, y.n_outputs, level.weight[v]);
}

// Returns whether the gain of node v is too small.
__device__ static inline bool too_small(const Limits &limits, const Level &level, size v, double decrease) {
    return decrease / level.root_weight[level.tree[v]] < limits.min_impurity_decrease;
}

// Returns whether both sides of a split of node v weigh enough.
__device__ static inline bool enough(const Limits &limits, const Level &level, size v, double left, double right) {
    const double least = limits.min_weight_fraction_leaf * level.root_weight[level.tree[v]];
    return right > 0 && left >= least && right >= least;
}

// Writes the best split of each pair, between neighbours of different key. A thread owns a pair.
extern "C" __global__ void scan_splits(Target y, size criterion, Limits limits, Level level, Part part, Pairs pairs) {
    const size pair = thread_number(), slots = pairs.slots, n_outputs = y.n_outputs;
    if (pair >= part.n_nodes * slots) return;
    const size a = pair / slots, v = part.node[a], first = level.first[v], n = part.begin[a + 1] - part.begin[a];
    const size start = part.begin[a] * slots + pair % slots * n, least = limits.min_samples_leaf;
    const size *order = pairs.order + start;
    const double *all = level.total + v * n_outputs, weight = level.weight[v];
    double *__restrict__ sums = pairs.left + pair * n_outputs, left_weight = 0, best = 0;
    size found = 0;
    pairs.n_left[pair] = 0;
    if (pairs.key[order[0]] == pairs.key[order[n - 1]]) return;
    for (size k = 0; k < n_outputs; ++k) sums[k] = 0;
    for (size i = 0; i + 1 < n; ++i) {
        const size at = first + order[i] - start;
        add(y, level, v, at, sums);
        left_weight += level.sample_weight[at];
        if (i + 1 < least || n - i - 1 < least || pairs.key[order[i]] == pairs.key[order[i + 1]]) continue;
        const double rest = weight - left_weight;
        if (!enough(limits, level, v, left_weight, rest)) continue;
        const double here = hf_node_score(criterion, sums, n_outputs, left_weight) +
                            hf_branch_score(criterion, sums, all, n_outputs, rest);
        if (!found || here > best) {
            best = here;
            found = i + 1;
        }
    }
    pairs.score[pair] = best;
    pairs.n_left[pair] = found;
}

// Returns the random threshold of a node's candidate `number`: uniform from the least value, and below the greatest.
__device__ static inline double random_threshold(uint64_t key, size number, double least, double greatest) {
    double at = least + hf_unit(hf_philox(key, (uint64_t)number, THRESHOLD)) * (greatest - least);
    if (!(at <= LARGEST_DOUBLE)) at = least / 2 + greatest / 2;
    at = (double)(real)at;
    return at >= least && at < greatest ? at : least;
}

// Returns the last bin from `lowest` on, below `highest`, whose values are at most the threshold, or `lowest`.
__device__ static inline unsigned last_bin(const double *high, double threshold, unsigned lowest, unsigned highest) {
    while (highest - lowest > 1) {
        const unsigned middle = lowest + (highest - lowest) / 2;
        if (high[middle] <= threshold) lowest = middle;
        else highest = middle;
    }
    return lowest;
}

// Writes one random threshold of each pair, and its score. A column's number, which its threshold is drawn with, counts
// those before it that vary in the node; a projection's counts all. column (n_nodes, slots), IN, of columns. A thread
// owns a pair.
extern "C" __global__ void random_splits(
    Target y, size criterion, Limits limits, Level level, Part part, Pairs pairs, Columns c, Orders o,
    const int *__restrict__ column
) {
    const size pair = thread_number(), slots = pairs.slots, n_outputs = y.n_outputs;
    if (pair >= part.n_nodes * slots) return;
    const size a = pair / slots, v = part.node[a], first = level.first[v], n = part.begin[a + 1] - part.begin[a];
    const unsigned long long *keys = pairs.key + part.begin[a] * slots + pair % slots * n;
    const size own = c.low ? column[pair] : 0;
    uint64_t lowest = ~0ull, highest = 0, greatest, missing = 0;
    size n_missing = 0;
    pairs.n_left[pair] = 0;
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
    const size number = c.low ? varying_number(column, a * slots, pair % slots) : pair % slots;
    bool flipped = false;
    double at;
    if (lowest == highest) { // missing values against all others
        flipped = missing == 0;
        greatest = flipped ? highest - place_in_key(o, highest) : highest;
        at = largest();
    } else if (c.low && is_categorical(o, own)) {
        greatest = (uint64_t)pair << 32;
        at = 0;
    } else if (c.low) {
        const double *low = c.low + row_of_bins(c, own), *high = c.high + row_of_bins(c, own);
        const unsigned from = (unsigned)bin_of_place(o, own, 0, (unsigned)lowest);
        const unsigned to = (unsigned)bin_of_place(o, own, 0, (unsigned)highest);
        at = random_threshold(level.key[v], number, high[from], low[to]);
        greatest = ((uint64_t)pair << 32) + (unsigned)lowest + (last_bin(high, at, from, to) - from);
    } else {
        at = random_threshold(level.key[v], number, unordered(lowest, real()), unordered(highest, real()));
        greatest = (sizeof(real) == 4 ? (uint64_t)pair << 32 : 0) | ordered((real)at);
    }
    double *__restrict__ sums = pairs.left + pair * n_outputs, left_weight = 0;
    size count = 0;
    for (size k = 0; k < n_outputs; ++k) sums[k] = 0;
    for (size i = 0; i < n; ++i) {
        if ((keys[i] <= greatest) == flipped) continue;
        add(y, level, v, first + i, sums);
        left_weight += level.sample_weight[first + i];
        ++count;
    }
    const double rest = level.weight[v] - left_weight;
    if (count < limits.min_samples_leaf || n - count < limits.min_samples_leaf) return;
    if (!enough(limits, level, v, left_weight, rest)) return;
    pairs.score[pair] = hf_node_score(criterion, sums, n_outputs, left_weight) +
                        hf_branch_score(criterion, sums, level.total + v * n_outputs, n_outputs, rest);
    pairs.n_left[pair] = count;
    pairs.greatest[pair] = greatest;
    pairs.threshold[pair] = at;
    if (o.kind != PLAIN) pairs.flipped[pair] = flipped;
}

// Writes the best pair of each node; of equal ones the first. A node without a split, or whose gain is too small, has
// -1 samples on its left. column (n_nodes, slots), IN, of columns. A thread owns a node.
extern "C" __global__ void pick_splits(
    Target y, size criterion, Limits limits, Level level, Part part, Pairs pairs, Columns c, Orders o,
    const int *__restrict__ column, Split split
) {
    const size a = thread_number(), slots = pairs.slots;
    if (a >= part.n_nodes) return;
    const size v = part.node[a], n = part.begin[a + 1] - part.begin[a];
    size best = -1;
    for (size pair = a * slots; pair < (a + 1) * slots; ++pair)
        if (pairs.n_left[pair] > 0 && (best < 0 || pairs.score[pair] > pairs.score[best])) best = pair;
    split.chosen[a] = best;
    split.n_left[a] = -1;
    if (best < 0) return;
    const double decrease = decrease_of(y, criterion, level, v, pairs.score[best]);
    if (too_small(limits, level, v, decrease)) return;
    split.n_left[a] = pairs.n_left[best];
    level.gain[v] = decrease > 0 ? decrease : 0.0;
    if (!pairs.order) {
        split.greatest[a] = pairs.greatest[best];
        level.threshold[v] = pairs.threshold[best];
        if (o.kind != PLAIN) finish_split(level, part, pairs, c, column, o, split, a, 0, 0);
        return;
    }
    const size *last = pairs.order + part.begin[a] * slots + best % slots * n + pairs.n_left[best] - 1;
    const uint64_t below = pairs.key[last[0]], above = pairs.key[last[1]];
    split.greatest[a] = below;
    if (o.kind != PLAIN) {
        finish_split(level, part, pairs, c, column, o, split, a, below, above);
    } else if (!c.low) {
        level.threshold[v] = between(unordered(below, real()), unordered(above, real()));
    } else {
        const size row = row_of_bins(c, column[best]);
        level.threshold[v] = between(c.high[row + (unsigned)below], c.low[row + (unsigned)above]);
    }
}

// ----------------------------------------------------------------------------------------------- partition

// Writes whether each sample of a part goes right. A thread owns a sample.
extern "C" __global__ void sides(Level level, Part part, Pairs pairs, Orders o, Split split) {
    const size i = thread_number(), slots = pairs.slots;
    if (i >= part.n_samples) return;
    const size a = segment(part.begin, part.n_nodes, i), begin = part.begin[a];
    const size in_node = i - begin, count = part.begin[a + 1] - begin;
    if (split.n_left[a] < 0) return;
    const uint64_t key = pairs.key[begin * slots + split.chosen[a] % slots * count + in_node];
    const bool flipped = o.kind != PLAIN && o.flipped[a];
    level.right[level.first[part.node[a]] + in_node] = (key > split.greatest[a]) != flipped;
}

// Writes samples to their children, in order. before[i] samples up to the i-th go right; child[v] is where the left
// child of node v begins, or -1. A thread owns a sample.
extern "C" __global__ void move_samples(
    Level level, size n_nodes, size n_samples, const size *__restrict__ before, const size *__restrict__ child,
    int *__restrict__ sample_after, double *__restrict__ weight_after
) {
    const size i = thread_number();
    if (i >= n_samples) return;
    const size v = segment(level.first, n_nodes, i), from = level.first[v], right = level.right[i];
    if (child[v] < 0) return;
    const size n_right = before[i] - right - (before[from] - level.right[from]);
    const size to = child[v] + (right ? level.n_left[v] + n_right : i - from - n_right);
    sample_after[to] = level.sample[i];
    weight_after[to] = level.sample_weight[i];
}

// Copies runs of entries from one place to another. A thread owns a run.
extern "C" __global__ void move_entries(
    const int *__restrict__ index, const float *__restrict__ weight, const size *__restrict__ from,
    const size *__restrict__ to, const size *__restrict__ count, size n, int *__restrict__ index_after,
    float *__restrict__ weight_after
) {
    const size i = thread_number();
    if (i >= n) return;
    for (size j = 0; j < count[i]; ++j) {
        index_after[to[i] + j] = index[from[i] + j];
        weight_after[to[i] + j] = weight[from[i] + j];
    }
}

// Writes the feature of each node: that of its projection if it has one entry of weight 1, else -2. n_kept (n_nodes,),
// OUT: entries to be kept.
extern "C" __global__ void name_projections(
    Level level, Part part, Split split, Entries entries, size *__restrict__ n_kept
) {
    const size a = thread_number();
    if (a >= part.n_nodes) return;
    n_kept[a] = 0;
    if (split.n_left[a] < 0) return;
    const size pair = split.chosen[a], first = pair * entries.max_entries;
    const bool one = entries.n_entries[pair] == 1 && entries.weight[first] == 1;
    level.feature[part.node[a]] = one ? entries.index[first] : -2;
    n_kept[a] = one ? 0 : entries.n_entries[pair];
}

// Writes the feature of each node. column (n_nodes, slots), IN.
extern "C" __global__ void name_columns(Level level, Part part, Split split, const int *__restrict__ column) {
    const size a = thread_number();
    if (a < part.n_nodes && split.n_left[a] >= 0) level.feature[part.node[a]] = column[split.chosen[a]];
}
