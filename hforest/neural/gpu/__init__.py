"""Neural decision forests on a GPU (Zhang 2017, section 2); kernels in gpu.cu.

Samples are divided into chunks, so that workspace does not grow with their number. A block computes all
levels of some pairs of a sample and a tree. Kernels run on the caller's stream, and no function waits for
the device. Likelihoods are float64 logarithms for all samples. A second path, for samples whose products
leave the range of float32, would make the threads of a warp diverge.
"""

from collections.abc import Callable, Iterator
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


class Shares(NamedTuple):
    """The results of `descend_shares`: a struct of gpu.cu."""

    rows: Array | None
    weight: Array | None
    grad: Array | None


class _Chunk:
    """Some samples in all trees, and the arguments that kernels over vertices share."""

    def __init__(self, f: Array, index: Array | None, first: int, n: int, n_trees: int, n_vertices: int):
        self.part = slice(first, first + n)
        self.n_samples, self.n_pairs, self.n_vertices = n, n * n_trees, n_vertices
        self.row = 2 * n_vertices + 1
        # Without an index, the kernels get an int32 array that they do not read.
        vertices = array_module(f).empty((1, 1), np.int32) if index is None else index
        self.xp, self.dtype = array_module(f), f.dtype
        self.functions = Functions(
            f[self.part], vertices, int(index is not None), f.shape[1], n_trees, n_vertices
        )
        # Number of pairs of a block: with it, a thread has two leaves.
        self.each = max(1, 2 * launcher.THREADS // (n_vertices + 1))

    def empty(self, dtype: np.dtype | type) -> Array:
        """Returns an array with a number for each vertex and leaf of each pair."""
        return self.xp.empty((self.n_pairs, self.row), dtype)

    def is_local(self, itemsize: int) -> bool:
        """Returns whether a block's rows, of numbers of itemsize bytes, fit their part of shared memory."""
        return 0 < self.each * self.row * itemsize <= launcher.compiler.block_bytes() // LOCAL

    def levels(self, kernel: str, *args: Any, itemsize: int = 0) -> None:
        """Launches a kernel over levels, with rows in shared memory if is_local(itemsize); 0: in no case."""
        n_blocks, is_local = -(-self.n_pairs // self.each), int(self.is_local(itemsize))
        every, n_bytes = (self.functions, self.n_pairs, self.each, is_local), itemsize * self.each * self.row
        launch(_PACKAGE, kernel, self.dtype, n_blocks, (*every, *args), launcher.THREADS, is_local * n_bytes)


def _chunks(
    f: Array, index: Array | None, n_trees: int, n_vertices: int, width: int = 0, least: int = 1
) -> Iterator[_Chunk]:
    """Yields chunks of samples, for `width` numbers of each, or for one number of each vertex and leaf."""
    size = max(least, NUMBERS // (width or n_trees * (2 * n_vertices + 1)))
    for first in range(0, f.shape[0], size):
        yield _Chunk(f, index, first, min(size, f.shape[0] - first), n_trees, n_vertices)


class Tiles(NamedTuple):
    """The tiles of a launch: a struct of subtrees.cuh, which describes its members."""

    n_samples: int
    rows: int
    levels: int
    n_subtrees: int


def _launch_tiles(kernel: str, of: _Chunk, *args: Any) -> None:
    """Launches a kernel with a block for each tile of a chunk."""
    depth = of.n_vertices.bit_length()
    levels = min(LEVELS, depth)
    n_bytes = ((1 << levels) + 1) * of.dtype.itemsize
    rows = launcher.compiler.block_bytes() // SHARE // n_bytes
    rows = min(launcher.THREADS, max(1, rows - rows % WARP * (rows > WARP)))
    tiles = Tiles(of.n_samples, rows, levels, 1 << depth - levels)
    n_blocks = -(-of.n_samples // rows) * of.functions.n_trees * tiles.n_subtrees
    threads = -(-rows // WARP) * WARP
    launch(_PACKAGE, kernel, of.dtype, n_blocks, (of.functions, tiles, *args), threads, rows * n_bytes)


def route(f: Array, index: Array | None, mu: Array) -> None:
    """Writes mu of each leaf."""
    n, n_trees, n_leaves = mu.shape
    if n:
        _launch_tiles("route", _Chunk(f, index, 0, n, n_trees, n_leaves - 1), mu)


def forward(f: Array, index: Array | None, leaves: Array, p: Array) -> None:
    """Writes p, the mean over trees of sum_l mu_l pi_l."""
    n_trees, n_leaves, n_classes = leaves.shape
    n_sums = n_trees * max(1, n_leaves >> LEVELS)
    for chunk in _chunks(f, index, n_trees, n_leaves - 1, n_sums * n_classes, FEWEST):
        n = chunk.n_samples
        sums = chunk.xp.empty((n_sums, n_classes, n), f.dtype)
        _launch_tiles("outputs", chunk, leaves, n_classes, sums)
        of_means = (sums, n_sums, n_trees, n_classes, n, p[chunk.part])
        launch_each(_PACKAGE, "means", f.dtype, n * n_classes, of_means)


def _mu(chunk: _Chunk) -> Array:
    mu = chunk.empty(chunk.dtype)
    chunk.levels("descend", mu, itemsize=chunk.dtype.itemsize)
    return mu


def _logs(chunk: _Chunk, leaves: Array, y: Array) -> Array:
    # Returns the logarithm of the likelihood below each vertex and leaf.
    logs = chunk.empty(np.float64)
    chunk.levels("ascend_logs", leaves, y[chunk.part], leaves.shape[2], logs, itemsize=8)
    return logs


def _shares(chunk: _Chunk, logs: Array, out: Shares) -> None:
    # Writes the share A of each leaf, or the gradient, to the arrays of `out` that are not None.
    if out.rows is None and not chunk.is_local(8):
        out = out._replace(rows=chunk.empty(np.float64))
    chunk.levels("descend_shares", logs, out, itemsize=8)


def _users(index: Array, n_functions: int) -> tuple[Array, Array]:
    # Returns the vertices of all trees in the order of their functions, and the start of each function's
    # vertices.
    xp = array_module(index)
    order = xp.argsort(index.ravel(), kind="stable")
    start = xp.searchsorted(index.ravel()[order], xp.arange(n_functions + 1, dtype=np.int32))
    return order.astype(np.int64), start.astype(np.int64)


def _gathered(
    chunk: _Chunk, users: tuple[Array, Array] | None, grad_f: Array
) -> tuple[Array, Callable[[], None]]:
    # Returns an array for the gradient of each vertex, and a function that then sums it over vertices.
    target, n_numbers = grad_f[chunk.part], chunk.n_pairs * chunk.n_vertices
    if users is None:
        return target, lambda: None
    grad = chunk.xp.empty(n_numbers, chunk.dtype)
    args = (grad, *users, n_numbers // chunk.n_samples, grad_f.shape[1], chunk.n_samples, target)
    return grad, lambda: launch_each(_PACKAGE, "gather_functions", chunk.dtype, target.size, args)


def loss_backward(
    f: Array, index: Array | None, leaves: Array, y: Array, forest: bool, loss: Array, grad_f: Array,
    p: Array | None,
) -> None:  # fmt: skip
    """Writes -log P of samples, the gradient of their mean, d A_right - (1 - d) A_left, and p if not None."""
    if p is not None:
        forward(f, index, leaves, p)
    n_trees, n_leaves, _ = leaves.shape
    users = None if index is None else _users(index, f.shape[1])
    for chunk in _chunks(f, index, n_trees, n_leaves - 1):
        logs = _logs(chunk, leaves, y)
        weight = chunk.xp.empty(chunk.n_pairs, np.float64)
        n = chunk.n_samples
        args = (logs, n_trees, n_leaves - 1, int(forest), n, f.shape[0], loss[chunk.part], weight)
        launch_each(_PACKAGE, "losses", f.dtype, n, args)
        grad, gather = _gathered(chunk, users, grad_f)
        _shares(chunk, logs, Shares(None, weight, grad))
        gather()


def backward(grad_p: Array, f: Array, index: Array | None, leaves: Array, grad_f: Array) -> None:
    """Writes the gradient with respect to f of a loss whose gradient with respect to p is grad_p."""
    n_trees, n_leaves, n_classes = leaves.shape
    users = None if index is None else _users(index, f.shape[1])
    for chunk in _chunks(f, index, n_trees, n_leaves - 1):
        value = chunk.empty(np.float64)
        args = (grad_p[chunk.part], leaves, n_trees, n_leaves - 1, n_classes, chunk.n_pairs, value)
        launch_each(_PACKAGE, "leaf_products", f.dtype, chunk.n_pairs * n_leaves, args)
        chunk.levels("ascend", value)
        grad, gather = _gathered(chunk, users, grad_f)
        gradient = (chunk.functions, value, _mu(chunk), chunk.n_pairs, grad)
        launch_each(_PACKAGE, "gradient_by_outputs", f.dtype, chunk.n_pairs * chunk.n_vertices, gradient)
        gather()


def update_leaves(
    f: Array, index: Array | None, y: Array, weight: Array | None, n_iter: int, leaves: Array
) -> None:
    """Updates leaves n_iter times (Zhang 2017, last formula); samples count `weight` times, once if None."""
    n_trees, n_leaves, n_classes = leaves.shape
    xp = array_module(f)
    times = xp.ones(len(y), np.float64) if weight is None else weight
    for _ in range(n_iter):
        total = xp.zeros(leaves.shape, np.float64)
        for chunk in _chunks(f, index, n_trees, n_leaves - 1):
            shares = chunk.empty(np.float64)
            _shares(chunk, _logs(chunk, leaves, y), Shares(shares, None, None))
            order, start = _users(y[chunk.part], n_classes)
            args = (shares, order, start, times[chunk.part], n_trees, n_leaves - 1, n_classes, total)
            launch_each(_PACKAGE, "expect", f.dtype, total.size, args)
        rows = n_trees * n_leaves
        launch_each(_PACKAGE, "normalise", f.dtype, rows, (total, rows, n_classes, leaves))
