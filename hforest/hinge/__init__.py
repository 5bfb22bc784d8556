"""Random hinge trees and ferns: routing by the margin nearest to zero, differentiable almost everywhere.

Paper 1 (p1): N. Lay, A. P. Harrison, S. Schreiber, G. Dawer, A. Barbu, *Random Hinge Forest for
Differentiable Learning*, 2018.

A forest is three arrays. A complete tree of depth D has V = 2**D - 1 vertices in heap order (root 0,
left child 2v + 1, right child 2v + 2) and L = 2**D leaves numbered from left to right; a fern has V = D
decisions, the first of which gives the leaf's most significant bit.

=============  =======================  ===============  ==========================================
`thresholds`   (n_trees, V)             float32/float64  t_v, in the unit of the input
`features`     (n_trees, V)             int32            f_v, column of the input
`weights`      (n_trees, L, *outputs)   as thresholds    w_leaf, in the unit of the output per margin
=============  =======================  ===============  ==========================================

Everything here takes C-contiguous NumPy arrays or CuPy arrays and returns arrays of the same kind.
Wrong kinds and dtypes raise TypeError, wrong shapes and values ValueError, indices out of range
IndexError; the checks that read whole arrays can be skipped inside `hforest.unchecked()`.
"""

from typing import Any, NamedTuple

import numpy as np

from ..core import check, dispatch
from ..core.dispatch import Array
from . import quick
from .init import (
    fern_init,
    fern_median_thresholds,
    tree_greedy_init,
    tree_init,
    tree_median_thresholds,
    tree_repair_thresholds,
    tree_thresholds_consistent,
)
from .shared import (
    ROOM,
    VERTICES,
    Aggregate,
    Kind,
    Route,
    check_depth,
    check_route,
    check_routing,
    check_weights,
    divisor_of,
    flat,
    results,
)
from .training import (
    AdamState,
    adam_catch_up,
    adam_state,
    fern_adam_backward,
    fern_adam_forward,
    tree_adam_backward,
    tree_adam_forward,
)

__all__ = [
    "AdamState",
    "TreePath",
    "adam_catch_up",
    "adam_state",
    "fern_adam_backward",
    "fern_adam_forward",
    "fern_backward",
    "fern_forward",
    "fern_init",
    "fern_median_thresholds",
    "fern_traverse",
    "leaf_counts",
    "leaf_outputs",
    "leaf_rows",
    "tree_adam_backward",
    "tree_adam_forward",
    "tree_backward",
    "tree_forward",
    "tree_greedy_init",
    "tree_init",
    "tree_median_thresholds",
    "tree_path",
    "tree_repair_thresholds",
    "tree_thresholds_consistent",
    "tree_traverse",
]

# ------------------------------------------------------------------------------------------ routing


def _traverse(kind: Kind, x: Array, thresholds: Array, features: Array, out: Route | None) -> Route:
    if out is None and not dispatch.is_forced():
        route = quick.traverse(kind == "fern", x, thresholds, features, check.values_checked())
        if route is not None:
            return route
    check.same_device(x=x, thresholds=thresholds, features=features)
    sizes = check_routing(kind, x, thresholds, features)
    shape = (sizes["n_samples"], sizes["n_trees"])
    inputs = {"x": x, "thresholds": thresholds, "features": features}
    leaf, margin, vertex = results(
        ("leaf", "margin", "vertex"), out, (shape,) * 3, (np.int32, x.dtype, np.int32), inputs
    )
    getattr(dispatch.twin(ROOM, x), f"{kind}_traverse")(x, thresholds, features, leaf, margin, vertex)
    return leaf, margin, vertex


