"""Plots of features that are the columns of a table: bars of importances, and SHAP values of samples."""

from collections.abc import Collection
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from numpy.typing import NDArray

from ..core.aliases import ArrayLike
from ..tree import ShapValues
from . import shared

HEIGHT = 0.35
"""Inches of a row of a new figure."""
N_BINS = 100
"""Intervals of values within which the points of a row do not cover each other."""


def _rows(
    importance: NDArray[np.floating], feature_names: Collection[str] | None, max_features: int
) -> tuple[NDArray[np.intp], list[str]]:
    """Returns the features to draw, least important first, and their names."""
    n = len(importance)
    names = shared.names("feature_names", feature_names, n, "n_features") or [f"x[{i}]" for i in range(n)]
    shown = np.argsort(-importance, kind="stable")[: shared.integer("max_features", max_features, 1, 1000)]
    return shown[::-1], [names[i] for i in shown[::-1]]


def _labelled(ax: Axes | None, names: list[str]) -> Axes:
    """Returns axes with a row for each name, whose text is drawn verbatim."""
    ax = shared.axes(ax, (6.4, 1 + HEIGHT * len(names)))
    ax.set_yticks(np.arange(len(names)), names, parse_math=False)
    ax.set_ylim(-0.6, len(names) - 0.4)
    return ax


def bars(
    importance: NDArray[np.floating],
    label: str,
    feature_names: Collection[str] | None,
    max_features: int,
    ax: Axes | None,
) -> Axes:
    """Draws a bar for each feature, the most important on top."""
    shown, names = _rows(importance, feature_names, max_features)
    ax = _labelled(ax, names)
    ax.barh(np.arange(len(shown)), importance[shown])
    ax.set_xlabel(label)
    return ax


def shap_summary(
    shap: ShapValues,
    x: ArrayLike,
    *,
    output: int = 0,
    feature_names: Collection[str] | None = None,
    max_features: int = 20,
    ax: Axes | None = None,
) -> Axes:
    """Draws SHAP values: a row for each feature, a point for each sample; returns the axes.

    Parameters
    ----------
    shap : ShapValues
        Values from `hforest.tree.shap_values`.
    x : (n_samples, n_features) array_like of real numbers
        Their samples; missing values may be NaN.
    output : int
        Class or target whose values are drawn.
    feature_names : sequence of str, optional
        A name for each feature, by default x[0], x[1], ...
    max_features : int
        Number of features to draw at most, 1 to 1000: those with the largest means of absolute values.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        ``ax.collections`` are the rows, from bottom to top.

    Notes
    -----
    The most important feature is on top. Points with similar values are drawn above each other. Their colour
    goes from the smallest value of the feature to the largest, without the outer 5 % on either side; grey
    means missing.

    Examples
    --------
    >>> import matplotlib, numpy as np, hforest, hforest.plot
    >>> matplotlib.use("Agg")
    >>> x = np.random.default_rng(0).normal(size=(200, 3))
    >>> forest = hforest.grow(x, x[:, 0] - x[:, 1], 20, task="regression", rng=0)
    >>> shap = hforest.tree.shap_values(forest, x, cover=x)
    >>> ax = hforest.plot.shap_summary(shap, x, feature_names=["length", "width", "noise"])
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['noise', 'width', 'length']
    """
    values = checked(shap)
    rows = _samples(x, values.shape[:2])
    output = shared.integer("output", output, 0, 2**31)
    if output >= values.shape[2]:
        raise IndexError(
            f"output: expected 0 <= output < n_outputs = {values.shape[2]}, got {output}; choose one of them"
        )
    of_output = values[:, :, output]
    shown, names = _rows(abs(of_output).mean(axis=0), feature_names, max_features)
    ax = _labelled(ax, names)
    low, high = (float(of_output[:, shown].min()), float(of_output[:, shown].max())) if shown.size else (0, 0)
    for row, i in enumerate(shown):
        at = row + _offsets(of_output[:, i], low, high)
        ax.scatter(of_output[:, i], at, c=_colours(rows[:, i]), s=12, linewidths=0)
    bar = ax.figure.colorbar(ScalarMappable(cmap="viridis"), ax=ax, ticks=[0, 1], label="feature value")
    bar.set_ticklabels(["low", "high"])
    ax.axvline(0, color="0.6", linewidth=0.8, zorder=0)
    ax.set_xlabel("SHAP value")
    return ax


def checked(shap: Any) -> NDArray[np.float64]:
    """Returns the values of at least one sample."""
    if not isinstance(shap, ShapValues):
        raise TypeError(
            f"shap: expected a ShapValues, got {type(shap).__name__}; pass the result of "
            "hforest.tree.shap_values"
        )
    values = np.asarray(shap.values, np.float64)
    if values.ndim != 3 or not len(values):
        raise ValueError(
            f"shap.values: expected shape (n_samples, n_features, n_outputs) with samples, got "
            f"{values.shape}; pass the result of hforest.tree.shap_values for at least one sample"
        )
    return values


def _samples(x: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float64]:
    try:
        rows = np.asarray(x, np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"x: expected an array of real numbers, got {type(x).__name__}; pass the explained samples"
        ) from None
    if rows.shape != shape:
        raise ValueError(
            f"x: expected shape (n_samples, n_features) = {shape}, got {rows.shape}; pass the explained "
            "samples"
        )
    return rows


def _offsets(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Returns heights (n,) within 0.4, so that points of the same interval stand above each other."""
    share = (values - low) / (high - low) if high > low else np.zeros(len(values))
    interval = np.round(share * N_BINS).astype(int)
    order = np.argsort(interval, kind="stable")
    count = np.bincount(interval)
    place = np.empty(len(values))
    place[order] = np.arange(len(values)) - np.repeat(np.cumsum(count) - count, count)
    # 0, 1, -1, 2, -2, ... from the middle.
    place = np.where(place % 2, 1, -1) * np.ceil(place / 2)
    return 0.4 * place / max(count.max() / 2, 5)


def _colours(feature: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns colours (n, 3) of the values of a feature."""
    colours, is_there = np.full((len(feature), 3), 0.6), np.isfinite(feature)
    if is_there.any():
        low, high = np.percentile(feature[is_there], [5, 95])
        colours[is_there] = shared.of_values(feature[is_there], low, high)
    return colours
