"""Honest forests: the rows that grow the splits of each tree, and the rows that give its leaf values."""

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from ..core import check, supervised
from ..core.aliases import ArrayLike, Draw, IntArray, Rng
from ..core.draws import blocks, of_halves, of_trees
from .groups import checked

_DRAWS = {"fixed": 0.8, "bootstrap": 1.6}
"""How rows are drawn, with the number of draws by default: per row of a class, and per row."""
_MOST_DRAWS = 100.0
_HALF, _LAST = 0.5, np.uint64(2**64 - 1)
_NEAR = 1e-9  # 0.8 * 5 is 4, whatever it is rounded to


class HonestCounts(NamedTuple):
    """Counts of the draws of each row for the splits and for the leaf values of each tree.

    Rows that a tree uses for neither are out-of-bag: `posterior` predicts them.
    """

    structure: IntArray
    """(n_trees, n_samples) int32: in-bag counts of the rows that grow the splits."""
    leaf: IntArray
    """(n_trees, n_samples) int32: counts of the rows that give the values of the leaves."""


def honest_counts(
    y: ArrayLike | int,
    n_trees: int,
    *,
    draw: Draw = "fixed",
    in_bag: float | None = None,
    structure_share: float = 0.5,
    groups: ArrayLike | None = None,
    trees_per_half: int | None = None,
    first_tree: int = 0,
    rng: Rng = None,
) -> HonestCounts:
    """Returns the rows that each tree of an honest forest uses for its splits, and those for its leaves.

    Parameters
    ----------
    y : (n_samples,) array-like of labels, or int
        Labels of any integer or bool dtype: each class is divided separately. Or the number of rows (for
        targets), which are divided as one class.
    n_trees : int
        Number of trees, at least 1, at most 2**20.
    draw : "fixed" or "bootstrap"
        "fixed": each tree uses the same number of distinct rows of each class for its splits, and for its
        leaves. "bootstrap": rows are drawn with replacement. A share of the distinct rows of each class grows
        the splits, the others give the leaf values; each row counts as often as it was drawn.
    in_bag : float, optional
        With "fixed" the share of the rows of each class that a tree uses, above 0 and below 1; by default
        0.8, or with trees_per_half 0.5, which is then the largest. With "bootstrap" the number of draws per
        row, above 0 and at most 100; by default 1.6.
    structure_share : float
        Share of a tree's distinct rows that grow the splits, above 0 and below 1.
    groups : (n_samples,) array-like, optional
        Numbers or names of the groups of rows that belong together, such as measurements of one subject:
        groups are drawn in place of rows, with all their rows. If each has one label, each class is divided
        separately, otherwise all groups are one class.
    trees_per_half : int, optional
        With "fixed", 2 to 2**20: trees 0 to trees_per_half - 1 draw from one random half of the rows (of each
        class, or of the groups), the next ones from another, and so on, for `confidence_intervals`. Pass the
        number of rows as y.
    first_tree : int
        Number of the first tree, 0 or more: counts are for trees first_tree to first_tree + n_trees - 1,
        which is at most 2**20.

    Returns
    -------
    HonestCounts
        The two sets of rows of a tree are disjoint. Pass ``counts.structure`` as `bootstrap` to a function
        that grows forests, and the whole tuple to `posterior`.

    Raises
    ------
    ValueError
        With "fixed", a class of which a tree would have no row for its splits, no row for its leaves, or no
        out-of-bag row. With "bootstrap", a tree without rows for its splits or for its leaves.

    Notes
    -----
    "bootstrap" with 1.6 draws per row is the sampling of MIGHT (Curtis et al. 2025): a row is out-of-bag in
    about ``exp(-1.6)``, a fifth, of the trees. "fixed" departs from it. With a bootstrap a row is more often
    out-of-bag in trees in which its class is rare. So, for labels that do not depend on x, out-of-bag
    posteriors favour the other classes. With fixed numbers per class all trees have the same class shares. Of
    a class of n rows, floor(in_bag n) are in-bag; floor(structure_share ...) of these grow splits. With the
    defaults 3 rows are enough.

    The draws of a tree depend only on the seed and the number of the tree (Philox). Cost: a sort of n_samples
    words per tree, and 8 bytes per tree and row.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> y = np.repeat([0, 1], [10, 20])
    >>> counts = hforest.stats.honest_counts(y, 3, rng=0)
    >>> counts.structure[:, y == 1].sum(axis=1), counts.leaf[:, y == 1].sum(axis=1)
    (array([8, 8, 8]), array([8, 8, 8]))
    >>> forest = hforest.grow(np.arange(30.0)[:, None], y, 3, bootstrap=counts.structure, rng=0)
    """
    stratum = _strata(y)
    grouped = checked("groups", groups, len(stratum))
    if groups is not None:
        one_label = bool(grouped.same_in_groups(stratum).all())
        stratum = stratum[grouped.first] if one_label else np.zeros(len(grouped.first), np.int64)
    n_trees, first_tree = check.tree_range(n_trees, first_tree)
    check.choice("draw", draw, tuple(_DRAWS))
    most = 1.0 if draw == "fixed" else _MOST_DRAWS
    if trees_per_half is not None:
        trees_per_half = check.integer("trees_per_half", trees_per_half, 2, check.MAX_TREES)
        check.require(
            draw == "fixed",
            "trees_per_half",
            'None with draw="bootstrap"',
            trees_per_half,
            'pass draw="fixed"',
        )
        most = _HALF
    default = _DRAWS[draw] if trees_per_half is None else _HALF
    drawn = check.number("in_bag", default if in_bag is None else in_bag, 0.0, most, open_low=True)
    share = check.number("structure_share", structure_share, 0.0, 1.0, open_low=True)
    seed = check.seed(rng)
    sizes = np.bincount(stratum)
    with check.memory("n_trees", "counts", 8 * n_trees * len(grouped.of_row)):
        counts = HonestCounts(*(np.zeros((n_trees, len(stratum)), np.int32) for _ in range(2)))
    if draw == "fixed":
        _draw_fixed(stratum, sizes, drawn, share, seed, first_tree, counts, trees_per_half)
    else:
        _draw_bootstrap(stratum, drawn, share, seed, first_tree, counts)
    return HonestCounts(*map(grouped.spread, counts))


