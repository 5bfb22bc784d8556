"""Gradients with respect to input, thresholds and weights (Lay et al. 2018, eq. 11-12), from known routes.

A thread takes a group of 16 trees and transposes their routes, so that the samples of a tree are contiguous.
In each tree, a sample adds |r| G to the sums of its leaf and writes its slope s = sgn(r) w . G, which is
subtracted from the sum of its vertex. Then threads take samples, and add the slopes to grad_x in the order of
the trees. Sums over samples run in float64 in the order of the samples; each element is computed by one
thread.

Sparse gradients of far fewer samples than leaves have sums only for the rows that samples touch, so that
their time does not depend on the number of leaves.
"""

import numpy as np

from cython.parallel cimport prange, threadid
from libc.math cimport copysign, fabs
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memset

from hforest.core.machine cimport (
    hf_begin, hf_end, hf_stopped_after, hf_units, hf_watch, raise_interrupt, simd_path, start_watch,
)
from hforest.hinge.cpu.forest cimport (
    GROUP, SAMPLES, Route, aligned, bounded, hf_fetch, real, samples_each, start_of, threads_for, transpose,
)
from hforest.hinge.cpu.windows cimport Slopes, image_gradients

cdef extern from "hinge/cpu/simd/visit.h" nogil:
    ctypedef struct hf_visitor:
        void (*visit)(const hf_visits* a, void* slope) noexcept nogil
        void (*take)(double* total, Py_ssize_t n, double divisor, void* row) noexcept nogil
    const hf_visitor* hf_visitor_of(int path, int itemsize)

cdef enum:
    FEWEST = 4            # least number of outputs for vector bodies, which also take 1
    LANES = 8             # partial sums of w . G: element k is added to lane k % LANES
    AHEAD = 8             # trees between the prefetch of their slopes and their use
    TILE = 64             # samples whose slopes are read together, a multiple of SAMPLES
    STRETCH = 1024        # samples whose routes in a group are transposed together: fits in L2
    LEAVES_EACH = 4       # leaves per sample, above which only touched ones may have sums
    MAX_SUMS = 1 << 13    # sums per tree, up to which those of a group stay in L2
    MANY_SUMS = 1 << 16   # sums per tree, above which those of touched rows alone are faster


# How a call is executed. With one stretch of samples a tree is finished before the next, which uses the same
# sums; with several stretches, each tree of a group has its own sums.
cdef struct Plan:
    int path, threads, workers
    Py_ssize_t group, stretch, step, n_sets, n_leaves, n_sums, bytes
    int bits              # of a number of `table`; 0: all leaves have sums
    hf_watch* watch


# Workspace of one thread. Sums and marks are 0 between trees.
cdef struct Workspace:
    double* sums          # (n_sets, n_sums): plan.n_leaves rows of leaves, then those of vertices
    Columns columns       # routes of `stretch` samples
    unsigned char* seen   # (n_leaves,); as the next ones NULL where it is not used
    int32_t* table        # (2**bits,)
    int32_t* leaf_place   # (n_samples,)
    int32_t* vertex_place


cdef Columns load_columns(
    int path, const Route* route, Py_ssize_t count, Py_ssize_t first, Py_ssize_t start, Py_ssize_t n,
    const Columns* workspace, const real* tag,
) noexcept nogil:
    """Returns the routes of n samples from `start` on in `count` trees from `first` on.

    They are in the route itself if the samples of a tree are contiguous there, else in the workspace.
    """
    cdef Columns columns = workspace[0]
    cdef Py_ssize_t at = start * route.sample_step + first * route.tree_step, step = route.sample_step
    if step == 1:
        columns.leaf, columns.vertex, columns.step = route.leaf + at, route.vertex + at, route.tree_step
        columns.margin = <real*> route.margin + at
        return columns
    transpose(path, route.leaf + at, step, n, count, columns.leaf, columns.step)
    transpose(path, route.vertex + at, step, n, count, columns.vertex, columns.step)
    transpose(path, <const real*> route.margin + at, step, n, count, <real*> columns.margin, columns.step)
    return columns


cdef inline double _signed(double s, double r) noexcept nogil:
    """Returns sgn(r) s, with sgn(0) = 0."""
    return s * copysign(1.0, r) if r != 0 else 0.0


cdef void _prefetch_next(const hf_visits* a, Py_ssize_t n, Py_ssize_t row_bytes) noexcept nogil:
    # Prefetches the rows that the next tree reads of the leaf of sample n.
    cdef int i
    for i in range(a.n_next):
        hf_fetch(<const char*> a.next_rows[i] + a.next_leaf[n] * row_bytes, row_bytes)


