"""The operators of hinge forests without any check.

Arguments and results are those of the functions of the same names in `hforest.hinge`; every result is written
into `out` (of the functions for Adam ``(y, route)`` and grad_x). The caller guarantees the following.
Otherwise these functions read or write outside the arrays:

* Arrays are C-contiguous and aligned, on one device, of one dtype (float32 or float64); columns, leaves and
  vertices are int32.
* Shapes agree, those of `out` with what a checked call returns; only the axis of samples may be empty. No
  array of `out` shares memory with another argument.
* Words are those of the checked functions; columns, leaves and vertices are in their ranges.
* Steps of Adam are numbered 1, 2, ..., each once, with the same settings.

NaN does not crash: results are NaN, or a sample goes left. `backward` does not read thresholds, and with
``margin="column"`` not x: both may be None.
"""

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from .. import optim
from ..core import check, dispatch
from ..core.aliases import Array, FloatArray, IntArray
from ..core.windows import Windows, geometry
from ..layers.losses import as_loss, unchecked_softmax_loss
from ..optim.tables import tables
from .margins import MARGINS
from .shared import (
    EAGER,
    PACKAGE,
    REDUCTIONS,
    AdamState,
    Aggregate,
    Gradients,
    Kind,
    Reduction,
    Route,
    RowGradient,
    as_rows,
    as_samples,
    check_grad_y,
    flat,
)

__all__ = [
    "MARGINS",
    "adam_backward",
    "adam_forward",
    "adam_step",
    "backward",
    "backward_sparse",
    "check_changed",
    "forward",
    "leaf_outputs",
    "touched_rows",
    "traverse",
]


def _outputs_of(weights: FloatArray) -> FloatArray:
    # Returns (n_trees, n_leaves, n_outputs), the shape that backends take.
    return weights if weights.ndim == 3 else weights.reshape(*weights.shape[:2], -1)


def _flat_y(y: FloatArray, weights: FloatArray, reduction: Reduction) -> FloatArray:
    # Returns (n_samples, n_outputs), or with an axis of trees: its absence tells backends to sum.
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
    places = None
    if windows is not None:
        places, x = geometry("x", x.shape, windows), as_rows(x, windows)
    out = as_samples(out)
    dispatch.backend(PACKAGE, x).traverse(kind, margin, x, thresholds, features, out, places)


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
    """Writes the outputs, and the route if `route` is not None (Lay et al. 2018, eq. 10)."""
    reduction, w = REDUCTIONS[aggregate], _outputs_of(weights)
    places, sums = None, _flat_y(out, w, reduction)
    y = sums
    if windows is not None:
        places, x = geometry("x", x.shape, windows), as_rows(x, windows)
        route = None if route is None else as_samples(route)
    if reduction.combine is not None:
        sums = dispatch.empty(x)((len(y), len(w), w.shape[2]), x.dtype)
    dispatch.backend(PACKAGE, x).forward(
        kind, margin, x, thresholds, features, w, reduction.divisor(len(w)), sums, route, places
    )
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


def check_changed(
    grad_y: FloatArray,
    dtype: np.dtype,
    features: Array,
    x_shape: tuple[int, ...],
    *,
    margin: str = "column",
    windows: Windows | None = None,
    vertex: IntArray | None = None,
) -> None:
    """Checks what may have changed since a checked forward call: grad_y is finite, columns lie in x.

    vertex: that of the route, if only columns of its vertices are read. PyTorch's `Tensor.data` and shared
    memory of NumPy can change columns between the calls.
    """
    check_grad_y(grad_y, dtype, grad_y.shape, {})
    record = MARGINS[margin]
    if not record.learned and check.values_checked():
        n_columns = x_shape[1] if windows is None else geometry("x", x_shape, windows).n_columns
        named = None if vertex is None else as_samples((vertex, vertex, vertex)).vertex
        record.check(features, {"n_features": n_columns}, named)


def touched_rows(index: IntArray, n_slots: int) -> tuple[IntArray, IntArray]:
    """Returns where the rows of each tree m start, and the distinct rows m * n_slots + index[:, m]."""
    return _touched(dispatch.backend(PACKAGE, index), dispatch.empty(index), index, n_slots)


