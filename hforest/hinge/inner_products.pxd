from hforest.hinge.forest cimport Route, real


cdef extern from "hinge/products.h" nogil:
    ctypedef struct hf_products:
        void (*multiply)(
            int count, const void** a, const void** b, Py_ssize_t n, double* product) noexcept nogil
        void (*add_wide)(
            int count, const void** rows, const double* scale, Py_ssize_t n, double* total) noexcept nogil
        void (*add_rows)(
            int count, const void** rows, const double* scale, Py_ssize_t n, void* total) noexcept nogil

# Trees, or ferns, with an inner product at each vertex, and the samples that they route.
cdef struct LinearCall:
    bint fern
    int depth
    Py_ssize_t n_samples, n_features, n_trees, n_vertices
    const void* thresholds   # IN (n_trees, n_vertices) real
    const void* projections  # IN (n_trees, n_vertices, n_features) real
    Route route              # OUT
    const hf_products* bodies  # or NULL

# Returns the vector bodies for numbers of itemsize bytes on the path in use, or NULL where it has none.
cdef const hf_products* products_of(int itemsize) noexcept nogil

cdef LinearCall linear_call_of(bint fern, x, thresholds, projections, route)
cdef int route_linear(LinearCall call, const real* x) except -1
