"""Tests of independence by permuted labels: with a forest per permutation, or with one forest."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .. import growth, tree
from ..core import check, supervised
from ..core.aliases import (
    ArrayLike,
    Draw,
    FloatArray,
    IntArray,
    Progress,
    Rng,
    StatisticName,
    Task,
    Weighting,
)
from ..core.draws import normals, permutation, seed_of
from ..growth import Samples
from ..tree import Forest
from .dependence import LEAST_ROWS, centered
from .groups import Groups, Orders, checked, strata_of
from .honest import fixed_sizes, honest_counts
from .posteriors import WEIGHTINGS, posterior_of
from .problem import (
    Grower,
    PermutationTest,
    Problem,
    check_grower,
    checked_draws,
    encoded_as,
    grown,
    in_blocks,
    members,
    outputs,
    problem,
    rows_of,
    sequential,
)
from .statistics import FewVotesError, Statistic, chosen, of_rows

_PERMUTED = 1 << 22
"""Numbers of permuted labels in one matrix product."""

_DRAWS = 20
"""Honest forests that are drawn for one statistic, until one has votes for rows of different labels."""


class HonestDraws:
    """Statistics of honest forests on numbered draws of the data, 0 being the observed one; each has its own
    random numbers.
    """

    def __init__(
        self, target: supervised.Target, grow: Grower | None, statistic: StatisticName | Statistic | None,
        n_trees: int, weighting: Weighting, draw: Draw, rng: Rng, groups: IntArray | None = None,
    ) -> None:  # fmt: skip
        self.statistic: Any = chosen(statistic, target)
        self.n_trees = check.integer("n_trees", n_trees, 1, check.MAX_TREES)
        self.weighting = check.choice("weighting", weighting, WEIGHTINGS)
        self.draw = check.choice("draw", draw, ("fixed", "bootstrap"))
        check_grower(grow, target, "bootstrap", "rng")
        self.grow, self.seed, self.groups = grow, check.seed(rng), groups

    def statistic_of(self, data: Problem, number: int) -> tuple[float, int]:
        """Returns the statistic of one honest forest, and the number of rows with votes.

        A forest without votes for rows of different labels is drawn anew, at most _DRAWS times. After that a
        permutation has the statistic inf: it counts as larger than the observed one.
        """
        for attempt in range(_DRAWS):
            try:
                seed = seed_of(self.seed, 2 * number)
                return self._statistic_of(data, seed_of(seed, attempt) if attempt else seed)
            except FewVotesError:
                if number == 0 and attempt == _DRAWS - 1:
                    raise
        return np.inf, 0

    def _statistic_of(self, data: Problem, seed: int) -> tuple[float, int]:
        target = data.target
        stratum: Any = len(data.samples) if target.labels is None else target.labels
        counts = honest_counts(stratum, self.n_trees, draw=self.draw, groups=self.groups, rng=seed)
        forest = grown(self.grow, data.samples, target, self.n_trees, bootstrap=counts.structure, rng=seed)
        p = posterior_of(forest, tree.apply(forest, data.rows), target, counts, self.weighting).p
        return of_rows(self.statistic, p, target.y)


def permutation_test(
    x: ArrayLike | Samples,
    y: ArrayLike,
    *,
    statistic: StatisticName | Statistic | None = None,
    n_trees: int = 100,
    n_permutations: int = 999,
    max_exceed: int | None = 10,
    draw: Draw = "fixed",
    weighting: Weighting = "counts",
    groups: ArrayLike | None = None,
    strata: ArrayLike | None = None,
    task: Task = "classification",
    grow: Grower | None = None,
    progress: Progress = None,
    rng: Rng = None,
) -> PermutationTest:
    """Returns a p-value for dependence of y on x, from honest forests grown on permuted labels.

    Other parameters: see `honest_counts` and `posterior`.

    Parameters
    ----------
    x : (n_samples, n_features) array-like of real numbers, sparse matrix, or Samples
        Rows, encoded once for all forests. For categories or bins pass the result of `hforest.samples`.
    y : (n_samples,) array-like of labels, or (n_samples,) or (n_samples, n_outputs) array-like of targets
        Labels 0 to n_classes - 1, each of which occurs, of two classes or more; or targets of any real dtype
        in a regression.
    statistic : str or callable, optional
        Statistic of out-of-bag posteriors and labels: "information", the default, "accuracy",
        "mutual_information", and of two classes "auc", "sensitivity" or "partial_auc"; in a regression "mse",
        the default, of which the negative is used. Or a function of (p, y) that increases with dependence,
        such as functools.partial(stats.sensitivity, specificity=0.9). Rows without a vote are omitted.
    n_trees : int
        Number of trees of each forest, 1 to 2**20.
    n_permutations : int
        Maximum number of permutations; the smallest p-value is 1 / (n_permutations + 1).
    max_exceed : int or None
        Permutations end when this number of statistics is at least as large as the observed one. With None
        all are made.
    strata : (n_samples,) array-like, optional
        Labels are permuted within each stratum only: within subjects whose labels differ from row to row, or
        within sites, each with whole groups.
    grow : callable, optional
        Called as grow(x, y, n_trees=..., bootstrap=..., rng=...), with additional n_classes or task, where x
        is a Samples; returns a Forest. By default `hforest.grow`; bind settings by functools.partial.
    progress : callable or bool, optional
        Called as progress(done, n_permutations) after one or more permutations. If it returns False, the
        p-value comes from those so far. True shows a bar.

    Returns
    -------
    PermutationTest
        The p-value, the observed statistic, and the statistics of permuted labels.

    Raises
    ------
    ValueError
        Too few rows of a class for `honest_counts`; too few trees for any row to have a vote. Both are said
        before the first permutation.

    Notes
    -----
    If y does not depend on x, the observed statistic and those of permuted labels are exchangeable: each
    comes from the same procedure with its own random numbers. So the p-value is valid for any number of rows,
    columns and trees: ``P(p <= a) <= a``. Permuting labels against the posteriors of one fixed forest is not
    valid, because that forest was grown on the observed labels.

    With `groups`, of which each has one label, labels are permuted between groups, and forests are honest by
    groups. The null hypothesis is that the labels of groups are exchangeable, given all their rows.
    Rows of a group may depend on each other in any way. With `strata` it is that labels are exchangeable
    within each stratum; they may depend on it. Without both it is that all labels are, which repeated
    measurements do not satisfy: the test then rejects too often.

    Besag and Clifford 1991: with h = max_exceed statistics at least as large as the observed one after l
    permutations p is h / l, else (1 + g) / (1 + n_permutations) with g of them. Tests with large p-values end
    early. Ties count as larger. A forest with too few votes is drawn anew, with any labels; a permutation for
    which 20 forests have too few counts as larger. Cost: up to 1 + n_permutations forests.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(60, 4)); y = x[:, 0] > 0
    >>> test = hforest.stats.permutation_test(x, y, n_trees=20, n_permutations=49, rng=0)
    >>> test.p_value
    0.02
    """
    data = problem(x, y, task)
    n = len(data.samples)
    grouped = checked("groups", groups, n)
    labels = Orders(grouped, strata_of(strata, n), data.target.y)
    numbers = None if groups is None else grouped.of_row
    draws = HonestDraws(data.target, grow, statistic, n_trees, weighting, draw, rng, numbers)

    def permuted(b: int) -> tuple[float, int]:
        order = labels.order(draws.seed, 2 * b + 1) if b else slice(None)
        return draws.statistic_of(data._replace(target=rows_of(data.target, order)), b)

    return sequential(permuted, n_permutations, max_exceed, progress)


# ----------------------------------------------------------------------------------- rows split once


def neighbors(
    forest: Forest, leaf: IntArray, weighting: Weighting, groups: Groups | None = None
) -> FloatArray:
    """Returns (n, n) float64: the weight of row j in the posterior of row i, by their common leaves.

    With "counts" the number of trees in which both share a leaf, with "shares" the sum over these trees of
    one over the other rows of the leaf. The diagonal is 0: a row does not predict itself, nor its group.
    """
    member = members(forest, leaf)
    weight = member.copy()
    if weighting == "shares":
        others = member.sum(axis=0)[member.indices] - 1
        weight.data = np.divide(1.0, others, out=np.zeros(len(others)), where=others > 0)
    shared: FloatArray = (weight @ member.T).toarray()
    np.fill_diagonal(shared, 0)
    if groups is not None:
        shared[groups.of_row[:, None] == groups.of_row] = 0
    return shared


_without_labels = partial(growth.grow, splitter="random", max_features=1, bootstrap=False, min_samples_leaf=5)
"""Grows trees whose rows are split at random; leaves hold several rows, which predict each other."""


def split_rows(
    y: Any, n: int, share: float, seed: int, groups: Groups | None = None
) -> tuple[IntArray, IntArray]:
    """Returns the rows for the splits, and the others, ascending, with the same share of each class.

    Groups stay together. If one has several labels, classes are not divided separately.
    """
    if groups is not None and len(groups.first) < n:
        whole = y is not None and bool(groups.same_in_groups(y).all())
        parts = split_rows(y[groups.first] if whole else None, len(groups.first), share, seed)
        left, right = (np.flatnonzero(np.isin(groups.of_row, part)) for part in parts)
        return left, right
    stratum = np.zeros(n, np.int64) if y is None else y
    sizes = np.bincount(stratum)
    sizes = sizes[sizes > 0]
    in_structure, _ = fixed_sizes(sizes, share, 1.0)
    fits = (in_structure >= 1) & (sizes - in_structure >= 2)
    if not fits.all():
        at = int((~fits).argmax())
        raise ValueError(
            "y: expected classes with at least 1 row for the structure and 2 for the leaves, got "
            f"{in_structure[at]} and {sizes[at] - in_structure[at]}; pass more rows, or change "
            "structure_share"
        )
    order = permutation(seed, 0, n)
    order = order[np.argsort(stratum[order], kind="stable")]
    nth = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    first = nth < np.repeat(in_structure, sizes)
    return np.sort(order[first]), np.sort(order[~first])


OfOrders = Callable[[IntArray], list[float]]
"""A function statistics(orders), which returns those of labels in the order of each row of orders."""


def _of_posteriors(
    weight: FloatArray, actual: Any, values: FloatArray, function: Statistic
) -> tuple[OfOrders, int]:
    """Returns a function of permutations for statistics of posteriors, and the number of rows with votes."""
    voted = weight.sum(axis=1) > 0
    if voted.sum() < 2:
        raise ValueError(
            f"n_trees: expected leaves with several rows, got votes for {int(voted.sum())} rows; grow "
            "more trees, or bind a larger min_samples_leaf to grow"
        )
    weight = weight[voted]
    total = weight.sum(axis=1)[:, None, None]

    def statistics(orders: IntArray) -> list[float]:
        """Returns the statistics of all permutations, by one matrix product."""
        moved = values[orders].transpose(1, 0, 2).reshape(len(values), -1)
        p = (weight @ moved).reshape(len(weight), len(orders), -1) / total
        return [of_rows(function, p[:, b], actual[orders[b]][voted])[0] for b in range(len(orders))]

    return statistics, int(voted.sum())


def _correlations(weight: FloatArray, values: FloatArray) -> OfOrders:
    """Returns distance correlations of the leaves that rows share and of the values."""
    from scipy.spatial.distance import cdist

    check.require(
        len(values) >= LEAST_ROWS, "y", f"at least {LEAST_ROWS} rows for the leaves", len(values),
        "pass more rows, or lower structure_share",
    )  # fmt: skip
    # Centred distances and centred proximities differ by their sign alone.
    of_x, of_y = centered(-weight), centered(cdist(values, values))
    return lambda orders: [float((of_x * of_y[np.ix_(order, order)]).sum()) for order in orders]


def split_test(
    x: ArrayLike | Samples,
    y: ArrayLike,
    *,
    statistic: StatisticName | Statistic | None = None,
    structure_share: float = 0.5,
    n_trees: int = 100,
    n_permutations: int = 999,
    weighting: Weighting = "counts",
    groups: ArrayLike | None = None,
    strata: ArrayLike | None = None,
    task: Task = "classification",
    grow: Grower | None = None,
    progress: Progress = None,
    rng: Rng = None,
) -> PermutationTest:
    """Returns an exact p-value for dependence of y on x, from one forest grown on a part of the rows.

    Other parameters: see `permutation_test`. One forest is grown; all permutations are made. With `groups`
    both parts hold whole groups, and a row is not predicted by its own.

    Parameters
    ----------
    statistic : str or callable, optional
        As for `permutation_test`, or "distance_correlation", between common leaves of rows and labels or
        targets.
    structure_share : float
        Share of the rows of each class on which the forest is grown, 0 or more and below 1. With 0 the forest
        is grown on random normal targets instead of labels, and all rows are tested.
    grow : callable, optional
        As for `permutation_test`, but called without `bootstrap`. By default `hforest.grow`; with a
        structure_share of 0 completely random trees with min_samples_leaf=5.

    Returns
    -------
    PermutationTest
        As from `permutation_test`.

    Raises
    ------
    ValueError
        Too few rows of a class; too few trees for any row to have a vote.

    Notes
    -----
    The posterior of a row in the second part comes from the other rows of this part: ``sum_j W[i, j] 1[y[j] =
    k] / sum_j W[i, j]``, where W[i, j] is the number of trees in which both rows reach the same leaf. W
    depends only on the labels of the first part. So, if y does not depend on x, the labels of the second part
    and their permutations are exchangeable. The p-value is exact for any number of rows, columns and trees.
    Its power is less than that of `permutation_test`, since splits use only a part of the rows. A row that
    shares no leaf with another row has no vote under any permutation.

    With a structure_share of 0, W does not depend on labels, and the p-value is also exact. All rows are
    tested, so power is larger if there are few columns, all relevant. With many irrelevant columns random
    splits have no power beyond the level.

    "distance_correlation" is `distance_correlation` between two distances of rows: one minus their proximity
    by W, and the Euclidean distance of targets (or 1 if labels differ). It is the statistic of KMERF (Panda,
    Shen and Vogelstein, arXiv 1812.00029), with a forest that is independent of the permuted labels.

    Statistics that are equal up to rounding count as larger. With "counts" and labels all products are of
    integers, and exact. Cost: one forest, a product of W with the permuted labels, and 8 bytes per pair of
    rows of the second part.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(200, 4)); y = x[:, 0] > 0
    >>> hforest.stats.split_test(x, y, n_permutations=99, rng=0).p_value
    0.01
    """
    data = problem(x, y, task)
    function = chosen(statistic, data.target, "distance_correlation")
    share = check.number("structure_share", structure_share, 0.0, 1.0)
    n_trees = check.integer("n_trees", n_trees, 1, check.MAX_TREES)
    n_permutations = checked_draws(n_permutations)
    check.choice("weighting", weighting, WEIGHTINGS)
    seed, n = check.seed(rng), len(data.samples)
    grouped, of_strata = checked("groups", groups, n), strata_of(strata, n)
    if share:
        first, second = split_rows(data.target.labels, n, share, seed, grouped)
        target = rows_of(data.target, first)
    else:
        first = second = np.arange(n)
        target = supervised.Target(None, normals(seed, 0, 1, n).T, 1)
        grow = _without_labels if grow is None else grow
    check_grower(grow, target, "rng")
    rows = data.rows if isinstance(data.rows, np.ndarray) else data.rows.tocsr()
    forest = grown(grow, encoded_as(data, rows[first]), target, n_trees, rng=seed_of(seed, 1))
    with check.memory("x", "pairs of rows", 8 * len(second) ** 2):
        of_groups = grouped.some(second)
        whole = None if groups is None else of_groups
        weight = neighbors(forest, tree.apply(forest, rows[second]), weighting, whole)
    of_second = rows_of(data.target, second)
    labels = Orders(of_groups, None if of_strata is None else of_strata[second], of_second.y)
    values = outputs(of_second)
    if function is None:
        statistics, n_rows = _correlations(weight, values), len(second)
    else:
        statistics, n_rows = _of_posteriors(weight, of_second.y, values, function)
    observed = statistics(np.arange(len(second))[None])[0]

    def permuted(numbers: range) -> list[float]:
        return statistics(np.stack([labels.order(seed, 2 + b) for b in numbers]))

    step = max(1, _PERMUTED // values.size)
    share, null = in_blocks(observed, permuted, n_permutations, step, progress)
    return PermutationTest(share, observed, null, n_rows)
