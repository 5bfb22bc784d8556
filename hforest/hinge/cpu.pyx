"""The CPU backend of random hinge trees and ferns (Lay et al. 2018).

Each output element is computed by one thread, no sum is shared between threads and nothing is atomic: the
result has the same bits at every number of threads. The work is in

route.pyx      routes of samples, Alg. 3
leaf_sums.pyx  outputs of routed samples, eq. 10
backward.pyx   gradients, eq. 11-12
touched.pyx    rows that a batch touches
steps.pyx      steps of training
inner_products.pyx, projection_gradients.pyx  an inner product at each vertex

Calls that write results alone stop for a signal (core/watch.h). Steps of Adam are in place and do not.
"""

from libc.stdint cimport int32_t, int64_t

from hforest.hinge.backward cimport Gradients, run_backward
from hforest.hinge.forest cimport forest_of, route_of, start_of
from hforest.hinge.inner_products cimport LinearCall, linear_call_of, route_linear
from hforest.hinge.leaf_sums cimport Known, sum_leaves
from hforest.hinge.projection_gradients cimport LinearGradients, run_linear_backward
from hforest.hinge.route cimport Call, call_of, run
from hforest.hinge.steps cimport catch_up, step_back
from hforest.hinge.touched cimport count_leaves, touched_rows
from hforest.hinge.windows cimport windows_of

from .geometry import taps, used_taps


def tree_traverse(x, thresholds, features, leaf, margin, vertex, windows=None):
    """Lay et al. 2018, Alg. 3, HingeTreeTraversal."""
    places, features = used_taps(windows, features)
    route = leaf, margin, vertex
    cdef Call call = call_of(False, x, thresholds, features, None, 1, None, route, windows, places)
    if x.itemsize == 4:
        run(call, <const float*> start_of(x))
    else:
        run(call, <const double*> start_of(x))


def fern_traverse(x, thresholds, features, leaf, margin, vertex, windows=None):
    """Lay et al. 2018, Alg. 3 with one decision per level."""
    places, features = used_taps(windows, features)
    route = leaf, margin, vertex
    cdef Call call = call_of(True, x, thresholds, features, None, 1, None, route, windows, places)
    if x.itemsize == 4:
        run(call, <const float*> start_of(x))
    else:
        run(call, <const double*> start_of(x))


def tree_forward(x, thresholds, features, weights, divisor, y, route=None, windows=None):
    """Lay et al. 2018, Alg. 3, then eq. 10; leaf, margin and vertex as well if there is a route."""
    places, features = used_taps(windows, features)
    cdef Call call = call_of(False, x, thresholds, features, weights, divisor, y, route, windows, places)
    if x.itemsize == 4:
        run(call, <const float*> start_of(x))
    else:
        run(call, <const double*> start_of(x))


def fern_forward(x, thresholds, features, weights, divisor, y, route=None, windows=None):
    """Lay et al. 2018, Alg. 3 for ferns, then eq. 10."""
    places, features = used_taps(windows, features)
    cdef Call call = call_of(True, x, thresholds, features, weights, divisor, y, route, windows, places)
    if x.itemsize == 4:
        run(call, <const float*> start_of(x))
    else:
        run(call, <const double*> start_of(x))


def leaf_outputs(leaf, margin, weights, divisor, y):
    """Lay et al. 2018, eq. 10 for known routes: for each tree (y of 3 axes), or summed and divided."""
    cdef Known a
    a.n_samples, a.divisor, a.summed = leaf.shape[0], divisor, y.ndim == 2
    a.forest.n_trees, a.forest.n_leaves, a.forest.n_outputs = weights.shape
    a.forest.weights = start_of(weights)
    a.leaf, a.margin, a.y = <int32_t*> start_of(leaf), start_of(margin), start_of(y)
    if y.itemsize == 4:
        sum_leaves[float](a, NULL)
    else:
        sum_leaves[double](a, NULL)


cdef Gradients _gradients(
    grad_y, route, features, weights, divisor, grad_x, grad_thresholds, grad_weights
):
    cdef Gradients a
    a.forest = forest_of(False, None, features, weights)
    a.route, a.divisor, a.shared = route_of(route), divisor, grad_y.ndim == 2
    a.n_samples, a.n_features, a.windowed = route[0].shape[0], grad_x.shape[1], False
    a.grad_y, a.grad_x = start_of(grad_y), start_of(grad_x)
    a.grad_thresholds, a.grad_weights = start_of(grad_thresholds), start_of(grad_weights)
    a.vertex_start = a.vertex_rows = a.leaf_start = a.leaf_rows = NULL
    return a


cdef int _backward(Gradients a, grad_x, windows) except -1:
    """Lay et al. 2018, eq. 11-12 of rows, or of windows of images."""
    places = None
    if windows is not None:
        places = taps(windows)
        a.windowed, a.windows = True, windows_of(windows, grad_x.shape[0], places)
    if grad_x.itemsize == 4:
        return run_backward[float](a, NULL)
    return run_backward[double](a, NULL)