cdef void _visit_single(const hf_visits* a, real* slope) noexcept nogil:
    # One output. Adding +0 gives the sign of zero that a dot product of several outputs has.
    cdef const real* margin = <const real*> a.margin
    cdef const real* g = <const real*> a.grad_y
    cdef const real* w = <const real*> a.weights
    cdef const int32_t* leaf = a.leaf
    cdef const int32_t* place = a.place
    cdef double* total = a.total
    cdef Py_ssize_t n, step = a.step
    cdef double grad, r, divisor = a.divisor
    for n in range(a.n):
        if a.next_leaf != NULL:
            _prefetch_next(a, n, sizeof(real))
        grad, r = g[n * step], margin[n]
        total[place[n]] += fabs(r) * grad
        slope[n] = <real> _signed((<double> w[leaf[n]] * grad + 0.0) / divisor, r)


cdef void visit_samples(int path, const hf_visits* a, real* slope) noexcept nogil:
    """Adds |r| G to the sums of the leaves (eq. 12), and writes slope (n,) = sgn(r) w . G / divisor (eq. 11).

    The dot product has eight partial sums, which are added in a fixed order.
    """
    cdef Py_ssize_t n_outputs = a.n_outputs, n, k, i
    cdef const real* margin = <const real*> a.margin
    cdef const real* g = <const real*> a.grad_y
    cdef const real* w
    cdef double* total
    cdef double lane[LANES]
    cdef double r, dot
    cdef const hf_visitor* bodies = NULL
    if n_outputs >= FEWEST or (n_outputs == 1 and a.step == 1):
        bodies = hf_visitor_of(path, sizeof(real))
    if bodies != NULL:
        bodies.visit(a, slope)
        return
    if n_outputs == 1:
        _visit_single(a, slope)
        return
    for n in range(a.n):
        if a.next_leaf != NULL:
            _prefetch_next(a, n, n_outputs * sizeof(real))
        r = margin[n]
        w = <const real*> a.weights + a.leaf[n] * n_outputs
        total = a.total + a.place[n] * n_outputs
        for i in range(LANES):
            lane[i] = 0
        k = 0
        while k + LANES <= n_outputs:
            for i in range(LANES):
                lane[i] += <double> w[k + i] * <double> g[k + i]
            k += LANES
        for i in range(n_outputs - k):
            lane[i] += <double> w[k + i] * <double> g[k + i]
        for k in range(n_outputs):
            total[k] += fabs(r) * <double> g[k]
        dot = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]))
        slope[n] = <real> _signed(dot / a.divisor, r)
        g += a.step


cdef void add_slopes(const int32_t* vertex, const real* slope, Py_ssize_t n, double* total) noexcept nogil:
    """Subtracts the slopes from the sums of their vertices (eq. 11: dr/dt = -1)."""
    cdef Py_ssize_t i
    for i in range(n):
        total[vertex[i]] -= slope[i]


cdef void take_row(
    int path, double* total, Py_ssize_t n_outputs, double divisor, real* row
) noexcept nogil:
    """Writes row (n_outputs,) = total / divisor, and sets total to 0 for the next tree."""
    cdef Py_ssize_t k
    cdef const hf_visitor* bodies = hf_visitor_of(path, sizeof(real)) if n_outputs >= FEWEST else NULL
    if bodies != NULL:
        bodies.take(total, n_outputs, divisor, row)
        return
    # The division is the most expensive operation here, and most divisors are 1.
    if divisor == 1:
        for k in range(n_outputs):
            row[k] = <real> total[k]
            total[k] = 0
    else:
        for k in range(n_outputs):
            row[k] = <real> (total[k] / divisor)
            total[k] = 0


cdef void _take_all(
    double* total, const int32_t* index, Py_ssize_t n, Py_ssize_t n_rows, Py_ssize_t n_outputs,
    double divisor, unsigned char* seen, real* grad, int path,
) noexcept nogil:
    # Writes the dense gradients (n_rows, n_outputs) of a tree. With few samples most rows are 0, and only
    # those that samples reach are read.
    cdef Py_ssize_t i, at
    if n_rows <= 2 * n:
        take_row(path, total, n_rows * n_outputs, divisor, grad)
        return
    memset(grad, 0, n_rows * n_outputs * sizeof(real))
    for i in range(n):
        seen[index[i]] = 1
    for i in range(n):
        at = index[i]
        if seen[at]:
            seen[at] = 0
            take_row(path, total + at * n_outputs, n_outputs, divisor, grad + at * n_outputs)


