"""Values of random projections of the rows of x, or of windows, which are read in place.

If all of x is integer and all sums are exact, values are integers, and sums over patches come from
two-dimensional prefix sums, called corners here:

    plane, 3 x 3            its corners  0 0   0     0          sum of the patch  e f  =  S[2,3] - S[0,3]
        a b c                            0 a   a+b   a+b+c                        h i   - S[2,1] + S[0,1]
        d e f               S  =         0 a+d ...                 with rows 0, 1 and columns 1, 2
        g h i                            0 ...

Corners, and rows of integers as bytes, are copies of x that are made once for all trees.

Left out: corners of numbers that are not whole. They would be made for every block of transposed rows.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memset

from hforest.growth.cpu.node_samples cimport is_prefetched, prefetch_numbers
from hforest.growth.cpu.sources.projections cimport (
    corner_t, hf_candidate, hf_distribution, hf_draw_projection, hf_entries, hf_patch, hf_patch_entries,
    hf_patch_of, hf_projections, real,
)
from hforest.growth.cpu.task cimport HF_PREFETCH, HF_STREAM_ENTRY, hf_philox, hf_task

cdef enum:
    ROWS_AHEAD = 12      # samples between the prefetch of their rows, which are far apart, and their use
    LOOKED_UP = 6        # entries of a patch up to which summing them is cheaper than four look-ups


ctypedef fused number:
    uint8_t
    float
    double


# Layout of x: feature f of sample s is x[s * stride + f * step], or x[s + offset[f]] for windows.
ctypedef struct hf_numbers:
    const void* x
    int64_t stride
    int64_t step
    const int64_t* offset   # or NULL


cdef inline void _prefetch(
    const hf_numbers* a, int size, const uint32_t* sample, int64_t i, int64_t n, int64_t place
) noexcept nogil:
    # Prefetches the row of a later sample, whose address the hardware cannot predict.
    if (a.stride > 1 or a.offset != NULL) and i + ROWS_AHEAD < n:
        HF_PREFETCH(<const char*> a.x + (sample[i + ROWS_AHEAD] * a.stride + place) * size)


cdef inline void _add_entries(
    int n_samples, const hf_numbers* a, real unused, const uint32_t* sample, const int64_t* place,
    const float* factor, int64_t n_entries, real* value
) noexcept nogil:
    # Writes the values of n_samples, a constant in each call: the sums of several samples are independent.
    cdef const real* at[4]
    cdef double sum[4]
    cdef double by
    cdef int64_t e
    cdef int j
    for j in range(n_samples):
        at[j], sum[j] = <const real*> a.x + sample[j] * a.stride, 0
    for e in range(n_entries):
        by = factor[e]
        for j in range(n_samples):
            sum[j] += by * <double> at[j][place[e]]
    for j in range(n_samples):
        value[j] = <real> sum[j]


cdef void _project(
    const hf_numbers* a, real unused, const uint32_t* sample, int64_t n, const int64_t* place,
    const float* factor, int64_t n_entries, real* value
) noexcept nogil:
    # Writes the values of n samples.
    cdef int64_t i = 0
    cdef int j
    while i + 4 <= n:
        for j in range(4):
            _prefetch(a, sizeof(real), sample, i + j, n, place[0])
        _add_entries(4, a, unused, sample + i, place, factor, n_entries, value + i)
        i += 4
    while i < n:
        _add_entries(1, a, unused, sample + i, place, factor, n_entries, value + i)
        i += 1


cdef void _project_whole(
    const hf_numbers* a, number unused, const uint32_t* sample, int64_t n, const int64_t* place,
    const float* factor, int64_t n_entries, int32_t* value
) noexcept nogil:
    # Writes the values of n samples for integer x, without rounding.
    cdef int64_t i, e, stride = a.stride
    cdef const number* at
    cdef int32_t sum
    for i in range(n):
        at = <const number*> a.x + sample[i] * stride
        sum = 0
        _prefetch(a, sizeof(number), sample, i, n, place[0])
        for e in range(n_entries):
            sum += <int32_t> factor[e] * <int32_t> at[place[e]]
        value[i] = sum


cdef inline void _add_bytes(
    int n_entries, bint add, const hf_numbers* a, const int64_t* place, const float* factor,
    const uint32_t* sample, int64_t n, int32_t* value
) noexcept nogil:
    # Adds up to four entries; n_entries is a constant in each call.
    cdef const uint8_t* at[4]
    cdef int32_t by[4]
    cdef int64_t i, first, stride = a.stride
    cdef int32_t sum
    cdef int e
    for e in range(n_entries):
        at[e], by[e] = <const uint8_t*> a.x + place[e], <int32_t> factor[e]
    for i in range(n):
        first = sample[i] * stride
        sum = value[i] if add else 0
        if not add:
            _prefetch(a, 1, sample, i, n, place[0])
        for e in range(n_entries):
            sum += by[e] * at[e][first]
        value[i] = sum


cdef void _project_bytes(
    const hf_numbers* a, const uint32_t* sample, int64_t n, const int64_t* place, const float* factor,
    int64_t n_entries, int32_t* value
) noexcept nogil:
    # Writes the values of n samples for x in bytes, four entries at a time.
    cdef int64_t e
    for e in range(0, n_entries, 4):
        if e:
            _add_bytes(<int> min(4, n_entries - e), True, a, place + e, factor + e, sample, n, value)
        elif n_entries == 1:
            _add_bytes(1, False, a, place, factor, sample, n, value)
        elif n_entries == 2:
            _add_bytes(2, False, a, place, factor, sample, n, value)
        elif n_entries == 3:
            _add_bytes(3, False, a, place, factor, sample, n, value)
        else:
            _add_bytes(4, False, a, place, factor, sample, n, value)


cdef void _project_corners(
    const hf_distribution* a, hf_patch p, const corner_t* corners, const uint32_t* sample, int64_t n,
    int32_t* value
) noexcept nogil:
    # Writes the values of a patch for n samples: four look-ups per plane.
    cdef int64_t step = a.shape[2] + 1, plane = (a.shape[1] + 1) * step, row = a.channels * a.shape[0] * plane
    cdef int64_t top = p.corner[1] * step + p.corner[2], bottom = top + p.size[1] * step, wide = p.size[2]
    cdef const corner_t* first = corners + (p.channel * a.shape[0] + p.corner[0]) * plane
    cdef const corner_t* at
    cdef corner_t difference
    cdef int32_t sum
    cdef int64_t i, _
    for i in range(n):
        at = first + <int64_t> sample[i] * row
        sum = 0
        if i + ROWS_AHEAD < n:
            HF_PREFETCH(first + <int64_t> sample[i + ROWS_AHEAD] * row + top)
            HF_PREFETCH(first + <int64_t> sample[i + ROWS_AHEAD] * row + bottom)
        for _ in range(p.size[0]):
            difference = at[bottom + wide] - at[bottom] - at[top + wide] + at[top]
            # A 16-bit difference is a sum of bytes, a 32-bit one a sum of either sign.
            sum += difference if corner_t is uint16_t else <int32_t> difference
            at += plane
        value[i] = sum


cdef inline int _size_of(const hf_projections* p) noexcept nogil:
    # Returns the bytes per element of the array that is read.
    return 1 if p.bytes != NULL else 4 if p.single else 8


cdef inline hf_numbers _numbers_of(const hf_task* t, const hf_projections* p, int64_t n) noexcept nogil:
    # Returns the layout from which n samples of a node are read: rows if these are fewer cache lines than
    # columns, over all candidates.
    cdef hf_numbers a
    cdef int64_t size = _size_of(p)
    cdef int64_t row = p.distribution.n_features * size // 64 + 1, column = t.n * size // 64 + 1
    a.offset = p.offset
    if p.offset != NULL:
        a.x = <const void*> p.bytes if p.bytes != NULL else p.x
        a.stride, a.step = 1, 0
    elif n * min(row, t.n_candidates) <= t.n_candidates * min(column, n):
        a.x = <const void*> p.bytes if p.bytes != NULL else p.x
        a.stride, a.step = p.distribution.n_features, 1
    else:
        a.x, a.stride, a.step = p.columns, 1, t.n
    return a


cdef void _place_entries(const hf_numbers* a, hf_entries* entries) noexcept nogil:
    # Writes the positions of the entries' elements, relative to the position of a sample.
    cdef int64_t e
    for e in range(entries.n):
        entries.place[e] = entries.index[e] * a.step if a.offset == NULL else a.offset[entries.index[e]]


cdef void draw_entries(const hf_projections* p, hf_candidate candidate, hf_entries* entries) noexcept nogil:
    # Draws the entries of a candidate, unless they have been drawn.
    if entries.n == 0 or entries.key != candidate.key:
        entries.key = candidate.key
        entries.n = hf_draw_projection(
            &p.distribution, candidate, hf_philox(candidate.key, 0, HF_STREAM_ENTRY), entries.index,
            entries.factor,
        )


cdef void prefetch_values(
    const hf_task* t, const hf_projections* p, const uint32_t* sample, int64_t n, hf_candidate candidate,
    hf_entries* entries
) noexcept nogil:
    # Draws the entries of a projection, and prefetches the columns that project_values will read.
    cdef int size = _size_of(p)
    cdef int64_t e, n_all = t.n if p.offset == NULL else p.n_numbers
    cdef int64_t n_bytes = size * (p.n_numbers if p.offset != NULL else t.n * p.distribution.n_features)
    cdef hf_numbers a
    if p.corners != NULL or not is_prefetched(n, n_bytes):
        return
    a = _numbers_of(t, p, n)
    if a.stride > 1:
        return
    draw_entries(p, candidate, entries)
    _place_entries(&a, entries)
    for e in range(entries.n):
        prefetch_numbers(<const char*> a.x + entries.place[e] * size, n_all, size, sample, n)


cdef void project_values(
    const hf_task* t, const hf_projections* p, const uint32_t* sample, int64_t n, hf_candidate candidate,
    hf_entries* entries, void* value
) noexcept nogil:
    # Writes the values of a candidate for n samples.
    #
    # entries  OUT        its entries
    # value    OUT (n,)   float or double; int32 for integer x
    cdef const hf_distribution* a = &p.distribution
    cdef hf_patch patch
    cdef hf_numbers numbers = _numbers_of(t, p, n)
    cdef int32_t* whole = <int32_t*> value
    cdef const int64_t* place = entries.place
    cdef const float* factor = entries.factor
    if p.corners != NULL:
        patch = hf_patch_of(
            a, hf_philox(candidate.key, 0, HF_STREAM_ENTRY), hf_philox(candidate.key, 1, HF_STREAM_ENTRY)
        )
        if patch.size[0] * patch.size[1] * patch.size[2] > LOOKED_UP:
            if p.narrow:
                _project_corners[uint16_t](a, patch, <const uint16_t*> p.corners, sample, n, whole)
            else:
                _project_corners[uint32_t](a, patch, <const uint32_t*> p.corners, sample, n, whole)
            return
        entries.key, entries.n = candidate.key, hf_patch_entries(a, patch, entries.index, entries.factor)
    draw_entries(p, candidate, entries)
    _place_entries(&numbers, entries)
    if p.bytes != NULL and p.offset != NULL and entries.n > 4:  # in one pass, because windows are far apart
        _project_whole[uint8_t](&numbers, 0, sample, n, place, factor, entries.n, whole)
    elif p.bytes != NULL:
        _project_bytes(&numbers, sample, n, place, factor, entries.n, whole)
    elif p.whole and p.single:
        _project_whole[float](&numbers, 0, sample, n, place, factor, entries.n, whole)
    elif p.whole:
        _project_whole[double](&numbers, 0, sample, n, place, factor, entries.n, whole)
    elif p.single:
        _project[float](&numbers, 0, sample, n, place, factor, entries.n, <float*> value)
    else:
        _project[double](&numbers, 0, sample, n, place, factor, entries.n, <double*> value)


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
