"""Reference implementation: hinge trees and ferns in plain loops (Lay et al. 2018, Random Hinge Forest).

Functions, parameters and output arrays are those of `cpu` and `gpu`. Weights are flattened to (n_trees,
n_leaves, n_outputs). Every sum runs in float64 and is rounded once. The exception is the gradient with
respect to rows: trees are added in their order in the dtype of x.
"""

import itertools

import numpy as np

from ...optim import reference as optimizer
from ...optim.settings import Visit
from ..shared import EAGER, Gradients


def _pixels(windows):
    """Yields for each window of an image the places of its pixels, -1 in the padding."""
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
    """Returns rows of x, or the windows of the images x (n_images, image) as rows; padding is 0."""
    if windows is None or x is None:
        return x
    rows = np.zeros((len(x) * windows.n_positions, windows.n_columns), x.dtype)
    for n in range(len(x)):
        for at, places in enumerate(_pixels(windows)):
            for column, place in enumerate(places):
                if place >= 0:
                    rows[n * windows.n_positions + at, column] = x[n, place]
    return rows


def _inner_product(a, b):
    """Returns a . b: eight partial sums in float64, element k in sum k % 8, rounded once to the dtype."""
    part = np.zeros(8)
    with np.errstate(over="ignore", invalid="ignore"):
        products = a.astype(np.float64) * b.astype(np.float64)
        for k in range(0, len(a), 8):
            part[: len(a) - k] += products[k : k + 8]
        p = part.tolist()
        total = ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]))
        return np.float64(total).astype(a.dtype)


def _pull_column(s, row, column):
    return [column], np.array([s]), None


def _pull_projection(s, row, p):
    # dr/dx = p, dr/dp = x; sums over samples are in float64.
    return slice(None), s * p, np.float64(s) * row.astype(np.float64)


# Functions by margin: the value at a row of x; for a slope s the columns of x, s dr/dx at them, and s dr/df.
MARGINS = {
    "column": (lambda row, column: row[column], _pull_column),
    "projection": (lambda row, p: _inner_product(p, row), _pull_projection),
}


def traverse(kind, margin, x, thresholds, features, route, windows=None):
    """Writes the route (Lay et al. 2018, Alg. 3; end of section 3: a fern has one decision per level)."""
    x, (leaf, margins, vertex) = _unfolded(x, windows), route
    value, _ = MARGINS[margin]
    n_trees, n_vertices = thresholds.shape
    depth = n_vertices if kind == "fern" else (n_vertices + 1).bit_length() - 1
    for n in range(x.shape[0]):
        for m in range(n_trees):
            lowest, lowest_vertex, v, bits = None, 0, 0, 0
            for _ in range(depth):
                r = value(x[n], features[m, v]) - thresholds[m, v]  # r = x_fv - t_v
                if lowest is None or abs(r) < abs(lowest):  # ties keep the vertex nearest to the root
                    lowest, lowest_vertex = r, v
                right = int(r > 0)
                bits = 2 * bits + right  # the first decision is the most significant bit
                v = v + 1 if kind == "fern" else 2 * v + right + 1
            leaf[n, m], margins[n, m], vertex[n, m] = bits, lowest, lowest_vertex


def leaf_outputs(leaf, margin, weights, divisor, y):
    """Writes h(x) = w_leaf |r*| (Lay et al. 2018, eq. 10), per tree (y of 3 axes) or summed and divided."""
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


def forward(kind, margin, x, thresholds, features, weights, divisor, y, route=None, windows=None):
    """Writes y (Lay et al. 2018, Alg. 3, then eq. 10), and the route if it is not None."""
    if route is None:
        shape = (y.shape[0], thresholds.shape[0])
        route = np.empty(shape, np.int32), np.empty(shape, x.dtype), np.empty(shape, np.int32)
    traverse(kind, margin, x, thresholds, features, route, windows)
    leaf_outputs(route[0], route[1], weights, divisor, y)


