from hforest.hinge.cpu.forest cimport Forest, Route, real
from hforest.hinge.cpu.windows cimport Windows


# The input and the results of a routing call.
cdef struct Call:
    Forest forest
    Route route           # OUT, or NULL pointers
    void* y               # OUT real, or NULL
    bint summed           # y is (n_samples, n_outputs), else (n_samples, n_trees, n_outputs)
    double divisor
    Py_ssize_t n_samples, n_features
    bint windowed         # the samples are windows of images, the features are taps
    Windows windows

cdef Call call_of(
    bint fern, x, thresholds, features, weights, double divisor, y, route, windows, taps)
cdef int run(Call call, const real* x) except -1
