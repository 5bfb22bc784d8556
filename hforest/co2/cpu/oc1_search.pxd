from libc.stdint cimport int64_t, uint32_t, uint64_t

from hforest.core.arena cimport hf_arena
from hforest.growth.cpu.task cimport hf_pending, hf_task, hf_workspace


# Search of oc1.py as a struct.
ctypedef struct hf_oc1:
    int64_t restarts
    int64_t jumps

# Rows of n_features elements, followed by an implied -1 if `width` is n_features + 1; and arrays over the
# samples of a node.
ctypedef struct hf_oc1_workspace:
    const void* x
    int64_t n_features
    int64_t width
    bint single
    double* value         # (n,): w.x
    double* along         # (n,): the factor of the weight that is searched
    uint64_t* order       # (2 n,): keys of the values at which samples change sides, and scratch
    uint32_t* place       # (2 n,): the samples of these values, and scratch
    double* w             # (width,)
    double* best
    double* direction

cdef void start_oc1(
    hf_oc1_workspace* o, hf_arena* arena, const void* x, int64_t n_features, bint offset, bint single,
    int64_t n
) noexcept nogil
cdef void search_hyperplane(
    const hf_task* t, hf_workspace* r, const hf_pending* node, const hf_oc1* c, uint64_t key,
    hf_oc1_workspace* o, double* w
) noexcept nogil
