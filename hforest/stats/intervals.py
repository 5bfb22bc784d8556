"""Confidence intervals for the mean of targets at new rows, from the variance of subsampled forests."""

import math
from typing import NamedTuple

import numpy as np

from ..core import check
from ..core.aliases import ArrayLike, FloatArray, IntArray
from ..tree import Forest
from .honest import HonestCounts
from .posteriors import checked_counts
from .problem import leaf_values, leaves

_ENTRIES = 1 << 22
"""Count of the predictions of trees, and in-bag counts, that are multiplied at a time."""
_MOST_COUNTED = 1 << 22


class ConfidenceIntervals(NamedTuple):
    """Result of `confidence_intervals`: means of targets given x, with intervals."""

    mean: FloatArray
    """(n_samples, n_outputs) float64: means over the trees."""
    standard_error: FloatArray
    """(n_samples, n_outputs) float64: standard errors of `mean`, over training rows and draws."""
    low: FloatArray
    """(n_samples, n_outputs) float64."""
    high: FloatArray
    """(n_samples, n_outputs) float64."""
    noise: FloatArray
    """(n_samples, n_outputs) float64: the Monte Carlo bias, as a share of the variance from which it is
    subtracted. If it is 1 or more, trees are too few: only the variance of a mean over trees remains."""


