"""Neural decision forests on tensors (Zhang 2017, section 2): class probabilities, the exact loss, and their
gradients.
"""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from .. import neural
from .library import Operator, check, full_precision, no_second_derivative, same_dtype, transformed

Task = Literal["classification", "regression"]
Loss = Literal["forest", "tree"]

_MU_BYTES = 2**26
"""Bytes for the probabilities of leaves while a gradient with respect to the leaves is added up."""


def _forward_kernel(f: Any, leaves: Any, index: Any = None, task: Task = "classification") -> Any:
    return neural.forward(f, leaves, index=index, task=task)


def _backward_kernel(grad_p: Any, f: Any, leaves: Any, index: Any = None) -> Any:
    return neural.backward(grad_p, f, leaves, index=index)


def _leaves_kernel(grad_p: Any, f: Any, index: Any = None) -> Any:
    # The sum over samples of mu^T grad_p, some samples at a time, in float64 between them.
    n_trees, n_vertices = (f if index is None else index).shape[-2:]
    step = max(1, _MU_BYTES // (n_trees * (n_vertices + 1) * f.itemsize))
    total: Any = 0.0
    for start in range(0, max(1, len(f)), step):
        mu = neural.route(f[start : start + step], index=index)
        total = total + (mu.transpose(1, 2, 0) @ grad_p[start : start + step]).astype("float64")
    return (total / n_trees).astype(f.dtype)


def _leaves_fake(grad_p: Tensor, f: Tensor, index: Tensor | None = None) -> Tensor:
    n_trees, n_vertices = (f if index is None else index).shape[-2:]
    return f.new_empty((n_trees, n_vertices + 1, grad_p.shape[1]))


def _loss_kernel(f: Any, leaves: Any, y: Any, index: Any = None, loss: Loss = "forest") -> tuple[Any, Any]:
    value, grad_f = neural.loss_backward(f, leaves, y, index=index, loss=loss)
    return np.array(value, f.dtype), grad_f


def _scale_kernel(grad_loss: Any, grad_f: Any) -> Any:
    return grad_f * grad_loss


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])


def _backward(ctx: Any, grad_p: Tensor) -> tuple[Any, ...]:
    f, leaves, index = ctx.saved_tensors
    by_f, by_leaves = ctx.needs_input_grad[:2]
    return (
        _backward_operator(grad_p, f, leaves, index) if by_f else None,
        _leaves_operator(grad_p, f, index) if by_leaves else None,
        None,
        None,
    )


def _loss_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])


def _loss_backward(ctx: Any, grad_loss: Tensor, *_: Any) -> tuple[Any, ...]:
    if torch.is_grad_enabled() and not transformed():
        no_second_derivative(ctx)
    return _scale_operator(grad_loss, *ctx.saved_tensors), None, None, None, None


_forward_operator = Operator(
    "neural_forest",
    '(Tensor f, Tensor leaves, Tensor? index=None, str task="classification") -> Tensor',
    _forward_kernel,
    lambda f, leaves, index=None, task="": f.new_empty((f.shape[0], leaves.shape[2])),
    _setup,
    _backward,
    of_samples=1,
)
_backward_operator = Operator(
    "neural_backward",
    "(Tensor grad_p, Tensor f, Tensor leaves, Tensor? index=None) -> Tensor",
    _backward_kernel,
    lambda grad_p, f, leaves, index=None: f.new_empty(f.shape),
    of_samples=2,
)
_leaves_operator = Operator(
    "neural_backward_leaves",
    "(Tensor grad_p, Tensor f, Tensor? index=None) -> Tensor",
    _leaves_kernel,
    _leaves_fake,
)
_loss_operator = Operator(
    "neural_loss",
    '(Tensor f, Tensor leaves, Tensor y, Tensor? index=None, str loss="forest") -> (Tensor, Tensor)',
    _loss_kernel,
    lambda f, leaves, y, index=None, loss="": (f.new_empty(()), f.new_empty(f.shape)),
    _loss_setup,
    _loss_backward,
)
_scale_operator = Operator(
    "neural_loss_backward",
    "(Tensor grad_loss, Tensor grad_f) -> Tensor",
    _scale_kernel,
    lambda grad_loss, grad_f: grad_f.new_empty(grad_f.shape),
)


def neural_forest(
    f: Tensor,
    leaves: Tensor,
    *,
    index: Tensor | None = None,
    task: Task = "classification",
) -> Tensor:
    """Returns class probabilities of a neural decision forest, with gradients (Zhang 2017, section 2).

    Parameters: see `hforest.neural.forward`.

    Returns
    -------
    p : (n_samples, n_classes) tensor
        Mean over the trees. Dtype of f (float32 for half types inside `torch.autocast`).

    Notes
    -----
    p and the gradients are those of `hforest.neural.forward` and `backward`, bit for bit. For training on
    labels see `neural_loss`, which is exact even if p underflows. Zhang 2017 fits the leaves by a closed-form
    update (`hforest.neural.update_leaves`, `NeuralForest.update_leaves`). If the leaves require a gradient,
    it is

        dL/dleaves[m, l, k] = sum over samples of mu[n, m, l] dL/dp[n, k] / n_trees,

    where at most 64 MiB of mu are in memory at a time (or those of one sample). To keep leaves probabilities,
    compute them as the softmax of trained parameters.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> f = torch.tensor([[[3.0]]]).log().requires_grad_()
    >>> leaves = torch.tensor([[[0.9, 0.1], [0.5, 0.5]]])
    >>> p = hforest.torch.neural_forest(f, leaves)
    >>> p[0, 0].backward()
    >>> [round(value, 6) for value in p[0].tolist()], round(f.grad.item(), 6)
    ([0.8, 0.2], 0.075)
    """
    check(f=f, leaves=leaves, index=index)
    f, leaves = full_precision(f, leaves)
    same_dtype("f", f, "leaves", leaves)
    return _forward_operator(f, leaves, index, task)


def neural_loss(
    f: Tensor,
    leaves: Tensor,
    y: Tensor,
    *,
    index: Tensor | None = None,
    loss: Loss = "forest",
) -> Tensor:
    """Returns the negative log-likelihood of labels, with an exact gradient (Zhang 2017, section 2).

    Parameters: see `hforest.neural.loss_backward`.

    Returns
    -------
    loss : tensor without axes
        Mean over the samples, in nats; 0 without samples. Infinite if a sample's class has probability 0 in
        every leaf.

    Notes
    -----
    Leaves get no gradient. The loss is that of `hforest.neural.loss_backward`, rounded to the dtype of f. The
    gradient is bit-identical to its gradient times the incoming gradient. One pass computes both. Samples
    whose probability underflows are computed with float64 logarithms, so saturated decisions have exact
    gradients, unlike ``neural_forest(f, leaves).log()``.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> f = torch.tensor([[[3.0]]]).log().requires_grad_()
    >>> leaves = torch.tensor([[[0.9, 0.1], [0.5, 0.5]]])
    >>> loss = hforest.torch.neural_loss(f, leaves, torch.tensor([0]))
    >>> loss.backward()
    >>> round(loss.item(), 6), round(f.grad.item(), 6)
    (0.223144, -0.09375)
    """
    check(f=f, leaves=leaves, y=y, index=index)
    if leaves.requires_grad:
        raise ValueError(
            "leaves: expected leaves without a gradient, got requires_grad=True; fit them with "
            "hforest.neural.update_leaves, or learn them by neural_forest and your own loss"
        )
    f, leaves = full_precision(f, leaves)
    same_dtype("f", f, "leaves", leaves)
    return _loss_operator(f, leaves, y, index, loss)
