"""Importances of features from out-of-bag rows, and their tests by permuted copies."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from .. import growth, tree
from ..core import check, notebooks, supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray, Progress, Rng, Task
from ..core.draws import orders, permutation, seed_of
from ..core.progress import reporting
from ..growth import Samples
from ..tree import Forest
from .groups import Groups, Orders, block_orders, checked
from .permutation import split_rows
from .problem import (
    Grower,
    Problem,
    applied,
    check_grower,
    dense_rows,
    encoded_as,
    grown,
    outputs,
    problem,
    reached,
    rows_of,
    sums_of_leaves,
)


class OobImportance(NamedTuple):
    """Importances of features from out-of-bag rows, averaged over trees."""

    mean: FloatArray
    """(n_features,) float64: importances, whose sum is not 1; below 0 if splits by chance raise the error."""
    error: FloatArray
    """(n_features,) float64: standard errors of the means over trees; NaN where one tree has out-of-bag
    rows."""

    @notebooks.shown_by
    def _repr_html_(self) -> notebooks.Rows:
        best = notebooks.largest(self.mean)
        return [
            (f"feature (of {len(self.mean)})", "importance", "standard error"),
            *zip(best, self.mean[best], self.error[best], strict=True),
        ]


def oob_importance(
    forest: Forest,
    x: ArrayLike,
    y: ArrayLike,
    counts: ArrayLike,
    *,
    by: Literal["mdi_oob", "ufi"] = "mdi_oob",
    task: Task = "classification",
    n_classes: int | None = None,
) -> OobImportance:
    """Returns importances of features from out-of-bag rows; about 0 for features independent of y.

    Other parameters and errors: see `posterior`.

    Parameters
    ----------
    forest : Forest
        Any forest, axis-aligned or oblique; its leaf values and gains are not read.
    counts : (n_trees, n_samples) array-like of integers
        In-bag counts of the forest: those of `hforest.growth.bootstrap_counts`, or ``counts.structure`` of
        `honest_counts`.
    by : "mdi_oob" or "ufi"
        Importance measure, see Notes.

    Returns
    -------
    OobImportance
        Mean decreases of the Gini impurity, or of the mean squared error summed over outputs, with standard
        errors.

    Notes
    -----
    `hforest.tree.importance` by gain evaluates a split on the rows that selected it, which favours features
    with many values, and deep nodes. Here t is a node with the sides l and r. m is the mean of class
    indicators, or of targets, over in-bag rows, and q over out-of-bag rows; o is the number of out-of-bag
    rows.

    "mdi_oob": a split adds ``o(l) o(r) / o(t) (m(l) - m(r)) (q(l) - q(r)) / o(root)`` to its feature. Li,
    Wang, Basu, Kumbier and Yu 2019 add ``(o(l) m(l) q(l) + o(r) m(r) q(r) - o(t) m(t) q(t)) / o(root)``. The
    departure replaces m(t) by ``(o(l) m(l) + o(r) m(r)) / o(t)``. m(t) weights the sides by in-bag rows. A
    split that separates few in-bag rows separates a larger share of out-of-bag rows. So their measure is
    below 0 on average for an irrelevant feature beside relevant ones.

    "ufi" (Zhou and Hooker 2021): a split adds ``w(t) H(t) - w(l) H(l) - w(r) H(r)``, where w is
    the share of the in-bag rows, and H half the sum of the in-bag impurity and of the mean squared distance
    of out-of-bag rows to m: of classes ``1 - sum_k p[k] q[k]`` of in-bag and out-of-bag shares. A split with
    a side that has no out-of-bag row adds nothing.

    Both have the expectation 0 for a feature that is independent of y and the other features together, in
    trees of single features: given the in-bag rows and the sides, out-of-bag labels of a node are then
    exchangeable. A projection adds equally to all features with a non-zero weight, so an irrelevant feature
    receives part of the importance of its neighbours; `importance_test` allows for that.

    Standard errors measure the deviation from the mean over infinitely many trees on the same rows. They do
    not include the larger variation between sets of rows; see `importance_test`. Features with many values
    have larger errors. Trees without out-of-bag rows are omitted. Cost: that of `hforest.tree.apply`, and a
    pass over rows and nodes for each class or output.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(300, 3)); y = x[:, 1] > 0
    >>> counts = hforest.growth.bootstrap_counts(300, 50, rng=0)
    >>> forest = hforest.grow(x, y, 50, bootstrap=counts, rng=0)
    >>> mean, error = hforest.stats.oob_importance(forest, x, y, counts)
    >>> int(mean.argmax()), bool(abs(mean[[0, 2]]).max() < 0.05 * mean[1]), bool(mean[1] > 10 * error[1])
    (1, True, True)
    """
    check.choice("by", by, tuple(_GAINS))
    check.on_cpu(counts=counts)
    forest, leaf, target = applied(forest, x, y, task, n_classes)
    n, n_trees = leaf.shape
    often = supervised.in_bag_counts("counts", counts, n_trees, n)
    check.require(
        (often == 0).any(), "counts", "a tree with out-of-bag rows", "none",
        "pass counts with zeros in some rows",
    )  # fmt: skip
    return importance_of(forest, leaf, target, often, _GAINS[by])


class Part(NamedTuple):
    """Counts and sums of in-bag or out-of-bag rows of splits, of both sides, and of the whole tree."""

    node: FloatArray
    left: FloatArray
    right: FloatArray
    root: FloatArray


Gain = Callable[[Part, Part], FloatArray]
"""gain(inside, outside): what each split adds to its features, from its in-bag and out-of-bag rows."""


def importance_of(
    forest: Forest, leaf: IntArray, target: supervised.Target, often: IntArray, gain_of: Gain
) -> OobImportance:
    """Returns `oob_importance` from the leaves of the rows; checks only that there are out-of-bag rows."""
    values = outputs(target)
    if target.labels is None:
        values = values - values.mean(axis=0)
    start = forest.tree_start
    tree_of = np.repeat(np.arange(len(start) - 1), np.diff(start))
    child = start[tree_of] + forest.left  # for splits, the left child
    levels = tree.splits(forest)

    def sums(counts: IntArray) -> FloatArray:
        """Returns (n_nodes, 2 + n_outputs): rows of each node, sums of squared norms and of values."""
        of_node = sums_of_leaves(forest, leaf, counts, np.column_stack([(values**2).sum(axis=1), values]))
        for at in reversed(levels):
            of_node[at] = of_node[child[at]] + of_node[child[at] + 1]
        return of_node

    at = np.concatenate([np.zeros(0, np.int64), *levels])
    nodes = (at, child[at], child[at] + 1, start[tree_of[at]])
    inside, outside = (
        Part(*(of_node[some] for some in nodes)) for of_node in (sums(often), sums(often == 0))
    )
    gain = np.zeros(len(tree_of))
    gain[at] = gain_of(inside, outside)
    return _of_features(forest, gain, (often == 0).any(axis=1))


def means(sums: FloatArray) -> FloatArray:
    """Returns means per node: of squared norms, and of each value; 0 without rows."""
    mean: FloatArray = np.divide(sums, sums[:, :1], out=np.zeros_like(sums), where=sums[:, :1] > 0)
    return mean[:, 1:]


def _mdi_oob(inside: Part, outside: Part) -> FloatArray:
    product = (means(inside.left) - means(inside.right)) * (means(outside.left) - means(outside.right))
    weight = outside.left[:, 0] * outside.right[:, 0] / np.maximum(outside.node[:, 0], 1)
    return weight / np.maximum(outside.root[:, 0], 1) * product[:, 1:].sum(axis=1)


def _ufi(inside: Part, outside: Part) -> FloatArray:
    def weighted(a: FloatArray, b: FloatArray) -> FloatArray:
        """Returns the impurity of some nodes, from in-bag and out-of-bag rows, times in-bag rows."""
        within, beyond = means(a), means(b)
        impurity = (within[:, 0] + beyond[:, 0]) / 2 - (within[:, 1:] * beyond[:, 1:]).sum(axis=1)
        return a[:, 0] * impurity

    whole, left, right = (weighted(*a) for a in zip(inside[:3], outside[:3], strict=True))
    both = (outside.left[:, 0] > 0) & (outside.right[:, 0] > 0)
    return np.where(both, (whole - left - right) / np.maximum(inside.root[:, 0], 1), 0.0)


_SCALING = 20
"""Permutations from which the deviations of importances are computed."""
_MAX_EXCEED = 10
"""Permutations end when this number of maxima reach the largest importance."""

_GAINS = {"mdi_oob": _mdi_oob, "ufi": _ufi}


def _of_features(forest: Forest, gain: FloatArray, judged: np.ndarray) -> OobImportance:
    """Returns means and standard errors over trees of each feature's sums over splits."""
    import scipy.sparse

    shape = (len(gain), int(forest.n_features))
    axis = np.flatnonzero(forest.feature >= 0)
    uses = scipy.sparse.csr_array((np.ones(len(axis)), (axis, forest.feature[axis])), shape=shape)
    if forest.indptr.size:
        used = np.repeat(forest.feature == -2, np.diff(forest.indptr)) & (forest.data != 0)
        uses = uses + scipy.sparse.csr_array((used.astype(float), forest.indices, forest.indptr), shape=shape)
    share = np.where(np.repeat(judged, np.diff(forest.tree_start)), gain, 0.0) / np.maximum(
        uses.sum(axis=1), 1
    )
    # A row for each tree, an entry for each of its nodes.
    of_tree = scipy.sparse.csr_array((share, np.arange(len(gain)), forest.tree_start)) @ uses
    n = int(judged.sum())
    mean = of_tree.sum(axis=0) / n
    variance = np.maximum((of_tree**2).sum(axis=0) / n - mean**2, 0) / (n - 1) if n > 1 else mean * np.nan
    return OobImportance(mean, np.sqrt(variance))