def confidence_intervals(
    forest: Forest, counts: HonestCounts, x: ArrayLike, *, coverage: float = 0.95
) -> ConfidenceIntervals:
    """Returns means of targets at new rows with standard errors and normal intervals.

    Parameters
    ----------
    forest : Forest
        Forest of at least 2 trees; leaf values are means of targets, or shares of classes. For an honest
        forest they come from `hforest.tree.refit` with ``counts=counts.leaf``.
    counts : HonestCounts
        Counts with which the forest was grown and refitted, from `honest_counts` with the number of training
        rows as y. For an ordinary forest pass ``HonestCounts(c, c)`` with its in-bag counts c. All trees have
        the same number of rows.
    x : (n_samples, n_features) array-like of real numbers
        New rows, on which the forest was not grown; converted to its dtype.
    coverage : float
        Confidence, above 0 and below 1.

    Returns
    -------
    ConfidenceIntervals
        (mean, standard_error, low, high, noise), of arrays of float64.

    Raises
    ------
    ValueError
        As from `hforest.tree.apply`; counts for another number of trees; trees with different numbers of
        rows; trees that all have the same rows.

    Notes
    -----
    The variance is that of the infinitesimal jackknife. N[b, i] is the number of times that tree b uses row
    i, for splits or leaves; T[b] is the prediction of tree b. The variance is ``f sum_i cov_i**2`` with
    ``cov_i = cov(N[:, i], T)`` over the B trees. f is 1 for draws with replacement (Wager, Hastie and Efron
    2014), and ``n (n - 1) / (n - s)**2`` for s of n rows without it (Wager and Athey 2018, eq. 8). The finite
    number of trees B adds ``f sum_i var(N[:, i]) var(T) / B`` on average, which is subtracted; for a
    bootstrap that is ``n var(T) / B`` (Wager, Hastie and Efron 2014). With labels of strata as the y of
    `honest_counts` f is an approximation.

    As a departure, ``var(T) / B``, the variance of a mean over B trees about that of infinitely many, is
    added. A negative difference is replaced by 0. Of a share a of the rows the subtracted term is about ``a /
    (1 - a) n var(T) / B``, and its standard deviation ``(2 / n)**0.5`` of it: that of the variance is about
    ``(2 / n)**0.5 noise / (1 - noise)`` of the variance. So use several times as many trees as training rows,
    or ten times as many for few rows.

    Intervals are normal, ``mean +- z standard_error``. They are for the mean of targets given x, not for the
    targets (`hforest.tree.prediction_intervals`), and omit the bias of the forest, such as near the
    boundary of the training rows. Predictions are rounded to multiples of a power of two, at most 2**-30 of
    their range, so sums are exact: results are bit-identical for any number of threads. Cost: that of
    `hforest.tree.apply`, and a multiplication and an addition per tree, row, new row and output.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(size=(200, 2)); y = x[:, 0] + 0.1 * rng.normal(size=200)
    >>> counts = hforest.stats.honest_counts(200, 1000, in_bag=0.5, rng=0)
    >>> forest = hforest.grow(x, y, 1000, task="regression", bootstrap=counts.structure, rng=0)
    >>> honest = hforest.tree.refit(forest, x, y, counts=counts.leaf, task="regression")
    >>> mean, standard_error, low, high, _ = hforest.stats.confidence_intervals(honest, counts, [[0.5, 0.5]])
    >>> bool(low[0, 0] < 0.5 < high[0, 0]), bool(standard_error[0, 0] < 0.05)
    (True, True)
    """
    from scipy.stats import norm

    coverage = check.number("coverage", coverage, 0.0, 1.0, open_low=True)
    check.require(
        coverage < 1,
        "coverage",
        "a number below 1",
        coverage,
        "an interval of coverage 1 is unbounded: pass a number such as 0.95",
    )
    forest, leaf = leaves(forest, x)
    n_trees = leaf.shape[1]
    check.require(n_trees > 1, "forest", "at least 2 trees", n_trees, "grow more trees")
    in_bag, factor = _draws(checked_counts(counts, n_trees))
    mean = np.empty((len(leaf), forest.value.shape[1]))
    error, noise = np.empty(mean.shape), np.empty(mean.shape)
    step = max(1, _ENTRIES // (n_trees * mean.shape[1]))
    for first in range(0, len(leaf), step):
        part = slice(first, first + step)
        predicted = leaf_values(forest, leaf[part]).swapaxes(0, 1)
        mean[part], error[part], noise[part] = _of_rows(predicted, in_bag, factor)
    half = norm.ppf((1 + coverage) / 2) * error
    return ConfidenceIntervals(mean, error, mean - half, mean + half, noise)


def _draws(counts: HonestCounts) -> tuple[IntArray, float]:
    """Returns (n_trees, n) counts of each row in each tree, and the factor f of the jackknife."""
    in_bag = np.maximum(counts.structure, counts.leaf)  # in an honest tree one of both counts is 0
    n_trees, n = in_bag.shape
    sizes = in_bag.sum(axis=1, dtype=np.int64)
    remedy = "pass the result of honest_counts, or HonestCounts(c, c) with c from bootstrap_counts"
    check.require(
        n > 0 and sizes.min() == sizes.max() > 0, "counts", "the same number of rows in all trees",
        f"{sizes.min(initial=0)} to {sizes.max(initial=0)}", remedy,
    )  # fmt: skip
    differ = bool((in_bag != in_bag[0]).any())
    check.require(differ, "counts", "different rows in the trees", "the same rows in all trees", remedy)
    most = int(in_bag.max())
    check.require(
        n_trees * most < _MOST_COUNTED, "counts", "counts that sum to less than 2**22",
        f"{most} in one of {n_trees} trees", remedy,
    )  # fmt: skip
    size = int(sizes[0])
    return in_bag, 1.0 if most > 1 else n * (n - 1) / (n - size) ** 2


def _of_rows(
    predicted: FloatArray, in_bag: IntArray, factor: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns (n_samples, n_outputs) means, standard errors, and the shares of Monte Carlo bias in variances.

    predicted (n_trees, n_samples, n_outputs) holds the predictions of each tree.
    """
    n_trees, n = in_bag.shape
    mean = predicted.mean(axis=0)
    spread = (predicted - mean).reshape(n_trees, -1)
    # Whole numbers in units of 2**unit, so small that products add up to less than 2**53: exact in any order.
    spare = math.frexp(float(n_trees * in_bag.max()))[1]
    unit = np.frexp(np.abs(spread).max(axis=0))[1] - (52 - spare)
    whole = np.rint(np.ldexp(spread, -unit))
    square, drawn = np.zeros(spread.shape[1]), 0.0
    step = max(1, _ENTRIES // n_trees)
    for first in range(0, n, step):
        rows = in_bag[:, first : first + step].astype(np.float64)
        drawn += rows.var(axis=0, ddof=1).sum()
        square += np.square(rows.T @ whole / n_trees).sum(axis=0)
    of_mean = np.square(whole).mean(axis=0) / n_trees
    bias = drawn * of_mean
    error = np.ldexp(np.sqrt(factor * np.maximum(square - bias, 0.0) + of_mean), unit)
    noise = np.divide(bias, square, out=np.zeros(bias.shape), where=square > 0)
    return mean, error.reshape(mean.shape), noise.reshape(mean.shape)
