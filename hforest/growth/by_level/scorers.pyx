"""The best splits of nodes, from histograms of the features that they sample, which levels.pyx makes.

Scores, ties and orders are those of `hforest.growth`, whose scorers read samples.
"""

from cython.parallel cimport prange, threadid
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

import numpy as np

from hforest.core.arena cimport hf_arena, release, take, take_zeros
from hforest.core.machine cimport (
    hf_begin, hf_end, hf_stop, hf_threads_for, hf_units, hf_watch, raise_stopped, start_watch,
)
from hforest.core.score cimport HF_ENTROPY, HF_GINI, hf_beats, hf_distance, require_criteria

cdef extern from "growth/categories.h" nogil:
    int HF_ALL_DIVISIONS
    int64_t hf_group_categories(const int32_t* count, int64_t k, int32_t* group)
    void hf_score_categories(
        int is_ordered, double* sums, const double* size, const double* total, double weight, int64_t k,
        int64_t n_outputs, double* axis, double* score
    )
    void hf_place_categories(const double* score, int64_t k, int32_t* order, int32_t* place)

cdef extern from "growth/units.h" nogil:
    double hf_mean(double c, int k, int m, int64_t q, int64_t u)
    double hf_score_in_unit(
        int criterion, const int64_t* sums, const int64_t* node, const double* mean, int64_t n, int64_t u,
        int m
    )

cdef enum:
    RIGHT = 0
    LEFT = 1
    ABSENT = 2
    CELL_NS = 10          # nanoseconds per sum of a cell

require_criteria(__name__)


# The arguments that all nodes of a call share.
ctypedef struct hf_scoring:
    int criterion
    bint of_targets
    int64_t n_outputs
    int64_t n_channels
    int64_t min_leaf
    int64_t widest        # bins per slot, at most
    bint all_sampled      # whether all slots of a node are scored, or only those up to the first that varies
    # Monotonic constraints: the sign of each slot; of each node (lower, upper, centre) and exponent.
    const int32_t* sign
    const double* bounds
    const int64_t* exponent


# The sums of a node and of one side of it, with the workspace of a thread.
ctypedef struct hf_node:
    hf_arena arena        # owned by a thread
    const int64_t* total  # (n_channels,)
    int64_t* left         # (n_channels,)
    double* all           # (n_outputs,): weights of the node's classes; 0 for regression
    double* mean          # (n_outputs,): mean targets of the node, in its unit; 0 for classes
    int64_t weight
    double least_weight   # minimum weight of each side of a split
    int64_t n
    # Monotonic constraints: the sign of the slot that is scored, 0 for any split, and the bounds and the unit
    # of the values of the node.
    int sign
    double lower
    double upper
    double centre
    int exponent
    # Categories of a slot: those present, their groups with sums and places, and the arrays that
    # hf_score_categories takes.
    int32_t* present
    int32_t* group
    int64_t* of_group     # (n_bins, n_channels)
    int32_t* place
    int32_t* sorted
    double* of_category
    double* size
    double* score
    double* axis


# The best split of a node found so far.
ctypedef struct hf_best:
    double score
    int64_t slot          # slot of the node, -1: none
    int64_t low
    int64_t high
    int missing           # missing values go left (1) or right (0); -1: the node has none


cdef inline int64_t _weight_of(const hf_scoring* g, const int64_t* sums) noexcept nogil:
    # Returns the weight of one side.
    cdef int64_t k, weight = 0
    if g.of_targets:
        return sums[g.n_outputs]
    for k in range(g.n_outputs):
        weight += sums[k]
    return weight


cdef inline double _score(const hf_scoring* g, hf_node* a, int64_t weight) noexcept nogil:
    # Returns the score of the split whose left side has the sums a.left and the weight `weight`.
    cdef int64_t n = g.n_outputs, other = a.weight - weight
    return hf_score_in_unit(g.criterion, a.left, NULL, a.mean, n, weight, 0) + hf_score_in_unit(
        g.criterion, a.left, a.total, a.mean, n, other, 0
    )


cdef inline void _add(const hf_scoring* g, const int64_t* cell, int64_t* sums) noexcept nogil:
    cdef int64_t k
    for k in range(g.n_channels):
        sums[k] += cell[k]


