"""Hinge trees and ferns on the windows of images: convolution with a forest in place of a linear map.

An image x is (channels, *space) with one to three axes in space. The sample of an output position is the
window below the kernel, flattened with the channel first; a feature is a number of that window. `padding`
adds zeros around the images, `dilation` spreads the kernel, `stride` is the step from a window to the next,
as in cross-correlation: (size + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1 output positions
along each axis. No array of all windows is made: the backends read images by index arithmetic.
"""

from typing import Literal, overload

import numpy as np

from ..core import check, dispatch
from ..core.aliases import FloatArray, IntArray
from .geometry import Windows, check_images, out_shape, windows_of
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
    check_route,
    check_weights,
    divisor_of,
    flat,
    results,
    touched,
)

Ints = int | tuple[int, ...]


def _images(x: FloatArray) -> FloatArray:
    return x.reshape(x.shape[0], -1) if x.shape[0] else x.reshape(0, int(np.prod(x.shape[1:])))


def _check_routing(
    kind: Kind, x: FloatArray, thresholds: FloatArray, features: IntArray, shape: tuple[Ints, ...]
) -> tuple[check.Sizes, Windows, tuple[int, ...]]:
    # The sizes of the call, its windows, and (n_images, *out).
    check.same_device(x=x, thresholds=thresholds, features=features)
    dtype = check_images("x", x)
    windows = windows_of(tuple(x.shape), *shape)
    sizes = check_depth(kind, "thresholds", thresholds)
    check.array("thresholds", thresholds, dtype, ("n_trees", VERTICES[kind]), sizes)
    check.array("features", features, check.INT32, ("n_trees", VERTICES[kind]), sizes)
    check.at_least_one(sizes, "n_trees")
    check.not_nan("thresholds", thresholds)
    check.indices("features", features, windows.n_columns, "channels * kernel_size")
    return sizes, windows, (x.shape[0], *out_shape(windows, x.ndim - 2))


def _as_samples(route: Route, n_trees: int) -> Route:
    return Route(*(a.reshape(-1, n_trees) for a in route))


def _traverse(
    kind: Kind,
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    shape: tuple[Ints, ...],
    out: Route | None,
) -> Route:
    sizes, windows, places = _check_routing(kind, x, thresholds, features, shape)
    n_trees = sizes["n_trees"]
    inputs = {"x": x, "thresholds": thresholds, "features": features}
    dtypes = (np.int32, x.dtype, np.int32)
    route = Route(*results(("leaf", "margin", "vertex"), out, ((*places, n_trees),) * 3, dtypes, inputs))
    backend = dispatch.backend(PACKAGE, x)
    getattr(backend, f"{kind}_traverse")(
        _images(x), thresholds, features, *_as_samples(route, n_trees), windows=windows
    )
    return route


