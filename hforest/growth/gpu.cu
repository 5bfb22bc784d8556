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

#include "core/entries.h"

constexpr size BOOTSTRAP = 1, CHILDREN = 2, CANDIDATES = 3, THRESHOLD = 4;
constexpr double LARGEST_DOUBLE = 1.7976931348623157e308;

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

// Adds to sums (OUT) what a sample of weight w adds: w at its class, or w times its distance from the node's mean.
__device__ static inline void add(
    const int *labels, const double *targets, const double *mean, size n_outputs, size sample, double w, double *sums
) {
    if (mean == nullptr) sums[labels[sample]] += w;
    else
        for (size k = 0; k < n_outputs; ++k) sums[k] += w * (targets[sample * n_outputs + k] - mean[k]);
}

// Writes the sums of the nodes: weights by class, or weighted distances from the mean. A thread owns one sum. `pure`
// begins at 1 and becomes 0 where samples of a node differ.
extern "C" __global__ void sum_up(
    const int *__restrict__ sample, const double *__restrict__ sample_weight, const int *__restrict__ labels,
    const double *__restrict__ targets, size fit_targets, size n_outputs, const size *__restrict__ first,
    size n_nodes, double *__restrict__ total, double *__restrict__ mean, double *__restrict__ weight,
    int *__restrict__ pure
) {
    const size i = thread_number();
    if (i >= n_nodes * n_outputs) return;
    const size node = i / n_outputs, k = i % n_outputs, from = first[node], to = first[node + 1];
    double sum = 0, all = 0;
    int same = 1;
    for (size j = from; j < to; ++j) {
        const double w = sample_weight[j];
        all += w;
        if (fit_targets) {
            const double y = targets[sample[j] * n_outputs + k];
            sum += w * y;
            same &= y == targets[sample[from] * n_outputs + k];
        } else if (labels[sample[j]] == k) {
            sum += w;
            same &= labels[sample[from]] == k;
        } else {
            same &= labels[sample[from]] != k;
        }
    }
    if (fit_targets) {
        mean[i] = sum / all;
        sum = 0;
        for (size j = from; j < to; ++j) sum += sample_weight[j] * (targets[sample[j] * n_outputs + k] - mean[i]);
    }
    total[i] = sum;
    if (k == 0) weight[node] = all;
    atomicAnd(&pure[node], same);
}

