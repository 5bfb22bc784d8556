"""Windows around pixels: their places, the pixels outside of an image, and copies of windows."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core import check, supervised
from ..core.aliases import ArrayLike, Border, FloatArray, IntArray
from ..core.in_place import PlacedWindows
from ..core.real import as_given, real

PADDED = ("reflect", "symmetric", "edge", "wrap", "constant")
"""Modes of `numpy.pad` for the pixels outside of an image."""
LEFT_OUT = "leave_out"
BORDERS = (*PADDED, LEFT_OUT)
MAX_SPACE = 3

_BLOCK = 1 << 18  # count of the numbers that are copied at a time, with 8 bytes each for their places


class Frame(NamedTuple):
    """The shape of a window."""

    window: tuple[int, ...]
    """Numbers of pixels along each axis of space, odd."""
    step: int
    """Distance from a pixel of the window to the next one that is read."""
    border: Border

    @property
    def radius(self) -> tuple[int, ...]:
        """Number of pixels on each side of the centre."""
        return tuple(size // 2 for size in self.window)

    @property
    def margin(self) -> tuple[int, ...]:
        """Number of pixels along each side of an image that have no window."""
        return self.radius if self.border == LEFT_OUT else (0,) * len(self.window)

    def n_features(self, n_channels: int) -> int:
        """Count of the numbers of a window."""
        return math.prod((size - 1) // self.step + 1 for size in self.window) * n_channels


def check_images(name: str, images: ArrayLike, dtype: np.dtype | None = None) -> FloatArray:
    """Returns images as C-contiguous (n_images, *space, n_channels), of `dtype` or that of samples."""
    check.on_cpu(**{name: images})
    numbers = real(name, images)
    check.require(
        3 <= numbers.ndim <= MAX_SPACE + 2 and min(numbers.shape[1:]) > 0, name,
        "shape (n_images, height, width, n_channels) with 1 to 3 spatial axes, none of size 0",
        tuple(numbers.shape), f"pass {name}[..., None] for one channel, {name}[None] for one image",
    )  # fmt: skip
    converted = supervised.converted_numbers(
        numbers, supervised.float_dtype(numbers) if dtype is None else dtype
    )
    supervised.check_finite(name, converted, numbers, False, "replace such values, or leave out the image")
    return converted


def check_labels(
    labels: ArrayLike, n_classes: int | None, void: int | None, name: str = "labels"
) -> tuple[IntArray, int]:
    """Returns labels of pixels as int32, with -1 for void, and the number of classes."""
    check.on_cpu(**{name: labels})
    numbers = as_given(name, labels)
    if void is not None:
        void = check.integer("void", void, -(2**31), 2**31 - 1)
    known = np.ones(numbers.shape, bool)
    if void is not None and numbers.dtype.kind in "biuO":
        known = np.asarray(numbers != void, bool)
    some = numbers[known]
    some, n_classes = supervised.labels(name, some, len(some), n_classes)
    result = np.full(numbers.shape, -1, np.int32)
    result[known] = some
    return result, n_classes


def check_pairs(images: FloatArray, labels: IntArray) -> None:
    """Checks that each pixel of each image has a label."""
    check.require(
        labels.shape == images.shape[:-1], "labels", f"shape (n_images, height, width) = {images.shape[:-1]}",
        tuple(labels.shape), "pass a label for each pixel of images",
    )  # fmt: skip


def sizes_of(name: str, value: Any, n_axes: int, low: int = 1) -> tuple[int, ...]:
    """Returns a size for each axis of space, from an int or a sequence of them."""
    value = check.scalar(value)
    if check.is_integer(value):
        value = (value,) * n_axes
    check.require(
        isinstance(value, tuple | list) and len(value) == n_axes, name, f"an int or a tuple of {n_axes}",
        value if isinstance(value, tuple | list) else type(value).__name__, "pass one size per axis",
        ValueError if isinstance(value, tuple | list) else TypeError,
    )  # fmt: skip
    return tuple(check.integer(name, size, low, check.MAX_COUNT) for size in value)


def check_frame(window: int | Sequence[int], step: int, border: Border, n_axes: int) -> Frame:
    """Returns the checked shape of a window."""
    sizes = sizes_of("window", window, n_axes)
    check.require(
        all(size % 2 for size in sizes), "window", "odd sizes, so that a pixel is in the middle", sizes,
        "add 1 to the even ones",
    )  # fmt: skip
    step = check.integer("step", step, 1, check.MAX_COUNT)
    halves = [size // 2 for size in sizes]
    check.require(
        not any(half % step for half in halves), "step", f"a divisor of {halves}, half of the window", step,
        "choose a step that hits the middle of the window, such as 3 for a window of 31",
    )  # fmt: skip
    return Frame(sizes, step, check.choice("border", border, BORDERS))


def check_fits(frame: Frame, space: Sequence[int]) -> None:
    """Checks that a window is no larger than an image."""
    check.require(
        len(space) == len(frame.window), "images", f"{len(frame.window)} spatial axes", len(space),
        "pass images with the spatial axes of the training images",
    )  # fmt: skip
    for i, (size, available) in enumerate(zip(frame.window, space, strict=True)):
        check.require(
            size <= available, "window", f"at most {available} pixels along spatial axis {i}", size,
            "choose a smaller window, or pass larger images",
        )  # fmt: skip


def inside(shape: Sequence[int], margin: Sequence[int]) -> np.ndarray:
    """Returns (n_images, *space) of bools: whether a pixel is outside of the margins."""
    mask = np.zeros(shape, bool)
    mask[(slice(None), *(slice(m, size - m) for m, size in zip(margin, shape[1:], strict=True)))] = True
    return mask


def padded(images: FloatArray, frame: Frame) -> FloatArray:
    """Returns images that are extended at their borders for windows."""
    if frame.border == LEFT_OUT:
        return images
    widths = [(0, 0), *((r, r) for r in frame.radius), (0, 0)]
    mode: Any = frame.border
    return np.ascontiguousarray(np.pad(images, widths, mode=mode))


def around(whole: FloatArray, pixel: IntArray, frame: Frame) -> PlacedWindows:
    """Returns the windows around pixels, as places in `padded` images.

    A pixel is its number among those of all images, in C order.
    """
    n, *sizes, n_channels = whole.shape
    margin, doubled = frame.margin, [2 * r for r in frame.radius]
    space = [s - (0 if frame.border == LEFT_OUT else d) for s, d in zip(sizes, doubled, strict=True)]
    image, *place = np.unravel_index(pixel, (n, *space))
    corner = (image, *(p - m for p, m in zip(place, margin, strict=True)))
    base = np.ravel_multi_index(corner, (n, *sizes)) * n_channels
    axes = [np.arange(0, size, frame.step) for size in frame.window]
    offset = np.ravel_multi_index(np.ix_(*axes, np.arange(n_channels)), (*sizes, n_channels))
    return PlacedWindows(whole.reshape(n, -1), base.astype(np.int64), offset.reshape(-1).astype(np.int64))


def copied(windows: PlacedWindows, rows: slice = slice(None), scale: FloatArray | None = None) -> FloatArray:
    """Returns (n, n_features): copies of some windows; with `scale`, of unit norm and multiplied by it."""
    flat, base = windows.x.reshape(-1), windows.base[rows]
    x = np.empty((len(base), len(windows.offset)), flat.dtype)
    step = max(1, _BLOCK // x.shape[1])
    for first in range(0, len(x), step):
        block = x[first : first + step]
        np.take(flat, base[first : first + step, None] + windows.offset, out=block, mode="clip")
        if scale is not None:
            block[...] = to_unit_norm(block) * scale
    return x


def to_unit_norm(x: FloatArray) -> FloatArray:
    """Returns windows divided by their norms, in float64, unless all of their numbers are 0."""
    wide = x.astype(np.float64)
    for of_rows in (np.abs(wide).max(axis=1), None):  # first the range, so that no square overflows
        norm = np.sqrt((wide * wide).sum(axis=1)) if of_rows is None else of_rows
        wide /= np.where(norm > 0, norm, 1)[:, None]
    return wide


def inverse_deviations(x: FloatArray) -> FloatArray:
    """Returns (n_features,) float64: 1 over the standard deviation of each column; 1 for constant columns."""
    total = np.zeros((2, x.shape[1]))
    step = max(1, _BLOCK // x.shape[1])
    for first in range(0, len(x), step):
        block = x[first : first + step].astype(np.float64)
        total += block.sum(axis=0), (block * block).sum(axis=0)
    mean, square = total / len(x)
    variance = square - mean * mean
    varies = variance > 1e-10 * square  # less is rounding
    return 1 / np.sqrt(np.where(varies, variance, 1))
