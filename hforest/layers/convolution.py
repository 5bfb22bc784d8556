"""2-D cross-correlation and its gradients, as matrix products (Lay et al. 2018, Fig. 2)."""

import math

import numpy as np

from ..core import check, dispatch
from ..core.aliases import FloatArray

# Number of entries in the unfolded windows of one chunk of samples: 16 MiB of float32.
_CHUNK = 1 << 22


def _check_conv(
    x: FloatArray, kernels: FloatArray, stride: int
) -> tuple[int, tuple[int, int, int, int], tuple[int, int, int, int], tuple[int, int]]:
    # stride, (n, C, H, W), (O, C, kh, kw) and (oh, ow), images of one channel as C = 1
    dtype = check.floating("x", x)
    sizes: check.Sizes = {}
    if x.ndim == 3:
        check.array("x", x, dtype, ("n_samples", "height", "width"), sizes)
        check.array("kernels", kernels, dtype, ("n_kernels", "kernel_height", "kernel_width"), sizes)
        sizes["n_channels"] = 1
    else:
        check.array("x", x, dtype, ("n_samples", "n_channels", "height", "width"), sizes)
        check.array(
            "kernels", kernels, dtype, ("n_kernels", "n_channels", "kernel_height", "kernel_width"), sizes
        )
    check.at_least_one(sizes, "n_channels", "height", "width", "n_kernels", "kernel_height", "kernel_width")
    stride = check.integer("stride", stride, 1)
    image = (sizes["height"], sizes["width"])
    kernel = (sizes["kernel_height"], sizes["kernel_width"])
    if kernel[0] > image[0] or kernel[1] > image[1]:
        raise ValueError(
            f"kernels: expected at most the size of the images, (height, width) = {image}, got {kernel}; "
            "pad the images with numpy.pad, or choose smaller kernels"
        )
    oh, ow = ((i - k) // stride + 1 for i, k in zip(image, kernel, strict=True))
    n, channels = sizes["n_samples"], sizes["n_channels"]
    return stride, (n, channels, *image), (sizes["n_kernels"], channels, *kernel), (oh, ow)


def _chunks(n: int, numbers_each: int) -> list[slice]:
    size = max(1, _CHUNK // numbers_each)
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def _unfold(x: FloatArray, kernel: tuple[int, int], stride: int, out: tuple[int, int]) -> FloatArray:
    # (n, C, H, W) -> (n, C * kh * kw, oh * ow): each column a window.
    n, channels = x.shape[:2]
    columns = dispatch.array_module(x).empty((n, channels, *kernel, *out), x.dtype)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            columns[:, :, i, j] = x[:, :, _span(i, out[0], stride), _span(j, out[1], stride)]
    return columns.reshape(n, channels * kernel[0] * kernel[1], out[0] * out[1])


def _span(first: int, n: int, stride: int) -> slice:
    return slice(first, first + (n - 1) * stride + 1, stride)


def conv2d(x: FloatArray, kernels: FloatArray, stride: int) -> FloatArray:
    """Returns the inner products of kernels with windows of images: 2-D cross-correlation without padding.

    Parameters
    ----------
    x : (n_samples, n_channels, height, width) or (n_samples, height, width) array of float32 or float64
        Images, finite; n_samples may be 0.
    kernels : (n_kernels, n_channels, kernel_height, kernel_width) array, dtype of x
        Kernels, not larger than the images; without the channel axis if x has none.
    stride : int
        Distance in pixels between neighbouring windows on both axes, at least 1.

    Returns
    -------
    y : (n_samples, n_kernels, out_height, out_width) array, dtype of x
        out_height is (height - kernel_height) // stride + 1, and out_width likewise. C-contiguous.

    Notes
    -----
    y[n, o, i, j] = sum over c, a, b of kernels[o, c, a, b] x[n, c, stride i + a, stride j + b], the first
    layer of the network of Lay et al. 2018 for MNIST (Fig. 2: 80 kernels of 5 by 5, stride 3). Sums beyond
    the largest number of the dtype are infinite or NaN. Cost: one matrix product per sample, and a copy of
    its windows. Extra memory does not grow with n_samples.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.arange(9.0).reshape(1, 3, 3)
    >>> hforest.layers.conv2d(x, np.array([[[1.0, -1.0]]]), 2)
    array([[[[-1.],
             [-1.]]]])
    """
    check.same_device(x=x, kernels=kernels)
    stride, image, kernel, out = _check_conv(x, kernels, stride)
    check.finite("x", x, remedy=check.OF_LAYERS)
    xp = dispatch.array_module(x)
    windows = out[0] * out[1]
    images, weights = x.reshape(image), kernels.reshape(kernel[0], math.prod(kernel[1:]))
    y = xp.empty((image[0], kernel[0], windows), x.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        for part in _chunks(image[0], weights.shape[1] * windows):
            xp.matmul(weights, _unfold(images[part], kernel[2:], stride, out), out=y[part])
    return y.reshape(image[0], kernel[0], *out)


def conv2d_backward(
    grad_y: FloatArray, x: FloatArray, kernels: FloatArray, stride: int
) -> tuple[FloatArray, FloatArray]:
    """Returns gradients of a loss with respect to the images and the kernels of `conv2d`.

    Other parameters: see `conv2d`.

    Parameters
    ----------
    grad_y : (n_samples, n_kernels, out_height, out_width) array, dtype of x
        Gradient of the loss with respect to the result of `conv2d`.

    Returns
    -------
    grad_x : array, shape and dtype of x
    grad_kernels : array, shape and dtype of kernels

    Notes
    -----
    grad_kernels[o, c, a, b] = sum over n, i, j of grad_y[n, o, i, j] x[n, c, stride i + a, stride j + b], and
    grad_x adds kernels[o, c, a, b] grad_y[n, o, i, j] at that place. Sums over samples are added in float64
    in the order of the samples; those beyond the largest number of the dtype are infinite or NaN. Cost: two
    matrix products per sample, and a copy of its windows.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.arange(9.0).reshape(1, 3, 3)
    >>> grad_x, grad_kernels = hforest.layers.conv2d_backward(
    ...     np.ones((1, 1, 2, 1)), x, np.array([[[1.0, -1.0]]]), 2)
    >>> grad_x, grad_kernels
    (array([[[ 1., -1.,  0.],
            [ 0.,  0.,  0.],
            [ 1., -1.,  0.]]]), array([[[6., 8.]]]))
    """
    check.same_device(grad_y=grad_y, x=x, kernels=kernels)
    stride, image, kernel, out = _check_conv(x, kernels, stride)
    n, n_kernels = image[0], kernel[0]
    check.array("grad_y", grad_y, x.dtype, (n, n_kernels, *out), {})
    xp = dispatch.array_module(x)
    windows = out[0] * out[1]
    images, weights = x.reshape(image), kernels.reshape(n_kernels, math.prod(kernel[1:]))
    slopes = grad_y.reshape(n, n_kernels, windows)
    grad_x = xp.zeros(image, x.dtype)
    total = xp.zeros(weights.shape, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        for part in _chunks(n, weights.shape[1] * windows):
            columns = _unfold(images[part], kernel[2:], stride, out)
            total += xp.matmul(slopes[part], columns.transpose(0, 2, 1)).sum(axis=0, dtype=np.float64)
            folded = xp.matmul(weights.T, slopes[part]).reshape(-1, *kernel[1:], *out)
            for i in range(kernel[2]):
                for j in range(kernel[3]):
                    # Pixels of one offset in all windows are distinct, so no sum depends on an order.
                    grad_x[part, :, _span(i, out[0], stride), _span(j, out[1], stride)] += folded[:, :, i, j]
        grad_kernels = total.astype(x.dtype)
    return grad_x.reshape(x.shape), grad_kernels.reshape(kernels.shape)
