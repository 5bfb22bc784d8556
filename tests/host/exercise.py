"""Run every room's CUDA twin on the host against the reference: `python -m host.exercise [SANITIZER]`.

The cases of a room with a gpu.cu are in `cases_<room>.py`: a function `cases(dtype)` that yields `Case`s.
"""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np

import hforest
from hforest.core import dispatch, launch

from .backend import host_backend
from .case import Case

ROOMS = sorted(path.parent.name for path in Path(hforest.__file__).parent.glob("*/gpu.cu"))
DTYPES = (np.float32, np.float64)


def room_cases(room: str, dtype: type) -> Iterator[Case]:
    """The cases of a room; a room with kernels must have some."""
    yield from importlib.import_module(f".cases_{room}", __package__).cases(dtype)


def results(case: Case, sanitize: str | None = None, threads: int = launch.THREADS) -> dict[str, np.ndarray]:
    """What the CUDA twin, with so many threads a block, makes of a case."""
    with host_backend(sanitize), mock.patch.object(launch, "THREADS", threads):
        return case.call()


def problems(case: Case, sanitize: str | None = None) -> list[str]:
    """What the CUDA twin gets wrong in a case."""
    with dispatch.forced("reference"):
        expected = case.call()
    return case.differences(results(case, sanitize), expected)


def main(sanitize: str | None = None) -> int:
    failures = 0
    for room in ROOMS:
        for dtype in DTYPES:
            for case in room_cases(room, dtype):
                found = problems(case, sanitize)
                failures += bool(found)
                print(f"{'FAILED' if found else 'ok'}  {room} {dtype.__name__}: {case.name}", flush=True)
                for line in found:
                    print(f"    {line}")
    print(f"{failures} cases failed" if failures else "all cases passed")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
