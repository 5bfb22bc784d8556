"""In-bag counts: how often each tree draws each sample."""

import numpy as np

from ..core import check, dispatch, machine, philox, supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray, Rng
from ..core.bootstraps import row_groups

_PACKAGE = __package__
_MAX_ROW = 2**62


_DRAWS = 1 << 20
"""Number of draws at a time."""


def _draw(seed: int, first_tree: int, n_draws: int, sample_weight: FloatArray, counts: IntArray) -> None:
    """Writes to counts[m] (OUT) how often tree first_tree + m draws each sample, in n_draws draws.

    sample_weight (n_samples,): IN, proportional to the probabilities.
    """
    n = counts.shape[1]
    last = int(np.flatnonzero(sample_weight)[-1])
    # In units of a power of two, so that sums are in range.
    upper = np.cumsum(np.ldexp(sample_weight, -np.frexp(sample_weight.max())[1]))[: last + 1]
    for m in range(len(counts)):
        key = philox.keys(philox.philox(seed, first_tree + m, 0))[0]
        counts[m] = 0
        for first in range(0, n_draws, _DRAWS):
            size = min(_DRAWS, n_draws - first)
            row = _weighted(key, first, size, upper)
            counts[m] += np.bincount(row, minlength=n).astype(np.int32)


def _weighted(key: int, first: int, size: int, upper: FloatArray) -> IntArray:
    """Returns (size,) int64: the first sample whose cumulative weight is above a uniform share of all."""
    words = machine.words(key, philox.WEIGHTED, first, size)
    share = (words >> np.uint64(11)) * 2.0**-53 * upper[-1]
    rows: IntArray = np.minimum(np.searchsorted(upper, share, side="right"), len(upper) - 1)
    return rows


def bootstrap_counts(
    n_samples: int,
    n_trees: int,
    *,
    n_draws: int | None = None,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    first_tree: int = 0,
    rng: Rng = None,
) -> IntArray:
    """Returns how often each tree draws each sample with replacement.

    Parameters
    ----------
    n_samples, n_trees : int
        Numbers of samples and trees, 0 or more.
    n_draws : int, optional
        Number of draws of each tree, 1 to 2**31 - 1; by default n_samples. It may be above n_samples.
    sample_weight : (n_samples,) array-like, optional
        Weights, 0 to 1e100, not all 0, to which probabilities of draws are proportional; by default equal.
    groups : (n_samples,) array-like of numbers or names, optional
        Which samples belong together, such as measurements of one subject. Groups are drawn, with all their
        samples: n_draws is a number of groups. Not with sample_weight.
    first_tree : int
        Number of the first tree, 0 or more; first_tree + n_trees is at most 2**31 - 1.

    Returns
    -------
    (n_trees, n_samples) array of int32
        In-bag counts; each row sums to n_draws, with groups over the groups.

    Notes
    -----
    Without n_draws and sample_weight these are the bootstraps that `grow` draws from the same rng and
    first_tree; the first n_samples of more draws are the same. Weighted draws invert the cumulative weights;
    pass their counts as `bootstrap` in place of sample_weight, not together with it. Cost: a Philox round per
    four draws; with weights per two draws, and a binary search per draw.

    Examples
    --------
    >>> import hforest
    >>> hforest.growth.bootstrap_counts(5, 2, rng=0).sum(axis=1)
    array([5, 5])
    >>> hforest.growth.bootstrap_counts(3, 1, n_draws=1000, sample_weight=[2, 0, 1], rng=0)
    array([[660,   0, 340]], dtype=int32)
    """
    n_samples = check.integer("n_samples", n_samples, 0, check.MAX_COUNT)
    n_trees = check.integer("n_trees", n_trees, 0, check.MAX_COUNT)
    first_tree = check.first_tree(first_tree, n_trees, check.MAX_COUNT)
    if n_draws is not None:
        n_draws = check.integer("n_draws", n_draws, 1, check.MAX_COUNT)
        check.require(n_samples > 0, "n_samples", "at least 1 to draw from", n_samples, "pass n_draws=None")
    if sample_weight is not None:
        check.on_cpu(sample_weight=sample_weight)
        sample_weight = supervised.sample_weight(sample_weight, np.empty(n_samples, np.int8))
    if groups is not None:
        number, first = row_groups("groups", groups, n_samples)
        check.require(sample_weight is None, "groups", "None with sample_weight", "both", "leave out one")
        drawn = bootstrap_counts(len(first), n_trees, n_draws=n_draws, first_tree=first_tree, rng=rng)
        with check.memory("n_trees", "counts", 4 * n_trees * n_samples):
            return drawn[:, number]
    n_draws = n_samples if n_draws is None else n_draws
    with check.memory("n_trees", "counts", 4 * n_trees * n_samples):
        counts = np.empty((n_trees, n_samples), np.int32)
    seed = check.seed(rng)
    if sample_weight is None:
        dispatch.backend(_PACKAGE, counts).bootstrap_counts(seed, first_tree, n_draws, counts)
    else:
        _draw(seed, first_tree, n_draws, sample_weight, counts)
    return counts


def poisson_counts(
    n_samples: int, n_trees: int, *, first_row: int = 0, first_tree: int = 0, rng: Rng = None
) -> IntArray:
    """Returns how often each tree has each sample: independent Poisson numbers of mean 1.

    Other parameters: see `bootstrap_counts`.

    Parameters
    ----------
    first_row : int
        Number of the first sample among all, 0 to 2**62: columns belong to samples first_row to first_row +
        n_samples - 1.

    Returns
    -------
    (n_trees, n_samples) array of int32
        In-bag counts: k with probability ``exp(-1) / k!``, at most 12.

    Notes
    -----
    These counts are the limit of the bootstrap for many samples (Oza and Russell 2001). A count depends only
    on the seed, the number of the tree and the number of the sample, so that parts can be drawn separately.
    The sum of a row is near n_samples. Functions with ``bootstrap="poisson"`` draw these counts from the same
    rng and first_tree. Cost: a Philox round per four counts.

    Examples
    --------
    >>> import hforest
    >>> whole = hforest.growth.poisson_counts(100, 2, rng=0)
    >>> part = hforest.growth.poisson_counts(30, 2, first_row=70, rng=0)
    >>> bool((part == whole[:, 70:]).all()), whole.mean(axis=1)
    (True, array([1.11, 0.88]))
    """
    n_samples = check.integer("n_samples", n_samples, 0, check.MAX_COUNT)
    n_trees = check.integer("n_trees", n_trees, 0, check.MAX_COUNT)
    first_row = check.integer("first_row", first_row, 0, _MAX_ROW)
    first_tree = check.first_tree(first_tree, n_trees, check.MAX_COUNT)
    with check.memory("n_trees", "counts", 4 * n_trees * n_samples):
        counts = np.empty((n_trees, n_samples), np.int32)
    dispatch.backend(_PACKAGE, counts).poisson_counts(check.seed(rng), first_tree, first_row, counts)
    return counts
