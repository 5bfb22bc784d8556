"""Random words keyed by a seed and a number, so that draws do not depend on the number of other draws."""

from collections.abc import Iterator

import numpy as np

from . import series
from .aliases import FloatArray, IntArray
from .machine import words
from .philox import ROWS

_TREES, _PERMUTATIONS, _SEEDS, _HALVES = 1 << 60, 2 << 60, 3 << 60, 4 << 60
"""Streams that growth does not use with the same seeds: it numbers trees from 0."""

_WORDS = 1 << 20
"""Number of words that are drawn at a time."""


def of_trees(seed: int, first: int, n_trees: int, n: int) -> IntArray:
    """Returns (n_trees, n) uint64: n words of each tree."""
    return words(seed, np.arange(first, first + n_trees, dtype=np.uint64) + np.uint64(_TREES), 0, n)


def of_rows(seed: int, first: int, n: int) -> IntArray:
    """Returns (n,) uint32: a word of each row from the first on."""
    drawn = words(seed, ROWS, first // 2, n // 2 + 1)
    return drawn.astype("<u8", copy=False).view("<u4")[first % 2 :][:n]


def of_halves(seed: int, first: int, n_halves: int, n: int) -> IntArray:
    """Returns (n_halves, n) uint64: n words of each half of the rows."""
    return words(seed, np.arange(first, first + n_halves, dtype=np.uint64) + np.uint64(_HALVES), 0, n)


def orders(seed: int, first: int, n_trees: int, n: int) -> IntArray:
    """Returns (n_trees, n) permutations of n rows: the order of the words of each tree."""
    return np.argsort(of_trees(seed, first, n_trees, n), axis=1, kind="stable")


def blocks(n_trees: int, n: int) -> Iterator[IntArray]:
    """Yields numbers of trees, some at a time, so that their words take little memory."""
    step = max(1, _WORDS // n)
    for first in range(0, n_trees, step):
        yield np.arange(first, min(first + step, n_trees))


def permutation(seed: int, number: int, n: int) -> IntArray:
    """Returns the permutation of n rows with a number: the order of n words."""
    return np.argsort(words(seed, _PERMUTATIONS + number, 0, n), kind="stable")


def subset(seed: int, number: int, n: int, size: int) -> IntArray:
    """Returns the first `size` rows of a permutation, in ascending order."""
    drawn = words(seed, _PERMUTATIONS + number, 0, n)
    return np.flatnonzero(drawn <= np.partition(drawn, size - 1)[size - 1])[:size]


def seed_of(seed: int, number: int) -> int:
    """Returns the seed of 63 bits with a number, for the `rng` of a forest."""
    return int(words(seed, _SEEDS + number, 0, 1)[0] >> np.uint64(1))


def normals(seed: int, first: int, n_draws: int, n: int) -> FloatArray:
    """Returns (n_draws, n) standard normal numbers (Box and Muller 1958)."""
    stream = np.arange(first, first + n_draws, dtype=np.uint64) + np.uint64(_PERMUTATIONS)
    unit = (words(seed, stream, 0, 2 * n) >> np.uint64(11)) * 2.0**-53
    return np.sqrt(-2 * series.log1p(-unit[:, :n])) * series.cos_of_turns(unit[:, n:])


def signs(seed: int, first: int, n_draws: int, n: int) -> FloatArray:
    """Returns (2, n_draws, n) numbers of -1 or 1, two for each row and draw."""
    stream = np.arange(first, first + n_draws, dtype=np.uint64) + np.uint64(_PERMUTATIONS)
    drawn = words(seed, stream, 0, n)
    bits = np.stack([drawn >> np.uint64(63), (drawn >> np.uint64(62)) & np.uint64(1)])
    return 1.0 - 2.0 * bits.astype(np.float64)
