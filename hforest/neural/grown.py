"""Neural forests that start from grown forests."""

import math

import numpy as np

from ..core import check, supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray, Rng
from ..tree import Forest
from ..tree.complete import check_depth, compared, places
from ..tree.forest import check_comparisons, check_nodes, check_numbers, copied, levels
from ..tree.walks import apply
from .checks import MAX_DEPTH
from .linear import Linear

MAX_LEAVES = 2**24
"""Maximum number of leaves: a grown tree without a limit of depth may have a path of any length."""


def _node_values(forest: Forest, x: FloatArray, levels: list[IntArray]) -> FloatArray:
    """Returns the means of the leaf values below each node, (n_nodes, n_outputs) float64.

    Leaves are weighted by the samples of x. Children of a node without samples have equal weights.
    """
    n_nodes, start = len(forest.feature), forest.tree_start[:-1]
    tree_of = np.repeat(np.arange(len(start)), np.diff(forest.tree_start))
    leaves = np.flatnonzero(forest.feature == -1)
    # A tree of N nodes has (N + 1) / 2 leaves.
    row = (start[tree_of[leaves]] + tree_of[leaves]) // 2 + forest.left[leaves]
    values = np.zeros((n_nodes, forest.value.shape[1]))
    values[leaves] = forest.value[row]
    counts = np.bincount((apply(forest, x) + start).reshape(-1), minlength=n_nodes).astype(np.float64)
    for node in reversed(levels):
        first = start[tree_of[node]] + forest.left[node]
        counts[node] = counts[first] + counts[first + 1]
        share = np.where(counts[node] > 0, counts[first] / np.maximum(counts[node], 1), 0.5)[:, None]
        values[node] = share * values[first] + (1 - share) * values[first + 1]
    return values


def _columns(forest: Forest, vertex: IntArray) -> IntArray:
    """Returns the columns that each tree reads, (n_trees, max_features) int32, ascending.

    A tree that compares fewer columns gets others with weights 0.
    """
    n_features = int(forest.n_features)
    used = np.zeros((len(vertex), n_features), bool)
    for m, nodes in enumerate(vertex):
        for node in nodes[nodes >= 0]:
            used[m, compared(forest, node)[0]] = True
    width = max(1, int(used.sum(axis=1).max()))
    # Columns in use come first, then others in their order.
    return np.sort(np.argsort(~used, axis=1, kind="stable")[:, :width], axis=1).astype(np.int32)


class _Decisions:
    """Decision functions of the vertices of a tree."""

    def __init__(self, forest: Forest, x: FloatArray, scale: float, generator: np.random.Generator) -> None:
        self.forest, self.scale, self.generator = forest, scale, generator
        self.mean = x.mean(axis=0, dtype=np.float64)
        self.centred = x - self.mean
        deviation = self.centred.std(axis=0)
        # Rounding is no deviation.
        varies = deviation > np.finfo(np.float32).eps * abs(self.mean)
        self.deviation = np.where(varies, deviation, 1)

    def of_tree(self, nodes: IntArray, columns: IntArray) -> FloatArray:
        """Returns weights (max_features + 1, n_vertices) in float64, the bias in the last row."""
        weights = np.zeros((len(columns) + 1, len(nodes)))
        place = np.zeros(int(self.forest.n_features), np.int64)
        place[columns] = np.arange(len(columns))
        for v in np.flatnonzero(nodes >= 0):
            indices, data = compared(self.forest, nodes[v])
            np.subtract.at(weights[:, v], place[indices], data)
            weights[-1, v] = self.forest.threshold[nodes[v]]
        splits = nodes >= 0
        spread = (self.centred[:, columns] @ weights[:-1, splits]).std(axis=0)
        weights[:, splits] *= self.scale / np.where(spread > 0, spread, 1)
        # Vertices below a leaf get random directions in deviations of x, through its mean.
        drawn = self.generator.standard_normal((len(columns), len(nodes)))[:, ~splits]
        drawn *= self.scale / (len(columns) ** 0.5 * self.deviation[columns, None])
        weights[:-1, ~splits], weights[-1, ~splits] = drawn, -self.mean[columns] @ drawn
        return weights


