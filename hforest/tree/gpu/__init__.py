"""Application of forests on a GPU; the kernels are in gpu.cu. Results are those of the reference."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...core.aliases import Array
from ...core.dispatch import array_module
from ...core.in_place import PlacedWindows
from ...core.launch import launch, launch_each, numbers
from .. import forest as tree

PACKAGE = Path(__file__).parent.parent

PAIRS = 1 << 24
"""The most pairs of a sample and a tree that are walked before their leaves are summed; limits workspace."""

(ROWS,) = numbers("tree/gpu/gpu.cu", "ROWS")
GROUP, BLOCKS = 8, 4096
"""A block routes ROWS samples through at most GROUP trees, or through fewer if there would be fewer than
BLOCKS blocks."""


class Forest(NamedTuple):
    """The nodes of a forest, with their projections: a struct of gpu.cu."""

    tree_start: Array
    feature: Array
    threshold: Array
    left: Array
    indptr: Array
    indices: Array
    data: Array | None
    default_left: Array | None
    category_indptr: Array | None
    category_bits: Array | None
    offset: Array | None
    n_trees: int
    n_nodes: int
    n_entries: int
    n_features: int
    has_projections: bool


class Samples(NamedTuple):
    """Rows or windows: a struct of gpu.cu."""

    x: Array
    base: Array | None
    n_samples: int


def _struct(forest: tree.Forest, n_features: int, offset: Array | None) -> Forest:
    """Returns the forest as kernels take it."""

    def known(a: Array) -> Array | None:
        return a if a.size else None

    return Forest(
        forest.tree_start, forest.feature, forest.threshold, forest.left, forest.indptr, forest.indices,
        forest.data, known(forest.default_left), known(forest.category_indptr), known(forest.category_bits),
        offset, forest.tree_start.size - 1, forest.feature.size, forest.indices.size, n_features,
        forest.indptr.size > 0,
    )  # fmt: skip


def _part(x: Array | PlacedWindows, rows: slice) -> tuple[Samples, int, Array | None]:
    """Returns some samples as kernels take them, their number of features, and the offset of windows."""
    if isinstance(x, PlacedWindows):
        base = x.base[rows]
        return Samples(x.x, base, len(base)), len(x.offset), x.offset
    x = x[rows]
    return Samples(x, None, len(x)), x.shape[1], None


def _packed(forest: tree.Forest) -> Array:
    """Returns the nodes as the struct Node of gpu.cu."""
    nodes = array_module(forest.feature).empty((forest.feature.size, 16), np.uint8)
    args = (_struct(forest, 0, None), nodes)
    launch_each(PACKAGE, "pack", forest.threshold.dtype, forest.feature.size, args)
    return nodes


def _apply(x: Array | PlacedWindows, forest: tree.Forest, nodes: Array, rows: slice, leaf: Array) -> None:
    samples, n_features, offset = _part(x, rows)
    n_tiles, n_trees = -(-len(leaf) // ROWS), forest.tree_start.size - 1
    group = min(GROUP, max(1, n_tiles * n_trees // BLOCKS))
    args = (_struct(forest, n_features, offset), samples, nodes, n_tiles, group, leaf)
    launch(PACKAGE, "apply", forest.threshold.dtype, n_tiles * -(-n_trees // group), args, ROWS)


def apply(x: Array | PlacedWindows, forest: tree.Forest, leaf: Array) -> None:
    _apply(x, forest, _packed(forest), slice(None), leaf)


def predict(x: Array | PlacedWindows, forest: tree.Forest, vote: bool, y: Array) -> None:
    n_samples, n_trees, value = x.shape[0], forest.tree_start.size - 1, forest.value
    chunk = min(max(1, PAIRS // n_trees), n_samples)
    leaf, nodes = array_module(y).empty((chunk, n_trees), np.int32), _packed(forest)
    for first in range(0, n_samples, chunk or 1):
        n = min(chunk, n_samples - first)
        _apply(x, forest, nodes, slice(first, first + n), leaf[:n])
        part = y[first : first + n]
        launch_each(
            PACKAGE, "leaf_means", y.dtype, part.size,
            (leaf, forest.tree_start, forest.left, value, n, n_trees, value.shape[1], int(vote), part),
        )  # fmt: skip


def faults(forest: tree.Forest, first: Array) -> None:
    feature, dtype = forest.feature, forest.threshold.dtype
    xp, nodes = array_module(feature), _struct(forest, int(forest.n_features), None)
    n_parents = xp.zeros(feature.size, np.int32)
    launch_each(PACKAGE, "count_parents", dtype, feature.size, (nodes, n_parents))
    lowest = xp.full(1, 2**64 - 1, np.uint64)
    launch_each(PACKAGE, "first_fault", dtype, feature.size, (nodes, n_parents, lowest))
    none = lowest == np.uint64(2**64 - 1)
    first[:1] = xp.where(none, -1, (lowest // np.uint64(16)).astype(np.int64))
    first[1:] = xp.where(none, 0, (lowest % np.uint64(16)).astype(np.int64))
