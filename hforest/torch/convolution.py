"""Hinge trees and ferns on windows of images: operators with gradients, and modules (p1 eq 9-12)."""

import math
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from .. import hinge
from .library import LIBRARY, check, define, full_precision, no_second_derivative
from .operators import Aggregate, Kind

Ints = int | tuple[int, ...]

_FORWARD: dict[str, Any] = {"tree": hinge.tree_conv_forward, "fern": hinge.fern_conv_forward}
_BACKWARD: dict[str, Any] = {"tree": hinge.tree_conv_backward, "fern": hinge.fern_conv_backward}
_NAMES = ("kernel_size", "stride", "padding", "dilation")


def _words(shape: tuple[list[int], ...]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(a) for name, a in zip(_NAMES, shape, strict=True)}


def _forward_kernel(kind: Kind) -> Any:
    forward = _FORWARD[kind]

    def kernel(
        x: Any, thresholds: Any, features: Any, weights: Any, kernel_size: Any, stride: Any, padding: Any,
        dilation: Any, aggregate: Aggregate = None, route: bool = True,
    ) -> tuple[Any, ...]:  # fmt: skip
        words = _words((kernel_size, stride, padding, dilation))
        if not route:
            y = forward(x, thresholds, features, weights, **words, aggregate=aggregate)
            return y, *(np.empty((0, 0), dtype) for dtype in (np.int32, x.dtype, np.int32))
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
        if not ctx.route:
            raise RuntimeError(
                "route: expected True where gradients are asked for, got False; call hforest.torch."
                f"hinge_{kind}_conv, which chooses it"
            )
        grads = _backward_operator(grad_y, *ctx.saved_tensors, ctx.x_shape, ctx.shape, kind, ctx.aggregate)
        grad_x, grad_t, grad_w = grads
        return grad_x, grad_t, None, grad_w, None, None, None, None, None, None

    torch.library.register_autograd(f"hforest::hinge_{kind}_conv", backward, setup_context=setup, lib=LIBRARY)


for _kind in ("tree", "fern"):
    _register(_kind)
torch.library.register_autograd("hforest::hinge_conv_backward", no_second_derivative, lib=LIBRARY)


def _per_axis(name: str, a: Ints, n_axes: int) -> list[int]:
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
    sizes = [_per_axis(name, a, n_axes) for name, a in zip(_NAMES, shape, strict=True)]
    x, thresholds, weights = full_precision(x, thresholds, weights)
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
    """Returns outputs of hinge trees at the windows of images, with gradients (p1 eq 9-12).

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
    """Returns outputs of hinge ferns at the windows of images, with gradients (p1 eq 9-12).

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


