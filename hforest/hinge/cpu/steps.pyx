"""Training steps with exact Adam that update only the parameters that a batch reads (training.py).

Before a batch is evaluated, the leaves and deep vertices that it reads take the steps that they missed.
Afterwards the trees are processed one by one: sums over the samples of a leaf, then Adam's step of the leaf
while its row is in cache. Steps are in place, so they run to the end even if a signal arrives.

Kept: routing with trees in vector lanes; decays of missed steps from a table, and shorter polynomials for
float32 (optim/adam.h); prefetching the rows of the next tree. Left out: thresholds that are updated only when
a batch reads them, like leaves. This was slower: a batch of 53 samples reads most vertices of ten levels.
"""

import numpy as np

from cython.parallel cimport prange, threadid
from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from hforest.core.machine cimport hf_enter_state, hf_leave_state, hf_watch, simd_path
from hforest.hinge.cpu.gradients cimport (
    Columns, Gradients, add_slopes, column_step, hf_visits, input_gradients, load_columns, take_row,
    visit_samples,
)
from hforest.hinge.cpu.forest cimport (
    GROUP, Forest, Route, aligned, bounded, forest_of, hf_fetch, real, route_of, start_of, threads_for,
)
from hforest.hinge.cpu.route cimport Call, call_of, run
from hforest.optim.adam_step cimport adam_fetch, adam_pass, adam_settings, adam_step, adam_tables, hf_adam

from ...optim.exact import bias

cdef extern from "core/watch.h" nogil:
    void hf_start_watch(hf_watch* watch, int is_main_thread)

cdef extern from "hinge/eager.h" nogil:
    int HF_EAGER_LEVELS, HF_EAGER

cdef enum:
    AHEAD = 8             # samples between the prefetch of a leaf's row and its use


# Adam's moments of a parameter array, and the last step that each of its rows has taken.
cdef struct Moments:
    void* m               # shape and dtype of the parameters
    void* v
    int64_t* last         # (n_trees, n_vertices) or (n_trees, n_leaves)


# One training step of a forest.
cdef struct Step:
    Forest forest
    Moments thresholds, weights
    int64_t step
    hf_adam adam
    int path


cdef int _fill(Step* a, fern, parameters, state, step, settings, double bias1, double bias2) except -1:
    # The struct points into the tables in `settings`, which the caller keeps alive.
    lr, beta1, beta2, eps, missed = settings
    a.forest, a.step, a.path = forest_of(fern, parameters[0], parameters[1], parameters[2]), step, simd_path()
    a.adam = adam_settings(parameters[0].itemsize, lr, beta1, beta2, eps, bias1, bias2)
    adam_tables(&a.adam, missed)
    a.thresholds.m, a.thresholds.v = start_of(state.thresholds_m), start_of(state.thresholds_v)
    a.weights.m, a.weights.v = start_of(state.weights_m), start_of(state.weights_v)
    a.thresholds.last = <int64_t*> start_of(state.thresholds_last)
    a.weights.last = <int64_t*> start_of(state.weights_last)
    return 0


# ------------------------------------------------------------------------------------- before a batch

cdef inline void _pass(
    const Step* a, const Moments* moments, real* param, Py_ssize_t row, Py_ssize_t n, int64_t reach
) noexcept nogil:
    # Takes the missed steps of one row of n elements, up to step `reach`.
    adam_pass(
        param + row * n, <real*> moments.m + row * n, <real*> moments.v + row * n, n,
        moments.last[row], reach, &a.adam,
    )
    moments.last[row] = reach


