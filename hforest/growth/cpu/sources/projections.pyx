"""Candidate source: random projections (Perry et al. 2019; Norouzi et al. 2015, section 6.2), of rows, of
windows or of a sparse matrix.

A value is summed in float64 in the order of its entries and rounded once to the dtype of x, exactly as when
the grown tree is applied (projected_values.pyx, stored.pyx). If all of x is integer and all sums are exact,
values are integers, which sort in fewer passes.
"""

from libc.math cimport INFINITY, NAN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from hforest.core.arena cimport hf_arena, take, take_zeros
from hforest.core.machine cimport hf_stopped, hf_stopped_after
from hforest.core.score cimport hf_beats, hf_between_f32, hf_between_f64
from hforest.growth.cpu.scorers.bodies cimport hf_code_of_float, hf_float_of_code
from hforest.growth.cpu.builder cimport add_entries, add_words
from hforest.growth.cpu.sources.missing_values cimport n_missing, place_missing, split_missing
from hforest.growth.cpu.sources.projected_values cimport draw_entries, prefetch_values, project_values
from hforest.growth.cpu.scorers.random_thresholds cimport split_values, write_sides
from hforest.growth.cpu.node_samples cimport score_left
from hforest.growth.cpu.scorers.node_scorer cimport hf_scorer, start_scorer
from hforest.growth.cpu.scorers.sorted_scan cimport scan_keys
from hforest.growth.cpu.sources.stored cimport (
    add_stored, hf_stored_in_node, place_samples, scan_stored, start_stored,
)
from hforest.growth.cpu.task cimport (
    HF_COUNT, HF_IS_MISSING, HF_TERMS, hf_largest, hf_pending, hf_source, hf_split, hf_task, hf_tree,
    hf_workspace, is_perfect, no_split, payload_of,
)

cdef extern from "core/order.h" nogil:
    uint64_t hf_ordered(double a)
    int hf_sort(
        uint64_t* key, uint32_t* index, uint64_t* key2, uint32_t* index2, int64_t n, void* watch
    )

cdef enum:
    LARGE = 1 << 14      # samples from which each candidate checks for signals

cdef int32_t LAST = 0x7fffffff   # no value has this code


# The workspace of a tree.
ctypedef struct hf_projection_workspace:
    void* value          # (n,) float, double or int32: values of a candidate
    void* best_value     # values of the best candidate so far
    hf_entries entries   # entries of a candidate
    hf_entries next      # entries of the next candidate
    hf_candidate best
    int32_t* code        # (n,): codes of float32
    uint64_t* order      # (n,): codes of float64, to be ranked
    uint64_t* order2
    uint32_t* place
    uint32_t* place2


# ----------------------------------------------------------------------------------- values of one candidate

cdef int64_t _stored_sums(
    hf_workspace* r, const hf_projections* p, const hf_pending* node, hf_candidate candidate
) noexcept nogil:
    # Sums the values that a node's samples store of a candidate, by add_stored.
    cdef hf_projection_workspace* work = <hf_projection_workspace*> r.source
    draw_entries(p, candidate, &work.entries)
    return add_stored(
        r, &p.stored, node, p.single, work.entries.index, work.entries.factor, work.entries.n
    )


cdef void _spread_sums(
    hf_workspace* r, const hf_projections* p, int64_t n, int64_t n_touched
) noexcept nogil:
    # Writes the values of all n samples of a node to work.value.
    cdef const hf_stored_in_node* s = <const hf_stored_in_node*> r.stored
    cdef hf_projection_workspace* work = <hf_projection_workspace*> r.source
    cdef int64_t j
    memset(work.value, 0, n * (4 if p.single else 8))
    for j in range(n_touched):
        if p.single:
            (<float*> work.value)[s.touched[j]] = <float> s.sum[s.touched[j]]
        else:
            (<double*> work.value)[s.touched[j]] = s.sum[s.touched[j]]


cdef void _values_of(
    const hf_task* t, hf_workspace* r, const hf_projections* p, const hf_pending* node, hf_candidate candidate
) noexcept nogil:
    # Writes the values of a candidate to work.value.
    cdef hf_projection_workspace* work = <hf_projection_workspace*> r.source
    cdef int64_t n = node.last - node.first
    if p.stored.indptr != NULL:
        _spread_sums(r, p, n, _stored_sums(r, p, node, candidate))
    else:
        project_values(t, p, r.sample + node.first, n, candidate, &work.entries, work.value)


