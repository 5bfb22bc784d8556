"""Cases of `hforest.layers`: the softmax loss."""

from collections.abc import Iterator

import numpy as np

from hforest import layers

from .case import Case, small

# samples, classes
SHAPES = ((0, 3), (1, 1), (1, 2), (7, 10), (53, 33), (1100, 3), (3, 100))


def _loss(scores: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    with np.errstate(over="ignore"):
        loss, grad = layers.softmax_loss(scores, y)
    return {"loss": np.array(loss), "grad": grad}


def cases(dtype: type) -> Iterator[Case]:
    """Scores of several sizes."""
    for n, n_classes in SHAPES:
        rng = np.random.default_rng(n)
        y = rng.integers(0, n_classes, n, dtype=np.int32)
        for scale in (1, 1e4):
            scores = (rng.standard_normal((n, n_classes)) * scale).astype(dtype)
            name = f"n={n} classes={n_classes} scale={scale}"
            yield Case(name, lambda s=scores, y=y: _loss(s, y))
    scores, y = small(np.array([[1, 2], [-3, 3]]), dtype), np.array([0, 1], np.int32)
    yield Case("small", lambda: _loss(scores, y))
    most = np.finfo(dtype).max
    huge = np.array([[most, -most], [0, 0]], dtype)
    yield Case("huge", lambda: {"grad": _loss(huge, y)["grad"]})