def backward(margin, grad_y, route, x, features, weights, divisor, rows, grads, windows=None):
    """Writes gradients (Lay et al. 2018, eq. 11-12, inner loop of Alg. 2), dense or at touched rows.

    rows is None, or pairs (start, rows) for vertices and for leaves: tree m has start[m]:start[m + 1].
    """
    (leaf, margins, vertex), (_, pull) = route, MARGINS[margin]
    grad_x, grad_thresholds, grad_features, grad_weights = grads
    x = _unfolded(x, windows)
    by_threshold, by_weight = np.zeros(features.shape[:2]), np.zeros(weights.shape)
    by_feature = np.zeros(features.shape)
    grad_x[...] = 0
    by_pixel = np.zeros(grad_x.shape)  # windows of images share pixels
    places = np.array(list(_pixels(windows))) if windows else np.zeros((0, 0))
    for n in range(leaf.shape[0]):
        for m in range(leaf.shape[1]):
            g = (grad_y[n, m] if grad_y.ndim == 3 else grad_y[n]).astype(np.float64) / divisor
            r, v, w = margins[n, m], vertex[n, m], weights[m, leaf[n, m]].astype(np.float64)
            # eq. 11: w_leaf sgn(r*), times dr/dx and dr/df at v*; sgn(0) = 0
            s = grad_x.dtype.type(np.sign(np.float64(r)) * np.dot(w, g))
            columns, by_x, of_feature = pull(s, None if x is None else x[n], features[m, v])
            if windows is None:
                np.add.at(grad_x[n], columns, by_x)
            else:
                image, at = divmod(n, windows.n_positions)
                place = places[at][columns]
                inside = place >= 0  # the padding is not learned
                np.add.at(by_pixel[image], place[inside], by_x[inside])
            by_threshold[m, v] -= s  # eq. 11 with respect to the threshold: r falls as t rises
            if of_feature is not None:
                by_feature[m, v] += of_feature
            by_weight[m, leaf[n, m]] += abs(np.float64(r)) * g  # eq. 12: |r*|
    if windows is not None:
        grad_x[...] = by_pixel
    by_vertex = [(grad_thresholds, by_threshold), (grad_features, by_feature)]
    for (grad, total), i in (*((pair, 0) for pair in by_vertex), ((grad_weights, by_weight), 1)):
        if grad is not None:
            grad[...] = total if rows is None else total.reshape(-1, *total.shape[2:])[rows[i][1]]


def touched(index, n_slots, start, rows):
    """Writes the distinct values of index[:, m] as rows m * n_slots + value, at start[m]:start[m + 1]."""
    start[0] = 0
    for m in range(index.shape[1]):
        values = np.unique(index[:, m])
        start[m + 1] = start[m] + len(values)
        rows[start[m] : start[m + 1]] = m * n_slots + values


def leaf_counts(leaf, counts):
    """Writes the number of samples in each leaf of each tree."""
    counts[...] = 0
    for n in range(leaf.shape[0]):
        for m in range(leaf.shape[1]):
            counts[m, leaf[n, m]] += 1


def _catch_up(parameters, state, step, settings):
    """Takes the missed steps of all rows up to `step`."""
    if step == 0:
        return
    thresholds, _, weights = parameters
    state.thresholds_last[:, :EAGER] = step
    for param, m, v, last in (
        (thresholds, state.thresholds_m, state.thresholds_v, state.thresholds_last),
        (weights, state.weights_m, state.weights_v, state.weights_last),
    ):
        by_row = (array.reshape(last.size, -1) for array in (param, m, v))
        at = Visit._make([*by_row, np.arange(last.size, dtype=np.int64), last.reshape(-1)])
        optimizer.adam_catch_up(at, step, settings[:4], settings[4])


def adam_forward(kind, x, parameters, state, step, settings, divisor, route, y):
    """Brings parameters to step - 1, then writes route and y (Lay et al. 2018, Alg. 3 and eq. 10).

    Every parameter moves in each step; `cpu` and `gpu` move only rows that a batch touches.
    """
    thresholds, features, weights = parameters
    _catch_up(parameters, state, step - 1, settings)
    traverse(kind, "column", x, thresholds, features, route)
    leaf_outputs(route[0], route[1], weights, divisor, y)


def adam_backward(grad_y, route, parameters, state, step, settings, divisor, grad_x):
    """Writes grad_x (Lay et al. 2018, eq. 11-12), and takes a step of Adam of all parameters."""
    thresholds, features, weights = parameters
    _catch_up(parameters, state, step - 1, settings)
    grad_t, grad_w = np.empty_like(thresholds), np.empty_like(weights)
    grads = Gradients(grad_x, grad_t, None, grad_w)
    backward("column", grad_y, route, None, features, weights, divisor, None, grads)
    for param, grad, m, v in (
        (thresholds, grad_t, state.thresholds_m, state.thresholds_v),
        (weights, grad_w, state.weights_m, state.weights_v),
    ):
        flat = param.reshape(-1), grad.reshape(-1), m.reshape(-1), v.reshape(-1)
        optimizer.adam(*flat, step, settings[:4])
    state.thresholds_last[...] = step
    state.weights_last[...] = step