def _forward(
    kind: Kind,
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    weights: FloatArray,
    shape: tuple[Ints, ...],
    aggregate: Aggregate,
    return_route: bool,
    out: FloatArray | None,
) -> FloatArray | tuple[FloatArray, Route]:
    check.flag("return_route", return_route)
    check.same_device(x=x, weights=weights)
    sizes, windows, places = _check_routing(kind, x, thresholds, features, shape)
    outputs = check_weights(weights, x.dtype, sizes)
    n_trees, n_outputs = sizes["n_trees"], sizes["n_outputs"]
    divisor = divisor_of(aggregate, n_trees)
    inputs = {"x": x, "thresholds": thresholds, "features": features, "weights": weights}
    y_shape = (*places, *outputs) if aggregate else (*places, n_trees, *outputs)
    (y,) = results(("y",), out, (y_shape,), (x.dtype,), inputs)
    n_samples = int(np.prod(places))
    flat_y = y.reshape((n_samples, n_outputs) if aggregate else (n_samples, n_trees, n_outputs))
    route = samples = None
    if return_route:
        empty = dispatch.empty(x)
        route = Route(*(empty((*places, n_trees), dtype) for dtype in (np.int32, x.dtype, np.int32)))
        samples = _as_samples(route, n_trees)
    backend = dispatch.backend(PACKAGE, x)
    getattr(backend, f"{kind}_forward")(
        _images(x),
        thresholds,
        features,
        flat(weights, 2, n_outputs),
        divisor,
        flat_y,
        samples,
        windows=windows,
    )
    return y if route is None else (y, route)


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
    leaf, margin, vertex = route
    inputs = {
        "grad_y": grad_y, "leaf": leaf, "margin": margin, "vertex": vertex, "features": features,
        "weights": weights,
    }  # fmt: skip
    check.flag("sparse", sparse)
    check.same_device(**inputs)
    x_shape = tuple(check.integer("x_shape", i, 0, check.MAX_COUNT) for i in x_shape)
    windows = windows_of(x_shape, *shape)
    sizes = check_depth(kind, "features", features)
    check.array("features", features, check.INT32, ("n_trees", VERTICES[kind]), sizes)
    check.at_least_one(sizes, "n_trees")
    n_trees = sizes["n_trees"]
    places = (x_shape[0], *out_shape(windows, len(x_shape) - 2))
    dtype = check.floating("margin", margin)
    check.array("leaf", leaf, check.INT32, (*places, n_trees), sizes)
    check.array("margin", margin, dtype, (*places, n_trees), sizes)
    check.array("vertex", vertex, check.INT32, (*places, n_trees), sizes)
    samples = _as_samples(route, n_trees)
    check_route(samples.leaf, samples.margin, {})
    outputs = check_weights(weights, dtype, sizes)
    n_samples, n_outputs = len(samples.leaf), sizes["n_outputs"]
    divisor = divisor_of(aggregate, n_trees)
    check.array(
        "grad_y", grad_y, dtype, (*places, *outputs) if aggregate else (*places, n_trees, *outputs), sizes
    )
    check_grad_y(grad_y)
    check.indices("leaf", samples.leaf, sizes["2**depth"], "2**depth")
    check.indices("vertex", samples.vertex, features.shape[1], VERTICES[kind])
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
            g, samples, features, w, divisor, _images(grad_x), grad_thresholds, by_weight, windows=windows
        )
        return grad_x, grad_thresholds, grad_weights
    if out is not None:
        raise ValueError(
            "out: expected None with sparse=True, got arrays; leave it out, the number of touched rows is "
            "not known before the call"
        )
    vertices = touched(backend, samples.vertex, features.shape[1])
    leaves = touched(backend, samples.leaf, weights.shape[1])
    empty = dispatch.empty(leaf)
    grad_x, grad_thresholds = empty(x_shape, dtype), empty(len(vertices[1]), dtype)
    grad_weights = empty((len(leaves[1]), n_outputs), dtype)
    backend.backward_sparse(
        g, samples, features, w, divisor, vertices, leaves, _images(grad_x), grad_thresholds, grad_weights,
        windows=windows,
    )  # fmt: skip
    return (
        grad_x,
        RowGradient(vertices[1], grad_thresholds),
        RowGradient(leaves[1], grad_weights.reshape(len(leaves[1]), *outputs)),
    )


def tree_conv_traverse(
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    kernel_size: Ints,
    *,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    out: Route | None = None,
) -> Route:
    """The leaf of each window of images in each tree, and the decision nearest to zero (p1 Alg. 3).

    As `tree_traverse` on the windows as rows.

    Parameters
    ----------
    x : (n_images, channels, *space) array of float32 or float64
        Images with one to three axes in space. Finite. Zero images are legal.
    thresholds : (n_trees, 2**depth - 1) array, dtype of x
        In the unit of x.
    features : (n_trees, 2**depth - 1) array of int32
        Number of the window that each vertex compares: (channel * kernel height + row) * kernel width +
        column in two dimensions, likewise in one and three.
    kernel_size : int or tuple of ints
        Size of the windows, for all axes in space or one each.
    stride, padding, dilation : int or tuple of ints
        Step from a window to the next, zeros around the images, step between the numbers of a window.
    out : tuple of three arrays, optional
        Arrays for leaf, margin and vertex, with their shapes and dtypes.

    Returns
    -------
    Route
        (leaf, margin, vertex), each of shape (n_images, *out, n_trees): positions before trees.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape, layout or NaN; a kernel larger than the padded images; a feature
        outside the windows.

    Notes
    -----
    A margin at the padding is -t_v. Cost: depth comparisons for each window and tree, and a copy of each
    window's numbers, of 32 windows at a time, in cache. Bits as `tree_traverse`.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[[1.0, 5.0, 2.0, 8.0]]])  # an image of one channel and one axis
    >>> t = np.array([[3.0]]); f = np.array([[1]], dtype=np.int32)  # the second number of a window
    >>> hforest.hinge.tree_conv_traverse(x, t, f, 2).leaf
    array([[[1],
            [0],
            [1]]], dtype=int32)
    """
    return _traverse("tree", x, thresholds, features, (kernel_size, stride, padding, dilation), out)


