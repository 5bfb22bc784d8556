"""Columns that are made when a node first samples them: their bins, or copies of their values.

A table of few samples and many thousand columns has more columns than a tree samples. A column is made by one
thread; others that need it wait (core/once.h). All growths on the same `Samples` share the columns.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from hforest.core.arena cimport take
from hforest.core.machine cimport hf_has_stopped
from hforest.growth.columns cimport hf_columns
from hforest.growth.ranks cimport hf_column, rank_column
from hforest.growth.task cimport hf_task, hf_workspace

cdef extern from "core/once.h" nogil:
    bint hf_begin_item(int32_t* state)
    void hf_end_item(int32_t* state, bint made)

ctypedef fused real:
    float
    double

ctypedef fused bin_t:
    uint8_t
    uint16_t
    uint32_t


cdef void start_maker(
    const hf_task* t, hf_workspace* r, const hf_columns* c, hf_maker* maker
) noexcept nogil:
    # Allocates the workspace.
    cdef int64_t size = t.n * 8
    if c.state == NULL:
        return
    maker.value, maker.bins = take(&r.arena, size), <uint32_t*> take(&r.arena, size // 2)
    maker.order.key, maker.order.key2 = <uint64_t*> take(&r.arena, size), <uint64_t*> take(&r.arena, size)
    if not t.single:
        maker.order.index = <uint32_t*> take(&r.arena, size // 2)
        maker.order.index2 = <uint32_t*> take(&r.arena, size // 2)
    if c.low == NULL:
        maker.low = <double*> take(&r.arena, size)


cdef void _copy(const hf_task* t, const hf_columns* c, int64_t column, real* value) noexcept nogil:
    # Copies a column of the samples.
    cdef const real* x = <const real*> c.numbers + column
    cdef int64_t i
    for i in range(t.n):
        value[i] = x[i * c.n_columns]


cdef void _write(const uint32_t* rank, int64_t n, bin_t* bins) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        bins[i] = <bin_t> rank[i]


cdef void _encode(
    const hf_task* t, const hf_columns* c, const hf_maker* maker, int64_t column, real* value
) noexcept nogil:
    cdef hf_column ranks
    ranks.n, ranks.bins = t.n, maker.bins
    if c.low == NULL:
        ranks.n_bins, ranks.low, ranks.high = t.n, maker.low, maker.low
    else:
        ranks.n_bins = c.n_bins
        ranks.low, ranks.high = <double*> c.low + column * c.n_bins, <double*> c.high + column * c.n_bins
    _copy(t, c, column, value)
    rank_column(<const real*> value, &ranks, maker.order, t.watch)
    if c.width == 1:
        _write(maker.bins, t.n, <uint8_t*> c.bins + column * t.n)
    elif c.width == 2:
        _write(maker.bins, t.n, <uint16_t*> c.bins + column * t.n)
    else:
        _write(maker.bins, t.n, <uint32_t*> c.bins + column * t.n)


cdef void make_column(
    const hf_task* t, const hf_columns* c, hf_maker* maker, int64_t column
) noexcept nogil:
    # Makes a column; returns after it is made, or if the call has to stop.
    if not hf_begin_item(c.state + column):
        return
    if t.single:
        _encode(t, c, maker, column, <float*> maker.value)
    else:
        _encode(t, c, maker, column, <double*> maker.value)
    hf_end_item(c.state + column, not hf_has_stopped(t.watch))
