"""What the public functions of this subpackage share: types, checks, results."""

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np

from ..core import check, dispatch
from ..core.aliases import Array, FloatArray, IntArray
from ..core.launch import numbers
from ..core.layout import by_last_axis
from ..core.windows import Geometry, Windows, check_images, geometry, positions
from ..optim.tables import Tables
from .margins import Margin, check_features

Kind = Literal["tree", "fern"]
Aggregate = Literal["sum", "mean"] | None
Arrays = tuple[FloatArray, IntArray, FloatArray]
"""Thresholds, features, weights."""
Settings = tuple[float, float, float, float, Tables]
"""Adam's lr, beta1, beta2, eps, and the tables of missed steps."""

VERTICES = {"tree": "2**depth - 1", "fern": "depth"}
_DEPTHS = {"tree": check.tree_depth, "fern": check.fern_depth}
PACKAGE = __package__


class Reduction(NamedTuple):
    """How outputs of trees are combined: as a sum in the backend, or by functions of the separate outputs."""

    apart: bool
    """y has an axis of trees."""
    divisor: Callable[[int], float] = lambda n_trees: 1.0
    """Returns the divisor of a sum over n_trees."""
    combine: Callable[[Array], Array] | None = None
    """Returns y (n_samples, n_outputs) from outputs (n_samples, n_trees, n_outputs)."""
    pull: Callable[[Array, Array], Array] | None = None
    """Returns the gradient with respect to the outputs, from the one with respect to y and the outputs."""


REDUCTIONS: dict[str | None, Reduction] = {
    None: Reduction(True),
    "sum": Reduction(False),
    "mean": Reduction(False, float),
}
"""Records by the words of `aggregate`."""


class Route(NamedTuple):
    """Routes of samples in trees; each array is (n_samples, n_trees), or (n_images, *out, n_trees).

    The samples of a tree are contiguous in the arrays that functions on the CPU return. Functions that take a
    route also take arrays in C order.
    """

    leaf: IntArray
    """int32, the leaf."""
    margin: FloatArray
    """Signed margin r* of least magnitude, dtype of x."""
    vertex: IntArray
    """int32, the vertex with that margin."""


class RowGradient(NamedTuple):
    """A gradient at some rows of a parameter with its first two axes flattened; it is 0 at the others."""

    rows: IntArray
    """(n_rows,) int64, ascending and distinct."""
    values: FloatArray
    """(n_rows, ...), a gradient for each row."""


class Gradients(NamedTuple):
    """Gradients of a loss with respect to the arguments of `forward`, dense or at touched rows."""

    x: FloatArray
    """The shape of x."""
    thresholds: Any
    """The shape of thresholds, or RowGradient over the flattened (tree, vertex) axis."""
    features: Any
    """The shape of features, or RowGradient with the rows of thresholds; None for columns."""
    weights: Any
    """The shape of weights, or RowGradient over the flattened (tree, leaf) axis."""


class Call(NamedTuple):
    """Results of the checks of a call."""

    margin: Margin
    sizes: check.Sizes
    places: tuple[int, ...]
    """Sizes of the axes of samples: (n_samples,), or (n_images, *out)."""
    axes: check.Axes
    """Axes of samples as checks name or count them: ("n_samples",), or (n_images, *out)."""
    geometry: Geometry | None


def check_depth(kind: Kind, name: str, a: Array) -> check.Sizes:
    """Returns the sizes that follow from the width of thresholds or features."""
    depth = _DEPTHS[check.choice("kind", kind, _DEPTHS)]
    return {"2**depth": 2 ** depth(name, a), VERTICES[kind]: a.shape[1]}


