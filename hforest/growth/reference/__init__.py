"""Reference implementation: trees grown top-down, node by node, in plain loops (Don't Get Lost in the Forest;
Perry et al. 2019, Alg. 1).

Functions, parameters and arrays are those of `cpu`. Criteria are numbers, those of core/scores.py.
"""

import numpy as np

from ...core.philox import BOOTSTRAP, POISSON, below, philox, poisson
from ..trees import joined as join_trees
from .builder import grow_batch, tree_key
from .sources import splits_of_columns, splits_of_projections


def bootstrap_counts(seed, first, n_draws, counts):
    """Writes to counts[m] (OUT) how often tree first + m draws each sample in n_draws draws with
    replacement."""
    n = counts.shape[1]
    for m, count in enumerate(counts):
        key = tree_key(seed, first + m)
        count[:] = 0
        for i in range(n_draws):
            count[below(philox(key, i // 4, BOOTSTRAP)[i % 4], n)] += 1


def poisson_counts(seed, first, first_row, counts):
    """Writes to counts[m] (OUT) how often tree first + m has each of the rows from first_row on."""
    for m, count in enumerate(counts):
        key = tree_key(seed, first + m)
        for i in range(counts.shape[1]):
            row = first_row + i
            count[i] = poisson(philox(key, row // 4, POISSON)[row % 4])


def encode(x, bins, low, high, n_bins):
    """Writes the rank of each value in its column, or its bin if there are more ranks than columns of `low`.

    x (n, n_columns): IN. bins (n_columns, n) uint32, low and high (n_columns, max_bins) float64 and n_bins
    (n_columns,) int64: OUT. NaN has the bin after the last one, which n_bins does not count.
    """
    for f, column in enumerate(x.T.astype(np.float64) + 0.0):
        is_missing = np.isnan(column)
        n_bins[f] = bins[f] = 0
        if is_missing.all():
            continue
        column = column[~is_missing]
        distinct, counts = np.unique(column, return_counts=True)
        bin_of = np.arange(len(distinct))
        if len(distinct) > low.shape[1]:
            stop = np.cumsum(counts)
            # The bin that holds the middle of a value's samples; then bins are numbered without gaps.
            wanted = (2 * stop - counts) * low.shape[1] // (2 * len(column))
            bin_of = np.cumsum(np.diff(wanted, prepend=wanted[0]) > 0)
        n_bins[f] = bins[f] = bin_of[-1] + 1
        bins[f, ~is_missing] = bin_of[np.searchsorted(distinct, column)]
        for b in range(n_bins[f]):
            low[f, b], high[f, b] = distinct[bin_of == b][[0, -1]]


def columns_read(splitter):
    """Returns "tables": the reference implementation reads only tables."""
    return "tables"


def prepare_columns(bins, splitter):
    """Returns None: the reference implementation reads bins by columns."""


def grow(bins, workspace, objective, max_features, splitter, batch):
    """Appends the trees of a batch to `batch.trees`, as `trees.GrownTree`."""
    split, codes = splits_of_columns(bins, objective.limits.min_samples_leaf, max_features, splitter)
    grow_batch(split, codes, objective, batch, bins.dtype, False, bins.missing is not None)


def prepare_projections(x, distribution, has_missing):
    """Returns whether x has missing values; the reference implementation sums numbers of x."""
    return has_missing


def grow_projected(x, workspace, objective, distribution, n_projections, splitter, batch):
    """Appends trees on random projections, as `grow` does."""
    min_leaf = objective.limits.min_samples_leaf
    split = splits_of_projections(x, distribution, min_leaf, n_projections, splitter)
    grow_batch(split, None, objective, batch, x.dtype, True, workspace)


def joined(trees, n_outputs, dtype, projected):
    """Returns grown trees in one record, see `trees.joined`."""
    return join_trees(trees, dtype)
