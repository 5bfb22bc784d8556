"""Which twin of a room runs a call, and which array module serves it.

The arrays decide: NumPy arrays run in `cpu`, CuPy arrays in `gpu`. CuPy is never imported here
unless a caller already holds one of its arrays.
"""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import numpy as np

from . import recycle

Array = Any
"""A numpy.ndarray or a cupy.ndarray."""

_forced: ContextVar[str | None] = ContextVar("hforest_twin", default=None)
_twins: dict[tuple[str, str], ModuleType] = {}


def is_cupy(a: object) -> bool:
    """Whether `a` is a cupy.ndarray, found out without importing CuPy."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(a, cupy.ndarray)


def array_module(a: Array) -> ModuleType:
    """`numpy` or `cupy`, whichever made the array `a`."""
    if type(a) is np.ndarray or not is_cupy(a):
        return np
    return sys.modules["cupy"]


def empty(a: Array) -> Any:
    """What makes results beside `a`: `cupy.empty`, or the like for NumPy that recycles large arrays."""
    return recycle.empty if array_module(a) is np else array_module(a).empty


def to_numpy(a: Array) -> np.ndarray:
    """`a` itself, or a host copy of a CuPy array (this waits for the device)."""
    return a.get() if is_cupy(a) else a


def twin(room: str, a: Array) -> ModuleType:
    """The module of package `room` that computes on arrays such as `a`: cpu, gpu or reference."""
    name = _forced.get()
    if name is None:
        name = "cpu" if array_module(a) is np else "gpu"
    elif name == "reference" and array_module(a) is not np:
        raise TypeError(
            "using('reference'): expected NumPy arrays, got CuPy arrays; "
            "copy them with cupy.asnumpy or leave the block"
        )
    module = _twins.get((room, name))
    if module is None:
        module = _twins[room, name] = importlib.import_module(f"{room}.{name}")
    return module


def is_forced() -> bool:
    """Whether a block has chosen the twin, so that no short cut round it may be taken."""
    return _forced.get() is not None


@contextmanager
def forced(name: str) -> Iterator[None]:
    """Run every call of the block in the twins called `name`, whatever the arrays; for tests."""
    token = _forced.set(name)
    try:
        yield
    finally:
        _forced.reset(token)


def using(backend: str) -> Any:
    """Run the calls of a `with` block in the plain-NumPy reference, the law over both twins.

    Parameters
    ----------
    backend : "reference"
        The loops of each room's `reference.py`: hundreds of times slower, one comment per equation.

    Raises
    ------
    ValueError
        If `backend` is another word.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[1.0]]); t = np.array([[0.25]]); f = np.array([[0]], dtype=np.int32)
    >>> with hforest.using("reference"):
    ...     leaf, margin, vertex = hforest.hinge.tree_traverse(x, t, f)
    >>> leaf.item(), margin.item()
    (1, 0.75)
    """
    if backend != "reference":
        raise ValueError(
            f"backend: expected 'reference', got {backend!r}; "
            "CPU and GPU are chosen by the arrays that a call is given"
        )
    return forced(backend)
