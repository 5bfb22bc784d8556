"""Nodes in the order in which single rows walk through them (prepared.pyx)."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from hforest.core.arena cimport hf_arena
from hforest.core.machine cimport hf_watch
from hforest.tree.cpu.walk cimport Walk

cdef extern from "tree/cpu/simd/one_row.h" nogil:
    enum:
        HF_SMALL_NODES, HF_FLOAT_NODES, HF_DOUBLE_NODES

cdef enum:
    PACK_NS = 10          # nanoseconds per node that is packed
    STEP_NS = 6           # nanoseconds per step of a row
    QUICK = 1 << 14       # steps of a call that keeps the GIL, at most: about 0.1 milliseconds

cdef struct Packed:
    # The nodes that rows walk through. A place is the position of a node among the packed nodes of all trees.
    Walk w                # arrays of the forest; members for samples and results are not set
    int form              # node form (simd/one_row.h)
    char* nodes           # (n_places,), or NULL: rows are walked node by node
    uint32_t* root        # (n_trees,): places
    int32_t* number       # (n_places,): the node's number within its tree
    int32_t* answer       # (n_places,), for leaves: the only class, or -1 - the row of values within the tree
    const Walk* projected  # the layout of a forest with projections, or NULL
    bint has_missing      # shows_missing; otherwise other functions handle rows with missing values
    bint is_wide          # a row has two columns of each feature (`narrowed`)
    int64_t n_columns
    int64_t n_nodes
    double steps          # steps from node to node per row, at most
    double cost           # steps, and elements read and written, per row

cdef struct Splits:
    # The input of packing: the column of each node, negative for none, and the thresholds.
    const int32_t* column  # (n_nodes,): column that a node compares
    const void* threshold  # (n_nodes,): float or double
    int32_t* depth        # OUT (n_trees,): depth of each tree

cdef void pack_nodes(Packed* p, Splits* splits, bint packs, hf_arena* arena, hf_watch* watch) noexcept nogil
