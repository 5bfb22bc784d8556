from libc.stdint cimport int64_t, uint32_t, uint64_t

from hforest.growth.cpu.sources.projections cimport hf_candidate, hf_entries, hf_projections
from hforest.growth.cpu.task cimport hf_task

cdef void draw_entries(const hf_projections* p, hf_candidate candidate, hf_entries* entries) noexcept nogil
cdef void prefetch_values(
    const hf_task* t, const hf_projections* p, const uint32_t* sample, int64_t n, hf_candidate candidate,
    hf_entries* entries
) noexcept nogil
cdef void project_values(
    const hf_task* t, const hf_projections* p, const uint32_t* sample, int64_t n, hf_candidate candidate,
    hf_entries* entries, void* value
) noexcept nogil
