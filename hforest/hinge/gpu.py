"""Random hinge trees and ferns on a GPU (Lay et al. 2018); the kernels are in gpu.cu.

Scratch comes from the array module of the arguments, work goes to the caller's stream, and nothing here
waits for the device.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..core.aliases import Array, FloatArray, IntArray
from ..core.dispatch import array_module
from ..core.launch import launch, launch_each
from ..optim import gpu as optimizer
from . import dense_adam
from .geometry import Windows
from .shared import Arrays, Route, Settings
from .training import AdamState

PACKAGE = Path(__file__).parent

PAIRS = 1 << 22
"""Pairs of a sample and a tree that are routed before their leaves are summed: bounds the scratch."""

COLUMNS = 32
"""Elements of y that a block of `leaf_outputs_sum` owns; gpu.cu knows this number."""

DOT = 8
"""Threads that share an inner product; gpu.cu knows this number."""

LANES = 32
"""Threads that share a sum over many samples; the order of such a sum depends on shapes alone."""

FEW = 256
"""Samples up to which one thread makes such a sum, in the order of the samples as the CPU does."""


class Routing(NamedTuple):
    """As gpu.cu declares it."""

    thresholds: FloatArray
    features: IntArray
    n_samples: int
    n_trees: int
    n_vertices: int
    depth: int
    leaf: IntArray
    margin: FloatArray
    vertex: IntArray


def _traverse(
    kernel: str,
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    route: tuple[IntArray, FloatArray, IntArray],
    windows: Windows | None,
) -> None:
    (n_samples, n_trees), n_vertices = route[0].shape, thresholds.shape[1]
    depth = n_vertices if kernel == "fern_traverse" else (n_vertices + 1).bit_length() - 1
    a = Routing(thresholds, features, n_samples, n_trees, n_vertices, depth, *route)
    if windows is None:
        launch_each(PACKAGE, kernel, x.dtype, n_samples * n_trees, (x, x.shape[1], a))
    else:
        launch_each(PACKAGE, f"{kernel}_windows", x.dtype, n_samples * n_trees, (x, windows, a))


def tree_traverse(
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
    windows: Windows | None = None,
) -> None:
    """Lay et al. 2018, Alg. 3, HingeTreeTraversal."""
    _traverse("tree_traverse", x, thresholds, features, (leaf, margin, vertex), windows)


def fern_traverse(
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
    windows: Windows | None = None,
) -> None:
    """Lay et al. 2018, Alg. 3 with one decision per level."""
    _traverse("fern_traverse", x, thresholds, features, (leaf, margin, vertex), windows)


def leaf_outputs(
    leaf: IntArray, margin: FloatArray, weights: FloatArray, divisor: float, y: FloatArray
) -> None:
    """Lay et al. 2018, eq. 10 for known routes: for each tree (y of 3 axes), or summed and divided."""
    n_samples = leaf.shape[0]
    n_trees, n_leaves, n_outputs = weights.shape
    args = (leaf, margin, weights, n_samples, n_trees, n_leaves, n_outputs)
    if y.ndim == 3:
        launch_each(PACKAGE, "leaf_outputs_each", y.dtype, n_samples * n_trees * n_outputs, (*args, y))
    else:
        n_blocks = -(-n_samples * n_outputs // COLUMNS)
        launch(PACKAGE, "leaf_outputs_sum", y.dtype, n_blocks, (*args, divisor, y))


def tree_forward(
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    weights: FloatArray,
    divisor: float,
    y: FloatArray,
    route: Route | None = None,
    windows: Windows | None = None,
) -> None:
    """Lay et al. 2018, Alg. 3, then eq. 10; leaf, margin and vertex as well if there is a route."""
    _forward("tree_traverse", x, thresholds, features, weights, divisor, y, route, windows)


def fern_forward(
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    weights: FloatArray,
    divisor: float,
    y: FloatArray,
    route: Route | None = None,
    windows: Windows | None = None,
) -> None:
    """Lay et al. 2018, Alg. 3 for ferns, then eq. 10."""
    _forward("fern_traverse", x, thresholds, features, weights, divisor, y, route, windows)


def _forward(
    kernel: str,
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    weights: FloatArray,
    divisor: float,
    y: FloatArray,
    route: Route | None,
    windows: Windows | None,
) -> None:
    if route is not None:
        _traverse(kernel, x, thresholds, features, route, windows)
        leaf_outputs(*route[:2], weights, divisor, y)
        return
    # In chunks of rows or images, so that extra memory is constant.
    empty = array_module(x).empty
    n_rows, n_trees, samples = x.shape[0], thresholds.shape[0], windows.n_positions if windows else 1
    chunk = min(max(1, PAIRS // (n_trees * samples)), n_rows)
    shape = (chunk * samples, n_trees)
    leaf, vertex, margin = empty(shape, np.int32), empty(shape, np.int32), empty(shape, x.dtype)
    for start in range(0, n_rows, chunk or 1):
        n = min(chunk, n_rows - start)
        part = slice(start * samples, (start + n) * samples)
        to = (leaf[: n * samples], margin[: n * samples], vertex[: n * samples])
        _traverse(kernel, x[start : start + n], thresholds, features, to, windows)
        leaf_outputs(*to[:2], weights, divisor, y[part])


def _keys(index: IntArray, n_slots: int) -> Array:
    # Row tree * n_slots + index of each pair. Narrow keys take half the passes of a radix sort.
    n_rows = index.shape[1] * n_slots
    dtype = np.int32 if n_rows < 2**31 else np.int64
    first = array_module(index).arange(0, n_rows, n_slots, dtype=dtype)
    return (index + first).ravel()


def _segments(index: IntArray, n_slots: int, rows: Array | None) -> tuple[Array, Array]:
    # Pairs sorted by row, those of one row by sample, and where each row's pairs begin and end.
    xp = array_module(index)
    keys = _keys(index, n_slots)
    order = xp.argsort(keys, kind="stable")
    if rows is None:
        rows = xp.arange(index.shape[1] * n_slots, dtype=keys.dtype)
    start = xp.empty(rows.size + 1, np.int64)
    start[:-1] = xp.searchsorted(keys[order], rows)
    start[-1] = keys.size
    return order, start


def _backward_images(
    vertex: IntArray, features: IntArray, slope: FloatArray, windows: Windows, grad_x: FloatArray
) -> None:
    # Slopes sorted by the number of an image that they go to; those of the padding are last.
    xp = array_module(slope)
    n_places, sizes = grad_x.size, (*vertex.shape, features.shape[1])
    places = xp.empty(vertex.size, np.int64)
    launch_each(
        PACKAGE, "window_places", slope.dtype, vertex.size,
        (vertex, features, *sizes, windows, n_places, places),
    )  # fmt: skip
    order = xp.argsort(places, kind="stable")
    start = xp.searchsorted(places[order], xp.arange(n_places + 1)).astype(np.int64)
    launch_each(PACKAGE, "backward_images", slope.dtype, n_places, (slope, order, start, n_places, grad_x))


def _slopes(grad_y: FloatArray, route: Route, weights: FloatArray, divisor: float) -> FloatArray:
    # The slopes of eq. 11, (n_samples, n_trees).
    n_samples, (n_trees, n_leaves, n_outputs) = len(route.leaf), weights.shape
    grad_trees, dtype = n_trees if grad_y.ndim == 3 else 1, route.margin.dtype
    slope = array_module(route.margin).empty(route.margin.shape, dtype)
    args = (grad_y, route.leaf, route.margin, weights, n_samples, n_trees, grad_trees, n_leaves, n_outputs)
    launch_each(PACKAGE, "backward_slopes", dtype, n_samples * n_trees, (*args, divisor, slope))
    return slope


def _lanes(n_samples: int) -> int:
    return 1 if n_samples <= FEW else LANES


def _by_thresholds(slope: FloatArray, order: Array, start: Array, grad_thresholds: FloatArray) -> None:
    n_rows, lanes = grad_thresholds.size, _lanes(len(slope))
    args = (slope, order, start, n_rows, lanes, grad_thresholds)
    launch_each(PACKAGE, "backward_thresholds", slope.dtype, n_rows * lanes, args)


def _by_weights(
    grad_y: FloatArray,
    route: Route,
    weights: FloatArray,
    divisor: float,
    leaf_rows: Array | None,
    grad_weights: FloatArray,
) -> None:
    n_trees, n_leaves, n_outputs = weights.shape
    grad_trees, lanes = n_trees if grad_y.ndim == 3 else 1, _lanes(len(route.leaf))
    order, start = _segments(route.leaf, n_leaves, leaf_rows)
    n_rows = grad_weights.size // n_outputs
    args = (grad_y, route.margin, order, start, n_trees, grad_trees, n_outputs, divisor)
    n = n_rows * n_outputs * lanes
    launch_each(PACKAGE, "backward_weights", route.margin.dtype, n, (*args, n_rows, lanes, grad_weights))


def _backward(
    grad_y: FloatArray,
    route: Route,
    features: IntArray,
    weights: FloatArray,
    divisor: float,
    vertex_rows: Array | None,
    leaf_rows: Array | None,
    grad_x: FloatArray,
    grad_thresholds: FloatArray,
    grad_weights: FloatArray,
    windows: Windows | None = None,
) -> None:
    # Row lists of None stand for all rows.
    route = Route(*route)
    slope, (n_trees, n_vertices) = _slopes(grad_y, route, weights, divisor), features.shape
    if windows is None:
        args = (route.vertex, features, slope, n_trees, n_vertices, grad_x.shape[1], grad_x)
        launch(PACKAGE, "backward_x", slope.dtype, len(slope), args)
    else:
        _backward_images(route.vertex, features, slope, windows, grad_x)
    order, start = _segments(route.vertex, n_vertices, vertex_rows)
    _by_thresholds(slope, order, start, grad_thresholds)
    _by_weights(grad_y, route, weights, divisor, leaf_rows, grad_weights)


def backward(
    grad_y: FloatArray,
    route: Route,
    features: IntArray,
    weights: FloatArray,
    divisor: float,
    grad_x: FloatArray,
    grad_thresholds: FloatArray,
    grad_weights: FloatArray,
    windows: Windows | None = None,
) -> None:
    """Dense gradients (Lay et al. 2018, eq. 11-12)."""
    if route[0].shape[0] == 0:
        grad_thresholds.fill(0)
        grad_weights.fill(0)
        return
    _backward(
        grad_y, route, features, weights, divisor, None, None, grad_x, grad_thresholds, grad_weights, windows
    )  # fmt: skip


def backward_sparse(
    grad_y: FloatArray,
    route: Route,
    features: IntArray,
    weights: FloatArray,
    divisor: float,
    vertices: tuple[Array, Array],
    leaves: tuple[Array, Array],
    grad_x: FloatArray,
    grad_thresholds: FloatArray,
    grad_weights: FloatArray,
    windows: Windows | None = None,
) -> None:
    """The same gradients at touched rows only, given as (start, rows): of tree m at start[m]:start[m + 1]."""
    if route[0].shape[0] == 0:
        return
    _backward(
        grad_y, route, features, weights, divisor, vertices[1], leaves[1],
        grad_x, grad_thresholds, grad_weights, windows,
    )  # fmt: skip


def touched(index: IntArray, n_slots: int, start: Array, rows: Array) -> None:
    """Distinct values of each index[:, m], as rows m * n_slots + value, at start[m]:start[m + 1]."""
    n_samples, n_trees = index.shape
    start.fill(0)
    if n_samples == 0:
        return
    xp = array_module(index)
    keys = xp.sort(_keys(index, n_slots))
    first = xp.ones(keys.size, np.bool_)  # whether a key is the first of its value
    first[1:] = keys[1:] != keys[:-1]
    # Every tree has n_samples keys, which are neighbours once sorted.
    start[1:] = xp.cumsum(first.reshape(n_trees, n_samples).sum(axis=1))
    rank = xp.cumsum(first, dtype=np.int64)
    # The dtype chooses a module; this kernel has no floating-point argument.
    args = (keys.astype(np.int64), rank, keys.size, rows)
    launch_each(PACKAGE, "touched_rows", np.dtype(np.float32), keys.size, args)


def leaf_counts(leaf: IntArray, counts: Array) -> None:
    """Samples in each leaf of each tree."""
    counts.fill(0)
    args = (leaf, *leaf.shape, counts.shape[1], counts)
    launch_each(PACKAGE, "leaf_counts", np.dtype(np.float32), leaf.size, args)


def tree_adam_forward(
    x: FloatArray,
    parameters: Arrays,
    state: AdamState,
    step: int,
    settings: Settings,
    divisor: float,
    route: Route,
    y: FloatArray,
) -> None:
    """Parameters to step - 1, then Lay et al. 2018, Alg. 3 and eq. 10."""
    backend = sys.modules[__name__]
    dense_adam.adam_forward(
        backend, optimizer, tree_traverse, x, parameters, state, step, settings, divisor, route, y
    )


def fern_adam_forward(
    x: FloatArray,
    parameters: Arrays,
    state: AdamState,
    step: int,
    settings: Settings,
    divisor: float,
    route: Route,
    y: FloatArray,
) -> None:
    """The same for ferns."""
    backend = sys.modules[__name__]
    dense_adam.adam_forward(
        backend, optimizer, fern_traverse, x, parameters, state, step, settings, divisor, route, y
    )


def adam_backward(
    grad_y: FloatArray,
    route: Route,
    parameters: Arrays,
    state: AdamState,
    step: int,
    settings: Settings,
    divisor: float,
    grad_x: FloatArray,
) -> None:
    """Lay et al. 2018, eq. 11-12, then a step of Adam."""
    backend = sys.modules[__name__]
    dense_adam.adam_backward(
        backend, optimizer, grad_y, route, parameters, state, step, settings, divisor, grad_x
    )


def _linear_traverse(
    kernel: str, depth: int, x: FloatArray, thresholds: FloatArray, projections: FloatArray, route: Route
) -> None:
    (n_samples, n_features), (n_trees, n_vertices) = x.shape, thresholds.shape
    args = (x, thresholds, projections, n_samples, n_features, n_trees, n_vertices, depth, *route)
    launch_each(PACKAGE, kernel, x.dtype, n_samples * n_trees * DOT, args)


def tree_linear_traverse(
    x: FloatArray,
    thresholds: FloatArray,
    projections: FloatArray,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
) -> None:
    """Lay et al. 2018, Alg. 3 with r_v = p_v . x - t_v, at the vertices of the path alone."""
    depth, route = (thresholds.shape[1] + 1).bit_length() - 1, Route(leaf, margin, vertex)
    _linear_traverse("tree_linear_traverse", depth, x, thresholds, projections, route)


def fern_linear_traverse(
    x: FloatArray,
    thresholds: FloatArray,
    projections: FloatArray,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
) -> None:
    """The same with one decision per level."""
    depth, route = thresholds.shape[1], Route(leaf, margin, vertex)
    _linear_traverse("fern_linear_traverse", depth, x, thresholds, projections, route)


def _linear_backward(
    grad_y: FloatArray,
    route: Route,
    x: FloatArray,
    projections: FloatArray,
    weights: FloatArray,
    divisor: float,
    rows: tuple[Array | None, Array | None],
    grads: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
) -> None:
    # rows: of vertices and of leaves; None stands for all rows.
    grad_x, grad_thresholds, grad_projections, grad_weights = grads
    route = Route(*route)
    n_trees, n_vertices, n_features = projections.shape
    slope = _slopes(grad_y, route, weights, divisor)
    launch_each(
        PACKAGE, "linear_backward_x", x.dtype, grad_x.size,
        (route.vertex, projections, slope, len(x), n_trees, n_vertices, n_features, grad_x),
    )  # fmt: skip
    order, start = _segments(route.vertex, n_vertices, rows[0])
    _by_thresholds(slope, order, start, grad_thresholds)
    launch_each(
        PACKAGE, "backward_projections", x.dtype, grad_projections.size,
        (x, slope, order, start, n_trees, n_features, grad_thresholds.size, grad_projections),
    )  # fmt: skip
    _by_weights(grad_y, route, weights, divisor, rows[1], grad_weights)


def linear_backward(
    grad_y: FloatArray,
    route: Route,
    x: FloatArray,
    projections: FloatArray,
    weights: FloatArray,
    divisor: float,
    grad_x: FloatArray,
    grad_thresholds: FloatArray,
    grad_projections: FloatArray,
    grad_weights: FloatArray,
) -> None:
    """Dense gradients (Lay et al. 2018, eq. 11-12 and the chain rule)."""
    grads = grad_x, grad_thresholds, grad_projections, grad_weights
    if len(x) == 0:
        for grad in grads:
            grad.fill(0)
        return
    _linear_backward(grad_y, route, x, projections, weights, divisor, (None, None), grads)


def linear_backward_sparse(
    grad_y: FloatArray,
    route: Route,
    x: FloatArray,
    projections: FloatArray,
    weights: FloatArray,
    divisor: float,
    vertices: tuple[Array, Array],
    leaves: tuple[Array, Array],
    grad_x: FloatArray,
    grad_thresholds: FloatArray,
    grad_projections: FloatArray,
    grad_weights: FloatArray,
) -> None:
    """The same gradients at touched rows only, given as (start, rows): of tree m at start[m]:start[m + 1]."""
    if len(x) == 0:
        return
    rows, grads = (vertices[1], leaves[1]), (grad_x, grad_thresholds, grad_projections, grad_weights)
    _linear_backward(grad_y, route, x, projections, weights, divisor, rows, grads)
