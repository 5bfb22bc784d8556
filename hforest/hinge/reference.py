"""Reference implementation: hinge trees and ferns in plain loops (Lay et al. 2018).

Same functions, parameters and output arrays as `cpu` and `gpu`. Weights come flattened to
(n_trees, n_leaves, n_outputs). Every sum runs in float64 and is rounded once, except the sum of
`grad_x` over trees, which is added in the order of the trees in the dtype of `grad_x`.
"""

import itertools
import sys

import numpy as np

from ..optim import reference as optimizer
from . import dense_adam


def _pixels(windows):
    """Yields for each window of an image the places of its taps, -1 in the padding."""
    w = windows
    for i, j, k in itertools.product(range(w.out0), range(w.out1), range(w.out2)):
        places = []
        for channel in range(w.channels):
            for a, b, c in itertools.product(range(w.kernel0), range(w.kernel1), range(w.kernel2)):
                i0 = i * w.stride0 - w.padding0 + a * w.dilation0
                i1 = j * w.stride1 - w.padding1 + b * w.dilation1
                i2 = k * w.stride2 - w.padding2 + c * w.dilation2
                inside = 0 <= i0 < w.size0 and 0 <= i1 < w.size1 and 0 <= i2 < w.size2
                place = ((channel * w.size0 + i0) * w.size1 + i1) * w.size2 + i2
                places.append(place if inside else -1)
        yield places


def _unfolded(x, windows):
    """Rows of x, or the windows of the images x (n_images, image) as rows; padding is 0."""
    if windows is None:
        return x
    rows = np.zeros((len(x) * windows.n_positions, windows.n_columns), x.dtype)
    for n in range(len(x)):
        for at, places in enumerate(_pixels(windows)):
            for column, place in enumerate(places):
                if place >= 0:
                    rows[n * windows.n_positions + at, column] = x[n, place]
    return rows


def tree_traverse(x, thresholds, features, leaf, margin, vertex, windows=None):
    """Lay et al. 2018, Alg. 3, HingeTreeTraversal."""
    x = _unfolded(x, windows)
    n_trees, n_vertices = thresholds.shape
    depth = (n_vertices + 1).bit_length() - 1
    for n in range(x.shape[0]):
        for m in range(n_trees):
            lowest = x[n, features[m, 0]] - thresholds[m, 0]  # r* = x_f0 - t_0
            lowest_vertex, v, bits = 0, 0, 0
            for _ in range(depth):
                r = x[n, features[m, v]] - thresholds[m, v]  # r = x_fv - t_v
                if abs(r) < abs(lowest):  # a tie keeps the vertex nearest the root
                    lowest, lowest_vertex = r, v
                right = int(r > 0)
                bits = 2 * bits + right
                v = 2 * v + right + 1
            leaf[n, m], margin[n, m], vertex[n, m] = bits, lowest, lowest_vertex


def fern_traverse(x, thresholds, features, leaf, margin, vertex, windows=None):
    """Lay et al. 2018, Alg. 3, with one decision per level (section 3, last paragraph)."""
    x = _unfolded(x, windows)
    n_ferns, depth = thresholds.shape
    for n in range(x.shape[0]):
        for m in range(n_ferns):
            lowest = x[n, features[m, 0]] - thresholds[m, 0]
            lowest_vertex, bits = 0, 0
            for i in range(depth):
                r = x[n, features[m, i]] - thresholds[m, i]
                if abs(r) < abs(lowest):
                    lowest, lowest_vertex = r, i
                bits = 2 * bits + int(r > 0)  # the first decision is the most significant bit
            leaf[n, m], margin[n, m], vertex[n, m] = bits, lowest, lowest_vertex


def leaf_outputs(leaf, margin, weights, divisor, y):
    """Lay et al. 2018, eq. 10: h(x) = w_leaf |r*|, for each tree (y of 3 axes), or summed and divided."""
    n_samples, n_trees = leaf.shape
    for n in range(n_samples):
        total = np.zeros(weights.shape[2], np.float64)
        for m in range(n_trees):
            outputs = weights[m, leaf[n, m]] * abs(margin[n, m])
            if y.ndim == 3:
                y[n, m] = outputs
            total += outputs
        if y.ndim == 2:
            y[n] = total / divisor


def _forward(traverse, x, thresholds, features, weights, divisor, y, route, windows):
    if route is None:
        shape = (y.shape[0], thresholds.shape[0])
        route = np.empty(shape, np.int32), np.empty(shape, x.dtype), np.empty(shape, np.int32)
    leaf, margin, vertex = route
    traverse(x, thresholds, features, leaf, margin, vertex, windows)
    leaf_outputs(leaf, margin, weights, divisor, y)


