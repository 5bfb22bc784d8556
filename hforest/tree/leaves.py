"""Quantile regression forests: targets in the leaves, and their quantiles."""

from typing import Literal, NamedTuple

import numpy as np

from ..core import check as checks
from ..core import dispatch, supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray
from .forest import PACKAGE, Forest, trusted
from .walks import apply

_FLOAT64 = np.dtype(np.float64)
_METHODS = ("inverted_cdf", "linear")
_MAX_TOTAL = 2.0**400
"""Bound of a weight in a leaf, so that sums stay in the range of float64."""


class LeafTargets(NamedTuple):
    """The training targets in each leaf of a forest; n_nodes counts the nodes of all trees."""

    y: FloatArray
    """(n_outputs, n_train) float64: targets of each output in ascending order."""
    indptr: IntArray
    """(n_nodes + 1,) int64: samples of node v are entries indptr[v] to indptr[v + 1] - 1."""
    rank: IntArray
    """(n_outputs, n_entries) int32: place of the target of a sample in its row of `y`."""
    weight: FloatArray
    """(n_entries,) float64: weight of a sample in its leaf, above 0; (0,) if all are 1."""


def grouped(forest: Forest, leaf: IntArray) -> tuple[IntArray, IntArray]:
    """Returns where the samples of each node begin, and the samples in ascending order, without leaf -1."""
    indptr = np.empty(len(forest.feature) + 1, np.int64)
    member = np.empty(int(np.count_nonzero(leaf >= 0)), np.int32)
    dispatch.backend(PACKAGE, leaf).group(leaf, forest.tree_start, indptr, member)
    return indptr, member


def leaf_targets(
    forest: Forest,
    x: ArrayLike,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    counts: ArrayLike | None = None,
) -> LeafTargets:
    """Returns the training targets in each leaf of a forest, from which `quantiles` predicts.

    Parameters
    ----------
    forest : Forest
        Any forest.
    x : (n_train, n_features) array_like
        Samples, at least one; preferably those that the forest was grown on.
    y : (n_train,) or (n_train, n_outputs) array_like
        Targets of any real dtype.
    sample_weight : (n_train,) array_like, optional
        Weights, not all 0; by default 1. Samples of weight 0 are left out.
    counts : (n_trees, n_train) array_like of integers, optional
        How often each tree holds each sample: in-bag counts such as those of
        `hforest.growth.bootstrap_counts`. By default each tree holds every sample once.

    Returns
    -------
    LeafTargets
        NumPy arrays.

    Notes
    -----
    Meinshausen 2006, section 3: leaves hold all samples, not only their mean. By default, as there, every
    tree holds all samples, also those that it did not draw; with in-bag counts it holds those that it was
    grown on. Cost: that of `apply` and a sort of the targets. Memory: 4 bytes (12 with weights or counts) per
    sample and tree, and 8 per node.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.grow(x, [5.0, 7.0, 8.0], 1, bootstrap=False, max_depth=1, task="regression")
    >>> targets = hforest.tree.leaf_targets(forest, x, [5.0, 7.0, 8.0])
    >>> targets.indptr, targets.rank
    (array([0, 0, 1, 3]), array([[0, 1, 2]], dtype=int32))
    """
    checks.on_cpu(x=x, y=y, sample_weight=sample_weight, counts=counts)
    forest = trusted(forest, x)
    leaf = apply(forest, x)
    n, n_trees = leaf.shape
    if not 1 <= n <= checks.MAX_COUNT:
        raise ValueError(
            f"x: expected 1 to 2**31 - 1 samples, got {n}; pass samples that the forest was grown on"
        )
    goals = supervised.targets("y", y, n)
    weight = supervised.sample_weight(sample_weight, goals)
    drawn = None if counts is None else supervised.in_bag_counts("counts", counts, n_trees, n)
    plain = drawn is None and bool((weight == 1).all())
    if not plain:
        is_counted = weight[:, None] > 0 if drawn is None else (weight[:, None] > 0) & (drawn.T > 0)
        leaf = np.where(is_counted, leaf, np.int32(-1))
    indptr, sample = grouped(forest, leaf)
    order = np.argsort(goals.T, axis=1, kind="stable")
    place = np.empty(order.shape, np.int32)
    np.put_along_axis(place, order, np.arange(n, dtype=np.int32)[None], axis=1)
    in_leaf = np.zeros(0)
    if not plain:
        in_leaf = weight[sample]
        if drawn is not None:
            nodes = indptr[forest.tree_start]
            for m in range(n_trees):
                part = slice(int(nodes[m]), int(nodes[m + 1]))
                in_leaf[part] *= drawn[m][sample[part]]
    ascending = np.ascontiguousarray(np.take_along_axis(goals.T, order, axis=1))
    return LeafTargets(ascending, indptr, np.take(place, sample, axis=1), in_leaf)


