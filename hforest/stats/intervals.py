"""Confidence intervals for the mean of targets at new rows, from the variance of subsampled forests."""

import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from ..core import check, notebooks, supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray
from ..core.bootstraps import row_groups
from ..tree import Forest
from .honest import HonestCounts
from .posteriors import checked_counts
from .problem import float_numbers, leaf_values, leaves

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

    @notebooks.shown_by
    def _repr_html_(self) -> notebooks.Rows:
        return [
            ("ConfidenceIntervals", ""),
            ("rows", len(self.mean)),
            ("outputs", self.mean.shape[1]),
            ("means", notebooks.span(self.mean)),
            ("standard errors", notebooks.span(self.standard_error)),
            ("intervals", notebooks.span(np.array([self.low, self.high]))),
            ("intervals with too few trees", int((self.noise >= 1).sum())),
        ]


def confidence_intervals(
    forest: Forest,
    counts: HonestCounts,
    x: ArrayLike,
    *,
    feature: int | None = None,
    values: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    trees_per_half: int | None = None,
    coverage: float = 0.95,
) -> ConfidenceIntervals:
    """Returns means of targets, or probabilities of classes, with standard errors and normal intervals.

    They are those at new rows, or of the partial dependence on a feature.

    Parameters
    ----------
    forest : Forest
        Forest of at least 2 trees; leaf values are means of targets, or shares of classes. For an honest
        forest they come from `hforest.tree.refit` with ``counts=counts.leaf``.
    counts : HonestCounts
        Counts with which the forest was grown and refitted, from `honest_counts` with the number of training
        rows as y, also for classes. For an ordinary forest pass ``HonestCounts(c, c)`` with its in-bag counts
        c. All trees have the same number of rows, or groups.
    x : (n_samples, n_features) array-like of real numbers
        New rows, on which the forest was not grown; converted to its dtype.
    feature : int, optional
        Column of x. With it results are (n_values, n_outputs): means over x with this column set to each of
        the values (partial dependence, Friedman 2001).
    values : (n_values,) array-like, optional
        Values of the feature, finite.
    groups : (n_train,) array-like, optional
        Groups of training rows with which counts were drawn (`honest_counts`). Intervals then assume that
        groups are independent of each other, in place of rows.
    trees_per_half : int of at least 2, optional
        That of `honest_counts`, if trees share halves: the variance is that between halves.
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
        rows; trees that all have the same rows; with trees_per_half trees that do not share halves.

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

    With trees_per_half = k the variance is that of means over the k trees of a half, minus ``1 / k`` of the
    variance within halves, since a half of the rows has the variance of the forest on all (Athey, Tibshirani
    and Wager 2019, section 4). The difference is replaced by its mean given that it is above 0. `noise` is
    the share subtracted. Its error does not grow with the number of rows: with more than B / k rows halves
    are more exact. Read rows as groups, where there are any.

    Intervals are normal, ``mean +- z standard_error``. They are for the mean of targets given x, not for the
    targets (`hforest.tree.prediction_intervals`), and omit the bias of the forest, such as near the
    boundary of the training rows. Those of a partial dependence are for the mean over these x. Predictions
    are rounded to multiples of a power of two, at most 2**-30 of their range, so sums are exact: results are
    bit-identical for any number of threads. Cost: that of `hforest.tree.apply`, per value of a feature; for
    the jackknife a multiplication and an addition per tree, row, new row and output.

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
    together = feature is not None
    check.require(
        together == (values is not None), "values", "values with feature, and none without",
        "one of them", "pass both, or none",
    )  # fmt: skip
    if trees_per_half is not None:
        trees_per_half = check.integer("trees_per_half", trees_per_half, 2, check.MAX_TREES)
    of_values: Iterator[FloatArray] | None = None
    if together:
        x = supervised.samples_or_missing("x", x)[0]
        column = check.integer("feature", feature, 0, x.shape[1] - 1)
        at = float_numbers("values", values)
        check.require(at.ndim == 1, "values", "shape (n_values,)", tuple(at.shape), "pass a list of numbers")
        check.finite("values", at)
        of_values = (_with_value(x, column, value) for value in at)
    forest, leaf = leaves(forest, x)
    n_trees, n_outputs = leaf.shape[1], forest.value.shape[1]
    check.require(n_trees > 1, "forest", "at least 2 trees", n_trees, "grow more trees")
    in_bag = _in_bag(checked_counts(counts, n_trees), groups)
    if trees_per_half is None:
        of_rows = partial(_of_rows, in_bag=in_bag, factor=_factor(in_bag))
    else:
        _check_halves(in_bag, trees_per_half)
        of_rows = partial(_between_halves, n_trees=trees_per_half)
    step = max(1, _ENTRIES // (n_trees * n_outputs))
    parts = []
    if of_values is None:
        for first in range(0, len(leaf), step):
            parts.append(of_rows(leaf_values(forest, leaf[first : first + step]).swapaxes(0, 1)))
    else:
        of_each = [_mean_over(forest, rows, step) for rows in of_values]
        parts.append(of_rows(np.stack(of_each, axis=1) if of_each else np.zeros((n_trees, 0, n_outputs))))
    empty = (np.zeros((0, n_outputs)),) * 3
    mean, error, noise = (np.concatenate(a) for a in zip(*(parts or [empty]), strict=True))
    half = norm.ppf((1 + coverage) / 2) * error
    return ConfidenceIntervals(mean, error, mean - half, mean + half, noise)


def _with_value(x: FloatArray, column: int, value: float) -> FloatArray:
    """Returns a copy of x whose column has the value in all rows."""
    x = x.copy()
    x[:, column] = value
    return x


def _mean_over(forest: Forest, x: FloatArray, step: int) -> FloatArray:
    """Returns (n_trees, n_outputs): means of each tree's predictions over rows, `step` at a time."""
    leaf = leaves(forest, x)[1]
    sums = [
        leaf_values(forest, leaf[first : first + step]).sum(axis=0) for first in range(0, len(leaf), step)
    ]
    return np.sum(sums, axis=0) / len(leaf)


