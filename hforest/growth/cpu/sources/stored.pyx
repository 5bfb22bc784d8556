"""Candidates in a sparse matrix: the values that a node's samples store, and the best split of a candidate.

A column stores the values of some samples. All others have its default bin, that of 0:

    node, r.sample     2 3 5 8 9            stored: at      1    4
    column, sample     1 3 4 9                      entry   1    3     (number in the column)
                                                    bin    c1   c3

With integer weights the cost of a split is proportional to the number of stored values: the sums of the other
samples are the sums of the node minus those of the stored ones. All else uses the bins of all samples.
"""

import numpy as np

from libc.math cimport INFINITY, ceil, sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from hforest.core.arena cimport hf_arena, take, take_zeros
from hforest.core.machine cimport (
    hf_stopped_after, hf_watch, raise_interrupt, start_watch,
)
from hforest.core.score cimport hf_beats, hf_beats_in_any_order
from hforest.growth.cpu.scorers.random_thresholds cimport split_bins
from hforest.growth.cpu.scorers.sorted_scan cimport sort_keys
from hforest.growth.cpu.sources.columns cimport has_orders, table_at
from hforest.growth.cpu.sources.feature_sampling cimport hf_sampling, sample_feature, undo_sampling
from hforest.growth.cpu.sources.node_orders cimport fill_sides, hf_column_workspace
from hforest.growth.cpu.task cimport HF_COUNT, HF_PREFETCH, HF_TERMS, is_perfect, no_split, weight_bits

cdef uint32_t SIGN = <uint32_t> 1 << 31

cdef enum:
    ROWS = 1  # values that are read from rows in the time of one look-up in a column

ctypedef fused bin_t:
    uint8_t
    uint16_t
    uint32_t


def stored_rows(const int64_t[::1] indptr, const int32_t[::1] indices, int64_t n_samples):
    """Returns the values that samples store, by `hf_stored_rows`: starts of samples, columns and entries.

    indptr   IN (n_columns + 1,)
    indices  IN (n_stored,)  samples, 0 to n_samples - 1
    """
    cdef int64_t[::1] start = np.zeros(n_samples + 1, np.int64)
    cdef int32_t[::1] column = np.empty(indices.shape[0], np.int32), entry = np.empty_like(column)
    cdef int64_t f, e, at, n_steps = 0
    cdef hf_watch watch
    start_watch(&watch)
    with nogil:
        for e in range(indices.shape[0]):
            start[indices[e] + 1] += 1
        for e in range(n_samples):
            start[e + 1] += start[e]
        for f in range(indptr.shape[0] - 1):
            if hf_stopped_after(&watch, &n_steps, indptr[f + 1] - indptr[f]):
                break
            for e in range(indptr[f], indptr[f + 1]):
                at = start[indices[e]]
                column[at], entry[at] = <int32_t> f, <int32_t> (e - indptr[f])
                start[indices[e]] = at + 1
    raise_interrupt(&watch)
    starts = np.zeros(n_samples + 1, np.int64)  # each start is now that of the next sample
    starts[1:] = start[:n_samples]
    return starts, np.asarray(column), np.asarray(entry)


cdef int64_t _max_values(const hf_task* t, const hf_stored_rows* rows) noexcept nogil:
    # Returns the largest number of values for which _is_by_rows is true.
    cdef int64_t n_stored = rows.indptr[rows.n], of_column = n_stored // rows.n_columns + 1
    cdef int64_t most = ROWS * t.n_candidates * of_column
    return min(n_stored, max(most, <int64_t> sqrt(<double> ROWS * rows.n_columns * of_column)) + 1)


