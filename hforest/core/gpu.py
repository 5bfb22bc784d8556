"""Operations on real arrays that keep float32 subnormals, which those of CuPy make 0; checks of values."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from .aliases import Array, FloatArray
from .dispatch import array_module, runs_on_gpu, to_numpy
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


FINITE, NOT_NAN, INDEX, STEP = range(4)
"""Kinds of checks."""
_TOGETHER = 8  # arrays of a launch


class Values(NamedTuple):
    """Numbers that are to be finite or not NaN, or int32 or int64 from 0 to stop - 1: a struct of gpu.cu."""

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
    # Arrays of float32 and of float64 are of two launches.
    for first in range(0, len(checked), _TOGETHER):
        some = values[first : first + _TOGETHER]
        dtypes = {a.numbers.dtype for a in some if a.numbers is not None} or {_FLOAT32}
        for dtype in dtypes:
            ours = [a if a.numbers is None or a.numbers.dtype == dtype else _NONE for a in some]
            ours += [_NONE] * (_TOGETHER - len(some))
            n = sum(a.n for a in ours)
            launch_each(_PACKAGE, "first_bad", dtype, n, (*ours, last[first : first + _TOGETHER]))
    return [2**64 - 1 - int(a) if a else -1 for a in to_numpy(last)[: len(checked)]]
