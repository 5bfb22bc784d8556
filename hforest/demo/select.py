"""Selection of columns: greedy hinge trees are grown repeatedly, each time on the better half of columns."""

import numpy as np

from .. import hinge
from ..core import check, supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray, Progress, Rng
from ..core.dispatch import to_numpy
from ..core.progress import check_progress, reporting


def split_gains(
    x: ArrayLike, y: ArrayLike, thresholds: FloatArray, features: IntArray, *, n_classes: int | None = None
) -> np.ndarray:
    """Returns, for each column, the total decrease of Gini impurity by the vertices that compare it.

    Parameters
    ----------
    x : (n_samples, n_features) array of real numbers
        Converted to the dtype of the thresholds.
    y : (n_samples,) array of integers or bools
        Labels, 0 to n_classes - 1.
    thresholds, features : (n_trees, 2**depth - 1) arrays of float32 or float64, and of int32
        As `hinge.traverse` takes them.

    Returns
    -------
    gains : (n_features,) array of float64
        In samples: a vertex with n samples adds n times its decrease of impurity.

    Notes
    -----
    The mean decrease of impurity of L. Breiman, J. Friedman, R. Olshen and C. Stone, *Classification and
    Regression Trees*, 1984, for trees of any origin. Cost: a traversal, and n_classes numbers for each
    vertex.

    Examples
    --------
    >>> import numpy as np
    >>> from hforest.demo.select import split_gains
    >>> x, y = np.array([[0, 1], [1, 0], [2, 1], [3, 0]]), np.array([0, 0, 1, 1])
    >>> split_gains(x, y, np.array([[1.5]]), np.array([[0]], dtype=np.int32))
    array([2., 0.])
    """
    check.same_device(thresholds=thresholds, features=features)
    x = supervised.matrix("x", x, check.floating("thresholds", thresholds))
    labels, n_classes = supervised.labels("y", y, len(x), n_classes)
    leaf = hinge.traverse(x, thresholds, features).leaf
    return _gains(leaf, labels, features, x.shape[1], n_classes)


def _gains(
    leaf: IntArray, labels: IntArray, features: IntArray, n_features: int, n_classes: int
) -> np.ndarray:
    # Traversed samples: leaf (n_samples, n_trees), labels (n_samples,), features (n_trees, n_vertices).
    leaf, labels, features = to_numpy(leaf), to_numpy(labels), to_numpy(features)
    n_trees, n_leaves = leaf.shape[1], features.shape[1] + 1
    gains = np.zeros(n_features)
    for m in range(n_trees):
        at = leaf[:, m].astype(np.int64) * n_classes + labels
        counts = np.bincount(at, minlength=n_leaves * n_classes).reshape(n_leaves, n_classes)
        children = _score(counts)
        while len(counts) > 1:
            counts = counts[0::2] + counts[1::2]
            parents = _score(counts)
            level = slice(len(counts) - 1, 2 * len(counts) - 1)
            np.add.at(gains, features[m, level], children[0::2] + children[1::2] - parents)
            children = parents
    return gains


def _score(counts: np.ndarray) -> np.ndarray:
    # n (1 - Gini) of each vertex with class counts n_k: sum_k n_k**2 / n.
    return (counts.astype(np.float64) ** 2).sum(axis=1) / np.maximum(counts.sum(axis=1), 1)


def select_features(
    x: ArrayLike,
    y: ArrayLike,
    n_selected: int,
    *,
    n_trees: int = 30,
    depth: int = 6,
    progress: Progress = None,
    rng: Rng = None,
) -> np.ndarray:
    """Returns columns that are relevant for a classification, including those that are so only jointly.

    Greedy hinge trees are grown on the remaining columns, a third of which are sampled at each vertex; the
    half of the columns with the smaller gains is dropped; and so on until `n_selected` remain.

    Parameters
    ----------
    x : (n_samples, n_features) array of real numbers
        Training samples. float64 and integers of 32 and more bits are computed in float64, others in float32.
    y : (n_samples,) array of integers or bools
        Labels 0 to n_classes - 1, each occurring.
    n_selected : int
        Number of columns to keep, 1 to n_features.
    n_trees, depth : int
        Of the greedy trees of each round.

    Returns
    -------
    columns : (n_selected,) array of int64
        Ascending.

    Notes
    -----
    Recursive elimination (I. Guyon et al., *Gene selection for cancer classification using support vector
    machines*, 2002) with the gains of trees in place of a linear machine's weights. Lay et al. 2018, section
    7, leave sparse learnable features to future work; the network of inner products fails if most columns are
    noise. Cost: that of `hinge.greedy_init`; the first round costs more than all others together.

    Examples
    --------
    >>> import numpy as np
    >>> from hforest.demo import select_features
    >>> x = np.random.default_rng(0).normal(size=(1000, 12))
    >>> y = (x[:, 3] > 0) ^ (x[:, 7] > 0)  # depends on neither column alone
    >>> select_features(x, y, 2, rng=0)
    array([3, 7])
    """
    check_progress(progress)
    x = supervised.samples("x", x)
    labels, n_classes = supervised.labels("y", y, len(x))
    n_selected = check.integer("n_selected", n_selected, 1, x.shape[1])
    n_trees = check.integer("n_trees", n_trees, 1)
    depth = check.integer("depth", depth, 1, check.MAX_DEPTH)
    rng = check.generator(rng)
    columns = np.arange(x.shape[1])
    sizes = _sizes(x.shape[1], n_selected)
    with reporting(progress, len(sizes), "round") as report:
        for i, size in enumerate(sizes):
            part = x[:, columns].copy()
            thresholds, features, _ = hinge.greedy_init(
                part, labels, n_trees, depth, max_features=max(1, len(columns) // 3), rng=rng
            )
            leaf = hinge.traverse(part, thresholds, features).leaf
            gains = _gains(leaf, labels, features, len(columns), n_classes)
            columns = np.sort(columns[np.argsort(-gains, kind="stable")[:size]])
            if not report(i + 1):
                break
    return columns


def _sizes(n: int, n_selected: int) -> list[int]:
    # Columns that remain after each round.
    sizes = []
    while n > n_selected:
        n = max(n_selected, n // 2)
        sizes.append(n)
    return sizes
