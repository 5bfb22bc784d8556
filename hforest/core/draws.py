"""Random words keyed by a seed and a number, so that draws do not depend on the number of other draws."""

from collections.abc import Iterator

import numpy as np

from . import philox, series
from .aliases import FloatArray, IntArray

_TREES, _PERMUTATIONS, _SEEDS, _HALVES = 1 << 60, 2 << 60, 3 << 60, 4 << 60
"""Streams that growth does not use with the same seeds: it numbers trees from 0."""

_WORDS = 1 << 20
"""Number of words that are drawn at a time."""


def _words(seed: int, stream: IntArray, n: int) -> IntArray:
    """Returns (*stream.shape, n) uint64: n words of each stream."""
    pair = np.empty((*stream.shape, (n + 1) // 2, 2), np.uint64)
    step = max(1, _WORDS // max(1, stream.size))
    for first in range(0, pair.shape[-2], step):
        counter = np.arange(first, min(first + step, pair.shape[-2]), dtype=np.uint64)
        pair[..., first : first + step, :] = np.stack(philox.words(seed, counter, stream[..., None]), axis=-1)
    return pair.reshape(*stream.shape, -1)[..., :n]


def of_trees(seed: int, first: int, n_trees: int, n: int) -> IntArray:
    """Returns (n_trees, n) uint64: n words of each tree."""
    return _words(seed, np.arange(first, first + n_trees, dtype=np.uint64) + np.uint64(_TREES), n)


def of_halves(seed: int, first: int, n_halves: int, n: int) -> IntArray:
    """Returns (n_halves, n) uint64: n words of each half of the rows."""
    return _words(seed, np.arange(first, first + n_halves, dtype=np.uint64) + np.uint64(_HALVES), n)


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
    return np.argsort(_words(seed, np.array(_PERMUTATIONS + number, np.uint64), n), kind="stable")


def subset(seed: int, number: int, n: int, size: int) -> IntArray:
    """Returns the first `size` rows of a permutation, in ascending order."""
    words = _words(seed, np.array(_PERMUTATIONS + number, np.uint64), n)
    return np.flatnonzero(words <= np.partition(words, size - 1)[size - 1])[:size]


def seed_of(seed: int, number: int) -> int:
    """Returns the seed of 63 bits with a number, for the `rng` of a forest."""
    return int(_words(seed, np.array(_SEEDS + number, np.uint64), 1)[0] >> np.uint64(1))


def normals(seed: int, first: int, n_draws: int, n: int) -> FloatArray:
    """Returns (n_draws, n) standard normal numbers (Box and Muller 1958)."""
    stream = np.arange(first, first + n_draws, dtype=np.uint64) + np.uint64(_PERMUTATIONS)
    unit = (_words(seed, stream, 2 * n) >> np.uint64(11)) * 2.0**-53
    return np.sqrt(-2 * series.log1p(-unit[:, :n])) * series.cos_of_turns(unit[:, n:])


def signs(seed: int, first: int, n_draws: int, n: int) -> FloatArray:
    """Returns (2, n_draws, n) numbers of -1 or 1, two for each row and draw."""
    stream = np.arange(first, first + n_draws, dtype=np.uint64) + np.uint64(_PERMUTATIONS)
    words = _words(seed, stream, n)
    bits = np.stack([words >> np.uint64(63), (words >> np.uint64(62)) & np.uint64(1)])
    return 1.0 - 2.0 * bits.astype(np.float64)
