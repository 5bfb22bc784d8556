"""What surrounds a forest in a network: normalisation, convolution, losses (p1 = Lay et al., §4 and §6).

Everything here takes C-contiguous NumPy arrays or CuPy arrays, float32 or float64, and returns new
arrays of the same kind and dtype. There are no kernels: the work is matrix products and passes over
arrays. Wrong kinds and dtypes raise TypeError, wrong shapes and values ValueError, labels out of range
IndexError; the checks that read whole arrays can be skipped inside `hforest.unchecked()`.
"""

import math

import numpy as np

from ..core import check, dispatch
from ..core.dispatch import Array

__all__ = [
    "conv2d",
    "conv2d_backward",
    "normalize",
    "normalize_backward",
    "normalize_update",
    "softmax_loss",
    "squared_loss",
]

EPSILON = 1e-7
"""Added to the variance, in the unit of x squared (p1's own framework)."""

# Numbers in the unfolded windows of one chunk of samples: 16 MiB of float32.
_CHUNK = 1 << 22


# ----------------------------------------------------------------------------------- normalisation


def _check_statistics(name: str, x: Array, **statistics: Array) -> check.Sizes:
    check.same_device(**{name: x}, **statistics)
    dtype = check.floating(name, x)
    sizes: check.Sizes = {}
    check.array(name, x, dtype, ("n_samples", "n_features"), sizes)
    for statistic, a in statistics.items():
        check.array(statistic, a, dtype, ("n_features",), sizes)
    return sizes


def _deviation(var: Array) -> Array:
    return dispatch.array_module(var).sqrt(var + var.dtype.type(EPSILON))


def normalize(x: Array, mean: Array, var: Array) -> Array:
    """Features in running standard deviations from their running mean (p1 §4).

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Finite. Zero samples are legal.
    mean, var : (n_features,) arrays, dtype of x
        Running mean and variance; zeros and ones at the start. Not changed here.

    Returns
    -------
    z : (n_samples, n_features) array, dtype of x
        Without a unit.

    Raises
    ------
    TypeError, ValueError
        Wrong dtype or device; wrong shape or layout, NaN or infinity in x.

    Notes
    -----
    z = (x - mean) / sqrt(var + 1e-7), the same in training and in use, without learned scale or shift.
    Cost: two passes over x.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> hforest.layers.normalize(np.array([[3.0]]), np.array([1.0]), np.array([4.0])).round(6)
    array([[1.]])
    """
    _check_statistics("x", x, mean=mean, var=var)
    check.finite("x", x)
    z = x - mean
    z /= _deviation(var)
    return z


def normalize_update(x: Array, mean: Array, var: Array, step: int) -> None:
    """Move running mean and variance towards those of a batch, in place, after the batch was used.

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        The batch. Finite.
    mean, var : (n_features,) arrays, dtype of x
        Running mean and variance. Changed in place.
    step : int
        Updates before this one: 0, 1, ... The first one replaces what `mean` and `var` held.

    Raises
    ------
    TypeError, ValueError
        Wrong dtype or device; wrong shape or layout, NaN or infinity in x, a read-only array, arrays that
        overlap, a negative step.

    Notes
    -----
    With a = min(step / (step + 1), 0.99), mean <- a mean + (1 - a) batch mean, and likewise var with the
    unbiased variance of the batch, whose sum of squares is divided by n_samples - 1. A batch of one
    sample has no such variance: it moves the mean alone. A batch of none changes nothing. Sums run in
    float64. Cost: two passes over x.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> mean, var = np.zeros(1), np.ones(1)
    >>> hforest.layers.normalize_update(np.array([[1.0], [3.0]]), mean, var, 0)
    >>> mean, var
    (array([2.]), array([2.]))
    """
    sizes = _check_statistics("x", x, mean=mean, var=var)
    step = check.integer("step", step, 0)
    for name, a in (("mean", mean), ("var", var)):
        check.writable(name, a)
    check.no_overlap({"mean": mean, "var": var}, {"x": x})
    check.finite("x", x)
    n = sizes["n_samples"]
    if n == 0:
        return
    old = min(step / (step + 1), 0.99)
    batch = x.mean(axis=0, dtype=np.float64)
    mean[...] = old * mean + (1 - old) * batch
    if n > 1:
        squares = ((x - batch) ** 2).sum(axis=0)
        var[...] = old * var + (1 - old) * (squares / (n - 1))


