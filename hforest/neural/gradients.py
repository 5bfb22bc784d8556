"""Gradients with respect to the decision functions: of the loss of labels, and the chain rule."""

from typing import Literal, overload

import numpy as np

from ..core import check, dispatch, supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray
from ..core.gpu import scale_rows
from . import checks

_PACKAGE = "hforest.neural"


@overload
def loss_backward(
    f: FloatArray,
    leaves: FloatArray,
    y: ArrayLike,
    *,
    index: IntArray | None = None,
    loss: Literal["forest", "tree"] = "forest",
    sample_weight: ArrayLike | None = None,
    return_p: Literal[False] = False,
    out: FloatArray | None = None,
) -> tuple[float, FloatArray]: ...


@overload
def loss_backward(
    f: FloatArray,
    leaves: FloatArray,
    y: ArrayLike,
    *,
    index: IntArray | None = None,
    loss: Literal["forest", "tree"] = "forest",
    sample_weight: ArrayLike | None = None,
    return_p: Literal[True],
    out: FloatArray | None = None,
) -> tuple[float, FloatArray, FloatArray]: ...


def loss_backward(
    f: FloatArray,
    leaves: FloatArray,
    y: ArrayLike,
    *,
    index: IntArray | None = None,
    loss: Literal["forest", "tree"] = "forest",
    sample_weight: ArrayLike | None = None,
    return_p: bool = False,
    out: FloatArray | None = None,
) -> tuple[float, FloatArray] | tuple[float, FloatArray, FloatArray]:
    """Returns the negative log-likelihood of labels and its gradient (Zhang 2017, section 2).

    Other parameters: see `forward`.

    Parameters
    ----------
    y : (n_samples,) array of any integer or bool dtype
        Labels, 0 to n_classes - 1.
    loss : "forest" or "tree"
        "forest": -log of the forest's mean probability. "tree": the mean over trees of each tree's own -log
        P_T, as Zhang 2017 writes it. For one tree they are the same.
    sample_weight : (n_samples,) array_like of real numbers, optional
        Weights of the samples in the mean of their losses: at least 0, not all 0; by default equal.
    return_p : bool
        Whether to return the class probabilities, too, which costs much less than a call of `forward`.

    Returns
    -------
    loss : float
        Weighted mean over the samples, in nats; 0.0 for no samples. Infinite where a sample's class has
        probability 0 in every leaf.
    grad_f : array, shape and dtype of f
        Gradient of that mean. Samples of infinite loss have gradient 0; with "tree", only in trees of
        infinite loss.
    p : (n_samples, n_classes) array, dtype of f
        Bit-identical to the result of `forward`; only with `return_p`.

    Notes
    -----
    With A_m the part of P[y | x] that comes from the leaves below m, divided by P[y | x], dL/df_v = d_v
    A_right(v) - (1 - d_v) A_left(v); the "forest" loss weights a tree by its share of the mean. The indices
    in Zhang 2017 are misprinted; this formula agrees with central differences. If products of decisions leave
    the range of the dtype, the sample is recomputed in float64 logarithms, so saturated decisions have exact
    gradients, too.

    Cost: for each sample and tree one sigmoid and about eight operations per vertex, and with `return_p`
    n_classes products per leaf; f is read and grad_f written once. Extra memory: about 256 * 2**depth bytes
    per thread. On a GPU this waits for the loss.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> f = np.log([[[3.0]]]); leaves = np.array([[[0.9, 0.1], [0.5, 0.5]]])
    >>> loss, grad_f = hforest.neural.loss_backward(f, leaves, [0])
    >>> round(loss, 6), grad_f.round(6)
    (0.223144, array([[[-0.09375]]]))
    """
    check.choice("loss", loss, ("forest", "tree"))
    check.flag("return_p", return_p)
    caller_index = index
    sizes, index = checks.forest(f, leaves, index)
    caller_y = supervised.as_given("y", y)
    y = checks.labels(f, caller_y, sizes)
    weight = checks.weights(y, sample_weight)
    n = sizes["n_samples"]
    weights = None if sample_weight is None else supervised.as_given("sample_weight", sample_weight)
    inputs = {"f": f, "leaves": leaves, "y": caller_y, "index": caller_index, "sample_weight": weights}
    grad_f = checks.gradient(f, out, inputs)
    empty = dispatch.array_module(f).empty
    losses, p = empty(n, np.float64), empty((n, sizes["n_classes"]), f.dtype) if return_p else None
    dispatch.backend(_PACKAGE, f).loss_backward(
        checks.flat(f), index, leaves, y, loss == "forest", losses, checks.flat(grad_f), p
    )
    if weight is not None:
        losses[weight == 0] = 0  # they may be infinite
        losses *= weight
        scale_rows(grad_f, weight)
    # In the order of NumPy on every device.
    mean = float(dispatch.to_numpy(losses).sum()) / n if n else 0.0
    return (mean, grad_f) if p is None else (mean, grad_f, p)


def backward(
    grad_p: FloatArray,
    f: FloatArray,
    leaves: FloatArray,
    *,
    index: IntArray | None = None,
    out: FloatArray | None = None,
) -> FloatArray:
    """Returns the gradient, with respect to the decision functions, of any loss of `forward`'s result.

    Other parameters: see `forward`.

    Parameters
    ----------
    grad_p : (n_samples, n_classes) array of float32 or float64
        Gradient of the loss with respect to p. Finite.
    leaves : (n_trees, 2**depth, n_classes) array, dtype of grad_p
        Any finite numbers whose products with grad_p, summed over the classes, are finite.

    Returns
    -------
    grad_f : array, shape and dtype of f

    Notes
    -----
    With V_m = sum over leaves l below m of mu_l / mu_m (leaves_l . grad_p),
    dL/df_v = mu_v d_v (1 - d_v) (V_left - V_right) / n_trees. Cost: that of `forward` and
    `loss_backward` together.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> f = np.zeros((1, 1, 1)); leaves = np.array([[[2.0], [-2.0]]])
    >>> p = hforest.neural.forward(f, leaves, task="regression")
    >>> loss, grad_p = hforest.layers.squared_loss(p, np.array([[1.0]]))
    >>> hforest.neural.backward(grad_p, f, leaves)
    array([[[-1.]]])
    """
    with check.together(f):
        sizes, owned = checks.forest(f, leaves, index, probabilities=False, grad_p=grad_p)
        check.array("grad_p", grad_p, f.dtype, ("n_samples", "n_classes"), sizes)
        check.finite("grad_p", grad_p)
    checks.gradients_fit(grad_p, leaves)
    grad_f = checks.gradient(f, out, {"grad_p": grad_p, "f": f, "leaves": leaves, "index": index})
    dispatch.backend(_PACKAGE, f).backward(grad_p, checks.flat(f), owned, leaves, checks.flat(grad_f))
    return grad_f
