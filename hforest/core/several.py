"""Several labels a sample: indicators of their classes as targets.

The Gini impurity of a label is the sum of the variances of the indicators of its classes, so a tree with the
smallest sum of the impurities of all labels is a regression tree on these indicators. Its entropy is a
function of their sums, too (growth/units.h). Their means in a leaf are the shares of the classes.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from . import check, scores
from .aliases import ArrayLike, Classes, IntArray, Task
from .dispatch import array_module
from .supervised import MAX_CLASSES, MAX_WEIGHT, TASKS, Target, as_given, labels, target

__all__ = ["CRITERIA", "check_labels", "labels_of", "target_or_several"]


def target_or_several(
    y: ArrayLike, n: int, task: Task, n_classes: Classes, most: float = MAX_WEIGHT
) -> Target:
    """Returns what `supervised.target` returns, and for labels (n_samples, n_labels) their indicators."""
    if check.choice("task", task, TASKS) == "classification":
        given = as_given("y", y)
        if given.ndim == 2 and given.shape[1] > 1:
            return _indicators(check_labels(given, n, n_classes), n)
    return target(y, n, task, n_classes, most)


CRITERIA = {scores.GINI: scores.SQUARED_ERROR, scores.ENTROPY: scores.LABEL_ENTROPY}
"""Number of the criterion of indicators by that of the criterion of labels."""


def check_labels(y: ArrayLike, n: int, n_classes: Classes) -> list[tuple[IntArray, int]]:
    """Returns the labels (n_samples,) and the number of classes of each label of `y`."""
    y = as_given("y", y)
    n_labels = y.shape[1] if y.ndim == 2 else 1
    if n_labels <= 1:
        return [labels("y", y, n, n_classes, or_targets=True)]
    check.require(
        len(y) == n, "y", f"shape (n_samples, n_labels) with n_samples = {n}", tuple(y.shape),
        "pass a row for each sample",
    )  # fmt: skip
    sizes = list(n_classes) if isinstance(n_classes, Sequence) else [n_classes] * n_labels
    check.require(
        len(sizes) == n_labels, "n_classes", f"an int, or {n_labels} ints", f"{len(sizes)} ints",
        "pass the number of classes of each label",
    )  # fmt: skip
    return [labels(f"y[:, {j}]", y[:, j], n, size, or_targets=True) for j, size in enumerate(sizes)]


def _indicators(columns: list[tuple[IntArray, int]], n: int) -> Target:
    start = np.cumsum([0, *(size for _, size in columns)], dtype=np.int64)
    total = int(start[-1])
    check.require(
        total <= MAX_CLASSES, "y", "at most 2**20 classes of all labels", total, "grow forests of some labels"
    )
    xp = array_module(columns[0][0])
    with check.memory("y", "indicators of classes", 8 * n * total):
        indicators = xp.zeros((n, total))
    for (column, _), first in zip(columns, start.tolist(), strict=False):
        indicators[xp.arange(n), first + column.astype(np.int64)] = 1.0
    return Target(None, indicators, total, xp.asarray(start))


def labels_of(of: Target) -> list[tuple[IntArray, int]]:
    """Returns the labels (n_samples,) and the number of classes of each label."""
    if of.class_start is None or of.targets is None:
        return [] if of.labels is None else [(of.labels, of.n_outputs)]
    start = of.class_start.tolist()
    return [(of.targets[:, low:high].argmax(axis=1), high - low) for low, high in pairwise(start)]
