"""Projections on the CPU. A thread owns a block of samples, whose rows stay in cache for all projections."""

from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t

from hforest.core.machine cimport (
    hf_begin, hf_end, hf_stopped_after, hf_threads_for, hf_units, hf_watch, raise_interrupt, start_watch,
)

ctypedef fused real:
    float
    double

cdef enum:
    BLOCK = 64            # samples per block
    VALUE_NS = 15         # nanoseconds per value


cdef void _project_block(
    const real[:, ::1] x, const int32_t[::1] samples, const int64_t[::1] indptr, const int32_t[::1] indices,
    const real[::1] data, Py_ssize_t first, Py_ssize_t last, real[:, ::1] values, hf_watch* watch,
) noexcept nogil:
    cdef Py_ssize_t p, i, s
    cdef int64_t j, n_steps = 0
    cdef double total
    for p in range(indptr.shape[0] - 1):
        if hf_stopped_after(watch, &n_steps, (last - first) * (indptr[p + 1] - indptr[p] + 1)):
            return
        for i in range(first, last):
            s = i if samples is None else samples[i]
            total = 0
            for j in range(indptr[p], indptr[p + 1]):
                total = total + <double> data[j] * <double> x[s, indices[j]]
            values[p, i] = <real> total


cdef int _project(
    const real[:, ::1] x, const int32_t[::1] samples, const int64_t[::1] indptr, const int32_t[::1] indices,
    const real[::1] data, real[:, ::1] values,
) except -1:
    # Projects the rows of x in `samples`; all rows if it is None.
    cdef int64_t n = values.shape[1], n_blocks = (n + BLOCK - 1) // BLOCK, n_units, block
    cdef int threads = hf_threads_for(<double> VALUE_NS * values.shape[0] * n)
    cdef hf_watch watch
    start_watch(&watch)
    n_units = hf_units(&watch, n_blocks, threads)
    for block in prange(n_units, schedule="dynamic", num_threads=threads, nogil=True):
        if hf_begin(&watch, block):
            _project_block(
                x, samples, indptr, indices, data, block * BLOCK, min(n, (block + 1) * BLOCK), values, &watch
            )
            hf_end(&watch)
    return raise_interrupt(&watch)


def project_some(x, samples, indptr, indices, data, values):
    """Writes values[p, i] = sum over the entries j of projection p, in order, of data[j] x[s, indices[j]],
    where s is samples[i], or i if `samples` is None.
    """
    if x.dtype.itemsize == 4:
        _project[float](x, samples, indptr, indices, data, values)
    else:
        _project[double](x, samples, indptr, indices, data, values)
