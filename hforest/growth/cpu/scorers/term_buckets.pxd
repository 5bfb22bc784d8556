from libc.stdint cimport int32_t

from hforest.growth.cpu.scorers.node_scorer cimport hf_scorer
from hforest.growth.cpu.task cimport hf_split, hf_task, hf_workspace

cdef void start_term_buckets(const hf_task* t, hf_workspace* r, hf_scorer* scorer, bint whole) noexcept nogil
cdef bint score_term_buckets(
    const hf_task* t, hf_workspace* r, hf_scorer* scorer, const int32_t* bin, hf_split* best
) noexcept nogil
