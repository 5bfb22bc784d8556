"""Calls of few pairs of sample and tree, whose cost is the call itself.

The Python code of a public function and the memoryviews of a backend take microseconds, as long as hundreds
of pairs. Here arrays are read through NumPy's C API, and routes are on the stack. Arguments that are not
right give None: then the public function finds out what is wrong and raises. Results have the bits of the
backend.
"""

cimport numpy as cnp
from libc.math cimport fabs
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.type cimport PyType_GenericAlloc
from libc.stdint cimport int32_t

from hforest.core.machine cimport simd_path, some_nonfinite, some_outside
from hforest.hinge.kernels cimport (
    HF_WIDTH, hf_has_lanes, hf_route_lanes, hf_route_plain_f32, hf_route_plain_f64, hf_sum_f32, hf_sum_f64,
)

from .shared import Route

cnp.import_array()

cdef type ROUTE = Route

ctypedef fused real:
    float
    double

cdef enum:
    PAIRS = 1024          # of sample and tree at most: their route fits the stack
    FEW = 64              # pairs for which no vector path is missed
    OUTPUTS = 256         # of a leaf at most, likewise
    MAX_AXES = 8
    MAX_DEPTH = 30        # core.check's
    VALUES = 1 << 18      # of x and of thresholds at most: more are checked by all threads


cdef struct Call:
    Py_ssize_t n, n_features, n_trees, n_vertices, n_leaves, n_outputs
    int depth, fern


cdef bint _plain(cnp.ndarray a, int kind) noexcept:
    return cnp.PyArray_TYPE(a) == kind and cnp.PyArray_ISCARRAY_RO(a)


cdef bint _fits(Call* call, cnp.ndarray x, cnp.ndarray thresholds, cnp.ndarray features) noexcept:
    # Few pairs, and arrays that a traversal may read.
    cdef int kind = cnp.PyArray_TYPE(x)
    cdef Py_ssize_t pairs
    if kind != cnp.NPY_FLOAT32 and kind != cnp.NPY_FLOAT64:
        return False
    if not (_plain(x, kind) and _plain(thresholds, kind) and _plain(features, cnp.NPY_INT32)):
        return False
    if cnp.PyArray_NDIM(x) != 2 or cnp.PyArray_NDIM(thresholds) != 2 or cnp.PyArray_NDIM(features) != 2:
        return False
    call.n, call.n_features = cnp.PyArray_DIM(x, 0), cnp.PyArray_DIM(x, 1)
    call.n_trees, call.n_vertices = cnp.PyArray_DIM(thresholds, 0), cnp.PyArray_DIM(thresholds, 1)
    if call.n < 1 or call.n > PAIRS or call.n_trees < 1 or call.n_trees > PAIRS or call.n_features < 1:
        return False
    if cnp.PyArray_DIM(features, 0) != call.n_trees or cnp.PyArray_DIM(features, 1) != call.n_vertices:
        return False
    pairs = call.n * call.n_trees
    if pairs > PAIRS or call.n * call.n_features > VALUES or call.n_trees * call.n_vertices > VALUES:
        return False
    if call.fern:
        call.depth = <int> call.n_vertices
        # Eight samples fill the vectors of the backend.
        if pairs > FEW and call.n >= 8:
            return False
    else:
        call.depth = 0
        while call.n_vertices >> call.depth:
            call.depth += 1
        if call.n_vertices != (<Py_ssize_t> 1 << call.depth) - 1:
            return False
        if pairs > FEW and call.n >= 8 and not _lanes(call, kind):
            return False
    return 1 <= call.depth <= MAX_DEPTH


cdef bint _lanes(const Call* call, int kind) noexcept nogil:
    return not call.fern and kind == cnp.NPY_FLOAT32 and hf_has_lanes(simd_path(), 4, call.depth)


