"""The margin with an inner product at each vertex, r = f . x - t.

Lay et al. 2018 have a pool of inner products instead (Fig. 2b, section 5); Kontschieder et al. 2015 have one
inner product per vertex.
"""

from hforest.core.machine cimport simd_path
from hforest.hinge.cpu.forest cimport real

cdef extern from "hinge/cpu/simd/projection.h" nogil:
    const hf_margin* hf_projection_of(int path, int itemsize)

cdef enum:
    LANES = 8             # partial sums of an inner product: element k is added to lane k % LANES

cdef hf_margin single, wide
single.values, single.pull_x, single.pull_features = _values_f32, _pull_x_f32, _pull_features_f32
wide.values, wide.pull_x, wide.pull_features = _values_f64, _pull_x_f64, _pull_features_f64


cdef const hf_margin* projection_margin(int itemsize) noexcept nogil:
    cdef const hf_margin* body = hf_projection_of(simd_path(), itemsize)
    if body != NULL:
        return body
    return &single if itemsize == 4 else &wide


cdef inline double _inner_product(const real* a, const real* b, Py_ssize_t n) noexcept nogil:
    # Returns the inner product of n elements; the partial sums are added in the order of gradients.pyx.
    cdef double lane[LANES]
    cdef Py_ssize_t k = 0, i
    for i in range(LANES):
        lane[i] = 0
    while k + LANES <= n:
        for i in range(LANES):
            lane[i] += <double> a[k + i] * <double> b[k + i]
        k += LANES
    for i in range(n - k):
        lane[i] += <double> a[k + i] * <double> b[k + i]
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]))


cdef inline void _add_rows(
    int count, const real** rows, const double* slope, Py_ssize_t n, real* grad
) noexcept nogil:
    cdef int i
    cdef Py_ssize_t k
    for i in range(count):
        for k in range(n):
            grad[k] += <real> slope[i] * rows[i][k]


cdef inline void _add_wide(
    int count, const real** rows, const double* slope, Py_ssize_t first, Py_ssize_t n, double* total
) noexcept nogil:
    cdef int i
    cdef Py_ssize_t k
    for i in range(count):
        for k in range(n):
            total[k] += slope[i] * <double> rows[i][first + k]


cdef void _values_f32(
    int count, hf_vectors features, hf_vectors samples, Py_ssize_t n, double* value
) noexcept nogil:
    cdef int i
    for i in range(count):
        value[i] = _inner_product(<const float*> features[i], <const float*> samples[i], n)


cdef void _values_f64(
    int count, hf_vectors features, hf_vectors samples, Py_ssize_t n, double* value
) noexcept nogil:
    cdef int i
    for i in range(count):
        value[i] = _inner_product(<const double*> features[i], <const double*> samples[i], n)


cdef void _pull_x_f32(
    int count, hf_vectors features, const void* sample, const double* slope, Py_ssize_t n, void* grad
) noexcept nogil:
    _add_rows(count, <const float**> features, slope, n, <float*> grad)


cdef void _pull_x_f64(
    int count, hf_vectors features, const void* sample, const double* slope, Py_ssize_t n, void* grad
) noexcept nogil:
    _add_rows(count, <const double**> features, slope, n, <double*> grad)


cdef void _pull_features_f32(
    int count, hf_vectors samples, const void* features, const double* slope, Py_ssize_t first,
    Py_ssize_t n, double* total,
) noexcept nogil:
    _add_wide(count, <const float**> samples, slope, first, n, total)


cdef void _pull_features_f64(
    int count, hf_vectors samples, const void* features, const double* slope, Py_ssize_t first,
    Py_ssize_t n, double* total,
) noexcept nogil:
    _add_wide(count, <const double**> samples, slope, first, n, total)
