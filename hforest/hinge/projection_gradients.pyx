"""Gradients with an inner product at each vertex (Lay et al. 2018, Fig. 2, eq. 11 and the chain rule), from
known routes.

Slopes and the gradients by thresholds and weights are those of backward.pyx. Then threads share the trees:
the samples of a tree are sorted by their vertex, and each row of grad_projections is the sum of the slopes
times the samples of its vertex, in float64 in the order of the samples. Last, threads share the samples,
and add the slopes times the projections to grad_x in the order of the trees. Each element is computed by
one thread.
"""

import numpy as np

from cython.parallel cimport parallel, threadid
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from hforest.core.machine cimport (
    hf_share, hf_stopped_after, hf_take, hf_watch, raise_interrupt, start_watch,
)
from hforest.hinge.backward cimport run_slopes
from hforest.hinge.forest cimport SAMPLES, aligned, real, samples_each, start_of, threads_for
from hforest.hinge.inner_products cimport products_of

cdef enum:
    TOGETHER = 8          # rows that are added in one call
    COLUMNS = 512         # of a row of projections that are summed together: L1 holds the sums
    PART = 64             # columns at least of the part of a tree that a thread takes
    PAIR = 64             # elements of a row that take as long as a pair of forest.pxd


# Workspace of a thread. `stop` is 0 between units.
cdef struct Workspace:
    double* total         # (COLUMNS,)
    int64_t* stop         # (n_vertices,)
    int64_t* order        # (n_samples,)


cdef Workspace _workspace(const LinearGradients* a, unsigned char* start) noexcept nogil:
    cdef Workspace w
    w.total = <double*> start
    w.stop = <int64_t*> (start + COLUMNS * sizeof(double))
    w.order = w.stop + a.base.forest.n_vertices
    return w


cdef void _sort_samples(const LinearGradients* a, Py_ssize_t m, const Workspace* w) noexcept nogil:
    """Writes the samples by their vertex in tree m, in their order, to order; those of v end at stop[v]."""
    cdef Py_ssize_t n_trees = a.base.forest.n_trees, n
    cdef const int32_t* vertex = a.base.route.vertex + m
    cdef int64_t count, place = 0, i
    for n in range(a.base.n_samples):
        w.stop[vertex[n * n_trees]] += 1
    for i in range(_first_row(a, m), _first_row(a, m + 1)):
        count = w.stop[_vertex_of(a, m, i)]
        w.stop[_vertex_of(a, m, i)] = place
        place += count
    for n in range(a.base.n_samples):
        w.order[w.stop[vertex[n * n_trees]]] = n
        w.stop[vertex[n * n_trees]] += 1


cdef inline int64_t _first_row(const LinearGradients* a, Py_ssize_t m) noexcept nogil:
    # Of tree m in grad_projections.
    return m * a.base.forest.n_vertices if a.base.vertex_start == NULL else a.base.vertex_start[m]


cdef inline int64_t _vertex_of(const LinearGradients* a, Py_ssize_t m, int64_t row) noexcept nogil:
    # Of a row of grad_projections in tree m.
    return (row if a.base.vertex_rows == NULL else a.base.vertex_rows[row]) - m * a.base.forest.n_vertices


