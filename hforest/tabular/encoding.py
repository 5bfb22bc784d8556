"""Encoding of missing values and categories as numbers that the trees read."""

from typing import Any, NamedTuple

import numpy as np

from ..core import check
from ..core.aliases import FloatArray, IntArray, Task
from .levels import Levels, check_levels, codes_of, fit_levels, merged
from .recipe import Rows
from .scaling import Scaling, check_numpy, transformed

ROUNDS = 2
"""Number of regressions of a column on the others. The first one reads medians for missing values, a later
one the predictions of the one before it."""
N_PREDICTORS = 32
"""Maximum number of columns from which a column is predicted: those with the largest correlations."""
RIDGE = 0.01
"""Strength of the ridge for each row; columns are in a common unit."""
MAX_ROWS = 4000
"""Maximum number of rows to which a regression is fitted."""
FLOAT32 = np.dtype(np.float32)


class Encoding(NamedTuple):
    """Encoding of missing values and categories as numbers; columns are scaled."""

    fill: FloatArray
    """(n_features,) float32: medians of the training rows."""
    low: FloatArray
    """(n_features,) float32: least values; smaller predictions are raised to them."""
    high: FloatArray
    """(n_features,) float32: greatest values; larger predictions are lowered to them."""
    imputed: IntArray
    """(n_imputed,) int64: columns with missing values in the training rows, ascending; in others `fill`
    replaces missing values."""
    predictors: IntArray
    """(n_imputed, n_predictors) int32: columns from which each of them is predicted."""
    slopes: FloatArray
    """(n_rounds, n_imputed, 2 * n_predictors + 1) float32: for each round of regressions, coefficients of the
    predictors, of indicators of their missing values, and an intercept."""
    levels: Levels | None = None
    """The categories of columns, which are 0 in the regressions; None if no column has categories."""


def _known(z: FloatArray, missing: Any, of: Any, empty: float) -> FloatArray:
    """Returns a statistic of the known values of each column, float32."""
    columns = [column[~unknown] for column, unknown in zip(z.T, missing.T, strict=True)]
    return np.array([of(column) if column.size else empty for column in columns], np.float32)


def _predictors(z: FloatArray, missing: Any, fill: FloatArray, imputed: IntArray) -> IntArray:
    """Returns the columns most correlated with each imputed column, over rows where both are known."""
    centred = np.where(missing, 0, z - fill).astype(np.float64)
    there, squares = (~missing).astype(np.float64), centred**2
    products = centred[:, imputed].T @ centred
    sizes = (squares[:, imputed].T @ there) * (there[:, imputed].T @ squares)
    strength = abs(products) / np.sqrt(np.where(sizes > 0, sizes, 1))
    strength[np.arange(len(imputed)), imputed] = -1
    n_predictors = min(N_PREDICTORS, z.shape[1] - 1)
    return np.argsort(-strength, axis=1, kind="stable")[:, :n_predictors].astype(np.int32)


def _design(filled: FloatArray, missing: Any, rows: IntArray, predictors: IntArray) -> FloatArray:
    """Returns the design matrix of a regression, (n_rows, 2 * n_predictors + 1) float64."""
    some = np.ix_(rows, predictors)
    return np.concatenate([filled[some], missing[some], np.ones((len(rows), 1))], axis=1, dtype=np.float64)


