"""Fits one oblique split (Norouzi et al. 2015, Alg. 1): convex-concave steps on the surrogate of eq. 10.

Steps on mini-batches, with momentum, change w and theta together.

Kept: five rounds have nearly the test error of twenty, in a fifth of the time.
"""

from libc.math cimport sqrt
from libc.stdint cimport int8_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from hforest.co2.cpu.losses cimport (
    HF_CHUNK, copy_members, hf_passes, hf_sums, sum_sides, sum_slopes, sum_terms, sums_of_chunk, theta_slope,
    write_losses,
)
from hforest.co2.cpu.rows cimport HF_LANES, HF_TOGETHER, fold, real, row_bytes
from hforest.core.arena cimport take, take_zeros
from hforest.core.machine cimport hf_stopped_after
from hforest.core.score cimport hf_beats
from hforest.core.series cimport hf_log

cdef extern from "co2/visits.h" nogil:
    ctypedef struct hf_visits:
        int64_t start
        int64_t stride
    hf_visits hf_draw_visits(uint64_t key, uint64_t epoch, int64_t n)
    void hf_shuffle(uint64_t key, uint32_t* order, int64_t n)

cdef extern from "co2/fit.h" nogil:
    int HF_HALVINGS
    double HF_ABSENT

cdef enum:
    CHUNKS = 64     # chunks whose sums are kept at a time
    LINE = 128      # bytes, two cache lines: processors prefetch pairs of them

# Slightly below 1, so that rounding leaves a w that is scaled onto the ball inside of it.
cdef double INSIDE_FLOAT = 1 - 2.0**-22
cdef double INSIDE_DOUBLE = 1 - 2.0**-50


cdef size_t w_bytes(const hf_rows* rows) noexcept nogil:
    return rows.n_blocks * HF_LANES * (4 if rows.single else 8)


cdef int64_t _sums_bytes(const hf_rows* rows, int64_t n_outputs) noexcept nogil:
    # Returns the bytes of sums, as `_place_sums` lays them out, and of a cache line.
    return sizeof(hf_sums) + 2 * n_outputs * 8 + <int64_t> w_bytes(rows) + LINE


cdef void _place_sums(hf_sums* sums, int64_t n_outputs) noexcept nogil:
    # Gives sums their arrays, which follow them:
    #
    #     | hf_sums | outputs[0] | outputs[1] | slope |
    sums.outputs[0] = <double*> (sums + 1)
    sums.outputs[1] = sums.outputs[0] + n_outputs
    sums.slope = sums.outputs[1] + n_outputs


cdef void start_stump(
    hf_stump_workspace* s, hf_arena* arena, const hf_rows* rows, int64_t n, int64_t n_outputs, int n_threads,
    hf_watch* watch
) noexcept nogil:
    # Allocates the workspace of stumps on at most n samples, whose passes take at most n_threads threads.
    cdef int64_t size = w_bytes(rows), k = n_outputs, n_chunks = (n + HF_CHUNK - 1) // HF_CHUNK, c
    cdef hf_passes* p = &s.passes
    cdef int side
    s.losses.n_outputs = n_outputs
    s.w, s.v, s.best_w = take_zeros(arena, size), take_zeros(arena, size), take_zeros(arena, size)
    s.order, s.shuffled = <uint32_t*> take(arena, n * 4), <uint32_t*> take(arena, n * 4)
    s.sign = <int8_t*> take(arena, n)
    s.start = <double*> take(arena, rows.n_blocks * HF_LANES * 8)
    s.copies = NULL
    if rows.place != NULL:
        s.copies = <char*> take(arena, (min(n, rows.room) + HF_TOGETHER) * row_bytes(rows))
    for side in range(2):
        s.losses.theta[side], s.losses.loss[side] = <double*> take(arena, k * 8), <double*> take(arena, k * 8)
        s.speed[side], s.best_theta[side] = <double*> take(arena, k * 8), <double*> take(arena, k * 8)
    p.rows, p.m, p.losses, p.w, p.watch = rows, NULL, &s.losses, s.w, watch
    p.product, p.slope = <double*> take(arena, n * 8), s.start
    p.n_threads, p.n_chunks = <int> max(1, min(n_threads, n_chunks)), min(n_chunks, CHUNKS)
    p.stride = _sums_bytes(rows, k)
    s.sums, p.chunks = <hf_sums*> take(arena, p.stride), <char*> take(arena, p.n_chunks * p.stride)
    if arena.failed:
        return
    _place_sums(s.sums, k)
    for c in range(p.n_chunks):
        _place_sums(sums_of_chunk(p, c), k)


