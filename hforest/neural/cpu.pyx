"""Neural decision forests on the CPU (p4 = Zhang, Notes on Deep Neural Decision Forests, §2).

Parallel loops run over owners of output: tiles of samples for `mu`, `p` and `grad_f`, pairs of a tree and
a class for the leaves. No sum is shared between threads and nothing is atomic, so the result has the same
bits at every number of threads; a sample's numbers do not depend on the samples beside it either.
"""

import numpy as np

from cython.parallel cimport parallel, prange, threadid
from libc.math cimport isfinite
from libc.stdint cimport int32_t, int64_t

from hforest.core.machine cimport (
    hf_share, hf_take, hf_threads, hf_watch, raise_interrupt, simd_path, start_watch,
)

ctypedef fused real:
    float
    double

cdef extern from "neural/paths.h" nogil:
    const double HF_LEAST_MASS
    ctypedef struct hf_forest:
        const void* f
        const int32_t* index
        const void* leaves
        ptrdiff_t n_samples, n_functions, n_trees, n_vertices, n_classes
        hf_watch* watch
    void hf_route_f32(
        const hf_forest*, int path, ptrdiff_t first, int count, ptrdiff_t m, unsigned char*, float*)
    void hf_route_f64(
        const hf_forest*, int path, ptrdiff_t first, int count, ptrdiff_t m, unsigned char*, double*)
    void hf_forward_f32(
        const hf_forest*, int path, ptrdiff_t first, int count, unsigned char*, double*, float*)
    void hf_forward_f64(
        const hf_forest*, int path, ptrdiff_t first, int count, unsigned char*, double*, double*)
    void hf_loss_backward_f32(
        const hf_forest*, int path, const int32_t*, int forest, ptrdiff_t first, int count, unsigned char*,
        double*, double*, double*, float*, float*)
    void hf_loss_backward_f64(
        const hf_forest*, int path, const int32_t*, int forest, ptrdiff_t first, int count, unsigned char*,
        double*, double*, double*, double*, double*)
    void hf_backward_f32(
        const hf_forest*, int path, const float*, ptrdiff_t first, int count, unsigned char*, float*)
    void hf_backward_f64(
        const hf_forest*, int path, const double*, ptrdiff_t first, int count, unsigned char*, double*)
    void hf_expect_f32(
        const hf_forest*, int path, const int32_t*, ptrdiff_t n, ptrdiff_t m, int32_t y, unsigned char*,
        unsigned char*, int first_time, double*)
    void hf_expect_f64(
        const hf_forest*, int path, const int32_t*, ptrdiff_t n, ptrdiff_t m, int32_t y, unsigned char*,
        unsigned char*, int first_time, double*)

cdef enum:
    LINE = 64             # bytes of a tile's row
    SMALL = 1 << 12       # decisions below which a second thread does not pay
    SUMS = 1 << 24        # float64 sums that the leaf update holds at a time (128 MiB)
    PAIRS = 64            # pairs of a tree and a class that keep many threads busy
    MEMORY = 1 << 28      # bytes of mu that the leaf update may keep between iterations


cdef Py_ssize_t _threads(Py_ssize_t decisions, Py_ssize_t units):
    return max(<Py_ssize_t> 1, min(<Py_ssize_t> hf_threads() if decisions > SMALL else 1, units))


cdef object _workspaces(Py_ssize_t threads, Py_ssize_t n_bytes):
    return np.empty((threads, n_bytes + LINE), np.uint8)


cdef inline unsigned char* _aligned(unsigned char* workspace) noexcept nogil:
    return workspace + (LINE - <size_t> workspace % LINE) % LINE


cdef hf_forest _forest(
    const real[:, ::1] f, index, leaves, Py_ssize_t n_trees, Py_ssize_t n_vertices, Py_ssize_t n_classes,
    hf_watch* watch,
):
    # The caller keeps the arrays and the watch alive, and no array is empty.
    cdef hf_forest a
    start_watch(watch)
    a.watch = watch
    cdef const int32_t[:, ::1] vertices
    cdef const real[:, :, ::1] probabilities
    a.f = &f[0, 0]
    a.index = NULL
    if index is not None:
        vertices = index
        a.index = &vertices[0, 0]
    a.leaves = NULL
    if leaves is not None:
        probabilities = leaves
        a.leaves = &probabilities[0, 0, 0]
    a.n_samples, a.n_functions = f.shape[0], f.shape[1]
    a.n_trees, a.n_vertices, a.n_classes = n_trees, n_vertices, n_classes
    return a


