"""Errors of predictions as lines of text, and a sketch that recognises the rows of training."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..core import roc
from .columns import coded
from .library import aside
from .tables import MISSING, opened, spelling
from .texts import Hints, typed

Z = 1.959964
"""95 % of the normal distribution lie within Z deviations."""
SKETCH = 4096
"""Number of rows of training that a model recognises."""


def wilson(k: float, n: float) -> tuple[float, float]:
    """Returns the 95 % interval of a share of which k of n rows were counted (Wilson 1927)."""
    share, z2 = k / n, Z**2 / n
    middle, half = share + z2 / 2, Z * np.sqrt(share * (1 - share) / n + z2 / n / 4)
    return max(0.0, float((middle - half) / (1 + z2))), min(1.0, float((middle + half) / (1 + z2)))


def normal(values: np.ndarray) -> tuple[float, float]:
    """Returns the 95 % interval of the mean of values, by the normal distribution."""
    half = Z * values.std() / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def shares(y: np.ndarray, classes: np.ndarray | None) -> str:
    """Returns a description of labels or targets."""
    if classes is None:
        return f"{y.min():.6g} to {y.max():.6g}"
    counts = [int((y == label).sum()) for label in classes]
    largest = sorted(range(len(counts)), key=lambda j: -counts[j])[:5]
    labels = [f"{classes[j]} {100 * counts[j] / len(y):.1f} %" for j in largest]
    return ", ".join(labels + ["..."] * (len(counts) > len(labels)))


def lines(p: np.ndarray, y: np.ndarray, classes: np.ndarray | None, y_train: np.ndarray) -> Iterator[str]:
    """Yields the errors of predictions; `y` are places in `classes`, -1 for other labels, or targets."""
    if classes is not None:
        wrong = p.argmax(axis=1) != y
        low, high = wilson(float(wrong.sum()), len(wrong))
        yield f"error {100 * float(wrong.mean()):.2f} % (95 %: {100 * low:.2f} to {100 * high:.2f} %)"
        yield from _of_classes(p, y, classes, y_train)
        return
    p, y = p.reshape(len(p), -1), y.reshape(len(p), -1)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        squared = (p - y) ** 2
        share = squared.mean(axis=0) / y.var(axis=0)
        low, high = normal(squared.mean(axis=1))
        yield (
            f"mean squared error {float(squared.mean()):.6g} (95 %: {max(0.0, low):.6g} to {high:.6g}), "
            f"{100 * float(np.mean(share)):.2f} % of the variance"
        )
        constant = float(((y_train.reshape(len(y_train), -1).mean(axis=0) - y) ** 2).mean())
        yield (
            f"R2 {float(1 - np.mean(share)):.4f}, mean absolute error {float(abs(p - y).mean()):.6g}; the "
            f"mean of the training rows has a mean squared error of {constant:.6g}"
        )


def _of_classes(p: np.ndarray, y: np.ndarray, classes: np.ndarray, y_train: np.ndarray) -> Iterator[str]:
    known = y >= 0
    p, y = p[known], y[known]
    if not len(y):
        return
    best = int(np.argmax([(y_train == label).sum() for label in classes]))
    text = f"log loss {float(-np.log(np.maximum(p[np.arange(len(y)), y], 1e-15)).mean()):.4f}"
    if len(classes) == 2 and 0 < int(y.sum()) < len(y):
        text += f", AUC {roc.auc(p[:, 1], y):.4f}"
    yield f"{text}; the constant {classes[best]} is wrong in {100 * float((y != best).mean()):.2f} %"
    if len(classes) > 12:
        return
    n = len(classes)
    counts = np.bincount(y * n + p.argmax(axis=1), minlength=n * n).reshape(n, n)
    cells = [["true \\ predicted", *map(str, classes.tolist())]]
    cells += [
        [str(label), *map(str, row)] for label, row in zip(classes.tolist(), counts.tolist(), strict=True)
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    table = (
        "  ".join(cell[:20].rjust(min(width, 20)) for cell, width in zip(row, widths, strict=True))
        for row in cells
    )
    yield "confusion matrix\n" + "\n".join(table)


# ------------------------------------------------------------------------------------- predictions


@aside
def spelt_target(table: Any, name: str, null_values: Sequence[str], classes: np.ndarray | None) -> np.ndarray:
    """Returns the target of a table as places in `classes`, or numbers.

    A missing target is -2 or NaN, and a label that is no class, or a target that is no number, -1 or
    infinity.
    """
    names, readers, n_rows = opened("table", table)
    values = readers[names.index(name)]()
    levels, codes = coded(values, tuple(null_values)) if values.kind != MISSING else ((), np.full(n_rows, -1))
    if classes is not None:
        place = {spelling(label): i for i, label in enumerate(classes.tolist())}
        place = {label.lower(): i for label, i in place.items()} | place
        found = (
            place.get(level, place.get(level.lower(), place.get(_number(level), -1))) for level in levels
        )
        return np.array([*found, -2])[codes]
    if values.kind == "text":
        read = typed(values, Hints(tuple(null_values))).values
        values = values if read.kind not in ("number", "boolean", MISSING) else read
    if values.kind not in ("number", "boolean"):
        return np.where(codes < 0, np.nan, np.inf)
    return np.where(values.absent, np.where(codes < 0, np.nan, np.inf), values.data)


def _number(text: str) -> str:
    try:
        return spelling(float(text))
    except (ValueError, OverflowError):
        return ""


def errors_of(p: np.ndarray, y: Any, classes: np.ndarray | None) -> Iterator[str]:
    """Yields the errors of predictions on rows that can be compared, and the number of other rows.

    `y` is from `spelt_target`, or has the targets of several outputs.
    """
    if y.ndim == 1:
        missing, odd = (y == -2, y == -1) if classes is not None else (np.isnan(y), np.isinf(y))
        what = "a target that is no number" if classes is None else "a label that the model does not know"
        if odd.any():
            yield f"{int(odd.sum())} of {len(p)} rows have {what}, and are not compared"
        p, y = p[~(missing | odd)], y[~(missing | odd)]
    if len(p) and (classes is None or y.ndim == 1):
        yield from lines(p, y, classes, y if classes is None else classes[y])


def sketch(x: Any) -> np.ndarray:
    """Returns the SKETCH least hash values of rows, (n,) uint64, ascending."""
    return np.unique(_hashes(x))[:SKETCH]


def share_seen(x: np.ndarray, seen: np.ndarray) -> float:
    """Returns the share of rows that are rows of training, among those whose hash the sketch would hold."""
    of_rows = _hashes(x)
    if len(seen) == SKETCH:
        of_rows = of_rows[of_rows <= seen[-1]]
    return float(np.isin(of_rows, seen).mean()) if len(of_rows) else 0.0


def _hashes(x: Any) -> np.ndarray:
    a = np.asarray(x, np.float64)
    h = np.zeros(len(a), np.uint64)
    with np.errstate(over="ignore"):
        for column in a.T:
            bits = np.where(np.isnan(column), np.nan, column + 0.0).view(np.uint64)
            h = (h ^ bits) * np.uint64(0x9E3779B97F4A7C15)
            h ^= h >> np.uint64(29)
    return h