class _HingeConv(torch.nn.Module):
    """What the modules for one, two and three axes share."""

    features: Tensor
    n_axes = 0

    def __init__(
        self,
        in_channels: int,
        n_trees: int,
        depth: int,
        kernel_size: Ints,
        outputs: Ints = (),
        *,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        vector_features: int = 0,
        kind: Literal["tree", "fern"] = "tree",
        aggregate: Aggregate = "sum",
        dtype: torch.dtype | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if kind not in _FORWARD:
            raise ValueError(f"kind: expected 'tree' or 'fern', got {kind!r}; choose one of them")
        if aggregate not in (None, "sum", "mean"):
            raise ValueError(
                f"aggregate: expected None, 'sum' or 'mean', got {aggregate!r}; choose one of them"
            )
        sizes = (kernel_size, stride, padding, dilation)
        given = [tuple(_per_axis(name, a, self.n_axes)) for name, a in zip(_NAMES, sizes, strict=True)]
        self.kernel_size, self.stride, self.padding, self.dilation = given
        shape = (outputs,) if isinstance(outputs, int) else tuple(outputs)
        counts = {"in_channels": in_channels, "n_trees": n_trees}
        if aggregate and groups > 1:
            counts["outputs"] = shape[0] if len(shape) == 1 else 0
        for name, count in counts.items():
            if groups < 1 or count < 1 or count % groups:
                raise ValueError(
                    f"{name}: expected a positive multiple of groups = {groups}, got {count}; choose other "
                    "groups, or aggregate=None for trees apart"
                )
        if vector_features < 0 or (vector_features and groups > 1):
            raise ValueError(
                "vector_features: expected at least 0, and 0 with groups, "
                f"got {vector_features} with groups = {groups}; leave one of them out"
            )
        if aggregate and groups > 1:
            shape = (shape[0] // groups,)
        self.in_channels, self.n_trees, self.depth, self.groups = in_channels, n_trees, depth, groups
        self.vector_features, self.kind, self.aggregate = vector_features, kind, aggregate
        make = hinge.tree_init if kind == "tree" else hinge.fern_init
        real = torch.get_default_dtype() if dtype is None else dtype
        seed = int(torch.randint(2**62, (), generator=generator))
        places = math.prod(self.kernel_size)
        n_columns = in_channels // groups * places
        start = make(
            n_trees, depth, n_columns + vector_features, shape,
            dtype=np.float64 if real == torch.float64 else np.float32, rng=seed,
        )  # fmt: skip
        # A number of the vector is a channel of its own, read in the middle of the window.
        middle = int(np.ravel_multi_index([size // 2 for size in self.kernel_size], self.kernel_size))
        of_vector = n_columns + (start.features - n_columns) * places + middle
        features = np.where(start.features < n_columns, start.features, of_vector).astype(np.int32)
        self.thresholds = torch.nn.Parameter(torch.from_numpy(start.thresholds).to(real))
        self.weights = torch.nn.Parameter(torch.from_numpy(start.weights).to(real))
        self.register_buffer("features", torch.from_numpy(features))

    def forward(self, x: Tensor, vector: Tensor | None = None) -> Tensor:
        """Returns the outputs, (n_images, *outputs, *out), or with the trees before them.

        `vector` is (n_images, vector_features), where the layer has such.
        """
        if x.ndim != 2 + self.n_axes or x.shape[1] != self.in_channels:
            raise ValueError(
                f"x: expected (n_images, {self.in_channels}, *space) with {self.n_axes} axes in space, "
                f"got shape {tuple(x.shape)}; pass images of that many channels"
            )
        wanted = (len(x), self.vector_features) if self.vector_features else None
        given = None if vector is None else tuple(vector.shape)
        if given != wanted:
            raise ValueError(
                f"vector: expected shape {wanted}, got {given}; vector_features says how many numbers come "
                "with an image, 0 for no vector"
            )
        if vector is not None:
            place = vector.to(x.dtype).reshape(*vector.shape, *([1] * self.n_axes))
            x = torch.cat([x, place.expand(-1, -1, *x.shape[2:])], dim=1)
        apply = hinge_tree_conv if self.kind == "tree" else hinge_fern_conv
        words = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}
        if self.groups == 1:
            return apply(
                x, self.thresholds, self.features, self.weights, self.kernel_size, **words,
                aggregate=self.aggregate,
            )  # fmt: skip
        parts = (a.chunk(self.groups) for a in (self.thresholds, self.features, self.weights))
        return torch.cat(
            [
                apply(images, t, f, w, self.kernel_size, **words, aggregate=self.aggregate)
                for images, t, f, w in zip(x.chunk(self.groups, dim=1), *parts, strict=True)
            ],
            dim=1,
        )

    def extra_repr(self) -> str:
        """Returns the settings, for `repr`."""
        return (
            f"{self.in_channels}, {self.n_trees}, {self.depth}, kernel_size={self.kernel_size}, "
            f"outputs={tuple(self.weights.shape[2:])}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, groups={self.groups}, kind={self.kind!r}, "
            f"aggregate={self.aggregate!r}"
        )


class HingeConv1d(_HingeConv):
    """A hinge forest at each window of a sequence, (n, in_channels, length).

    As `HingeConv2d` with one axis in space.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> layer = hforest.torch.HingeConv1d(3, 10, 4, kernel_size=5, outputs=2, padding=2)
    >>> layer(torch.zeros(8, 3, 20)).shape
    torch.Size([8, 2, 20])
    """

    n_axes = 1


class HingeConv2d(_HingeConv):
    """A hinge forest at each window of an image: convolution with a forest in place of a linear map.

    Parameters
    ----------
    in_channels : int
        Channels of the input (n, in_channels, height, width).
    n_trees, depth : int
        Trees or ferns, and levels of each.
    kernel_size : int or tuple of ints
        Size of the windows.
    outputs : int or tuple of ints
        Shape of a leaf's weights. The result is (n, *outputs, height, width) of the windows.
    stride, padding, dilation : int or tuple of ints
        As in `torch.nn.Conv2d`; padding is with zeros.
    groups : int
        Parts of the channels; each has n_trees / groups trees, which see its channels alone. With
        `aggregate` it has outputs / groups of the outputs.
    vector_features : int
        Numbers of a vector that comes with each image, ``layer(x, vector)``: a vertex compares a number of
        the window or of the vector, which has a channel of its own (x is copied with them). Windows whose
        middle is in the padding read 0.
    kind : "tree" or "fern"
    aggregate : "sum", "mean" or None
        Outputs of the trees are added, averaged, or kept apart: (n, n_trees, *outputs, height, width).
    dtype : torch.dtype, optional
        float32 or float64; by default PyTorch's default dtype.
    generator : torch.Generator, optional
        Where the start is drawn; by default PyTorch's own.

    Attributes
    ----------
    thresholds, weights : parameters
        As `hinge_tree_conv` takes them.
    features : buffer

    Notes
    -----
    The start is that of `hforest.hinge.tree_init` or `fern_init` (p1 Alg. 1). Windows are read by index
    arithmetic: no tensor of all windows is made, forward or backward.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> layer = hforest.torch.HingeConv2d(3, 10, 4, kernel_size=5, outputs=2, padding=2)
    >>> layer(torch.zeros(8, 3, 12, 12)).shape
    torch.Size([8, 2, 12, 12])
    """

    n_axes = 2


class HingeConv3d(_HingeConv):
    """A hinge forest at each window of a volume, (n, in_channels, depth, height, width).

    As `HingeConv2d` with three axes in space.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> layer = hforest.torch.HingeConv3d(2, 10, 4, kernel_size=3, outputs=2, stride=2)
    >>> layer(torch.zeros(1, 2, 7, 7, 7)).shape
    torch.Size([1, 2, 3, 3, 3])
    """

    n_axes = 3
