"""Categorical columns as numbers that hinge trees and inner products read: statistics of the targets."""

from typing import Any, NamedTuple

import numpy as np

from ..core import check
from ..core.aliases import FloatArray, IntArray, Task
from .recipe import Rows
from .scaling import check_numpy

FOLDS = 5
"""Number of parts of the training rows; statistics at the rows of one part come from the other parts."""
SMOOTHING = 10.0
"""Number of rows with the overall mean that are added to the rows of each category."""
N_STATISTICS = 3
"""Maximum number of principal directions of the means of several classes or targets."""
MAX_INDICATED = 16
"""Maximum number of categories of a column that has an indicator for each."""
UNKNOWN = -1


class Levels(NamedTuple):
    """Categories of columns, and the numbers that encode them."""

    categorical: Any
    """(n_features,) bool: columns of categories."""
    widths: IntArray
    """(n_features,) int64: number of encoded columns of each column; 1 if it holds numbers."""
    start: IntArray
    """(n_features + 1,) int64: where the categories of each column begin."""
    levels: IntArray
    """(n_levels,) int32: categories, ascending within a column; the first, -1, stands for others and NaN."""
    codes: FloatArray
    """(n_codes,) float32: codes of each category in turn, one number per encoded column."""


def _places(levels: IntArray, column: FloatArray) -> IntArray:
    """Returns the number of the category of each value of a column; 0 for unknown ones and NaN."""
    after = np.minimum(np.searchsorted(levels, column), len(levels) - 1)
    return np.where(levels[after] == column, after, 0)


def _statistics(place: IntArray, n_levels: int, y: FloatArray, weight: FloatArray) -> FloatArray:
    """Returns smoothed means of y per category minus the overall mean, (n_levels, n_outputs) float64."""
    mean = np.average(y, axis=0, weights=weight)
    size = np.bincount(place, weight, n_levels)
    sums = np.stack([np.bincount(place, weight * column, n_levels) for column in y.T], axis=1)
    return (sums - size[:, None] * mean) / (size + SMOOTHING)[:, None]


