"""How trees grow: the same settings for all parts."""

from typing import Any, NamedTuple

import numpy as np

from ...core import check, supervised
from ...core.aliases import ArrayLike, IntArray, Rng
from ...core.projections import MAX_PROJECTIONS, Distribution, check_distribution, default_projections


class Settings(NamedTuple):
    """How trees grow, from `check_settings`."""

    task: str
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
    """Of projections; None: splits by single features."""
    n_projections: int
    seed: int
    """Of 64 bits: where all random numbers come from."""


def check_settings(
    n_trees: int = 100,
    *,
    criterion: str | None = None,
    max_features: int | float | str | None = "auto",
    max_bins: int = 256,
    categorical: ArrayLike | None = None,
    bootstrap: bool | str | IntArray = "poisson",
    max_depth: int | None = None,
    min_samples_split: int = 2,
    min_samples_leaf: int = 1,
    min_weight_fraction_leaf: float = 0.0,
    min_impurity_decrease: float = 0.0,
    task: str = "classification",
    n_classes: int | None = None,
    distribution: Distribution | None = None,
    n_projections: int | None = None,
    max_gathered: int | None = None,
    first_tree: int = 0,
    rng: Rng = None,
) -> Settings:
    """Returns settings that are checked, as far as they can be without samples.

    Parameters
    ----------
    n_trees, criterion, max_features, max_bins, categorical, bootstrap
        As `hforest.scale.grow_by_rows` takes them.
    max_depth, min_samples_split, min_samples_leaf, min_weight_fraction_leaf, min_impurity_decrease
        Likewise.
    task, n_classes, distribution, n_projections, max_gathered, first_tree, rng
        Likewise.

    Returns
    -------
    Settings
        For `grow`.

    Raises
    ------
    TypeError, ValueError
        A setting of another type, or out of its range.
    """
    check.choice("task", task, supervised.TASKS)
    n_trees, first_tree = check.tree_range(n_trees, first_tree)
    drawn = "counts"
    if isinstance(bootstrap, str):
        drawn = str(check.choice("bootstrap", bootstrap, ("poisson",)))
    elif isinstance(bootstrap, bool | np.bool_):
        remedy = 'no worker draws from all rows: pass "poisson"'
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
    distribution: Any, n_projections: Any, max_features: Any, categorical: Any, task: str
) -> tuple[Distribution | None, int]:
    if distribution is None:
        check.require(
            n_projections is None, "n_projections", "None without a distribution", "some",
            "pass such as distribution=hforest.project.sparse_distribution(n_features)", TypeError,
        )  # fmt: skip
        return None, 0
    distribution = check_distribution(distribution)
    check.require(
        isinstance(max_features, str) and max_features == "auto", "max_features",
        '"auto" with a distribution', "another", "pass n_projections instead", TypeError,
    )  # fmt: skip
    check.require(
        categorical is None, "categorical", "None with a distribution", "some",
        "projections add numbers: encode categories as indicators", TypeError,
    )  # fmt: skip
    if n_projections is None:
        return distribution, default_projections(distribution, task)
    return distribution, check.integer("n_projections", n_projections, 1, MAX_PROJECTIONS)
