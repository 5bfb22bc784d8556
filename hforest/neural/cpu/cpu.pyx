"""Neural decision forests on the CPU (Zhang 2017, section 2).

Parallel loops run over owners of output: tiles of samples for `mu`, `p` and `grad_f`, (tree, class) pairs for
the leaves. No sum is shared between threads and nothing is atomic, so results are bit-identical at every
number of threads. The results of a sample do not depend on the other samples either.

Versions: without vectors, calls take 1.7 to 1.9 times as long; wider ones than 16 bytes are not used. Left
out, without a gain: adding up classes within the loop that divides, and 64 samples of a deep tree at a time.
"""

import numpy as np

from cython.parallel cimport prange, threadid
from libc.math cimport HUGE_VAL, isfinite
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from hforest.core.machine cimport (
    hf_begin, hf_end, hf_has_stopped, hf_stopped_after, hf_threads, hf_threads_for, hf_units, hf_watch,
    raise_interrupt, simd_path, start_watch,
)
from hforest.core.series cimport hf_exp, hf_log
from hforest.neural.cpu.exact cimport Path, log_gradient, log_likelihood, log_shares, real

cdef extern from "neural/cpu/tiles.h" nogil:
    const double HF_LEAST_MASS
    unsigned hf_flush()
    void hf_unflush(unsigned before)
    ctypedef struct hf_forest:
        const void* f
        const int32_t* index
        const void* leaves
        const double* weight
        ptrdiff_t n_samples, n_functions, n_trees, n_vertices, n_classes
        hf_watch* watch
    ctypedef struct hf_tiles:
        int row
        double least, least_update
        void (*route)(
            const hf_forest* a, ptrdiff_t first, int count, ptrdiff_t m, unsigned char* workspace, void* mu
        ) noexcept nogil
        void (*forward)(
            const hf_forest* a, ptrdiff_t first, int count, unsigned char* workspace, double* total, void* p
        ) noexcept nogil
        void (*labels)(
            const hf_forest* a, const int32_t* y, int forest, ptrdiff_t first, int count,
            unsigned char* workspace, double* likelihood, double* total, void* grad_f, void* p,
        ) noexcept nogil
        void (*outputs)(
            const hf_forest* a, const void* grad_p, ptrdiff_t first, int count, unsigned char* workspace,
            void* grad_f,
        ) noexcept nogil
        void (*expect)(
            const hf_forest* a, const int32_t* order, int count, ptrdiff_t m, const void* column,
            unsigned char* workspace, void* memory, int first_time, double* p, double* total,
        ) noexcept nogil
        void (*multiply)(void* a, ptrdiff_t n, double factor) noexcept nogil
    const hf_tiles* hf_tiles_of(int single, int path)

cdef enum:
    LINE = 64             # bytes per row of a tile
    DECISION_NS = 8       # nanoseconds per decision
    LEAF_NS = 2           # nanoseconds per probability of a leaf
    SUMS = 1 << 24        # float64 sums that the leaf update holds at a time (128 MiB)
    PAIRS = 64            # (tree, class) pairs per batch that keep many threads busy
    MEMORY = 1 << 28      # bytes of mu that the leaf update may keep between iterations


cdef int _threads(Py_ssize_t decisions, Py_ssize_t units):
    cdef int threads = hf_threads_for(<double> DECISION_NS * decisions)
    return <int> max(<Py_ssize_t> 1, min(<Py_ssize_t> threads, units))


cdef object _workspaces(int threads, Py_ssize_t n_bytes):
    return np.empty((threads, n_bytes + LINE), np.uint8)


cdef inline unsigned char* _aligned(unsigned char* workspace) noexcept nogil:
    return workspace + (LINE - <size_t> workspace % LINE) % LINE


cdef hf_forest _forest(
    const real[:, ::1] f, index, leaves, Py_ssize_t n_trees, Py_ssize_t n_vertices, Py_ssize_t n_classes,
    hf_watch* watch,
):
    # The caller must keep the arrays and the watch alive, and no array may be empty.
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
    a.weight = NULL
    if leaves is not None:
        probabilities = leaves
        a.leaves = &probabilities[0, 0, 0]
    a.n_samples, a.n_functions = f.shape[0], f.shape[1]
    a.n_trees, a.n_vertices, a.n_classes = n_trees, n_vertices, n_classes
    return a


