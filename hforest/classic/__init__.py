"""Random forests (p5; Breiman 2001) and completely random ones (p4 section 3).

A forest is a `hforest.tree.Forest`: apply and inspect it with `hforest.tree`. Wrong kinds and dtypes raise
TypeError, wrong shapes and values ValueError, labels out of range IndexError; the checks that read whole
arrays can be skipped inside `hforest.unchecked()`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import growth, tree
from ..core import check
from ..core.dispatch import Array, array_module, to_numpy
from ..growth import Progress, Windows, draw_bags
from ..tree import Forest

__all__ = ["draw_bags", "grow", "grow_random", "out_of_bag"]

_TASKS = ("classification", "regression")
_BINS = 256


def _n_drawn(max_features: Any, n_features: int) -> int:
    if isinstance(max_features, str):
        check.choice("max_features", max_features, ("sqrt",))
        return max(1, int(n_features**0.5))
    if max_features is None:
        return n_features
    if isinstance(max_features, float | np.floating):
        return max(1, int(check.number("max_features", max_features, 0.0, 1.0, open_low=True) * n_features))
    return check.integer("max_features", max_features, 1, n_features)


def _labels(y: Array, n_classes: int | None, sizes: check.Sizes) -> int:
    check.array("y", y, check.INT32, ("n",), sizes)
    if n_classes is None:
        n_classes = max(0, int(y.max())) + 1 if y.size else 1
    n_classes = check.integer("n_classes", n_classes, 1, 2**20)
    check.indices("y", y, n_classes, "n_classes")
    return n_classes


def _weights(
    weights: Array | None,
    class_weights: Any,
    y: Array,
    n_classes: int | None,
    dtype: np.dtype,
    sizes: check.Sizes,
) -> Array:
    n, xp = sizes["n"], array_module(y)
    if weights is None:
        total = xp.ones(n)
    else:
        check.same_device(y=y, weights=weights)
        check.array("weights", weights, dtype, ("n",), sizes)
        total = weights.astype(np.float64)
    if class_weights is None:
        return total
    if n_classes is None:
        raise ValueError("class_weights: expected None for regression, got some; weigh the samples instead")
    if isinstance(class_weights, str):
        check.choice("class_weights", class_weights, ("balanced",))
        # Added up on the host in the order of samples, so that bits are the same on every device.
        of_class = np.bincount(to_numpy(y), to_numpy(total), n_classes)
        share = of_class.sum() / max(1, np.count_nonzero(of_class))
        factor = np.divide(share, of_class, out=np.zeros(n_classes), where=of_class > 0)
    elif isinstance(class_weights, Mapping):
        factor = np.ones(n_classes)
        for k, w in class_weights.items():
            factor[check.integer("class_weights", k, 0, n_classes - 1)] = check.number(
                "class_weights", w, 0.0
            )
    else:
        check.same_device(y=y, class_weights=class_weights)
        check.array("class_weights", class_weights, dtype, (n_classes,), {})
        factor = class_weights.astype(np.float64)
    return total * xp.asarray(factor)[y]


def _forest(trees: growth.Trees, n_features: int) -> Forest:
    xp = array_module(trees.threshold)
    return Forest(
        n_features=xp.array(n_features, np.int64),
        **trees._asdict(),
        start=xp.zeros(0, np.int64),
        index=xp.zeros(0, np.int32),
        weight=xp.zeros(0, trees.threshold.dtype),
    )


def _grow(
    x: Array | Windows,
    y: Array,
    n_trees: int,
    max_codes: int | None,
    max_features: Any,
    criterion: str | None,
    weights: Array | None,
    class_weights: Any,
    task: str,
    n_classes: int | None,
    **settings: Any,
) -> Forest:
    check.choice("task", task, _TASKS)
    check.same_device(x=x.x if isinstance(x, Windows) else x, y=y)
    sizes: check.Sizes = {}
    if isinstance(x, Windows):
        dtype = growth.check_windows(x)
        sizes["n"], sizes["n_features"] = x.shape
    else:
        dtype = check.floating("x", x)
        check.array("x", x, dtype, ("n", "n_features"), sizes)
    check.at_least_one(sizes, "n_features")
    if task == "classification":
        n_classes = _labels(y, n_classes, sizes)
    else:
        if n_classes is not None:
            raise ValueError(f"n_classes: expected None for regression, got {n_classes!r}; leave it out")
        check.array("y", y, dtype, ("n",) if y.ndim == 1 else ("n", "n_outputs"), sizes)
        y = y.reshape(len(y), -1)
    total = _weights(weights, class_weights, y, n_classes, dtype, sizes)
    if criterion is None:
        criterion = "gini" if task == "classification" else "squared_error"
    check.choice(
        "criterion", criterion, ("gini", "entropy") if task == "classification" else ("squared_error",)
    )
    n_drawn = _n_drawn(max_features, sizes["n_features"])
    codes = growth.encode(x, max_codes=max_codes)
    trees = growth.grow(
        codes, y if n_classes is not None else y.astype(np.float64), total, n_trees, n_classes=n_classes,
        criterion=criterion, n_drawn=n_drawn, **settings,
    )  # fmt: skip
    return _forest(trees, sizes["n_features"])


def grow(
    x: Array | Windows,
    y: Array,
    n_trees: int,
    *,
    weights: Array | None = None,
    criterion: str | None = None,
    max_features: Any = "sqrt",
    bootstrap: bool | Array = True,
    max_depth: int | None = None,
    min_samples_split: int = 2,
    min_samples_leaf: int = 1,
    min_impurity_decrease: float = 0.0,
    class_weights: Any = None,
    splitter: str = "exact",
    task: str = "classification",
    n_classes: int | None = None,
    progress: Progress | None = None,
    rng: Any = None,
) -> Forest:
    """A random forest.

    Parameters
    ----------
    x : (n, n_features) array of float32 or float64, or hforest.growth.Windows
        Samples, finite, at least one. Windows are for classification alone.
    y : (n,) array of int32, or (n,) or (n, n_outputs) array, dtype of x
        Labels 0 to n_classes - 1, or targets for regression.
    n_trees : int
        Trees.
    weights : (n,) array, dtype of x, optional
        Weights of the samples, 0 to 1e100, not all 0. A sample of weight 0 counts for nothing.
    criterion : "gini", "entropy" or "squared_error", optional
        Impurity; by default "gini", for regression "squared_error".
    max_features : "sqrt", int, float or None
        Features that a node draws: the root of their number, so many, such a share, or all. If all of them
        are constant in the node it draws on.
    bootstrap : bool or (n_trees, n) array of int32
        Whether each tree draws n samples with replacement, or how often it has each.
    max_depth : int, optional
        Depth of the deepest leaf; 0 is a leaf alone. By default trees grow until leaves are pure.
    min_samples_split, min_samples_leaf : int
        Samples that a split, and each side of it, must hold at least; a sample drawn twice is one.
    min_impurity_decrease : float
        Gain that a split must have at least, as a share of the tree's weight.
    class_weights : "balanced", mapping, or (n_classes,) array, dtype of x, optional
        Factors of the samples' weights by class (a mapping may leave classes out, which then have 1);
        "balanced" gives the present classes equal weight.
    splitter : "exact" or "binned"
        Look at every threshold, or at those between at most 256 bins of each feature. Features of at most
        256 distinct values are exact either way.
    task : "classification" or "regression"
        What y is.
    n_classes : int, optional
        Classes, at most 2**20; by default the largest label and 1. Classes may be absent or one alone.
    progress : callable, optional
        Called as progress(done, n_trees) after every few trees; True ends the growth, with the trees so far.
    rng : None, int or numpy.random.Generator
        Where the seed comes from.

    Returns
    -------
    Forest
        Of the dtype of x; leaf values are shares of the classes, or mean targets.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        Wrong kind, dtype or device; wrong shape or layout, NaN or
        infinity, a number out of its range, negative weights or none above 0; labels or multiplicities out of
        range; no memory.

    Notes
    -----
    p5: each tree weighs the samples by how often it drew them (multiplicities, not copies); each node draws
    some features, looks at every threshold between neighbours of different value, and takes the split of
    lowest ``sum_b W_b H(b)`` (`hforest.split.impurity`); of equal ones the feature drawn first wins, in it
    the lowest threshold. A split may have gain 0. ``<= threshold`` goes left; the threshold is the middle of
    two neighbours, or the lower where that does not round below the upper.

    Features are encoded once for all trees by the ranks of their values, so a node sorts whole numbers of at
    most 16 bits when n < 65537. What a node draws depends on a key drawn from its parent's: results are the
    same at every number of threads.

    Cost: an encoding of n_features sorts, then for each tree about ``n max_features depth`` steps of some
    nanoseconds, O(1) in n_classes for Gini with whole weights below 256, else O(n_classes) at each threshold.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(200, 4))
    >>> y = (x[:, 0] > x[:, 1]).astype(np.int32)
    >>> forest = hforest.classic.grow(x, y, 20, rng=0)
    >>> p = hforest.tree.predict(forest, x)
    >>> bool((p.argmax(axis=1) == y).mean() > 0.98)
    True
    """
    check.choice("splitter", splitter, ("exact", "binned"))
    return _grow(
        x, y, n_trees, None if splitter == "exact" else _BINS, max_features, criterion, weights,
        class_weights, task, n_classes, bootstrap=bootstrap, max_depth=max_depth,
        min_samples_split=min_samples_split, min_samples_leaf=min_samples_leaf,
        min_impurity_decrease=min_impurity_decrease, progress=progress, rng=rng,
    )  # fmt: skip


def grow_random(
    x: Array | Windows,
    y: Array,
    n_trees: int,
    *,
    weights: Array | None = None,
    bootstrap: bool | Array = False,
    max_depth: int | None = None,
    min_samples_split: int = 2,
    min_samples_leaf: int = 1,
    class_weights: Any = None,
    task: str = "classification",
    n_classes: int | None = None,
    progress: Progress | None = None,
    rng: Any = None,
) -> Forest:
    """A forest of completely random trees.

    Parameters
    ----------
    x : (n, n_features) array of float32 or float64, or hforest.growth.Windows
        Samples, finite, at least one. Windows are for classification alone.
    y : (n,) array of int32, or (n,) or (n, n_outputs) array, dtype of x
        Labels or targets; they decide when a node is pure, and the leaf values.
    n_trees : int
        Trees.
    weights : (n,) array, dtype of x, optional
        Weights of the samples.
    bootstrap : bool or (n_trees, n) array of int32
        As for `grow`; by default every tree has every sample.
    max_depth : int, optional
        Depth of the deepest leaf.
    min_samples_split, min_samples_leaf : int
        As for `grow`; a node whose cut would leave less on a side is a leaf.
    class_weights : "balanced", mapping, or (n_classes,) array, dtype of x, optional
        As for `grow`.
    task : "classification" or "regression"
        What y is.
    n_classes : int, optional
        As for `grow`.
    progress : callable, optional
        As for `grow`.
    rng : None, int or numpy.random.Generator
        Where the seed comes from.

    Returns
    -------
    Forest
        As from `grow`.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        As for `grow`.

    Notes
    -----
    p4 section 3: a node draws one feature of those that are not constant in it, and cuts it uniformly between
    its least and greatest value there. Cost: for each tree about ``n depth`` steps.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(200, 4))
    >>> y = (x[:, 0] > x[:, 1]).astype(np.int32)
    >>> forest = hforest.classic.grow_random(x, y, 20, rng=0)
    >>> bool((hforest.tree.predict(forest, x).argmax(axis=1) == y).all())
    True
    """
    return _grow(
        x, y, n_trees, None, 1, None, weights, class_weights, task, n_classes, bootstrap=bootstrap,
        max_depth=max_depth, min_samples_split=min_samples_split, min_samples_leaf=min_samples_leaf,
        completely_random=True, progress=progress, rng=rng,
    )  # fmt: skip


def out_of_bag(forest: Forest, x: np.ndarray, bags: np.ndarray) -> np.ndarray:
    """Predictions for the samples that a forest was grown on, each by the trees that did not draw it.

    Parameters
    ----------
    forest : Forest
        From `grow`.
    x : (n, n_features) array, dtype of forest.threshold
        The samples.
    bags : (n_trees, n) array of int32
        How often each tree drew each sample: the array given as `bootstrap`, or
        ``draw_bags(n, n_trees, rng)`` with the seed that was given as rng.

    Returns
    -------
    (n, n_outputs) array, dtype of x
        Means of leaf values; NaN for a sample that every tree drew.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong kind or dtype, or CuPy arrays; wrong shape or layout; a forest that `hforest.tree.check`
        refuses.

    Notes
    -----
    Breiman 2001, section 3.1. Means are summed in float64 in the order of the trees. Cost: that of
    `hforest.tree.leaves`, and a pass over the leaf values for each tree.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(300, 3))
    >>> y = (x[:, 0] > 0).astype(np.int32)
    >>> forest = hforest.classic.grow(x, y, 50, rng=7)
    >>> p = hforest.classic.out_of_bag(forest, x, hforest.classic.draw_bags(300, 50, rng=7))
    >>> bool((p.argmax(axis=1) == y).mean() > 0.95)
    True
    """
    growth.on_cpu(x=x, bags=bags)
    leaf = tree.leaves(forest, x)
    n, n_trees = leaf.shape
    check.array("bags", bags, check.INT32, (n_trees, n), {})
    total, seen = np.zeros((n, forest.value.shape[1])), np.zeros(n)
    for m in range(n_trees):
        out = np.flatnonzero(bags[m] == 0)
        root = int(forest.tree_start[m])
        rows = (root + m) // 2 + forest.left[root + leaf[out, m]]
        total[out] += forest.value[rows]
        seen[out] += 1
    mean = np.divide(total, seen[:, None], out=np.full_like(total, np.nan), where=seen[:, None] > 0)
    return mean.astype(x.dtype)
