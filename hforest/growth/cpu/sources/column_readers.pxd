from libc.stdint cimport int64_t

from hforest.growth.cpu.sources.columns cimport hf_columns, hf_reader, hf_standardized
from hforest.growth.cpu.task cimport hf_pending, hf_task, hf_workspace

cdef hf_columns columns_of_windows(
    const hf_standardized* windows, int64_t n_columns, bint single
) noexcept nogil
cdef hf_reader reader_of(const hf_columns* c) noexcept nogil
cdef void prefetch_column(
    const hf_task* t, const hf_workspace* r, const hf_columns* c, const hf_pending* node, int64_t column
) noexcept nogil
