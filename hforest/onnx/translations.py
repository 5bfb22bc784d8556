"""Operators of hforest.torch as nodes, for `torch.onnx.export`."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import numpy_helper

from . import layers
from .graph import OPSET, Value

Function = Callable[..., object]
Table = dict[Function, Function | Sequence[Function]]
"""What `torch.onnx.export` takes as custom_translation_table."""


def _adder(op: Any) -> layers.Add:
    """Returns a function that adds nodes to the graph that onnxscript builds."""

    def add(kind: str, *inputs: Value, **attributes: Any) -> Value:
        values = [
            op.Constant(value=numpy_helper.from_array(np.asarray(a, order="C")))
            if isinstance(a, np.ndarray)
            else a
            for a in inputs
        ]
        return getattr(op, kind)(*values, **attributes)

    return add


def _sizes(value: Value, first: int = 0) -> tuple[int, ...]:
    """Returns the sizes of the axes of a value, from one axis on."""
    sizes = tuple(value.shape)[first:]
    if not all(isinstance(size, int) for size in sizes):
        raise ValueError(
            f"dynamic_shapes: expected a dynamic axis of samples alone, got sizes {sizes} of the other axes; "
            "fix them"
        )
    return sizes


def _windows(add: layers.Add, x: Value, settings: Sequence[int]) -> tuple[Value, tuple[int, ...]]:
    """Returns the windows of images as rows, and the number of windows along each axis."""
    channels, *space = _sizes(x, 1)
    n_axes = len(space)
    inside, place, counts = np.ones((), bool), np.zeros((), np.int64), []
    steps = np.reshape(settings, (4, n_axes)).T.tolist()
    for axis, (size, (kernel, stride, padding, dilation)) in enumerate(zip(space, steps, strict=True)):
        n = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
        at = np.arange(n)[:, None] * stride - padding + np.arange(kernel) * dilation
        shape = [1] * (2 * n_axes)
        shape[axis], shape[n_axes + axis] = at.shape
        inside = inside & ((at >= 0) & (at < size)).reshape(shape)
        place = place * size + at.reshape(shape)
        counts.append(n)
    n_positions, n_places = math.prod(counts), math.prod(space)
    places = place.reshape(n_positions, 1, -1) + np.arange(channels)[:, None] * n_places
    # The padding is a column of zeros behind the values of an image.
    places = np.where(inside.reshape(n_positions, 1, -1), places, channels * n_places).ravel()
    flat = add("Reshape", x, np.array([0, channels * n_places]))
    padded = add("Pad", flat, np.array([0, 0, 0, 1]), add("CastLike", np.zeros(()), x))
    rows = add("Reshape", add("Gather", padded, places, axis=1), np.array([-1, len(places) // n_positions]))
    return rows, tuple(counts)


def _flat(add: layers.Add, value: Value, first: int) -> Value:
    """Returns a value whose first axes are one."""
    rest = _sizes(value)[first:]
    return add("Reshape", value, np.array([-1, *rest]))


def _of(op: Any, epsilon: float) -> dict[str, Callable[..., Any]]:
    """Returns the translations by the names of operators."""
    add = _adder(op)

    def hinge_forest(
        x: Any, thresholds: Any, features: Any, weights: Any, kind: str, margin: str,
        windows: Sequence[int] | None = None, aggregate: str | None = None, route: bool = False,
    ) -> Any:  # fmt: skip
        n_trees, n_leaves, *outputs = _sizes(weights)
        counts: tuple[int, ...] = ()
        if windows is not None:
            x, counts = _windows(add, x, windows)
        forest = (
            _flat(add, thresholds, 2),
            _flat(add, features, 2),
            add("Reshape", weights, np.array([-1, math.prod(outputs)])),
        )
        sizes = n_trees, n_leaves.bit_length() - 1, outputs
        y = layers.hinge_forest(add, x, forest, sizes, kind=kind, margin=margin, aggregate=aggregate)
        if counts:
            each = [] if aggregate else [n_trees]
            y = add("Reshape", y, np.array([-1, *counts, *each, *outputs]))
        empty = [add("CastLike", np.zeros((0, 0)), like) for like in (features, x, features)]
        return y, *empty  # a route is for gradients alone

    def neural_forest(f: Any, leaves: Any, index: Any = None, task: str = "classification") -> Any:
        n_trees, n_leaves, n_classes = _sizes(leaves)
        if index is not None:
            f = add("Gather", f, _flat(add, index, 2), axis=1)
        f = add("Reshape", f, np.array([-1, n_trees, n_leaves - 1]))
        leaves = add("Reshape", leaves, np.array([-1, n_classes]))
        return layers.neural_forest(add, f, leaves, n_trees, n_leaves.bit_length() - 1)

    def normalize(x: Any, mean: Any, var: Any) -> Any:
        deviation = add("Sqrt", add("Add", var, add("CastLike", np.array(epsilon), var)))
        return add("Div", add("Sub", x, mean), deviation)

    return {"hinge_forest": hinge_forest, "neural_forest": neural_forest, "normalize": normalize}


def translations() -> Table:
    """Returns the `custom_translation_table` with which `torch.onnx.export` exports layers of hforest.torch.

    Returns
    -------
    dict
        Functions that add nodes, by the operators of `HingeForest`, `HingeConv1d` to `HingeConv3d`,
        `NeuralForest` and `RunningNorm`. Pass it with ``dynamo=True``, modules in evaluation mode.

    Raises
    ------
    ImportError
        Without PyTorch or onnxscript.
    RuntimeError
        Before `import hforest.torch`, which defines the operators.

    Notes
    -----
    Outputs equal those of the module up to rounding. Sizes of windows are constants of the graph: only the
    axis of samples may be dynamic. Operators that training alone needs have no translation.

    Examples
    --------
    >>> import torch, hforest.torch, hforest.onnx
    >>> forest = hforest.torch.HingeForest(6, n_trees=10, depth=3, outputs=2).eval()
    >>> table = hforest.onnx.translations()  # doctest: +SKIP
    >>> program = torch.onnx.export(  # doctest: +SKIP
    ...     forest, (torch.zeros(4, 6),), dynamo=True, custom_translation_table=table)
    """
    try:
        import onnxscript
        import torch
    except ImportError as error:
        raise ImportError(
            f"hforest.onnx.translations: expected PyTorch and onnxscript, got no {error.name}; install it "
            "with pip install torch onnxscript"
        ) from None
    if not hasattr(torch.ops.hforest, "hinge_forest"):
        raise RuntimeError(
            "hforest.onnx.translations: expected the operators of hforest.torch, got none; import it first"
        )
    from hforest.layers import normalize_backward

    # The number that `normalize` adds to a variance: 1 / sqrt(0 + epsilon) is the gradient at 0.
    epsilon = float(normalize_backward(np.ones((1, 1)), np.zeros(1))[0, 0] ** -2)
    functions = _of(getattr(onnxscript, f"opset{OPSET}"), epsilon)
    return {getattr(torch.ops.hforest, name).default: of_name for name, of_name in functions.items()}
