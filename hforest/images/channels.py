"""Channels of images: each function returns an array that can be joined to the images along the last axis."""

from collections.abc import Sequence

import numpy as np

from ..core import check, supervised
from ..core.aliases import ArrayLike, FloatArray
from .windows import check_images

_MAX_SIGMA = 64.0


def _images(images: ArrayLike) -> FloatArray:
    """Returns checked images, in which sums of a few numbers do not overflow."""
    x = check_images("images", images)
    most = float(np.finfo(x.dtype).max) / 8
    supervised.bounded("images", x, -most, most)
    return x


def gradients(images: ArrayLike, n_orientations: int = 4, *, sigma: float = 1.0) -> FloatArray:
    """Returns the magnitude of the gradient at each pixel, as a whole and by orientation.

    Parameters
    ----------
    images : (n_images, height, width, n_channels) array-like
        Finite, of any real dtype; one to three axes of space, two for orientations.
    n_orientations : int
        Bins of the orientation, 0 to 256; bin b holds angles from b to b + 1 times pi / n_orientations
        between the direction of steepest change and the last axis of space, opposite directions as one.
    sigma : float
        Standard deviation of the Gaussian filter whose derivative is taken, above 0 and at most 64 pixels.

    Returns
    -------
    (n_images, height, width, 1 + n_orientations) array of float32 or float64
        First the magnitude, then the magnitude in the bin of its orientation, 0 in the others. At each pixel
        it is that of the channel of the largest magnitude.

    Notes
    -----
    Derivatives are those of `scipy.ndimage.gaussian_filter`; pixels outside repeat the nearest one.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> image = np.repeat([np.arange(9.0)], 9, axis=0)[None, ..., None]  # rises to the right
    >>> hforest.images.gradients(image, 2)[0, 4, 4].round(2)
    array([1., 1., 0.])
    """
    from scipy import ndimage

    x = _images(images)
    n_orientations = check.integer("n_orientations", n_orientations, 0, 256)
    sigma = check.number("sigma", sigma, 0.0, _MAX_SIGMA, open_low=True)
    n_axes = x.ndim - 2
    check.require(
        n_axes == 2 or not n_orientations, "n_orientations", "0 for images without two spatial axes",
        n_orientations, "pass 0",
    )  # fmt: skip
    result = np.zeros((*x.shape[:-1], 1 + n_orientations), x.dtype)
    sigmas = (*(sigma,) * n_axes, 0)
    for image, out in zip(x, result, strict=True):
        slopes = [
            ndimage.gaussian_filter(image, sigmas, order=np.eye(n_axes + 1, dtype=int)[axis], mode="nearest")
            for axis in range(n_axes)
        ]
        magnitude = np.hypot.reduce(slopes)
        largest = magnitude.argmax(axis=-1)[..., None]
        out[..., :1] = np.take_along_axis(magnitude, largest, axis=-1)
        if n_orientations:
            down, right = (np.take_along_axis(slope, largest, axis=-1)[..., 0] for slope in slopes)
            turn = np.arctan2(down, right) / np.pi  # -1 to 1
            place = np.floor(np.where(turn < 0, turn + 1, turn) * n_orientations).astype(np.int64)
            place = place % n_orientations  # half a turn is none
            np.put_along_axis(out[..., 1:], place[..., None], out[..., :1], axis=-1)
    return result


def boxes(images: ArrayLike, sizes: Sequence[int]) -> FloatArray:
    """Returns means over boxes around each pixel.

    Other parameters: see `gradients`.

    Parameters
    ----------
    sizes : sequence of ints
        Pixels along each side of a box: at least one size, odd, at most the smallest size of an image.

    Returns
    -------
    (n_images, height, width, n_channels * len(sizes)) array of float32 or float64
        Channels of the first size, then those of the next.

    Notes
    -----
    By `scipy.ndimage.uniform_filter`, in a time that does not depend on the sizes; pixels outside mirror
    those inside. With `hforest.project.probe_distribution` trees compare the means of two boxes.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> image = np.zeros((1, 5, 5, 1)); image[0, 2, 2] = 9
    >>> hforest.images.boxes(image, [1, 3])[0, 2].round(6)
    array([[0., 0.],
           [0., 1.],
           [9., 1.],
           [0., 1.],
           [0., 0.]])
    """
    from scipy import ndimage

    x = _images(images)
    check.instance("sizes", sizes, tuple | list, "a list of ints", "pass a list such as [3, 7, 15]")
    check.require(len(sizes), "sizes", "at least one size", "none", "pass a list such as [3, 7, 15]")
    for i, size in enumerate(sizes):
        size = check.integer(f"sizes[{i}]", size, 1, min(x.shape[1:-1]))
        check.require(size % 2, f"sizes[{i}]", "an odd size", size, "add 1 to it")
    n_channels = x.shape[-1]
    result = np.empty((*x.shape[:-1], n_channels * len(sizes)), x.dtype)
    for image, out in zip(x, result, strict=True):
        for i, size in enumerate(sizes):
            shape = (*(int(size),) * (x.ndim - 2), 1)
            out[..., i * n_channels : (i + 1) * n_channels] = ndimage.uniform_filter(image, shape)
    return result


def coordinates(images: ArrayLike) -> FloatArray:
    """Returns the place of each pixel in its image.

    Parameters: see `gradients`.

    Returns
    -------
    (n_images, height, width, 2) array of float32 or float64
        Along each axis of space the middle of the pixel, from 0 to 1.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> hforest.images.coordinates(np.zeros((1, 2, 4, 3)))[0, 1, 0]
    array([0.75 , 0.125])
    """
    x = _images(images)
    middles = [(np.arange(size) + 0.5) / size for size in x.shape[1:-1]]
    place = np.stack(np.meshgrid(*middles, indexing="ij"), axis=-1).astype(x.dtype)
    return np.ascontiguousarray(np.broadcast_to(place, (len(x), *place.shape)))


def opponent(images: ArrayLike) -> FloatArray:
    """Returns opponent colours: red against green, yellow against blue, and the intensity.

    Parameters
    ----------
    images : (n_images, height, width, 3) array-like
        Red, green and blue, finite, of any real dtype.

    Returns
    -------
    (n_images, height, width, 3) array of float32 or float64
        ``(R - G) / sqrt(2)``, ``(R + G - 2 B) / sqrt(6)`` and ``(R + G + B) / sqrt(3)``: a rotation.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> hforest.images.opponent(np.full((1, 1, 1, 3), 3**0.5))[0, 0, 0].round(6)
    array([0., 0., 3.])
    """
    x = _images(images)
    check.require(
        x.shape[-1] == 3, "images", "three channels, red, green and blue", x.shape[-1], "pass images[..., :3]"
    )
    red, green, blue = (x[..., i].astype(np.float64) for i in range(3))
    rotated = ((red - green) / 2**0.5, (red + green - 2 * blue) / 6**0.5, (red + green + blue) / 3**0.5)
    return np.stack([a.astype(x.dtype) for a in rotated], axis=-1)
