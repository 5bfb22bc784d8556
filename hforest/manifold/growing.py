"""Forests on random projections."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ..core import check
from ..core.aliases import ArrayLike, Bootstrap, ClassWeight, Criterion, Progress, Rng, Splitter, Task
from ..core.dispatch import array_module
from ..core.projections import (
    Distribution,
    check_distribution,
    check_patch,
    patch_distribution,
    probe_distribution,
    sparse_distribution,
)
from ..core.supervised import TASKS
from ..growth import Samples, Windows, grow_projected, samples
from ..tree import Forest
from ..tree.forest import marked

_PROJECTIONS = ("patch", "sparse", "probe")


def _distribution(
    projection: Literal["patch", "sparse", "probe"],
    n_features: int,
    shape: Sequence[int] | None,
    density: float,
    single_share: float,
    **patch: Any,
) -> Distribution:
    # Also for another projection.
    check.number("density", density, 0.0, open_low=True)
    check.number("single_share", single_share, 0.0, 1.0)
    for name in ("channels", "cyclic"):
        check.flag(name, patch[name])
    check_patch(shape, patch["patch_min"], patch["patch_max"])
    if projection == "sparse":
        return sparse_distribution(n_features, density)
    if projection == "probe":
        return probe_distribution(n_features, single_share)
    if shape is None:
        raise ValueError(
            'shape: expected the shape of a sample for projection="patch", got None; pass a tuple such as '
            "(28, 28)"
        )
    distribution = patch_distribution(shape, **patch)
    check.require(
        distribution.n_features == n_features, "shape",
        f"sizes that multiply to n_features = {n_features}", tuple(shape), "pass the shape of one sample",
    )  # fmt: skip
    return distribution


def _grow(
    x: ArrayLike | Windows | Samples,
    *,
    projection: Literal["patch", "sparse", "probe"] | None,
    shape: Sequence[int] | None,
    patch_min: int | Sequence[int],
    patch_max: int | Sequence[int],
    channels: bool,
    cyclic: bool,
    density: float,
    single_share: float,
    distribution: Distribution | None,
    **settings: Any,
) -> Forest:
    """Returns a forest; `settings` are those of `hforest.growth.grow_projected`, with y and n_trees."""
    converted = samples(x)
    n_features = converted.shape[1]
    if distribution is not None:
        distribution = check_distribution(distribution)
    check.choice("task", settings["task"], TASKS)
    for name, value in (("projection", projection), ("shape", shape)):
        check.require(
            distribution is None or value is None, name, "None with a distribution", repr(value),
            "pass only one of them", TypeError,
        )  # fmt: skip
    if projection is None:
        projection = "sparse" if shape is None else "patch"
    check.choice("projection", projection, _PROJECTIONS)
    made = _distribution(
        projection, n_features, shape, density, single_share, patch_min=patch_min, patch_max=patch_max,
        channels=channels, cyclic=cyclic,
    )  # fmt: skip
    grown = grow_projected(converted, distribution=made if distribution is None else distribution, **settings)
    return marked(Forest(
        n_features=array_module(grown.data).array(n_features, np.int64), **grown.trees._asdict(),
        indptr=grown.indptr, indices=grown.indices, data=grown.data,
    ))  # fmt: skip


def grow(
    x: ArrayLike | Windows | Samples,
    y: ArrayLike,
    n_trees: int = 100,
    *,
    projection: Literal["patch", "sparse", "probe"] | None = None,
    shape: Sequence[int] | None = None,
    patch_min: int | Sequence[int] = 1,
    patch_max: int | Sequence[int] = 3,
    channels: bool = False,
    cyclic: bool = False,
    density: float = 1.5,
    single_share: float = 0.5,
    distribution: Distribution | None = None,
    n_projections: int | None = None,
    sample_weight: ArrayLike | None = None,
    class_weight: ClassWeight = None,
    criterion: Criterion | None = None,
    splitter: Splitter = "best",
    bootstrap: Bootstrap = True,
    y_order: ArrayLike | None = None,
    max_depth: int | None = None,
    min_samples_split: int = 2,
    min_samples_leaf: int = 1,
    min_weight_fraction_leaf: float = 0.0,
    min_impurity_decrease: float = 0.0,
    task: Task = "classification",
    n_classes: int | None = None,
    first_tree: int = 0,
    progress: Progress = None,
    rng: Rng = None,
) -> Forest:
    """Returns a forest on random projections (Perry et al. 2019, Alg. 1).

    Parameters
    ----------
    x : (n_samples, n_features) array-like of real numbers, sparse matrix, Windows, or Samples
        Samples (of `hforest.growth.samples` too), at least one, finite or NaN for missing values; converted
        as `hforest.classic.grow` converts them. A projection with a missing value is missing. Windows
        (`hforest.growth.Windows`) are for classification only; they are read in place, on a GPU copied.
    y : (n_samples,) array-like of labels, or (n_samples,) or (n_samples, n_outputs) array-like of targets
        Labels 0 to n_classes - 1 of any integer or bool dtype; in a regression targets of any real dtype, of
        absolute value at most 1e100 and in the range of the trees' dtype.
    n_trees : int
        Number of trees, 1 to 2**20.
    projection : "patch", "sparse" or "probe", optional
        Sums over patches (MORF), sparse vectors of +1 and -1 (SPORF), or differences of two features. By
        default "patch" with `shape`, else "sparse".
    shape : tuple of 1 to 3 ints, then the number of channels with `channels`
        Shape of one sample, for patches: (length,), (height, width) or (depth, height, width).
    patch_min : int or tuple of ints
        Smallest size of a patch along each axis.
    patch_max : int or tuple of ints
        Largest size of a patch along each axis; sizes are independent and uniform.
    channels : bool
        Whether the last axis of `shape` is that of channels; a patch lies within one channel.
    cyclic : bool
        Whether patches wrap around the borders. If not, corners are uniform over all positions where the
        patch fits.
    density : float
        Mean number of non-zeros of a sparse projection (lambda in Perry et al. 2019), above 0 to 500.
    single_share : float
        Share of single features among the differences of two, 0 (the two-probe forests of Norouzi et al.
        2015) to 1. Differences alone do not contain what both features have in common.
    distribution : Distribution, optional
        Distribution of `hforest.project`, such as `grouped_distribution`, in place of `projection`, `shape`
        and their settings.
    n_projections : int, optional
        Number of projections sampled at a node (d in Perry et al. 2019), 1 to 2**20. By default the root of
        n_features, rounded up. In a regression on "sparse" or "probe" n_features, but at most 100 or that
        root, whichever is greater. With groups of columns the sum of their numbers.
    sample_weight : (n_samples,) array-like, optional
        Weights of the samples, 0 to 1e100, not all 0. The largest is at most 2e90 times the smallest above 0.
        A sample of weight 0 does not count.
    class_weight : "balanced", mapping, or (n_classes,) array-like, optional
        Factors of the sample weights of each class. Classes that a mapping omits have factor 1; "balanced"
        gives all classes that occur the same total weight.
    criterion : "gini", "entropy" or "squared_error", optional
        Impurity; by default "gini", in a regression "squared_error".
    splitter : "best" or "random"
        "best" takes the best threshold of a projection. "random" takes one that is uniform between its least
        and greatest value in the node: extra trees on projections.
    bootstrap : bool, "poisson" or (n_trees, n_samples) array of integers
        Whether each tree draws n_samples samples with replacement. "poisson" takes the in-bag counts of
        `hforest.growth.poisson_counts`. An array has in-bag counts, such as those of
        `hforest.growth.bootstrap_counts`, with one above 0 in each row.
    y_order : (n_trees, n_samples) array of integers, optional
        Numbers of samples, such as permutations: tree m learns ``y[y_order[m]]``, so that sample i has the
        label or target of sample y_order[m, i]. Weights and in-bag counts stay with the samples. Cannot be
        used with class_weight or on a GPU.
    max_depth : int, optional
        Maximum depth of a leaf; 0 is a single leaf. By default trees grow until leaves are pure.
    min_samples_split : int
        A node with fewer samples is a leaf. A sample that was drawn more than once counts once.
    min_samples_leaf : int
        Minimum number of samples on each side of a split. A sample that was drawn more than once counts once.
    min_weight_fraction_leaf : float
        Minimum weight on each side of a split, as a fraction of the tree's weight, 0 to 0.5.
    min_impurity_decrease : float
        Minimum decrease of the impurity by a split: its gain divided by the weight of the tree.
    task : "classification" or "regression"
        Whether y holds labels or targets.
    n_classes : int, optional
        Number of classes, at most 2**20; some of them may be absent. By default it is the largest label plus
        1, and every class must occur. Classification only.
    first_tree : int
        Number of the first tree, 0 or more; first_tree + n_trees is at most 2**20. Calls with the same
        arguments and the same int as rng grow ranges of one forest: its trees are bit-identical for any
        division into ranges. `hforest.tree.join` joins them. Row m of in-bag counts belongs to tree
        first_tree + m.
    progress : callable or bool, optional
        Called as progress(done, n_trees) after every few trees. If it returns False, growth stops and the
        trees so far are returned. True shows a bar.
    rng : None, int or numpy.random.Generator
        Source of random numbers; the same int gives the same result in every call.

    Returns
    -------
    Forest
        Forest in the dtype in which x is computed, float32 or float64. A projection onto one feature is
        stored as that feature.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        Wrong kind, dtype or device; wrong shape, infinity, a number out of range, a patch larger than the
        sample, a shape whose product is not n_features; labels out of range; not enough memory.

    Notes
    -----
    A node samples n_projections, scores every threshold of each, and takes the best split; of equal ones that
    of the projection sampled first, and of its thresholds the lowest. Random numbers of a node depend on a
    key that comes from its parent's: results are the same for every number of threads. Sums of patches of
    whole numbers take four look-ups, whatever their size (`hforest.growth.grow_projected`).

    Examples
    --------
    >>> import hforest
    >>> from hforest import demo
    >>> x, y = demo.simulate_bars(100, rng=0)
    >>> forest = hforest.manifold.grow(x, y, 20, shape=(28, 28), patch_max=4, rng=0)
    >>> x_test, y_test = demo.simulate_bars(100, rng=1)
    >>> bool((hforest.tree.predict(forest, x_test).argmax(axis=1) == y_test).mean() > 0.85)
    True
    """
    return _grow(**locals())
