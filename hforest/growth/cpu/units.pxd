from libc.stdint cimport int32_t, int64_t

from hforest.growth.cpu.task cimport hf_pending, hf_task, hf_units, hf_workspace

cdef extern from "growth/units.h" nogil:
    bint hf_needs_unit(double spread, double unit_spread, double heaviest, double unit_heaviest)

cdef const hf_units* unit_of_node(const hf_task* t, hf_workspace* r, const hf_pending* node) noexcept nogil
cdef const hf_units* unit_of_root(const hf_task* t, hf_workspace* r, int64_t number) noexcept nogil
cdef void measure(
    const hf_task* t, hf_workspace* r, const hf_pending* node, double* spread, double* heaviest
) noexcept nogil
cdef void sum_leaf(
    const hf_task* t, hf_workspace* r, const hf_pending* node, bint pure, hf_units* unit
) noexcept nogil
