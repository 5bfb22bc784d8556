"""Tests of conditional independence: the generalised covariance measure, and conditional randomisation."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from .. import growth, tree
from ..core import check, notebooks, supervised
from ..core.aliases import (
    Array,
    ArrayLike,
    Draw,
    FloatArray,
    Progress,
    Rng,
    SparseArray,
    StatisticName,
    Task,
    Weighting,
)
from ..core.draws import seed_of, signs
from ..core.progress import reporting
from ..growth import Samples
from .additive import additive_basis
from .groups import Groups, checked
from .permutation import HonestDraws
from .problem import (
    Grower,
    PermutationTest,
    Problem,
    check_grower,
    grown,
    members,
    outputs,
    problem,
    sequential,
)
from .statistics import Statistic

Sampler = Callable[[FloatArray, FloatArray, np.random.Generator], ArrayLike]
"""A function sampler(x, z, rng), which draws (n_samples, n_columns) from the distribution of x given z."""

_DRAWN = 1 << 22
"""Count of the numbers of one matrix product."""
_ROUNDING = 1e-12
"""Largest residual, of values from 0 to 1, that counts as a rounding error."""


class ConditionalTest(NamedTuple):
    """Result of `conditional_test`: the p-value of the generalised covariance measure."""

    p_value: float
    """The p-value, above 0 and at most 1."""
    statistic: float
    """The largest absolute value in `covariances`."""
    covariances: FloatArray
    """(n_columns, n_outputs) float64: covariances of residuals of each column of x and each class or target,
    divided by their standard errors; 0 where residuals do not vary."""
    n_rows: int
    """Number of rows that are out-of-bag in some tree of every forest."""

    @notebooks.shown_by
    def _repr_html_(self) -> notebooks.Rows:
        column, output = np.unravel_index(abs(self.covariances).argmax(), self.covariances.shape)
        return [
            ("ConditionalTest", ""),
            ("p-value", self.p_value),
            ("statistic", self.statistic),
            ("of column, output", f"{column}, {output}"),
            ("columns, outputs", ", ".join(map(str, self.covariances.shape))),
            ("rows", self.n_rows),
        ]


_smooth = partial(growth.grow, splitter="random", min_samples_leaf=2)
"""Grows the forests that predict from z: small leaves have little bias, and random thresholds follow the
targets less, so that the variance given the weights is nearer that of the sum."""
_TIMES = 2
"""How often the predictions of a forest are subtracted."""
_EXACT = 512
"""Largest number of rows whose residuals have a matrix; the lengths of more rows are estimated."""
_ENTRIES = 4
"""Largest number of weights of a row and tree that are stored; more are products of two factors."""
_SIGNS = 256
"""Draws of signs that estimate lengths."""


def _columns(name: str, a: ArrayLike, n: int | None = None) -> FloatArray:
    """Returns (n_samples, n_columns) float64 of finite numbers, from a matrix or one column."""
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


class _Residuals(NamedTuple):
    """Computes residuals, after an additive model of z and a forest on z, as products of matrices."""

    basis: FloatArray
    """(n_samples, rank): orthonormal columns, see `additive_basis`."""
    voted: Array
    """(n_samples,) bool: whether a row has a prediction."""
    factors: tuple[SparseArray | FloatArray, ...]
    """Matrices whose product, (n_samples, n_samples), has the weights of rows in predictions."""
    matrix: FloatArray | None = None
    """(n_samples, n_samples): the weights of rows in residuals, for few rows."""

    def of(self, values: FloatArray) -> FloatArray:
        """Returns (n_samples, n_values), values minus predictions; 0 without a prediction or for rounding
        errors.
        """
        if self.matrix is not None:
            left = self.matrix @ values
        else:
            left = values - self.basis @ (self.basis.T @ values)
            for _ in range(_TIMES):
                predicted = left
                for factor in self.factors[::-1]:
                    predicted = factor @ predicted
                left = np.where(self.voted[:, None], left - predicted, 0.0)
        return np.where(abs(left) > _ROUNDING, left, 0.0)

    @property
    def n_numbers(self) -> int:
        """Count of the numbers for one column of values."""
        return max(max(factor.shape) for factor in self.factors)

    def lengths(self, seed: int) -> FloatArray:
        """Returns (n_samples, 1): roots of the sums of squared weights in the residual of each row, or 1."""
        n = len(self.basis)
        if self.matrix is not None:
            square = (self.matrix**2).sum(axis=1)
        else:
            square, step = np.zeros(n), max(1, _DRAWN // self.n_numbers)
            for first in range(0, _SIGNS, step):
                drawn, _ = signs(seed, first, min(step, _SIGNS - first), n)
                square += (self.of(drawn.T) ** 2).sum(axis=1) / _SIGNS
        return np.sqrt(np.where(square > 0, square, 1.0))[:, None]


def _residuals(
    data: Problem, basis: FloatArray, groups: Groups, target: supervised.Target, grow: Grower | None,
    n_trees: int, seed: int,
) -> _Residuals:  # fmt: skip
    """Returns the residuals after an additive model and a forest that predicts from z."""
    counts = groups.bootstrap_counts(n_trees, seed)
    forest = grown(grow, data.samples, target, n_trees, bootstrap=counts, rng=seed)
    leaf = tree.apply(forest, data.rows)
    in_bag = members(forest, leaf, counts)
    rows = in_bag.sum(axis=0)[in_bag.indices].reshape(leaf.shape)
    votes = (counts == 0) & (rows.T > 0)
    weight = members(forest, leaf, votes)
    weight.data /= np.maximum(1, votes.sum(axis=0)[:, None] * rows).ravel()
    for matrix in (weight, in_bag):
        matrix.eliminate_zeros()
    voted, factors, n = np.diff(weight.indptr) > 0, (weight, in_bag.T.tocsr()), len(basis)
    if n <= _EXACT:
        few = _Residuals(basis, voted, ((factors[0] @ factors[1]).toarray(),))
        return few._replace(matrix=few.of(np.eye(n)))
    if int(rows.T[votes].sum()) <= _ENTRIES * leaf.size:
        return _Residuals(basis, voted, (factors[0] @ factors[1],))
    return _Residuals(basis, voted, factors)


def _scaled(values: FloatArray) -> FloatArray:
    """Returns columns scaled to 0 to 1 (constant ones: 0), whose products neither overflow nor underflow."""
    width = np.ptp(values, axis=0)
    return (values - values.min(axis=0)) / np.where(width > 0, width, 1.0)


def conditional_test(
    x: ArrayLike,
    y: ArrayLike,
    z: ArrayLike | Samples,
    *,
    n_trees: int = 100,
    n_bootstrap: int = 999,
    groups: ArrayLike | None = None,
    task: Task = "classification",
    grow: Grower | None = None,
    progress: Progress = None,
    rng: Rng = None,
) -> ConditionalTest:
    """Returns an approximate p-value for dependence of y on x given z, from the correlation of residuals.

    Other parameters: see `permutation_test`.

    Parameters
    ----------
    x : (n_samples,) or (n_samples, n_columns) array-like
        Finite numbers, of absolute value at most 1e100. Categories are columns of indicators.
    z : (n_samples, n_features) array-like of real numbers, sparse matrix, or Samples
        Conditioning features, encoded once for all forests.
    n_bootstrap : int
        Number of draws of signs; the smallest p-value is 1 / (n_bootstrap + 1).
    grow : callable, optional
        As for `permutation_test`, with z in place of x; leaf values of its forests are not read. By default
        `hforest.grow` with splitter="random", min_samples_leaf=2.
    progress : callable or bool, optional
        Called as progress(done, n_columns) after the forest of each column of x. If it returns False, only
        the columns so far are tested. True shows a bar.

    Returns
    -------
    ConditionalTest
        The p-value, and the covariances; the statistic is the largest absolute one.

    Raises
    ------
    ValueError
        Too few trees for out-of-bag rows.

    Warnings
    --------
    The test detects only covariance. It has no power if y depends on x given z but residuals are
    uncorrelated, as in ``y = x**2`` with symmetric x. The p-value is approximate. It is valid asymptotically,
    if the product of the errors of both regressions falls faster than ``1 / n_samples`` (Shah and Peters
    2020). They show that no test of conditional independence with power is valid for all distributions. With
    few rows it is too small if x and y depend on the same interaction of columns of z.

    Notes
    -----
    The generalised covariance measure of Shah and Peters 2020, section 3, with another variance. e are the
    residuals of a column of x, and u those of y, after regressions on z. First comes an additive model, by
    least squares: natural cubic splines of each column of z (Hastie, Tibshirani and Friedman 2009, equations
    5.4 and 5.5), with products of pairs of columns if they fit. It has at most 256 columns, and at most half
    as many as there are rows, or groups. If z has more columns, it is a constant. Then the out-of-bag
    predictions of a forest on z are subtracted, twice (Tukey 1977, "twicing"), which lowers their bias.

    Predictions are weighted sums of rows: ``e = A x`` and ``u = B y``. So the sum of ``e u`` is a sum over
    pairs of rows. The paper's sample variance of ``e u`` omits the pairs. Here the variance is
    ``sum_ij Q[i, j]**2 e[i]**2 u[j]**2`` with ``Q = A' B``. In it residuals are divided by the lengths of
    their rows of A and B, so that each has the variance of its noise (MacKinnon and White 1985, HC2). That is
    the variance of the sum given the weights, if y does not depend on x given z. A covariance is the sum
    divided by its standard error.

    The p-value compares it with covariances of residuals of residuals, ``A (g e)`` and ``B (h u)``. The signs
    g and h are independent for each row and draw. Up to 512 rows, each draw has its own standard error. With
    more rows, or with `groups`, one error is the root mean square of all draws. For several columns, classes
    or targets the statistic is the largest absolute covariance; the signs are the same for all columns. A
    forest is grown for each column of x, and one for y.

    With `groups` the rows of a group have equal signs, and forests draw groups.

    Cost: n_columns + 1 forests, and for each column and output a few nanoseconds per draw, row and tree.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(200, 2)); x = z[:, 0] + rng.normal(size=200); y = z[:, 0] + x
    >>> hforest.stats.conditional_test(x, y, z, task="regression", rng=0).p_value
    0.001
    """
    data = problem(z, y, task, name="z")
    n = len(data.samples)
    columns = _columns("x", x, n)
    n_trees = check.integer("n_trees", n_trees, 1, check.MAX_TREES)
    n_bootstrap = check.integer("n_bootstrap", n_bootstrap, 1, check.MAX_COUNT)
    check_grower(grow, data.target, "bootstrap", "rng")
    grow, seed = _smooth if grow is None else grow, check.seed(rng)
    grouped = checked("groups", groups, n)
    values = outputs(data.target)
    if data.target.labels is not None and data.target.n_outputs == 2:
        values = values[:, 1:]  # the residuals of class 0 are their negatives
    products, voted = [], np.ones(n, np.bool_)
    basis = additive_basis(data.rows, len(grouped.first))
    with reporting(progress, columns.shape[1], "column") as report:
        y_of_z = _residuals(data, basis, grouped, data.target, grow, n_trees, seed_of(seed, 0))
        for j in range(columns.shape[1]):
            column = columns[:, j : j + 1]
            target = supervised.Target(None, column, 1)
            x_of_z = _residuals(data, basis, grouped, target, grow, n_trees, seed_of(seed, 1 + j))
            voted &= x_of_z.voted & y_of_z.voted
            products.append(_covariances(x_of_z, y_of_z, column, values, grouped, n_bootstrap, seed))
            if not report(1 + j):
                break
    n_rows = int(voted.sum())
    if n_rows < 2:
        raise ValueError(
            f"n_trees: expected rows that are out-of-bag in all forests, got {n_rows} rows; grow more trees"
        )
    covariances = np.stack(products, axis=1)
    largest = abs(covariances).max(axis=(1, 2))
    exceed = int((largest[1:] >= largest[0]).sum())
    return ConditionalTest((1 + exceed) / (1 + n_bootstrap), float(largest[0]), covariances[0], n_rows)


def _covariances(
    x_of_z: _Residuals, y_of_z: _Residuals, x: FloatArray, y: FloatArray, groups: Groups, n_bootstrap: int,
    seed: int,
) -> FloatArray:  # fmt: skip
    """Returns (1 + n_bootstrap, n_outputs), sums of products of residuals of x and y, then of their draws.

    They are divided by their standard errors: of few rows without groups by those of each draw, otherwise by
    the root mean square of the draws.
    """
    n, of_e, of_u = len(x), x_of_z.lengths(seed), y_of_z.lengths(seed)
    square = None
    if x_of_z.matrix is not None and y_of_z.matrix is not None and len(groups.first) == n:
        square = (x_of_z.matrix.T @ y_of_z.matrix) ** 2

    def divided(e: FloatArray, u: FloatArray) -> FloatArray:
        """Returns (n_draws, n_outputs): sums over rows, divided by their errors if these are known."""
        e = e[:, :, None]
        if square is None:
            return (e * u).sum(axis=0)
        pairs = (square @ ((u / of_u[:, None]) ** 2).reshape(n, -1)).reshape(u.shape)
        return _ratio((e * u).sum(axis=0), ((e / of_e[:, None]) ** 2 * pairs).sum(axis=0))

    e, u = x_of_z.of(_scaled(x)), y_of_z.of(_scaled(y))
    made = [divided(e, u[:, None])]
    e, u = e / of_e, u / of_u
    step = max(1, _DRAWN // max(u.size, x_of_z.n_numbers, y_of_z.n_numbers))
    for first in range(0, n_bootstrap, step):
        of_groups = signs(seed, first, min(step, n_bootstrap - first), len(groups.first))
        of_x, of_y = of_groups[:, :, groups.of_row]
        drawn_u = y_of_z.of((of_y.T[:, :, None] * u[:, None]).reshape(n, -1))
        made.append(divided(x_of_z.of(of_x.T * e), drawn_u.reshape(n, -1, u.shape[1])))
    covariances = np.concatenate(made)
    return covariances if square is not None else _ratio(covariances, (covariances[1:] ** 2).mean(axis=0))


def _ratio(sums: FloatArray, variance: FloatArray) -> FloatArray:
    """Returns sums divided by the roots of their variances; 0 where these are 0."""
    return np.divide(sums, np.sqrt(variance), out=np.zeros_like(sums), where=variance > 0)


def conditional_randomization_test(
    x: ArrayLike,
    y: ArrayLike,
    z: ArrayLike,
    sampler: Sampler | Literal["permuted"],
    *,
    allow_invalid: bool = False,
    statistic: StatisticName | Statistic | None = None,
    n_trees: int = 100,
    n_permutations: int = 999,
    max_exceed: int | None = 10,
    draw: Draw = "fixed",
    weighting: Weighting = "counts",
    task: Task = "classification",
    grow: Grower | None = None,
    progress: Progress = None,
    rng: Rng = None,
) -> PermutationTest:
    """Returns a p-value for dependence of y on x given z, if the distribution of x given z can be sampled.

    Other parameters: see `permutation_test`, with draws of x in place of permutations.

    Parameters
    ----------
    x, z : (n_samples,) or (n_samples, n_columns) array-likes
        Finite numbers, of absolute value at most 1e100.
    sampler : callable or "permuted"
        Called as sampler(x, z, rng) with matrices of float64 and a numpy.random.Generator; returns an array
        of the shape of x, drawn from the distribution of x given z, independently of y and x. "permuted"
        permutes the rows of x, with `allow_invalid` only.
    allow_invalid : bool
        Whether "permuted" is accepted, for x that does not depend on z by design. Otherwise its p-values are
        too small: see Notes.

    Returns
    -------
    PermutationTest
        The p-value, the observed statistic, and those of sampled columns.

    Raises
    ------
    ValueError
        As from `permutation_test`; a sampler that returns another shape; "permuted" without `allow_invalid`.

    Notes
    -----
    Candès, Fan, Janson and Lv 2018, section 4: if y does not depend on x given z, x and its samples are
    exchangeable given y and z. So are the statistics of honest forests on the columns of x and z. The p-value
    is valid for any number of rows if the sampler is exact, and approximately valid if it is approximate.
    Draws end as in `permutation_test`. Columns are encoded again for each draw.

    "permuted" is the test of CoMIGHT (Curtis et al. 2025). It is valid if x does not depend on z. With a
    correlation of 0.9 it rejects 0.27 of data sets at the level 0.05 though y depends on z alone. Cost: up to
    1 + n_permutations forests.

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
    data = problem(np.hstack([columns, known]), y, task)
    permutes = isinstance(sampler, str) and sampler == "permuted"
    check.flag("allow_invalid", allow_invalid)
    check.require(
        not permutes or allow_invalid, "sampler", "a function that draws x given z",
        '"permuted", which is valid for x independent of z only',
        "use conditional_test, or pass allow_invalid=True if x cannot depend on z",
    )  # fmt: skip
    draw_x: Any = _permuted if permutes else sampler
    advice = 'pass a function of (x, z, rng), or "permuted"'
    check.instance("sampler", draw_x, Callable, 'a function or "permuted"', advice)
    check.called_with("sampler", draw_x, "x, z, rng", advice)
    draws = HonestDraws(data.target, grow, statistic, n_trees, weighting, draw, rng)

    def sampled(b: int) -> tuple[float, int]:
        if b == 0:
            return draws.statistic_of(data, 0)
        generator = np.random.default_rng(seed_of(draws.seed, 2 * b + 1))
        drawn = _columns("sampler", draw_x(columns.copy(), known.copy(), generator))
        check.require(
            drawn.shape == columns.shape, "sampler", f"a function that returns shape {columns.shape}",
            tuple(drawn.shape), "return an array of the shape of x",
        )  # fmt: skip
        samples = growth.samples(np.hstack([drawn, known]))
        return draws.statistic_of(data._replace(samples=samples, rows=samples.numbers), b)

    return sequential(sampled, n_permutations, max_exceed, progress)


def _permuted(x: FloatArray, z: FloatArray, rng: np.random.Generator) -> FloatArray:
    return rng.permutation(x)
