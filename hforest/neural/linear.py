"""Linear decision functions: initial values, application, and conversion to hard trees."""

from typing import NamedTuple

import numpy as np

from ..core import check, machine, supervised
from ..core.aliases import ArrayLike, DType, FloatArray, IntArray, MaxFeatures, Rng
from ..core.keywords import answered
from ..core.units import Units
from ..tree import Forest
from ..tree.forest import marked
from . import units
from .leaves import uniform_leaves
from .routing import forward

_BLOCK = 1 << 22  # decision functions computed at a time in `predict`


class Linear(NamedTuple):
    """A forest with decision functions that are linear in some features of each tree."""

    features: IntArray
    """(n_trees, max_features) int32: the columns of x that each tree reads."""
    weights: FloatArray
    """(n_trees, max_features + 1, 2**depth - 1) float32 or float64; the last row is the bias."""
    leaves: FloatArray
    """(n_trees, 2**depth, n_classes), dtype of weights; rows sum to 1."""


def check_linear(model: Linear) -> check.Sizes:
    """Checks that a Linear has NumPy arrays of consistent sizes; returns the sizes."""
    check.instance("model", model, Linear, "a Linear", "call linear_init or fit")
    with check.fields_of("model"):
        return _check_fields(model)


def _check_fields(model: Linear) -> check.Sizes:
    check.on_cpu(features=model.features, weights=model.weights, leaves=model.leaves)
    check.same_device(features=model.features, weights=model.weights, leaves=model.leaves)
    dtype = check.floating("weights", model.weights)
    sizes: check.Sizes = {}
    check.array("features", model.features, check.INT32, ("n_trees", "max_features"), sizes)
    check.array("weights", model.weights, dtype, ("n_trees", sizes["max_features"] + 1, "n_vertices"), sizes)
    depth = (sizes["n_vertices"] + 1).bit_length() - 1
    if depth < 1 or sizes["n_vertices"] != 2**depth - 1:
        raise ValueError(
            f"weights: expected 2**depth - 1 vertices, got {sizes['n_vertices']}; pass, for example, 7 for "
            "depth 3"
        )
    check.array("leaves", model.leaves, dtype, ("n_trees", 2**depth, "n_classes"), sizes)
    check.at_least_one(sizes, "n_trees", "max_features", "n_classes")
    check.not_nan("weights", model.weights)
    check.finite("leaves", model.leaves)
    return sizes


def samples(x: ArrayLike, model: Linear) -> FloatArray:
    """Returns samples in the dtype of the model, after a check that they have every feature that it reads."""
    check.on_cpu(x=x)
    x = supervised.matrix("x", x, model.weights.dtype)
    check.indices("model.features", model.features, x.shape[1], "n_features")
    return x


def labelled(model: Linear, x: ArrayLike, y: ArrayLike) -> tuple[FloatArray, IntArray]:
    """Returns training samples, at least one, and their labels, after a check of the model."""
    sizes = check_linear(model)
    x = samples(x, model)
    check.on_cpu(y=y)
    y, _ = supervised.labels("y", y, len(x), sizes["n_classes"])
    if len(x) == 0:
        raise ValueError("x: expected at least 1 sample, got none; pass samples to learn from")
    return x, y


@answered
def linear_init(
    n_trees: int,
    depth: int,
    n_features: int,
    n_classes: int,
    *,
    x: ArrayLike | None = None,
    max_features: MaxFeatures = None,
    scale: float = 2.0,
    dtype: DType = np.float32,
    rng: Rng = None,
) -> Linear:
    """Returns random linear decision functions and uniform leaves.

    Parameters
    ----------
    n_trees, depth, n_features, n_classes : int
        Sizes; depth 1 to 20.
    x : (n_samples, n_features) array of real numbers, optional
        Samples, finite, at least one. With them initial decisions do not depend on the units of the columns.
        By default columns are assumed to have mean 0 and deviation 1.
    max_features : int, float, "sqrt", "log2" or None
        Number of features that each tree reads, sampled without replacement: a number, a fraction of all, the
        square root, or all.
    scale : float
        Standard deviation of a decision function on independent features of mean 0 and deviation 1, or on
        standardised features of x.

    Returns
    -------
    Linear
        NumPy arrays.

    Examples
    --------
    >>> import hforest
    >>> hforest.neural.linear_init(3, 4, 10, 2, max_features=5, rng=0).weights.shape
    (3, 6, 15)
    """
    n_features = check.integer("n_features", n_features, 1, check.MAX_COUNT)
    n_sampled = supervised.max_features(max_features, n_features)
    scale = check.number("scale", scale, 0.0, open_low=True)
    generator = check.generator(rng)
    leaves = uniform_leaves(n_trees, depth, n_classes, dtype=dtype)
    of_x = None if x is None else _units(x, n_features)
    with check.memory("n_features", "permutations", 8 * n_features):
        features = np.array(
            [np.sort(generator.permutation(n_features)[:n_sampled]) for _ in range(n_trees)], np.int32
        )
    weights = generator.standard_normal((n_trees, n_sampled + 1, 2**depth - 1)) * (scale / np.sqrt(n_sampled))
    weights = weights.astype(leaves.dtype)
    if of_x is not None:
        weights = units.from_units(features, weights, of_x)
    return Linear(features, weights, leaves)


def _units(x: ArrayLike, n_features: int) -> Units:
    """Returns the units of the columns of checked samples."""
    check.on_cpu(x=x)
    x = supervised.samples("x", x)
    if x.shape[1] != n_features:
        raise ValueError(
            f"x: expected n_features = {n_features} columns, got {x.shape[1]}; pass the samples to learn from"
        )
    return units.of_samples(x)


