"""Samples grouped by the leaves that they reach: quantiles of targets, and leaves that two samples share."""

from libc.stdint cimport int32_t, int64_t

from hforest.core.machine cimport hf_watch

cdef struct Members:
    # A row is represented by its leaves, -1 if it reaches none. Members are numbered from 0 to n_members - 1.
    # Those of node v in tree m are member[indptr[tree_start[m] + v]:indptr[tree_start[m] + v + 1]].
    const int32_t* leaf       # (n_rows, n_trees)
    const int64_t* tree_start  # (n_trees + 1,)
    const int64_t* indptr     # (n_nodes + 1,)
    const int32_t* member     # (n_entries,)
    const double* weight      # (n_entries,), or NULL if all are 1
    bint equal_trees          # the weights of a leaf are divided by their sum
    int64_t n_rows
    int64_t n_trees
    int64_t n_members

cdef struct Quantiles:
    const double* y           # (n_members,) in ascending order
    const double* level       # (n_levels,)
    int64_t n_levels
    double* quantile          # OUT: the quantiles of row i begin at quantile + i * stride
    int64_t stride

cdef struct Neighbors:
    int64_t least             # least number of trees that two samples share
    int64_t most              # maximum number of members per row; n_members for all
    bint single
    int64_t* size             # OUT (n_rows,): number of members per row, or NULL
    const int64_t* row_start  # (n_rows + 1,); read only if size is NULL, as are the next two
    int32_t* indices          # OUT: members in ascending order
    void* data                # OUT: shares of the trees, float if `single`, else double

cdef void group_tree(
    int64_t tree, const int32_t[:, ::1] leaf, const int64_t[::1] tree_start, int64_t[::1] indptr,
    int32_t[::1] member,
) noexcept nogil
cdef void write_quantiles(const Members* f, const Quantiles* q, hf_watch* watch) noexcept nogil
cdef void write_neighbors(const Members* f, const Neighbors* p, hf_watch* watch) noexcept nogil
