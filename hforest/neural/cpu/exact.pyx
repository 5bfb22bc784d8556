"""One sample and one tree in logarithms: slow, used if products of decisions leave the dtype's range."""

from libc.math cimport HUGE_VAL, fabs

from hforest.core.series cimport hf_exp, hf_log, hf_log1p


cdef inline double _log_decision(double f) noexcept nogil:
    # Returns log sigmoid(f).
    return f - hf_log1p(hf_exp(f)) if f < 0 else -hf_log1p(hf_exp(-f))


cdef inline Py_ssize_t _function(const Path* path, Py_ssize_t i) noexcept nogil:
    return path.index[i] if path.index != NULL else i


cdef double log_likelihood(const Path* path, const real* row, const real* leaf, double* logs) noexcept nogil:
    # Writes the log likelihood below vertex or leaf i to logs[i]; returns that of the root, log P.
    cdef Py_ssize_t i
    cdef double f, left, right, high, low
    for i in range(path.n_vertices + 1):
        logs[path.n_vertices + i] = hf_log(<double> leaf[i * path.step])
    for i in range(path.n_vertices - 1, -1, -1):
        f = row[_function(path, i)]
        left = _log_decision(f) + logs[2 * i + 1]
        right = _log_decision(-f) + logs[2 * i + 2]
        high = left if left > right else right
        low = right if left > right else left
        logs[i] = high if high == -HUGE_VAL else high + hf_log1p(hf_exp(low - high))
    return logs[0]


cdef void log_shares(const Path* path, const real* row, const double* logs, double* a) noexcept nogil:
    # Writes the share of P from below vertex or leaf i (A in Zhang 2017) to a[i]; all are 0 if P is 0.
    cdef Py_ssize_t i
    cdef double f
    a[0] = logs[0] != -HUGE_VAL
    for i in range(path.n_vertices):
        f = row[_function(path, i)]
        a[2 * i + 1] = a[2 * i + 2] = 0
        if a[i] > 0:
            a[2 * i + 1] = a[i] * hf_exp(_log_decision(f) + logs[2 * i + 1] - logs[i])
            a[2 * i + 2] = a[i] * hf_exp(_log_decision(-f) + logs[2 * i + 2] - logs[i])


cdef void log_gradient(
    const Path* path, const real* row, const double* a, double weight, real* grad
) noexcept nogil:
    # Adds weight (d A_right - (1 - d) A_left) to grad.
    cdef Py_ssize_t i, at
    cdef double f, e, high, low, d, c
    for i in range(path.n_vertices):
        at = _function(path, i)
        f = row[at]
        e = hf_exp(-fabs(f))
        high = 1 / (1 + e)
        low = e / (1 + e)
        d = low if f < 0 else high
        c = high if f < 0 else low
        grad[at] += <real> (weight * (d * a[2 * i + 2] - c * a[2 * i + 1]))