cdef void _descend_tree(
    const Step* a, const real* x, Py_ssize_t n_samples, Py_ssize_t n_features, Py_ssize_t tree,
    const Route* route,
) noexcept nogil:
    """Continues the routes of all samples in a tree from level HF_EAGER_LEVELS on (Lay et al. 2018, Alg. 3).

    A vertex takes its missed steps when a sample reaches it. The loop runs level by level, so that the next
    vertex of a sample is prefetched while the other samples are processed.
    """
    cdef Py_ssize_t n, pair, row, start = tree * a.forest.n_vertices
    cdef real* thresholds = <real*> a.forest.thresholds
    cdef real* margin = <real*> route.margin
    cdef const real* first_moment = <const real*> a.thresholds.m
    cdef int level, right
    cdef uint32_t f
    cdef real r
    for level in range(HF_EAGER_LEVELS, a.forest.depth):
        for n in range(n_samples):
            pair = n * route.sample_step + tree * route.tree_step
            row = start + ((<int32_t> 1 << level) - 1) + route.leaf[pair]
            # With a first moment of 0 a vertex does not move, regardless of the number of steps it missed.
            if first_moment[row] != 0 and a.thresholds.last[row] < a.step - 1:
                _pass(a, &a.thresholds, thresholds, row, 1, a.step - 1)
            f = bounded(a.forest.features[row], n_features)
            r = x[n * n_features + f] - thresholds[row]
            if fabs(r) < fabs(margin[pair]):
                margin[pair] = r
                route.vertex[pair] = <int32_t> (row - start)
            right = r > 0
            route.leaf[pair] = 2 * route.leaf[pair] + right
            row = start + 2 * (row - start) + right + 1
            if level + 1 < a.forest.depth:
                hf_fetch(a.thresholds.last + row, sizeof(int64_t))
                hf_fetch(a.forest.features + row, sizeof(int32_t))
                hf_fetch(thresholds + row, sizeof(real))
                hf_fetch(first_moment + row, sizeof(real))
                hf_fetch(<const real*> a.thresholds.v + row, sizeof(real))


cdef void _catch_up_tree(
    const Step* a, Py_ssize_t n_samples, Py_ssize_t tree, const int32_t* leaf, Py_ssize_t step, real* weights
) noexcept nogil:
    # Leaves that samples reach take their missed steps when the first of these samples is processed.
    cdef Py_ssize_t n, n_outputs = a.forest.n_outputs, row
    cdef int64_t* last = a.weights.last + tree * a.forest.n_leaves
    weights += tree * a.forest.n_leaves * n_outputs
    cdef Moments moments = a.weights
    moments.m = <real*> moments.m + tree * a.forest.n_leaves * n_outputs
    moments.v = <real*> moments.v + tree * a.forest.n_leaves * n_outputs
    moments.last = last
    for n in range(n_samples):
        if n + 2 * AHEAD < n_samples:
            hf_fetch(last + leaf[(n + 2 * AHEAD) * step], sizeof(int64_t))
        if n + AHEAD < n_samples:
            row = leaf[(n + AHEAD) * step]
            if last[row] < a.step - 1:
                adam_fetch(weights + row * n_outputs, n_outputs)
                adam_fetch(<real*> moments.m + row * n_outputs, n_outputs)
                adam_fetch(<real*> moments.v + row * n_outputs, n_outputs)
        row = leaf[n * step]
        if last[row] < a.step - 1:
            _pass(a, &moments, weights, row, n_outputs, a.step - 1)


cdef void _catch_up(
    const Step* a, const real* x, Py_ssize_t n_samples, Py_ssize_t n_features, const Route* route
) noexcept nogil:
    cdef Py_ssize_t m
    cdef uint64_t before
    for m in prange(
        a.forest.n_trees, schedule="dynamic", chunksize=GROUP,
        num_threads=threads_for(n_samples * a.forest.n_trees),
    ):
        before = hf_enter_state()
        if not a.forest.fern:
            _descend_tree(a, x, n_samples, n_features, m, route)
        _catch_up_tree(
            a, n_samples, m, route.leaf + m * route.tree_step, route.sample_step, <real*> a.forest.weights
        )
        hf_leave_state(before)


cdef int catch_up(fern, x, parameters, state, step, settings, route) except -1:
    """Routes a batch; the parameters that it reads first take their missed steps, up to step - 1.

    parameters  IN and OUT (thresholds, features, weights); features do not change
    state       IN and OUT, an AdamState
    settings    (lr, beta1, beta2, eps, missed); `missed` comes from optim.tables
    route       OUT
    """
    cdef Step a
    cdef Call call
    cdef Route rows = route_of(route)
    _fill(&a, fern, parameters, state, step, settings, 0, 0)
    call = call_of(fern, x, parameters[0], parameters[1], None, 1, None, route, None, None)
    if not fern:
        call.forest.depth = min(call.forest.depth, HF_EAGER_LEVELS)
    if x.itemsize == 4:
        run(call, <const float*> start_of(x))
        _catch_up(&a, <const float*> start_of(x), call.n_samples, call.n_features, &rows)
    else:
        run(call, <const double*> start_of(x))
        _catch_up(&a, <const double*> start_of(x), call.n_samples, call.n_features, &rows)
    return 0


