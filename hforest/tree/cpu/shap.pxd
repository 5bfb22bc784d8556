"""Arguments of walks for Shapley values, and what both games share."""

from libc.stdint cimport int8_t, int64_t

from hforest.tree.cpu.walk cimport Walk, hf_forest

cdef extern from "tree/route.h" nogil:
    double hf_number(const void* a, int single, int64_t i)
    int hf_goes_right(const hf_forest* f, int64_t v, double threshold, double a)

cdef enum:
    TABLE = 64            # weights of fewer features from x, and of fewer from the background, are in a table

cdef struct Size:
    int64_t depth         # splits of the longest path
    int64_t n_players     # the most features that the splits of one path compare
    int64_t n_nodes       # of the largest tree


cdef struct Job:
    # The arguments of a call. Arrays of points have n_points entries.
    Walk walk
    Size size
    int64_t n_outputs
    int64_t block         # samples of a unit of work
    double* values        # OUT (n_samples, n_features, n_outputs), zeros
    # Path-dependent values:
    const double* share   # (n_nodes,)
    int64_t n_points
    const double* point   # t
    const double* rest    # 1 - t
    const double* cold    # -1 / (1 - t), which is c of a feature with o = 0
    const double* weight
    # Interventional values:
    const char* background
    int64_t n_background
    const double* row_weight     # (n_background,), sum 1 / n_trees
    const double* table          # (TABLE, TABLE): of n_x features from x and n_b from b
    int64_t max_branches
    int8_t* too_many             # OUT (n_samples,): 1 where a tree has more branches


cdef inline const char* row_of(const Walk* w, const void* x, int64_t i) noexcept nogil:
    return <const char*> x + i * w.n_features * (4 if w.single else 8)


cdef inline void columns_of(
    const Walk* w, const void* x, int64_t first, int64_t n, int64_t n_lanes, double* columns
) noexcept nogil:
    # Writes the columns of n rows from `first` on, (n_features, n_lanes). Rows after the last one repeat it.
    cdef int64_t i, s
    cdef const char* row
    for s in range(n_lanes):
        row = row_of(w, x, first + min(s, n - 1))
        for i in range(w.n_features):
            columns[i * n_lanes + s] = hf_number(row, w.single, i)


cdef inline bint goes_right(const Walk* w, int64_t v, double a) noexcept nogil:
    return hf_goes_right(&w.forest, v, hf_number(w.forest.threshold, w.single, v), a)


cdef inline int64_t value_row(const Walk* w, int64_t tree, int64_t v) noexcept nogil:
    # Returns where the value of a leaf begins. A tree of N nodes has (N + 1) / 2 leaves.
    return ((w.forest.tree_start[tree] + tree) // 2 + w.forest.left[v]) * w.n_outputs
