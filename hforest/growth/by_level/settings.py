"""Settings of a growth, the same for all parts."""

from typing import Any, NamedTuple

import numpy as np

from ...core import check, supervised
from ...core.aliases import ArrayLike, AutoFeatures, Bootstrap, Criterion, Rng, Task
from ...core.projections import Distribution, check_distribution, check_projections


class Settings(NamedTuple):
    """Settings of a growth, made by `check_settings`."""

    task: Task
    n_classes: int | None
    criterion: int
    max_features: Any
    max_bins: int
    categorical: Any
    bootstrap: str
    """ "poisson", "none" or "counts"."""
    limits: supervised.Limits
    n_trees: int
    first_tree: int
    max_gathered: int | None
    distribution: Distribution | None
    """Distribution of projections; None: splits by single features."""
    n_projections: int
    seed: int
    """Seed of 64 bits of all random numbers."""


def check_settings(
    n_trees: int = 100,
    *,
    criterion: Criterion | None = None,
    max_features: AutoFeatures = "auto",
    max_bins: int = 256,
    categorical: ArrayLike | None = None,
    bootstrap: Bootstrap = "poisson",
    max_depth: int | None = None,
    min_samples_split: int = 2,
    min_samples_leaf: int = 1,
    min_weight_fraction_leaf: float = 0.0,
    min_impurity_decrease: float = 0.0,
    task: Task = "classification",
    n_classes: int | None = None,
    distribution: Distribution | None = None,
    n_projections: int | None = None,
    max_gathered: int | None = None,
    first_tree: int = 0,
    rng: Rng = None,
) -> Settings:
    """Returns settings after the checks that need no samples.

    Parameters
    ----------
    n_trees : int
        Number of trees, 1 to 2**20.
    criterion : "gini", "entropy" or "squared_error", optional
        Impurity; by default "gini", in a regression "squared_error".
    max_features : "auto", "sqrt", int, float or None
        Number of features sampled at a node. A float is a fraction of all features, rounded down, but at
        least one feature; "sqrt" is the square root of their number; "auto" is "sqrt", but all in a
        regression; None is all. If all sampled features are constant in the node, sampling continues until
        one is not.
    max_bins : int
        1 to 256: thresholds lie between at most max_bins bins of each feature, which are the same on all
        workers. A feature of at most max_bins distinct values is exact. Others have bins of about equal
        numbers of rows. Up to 131072 rows all are used to make bins; of more rows about as many are sampled
        by their numbers.
    categorical : (n_features,) array-like of bools, or array-like of feature numbers, optional
        Features that are categories: whole numbers 0 to 65535, or NaN. Their splits send a set of categories
        to one side.
    bootstrap : "poisson", bool or (n_trees, n_rows) array of integers
        "poisson" takes the in-bag counts of `hforest.growth.poisson_counts`; False gives every tree each row
        once. An array has the in-bag counts of these rows. True is refused: no worker can draw from all rows.
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
    distribution : Distribution, optional
        Distribution of random projections of features, such as `hforest.project.sparse_distribution`, which
        nodes compare in place of single features. Then max_features is "auto" and categorical None.
    n_projections : int, optional
        Number of projections sampled at a node, 1 to 2**20; by default as in `hforest.manifold.grow`.
    max_gathered : int, optional
        Nodes of at most max_gathered rows are gathered on one worker, which finishes them; by default where
        rows cause less traffic than sums. The trees of a classification do not depend on it.
    first_tree : int
        Number of the first tree, 0 or more; first_tree + n_trees is at most 2**20. Calls with the same
        arguments and the same int as rng grow ranges of one forest: its trees are bit-identical for any
        division into ranges. `hforest.tree.join` joins them. Row m of in-bag counts belongs to tree
        first_tree + m.
    rng : None, int or numpy.random.Generator
        Source of random numbers; the same int gives the same result in every call.

    Returns
    -------
    Settings
        Argument of `grow`.

    Raises
    ------
    TypeError, ValueError
        A setting of a wrong type, or out of range.
    """
    check.choice("task", task, supervised.TASKS)
    n_trees, first_tree = check.tree_range(n_trees, first_tree)
    drawn = "counts"
    if isinstance(bootstrap, str):
        drawn = str(check.choice("bootstrap", bootstrap, ("poisson",)))
    elif isinstance(bootstrap, bool | np.bool_):
        remedy = 'pass "poisson": no worker can draw from all rows'
        check.require(not bootstrap, "bootstrap", '"poisson", False or in-bag counts', bootstrap, remedy)
        drawn = "none"
    if task == "classification" and n_classes is not None:
        n_classes = check.integer("n_classes", n_classes, 1, supervised.MAX_CLASSES)
    distribution, n_projections = _projections(distribution, n_projections, max_features, categorical, task)
    columns: Any = categorical
    if columns is not None and np.ndim(columns) == 1:
        columns = tuple(np.asarray(columns).tolist())
    return Settings(
        task, n_classes, supervised.criterion(criterion, task), check.scalar(max_features),
        check.integer("max_bins", max_bins, 1, 256), columns, drawn,
        supervised.limits(
            max_depth, min_samples_split, min_samples_leaf, min_impurity_decrease, min_weight_fraction_leaf
        ),
        n_trees, first_tree,
        None if max_gathered is None else check.integer("max_gathered", max_gathered, 0, check.MAX_COUNT),
        distribution, n_projections, check.seed(rng),
    )  # fmt: skip


def _projections(
    distribution: Any, n_projections: Any, max_features: Any, categorical: Any, task: Task
) -> tuple[Distribution | None, int]:
    if distribution is None:
        check.require(
            n_projections is None, "n_projections", "None without a distribution", repr(n_projections),
            "pass, for example, distribution=hforest.project.sparse_distribution(n_features)", TypeError,
        )  # fmt: skip
        return None, 0
    distribution = check_distribution(distribution)
    check.require(
        isinstance(max_features, str) and max_features == "auto", "max_features",
        '"auto" with a distribution', repr(max_features), "pass n_projections instead", TypeError,
    )  # fmt: skip
    check.require(
        categorical is None, "categorical", "None with a distribution", type(categorical).__name__,
        "encode categories as indicators: projections add numbers", TypeError,
    )  # fmt: skip
    return distribution, check_projections(distribution, n_projections, task)
