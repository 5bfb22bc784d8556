"""Gradients of hinge trees and ferns on the windows of images (Lay et al. 2018, eq. 11-12)."""

from typing import Literal, overload

from ..core import check, dispatch
from ..core.aliases import FloatArray, IntArray
from .geometry import Ints, as_rows, as_samples, out_shape, windows_of
from .gradients import Dense, Sparse
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


def _backward(
    kind: Kind,
    grad_y: FloatArray,
    route: Route,
    features: IntArray,
    weights: FloatArray,
    x_shape: tuple[int, ...],
    shape: tuple[Ints, ...],
    aggregate: Aggregate,
    sparse: bool,
    out: Dense | None,
) -> Dense | Sparse:
    if not isinstance(route, tuple) or len(route) != 3:
        raise TypeError(
            f"route: expected (leaf, margin, vertex), got {type(route).__name__}; pass what "
            f"{kind}_conv_traverse returned, or {kind}_conv_forward with return_route=True"
        )
    leaf, margin, vertex = route = Route(*route)
    inputs = {
        "grad_y": grad_y, "route.leaf": leaf, "route.margin": margin, "route.vertex": vertex,
        "features": features, "weights": weights,
    }  # fmt: skip
    check.flag("sparse", sparse)
    check.same_device(**inputs)
    if not isinstance(x_shape, tuple | list):
        raise TypeError(
            f"x_shape: expected a tuple of ints, got {type(x_shape).__name__}; "
            "pass x.shape of the forward call"
        )
    x_shape = tuple(check.integer("x_shape", i, 0, check.MAX_COUNT) for i in x_shape)
    windows = windows_of("x_shape", x_shape, *shape)
    sizes = check_depth(kind, "features", features)
    check.array("features", features, check.INT32, ("n_trees", VERTICES[kind]), sizes)
    check.at_least_one(sizes, "n_trees")
    n_trees = sizes["n_trees"]
    places = (x_shape[0], *out_shape(windows, len(x_shape) - 2))
    dtype = check.floating("route.margin", margin)
    check.array("route.leaf", leaf, check.INT32, (*places, n_trees), sizes)
    check.array("route.margin", margin, dtype, (*places, n_trees), sizes)
    check.array("route.vertex", vertex, check.INT32, (*places, n_trees), sizes)
    samples = as_samples(route, n_trees)
    check_route(samples.leaf, samples.margin, {})
    outputs = check_weights(weights, dtype, sizes)
    n_samples, n_outputs = len(samples.leaf), sizes["n_outputs"]
    divisor = divisor_of(aggregate, n_trees)
    check.array(
        "grad_y", grad_y, dtype, (*places, *outputs) if aggregate else (*places, n_trees, *outputs), sizes
    )
    check_grad_y(grad_y)
    check.indices("route.leaf", samples.leaf, sizes["2**depth"], "2**depth")
    check.indices("route.vertex", samples.vertex, features.shape[1], VERTICES[kind])
    check.indices("features", features, windows.n_columns, "channels * kernel_size")
    backend = dispatch.backend(PACKAGE, leaf)
    g = grad_y.reshape((n_samples, n_outputs) if aggregate else (n_samples, n_trees, n_outputs))
    w = flat(weights, 2, n_outputs)
    if not sparse:
        grad_x, grad_thresholds, grad_weights = results(
            ("grad_x", "grad_thresholds", "grad_weights"),
            out,
            (x_shape, features.shape, weights.shape),
            (dtype,) * 3,
            inputs,
        )
        by_weight = flat(grad_weights, 2, n_outputs)
        backend.backward(
            g, samples, features, w, divisor, as_rows(grad_x), grad_thresholds, by_weight, windows=windows
        )
        return grad_x, grad_thresholds, grad_weights
    check_no_out(out)
    vertices = touched(backend, samples.vertex, features.shape[1])
    leaves = touched(backend, samples.leaf, weights.shape[1])
    empty = dispatch.empty(leaf)
    grad_x, grad_thresholds = empty(x_shape, dtype), empty(len(vertices[1]), dtype)
    grad_weights = empty((len(leaves[1]), n_outputs), dtype)
    backend.backward_sparse(
        g, samples, features, w, divisor, vertices, leaves, as_rows(grad_x), grad_thresholds, grad_weights,
        windows=windows,
    )  # fmt: skip
    return (
        grad_x,
        RowGradient(vertices[1], grad_thresholds),
        RowGradient(leaves[1], grad_weights.reshape(len(leaves[1]), *outputs)),
    )


