"""Outputs of hinge trees and ferns: h(x) = w_leaf |r*| (Lay et al. 2018, eq. 10)."""

from typing import Literal, overload

import numpy as np

from ..core import check, dispatch
from ..core.aliases import FloatArray, IntArray
from .shared import (
    PACKAGE,
    Aggregate,
    Kind,
    Route,
    check_route,
    check_routing,
    check_weights,
    divisor_of,
    flat,
    outputs_shape,
    results,
)


def _forward(
    kind: Kind,
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    weights: FloatArray,
    aggregate: Aggregate,
    return_route: bool,
    out: FloatArray | None,
) -> FloatArray | tuple[FloatArray, Route]:
    if return_route is not False:
        check.flag("return_route", return_route)
    check.same_device(x=x, thresholds=thresholds, features=features, weights=weights)
    sizes = check_routing(kind, x, thresholds, features)
    outputs = check_weights(weights, x.dtype, sizes)
    n, n_trees, n_outputs = sizes["n_samples"], sizes["n_trees"], sizes["n_outputs"]
    divisor = divisor_of(aggregate, n_trees)
    inputs = {"x": x, "thresholds": thresholds, "features": features, "weights": weights}
    shape = outputs_shape(n, n_trees, outputs, aggregate)
    (y,) = results(("y",), out, (shape,), (x.dtype,), inputs)
    w = flat(weights, 2, n_outputs)
    flat_y = flat(y, 1 if aggregate else 2, n_outputs)
    route = None
    if return_route:
        empty = dispatch.empty(x)
        leaf, margin, vertex = (empty((n, n_trees), dtype) for dtype in (np.int32, x.dtype, np.int32))
        route = Route(leaf, margin, vertex)
    backend = dispatch.backend(PACKAGE, x)
    getattr(backend, f"{kind}_forward")(x, thresholds, features, w, divisor, flat_y, route)
    return y if route is None else (y, route)


@overload
def tree_forward(
    x: FloatArray, thresholds: FloatArray, features: IntArray, weights: FloatArray, *,
    aggregate: Aggregate = None, return_route: Literal[False] = False, out: FloatArray | None = None,
) -> FloatArray: ...  # fmt: skip
@overload
def tree_forward(
    x: FloatArray, thresholds: FloatArray, features: IntArray, weights: FloatArray, *,
    aggregate: Aggregate = None, return_route: Literal[True], out: FloatArray | None = None,
) -> tuple[FloatArray, Route]: ...  # fmt: skip
@overload
def tree_forward(
    x: FloatArray, thresholds: FloatArray, features: IntArray, weights: FloatArray, *,
    aggregate: Aggregate = None, return_route: bool, out: FloatArray | None = None,
) -> FloatArray | tuple[FloatArray, Route]: ...  # fmt: skip
def tree_forward(
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    weights: FloatArray,
    *,
    aggregate: Aggregate = None,
    return_route: bool = False,
    out: FloatArray | None = None,
) -> FloatArray | tuple[FloatArray, Route]:
    """Outputs of hinge trees: h(x) = w_leaf |r*| (Lay et al. 2018, eq. 10).

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Finite. Zero samples are legal.
    thresholds, features : (n_trees, 2**depth - 1) arrays, dtype of x and int32
        As `tree_traverse` takes them.
    weights : (n_trees, 2**depth, *outputs) array, dtype of x
        Leaf weights of any trailing shape.
    aggregate : None, "sum" or "mean"
        None keeps the trees apart; "sum" and "mean" add their outputs in float64 in the order of the trees.
    return_route : bool
        Also return the route, an argument of `tree_backward`.
    out : array, optional
        Array for y, with its shape and the dtype of x.

    Returns
    -------
    y : (n_samples, n_trees, *outputs) array, or (n_samples, *outputs) with `aggregate`
        In the unit of weights times x. With `aggregate` the outputs of single trees are not stored.
    route : Route
        (leaf, margin, vertex), with `return_route` only.

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


@overload
def fern_forward(
    x: FloatArray, thresholds: FloatArray, features: IntArray, weights: FloatArray, *,
    aggregate: Aggregate = None, return_route: Literal[False] = False, out: FloatArray | None = None,
) -> FloatArray: ...  # fmt: skip
@overload
def fern_forward(
    x: FloatArray, thresholds: FloatArray, features: IntArray, weights: FloatArray, *,
    aggregate: Aggregate = None, return_route: Literal[True], out: FloatArray | None = None,
) -> tuple[FloatArray, Route]: ...  # fmt: skip
@overload
def fern_forward(
    x: FloatArray, thresholds: FloatArray, features: IntArray, weights: FloatArray, *,
    aggregate: Aggregate = None, return_route: bool, out: FloatArray | None = None,
) -> FloatArray | tuple[FloatArray, Route]: ...  # fmt: skip
def fern_forward(
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    weights: FloatArray,
    *,
    aggregate: Aggregate = None,
    return_route: bool = False,
    out: FloatArray | None = None,
) -> FloatArray | tuple[FloatArray, Route]:
    """Outputs of hinge ferns: h(x) = w_leaf |r*| (Lay et al. 2018, eq. 10).

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Finite. Zero samples are legal.
    thresholds, features : (n_ferns, depth) arrays, dtype of x and int32
        As `fern_traverse` takes them.
    weights : (n_ferns, 2**depth, *outputs) array, dtype of x
        Leaf weights of any trailing shape.
    aggregate : None, "sum" or "mean"
        None keeps the ferns apart; "sum" and "mean" add their outputs in float64 in the order of the ferns.
    return_route : bool
        Also return the route, an argument of `fern_backward`.
    out : array, optional
        Array for y, with its shape and the dtype of x.

    Returns
    -------
    y : (n_samples, n_ferns, *outputs) array, or (n_samples, *outputs) with `aggregate`
        In the unit of weights times x.
    route : Route
        (leaf, margin, vertex), with `return_route` only.

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
    leaf: IntArray,
    margin: FloatArray,
    weights: FloatArray,
    *,
    aggregate: Aggregate = None,
    out: FloatArray | None = None,
) -> FloatArray:
    """Outputs of known routes: w_leaf |r*| (Lay et al. 2018, eq. 10), for trees and ferns.

    `tree_forward(x, t, f, w)` is `tree_traverse`, then `leaf_outputs`. Between the two a training loop can
    bring the touched rows of the weights up to date (`leaf_rows`, `optim.adam_catch_up`).

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
    shape = outputs_shape(sizes["n_samples"], sizes["n_trees"], outputs, aggregate)
    inputs = {"leaf": leaf, "margin": margin, "weights": weights}
    (y,) = results(("y",), out, (shape,), (margin.dtype,), inputs)
    n_outputs = sizes["n_outputs"]
    dispatch.backend(PACKAGE, leaf).leaf_outputs(
        leaf, margin, flat(weights, 2, n_outputs), divisor, flat(y, 1 if aggregate else 2, n_outputs)
    )
    return y