cdef inline uint32_t _hashed(int64_t row, int bits) noexcept nogil:
    # Returns a number of `bits` bits: row times 2**32 over the golden ratio, its highest bits.
    return <uint32_t> (<uint32_t> row * <uint32_t> 0x9E3779B9) >> (32 - bits)


cdef void _find_places(
    const int64_t* rows, Py_ssize_t n_rows, int64_t first, const int32_t* index, Py_ssize_t n, int32_t* table,
    int bits, int32_t* place,
) noexcept nogil:
    # Writes the places (n,) of first + index (n,) among distinct rows (n_rows,), by a hash table (2**bits,)
    # of at least twice as many entries. A number that is not there gets some place.
    cdef uint32_t mask = (<uint32_t> 1 << bits) - 1, at
    cdef Py_ssize_t i
    memset(table, 255, sizeof(int32_t) << bits)
    for i in range(n_rows):
        at = _hashed(rows[i] - first, bits)
        while table[at] >= 0:
            at = (at + 1) & mask
        table[at] = <int32_t> i
    for i in range(n):
        at = _hashed(index[i], bits)
        while table[at] >= 0 and rows[table[at]] != first + index[i]:
            at = (at + 1) & mask
        place[i] = max(table[at], 0)


cdef void _take_some(
    double* total, const int64_t* start, const int64_t* rows, Py_ssize_t first, Py_ssize_t n_outputs,
    double divisor, real* grad, int path,
) noexcept nogil:
    # Writes the gradients at rows start[0]:start[1] of a tree whose first row is number `first`.
    cdef int64_t i
    for i in range(start[0], start[1]):
        take_row(path, total + (rows[i] - first) * n_outputs, n_outputs, divisor, grad + i * n_outputs)


cdef void _take_tree(
    const Gradients* a, const Plan* plan, Py_ssize_t m, const Workspace* w, double* sums, const int32_t* leaf,
    const int32_t* vertex, Py_ssize_t n, real* by_leaf,
) noexcept nogil:
    # Writes the gradients of tree m; by_leaf is a.grad_weights.
    cdef Py_ssize_t n_leaves = a.forest.n_leaves, n_vertices = a.forest.n_vertices
    cdef Py_ssize_t n_outputs = a.forest.n_outputs
    cdef double* by_vertex = sums + plan.n_leaves * n_outputs
    cdef real* grad_thresholds = <real*> a.grad_thresholds
    cdef const int64_t* of_leaf = a.leaf_start + m
    cdef const int64_t* of_vertex = a.vertex_start + m
    cdef int path = plan.path
    if a.leaf_rows == NULL:
        _take_all(
            sums, leaf, n, n_leaves, n_outputs, a.divisor, w.seen, by_leaf + m * n_leaves * n_outputs, path
        )
        _take_all(
            by_vertex, vertex, n, n_vertices, 1, 1, w.seen, grad_thresholds + m * n_vertices, path
        )
        return
    if plan.bits:
        take_row(
            path, sums, (of_leaf[1] - of_leaf[0]) * n_outputs, a.divisor, by_leaf + of_leaf[0] * n_outputs
        )
        take_row(path, by_vertex, of_vertex[1] - of_vertex[0], 1, grad_thresholds + of_vertex[0])
        return
    _take_some(sums, of_leaf, a.leaf_rows, m * n_leaves, n_outputs, a.divisor, by_leaf, path)
    _take_some(by_vertex, of_vertex, a.vertex_rows, m * n_vertices, 1, 1, grad_thresholds, path)


