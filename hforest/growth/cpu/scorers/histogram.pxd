from libc.stdint cimport int64_t, uint32_t

from hforest.growth.cpu.sources.columns cimport hf_columns
from hforest.growth.cpu.task cimport hf_pending, hf_split, hf_task, hf_workspace

cdef bint best_of_histograms(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, double weight,
    const uint32_t* column, int64_t n_candidates, hf_split* best
) noexcept nogil
