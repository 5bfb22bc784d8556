"""Neural decision forests on a GPU (Zhang 2017, section 2); kernels in gpu.cu.

Samples are divided into chunks, so that workspace does not grow with their number. A block routes a tile of
samples through a subtree of a tree; a thread has a pair of a sample and a tree. Results, except those of
`update_leaves`, have the bits of the CPU. Samples whose products leave the range of the dtype are listed, and
another kernel computes them as float64 logarithms, so that no function waits for the device: threads of a
warp do not diverge. Kernels run on the caller's stream.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core import launch as launcher
from ...core.aliases import Array
from ...core.dispatch import array_module
from ...core.launch import launch, launch_each, numbers

_PACKAGE = Path(__file__).parent.parent

NUMBERS = 1 << 25
"""The most numbers in an array of a chunk, which may have FEWEST samples nevertheless."""

FEWEST = WARP = 32
"""The fewest samples of a chunk of tiles, if there are as many; the threads of a warp."""

BLOCKS = 1024
"""The most blocks that compute samples in logarithms."""

SHARE = 4
"""A tile takes at most 1 / SHARE of the shared memory that a block can have."""

(LEVELS,) = numbers("neural/mass.h", "HF_LEVELS")

LOCAL = 8
"""A block's rows are in shared memory if they take at most 1 / LOCAL of the bytes that a block can have, so
that a multiprocessor runs several blocks."""


class Functions(NamedTuple):
    """Decision functions of a chunk: a struct of gpu.cu, which describes its members."""

    f: Array
    index: Any
    has_index: int
    n_functions: int
    n_trees: int
    n_vertices: int


class Tiles(NamedTuple):
    """The tiles of a launch: a struct of subtrees.cuh, which describes its members."""

    n_samples: int
    rows: int
    levels: int
    n_subtrees: int


class Labels(NamedTuple):
    """Leaves and labels: a struct of exact.cuh, which describes its members."""

    leaves: Array
    y: Array
    n_classes: int


class Gradient(NamedTuple):
    """Factors and results of gradients: a struct of gpu.cu, which describes its members."""

    w: Array | None
    by: Array | None
    tree_step: int
    sample_step: int
    share: float
    late: int
    grad: Array | None


class Rows(NamedTuple):
    """The memory of blocks: a struct of exact.cuh, which describes its members."""

    rows: Array | None
    n_pairs: int
    each: int


class Listed(NamedTuple):
    """Samples whose products are too small: a struct of exact.cuh, which describes its members."""

    n_listed: Array
    samples: Array
    likelihood: Array
    forest: int
    n_samples: int
    n_all: int
    weight: Array
    loss: Array
    grad: Array


class _Chunk:
    """Some samples in all trees, and the arguments that kernels share."""

    def __init__(self, f: Array, index: Array | None, first: int, n: int, n_trees: int, n_vertices: int):
        self.part = slice(first, first + n)
        self.n_samples, self.n_pairs, self.n_vertices = n, n * n_trees, n_vertices
        # Without an index, the kernels get an int32 array that they do not read.
        vertices = array_module(f).empty((1, 1), np.int32) if index is None else index
        self.xp, self.dtype = array_module(f), f.dtype
        self.functions = Functions(
            f[self.part], vertices, int(index is not None), f.shape[1], n_trees, n_vertices
        )

    def empty(self, *shape: int) -> Array:
        """Returns an array of the dtype of f."""
        return self.xp.empty(shape, self.dtype)

    def tiles(self, kernel: str, layer: tuple[int, int], n_rows: int, *args: Any) -> None:
        """Launches a kernel with a block for each tile of a layer; a thread has n_rows rows."""
        levels, n_subtrees = layer
        n_bytes = n_rows * ((1 << levels) + 1) * self.dtype.itemsize
        rows = launcher.compiler.block_bytes() // SHARE // n_bytes
        rows = min(launcher.THREADS, max(1, rows - rows % WARP * (rows > WARP)))
        tiles = Tiles(self.n_samples, rows, levels, n_subtrees)
        n_blocks = -(-self.n_samples // rows) * self.functions.n_trees * n_subtrees
        threads, args = -(-rows // WARP) * WARP, (self.functions, tiles, *args)
        launch(_PACKAGE, kernel, self.dtype, n_blocks, args, threads, rows * n_bytes)

    def pairs(self, kernel: str, n_blocks: int | None, *args: Any) -> None:
        """Launches a kernel over pairs in logarithms, by n_blocks blocks or a block for a few pairs."""
        each = max(1, 2 * launcher.THREADS // (self.n_vertices + 1))  # so a thread has two leaves
        n_blocks = n_blocks or -(-self.n_pairs // each)
        n_numbers = 2 * each * (2 * self.n_vertices + 1)
        is_local = 8 * n_numbers <= launcher.compiler.block_bytes() // LOCAL
        rows = None if is_local else self.xp.empty((n_blocks, n_numbers), np.float64)
        args = (self.functions, Rows(rows, self.n_pairs, each), *args)
        launch(_PACKAGE, kernel, self.dtype, n_blocks, args, launcher.THREADS, is_local * 8 * n_numbers)


def _layers(n_leaves: int) -> list[tuple[int, int]]:
    """Returns the levels of subtrees and their number for each layer of a tree, from the leaves up."""
    depth, layers = n_leaves.bit_length() - 1, []
    while depth:
        levels = min(LEVELS, depth)
        depth -= levels
        layers.append((levels, 1 << depth))
    return layers


def _chunks(
    f: Array, index: Array | None, n_trees: int, n_vertices: int, width: int, fewest: int = FEWEST
) -> Iterator[_Chunk]:
    """Yields chunks of samples, for arrays with `width` numbers a tree."""
    size = max(fewest, NUMBERS // (n_trees * width))
    for first in range(0, f.shape[0], size):
        yield _Chunk(f, index, first, min(size, f.shape[0] - first), n_trees, n_vertices)


def route(f: Array, index: Array | None, mu: Array) -> None:
    """Writes mu of each leaf."""
    n, n_trees, n_leaves = mu.shape
    if n:
        _Chunk(f, index, 0, n, n_trees, n_leaves - 1).tiles("route", _layers(n_leaves)[0], 1, mu)


def forward(f: Array, index: Array | None, leaves: Array, p: Array) -> None:
    """Writes p, the mean over trees of sum_l mu_l pi_l."""
    n_trees, n_leaves, n_classes = leaves.shape
    layer = _layers(n_leaves)[0]
    for chunk in _chunks(f, index, n_trees, n_leaves - 1, layer[1] * n_classes):
        n, n_sums = chunk.n_samples, n_trees * layer[1]
        sums = chunk.empty(n_sums, n_classes, n)
        chunk.tiles("outputs", layer, 1, leaves, n_classes, sums)
        of_means = (sums, n_sums, n_trees, n_classes, n, p[chunk.part])
        launch_each(_PACKAGE, "means", f.dtype, n * n_classes, of_means)


def _users(index: Array, n_functions: int) -> tuple[Array, Array]:
    # Returns the vertices of all trees in the order of their functions, and the start of each function's
    # vertices.
    xp = array_module(index)
    order = xp.argsort(index.ravel(), kind="stable")
    start = xp.searchsorted(index.ravel()[order], xp.arange(n_functions + 1, dtype=np.int32))
    return order.astype(np.int64), start.astype(np.int64)


def _gradient(chunk: _Chunk, kernel: str, args: tuple[Any, ...], top: Array, to: Gradient) -> None:
    """Writes the gradient, if there is an array for it, and w of the roots of trees to `top`."""
    layers, below = _layers(chunk.n_vertices + 1), None
    for layer in layers:
        n_subtrees = layer[1]
        w = top if n_subtrees == 1 else chunk.empty(chunk.functions.n_trees, n_subtrees, chunk.n_samples)
        of_layer = args if below is None else (below,)
        chunk.tiles(kernel if below is None else "gradient_above", layer, 2, *of_layer, to._replace(w=w))
        below = w


def _gradient_chunks(
    f: Array, index: Array | None, leaves: Array, grad_f: Array
) -> Iterator[tuple[_Chunk, Array]]:
    """Yields chunks, and for each an array for the gradient of vertices."""
    n_trees, n_leaves, _ = leaves.shape
    n_vertices, n_subtrees = n_leaves - 1, _layers(n_leaves)[0][1]
    for chunk in _chunks(f, index, n_trees, n_vertices, n_subtrees if index is None else n_vertices):
        yield chunk, grad_f[chunk.part] if index is None else chunk.empty(chunk.n_pairs, n_vertices)


def _gather(chunk: _Chunk, users: tuple[Array, Array] | None, of: Gradient, grad_f: Array) -> None:
    """Writes the gradient of functions that vertices share, from that of the vertices, if there are users."""
    if users is None:
        return
    sizes = (chunk.functions.n_trees, chunk.n_vertices, grad_f.shape[1], chunk.n_samples)
    target = grad_f[chunk.part]
    launch_each(_PACKAGE, "gather_functions", chunk.dtype, target.size, (of, *users, *sizes, target))


def loss_backward(
    f: Array, index: Array | None, leaves: Array, y: Array, forest: bool, loss: Array, grad_f: Array,
    p: Array | None,
) -> None:  # fmt: skip
    """Writes -log P of samples, the gradient of their mean, d A_right - (1 - d) A_left, and p if not None."""
    if p is not None:
        forward(f, index, leaves, p)
    n_trees, n_leaves, n_classes = leaves.shape
    users = None if index is None else _users(index, f.shape[1])
    for chunk, grad in _gradient_chunks(f, index, leaves, grad_f):
        n, xp = chunk.n_samples, chunk.xp
        labels = Labels(leaves, y[chunk.part], n_classes)
        likelihood, of_samples = chunk.empty(n_trees, n), chunk.empty(n)
        count, listed = xp.zeros(1, np.int32), xp.empty(n, np.int32)
        if forest:
            to = Gradient(None, of_samples, 0, 1, 0.0, int(index is not None), grad)
        else:
            to = Gradient(None, likelihood, n, 1, 1 / (f.shape[0] * n_trees), 0, grad)
        if forest or n_leaves > 1 << LEVELS:  # factors depend on likelihoods of other blocks
            _gradient(chunk, "gradient_by_labels", (labels,), likelihood, to._replace(grad=None))
        sizes = (n_trees, int(forest), n, f.shape[0])
        args = (likelihood, *sizes, loss[chunk.part], of_samples, count, listed)
        if forest:
            launch_each(_PACKAGE, "losses", f.dtype, n, args)
        _gradient(chunk, "gradient_by_labels", (labels,), likelihood, to)
        if not forest:
            launch_each(_PACKAGE, "losses", f.dtype, n, args)
        n_blocks = min(n, BLOCKS, max(1, NUMBERS // (2 * chunk.n_vertices)))
        weight = xp.empty((n_blocks, n_trees), np.float64)
        of_listed = (count, listed, likelihood, int(forest), n, f.shape[0], weight, loss[chunk.part], grad)
        chunk.pairs("exact", n_blocks, labels, Listed(*of_listed))
        _gather(chunk, users, to, grad_f)


def backward(grad_p: Array, f: Array, index: Array | None, leaves: Array, grad_f: Array) -> None:
    """Writes the gradient with respect to f of a loss whose gradient with respect to p is grad_p."""
    n_trees, _, n_classes = leaves.shape
    users = None if index is None else _users(index, f.shape[1])
    for chunk, grad in _gradient_chunks(f, index, leaves, grad_f):
        by_sample = chunk.xp.ascontiguousarray(grad_p[chunk.part].T)
        # The output increases with f on the left side, opposite to the sign of Tile::ascend.
        to = Gradient(None, chunk.xp.full(1, -1 / n_trees, f.dtype), 0, 0, 0.0, 0, grad)
        top = chunk.empty(n_trees, chunk.n_samples)
        _gradient(chunk, "gradient_by_outputs", (leaves, by_sample, n_classes), top, to)
        _gather(chunk, users, to, grad_f)


def update_leaves(
    f: Array, index: Array | None, y: Array, weight: Array | None, n_iter: int, leaves: Array
) -> None:
    """Updates leaves n_iter times (Zhang 2017, last formula); samples count `weight` times, once if None."""
    n_trees, n_leaves, n_classes = leaves.shape
    xp = array_module(f)
    times = xp.ones(len(y), np.float64) if weight is None else weight
    for _ in range(n_iter):
        total = xp.zeros(leaves.shape, np.float64)
        for chunk in _chunks(f, index, n_trees, n_leaves - 1, 2 * n_leaves, 1):
            shares = xp.empty((chunk.n_pairs, n_leaves), np.float64)
            chunk.pairs("leaf_shares", None, Labels(leaves, y[chunk.part], n_classes), shares)
            order, start = _users(y[chunk.part], n_classes)
            args = (shares, order, start, times[chunk.part], n_trees, n_leaves, n_classes, total)
            launch_each(_PACKAGE, "expect", f.dtype, total.size, args)
        rows = n_trees * n_leaves
        launch_each(_PACKAGE, "normalise", f.dtype, rows, (total, rows, n_classes, leaves))