# ------------------------------------------------------------------------------------ permuted copies


class ImportanceTest(NamedTuple):
    """Result of `importance_test`: p-values and importances of features, or sets, and of permuted copies."""

    p_value: FloatArray
    """(n_sets,) float64: p-values of single features or sets, above 0 and at most 1."""
    adjusted: FloatArray
    """(n_sets,) float64: p-values of all sets together, adjusted by the method of `adjust`."""
    importance: FloatArray
    """(n_sets,) float64: `oob_importance` in a forest that also reads copies, summed over the features of a
    set; by "error" the mean increase of the error. NaN of sets that the screening left out."""
    null: FloatArray
    """(n_sets, n_copies) float64: the importances of the copies; NaN likewise. With "max" those of the
    permutations that were made."""

    @notebooks.shown_by
    def _repr_html_(self) -> notebooks.Rows:
        best = notebooks.largest(self.importance)
        n_sets, n_null = self.null.shape
        return [
            (f"set (of {n_sets})", f"importance ({n_null} null draws)", "p-value", "adjusted p-value"),
            *zip(best, self.importance[best], self.p_value[best], self.adjusted[best], strict=True),
        ]


def importance_test(
    x: ArrayLike | Samples,
    y: ArrayLike,
    *,
    columns: ArrayLike | Sequence[ArrayLike] | None = None,
    by: Literal["mdi_oob", "ufi", "error"] = "mdi_oob",
    screen: int | None = None,
    adjust: Literal["holm", "bh", "by", "max"] = "holm",
    n_trees: int = 100,
    n_copies: int | None = None,
    groups: ArrayLike | None = None,
    task: Task = "classification",
    grow: Grower | None = None,
    progress: Progress = None,
    rng: Rng = None,
) -> ImportanceTest:
    """Returns p-values of features, or sets of features, from their importance among permuted copies.

    Other parameters: see `permutation_test`.

    Parameters
    ----------
    x : (n_samples, n_features) array-like of real numbers, or Samples
        As for `permutation_test`, but not sparse.
    columns : int, (n_sets,) array-like of ints, or list of array-likes of ints, optional
        Features to test separately, or sets of features. The rows of a set are permuted together; sets may
        overlap. By default every feature separately.
    by : "mdi_oob", "ufi" or "error"
        Importance measure. "mdi_oob" and "ufi" are those of `oob_importance`, in a forest with copies for
        each set. "error" is the error of one forest for all sets, on rows that it was not grown on.
    screen : int, optional
        Number of sets to test, for many sets: those of largest importance, by "mdi_oob", in a forest on half
        of the rows of each class. They are tested on the other rows; the p-values of the others are 1.
    adjust : "holm", "bh", "by" or "max"
        Adjustment of the p-values: "holm" and "max" bound the probability of any false rejection, "bh" and
        "by" the false discovery rate, see Notes. "max" grows a forest for each of n_copies permutations of y
        instead of copies, and tests all sets in the same forests; not with "error".
    n_copies : int, optional
        Number of permuted copies of a set, 1 to 2**20; the smallest p-value is 1 / (n_copies + 1). By default
        the larger of 99 and ``20 n - 1``, where n sets are tested, so that an adjusted p-value can be 0.05;
        with "max" 199.
    progress : callable or bool, optional
        Called as progress(done, n) after each of the n features or sets that are tested. If it returns False,
        the result has the sets so far; with `screen` those that are missing have p-values of 1. With "max"
        called after each forest of permuted labels; the p-values come from those so far. True shows a bar.

    Returns
    -------
    ImportanceTest
        P-values, and the importances from which they are computed.

    Raises
    ------
    ValueError
        Too few trees for out-of-bag rows; with "error" or `screen`, a class with too few rows for two parts.

    Warnings
    --------
    The null hypothesis is that a feature, or set, is jointly independent of y and of the other features. A
    feature that depends on another one does not satisfy it and may be rejected, even if it is irrelevant
    given that other one. For this question use `conditional_test`.

    Notes
    -----
    For each set a forest is grown on the other features, the set, and permuted copies of its rows, in random
    column order. Under the null hypothesis the set and its copies are exchangeable, and so are their
    importances. The p-value is ``(1 + g) / (1 + n_copies)``, where g copies are at least as important as the
    set. It is valid for any number of rows and trees, and for any forest, also oblique ones. Copies of all
    features in one forest would also be valid, but would hide the features among ``n_features n_copies``
    copies.

    With "error" one forest is grown on half of the rows of each class. Permuting a set increases the mean
    squared error (of targets or class shares) on the other rows (`hforest.tree.permutation_importance`); the
    importance of the set is the mean increase over the copies. The importance of a copy is this mean minus
    its own increase. The forest does not depend on these rows: under the null hypothesis the set and its
    permutations are exchangeable, and the p-value is exact. This is the holdout randomization test (Tansey,
    Veitch, Zhang, Rabadan and Blei 2022) with permutations. It has less power, since the forest is grown on
    half of the rows, but suits many sets, or sets of many columns, whose copies would take memory.

    Permuted labels (Altmann, Tolosi, Sander and Lengauer 2010) give valid p-values if no feature is relevant,
    but not in general. "max" uses them for the decisions of all sets together (Westfall and Young 1993, the
    step-down maximum): sets are sorted by importance, divided by its deviation in 20 forests of further
    permutations. `adjusted` counts the permutations in which the largest importance, among a set and those
    after it, reaches that of the set. With 10 of them after l permutations it is 10 / l (Besag and
    Clifford 1991); permutations end when the first set has this many. If no set is relevant, any rejection
    has at most the probability of the level, for any number of rows and any dependence of features. Beside
    relevant sets that needs subset pivotality: the others must have the same joint distribution of
    importances as if no set were relevant, or a smaller maximum. Features that depend on relevant ones do not
    satisfy that. `p_value` is of each set alone, approximate if permutations ended; `null` has those that
    were made.

    Holm 1979: the k-th smallest of m p-values, counted from 0, is multiplied by m - k, and is at least the
    previous one. Then the probability of any false rejection among all sets is at most the level, under any
    dependence. Benjamini and Hochberg 1995 ("bh"): the k-th smallest, counted from 1, is multiplied by m / k,
    and is at most the next one. Then at most a share of the rejected sets, in expectation the level, is
    falsely rejected, if p-values are independent or positively dependent. Benjamini and Yekutieli 2001
    ("by") multiply by ``sum_k 1 / k`` more, and need no such assumption.

    With `screen`, m is the number of sets that are tested. Their choice depends on other rows only: given
    these, each p-value is valid, and so are the decisions for all n_sets together (two-stage testing by split
    samples: Cox 1975; Wasserman and Roeder 2009). The rows must be independent. Power is that of half of the
    rows.

    With `groups` copies swap the rows of groups of equal size, and forests draw groups; not with "error".
    "max" permutes the labels of groups, each of which has one.

    Ties, such as features without a split, count as larger. Cost: for each set that is tested a forest on
    n_features features and n_copies copies of the set; with "error" one forest, and n_copies predictions of
    half of the rows per set. Without `screen` time and memory grow with the square of the number of features
    and copies: 2,000 features need it, or "max", whose cost is that of at most 21 + n_copies forests.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(100, 3)); y = x[:, 1] > 0
    >>> hforest.stats.importance_test(x, y, n_trees=50, rng=0).adjusted < 0.05
    array([False,  True, False])
    >>> sets = [[0, 1], [0, 2]]
    >>> hforest.stats.importance_test(x, y, columns=sets, by="error", n_trees=50, rng=0).adjusted < 0.05
    array([ True, False])
    >>> many = np.random.default_rng(0).normal(size=(200, 300)); y = many[:, :2].sum(axis=1) > 0
    >>> test = hforest.stats.importance_test(many, y, screen=10, adjust="bh", n_trees=200, rng=0)
    >>> np.flatnonzero(test.adjusted < 0.05)
    array([0, 1])
    """
    data = problem(x, y, task)
    rows, n_features = dense_rows(data), data.samples.shape[1]
    sets = supervised.column_sets(columns, n_features)
    check.choice("by", by, (*_GAINS, "error"))
    check.choice("adjust", adjust, (*_ADJUSTMENTS, "max"))
    of_labels = adjust == "max"
    check.require(
        by != "error" or not of_labels, "by", '"mdi_oob" or "ufi" with adjust="max"', '"error"',
        'pass by="mdi_oob"',
    )  # fmt: skip
    n_trees = check.integer("n_trees", n_trees, 1, check.MAX_TREES)
    n_tested = len(sets) if screen is None else check.integer("screen", screen, 1, len(sets))
    most = 199 if of_labels else max(99, 20 * n_tested - 1)
    n_copies = most if n_copies is None else check.integer("n_copies", n_copies, 1, 2**20)
    check_grower(grow, data.target, "bootstrap", "rng")
    seed = check.seed(rng)
    tested, grouped = np.arange(len(sets)), checked("groups", groups, len(rows))
    check.require(
        by != "error" or groups is None, "groups", 'None with by="error"', "groups", 'pass by="mdi_oob"'
    )
    if screen is not None:
        tested, data, rows, grouped = _screened(data, rows, grouped, sets, n_tested, n_trees, grow, seed)
    settings = (data, rows, [sets[i] for i in tested], n_trees, n_copies, grow, progress, seed)
    if of_labels:
        result = _of_permuted_labels(by, grouped, *settings)
    else:
        observed, null = _rises(*settings) if by == "error" else _beside_copies(by, grouped, *settings)
        p = (1 + reached(observed, null).sum(axis=1)) / (1 + n_copies)
        result = ImportanceTest(p, _ADJUSTMENTS[adjust](p, n_tested), observed, null)
    if screen is None:
        return result
    untested = (1.0, 1.0, np.nan, np.nan)
    whole = (_spread(a, tested, len(sets), b) for a, b in zip(result, untested, strict=True))
    return ImportanceTest(*whole)


