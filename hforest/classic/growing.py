"""Random forests, extra trees and completely random forests."""

from typing import Any

import numpy as np

from ..core import check, supervised
from ..core.aliases import ArrayLike, AutoFeatures, Bootstrap, ClassWeight, Criterion, Progress, Rng, Task
from ..core.dispatch import array_module
from ..growth import Bins, Samples, Windows, samples, unchecked
from ..growth.settings import Growth, check_growth
from ..tree import Forest
from ..tree.forest import marked


def _sampled(value: Any, n_features: int, task: Task) -> int:
    """Returns the number of features sampled at a node; "auto" is the root of all, in a regression all."""
    if isinstance(value, str):
        check.choice("max_features", value, ("auto", "sqrt"))
        if value == "auto":
            value = None if task == "regression" else "sqrt"
    return supervised.max_features(value, n_features)


def _started(
    x: ArrayLike | Windows | Bins | Samples,
    y: ArrayLike,
    n_trees: int,
    *,
    max_features: AutoFeatures,
    max_bins: int | None,
    categorical: ArrayLike | None,
    **settings: Any,
) -> tuple[unchecked.GrowSome, Growth]:
    """Returns the arguments of `in_batches`; settings are those of `hforest.growth.settings.check_growth`."""
    encoded = samples(x, categorical=categorical, max_bins=max_bins)
    growth = check_growth(encoded, y, n_trees, **settings)
    n_sampled = _sampled(max_features, encoded.shape[1], settings["task"])
    return unchecked.on_bins(growth, max_features=n_sampled), growth


def _forest(grown: list[Any], growth: Growth) -> Forest:
    trees = unchecked.joined_trees(grown, growth)
    xp = array_module(trees.threshold)
    return marked(Forest(
        n_features=xp.array(growth.samples.shape[1], np.int64), **trees._asdict(),
        indptr=xp.zeros(0, np.int64), indices=xp.zeros(0, np.int32), data=xp.zeros(0, trees.threshold.dtype),
    ))  # fmt: skip


