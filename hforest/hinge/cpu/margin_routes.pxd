from hforest.hinge.cpu.forest cimport Forest, Route, real
from hforest.hinge.cpu.projection cimport hf_margin
from hforest.hinge.cpu.windows cimport Windows


# A call that routes samples through trees or ferns by a margin that it knows only as a table of functions.
cdef struct MarginCall:
    Forest forest            # thresholds, weights and sizes; forest.features is NULL
    Route route              # OUT (n_samples, n_trees)
    const hf_margin* body
    const char* features     # IN (n_trees, n_vertices, row bytes)
    Py_ssize_t row_bytes     # bytes of the features of a vertex
    Py_ssize_t n_samples, n_columns
    bint windowed            # the samples are windows of images
    Windows windows

cdef MarginCall margin_call(str margin, bint fern, x, thresholds, features, weights, route, windows, taps)
cdef int route_margin(MarginCall call, const real* x) except -1
