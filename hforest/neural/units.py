"""Decision functions of standardised columns, and of original columns."""

import numpy as np

from ..core.aliases import FloatArray, IntArray
from ..core.units import Units

_LEAST = 1e-30  # minimum deviation: a weight divided by it is a float32
_ROUNDED = 1e-7  # fraction of a column's mean: deviations that float32 rounding leaves
_BLOCK = 1 << 20  # numbers that are changed at a time


def infinite() -> ValueError:
    """Returns the error for decision functions, or their terms, that are not finite."""
    return ValueError(
        "x: expected samples whose decision functions are finite, got an infinite one; scale x to mean 0 "
        "and standard deviation 1, or train again with a lower lr"
    )


def _check_finite(a: FloatArray) -> None:
    if not np.isfinite(a).all():
        raise infinite()


def of_samples(x: FloatArray) -> Units:
    """Returns the units of the columns of x (n >= 1, n_features); raises ValueError if squares overflow."""
    square = np.zeros(x.shape[1])
    step = max(1, _BLOCK // x.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        mean = x.mean(axis=0, dtype=np.float64)
        for first in range(0, len(x), step):
            square += ((x[first : first + step] - mean) ** 2).sum(axis=0)
        deviation = np.sqrt(square / len(x))
        constant = deviation <= np.maximum(_LEAST, _ROUNDED * np.abs(mean))
    _check_finite(deviation)
    return Units(mean, np.where(constant, 1.0, deviation))


def _changed(weights: FloatArray, factor: FloatArray, shift: FloatArray) -> FloatArray:
    """Returns the weights times factor, with the former weights times shift added to the biases.

    factor, shift: (n_trees, max_features), of the features of each tree.
    """
    wide = weights.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        wide[:, -1] += np.einsum("mf,mfv->mv", shift, wide[:, :-1])
        wide[:, :-1] *= factor[:, :, None]
        changed = wide.astype(weights.dtype)
    _check_finite(changed)
    return changed


def to_units(features: IntArray, weights: FloatArray, units: Units) -> FloatArray:
    """Returns the weights that give the same decision functions on standardised samples."""
    return _changed(weights, units.deviation[features], units.mean[features])


def from_units(features: IntArray, weights: FloatArray, units: Units) -> FloatArray:
    """Returns the weights for original samples, the inverse of `to_units`."""
    deviation = units.deviation[features]
    return _changed(weights, 1 / deviation, -units.mean[features] / deviation)
