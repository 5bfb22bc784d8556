"""What the public functions of this subpackage share: types, checks, results."""

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from ..core import check, dispatch, machine
from ..core.aliases import Array, FloatArray, IntArray
from ..optim.tables import Tables

Kind = Literal["tree", "fern"]
Aggregate = Literal["sum", "mean"] | None
Arrays = tuple[FloatArray, IntArray, FloatArray]
"""Thresholds, features, weights."""
Settings = tuple[float, float, float, float, Tables]
"""Adam's lr, beta1, beta2, eps, and the tables of missed steps."""

VERTICES = {"tree": "2**depth - 1", "fern": "depth"}
AGGREGATES = (None, "sum", "mean")
PACKAGE = __package__


class Route(NamedTuple):
    """Where samples go in each tree; each array is (n_samples, n_trees)."""

    leaf: IntArray
    """int32, the leaf reached."""
    margin: FloatArray
    """Signed margin r* of least magnitude, dtype of x."""
    vertex: IntArray
    """int32, the vertex with that margin."""


class RowGradient(NamedTuple):
    """A gradient at some rows of a parameter whose first two axes are one; 0 at the others."""

    rows: IntArray
    """(n_rows,) int64, ascending, each once."""
    values: FloatArray
    """(n_rows, ...), a gradient for each row."""


def check_depth(kind: Kind, name: str, a: Array) -> check.Sizes:
    """Sizes that follow from the width of thresholds or features."""
    depth = check.tree_depth if kind == "tree" else check.fern_depth
    return {"2**depth": 2 ** depth(name, a), VERTICES[kind]: a.shape[1]}


def check_routing(kind: Kind, x: FloatArray, thresholds: FloatArray, features: IntArray) -> check.Sizes:
    """Checks what a traversal reads; returns the sizes of the call."""
    dtype = check.floating("x", x)
    sizes = check_depth(kind, "thresholds", thresholds)
    check.array("x", x, dtype, ("n_samples", "n_features"), sizes)
    check.array("thresholds", thresholds, dtype, ("n_trees", VERTICES[kind]), sizes)
    check.array("features", features, check.INT32, ("n_trees", VERTICES[kind]), sizes)
    check.at_least_one(sizes, "n_trees", "n_features")
    if check.values_checked():
        check.finite("x", x, remedy=check.OF_LAYERS)
        check.not_nan("thresholds", thresholds)
        check.indices("features", features, sizes["n_features"], "n_features")
    return sizes


def check_weights(weights: FloatArray, dtype: np.dtype, sizes: check.Sizes) -> tuple[int, ...]:
    """Checks leaf weights; returns their trailing shape."""
    check.array("weights", weights, dtype, ("n_trees", "2**depth", ...), sizes)
    outputs = tuple(weights.shape[2:])
    sizes["n_outputs"] = math.prod(outputs)
    check.at_least_one(sizes, "n_outputs")
    return outputs


def check_route(leaf: IntArray, margin: FloatArray, sizes: check.Sizes) -> np.dtype:
    """Checks shapes and dtypes of a route, and that no margin is NaN; returns the dtype of the margins."""
    dtype = check.floating("margin", margin)
    check.array("leaf", leaf, check.INT32, ("n_samples", "n_trees"), sizes)
    check.array("margin", margin, dtype, ("n_samples", "n_trees"), sizes)
    check.at_least_one(sizes, "n_trees")
    _no_nan("margin", margin, "pass the route as the forward call returned it")
    return dtype


def check_grad_y(grad_y: FloatArray) -> None:
    """Checks that a gradient is finite, unless inside `unchecked()`."""
    remedy = "the loss has diverged: lower the learning rate, or go back to a checkpoint"
    _no_nan("grad_y", grad_y, remedy, finite=True)


def check_no_out(out: Any) -> None:
    """Refuses arrays for sparse gradients, whose sizes nobody knows before."""
    if out is not None:
        raise ValueError(
            "out: expected None with sparse=True, got arrays; leave it out, the number of touched rows is "
            "not known before the call"
        )


def _no_nan(name: str, a: FloatArray, remedy: str, *, finite: bool = False) -> None:
    if not check.values_checked() or (isinstance(a, np.ndarray) and machine.first_nonfinite(a) < 0):
        return
    xp = dispatch.array_module(a)
    bad = (~xp.isfinite(a) if finite else xp.isnan(a)).ravel()
    if bool(bad.any()):
        index = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), a.shape))
        expected = "finite numbers" if finite else "no NaN"
        raise ValueError(f"{name}: expected {expected}, got {a[index].item()} at index {index}; {remedy}")


