"""Hinge trees and ferns as operators: routes, outputs and gradients (Lay et al. 2018, Alg. 3, eq. 10-12)."""

from typing import Any

import numpy as np

from ..core import check, dispatch
from ..core.aliases import Array, FloatArray, IntArray
from ..core.windows import Windows
from . import kernels, prepared
from .margins import MarginName
from .prepared import Prepared
from .shared import (
    Aggregate,
    Call,
    Gradients,
    Kind,
    Route,
    check_call,
    check_grad_y,
    check_leaves,
    check_route,
    check_weights,
    named_route,
    new_route,
    reduction_of,
    results,
)

_ROUTE = Route._fields


def traverse(
    x: FloatArray,
    thresholds: FloatArray,
    features: Array,
    *,
    kind: Kind = "tree",
    margin: MarginName = "column",
    windows: Windows | None = None,
    out: Route | None = None,
) -> Route:
    """Returns the leaf of each sample in each tree, and the margin nearest to zero (Lay et al. 2018, Alg. 3).

    At vertex v the margin is r_v = x[f_v] - t_v, or f_v . x - t_v with ``margin="projection"``. A sample goes
    right if r_v > 0, so a tie goes left. A tree decides at the vertices on the path to a leaf. A fern decides
    once per level, independent of earlier decisions. Parameters: see `forward`.

    Returns
    -------
    Route
        A NamedTuple of three arrays (n_samples, n_trees), with `windows` (n_images, *out, n_trees):
    leaf : array of int32
        Leaf, 0 to 2**depth - 1, from left to right in a tree. Its bits are the decisions, the first one the
        most significant.
    margin : array, dtype of x
        Signed margin r* of least magnitude on the path.
    vertex : array of int32
        Vertex with that margin; of equal magnitudes the first on the path.

    Notes
    -----
    Cost: depth gathers from x, or inner products, per sample and tree. With `windows` the padding is 0, and
    no array of all windows is made. An inner product has eight partial sums in float64, element k in sum k
    mod 8, which are added in a fixed order and rounded once. Routes are bit-identical on every device and for
    every number of threads.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.5, 2.0]])
    >>> t = np.array([[0.0, 9.0, 1.75]]); f = np.array([[0, 0, 1]], dtype=np.int32)
    >>> leaf, margin, vertex = hforest.hinge.traverse(x, t, f)
    >>> leaf, margin, vertex
    (array([[3]], dtype=int32), array([[0.25]]), array([[2]], dtype=int32))
    >>> hforest.hinge.traverse(x, t[:, :2], f[:, :2], kind="fern").leaf
    array([[2]], dtype=int32)
    >>> p = np.array([[[1.0, 0], [1, 1], [1, 0.5]]])
    >>> hforest.hinge.traverse(x, t, p, margin="projection").margin
    array([[-0.25]])
    >>> images = np.array([[[1.0, 5.0, 2.0, 8.0]]])  # one channel, one axis; the second column of a window
    >>> windows = hforest.hinge.Windows(2)
    >>> t, f = np.array([[3.0]]), np.array([[1]], dtype=np.int32)
    >>> hforest.hinge.traverse(images, t, f, windows=windows).leaf.ravel()
    array([1, 0, 1], dtype=int32)
    """
    inputs = {"x": x, "thresholds": thresholds, "features": features}
    check.same_device(**inputs)
    call = check_call(kind, margin, windows, x, thresholds, features)
    shape = (*call.places, len(thresholds))
    if out is None:
        route = new_route(x, shape, x.dtype)
    else:
        route = Route(*results(_ROUTE, out, (shape,) * 3, (np.int32, x.dtype, np.int32), inputs))
    kernels.traverse(x, thresholds, features, kind=kind, margin=margin, windows=windows, out=route)
    return route


def check_forward(
    kind: Kind,
    margin: str,
    windows: Windows | None,
    aggregate: Aggregate,
    inputs: dict[str, Array],
) -> tuple[Call, tuple[int, ...]]:
    """Checks the arguments of a forward call, four arrays by name; returns the call, and the shape of y."""
    check.same_device(**inputs)
    x, thresholds, features, weights = inputs.values()
    call = check_call(kind, margin, windows, x, thresholds, features)
    outputs = check_weights(weights, x.dtype, call.sizes)
    trees = (len(weights),) if reduction_of(aggregate).apart else ()
    return call, (*call.places, *trees, *outputs)


