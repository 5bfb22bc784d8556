"""Hinge forests on tensors (Lay et al. 2018, eq. 9-12): an operator with gradients, also sparse."""

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from .. import hinge
from . import rows
from .library import (
    HALF,
    Aggregate,
    Kind,
    MarginName,
    Operator,
    array,
    check,
    disable_compiler,
    eager,
    full_precision,
    grads_batched,
    no_second_derivative,
    same_dtype,
    transformed,
)


def per_axis(name: str, a: Any, n_axes: int) -> list[int]:
    """Returns one number per spatial axis."""
    numbers = list(a) if isinstance(a, (tuple, list)) else [a] * n_axes
    if len(numbers) != n_axes or not all(isinstance(i, int) and not isinstance(i, bool) for i in numbers):
        raise TypeError(
            f"{name}: expected an int or one int for each of the {n_axes} spatial axes, got {a!r}; pass "
            "one int for each axis of x after the channels"
        )
    return numbers


# Graphs of PyTorch 2.8 can neither read `Windows._fields` nor `tuple | list`.
_SIZES = hinge.Windows._fields


def _settings(n_axes: int, kind: Any, margin: Any, windows: Any, aggregate: Any) -> tuple[Any, ...]:
    # The settings as the operator takes them: windows as kernel_size, stride, padding, dilation of each axis.
    if windows is None:
        return kind, margin, None, aggregate
    if not isinstance(windows, hinge.Windows):
        raise TypeError(
            f"windows: expected Windows or None, got {type(windows).__name__}; pass "
            "hforest.hinge.Windows(kernel_size, stride, padding, dilation), or None for rows"
        )
    sizes = zip(_SIZES, windows, strict=True)
    return kind, margin, [i for name, a in sizes for i in per_axis(name, a, n_axes)], aggregate


def _variant(
    kind: Kind, margin: MarginName, windows: list[int] | None, aggregate: Aggregate
) -> dict[str, Any]:
    # The settings as `hforest.hinge` takes them.
    n = 0 if windows is None else len(windows) // 4
    sizes = None if windows is None else hinge.Windows(*(tuple(windows[i * n : i * n + n]) for i in range(4)))
    return {"kind": kind, "margin": margin, "windows": sizes, "aggregate": aggregate}


def gradients(
    grad_y: Any, route: Any, x: Any, x_shape: Any, features: Any, weights: Any, variant: dict[str, Any], *,
    sparse: bool = False, trusted: bool = False,
) -> hinge.Gradients:  # fmt: skip
    """Returns the gradients of a call for arrays; x may be None if only its shape is needed.

    With `trusted`, arrays that a checked forward pass read or returned are not checked again.
    """
    like, x_shape, vertices = route[1], tuple(x_shape), features.shape[:2]
    grad_x, thresholds, run = np.empty_like(like, shape=x_shape, order="C"), None, cast(Any, hinge.kernels)
    if trusted:
        words = {name: variant[name] for name in ("margin", "windows")}
        hinge.kernels.check_changed(grad_y, weights.dtype, features, x_shape, **words, vertex=route[2])
    else:  # the gradient reads no value of thresholds, nor of an x that is None
        thresholds, run = np.empty_like(like, shape=vertices, order="C"), hinge
        x = np.empty_like(like, shape=x_shape, order="C") if x is None else x
    arguments = grad_y, route, x, thresholds, features, weights
    if sparse:
        return run.backward_sparse(*arguments, **variant, out=grad_x)
    learned = np.empty_like(features) if features.dtype == like.dtype else None
    by_threshold = np.empty_like(like, shape=vertices, order="C")
    grads = hinge.Gradients(grad_x, by_threshold, learned, np.empty_like(weights))
    run.backward(*arguments, **variant, out=grads)
    return grads


# ------------------------------------------------------------------------------------------- the operator


