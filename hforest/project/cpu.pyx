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
    const real[:, ::1] x, const int32_t* samples, const int64_t[::1] indptr, const int32_t[::1] indices,
    const real[::1] data, Py_ssize_t first, Py_ssize_t last, real[:, ::1] values,
) noexcept nogil:
    cdef Py_ssize_t p, i, s
    cdef int64_t j
    cdef double total
    for p in range(indptr.shape[0] - 1):
        for i in range(first, last):
            s = i if samples == NULL else samples[i]
            total = 0
            for j in range(indptr[p], indptr[p + 1]):
                total = total + <double> data[j] * <double> x[s, indices[j]]
            values[p, i] = <real> total


cdef void _project(
    const real[:, ::1] x, const int32_t* samples, const int64_t[::1] indptr, const int32_t[::1] indices,
    const real[::1] data, real[:, ::1] values,
) noexcept nogil:
    cdef Py_ssize_t n = values.shape[1], block
    cdef int threads = 1 if values.shape[0] * n < SMALL else omp_get_max_threads()
    for block in prange((n + BLOCK - 1) // BLOCK, schedule="static", num_threads=threads):
        _project_block(
            x, samples, indptr, indices, data, block * BLOCK, min(n, (block + 1) * BLOCK), values
        )


def project(x, indptr, indices, data, values):
    """values[p, s] = sum over the entries j of projection p, in their order, of data[j] x[s, indices[j]]."""
    if x.dtype.itemsize == 4:
        _project[float](x, NULL, indptr, indices, data, values)
    else:
        _project[double](x, NULL, indptr, indices, data, values)


def project_some(x, samples, indptr, indices, data, values):
    """The same for some rows of x."""
    cdef const int32_t[::1] rows = samples
    if x.dtype.itemsize == 4:
        _project[float](x, &rows[0], indptr, indices, data, values)
    else:
        _project[double](x, &rows[0], indptr, indices, data, values)
