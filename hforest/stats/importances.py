"""Importances of features without the bias of those that are made of the rows which grew the splits."""

import numpy as np

from .. import tree
from ..core import check, supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray
from ..tree import Forest
from ..tree.refitting import levels

_BY = ("mdi_oob", "ufi")


def oob_importance(
    forest: Forest,
    x: ArrayLike,
    y: ArrayLike,
    counts: ArrayLike,
    *,
    by: str = "mdi_oob",
    task: str = "classification",
    n_classes: int | None = None,
) -> FloatArray:
    """Returns importances of features from out-of-bag rows: about 0 for features that tell nothing.

    Parameters
    ----------
    forest : Forest
        Any forest, axis-aligned or oblique; its leaf values and gains are not read.
    x : (n_samples, n_features) array-like
        The rows that it was grown on; converted to the dtype of the forest.
    y : (n_samples,) array-like of labels, or (n_samples,) or (n_samples, n_outputs) array-like of targets
        Labels 0 to n_classes - 1 of any integer or bool dtype, or targets of any real dtype in a regression,
        of absolute value at most 1e100.
    counts : (n_trees, n_samples) array-like of integers
        The in-bag counts that it was grown on: those of `hforest.growth.bootstrap_counts`, or
        ``counts.structure`` of `honest_counts`.
    by : "mdi_oob" or "ufi"
        How splits are judged, see Notes.
    task : "classification" or "regression"
        Whether y holds labels or targets.
    n_classes : int, optional
        Number of classes, at most 2**20. By default the largest label plus 1, and every class must occur.
        Classification only.

    Returns
    -------
    (n_features,) array of float64
        Means over trees, not scaled to sum to 1; below 0 where splits happen to hurt. Decreases of the Gini
        impurity, or of the mean squared error summed over outputs.

    Raises
    ------
    TypeError, ValueError, IndexError
        As for `hforest.tree.apply`; CuPy arrays, counts of another shape, labels or targets out of range.

    Notes
    -----
    `hforest.tree.importance` by gain judges a split by the rows that chose it, which favours features of many
    values and deep nodes. With the mean m(t) of indicators of classes, or of targets, over the in-bag rows of
    node t, and the sum s(t) of them over its out-of-bag rows:

    "mdi_oob" (Li, Wang, Basu, Kumbier and Yu 2019): a split adds ``(m(left) s(left) + m(right)
    s(right) - m(t) s(t)) / n_oob`` to its feature, with n_oob out-of-bag rows in the tree.

    Of targets their mean over all rows is subtracted first: a departure, without which a constant that is
    added to all of them would change importances.

    "ufi" (Zhou and Hooker 2021): a split adds ``w(t) H(t) - w(left) H(left) - w(right) H(right)``, where w is
    the share of the in-bag rows, and H half the sum of the in-bag impurity and of the mean squared distance
    of out-of-bag rows to m: of classes ``1 - sum_k p[k] q[k]`` of in-bag and out-of-bag shares. A split with
    a side that has no out-of-bag row adds nothing.

    A projection adds to each of its features whose weight is not 0. A tree without out-of-bag rows is left
    out. Cost: that of `hforest.tree.apply`, and a pass over rows and nodes for each class or output.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(300, 3)); y = x[:, 1] > 0
    >>> counts = hforest.growth.bootstrap_counts(300, 50, rng=0)
    >>> forest = hforest.classic.grow(x, y, 50, bootstrap=counts, rng=0)
    >>> gained = hforest.stats.oob_importance(forest, x, y, counts)
    >>> int(gained.argmax()), bool(abs(gained[[0, 2]]).max() < 0.05 * gained[1])
    (1, True)
    """
    check.choice("by", by, _BY)
    check.on_cpu(x=x, y=y, counts=counts)
    tree.check(forest)
    check.on_cpu(**{"forest.feature": forest.feature})
    leaf = tree.apply(forest, x)
    n, n_trees = leaf.shape
    goal = supervised.target(y, n, task, n_classes)
    often = supervised.in_bag_counts("counts", counts, n_trees, n)
    if goal.targets is None:
        values: FloatArray = np.eye(goal.n_outputs)[goal.labels]
    else:
        values = goal.targets - goal.targets.mean(axis=0)
    inside = _node_sums(forest, leaf, often, values)
    outside = _node_sums(forest, leaf, (often == 0).astype(np.int64), values)
    gain = (_mdi_oob if by == "mdi_oob" else _ufi)(forest, inside, outside)
    return _of_features(forest, gain, often)


