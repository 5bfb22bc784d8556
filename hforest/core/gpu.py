"""Casts and products that keep float32 subnormals (kernels of CuPy make them 0), and checks of values."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from .aliases import Array, FloatArray
from .dispatch import array_module, runs_on_gpu, to_numpy
from .launch import launch_each, numbers

_PACKAGE = Path(__file__).parent
_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def cast(a: FloatArray, dtype: np.dtype) -> FloatArray:
    """Returns `a`, float32 or float64, in dtype float32 or float64: itself, or a C-contiguous copy."""
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
    """Multiplies each row of C-contiguous a (n_rows, ...) in place by its factor, cast to the dtype of a."""
    n_rows = len(factor)
    if runs_on_gpu(a):
        width = a.size // max(1, n_rows)
        launch_each(_PACKAGE, "scale_rows", a.dtype, a.size, (factor, n_rows, width, a))
    else:
        a *= factor.astype(a.dtype).reshape(-1, *[1] * (a.ndim - 1))


FINITE, NOT_NAN, INDEX, STEP = numbers("core/gpu.cu", "FINITE", "NOT_NAN", "INDEX", "STEP")
"""Kinds of checks."""
_TOGETHER = 8  # number of arrays that a launch checks


class Values(NamedTuple):
    """An array to check, as a struct of gpu.cu: real numbers, int32 indices, or int64 steps."""

    numbers: FloatArray | None
    indices: Array | None
    steps: Array | None
    n: int
    kind: int
    stop: int


_NONE = Values(None, None, None, 0, 0, 0)


def first_bad(checked: list[tuple[Array, int, int]]) -> list[int]:
    """Returns the flat index of the first bad element of each (array, kind, stop), or -1; waits once."""
    values = [
        Values(
            a if kind in (FINITE, NOT_NAN) else None, a if kind == INDEX else None,
            a if kind == STEP else None, a.size, kind, stop,
        )
        for a, kind, stop in checked
    ]  # fmt: skip
    last = array_module(checked[0][0]).zeros(len(checked) + _TOGETHER, np.uint64)
    # float32 and float64 arrays need a launch each.
    for first in range(0, len(checked), _TOGETHER):
        some = values[first : first + _TOGETHER]
        dtypes = {a.numbers.dtype for a in some if a.numbers is not None} or {_FLOAT32}
        for dtype in dtypes:
            ours = [a if a.numbers is None or a.numbers.dtype == dtype else _NONE for a in some]
            ours += [_NONE] * (_TOGETHER - len(some))
            n = sum(a.n for a in ours)
            launch_each(_PACKAGE, "first_bad", dtype, n, (*ours, last[first : first + _TOGETHER]))
    return [2**64 - 1 - int(a) if a else -1 for a in to_numpy(last)[: len(checked)]]