def forward(
    x: FloatArray,
    thresholds: FloatArray | Prepared,
    features: Array | None = None,
    weights: FloatArray | None = None,
    *,
    kind: Kind = "tree",
    margin: MarginName = "column",
    windows: Windows | None = None,
    aggregate: Aggregate = None,
    out: FloatArray | None = None,
) -> FloatArray:
    """Returns the outputs of hinge trees or ferns, h(x) = w_leaf |r*| (Lay et al. 2018, eq. 10).

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Samples, finite; n_samples may be 0. With `windows`, images (n_images, channels, *space) with one to
        three spatial axes.
    thresholds : (n_trees, n_vertices) array, dtype of x, or Prepared
        Thresholds, in the unit of the margin. A tree has 2**depth - 1 vertices in heap order; a fern has
        depth vertices, the first for the leaf's most significant bit. An infinite threshold sends all samples
        to one side. A forest of `prepare` stands for thresholds, features and weights; then kind, margin and
        windows are left out.
    features : (n_trees, n_vertices) array of int32, or (n_trees, n_vertices, n_features) array, dtype of x
        Column of x that each vertex compares with its threshold. With ``margin="projection"`` a finite,
        learned vector, whose inner product with x the vertex compares.
    kind : "tree" or "fern"
        A tree has 2**depth - 1 vertices. A fern has depth vertices, one per level.
    margin : "column" or "projection"
        Vertices compare columns of x, or inner products of x with learned vectors.
    windows : Windows, optional
        Samples are windows of images, with channels * kernel size features, channel by channel.
    weights : (n_trees, 2**depth, *outputs) array, dtype of x
        Leaf weights; outputs have any shape.
    aggregate : None, "sum" or "mean"
        None keeps the outputs of trees separate; "sum" and "mean" combine them, in float64 in the order of
        the trees.

    Returns
    -------
    y : (n_samples, n_trees, *outputs) array, or (n_samples, *outputs) with `aggregate`
        Outputs, dtype of x, in the unit of weights times that of the margin. With `windows` the first axis
        becomes (n_images, *out): ``numpy.moveaxis(y, -1, 1)`` is a view with the outputs as channels.

    Notes
    -----
    Cost: a traversal and one row of weights per sample and tree, and a check of all thresholds and features;
    for single samples `prepare` the forest. Extra memory does not grow with n_samples, and with `aggregate`
    the outputs of single trees are not stored.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.5, 2.0]])
    >>> t = np.array([[0.0, 9.0, 1.75]]); f = np.array([[0, 0, 1]], dtype=np.int32)
    >>> w = np.array([[1.0, 2.0, 3.0, 4.0]])
    >>> hforest.hinge.forward(x, t, f, w)
    array([[1.]])
    >>> hforest.hinge.forward(x, t[:, :2], f[:, :2], w, kind="fern", aggregate="sum")
    array([1.5])
    """
    named: dict[str, Any] = {"thresholds": thresholds, "features": features, "weights": weights}
    if isinstance(thresholds, Prepared):
        _check_words(named, (kind, margin, windows), thresholds)
        if (result := prepared.forward(thresholds, x, aggregate, out)) is not None:
            return result
        kind, margin, windows = thresholds.kind, thresholds.margin, thresholds.windows
        named = thresholds.parameters._asdict()  # the checks of the arrays raise
    inputs: dict[str, Any] = {"x": x, **named}
    _, shape = check_forward(kind, margin, windows, aggregate, inputs)
    y = (
        dispatch.empty(x)(shape, x.dtype)
        if out is None
        else results(("y",), out, (shape,), (x.dtype,), inputs)[0]
    )
    kernels.forward(**inputs, kind=kind, margin=margin, windows=windows, aggregate=aggregate, out=y)
    return y


