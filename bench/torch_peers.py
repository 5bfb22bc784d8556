"""MNIST's network of Lay et al. 2018, Fig. 2c, in plain PyTorch, without hforest: the peer in
bench/torch_layers.py.

The forest is a formulation of bench/formulations.py; gradients are by autograd. Buffers
have the same names as in hforest's modules, so that both load the same state.
"""

from typing import Any

import torch
from compiled import FAST, compiled
from formulations import again, route, torch_library
from torch import Tensor, nn
from torch.nn import functional


class PlainNorm(nn.Module):
    """Running statistics as in `hforest.torch.RunningNorm`."""

    mean: Tensor
    var: Tensor
    step: Tensor

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("var", torch.ones(n_features))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """(n_samples, n_features) tensors."""
        z = (x - self.mean) / torch.sqrt(self.var + 1e-7)
        if self.training:
            with torch.no_grad():
                old = torch.clamp(self.step / (self.step + 1), max=0.99)
                mean = x.mean(dim=0)
                var = (x - mean).square().sum(dim=0) / (len(x) - 1)
                self.mean.mul_(old).add_((1 - old) * mean)
                self.var.mul_(old).add_((1 - old) * var)
                self.step.add_(1)
        return z


class PlainForest(nn.Module):
    """Hinge trees by a formulation: an order and a read of routes, and how leaf weights are added."""

    features: Tensor

    def __init__(
        self,
        thresholds: Tensor,
        features: Tensor,
        weights: Tensor,
        how: str = "index",
        order: str = "samples",
        read: str = "gather",
    ) -> None:
        super().__init__()
        self.thresholds, self.weights = nn.Parameter(thresholds.clone()), nn.Parameter(weights.clone())
        self.register_buffer("features", features.clone())
        self.form = order, read, how

    def forward(self, x: Tensor) -> Tensor:
        """(n_samples, n_features) to (n_samples, n_classes)."""
        lib, (order, read, how) = torch_library(), self.form
        with torch.no_grad():
            rows, _, near = route(lib, "tree", order, read, True)(x, self.thresholds, self.features)
        y: Tensor = again(lib, order, how)(x, self.thresholds, self.weights, self.features, rows, near)
        return y


def stepper(
    net: Any, optimizer: Any, x: Tensor, y: Tensor, compiling: tuple[bool, bool] = (False, False)
) -> Any:
    """Returns a function that takes the i-th step and returns its loss; it may be compiled."""
    forward = compiled(net, options=FAST) if compiling[0] else net
    move = compiled(optimizer.step, fullgraph=False) if compiling[1] else optimizer.step

    def step(i: int) -> float:
        loss = functional.cross_entropy(forward(x[i % len(x)]), y[i % len(y)])
        optimizer.zero_grad()
        loss.backward()
        move()
        return float(loss.detach())

    return step
