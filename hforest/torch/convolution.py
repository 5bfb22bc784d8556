"""Hinge trees and ferns on windows of images: operators with gradients (Lay et al. 2018, eq. 9-12)."""

from typing import Any

import torch
from torch import Tensor

from .. import hinge
from .library import LIBRARY, check, check_route, define, full_precision, no_second_derivative, same_dtype
from .operators import Aggregate, Kind, no_route

Ints = int | tuple[int, ...]

_FORWARD: dict[str, Any] = {"tree": hinge.tree_conv_forward, "fern": hinge.fern_conv_forward}
_BACKWARD: dict[str, Any] = {"tree": hinge.tree_conv_backward, "fern": hinge.fern_conv_backward}
NAMES = ("kernel_size", "stride", "padding", "dilation")


def _words(shape: tuple[list[int], ...]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(a) for name, a in zip(NAMES, shape, strict=True)}


def _forward_kernel(kind: Kind) -> Any:
    forward = _FORWARD[kind]

    def kernel(
        x: Any, thresholds: Any, features: Any, weights: Any, kernel_size: Any, stride: Any, padding: Any,
        dilation: Any, aggregate: Aggregate = None, route: bool = True,
    ) -> tuple[Any, ...]:  # fmt: skip
        words = _words((kernel_size, stride, padding, dilation))
        if not route:
            return forward(x, thresholds, features, weights, **words, aggregate=aggregate), *no_route(x)
        y, found = forward(x, thresholds, features, weights, **words, aggregate=aggregate, return_route=True)
        return y, *found

    return kernel


def _forward_fake(
    x: Tensor, thresholds: Tensor, features: Tensor, weights: Tensor, kernel_size: Any, stride: Any,
    padding: Any, dilation: Any, aggregate: Any = None, route: bool = True,
) -> tuple[Tensor, ...]:  # fmt: skip
    out = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, p, d in zip(x.shape[2:], kernel_size, stride, padding, dilation, strict=True)
    ]
    places, n_trees, outputs = (x.shape[0], *out), weights.shape[0], weights.shape[2:]
    y = x.new_empty((*places, *outputs) if aggregate else (*places, n_trees, *outputs))
    shape = (*places, n_trees) if route else (0, 0)
    return y, features.new_empty(shape), x.new_empty(shape), features.new_empty(shape)


def _backward_kernel(
    grad_y: Any, leaf: Any, margin: Any, vertex: Any, features: Any, weights: Any, x_shape: Any,
    shape: Any, kind: Kind, aggregate: Aggregate = None,
) -> tuple[Any, ...]:  # fmt: skip
    n = len(shape) // 4
    words = _words(tuple(shape[i * n : (i + 1) * n] for i in range(4)))
    route = hinge.Route(leaf, margin, vertex)
    return _BACKWARD[kind](grad_y, route, features, weights, tuple(x_shape), **words, aggregate=aggregate)


