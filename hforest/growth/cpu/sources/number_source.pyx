"""Candidate source: columns of numbers without missing values, with one random threshold for each.

A threshold needs the least and the greatest value of a candidate in the node, but no order of its values:
they are read from x itself, and have no bins. Four candidates are read and scored together, by bodies.pyx and
simd/:

    value    | s0c0 s0c1 s0c2 s0c3 | s1c0 s1c1 s1c2 s1c3 | ...      sample 0, 1, ... of candidates 0 to 3
    lane c     least and greatest value, then the threshold of candidate c, then the sums of its left side

With whole weights and Gini the samples of a tree are ordered by class at its start, and those of its nodes
stay so: a node has the samples of each class in one run. The weight that a run adds to the left side is
squared once. Other samples are scored one candidate at a time.
"""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from hforest.core.arena cimport hf_arena, take, take_zeros
from hforest.core.machine cimport hf_stopped_after
from hforest.core.score cimport hf_beats
from hforest.growth.cpu.scorers.bodies cimport bodies_of, hf_bodies, hf_lanes
from hforest.growth.cpu.sources.feature_sampling cimport (
    hf_features, hf_sampling, sample_feature, start_features, undo_sampling,
)
from hforest.growth.cpu.node_samples cimport score_left
from hforest.growth.cpu.scorers.random_thresholds cimport random_threshold
from hforest.growth.cpu.task cimport (
    HF_TERMS, hf_pending, hf_source, hf_split, hf_task, hf_tree, hf_workspace, is_perfect, no_split,
    sign_of, weight_bits,
)

cdef enum:
    LANES = 4

ctypedef fused real:
    float
    double


# The workspace of a tree: r.source.
ctypedef struct hf_number_workspace:
    const hf_number_columns* columns
    hf_features features
    void* value              # (n + 1, LANES) float or double
    int64_t* last            # (n_outputs,): the end of each run of the node, and the weight of its class
    double* total


cdef void _order_by_class(const hf_task* t, hf_workspace* r) noexcept nogil:
    # Orders the samples of a tree by class, and samples of a class as before.
    cdef int bits = weight_bits(r)
    cdef int64_t i, k
    cdef uint32_t first = 0, count, at
    cdef uint32_t* place = r.class_number
    memset(place, 0, t.n_outputs * sizeof(uint32_t))
    for i in range(r.n):
        place[r.payload[i] >> bits] += 1
    for k in range(t.n_outputs):
        count = place[k]
        place[k] = first
        first += count
    for i in range(r.n):
        at = place[r.payload[i] >> bits]
        place[r.payload[i] >> bits] += 1
        r.sample2[at], r.payload2[at] = r.sample[i], r.payload[i]
    memcpy(r.sample, r.sample2, r.n * sizeof(uint32_t))
    memcpy(r.payload, r.payload2, r.n * sizeof(uint32_t))


cdef bint _start_tree(const hf_task* t, hf_workspace* r) noexcept nogil:
    # Allocates the workspace of a tree, and orders its samples; returns whether there was memory.
    cdef const hf_number_columns* c = <const hf_number_columns*> t.source.data
    cdef hf_arena* arena = &r.arena
    cdef hf_number_workspace* work = <hf_number_workspace*> take_zeros(arena, sizeof(hf_number_workspace))
    cdef uint32_t* column = <uint32_t*> take(arena, c.n_columns * 4)
    cdef uint32_t* swapped = <uint32_t*> take(arena, c.n_columns * 4)
    if arena.failed:
        return False
    r.source, r.best_split, work.columns = work, _best_split, c
    start_features(&work.features, c.n_columns, column, swapped)
    work.value = take(arena, LANES * (r.n + 1) * (4 if t.single else 8))
    work.last, work.total = <int64_t*> take(arena, t.n_outputs * 8), <double*> take(arena, t.n_outputs * 8)
    r.by_class = r.kind != HF_TERMS and t.min_leaf <= 1
    if r.by_class:
        _order_by_class(t, r)
    return not arena.failed


cdef bint _write(
    const hf_task* t, hf_workspace* r, const hf_split* split, hf_tree* tree, int64_t v
) noexcept nogil:
    tree.feature[v] = <int32_t> split.column
    return True


cdef hf_source source_of_numbers(const hf_number_columns* columns) noexcept nogil:
    # Returns the source of the columns, which must outlive it.
    cdef hf_source source
    source.data, source.has_short_bins, source.start, source.write = columns, True, _start_tree, _write
    return source


cdef int64_t _find_runs(
    hf_workspace* r, const hf_pending* node, double weight, hf_number_workspace* work
) noexcept nogil:
    # Writes the runs of a node's classes; returns their number. sum_up must be called first.
    cdef const uint32_t* payload = r.payload + node.first
    cdef int bits = weight_bits(r)
    cdef int64_t i = 0, n = node.last - node.first, n_runs = 0
    cdef uint32_t k
    while i < n:
        k = payload[i] >> bits
        if weight == n:  # all weights are 1
            i += r.count[k]
        else:
            while i < n and payload[i] >> bits == k:
                i += 1
        work.last[n_runs], work.total[n_runs] = i, r.count[k]
        n_runs += 1
    return n_runs


