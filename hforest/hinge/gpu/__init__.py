"""Random hinge trees and ferns on a GPU (Lay et al. 2018); the kernels are in gpu.cu.

Results are those of the reference. The array module of the arguments allocates workspace. Kernels run on the
caller's stream, and no function waits for the device.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core import launch as launcher
from ...core.aliases import Array, FloatArray, IntArray
from ...core.dispatch import array_module
from ...core.launch import launch, launch_each, numbers
from ...core.windows import Geometry
from ...optim import gpu as optimizer
from ...optim.exact import rate_and_scale
from ..shared import EAGER, AdamState, Arrays, Gradients, Kind, Route, Settings, forward_in_chunks, new_route

PACKAGE = Path(__file__).parent.parent

PAIRS = 1 << 22
"""The most pairs of a sample and a tree that are routed before their leaves are summed; limits workspace."""

MAX_THREADS, DOT, COLUMNS = numbers("hinge/gpu/gpu.cu", "MAX_THREADS", "DOT", "COLUMNS")
ADDING, TOGETHER = numbers("hinge/gpu/gradients.cuh", "ADDING", "TOGETHER")

MOST_OF_STEP = ADDING
"""Samples of `adam_step`, at most: a block of `adam_parameters` has a thread for each of their losses."""

GROUP, SAMPLES, FEWEST = 16, 1024, 256
"""Trees and samples of a block of `route_column_shared`, and the least number of samples for which it is
faster."""

BUSY, FEW_COLUMNS = 132, 8
"""With fewer outputs than BUSY blocks of COLUMNS sum, one for each multiprocessor of an H100, a block of
`leaf_outputs_sum` has one sample, or at least FEW_COLUMNS outputs."""

MANY = 1000
"""The least number of samples for which neighbouring threads of `backward_x` are TOGETHER samples of a tree,
as in `backward_slopes`. With fewer samples, blocks of eight would leave multiprocessors idle."""


class Routing(NamedTuple):
    """Trees or ferns, and routes: a struct of gpu.cu, which describes its members."""

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
    """Slopes and their vertices: a struct of gradients.cuh."""

    vertex: IntArray
    slope: FloatArray
    n_samples: int
    n_columns: int
    n_trees: int
    n_vertices: int


class Routed(NamedTuple):
    """Routes, and the arrays from which slopes are computed: a struct of gradients.cuh."""

    grad_y: FloatArray | None
    leaf: IntArray
    margin: FloatArray
    vertex: IntArray
    weights: FloatArray
    grad_trees: int
    n_leaves: int
    n_outputs: int
    divisor: float
    slope: FloatArray | None


class Pairs(NamedTuple):
    """Slopes, and a copy of the route or None: a struct of gradients.cuh."""

    leaf: Any
    margin: Any
    vertex: Any
    slope: FloatArray
    n_samples: int
    n_trees: int
    sample_step: int
    tree_step: int


class Moved(NamedTuple):
    """A parameter, its moments and steps: a struct of steps.cuh."""

    param: FloatArray
    m: FloatArray
    v: FloatArray
    last: IntArray


class Sums(NamedTuple):
    """Sums over the samples of each tree: a struct of gradients.cuh."""

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


class Step(NamedTuple):
    """A step of Adam: its number, and `rate_and_scale`: a struct of steps.cuh."""

    number: int
    rate: float
    scale: float


class Losses(NamedTuple):
    """Losses of samples, and their mean: a struct of steps.cuh."""

    of_samples: Any
    mean: Any


LANES_OF = {"column": 1, "projection": DOT}
"""Threads that compute the value of a margin together."""


def traverse(
    kind: Kind,
    margin: str,
    x: FloatArray,
    thresholds: FloatArray,
    features: Array,
    route: Route,
    windows: Geometry | None = None,
) -> None:
    """Writes the route (Lay et al. 2018, Alg. 3, HingeTreeTraversal); a fern has one vertex per level."""
    n_columns = windows.n_columns if windows else x.shape[1]
    a = _routing(kind, thresholds, features, n_columns, route)
    n_bytes = a.n_vertices * (x.itemsize + 4)  # bytes per tree
    trees_each = min(GROUP, a.n_trees, launcher.compiler.block_bytes() // n_bytes)
    if margin == "column" and windows is None and a.n_samples >= FEWEST and trees_each >= min(4, a.n_trees):
        n_blocks = -(-a.n_trees // trees_each) * -(-a.n_samples // SAMPLES)
        threads = min(8 * launcher.THREADS, MAX_THREADS)
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
    backend = sys.modules[__name__]
    forward_in_chunks(backend, kind, margin, x, thresholds, features, weights, divisor, y, route, windows)


def leaf_outputs(
    leaf: IntArray, margin: FloatArray, weights: FloatArray, divisor: float, y: FloatArray
) -> None:
    """Writes y (Lay et al. 2018, eq. 10) from routes: per tree if it has 3 axes, else summed and divided."""
    n_samples = leaf.shape[0]
    n_trees, n_leaves, n_outputs = weights.shape
    args = (leaf, margin, weights, n_samples, n_trees, n_leaves, n_outputs)
    if y.ndim == 3:
        launch_each(PACKAGE, "leaf_outputs_each", y.dtype, n_samples * n_trees * n_outputs, (*args, y))
    else:
        columns = COLUMNS if y.size >= BUSY * COLUMNS else min(COLUMNS, max(FEW_COLUMNS, n_outputs))
        threads = 32 + columns * min((MAX_THREADS - 32) // columns, n_trees)
        launch(
            PACKAGE, "leaf_outputs_sum", y.dtype, -(-y.size // columns), (*args, columns, divisor, y), threads
        )


def _sums(
    index: IntArray,
    factor: FloatArray,
    sizes: tuple[int, int, int, int],
    n_slots: int,
    width: int,
    divisor: float,
    sums: FloatArray | None = None,
    rows: Any = None,
) -> Sums:
    # sizes are n_samples, n_trees, sample_step and tree_step. rows is None or (start, rows).
    start, numbers = rows or (None, None)
    n_rows = n_slots if rows is None else min(sizes[0], n_slots)
    n_numbers = _whole_rows(n_rows, width)
    n_parts = -(-n_rows * width // n_numbers)
    return Sums(index, factor, start, numbers, *sizes, n_slots, width, n_parts, n_numbers, divisor, sums)


def _whole_rows(n_rows: int, width: int) -> int:
    # Returns how many sums a block holds at a time: whole rows, if a row fits. A multiprocessor has memory
    # for two such blocks.
    n_numbers = min(n_rows * width, launcher.compiler.block_bytes() * 9 // 25 // 8)
    return n_numbers - (n_numbers % width if n_numbers > width else 0)


def _tile(sums: Sums) -> tuple[int, int]:
    # Returns the number of rows of grad_y that a block holds, 0 if fewer than eight fit, and the bytes of its
    # sums and of these rows.
    row = sums.width * sums.factor.itemsize
    n = min(_threads(sums.n_samples), sums.n_samples, launcher.compiler.block_bytes() * 9 // 100 // row)
    n = n if n >= min(8, sums.n_samples) else 0
    return n, 8 * sums.n_numbers + n * row


def _launch_sums(kernel: str, args: tuple[Any, ...], n_bytes: int = 0) -> None:
    # Launches one block for each part of the rows of each tree.
    sums = [a for a in args if isinstance(a, Sums)]
    n_bytes = max(n_bytes, *(8 * a.n_numbers for a in sums))
    n_blocks = sum(a.n_trees * a.n_parts for a in sums)
    threads = _threads(max(sums[0].n_samples, *(a.n_numbers for a in sums)))
    launch(PACKAGE, kernel, sums[0].factor.dtype, n_blocks, args, threads, n_bytes)


def _threads(n: int) -> int:
    # Returns the number of threads of a block for n elements: whole warps, and few enough that a
    # multiprocessor has registers for two blocks.
    return min(ADDING, 4 * launcher.THREADS, -(-n // 32) * 32)


def _backward_images(
    vertex: IntArray, features: IntArray, slope: FloatArray, windows: Geometry, grad_x: FloatArray
) -> None:
    # Writes grad_x as gradients of parameters are summed: an image takes the place of a tree, and a pair of a
    # window and a tree that of a sample.
    (n_samples, n_trees), (n_images, n_places) = vertex.shape, grad_x.shape
    places = array_module(slope).empty(vertex.shape, np.int32)
    args = (vertex, features, n_samples, n_trees, features.shape[1], windows, n_places, places)
    launch_each(PACKAGE, "window_places", slope.dtype, vertex.size, args)
    n = vertex.size // n_images
    sums = _sums(places, slope, (n, n_images, 1, n), n_places, 1, 1.0, grad_x)
    _launch_sums("backward_images", (sums,))


def _routed(
    grad_y: FloatArray | None,
    route: Route,
    weights: FloatArray,
    divisor: float,
    slope: FloatArray | None = None,
) -> Routed:
    n_trees, n_leaves, n_outputs = weights.shape
    grad_trees = 1 if grad_y is None or grad_y.ndim < 3 else n_trees
    return Routed(grad_y, *route, weights, grad_trees, n_leaves, n_outputs, divisor, slope)


def _pairs(route: Route, turned: bool) -> Pairs:
    # Returns arrays for slopes (eq. 11); if turned, with trees on the first axis, and a copy of the route.
    (n_samples, n_trees), empty, dtype = route.leaf.shape, array_module(route.leaf).empty, route.margin.dtype
    if not turned:
        slope = empty((n_samples, n_trees), dtype)
        return Pairs(None, None, None, slope, n_samples, n_trees, n_trees, 1)
    step = -(-n_samples // TOGETHER) * TOGETHER
    copy, slope = new_route(route.leaf, (n_trees, step), dtype), empty((n_trees, step), dtype)
    return Pairs(*copy, slope, n_samples, n_trees, 1, step)


def _is_local(n_sums: int, dtype: np.dtype) -> int:
    # Returns whether the sums of a block of `write_grad_x` are in its shared memory.
    return int(n_sums * dtype.itemsize <= launcher.compiler.block_bytes() // 4)


def _backward_x(
    grad_y: FloatArray, route: Route, features: IntArray, weights: FloatArray, divisor: float,
    grad_x: FloatArray,
) -> Pairs:  # fmt: skip
    # Writes grad_x and the slopes, and returns the latter.
    n_samples, n_features = grad_x.shape
    n_bytes = n_features * grad_x.itemsize
    together = TOGETHER if n_samples >= MANY and _is_local(TOGETHER * n_features, grad_x.dtype) else 1
    pairs, is_local = _pairs(route, together > 1), _is_local(n_features, grad_x.dtype)
    a = _routed(grad_y, route, weights, divisor)
    args = (a, pairs, features, features.shape[1], n_features, together, is_local, grad_x)
    threads = _threads(max(pairs.n_trees, n_features) * together)
    n_blocks = -(-n_samples // together)
    launch(PACKAGE, "backward_x", grad_x.dtype, n_blocks, args, threads, is_local * together * n_bytes)
    return pairs if together > 1 else pairs._replace(**route._asdict())


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
    """Writes the gradients (Lay et al. 2018, eq. 11-12), dense or at touched rows.

    rows is None for dense gradients, else (start, rows) of vertices and (start, rows) of leaves, where
    rows[start[m]:start[m + 1]] belong to tree m.
    """
    route = Route(*route)
    if len(route.leaf) == 0:
        for grad in grads:
            if grad is not None:
                grad.fill(0)
        return
    n_vertices, (_, n_leaves, n_outputs) = features.shape[1], weights.shape
    by_vertex, by_leaf = (None, None) if rows is None else rows
    if margin == "column" and windows is None:
        pairs = _backward_x(grad_y, route, features, weights, divisor, grads.x)
    else:
        dtype, pairs = route.margin.dtype, _pairs(route, True)
        slope = array_module(route.margin).empty(route.margin.shape, dtype)
        a = _routed(grad_y, route, weights, divisor, slope)
        launch_each(PACKAGE, "backward_slopes", dtype, pairs.slope.size, (a, pairs))
        _pull(margin, route.vertex, slope, pairs, x, features, windows, by_vertex, grads)
    sizes = pairs[4:]
    leaves = _sums(pairs.leaf, pairs.margin, sizes, n_leaves, n_outputs, divisor, grads.weights, by_leaf)
    vertices = _sums(pairs.vertex, pairs.slope, sizes, n_vertices, 1, 1.0, grads.thresholds, by_vertex)
    n_tile, n_bytes = _tile(leaves)
    grad_trees = 1 if grad_y.ndim < 3 else len(weights)
    _launch_sums("backward_parameters", (grad_y, grad_trees, n_tile, leaves, vertices), n_bytes)


def _pull(
    margin: str, vertex: IntArray, slope: FloatArray, pairs: Pairs, x: FloatArray | None, features: Array,
    windows: Geometry | None, rows: Any, grads: Gradients,
) -> None:  # fmt: skip
    # Writes the gradients with respect to x and, if they are learned, features.
    if margin == "column" and windows is not None:
        _backward_images(vertex, features, slope, windows, grads.x)
        return
    n_columns, n_vertices = windows.n_columns if windows else grads.x.shape[1], features.shape[1]
    pull = Pull(vertex, slope, pairs.n_samples, n_columns, pairs.n_trees, n_vertices)
    kernel, arguments = _with_windows(f"pull_x_{margin}", windows)
    places = () if windows is None else (grads.x.size,)
    args = (x, *arguments, features, pull, *places, grads.x)
    launch_each(PACKAGE, kernel, slope.dtype, grads.x.size, args)
    if grads.features is not None:
        kernel, arguments = _with_windows(f"pull_features_{margin}", windows)
        width, to = features.shape[2], grads.features
        sums = _sums(pairs.vertex, pairs.slope, pairs[4:], n_vertices, width, 1.0, to, rows)
        _launch_sums(kernel, (x, *(arguments or (n_columns,)), sums))


def touched(index: IntArray, n_slots: int, start: Array, rows: Array) -> None:
    """Writes distinct values of each column of index: m * n_slots + value to rows[start[m]:start[m + 1]]."""
    n_samples, n_trees = index.shape
    counts = array_module(index).empty(n_trees, np.int64)
    n_words = min(-(-n_slots // 32), launcher.compiler.block_bytes() // 16)
    threads = _threads(max(n_samples, n_words))
    for writes in (0, 1):
        # Any dtype would do: it chooses a module, and this kernel has no floating-point argument.
        args = (index, n_samples, n_trees, n_slots, n_words, writes, counts, start, rows)
        launch(PACKAGE, "touched_rows", np.dtype(np.float32), n_trees, args, threads, 4 * n_words)


def leaf_counts(leaf: IntArray, counts: Array) -> None:
    counts.fill(0)
    args = (leaf, *leaf.shape, counts.shape[1], counts)
    launch_each(PACKAGE, "leaf_counts", np.dtype(np.float32), leaf.size, args)


def _moved(parameters: Arrays, state: AdamState) -> tuple[Moved, Moved]:
    thresholds, _, weights = parameters
    return (
        Moved(thresholds, state.thresholds_m, state.thresholds_v, state.thresholds_last),
        Moved(weights, state.weights_m, state.weights_v, state.weights_last),
    )


def _adam_route(
    kind: Kind,
    x: FloatArray,
    parameters: Arrays,
    state: AdamState,
    step: int,
    settings: Settings,
    route: Route,
) -> None:
    # Takes the rows that a batch reads to step - 1; writes the route (Lay et al. 2018, Alg. 3).
    _, features, weights = parameters
    a = _routing(kind, None, features, x.shape[1], route)
    args = (x, features, a, *_moved(parameters, state), weights.shape[2], step - 1)
    tables = optimizer.Adam(*settings[:4]), optimizer.Missed.of(settings[4])
    if len(x):
        launch(PACKAGE, "adam_route", x.dtype, len(features), (*args, *tables))


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
    """Takes the rows that a batch reads to step - 1; writes route and y (Lay et al. 2018, Alg. 3, eq. 10)."""
    _adam_route(kind, x, parameters, state, step, settings, route)
    leaf_outputs(route[0], route[1], parameters[2], divisor, y)


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
    """Writes grad_x (Lay et al. 2018, eq. 11-12); takes a step of Adam for the rows that a batch touches."""
    _, features, weights = parameters
    if len(grad_y) == 0:
        # The first vertices take a step without samples, too: as with a sample whose gradient is zero.
        zeros, dtype, n_trees = array_module(grad_y).zeros, grad_x.dtype, len(features)
        grad_y, grad_x = zeros((1, weights.shape[2]), dtype), zeros((1, grad_x.shape[1]), dtype)
        route = Route(
            zeros((1, n_trees), np.int32), zeros((1, n_trees), dtype), zeros((1, n_trees), np.int32)
        )
    pairs = _backward_x(grad_y, Route(*route), features, weights, divisor, grad_x)
    _adam_move(grad_y, pairs, parameters, state, step, settings, divisor)


def adam_step(
    kind: Kind,
    x: FloatArray,
    labels: IntArray,
    parameters: Arrays,
    state: AdamState,
    step: int,
    settings: Settings,
    divisor: float,
    route: Route,
    y: FloatArray,
    grad_x: FloatArray,
) -> Array:
    """Does what `adam_forward`, the softmax loss and `adam_backward` do, in three launches; returns the loss.

    At least one sample, at most MOST_OF_STEP.
    """
    _, features, weights = parameters
    (n_samples, n_features), n_outputs, xp = x.shape, weights.shape[2], array_module(x)
    _adam_route(kind, x, parameters, state, step, settings, route)
    grad_y, losses, pairs = xp.empty_like(y), Losses(xp.empty(n_samples), xp.empty(())), _pairs(route, False)
    columns, is_local = min(COLUMNS, n_outputs), _is_local(n_features, x.dtype)
    a = _routed(None, route, weights, divisor)
    sizes = features.shape[1], n_features, columns, is_local
    args = (labels, a, pairs, features, *sizes, y, grad_y, losses.of_samples, grad_x)
    threads, n_bytes = max(64, _threads(max(pairs.n_trees, n_features))), n_features * x.itemsize
    launch(PACKAGE, "loss_slopes", x.dtype, n_samples, args, threads, is_local * n_bytes)
    pairs = pairs._replace(**route._asdict())
    _adam_move(grad_y, pairs, parameters, state, step, settings, divisor, losses)
    return losses.mean


def _adam_move(
    grad_y: FloatArray, pairs: Pairs, parameters: Arrays, state: AdamState, step: int, settings: Settings,
    divisor: float, losses: Losses | None = None,
) -> None:  # fmt: skip
    # Takes a step of Adam for the rows of pairs, and writes the mean of losses, if there are any.
    _, features, weights = parameters
    n_vertices, (_, n_leaves, n_outputs) = features.shape[1], weights.shape
    sizes = pairs[4:]
    leaves = _moving(_sums(pairs.leaf, pairs.margin, sizes, n_leaves, n_outputs, divisor), 0)
    vertices = _moving(_sums(pairs.vertex, pairs.slope, sizes, n_vertices, 1, 1.0), EAGER)
    n_tile, n_bytes = _tile(leaves)
    n_before = max(-(-n_bytes // 8), vertices.n_numbers)
    numbered = max(-(-n_leaves // leaves.n_parts), -(-n_vertices // vertices.n_parts))
    thresholds, moved_weights = _moved(parameters, state)
    tables = optimizer.Adam(*settings[:4]), optimizer.Missed.of(settings[4])
    moved = moved_weights, thresholds, Step(step, *rate_and_scale(step, *settings[:3]))
    args = (grad_y, n_tile, n_before, leaves, vertices, *moved, *tables, losses or Losses(None, None))
    # With few samples blocks are small, so that a multiprocessor has several in different phases.
    threads = _threads(max(pairs.n_samples, launcher.THREADS))
    n_blocks = pairs.n_trees * (leaves.n_parts + vertices.n_parts) + (losses is not None)
    launch(PACKAGE, "adam_parameters", grad_y.dtype, n_blocks, args, threads, 8 * (n_before + numbered))


def _moving(a: Sums, n_eager: int) -> Sums:
    # Returns `a` for the rows that take a step: the first n_eager, and those that samples touch. A part has
    # as many rows as a block can number, two ints each, in a tenth of its shared memory.
    n_parts = -(-a.n_slots // (launcher.compiler.block_bytes() // 10 // 8))
    n_rows = min(-(-a.n_slots // n_parts), n_eager + a.n_samples)
    return a._replace(n_parts=n_parts, n_numbers=_whole_rows(n_rows, a.width))
