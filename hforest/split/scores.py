"""Impurities of nodes, and the best split of one node."""

import sys
from typing import NamedTuple

import numpy as np

from ..core import check, dispatch, scores, supervised
from ..core.aliases import ArrayLike, Criterion, FloatArray, Task

_PACKAGE = __name__.rpartition(".")[0]


class Split(NamedTuple):
    """Number of the best candidate (-1: none splits), its threshold (values `<=` it go left) and the gain."""

    candidate: int
    threshold: float
    gain: float


def impurity(
    counts: ArrayLike, criterion: Criterion = "gini", *, out: FloatArray | None = None
) -> FloatArray:
    """Returns the impurity of nodes from their class counts, or from sums of their targets.

    Parameters
    ----------
    counts : (n_nodes, n_classes) array_like
        Weight of each class, at least 0; computed in float32 if that holds every number of its dtype, else in
        float64. For "squared_error" (n_nodes, 3): the weight, the sum and the sum of squares of the targets,
        both weighted.
    criterion : "gini", "entropy" or "squared_error"
        Impurity; entropy is in bits, the squared error in the unit of the targets squared.

    Returns
    -------
    (n_nodes,) array of float32 or float64
        Impurity H; 0 for a node without weight.

    Notes
    -----
    With shares p of the classes: Gini ``1 - sum p**2``; entropy ``-sum p log2 p`` (the blog *Don't Get Lost
    in the Forest* omits the sign and the weights); squared error ``sum w y**2 / W - (sum w y / W)**2``. The
    best split of a node into branches b has the lowest ``sum_b W_b H(b)``. Cost: one read of counts.

    Examples
    --------
    The example of that blog: of ten samples one lies left of 1.5, the others weigh 13.77 bits.

    >>> import numpy as np, hforest
    >>> right = np.array([[4, 2, 3]])
    >>> (9 * hforest.split.impurity(right, "entropy")).round(2)
    array([13.77])
    """
    numbers = scores.numbers()
    number = numbers[check.choice("criterion", criterion, tuple(numbers))]
    squared = number == scores.SQUARED_ERROR
    axes = ("n_nodes", "3") if squared else ("n_nodes", "n_classes")
    caller_counts, counts = counts, supervised.matrix("counts", counts, axes=axes)
    n_nodes, n_sums = counts.shape
    if squared and n_sums != 3:
        raise ValueError(
            f"counts: expected shape (n_nodes, 3), got {tuple(counts.shape)}; pass weight, sum and sum of "
            "squares of each node"
        )
    check.at_least_one({"n_classes": n_sums}, "n_classes")
    weights = counts[:, :1] if squared else counts
    if check.values_checked() and bool((weights < 0).any()):
        raise ValueError("counts: expected weights of at least 0, got a negative one; pass sums of weights")
    if out is None:
        out = dispatch.array_module(counts).empty(n_nodes, counts.dtype)
    else:
        check.same_device(counts=counts, out=out)
        check.array("out", out, counts.dtype, ("n_nodes",), {"n_nodes": n_nodes})
        check.outputs({"out": out}, {"counts": supervised.as_given("counts", caller_counts)})
    dispatch.backend(_PACKAGE, counts).impurity(counts, number, out)
    return out


