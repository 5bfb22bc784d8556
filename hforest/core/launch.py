"""Compiles and launches the CUDA backends.

The `gpu.cu` of a folder is compiled after `common.cuh` once for each (folder, dtype, device), when its
first kernel is launched with that dtype. Headers of the package, which the C compiler reads too, take the
place of their `#include`s, because CuPy's cache of compiled modules has the text as its key. A `Compiler`
compiles and launches: NVRTC through CuPy or, in the tests, a C++ compiler of the host.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .aliases import Array

THREADS = 128
"""Threads of a block, unless a kernel needs another number."""

COMMON = Path(__file__).with_name("common.cuh")
PACKAGE = COMMON.parents[1]
REAL = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}

# No fused multiply-add, so that leaves, vertices and margins have the same bits on every device.
OPTIONS = ("--std=c++17", "--fmad=false")

Kernel = Callable[[tuple[int], tuple[int], tuple[Any, ...]], None]


class Compiler(Protocol):
    """Compiles and launches kernels."""

    def device(self) -> int:
        """Returns the number of the current device, part of the cache key."""

    def compile(self, source: str, dtype: np.dtype) -> Callable[[str], Kernel]:
        """Compiles a translation unit; the result maps a kernel's name to a function that launches it."""


class CupyCompiler:
    """Compiles with NVRTC and launches on the caller's current stream, through CuPy."""

    def device(self) -> int:
        import cupy

        return int(cupy.cuda.runtime.getDevice())

    def compile(self, source: str, dtype: np.dtype) -> Callable[[str], Kernel]:
        import cupy

        module = cupy.RawModule(code=source, options=(*OPTIONS, f"-Dreal={REAL[dtype]}"), backend="nvrtc")
        return module.get_function


compiler: Compiler = CupyCompiler()
_modules: dict[tuple[Compiler, int, str, np.dtype], Callable[[str], Kernel]] = {}


_INCLUDE = re.compile(r'#include "([\w/]+\.h)"')


def _lines(path: Path, seen: set[str]) -> list[str]:
    # The lines of a file, with `#line` marks; headers are named by their place in the package and come once.
    name = f"{path.parent.name}/{path.name}"
    lines = [f'#line 1 "{name}"']
    for number, line in enumerate(path.read_text().splitlines(), 1):
        include = _INCLUDE.fullmatch(line)
        if include is None:
            lines.append(line)
        elif include[1] not in seen:
            seen.add(include[1])
            lines += [*_lines(PACKAGE / include[1], seen), f'#line {number + 1} "{name}"']
        else:
            lines.append("")
    return lines


def source(folder: Path) -> str:
    """Returns the translation unit of a folder: common.cuh, its gpu.cu, and the headers that they include."""
    seen: set[str] = set()
    return "\n".join([*_lines(COMMON, seen), *_lines(folder / "gpu.cu", seen)]) + "\n"


def launch(
    folder: Path, name: str, dtype: np.dtype, n_blocks: int, args: tuple[Any, ...], threads: int | None = None
) -> None:
    """Launches kernel `name` of `folder` on `n_blocks` blocks of `threads` (default THREADS) threads.

    Without a block nothing is launched.
    Arrays are passed as pointers, Python ints as long long, Python floats as double.
    """
    if n_blocks == 0:
        return
    key = (compiler, compiler.device(), folder.name, np.dtype(dtype))
    module = _modules.get(key)
    if module is None:
        module = _modules[key] = compiler.compile(source(folder), np.dtype(dtype))
    module(name)((n_blocks,), (threads or THREADS,), tuple(_argument(a) for a in args))


def launch_each(folder: Path, name: str, dtype: np.dtype, n: int, args: tuple[Any, ...]) -> None:
    """Launches kernel `name` with a thread for each of `n` elements; the last block may have more threads."""
    launch(folder, name, dtype, -(-n // THREADS), args)


def _argument(a: Any) -> Array | np.int64 | np.float64:
    if isinstance(a, int):
        return np.int64(a)
    return np.float64(a) if isinstance(a, float) else a