cdef inline bint _is_monotonic(const hf_scoring* g, const hf_node* a, int64_t weight) noexcept nogil:
    # Returns whether the means, or shares of the second class, of both sides of a split are within the bounds
    # of the node and in the order of the sign.
    cdef int64_t last = g.n_outputs - 1
    cdef double left = hf_mean(a.centre, a.exponent, 0, a.left[last], weight)
    cdef double right = hf_mean(a.centre, a.exponent, 0, a.total[last] - a.left[last], a.weight - weight)
    return min(left, right) >= a.lower and max(left, right) <= a.upper and a.sign * (right - left) >= 0


cdef inline bint _is_better(const hf_scoring* g, hf_node* a, hf_best* best) noexcept nogil:
    # Scores the split whose left side has the sums a.left; returns whether it is the best so far.
    cdef int64_t n_left = a.left[g.n_channels - 1], weight = _weight_of(g, a.left)
    cdef double score
    if n_left < g.min_leaf or a.n - n_left < g.min_leaf or a.weight <= weight:
        return False
    if <double> weight < a.least_weight or <double> (a.weight - weight) < a.least_weight:
        return False
    if a.sign and not _is_monotonic(g, a, weight):
        return False
    score = _score(g, a, weight)
    if not hf_beats(score, best.score):
        return False
    best.score = score
    return True


cdef bint _scan_numbers(
    const hf_scoring* g, hf_node* a, const int64_t* cell, int64_t n_bins, int64_t missing, bint first,
    hf_best* best
) noexcept nogil:
    # Scores the splits between adjacent bins of the node, with missing values (bin `missing`, or -1) last, or
    # first; returns whether one of them is the best so far.
    cdef int64_t b, last = -1, count = g.n_channels - 1
    cdef bint found = False, better = False
    memset(a.left, 0, g.n_channels * 8)
    if first:  # the split of missing values from all others is scored when they are last
        _add(g, cell + missing * g.n_channels, a.left)
    for b in range(n_bins):
        if cell[b * g.n_channels + count] == 0 or (first and b == missing):
            continue
        if better:
            best.low, best.high, found = last, b, True
        _add(g, cell + b * g.n_channels, a.left)
        last = b
        better = a.left[count] < a.n and _is_better(g, a, best)
    return found


cdef bint _scan_places(
    const hf_scoring* g, hf_node* a, int64_t n_groups, hf_best* best
) noexcept nogil:
    # Scores the splits of groups in the order a.sorted; best.low is the last place on the left.
    cdef int64_t j
    cdef bint found = False
    memset(a.left, 0, g.n_channels * 8)
    for j in range(n_groups - 1):
        _add(g, a.of_group + a.sorted[j] * g.n_channels, a.left)
        if _is_better(g, a, best):
            best.low, found = j, True
    return found


cdef bint _best_categories(
    const hf_scoring* g, hf_node* a, const int64_t* cell, int64_t n_bins, int64_t missing, hf_best* best,
    uint8_t* side
) noexcept nogil:
    # Scores the splits of a categorical feature; returns whether one is the best so far, and writes the side
    # of each category.
    cdef int64_t b, j, k, n_present = 0, n_groups, mask, weight
    cdef bint is_ordered = g.n_outputs <= (1 if g.of_targets else 2), found = False
    cdef const int64_t* sums
    for b in range(n_bins):
        if cell[b * g.n_channels + g.n_channels - 1]:
            a.present[n_present] = <int32_t> b
            n_present += 1
    if not is_ordered and n_present <= HF_ALL_DIVISIONS:
        for mask in range(1, 1 << (n_present - 1)):
            memset(a.left, 0, g.n_channels * 8)
            for j in range(n_present):
                if mask >> j & 1:
                    _add(g, cell + a.present[j] * g.n_channels, a.left)
            if _is_better(g, a, best):
                found = True
                memset(side, ABSENT, n_bins)
                for j in range(n_present):
                    side[a.present[j]] = LEFT if mask >> j & 1 else RIGHT
    else:
        for j in range(n_present):
            a.place[j] = <int32_t> cell[a.present[j] * g.n_channels + g.n_channels - 1]
        n_groups = hf_group_categories(a.place, n_present, a.group)
        memset(a.of_group, 0, n_groups * g.n_channels * sizeof(int64_t))
        for j in range(n_present):
            _add(g, cell + a.present[j] * g.n_channels, a.of_group + a.group[j] * g.n_channels)
        for j in range(n_groups):
            sums = a.of_group + j * g.n_channels
            weight = _weight_of(g, sums)
            a.size[j] = <double> weight
            for k in range(g.n_outputs):
                a.of_category[j * g.n_outputs + k] = hf_distance(sums[k], weight, a.mean[k])
        hf_score_categories(
            is_ordered, a.of_category, a.size, a.all, <double> a.weight, n_groups, g.n_outputs, a.axis,
            a.score,
        )
        hf_place_categories(a.score, n_groups, a.sorted, a.place)
        found = _scan_places(g, a, n_groups, best)
        if found:
            memset(side, ABSENT, n_bins)
            for j in range(n_present):
                side[a.present[j]] = LEFT if a.place[a.group[j]] <= best.low else RIGHT
    if found:
        best.missing = -1
        if missing >= 0 and side[missing] != ABSENT:
            best.missing = side[missing]
    return found