def _target_codes(
    place: IntArray, n_levels: int, y: FloatArray, weight: FloatArray, fold: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Returns target statistics: (n_levels, n) from all rows, (n_samples, n) from the other folds."""
    means = _statistics(place, n_levels, y, weight)
    size = np.sqrt(np.bincount(place, weight, n_levels))
    n = min(max(y.shape[1] - 1, 1), N_STATISTICS)
    directions = np.linalg.svd(size[:, None] * means, full_matrices=False)[2][:n].T
    at_rows = np.zeros((len(place), directions.shape[1]))
    for part in range(FOLDS):
        inside, others = fold == part, fold != part
        if inside.any() and others.any():
            of_others = _statistics(place[others], n_levels, y[others], weight[others])
            at_rows[inside] = (of_others @ directions)[place[inside]]
    deviation = at_rows.std(axis=0)
    deviation[deviation < 1e-9] = 1
    return means @ directions / deviation, at_rows / deviation


def _indicators(place: IntArray, n_levels: int) -> FloatArray:
    """Returns standardised indicators of the categories that occur, one for two categories: (n_levels, n)."""
    there = np.unique(place)
    chosen = there[1:] if len(there) <= 2 else there
    indicators = (np.arange(n_levels)[:, None] == chosen).astype(float)
    mean = indicators[place].mean(axis=0)
    return (indicators - mean) / np.sqrt(mean * (1 - mean))


def fit_levels(
    rows: Rows, x: FloatArray, categorical: Any, task: Task, n_outputs: int, seed: int
) -> tuple[Levels, FloatArray]:
    """Returns the categories of training rows, and their encoded categorical columns.

    `x` (n_samples, n_features) has integers or NaN in the columns of `categorical`.
    """
    n = len(x)
    weight = np.ones(n) if rows.weight is None else rows.weight / rows.weight.mean()
    y = np.eye(n_outputs)[rows.y] if task == "classification" else rows.y.astype(np.float64)
    fold = np.random.default_rng([seed, n]).permutation(n) % FOLDS
    widths, sizes = np.ones(x.shape[1], np.int64), np.zeros(x.shape[1], np.int64)
    levels, codes, at_rows = [np.zeros(0, np.int32)], [np.zeros(0, np.float32)], [np.zeros((n, 0))]
    for j in np.flatnonzero(categorical):
        column = x[:, j]
        known = np.append(UNKNOWN, np.unique(column[~np.isnan(column)])).astype(np.int32)
        place = _places(known, column)
        code, at_row = _target_codes(place, len(known), y, weight, fold)
        if 2 < len(np.unique(place)) <= MAX_INDICATED:
            indicators = _indicators(place, len(known))
            code, at_row = np.hstack([code, indicators]), np.hstack([at_row, indicators[place]])
        widths[j], sizes[j] = code.shape[1], len(known)
        levels.append(known)
        codes.append(code.ravel().astype(np.float32))
        at_rows.append(at_row)
    start = np.concatenate([[0], np.cumsum(sizes)])
    of_columns = Levels(categorical, widths, start, np.concatenate(levels), np.concatenate(codes))
    return of_columns, np.concatenate(at_rows, axis=1).astype(np.float32)


def codes_of(levels: Levels, x: FloatArray) -> FloatArray:
    """Returns the encoded categorical columns of samples, (n_samples, n) float32."""
    begin, codes = 0, [np.zeros((len(x), 0), np.float32)]
    for j in np.flatnonzero(levels.categorical):
        known = levels.levels[levels.start[j] : levels.start[j + 1]]
        end = begin + len(known) * int(levels.widths[j])
        codes.append(levels.codes[begin:end].reshape(len(known), -1)[_places(known, x[:, j])])
        begin = end
    return np.concatenate(codes, axis=1)


def merged(levels: Levels, numbers: FloatArray, codes: FloatArray) -> FloatArray:
    """Returns (n_samples, n_encoded) float32: numeric columns and encoded categories."""
    of_categories = np.repeat(levels.categorical, levels.widths)
    encoded = np.empty((len(codes), len(of_categories)), np.float32)
    encoded[:, of_categories] = codes
    encoded[:, ~of_categories] = numbers[:, ~levels.categorical]
    return encoded


def check_levels(name: str, levels: Any, n_features: int) -> int:
    """Returns the number of encoded columns of a `Levels`, after checking it for a number of columns."""
    remedy = "pass what fit returned"
    check.instance(name, levels, Levels, "Levels", remedy)
    check_numpy({f"{name}.{field}": a for field, a in levels._asdict().items()})
    with check.fields_of(name):
        return _check_fields(levels, n_features, remedy)


def _check_fields(levels: Levels, n_features: int, remedy: str) -> int:
    sizes: check.Sizes = {"n_features": n_features}
    check.array("categorical", levels.categorical, np.dtype(bool), ("n_features",), sizes)
    check.array("widths", levels.widths, check.INT64, ("n_features",), sizes)
    check.array("start", levels.start, check.INT64, (n_features + 1,), sizes)
    check.array("levels", levels.levels, check.INT32, ("n_levels",), sizes)
    check.array("codes", levels.codes, np.dtype(np.float32), ("n_codes",), sizes)
    check.finite("codes", levels.codes)
    size, n_levels = np.diff(levels.start), sizes["n_levels"]
    is_category = levels.categorical
    sound = levels.start[0] == 0 and levels.start[-1] == n_levels and bool((size >= 0).all())
    sound = sound and bool(((size > 0) == is_category).all())
    check.require(
        sound,
        "start",
        f"0, ..., n_levels = {n_levels}, increasing at columns of categories",
        "other numbers",
        remedy,
    )
    bound = min(check.MAX_COUNT, sizes["n_codes"] + n_features)
    sound = bool(((levels.widths >= 1) & (levels.widths <= bound)).all())
    sound = sound and bool((levels.widths[~is_category] == 1).all())
    check.require(sound, "widths", "at least 1, and 1 for columns of numbers", "other numbers", remedy)
    n_codes = sum(a * b for a, b in zip(size.tolist(), levels.widths.tolist(), strict=True))
    check.require(n_codes == sizes["n_codes"], "codes", f"{n_codes} numbers", sizes["n_codes"], remedy)
    first = np.zeros(n_levels, bool)
    first[levels.start[:-1][is_category]] = True
    rises = first.copy()
    rises[1:] |= levels.levels[1:] > levels.levels[:-1]
    sound = bool((levels.levels[first] == UNKNOWN).all()) and bool(rises.all())
    check.require(
        sound, "levels", "-1 followed by ascending numbers for each column", "other numbers", remedy
    )
    return int(levels.widths.sum())
