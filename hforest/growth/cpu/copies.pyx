"""Copies of x made once for all trees on projections of it: bytes, and prefix sums (projections.pyx)."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset


cdef int whole_row(const real* x, int64_t n_features, uint8_t* bytes) noexcept nogil:
    # Returns 1 if a sample's elements are integers and sums of any of them stay integers that float32 holds,
    # 2 if they also fit in bytes, else 0.
    #
    # bytes  OUT (n_features,)  the elements, as far as they fit in bytes
    cdef double size = 0
    cdef bint fits = True
    cdef int64_t i
    for i in range(n_features):
        if not -16777216 <= x[i] <= 16777216 or x[i] != <real> <int32_t> x[i]:
            return 0
        size += -x[i] if x[i] < 0 else x[i]
        fits &= 0 <= x[i] < 256
        bytes[i] = <uint8_t> <int32_t> x[i]
    return 0 if size > 16777216 else 1 + fits


cdef void fill_corners(const hf_distribution* a, const real* x, corner_t* corners) noexcept nogil:
    # Writes the two-dimensional prefix sums of one sample: for each channel and plane, (shape[1] + 1,
    # shape[2] + 1) with zeros in the first row and column. Sums are unsigned and may overflow: the sum of a
    # patch, a difference of them, is right if it fits itself. So 16 bits suffice for patches whose sums are
    # below 65536.
    cdef int64_t step = a.shape[2] + 1, plane = (a.shape[1] + 1) * step, c, k, i, j
    cdef const real* row
    cdef corner_t* above
    cdef corner_t sum
    for c in range(a.channels):
        for k in range(a.shape[0]):
            memset(corners, 0, step * sizeof(corner_t))
            for i in range(a.shape[1]):
                row = x + (k * a.shape[1] + i) * a.shape[2] * a.channels + c
                above = corners + i * step
                sum = 0
                above[step] = 0
                for j in range(a.shape[2]):
                    sum += <corner_t> <int32_t> row[j * a.channels]
                    above[step + j + 1] = above[j + 1] + sum
            corners += plane