# ----------------------------------------------------------------------------------------- routing

cdef _route(const real[:, ::1] f, index, real[:, :, ::1] mu):
    cdef Py_ssize_t n = f.shape[0], n_trees = mu.shape[1], v = mu.shape[2] - 1, part = 0
    cdef hf_watch watch
    cdef hf_forest a = _forest[real](f, index, None, n_trees, v, 0, &watch)
    cdef Py_ssize_t decisions = n * n_trees * v, row = LINE // sizeof(real)
    cdef Py_ssize_t n_tiles = (n + row - 1) // row * n_trees
    cdef unsigned char[:, ::1] workspaces = _workspaces(_threads(decisions, n_tiles), (3 * v + 2) * LINE)
    cdef int path = simd_path()
    hf_share(&watch, n_tiles)
    with nogil, parallel(num_threads=<int> workspaces.shape[0]):
        part = hf_take(&watch)
        while part >= 0:
            if real is float:
                hf_route_f32(
                    &a, path, part // n_trees * row, <int> min(row, n - part // n_trees * row),
                    part % n_trees, _aligned(&workspaces[threadid(), 0]), &mu[0, 0, 0],
                )
            else:
                hf_route_f64(
                    &a, path, part // n_trees * row, <int> min(row, n - part // n_trees * row),
                    part % n_trees, _aligned(&workspaces[threadid(), 0]), &mu[0, 0, 0],
                )
            part = hf_take(&watch)
    raise_interrupt(&watch)


def route(f, index, mu):
    """mu of every leaf: products of decisions, from the root down."""
    if f.shape[0] == 0:
        return
    if f.dtype.itemsize == 4:
        _route[float](f, index, mu)
    else:
        _route[double](f, index, mu)


# ----------------------------------------------------------------------------------------- outputs

cdef _forward(const real[:, ::1] f, index, const real[:, :, ::1] leaves, real[:, ::1] p):
    cdef Py_ssize_t n = f.shape[0], n_trees = leaves.shape[0], v = leaves.shape[1] - 1, part = 0
    cdef hf_watch watch
    cdef hf_forest a = _forest[real](f, index, leaves, n_trees, v, leaves.shape[2], &watch)
    cdef Py_ssize_t decisions = n * n_trees * v, row = LINE // sizeof(real)
    cdef Py_ssize_t n_tiles = (n + row - 1) // row
    cdef Py_ssize_t sums = (3 * v + 2) * LINE
    cdef unsigned char[:, ::1] workspaces = _workspaces(
        _threads(decisions, n_tiles), sums + row * leaves.shape[2] * 8
    )
    cdef int path = simd_path()
    hf_share(&watch, n_tiles)
    with nogil, parallel(num_threads=<int> workspaces.shape[0]):
        part = hf_take(&watch)
        while part >= 0:
            if real is float:
                hf_forward_f32(
                    &a, path, part * row, <int> min(row, n - part * row),
                    _aligned(&workspaces[threadid(), 0]),
                    <double*> (_aligned(&workspaces[threadid(), 0]) + sums), &p[0, 0],
                )
            else:
                hf_forward_f64(
                    &a, path, part * row, <int> min(row, n - part * row),
                    _aligned(&workspaces[threadid(), 0]),
                    <double*> (_aligned(&workspaces[threadid(), 0]) + sums), &p[0, 0],
                )
            part = hf_take(&watch)
    raise_interrupt(&watch)


def forward(f, index, leaves, p):
    """p = mean over trees of sum_l mu_l pi_l."""
    if f.shape[0] == 0:
        return
    if f.dtype.itemsize == 4:
        _forward[float](f, index, leaves, p)
    else:
        _forward[double](f, index, leaves, p)


# --------------------------------------------------------------------------------------- gradients

