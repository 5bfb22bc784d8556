"""Hinge trees and ferns with an inner product at each vertex: operators, and a module (Lay et al. 2018,
Fig. 2).
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .. import hinge
from .library import (
    LIBRARY,
    check,
    check_dense,
    check_route,
    define,
    full_precision,
    no_second_derivative,
    same_dtype,
)
from .modules import check_choices, numpy_dtype, seed
from .operators import Aggregate, Kind, no_route

_FORWARD: dict[str, Any] = {"tree": hinge.tree_linear_forward, "fern": hinge.fern_linear_forward}
_BACKWARD: dict[str, Any] = {"tree": hinge.tree_linear_backward, "fern": hinge.fern_linear_backward}


def _forward_kernel(kind: Kind) -> Any:
    forward = _FORWARD[kind]

    def kernel(
        x: Any,
        thresholds: Any,
        projections: Any,
        weights: Any,
        aggregate: Aggregate = None,
        route: bool = True,
    ) -> tuple[Any, ...]:
        if not route:
            return forward(x, thresholds, projections, weights, aggregate=aggregate), *no_route(x)
        y, found = forward(x, thresholds, projections, weights, aggregate=aggregate, return_route=True)
        return y, *found

    return kernel


def _forward_fake(
    x: Tensor,
    thresholds: Tensor,
    projections: Tensor,
    weights: Tensor,
    aggregate: Any = None,
    route: bool = True,
) -> tuple[Tensor, ...]:
    n, n_trees, outputs = x.shape[0], weights.shape[0], weights.shape[2:]
    y = x.new_empty((n, *outputs) if aggregate else (n, n_trees, *outputs))
    shape = (n, n_trees) if route else (0, 0)
    return y, x.new_empty(shape, dtype=torch.int32), x.new_empty(shape), x.new_empty(shape, dtype=torch.int32)


def _backward_kernel(
    grad_y: Any, leaf: Any, margin: Any, vertex: Any, x: Any, projections: Any, weights: Any,
    kind: Kind, aggregate: Aggregate = None,
) -> tuple[Any, ...]:  # fmt: skip
    return tuple(_BACKWARD[kind](grad_y, leaf, margin, vertex, x, projections, weights, aggregate=aggregate))


def _backward_fake(
    grad_y: Tensor, leaf: Tensor, margin: Tensor, vertex: Tensor, x: Tensor, projections: Tensor,
    weights: Tensor, kind: str, aggregate: Any = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    shapes = (x.shape, projections.shape[:2], projections.shape, weights.shape)
    return tuple(x.new_empty(shape) for shape in shapes)


_SCHEMA = (
    "(Tensor x, Tensor thresholds, Tensor projections, Tensor weights, str? aggregate=None, bool route=True) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)
_OPERATORS = {
    "tree": define("hinge_tree_linear", _SCHEMA, _forward_kernel("tree"), _forward_fake),
    "fern": define("hinge_fern_linear", _SCHEMA, _forward_kernel("fern"), _forward_fake),
}
_backward_operator = define(
    "hinge_linear_backward",
    "(Tensor grad_y, Tensor leaf, Tensor margin, Tensor vertex, Tensor x, Tensor projections, "
    "Tensor weights, str kind, str? aggregate=None) -> (Tensor, Tensor, Tensor, Tensor)",
    _backward_kernel,
    _backward_fake,
)


def _register(kind: Kind) -> None:
    def setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, _, projections, weights, ctx.aggregate, ctx.route = inputs
        ctx.save_for_backward(*output[1:], x, projections, weights)

    def backward(ctx: Any, grad_y: Tensor, *_: Any) -> tuple[Any, ...]:
        check_route(ctx.route, f"hinge_{kind}_linear")
        return *_backward_operator(grad_y, *ctx.saved_tensors, kind, ctx.aggregate), None, None

    torch.library.register_autograd(
        f"hforest::hinge_{kind}_linear", backward, setup_context=setup, lib=LIBRARY
    )


for _kind in ("tree", "fern"):
    _register(_kind)
torch.library.register_autograd("hforest::hinge_linear_backward", no_second_derivative, lib=LIBRARY)


def _apply(
    kind: Kind, x: Tensor, thresholds: Tensor, projections: Tensor, weights: Tensor, aggregate: Aggregate
) -> Tensor:
    tensors = {"x": x, "thresholds": thresholds, "projections": projections, "weights": weights}
    check(**tensors)
    check_dense(**tensors)
    given = full_precision(*tensors.values())
    same_dtype("x", given[0], "thresholds", given[1])
    learn = torch.is_grad_enabled() and any(t.requires_grad for t in given)
    y: Tensor = _OPERATORS[kind](*given, aggregate, learn)[0]
    return y


def hinge_tree_linear(
    x: Tensor, thresholds: Tensor, projections: Tensor, weights: Tensor, *, aggregate: Aggregate = "sum"
) -> Tensor:
    """Returns outputs of hinge trees that compare inner products, with gradients (Lay et al. 2018, Fig. 2,
    eq. 9-12).

    Parameters
    ----------
    x : (n_samples, n_features) tensor of float32 or float64
        Finite. Zero samples are legal.
    thresholds : (n_trees, 2**depth - 1) tensor, dtype of x
        In the unit of the inner products; vertices in heap order.
    projections : (n_trees, 2**depth - 1, n_features) tensor, dtype of x
        The vector of each vertex: a sample goes right if its inner product with x is above the threshold.
    weights : (n_trees, 2**depth, *outputs) tensor, dtype of x
        Leaf weights of any trailing shape.
    aggregate : "sum", "mean" or None
        Outputs of the trees are added, averaged, or kept apart.

    Returns
    -------
    y : (n_samples, *outputs) tensor, or (n_samples, n_trees, *outputs) without `aggregate`

    Raises
    ------
    TypeError, ValueError
        As `hforest.hinge.tree_linear_forward`, whose messages these are; in the backward pass as
        `tree_linear_backward`. Tensors on different devices; half types outside `torch.autocast`.
    RuntimeError
        A second derivative.

    Notes
    -----
    `nn.Linear` below `hinge_tree`, one output a vertex; here only the vertices on a sample's path are
    computed. Bits as `hforest.hinge.tree_linear_forward` and `tree_linear_backward`.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> x = torch.tensor([[1.0, 2.0]])
    >>> p = torch.tensor([[[1.0, 1.0]]]); t = torch.tensor([[2.5]]); w = torch.tensor([[3.0, 4.0]])
    >>> hforest.torch.hinge_tree_linear(x, t, p, w).tolist()
    [2.0]
    """
    return _apply("tree", x, thresholds, projections, weights, aggregate)


def hinge_fern_linear(
    x: Tensor, thresholds: Tensor, projections: Tensor, weights: Tensor, *, aggregate: Aggregate = "sum"
) -> Tensor:
    """Returns outputs of hinge ferns whose decisions compare inner products, with gradients (Lay et al. 2018,
    eq. 9-12).

    Parameters
    ----------
    x : (n_samples, n_features) tensor of float32 or float64
        Finite. Zero samples are legal.
    thresholds : (n_ferns, depth) tensor, dtype of x
        In the unit of the inner products.
    projections : (n_ferns, depth, n_features) tensor, dtype of x
        The vector of each decision.
    weights : (n_ferns, 2**depth, *outputs) tensor, dtype of x
        Leaf weights of any trailing shape.
    aggregate : "sum", "mean" or None
        Outputs of the ferns are added, averaged, or kept apart.

    Returns
    -------
    y : (n_samples, *outputs) tensor, or (n_samples, n_ferns, *outputs) without `aggregate`

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As `hinge_tree_linear`.

    Notes
    -----
    As for `hinge_tree_linear`, with `hforest.hinge.fern_linear_forward` and `fern_linear_backward`.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> x = torch.tensor([[1.0, 2.0]])
    >>> p = torch.tensor([[[1.0, 1.0]]]); t = torch.tensor([[2.5]]); w = torch.tensor([[3.0, 4.0]])
    >>> hforest.torch.hinge_fern_linear(x, t, p, w).tolist()
    [2.0]
    """
    return _apply("fern", x, thresholds, projections, weights, aggregate)


class LinearHingeForest(nn.Module):
    """A hinge forest whose vertices have inner products of their own, which are learned (Lay et al. 2018,
    Fig. 2).

    Parameters
    ----------
    in_features : int
        Columns of the input (n, in_features).
    n_trees, depth : int
        At least 1; depth at most 30.
    outputs : int or sequence of int
        Trailing shape of the leaf weights.
    kind : "tree" or "fern"
    aggregate : "sum", "mean" or None
        Outputs of the trees are added, averaged, or kept apart.
    scale : float
        Standard deviation of the weights at the start; the paper's 0.01.
    generator : torch.Generator, optional
        Where random numbers come from; PyTorch's own by default.
    device : torch.device, optional
    dtype : torch.float32 or torch.float64, optional
        PyTorch's default dtype by default.

    Attributes
    ----------
    thresholds : (n_trees, n_vertices) Parameter
        At the start U(-3, 3).
    projections : (n_trees, n_vertices, in_features) Parameter
        At the start N(0, 1 / in_features): inner products with columns of deviation 1 have about deviation 1.
    weights : (n_trees, 2**depth, *outputs) Parameter

    Raises
    ------
    TypeError, ValueError
        As `hforest.hinge.tree_init`.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> forest = hforest.torch.LinearHingeForest(6, n_trees=20, depth=5, outputs=10)
    >>> forest(torch.randn(32, 6)).shape
    torch.Size([32, 10])
    """

    thresholds: nn.Parameter
    projections: nn.Parameter
    weights: nn.Parameter

    def __init__(
        self,
        in_features: int,
        n_trees: int,
        depth: int,
        outputs: int | Sequence[int] = (),
        *,
        kind: Kind = "tree",
        aggregate: Aggregate = "sum",
        scale: float = 0.01,
        generator: torch.Generator | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_choices(kind, aggregate)
        init = hinge.tree_init if kind == "tree" else hinge.fern_init
        real = numpy_dtype(dtype)
        t, _, w = init(n_trees, depth, in_features, outputs, scale=scale, dtype=real, rng=seed(generator))
        self.in_features, self.kind, self.aggregate = int(in_features), kind, aggregate
        device = torch.get_default_device() if device is None else device
        self.thresholds = nn.Parameter(torch.from_numpy(t).to(device))
        self.weights = nn.Parameter(torch.from_numpy(w).to(device))
        start = torch.randn((*t.shape, self.in_features), generator=generator, dtype=self.thresholds.dtype)
        self.projections = nn.Parameter((start / math.sqrt(self.in_features)).to(device))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the outputs, (n, *outputs), or (n, n_trees, *outputs) without `aggregate`."""
        apply = hinge_tree_linear if self.kind == "tree" else hinge_fern_linear
        return apply(x, self.thresholds, self.projections, self.weights, aggregate=self.aggregate)

    def extra_repr(self) -> str:
        """Returns what `repr` shows between the parentheses."""
        n_trees, n_leaves = self.weights.shape[:2]
        return (
            f"{self.in_features}, n_trees={n_trees}, depth={n_leaves.bit_length() - 1}, "
            f"outputs={tuple(self.weights.shape[2:])}, kind={self.kind!r}, aggregate={self.aggregate!r}"
        )
