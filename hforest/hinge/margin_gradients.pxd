from hforest.hinge.gradients cimport Gradients
from hforest.hinge.forest cimport real
from hforest.hinge.projection cimport hf_margin


# Gradients of a call with a margin of which the call knows a body alone; `base` has no features.
cdef struct MarginGradients:
    Gradients base
    const hf_margin* body
    const char* features     # IN (n_trees, n_vertices, row bytes)
    Py_ssize_t row_bytes     # of a vertex
    Py_ssize_t width         # elements of a row, where features are learned
    void* grad_features      # OUT (n_trees, n_vertices, width) real, or (n_rows, width), or NULL
    Py_ssize_t n_columns     # of a sample

cdef int run_margin_backward(MarginGradients a, const real* x) except -1