def quantiles(
    forest: Forest,
    targets: LeafTargets,
    x: ArrayLike,
    levels: ArrayLike,
    *,
    method: Literal["inverted_cdf", "linear"] = "inverted_cdf",
    counts: ArrayLike | None = None,
) -> FloatArray:
    """Returns quantiles of the target of each sample, by a quantile regression forest.

    Other parameters: see `apply`.

    Parameters
    ----------
    forest : Forest
        The forest that `targets` belong to.
    targets : LeafTargets
        Result of `leaf_targets`.
    levels : (n_levels,) array_like
        Levels of the quantiles, 0 to 1, in any order: 0.5 for the median.
    method : "inverted_cdf" or "linear"
        How quantiles are computed from the targets in the leaves, see Notes; "linear" needs whole weights.
    counts : (n_trees, n_samples) array_like of integers, optional
        How often each tree drew each sample of x: quantiles of a sample then come only from trees that did
        not draw it (out-of-bag quantiles). By default they come from all trees.

    Returns
    -------
    (n_samples, n_outputs, n_levels) array of float64
        Quantiles; NaN for a sample whose leaves hold no training sample.

    Notes
    -----
    "inverted_cdf" (Meinshausen 2006, eqs. 4 to 6): in a tree, the weight of a training sample is its weight
    in the leaf of x, divided by that of the whole leaf. F(y | x) is the mean over trees of the weight of
    samples with target ``<= y``; a quantile is the least target with ``F(y | x) >= level``. Trees whose leaf
    holds no sample are left out.

    "linear": the samples of all leaves are pooled, so leaves of more samples count more. A quantile is that
    of `numpy.quantile` (linear interpolation, type 7) of the pooled targets, each repeated by its weight.
    With in-bag counts in `leaf_targets` results equal those of the package quantile-forest with
    ``max_samples_leaf=None``, up to rounding.

    Weights are added in float64 in the order of the trees; results are bit-identical for every number of
    threads. Cost: that of `apply`, a few nanoseconds per sample in the leaves, and n_train / 64 steps per
    row. Memory: 20 bytes per training sample and thread.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(1, 3, size=(2000, 1)); y = x[:, 0] * rng.normal(size=2000)
    >>> forest = hforest.grow(x, y, 50, task="regression", min_samples_leaf=20, rng=0)
    >>> targets = hforest.tree.leaf_targets(forest, x, y)
    >>> low, high = hforest.tree.quantiles(forest, targets, x, [0.05, 0.95])[:, 0].T
    >>> bool(0.85 < ((low <= y) & (y <= high)).mean() < 0.97)
    True
    """
    checks.choice("method", method, _METHODS)
    checks.on_cpu(x=x, levels=levels, counts=counts)
    forest = trusted(forest, x)
    leaf = apply(forest, x)
    targets = _checked_targets(targets, len(forest.feature))
    if (
        method == "linear"
        and checks.values_checked()
        and bool((np.floor(targets.weight) != targets.weight).any())
    ):
        raise ValueError(
            'method: expected "inverted_cdf" with real weights, got "linear", which repeats each '
            "target as often as its weight; pass whole weights"
        )
    wanted = _levels(levels)
    if counts is not None:
        drawn = supervised.in_bag_counts("counts", counts, leaf.shape[1], len(leaf))
        leaf = np.where(drawn.T > 0, np.int32(-1), leaf)
    with checks.memory("x", "quantiles", 8 * len(leaf) * len(targets.y) * len(wanted)):
        result = np.full((len(leaf), len(targets.y), len(wanted)), np.nan)
    if result.size:
        dispatch.backend(PACKAGE, leaf).quantiles(
            leaf, forest.tree_start, targets.indptr, targets.rank, targets.weight, targets.y, wanted,
            method == "inverted_cdf", result,
        )  # fmt: skip
    return result


