"""The softmax loss on the CPU, some samples at a time; exponentials and logarithms are NumPy's.

    score (n_samples, n_classes)  |  2 0 1  |        of one sample with label 2
    p     (n_classes,) float64    |  0 -2 -1  |      minus the greatest score
                                  |  1 0.14 0.37  |  numpy.exp
                                  |  0.67 0.09 -0.76  |  divided by their sum, minus 1 at the label
"""

import numpy as np

from libc.stdint cimport int32_t

from hforest.core.machine cimport some_outside

ctypedef fused real:
    float
    double

cdef enum:
    CHUNK = 1 << 15  # scores that are read at a time: 256 KiB of float64
    FEW = 8          # numbers from which NumPy has as many sums
    MANY = 128       # numbers up to which it adds without recursion


cdef void _shift(
    const real[:, ::1] scores, const int32_t[::1] labels, double[:, ::1] p, double[::1] of_label
) noexcept nogil:
    # Writes the scores minus the greatest one of their sample to p, and those of the labels to `of_label`.
    cdef Py_ssize_t i, k
    cdef double greatest
    for i in range(scores.shape[0]):
        greatest = scores[i, 0]
        for k in range(1, scores.shape[1]):
            greatest = scores[i, k] if scores[i, k] > greatest else greatest
        for k in range(scores.shape[1]):
            p[i, k] = scores[i, k] - greatest
        of_label[i] = p[i, labels[i]]


cdef double _sum(const double* a, Py_ssize_t n) noexcept nogil:
    # Returns the sum of numbers in the order of numpy.sum.
    cdef Py_ssize_t i, j, k, half
    cdef double total = 0
    cdef double[8] sums
    if n > MANY:
        half = n // 2 // FEW * FEW
        return _sum(a, half) + _sum(a + half, n - half)
    i = n // FEW * FEW
    if i:
        for j in range(FEW):
            sums[j] = a[j]
        for k in range(1, n // FEW):
            for j in range(FEW):
                sums[j] += a[k * FEW + j]
        total = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]))
    for j in range(i, n):
        total += a[j]
    return total


cdef void _divide(double[:, ::1] p, const int32_t[::1] labels, double[::1] total) noexcept nogil:
    # Writes the sums of exponentials p to `total`, and to p their shares minus 1 at the labels.
    cdef Py_ssize_t i, k
    for i in range(p.shape[0]):
        total[i] = _sum(&p[i, 0], p.shape[1])
        for k in range(p.shape[1]):
            p[i, k] /= total[i]
        p[i, labels[i]] -= 1


def softmax_loss(scores, labels):
    """Returns the mean loss of at least one sample, and its gradient (n_samples, n_classes).

    scores  IN (n_samples, n_classes)
    labels  IN (n_samples,) int32, 0 to n_classes - 1
    """
    cdef Py_ssize_t first, n = scores.shape[0], size = max(1, CHUNK // scores.shape[1])
    cdef bint single = scores.itemsize == 4
    cdef const int32_t[::1] index = labels
    if some_outside(&index[0], n, scores.shape[1]):  # may be so inside of hforest.unchecked()
        raise IndexError("y: expected labels 0 to n_classes - 1, got others; renumber the classes")
    wide, grad = np.empty((min(size, n), scores.shape[1])), np.empty_like(scores)
    total, of_label = np.empty(n), np.empty(n)
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, n, size):
            part = slice(first, first + size)
            p = wide[: len(grad[part])]
            if single:
                _shift[float](scores[part], labels[part], p, of_label[part])
            else:
                _shift[double](scores[part], labels[part], p, of_label[part])
            np.exp(p, out=p)
            _divide(p, labels[part], total[part])
            np.divide(p, n, out=grad[part], casting="same_kind")
        return float((np.log(total) - of_label).sum()) / n, grad