cdef bint _sound(const Call* call, cnp.ndarray x, cnp.ndarray thresholds, cnp.ndarray features) noexcept:
    # The checks that read values. Infinite thresholds are legal; the public function lets them pass.
    cdef Py_ssize_t n_values = call.n * call.n_features, n_vertices = call.n_trees * call.n_vertices
    cdef int size = cnp.PyArray_ITEMSIZE(x)
    return not (
        some_nonfinite(cnp.PyArray_DATA(x), n_values, size)
        or some_nonfinite(cnp.PyArray_DATA(thresholds), n_vertices, size)
        or some_outside(<const int32_t*> cnp.PyArray_DATA(features), n_vertices, call.n_features)
    )


cdef void _route(
    const Call* call, const real* x, const real* thresholds, const int32_t* features,
    int32_t* leaf, real* margin, int32_t* vertex,
) noexcept nogil:
    cdef Py_ssize_t m = 0
    if real is float:
        # A vector of one tree is no faster than the plain loop.
        if call.n_trees >= 4 and _lanes(call, cnp.NPY_FLOAT32):
            while m < call.n_trees:
                hf_route_lanes(
                    x, call.n_features, call.n, thresholds + m * call.n_vertices,
                    features + m * call.n_vertices,
                    <int> call.n_vertices, call.depth, <int> min(<Py_ssize_t> HF_WIDTH, call.n_trees - m),
                    leaf + m, margin + m, vertex + m, call.n_trees,
                )
                m += HF_WIDTH
        else:
            hf_route_plain_f32(
                x, call.n_features, call.n, thresholds, features, call.n_vertices, call.depth, call.fern,
                call.n_trees, leaf, margin, vertex, call.n_trees,
            )
    else:
        hf_route_plain_f64(
            x, call.n_features, call.n, thresholds, features, call.n_vertices, call.depth, call.fern,
            call.n_trees, leaf, margin, vertex, call.n_trees,
        )


cdef void _outputs(
    const Call* call, const real* x, const real* thresholds, const int32_t* features, const real* weights,
    double divisor, real* y,
) noexcept nogil:
    # A divisor of 0 keeps the trees apart.
    cdef int32_t leaf[PAIRS]
    cdef int32_t vertex[PAIRS]
    cdef real margin[PAIRS]
    cdef double total[OUTPUTS]
    cdef const real* row
    cdef real size
    cdef Py_ssize_t pair, n, k
    _route(call, x, thresholds, features, leaf, margin, vertex)
    if divisor == 0:
        for pair in range(call.n * call.n_trees):
            row = weights + (pair % call.n_trees * call.n_leaves + leaf[pair]) * call.n_outputs
            size = fabs(margin[pair])
            for k in range(call.n_outputs):
                y[k] = row[k] * size
            y += call.n_outputs
        return
    for n in range(call.n):
        pair = n * call.n_trees
        if real is float:
            hf_sum_f32(
                simd_path(), leaf + pair, margin + pair, weights, call.n_trees, call.n_leaves, call.n_outputs,
                divisor, total, y,
            )
        else:
            hf_sum_f64(
                simd_path(), leaf + pair, margin + pair, weights, call.n_trees, call.n_leaves, call.n_outputs,
                divisor, total, y,
            )
        y += call.n_outputs


cdef object _as_route(cnp.ndarray leaf, cnp.ndarray margin, cnp.ndarray vertex):
    # Route(leaf, margin, vertex) without its Python constructor, which takes a tenth of a call.
    cdef object route = PyType_GenericAlloc(ROUTE, 3)
    Py_INCREF(leaf)
    PyTuple_SET_ITEM(route, 0, leaf)
    Py_INCREF(margin)
    PyTuple_SET_ITEM(route, 1, margin)
    Py_INCREF(vertex)
    PyTuple_SET_ITEM(route, 2, vertex)
    return route