def tree_input(model: Linear, m: int, x: FloatArray) -> FloatArray:
    """Returns the features that tree m reads, and a column of ones for the bias."""
    part = np.empty((len(x), model.features.shape[1] + 1), x.dtype)
    part[:, :-1], part[:, -1] = x[:, model.features[m]], 1
    return part


def tree_inputs(model: Linear, x: FloatArray) -> list[FloatArray]:
    """Returns the same for every tree."""
    return [tree_input(model, m, x) for m in range(len(model.weights))]


def empty_decisions(model: Linear, n: int) -> FloatArray:
    """Returns a new array for the decision functions of n samples."""
    n_trees, _, n_vertices = model.weights.shape
    return np.empty((n, n_trees, n_vertices), model.weights.dtype)


def tree_decisions(model: Linear, m: int, part: FloatArray) -> FloatArray:
    """Returns the decision functions of tree m from its inputs; raises ValueError if one overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        f = part @ model.weights[m]
    if check.values_checked() and machine.first_nonfinite(f) >= 0:
        raise units.infinite()
    return f


def write_decisions(model: Linear, parts: list[FloatArray], f: FloatArray) -> FloatArray:
    """Writes the decision functions of all trees to f, and returns it."""
    for m, part in enumerate(parts):
        f[:, m] = tree_decisions(model, m, part)
    return f


def _decisions(model: Linear, x: FloatArray) -> FloatArray:
    return write_decisions(model, tree_inputs(model, x), empty_decisions(model, len(x)))


def decisions(model: Linear, x: ArrayLike) -> FloatArray:
    """Returns the decision functions of samples, the argument f of `forward` and `loss_backward`.

    Parameters
    ----------
    model : Linear
        Model of `linear_init` or `fit`.
    x : (n_samples, n_features) array of real numbers
        Samples, finite, of any layout and dtype; they are converted to the dtype of the weights.

    Returns
    -------
    (n_samples, n_trees, 2**depth - 1) array, dtype of the weights
        ``f = x[features] . weights[:-1] + weights[-1]``.

    Raises
    ------
    ValueError
        Numbers beyond the dtype of the weights.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> model = hforest.neural.linear_init(3, 2, 5, 2, rng=0)
    >>> hforest.neural.decisions(model, np.zeros((4, 5))).shape
    (4, 3, 3)
    """
    check_linear(model)
    return _decisions(model, samples(x, model))


def predict(model: Linear, x: ArrayLike) -> FloatArray:
    """Returns the class probabilities of samples.

    Parameters: see `decisions`.

    Returns
    -------
    (n_samples, n_classes) array, dtype of the weights
        Means over trees.

    Notes
    -----
    Samples are computed in blocks: extra memory does not grow with their number.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> model = hforest.neural.linear_init(3, 2, 5, 2, rng=0)
    >>> hforest.neural.predict(model, np.zeros((1, 5))).round(3)
    array([[0.5, 0.5]], dtype=float32)
    """
    sizes = check_linear(model)
    x = samples(x, model)
    p = np.empty((len(x), sizes["n_classes"]), x.dtype)
    step = max(1, _BLOCK // (sizes["n_trees"] * sizes["n_vertices"]))
    for first in range(0, len(x), step):
        part = slice(first, first + step)
        p[part] = forward(_decisions(model, x[part]), model.leaves)
    return p


def to_hard(model: Linear, n_features: int) -> Forest:
    """Returns a forest of grown trees that send a sample to the likelier child at every vertex.

    Other parameters: see `decisions`.

    Parameters
    ----------
    n_features : int
        Number of features.

    Returns
    -------
    Forest
        Complete trees of splits by projections, with the class probabilities of the leaves, for
        `hforest.tree`.

    Notes
    -----
    A sample goes left where f >= 0, which is ``-weights . x <= weights[-1]``; it visits depth vertices, not
    2**depth - 1. The page of results compares the errors of hard and soft trees.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> model = hforest.neural.linear_init(3, 2, 5, 2, rng=0)
    >>> hard = hforest.neural.to_hard(model, 5)
    >>> hforest.tree.predict(hard, np.ones((1, 5), np.float32))
    array([[0.5, 0.5]], dtype=float32)
    """
    sizes = check_linear(model)
    n_features = check.integer("n_features", n_features, 1, check.MAX_COUNT)
    check.indices("model.features", model.features, n_features, "n_features")
    check.finite("model.weights", model.weights, remedy="train again with a lower lr")
    n_trees, n_read, n_vertices = (sizes[name] for name in ("n_trees", "max_features", "n_vertices"))
    n_nodes = 2 * n_vertices + 1
    inner = np.arange(n_nodes) < n_vertices
    left = np.where(inner, 2 * np.arange(n_nodes) + 1, np.arange(n_nodes) - n_vertices)
    threshold = np.zeros((n_trees, n_nodes), model.weights.dtype)
    threshold[:, :n_vertices] = model.weights[:, -1]
    counts = np.tile(np.where(inner, n_read, 0), n_trees)
    forest = Forest(
        n_features=np.array(n_features, np.int64),
        tree_start=np.arange(n_trees + 1, dtype=np.int64) * n_nodes,
        feature=np.tile(np.where(inner, -2, -1).astype(np.int32), n_trees),
        threshold=threshold.reshape(-1),
        left=np.tile(left.astype(np.int32), n_trees),
        value=model.leaves.reshape(-1, sizes["n_classes"]).copy(),
        gain=np.zeros(n_trees * n_nodes, model.weights.dtype),
        indptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        indices=np.repeat(model.features, n_vertices, axis=0).reshape(-1),
        data=np.ascontiguousarray(-model.weights[:, :-1].transpose(0, 2, 1)).reshape(-1),
    )
    return marked(forest, valid=False)
