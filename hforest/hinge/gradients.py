"""Gradients of hinge trees and ferns, dense or at touched rows (Lay et al. 2018, eq. 11-12)."""

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
    check_depth,
    check_grad_y,
    check_no_out,
    check_route,
    check_weights,
    divisor_of,
    flat,
    results,
    touched,
)

Dense = tuple[FloatArray, FloatArray, FloatArray]
Sparse = tuple[FloatArray, RowGradient, RowGradient]


def _backward(
    kind: Kind,
    grad_y: FloatArray,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
    features: IntArray,
    weights: FloatArray,
    n_features: int,
    aggregate: Aggregate,
    sparse: bool,
    out: Dense | None,
) -> Dense | Sparse:
    inputs = {
        "grad_y": grad_y,
        "leaf": leaf,
        "margin": margin,
        "vertex": vertex,
        "features": features,
        "weights": weights,
    }
    check.flag("sparse", sparse)
    check.same_device(**inputs)
    n_features = check.integer("n_features", n_features, 1, check.MAX_COUNT)
    sizes = check_depth(kind, "features", features)
    dtype = check_route(leaf, margin, sizes)
    check.array("vertex", vertex, check.INT32, ("n_samples", "n_trees"), sizes)
    check.array("features", features, check.INT32, ("n_trees", VERTICES[kind]), sizes)
    outputs = check_weights(weights, dtype, sizes)
    n, n_trees, n_outputs = sizes["n_samples"], sizes["n_trees"], sizes["n_outputs"]
    check.integer("n_samples", n, 0, check.MAX_COUNT)
    divisor = divisor_of(aggregate, n_trees)
    check.array(
        "grad_y",
        grad_y,
        dtype,
        ("n_samples", *outputs) if aggregate else ("n_samples", "n_trees", *outputs),
        sizes,
    )
    check_grad_y(grad_y)
    check.indices("leaf", leaf, sizes["2**depth"], "2**depth")
    check.indices("vertex", vertex, features.shape[1], VERTICES[kind])
    check.indices("features", features, n_features, "n_features")
    backend, route = dispatch.backend(PACKAGE, leaf), Route(leaf, margin, vertex)
    g, w = flat(grad_y, 1 if aggregate else 2, n_outputs), flat(weights, 2, n_outputs)
    if not sparse:
        with check.memory("n_features", "gradients", n * n_features * dtype.itemsize):
            grad_x, grad_thresholds, grad_weights = results(
                ("grad_x", "grad_thresholds", "grad_weights"),
                out,
                ((n, n_features), features.shape, weights.shape),
                (dtype,) * 3,
                inputs,
            )
        by_weight = flat(grad_weights, 2, n_outputs)
        backend.backward(g, route, features, w, divisor, grad_x, grad_thresholds, by_weight)
        return grad_x, grad_thresholds, grad_weights
    check_no_out(out)
    vertices = touched(backend, vertex, features.shape[1])
    leaves = touched(backend, leaf, weights.shape[1])
    empty = dispatch.empty(leaf)
    with check.memory("n_features", "gradients", n * n_features * dtype.itemsize):
        grad_x = empty((n, n_features), dtype)
    grad_thresholds = empty(len(vertices[1]), dtype)
    grad_weights = empty((len(leaves[1]), n_outputs), dtype)
    backend.backward_sparse(
        g, route, features, w, divisor, vertices, leaves, grad_x, grad_thresholds, grad_weights
    )
    return (
        grad_x,
        RowGradient(vertices[1], grad_thresholds),
        RowGradient(leaves[1], grad_weights.reshape(len(leaves[1]), *outputs)),
    )


