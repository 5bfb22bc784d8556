"""AdaGrad and Adam on the CPU, dense and by rows.

Parallel loops run over blocks of elements or over rows; an element has one owner, so the bits do not
depend on the number of threads. Arithmetic is in float64 whatever the dtype: these loops wait for
memory, and float32 stores are then rounded once.

Moments decay geometrically, so those of rows without gradients pass through the subnormal numbers, on
which a processor is a hundred times slower and where 0.9 times the least of them is itself again. They
are therefore set to 0 below the smallest normal number; with eps >> 1e-19 no parameter can tell.
"""

from cython.parallel cimport prange
from libc.float cimport DBL_MIN, FLT_MIN
from libc.math cimport fabs, sqrt
from libc.stdint cimport int64_t

from .tables import bias

cdef extern from "cpu_features.h" nogil:
    int omp_get_max_threads()

cdef extern from "kernels.h" nogil:
    void hf_roots(double* a, Py_ssize_t n)

ctypedef fused real:
    float
    double

cdef enum:
    BLOCK = 1 << 13       # elements of one parallel step of a dense optimiser
    PART = 64             # elements taken together: their float64 copies stay in L1
    SMALL = 1 << 13       # elements below which a second thread does not pay
    ROWS = 32             # rows of one parallel step; their gaps, and so their costs, differ
    FEW = 4               # missed steps that are cheaper taken one by one
    CENTRE = 2            # column of the tail table; the coefficients follow


cdef int _threads(Py_ssize_t elements) noexcept nogil:
    return 1 if elements < SMALL else omp_get_max_threads()


# ---------------------------------------------------------------------------------------- AdaGrad

