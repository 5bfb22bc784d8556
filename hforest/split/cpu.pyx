"""Impurities and best splits on the CPU. A thread owns a candidate, so no sum is shared."""

from cython.parallel cimport parallel
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

from hforest.core.machine cimport (
    hf_share, hf_stop, hf_stopped_after, hf_take, hf_threads, hf_watch, raise_interrupt, start_watch,
)

cdef extern from "core/score.h" nogil:
    int HF_GINI, HF_ENTROPY, HF_SQUARED
    double hf_xlogx(double a)

cdef extern from "split/scan.h" nogil:
    int hf_best_of(
        const double* value, const int32_t* y, const double* outputs, const double* weight, int64_t n,
        int64_t n_out, int criterion, int64_t min_leaf, int64_t max_bins, int single, double* threshold,
        double* gain, hf_watch* watch,
    )

ctypedef fused real:
    float
    double

cdef enum:
    SMALL = 1 << 12       # numbers below which a second thread does not pay


cdef void _impurity(
    const real[:, ::1] counts, int criterion, real[::1] out, hf_watch* watch
) noexcept nogil:
    cdef Py_ssize_t i, k
    cdef int64_t n_steps = 0
    cdef double weight, total, p
    for i in range(counts.shape[0]):
        if hf_stopped_after(watch, &n_steps, counts.shape[1]):
            return
        if criterion == HF_SQUARED:
            weight = counts[i, 0]
            p = counts[i, 1] / weight if weight > 0 else 0.0
            total = counts[i, 2] / weight - p * p if weight > 0 else 0.0
            out[i] = <real> max(total, 0.0)
            continue
        weight = total = 0
        for k in range(counts.shape[1]):
            weight = weight + counts[i, k]
        if weight <= 0:
            out[i] = 0
            continue
        for k in range(counts.shape[1]):
            p = counts[i, k] / weight
            total = total + (p * p if criterion == HF_GINI else hf_xlogx(p))
        out[i] = <real> ((1.0 if criterion == HF_GINI else 0.0) - total)


def impurity(counts, int criterion, out):
    """Writes H of every row; 0 if a row is empty."""
    cdef hf_watch watch
    start_watch(&watch)
    if counts.dtype.itemsize == 4:
        _impurity[float](counts, criterion, out, &watch)
    else:
        _impurity[double](counts, criterion, out, &watch)
    raise_interrupt(&watch)


cdef int _candidate(
    const real* value, const int32_t* y, const double* outputs, const double* weight, Py_ssize_t n,
    Py_ssize_t n_out, int criterion, int64_t min_leaf, int64_t max_bins, real* threshold, double* gain,
    hf_watch* watch,
) noexcept nogil:
    # Returns 0 if memory is out.
    cdef Py_ssize_t i
    cdef double best
    cdef double* wide = <double*> malloc(n * sizeof(double))
    cdef int done
    if wide == NULL:
        return 0
    for i in range(n):
        wide[i] = value[i]
    done = hf_best_of(
        wide, y, outputs, weight, n, n_out, criterion, min_leaf, max_bins, sizeof(real) == 4, &best, gain,
        watch,
    )
    threshold[0] = <real> best
    free(wide)
    return done


cdef void _splits(
    const real[:, ::1] values, const int32_t* y, const double* outputs, const double* weight,
    Py_ssize_t n_out, int criterion, int64_t min_leaf, int64_t max_bins, real[::1] threshold,
    double[::1] gain, hf_watch* watch,
) noexcept nogil:
    cdef Py_ssize_t n_candidates = values.shape[0], n = values.shape[1]
    cdef int64_t c = 0
    hf_share(watch, n_candidates)
    with parallel(num_threads=1 if n_candidates * n < SMALL else hf_threads()):
        c = hf_take(watch)
        while c >= 0:
            if not _candidate(
                &values[c, 0], y, outputs, weight, n, n_out, criterion, min_leaf, max_bins, &threshold[c],
                &gain[c], watch,
            ):
                hf_stop(watch)
            c = hf_take(watch)


cdef int _splits_of(
    values, const int32_t* y, const double* outputs, const double[::1] weights, Py_ssize_t n_out,
    int criterion, int64_t min_leaf, int64_t max_bins, threshold, double[::1] gain,
) except -1:
    cdef const float[:, ::1] values4
    cdef const double[:, ::1] values8
    cdef float[::1] threshold4
    cdef double[::1] threshold8
    cdef hf_watch watch
    start_watch(&watch)
    if values.dtype.itemsize == 4:
        values4, threshold4 = values, threshold
        with nogil:
            _splits[float](
                values4, y, outputs, &weights[0], n_out, criterion, min_leaf, max_bins, threshold4, gain,
                &watch,
            )
    else:
        values8, threshold8 = values, threshold
        with nogil:
            _splits[double](
                values8, y, outputs, &weights[0], n_out, criterion, min_leaf, max_bins, threshold8, gain,
                &watch,
            )
    raise_interrupt(&watch)
    if watch.stopped:
        raise MemoryError(f"values: no memory to sort {values.shape[1]} of them; pass fewer samples")
    return 0


def class_splits(
    values, const int32_t[::1] y, const double[::1] weights, Py_ssize_t n_classes, int criterion,
    int64_t min_leaf, int64_t max_bins, threshold, gain,
):
    """Writes the best threshold and gain of every candidate, for classes."""
    _splits_of(values, &y[0], NULL, weights, n_classes, criterion, min_leaf, max_bins, threshold, gain)


def target_splits(
    values, const double[:, ::1] y, const double[::1] weights, int64_t min_leaf, int64_t max_bins,
    threshold, gain,
):
    """The same for squared error; y (n, n_outputs) holds targets minus their mean."""
    _splits_of(
        values, NULL, &y[0, 0], weights, y.shape[1], HF_SQUARED, min_leaf, max_bins, threshold, gain
    )