def check_call(
    kind: Kind,
    margin: str,
    windows: Windows | None,
    x: FloatArray,
    thresholds: FloatArray,
    features: Array,
    *,
    route: bool = False,
) -> Call:
    """Checks the arrays of a traversal; with a known route, values are left to `check_route`."""
    dtype = check.floating("x", x) if windows is None else check_images("x", x)
    sizes = check_depth(kind, "thresholds", thresholds)
    if windows is None:
        check.array("x", x, dtype, ("n_samples", "n_features"), sizes)
        shape = None
        places: tuple[int, ...] = (sizes["n_samples"],)
        axes: check.Axes = ("n_samples",)
    else:
        shape = geometry("x", x.shape, windows)
        places = (len(x), *positions(shape, x.ndim - 2))
        axes = places
        sizes["n_samples"], sizes["n_features"] = math.prod(places), shape.n_columns
    check.array("thresholds", thresholds, dtype, ("n_trees", VERTICES[kind]), sizes)
    record = check_features(margin, features, dtype, VERTICES[kind], sizes)
    check.at_least_one(sizes, "n_trees", "n_features")
    with check.together(x):
        if not route:
            check.finite("x", x, remedy=check.OF_LAYERS)
            check.not_nan("thresholds", thresholds)
            record.check(features, sizes, None)
    return Call(record, sizes, places, axes, shape)


def check_weights(weights: FloatArray, dtype: np.dtype, sizes: check.Sizes) -> tuple[int, ...]:
    """Checks leaf weights; returns their trailing shape."""
    check.array("weights", weights, dtype, ("n_trees", "2**depth", ...), sizes)
    outputs = tuple(weights.shape[2:])
    sizes["n_outputs"] = math.prod(outputs)
    check.at_least_one(sizes, "n_outputs")
    return outputs


def check_leaves(
    leaf: IntArray, margin: FloatArray, sizes: check.Sizes, places: check.Axes = ("n_samples",)
) -> np.dtype:
    """Checks leaves and margins of a route, and that no margin is NaN; returns the dtype of the margins."""
    dtype = check.floating("margin", margin)
    check.array("leaf", leaf, check.INT32, (*places, "n_trees"), sizes, last_first=True)
    check.array("margin", margin, dtype, (*places, "n_trees"), sizes, last_first=True)
    check.at_least_one(sizes, "n_trees")
    check.not_nan("margin", margin, remedy=OF_FORWARD)
    return dtype


def check_route(route: Any, dtype: np.dtype, call: "Call", kind: Kind, features: Array) -> Route:
    """Checks the route of a call and the columns that it names; returns it with one axis of samples."""
    leaf, margin, vertex = route
    axes: check.Axes = (*call.axes, "n_trees")
    sizes = call.sizes
    check.array("route.leaf", leaf, check.INT32, axes, sizes, last_first=True)
    check.array("route.margin", margin, dtype, axes, sizes, last_first=True)
    check.array("route.vertex", vertex, check.INT32, axes, sizes, last_first=True)
    samples = as_samples(route)
    with check.together(samples.leaf):
        check.not_nan("route.margin", samples.margin, remedy=OF_FORWARD)
        check.indices("route.leaf", samples.leaf, sizes["2**depth"], "2**depth")
        check.indices("route.vertex", samples.vertex, sizes[VERTICES[kind]], VERTICES[kind])
        if not call.margin.learned:
            call.margin.check(features, sizes, samples.vertex)
    return samples


OF_FORWARD = "pass the route as the forward call returned it"


def named_route(route: Any) -> dict[str, Array]:
    """Returns the three arrays of a route by their names in messages, after a check of their number."""
    if not isinstance(route, tuple) or len(route) != 3:
        raise TypeError(
            f"route: expected (leaf, margin, vertex), got {type(route).__name__}; pass the route that "
            "traverse or forward_with_route returned"
        )
    return {"route.leaf": route[0], "route.margin": route[1], "route.vertex": route[2]}


