"""Standardised columns and targets, and conversion of forests back to the caller's units."""

from typing import NamedTuple

import numpy as np

from ..core import dispatch
from ..core.aliases import Array, FloatArray
from ..core.in_place import PlacedWindows, rows_of
from ..core.units import Units
from ..tree import Forest

_VALUES = 1 << 20  # numbers that are summed at a time
_LEAST = 1e-280  # minimum deviation: a weight divided by it stays finite
_ROUNDED = 1e-13  # fraction of a column's mean: deviations that rounding leaves


class StandardizedWindows(NamedTuple):
    """Windows whose numbers are standardised when they are read."""

    windows: PlacedWindows
    units: Units

    @property
    def shape(self) -> tuple[int, int]:
        """(n_samples, n_columns)."""
        return self.windows.shape

    @property
    def dtype(self) -> np.dtype:
        """Dtype in which samples are computed, float32 or float64."""
        return self.windows.dtype


def _some(a: Array | PlacedWindows, which: slice | Array) -> Array:
    """Returns some rows of a matrix, on the host; of windows a copy."""
    if isinstance(a, PlacedWindows):
        return rows_of(a._replace(base=a.base[which]))
    return dispatch.to_numpy(a[which])


def _statistics(a: Array | PlacedWindows, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns means and deviations (0 for constants) of the columns of a, over rows of positive weight."""
    # On the host, so that a forest does not depend on the order in which a GPU adds.
    if isinstance(a, PlacedWindows):
        a = a._replace(base=a.base[weight > 0])
    else:
        a = dispatch.to_numpy(a if bool((weight > 0).all()) else a[weight > 0])
    n, block = a.shape[0], max(1, _VALUES // a.shape[1])
    mean, square = np.zeros(a.shape[1]), np.zeros(a.shape[1])
    for first in range(0, n, block):
        mean += _some(a, slice(first, first + block)).sum(axis=0, dtype=np.float64)
    mean /= n
    for first in range(0, n, block):
        square += ((_some(a, slice(first, first + block)) - mean) ** 2).sum(axis=0)
    deviation = np.sqrt(square / n)
    # Rounding errors of a constant column are not a deviation.
    return mean, np.where(deviation > np.maximum(_LEAST, _ROUNDED * np.abs(mean)), deviation, 0.0)


def of_samples(x: FloatArray | PlacedWindows, weight: FloatArray) -> Units:
    """Returns the units of the columns of x (n, n_features), over samples of positive weight (n,)."""
    mean, deviation = _statistics(x, weight)
    return Units(mean, np.where(deviation > 0, deviation, 1.0))


def of_targets(targets: FloatArray, weight: FloatArray) -> Units:
    """Returns units of targets (n, n_outputs): means, and the root of the mean variance for all."""
    mean, deviation = _statistics(targets, weight)
    common = float(np.sqrt((deviation**2).mean()))
    return Units(mean, np.full(len(mean), common if common > 0 else 1.0))


def with_units(forest: Forest, x: Units, y: Units | None) -> Forest:
    """Returns a forest that was grown on standardised columns and targets, converted to the original units.

    A split ``sum w_j (x_j - m_j) / s_j > t`` is ``sum (w_j / s_j) x_j > t + sum w_j m_j / s_j``; both sides
    are multiplied by the power of two that puts the largest number of w between 1/2 and 1. On the CPU
    `forest.data` is overwritten.
    """
    xp, real = dispatch.array_module(forest.threshold), forest.threshold.dtype
    feature, indptr, indices = (dispatch.to_numpy(a) for a in (forest.feature, forest.indptr, forest.indices))
    threshold = dispatch.to_numpy(forest.threshold).astype(np.float64)
    single = np.flatnonzero(feature >= 0)
    f = feature[single]
    threshold[single] = threshold[single] * x.deviation[f] + x.mean[f]
    data = dispatch.to_numpy(forest.data)
    shift, exponent = np.zeros(len(feature)), np.zeros(len(feature), np.int32)
    block = max(1, _VALUES // len(x.mean))  # nodes
    for first in range(0, len(feature), block):
        begin = indptr[first : first + block + 1]
        nodes, some = slice(first, first + block), slice(begin[0], begin[-1])
        node = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
        scaled, largest = data[some] / x.deviation[indices[some]], np.zeros(len(begin) - 1)
        np.add.at(shift[nodes], node, scaled * x.mean[indices[some]])
        np.maximum.at(largest, node, np.abs(scaled))
        exponent[nodes] = -np.frexp(largest)[1]
        data[some] = np.ldexp(scaled, exponent[nodes][node])
    oblique = feature == -2
    threshold[oblique] = np.ldexp(threshold + shift, exponent)[oblique]
    forest = forest._replace(threshold=xp.asarray(threshold.astype(real)), data=xp.asarray(data))
    if y is None:
        return forest
    value = dispatch.to_numpy(forest.value) * y.deviation + y.mean
    gain = dispatch.to_numpy(forest.gain) * y.deviation[0] ** 2
    return forest._replace(value=xp.asarray(value.astype(real)), gain=xp.asarray(gain.astype(real)))