def _strata(y: Any) -> IntArray:
    """Returns (n_samples,): the class of each row, numbered from 0."""
    y = check.scalar(y)
    if check.is_integer(y):
        n = check.integer("y", y, 1, check.MAX_COUNT)
        with check.memory("y", "rows", 8 * n):
            return np.zeros(n, np.int64)
    check.on_cpu(y=y)
    labels = supervised.as_given("y", y)
    if labels.dtype.kind == "O" and all(isinstance(a, Integral | np.bool_) for a in labels.flat):
        labels = np.array(labels.tolist())
    check.require(
        labels.ndim == 1 and labels.dtype.kind in "biu" and labels.size, "y",
        "labels of shape (n_samples,) with an integer or bool dtype, or the number of rows",
        f"{labels.dtype} of shape {tuple(labels.shape)}",
        "pass numpy.unique(y, return_inverse=True)[1], or len(y) for regression",
        ValueError if labels.dtype.kind in "biu" else TypeError,
    )  # fmt: skip
    return np.unique(labels, return_inverse=True)[1]


def fixed_sizes(sizes: IntArray, in_bag: float, share: float) -> tuple[IntArray, IntArray]:
    """Returns for each class the number of in-bag rows, and of those that grow splits."""
    inside = np.floor(in_bag * sizes + _NEAR).astype(np.int64)
    return inside, np.floor(share * inside + _NEAR).astype(np.int64)


def _draw_fixed(
    stratum: IntArray,
    sizes: IntArray,
    in_bag: float,
    share: float,
    seed: int,
    first: int,
    out: HonestCounts,
    trees_per_half: int | None = None,
) -> None:
    inside, structure = fixed_sizes(sizes, in_bag, share)
    fits = (structure > 0) & (structure < inside) & (inside < sizes)
    if not fits.all():
        at = int((~fits).argmax())
        raise ValueError(
            "y: expected classes of which each tree has rows for its splits, for its leaves and out-of-bag, "
            f"got {sizes[at]} rows of a class: {structure[at]}, {inside[at] - structure[at]} and "
            f"{sizes[at] - inside[at]}; merge small classes, or change in_bag and structure_share"
        )
    members = np.split(np.argsort(stratum, kind="stable"), np.cumsum(sizes)[:-1])
    for trees in blocks(len(out.structure), len(stratum)):
        drawn = of_trees(seed, first + trees[0], len(trees), len(stratum))
        half = None if trees_per_half is None else (first + trees) // trees_per_half
        for rows, n_inside, n_structure in zip(members, inside, structure, strict=True):
            words = drawn[:, rows]
            if half is not None:
                words = np.where(_halves(seed, half, len(stratum), rows), words >> np.uint64(1), _LAST)
            order = rows[np.argsort(words, axis=1, kind="stable")[:, :n_inside]]
            out.structure[trees[:, None], order[:, :n_structure]] = 1
            out.leaf[trees[:, None], order[:, n_structure:]] = 1


def _halves(seed: int, half: IntArray, n: int, rows: IntArray) -> np.ndarray:
    """Returns (n_trees, len(rows)) bool: which of these of n rows are in the half of each tree.

    half (n_trees,) are the numbers of the halves, ascending.
    """
    known = np.arange(half[0], half[-1] + 1)
    order = np.argsort(of_halves(seed, int(half[0]), len(known), n)[:, rows], axis=1, kind="stable")
    inside = np.zeros(order.shape, bool)
    np.put_along_axis(inside, order[:, : len(rows) // 2], True, axis=1)
    return inside[half - half[0]]


def _draw_bootstrap(
    stratum: IntArray, in_bag: float, share: float, seed: int, first: int, out: HonestCounts
) -> None:
    n, low = len(stratum), np.uint64(32)
    n_draws = max(1, round(in_bag * n))
    for trees in blocks(len(out.structure), n_draws + n):
        for m, drawn in zip(trees, of_trees(seed, first + trees[0], len(trees), n_draws + n), strict=True):
            # The upper half of a word, times n, divided by 2**32: a row.
            row = ((drawn[:n_draws] >> low) * np.uint64(n) >> low).astype(np.int64)
            often = np.bincount(row, minlength=n)
            distinct = np.flatnonzero(often)
            order = distinct[np.lexsort((drawn[n_draws:][distinct], stratum[distinct]))]
            sizes = np.bincount(stratum[order])
            nth = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            for_structure = nth < np.repeat(np.floor(share * sizes + _NEAR), sizes)
            out.structure[m, order[for_structure]] = often[order[for_structure]]
            out.leaf[m, order[~for_structure]] = often[order[~for_structure]]
            if not for_structure.any() or for_structure.all():
                raise ValueError(
                    f"y: expected rows for the splits and for the leaves of each tree, got {len(order)} "
                    f"distinct rows in tree {first + m}, of which {int(for_structure.sum())} are for "
                    "splits; pass more rows, or raise in_bag"
                )
