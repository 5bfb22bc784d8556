"""Pixels for trees: balanced by class, or with the frequencies of the images."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..core import check
from ..core.aliases import ArrayLike, FloatArray, IntArray, Rng
from ..core.draws import of_trees
from . import windows


class Draws(NamedTuple):
    """Pixels of draws, and the factor by which each class was over- or undersampled."""

    pixel: IntArray
    """(n_draws, n_pixels) int64: places in ``labels.ravel()``."""
    class_factor: FloatArray
    """(n_classes,) float64: the share of a class among the drawn pixels, divided by its share among all
    pixels with a label; 0 for a class without pixels."""


class Pools(NamedTuple):
    """The pixels that can be drawn."""

    pixel: IntArray
    """Sorted by class; those of one class ascending."""
    size: IntArray
    """(n_classes,): number of pixels of each class."""


def pools(labels: IntArray, n_classes: int, margin: Sequence[int]) -> Pools:
    """Returns the pixels of checked labels, -1 for void, that are outside of the margins."""
    pixel = np.flatnonzero((labels >= 0) & windows.inside(labels.shape, margin))
    check.require(
        pixel.size, "labels", "at least one labelled pixel outside of the margins", "none",
        "label more pixels, or pass a smaller window or margin",
    )  # fmt: skip
    of_pixel = labels.reshape(-1)[pixel]
    return Pools(pixel[np.argsort(of_pixel, kind="stable")], np.bincount(of_pixel, minlength=n_classes))


def factors(pool: Pools, n_pixels: int, balance: bool) -> FloatArray:
    """Returns `Draws.class_factor` of draws of n_pixels."""
    there = pool.size > 0
    if not balance:
        return there.astype(np.float64)
    present = np.flatnonzero(there)
    check.require(
        n_pixels >= len(present), "n_pixels", f"at least one for each of {len(present)} classes", n_pixels,
        "draw more pixels, or pass balance=False",
    )  # fmt: skip
    drawn = np.zeros(len(there))
    drawn[present] = np.bincount(np.arange(n_pixels) % len(present))
    return (drawn / n_pixels) / np.where(there, pool.size / pool.size.sum(), 1)


def drawn(pool: Pools, n_pixels: int, balance: bool, seed: int, first: int, n_draws: int) -> IntArray:
    """Returns (n_draws, n_pixels): pixels of draws first to first + n_draws - 1, with replacement."""
    start, size = np.zeros(1, np.int64), np.array([len(pool.pixel)])
    if balance:
        present = np.flatnonzero(pool.size)
        label = present[np.arange(n_pixels) % len(present)]
        start, size = (np.cumsum(pool.size) - pool.size)[label], pool.size[label]
    # The upper half of a word, times the number of pixels, divided by 2**32: one of them.
    half = np.uint64(32)
    word = of_trees(seed, first, n_draws, n_pixels) >> half
    place: IntArray = (word * size.astype(np.uint64) >> half).astype(np.int64)
    return pool.pixel[start + place]


def draw(
    labels: ArrayLike,
    n_pixels: int,
    n_draws: int = 1,
    *,
    balance: bool = True,
    n_classes: int | None = None,
    void: int | None = None,
    margin: int | Sequence[int] = 0,
    first_draw: int = 0,
    rng: Rng = None,
) -> Draws:
    """Returns pixels drawn from labelled images, and by which factor each class was over- or undersampled.

    Parameters
    ----------
    labels : (n_images, height, width) array-like of integers or bools
        Labels 0 to n_classes - 1, or void; one to three axes of space.
    n_pixels : int
        Pixels of each draw, 1 to 2**31 - 1, with replacement.
    n_draws : int
        Number of draws, such as one for each tree.
    balance : bool
        Whether classes that occur are drawn equally often: pixel i of a draw is one of class i modulo their
        number. Otherwise classes have the frequencies of the images.
    void : int, optional
        A label of pixels that belong to no class, and are left out.
    margin : int or tuple of ints
        Pixels along the sides of each axis of space that are left out, such as half of a window.
    first_draw : int
        Number of the first draw: draws first_draw to first_draw + n_draws - 1 are those of one longer call.

    Returns
    -------
    Draws
        Places in ``labels.ravel()``, and the factors. Shares of a forest that learned from these pixels,
        divided by `class_factor` and normalised, are estimates for the images as they are.

    Raises
    ------
    ValueError
        No pixel that can be drawn; with `balance` fewer pixels than classes.

    Notes
    -----
    Norouzi et al. 2015, section 6.2: each label has an equal number of training examples. A draw depends on
    the seed and its number only (Philox). Memory: 9 bytes for each pixel of labels, 32 for each drawn one.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> labels = np.zeros((1, 4, 5), np.uint8); labels[0, 1, 2] = 1; labels[0, 0, 0] = 255
    >>> draws = hforest.images.draw(labels, 6, void=255, rng=0)
    >>> labels.ravel()[draws.pixel], draws.class_factor
    (array([[0, 1, 0, 1, 0, 1]], dtype=uint8), array([0.52777778, 9.5       ]))
    """
    n_pixels = check.integer("n_pixels", n_pixels, 1, check.MAX_COUNT)
    n_draws = check.integer("n_draws", n_draws, 1, check.MAX_TREES)
    first_draw = check.integer("first_draw", first_draw, 0, check.MAX_TREES)
    check.flag("balance", balance)
    of_pixel, n_classes = windows.check_labels(labels, n_classes, void)
    check.require(
        2 <= of_pixel.ndim <= windows.MAX_SPACE + 1, "labels",
        "shape (n_images, height, width) with 1 to 3 spatial axes", of_pixel.shape,
        "pass labels[None] for one image",
    )  # fmt: skip
    margins = windows.sizes_of("margin", margin, of_pixel.ndim - 1, 0)
    pool = pools(of_pixel, n_classes, margins)
    factor = factors(pool, n_pixels, bool(balance))
    seed = check.seed(rng)
    with check.memory("n_pixels", "pixels", 32 * n_draws * n_pixels):
        return Draws(drawn(pool, n_pixels, bool(balance), seed, first_draw, n_draws), factor)
