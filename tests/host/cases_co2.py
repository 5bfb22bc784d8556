"""Cases of `hforest.co2`: both losses, rows of one block and of several, a batch that is left over."""

from collections.abc import Iterator
from unittest import mock

import numpy as np

import hforest
from hforest import co2
from hforest.co2 import StumpSettings, gpu

from . import compiler
from .case import Case, scaled

# samples, features
SHAPES = ((1, 1), (11, 17))
SURE = compiler.SURE_BYTES
CHUNKS = (
    (1030, 3, 100, gpu.FEW, 0), (1700, 20, 1100, 0, SURE), (230, 12, 33, gpu.FEW, SURE),
    (310, 11, 100, gpu.FEW, SURE), (9, 4, 100, gpu.FEW, SURE),
)  # fmt: skip
"""Samples, features, samples of a batch; `gpu.FEW`: above it a block has fewer threads; shared memory of a block.

Two thirds of the samples have a weight. The second has a batch of two chunks, the last three have buffers of rows of x.
"""


def _results(
    shape: tuple[int, int], squared: bool, dtype: type, batch_size: int = 7, few: int = gpu.FEW, room: int = 0
) -> dict[str, np.ndarray]:
    n, n_features = shape
    rng = np.random.default_rng(n)
    x = rng.normal(size=shape).astype(dtype)
    y = rng.normal(size=(n, 3)).astype(dtype) if squared else rng.integers(0, 3, n, np.int32)
    weight = rng.integers(0, 3, n).astype(dtype) + (n == 1)
    w, theta = rng.normal(size=n_features).astype(dtype), rng.normal(size=(2, 3)).astype(dtype)
    loss = "squared" if squared else "log"
    history: list[float] = []
    learned = {"task": "regression"} if squared else {"n_classes": 3}
    stump = StumpSettings(tau=1, batch_size=batch_size, convex_rounds=1, min_steps=1)
    room = room or compiler.BLOCK_BYTES
    with mock.patch.object(gpu, "FEW", few), mock.patch.object(compiler, "BLOCK_BYTES", room):
        fitted = co2.fit_stump(
            x,
            y,
            w,
            lr=0.1,
            max_rounds=2,
            stump=stump,
            sample_weight=weight,
            history=history,
            rng=0,
            **learned,
        )
    bound = {"loss": loss, "sample_weight": weight}
    return {
        "value": np.array(co2.surrogate(x, y, w, *theta, **bound)),
        **dict(zip(("by_w", "by_0", "by_1"), co2.surrogate_grad(x, y, w, *theta, **bound), strict=True)),
        **fitted._asdict(),
        "history": np.array(history),
    }


def stump_of_chunks(squared: bool, which: int, dtype: type) -> dict[str, np.ndarray]:
    """Returns a stump of CHUNKS[which], its surrogates and gradients."""
    *shape, batch_size, few, room = CHUNKS[which]
    return _results((shape[0], shape[1]), squared, dtype, batch_size, few, room)


def _data(squared: bool, scale: float, dtype: type) -> tuple[np.ndarray, np.ndarray, str]:
    rng = np.random.default_rng(1)
    x = scaled(rng.normal(size=(14, 4)) if scale else rng.integers(-9, 10, (14, 4)), scale, dtype)
    y = rng.normal(size=(14, 2)).astype(dtype) if squared else rng.integers(0, 3, 14, np.int32)
    return x, y, "regression" if squared else "classification"


def _forest(squared: bool, scale: float, dtype: type, room: int = 0) -> dict[str, np.ndarray]:
    x, y, task = _data(squared, scale, dtype)
    with mock.patch.object(compiler, "BLOCK_BYTES", room or compiler.BLOCK_BYTES):
        forest = co2.grow(
            x, y, 1, lr=0.1, max_rounds=1, stump=StumpSettings(tau=1, min_steps=1), min_samples_oblique=9,
            max_depth=2, task=task, standardize=bool(scale), rng=0,
        )  # fmt: skip
    return forest._asdict()


def refined(squared: bool, dtype: type) -> dict[str, np.ndarray]:
    """Returns two trees that are refined, with validation samples, and their bounds."""
    x, y, task = _data(squared, 1, dtype)
    history: list[list[float]] = []
    forest = hforest.grow(x, y, 2, max_depth=3, task=task, rng=0)
    stump = StumpSettings(tau=1, batch_size=9, min_steps=1)
    forest = co2.refine(
        forest, x, y, lr=0.5, max_rounds=2, stump=stump, sample_weight=np.arange(14) % 4, task=task,
        validation=(x[:6], y[:6]), history=history, rng=0,
    )  # fmt: skip
    return {**forest._asdict(), "history": np.array(history)}


def cases(dtype: type) -> Iterator[Case]:
    """All bits agree: the reference implementation fixes every order of summation."""
    for shape in SHAPES:
        for squared in (False, True):
            yield Case(
                f"{'squared' if squared else 'log'} n={shape[0]} features={shape[1]}",
                lambda s=shape, q=squared: _results(s, q, dtype),
            )
    for which, squared in enumerate((False, True, False, True, False)):
        yield Case(
            f"{'squared' if squared else 'log'} n={CHUNKS[which][0]}",
            lambda q=squared, i=which: stump_of_chunks(q, i, dtype),
            beside="cpu",
        )
    for squared in (False, True):
        for room in (0, SURE):
            yield Case(
                f"forest squared={squared} room={room}", lambda q=squared, r=room: _forest(q, 1, dtype, r)
            )
        yield Case(f"refined squared={squared}", lambda q=squared: refined(q, dtype))
    yield Case("forest of small numbers", lambda: _forest(False, 0, dtype))
