"""Scores of splits: how impure a node is, and which of some projections splits it best, exactly.

A candidate is one number for each of a node's samples: a feature, or any projection. All candidates are
ordered and every threshold between two neighbours of different value is looked at (p5, the random forest
notes, step 2), without subsampling, or on demand those between at most 256 bins. Wrong kinds and dtypes raise
TypeError, wrong shapes and values ValueError, labels out of range IndexError; the checks that read whole
arrays can be skipped inside `hforest.unchecked()`.
"""

from typing import NamedTuple

import numpy as np

from ..core import check, dispatch
from ..core.dispatch import Array

__all__ = ["Split", "best_split", "impurity"]

_ROOM = __name__
_CRITERIA = ("gini", "entropy", "squared_error")
_MOST_SAMPLES = 2**31 - 1
_MOST_CLASSES = 2**20  # bounds the scratch of a sweep
_MOST_BINS = 256
_LARGEST = 1e100  # of weights and targets: their products and sums must not overflow


class Split(NamedTuple):
    """A candidate's number (-1: none splits), its threshold (`<=` goes left) and the gain."""

    candidate: int
    threshold: float
    gain: float


def impurity(counts: Array, criterion: str = "gini", *, out: Array | None = None) -> Array:
    """Impurity of nodes from their class counts, or from their sums.

    Parameters
    ----------
    counts : (n_nodes, n_classes) array of float32 or float64
        Weight of each class, at least 0. For "squared_error" (n_nodes, 3): the weight, the sum and the
        sum of squares of the targets, both weighted.
    criterion : "gini", "entropy" or "squared_error"
        Which impurity; entropy in bits, the squared error in the unit of the targets squared.
    out : (n_nodes,) array, dtype of counts, optional
        Where to write the result.

    Returns
    -------
    (n_nodes,) array, dtype of counts
        H; 0 for a node without weight.

    Raises
    ------
    TypeError, ValueError
        Wrong dtype or device; wrong shape or layout, another word, a negative weight, NaN or infinity.

    Notes
    -----
    With p the shares of the classes: Gini ``1 - sum p**2``, entropy ``-sum p log2 p`` (p5 prints it without
    sign and weight), squared error ``sum w y**2 / W - (sum w y / W)**2``. A split of a node into branches b
    is the better the lower ``sum_b W_b H(b)``. Cost: one read of counts.

    Examples
    --------
    p5's example: of ten samples one lies left of 1.5, the others weigh 13.77 bits.

    >>> import numpy as np, hforest
    >>> right = np.array([[4.0, 2.0, 3.0]])
    >>> (9 * hforest.split.impurity(right, "entropy")).round(2)
    array([13.77])
    """
    check.same_device(counts=counts) if out is None else check.same_device(counts=counts, out=out)
    number = _CRITERIA.index(check.choice("criterion", criterion, _CRITERIA))
    dtype = check.floating("counts", counts)
    sizes: check.Sizes = {}
    check.array("counts", counts, dtype, ("n_nodes", 3 if number == 2 else "n_classes"), sizes)
    if number < 2:
        check.at_least_one(sizes, "n_classes")
    check.finite("counts", counts)
    weights = counts[:, :1] if number == 2 else counts
    if check.values_checked() and bool((weights < 0).any()):
        raise ValueError("counts: expected weights of at least 0, got a negative one; pass sums of weights")
    if out is None:
        out = dispatch.array_module(counts).empty(sizes["n_nodes"], dtype)
    else:
        check.array("out", out, dtype, ("n_nodes",), sizes)
        check.writable("out", out)
        check.no_overlap({"out": out}, {"counts": counts})
    dispatch.twin(_ROOM, counts).impurity(counts, number, out)
    return out


def _check_size(name: str, a: Array) -> None:
    check.finite(name, a)
    if check.values_checked() and a.size and float(abs(a).max()) > _LARGEST:
        raise ValueError(
            f"{name}: expected numbers up to {_LARGEST:g}, got {float(abs(a).max())}; scale them"
        )


def _check_weights(weights: Array, dtype: np.dtype, sizes: check.Sizes) -> None:
    check.array("weights", weights, dtype, ("n",), sizes)
    _check_size("weights", weights)
    if check.values_checked() and bool((weights < 0).any()):
        raise ValueError("weights: expected at least 0, got a negative one; drop such samples")