def results(
    names: tuple[str, ...],
    out: Any,
    shapes: tuple[Any, ...],
    dtypes: tuple[Any, ...],
    inputs: dict[str, Array],
) -> tuple[Array, ...]:
    """New arrays, or the caller's after a check: right dtype and shape, writable, without overlap."""
    like = next(iter(inputs.values()))
    if out is None:
        empty = dispatch.empty(like)
        return tuple([empty(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)])
    given = out if len(names) > 1 else (out,)
    if not isinstance(given, tuple) or len(given) != len(names):
        raise TypeError(
            f"out: expected a tuple of {len(names)} arrays ({', '.join(names)}), "
            f"got {type(out).__name__}; pass (" + ", ".join(names) + ")"
        )
    labels = [f"out {name}" for name in names] if len(names) > 1 else ["out"]
    outputs = dict(zip(labels, given, strict=True))
    check.same_device(**inputs, **outputs)
    for (name, a), shape, dtype in zip(outputs.items(), shapes, dtypes, strict=True):
        check.array(name, a, np.dtype(dtype), shape, {})
    check.outputs(outputs, inputs)
    return given


def divisor_of(aggregate: Aggregate, n_trees: int) -> float:
    """What a sum over trees is divided by."""
    check.choice("aggregate", aggregate, AGGREGATES)
    return float(n_trees) if aggregate == "mean" else 1.0


def flat(a: Array, n_leading: int, n_outputs: int) -> Array:
    """Trailing output axes as one, so that backends see one layout."""
    return a if a.ndim == n_leading + 1 else a.reshape(*a.shape[:n_leading], n_outputs)


def outputs_shape(
    n_samples: int, n_trees: int, outputs: tuple[int, ...], aggregate: Aggregate
) -> tuple[int, ...]:
    """Shape of y."""
    return (n_samples, *outputs) if aggregate else (n_samples, n_trees, *outputs)


def touched(backend: Any, index: IntArray, n_slots: int) -> tuple[IntArray, IntArray]:
    """Where the rows of each tree start, and the rows: sorted, each once."""
    empty = dispatch.empty(index)
    n_samples, n_trees = index.shape
    start = empty(n_trees + 1, np.int64)
    rows = empty(n_trees * min(n_samples, n_slots), np.int64)
    backend.touched(index, n_slots, start, rows)
    return start, rows[: int(start[-1])]


def check_linear_depth(kind: Kind, projections: FloatArray) -> check.Sizes:
    """Sizes that follow from the second axis of projections."""
    n_vertices = projections.shape[1] if projections.ndim == 3 else 0
    depth = n_vertices if kind == "fern" else (n_vertices + 1).bit_length() - 1
    if not 1 <= depth <= check.MAX_DEPTH or n_vertices != (depth if kind == "fern" else 2**depth - 1):
        raise ValueError(
            f"projections: expected shape (n_trees, {VERTICES[kind]}, n_features) with 1 <= depth <= "
            f"{check.MAX_DEPTH}, got {tuple(projections.shape)}; pass a row of n_features for each vertex"
        )
    return {"2**depth": 2**depth, VERTICES[kind]: n_vertices}


def check_linear_routing(
    kind: Kind, x: FloatArray, thresholds: FloatArray, projections: FloatArray
) -> check.Sizes:
    """Checks what a traversal with inner products reads; returns the sizes of the call."""
    dtype = check.floating("x", x)
    sizes = check_depth(kind, "thresholds", thresholds)
    check.array("x", x, dtype, ("n_samples", "n_features"), sizes)
    check.array("thresholds", thresholds, dtype, ("n_trees", VERTICES[kind]), sizes)
    check.array("projections", projections, dtype, ("n_trees", VERTICES[kind], "n_features"), sizes)
    check.at_least_one(sizes, "n_trees", "n_features")
    if check.values_checked():
        check.finite("x", x, remedy=check.OF_LAYERS)
        check.not_nan("thresholds", thresholds)
        remedy = "training has diverged: lower the learning rate, or go back to a checkpoint"
        _no_nan("projections", projections, remedy, finite=True)
    return sizes