cdef double _score_one(
    const hf_task* t, hf_workspace* r, const hf_pending* node, double weight, const real* value,
    double threshold
) noexcept nogil:
    # Returns the score of a lane, whose values are value[0], value[LANES], ...
    cdef uint32_t* left = <uint32_t*> r.key2
    cdef int64_t i, n_left = 0
    for i in range(node.last - node.first):
        left[n_left] = <uint32_t> i
        n_left += value[LANES * i] <= <real> threshold
    return score_left(t, r, node, left, n_left, weight)


cdef double _score(
    const hf_task* t, hf_workspace* r, const hf_pending* node, double weight, const hf_lanes* lanes, int j
) noexcept nogil:
    # Returns the score of lane j, whose sums are written; -INFINITY if a side is too small.
    cdef double left = lanes.weight[j], right = weight - left
    if not r.by_class and t.single:
        return _score_one(t, r, node, weight, <const float*> lanes.value + j, lanes.threshold[j])
    if not r.by_class:
        return _score_one(t, r, node, weight, <const double*> lanes.value + j, lanes.threshold[j])
    if left < r.least_weight or right < r.least_weight:
        return -INFINITY
    return lanes.left_square[j] / left + lanes.right_square[j] / right


cdef void _fill_sides(
    hf_workspace* r, const hf_lanes* lanes, const real* column, double threshold
) noexcept nogil:
    # Writes the sides of a node's samples to r.goes_right.
    cdef int64_t i
    for i in range(lanes.n):
        r.goes_right[i] = column[lanes.sample[i] * lanes.stride] > <real> threshold


cdef inline const void* _column(const hf_task* t, const hf_number_columns* c, int64_t column) noexcept nogil:
    # Returns the address of the value of sample 0.
    return <const char*> c.x + (column if c.place == NULL else c.place[column]) * (4 if t.single else 8)


cdef hf_split _best_split(
    const hf_task* t, hf_workspace* r, hf_pending* node, uint64_t key, double weight
) noexcept nogil:
    # Returns the best of one random threshold for each sampled feature that varies in the node, and writes
    # the sides of the node's samples to r.goes_right.
    cdef hf_number_workspace* work = <hf_number_workspace*> r.source
    cdef const hf_number_columns* c = work.columns
    cdef hf_split best = no_split()
    cdef hf_sampling sampling
    cdef hf_lanes lanes
    cdef uint32_t[4] column   # LANES
    cdef const hf_bodies* bodies = bodies_of(t.path)
    cdef int64_t number = 0, n_steps = 0, n = node.last - node.first, first
    cdef int j, count
    cdef double score
    cdef const void* first_value
    lanes.sample, lanes.payload, lanes.n = r.sample + node.first, r.payload + node.first, n
    lanes.stride = c.stride
    lanes.value, lanes.last, lanes.total = work.value, work.last, work.total
    lanes.mask = (<uint32_t> 1 << weight_bits(r)) - 1
    if r.by_class:
        lanes.n_runs = _find_runs(r, node, weight, work)
    sampling.key, sampling.n_sampled = key, 0
    while sampling.n_sampled < t.n_candidates or (sampling.n_sampled < c.n_columns and number == 0):
        if hf_stopped_after(t.watch, &n_steps, LANES * n + t.n_outputs) or is_perfect(r, best.score, weight):
            break
        count = <int> min(LANES, max(1, t.n_candidates - sampling.n_sampled))
        for j in range(LANES):
            if j < count:
                column[j] = sample_feature(&work.features, &sampling)
            lanes.column[j] = _column(t, c, column[j if j < count else 0])
        bodies.read_lanes(t.single, &lanes)
        first = number
        for j in range(LANES):
            lanes.threshold[j] = INFINITY
            if j < count and lanes.least[j] < lanes.greatest[j]:
                lanes.threshold[j] = random_threshold(t, key, number, lanes.least[j], lanes.greatest[j])
                number += 1
        if r.by_class and number > first:
            bodies.sum_lanes(t.single, &lanes)
        for j in range(count):
            if not lanes.threshold[j] < INFINITY:
                continue
            r.sign = sign_of(t, column[j])
            score = _score(t, r, node, weight, &lanes, j)
            if hf_beats(score, best.score):
                best.column, best.score, best.threshold = column[j], score, lanes.threshold[j]
    undo_sampling(&work.features, &sampling)
    if best.column < 0:
        return best
    first_value = _column(t, c, best.column)
    if t.single:
        _fill_sides(r, &lanes, <const float*> first_value, best.threshold)
    else:
        _fill_sides(r, &lanes, <const double*> first_value, best.threshold)
    return best