def _touched(backend: ModuleType, empty: Any, index: IntArray, n_slots: int) -> tuple[IntArray, IntArray]:
    n_samples, n_trees = index.shape
    start = empty(n_trees + 1, np.int64)
    rows = empty(n_trees * min(n_samples, n_slots), np.int64)
    backend.touched(index, n_slots, start, rows)
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
    g, places = _flat_y(grad_y, weights, reduction), None
    if windows is not None:
        places = geometry("x", out.x.shape, windows)
        x = None if x is None else as_rows(x, windows)
        out = Gradients(as_rows(out.x, windows), *out[1:])
    if reduction.pull is not None:
        g = reduction.pull(g, _apart(route.leaf, route.margin, weights))
    dispatch.backend(PACKAGE, route.leaf).backward(
        margin, g, route, x, features, weights, reduction.divisor(len(weights)), rows, out, places
    )


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

    x may be None if the margin's gradient needs only its shape, which is that of ``out.x``. thresholds and
    kind are not read.
    """
    if weights.ndim != 3:
        weights, out = _outputs_of(weights), Gradients(*out[:3], _outputs_of(out.weights))
    _backward(grad_y, as_samples(route), x, features, weights, margin, windows, aggregate, None, out)


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
    """Writes the gradient with respect to x; returns it, and new arrays of the gradients at touched rows."""
    route, w, empty = as_samples(route), _outputs_of(weights), dispatch.empty(route[0])
    backend = dispatch.backend(PACKAGE, route.leaf)
    vertices = _touched(backend, empty, route.vertex, features.shape[1])
    leaves = _touched(backend, empty, route.leaf, w.shape[1])
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


# ------------------------------------------------------------------------------------------- steps of Adam


class _Step(NamedTuple):
    """Arguments of a step of Adam on a forest."""

    thresholds: FloatArray
    features: Array
    weights: FloatArray
    state: AdamState
    step: int
    settings: dict[str, float]
    """lr, beta1, beta2 and eps."""

    def backend(self, run: str, x: Array, *arguments: Any, aggregate: Aggregate, to: tuple[Any, ...]) -> Any:
        """Returns what the backend's own step does, which moves only rows that a batch touches."""
        lr, beta1, beta2, eps = self.settings.values()
        settings = lr, beta1, beta2, eps, tables(x, beta1, beta2, self.step)
        w, m, v = (_outputs_of(a) for a in (self.weights, self.state.weights_m, self.state.weights_v))
        return getattr(dispatch.backend(PACKAGE, x), run)(
            *arguments, (self.thresholds, self.features, w), self.state._replace(weights_m=m, weights_v=v),
            self.step, settings, REDUCTIONS[aggregate].divisor(len(w)), *to,
        )  # fmt: skip

    def rows(self, name: str) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Returns a parameter and its moments with trees and their rows as one axis."""
        arrays = getattr(self, name), getattr(self.state, f"{name}_m"), getattr(self.state, f"{name}_v")
        param, m, v = (a.reshape(a.shape[0] * a.shape[1], *a.shape[2:]) for a in arrays)
        return param, m, v

    def move(self, name: str, gradient: RowGradient) -> None:
        """Takes a dense step of a parameter whose gradient is 0 except at some rows."""
        param, m, v = self.rows(name)
        grad = dispatch.array_module(param).zeros_like(param)
        grad[gradient.rows] = gradient.values
        optim.adam(param, grad, m, v, self.step, **self.settings)


def adam_forward(
    x: FloatArray,
    thresholds: FloatArray,
    features: Array,
    weights: FloatArray,
    state: AdamState,
    step: int,
    lr: float,
    *,
    kind: Kind = "tree",
    margin: str = "column",
    windows: Windows | None = None,
    aggregate: Aggregate = "sum",
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    out: tuple[FloatArray, Route],
) -> None:
    """Brings rows that a batch reads to step - 1; writes outputs and the route (Lay et al. 2018, eq. 10)."""
    settings: Any = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps}
    a, (y, route) = _Step(thresholds, features, weights, state, step, settings), out
    if margin == "column" and windows is None:
        n_outputs = math.prod(weights.shape[2:])
        a.backend("adam_forward", x, kind, x, aggregate=aggregate, to=(route, flat(y, 1, n_outputs)))
        return
    state.thresholds_last[:, :EAGER] = step - 1
    last = state.thresholds_last.reshape(-1)
    if MARGINS[margin].learned:
        optim.adam_catch_up(*a.rows("features"), last.copy(), step - 1, **settings)
    optim.adam_catch_up(*a.rows("thresholds"), last, step - 1, **settings)
    traverse(x, thresholds, features, kind=kind, margin=margin, windows=windows, out=route)
    _, rows = touched_rows(route.leaf.reshape(-1, len(weights)), weights.shape[1])
    optim.adam_catch_up(*a.rows("weights"), state.weights_last.reshape(-1), step - 1, **settings, rows=rows)
    leaf_outputs(route.leaf, route.margin, weights, aggregate=aggregate, out=y)


def adam_backward(
    grad_y: FloatArray,
    route: Route,
    x: FloatArray,
    thresholds: FloatArray,
    features: Array,
    weights: FloatArray,
    state: AdamState,
    step: int,
    lr: float,
    *,
    kind: Kind = "tree",
    margin: str = "column",
    windows: Windows | None = None,
    aggregate: Aggregate = "sum",
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    out: FloatArray,
) -> None:
    """Takes the step of Adam; writes the gradient with respect to x (Lay et al. 2018, eq. 11-12)."""
    settings = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps}
    a, samples = _Step(thresholds, features, weights, state, step, settings), as_samples(route)
    if margin == "column" and windows is None:
        g = flat(grad_y, 1, math.prod(weights.shape[2:]))
        a.backend("adam_backward", x, g, samples, aggregate=aggregate, to=(out,))
        return
    grads = backward_sparse(
        grad_y, samples, x, thresholds, features, weights,
        kind=kind, margin=margin, windows=windows, aggregate=aggregate, out=out,
    )  # fmt: skip
    a.move("thresholds", grads.thresholds)
    state.thresholds_last[...] = step
    if grads.features is not None:
        a.move("features", grads.features)
    param, m, v = a.rows("weights")
    rows, grad = grads.weights
    optim.adam_rows(param, rows, grad, m, v, state.weights_last.reshape(-1), step, **settings)


def adam_step(
    x: FloatArray,
    y: IntArray,
    thresholds: FloatArray,
    features: Array,
    weights: FloatArray,
    state: AdamState,
    step: int,
    lr: float,
    *,
    kind: Kind = "tree",
    margin: str = "column",
    windows: Windows | None = None,
    aggregate: Aggregate = "sum",
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    check_scores: Callable[[FloatArray], None] | None = None,
    out: tuple[FloatArray, Route, FloatArray],
) -> Any:
    """Takes a step of Adam on the softmax loss of int32 labels; returns it, writes scores, route and grad_x.

    check_scores is called before a parameter moves. Labels that are no class are allowed on a GPU alone.
    """
    scores, route, grad_x = out
    backend, n_classes = dispatch.backend(PACKAGE, x), weights.shape[2]
    forest = thresholds, features, weights, state, step
    settings = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps}
    is_plain = margin == "column" and windows is None and check_scores is None
    if is_plain and 0 < len(x) <= getattr(backend, "MOST_OF_STEP", 0):
        a = _Step(*forest, settings)
        to = route, scores, grad_x
        return as_loss(a.backend("adam_step", x, kind, x, y, aggregate=aggregate, to=to))
    words: Any = {**settings, "kind": kind, "margin": margin, "windows": windows, "aggregate": aggregate}
    adam_forward(x, *forest, **words, out=(scores, route))
    if check_scores is not None:
        check_scores(scores)
    loss, grad = unchecked_softmax_loss(scores.reshape(-1, n_classes), y.reshape(-1))
    adam_backward(grad.reshape(scores.shape), route, x, *forest, **words, out=grad_x)
    return loss
