"""Normalisation by running statistics as a module (Lay et al. 2018, section 4)."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.fx import Proxy
from torch.types import Device

from .. import layers
from . import cuda
from .library import (
    LIBRARY,
    Layer,
    Operator,
    array,
    check,
    check_dim,
    eager,
    feature_axis,
    in_graph,
    same_dtype,
    transformed,
)
from .modules import numpy_dtype


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[2])


def _backward(ctx: Any, grad_z: Tensor) -> tuple[Any, ...]:
    return _backward_operator(grad_z, *ctx.saved_tensors), None, None


# PyTorch's square root is not rounded correctly on every processor, so what it divides by comes from NumPy.
_operator = Operator(
    "normalize",
    "(Tensor x, Tensor mean, Tensor var) -> Tensor",
    lambda x, mean, var: layers.normalize(x, mean, var),
    lambda x, mean, var: x.new_empty(x.shape),
    _setup,
    _backward,
    of_samples=1,
)
_backward_operator = Operator(
    "normalize_backward",
    "(Tensor grad_z, Tensor var) -> Tensor",
    lambda grad_z, var: layers.normalize_backward(grad_z, var),
    lambda grad_z, var: grad_z.new_empty(grad_z.shape),
    of_samples=1,
)


def _update(x: Tensor, mean: Tensor, var: Tensor, step: Tensor) -> None:
    means, variances = (cuda.host_array(a, written=True) for a in (mean, var))
    layers.normalize_update(array("x", x), means, variances, int(step))


LIBRARY.define("normalize_update(Tensor x, Tensor(a!) mean, Tensor(b!) var, Tensor step) -> ()")
LIBRARY.impl("normalize_update", _update, "CPU")
LIBRARY.impl(
    "normalize_update",
    lambda x, mean, var, step: cuda.call(layers.normalize_update, (x, mean, var, int(step))),
    "CUDA",
)
torch.library.register_fake("hforest::normalize_update", lambda x, mean, var, step: None, lib=LIBRARY)
_update_operator = torch.ops.hforest.normalize_update.default


class RunningNorm(Layer):
    """Normalisation of features by their running mean and standard deviation (Lay et al. 2018, section 4),
    without a learned scale or shift.

    Other parameters: see `HingeForest`.

    Parameters
    ----------
    n_features : int
        Number of features.
    dim : 1 or -1
        Axis of the features in the input.

    Attributes
    ----------
    mean, var : (n_features,) buffers
        Running mean and variance, initially 0 and 1.
    step : buffer of int64 without axes
        Number of updates.

    Notes
    -----
    z = (x - mean) / sqrt(var + 1e-7), in training and in evaluation. In training each forward pass then
    updates the statistics by `hforest.layers.normalize_update`: mean <- a mean + (1 - a) batch mean with a =
    min(step / (step + 1), 0.99). So the first batch is normalised with mean 0 and variance 1. Statistics are
    constants in the gradient. Results are bit-identical to `hforest.layers.normalize` and
    `normalize_backward`.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> norm = hforest.torch.RunningNorm(1)
    >>> norm(torch.tensor([[1.0], [3.0]])).tolist(), norm.mean.tolist(), norm.var.tolist()
    ([[1.0], [3.0]], [2.0], [2.0])
    """

    mean: Tensor
    var: Tensor
    step: Tensor

    dim = 1

    def __init__(
        self, n_features: int, *, dim: int = 1, device: Device = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        numpy_dtype(dtype)
        self.n_features, self.dim = n_features, check_dim(dim)
        for name in ("mean", "var"):
            self.register_buffer(name, torch.empty(n_features, device=device, dtype=dtype))
        self.register_buffer("step", torch.empty((), device=device, dtype=torch.int64))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the statistics to those of a new layer: mean 0, variance 1, no update."""
        self.mean.zero_()
        self.var.fill_(1)
        self.step.zero_()

    def extra_repr(self) -> str:
        return f"{self.n_features}" + (", dim=-1" if self.dim == -1 else "")

    def forward(self, x: Tensor) -> Tensor:
        """Returns the normalised input; in training it updates the statistics afterwards.

        Parameters
        ----------
        x : (n, n_features) or (n, n_features, *spatial) tensor, or one sample (n_features,)
            With ``dim=-1`` (*batch, n_features).

        Returns
        -------
        z : tensor of the shape of x
        """
        if isinstance(x, Proxy):
            return in_graph(self, x)
        check(mean=self.mean, x=x)
        if self.training and transformed():
            raise RuntimeError(
                "RunningNorm: expected evaluation mode inside a transform of torch.func, got training, which "
                "changes the statistics; call eval() on the module"
            )
        axis = feature_axis(x, "n_features", self.n_features, self.dim)
        rows = x if x.dim() == 2 else x.movedim(axis, -1)
        shape = rows.shape
        if x.dim() != 2:
            rows = rows.reshape(math.prod(shape[:-1]), self.n_features)
        rows = rows.float() if rows.dtype in (torch.float16, torch.bfloat16) else rows
        same_dtype("x", rows, "mean", self.mean)
        # The backward pass needs the variance that the forward pass had.
        var = self.var.clone() if self.training else self.var
        z = _operator(rows, self.mean, var)
        if self.training:
            plain = eager(rows, self.mean, self.var, self.step)
            (_update if plain else _update_operator)(rows.detach(), self.mean, self.var, self.step)
            self.step.add_(1)
        return z if x.dim() == 2 else z.reshape(shape).movedim(-1, axis)