def grow(
    x: ArrayLike | Windows | Bins | Samples,
    y: ArrayLike,
    n_trees: int = 100,
    *,
    sample_weight: ArrayLike | None = None,
    class_weight: ClassWeight = None,
    criterion: Criterion | None = None,
    max_features: AutoFeatures = "auto",
    max_bins: int | None = None,
    categorical: ArrayLike | None = None,
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
    """Returns a random forest.

    Parameters
    ----------
    x : (n_samples, n_features) array-like of real numbers, sparse matrix, Windows, Bins or Samples
        At least one sample. Values are finite, or NaN where missing; strides and order are free. Entries that
        a CSR or CSC matrix of SciPy does not store are 0: trees equal those of ``x.toarray()``. Bools,
        integers of up to 16 bits, float16 and float32 are computed in float32, other dtypes in float64.
        Windows are not converted; they have no NaN and no categories, and are for classification only. To
        grow several forests on one encoding, pass the result of `hforest.growth.samples`, or bins of
        `hforest.growth.encode`.
    y : (n_samples,) array-like of labels, or (n_samples,) or (n_samples, n_outputs) array-like of targets
        Labels 0 to n_classes - 1 of any integer or bool dtype; in a regression targets of any real dtype, of
        absolute value at most 1e100 and in the range of the trees' dtype. To number other labels use
        ``numpy.unique(y, return_inverse=True)[1]``.
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
    max_features : "auto", "sqrt", int, float or None
        Number of features sampled at a node. A float is a fraction of all features, rounded down, but at
        least one feature; "sqrt" is the square root of their number; "auto" is "sqrt", but all in a
        regression; None is all. If all sampled features are constant in the node, sampling continues until
        one is not.
    max_bins : int, optional
        Maximum number of bins of a feature, 1 to 256. Bins are made once for all trees; a feature of at most
        max_bins distinct values is exact. Must be None for Bins and Samples, which have their own. Thresholds
        between bins are compared; by default all thresholds between different neighbouring values (exact).
    categorical : (n_features,) array-like of bools, or array-like of feature numbers, optional
        Features that are categories: whole numbers 0 to 65535, or NaN. Their splits send a set of categories
        to one side. Must be None for Bins and Samples, which have their own.
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
        Forest in the dtype in which x is computed, float32 or float64; leaf values are shares of the classes,
        or mean targets. It predicts rows of any real dtype, which are converted to its own.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        Wrong kind, dtype or device; wrong shape, infinity, a number out of range, categories other than whole
        numbers 0 to 65535, negative weights or none above 0; labels out of range; not enough memory.

    Notes
    -----
    Breiman 2001: each tree weights the samples by how often it drew them. Each node samples some features,
    compares every threshold between different neighbouring values, and takes the split of lowest ``sum_b W_b
    H(b)`` (`hforest.split.impurity`). Of equal ones the feature sampled first wins, then the lowest
    threshold. A split may have gain 0. ``<= threshold`` goes left. The threshold is the midpoint of two
    neighbours, or the lower one if the midpoint rounds to the upper.

    Missing values (NaN) are tried on either side of each threshold, and against all other values. A node
    without missing values sends them to its side of more samples. With two classes or one target, categories
    are scanned in the order of their share of the second class or of their mean, which finds the best of all
    sets (Fisher 1958; Breiman et al. 1984). With more classes or outputs all sets of up to four categories
    are compared. More categories are ordered along the first principal direction of their means (Coppersmith,
    Hong and Hosking 1999). A category that did not occur in the node goes to its side of more samples.

    Features are encoded once for all trees by the ranks of their values, so a node orders whole numbers of at
    most 16 bits when n_samples < 65537. Random numbers of a node depend on a key that comes from its
    parent's: results are the same for every number of threads.

    Cost: n_features sorts for the encoding, then for each tree about ``n_samples max_features depth`` steps
    of a few nanoseconds. A threshold costs O(1) for Gini with whole weights below 256, else O(n_classes).

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(200, 4))
    >>> y = x[:, 0] > x[:, 1]
    >>> forest = hforest.classic.grow(x, y, 20, rng=0)
    >>> p = hforest.tree.predict(forest, x)
    >>> bool((p.argmax(axis=1) == y).mean() > 0.98)
    True
    """
    grow_some, growth = _started(splitter="best", **locals())
    return _forest(unchecked.in_batches(grow_some, growth), growth)


def grow_extra(
    x: ArrayLike | Windows | Bins | Samples,
    y: ArrayLike,
    n_trees: int = 100,
    *,
    sample_weight: ArrayLike | None = None,
    class_weight: ClassWeight = None,
    criterion: Criterion | None = None,
    max_features: AutoFeatures = "auto",
    max_bins: int | None = None,
    categorical: ArrayLike | None = None,
    bootstrap: Bootstrap = False,
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
    """Returns a forest of extra (extremely randomized) trees.

    Parameters
    ----------
    x : (n_samples, n_features) array-like of real numbers, sparse matrix, Windows, Bins or Samples
        At least one sample. Values are finite, or NaN where missing; strides and order are free. Entries that
        a CSR or CSC matrix of SciPy does not store are 0: trees equal those of ``x.toarray()``. Bools,
        integers of up to 16 bits, float16 and float32 are computed in float32, other dtypes in float64.
        Windows are not converted; they have no NaN and no categories, and are for classification only. To
        grow several forests on one encoding, pass the result of `hforest.growth.samples`, or bins of
        `hforest.growth.encode`.
    y : (n_samples,) array-like of labels, or (n_samples,) or (n_samples, n_outputs) array-like of targets
        Labels 0 to n_classes - 1 of any integer or bool dtype; in a regression targets of any real dtype, of
        absolute value at most 1e100 and in the range of the trees' dtype. To number other labels use
        ``numpy.unique(y, return_inverse=True)[1]``.
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
    max_features : "auto", "sqrt", int, float or None
        Number of features sampled at a node. A float is a fraction of all features, rounded down, but at
        least one feature; "sqrt" is the square root of their number; "auto" is "sqrt", but all in a
        regression; None is all. If all sampled features are constant in the node, sampling continues until
        one is not.
    max_bins : int, optional
        Maximum number of bins of a feature, 1 to 256. Bins are made once for all trees; a feature of at most
        max_bins distinct values is exact. Must be None for Bins and Samples, which have their own. A
        threshold lies between the bins of the least and the greatest value; by default each value has a bin
        of its own.
    categorical : (n_features,) array-like of bools, or array-like of feature numbers, optional
        Features that are categories: whole numbers 0 to 65535, or NaN. Their splits send a set of categories
        to one side. Must be None for Bins and Samples, which have their own. A random split sends each
        category left or right with probability 1/2.
    bootstrap : bool, "poisson" or (n_trees, n_samples) array of integers
        Whether each tree draws n_samples samples with replacement. "poisson" takes the in-bag counts of
        `hforest.growth.poisson_counts`. An array has in-bag counts, such as those of
        `hforest.growth.bootstrap_counts`, with one above 0 in each row. By default every tree has every
        sample.
    max_depth : int, optional
        Maximum depth of a leaf; 0 is a single leaf. By default trees grow until leaves are pure.
    min_samples_split : int
        A node with fewer samples is a leaf. A sample that was drawn more than once counts once.
    min_samples_leaf : int
        Minimum number of samples on each side of a split. A sample that was drawn more than once counts once.
        A random threshold that leaves fewer on a side is not used.
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
        Forest in the dtype in which x is computed, float32 or float64; leaf values are shares of the classes,
        or mean targets. It predicts rows of any real dtype, which are converted to its own.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        Wrong kind, dtype or device; wrong shape, infinity, a number out of range, categories other than whole
        numbers 0 to 65535, negative weights or none above 0; labels out of range; not enough memory.

    Notes
    -----
    Geurts, Ernst and Wehenkel 2006: a node samples features as `grow` does. For each one that is not constant
    it draws a threshold, uniform between the least and greatest value in the node. It takes the split of
    lowest ``sum_b W_b H(b)``; of equal ones the feature sampled first wins. Missing values go left or right
    with probability 1/2. With ``max_features=1`` these are the trees of `grow_random`. Cost: for each tree
    about ``n_samples max_features depth`` steps; nothing is sorted after the encoding.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(200, 4))
    >>> y = x[:, 0] > x[:, 1]
    >>> forest = hforest.classic.grow_extra(x, y, 20, rng=0)
    >>> bool((hforest.tree.predict(forest, x).argmax(axis=1) == y).all())
    True
    """
    grow_some, growth = _started(splitter="random", **locals())
    return _forest(unchecked.in_batches(grow_some, growth), growth)


def grow_random(
    x: ArrayLike | Windows | Bins | Samples,
    y: ArrayLike,
    n_trees: int = 100,
    *,
    sample_weight: ArrayLike | None = None,
    class_weight: ClassWeight = None,
    categorical: ArrayLike | None = None,
    bootstrap: Bootstrap = False,
    max_depth: int | None = None,
    min_samples_split: int = 2,
    min_samples_leaf: int = 1,
    min_weight_fraction_leaf: float = 0.0,
    task: Task = "classification",
    n_classes: int | None = None,
    first_tree: int = 0,
    progress: Progress = None,
    rng: Rng = None,
) -> Forest:
    """Returns a forest of completely random trees.

    Parameters
    ----------
    x : (n_samples, n_features) array-like of real numbers, sparse matrix, Windows, Bins or Samples
        At least one sample. Values are finite, or NaN where missing; strides and order are free. Entries that
        a CSR or CSC matrix of SciPy does not store are 0: trees equal those of ``x.toarray()``. Bools,
        integers of up to 16 bits, float16 and float32 are computed in float32, other dtypes in float64.
        Windows are not converted; they have no NaN and no categories, and are for classification only. To
        grow several forests on one encoding, pass the result of `hforest.growth.samples`, or bins of
        `hforest.growth.encode`.
    y : (n_samples,) array-like of labels, or (n_samples,) or (n_samples, n_outputs) array-like of targets
        Labels 0 to n_classes - 1 of any integer or bool dtype; in a regression targets of any real dtype, of
        absolute value at most 1e100 and in the range of the trees' dtype. To number other labels use
        ``numpy.unique(y, return_inverse=True)[1]``. y decides when a node is pure, and determines the leaf
        values.
    n_trees : int
        Number of trees, 1 to 2**20.
    sample_weight : (n_samples,) array-like, optional
        Weights of the samples, 0 to 1e100, not all 0. The largest is at most 2e90 times the smallest above 0.
        A sample of weight 0 does not count.
    class_weight : "balanced", mapping, or (n_classes,) array-like, optional
        Factors of the sample weights of each class. Classes that a mapping omits have factor 1; "balanced"
        gives all classes that occur the same total weight.
    categorical : (n_features,) array-like of bools, or array-like of feature numbers, optional
        Features that are categories: whole numbers 0 to 65535, or NaN. Their splits send a set of categories
        to one side. Must be None for Bins and Samples, which have their own. A random split sends each
        category left or right with probability 1/2.
    bootstrap : bool, "poisson" or (n_trees, n_samples) array of integers
        Whether each tree draws n_samples samples with replacement. "poisson" takes the in-bag counts of
        `hforest.growth.poisson_counts`. An array has in-bag counts, such as those of
        `hforest.growth.bootstrap_counts`, with one above 0 in each row. By default every tree has every
        sample.
    max_depth : int, optional
        Maximum depth of a leaf; 0 is a single leaf. By default trees grow until leaves are pure.
    min_samples_split : int
        A node with fewer samples is a leaf. A sample that was drawn more than once counts once.
    min_samples_leaf : int
        Minimum number of samples on each side of a split. A sample that was drawn more than once counts once.
        A node whose random split leaves fewer on a side is a leaf.
    min_weight_fraction_leaf : float
        Minimum weight on each side of a split, as a fraction of the tree's weight, 0 to 0.5. A node whose
        random split leaves less on a side is a leaf.
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
        Forest in the dtype in which x is computed, float32 or float64; leaf values are shares of the classes,
        or mean targets. It predicts rows of any real dtype, which are converted to its own.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        Wrong kind, dtype or device; wrong shape, infinity, a number out of range, categories other than whole
        numbers 0 to 65535, negative weights or none above 0; labels out of range; not enough memory.

    Notes
    -----
    Zhou and Feng 2017 (gcForest), whose cascades Zhang 2017 adopts: a node samples one of the features that
    are not constant in it, and a threshold that is uniform between its least and greatest value there. Cost:
    for each tree about ``n_samples depth`` steps.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(200, 4))
    >>> y = x[:, 0] > x[:, 1]
    >>> forest = hforest.classic.grow_random(x, y, 20, rng=0)
    >>> bool((hforest.tree.predict(forest, x).argmax(axis=1) == y).all())
    True
    """
    return grow_extra(max_features=1, **locals())
