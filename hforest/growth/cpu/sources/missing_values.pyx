"""Missing values of a candidate: NaN among the values of a projection."""

from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint32_t, uint64_t

from hforest.growth.cpu.scorers.random_thresholds cimport random_threshold
from hforest.growth.cpu.task cimport (
    HF_STREAM_DIRECTION, defaults_of, hf_largest, hf_pending, hf_philox, hf_split, hf_task, hf_workspace,
)


cdef int64_t n_missing(const void* values, int64_t n, bint single, double* greatest) noexcept nogil:
    # Returns the number of missing values among n; writes the greatest of the others.
    cdef const float* floats = <const float*> values
    cdef const double* doubles = <const double*> values
    cdef double value
    cdef int64_t i, count = 0
    greatest[0] = -INFINITY
    for i in range(n):
        value = <double> floats[i] if single else doubles[i]
        count += value != value
        greatest[0] = value if value > greatest[0] else greatest[0]
    return count


cdef int64_t split_missing(
    const hf_task* t, bint single, const void* values, int64_t n, uint64_t key, int64_t number,
    hf_split* split, uint32_t* left
) noexcept nogil:
    # Does the work of split_values for values with missing ones, which go left or right by a fair draw.
    cdef const float* floats = <const float*> values
    cdef const double* doubles = <const double*> values
    cdef double value, least = INFINITY, greatest = -INFINITY
    cdef int64_t i, n_left = 0
    for i in range(n):
        value = <double> floats[i] if single else doubles[i]
        least = value if value < least else least
        greatest = value if value > greatest else greatest
    if least > greatest:
        return 0
    if least == greatest:
        split.threshold, split.missing = hf_largest(t.single), 0
    else:
        split.threshold = random_threshold(t, key, number, least + 0.0, greatest)
        split.missing = not (hf_philox(key, <uint64_t> number, HF_STREAM_DIRECTION).word[0] & 1)
    for i in range(n):
        value = <double> floats[i] if single else doubles[i]
        left[n_left] = <uint32_t> i
        n_left += split.missing if value != value else <int> (value <= split.threshold)
    return n_left


cdef void default_sides(
    const hf_task* t, const hf_workspace* r, const hf_pending* node, hf_split* split
) noexcept nogil:
    # Writes the side of missing values, taken from the sides of the node's samples.
    cdef int64_t i, n_right = 0, n = node.last - node.first
    if not t.has_defaults:
        return
    for i in range(n):
        n_right += r.goes_right[i]
    split.default_left = defaults_of(split.missing, n - n_right >= n_right)
