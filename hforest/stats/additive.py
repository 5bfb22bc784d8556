"""Additive models: natural splines of each column, and products of pairs of columns."""

from typing import Any

import numpy as np

from ..core import check, sparse
from ..core.aliases import FloatArray

_COLUMNS = 256
"""Largest number of columns of a basis."""
_RANK = 1e-10
"""Smallest singular value of a basis, over the largest."""


def splines(column: FloatArray, degrees: int) -> FloatArray:
    """Returns (n_samples, at most degrees) natural cubic splines of a column of numbers from 0 to 1.

    Hastie, Tibshirani and Friedman 2009, equations 5.4 and 5.5, without the constant. Knots are quantiles at
    Chebyshev nodes, which are dense in both tails; or all values, if there are few.
    """
    knot = np.unique(column)
    if len(knot) > degrees + 1:
        node = (1 - np.cos(np.pi * np.arange(degrees + 1) / degrees)) / 2
        knot = np.unique(np.quantile(column, node))
    cubic = np.maximum(column[:, None] - knot[:-1], 0) ** 3 / (knot[-1] - knot[:-1])
    return np.column_stack([column, cubic[:, :-1] - cubic[:, -1:]])


def additive_basis(rows: Any, n_groups: int) -> FloatArray:
    """Returns (n_samples, rank) orthonormal columns: a constant and splines of each column of a matrix.

    They are at most n_groups / 2 and _COLUMNS. Products of pairs of columns are added, and missing numbers
    have indicators, if they fit; with too many columns only the constant is left.
    """
    n, d = rows.shape
    most = min(_COLUMNS, n_groups // 2)
    columns = [np.ones((n, 1))]
    if d <= most:
        with check.memory("z", "splines", 24 * n * (1 + most)):
            z = np.asarray(rows.toarray() if sparse.is_sparse(rows) else rows, np.float64)
            missing = np.isnan(z)
            indicators = missing[:, missing.any(axis=0)].astype(np.float64)
            z = _shares(np.where(missing, 0.0, z))  # the difference of two numbers may overflow
            z = _shares(z - z.min(axis=0))
            most -= indicators.shape[1]
            degrees = min(int(np.ceil(np.cbrt(n_groups))), most // d)
            if degrees > 0:
                columns += [indicators, *(splines(z[:, j], degrees) for j in range(d))]
                first, second = np.triu_indices(d, 1)
                if d * degrees + len(first) <= most:
                    centred = z - z.mean(axis=0)
                    columns.append(centred[:, first] * centred[:, second])
    left, value, _ = np.linalg.svd(_shares(np.hstack(columns)), full_matrices=False)
    return left[:, value > _RANK * value[0]]


def _shares(columns: FloatArray) -> FloatArray:
    """Returns columns divided by their largest absolute values; columns of zeros unchanged."""
    largest = abs(columns).max(axis=0)
    return columns / np.where(largest > 0, largest, 1.0)
