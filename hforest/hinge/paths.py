"""Touched rows, samples and likelihoods of leaves, and decisions on a path, all from routes."""

from typing import NamedTuple

import numpy as np

from ..core import check, dispatch, series, supervised
from ..core.aliases import Array, ArrayLike, DType, FloatArray, IntArray
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


def bayes_weights(
    leaf: IntArray,
    y: ArrayLike,
    n_leaves: int,
    *,
    prior: float = 1.0,
    n_classes: int | None = None,
    dtype: DType = np.float32,
) -> FloatArray:
    """Returns leaf weights log P(leaf | class), whose sum over ferns is the semi-naive Bayesian score.

    P(x | c) = product over m of P(leaf_m(x) | c): ferns are taken as independent given the class, the
    decisions of one fern are not (M. Özuysal, M. Calonder, V. Lepetit, P. Fua, *Fast Keypoint Recognition
    Using Random Ferns*, 2010). Of the n_c samples of class c, n_mlc in leaf l of fern m, and with a uniform
    Dirichlet prior of u on the L leaves, ::

        P(leaf_m = l | c) = (n_mlc + u) / (n_c + u L)

    Other parameters: see `leaf_rows`.

    Parameters
    ----------
    y : (n_samples,) array of labels
        Integers or bools.
    prior : float
        u, in samples, above 0. Without it a leaf that no sample of a class reaches would exclude the class.
    n_classes : int, optional
        By default the largest label plus 1; each class must occur then.

    Returns
    -------
    weights : (n_trees, n_leaves, n_classes) array of dtype

    Notes
    -----
    ``leaf_outputs(leaf, ones, weights, aggregate="sum")`` with margins of 1 is the score of equally frequent
    classes; add the logarithms of their shares for others. Leaves of trees serve as well. As a start of
    training the weights are those of a fern whose margins are 1. Lay et al. 2018, sections 2 and 3, leave
    this aggregation to the user. Cost: that of `leaf_counts` with n_leaves * n_classes leaves, and a
    logarithm per weight, on the host.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> leaf = np.array([[0], [0], [1], [1]], np.int32)
    >>> np.exp(hforest.hinge.bayes_weights(leaf, [0, 0, 0, 1], 2)).round(3)
    array([[[0.6  , 0.333],
            [0.4  , 0.667]]], dtype=float32)
    """
    leaf = _checked_leaf(leaf, n_leaves)
    labels, n_classes = supervised.labels("y", y, len(leaf), n_classes)
    check.same_device(leaf=leaf, y=labels)
    prior = check.number("prior", prior, 0.0, open_low=True)
    dtype, n = check.float_dtype(dtype), int(n_leaves) * n_classes
    check.require(
        n <= check.MAX_COUNT, "n_leaves", f"at most {check.MAX_COUNT} leaves times n_classes = {n_classes}",
        n_leaves, "choose a smaller depth",
    )  # fmt: skip
    joint = np.int32(n_classes) * leaf + labels[:, None]
    with check.memory("n_leaves", "weights", 24 * leaf.shape[1] * n):
        counts = dispatch.to_numpy(leaf_counts(joint, n)).reshape(-1, int(n_leaves), n_classes)
        weights = series.log((counts + prior) / (counts.sum(axis=1, keepdims=True) + prior * int(n_leaves)))
        found: FloatArray = dispatch.array_module(leaf).asarray(weights.astype(dtype))
    return found


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
