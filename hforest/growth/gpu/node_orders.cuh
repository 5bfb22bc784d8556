// The orders in which a node scans columns with missing values, and columns of categories: a column is a candidate once
// for each order, so that the scorers see only keys. growth/cpu/sources/node_orders.pyx describes the orders. A
// sampled column, or a projection with missing values, has `n_orders` slots, one for each order:
//
//     slots of a node    | column 0: order 0, order 1 | column 1: order 0, order 1 | ...
//
// Keys hold places in an order, not bins. A random split has one order, in which a draw has placed missing values first
// or last, and each category at place 0 or 1.

#include "core/defaults.h"
#include "growth/categories.h"

enum { PLAIN = 0, COLUMNS = 1, PROJECTIONS = 2 };

// In `place`, NUMBERED - j is the j-th category of a node that scores all divisions of its categories.
constexpr int NUMBERED = -2;

struct Orders {
    size kind;                        // PLAIN: no column has several orders
    size n_orders;                    // slots per sampled column
    size random;                      // whether splits are random
    const size *missing;              // (n_columns,): the bin of missing values, or -1
    const unsigned char *categorical; // (n_columns,): whether bins are categories; null: none are
    int *__restrict__ place;          // workspace (n_nodes, n_sampled, n_bins); OUT of order_columns: places of bins
    int *__restrict__ sorted;         // workspace, as place
    size *__restrict__ sums;          // workspace (n_nodes, n_sampled, n_bins, n_outputs + 1)
    double *__restrict__ terms;       // workspace (n_nodes, n_sampled, n_bins, n_outputs)
    double *__restrict__ weight;      // workspace (n_nodes, n_sampled, n_bins)
    double *__restrict__ score;       // workspace, as weight
    double *__restrict__ axis;        // workspace (n_nodes, n_sampled, 3, n_outputs)
    int *__restrict__ flipped;        // (n_nodes,): whether keys up to the greatest go right; OUT of pick_splits
};

__device__ static inline double largest() { return sizeof(real) == 4 ? 3.4028234663852886e38 : LARGEST_DOUBLE; }

__device__ static inline bool is_categorical(const Orders &o, size column) {
    return o.categorical && o.categorical[column];
}

// Returns whether the missing values of a column, or of a projection, have a key of their own.
__device__ static inline bool has_missing_key(const Orders &o, size column) {
    return o.kind == PROJECTIONS || (o.kind == COLUMNS && !is_categorical(o, column) && o.missing[column] >= 0);
}

// Returns whether one order of the categories has their best split.
__device__ static inline bool is_ordered(const Target &y) { return y.n_outputs <= (y.has_labels ? 2 : 1); }

// Returns the index of a candidate among those of its node that vary; slots without a column do not vary.
__device__ static inline size varying_number(const int *column, size first, size slot) {
    size number = slot;
    for (size other = 0; other < slot; ++other) number -= column[first + other] < 0;
    return number;
}

// Returns whether a draw sends the missing values of a candidate left.
__device__ static inline bool draws_left(uint64_t key, size number) {
    return hf_draws_missing_left(hf_philox(key, (uint64_t)number, HF_STREAM_DIRECTION).word[0]);
}

