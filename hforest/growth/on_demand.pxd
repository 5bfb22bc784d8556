from libc.stdint cimport int32_t, int64_t, uint32_t

from hforest.growth.columns cimport hf_columns
from hforest.growth.ranks cimport hf_order
from hforest.growth.task cimport hf_pending, hf_task, hf_workspace

cdef extern from "core/once.h" nogil:
    bint hf_is_made(const int32_t* state)


# The workspace of a tree to make columns.
ctypedef struct hf_maker:
    void* value        # (t.n,) float or double
    hf_order order
    uint32_t* bins     # (t.n,)
    double* low        # (t.n,), if the columns have no tables

cdef void start_maker(const hf_task* t, hf_workspace* r, const hf_columns* c, hf_maker* maker) noexcept nogil
cdef void make_column(const hf_task* t, const hf_columns* c, hf_maker* maker, int64_t column) noexcept nogil


cdef inline void require_column(
    const hf_task* t, const hf_columns* c, hf_maker* maker, int64_t column
) noexcept nogil:
    # Makes a column unless it is made.
    if c.state != NULL and not hf_is_made(c.state + column):
        make_column(t, c, maker, column)