def tree_traverse(x: Array, thresholds: Array, features: Array, *, out: Route | None = None) -> Route:
    """Route samples through trees and keep the decision nearest to zero (p1 Alg. 3).

    At vertex v the margin is r_v = x[f_v] - t_v; a sample goes right if r_v > 0, so a tie goes left.

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Finite. Zero samples are legal.
    thresholds : (n_trees, 2**depth - 1) array, dtype of x
        In the unit of x. Infinite thresholds are legal: such a vertex sends every sample one way.
    features : (n_trees, 2**depth - 1) array of int32
        Column of x that each vertex looks at.
    out : tuple of three arrays, optional
        Arrays for the results, with their shapes and dtypes.

    Returns
    -------
    leaf : (n_samples, n_trees) array of int32
        Leaf reached, 0 to 2**depth - 1 from left to right.
    margin : (n_samples, n_trees) array, dtype of x
        Signed margin r* of least magnitude on the path.
    vertex : (n_samples, n_trees) array of int32
        Where it was, in heap order; of equal magnitudes the one nearest the root.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape, layout or NaN; a feature outside x.

    Notes
    -----
    Cost: depth gathers from x per sample and tree. Leaves, margins and vertices have the same bits on
    every device, with every number of threads.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.5, 2.0]])
    >>> t = np.array([[0.0, 9.0, 1.75]]); f = np.array([[0, 0, 1]], dtype=np.int32)
    >>> hforest.hinge.tree_traverse(x, t, f)
    (array([[3]], dtype=int32), array([[0.25]]), array([[2]], dtype=int32))
    """
    return _traverse("tree", x, thresholds, features, out)


def fern_traverse(x: Array, thresholds: Array, features: Array, *, out: Route | None = None) -> Route:
    """Route samples through ferns and keep the decision nearest to zero (p1 Alg. 3 and end of §3).

    As `tree_traverse`, with one decision a level, whatever the decisions before it.

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Finite. Zero samples are legal.
    thresholds : (n_ferns, depth) array, dtype of x
        In the unit of x.
    features : (n_ferns, depth) array of int32
        Column of x that each decision looks at.
    out : tuple of three arrays, optional
        Arrays for the results, with their shapes and dtypes.

    Returns
    -------
    leaf : (n_samples, n_ferns) array of int32
        The decisions as a binary number, the first one its most significant bit.
    margin : (n_samples, n_ferns) array, dtype of x
        Signed margin of least magnitude.
    vertex : (n_samples, n_ferns) array of int32
        Number of that decision, 0 to depth - 1; of equal magnitudes the first.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape, layout or NaN; a feature outside x.

    Notes
    -----
    Cost: depth gathers from x per sample and fern.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.5, 2.0]])
    >>> t = np.array([[0.0, 9.0]]); f = np.array([[0, 1]], dtype=np.int32)
    >>> hforest.hinge.fern_traverse(x, t, f)
    (array([[2]], dtype=int32), array([[0.5]]), array([[0]], dtype=int32))
    """
    return _traverse("fern", x, thresholds, features, out)


# ------------------------------------------------------------------------------------------ outputs


def _outputs_shape(
    n_samples: int, n_trees: int, outputs: tuple[int, ...], aggregate: Aggregate
) -> tuple[int, ...]:
    return (n_samples, *outputs) if aggregate else (n_samples, n_trees, *outputs)


def _forward(
    kind: Kind,
    x: Array,
    thresholds: Array,
    features: Array,
    weights: Array,
    aggregate: Aggregate,
    return_route: bool,
    out: Array | None,
) -> Any:
    if out is None and not return_route and not dispatch.is_forced():
        y = quick.forward(kind == "fern", x, thresholds, features, weights, aggregate, check.values_checked())
        if y is not None:
            return y
    check.same_device(x=x, thresholds=thresholds, features=features, weights=weights)
    sizes = check_routing(kind, x, thresholds, features)
    outputs = check_weights(weights, x.dtype, sizes)
    n, n_trees, n_outputs = sizes["n_samples"], sizes["n_trees"], sizes["n_outputs"]
    divisor = divisor_of(aggregate, n_trees)
    inputs = {"x": x, "thresholds": thresholds, "features": features, "weights": weights}
    shape = _outputs_shape(n, n_trees, outputs, aggregate)
    (y,) = results(("y",), out, (shape,), (x.dtype,), inputs)
    w = flat(weights, 2, n_outputs)
    flat_y = flat(y, 1 if aggregate else 2, n_outputs)
    route = None
    if return_route:
        empty = dispatch.empty(x)
        leaf, margin, vertex = (empty((n, n_trees), dtype) for dtype in (np.int32, x.dtype, np.int32))
        route = leaf, margin, vertex
    twin = dispatch.twin(ROOM, x)
    getattr(twin, f"{kind}_forward")(x, thresholds, features, w, divisor, flat_y, route)
    return y if route is None else (y, route)


