from hforest.hinge.forest cimport Route, real


# Trees, or ferns, with an inner product at each vertex, and the samples that they route.
cdef struct LinearCall:
    bint fern
    int depth
    Py_ssize_t n_samples, n_features, n_trees, n_vertices
    const void* thresholds   # IN (n_trees, n_vertices) real
    const void* projections  # IN (n_trees, n_vertices, n_features) real
    Route route              # OUT

cdef LinearCall linear_call_of(bint fern, x, thresholds, projections, route) noexcept
cdef int route_linear(LinearCall call, const real* x) except -1
