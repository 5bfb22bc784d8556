"""Cases of `hforest.co2`: both losses, rows of one block and of several, a batch that is left over."""

from collections.abc import Iterator

import numpy as np

from hforest import co2

from .case import Case

# samples, features
SHAPES = ((1, 1), (11, 17))


def _results(shape: tuple[int, int], squared: bool, dtype: type) -> dict[str, np.ndarray]:
    n, n_features = shape
    rng = np.random.default_rng(n)
    x = rng.normal(size=shape).astype(dtype)
    y = rng.normal(size=(n, 3)).astype(dtype) if squared else rng.integers(0, 3, n, np.int32)
    weights = rng.integers(0, 3, n).astype(dtype) + (n == 1)
    w, theta = rng.normal(size=n_features).astype(dtype), rng.normal(size=(2, 3)).astype(dtype)
    loss = "squared" if squared else "log"
    history: list[float] = []
    fitted = co2.fit_stump(
        x, y, w, None if squared else 3, eta=0.1, tau=1, batch=7, max_rounds=2, convex_rounds=1, min_steps=1,
        weights=weights, history=history, rng=0,
    )  # fmt: skip
    return {
        "value": np.array(co2.surrogate(w, *theta, x, y, loss=loss, weights=weights)),
        **dict(zip(("by_w", "by_0", "by_1"), co2.surrogate_grad(w, *theta, x, y, loss=loss), strict=True)),
        **dict(zip(("w", "theta0", "theta1"), fitted, strict=True)),
        "history": np.array(history),
    }


def _forest(squared: bool, dtype: type) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(14, 4)).astype(dtype)
    y = rng.normal(size=(14, 2)).astype(dtype) if squared else rng.integers(0, 3, 14, np.int32)
    task = "regression" if squared else "classification"
    forest = co2.grow(
        x, y, 1, task=task, eta=0.1, tau=1, max_rounds=1, min_steps=1, max_depth=2, min_samples_oblique=9, rng=0
    )  # fmt: skip
    return forest._asdict()


def cases(dtype: type) -> Iterator[Case]:
    """All bits agree: the law fixes every order of summation."""
    for shape in SHAPES:
        for squared in (False, True):
            yield Case(
                f"{'squared' if squared else 'log'} n={shape[0]} features={shape[1]}",
                lambda s=shape, q=squared: _results(s, q, dtype),
            )
    for squared in (False, True):
        yield Case(f"forest squared={squared}", lambda q=squared: _forest(q, dtype))
