"""Oblique splits by coordinate-wise search: OC1.

Murthy, Kasif and Salzberg, A system for induction of oblique decision trees, JAIR 1994. Each weight in turn
takes its best value, with the others fixed, by a scan of the values at which a sample changes sides. Random
directions and restarts escape local optima. Unlike in the paper, a weight does not move if the impurity stays
equal. If the call has to stop, functions return early.

Each thread searches a line: the next weight, or the next random direction. The first line with a better score
is taken, and the lines after it are searched again, so the number of threads does not change the result.
"""

from cython.parallel cimport prange
from libc.math cimport INFINITY, fabs
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from hforest.core.arena cimport take
from hforest.core.machine cimport hf_begin, hf_end, hf_stopped, hf_stopped_after, hf_units
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
    int64_t n, int64_t n_outputs, int n_lines
) noexcept nogil:
    # Allocates the workspace of searches on at most n samples, of n_lines lines at a time.
    cdef hf_line* line
    cdef int c
    o.x, o.n_features, o.width, o.single = x, n_features, n_features + offset, single
    o.value, o.n_lines = <double*> take(arena, n * 8), n_lines
    o.w, o.best = <double*> take(arena, o.width * 8), <double*> take(arena, o.width * 8)
    o.line = <hf_line*> take(arena, n_lines * sizeof(hf_line))
    if arena.failed:
        return
    for c in range(n_lines):
        line = &o.line[c]
        line.along, line.direction = <double*> take(arena, n * 8), <double*> take(arena, o.width * 8)
        line.order, line.place = <uint64_t*> take(arena, n * 16), <uint32_t*> take(arena, n * 8)
        line.r.sum = <int64_t*> take(arena, n_outputs * 8)
        line.r.left, line.r.right = <double*> take(arena, n_outputs * 8), <double*> take(arena, n_outputs * 8)


cdef void _start_lines(const hf_workspace* r, hf_oc1_workspace* o) noexcept nogil:
    # Gives the lines the node whose sums are in r.
    cdef hf_workspace* own
    cdef int64_t* sum
    cdef double* left
    cdef double* right
    cdef int c
    for c in range(o.n_lines):
        own = &o.line[c].r
        sum, left, right = own.sum, own.left, own.right
        own[0] = r[0]
        own.sum, own.left, own.right = sum, left, right


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


cdef void _draw(uint64_t key, uint64_t number, uint64_t stream, double* w, int64_t width) noexcept nogil:
    # Writes uniform random numbers between -1 and 1, determined by key, number and stream, to w (width,).
    cdef uint64_t draws = hf_draw_key(hf_philox(key, number, stream), 0)
    cdef int64_t j
    for j in range(width):
        w[j] = 2 * hf_unit(hf_philox(draws, <uint64_t> j, stream)) - 1


cdef void _search_line(
    const hf_task* t, const hf_pending* node, const double* value, hf_line* line
) noexcept nogil:
    # Writes line.score, the best score of the sides of value + a * line.along over all numbers a, and this a
    # as line.step; a score of -INFINITY if for no a both sides are large enough.
    cdef hf_workspace* r = &line.r
    cdef const uint64_t* order = line.order
    cdef const uint32_t* place = line.place
    cdef hf_left left
    cdef double along, score
    cdef int64_t i, c, n = node.last - node.first, n_moving = 0, n_steps = 0, following
    cdef int swapped
    line.score = -INFINITY
    _start(t, r, &left)
    for i in range(n):
        # The sides at a = -infinity; a sample changes sides at a = -value / along.
        along = line.along[i]
        if not (along < 0 or (along == 0 and value[i] >= 0)):
            _move(t, r, node.first + i, 1, &left)
        if along != 0:
            line.order[n_moving], line.place[n_moving] = hf_ordered(-value[i] / along), <uint32_t> i
            n_moving += 1
    swapped = hf_sort(line.order, line.place, line.order + n, line.place + n, n_moving, t.watch)
    if swapped < 0:
        return
    if swapped:
        order, place = line.order + n, line.place + n
    for c in range(n_moving - 1):
        i = place[c]
        if hf_stopped_after(t.watch, &n_steps, t.n_outputs + 16):
            break
        _move(t, r, node.first + i, -1 if line.along[i] > 0 else 1, &left)
        if order[c] == order[c + 1]:
            continue
        score = _score(t, r, &left, n)
        if hf_beats(score, line.score):
            following = place[c + 1]
            line.score = score
            line.step = hf_between_f64(
                -value[i] / line.along[i], -value[following] / line.along[following]
            )


cdef void _search_weight(
    const hf_task* t, const hf_pending* node, const hf_oc1_workspace* o, int64_t j, hf_line* line
) noexcept nogil:
    # Searches the line on which only weight j moves.
    cdef int64_t i
    for i in range(node.last - node.first):
        line.along[i] = _number(o, line.r.sample[node.first + i], j)
    _search_line(t, node, o.value, line)