def _levels(levels: ArrayLike) -> FloatArray:
    shares = supervised.real("levels", levels)
    if shares.ndim != 1:
        raise ValueError(
            f"levels: expected shape (n_levels,), got {tuple(shares.shape)}; pass a list such as [0.05, 0.95]"
        )
    wanted = supervised.converted_numbers(shares, _FLOAT64)
    if wanted.size and not (wanted.min() >= 0 and wanted.max() <= 1):
        raise ValueError(
            f"levels: expected numbers from 0 to 1, got {wanted.min()} to {wanted.max()}; "
            "divide percentages by 100"
        )
    return wanted


def _checked_targets(targets: LeafTargets, n_nodes: int) -> LeafTargets:
    """Returns targets that belong to a forest of n_nodes nodes and whose entries stay inside their arrays.

    Their indptr and ranks are copies, which belong to the call.
    """
    checks.instance(
        "targets", targets, LeafTargets, "a hforest.tree.LeafTargets", "pass the result of leaf_targets"
    )
    arrays = {f"targets.{name}": a for name, a in targets._asdict().items()}
    checks.same_device(**arrays)
    checks.on_cpu(**arrays)
    sizes: checks.Sizes = {}
    checks.array("targets.y", targets.y, _FLOAT64, ("n_outputs", "n_train"), sizes)
    checks.array("targets.indptr", targets.indptr, checks.INT64, (n_nodes + 1,), sizes)
    checks.array("targets.rank", targets.rank, checks.INT32, ("n_outputs", "n_entries"), sizes)
    n_weights = sizes["n_entries"] if getattr(targets.weight, "size", 0) else 0
    checks.array("targets.weight", targets.weight, _FLOAT64, (n_weights,), sizes)
    checks.at_least_one(sizes, "n_outputs", "n_train")
    if not checks.values_checked():
        return targets
    indptr, rank = checks.owned(targets.indptr), checks.owned(targets.rank)
    if indptr[0] != 0 or indptr[-1] != sizes["n_entries"] or bool((indptr[1:] < indptr[:-1]).any()):
        raise ValueError(
            f"targets.indptr: expected ascending numbers from 0 to n_entries = {sizes['n_entries']}, got "
            "other numbers; pass the result of leaf_targets, unchanged"
        )
    checks.indices("targets.rank", rank, sizes["n_train"], "n_train")
    checks.finite("targets.y", targets.y)
    if bool((targets.y[:, 1:] < targets.y[:, :-1]).any()):
        raise ValueError(
            "targets.y: expected ascending targets, got other numbers; pass the result of leaf_targets, "
            "unchanged"
        )
    if targets.weight.size and not (targets.weight.min() > 0 and targets.weight.max() <= _MAX_TOTAL):
        raise ValueError(
            f"targets.weight: expected numbers above 0 and up to {_MAX_TOTAL:g}, got "
            f"{targets.weight.min():g} to {targets.weight.max():g}; pass the result of "
            "leaf_targets, unchanged"
        )
    return targets._replace(indptr=indptr, rank=rank)