cdef void _adagrad_part(real* p, const real* g, real* state, Py_ssize_t n, double lr) noexcept nogil:
    # n <= PART. Selections instead of branches: the loops are vectorised.
    cdef Py_ssize_t i
    cdef double slope, old, new
    cdef double gradient[PART]
    cdef double h[PART]
    cdef double root[PART]
    for i in range(n):
        gradient[i] = g[i]
        h[i] = state[i]
        root[i] = h[i] * h[i] + gradient[i] * gradient[i]
    hf_roots(root, n)
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
    for b in prange((n + BLOCK - 1) // BLOCK, schedule="static", num_threads=_threads(n)):
        _adagrad_parts(
            &param[b * BLOCK], &grad[b * BLOCK], &state[b * BLOCK], min(<Py_ssize_t> BLOCK, n - b * BLOCK), lr
        )


cdef void _adagrad_rows(
    real[:, ::1] param, const int64_t[::1] rows, const real[:, ::1] grad, real[:, ::1] state, double lr
) noexcept nogil:
    cdef Py_ssize_t n = rows.shape[0], width = param.shape[1], i
    for i in prange(n, schedule="static", num_threads=_threads(n * width)):
        _adagrad_parts(&param[rows[i], 0], &grad[i, 0], &state[rows[i], 0], width, lr)


def adagrad(param, grad, state, double lr):
    """h = sqrt(h**2 + g**2), then a step of lr g / h."""
    if param.dtype.itemsize == 4:
        _adagrad[float](param, grad, state, lr)
    else:
        _adagrad[double](param, grad, state, lr)


def adagrad_rows(param, rows, grad, state, double lr):
    """The same at the given rows."""
    if param.shape[1] == 0:  # no element has an address
        return
    if param.dtype.itemsize == 4:
        _adagrad_rows[float](param, rows, grad, state, lr)
    else:
        _adagrad_rows[double](param, rows, grad, state, lr)


# ------------------------------------------------------------------------------------------- Adam

cdef struct Adam:
    double lr
    double beta1
    double beta2
    double eps
    double rate           # lr / (1 - beta1**step)
    double scale          # 1 / sqrt(1 - beta2**step)


cdef Adam _settings(step, double lr, double beta1, double beta2, double eps):
    cdef Adam a
    a.lr, a.beta1, a.beta2, a.eps = lr, beta1, beta2, eps
    a.rate = lr / bias(beta1, step)
    a.scale = 1 / sqrt(<double> bias(beta2, step))
    return a


cdef inline void _store_moments(
    real* m, real* v, double* first, double* second, Py_ssize_t n
) noexcept nogil:
    # Selection and rounding apart, or the compiler keeps a branch.
    cdef Py_ssize_t i
    cdef double moment, least = FLT_MIN if real is float else DBL_MIN
    for i in range(n):
        moment = first[i]
        first[i] = 0.0 if fabs(moment) < least else moment
    for i in range(n):
        moment = second[i]
        second[i] = 0.0 if moment < least else moment
    for i in range(n):
        m[i] = <real> first[i]
    for i in range(n):
        v[i] = <real> second[i]


cdef void _adam_part(real* p, const real* g, real* m, real* v, Py_ssize_t n, Adam a) noexcept nogil:
    cdef Py_ssize_t i
    cdef double first[PART]
    cdef double second[PART]
    cdef double root[PART]
    for i in range(n):
        first[i] = a.beta1 * m[i] + (1 - a.beta1) * g[i]
    for i in range(n):
        second[i] = a.beta2 * v[i] + (1 - a.beta2) * (<double> g[i] * g[i])
        root[i] = second[i]
    hf_roots(root, n)
    for i in range(n):
        root[i] = a.rate * first[i] / (root[i] * a.scale + a.eps)
    for i in range(n):
        p[i] = <real> (p[i] - root[i])
    _store_moments(m, v, first, second, n)


cdef void _adam_parts(real* p, const real* g, real* m, real* v, Py_ssize_t n, Adam a) noexcept nogil:
    cdef Py_ssize_t part, i
    for part in range((n + PART - 1) // PART):
        i = part * PART
        _adam_part(p + i, g + i, m + i, v + i, min(<Py_ssize_t> PART, n - i), a)


cdef void _adam(
    real[::1] param, const real[::1] grad, real[::1] m, real[::1] v, Adam a
) noexcept nogil:
    cdef Py_ssize_t n = param.shape[0], b
    for b in prange((n + BLOCK - 1) // BLOCK, schedule="static", num_threads=_threads(n)):
        _adam_parts(
            &param[b * BLOCK], &grad[b * BLOCK], &m[b * BLOCK], &v[b * BLOCK],
            min(<Py_ssize_t> BLOCK, n - b * BLOCK), a,
        )


def adam(param, grad, m, v, step, double lr, double beta1, double beta2, double eps):
    """Kingma & Ba 2015, Alg. 1."""
    cdef Adam a = _settings(step, lr, beta1, beta2, eps)
    if param.dtype.itemsize == 4:
        _adam[float](param, grad, m, v, a)
    else:
        _adam[double](param, grad, m, v, a)


cdef double _power(const double* squares, int64_t n) noexcept nogil:
    # The base to the power n from its powers 1, 2, 4, 8, ...: the same bits on every device.
    cdef double result = 1.0
    while n > 0:
        if n & 1:
            result *= squares[0]
        squares += 1
        n >>= 1
    return result


cdef void _add_rest(
    const double* m, const double* root, Py_ssize_t n, double m_factor, double root_factor,
    const double* tail, Py_ssize_t top, double eps, double* motion,
) noexcept nogil:
    # Adds R of tables.py for moments m_factor m[i] and (root_factor root[i])**2, from the row `tail` of
    # their step, whose coefficients end at column `top`.
    cdef Py_ssize_t i, k
    cdef double centre = tail[CENTRE] * root_factor
    cdef double h, c = tail[top]
    cdef double inverse[PART]
    cdef double x[PART]
    cdef double total[PART]
    for i in range(n):
        h = centre * root[i]
        inverse[i] = 1 / (h + eps)
        x[i] = 2 * (h * inverse[i]) - 1
        total[i] = c
    for k in range(top - 1, CENTRE, -1):
        c = tail[k]
        for i in range(n):
            total[i] = total[i] * x[i] + c
    for i in range(n):
        motion[i] += m_factor * m[i] * inverse[i] * total[i]


cdef void _pass_over(
    real* p, real* m, real* v, Py_ssize_t n, int64_t start, int64_t stop, Adam a,
    const double[:, ::1] powers, const double[:, ::1] tail, int64_t closed,
) noexcept nogil:
    # Steps start + 1 to stop with zero gradient, for n <= PART numbers: one by one while the polynomials
    # are not exact yet or the steps are few, the others at once.
    cdef int64_t saturated = tail.shape[0] - 1, step, middle = max(start, closed)
    cdef Py_ssize_t top = tail.shape[1] - 1, i
    cdef double decay = 1.0, root_decay = 1.0, root_beta2 = sqrt(a.beta2), rate, scale
    cdef double m_factor = _power(&powers[0, 0], stop - start)
    cdef double v_factor = _power(&powers[1, 0], stop - start)
    cdef double first[PART]
    cdef double second[PART]
    cdef double root[PART]
    cdef double motion[PART]
    if stop - middle <= FEW:
        middle = stop
    for i in range(n):
        first[i] = m[i]
        second[i] = v[i]
        root[i] = second[i]
        motion[i] = 0
    hf_roots(root, n)
    for step in range(start + 1, middle + 1):
        decay *= a.beta1
        root_decay *= root_beta2
        rate = decay * tail[min(step, saturated), 0]
        scale = root_decay * tail[min(step, saturated), 1]
        for i in range(n):
            motion[i] += rate * first[i] / (scale * root[i] + a.eps)
    if middle < stop:
        _add_rest(
            first, root, n, decay, root_decay, &tail[min(middle, saturated), 0], top, a.eps, motion
        )
        _add_rest(
            first, root, n, -m_factor, sqrt(v_factor), &tail[min(stop, saturated), 0], top, a.eps, motion
        )
    for i in range(n):
        p[i] = <real> (p[i] - a.lr * motion[i])
    for i in range(n):
        first[i] *= m_factor
        second[i] *= v_factor
    _store_moments(m, v, first, second, n)


cdef void _catch_up_row(
    real* p, real* m, real* v, Py_ssize_t width, int64_t start, int64_t stop, Adam a,
    const double[:, ::1] powers, const double[:, ::1] tail, int64_t closed,
) noexcept nogil:
    cdef Py_ssize_t part, i
    start = max(start, <int64_t> 0)
    if start < stop:
        for part in range((width + PART - 1) // PART):
            i = part * PART
            _pass_over(
                p + i, m + i, v + i, min(<Py_ssize_t> PART, width - i), start, stop, a, powers, tail, closed
            )


cdef void _adam_rows(
    real[:, ::1] param, const int64_t[::1] rows, const real[:, ::1] grad, real[:, ::1] m, real[:, ::1] v,
    int64_t[::1] last, int64_t step, Adam a,
    const double[:, ::1] powers, const double[:, ::1] tail, int64_t closed,
) noexcept nogil:
    cdef Py_ssize_t n = rows.shape[0], width = param.shape[1], i
    cdef int64_t row
    for i in prange(n, schedule="dynamic", chunksize=ROWS, num_threads=_threads(n * width)):
        row = rows[i]
        _catch_up_row(
            &param[row, 0], &m[row, 0], &v[row, 0], width, last[row], step - 1, a, powers, tail, closed
        )
        _adam_parts(&param[row, 0], &grad[i, 0], &m[row, 0], &v[row, 0], width, a)
        last[row] = step


cdef void _adam_catch_up(
    real[:, ::1] param, const int64_t[::1] rows, real[:, ::1] m, real[:, ::1] v,
    int64_t[::1] last, int64_t step, Adam a,
    const double[:, ::1] powers, const double[:, ::1] tail, int64_t closed,
) noexcept nogil:
    cdef Py_ssize_t n = rows.shape[0], width = param.shape[1], i
    cdef int64_t row
    for i in prange(n, schedule="dynamic", chunksize=ROWS, num_threads=_threads(n * width)):
        row = rows[i]
        _catch_up_row(
            &param[row, 0], &m[row, 0], &v[row, 0], width, last[row], step, a, powers, tail, closed
        )
        last[row] = step


def adam_rows(
    param, rows, grad, m, v, last, step, double lr, double beta1, double beta2, double eps,
    powers, tail, closed,
):
    """Missed steps up to step - 1 with zero gradient, then the step, at the given rows."""
    cdef Adam a = _settings(step, lr, beta1, beta2, eps)
    if param.shape[1] == 0:
        last[rows] = step
        return
    if param.dtype.itemsize == 4:
        _adam_rows[float](param, rows, grad, m, v, last, step, a, powers, tail, closed)
    else:
        _adam_rows[double](param, rows, grad, m, v, last, step, a, powers, tail, closed)


def adam_catch_up(
    param, rows, m, v, last, step, double lr, double beta1, double beta2, double eps, powers, tail, closed
):
    """Missed steps up to `step` with zero gradient, at the given rows."""
    cdef Adam a = _settings(step, lr, beta1, beta2, eps)
    if param.shape[1] == 0:
        last[rows] = step
        return
    if param.dtype.itemsize == 4:
        _adam_catch_up[float](param, rows, m, v, last, step, a, powers, tail, closed)
    else:
        _adam_catch_up[double](param, rows, m, v, last, step, a, powers, tail, closed)
