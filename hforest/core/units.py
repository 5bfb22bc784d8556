"""Standardisation of columns."""

from typing import NamedTuple

from . import dispatch
from .aliases import FloatArray

_VALUES = 1 << 20  # number of entries that are changed at a time


class Units(NamedTuple):
    """Means and deviations of columns, on the host."""

    mean: FloatArray
    """(n_features,) float64."""
    deviation: FloatArray
    """(n_features,) float64; 1 for constant columns."""


def standardized(a: FloatArray, units: Units) -> FloatArray:
    """Returns ``(a - mean) / deviation`` in the dtype of a, C-contiguous; computed in float64.

    It runs on the host, for operations of CuPy make float32 subnormals 0.
    """
    xp = dispatch.array_module(a)
    out = xp.empty(a.shape, a.dtype)
    block = max(1, _VALUES // a.shape[1])
    for first in range(0, len(a), block):
        part = slice(first, first + block)
        rows = (dispatch.to_numpy(a[part]) - units.mean) / units.deviation
        out[part] = xp.asarray(rows.astype(a.dtype))
    return out
