"""Cases of `hforest.core`: casts and products that keep subnormals, checks of values."""

from collections.abc import Iterator

import numpy as np

from hforest.core import dispatch, gpu
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


def _first_bad(n: int, dtype: type) -> dict[str, np.ndarray]:
    """Of more arrays than a launch has, some sound, some empty, of several dtypes."""
    rng, checked, expected = np.random.default_rng(n), [], []
    bad = {
        gpu.FINITE: [np.inf, np.nan, -np.inf],
        gpu.NOT_NAN: [-np.nan, np.nan],
        gpu.INDEX: [-1, 5],
        gpu.STEP: [-1, 5],
    }
    for i, kind in enumerate([*bad, *bad]):
        of = {gpu.INDEX: np.int32, gpu.STEP: np.int64}.get(kind, np.float64 if i == 4 else dtype)
        a = rng.integers(0, 5, n).astype(of)
        if kind == gpu.NOT_NAN:
            a[::7] = np.inf  # legal
        at = rng.permutation(n)[: 0 if i == 1 else n // 20]
        a[at] = rng.choice(bad[kind], len(at)).astype(of)
        checked.append((a, kind, 5))
        expected.append(min(at, default=-1))
    return {"first": np.array(gpu.first_bad(checked) if dispatch.runs_on_gpu(a) else expected)}


def cases(dtype: type) -> Iterator[Case]:
    """All bits agree."""
    for shape in SHAPES:
        yield Case(f"small numbers of shape {shape}", lambda s=shape: _results(s, dtype))
    for n in (0, 40, 1000):
        yield Case(f"first bad of {n}", lambda n=n: _first_bad(n, dtype))
