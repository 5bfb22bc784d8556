"""Leaf weights that fit targets: ridge regression on the margins of known routes."""

from types import ModuleType
from typing import Literal, NamedTuple

import numpy as np

from ..core import check, dispatch, supervised
from ..core.aliases import Array, ArrayLike, FloatArray, IntArray
from .shared import PACKAGE, Gradients, as_samples, check_leaves, owned_leaf

MAX_ITERATIONS = 1000
"""Maximum number of steps of the solver; the default tolerance takes about twenty."""

TINY = np.finfo(np.float64).tiny


class LeafFit(NamedTuple):
    """Leaf weights, and an intercept that is added to the sum over the trees."""

    weights: FloatArray
    """(n_trees, n_leaves, *outputs), dtype of the margins."""
    intercept: FloatArray
    """(*outputs), dtype of the margins."""


class Design:
    """The regression's matrix A (n_samples, n_trees * n_leaves), |r| / unit at the leaves of the samples.

    It is never stored: products with it are the forward and the backward pass of hinge trees
    (Lay et al. 2018, eq. 10, 12). Columns are centred, which gives the intercept.
    """

    def __init__(self, leaf: IntArray, margin: FloatArray, n_leaves: int) -> None:
        self.xp: ModuleType = dispatch.array_module(leaf)
        self._backend = dispatch.backend(PACKAGE, leaf)
        size = abs(margin).astype(np.float64)
        # Margins in units of the largest, so that no square overflows.
        self.unit = float(size.max()) or 1.0
        size /= self.unit
        # A backward pass also writes gradients with respect to x and thresholds: here one column and one
        # vertex.
        self._route = as_samples((leaf, size, self.xp.zeros_like(leaf)))
        self.size: Array = self._route.margin
        self._features = self.xp.zeros((leaf.shape[1], 1), np.int32)
        self._n_leaves = n_leaves

    def outputs(self, weights: Array) -> Array:
        """Returns A w, (n_samples, n_outputs); `weights` is (n_trees, n_leaves, n_outputs)."""
        y = self.xp.empty((len(self.size), weights.shape[2]))
        self._backend.leaf_outputs(self._route.leaf, self.size, weights, 1.0, y)
        return y

    def sums(self, values: Array, size: Array | None = None) -> Array:
        """Returns A' v, (n_trees, n_leaves, n_outputs); `values` is (n_samples, n_outputs)."""
        n_samples, n_trees = self.size.shape
        route = self._route if size is None else self._route._replace(margin=size)
        shape = (n_trees, self._n_leaves, values.shape[1])
        grad_x, by_threshold = self.xp.empty((n_samples, 1)), self.xp.empty((n_trees, 1))
        sums = self.xp.empty(shape)
        unused = self.xp.zeros(shape)
        grads = Gradients(grad_x, by_threshold, None, sums)
        self._backend.backward("column", values, route, None, self._features, unused, 1.0, None, grads)
        return sums


def solve(design: Design, targets: Array, l2: float, tolerance: float) -> tuple[Array, Array]:
    """Returns weights and intercept of the ridge regression, in float64, by conjugate gradients.

    Outputs are separate systems that take the same number of steps. The preconditioner is the diagonal of A'A
    plus the ridge (Jacobi's).
    """
    xp = design.xp
    n_samples = len(targets)
    mean = targets.mean(axis=0)
    squares = design.sums(xp.ones((n_samples, 1)), design.size**2)
    ridge = l2 * float(squares.sum()) / n_samples
    scale = squares + max(ridge, TINY)
    residual = design.sums(targets - mean)
    weights = 0 * residual  # NaN where sums have overflowed
    direction = residual / scale
    length = (residual * direction).sum(axis=(0, 1))
    enough = tolerance**2 * length
    for _ in range(MAX_ITERATIONS):
        if not bool((length > enough).any()):  # false for NaN, too
            break
        y = design.outputs(direction)
        image = design.sums(y - y.mean(axis=0)) + ridge * direction
        step = _ratio(length, (direction * image).sum(axis=(0, 1)))
        weights += step * direction
        residual -= step * image
        ahead = residual / scale
        before, length = length, (residual * ahead).sum(axis=(0, 1))
        direction = ahead + _ratio(length, before) * direction
    return weights, mean - design.outputs(weights).mean(axis=0)


def _ratio(a: Array, b: Array) -> Array:
    # 0 if an output is solved: its residual is 0.
    return a / (b + (b <= 0)) * (b > 0)


def fitted(
    leaf: IntArray, margin: FloatArray, target: supervised.Target, n_leaves: int, l2: float, tolerance: float
) -> tuple[Array, Array]:
    """Returns float64 weights (n_trees, n_leaves, n_outputs) and intercept (n_outputs,), without checks."""
    with np.errstate(over="ignore", invalid="ignore"):
        design = Design(leaf, margin, n_leaves)
        weights, intercept = _fitted(design, target, l2, tolerance)
        return weights / design.unit, intercept


