"""Oblique and manifold forests (SPORF, MORF; p3) and two-probe forests (p2 section 6.2).

Splits look at random sparse projections of a sample: at few features with signs, at a patch of an image or
signal, at the difference of two features. A forest is a `hforest.tree.Forest`: apply and inspect it with
`hforest.tree`. Wrong kinds and dtypes raise TypeError, wrong shapes and values ValueError, labels out of
range IndexError; the checks that read whole arrays can be skipped inside `hforest.unchecked()`.
"""

import math
from typing import Any

import numpy as np

from .. import growth
from ..core import check
from ..core.dispatch import Array, array_module
from ..growth import Atoms, Progress
from ..tree import Forest
from .simulate import simulate_bars, simulate_circle, simulate_impulse

__all__ = ["grow", "simulate_bars", "simulate_circle", "simulate_impulse"]

_PROJECTIONS = ("patch", "sparse", "probes")
_TASKS = ("classification", "regression")


def _atoms(projection: str, n_features: int, shape: Any, density: float, **patch: Any) -> Atoms:
    check.choice("projection", projection, _PROJECTIONS)
    if projection == "sparse":
        return growth.sparse_atoms(n_features, density)
    if projection == "probes":
        return growth.probe_atoms(n_features)
    if shape is None:
        raise ValueError(
            'shape: expected the shape of a sample for projection="patch", got None; pass such as (28, 28)'
        )
    return growth.patch_atoms(n_features, shape, **patch)


def grow(
    x: Array,
    y: Array,
    n_trees: int,
    *,
    projection: str = "patch",
    shape: Any = None,
    patch_min: Any = 1,
    patch_max: Any = 3,
    channels: bool = False,
    cyclic: bool = False,
    density: float = 1.5,
    n_projections: int | None = None,
    weights: Array | None = None,
    criterion: str | None = None,
    bootstrap: bool | Array = True,
    max_depth: int | None = None,
    min_samples_split: int = 2,
    min_samples_leaf: int = 1,
    min_impurity_decrease: float = 0.0,
    task: str = "classification",
    n_classes: int | None = None,
    progress: Progress | None = None,
    rng: Any = None,
) -> Forest:
    """A forest on random projections (p3 Alg. 1).

    Parameters
    ----------
    x : (n, n_features) array of float32 or float64
        Samples, finite, at least one.
    y : (n,) array of int32, or (n,) or (n, n_outputs) array, dtype of x
        Labels 0 to n_classes - 1, or targets for regression.
    n_trees : int
        Trees.
    projection : "patch", "sparse" or "probes"
        Sums over patches (MORF), sparse vectors of +1 and -1 (SPORF), differences of two features.
    shape : tuple of 1 to 3 ints, and the number of channels behind them with `channels`
        Of one sample, for patches: (length,), (height, width), (depth, height, width).
    patch_min, patch_max : int or tuple of ints
        Least and greatest size of a patch along each axis.
    channels : bool
        Whether the last axis of shape counts channels; a patch lies in one of them.
    cyclic : bool
        Whether patches wrap around the borders.
    density : float
        Mean number of non-zeros of a sparse projection, above 0 to 500.
    n_projections : int, optional
        Projections that a node draws; by default the root of n_features, rounded up.
    weights, criterion, bootstrap, max_depth, min_samples_split, min_samples_leaf, min_impurity_decrease
        As `hforest.classic.grow` takes them.
    task, n_classes, progress, rng
        As `hforest.classic.grow` takes them.

    Returns
    -------
    Forest
        Of the dtype of x. A projection onto one feature is stored as that feature.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        Wrong kind, dtype or device; wrong shape or layout, NaN or
        infinity, a number out of its range, a patch larger than the sample, a shape that does not multiply
        to n_features; labels out of range; no memory.

    Notes
    -----
    A node draws n_projections, scores every threshold of each, and takes the best; of equals the one drawn
    first, in it the lowest. What it draws depends on a key drawn from its parent's: results are the same at
    every number of threads. Patches of whole numbers take four look-ups whatever their size
    (`hforest.growth.grow_projected`).

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x, y = hforest.manifold.simulate_bars(100, rng=0)
    >>> forest = hforest.manifold.grow(x, y, 20, shape=(28, 28), patch_max=4, rng=0)
    >>> x_test, y_test = hforest.manifold.simulate_bars(100, rng=1)
    >>> bool((hforest.tree.predict(forest, x_test).argmax(axis=1) == y_test).mean() > 0.85)
    True
    """
    check.choice("task", task, _TASKS)
    check.same_device(x=x, y=y)
    xp = array_module(x)
    dtype = check.floating("x", x)
    sizes: check.Sizes = {}
    check.array("x", x, dtype, ("n", "n_features"), sizes)
    check.at_least_one(sizes, "n", "n_features")
    n_features = sizes["n_features"]
    targets = y
    if task == "classification":
        check.array("y", y, check.INT32, ("n",), sizes)
        n_classes = max(0, int(y.max())) + 1 if n_classes is None else n_classes
        n_classes = check.integer("n_classes", n_classes, 1, 2**20)
        check.indices("y", y, n_classes, "n_classes")
    else:
        if n_classes is not None:
            raise ValueError(f"n_classes: expected None for regression, got {n_classes!r}; leave it out")
        check.array("y", y, dtype, ("n",) if y.ndim == 1 else ("n", "n_outputs"), sizes)
        targets = y.reshape(len(y), -1).astype(np.float64)
    if weights is not None:
        check.same_device(x=x, weights=weights)
        check.array("weights", weights, dtype, ("n",), sizes)
    if criterion is None:
        criterion = "gini" if task == "classification" else "squared_error"
    atoms = _atoms(
        projection, n_features, shape, density, patch_min=patch_min, patch_max=patch_max, channels=channels,
        cyclic=cyclic,
    )  # fmt: skip
    if n_projections is None:
        n_projections = math.isqrt(n_features - 1) + 1
    n_projections = check.integer("n_projections", n_projections, 1, 2**31 - 1)
    grown = growth.grow_projected(
        x, targets, xp.ones(len(x)) if weights is None else weights.astype(np.float64), n_trees, atoms,
        n_classes=n_classes, criterion=criterion, n_drawn=n_projections, bootstrap=bootstrap,
        max_depth=max_depth, min_samples_split=min_samples_split, min_samples_leaf=min_samples_leaf,
        min_impurity_decrease=min_impurity_decrease, progress=progress, rng=rng,
    )  # fmt: skip
    return Forest(
        n_features=xp.array(n_features, np.int64), **grown.trees._asdict(), start=grown.start,
        index=grown.index, weight=grown.weight,
    )  # fmt: skip
