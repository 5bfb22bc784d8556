from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from hforest.core.machine cimport hf_watch
from hforest.growth.task cimport hf_pending, hf_split, hf_task, hf_workspace

# A key is a code above a payload, which sorting carries along: 16 bits of each, or 32.
ctypedef fused key_t:
    uint32_t
    uint64_t

cdef key_t* sort_keys(
    key_t* key, key_t* scratch, int64_t n, uint32_t lowest, uint32_t highest, hf_watch* watch
) noexcept nogil
cdef void scan(
    const hf_task* t, hf_workspace* r, const key_t* key, int64_t n, double weight, hf_split* best
) noexcept nogil
cdef void scan_codes(
    const hf_task* t, hf_workspace* r, const hf_pending* node, double weight, const int32_t* code,
    hf_split* best
) noexcept nogil
