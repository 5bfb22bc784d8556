"""Calls and the bodies that they take, for test_paths_taken.py: a file for each subpackage, with a function `rows()`."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

PATHS = {"plain": "plain", "vector": "v16", "avx2": "v32", "avx512": "v64"}
# Where vectors are those of the compiler for any processor, the bodies of exp and log are the plain ones.
EXPS, LOGS = (
    {path: f"core.{name}_{path if path.startswith('avx') else 'plain'}" for path in PATHS}
    for name in ("exps", "logs")
)
BITS = {"f32": np.float32, "f64": np.float64}


def normal(*shape, dtype=np.float32):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


class Row(NamedTuple):
    """A call and what it takes: on every path, on every path with vectors, and besides on single ones.

    {path} stands for the path, {bytes} for its name in growth.
    """

    id: str
    call: Callable[[], object]
    every: str = ""
    vectors: str = ""
    paths: dict[str, str] | None = None

    def bodies(self, path):
        names = f"{self.every} {self.vectors if path != 'plain' else ''} {(self.paths or {}).get(path, '')}"
        return set(names.format(path=path, bytes=PATHS[path]).split())