@overload
def tree_conv_backward(
    grad_y: FloatArray, route: Route, features: IntArray, weights: FloatArray, x_shape: tuple[int, ...],
    kernel_size: Ints, *, stride: Ints = 1, padding: Ints = 0, dilation: Ints = 1,
    aggregate: Aggregate = None, sparse: Literal[False] = False, out: Dense | None = None,
) -> Dense: ...  # fmt: skip
@overload
def tree_conv_backward(
    grad_y: FloatArray, route: Route, features: IntArray, weights: FloatArray, x_shape: tuple[int, ...],
    kernel_size: Ints, *, stride: Ints = 1, padding: Ints = 0, dilation: Ints = 1,
    aggregate: Aggregate = None, sparse: Literal[True], out: Dense | None = None,
) -> Sparse: ...  # fmt: skip
def tree_conv_backward(
    grad_y: FloatArray,
    route: Route,
    features: IntArray,
    weights: FloatArray,
    x_shape: tuple[int, ...],
    kernel_size: Ints,
    *,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    aggregate: Aggregate = None,
    sparse: bool = False,
    out: tuple[FloatArray, FloatArray, FloatArray] | None = None,
) -> tuple[FloatArray, FloatArray | RowGradient, FloatArray | RowGradient]:
    """Gradients of a loss by the images, the thresholds and the weights of `tree_conv_forward`
    (Lay et al. 2018, eq. 11-12).

    Parameters
    ----------
    grad_y : array, dtype of the margins
        dL/dy in the shape of y.
    route : Route
        (leaf, margin, vertex), from `tree_conv_traverse` or `tree_conv_forward(..., return_route=True)`.
    features : (n_trees, 2**depth - 1) array of int32
        As in the forward call.
    weights : (n_trees, 2**depth, *outputs) array, dtype of the margins
        Leaf weights used in the forward call.
    x_shape : tuple of ints
        (n_images, channels, *space).
    kernel_size, stride, padding, dilation : int or tuple of ints
        As in the forward call.
    aggregate : None, "sum" or "mean"
        As in the forward call.
    sparse : bool
        Return the last two gradients at touched rows only, as `tree_backward` does.
    out : tuple of three arrays, optional
        Arrays for the dense gradients.

    Returns
    -------
    grad_x : array of shape x_shape
        0 at numbers that no window's nearest decision compares. What would go to the padding is left out.
    grad_thresholds : array of the shape of thresholds, or RowGradient
    grad_weights : array of the shape of weights, or RowGradient

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape or layout; a margin that is NaN, a grad_y that is not finite; a
        leaf, vertex or feature out of range.

    Notes
    -----
    Equations as for `tree_backward`, whose bits grad_thresholds and grad_weights have on the windows as rows.
    Windows share numbers of an image: their sums run in float64, over the windows in their order and for each
    over the trees. Cost as for `tree_backward`; threads take whole images for grad_x, and 8 bytes a number of
    an image each.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[[1.0, 5.0, 2.0, 8.0]]])
    >>> t = np.array([[3.0]]); f = np.array([[1]], dtype=np.int32); w = np.array([[-1.0, 1.0]])
    >>> y, route = hforest.hinge.tree_conv_forward(x, t, f, w, 2, aggregate="sum", return_route=True)
    >>> hforest.hinge.tree_conv_backward(np.ones_like(y), route, f, w, x.shape, 2, aggregate="sum")
    (array([[[0., 1., 1., 1.]]]), array([[-3.]]), array([[1., 7.]]))
    """
    shape = (kernel_size, stride, padding, dilation)
    return _backward("tree", grad_y, route, features, weights, x_shape, shape, aggregate, sparse, out)


@overload
def fern_conv_backward(
    grad_y: FloatArray, route: Route, features: IntArray, weights: FloatArray, x_shape: tuple[int, ...],
    kernel_size: Ints, *, stride: Ints = 1, padding: Ints = 0, dilation: Ints = 1,
    aggregate: Aggregate = None, sparse: Literal[False] = False, out: Dense | None = None,
) -> Dense: ...  # fmt: skip
@overload
def fern_conv_backward(
    grad_y: FloatArray, route: Route, features: IntArray, weights: FloatArray, x_shape: tuple[int, ...],
    kernel_size: Ints, *, stride: Ints = 1, padding: Ints = 0, dilation: Ints = 1,
    aggregate: Aggregate = None, sparse: Literal[True], out: Dense | None = None,
) -> Sparse: ...  # fmt: skip
def fern_conv_backward(
    grad_y: FloatArray,
    route: Route,
    features: IntArray,
    weights: FloatArray,
    x_shape: tuple[int, ...],
    kernel_size: Ints,
    *,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    aggregate: Aggregate = None,
    sparse: bool = False,
    out: tuple[FloatArray, FloatArray, FloatArray] | None = None,
) -> tuple[FloatArray, FloatArray | RowGradient, FloatArray | RowGradient]:
    """Gradients of a loss by the images, the thresholds and the weights of `fern_conv_forward`
    (Lay et al. 2018, eq. 11-12).

    Parameters
    ----------
    grad_y : array, dtype of the margins
        dL/dy in the shape of y.
    route : Route
        (leaf, margin, vertex), from `fern_conv_traverse` or `fern_conv_forward(..., return_route=True)`.
    features : (n_ferns, depth) array of int32
        As in the forward call.
    weights : (n_ferns, 2**depth, *outputs) array, dtype of the margins
        Leaf weights used in the forward call.
    x_shape : tuple of ints
        (n_images, channels, *space).
    kernel_size, stride, padding, dilation : int or tuple of ints
        As in the forward call.
    aggregate : None, "sum" or "mean"
        As in the forward call.
    sparse : bool
        Return the last two gradients at touched rows only.
    out : tuple of three arrays, optional
        Arrays for the dense gradients.

    Returns
    -------
    grad_x : array of shape x_shape
    grad_thresholds : array of the shape of thresholds, or RowGradient
    grad_weights : array of the shape of weights, or RowGradient

    Raises
    ------
    TypeError, ValueError, IndexError
        As `tree_conv_backward`.

    Notes
    -----
    Equations, sums and cost as for `tree_conv_backward`.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[[1.0, 5.0, 2.0, 8.0]]])
    >>> t = np.array([[3.0]]); f = np.array([[1]], dtype=np.int32); w = np.array([[-1.0, 1.0]])
    >>> y, route = hforest.hinge.fern_conv_forward(x, t, f, w, 2, return_route=True)
    >>> hforest.hinge.fern_conv_backward(np.ones_like(y), route, f, w, x.shape, 2)[0]
    array([[[0., 1., 1., 1.]]])
    """
    shape = (kernel_size, stride, padding, dilation)
    return _backward("fern", grad_y, route, features, weights, x_shape, shape, aggregate, sparse, out)
