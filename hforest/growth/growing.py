"""Growth of forests on features or on random projections."""

from typing import Any, Unpack

import numpy as np

from ..core import supervised
from ..core.aliases import (
    ArrayLike,
    AutoFeatures,
    Bootstrap,
    Classes,
    ClassWeight,
    Criterion,
    IntArray,
    Progress,
    Rng,
    Splitter,
    Task,
)
from ..core.keywords import shared
from ..core.projections import Distribution, check_n_features
from ..core.sparse import Columns
from ..tree import Forest, apply
from ..tree.forest import marked
from . import unchecked
from .samples import Samples, samples
from .settings import Growth, Settings, check_candidates, check_growth


@shared(Settings)
def grow(
    x: ArrayLike | Samples,
    y: ArrayLike,
    n_trees: int = 100,
    *,
    projections: Distribution | None = None,
    n_projections: int | None = None,
    max_features: AutoFeatures = "auto",
    splitter: Splitter = "best",
    bootstrap: Bootstrap = True,
    max_samples: int | float | None = None,
    y_order: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    class_weight: ClassWeight = None,
    criterion: Criterion | None = None,
    max_depth: int | None = None,
    min_samples_split: int | float = 2,
    min_samples_leaf: int | float = 1,
    min_weight_fraction_leaf: float = 0.0,
    min_impurity_decrease: float = 0.0,
    monotonic_cst: ArrayLike | None = None,
    max_leaf_nodes: int | None = None,
    task: Task = "classification",
    n_classes: Classes = None,
    first_tree: int = 0,
    progress: Progress = None,
    rng: Rng = None,
) -> Forest:
    """Returns a forest: a random forest, extra trees, completely random trees, or trees on projections.

    =========================  ==============================================================================
    random forest              ``grow(x, y)`` (Breiman 2001)
    extra trees                ``grow(x, y, splitter="random", bootstrap=False)`` (Geurts, Ernst and Wehenkel
                               2006)
    completely random trees    the same with ``max_features=1`` (Zhou and Feng 2017)
    SPORF, MORF, probes        ``grow(x, y, projections=...)`` with a distribution of `hforest.project` (Perry
                               et al. 2019, Alg. 1; Norouzi et al. 2015, section 6.2)
    =========================  ==============================================================================


    Parameters
    ----------
    x : (n_samples, n_features) array-like of real numbers, sparse matrix, or Samples
        At least one sample. Values are finite, or NaN where missing; strides and order are free. Entries that
        a CSR or CSC matrix of SciPy does not store are 0: trees equal those of ``x.toarray()``. Bools,
        integers of up to 16 bits, float16 and float32 are computed in float32, other dtypes in float64.
        `hforest.samples` says which columns are categories, bins them, reads windows in place, and encodes
        samples once for several forests.
    y : (n_samples,) or (n_samples, n_outputs) array-like of labels or targets
        Labels 0 to n_classes - 1 of any integer or bool dtype; in a regression targets of any real dtype, of
        absolute value at most 1e100 and in the range of the trees' dtype. To number other labels use
        ``numpy.unique(y, return_inverse=True)[1]``. Windows are for classification by one label only.
    n_trees : int
        Number of trees, 1 to 2**20.
    **settings
        The items of `hforest.growth.Settings`.

    Returns
    -------
    Forest
        Forest in the dtype in which x is computed, float32 or float64; leaf values are shares of the classes,
        or mean targets. Shares of several labels a sample are side by side, divided by `class_start`. It
        predicts rows of any real dtype, which are converted to its own. A projection onto one feature is
        stored as that feature.

    Raises
    ------
    ValueError
        Categories other than whole numbers 0 to 65535; a distribution for another number of features.

    Notes
    -----
    Each tree weights the samples by how often it drew them (*Don't Get Lost in the Forest*, steps 1 to 4).
    Each node samples some features or projections, compares every threshold between different neighbouring
    values, and takes the split of lowest ``sum_b W_b H(b)`` (`hforest.split.impurity`). Of equal ones the
    candidate sampled first wins, then the lowest threshold. A split may have gain 0. ``<= threshold`` goes
    left. The threshold is the midpoint of two neighbours, or the lower one if the midpoint rounds to the
    upper. A random threshold is drawn for each sampled candidate that is not constant in the node; the best
    of these wins. With random thresholds missing values go left or right with probability 1/2, and so does
    each category.

    Missing values (NaN) are tried on either side of each threshold, and against all other values. A node
    without missing values sends them to its side of more samples. A projection with a missing value is
    missing. With two classes or one target, categories are scanned in the order of their share of the second
    class or of their mean, which finds the best of all sets (Fisher 1958; Breiman et al. 1984). With more
    classes or outputs all sets of up to four categories are compared. More categories are ordered along the
    first principal direction of their means (Coppersmith, Hong and Hosking 1999). A category that did not
    occur in the node goes to its side of more samples.

    Features are encoded once for all trees by the ranks of their values, so a node orders whole numbers of at
    most 16 bits when n_samples < 65537. Random thresholds of exact numbers need no ranks. Projections are
    summed in float64 in the order of their entries and rounded once to the dtype of x, as in `hforest.tree`.
    Whole numbers with sums up to 2**24 are added as integers, from a copy of 1 byte per feature if they are
    below 256. Their larger patches take four look-ups in a table of sums over corners, which is exact and
    takes 2 to 4 bytes per feature.

    Random numbers of a node depend only on its key, which a counter-based generator derives from its
    parent's: results are the same for every number of threads. A tree that draws only samples of weight 0
    takes every sample. Extreme weights are scaled by a power of two, and `gain` with them
    (`hforest.tree.Forest`). The power may depend on in-bag counts of the caller, and so on the range.

    Cost: n_features sorts for the encoding (`hforest.samples`), then for each tree about ``n_samples
    max_features depth`` steps of a few nanoseconds, with projections times their entries. A threshold costs
    O(1) for Gini with whole weights below 256, else O(n_classes).

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(200, 4))
    >>> y = x[:, 0] > x[:, 1]
    >>> forest = hforest.grow(x, y, 20, rng=0)
    >>> p = hforest.tree.predict(forest, x)
    >>> bool((p.argmax(axis=1) == y).mean() > 0.98)
    True
    >>> oblique = hforest.grow(x, y, 20, projections=hforest.project.sparse_distribution(4), rng=0)
    >>> bool((hforest.tree.predict(oblique, x).argmax(axis=1) == y).mean() > 0.98)
    True
    """
    grow_some, growth = _start(
        samples(x), y, n_trees, projections=projections, n_projections=n_projections,
        max_features=max_features, splitter=splitter, bootstrap=bootstrap, max_samples=max_samples,
        y_order=y_order, sample_weight=sample_weight, class_weight=class_weight, criterion=criterion,
        max_depth=max_depth,
        min_samples_split=min_samples_split, min_samples_leaf=min_samples_leaf,
        min_weight_fraction_leaf=min_weight_fraction_leaf, min_impurity_decrease=min_impurity_decrease,
        monotonic_cst=monotonic_cst, max_leaf_nodes=max_leaf_nodes, task=task, n_classes=n_classes,
        first_tree=first_tree, progress=progress, rng=rng,
    )  # fmt: skip
    trees = unchecked.in_batches(grow_some, growth)
    return marked(unchecked.forest(trees, growth, projected=projections is not None))


