"""Random thresholds of extra trees (Geurts, Ernst and Wehenkel 2006): one per candidate.

A candidate costs two passes over its values, and one over the samples on its left (`score_left`):

    value   | 3.1 0.2 2.5 0.9 1.4 |    least 0.2, greatest 3.1, threshold 1.7
    left    | 1 3 4 |                  positions of the values up to the threshold
"""

from libc.math cimport INFINITY, floor
from libc.string cimport memset

from hforest.growth.cpu.task cimport HF_STREAM_THRESHOLD, hf_draw, hf_philox, hf_unit


cdef double random_threshold(
    const hf_task* t, uint64_t key, int64_t number, double least, double greatest
) noexcept nogil:
    # Returns the threshold of a node's candidate `number`: uniform in [least, greatest).
    cdef hf_draw draw = hf_philox(key, <uint64_t> number, HF_STREAM_THRESHOLD)
    cdef double threshold = least + hf_unit(draw) * (greatest - least)
    if not threshold < INFINITY:
        threshold = least / 2 + greatest / 2
    if t.single:
        threshold = <double> <float> threshold
    return threshold if least <= threshold < greatest else least


cdef uint32_t split_bins(
    const hf_task* t, const double* low, const double* high, hf_range bins, uint64_t key, int64_t number,
    hf_split* split
) noexcept nogil:
    # Writes the random threshold of candidate `number`, whose bins in the node have the range `bins`, to
    # `split`; returns the last bin whose values are at most the threshold.
    #
    # low, high  IN  the least and the greatest value of each bin of the column
    cdef uint32_t below = <uint32_t> bins.lowest, above = <uint32_t> bins.highest, middle
    split.threshold = random_threshold(t, key, number, high[below], low[above])
    while above - below > 1:
        middle = below + (above - below) // 2
        if high[middle] <= split.threshold:
            below = middle
        else:
            above = middle
    return below


cdef int64_t split_values(
    const hf_task* t, const value_t* value, int64_t n, uint64_t key, int64_t number, hf_split* split,
    uint32_t* left
) noexcept nogil:
    # Writes the random threshold of candidate `number` to `split`, and the positions of the values on its
    # left to `left`; returns their number, 0 if all values are equal.
    #
    # value   IN (n,)
    # left    OUT (n,)
    cdef value_t least = value[0], greatest = value[0], last
    cdef int64_t i, n_left = 0
    for i in range(n):
        least = value[i] if value[i] < least else least
        greatest = value[i] if value[i] > greatest else greatest
    if least == greatest:
        return 0
    # -0 becomes 0.
    split.threshold = random_threshold(t, key, number, <double> least + 0.0, <double> greatest)
    last = <value_t> (floor(split.threshold) if value_t is int32_t else split.threshold)
    for i in range(n):
        left[n_left] = <uint32_t> i
        n_left += value[i] <= last
    return n_left


cdef void write_sides(
    hf_workspace* r, const hf_pending* node, const uint32_t* left, int64_t n_left
) noexcept nogil:
    # Writes r.goes_right: the samples at the n_left positions in `left` go left, all others right.
    cdef int64_t i
    memset(r.goes_right, 1, node.last - node.first)
    for i in range(n_left):
        r.goes_right[left[i]] = 0