def _in_bag(counts: HonestCounts, groups: ArrayLike | None) -> IntArray:
    """Returns (n_trees, n) counts of each row, or group, in each tree."""
    in_bag = np.maximum(counts.structure, counts.leaf)  # in an honest tree one of both counts is 0
    if groups is not None:
        number, first = row_groups("groups", groups, in_bag.shape[1])
        of_group = in_bag[:, first]
        check.require(
            bool((of_group[:, number] == in_bag).all()), "counts", "equal counts in each group",
            "different ones", "pass these groups to honest_counts",
        )  # fmt: skip
        in_bag = of_group
    return in_bag


def _check_halves(in_bag: IntArray, n_trees: int) -> None:
    """Checks that each n_trees trees use together at most half of the rows, or groups."""
    n_halves, n = len(in_bag) // n_trees, in_bag.shape[1]
    check.require(
        len(in_bag) == n_halves * n_trees and n_halves > 1, "forest",
        f"a multiple of trees_per_half = {n_trees} trees, at least two of them", f"{len(in_bag)} trees",
        "grow whole halves",
    )  # fmt: skip
    used = (in_bag.reshape(n_halves, n_trees, n) > 0).any(axis=1).sum(axis=1)
    check.require(
        bool((used <= n / 2).all()), "counts", "trees that draw from halves of the rows, or groups",
        f"{int(used.max(initial=0))} of {n} in one", "pass trees_per_half to honest_counts, its groups here",
    )  # fmt: skip


def _between_halves(predicted: FloatArray, n_trees: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns `_of_rows` from the variance between halves of n_trees trees each."""
    from scipy.stats import norm

    of_half = predicted.reshape(-1, n_trees, *predicted.shape[1:])
    means, n_halves = of_half.mean(axis=1), len(of_half)
    mean = means.mean(axis=0)
    between = means.var(axis=0, ddof=1)
    within = of_half.var(axis=1, ddof=1).mean(axis=0) / n_trees
    # The mean of a normal number, about the difference, that is above 0.
    spread = np.maximum(between, within) * math.sqrt(2 / (n_halves - 1))
    ratio = np.divide(between - within, spread, out=np.zeros(mean.shape), where=spread > 0)
    variance = spread * (ratio + np.exp(norm.logpdf(ratio) - norm.logcdf(ratio)))
    noise = np.divide(within, between, out=np.zeros(mean.shape), where=between > 0)
    return mean, np.sqrt(variance + between / n_halves), noise


def _factor(in_bag: IntArray) -> float:
    """Returns the factor f of the jackknife; checks the counts."""
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
    return 1.0 if most > 1 else n * (n - 1) / (n - int(sizes[0])) ** 2


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
