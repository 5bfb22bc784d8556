"""Settings of a growth by rows, the same for all parts."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np

from ...core import check, supervised
from ...core.aliases import ArrayLike, AutoFeatures, Bootstrap, Task
from ...core.keywords import shared
from ...core.projections import Distribution
from ..growing import grow
from ..settings import TreeSettings, check_candidates, check_limits


class Settings(TreeSettings, total=False):
    """Keyword arguments of functions that grow by rows; others than these are those of `hforest.grow`.

    Attributes
    ----------
    bootstrap : "poisson", bool or (n_trees, n_rows) array of integers
        As in `hforest.grow`; an array has the in-bag counts of this worker's rows. True is refused: no worker
        can draw from all rows.
    max_bins : int
        1 to 256: thresholds lie between at most max_bins bins of each feature, which are the same on all
        workers. A feature of at most max_bins distinct values is exact. Others have bins of about equal
        numbers of rows. Up to 131072 rows all are used to make bins; of more rows about as many are sampled
        by their numbers.
    categorical : (n_features,) array-like of bools, or array-like of feature numbers, optional
        Features that are categories, as in `hforest.samples`.
    max_gathered : int, optional
        Nodes of at most max_gathered rows are gathered on one worker, which finishes them; by default where
        rows cause less traffic than sums. Trees on features do not depend on it.
    """

    projections: Distribution | None
    n_projections: int | None
    max_features: AutoFeatures
    bootstrap: Bootstrap
    monotonic_cst: ArrayLike | None
    max_bins: int
    categorical: ArrayLike | None
    max_gathered: int | None


by_rows = shared(Settings, grow, bootstrap="poisson", max_bins=256, categorical=None, max_gathered=None)
"""Decorator of functions that take Settings."""


class Checked(NamedTuple):
    """Settings after the checks that need no samples."""

    task: Task
    n_classes: int | tuple[int, ...] | None
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
    projections: Distribution | None
    """Distribution of projections; None: splits by single features."""
    n_projections: int
    monotonic: Any
    """Signs of monotonic constraints: numbers by feature, or None."""
    seed: int
    """Seed of 64 bits of all random numbers."""


@by_rows
def check_settings(n_trees: int = 100, **settings: Unpack[Settings]) -> Checked:
    """Returns settings after the checks that need no samples.

    Parameters: see `hforest.scale.grow_by_rows`.
    """
    task, bootstrap, columns = settings["task"], settings["bootstrap"], settings["categorical"]
    n_classes: Any = settings["n_classes"]
    max_gathered = settings["max_gathered"]
    check.choice("task", task, supervised.TASKS)
    n_trees, first_tree = check.tree_range(n_trees, settings["first_tree"])
    drawn = "counts"
    if isinstance(bootstrap, str):
        drawn = str(check.choice("bootstrap", bootstrap, ("poisson",)))
    elif isinstance(bootstrap, bool | np.bool_):
        remedy = 'pass "poisson": no worker can draw from all rows'
        check.require(not bootstrap, "bootstrap", '"poisson", False or in-bag counts', bootstrap, remedy)
        drawn = "none"
    if task == "classification" and n_classes is not None:
        sizes = n_classes if isinstance(n_classes, Sequence) else [n_classes]
        checked = [check.integer("n_classes", size, 1, supervised.MAX_CLASSES) for size in sizes]
        n_classes = tuple(checked) if isinstance(n_classes, Sequence) else checked[0]
    max_features = settings["max_features"]
    projections, n_projections = check_candidates(
        settings["projections"], settings["n_projections"], max_features, task, settings["monotonic_cst"]
    )
    monotonic = settings["monotonic_cst"]
    if monotonic is not None:
        check.on_cpu(monotonic_cst=monotonic)
        monotonic = supervised.real("monotonic_cst", monotonic).tolist()
    check.require(
        projections is None or columns is None, "categorical", "None with projections",
        type(columns).__name__, "encode categories as indicators: projections add numbers", TypeError,
    )  # fmt: skip
    if columns is not None and np.ndim(columns) == 1:
        columns = tuple(np.asarray(columns).tolist())
    criterion = supervised.criterion(settings["criterion"], task, grown=True)
    return Checked(
        task, n_classes, criterion, check.scalar(max_features),
        check.integer("max_bins", settings["max_bins"], 1, 256), columns, drawn, check_limits(settings),
        n_trees, first_tree,
        None if max_gathered is None else check.integer("max_gathered", max_gathered, 0, check.MAX_COUNT),
        projections, n_projections, monotonic, check.seed(settings["rng"]),
    )  # fmt: skip
