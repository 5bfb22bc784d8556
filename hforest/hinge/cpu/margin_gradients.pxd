from hforest.hinge.cpu.gradients cimport Gradients
from hforest.hinge.cpu.forest cimport real
from hforest.hinge.cpu.projection cimport hf_margin


# Gradients with a margin that the call knows only as a table of functions; `base` has no features.
cdef struct MarginGradients:
    Gradients base
    const hf_margin* body
    const char* features     # IN (n_trees, n_vertices, row bytes)
    Py_ssize_t row_bytes     # per vertex
    Py_ssize_t width         # elements per row, if features are learned
    void* grad_features      # OUT (n_trees, n_vertices, width) real, or (n_rows, width), or NULL
    Py_ssize_t n_columns     # per sample

cdef int run_margin_backward(MarginGradients a, const real* x) except -1