# ----------------------------------------------------------------------------------------- routing

cdef _route(const real[:, ::1] f, index, real[:, :, ::1] mu):
    cdef Py_ssize_t n = f.shape[0], n_trees = mu.shape[1], v = mu.shape[2] - 1, part, n_units
    cdef hf_watch watch
    cdef hf_forest a = _forest[real](f, index, None, n_trees, v, 0, &watch)
    cdef Py_ssize_t decisions = n * n_trees * v, row = LINE // sizeof(real)
    cdef Py_ssize_t n_tiles = (n + row - 1) // row * n_trees
    cdef int threads = _threads(decisions, n_tiles)
    cdef unsigned char[:, ::1] workspaces = _workspaces(threads, (3 * v + 2) * LINE)
    cdef const hf_tiles* tiles = hf_tiles_of(sizeof(real) == 4, simd_path())
    cdef unsigned before
    n_units = hf_units(&watch, n_tiles, threads)
    for part in prange(n_units, schedule="dynamic", num_threads=threads, nogil=True):
        if hf_begin(&watch, part):
            before = hf_flush()
            tiles.route(
                &a, part // n_trees * row, <int> min(row, n - part // n_trees * row), part % n_trees,
                _aligned(&workspaces[threadid(), 0]), &mu[0, 0, 0],
            )
            hf_unflush(before)
            hf_end(&watch)
    raise_interrupt(&watch)


def route(f, index, mu):
    """Writes mu of every leaf: the product of the decisions on its path."""
    if f.shape[0] == 0:
        return
    if f.dtype.itemsize == 4:
        _route[float](f, index, mu)
    else:
        _route[double](f, index, mu)


# ----------------------------------------------------------------------------------------- outputs

cdef _forward(const real[:, ::1] f, index, const real[:, :, ::1] leaves, real[:, ::1] p):
    cdef Py_ssize_t n = f.shape[0], n_trees = leaves.shape[0], v = leaves.shape[1] - 1, part, n_units
    cdef hf_watch watch
    cdef hf_forest a = _forest[real](f, index, leaves, n_trees, v, leaves.shape[2], &watch)
    cdef Py_ssize_t decisions = n * n_trees * v, row = LINE // sizeof(real)
    cdef Py_ssize_t n_tiles = (n + row - 1) // row
    cdef Py_ssize_t sums = (3 * v + 2) * LINE
    cdef int threads = _threads(decisions, n_tiles)
    cdef unsigned char[:, ::1] workspaces = _workspaces(threads, sums + row * leaves.shape[2] * 8)
    cdef const hf_tiles* tiles = hf_tiles_of(sizeof(real) == 4, simd_path())
    cdef unsigned before
    n_units = hf_units(&watch, n_tiles, threads)
    for part in prange(n_units, schedule="dynamic", num_threads=threads, nogil=True):
        if hf_begin(&watch, part):
            before = hf_flush()
            tiles.forward(
                &a, part * row, <int> min(row, n - part * row), _aligned(&workspaces[threadid(), 0]),
                <double*> (_aligned(&workspaces[threadid(), 0]) + sums), &p[0, 0],
            )
            hf_unflush(before)
            hf_end(&watch)
    raise_interrupt(&watch)


def forward(f, index, leaves, p):
    """Writes p = mean over trees of sum_l mu_l pi_l."""
    if f.shape[0] == 0:
        return
    if f.dtype.itemsize == 4:
        _forward[float](f, index, leaves, p)
    else:
        _forward[double](f, index, leaves, p)


# --------------------------------------------------------------------------------------- gradients

cdef struct Loss:
    # The arguments that the tiles of a call share.
    const hf_forest* a
    const int32_t* y
    bint forest               # one loss, of the mean over trees; else one loss per tree
    double* loss
    void* p                   # or NULL
    # Positions of likelihoods and sums in a workspace, in bytes.
    Py_ssize_t likelihoods
    Py_ssize_t sums


