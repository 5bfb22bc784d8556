"""Gradients with a margin that is known only as a table of functions (margin.h; Lay et al. 2018, eq. 11).

Slopes and the gradients with respect to thresholds and weights are those of gradients.pyx. Then threads share
the trees: the samples of a tree are sorted by vertex, and each row of grad_features is the sum of slope times
dr/df over the samples of its vertex, in float64 in the order of the samples. Last, threads share the samples,
and add slope times dr/dx to grad_x in the order of the trees. For images, each thread takes whole images and
sums in float64. Each element is computed by one thread.
"""

import numpy as np

from cython.parallel cimport prange, threadid
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from hforest.core.machine cimport (
    hf_begin, hf_end, hf_stopped_after, hf_units, hf_watch, raise_interrupt, start_watch,
)
from hforest.hinge.cpu.gradients cimport run_slopes
from hforest.hinge.cpu.forest cimport SAMPLES, aligned, real, samples_each, start_of, threads_for
from hforest.hinge.cpu.windows cimport add_row, fill_rows

cdef enum:
    TOGETHER = 8          # samples or vertices that a function of the margin takes per call
    ELEMENTS = 512        # elements of a row of features that are summed together: L1 holds the sums
    PART = 64             # least number of elements per row when threads share the rows of a tree
    PAIR = 64             # elements of a row whose cost equals that of a pair in forest.pxd


# Workspace of one thread. `stop` is 0 between units of work.
cdef struct Workspace:
    double* total         # (ELEMENTS,)
    int64_t* stop         # (n_vertices,)
    int64_t* order        # (n_samples,)
    char* rows            # (TOGETHER, n_columns) real, of windows


cdef Workspace _workspace(const MarginGradients* a, unsigned char* start) noexcept nogil:
    cdef Workspace w
    w.total = <double*> start
    w.stop = <int64_t*> (start + ELEMENTS * sizeof(double))
    w.order = w.stop + a.base.forest.n_vertices
    w.rows = <char*> (w.order + a.base.n_samples)
    return w


cdef void _sort_samples(const MarginGradients* a, Py_ssize_t m, const Workspace* w) noexcept nogil:
    """Writes the samples to `order`, sorted by their vertex in tree m; those of vertex v end at stop[v]."""
    cdef Py_ssize_t step = a.base.route.sample_step, n
    cdef const int32_t* vertex = a.base.route.vertex + m * a.base.route.tree_step
    cdef int64_t count, place = 0, i
    for n in range(a.base.n_samples):
        w.stop[vertex[n * step]] += 1
    for i in range(_first_row(a, m), _first_row(a, m + 1)):
        count = w.stop[_vertex_of(a, m, i)]
        w.stop[_vertex_of(a, m, i)] = place
        place += count
    for n in range(a.base.n_samples):
        w.order[w.stop[vertex[n * step]]] = n
        w.stop[vertex[n * step]] += 1


cdef inline int64_t _first_row(const MarginGradients* a, Py_ssize_t m) noexcept nogil:
    # Returns the first row of tree m in grad_features.
    return m * a.base.forest.n_vertices if a.base.vertex_start == NULL else a.base.vertex_start[m]


cdef inline int64_t _vertex_of(const MarginGradients* a, Py_ssize_t m, int64_t row) noexcept nogil:
    # Returns the vertex of a row of grad_features in tree m.
    return (row if a.base.vertex_rows == NULL else a.base.vertex_rows[row]) - m * a.base.forest.n_vertices


