"""The surrogate: an upper bound on the loss of a split, and its subgradient (Norouzi et al. 2015,
section 4).
"""

from typing import Literal, NamedTuple

import numpy as np

from ..core import check, dispatch
from ..core.aliases import ArrayLike, FloatArray, Task
from ..core.gpu import cast
from . import checks
from .any_loss import Loss, Node, check_pair

_PACKAGE = "hforest.co2"
_FLOAT64 = np.dtype(np.float64)


class SplitGradient(NamedTuple):
    """Subgradient of the surrogate."""

    w: FloatArray
    """(n_features,), dtype of w."""
    theta0: FloatArray
    """(n_outputs,), dtype of w."""
    theta1: FloatArray
    """(n_outputs,), dtype of w."""


def _check_split(x: FloatArray, w: FloatArray, theta0: FloatArray, theta1: FloatArray) -> int:
    """Checks samples and a split; returns the number of outputs."""
    check.same_device(x=x, w=w, theta0=theta0, theta1=theta1)
    dtype = check.floating("x", x)
    sizes: check.Sizes = {}
    check.array("w", w, dtype, ("n_features",), sizes)
    check.array("theta0", theta0, dtype, ("n_outputs",), sizes)
    check.array("theta1", theta1, dtype, ("n_outputs",), sizes)
    check.array("x", x, dtype, ("n_samples", "n_features"), sizes)
    check.at_least_one(sizes, "n_features", "n_outputs")
    for name, a in (("x", x), ("w", w), ("theta0", theta0), ("theta1", theta1)):
        checks.moderate(name, a)
    return sizes["n_outputs"]


def _checked(
    x: FloatArray, y: ArrayLike, split: checks.Split, loss: str, sample_weight: ArrayLike | None
) -> tuple[checks.Split, checks.Samples]:
    """Returns the arguments of the backends after a check."""
    check.choice("loss", loss, checks.LOSSES)
    n_outputs = _check_split(x, *split)
    task: Task = "classification" if loss == "log" else "regression"
    n_classes = n_outputs if loss == "log" else None
    target, weight = checks.target_and_weight(x, y, sample_weight, task, n_classes, some_above_0=False)
    if target.n_outputs != n_outputs:
        raise ValueError(
            f"y: expected shape (n_samples, n_outputs) = ({len(x)}, {n_outputs}), got {target.n_outputs} "
            "outputs; pass one target per column of theta0"
        )
    w, theta0, theta1 = split
    samples = checks.Samples(x, target.labels, target.targets, weight)
    return (w, cast(theta0, _FLOAT64), cast(theta1, _FLOAT64)), samples


def _node(
    x: FloatArray, y: ArrayLike, split: checks.Split, loss: Loss, sample_weight: ArrayLike | None
) -> tuple[Node, FloatArray]:
    """Returns the samples with the caller's loss, and both thetas as float64."""
    check_pair(loss, "'log', 'squared' or ")
    _check_split(x, *split)
    node = Node(x, y, loss, sample_weight, some_above_0=False)
    return node, np.stack(split[1:]).astype(np.float64)


def surrogate(
    x: FloatArray,
    y: ArrayLike,
    w: FloatArray,
    theta0: FloatArray,
    theta1: FloatArray,
    *,
    loss: Literal["log", "squared"] | Loss = "log",
    sample_weight: ArrayLike | None = None,
) -> float:
    """Returns the upper bound on the empirical loss of a split (eq. 10).

    Other parameters: see `fit_stump`.

    Parameters
    ----------
    theta0, theta1 : (n_outputs,) arrays, dtype of x
        Unnormalised log-probabilities of the classes, or means of the targets, on the left side and on the
        right side, where ``w.x >= 0``.
    loss : "log" or "squared", or a tuple of two functions
        ``-theta[y] + log sum exp theta`` (eq. 3), or ``||y - theta||**2`` (eq. 4). Or (value, gradient) of a
        convex loss: functions of theta (n_outputs,) float64 and rows of y that return an array (n_samples,)
        of losses, and one (n_samples, n_outputs) of gradients with respect to theta.

    Returns
    -------
    float
        Bound, summed over samples.

    Raises
    ------
    ValueError
        Numbers beyond 1e15; functions that return other shapes or numbers beyond 1e100.

    Notes
    -----
    Eq. 10: ``sum max(-w.x + loss(theta0, y), w.x + loss(theta1, y)) - |w.x|``. It is at least the loss of the
    split for every w (eq. 5), and falls as w is scaled up (eq. 8). Products w.x are summed in the dtype of x
    in sixteen lanes, losses in float64. Cost: a read of x.

    With a pair of functions the sum runs in NumPy, on the CPU, and y is any array with a row per sample.
    Weights may all be 0.

    Examples
    --------
    >>> import numpy as np
    >>> from hforest import co2
    >>> x, y = np.array([[0.0, -1], [1, -1]]), np.array([0, 1])
    >>> w, theta0, theta1 = np.array([4.0, 2.0]), np.array([3.0, 0.0]), np.array([0.0, 3.0])
    >>> round(co2.surrogate(x, y, w, theta0, theta1), 3)
    0.097
    """
    if not isinstance(loss, str):
        node, thetas = _node(x, y, (w, theta0, theta1), loss, sample_weight)
        return node.surrogate(w, thetas, slice(None))[0]
    split, samples = _checked(x, y, (w, theta0, theta1), loss, sample_weight)
    out = dispatch.array_module(x).empty(1)
    dispatch.backend(_PACKAGE, x).surrogate(split, samples, out)
    return float(out[0])


def surrogate_grad(
    x: FloatArray,
    y: ArrayLike,
    w: FloatArray,
    theta0: FloatArray,
    theta1: FloatArray,
    *,
    loss: Literal["log", "squared"] | Loss = "log",
    sample_weight: ArrayLike | None = None,
) -> SplitGradient:
    """Returns the subgradient of `surrogate` with respect to w, theta0 and theta1.

    Parameters: see `surrogate`.

    Returns
    -------
    SplitGradient
        (w, theta0, theta1), a NamedTuple: arrays of shape and dtype of w, theta0 and theta1.

    Notes
    -----
    Let s be the sign of w.x (0 at 0). A sample whose left term is at least the right one adds ``-(1 + s) x``
    and the gradient of its loss with respect to theta0. Any other sample adds ``(1 - s) x`` and the gradient
    with respect to theta1 (Alg. 1, lines 7-13). Away from kinks this is the gradient. Terms are summed in the
    dtype of x over 1024 samples, then in float64. Cost: a read of x.

    Examples
    --------
    >>> import numpy as np
    >>> from hforest import co2
    >>> x, y = np.array([[0.0, -1], [1, -1]]), np.array([0, 1])
    >>> theta = np.array([0.5, 0.0]), np.array([0.0, 0.5])
    >>> co2.surrogate_grad(x, y, np.array([0.1, 0.05]), *theta).w
    array([-2.,  0.])
    """
    if not isinstance(loss, str):
        node, thetas = _node(x, y, (w, theta0, theta1), loss, sample_weight)
        _, sign = node.surrogate(w, thetas, slice(None))
        slope, sums, _ = node.slopes(w, thetas, sign, slice(None))
        return SplitGradient(slope, *sums.astype(x.dtype))
    split, samples = _checked(x, y, (w, theta0, theta1), loss, sample_weight)
    xp = dispatch.array_module(x)
    grads = [xp.empty(a.shape) for a in split]
    dispatch.backend(_PACKAGE, x).surrogate_grad(split, samples, grads)
    return SplitGradient(*(cast(a, x.dtype) for a in grads))
