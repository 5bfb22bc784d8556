from libc.stdint cimport int32_t, int64_t

from hforest.core.machine cimport hf_watch
from hforest.hinge.cpu.forest cimport Forest, Route, real
from hforest.hinge.cpu.windows cimport Windows


# A call that computes gradients (Lay et al. 2018, eq. 11-12).
cdef struct Gradients:
    Forest forest
    Route route           # IN
    Py_ssize_t n_samples, n_features
    double divisor
    bint shared           # the trees share one gradient because their outputs were summed
    const void* grad_y    # IN (n_samples, n_outputs) real if shared, else (n_samples, n_trees, n_outputs)
    void* slope           # workspace (n_trees, n_samples) real
    void* grad_x          # OUT (n_samples, n_features) real, or images
    bint windowed         # the samples are windows of images, the features are taps
    Windows windows
    # Gradients are dense if the rows are NULL, else those of the rows; tree m has rows start[m]:start[m + 1].
    void* grad_thresholds  # OUT (n_trees, n_vertices) real or (n_rows,)
    void* grad_weights    # OUT (n_trees, n_leaves, n_outputs) real or (n_rows, n_outputs)
    const int64_t* vertex_start  # IN (n_trees + 1,)
    const int64_t* vertex_rows   # IN (n_rows,), tree * n_vertices + vertex
    const int64_t* leaf_start    # IN (n_trees + 1,)
    const int64_t* leaf_rows     # IN (n_rows,), tree * n_leaves + leaf

# Routes of n samples in a group of trees, the samples of a tree contiguous: each array is (GROUP, step).
cdef struct Columns:
    int32_t* leaf
    void* margin          # real
    int32_t* vertex
    Py_ssize_t step       # elements from one tree to the next, see column_step

cdef extern from "hinge/cpu/visits.h" nogil:
    ctypedef struct hf_visits:
        Py_ssize_t n, n_outputs, step
        double divisor
        const int32_t* leaf
        const int32_t* place
        const void* margin
        const void* grad_y
        const void* weights
        double* total
        const int32_t* next_leaf
        const void* next_rows[3]
        int n_next

cdef Columns load_columns(
    int path, const Route* route, Py_ssize_t count, Py_ssize_t first, Py_ssize_t start, Py_ssize_t n,
    const Columns* workspace, const real* tag) noexcept nogil
cdef void visit_samples(int path, const hf_visits* a, real* slope) noexcept nogil
cdef void add_slopes(const int32_t* vertex, const real* slope, Py_ssize_t n, double* total) noexcept nogil
cdef void take_row(int path, double* total, Py_ssize_t n_outputs, double divisor, real* row) noexcept nogil
cdef void input_gradients(const Gradients* a, real* grad_x, int threads, hf_watch* watch) noexcept nogil
# `tag` selects float or double and is not read.
cdef int run_slopes(Gradients a, const real* tag) except -1
cdef int run_backward(Gradients a, const real* tag) except -1


cdef inline Py_ssize_t column_step(const Route* route, Py_ssize_t n) noexcept nogil:
    # Returns the elements between columns of n samples in a workspace; 0 if the route itself has columns. The
    # padding of a cache line keeps a power-of-two n from mapping all sixteen columns, which are written
    # together, to one set of L1.
    return 0 if route.sample_step == 1 else (n + 15) // 16 * 16 + 16
