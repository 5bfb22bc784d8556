"""Settings that all functions that grow forests share, as one record: checked once."""

from typing import Any, NamedTuple

from ..core import check, supervised
from ..core.aliases import ArrayLike, IntArray, Progress, Rng
from ..core.progress import check_progress
from .checks import SPLITTERS, check_bootstrap, check_learned, check_windows_task
from .samples import Samples
from .trees import Learned


class Growth(NamedTuple):
    """How trees grow."""

    samples: Samples
    learned: Learned
    n_trees: int
    first_tree: int
    """Number of the first tree."""
    splitter: str
    bootstrap: bool | str | IntArray
    """A bool, "poisson", or in-bag counts."""
    seed: int
    progress: Progress


def check_growth(
    samples: Samples,
    y: ArrayLike,
    n_trees: int,
    *,
    sample_weight: ArrayLike | None,
    class_weight: Any = None,
    criterion: str | None,
    splitter: str,
    bootstrap: bool | str | IntArray,
    max_depth: int | None,
    min_samples_split: int,
    min_samples_leaf: int,
    min_weight_fraction_leaf: float,
    min_impurity_decrease: float,
    task: str,
    n_classes: int | None,
    first_tree: int,
    progress: Progress,
    rng: Rng,
) -> Growth:
    """Settings as `hforest.classic.grow` and `grow` explain them."""
    check_progress(progress)
    n_trees = check.integer("n_trees", n_trees, 1, check.MAX_TREES)
    first_tree = check.first_tree(first_tree, n_trees)
    limits = supervised.limits(
        max_depth, min_samples_split, min_samples_leaf, min_impurity_decrease, min_weight_fraction_leaf
    )
    check_windows_task(samples.are_windows, task)
    check.choice("splitter", splitter, SPLITTERS)
    learned = check_learned(
        y, samples.numbers, len(samples), task=task, n_classes=n_classes, sample_weight=sample_weight,
        class_weight=class_weight, criterion=criterion, limits=limits, dtype=samples.dtype,
    )  # fmt: skip
    bootstrap = check_bootstrap(bootstrap, n_trees, len(samples), samples.numbers)
    return Growth(samples, learned, n_trees, first_tree, splitter, bootstrap, check.seed(rng), progress)
