"""Random hinge trees and ferns on a GPU (Lay et al. 2018); the kernels are in gpu.cu.

Scratch comes from the array module of the arguments, work goes to the caller's stream, and nothing here
waits for the device.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core import launch as launcher
from ..core.aliases import Array, FloatArray, IntArray
from ..core.dispatch import array_module
from ..core.launch import launch, launch_each
from ..core.windows import Geometry
from ..optim import gpu as optimizer
from ..optim.exact import rate_and_scale
from .chunks import forward_in_chunks
from .shared import EAGER, AdamState, Arrays, Gradients, Kind, Route, Settings

PACKAGE = Path(__file__).parent

PAIRS = 1 << 22
"""Pairs of a sample and a tree that are routed before their leaves are summed: bounds the scratch."""

COLUMNS, TREES = 32, 128
"""Elements of y that a block of `leaf_outputs_sum` owns, and trees that it holds; gpu.cu knows these."""

GROUP, SAMPLES, FEWEST = 16, 1024, 256
"""Trees and samples of a block of `route_column_shared`, and the samples from which it pays."""

ADDING = 512
"""The most threads of a block that adds up samples; gradients.cuh knows this number."""

DOT = 8
"""Threads that share an inner product; gpu.cu knows this number."""


class Routing(NamedTuple):
    """As gpu.cu declares it."""

    thresholds: FloatArray | None
    n_samples: int
    n_columns: int
    n_trees: int
    n_vertices: int
    depth: int
    fern: int
    leaf: IntArray
    margin: FloatArray
    vertex: IntArray


class Pull(NamedTuple):
    """As gpu.cu declares it."""

    vertex: IntArray
    slope: FloatArray
    n_samples: int
    n_columns: int
    n_trees: int
    n_vertices: int


class Routed(NamedTuple):
    """As gradients.cuh declares it."""

    grad_y: FloatArray
    leaf: IntArray
    margin: FloatArray
    weights: FloatArray
    n_samples: int
    n_trees: int
    grad_trees: int
    n_leaves: int
    n_outputs: int
    divisor: float
    slope: FloatArray


class Moved(NamedTuple):
    """As steps.cuh declares it."""

    param: FloatArray
    m: FloatArray
    v: FloatArray
    last: IntArray


class Sums(NamedTuple):
    """As gpu.cu declares it."""

    index: Any
    factor: FloatArray
    start: IntArray | None
    rows: IntArray | None
    n_samples: int
    n_trees: int
    sample_step: int
    tree_step: int
    n_slots: int
    width: int
    n_parts: int
    n_numbers: int
    divisor: float
    sums: FloatArray | None


LANES_OF = {"column": 1, "projection": DOT}
"""Threads that share the value of a margin."""


def traverse(
    kind: Kind,
    margin: str,
    x: FloatArray,
    thresholds: FloatArray,
    features: Array,
    route: Route,
    windows: Geometry | None = None,
) -> None:
    """Lay et al. 2018, Alg. 3, HingeTreeTraversal; ferns have one decision per level."""
    n_columns = windows.n_columns if windows else x.shape[1]
    a = _routing(kind, thresholds, features, n_columns, route)
    n_bytes = a.n_vertices * (x.itemsize + 4)  # of a tree
    trees_each = min(GROUP, a.n_trees, launcher.compiler.block_bytes() // n_bytes)
    if margin == "column" and windows is None and a.n_samples >= FEWEST and trees_each >= min(4, a.n_trees):
        n_blocks = -(-a.n_trees // trees_each) * -(-a.n_samples // SAMPLES)
        threads = min(8 * launcher.THREADS, 1024)
        args = (x, features, a, trees_each, SAMPLES)
        launch(PACKAGE, "route_column_shared", x.dtype, n_blocks, args, threads, trees_each * n_bytes)
        return
    kernel, arguments = _with_windows(f"route_{margin}", windows)
    launch_each(PACKAGE, kernel, x.dtype, route[0].size * LANES_OF[margin], (x, *arguments, features, a))


def _routing(
    kind: Kind, thresholds: FloatArray | None, features: Array, n_columns: int, route: Route
) -> Routing:
    (n_samples, n_trees), n_vertices = route[0].shape, features.shape[1]
    depth = n_vertices if kind == "fern" else (n_vertices + 1).bit_length() - 1
    sizes = n_samples, n_columns, n_trees, n_vertices, depth, int(kind == "fern")
    return Routing(thresholds, *sizes, *route)


def _with_windows(kernel: str, windows: Geometry | None) -> tuple[str, tuple[Geometry, ...]]:
    return (kernel, ()) if windows is None else (f"{kernel}_windows", (windows,))


def forward(
    kind: Kind,
    margin: str,
    x: FloatArray,
    thresholds: FloatArray,
    features: Array,
    weights: FloatArray,
    divisor: float,
    y: FloatArray,
    route: Route | None = None,
    windows: Geometry | None = None,
) -> None:
    """Lay et al. 2018, Alg. 3, then eq. 10; leaf, margin and vertex as well if there is a route."""
    backend = sys.modules[__name__]
    forward_in_chunks(backend, kind, margin, x, thresholds, features, weights, divisor, y, route, windows)


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
        threads = COLUMNS * min(32, n_trees)
        launch(PACKAGE, "leaf_outputs_sum", y.dtype, n_blocks, (*args, divisor, y), threads)


def _sums(
    index: IntArray,
    factor: FloatArray,
    n_slots: int,
    width: int,
    rows: Any,
    divisor: float,
    sums: FloatArray | None,
) -> Sums:
    # rows: None, or (start, rows).
    (n_samples, n_trees), (start, numbers) = index.shape, rows or (None, None)
    n_rows = n_slots if rows is None else min(n_samples, n_slots)
    n_numbers = _whole_rows(n_rows, width)
    sizes = n_samples, n_trees, n_trees, 1, n_slots, width, -(-n_rows * width // n_numbers), n_numbers
    return Sums(index, factor, start, numbers, *sizes, divisor, sums)


def _whole_rows(n_rows: int, width: int) -> int:
    # The numbers that a block sums at a time: whole rows, if one fits. Two blocks share a multiprocessor.
    n_numbers = min(n_rows * width, launcher.compiler.block_bytes() * 9 // 25 // 8)
    return n_numbers - (n_numbers % width if n_numbers > width else 0)


def _tile(sums: Sums) -> tuple[int, int]:
    # Samples whose rows of grad_y a block holds, none if too few fit, and the bytes of sums and these rows.
    row = sums.width * sums.factor.itemsize
    n = min(_threads(sums.n_samples), sums.n_samples, launcher.compiler.block_bytes() * 9 // 100 // row)
    n = n if n >= min(8, sums.n_samples) else 0
    return n, 8 * sums.n_numbers + n * row


def _launch_sums(kernel: str, args: tuple[Any, ...], n_bytes: int = 0) -> None:
    # A block for each part of the rows of a tree.
    sums = [a for a in args if isinstance(a, Sums)]
    n_bytes = max(n_bytes, *(8 * a.n_numbers for a in sums))
    n_blocks = sum(a.n_trees * a.n_parts for a in sums)
    threads = _threads(max(sums[0].n_samples, *(a.n_numbers for a in sums)))
    launch(PACKAGE, kernel, sums[0].factor.dtype, n_blocks, args, threads, n_bytes)


def _threads(n: int) -> int:
    # Whole warps for n elements, as far as the registers suffice for two blocks.
    return min(ADDING, 4 * launcher.THREADS, -(-n // 32) * 32)


def _backward_images(
    vertex: IntArray, features: IntArray, slope: FloatArray, windows: Geometry, grad_x: FloatArray
) -> None:
    # As sums of parameters: images in place of trees, their windows and trees in place of samples.
    (n_samples, n_trees), (n_images, n_places) = vertex.shape, grad_x.shape
    places = array_module(slope).empty(vertex.shape, np.int32)
    args = (vertex, features, n_samples, n_trees, features.shape[1], windows, n_places, places)
    launch_each(PACKAGE, "window_places", slope.dtype, vertex.size, args)
    n, n_numbers = vertex.size // n_images, _whole_rows(n_places, 1)
    sizes = n, n_images, 1, n, n_places, 1, -(-n_places // n_numbers), n_numbers
    sums = Sums(places, slope, None, None, *sizes, 1.0, grad_x)
    _launch_sums("backward_images", (sums,))


def _routed(grad_y: FloatArray, route: Route, weights: FloatArray, divisor: float) -> Routed:
    # With an array for the slopes of eq. 11.
    n_trees, n_leaves, n_outputs = weights.shape
    slope = array_module(route.margin).empty(route.margin.shape, route.margin.dtype)
    grad_trees = n_trees if grad_y.ndim == 3 else 1
    sizes = len(slope), n_trees, grad_trees, n_leaves, n_outputs
    return Routed(grad_y, route.leaf, route.margin, weights, *sizes, divisor, slope)


def _backward_x(a: Routed, vertex: IntArray, features: IntArray, grad_x: FloatArray) -> None:
    # Writes the slopes, too.
    n_samples, n_features = grad_x.shape
    n_bytes = n_features * grad_x.itemsize
    is_local = int(n_bytes <= launcher.compiler.block_bytes() // 8)
    args = (a, vertex, features, features.shape[1], n_features, is_local, grad_x)
    threads = _threads(max(a.n_trees, n_features))
    launch(PACKAGE, "backward_x", grad_x.dtype, n_samples, args, threads, is_local * n_bytes)


def backward(
    margin: str,
    grad_y: FloatArray,
    route: Route,
    x: FloatArray | None,
    features: Array,
    weights: FloatArray,
    divisor: float,
    rows: Any,
    grads: Gradients,
    windows: Geometry | None = None,
) -> None:
    """Lay et al. 2018, eq. 11-12, dense or at touched rows.

    rows is None, or those of vertices and of leaves as (start, rows): of tree m at start[m]:start[m + 1].
    """
    route = Route(*route)
    if len(route.leaf) == 0:
        for grad in grads:
            if grad is not None:
                grad.fill(0)
        return
    (n_trees, n_vertices), (_, n_leaves, n_outputs) = features.shape[:2], weights.shape
    a, dtype = _routed(grad_y, route, weights, divisor), route.margin.dtype
    by_vertex, by_leaf = (None, None) if rows is None else rows
    if margin == "column" and windows is None:
        _backward_x(a, route.vertex, features, grads.x)
    else:
        launch_each(PACKAGE, "backward_slopes", dtype, a.slope.size, (a,))
    if margin == "column" and windows is not None:
        _backward_images(route.vertex, features, a.slope, windows, grads.x)
    if margin != "column":
        n_columns = windows.n_columns if windows else grads.x.shape[1]
        pull = Pull(route.vertex, a.slope, len(a.slope), n_columns, n_trees, n_vertices)
        _pull(margin, pull, x, features, windows, by_vertex, grads)
    leaves = _sums(route.leaf, route.margin, n_leaves, n_outputs, by_leaf, divisor, grads.weights)
    vertices = _sums(route.vertex, a.slope, n_vertices, 1, by_vertex, 1.0, grads.thresholds)
    n_tile, n_bytes = _tile(leaves)
    _launch_sums("backward_parameters", (grad_y, a.grad_trees, n_tile, leaves, vertices), n_bytes)


def _pull(
    margin: str, a: Pull, x: FloatArray | None, features: Array, windows: Geometry | None, rows: Any,
    grads: Gradients,
) -> None:  # fmt: skip
    # Gradients with respect to x and, where they are learned, to features.
    dtype, places = a.slope.dtype, () if windows is None else (grads.x.size,)
    kernel, arguments = _with_windows(f"pull_x_{margin}", windows)
    launch_each(PACKAGE, kernel, dtype, grads.x.size, (x, *arguments, features, a, *places, grads.x))
    if grads.features is not None:
        kernel, arguments = _with_windows(f"pull_features_{margin}", windows)
        sums = _sums(a.vertex, a.slope, a.n_vertices, features.shape[2], rows, 1.0, grads.features)
        _launch_sums(kernel, (x, *(arguments or (a.n_columns,)), sums))


def touched(index: IntArray, n_slots: int, start: Array, rows: Array) -> None:
    """Distinct values of each index[:, m], as rows m * n_slots + value, at start[m]:start[m + 1]."""
    n_samples, n_trees = index.shape
    counts = array_module(index).empty(n_trees, np.int64)
    n_words = min(-(-n_slots // 32), launcher.compiler.block_bytes() // 16)
    threads = _threads(max(n_samples, n_words))
    for writes in (0, 1):
        # The dtype chooses a module; this kernel has no floating-point argument.
        args = (index, n_samples, n_trees, n_slots, n_words, writes, counts, start, rows)
        launch(PACKAGE, "touched_rows", np.dtype(np.float32), n_trees, args, threads, 4 * n_words)


def leaf_counts(leaf: IntArray, counts: Array) -> None:
    """Samples in each leaf of each tree."""
    counts.fill(0)
    args = (leaf, *leaf.shape, counts.shape[1], counts)
    launch_each(PACKAGE, "leaf_counts", np.dtype(np.float32), leaf.size, args)


def _moved(parameters: Arrays, state: AdamState) -> tuple[Moved, Moved]:
    thresholds, _, weights = parameters
    return (
        Moved(thresholds, state.thresholds_m, state.thresholds_v, state.thresholds_last),
        Moved(weights, state.weights_m, state.weights_v, state.weights_last),
    )


def adam_forward(
    kind: Kind,
    x: FloatArray,
    parameters: Arrays,
    state: AdamState,
    step: int,
    settings: Settings,
    divisor: float,
    route: Route,
    y: FloatArray,
) -> None:
    """What the batch reads to step - 1, then Lay et al. 2018, Alg. 3 and eq. 10."""
    _, features, weights = parameters
    a = _routing(kind, None, features, x.shape[1], route)
    args = (x, features, a, *_moved(parameters, state), weights.shape[2], step - 1)
    tables = optimizer.Adam(*settings[:4]), optimizer.Missed.of(settings[4])
    if len(x):
        launch(PACKAGE, "adam_route", x.dtype, len(features), (*args, *tables))
    leaf_outputs(route[0], route[1], weights, divisor, y)


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
    """Lay et al. 2018, eq. 11-12, then a step of Adam of what the batch touches."""
    _, features, weights = parameters
    (n_trees, n_vertices), (_, n_leaves, n_outputs) = features.shape, weights.shape
    if len(grad_y) == 0:
        # The first vertices move all the same, as with a sample whose gradient is zero.
        zeros, dtype = array_module(grad_y).zeros, grad_x.dtype
        grad_y, grad_x = zeros((1, n_outputs), dtype), zeros((1, grad_x.shape[1]), dtype)
        route = Route(
            zeros((1, n_trees), np.int32), zeros((1, n_trees), dtype), zeros((1, n_trees), np.int32)
        )
    a = _routed(grad_y, route, weights, divisor)
    _backward_x(a, route.vertex, features, grad_x)
    leaves = _moving(route.leaf, route.margin, n_leaves, 0, n_outputs, divisor)
    vertices = _moving(route.vertex, a.slope, n_vertices, EAGER, 1, 1.0)
    n_tile, n_bytes = _tile(leaves)
    n_before = max(-(-n_bytes // 8), vertices.n_numbers)
    numbered = max(-(-n_leaves // leaves.n_parts), -(-n_vertices // vertices.n_parts))
    thresholds, moved_weights = _moved(parameters, state)
    tables = optimizer.Adam(*settings[:4]), optimizer.Missed.of(settings[4])
    moved = moved_weights, thresholds, step, *rate_and_scale(step, *settings[:3])
    args = (grad_y, n_tile, n_before, leaves, vertices, *moved, *tables)
    # Small blocks for few samples: more of them are in different phases at once.
    threads, n_blocks = (
        _threads(max(len(grad_y), launcher.THREADS)),
        n_trees * (leaves.n_parts + vertices.n_parts),
    )
    launch(PACKAGE, "adam_parameters", grad_x.dtype, n_blocks, args, threads, 8 * (n_before + numbered))


def _moving(
    index: IntArray, factor: FloatArray, n_slots: int, n_eager: int, width: int, divisor: float
) -> Sums:
    # Sums of the rows that move in a step: the first n_eager, and those that samples touch. A part is as many
    # rows as a block can number with two ints each.
    n_parts = -(-n_slots // (launcher.compiler.block_bytes() // 10 // 8))
    n_rows = min(-(-n_slots // n_parts), n_eager + len(index))
    n_samples, n_trees = index.shape
    n_numbers = _whole_rows(n_rows, width)
    return Sums(
        index, factor, None, None, n_samples, n_trees, n_trees, 1, n_slots, width, n_parts, n_numbers,
        divisor, None,
    )  # fmt: skip
