"""Missing values of a candidate: NaN among the values of a projection."""

from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from hforest.growth.cpu.scorers.random_thresholds cimport random_threshold
from hforest.growth.cpu.task cimport (
    HF_IS_MISSING, HF_STREAM_DIRECTION, hf_default_left, hf_draws_missing_left, hf_largest, hf_pending,
    hf_philox, hf_sends_missing_left, hf_split, hf_task, hf_workspace,
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
    hf_split* split, uint32_t* left, int64_t* n_missing
) noexcept nogil:
    # Does the work of split_values for values with missing ones, which go left or right by a fair draw.
    # Returns the number of known values that go left; their positions in `left` are followed by those of the
    # n_missing (OUT) missing values.
    cdef const float* floats = <const float*> values
    cdef const double* doubles = <const double*> values
    cdef double value, least = INFINITY, greatest = -INFINITY
    cdef int64_t i, n_left = 0
    n_missing[0] = 0
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
        split.missing = hf_draws_missing_left(hf_philox(key, <uint64_t> number, HF_STREAM_DIRECTION).word[0])
    for i in range(n):
        value = <double> floats[i] if single else doubles[i]
        left[n_left] = <uint32_t> i
        n_left += value <= split.threshold
    for i in range(n):
        if floats[i] != floats[i] if single else doubles[i] != doubles[i]:
            left[n_left + n_missing[0]] = <uint32_t> i
            n_missing[0] += 1
    return n_left


cdef void place_missing(
    const hf_task* t, hf_workspace* r, const hf_pending* node, hf_split* split
) noexcept nogil:
    # Chooses the sides of missing values and unknown categories, and writes the side of the node's missing
    # values, which are marked HF_IS_MISSING in r.goes_right.
    cdef int64_t i, n_right = 0, n_missing = 0, n = node.last - node.first
    cdef uint8_t right
    cdef uint8_t* goes_right = r.goes_right
    if not t.has_defaults:
        return
    if split.missing >= 0:
        for i in range(n):
            n_missing += goes_right[i] == HF_IS_MISSING
    for i in range(n):
        n_right += goes_right[i]
    n_right -= HF_IS_MISSING * n_missing
    split.default_left = hf_default_left(split.missing, n - n_missing - n_right, n_right, n_missing)
    right = not hf_sends_missing_left(split.default_left)
    for i in range(n if n_missing else 0):
        goes_right[i] = right if goes_right[i] == HF_IS_MISSING else goes_right[i]
