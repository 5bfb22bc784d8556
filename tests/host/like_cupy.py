"""What CuPy does otherwise than NumPy, done to NumPy arrays: see `like_cupy`."""

import contextlib
import ctypes
import functools
import importlib
import sys
import types
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np

from hforest.core import dispatch

from .compiler import SUBPACKAGES, build

PATTERN = 0xA5
"""The bytes of memory that nothing was written to."""

_SOURCE = """
#include "cuda.h"
extern "C" int set_flushing(int on) { return host::set_flushing(on); }
"""


@functools.cache
def _library() -> Any:
    return ctypes.CDLL(str(build(_SOURCE)))


@contextlib.contextmanager
def flushing() -> Iterator[None]:
    """Makes subnormals 0 in this thread, as the kernels of CuPy do; of float64 too, which theirs keep."""
    before = _library().set_flushing(1)
    try:
        yield
    finally:
        _library().set_flushing(before)


def _float(a: Any) -> float:
    # The host, which reads numbers of a device, does not flush.
    before = _library().set_flushing(0)
    try:
        return float(a)
    finally:
        _library().set_flushing(before)


def by_bits(a: np.ndarray) -> np.ndarray:
    """Returns keys whose order is that of a radix sort of one row: NaN with the sign set is the least. -0 is 0."""
    if a.dtype.kind != "f":
        return a
    signed = np.dtype(f"i{a.itemsize}")
    bits = np.where(a == 0, a.dtype.type(0), a).view(signed)
    return bits ^ (bits >> (8 * a.itemsize - 1) & np.iinfo(signed).max)


class _Module(types.ModuleType):
    """NumPy, with the sorts and the fresh memory of CuPy."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def argsort(self, a: np.ndarray, axis: int = -1, kind: str | None = None) -> np.ndarray:
        return np.argsort(by_bits(a) if a.ndim == 1 else a, axis=axis, kind="stable")

    def sort(self, a: np.ndarray) -> np.ndarray:
        return a[self.argsort(a)]

    def unique(self, a: np.ndarray) -> np.ndarray:
        a = self.sort(a.ravel())
        return a[np.concatenate([np.ones(min(1, a.size), bool), a[1:] != a[:-1]])]

    def empty(self, shape: Any, dtype: Any = np.float64) -> np.ndarray:
        a = np.empty(shape, dtype)
        a.view(np.uint8 if a.ndim else (np.uint8, a.itemsize)).fill(PATTERN)
        return a


@contextlib.contextmanager
def like_cupy() -> Iterator[None]:
    """Runs a `with` block, in `host_compiler`, with the array module, the fresh memory and the flushing of CuPy."""
    for name in SUBPACKAGES:
        importlib.import_module(f"hforest.{name}.gpu")
    numpy, ours = _Module("like_cupy"), dispatch.array_module
    loaded = [module for name, module in sys.modules.items() if name.startswith("hforest.")]
    users = [user for user in loaded if vars(user).get("array_module") is ours]
    with contextlib.ExitStack() as stack:
        for user in users:
            stack.enter_context(mock.patch.object(user, "array_module", return_value=numpy))
        stack.enter_context(mock.patch("hforest.split.scores.float", _float, create=True))
        stack.enter_context(flushing())
        yield