def from_forest(
    x: ArrayLike,
    forest: Forest,
    depth: int | None = None,
    *,
    scale: float = 10.0,
    rng: Rng = None,
) -> Linear:
    """Returns the soft version of a grown forest: linear decision functions and leaves.

    A split that sends ``a.x <= t`` left becomes ``f(x) = scale (t - a.x) / s``, where s is the deviation of
    a.x on the samples. The sample goes left with probability sigmoid(f) (Zhang 2017, section 2). Leaves are
    those of the forest.

    Parameters
    ----------
    x : (n_samples, n_features) array of real numbers
        Samples from which deviations are computed, at least one: those that the forest was grown on. Finite,
        of any layout and dtype; they are converted to the dtype of the forest.
    forest : hforest.tree.Forest
        Any forest in NumPy arrays, oblique or not, of class shares or means.
    depth : int, optional
        Depth of the neural trees, 1 to 20, with ``n_trees * 2**depth`` at most 2**24; by default the depth of
        the forest. A split at that depth becomes a leaf. Its value is the mean of the leaves below it,
        weighted by their samples.
    scale : float
        Log odds of a sample that is one deviation away from a split, above 0.

    Returns
    -------
    Linear
        NumPy arrays, dtype of the forest. `predict` takes it if the forest holds shares of classes; for means
        call ``forward(decisions(model, x), model.leaves, task="regression")``.

    Raises
    ------
    ValueError
        A forest with infinite thresholds; weights beyond the dtype of the forest.

    Notes
    -----
    Let f_v be the decision functions on a sample's path in a grown tree. The soft tree's output differs from
    the grown tree's by at most 1 - prod_v sigmoid(|f_v|) <= sum_v exp(-|f_v|), times the range of the leaves.
    So without ties it converges to the grown tree as `scale` grows, and gradients vanish. G. Biau, E. Scornet
    and J. Welbl (Neural random forests, Sankhya A, 2019) smooth decisions in the same way.

    Vertices below a grown leaf lead to equal leaves, so their decisions do not change the output. They are
    random, so that training can make these leaves differ. `fit` fits all leaves before its first epoch;
    `update_leaves` leaves probabilities of 0, as in pure leaves, at 0. Cost: a Python step and n_samples *
    max_features products per node; weights take (max_features + 1) 2**depth numbers per tree.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[-2.0], [-1.0], [1.0], [2.0]]); y = np.array([0, 0, 1, 1])
    >>> forest = hforest.grow(x, y, 1, bootstrap=False, rng=0)
    >>> model = hforest.neural.from_forest(x, forest, scale=5)
    >>> hforest.neural.predict(model, x).round(3)
    array([[0.998, 0.002],
           [0.959, 0.041],
           [0.041, 0.959],
           [0.002, 0.998]])
    """
    check.on_cpu(x=x)
    forest = copied(forest)
    dtype = forest.threshold.dtype
    check_comparisons("forest", forest)
    check.on_cpu(**{"forest.feature": forest.feature})
    check_nodes(forest)
    check_numbers(forest, "threshold", "value", "data")
    x = supervised.samples("x", supervised.matrix("x", x, dtype))
    if x.shape[1] != int(forest.n_features):
        raise ValueError(
            f"x: expected shape (n_samples, {int(forest.n_features)}), got {tuple(x.shape)}; pass the "
            "features that the forest was grown on"
        )
    depth = check_depth(forest, depth, MAX_DEPTH, MAX_LEAVES)
    scale = check.number("scale", scale, 0.0, open_low=True)
    generator = check.generator(rng)
    vertex, reached = places(forest, depth)
    features = _columns(forest, vertex)
    shape = (len(vertex), features.shape[1] + 1, vertex.shape[1])
    with check.memory("depth", "weights", math.prod(shape) * dtype.itemsize):
        weights = np.empty(shape, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        decisions = _Decisions(forest, x, scale, generator)
        for m in range(len(weights)):
            weights[m] = decisions.of_tree(vertex[m], features[m])
    if not np.isfinite(weights).all():
        raise ValueError(
            f"scale: expected decision functions in the range of {dtype}, got infinite or NaN ones; pass "
            "a smaller scale, or scale x to mean 0 and standard deviation 1"
        )
    leaves = _node_values(forest, x, levels(forest))[reached]
    return Linear(features, weights, leaves.astype(dtype))
