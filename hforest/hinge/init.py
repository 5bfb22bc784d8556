"""Where hinge trees and ferns start: random (p1 Alg. 1), sequential, medians, greedy; and repair.

All of it runs on the host, once before training; arrays given on a GPU come back on that GPU.
"""

from typing import Any, Literal

import numpy as np

from ..core import check, dispatch
from ..core.dispatch import Array

SPREAD = 3.0
"""p1 Alg. 1 draws thresholds from U(-3, 3), in standard deviations of the normalised input."""

Features = Literal["random", "sequential"]


def _init(
    n_trees: int,
    depth: int,
    n_vertices: int,
    n_features: int,
    outputs: Any,
    features: str,
    scale: float,
    dtype: Any,
    rng: Any,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    outputs = tuple(check.integer("outputs", size, 1) for size in outputs)
    scale = check.number("scale", scale, 0.0)
    dtype = np.dtype(dtype)
    if dtype not in check.FLOATS:
        raise TypeError(f"dtype: expected float32 or float64, got {dtype}; pass dtype=numpy.float32")
    rng = check.generator(rng)
    shape = (n_trees, n_vertices)
    if features == "random":
        f = rng.integers(0, n_features, shape, dtype=np.int32)
    else:
        f = (np.arange(n_trees * n_vertices, dtype=np.int64) % n_features).astype(np.int32).reshape(shape)
    t = rng.uniform(-SPREAD, SPREAD, shape).astype(dtype)
    w = (scale * rng.standard_normal((n_trees, 2**depth, *outputs))).astype(dtype)
    return t, f, w


def _check_sizes(n_trees: int, depth: int, n_features: int, features: str) -> tuple[int, int, int]:
    check.choice("features", features, ("random", "sequential"))
    return (
        check.integer("n_trees", n_trees, 1),
        check.integer("depth", depth, 1, check.MAX_DEPTH),
        check.integer("n_features", n_features, 1, 2**31 - 1),
    )


def tree_init(
    n_trees: int,
    depth: int,
    n_features: int,
    outputs: int | tuple[int, ...] = (),
    *,
    features: Features = "random",
    scale: float = 0.01,
    dtype: Any = np.float32,
    rng: Any = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random start of hinge trees (p1 Alg. 1, InitializeHingeForest).

    Parameters
    ----------
    n_trees, depth, n_features : int
        At least 1; depth at most 30.
    outputs : int or tuple of int
        Trailing shape of the leaf weights: () for scalars, K or (K,) for vectors.
    features : "random" or "sequential"
        f ~ U{0, ..., n_features - 1}, or the running number of the vertex in the forest modulo
        n_features, so that every column is used equally often.
    scale : float
        Standard deviation of the weights; the paper's 0.01.
    dtype : float32 or float64
        Of thresholds and weights. The values are drawn in float64 and rounded.
    rng : None, int or numpy.random.Generator
        The seed.

    Returns
    -------
    thresholds : (n_trees, 2**depth - 1) array
        t ~ U(-3, 3), in standard deviations of the normalised input.
    features : (n_trees, 2**depth - 1) array of int32
    weights : (n_trees, 2**depth, *outputs) array
        w ~ N(0, scale**2).

    Raises
    ------
    TypeError, ValueError
        A size that is not an integer or too small, another dtype, an unknown word.

    Notes
    -----
    Cost: one draw a vertex and a weight. Always NumPy arrays; `cupy.asarray` moves them.

    Examples
    --------
    >>> import hforest
    >>> t, f, w = hforest.hinge.tree_init(10, 3, 16, outputs=26, rng=0)
    >>> t.shape, f.shape, w.shape
    ((10, 7), (10, 7), (10, 8, 26))
    """
    n_trees, depth, n_features = _check_sizes(n_trees, depth, n_features, features)
    return _init(n_trees, depth, 2**depth - 1, n_features, outputs, features, scale, dtype, rng)


def fern_init(
    n_trees: int,
    depth: int,
    n_features: int,
    outputs: int | tuple[int, ...] = (),
    *,
    features: Features = "random",
    scale: float = 0.01,
    dtype: Any = np.float32,
    rng: Any = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random start of hinge ferns (p1 Alg. 1 with one decision a level).

    Parameters
    ----------
    n_trees, depth, n_features, outputs, features, scale, dtype, rng
        As for `tree_init`; n_trees is the number of ferns.

    Returns
    -------
    thresholds : (n_trees, depth) array
        t ~ U(-3, 3), in standard deviations of the normalised input.
    features : (n_trees, depth) array of int32
    weights : (n_trees, 2**depth, *outputs) array
        w ~ N(0, scale**2).

    Raises
    ------
    TypeError, ValueError
        A size that is not an integer or too small, another dtype, an unknown word.

    Notes
    -----
    Cost: one draw a decision and a weight.

    Examples
    --------
    >>> import hforest
    >>> t, f, w = hforest.hinge.fern_init(10, 3, 16, rng=0)
    >>> t.shape, f.shape, w.shape
    ((10, 3), (10, 3), (10, 8))
    """
    n_trees, depth, n_features = _check_sizes(n_trees, depth, n_features, features)
    return _init(n_trees, depth, depth, n_features, outputs, features, scale, dtype, rng)


# ------------------------------------------------------------------------------------------- medians


def _between(low: Any, high: Any) -> Any:
    # A threshold with low <= t < high: the midpoint, unless rounding lifts it to high.
    middle = low + (high - low) / 2
    return low if middle >= high else middle


def _median_cut(values: np.ndarray) -> Any:
    """The threshold between different neighbours nearest to the middle, or None if there is one value."""
    ordered = np.sort(values)
    cuts = np.flatnonzero(ordered[1:] > ordered[:-1]) + 1
    if not len(cuts):
        return None
    cut = cuts[np.argmin(np.abs(2 * cuts - len(ordered)))]
    return _between(ordered[cut - 1], ordered[cut])


def _aside(values: np.ndarray) -> Any:
    # A feature with one value cannot split: send everything left with a margin at the end of Alg. 1's
    # range, so that this vertex does not become the least margin of every sample.
    return values[0] + values.dtype.type(SPREAD)


def _children(
    x: np.ndarray, samples: np.ndarray, feature: int, threshold: Any
) -> tuple[np.ndarray, np.ndarray]:
    right = x[samples, feature] > threshold
    return samples[~right], samples[right]


def _median_tree(x: np.ndarray, features: np.ndarray, thresholds: np.ndarray) -> None:
    # samples[v]: the samples that reach v. A vertex whose samples do not vary in its feature looks at
    # its parent's samples, that parent's, and so on.
    samples = [np.arange(x.shape[0])]
    for v, feature in enumerate(features):
        cut, ancestor = None, v
        while cut is None:
            cut = _median_cut(x[samples[ancestor], feature])
            if cut is None and ancestor == 0:
                cut = _aside(x[:, feature])
            ancestor = (ancestor - 1) // 2
        thresholds[v] = cut
        samples += _children(x, samples[v], feature, cut)


def _check_median(x: Array, features: Array) -> tuple[np.ndarray, np.ndarray]:
    check.same_device(x=x, features=features)
    dtype = check.floating("x", x)
    sizes: check.Sizes = {}
    check.array("x", x, dtype, ("n_samples", "n_features"), sizes)
    check.array("features", features, check.INT32, ("n_trees", "n_vertices"), sizes)
    check.at_least_one(sizes, "n_samples", "n_features", "n_trees")
    check.finite("x", x)
    check.indices("features", features, sizes["n_features"], "n_features")
    return dispatch.to_numpy(x), dispatch.to_numpy(features)


def tree_median_thresholds(x: Array, features: Array) -> Array:
    """Thresholds at the medians of the samples that reach each vertex.

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Finite, at least one sample.
    features : (n_trees, 2**depth - 1) array of int32
        Column of x that each vertex looks at.

    Returns
    -------
    thresholds : (n_trees, 2**depth - 1) array, dtype of x
        Midway between two different neighbouring values, as near to an even split as ties allow, and
        never where a tie would straddle it. A vertex that no sample reaches, or whose samples all have
        one value, takes the median of its nearest ancestor's samples that vary; a feature without
        any variation gets its value + 3, so that it decides nothing and its margin is not the least.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape, layout or NaN; no sample; a feature outside x.

    Notes
    -----
    Cost: a sort of every vertex's samples, on the host: n_trees * depth * n_samples * log(n_samples).

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[1.0], [2.0], [3.0], [4.0]])
    >>> hforest.hinge.tree_median_thresholds(x, np.zeros((1, 3), np.int32))
    array([[2.5, 1.5, 3.5]])
    """
    host_x, host_f = _check_median(x, features)
    check.tree_depth("features", features)
    thresholds = np.empty(host_f.shape, host_x.dtype)
    for m in range(len(host_f)):
        _median_tree(host_x, host_f[m], thresholds[m])
    return dispatch.array_module(x).asarray(thresholds)


def fern_median_thresholds(x: Array, features: Array) -> Array:
    """Thresholds at the medians of each fern's features over all samples.

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Finite, at least one sample.
    features : (n_ferns, depth) array of int32
        Column of x that each decision looks at.

    Returns
    -------
    thresholds : (n_ferns, depth) array, dtype of x
        As in `tree_median_thresholds`, over all samples; equal for equal features.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape, layout or NaN; no sample; a feature outside x.

    Notes
    -----
    Cost: a sort of each column that is used, on the host.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[1.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
    >>> hforest.hinge.fern_median_thresholds(x, np.array([[0, 1]], np.int32))
    array([[1.5, 3. ]])
    """
    host_x, host_f = _check_median(x, features)
    check.fern_depth("features", features)
    thresholds = np.empty(host_f.shape, host_x.dtype)
    for feature in np.unique(host_f):
        column = host_x[:, feature]
        cut = _median_cut(column)
        thresholds[host_f == feature] = _aside(column) if cut is None else cut
    return dispatch.array_module(x).asarray(thresholds)


# -------------------------------------------------------------------------------------------- greedy


def _best_cut(values: np.ndarray, targets: np.ndarray) -> tuple[float, Any]:
    # Both criteria are one: the split with the largest |S_left|**2/n_left + |S_right|**2/n_right, S being
    # a side's sum of targets. With one-hot targets it has the least Gini impurity, with real ones the
    # least squared error.
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    cuts = np.flatnonzero(ordered[1:] > ordered[:-1]) + 1
    if not len(cuts):
        return -np.inf, None
    sums = np.cumsum(targets[order], axis=0)
    left, right = sums[cuts - 1], sums[-1] - sums[cuts - 1]
    scores = (left**2).sum(axis=1) / cuts + (right**2).sum(axis=1) / (len(values) - cuts)
    best = int(np.argmax(scores))
    cut = cuts[best]
    return float(scores[best]), _between(ordered[cut - 1], ordered[cut])


def _greedy_tree(
    x: np.ndarray,
    targets: np.ndarray,
    n_candidates: int,
    rng: np.random.Generator,
    thresholds: np.ndarray,
    features: np.ndarray,
) -> None:
    samples = [np.arange(x.shape[0])]
    for v in range(len(features)):
        candidates = rng.choice(x.shape[1], n_candidates, replace=False)
        # As for medians: a vertex that cannot split its own samples learns from its ancestors'.
        best, ancestor = (-np.inf, candidates[0], None), v
        while best[2] is None:
            here = samples[ancestor]
            for feature in candidates:
                score, cut = _best_cut(x[here, feature], targets[here]) if len(here) else (-np.inf, None)
                if cut is not None and score > best[0]:
                    best = (score, feature, cut)
            if best[2] is None and ancestor == 0:
                best = (0.0, candidates[0], _aside(x[:, candidates[0]]))
            ancestor = (ancestor - 1) // 2
        _, features[v], thresholds[v] = best
        samples += _children(x, samples[v], features[v], thresholds[v])


def _greedy_targets(
    x: Array, y: Array, task: str, n_classes: int | None
) -> tuple[np.ndarray, tuple[int, ...]]:
    check.choice("task", task, ("classification", "regression"))
    sizes: check.Sizes = {"n_samples": x.shape[0]}
    if task == "regression":
        check.array("y", y, x.dtype, ("n_samples", ...), sizes)
        check.finite("y", y)
        if n_classes is not None:
            raise ValueError("n_classes: expected None for regression, got a number; leave it out")
        targets = dispatch.to_numpy(y).astype(np.float64).reshape(x.shape[0], -1)
        return targets - targets.mean(axis=0), tuple(y.shape[1:])
    check.array("y", y, check.INT32, ("n_samples",), sizes)
    labels = dispatch.to_numpy(y)
    if n_classes is None:
        n_classes = max(int(labels.max()), 0) + 1
    n_classes = check.integer("n_classes", n_classes, 1)
    check.indices("y", y, n_classes, "n_classes")
    return np.eye(n_classes)[labels], (n_classes,)


def tree_greedy_init(
    x: Array,
    y: Array,
    n_trees: int,
    depth: int,
    *,
    task: Literal["classification", "regression"] = "classification",
    n_classes: int | None = None,
    n_candidates: int | None = None,
    rng: Any = None,
) -> tuple[Array, Array, Array]:
    """Start hinge trees as a greedy forest would split, with weights fitted to the leaves.

    Every vertex takes the best split of its own samples (all of them) among the features of a random
    subset: least Gini impurity for classes, least squared error for regression. Then each leaf gets
    the ridge solution of fitting w |r*| to its samples' targets.

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Finite, at least one sample.
    y : (n_samples,) array of int32, or (n_samples, *outputs) array with the dtype of x
        Labels 0 to n_classes - 1, or regression targets.
    n_trees, depth : int
        At least 1; depth at most 30.
    task : "classification" or "regression"
    n_classes : int, optional
        Classes; max(y) + 1 if left out. Classification only.
    n_candidates : int, optional
        Features tried at a vertex, without replacement; the rounded square root of n_features if left
        out.
    rng : None, int or numpy.random.Generator
        The seed.

    Returns
    -------
    thresholds : (n_trees, 2**depth - 1) array, dtype of x
    features : (n_trees, 2**depth - 1) array of int32
    weights : (n_trees, 2**depth, *outputs) array, dtype of x
        outputs is (n_classes,) for classification. Fitted to targets less their mean (labels one-hot)
        for `aggregate="mean"`; divide them by n_trees for "sum".

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape, layout or NaN; no sample; a label out of range.

    Notes
    -----
    The split maximises |S_left|**2/n_left + |S_right|**2/n_right, S being the sum of a side's targets.
    Leaf weights are sum(|r| y) / (sum(r**2) + a), where a is the mean of r**2 over all samples: a leaf
    with one sample is trusted by half. Vertices that cannot split their samples use their nearest
    ancestor's, as in `tree_median_thresholds`.

    Cost: n_trees * depth * n_candidates * n_samples * (log(n_samples) + n_outputs), on the host.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0], [1.0], [2.0], [3.0]]); y = np.array([0, 0, 1, 1], np.int32)
    >>> t, f, w = hforest.hinge.tree_greedy_init(x, y, 1, 1, rng=0)
    >>> t, f
    (array([[1.5]]), array([[0]], dtype=int32))
    >>> hforest.hinge.tree_forward(x, t, f, w, aggregate="mean").argmax(axis=1)
    array([0, 0, 1, 1])
    """
    check.same_device(x=x, y=y)
    dtype = check.floating("x", x)
    sizes: check.Sizes = {}
    check.array("x", x, dtype, ("n_samples", "n_features"), sizes)
    check.at_least_one(sizes, "n_samples", "n_features")
    check.finite("x", x)
    n_trees = check.integer("n_trees", n_trees, 1)
    depth = check.integer("depth", depth, 1, check.MAX_DEPTH)
    targets, outputs = _greedy_targets(x, y, task, n_classes)
    n_features = sizes["n_features"]
    if n_candidates is None:
        n_candidates = max(1, round(n_features**0.5))
    n_candidates = check.integer("n_candidates", n_candidates, 1, n_features)
    rng = check.generator(rng)
    host = dispatch.to_numpy(x)
    features = np.empty((n_trees, 2**depth - 1), np.int32)
    thresholds = np.empty(features.shape, dtype)
    for m in range(n_trees):
        _greedy_tree(host, targets, n_candidates, rng, thresholds[m], features[m])
    weights = _fit_leaves(host, targets - targets.mean(axis=0), thresholds, features)
    asarray = dispatch.array_module(x).asarray
    return (
        asarray(thresholds),
        asarray(features),
        asarray(weights.astype(dtype).reshape(n_trees, 2**depth, *outputs)),
    )


def _fit_leaves(
    x: np.ndarray, targets: np.ndarray, thresholds: np.ndarray, features: np.ndarray
) -> np.ndarray:
    n_trees, n_leaves = len(features), features.shape[1] + 1
    shape = (x.shape[0], n_trees)
    leaf, vertex, margin = np.empty(shape, np.int32), np.empty(shape, np.int32), np.empty(shape, x.dtype)
    dispatch.twin(__package__, x).tree_traverse(x, thresholds, features, leaf, margin, vertex)
    r = np.abs(margin.astype(np.float64))
    weights = np.zeros((n_trees, n_leaves, targets.shape[1]))
    for m in range(n_trees):
        squares = np.bincount(leaf[:, m], r[:, m] ** 2, n_leaves)
        ridge = max((r[:, m] ** 2).mean(), np.finfo(np.float64).tiny)
        for k in range(targets.shape[1]):
            products = np.bincount(leaf[:, m], r[:, m] * targets[:, k], n_leaves)
            weights[m, :, k] = products / (squares + ridge)
    return weights


# ------------------------------------------------------------------------------- thresholds on a path


def _intervals(thresholds: np.ndarray, features: np.ndarray, v: int) -> tuple[np.ndarray, np.ndarray]:
    # What the ancestors of v say of x[f_v]: low < x <= high, for each tree.
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


def _check_pair(thresholds: Array, features: Array) -> tuple[np.ndarray, np.ndarray]:
    check.same_device(thresholds=thresholds, features=features)
    dtype = check.floating("thresholds", thresholds)
    check.tree_depth("thresholds", thresholds)
    sizes: check.Sizes = {}
    check.array("thresholds", thresholds, dtype, ("n_trees", "2**depth - 1"), sizes)
    check.array("features", features, check.INT32, ("n_trees", "2**depth - 1"), sizes)
    check.at_least_one(sizes, "n_trees")
    check.not_nan("thresholds", thresholds)
    return dispatch.to_numpy(thresholds), dispatch.to_numpy(features)


def tree_thresholds_consistent(thresholds: Array, features: Array) -> Array:
    """Where both children of a vertex can be reached, going by its ancestors with the same feature.

    Behind an ancestor with feature f and threshold t every sample has x[f] <= t on the left and
    x[f] > t on the right. A vertex with the same feature is consistent if its threshold lies strictly
    inside the interval that its ancestors leave; otherwise one of its subtrees is dead.

    Parameters
    ----------
    thresholds : (n_trees, 2**depth - 1) array of float32 or float64
    features : (n_trees, 2**depth - 1) array of int32

    Returns
    -------
    consistent : (n_trees, 2**depth - 1) array of bool

    Raises
    ------
    TypeError, ValueError
        Wrong dtype or device; wrong shape, layout or NaN.

    Notes
    -----
    Cost: depth per vertex, on the host.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> t = np.array([[0.0, 0.5, 0.5]]); f = np.zeros((1, 3), np.int32)
    >>> hforest.hinge.tree_thresholds_consistent(t, f)
    array([[ True, False,  True]])
    """
    t, f = _check_pair(thresholds, features)
    consistent = np.empty(t.shape, bool)
    for v in range(t.shape[1]):
        low, high = _intervals(t, f, v)
        consistent[:, v] = (low < t[:, v]) & (t[:, v] < high)
    return dispatch.array_module(thresholds).asarray(consistent)


def tree_repair_thresholds(thresholds: Array, features: Array) -> Array:
    """Move thresholds that contradict an ancestor to where both children can be reached.

    Parameters
    ----------
    thresholds : (n_trees, 2**depth - 1) array of float32 or float64
        Not changed.
    features : (n_trees, 2**depth - 1) array of int32

    Returns
    -------
    thresholds : (n_trees, 2**depth - 1) array
        From the root down: a consistent threshold stays; one that is outside is mirrored at the bound
        it violates (a random threshold stays random); where that leaves the interval on the other
        side too, or hits the bound, the middle of the interval is taken, or, where only one bound
        exists, a step of 1 from it (of a thousandth of the bound, if that is more). An infinite
        threshold without any bound becomes 0. `tree_thresholds_consistent` is then True everywhere,
        except where two ancestors leave no number of this dtype between them.

    Raises
    ------
    TypeError, ValueError
        Wrong dtype or device; wrong shape, layout or NaN.

    Notes
    -----
    Cost: depth per vertex, on the host.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> t = np.array([[0.0, 0.5, 0.5]]); f = np.zeros((1, 3), np.int32)
    >>> hforest.hinge.tree_repair_thresholds(t, f)
    array([[ 0. , -0.5,  0.5]])
    """
    given, f = _check_pair(thresholds, features)
    t = given.copy()
    with np.errstate(invalid="ignore", over="ignore"):
        for v in range(t.shape[1]):
            t[:, v] = _inside(t[:, v], *_intervals(t, f, v))
    return dispatch.array_module(thresholds).asarray(t)


def _inside(t: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    fits = (low < t) & (t < high)
    mirrored = np.where(t <= low, low + (low - t), high - (t - high))
    mirrored_fits = (low < mirrored) & (mirrored < high)
    # A step that is never lost to rounding, whatever the size of the bound.
    below = high - np.maximum(1, abs(high) / 1024)
    above = low + np.maximum(1, abs(low) / 1024)
    # Halves first: the sum of two large bounds may overflow.
    middle = np.where(np.isinf(low), below, np.where(np.isinf(high), above, low / 2 + high / 2))
    middle = np.where(np.isinf(low) & np.isinf(high), 0, middle)
    return np.where(fits, t, np.where(mirrored_fits, mirrored, middle)).astype(t.dtype)
