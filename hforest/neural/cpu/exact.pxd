"""One sample and one tree in logarithms: slow, used if products of decisions leave the dtype's range."""

from libc.stdint cimport int32_t

ctypedef fused real:
    float
    double


cdef struct Path:
    # A sample and a tree: positions of decision functions (`index`, or NULL), and the stride of the leaves'
    # probabilities of the sample's class.
    Py_ssize_t n_vertices
    const int32_t* index
    Py_ssize_t step


cdef double log_likelihood(const Path* path, const real* row, const real* leaf, double* logs) noexcept nogil
cdef void log_shares(const Path* path, const real* row, const double* logs, double* a) noexcept nogil
cdef void log_gradient(
    const Path* path, const real* row, const double* a, double weight, real* grad
) noexcept nogil
