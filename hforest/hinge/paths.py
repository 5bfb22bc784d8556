"""Touched rows, numbers of samples in leaves, and decisions on a path, all from routes."""

from typing import NamedTuple

import numpy as np

from ..core import check, dispatch
from ..core.aliases import Array, IntArray
from .kernels import touched_rows
from .shared import PACKAGE, owned_leaf


def leaf_rows(leaf: IntArray, n_leaves: int) -> IntArray:
    """Returns the distinct rows of the flattened (tree, leaf) axis that a batch touches, sorted.

    These are the rows of the sparse weight gradient. Bring them up to date before you evaluate the batch; its
    optimiser step moves them.

    Parameters
    ----------
    leaf : (n_samples, n_trees) array of int32
        Leaf that each sample reaches in each tree.
    n_leaves : int
        Number of leaves of a tree, 2**depth.

    Returns
    -------
    rows : (n_rows,) array of int64
        tree * n_leaves + leaf.

    Notes
    -----
    Cost: n_samples * n_trees, and one bit per leaf. With more than 4096 leaves per sample, a sort of
    n_samples * n_trees numbers.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> hforest.hinge.leaf_rows(np.array([[3, 0], [3, 1]], dtype=np.int32), 4)
    array([3, 4, 5])
    """
    leaf = _checked_leaf(leaf, n_leaves)
    return touched_rows(leaf, int(n_leaves))[1]


def _checked_leaf(leaf: IntArray, n_leaves: int) -> IntArray:
    """Returns a checked copy of leaves (`check.owned`); inside `unchecked()` the leaves themselves."""
    check.same_device(leaf=leaf)
    sizes: check.Sizes = {}
    check.array("leaf", leaf, check.INT32, ("n_samples", "n_trees"), sizes, last_first=True)
    check.at_least_one(sizes, "n_trees")
    check.integer("n_leaves", n_leaves, 1, 2**check.MAX_DEPTH)
    if check.values_checked():
        leaf = owned_leaf(leaf)
    check.indices("leaf", leaf, n_leaves, "n_leaves")
    return leaf


def leaf_counts(leaf: IntArray, n_leaves: int) -> IntArray:
    """Returns the number of samples in each leaf of each tree.

    Parameters: see `leaf_rows`.

    Returns
    -------
    counts : (n_trees, n_leaves) array of int64

    Notes
    -----
    Cost: n_samples * n_trees + n_trees * n_leaves.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> hforest.hinge.leaf_counts(np.array([[1], [1], [0]], dtype=np.int32), 2)
    array([[1, 2]])
    """
    leaf = _checked_leaf(leaf, n_leaves)
    with check.memory("n_leaves", "counts", 8 * leaf.shape[1] * int(n_leaves)):
        counts = dispatch.empty(leaf)((leaf.shape[1], int(n_leaves)), np.int64)
    dispatch.backend(PACKAGE, leaf).leaf_counts(leaf, counts)
    return counts


class TreePath(NamedTuple):
    """Decisions on the path to a leaf; each array is (n_samples, n_trees, depth), root first."""

    vertex: IntArray
    """int32, heap order."""
    feature: IntArray
    """int32, column of x."""
    right: Array
    """bool, whether the sample went right (x > threshold)."""


def tree_path(leaf: IntArray, features: IntArray) -> TreePath:
    """Returns the vertices, features and directions on the path to each sample's leaf.

    Other parameters: see `leaf_rows`.

    Parameters
    ----------
    features : (n_trees, 2**depth - 1) array of int32
        Columns of x.

    Returns
    -------
    TreePath
        `vertex`, `feature`, `right`, each (n_samples, n_trees, depth).

    Notes
    -----
    A leaf's bits are the directions, that of the root the most significant. At level d the vertex is (2**d -
    1) + (leaf >> (depth - d)). For a fern the bits are the path.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> path = hforest.hinge.tree_path(np.array([[2]], dtype=np.int32), np.array([[5, 6, 7]], dtype=np.int32))
    >>> path.vertex.tolist(), path.feature.tolist(), path.right.tolist()
    ([[[0, 2]]], [[[5, 7]]], [[[True, False]]])
    """
    check.same_device(leaf=leaf, features=features)
    depth = check.tree_depth("features", features)
    sizes: check.Sizes = {"2**depth - 1": features.shape[1]}
    check.array("leaf", leaf, check.INT32, ("n_samples", "n_trees"), sizes, last_first=True)
    check.array("features", features, check.INT32, ("n_trees", "2**depth - 1"), sizes)
    check.at_least_one(sizes, "n_trees")
    check.indices("leaf", leaf, 2**depth, "2**depth")
    xp = dispatch.array_module(leaf)
    level = xp.arange(depth, dtype=np.int32)
    above = leaf[:, :, None] >> (depth - level)
    vertex = (2**level - 1 + above).astype(np.int32)
    feature = features[xp.arange(features.shape[0])[None, :, None], vertex]
    right = ((leaf[:, :, None] >> (depth - 1 - level)) & 1).astype(bool)
    return TreePath(vertex, feature, right)