// Writes the places of the categories of sampled column i of the pending nodes if it is categorical, and removes the
// slots that it does not need from `column` (n_nodes, n_sampled * count), IN and OUT.
__device__ static inline void order_column(
    const Target &y, const Columns &c, const Level &level, const Pending &pending, const Orders &o,
    int *__restrict__ column, size i
) {
    const size n_sampled = c.n_sampled, n_outputs = y.n_outputs;
    const size a = i / n_sampled, v = pending.node[a], first = level.first[v], last = first + level.count[v];
    int *__restrict__ mine = column + i * o.n_orders, *__restrict__ place = o.place + i * c.n_bins;
    if (mine[0] < 0 || !is_categorical(o, mine[0])) return;
    const size own = mine[0];
    size k = 0;
    for (size b = 0; b < c.n_bins; ++b) place[b] = -1;
    for (size j = first; j < last; ++j) place[bin_at(c, own, level.sample[j])] = 0;
    for (size b = 0; b < c.n_bins; ++b)
        if (place[b] == 0) place[b] = (int)k++;
    size count = 1;
    if (o.random) {
        const size number = varying_number(column, a * n_sampled, i % n_sampled);
        size n_right = 0, lowest = -1;
        for (size b = 0; b < c.n_bins; ++b) {
            if (place[b] < 0) continue;
            if (lowest < 0) lowest = b;
            const hf_draw draw = hf_philox(level.key[v], hf_side_number(number, (uint32_t)b), HF_STREAM_DIRECTION);
            place[b] = (int)(draw.word[hf_side_word((uint32_t)b)] >> hf_side_bit((uint32_t)b) & 1);
            n_right += place[b];
        }
        if (n_right == 0 || n_right == k) place[lowest] ^= 1;
    } else if (!is_ordered(y) && k <= HF_ALL_DIVISIONS) {
        count = ((size)1 << (k - 1)) - 1;
        for (size b = 0; b < c.n_bins; ++b)
            if (place[b] >= 0) place[b] = NUMBERED - place[b];
    } else {
        const size n_categories = k, width = n_outputs + 1, *node = total_of(y, level, v);
        size *__restrict__ sums = o.sums + i * c.n_bins * width;
        double *__restrict__ terms = o.terms + i * c.n_bins * n_outputs, *__restrict__ weight = o.weight + i * c.n_bins;
        double *axis = o.axis + i * 3 * n_outputs, *total = axis + 2 * n_outputs, *score = o.score + i * c.n_bins;
        int *__restrict__ sorted = o.sorted + i * c.n_bins;
        int32_t *group = (int32_t *)score; // which is not written before the groups have been read
        for (size j = 0; j < n_categories; ++j) sorted[j] = 0;
        for (size j = first; j < last; ++j) ++sorted[place[bin_at(c, own, level.sample[j])]];
        k = hf_group_categories(sorted, n_categories, group);
        for (size b = 0; b < c.n_bins; ++b)
            if (place[b] >= 0) place[b] = group[place[b]];
        count = k > 1; // one group offers no split
        for (size j = 0; j < k * width; ++j) sums[j] = 0;
        for (size j = first; j < last; ++j) {
            size *row = sums + place[bin_at(c, own, level.sample[j])] * width;
            row[n_outputs] += add(y, level, v, j, row);
        }
        const int m = y.has_labels ? exponent_of(y, level, v, 1) : 0;
        for (size j = 0; j < k; ++j) {
            const size *row = sums + j * width, u = row[n_outputs];
            weight[j] = hf_weight_of(u, m);
            for (size l = 0; l < n_outputs; ++l)
                terms[j * n_outputs + l] =
                    y.has_labels ? hf_weight_of(row[l], m) : hf_distance(row[l], u, level.mean[v * n_outputs + l]);
        }
        for (size l = 0; l < n_outputs; ++l) total[l] = y.has_labels ? hf_weight_of(node[l], m) : 0.0;
        hf_score_categories(
            is_ordered(y), terms, weight, total, hf_weight_of(node[n_outputs], m), k, n_outputs, axis, score
        );
        // The places overwrite the weights, which are not read again.
        int32_t *places = (int32_t *)weight;
        hf_place_categories(score, k, sorted, places);
        for (size b = 0; b < c.n_bins; ++b)
            if (place[b] >= 0) place[b] = places[place[b]];
    }
    for (size other = count; other < o.n_orders; ++other) mine[other] = -1;
}

// Orders the categories of all nodes. One thread per sampled column of a node.
extern "C" __global__ void order_columns(
    Target y, Columns c, Level level, Pending pending, Orders o, int *__restrict__ column
) {
    const size i = thread_number();
    if (i < pending.n_nodes * c.n_sampled) order_column(y, c, level, pending, o, column, i);
}

// Returns the place of a bin in the order of a candidate, which is slot `slot` of pending node a.
__device__ static inline unsigned place_of_bin(
    const Columns &c, const Orders &o, const Level &level, const Pending &pending, const int *column, size a,
    size slot, unsigned bin
) {
    const size slots = c.n_sampled * o.n_orders, own = column[a * slots + slot], order = slot % o.n_orders;
    if (o.kind == PLAIN) return bin;
    if (is_categorical(o, own)) {
        const int place = o.place[(a * c.n_sampled + slot / o.n_orders) * c.n_bins + bin];
        return place <= NUMBERED ? 1 - ((unsigned)(order + 1) >> (NUMBERED - place) & 1) : (unsigned)place;
    }
    if (o.missing[own] < 0) return bin;
    if (o.random) {
        if ((size)bin != o.missing[own]) return bin + 1;
        const size number = varying_number(column, a * slots, slot);
        return draws_left(level.key[pending.node[a]], number) ? 0 : bin + 1;
    }
    if (order == 0) return bin;
    return (size)bin == o.missing[own] ? 0 : bin + 1;
}

