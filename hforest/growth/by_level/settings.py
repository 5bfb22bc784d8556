"""How trees grow: what a caller says, and the same once it is checked."""

from typing import Any, NamedTuple

import numpy as np

from ...core import check, supervised
from ...core.aliases import ArrayLike, IntArray, Rng
from ...core.projections import MAX_PROJECTIONS, Distribution, check_distribution, default_projections


class Settings(NamedTuple):
    """What a caller says: the arguments of `hforest.scale.grow_by_rows`, which describes them."""

    n_trees: int = 100
    criterion: str | None = None
    max_features: int | float | str | None = "auto"
    max_bins: int = 256
    categorical: ArrayLike | None = None
    bootstrap: bool | str | IntArray = "poisson"
    max_depth: int | None = None
    min_samples_split: int = 2
    min_samples_leaf: int = 1
    min_weight_fraction_leaf: float = 0.0
    min_impurity_decrease: float = 0.0
    task: str = "classification"
    n_classes: int | None = None
    distribution: Distribution | None = None
    n_projections: int | None = None
    max_gathered: int | None = None
    first_tree: int = 0


class CheckedSettings(NamedTuple):
    """What every part is told, from `check_settings`."""

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


def check_settings(settings: Settings, *, rng: Rng = None) -> CheckedSettings:
    """Returns settings that are checked, as far as they can be without samples, and a seed.

    Parameters
    ----------
    settings : Settings
        What the caller says.
    rng : None, int or numpy.random.Generator
        Where the seed comes from.

    Returns
    -------
    CheckedSettings
        For `grow`.

    Raises
    ------
    TypeError, ValueError
        A setting of another type, or out of its range.
    """
    if not isinstance(settings, Settings):
        raise TypeError(
            f"settings: expected Settings, got {type(settings).__name__}; pass "
            "hforest.growth.by_level.Settings(n_trees)"
        )
    check.choice("task", settings.task, supervised.TASKS)
    n_trees = check.integer("n_trees", settings.n_trees, 1, check.MAX_TREES)
    bootstrap = "counts"
    if isinstance(settings.bootstrap, str):
        bootstrap = str(check.choice("bootstrap", settings.bootstrap, ("poisson",)))
    elif isinstance(settings.bootstrap, bool | np.bool_):
        if settings.bootstrap:
            raise ValueError(
                'bootstrap: expected "poisson", False or in-bag counts, got True; no worker draws from all '
                'rows: pass "poisson"'
            )
        bootstrap = "none"
    n_classes = settings.n_classes
    if settings.task == "classification" and n_classes is not None:
        n_classes = check.integer("n_classes", n_classes, 1, supervised.MAX_CLASSES)
    distribution, n_projections = _projections(settings)
    categorical: Any = settings.categorical
    if categorical is not None:
        given = np.asarray(categorical)
        categorical = tuple(given.tolist()) if given.ndim == 1 else categorical
    max_gathered = settings.max_gathered
    return CheckedSettings(
        settings.task, n_classes, supervised.criterion(settings.criterion, settings.task),
        check.scalar(settings.max_features), check.integer("max_bins", settings.max_bins, 1, 256),
        categorical, bootstrap,
        supervised.limits(
            settings.max_depth, settings.min_samples_split, settings.min_samples_leaf,
            settings.min_impurity_decrease, settings.min_weight_fraction_leaf,
        ),
        n_trees, check.first_tree(settings.first_tree, n_trees),
        None if max_gathered is None else check.integer("max_gathered", max_gathered, 0, check.MAX_COUNT),
        distribution, n_projections, check.seed(rng),
    )  # fmt: skip


def _projections(settings: Settings) -> tuple[Distribution | None, int]:
    if settings.distribution is None:
        if settings.n_projections is not None:
            raise TypeError(
                "n_projections: expected None without a distribution, got some; pass such as distribution="
                "hforest.project.sparse_distribution(n_features)"
            )
        return None, 0
    distribution = check_distribution(settings.distribution)
    if not (isinstance(settings.max_features, str) and settings.max_features == "auto"):
        raise TypeError(
            'max_features: expected "auto" with a distribution, got another; pass n_projections instead'
        )
    if settings.categorical is not None:
        raise TypeError(
            "categorical: expected None with a distribution, got some; projections add numbers: encode "
            "categories as indicators"
        )
    if settings.n_projections is None:
        return distribution, default_projections(distribution, settings.task)
    return distribution, check.integer("n_projections", settings.n_projections, 1, MAX_PROJECTIONS)
