"""Counts what the warps of each kernel ask of memory, on the host build: see counts.cpp."""

import contextlib
import ctypes
import functools
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np

from hforest.core import dispatch, launch

from . import compiler

NAMES = (
    "threads", "busy_threads", "blocks", "busy_blocks", "steps", "requests", "lanes", "sectors", "bytes",
    "block_sectors", "block_bytes", "read", "written", "shared", "passes", "best_passes", "atomics", "addresses",
    "most_atomics",
)  # fmt: skip
"""Counts of a launch, in the order of counts.cpp."""
SHARED_BYTES = 227 << 10
"""Of a block, on sm_90 and sm_100."""


@functools.cache
def can_count() -> bool:
    """Returns whether kernels can be counted here: compiled by GCC, from release 12 on."""
    if not compiler.have_compiler():
        return False
    command = [str(compiler.compiler()), "-dM", "-E", "-x", "c++", os.devnull]
    macros = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    release = re.search(r"^#define __GNUC__ (\d+)$", macros, re.M)
    return (
        "__clang__" not in macros and "__linux__" in macros and release is not None and int(release[1]) >= 12
    )


@functools.cache
def _runtime() -> Any:
    source = compiler.HERE.joinpath("counts.cpp").read_text(encoding="utf-8")
    path = compiler.build(source, "counter")
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)  # kernels find its functions
    library.counts_end.restype = ctypes.POINTER(ctypes.c_longlong * len(NAMES))
    return library


def _ranges(args: list[Any]) -> list[tuple[int, int]]:
    """Returns the begins and ends of the arrays of a launch; those that overlap are one."""
    flat = [b for a in args for b in (a if isinstance(a, tuple) else (a,))]
    spans = sorted(
        (a.ctypes.data, a.ctypes.data + a.nbytes) for a in flat if isinstance(a, np.ndarray) and a.size
    )
    ranges: list[tuple[int, int]] = []
    for begin, end in spans:
        if ranges and begin < ranges[-1][1]:
            ranges[-1] = ranges[-1][0], max(end, ranges[-1][1])
        else:
            ranges.append((begin, end))
    return ranges


class CountingCompiler(compiler.HostCompiler):
    """A host compiler whose launches are counted."""

    def __init__(self) -> None:
        super().__init__("counts")
        self.launches: list[dict[str, Any]] = []

    def block_bytes(self) -> int:
        return SHARED_BYTES

    def compile(self, source: str, dtype: np.dtype) -> Callable[[str], Any]:
        _runtime()
        kernel = super().compile(source, dtype)

        @functools.cache
        def counted(name: str) -> Callable[..., None]:
            run = kernel(name)

            def launch_it(grid: tuple[int], block: tuple[int], args: list[Any], *more: Any) -> None:
                ranges = _ranges(args)
                flat = [number for pair in ranges for number in pair]
                numbers = (ctypes.c_ulonglong * max(1, len(flat)))(*flat)
                _runtime().counts_begin(numbers, ctypes.c_longlong(len(ranges)))
                run(grid, block, args, *more)
                counts = dict(zip(NAMES, _runtime().counts_end().contents, strict=True))
                counts["threads"] = grid[0] * block[0]
                self.launches.append({"kernel": name, "block": block[0], "block_memory": sum(more), **counts})

            return launch_it

        return counted


@functools.cache
def _compiler() -> CountingCompiler:
    return CountingCompiler()


@contextlib.contextmanager
def counting() -> Iterator[list[dict[str, Any]]]:
    """Runs a `with` block's calls in the CUDA backends on the host, and appends the counts of each launch to a list."""
    ours = _compiler()
    ours.launches = []
    before, launch.compiler = launch.compiler, ours
    try:
        with dispatch.forced("gpu"), mock.patch.object(compiler, "BLOCK_BYTES", SHARED_BYTES, create=True):
            yield ours.launches
    finally:
        launch.compiler = before