def fern_conv_traverse(
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    kernel_size: Ints,
    *,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    out: Route | None = None,
) -> Route:
    """The leaf of each window of images in each fern, and the decision nearest to zero (p1 Alg. 3).

    Parameters
    ----------
    x : (n_images, channels, *space) array of float32 or float64
        Images with one to three axes in space. Finite.
    thresholds, features : (n_ferns, depth) arrays, dtype of x and int32
        As `fern_traverse` takes them; features number the window's numbers as for `tree_conv_traverse`.
    kernel_size, stride, padding, dilation : int or tuple of ints
        As for `tree_conv_traverse`.
    out : tuple of three arrays, optional
        Arrays for leaf, margin and vertex.

    Returns
    -------
    Route
        (leaf, margin, vertex), each of shape (n_images, *out, n_ferns).

    Raises
    ------
    TypeError, ValueError, IndexError
        As `tree_conv_traverse`.

    Notes
    -----
    Cost as for `tree_conv_traverse`.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[[1.0, 5.0, 2.0, 8.0]]])
    >>> t = np.array([[3.0, 1.5]]); f = np.array([[1, 0]], dtype=np.int32)
    >>> hforest.hinge.fern_conv_traverse(x, t, f, 2).leaf.ravel()
    array([2, 1, 3], dtype=int32)
    """
    return _traverse("fern", x, thresholds, features, (kernel_size, stride, padding, dilation), out)


@overload
def tree_conv_forward(
    x: FloatArray, thresholds: FloatArray, features: IntArray, weights: FloatArray, kernel_size: Ints, *,
    stride: Ints = 1, padding: Ints = 0, dilation: Ints = 1, aggregate: Aggregate = None,
    return_route: Literal[False] = False, out: FloatArray | None = None,
) -> FloatArray: ...  # fmt: skip
@overload
def tree_conv_forward(
    x: FloatArray, thresholds: FloatArray, features: IntArray, weights: FloatArray, kernel_size: Ints, *,
    stride: Ints = 1, padding: Ints = 0, dilation: Ints = 1, aggregate: Aggregate = None,
    return_route: Literal[True], out: FloatArray | None = None,
) -> tuple[FloatArray, Route]: ...  # fmt: skip
def tree_conv_forward(
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    weights: FloatArray,
    kernel_size: Ints,
    *,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    aggregate: Aggregate = None,
    return_route: bool = False,
    out: FloatArray | None = None,
) -> FloatArray | tuple[FloatArray, Route]:
    """Outputs of hinge trees at the windows of images: h(window) = w_leaf |r*| (p1 eq 10).

    Parameters
    ----------
    x : (n_images, channels, *space) array of float32 or float64
        Images with one to three axes in space. Finite. Zero images are legal.
    thresholds, features : (n_trees, 2**depth - 1) arrays, dtype of x and int32
        As `tree_conv_traverse` takes them.
    weights : (n_trees, 2**depth, *outputs) array, dtype of x
        Leaf weights of any trailing shape.
    kernel_size, stride, padding, dilation : int or tuple of ints
        As for `tree_conv_traverse`.
    aggregate : None, "sum" or "mean"
        None keeps the trees apart; "sum" and "mean" add their outputs in float64 in the order of the trees.
    return_route : bool
        Also return the route, an argument of `tree_conv_backward`.
    out : array, optional
        Array for y, with its shape and the dtype of x.

    Returns
    -------
    y : (n_images, *out, n_trees, *outputs) array, or (n_images, *out, *outputs) with `aggregate`
        In the unit of weights times x. Channels are last: ``numpy.moveaxis(y, -1, 1)`` is a view with them
        first.
    route : Route
        (leaf, margin, vertex), with `return_route` only.

    Raises
    ------
    TypeError, ValueError, IndexError
        As `tree_conv_traverse`; weights of another shape.

    Notes
    -----
    Bits as `tree_forward` on the windows as rows. Cost: `tree_conv_traverse`, and one row of weights for each
    window and tree.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[[1.0, 5.0, 2.0, 8.0]]])
    >>> t = np.array([[3.0]]); f = np.array([[1]], dtype=np.int32); w = np.array([[-1.0, 1.0]])
    >>> hforest.hinge.tree_conv_forward(x, t, f, w, 2, aggregate="sum")
    array([[ 2., -1.,  5.]])
    """
    shape = (kernel_size, stride, padding, dilation)
    return _forward("tree", x, thresholds, features, weights, shape, aggregate, return_route, out)


