from libc.stdint cimport int32_t, int64_t, uint32_t

from hforest.growth.bodies cimport hf_value_pairs
from hforest.growth.columns cimport hf_columns
from hforest.growth.task cimport hf_pending, hf_split, hf_task, hf_workspace

cdef void best_pairwise(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, double weight,
    const uint32_t* column, int64_t n_candidates, hf_split* best
) noexcept nogil
cdef void start_value_pairs(
    const hf_task* t, hf_workspace* r, const hf_pending* node, double weight, hf_value_pairs* p
) noexcept nogil
cdef bint score_value_pairs(
    const hf_task* t, hf_value_pairs* p, const int32_t* code, double* best, int32_t* low
) noexcept nogil
