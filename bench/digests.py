"""Samples of the bits scripts; `digest` is that of `python -m hforest verify`."""

from typing import Any, NamedTuple

import numpy as np

from hforest._verify import Results, digest

__all__ = ["Results", "Task", "digest", "make_task"]


class Task(NamedTuple):
    """Samples with their labels and targets."""

    x: np.ndarray
    labels: np.ndarray
    targets: np.ndarray
    weights: dict[str, np.ndarray | None]
    decisions: np.ndarray


def make_task(dtype: Any) -> Task:
    """Returns 500 samples of 12 features and three classes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 12)).astype(dtype)
    labels = (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(np.int32) + (x[:, 3] > 0.5).astype(np.int32)
    whole = rng.integers(1, 4, 500).astype(dtype)
    real = rng.random(500).astype(dtype)
    weights = {"no": None, "whole": whole, "real": real}
    return Task(x, labels, (x[:, :2] ** 2).copy(), weights, rng.normal(size=(100, 4, 7)).astype(dtype))
