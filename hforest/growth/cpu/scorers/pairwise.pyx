"""The pairwise scorer: small nodes, integer weights, Gini.

Every sample defines the split after its bin. Each sample adds its weight to the splits whose bin is not below
its own, so that nothing is sorted. Cost: n**2 / lanes. Sums are the integers of the sorted scan. Rates are
computed in float32 first, and splits near the best rate are scored again in float64.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memset

from hforest.core.score cimport hf_beats_in_any_order
from hforest.growth.cpu.scorers.bodies cimport (
    HF_PAIRWISE_SAMPLES, HF_VALUE_PAIRS, bodies_of, hf_bodies, hf_pairwise,
    hf_value_pairs, score_at,
)
from hforest.growth.cpu.sources.column_readers cimport prefetch_column
from hforest.growth.cpu.sources.columns cimport bins_at, hf_columns, is_by_rows
from hforest.growth.cpu.node_samples cimport number_classes, place_by_class
from hforest.growth.cpu.scorers.node_scorer cimport hf_scorer, take_split
from hforest.growth.cpu.task cimport (
    HF_COUNT, hf_pending, hf_split, hf_task, hf_workspace, is_perfect, weight_bits,
)

# Share of the best rate from which a split is scored again: the relative error of rates is below 2**-13.
cdef float NEAR = 0.9995
cdef float ROUNDED = 0.999999   # a bound on the rounding error of scores in float32


# ------------------------------------------------------------------------------------------ columns of bins

cdef void _copy_samples(
    const hf_task* t, hf_workspace* r, const hf_pending* node, double weight, hf_pairwise* p
) noexcept nogil:
    # Copies the samples of a node, ordered by class.
    cdef uint8_t place[128]  # HF_PAIRWISE_SAMPLES
    cdef int64_t i
    p.n, p.all = node.last - node.first, <uint32_t> weight
    p.n_present = number_classes(t, r, HF_PAIRWISE_SAMPLES, p.total, &p.square)
    place_by_class(r, node, p.n_present, p.last, place)
    for i in range(p.n):
        p.sample[place[i]] = r.sample[node.first + i]
        p.weight[place[i]] = <uint8_t> r.payload[node.first + i]


cdef void _read(
    const hf_task* t, const hf_columns* c, const uint32_t* column, int per, hf_pairwise* p
) noexcept nogil:
    # Reads the bins of `per` candidates, interleaved.
    cdef const uint8_t* row
    cdef const uint8_t* bin
    cdef int64_t i
    cdef int j
    if is_by_rows(c, t, p.n):
        for i in range(p.n):
            row = c.rows + p.sample[i] * c.n_columns
            for j in range(per):
                p.bin[i * per + j] = row[column[j]]
    else:
        for j in range(per):
            bin = <const uint8_t*> c.bins + bins_at(c, t, column[j])
            for i in range(p.n):
                p.bin[i * per + j] = bin[p.sample[i]]
    memset(p.bin + p.n * per, 255, 64)  # fills vectors up with the greatest bin


cdef void _confirm(
    const uint32_t* column, int per, int64_t n_candidates, float most, const hf_pairwise* p, hf_split* best
) noexcept nogil:
    # Writes the best split of the first n_candidates of `per` candidates to `best`, if it is better: its
    # column and its lower bin.
    cdef float limit = <float> best.score * NEAR if best.score > 0 else 0
    cdef int64_t i, first, last, number, n_halves = (p.n * per + 1) // 2
    cdef int h, j, winner = -1
    cdef bint near, is_before
    cdef uint32_t left_weight
    cdef double score
    if not most > limit:
        return
    limit = max(limit, most * NEAR)
    for h in range(2):
        for first in range(0, n_halves, 16):
            last, near = min(first + 16, n_halves), False
            for i in range(first, last):
                near |= p.rate[h].value[i] >= limit
            if not near:
                continue
            for i in range(first, last):
                number = 2 * i + h
                j = <int> (number & (per - 1))
                if not p.rate[h].value[i] >= limit or j >= n_candidates:
                    continue
                left_weight = p.left_weight[number]
                score = (
                    <double> p.left_square[h][i] / <double> left_weight
                    + <double> p.right_square[h][i] / <double> (p.all - left_weight)
                )
                is_before = j < winner or (j == winner and p.bin[number] < best.low)
                if hf_beats_in_any_order(score, best.score, is_before):
                    best.score, best.column, best.low = score, column[j], p.bin[number]
                    winner = j


cdef void _find_next(
    const hf_task* t, const hf_columns* c, const hf_pairwise* p, hf_split* best
) noexcept nogil:
    # Writes the least bin of the best split's column that is greater than best.low.
    cdef const uint8_t* bin = <const uint8_t*> c.bins + bins_at(c, t, <uint32_t> best.column)
    cdef int64_t i
    best.high = 256
    for i in range(p.n):
        if best.low < bin[p.sample[i]] < best.high:
            best.high = bin[p.sample[i]]


cdef void best_pairwise(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, double weight,
    const uint32_t* column, int64_t n_candidates, hf_split* best
) noexcept nogil:
    # Writes the best split of the candidates `column` (IN, (n_candidates,)) to `best`, if there is one.
    cdef hf_pairwise p
    cdef const hf_bodies* bodies = bodies_of(t.path)
    cdef uint32_t some[8]
    cdef int64_t first = 0, count
    cdef int per, j
    _copy_samples(t, r, node, weight, &p)
    HF_COUNT(b"growth", b"pairs")
    per = 8
    while per > 1 and (per * p.n > HF_PAIRWISE_SAMPLES or per >= 2 * n_candidates):
        per //= 2
    while first < n_candidates:
        count = min(per, n_candidates - first)
        for j in range(per):
            some[j] = column[first + (j if j < count else 0)]
        first += per
        for j in range(<int> min(per, n_candidates - first)):  # prefetches the next candidates
            prefetch_column(t, r, c, node, column[first + j])
        _read(t, c, some, per, &p)
        if memcmp(p.bin, p.bin + per, (p.n - 1) * per) == 0:
            continue  # no candidate varies
        bodies.sum_pairs(per, &p)
        _confirm(some, per, count, bodies.rate_pairs(per, &p), &p, best)
        if is_perfect(r, best.score, weight):
            break
    if best.column >= 0:
        _find_next(t, c, &p, best)


# ------------------------------------------------------------------------------------------ bins of 32 bits

cdef void start_pairs(const hf_task* t, hf_workspace* r, hf_scorer* scorer) noexcept nogil:
    # Copies the weights of a node's samples, at most HF_VALUE_PAIRS, ordered by class.
    cdef hf_value_pairs* p = &scorer.pairs
    cdef const hf_pending* node = scorer.node
    cdef int64_t i
    cdef uint32_t mask = (<uint32_t> 1 << weight_bits(r)) - 1
    p.n, p.splits.all = node.last - node.first, <uint32_t> scorer.weight
    p.n_present = number_classes(t, r, HF_VALUE_PAIRS, p.total, &p.splits.square)
    place_by_class(r, node, p.n_present, p.last, p.place)
    for i in range(p.n):
        p.weight[p.place[i]] = r.payload[node.first + i] & mask
    for i in range(p.n, p.n + 32):
        p.bin[i] = 0x7fffffff   # fills vectors up with the greatest bin


cdef bint score_pairs(
    const hf_task* t, hf_workspace* r, hf_scorer* scorer, const int32_t* bin, hf_split* best
) noexcept nogil:
    cdef const hf_bodies* bodies = bodies_of(t.path)
    cdef hf_value_pairs* p = &scorer.pairs
    cdef int32_t differ = 0, low = 0
    cdef int64_t i
    cdef float most, limit
    cdef double score, best_score = max(best.score, 0.0)
    cdef bint is_better = False
    for i in range(p.n):
        p.bin[p.place[i]] = bin[i]
        differ |= bin[i] ^ bin[0]
    if not differ:
        return False
    HF_COUNT(b"growth", b"pairs_of_values")
    bodies.sum_values(p)
    most = bodies.rate(<int> p.n, &p.splits)
    limit = max(<float> best_score, most) * ROUNDED
    if not (most >= limit and most > 0):
        return False
    for i in range(p.n):
        if not p.splits.rate.value[i] >= limit:
            continue
        score = score_at(&p.splits, i)
        if hf_beats_in_any_order(score, best_score, is_better and p.bin[i] < low):
            best_score, low, is_better = score, p.bin[i], True
    if is_better:
        take_split(scorer, bin, best_score, low, best)
    return is_better
