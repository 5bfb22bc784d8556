"""Hinge trees and ferns on tensors (Lay et al. 2018, eq. 9-12): operators with gradients, sparse ones on
request.
"""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from .. import hinge
from . import rows
from .fused import fused
from .library import (
    LIBRARY,
    array,
    check,
    check_route,
    define,
    eager,
    full_precision,
    no_second_derivative,
    same_dtype,
)

Aggregate = Literal["sum", "mean"] | None
Kind = Literal["tree", "fern"]

_FORWARD: dict[str, Any] = {"tree": hinge.tree_forward, "fern": hinge.fern_forward}
_BACKWARD: dict[str, Any] = {"tree": hinge.tree_backward, "fern": hinge.fern_backward}


def no_route(x: Any) -> list[np.ndarray]:
    """Returns what operators return in place of a route: three arrays, as no two results may share memory."""
    return [np.empty((0, 0), dtype) for dtype in (np.int32, x.dtype, np.int32)]


def _forward_kernel(kind: Kind) -> Any:
    forward = _FORWARD[kind]

    def kernel(
        x: Any, thresholds: Any, features: Any, weights: Any, aggregate: Aggregate = None, route: bool = True
    ) -> tuple[Any, ...]:
        if not route:
            return forward(x, thresholds, features, weights, aggregate=aggregate), *no_route(x)
        y, found = forward(x, thresholds, features, weights, aggregate=aggregate, return_route=True)
        return y, *found

    return kernel


def _forward_fake(
    x: Tensor,
    thresholds: Tensor,
    features: Tensor,
    weights: Tensor,
    aggregate: Any = None,
    route: bool = True,
) -> tuple[Tensor, ...]:
    n, n_trees, outputs = x.shape[0], weights.shape[0], weights.shape[2:]
    y = x.new_empty((n, *outputs) if aggregate else (n, n_trees, *outputs))
    shape = (n, n_trees) if route else (0, 0)
    return y, features.new_empty(shape), x.new_empty(shape), features.new_empty(shape)


def _backward_kernel(
    grad_y: Any, leaf: Any, margin: Any, vertex: Any, features: Any, weights: Any, n_features: int,
    kind: Kind, aggregate: Aggregate = None,
) -> tuple[Any, ...]:  # fmt: skip
    return _BACKWARD[kind](grad_y, leaf, margin, vertex, features, weights, n_features, aggregate=aggregate)