def _fitted(design: Design, target: supervised.Target, l2: float, tolerance: float) -> tuple[Array, Array]:
    if target.labels is None or target.n_outputs == 1:
        ones = design.xp.ones((len(design.size), 1))
        return solve(design, ones if target.targets is None else target.targets, l2, tolerance)
    # The shares of the classes sum to 1, so the outputs of the last class follow from the others.
    onehot = (target.labels[:, None] == design.xp.arange(target.n_outputs - 1)).astype(np.float64)
    weights, intercept = solve(design, onehot, l2, tolerance)
    last = -weights.sum(axis=2, keepdims=True), 1 - intercept.sum(keepdims=True)
    return design.xp.concatenate([weights, last[0]], axis=2), design.xp.concatenate([intercept, last[1]])


def rounded(name: str, a: Array, dtype: np.dtype) -> Array:
    """Returns an array in the dtype of the margins; raises ValueError if it is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        converted = a.astype(dtype)
    if not bool(dispatch.array_module(converted).isfinite(converted).all()):
        raise ValueError(
            f"{name}: expected margins and targets whose leaf weights are in the range of {dtype}, got "
            "infinite or NaN ones; scale x or the targets to standard deviation 1, or pass a larger l2"
        )
    return converted


def check_ridge(l2: float, tolerance: float) -> tuple[float, float]:
    """Returns the settings of the regression after a check."""
    return check.number("l2", l2, 0.0, open_low=True), check.number("tolerance", tolerance, 0.0, 1.0)


def fit_weights(
    leaf: IntArray,
    margin: FloatArray,
    y: ArrayLike,
    n_leaves: int,
    *,
    l2: float = 0.3,
    tolerance: float = 1e-2,
    task: Literal["classification", "regression"] = "classification",
    n_classes: int | None = None,
) -> LeafFit:
    """Returns leaf weights and an intercept that fit targets on known routes of trees or ferns.

    Minimises  sum_n |y_n - c - sum_m w[m, leaf_nm] |r_nm||^2 + a sum w^2  over w and c, with
    a = l2 times the mean over the samples of sum_m r_nm^2.

    Parameters
    ----------
    leaf : (n_samples, n_trees) array of int32
        Leaf of each sample, at least one, in each tree.
    margin : (n_samples, n_trees) array of float32 or float64
        Margins r*, finite.
    y : (n_samples,) array of integers or bools, or (n_samples, *outputs) array of real numbers
        Labels, which are fitted as 0 and 1 (one column per class), or regression targets.
    n_leaves : int
        2**depth.
    l2 : float
        Strength of the ridge, above 0. It does not depend on the unit of x, nor on the number of trees and
        samples: a sample that is alone in all of its leaves is fitted by 1 / (1 + l2) of its target.
    tolerance : float
        The solver stops when its residual is at most this fraction of the first, 0 to 1.

    Returns
    -------
    LeafFit
        A NamedTuple of two arrays:
    weights : (n_trees, n_leaves, *outputs) array, dtype of margin
        For `aggregate="sum"`; 0 in a leaf without samples. outputs is (n_classes,) for classification.
    intercept : (*outputs) array, dtype of margin
        Added to the sum.

    Notes
    -----
    Outputs for labels approximate shares of the classes. Scores for `layers.softmax_loss` are about four
    times as large: multiply weights and intercept by 4. Not in Lay et al. 2018. The solver is conjugate
    gradients on the normal equations, which are not stored, in float64, rounded once. Cost: about twenty
    steps, each with a forward and a backward pass over the routes. Extra memory: two numbers per pair of
    sample and tree, six per weight.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> leaf = np.array([[0], [0], [1], [1]], np.int32); margin = np.array([[-1.0], [-2.0], [1.0], [2.0]])
    >>> fit = hforest.hinge.fit_weights(leaf, margin, [-1.0, -2, 3, 6], 2, l2=1e-9, task="regression")
    >>> fit.weights.round(3)
    array([[-1.,  3.]])
    """
    check.same_device(leaf=leaf, margin=margin)
    sizes: check.Sizes = {}
    dtype = check_leaves(leaf, margin, sizes)
    n_samples = sizes["n_samples"]
    if n_samples < 1:
        raise ValueError("leaf: expected at least 1 sample, got none; pass the routes of at least one sample")
    check.finite("margin", margin)
    n_leaves = check.integer("n_leaves", n_leaves, 1, 2**check.MAX_DEPTH)
    if check.values_checked():
        leaf = owned_leaf(leaf)
    check.indices("leaf", leaf, n_leaves, "n_leaves")
    l2, tolerance = check_ridge(l2, tolerance)
    y = supervised.as_given("y", y)
    outputs = tuple(y.shape[1:])
    flat = y.reshape(n_samples, -1) if len(outputs) > 1 and len(y) == n_samples else y
    target = supervised.target(flat, n_samples, task, n_classes)
    check.same_device(leaf=leaf, y=target.targets if target.labels is None else target.labels)
    if target.labels is not None:
        outputs = (target.n_outputs,)
    n_weights = sizes["n_trees"] * n_leaves * target.n_outputs
    with check.memory("n_leaves", "weights", 6 * 8 * n_weights):
        weights, intercept = fitted(leaf, margin, target, n_leaves, l2, tolerance)
    return LeafFit(
        rounded("margin", weights, dtype).reshape(sizes["n_trees"], n_leaves, *outputs),
        rounded("margin", intercept, dtype).reshape(outputs),
    )
