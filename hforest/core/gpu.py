"""Operations on real arrays of either device that keep float32 subnormals, which those of CuPy make 0."""

from pathlib import Path

import numpy as np

from .aliases import FloatArray
from .dispatch import array_module, runs_on_gpu
from .launch import launch_each

_PACKAGE = Path(__file__).parent
_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def cast(a: FloatArray, dtype: np.dtype) -> FloatArray:
    """Returns float32 or float64 as float32 or float64: `a` itself, or a C-contiguous copy."""
    if a.dtype == dtype:
        return a
    if not runs_on_gpu(a):
        return a.astype(dtype, order="C")
    xp = array_module(a)
    source, out = xp.ascontiguousarray(a), xp.empty(a.shape, dtype)
    kernel = "widen" if dtype == _FLOAT64 else "round_numbers"
    launch_each(_PACKAGE, kernel, _FLOAT32, a.size, (source, a.size, out))
    return out


def scale_rows(a: FloatArray, factor: FloatArray) -> None:
    """Multiplies, in place, each row of a (n_rows, ...), C-contiguous, by its factor in the dtype of a."""
    n_rows = len(factor)
    if runs_on_gpu(a):
        width = a.size // max(1, n_rows)
        launch_each(_PACKAGE, "scale_rows", a.dtype, a.size, (factor, n_rows, width, a))
    else:
        a *= factor.astype(a.dtype).reshape(-1, *[1] * (a.ndim - 1))
