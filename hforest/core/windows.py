"""Windows of images as samples in place of rows, and the arithmetic of their places."""

import functools
from typing import Any, NamedTuple

import numpy as np

from . import check
from .aliases import FloatArray

Ints = int | tuple[int, ...]
"""A setting of windows: one number for all axes of space, or a number for each axis."""


class Windows(NamedTuple):
    """Settings that make each window of an image a sample, as in a convolution.

    An image is (channels, *space) with one to three axes of space. A sample is flattened channel by channel:
    column (channel * kernel height + row) * kernel width + column in two dimensions, as in
    `torch.nn.functional.unfold`. Along each axis there are (size + 2 padding - dilation (kernel_size - 1) -
    1) // stride + 1 output positions.
    """

    kernel_size: Ints
    """Size of the windows, for all axes of space or per axis."""
    stride: Ints = 1
    """Step between neighbouring windows."""
    padding: Ints = 0
    """Number of zeros around the images."""
    dilation: Ints = 1
    """Step between neighbouring pixels of a window."""


class Geometry(NamedTuple):
    """Images of one shape and their windows, with three axes of space; missing axes are first, of size 1.

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
        """Number of windows per image."""
        return self.out0 * self.out1 * self.out2

    @property
    def n_columns(self) -> int:
        """Number of columns of a window."""
        return self.channels * self.kernel0 * self.kernel1 * self.kernel2


def taps(geometry: Geometry, columns: np.ndarray | None = None) -> np.ndarray:
    """Returns (n_taps, 4) int64: the place of each tap relative to the window's corner, and along each axis.

    Taps are those of the given columns, by default of all.
    """
    if columns is None:
        columns = np.arange(geometry.n_columns)
    kernel = geometry[4:7]
    channel, a, b, c = np.unravel_index(columns, (geometry.channels, *kernel))
    steps = [at * dilation for at, dilation in zip((a, b, c), geometry[13:16], strict=True)]
    _, size0, size1, size2 = geometry[:4]
    place = ((channel * size0 + steps[0]) * size1 + steps[1]) * size2 + steps[2]
    return np.stack([place, *steps], axis=1).astype(np.int64)


def used_taps(geometry: Geometry | None, features: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """Returns the taps that vertices compare, and the features as their numbers; or None."""
    if geometry is None:
        return None, features
    if features.size >= geometry.n_columns:
        return taps(geometry), features
    columns, features_of = np.unique(features, return_inverse=True)
    return taps(geometry, columns), features_of.reshape(features.shape).astype(np.int32)


def _axes_in_space(name: str, shape: tuple[int, ...]) -> int:
    # Returns the number of axes after images and channels.
    check.require(
        3 <= len(shape) <= 5, name, "(n_images, channels, *space) with one to three axes in space",
        f"shape {shape}", "insert axes of size 1, or pass windows=None for rows",
    )  # fmt: skip
    return len(shape) - 2


def _per_axis(name: str, a: Ints, n_axes: int, least: int, filler: int) -> tuple[int, ...]:
    # Returns one number per axis, padded to three axes at the front.
    numbers = a if isinstance(a, tuple | list) else (a,) * n_axes
    check.require(
        len(numbers) == n_axes, name, f"an int or one int for each of the {n_axes} spatial axes", repr(a),
        "pass one int for each axis of x after the channels",
    )  # fmt: skip
    return (filler,) * (3 - n_axes) + tuple(check.integer(name, i, least, check.MAX_COUNT) for i in numbers)


def check_type(windows: Any) -> None:
    """Checks that windows are of the class Windows."""
    check.instance(
        "windows", windows, Windows, "Windows or None",
        "pass hforest.hinge.Windows(kernel_size, stride, padding, dilation), or None for rows",
    )  # fmt: skip


def geometry(name: str, shape: tuple[int, ...], windows: Any) -> Geometry:
    """Returns the geometry of windows on images of a shape (n_images, channels, *space).

    Errors about the shape name the argument `name`.
    """
    check_type(windows)
    sizes = [a if isinstance(a, tuple | list) else (a,) for a in windows]
    # Integers of one type are keys of the cache; others are errors, or rare.
    if all(type(i) is int for a in sizes for i in a):
        return _geometry(
            name, tuple(shape), Windows(*(tuple(a) if isinstance(a, list) else a for a in windows))
        )
    return _geometry.__wrapped__(name, tuple(shape), windows)


@functools.lru_cache(maxsize=256)
def _geometry(name: str, shape: tuple[int, ...], windows: Windows) -> Geometry:
    n_axes = _axes_in_space(name, shape)
    size = (1,) * (3 - n_axes) + tuple(shape[2:])
    kernel = _per_axis("kernel_size", windows.kernel_size, n_axes, 1, 1)
    strides = _per_axis("stride", windows.stride, n_axes, 1, 1)
    pads = _per_axis("padding", windows.padding, n_axes, 0, 0)
    dilations = _per_axis("dilation", windows.dilation, n_axes, 1, 1)
    out = []
    for axis in range(3):
        reach = dilations[axis] * (kernel[axis] - 1) + 1
        padded = size[axis] + 2 * pads[axis]
        check.require(
            reach <= padded, "kernel_size",
            f"kernels inside the padded images, at most {padded} along axis {axis + n_axes - 1} of x",
            f"{reach} with dilation {dilations[axis]}", "pad the images or choose a smaller kernel",
        )  # fmt: skip
        out.append((padded - reach) // strides[axis] + 1)
    places = Geometry(shape[1], *size, *kernel, *strides, *pads, *dilations, *out)
    check.integer("n_windows", shape[0] * places.n_positions, 0, check.MAX_COUNT)
    check.integer("n_columns", places.n_columns, 1, 2**31 - 1)
    return places


def positions(geometry: Geometry, n_axes: int) -> tuple[int, ...]:
    """Returns the number of output positions along each axis of space of the images."""
    return tuple(geometry[19 - n_axes :])


def check_images(name: str, x: FloatArray) -> np.dtype:
    """Checks images, (n_images, channels, *space) of float32 or float64; returns their dtype."""
    dtype = check.floating(name, x)
    axes = tuple(f"size{i}" for i in range(_axes_in_space(name, tuple(x.shape))))
    sizes: check.Sizes = {}
    check.array(name, x, dtype, ("n_images", "channels", *axes), sizes)
    check.at_least_one(sizes, "channels", *axes)
    return dtype
