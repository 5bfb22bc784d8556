"""Checked settings of all functions that grow forests, in one record."""

from typing import Any, NamedTuple

from ..core import check, supervised
from ..core.aliases import ArrayLike, Bootstrap, Criterion, IntArray, Progress, Rng, Splitter, Task
from ..core.progress import check_progress
from .checks import SPLITTERS, check_bootstrap, check_learned, check_order, check_windows_task
from .samples import Samples
from .trees import Learned


class Growth(NamedTuple):
    """Settings of a growth."""

    samples: Samples
    learned: Learned
    n_trees: int
    first_tree: int
    """Number of the first tree."""
    splitter: str
    bootstrap: Bootstrap
    """A bool, "poisson", or in-bag counts."""
    seed: int
    progress: Progress
    order: IntArray | None = None
    """(n_trees, n_samples) int32: the sample whose label or target each sample of a tree has."""


def check_growth(
    samples: Samples,
    y: ArrayLike,
    n_trees: int,
    *,
    sample_weight: ArrayLike | None,
    class_weight: Any = None,
    criterion: Criterion | None,
    splitter: Splitter,
    bootstrap: Bootstrap,
    task: Task,
    n_classes: int | None,
    first_tree: int,
    progress: Progress,
    rng: Rng,
    y_order: ArrayLike | None = None,
    **limits: Any,
) -> Growth:
    """Returns checked settings (see `hforest.classic.grow`); `limits` are those of `supervised.limits`."""
    check_progress(progress)
    n_trees, first_tree = check.tree_range(n_trees, first_tree)
    stops = supervised.limits(**limits)
    check_windows_task(samples.are_windows, task)
    check.choice("splitter", splitter, SPLITTERS)
    learned = check_learned(
        y, samples.numbers, len(samples), task=task, n_classes=n_classes, sample_weight=sample_weight,
        class_weight=class_weight, criterion=criterion, limits=stops, dtype=samples.dtype,
    )  # fmt: skip
    bootstrap = check_bootstrap(bootstrap, n_trees, len(samples), samples.numbers)
    order = check_order(y_order, n_trees, len(samples), samples.numbers, class_weight)
    seed = check.seed(rng)
    return Growth(samples, learned, n_trees, first_tree, splitter, bootstrap, seed, progress, order)
