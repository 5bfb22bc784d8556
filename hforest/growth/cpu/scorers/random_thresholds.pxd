from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from hforest.growth.cpu.sources.columns cimport hf_range
from hforest.growth.cpu.task cimport hf_pending, hf_split, hf_task, hf_workspace

ctypedef fused value_t:
    float
    double
    int32_t

cdef double random_threshold(
    const hf_task* t, uint64_t key, int64_t number, double least, double greatest
) noexcept nogil
cdef uint32_t split_bins(
    const hf_task* t, const double* low, const double* high, hf_range bins, uint64_t key, int64_t number,
    hf_split* split
) noexcept nogil
cdef int64_t split_values(
    const hf_task* t, const value_t* value, int64_t n, uint64_t key, int64_t number, hf_split* split,
    uint32_t* left
) noexcept nogil
cdef void write_sides(
    hf_workspace* r, const hf_pending* node, const uint32_t* left, int64_t n_left
) noexcept nogil