def _regressions(
    encoding: Encoding, z: FloatArray, filled: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Returns the coefficients of a round, (n_imputed, 2 * n_predictors + 1) float32."""
    missing, slopes = np.isnan(z), []
    for j, predictors in zip(encoding.imputed, encoding.predictors, strict=True):
        rows = np.flatnonzero(~missing[:, j])
        if len(rows) > MAX_ROWS:
            rows = np.sort(rng.choice(rows, MAX_ROWS, replace=False))
        a = _design(filled, missing, rows, predictors)
        gram = a.T @ a
        gram.flat[:: len(gram) + 1] += RIDGE * max(len(rows), 1)
        slopes.append(np.linalg.solve(gram, a.T @ z[rows, j]))
    return np.array(slopes, np.float32)


def _refilled(encoding: Encoding, slopes: FloatArray, z: FloatArray, filled: FloatArray) -> FloatArray:
    """Returns columns with missing values replaced by a round's predictions from the previous columns."""
    missing, after = np.isnan(z), filled.copy()
    for j, predictors, beta in zip(encoding.imputed, encoding.predictors, slopes, strict=True):
        rows = np.flatnonzero(missing[:, j])
        if len(rows):
            y = _design(filled, missing, rows, predictors) @ beta.astype(np.float64)
            after[rows, j] = np.clip(y, encoding.low[j], encoding.high[j])
    return after


def fit_numbers(z: FloatArray, seed: int) -> Encoding:
    """Returns the imputation of missing numbers, from training rows with NaN.

    `z` is (n_samples, n_features) float32.
    """
    missing = np.isnan(z)
    fill = _known(z, missing, np.median, 0.0)
    low, high = (_known(z, missing, of, 0.0) for of in (np.min, np.max))
    imputed = np.flatnonzero(missing.any(axis=0))
    predictors = _predictors(z, missing, fill, imputed)
    encoding = Encoding(fill, low, high, imputed, predictors, np.zeros((0, 0, 0), np.float32))
    filled, rounds = np.where(missing, fill, z), []
    for i in range(ROUNDS):
        rounds.append(_regressions(encoding, z, filled, np.random.default_rng([seed, i])))
        filled = _refilled(encoding, rounds[-1], z, filled)
    slopes = np.array(rounds, np.float32).reshape(ROUNDS, len(imputed), 2 * predictors.shape[1] + 1)
    return encoding._replace(slopes=slopes)


def filled_in(encoding: Encoding, z: FloatArray) -> FloatArray:
    """Returns (n_samples, n_features) float32, finite, from numbers with NaN."""
    missing = np.isnan(z)
    filled = np.where(missing, encoding.fill, z)
    if missing.any():
        for slopes in encoding.slopes:
            filled = _refilled(encoding, slopes, z, filled)
    return filled


def without_categories(x: FloatArray, categorical: Any) -> FloatArray:
    """Returns the columns, with 0 in categorical ones."""
    return x if categorical is None else np.where(categorical, x.dtype.type(0), x)


def encoded(
    encoding: Encoding, z: FloatArray, x: FloatArray, codes: FloatArray | None = None
) -> tuple[FloatArray, FloatArray | None]:
    """Returns the inputs of hinge trees and inner products, and of grown trees (None if they are equal).

    Both are (n_samples, n_encoded) float32, the latter with NaN. `z` has scaled numbers, and 0 in categorical
    columns, whose values are in `x`; `codes` are those of training rows.
    """
    # Forests that were grown without missing values refuse them.
    numbers, native = filled_in(encoding, z), z if encoding.imputed.size else None
    if encoding.levels is None:
        return numbers, native
    codes = codes_of(encoding.levels, x) if codes is None else codes
    native = None if native is None else merged(encoding.levels, native, codes)
    return merged(encoding.levels, numbers, codes), native


def fit_encoding(
    rows: Rows, x: FloatArray, categorical: Any, task: Task, n_outputs: int, seed: int
) -> tuple[Encoding, Rows]:
    """Returns the encoding of training rows `x`, and the rows with encoded columns.

    ``rows.x`` has scaled numbers, and 0 in categorical columns; `categorical` is their mask or None.
    """
    encoding, codes = fit_numbers(rows.x, seed), None
    if categorical is not None:
        levels, codes = fit_levels(rows, x, categorical, task, n_outputs, seed)
        encoding = encoding._replace(levels=levels)
    numbers, native = encoded(encoding, rows.x, x, codes)
    return encoding, rows._replace(x=numbers, native=native)


def columns(
    scaling: Scaling, encoding: Encoding | None, x: FloatArray
) -> tuple[FloatArray, FloatArray | None]:
    """Returns the inputs of the trees for samples, as `encoded` does.

    If the training rows had neither missing values nor categories (`encoding` is None), 0, the mean, replaces
    missing values.
    """
    if encoding is not None:
        categorical = None if encoding.levels is None else encoding.levels.categorical
        return encoded(encoding, transformed(scaling, without_categories(x, categorical)), x)
    z = transformed(scaling, x)
    missing = np.isnan(z)
    return (np.where(missing, np.float32(0), z) if missing.any() else z), None


def check_encoding(name: str, encoding: Any, n_features: int) -> int:
    """Returns the number of encoded columns of an `Encoding`, after checking it for a number of columns."""
    remedy = "pass what fit returned"
    check.instance(name, encoding, Encoding, "an Encoding", remedy)
    check_numpy({f"{name}.{field}": a for field, a in encoding._asdict().items() if field != "levels"})
    sizes: check.Sizes = {"n_features": n_features}
    with check.fields_of(name):
        for field in ("fill", "low", "high"):
            check.array(field, getattr(encoding, field), FLOAT32, ("n_features",), sizes)
        check.array("imputed", encoding.imputed, check.INT64, ("n_imputed",), sizes)
        check.array("predictors", encoding.predictors, check.INT32, ("n_imputed", "n_predictors"), sizes)
        shape = ("n_rounds", "n_imputed", 2 * sizes["n_predictors"] + 1)
        check.array("slopes", encoding.slopes, FLOAT32, shape, sizes)
        for field in ("fill", "low", "high", "slopes"):
            check.finite(field, getattr(encoding, field))
        check.rows("imputed", encoding.imputed, n_features)
        check.indices("predictors", encoding.predictors, n_features, "n_features")
        ordered = bool((encoding.low <= encoding.high).all())
        check.require(ordered, "low", "minima of at most `high`", "larger ones", remedy)
    if encoding.levels is None:
        return n_features
    return check_levels(f"{name}.levels", encoding.levels, n_features)
