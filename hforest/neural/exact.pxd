"""One sample and one tree in logarithms, slow: where products of decisions leave the range of the dtype."""

from libc.stdint cimport int32_t

ctypedef fused real:
    float
    double


cdef struct Path:
    # A sample and a tree: decision functions (by `index` if it is not NULL), and the leaves' probabilities of
    # the sample's class, `step` apart.
    Py_ssize_t n_vertices
    const int32_t* index
    Py_ssize_t step


cdef double log_likelihood(const Path* path, const real* row, const real* leaf, double* logs) noexcept nogil
cdef void log_shares(const Path* path, const real* row, const double* logs, double* a) noexcept nogil
cdef void log_gradient(
    const Path* path, const real* row, const double* a, double weight, real* grad
) noexcept nogil
