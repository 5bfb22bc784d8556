"""Cases of `hforest.core`: casts and products that keep subnormals."""

from collections.abc import Iterator

import numpy as np

from hforest.core.gpu import cast, scale_rows

from .case import Case, small

SHAPES = ((0,), (300,), (4, 70), (5, 3, 2))


def _results(shape: tuple[int, ...], dtype: type) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(len(shape))
    whole = rng.integers(-9, 10, shape)
    a, wide = small(whole, np.float32), np.ldexp(rng.normal(size=shape), -140)
    rows = whole.astype(dtype)
    scale_rows(rows, np.ldexp(rng.uniform(size=len(rows)), -140 if dtype == np.float32 else 0))
    return {
        "widened": cast(a, np.dtype(np.float64)),
        "of columns": cast(a.T, np.dtype(np.float64)),
        "rounded": cast(wide, np.dtype(np.float32)),
        "scaled": rows,
    }  # fmt: skip


def cases(dtype: type) -> Iterator[Case]:
    """All bits agree."""
    for shape in SHAPES:
        yield Case(f"small numbers of shape {shape}", lambda s=shape: _results(s, dtype))
