"""Out-of-bag predictions of a bootstrapped forest, and prediction intervals from their errors."""

import math
from typing import NamedTuple

import numpy as np

from ..core import check, supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray
from ..core.bootstraps import of_groups
from .forest import Forest, trusted
from .walks import apply, predict


class Interval(NamedTuple):
    """Bounds between which the targets of samples lie with a given probability."""

    low: FloatArray
    """(n_samples, n_outputs) float64."""
    high: FloatArray
    """(n_samples, n_outputs) float64."""


def out_of_bag(
    forest: Forest, x: ArrayLike, counts: ArrayLike, *, groups: ArrayLike | None = None
) -> FloatArray:
    """Returns predictions for the samples of the growth, each by the trees that did not draw it.

    Parameters
    ----------
    forest : Forest
        Any forest of n_trees trees.
    x : (n_samples, n_features) array-like of real numbers
        Samples of the growth, converted to the dtype of the forest.
    counts : (n_trees, n_samples) array of integers
        How often each tree drew each sample: the array that was passed as `bootstrap`, or
        ``bootstrap_counts(n_samples, n_trees, rng=seed)`` with the int that was passed as rng, and for a
        range of trees its first_tree.
    groups : (n_samples,) array-like of numbers or texts, optional
        Numbers or names of groups, such as subjects: a sample is predicted by the trees that drew no sample
        of its group. Counts that are drawn by groups imply it.

    Returns
    -------
    (n_samples, n_outputs) array, dtype of the forest
        Means of leaf values; NaN for a sample that every tree drew, or its group.

    Notes
    -----
    Breiman 2001, section 3.1. Means are summed in float64 in the order of the trees. Cost: that of
    `hforest.tree.apply`, and a pass over the leaf values for each tree.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(300, 3))
    >>> y = x[:, 0] > 0
    >>> forest = hforest.grow(x, y, 50, rng=7)
    >>> p = hforest.tree.out_of_bag(forest, x, hforest.growth.bootstrap_counts(300, 50, rng=7))
    >>> bool((p.argmax(axis=1) == y).mean() > 0.95)
    True
    """
    check.on_cpu(x=x, counts=counts)
    forest = trusted(forest, x)
    leaf = apply(forest, x)
    n, n_trees = leaf.shape
    in_bag = supervised.in_bag_counts("counts", counts, n_trees, n)
    return out_of_bag_values(forest, leaf, of_groups(in_bag, groups))


def prediction_intervals(
    forest: Forest, x: ArrayLike, errors: FloatArray, *, coverage: float = 0.9
) -> Interval:
    """Returns intervals that contain the targets of new samples with a given probability.

    Parameters
    ----------
    forest : Forest
        Regression forest, grown on bootstrap samples.
    x : (n_samples, n_features) array-like of real numbers
        New samples, converted to the dtype of the forest.
    errors : (n_train, n_outputs) array, float32 or float64
        Out-of-bag errors of the training samples: targets minus the predictions of `out_of_bag`. Rows with
        NaN, of samples that every tree drew, are left out; at least one must remain.
    coverage : float
        Share of new targets inside the intervals, above 0 and at most 1.

    Returns
    -------
    Interval
        (low, high), (n_samples, n_outputs) arrays of float64.

    Notes
    -----
    Zhang, Zimmerman, Nettleton and Nordman 2020: ``[f(x) + D(alpha / 2), f(x) + D(1 - alpha / 2)]`` with
    ``alpha = 1 - coverage``, where f is `hforest.tree.predict` and D(a) the least out-of-bag error at or
    below which a share a of the errors lies. Coverage holds on average over the distribution of the training
    samples, not for each x: all intervals of an output have one width. `hforest.tree.quantiles` has widths
    that depend on x. Cost: a prediction and a sort of the errors.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(600, 3)); y = x[:, 0] + rng.normal(size=600)
    >>> forest = hforest.grow(x[:400], y[:400], 50, task="regression", min_samples_leaf=5, rng=7)
    >>> counts = hforest.growth.bootstrap_counts(400, 50, rng=7)
    >>> errors = y[:400, None] - hforest.tree.out_of_bag(forest, x[:400], counts)
    >>> low, high = hforest.tree.prediction_intervals(forest, x[400:], errors, coverage=0.8)
    >>> bool(0.7 < ((low[:, 0] <= y[400:]) & (y[400:] <= high[:, 0])).mean() < 0.9)
    True
    """
    coverage = check.number("coverage", coverage, 0.0, 1.0, open_low=True)
    check.same_device(errors=errors)
    check.on_cpu(x=x, errors=errors)
    mean = predict(forest, x)
    check.floating("errors", errors)
    if errors.ndim != 2 or errors.shape[1] != mean.shape[1]:
        raise ValueError(
            f"errors: expected shape (n_train, n_outputs) = (n_train, {mean.shape[1]}), got "
            f"{tuple(errors.shape)}; pass y.reshape(n_train, n_outputs) - out_of_bag(...)"
        )
    known = errors[~np.isnan(errors).any(axis=1)].astype(np.float64)
    if not len(known):
        raise ValueError(
            "errors: expected at least one row without NaN, got none; grow more trees, so that each sample "
            "is out-of-bag in at least one tree"
        )
    check.finite("errors", known)
    known = np.sort(known, axis=0)
    # A tenth of 10 errors is one, however their product is rounded.
    outside = round(len(known) * (1 - coverage) / 2, 9)
    low, high = known[max(math.ceil(outside), 1) - 1], known[len(known) - math.floor(outside) - 1]
    return Interval(mean + low, mean + high)


def out_of_bag_values(forest: Forest, leaf: IntArray, counts: IntArray) -> FloatArray:
    """Returns means of leaf values over the trees that did not draw a sample, NaN if all drew it.

    leaf (n_samples, n_trees) is the result of `apply`, counts (n_trees, n_samples) is how often each tree
    drew each sample; both are on the host. The result is (n_samples, n_outputs), dtype of the thresholds.
    """
    n, n_trees = leaf.shape
    total, n_out = np.zeros((n, forest.value.shape[1])), np.zeros(n)
    for m in range(n_trees):
        out = np.flatnonzero(counts[m] == 0)
        root = int(forest.tree_start[m])
        rows = (root + m) // 2 + forest.left[root + leaf[out, m]]
        total[out] += forest.value[rows]
        n_out[out] += 1
    mean = np.divide(total, n_out[:, None], out=np.full_like(total, np.nan), where=n_out[:, None] > 0)
    return mean.astype(forest.threshold.dtype)