cdef bint _is_by_rows(
    const hf_task* t, const hf_workspace* r, const hf_stored_rows* rows, const hf_pending* node
) noexcept nogil:
    # Returns whether reading the rows of a node's samples costs less than searching its candidates' columns.
    cdef const hf_stored_in_node* s = <const hf_stored_in_node*> r.stored
    cdef int64_t i, n = node.last - node.first, n_values = 0, cost, looks
    if n > s.max_values:
        return False
    for i in range(node.first, node.last):
        n_values += rows.indptr[r.sample[i] + 1] - rows.indptr[r.sample[i]]
        if n_values > s.max_values:
            return False
    cost = n_values + n
    looks = max(t.n_candidates, rows.n_columns // cost)
    return cost <= ROWS * looks * min(8 * n, rows.indptr[rows.n] // rows.n_columns + 1)


cdef void start_stored(const hf_task* t, hf_workspace* r, const hf_stored_rows* rows) noexcept nogil:
    # Allocates the workspace of a tree.
    cdef hf_arena* arena = &r.arena
    cdef hf_stored_in_node* s = <hf_stored_in_node*> take_zeros(arena, sizeof(hf_stored_in_node))
    cdef int64_t n = r.n
    r.stored = s
    if s == NULL:
        return
    s.place = <hf_place*> take_zeros(arena, t.n * sizeof(hf_place))
    s.column = <hf_stored_column*> take_zeros(arena, rows.n_columns * sizeof(hf_stored_column))
    s.max_values = _max_values(t, rows)
    s.value = <hf_stored_value*> take(arena, s.max_values * sizeof(hf_stored_value))
    s.at, s.entry = <int32_t*> take(arena, (n + 1) * 4), <int32_t*> take(arena, (n + 1) * 4)
    s.bin = <int32_t*> take(arena, n * 4)
    s.touched, s.sum = <int32_t*> take(arena, n * 4), <double*> take(arena, n * 8)
    s.is_touched = <uint8_t*> take_zeros(arena, n)


cdef void place_samples(
    const hf_task* t, hf_workspace* r, const hf_stored_rows* rows, const hf_pending* node
) noexcept nogil:
    # Writes the position of each sample of a node or, if its samples store few values, lists of these values.
    # Called before the candidates of the node are read.
    cdef hf_stored_in_node* s = <hf_stored_in_node*> r.stored
    cdef hf_stored_column* column
    cdef int64_t i, e, k = 0
    cdef uint32_t sample
    s.node += 1
    s.is_by_rows = _is_by_rows(t, r, rows, node)
    if not s.is_by_rows:
        for i in range(node.first, node.last):
            s.place[r.sample[i]].node, s.place[r.sample[i]].at = s.node, <uint32_t> (i - node.first)
        return
    for i in range(node.last - 1, node.first - 1, -1):  # a list is in the order of the samples
        sample = r.sample[i]
        for e in range(rows.indptr[sample], rows.indptr[sample + 1]):
            column = s.column + rows.column[e]
            s.value[k].next = column.first if column.node == s.node else -1
            s.value[k].at, s.value[k].entry = <int32_t> (i - node.first), rows.entry[e]
            column.node, column.first = s.node, <int32_t> k
            k += 1


cdef inline bint _is_unseen(const hf_workspace* r, int64_t column) noexcept nogil:
    # Returns whether a column is known to store no value of a node.
    cdef const hf_stored_in_node* s = <const hf_stored_in_node*> r.stored
    return s.is_by_rows and s.column[column].node != s.node


cdef void prefetch_stored(const hf_workspace* r, const hf_columns* c, int64_t column) noexcept nogil:
    # Prefetches what stored_bins reads first of a column, and its tables for random thresholds.
    cdef const hf_stored_in_node* s = <const hf_stored_in_node*> r.stored
    cdef int64_t first
    if s.is_by_rows:
        HF_PREFETCH(s.column + column)
    else:
        first = c.stored.indptr[column]
        HF_PREFETCH(c.stored.sample + first)
        HF_PREFETCH(<const char*> c.bins + first * c.width)
    if c.random_thresholds and not _is_unseen(r, column):
        HF_PREFETCH(c.low + c.stored.table[column])
        HF_PREFETCH(c.high + c.stored.table[column])


cdef int64_t find_stored(
    const hf_workspace* r, const hf_pending* node, int64_t column, const int32_t* sample, int64_t n_stored
) noexcept nogil:
    # Writes the values of a column that the samples of a node store, in their order, to `at` and `entry` of
    # r.stored; returns their number.
    #
    # sample  IN (n_stored,)  of each value of the column, ascending
    cdef hf_stored_in_node* s = <hf_stored_in_node*> r.stored
    cdef const uint32_t* of_node = r.sample + node.first
    cdef int64_t i, e, low = 0, high, middle, k = 0, steps = 1, n = node.last - node.first
    cdef hf_place place
    if s.is_by_rows:
        i = s.column[column].first if s.column[column].node == s.node else -1
        while i >= 0:
            s.at[k], s.entry[k] = s.value[i].at, s.value[i].entry
            i = s.value[i].next
            k += 1
        return k
    while (<int64_t> 1 << steps) < n_stored:
        steps += 1
    if n * steps < n_stored:
        # Few samples: a binary search for each, from the position of the previous one on.
        for i in range(n):
            high = n_stored
            while low < high:
                middle = low + (high - low) // 2
                if <uint32_t> sample[middle] < of_node[i]:
                    low = middle + 1
                else:
                    high = middle
            if low == n_stored:
                break
            if <uint32_t> sample[low] == of_node[i]:
                s.at[k], s.entry[k] = <int32_t> i, <int32_t> low
                k += 1
        return k
    for e in range(n_stored):
        place = s.place[sample[e]]
        # Without a branch: a processor would predict it badly.
        s.at[k], s.entry[k] = <int32_t> place.at, <int32_t> e
        k += place.node == s.node
    return k


cdef bint scan_stored(
    const hf_task* t, hf_workspace* r, const hf_pending* node, double weight, const int32_t* at,
    const int32_t* bin, int64_t k, int32_t by_default, hf_split* best
) noexcept nogil:
    # Writes the best split of a candidate to `best` if it scores more than best.score; of equal scores the
    # lowest wins. Requires integer weights, Gini, and at least one sample that is not stored; sum_up must be
    # called first. Returns whether the bins differ in the node.
    #
    # at, bin  IN (k,)  positions in the node of the stored samples, and their bins
    cdef uint64_t* key = <uint64_t*> r.key
    cdef uint32_t middle = <uint32_t> by_default ^ SIGN, ordered, next, lowest = <uint32_t> -1, highest = 0
    cdef uint32_t low = 0, high = 0, y
    cdef int bits = weight_bits(r)
    cdef uint64_t mask = (<uint64_t> 1 << bits) - 1
    cdef uint64_t left_square, right_square, square = 0, left_weight = 0, right_weight = 0, w, before
    cdef uint64_t all = <uint64_t> weight, least = <uint64_t> ceil(r.least_weight)
    cdef int64_t i, m = 0, below = 0, n = node.last - node.first
    cdef double score, best_below = -INFINITY, best_above = -INFINITY
    for i in range(k):
        if bin[i] != by_default:
            ordered = <uint32_t> bin[i] ^ SIGN
            lowest = ordered if ordered < lowest else lowest
            highest = ordered if ordered > highest else highest
            below += ordered < middle
            key[m] = <uint64_t> ordered << 32 | r.payload[node.first + at[i]]
            m += 1
    if m == 0:
        return False
    key = sort_keys[uint64_t](key, <uint64_t*> r.key2, m, lowest, highest, t.watch)
    memset(r.count_left, 0, t.n_outputs * sizeof(uint32_t))
    for i in range(t.n_outputs):
        square += <uint64_t> r.count[i] * r.count[i]
    # Bins below the default, ascending: running sums of the left side.
    left_square, right_square = 0, square
    for i in range(below):
        y, w = <uint32_t> (<uint32_t> key[i] >> bits), key[i] & mask
        before = r.count_left[y]
        left_square += w * (2 * before + w)
        right_square -= w * (2 * (r.count[y] - before) - w)
        r.count_left[y] = <uint32_t> (before + w)
        left_weight += w
        ordered = <uint32_t> (key[i] >> 32)
        next = <uint32_t> (key[i + 1] >> 32) if i + 1 < below else middle
        if ordered == next or i + 1 < t.min_leaf or n - i - 1 < t.min_leaf:
            continue
        if left_weight < least or all - left_weight < least:
            continue
        score = (
            <double> left_square / <double> left_weight
            + <double> right_square / <double> (all - left_weight)
        )
        if hf_beats(score, best_below):
            best_below, low, high = score, ordered, next
    # Bins above the default, descending: running sums of the right side.
    memset(r.count_left, 0, t.n_outputs * sizeof(uint32_t))
    left_square, right_square = square, 0
    for i in range(m - 1, below - 1, -1):
        y, w = <uint32_t> (<uint32_t> key[i] >> bits), key[i] & mask
        before = r.count_left[y]
        right_square += w * (2 * before + w)
        left_square -= w * (2 * (r.count[y] - before) - w)
        r.count_left[y] = <uint32_t> (before + w)
        right_weight += w
        ordered = <uint32_t> (key[i] >> 32)
        next = <uint32_t> (key[i - 1] >> 32) if i > below else middle
        if ordered == next or m - i < t.min_leaf or n - m + i < t.min_leaf:
            continue
        if right_weight < least or all - right_weight < least:
            continue
        score = (
            <double> left_square / <double> (all - right_weight)
            + <double> right_square / <double> right_weight
        )
        if hf_beats(score, best_below) and hf_beats_in_any_order(score, best_above, True):
            best_above, low, high = score, next, ordered
    score = max(best_below, best_above)
    if hf_beats(score, best.score):
        best.score, best.low, best.high = score, low ^ SIGN, high ^ SIGN
    return True


cdef int64_t add_stored(
    hf_workspace* r, const hf_stored_numbers* a, const hf_pending* node, bint single, const uint32_t* index,
    const float* factor, int64_t n_entries
) noexcept nogil:
    # Writes the samples of a node that store a value of a projection to `touched`, and their sums to `sum`;
    # returns their number. Skipped entries would add 0 to a sum.
    cdef hf_stored_in_node* s = <hf_stored_in_node*> r.stored
    cdef int64_t e, j, k, first, n_touched = 0
    cdef int32_t at
    cdef double number
    for e in range(n_entries):
        if _is_unseen(r, index[e]):
            continue
        first = a.indptr[index[e]]
        k = find_stored(r, node, index[e], a.sample + first, a.indptr[index[e] + 1] - first)
        for j in range(k):
            at = s.at[j]
            if not s.is_touched[at]:
                s.is_touched[at], s.sum[at], s.touched[n_touched] = True, 0, at
                n_touched += 1
            if single:
                number = (<const float*> a.number)[first + s.entry[j]]
            else:
                number = (<const double*> a.number)[first + s.entry[j]]
            s.sum[at] += <double> factor[e] * number
    for j in range(n_touched):
        s.is_touched[s.touched[j]] = False
    return n_touched


# ----------------------------------------------------------------------------------------------------- bins

cdef void _gather(const bin_t* bins, const int32_t* entry, int64_t k, int32_t* bin) noexcept nogil:
    cdef int64_t j
    for j in range(k):
        bin[j] = <int32_t> bins[entry[j]]


cdef int64_t stored_bins(
    const hf_workspace* r, const hf_columns* c, const hf_pending* node, int64_t column
) noexcept nogil:
    # Writes the values of a column that the samples of a node store to `at` and `bin` of r.stored; returns
    # their number.
    cdef hf_stored_in_node* s = <hf_stored_in_node*> r.stored
    cdef int64_t first = c.stored.indptr[column], k
    if _is_unseen(r, column):
        return 0
    k = find_stored(r, node, column, c.stored.sample + first, c.stored.indptr[column + 1] - first)
    if c.width == 1:
        _gather(<const uint8_t*> c.bins + first, s.entry, k, s.bin)
    elif c.width == 2:
        _gather(<const uint16_t*> c.bins + first, s.entry, k, s.bin)
    else:
        _gather(<const uint32_t*> c.bins + first, s.entry, k, s.bin)
    return k


cdef hf_range stored_range(
    const hf_workspace* r, const hf_columns* c, int64_t column, int64_t k, int64_t n
) noexcept nogil:
    # Returns the range of the bins of n samples of a node, k of which are stored.
    cdef const hf_stored_in_node* s = <const hf_stored_in_node*> r.stored
    cdef hf_range range_
    cdef int64_t i
    range_.lowest = c.stored.by_default[column] if k < n else s.bin[0]
    range_.highest = range_.lowest
    for i in range(k):
        range_.lowest, range_.highest = min(range_.lowest, s.bin[i]), max(range_.highest, s.bin[i])
    return range_


cdef hf_range read_stored(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, int64_t column,
    int32_t* bin
) noexcept nogil:
    cdef const hf_stored_in_node* s = <const hf_stored_in_node*> r.stored
    cdef int64_t i, n = node.last - node.first, k = stored_bins(r, c, node, column)
    for i in range(n):
        bin[i] = c.stored.by_default[column]
    for i in range(k):
        bin[s.at[i]] = s.bin[i]
    return stored_range(r, c, column, k, n)


cdef bint scan_few(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, double weight,
    int64_t column, bint* varies, hf_split* best
) noexcept nogil:
    # Scores a candidate with few stored values in the node, integer weights, and neither missing values nor
    # categories; writes its best split if it is better than `best`. Returns whether the candidate is of this
    # kind.
    #
    # varies  IN, OUT  set if its bins differ in the node
    cdef const hf_stored_in_node* s = <const hf_stored_in_node*> r.stored
    cdef int64_t k
    cdef double before = best.score
    if has_orders(c, column):
        return False
    k = stored_bins(r, c, node, column)
    if k == 0:
        return True
    if r.kind == HF_TERMS or 2 * k > node.last - node.first:
        return False
    HF_COUNT(b"growth", b"stored_scan")
    varies[0] |= scan_stored(t, r, node, weight, s.at, s.bin, k, c.stored.by_default[column], best)
    if hf_beats(best.score, before):
        best.column, best.missing = column, -1
    return True


cdef double _score_side(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, int64_t k,
    const hf_split* split, double weight
) noexcept nogil:
    # Returns the score of a split of a candidate with k stored samples, equal to that of score_left. It sums
    # the side that has no default bins. -INFINITY if a side is too small.
    cdef const hf_stored_in_node* s = <const hf_stored_in_node*> r.stored
    cdef int bits = weight_bits(r)
    cdef uint32_t p, mask = (<uint32_t> 1 << bits) - 1
    cdef bint stored_right = <uint32_t> c.stored.by_default[split.column] <= split.low
    cdef uint64_t one, other, side_weight = 0, side_square = 0, other_square = 0
    cdef int64_t j, i, n_side = 0, least = max(t.min_leaf, 1), n = node.last - node.first
    cdef double of_side, of_other
    memset(r.count_left, 0, t.n_outputs * sizeof(uint32_t))
    for j in range(k):
        if (<uint32_t> s.bin[j] > split.low) == stored_right:
            p = r.payload[node.first + s.at[j]]
            r.count_left[p >> bits] += p & mask
            n_side += 1
    if n_side < least or n - n_side < least:
        return -INFINITY
    for i in range(t.n_outputs):
        one, other = r.count_left[i], r.count[i] - r.count_left[i]
        side_weight += one
        side_square += one * one
        other_square += other * other
    if side_weight < r.least_weight or <uint64_t> weight - side_weight < r.least_weight:
        return -INFINITY
    of_side = <double> side_square / <double> side_weight
    of_other = <double> other_square / <double> (<uint64_t> weight - side_weight)
    return of_side + of_other


cdef hf_split best_random_stored(
    const hf_task* t, hf_workspace* r, hf_pending* node, uint64_t key, double weight
) noexcept nogil:
    # Does the work of _best_random_column for integer weights, Gini, no missing values and no categories.
    cdef hf_column_workspace* work = <hf_column_workspace*> r.columns
    cdef const hf_columns* c = work.columns
    cdef hf_split best = no_split(), split = no_split()
    cdef hf_sampling sampling
    cdef hf_range bins
    cdef int64_t k, table, f = 0, number = 0, n = node.last - node.first, n_steps = 0
    place_samples(t, r, &c.stored.rows, node)
    sampling.key, sampling.n_sampled = key, 0
    while f < c.n_columns and (f < t.n_candidates or number == 0):
        while sampling.n_sampled <= f or sampling.n_sampled < min(f + STORED_AHEAD, t.n_candidates):
            prefetch_stored(r, c, sample_feature(&work.features, &sampling))
        split.column = work.features.column[f]
        f += 1
        k = stored_bins(r, c, node, split.column)
        if hf_stopped_after(t.watch, &n_steps, k + t.n_outputs):
            break
        if k == 0:
            continue
        bins = stored_range(r, c, split.column, k, n)
        if bins.lowest == bins.highest:
            continue
        table = table_at(c, split.column)
        split.low = split_bins(t, c.low + table, c.high + table, bins, key, number, &split)
        split.score = _score_side(t, r, c, node, k, &split, weight)
        number += 1
        if hf_beats(split.score, best.score):
            best = split
            if is_perfect(r, best.score, weight):
                break
    undo_sampling(&work.features, &sampling)
    if best.column >= 0:
        fill_sides(t, r, c, node, &work.orders, &best)
    return best
