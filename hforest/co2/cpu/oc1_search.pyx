"""Oblique splits by coordinate-wise search: OC1.

Murthy, Kasif and Salzberg, A system for induction of oblique decision trees, JAIR 1994. Each weight in turn
takes its best value, with the others fixed, by a scan of the values at which a sample changes sides. Random
directions and restarts escape local optima. Unlike in the paper, a weight does not move if the impurity stays
equal. If the call has to stop, functions return early.
"""

from libc.math cimport INFINITY, fabs
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from hforest.core.arena cimport take
from hforest.core.machine cimport hf_stopped, hf_stopped_after
from hforest.core.score cimport hf_beats, hf_between_f64
from hforest.growth.cpu.task cimport HF_STREAM_JUMP, HF_STREAM_RESTART, hf_draw_key, hf_philox, hf_unit
from hforest.growth.cpu.scorers.terms cimport move_sample, score_of_sums, start_sums

cdef extern from "core/order.h" nogil:
    uint64_t hf_ordered(double a)
    int hf_sort(
        uint64_t* key, uint32_t* index, uint64_t* key2, uint32_t* index2, int64_t n, void* watch
    )

cdef enum:
    CYCLES = 100         # passes over all weights, at most


# The left side of a split, besides the running sums of the workspace (growth/cpu/scorers/terms.pxd).
ctypedef struct hf_left:
    int64_t u
    int64_t n


cdef void start_oc1(
    hf_oc1_workspace* o, hf_arena* arena, const void* x, int64_t n_features, bint offset, bint single,
    int64_t n
) noexcept nogil:
    # Allocates the workspace of searches on at most n samples.
    o.x, o.n_features, o.width, o.single = x, n_features, n_features + offset, single
    o.value, o.along = <double*> take(arena, n * 8), <double*> take(arena, n * 8)
    o.order, o.place = <uint64_t*> take(arena, n * 16), <uint32_t*> take(arena, n * 8)
    o.w, o.best = <double*> take(arena, o.width * 8), <double*> take(arena, o.width * 8)
    o.direction = <double*> take(arena, o.width * 8)


cdef inline double _number(const hf_oc1_workspace* o, int64_t row, int64_t j) noexcept nogil:
    # Returns a feature of a row, or -1 after the last feature.
    if j == o.n_features:
        return -1
    if o.single:
        return (<const float*> o.x)[row * o.n_features + j]
    return (<const double*> o.x)[row * o.n_features + j]


cdef void _write_products(
    const hf_oc1_workspace* o, const uint32_t* sample, int64_t n, const double* w, double* out
) noexcept nogil:
    # Writes w.x of a node's samples to `out` (n,).
    cdef double sum
    cdef int64_t i, j
    for i in range(n):
        sum = 0
        for j in range(o.width):
            sum += w[j] * _number(o, sample[i], j)
        out[i] = sum


cdef inline void _move(
    const hf_task* t, hf_workspace* r, int64_t i, int64_t sign, hf_left* left
) noexcept nogil:
    # Moves sample i of the tree to the left side, or with sign = -1 to the right.
    left.u += move_sample(t, r, i, sign)
    left.n += sign


cdef void _start(const hf_task* t, hf_workspace* r, hf_left* left) noexcept nogil:
    # Starts with all samples on the right.
    start_sums(t, r)
    left.u, left.n = 0, 0


cdef inline double _score(
    const hf_task* t, const hf_workspace* r, const hf_left* left, int64_t n
) noexcept nogil:
    # Returns the score of a split of n samples; -INFINITY if a side has too few samples or too little weight.
    if min(left.n, n - left.n) < max(t.min_leaf, 1):
        return -INFINITY
    return score_of_sums(t, r, left.u)


cdef double _score_of_w(
    const hf_task* t, hf_workspace* r, const hf_pending* node, const hf_oc1_workspace* o
) noexcept nogil:
    # Returns the score of the sides by o.value: samples with at least 0 go right.
    cdef hf_left left
    cdef int64_t i, n = node.last - node.first
    _start(t, r, &left)
    for i in range(n):
        if not o.value[i] >= 0:
            _move(t, r, node.first + i, 1, &left)
    return _score(t, r, &left, n)