@overload
def tree_backward(
    grad_y: FloatArray, leaf: IntArray, margin: FloatArray, vertex: IntArray, features: IntArray,
    weights: FloatArray, n_features: int, *, aggregate: Aggregate = None, sparse: Literal[False] = False,
    out: Dense | None = None,
) -> Dense: ...  # fmt: skip
@overload
def tree_backward(
    grad_y: FloatArray, leaf: IntArray, margin: FloatArray, vertex: IntArray, features: IntArray,
    weights: FloatArray, n_features: int, *, aggregate: Aggregate = None, sparse: Literal[True],
    out: Dense | None = None,
) -> Sparse: ...  # fmt: skip
@overload
def tree_backward(
    grad_y: FloatArray, leaf: IntArray, margin: FloatArray, vertex: IntArray, features: IntArray,
    weights: FloatArray, n_features: int, *, aggregate: Aggregate = None, sparse: bool,
    out: Dense | None = None,
) -> Dense | Sparse: ...  # fmt: skip
def tree_backward(
    grad_y: FloatArray,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
    features: IntArray,
    weights: FloatArray,
    n_features: int,
    *,
    aggregate: Aggregate = None,
    sparse: bool = False,
    out: tuple[FloatArray, FloatArray, FloatArray] | None = None,
) -> tuple[FloatArray, FloatArray | RowGradient, FloatArray | RowGradient]:
    """Gradients of a loss by the input, the thresholds and the weights of hinge trees (Lay et al. 2018,
    eq. 11-12).

    With G = dL/dy, each pair of a sample n and a tree m adds, at its leaf l, margin r* and vertex v*,

    * s = sgn(r*) sum_k w[m, l, k] G[n, m, k] to dL/dx[n, f[m, v*]] and -s to dL/dt[m, v*] (eq. 11),
    * abs(r*) G[n, m, k] to dL/dw[m, l, k] (eq. 12),

    with sgn(0) = 0. The route is enough: no tree is traversed again.

    Parameters
    ----------
    grad_y : array, dtype of margin
        dL/dy in the shape of y: (n_samples, n_trees, *outputs), or (n_samples, *outputs) with
        `aggregate`.
    leaf, margin, vertex : (n_samples, n_trees) arrays
        The route, from `tree_traverse` or `tree_forward(..., return_route=True)`.
    features : (n_trees, 2**depth - 1) array of int32
        Column of x that each vertex compares.
    weights : (n_trees, 2**depth, *outputs) array, dtype of margin
        Leaf weights used in the forward call.
    n_features : int
        Columns of x.
    aggregate : None, "sum" or "mean"
        As in the forward call.
    sparse : bool
        Return the last two gradients at touched rows only.
    out : tuple of three arrays, optional
        Arrays for the dense gradients.

    Returns
    -------
    grad_x : (n_samples, n_features) array
    grad_thresholds : array of the shape of thresholds, or RowGradient
        Sparse: `rows` (n_rows,) int64 over the flattened (tree, vertex) axis, ascending, each once,
        and `values` (n_rows,).
    grad_weights : array of the shape of weights, or RowGradient
        Sparse: `rows` over the flattened (tree, leaf) axis and `values` (n_rows, *outputs).

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape or layout; a margin that is NaN, a grad_y that is not
        finite; a leaf, vertex or feature out of range.

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
    RowGradient(rows=array([3]), values=array([0.25]))
    """
    return _backward(
        "tree", grad_y, leaf, margin, vertex, features, weights, n_features, aggregate, sparse, out
    )


@overload
def fern_backward(
    grad_y: FloatArray, leaf: IntArray, margin: FloatArray, vertex: IntArray, features: IntArray,
    weights: FloatArray, n_features: int, *, aggregate: Aggregate = None, sparse: Literal[False] = False,
    out: Dense | None = None,
) -> Dense: ...  # fmt: skip
@overload
def fern_backward(
    grad_y: FloatArray, leaf: IntArray, margin: FloatArray, vertex: IntArray, features: IntArray,
    weights: FloatArray, n_features: int, *, aggregate: Aggregate = None, sparse: Literal[True],
    out: Dense | None = None,
) -> Sparse: ...  # fmt: skip
@overload
def fern_backward(
    grad_y: FloatArray, leaf: IntArray, margin: FloatArray, vertex: IntArray, features: IntArray,
    weights: FloatArray, n_features: int, *, aggregate: Aggregate = None, sparse: bool,
    out: Dense | None = None,
) -> Dense | Sparse: ...  # fmt: skip
def fern_backward(
    grad_y: FloatArray,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
    features: IntArray,
    weights: FloatArray,
    n_features: int,
    *,
    aggregate: Aggregate = None,
    sparse: bool = False,
    out: tuple[FloatArray, FloatArray, FloatArray] | None = None,
) -> tuple[FloatArray, FloatArray | RowGradient, FloatArray | RowGradient]:
    """Gradients of a loss by the input, the thresholds and the weights of hinge ferns (Lay et al. 2018,
    eq. 11-12).

    Parameters
    ----------
    grad_y : array, dtype of margin
        dL/dy in the shape of y.
    leaf, margin, vertex : (n_samples, n_ferns) arrays
        The route, from `fern_traverse` or `fern_forward(..., return_route=True)`.
    features : (n_ferns, depth) array of int32
        Column of x that each decision compares.
    weights : (n_ferns, 2**depth, *outputs) array, dtype of margin
        Leaf weights used in the forward call.
    n_features : int
        Columns of x.
    aggregate : None, "sum" or "mean"
        As in the forward call.
    sparse : bool
        Return the last two gradients at touched rows only.
    out : tuple of three arrays, optional
        Arrays for the dense gradients.

    Returns
    -------
    grad_x : (n_samples, n_features) array
    grad_thresholds : array of the shape of thresholds, or RowGradient
        Sparse: rows over the flattened (fern, decision) axis, ascending, each once.
    grad_weights : array of the shape of weights, or RowGradient
        Sparse: rows over the flattened (fern, leaf) axis and values (n_rows, *outputs).

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape or layout; a margin that is NaN, a grad_y that is not
        finite; a leaf, vertex or feature out of range.

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
