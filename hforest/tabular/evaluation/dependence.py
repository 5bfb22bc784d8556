"""Partial dependence of predictions on the columns of a table (Friedman 2001, section 8.2)."""

from typing import NamedTuple

import numpy as np

from ...core.aliases import FloatArray, IntArray
from ..kinds import Columns
from ..model import Model
from ..serving import predict
from ..tables import TIMES

MOST_ROWS = 200
"""Maximum number of rows over which predictions are averaged."""
MOST_POINTS, MOST_LEVELS = 20, 12
"""Maximum numbers of values of a column of numbers, and of categories."""


class Dependence(NamedTuple):
    """Mean predictions when all rows have the same value of a column."""

    grid: FloatArray
    """(n_points,) values: numbers, days since 1970, or 0, 1, ... for categories."""
    texts: tuple[str, ...]
    """Categories, or dates; empty for numbers."""
    mean: FloatArray
    """(n_points, n_outputs) mean predictions."""
    is_categorical: bool


def of_column(model: Model, x: FloatArray, features: IntArray, columns: Columns | None) -> Dependence:
    """Returns the dependence on a column whose features are columns of x (n_rows, n_features).

    The values are those of some rows, with all features of the column: the most frequent categories, or
    quantiles. Missing values are left out.
    """
    rows = np.random.default_rng(0).permutation(len(x))[:MOST_ROWS]
    values = x[:, features]
    known = np.flatnonzero(~np.isnan(values[:, 0]))
    j = -1 if columns is None else int(columns.source[features[0]])
    distinct, first, count = np.unique(values[known, 0], return_index=True, return_counts=True)
    of_levels = columns is not None and bool(columns.level_start[j] < columns.level_start[j + 1])
    if of_levels:
        shown = np.sort(np.argsort(-count, kind="stable")[:MOST_LEVELS])
        chosen = known[first[shown]]
    elif len(distinct) <= MOST_POINTS:
        chosen = known[first]
    else:
        order = known[np.argsort(values[known, 0], kind="stable")]
        chosen = order[np.linspace(0, len(order) - 1, MOST_POINTS).round().astype(int)]
    changed = np.repeat(x[rows], len(chosen), axis=0)  # row after row, each with all values
    changed[:, features] = np.tile(values[chosen], (len(rows), 1))
    p = predict(model._replace(columns=None), changed)
    mean = p.reshape(len(rows), len(chosen), len(model.target_center)).mean(axis=0)
    grid, texts = values[chosen, 0], tuple[str, ...]()
    if columns is not None and of_levels:
        levels = columns.levels[columns.level_start[j] : columns.level_start[j + 1]]
        texts = tuple(str(levels[int(code)]) for code in grid)
        grid = np.arange(float(len(texts)))
    elif columns is not None and str(columns.kinds[j]) in TIMES:
        texts = tuple(np.datetime_as_string(grid.astype("datetime64[D]")).tolist())
    return Dependence(grid, texts, mean, of_levels)
