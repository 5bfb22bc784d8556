"""Columns of bins that are encoded when a node first samples them.

A tree on few samples of many thousand columns samples a part of the columns. A column is encoded by one
thread; others that need it wait (core/once.h). All growths on the same `Samples` share the columns.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from hforest.core.arena cimport take
from hforest.core.machine cimport hf_has_stopped
from hforest.growth.cpu.scorers.bodies cimport bodies_of
from hforest.growth.cpu.sources.columns cimport hf_columns
from hforest.growth.cpu.sources.ranks cimport hf_column, rank_column
from hforest.growth.cpu.task cimport hf_task, hf_workspace

cdef extern from "core/once.h" nogil:
    bint hf_begin_item(int32_t* state)
    void hf_end_item(int32_t* state, bint made)

cdef enum:
    COUNTED = 256   # samples up to which comparing all pairs takes less time than sorting; bins have 8 bits

ctypedef fused real:
    float
    double

ctypedef fused bin_t:
    uint8_t
    uint16_t
    uint32_t


cdef void start_encoder(
    const hf_task* t, hf_workspace* r, const hf_columns* c, hf_encoder* encoder
) noexcept nogil:
    # Allocates the workspace.
    cdef int64_t size = t.n * 8
    if c.state == NULL:
        return
    # A vector may read past the last value.
    encoder.value, encoder.bins = take(&r.arena, size + 64), <uint32_t*> take(&r.arena, size // 2)
    encoder.order.key, encoder.order.key2 = <uint64_t*> take(&r.arena, size), <uint64_t*> take(&r.arena, size)
    if not t.single:
        encoder.order.index = <uint32_t*> take(&r.arena, size // 2)
        encoder.order.index2 = <uint32_t*> take(&r.arena, size // 2)
    if c.low == NULL:
        encoder.low = <double*> take(&r.arena, size)


cdef void _copy(const hf_task* t, const hf_columns* c, int64_t column, real* value) noexcept nogil:
    # Copies a column of the samples.
    cdef const real* x = <const real*> c.numbers + column
    cdef int64_t i
    for i in range(t.n):
        value[i] = x[i * c.n_columns]


cdef void _write(const uint32_t* rank, int64_t n, uint32_t last, bin_t* bins) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        bins[i] = <bin_t> min(rank[i], last)


cdef void _encode(
    const hf_task* t, const hf_columns* c, const hf_encoder* encoder, int64_t column, real* value
) noexcept nogil:
    cdef hf_column ranks
    cdef uint32_t last = <uint32_t> t.n - 1
    ranks.n, ranks.bins = t.n, encoder.bins
    if c.low == NULL:
        ranks.n_bins, ranks.low, ranks.high = t.n, encoder.low, encoder.low
    else:
        ranks.n_bins = c.n_bins
        ranks.low, ranks.high = <double*> c.low + column * c.n_bins, <double*> c.high + column * c.n_bins
    _copy(t, c, column, value)
    if c.low == NULL and t.n <= COUNTED:  # the numbers of smaller values have the order of the ranks
        bodies_of(t.path).count_smaller(t.single, value, t.n, encoder.bins)
    else:
        # Numbers that became missing have the last bin, because tables have none for them.
        last = <uint32_t> max(rank_column(<const real*> value, &ranks, encoder.order, t.watch), 1) - 1
    if c.width == 1:
        _write(encoder.bins, t.n, last, <uint8_t*> c.bins + column * t.n)
    elif c.width == 2:
        _write(encoder.bins, t.n, last, <uint16_t*> c.bins + column * t.n)
    else:
        _write(encoder.bins, t.n, last, <uint32_t*> c.bins + column * t.n)


cdef void encode_column(
    const hf_task* t, const hf_columns* c, hf_encoder* encoder, int64_t column
) noexcept nogil:
    # Encodes a column; returns after it is encoded, or if the call has to stop.
    if not hf_begin_item(c.state + column):
        return
    if t.single:
        _encode(t, c, encoder, column, <float*> encoder.value)
    else:
        _encode(t, c, encoder, column, <double*> encoder.value)
    hf_end_item(c.state + column, not hf_has_stopped(t.watch))
