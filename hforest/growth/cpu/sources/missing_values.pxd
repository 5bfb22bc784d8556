from libc.stdint cimport int64_t, uint32_t, uint64_t

from hforest.growth.cpu.task cimport hf_pending, hf_split, hf_task, hf_workspace

cdef int64_t n_missing(const void* values, int64_t n, bint single, double* greatest) noexcept nogil
cdef int64_t split_missing(
    const hf_task* t, bint single, const void* values, int64_t n, uint64_t key, int64_t number,
    hf_split* split, uint32_t* left, int64_t* n_missing
) noexcept nogil
cdef void place_missing(
    const hf_task* t, hf_workspace* r, const hf_pending* node, hf_split* split
) noexcept nogil
