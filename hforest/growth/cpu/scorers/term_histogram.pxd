from libc.stdint cimport int32_t, int64_t, uint32_t

from hforest.growth.cpu.sources.columns cimport hf_columns
from hforest.growth.cpu.scorers.node_scorer cimport hf_scorer
from hforest.growth.cpu.task cimport hf_pending, hf_split, hf_task, hf_workspace

cdef bint start_cells(const hf_task* t, hf_workspace* r) noexcept nogil
cdef bint start_kept(const hf_task* t, hf_workspace* r, const hf_columns* c) noexcept nogil
cdef bint best_of_terms(
    const hf_task* t, hf_workspace* r, const hf_columns* c, hf_pending* node, const uint32_t* column,
    int64_t n_candidates, hf_split* best
) noexcept nogil


cdef inline void release_kept(hf_workspace* r, int kept) noexcept nogil:
    # Takes back the histogram of a node.
    r.cells.free[r.cells.n_free] = kept
    r.cells.n_free += 1
