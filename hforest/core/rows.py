"""Samples of a caller, in the form in which backends apply forests to them."""

import numpy as np

from . import blocks, check, dispatch, machine, sparse, supervised
from .aliases import Array, ArrayLike, FloatArray
from .in_place import InPlace, PlacedWindows


def _are_unseen(missing: bool, a: Array) -> bool:
    """Returns whether missing values are not looked for: in `unchecked()` on a GPU, where a look waits."""
    return missing and not check.values_checked() and dispatch.runs_on_gpu(a)


def readable(
    x: ArrayLike, dtype: np.dtype, missing: bool, remedy: str
) -> tuple[FloatArray | PlacedWindows | sparse.Compressed | blocks.Unconverted, dict[str, Array], bool]:
    """Returns the samples of an argument x in `dtype`, the arrays of the caller that x is, by name, and
    whether some numbers may be missing.

    Samples are finite, or NaN if `missing` allows it. A large x that needs a conversion is converted and
    checked later, in blocks.
    """
    if type(x) is np.ndarray and machine.fits(x, dtype, ("n_samples", "n_features"), {}):
        # A fast path for rows without conversion, so that single rows take microseconds.
        unseen = _are_unseen(missing, x)
        return x, {"x": x}, supervised.check_finite("x", x, x, missing and not unseen, remedy) or unseen
    if isinstance(x, InPlace):
        windows = x.x
        unseen = _are_unseen(missing, windows.x)
        numbers, some = supervised.matrix_or_missing("x", windows.x, dtype, missing and not unseen, remedy)
        return windows._replace(x=numbers), {"x": windows.x}, some or unseen
    if sparse.is_sparse(x):
        stored, some = sparse.rows("x", x, dtype, missing=missing, remedy=remedy)
        return stored, {"x": x.data}, some
    if (lazy := blocks.unconverted(x, dtype)) is not None:
        return lazy, {"x": lazy.source}, missing
    source = supervised.as_given("x", x)
    unseen = _are_unseen(missing, source)
    numbers, some = supervised.matrix_or_missing("x", source, dtype, missing and not unseen, remedy)
    return numbers, {"x": source}, some or unseen