# -------------------------------------------------------------------------------------- after a batch

# Workspace of one thread. Sums, marks and gradients are 0 between trees.
cdef struct Workspace:
    double* by_leaf       # (n_leaves, n_outputs)
    double* by_vertex     # (n_vertices,)
    unsigned char* seen   # (n_leaves,)
    void* eager           # (HF_EAGER,) real: gradients of the vertices below HF_EAGER
    void* row             # (n_outputs,) real: the gradient of a leaf
    Columns columns


cdef Py_ssize_t _workspace(const Gradients* g, Workspace* w, unsigned char* start) noexcept nogil:
    # Lays out a workspace that begins at `start`, and returns its size in bytes.
    cdef const Forest* forest = &g.forest
    cdef Py_ssize_t n = 0
    w.by_leaf = <double*> start
    n += aligned(forest.n_leaves * forest.n_outputs * 8)
    w.by_vertex = <double*> (start + n)
    n += aligned(forest.n_vertices * 8)
    w.seen = start + n
    n += aligned(forest.n_leaves)
    w.eager = start + n
    n += aligned(HF_EAGER * 8)
    w.row = start + n
    n += aligned(forest.n_outputs * 8)
    w.columns.step = column_step(&g.route, g.n_samples)
    w.columns.margin = start + n
    n += aligned(GROUP * w.columns.step * 8)
    w.columns.leaf = <int32_t*> (start + n)
    n += aligned(GROUP * w.columns.step * 4)
    w.columns.vertex = <int32_t*> (start + n)
    return n + aligned(GROUP * w.columns.step * 4)


cdef void _move_leaves(
    const Step* a, Py_ssize_t tree, const Workspace* w, const int32_t* leaf, Py_ssize_t n_samples,
    double divisor, real* weights,
) noexcept nogil:
    # Takes Adam's step of the leaves that samples reach.
    cdef Py_ssize_t n, row, n_outputs = a.forest.n_outputs
    cdef real* grad = <real*> w.row
    for n in range(n_samples):
        w.seen[leaf[n]] = 1
    for n in range(n_samples):
        if not w.seen[leaf[n]]:
            continue
        w.seen[leaf[n]] = 0
        take_row(a.path, w.by_leaf + leaf[n] * n_outputs, n_outputs, divisor, grad)
        row = tree * a.forest.n_leaves + leaf[n]
        _pass(a, &a.weights, weights, row, n_outputs, a.step - 1)
        adam_step(
            weights + row * n_outputs, grad, <real*> a.weights.m + row * n_outputs,
            <real*> a.weights.v + row * n_outputs, n_outputs, &a.adam,
        )
        a.weights.last[row] = a.step


cdef void _move_vertices(
    const Step* a, Py_ssize_t tree, const Workspace* w, const int32_t* vertex, Py_ssize_t n_samples,
    real* thresholds,
) noexcept nogil:
    # Takes Adam's step of all vertices below HF_EAGER, and of those deeper vertices that have a gradient.
    cdef Py_ssize_t n, start = tree * a.forest.n_vertices, row
    cdef real* m = <real*> a.thresholds.m
    cdef real* v = <real*> a.thresholds.v
    cdef real* eager = <real*> w.eager
    cdef real grad
    # A vertex may occur several times: the first occurrence uses its sum and sets it to 0.
    for n in range(n_samples):
        row = start + vertex[n]
        if vertex[n] < HF_EAGER:
            if w.by_vertex[vertex[n]] != 0:
                eager[vertex[n]] = <real> w.by_vertex[vertex[n]]
        elif a.thresholds.last[row] < a.step:
            grad = <real> w.by_vertex[vertex[n]]
            _pass(a, &a.thresholds, thresholds, row, 1, a.step - 1)
            adam_step(thresholds + row, &grad, m + row, v + row, 1, &a.adam)
            a.thresholds.last[row] = a.step
        w.by_vertex[vertex[n]] = 0
    adam_step(
        thresholds + start, eager, m + start, v + start,
        min(a.forest.n_vertices, <Py_ssize_t> HF_EAGER), &a.adam,
    )
    for n in range(n_samples):
        if vertex[n] < HF_EAGER:
            eager[vertex[n]] = 0


