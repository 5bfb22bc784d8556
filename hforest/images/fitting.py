"""Forests on the windows around drawn pixels."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import co2, growth
from ..core import check, keywords
from ..core import progress as progresses
from ..core.aliases import ArrayLike, Border, FloatArray, Progress, Rng
from ..tree import Forest
from ..tree.callers import grown, join_any
from . import drawing, windows
from .model import Model

_MOST_PIXELS = 256_000
"""Default number of pixels of a draw, which Norouzi et al. 2015 draw for each tree."""


def _reads_windows(grow: Any) -> bool:
    """Returns whether a function reads windows in place."""
    function, settings = (grow.func, grow.keywords) if isinstance(grow, partial) else (grow, {})
    return function in (growth.grow, co2.grow) and settings.get("splitter") != "oc1"


def _n_pixels(n_pixels: int | None, n_bytes: int, max_memory: int, n_labelled: int) -> int:
    """Returns the number of pixels of a draw whose windows take n_bytes each."""
    most = max_memory // n_bytes
    check.require(
        most,
        "max_memory",
        f"at least {n_bytes} bytes, the size of one window",
        max_memory,
        "raise it, or choose a smaller window or a larger step",
    )
    if n_pixels is None:
        return min(_MOST_PIXELS, most, n_labelled)
    n_pixels = check.integer("n_pixels", n_pixels, 1, check.MAX_COUNT)
    check.require(
        n_pixels <= most, "n_pixels", f"at most {most} windows of {n_bytes} bytes in max_memory", n_pixels,
        "draw fewer, raise max_memory or step, or choose a smaller window",
    )  # fmt: skip
    return n_pixels


def fit(
    images: ArrayLike,
    labels: ArrayLike,
    grow: Callable[..., Forest],
    *,
    window: int | Sequence[int],
    step: int = 1,
    border: Border = "reflect",
    n_trees: int = 16,
    n_pixels: int | None = None,
    trees_per_draw: int = 1,
    balance: bool = True,
    normalize: bool = False,
    n_classes: int | None = None,
    void: int | None = None,
    max_memory: int = 1 << 30,
    progress: Progress = None,
    rng: Rng = None,
) -> Model:
    """Returns a forest that predicts the class of a pixel from the window around it.

    Other parameters: see `draw`.

    Parameters
    ----------
    images : (n_images, height, width, n_channels) array-like
        At least one image, finite, of any real dtype; one to three axes of space. Computed in float32 if that
        holds every number of their dtype, else in float64.
    grow : callable
        Called as grow(x, y, n_trees=..., n_classes=..., first_tree=..., rng=...); returns a Forest. Such as
        `hforest.grow` or `hforest.co2.grow`, settings bound by
        functools.partial.
    window : int or tuple of ints
        Pixels along each axis of space, odd, at most those of an image. The window has all channels; its
        numbers are features in C order, channels last.
    step : int
        Every step-th pixel of the window is read, from its middle: a divisor of ``window // 2``.
    border : str
        What windows read outside of an image: "reflect", "symmetric", "edge", "wrap" or "constant" (0), as
        `numpy.pad` makes it. Or "leave_out": pixels whose window does not fit are left out.
    n_trees : int
        Trees of the forest.
    n_pixels : int, optional
        Pixels of a draw, with replacement; by default the least of 256000, the number of pixels that have a
        label, and the windows that max_memory holds.
    trees_per_draw : int
        Trees that learn from the same pixels.
    normalize : bool
        Whether windows are divided by their norms, and then each of their numbers by its standard deviation
        over the windows of the first draw.
    max_memory : int
        Bytes of the windows of a draw. `hforest.grow` and `hforest.co2.grow` read windows
        in place, 8 bytes each; for other functions, and with `normalize`, they are copied. What `grow` itself
        takes is not counted.

    Returns
    -------
    Model
        For `predict`, `predict_labels` and `save`.

    Raises
    ------
    ValueError
        A window that is even or larger than an image; more windows than max_memory holds.

    Notes
    -----
    Norouzi et al. 2015, section 6.2, with ``border="leave_out", normalize=True``, windows of 31 x 31 x 3 and
    256,000 of them for each tree. Tree m is tree m of a forest of `grow`. Its pixels depend on the seed and
    the number of the draw only.

    Memory: the images with their borders in float32 or float64, for trees on features their bins too (1 to 4
    bytes per number), on projections their numbers as bytes where they are such, for `hforest.co2` at
    most 512 MB of windows at a time; the windows of a draw, and what `grow` makes of them.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> images = np.random.default_rng(0).normal(size=(4, 20, 20, 1))
    >>> labels = np.roll(images[..., 0] > 0, 3, axis=2)  # the sign three pixels to the left
    >>> settings = {"window": 7, "n_trees": 5, "n_pixels": 800, "rng": 0}
    >>> model = hforest.images.fit(images, labels, hforest.grow, **settings)
    >>> bool((hforest.images.predict_labels(model, images)[:, :, 3:] == labels[:, :, 3:]).mean() > 0.95)
    True
    """
    x = windows.check_images("images", images)
    check.require(len(x), "images", "at least one image", "none", "pass images to learn from")
    of_pixel, n_classes = windows.check_labels(labels, n_classes, void)
    windows.check_pairs(x, of_pixel)
    keywords.grower("grow", grow, "x, y, n_trees=..., n_classes=..., first_tree=..., rng=...")
    frame = windows.check_frame(window, step, border, x.ndim - 2)
    windows.check_fits(frame, x.shape[1:-1])
    n_trees = check.integer("n_trees", n_trees, 1, check.MAX_TREES)
    per_draw = check.integer("trees_per_draw", trees_per_draw, 1, check.MAX_TREES)
    check.flag("balance", balance)
    check.flag("normalize", normalize)
    max_memory = check.integer("max_memory", max_memory, 1, 2**62)
    progresses.check_progress(progress)
    n_channels, in_place = x.shape[-1], not normalize and _reads_windows(grow)
    n_bytes = 8 if in_place else frame.n_features(n_channels) * x.itemsize
    pool = drawing.pools(of_pixel, n_classes, frame.margin)
    n_pixels = _n_pixels(n_pixels, n_bytes, max_memory, len(pool.pixel))
    factor = drawing.factors(pool, n_pixels, bool(balance))
    x = windows.padded(x, frame)
    seed = check.seed(rng)

    forests: list[Forest] = []
    scale: FloatArray | None = None
    samples: Any = None
    with progresses.reporting(progress, n_trees, "tree") as report:
        for i, first in enumerate(range(0, n_trees, per_draw)):
            pixel = drawing.drawn(pool, n_pixels, bool(balance), seed, i, 1)[0]
            places = windows.around(x, pixel, frame)
            if in_place:
                if samples is None:
                    samples = growth.samples(places.x, windows=(places.base, places.offset))
                else:
                    samples = samples.moved(places.base)
            elif not normalize:
                samples = windows.copied(places)
            elif scale is None:
                scale = np.ones(places.shape[1])
                samples = windows.copied(places, scale=scale)
                scale = windows.inverse_deviations(samples)
                samples *= scale.astype(samples.dtype)
            else:
                samples = windows.copied(places, scale=scale)
            some = min(per_draw, n_trees - first)
            y, ours = of_pixel.reshape(-1)[pixel], {"n_trees": some, "first_tree": first, "rng": seed}
            forests.append(grown("grow", grow, samples, y, n_classes, **ours))
            samples = samples if in_place else None  # a copy is released before the next one
            if not report(first + some):
                break
    return Model(frame.window, frame.step, frame.border, n_channels, factor, join_any(forests), scale)
