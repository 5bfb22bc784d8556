"""Hinge trees and ferns with an inner product at each vertex: routes and outputs (Lay et al. 2018, Fig. 2,
Alg. 3, eq. 10).

The margin of vertex v of tree m is r_v = p_mv . x - t_mv: a linear layer of n_trees * n_vertices outputs
below a forest each of whose vertices reads an output of its own. Of these outputs a call computes those on
the paths of the samples.
"""

from typing import Literal, overload

import numpy as np

from ..core import check, dispatch
from ..core.aliases import FloatArray
from .shared import (
    PACKAGE,
    Aggregate,
    Kind,
    Route,
    check_linear_routing,
    check_weights,
    divisor_of,
    flat,
    outputs_shape,
    results,
)

PAIRS = 1 << 20
"""Pairs of a sample and a tree that are routed before their leaves are summed: bounds the workspace."""


def _traverse(
    kind: Kind, x: FloatArray, thresholds: FloatArray, projections: FloatArray, out: Route | None
) -> Route:
    inputs = {"x": x, "thresholds": thresholds, "projections": projections}
    check.same_device(**inputs)
    sizes = check_linear_routing(kind, x, thresholds, projections)
    shape = (sizes["n_samples"], sizes["n_trees"])
    route = Route(
        *results(("leaf", "margin", "vertex"), out, (shape,) * 3, (np.int32, x.dtype, np.int32), inputs)
    )
    getattr(dispatch.backend(PACKAGE, x), f"{kind}_linear_traverse")(x, thresholds, projections, *route)
    return route


def tree_linear_traverse(
    x: FloatArray, thresholds: FloatArray, projections: FloatArray, *, out: Route | None = None
) -> Route:
    """The leaf of each sample in each tree, with an inner product at each vertex (Lay et al. 2018, Fig. 2 and
    Alg. 3).

    At vertex v of tree m the margin is r_v = p_mv . x - t_mv; a sample goes right if r_v > 0.

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Finite. Zero samples are legal.
    thresholds : (n_trees, 2**depth - 1) array, dtype of x
        In the unit of the inner products. Infinite thresholds are legal.
    projections : (n_trees, 2**depth - 1, n_features) array, dtype of x
        The vector p_mv of each vertex, finite.
    out : tuple of three arrays, optional
        Arrays for leaf, margin and vertex, with their shapes and dtypes.

    Returns
    -------
    Route
        A NamedTuple of three arrays:
    leaf : (n_samples, n_trees) array of int32
        Leaf reached, 0 to 2**depth - 1 from left to right.
    margin : (n_samples, n_trees) array, dtype of x
        Signed margin r* of least magnitude on the path.
    vertex : (n_samples, n_trees) array of int32
        The vertex with that margin, in heap order; of equal magnitudes the one nearest the root.

    Raises
    ------
    TypeError, ValueError
        Wrong dtype or device; wrong shape, layout or NaN.

    Notes
    -----
    Equal to `tree_traverse` on ``x @ projections.reshape(-1, n_features).T`` with a column for each vertex,
    to the rounding of the products, which may change the side of a sample within rounding of a threshold.
    An inner product has eight partial sums in float64, element k in sum k mod 8, which are added in a fixed
    order and rounded once: the same bits on every device, with every number of threads.

    Cost: depth inner products per sample and tree, in place of 2**depth - 1.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.5, 2.0]])
    >>> t = np.array([[0.0, 9.0, 1.75]]); p = np.array([[[1.0, 0], [1, 1], [1, 0.5]]])
    >>> leaf, margin, vertex = hforest.hinge.tree_linear_traverse(x, t, p)
    >>> leaf, margin, vertex
    (array([[2]], dtype=int32), array([[-0.25]]), array([[2]], dtype=int32))
    """
    return _traverse("tree", x, thresholds, projections, out)


