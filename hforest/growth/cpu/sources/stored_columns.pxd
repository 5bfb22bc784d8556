from libc.stdint cimport int64_t, uint32_t, uint64_t

from hforest.growth.cpu.sources.columns cimport hf_columns
from hforest.growth.cpu.sources.node_orders cimport hf_column_workspace
from hforest.growth.cpu.task cimport hf_pending, hf_split, hf_task, hf_workspace

cdef bint scan_few(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, double weight,
    int64_t column, bint* varies, hf_split* best
) noexcept nogil
cdef hf_split best_random_stored(
    const hf_task* t, hf_workspace* r, hf_pending* node, uint64_t key, double weight
) noexcept nogil