cdef bint _best_numbers(
    const hf_scoring* g, hf_node* a, const int64_t* cell, int64_t n_bins, int64_t missing, hf_best* best,
    uint8_t* side
) noexcept nogil:
    # Scores the splits of a numerical feature; returns whether one is the best so far, and writes the sides.
    cdef int64_t b, count = g.n_channels - 1
    cdef bint found, has_missing = missing >= 0 and cell[missing * g.n_channels + count] > 0
    found = _scan_numbers(g, a, cell, n_bins, missing, False, best)
    if found:
        best.missing = 0 if has_missing else -1
    if has_missing and _scan_numbers(g, a, cell, n_bins, missing, True, best):
        found, best.missing = True, 1
    if not found:
        return False
    for b in range(n_bins):
        side[b] = LEFT if b <= best.low else RIGHT
        if b == missing:
            side[b] = LEFT if best.missing == 1 else RIGHT
        if cell[b * g.n_channels + count] == 0:
            side[b] = ABSENT
    return True


cdef void _best_split(
    const hf_scoring* g, hf_node* a, const int64_t[:, ::1] sums, const int64_t* cells, int64_t n_slots,
    const int64_t* missing, const uint8_t* categorical, const int32_t* sign, hf_best* best,
    int64_t* n_varied, uint8_t[::1] sides
) noexcept nogil:
    # Writes the best split of a node over its slots, and the number of slots that vary in the node.
    cdef int64_t s, b, k, n_bins, n_present
    cdef const int64_t* cell
    cdef bint found
    best.score, best.slot, best.low, best.high, best.missing = -INFINITY, -1, 0, 0, -1
    n_varied[0] = 0
    a.weight, a.n = _weight_of(g, a.total), a.total[g.n_channels - 1]
    for k in range(g.n_outputs):
        a.all[k], a.mean[k] = <double> a.total[k], 0
        if g.of_targets:
            a.all[k], a.mean[k] = 0, <double> a.total[k] / <double> a.weight
    for s in range(n_slots):
        if n_varied[0] and not g.all_sampled:
            break
        n_bins, n_present = cells[s + 1] - cells[s], 0
        if n_bins == 0:
            continue
        cell = &sums[cells[s], 0]
        for b in range(n_bins):
            n_present += cell[b * g.n_channels + g.n_channels - 1] > 0
        if n_present < 2:
            continue
        n_varied[0] += 1
        a.sign = sign[s]
        if categorical[s]:
            found = _best_categories(g, a, cell, n_bins, missing[s], best, &sides[cells[s]])
        else:
            found = _best_numbers(g, a, cell, n_bins, missing[s], best, &sides[cells[s]])
        if found:
            best.slot = s


cdef bint _start_node(const hf_scoring* g, hf_node* a) noexcept nogil:
    # Allocates the workspace of a thread before its first node; returns whether there was memory.
    cdef int64_t k = g.n_outputs, n_bins = g.widest
    cdef hf_arena* arena = &a.arena
    if arena.last == NULL:
        a.left = <int64_t*> take(arena, g.n_channels * 8)
        a.all, a.axis = <double*> take(arena, k * 8), <double*> take(arena, k * 16)
        a.mean = <double*> take(arena, k * 8)
        a.present, a.place = <int32_t*> take(arena, n_bins * 4), <int32_t*> take(arena, n_bins * 4)
        a.sorted, a.of_category = <int32_t*> take(arena, n_bins * 4), <double*> take(arena, n_bins * k * 8)
        a.group = <int32_t*> take(arena, n_bins * 4)
        a.of_group = <int64_t*> take(arena, n_bins * g.n_channels * 8)
        a.size, a.score = <double*> take(arena, n_bins * 8), <double*> take(arena, n_bins * 8)
    return not arena.failed