def _backward_fake(
    grad_y: Tensor, leaf: Tensor, margin: Tensor, vertex: Tensor, features: Tensor, weights: Tensor,
    n_features: int, kind: str, aggregate: Any = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    grad_x = margin.new_empty((leaf.shape[0], n_features))
    return grad_x, margin.new_empty(features.shape), margin.new_empty(weights.shape)


_SCHEMA = (
    "(Tensor x, Tensor thresholds, Tensor features, Tensor weights, str? aggregate=None, bool route=True) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)
_OPERATORS = {
    "tree": define("hinge_tree", _SCHEMA, _forward_kernel("tree"), _forward_fake),
    "fern": define("hinge_fern", _SCHEMA, _forward_kernel("fern"), _forward_fake),
}
_backward_operator = define(
    "hinge_backward",
    "(Tensor grad_y, Tensor leaf, Tensor margin, Tensor vertex, Tensor features, Tensor weights, "
    "SymInt n_features, str kind, str? aggregate=None) -> (Tensor, Tensor, Tensor)",
    _backward_kernel,
    _backward_fake,
)


def _register(kind: Kind) -> None:
    def setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, _, features, weights, ctx.aggregate, ctx.route = inputs
        ctx.n_features = x.shape[1]
        ctx.save_for_backward(*output[1:], features, weights)

    def backward(ctx: Any, grad_y: Tensor, *_: Any) -> tuple[Any, ...]:
        check_route(ctx.route, f"hinge_{kind}")
        leaf, margin, vertex, features, weights = ctx.saved_tensors
        grad_x, grad_t, grad_w = _backward_operator(
            grad_y, leaf, margin, vertex, features, weights, ctx.n_features, kind, ctx.aggregate
        )
        return grad_x, grad_t, None, grad_w, None, None

    torch.library.register_autograd(f"hforest::hinge_{kind}", backward, setup_context=setup, lib=LIBRARY)


for _kind in ("tree", "fern"):
    _register(_kind)
torch.library.register_autograd("hforest::hinge_backward", no_second_derivative, lib=LIBRARY)


class _Hinge(torch.autograd.Function):
    """The same without the dispatcher, for plain CPU tensors; and sparse gradients of the weights."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, thresholds: Tensor, features: Tensor, weights: Tensor, kind: Kind,
        aggregate: Aggregate, sparse: bool,
    ) -> Tensor:  # fmt: skip
        y, route = rows.forward(
            kind, array("x", x), thresholds, array("features", features), weights,
            aggregate=aggregate, return_route=True,
        )  # fmt: skip
        # Saved as tensors: freed after the backward pass, seen by hooks, and a change in place is an error.
        ctx.save_for_backward(features, weights, *map(torch.from_numpy, route))
        ctx.settings = (x.shape[1], kind, aggregate, sparse)
        return torch.from_numpy(y)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Any, ...]:
        features, weights, *route = ctx.saved_tensors
        n_features, kind, aggregate, sparse = ctx.settings
        if torch.is_grad_enabled():  # create_graph=True: the operator refuses to be differentiated
            if sparse:
                no_second_derivative(ctx)
            grad_x, grad_t, grad_w = _backward_operator(
                grad_y, *route, features, weights, n_features, kind, aggregate
            )
            return grad_x, grad_t, None, grad_w, None, None, None
        f, w = array("features", features), array("weights", rows.plain(weights))
        given = array("grad_y", grad_y), *(t.numpy() for t in route)
        grads = _BACKWARD[kind](*given, f, w, n_features, aggregate=aggregate, sparse=sparse)
        if not sparse:
            grad_x, grad_t, grad_w = map(torch.from_numpy, grads)
            return grad_x, grad_t, None, grad_w, None, None, None
        grad_x, by_threshold, by_weight = grads
        grad_t = np.zeros(features.shape, grad_x.dtype)
        grad_t.reshape(-1)[by_threshold.rows] = by_threshold.values
        indices = np.stack(np.divmod(by_weight.rows, w.shape[1]))
        grad_w = torch.sparse_coo_tensor(
            torch.from_numpy(indices),
            torch.from_numpy(by_weight.values),
            w.shape,
            is_coalesced=True,
            check_invariants=False,
        )
        return torch.from_numpy(grad_x), torch.from_numpy(grad_t), None, grad_w, None, None, None


def _read_as(thresholds: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    # Plain tensors of the same memory; what a compiler sees stays as it is.
    tables = type(thresholds) in rows.CLASSES or type(weights) in rows.CLASSES
    if tables and not torch.compiler.is_compiling():
        return rows.plain(thresholds), rows.plain(weights)
    return thresholds, weights


def _apply(
    kind: Kind,
    x: Tensor,
    thresholds: Tensor,
    features: Tensor,
    weights: Tensor,
    aggregate: Aggregate,
    sparse: bool,
) -> Tensor:
    if sparse is not True and sparse is not False:
        raise TypeError(f"sparse: expected True or False, got {type(sparse).__name__}; pass one of them")
    if sparse and torch.compiler.is_compiling():
        return _apply_uncompiled(kind, x, thresholds, features, weights, aggregate, sparse)
    t, w = _read_as(thresholds, weights)
    plain = eager(x, t, features, w)
    if not plain or features.requires_grad:
        check(x=x, thresholds=thresholds, features=features, weights=weights)
        x, thresholds, weights = full_precision(x, thresholds, weights)
        t, w = _read_as(thresholds, weights)
        plain = eager(x, t, features, w)
    same_dtype("x", x, "thresholds", t)
    learn = torch.is_grad_enabled() and (x.requires_grad or thresholds.requires_grad or weights.requires_grad)
    if not plain:
        if sparse:
            raise ValueError(
                "sparse: expected False where tensors are on a GPU, traced or transformed, got True; "
                "leave it out"
            )
        return _OPERATORS[kind](x, thresholds, features, weights, aggregate, learn)[0]
    if learn:
        forest = None if w is weights else fused(thresholds, weights)
        if forest is not None:
            return forest(x, thresholds, features, weights, kind, aggregate)
        return _Hinge.apply(x, thresholds, features, weights, kind, aggregate, sparse)
    y = rows.forward(
        kind, array("x", x), thresholds, array("features", features), weights, aggregate=aggregate
    )
    return torch.from_numpy(y)


# Compilers have no sparse gradients: the graph breaks here, and with fullgraph=True that is an error.
_apply_uncompiled = torch.compiler.disable(_apply)


def hinge_tree(
    x: Tensor,
    thresholds: Tensor,
    features: Tensor,
    weights: Tensor,
    *,
    aggregate: Aggregate = "sum",
    sparse: bool = False,
) -> Tensor:
    """Returns outputs of hinge trees, with gradients by input, thresholds and weights (Lay et al. 2018,
    eq. 9-12).

    Parameters
    ----------
    x : (n_samples, n_features) tensor of float32 or float64
        Finite. Zero samples are legal.
    thresholds : (n_trees, 2**depth - 1) tensor, dtype of x
        In the unit of x; vertices in heap order.
    features : (n_trees, 2**depth - 1) tensor of int32
        Column of x that each vertex compares. Not learned.
    weights : (n_trees, 2**depth, *outputs) tensor, dtype of x
        Leaf weights of any trailing shape.
    aggregate : "sum", "mean" or None
        Outputs of the trees are added, averaged, or kept apart.
    sparse : bool
        Make the gradient of the weights a sparse COO tensor of the leaves that the batch reached, as
        `torch.nn.Embedding` does: sparse axes (tree, leaf), dense axes outputs, rows ascending
        and each once. For plain CPU tensors; `torch.compile` breaks the graph there.

    Returns
    -------
    y : (n_samples, *outputs) tensor, or (n_samples, n_trees, *outputs) without `aggregate`
        Dtype of x (float32 for half types inside `torch.autocast`).

    Raises
    ------
    TypeError, ValueError, IndexError
        As `hforest.hinge.tree_forward`, whose messages these are; in the backward pass as `tree_backward`.
        Tensors on different devices; half types outside `torch.autocast`; integers that require a gradient;
        `sparse` of tensors that are not plain CPU tensors.
    RuntimeError
        A second derivative; a pass that `RowAdam.step_in_backward` refuses.

    Notes
    -----
    Results have the bits of `hforest.hinge.tree_forward` and `tree_backward`. CPU tensors are read in place,
    after a copy if they are not contiguous. The backward pass uses the route of the forward pass, 12 bytes
    for each sample and tree in float32; without gradients nothing is stored. `hforest.set_num_threads` and
    OMP_NUM_THREADS set the number of threads, `torch.set_num_threads` does not.

    Plain CPU tensors skip PyTorch's dispatcher. Compiled, exported and CUDA tensors go through the operator
    ``torch.ops.hforest.hinge_tree``.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> x = torch.tensor([[0.5, 2.0]], requires_grad=True)
    >>> t = torch.tensor([[0.0, 9.0, 1.75]]); f = torch.tensor([[0, 0, 1]], dtype=torch.int32)
    >>> w = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    >>> y = hforest.torch.hinge_tree(x, t, f, w)
    >>> y.sum().backward()
    >>> y.tolist(), x.grad.tolist()
    ([1.0], [[0.0, 4.0]])
    """
    return _apply("tree", x, thresholds, features, weights, aggregate, sparse)


def hinge_fern(
    x: Tensor,
    thresholds: Tensor,
    features: Tensor,
    weights: Tensor,
    *,
    aggregate: Aggregate = "sum",
    sparse: bool = False,
) -> Tensor:
    """Returns outputs of hinge ferns, with gradients by input, thresholds and weights (Lay et al. 2018,
    eq. 9-12).

    Parameters
    ----------
    x : (n_samples, n_features) tensor of float32 or float64
        Finite. Zero samples are legal.
    thresholds : (n_ferns, depth) tensor, dtype of x
        In the unit of x; the first decision gives the leaf's most significant bit.
    features : (n_ferns, depth) tensor of int32
        Column of x that each decision compares. Not learned.
    weights : (n_ferns, 2**depth, *outputs) tensor, dtype of x
        Leaf weights of any trailing shape.
    aggregate : "sum", "mean" or None
        Outputs of the ferns are added, averaged, or kept apart.
    sparse : bool
        Make the gradient of the weights sparse, as in `hinge_tree`.

    Returns
    -------
    y : (n_samples, *outputs) tensor, or (n_samples, n_ferns, *outputs) without `aggregate`

    Raises
    ------
    TypeError, ValueError, IndexError, RuntimeError
        As `hinge_tree`.

    Notes
    -----
    As for `hinge_tree`, with `hforest.hinge.fern_forward` and `fern_backward`.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> x = torch.tensor([[0.5, 2.0]])
    >>> t = torch.tensor([[0.0, 9.0]]); f = torch.tensor([[0, 1]], dtype=torch.int32)
    >>> w = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    >>> hforest.torch.hinge_fern(x, t, f, w).tolist()
    [1.5]
    """
    return _apply("fern", x, thresholds, features, weights, aggregate, sparse)