cdef void _search_jump(
    const hf_task* t, const hf_pending* node, const hf_oc1_workspace* o, uint64_t key, uint64_t number,
    hf_line* line
) noexcept nogil:
    # Searches the line of a random direction.
    _draw(key, number, HF_STREAM_JUMP, line.direction, o.width)
    _write_products(o, line.r.sample + node.first, node.last - node.first, line.direction, line.along)
    _search_line(t, node, o.value, line)


cdef int64_t _first_better(
    const hf_task* t, const hf_pending* node, hf_oc1_workspace* o, const uint64_t* jumps, int64_t first,
    int64_t n, double score
) noexcept nogil:
    # Searches n <= o.n_lines lines; returns the first of them that scores more than `score`, or n.
    #
    # jumps  IN  key of random directions, whose numbers are first to first + n - 1; NULL: these are weights
    cdef int64_t c
    if o.n_lines == 1:
        if jumps == NULL:
            _search_weight(t, node, o, first, o.line)
        else:
            _search_jump(t, node, o, jumps[0], <uint64_t> first, o.line)
    else:
        for c in prange(hf_units(t.watch, n, o.n_lines), schedule="dynamic", num_threads=o.n_lines):
            if hf_begin(t.watch, c):
                if jumps == NULL:
                    _search_weight(t, node, o, first + c, &o.line[c])
                else:
                    _search_jump(t, node, o, jumps[0], <uint64_t> (first + c), &o.line[c])
                hf_end(t.watch)
    for c in range(n):
        if hf_beats(o.line[c].score, score):
            return c
    return n


cdef void _step(hf_oc1_workspace* o, int64_t n, const hf_line* line) noexcept nogil:
    # Updates the products w.x after the best step on a line.
    cdef int64_t i
    for i in range(n):
        o.value[i] += line.step * line.along[i]


cdef double _climb(
    const hf_task* t, const hf_pending* node, hf_oc1_workspace* o, double score
) noexcept nogil:
    # Changes o.w, one weight after another, until no single weight raises the score, which is `score` at the
    # start. Returns the final score.
    cdef int64_t j, c, n, n_steps = 0, cycle = 0, idle = 0
    while cycle < CYCLES and idle < o.width:
        j = 0
        while j < o.width and idle < o.width:
            n = min(<int64_t> o.n_lines, o.width - max(j, idle))
            if hf_stopped_after(t.watch, &n_steps, n * (node.last - node.first)):
                return score
            c = _first_better(t, node, o, NULL, j, n, score)
            idle += n
            j += n
            if c < n:
                j += c + 1 - n
                score, idle = o.line[c].score, 0
                o.w[j - 1] += o.line[c].step
                _step(o, node.last - node.first, &o.line[c])
        cycle += 1
    return score


cdef double _jump(
    const hf_task* t, const hf_pending* node, const hf_oc1* c, uint64_t key, hf_oc1_workspace* o,
    double score, int64_t* n_jumps
) noexcept nogil:
    # Moves o.w along random directions, each followed by _climb, until c.jumps of them in a row do not raise
    # the score. Returns the final score.
    cdef int64_t i, j, n, n_failed = 0, n_steps = 0
    while n_failed < c.jumps:
        n = min(<int64_t> o.n_lines, c.jumps - n_failed)
        if hf_stopped_after(t.watch, &n_steps, n * (node.last - node.first) * o.width):
            break
        i = _first_better(t, node, o, &key, n_jumps[0], n, score)
        n_failed += n
        n_jumps[0] += min(i + 1, n)
        if i < n:
            for j in range(o.width):
                o.w[j] += o.line[i].step * o.line[i].direction[j]
            _step(o, node.last - node.first, &o.line[i])
            score = _climb(t, node, o, o.line[i].score)
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
    cdef int64_t n_jumps = 0, j, restart
    _start_lines(r, o)
    for restart in range(c.restarts + 1):
        if hf_stopped(t.watch):
            break
        if restart == 0:
            memcpy(o.w, w, o.width * sizeof(double))
        else:
            _draw(key, <uint64_t> restart, HF_STREAM_RESTART, o.w, o.width)
        _write_products(o, r.sample + node.first, node.last - node.first, o.w, o.value)
        score = _climb(t, node, o, _score_of_w(t, r, node, o))
        score = _jump(t, node, c, key, o, score, &n_jumps)
        if restart == 0 or hf_beats(score, best):
            best = score
            memcpy(o.best, o.w, o.width * sizeof(double))
    for j in range(o.width):
        largest = max(largest, fabs(o.best[j]))
    for j in range(o.width):
        w[j] = o.best[j] / largest if largest > 0 else 0