# ---------------------------------------------------------------------------------------- codes of the values

cdef inline double _value(bint whole, int32_t code) noexcept nogil:
    # Returns the value of a code.
    return <double> code if whole else <double> hf_float_of_code(code)


cdef const int32_t* _codes_of(
    const hf_projections* p, hf_projection_workspace* work, const void* values, int64_t n
) noexcept nogil:
    # Returns the codes of a candidate's values.
    cdef int64_t i
    cdef const float* value = <const float*> values
    if p.whole:
        return <const int32_t*> values
    for i in range(n):
        work.code[i] = hf_code_of_float(value[i])
    return work.code


cdef void _score_codes(
    const hf_task* t, hf_workspace* r, hf_scorer* scorer, bint whole, const int32_t* code, hf_split* best
) noexcept nogil:
    # Scores 32-bit codes; writes the best split if it is better than `best`.
    if scorer.score(t, r, scorer, code, best):
        best.missing = -1
        best.below = _value(whole, <int32_t> best.low)
        best.above = _value(whole, <int32_t> best.high)


cdef void _scan_doubles(
    const hf_task* t, hf_workspace* r, hf_projection_workspace* work, const hf_pending* node, double weight,
    uint64_t missing, hf_split* best
) noexcept nogil:
    # Scores float64 by the sorted scan, with keys that hold the ranks of the values; writes the best split if
    # it is better than `best`. Missing values are ordered as the code `missing`.
    cdef const double* value = <const double*> work.value
    cdef uint64_t* key = <uint64_t*> r.key
    cdef uint64_t* order = work.order
    cdef uint32_t* place = work.place
    cdef uint64_t rank = 0
    cdef int64_t i, low, high, n = node.last - node.first
    cdef double before = best.score
    cdef int swapped
    HF_COUNT(b"growth", b"sorted_scan")
    for i in range(n):
        order[i], place[i] = hf_ordered(value[i]) if value[i] == value[i] else missing, <uint32_t> i
    swapped = hf_sort(order, place, work.order2, work.place2, n, t.watch)
    if swapped < 0:
        return
    if swapped:
        order, place = work.order2, work.place2
    for i in range(n):
        rank += i > 0 and order[i] != order[i - 1]
        key[i] = rank << 32 | payload_of(r, node.first + place[i])
    if rank == 0:
        return
    scan_keys(t, r, key, n, weight, best)
    if hf_beats(best.score, before):
        low, high = best.low, best.high  # the first value of rank r is at index r or later
        while key[low] >> 32 != best.low:
            low += 1
        while key[high] >> 32 != best.high:
            high += 1
        best.below, best.above, best.missing = value[place[low]], value[place[high]], -1


# --------------------------------------------------------------------------------------------- missing values

cdef void _score_missing_codes(
    const hf_task* t, hf_workspace* r, hf_projection_workspace* work, hf_scorer* scorer, bint first,
    hf_split* best
) noexcept nogil:
    # Writes the best split of a float32 candidate whose missing values come first, or last, if it is better
    # than `best`. Their code is next to the least, or to the greatest, of the other codes.
    cdef const float* value = <const float*> work.value
    cdef int32_t* code = work.code
    cdef int32_t least = LAST, greatest = -LAST, missing
    cdef int64_t i, n = scorer.node.last - scorer.node.first
    for i in range(n):
        if value[i] == value[i]:
            code[i] = hf_code_of_float(value[i])
            least = code[i] if code[i] < least else least
            greatest = code[i] if code[i] > greatest else greatest
    missing = least - 1 if first else greatest + 1
    for i in range(n):
        if value[i] != value[i]:
            code[i] = missing
    scorer.score(t, r, scorer, code, best)
    best.below = NAN if <int32_t> best.low == missing else _value(False, <int32_t> best.low)
    best.above = NAN if <int32_t> best.high == missing else _value(False, <int32_t> best.high)


cdef void _score_missing(
    const hf_task* t, hf_workspace* r, const hf_projections* p, hf_projection_workspace* work,
    const hf_pending* node, double weight, double greatest, hf_scorer* scorer, hf_split* best
) noexcept nogil:
    # Writes the best split of a candidate whose missing values come last, then first, if it is better than
    # `best`.
    cdef hf_split split
    cdef int first
    if greatest == -INFINITY:
        return
    for first in range(2):
        split = best[0]
        if p.single:
            _score_missing_codes(t, r, work, scorer, first, &split)
        else:
            _scan_doubles(t, r, work, node, weight, 0 if first else <uint64_t> -1, &split)
        if not hf_beats(split.score, best.score):
            continue
        best[0] = split
        best.missing = first
        if best.below != best.below or best.above != best.above:  # missing values against all others
            best.below, best.above, best.missing = greatest, INFINITY, 0


