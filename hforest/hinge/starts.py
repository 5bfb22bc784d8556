"""Initial hinge trees and ferns: random (Lay et al. 2018, Alg. 1), sequential, and greedy.

All functions run on the host, once before training; arrays on a GPU give results on that GPU.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from ..core import check, dispatch, supervised
from ..core.aliases import Array, ArrayLike, DType, FloatArray, MaxFeatures, Rng, Task
from .margins import MARGINS, MarginName
from .shared import PACKAGE, VERTICES, Kind, Route
from .thresholds import SPREAD, aside, between, children

Features = Literal["random", "sequential"]

MAX_GREEDY = 2**24
"""Maximum number of leaves that a call of `greedy_init` grows: each takes about a hundred microseconds."""


class Parameters(NamedTuple):
    """The arrays of a hinge forest."""

    thresholds: FloatArray
    """(n_trees, n_vertices)."""
    features: Array
    """(n_trees, n_vertices) int32, or what another margin reads."""
    weights: FloatArray
    """(n_trees, 2**depth, *outputs), dtype of thresholds."""


def init(
    n_trees: int,
    depth: int,
    n_features: int,
    outputs: int | Sequence[int] = (),
    *,
    kind: Kind = "tree",
    margin: MarginName = "column",
    features: Features = "random",
    scale: float = 0.01,
    dtype: DType = np.float32,
    rng: Rng = None,
) -> Parameters:
    """Returns random hinge trees or ferns (Lay et al. 2018, Alg. 1, InitializeHingeForest).

    Other parameters: see `forward`.

    Parameters
    ----------
    n_trees, depth, n_features : int
        At least 1; depth at most 30.
    outputs : int or sequence of int
        Trailing shape of the leaf weights: () for scalars, K or (K,) for vectors.
    features : "random" or "sequential"
        "random" columns are f ~ U{0, ..., n_features - 1}. "sequential" is the number of the vertex in the
        forest modulo n_features, so that columns are used equally often. Projections are "random".
    scale : float
        Standard deviation of the weights; 0.01 in Lay et al. 2018.

    Returns
    -------
    Parameters
        A NamedTuple of three arrays:
    thresholds : (n_trees, n_vertices) array
        t ~ U(-3, 3), in standard deviations of the normalised input.
    features : (n_trees, n_vertices) array of int32, or (n_trees, n_vertices, n_features) array
        Columns, or projections N(0, 1 / n_features): inner products with columns of deviation 1 have about
        deviation 1.
    weights : (n_trees, 2**depth, *outputs) array
        w ~ N(0, scale**2).

    Notes
    -----
    Cost: one draw per vertex, per weight and per number of a projection. Results are NumPy arrays;
    `cupy.asarray` moves them.

    Examples
    --------
    >>> import hforest
    >>> t, f, w = hforest.hinge.init(10, 3, 16, outputs=26, rng=0)
    >>> t.shape, f.shape, w.shape
    ((10, 7), (10, 7), (10, 8, 26))
    >>> t, f, w = hforest.hinge.init(10, 3, 16, kind="fern", margin="projection", rng=0)
    >>> t.shape, f.shape, w.shape
    ((10, 3), (10, 3, 16), (10, 8))
    """
    check.choice("features", features, ("random", "sequential"))
    check.choice("kind", kind, VERTICES)
    record = MARGINS[check.choice("margin", margin, MARGINS)]
    n_trees = check.integer("n_trees", n_trees, 1, check.MAX_COUNT)
    depth = check.integer("depth", depth, 1, check.MAX_DEPTH)
    n_features = check.integer("n_features", n_features, 1, check.MAX_COUNT)
    outputs = outputs if isinstance(outputs, tuple | list) else (outputs,)
    outputs = tuple(check.integer("outputs", size, 1, check.MAX_COUNT) for size in outputs)
    scale = check.number("scale", scale, 0.0)
    dtype = check.float_dtype(dtype)
    rng = check.generator(rng)
    shape = (n_trees, depth if kind == "fern" else 2**depth - 1)
    # Random numbers are drawn in float64.
    numbers = 2**depth * math.prod(outputs) + (shape[1] * n_features if record.learned else 0)
    with check.memory("n_trees", "weights", n_trees * numbers * (8 + dtype.itemsize)):
        w = np.empty((n_trees, 2**depth, *outputs), dtype)
        f = record.start(rng, shape, n_features, features, dtype)
        t = rng.uniform(-SPREAD, SPREAD, shape).astype(dtype)
        w[...] = scale * rng.standard_normal(w.shape)
    return Parameters(t, f, w)


# -------------------------------------------------------------------------------------------- greedy


def _best_split(values: np.ndarray, targets: np.ndarray) -> tuple[float, Any]:
    # One score serves both criteria: the best split has the largest |S_left|**2/n_left +
    # |S_right|**2/n_right, where S is a side's sum of targets. With one-hot targets it has the least Gini
    # impurity, with real targets the least squared error.
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    splits = np.flatnonzero(ordered[1:] > ordered[:-1]) + 1
    if not len(splits):
        return -np.inf, None
    sums = np.cumsum(targets[order], axis=0)
    left, right = sums[splits - 1], sums[-1] - sums[splits - 1]
    scores = (left**2).sum(axis=1) / splits + (right**2).sum(axis=1) / (len(values) - splits)
    best = int(np.argmax(scores))
    split = splits[best]
    return float(scores[best]), between(ordered[split - 1], ordered[split])


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
        # As for medians: samples that cannot be split are replaced by those of the nearest ancestor that can.
        best, ancestor = (-np.inf, candidates[0], None), v
        while best[2] is None:
            here = samples[ancestor]
            for feature in candidates:
                if not len(here):
                    continue
                score, threshold = _best_split(x[here, feature], targets[here])
                if threshold is not None and score > best[0]:
                    best = (score, feature, threshold)
            if best[2] is None and ancestor == 0:
                best = (0.0, candidates[0], aside(x[:, candidates[0]]))
            ancestor = (ancestor - 1) // 2
        _, features[v], thresholds[v] = best
        samples += children(x, samples[v], features[v], thresholds[v])


def _greedy_targets(
    x: FloatArray, y: ArrayLike, task: Task, n_classes: int | None
) -> tuple[np.ndarray, tuple[int, ...]]:
    # The sums of these rows score a split; and the trailing shape of the weights.
    n = x.shape[0]
    y = supervised.as_given("y", y)
    shape = tuple(y.shape[1:])
    goal = supervised.target(y.reshape(n, -1) if len(shape) > 1 and len(y) == n else y, n, task, n_classes)
    values = goal.targets if goal.labels is None else goal.labels
    check.same_device(x=x, y=values)
    host = dispatch.to_numpy(values)
    if goal.labels is not None:
        return np.eye(goal.n_outputs)[host], (goal.n_outputs,)
    return host - host.mean(axis=0), shape


def _candidates(max_features: MaxFeatures, n_features: int) -> int:
    # Here the root is rounded to the nearest number; `max_features` rounds down.
    if isinstance(max_features, str) and max_features == "sqrt":
        return max(1, round(n_features**0.5))
    return supervised.max_features(max_features, n_features)


def greedy_init(
    x: FloatArray,
    y: ArrayLike,
    n_trees: int,
    depth: int,
    *,
    task: Literal["classification", "regression"] = "classification",
    n_classes: int | None = None,
    max_features: MaxFeatures = "sqrt",
    rng: Rng = None,
) -> Parameters:
    """Returns hinge trees with the splits of greedily grown trees, and weights fitted to the leaves.

    Every vertex takes the best split of its samples among a random subset of features: the least Gini
    impurity for classes, the least squared error for regression. Trees use all samples. Then each leaf gets
    the ridge solution of fitting w |r*| to the targets of its samples.

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Finite, at least one sample.
    y : (n_samples,) array of integers or bools, or (n_samples, *outputs) array of real numbers
        Labels 0 to n_classes - 1, or regression targets.
    n_trees, depth : int
        At least 1; ``n_trees * 2**depth`` at most 2**24.
    max_features : "sqrt", int, float or None
        Number of features sampled at a vertex, without replacement: the square root of n_features, rounded to
        the nearest number; a number; a fraction of all; or all.

    Returns
    -------
    Parameters
        A NamedTuple of three arrays:
    thresholds : (n_trees, 2**depth - 1) array, dtype of x
    features : (n_trees, 2**depth - 1) array of int32
    weights : (n_trees, 2**depth, *outputs) array, dtype of x
        outputs is (n_classes,) for classification. Fitted to targets less their mean (labels one-hot)
        for `aggregate="mean"`; divide them by n_trees for "sum".

    Notes
    -----
    The split maximises |S_left|**2/n_left + |S_right|**2/n_right, where S is the sum of a side's targets.
    Leaf weights are sum(|r| y) / (sum(r**2) + a), where a is the mean of r**2 over all samples: the weight of
    a leaf with one sample is about half of what fits it. Vertices that cannot split their samples use those
    of their nearest ancestor that can, as in `median_thresholds`.

    Cost: n_trees * depth * max_features * n_samples * (log(n_samples) + n_outputs), on the host, and about a
    hundred microseconds per vertex.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0], [1.0], [2.0], [3.0]]); y = np.array([0, 0, 1, 1])
    >>> t, f, w = hforest.hinge.greedy_init(x, y, 1, 1, rng=0)
    >>> t, f
    (array([[1.5]]), array([[0]], dtype=int32))
    >>> hforest.hinge.forward(x, t, f, w, aggregate="mean").argmax(axis=1)
    array([0, 0, 1, 1])
    """
    check.same_device(x=x)
    dtype = check.floating("x", x)
    sizes: check.Sizes = {}
    check.array("x", x, dtype, ("n_samples", "n_features"), sizes)
    check.at_least_one(sizes, "n_samples", "n_features")
    check.finite("x", x)
    n_trees = check.integer("n_trees", n_trees, 1, check.MAX_TREES)
    depth = check.integer("depth", depth, 1, check.MAX_DEPTH)
    if n_trees * 2**depth > MAX_GREEDY:
        raise ValueError(
            f"n_trees: expected n_trees * 2**depth of at most 2**24, got {n_trees} * 2**{depth}; choose "
            "fewer or shallower trees"
        )
    targets, outputs = _greedy_targets(x, y, task, n_classes)
    n_features = sizes["n_features"]
    n_candidates = _candidates(max_features, n_features)
    rng = check.generator(rng)
    host = dispatch.to_numpy(x)
    with check.memory("n_trees", "trees", n_trees * 2**depth * (4 + dtype.itemsize)):
        features = np.empty((n_trees, 2**depth - 1), np.int32)
        thresholds = np.empty(features.shape, dtype)
    for m in range(n_trees):
        _greedy_tree(host, targets, n_candidates, rng, thresholds[m], features[m])
    with np.errstate(over="ignore", invalid="ignore"):
        weights = _fit_leaves(host, targets - targets.mean(axis=0), thresholds, features).astype(dtype)
    if not np.isfinite(weights).all():
        raise ValueError(
            f"x: expected samples and targets whose leaf weights are in the range of {dtype}, got "
            "infinite or NaN ones; scale x or the targets to standard deviation 1"
        )
    asarray = dispatch.array_module(x).asarray
    return Parameters(
        asarray(thresholds), asarray(features), asarray(weights.reshape(n_trees, 2**depth, *outputs))
    )


def _fit_leaves(
    x: np.ndarray, targets: np.ndarray, thresholds: np.ndarray, features: np.ndarray
) -> np.ndarray:
    # The ridge solution in each leaf; a leaf without samples has weights 0.
    n_trees, n_leaves = len(features), features.shape[1] + 1
    shape = (x.shape[0], n_trees)
    route = Route(*(np.empty(shape, dtype) for dtype in (np.int32, x.dtype, np.int32)))
    dispatch.backend(PACKAGE, x).traverse("tree", "column", x, thresholds, features, route)
    leaf, margin, _ = route
    r = np.abs(margin.astype(np.float64))
    weights = np.zeros((n_trees, n_leaves, targets.shape[1]))
    for m in range(n_trees):
        squares = np.bincount(leaf[:, m], r[:, m] ** 2, n_leaves)
        ridge = max((r[:, m] ** 2).mean(), np.finfo(np.float64).tiny)
        for k in range(targets.shape[1]):
            products = np.bincount(leaf[:, m], r[:, m] * targets[:, k], n_leaves)
            weights[m, :, k] = products / (squares + ridge)
    return weights