cdef bint _split_node(
    const hf_scoring* g, const int64_t[:, ::1] total, const int64_t[:, ::1] sums, const int64_t[::1] cells,
    const int64_t[::1] missing, const uint8_t[::1] categorical, const double[::1] least_weight,
    double[::1] score, int64_t[:, ::1] split, uint8_t[::1] sides, int64_t v, hf_node* workspace
) noexcept nogil:
    # Writes the best split of node v; returns whether there was memory.
    cdef int64_t n_slots = missing.shape[0] // total.shape[0], first = v * n_slots, varied = 0
    cdef hf_node a
    cdef hf_best best
    if not _start_node(g, workspace):
        return False
    a = workspace[0]
    a.total, a.least_weight = &total[v, 0], least_weight[v]
    a.lower, a.upper, a.centre = g.bounds[3 * v], g.bounds[3 * v + 1], g.bounds[3 * v + 2]
    a.exponent = <int> g.exponent[v]
    _best_split(
        g, &a, sums, &cells[first], n_slots, &missing[first], &categorical[first], g.sign + first, &best,
        &varied, sides,
    )
    score[v] = best.score
    split[v, 0], split[v, 1], split[v, 2] = best.slot, best.low, best.high
    split[v, 3], split[v, 4] = best.missing, varied
    return True


cdef void _best_splits(
    const hf_scoring* g, const int64_t[:, ::1] total, const int64_t[:, ::1] sums, const int64_t[::1] cells,
    const int64_t[::1] missing, const uint8_t[::1] categorical, const double[::1] least_weight,
    double[::1] score, int64_t[:, ::1] split, uint8_t[::1] sides, hf_watch* watch
) noexcept nogil:
    cdef int threads = hf_threads_for(<double> CELL_NS * sums.shape[0] * sums.shape[1]), t
    cdef int64_t v
    cdef hf_arena arena
    cdef hf_node* nodes
    memset(&arena, 0, sizeof(hf_arena))
    nodes = <hf_node*> take_zeros(&arena, threads * sizeof(hf_node))
    if arena.failed:
        hf_stop(watch)
        return
    for v in prange(hf_units(watch, total.shape[0], threads), schedule="dynamic", num_threads=threads):
        if hf_begin(watch, v):
            if not _split_node(
                g, total, sums, cells, missing, categorical, least_weight, score, split, sides, v,
                &nodes[threadid()],
            ):
                hf_stop(watch)
            hf_end(watch)
    for t in range(threads):
        release(&nodes[t].arena)
    release(&arena)


def best_splits(
    total, sums, cells, missing, categorical, const int32_t[::1] sign, int criterion, int64_t min_leaf,
    least_weight, bint all_sampled, const double[:, ::1] bounds, const int64_t[::1] exponent
):
    """Returns the best split of each node: score, split and sides.

    total: (n_nodes, n_channels) int64, sums of the nodes. sums: (n_cells, n_channels), sums of their slots,
    of which each node has the same number. missing, categorical, sign: (n_slots,) int64, uint8 and int32, for
    the slots' features; sign is that of a monotonic constraint, or 0. least_weight: (n_nodes,) float64, for
    each side of a split. all_sampled: whether all slots of a node are compared, or only those up to the first
    that varies in the node. bounds, exponent: (n_nodes, 3) float64, lower and upper bound of the values of a
    node and the centre of its unit, and (n_nodes,) int64.

    score: (n_nodes,) float64. split: (n_nodes, 5) int64: slot of the node (-1: none), bins below and above
    the threshold, side of missing values (1 left, 0 right, -1 none), number of slots that vary. sides:
    (n_cells,) uint8, for the best slot: 1 for bins that go left, 0 right, 2 for those that the node does not
    have.
    """
    cdef hf_watch watch
    cdef hf_scoring g
    g.criterion, g.n_channels, g.min_leaf, g.all_sampled = criterion, total.shape[1], min_leaf, all_sampled
    g.of_targets = criterion != HF_GINI and criterion != HF_ENTROPY
    g.n_outputs = g.n_channels - (2 if g.of_targets else 1)
    score, split = np.empty(len(total)), np.empty((len(total), 5), np.int64)
    n_cells = cells[len(cells) - 1]
    sides = np.full(max(1, n_cells), ABSENT, np.uint8)
    if not len(total):
        return score, split, sides
    g.sign, g.bounds, g.exponent = &sign[0], &bounds[0, 0], &exponent[0]
    start_watch(&watch)
    g.widest = np.diff(cells).max()
    _best_splits(
        &g, total, sums, cells, missing, categorical, least_weight, score, split, sides, &watch
    )
    raise_stopped(&watch, "grow_by_rows: no memory to score {} bins", n_cells)
    return score, split, sides