def _node_sums(forest: Forest, leaf: IntArray, often: IntArray, values: FloatArray) -> FloatArray:
    """(n_nodes, 2 + n_outputs): rows of each node, and sums of their squared lengths and of their values."""
    of_row = np.column_stack([np.ones(len(values)), (values**2).sum(axis=1), values])
    with check.memory("forest", "sums of nodes", 8 * len(forest.feature) * of_row.shape[1]):
        sums = np.zeros((len(forest.feature), of_row.shape[1]))
    for m in range(leaf.shape[1]):
        some = np.flatnonzero(often[m])
        node = int(forest.tree_start[m]) + leaf[some, m]
        np.add.at(sums, node, often[m, some, None] * of_row[some])
    child = _children(forest)
    for nodes in reversed(levels(forest)):
        at = nodes[forest.feature[nodes] != -1]
        sums[at] = sums[child[at]] + sums[child[at] + 1]
    return sums


def _children(forest: Forest) -> IntArray:
    """The left child of each split, numbered over all trees."""
    children: IntArray = np.repeat(forest.tree_start[:-1], np.diff(forest.tree_start)) + forest.left
    return children


def _means(sums: FloatArray) -> FloatArray:
    """Sums divided by the rows of their nodes; 0 in nodes without rows."""
    means: FloatArray = np.divide(sums, sums[:, :1], out=np.zeros_like(sums), where=sums[:, :1] > 0)
    return means


def _decrease(forest: Forest, of_nodes: FloatArray) -> FloatArray:
    """(n_nodes,): a number of each split minus those of its children; 0 in leaves."""
    gain = np.zeros(len(forest.feature))
    at = np.flatnonzero(forest.feature != -1)
    child = _children(forest)[at]
    gain[at] = of_nodes[at] - of_nodes[child] - of_nodes[child + 1]
    return gain


def _roots(forest: Forest, sums: FloatArray) -> FloatArray:
    """(n_nodes,): rows of the whole tree of each node."""
    rows: FloatArray = np.repeat(sums[forest.tree_start[:-1], 0], np.diff(forest.tree_start))
    return rows


def _mdi_oob(forest: Forest, inside: FloatArray, outside: FloatArray) -> FloatArray:
    product = (_means(inside)[:, 2:] * outside[:, 2:]).sum(axis=1)
    gain: FloatArray = -_decrease(forest, product) / np.maximum(_roots(forest, outside), 1)
    return gain


def _ufi(forest: Forest, inside: FloatArray, outside: FloatArray) -> FloatArray:
    within, beyond = _means(inside), _means(outside)
    impurity = (within[:, 1] + beyond[:, 1]) / 2 - (within[:, 2:] * beyond[:, 2:]).sum(axis=1)
    gain = _decrease(forest, inside[:, 0] / np.maximum(_roots(forest, inside), 1) * impurity)
    at = np.flatnonzero(forest.feature != -1)
    child = _children(forest)[at]
    gain[at[(outside[child, 0] == 0) | (outside[child + 1, 0] == 0)]] = 0
    return gain


def _of_features(forest: Forest, gain: FloatArray, often: IntArray) -> FloatArray:
    """Sums over the splits of each feature, averaged over the trees that have out-of-bag rows."""
    n_features, judged = int(forest.n_features), (often == 0).any(axis=1)
    check.require(
        judged.any(), "counts", "a tree with out-of-bag rows", "none", "pass counts with zeros in some rows"
    )
    gain = np.where(np.repeat(judged, np.diff(forest.tree_start)), gain, 0.0)
    node = np.flatnonzero(forest.feature >= 0)
    total: FloatArray = np.bincount(forest.feature[node], gain[node], n_features)
    if forest.indptr.size:
        of_entry = np.repeat(np.where(forest.feature == -2, gain, 0.0), np.diff(forest.indptr))
        used = forest.data != 0
        total = total + np.bincount(forest.indices[used], of_entry[used], n_features)
    return total / judged.sum()