def _screened(
    data: Problem, rows: FloatArray, groups: Groups, sets: list[IntArray], n_tested: int, n_trees: int,
    grow: Grower | None, seed: int,
) -> tuple[IntArray, Problem, FloatArray, Groups]:  # fmt: skip
    """Returns the sets of largest importance on one part of the rows, ascending, and the other part."""
    first, second = split_rows(data.target.labels, len(rows), 0.5, seed_of(seed, 1), groups)
    counts = groups.some(first).bootstrap_counts(n_trees, seed_of(seed, 2))
    target = rows_of(data.target, first)
    forest = grown(
        grow, encoded_as(data, rows[first]), target, n_trees, bootstrap=counts, rng=seed_of(seed, 3)
    )
    mean = importance_of(forest, tree.apply(forest, rows[first]), target, counts, _mdi_oob).mean
    of_sets = np.array([mean[some].sum() for some in sets])
    tested = np.sort(np.argsort(-of_sets, kind="stable")[:n_tested])
    others = rows[second]
    second_part = Problem(encoded_as(data, others), others, rows_of(data.target, second))
    return tested, second_part, others, groups.some(second)


def _spread(values: FloatArray, at: IntArray, n: int, missing: float) -> FloatArray:
    """Returns an array of n rows with these values at some of them."""
    whole: FloatArray = np.full((n, *values.shape[1:]), missing)
    whole[at[: len(values)]] = values
    return whole