// Returns the bin at a place in the order of a numerical column.
__device__ static inline size bin_of_place(const Orders &o, size column, size order, unsigned place) {
    return o.kind == COLUMNS && o.missing[column] >= 0 && (o.random || order > 0) ? (size)place - 1 : (size)place;
}

// Returns the bits of a key that are a place or a value. The candidate is above them, except in keys of float64 values.
__device__ static inline uint64_t place_in_key(const Orders &o, uint64_t key) {
    return o.kind == PROJECTIONS && sizeof(real) == 8 ? key : key & 0xffffffffu;
}

// Returns the key of missing values, first or last in the order of a candidate.
__device__ static inline uint64_t missing_place(const Orders &o, size column, bool is_first) {
    if (is_first) return 0;
    if (o.kind == PROJECTIONS) return sizeof(real) == 8 ? ~0ull : 0xffffffffu;
    return (uint64_t)o.missing[column] + (o.random ? 1 : 0);
}

// Returns whether the value of sample i of pending node a, with its key, is missing in the candidate that the node
// chose.
__device__ static inline bool is_missing(
    const Level &level, const Pending &pending, const Candidates &candidates, const Columns &c, const Orders &o,
    const Split &split, size a, size i, uint64_t key
) {
    const size best = split.chosen[a], own = o.kind == COLUMNS ? candidates.column[best] : 0;
    if (o.kind == COLUMNS && is_categorical(o, own))
        return (size)bin_at(c, own, level.sample[level.first[pending.node[a]] + i]) == o.missing[own];
    if (!has_missing_key(o, own)) return false;
    const bool is_first = best % candidates.slots % o.n_orders > 0, is_last = !is_first;
    const uint64_t place = place_in_key(o, key);
    return ((o.random || is_first) && place == missing_place(o, own, true)) ||
           ((o.random || is_last) && place == missing_place(o, own, false));
}

// Returns the number of missing values of pending node a in the candidate that it chose. In a sorted order they are
// first or last.
__device__ static inline size count_missing(
    const Level &level, const Pending &pending, const Candidates &candidates, const Columns &c, const Orders &o,
    const Split &split, size a
) {
    const size best = split.chosen[a], slots = candidates.slots, n = level.count[pending.node[a]];
    const size own = o.kind == COLUMNS ? candidates.column[best] : 0;
    const size start = first_key(candidates, best, pending.begin[a], n);
    if (o.random || (o.kind == COLUMNS && is_categorical(o, own))) {
        size count = 0;
        for (size i = 0; i < n; ++i)
            count += is_missing(level, pending, candidates, c, o, split, a, i, candidates.key[start + i]);
        return count;
    }
    if (!has_missing_key(o, own)) return 0;
    const bool is_first = best % slots % o.n_orders > 0;
    const uint64_t missing = missing_place(o, own, is_first);
    size low = 0, high = n; // the first place of a key that is not missing, or of one that is
    while (low < high) {
        const size middle = (low + high) / 2;
        const uint64_t here = place_in_key(o, key_at(candidates, start, middle));
        if ((here == missing) == is_first) low = middle + 1;
        else high = middle;
    }
    return is_first ? low : n - low;
}

// Returns whether sample i of pending node a, with its key, goes right.
__device__ static inline bool goes_right(
    const Level &level, const Pending &pending, const Candidates &candidates, const Columns &c, const Orders &o,
    const Split &split, size a, size i, uint64_t key
) {
    if (o.kind == PLAIN) return key > split.greatest[a];
    if (is_missing(level, pending, candidates, c, o, split, a, i, key))
        return !hf_sends_missing_left(level.default_left[pending.node[a]]);
    return (key > split.greatest[a]) != o.flipped[a];
}