def tree_forward(
    x: Array,
    thresholds: Array,
    features: Array,
    weights: Array,
    *,
    aggregate: Aggregate = None,
    return_route: bool = False,
    out: Array | None = None,
) -> Any:
    """Outputs of hinge trees: h(x) = w_leaf |r*| (p1 eq 10).

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Finite. Zero samples are legal.
    thresholds, features : (n_trees, 2**depth - 1) arrays, dtype of x and int32
        As `tree_traverse` takes them.
    weights : (n_trees, 2**depth, *outputs) array, dtype of x
        Leaf weights of any trailing shape.
    aggregate : None, "sum" or "mean"
        Keep the trees apart, or add their outputs in float64 in the order of the trees.
    return_route : bool
        Also return (leaf, margin, vertex), which `tree_backward` asks for.
    out : array, optional
        Array for y, with its shape and the dtype of x.

    Returns
    -------
    y : (n_samples, n_trees, *outputs) array, or (n_samples, *outputs) with `aggregate`
        In the unit of weights times x. With `aggregate`, outputs of single trees are never stored.
    route : tuple of three arrays
        With `return_route` only.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape, layout or NaN; a feature outside x.

    Notes
    -----
    Cost: a traversal and one row of weights per sample and tree. Without `return_route`, extra memory
    does not grow with n_samples.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.5, 2.0]])
    >>> t = np.array([[0.0, 9.0, 1.75]]); f = np.array([[0, 0, 1]], dtype=np.int32)
    >>> w = np.array([[1.0, 2.0, 3.0, 4.0]])
    >>> hforest.hinge.tree_forward(x, t, f, w)
    array([[1.]])
    """
    return _forward("tree", x, thresholds, features, weights, aggregate, return_route, out)


def fern_forward(
    x: Array,
    thresholds: Array,
    features: Array,
    weights: Array,
    *,
    aggregate: Aggregate = None,
    return_route: bool = False,
    out: Array | None = None,
) -> Any:
    """Outputs of hinge ferns: h(x) = w_leaf |r*| (p1 eq 10).

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Finite. Zero samples are legal.
    thresholds, features : (n_ferns, depth) arrays, dtype of x and int32
        As `fern_traverse` takes them.
    weights : (n_ferns, 2**depth, *outputs) array, dtype of x
        Leaf weights of any trailing shape.
    aggregate : None, "sum" or "mean"
        Keep the ferns apart, or add their outputs in float64 in the order of the ferns.
    return_route : bool
        Also return (leaf, margin, vertex), which `fern_backward` asks for.
    out : array, optional
        Array for y, with its shape and the dtype of x.

    Returns
    -------
    y : (n_samples, n_ferns, *outputs) array, or (n_samples, *outputs) with `aggregate`
        In the unit of weights times x.
    route : tuple of three arrays
        With `return_route` only.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape, layout or NaN; a feature outside x.

    Notes
    -----
    Cost: a traversal and one row of weights per sample and fern.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.5, 2.0]])
    >>> t = np.array([[0.0, 9.0]]); f = np.array([[0, 1]], dtype=np.int32)
    >>> w = np.array([[1.0, 2.0, 3.0, 4.0]])
    >>> hforest.hinge.fern_forward(x, t, f, w, aggregate="sum")
    array([1.5])
    """
    return _forward("fern", x, thresholds, features, weights, aggregate, return_route, out)


