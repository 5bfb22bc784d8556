"""All validation of the library. Only doors call it; the twins trust what they are given.

Every message has four parts: the argument, what was expected, what was got, and the remedy. Names of
sizes bind across the arrays of a call: the first array that shows `n_trees` sets it, the others must
agree.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import EllipsisType
from typing import Any

import numpy as np

from . import machine
from .dispatch import Array, array_module, is_cupy

MAX_DEPTH = 30
"""Leaves and vertices are numbered in int32."""

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)

Axes = tuple[str | int | EllipsisType, ...]
Sizes = dict[str, int]

# Subclasses with a meaning of their own (masks, matrices) would lose it here, so they are refused.
_NUMPY_TYPES = (np.ndarray, np.memmap)

_values_checked: ContextVar[bool] = ContextVar("hforest_values_checked", default=True)


@contextmanager
def unchecked() -> Iterator[None]:
    """Skip the checks that read whole arrays (index ranges, NaN and infinity) inside a `with` block.

    Types, dtypes, shapes and layout stay checked: they cost no look at the data. Whoever opens the
    block vouches for the values: an index out of range then reads or writes foreign memory.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> t, f, w = hforest.hinge.tree_init(3, 2, 5, rng=0)
    >>> with hforest.unchecked():
    ...     y = hforest.hinge.tree_forward(np.zeros((4, 5), np.float32), t, f, w)
    >>> y.shape
    (4, 3)
    """
    token = _values_checked.set(False)
    try:
        yield
    finally:
        _values_checked.reset(token)


def values_checked() -> bool:
    """Whether checks that read whole arrays run: not inside `unchecked()`."""
    return _values_checked.get()


def _shape_text(axes: Axes, sizes: Sizes) -> str:
    words = ["..." if axis is ... else str(axis) for axis in axes]
    names = "(" + ", ".join(words) + ("," if len(words) == 1 else "") + ")"
    values = ["..." if a is ... else str(a if isinstance(a, int) else sizes.get(a, a)) for a in axes]
    bound = "(" + ", ".join(values) + ("," if len(words) == 1 else "") + ")"
    return names if names == bound else f"{names} = {bound}"


def same_device(**arrays: Array) -> None:
    """Every argument is a NumPy array, or every one is a CuPy array."""
    for a in arrays.values():
        if type(a) is not np.ndarray:
            break
    else:
        return
    first_name, first_gpu = "", False
    for name, a in arrays.items():
        if type(a) in _NUMPY_TYPES:
            gpu = False
        elif is_cupy(a):
            gpu = True
        else:
            raise TypeError(
                f"{name}: expected a numpy.ndarray or cupy.ndarray, got {type(a).__name__}; "
                "convert it with numpy.asarray(..., dtype=...)"
            )
        if not first_name:
            first_name, first_gpu = name, gpu
        elif gpu != first_gpu:
            here, there = ("CuPy", "NumPy") if gpu else ("NumPy", "CuPy")
            raise TypeError(
                f"{name}: expected a {there} array like {first_name}, got a {here} array; "
                "move them to one device with cupy.asarray or cupy.asnumpy"
            )


def floating(name: str, a: Array) -> np.dtype:
    """The dtype of `a`, which must be native float32 or float64."""
    dtype = a.dtype
    if dtype not in FLOATS:
        raise TypeError(
            f"{name}: expected dtype float32 or float64, got {dtype}; "
            f"convert it with {name}.astype(numpy.float32)"
        )
    return dtype


def array(name: str, a: Array, dtype: np.dtype, axes: Axes, sizes: Sizes) -> None:
    """dtype, number of axes, sizes (bound in `sizes`), C order and alignment of one array."""
    if type(a) is np.ndarray and machine.fits(a, dtype, axes, sizes):
        return
    if a.dtype != dtype:
        raise TypeError(
            f"{name}: expected dtype {dtype}, got {a.dtype}; convert it with {name}.astype(numpy.{dtype})"
        )
    shape = a.shape
    fixed: Sequence[Any] = axes
    fits = len(shape) == len(axes)
    if axes and axes[-1] is ...:
        fixed = axes[:-1]
        fits = len(shape) >= len(fixed)
    if fits:
        for axis, size in zip(fixed, shape, strict=False):
            wanted = axis if isinstance(axis, int) else sizes.setdefault(axis, size)
            if wanted != size:
                fits = False
                break
    if not fits:
        raise ValueError(
            f"{name}: expected shape {_shape_text(axes, sizes)}, got {tuple(shape)}; "
            "pass arrays whose sizes agree"
        )
    flags = a.flags
    if not flags.c_contiguous:
        raise ValueError(
            f"{name}: expected a C-contiguous array, got strides {a.strides} for shape {tuple(shape)}; "
            f"copy it with numpy.ascontiguousarray({name})"
        )
    if isinstance(a, np.ndarray) and not flags.aligned:
        raise ValueError(f"{name}: expected an aligned array, got an unaligned one; pass {name}.copy()")


def at_least_one(sizes: Sizes, *names: str) -> None:
    """None of the named sizes is 0."""
    for name in names:
        if sizes[name] < 1:
            raise ValueError(f"{name}: expected at least 1, got {sizes[name]}; only n_samples may be 0")


def tree_depth(name: str, a: Array) -> int:
    """Depth D of complete trees from an array of shape (n_trees, 2**D - 1)."""
    depth = (a.shape[1] + 1).bit_length() - 1 if a.ndim == 2 else 0
    if a.ndim != 2 or not 1 <= depth <= MAX_DEPTH or a.shape[1] != 2**depth - 1:
        raise ValueError(
            f"{name}: expected shape (n_trees, 2**depth - 1) with 1 <= depth <= {MAX_DEPTH}, "
            f"got {tuple(a.shape)}; a tree of depth 3 has 7 vertices"
        )
    return depth


def fern_depth(name: str, a: Array) -> int:
    """Depth D of ferns from an array of shape (n_ferns, D)."""
    if a.ndim != 2 or not 1 <= a.shape[1] <= MAX_DEPTH:
        raise ValueError(
            f"{name}: expected shape (n_ferns, depth) with 1 <= depth <= {MAX_DEPTH}, "
            f"got {tuple(a.shape)}; a fern of depth 3 has 3 decisions"
        )
    return a.shape[1]


def _where(a: Array, flat: int) -> tuple[tuple[int, ...], Any]:
    index = tuple(int(i) for i in np.unravel_index(flat, a.shape))
    return index, a[index].item()


def finite(name: str, a: Array) -> None:
    """No NaN and no infinity, unless inside `unchecked()`. On a GPU this waits for one number."""
    if not values_checked():
        return
    if isinstance(a, np.ndarray):
        flat = machine.first_nonfinite(a)
    else:
        bad = ~array_module(a).isfinite(a).ravel()
        flat = int(bad.argmax()) if bool(bad.any()) else -1
    if flat >= 0:
        index, value = _where(a, flat)
        raise ValueError(
            f"{name}: expected finite numbers, got {value} at index {index}; impute or drop such samples"
        )


def not_nan(name: str, a: Array) -> None:
    """No NaN (infinities may pass), unless inside `unchecked()`. For parameters."""
    if not values_checked() or (isinstance(a, np.ndarray) and machine.first_nonfinite(a) < 0):
        return
    bad = array_module(a).isnan(a).ravel()
    if bool(bad.any()):
        index, _ = _where(a, int(bad.argmax()))
        raise ValueError(
            f"{name}: expected no NaN, got one at index {index}; "
            "training has diverged, go back to a checkpoint or lower the learning rate"
        )


def indices(name: str, a: Array, stop: int, stop_name: str) -> None:
    """0 <= a < stop for every element of an int32 array, unless inside `unchecked()`."""
    if not values_checked():
        return
    if isinstance(a, np.ndarray):
        flat = machine.first_outside(a, min(stop, 2**31 - 1))
    else:
        bad = ((a < 0) | (a >= stop)).ravel()
        flat = int(bad.argmax()) if bool(bad.any()) else -1
    if flat >= 0:
        index, value = _where(a, flat)
        raise IndexError(
            f"{name}: expected 0 <= index < {stop_name} = {stop}, got {value} at index {index}; "
            f"pass the {name} that belongs to these arrays"
        )


def rows(name: str, a: Array, n_rows: int) -> None:
    """Strictly increasing int64 row numbers in 0 <= row < n_rows, unless inside `unchecked()`."""
    if not values_checked() or a.size == 0:
        return
    if not 0 <= int(a[0]) or not int(a[-1]) < n_rows:
        worst = int(a[0]) if int(a[0]) < 0 else int(a[-1])
        raise IndexError(
            f"{name}: expected 0 <= row < n_rows = {n_rows}, got {worst}; "
            "pass the rows that belong to this parameter"
        )
    if not bool((a[1:] > a[:-1]).all()):
        raise ValueError(
            f"{name}: expected strictly increasing rows, got some out of order or twice; "
            "pass rows as hforest.hinge's sparse gradients give them, or numpy.unique(rows)"
        )


def writable(name: str, a: Array) -> None:
    """`a` may be written to."""
    if isinstance(a, np.ndarray) and not a.flags.writeable:
        raise ValueError(f"{name}: expected a writable array, got a read-only one; pass {name}.copy()")


def no_overlap(outputs: dict[str, Array], inputs: dict[str, Array]) -> None:
    """No output shares memory with another output or with an input."""
    names = list(outputs)
    for i, name in enumerate(names):
        others = {other: outputs[other] for other in names[i + 1 :]} | inputs
        for other, b in others.items():
            a = outputs[name]
            # All arrays here are C-contiguous, so overlap of their bounds is overlap.
            if array_module(a).may_share_memory(a, b) and a.size and b.size:
                raise ValueError(
                    f"{name}: expected memory of its own, got an array that overlaps {other}; pass a copy"
                )


def integer(name: str, value: Any, low: int, high: int | None = None) -> int:
    """A Python or NumPy integer in low <= value (<= high)."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected an int, got {type(value).__name__}; pass an integer such as {low}")
    if value < low or (high is not None and value > high):
        limits = f"at least {low}" if high is None else f"{low} to {high}"
        raise ValueError(f"{name}: expected {limits}, got {value}; choose a value in that range")
    return int(value)


