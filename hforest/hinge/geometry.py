"""Shapes of convolutions: the windows of an image, and where their taps lie."""

import math
from typing import NamedTuple

import numpy as np

from ..core import check
from ..core.aliases import FloatArray
from .shared import Route

Ints = int | tuple[int, ...]
"""A number for all axes in space, or one each."""


class Windows(NamedTuple):
    """Images and the windows of a kernel on them, three axes in space; missing ones are first, of size 1.

    One sample is one window: number ((image * out0 + i) * out1 + j) * out2 + k. One column is a tap:
    number ((channel * kernel0 + a) * kernel1 + b) * kernel2 + c.
    """

    channels: int
    size0: int
    size1: int
    size2: int
    kernel0: int
    kernel1: int
    kernel2: int
    stride0: int
    stride1: int
    stride2: int
    padding0: int
    padding1: int
    padding2: int
    dilation0: int
    dilation1: int
    dilation2: int
    out0: int
    out1: int
    out2: int

    @property
    def n_positions(self) -> int:
        """Windows of an image."""
        return self.out0 * self.out1 * self.out2

    @property
    def n_columns(self) -> int:
        """Taps of a window."""
        return self.channels * self.kernel0 * self.kernel1 * self.kernel2


def taps(windows: Windows, columns: np.ndarray | None = None) -> np.ndarray:
    """Returns (n_taps, 4) int64: each tap's place in an image, from the window's corner, and along each axis.

    The taps are those of the given columns, by default of all.
    """
    if columns is None:
        columns = np.arange(windows.n_columns)
    kernel = windows[4:7]
    channel, a, b, c = np.unravel_index(columns, (windows.channels, *kernel))
    steps = [at * dilation for at, dilation in zip((a, b, c), windows[13:16], strict=True)]
    _, size0, size1, size2 = windows[:4]
    place = ((channel * size0 + steps[0]) * size1 + steps[1]) * size2 + steps[2]
    return np.stack([place, *steps], axis=1).astype(np.int64)


def used_taps(windows: Windows | None, features: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """Returns the taps that vertices compare, and the features as their numbers; or None."""
    if windows is None:
        return None, features
    if features.size >= windows.n_columns:
        return taps(windows), features
    columns, features_of = np.unique(features, return_inverse=True)
    return taps(windows, columns), features_of.reshape(features.shape).astype(np.int32)


def _axes_in_space(name: str, shape: tuple[int, ...]) -> int:
    # The number of axes after images and channels.
    if not 3 <= len(shape) <= 5:
        raise ValueError(
            f"{name}: expected (n_images, channels, *space) with one to three axes in space, "
            f"got shape {shape}; add axes of size 1, or call the function without conv for rows"
        )
    return len(shape) - 2


def _per_axis(name: str, a: Ints, n_axes: int, least: int, filler: int) -> tuple[int, ...]:
    # One number for all axes, or one each; padded to three axes at the front.
    given = a if isinstance(a, tuple | list) else (a,) * n_axes
    if len(given) != n_axes:
        raise ValueError(
            f"{name}: expected an int or one int for each of the {n_axes} axes in space, got {a!r}; "
            "pass as many as x has axes after its channels"
        )
    return (filler,) * (3 - n_axes) + tuple(check.integer(name, i, least, check.MAX_COUNT) for i in given)


def windows_of(
    name: str, shape: tuple[int, ...], kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> Windows:
    """Returns the windows of images of a shape (n_images, channels, *space), one to three axes in space.

    Errors about the shape name the argument `name`.
    """
    n_axes = _axes_in_space(name, shape)
    size = (1,) * (3 - n_axes) + tuple(shape[2:])
    kernel = _per_axis("kernel_size", kernel_size, n_axes, 1, 1)
    strides = _per_axis("stride", stride, n_axes, 1, 1)
    pads = _per_axis("padding", padding, n_axes, 0, 0)
    dilations = _per_axis("dilation", dilation, n_axes, 1, 1)
    out = []
    for axis in range(3):
        reach = dilations[axis] * (kernel[axis] - 1) + 1
        room = size[axis] + 2 * pads[axis] - reach
        if room < 0:
            raise ValueError(
                "kernel_size: expected kernels inside the padded images, at most "
                f"{size[axis] + 2 * pads[axis]} along axis {axis + n_axes - 1} of x, got {reach} with "
                f"dilation {dilations[axis]}; pad the images or choose a smaller kernel"
            )
        out.append(room // strides[axis] + 1)
    found = Windows(shape[1], *size, *kernel, *strides, *pads, *dilations, *out)
    check.integer("n_windows", shape[0] * found.n_positions, 0, check.MAX_COUNT)
    check.integer("n_columns", found.n_columns, 1, 2**31 - 1)
    return found


def out_shape(windows: Windows, n_axes: int) -> tuple[int, ...]:
    """Returns the output positions along the axes in space that x has."""
    return tuple(windows[19 - n_axes :])


def check_images(name: str, x: FloatArray) -> np.dtype:
    """Checks images, (n_images, channels, *space) of float32 or float64; returns their dtype."""
    dtype = check.floating(name, x)
    axes = tuple(f"size{i}" for i in range(_axes_in_space(name, tuple(x.shape))))
    sizes: check.Sizes = {}
    check.array(name, x, dtype, ("n_images", "channels", *axes), sizes)
    check.at_least_one(sizes, "channels", *axes)
    if check.values_checked():
        check.finite(name, x, remedy=check.OF_LAYERS)
    return dtype


def as_rows(x: FloatArray) -> FloatArray:
    """Returns images as (n_images, numbers of an image)."""
    return x.reshape(x.shape[0], math.prod(x.shape[1:]))


def as_samples(route: Route, n_trees: int) -> Route:
    """Returns a route with its images and positions as one axis of samples."""
    n_samples = math.prod(route.leaf.shape[:-1])
    return Route(*(a.reshape(n_samples, n_trees) for a in route))
