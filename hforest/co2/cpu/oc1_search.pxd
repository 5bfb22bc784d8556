from libc.stdint cimport int64_t, uint32_t, uint64_t

from hforest.core.arena cimport hf_arena
from hforest.growth.cpu.task cimport hf_pending, hf_task, hf_workspace


# Search of oc1.py as a struct.
ctypedef struct hf_oc1:
    int64_t restarts
    int64_t jumps

# A line on which w may move, and what a thread needs to search it.
ctypedef struct hf_line:
    hf_workspace r        # the workspace of the tree, with running sums of its own
    double* direction     # (width,)
    double* along         # (n,): direction.x
    uint64_t* order       # (2 n,): keys of the values at which samples change sides, and scratch
    uint32_t* place       # (2 n,): the samples of these values, and scratch
    double score          # OUT: the best score on the line
    double step           # OUT: its distance from w, in directions

# Rows of n_features elements, followed by an implied -1 if `width` is n_features + 1; and arrays over the
# samples of a node.
ctypedef struct hf_oc1_workspace:
    const void* x
    int64_t n_features
    int64_t width
    bint single
    double* value         # (n,): w.x
    double* w             # (width,)
    double* best
    hf_line* line         # (n_lines,): those that threads search at a time
    int n_lines           # 1: the call may be within a parallel loop

cdef void start_oc1(
    hf_oc1_workspace* o, hf_arena* arena, const void* x, int64_t n_features, bint offset, bint single,
    int64_t n, int64_t n_outputs, int n_lines
) noexcept nogil
cdef void search_hyperplane(
    const hf_task* t, hf_workspace* r, const hf_pending* node, const hf_oc1* c, uint64_t key,
    hf_oc1_workspace* o, double* w
) noexcept nogil
