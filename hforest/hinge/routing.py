"""Traversals of hinge trees and ferns: the leaf, and the margin nearest to zero (Lay et al. 2018, Alg. 3)."""

import numpy as np

from ..core import check, dispatch
from ..core.aliases import FloatArray, IntArray
from .shared import PACKAGE, Kind, Route, check_routing, results


def _traverse(
    kind: Kind, x: FloatArray, thresholds: FloatArray, features: IntArray, out: Route | None
) -> Route:
    check.same_device(x=x, thresholds=thresholds, features=features)
    sizes = check_routing(kind, x, thresholds, features)
    shape = (sizes["n_samples"], sizes["n_trees"])
    inputs = {"x": x, "thresholds": thresholds, "features": features}
    leaf, margin, vertex = results(
        ("leaf", "margin", "vertex"), out, (shape,) * 3, (np.int32, x.dtype, np.int32), inputs
    )
    getattr(dispatch.backend(PACKAGE, x), f"{kind}_traverse")(x, thresholds, features, leaf, margin, vertex)
    return Route(leaf, margin, vertex)


def tree_traverse(
    x: FloatArray, thresholds: FloatArray, features: IntArray, *, out: Route | None = None
) -> Route:
    """The leaf of each sample in each tree, and the decision nearest to zero on the path (Lay et al. 2018,
    Alg. 3).

    At vertex v the margin is r_v = x[f_v] - t_v; a sample goes right if r_v > 0, so a tie goes left.

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Finite. Zero samples are legal.
    thresholds : (n_trees, 2**depth - 1) array, dtype of x
        In the unit of x. Infinite thresholds are legal: all samples go to one side of such a vertex.
    features : (n_trees, 2**depth - 1) array of int32
        Column of x that each vertex compares.
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
    >>> leaf, margin, vertex = hforest.hinge.tree_traverse(x, t, f)
    >>> leaf, margin, vertex
    (array([[3]], dtype=int32), array([[0.25]]), array([[2]], dtype=int32))
    """
    return _traverse("tree", x, thresholds, features, out)


def fern_traverse(
    x: FloatArray, thresholds: FloatArray, features: IntArray, *, out: Route | None = None
) -> Route:
    """The leaf of each sample in each fern, and the decision nearest to zero (Lay et al. 2018, Alg. 3 and end
    of section 3).

    As `tree_traverse`, with one decision a level, whatever the decisions before it.

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Finite. Zero samples are legal.
    thresholds : (n_ferns, depth) array, dtype of x
        In the unit of x.
    features : (n_ferns, depth) array of int32
        Column of x that each decision compares.
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
    Route(leaf=array([[2]], dtype=int32), margin=array([[0.5]]), vertex=array([[0]], dtype=int32))
    """
    return _traverse("fern", x, thresholds, features, out)
