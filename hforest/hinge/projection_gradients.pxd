from hforest.hinge.backward cimport Gradients
from hforest.hinge.forest cimport real
from hforest.hinge.inner_products cimport hf_products


# Gradients of a call with an inner product at each vertex; `base` has no features.
cdef struct LinearGradients:
    Gradients base
    const void* projections  # IN (n_trees, n_vertices, n_features) real
    void* grad_projections   # OUT (n_trees, n_vertices, n_features) real, or (n_rows, n_features)
    const hf_products* bodies  # or NULL

cdef int run_linear_backward(LinearGradients a, const real* x) except -1