def _backward_fake(
    grad_y: Tensor, leaf: Tensor, margin: Tensor, vertex: Tensor, features: Tensor, weights: Tensor,
    x_shape: Any, shape: Any, kind: str, aggregate: Any = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    return margin.new_empty(x_shape), margin.new_empty(features.shape), margin.new_empty(weights.shape)


_SCHEMA = (
    "(Tensor x, Tensor thresholds, Tensor features, Tensor weights, int[] kernel_size, int[] stride, "
    "int[] padding, int[] dilation, str? aggregate=None, bool route=True) -> (Tensor, Tensor, Tensor, Tensor)"
)
_OPERATORS = {
    "tree": define("hinge_tree_conv", _SCHEMA, _forward_kernel("tree"), _forward_fake),
    "fern": define("hinge_fern_conv", _SCHEMA, _forward_kernel("fern"), _forward_fake),
}
_backward_operator = define(
    "hinge_conv_backward",
    "(Tensor grad_y, Tensor leaf, Tensor margin, Tensor vertex, Tensor features, Tensor weights, "
    "SymInt[] x_shape, int[] shape, str kind, str? aggregate=None) -> (Tensor, Tensor, Tensor)",
    _backward_kernel,
    _backward_fake,
)


def _register(kind: Kind) -> None:
    def setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, _, features, weights, *shape, ctx.aggregate, ctx.route = inputs
        ctx.x_shape, ctx.shape = list(x.shape), [i for axis in shape for i in axis]
        ctx.save_for_backward(*output[1:], features, weights)

    def backward(ctx: Any, grad_y: Tensor, *_: Any) -> tuple[Any, ...]:
        check_route(ctx.route, f"hinge_{kind}_conv")
        grads = _backward_operator(grad_y, *ctx.saved_tensors, ctx.x_shape, ctx.shape, kind, ctx.aggregate)
        grad_x, grad_t, grad_w = grads
        return grad_x, grad_t, None, grad_w, None, None, None, None, None, None

    torch.library.register_autograd(f"hforest::hinge_{kind}_conv", backward, setup_context=setup, lib=LIBRARY)


for _kind in ("tree", "fern"):
    _register(_kind)
torch.library.register_autograd("hforest::hinge_conv_backward", no_second_derivative, lib=LIBRARY)


def per_axis(name: str, a: Ints, n_axes: int) -> list[int]:
    """Returns one number for each axis in space."""
    given = list(a) if isinstance(a, tuple | list) else [a] * n_axes
    if len(given) != n_axes or not all(isinstance(i, int) and not isinstance(i, bool) for i in given):
        raise TypeError(
            f"{name}: expected an int or one int for each of the {n_axes} axes in space, got {a!r}; "
            "pass as many as x has axes after its channels"
        )
    return given


def _apply(
    kind: Kind, x: Tensor, thresholds: Tensor, features: Tensor, weights: Tensor, shape: tuple[Ints, ...],
    aggregate: Aggregate,
) -> Tensor:  # fmt: skip
    check(x=x, thresholds=thresholds, features=features, weights=weights)
    if not 3 <= x.ndim <= 5:
        raise ValueError(
            "x: expected (n_images, channels, *space) with one to three axes in space, got shape "
            f"{tuple(x.shape)}; add axes of size 1, or call hinge_{kind} for rows"
        )
    n_axes = x.ndim - 2
    sizes = [per_axis(name, a, n_axes) for name, a in zip(NAMES, shape, strict=True)]
    x, thresholds, weights = full_precision(x, thresholds, weights)
    same_dtype("x", x, "thresholds", thresholds)
    learn = torch.is_grad_enabled() and (x.requires_grad or thresholds.requires_grad or weights.requires_grad)
    y = _OPERATORS[kind](x, thresholds, features, weights, *sizes, aggregate, learn)[0]
    # Positions are first in y: behind the outputs they are in the order of PyTorch's convolutions.
    return y.permute(0, *range(1 + n_axes, y.ndim), *range(1, 1 + n_axes))


def hinge_tree_conv(
    x: Tensor,
    thresholds: Tensor,
    features: Tensor,
    weights: Tensor,
    kernel_size: Ints,
    *,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    aggregate: Aggregate = "sum",
) -> Tensor:
    """Returns outputs of hinge trees at the windows of images, with gradients (Lay et al. 2018, eq. 9-12).

    Parameters
    ----------
    x : (n_images, channels, *space) tensor of float32 or float64
        Images with one to three axes in space. Finite.
    thresholds : (n_trees, 2**depth - 1) tensor, dtype of x
        In the unit of x; vertices in heap order.
    features : (n_trees, 2**depth - 1) tensor of int32
        Number of the window that each vertex compares, in the order of `torch.nn.functional.unfold`: the
        channel first. Not learned.
    weights : (n_trees, 2**depth, *outputs) tensor, dtype of x
        Leaf weights of any trailing shape.
    kernel_size, stride, padding, dilation : int or tuple of ints
        As in `torch.nn.functional.conv2d`, for one to three axes; padding is with zeros.
    aggregate : "sum", "mean" or None
        Outputs of the trees are added, averaged, or kept apart.

    Returns
    -------
    y : (n_images, *outputs, *out) tensor, or (n_images, n_trees, *outputs, *out) without `aggregate`
        A view: in memory the outputs are last, as in the memory format torch.channels_last.

    Raises
    ------
    TypeError, ValueError, IndexError
        As `hforest.hinge.tree_conv_forward`, whose messages these are; in the backward pass as
        `tree_conv_backward`. Tensors on different devices; half types outside `torch.autocast`; features
        that require a gradient.
    RuntimeError
        A second derivative.

    Notes
    -----
    Bits as `hforest.hinge.tree_conv_forward` and `tree_conv_backward`. No array of all windows is made.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> x = torch.tensor([[[1.0, 5.0, 2.0, 8.0]]])
    >>> t = torch.tensor([[3.0]]); f = torch.tensor([[1]], dtype=torch.int32)
    >>> hforest.torch.hinge_tree_conv(x, t, f, torch.tensor([[-1.0, 1.0]]), 2).tolist()
    [[2.0, -1.0, 5.0]]
    """
    shape = (kernel_size, stride, padding, dilation)
    return _apply("tree", x, thresholds, features, weights, shape, aggregate)


def hinge_fern_conv(
    x: Tensor,
    thresholds: Tensor,
    features: Tensor,
    weights: Tensor,
    kernel_size: Ints,
    *,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    aggregate: Aggregate = "sum",
) -> Tensor:
    """Returns outputs of hinge ferns at the windows of images, with gradients (Lay et al. 2018, eq. 9-12).

    Parameters
    ----------
    x : (n_images, channels, *space) tensor of float32 or float64
        Images with one to three axes in space. Finite.
    thresholds, features : (n_ferns, depth) tensors, dtype of x and int32
        As for `hinge_fern`; features number the window's numbers as for `hinge_tree_conv`.
    weights : (n_ferns, 2**depth, *outputs) tensor, dtype of x
        Leaf weights of any trailing shape.
    kernel_size, stride, padding, dilation : int or tuple of ints
        As for `hinge_tree_conv`.
    aggregate : "sum", "mean" or None
        Outputs of the ferns are added, averaged, or kept apart.

    Returns
    -------
    y : (n_images, *outputs, *out) tensor, or (n_images, n_ferns, *outputs, *out) without `aggregate`

    Raises
    ------
    TypeError, ValueError, IndexError, RuntimeError
        As `hinge_tree_conv`.

    Notes
    -----
    As for `hinge_tree_conv`, with `hforest.hinge.fern_conv_forward` and `fern_conv_backward`.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> x = torch.tensor([[[1.0, 5.0, 2.0, 8.0]]])
    >>> t = torch.tensor([[3.0]]); f = torch.tensor([[1]], dtype=torch.int32)
    >>> hforest.torch.hinge_fern_conv(x, t, f, torch.tensor([[-1.0, 1.0]]), 2).tolist()
    [[2.0, -1.0, 5.0]]
    """
    shape = (kernel_size, stride, padding, dilation)
    return _apply("fern", x, thresholds, features, weights, shape, aggregate)
