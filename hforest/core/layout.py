"""Memory orders of arrays that checks accept, and the first bad element of an array on the CPU."""

import numpy as np

from . import gpu, machine
from .aliases import Array


def by_last_axis(a: Array) -> Array:
    """Returns a view of an array with its last axis first."""
    return a.transpose(a.ndim - 1, *range(a.ndim - 1))


def in_parts(a: Array) -> bool:
    """Returns whether the elements at each index of the last axis are in C order, and do not overlap."""
    parts = by_last_axis(a)
    return bool(parts[0].flags.c_contiguous and parts.strides[0] >= parts[0].nbytes)


def first_true(holds: Array) -> int:
    """Returns the place of the first element that is True, or -1."""
    return int(holds.argmax()) if bool(holds.any()) else -1


def first_bad(a: np.ndarray, kind: int, stop: int, named: Array | None = None) -> int:
    """Returns the flat index of the first bad element (`kind` is one of core.gpu), or -1.

    The array is in C order, or in parts. named (n, n_rows): of indices, only a[j, named[i, j]] are read.
    """
    if named is not None:
        return machine.first_named_outside(a, named, stop)
    if not a.flags.c_contiguous:
        good = first_bad(np.ascontiguousarray(by_last_axis(a)), kind, stop) < 0
        return -1 if good else first_bad(np.ascontiguousarray(a), kind, stop)
    if kind == gpu.STEP:  # as unsigned numbers, negative ones are the largest
        unsigned = a.view(np.uint64)
        return -1 if int(unsigned.max(initial=0)) < stop else first_true((unsigned >= stop).ravel())
    first = machine.first_outside(a, stop) if kind == gpu.INDEX else machine.first_nonfinite(a)
    return first_true(np.isnan(a).ravel()) if first >= 0 and kind == gpu.NOT_NAN else first
