"""Plots of the decisions of a function of two numbers over a rectangle."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from numpy.typing import NDArray

from . import shared

ROUND = 0.08
"""Margin around the samples, as a fraction of their range."""
IN_LEGEND = 30
"""Maximum number of classes in the legend."""
ROWS_OF_LEGEND = 15
ROWS = 2**14
"""Number of rows per call of the function."""


def _points(name: str, x: Any) -> NDArray[np.float64]:
    try:
        points = np.asarray(x, np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"{name}: expected an array of real numbers, got {type(x).__name__}; pass numbers of shape (n, 2)"
        ) from None
    if points.ndim != 2 or points.shape[1] != 2 or not len(points):
        raise ValueError(f"{name}: expected shape (n_samples, 2), got {points.shape}; choose two columns")
    if not np.isfinite(points).all():
        raise ValueError(f"{name}: expected finite numbers, got NaN or infinity; leave out these samples")
    return points


def _outputs(predict: Callable[[Any], Any], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the predictions for points, (n, n_outputs); n_outputs is 1 for targets."""
    parts = []
    for first in range(0, len(points), ROWS):
        rows = points[first : first + ROWS]
        answers = np.asarray(predict(rows))
        if (
            answers.ndim not in (1, 2)
            or len(answers) != len(rows)
            or answers.dtype.kind not in "biuf"
            or not answers.size
        ):
            raise ValueError(
                f"predict: expected a function from ({len(rows)}, 2) to ({len(rows)}, n_classes) shares, or "
                f"({len(rows)},) targets, got {answers.dtype} of shape {answers.shape}; pass a function "
                "such as "
                "lambda x: hforest.tree.predict(forest, x)"
            )
        parts.append(answers.reshape(len(rows), -1).astype(np.float64))
    outputs = np.concatenate(parts)
    if not np.isfinite(outputs).all():
        raise ValueError("predict: expected finite numbers, got NaN or infinity; correct the function")
    return outputs