// Writes the values of the leaves: shares of the classes, or the mean target. A thread owns one number.
extern "C" __global__ void leaf_values(
    const size *__restrict__ node, size n_leaves, size n_outputs, size fit_targets,
    const double *__restrict__ total, const double *__restrict__ mean, const double *__restrict__ weight,
    real *__restrict__ value
) {
    const size i = thread_number();
    if (i >= n_leaves * n_outputs) return;
    const size v = node[i / n_outputs], at = v * n_outputs + i % n_outputs;
    value[i] = (real)(fit_targets ? mean[at] : total[at] / weight[v]);
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

// Returns the bin of a sample; bins have `width` bytes. Columns follow each other, or (windows) overlap in one row.
__device__ static inline unsigned bin_at(
    const unsigned char *bins, size width, const size *base, const size *offset, size windows, size n, size column,
    size sample
) {
    const size at = windows ? base[sample] + offset[column] : column * n + sample;
    if (width == 1) return bins[at];
    if (width == 2) return ((const unsigned short *)bins)[at];
    return ((const unsigned *)bins)[at];
}

// Writes the columns that a node samples to `column` (n_nodes, slots); -1 stands for none. Without replacement, by a
// Fisher-Yates shuffle whose swaps are looked up backwards in the workspace `swap` (n_nodes, n_columns) instead of
// being made. If none of the first n_sampled columns varies in the node, the next that varies is the only one;
// completely random trees take the first that varies alone.
extern "C" __global__ void draw_columns(
    const unsigned char *__restrict__ bins, size width, const size *__restrict__ base,
    const size *__restrict__ offset, size windows, size n, size n_columns, const int *__restrict__ sample,
    const size *__restrict__ first, const unsigned long long *__restrict__ key, const size *__restrict__ node,
    size n_nodes, size n_sampled, size completely_random, int *__restrict__ swap, int *__restrict__ column
) {
    const size a = thread_number();
    if (a >= n_nodes) return;
    const size v = node[a], slots = completely_random ? 1 : n_sampled;
    int *swaps = swap + a * n_columns, *mine = column + a * slots;
    for (size c = 0; c < slots; ++c) mine[c] = -1;
    bool varies = false;
    hf_draw draw = {{0, 0, 0, 0}};
    for (size i = 0; i < n_columns && (i < n_sampled || !varies); ++i) {
        if (i % 4 == 0) draw = hf_philox(key[v], (uint64_t)(i / 4), CANDIDATES);
        size place = i + hf_below(draw.word[i % 4], (unsigned)(n_columns - i));
        swaps[i] = (int)place;
        for (size j = i; j-- > 0;)
            if (swaps[j] == place) place = j;
        const unsigned least = bin_at(bins, width, base, offset, windows, n, place, sample[first[v]]);
        size j = first[v] + 1;
        while (j < first[v + 1] && bin_at(bins, width, base, offset, windows, n, place, sample[j]) == least) ++j;
        if (j == first[v + 1]) continue;
        varies = true;
        mine[i < slots ? i : 0] = (int)place;
        if (completely_random) return;
    }
}

// Writes the keys of the samples of all pairs of some nodes: pair, then bin. begin[a] samples precede those of node a.
extern "C" __global__ void bin_keys(
    const unsigned char *__restrict__ bins, size width, const size *__restrict__ base,
    const size *__restrict__ offset, size windows, size n, const int *__restrict__ sample,
    const size *__restrict__ first, const size *__restrict__ node, const size *__restrict__ begin, size n_nodes,
    size slots, const int *__restrict__ column, size n_keys, unsigned long long *__restrict__ key
) {
    const size e = thread_number();
    if (e >= n_keys) return;
    const size a = segment(begin, n_nodes, e / slots), count = begin[a + 1] - begin[a];
    const size in_node = e - begin[a] * slots, pair = a * slots + in_node / count;
    const size s = sample[first[node[a]] + in_node % count];
    const unsigned bin =
        column[pair] < 0 ? 0 : bin_at(bins, width, base, offset, windows, n, column[pair], s);
    key[e] = (uint64_t)pair << 32 | bin;
}

// Returns hforest.core.projections.Distribution from its numbers: kind, n_features, channels, cyclic, max_entries, then
// shape, patch_min and patch_max by axis.
__device__ static inline hf_atoms distribution_of(const size *numbers, double density, double zero_probability) {
    hf_atoms a;
    a.kind = (int)numbers[0];
    a.n_features = numbers[1];
    a.channels = numbers[2];
    a.cyclic = (int)numbers[3];
    a.most = numbers[4];
    a.rate = density;
    a.none = zero_probability;
    for (int i = 0; i < HF_ATOM_AXES; ++i) {
        a.shape[i] = numbers[5 + i];
        a.low[i] = numbers[5 + HF_ATOM_AXES + i];
        a.high[i] = numbers[5 + 2 * HF_ATOM_AXES + i];
    }
    return a;
}

// Writes the entries of the projection of each pair, at most `max_entries` of them. A thread owns a pair.
extern "C" __global__ void draw_projections(
    const size *__restrict__ distribution, double density, double zero_probability,
    const unsigned long long *__restrict__ key,
    const size *__restrict__ node, size n_nodes, size slots, size max_entries, int *__restrict__ index,
    float *__restrict__ weight, size *__restrict__ n_entries
) {
    const size pair = thread_number();
    if (pair >= n_nodes * slots) return;
    const uint64_t own = hf_atom_key(key[node[pair / slots]], (uint64_t)(pair % slots));
    const hf_atoms a = distribution_of(distribution, density, zero_probability);
    n_entries[pair] = hf_draw_entries(
        &a, own, hf_philox(own, 0, HF_STREAM_ENTRY), (unsigned *)index + pair * max_entries, weight + pair * max_entries
    );
}

// Returns a number as a key of the same order; -0 has the key of 0. `unordered` is the inverse.
__device__ static inline uint64_t ordered(float a) {
    unsigned bits;
    a += 0.0f;
    memcpy(&bits, &a, sizeof bits);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}
__device__ static inline uint64_t ordered(double a) {
    uint64_t bits;
    a += 0.0;
    memcpy(&bits, &a, sizeof bits);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}
__device__ static inline double unordered(uint64_t key, float) {
    const unsigned word = (unsigned)key, bits = word >> 31 ? word & ~(1u << 31) : ~word;
    float a;
    memcpy(&a, &bits, sizeof a);
    return a;
}
__device__ static inline double unordered(uint64_t key, double) {
    const uint64_t bits = key >> 63 ? key & ~(1ull << 63) : ~key;
    double a;
    memcpy(&a, &bits, sizeof a);
    return a;
}

// As bin_keys, of projections: values are summed in float64 in the order of the entries and rounded once. A key of
// float64 has no bits left for the pair, which goes to `pair_of` instead.
extern "C" __global__ void value_keys(
    const real *__restrict__ x, size n_features, const int *__restrict__ sample, const size *__restrict__ first,
    const size *__restrict__ node, const size *__restrict__ begin, size n_nodes, size slots, size max_entries,
    const int *__restrict__ index, const float *__restrict__ weight, const size *__restrict__ n_entries,
    size n_keys, unsigned long long *__restrict__ key, unsigned *__restrict__ pair_of
) {
    const size e = thread_number();
    if (e >= n_keys) return;
    const size a = segment(begin, n_nodes, e / slots), count = begin[a + 1] - begin[a];
    const size in_node = e - begin[a] * slots, pair = a * slots + in_node / count;
    const real *row = x + sample[first[node[a]] + in_node % count] * n_features;
    double sum = 0;
    for (size j = pair * max_entries; j < pair * max_entries + n_entries[pair]; ++j)
        sum += (double)weight[j] * (double)row[index[j]];
    key[e] = ordered((real)sum);
    if (sizeof(real) == 4) key[e] |= (uint64_t)pair << 32;
    else pair_of[e] = (unsigned)pair;
}

// -------------------------------------------------------------------------------------------------- splits

// Writes the best split of each pair, between neighbours of different key: its score, and how many samples are on its
// left (0: there is no split). order[e] is the place of the e-th key in ascending order; `left` (pairs, n_outputs) is
// workspace.
extern "C" __global__ void scan_splits(
    const unsigned long long *__restrict__ key, const size *__restrict__ order, const int *__restrict__ sample,
    const double *__restrict__ sample_weight, const int *__restrict__ labels, const double *__restrict__ targets,
    size fit_targets, size n_outputs, const size *__restrict__ first, const size *__restrict__ node,
    const size *__restrict__ begin, size n_nodes, size slots, size criterion, size min_samples_leaf,
    const double *__restrict__ total, const double *__restrict__ mean, const double *__restrict__ weight,
    double *__restrict__ left, double *__restrict__ score, size *__restrict__ n_left
) {
    const size pair = thread_number();
    if (pair >= n_nodes * slots) return;
    const size a = pair / slots, v = node[a], n = begin[a + 1] - begin[a];
    const size start = begin[a] * slots + pair % slots * n;
    const double *all = total + v * n_outputs, *centre = fit_targets ? mean + v * n_outputs : nullptr;
    double *sums = left + pair * n_outputs, left_weight = 0, best = 0;
    size found = 0;
    n_left[pair] = 0;
    if (key[order[start]] == key[order[start + n - 1]]) return;
    for (size k = 0; k < n_outputs; ++k) sums[k] = 0;
    for (size i = 0; i + 1 < n; ++i) {
        const size at = first[v] + order[start + i] - start;
        add(labels, targets, centre, n_outputs, sample[at], sample_weight[at], sums);
        left_weight += sample_weight[at];
        if (i + 1 < min_samples_leaf || n - i - 1 < min_samples_leaf) continue;
        if (key[order[start + i]] == key[order[start + i + 1]]) continue;
        const double rest = weight[v] - left_weight;
        if (!(rest > 0)) continue;
        const double here = hf_node_score(criterion, sums, n_outputs, left_weight) +
                            hf_branch_score(criterion, sums, all, n_outputs, rest);
        if (!found || here > best) {
            best = here;
            found = i + 1;
        }
    }
    score[pair] = best;
    n_left[pair] = found;
}

// Writes the best pair of each node; of equal ones the first. A node without a split, or whose gain is too small, has
// -1 samples on its left. split_key[a] is the greatest key on the left; low and high are the tables of bins, or empty
// for projections.
extern "C" __global__ void pick_splits(
    const unsigned long long *__restrict__ key, const size *__restrict__ order, const size *__restrict__ node,
    const size *__restrict__ begin, size n_nodes, size slots, size n_outputs, size criterion,
    double min_impurity_decrease, const int *__restrict__ tree, const double *__restrict__ root_weight,
    const double *__restrict__ total, const double *__restrict__ weight, const double *__restrict__ score,
    const size *__restrict__ pair_left,
    const int *__restrict__ column, const double *__restrict__ low, const double *__restrict__ high, size n_bins,
    size windows, size *__restrict__ chosen, unsigned long long *__restrict__ split_key, size *__restrict__ n_left,
    double *__restrict__ threshold, double *__restrict__ gain
) {
    const size a = thread_number();
    if (a >= n_nodes) return;
    const size v = node[a], n = begin[a + 1] - begin[a];
    size best = -1;
    for (size pair = a * slots; pair < (a + 1) * slots; ++pair)
        if (pair_left[pair] > 0 && (best < 0 || score[pair] > score[best])) best = pair;
    chosen[a] = best;
    n_left[a] = -1;
    if (best < 0) return;
    const double decrease = score[best] - hf_node_score(criterion, total + v * n_outputs, n_outputs, weight[v]);
    if (decrease / root_weight[tree[v]] < min_impurity_decrease) return;
    const size last = begin[a] * slots + best % slots * n + pair_left[best] - 1;
    split_key[a] = key[order[last]];
    const uint64_t above = key[order[last + 1]];
    n_left[a] = pair_left[best];
    gain[v] = decrease > 0 ? decrease : 0.0;
    if (n_bins == 0) {
        threshold[v] = between(unordered(split_key[a], real()), unordered(above, real()));
    } else {
        const size row = windows ? 0 : column[best] * n_bins;
        threshold[v] = between(high[row + (unsigned)split_key[a]], low[row + (unsigned)above]);
    }
}

// Writes the split of a node of a completely random tree, uniform between the least and the greatest value; otherwise
// as pick_splits. `left` (nodes, n_outputs) is workspace.
extern "C" __global__ void random_split(
    const unsigned long long *__restrict__ key, const int *__restrict__ sample,
    const double *__restrict__ sample_weight,
    const int *__restrict__ labels, const double *__restrict__ targets, size fit_targets, size n_outputs,
    const size *__restrict__ first, const unsigned long long *__restrict__ node_key, const size *__restrict__ node,
    const size *__restrict__ begin, size n_nodes, size criterion, size min_samples_leaf, double min_impurity_decrease,
    const int *__restrict__ tree, const double *__restrict__ root_weight, const double *__restrict__ total,
    const double *__restrict__ mean, const double *__restrict__ weight, const int *__restrict__ column,
    const double *__restrict__ low, const double *__restrict__ high, size n_bins, size windows,
    double *__restrict__ left, size *__restrict__ chosen, unsigned long long *__restrict__ split_key,
    size *__restrict__ n_left,
    double *__restrict__ threshold, double *__restrict__ gain
) {
    const size a = thread_number();
    if (a >= n_nodes) return;
    const size v = node[a], n = begin[a + 1] - begin[a];
    chosen[a] = column[a] < 0 ? -1 : a;
    n_left[a] = -1;
    if (column[a] < 0) return;
    const unsigned long long *keys = key + begin[a];
    unsigned lowest = (unsigned)keys[0], highest = lowest;
    for (size i = 1; i < n; ++i) {
        const unsigned bin = (unsigned)keys[i];
        lowest = bin < lowest ? bin : lowest;
        highest = bin > highest ? bin : highest;
    }
    const size row = windows ? 0 : column[a] * n_bins;
    const double from = high[row + lowest], to = low[row + highest];
    double at = from + hf_unit(hf_philox(node_key[v], 0, THRESHOLD)) * (to - from);
    if (!(at <= LARGEST_DOUBLE)) at = from / 2 + to / 2;
    at = (double)(real)at;
    if (!(at >= from && at < to)) at = from;
    // The last bin on the left: its values are at most the threshold.
    unsigned bin = lowest, above = highest;
    while (above - bin > 1) {
        const unsigned middle = bin + (above - bin) / 2;
        if (high[row + middle] <= at) bin = middle;
        else above = middle;
    }
    const double *all = total + v * n_outputs, *centre = fit_targets ? mean + v * n_outputs : nullptr;
    double *sums = left + a * n_outputs, left_weight = 0;
    size count = 0;
    for (size k = 0; k < n_outputs; ++k) sums[k] = 0;
    for (size i = 0; i < n; ++i) {
        if ((unsigned)keys[i] > bin) continue;
        const size place = first[v] + i;
        add(labels, targets, centre, n_outputs, sample[place], sample_weight[place], sums);
        left_weight += sample_weight[place];
        ++count;
    }
    const double rest = weight[v] - left_weight;
    if (count < min_samples_leaf || n - count < min_samples_leaf || !(rest > 0)) return;
    const double decrease = hf_node_score(criterion, sums, n_outputs, left_weight) +
                            hf_branch_score(criterion, sums, all, n_outputs, rest) -
                            hf_node_score(criterion, all, n_outputs, weight[v]);
    if (decrease / root_weight[tree[v]] < min_impurity_decrease) return;
    split_key[a] = (uint64_t)a << 32 | bin;
    n_left[a] = count;
    gain[v] = decrease > 0 ? decrease : 0.0;
    threshold[v] = at;
}

// ----------------------------------------------------------------------------------------------- partition

// Writes whether each sample of some nodes goes right. A thread owns a sample.
extern "C" __global__ void sides(
    const unsigned long long *__restrict__ key, const size *__restrict__ first, const size *__restrict__ node,
    const size *__restrict__ begin, size n_nodes, size slots, const size *__restrict__ chosen,
    const unsigned long long *__restrict__ split_key, const size *__restrict__ n_left, size n_samples,
    size *__restrict__ right
) {
    const size i = thread_number();
    if (i >= n_samples) return;
    const size a = segment(begin, n_nodes, i), in_node = i - begin[a], count = begin[a + 1] - begin[a];
    if (n_left[a] < 0) return;
    right[first[node[a]] + in_node] = key[begin[a] * slots + chosen[a] % slots * count + in_node] > split_key[a];
}

// Writes samples to their children, in order. before[i] samples up to the i-th go right; child[v] is where the left
// child of node v begins, or -1. A thread owns a sample.
extern "C" __global__ void move_samples(
    const int *__restrict__ sample, const double *__restrict__ sample_weight, const size *__restrict__ first,
    size n_nodes, const size *__restrict__ right, const size *__restrict__ before, const size *__restrict__ child,
    const size *__restrict__ n_left, size n_samples, int *__restrict__ sample_after,
    double *__restrict__ weight_after
) {
    const size i = thread_number();
    if (i >= n_samples) return;
    const size v = segment(first, n_nodes, i), from = first[v];
    if (child[v] < 0) return;
    const size n_right = before[i] - right[i] - (before[from] - right[from]);
    const size to = child[v] + (right[i] ? n_left[v] + n_right : i - from - n_right);
    sample_after[to] = sample[i];
    weight_after[to] = sample_weight[i];
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

// Writes the feature of each node: that of its projection if it has one entry of weight 1, else -2. n_kept: entries
// to be kept.
extern "C" __global__ void name_projections(
    const size *__restrict__ chosen, const size *__restrict__ n_left, size n_nodes, size max_entries,
    const int *__restrict__ index, const float *__restrict__ weight, const size *__restrict__ n_entries,
    const size *__restrict__ node, int *__restrict__ feature, size *__restrict__ n_kept
) {
    const size a = thread_number();
    if (a >= n_nodes) return;
    n_kept[a] = 0;
    if (n_left[a] < 0) return;
    const size pair = chosen[a];
    const bool one = n_entries[pair] == 1 && weight[pair * max_entries] == 1;
    feature[node[a]] = one ? index[pair * max_entries] : -2;
    n_kept[a] = one ? 0 : n_entries[pair];
}

extern "C" __global__ void name_columns(
    const size *__restrict__ chosen, const size *__restrict__ n_left, size n_nodes, const int *__restrict__ column,
    const size *__restrict__ node, int *__restrict__ feature
) {
    const size a = thread_number();
    if (a < n_nodes && n_left[a] >= 0) feature[node[a]] = column[chosen[a]];
}
