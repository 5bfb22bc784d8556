"""Samples of a caller, in the form in which backends apply forests to them."""

from typing import Any

import numpy as np

from . import blocks, check, machine, sparse, supervised
from .aliases import ArrayLike, FloatArray
from .blocks import Unconverted
from .in_place import InPlace, Windows
from .sparse import Compressed


def readable(
    x: ArrayLike, dtype: np.dtype, missing: bool, remedy: str, **beside: Any
) -> tuple[FloatArray | Windows | Compressed | Unconverted, Any]:
    """Returns the samples of an argument x in `dtype`, and the array, or tuple of arrays, that x was.

    They are finite, or NaN if `missing` allows it, and on the device of the arrays `beside`, by their names.
    A large x that needs a conversion is converted and checked later, in blocks.
    """
    if isinstance(x, InPlace):
        windows = x.x
        numbers = supervised.matrix("x", windows.x, dtype, missing=missing, remedy=remedy)
        check.same_device(**beside, x=numbers)
        return windows._replace(x=numbers), windows
    source, converted = x, x
    if sparse.is_sparse(x):
        converted = sparse.rows("x", x, dtype, missing=missing, remedy=remedy)
        source = x.data
    elif (lazy := blocks.unconverted(x, dtype)) is not None:
        converted, source = lazy, lazy.source
    elif type(x) is np.ndarray and machine.fits(x, dtype, ("n_samples", "n_features"), {}):
        # A fast path for rows without conversion, so that single rows take microseconds.
        supervised.check_finite("x", x, x, missing, remedy)
    else:
        source = supervised.as_given("x", x)
        converted = supervised.matrix("x", source, dtype, missing=missing, remedy=remedy)
    check.same_device(**beside, x=source)
    return converted, source
