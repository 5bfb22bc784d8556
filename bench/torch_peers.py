"""MNIST's network of Lay et al. 2018, Fig. 2c, in plain PyTorch, without hforest: the peer in
bench/torch_layers.py.

The forest is evaluated level by level for all samples and trees at once; gradients are by autograd. Buffers
have the same names as in hforest's modules, so that both load the same state.
"""

from typing import Any

import torch
from compiled import compiled
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
    """Hinge trees; `look_up` is how leaf weights are read and added: "index", "embedding" or "bag"."""

    features: Tensor
    row: Tensor

    def __init__(self, thresholds: Tensor, features: Tensor, weights: Tensor, look_up: str) -> None:
        super().__init__()
        self.thresholds, self.weights = nn.Parameter(thresholds.clone()), nn.Parameter(weights.clone())
        self.register_buffer("features", features.clone())
        self.register_buffer("row", torch.arange(len(thresholds), dtype=torch.int32), persistent=False)
        self.depth, self.look_up = (thresholds.shape[1] + 1).bit_length() - 1, look_up

    def _route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        n_vertices, columns, t = (
            self.thresholds.shape[1],
            self.features.reshape(-1),
            self.thresholds.reshape(-1),
        )
        v = torch.zeros((len(x), len(self.row)), dtype=torch.int32)
        lowest, nearest = torch.full(v.shape, torch.inf), v
        for _ in range(self.depth):
            i = self.row * n_vertices + v
            r = x.gather(1, columns[i].long()) - t[i]
            closer = r.abs() < lowest
            lowest, nearest = torch.where(closer, r.abs(), lowest), torch.where(closer, i, nearest)
            v = 2 * v + 1 + (r > 0).int()
        return v - n_vertices + self.row * (n_vertices + 1), nearest

    def forward(self, x: Tensor) -> Tensor:
        """(n_samples, n_features) to (n_samples, n_classes)."""
        with torch.no_grad():
            leaf, nearest = self._route(x)
            column = self.features.reshape(-1)[nearest].long()
        margin = (x.gather(1, column) - self.thresholds.reshape(-1)[nearest]).abs()
        table = self.weights.reshape(-1, self.weights.shape[2])
        if self.look_up == "bag":
            return functional.embedding_bag(leaf, table, mode="sum", per_sample_weights=margin)
        rows = table[leaf] if self.look_up == "index" else functional.embedding(leaf, table)
        return (rows * margin.unsqueeze(-1)).sum(dim=1)


def stepper(
    net: Any, optimizer: Any, x: Tensor, y: Tensor, compiling: tuple[bool, bool] = (False, False)
) -> Any:
    """Returns a function that takes the i-th step and returns its loss; it may be compiled."""
    forward = compiled(net) if compiling[0] else net
    move = compiled(optimizer.step, fullgraph=False) if compiling[1] else optimizer.step

    def step(i: int) -> float:
        loss = functional.cross_entropy(forward(x[i % len(x)]), y[i % len(y)])
        optimizer.zero_grad()
        loss.backward()
        move()
        return float(loss.detach())

    return step
