"""Networks for tables, in plain PyTorch and with hinge layers: the methods of bench/layer_tables.py.

RealMLP (Holzmüller, Grinsztajn, Steinwart, "Better by default", 2024) with these parts of RealMLP-TD: robust
scaling, smooth clipping, one-hot categories, a scaling layer, three layers of 256 units in the neural tangent
parametrisation, SELU or Mish with a learned share of nonlinearity, an output layer that starts at 0, label
smoothing, dropout, the schedule coslog4, Adam with beta2 0.95, and rates by kind of parameter. It has no
numerical embeddings, no weight decay and no data-driven biases.

NODE (Popov, Morozov, Babenko, "Neural oblivious decision ensembles", 2020): oblivious trees whose features
are chosen by entmax with alpha = 1.5 and whose decisions are entmax of two numbers, layers that read all
earlier layers, thresholds and temperatures that start from samples. Here it has 64 trees of depth 6.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import hforest
import hforest.torch as ht

HIDDEN, UNITS, N_TREES, DEPTH = 256, 64, 100, 6
NODE_TREES = 64


class Network(NamedTuple):
    """A network with its groups of parameters."""

    module: Any
    groups: list[dict[str, Any]]
    """`params` and `factor` of the learning rate."""
    beta2: float = 0.999
    smoothing: float = 0.0
    """Label smoothing."""
    schedule: Callable[[float], float] = lambda t: max(0.01, 0.5 * (1 + math.cos(math.pi * t)))
    """Factor of the rate at the share t of all steps."""


def plain(module: nn.Module) -> Network:
    """Returns a network whose parameters have the same rate."""
    return Network(module, [{"params": list(module.parameters()), "factor": 1.0}])


# ------------------------------------------------------------------------------------------------- MLPs


def mlp(x: Tensor, y: Tensor, n_outputs: int, norm: bool) -> Network:
    """Two hidden layers with ReLU, with or without layer normalisation."""
    layers: list[nn.Module] = []
    sizes = (x.shape[1], HIDDEN, HIDDEN)
    for n_in, n_out in itertools.pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), *([nn.LayerNorm(n_out)] if norm else []), nn.ReLU()]
    return plain(nn.Sequential(*layers, nn.Linear(HIDDEN, n_outputs)))


class Scale(nn.Module):
    """Multiplies each column by a learned number."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(n))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class TangentLinear(nn.Module):
    """A linear map in the neural tangent parametrisation: weights N(0, 1), divided by sqrt(n_in)."""

    def __init__(self, n_in: int, n_out: int, start: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(start * torch.randn(n_in, n_out))
        self.bias = nn.Parameter(start * torch.randn(n_out))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight / math.sqrt(len(self.weight)) + self.bias


class Activation(nn.Module):
    """x + alpha (act(x) - x) with a learned alpha for each unit."""

    def __init__(self, n: int, act: nn.Module) -> None:
        super().__init__()
        self.alpha, self.act = nn.Parameter(torch.ones(n)), act

    def forward(self, x: Tensor) -> Tensor:
        return x + self.alpha * (self.act(x) - x)


def realmlp(x: Tensor, y: Tensor, n_outputs: int, dropout: float) -> Network:
    """RealMLP with the parts that the head of this file names."""
    classes = not y.is_floating_point()
    layers: list[nn.Module] = [Scale(x.shape[1])]
    sizes = (x.shape[1], HIDDEN, HIDDEN, HIDDEN)
    for n_in, n_out in itertools.pairwise(sizes):
        act = Activation(n_out, nn.SELU() if classes else nn.Mish())
        layers += [TangentLinear(n_in, n_out), act, nn.Dropout(dropout)]
    module = nn.Sequential(*layers, TangentLinear(HIDDEN, n_outputs, 0.0))
    factors = {"scale": 6.0, "weight": 1.0, "bias": 0.1, "alpha": 0.1}
    groups: list[dict[str, Any]] = [
        {"params": [p for name, p in module.named_parameters() if name.endswith(kind)], "factor": factor}
        for kind, factor in factors.items()
    ]
    return Network(
        module, groups, 0.95, 0.1 if classes else 0.0,
        lambda t: 0.5 * (1 - math.cos(2 * math.pi * math.log2(1 + 15 * t))),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------- NODE


class Entmax15(torch.autograd.Function):
    """entmax with alpha = 1.5 over the first axis (Peters, Niculae, Martins 2019, Alg. 2)."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        z = (z - z.amax(dim=0)) / 2
        ordered = z.sort(dim=0, descending=True).values
        k = torch.arange(1, len(z) + 1, dtype=z.dtype).reshape(-1, *[1] * (z.dim() - 1))
        mean, square = ordered.cumsum(dim=0) / k, ordered.square().cumsum(dim=0) / k
        tau = mean - ((1 - k * (square - mean**2)) / k).clamp(min=0).sqrt()
        last = (tau <= ordered).sum(dim=0, keepdim=True) - 1
        p: Tensor = (z - tau.gather(0, last)).clamp(min=0).square()
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        root = ctx.saved_tensors[0].sqrt()
        return root * (grad - (grad * root).sum(dim=0) / root.sum(dim=0))


def entmoid15(t: Tensor) -> Tensor:
    """The first number of entmax of (t, 0) with alpha = 1.5: with a = t / 2, ((a + sqrt(2 - a^2)) / 2)^2."""
    a = (t / 2).clamp(-1, 1)
    return ((a + (2 - a.square()).sqrt()) / 2).square()


class Oblivious(nn.Module):
    """A layer of oblivious trees (Popov et al. 2020, section 3)."""

    def __init__(self, x: Tensor, n_trees: int, depth: int, n_outputs: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.rand(x.shape[1], depth * n_trees))
        self.response = nn.Parameter(torch.randn(2**depth, n_trees, n_outputs))
        self.depth = depth
        with torch.no_grad():  # each threshold is the value of a random sample, all samples are in (-1, 1)
            f = x @ Entmax15.apply(self.logits)
            b = f.gather(0, torch.randint(len(x), (1, f.shape[1])))[0]
            self.thresholds = nn.Parameter(b)
            self.log_tau = nn.Parameter((f - b).abs().amax(dim=0).clamp(min=1e-6).log())

    def shares(self, x: Tensor) -> Tensor:
        """(n, n_columns) to (n, 2**depth, n_trees), the share of each leaf."""
        f = x @ Entmax15.apply(self.logits)
        c = entmoid15((f - self.thresholds) * torch.exp(-self.log_tau)).reshape(len(x), self.depth, -1)
        both = torch.stack([c, 1 - c], dim=1)
        share = both[:, :, 0]
        for level in range(1, self.depth):
            share = (both[:, :, None, level] * share.unsqueeze(1)).flatten(1, 2)
        return share

    def forward(self, x: Tensor) -> Tensor:
        """(n, n_columns) to (n, n_trees * n_outputs), the outputs of each tree."""
        return torch.einsum("nlt,lto->nto", self.shares(x), self.response).flatten(1)

    def total(self, x: Tensor) -> Tensor:
        """(n, n_columns) to (n, n_outputs), the sum of all trees."""
        return self.shares(x).flatten(1) @ self.response.flatten(0, 1)


class Node(nn.Module):
    """The mean output of all trees; a layer reads the columns and the outputs of earlier layers."""

    def __init__(self, x: Tensor, n_outputs: int, n_layers: int) -> None:
        super().__init__()
        self.layers, self.n_outputs = nn.ModuleList(), n_outputs
        for i in range(n_layers):
            self.layers.append(Oblivious(x, NODE_TREES // n_layers, DEPTH, n_outputs))
            if i < n_layers - 1:
                with torch.no_grad():
                    x = torch.cat([x, self.layers[-1](x)], dim=1)

    def forward(self, x: Tensor) -> Tensor:
        total: Any = 0.0
        for layer in list(self.layers)[:-1]:
            outputs = layer(x)
            total = total + outputs.unflatten(1, (-1, self.n_outputs)).sum(dim=1)
            x = torch.cat([x, outputs], dim=1)
        total = total + self.layers[-1].total(x)
        return total / NODE_TREES


def node(x: Tensor, y: Tensor, n_outputs: int, n_layers: int) -> Network:
    """NODE with one or two layers."""
    return plain(Node(x[:2000], n_outputs, n_layers))


# ------------------------------------------------------------------------------------------------- hinge


class Beside(nn.Module):
    """The columns, and a linear map of them."""

    def __init__(self, n_columns: int) -> None:
        super().__init__()
        self.linear = nn.Linear(n_columns, UNITS)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.linear(x)], dim=1)


def hinge(x: Tensor, y: Tensor, n_outputs: int, columns: bool) -> Network:
    """A hinge forest after a linear map and a normalisation; it may read the columns, too."""
    n = UNITS + x.shape[1] if columns else UNITS
    first = Beside(x.shape[1]) if columns else nn.Linear(x.shape[1], UNITS)
    return plain(nn.Sequential(first, ht.RunningNorm(n), ht.HingeForest(n, N_TREES, DEPTH, n_outputs)))


class Grown(nn.Module):
    """A hinge forest that starts as a grown forest of the columns, with its intercept."""

    def __init__(self, x: Tensor, y: Tensor, n_outputs: int, depth: int) -> None:
        super().__init__()
        task: Any = "regression" if y.is_floating_point() else "classification"
        rng = np.random.default_rng(int(torch.randint(2**31, ())))
        grown = hforest.grow(x.numpy(), y.numpy(), N_TREES, task=task, max_depth=depth, rng=rng)
        self.forest = ht.HingeForest(x.shape[1], N_TREES, depth, n_outputs)
        intercept = self.forest.from_forest(x, y, grown, task=task)
        factor = 1.0 if task == "regression" else 4.0  # of shares, for a softmax
        with torch.no_grad():
            self.forest.weights *= factor
        self.intercept = nn.Parameter(factor * intercept)

    def forward(self, x: Tensor) -> Tensor:
        return self.forest(x) + self.intercept


def grown(x: Tensor, y: Tensor, n_outputs: int, depth: int) -> Network:
    """A hinge forest of the columns that starts as a grown forest."""
    return plain(Grown(x, y, n_outputs, depth))


class Method(NamedTuple):
    """How to make a network, and the settings among which validation chooses."""

    make: Callable[..., Network]
    rates: tuple[float, ...]
    form: str
    """Name of the last argument of `make`."""
    forms: tuple[Any, ...]
    scale: str = "robust"
    """How columns are scaled: "robust" or "quantiles"."""


METHODS = {
    "MLP": Method(mlp, (0.001, 0.003, 0.01), "norm", (False, True)),
    "RealMLP": Method(realmlp, (0.02, 0.04, 0.08), "dropout", (0.0, 0.15)),
    "NODE": Method(node, (0.01, 0.03, 0.1), "n_layers", (1, 2), "quantiles"),
    "hinge": Method(hinge, (0.01, 0.03, 0.1), "columns", (False, True)),
    "hinge, grown start": Method(grown, (0.003, 0.01, 0.03), "depth", (6, 8)),
}


def loss_of(network: Network, scores: Tensor, y: Tensor) -> Tensor:
    """Returns the loss of a batch: cross-entropy, or the mean squared error of targets of unit deviation."""
    if y.is_floating_point():
        return functional.mse_loss(scores[:, 0], y)
    return functional.cross_entropy(scores, y, label_smoothing=network.smoothing)