def number(name: str, value: Any, low: float, high: float = np.inf, *, open_low: bool = False) -> float:
    """A finite real number in low <= value <= high (low < value if `open_low`)."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}; pass a float")
    value = float(value)
    if not np.isfinite(value) or value < low or value > high or (open_low and value == low):
        sign = ">" if open_low else ">="
        limits = f"{sign} {low:g}" + (f" and <= {high:g}" if high != np.inf else "")
        raise ValueError(
            f"{name}: expected a finite number {limits}, got {value}; choose a value in that range"
        )
    return value


def choice(name: str, value: Any, options: Sequence[Any]) -> Any:
    """One of a few words."""
    for option in options:
        if value is option:
            return value
    if not any(value == option for option in options):
        words = ", ".join(repr(option) for option in options)
        raise ValueError(f"{name}: expected one of {words}, got {value!r}; choose one of them")
    return value


def generator(rng: Any) -> np.random.Generator:
    """A numpy.random.Generator from None, an int or a Generator."""
    if isinstance(rng, np.random.Generator):
        return rng
    if rng is None:
        return np.random.default_rng()
    if isinstance(rng, bool) or not isinstance(rng, int | np.integer):
        raise TypeError(
            f"rng: expected None, an int or a numpy.random.Generator, got {type(rng).__name__}; "
            "pass numpy.random.default_rng(seed)"
        )
    if rng < 0:
        raise ValueError(f"rng: expected a seed of at least 0, got {rng}; pass a non-negative integer")
    return np.random.default_rng(int(rng))