cdef inline Path _path(const hf_forest* a, Py_ssize_t m) noexcept nogil:
    cdef Path path
    path.n_vertices, path.step = a.n_vertices, a.n_classes
    path.index = a.index + m * a.n_vertices if a.index != NULL else NULL
    return path


cdef inline Py_ssize_t _row(const hf_forest* a, Py_ssize_t n, Py_ssize_t m) noexcept nogil:
    # Returns the position of sample n's first decision function for tree m.
    return n * a.n_functions + (0 if a.index != NULL else m * a.n_vertices)


cdef double _exact(
    const hf_forest* a, Py_ssize_t n, Py_ssize_t m, int32_t y, double* logs, const real* f
) noexcept nogil:
    # Returns log P of tree m for sample n with label y. logs: OUT, 2 n_vertices + 1 elements.
    cdef Path path = _path(a, m)
    cdef const real* leaf = <const real*> a.leaves + m * (a.n_vertices + 1) * a.n_classes + y
    return log_likelihood(&path, f + _row(a, n, m), leaf, logs)


cdef void _exact_gradient(
    const hf_forest* a, Py_ssize_t n, Py_ssize_t m, double weight, double* logs, real* grad_f
) noexcept nogil:
    # Adds a tree's part of the gradient, from the logs that `_exact` wrote, which workspace follows.
    cdef Path path = _path(a, m)
    cdef Py_ssize_t at = _row(a, n, m)
    cdef const real* f = <const real*> a.f + at
    cdef double* shares = logs + 2 * a.n_vertices + 2
    log_shares(&path, f, logs, shares)
    log_gradient(&path, f, shares, weight, grad_f + at)


cdef void _finish_trees(
    const Loss* w, const hf_tiles* tiles, Py_ssize_t n, const double* likelihood, double* logs, real* grad_f
) noexcept nogil:
    # Writes the loss of sample n if each tree has a loss, and its gradient for trees where plain products
    # fail. likelihood: P of tree m is at [m * row].
    cdef double n_samples = w.a.n_samples, n_trees = w.a.n_trees, total = 0, p
    cdef Py_ssize_t m
    for m in range(w.a.n_trees):
        p = likelihood[m * tiles.row]
        if p >= tiles.least:
            total += hf_log(p)
        else:
            total += _exact(w.a, n, m, w.y[n], logs, <const real*> w.a.f)
            _exact_gradient(w.a, n, m, 1 / (n_samples * n_trees), logs, grad_f)
    w.loss[n] = -total / n_trees


cdef void _finish_forest(
    const Loss* w, const hf_tiles* tiles, Py_ssize_t n, double* likelihood, double* logs, real* grad_f
) noexcept nogil:
    # Writes the loss of sample n if the mean over trees has a loss, and completes its gradient.
    cdef double n_samples = w.a.n_samples, n_trees = w.a.n_trees, total = 0, high = -HUGE_VAL, weight
    cdef Py_ssize_t m
    cdef int row = tiles.row
    cdef unsigned before
    for m in range(w.a.n_trees):
        total += likelihood[m * row]
    if total >= tiles.least:
        w.loss[n] = -hf_log(total / n_trees)
        weight = 1 / (n_samples * total)
        if weight != 1:
            before = hf_flush()
            tiles.multiply(grad_f + n * w.a.n_functions, w.a.n_functions, weight)
            hf_unflush(before)
        return
    memset(grad_f + n * w.a.n_functions, 0, w.a.n_functions * sizeof(real))
    for m in range(w.a.n_trees):
        likelihood[m * row] = _exact(w.a, n, m, w.y[n], logs, <const real*> w.a.f)
        high = likelihood[m * row] if likelihood[m * row] > high else high
    w.loss[n] = HUGE_VAL
    if high == -HUGE_VAL:
        return
    total = 0
    for m in range(w.a.n_trees):
        total += hf_exp(likelihood[m * row] - high)
    w.loss[n] = -(high + hf_log(total / n_trees))
    for m in range(w.a.n_trees):
        weight = hf_exp(likelihood[m * row] - high) / total
        if weight > 0:
            _exact(w.a, n, m, w.y[n], logs, <const real*> w.a.f)
            _exact_gradient(w.a, n, m, weight / n_samples, logs, grad_f)


