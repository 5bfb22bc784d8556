"""Runs CUDA backends on the host and compares them with the reference.

    python -m host.exercise [DTYPE [SANITIZER [SUBPACKAGE]]]

The cases of a subpackage with a gpu.cu are in `cases_<subpackage>.py`: a function `cases(dtype)` that yields `Case`s.
"""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from unittest import mock

import numpy as np

from hforest.core import dispatch, launch
from hforest.growth.gpu import small_nodes

from .case import Case
from .compiler import SUBPACKAGES, host_compiler
from .like_cupy import like_cupy

DTYPES = (np.float32, np.float64)


def cases_of(subpackage: str, dtype: type) -> Iterator[Case]:
    """Yields the cases of a subpackage; a subpackage with kernels must have some."""
    yield from importlib.import_module(f".cases_{subpackage}", __package__).cases(dtype)


def results(
    case: Case, sanitize: str | None = None, threads: int = 0, cupy: bool = False
) -> dict[str, np.ndarray]:
    """Returns the CUDA backend's results of a case, with so many threads in a block, or as many as the case has (0).

    `cupy`: as `like_cupy`.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(host_compiler(sanitize))
        stack.enter_context(mock.patch.object(launch, "THREADS", threads or case.threads))
        stack.enter_context(mock.patch.object(small_nodes, "SMALL", case.small))
        if cupy:
            stack.enter_context(like_cupy())
        return case.call()


def problems(case: Case, sanitize: str | None = None, cupy: bool = False) -> list[str]:
    """Returns how the CUDA backend's results of a case differ from those it is compared with."""
    with dispatch.forced(case.beside):
        expected = case.call()
    return case.differences(results(case, sanitize, cupy=cupy), expected)


def main(only: str = "all", sanitize: str | None = None, *subpackages: str) -> int:
    """Runs the cases of one dtype or of all, and of some subpackages or of all; returns the exit status."""
    failures = 0
    for subpackage in subpackages or SUBPACKAGES:
        for dtype in (dtype for dtype in DTYPES if only in ("all", dtype.__name__)):
            for case in cases_of(subpackage, dtype):
                found = problems(case, sanitize)
                failures += bool(found)
                print(
                    f"{'FAILED' if found else 'ok'}  {subpackage} {dtype.__name__}: {case.name}", flush=True
                )
                for line in found:
                    print(f"    {line}")
    print(f"{failures} cases failed" if failures else "all cases passed")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
