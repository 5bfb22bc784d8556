"""Cost-complexity pruning (Breiman, Friedman, Olshen and Stone 1984, chapters 3 and 10)."""

from heapq import heappop, heappush

import numpy as np

from ..core import check as checks
from ..core import supervised
from ..core.aliases import ArrayLike, FloatArray
from .covers import Covers, covers_of, weights
from .forest import Forest, marked, trusted
from .refitting import reduced
from .walks import apply

_Group = tuple[float, float, int, int]
"""Splits that are removed together: minus their alpha, the sum of their gains, their number, the first."""


def pruning_alphas(
    forest: Forest, x: ArrayLike, *, sample_weight: ArrayLike | None = None, counts: ArrayLike | None = None
) -> FloatArray:
    """Returns the least `ccp_alpha` of `prune` that removes each split.

    Parameters: see `prune`.

    Returns
    -------
    (n_nodes,) array of float64
        At least the values of the splits above; 0 in a leaf. The distinct values of the splits of a tree are
        its path of effective alphas (scikit-learn's ``cost_complexity_pruning_path``).

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.arange(6.0)[:, None]
    >>> forest = hforest.grow(x, [0, 0, 1, 1, 1, 0], 1, bootstrap=False, rng=0)
    >>> hforest.tree.pruning_alphas(forest, x).round(3)
    array([0.25, 0.  , 0.25, 0.  , 0.  ])
    """
    forest, node = _covers(forest, x, sample_weight, counts)
    return _alphas(forest, node)


def prune(
    forest: Forest,
    ccp_alpha: float,
    x: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    counts: ArrayLike | None = None,
) -> Forest:
    """Returns a forest whose trees are pruned by their cost and complexity.

    Parameters
    ----------
    forest : Forest
        Any forest with gains.
    ccp_alpha : float
        Cost of a split, at least 0. A subtree remains if its splits decrease the impurity of the tree by more
        than `ccp_alpha` each. 0 removes nothing.
    x : (n_samples, n_features) array-like
        Samples that the forest was grown on.
    sample_weight : (n_samples,) or (n_trees, n_samples) array-like, optional
        Their weights, those of the growth times the weights of their classes; a row for each tree if these
        differ, as with ``class_weight="balanced_subsample"``.
    counts : (n_trees, n_samples) array-like of integers, optional
        In-bag counts; by default each tree has every sample once. A tree without weight has all samples.

    Returns
    -------
    Forest
        Forest of the same dtype. The values of a new leaf are the means of the leaves below it by the weights
        of their samples, which are the values that growth gives a leaf, up to rounding.

    Notes
    -----
    Splits are removed in the order of effective alphas (Breiman et al. 1984, section 3.3), as scikit-learn's
    `ccp_alpha` does: that of a node is the sum of the gains in its subtree by the number of splits there and
    the weight of the tree. Where extreme weights are scaled (`Forest.gain`), alphas are scaled with them.
    Cost: that of `apply`, a pass over the samples for each tree, and about 3 us per split.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(400, 3))
    >>> y = x[:, 0] + np.random.default_rng(1).normal(size=400) > 0
    >>> forest = hforest.grow(x, y, 10, bootstrap=False, rng=0)
    >>> pruned = hforest.tree.prune(forest, 0.01, x)
    >>> len(pruned.feature) < len(forest.feature) / 5
    True
    """
    least = checks.number("ccp_alpha", ccp_alpha, 0.0)
    forest, node = _covers(forest, x, sample_weight, counts)
    if least == 0:
        return forest
    kept = (forest.feature != -1) & (_alphas(forest, node) > least)
    mean = node.mean.astype(forest.value.dtype)
    return marked(reduced(forest, np.arange(len(kept)), kept, lambda leaves: {"value": mean[leaves]}))


def _covers(
    forest: Forest, x: ArrayLike, sample_weight: ArrayLike | None, counts: ArrayLike | None
) -> tuple[Forest, Covers]:
    """Returns the checked forest, and weights and means of its nodes."""
    checks.on_cpu(x=x, sample_weight=sample_weight, counts=counts)
    forest = trusted(forest, x)
    leaf = apply(forest, x)
    if sample_weight is not None:
        sample_weight = weights(sample_weight, leaf)
    if counts is not None:
        in_bag = supervised.in_bag_counts("counts", counts, leaf.shape[1], len(leaf))
        drawn = in_bag > 0 if sample_weight is None else in_bag * sample_weight > 0
        counts = np.where(drawn.any(axis=1, keepdims=True), in_bag, 1)
    return forest, covers_of("x", forest, leaf, sample_weight, counts)


def _alphas(forest: Forest, node: Covers) -> FloatArray:
    """Returns the effective alpha of each split, and 0 for leaves.

    A split is removed together with splits below it whose alphas would be greater: they are one group, whose
    alpha is the mean of its gains. So the groups of a subtree are those of both children, of which the root's
    group takes, greatest first, those of greater alphas than its own.
    """
    start = forest.tree_start
    tree = np.searchsorted(start, np.arange(len(forest.feature)), side="right") - 1
    gain = (forest.gain / node.weight[start[tree]]).tolist()
    left = np.where(forest.feature == -1, -1, start[tree] + forest.left).tolist()
    alpha, first_of = np.zeros(len(gain)), np.arange(len(gain))
    below: dict[int, list[_Group]] = {}
    for v in range(len(gain) - 1, -1, -1):
        if left[v] < 0:
            continue
        groups, others = sorted((below.pop(left[v] + side, []) for side in (0, 1)), key=len, reverse=True)
        for group in others:
            heappush(groups, group)
        total, n = gain[v], 1
        while groups and -groups[0][0] * n > total:
            _, of_group, size, first = heappop(groups)
            total, n = total + of_group, n + size
            first_of[first] = v
        heappush(groups, (-total / n, total, n, v))
        alpha[v] = total / n
        below[v] = groups
    for v in np.flatnonzero(first_of != np.arange(len(alpha))).tolist():  # first splits come before others
        alpha[v] = alpha[first_of[v]]
    return alpha
