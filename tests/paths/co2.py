"""Rows of `hforest.co2`."""

import numpy as np

from hforest import co2

from . import BITS, PATHS, Row, normal


def fit_stump(dtype):
    x, y = normal(100, 20, dtype=dtype), np.arange(100) % 3
    co2.fit_stump(x, y, normal(20, dtype=dtype), n_classes=3, rng=0)


def rows():
    for bits, dtype in BITS.items():
        bodies = {
            path: f"co2.dots_{bits}_{name} co2.add_rows_{bits}_{name}"
            for path, name in PATHS.items()
            if path in ("avx2", "avx512")
        }
        yield Row(f"co2.fit_stump-{bits}", lambda dtype=dtype: fit_stump(dtype), paths=bodies)
