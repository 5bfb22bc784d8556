"""The CPU backend of random hinge trees and ferns (Lay et al. 2018, Random Hinge Forest).

Each output element is computed by one thread, no sum is shared between threads and nothing is atomic: results
are bit-identical at every number of threads. The work is in

route.pyx            routes by columns, Alg. 3, and outputs computed while the routes are in cache
leaf_sums.pyx        outputs of routed samples, eq. 10
gradients.pyx        gradients, eq. 11-12
touched.pyx          rows that a batch touches
steps.pyx            training steps
margin_routes.pyx, margin_gradients.pyx  all other margins, by their functions (margin.h)

Calls that only write results stop at a signal (core/watch.h). Adam's steps are in place and do not stop.
"""

import sys

from libc.stdint cimport int32_t, int64_t

from hforest.hinge.cpu.gradients cimport Gradients, run_backward
from hforest.hinge.cpu.forest cimport forest_of, route_of, start_of
from hforest.hinge.cpu.leaf_sums cimport Known, sum_leaves
from hforest.hinge.cpu.margin_gradients cimport MarginGradients, run_margin_backward
from hforest.hinge.cpu.margin_routes cimport MarginCall, margin_call, route_margin
from hforest.hinge.cpu.route cimport Call, call_of, run
from hforest.hinge.cpu.steps cimport catch_up, step_back
from hforest.hinge.cpu.touched cimport count_leaves, touched_rows
from hforest.hinge.cpu.windows cimport windows_of

from ...core.windows import taps, used_taps
from ..chunks import forward_in_chunks

PAIRS = 1 << 20
"""(sample, tree) pairs that are routed before their leaves are summed; bounds the workspace."""


cdef int _route_columns(kind, x, thresholds, features, weights, divisor, y, route, windows) except -1:
    places, features = used_taps(windows, features)
    cdef Call call = call_of(
        kind == "fern", x, thresholds, features, weights, divisor, y, route, windows, places
    )
    if x.itemsize == 4:
        return run(call, <const float*> start_of(x))
    return run(call, <const double*> start_of(x))


def traverse(kind, margin, x, thresholds, features, route, windows=None):
    """Writes routes (Lay et al. 2018, Alg. 3, HingeTreeTraversal); a fern has one decision per level."""
    if margin == "column":
        _route_columns(kind, x, thresholds, features, None, 1, None, route, windows)
        return
    cdef MarginCall call
    if x.shape[0] == 0:
        return
    places = None if windows is None else taps(windows)
    call = margin_call(margin, kind == "fern", x, thresholds, features, None, route, windows, places)
    if x.itemsize == 4:
        route_margin(call, <const float*> start_of(x))
    else:
        route_margin(call, <const double*> start_of(x))


def forward(kind, margin, x, thresholds, features, weights, divisor, y, route=None, windows=None):
    """Writes outputs (Lay et al. 2018, Alg. 3, then eq. 10), and the route unless it is None."""
    if margin == "column":
        _route_columns(kind, x, thresholds, features, weights, divisor, y, route, windows)
        return
    forward_in_chunks(
        sys.modules[__name__], kind, margin, x, thresholds, features, weights, divisor, y, route, windows
    )


def leaf_outputs(leaf, margin, weights, divisor, y):
    """Writes outputs of known routes (Lay et al. 2018, eq. 10): per tree, or summed if y has 2 axes."""
    cdef Known a
    a.n_samples, a.divisor, a.summed = leaf.shape[0], divisor, y.ndim == 2
    a.forest.n_trees, a.forest.n_leaves, a.forest.n_outputs = weights.shape
    a.forest.weights = start_of(weights)
    a.leaf, a.margin, a.y = <int32_t*> start_of(leaf), start_of(margin), start_of(y)
    if y.itemsize == 4:
        sum_leaves[float](a, NULL)
    else:
        sum_leaves[double](a, NULL)


cdef Gradients _gradients(grad_y, route, features, weights, divisor, rows, grads, windows, places):
    # features may be None; grads are grad_x, grad_thresholds, grad_features, grad_weights.
    cdef Gradients a
    a.forest = forest_of(False, None, features, weights)
    a.route, a.divisor, a.shared = route_of(route), divisor, grad_y.ndim == 2
    a.n_samples, a.n_features = route[0].shape[0], grads[0].shape[1]
    a.grad_y, a.grad_x = start_of(grad_y), start_of(grads[0])
    a.grad_thresholds, a.grad_weights = start_of(grads[1]), start_of(grads[3])
    a.vertex_start = a.vertex_rows = a.leaf_start = a.leaf_rows = NULL
    if rows is not None:
        a.vertex_start, a.vertex_rows = <int64_t*> start_of(rows[0][0]), <int64_t*> start_of(rows[0][1])
        a.leaf_start, a.leaf_rows = <int64_t*> start_of(rows[1][0]), <int64_t*> start_of(rows[1][1])
    a.windowed = windows is not None
    if a.windowed:
        a.windows = windows_of(windows, grads[0].shape[0], places)
    return a


def backward(margin, grad_y, route, x, features, weights, divisor, rows, grads, windows=None):
    """Writes gradients (Lay et al. 2018, eq. 11-12), dense or at touched rows.

    rows is None or, for vertices and for leaves, (start, rows) with tree m at start[m]:start[m + 1].
    """
    cdef Gradients a
    cdef MarginGradients b
    if route[0].shape[0] == 0:
        for grad in grads:
            if grad is not None:
                grad[...] = 0
        return
    places = None if windows is None else taps(windows)
    columns = features if margin == "column" else None
    a = _gradients(grad_y, route, columns, weights, divisor, rows, grads, windows, places)
    if margin == "column":
        if weights.itemsize == 4:
            run_backward[float](a, NULL)
        else:
            run_backward[double](a, NULL)
        return
    a.forest.n_trees, a.forest.n_vertices = features.shape[:2]
    call = margin_call(margin, False, grads[0], None, features, weights, None, windows, places)
    b.base, b.body, b.features, b.row_bytes = a, call.body, call.features, call.row_bytes
    b.n_columns, b.width, b.grad_features = call.n_columns, features[0, 0].size, start_of(grads[2])
    if weights.itemsize == 4:
        run_margin_backward(b, <const float*> start_of(x))
    else:
        run_margin_backward(b, <const double*> start_of(x))


def touched(index, n_slots, start, rows):
    """Writes the distinct values of index[:, m] to start[m]:start[m + 1], as rows m * n_slots + value."""
    touched_rows(index, n_slots, start, rows)


def leaf_counts(leaf, counts):
    """Writes the number of samples in each leaf of each tree."""
    count_leaves(leaf, counts)


def adam_forward(kind, x, parameters, state, step, settings, divisor, route, y):
    """Takes the missed steps of the rows read, then writes outputs (Lay et al. 2018, Alg. 3 and eq. 10)."""
    catch_up(kind == "fern", x, parameters, state, step, settings, route)
    leaf_outputs(route[0], route[1], parameters[2], divisor, y)


def adam_backward(grad_y, route, parameters, state, step, settings, divisor, grad_x):
    """Writes grad_x (Lay et al. 2018, eq. 11-12) and takes a step of Adam, tree by tree."""
    step_back(grad_y, route, parameters, state, step, settings, divisor, grad_x)