def normalize_backward(grad_z: Array, var: Array) -> Array:
    """Gradient of a loss by the input of `normalize`.

    Parameters
    ----------
    grad_z : (n_samples, n_features) array of float32 or float64
        Gradient by the normalised features.
    var : (n_features,) array, dtype of grad_z
        Running variance that `normalize` was given.

    Returns
    -------
    grad_x : (n_samples, n_features) array, dtype of grad_z

    Raises
    ------
    TypeError, ValueError
        Wrong dtype or device; wrong shape or layout.

    Notes
    -----
    grad_x = grad_z / sqrt(var + 1e-7): mean and variance are constants here (p1 §4). Cost: one pass.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> hforest.layers.normalize_backward(np.array([[3.0]]), np.array([4.0])).round(6)
    array([[1.5]])
    """
    _check_statistics("grad_z", grad_z, var=var)
    return grad_z / _deviation(var)


# ------------------------------------------------------------------------------------- convolution


def _check_conv(
    x: Array, kernels: Array, stride: int
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
            "pad the images with numpy.pad or choose smaller kernels"
        )
    oh, ow = ((i - k) // stride + 1 for i, k in zip(image, kernel, strict=True))
    n, channels = sizes["n_samples"], sizes["n_channels"]
    return stride, (n, channels, *image), (sizes["n_kernels"], channels, *kernel), (oh, ow)


def _chunks(n: int, numbers_each: int) -> list[slice]:
    size = max(1, _CHUNK // numbers_each)
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def _unfold(x: Array, kernel: tuple[int, int], stride: int, out: tuple[int, int]) -> Array:
    # (n, C, H, W) -> (n, C * kh * kw, oh * ow): each column a window.
    n, channels = x.shape[:2]
    columns = dispatch.array_module(x).empty((n, channels, *kernel, *out), x.dtype)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            columns[:, :, i, j] = x[:, :, _span(i, out[0], stride), _span(j, out[1], stride)]
    return columns.reshape(n, channels * kernel[0] * kernel[1], out[0] * out[1])


def _span(first: int, n: int, stride: int) -> slice:
    return slice(first, first + (n - 1) * stride + 1, stride)


def conv2d(x: Array, kernels: Array, stride: int) -> Array:
    """Inner products of kernels with the windows of images: 2-D cross-correlation without padding.

    Parameters
    ----------
    x : (n_samples, n_channels, height, width) or (n_samples, height, width) array of float32 or float64
        Images. Finite. Zero samples are legal.
    kernels : (n_kernels, n_channels, kernel_height, kernel_width) array, dtype of x
        Without the channel axis where x has none. Not larger than the images.
    stride : int
        Pixels from a window to the next, both ways. At least 1.

    Returns
    -------
    y : (n_samples, n_kernels, out_height, out_width) array, dtype of x
        out_height = (height - kernel_height) // stride + 1, likewise out_width. C-contiguous.

    Raises
    ------
    TypeError, ValueError
        Wrong dtype or device; wrong shape or layout, NaN or infinity in x, kernels larger than the images,
        a stride below 1.

    Notes
    -----
    y[n, o, i, j] = sum over c, a, b of kernels[o, c, a, b] x[n, c, stride i + a, stride j + b], the first
    layer of p1's network for MNIST (Fig. 2: 80 kernels of 5 by 5, stride 3). Cost: one matrix product a
    sample, and a copy of its windows. Extra memory does not grow with n_samples.

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
    check.finite("x", x)
    xp = dispatch.array_module(x)
    windows = out[0] * out[1]
    images, weights = x.reshape(image), kernels.reshape(kernel[0], math.prod(kernel[1:]))
    y = xp.empty((image[0], kernel[0], windows), x.dtype)
    for part in _chunks(image[0], weights.shape[1] * windows):
        xp.matmul(weights, _unfold(images[part], kernel[2:], stride, out), out=y[part])
    return y.reshape(image[0], kernel[0], *out)


def conv2d_backward(grad_y: Array, x: Array, kernels: Array, stride: int) -> tuple[Array, Array]:
    """Gradients of a loss by the images and the kernels of `conv2d`.

    Parameters
    ----------
    grad_y : (n_samples, n_kernels, out_height, out_width) array, dtype of x
        Gradient by the result of `conv2d`.
    x, kernels : arrays of float32 or float64
        As `conv2d` was given them.
    stride : int
        As `conv2d` was given it.

    Returns
    -------
    grad_x : array, shape and dtype of x
    grad_kernels : array, shape and dtype of kernels

    Raises
    ------
    TypeError, ValueError
        Wrong dtype or device; wrong shape or layout, kernels larger than the images, a stride below 1.

    Notes
    -----
    grad_kernels[o, c, a, b] = sum over n, i, j of grad_y[n, o, i, j] x[n, c, stride i + a, stride j + b],
    and grad_x adds kernels[o, c, a, b] grad_y[n, o, i, j] at that place. Sums over samples are added in
    float64 in the order of the samples. Cost: two matrix products a sample, and a copy of its windows.

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
    for part in _chunks(n, weights.shape[1] * windows):
        columns = _unfold(images[part], kernel[2:], stride, out)
        total += xp.matmul(slopes[part], columns.transpose(0, 2, 1)).sum(axis=0, dtype=np.float64)
        folded = xp.matmul(weights.T, slopes[part]).reshape(-1, *kernel[1:], *out)
        for i in range(kernel[2]):
            for j in range(kernel[3]):
                # Windows of one offset never overlap: no sum depends on an order.
                grad_x[part, :, _span(i, out[0], stride), _span(j, out[1], stride)] += folded[:, :, i, j]
    return grad_x.reshape(x.shape), total.astype(x.dtype).reshape(kernels.shape)


# ------------------------------------------------------------------------------------------ losses


def softmax_loss(scores: Array, y: Array) -> tuple[float, Array]:
    """Mean negative log-likelihood of labels under the softmax of scores, and its gradient.

    Parameters
    ----------
    scores : (n_samples, n_classes) array of float32 or float64
        In natural-log units, up to a constant a sample. Finite. Zero samples are legal.
    y : (n_samples,) array of int32
        Labels, 0 to n_classes - 1.

    Returns
    -------
    loss : float
        Mean over the samples, in nats; 0.0 for no samples.
    grad : (n_samples, n_classes) array, dtype of scores
        Gradient of that mean by the scores.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape or layout, NaN or infinity in the scores; a label that is no
        class.

    Notes
    -----
    loss = mean of log sum_k exp(s_k) - s_y, with the largest score taken off first, so that nothing
    overflows; grad = (softmax(s) - onehot(y)) / n_samples. In float64, the gradient rounded once.
    On a GPU this waits for the loss. Cost: a few passes over the scores.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> loss, grad = hforest.layers.softmax_loss(np.zeros((1, 2)), np.array([1], dtype=np.int32))
    >>> round(loss, 6), grad
    (0.693147, array([[ 0.5, -0.5]]))
    """
    check.same_device(scores=scores, y=y)
    dtype = check.floating("scores", scores)
    sizes: check.Sizes = {}
    check.array("scores", scores, dtype, ("n_samples", "n_classes"), sizes)
    check.array("y", y, check.INT32, ("n_samples",), sizes)
    check.at_least_one(sizes, "n_classes")
    check.finite("scores", scores)
    check.indices("y", y, sizes["n_classes"], "n_classes")
    n = sizes["n_samples"]
    xp = dispatch.array_module(scores)
    if n == 0:
        return 0.0, xp.empty_like(scores)
    at = (xp.arange(n), y)
    shifted = scores.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    own = shifted[at]
    p = xp.exp(shifted, out=shifted)
    total = p.sum(axis=1, keepdims=True)
    loss = float((xp.log(total[:, 0]) - own).sum()) / n
    p /= total
    p[at] -= 1
    p /= n
    return loss, p.astype(dtype)


def squared_loss(prediction: Array, y: Array) -> tuple[float, Array]:
    """Mean over samples of half the squared distance to the targets, and its gradient.

    Parameters
    ----------
    prediction : (n_samples, ...) array of float32 or float64
        Finite. Zero samples are legal.
    y : array, shape and dtype of prediction
        Targets, in the unit of prediction. Finite.

    Returns
    -------
    loss : float
        In that unit squared; 0.0 for no samples.
    grad : array, shape and dtype of prediction
        Gradient of the loss by the prediction.

    Raises
    ------
    TypeError, ValueError
        Wrong dtype or device; wrong shape or layout, NaN or infinity.

    Notes
    -----
    loss = mean over samples of the sum over outputs of (prediction - y)**2 / 2, so that
    grad = (prediction - y) / n_samples. In float64, the gradient rounded once. On a GPU this waits for
    the loss. Cost: a few passes over the arrays.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> hforest.layers.squared_loss(np.array([[1.0, 3.0], [0.0, 0.0]]), np.zeros((2, 2)))
    (2.5, array([[0.5, 1.5],
           [0. , 0. ]]))
    """
    check.same_device(prediction=prediction, y=y)
    dtype = check.floating("prediction", prediction)
    sizes: check.Sizes = {}
    check.array("prediction", prediction, dtype, ("n_samples", ...), sizes)
    n = sizes["n_samples"]
    check.array("y", y, dtype, ("n_samples", *prediction.shape[1:]), sizes)
    check.finite("prediction", prediction)
    check.finite("y", y)
    if n == 0:
        return 0.0, dispatch.array_module(prediction).empty_like(prediction)
    difference = prediction.astype(np.float64)
    difference -= y
    loss = float((difference * difference).sum()) / (2 * n)
    difference /= n
    return loss, difference.astype(dtype)