def fern_linear_traverse(
    x: FloatArray, thresholds: FloatArray, projections: FloatArray, *, out: Route | None = None
) -> Route:
    """The leaf of each sample in each fern, with an inner product at each decision (Lay et al. 2018, Fig. 2
    and Alg. 3).

    As `tree_linear_traverse`, with one decision a level, whatever the decisions before it.

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Finite. Zero samples are legal.
    thresholds : (n_ferns, depth) array, dtype of x
        In the unit of the inner products.
    projections : (n_ferns, depth, n_features) array, dtype of x
        The vector of each decision, finite.
    out : tuple of three arrays, optional
        Arrays for leaf, margin and vertex, with their shapes and dtypes.

    Returns
    -------
    Route
        A NamedTuple of three arrays:
    leaf : (n_samples, n_ferns) array of int32
        The decisions as a binary number, the first one its most significant bit.
    margin : (n_samples, n_ferns) array, dtype of x
        Signed margin of least magnitude.
    vertex : (n_samples, n_ferns) array of int32
        Number of that decision, 0 to depth - 1; of equal magnitudes the first.

    Raises
    ------
    TypeError, ValueError
        Wrong dtype or device; wrong shape, layout or NaN.

    Notes
    -----
    Cost: depth inner products per sample and fern, as many as the linear layer has.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.5, 2.0]])
    >>> t = np.array([[0.0, 9.0]]); p = np.array([[[1.0, 1], [1, 3]]])
    >>> hforest.hinge.fern_linear_traverse(x, t, p)
    Route(leaf=array([[2]], dtype=int32), margin=array([[2.5]]), vertex=array([[0]], dtype=int32))
    """
    return _traverse("fern", x, thresholds, projections, out)


