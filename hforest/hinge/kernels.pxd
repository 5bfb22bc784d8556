# C kernels that large and small calls share.
from libc.stdint cimport int32_t

cdef extern from "hinge/plain.h" nogil:
    void hf_route_plain_f32(
        const float* x, Py_ssize_t n_features, Py_ssize_t n, const float*, const int32_t*,
        Py_ssize_t n_vertices, int depth, int fern, Py_ssize_t count,
        int32_t*, float*, int32_t*, Py_ssize_t step)
    void hf_route_plain_f64(
        const double* x, Py_ssize_t n_features, Py_ssize_t n, const double*, const int32_t*,
        Py_ssize_t n_vertices, int depth, int fern, Py_ssize_t count,
        int32_t*, double*, int32_t*, Py_ssize_t step)

cdef extern from "hinge/lanes.h" nogil:
    int HF_WIDTH
    int hf_has_lanes(int path, int itemsize, int depth)
    void hf_route_lanes(
        const float* x, Py_ssize_t n_features, Py_ssize_t n, const float*, const int32_t*,
        int n_vertices, int depth, int count, int32_t*, float*, int32_t*, Py_ssize_t step,
    )

cdef extern from "hinge/sums.h" nogil:
    void hf_sum_f32(
        int path, const int32_t* leaf, const float* margin, const float* weights, ptrdiff_t n_trees,
        ptrdiff_t n_leaves, ptrdiff_t n_outputs, double divisor, double* total, float* y)
    void hf_sum_f64(
        int path, const int32_t* leaf, const double* margin, const double* weights, ptrdiff_t n_trees,
        ptrdiff_t n_leaves, ptrdiff_t n_outputs, double divisor, double* total, double* y)
