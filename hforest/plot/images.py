"""Importances of the pixels of images, or of the elements of signals, for a forest."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes

from ..tree import Forest
from ..tree import importance as shares_of_features
from . import shared


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


def importance_image(
    forest: Forest, shape: Sequence[int], *, by: Literal["count", "gain"] = "gain"
) -> np.ndarray:
    """Returns the importances of features in the shape of a sample.

    Other parameters: see `hforest.tree.importance`.

    Parameters
    ----------
    forest : Forest
        Any forest, such as of `hforest.grow` with projections onto patches.
    shape : tuple of 1 to 3 ints
        Shape of one sample, whose features are in C order: (length,), (height, width) or (height, width,
        channels). Its product is the number of features.

    Returns
    -------
    array of float64 in this shape
        Shares; they sum to 1, or are all 0 in a forest without splits.

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
    shares = shares_of_features(forest, by=by)
    if math.prod(sizes) != shares.size:
        raise ValueError(
            f"shape: expected sizes that multiply to n_features = {shares.size}, got {sizes}; pass the shape "
            "of one sample"
        )
    host: np.ndarray = shares if isinstance(shares, np.ndarray) else shares.get()
    return host.reshape(sizes)


def importance(
    forest: Forest,
    shape: Sequence[int],
    *,
    by: Literal["count", "gain"] = "gain",
    channel: int | None = None,
    cmap: str = "magma",
    ax: Axes | None = None,
) -> Axes:
    """Draws feature importances as an image with a colour bar, or as bars for a signal; returns the axes.

    Other parameters: see `importance_image` and `regions`.

    Parameters
    ----------
    channel : int, optional
        Channel to draw, for a shape (height, width, channels); by default their sum.
    cmap : str
        Name of a colormap of Matplotlib, for images.

    Returns
    -------
    matplotlib.axes.Axes
        ``ax.images[0]`` is the image.

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
    """
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
    what = "share of the gains" if by == "gain" else "share of the splits"
    if image.ndim == 1:
        ax.bar(np.arange(len(image)), image, width=1.0)
        ax.set_xlim(-0.5, len(image) - 0.5)
        ax.set_xlabel("feature")
        ax.set_ylabel(what)
        return ax
    shown = ax.imshow(image, cmap=cmap, vmin=0, interpolation="nearest")
    ax.figure.colorbar(shown, ax=ax, label=what)
    return ax
