"""Which columns of the data matter: greedy hinge trees, grown again and again on the better half."""

from collections.abc import Callable

import numpy as np

from .. import hinge
from ..core import check
from ..core.dispatch import Array, to_numpy


def split_gains(
    x: Array, y: Array, thresholds: Array, features: Array, n_classes: int | None = None
) -> np.ndarray:
    """How much the vertices that look at a column decrease the Gini impurity, summed over all trees.

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
    y : (n_samples,) array of int32
        Labels 0 to n_classes - 1.
    thresholds, features : (n_trees, 2**depth - 1) arrays, dtype of x and int32
        As `hinge.tree_traverse` takes them.
    n_classes : int, optional
        max(y) + 1 if left out.

    Returns
    -------
    gains : (n_features,) array of float64
        In samples: a vertex with n samples adds n times its decrease of impurity.

    Raises
    ------
    TypeError, ValueError, IndexError
        As `hinge.tree_traverse`; labels of another dtype or shape, or below 0 or too large.

    Notes
    -----
    L. Breiman, *Classification and Regression Trees*, 1984, on trees of any origin. Cost: a traversal, and
    n_classes numbers for each vertex.

    Examples
    --------
    >>> import numpy as np
    >>> from hforest.demo import split_gains
    >>> x = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.0]]); y = np.array([0, 0, 1, 1], np.int32)
    >>> split_gains(x, y, np.array([[1.5]]), np.array([[0]], dtype=np.int32))
    array([2., 0.])
    """
    leaf, _, _ = hinge.tree_traverse(x, thresholds, features)
    sizes: check.Sizes = {"n_samples": leaf.shape[0]}
    check.array("y", y, check.INT32, ("n_samples",), sizes)
    labels = to_numpy(y).astype(np.int64)
    if n_classes is None:
        n_classes = max(int(labels.max(initial=0)), 0) + 1
    n_classes = check.integer("n_classes", n_classes, 1)
    check.indices("y", y, n_classes, "n_classes")
    leaf, tests = to_numpy(leaf), to_numpy(features)
    n_trees, n_leaves = leaf.shape[1], features.shape[1] + 1
    gains = np.zeros(x.shape[1])
    for m in range(n_trees):
        at = leaf[:, m].astype(np.int64) * n_classes + labels
        counts = np.bincount(at, minlength=n_leaves * n_classes).reshape(n_leaves, n_classes)
        below = _purity(counts)
        while len(counts) > 1:
            counts = counts[0::2] + counts[1::2]
            here = _purity(counts)
            level = slice(len(counts) - 1, 2 * len(counts) - 1)
            np.add.at(gains, tests[m, level], below[0::2] + below[1::2] - here)
            below = here
    return gains


def _purity(counts: np.ndarray) -> np.ndarray:
    # n (1 - Gini) of each vertex: sum_k n_k**2 / n.
    return (counts.astype(np.float64) ** 2).sum(axis=1) / np.maximum(counts.sum(axis=1), 1)


def select_features(
    x: Array,
    y: Array,
    n_selected: int,
    *,
    n_trees: int = 30,
    depth: int = 6,
    rng: int | np.random.Generator | None = None,
    callback: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Columns that matter for a classification, also where no column does so alone.

    Greedy hinge trees are grown on the columns that are left, each vertex trying a third of them; the half
    with the smaller gains goes; and so on until `n_selected` are left.

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Training samples.
    y : (n_samples,) array of int32
        Labels 0 to n_classes - 1.
    n_selected : int
        Columns to keep, 1 to n_features.
    n_trees, depth : int
        Of the greedy trees of each round.
    rng : None, int or numpy.random.Generator
        The seed.
    callback : callable, optional
        `callback(n_left)` after each round; an exception raised there ends the search.

    Returns
    -------
    columns : (n_selected,) array of int64
        Ascending.

    Raises
    ------
    TypeError, ValueError, IndexError
        As `hinge.tree_greedy_init`; n_selected out of its range.

    Notes
    -----
    Recursive elimination (I. Guyon et al., *Gene selection for cancer classification using support vector
    machines*, 2002) with the gains of trees in place of a linear machine's weights. p1 §7 leaves sparse
    learnable features to future work: a network of inner products drowns where most columns are noise.
    Cost: that of `hinge.tree_greedy_init`, the first round more than all others together.

    Examples
    --------
    >>> import numpy as np
    >>> from hforest.demo import select_features
    >>> x = np.random.default_rng(0).normal(size=(1000, 12))
    >>> y = ((x[:, 3] > 0) ^ (x[:, 7] > 0)).astype(np.int32)  # neither says anything alone
    >>> select_features(x, y, 2, rng=0)
    array([3, 7])
    """
    check.floating("x", x)
    check.array("x", x, np.dtype(x.dtype), ("n_samples", "n_features"), {})
    n_selected = check.integer("n_selected", n_selected, 1, x.shape[1])
    rng = check.generator(rng)
    left = np.arange(x.shape[1])
    while len(left) > n_selected:
        part = x[:, left].copy()
        thresholds, features, _ = hinge.tree_greedy_init(
            part, y, n_trees, depth, n_candidates=max(1, len(left) // 3), rng=rng
        )
        gains = split_gains(part, y, thresholds, features)
        n_left = max(n_selected, len(left) // 2)
        left = np.sort(left[np.argsort(-gains, kind="stable")[:n_left]])
        if callback is not None:
            callback(len(left))
    return left
