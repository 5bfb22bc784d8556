"""Thresholds of hinge trees and ferns that fit their input: medians, consistency on a path, and repair.

All functions run on the host, once before training; arrays on a GPU give results on that GPU.
"""

from typing import Any

import numpy as np

from ..core import check, dispatch
from ..core.aliases import Array, FloatArray, IntArray
from .shared import Kind, check_depth

SPREAD = 3.0
"""Lay et al. 2018, Alg. 1, draw thresholds from U(-3, 3), in standard deviations of the normalised input."""

# ------------------------------------------------------------------------------------------- medians


def between(low: Any, high: Any) -> Any:
    """Returns a threshold with low <= t < high: the midpoint, or low if the midpoint rounds to high."""
    with np.errstate(over="ignore"):
        middle = low + (high - low) / 2
    return low if middle >= high else middle


def _median_split(values: np.ndarray) -> Any:
    """Returns the threshold between different neighbours nearest to the middle, or None for a constant."""
    ordered = np.sort(values)
    splits = np.flatnonzero(ordered[1:] > ordered[:-1]) + 1
    if not len(splits):
        return None
    split = splits[np.argmin(np.abs(2 * splits - len(ordered)))]
    return between(ordered[split - 1], ordered[split])


def aside(values: np.ndarray) -> Any:
    """Returns a threshold for a constant feature, which sends all samples left.

    Its margin is SPREAD, so that it is not the least margin of every sample.
    """
    return values[0] + values.dtype.type(SPREAD)


