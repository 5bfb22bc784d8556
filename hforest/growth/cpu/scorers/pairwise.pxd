from libc.stdint cimport int32_t, int64_t, uint32_t

from hforest.growth.cpu.sources.columns cimport hf_columns
from hforest.growth.cpu.scorers.node_scorer cimport hf_scorer
from hforest.growth.cpu.task cimport hf_pending, hf_split, hf_task, hf_workspace

cdef void best_pairwise(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, double weight,
    const uint32_t* column, int64_t n_candidates, hf_split* best
) noexcept nogil
cdef void start_pairs(const hf_task* t, hf_workspace* r, hf_scorer* scorer) noexcept nogil
cdef bint score_pairs(
    const hf_task* t, hf_workspace* r, hf_scorer* scorer, const int32_t* bin, hf_split* best
) noexcept nogil