cdef inline void _project(const hf_rows* rows, real* w, double nu) noexcept nogil:
    cdef double lane[HF_LANES]
    cdef int64_t b, j, n = rows.n_blocks * HF_LANES
    cdef int i
    cdef double square
    cdef real factor
    for i in range(HF_LANES):
        lane[i] = 0
    for b in range(0, n, 16):
        for i in range(HF_LANES):
            lane[i] += <double> w[b + i] * <double> w[b + i]
    square = fold(lane)
    if square > nu:
        factor = <real> (sqrt(nu / square) * (INSIDE_FLOAT if real is float else INSIDE_DOUBLE))
        for j in range(n):
            w[j] *= factor


cdef inline void _move(
    const hf_rows* rows, real* w, real* v, const real* slope, double momentum, double rate, double nu
) noexcept nogil:
    cdef real keep = <real> momentum, step = <real> -rate
    cdef int64_t j
    for j in range(rows.n_blocks * HF_LANES):
        v[j] = keep * v[j] + step * slope[j]
        w[j] += v[j]
    _project(rows, w, nu)


cdef void project(const hf_rows* rows, void* w, double nu) noexcept nogil:
    if rows.single:
        _project(rows, <float*> w, nu)
    else:
        _project(rows, <double*> w, nu)


cdef void move(
    const hf_rows* rows, void* w, void* v, const void* slope, double momentum, double rate, double nu
) noexcept nogil:
    if rows.single:
        _move(rows, <float*> w, <float*> v, <const float*> slope, momentum, rate, nu)
    else:
        _move(rows, <double*> w, <double*> v, <const double*> slope, momentum, rate, nu)


