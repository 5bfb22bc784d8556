"""Pictures of a table's model: importances, calibration, confusion, residuals."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import _output, tabular
from .core.extras import missing

MOST_ROWS = 2000
"""Maximum number of rows for the importances."""
MOST_BARS = 30
"""Maximum number of columns with drawn importances."""
N_REPEATS = 3
NAMES = {
    "classification": ("importances.png", "calibration.png", "confusion.png"),
    "regression": ("importances.png", "residuals.png"),
}


def check_folder(folder: str, source: str) -> None:
    """Checks, before any work, that pictures can be drawn to a folder, which is made if it is new."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise missing("--plot", "Matplotlib 3.8 or newer", "plot") from None
    try:
        os.makedirs(folder, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(
            f"--plot: expected a folder, got the file {folder}; choose another path"
        ) from None
    names = sorted({name for of_task in NAMES.values() for name in of_task})
    outputs = [
        _output.Output("--plot", Path(folder) / name, "a picture", _output.is_picture) for name in names
    ]
    _output.check_outputs(outputs, {"--data": source})


def draw(folder: str, model: tabular.Model, x: Any, y: np.ndarray, classes: np.ndarray | None) -> list[str]:
    """Draws what a model predicts for the rows of a table; returns the paths of the pictures.

    y (n_rows,) has places in `classes`, -1 where a label is none of them, or (n_rows, n_outputs) targets.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    p = tabular.predict(model, x)
    pictures: dict[str, Callable[[Any], None]] = {
        "importances.png": lambda ax: _importances(ax, model, x, y),
        "calibration.png": lambda ax: _calibration(ax, p, y),
        "confusion.png": lambda ax: _confusion(ax, p, y, classes),
        "residuals.png": lambda ax: _residuals(ax, p, y),
    }
    paths = [str(Path(folder) / name) for name in NAMES[model.task]]
    for path in paths:
        figure = Figure(figsize=(6, 4.5), layout="constrained")
        pictures[Path(path).name](figure.add_subplot())
        _output.save_picture(figure, path)
    return paths


def importances(model: tabular.Model, x: Any, y: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Returns names of columns, and the increase of the error after a permutation of each one.

    The error is the share of wrong labels, or the mean squared error over the variance (Breiman 2001, section
    10).
    """
    columns = model.columns
    numbers = x if columns is None else tabular.numbers(columns, x)
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(y))[:MOST_ROWS]
    numbers, y, plain = numbers[rows], y[rows], model._replace(columns=None)

    def error(x: np.ndarray) -> float:
        p = tabular.predict(plain, x)
        if model.task == "classification":
            return float((p.argmax(axis=1) != y).mean())
        return float(
            ((p.reshape(len(y), -1) - y) ** 2).sum()
            / max(np.finfo(float).tiny, ((y - y.mean(axis=0)) ** 2).sum())
        )

    source = np.arange(numbers.shape[1]) if columns is None else columns.source
    names, rises, before = [], [], error(numbers)
    for j in np.unique(source).tolist():
        changed = numbers.copy()
        of_column = np.flatnonzero(source == j)
        rise = []
        for _ in range(N_REPEATS):
            changed[:, of_column] = numbers[rng.permutation(len(y))][:, of_column]
            rise.append(error(changed) - before)
        names.append(str(j) if columns is None else str(columns.names[j]))
        rises.append(np.mean(rise))
    return names, np.array(rises)


def _importances(ax: Any, model: tabular.Model, x: Any, y: np.ndarray) -> None:
    names, rises = importances(model, x, y)
    best = np.argsort(rises)[-MOST_BARS:]
    labels = [name if len(name) <= 24 else f"{name[:21]}..." for name in (names[j] for j in best)]
    ax.barh(range(len(best)), 100 * rises[best])
    ax.set_yticks(range(len(best)), labels, fontsize=8 if len(best) <= 20 else 6)
    rise = "error" if model.task == "classification" else "mean squared error, as a share of the variance"
    ax.set(xlabel=f"rise of the {rise} in % with the column permuted")


def _calibration(ax: Any, p: np.ndarray, y: np.ndarray) -> None:
    sure, right = p.max(axis=1), p.argmax(axis=1) == y
    bins = np.minimum((10 * sure).astype(int), 9)
    n = np.bincount(bins, minlength=10)
    some = n > 0
    mean, share = (np.bincount(bins, a, 10)[some] / n[some] for a in (sure, right))
    ends = np.array([_output.wilson(k, m) for k, m in zip(share * n[some], n[some], strict=True)])
    ax.plot([0, 1], [0, 1], "--", color="grey", label="as it should be")
    ax.errorbar(
        mean, share, abs(ends.T - share), fmt="o-", capsize=3, label="held-out rows, with 95 % intervals"
    )
    ax.set(xlabel="probability of the predicted class", ylabel="share of right predictions")
    ax.legend()


def _confusion(ax: Any, p: np.ndarray, y: np.ndarray, classes: Any) -> None:
    n = len(classes)
    known = y >= 0
    counts = np.bincount(y[known] * n + p.argmax(axis=1)[known], minlength=n * n).reshape(n, n)
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    labels = [str(label)[:16] for label in classes.tolist()]
    if n <= 12:
        ax.set_xticks(range(n), labels, rotation=90 if n > 4 else 0, fontsize=8)
        ax.set_yticks(range(n), labels, fontsize=8)
        for i, j in np.ndindex(n, n):
            colour = "white" if shares[i, j] > 0.5 else "black"
            ax.text(j, i, str(counts[i, j]), ha="center", va="center", fontsize=8, color=colour)
    ax.set(xlabel="predicted class", ylabel="true class")


def _residuals(ax: Any, p: np.ndarray, y: np.ndarray) -> None:
    p, y = p.reshape(len(p), -1)[:, 0], y.reshape(len(y), -1)[:, 0]
    ax.axhline(0, color="grey", linestyle="--")
    ax.plot(p, y - p, ".", markersize=3, alpha=0.5)
    ax.set(xlabel="predicted target", ylabel="target - predicted target")
