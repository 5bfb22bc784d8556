"""Readers of a node's bins in a column. One reader is chosen for all trees:

    8-bit bins                 from the columns, or in nodes of few samples from the samples' rows
    16-bit and 32-bit bins     from the columns
    bins of a sparse matrix    the stored bins of the node, and the bin of 0 (stored.pyx)
    standardized windows       from their values: codes of float32, ranks of float64
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from hforest.growth.cpu.sources.columns cimport bins_at, hf_range, is_by_rows, is_stored, number_of
from hforest.growth.cpu.sources.node_orders cimport hf_column_workspace
from hforest.growth.cpu.node_samples cimport is_prefetched, prefetch_numbers
from hforest.growth.cpu.sources.stored cimport read_stored
from hforest.growth.cpu.task cimport hf_pending, hf_task, hf_workspace

cdef extern from "core/order.h" nogil:
    int32_t hf_code_of_float(float a)
    uint64_t hf_ordered(double a)
    int hf_sort(
        uint64_t* key, uint32_t* index, uint64_t* key2, uint32_t* index2, int64_t n, void* watch
    )

ctypedef fused bin_t:
    uint8_t
    uint16_t
    uint32_t


cdef inline hf_range _read(
    const bin_t* bins, int64_t stride, const uint32_t* sample, int64_t n, int32_t* bin
) noexcept nogil:
    cdef hf_range range_
    cdef int32_t b, lowest = <int32_t> bins[sample[0] * stride], highest = lowest
    cdef int64_t i
    for i in range(n):
        b = <int32_t> bins[sample[i] * stride]
        lowest = b if b < lowest else lowest
        highest = b if b > highest else highest
        bin[i] = b
    range_.lowest, range_.highest = lowest, highest
    return range_


cdef hf_range _read_8(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, int64_t column,
    int32_t* bin
) noexcept nogil:
    cdef const uint32_t* sample = r.sample + node.first
    cdef int64_t n = node.last - node.first
    if is_by_rows(c, t, n):
        return _read(c.rows + column, c.n_columns, sample, n, bin)
    return _read(<const uint8_t*> c.bins + bins_at(c, t, column), 1, sample, n, bin)


cdef hf_range _read_16(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, int64_t column,
    int32_t* bin
) noexcept nogil:
    cdef const uint16_t* bins = <const uint16_t*> c.bins + bins_at(c, t, column)
    return _read(bins, 1, r.sample + node.first, node.last - node.first, bin)


cdef hf_range _read_32(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, int64_t column,
    int32_t* bin
) noexcept nogil:
    cdef const uint32_t* bins = <const uint32_t*> c.bins + bins_at(c, t, column)
    return _read(bins, 1, r.sample + node.first, node.last - node.first, bin)


cdef hf_range _read_codes(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, int64_t column,
    int32_t* bin
) noexcept nogil:
    cdef const uint32_t* sample = r.sample + node.first
    cdef int64_t i
    cdef hf_range range_
    range_.lowest, range_.highest = 0x7fffffff, -0x7fffffff
    for i in range(node.last - node.first):
        bin[i] = hf_code_of_float(<float> number_of(&c.windows, True, sample[i], column))
        range_.lowest, range_.highest = min(range_.lowest, bin[i]), max(range_.highest, bin[i])
    return range_


cdef hf_range _read_ranks(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, int64_t column,
    int32_t* bin
) noexcept nogil:
    # Sorts the values in the memory of the keys, which are made from the ranks later.
    cdef const uint32_t* sample = r.sample + node.first
    cdef const hf_column_workspace* work = <const hf_column_workspace*> r.columns
    cdef uint64_t* order = <uint64_t*> r.key
    cdef uint32_t* place = work.place
    cdef int64_t i, n = node.last - node.first
    cdef hf_range range_
    cdef int swapped
    range_.lowest = range_.highest = 0
    for i in range(n):
        order[i], place[i] = hf_ordered(number_of(&c.windows, False, sample[i], column)), <uint32_t> i
    swapped = hf_sort(order, place, <uint64_t*> r.key2, work.place2, n, t.watch)
    if swapped < 0:  # the call has to stop
        memset(bin, 0, n * sizeof(int32_t))
        return range_
    if swapped:
        order, place = <uint64_t*> r.key2, work.place2
    for i in range(n):
        range_.highest += i > 0 and order[i] != order[i - 1]
        bin[place[i]] = range_.highest
    return range_


cdef void prefetch_column(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, int64_t column
) noexcept nogil:
    # Prefetches the memory that a reader will read.
    cdef int64_t n = node.last - node.first
    if c.offset != NULL or is_by_rows(c, t, n):
        return
    if is_prefetched(n, t.n * c.n_columns * c.width):
        prefetch_numbers(
            <const char*> c.bins + column * t.n * c.width, t.n, c.width, r.sample + node.first, n
        )


cdef hf_columns columns_of_windows(
    const hf_standardized* windows, int64_t n_columns, bint single
) noexcept nogil:
    # Returns the struct of standardized columns of windows.
    cdef hf_columns c
    memset(&c, 0, sizeof(hf_columns))
    c.windows, c.offset, c.n_columns, c.width = windows[0], windows.offset, n_columns, 4 if single else 8
    c.read = reader_of(&c)
    return c


cdef hf_reader reader_of(const hf_columns* c) noexcept nogil:
    # Returns the reader for columns whose other fields are set.
    if is_stored(c):
        return read_stored
    if c.windows.x != NULL:
        return _read_codes if c.width == 4 else _read_ranks
    return _read_8 if c.width == 1 else _read_16 if c.width == 2 else _read_32