cdef void _add_samples(
    const LinearGradients* a, const real* x, const real* slope, const int64_t* order, Py_ssize_t n,
    Py_ssize_t n_columns, double* total, hf_watch* watch,
) noexcept nogil:
    """Adds slope times x of n samples to total (n_columns,), or of fewer if the call has stopped.

    x      IN, (n_samples, n_features) from the first column on
    order  IN (n,), the samples
    """
    cdef Py_ssize_t i = 0, k
    cdef const void* rows[TOGETHER]
    cdef double scale[TOGETHER]
    cdef const real* row
    cdef int count, j
    cdef int64_t n_steps = 0
    while i < n:
        if hf_stopped_after(watch, &n_steps, TOGETHER * (1 + n_columns // 4)):
            return
        count = <int> min(<Py_ssize_t> TOGETHER, n - i)
        for j in range(count):
            rows[j], scale[j] = x + order[i + j] * a.base.n_features, slope[order[i + j]]
        if a.bodies != NULL:
            a.bodies.add_wide(count, rows, scale, n_columns, total)
        else:
            for j in range(count):
                row = <const real*> rows[j]
                for k in range(n_columns):
                    total[k] += scale[j] * <double> row[k]
        i += count


cdef void _project_tree(
    const LinearGradients* a, const real* x, Py_ssize_t m, Py_ssize_t first, Py_ssize_t columns,
    unsigned char* scratch, hf_watch* watch,
) noexcept nogil:
    """Writes columns first to first + columns - 1, as far as there are so many, of the rows of tree m."""
    cdef const real* slope = <const real*> a.base.slope + m * a.base.n_samples
    cdef Workspace w = _workspace(a, scratch)
    cdef real* grad
    cdef Py_ssize_t last = min(first + columns, a.base.n_features), k, at, n_columns
    cdef int64_t start = 0, i, v
    if first >= last:
        return
    _sort_samples(a, m, &w)
    for i in range(_first_row(a, m), _first_row(a, m + 1)):
        v = _vertex_of(a, m, i)
        grad = <real*> a.grad_projections + i * a.base.n_features
        if w.stop[v] == start:
            memset(grad + first, 0, (last - first) * sizeof(real))
            w.stop[v] = 0
            continue
        at = first
        while at < last:
            n_columns = min(<Py_ssize_t> COLUMNS, last - at)
            memset(w.total, 0, n_columns * sizeof(double))
            _add_samples(
                a, x + at, slope, w.order + start, w.stop[v] - start, n_columns, w.total, watch
            )
            for k in range(n_columns):
                grad[at + k] = <real> w.total[k]
            at += n_columns
        start, w.stop[v] = w.stop[v], 0


cdef void _input_sample(const LinearGradients* a, Py_ssize_t n, real* grad) noexcept nogil:
    """Writes grad (n_features,), of sample n: the slopes times the projections of their vertices."""
    cdef Py_ssize_t n_trees = a.base.forest.n_trees, n_features = a.base.n_features, m = 0, k
    cdef const real* slope = <const real*> a.base.slope + n
    cdef const real* p = <const real*> a.projections
    cdef const int32_t* vertex = a.base.route.vertex + n * n_trees
    cdef const void* rows[TOGETHER]
    cdef double scale[TOGETHER]
    cdef const real* row
    cdef int count, j
    memset(grad, 0, n_features * sizeof(real))
    while m < n_trees:
        count = <int> min(<Py_ssize_t> TOGETHER, n_trees - m)
        for j in range(count):
            rows[j] = p + ((m + j) * a.base.forest.n_vertices + vertex[m + j]) * n_features
            scale[j] = slope[(m + j) * a.base.n_samples]
        if a.bodies != NULL:
            a.bodies.add_rows(count, rows, scale, n_features, grad)
        else:
            for j in range(count):
                row = <const real*> rows[j]
                for k in range(n_features):
                    grad[k] += <real> scale[j] * row[k]
        m += count


cdef void _input_samples(
    const LinearGradients* a, Py_ssize_t first, Py_ssize_t last, hf_watch* watch, real* grad_x
) noexcept nogil:
    cdef int64_t n_steps = 0
    while first < last:
        if hf_stopped_after(watch, &n_steps, a.base.forest.n_trees * (1 + a.base.n_features // 4)):
            return
        _input_sample(a, first, grad_x + first * a.base.n_features)
        first += 1


cdef int run_linear_backward(LinearGradients a, const real* x) except -1:
    """Writes the gradients of a call of at least one sample.

    x  IN (n_samples, n_features)
    """
    cdef hf_watch watch
    cdef Py_ssize_t n = a.base.n_samples, n_trees = a.base.forest.n_trees, n_features = a.base.n_features
    cdef int threads = threads_for(n * n_trees * (1 + n_features // PAIR))
    cdef Py_ssize_t step = samples_each(n, threads, SAMPLES), parts = 1, unit = 0, block = 0
    cdef Py_ssize_t columns
    cdef unsigned char[:, ::1] scratch
    # With few trees, threads share their columns, and each sorts the samples.
    while threads > 1 and parts * n_trees < 4 * threads and n_features // (2 * parts) >= PART:
        parts *= 2
    columns = (n_features + parts - 1) // parts
    slope = np.empty((n_trees, n), np.float32 if real is float else np.float64)
    a.base.slope, a.bodies = start_of(slope), products_of(sizeof(real))
    run_slopes(a.base, x)
    n_bytes = aligned(COLUMNS * sizeof(double) + (a.base.forest.n_vertices + n) * sizeof(int64_t))
    scratch = np.zeros((threads, n_bytes), np.uint8)
    start_watch(&watch)
    with nogil:
        hf_share(&watch, n_trees * parts)
        with parallel(num_threads=threads):
            unit = hf_take(&watch)
            while unit >= 0:
                _project_tree(
                    &a, x, unit // parts, unit % parts * columns, columns, &scratch[threadid(), 0], &watch
                )
                unit = hf_take(&watch)
        hf_share(&watch, (n + step - 1) // step)
        with parallel(num_threads=threads):
            block = hf_take(&watch)
            while block >= 0:
                _input_samples(&a, block * step, min((block + 1) * step, n), &watch, <real*> a.base.grad_x)
                block = hf_take(&watch)
    return raise_interrupt(&watch)