cdef void _tile_loss(
    const Loss* w, const hf_tiles* tiles, unsigned char* workspace, Py_ssize_t first, real* grad_f
) noexcept nogil:
    # Writes the losses and gradients of a tile of samples.
    cdef double* likelihood = <double*> (workspace + w.likelihoods)
    cdef int count = <int> min(<Py_ssize_t> tiles.row, w.a.n_samples - first), s
    cdef unsigned before = hf_flush()
    tiles.labels(
        w.a, w.y, w.forest, first, count, workspace, likelihood, <double*> (workspace + w.sums), grad_f, w.p
    )
    hf_unflush(before)
    if hf_has_stopped(w.a.watch):
        return
    for s in range(count):
        if w.forest:
            _finish_forest(w, tiles, first + s, likelihood + s, <double*> workspace, grad_f)
        else:
            _finish_trees(w, tiles, first + s, likelihood + s, <double*> workspace, grad_f)


cdef _loss_backward(
    const real[:, ::1] f, index, const real[:, :, ::1] leaves, const int32_t[::1] y, bint forest,
    double[::1] loss, real[:, ::1] grad_f, p,
):
    cdef Py_ssize_t n = f.shape[0], n_trees = leaves.shape[0], v = leaves.shape[1] - 1, part, n_units
    cdef hf_watch watch
    cdef hf_forest a = _forest[real](f, index, leaves, n_trees, v, leaves.shape[2], &watch)
    cdef Py_ssize_t decisions = n * n_trees * v, row = LINE // sizeof(real)
    cdef Py_ssize_t n_tiles = (n + row - 1) // row
    cdef real[:, ::1] outputs
    cdef Loss w
    w.a, w.y, w.forest, w.loss, w.p = &a, &y[0], forest, &loss[0], NULL
    w.likelihoods = (4 * v + 2) * LINE
    w.sums = w.likelihoods + row * n_trees * 8
    if p is not None:
        outputs = p
        w.p = &outputs[0, 0]
    cdef int threads = _threads(decisions, n_tiles)
    cdef unsigned char[:, ::1] workspaces = _workspaces(
        threads, w.sums + (row * leaves.shape[2] * 8 if w.p else 0)
    )
    cdef const hf_tiles* tiles = hf_tiles_of(sizeof(real) == 4, simd_path())
    n_units = hf_units(&watch, n_tiles, threads)
    for part in prange(n_units, schedule="dynamic", num_threads=threads, nogil=True):
        if hf_begin(&watch, part):
            _tile_loss(&w, tiles, _aligned(&workspaces[threadid(), 0]), part * row, &grad_f[0, 0])
            hf_end(&watch)
    raise_interrupt(&watch)


def loss_backward(f, index, leaves, y, forest, loss, grad_f, p):
    """Writes each sample's -log P, the gradient of their mean, d A_right - (1 - d) A_left, and p."""
    if f.shape[0] == 0:
        return
    if f.dtype.itemsize == 4:
        _loss_backward[float](f, index, leaves, y, forest, loss, grad_f, p)
    else:
        _loss_backward[double](f, index, leaves, y, forest, loss, grad_f, p)


cdef _backward(
    const real[:, ::1] grad_p, const real[:, ::1] f, index, const real[:, :, ::1] leaves, real[:, ::1] grad_f
):
    cdef Py_ssize_t n = f.shape[0], n_trees = leaves.shape[0], v = leaves.shape[1] - 1, part, n_units
    cdef hf_watch watch
    cdef hf_forest a = _forest[real](f, index, leaves, n_trees, v, leaves.shape[2], &watch)
    cdef Py_ssize_t decisions = n * n_trees * v, row = LINE // sizeof(real)
    cdef Py_ssize_t n_tiles = (n + row - 1) // row
    cdef int threads = _threads(decisions, n_tiles)
    cdef unsigned char[:, ::1] workspaces = _workspaces(threads, (4 * v + 2 + leaves.shape[2]) * LINE)
    cdef const hf_tiles* tiles = hf_tiles_of(sizeof(real) == 4, simd_path())
    cdef unsigned before
    n_units = hf_units(&watch, n_tiles, threads)
    for part in prange(n_units, schedule="dynamic", num_threads=threads, nogil=True):
        if hf_begin(&watch, part):
            before = hf_flush()
            tiles.outputs(
                &a, &grad_p[0, 0], part * row, <int> min(row, n - part * row),
                _aligned(&workspaces[threadid(), 0]), &grad_f[0, 0],
            )
            hf_unflush(before)
            hf_end(&watch)
    raise_interrupt(&watch)


