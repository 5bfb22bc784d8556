"""Importance by what shuffling a feature costs."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core import check as checks
from ..core import dispatch
from ..core.dispatch import Array


def checked(x: Array, y: Array, dtype: np.dtype, n_outputs: int, n_repeats: int, rng: Any) -> Any:
    """The generator of what `permutation_importance` draws; raises where its other arguments are wrong."""
    checks.same_device(x=x, y=y)
    sizes: checks.Sizes = {}
    checks.array("x", x, dtype, ("n", "n_features"), sizes)
    checks.at_least_one(sizes, "n_features")
    if sizes["n"] < 1:
        raise ValueError("x: expected at least one sample, got 0; pass samples that the forest did not learn")
    checks.finite("x", x)
    if y.dtype == checks.INT32:
        checks.array("y", y, checks.INT32, ("n",), sizes)
        checks.indices("y", y, n_outputs, "n_outputs")
    else:
        checks.array("y", y, dtype, ("n",) if y.ndim == 1 else ("n", n_outputs), sizes)
        checks.finite("y", y)
        if y.ndim == 1 and n_outputs != 1:
            raise ValueError(
                f"y: expected shape (n, n_outputs) = (n, {n_outputs}), got {y.shape}; add an axis"
            )
    checks.integer("n_repeats", n_repeats, 1, 2**20)
    return checks.generator(rng)


def score(p: Array, y: Array) -> float:
    """Share of right labels, or minus the mean squared error."""
    if y.dtype == checks.INT32:
        return float((p.argmax(axis=1) == y).mean())
    wrong = (p - y.reshape(p.shape)).astype(np.float64)
    return -float((wrong * wrong).mean())


def losses(
    predict: Callable[[Array], Array], x: Array, y: Array, n_repeats: int, rng: Any, progress: Any
) -> np.ndarray:
    """(n_features, n_repeats): how much lower the score is with a column shuffled."""
    xp = dispatch.array_module(x)
    whole = score(predict(x), y)
    lost = np.zeros((x.shape[1], n_repeats))
    shuffled = x.copy()
    for f in range(x.shape[1]):
        for repeat in range(n_repeats):
            shuffled[:, f] = x[:, f][xp.asarray(rng.permutation(len(x)))]
            lost[f, repeat] = whole - score(predict(shuffled), y)
        shuffled[:, f] = x[:, f]
        if progress is not None and progress(f + 1, x.shape[1]) is True:
            return lost[: f + 1]
    return lost