def _start(
    source: Samples, y: ArrayLike, n_trees: int, *, projections: Any, n_projections: Any, max_features: Any,
    **settings: Any,
) -> tuple[unchecked.GrowSome, Growth]:  # fmt: skip
    """Returns the function that grows trees, for `unchecked.in_batches`, and the checked settings."""
    task = settings["task"]
    distribution, n_sampled = check_candidates(
        projections, n_projections, max_features, task, settings["monotonic_cst"]
    )
    if distribution is not None:
        check_n_features(distribution, source.shape[1])
    growth = check_growth(source, y, n_trees, **settings)
    if distribution is None:
        n_sampled = supervised.max_features(max_features, source.shape[1], task)
        return unchecked.on_bins(growth, max_features=n_sampled), growth
    return unchecked.on_projections(growth, distribution, n_projections=n_sampled), growth


def walked(source: Samples) -> Any:
    """Returns the samples as `hforest.tree.apply` takes them."""
    if isinstance(source.x, Columns):
        from scipy.sparse import csc_array

        return csc_array(source.x.stored[:3], source.shape)
    return source if source.are_windows else source.numbers


@shared(Settings, grow)
def grow_with_leaves(
    x: ArrayLike | Samples, y: ArrayLike, n_trees: int = 100, **settings: Unpack[Settings]
) -> tuple[Forest, IntArray]:
    """Returns the forest of `hforest.grow`, and the leaf that each sample reaches in each tree.

    Parameters: see `hforest.grow`.

    Returns
    -------
    forest : Forest
        As `hforest.grow` returns it.
    leaves : (n_samples, n_trees) array of int32
        What ``hforest.tree.apply(forest, x)`` returns: node numbers within their trees. Samples that a tree
        did not draw, and samples of weight 0, have the leaf that they reach, too.

    Notes
    -----
    A tree that takes every sample knows their leaves when it has grown. If all trees of a call do, leaves
    cost a few nanoseconds per sample and tree. With a bootstrap, weights of 0, random thresholds between bins
    of several values, windows or a GPU the cost is that of `hforest.tree.apply`.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> settings = {"task": "regression", "bootstrap": False, "rng": 0}
    >>> forest, leaves = hforest.growth.grow_with_leaves(x, [5.0, 6.0, 6.0], 1, **settings)
    >>> leaves.ravel()
    array([1, 2, 2], dtype=int32)
    >>> forest.value[forest.left[leaves[:, 0]], 0]  # the values of one tree
    array([5., 6., 6.])
    """
    source = samples(x)
    grow_some, growth = _start(source, y, n_trees, **settings)
    # A random threshold may lie within a bin, which growth does not divide.
    by_values = growth.splitter == "best" or source.max_bins is None
    if by_values and isinstance(source.numbers, np.ndarray) and not source.are_windows:
        growth = growth._replace(reached=np.full((growth.n_trees, len(source)), -1, np.int32))
    trees = unchecked.in_batches(grow_some, growth)
    forest = marked(unchecked.forest(trees, growth, projected=settings["projections"] is not None))
    if growth.reached is not None and growth.reached[: len(trees)].min() >= 0:
        return forest, np.ascontiguousarray(growth.reached[: len(trees)].T)
    return forest, apply(forest, walked(source))
