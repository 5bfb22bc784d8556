from libc.stdint cimport int32_t, int64_t, uint32_t

from hforest.growth.cpu.sources.columns cimport hf_columns
from hforest.growth.cpu.sources.ranks cimport hf_order
from hforest.growth.cpu.task cimport HF_PREFETCH, hf_task, hf_workspace

cdef extern from "core/once.h" nogil:
    bint hf_is_made(const int32_t* state)


# The workspace of a tree to encode columns.
ctypedef struct hf_encoder:
    void* value        # (t.n,) float or double
    hf_order order
    uint32_t* bins     # (t.n,)
    double* low        # (t.n,), if the columns have no tables

cdef void start_encoder(
    const hf_task* t, hf_workspace* r, const hf_columns* c, hf_encoder* encoder
) noexcept nogil
cdef void encode_column(
    const hf_task* t, const hf_columns* c, hf_encoder* encoder, int64_t column
) noexcept nogil


cdef inline void require_column(
    const hf_task* t, const hf_columns* c, hf_encoder* encoder, int64_t column
) noexcept nogil:
    # Encodes a column unless it is encoded.
    if c.state != NULL and not hf_is_made(c.state + column):
        encode_column(t, c, encoder, column)


cdef inline void prefetch_numbers_of(const hf_task* t, const hf_columns* c, int64_t column) noexcept nogil:
    # Prefetches the numbers of a column that will be encoded.
    cdef int64_t i, size = 4 if t.single else 8
    if c.state != NULL and not hf_is_made(c.state + column):
        for i in range(t.n):
            HF_PREFETCH(c.numbers + (i * c.n_columns + column) * size)
