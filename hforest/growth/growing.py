"""Growth of trees on bins and on random projections, and in-bag counts of bootstraps."""

import numpy as np

from ..core import check, dispatch, supervised
from ..core.aliases import (
    ArrayLike,
    Bootstrap,
    ClassWeight,
    Criterion,
    IntArray,
    MaxFeatures,
    Progress,
    Rng,
    Splitter,
    Task,
)
from ..core.in_place import Windows
from ..core.projections import Distribution, check_distribution, check_projections
from . import unchecked
from .bins import Bins
from .drawing import drawn_counts
from .samples import Samples, of_bins
from .samples import samples as samples_of
from .settings import check_growth
from .trees import Projected, Trees

_PACKAGE = __package__
_MAX_ROW = 2**62


def bootstrap_counts(
    n_samples: int,
    n_trees: int,
    *,
    n_draws: int | None = None,
    sample_weight: ArrayLike | None = None,
    first_tree: int = 0,
    rng: Rng = None,
) -> IntArray:
    """Returns how often each tree draws each sample with replacement.

    Parameters
    ----------
    n_samples : int
        Number of samples.
    n_trees : int
        Number of trees.
    n_draws : int, optional
        Number of draws of each tree, 1 to 2**31 - 1; by default n_samples. It may be above n_samples.
    sample_weight : (n_samples,) array-like, optional
        Weights, 0 to 1e100, not all 0, to which probabilities of draws are proportional; by default equal.
    first_tree : int
        Number of the first tree, 0 or more; first_tree + n_trees is at most 2**31 - 1.
    rng : None, int or numpy.random.Generator
        Source of random numbers; the same int gives the same result in every call.

    Returns
    -------
    (n_trees, n_samples) array of int32
        In-bag counts; each row sums to n_draws.

    Raises
    ------
    TypeError, ValueError
        An argument of a wrong kind or shape, or out of range.

    Notes
    -----
    Without n_draws and sample_weight these are the bootstraps that `grow` draws from the same rng and
    first_tree; the first n_samples of more draws are the same. Weighted draws invert the cumulative weights;
    pass their counts as `bootstrap` in place of sample_weight, not together with it. Cost: a Philox round per
    four draws; with weights per two draws, and a binary search per draw.

    Examples
    --------
    >>> import hforest
    >>> hforest.growth.bootstrap_counts(5, 2, rng=0).sum(axis=1)
    array([5, 5])
    >>> hforest.growth.bootstrap_counts(3, 1, n_draws=1000, sample_weight=[2, 0, 1], rng=0)
    array([[660,   0, 340]], dtype=int32)
    """
    n_samples = check.integer("n_samples", n_samples, 0, check.MAX_COUNT)
    n_trees = check.integer("n_trees", n_trees, 0, check.MAX_COUNT)
    first_tree = check.first_tree(first_tree, n_trees, check.MAX_COUNT)
    if n_draws is not None:
        n_draws = check.integer("n_draws", n_draws, 1, check.MAX_COUNT)
        check.require(n_samples > 0, "n_samples", "at least 1 to draw from", n_samples, "pass n_draws=None")
    if sample_weight is not None:
        check.on_cpu(sample_weight=sample_weight)
        sample_weight = supervised.sample_weight(sample_weight, np.empty(n_samples, np.int8))
    with check.memory("n_trees", "counts", 4 * n_trees * n_samples):
        counts = np.empty((n_trees, n_samples), np.int32)
    seed = check.seed(rng)
    if n_draws is None and sample_weight is None:
        dispatch.backend(_PACKAGE, counts).bootstrap_counts(seed, first_tree, counts)
    else:
        drawn_counts(seed, first_tree, n_samples if n_draws is None else n_draws, sample_weight, counts)
    return counts