cdef void _run_group(
    const Gradients* a, const Plan* plan, Py_ssize_t first, const Workspace* w, real* slopes,
) noexcept nogil:
    # Writes the gradients of the parameters of a group of trees, and their slopes (n_trees, n_samples).
    cdef Py_ssize_t n_samples = a.n_samples, n_trees = a.forest.n_trees, n_outputs = a.forest.n_outputs
    cdef Py_ssize_t count = min(plan.group, n_trees - first), start = 0, n, j, m
    cdef Columns columns
    cdef double* sums
    cdef const int32_t* vertex
    cdef const int32_t* vertex_place
    cdef const int64_t* rows
    cdef int64_t n_steps = 0
    cdef hf_visits visits
    visits.n_outputs, visits.divisor, visits.n_next = n_outputs, a.divisor, 1
    visits.step = n_outputs if a.shared else n_trees * n_outputs
    while start < n_samples:
        n = min(plan.stretch, n_samples - start)
        columns = load_columns(plan.path, &a.route, count, first, start, n, &w.columns, slopes)
        visits.n = n
        for j in range(count):
            if hf_stopped_after(plan.watch, &n_steps, n * (n_outputs // 4 + 1)):
                return
            m = first + j
            sums = w.sums + (j if plan.n_sets > 1 else 0) * plan.n_sums
            visits.leaf = visits.place = columns.leaf + j * columns.step
            vertex = vertex_place = columns.vertex + j * columns.step
            if plan.bits:
                rows = a.leaf_start + m
                _find_places(
                    a.leaf_rows + rows[0], rows[1] - rows[0], m * a.forest.n_leaves, visits.leaf, n, w.table,
                    plan.bits, w.leaf_place,
                )
                rows = a.vertex_start + m
                _find_places(
                    a.vertex_rows + rows[0], rows[1] - rows[0], m * a.forest.n_vertices, vertex, n, w.table,
                    plan.bits, w.vertex_place,
                )
                visits.place, vertex_place = w.leaf_place, w.vertex_place
            visits.margin = <const real*> columns.margin + j * columns.step
            visits.grad_y = <const real*> a.grad_y + start * visits.step + (0 if a.shared else m * n_outputs)
            visits.weights = <const real*> a.forest.weights + m * a.forest.n_leaves * n_outputs
            visits.total = sums
            # Rows of the next tree are prefetched only if the samples read less than all of them.
            visits.next_leaf = NULL
            if j + 1 < count and n < a.forest.n_leaves:
                visits.next_leaf = visits.leaf + columns.step
                visits.next_rows[0] = <const real*> visits.weights + a.forest.n_leaves * n_outputs
            visit_samples(plan.path, &visits, slopes + m * n_samples + start)
            add_slopes(
                vertex_place, slopes + m * n_samples + start, n, sums + plan.n_leaves * n_outputs
            )
            if start + n == n_samples:
                # After several stretches there are more samples than leaves: columns need not hold them all.
                _take_tree(a, plan, m, w, sums, visits.leaf, vertex, n, <real*> a.grad_weights)
        start += n


cdef void _input_tile(const Gradients* a, real* grad_x, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    # Writes grad_x of samples first to last - 1, whose slopes share cache lines.
    cdef Py_ssize_t n_trees = a.forest.n_trees, n_vertices = a.forest.n_vertices, n, m
    cdef const real* slope = <const real*> a.slope
    cdef const int32_t* features = a.forest.features
    cdef const int32_t* vertex = a.route.vertex
    cdef Py_ssize_t sample_step = a.route.sample_step, tree_step = a.route.tree_step
    cdef uint32_t f
    memset(grad_x + first * a.n_features, 0, (last - first) * a.n_features * sizeof(real))
    for m in range(n_trees):
        if m + AHEAD < n_trees:
            hf_fetch(slope + AHEAD * a.n_samples + first, (last - first) * sizeof(real))
            if sample_step == 1:
                hf_fetch(vertex + (m + AHEAD) * tree_step + first, (last - first) * sizeof(int32_t))
        for n in range(first, last):
            f = bounded(features[vertex[n * sample_step + m * tree_step]], a.n_features)
            grad_x[n * a.n_features + f] += slope[n]
        slope += a.n_samples
        features += n_vertices


cdef void _input_tiles(const Gradients* a, real* grad_x, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    while first < last:
        _input_tile(a, grad_x, first, min(first + TILE, last))
        first += TILE


cdef void input_gradients(const Gradients* a, real* grad_x, int threads, hf_watch* watch) noexcept nogil:
    """Writes grad_x (n_samples, n_features): the slopes at the features of their vertices (eq. 11)."""
    cdef Py_ssize_t step = samples_each(a.n_samples, threads, SAMPLES), block
    cdef Py_ssize_t n_blocks = (a.n_samples + step - 1) // step
    for block in prange(hf_units(watch, n_blocks, threads), schedule="dynamic", num_threads=threads):
        if hf_begin(watch, block):
            _input_tiles(a, grad_x, block * step, min((block + 1) * step, a.n_samples))
            hf_end(watch)


cdef Plan _plan(const Gradients* a) noexcept nogil:
    cdef Plan plan
    cdef Py_ssize_t n_trees = a.forest.n_trees, n_leaves = a.forest.n_leaves
    plan.path, plan.threads, plan.group = simd_path(), threads_for(a.n_samples * n_trees), GROUP
    plan.watch = NULL
    # Transposing is by far fastest in whole groups; with few trees, smaller groups balance the work better.
    while plan.group > 4 and n_trees < 3 * plan.threads * plan.group and plan.threads > 1:
        plan.group //= 2
    # Threads without a group get no workspace.
    plan.workers = <int> min(<Py_ssize_t> plan.threads, (n_trees + plan.group - 1) // plan.group)
    plan.n_leaves, plan.n_sums = n_leaves, n_leaves * a.forest.n_outputs + a.forest.n_vertices
    plan.bits = 0
    if a.leaf_rows != NULL and plan.n_sums > MANY_SUMS and LEAVES_EACH * a.n_samples < n_leaves:
        plan.n_leaves, plan.n_sums = a.n_samples, a.n_samples * (a.forest.n_outputs + 1)
        plan.bits = 1
        while <Py_ssize_t> 1 << plan.bits < 2 * a.n_samples:
            plan.bits += 1
    # With many samples, routes are transposed one stretch at a time, so that they stay in L2. This pays only
    # if the sums of a group, which the next stretch uses again, stay in L2 too.
    plan.stretch = max(<Py_ssize_t> STRETCH, n_leaves)
    if plan.stretch >= a.n_samples or plan.n_sums > MAX_SUMS:
        plan.stretch = a.n_samples
    plan.n_sets = GROUP if plan.stretch < a.n_samples else 1
    plan.step = column_step(&a.route, plan.stretch)
    plan.bytes = aligned(plan.n_sets * plan.n_sums * 8)
    plan.bytes += 2 * aligned(GROUP * plan.step * 4) + aligned(GROUP * plan.step * 8)
    if plan.bits:
        plan.bytes += aligned(4 << plan.bits) + 2 * aligned(4 * a.n_samples)
    else:
        plan.bytes += aligned(n_leaves)
    return plan


cdef Workspace _workspace(const Plan* plan, unsigned char* start) noexcept nogil:
    cdef Workspace w
    cdef Py_ssize_t size = aligned(GROUP * plan.step * 4)
    w.columns.step = plan.step
    w.sums = <double*> start
    start += aligned(plan.n_sets * plan.n_sums * 8)
    w.columns.leaf, w.columns.vertex = <int32_t*> start, <int32_t*> (start + size)
    w.columns.margin = start + 2 * size
    start += 2 * size + aligned(GROUP * plan.step * 8)
    w.seen, w.table, w.leaf_place, w.vertex_place = start, NULL, NULL, NULL
    if plan.bits:
        w.seen, w.table = NULL, <int32_t*> start
        start += aligned(4 << plan.bits)
        w.leaf_place, w.vertex_place = <int32_t*> start, <int32_t*> (start + aligned(4 * plan.n_leaves))
    return w


cdef void _run_groups(
    const Gradients* a, const Plan* plan, Py_ssize_t unit, unsigned char* scratch, real* slopes
) noexcept nogil:
    cdef Workspace w = _workspace(plan, scratch)
    _run_group(a, plan, unit * plan.group, &w, slopes)


cdef int run_slopes(Gradients a, const real* tag) except -1:
    """Writes the slopes and the gradients of thresholds and weights; the call has at least one sample."""
    cdef Plan plan = _plan(&a)
    cdef hf_watch watch
    cdef Py_ssize_t unit, n_units = (a.forest.n_trees + plan.group - 1) // plan.group
    cdef unsigned char[:, ::1] scratch = np.zeros((plan.workers, plan.bytes), np.uint8)
    plan.watch = &watch
    start_watch(&watch)
    with nogil:
        for unit in prange(
            hf_units(&watch, n_units, plan.workers), schedule="dynamic", num_threads=plan.workers
        ):
            if hf_begin(&watch, unit):
                _run_groups(&a, &plan, unit, &scratch[threadid(), 0], <real*> a.slope)
                hf_end(&watch)
    return raise_interrupt(&watch)


cdef int run_backward(Gradients a, const real* tag) except -1:
    """Writes all gradients of a call of at least one sample; `tag` selects float or double."""
    cdef int threads = threads_for(a.n_samples * a.forest.n_trees)
    cdef Slopes slopes
    cdef hf_watch watch
    slope = np.empty((a.forest.n_trees, a.n_samples), np.float32 if real is float else np.float64)
    a.slope = start_of(slope)
    run_slopes(a, tag)
    start_watch(&watch)
    if a.windowed:
        slopes.n_trees, slopes.n_vertices = a.forest.n_trees, a.forest.n_vertices
        slopes.n_samples, slopes.slope = a.n_samples, a.slope
        slopes.features, slopes.vertex = a.forest.features, a.route.vertex
        slopes.sample_step, slopes.tree_step = a.route.sample_step, a.route.tree_step
        image_gradients(&a.windows, &slopes, <real*> a.grad_x, simd_path(), threads, &watch)
    else:
        with nogil:
            input_gradients(&a, <real*> a.grad_x, threads, &watch)
    return raise_interrupt(&watch)
