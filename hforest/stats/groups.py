"""Rows that belong together, such as measurements of one subject; strata within which labels are permuted."""

from typing import NamedTuple

import numpy as np

from .. import growth
from ..core import check
from ..core.aliases import ArrayLike, IntArray
from ..core.bootstraps import numbered, row_groups
from ..core.draws import permutation


class Groups(NamedTuple):
    """The groups of rows. Without a caller's groups each row is one."""

    of_row: IntArray
    """(n_samples,) int64: the group of each row, numbered from 0."""
    first: IntArray
    """(n_groups,) int64: the first row of each group."""

    def spread(self, counts: IntArray) -> IntArray:
        """Returns counts of rows, (n_trees, n_samples), from those of groups."""
        return counts if len(self.first) == len(self.of_row) else counts[:, self.of_row]

    def bootstrap_counts(self, n_trees: int, seed: int) -> IntArray:
        """Returns in-bag counts: groups are drawn with replacement, with all their rows."""
        return self.spread(growth.bootstrap_counts(len(self.first), n_trees, rng=seed))

    def same_in_groups(self, a: np.ndarray) -> np.ndarray:
        """Returns (n_samples,) bool: whether each row has the value, or values, of its group's first row."""
        same = a == a[self.first[self.of_row]]
        return same if same.ndim == 1 else same.all(axis=1)

    def some(self, rows: IntArray) -> "Groups":
        """Returns the groups of some rows, ascending, which hold whole groups."""
        return Groups(*numbered(self.of_row[rows]))


def of_rows(n: int) -> Groups:
    """Returns the groups of single rows."""
    return Groups(np.arange(n), np.arange(n))


def checked(name: str, groups: ArrayLike | None, n: int) -> Groups:
    """Returns the groups of n rows from a caller's array of numbers, names or other values; None: of rows."""
    return of_rows(n) if groups is None else Groups(*row_groups(name, groups, n))


def strata_of(strata: ArrayLike | None, n: int) -> IntArray | None:
    """Returns the number of the stratum of each of n rows, or None."""
    return None if strata is None else checked("strata", strata, n).of_row


class Orders:
    """Permutations of labels between groups, and within strata.

    Parameters
    ----------
    groups : Groups
        Groups, of which each has one label.
    strata : (n_samples,) int64, or None
        Numbers of the strata, of which each group lies in one.
    y : (n_samples,) or (n_samples, n_outputs) array
        Labels or targets.
    """

    def __init__(
        self, groups: Groups, strata: IntArray | None, y: np.ndarray,
        remedy: str = "pass the groups as strata, to permute labels within each",
    ) -> None:  # fmt: skip
        self.groups = groups
        same = groups.same_in_groups(y)
        check.require(
            bool(same.all()), "groups", "one label, or target, in each group",
            f"several in the group of row {int((~same).argmax())}", remedy,
        )  # fmt: skip
        self.stratum: IntArray | None = None
        if strata is not None:
            same = groups.same_in_groups(strata)
            check.require(
                bool(same.all()), "strata", "one stratum for each group",
                f"several for the group of row {int((~same).argmax())}", "pass strata of whole groups",
            )  # fmt: skip
            self.stratum = strata[groups.first]
            check.require(
                bool((np.bincount(self.stratum) > 1).any()), "strata", "strata of several rows, or groups",
                "one in each", "pass larger strata",
            )  # fmt: skip

    def order(self, seed: int, number: int) -> IntArray:
        """Returns (n_samples,): from which row each row takes its label in a permutation."""
        drawn = permutation(seed, number, len(self.groups.first))
        if self.stratum is not None:
            # The groups of a stratum, ascending, take the labels of these groups in the drawn order.
            order = np.empty_like(drawn)
            order[np.argsort(self.stratum, kind="stable")] = drawn[
                np.argsort(self.stratum[drawn], kind="stable")
            ]
            drawn = order
        return self.groups.first[drawn[self.groups.of_row]]


def block_orders(groups: Groups, orders: IntArray) -> IntArray:
    """Returns (n_orders, n_samples): from which row each row takes its values, if groups of equal size swap.

    orders (n_orders, n_groups) are permutations of the groups. The rows of a group stay together and in their
    order.
    """
    n, n_groups = len(groups.of_row), len(groups.first)
    if n == n_groups:
        return orders
    size = np.bincount(groups.of_row)
    rows = np.argsort(groups.of_row, kind="stable")
    start = np.cumsum(size) - size
    nth = np.empty(n, np.int64)
    nth[rows] = np.arange(n) - np.repeat(start, size)
    by_size = np.argsort(size, kind="stable")
    swapped = np.empty_like(orders)
    for i, drawn in enumerate(orders):
        swapped[i, by_size] = drawn[np.argsort(size[drawn], kind="stable")]
    return rows[start[swapped[:, groups.of_row]] + nth]