// Writes the threshold of the best split of node a, given the keys on both sides of it, and the sides of values that it
// does not compare. split.n_left counts the keys up to the greatest before, and the samples on the left afterwards.
__device__ static inline void finish_split(
    const Level &level, const Pending &pending, const Candidates &candidates, const Columns &c, const Orders &o,
    const Split &split, size a, uint64_t below, uint64_t above
) {
    const size v = pending.node[a], slots = candidates.slots, best = split.chosen[a], n = level.count[v];
    const size own = o.kind == COLUMNS ? candidates.column[best] : 0, order = best % slots % o.n_orders;
    const bool categories = o.kind == COLUMNS && is_categorical(o, own);
    const unsigned long long *keys = candidates.key + first_key(candidates, best, pending.begin[a], n);
    const size n_missing = count_missing(level, pending, candidates, c, o, split, a);
    int missing = -1; // the side of the node's missing values in the scan or the draw: 1 left, 0 right, -1: it has none
    if (n_missing > 0 && (o.random || categories)) {
        size i = 0;
        while (!is_missing(level, pending, candidates, c, o, split, a, i, keys[i])) ++i;
        missing = keys[i] <= split.greatest[a];
    } else if (n_missing > 0) {
        missing = order > 0;
    }
    bool flipped = o.random && candidates.flipped[best];
    if (!o.random && !categories) {
        const uint64_t low = place_in_key(o, below), high = place_in_key(o, above);
        const bool last = missing == 0 && high == missing_place(o, own, false);
        flipped = missing == 1 && low == missing_place(o, own, true);
        if (last || flipped) {
            level.threshold[v] = largest();
        } else if (o.kind == PROJECTIONS) {
            level.threshold[v] = between(unordered(low, real()), unordered(high, real()));
        } else {
            const size row = row_of_bins(c, own);
            level.threshold[v] = between(
                c.high[row + bin_of_place(o, own, order, (unsigned)low)],
                c.low[row + bin_of_place(o, own, order, (unsigned)high)]
            );
        }
    }
    if (flipped) {
        missing = 0;
        if (!o.random) split.n_left[a] = n - split.n_left[a];
    }
    o.flipped[a] = flipped;
    const size n_known = n - n_missing, n_left = split.n_left[a] - (missing == 1 ? n_missing : 0);
    const int sides = hf_default_left(missing, n_left, n_known - n_left, n_missing);
    level.default_left[v] = (unsigned char)sides;
    split.n_left[a] = n_left + (hf_sends_missing_left(sides) ? n_missing : 0);
}

// Writes the set of categories that go left, if pending node a splits by categories: `words` (n_nodes of the level,
// max_words), OUT, of which a node has n_words (n_nodes,), OUT, 0 before. Categories that the node does not have go to
// the side with more samples.
__device__ static inline void write_category_set(
    const Columns &c, const Level &level, const Pending &pending, const Candidates &candidates, const Split &split,
    const Orders &o, size max_words, unsigned *__restrict__ words, size *__restrict__ n_words, size a
) {
    if (split.n_left[a] < 0 || !is_categorical(o, candidates.column[split.chosen[a]])) return;
    const size v = pending.node[a], n = level.count[v], own = candidates.column[split.chosen[a]];
    const unsigned long long *keys = candidates.key + first_key(candidates, split.chosen[a], pending.begin[a], n);
    unsigned *__restrict__ mine = words + v * max_words;
    const unsigned others = hf_sends_unknown_left(level.default_left[v]) ? ~0u : 0u;
    for (size i = 0; i < max_words; ++i) mine[i] = others;
    for (size i = 0; i < n; ++i) {
        const size bin = bin_at(c, own, level.sample[level.first[v] + i]);
        if (bin == o.missing[own]) continue;
        const unsigned category = (unsigned)c.low[row_of_bins(c, own) + bin], bit = 1u << category % 32;
        if (keys[i] <= split.greatest[a]) mine[category / 32] |= bit;
        else mine[category / 32] &= ~bit;
        if ((size)category / 32 + 1 > n_words[v]) n_words[v] = category / 32 + 1;
    }
}

// Writes the sets of all nodes of the pending nodes. One thread per node.
extern "C" __global__ void category_words(
    Columns c, Level level, Pending pending, Candidates candidates, Split split, Orders o, size max_words,
    unsigned *__restrict__ words, size *__restrict__ n_words
) {
    const size a = thread_number();
    if (a < pending.n_nodes)
        write_category_set(c, level, pending, candidates, split, o, max_words, words, n_words, a);
}
