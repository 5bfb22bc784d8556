"""Pictures of the commands: loss and error of a network, and importances, calibration, confusion and
residuals of a table's model."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..core import extras, files
from ..core.outputs import Output, check_outputs
from .errors import wilson
from .model import Model
from .serving import predict

_ORIGIN = {
    "png": ("Software", b"Software\0hforest"),
    "pdf": ("Creator", b"/Creator (hforest)"),
    "svg": ("Creator", b"<dc:title>hforest</dc:title>"),
    "ps": ("Creator", b"%%Creator: hforest"),
    "eps": ("Creator", b"%%Creator: hforest"),
}
"""By format, where Matplotlib writes the program that made a picture, and the bytes that this becomes."""


def picture_format(path: str) -> str:
    """Returns the format of a picture from its name."""
    return Path(path).suffix[1:].lower() or "png"


_PICTURE_BYTES = 1 << 26
"""Number of first bytes of a file that are searched for its origin."""


def check_picture(path: str) -> None:
    """Checks that Matplotlib can draw to a file of that name."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    known = FigureCanvasAgg.get_supported_filetypes()
    if picture_format(path) not in known:
        raise ValueError(
            f"--plot: expected a picture that ends in .{', .'.join(sorted(known))}, got {path}; choose "
            "one of these suffixes"
        )


def is_picture(path: str | Path) -> bool:
    """Returns whether a file is a picture that `save_picture` wrote."""
    _, origin = _ORIGIN.get(picture_format(str(path)), ("", b""))
    with open(path, "rb") as stream:
        return bool(origin) and origin in stream.read(_PICTURE_BYTES)


def save_picture(figure: Any, name: str | Path) -> None:
    """Writes a figure of Matplotlib to a file whose name says the format."""
    kind = picture_format(str(name))
    more: dict[str, Any] = {"metadata": {_ORIGIN[kind][0]: "hforest"}} if kind in _ORIGIN else {}
    with files.replacing(name) as stream:
        figure.savefig(stream, dpi=150, format=kind, **more)


def history(path: str, histories: Mapping[str, Mapping[str, np.ndarray]], measured: str) -> None:
    """Draws loss and error of networks over the steps; `measured` describes the error."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    for label, of_run in histories.items():
        left.semilogy(of_run["step"], of_run["loss"], label=label)
        right.plot(of_run["step"], 100 * of_run["error"], label=label)
    left.set(xlabel="step", ylabel="training loss")
    right.set(xlabel="step", ylabel=f"{measured} in %")
    right.legend()
    save_picture(figure, path)


# -------------------------------------------------------------------------------- models of tables

MOST_ROWS = 2000
"""Maximum number of rows for the importances."""
MOST_BARS = 30
"""Maximum number of columns with drawn importances."""
N_REPEATS = 3
NAMES = {
    "classification": ("importances.png", "calibration.png", "confusion.png"),
    "regression": ("importances.png", "residuals.png"),
}


def check_folder(option: str, folder: str, source: str) -> None:
    """Checks, before any work, that pictures can be drawn to a folder, which is made if it is new."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise extras.missing(option, "Matplotlib 3.8 or newer", "plot") from None
    try:
        os.makedirs(folder, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(
            f"{option}: expected a folder, got the file {folder}; choose another path"
        ) from None
    names = sorted({name for of_task in NAMES.values() for name in of_task})
    outputs = [Output(option, Path(folder) / name, "a picture", is_picture) for name in names]
    check_outputs(outputs, {"--data": source})


def draw(folder: str, model: Model, x: np.ndarray, y: np.ndarray) -> list[str]:
    """Draws what a model predicts for the numbers of a table; returns the paths of the pictures.

    y (n_rows,) has places in ``model.classes``, -1 where a label is none of them, or (n_rows, n_outputs)
    targets.
    """
    from matplotlib.figure import Figure

    p = predict(model._replace(columns=None), x)
    pictures: dict[str, Callable[[Any], None]] = {
        "importances.png": lambda ax: _importances(ax, model, x, y),
        "calibration.png": lambda ax: _calibration(ax, p, y),
        "confusion.png": lambda ax: _confusion(ax, p, y, model.classes),
        "residuals.png": lambda ax: _residuals(ax, p, y),
    }
    paths = [str(Path(folder) / name) for name in NAMES[model.task]]
    for path in paths:
        figure = Figure(figsize=(6, 4.5), layout="constrained")
        pictures[Path(path).name](figure.add_subplot())
        save_picture(figure, path)
    return paths


def importances(model: Model, x: np.ndarray, y: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Returns names of columns, and the increase of the error after a permutation of each one.

    The error is the share of wrong labels, or the mean squared error over the variance (Breiman 2001, section
    10).
    """
    columns, plain = model.columns, model._replace(columns=None)
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(y))[:MOST_ROWS]
    numbers, y = x[rows], y[rows]

    def error(x: np.ndarray) -> float:
        p = predict(plain, x)
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


def _importances(ax: Any, model: Model, x: Any, y: np.ndarray) -> None:
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
    ends = np.array([wilson(k, m) for k, m in zip(share * n[some], n[some], strict=True)])
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