cdef int64_t epochs_of(const hf_schedule* c, int64_t n_steps) noexcept nogil:
    return max(c.tau, (c.min_steps + n_steps - 1) // n_steps)


cdef void order_epoch(
    uint64_t key, uint64_t epoch, const uint32_t* shuffled, uint32_t* order, int64_t n
) noexcept nogil:
    cdef hf_visits visits = hf_draw_visits(key, epoch, n)
    cdef int64_t i, at = visits.start
    for i in range(n):
        order[i] = shuffled[at]
        at += visits.stride
        at -= n if at >= n else 0


cdef void _start_theta(const hf_members* m, const hf_schedule* c, hf_stump_workspace* s) noexcept nogil:
    # Writes theta of both sides of w.x, whose signs are set (Alg. 1, line 2): logarithms of smoothed class
    # shares, or means of the targets.
    cdef double added = 0, both, share
    cdef const double* weights = s.sums.weights
    cdef const double* left = s.sums.outputs[0]
    cdef const double* right = s.sums.outputs[1]
    cdef int64_t k
    cdef int side
    sum_sides(&s.passes, s.sums)
    for k in range(s.losses.n_outputs):
        added += c.smooth * (1 if left[k] + right[k] > 0 else HF_ABSENT)
    for side in range(2):
        for k in range(s.losses.n_outputs):
            both = left[k] + right[k]
            share = c.smooth * (1 if both > 0 else HF_ABSENT)
            if m.label != NULL:
                share += s.sums.outputs[side][k]
                s.losses.theta[side][k] = hf_log(share / (weights[side] + added))
            elif weights[side] > 0:
                s.losses.theta[side][k] = s.sums.outputs[side][k] / weights[side]
            else:
                s.losses.theta[side][k] = both / weights[1 - side]


cdef void _step(
    const hf_rows* rows, const hf_members* m, const hf_schedule* c, double eta, int64_t first, int64_t last,
    hf_stump_workspace* s
) noexcept nogil:
    # Moves w and theta by one step on samples order[first] to order[last - 1] (Alg. 1, lines 6 to 16): v =
    # momentum v - eta / W slope, w += v; the same for theta.
    cdef double rate, slope
    cdef int64_t k
    cdef int side
    sum_slopes(&s.passes, first, last, s.sums)
    rate = eta / s.sums.weight
    for side in range(2):
        for k in range(s.losses.n_outputs):
            slope = theta_slope(m, &s.losses, s.sums, side, k)
            s.speed[side][k] = c.momentum * s.speed[side][k] - rate * slope
            s.losses.theta[side][k] += s.speed[side][k]
    move(rows, s.w, s.v, s.sums.slope, c.momentum, rate, c.nu)
    write_losses(m, &s.losses)


cdef double _surrogate(const hf_members* m, hf_stump_workspace* s) noexcept nogil:
    # Returns the surrogate of w and theta; writes the signs of w.x.
    memcpy(s.order, s.shuffled, m.n * sizeof(uint32_t))
    sum_terms(&s.passes, True, s.sums)
    return s.sums.terms


cdef double _start(
    const hf_rows* rows, const hf_members* m, const hf_schedule* c, uint64_t key, hf_stump_workspace* s
) noexcept nogil:
    # Projects w, and writes the theta of its sides, the signs of w.x and zero velocities; returns the
    # surrogate.
    cdef int side
    hf_shuffle(key, s.shuffled, m.n)
    project(rows, s.w, c.nu)
    memset(s.v, 0, w_bytes(rows))
    for side in range(2):
        memset(s.speed[side], 0, s.losses.n_outputs * sizeof(double))
        memset(s.losses.theta[side], 0, s.losses.n_outputs * sizeof(double))
    write_losses(m, &s.losses)
    _surrogate(m, s)
    _start_theta(m, c, s)
    write_losses(m, &s.losses)
    sum_terms(&s.passes, False, s.sums)
    return s.sums.terms


cdef void _copy_best(const hf_rows* rows, hf_stump_workspace* s, bint back) noexcept nogil:
    # Copies w and theta to best_w and best_theta, or back.
    cdef size_t size = s.losses.n_outputs * sizeof(double)
    cdef int side
    memcpy(s.w if back else s.best_w, s.best_w if back else s.w, w_bytes(rows))
    for side in range(2):
        if back:
            memcpy(s.losses.theta[side], s.best_theta[side], size)
        else:
            memcpy(s.best_theta[side], s.losses.theta[side], size)


cdef void fit_hyperplane(
    hf_members* m, const hf_schedule* c, uint64_t key, hf_stump_workspace* s, double* history
) noexcept nogil:
    # Runs Alg. 1: writes the w and theta with the least surrogate among those at the start and after each
    # round. Ends early if the watch says so.
    #
    # s.w       IN, OUT (n_blocks, 16)
    # history   OUT (max_rounds + 1,) or NULL: the surrogate at the start and after each round
    cdef int64_t batch, n_steps, n_epochs, _, first, last, round = 0, waiting = 0, n_lowered = 0, n_done = 0
    cdef int64_t work
    cdef const hf_rows* rows = s.passes.rows
    cdef uint64_t epoch = 0
    cdef double eta = c.eta, value, best, before
    if m.n < c.min_samples:
        memset(s.w, 0, w_bytes(rows))
        return
    m.order, m.sign, m.copies, s.passes.m = s.order, s.sign, s.copies, m
    copy_members(rows, m)
    batch = min(c.batch, m.n)
    n_steps = (m.n + batch - 1) // batch
    n_epochs = epochs_of(c, n_steps)
    work = batch * (rows.n_features + s.losses.n_outputs) // HF_LANES + 2 * s.losses.n_outputs
    value = best = _start(rows, m, c, key, s)
    _copy_best(rows, s, False)
    if history != NULL:
        history[0] = value
    while round < c.max_rounds and n_lowered < HF_HALVINGS and value > 0:
        if round < c.convex_rounds:
            memset(m.sign, 0, m.n)  # the tangent of -|w.x| at w_old = 0
        for _ in range(n_epochs):
            order_epoch(key, epoch, s.shuffled, s.order, m.n)
            epoch += 1
            first = 0
            while first < m.n:
                last = min(first + batch, m.n)
                if hf_stopped_after(s.passes.watch, &n_done, work):
                    return
                _step(rows, m, c, eta, first, last, s)
                first = last
        # w_old = w (Alg. 1, line 4): _surrogate also writes its signs.
        before = value
        value = _surrogate(m, s)
        round += 1
        if history != NULL:
            history[round] = value
        if hf_beats(-value, -best):
            best = value
            _copy_best(rows, s, False)
        if round > c.convex_rounds and not value < before - c.tolerance * before:
            waiting += 1
        if waiting > c.patience:
            waiting = 0
            n_lowered += 1
            eta *= c.decay
    _copy_best(rows, s, True)
