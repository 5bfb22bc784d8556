"""Impurities and best splits on the CPU. A thread owns a candidate, so threads share no sum."""

from cython.parallel cimport prange
from libc.math cimport INFINITY, NAN
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from hforest.core.arena cimport hf_arena, release, take
from hforest.core.machine cimport (
    hf_begin, hf_end, hf_stop, hf_stopped_after, hf_threads_for, hf_units, hf_watch, raise_interrupt,
    raise_stopped, start_watch,
)
from hforest.core.score cimport (
    HF_GINI, HF_SQUARED_ERROR, hf_add_share, hf_beats, hf_between_f32, hf_between_f64, hf_impurity,
    hf_node_score, require_criteria,
)

cdef extern from "core/order.h" nogil:
    uint64_t hf_ordered(double a)
    int hf_sort(
        uint64_t* key, uint32_t* index, uint64_t* key2, uint32_t* index2, int64_t n, hf_watch* watch
    )

ctypedef fused real:
    float
    double

require_criteria(__name__)

cdef enum:
    VALUE_NS = 60         # nanoseconds per value, which is sorted
    EXACT = 1 << 26       # sums of integers below this are exact in any order, and so are products of two


cdef struct Task:
    # The arguments that all candidates share: n samples with classes, or n rows of n_sums centred targets.
    const int32_t* y          # (n,), or NULL
    const double* outputs     # (n, n_sums), or NULL
    const double* weight      # (n,)
    int64_t n
    int64_t n_sums            # number of classes or outputs
    int criterion
    int64_t min_leaf
    int64_t max_bins
    hf_watch* watch


cdef struct Scan:
    # The state of a candidate's scan: samples in the order of their values, and sums of both sides.
    uint64_t* key             # (n,), the values as sortable integers, or their bins
    uint32_t* index           # (n,)
    double* total             # (n_sums,)
    double* left
    double* right
    double total_weight
    double left_weight
    # Squares of the sums; if all weights are integers, they are updated instead of summed again.
    bint is_whole
    double left_square
    double right_square
    double gain               # OUT: gain of the best split, or -inf


cdef int _impurity(const real[:, ::1] counts, int criterion, real[::1] out) except -1:
    cdef Py_ssize_t i, k
    cdef int64_t n_steps = 0
    cdef double weight, total, p
    cdef hf_watch watch
    start_watch(&watch)
    with nogil:
        for i in range(counts.shape[0]):
            if hf_stopped_after(&watch, &n_steps, counts.shape[1]):
                break
            if criterion == HF_SQUARED_ERROR:
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
                total = hf_add_share(criterion, total, counts[i, k] / weight)
            out[i] = <real> hf_impurity(criterion, total)
    return raise_interrupt(&watch)


def impurity(counts, int criterion, out):
    """Writes the impurity H of every row to out; 0 if a row is empty."""
    if counts.dtype.itemsize == 4:
        _impurity[float](counts, criterion, out)
    else:
        _impurity[double](counts, criterion, out)


