"""Projections on the CPU. A thread owns a block of samples, whose rows stay in cache for all projections."""

from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t

cdef extern from "cpu_features.h" nogil:
    int omp_get_max_threads()

ctypedef fused real:
    float
    double

cdef enum:
    BLOCK = 64            # samples of a block
    SMALL = 1 << 14       # values below which a second thread does not pay


cdef void _project_block(
    const real[:, ::1] x, const int32_t* samples, const int64_t[::1] start, const int32_t[::1] index,
    const real[::1] weight, Py_ssize_t first, Py_ssize_t last, real[:, ::1] values,
) noexcept nogil:
    cdef Py_ssize_t p, i, s
    cdef int64_t j
    cdef double total
    for p in range(start.shape[0] - 1):
        for i in range(first, last):
            s = i if samples == NULL else samples[i]
            total = 0
            for j in range(start[p], start[p + 1]):
                total = total + <double> weight[j] * <double> x[s, index[j]]
            values[p, i] = <real> total


cdef void _project(
    const real[:, ::1] x, const int32_t* samples, const int64_t[::1] start, const int32_t[::1] index,
    const real[::1] weight, real[:, ::1] values,
) noexcept nogil:
    cdef Py_ssize_t n = values.shape[1], block
    cdef int threads = 1 if values.shape[0] * n < SMALL else omp_get_max_threads()
    for block in prange((n + BLOCK - 1) // BLOCK, schedule="static", num_threads=threads):
        _project_block(
            x, samples, start, index, weight, block * BLOCK, min(n, (block + 1) * BLOCK), values
        )


def project(x, start, index, weight, values):
    """values[p, s] = sum over the entries j of projection p, in their order, of weight[j] x[s, index[j]]."""
    if x.dtype.itemsize == 4:
        _project[float](x, NULL, start, index, weight, values)
    else:
        _project[double](x, NULL, start, index, weight, values)


def project_some(x, samples, start, index, weight, values):
    """The same for some rows of x."""
    cdef const int32_t[::1] rows = samples
    if x.dtype.itemsize == 4:
        _project[float](x, &rows[0], start, index, weight, values)
    else:
        _project[double](x, &rows[0], start, index, weight, values)
