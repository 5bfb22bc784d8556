"""Leaf values from samples that did not grow the splits: counts of classes, and refitted forests."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..core import check as checks
from ..core import several, supervised
from ..core.aliases import Array, ArrayLike, Classes, Empty, FloatArray, IntArray, Task
from .forest import Forest, levels, marked, of_leaves, trusted
from .walks import apply

_EMPTY = ("prune", "abstain", "uniform", "prior")
_ENTRIES = 1 << 20
"""Number of samples, over several trees, that are summed at a time."""


def _leaves_and_counts(
    forest: Forest, x: ArrayLike, counts: ArrayLike | None
) -> tuple[Forest, IntArray, IntArray | None]:
    """Returns the forest, leaves (n_samples, n_trees) and counts of samples in each tree, after checks."""
    forest = trusted(forest, x)
    leaf = apply(forest, x)
    n, n_trees = leaf.shape
    checks.require(1 <= n <= checks.MAX_COUNT, "x", "1 to 2**31 - 1 samples", n, "pass at least one sample")
    in_bag = None if counts is None else supervised.in_bag_counts("counts", counts, n_trees, n)
    return forest, leaf, in_bag


def value_rows(forest: Forest, leaf: IntArray, tree: IntArray) -> IntArray:
    """Returns the rows of `value` of leaves, which are numbered within their trees."""
    root = forest.tree_start[tree]
    return (root + tree) // 2 + forest.left[root + leaf]


def _in_trees(
    forest: Forest, leaf: IntArray, in_bag: IntArray | None
) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """Yields for some trees at a time their samples, the rows of `value`, and the counts of samples."""
    n, n_trees = leaf.shape
    step = max(1, _ENTRIES // n)
    for first in range(0, n_trees, step):
        trees = np.arange(first, min(first + step, n_trees))
        if in_bag is None:
            tree, some = np.repeat(trees, n), np.tile(np.arange(n), len(trees))
            often = np.ones(len(some), np.int64)
        else:
            at, some = np.nonzero(in_bag[trees])
            tree, often = trees[at], in_bag[trees[at], some].astype(np.int64)
        yield some, value_rows(forest, leaf[some, tree], tree), often


def class_counts(
    forest: Forest,
    leaf: IntArray,
    in_bag: IntArray | None,
    y: IntArray,
    n_classes: int,
    weight: FloatArray | None = None,
) -> Array:
    """Returns the same as `leaf_counts`, for checked leaves and labels; with weights their sums."""
    n_leaves = len(forest.value)
    with checks.memory("n_classes", "counts", 8 * n_leaves * n_classes):
        result = np.zeros((n_leaves, n_classes), np.int64 if weight is None else np.float64)
    flat = result.reshape(-1)
    for some, rows, often in _in_trees(forest, leaf, in_bag):
        np.add.at(flat, rows * n_classes + y[some], often if weight is None else often * weight[some])
    return result


def leaf_counts(
    forest: Forest,
    x: ArrayLike,
    y: ArrayLike,
    *,
    counts: ArrayLike | None = None,
    n_classes: int | None = None,
) -> IntArray:
    """Returns the number of samples of each class in the leaves of a forest.

    Parameters
    ----------
    forest : Forest
        Any forest.
    x : (n_samples, n_features) array-like
        Samples, at least one; converted to the dtype of the forest.
    y : (n_samples,) array-like of labels
        Labels 0 to n_classes - 1 of any integer or bool dtype.
    counts : (n_trees, n_samples) array-like of integers, optional
        How often each tree holds each sample: in-bag counts, or counts of samples that did not grow its
        splits. By default each tree holds every sample once.

    Returns
    -------
    (n_leaves, n_classes) array of int64
        Row r has the counts of the leaves with row r of ``forest.value``.

    Notes
    -----
    Counts are exact. Cost: that of `apply`, and a pass over the samples for each tree.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.grow(x, [0, 1, 1], 1, bootstrap=False, rng=0)
    >>> hforest.tree.leaf_counts(forest, [[0.1], [0.2], [1.6], [7.0]], [0, 1, 1, 1])
    array([[1, 1],
           [0, 2]])
    """
    checks.on_cpu(x=x, y=y, counts=counts)
    forest, leaf, in_bag = _leaves_and_counts(forest, x, counts)
    labels, n_classes = supervised.labels("y", y, len(leaf), n_classes)
    return class_counts(forest, leaf, in_bag, labels, n_classes)


def refit(
    forest: Forest,
    x: ArrayLike,
    y: ArrayLike,
    *,
    counts: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    task: Task = "classification",
    n_classes: Classes = None,
    empty: Empty = "prune",
) -> Forest:
    """Returns a forest with the splits of another one, and leaf values from other samples.

    Other parameters: see `leaf_counts`.

    Parameters
    ----------
    y : array-like of labels or targets
        As `hforest.grow` takes them.
    sample_weight : (n_samples,) array-like, optional
        Weights of the samples, 0 to 1e100, not all 0. A sample of weight 0 does not count.
    empty : "prune", "abstain", "uniform" or "prior"
        Treatment of leaves without samples. "prune" replaces a split with an empty side by its other child.
        "prior" gives such leaves the shares of the classes, or mean targets, of all samples. For
        classification only: "abstain" gives them the value 0 for every class, so that the tree does not vote
        there, and "uniform" equal shares.

    Returns
    -------
    Forest
        Forest of the same dtype; leaf values are shares of the classes, or mean targets. With "abstain" the
        rows of `predict` sum to the share of the trees that vote: divide by their sum.

    Raises
    ------
    ValueError
        A tree that holds no sample.

    Notes
    -----
    Honest trees: splits from some samples, leaf values from others (Denil, Matheson and de Freitas 2014;
    Wager and Athey 2018). Pruning is that of Athey, Tibshirani and Wager 2019 in their package grf. `gain`
    still is that of the samples that grew the splits. Leaves that share a row of `value` pool their samples.
    Weights and targets are summed in float64 in the order of the samples. Cost: that of `apply`, and a pass
    over the samples for each tree.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(400, 3))
    >>> y = x[:, 0] > 0
    >>> forest = hforest.grow(x[:200], y[:200], 20, rng=0)
    >>> honest = hforest.tree.refit(forest, x[200:], y[200:])
    >>> bool((hforest.tree.predict(honest, x).argmax(axis=1) == y).mean() > 0.95)
    True
    """
    checks.choice("empty", empty, _EMPTY)
    checks.on_cpu(x=x, y=y, counts=counts)
    forest, leaf, in_bag = _leaves_and_counts(forest, x, counts)
    dtype = forest.threshold.dtype
    most = min(supervised.MAX_WEIGHT, float(np.finfo(dtype).max))
    target = several.target_or_several(y, len(leaf), task, n_classes, most)
    if task == "regression" and empty in ("abstain", "uniform"):
        raise ValueError(
            f'empty: expected "prune" or "prior" with task="regression", got "{empty}", which defines no '
            "mean; leave it out"
        )
    weight = None
    if sample_weight is not None:
        weight = supervised.sample_weight(sample_weight, target.y)
        weight, _ = supervised.scaled_weight(weight, target.targets, weight.dtype, len(leaf))
    drawn = None if in_bag is None else (in_bag if weight is None else in_bag[:, weight > 0]).any(axis=1)
    if drawn is not None and not drawn.all():
        raise ValueError(
            "counts: expected at least one sample in each row, got only zeros in row "
            f"{int((~drawn).argmax())}; pass at least one sample for each tree, of weight above 0"
        )
    if target.labels is not None:
        of_class = class_counts(forest, leaf, in_bag, target.labels, target.n_outputs, weight)
        total, sums = of_class.sum(axis=1), of_class.astype(np.float64)
    else:
        total, sums = target_sums(forest, leaf, in_bag, target.targets, weight)
    value = np.divide(sums, total[:, None], out=np.zeros_like(sums), where=total[:, None] > 0)
    if empty in ("uniform", "prior"):
        value[total <= 0] = _uniform(target) if empty == "uniform" else prior(target, weight)
    start = forest.class_start[:0] if target.class_start is None else target.class_start
    refitted = forest._replace(value=value.astype(dtype), class_start=start)
    if empty == "prune" and not bool((total > 0).all()):
        refitted = _pruned(refitted, total > 0)
    return marked(refitted)


def _uniform(target: supervised.Target) -> FloatArray:
    """Returns (n_outputs,) equal shares of the classes of each label."""
    sizes = [target.n_outputs] if target.class_start is None else np.diff(target.class_start)
    return np.repeat(1 / np.asarray(sizes, float), sizes)


def prior(target: supervised.Target, weight: FloatArray | None) -> FloatArray:
    """Returns (n_outputs,) the shares of the classes, or mean targets, of all samples."""
    if target.labels is not None:
        of_class = np.bincount(target.labels, weight, target.n_outputs)
        return np.asarray(of_class / of_class.sum())
    return np.average(np.asarray(target.targets), axis=0, weights=weight)


def target_sums(
    forest: Forest, leaf: IntArray, in_bag: IntArray | None, targets: Any, weight: FloatArray | None = None
) -> tuple[Array, FloatArray]:
    """Returns the number of samples of each row of `value`, and (n_leaves, n_outputs) sums of targets.

    With weights of samples it is their sum, and targets are multiplied by them.
    """
    total = np.zeros(len(forest.value), np.int64 if weight is None else np.float64)
    sums = np.zeros((len(total), targets.shape[1]))
    for some, rows, often in _in_trees(forest, leaf, in_bag):
        amount = often if weight is None else often * weight[some]
        np.add.at(total, rows, amount)
        np.add.at(sums, rows, amount[:, None] * targets[some])
    return total, sums


def _entries(indptr: IntArray, nodes: IntArray, split: np.ndarray) -> tuple[IntArray, IntArray]:
    """Returns new row pointers of some rows of a CSR array, and the numbers of the entries of splits."""
    sizes = (indptr[nodes + 1] - indptr[nodes]) * split
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    return starts, np.arange(starts[-1]) + np.repeat(indptr[nodes] - starts[:-1], sizes)


def _pruned(forest: Forest, has_samples: np.ndarray) -> Forest:
    """Returns the forest without splits that have an empty side.

    has_samples: for each row of `value`, whether a sample reaches it.
    """
    n_trees = len(forest.tree_start) - 1
    tree = np.repeat(np.arange(n_trees), np.diff(forest.tree_start))
    root = forest.tree_start[tree]
    is_split = forest.feature != -1
    child = root + forest.left  # for splits, the left child
    full = np.zeros(len(tree), bool)
    full[~is_split] = has_samples[((root + tree) // 2 + forest.left)[~is_split]]
    place = np.arange(len(tree))  # the node that replaces a node
    for at in reversed(levels(forest)):
        left, right = full[child[at]], full[child[at] + 1]
        full[at] = left | right
        place[at] = np.where(left & right, at, np.where(left, place[child[at]], place[child[at] + 1]))
    rows = (root + tree) // 2 + forest.left
    return reduced(forest, place, is_split, lambda leaves: of_leaves(forest, rows[leaves]))


def reduced(
    forest: Forest, place: IntArray, is_split: np.ndarray, values: Callable[[IntArray], dict[str, FloatArray]]
) -> Forest:
    """Returns a forest with some of the nodes of another one.

    place: (n_nodes,) the node that replaces each node. is_split: (n_nodes,) whether a node that remains is a
    split; else it is a leaf. values: returns the arrays of `LEAF_FIELDS` for nodes that become leaves.
    """
    n_trees = len(forest.tree_start) - 1
    tree = np.repeat(np.arange(n_trees), np.diff(forest.tree_start))
    child = forest.tree_start[tree] + forest.left
    # Nodes of each depth again, from the remaining roots.
    level, seen = place[forest.tree_start[:-1]], []
    while level.size:
        seen.append(level)
        left = child[level[is_split[level]]]
        level = place[np.stack([left, left + 1], axis=1).ravel()]
    nodes = np.concatenate(seen)
    order = np.argsort(tree[nodes], kind="stable")  # tree after tree, breadth-first within a tree
    nodes = nodes[order]
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(tree[nodes], minlength=n_trees))])
    first, split = start[tree[nodes]], is_split[nodes]
    # Breadth-first: the children of the k-th split of a tree are its nodes 2k + 1 and 2k + 2.
    nth = np.cumsum(split) - split
    nth -= nth[first]
    leaf_nth = np.arange(len(nodes)) - first - nth
    entries: Any = slice(None)
    indptr = forest.indptr
    if indptr.size:
        indptr, entries = _entries(indptr, nodes, split)
    bits: Any = slice(None)
    sets = forest.category_indptr
    if sets.size:
        sets, bits = _entries(sets, nodes, split)
    return forest._replace(
        tree_start=start,
        feature=np.where(split, forest.feature[nodes], -1).astype(np.int32),
        threshold=np.where(split, forest.threshold[nodes], 0).astype(forest.threshold.dtype),
        left=np.where(split, 2 * nth + 1, leaf_nth).astype(np.int32),
        **values(nodes[~split]),
        gain=np.where(split, forest.gain[nodes], 0).astype(forest.gain.dtype),
        indptr=indptr,
        indices=forest.indices[entries],
        data=forest.data[entries],
        default_left=forest.default_left[nodes] * split if forest.default_left.size else forest.default_left,
        category_indptr=sets,
        category_bits=forest.category_bits[bits],
    )