def leaf_outputs(
    leaf: Array, margin: Array, weights: Array, *, aggregate: Aggregate = None, out: Array | None = None
) -> Array:
    """Outputs from routes already known: w_leaf |r*| (p1 eq 10), for trees and ferns alike.

    `tree_forward(x, t, f, w)` is `leaf_outputs` behind `tree_traverse`. Between the two a training
    loop can bring the touched rows of the weights up to date (`leaf_rows`, `optim.adam_catch_up`).

    Parameters
    ----------
    leaf : (n_samples, n_trees) array of int32
        Leaves reached.
    margin : (n_samples, n_trees) array of float32 or float64
        Margins r*.
    weights : (n_trees, n_leaves, *outputs) array, dtype of margin
        Leaf weights.
    aggregate : None, "sum" or "mean"
        As for `tree_forward`.
    out : array, optional
        Array for the result.

    Returns
    -------
    y : (n_samples, n_trees, *outputs) array, or (n_samples, *outputs) with `aggregate`

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape or layout; a leaf outside the weights.

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
    check.same_device(leaf=leaf, margin=margin, weights=weights)
    sizes: check.Sizes = {}
    check_route(leaf, margin, sizes)
    check.array("weights", weights, margin.dtype, ("n_trees", "n_leaves", ...), sizes)
    outputs = tuple(weights.shape[2:])
    sizes["n_outputs"] = int(np.prod(outputs, dtype=np.int64))
    check.at_least_one(sizes, "n_leaves", "n_outputs")
    check.indices("leaf", leaf, sizes["n_leaves"], "n_leaves")
    divisor = divisor_of(aggregate, sizes["n_trees"])
    shape = _outputs_shape(sizes["n_samples"], sizes["n_trees"], outputs, aggregate)
    inputs = {"leaf": leaf, "margin": margin, "weights": weights}
    (y,) = results(("y",), out, (shape,), (margin.dtype,), inputs)
    n_outputs = sizes["n_outputs"]
    dispatch.twin(ROOM, leaf).leaf_outputs(
        leaf, margin, flat(weights, 2, n_outputs), divisor, flat(y, 1 if aggregate else 2, n_outputs)
    )
    return y


# ---------------------------------------------------------------------------------------- gradients


def _backward(
    kind: Kind,
    grad_y: Array,
    leaf: Array,
    margin: Array,
    vertex: Array,
    features: Array,
    weights: Array,
    n_features: int,
    aggregate: Aggregate,
    sparse: bool,
    out: tuple[Array, Array, Array] | None,
) -> tuple[Array, Any, Any]:
    inputs = {
        "grad_y": grad_y,
        "leaf": leaf,
        "margin": margin,
        "vertex": vertex,
        "features": features,
        "weights": weights,
    }
    check.same_device(**inputs)
    n_features = check.integer("n_features", n_features, 1, 2**31 - 1)
    sizes = check_depth(kind, "features", features)
    dtype = check_route(leaf, margin, sizes)
    check.array("vertex", vertex, check.INT32, ("n_samples", "n_trees"), sizes)
    check.array("features", features, check.INT32, ("n_trees", VERTICES[kind]), sizes)
    outputs = check_weights(weights, dtype, sizes)
    n, n_trees, n_outputs = sizes["n_samples"], sizes["n_trees"], sizes["n_outputs"]
    check.integer("n_samples", n, 0, 2**31 - 1)
    divisor = divisor_of(aggregate, n_trees)
    check.array(
        "grad_y",
        grad_y,
        dtype,
        ("n_samples", *outputs) if aggregate else ("n_samples", "n_trees", *outputs),
        sizes,
    )
    check.indices("leaf", leaf, sizes["2**depth"], "2**depth")
    check.indices("vertex", vertex, features.shape[1], VERTICES[kind])
    check.indices("features", features, n_features, "n_features")
    twin = dispatch.twin(ROOM, leaf)
    g, w = flat(grad_y, 1 if aggregate else 2, n_outputs), flat(weights, 2, n_outputs)
    if not sparse:
        grad_x, grad_thresholds, grad_weights = results(
            ("grad_x", "grad_thresholds", "grad_weights"),
            out,
            ((n, n_features), features.shape, weights.shape),
            (dtype,) * 3,
            inputs,
        )
        by_weight = flat(grad_weights, 2, n_outputs)
        twin.backward(g, leaf, margin, vertex, features, w, divisor, grad_x, grad_thresholds, by_weight)
        return grad_x, grad_thresholds, grad_weights
    if out is not None:
        raise ValueError(
            "out: expected None with sparse=True, got arrays; the touched rows are not known beforehand"
        )
    vertex_start, vertex_rows = _touched(twin, vertex, features.shape[1])
    leaf_start, touched = _touched(twin, leaf, weights.shape[1])
    empty = dispatch.empty(leaf)
    grad_x = empty((n, n_features), dtype)
    grad_thresholds = empty(len(vertex_rows), dtype)
    grad_weights = empty((len(touched), n_outputs), dtype)
    twin.backward_sparse(
        g, leaf, margin, vertex, features, w, divisor, vertex_start, vertex_rows, leaf_start, touched,
        grad_x, grad_thresholds, grad_weights,
    )  # fmt: skip
    return grad_x, (vertex_rows, grad_thresholds), (touched, grad_weights.reshape(len(touched), *outputs))


def _touched(twin: Any, index: Array, n_slots: int) -> tuple[Array, Array]:
    # Where each tree's rows start, and the rows: sorted, each once.
    empty = dispatch.empty(index)
    n_samples, n_trees = index.shape
    start = empty(n_trees + 1, np.int64)
    rows = empty(n_trees * min(n_samples, n_slots), np.int64)
    twin.touched(index, n_slots, start, rows)
    return start, rows[: int(start[-1])]


def tree_backward(
    grad_y: Array,
    leaf: Array,
    margin: Array,
    vertex: Array,
    features: Array,
    weights: Array,
    n_features: int,
    *,
    aggregate: Aggregate = None,
    sparse: bool = False,
    out: tuple[Array, Array, Array] | None = None,
) -> tuple[Array, Any, Any]:
    """Gradients of a loss by the input, the thresholds and the weights of hinge trees (p1 eq 11-12).

    With G = dL/dy, each pair of a sample n and a tree m adds, at its leaf l, margin r* and vertex v*,

    * s = sgn(r*) sum_k w[m, l, k] G[n, m, k] to dL/dx[n, f[m, v*]] and -s to dL/dt[m, v*] (eq 11),
    * abs(r*) G[n, m, k] to dL/dw[m, l, k] (eq 12),

    with sgn(0) = 0. The route says everything: no tree is traversed again.

    Parameters
    ----------
    grad_y : array, dtype of margin
        dL/dy in the shape of y: (n_samples, n_trees, *outputs), or (n_samples, *outputs) with
        `aggregate`.
    leaf, margin, vertex : (n_samples, n_trees) arrays
        The route, from `tree_traverse` or `tree_forward(..., return_route=True)`.
    features : (n_trees, 2**depth - 1) array of int32
        Column of x that each vertex looks at.
    weights : (n_trees, 2**depth, *outputs) array, dtype of margin
        Leaf weights used in the forward call.
    n_features : int
        Columns of x.
    aggregate : None, "sum" or "mean"
        As in the forward call.
    sparse : bool
        Give the last two gradients at touched rows only.
    out : tuple of three arrays, optional
        Arrays for the dense gradients.

    Returns
    -------
    grad_x : (n_samples, n_features) array
    grad_thresholds : array of the shape of thresholds, or (rows, values)
        Sparse: `rows` (n_rows,) int64 over the flattened (tree, vertex) axis, ascending, each once,
        and `values` (n_rows,).
    grad_weights : array of the shape of weights, or (rows, values)
        Sparse: `rows` over the flattened (tree, leaf) axis and `values` (n_rows, *outputs).

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape or layout; a leaf, vertex or feature out of range.

    Notes
    -----
    Cost: two rows of weights per sample and tree; dense gradients also write every weight once, sparse
    ones only what was touched. Sums over samples run in float64 in the order of the samples.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.5, 2.0]])
    >>> t = np.array([[0.0, 9.0, 1.75]]); f = np.array([[0, 0, 1]], dtype=np.int32)
    >>> w = np.array([[1.0, 2.0, 3.0, 4.0]])
    >>> y, route = hforest.hinge.tree_forward(x, t, f, w, return_route=True)
    >>> grad_x, grad_t, grad_w = hforest.hinge.tree_backward(np.ones_like(y), *route, f, w, 2)
    >>> grad_x, grad_t, grad_w
    (array([[0., 4.]]), array([[ 0.,  0., -4.]]), array([[0.  , 0.  , 0.  , 0.25]]))
    >>> hforest.hinge.tree_backward(np.ones_like(y), *route, f, w, 2, sparse=True)[2]
    (array([3]), array([0.25]))
    """
    return _backward(
        "tree", grad_y, leaf, margin, vertex, features, weights, n_features, aggregate, sparse, out
    )


def fern_backward(
    grad_y: Array,
    leaf: Array,
    margin: Array,
    vertex: Array,
    features: Array,
    weights: Array,
    n_features: int,
    *,
    aggregate: Aggregate = None,
    sparse: bool = False,
    out: tuple[Array, Array, Array] | None = None,
) -> tuple[Array, Any, Any]:
    """Gradients of a loss by the input, the thresholds and the weights of hinge ferns (p1 eq 11-12).

    Parameters
    ----------
    grad_y : array, dtype of margin
        dL/dy in the shape of y.
    leaf, margin, vertex : (n_samples, n_ferns) arrays
        The route, from `fern_traverse` or `fern_forward(..., return_route=True)`.
    features : (n_ferns, depth) array of int32
        Column of x that each decision looks at.
    weights : (n_ferns, 2**depth, *outputs) array, dtype of margin
        Leaf weights used in the forward call.
    n_features : int
        Columns of x.
    aggregate : None, "sum" or "mean"
        As in the forward call.
    sparse : bool
        Give the last two gradients at touched rows only.
    out : tuple of three arrays, optional
        Arrays for the dense gradients.

    Returns
    -------
    grad_x : (n_samples, n_features) array
    grad_thresholds : array of the shape of thresholds, or (rows, values)
        Sparse: rows over the flattened (fern, decision) axis, ascending, each once.
    grad_weights : array of the shape of weights, or (rows, values)
        Sparse: rows over the flattened (fern, leaf) axis and values (n_rows, *outputs).

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape or layout; a leaf, vertex or feature out of range.

    Notes
    -----
    Equations and cost as for `tree_backward`.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.5, 2.0]])
    >>> t = np.array([[0.0, 9.0]]); f = np.array([[0, 1]], dtype=np.int32)
    >>> w = np.array([[1.0, 2.0, 3.0, 4.0]])
    >>> y, route = hforest.hinge.fern_forward(x, t, f, w, return_route=True)
    >>> hforest.hinge.fern_backward(np.ones_like(y), *route, f, w, 2)
    (array([[3., 0.]]), array([[-3.,  0.]]), array([[0. , 0. , 0.5, 0. ]]))
    """
    return _backward(
        "fern", grad_y, leaf, margin, vertex, features, weights, n_features, aggregate, sparse, out
    )


# ------------------------------------------------------------------------------------ looking inside


def leaf_rows(leaf: Array, n_leaves: int) -> Array:
    """Rows of the flattened (tree, leaf) axis that a batch touches, sorted, each once.

    These are the rows of the sparse weight gradient: what must be up to date before the batch is
    evaluated, and what its optimiser step moves.

    Parameters
    ----------
    leaf : (n_samples, n_trees) array of int32
        Leaves reached.
    n_leaves : int
        Leaves of a tree, 2**depth.

    Returns
    -------
    rows : (n_rows,) array of int64
        tree * n_leaves + leaf.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype; wrong shape or layout; a leaf that is not below n_leaves.

    Notes
    -----
    Cost: n_samples * n_trees, and a bit for each leaf.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> hforest.hinge.leaf_rows(np.array([[3, 0], [3, 1]], dtype=np.int32), 4)
    array([3, 4, 5])
    """
    _check_leaf(leaf, n_leaves)
    return _touched(dispatch.twin(ROOM, leaf), leaf, int(n_leaves))[1]


def _check_leaf(leaf: Array, n_leaves: int) -> None:
    check.same_device(leaf=leaf)
    sizes: check.Sizes = {}
    check.array("leaf", leaf, check.INT32, ("n_samples", "n_trees"), sizes)
    check.at_least_one(sizes, "n_trees")
    check.integer("n_leaves", n_leaves, 1, 2**check.MAX_DEPTH)
    check.indices("leaf", leaf, n_leaves, "n_leaves")


def leaf_counts(leaf: Array, n_leaves: int) -> Array:
    """Samples in each leaf of each tree.

    Parameters
    ----------
    leaf : (n_samples, n_trees) array of int32
        Leaves reached.
    n_leaves : int
        Leaves of a tree, 2**depth.

    Returns
    -------
    counts : (n_trees, n_leaves) array of int64

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype; wrong shape or layout; a leaf that is not below n_leaves.

    Notes
    -----
    Cost: n_samples * n_trees + n_trees * n_leaves.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> hforest.hinge.leaf_counts(np.array([[1], [1], [0]], dtype=np.int32), 2)
    array([[1, 2]])
    """
    _check_leaf(leaf, n_leaves)
    counts = dispatch.empty(leaf)((leaf.shape[1], int(n_leaves)), np.int64)
    dispatch.twin(ROOM, leaf).leaf_counts(leaf, counts)
    return counts


class TreePath(NamedTuple):
    """The decisions that led to a leaf; each array is (n_samples, n_trees, depth), root first."""

    vertex: Array
    """int32, heap order."""
    feature: Array
    """int32, column of x."""
    right: Array
    """bool, whether the sample went right (x > threshold)."""


def tree_path(leaf: Array, features: Array) -> TreePath:
    """Vertices, features and directions on the way to each sample's leaf.

    Parameters
    ----------
    leaf : (n_samples, n_trees) array of int32
        Leaves reached.
    features : (n_trees, 2**depth - 1) array of int32
        Column of x that each vertex looks at.

    Returns
    -------
    TreePath
        `vertex`, `feature`, `right`, each (n_samples, n_trees, depth).

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape or layout; a leaf that is not below 2**depth.

    Notes
    -----
    A leaf's bits are the directions, the root's the most significant: at level d the vertex is
    (2**d - 1) + (leaf >> (depth - d)). For a fern the path is the bits themselves.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> path = hforest.hinge.tree_path(np.array([[2]], dtype=np.int32), np.array([[5, 6, 7]], dtype=np.int32))
    >>> path.vertex.tolist(), path.feature.tolist(), path.right.tolist()
    ([[[0, 2]]], [[[5, 7]]], [[[True, False]]])
    """
    check.same_device(leaf=leaf, features=features)
    depth = check.tree_depth("features", features)
    sizes: check.Sizes = {"2**depth - 1": features.shape[1]}
    check.array("leaf", leaf, check.INT32, ("n_samples", "n_trees"), sizes)
    check.array("features", features, check.INT32, ("n_trees", "2**depth - 1"), sizes)
    check.at_least_one(sizes, "n_trees")
    check.indices("leaf", leaf, 2**depth, "2**depth")
    xp = dispatch.array_module(leaf)
    level = xp.arange(depth, dtype=np.int32)
    above = leaf[:, :, None] >> (depth - level)
    vertex = (2**level - 1 + above).astype(np.int32)
    feature = features[xp.arange(features.shape[0])[None, :, None], vertex]
    right = ((leaf[:, :, None] >> (depth - 1 - level)) & 1).astype(bool)
    return TreePath(vertex, feature, right)