def _forward(
    kind: Kind,
    x: FloatArray,
    thresholds: FloatArray,
    projections: FloatArray,
    weights: FloatArray,
    aggregate: Aggregate,
    return_route: bool,
    out: FloatArray | None,
) -> FloatArray | tuple[FloatArray, Route]:
    check.flag("return_route", return_route)
    inputs = {"x": x, "thresholds": thresholds, "projections": projections, "weights": weights}
    check.same_device(**inputs)
    sizes = check_linear_routing(kind, x, thresholds, projections)
    outputs = check_weights(weights, x.dtype, sizes)
    n, n_trees, n_outputs = sizes["n_samples"], sizes["n_trees"], sizes["n_outputs"]
    divisor = divisor_of(aggregate, n_trees)
    (y,) = results(("y",), out, (outputs_shape(n, n_trees, outputs, aggregate),), (x.dtype,), inputs)
    w, flat_y = flat(weights, 2, n_outputs), flat(y, 1 if aggregate else 2, n_outputs)
    backend, empty = dispatch.backend(PACKAGE, x), dispatch.empty(x)
    traverse = getattr(backend, f"{kind}_linear_traverse")
    # Without a route to return, a part of the samples at a time: the workspace does not grow with them.
    size = n if return_route else min(n, max(1, PAIRS // n_trees))
    route = Route(*(empty((size, n_trees), dtype) for dtype in (np.int32, x.dtype, np.int32)))
    for start in range(0, n, size or 1):
        part, stop = slice(start, start + size), min(size, n - start)
        leaf, margin, vertex = (a[:stop] for a in route)
        traverse(x[part], thresholds, projections, leaf, margin, vertex)
        backend.leaf_outputs(leaf, margin, w, divisor, flat_y[part])
    return (y, route) if return_route else y


@overload
def tree_linear_forward(
    x: FloatArray, thresholds: FloatArray, projections: FloatArray, weights: FloatArray, *,
    aggregate: Aggregate = None, return_route: Literal[False] = False, out: FloatArray | None = None,
) -> FloatArray: ...  # fmt: skip
@overload
def tree_linear_forward(
    x: FloatArray, thresholds: FloatArray, projections: FloatArray, weights: FloatArray, *,
    aggregate: Aggregate = None, return_route: Literal[True], out: FloatArray | None = None,
) -> tuple[FloatArray, Route]: ...  # fmt: skip
@overload
def tree_linear_forward(
    x: FloatArray, thresholds: FloatArray, projections: FloatArray, weights: FloatArray, *,
    aggregate: Aggregate = None, return_route: bool, out: FloatArray | None = None,
) -> FloatArray | tuple[FloatArray, Route]: ...  # fmt: skip
def tree_linear_forward(
    x: FloatArray,
    thresholds: FloatArray,
    projections: FloatArray,
    weights: FloatArray,
    *,
    aggregate: Aggregate = None,
    return_route: bool = False,
    out: FloatArray | None = None,
) -> FloatArray | tuple[FloatArray, Route]:
    """Outputs of hinge trees with an inner product at each vertex: h(x) = w_leaf |r*| (Lay et al. 2018,
    Fig. 2, eq. 10).

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Finite. Zero samples are legal.
    thresholds, projections : arrays, dtype of x
        As `tree_linear_traverse` takes them.
    weights : (n_trees, 2**depth, *outputs) array, dtype of x
        Leaf weights of any trailing shape.
    aggregate : None, "sum" or "mean"
        None keeps the trees apart; "sum" and "mean" add their outputs in float64 in the order of the trees.
    return_route : bool
        Also return the route, an argument of `tree_linear_backward`.
    out : array, optional
        Array for y, with its shape and the dtype of x.

    Returns
    -------
    y : (n_samples, n_trees, *outputs) array, or (n_samples, *outputs) with `aggregate`
        In the unit of weights times the inner products.
    route : Route
        (leaf, margin, vertex), with `return_route` only.

    Raises
    ------
    TypeError, ValueError
        Wrong dtype or device; wrong shape, layout or NaN.

    Notes
    -----
    Cost: depth inner products and one row of weights per sample and tree. Without `return_route`, extra
    memory does not grow with n_samples.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.5, 2.0]])
    >>> t = np.array([[0.0, 9.0, 1.75]]); p = np.array([[[1.0, 0], [1, 1], [1, 0.5]]])
    >>> w = np.array([[1.0, 2.0, 3.0, 4.0]])
    >>> hforest.hinge.tree_linear_forward(x, t, p, w)
    array([[0.75]])
    """
    return _forward("tree", x, thresholds, projections, weights, aggregate, return_route, out)


@overload
def fern_linear_forward(
    x: FloatArray, thresholds: FloatArray, projections: FloatArray, weights: FloatArray, *,
    aggregate: Aggregate = None, return_route: Literal[False] = False, out: FloatArray | None = None,
) -> FloatArray: ...  # fmt: skip
@overload
def fern_linear_forward(
    x: FloatArray, thresholds: FloatArray, projections: FloatArray, weights: FloatArray, *,
    aggregate: Aggregate = None, return_route: Literal[True], out: FloatArray | None = None,
) -> tuple[FloatArray, Route]: ...  # fmt: skip
@overload
def fern_linear_forward(
    x: FloatArray, thresholds: FloatArray, projections: FloatArray, weights: FloatArray, *,
    aggregate: Aggregate = None, return_route: bool, out: FloatArray | None = None,
) -> FloatArray | tuple[FloatArray, Route]: ...  # fmt: skip
def fern_linear_forward(
    x: FloatArray,
    thresholds: FloatArray,
    projections: FloatArray,
    weights: FloatArray,
    *,
    aggregate: Aggregate = None,
    return_route: bool = False,
    out: FloatArray | None = None,
) -> FloatArray | tuple[FloatArray, Route]:
    """Outputs of hinge ferns with an inner product at each decision: h(x) = w_leaf |r*| (Lay et al. 2018,
    Fig. 2, eq. 10).

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Finite. Zero samples are legal.
    thresholds, projections : arrays, dtype of x
        As `fern_linear_traverse` takes them.
    weights : (n_ferns, 2**depth, *outputs) array, dtype of x
        Leaf weights of any trailing shape.
    aggregate : None, "sum" or "mean"
        None keeps the ferns apart; "sum" and "mean" add their outputs in float64 in the order of the ferns.
    return_route : bool
        Also return the route, an argument of `fern_linear_backward`.
    out : array, optional
        Array for y, with its shape and the dtype of x.

    Returns
    -------
    y : (n_samples, n_ferns, *outputs) array, or (n_samples, *outputs) with `aggregate`
        In the unit of weights times the inner products.
    route : Route
        (leaf, margin, vertex), with `return_route` only.

    Raises
    ------
    TypeError, ValueError
        Wrong dtype or device; wrong shape, layout or NaN.

    Notes
    -----
    Cost: depth inner products and one row of weights per sample and fern.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.5, 2.0]])
    >>> t = np.array([[0.0, 9.0]]); p = np.array([[[1.0, 1], [1, 3]]])
    >>> w = np.array([[1.0, 2.0, 3.0, 4.0]])
    >>> hforest.hinge.fern_linear_forward(x, t, p, w, aggregate="sum")
    array([7.5])
    """
    return _forward("fern", x, thresholds, projections, weights, aggregate, return_route, out)
