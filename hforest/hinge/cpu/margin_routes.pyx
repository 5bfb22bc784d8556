"""Routing by a margin that is known only as a table of functions (margin.h; Lay et al. 2018, Alg. 3).

A unit of work is a block of samples and a group of trees. All samples of the block pass one tree before the
next, so that the samples and the top levels of the tree stay in cache. Margins are computed only at the
vertices on the path of a sample.
"""

import numpy as np

from cython.parallel cimport prange, threadid
from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t

from hforest.core.machine cimport (
    hf_begin, hf_end, hf_stopped_after, hf_units, hf_watch, raise_interrupt, start_watch,
)
from hforest.hinge.cpu.forest cimport GROUP, forest_of, real, route_of, start_of, threads_for
from hforest.hinge.cpu.projection cimport projection_margin
from hforest.hinge.cpu.windows cimport fill_rows, windows_of

cdef enum:
    TOGETHER = 8          # samples at one level of a tree, whose margins are independent of each other
    MAX_BLOCK = 256       # samples per block at most: a tree is read once per block
    BLOCK_BYTES = 1 << 20  # input of a block at most, unless 64 samples need more: fits in L2
    PAIR = 64             # elements of features whose cost equals that of a pair in forest.pxd


cdef const hf_margin* _body_of(str margin, int itemsize) except NULL:
    if margin == "projection":
        return projection_margin(itemsize)
    raise ValueError(f"margin: expected one with a body, got {margin!r}; name it here")


cdef void _route_some(
    const MarginCall* call, const real* x, Py_ssize_t m, Py_ssize_t first, int count
) noexcept nogil:
    """Writes the routes of samples first to first + count - 1, at most TOGETHER, in tree m.

    x  IN (count, n_columns)
    """
    cdef Py_ssize_t n_vertices = call.forest.n_vertices, at
    cdef const real* t = <const real*> call.forest.thresholds + m * n_vertices
    cdef const char* features = call.features + m * n_vertices * call.row_bytes
    cdef const void* samples[TOGETHER]
    cdef const void* rows[TOGETHER]
    cdef double value[TOGETHER]
    cdef real lowest[TOGETHER]
    cdef int32_t v[TOGETHER]
    cdef int32_t nearest[TOGETHER]
    cdef int32_t leaf[TOGETHER]
    cdef real r
    cdef int level, right, closer, i
    for i in range(count):
        samples[i] = x + i * call.n_columns
        v[i] = nearest[i] = leaf[i] = 0
        lowest[i] = 0
    for level in range(call.forest.depth):
        for i in range(count):
            rows[i] = features + v[i] * call.row_bytes
        call.body.values(count, rows, samples, call.n_columns, value)
        for i in range(count):
            r = <real> value[i] - t[v[i]]
            right = r > 0
            # Strict comparison: of equal margins, the one nearest the root is kept.
            closer = level == 0 or fabs(r) < fabs(lowest[i])
            lowest[i] = r if closer else lowest[i]
            nearest[i] = v[i] if closer else nearest[i]
            leaf[i] = 2 * leaf[i] + right
            v[i] = v[i] + 1 if call.forest.fern else 2 * v[i] + right + 1
    for i in range(count):
        at = (first + i) * call.route.sample_step + m * call.route.tree_step
        call.route.leaf[at], call.route.vertex[at] = leaf[i], nearest[i]
        (<real*> call.route.margin)[at] = lowest[i]


cdef MarginCall margin_call(str margin, bint fern, x, thresholds, features, weights, route, windows, taps):
    """Returns the struct of the arrays; windows, taps, and one of thresholds and weights may be None."""
    cdef MarginCall call
    call.forest = forest_of(fern, thresholds, None, weights)
    call.forest.n_trees, call.forest.n_vertices = features.shape[:2]
    call.forest.depth = (
        call.forest.n_vertices if fern else (features.shape[1] + 1).bit_length() - 1
    )
    call.route, call.body = route_of(route), _body_of(margin, x.itemsize)
    call.features, call.row_bytes = <const char*> start_of(features), features[0, 0].nbytes
    call.n_samples, call.n_columns, call.windowed = x.shape[0], x.shape[1], windows is not None
    if call.windowed:
        call.windows = windows_of(windows, call.n_samples, taps)
        call.n_samples, call.n_columns = call.n_samples * windows.n_positions, taps.shape[0]
    return call


cdef int route_margin(MarginCall call, const real* x) except -1:
    """Writes the routes of all samples of a call.

    x  IN (n_samples, n_columns), or images
    """
    cdef hf_watch watch
    cdef Py_ssize_t row = call.n_columns * sizeof(real), n = call.n_samples, n_trees = call.forest.n_trees
    cdef Py_ssize_t cost = call.forest.depth * (1 + call.row_bytes // (PAIR * sizeof(real))), group = GROUP
    cdef Py_ssize_t block = min(<Py_ssize_t> MAX_BLOCK, max(<Py_ssize_t> 64, BLOCK_BYTES // row))
    cdef int threads = threads_for(n * n_trees * cost)
    cdef Py_ssize_t n_blocks = (n + block - 1) // block, n_groups, n_units, unit
    cdef real[:, ::1] rows
    # Adjacent trees share cache lines of the result; with few blocks, smaller groups balance the work better.
    while group > 1 and n_blocks * (n_trees // group) < 4 * threads and threads > 1:
        group //= 2
    n_groups = (n_trees + group - 1) // group
    row = block * call.n_columns if call.windowed else 1
    rows = np.empty((threads, row), np.float32 if real is float else np.float64)
    start_watch(&watch)
    n_units = hf_units(&watch, n_blocks * n_groups, threads)
    for unit in prange(n_units, schedule="dynamic", num_threads=threads, nogil=True):
        if hf_begin(&watch, unit):
            _route_unit(
                &call, x, unit // n_groups * block, block, unit % n_groups * group, group,
                &rows[threadid(), 0], &watch,
            )
            hf_end(&watch)
    return raise_interrupt(&watch)


cdef void _route_unit(
    const MarginCall* call, const real* x, Py_ssize_t first, Py_ssize_t block, Py_ssize_t m,
    Py_ssize_t group, real* rows, hf_watch* watch,
) noexcept nogil:
    # Routes samples first to first + block - 1, as far as they exist, in trees m to m + group - 1.
    # rows (block, n_columns) is the workspace for the windows of images.
    cdef Py_ssize_t count = min(block, call.n_samples - first), stop = min(m + group, call.forest.n_trees), n
    cdef int64_t n_steps = 0
    if call.windowed:
        fill_rows(&call.windows, x, first, count, rows)
        x = rows
    else:
        x += first * call.n_columns
    while m < stop:
        if hf_stopped_after(watch, &n_steps, count * call.forest.depth * (1 + call.n_columns // 4)):
            return
        n = 0
        while n < count:
            _route_some(
                call, x + n * call.n_columns, m, first + n, <int> min(<Py_ssize_t> TOGETHER, count - n)
            )
            n += TOGETHER
        m += 1
