"""Tests of conditional independence: the generalised covariance measure, and conditional randomisation."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from .. import classic, growth
from ..core import check, supervised
from ..core.aliases import ArrayLike, FloatArray, Progress, Rng
from ..core.progress import reporting
from ..growth import Samples
from .draws import normals, seed_of
from .permutation import HonestDraws
from .problem import Grower, PermutationTest, Problem, check_grower, grown, outputs, problem, sequential
from .statistics import Statistic

Sampler = Callable[[FloatArray, FloatArray, np.random.Generator], ArrayLike]
"""sampler(x, z, rng) -> (n_samples, n_columns) array: columns drawn from the distribution of x given z."""

_DRAWN = 1 << 22
"""Multipliers of one matrix product."""


class ConditionalTest(NamedTuple):
    """A p-value of the generalised covariance measure."""

    p_value: float
    """Above 0 and at most 1."""
    statistic: float
    """The largest absolute value in `covariances`."""
    covariances: FloatArray
    """(n_columns, n_outputs) float64: covariances of residuals of each column of x and each class or target,
    divided by their standard errors; 0 where residuals do not vary."""
    n_rows: int
    """Rows that are out-of-bag in some tree of every forest."""


_smooth = partial(classic.grow, min_samples_leaf=10)
"""Grows the forests that predict from z: of leaves of few rows both forests share neighbours too often."""


def _columns(name: str, a: ArrayLike, n: int | None = None) -> FloatArray:
    """(n_samples, n_columns) float64 of finite numbers, from a matrix or one column."""
    check.on_cpu(**{name: a})
    numbers = supervised.converted_numbers(supervised.real(name, a), np.dtype(np.float64))
    if numbers.ndim == 1:
        numbers = numbers[:, None]
    check.require(
        numbers.ndim == 2 and numbers.shape[1] > 0 and len(numbers) == (len(numbers) if n is None else n),
        name, f"shape (n_samples, n_columns){'' if n is None else f' with n_samples = {n}'}",
        tuple(numbers.shape), "pass a row for each sample",
    )  # fmt: skip
    supervised.bounded(name, numbers, -supervised.MAX_WEIGHT, supervised.MAX_WEIGHT)
    return numbers


def _residuals(
    of: Problem, goal: supervised.Target, grow: Grower | None, n_trees: int, seed: int
) -> FloatArray:
    """(n_samples, n_outputs): targets, or indicators of classes, minus out-of-bag predictions from z."""
    counts = growth.bootstrap_counts(len(of.samples), n_trees, rng=seed)
    forest = grown(grow, of.samples, goal, n_trees, bootstrap=counts, rng=seed)
    expected = classic.out_of_bag(forest, of.rows, counts).astype(np.float64)
    residuals: FloatArray = outputs(goal) - expected
    return residuals


def conditional_test(
    x: ArrayLike,
    y: ArrayLike,
    z: ArrayLike | Samples,
    *,
    n_trees: int = 100,
    n_bootstrap: int = 999,
    task: str = "classification",
    grow: Grower | None = None,
    progress: Progress = None,
    rng: Rng = None,
) -> ConditionalTest:
    """Tests whether y depends on x given z: whether what forests of z leave of both is correlated.

    Parameters
    ----------
    x : (n_samples,) or (n_samples, n_columns) array-like
        Finite numbers, of absolute value at most 1e100. Categories are columns of indicators.
    y : (n_samples,) array-like of labels, or (n_samples,) or (n_samples, n_outputs) array-like of targets
        Labels 0 to n_classes - 1, each of which occurs, of two classes or more; or targets of any real dtype
        in a regression.
    z : (n_samples, n_features) array-like of real numbers, sparse matrix, or Samples
        What is known already; encoded once for all forests.
    n_trees : int
        Number of trees of each forest, 1 to 2**20.
    n_bootstrap : int
        Draws of the multiplier bootstrap; the least p-value is 1 / (n_bootstrap + 1).
    task : "classification" or "regression"
        Whether y holds labels or targets.
    grow : callable, optional
        Called as grow(z, y, n_trees=..., bootstrap=..., rng=...), with n_classes or task beside these, where
        z are Samples; returns a Forest. By default `hforest.classic.grow` with min_samples_leaf=10; bind
        settings by functools.partial.
    progress : callable or bool, optional
        Called as progress(done, n_columns) after the forest of each column of x; False ends them, and the
        test is of the columns so far. True shows a bar.
    rng : None, int or numpy.random.Generator
        Source of random numbers; the same int gives the same result in every call.

    Returns
    -------
    ConditionalTest
        The p-value, and the covariances of which it takes the largest.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong kind, dtype or shape; numbers out of their range; too few trees for rows to be out-of-bag.

    Warnings
    --------
    It sees covariance alone: where x tells of y given z in a way that leaves residuals uncorrelated, as in
    ``y = x**2`` with symmetric x, it has no power. Its p-value holds as n_samples grows, and if the product
    of the errors of both regressions falls faster than ``1 / n_samples`` (Shah and Peters 2020). No test of
    conditional independence holds for all distributions and has power, as they show.

    Notes
    -----
    The generalised covariance measure of Shah and Peters 2020, section 3: with residuals e of a column of x
    and u of y, both of out-of-bag predictions from z, ``T = sqrt(n) mean(e u) / sd(e u)``. For several
    columns, classes or targets the statistic is the largest absolute T, and its distribution that of the
    largest ``sum_i g_i (e u - mean(e u))_i / (sd sqrt(n))`` with normal g_i, the same for all columns. A
    forest is grown for each column of x, and one for y.

    Out-of-bag predictions of both forests are means of neighbouring rows. Where these are few, and the same
    ones, products of residuals are correlated over the rows, and the p-value is too small: hence leaves of
    ten rows or more. Cost: n_columns + 1 forests, and a product of
    n_bootstrap, n_samples and n_columns n_outputs.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(200, 2)); x = z[:, 0] + rng.normal(size=200); y = z[:, 0] + x
    >>> hforest.stats.conditional_test(x, y, z, task="regression", rng=0).p_value
    0.001
    """
    of = problem(z, y, task, name="z")
    n = len(of.samples)
    columns = _columns("x", x, n)
    n_trees = check.integer("n_trees", n_trees, 1, check.MAX_TREES)
    n_bootstrap = check.integer("n_bootstrap", n_bootstrap, 1, check.MAX_COUNT)
    check_grower(grow, of.goal, "bootstrap", "rng")
    grow, seed = _smooth if grow is None else grow, check.seed(rng)
    left: list[FloatArray] = []
    with reporting(progress, columns.shape[1], "column") as report:
        of_y = _residuals(of, of.goal, grow, n_trees, seed_of(seed, 0))
        for j in range(columns.shape[1]):
            goal = supervised.Target(None, columns[:, j : j + 1], 1)
            left.append(_residuals(of, goal, grow, n_trees, seed_of(seed, 1 + j)))
            if not report(1 + j):
                break
    of_x = np.hstack(left)
    if of.goal.labels is not None and of.goal.n_outputs == 2:
        of_y = of_y[:, 1:]  # that of class 0 is its negative
    voted = ~(np.isnan(of_x).any(axis=1) | np.isnan(of_y).any(axis=1))
    n_rows = int(voted.sum())
    if n_rows < 2:
        raise ValueError(
            f"n_trees: expected rows that are out-of-bag in all forests, got {n_rows}; grow more trees"
        )
    product = (of_x[voted, :, None] * of_y[voted, None, :]).reshape(n_rows, -1)
    covariances, centred = _normalised(product)
    statistic = float(abs(covariances).max())
    exceed = _largest_multiplied(centred, n_bootstrap, seed, statistic)
    shape = (of_x.shape[1], of_y.shape[1])
    return ConditionalTest((1 + exceed) / (1 + n_bootstrap), statistic, covariances.reshape(shape), n_rows)


def _normalised(product: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means over their standard errors, and deviations from the mean over the standard deviation."""
    # In units of the largest product of each column: squares neither overflow nor vanish.
    unit = abs(product).max(axis=0)
    product = np.divide(product, unit, out=np.zeros_like(product), where=unit > 0)
    mean = product.mean(axis=0)
    centred = product - mean
    deviation = np.sqrt((centred**2).mean(axis=0))
    varies = deviation > 1e-12
    centred = np.divide(centred, deviation, out=np.zeros_like(centred), where=varies)
    t = np.divide(np.sqrt(len(product)) * mean, deviation, out=np.zeros_like(mean), where=varies)
    return t, centred


