"""Scaling of columns: standard deviations from the mean, or normal scores for long tails."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..core import check
from ..core.aliases import FloatArray, IntArray

KINDS = ("auto", "deviations", "normal")
KURTOSIS = 12.0
"""Standardised fourth moment from which "auto" uses normal scores; a normal distribution has 3."""
N_KNOTS = 256
"""Maximum number of values of a column with stored normal scores, between which scores are interpolated."""


class Scaling(NamedTuple):
    """Scaling of the columns of a table."""

    low: FloatArray
    """(n_features,) float64: least values of the training rows; smaller values are raised to them."""
    high: FloatArray
    """(n_features,) float64: greatest values; larger values are lowered to them."""
    center: FloatArray
    """(n_features,) float64: half of the means."""
    scale: FloatArray
    """(n_features,) float64: half of the deviations; 1 for a constant column."""
    start: IntArray
    """(n_features + 1,) int64: where the knots of each column begin; none for a column in deviations."""
    knots: FloatArray
    """(n_knots,) float64: values, ascending within a column."""
    scores: FloatArray
    """(n_knots,) float64: their normal scores, of mean 0 and deviation 1 over the training rows."""


def deviations(scaling: Scaling, x: FloatArray) -> FloatArray:
    """Returns (n_samples, n_features) float64: (x - mean) / deviation, in the range of the training rows."""
    # Halves, since a difference of two large numbers may be beyond the range.
    half = 0.5 * np.clip(x.astype(np.float64), scaling.low, scaling.high)
    half -= scaling.center
    half /= scaling.scale
    return half


def transformed(scaling: Scaling, x: FloatArray) -> FloatArray:
    """Returns scaled columns, (n_samples, n_features) float32, from samples in the units of the table.

    Numbers are finite; NaN stays NaN.
    """
    z = deviations(scaling, x)
    start = scaling.start
    for j in np.flatnonzero(np.diff(start)):
        part = slice(start[j], start[j + 1])
        z[:, j] = np.interp(x[:, j], scaling.knots[part], scaling.scores[part])
    return np.ascontiguousarray(z, np.float32)


def _means(x: FloatArray) -> FloatArray:
    """Returns the mean of the known values of each column; 0 where none is known."""
    known = ~np.isnan(x)
    if known.all():
        return np.asarray(x.mean(axis=0))
    return np.where(known, x, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)


def _moments(x: FloatArray, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    # Half of the mean and of the deviation of each column, in units of its greatest value: squares stay in
    # range.
    unit = np.maximum(abs(low), abs(high))
    unit[unit == 0] = 1
    u = 0.5 * (x / unit)
    mean = _means(u)
    deviation = np.sqrt(_means((u - mean) ** 2))
    constant = (low == high) | (deviation * unit == 0)
    return np.where(constant, 0.5 * low, mean * unit), np.where(constant, 1.0, deviation * unit)


def _normal_scores(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns knots of a column and the normal quantiles of their ranks, standardised over the rows."""
    knots, counts = np.unique(values, return_counts=True)
    rank = (np.cumsum(counts) - 0.5 * counts) / len(values)
    if len(knots) > N_KNOTS:
        # Equally many rows lie between two knots, as far as ties let them.
        places = np.searchsorted(rank, np.linspace(rank[0], rank[-1], N_KNOTS))
        places = np.unique(np.clip(places, 0, len(knots) - 1))
        knots, rank = knots[places], rank[places]
    from statistics import NormalDist

    inverse = NormalDist().inv_cdf
    scores = np.array([inverse(float(share)) for share in rank])
    of_rows = np.interp(values, knots, scores)
    return knots, (scores - of_rows.mean()) / (of_rows.std() or 1.0)


def measure(x: FloatArray, kind: str) -> Scaling:
    """Returns the scaling of the columns of `x`, (n_samples, n_features) of float32 or float64.

    Missing values (NaN) are ignored.
    """
    x = x.astype(np.float64)
    low, high = x.min(axis=0), x.max(axis=0)
    for end, least in ((low, np.fmin), (high, np.fmax)):
        unknown = np.isnan(end)
        if unknown.any():
            end[unknown] = np.nan_to_num(least.reduce(x[:, unknown]))
    center, scale = _moments(x, low, high)
    empty = np.zeros(0)
    scaling = Scaling(low, high, center, scale, np.zeros(x.shape[1] + 1, np.int64), empty, empty)
    if kind == "deviations":
        return scaling
    z = deviations(scaling, x)
    long = _means(z**4) > KURTOSIS if kind == "auto" else low < high
    knots, scores, sizes = [empty], [empty], np.zeros(x.shape[1], np.int64)
    for j in np.flatnonzero(long):
        curve = _normal_scores(x[~np.isnan(x[:, j]), j])
        knots.append(curve[0])
        scores.append(curve[1])
        sizes[j] = len(curve[0])
    start = np.concatenate([[0], np.cumsum(sizes)])
    return scaling._replace(start=start, knots=np.concatenate(knots), scores=np.concatenate(scores))


def check_numpy(arrays: Mapping[str, Any]) -> None:
    """Checks that the values with these names are NumPy arrays."""
    for name, a in arrays.items():
        if type(a) not in check.NUMPY_TYPES:
            raise TypeError(f"{name}: expected a NumPy array, got {type(a).__name__}; pass what fit returned")


def check_scaling(name: str, scaling: Any) -> int:
    """Returns the number of columns of a `Scaling`, after checking that it is valid."""
    check.instance(name, scaling, Scaling, "a Scaling", "pass what fit returned")
    real, sizes = np.dtype(np.float64), check.Sizes()
    arrays = {f"{name}.{field}": a for field, a in scaling._asdict().items()}
    check_numpy(arrays)
    for field in ("low", "high", "center", "scale"):
        check.array(f"{name}.{field}", getattr(scaling, field), real, ("n_features",), sizes)
    n_features = int(sizes["n_features"])
    check.array(f"{name}.start", scaling.start, check.INT64, (n_features + 1,), sizes)
    for field in ("knots", "scores"):
        check.array(f"{name}.{field}", getattr(scaling, field), real, ("n_knots",), sizes)
    for field in ("low", "high", "center", "scale", "knots", "scores"):
        check.finite(f"{name}.{field}", getattr(scaling, field))
    if not bool((scaling.scale > 0).all()) or bool((scaling.low > scaling.high).any()):
        raise ValueError(
            f"{name}: expected deviations above 0 and low <= high, got other values; pass what fit returned"
        )
    start = scaling.start
    if start[0] != 0 or start[-1] != sizes["n_knots"] or bool((np.diff(start) < 0).any()):
        raise ValueError(
            f"{name}.start: expected 0, ..., n_knots = {sizes['n_knots']}, in non-decreasing order, got "
            "other numbers; pass "
            "what fit returned"
        )
    inner = np.ones(len(scaling.knots), bool)
    inner[start[:-1][start[:-1] < len(inner)]] = False
    if bool((np.diff(scaling.knots, prepend=0.0)[inner] <= 0).any()):
        raise ValueError(
            f"{name}.knots: expected ascending values within each column, got other values; pass what fit "
            "returned"
        )
    with np.errstate(over="ignore"):
        ends = deviations(scaling, np.stack([scaling.low, scaling.high]))
    if max(np.abs(z).max(initial=0.0) for z in (ends, scaling.scores)) > np.finfo(np.float32).max:
        raise ValueError(
            f"{name}: expected deviations and normal scores in the range of float32, got larger ones; pass "
            "what fit returned"
        )
    return n_features
