"""Compile and launch the CUDA twins.

A room's `gpu.cu` is compiled behind `common.cuh` once per (room, dtype, device), when the first kernel
of that dtype is asked for. Both texts are joined with `#line` marks instead of `#include`, because
CuPy's cache key is the text it is given. Who compiles and launches is a backend: CuPy's NVRTC, or, in
the tests, a C++ compiler on the host.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .dispatch import Array

THREADS = 128
"""Threads of a block, unless a kernel's algorithm fixes another number."""

COMMON = Path(__file__).with_name("common.cuh")
REAL = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}

# No fused multiply-add: leaves, vertices and margins have the same bits on every device.
OPTIONS = ("--std=c++17", "--fmad=false")

Kernel = Callable[[tuple[int], tuple[int], tuple[Any, ...]], None]


class Backend(Protocol):
    """What compiles and launches."""

    def device(self) -> int:
        """Number of the current device, part of the cache key."""

    def compile(self, source: str, dtype: np.dtype) -> Callable[[str], Kernel]:
        """Compile a translation unit; the result maps a kernel's name to something to launch."""


class CupyBackend:
    """NVRTC and the caller's current stream, through CuPy."""

    def device(self) -> int:
        import cupy

        return int(cupy.cuda.runtime.getDevice())

    def compile(self, source: str, dtype: np.dtype) -> Callable[[str], Kernel]:
        import cupy

        module = cupy.RawModule(code=source, options=(*OPTIONS, f"-Dreal={REAL[dtype]}"), backend="nvrtc")
        return module.get_function


backend: Backend = CupyBackend()
_modules: dict[tuple[Backend, int, str, np.dtype], Callable[[str], Kernel]] = {}


def source(room: Path) -> str:
    """The translation unit of a room: common.cuh, then its gpu.cu, each under its own name."""
    parts = (COMMON, room / "gpu.cu")
    return "\n".join(f'#line 1 "{part.parent.name}/{part.name}"\n{part.read_text()}' for part in parts)


def launch(
    room: Path, name: str, dtype: np.dtype, n_blocks: int, args: tuple[Any, ...], threads: int | None = None
) -> None:
    """Run kernel `name` of `room` on `n_blocks` blocks of `threads` (default THREADS); no block, no launch.

    Arrays pass as pointers, Python ints as long long, Python floats as double.
    """
    if n_blocks == 0:
        return
    key = (backend, backend.device(), room.name, np.dtype(dtype))
    module = _modules.get(key)
    if module is None:
        module = _modules[key] = backend.compile(source(room), np.dtype(dtype))
    module(name)((n_blocks,), (threads or THREADS,), tuple(_argument(a) for a in args))


def launch_each(room: Path, name: str, dtype: np.dtype, n: int, args: tuple[Any, ...]) -> None:
    """Run kernel `name` with one thread for each of `n` elements; the last block may have spare ones."""
    launch(room, name, dtype, -(-n // THREADS), args)


def _argument(a: Any) -> Array | np.int64 | np.float64:
    if isinstance(a, int):
        return np.int64(a)
    return np.float64(a) if isinstance(a, float) else a
