"""Hinge trees that start from grown forests."""

from typing import Literal, NamedTuple

import numpy as np

from ..core import check, dispatch, supervised
from ..core.aliases import Array, ArrayLike, FloatArray, IntArray, Task
from ..tree import Forest
from ..tree.complete import check_depth, compared, places
from ..tree.forest import check_comparisons, check_nodes, check_numbers, copied, on_host
from ..tree.walks import outputs as forest_outputs
from .ridge import check_ridge, fitted, rounded
from .shared import PACKAGE, Route
from .starts import Parameters

MAX_LEAVES = 2**24
"""Maximum number of leaves: a grown tree without a limit of depth may have a path of any length."""

_BLOCK = 1 << 22  # values of kernels computed at a time


class ForestStart(NamedTuple):
    """Hinge trees that start as a grown forest."""

    parameters: Parameters
    """Arguments of `forward`, which is called with `aggregate="sum"`."""
    intercept: FloatArray
    """(n_outputs,), dtype of x: added to the sum."""
    kernel: FloatArray | None
    """(n_features, n_kernels), dtype of x: hinge trees read ``x @ kernel``; None if they read x."""


# ---------------------------------------------------------------------------------------- nodes at places


def _with_copies(vertex: IntArray) -> IntArray:
    """Returns vertices (n_trees, 2**depth - 1); those below a leaf have their parent's node, not -1."""
    vertex = vertex.copy()
    first = 1  # vertex of a level
    while first < vertex.shape[1]:
        level = vertex[:, first : 2 * first + 1]
        parents = vertex[:, first // 2 : first]
        level[...] = np.where(level < 0, np.repeat(parents, 2, axis=1), level)
        first = 2 * first + 1
    return vertex


def _spread(weights: FloatArray, reached: IntArray) -> FloatArray:
    """Returns weights (n_trees, n_leaves, n_outputs), equal at all leaves that stand for one grown leaf.

    Samples reach one of them, in which the weights were fitted; the others had weights 0.
    """
    nodes, place = np.unique(reached, return_inverse=True)
    of_node = np.zeros((len(nodes), weights.shape[2]))
    np.add.at(of_node, place.reshape(-1), weights.reshape(-1, weights.shape[2]))
    return of_node[place.reshape(reached.shape)]


# ---------------------------------------------------------------------------------------------- checks


class _Problem(NamedTuple):
    """Checked arguments of a start."""

    forest: Forest
    """The grown forest, in NumPy arrays."""
    depth: int
    target: supervised.Target


def _check(x: FloatArray, y: ArrayLike | None, forest: Forest, depth: int | None, task: Task) -> _Problem:
    check.same_device(x=x)
    forest = copied(forest)
    dtype = forest.threshold.dtype
    check_comparisons("forest", forest)
    check.same_device(x=x, **{"forest.feature": forest.feature})
    check_nodes(forest)
    check_numbers(forest, "threshold", "value", "data")
    sizes = {"n_features": int(forest.n_features)}
    check.array("x", x, dtype, ("n_samples", "n_features"), sizes)
    check.at_least_one(sizes, "n_samples", "n_features")
    check.finite("x", x)
    n_outputs = forest.value.shape[1]
    check.choice("task", task, supervised.TASKS)
    if y is None:
        predicted = forest_outputs(forest, x).astype(np.float64)
        target = supervised.Target(None, predicted, n_outputs)
    else:
        classes = n_outputs if task == "classification" else None
        target = supervised.target(y, len(x), task, classes)
        values = target.targets if target.labels is None else target.labels
        check.same_device(x=x, y=values)
    host = on_host(forest)
    return _Problem(host, check_depth(host, depth, check.MAX_DEPTH, MAX_LEAVES), target)


# -------------------------------------------------------------------------------------------- weights


def _fit(
    x: FloatArray,
    kernel: Array | None,
    thresholds: FloatArray,
    features: IntArray,
    reached: IntArray,
    target: supervised.Target,
    ridge: tuple[float, float],
) -> ForestStart:
    # Thresholds, features and kernel are on the device of x, `reached` on the host.
    n_samples = len(x)
    n_trees, n_leaves = reached.shape
    xp, dtype = dispatch.array_module(x), thresholds.dtype
    leaf, vertex = (xp.empty((n_samples, n_trees), np.int32) for _ in range(2))
    margin = xp.empty((n_samples, n_trees), dtype)
    route = Route(leaf, margin, vertex)
    backend = dispatch.backend(PACKAGE, x)
    step = n_samples if kernel is None else max(1, _BLOCK // kernel.shape[1])
    for first in range(0, n_samples, step):
        part = slice(first, first + step)
        with np.errstate(over="ignore", invalid="ignore"):
            z = x[part] if kernel is None else x[part] @ kernel
        backend.traverse("tree", "column", z, thresholds, features, Route(*(a[part] for a in route)))
    with check.memory("depth", "leaf weights", 6 * 8 * n_trees * n_leaves * target.n_outputs):
        weights, intercept = fitted(leaf, margin, target, n_leaves, *ridge)
        weights = xp.asarray(_spread(dispatch.to_numpy(weights), reached))
    parameters = Parameters(thresholds, features, rounded("x", weights, dtype))
    return ForestStart(parameters, rounded("x", intercept, dtype), kernel)


# ---------------------------------------------------------------------------------------------- kernels


def _columns(forest: Forest, vertex: IntArray) -> tuple[FloatArray, IntArray]:
    """Returns the distinct projections that vertices compare, as columns, and the column of each vertex.

    A single column of x is a projection, too. `vertex` is (n_trees, n_vertices) with -1 for none, which gets
    column 0.
    """
    nodes, place = np.unique(vertex, return_inverse=True)
    place = place.reshape(vertex.shape)
    known: dict[tuple[bytes, bytes], int] = {}
    column_of, entries = np.zeros(len(nodes), np.int32), []
    for i, node in enumerate(nodes):
        if node < 0:
            continue
        indices, data = compared(forest, node)
        key = indices.tobytes(), data.tobytes()
        if key not in known:
            known[key] = len(known)
            entries.append((indices, data))
        column_of[i] = known[key]
    with check.memory("depth", "kernels", 8 * int(forest.n_features) * max(len(entries), 1)):
        kernel = np.zeros((int(forest.n_features), max(len(entries), 1)), forest.data.dtype)
    for column, (indices, data) in enumerate(entries):
        np.add.at(kernel[:, column], indices, data)
    return kernel, column_of[place]


def _exponents(x: FloatArray, kernel: FloatArray) -> IntArray:
    """Returns the rounded log2 of the deviations of ``x @ kernel``; 0 where a column is not scaled."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = x.mean(axis=0, dtype=np.float64)
        centred = x - mean
        variance = (kernel * (centred.T @ centred / len(x) @ kernel)).sum(axis=0)
        # Rounding is no variance.
        varies = variance > (np.finfo(np.float32).eps * (mean @ kernel)) ** 2
        exponent = np.round(np.log2(np.where(varies, variance, 1)) / 2)
    # Keeps numbers in range: deviations further from 1 than half of the exponents are not scaled.
    limit = np.finfo(kernel.dtype).maxexp // 2
    return np.where(abs(exponent) < limit, exponent, 0).astype(np.int32)


def from_forest(
    x: FloatArray,
    y: ArrayLike | None,
    forest: Forest,
    depth: int | None = None,
    *,
    kernel: bool = False,
    l2: float = 0.3,
    tolerance: float = 1e-2,
    task: Literal["classification", "regression"] = "classification",
) -> ForestStart:
    """Returns hinge trees with a grown forest's splits, and leaf weights fitted to targets or to that forest.

    A vertex sends ``x[f] > t`` right where the grown tree sends ``x[f] <= t`` left, so every sample takes the
    same path. A hinge tree returns w_leaf |r*| (Lay et al. 2018, eq. 10), which is not constant in a leaf. So
    weights are the ridge regression of y, or of the forest's predictions, on |r*| in all trees
    (`fit_weights`). With `kernel` the trees read ``z = x @ kernel``. Its columns are the distinct projections
    that the forest compares; they and their thresholds are divided by a power of two near the deviation on x.
    Training can continue with ``x.T @ grads.x``, the gradient with respect to the kernel. Other parameters:
    see `fit_weights`.

    Parameters
    ----------
    x : (n_samples, n_features) array, dtype of the forest
        Samples for the fit of the weights, finite, at least one: those that the forest was grown on, in its
        units. |r*| compares margins of different columns. So without `kernel` bring columns to a common unit,
        such as their deviation, before you grow the forest.
    y : (n_samples,) array of integers or bools, (n_samples[, n_targets]) array of real numbers, or None
        Labels or targets. None fits the predictions of the forest, so that the result approximates it; labels
        or targets give a lower error.
    forest : hforest.tree.Forest
        Forest of `hforest.grow` or `tree.from_sklearn`; with `kernel` also an oblique one, of
        `hforest.grow`, `co2.grow` or `neural.to_hard`.
    depth : int, optional
        Depth of the hinge trees, 1 to 30, with ``n_trees * 2**depth`` at most 2**24; by default the depth of
        the forest. Deeper splits are left out.
    kernel : bool
        Whether hinge trees read inner products; splits by single columns become inner products, too.

    Returns
    -------
    ForestStart
        A NamedTuple:
    parameters : Parameters
        Thresholds and features (n_trees, 2**depth - 1), weights (n_trees, 2**depth, n_outputs), for
        `aggregate="sum"`. With `kernel` features are its columns.
    intercept : (n_outputs,) array, dtype of x
        Added to the sum.
    kernel : (n_features, n_kernels) array, dtype of x, or None
        Projections, in the order in which the forest's nodes first compare them.

    Raises
    ------
    ValueError
        A forest with infinite thresholds or, without `kernel`, with projections; weights beyond the dtype.

    Notes
    -----
    Routes are exact, ties included: x[f] = t goes left in both, with margin 0. Vertices below a grown leaf
    copy the comparison of their parent. The ancestor keeps the margin (Alg. 3's strict ``<``), so copies
    change neither margins nor gradients. All leaves that stand for one grown leaf have its weights. A tree of
    one leaf compares column 0 with 0. All samples of a subtree that is left out share a leaf.

    Powers of two change no digit. So where sums ``x @ kernel`` are exact, such as those of single columns,
    routes equal the forest's, ties included; elsewhere, if z and t differ by more than rounding. A column
    whose deviation is 0, above 2**64 or below 2**-64 (2**512 and 2**-512 in float64) is not scaled. No column
    is centred, for margins do not depend on it. A dense forest of M trees has up to M (2**depth - 1) kernels:
    keep depth low.

    Outputs only approximate the forest's: they are continuous, and a forest's are not. docs/hinge.md has
    measured differences and errors. For `layers.softmax_loss` multiply weights and intercept by 4. Not in Lay
    et al. 2018. Cost: a few array operations per node, that of `fit_weights`, and with `kernel` products of
    n_kernels * n_features * (n_samples + n_features).

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[-2.0], [-1.0], [1.0], [2.0]]); y = np.array([0, 0, 1, 1])
    >>> forest = hforest.grow(x, y, 1, bootstrap=False, rng=0)
    >>> start = hforest.hinge.from_forest(x, y, forest)
    >>> start.parameters.thresholds, start.parameters.features
    (array([[0.]]), array([[0]], dtype=int32))
    >>> p = hforest.hinge.forward(x, *start.parameters, aggregate="sum") + start.intercept
    >>> p.argmax(axis=1)
    array([0, 0, 1, 1])
    >>> x = np.random.default_rng(0).normal(size=(200, 4)); y = x[:, 0] + x[:, 1] > x[:, 2]
    >>> sparse = hforest.project.sparse_distribution(x.shape[1])
    >>> forest = hforest.grow(x, y, 20, projections=sparse, max_depth=4, rng=0)
    >>> parameters, intercept, kernel = hforest.hinge.from_forest(x, y, forest, kernel=True)
    >>> scores = hforest.hinge.forward(x @ kernel, *parameters, aggregate="sum") + intercept
    >>> bool((scores.argmax(axis=1) == y).mean() > 0.95)
    True
    """
    check.flag("kernel", kernel)
    ridge = check_ridge(l2, tolerance)
    problem = _check(x, y, forest, depth, task)
    grown = problem.forest
    if not kernel and bool((grown.feature < -1).any()):
        raise ValueError("forest: expected splits by single columns, got projections; pass kernel=True")
    products = None
    with check.memory("depth", "trees", 40 * 2**problem.depth * len(grown.tree_start)):
        vertex, reached = places(grown, problem.depth)
        vertex = _with_copies(vertex)
        thresholds = np.where(vertex < 0, 0, grown.threshold[vertex])
        if kernel:
            products, features = _columns(grown, vertex)
            exponent = _exponents(dispatch.to_numpy(x), products)
        else:
            features = np.where(vertex < 0, 0, grown.feature[vertex])
    asarray = dispatch.array_module(x).asarray
    if products is not None:
        with np.errstate(over="ignore", under="ignore"):
            thresholds = np.ldexp(thresholds, -exponent[features])
            products = asarray(np.ldexp(products, -exponent))
    return _fit(x, products, asarray(thresholds), asarray(features), reached, problem.target, ridge)
