"""Bins of columns whose values are in several parts: equal for all parts."""

from typing import NamedTuple

import numpy as np

from ...core.aliases import FloatArray, IntArray
from ..bins import BIN_DTYPES
from .levels import find_bins


class Edges(NamedTuple):
    """Bins of all columns, as in `hforest.growth.Bins`."""

    low: FloatArray
    """(n_columns, widest) float64: least known value of each bin; later entries repeat the last one."""
    high: FloatArray
    n_bins: IntArray
    """(n_columns,) int64: without the bin of missing values."""
    missing: IntArray | None
    """(n_columns,) int64: bin of missing values, the last one, or -1. None: no column has any."""
    categorical: np.ndarray | None
    dtype: np.dtype
    """Dtype of values and thresholds."""

    def cells(self, column: IntArray) -> IntArray:
        """Returns the start of the cells of each slot of these features, and the end of the last one."""
        sizes = self.n_bins + (0 if self.missing is None else self.missing >= 0)
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes[column])])

    def threshold(self, f: int, low: int, high: int) -> float:
        """Returns the threshold between two bins of column f."""
        return float(between(self.high[f, low], self.low[f, high], self.dtype))


def between(low: FloatArray, high: FloatArray, dtype: np.dtype) -> FloatArray:
    """Returns thresholds t with low <= t < high: means, or low if the mean rounds to high."""
    least, greatest = np.asarray(low, np.float64), np.asarray(high, np.float64)
    t = (least / 2 + greatest / 2).astype(dtype).astype(np.float64)
    return np.where((least <= t) & (t < greatest), t, least)


def of_sample(values: FloatArray, max_bins: int) -> tuple[FloatArray, FloatArray]:
    """Returns the least and the greatest value of at most max_bins bins of about equal numbers of values.

    They are the bins of `hforest.samples`.
    """
    distinct, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    if len(distinct) <= max_bins:
        return distinct, distinct
    stop = np.cumsum(counts)
    bins = (2 * stop - counts) * max_bins // (2 * stop[-1])
    first = np.flatnonzero(np.diff(bins, prepend=-1) > 0)
    return distinct[first], distinct[np.concatenate([first[1:], [len(distinct)]]) - 1]


def edges_of(
    tables: list[tuple[FloatArray, FloatArray]],
    has_missing: np.ndarray,
    categorical: np.ndarray | None,
    dtype: np.dtype,
) -> Edges:
    """Returns the bins of columns from their least and greatest values."""
    n_bins = np.array([len(low) for low, _ in tables], np.int64)
    some_missing = bool(has_missing.any())
    widest = max(1, int(n_bins.max())) + some_missing
    low, high = (np.zeros((len(tables), widest)) for _ in range(2))
    for f, (least, greatest) in enumerate(tables):
        if len(least):
            low[f], high[f] = least[-1], greatest[-1]
            low[f, : len(least)], high[f, : len(least)] = least, greatest
    missing = None
    if some_missing or categorical is not None:
        missing = np.where(has_missing, n_bins, -1)
    return Edges(low, high, n_bins, missing, categorical, dtype)


def bins_of(x: FloatArray, edges: Edges) -> IntArray:
    """Returns the bin of each value: (n_columns, n_rows).

    A value between two bins belongs to the bin on its side of the threshold.
    """
    widest = edges.low.shape[1]
    dtype = next(t for t in BIN_DTYPES if widest <= 256**t.itemsize)
    codes = np.empty((x.shape[1], len(x)), dtype)
    n_limits = np.maximum(edges.n_bins - 1, 0)
    limits = between(edges.high[:, :-1], edges.low[:, 1:], edges.dtype).astype(x.dtype)
    limits = limits[np.arange(widest - 1) < n_limits[:, None]]
    # x may have changed: NaN in a column without missing values must not have a bin beyond the last.
    missing = n_limits if edges.missing is None else np.where(edges.missing < 0, n_limits, edges.missing)
    find_bins(x.T, np.append(0, np.cumsum(n_limits)), limits, missing, codes)
    return codes