# ------------------------------------------------------------------------------------------- sparse matrices

cdef bint _rank_sums(const hf_task* t, hf_workspace* r, int64_t k) noexcept nogil:
    # Writes the codes of k float64 sums: ranks, with rank 0 for the value 0. Returns whether the call
    # continues.
    cdef hf_stored_in_node* s = <hf_stored_in_node*> r.stored
    cdef hf_projection_workspace* work = <hf_projection_workspace*> r.source
    cdef uint64_t* order = work.order
    cdef uint32_t* place = work.place
    cdef uint64_t zero = hf_ordered(0)
    cdef int32_t rank = 0
    cdef int64_t j
    cdef int swapped
    for j in range(k):
        order[j], place[j] = hf_ordered(s.sum[s.touched[j]]), <uint32_t> j
    swapped = hf_sort(order, place, work.order2, work.place2, k, t.watch)
    if swapped < 0:
        return False
    if swapped:
        order, place = work.order2, work.place2
    for j in range(k):  # subtracts 1 for each distinct value below 0
        rank -= order[j] < zero and (j == 0 or order[j] != order[j - 1])
    for j in range(k):
        if j > 0 and order[j] != order[j - 1]:
            rank += 1
        if order[j] > zero and rank == 0:
            rank = 1
        s.bin[place[j]] = rank
    return True


cdef double _sum_of_code(const hf_workspace* r, int32_t code) noexcept nogil:
    # Returns the sum with a given code.
    cdef const hf_stored_in_node* s = <const hf_stored_in_node*> r.stored
    cdef int64_t j = 0
    if code == 0:
        return 0
    while s.bin[j] != code:
        j += 1
    return s.sum[s.touched[j]]


cdef bint _score_stored(
    const hf_task* t, hf_workspace* r, const hf_projections* p, const hf_pending* node, double weight,
    hf_candidate candidate, hf_split* best
) noexcept nogil:
    # Writes the best split of a candidate in a sparse matrix if it is better than `best`. Returns False, and
    # writes the values to work.value, if many samples store values of it, or missing values, or if sums are
    # not integers.
    cdef hf_stored_in_node* s = <hf_stored_in_node*> r.stored
    cdef int64_t n = node.last - node.first, k = _stored_sums(r, p, node, candidate), j
    cdef double before = best.score
    cdef bint dense = r.kind == HF_TERMS or 2 * k > n
    if k == 0:
        return True
    for j in range(k):
        dense |= s.sum[s.touched[j]] != s.sum[s.touched[j]]
    if dense:
        _spread_sums(r, p, n, k)
        return False
    HF_COUNT(b"growth", b"stored_scan")
    if p.single:
        for j in range(k):
            s.bin[j] = hf_code_of_float(<float> s.sum[s.touched[j]])
    elif not _rank_sums(t, r, k):
        return True
    scan_stored(t, r, node, weight, s.touched, s.bin, k, hf_code_of_float(0) if p.single else 0, best)
    if not hf_beats(best.score, before):
        return True
    best.missing = -1
    if p.single:
        best.below, best.above = _value(False, <int32_t> best.low), _value(False, <int32_t> best.high)
    else:
        best.below, best.above = _sum_of_code(r, <int32_t> best.low), _sum_of_code(r, <int32_t> best.high)
    return True


# ------------------------------------------------------------------------------------------------ best splits