def _beside_copies(
    by: str, groups: Groups, data: Problem, rows: FloatArray, sets: list[IntArray], n_trees: int,
    n_copies: int, grow: Grower | None, progress: Progress, seed: int,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Returns importances of sets, (n_sets,), and of copies, (n_sets, n_copies), from one forest per set."""
    n, n_features = rows.shape
    importance: list[FloatArray] = []
    with reporting(progress, len(sets), "column") as report:
        for done, some in enumerate(sets):
            of_set = seed_of(seed, int(some[0]))
            with check.memory("n_copies", "copies", 32 * n * (n_features + n_copies * len(some))):
                order = block_orders(groups, orders(of_set, 0, 1 + n_copies, len(groups.first))).T
            place = int(permutation(of_set, 0, 1 + n_copies)[0])
            order[:, place] = np.arange(n)
            others = np.setdiff1d(np.arange(n_features), some)
            columns_of = np.concatenate([others, np.tile(some, 1 + n_copies)])
            wide = np.hstack([rows[:, others], rows[order[:, :, None], some].reshape(n, -1)])
            counts = groups.bootstrap_counts(n_trees, of_set)
            check.require(
                (counts == 0).any(), "n_trees", "trees with out-of-bag rows", "none",
                "grow more trees, or pass more rows",
            )  # fmt: skip
            samples = encoded_as(data, wide, columns_of)
            forest = grown(grow, samples, data.target, n_trees, bootstrap=counts, rng=of_set)
            mean = importance_of(forest, tree.apply(forest, wide), data.target, counts, _GAINS[by]).mean
            importance.append(np.roll(mean[len(others) :].reshape(1 + n_copies, -1).sum(axis=1), -place))
            if not report(done + 1):
                break
    table = np.stack(importance)
    return table[:, 0], table[:, 1:]


def _rises(
    data: Problem, rows: FloatArray, sets: list[IntArray], n_trees: int, n_copies: int, grow: Grower | None,
    progress: Progress, seed: int,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Returns importances as `_beside_copies`, from increases of one forest's error on other rows."""
    first, second = split_rows(data.target.labels, len(rows), 0.5, seed)
    of_forest = seed_of(seed, 0)
    counts = growth.bootstrap_counts(len(first), n_trees, rng=of_forest)
    samples = encoded_as(data, rows[first])
    forest = grown(grow, samples, rows_of(data.target, first), n_trees, bootstrap=counts, rng=of_forest)
    rise = tree.permutation_importance(
        forest, rows[second], outputs(rows_of(data.target, second)), columns=sets, task="regression",
        n_repeats=n_copies, progress=progress, rng=seed_of(seed, 1),
    )  # fmt: skip
    mean = rise.mean(axis=1)
    return mean, mean[:, None] - rise


def _of_permuted_labels(
    by: str, groups: Groups, data: Problem, rows: FloatArray, sets: list[IntArray], n_trees: int,
    n_draws: int, grow: Grower | None, progress: Progress, seed: int,
) -> ImportanceTest:  # fmt: skip
    """Returns p-values of sets, each alone and adjusted by the maximum, from forests of permuted labels."""
    labels = Orders(groups, None, data.target.y, 'pass adjust="holm", which permutes features')

    def importances(number: int) -> FloatArray:
        """Returns (n_sets,) importances in the forest of a permutation; 0 is the order of the data."""
        target = rows_of(data.target, labels.order(seed, number) if number else slice(None))
        of_draw = seed_of(seed, number)
        counts = groups.bootstrap_counts(n_trees, of_draw)
        check.require(
            (counts == 0).any(), "n_trees", "trees with out-of-bag rows", "none",
            "grow more trees, or pass more rows",
        )  # fmt: skip
        forest = grown(grow, data.samples, target, n_trees, bootstrap=counts, rng=of_draw)
        mean = importance_of(forest, tree.apply(forest, rows), target, counts, _GAINS[by]).mean
        return np.array([mean[some].sum() for some in sets])

    observed = importances(0)
    order, scale = np.arange(len(sets)), np.ones(len(sets))
    alone, exceed, ended = np.zeros((3, len(sets)), np.int64)
    scaling: list[FloatArray] = []
    null: list[FloatArray] = []
    with reporting(progress, _SCALING + n_draws, "permutation") as report:
        for number in range(1, 1 + _SCALING + n_draws):
            drawn = importances(number)
            if number <= _SCALING:
                scaling.append(drawn)
                square = np.mean(np.square(scaling), axis=0)
                scale = np.sqrt((square + square.mean()) / 2)
                scale = np.where(scale > 0, scale, 1.0)
                order = np.argsort(-observed / scale, kind="stable")
            else:
                null.append(drawn)
                alone += reached(observed, drawn[:, None])[:, 0]
                largest = np.maximum.accumulate((drawn / scale)[order][::-1])[::-1]
                exceed += reached((observed / scale)[order], largest[:, None])[:, 0]
                ended[(exceed == _MAX_EXCEED) & (ended == 0)] = len(null)
            if ended[0] or not report(number):
                break
    p = np.where(ended > 0, _MAX_EXCEED / np.maximum(ended, 1), (1 + exceed) / (1 + len(null)))
    adjusted = np.empty(len(sets))
    adjusted[order] = np.maximum.accumulate(p)
    of_sets = np.reshape(null, (len(null), len(sets))).T
    return ImportanceTest((1 + alone) / (1 + len(null)), adjusted, observed, of_sets)


def _holm(p: FloatArray, n: int) -> FloatArray:
    """Returns p-values adjusted by Holm's method for n hypotheses, some of which may lack p-values."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * (n - np.arange(len(p)))), 1)
    return adjusted


def _of_discoveries(p: FloatArray, n: int, factor: float = 1.0) -> FloatArray:
    """Returns p-values adjusted by Benjamini and Hochberg, times a factor; n as for `_holm`."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    scaled = p[order] * (factor * n) / np.arange(1, len(p) + 1)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1)
    return adjusted


def _of_any_dependence(p: FloatArray, n: int) -> FloatArray:
    """Returns p-values adjusted by Benjamini and Yekutieli."""
    return _of_discoveries(p, n, float((1 / np.arange(1, n + 1)).sum()))


_ADJUSTMENTS: dict[str, Callable[[FloatArray, int], FloatArray]] = {
    "holm": _holm,
    "bh": _of_discoveries,
    "by": _of_any_dependence,
}
