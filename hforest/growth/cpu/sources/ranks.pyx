"""Ranks of the values of a column, or bins of about equal numbers of samples: sorted once, numbered in order.

    integers below 256   marked, without a sort
    float32              one array of keys: the code of the value above the number of the sample
    float64              keys with the numbers of the samples in a second array
"""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from hforest.core.machine cimport hf_stopped, hf_stopped_after, hf_watch
from hforest.growth.cpu.scorers.sorted_scan cimport sort_keys

cdef extern from "core/order.h" nogil:
    uint64_t hf_ordered(double a)
    int32_t hf_code_of_float(float a)
    int hf_sort(
        uint64_t* key, uint32_t* index, uint64_t* key2, uint32_t* index2, int64_t n, hf_watch* watch
    )


cdef int64_t _rank_bytes(const floating* value, const hf_column* c) noexcept nogil:
    # Writes the ranks of integers below 256, such as pixels, without sorting. Returns the number of bins; 0,
    # with undefined results, if there are other values, or more than c.n_bins distinct ones.
    cdef bint present[256]
    cdef uint32_t rank[256]
    cdef int64_t i, n_distinct = 0
    cdef int b
    memset(present, 0, sizeof(present))
    for i in range(c.n):
        if not 0 <= value[i] < 256 or value[i] != <floating> <int32_t> value[i]:
            return 0
        present[<int32_t> value[i]] = True
    for b in range(256):
        n_distinct += present[b]
    if n_distinct > c.n_bins:
        return 0
    n_distinct = 0
    for b in range(256):
        if present[b]:
            c.low[n_distinct] = c.high[n_distinct] = b
            rank[b] = <uint32_t> n_distinct
            n_distinct += 1
    for i in range(c.n):
        c.bins[i] = rank[<int32_t> value[i]]
    return n_distinct


cdef bint _sort(const floating* value, int64_t n, hf_order* o, hf_watch* watch) noexcept nogil:
    # Writes the sorted keys of the values to o.key; returns whether the call continues.
    cdef int64_t i
    # Missing values come last, regardless of their sign.
    cdef uint32_t code, lowest = <uint32_t> -1, highest = 0
    cdef int swapped
    if floating is float:
        for i in range(n):
            code = <uint32_t> -1
            if value[i] == value[i]:
                code = <uint32_t> hf_code_of_float(value[i]) ^ <uint32_t> 1 << 31
            lowest, highest = min(lowest, code), max(highest, code)
            o.key[i] = <uint64_t> code << 32 | <uint32_t> i
        o.key = sort_keys[uint64_t](o.key, o.key2, n, lowest, highest, watch)
    else:
        for i in range(n):
            o.key[i] = hf_ordered(value[i]) if value[i] == value[i] else <uint64_t> -1
            o.index[i] = <uint32_t> i
        swapped = hf_sort(o.key, o.index, o.key2, o.index2, n, watch)
        if swapped < 0:
            return False
        if swapped:
            o.key, o.index = o.key2, o.index2
    return not hf_stopped(watch)


cdef int64_t _rank(
    const floating* value, const hf_column* c, hf_order o, hf_watch* watch
) noexcept nogil:
    # Writes the ranks of the distinct values or, if there are more than c.n_bins of them, bins with about
    # equal numbers of samples. Missing values get the bin after the last one. Returns the number of bins
    # without that one; also 0 if the call has to stop.
    #
    # value   IN (n,)
    cdef int64_t i, stop, n = 0, n_distinct = 1, last = -1, bin = -1, wanted, n_steps = 0
    cdef int shift = 32 if floating is float else 0
    if not _sort(value, c.n, &o, watch):
        return 0
    for i in range(c.n):
        n += value[i] == value[i]
    for i in range(1, n):
        n_distinct += o.key[i] >> shift != o.key[i - 1] >> shift
    i = 0
    while i < n:
        stop = i + 1
        while stop < n and o.key[stop] >> shift == o.key[i] >> shift:
            stop += 1
        # A step is slow, because values and bins of adjacent keys are anywhere in memory.
        if hf_stopped_after(watch, &n_steps, 8 * (stop - i)):
            return 0
        # The bin of a value is that of its middle sample.
        wanted = bin + 1 if n_distinct <= c.n_bins else (i + stop) * c.n_bins // (2 * n)
        if wanted != bin:
            bin = wanted
            last += 1
            c.low[last] = value[<uint32_t> o.key[i] if floating is float else o.index[i]] + 0.0
        c.high[last] = value[<uint32_t> o.key[i] if floating is float else o.index[i]] + 0.0
        while i < stop:
            c.bins[<uint32_t> o.key[i] if floating is float else o.index[i]] = <uint32_t> last
            i += 1
    for i in range(n, c.n):
        c.bins[<uint32_t> o.key[i] if floating is float else o.index[i]] = <uint32_t> (last + 1)
    return last + 1


cdef int64_t rank_column(
    const floating* value, const hf_column* c, hf_order order, hf_watch* watch
) noexcept nogil:
    # Does the work of _rank, without sorting where it can.
    cdef int64_t n_bins = _rank_bytes(value, c)
    return n_bins if n_bins else _rank(value, c, order, watch)