def _check_words(named: dict[str, Any], words: tuple[Any, ...], forest: Prepared) -> None:
    """Checks that a prepared forest is called without arrays, and with no words or its own."""
    for name in ("features", "weights"):
        check.require(
            named[name] is None, name, "None with a prepared forest", type(named[name]).__name__,
            "pass x and the forest alone, or the three arrays", TypeError,
        )  # fmt: skip
    own, defaults = (forest.kind, forest.margin, forest.windows), ("tree", "column", None)
    for name, word, mine, default in zip(("kind", "margin", "windows"), words, own, defaults, strict=True):
        check.require(
            word is default or word == mine, name, f"{mine!r}, as the forest was prepared", repr(word),
            f"leave {name} out",
        )  # fmt: skip


def forward_with_route(
    x: FloatArray,
    thresholds: FloatArray,
    features: Array,
    weights: FloatArray,
    *,
    kind: Kind = "tree",
    margin: MarginName = "column",
    windows: Windows | None = None,
    aggregate: Aggregate = None,
    out: tuple[FloatArray, Route] | None = None,
) -> tuple[FloatArray, Route]:
    """Returns the outputs of `forward` and the route that `backward` takes (Lay et al. 2018, Alg. 3, eq. 10).

    Parameters: see `forward`.

    Returns
    -------
    y : array
        As `forward` returns it.
    route : Route
        As `traverse` returns it.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.5, 2.0]])
    >>> t = np.array([[0.0, 9.0, 1.75]]); f = np.array([[0, 0, 1]], dtype=np.int32)
    >>> y, route = hforest.hinge.forward_with_route(x, t, f, np.array([[1.0, 2.0, 3.0, 4.0]]))
    >>> y, route.leaf
    (array([[1.]]), array([[3]], dtype=int32))
    """
    inputs = {"x": x, "thresholds": thresholds, "features": features, "weights": weights}
    call, shape = check_forward(kind, margin, windows, aggregate, inputs)
    pairs = (*call.places, len(thresholds))
    if out is None:
        y, route = dispatch.empty(x)(shape, x.dtype), new_route(x, pairs, x.dtype)
    else:
        if not isinstance(out, tuple) or len(out) != 2 or not isinstance(out[1], tuple):
            raise TypeError(
                f"out: expected (y, route), got {type(out).__name__}; pass the result of an earlier call"
            )
        dtypes = (x.dtype, np.int32, x.dtype, np.int32)
        shapes = (shape, pairs, pairs, pairs)
        y, *arrays = results(("y", *_ROUTE), (out[0], *out[1]), shapes, dtypes, inputs)
        route = Route(*arrays)
    kernels.forward(
        x, thresholds, features, weights, kind=kind, margin=margin, windows=windows, aggregate=aggregate,
        out=y, route=route,
    )  # fmt: skip
    return y, route


def check_backward(
    kind: Kind,
    margin: str,
    windows: Windows | None,
    aggregate: Aggregate,
    grad_y: FloatArray,
    route: Any,
    inputs: dict[str, Array],
) -> tuple[Route, Call]:
    """Checks the arguments of a backward call; returns the route with one axis of samples, and the call."""
    check.same_device(grad_y=grad_y, **named_route(route), **inputs)
    x, thresholds, features, weights = inputs.values()
    with check.together(x):
        call = check_call(kind, margin, windows, x, thresholds, features, route=True)
        dtype = x.dtype
        samples = check_route(route, dtype, call, kind, features)
        outputs = check_weights(weights, dtype, call.sizes)
        if len(samples.leaf) > check.MAX_COUNT:
            check.integer("n_samples", len(samples.leaf), 0, check.MAX_COUNT)
        trees = ("n_trees",) if reduction_of(aggregate).apart else ()
        check_grad_y(grad_y, dtype, (*call.axes, *trees, *outputs), call.sizes)
    return samples, call


