"""Shares and labels of the pixels of images."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import growth, tree
from ..core import check
from ..core import progress as progresses
from ..core.aliases import ArrayLike, FloatArray, IntArray, Progress
from ..core.in_place import PlacedWindows
from . import windows
from .model import Model, check_model, frame_of


def _shares(forest: Any, places: PlacedWindows, rows: slice, scale: FloatArray | None) -> FloatArray:
    """Returns (n, n_classes): predictions of a prepared forest for some windows, copied if normalised."""
    with check.unchecked():
        if scale is not None:
            return tree.predict(forest, windows.copied(places, rows, scale))
        return tree.predict(forest, growth.samples(places.x, windows=(places.base[rows], places.offset)))


class _Work(NamedTuple):
    """Checked arguments of a call."""

    x: FloatArray
    """Images, in the dtype of the forest."""
    pixel: IntArray
    """Number of pixels of an image that have a window."""
    weight: FloatArray
    """(n_classes,): factors of the shares."""
    n_rows: int
    """Number of windows that are read at a time."""


def _checked(model: Model, images: ArrayLike, weight_back: float, max_memory: int) -> _Work:
    check_model(model)
    frame, dtype = frame_of(model), model.forest.threshold.dtype
    x = windows.check_images("images", images, dtype)
    windows.check_fits(frame, x.shape[1:-1])
    check.require(
        x.shape[-1] == model.n_channels, "images", f"n_channels = {model.n_channels}", x.shape[-1],
        "pass the channels that the model was fitted to",
    )  # fmt: skip
    power = check.number("weight_back", weight_back, 0.0, 1.0)
    max_memory = check.integer("max_memory", max_memory, 1, 2**62)
    there = model.class_factor > 0
    least = model.class_factor[there].min(initial=np.inf)
    weight = np.where(there, (least / np.where(there, model.class_factor, 1)) ** power, 0).astype(dtype)
    pixel = np.flatnonzero(windows.inside((1, *x.shape[1:-1]), frame.margin))
    n_bytes = 8 if model.scale is None else int(model.forest.n_features) * dtype.itemsize
    return _Work(x, pixel, weight, max(1, max_memory // n_bytes))


def _run(
    model: Model, work: _Work, progress: Progress, write: Callable[[int, IntArray, FloatArray], None]
) -> int:
    """Calls write(image, pixels, their shares) for all pixels; returns the number of finished images."""
    forest, frame = tree.prepare(model.forest), frame_of(model)
    with progresses.reporting(progress, len(work.x), "image") as report:
        for i in range(len(work.x)):
            places = windows.around(windows.padded(work.x[i : i + 1], frame), work.pixel, frame)
            for first in range(0, len(work.pixel), work.n_rows):
                rows = slice(first, first + work.n_rows)
                p = _shares(forest, places, rows, model.scale) * work.weight
                total = p.sum(axis=1, keepdims=True)
                write(i, work.pixel[rows], p / np.where(total > 0, total, 1))
            if not report(i + 1):
                return i + 1
    return len(work.x)


def predict(
    model: Model,
    images: ArrayLike,
    *,
    weight_back: float = 1.0,
    max_memory: int = 1 << 26,
    progress: Progress = None,
) -> FloatArray:
    """Returns the shares of the classes at each pixel.

    Parameters
    ----------
    model : Model
        From `fit` or `load`.
    images : (n_images, height, width, n_channels) array-like
        Finite, of any real dtype, with the channels that the model was fitted to; their height and width may
        differ from those. Converted to the dtype of the model's forest.
    weight_back : float
        Shares are divided by ``class_factor ** weight_back`` and normalised: with 1 they are estimates for
        images as they are, with 0 for equally frequent classes, between them a compromise.
    max_memory : int
        Bytes of the windows that are read at a time, at least one: 8 each, which are read in place, or those
        of a copy with `normalize`.

    Returns
    -------
    (n_images, height, width, n_classes) array, dtype of the forest
        Shares, which sum to 1; NaN at pixels without a window, with the border "leave_out".

    Raises
    ------
    ValueError
        Images smaller than the window; a model that was changed.

    Notes
    -----
    Norouzi et al. 2015, section 6.2, weigh by the inverse factors. Memory: the result, max_memory, and an
    image with its borders; images of another dtype than the forest's are copied. Cost: a walk down each tree
    for each pixel, and with `normalize` a copy of its window.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> images = np.zeros((1, 6, 6, 1)); images[0, :, 3:] = 1
    >>> labels = images[..., 0] > 0
    >>> model = hforest.images.fit(images, labels, hforest.grow, window=1, n_pixels=36, rng=0)
    >>> hforest.images.predict(model, images).shape
    (1, 6, 6, 2)
    """
    work = _checked(model, images, weight_back, max_memory)
    shape = (*work.x.shape[:-1], model.n_classes)
    with check.memory("images", "shares", math.prod(shape) * work.x.itemsize):
        result = np.full(shape, np.nan, work.x.dtype)

    def write(i: int, pixel: IntArray, p: FloatArray) -> None:
        result[i].reshape(-1, model.n_classes)[pixel] = p

    return result[: _run(model, work, progress, write)]


def predict_labels(
    model: Model,
    images: ArrayLike,
    *,
    weight_back: float = 1.0,
    max_memory: int = 1 << 26,
    progress: Progress = None,
) -> IntArray:
    """Returns the class of the largest share at each pixel.

    Other parameters: see `predict`.

    Parameters
    ----------
    weight_back : float
        1 favours the share of pixels that are right, 0 the average over classes.

    Returns
    -------
    (n_images, height, width) int32 array
        Classes, of equal shares the first; n_classes at pixels without a window, with the border "leave_out".
    """
    work = _checked(model, images, weight_back, max_memory)
    result = np.full(work.x.shape[:-1], model.n_classes, np.int32)

    def write(i: int, pixel: IntArray, p: FloatArray) -> None:
        result[i].reshape(-1)[pixel] = p.argmax(axis=1)

    return result[: _run(model, work, progress, write)]