cdef double _search_line(
    const hf_task* t, hf_workspace* r, const hf_pending* node, hf_oc1_workspace* o, double* step
) noexcept nogil:
    # Writes to step[0] the number a for which the sides of value + a * along score best. Returns this score,
    # or -INFINITY if for no a both sides are large enough.
    cdef const uint64_t* order = o.order
    cdef const uint32_t* place = o.place
    cdef hf_left left
    cdef double along, score, best = -INFINITY
    cdef int64_t i, c, n = node.last - node.first, n_moving = 0, n_steps = 0, following
    cdef int swapped
    _start(t, r, &left)
    for i in range(n):
        # The sides at a = -infinity; a sample changes sides at a = -value / along.
        along = o.along[i]
        if not (along < 0 or (along == 0 and o.value[i] >= 0)):
            _move(t, r, node.first + i, 1, &left)
        if along != 0:
            o.order[n_moving], o.place[n_moving] = hf_ordered(-o.value[i] / along), <uint32_t> i
            n_moving += 1
    swapped = hf_sort(o.order, o.place, o.order + n, o.place + n, n_moving, t.watch)
    if swapped < 0:
        return best
    if swapped:
        order, place = o.order + n, o.place + n
    for c in range(n_moving - 1):
        i = place[c]
        if hf_stopped_after(t.watch, &n_steps, t.n_outputs + 16):
            break
        _move(t, r, node.first + i, -1 if o.along[i] > 0 else 1, &left)
        if order[c] == order[c + 1]:
            continue
        score = _score(t, r, &left, n)
        if hf_beats(score, best):
            following = place[c + 1]
            best = score
            step[0] = hf_between_f64(-o.value[i] / o.along[i], -o.value[following] / o.along[following])
    return best


cdef void _step(hf_oc1_workspace* o, int64_t n, double step) noexcept nogil:
    # Updates the products w.x after a step of `along`.
    cdef int64_t i
    for i in range(n):
        o.value[i] += step * o.along[i]


cdef double _climb(
    const hf_task* t, hf_workspace* r, const hf_pending* node, hf_oc1_workspace* o, double score
) noexcept nogil:
    # Changes o.w, one weight after another, until no single weight raises the score, which is `score` at the
    # start. Returns the final score.
    cdef const uint32_t* sample = r.sample + node.first
    cdef int64_t i, j, n = node.last - node.first, n_steps = 0, cycle = 0, idle = 0
    cdef double step = 0, better
    while cycle < CYCLES and idle < o.width:
        for j in range(o.width):
            if idle == o.width:
                break
            if hf_stopped_after(t.watch, &n_steps, n):
                return score
            for i in range(n):
                o.along[i] = _number(o, sample[i], j)
            better = _search_line(t, r, node, o, &step)
            idle += 1
            if hf_beats(better, score):
                score, idle = better, 0
                o.w[j] += step
                _step(o, n, step)
        cycle += 1
    return score


cdef void _draw(uint64_t key, uint64_t number, uint64_t stream, double* w, int64_t width) noexcept nogil:
    # Writes uniform random numbers between -1 and 1, determined by key, number and stream, to w (width,).
    cdef uint64_t draws = hf_draw_key(hf_philox(key, number, stream), 0)
    cdef int64_t j
    for j in range(width):
        w[j] = 2 * hf_unit(hf_philox(draws, <uint64_t> j, stream)) - 1


cdef double _jump(
    const hf_task* t, hf_workspace* r, const hf_pending* node, const hf_oc1* c, uint64_t key,
    hf_oc1_workspace* o, double score, uint64_t* n_jumps
) noexcept nogil:
    # Moves o.w along random directions, each followed by _climb, until c.jumps of them in a row do not raise
    # the score. Returns the final score.
    cdef int64_t j, n = node.last - node.first, n_failed = 0, n_steps = 0
    cdef double step = 0, better
    while n_failed < c.jumps:
        if hf_stopped_after(t.watch, &n_steps, n * o.width):
            break
        _draw(key, n_jumps[0], HF_STREAM_JUMP, o.direction, o.width)
        n_jumps[0] += 1
        _write_products(o, r.sample + node.first, n, o.direction, o.along)
        better = _search_line(t, r, node, o, &step)
        n_failed += 1
        if hf_beats(better, score):
            for j in range(o.width):
                o.w[j] += step * o.direction[j]
            _step(o, n, step)
            score = _climb(t, r, node, o, better)
            n_failed = 0
    return score


cdef void search_hyperplane(
    const hf_task* t, hf_workspace* r, const hf_pending* node, const hf_oc1* c, uint64_t key,
    hf_oc1_workspace* o, double* w
) noexcept nogil:
    # Searches from w and from random starts.
    #
    # w   IN, OUT (width,): the best, scaled so that its largest absolute value is 1
    cdef double best = -INFINITY, score, largest = 0
    cdef uint64_t n_jumps = 0
    cdef int64_t j, restart
    for restart in range(c.restarts + 1):
        if hf_stopped(t.watch):
            break
        if restart == 0:
            memcpy(o.w, w, o.width * sizeof(double))
        else:
            _draw(key, <uint64_t> restart, HF_STREAM_RESTART, o.w, o.width)
        _write_products(o, r.sample + node.first, node.last - node.first, o.w, o.value)
        score = _climb(t, r, node, o, _score_of_w(t, r, node, o))
        score = _jump(t, r, node, c, key, o, score, &n_jumps)
        if restart == 0 or hf_beats(score, best):
            best = score
            memcpy(o.best, o.w, o.width * sizeof(double))
    for j in range(o.width):
        largest = max(largest, fabs(o.best[j]))
    for j in range(o.width):
        w[j] = o.best[j] / largest if largest > 0 else 0