def check_grad_y(grad_y: FloatArray, dtype: np.dtype, shape: tuple[Any, ...], sizes: check.Sizes) -> None:
    """Checks a gradient with respect to y; outside of `unchecked()` it must be finite."""
    axes = getattr(grad_y, "ndim", len(shape))
    if axes != len(shape):
        raise ValueError(
            f"grad_y: expected {len(shape)} axes, as y has with this aggregate, got {axes}; pass the "
            "gradient with respect to y, and the aggregate of the forward call"
        )
    check.array("grad_y", grad_y, dtype, shape, sizes)
    remedy = "the loss has diverged: lower the learning rate, or go back to a checkpoint"
    check.finite("grad_y", grad_y, remedy=remedy)


def reduction_of(aggregate: Aggregate) -> Reduction:
    """Returns the record of a word."""
    return REDUCTIONS[check.choice("aggregate", aggregate, REDUCTIONS)]


def results(
    names: tuple[str, ...],
    out: Any,
    shapes: tuple[Any, ...],
    dtypes: tuple[Any, ...],
    inputs: dict[str, Array],
) -> tuple[Array, ...]:
    """Returns new arrays, or the caller's after a check of dtype, shape, overlap and permission to write."""
    like = next(iter(inputs.values()))
    if out is None:
        empty = dispatch.empty(like)
        return tuple(map(empty, shapes, dtypes))
    arrays = out if len(names) > 1 else (out,)
    if not isinstance(arrays, tuple) or len(arrays) != len(names):
        raise TypeError(
            f"out: expected a tuple of {len(names)} arrays ({', '.join(names)}), "
            f"got {type(out).__name__}; pass (" + ", ".join(names) + ")"
        )
    labels = [f"out {name}" for name in names] if len(names) > 1 else ["out"]
    outputs = dict(zip(labels, arrays, strict=True))
    check.same_device(**inputs, **outputs)
    fields = () if dispatch.runs_on_gpu(like) else Route._fields
    for (name, a), shape, dtype in zip(outputs.items(), shapes, dtypes, strict=True):
        check.array(name, a, np.dtype(dtype), shape, {}, last_first=name[4:] in fields)
    check.outputs(outputs, inputs)
    if names[-1] == Route._fields[-1] and not _in_one_order(arrays[-3:]):
        raise ValueError(
            f"out: expected leaf, margin and vertex in one memory order, got strides "
            f"{[a.strides for a in arrays[-3:]]}; pass the route of an earlier call"
        )
    return arrays


(EAGER,) = numbers("hinge/eager.h", "HF_EAGER")
"""Number of vertices of the first ten levels. They move at every step of Adam: a batch of about fifty samples
reaches most of them, and a vector instruction moves up to sixteen neighbours."""


class AdamState(NamedTuple):
    """State of Adam for a forest, which `adam_state` makes and training functions change in place.

    `adam_sync` checks the values of the moments, for it reads all of them. In a step the check would cost
    more than the step. There second moments that are NaN, infinite or below 0 make the parameters NaN that a
    batch reads.
    """

    thresholds_m: FloatArray
    """First moments, shape and dtype of thresholds."""
    thresholds_v: FloatArray
    """Second moments."""
    thresholds_last: IntArray
    """(n_trees, n_vertices) int64: last step of each vertex. The first ten levels move at every step; only
    `adam_sync` writes their entries."""
    weights_m: FloatArray
    """First moments, shape and dtype of weights."""
    weights_v: FloatArray
    """Second moments."""
    weights_last: IntArray
    """(n_trees, n_leaves) int64: last step of each leaf."""
    features_m: FloatArray | None = None
    """First moments of learned features, or None; they move at every step."""
    features_v: FloatArray | None = None
    """Second moments."""


