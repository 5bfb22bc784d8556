"""Losses and their gradients (Lay et al. 2018, Fig. 2)."""

from typing import Any

import numpy as np

from ..core import check, dispatch, supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray
from ..core.gpu import cast

_PACKAGE = __package__
_FLOAT64 = np.dtype(np.float64)


def softmax_loss(scores: FloatArray, y: ArrayLike) -> tuple[float, FloatArray]:
    """Returns the mean negative log-likelihood of labels under the softmax of scores, and its gradient.

    Parameters
    ----------
    scores : (n_samples, n_classes) array of float32 or float64
        Unnormalised log-probabilities (natural log), finite; n_samples may be 0.
    y : (n_samples,) array of integers or bools
        Labels, 0 to n_classes - 1. Classes may be absent.

    Returns
    -------
    loss : float
        Mean over the samples, in nats; 0.0 for no samples. For CuPy arrays an array without axes.
    grad : (n_samples, n_classes) array, dtype of scores
        Gradient of that mean with respect to the scores.

    Notes
    -----
    loss is the mean of log sum_k exp(s_k) - s_y; the largest score is subtracted first, so that no
    exponential overflows. grad = (softmax(s) - onehot(y)) / n_samples. Both are computed in float64, and the
    gradient is rounded once. A loss beyond the largest float64 is infinite, its gradient is exact. On a GPU
    ``float(loss)`` and the checks of values wait for the device. Cost: a few passes over the scores.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> loss, grad = hforest.layers.softmax_loss(np.zeros((1, 2)), np.array([1]))
    >>> round(loss, 6), grad
    (0.693147, array([[ 0.5, -0.5]]))
    """
    check.same_device(scores=scores)
    dtype = check.floating("scores", scores)
    sizes: check.Sizes = {}
    check.array("scores", scores, dtype, ("n_samples", "n_classes"), sizes)
    check.at_least_one(sizes, "n_classes")
    n = sizes["n_samples"]
    with check.together(scores):
        check.finite("scores", scores, remedy=check.OF_LAYERS)
        labels, _ = supervised.labels("y", y, n, sizes["n_classes"], kernels_index=False)
    check.same_device(scores=scores, y=labels)
    return unchecked_softmax_loss(scores, labels)


def unchecked_softmax_loss(scores: FloatArray, labels: IntArray) -> tuple[Any, FloatArray]:
    """Returns what `softmax_loss` returns, for int32 labels, without any check."""
    if len(scores) == 0:
        return 0.0, dispatch.array_module(scores).empty_like(scores)
    loss, grad = dispatch.backend(_PACKAGE, scores).softmax_loss(scores, labels)
    return as_loss(loss), grad


def as_loss(loss: Any) -> Any:
    """Returns a float of a NumPy loss. A loss of CuPy stays on the device: reading it waits."""
    return float(loss) if isinstance(loss, np.ndarray | np.generic) else loss


def squared_loss(prediction: FloatArray, y: FloatArray) -> tuple[float, FloatArray]:
    """Returns the mean over samples of half the squared distance to the targets, and its gradient.

    Parameters
    ----------
    prediction : (n_samples, ...) array of float32 or float64
        Predictions, finite; n_samples may be 0.
    y : array, shape and dtype of prediction
        Targets, in the unit of prediction. Finite.

    Returns
    -------
    loss : float
        Mean, in that unit squared; 0.0 for no samples. For CuPy arrays an array without axes.
    grad : array, shape and dtype of prediction
        Gradient of the loss with respect to the prediction.

    Notes
    -----
    loss is the mean over samples of the sum over outputs of (prediction - y)**2 / 2, so that grad =
    (prediction - y) / n_samples. Both are computed in float64, and the gradient is rounded once; numbers
    beyond the range of the dtype are infinite. On a GPU ``float(loss)`` and the checks of values wait for the
    device. Cost: a few passes over the arrays.

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
    with check.together(prediction):
        check.finite("prediction", prediction, remedy=check.OF_LAYERS)
        check.finite("y", y)
    if n == 0:
        return 0.0, dispatch.array_module(prediction).empty_like(prediction)
    with np.errstate(over="ignore"):
        if dispatch.runs_on_gpu(prediction):
            difference = cast(prediction, _FLOAT64) - cast(y, _FLOAT64)
            grad = cast(difference / n, dtype)
        else:  # NumPy converts dtypes by blocks, without an array of them
            difference = np.subtract(prediction, y, dtype=_FLOAT64)
            grad = np.divide(difference, n, out=np.empty_like(prediction), casting="same_kind")
        difference *= difference
        return as_loss(difference.sum() / (2 * n)), grad
