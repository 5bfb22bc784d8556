"""Neural decision forests on a GPU (Zhang 2017, section 2); kernels in gpu.cu.

Samples are divided into chunks, so that workspace does not grow with their number. A block routes a tile of
samples through a subtree of a tree; a thread has a pair of a sample and a tree. Results have the bits of the
CPU. Samples whose products leave the range of the dtype are listed, and another kernel computes them as
float64 logarithms, so that no function waits for the device: threads of a warp do not diverge. Kernels run on
the caller's stream.
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

LEVELS, *_ROWS = numbers("neural/mass.h", "HF_LEVELS", "HF_ROW_F32", "HF_ROW_F64")
ROW: dict[int, int] = dict(zip((4, 8), _ROWS, strict=True))
"""Samples of a group of the leaf update, by bytes of a number."""

LOCAL = 8
"""A block's rows are in shared memory if they take at most 1 / LOCAL of the bytes that a block can have, so
that a multiprocessor runs several blocks."""


class Forest(NamedTuple):
    """A forest and samples: a struct of subtrees.cuh, which describes its members."""

    f: Array
    order: Array | None
    index: Any
    leaves: Array | None
    y: Array | None
    has_index: int
    n_samples: int
    n_functions: int
    n_trees: int
    n_vertices: int
    n_classes: int


class Tiles(NamedTuple):
    """The tiles of a launch: a struct of subtrees.cuh, which describes its members."""

    rows: int
    levels: int
    n_subtrees: int


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
    each: int


class Listed(NamedTuple):
    """Samples whose products are too small: a struct of exact.cuh, which describes its members."""

    n_listed: Array
    samples: Array
    likelihood: Array
    forest: int
    n_all: int
    weight: Array
    loss: Array
    grad: Array


class Posteriors(NamedTuple):
    """Pairs of the leaf update: a struct of gpu.cu, which describes its members."""

    times: Array
    factor: Array | None
    n_listed: Array
    listed: Array
    which: Array


class _Chunk:
    """Some samples in all trees."""

    def __init__(self, forest: Forest, first: int, n: int):
        self.part, self.xp, self.dtype = slice(first, first + n), array_module(forest.f), forest.f.dtype
        f, order, y = forest.f, forest.order, forest.y
        y = None if y is None else y[self.part]
        f, order = (f[self.part], None) if order is None else (f, order[self.part])
        self.forest, self.n_samples = forest._replace(f=f, order=order, y=y, n_samples=n), n

    def empty(self, *shape: int) -> Array:
        """Returns an array of the dtype of f."""
        return self.xp.empty(shape, self.dtype)

    def tiles(self, kernel: str, layer: tuple[int, int], n_rows: int, *args: Any, least: int = 1) -> None:
        """Launches a kernel with a block for each tile of a layer; a thread has n_rows rows.

        Tiles have multiples of `least` samples.
        """
        levels, n_subtrees = layer
        n_bytes = n_rows * ((1 << levels) + 1) * self.dtype.itemsize
        rows = launcher.compiler.block_bytes() // SHARE // n_bytes
        rows = min(launcher.THREADS, max(least, rows - rows % (WARP if rows > WARP else least)))
        n_blocks = -(-self.n_samples // rows) * self.forest.n_trees * n_subtrees
        threads, args = -(-rows // WARP) * WARP, (self.forest, Tiles(rows, levels, n_subtrees), *args)
        launch(_PACKAGE, kernel, self.dtype, n_blocks, args, threads, rows * n_bytes)

    def blocks(self) -> int:
        """Returns the number of blocks for listed samples."""
        return min(self.n_samples, BLOCKS, max(1, NUMBERS // (self.forest.n_vertices + 1)))

    def pairs(self, kernel: str, n_blocks: int, *args: Any) -> None:
        """Launches a kernel over pairs in logarithms."""
        n_vertices = self.forest.n_vertices
        each = max(1, 2 * launcher.THREADS // (n_vertices + 1))  # so a thread has two leaves
        n_numbers = 2 * each * (2 * n_vertices + 1)
        is_local = 8 * n_numbers <= launcher.compiler.block_bytes() // LOCAL
        rows = None if is_local else self.xp.empty((n_blocks, n_numbers), np.float64)
        args = (self.forest, Rows(rows, each), *args)
        launch(_PACKAGE, kernel, self.dtype, n_blocks, args, launcher.THREADS, is_local * 8 * n_numbers)


def _layers(n_leaves: int) -> list[tuple[int, int]]:
    """Returns the levels of subtrees and their number for each layer of a tree, from the leaves up."""
    depth, layers = n_leaves.bit_length() - 1, []
    while depth:
        levels = min(LEVELS, depth)
        depth -= levels
        layers.append((levels, 1 << depth))
    return layers


def _forest(
    f: Array, index: Array | None, trees: tuple[int, int], leaves: Array | None = None, y: Array | None = None
) -> Forest:
    """Returns a forest of n_trees trees with n_leaves leaves."""
    # Without an index, the kernels get an int32 array that they do not read.
    vertices = array_module(f).empty((1, 1), np.int32) if index is None else index
    has_index, n_classes = int(index is not None), 0 if leaves is None else leaves.shape[2]
    n, n_functions = f.shape
    return Forest(f, None, vertices, leaves, y, has_index, n, n_functions, trees[0], trees[1] - 1, n_classes)


def _chunks(forest: Forest, width: int, fewest: int = FEWEST) -> Iterator[_Chunk]:
    """Yields chunks of multiples of `fewest` samples, for arrays with `width` numbers a tree."""
    size = max(1, NUMBERS // (forest.n_trees * width) // fewest) * fewest
    for first in range(0, forest.n_samples, size):
        yield _Chunk(forest, first, min(size, forest.n_samples - first))


def route(f: Array, index: Array | None, mu: Array) -> None:
    """Writes mu of each leaf."""
    n, n_trees, n_leaves = mu.shape
    if n:
        _Chunk(_forest(f, index, (n_trees, n_leaves)), 0, n).tiles("route", _layers(n_leaves)[0], 1, mu)


def forward(f: Array, index: Array | None, leaves: Array, p: Array) -> None:
    """Writes p, the mean over trees of sum_l mu_l pi_l."""
    n_trees, n_leaves, n_classes = leaves.shape
    layer = _layers(n_leaves)[0]
    for chunk in _chunks(_forest(f, index, (n_trees, n_leaves), leaves), layer[1] * n_classes):
        n, n_sums = chunk.n_samples, n_trees * layer[1]
        sums = chunk.empty(n_sums, n_classes, n)
        chunk.tiles("outputs", layer, 1, sums)
        of_means = (sums, n_sums, n_trees, n_classes, n, p[chunk.part])
        launch_each(_PACKAGE, "means", f.dtype, n * n_classes, of_means)


def _users(index: Array, n_functions: int, dtype: np.dtype) -> tuple[Array, Array]:
    # Returns the vertices of all trees in the order of their functions, and the start of each function's
    # vertices.
    xp = array_module(index)
    order, start = xp.argsort(index.ravel(), kind="stable"), xp.empty(n_functions + 1, np.int64)
    launch_each(_PACKAGE, "starts", dtype, len(start), (index, order, index.size, n_functions, start))
    return order, start


def _gradient(chunk: _Chunk, kernel: str, args: tuple[Array, ...], top: Array, to: Gradient) -> None:
    """Writes the gradient, if there is an array for it, and w of the roots of trees to `top`."""
    for layer in _layers(chunk.forest.n_vertices + 1):
        n_subtrees = layer[1]
        w = top if n_subtrees == 1 else chunk.empty(chunk.forest.n_trees, n_subtrees, chunk.n_samples)
        chunk.tiles(kernel, layer, 2, *args, to._replace(w=w))
        kernel, args = "gradient_above", (w,)


def _gradient_chunks(forest: Forest, grad_f: Array) -> Iterator[tuple[_Chunk, Array]]:
    """Yields chunks, and for each an array for the gradient of vertices, which `_gather` reads."""
    if not forest.has_index:
        for chunk in _chunks(forest, _layers(forest.n_vertices + 1)[0][1]):
            yield chunk, grad_f[chunk.part]
        return
    for chunk in _chunks(forest, forest.n_vertices, 1):
        yield chunk, chunk.empty(chunk.n_samples, forest.n_trees, forest.n_vertices)


def _gather(chunk: _Chunk, users: tuple[Array, Array] | None, of: Gradient, grad_f: Array) -> None:
    """Writes the gradient of functions that vertices share, from that of the vertices, if there are users."""
    if users is not None:
        target = grad_f[chunk.part]
        args = (chunk.forest, of, *users, target)
        launch_each(_PACKAGE, "gather_functions", chunk.dtype, target.size, args)


def loss_backward(
    f: Array, index: Array | None, leaves: Array, y: Array, forest: bool, loss: Array, grad_f: Array,
    p: Array | None,
) -> None:  # fmt: skip
    """Writes -log P of samples, the gradient of their mean, d A_right - (1 - d) A_left, and p if not None."""
    if p is not None:
        forward(f, index, leaves, p)
    n_all, (n_trees, n_leaves, _) = len(f), leaves.shape
    users = None if index is None else _users(index, f.shape[1], f.dtype)
    for chunk, grad in _gradient_chunks(_forest(f, index, (n_trees, n_leaves), leaves, y), grad_f):
        n, xp, losses = chunk.n_samples, chunk.xp, loss[chunk.part]
        likelihood, of_samples = chunk.empty(n_trees, n), chunk.empty(n)
        listed = xp.zeros(1, np.int32), xp.empty(n, np.int32)
        if forest:
            to = Gradient(None, of_samples, 0, 1, 0.0, int(index is not None), grad)
        else:
            to = Gradient(None, likelihood, n, 1, 1 / (n_all * n_trees), 0, grad)
        if forest or n_leaves > 1 << LEVELS:  # factors depend on likelihoods of other blocks
            _gradient(chunk, "gradient_by_labels", (), likelihood, to._replace(grad=None))
        args = (likelihood, n_trees, int(forest), n, n_all, losses, of_samples, *listed)
        if forest:
            launch_each(_PACKAGE, "losses", f.dtype, n, args)
        _gradient(chunk, "gradient_by_labels", (), likelihood, to)
        if not forest:
            launch_each(_PACKAGE, "losses", f.dtype, n, args)
        n_blocks = chunk.blocks()
        weight = xp.empty((n_blocks, n_trees), np.float64)
        chunk.pairs("exact", n_blocks, Listed(*listed, likelihood, int(forest), n_all, weight, losses, grad))
        _gather(chunk, users, to, grad_f)


def backward(grad_p: Array, f: Array, index: Array | None, leaves: Array, grad_f: Array) -> None:
    """Writes the gradient with respect to f of a loss whose gradient with respect to p is grad_p."""
    n_trees, n_leaves, _ = leaves.shape
    users = None if index is None else _users(index, f.shape[1], f.dtype)
    for chunk, grad in _gradient_chunks(_forest(f, index, (n_trees, n_leaves), leaves), grad_f):
        by_sample = chunk.xp.ascontiguousarray(grad_p[chunk.part].T)
        # The output increases with f on the left side, opposite to the sign of Tile::ascend.
        to = Gradient(None, chunk.xp.full(1, -1 / n_trees, f.dtype), 0, 0, 0.0, 0, grad)
        top = chunk.empty(n_trees, chunk.n_samples)
        _gradient(chunk, "gradient_by_outputs", (by_sample,), top, to)
        _gather(chunk, users, to, grad_f)


def _groups(y: Array, weight: Array | None, n_classes: int, dtype: np.dtype) -> tuple[Array, ...]:
    """Returns the samples in groups of a class, their labels, how often each counts, and where classes start.

    Groups are filled up, and after those of a class there may be more, with samples that count 0 times. The
    starts do not count these samples.
    """
    xp, n, row = array_module(y), len(y), ROW[dtype.itemsize]
    by_class, start = _users(y, n_classes, dtype)
    n_padded = (n + min(n, n_classes) * (row - 1)) // row * row  # or fewer, but this is known without a wait
    (order, labels), times = xp.zeros((2, n_padded), np.int32), xp.zeros(n_padded, np.float64)
    # Without weights, the kernel gets an array that it does not read.
    of_samples = (y, times if weight is None else weight, int(weight is not None), n, by_class, start)
    launch_each(_PACKAGE, "fill_groups", dtype, n, (*of_samples, order, labels, times))
    return order, labels, times, start


def _expect(chunk: _Chunk, row: int, times: Array, start: Array, total: Array) -> None:
    """Adds the posteriors of a chunk to `total`."""
    forest, xp, n, n_trees = chunk.forest, chunk.xp, chunk.n_samples, chunk.forest.n_trees
    n_groups, n_pairs, n_leaves = n // row, n * n_trees, forest.n_vertices + 1
    layer = _, n_subtrees = _layers(n_leaves)[0]
    listed = xp.zeros(1, np.int32), xp.empty(n_pairs, np.int32)
    to = Posteriors(times[chunk.part], None, *listed, xp.zeros(n_groups * n_trees, np.int32))
    if n_subtrees > 1:  # factors depend on likelihoods of other blocks
        to, parts = to._replace(factor=chunk.empty(n_pairs)), chunk.empty(n_trees, n_subtrees, n)
        chunk.tiles("likelihoods", layer, 1, parts)
        launch_each(_PACKAGE, "factors", chunk.dtype, n_pairs, (forest, to, parts, n_subtrees))
    sums, shares = chunk.empty(n_groups, n_trees, n_leaves), xp.empty((n_pairs, n_leaves), np.float64)
    chunk.tiles("posteriors", layer, 1, to, sums, least=row)
    chunk.pairs("leaf_shares", chunk.blocks(), *listed, shares)
    args = (forest, to, sums, shares, start, chunk.part.start // row, total)
    launch_each(_PACKAGE, "expect", chunk.dtype, total.size, args)


def update_leaves(
    f: Array, index: Array | None, y: Array, weight: Array | None, n_iter: int, leaves: Array
) -> None:
    """Updates leaves n_iter times (Zhang 2017, last formula); samples count `weight` times, once if None."""
    n_trees, n_leaves, n_classes = leaves.shape
    xp, row = array_module(f), ROW[f.dtype.itemsize]
    order, labels, times, start = _groups(y, weight, n_classes, f.dtype)
    forest = _forest(f, index, (n_trees, n_leaves), leaves, labels)
    forest = forest._replace(order=order, n_samples=len(order))
    for _ in range(n_iter):
        total = xp.zeros((n_trees, n_classes, n_leaves), np.float64)
        for chunk in _chunks(forest, n_leaves, row):
            _expect(chunk, row, times, start, total)
        args = (total, n_trees, n_leaves, n_classes, leaves)
        launch_each(_PACKAGE, "normalise", f.dtype, n_trees * n_leaves, args)