def tree_forward(x, thresholds, features, weights, divisor, y, route=None, windows=None):
    """Lay et al. 2018, Alg. 3, then eq. 10; leaf, margin and vertex as well if there is a route."""
    _forward(tree_traverse, x, thresholds, features, weights, divisor, y, route, windows)


def fern_forward(x, thresholds, features, weights, divisor, y, route=None, windows=None):
    """Lay et al. 2018, Alg. 3 for ferns, then eq. 10."""
    _forward(fern_traverse, x, thresholds, features, weights, divisor, y, route, windows)


def _gradients(grad_y, route, features, weights, divisor, grad_x, by_threshold, by_weight, windows):
    # Lay et al. 2018, eq. 11-12 and the inner loop of Alg. 2. `by_threshold` and `by_weight` are float64.
    leaf, margin, vertex = route
    grad_x[...] = 0
    by_pixel = np.zeros(grad_x.shape)  # of images, whose windows share pixels
    places = list(_pixels(windows)) if windows else []
    for n in range(leaf.shape[0]):
        for m in range(leaf.shape[1]):
            g = (grad_y[n, m] if grad_y.ndim == 3 else grad_y[n]).astype(np.float64) / divisor
            r, v, w = margin[n, m], vertex[n, m], weights[m, leaf[n, m]].astype(np.float64)
            # eq. 11: w_leaf sgn(r*), at feature f_v* of the input; sgn(0) = 0
            s = grad_x.dtype.type(np.sign(np.float64(r)) * np.dot(w, g))
            if windows is None:
                grad_x[n, features[m, v]] += s
            else:
                image, at = divmod(n, windows.n_positions)
                if places[at][features[m, v]] >= 0:  # the padding is not learned
                    by_pixel[image, places[at][features[m, v]]] += s
            by_threshold[m, v] -= s  # eq. 11 by the threshold: r falls as t rises
            by_weight[m, leaf[n, m]] += abs(np.float64(r)) * g  # eq. 12: |r*|
    if windows is not None:
        grad_x[...] = by_pixel


def backward(grad_y, route, features, weights, divisor, grad_x, grad_thresholds, grad_weights, windows=None):
    """Dense gradients (Lay et al. 2018, eq. 11-12)."""
    by_threshold, by_weight = np.zeros(features.shape), np.zeros(weights.shape)
    _gradients(grad_y, route, features, weights, divisor, grad_x, by_threshold, by_weight, windows)
    grad_thresholds[...] = by_threshold
    grad_weights[...] = by_weight


def backward_sparse(
    grad_y,
    route,
    features,
    weights,
    divisor,
    vertices,
    leaves,
    grad_x,
    grad_thresholds,
    grad_weights,
    windows=None,
):
    """The same gradients at touched rows only, given as (start, rows): of tree m at start[m]:start[m + 1]."""
    by_threshold, by_weight = np.zeros(features.shape), np.zeros(weights.shape)
    _gradients(grad_y, route, features, weights, divisor, grad_x, by_threshold, by_weight, windows)
    grad_thresholds[...] = by_threshold.reshape(-1)[vertices[1]]
    grad_weights[...] = by_weight.reshape(-1, weights.shape[2])[leaves[1]]


def touched(index, n_slots, start, rows):
    """Distinct values of each index[:, m], as rows m * n_slots + value, at start[m]:start[m + 1]."""
    start[0] = 0
    for m in range(index.shape[1]):
        values = np.unique(index[:, m])
        start[m + 1] = start[m] + len(values)
        rows[start[m] : start[m + 1]] = m * n_slots + values


def leaf_counts(leaf, counts):
    """Samples in each leaf of each tree."""
    counts[...] = 0
    for n in range(leaf.shape[0]):
        for m in range(leaf.shape[1]):
            counts[m, leaf[n, m]] += 1


def tree_adam_forward(x, parameters, state, step, settings, divisor, route, y):
    """Parameters to step - 1, then Lay et al. 2018, Alg. 3 and eq. 10."""
    backend = sys.modules[__name__]
    dense_adam.adam_forward(
        backend, optimizer, tree_traverse, x, parameters, state, step, settings, divisor, route, y
    )


def fern_adam_forward(x, parameters, state, step, settings, divisor, route, y):
    """The same for ferns."""
    backend = sys.modules[__name__]
    dense_adam.adam_forward(
        backend, optimizer, fern_traverse, x, parameters, state, step, settings, divisor, route, y
    )


def adam_backward(grad_y, route, parameters, state, step, settings, divisor, grad_x):
    """Lay et al. 2018, eq. 11-12, then a step of Adam."""
    backend = sys.modules[__name__]
    dense_adam.adam_backward(
        backend, optimizer, grad_y, route, parameters, state, step, settings, divisor, grad_x
    )


