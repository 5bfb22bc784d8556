from libc.stdint cimport int32_t

from hforest.hinge.cpu.forest cimport Forest, Route, real


# Routes of n samples in adjacent trees. That of sample s in tree j is at s * sample_step + j * tree_step.
cdef struct Group:
    int32_t* leaf
    void* margin          # real
    int32_t* vertex
    Py_ssize_t n, n_trees, sample_step, tree_step

# A call that computes outputs from known routes.
cdef struct Known:
    Forest forest
    Py_ssize_t n_samples
    bint summed
    double divisor
    Route route           # IN; the vertices are not read
    void* y               # OUT (n_samples, n_outputs) real if summed, else (n_samples, n_trees, n_outputs)

cdef void add_outputs(
    const Forest* forest, const Group* group, const real* weights, double* total) noexcept nogil
cdef void write_outputs(
    const Forest* forest, const Group* group, const real* weights, real* y, Py_ssize_t y_step) noexcept nogil
cdef void divide_sums(const double* total, Py_ssize_t n, double divisor, real* y) noexcept nogil
# `tag` selects float or double and is not read.
cdef int sum_leaves(Known a, const real* tag) except -1
