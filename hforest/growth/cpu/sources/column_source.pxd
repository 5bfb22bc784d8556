from libc.stdint cimport uint64_t

from hforest.growth.cpu.sources.columns cimport hf_columns
from hforest.growth.cpu.task cimport hf_pending, hf_source, hf_split, hf_task, hf_workspace

cdef hf_source source_of_columns(const hf_columns* columns) noexcept nogil
cdef bint start_columns(const hf_task* t, hf_workspace* r, const hf_columns* c) noexcept nogil
cdef hf_split best_column(
    const hf_task* t, hf_workspace* r, hf_pending* node, uint64_t key, double weight
) noexcept nogil
