"""Common parts of the bits scripts: hashes of arrays, and samples."""

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

LATER = (
    "missing", "categorical", "default_left", "category_indptr", "category_bits", "class_start", "features_m",
    "features_v", "encoding", "columns",
)  # fmt: skip
"""Fields that were added to tuples: for missing values, categories, moments, columns of tables."""


def digest(*arrays: Any) -> str:
    """Returns the first 16 digits of the SHA-256 of arrays, nested tuples and None.

    Fields of LATER that are empty or None are left out, so that tuples with new fields keep their digits.
    """
    h = hashlib.sha256()

    def feed(a: Any) -> None:
        if isinstance(a, (tuple, list)):
            names = getattr(a, "_fields", ("",) * len(a))
            for name, b in zip(names, a, strict=True):
                if name not in LATER or isinstance(b, tuple) or (b is not None and np.size(b)):
                    feed(b)
        elif a is None:
            h.update(b"None")
        else:
            a = np.ascontiguousarray(a)
            h.update(str((a.dtype.str, a.shape)).encode())
            h.update(a.tobytes())

    feed(arrays)
    return h.hexdigest()[:16]


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


Results = Iterator[tuple[str, str]]
"""Names and hashes of results."""
