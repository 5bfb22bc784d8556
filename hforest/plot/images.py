"""Importances of features: of the pixels of images, of the elements of signals, or of columns."""

import math
from collections.abc import Collection, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes

from ..tree import Forest, ShapValues
from ..tree import importance as shares_of_features
from . import columns, shared


def _shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, tuple | list):
        raise TypeError(
            f"shape: expected a tuple of ints, got {type(shape).__name__}; pass the shape of one sample"
        )
    if not 1 <= len(shape) <= 3:
        raise ValueError(
            f"shape: expected (length,), (height, width) or (height, width, channels), got {tuple(shape)}; "
            "pass the shape of one sample"
        )
    return tuple(shared.integer(f"shape[{i}]", size, 1, 2**31) for i, size in enumerate(shape))


def _of_features(forest: Forest | ShapValues, by: Literal["count", "gain"]) -> np.ndarray:
    if isinstance(forest, ShapValues):
        return abs(columns.checked(forest)).mean(axis=0).sum(axis=1)
    shares = shares_of_features(forest, by=by)
    host: np.ndarray = shares if isinstance(shares, np.ndarray) else shares.get()
    return host


def importance_image(
    forest: Forest | ShapValues, shape: Sequence[int], *, by: Literal["count", "gain"] = "gain"
) -> np.ndarray:
    """Returns the importances of features in the shape of a sample.

    Other parameters: see `hforest.tree.importance`.

    Parameters
    ----------
    forest : Forest or ShapValues
        Any forest, such as of `hforest.grow` with projections onto patches; or SHAP values of samples, whose
        importances are means of absolute values, summed over the outputs, and do not depend on `by`.
    shape : tuple of 1 to 3 ints
        Shape of one sample, whose features are in C order: (length,), (height, width) or (height, width,
        channels). Its product is the number of features.

    Returns
    -------
    array of float64 in this shape
        Shares; they sum to 1, or are all 0 in a forest without splits. For SHAP values, their means.

    Notes
    -----
    Cost: one read of the nodes.

    Examples
    --------
    >>> import numpy as np, hforest, hforest.plot
    >>> x = np.random.default_rng(0).normal(size=(200, 12))
    >>> y = x[:, 5] + x[:, 6] > 0
    >>> patches = hforest.project.patch_distribution((3, 4), patch_max=2)
    >>> forest = hforest.grow(x, y, 20, projections=patches, rng=0)
    >>> image = hforest.plot.importance_image(forest, (3, 4))
    >>> sorted(int(i) for i in np.argsort(image, axis=None)[-2:])
    [5, 6]
    """
    sizes = _shape(shape)
    shares = _of_features(forest, by)
    if math.prod(sizes) != shares.size:
        raise ValueError(
            f"shape: expected sizes that multiply to n_features = {shares.size}, got {sizes}; pass the shape "
            "of one sample"
        )
    return shares.reshape(sizes)


def importance(
    forest: Forest | ShapValues,
    shape: Sequence[int] | None = None,
    *,
    by: Literal["count", "gain"] = "gain",
    channel: int | None = None,
    cmap: str = "magma",
    feature_names: Collection[str] | None = None,
    max_features: int = 20,
    ax: Axes | None = None,
) -> Axes:
    """Draws importances: an image with a colour bar, or bars for a signal or columns; returns the axes.

    Other parameters: see `importance_image` and `regions`.

    Parameters
    ----------
    shape : tuple of 1 to 3 ints, optional
        See `importance_image`. By default features are columns: bars from left to right, the most important
        on top.
    channel : int, optional
        Channel to draw, for a shape (height, width, channels); by default their sum.
    cmap : str
        Name of a colormap of Matplotlib, for images.
    feature_names : sequence of str, optional
        A name for each column, by default x[0], x[1], ...
    max_features : int
        Number of columns to draw at most, 1 to 1000: the most important ones.

    Returns
    -------
    matplotlib.axes.Axes
        ``ax.images[0]`` is the image, or ``ax.patches`` are the bars.

    Examples
    --------
    >>> import matplotlib, numpy as np, hforest, hforest.plot
    >>> matplotlib.use("Agg")
    >>> x = np.random.default_rng(0).normal(size=(200, 12))
    >>> y = x[:, 5] + x[:, 6] > 0
    >>> patches = hforest.project.patch_distribution((3, 4), patch_max=2)
    >>> forest = hforest.grow(x, y, 20, projections=patches, rng=0)
    >>> hforest.plot.importance(forest, (3, 4)).images[0].get_array().shape
    (3, 4)
    >>> shap = hforest.tree.shap_values(forest, x[:50], background=x[50:60])
    >>> ax = hforest.plot.importance(shap, max_features=2)
    >>> sorted(text.get_text() for text in ax.get_yticklabels())
    ['x[5]', 'x[6]']
    """
    if isinstance(forest, ShapValues):
        what = "mean |SHAP value|"
    else:
        what = "share of the gains" if by == "gain" else "share of the splits"
    if shape is None:
        if channel is not None:
            raise ValueError(
                f"channel: expected None without a shape, got {channel!r}; pass a shape (height, width, "
                "channels)"
            )
        return columns.bars(_of_features(forest, by), what, feature_names, max_features, ax)
    image = importance_image(forest, shape, by=by)
    if channel is not None:
        if image.ndim != 3:
            raise ValueError(
                f"channel: expected None for a shape without channels, got {channel!r}; pass a shape "
                "(height, width, channels)"
            )
        number = shared.integer("channel", channel, 0, 2**31)
        if number >= image.shape[2]:
            raise IndexError(
                f"channel: expected 0 <= channel < channels = {image.shape[2]}, got {number}; choose one of "
                "them"
            )
        image = image[:, :, number]
    elif image.ndim == 3:
        image = image.sum(axis=2)
    ax = shared.axes(ax)
    if image.ndim == 1:
        ax.bar(np.arange(len(image)), image, width=1.0)
        ax.set_xlim(-0.5, len(image) - 0.5)
        ax.set_xlabel("feature")
        ax.set_ylabel(what)
        return ax
    shown = ax.imshow(image, cmap=cmap, vmin=0, interpolation="nearest")
    ax.figure.colorbar(shown, ax=ax, label=what)
    return ax