def new_route(like: Array, shape: tuple[int, ...], dtype: np.dtype) -> Route:
    """Returns new arrays of a route on the device of `like`.

    On the CPU the samples of a tree are contiguous, and the arrays share one block of memory: allocators keep
    a freed block of up to 32 MB for the next step of a training loop, but give smaller ones back.
    """
    if dispatch.runs_on_gpu(like):
        empty = dispatch.empty(like)
        return Route(empty(shape, check.INT32), empty(shape, dtype), empty(shape, check.INT32))
    n, by_tree, axes = math.prod(shape), (shape[-1], *shape[:-1]), (*range(1, len(shape)), 0)
    word, real = check.INT32.itemsize, dtype.itemsize
    block = np.empty(n * (real + 2 * word), np.uint8)
    parts = ((check.INT32, n * real), (dtype, 0), (check.INT32, n * (real + word)))
    return Route(*(np.ndarray(by_tree, kind, block, start).transpose(axes) for kind, start in parts))


def flat(a: Array, n_leading: int, n_outputs: int) -> Array:
    """Returns `a` with its trailing output axes as one, so that backends see one layout."""
    return a if a.ndim == n_leading + 1 else a.reshape(*a.shape[:n_leading], n_outputs)


def as_rows(x: FloatArray, windows: Windows | None) -> FloatArray:
    """Returns rows unchanged, or images as (n_images, numbers of an image)."""
    return x if windows is None else x.reshape(x.shape[0], math.prod(x.shape[1:]))


def _in_one_order(arrays: Any) -> bool:
    # Returns whether all arrays of a route are in C order, or all have the same steps in elements.
    c_order = [a.flags.c_contiguous for a in arrays]
    steps = {tuple(s // a.itemsize for s in a.strides) for a in arrays}
    return all(c_order) or (len(steps) == 1 and not any(c_order))


def owned_leaf(leaf: IntArray) -> IntArray:
    """Returns a read-only copy of leaves (n_samples, n_trees), by `check.owned`, in their memory order."""
    return check.owned(leaf) if leaf.flags.c_contiguous else check.owned(leaf.T).T


def as_samples(route: Any) -> Route:
    """Returns a route with images and positions as one axis of samples, and its arrays in one memory order.

    That of a GPU is C order.
    """
    c_order = [a.flags.c_contiguous for a in route]
    as_is = all(c_order) or (_in_one_order(route) and not dispatch.runs_on_gpu(route[0]))
    arrays = tuple(route) if as_is else tuple(map(np.ascontiguousarray, route))
    if arrays[0].ndim == 2:
        return route if type(route) is Route and arrays[0] is route[0] else Route(*arrays)
    shape = math.prod(arrays[0].shape[:-1]), arrays[0].shape[-1]
    if arrays[0].flags.c_contiguous:
        return Route(*(a.reshape(shape) for a in arrays))
    return Route(*(by_last_axis(a).reshape(shape[::-1]).T for a in arrays))


def forward_in_chunks(
    backend: ModuleType,
    kind: Kind,
    margin: str,
    x: FloatArray,
    thresholds: FloatArray,
    features: Array,
    weights: FloatArray,
    divisor: float,
    y: FloatArray,
    route: Route | None,
    windows: Geometry | None,
) -> None:
    """Writes y by `backend.traverse` and `backend.leaf_outputs`, in chunks if the caller wants no route."""
    n_rows, n_trees, samples = len(x), len(thresholds), windows.n_positions if windows else 1
    chunk = min(max(1, backend.PAIRS // (n_trees * samples)), n_rows)
    arrays = new_route(x, (chunk * samples, n_trees), x.dtype) if route is None else route
    if route is not None or chunk == n_rows:
        backend.traverse(kind, margin, x, thresholds, features, arrays, windows)
        backend.leaf_outputs(arrays[0], arrays[1], weights, divisor, y)
        return
    for start in range(0, n_rows, chunk):
        n = min(chunk, n_rows - start)
        part = Route(*(a[: n * samples] for a in arrays))
        backend.traverse(kind, margin, x[start : start + n], thresholds, features, part, windows)
        rows = y[start * samples : (start + n) * samples]
        backend.leaf_outputs(part.leaf, part.margin, weights, divisor, rows)
