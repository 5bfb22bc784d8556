from libc.stdint cimport int32_t

from hforest.hinge.cpu.forest cimport Forest, Route, real


cdef extern from "hinge/cpu/sums.h" nogil:
    ctypedef struct Group "hf_group":
        int32_t* leaf
        void* margin
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
    int path, const Forest* forest, const Group* group, const real* weights, double* total) noexcept nogil
cdef void write_outputs(
    const Forest* forest, const Group* group, const real* weights, real* y, Py_ssize_t y_step) noexcept nogil
cdef void divide_sums(const double* total, Py_ssize_t n, double divisor, real* y) noexcept nogil
# `tag` selects float or double and is not read.
cdef int sum_leaves(Known a, const real* tag) except -1
