"""Out-of-bag predictions of honest forests: posteriors of classes or means of targets, and who votes."""

from typing import NamedTuple

import numpy as np

from .. import tree
from ..core import check, supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray
from ..tree import Forest
from ..tree.refitting import class_counts, target_sums, value_rows
from .honest import HonestCounts

WEIGHTINGS = ("counts", "shares")
_ENTRIES = 1 << 21
"""Numbers of leaves that are added up at a time."""


class Posterior(NamedTuple):
    """What out-of-bag trees say of each row."""

    p: FloatArray
    """(n_samples, n_classes) float64: shares of the classes, which sum to 1, or (n_samples, n_outputs) means
    of targets; NaN in the rows without a vote."""
    votes: IntArray
    """(n_samples,) int64: the number of trees that vote for each row."""


def posterior(
    forest: Forest,
    x: ArrayLike,
    y: ArrayLike,
    counts: HonestCounts,
    *,
    task: str = "classification",
    n_classes: int | None = None,
    weighting: str = "counts",
) -> Posterior:
    """Returns out-of-bag posteriors of an honest forest, and the number of trees that vote for each row.

    Parameters
    ----------
    forest : Forest
        Grown with ``bootstrap=counts.structure``, by any function; its leaf values are not read.
    x : (n_samples, n_features) array-like of real numbers
        The rows that it was grown on; converted to the dtype of the forest.
    y : (n_samples,) array-like of labels, or (n_samples,) or (n_samples, n_outputs) array-like of targets
        Labels 0 to n_classes - 1 of any integer or bool dtype, or targets of any real dtype in a regression,
        of absolute value at most 1e100.
    counts : HonestCounts
        From `honest_counts`. ``HonestCounts(c, c)`` with in-bag counts c makes the out-of-bag posteriors of
        an ordinary forest.
    task : "classification" or "regression"
        Whether y holds labels or targets.
    n_classes : int, optional
        Number of classes, at most 2**20. By default the largest label plus 1, and every class must occur.
        Classification only.
    weighting : "counts" or "shares"
        "counts" adds up the rows in the leaves of all trees and normalises once, so that a leaf of many rows
        counts more; "shares" is the mean of the shares, or means, of the leaves.

    Returns
    -------
    Posterior
        Of float64.

    Raises
    ------
    TypeError, ValueError, IndexError
        As for `hforest.tree.apply`; CuPy arrays, counts of another shape, labels or targets out of range.

    Notes
    -----
    A tree votes for a row that is in neither of its parts, and that reaches a leaf which holds rows of its
    second part: ``sum_m n_m(x, k) / sum_m sum_k n_m(x, k)`` over these trees, where n_m(x, k) is how many
    rows of class k the leaf of x holds. A row for which no tree votes has NaN: more trees, or a smaller
    `in_bag`, leave fewer of them. With "counts" and labels all sums are of whole numbers, and exact. Results
    have the same bits at every number of threads. Cost: that of `hforest.tree.apply`, and a pass over the
    rows and classes for each tree.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(200, 3)); y = x[:, 0] > 0
    >>> counts = hforest.stats.honest_counts(y, 50, rng=0)
    >>> forest = hforest.classic.grow(x, y, 50, bootstrap=counts.structure, rng=0)
    >>> p, votes = hforest.stats.posterior(forest, x, y, counts)
    >>> bool((p.argmax(axis=1) == y).mean() > 0.9), int(votes.min()) > 0
    (True, True)
    """
    check.choice("weighting", weighting, WEIGHTINGS)
    check.on_cpu(x=x, y=y)
    tree.check(forest)
    check.on_cpu(**{"forest.feature": forest.feature})
    leaf = tree.apply(forest, x)
    n, n_trees = leaf.shape
    goal = supervised.target(y, n, task, n_classes)
    return posterior_of(forest, leaf, goal, checked_counts(counts, n_trees, n), weighting)


def checked_counts(counts: HonestCounts, n_trees: int, n: int | None = None) -> HonestCounts:
    """The counts of n rows, as int32; None for n: of any number."""
    check.instance(
        "counts", counts, HonestCounts, "a hforest.stats.HonestCounts", "pass the result of honest_counts"
    )
    arrays = {f"counts.{name}": a for name, a in counts._asdict().items()}
    check.on_cpu(**arrays)
    if n is None:
        n = (*np.shape(counts.structure), 0, 0)[1]
    return HonestCounts(*(supervised.in_bag_counts(name, a, n_trees, n) for name, a in arrays.items()))


def posterior_of(
    forest: Forest, leaf: IntArray, goal: supervised.Target, counts: HonestCounts, weighting: str
) -> Posterior:
    """As `posterior`, of the leaves of the rows; nothing is checked."""
    n, n_trees = leaf.shape
    if goal.labels is not None:
        sums = class_counts(forest, leaf, counts.leaf, goal.labels, goal.n_outputs)
        total = sums.sum(axis=1)
    else:
        total, sums = target_sums(forest, leaf, counts.leaf, goal.targets)
    if weighting == "shares":
        sums = np.divide(sums, total[:, None], out=np.zeros(sums.shape), where=total[:, None] > 0)
        total = (total > 0).astype(np.int64)
    # One more row takes what does not vote.
    none = len(total)
    sums = np.concatenate([sums, np.zeros((1, sums.shape[1]), sums.dtype)])
    total = np.concatenate([total, np.zeros(1, np.int64)])
    above, below, votes = (
        np.zeros((n, sums.shape[1]), sums.dtype),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
    )
    step = max(1, _ENTRIES // max(1, n * sums.shape[1]))
    for first in range(0, n_trees, step):
        trees = np.arange(first, min(first + step, n_trees))
        out = (counts.structure[trees] == 0) & (counts.leaf[trees] == 0)
        rows = np.where(out, value_rows(forest, leaf[:, trees].T, trees[:, None]), none)
        if sums.dtype == np.int64:
            above += sums[rows].sum(axis=0)
        else:
            for of_tree in sums[rows]:  # in the order of the trees, so that sums don't depend on the step
                above += of_tree
        below += total[rows].sum(axis=0)
        votes += (total[rows] > 0).sum(axis=0)
    p = np.divide(above, below[:, None], out=np.full(above.shape, np.nan), where=below[:, None] > 0)
    return Posterior(p, votes)