def _largest_multiplied(centred: FloatArray, n_bootstrap: int, seed: int, statistic: float) -> int:
    """How many largest multiplied means reach the statistic."""
    n, exceed = len(centred), 0
    step = max(1, _DRAWN // max(centred.shape))
    for first in range(0, n_bootstrap, step):
        draws = normals(seed, first, min(step, n_bootstrap - first), n)
        exceed += int((abs(draws @ centred).max(axis=1) / np.sqrt(n) >= statistic).sum())
    return exceed


def conditional_randomization_test(
    x: ArrayLike,
    y: ArrayLike,
    z: ArrayLike,
    sampler: Sampler,
    *,
    statistic: str | Statistic | None = None,
    n_trees: int = 100,
    n_permutations: int = 999,
    max_exceed: int | None = 10,
    draw: str = "fixed",
    weighting: str = "counts",
    task: str = "classification",
    grow: Grower | None = None,
    progress: Progress = None,
    rng: Rng = None,
) -> PermutationTest:
    """Tests whether y depends on x given z, where the distribution of x given z can be sampled.

    Parameters
    ----------
    x : (n_samples,) or (n_samples, n_columns) array-like
        Finite numbers, of absolute value at most 1e100.
    y : (n_samples,) array-like of labels, or (n_samples,) or (n_samples, n_outputs) array-like of targets
        Labels 0 to n_classes - 1, each of which occurs, of two classes or more; or targets of any real dtype
        in a regression.
    z : (n_samples,) or (n_samples, n_features) array-like
        Finite numbers, of absolute value at most 1e100.
    sampler : callable
        Called as sampler(x, z, rng) with matrices of float64 and a numpy.random.Generator; returns an array
        of the shape of x, drawn from the distribution of x given z, independent of y and, given z, of x.
    statistic : str or callable, optional
        Of out-of-bag posteriors and labels: "information", the default, "accuracy", "mutual_information", and
        of two classes "auc", "sensitivity" or "partial_auc"; in a regression "mse", the default, whose
        negative is taken. Or a function of (p, y), such as functools.partial(stats.sensitivity,
        specificity=0.9), which returns a number that is larger with more dependence. Rows without a vote are
        left out before.
    n_trees : int
        Number of trees of each forest, 1 to 2**20.
    n_permutations : int
        Draws at most; the least p-value is 1 / (n_permutations + 1).
    max_exceed : int or None
        Draws end once this many statistics are as large as the observed one. None makes all.
    draw : "fixed" or "bootstrap"
        How rows are drawn, as `honest_counts` explains.
    weighting : "counts" or "shares"
        How trees are averaged, as `posterior` explains.
    task : "classification" or "regression"
        Whether y holds labels or targets.
    grow : callable, optional
        Called as grow(x, y, n_trees=..., bootstrap=..., rng=...), with n_classes or task beside these, where
        x are Samples; returns a Forest. By default `hforest.classic.grow`; bind settings by
        functools.partial.
    progress : callable or bool, optional
        Called as progress(done, n_permutations) after each draw; False ends them, and the p-value comes from
        those so far. True shows a bar.
    rng : None, int or numpy.random.Generator
        Source of random numbers; the same int gives the same result in every call.

    Returns
    -------
    PermutationTest
        The p-value, the observed statistic, and those of sampled columns.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong kind, dtype or shape; numbers out of their range; a sampler that returns another shape; too few
        rows of a class for `honest_counts`; too few trees for any row to have a vote.

    Notes
    -----
    Candès, Fan, Janson and Lv 2018, section 4: if y does not depend on x given z, x and its samples are
    exchangeable given y and z, and so are the statistics of honest forests on the columns of both. The
    p-value holds at every number of rows if the sampler is right, and as nearly as it is. Draws end as in
    `permutation_test`. Columns are encoded anew for each draw. Cost: up to 1 + n_permutations forests.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(80, 1)); x = z + rng.normal(size=(80, 1)); y = x[:, 0] > 0
    >>> sampler = lambda x, z, rng: z + rng.normal(size=x.shape)
    >>> test = hforest.stats.conditional_randomization_test(
    ...     x, y, z, sampler, n_trees=20, n_permutations=19, rng=0)
    >>> test.p_value
    0.05
    """
    columns = _columns("x", x)
    known = _columns("z", z, len(columns))
    of = problem(np.hstack([columns, known]), y, task)
    check.instance("sampler", sampler, Callable, "a function", "pass a function of (x, z, rng)")
    check.called_with("sampler", sampler, "x, z, rng", "pass a function of (x, z, rng)")
    draws = HonestDraws(of.goal, grow, statistic, n_trees, weighting, draw, rng)

    def sampled(b: int) -> tuple[float, int]:
        if b == 0:
            return draws.statistic_of(of, 0)
        generator = np.random.default_rng(seed_of(draws.seed, 2 * b + 1))
        drawn = _columns("sampler", sampler(columns.copy(), known.copy(), generator))
        check.require(
            drawn.shape == columns.shape, "sampler", f"a function that returns shape {columns.shape}",
            tuple(drawn.shape), "return a value for each number of x",
        )  # fmt: skip
        samples = growth.samples(np.hstack([drawn, known]))
        return draws.statistic_of(of._replace(samples=samples, rows=samples.numbers), b)

    return sequential(sampled, n_permutations, max_exceed, progress)