cdef void _step_group(
    const Step* a, const Gradients* g, Py_ssize_t first, unsigned char* scratch, real* slopes
) noexcept nogil:
    # Takes a step of GROUP trees, and writes the slopes (n_trees, n_samples) of the samples in them.
    cdef Py_ssize_t n = g.n_samples, n_trees = a.forest.n_trees, n_outputs = a.forest.n_outputs, j, row
    cdef Py_ssize_t count = min(<Py_ssize_t> GROUP, n_trees - first)
    cdef Workspace w
    cdef hf_visits visits
    cdef Columns columns
    cdef const int32_t* vertex
    _workspace(g, &w, scratch)
    columns = load_columns(a.path, &g.route, count, first, 0, n, &w.columns, slopes)
    visits.n, visits.n_outputs, visits.step, visits.divisor = n, n_outputs, n_outputs, g.divisor
    visits.grad_y, visits.total, visits.n_next = g.grad_y, w.by_leaf, 3
    for j in range(count):
        # Rows of the next tree are prefetched while this tree is processed.
        row = min(first + j + 1, n_trees - 1) * a.forest.n_leaves * n_outputs
        visits.next_leaf = columns.leaf + (j + 1) * columns.step if j + 1 < count else NULL
        visits.next_rows[0] = <const real*> a.forest.weights + row
        visits.next_rows[1], visits.next_rows[2] = <real*> a.weights.m + row, <real*> a.weights.v + row
        visits.leaf = visits.place = columns.leaf + j * columns.step
        visits.margin = <const real*> columns.margin + j * columns.step
        vertex = columns.vertex + j * columns.step
        visits.weights = <const real*> a.forest.weights + (first + j) * a.forest.n_leaves * n_outputs
        visit_samples(a.path, &visits, slopes + (first + j) * n)
        add_slopes(vertex, slopes + (first + j) * n, n, w.by_vertex)
        _move_leaves(a, first + j, &w, visits.leaf, n, g.divisor, <real*> a.forest.weights)
        _move_vertices(a, first + j, &w, vertex, n, <real*> a.forest.thresholds)


cdef int _step(Step* a, Gradients* g, const real* tag) except -1:
    cdef Workspace w
    cdef hf_watch no_signals
    cdef Py_ssize_t i, n_trees = a.forest.n_trees
    cdef uint64_t before
    cdef int threads = threads_for(g.n_samples * n_trees)
    cdef unsigned char[:, ::1] scratch = np.zeros((threads, _workspace(g, &w, NULL)), np.uint8)
    slope = np.empty((n_trees, g.n_samples), np.float32 if real is float else np.float64)
    g.slope = start_of(slope)
    # Steps are in place: no signal may end them early.
    hf_start_watch(&no_signals, False)
    with nogil:
        for i in prange((n_trees + GROUP - 1) // GROUP, schedule="dynamic", num_threads=threads):
            before = hf_enter_state()
            _step_group(a, g, i * GROUP, &scratch[threadid(), 0], <real*> g.slope)
            hf_leave_state(before)
        input_gradients(g, <real*> g.grad_x, threads, &no_signals)
    return 0


cdef int step_back(grad_y, route, parameters, state, step, settings, double divisor, grad_x) except -1:
    """Writes grad_x (Lay et al. 2018, eq. 11) and takes step number `step` of Adam.

    The other arguments are those of catch_up, with route IN.
    """
    cdef Step a
    cdef Gradients g
    if grad_y.shape[0] == 0:
        # Without samples, thresholds below HF_EAGER still move, as they do for a sample with zero gradient.
        n_trees, dtype = len(parameters[0]), grad_x.dtype
        widths = (grad_y.shape[1], n_trees, grad_x.shape[1])
        grad_y, margin, grad_x = (np.zeros((1, width), dtype) for width in widths)
        leaf, vertex = np.zeros((2, 1, n_trees), np.int32)
        route = leaf, margin, vertex
    _fill(&a, False, parameters, state, step, settings, bias(settings[1], step), bias(settings[2], step))
    g.forest, g.route, g.divisor, g.shared = a.forest, route_of(route), divisor, True
    g.n_samples, g.n_features = grad_x.shape
    g.grad_y, g.grad_x = start_of(grad_y), start_of(grad_x)
    if grad_x.itemsize == 4:
        return _step[float](&a, &g, NULL)
    return _step[double](&a, &g, NULL)
