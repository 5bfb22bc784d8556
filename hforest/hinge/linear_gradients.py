"""Gradients of hinge trees and ferns with an inner product at each vertex (Lay et al. 2018, Fig. 2,
eq. 11-12).
"""

from typing import Literal, overload

from ..core import check, dispatch
from ..core.aliases import FloatArray, IntArray
from .shared import (
    PACKAGE,
    VERTICES,
    Aggregate,
    Kind,
    Route,
    RowGradient,
    check_grad_y,
    check_linear_depth,
    check_no_out,
    check_route,
    check_weights,
    divisor_of,
    flat,
    results,
    touched,
)

Dense = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
Sparse = tuple[FloatArray, RowGradient, RowGradient, RowGradient]


def _backward(
    kind: Kind,
    grad_y: FloatArray,
    route: Route,
    x: FloatArray,
    projections: FloatArray,
    weights: FloatArray,
    aggregate: Aggregate,
    sparse: bool,
    out: Dense | None,
) -> Dense | Sparse:
    inputs = {
        "grad_y": grad_y,
        **route._asdict(),
        "x": x,
        "projections": projections,
        "weights": weights,
    }
    check.flag("sparse", sparse)
    check.same_device(**inputs)
    leaf, margin, vertex = route
    sizes = check_linear_depth(kind, projections)
    dtype = check_route(leaf, margin, sizes)
    check.array("vertex", vertex, check.INT32, ("n_samples", "n_trees"), sizes)
    check.array("x", x, dtype, ("n_samples", "n_features"), sizes)
    check.array("projections", projections, dtype, ("n_trees", VERTICES[kind], "n_features"), sizes)
    check.at_least_one(sizes, "n_features")
    outputs = check_weights(weights, dtype, sizes)
    n, n_trees, n_outputs = sizes["n_samples"], sizes["n_trees"], sizes["n_outputs"]
    check.integer("n_samples", n, 0, check.MAX_COUNT)
    divisor = divisor_of(aggregate, n_trees)
    axes: check.Axes = ("n_samples", *outputs) if aggregate else ("n_samples", "n_trees", *outputs)
    check.array("grad_y", grad_y, dtype, axes, sizes)
    check_grad_y(grad_y)
    n_vertices = projections.shape[1]
    check.indices("leaf", leaf, sizes["2**depth"], "2**depth")
    check.indices("vertex", vertex, n_vertices, VERTICES[kind])
    backend = dispatch.backend(PACKAGE, leaf)
    g, w = flat(grad_y, 1 if aggregate else 2, n_outputs), flat(weights, 2, n_outputs)
    if not sparse:
        grads = results(
            ("grad_x", "grad_thresholds", "grad_projections", "grad_weights"),
            out,
            (x.shape, projections.shape[:2], projections.shape, weights.shape),
            (dtype,) * 4,
            inputs,
        )
        by_weight = flat(grads[3], 2, n_outputs)
        backend.linear_backward(g, route, x, projections, w, divisor, *grads[:3], by_weight)
        return grads[0], grads[1], grads[2], grads[3]
    check_no_out(out)
    vertices = touched(backend, vertex, n_vertices)
    leaves = touched(backend, leaf, weights.shape[1])
    empty = dispatch.empty(leaf)
    shapes = (x.shape, len(vertices[1]), (len(vertices[1]), x.shape[1]), (len(leaves[1]), n_outputs))
    grad_x, by_threshold, by_projection, by_weight = (empty(shape, dtype) for shape in shapes)
    backend.linear_backward_sparse(
        g, route, x, projections, w, divisor, vertices, leaves, grad_x, by_threshold, by_projection, by_weight
    )
    return (
        grad_x,
        RowGradient(vertices[1], by_threshold),
        RowGradient(vertices[1], by_projection),
        RowGradient(leaves[1], by_weight.reshape(len(leaves[1]), *outputs)),
    )