def traverse(bint fern, x, thresholds, features, bint checked):
    """The Route of a small call whose arguments are right; else None."""
    cdef Call call
    cdef cnp.npy_intp shape[2]
    call.fern = fern
    if type(x) is not cnp.ndarray or type(thresholds) is not cnp.ndarray or type(features) is not cnp.ndarray:
        return None
    if not _fits(&call, x, thresholds, features):
        return None
    if checked and not _sound(&call, x, thresholds, features):
        return None
    shape[0], shape[1] = call.n, call.n_trees
    cdef int kind = cnp.PyArray_TYPE(<cnp.ndarray> x)
    cdef cnp.ndarray leaf = cnp.PyArray_EMPTY(2, shape, cnp.NPY_INT32, 0)
    cdef cnp.ndarray margin = cnp.PyArray_EMPTY(2, shape, kind, 0)
    cdef cnp.ndarray vertex = cnp.PyArray_EMPTY(2, shape, cnp.NPY_INT32, 0)
    if kind == cnp.NPY_FLOAT32:
        _route[float](
            &call, <const float*> cnp.PyArray_DATA(x), <const float*> cnp.PyArray_DATA(thresholds),
            <const int32_t*> cnp.PyArray_DATA(features), <int32_t*> cnp.PyArray_DATA(leaf),
            <float*> cnp.PyArray_DATA(margin), <int32_t*> cnp.PyArray_DATA(vertex),
        )
    else:
        _route[double](
            &call, <const double*> cnp.PyArray_DATA(x), <const double*> cnp.PyArray_DATA(thresholds),
            <const int32_t*> cnp.PyArray_DATA(features), <int32_t*> cnp.PyArray_DATA(leaf),
            <double*> cnp.PyArray_DATA(margin), <int32_t*> cnp.PyArray_DATA(vertex),
        )
    return _as_route(leaf, margin, vertex)


def forward(bint fern, x, thresholds, features, weights, aggregate, bint checked):
    """Outputs of a small call whose arguments are right; else None."""
    cdef Call call
    cdef cnp.npy_intp shape[MAX_AXES]
    cdef int axis, n_axes, kind
    cdef double divisor
    cdef cnp.ndarray w, y
    call.fern = fern
    if type(x) is not cnp.ndarray or type(thresholds) is not cnp.ndarray:
        return None
    if type(features) is not cnp.ndarray or type(weights) is not cnp.ndarray:
        return None
    if not _fits(&call, x, thresholds, features):
        return None
    w = weights
    kind, n_axes = cnp.PyArray_TYPE(<cnp.ndarray> x), cnp.PyArray_NDIM(w)
    if not _plain(w, kind) or n_axes < 2 or n_axes > MAX_AXES:
        return None
    call.n_leaves = <Py_ssize_t> 1 << call.depth
    if cnp.PyArray_DIM(w, 0) != call.n_trees or cnp.PyArray_DIM(w, 1) != call.n_leaves:
        return None
    shape[0], shape[1] = call.n, call.n_trees
    # Aggregated, the axis of trees is not there.
    axis = 2
    if aggregate is None:
        divisor = 0
    elif aggregate == "sum" or aggregate == "mean":
        divisor = call.n_trees if aggregate == "mean" else 1
        axis = 1
    else:
        return None
    call.n_outputs = 1
    for i in range(2, n_axes):
        call.n_outputs *= cnp.PyArray_DIM(w, i)
        shape[axis + i - 2] = cnp.PyArray_DIM(w, i)
    if call.n_outputs < 1 or call.n_outputs > OUTPUTS:
        return None
    if checked and not _sound(&call, x, thresholds, features):
        return None
    y = cnp.PyArray_EMPTY(axis + n_axes - 2, shape, kind, 0)
    if kind == cnp.NPY_FLOAT32:
        _outputs[float](
            &call, <const float*> cnp.PyArray_DATA(x), <const float*> cnp.PyArray_DATA(thresholds),
            <const int32_t*> cnp.PyArray_DATA(features), <const float*> cnp.PyArray_DATA(w), divisor,
            <float*> cnp.PyArray_DATA(y),
        )
    else:
        _outputs[double](
            &call, <const double*> cnp.PyArray_DATA(x), <const double*> cnp.PyArray_DATA(thresholds),
            <const int32_t*> cnp.PyArray_DATA(features), <const double*> cnp.PyArray_DATA(w), divisor,
            <double*> cnp.PyArray_DATA(y),
        )
    return y