def backward(grad_p, f, index, leaves, grad_f):
    """Writes the gradient of any loss, from its gradient grad_p with respect to the result of `forward`."""
    if f.shape[0] == 0:
        return
    if f.dtype.itemsize == 4:
        _backward[float](grad_p, f, index, leaves, grad_f)
    else:
        _backward[double](grad_p, f, index, leaves, grad_f)


# ------------------------------------------------------------------------------------------ leaves

cdef void _normalise(const double[:, :, ::1] total, Py_ssize_t first, real[:, :, ::1] leaves) noexcept nogil:
    # Normalises the rows of trees first, first + 1, ...; a leaf that no sample reaches keeps its row.
    cdef Py_ssize_t m, leaf, k
    cdef double mass
    cdef double size = <double> total.shape[0] * total.shape[1] * total.shape[2]
    cdef int threads = <int> min(<Py_ssize_t> hf_threads_for(LEAF_NS * size), total.shape[0])
    for m in prange(total.shape[0], schedule="static", num_threads=threads):
        for leaf in range(total.shape[2]):
            mass = 0
            for k in range(total.shape[1]):
                mass = mass + total[m, k, leaf]
            if mass >= HF_LEAST_MASS and isfinite(mass):
                for k in range(total.shape[1]):
                    leaves[first + m, leaf, k] = <real> (total[m, k, leaf] / mass)