def poisson_counts(
    n_samples: int, n_trees: int, *, first_row: int = 0, first_tree: int = 0, rng: Rng = None
) -> IntArray:
    """Returns how often each tree has each sample: independent Poisson numbers of mean 1.

    Parameters
    ----------
    n_samples : int
        Number of samples.
    n_trees : int
        Number of trees.
    first_row : int
        Number of the first sample among all, 0 to 2**62: columns belong to samples first_row to first_row +
        n_samples - 1.
    first_tree : int
        Number of the first tree, 0 or more; first_tree + n_trees is at most 2**31 - 1.
    rng : None, int or numpy.random.Generator
        Source of random numbers; the same int gives the same result in every call.

    Returns
    -------
    (n_trees, n_samples) array of int32
        In-bag counts: k with probability ``exp(-1) / k!``, at most 12.

    Raises
    ------
    TypeError, ValueError
        An argument is not an int, or is out of range.

        Notes
        -----
        These counts are the limit of the bootstrap for many samples (Oza and Russell 2001). A count depends
        only on the seed, the number of the tree and the number of the sample, so that parts can be drawn
        separately. The sum of a row is near n_samples. Functions with ``bootstrap="poisson"`` draw these
        counts from the same rng and first_tree. Cost: a Philox round per four counts.

    Examples
    --------
    >>> import hforest
    >>> whole = hforest.growth.poisson_counts(100, 2, rng=0)
    >>> part = hforest.growth.poisson_counts(30, 2, first_row=70, rng=0)
    >>> bool((part == whole[:, 70:]).all()), whole.mean(axis=1)
    (True, array([1.11, 0.88]))
    """
    n_samples = check.integer("n_samples", n_samples, 0, check.MAX_COUNT)
    n_trees = check.integer("n_trees", n_trees, 0, check.MAX_COUNT)
    first_row = check.integer("first_row", first_row, 0, _MAX_ROW)
    first_tree = check.first_tree(first_tree, n_trees, check.MAX_COUNT)
    with check.memory("n_trees", "counts", 4 * n_trees * n_samples):
        counts = np.empty((n_trees, n_samples), np.int32)
    dispatch.backend(_PACKAGE, counts).poisson_counts(check.seed(rng), first_tree, first_row, counts)
    return counts


def grow(
    bins: Bins | Samples,
    y: ArrayLike,
    n_trees: int,
    *,
    sample_weight: ArrayLike | None = None,
    class_weight: ClassWeight = None,
    criterion: Criterion | None = None,
    splitter: Splitter = "best",
    max_features: MaxFeatures = "sqrt",
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
) -> Trees:
    """Returns trees that are grown on bins.

    Parameters
    ----------
    bins : Bins or Samples
        Result of `encode` or `samples`; each column is a candidate.
    y : (n_samples,) array-like of labels, or (n_samples,) or (n_samples, n_outputs) array-like of targets
        Labels 0 to n_classes - 1 of any integer or bool dtype; in a regression targets of any real dtype, of
        absolute value at most 1e100 and in the range of the trees' dtype. Bins of windows are for
        classification only.
    n_trees : int
        Number of trees, 1 to 2**20.
    sample_weight : (n_samples,) array-like, optional
        Weights of the samples, 0 to 1e100, not all 0. The largest is at most 2e90 times the smallest above 0.
        A sample of weight 0 does not count.
    class_weight : "balanced", mapping, or (n_classes,) array-like, optional
        Factors of the sample weights of each class. Classes that a mapping omits have factor 1; "balanced"
        gives all classes that occur the same total weight.
    criterion : "gini", "entropy" or "squared_error", optional
        Impurity; by default "gini", in a regression "squared_error".
    splitter : "best" or "random"
        "best" takes the best threshold of a sampled column. "random" takes one that is uniform between its
        least and greatest value in the node: extra trees (Geurts, Ernst and Wehenkel 2006), or with
        ``max_features=1`` completely random trees (Zhou and Feng 2017).
    max_features : "sqrt", int, float or None
        Number of columns sampled at a node: the root of their number, a number, a fraction, or all. Sampling
        continues until one of them is not constant in the node.
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
    Trees
        Arrays of a `hforest.tree.Forest`, in the dtype of the encoded values.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        Wrong kind, dtype or device; wrong shape, a number out of range; labels or bins out of range; not
        enough memory for a tree.

    Notes
    -----
    The blog *Don't Get Lost in the Forest*, steps 1 to 4: a bootstrap weights samples instead of copying
    them. The best split has the lowest ``sum_b W_b H(b)``; of equal ones the column sampled first wins, then
    the lowest threshold. Random numbers of a node depend only on its key, which a counter-based generator
    derives from its parent's: trees do not depend on the number of threads. A tree that draws only samples of
    weight 0 takes every sample. Extreme weights are scaled by a power of two, and `gain` with them
    (`hforest.tree.Forest`). The power may depend on in-bag counts of the caller, and so on the range of
    trees. Cost: a few nanoseconds per level, sample and candidate. If each split separates one sample, a tree
    has as many levels as samples.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> bins = hforest.growth.encode(np.array([[0.0], [1.0], [2.0]]))
    >>> trees = hforest.growth.grow(bins, [0, 1, 1], 1, bootstrap=False, rng=0)
    >>> trees.feature, trees.threshold
    (array([ 0, -1, -1], dtype=int32), array([0.5, 0. , 0. ]))
    """
    samples = bins if isinstance(bins, Samples) else of_bins(bins, "bins")
    growth = check_growth(
        samples, y, n_trees, sample_weight=sample_weight, class_weight=class_weight, criterion=criterion,
        splitter=splitter, bootstrap=bootstrap, y_order=y_order, max_depth=max_depth,
        min_samples_split=min_samples_split,
        min_samples_leaf=min_samples_leaf, min_weight_fraction_leaf=min_weight_fraction_leaf,
        min_impurity_decrease=min_impurity_decrease, task=task, n_classes=n_classes, first_tree=first_tree,
        progress=progress, rng=rng,
    )  # fmt: skip
    n_candidates = supervised.max_features(max_features, samples.shape[1])
    grow_some = unchecked.on_bins(growth, max_features=n_candidates)
    return unchecked.joined_trees(unchecked.in_batches(grow_some, growth), growth)


