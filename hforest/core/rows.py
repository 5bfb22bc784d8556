"""Samples of a caller, in the form in which backends apply forests to them."""

import numpy as np

from . import blocks, machine, sparse, supervised
from .aliases import Array, ArrayLike, FloatArray
from .in_place import InPlace, PlacedWindows


def readable(
    x: ArrayLike, dtype: np.dtype, missing: bool, remedy: str
) -> tuple[FloatArray | PlacedWindows | sparse.Compressed | blocks.Unconverted, dict[str, Array], bool]:
    """Returns the samples of an argument x in `dtype`, the arrays of the caller that x is, by name, and
    whether some numbers are missing.

    Samples are finite, or NaN if `missing` allows it. A large x that needs a conversion is converted and
    checked later, in blocks.
    """
    if type(x) is np.ndarray and machine.fits(x, dtype, ("n_samples", "n_features"), {}):
        # A fast path for rows without conversion, so that single rows take microseconds.
        return x, {"x": x}, supervised.check_finite("x", x, x, missing, remedy)
    if isinstance(x, InPlace):
        windows = x.x
        numbers, some = supervised.matrix_or_missing("x", windows.x, dtype, missing, remedy)
        return windows._replace(x=numbers), {"x": windows.x}, some
    if sparse.is_sparse(x):
        stored, some = sparse.rows("x", x, dtype, missing=missing, remedy=remedy)
        return stored, {"x": x.data}, some
    if (lazy := blocks.unconverted(x, dtype)) is not None:
        return lazy, {"x": lazy.source}, missing
    source = supervised.as_given("x", x)
    numbers, some = supervised.matrix_or_missing("x", source, dtype, missing, remedy)
    return numbers, {"x": source}, some
