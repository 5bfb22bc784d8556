"""exp, log, log1p and cos of arrays, with the same bits on every processor (series.h).

Each takes real numbers of any shape. The result is float32 for float32, computed in float64 and rounded once,
else float64.
"""

import numpy as np

from libc.stdint cimport uint64_t

from hforest.core.machine cimport hf_enter_state, hf_leave_state, simd_path

ctypedef void (*hf_function)(int path, const double* a, Py_ssize_t n, double* out) noexcept nogil


cdef void _log1ps(int path, const double* a, Py_ssize_t n, double* out) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = hf_log1p(a[i])


cdef void _cosines(int path, const double* a, Py_ssize_t n, double* out) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = hf_cos_of_turns(a[i])


cdef object _of(a, hf_function function):
    # Returns a function of an array, or a scalar for a scalar.
    rounded = getattr(a, "dtype", None) == np.float32
    result = np.array(a, np.float64, order="C")
    cdef double[::1] numbers = result.reshape(-1)
    cdef uint64_t state
    if numbers.shape[0]:
        with nogil:
            state = hf_enter_state()
            function(simd_path(), &numbers[0], numbers.shape[0], &numbers[0])
            hf_leave_state(state)
    if rounded:
        with np.errstate(over="ignore", under="ignore"):
            result = result.astype(np.float32)
    return result[()]


def exp(a):
    """Returns exp(a); infinity from about 709.8 on."""
    return _of(a, hf_exps)


def log(a):
    """Returns the natural logarithm of a: -infinity of 0, NaN of negative numbers, without a warning."""
    return _of(a, hf_logs)


def log1p(a):
    """Returns log(1 + a), exact to a unit in the last place also of small numbers."""
    return _of(a, _log1ps)


def cos_of_turns(a):
    """Returns cos(2 pi a) of numbers below 2**50."""
    return _of(a, _cosines)