cdef hf_split _best_projection(
    const hf_task* t, hf_workspace* r, hf_pending* node, uint64_t key, double weight
) noexcept nogil:
    # Returns the best split of a node's projections, and writes the sides of the node's samples to
    # r.goes_right. Of equal scores, the lowest split of the first projection wins.
    cdef const hf_projections* p = <const hf_projections*> t.source.data
    cdef hf_projection_workspace* work = <hf_projection_workspace*> r.source
    cdef hf_split best = no_split()
    cdef hf_scorer scorer
    cdef int64_t number, n = node.last - node.first, n_steps = 0
    cdef hf_candidate candidate, next = hf_candidate_of(&p.distribution, key, 0)
    cdef double before, greatest
    cdef bint short = p.single or p.whole, stored = p.stored.indptr != NULL, is_scored, read_again = False
    if stored:
        place_samples(t, r, &p.stored.rows, node)
    if short:
        start_scorer(t, r, node, weight, p.whole, False, &scorer)
    for number in range(t.n_candidates):
        if is_perfect(r, best.score, weight) or hf_stopped_after(t.watch, &n_steps, n + t.n_outputs):
            break
        if n > LARGE and hf_stopped(t.watch):
            break
        candidate, next = next, hf_candidate_of(&p.distribution, key, <uint64_t> number + 1)
        if not stored:
            work.entries, work.next = work.next, work.entries
            if number + 1 < t.n_candidates:  # prefetches the next candidate
                prefetch_values(t, p, r.sample + node.first, n, next, &work.next)
        before = best.score
        is_scored = stored and _score_stored(t, r, p, node, weight, candidate, &best)
        if not is_scored:
            if not stored:
                _values_of(t, r, p, node, candidate)
            if t.has_defaults and not p.whole and n_missing(work.value, n, p.single, &greatest):
                _score_missing(t, r, p, work, node, weight, greatest, &scorer, &best)
            elif short:
                _score_codes(t, r, &scorer, p.whole, _codes_of(p, work, work.value, n), &best)
            else:
                _scan_doubles(t, r, work, node, weight, 0, &best)
        if hf_beats(best.score, before):
            best.column, work.best, read_again = 0, candidate, is_scored
            if not is_scored:
                work.value, work.best_value = work.best_value, work.value
    if best.column < 0:
        return best
    if read_again:
        _values_of(t, r, p, node, work.best)
        work.value, work.best_value = work.best_value, work.value
    _fill_sides(p, work, n, &best, r.goes_right)
    place_missing(t, r, node, &best)
    if best.above == INFINITY:
        best.threshold = hf_largest(t.single)
    elif t.single:
        best.threshold = hf_between_f32(best.below, best.above)
    else:
        best.threshold = hf_between_f64(best.below, best.above)
    return best


cdef hf_split _best_random_projection(
    const hf_task* t, hf_workspace* r, hf_pending* node, uint64_t key, double weight
) noexcept nogil:
    # Returns the best of one random threshold for each of a node's projections, and writes the sides of the
    # node's samples to r.goes_right. Of equal scores the first projection wins.
    cdef const hf_projections* p = <const hf_projections*> t.source.data
    cdef hf_projection_workspace* work = <hf_projection_workspace*> r.source
    cdef hf_split best = no_split(), split = no_split()
    cdef uint32_t* left = <uint32_t*> r.key2   # (n_left,)  samples on the left of the candidate
    cdef uint32_t* best_left = left + r.n      # (n_best_left,)  those of the best candidate so far
    cdef int64_t number, n_left, n_unknown, n_best_left = 0, n_best_missing = 0, n = node.last - node.first
    cdef int64_t i, n_steps = 0
    cdef hf_candidate candidate
    cdef double greatest
    if p.stored.indptr != NULL:
        place_samples(t, r, &p.stored.rows, node)
    split.column = 0
    for number in range(t.n_candidates):
        if hf_stopped_after(t.watch, &n_steps, n + t.n_outputs) or (n > LARGE and hf_stopped(t.watch)):
            break
        candidate = hf_candidate_of(&p.distribution, key, <uint64_t> number)
        _values_of(t, r, p, node, candidate)
        split.missing, n_unknown = -1, 0
        if t.has_defaults and not p.whole and n_missing(work.value, n, p.single, &greatest):
            n_left = split_missing(t, p.single, work.value, n, key, number, &split, left, &n_unknown)
        elif p.whole:
            n_left = split_values(t, <const int32_t*> work.value, n, key, number, &split, left)
        elif p.single:
            n_left = split_values(t, <const float*> work.value, n, key, number, &split, left)
        else:
            n_left = split_values(t, <const double*> work.value, n, key, number, &split, left)
        split.score = score_left(t, r, node, left, n_left + (n_unknown if split.missing == 1 else 0), weight)
        if hf_beats(split.score, best.score):
            best, n_best_left, n_best_missing, work.best = split, n_left, n_unknown, candidate
            left, best_left = best_left, left
            if is_perfect(r, best.score, weight):
                break
    if best.column >= 0:
        write_sides(r, node, best_left, n_best_left)
        for i in range(n_best_left, n_best_left + n_best_missing):
            r.goes_right[best_left[i]] = HF_IS_MISSING
        place_missing(t, r, node, &best)
    return best


