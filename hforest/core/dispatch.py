"""Choice of the backend for a call, and of the array module.

NumPy arrays run in `cpu`, CuPy arrays in `gpu`. CuPy is not imported here: a caller with CuPy arrays has
imported it.
"""

import importlib
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import ModuleType
from typing import Any, Literal

import numpy as np

from . import machine
from .aliases import Array

FORCED: ContextVar[str | None] = ContextVar("hforest_backend", default=None)
"""Backend of all calls inside a block of `forced` or `using`, else None."""
_backends: dict[tuple[str, str], ModuleType] = {}


is_cupy = machine.is_cupy


def on_current_device(arrays: Mapping[str, Any]) -> None:
    """Checks that CuPy arrays are on the current device, where results are allocated and kernels run."""
    here = int(sys.modules["cupy"].cuda.runtime.getDevice())
    for name, a in arrays.items():
        if a.data.device_id != here:
            there = int(a.data.device_id)
            raise ValueError(
                f"{name}: expected device {here}, the current one, got device {there}; call inside "
                f"`with cupy.cuda.Device({there}):`, and pass arrays of one device"
            )


def array_module(a: object) -> ModuleType:
    """Returns the module of the array `a`, `numpy` or `cupy`."""
    if type(a) is np.ndarray or not is_cupy(a):
        return np
    return sys.modules["cupy"]


def empty(a: object) -> Any:
    """Returns the function that allocates results on the device of `a`: `numpy.empty` or `cupy.empty`."""
    return array_module(a).empty


def to_numpy(a: Any) -> np.ndarray:
    """Returns `a` itself, or a host copy of a CuPy array (which waits for the device)."""
    return a.get() if is_cupy(a) else a


def backend(package: str, a: object) -> ModuleType:
    """Returns the module of `package` that computes on arrays such as `a`: cpu, gpu or reference."""
    name = FORCED.get()
    if name is None:
        name = "cpu" if array_module(a) is np else "gpu"
    elif name == "reference" and array_module(a) is not np:
        raise TypeError(
            "using('reference'): expected NumPy arrays, got CuPy arrays; "
            "copy them with cupy.asnumpy or leave the block"
        )
    module = _backends.get((package, name))
    if module is None:
        module = _backends[package, name] = importlib.import_module(f"{package}.{name}")
    return module


def runs_on_gpu(a: Array) -> bool:
    """Returns whether calls with arrays such as `a` run in the CUDA backends."""
    return array_module(a) is not np if FORCED.get() is None else FORCED.get() == "gpu"


def is_reference() -> bool:
    """Returns whether calls run in the reference implementations."""
    return FORCED.get() == "reference"


def forced(name: str) -> AbstractContextManager[None]:
    """Runs every call of a `with` block in the backends called `name`, for any arrays; for tests."""
    return machine.Within(FORCED, name)


def using(backend: Literal["reference"]) -> AbstractContextManager[None]:
    """Runs the calls of a `with` block in the reference implementations.

    Parameters
    ----------
    backend : "reference"
        Plain loops of each subpackage's `reference.py`: hundreds of times slower, with a comment per
        equation.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[1.0]]); t = np.array([[0.25]]); f = np.array([[0]], dtype=np.int32)
    >>> with hforest.using("reference"):
    ...     leaf, margin, vertex = hforest.hinge.traverse(x, t, f)
    >>> leaf.item(), margin.item()
    (1, 0.75)
    """
    if not isinstance(backend, str) or backend != "reference":
        raise ValueError(
            f"backend: expected 'reference', got {backend!r}; "
            "leave it out: the arrays of a call decide between CPU and GPU"
        )
    return forced(backend)
