"""The operators of hinge forests without any check, for callers who own their arrays.

Arguments and meaning are those of the functions of `hforest.hinge` of the same names; every result is written
into `out`. What a checked call refuses may read or write outside the arrays here: call these functions with
arrays that a checked call has taken, or made. A gradient that needs only the shape of x takes `x_shape` in its
place.
"""

import math
from typing import Any

import numpy as np

from ..core import dispatch
from ..core.aliases import Array, FloatArray, IntArray
from ..core.windows import Windows, geometry
from .margins import MARGINS
from .shared import (
    PACKAGE,
    REDUCTIONS,
    Aggregate,
    Gradients,
    Kind,
    Reduction,
    Route,
    RowGradient,
    as_rows,
    as_samples,
)

__all__ = ["backward", "backward_sparse", "forward", "leaf_outputs", "touched_rows", "traverse"]


def _outputs_of(weights: FloatArray) -> FloatArray:
    # (n_trees, n_leaves, n_outputs), as backends take weights.
    return weights if weights.ndim == 3 else weights.reshape(*weights.shape[:2], -1)


def _flat_y(y: FloatArray, weights: FloatArray, reduction: Reduction) -> FloatArray:
    # (n_samples, n_outputs), or with an axis of trees; so do backends tell a sum.
    shape: tuple[int, ...] = (len(weights), weights.shape[2]) if reduction.apart else (weights.shape[2],)
    return y if y.shape[1:] == shape else y.reshape(y.size // math.prod(shape), *shape)


def traverse(
    x: FloatArray,
    thresholds: FloatArray,
    features: Array,
    *,
    kind: Kind = "tree",
    margin: str = "column",
    windows: Windows | None = None,
    out: Route,
) -> None:
    """Writes the leaf, the margin nearest to zero and its vertex (Lay et al. 2018, Alg. 3)."""
    places = None if windows is None else geometry("x", x.shape, windows)
    dispatch.backend(PACKAGE, x).traverse(
        kind, margin, as_rows(x, windows), thresholds, features, as_samples(out), places
    )


def forward(
    x: FloatArray,
    thresholds: FloatArray,
    features: Array,
    weights: FloatArray,
    *,
    kind: Kind = "tree",
    margin: str = "column",
    windows: Windows | None = None,
    aggregate: Aggregate = None,
    out: FloatArray,
    route: Route | None = None,
) -> None:
    """Writes the outputs, and the route where one is given (Lay et al. 2018, eq. 10)."""
    reduction, w = REDUCTIONS[aggregate], _outputs_of(weights)
    places = None if windows is None else geometry("x", x.shape, windows)
    y = _flat_y(out, w, reduction)
    sums = y
    if reduction.combine is not None:
        sums = dispatch.empty(x)((len(y), len(w), w.shape[2]), x.dtype)
    dispatch.backend(PACKAGE, x).forward(
        kind, margin, as_rows(x, windows), thresholds, features, w, reduction.divisor(len(w)), sums,
        None if route is None else as_samples(route), places,
    )  # fmt: skip
    if reduction.combine is not None:
        y[...] = reduction.combine(sums)


def leaf_outputs(
    leaf: IntArray, margin: FloatArray, weights: FloatArray, *, aggregate: Aggregate = None, out: FloatArray
) -> None:
    """Writes the outputs of known routes (Lay et al. 2018, eq. 10)."""
    reduction, w = REDUCTIONS[aggregate], _outputs_of(weights)
    y, (leaf, margin, _) = _flat_y(out, w, reduction), as_samples((leaf, margin, leaf))
    backend = dispatch.backend(PACKAGE, leaf)
    if reduction.combine is None:
        backend.leaf_outputs(leaf, margin, w, reduction.divisor(len(w)), y)
        return
    y[...] = reduction.combine(_apart(leaf, margin, w))


def _apart(leaf: IntArray, margin: FloatArray, weights: FloatArray) -> FloatArray:
    apart: FloatArray = dispatch.empty(leaf)((*leaf.shape, weights.shape[2]), margin.dtype)
    dispatch.backend(PACKAGE, leaf).leaf_outputs(leaf, margin, weights, 1.0, apart)
    return apart


def touched_rows(index: IntArray, n_slots: int) -> tuple[IntArray, IntArray]:
    """Returns where the rows of each tree start, and the rows m * n_slots + index[:, m]: sorted, each once."""
    empty = dispatch.empty(index)
    n_samples, n_trees = index.shape
    start = empty(n_trees + 1, np.int64)
    rows = empty(n_trees * min(n_samples, n_slots), np.int64)
    dispatch.backend(PACKAGE, index).touched(index, n_slots, start, rows)
    return start, rows[: int(start[-1])]


def _backward(
    grad_y: FloatArray,
    route: Route,
    x: FloatArray | None,
    features: Array,
    weights: FloatArray,
    margin: str,
    windows: Windows | None,
    aggregate: Aggregate,
    rows: Any,
    out: Gradients,
) -> None:
    # rows: of vertices and of leaves as `touched_rows` returns them, or None for dense gradients.
    reduction = REDUCTIONS[aggregate]
    places = None if windows is None else geometry("x", out.x.shape, windows)
    g = _flat_y(grad_y, weights, reduction)
    if reduction.pull is not None:
        g = reduction.pull(g, _apart(route.leaf, route.margin, weights))
    dispatch.backend(PACKAGE, route.leaf).backward(
        margin, g, route, None if x is None else as_rows(x, windows), features, weights,
        reduction.divisor(len(weights)), rows, out._replace(x=as_rows(out.x, windows)), places,
    )  # fmt: skip


def backward(
    grad_y: FloatArray,
    route: Route,
    x: FloatArray | None,
    thresholds: FloatArray | None,
    features: Array,
    weights: FloatArray,
    *,
    kind: Kind = "tree",
    margin: str = "column",
    windows: Windows | None = None,
    aggregate: Aggregate = None,
    out: Gradients,
) -> None:
    """Writes dense gradients (Lay et al. 2018, eq. 11-12).

    x may be None where the margin's gradient needs only its shape, which is that of ``out.x``; thresholds and
    kind are not read.
    """
    w = _outputs_of(weights)
    grads = out._replace(weights=_outputs_of(out.weights))
    _backward(grad_y, as_samples(route), x, features, w, margin, windows, aggregate, None, grads)


def backward_sparse(
    grad_y: FloatArray,
    route: Route,
    x: FloatArray | None,
    thresholds: FloatArray | None,
    features: Array,
    weights: FloatArray,
    *,
    kind: Kind = "tree",
    margin: str = "column",
    windows: Windows | None = None,
    aggregate: Aggregate = None,
    out: FloatArray,
) -> Gradients:
    """Writes the gradient with respect to x; returns it with those at touched rows, whose number is not known.

    As `backward`.
    """
    route, w, empty = as_samples(route), _outputs_of(weights), dispatch.empty(route[0])
    vertices, leaves = touched_rows(route.vertex, features.shape[1]), touched_rows(route.leaf, w.shape[1])
    n_vertices, n_leaves, dtype = len(vertices[1]), len(leaves[1]), route.margin.dtype
    learned = MARGINS[margin].learned
    by_threshold, by_weight = empty(n_vertices, dtype), empty((n_leaves, w.shape[2]), dtype)
    by_feature = empty((n_vertices, *features.shape[2:]), dtype) if learned else None
    grads = Gradients(out, by_threshold, by_feature, by_weight)
    _backward(grad_y, route, x, features, w, margin, windows, aggregate, (vertices, leaves), grads)
    return Gradients(
        out,
        RowGradient(vertices[1], by_threshold),
        None if by_feature is None else RowGradient(vertices[1], by_feature),
        RowGradient(leaves[1], by_weight.reshape(n_leaves, *weights.shape[2:])),
    )
