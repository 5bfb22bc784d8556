"""CUDA backend of growth: trees grow level by level (builder.py); the kernels are in gpu.cu."""

from typing import NamedTuple

import numpy as np

from ...core.aliases import Array
from ...core.dispatch import array_module
from ...core.in_place import PlacedWindows, rows_of
from ...core.launch import launch_each
from ...core.projections import Distribution, draw_table
from ..bins import Bins
from ..trees import Batch, GrownTree, Objective, Trees
from ..trees import joined as join_trees
from .builder import grow_trees
from .builder import trees_at_once as trees_at_once
from .candidates import (
    PACKAGE,
    ColumnSource,
    ProjectionSource,
    columns_of,
    kinds_of,
    task_of,
    tree_keys,
)


def bootstrap_counts(seed: int, first: int, n_draws: int, counts: Array) -> None:
    """See `reference.bootstrap_counts`."""
    n_trees, n = counts.shape
    counts.fill(0)
    key = tree_keys(array_module(counts), seed, first, n_trees)
    arguments = (key, n_trees, n, n_draws, counts)
    launch_each(PACKAGE, "bootstrap_counts", np.dtype(np.float64), n_trees * (-(-n_draws // 4)), arguments)


def poisson_counts(seed: int, first: int, first_row: int, counts: Array) -> None:
    """See `reference.poisson_counts`."""
    n_trees, n = counts.shape
    key = tree_keys(array_module(counts), seed, first, n_trees)
    arguments = (key, n_trees, n, first_row, counts)
    launch_each(PACKAGE, "poisson_counts", np.dtype(np.float64), n_trees * n, arguments)


def encode(x: Array, bins: Array, low: Array, high: Array, n_bins: Array) -> None:
    """Writes the rank of each value in its column, or its bin where ranks are more than a row of `low`
    holds; NaN has the bin after the last one."""
    xp, n_samples = array_module(x), len(x)
    max_bins = low.shape[1]
    for f in range(x.shape[1]):
        column = xp.ascontiguousarray(x[:, f])
        key, value = xp.empty(n_samples, np.uint64), xp.empty(n_samples)
        launch_each(PACKAGE, "keys_of_numbers", x.dtype, n_samples, (column, n_samples, key))
        order = xp.argsort(key, kind="stable")  # NaN last
        n = n_samples - int(xp.isnan(column).sum())
        n_bins[f] = bins[f] = 0
        if n == 0:
            continue
        key, order, missing = key[order], order[:n], order[n:]
        launch_each(PACKAGE, "numbers_of_keys", x.dtype, n, (key, n, value))
        new = xp.ones(n, bool)
        new[1:] = key[1:n] != key[: n - 1]
        rank = xp.cumsum(new) - 1
        start = xp.flatnonzero(new)
        if len(start) > max_bins:
            stop = xp.concatenate([start[1:], xp.full(1, n, start.dtype)])
            # The bin where the middle of a value's samples lies; then bins are numbered without gaps.
            wanted = (start + stop) * max_bins // (2 * n)
            jump = xp.zeros(len(start), np.int64)
            jump[1:] = wanted[1:] > wanted[:-1]
            rank = xp.cumsum(jump)[rank]
            new[1:] = rank[1:] != rank[:-1]
            start = xp.flatnonzero(new)
        used = len(start)
        bins[f, order] = rank.astype(bins.dtype)
        bins[f, missing] = n_bins[f] = used
        low[f, :used] = value[start]
        high[f, : used - 1] = value[start[1:] - 1]
        high[f, used - 1] = value[n - 1]


def columns_read(splitter: str) -> str:
    """Returns "tables": kernels read tables alone."""
    return "tables"


def prepare_columns(bins: Bins, splitter: str) -> None:
    """None: a thread reads one sample of a column."""


def grow(
    bins: Bins, workspace: None, objective: Objective, max_features: int, splitter: str, batch: Batch
) -> None:
    """See `reference.grow`."""
    source = ColumnSource(columns_of(bins, max_features), kinds_of(bins))
    task = source.task(task_of(objective, bins.dtype, splitter, bins.missing is not None))
    grow_trees(task, source, objective.sample_weight, batch)


class Prepared(NamedTuple):
    """Projections of x as kernels read them: a thread adds up numbers of a row of x."""

    x: Array
    """(n, n_features): the rows of x; a copy if x has windows."""
    has_missing: bool
    numbers: Array
    """int64: the distribution, in the order in which distribution_of of projections.cuh reads it."""
    table: Array
    """int32: `draw_table` of core/projections.py."""


def prepare_projections(x: Array | PlacedWindows, distribution: Distribution, has_missing: bool) -> Prepared:
    """Returns the workspace of `grow_projected`: x and the distribution on the device."""
    x = rows_of(x) if isinstance(x, PlacedWindows) else x
    d, xp = distribution, array_module(x)
    numbers = (
        d.kind, d.n_features, d.channels, d.cyclic, d.max_entries, sum(d.n_projections),
        *d.shape, *d.patch_min, *d.patch_max,
    )  # fmt: skip
    return Prepared(x, has_missing, xp.asarray(np.array(numbers, np.int64)), xp.asarray(draw_table(d)))


def grow_projected(
    x: Array | PlacedWindows,
    workspace: Prepared,
    objective: Objective,
    distribution: Distribution,
    n_projections: int,
    splitter: str,
    batch: Batch,
) -> None:
    """Appends trees on random projections: as `grow`, with (indptr, indices, data) at the end."""
    w = workspace
    source = ProjectionSource(w.x, distribution, w.numbers, w.table, n_projections)
    task = task_of(objective, x.dtype, splitter, w.has_missing)
    grow_trees(task, source, objective.sample_weight, batch)


def joined(trees: list[GrownTree], n_outputs: int, dtype: np.dtype, projected: bool) -> Trees:
    """Returns grown trees in one record, see `trees.joined`."""
    return join_trees(trees, dtype)