def backward(
    grad_y, route, features, weights, divisor, grad_x, grad_thresholds, grad_weights, windows=None
):
    """Dense gradients (Lay et al. 2018, eq. 11-12)."""
    if route[0].shape[0] == 0:
        grad_thresholds[...] = 0
        grad_weights[...] = 0
        return
    cdef Gradients a = _gradients(
        grad_y, route, features, weights, divisor, grad_x, grad_thresholds, grad_weights
    )
    _backward(a, grad_x, windows)


def backward_sparse(
    grad_y, route, features, weights, divisor, vertices, leaves, grad_x, grad_thresholds, grad_weights,
    windows=None,
):
    """The same gradients at touched rows only, given as (start, rows): of tree m at start[m]:start[m + 1]."""
    if route[0].shape[0] == 0:
        return
    cdef Gradients a = _gradients(
        grad_y, route, features, weights, divisor, grad_x, grad_thresholds, grad_weights
    )
    a.vertex_start, a.vertex_rows = <int64_t*> start_of(vertices[0]), <int64_t*> start_of(vertices[1])
    a.leaf_start, a.leaf_rows = <int64_t*> start_of(leaves[0]), <int64_t*> start_of(leaves[1])
    _backward(a, grad_x, windows)


def touched(index, n_slots, start, rows):
    """Distinct values of each index[:, m], as rows m * n_slots + value, at start[m]:start[m + 1]."""
    touched_rows(index, n_slots, start, rows)


def leaf_counts(leaf, counts):
    """Samples in each leaf of each tree."""
    count_leaves(leaf, counts)


def tree_adam_forward(x, parameters, state, step, settings, divisor, route, y):
    """Parameters to step - 1, as far as the batch reads them, then Lay et al. 2018, Alg. 3 and eq. 10."""
    catch_up(False, x, parameters, state, step, settings, route)
    leaf_outputs(route[0], route[1], parameters[2], divisor, y)


def fern_adam_forward(x, parameters, state, step, settings, divisor, route, y):
    """The same for ferns."""
    catch_up(True, x, parameters, state, step, settings, route)
    leaf_outputs(route[0], route[1], parameters[2], divisor, y)


def adam_backward(grad_y, route, parameters, state, step, settings, divisor, grad_x):
    """Lay et al. 2018, eq. 11-12 and a step of Adam, tree by tree."""
    step_back(grad_y, route, parameters, state, step, settings, divisor, grad_x)


def tree_linear_traverse(x, thresholds, projections, leaf, margin, vertex):
    """Lay et al. 2018, Alg. 3 with r_v = p_v . x - t_v, at the vertices of the path alone."""
    cdef LinearCall call = linear_call_of(False, x, thresholds, projections, (leaf, margin, vertex))
    if x.itemsize == 4:
        route_linear(call, <const float*> start_of(x))
    else:
        route_linear(call, <const double*> start_of(x))


def fern_linear_traverse(x, thresholds, projections, leaf, margin, vertex):
    """The same with one decision per level."""
    cdef LinearCall call = linear_call_of(True, x, thresholds, projections, (leaf, margin, vertex))
    if x.itemsize == 4:
        route_linear(call, <const float*> start_of(x))
    else:
        route_linear(call, <const double*> start_of(x))


cdef LinearGradients _linear_gradients(grad_y, route, projections, weights, divisor, grads):
    # Of the arrays; grads: grad_x, grad_thresholds, grad_projections, grad_weights.
    cdef LinearGradients a
    a.base = _gradients(
        grad_y, route, projections[:, :, 0], weights, divisor, grads[0], grads[1], grads[3]
    )
    a.base.forest.features = NULL
    a.projections, a.grad_projections = start_of(projections), start_of(grads[2])
    return a


def linear_backward(
    grad_y, route, x, projections, weights, divisor, grad_x, grad_thresholds, grad_projections, grad_weights
):
    """Dense gradients (Lay et al. 2018, eq. 11-12 and the chain rule)."""
    cdef LinearGradients a
    grads = grad_x, grad_thresholds, grad_projections, grad_weights
    if grad_x.shape[0] == 0:
        for grad in grads:
            grad[...] = 0
        return
    a = _linear_gradients(grad_y, route, projections, weights, divisor, grads)
    if grad_x.itemsize == 4:
        run_linear_backward(a, <const float*> start_of(x))
    else:
        run_linear_backward(a, <const double*> start_of(x))


def linear_backward_sparse(
    grad_y, route, x, projections, weights, divisor, vertices, leaves,
    grad_x, grad_thresholds, grad_projections, grad_weights
):
    """The same gradients at touched rows only, given as (start, rows): of tree m at start[m]:start[m + 1]."""
    cdef LinearGradients a
    if grad_x.shape[0] == 0:
        return
    grads = grad_x, grad_thresholds, grad_projections, grad_weights
    a = _linear_gradients(grad_y, route, projections, weights, divisor, grads)
    a.base.vertex_start, a.base.leaf_start = <int64_t*> start_of(vertices[0]), <int64_t*> start_of(leaves[0])
    a.base.vertex_rows, a.base.leaf_rows = <int64_t*> start_of(vertices[1]), <int64_t*> start_of(leaves[1])
    if grad_x.itemsize == 4:
        run_linear_backward(a, <const float*> start_of(x))
    else:
        run_linear_backward(a, <const double*> start_of(x))