@overload
def fern_conv_forward(
    x: FloatArray, thresholds: FloatArray, features: IntArray, weights: FloatArray, kernel_size: Ints, *,
    stride: Ints = 1, padding: Ints = 0, dilation: Ints = 1, aggregate: Aggregate = None,
    return_route: Literal[False] = False, out: FloatArray | None = None,
) -> FloatArray: ...  # fmt: skip
@overload
def fern_conv_forward(
    x: FloatArray, thresholds: FloatArray, features: IntArray, weights: FloatArray, kernel_size: Ints, *,
    stride: Ints = 1, padding: Ints = 0, dilation: Ints = 1, aggregate: Aggregate = None,
    return_route: Literal[True], out: FloatArray | None = None,
) -> tuple[FloatArray, Route]: ...  # fmt: skip
def fern_conv_forward(
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    weights: FloatArray,
    kernel_size: Ints,
    *,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    aggregate: Aggregate = None,
    return_route: bool = False,
    out: FloatArray | None = None,
) -> FloatArray | tuple[FloatArray, Route]:
    """Outputs of hinge ferns at the windows of images: h(window) = w_leaf |r*| (p1 eq 10).

    Parameters
    ----------
    x : (n_images, channels, *space) array of float32 or float64
        Images with one to three axes in space. Finite.
    thresholds, features : (n_ferns, depth) arrays, dtype of x and int32
        As `fern_conv_traverse` takes them.
    weights : (n_ferns, 2**depth, *outputs) array, dtype of x
        Leaf weights of any trailing shape.
    kernel_size, stride, padding, dilation : int or tuple of ints
        As for `tree_conv_traverse`.
    aggregate : None, "sum" or "mean"
        As for `tree_conv_forward`.
    return_route : bool
        Also return the route, an argument of `fern_conv_backward`.
    out : array, optional
        Array for y, with its shape and the dtype of x.

    Returns
    -------
    y : (n_images, *out, n_ferns, *outputs) array, or (n_images, *out, *outputs) with `aggregate`
    route : Route
        (leaf, margin, vertex), with `return_route` only.

    Raises
    ------
    TypeError, ValueError, IndexError
        As `tree_conv_forward`.

    Notes
    -----
    Bits as `fern_forward` on the windows as rows.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[[1.0, 5.0, 2.0, 8.0]]])
    >>> t = np.array([[3.0]]); f = np.array([[1]], dtype=np.int32); w = np.array([[-1.0, 1.0]])
    >>> hforest.hinge.fern_conv_forward(x, t, f, w, 2, aggregate="sum")
    array([[ 2., -1.,  5.]])
    """
    shape = (kernel_size, stride, padding, dilation)
    return _forward("fern", x, thresholds, features, weights, shape, aggregate, return_route, out)


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
    """Gradients of a loss by the images, the thresholds and the weights of `tree_conv_forward` (p1 eq 11-12).

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
    """Gradients of a loss by the images, the thresholds and the weights of `fern_conv_forward` (p1 eq 11-12).

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