cdef void _expect(
    const hf_forest* a, const hf_tiles* tiles, const int32_t* order, Py_ssize_t n, Py_ssize_t m, int32_t y,
    unsigned char* workspace, unsigned char* memory, bint is_first, double* total, const real* leaves,
) noexcept nogil:
    # Writes to total[l] the weighted sum, over the n samples of class y, of the posterior of leaf l in tree
    # m. memory: mu of the leaves for every tile of samples, or NULL. workspace: the leaves' column of the
    # class, then tiles.
    cdef Py_ssize_t n_leaves = a.n_vertices + 1, t = 0, leaf
    cdef real* column = <real*> workspace
    cdef double* logs = <double*> (workspace + (n_leaves + tiles.row - 1) // tiles.row * LINE)
    cdef double p[16]
    cdef double weight
    cdef int64_t n_steps = 0
    cdef int count, s
    cdef unsigned before
    cdef Path path = _path(a, m)
    for leaf in range(n_leaves):
        column[leaf] = leaves[(m * n_leaves + leaf) * a.n_classes + y]
        total[leaf] = 0
    while t < n:
        if hf_stopped_after(a.watch, &n_steps, n_leaves * tiles.row):
            return
        count = <int> min(<Py_ssize_t> tiles.row, n - t)
        before = hf_flush()
        tiles.expect(
            a, order + t, count, m, column, <unsigned char*> logs,
            memory + t * n_leaves * sizeof(real) if memory != NULL else NULL, is_first, p, total,
        )
        hf_unflush(before)
        for s in range(count):
            if p[s] >= tiles.least_update:
                continue
            if _exact(a, order[t + s], m, y, logs, <const real*> a.f) == -HUGE_VAL:
                continue
            log_shares(&path, <const real*> a.f + _row(a, order[t + s], m), logs, logs + 2 * n_leaves)
            weight = a.weight[order[t + s]] if a.weight != NULL else 1
            for leaf in range(n_leaves):
                total[leaf] += weight * logs[2 * n_leaves + a.n_vertices + leaf]
        t += tiles.row


cdef _update_leaves(
    const real[:, ::1] f, index, const int32_t[::1] order, const int64_t[::1] start, weight,
    Py_ssize_t n_iter, real[:, :, ::1] leaves,
):
    cdef Py_ssize_t n_trees = leaves.shape[0], n_leaves = leaves.shape[1], n_classes = leaves.shape[2]
    cdef hf_watch watch
    cdef hf_forest a = _forest[real](f, index, leaves, n_trees, n_leaves - 1, n_classes, &watch)
    cdef const double[::1] of_samples
    if weight is not None:
        of_samples = weight
        a.weight = &of_samples[0]
    cdef Py_ssize_t first, here, part, n_units, k, m, row = LINE // sizeof(real), n_tiles = 0, step
    # Number of a class's first tile among the tiles of a tree.
    cdef int64_t[::1] tile = np.empty(n_classes, np.int64)
    for k in range(n_classes):
        tile[k] = n_tiles
        n_tiles += (start[k + 1] - start[k] + row - 1) // row
    # Trees per batch: enough for all threads, but not more than SUMS and MEMORY allow.
    cdef Py_ssize_t batch = min(n_trees, max(<Py_ssize_t> 1, SUMS // (n_classes * n_leaves)))
    cdef Py_ssize_t bytes_each = n_tiles * n_leaves * LINE, least = 4 * hf_threads()
    batch = min(batch, max(least, <Py_ssize_t> PAIRS) // n_classes + 1)
    cdef bint keeps_mu = n_iter > 1 and bytes_each <= MEMORY
    if keeps_mu:
        batch = min(batch, MEMORY // bytes_each)
    cdef unsigned char[::1] memory = np.empty((batch * bytes_each if keeps_mu else 0) + LINE, np.uint8)
    cdef unsigned char* mu = _aligned(&memory[0]) if keeps_mu else NULL
    cdef int threads = _threads(f.shape[0] * batch * n_leaves, batch * n_classes)
    cdef unsigned char[:, ::1] workspaces = _workspaces(
        threads, ((n_leaves + row - 1) // row + 3 * n_leaves) * LINE
    )
    cdef double[:, :, ::1] total = np.empty((batch, n_classes, n_leaves))
    cdef const hf_tiles* tiles = hf_tiles_of(sizeof(real) == 4, simd_path())
    for first in range(0, n_trees, batch):
        here = min(batch, n_trees - first)
        for step in range(n_iter):
            n_units = hf_units(&watch, here * n_classes, threads)
            for part in prange(n_units, schedule="dynamic", num_threads=threads, nogil=True):
                if hf_begin(&watch, part):
                    k = part % n_classes
                    m = part // n_classes
                    _expect(
                        &a, tiles, &order[0] + start[k], start[k + 1] - start[k], first + m, <int32_t> k,
                        _aligned(&workspaces[threadid(), 0]),
                        mu + m * bytes_each + tile[k] * n_leaves * LINE if mu else NULL, step == 0,
                        &total[m, k, 0], &leaves[0, 0, 0],
                    )
                    hf_end(&watch)
            raise_interrupt(&watch)
            with nogil:
                _normalise(total[:here], first, leaves)


cdef void _sort_by_class(const int32_t[::1] y, int32_t[::1] order, int64_t[::1] start) noexcept nogil:
    # start: IN zeros, OUT the position of each class in `order`, and the end of the last one.
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
    # start[k] is now the position of class k + 1.
    for k in range(start.shape[0] - 1, 0, -1):
        start[k] = start[k - 1]
    start[0] = 0


def update_leaves(f, index, y, weight, n_iter, leaves):
    """Applies the last formula of Zhang 2017 n_iter times to leaves; weight: per sample, None for 1."""
    if f.shape[0] == 0:
        return
    # Samples are ordered by class, stably, so that a tile has one label.
    order, start = np.empty(len(y), np.int32), np.zeros(leaves.shape[2] + 1, np.int64)
    _sort_by_class(y, order, start)
    if f.dtype.itemsize == 4:
        _update_leaves[float](f, index, order, start, weight, n_iter, leaves)
    else:
        _update_leaves[double](f, index, order, start, weight, n_iter, leaves)
