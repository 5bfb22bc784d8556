"""Errors of predictions as lines of text, and a sketch that recognises the rows of training."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..columns import coded
from ..library import aside
from ..tables import MISSING, opened, spelling
from ..texts import Hints, typed
from . import metrics

SKETCH = 4096
"""Number of rows of training that a model recognises."""


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
    if classes is None:
        found = {one.name: one for one in metrics.of_targets(p, y)}
        squared, r2 = found["mean squared error"], found["R2"].value
        yield (
            f"mean squared error {squared.value:.6g} (95 %: {squared.low:.6g} to {squared.high:.6g}), "
            f"{100 * (1 - r2):.2f} % of the variance"
        )
        mean = y_train.reshape(len(y_train), -1).mean(axis=0)
        constant = metrics.squared_errors(np.broadcast_to(mean, (len(y), len(mean))), y).mean()
        yield (
            f"R2 {r2:.4f}, mean absolute error {found['mean absolute error'].value:.6g}; the mean of the "
            f"training rows has a mean squared error of {constant:.6g}"
        )
        return
    found = {one.name: one for one in metrics.of_classes(p, y)}
    wrong = found["error"]
    yield (f"error {100 * wrong.value:.2f} % (95 %: {100 * wrong.low:.2f} to {100 * wrong.high:.2f} %)")
    if "log loss" not in found:
        return
    best = int(np.argmax([(y_train == label).sum() for label in classes]))
    text = ", ".join(f"{name} {found[name].value:.4f}" for name in ("log loss", "AUC") if name in found)
    yield f"{text}; the constant {classes[best]} is wrong in {100 * float((y[y >= 0] != best).mean()):.2f} %"
    if len(classes) > 12:
        return
    counts = metrics.confusion(p, y)
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


def compared(y: Any, classes: np.ndarray | None) -> tuple[np.ndarray, list[str]]:
    """Returns the rows that can be compared, and a sentence about others.

    `y` is from `spelt_target`, or has the targets of several outputs.
    """
    if y.ndim > 1:
        return np.arange(len(y)), []
    missing, odd = (y == -2, y == -1) if classes is not None else (np.isnan(y), np.isinf(y))
    what = "a target that is no number" if classes is None else "a label that the model does not know"
    said = f"{int(odd.sum())} of {len(y)} rows have {what}, and are not compared"
    return np.flatnonzero(~(missing | odd)), [said] if odd.any() else []


def errors_of(p: np.ndarray, y: Any, classes: np.ndarray | None) -> Iterator[str]:
    """Yields the errors of predictions on rows that can be compared, and the number of other rows."""
    rows, said = compared(y, classes)
    yield from said
    p, y = p[rows], y[rows]
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