cdef void _fill_sides(
    const hf_projections* p, const hf_projection_workspace* work, int64_t n, const hf_split* split,
    uint8_t* goes_right
) noexcept nogil:
    # Writes the sides of a node's samples; missing values are marked.
    cdef const float* floats = <const float*> work.best_value
    cdef const double* doubles = <const double*> work.best_value
    cdef double below = split.below
    cdef int64_t i
    if split.missing >= 0:
        for i in range(n):
            if p.single:
                goes_right[i] = floats[i] > <float> below if floats[i] == floats[i] else HF_IS_MISSING
            else:
                goes_right[i] = doubles[i] > below if doubles[i] == doubles[i] else HF_IS_MISSING
    elif p.whole:
        for i in range(n):
            goes_right[i] = (<const int32_t*> work.best_value)[i] > <int32_t> below
    elif p.single:
        for i in range(n):
            goes_right[i] = floats[i] > <float> below
    else:
        for i in range(n):
            goes_right[i] = doubles[i] > below


# ------------------------------------------------------------------------------------------------- the source

cdef void _take_entries(hf_arena* arena, int64_t most, hf_entries* entries) noexcept nogil:
    entries.index, entries.factor = <uint32_t*> take(arena, most * 4), <float*> take(arena, most * 4)
    entries.place = <int64_t*> take(arena, most * 8)


cdef bint _start_tree(const hf_task* t, hf_workspace* r) noexcept nogil:
    # Allocates the workspace of a tree; returns whether there was memory.
    cdef const hf_projections* p = <const hf_projections*> t.source.data
    cdef hf_arena* arena = &r.arena
    cdef hf_projection_workspace* work
    cdef int64_t n = r.n, most = p.distribution.max_entries
    cdef bint short = p.single or p.whole
    work = <hf_projection_workspace*> take_zeros(arena, sizeof(hf_projection_workspace))
    r.source = work
    r.best_split = _best_random_projection if p.random_thresholds else _best_projection
    if work == NULL:
        return False
    work.value, work.best_value = take(arena, n * (4 if short else 8)), take(arena, n * (4 if short else 8))
    _take_entries(arena, most, &work.entries)
    _take_entries(arena, most, &work.next)
    if p.stored.indptr != NULL:
        start_stored(t, r, &p.stored.rows)
    if short:
        work.code = <int32_t*> take(arena, n * 4)
    else:
        work.order, work.order2 = <uint64_t*> take(arena, n * 8), <uint64_t*> take(arena, n * 8)
        work.place, work.place2 = <uint32_t*> take(arena, n * 4), <uint32_t*> take(arena, n * 4)
    return not arena.failed


cdef bint _write(
    const hf_task* t, hf_workspace* r, const hf_split* split, hf_tree* tree, int64_t v
) noexcept nogil:
    # Writes the best projection, as a feature if it is one.
    cdef const hf_projections* p = <const hf_projections*> t.source.data
    cdef hf_projection_workspace* work = <hf_projection_workspace*> r.source
    cdef const hf_entries* entries = &work.entries
    draw_entries(p, work.best, &work.entries)
    if t.has_defaults and not add_words(tree, v, NULL, 0):
        return False
    if entries.n == 1 and entries.factor[0] == 1:
        tree.feature[v] = <int32_t> entries.index[0]
        return True
    tree.feature[v] = -2
    return add_entries(t, tree, entries.index, entries.factor, entries.n)


cdef hf_source source_of_projections(const hf_projections* projections) noexcept nogil:
    # Returns the source of the projections, which must outlive it.
    cdef hf_source source
    source.data, source.has_short_bins = projections, False
    source.start, source.write = _start_tree, _write
    return source


cdef hf_distribution distribution_of(distribution, const int32_t[::1] table):
    # Returns hforest.core.projections.Distribution as a struct. `table` is its draw_table, which must
    # outlive the result.
    cdef hf_distribution a
    cdef int i
    a.kind, a.n_features, a.channels = distribution.kind, distribution.n_features, distribution.channels
    a.density, a.zero_probability = distribution.density, distribution.zero_probability
    a.cyclic, a.max_entries = distribution.cyclic, distribution.max_entries
    a.table, a.n_candidates = NULL, sum(distribution.n_projections)
    if table.shape[0]:
        a.table = &table[0]
    for i in range(HF_AXES):
        a.shape[i] = distribution.shape[i]
        a.low[i], a.high[i] = distribution.patch_min[i], distribution.patch_max[i]
    return a