cdef _loss_backward(
    const real[:, ::1] f, index, const real[:, :, ::1] leaves, const int32_t[::1] y, bint forest,
    double[::1] loss, real[:, ::1] grad_f, p,
):
    cdef Py_ssize_t n = f.shape[0], n_trees = leaves.shape[0], v = leaves.shape[1] - 1, part = 0, tiles, sums
    cdef hf_watch watch
    cdef hf_forest a = _forest[real](f, index, leaves, n_trees, v, leaves.shape[2], &watch)
    cdef Py_ssize_t decisions = n * n_trees * v, row = LINE // sizeof(real)
    cdef Py_ssize_t n_tiles = (n + row - 1) // row
    cdef real[:, ::1] outputs
    cdef real* to = NULL
    tiles = (4 * v + 2) * LINE
    sums = tiles + row * n_trees * 8
    if p is not None:
        outputs = p
        to = &outputs[0, 0]
    cdef unsigned char[:, ::1] workspaces = _workspaces(
        _threads(decisions, n_tiles), sums + (row * leaves.shape[2] * 8 if to else 0)
    )
    cdef int path = simd_path()
    hf_share(&watch, n_tiles)
    with nogil, parallel(num_threads=<int> workspaces.shape[0]):
        part = hf_take(&watch)
        while part >= 0:
            if real is float:
                hf_loss_backward_f32(
                    &a, path, &y[0], forest, part * row, <int> min(row, n - part * row),
                    _aligned(&workspaces[threadid(), 0]),
                    <double*> (_aligned(&workspaces[threadid(), 0]) + tiles),
                    <double*> (_aligned(&workspaces[threadid(), 0]) + sums), &loss[0], &grad_f[0, 0], to,
                )
            else:
                hf_loss_backward_f64(
                    &a, path, &y[0], forest, part * row, <int> min(row, n - part * row),
                    _aligned(&workspaces[threadid(), 0]),
                    <double*> (_aligned(&workspaces[threadid(), 0]) + tiles),
                    <double*> (_aligned(&workspaces[threadid(), 0]) + sums), &loss[0], &grad_f[0, 0], to,
                )
            part = hf_take(&watch)
    raise_interrupt(&watch)


def loss_backward(f, index, leaves, y, forest, loss, grad_f, p):
    """Each sample's -log P, and the gradient of their mean: d A_right - (1 - d) A_left; p as of `forward`."""
    if f.shape[0] == 0:
        return
    if f.dtype.itemsize == 4:
        _loss_backward[float](f, index, leaves, y, forest, loss, grad_f, p)
    else:
        _loss_backward[double](f, index, leaves, y, forest, loss, grad_f, p)


cdef _backward(
    const real[:, ::1] grad_p, const real[:, ::1] f, index, const real[:, :, ::1] leaves, real[:, ::1] grad_f
):
    cdef Py_ssize_t n = f.shape[0], n_trees = leaves.shape[0], v = leaves.shape[1] - 1, part = 0
    cdef hf_watch watch
    cdef hf_forest a = _forest[real](f, index, leaves, n_trees, v, leaves.shape[2], &watch)
    cdef Py_ssize_t decisions = n * n_trees * v, row = LINE // sizeof(real)
    cdef Py_ssize_t n_tiles = (n + row - 1) // row
    cdef unsigned char[:, ::1] workspaces = _workspaces(
        _threads(decisions, n_tiles), (4 * v + 2 + leaves.shape[2]) * LINE
    )
    cdef int path = simd_path()
    hf_share(&watch, n_tiles)
    with nogil, parallel(num_threads=<int> workspaces.shape[0]):
        part = hf_take(&watch)
        while part >= 0:
            if real is float:
                hf_backward_f32(
                    &a, path, &grad_p[0, 0], part * row, <int> min(row, n - part * row),
                    _aligned(&workspaces[threadid(), 0]), &grad_f[0, 0],
                )
            else:
                hf_backward_f64(
                    &a, path, &grad_p[0, 0], part * row, <int> min(row, n - part * row),
                    _aligned(&workspaces[threadid(), 0]), &grad_f[0, 0],
                )
            part = hf_take(&watch)
    raise_interrupt(&watch)


def backward(grad_p, f, index, leaves, grad_f):
    """Gradient by f of any loss whose gradient by the result of `forward` is grad_p."""
    if f.shape[0] == 0:
        return
    if f.dtype.itemsize == 4:
        _backward[float](grad_p, f, index, leaves, grad_f)
    else:
        _backward[double](grad_p, f, index, leaves, grad_f)


# ------------------------------------------------------------------------------------------ leaves

cdef void _normalise(const double[:, :, ::1] total, Py_ssize_t first, real[:, :, ::1] leaves) noexcept nogil:
    # Rows of trees first, first + 1, ...; a leaf that no sample reaches keeps its row.
    cdef Py_ssize_t m, leaf, k
    cdef double mass
    for m in prange(total.shape[0], schedule="static", num_threads=hf_threads()):
        for leaf in range(total.shape[2]):
            mass = 0
            for k in range(total.shape[1]):
                mass = mass + total[m, k, leaf]
            if mass >= HF_LEAST_MASS and isfinite(mass):
                for k in range(total.shape[1]):
                    leaves[first + m, leaf, k] = <real> (total[m, k, leaf] / mass)


