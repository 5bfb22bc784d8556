"""Out-of-bag predictions of honest forests: posteriors of classes or means of targets, and votes."""

from typing import NamedTuple

import numpy as np

from ..core import check, notebooks, supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray, Task, Weighting
from ..core.bootstraps import of_groups
from ..tree import Forest
from .honest import HonestCounts
from .problem import applied, members, outputs, sums_of_leaves

WEIGHTINGS = ("counts", "shares")


class Posterior(NamedTuple):
    """Result of `posterior`: predictions of each row by its out-of-bag trees."""

    p: FloatArray
    """(n_samples, n_classes) float64: shares of the classes, which sum to 1, or (n_samples, n_outputs) means
    of targets; NaN in the rows without a vote."""
    votes: IntArray
    """(n_samples,) int64: the number of trees that vote for each row."""

    @notebooks.shown_by
    def _repr_html_(self) -> notebooks.Rows:
        return [
            ("Posterior", ""),
            ("rows", len(self.votes)),
            ("outputs", self.p.shape[1]),
            ("predictions", notebooks.span(self.p)),
            ("votes of a row", notebooks.span(self.votes)),
            ("rows without a vote", int((self.votes == 0).sum())),
        ]


def posterior(
    forest: Forest,
    x: ArrayLike,
    y: ArrayLike,
    counts: HonestCounts,
    *,
    sample_weight: ArrayLike | None = None,
    task: Task = "classification",
    n_classes: int | None = None,
    weighting: Weighting = "counts",
    groups: ArrayLike | None = None,
) -> Posterior:
    """Returns out-of-bag posteriors of an honest forest, and the number of trees that vote for each row.

    Parameters
    ----------
    forest : Forest
        Forest grown with ``bootstrap=counts.structure`` by any function; its leaf values are not read.
    x : (n_samples, n_features) array-like of real numbers
        Training rows of the forest; converted to its dtype.
    y : (n_samples,) array-like of labels, or (n_samples,) or (n_samples, n_outputs) array-like of targets
        Labels 0 to n_classes - 1 of any integer or bool dtype, or targets of any real dtype in a regression,
        of absolute value at most 1e100.
    counts : HonestCounts
        Result of `honest_counts`. For out-of-bag posteriors of an ordinary forest pass ``HonestCounts(c, c)``
        with its in-bag counts c.
    sample_weight : (n_samples,) array-like, optional
        Weights of the rows in leaves, 0 to 1e100, not all 0: a row counts as its weight.
    weighting : "counts" or "shares"
        "counts" sums the rows in the leaves of all trees and normalises once, so leaves with more rows have
        more weight. "shares" averages the class shares, or means, of the leaves.
    groups : (n_samples,) array-like of int or str, optional
        As in `hforest.tree.out_of_bag`: trees that use no row of a group vote for its rows.

    Returns
    -------
    Posterior
        Of float64.

    Raises
    ------
    ValueError
        As from `hforest.tree.apply`; counts of another shape.

    Notes
    -----
    A tree votes for a row that it does not use, if the row reaches a leaf that holds rows of ``counts.leaf``.
    The posterior is ``sum_m n_m(x, k) / sum_m sum_k n_m(x, k)`` over these trees, where n_m(x, k) is the
    number (or weight) of rows of class k in the leaf of x. Rows without a vote are NaN; more trees, or a
    smaller `in_bag`, reduce their number. Without weights, with "counts" and labels all sums are of integers,
    and exact. Results are bit-identical for any number of threads. Cost: that of `hforest.tree.apply`, and a
    pass over the rows and classes for each tree.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(200, 3)); y = x[:, 0] > 0
    >>> counts = hforest.stats.honest_counts(y, 50, rng=0)
    >>> forest = hforest.grow(x, y, 50, bootstrap=counts.structure, rng=0)
    >>> p, votes = hforest.stats.posterior(forest, x, y, counts)
    >>> bool((p.argmax(axis=1) == y).mean() > 0.9), int(votes.min()) > 0
    (True, True)
    """
    check.choice("weighting", weighting, WEIGHTINGS)
    forest, leaf, target = applied(forest, x, y, task, n_classes)
    n, n_trees = leaf.shape
    weight = None
    if sample_weight is not None:
        weight = supervised.sample_weight(sample_weight, target.y)
        weight, _ = supervised.scaled_weight(weight, target.targets, weight.dtype, n)
    drawn = checked_counts(counts, n_trees, n)
    used = None if groups is None else of_groups(np.maximum(drawn.structure, drawn.leaf), groups)
    return posterior_of(forest, leaf, target, drawn, weighting, weight, used)


def checked_counts(counts: HonestCounts, n_trees: int, n: int | None = None) -> HonestCounts:
    """Returns checked counts of n rows, as int32; None for n: of any number."""
    check.instance(
        "counts", counts, HonestCounts, "a hforest.stats.HonestCounts", "pass the result of honest_counts"
    )
    arrays = {f"counts.{name}": a for name, a in counts._asdict().items()}
    check.on_cpu(**arrays)
    if n is None:
        n = (*np.shape(counts.structure), 0, 0)[1]
    return HonestCounts(*(supervised.in_bag_counts(name, a, n_trees, n) for name, a in arrays.items()))


def posterior_of(
    forest: Forest,
    leaf: IntArray,
    target: supervised.Target,
    counts: HonestCounts,
    weighting: Weighting,
    weight: FloatArray | None = None,
    used: IntArray | None = None,
) -> Posterior:
    """Returns `posterior` from the leaves of the rows, without checks.

    used (n_trees, n_samples) is above 0 where a tree does not vote; by default where it uses the row.
    """
    if used is None:
        used = np.maximum(counts.structure, counts.leaf)
    of_leaf = sums_of_leaves(forest, leaf, counts.leaf, outputs(target), weight)
    filled = of_leaf[:, :1] > 0
    if weighting == "shares":
        of_leaf = np.divide(of_leaf, of_leaf[:, :1], out=np.zeros_like(of_leaf), where=filled)
    voter = members(forest, leaf, used == 0)
    sums = voter @ of_leaf
    total = sums[:, :1]
    p = np.divide(sums[:, 1:], total, out=np.full(sums[:, 1:].shape, np.nan), where=total > 0)
    return Posterior(p, (voter @ filled[:, 0]).astype(np.int64))
