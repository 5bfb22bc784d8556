"""The splits of columns of bins in a sparse matrix."""

from libc.math cimport INFINITY
from libc.stdint cimport int64_t
from libc.string cimport memset

from hforest.core.machine cimport hf_stopped_after
from hforest.growth.code_scorer cimport start_code_scorer, take_codes
from hforest.growth.columns cimport table_at
from hforest.growth.feature_sampling cimport hf_sampling, sample_feature, undo_sampling
from hforest.growth.random_thresholds cimport split_bins
from hforest.growth.stored cimport (
    hf_stored_in_node, read_stored, scan_stored, stored_codes, stored_sides,
)
from hforest.growth.task cimport HF_COUNT, HF_FLOATS, is_perfect, no_split, weight_bits


cdef bint score_stored(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, double weight,
    uint32_t column, hf_codes* codes, hf_code_scorer* scorer, bint* started, hf_split* best
) noexcept nogil:
    # Scores a candidate in a sparse matrix; takes its best split where it is better than `best`. Returns
    # whether its codes differ in the node.
    #
    # started  IN, OUT  whether the node's scorer has begun: it reads all samples
    cdef hf_stored_in_node* s = <hf_stored_in_node*> r.stored
    cdef int64_t n = node.last - node.first, k = stored_codes(r, c, node, column)
    cdef double before = best.score
    cdef bint varies
    if k == 0:
        return False
    if r.kind != HF_FLOATS and 2 * k <= n:
        HF_COUNT(b"growth", b"stored_scan")
        varies = scan_stored(t, r, node, weight, s.at, s.code, k, c.stored.by_default[column], best)
    else:
        varies = read_stored(r, c, node, column, s.all)
        if varies and not started[0]:
            start_code_scorer(t, r, codes, node, weight, True, scorer)
            started[0] = True
        if varies:
            take_codes(t, r, codes, node, weight, s.all, scorer, best)
    if best.score > before:
        best.column, best.missing = column, -1
    return varies


cdef double _score_side(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, int64_t k,
    const hf_split* split, double weight
) noexcept nogil:
    # Returns the score of a split of a candidate of which k samples are stored, as score_left computes it:
    # from the side without the samples that are not stored. -INFINITY if a side is too small.
    cdef const hf_stored_in_node* s = <const hf_stored_in_node*> r.stored
    cdef int bits = weight_bits(r)
    cdef uint32_t p, mask = (<uint32_t> 1 << bits) - 1
    cdef bint stored_right = <uint32_t> c.stored.by_default[split.column] <= split.low
    cdef uint64_t one, other, side_weight = 0, side_square = 0, other_square = 0
    cdef int64_t j, i, n_side = 0, least = max(t.min_leaf, 1), n = node.last - node.first
    cdef double of_side, of_other
    memset(r.count_left, 0, t.n_outputs * sizeof(uint32_t))
    for j in range(k):
        if (<uint32_t> s.code[j] > split.low) == stored_right:
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
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, uint64_t key,
    double weight, hf_features* features
) noexcept nogil:
    # Returns the best of one random threshold for each sampled feature that is not constant in the node, and
    # writes the sides of its samples to r.goes_right. For whole weights and Gini, without missing values and
    # categories.
    cdef const hf_stored_in_node* s = <const hf_stored_in_node*> r.stored
    cdef hf_split best = no_split(), split = no_split()
    cdef hf_sampling sampling
    cdef int64_t j, k, table, number = 0, n = node.last - node.first, n_steps = 0
    cdef uint32_t lowest, highest, a
    sampling.key, sampling.n_sampled = key, 0
    while sampling.n_sampled < c.n_columns and (sampling.n_sampled < t.n_candidates or number == 0):
        split.column = sample_feature(features, &sampling)
        k = stored_codes(r, c, node, split.column)
        if hf_stopped_after(t.watch, &n_steps, k + t.n_outputs):
            break
        if k == 0:
            continue
        lowest = <uint32_t> (c.stored.by_default[split.column] if k < n else s.code[0])
        highest = lowest
        for j in range(k):
            a = <uint32_t> s.code[j]
            lowest = a if a < lowest else lowest
            highest = a if a > highest else highest
        if lowest == highest:
            continue
        table = table_at(c, split.column)
        split.low = split_bins(t, c.low + table, c.high + table, lowest, highest, key, number, &split)
        split.score = _score_side(t, r, c, node, k, &split, weight)
        number += 1
        if split.score > best.score:
            best = split
            if is_perfect(r, best.score, weight):
                break
    undo_sampling(features, &sampling)
    if best.column >= 0:
        stored_sides(r, c, node, &best, r.goes_right)
    return best
