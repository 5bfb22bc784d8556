"""Samples that are parts of the rows of an array, read in place, and arrays that nobody changes."""

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from . import check, machine
from .aliases import Array, FloatArray, IntArray


class PlacedWindows(NamedTuple):
    """Samples that are parts of the rows of an array, read in place.

    Number f of sample i is ``x.ravel()[base[i] + offset[f]]``.
    """

    x: FloatArray
    """(n_rows, n_features) of float32 or float64, C-contiguous."""
    base: IntArray
    """(n_samples,) int64: start of a sample."""
    offset: IntArray
    """(n_columns,) int64: distance of each of its numbers from the start."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n_samples, n_columns)."""
        return len(self.base), len(self.offset)

    @property
    def dtype(self) -> np.dtype:
        """Dtype in which samples are computed, float32 or float64."""
        return self.x.dtype


class InPlace:
    """Base of samples whose attribute `x` is PlacedWindows, which walks of forests read in place."""

    __slots__ = ()

    @property
    @abstractmethod
    def x(self) -> Any:
        """The windows."""


def read_only(a: Any, once: dict[int, np.ndarray] | None = None) -> Any:
    """Returns an array, or a named tuple of arrays, on the same memory, to pass to others.

    They can set neither elements nor shape and dtype of `a`. What is no array of NumPy is returned unchanged.
    `once` collects the results, so that an array that occurs repeatedly has one.
    """
    if isinstance(a, np.ndarray):
        if once is not None and id(a) in once:
            return once[id(a)]
        if a.flags.c_contiguous and a.dtype.isnative:
            view = machine.read_only(a)
        else:
            view = a.view()
            view.flags.writeable = False
        if once is not None:
            once[id(a)] = view
        return view
    if isinstance(a, tuple) and hasattr(a, "_fields"):
        once = {} if once is None else once
        return type(a)(*[read_only(item, once) for item in a])
    return a


def rows_of(windows: PlacedWindows, columns: slice | Array = slice(None)) -> FloatArray:
    """Returns a copy of windows: (n_samples, n_columns), by default with all columns."""
    return windows.x.reshape(-1)[windows.base[:, None] + windows.offset[columns]]


def check_places(base: IntArray, offset: IntArray, size: int) -> None:
    """Checks that there are windows, with columns, and that they are inside `size` numbers."""
    sizes: check.Sizes = {}
    check.array("base", base, check.INT64, ("n_samples",), sizes)
    check.array("offset", offset, check.INT64, ("n_columns",), sizes)
    check.at_least_one(sizes, "n_samples", "n_columns")
    if max(sizes["n_samples"], sizes["n_columns"], size) > check.MAX_COUNT:
        raise ValueError(
            "base: expected fewer than 2**31 windows on fewer than 2**31 numbers, got "
            f"{sizes['n_samples']} on {size}; pass fewer"
        )
    if check.values_checked():
        least, first = int(base.min()), int(base.min()) + int(offset.min())
        last = int(base.max()) + int(offset.max())
        if least < 0 or first < 0 or last >= size:
            raise IndexError(
                f"base: expected windows inside the {size} numbers of x, got windows from "
                f"{min(least, first)} to {last}; choose base and offset inside x.ravel()"
            )
