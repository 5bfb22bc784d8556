"""AdaGrad and Adam on the CPU, dense and by rows.

Parallel loops run over blocks of elements or over rows. Each element is computed by one thread, so results
are bit-identical at every number of threads. AdaGrad computes in float64, Adam (adam_step.pxd) in the dtype
of the parameters.

Moments of rows without gradients decay geometrically and would become subnormal. Processors are about a
hundred times slower on subnormal numbers, and 0.9 times the least of them rounds to itself. Moments are
therefore set to 0 below the smallest normal number; with eps >> 1e-19 this changes no parameter.

Steps are in place, so a step that has begun does not stop for a signal.
"""

from cython.parallel cimport prange
from libc.math cimport sqrt
from libc.stdint cimport int64_t, uint64_t

from hforest.core.machine cimport hf_enter_state, hf_leave_state, hf_threads_for
from hforest.optim.adam_step cimport adam_fetch, adam_pass, adam_settings, adam_step, adam_tables, hf_adam

from .exact import bias

cdef extern from "core/simd.h" nogil:
    void hf_fetch(const void* start, Py_ssize_t n_bytes)

ctypedef fused real:
    float
    double

cdef enum:
    BLOCK = 1 << 13       # elements per unit of work of a dense optimiser
    PART = 64             # elements processed together: their float64 copies stay in L1
    ELEMENT_NS = 1        # nanoseconds per element of a dense step
    ROWS = 64             # rows per unit of work; their missed steps, and so their costs, differ
    AHEAD = 16            # rows between a prefetch and its use


cdef int _threads(Py_ssize_t elements) noexcept nogil:
    return hf_threads_for(<double> ELEMENT_NS * elements)


# ---------------------------------------------------------------------------------------- AdaGrad

cdef void _adagrad_part(real* p, const real* g, real* state, Py_ssize_t n, double lr) noexcept nogil:
    # n <= PART. The loops select instead of branching, so that they are vectorised.
    cdef Py_ssize_t i
    cdef double slope, old, new
    cdef double gradient[PART]
    cdef double h[PART]
    cdef double root[PART]
    for i in range(n):
        gradient[i] = g[i]
        h[i] = state[i]
        root[i] = sqrt(h[i] * h[i] + gradient[i] * gradient[i])
    for i in range(n):
        slope, old, new = gradient[i], h[i], root[i]
        new = old if slope == 0 else new
        h[i] = new
        slope = 0.0 if new == 0 else slope
        new = 1.0 if new == 0 else new
        root[i] = lr * slope / new
    for i in range(n):
        p[i] = <real> (p[i] - root[i])
    for i in range(n):
        state[i] = <real> h[i]