@overload
def tree_linear_backward(
    grad_y: FloatArray, leaf: IntArray, margin: FloatArray, vertex: IntArray, x: FloatArray,
    projections: FloatArray, weights: FloatArray, *, aggregate: Aggregate = None,
    sparse: Literal[False] = False, out: Dense | None = None,
) -> Dense: ...  # fmt: skip
@overload
def tree_linear_backward(
    grad_y: FloatArray, leaf: IntArray, margin: FloatArray, vertex: IntArray, x: FloatArray,
    projections: FloatArray, weights: FloatArray, *, aggregate: Aggregate = None,
    sparse: Literal[True], out: Dense | None = None,
) -> Sparse: ...  # fmt: skip
@overload
def tree_linear_backward(
    grad_y: FloatArray, leaf: IntArray, margin: FloatArray, vertex: IntArray, x: FloatArray,
    projections: FloatArray, weights: FloatArray, *, aggregate: Aggregate = None,
    sparse: bool, out: Dense | None = None,
) -> Dense | Sparse: ...  # fmt: skip
def tree_linear_backward(
    grad_y: FloatArray,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
    x: FloatArray,
    projections: FloatArray,
    weights: FloatArray,
    *,
    aggregate: Aggregate = None,
    sparse: bool = False,
    out: tuple[FloatArray, FloatArray, FloatArray, FloatArray] | None = None,
) -> tuple[FloatArray, FloatArray | RowGradient, FloatArray | RowGradient, FloatArray | RowGradient]:
    """Gradients by the input and the parameters of hinge trees with inner products (Lay et al. 2018,
    eq. 11-12).

    With G = dL/dy, each pair of a sample n and a tree m adds, at its leaf l, margin r* and vertex v*,

    * s p[m, v*] to dL/dx[n], s x[n] to dL/dp[m, v*] and -s to dL/dt[m, v*], with
      s = sgn(r*) sum_k w[m, l, k] G[n, m, k] (eq. 11 and the chain rule),
    * abs(r*) G[n, m, k] to dL/dw[m, l, k] (eq. 12),

    with sgn(0) = 0: the gradient has one vertex a pair. No tree is traversed again.

    Parameters
    ----------
    grad_y : array, dtype of margin
        dL/dy in the shape of y: (n_samples, n_trees, *outputs), or (n_samples, *outputs) with
        `aggregate`.
    leaf, margin, vertex : (n_samples, n_trees) arrays
        The route, from `tree_linear_traverse` or `tree_linear_forward(..., return_route=True)`.
    x : (n_samples, n_features) array, dtype of margin
        Input of the forward call.
    projections : (n_trees, 2**depth - 1, n_features) array, dtype of margin
        The vectors used in the forward call.
    weights : (n_trees, 2**depth, *outputs) array, dtype of margin
        Leaf weights used in the forward call.
    aggregate : None, "sum" or "mean"
        As in the forward call.
    sparse : bool
        Return the last three gradients at touched rows only.
    out : tuple of four arrays, optional
        Arrays for the dense gradients.

    Returns
    -------
    grad_x : (n_samples, n_features) array
    grad_thresholds : array of the shape of thresholds, or RowGradient
        Sparse: `rows` (n_rows,) int64 over the flattened (tree, vertex) axis, ascending, each once,
        and `values` (n_rows,).
    grad_projections : array of the shape of projections, or RowGradient
        Sparse: the same `rows`, and `values` (n_rows, n_features).
    grad_weights : array of the shape of weights, or RowGradient
        Sparse: `rows` over the flattened (tree, leaf) axis and `values` (n_rows, *outputs).

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape or layout; a margin that is NaN, a grad_y that is not
        finite; a leaf or vertex out of range.

    Notes
    -----
    Cost: one row of projections and two of weights per sample and tree; dense gradients also write every
    parameter once, sparse ones only what was touched. Sums over samples run in float64 in the order of the
    samples, that of grad_x in the order of the trees in the dtype.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.5, 2.0]])
    >>> t = np.array([[0.0, 9.0, 1.75]]); p = np.array([[[1.0, 0], [1, 1], [1, 0.5]]])
    >>> w = np.array([[1.0, 2.0, 3.0, 4.0]])
    >>> y, route = hforest.hinge.tree_linear_forward(x, t, p, w, return_route=True)
    >>> grads = hforest.hinge.tree_linear_backward(np.ones_like(y), *route, x, p, w, sparse=True)
    >>> grads[0], grads[1].values
    (array([[-3. , -1.5]]), array([3.]))
    >>> grads[2]
    RowGradient(rows=array([2]), values=array([[-1.5, -6. ]]))
    """
    route = Route(leaf, margin, vertex)
    return _backward("tree", grad_y, route, x, projections, weights, aggregate, sparse, out)