def _shapes(x: Any, weights: Any, windows: Any, aggregate: Any, route: bool) -> tuple[Any, Any]:
    # Returns the shapes of y and of the arrays of the route; wrong ones for arguments that checks refuse.
    axes = () if windows is None else zip(x.shape[2:], *np.reshape(windows, (4, -1)).tolist(), strict=False)
    sizes = ((size + 2 * p - d * (k - 1) - 1) // max(s, 1) + 1 for size, k, s, p, d in axes)
    places, trees, outputs = (*x.shape[:1], *sizes), weights.shape[:1], weights.shape[2:]
    of_route = (*places, *trees)
    return (*(places if aggregate else of_route), *outputs), of_route if route else (0, 0)


def _forward_kernel(
    x: Any, thresholds: Any, features: Any, weights: Any, kind: Kind, margin: MarginName,
    windows: list[int] | None, aggregate: Aggregate, route: bool,
) -> tuple[Any, ...]:  # fmt: skip
    arguments, variant = (x, thresholds, features, weights), _variant(kind, margin, windows, aggregate)
    of_y, of_route = _shapes(x, weights, windows, aggregate, route)
    # Compiled programs expect results in C order, and no two results may share memory.
    leaf, vertex = (np.empty_like(x, np.int32, order="C", shape=of_route) for _ in range(2))
    arrays = hinge.Route(leaf, np.empty_like(x, order="C", shape=of_route), vertex)
    if not route:
        return hinge.forward(*arguments, **variant), *arrays
    y, _ = hinge.forward_with_route(
        *arguments, **variant, out=(np.empty_like(x, order="C", shape=of_y), arrays)
    )
    return y, *arrays


def _forward_fake(
    x: Tensor, thresholds: Tensor, features: Tensor, weights: Tensor, kind: str, margin: str, windows: Any,
    aggregate: Any, route: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    of_y, of_route = _shapes(x, weights, windows, aggregate, route)
    leaf, vertex = (x.new_empty(of_route, dtype=torch.int32) for _ in range(2))
    return x.new_empty(of_y), leaf, x.new_empty(of_route), vertex


def _backward_kernel(
    grad_y: Any, leaf: Any, margins: Any, vertex: Any, x: Any, x_shape: Any, features: Any, weights: Any,
    kind: Kind, margin: MarginName, windows: list[int] | None, aggregate: Aggregate,
) -> tuple[Any, ...]:  # fmt: skip
    route, variant = hinge.Route(leaf, margins, vertex), _variant(kind, margin, windows, aggregate)
    grads = gradients(grad_y, route, x, x_shape, features, weights, variant)
    return tuple(np.empty_like(margins, shape=(0,)) if grad is None else grad for grad in grads)


def _backward_fake(
    grad_y: Tensor, leaf: Tensor, margins: Tensor, vertex: Tensor, x: Tensor | None, x_shape: Any,
    features: Tensor, weights: Tensor, kind: str, margin: str, windows: Any, aggregate: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    learned = features.shape if features.is_floating_point() else (0,)
    return tuple(map(margins.new_empty, (x_shape, features.shape[:2], learned, weights.shape)))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, _, features, weights, *ctx.settings, ctx.route = inputs
    read = x if hinge.kernels.MARGINS[ctx.settings[1]].gradient_reads_x else None
    ctx.save_for_backward(*output[1:], read, features, weights)
    ctx.x_shape = x.shape


def _backward(ctx: Any, grad_y: Tensor, *_: Any) -> tuple[Any, ...]:
    if not ctx.route:
        raise RuntimeError(
            "route: expected True where gradients are required, got False; call "
            "hforest.torch.hinge_forest, which sets it"
        )
    *route, x, features, weights = ctx.saved_tensors
    arguments = (grad_y, *route, x, list(ctx.x_shape), features, weights)
    return *_by_operator(*arguments, *ctx.settings), *(None,) * 5


def _by_operator(*arguments: Any) -> tuple[Any, ...]:
    by_x, by_threshold, by_feature, by_weight = _backward_operator.results(*arguments)
    return by_x, by_threshold, by_feature if by_feature.dim() > 1 else None, by_weight


_SETTINGS = "str kind, str margin, int[]? windows, str? aggregate"
_forward_operator = Operator(
    "hinge_forest",
    f"(Tensor x, Tensor thresholds, Tensor features, Tensor weights, {_SETTINGS}, bool route) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    _forward_kernel,
    _forward_fake,
    _setup,
    _backward,
    of_samples=1,
)
_backward_operator = Operator(
    "hinge_forest_backward",
    "(Tensor grad_y, Tensor leaf, Tensor margins, Tensor vertex, Tensor? x, SymInt[] x_shape, "
    f"Tensor features, Tensor weights, {_SETTINGS}) -> (Tensor, Tensor, Tensor, Tensor)",
    _backward_kernel,
    _backward_fake,
)


# ---------------------------------------------------------------------------------- without the dispatcher


# The hooks of saved tensors, and whether a backward pass leaves the graph for another one. A PyTorch that
# does not tell them saves routes as tensors and checks them again, and keeps graphs.
_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: True)
_keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


def _scattered(grad: hinge.RowGradient, shape: Any) -> Any:
    # A gradient at rows as a dense one.
    dense = np.zeros(shape, grad.values.dtype)
    dense.reshape(-1, *grad.values.shape[1:])[grad.rows] = grad.values
    return dense


def _sparse(grad: hinge.RowGradient, shape: Any) -> Tensor:
    # A gradient at rows as a sparse tensor.
    tree_leaf, n_leaves = np.empty((2, len(grad.rows)), np.int64), shape[1]  # a power of two
    np.right_shift(grad.rows, n_leaves.bit_length() - 1, out=tree_leaf[0])
    np.bitwise_and(grad.rows, n_leaves - 1, out=tree_leaf[1])
    rows, values = map(torch.from_numpy, (tree_leaf, grad.values))
    return torch.sparse_coo_tensor(rows, values, shape, is_coalesced=True, check_invariants=False)


class _Forest(torch.autograd.Function):
    """Autograd function for plain CPU tensors, without the dispatcher; also returns sparse gradients."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, thresholds: Tensor, features: Tensor, weights: Tensor, variant: dict[str, Any],
        sparse: bool, missed: Any,
    ) -> Tensor:  # fmt: skip
        y, route = rows.forward(hinge.forward_with_route, x, thresholds, features, weights, variant, missed)
        # Hooks of saved tensors see the route. Without them it stays as it is, and is not checked again.
        ctx.route, tensors = (None, map(torch.from_numpy, route)) if _hooks(False) else (route, ())
        read = x if hinge.kernels.MARGINS[variant["margin"]].gradient_reads_x else None
        ctx.save_for_backward(*tensors, read, features, weights)
        ctx.x_shape, ctx.variant, ctx.sparse = x.shape, variant, sparse
        ctx.shapes = features.shape, features.dtype, weights.shape
        return torch.from_numpy(y)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Any, ...]:
        *tensors, x, features, weights = ctx.saved_tensors
        # create_graph=True, whose operator refuses to be differentiated, or a batch of gradients.
        batch = transformed() or grads_batched()
        if batch or torch.is_grad_enabled():
            if ctx.sparse and batch:
                raise RuntimeError(_SPARSE)
            if ctx.sparse:
                no_second_derivative(ctx)
            route_tensors = tensors or map(torch.from_numpy, ctx.route)
            settings = _settings(len(ctx.x_shape) - 2, **ctx.variant)
            return (
                *_by_operator(grad_y, *route_tensors, x, ctx.x_shape, features, weights, *settings),
                *(None,) * 3,
            )
        route = ctx.route or hinge.Route(*map(array, hinge.Route._fields, tensors))
        # `Tensor.data` may have changed shapes and dtypes.
        same = ctx.shapes == (features.shape, features.dtype, weights.shape)
        same = same and (x is None or (x.shape, x.dtype) == (ctx.x_shape, weights.dtype))
        by_x, by_threshold, by_feature, by_weight = gradients(
            array("grad_y", grad_y), route, x if x is None else array("x", x), ctx.x_shape,
            array("features", features), array("weights", weights), ctx.variant,
            sparse=ctx.sparse, trusted=same and route is ctx.route,
        )  # fmt: skip
        if not _keeps_graph():
            ctx.route = None
        if ctx.sparse:
            by_threshold = _scattered(by_threshold, features.shape[:2])
            by_feature = by_feature if by_feature is None else _scattered(by_feature, features.shape)
        tensor = torch.from_numpy
        return (
            tensor(by_x), tensor(by_threshold), None if by_feature is None else tensor(by_feature),
            _sparse(by_weight, weights.shape) if ctx.sparse else tensor(by_weight), *(None,) * 3,
        )  # fmt: skip


_SPARSE = "sparse: expected False where tensors are on a GPU, traced or transformed, got True; leave it out"


def _apply(
    x: Tensor, thresholds: Tensor, features: Tensor, weights: Tensor, variant: dict[str, Any], sparse: bool,
    missed: Any = None, checked: bool = False,
) -> Tensor:  # fmt: skip
    plain = eager(x, thresholds, features, weights)
    if not plain and not checked:
        check(x=x, thresholds=thresholds, features=features, weights=weights)
        x, thresholds, features, weights = full_precision(x, thresholds, features, weights)
        return _apply(x, thresholds, features, weights, variant, sparse, missed, True)
    same_dtype("x", x, "thresholds", thresholds)
    same_dtype("weights", weights, "thresholds", thresholds)
    if features.is_floating_point():
        same_dtype("features", features, "thresholds", thresholds)
    elif features.dtype != torch.int32 and variant["margin"] == "column":
        kind = str(features.dtype).removeprefix("torch.")
        raise TypeError(f"features: expected dtype int32, got {kind}; pass features.int()")
    # torch.jit.trace checks its graph without gradients.
    learn = (torch.is_grad_enabled() or (not plain and torch.jit.is_tracing())) and (
        x.requires_grad or thresholds.requires_grad or features.requires_grad or weights.requires_grad
    )
    if not plain:
        if sparse and learn and x.dtype not in HALF:  # which the operator refuses by name
            raise ValueError(_SPARSE)
        if missed is not None:
            missed.close()
        settings = _settings(x.ndim - 2, **variant)
        route = torch.is_grad_enabled() if transformed() else learn
        return _forward_operator.results(x, thresholds, features, weights, *settings, route)[0]
    if not learn:
        return torch.from_numpy(
            rows.forward(hinge.forward, x, thresholds, features, weights, variant, missed)
        )
    return _Forest.apply(x, thresholds, features, weights, variant, sparse, missed)


# Compilers have no sparse gradients: the graph breaks here, and with fullgraph=True that is an error.
_apply_uncompiled = disable_compiler(_apply)


def outputs(
    x: Tensor, thresholds: Tensor, features: Tensor, weights: Tensor, variant: dict[str, Any], sparse: bool,
    missed: Any = None,
) -> Tensor:  # fmt: skip
    """Returns the result of `hinge_forest`, whose weights may have missed steps."""
    if sparse is not True and sparse is not False:
        raise TypeError(f"sparse: expected True or False, got {type(sparse).__name__}; pass one of them")
    run = _apply_uncompiled if sparse and torch.compiler.is_compiling() else _apply
    if variant["windows"] is None:
        return run(x, thresholds, features, weights, variant, sparse, missed)
    check(x=x)
    n_axes = x.ndim - 2
    _settings(n_axes, **variant)
    y = run(x, thresholds, features, weights, variant, sparse, missed)
    # Positions are first in y: behind the outputs they are in the order of PyTorch's convolutions.
    return y.permute(0, *range(1 + n_axes, y.ndim), *range(1, 1 + n_axes))


def hinge_forest(
    x: Tensor,
    thresholds: Tensor,
    features: Tensor,
    weights: Tensor,
    *,
    kind: Kind = "tree",
    margin: MarginName = "column",
    windows: hinge.Windows | None = None,
    aggregate: Aggregate = "sum",
    sparse: bool = False,
) -> Tensor:
    """Returns outputs of hinge trees or ferns, with their gradients (Lay et al. 2018, eq. 9-12).

    Other parameters: see `hforest.hinge.forward`.

    Parameters
    ----------
    windows : hforest.hinge.Windows, optional
        Samples are windows of images. Columns are the values of a window in the order of
        `torch.nn.functional.unfold`, channel by channel. Output sizes are those of
        `torch.nn.functional.conv2d`.
    sparse : bool
        Whether the gradient of the weights is a sparse COO tensor of the leaves that the batch reaches, for
        `RowAdam`, as in `torch.nn.Embedding`. Sparse axes are (tree, leaf), dense axes outputs; rows are
        ascending and unique. For plain CPU tensors; `torch.compile` breaks the graph.

    Returns
    -------
    y : (n_samples, *outputs) tensor, or (n_samples, n_trees, *outputs) without `aggregate`
        Dtype of x (float32 for half types inside `torch.autocast`). With `windows` (n_images, *outputs,
        *out), or (n_images, n_trees, *outputs, *out): a view whose outputs are last in memory, as in
        torch.channels_last.

    Raises
    ------
    ValueError
        `sparse` for tensors that are not plain CPU tensors.

    Notes
    -----
    Results are bit-identical to `hforest.hinge.forward` and `backward`. CPU tensors are read in place; those
    that are not contiguous are copied. The forward pass stores its route for the backward pass (12 bytes per
    sample and tree in float32), and x for projections; without gradients it stores nothing.
    `hforest.set_num_threads` and OMP_NUM_THREADS set the number of threads; `torch.set_num_threads` has no
    effect.

    Plain CPU tensors skip PyTorch's dispatcher. Compiled, exported and CUDA calls use the operator
    ``torch.ops.hforest.hinge_forest``.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> x = torch.tensor([[0.5, 2.0]], requires_grad=True)
    >>> t = torch.tensor([[0.0, 9.0, 1.75]]); f = torch.tensor([[0, 0, 1]], dtype=torch.int32)
    >>> w = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    >>> y = hforest.torch.hinge_forest(x, t, f, w)
    >>> y.sum().backward()
    >>> y.tolist(), x.grad.tolist()
    ([1.0], [[0.0, 4.0]])
    >>> hforest.torch.hinge_forest(x, t[:, :2], f[:, :2], w, kind="fern").tolist()
    [1.5]
    >>> p = torch.tensor([[[1.0, 1.0]]])
    >>> hforest.torch.hinge_forest(x, t[:, :1], p, w[:, :2], margin="projection").tolist()
    [5.0]
    >>> images = torch.tensor([[[1.0, 5.0, 2.0, 8.0]]])
    >>> t, f = torch.tensor([[3.0]]), torch.tensor([[1]], dtype=torch.int32)
    >>> windows = hforest.hinge.Windows(2)
    >>> hforest.torch.hinge_forest(images, t, f, torch.tensor([[-1.0, 1.0]]), windows=windows).tolist()
    [[2.0, -1.0, 5.0]]
    """
    variant = {"kind": kind, "margin": margin, "windows": windows, "aggregate": aggregate}
    return outputs(x, thresholds, features, weights, variant, sparse)