cdef void _adagrad_parts(real* p, const real* g, real* state, Py_ssize_t n, double lr) noexcept nogil:
    cdef Py_ssize_t part, i
    for part in range((n + PART - 1) // PART):
        i = part * PART
        _adagrad_part(p + i, g + i, state + i, min(<Py_ssize_t> PART, n - i), lr)


cdef void _adagrad(real[::1] param, const real[::1] grad, real[::1] state, double lr) noexcept nogil:
    cdef Py_ssize_t n = param.shape[0], b
    cdef uint64_t before
    for b in prange((n + BLOCK - 1) // BLOCK, schedule="static", num_threads=_threads(n)):
        before = hf_enter_state()
        _adagrad_parts(
            &param[b * BLOCK], &grad[b * BLOCK], &state[b * BLOCK], min(<Py_ssize_t> BLOCK, n - b * BLOCK), lr
        )
        hf_leave_state(before)


cdef void _adagrad_rows(
    real[:, ::1] param, const int64_t[::1] rows, const real[:, ::1] grad, real[:, ::1] state, double lr
) noexcept nogil:
    cdef Py_ssize_t n = rows.shape[0], width = param.shape[1], i
    cdef uint64_t before
    for i in prange(n, schedule="static", num_threads=_threads(n * width)):
        if i + AHEAD < n:
            adam_fetch(&param[rows[i + AHEAD], 0], width)
            adam_fetch(&state[rows[i + AHEAD], 0], width)
        before = hf_enter_state()
        _adagrad_parts(&param[rows[i], 0], &grad[i, 0], &state[rows[i], 0], width, lr)
        hf_leave_state(before)


def adagrad(param, grad, state, double lr):
    """Sets h = sqrt(h**2 + g**2), then takes a step of lr g / h."""
    if param.dtype.itemsize == 4:
        _adagrad[float](param, grad, state, lr)
    else:
        _adagrad[double](param, grad, state, lr)


def adagrad_rows(param, rows, grad, state, double lr):
    """Takes a step of AdaGrad at `rows`."""
    if param.shape[1] == 0:  # no element has an address
        return
    if param.dtype.itemsize == 4:
        _adagrad_rows[float](param, rows, grad, state, lr)
    else:
        _adagrad_rows[double](param, rows, grad, state, lr)


# ------------------------------------------------------------------------------------------- Adam

cdef hf_adam _settings(param, step, settings):
    lr, beta1, beta2, eps = settings
    return adam_settings(
        param.dtype.itemsize, lr, beta1, beta2, eps, bias(beta1, step), bias(beta2, step)
    )


cdef void _adam(
    real[::1] param, const real[::1] grad, real[::1] m, real[::1] v, const hf_adam* a
) noexcept nogil:
    cdef Py_ssize_t n = param.shape[0], b, i, size
    cdef uint64_t before
    for b in prange((n + BLOCK - 1) // BLOCK, schedule="static", num_threads=_threads(n)):
        i = b * BLOCK
        size = min(<Py_ssize_t> BLOCK, n - i)
        before = hf_enter_state()
        adam_step(&param[i], &grad[i], &m[i], &v[i], size, a)
        hf_leave_state(before)


def adam(param, grad, m, v, step, settings, double shrink=1):
    """Takes a step of Adam (Kingma & Ba 2015, Alg. 1)."""
    cdef hf_adam a = _settings(param, step, settings)
    a.shrink = shrink
    if param.dtype.itemsize == 4:
        _adam[float](param, grad, m, v, &a)
    else:
        _adam[double](param, grad, m, v, &a)


cdef void _adam_rows(
    real[:, ::1] param, const int64_t[::1] rows, const real[:, ::1] grad, real[:, ::1] m, real[:, ::1] v,
    int64_t[::1] last, int64_t step, const hf_adam* a,
) noexcept nogil:
    # Without gradients (grad is None), rows only take missed steps, up to `step`; else up to step - 1, then
    # the step.
    cdef Py_ssize_t n = rows.shape[0], width = param.shape[1], i
    cdef int64_t row, reach = step if grad is None else step - 1
    cdef uint64_t before
    for i in prange(n, schedule="dynamic", chunksize=ROWS, num_threads=_threads(n * width)):
        if i + AHEAD < n:
            adam_fetch(&param[rows[i + AHEAD], 0], width)
            adam_fetch(&m[rows[i + AHEAD], 0], width)
            adam_fetch(&v[rows[i + AHEAD], 0], width)
            hf_fetch(&last[rows[i + AHEAD]], sizeof(int64_t))
        row = rows[i]
        before = hf_enter_state()
        adam_pass(&param[row, 0], &m[row, 0], &v[row, 0], width, last[row], reach, a)
        if grad is not None:
            adam_step(&param[row, 0], &grad[i, 0], &m[row, 0], &v[row, 0], width, a)
        last[row] = step
        hf_leave_state(before)


def adam_rows(at, grad, step, settings, missed):
    """Takes the missed steps up to step - 1 with zero gradient, then the step, at `rows`."""
    param, m, v, rows, last = at
    cdef hf_adam a = _settings(param, step, settings)
    adam_tables(&a, missed)
    if param.shape[1] == 0:
        last[rows] = step
        return
    if param.dtype.itemsize == 4:
        _adam_rows[float](param, rows, grad, m, v, last, step, &a)
    else:
        _adam_rows[double](param, rows, grad, m, v, last, step, &a)


def adam_catch_up(at, step, settings, missed):
    """Takes the missed steps up to `step` with zero gradient, at `rows`."""
    adam_rows(at, None, step, settings, missed)
