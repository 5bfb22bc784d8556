from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from hforest.core.machine cimport hf_watch
from hforest.growth.cpu.scorers.node_scorer cimport hf_scorer
from hforest.growth.cpu.task cimport hf_pending, hf_split, hf_task, hf_workspace

# A key is a bin above a payload that is sorted along with it: 16 bits each, or 32 bits each.
ctypedef fused key_t:
    uint32_t
    uint64_t

cdef key_t* sort_keys(
    key_t* key, key_t* scratch, int64_t n, uint32_t lowest, uint32_t highest, hf_watch* watch
) noexcept nogil
cdef void scan_keys(
    const hf_task* t, hf_workspace* r, const uint64_t* key, int64_t n, double weight, hf_split* best
) noexcept nogil
cdef bint score_sorted(
    const hf_task* t, hf_workspace* r, hf_scorer* scorer, const int32_t* bin, hf_split* best
) noexcept nogil
cdef bint score_few(
    const hf_task* t, hf_workspace* r, const hf_pending* node, const int32_t* bin, int32_t lowest,
    hf_split* best
) noexcept nogil

cdef extern from "growth/cpu/scorers/term_cells.h" nogil:
    int HF_FEW
    void hf_order_few(const int32_t* bin, int n, int32_t lowest, uint8_t* order)