# --------------------------------------------------------------------- an inner product for each vertex


def _inner_product(a, b):
    """a . b in eight partial sums in float64, element k in sum k % 8, rounded once to the dtype."""
    part = np.zeros(8)
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(0, len(a), 8):
            n = len(a[k : k + 8])
            part[:n] += a[k : k + 8].astype(np.float64) * b[k : k + 8].astype(np.float64)
        p = part.tolist()
        total = ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]))
        return np.float64(total).astype(a.dtype)


def tree_linear_traverse(x, thresholds, projections, leaf, margin, vertex):
    """Lay et al. 2018, Alg. 3 with r_v = p_v . x - t_v, at the vertices of the path alone."""
    n_trees, n_vertices = thresholds.shape
    depth = (n_vertices + 1).bit_length() - 1
    for n in range(x.shape[0]):
        for m in range(n_trees):
            lowest, lowest_vertex, v, bits = None, 0, 0, 0
            for _ in range(depth):
                r = _inner_product(projections[m, v], x[n]) - thresholds[m, v]  # r = p_v . x - t_v
                if lowest is None or abs(r) < abs(lowest):  # a tie keeps the vertex nearest the root
                    lowest, lowest_vertex = r, v
                right = int(r > 0)
                bits = 2 * bits + right
                v = 2 * v + right + 1
            leaf[n, m], margin[n, m], vertex[n, m] = bits, lowest, lowest_vertex


def fern_linear_traverse(x, thresholds, projections, leaf, margin, vertex):
    """The same with one decision per level (Lay et al. 2018, section 3, last paragraph)."""
    n_ferns, depth = thresholds.shape
    for n in range(x.shape[0]):
        for m in range(n_ferns):
            lowest, lowest_vertex, bits = None, 0, 0
            for i in range(depth):
                r = _inner_product(projections[m, i], x[n]) - thresholds[m, i]
                if lowest is None or abs(r) < abs(lowest):
                    lowest, lowest_vertex = r, i
                bits = 2 * bits + int(r > 0)
            leaf[n, m], margin[n, m], vertex[n, m] = bits, lowest, lowest_vertex


def _linear_gradients(grad_y, route, x, projections, weights, divisor, grad_x):
    # Lay et al. 2018, Fig. 2: a linear layer z = x P' of n_trees * n_vertices outputs below a forest that
    # reads output (m, v) at vertex v of tree m. Returns float64 sums by thresholds, projections and weights.
    n_trees, n_vertices, _ = projections.shape
    features = np.arange(n_trees * n_vertices).reshape(n_trees, n_vertices)
    grad_z = np.empty((len(x), features.size), x.dtype)
    by_threshold, by_projection = np.zeros(features.shape), np.zeros(projections.shape)
    by_weight = np.zeros(weights.shape)
    _gradients(grad_y, route, features, weights, divisor, grad_z, by_threshold, by_weight, None)
    grad_x[...] = 0
    for n in range(len(x)):
        for m in range(n_trees):
            v = route[2][n, m]  # grad_z[n] is 0 at the other vertices of the tree
            s = grad_z[n, features[m, v]]
            grad_x[n] += s * projections[m, v]  # dL/dx = sum over (m, v) of dL/dz p
            by_projection[m, v] += np.float64(s) * x[n].astype(np.float64)  # dL/dp = sum over n of dL/dz x
    return by_threshold, by_projection, by_weight


def linear_backward(
    grad_y, route, x, projections, weights, divisor,
    grad_x, grad_thresholds, grad_projections, grad_weights,
):  # fmt: skip
    """Dense gradients (Lay et al. 2018, eq. 11-12 and the chain rule)."""
    sums = _linear_gradients(grad_y, route, x, projections, weights, divisor, grad_x)
    grad_thresholds[...], grad_projections[...], grad_weights[...] = sums


def linear_backward_sparse(
    grad_y, route, x, projections, weights, divisor, vertices, leaves,
    grad_x, grad_thresholds, grad_projections, grad_weights,
):  # fmt: skip
    """The same gradients at touched rows only, given as (start, rows): of tree m at start[m]:start[m + 1]."""
    sums = _linear_gradients(grad_y, route, x, projections, weights, divisor, grad_x)
    by_threshold, by_projection, by_weight = sums
    grad_thresholds[...] = by_threshold.reshape(-1)[vertices[1]]
    grad_projections[...] = by_projection.reshape(-1, x.shape[1])[vertices[1]]
    grad_weights[...] = by_weight.reshape(-1, weights.shape[2])[leaves[1]]