def grow_projected(
    x: ArrayLike | Windows | Samples,
    y: ArrayLike,
    n_trees: int,
    distribution: Distribution,
    *,
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
) -> Projected:
    """Returns trees whose nodes sample random projections (Perry et al. 2019, Alg. 1).

    Parameters
    ----------
    x : (n_samples, n_features) array-like of real numbers, sparse matrix, Windows, or Samples
        Samples, finite, or NaN for missing values. Entries that a CSR or CSC matrix of SciPy does not store
        are 0. Dtypes that float32 holds exactly are computed in float32, others in float64. Windows are not
        converted, have no NaN, and are for classification only.
    y : (n_samples,) array-like of labels, or (n_samples,) or (n_samples, n_outputs) array-like of targets
        Labels 0 to n_classes - 1 of any integer or bool dtype; in a regression targets of any real dtype, of
        absolute value at most 1e100 and in the range of the trees' dtype.
    n_trees : int
        Number of trees, 1 to 2**20.
    distribution : Distribution
        Distribution of the projections, such as that of `hforest.project.sparse_distribution`.
    n_projections : int, optional
        Number of projections sampled at a node, 1 to 2**20; by default as in `hforest.manifold.grow`. If all
        of them are constant in the node, it is a leaf.
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
    Projected
        Arrays of a `hforest.tree.Forest`; a projection onto one feature is stored as that feature.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        Wrong kind, dtype or device; wrong shape, a number out of range; labels or bins out of range; not
        enough memory for a tree. A distribution for another number of features.

    Notes
    -----
    Values are summed in float64 in the order of the projection's entries and rounded once to the dtype of x,
    as in `hforest.tree`. The node's key and c determine candidate c. Whole numbers with sums up to 2**24 are
    added as integers, from a copy of 1 byte per feature if they are below 256. Their larger patches take four
    look-ups in a table of sums over corners, which is exact and takes 2 to 4 bytes per feature. Arrays are
    copied once, features first. Windows are read in place, on a GPU copied; their trees are bit-identical to
    those of a copy. Whole numbers of windows, at most 2**24 / n_features, take 1 byte per number of their
    array, and no table. Cost: for each level, sample and candidate its entries, and a place in a count or a
    sort.

    Examples
    --------
    >>> import numpy as np
    >>> from hforest import growth, project
    >>> x, y = np.array([[0.0, 1], [1, 2], [0, 2], [1, 3]]), [0, 0, 1, 1]
    >>> grown = growth.grow_projected(
    ...     x, y, 1, project.probe_distribution(2), n_projections=1, bootstrap=False, rng=0)
    >>> grown.trees.feature, abs(grown.trees.threshold[0])
    (array([-2, -1, -1], dtype=int32), np.float64(1.5))
    """
    distribution = check_distribution(distribution)
    source = samples_of(x)
    if distribution.n_features != source.shape[1]:
        raise ValueError(
            f"distribution: expected n_features = {source.shape[1]}, got {distribution.n_features}; make a "
            "distribution for the columns of x"
        )
    n_projections = check_projections(distribution, n_projections, task)
    growth = check_growth(
        source, y, n_trees, sample_weight=sample_weight, class_weight=class_weight, criterion=criterion,
        splitter=splitter, bootstrap=bootstrap, y_order=y_order, max_depth=max_depth,
        min_samples_split=min_samples_split,
        min_samples_leaf=min_samples_leaf, min_weight_fraction_leaf=min_weight_fraction_leaf,
        min_impurity_decrease=min_impurity_decrease, task=task, n_classes=n_classes, first_tree=first_tree,
        progress=progress, rng=rng,
    )  # fmt: skip
    grow_some = unchecked.on_projections(growth, distribution, n_projections=n_projections)
    trees = unchecked.in_batches(grow_some, growth)
    return unchecked.joined(trees, growth.learned.target.n_outputs, source.numbers, source.dtype)
