"""Pictures of the commands: loss and error of a network, and importances, calibration, confusion and
residuals of a table's model."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...core import extras, files
from ...core.outputs import Output, check_outputs
from ..model import Model
from ..serving import predict
from . import importances, metrics

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

MOST_BARS = 30
"""Maximum number of columns with drawn importances."""
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


def _importances(ax: Any, model: Model, x: Any, y: np.ndarray) -> None:
    found = importances.of_some_rows(model, x, y)
    best = importances.best(found, MOST_BARS)[::-1]
    labels = [name if len(name) <= 24 else f"{name[:21]}..." for name in found.names[best].tolist()]
    ax.barh(range(len(best)), found.mean[best], xerr=found.error[best])
    ax.set_yticks(range(len(best)), labels, fontsize=8 if len(best) <= 20 else 6)
    ax.set(xlabel=f"rise of the {importances.LOSS[model.task]} with the column permuted")


def _calibration(ax: Any, p: np.ndarray, y: np.ndarray) -> None:
    mean, share, low, high, _ = metrics.calibration(p, y)
    ax.plot([0, 1], [0, 1], "--", color="grey", label="as it should be")
    ends = abs(np.array([low, high]) - share)
    ax.errorbar(mean, share, ends, fmt="o-", capsize=3, label="held-out rows, with 95 % intervals")
    ax.set(xlabel="probability of the predicted class", ylabel="share of right predictions")
    ax.legend()


def _confusion(ax: Any, p: np.ndarray, y: np.ndarray, classes: Any) -> None:
    n, counts = len(classes), metrics.confusion(p, y)
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
