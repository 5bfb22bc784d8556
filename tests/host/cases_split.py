"""Cases of `hforest.split`: every criterion, few and many samples, ties, whole weights, bins."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from hforest import split

from .case import Case, scaled

# candidates, samples, different values
SHAPES = ((1, 1, 1), (3, 2, 2), (4, 65, 9), (5, 700, 10**4))


def _results(
    shape: tuple[int, int, int], criterion: str, max_bins: int | None, scale: float, dtype: type
) -> dict[str, np.ndarray]:
    n_candidates, n, n_values = shape
    rng = np.random.default_rng(n)
    values = scaled(rng.integers(-n_values, n_values, (n_candidates, n)), scale, dtype)
    weight = rng.integers(0, 3, n).astype(dtype)
    y = rng.integers(0, 3, n, np.int32)
    goal: dict[str, Any] = {"n_classes": 3}
    if criterion == "squared_error":
        y, goal = y.astype(dtype), {"task": "regression"}
    best = split.best_split(values, y, sample_weight=weight, criterion=criterion, max_bins=max_bins, **goal)
    counts = rng.integers(0, 9, (n, 3)).astype(dtype)
    return {
        "candidate": np.array(best.candidate),
        "threshold": np.array(best.threshold),
        "gain": np.array(best.gain),
        "impurity": split.impurity(counts, criterion),
    }


def cases(dtype: type) -> Iterator[Case]:
    """Every criterion on every shape; sums of centred targets are rounded in another order."""
    for shape in SHAPES:
        for criterion in ("gini", "entropy", "squared_error"):
            for max_bins, scale in itertools.product((None, 5), (1 / 8, 0)):
                yield Case(
                    f"{criterion} candidates={shape[0]} n={shape[1]} bins={max_bins} times {scale:g}",
                    lambda s=shape, c=criterion, b=max_bins, f=scale: _results(s, c, b, f, dtype),
                    {"gain": 1e4} if criterion == "squared_error" else {},
                )