def best_split(
    values: ArrayLike,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    task: Task = "classification",
    n_classes: int | None = None,
    criterion: Criterion | None = None,
    min_samples_leaf: int = 1,
    max_bins: int | None = None,
) -> Split:
    """Returns the candidate and threshold that lower the weighted impurity most.

    Parameters
    ----------
    values : (n_candidates, n_samples) array_like
        Value of each candidate for each sample, such as ``x.T`` or the result of `hforest.project.project`;
        finite, computed in float32 if that holds every number of its dtype, else in float64.
    y : (n_samples,) array_like, or (n_samples, n_outputs)
        Labels of any integer dtype or bool, or targets of any real dtype.
    sample_weight : (n_samples,) array_like, optional
        Weights of the samples, 0 to 1e100, by default 1. A sample of weight 0 does not count.
    criterion : "gini", "entropy" or "squared_error", optional
        Impurity; by default "gini", in a regression "squared_error", summed over the outputs.
    min_samples_leaf : int
        Minimum number of samples on each side.
    max_bins : int, optional
        Maximum number of bins, 1 to 256, of a candidate with more distinct values. Bins have about equal
        numbers of samples, and thresholds lie between them. By default every threshold is scored.

    Returns
    -------
    Split
        candidate (int, -1 if none splits), threshold (float; ``value <= threshold`` goes left) and gain
        (float): ``W H - W_left H(left) - W_right H(right)``, in units of weight times impurity. Without a
        split threshold is NaN and gain 0.

    Raises
    ------
    ValueError
        A weight or target beyond 1e100.

    Notes
    -----
    The blog *Don't Get Lost in the Forest*, steps 1-3, with weighted branches (`impurity`). Samples of one
    value stay together. The threshold is the midpoint of the two neighbours, or the lower one if the midpoint
    rounds to the upper. Of equal scores the lowest candidate wins, and of its thresholds the lowest, for any
    number of threads. Gini sums of integer weights are exact. A split may have gain 0 (the first split of an
    exclusive or has). Cost: per candidate a radix sort of n_samples numbers, then n_samples steps of O(1) for
    Gini with integer weights, of O(n_classes) otherwise. On a GPU this waits for the result.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> value = np.arange(1, 11)[None]
    >>> y = np.array([1, 2, 1, 1, 1, 1, 3, 3, 2, 3]) - 1
    >>> split = hforest.split.best_split(value, y, criterion="entropy")
    >>> split.candidate, split.threshold
    (0, 6.5)
    """
    values = supervised.matrix("values", values, axes=("n_candidates", "n_samples"))
    n = values.shape[1]
    if n > check.MAX_COUNT:
        raise ValueError(f"values: expected n_samples < 2**31, got {n}; pass fewer samples")
    target = supervised.target(y, n, task, n_classes)
    number = supervised.criterion(criterion, task)
    min_samples_leaf = check.integer("min_samples_leaf", min_samples_leaf, 1, check.MAX_COUNT)
    bins = supervised.max_bins(max_bins) or 0
    check.same_device(values=values, y=target.y)
    weights = supervised.sample_weight(sample_weight, target.y, some_above_0=False)
    if sample_weight is not None:
        heavy = weights > 0
        if not bool(heavy.all()):
            values = dispatch.array_module(values).ascontiguousarray(values[:, heavy])
            target = target._replace(**{"targets" if target.labels is None else "labels": target.y[heavy]})
            weights = weights[heavy]
    if values.size == 0:
        return Split(-1, float("nan"), 0.0)
    return _best(values, target, weights, (number, min_samples_leaf, bins))


def _best(
    values: FloatArray, target: supervised.Target, weights: FloatArray, rules: tuple[int, int, int]
) -> Split:
    """Returns the best split of at least one candidate and sample; all weights are above 0."""
    xp, backend = dispatch.array_module(values), dispatch.backend(_PACKAGE, values)
    threshold, gain = xp.empty(len(values), values.dtype), xp.empty(len(values))
    weights, exponent = supervised.scaled_weight(weights, target.targets, gain.dtype, len(weights))
    if target.targets is not None:
        mean = (weights[:, None] * target.targets).sum(axis=0) / weights.sum()
        target = target._replace(targets=target.targets - mean)
    backend.splits(values, target, weights, rules, threshold, gain)
    best = int(gain.argmax())
    if float(gain[best]) == -np.inf:
        return Split(-1, float("nan"), 0.0)
    with np.errstate(over="ignore"):
        best_gain = float(np.ldexp(max(float(gain[best]), 0.0), -exponent))
    return Split(best, float(threshold[best]), min(best_gain, sys.float_info.max))