def regions(
    predict: Callable,
    x: np.ndarray,
    y: np.ndarray | None = None,
    *,
    class_names: Collection[str] | None = None,
    resolution: int = 300,
    ax: Axes | None = None,
) -> Axes:
    """Draws the predictions of a function over the plane: classes or targets; returns the axes.

    Parameters
    ----------
    predict : callable
        Called with (n, 2) arrays of float64; returns (n, n_classes) shares of classes, or (n,) or (n, 1)
        targets. Such as ``lambda x: hforest.tree.predict(forest, x)``, or `predict_proba` of an estimator.
    x : (n_samples, 2) array_like of real numbers
        Samples, finite, at least one: the rectangle that holds them, and a little more, is drawn.
    y : (n_samples,) array_like, optional
        Labels 0 to n_classes - 1 of any integer or bool dtype, or targets: the samples are drawn in their
        colours. By default no samples are drawn.
    class_names : sequence of str, optional
        A name for each class, by default class 0, class 1, ...
    resolution : int
        Number of points along each axis at which the function is evaluated, 2 to 4000.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        ``ax.images[0]`` is the rectangle, ``ax.collections`` are the samples, a class each.

    Notes
    -----
    A point has the colour of the class with the largest share, paler for smaller shares; white means equal
    shares. Cost: ``resolution**2`` predictions.

    Examples
    --------
    >>> import matplotlib, numpy as np, hforest, hforest.plot
    >>> matplotlib.use("Agg")
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = (x[:, 0] * x[:, 1] > 0).astype(int)
    >>> forest = hforest.grow(x, y, 20, rng=0)
    >>> ax = hforest.plot.regions(lambda x: hforest.tree.predict(forest, x), x, y, resolution=50)
    >>> ax.images[0].get_array().shape
    (50, 50, 3)
    """
    if not callable(predict):
        raise TypeError(
            f"predict: expected a function of (n, 2) samples, got {type(predict).__name__}; pass a "
            "function such as "
            "lambda x: hforest.tree.predict(forest, x)"
        )
    points = _points("x", x)
    resolution = shared.integer("resolution", resolution, 2, 4000)
    low, high = points.min(axis=0), points.max(axis=0)
    with np.errstate(over="ignore"):
        margin = ROUND * (high - low)
        margin[~(margin > 0)] = 0.5
        low, high = low - margin, high + margin
    if not np.isfinite(high - low).all():
        raise ValueError(
            "x: expected samples whose range fits float64, got a larger range; divide the columns by their "
            "maxima"
        )
    # Centres of the pixels.
    step = (high - low) / resolution
    columns = [low[i] + step[i] * (np.arange(resolution) + 0.5) for i in range(2)]
    grid = np.stack([a.ravel() for a in np.meshgrid(*columns)], axis=1)
    outputs = _outputs(predict, grid)
    classes = outputs.shape[1] if outputs.shape[1] > 1 else 0
    names = shared.names("class_names", class_names, classes, "n_classes") if classes else None
    labels = None if y is None else _labels(y, len(points), classes)
    ax = shared.axes(ax)
    extent = (float(low[0]), float(high[0]), float(low[1]), float(high[1]))
    if classes:
        image = shared.of_shares(outputs).reshape(resolution, resolution, 3)
        ax.imshow(image, origin="lower", extent=extent, aspect="auto", interpolation="nearest")
    else:
        limits = Normalize(float(outputs.min()), float(outputs.max()))
        shown = ax.imshow(
            outputs.reshape(resolution, resolution), origin="lower", extent=extent, aspect="auto",
            interpolation="nearest", cmap="viridis", norm=limits,
        )  # fmt: skip
        ax.figure.colorbar(shown, ax=ax, label="prediction")
    if labels is not None and classes:
        _draw_classes(ax, points, labels, names or [f"class {k}" for k in range(classes)])
    elif labels is not None:
        ax.scatter(
            points[:, 0], points[:, 1], c=labels, s=18, edgecolors="black", linewidths=0.5, cmap="viridis",
            norm=limits,
        )  # fmt: skip
    ax.set_xlim(extent[:2])
    ax.set_ylim(extent[2:])
    return ax


def _labels(y: Any, n: int, n_classes: int) -> NDArray[np.generic]:
    """Returns labels of classes, or targets if n_classes is 0."""
    labels = np.asarray(y)
    if labels.dtype.kind not in ("biu" if n_classes else "biuf"):
        expected = "labels of an integer or bool dtype" if n_classes else "real numbers"
        raise TypeError(
            f"y: expected {expected}, got {labels.dtype}; number labels with "
            "numpy.unique(y, return_inverse=True)[1]"
        )
    if labels.shape != (n,):
        raise ValueError(f"y: expected shape ({n},), got {labels.shape}; pass one number for each sample")
    if n_classes and (labels.min() < 0 or labels.max() >= n_classes):
        raise IndexError(
            f"y: expected labels 0 <= y < n_classes = {n_classes}, got {labels.min()} to {labels.max()}; "
            "number them with numpy.unique(y, return_inverse=True)[1]"
        )
    return labels.astype(np.int64) if n_classes else labels


def _draw_classes(
    ax: Axes, points: NDArray[np.float64], labels: NDArray[np.generic], names: Sequence[str]
) -> None:
    """Draws the samples, and beside the axes a legend of the classes that occur."""
    present = np.unique(labels)
    of_classes = shared.of_classes(len(names))
    drawn = []
    for k in present:
        x, y = points[labels == k].T
        drawn.append(ax.scatter(x, y, color=of_classes[k], s=18, edgecolors="black", linewidths=0.5))
    if len(present) <= IN_LEGEND:
        legend = ax.legend(
            drawn, [str(k) for k in present], loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0,
            fontsize="small", ncols=-(-len(present) // ROWS_OF_LEGEND),
        )  # fmt: skip
        for k, text in zip(present, legend.get_texts(), strict=True):  # verbatim, including $ and _
            text.set_parse_math(False)
            text.set_text(names[k])
