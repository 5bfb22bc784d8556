from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from hforest.growth.cpu.sources.projections cimport (
    corner_t, hf_candidate, hf_distribution, hf_entries, hf_projections, real,
)
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
cdef int whole_row(const real* x, int64_t n_features, uint8_t* bytes) noexcept nogil
cdef void fill_corners(const hf_distribution* a, const real* x, corner_t* corners) noexcept nogil
