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
from .geometry import Ints, Windows, as_rows, as_samples, check_images, out_shape, windows_of
from .shared import (
    PACKAGE,
    VERTICES,
    Aggregate,
    Kind,
    Route,
    check_depth,
    check_weights,
    divisor_of,
    flat,
    results,
)


def _check_routing(
    kind: Kind, x: FloatArray, thresholds: FloatArray, features: IntArray, shape: tuple[Ints, ...]
) -> tuple[check.Sizes, Windows, tuple[int, ...]]:
    # The sizes of the call, its windows, and (n_images, *out).
    check.same_device(x=x, thresholds=thresholds, features=features)
    dtype = check_images("x", x)
    windows = windows_of("x", tuple(x.shape), *shape)
    sizes = check_depth(kind, "thresholds", thresholds)
    check.array("thresholds", thresholds, dtype, ("n_trees", VERTICES[kind]), sizes)
    check.array("features", features, check.INT32, ("n_trees", VERTICES[kind]), sizes)
    check.at_least_one(sizes, "n_trees")
    check.not_nan("thresholds", thresholds)
    check.indices("features", features, windows.n_columns, "channels * kernel_size")
    return sizes, windows, (x.shape[0], *out_shape(windows, x.ndim - 2))


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
        as_rows(x), thresholds, features, *as_samples(route, n_trees), windows=windows
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
        samples = as_samples(route, n_trees)
    backend = dispatch.backend(PACKAGE, x)
    getattr(backend, f"{kind}_forward")(
        as_rows(x),
        thresholds,
        features,
        flat(weights, 2, n_outputs),
        divisor,
        flat_y,
        samples,
        windows=windows,
    )
    return y if route is None else (y, route)


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
    """The leaf of each window of images in each tree, and the decision nearest to zero (Lay et al. 2018,
    Alg. 3).

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
    """The leaf of each window of images in each fern, and the decision nearest to zero (Lay et al. 2018,
    Alg. 3).

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
    """Outputs of hinge trees at the windows of images: h(window) = w_leaf |r*| (Lay et al. 2018, eq. 10).

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
    """Outputs of hinge ferns at the windows of images: h(window) = w_leaf |r*| (Lay et al. 2018, eq. 10).

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
