"""Checks of the settings of a bootstrap; counts of groups of samples that belong together."""

import math
from numbers import Real
from typing import Any

import numpy as np

from . import check, supervised
from .aliases import ArrayLike, IntArray

__all__ = ["number_of_draws", "numbered", "of_groups", "row_groups"]


def numbered(of_row: np.ndarray) -> tuple[IntArray, IntArray]:
    """Returns (n_samples,) numbers of groups from 0, and (n_groups,) the first row of each."""
    _, first, number = np.unique(of_row, return_index=True, return_inverse=True)
    if len(first) == len(of_row):
        number = first = np.arange(len(of_row))
    return number, first


def row_groups(name: str, groups: ArrayLike, n: int) -> tuple[IntArray, IntArray]:
    """Returns `numbered` of a caller's numbers or names for n rows; at least two groups."""
    check.on_cpu(**{name: groups})
    values = np.asarray(supervised.as_given(name, groups))
    shape = f"shape (n_samples,) = ({n},)"
    check.require(values.shape == (n,), name, shape, tuple(values.shape), "pass one for each row")
    try:
        number, first = numbered(values)
    except TypeError as error:
        raise TypeError(f"{name}: expected numbers or texts, got {error}; pass values of one type") from None
    check.require(
        len(first) > 1, name, "at least two different values", len(first),
        "pass the subject, or stratum, of each row",
    )  # fmt: skip
    return number, first


def of_groups(counts: IntArray, groups: ArrayLike | None) -> IntArray:
    """Returns (n_trees, n_samples): the counts of all rows of each row's group; None: of the row."""
    if groups is None:
        return counts
    number, first = row_groups("groups", groups, counts.shape[1])
    if len(first) == len(number):
        return counts
    order = np.argsort(number, kind="stable")
    start = np.searchsorted(number[order], np.arange(len(first)))
    sums: IntArray = np.add.reduceat(counts[:, order], start, axis=1, dtype=np.int64)
    return sums[:, number]


def number_of_draws(max_samples: Any, total: float) -> int | None:
    """Returns the number of draws for `max_samples`: an int itself, a fraction of `total`, or None."""
    value = check.scalar(max_samples)
    if value is None or check.is_integer(value):
        return None if value is None else check.integer("max_samples", value, 1, check.MAX_COUNT)
    remedy = "pass a number of draws, or a share such as 0.5"
    check.require(
        isinstance(value, Real) and not isinstance(value, bool | np.bool_), "max_samples",
        "None, an int or a float", type(value).__name__, remedy, TypeError,
    )  # fmt: skip
    check.require(0 < value < math.inf, "max_samples", "a finite number > 0", value, remedy)
    n_draws = max(1, int(min(float(value) * total, 2.0**31)))
    return check.integer("max_samples", n_draws, 1, check.MAX_COUNT)