def backward(
    grad_y: FloatArray,
    route: Route,
    x: FloatArray,
    thresholds: FloatArray,
    features: Array,
    weights: FloatArray,
    *,
    kind: Kind = "tree",
    margin: MarginName = "column",
    windows: Windows | None = None,
    aggregate: Aggregate = None,
    out: Gradients | None = None,
) -> Gradients:
    """Returns gradients of a loss with respect to the arguments of `forward` (Lay et al. 2018, eq. 11-12).

    With G = dL/dy, each pair of a sample n and a tree m adds, at its leaf l, margin r* and vertex v*,

    * s dr/dx to dL/dx[n], s dr/df to dL/df[m, v*] and -s to dL/dt[m, v*] (eq. 11), with the slope s = sgn(r*)
      sum_k w[m, l, k] G[n, m, k] and sgn(0) = 0. dr/dx is 1 at the column of v*, or it is the vector of v*;
      then dr/df is x[n];
    * abs(r*) G[n, m, k] to dL/dw[m, l, k] (eq. 12).

    No tree is traversed again. Values of thresholds are not read, those of x only with
    ``margin="projection"``. Other parameters: see `forward`.

    Parameters
    ----------
    grad_y : array, dtype of x
        Gradient of the loss with respect to y, in the shape of y.
    route : Route
        From `forward_with_route` or `traverse` on the same arguments.

    Returns
    -------
    Gradients
        (x, thresholds, features, weights), each with the shape of the argument; `features` is None for
        columns.

    Notes
    -----
    Cost: two rows of weights per sample and tree, and one write of every parameter. Sums over samples run in
    float64 in the order of the samples. The gradient with respect to x is summed in its dtype in the order of
    the trees; that of images in float64 over windows and trees in their order.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.5, 2.0]])
    >>> t = np.array([[0.0, 9.0, 1.75]]); f = np.array([[0, 0, 1]], dtype=np.int32)
    >>> w = np.array([[1.0, 2.0, 3.0, 4.0]])
    >>> y, route = hforest.hinge.forward_with_route(x, t, f, w)
    >>> grads = hforest.hinge.backward(np.ones_like(y), route, x, t, f, w)
    >>> grads.x, grads.thresholds, grads.weights
    (array([[0., 4.]]), array([[ 0.,  0., -4.]]), array([[0.  , 0.  , 0.  , 0.25]]))
    >>> p = np.array([[[1.0, 0], [1, 1], [1, 0.5]]])
    >>> y, route = hforest.hinge.forward_with_route(x, t, p, w, margin="projection")
    >>> hforest.hinge.backward(np.ones_like(y), route, x, t, p, w, margin="projection").x
    array([[-3. , -1.5]])
    """
    inputs = {"x": x, "thresholds": thresholds, "features": features, "weights": weights}
    samples, call = check_backward(kind, margin, windows, aggregate, grad_y, route, inputs)
    learned, dtype, like = call.margin.learned, x.dtype, dispatch.empty(x)
    if out is None:
        by_feature = like(features.shape, dtype) if learned else None
        shapes = x.shape, thresholds.shape, weights.shape
        by_x, by_threshold, by_weight = [like(shape, dtype) for shape in shapes]
        grads = Gradients(by_x, by_threshold, by_feature, by_weight)
    else:
        grads = _check_gradients(out, inputs, learned, {"grad_y": grad_y, **named_route(route)})
    kernels.backward(
        grad_y, samples, x, thresholds, features, weights,
        kind=kind, margin=margin, windows=windows, aggregate=aggregate, out=grads,
    )  # fmt: skip
    return grads


def _check_gradients(
    out: Any, inputs: dict[str, Array], learned: bool, others: dict[str, Array]
) -> Gradients:
    if not isinstance(out, tuple) or len(out) != 4:
        raise TypeError(
            f"out: expected Gradients, got {type(out).__name__}; pass the result of an earlier call"
        )
    written = {k: a for k, a in zip(inputs, out, strict=True) if k != "features" or learned}
    names, shapes = tuple(f"grad_{k}" for k in written), tuple(inputs[k].shape for k in written)
    dtypes = (inputs["x"].dtype,) * len(names)
    results(names, tuple(written.values()), shapes, dtypes, {**inputs, **others})
    return Gradients(**{"features": None, **written})


