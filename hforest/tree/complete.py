"""Grown trees as complete trees of a given depth, for the algorithms whose trees are complete.

Forests have NumPy arrays and have been checked; nodes are counted over all trees.
"""

from typing import NamedTuple

import numpy as np

from ..core import check
from ..core.aliases import FloatArray, IntArray
from .forest import Forest, checked, depths, levels


class Places(NamedTuple):
    """Nodes of grown trees at the places of complete trees."""

    vertex: IntArray
    """(n_trees, 2**depth - 1) int64, heap order: the split, or -1 below a leaf."""
    reached: IntArray
    """(n_trees, 2**depth) int64: the leaf, which is at all places below it, or a split whose subtree is
    omitted."""


def _on_cpu(forest: Forest) -> Forest:
    """Returns the checked arrays of a forest."""
    arrays = checked(forest)
    check.on_cpu(**{"forest.feature": arrays.feature})
    return arrays


def splits(forest: Forest) -> list[IntArray]:
    """Returns the splits of a forest, one array for each depth, roots first.

    Parameters
    ----------
    forest : Forest
        Any forest, axis-aligned or oblique, in NumPy arrays.

    Returns
    -------
    list of (n_splits,) arrays of int64
        Numbers of nodes, counted over all trees; the length of the list is the depth of the forest.

    Notes
    -----
    Use it to compute a number for each node from those of its children, from the last array to the first. The
    children of node v of a tree are ``tree_start[tree] + left[v]`` and the next node. Cost: one read of the
    nodes.

    Examples
    --------
    >>> import hforest
    >>> forest = hforest.grow([[0.0], [1.0], [2.0]], [0, 1, 0], 2, bootstrap=False, rng=0)
    >>> [a.tolist() for a in hforest.tree.splits(forest)]
    [[0, 5], [2, 7]]
    """
    return levels(_on_cpu(forest))


def depth(forest: Forest) -> IntArray:
    """Returns the depth of each tree: the number of splits on its longest path from the root to a leaf.

    Parameters
    ----------
    forest : Forest
        Any forest, axis-aligned or oblique, in NumPy arrays.

    Returns
    -------
    (n_trees,) array of int64
        0 for a tree of one leaf.

    Notes
    -----
    Cost: one read of the nodes.

    Examples
    --------
    >>> import hforest
    >>> forest = hforest.grow([[0.0], [1.0], [2.0]], [0, 1, 0], 2, bootstrap=False, rng=0)
    >>> hforest.tree.depth(forest)
    array([2, 2])
    """
    return depths(_on_cpu(forest))


def places(forest: Forest, depth: int) -> Places:
    """Returns the nodes at the places of complete trees of a depth of at least 1."""
    start, vertices = forest.tree_start[:-1, None], []
    node = start
    for _ in range(depth):
        splits = forest.feature[node] != -1
        vertices.append(np.where(splits, node, -1))
        first = np.where(splits, start + forest.left[node], node)
        node = np.stack([first, first + splits], axis=2).reshape(len(start), -1)
    return Places(np.concatenate(vertices, axis=1), node)


def check_depth(forest: Forest, depth: int | None, max_depth: int, max_leaves: int) -> int:
    """Returns a checked depth of complete trees, by default that of the forest and at least 1."""
    n_levels = len(levels(forest)) if depth is None else check.integer("depth", depth, 1, max_depth)
    n_trees = len(forest.tree_start) - 1
    if n_levels > max_depth or n_trees * 2**n_levels > max_leaves:
        raise ValueError(
            f"depth: expected at most {max_depth}, with n_trees * 2**depth of at most {max_leaves}, got "
            f"{n_trees} * 2**{n_levels}{' of this forest' if depth is None else ''}; pass a smaller depth: "
            "deeper splits are left out"
        )
    return max(n_levels, 1)


def compared(forest: Forest, node: int) -> tuple[IntArray, FloatArray]:
    """Returns the columns of x and their weights in the value that a split compares with its threshold."""
    f = int(forest.feature[node])
    if f >= 0:
        return np.array([f], np.int32), np.ones(1, forest.threshold.dtype)
    part = slice(int(forest.indptr[node]), int(forest.indptr[node + 1]))
    return forest.indices[part], forest.data[part]