cdef void _add_samples(
    const MarginGradients* a, const real* x, const char* features, const real* slope, const int64_t* order,
    Py_ssize_t n, Py_ssize_t first, Py_ssize_t count, const Workspace* w, hf_watch* watch,
) noexcept nogil:
    """Adds slope dr/df of n samples of a vertex to w.total, elements first to first + count - 1 of its row.

    It adds fewer samples if the call has stopped.

    x      IN (n_samples, n_columns), or images
    order  IN (n,), the samples
    """
    cdef Py_ssize_t i = 0, j
    cdef const void* samples[TOGETHER]
    cdef double scale[TOGETHER]
    cdef real* row
    cdef int together
    cdef int64_t n_steps = 0
    while i < n:
        if hf_stopped_after(watch, &n_steps, TOGETHER * (1 + count // 4)):
            return
        together = <int> min(<Py_ssize_t> TOGETHER, n - i)
        for j in range(together):
            scale[j] = slope[order[i + j]]
            samples[j] = x + order[i + j] * a.n_columns
            if a.base.windowed:
                row = <real*> w.rows + j * a.n_columns
                fill_rows(&a.base.windows, x, order[i + j], 1, row)
                samples[j] = row
        a.body.pull_features(together, samples, features, scale, first, count, w.total)
        i += together


cdef void _pull_tree(
    const MarginGradients* a, const real* x, Py_ssize_t m, Py_ssize_t first, Py_ssize_t elements,
    unsigned char* scratch, hf_watch* watch,
) noexcept nogil:
    """Writes elements first to first + elements - 1, as far as they exist, of the rows of tree m."""
    cdef const real* slope = <const real*> a.base.slope + m * a.base.n_samples
    cdef const char* features
    cdef Workspace w = _workspace(a, scratch)
    cdef real* grad
    cdef Py_ssize_t last = min(first + elements, a.width), k, at, count
    cdef int64_t start = 0, i, v
    if first >= last:
        return
    _sort_samples(a, m, &w)
    for i in range(_first_row(a, m), _first_row(a, m + 1)):
        v = _vertex_of(a, m, i)
        features = a.features + (m * a.base.forest.n_vertices + v) * a.row_bytes
        grad = <real*> a.grad_features + i * a.width
        if w.stop[v] == start:
            memset(grad + first, 0, (last - first) * sizeof(real))
            w.stop[v] = 0
            continue
        at = first
        while at < last:
            count = min(<Py_ssize_t> ELEMENTS, last - at)
            memset(w.total, 0, count * sizeof(double))
            _add_samples(
                a, x, features, slope, w.order + start, w.stop[v] - start, at, count, &w, watch
            )
            for k in range(count):
                grad[at + k] = <real> w.total[k]
            at += count
        start, w.stop[v] = w.stop[v], 0


cdef void _pull_sample(const MarginGradients* a, Py_ssize_t n, const real* sample, real* grad) noexcept nogil:
    """Writes grad (n_columns,): the sum of slope dr/dx of sample n, in the order of the trees."""
    cdef Py_ssize_t n_trees = a.base.forest.n_trees, m = 0
    cdef const real* slope = <const real*> a.base.slope + n
    cdef const int32_t* vertex = a.base.route.vertex + n * a.base.route.sample_step
    cdef Py_ssize_t step = a.base.route.tree_step
    cdef const void* rows[TOGETHER]
    cdef double scale[TOGETHER]
    cdef int count, j
    memset(grad, 0, a.n_columns * sizeof(real))
    while m < n_trees:
        count = <int> min(<Py_ssize_t> TOGETHER, n_trees - m)
        for j in range(count):
            rows[j] = a.features + ((m + j) * a.base.forest.n_vertices + vertex[(m + j) * step]) * a.row_bytes
            scale[j] = slope[(m + j) * a.base.n_samples]
        a.body.pull_x(count, rows, sample, scale, a.n_columns, grad)
        m += count


cdef void _pull_samples(
    const MarginGradients* a, const real* x, Py_ssize_t first, Py_ssize_t last, hf_watch* watch, real* grad_x
) noexcept nogil:
    cdef int64_t n_steps = 0
    while first < last:
        if hf_stopped_after(watch, &n_steps, a.base.forest.n_trees * (1 + a.n_columns // 4)):
            return
        _pull_sample(a, first, x + first * a.n_columns, grad_x + first * a.n_columns)
        first += 1


cdef void _pull_image(
    const MarginGradients* a, const real* x, Py_ssize_t image, unsigned char* scratch, hf_watch* watch,
    real* grad_x,
) noexcept nogil:
    """Writes grad_x of an image: a sum over windows, trees and columns, in that order."""
    cdef Py_ssize_t n_trees = a.base.forest.n_trees, n_vertices = a.base.forest.n_vertices
    cdef Py_ssize_t positions = a.base.n_samples // a.base.windows.n_images, n = image * positions, m, at, v
    cdef double* total = <double*> scratch
    cdef real* sample = <real*> (total + a.base.windows.image)
    cdef real* pulled = sample + a.n_columns
    cdef const void* row
    cdef double slope
    cdef int64_t n_steps = 0
    memset(total, 0, a.base.windows.image * sizeof(double))
    for n in range(n, n + positions):
        if hf_stopped_after(watch, &n_steps, n_trees * (1 + a.n_columns)):
            return
        fill_rows(&a.base.windows, x, n, 1, sample)
        for m in range(n_trees):
            v = a.base.route.vertex[n * a.base.route.sample_step + m * a.base.route.tree_step]
            row = a.features + (m * n_vertices + v) * a.row_bytes
            slope = (<const real*> a.base.slope)[m * a.base.n_samples + n]
            memset(pulled, 0, a.n_columns * sizeof(real))
            a.body.pull_x(1, &row, sample, &slope, a.n_columns, pulled)
            add_row(&a.base.windows, n, pulled, total)
    grad_x += image * a.base.windows.image
    for at in range(a.base.windows.image):
        grad_x[at] = <real> total[at]


cdef int _run_features(MarginGradients* a, const real* x, int threads) except -1:
    # Writes the gradient with respect to features.
    cdef hf_watch watch
    cdef Py_ssize_t n_trees = a.base.forest.n_trees, parts = 1, unit, n_units, elements, n_bytes
    cdef unsigned char[:, ::1] scratch
    # With few trees, several threads share the rows of a tree, and each sorts the samples.
    while threads > 1 and parts * n_trees < 4 * threads and a.width // (2 * parts) >= PART:
        parts *= 2
    elements = (a.width + parts - 1) // parts
    n_bytes = ELEMENTS * sizeof(double) + (a.base.forest.n_vertices + a.base.n_samples) * sizeof(int64_t)
    if a.base.windowed:
        n_bytes += TOGETHER * a.n_columns * sizeof(real)
    scratch = np.zeros((threads, aligned(n_bytes)), np.uint8)
    start_watch(&watch)
    n_units = hf_units(&watch, n_trees * parts, threads)
    for unit in prange(n_units, schedule="dynamic", num_threads=threads, nogil=True):
        if hf_begin(&watch, unit):
            _pull_tree(
                a, x, unit // parts, unit % parts * elements, elements, &scratch[threadid(), 0], &watch
            )
            hf_end(&watch)
    return raise_interrupt(&watch)


cdef int _run_images(MarginGradients* a, const real* x, int threads) except -1:
    # Writes the gradient with respect to images.
    cdef hf_watch watch
    cdef Py_ssize_t unit, n_units
    cdef Py_ssize_t n_bytes = a.base.windows.image * sizeof(double) + 2 * a.n_columns * sizeof(real)
    cdef unsigned char[:, ::1] scratch
    threads = <int> min(<Py_ssize_t> threads, a.base.windows.n_images)
    scratch = np.empty((threads, aligned(n_bytes)), np.uint8)
    start_watch(&watch)
    n_units = hf_units(&watch, a.base.windows.n_images, threads)
    for unit in prange(n_units, schedule="dynamic", num_threads=threads, nogil=True):
        if hf_begin(&watch, unit):
            _pull_image(a, x, unit, &scratch[threadid(), 0], &watch, <real*> a.base.grad_x)
            hf_end(&watch)
    return raise_interrupt(&watch)


cdef int run_margin_backward(MarginGradients a, const real* x) except -1:
    """Writes all gradients of a call, which has at least one sample.

    x  IN (n_samples, n_columns), or images
    """
    cdef hf_watch watch
    cdef Py_ssize_t n = a.base.n_samples, unit, n_units
    cdef int threads = threads_for(n * a.base.forest.n_trees * (1 + a.n_columns // PAIR))
    cdef Py_ssize_t step = samples_each(n, threads, SAMPLES)
    slope = np.empty((a.base.forest.n_trees, n), np.float32 if real is float else np.float64)
    a.base.slope = start_of(slope)
    run_slopes(a.base, x)
    if a.grad_features != NULL:
        _run_features(&a, x, threads)
    if a.base.windowed:
        return _run_images(&a, x, threads)
    start_watch(&watch)
    n_units = hf_units(&watch, (n + step - 1) // step, threads)
    for unit in prange(n_units, schedule="dynamic", num_threads=threads, nogil=True):
        if hf_begin(&watch, unit):
            _pull_samples(&a, x, unit * step, min((unit + 1) * step, n), &watch, <real*> a.base.grad_x)
            hf_end(&watch)
    return raise_interrupt(&watch)
