from libc.stdint cimport int32_t

from hforest.growth.cpu.scorers.bodies cimport hf_bodies, hf_buckets
from hforest.growth.cpu.scorers.node_scorer cimport hf_scorer
from hforest.growth.cpu.task cimport hf_split, hf_task, hf_workspace

cdef bint start_buckets(
    const hf_task* t, hf_workspace* r, hf_scorer* scorer, bint whole, bint is_wide
) noexcept nogil
cdef int divide(const hf_bodies* bodies, hf_buckets* s, const int32_t* bin) noexcept nogil
cdef bint score_buckets(
    const hf_task* t, hf_workspace* r, hf_scorer* scorer, const int32_t* bin, hf_split* best
) noexcept nogil
