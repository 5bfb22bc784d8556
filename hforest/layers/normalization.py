"""Normalisation by running statistics (Lay et al. 2018, section 4)."""

import numpy as np

from ..core import check, dispatch
from ..core.aliases import FloatArray

EPSILON = 1e-7
"""Added to the variance, in the unit of x squared; from the program of Lay et al. 2018 (bleak)."""


def _check_statistics(name: str, x: FloatArray, **statistics: FloatArray) -> check.Sizes:
    check.same_device(**{name: x}, **statistics)
    dtype = check.floating(name, x)
    sizes: check.Sizes = {}
    check.array(name, x, dtype, ("n_samples", "n_features"), sizes)
    for statistic, a in statistics.items():
        check.array(statistic, a, dtype, ("n_features",), sizes)
    return sizes


def _check_var(var: FloatArray) -> None:
    if not check.values_checked():
        return
    bad = ~(var >= 0)
    if bool(bad.any()):
        i = int(bad.argmax())
        raise ValueError(
            f"var: expected variances of at least 0, got {var[i].item()} at index {i}; pass the variances "
            "that normalize_update updates, which are 1 at the start"
        )


def _deviation(var: FloatArray) -> FloatArray:
    with np.errstate(invalid="ignore"):  # roots of negative numbers, inside unchecked()
        return dispatch.array_module(var).sqrt(var + var.dtype.type(EPSILON))


def normalize(x: FloatArray, mean: FloatArray, var: FloatArray) -> FloatArray:
    """Returns features in running standard deviations from their running mean (Lay et al. 2018, section 4).

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Samples, finite; n_samples may be 0.
    mean, var : (n_features,) arrays, dtype of x
        Running mean and variance, initially zeros and ones. Not changed here.

    Returns
    -------
    z : (n_samples, n_features) array, dtype of x
        Normalised features, without a unit.

    Notes
    -----
    z = (x - mean) / sqrt(var + 1e-7), the same in training and prediction, without learned scale or shift.
    Numbers beyond the largest of the dtype are infinite. Cost: two passes over x.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> hforest.layers.normalize(np.array([[3.0]]), np.array([1.0]), np.array([4.0])).round(6)
    array([[1.]])
    """
    _check_statistics("x", x, mean=mean, var=var)
    check.finite("x", x, remedy=check.OF_LAYERS)
    _check_var(var)
    with np.errstate(over="ignore", invalid="ignore"):
        z = x - mean
        z /= _deviation(var)
    return z


def normalize_update(x: FloatArray, mean: FloatArray, var: FloatArray, step: int) -> None:
    """Updates the running mean and variance towards those of a batch, in place.

    Call it after the training step on the batch.

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Batch, finite.
    mean, var : arrays
        As in `normalize`. Changed in place.
    step : int
        Number of earlier updates: 0, 1, ... The first one replaces the values of `mean` and `var`.

    Raises
    ------
    ValueError
        A variance below 0 or NaN. After an error nothing has changed.

    Notes
    -----
    Lay et al. 2018, section 4, keep a running mean and deviation; a and the unbiased variance are those of
    their program (bleak). With a = min(step / (step + 1), 0.99), mean <- a mean + (1 - a) batch mean, and
    likewise var with the unbiased variance of the batch, whose sum of squares is divided by n_samples - 1. A
    batch of one sample has no such variance: it moves the mean alone. A batch of none changes nothing. Sums
    run in float64; a mean or variance beyond the range of the dtype is infinite. Cost: two passes over x.

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
    check.outputs({"mean": mean, "var": var}, {"x": x})
    check.finite("x", x, remedy=check.OF_LAYERS)
    _check_var(var)
    n = sizes["n_samples"]
    if n == 0:
        return
    old = min(step / (step + 1), 0.99)
    with np.errstate(over="ignore", invalid="ignore"):
        batch = x.mean(axis=0, dtype=np.float64)
        squares = ((x - batch) ** 2).sum(axis=0)
        mean[...] = old * mean + (1 - old) * batch
        if n > 1:
            var[...] = old * var + (1 - old) * (squares / (n - 1))


def normalize_backward(grad_z: FloatArray, var: FloatArray) -> FloatArray:
    """Returns the gradient of a loss with respect to the input of `normalize`.

    Parameters
    ----------
    grad_z : (n_samples, n_features) array of float32 or float64
        Gradient with respect to the normalised features.
    var : (n_features,) array, dtype of grad_z
        Running variance that was passed to `normalize`.

    Returns
    -------
    grad_x : (n_samples, n_features) array, dtype of grad_z

    Notes
    -----
    grad_x = grad_z / sqrt(var + 1e-7): mean and variance are constants (Lay et al. 2018, section 4). Numbers
    beyond the largest of the dtype are infinite. Cost: one pass.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> hforest.layers.normalize_backward(np.array([[3.0]]), np.array([4.0])).round(6)
    array([[1.5]])
    """
    _check_statistics("grad_z", grad_z, var=var)
    _check_var(var)
    with np.errstate(over="ignore", invalid="ignore"):
        return grad_z / _deviation(var)
