"""Bootstraps with weights, or with numbers of draws that differ from n_samples."""

import numpy as np

from ..core import philox
from ..core.aliases import FloatArray, IntArray

_DRAWS = 1 << 20
"""Number of draws at a time."""


def drawn_counts(
    seed: int, first_tree: int, n_draws: int, sample_weight: FloatArray | None, counts: IntArray
) -> None:
    """Writes to counts[m] (OUT) how often tree first_tree + m draws each sample, in n_draws draws.

    sample_weight (n_samples,): IN, proportional to the probabilities; None: they are equal.
    """
    n = counts.shape[1]
    upper = None
    if sample_weight is not None:
        last = int(np.flatnonzero(sample_weight)[-1])
        # In units of a power of two, so that sums are in range.
        upper = np.cumsum(np.ldexp(sample_weight, -np.frexp(sample_weight.max())[1]))[: last + 1]
    for m in range(len(counts)):
        key = philox.keys(philox.philox(seed, first_tree + m, 0))[0]
        counts[m] = 0
        for first in range(0, n_draws, _DRAWS):
            size = min(_DRAWS, n_draws - first)
            row = _equal(key, first, size, n) if upper is None else _weighted(key, first, size, upper)
            counts[m] += np.bincount(row, minlength=n).astype(np.int32)


def _pairs(key: int, stream: int, first: int, size: int) -> IntArray:
    """Returns (size, 2) uint64: the words of counters first to first + size - 1."""
    counter = np.arange(first, first + size, dtype=np.uint64)
    words: IntArray = np.stack(philox.words(key, counter, np.array(stream, np.uint64)), axis=1)
    return words


def _equal(key: int, first: int, size: int, n: int) -> IntArray:
    """Returns (size,) int64: draw i is word i % 4 of counter i // 4 times n, over 2**32; 4 divides first."""
    pairs = _pairs(key, philox.BOOTSTRAP, first // 4, -(-size // 4))
    half = np.uint64(32)
    words = np.stack([pairs & np.uint64(2**32 - 1), pairs >> half], axis=2).ravel()[:size]
    rows: IntArray = (words * np.uint64(n) >> half).astype(np.int64)
    return rows


def _weighted(key: int, first: int, size: int, upper: FloatArray) -> IntArray:
    """Returns (size,) int64: the first sample whose cumulative weight is above a uniform share of all."""
    words = _pairs(key, philox.WEIGHTED, first // 2, -(-size // 2)).ravel()[:size]
    share = (words >> np.uint64(11)) * 2.0**-53 * upper[-1]
    rows: IntArray = np.minimum(np.searchsorted(upper, share, side="right"), len(upper) - 1)
    return rows