cdef void _make_bins(const Task* t, uint64_t* key) noexcept nogil:
    # If there are more than max_bins distinct values, replaces the sorted keys by their bins, because no
    # threshold separates equal keys. The bin of a value is that of its middle sample.
    cdef int64_t n = t.n, max_bins = t.max_bins, n_distinct = 1, i, j, stop
    for i in range(1, n):
        n_distinct += key[i] != key[i - 1]
    if n_distinct <= max_bins:
        return
    i = 0
    while i < n:
        stop = i + 1
        while stop < n and key[stop] == key[i]:
            stop += 1
        for j in range(i, stop):
            key[j] = <uint64_t> ((i + stop) * max_bins // (2 * n))
        i = stop


cdef bint _sort(const Task* t, const real[::1] value, Scan* s) noexcept nogil:
    # Sorts the samples by their values. s.key and s.index have space for (2, n). Returns False if the call
    # has to stop.
    cdef uint64_t* key2 = s.key + t.n
    cdef uint32_t* index2 = s.index + t.n
    cdef int64_t i
    cdef int swapped
    for i in range(t.n):
        s.key[i] = hf_ordered(value[i])
        s.index[i] = <uint32_t> i
    swapped = hf_sort(s.key, s.index, key2, index2, t.n, t.watch)
    if swapped > 0:
        s.key, s.index = key2, index2
    if t.max_bins and swapped >= 0:
        _make_bins(t, s.key)
    return swapped >= 0


cdef void _start(const Task* t, Scan* s) noexcept nogil:
    # Writes the sums over all samples, which are on the right at first.
    cdef int64_t i, k
    cdef double w
    s.total_weight = s.left_weight = s.left_square = s.right_square = 0
    s.is_whole = True
    for k in range(t.n_sums):
        s.left[k] = s.total[k] = 0
    for i in range(t.n):
        w = t.weight[i]
        s.total_weight += w
        s.is_whole &= w < EXACT and w == <double> <int64_t> w
        if t.outputs == NULL:
            s.total[t.y[i]] += w
        else:
            for k in range(t.n_sums):
                s.total[k] += w * t.outputs[i * t.n_sums + k]
    s.is_whole &= t.criterion == HF_GINI and s.total_weight < EXACT
    for k in range(t.n_sums):
        s.right_square += s.total[k] * s.total[k]


cdef inline void _move_left(const Task* t, Scan* s, int64_t at) noexcept nogil:
    cdef double w = t.weight[at]
    cdef int64_t k
    s.left_weight += w
    if t.outputs != NULL:
        for k in range(t.n_sums):
            s.left[k] += w * t.outputs[at * t.n_sums + k]
        return
    k = t.y[at]
    if s.is_whole:
        s.left_square += w * (2 * s.left[k] + w)
        s.right_square -= w * (2 * (s.total[k] - s.left[k]) - w)
    s.left[k] += w


cdef inline double _score(const Task* t, Scan* s, double right_weight) noexcept nogil:
    cdef int64_t k
    if s.is_whole:
        return s.left_square / s.left_weight + s.right_square / right_weight
    for k in range(t.n_sums):
        s.right[k] = s.total[k] - s.left[k]
    return (
        hf_node_score(t.criterion, s.left, t.n_sums, s.left_weight)
        + hf_node_score(t.criterion, s.right, t.n_sums, right_weight)
    )


cdef int64_t _scan(const Task* t, Scan* s) noexcept nogil:
    # Returns the position in the order of the last sample on the left of the best split, or -1; writes
    # s.gain.
    cdef int64_t best_at = -1, n_steps = 0, i
    cdef double right_weight, score
    s.gain = -INFINITY
    for i in range(t.n - 1):
        if hf_stopped_after(t.watch, &n_steps, t.n_sums):
            break
        _move_left(t, s, s.index[i])
        if s.key[i] == s.key[i + 1] or i + 1 < t.min_leaf or t.n - i - 1 < t.min_leaf:
            continue
        right_weight = s.total_weight - s.left_weight
        if not right_weight > 0:  # the weight on the right is rounded to 0
            continue
        score = _score(t, s, right_weight)
        if hf_beats(score, s.gain):
            s.gain, best_at = score, i
    if best_at >= 0:
        s.gain -= hf_node_score(t.criterion, s.total, t.n_sums, s.total_weight)
    return best_at


cdef real _best_threshold(const Task* t, const real[::1] value, Scan* s) noexcept nogil:
    # Returns the best threshold of a candidate, and writes its gain to s.gain; NaN and -inf if none is
    # allowed.
    cdef int64_t at
    s.gain = -INFINITY
    if not _sort(t, value, s):
        return <real> NAN
    _start(t, s)
    at = _scan(t, s)
    if at < 0:
        return <real> NAN
    if real is float:
        return <float> hf_between_f32(value[s.index[at]], value[s.index[at + 1]])
    return hf_between_f64(value[s.index[at]], value[s.index[at + 1]])


cdef void _candidate(
    const Task* t, const real[:, ::1] values, int64_t c, real[::1] threshold, double[::1] gain
) noexcept nogil:
    # Writes the best threshold of candidate c and its gain.
    cdef Scan s
    cdef hf_arena arena
    memset(&arena, 0, sizeof(hf_arena))
    s.total = <double*> take(&arena, 3 * t.n_sums * sizeof(double))
    s.key, s.index = <uint64_t*> take(&arena, t.n * 16), <uint32_t*> take(&arena, t.n * 8)
    if arena.failed:
        hf_stop(t.watch)
    else:
        s.left, s.right = s.total + t.n_sums, s.total + 2 * t.n_sums
        threshold[c] = _best_threshold(t, values[c], &s)
        gain[c] = s.gain
    release(&arena)


cdef int _splits(
    Task* t, const real[:, ::1] values, const double[::1] weights, real[::1] threshold, double[::1] gain
) except -1:
    cdef int64_t n_candidates = values.shape[0], n_units, c
    cdef int threads
    cdef hf_watch watch
    start_watch(&watch)
    t.watch, t.weight, t.n = &watch, &weights[0], values.shape[1]
    threads = hf_threads_for(<double> VALUE_NS * n_candidates * t.n)
    n_units = hf_units(&watch, n_candidates, threads)
    for c in prange(n_units, schedule="dynamic", num_threads=threads, nogil=True):
        if hf_begin(&watch, c):
            _candidate(t, values, c, threshold, gain)
            hf_end(&watch)
    return raise_stopped(&watch, "values: no memory to sort {} of them; pass fewer samples", t.n)


def splits(values, target, const double[::1] weights, rules, threshold, double[::1] gain):
    """Writes the best threshold and gain of every candidate; rules are criterion, min_leaf and max_bins.

    Targets are given minus their mean.
    """
    cdef const int32_t[::1] labels = target.labels
    cdef const double[:, ::1] targets = target.targets
    cdef Task t
    t.y, t.outputs, t.n_sums = NULL, NULL, target.n_outputs
    if labels is None:
        t.outputs = &targets[0, 0]
    else:
        t.y = &labels[0]
    t.criterion, t.min_leaf, t.max_bins = rules
    if values.dtype.itemsize == 4:
        _splits[float](&t, values, weights, threshold, gain)
    else:
        _splits[double](&t, values, weights, threshold, gain)
