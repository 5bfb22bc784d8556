"""The softmax loss on the CPU, some samples at a time, in float64.

    score (n_samples, n_classes)  |  2 0 1  |        of one sample with label 2
    p     (n_classes,) float64    |  0 -2 -1  |      minus the greatest score
                                  |  1 0.14 0.37  |  exp
                                  |  0.67 0.09 -0.76  |  divided by their sum, minus 1 at the label
"""

import numpy as np

from libc.stdint cimport int32_t, uint64_t
from libc.string cimport memset

from hforest.core.machine cimport hf_enter_state, hf_leave_state, simd_path, some_outside
from hforest.core.series cimport hf_exps, hf_logs

cdef extern from "layers/sums.h" nogil:
    enum:
        HF_WARP, HF_PARTS

ctypedef fused real:
    float
    double

cdef enum:
    CHUNK = 1 << 12  # scores that are read at a time: 32 KiB of float64
    FEW = 16         # scores that are compared together


cdef inline double _in_order(const double* a, Py_ssize_t n) noexcept nogil:
    # Returns the sum of at least one number, in order.
    cdef Py_ssize_t i
    cdef double total = a[0]
    for i in range(1, n):
        total += a[i]
    return total


cdef double _sum(const double* a, Py_ssize_t n) noexcept nogil:
    # Returns the sum of numbers in the order of sums.h.
    cdef Py_ssize_t first = 0, i
    cdef double[HF_WARP] lanes
    if n <= HF_WARP:
        return _in_order(a, n)
    memset(lanes, 0, sizeof(lanes))
    while first < n:
        for i in range(min(<Py_ssize_t> HF_WARP, n - first)):
            lanes[i] += a[first + i]
        first += HF_WARP
    return _in_order(lanes, HF_WARP)


cdef double _mean(const double* a, Py_ssize_t n) noexcept nogil:
    # Returns the mean of numbers in the order of sums.h.
    cdef Py_ssize_t i
    cdef double[HF_PARTS] parts
    cdef double total
    memset(parts, 0, sizeof(parts))
    for i in range(n):
        parts[i % HF_PARTS] += a[i]
    total = _in_order(parts, HF_WARP)
    for i in range(1, HF_PARTS // HF_WARP):
        total += _in_order(parts + i * HF_WARP, HF_WARP)
    return total / n


cdef real _greatest(const real* a, Py_ssize_t n) noexcept nogil:
    # Returns the greatest of at least one number; FEW at a time, so that the compiler uses vectors.
    cdef Py_ssize_t k = 0, i
    cdef real[FEW] lanes
    cdef real greatest = a[0]
    if n >= FEW:
        for i in range(FEW):
            lanes[i] = greatest
        while k + FEW <= n:
            for i in range(FEW):
                lanes[i] = a[k + i] if a[k + i] > lanes[i] else lanes[i]
            k += FEW
        for i in range(FEW):
            greatest = lanes[i] if lanes[i] > greatest else greatest
    for i in range(k, n):
        greatest = a[i] if a[i] > greatest else greatest
    return greatest


cdef void _shift(
    const real[:, ::1] scores, const int32_t[::1] labels, Py_ssize_t first, Py_ssize_t count, double* p,
    double* of_label,
) noexcept nogil:
    # Writes the scores minus the greatest one of their sample to p, and those of the labels to `of_label`.
    cdef Py_ssize_t i, k, n = scores.shape[1]
    cdef const real* row
    cdef double greatest
    for i in range(count):
        row = &scores[first + i, 0]
        greatest = _greatest(row, n)
        for k in range(n):
            p[i * n + k] = row[k] - greatest
        of_label[i] = p[i * n + labels[first + i]]


cdef void _divide(
    const int32_t[::1] labels, Py_ssize_t first, Py_ssize_t count, double* p, double* total, real[:, ::1] grad
) noexcept nogil:
    # Writes the sums of exponentials p to `total`, and to grad their shares minus 1 at the labels, divided by
    # n_samples.
    cdef Py_ssize_t i, k, n = grad.shape[1]
    cdef double n_samples = grad.shape[0], sum, share
    cdef real* row
    cdef double* of_sample
    for i in range(count):
        row, of_sample = &grad[first + i, 0], p + i * n
        sum = total[i] = _sum(of_sample, n)
        share = sum * n_samples
        for k in range(n):
            row[k] = <real> (of_sample[k] / share)
        k = labels[first + i]
        row[k] = <real> ((of_sample[k] / sum - 1) / n_samples)


cdef object _softmax_loss(const real[:, ::1] scores, const int32_t[::1] labels, real[:, ::1] grad):
    # Returns the mean loss, and writes its gradient.
    cdef Py_ssize_t n = scores.shape[0], n_classes = scores.shape[1], first = 0, count, i
    cdef Py_ssize_t size = min(n, max(<Py_ssize_t> 1, CHUNK // n_classes))
    cdef double[::1] p = np.empty(size * n_classes), total = np.empty(n), of_label = np.empty(n)
    cdef double loss
    cdef int path = simd_path()
    cdef uint64_t state
    with nogil:
        state = hf_enter_state()
        while first < n:
            count = min(size, n - first)
            _shift(scores, labels, first, count, &p[0], &of_label[first])
            hf_exps(path, &p[0], count * n_classes, &p[0])
            _divide(labels, first, count, &p[0], &total[first], grad)
            first += size
        hf_logs(path, &total[0], n, &total[0])
        for i in range(n):
            total[i] -= of_label[i]
        loss = _mean(&total[0], n)
        hf_leave_state(state)
    return loss


def softmax_loss(scores, labels):
    """Returns the mean loss of at least one sample, and its gradient (n_samples, n_classes).

    scores  IN (n_samples, n_classes)
    labels  IN (n_samples,) int32, 0 to n_classes - 1
    """
    cdef const int32_t[::1] index = labels
    if some_outside(&index[0], index.shape[0], scores.shape[1]):  # may be so inside of hforest.unchecked()
        raise IndexError("y: expected labels 0 to n_classes - 1, got others; renumber the classes")
    grad = np.empty_like(scores)
    if scores.itemsize == 4:
        return _softmax_loss[float](scores, index, grad), grad
    return _softmax_loss[double](scores, index, grad), grad