def best_split(
    values: Array,
    y: Array,
    weights: Array | None = None,
    n_classes: int | None = None,
    criterion: str = "gini",
    *,
    min_samples_leaf: int = 1,
    max_bins: int | None = None,
) -> Split:
    """The candidate and threshold that lower the weighted impurity most.

    Parameters
    ----------
    values : (n_candidates, n) array of float32 or float64
        Each candidate's number for each sample, such as ``hforest.project.project`` gives or ``x.T`` copied.
    y : (n,) array of int32, or (n,) or (n, n_outputs) array, dtype of values
        Labels, or targets for "squared_error".
    weights : (n,) array, dtype of values, optional
        Weights of the samples, at least 0, by default 1. A sample of weight 0 counts for nothing.
    n_classes : int
        Number of classes, at most 2**20; None for "squared_error".
    criterion : "gini", "entropy" or "squared_error"
        Which impurity; that of several outputs is their sum.
    min_samples_leaf : int
        Samples that each side must hold at least.
    max_bins : int, optional
        1 to 256: a candidate of more different values is cut into at most so many bins of about as many
        samples each, and thresholds lie between bins. By default every threshold is looked at.

    Returns
    -------
    Split
        candidate (int, -1 if none splits), threshold (float; ``value <= threshold`` goes left) and gain
        (float): ``W H - W_left H(left) - W_right H(right)``, in units of weight. Without a split threshold
        is NaN and gain 0.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape or layout, another criterion, a negative weight, NaN or infinity, a
        weight or target beyond 1e100; a label outside 0 <= y < n_classes.

    Notes
    -----
    p5 steps 1-3, with weighted branches (`impurity`). Samples of one value stay together. The threshold is
    the middle of the two neighbours, or the lower one where the middle does not round to a number below
    the upper. Of equal scores the lowest candidate wins, in it the lowest threshold, at any number of
    threads. Gini sums of integer weights are exact. A split may have gain 0 (an exclusive or has no better
    first step). Cost: a radix sort of n numbers a candidate, then n steps of O(1) for Gini with integer
    weights, of O(n_classes) otherwise. On a GPU this waits for the result.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> value = np.arange(1.0, 11.0)[None]
    >>> y = np.array([1, 2, 1, 1, 1, 1, 3, 3, 2, 3], np.int32) - 1
    >>> split = hforest.split.best_split(value, y, n_classes=3, criterion="entropy")
    >>> split.candidate, split.threshold
    (0, 6.5)
    """
    given = {"values": values, "y": y} | ({} if weights is None else {"weights": weights})
    check.same_device(**given)
    number = _CRITERIA.index(check.choice("criterion", criterion, _CRITERIA))
    dtype = check.floating("values", values)
    sizes: check.Sizes = {}
    check.array("values", values, dtype, ("n_candidates", "n"), sizes)
    check.finite("values", values)
    min_samples_leaf = check.integer("min_samples_leaf", min_samples_leaf, 1)
    if sizes["n"] > _MOST_SAMPLES:
        raise ValueError(f"values: expected n < 2**31, got {sizes['n']}; split a sample of them")
    bins = 0 if max_bins is None else check.integer("max_bins", max_bins, 1, _MOST_BINS)
    xp = dispatch.array_module(values)
    if number == 2:
        if n_classes is not None:
            raise ValueError(
                f"n_classes: expected None for squared_error, got {n_classes!r}; leave it out for targets"
            )
        check.array("y", y, dtype, ("n",) if y.ndim == 1 else ("n", "n_outputs"), sizes)
        _check_size("y", y)
        if y.ndim == 2:
            check.at_least_one(sizes, "n_outputs")
    else:
        n_classes = check.integer("n_classes", n_classes, 1, _MOST_CLASSES)
        check.array("y", y, check.INT32, ("n",), sizes)
        check.indices("y", y, n_classes, "n_classes")
    if weights is None:
        weights = xp.ones(sizes["n"])
    else:
        _check_weights(weights, dtype, sizes)
        weights = weights.astype(np.float64)
        heavy = weights > 0
        if not bool(heavy.all()):
            values, y, weights = xp.ascontiguousarray(values[:, heavy]), y[heavy], weights[heavy]
    if values.size == 0:
        return Split(-1, float("nan"), 0.0)
    threshold, gain = xp.empty(len(values), dtype), xp.empty(len(values))
    twin = dispatch.twin(_ROOM, values)
    if number == 2:
        targets = y.reshape(len(y), -1).astype(np.float64)
        targets -= (weights[:, None] * targets).sum(axis=0) / weights.sum()
        twin.target_splits(values, targets, weights, min_samples_leaf, bins, threshold, gain)
    else:
        twin.class_splits(values, y, weights, n_classes, number, min_samples_leaf, bins, threshold, gain)
    best = int(gain.argmax())
    if float(gain[best]) == -np.inf:
        return Split(-1, float("nan"), 0.0)
    return Split(best, float(threshold[best]), max(float(gain[best]), 0.0))
