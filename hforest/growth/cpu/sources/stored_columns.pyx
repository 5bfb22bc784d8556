"""Splits of columns of bins in a sparse matrix."""

from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset

from hforest.core.machine cimport hf_stopped_after
from hforest.core.score cimport hf_beats
from hforest.growth.cpu.sources.columns cimport has_orders, hf_range, table_at
from hforest.growth.cpu.sources.feature_sampling cimport hf_sampling, sample_feature, undo_sampling
from hforest.growth.cpu.sources.node_orders cimport fill_sides
from hforest.growth.cpu.scorers.random_thresholds cimport split_bins
from hforest.growth.cpu.sources.stored cimport (
    hf_stored_in_node, place_samples, scan_stored, stored_bins, stored_range,
)
from hforest.growth.cpu.task cimport HF_COUNT, HF_TERMS, is_perfect, no_split, weight_bits


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
    cdef int64_t k, table, number = 0, n = node.last - node.first, n_steps = 0
    place_samples(t, r, &c.stored.rows, node)
    sampling.key, sampling.n_sampled = key, 0
    while sampling.n_sampled < c.n_columns and (sampling.n_sampled < t.n_candidates or number == 0):
        split.column = sample_feature(&work.features, &sampling)
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
