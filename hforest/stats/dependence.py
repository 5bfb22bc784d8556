"""Distance correlation of matrices of distances."""

from typing import NamedTuple

import numpy as np

from ..core import check, notebooks, supervised
from ..core.aliases import ArrayLike, FloatArray
from .problem import float_numbers

LEAST_ROWS = 4
"""Minimum number of rows of an unbiased distance correlation."""
_LEAST = 1e-12
"""Largest norm per row of centred distances that counts as a rounding error."""


class DistanceCorrelation(NamedTuple):
    """Unbiased distance correlation, and its p-value."""

    statistic: float
    """The correlation, -1 to 1; its mean under independence is 0."""
    p_value: float
    """The p-value by the chi-square approximation."""

    @notebooks.shown_by
    def _repr_html_(self) -> notebooks.Rows:
        return [("DistanceCorrelation", ""), ("statistic", self.statistic), ("p-value", self.p_value)]


def centered(distances: FloatArray) -> FloatArray:
    """Returns U-centred distances (Székely and Rizzo 2014), divided by their norm; 0 where all are equal."""
    n, unit = len(distances), abs(distances).max()
    a = distances / (unit if unit > 0 else 1.0)
    np.fill_diagonal(a, 0)
    of_row = a.sum(axis=0) / (n - 2)
    a += of_row.sum() / (n - 1) - of_row[:, None] - of_row
    np.fill_diagonal(a, 0)
    norm = np.sqrt((a**2).sum())
    return a / norm if norm > _LEAST * n else np.zeros_like(a)


def _distances(name: str, a: ArrayLike, n: int | None = None) -> FloatArray:
    numbers = float_numbers(name, a)
    size = len(numbers) if n is None and numbers.ndim == 2 else n
    rows = f"of at least {LEAST_ROWS}" if n is None else f"= {n}"
    check.require(
        numbers.shape == (size, size) and len(numbers) >= LEAST_ROWS, name,
        f"shape (n_samples, n_samples) with n_samples {rows}",
        tuple(numbers.shape), "pass the distances of all pairs of rows",
    )  # fmt: skip
    supervised.bounded(name, numbers, -supervised.MAX_WEIGHT, supervised.MAX_WEIGHT)
    symmetric = not check.values_checked() or bool((numbers == numbers.T).all())
    check.require(symmetric, name, "a symmetric matrix", "an asymmetric one", f"pass ({name} + {name}.T) / 2")
    return numbers


def distance_correlation(of_x: ArrayLike, of_y: ArrayLike) -> DistanceCorrelation:
    """Returns the unbiased distance correlation of two matrices of distances, with a p-value of independence.

    Parameters
    ----------
    of_x : (n_samples, n_samples) array-like
        Distances of the rows of x, such as those of forests: ``1 - hforest.tree.proximity(forest, x)``.
        Symmetric, finite, of absolute value at most 1e100, at least 4 rows; the diagonal is not read.
    of_y : (n_samples, n_samples) array-like
        Distances of y for the same rows: absolute differences of targets, or 1 where labels differ.

    Returns
    -------
    DistanceCorrelation
        The correlation, 0 where all distances are equal, and the p-value.

    Warnings
    --------
    The p-value is valid only if the distances are independent whenever x and y are. Distances of a forest
    grown on the same y are not: the p-value of KMERF (Panda, Shen and Vogelstein, arXiv 1812.00029) on one
    set of rows is not valid. Grow the forest on other rows, or use `split_test` with
    ``statistic="distance_correlation"``, whose p-value is exact.

    Notes
    -----
    Székely and Rizzo 2014: with ``A[i, j] = a[i, j] - sum_k a[i, k] / (n - 2) - sum_k a[k, j] / (n - 2) +
    sum_kl a[k, l] / ((n - 1) (n - 2))``, 0 on the diagonal, and B likewise of the other distances, the
    correlation is ``sum A B / sqrt(sum A**2 sum B**2)``. Shen, Panda and Vogelstein 2022: the p-value is the
    probability that a chi-square variable with one degree of freedom is at least ``n statistic + 1``. For
    many independent rows this is conservative up to levels of about 0.05. Cost: a few passes over the
    matrices.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(200, 3)); y = x[:, 0] ** 2
    >>> forest = hforest.grow(x[:100], y[:100], task="regression", min_samples_leaf=5, rng=0)
    >>> of_x = 1 - hforest.tree.proximity(forest, x[100:]).toarray()
    >>> of_y = abs(y[100:, None] - y[100:])
    >>> hforest.stats.distance_correlation(of_x, of_y).p_value < 1e-6
    True
    """
    from scipy.stats import chi2

    a = _distances("of_x", of_x)
    b = _distances("of_y", of_y, len(a))
    statistic = float((centered(a) * centered(b)).sum())
    return DistanceCorrelation(statistic, float(chi2.sf(len(a) * statistic + 1, 1)))