def children(
    x: np.ndarray, samples: np.ndarray, feature: int, threshold: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the samples that go left, and those that go right."""
    right = x[samples, feature] > threshold
    return samples[~right], samples[right]


def _median_tree(x: np.ndarray, features: np.ndarray, thresholds: np.ndarray) -> None:
    # samples[v]: the samples that reach v. If they do not vary in the feature of v, the samples of the
    # nearest ancestor that vary are used.
    samples = [np.arange(x.shape[0])]
    for v, feature in enumerate(features):
        threshold, ancestor = None, v
        while threshold is None:
            threshold = _median_split(x[samples[ancestor], feature])
            if threshold is None and ancestor == 0:
                threshold = aside(x[:, feature])
            ancestor = (ancestor - 1) // 2
        thresholds[v] = threshold
        samples += children(x, samples[v], feature, threshold)


def _check_median(x: FloatArray, features: IntArray) -> tuple[np.ndarray, np.ndarray]:
    check.same_device(x=x, features=features)
    dtype = check.floating("x", x)
    sizes: check.Sizes = {}
    check.array("x", x, dtype, ("n_samples", "n_features"), sizes)
    check.array("features", features, check.INT32, ("n_trees", "n_vertices"), sizes)
    check.at_least_one(sizes, "n_samples", "n_features", "n_trees")
    check.finite("x", x)
    check.indices("features", features, sizes["n_features"], "n_features")
    return dispatch.to_numpy(x), dispatch.to_numpy(features)


def median_thresholds(x: FloatArray, features: IntArray, *, kind: Kind = "tree") -> FloatArray:
    """Returns thresholds at the medians of the samples that reach a vertex; in a fern, of all samples.

    Other parameters: see `forward`.

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Finite, at least one sample.
    features : (n_trees, n_vertices) array of int32
        Columns of x.

    Returns
    -------
    thresholds : (n_trees, n_vertices) array, dtype of x
        Midpoints of two different neighbouring values, as near to an even split as ties allow. If no sample
        reaches a vertex, or its samples have one value, the median is that of the nearest ancestor whose
        samples vary. A constant feature gets its value + 3: all samples go left, and its margin is not the
        least.

    Notes
    -----
    Cost: a sort of the samples of every vertex, on the host: n_trees * depth * n_samples * log(n_samples);
    for ferns a sort of each column that a vertex compares.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[1.0], [2.0], [3.0], [4.0]])
    >>> hforest.hinge.median_thresholds(x, np.zeros((1, 3), np.int32))
    array([[2.5, 1.5, 3.5]])
    >>> hforest.hinge.median_thresholds(x, np.zeros((1, 2), np.int32), kind="fern")
    array([[2.5, 2.5]])
    """
    host_x, host_f = _check_median(x, features)
    check_depth(kind, "features", features)
    thresholds = np.empty(host_f.shape, host_x.dtype)
    if kind == "tree":
        for m in range(len(host_f)):
            _median_tree(host_x, host_f[m], thresholds[m])
    else:
        for feature in np.unique(host_f):
            column = host_x[:, feature]
            threshold = _median_split(column)
            thresholds[host_f == feature] = aside(column) if threshold is None else threshold
    return dispatch.array_module(x).asarray(thresholds)


# ------------------------------------------------------------------------------- thresholds on a path


def _intervals(thresholds: np.ndarray, features: np.ndarray, v: int) -> tuple[np.ndarray, np.ndarray]:
    # The interval low < x[f_v] <= high to which the ancestors of v restrict samples, for each tree.
    low = np.full(len(thresholds), -np.inf, thresholds.dtype)
    high = np.full(len(thresholds), np.inf, thresholds.dtype)
    child = v
    while child:
        parent = (child - 1) // 2
        same = features[:, parent] == features[:, v]
        t = thresholds[:, parent]
        if child == 2 * parent + 2:
            low = np.where(same, np.maximum(low, t), low)
        else:
            high = np.where(same, np.minimum(high, t), high)
        child = parent
    return low, high


def _check_pair(thresholds: FloatArray, features: IntArray) -> tuple[np.ndarray, np.ndarray]:
    check.same_device(thresholds=thresholds, features=features)
    dtype = check.floating("thresholds", thresholds)
    check.tree_depth("thresholds", thresholds)
    sizes: check.Sizes = {}
    check.array("thresholds", thresholds, dtype, ("n_trees", "2**depth - 1"), sizes)
    check.array("features", features, check.INT32, ("n_trees", "2**depth - 1"), sizes)
    check.at_least_one(sizes, "n_trees")
    check.not_nan("thresholds", thresholds)
    return dispatch.to_numpy(thresholds), dispatch.to_numpy(features)


def thresholds_consistent(thresholds: FloatArray, features: IntArray) -> Array:
    """Returns where both children of a vertex can be reached, judged by its ancestors with the same feature.

    Below an ancestor with feature f and threshold t every sample has x[f] <= t on the left and x[f] > t on
    the right. A vertex with the same feature is consistent if its threshold lies strictly inside the interval
    that these bounds make; otherwise no sample reaches one of its subtrees.

    Parameters
    ----------
    thresholds : (n_trees, 2**depth - 1) array of float32 or float64
    features : (n_trees, 2**depth - 1) array of int32
        Column of x that each vertex compares.

    Returns
    -------
    consistent : (n_trees, 2**depth - 1) array of bool

    Notes
    -----
    Cost: depth per vertex, on the host.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> t = np.array([[0.0, 0.5, 0.5]]); f = np.zeros((1, 3), np.int32)
    >>> hforest.hinge.thresholds_consistent(t, f)
    array([[ True, False,  True]])
    """
    t, f = _check_pair(thresholds, features)
    consistent = np.empty(t.shape, bool)
    for v in range(t.shape[1]):
        low, high = _intervals(t, f, v)
        consistent[:, v] = (low < t[:, v]) & (t[:, v] < high)
    return dispatch.array_module(thresholds).asarray(consistent)


def repair_thresholds(thresholds: FloatArray, features: IntArray) -> FloatArray:
    """Returns thresholds with those moved that contradict an ancestor, so that both children can be reached.

    Parameters: see `thresholds_consistent`.

    Returns
    -------
    thresholds : (n_trees, 2**depth - 1) array
        A new array. Vertices are repaired from the root down. A consistent threshold stays. A threshold
        outside of its interval is mirrored at the bound that it violates, so a random threshold stays random.
        If that hits the bound or violates the other one, the middle of the interval is taken. With one bound
        alone it is a step of 1 from the bound, or of a thousandth of the bound, if that is more. An infinite
        threshold without a bound becomes 0. `thresholds_consistent` is then True everywhere, except where no
        number of this dtype lies between two ancestors.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> t = np.array([[0.0, 0.5, 0.5]]); f = np.zeros((1, 3), np.int32)
    >>> hforest.hinge.repair_thresholds(t, f)
    array([[ 0. , -0.5,  0.5]])
    """
    before, f = _check_pair(thresholds, features)
    t = before.copy()
    with np.errstate(invalid="ignore", over="ignore"):
        for v in range(t.shape[1]):
            t[:, v] = _inside(t[:, v], *_intervals(t, f, v))
    return dispatch.array_module(thresholds).asarray(t)


def _inside(t: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    fits = (low < t) & (t < high)
    mirrored = np.where(t <= low, low + (low - t), high - (t - high))
    mirrored_fits = (low < mirrored) & (mirrored < high)
    # A step that rounding never removes, whatever the size of the bound.
    below = high - np.maximum(1, abs(high) / 1024)
    above = low + np.maximum(1, abs(low) / 1024)
    # Halves first: the sum of two large bounds may overflow.
    middle = np.where(np.isinf(low), below, np.where(np.isinf(high), above, low / 2 + high / 2))
    middle = np.where(np.isinf(low) & np.isinf(high), 0, middle)
    return np.where(fits, t, np.where(mirrored_fits, mirrored, middle)).astype(t.dtype)