def backward_sparse(
    grad_y: FloatArray,
    route: Route,
    x: FloatArray,
    thresholds: FloatArray,
    features: Array,
    weights: FloatArray,
    *,
    kind: Kind = "tree",
    margin: MarginName = "column",
    windows: Windows | None = None,
    aggregate: Aggregate = None,
    out: FloatArray | None = None,
) -> Gradients:
    """Returns gradients as `backward`, but of parameters only at touched rows (Lay et al. 2018, eq. 11-12).

    Other parameters: see `backward`.

    Parameters
    ----------
    out : array, optional
        Array for the gradient with respect to x.

    Returns
    -------
    Gradients
        `x` as `backward` returns it; `thresholds`, `features` and `weights` are RowGradients: `rows`
        (n_rows,) int64 over the flattened (tree, vertex) or (tree, leaf) axis, ascending and distinct, and
        `values` (n_rows, ...). `features` has the rows of thresholds, or is None for columns.

    Notes
    -----
    Values are bit-identical to those of `backward`. Cost: per sample and tree as there. On a CPU only touched
    rows are read and written, so the cost does not grow with the number of vertices but by cache misses.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.5, 2.0]])
    >>> t = np.array([[0.0, 9.0, 1.75]]); f = np.array([[0, 0, 1]], dtype=np.int32)
    >>> w = np.array([[1.0, 2.0, 3.0, 4.0]])
    >>> y, route = hforest.hinge.forward_with_route(x, t, f, w)
    >>> hforest.hinge.backward_sparse(np.ones_like(y), route, x, t, f, w).weights
    RowGradient(rows=array([3]), values=array([0.25]))
    """
    inputs = {"x": x, "thresholds": thresholds, "features": features, "weights": weights}
    samples, _ = check_backward(kind, margin, windows, aggregate, grad_y, route, inputs)
    read = inputs if out is None else {**inputs, "grad_y": grad_y, **named_route(route)}
    (grad_x,) = results(("grad_x",), out, (x.shape,), (x.dtype,), read)
    return kernels.backward_sparse(
        grad_y, samples, x, thresholds, features, weights,
        kind=kind, margin=margin, windows=windows, aggregate=aggregate, out=grad_x,
    )  # fmt: skip


def leaf_outputs(
    leaf: IntArray,
    margin: FloatArray,
    weights: FloatArray,
    *,
    aggregate: Aggregate = None,
    out: FloatArray | None = None,
) -> FloatArray:
    """Returns the outputs of known routes, w_leaf |r*| (Lay et al. 2018, eq. 10), for any kind and margin.

    `forward` equals `traverse`, then `leaf_outputs`. Between them a training loop can bring the touched rows
    of the weights up to date (`leaf_rows`, `optim.adam_catch_up`). Other parameters: see `forward`.

    Parameters
    ----------
    leaf : (n_samples, n_trees) array of int32, or (n_images, *out, n_trees)
        As `traverse` returns it.
    margin : array of float32 or float64, shape of leaf
        Margins r*.
    weights : (n_trees, n_leaves, *outputs) array, dtype of margin
        Leaf weights.

    Returns
    -------
    y : (n_samples, n_trees, *outputs) array, or (n_samples, *outputs) with `aggregate`

    Notes
    -----
    Cost: one row of weights per sample and tree.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> leaf = np.array([[1]], dtype=np.int32); margin = np.array([[-0.5]])
    >>> hforest.hinge.leaf_outputs(leaf, margin, np.array([[10.0, 20.0]]))
    array([[10.]])
    """
    inputs = {"leaf": leaf, "margin": margin, "weights": weights}
    check.same_device(**inputs)
    sizes: check.Sizes = {}
    dtype = check_leaves(leaf, margin, sizes, leaf.shape[:-1] if leaf.ndim > 2 else ("n_samples",))
    check.array("weights", weights, dtype, ("n_trees", "n_leaves", ...), sizes)
    outputs = tuple(weights.shape[2:])
    sizes["n_outputs"] = int(np.prod(outputs, dtype=np.int64))
    check.at_least_one(sizes, "n_leaves", "n_outputs")
    check.indices("leaf", leaf, sizes["n_leaves"], "n_leaves")
    trees = (len(weights),) if reduction_of(aggregate).apart else ()
    (y,) = results(("y",), out, ((*leaf.shape[:-1], *trees, *outputs),), (dtype,), inputs)
    kernels.leaf_outputs(leaf, margin, weights, aggregate=aggregate, out=y)
    return y
