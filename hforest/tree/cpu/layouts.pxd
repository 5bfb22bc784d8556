"""Trees that are packed for many samples, and kept."""

from libc.stdint cimport int64_t

from hforest.core.arena cimport hf_arena
from hforest.tree.cpu.walk cimport Walk

cdef class Layout:
    # Trees packed for samples without missing values, whose leaves have the classes of means, or of votes.
    cdef Walk w               # members for samples and results are not set
    cdef int64_t n_nodes
    cdef hf_arena _arena
    cdef object _forest

cdef Layout layout_of(forest, bint vote)
cdef int run_layout(Layout layout, const void* x, int64_t n, void* leaf, void* y) except -1
