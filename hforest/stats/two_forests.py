"""Comparison of two forests by exchanged trees, as published. Its share is not a valid p-value."""

from typing import NamedTuple

import numpy as np

from .. import tree
from ..core import check, supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray, Progress, Rng, Task
from ..core.draws import blocks, orders, permutation, seed_of, subset
from ..growth import Samples
from .problem import (
    Grower,
    check_grower,
    checked_draws,
    dense_rows,
    encoded_as,
    grown,
    in_blocks,
    leaf_values,
    outputs,
    problem,
)

_EXCHANGED = 1 << 22
"""Numbers of one matrix product."""


class TwoForestTest(NamedTuple):
    """Result of `two_forest_test`: the difference of errors, and the differences after exchanges of trees."""

    share: float
    """Share of the exchanges, the observed one among them, whose difference is as large. Not a p-value."""
    statistic: float
    """Increase of the mean squared error by the permutation of the columns."""
    null: FloatArray
    """(n_permutations,) float64: differences after exchanges of trees."""


def two_forest_test(
    x: ArrayLike | Samples,
    y: ArrayLike,
    x_test: ArrayLike,
    y_test: ArrayLike,
    columns: ArrayLike,
    *,
    n_trees: int = 125,
    n_subsample: int | None = None,
    n_permutations: int = 999,
    task: Task = "classification",
    grow: Grower | None = None,
    progress: Progress = None,
    rng: Rng = None,
) -> TwoForestTest:
    """Returns a comparison of a forest with one grown on permuted columns, by exchanges of their trees.

    Parameters
    ----------
    x : (n_samples, n_features) array-like of real numbers, or Samples
        Rows to grow on. For categories or bins pass the result of `hforest.growth.samples`.
    y : (n_samples,) array-like of labels, or (n_samples,) or (n_samples, n_outputs) array-like of targets
        Labels 0 to n_classes - 1, each of which occurs, of two classes or more; or targets of any real dtype
        in a regression.
    x_test : (n_test, n_features) array-like of real numbers
        Rows on which the forests are compared, at least one; preferably not rows of x.
    y_test : (n_test,) array-like of labels, or (n_test,) or (n_test, n_outputs) array-like of targets
        As y.
    columns : int, or (n_columns,) array-like of ints
        Columns of x whose rows are permuted together for the second forest.
    n_trees : int
        Number of trees of each forest, 1 to 2**19.
    n_subsample : int, optional
        Number of distinct rows that each tree draws, 1 to n_samples; by default ``n_samples**0.6``, rounded.
    n_permutations : int
        Number of exchanges of trees.
    task : "classification" or "regression"
        Whether y holds labels or targets.
    grow : callable, optional
        Called as grow(x, y, n_trees=..., bootstrap=..., rng=...), with additional n_classes or task, where x
        is a Samples; returns a Forest. By default `hforest.grow`; bind settings by functools.partial.
    progress : callable or bool, optional
        Called as progress(done, n_permutations) after a batch of exchanges. If it returns False, the share
        comes from those so far. True shows a bar.
    rng : None, int or numpy.random.Generator
        Source of random numbers; the same int gives the same result in every call.

    Returns
    -------
    TwoForestTest
        The share, the difference of errors, and the differences after exchanges.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong type, dtype or shape; numbers out of range; columns out of range.

    Warnings
    --------
    The share is not a valid p-value. Trees of one forest share one permutation of the columns and one set of
    rows. So, as trees are added, the difference of two forests does not vanish, but the spread of exchanged
    trees does. The more trees, the more often the share is small although nothing depends on the columns. Use
    `conditional_test`, or `permutation_test` for all columns together.

    Notes
    -----
    Coleman, Peng and Mentch 2022: the statistic is the mean squared error of the second forest on the test
    rows minus that of the first; of labels, that of class shares to indicators. All 2 n_trees trees are
    divided at random into two forests again and again; the share counts the differences that are at least as
    large. Cost: two forests, and a product of n_test n_outputs, 2 n_trees and n_permutations.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(300, 3)); y = x[:, 0] + rng.normal(size=300)
    >>> compared = hforest.stats.two_forest_test(
    ...     x[:200], y[:200], x[200:], y[200:], 0, n_permutations=99, task="regression", rng=0)
    >>> compared.share
    0.01
    """
    of = problem(x, y, task)
    rows, (n, n_features) = dense_rows(of), of.samples.shape
    some = supervised.some_columns(columns, n_features)
    check.on_cpu(x_test=x_test, y_test=y_test)
    test = supervised.matrix("x_test", x_test, of.samples.dtype, ("n_test", "n_features"), missing=True)
    check.require(
        test.shape[1] == n_features and len(test) > 0, "x_test", f"shape (n_test, {n_features}) with at "
            "least one row",
        tuple(test.shape), "pass rows with the columns of x",
    )  # fmt: skip
    actual = _actual(y_test, len(test), of.goal)
    n_trees = check.integer("n_trees", n_trees, 1, check.MAX_TREES // 2)
    size = max(1, round(n**0.6)) if n_subsample is None else check.integer("n_subsample", n_subsample, 1, n)
    n_permutations = checked_draws(n_permutations)
    check_grower(grow, of.goal, "bootstrap", "rng")
    seed = check.seed(rng)
    permuted = rows.copy()
    permuted[:, some] = rows[permutation(seed, 0, n)[:, None], some]
    values = []
    for number, some_rows in enumerate((rows, permuted)):
        counts = _subsamples(seed, number * n_trees, n_trees, n, size)
        samples, of_forest = encoded_as(of, some_rows), seed_of(seed, number)
        forest = grown(grow, samples, of.goal, n_trees, bootstrap=counts, rng=of_forest)
        values.append(leaf_values(forest, tree.apply(forest, test)))
    predicted = np.concatenate(values, axis=1).transpose(0, 2, 1).reshape(len(actual), 2 * n_trees)
    whole = predicted.sum(axis=1, keepdims=True)

    def differences(first: FloatArray) -> FloatArray:
        """Returns the error of the other trees minus that of the first; a column is 1 for the first trees."""
        of_first = predicted @ first
        errors = [(((a / n_trees) - actual[:, None]) ** 2).mean(axis=0) for a in (of_first, whole - of_first)]
        result: FloatArray = errors[1] - errors[0]
        return result

    observed = float(differences(np.repeat([1.0, 0.0], n_trees)[:, None])[0])

    def exchanged(numbers: range) -> list[float]:
        first = np.zeros((2 * n_trees, len(numbers)))
        for at, b in enumerate(numbers):
            first[subset(seed, 1 + b, 2 * n_trees, n_trees), at] = 1
        result: list[float] = differences(first).tolist()
        return result

    step = max(1, _EXCHANGED // max(predicted.shape))
    share, null = in_blocks(observed, exchanged, n_permutations, step, progress)
    return TwoForestTest(share, observed, null)


def _actual(y: ArrayLike, n: int, goal: supervised.Target) -> FloatArray:
    """Returns (n n_outputs,): targets, or indicators of classes."""
    if goal.labels is not None:
        labels, _ = supervised.labels("y_test", y, n, goal.n_outputs)
        return outputs(goal._replace(labels=labels)).ravel()
    targets = supervised.targets("y_test", y, n)
    check.require(
        targets.shape[1] == goal.n_outputs, "y_test", f"n_outputs = {goal.n_outputs} targets for each row",
        targets.shape[1], "pass as many targets as y has",
    )  # fmt: skip
    flat: FloatArray = targets.ravel()
    return flat


def _subsamples(seed: int, first: int, n_trees: int, n: int, size: int) -> IntArray:
    """Returns (n_trees, n) int32: 1 for the rows that a tree draws, without replacement."""
    counts = np.zeros((n_trees, n), np.int32)
    for trees in blocks(n_trees, n):
        counts[trees[:, None], orders(seed, first + int(trees[0]), len(trees), n)[:, :size]] = 1
    return counts