@overload
def fern_linear_backward(
    grad_y: FloatArray, leaf: IntArray, margin: FloatArray, vertex: IntArray, x: FloatArray,
    projections: FloatArray, weights: FloatArray, *, aggregate: Aggregate = None,
    sparse: Literal[False] = False, out: Dense | None = None,
) -> Dense: ...  # fmt: skip
@overload
def fern_linear_backward(
    grad_y: FloatArray, leaf: IntArray, margin: FloatArray, vertex: IntArray, x: FloatArray,
    projections: FloatArray, weights: FloatArray, *, aggregate: Aggregate = None,
    sparse: Literal[True], out: Dense | None = None,
) -> Sparse: ...  # fmt: skip
@overload
def fern_linear_backward(
    grad_y: FloatArray, leaf: IntArray, margin: FloatArray, vertex: IntArray, x: FloatArray,
    projections: FloatArray, weights: FloatArray, *, aggregate: Aggregate = None,
    sparse: bool, out: Dense | None = None,
) -> Dense | Sparse: ...  # fmt: skip
def fern_linear_backward(
    grad_y: FloatArray,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
    x: FloatArray,
    projections: FloatArray,
    weights: FloatArray,
    *,
    aggregate: Aggregate = None,
    sparse: bool = False,
    out: tuple[FloatArray, FloatArray, FloatArray, FloatArray] | None = None,
) -> tuple[FloatArray, FloatArray | RowGradient, FloatArray | RowGradient, FloatArray | RowGradient]:
    """Gradients by the input and the parameters of hinge ferns with inner products (Lay et al. 2018,
    eq. 11-12).

    Parameters
    ----------
    grad_y : array, dtype of margin
        dL/dy in the shape of y.
    leaf, margin, vertex : (n_samples, n_ferns) arrays
        The route, from `fern_linear_traverse` or `fern_linear_forward(..., return_route=True)`.
    x : (n_samples, n_features) array, dtype of margin
        Input of the forward call.
    projections : (n_ferns, depth, n_features) array, dtype of margin
        The vectors used in the forward call.
    weights : (n_ferns, 2**depth, *outputs) array, dtype of margin
        Leaf weights used in the forward call.
    aggregate : None, "sum" or "mean"
        As in the forward call.
    sparse : bool
        Return the last three gradients at touched rows only.
    out : tuple of four arrays, optional
        Arrays for the dense gradients.

    Returns
    -------
    grad_x : (n_samples, n_features) array
    grad_thresholds : array of the shape of thresholds, or RowGradient
        Sparse: rows over the flattened (fern, decision) axis, ascending, each once.
    grad_projections : array of the shape of projections, or RowGradient
        Sparse: the same rows, and values (n_rows, n_features).
    grad_weights : array of the shape of weights, or RowGradient
        Sparse: rows over the flattened (fern, leaf) axis and values (n_rows, *outputs).

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape or layout; a margin that is NaN, a grad_y that is not
        finite; a leaf or vertex out of range.

    Notes
    -----
    Equations and cost as for `tree_linear_backward`.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.5, 2.0]])
    >>> t = np.array([[0.0, 9.0]]); p = np.array([[[1.0, 1], [1, 3]]])
    >>> w = np.array([[1.0, 2.0, 3.0, 4.0]])
    >>> y, route = hforest.hinge.fern_linear_forward(x, t, p, w, return_route=True)
    >>> grads = hforest.hinge.fern_linear_backward(np.ones_like(y), *route, x, p, w)
    >>> grads[0], grads[2]
    (array([[3., 3.]]), array([[[1.5, 6. ], [0. , 0. ]]]))
    """
    route = Route(leaf, margin, vertex)
    return _backward("fern", grad_y, route, x, projections, weights, aggregate, sparse, out)