cdef _update_leaves(
    const real[:, ::1] f, index, const int32_t[::1] order, const int64_t[::1] start, Py_ssize_t n_iter,
    real[:, :, ::1] leaves,
):
    cdef Py_ssize_t n_trees = leaves.shape[0], n_leaves = leaves.shape[1], n_classes = leaves.shape[2]
    cdef hf_watch watch
    cdef hf_forest a = _forest[real](f, index, leaves, n_trees, n_leaves - 1, n_classes, &watch)
    cdef Py_ssize_t first, here, part = 0, k = 0, m = 0, row = LINE // sizeof(real), tiles = 0
    # Where a class's tiles begin among those of a tree.
    cdef int64_t[::1] tile = np.empty(n_classes, np.int64)
    for k in range(n_classes):
        tile[k] = tiles
        tiles += (start[k + 1] - start[k] + row - 1) // row
    # Trees in flight: enough for all threads, and no more than the sums, or the memory, allow.
    cdef Py_ssize_t batch = min(n_trees, max(<Py_ssize_t> 1, SUMS // (n_classes * n_leaves)))
    cdef Py_ssize_t bytes_each = tiles * n_leaves * LINE, least = 4 * hf_threads()
    batch = min(batch, max(least, <Py_ssize_t> PAIRS) // n_classes + 1)
    cdef bint keeps_mu = n_iter > 1 and bytes_each <= MEMORY
    if keeps_mu:
        batch = min(batch, MEMORY // bytes_each)
    cdef unsigned char[::1] memory = np.empty((batch * bytes_each if keeps_mu else 0) + LINE, np.uint8)
    cdef unsigned char* mu = _aligned(&memory[0]) if keeps_mu else NULL
    cdef unsigned char[:, ::1] workspaces = _workspaces(
        _threads(f.shape[0] * batch * n_leaves, batch * n_classes),
        ((n_leaves + row - 1) // row + 3 * n_leaves) * LINE,
    )
    cdef double[:, :, ::1] total = np.empty((batch, n_classes, n_leaves))
    cdef int path = simd_path(), once
    for first in range(0, n_trees, batch):
        here = min(batch, n_trees - first)
        for step in range(n_iter):
            once = step == 0
            hf_share(&watch, here * n_classes)
            with nogil, parallel(num_threads=<int> workspaces.shape[0]):
                part = hf_take(&watch)
                while part >= 0:
                    k = part % n_classes
                    m = part // n_classes
                    if real is float:
                        hf_expect_f32(
                            &a, path, &order[0] + start[k], start[k + 1] - start[k], first + m, <int32_t> k,
                            _aligned(&workspaces[threadid(), 0]),
                            mu + m * bytes_each + tile[k] * n_leaves * LINE if mu else NULL, once,
                            &total[m, k, 0],
                        )
                    else:
                        hf_expect_f64(
                            &a, path, &order[0] + start[k], start[k + 1] - start[k], first + m, <int32_t> k,
                            _aligned(&workspaces[threadid(), 0]),
                            mu + m * bytes_each + tile[k] * n_leaves * LINE if mu else NULL, once,
                            &total[m, k, 0],
                        )
                    part = hf_take(&watch)
            raise_interrupt(&watch)
            with nogil:
                _normalise(total[:here], first, leaves)


cdef void _sort_by_class(const int32_t[::1] y, int32_t[::1] order, int64_t[::1] start) noexcept nogil:
    # start: IN zeros, OUT where each class begins among `order`, and its end.
    cdef Py_ssize_t n
    cdef int64_t k, first = 0, count
    for n in range(y.shape[0]):
        start[y[n]] += 1
    for k in range(start.shape[0]):
        count = start[k]
        start[k] = first
        first += count
    for n in range(y.shape[0]):
        order[start[y[n]]] = <int32_t> n
        start[y[n]] += 1
    # Each class now has the start of the next one.
    for k in range(start.shape[0] - 1, 0, -1):
        start[k] = start[k - 1]
    start[0] = 0


def update_leaves(f, index, y, n_iter, leaves):
    """p4's last formula, n_iter times, in place."""
    if f.shape[0] == 0:
        return
    # Samples by class, those of a class in their order: a tile then has one label.
    order, start = np.empty(len(y), np.int32), np.zeros(leaves.shape[2] + 1, np.int64)
    _sort_by_class(y, order, start)
    if f.dtype.itemsize == 4:
        _update_leaves[float](f, index, order, start, n_iter, leaves)
    else:
        _update_leaves[double](f, index, order, start, n_iter, leaves)
