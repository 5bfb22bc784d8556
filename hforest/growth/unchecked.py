"""Growth without checks, for public functions that have checked their arguments."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..core import class_factors, dispatch, machine
from ..core.aliases import Array, FloatArray, IntArray
from ..core.progress import reporting, unheard
from ..core.projections import Distribution
from ..tree import Forest
from .bins import Bins
from .settings import Growth
from .trees import Batch, Objective, Roots, Trees, as_forest

PACKAGE = __package__

_TREES_A_THREAD = 4  # trees of a batch: reports come soon, and threads are busy
_TREES_A_REPORT, _REPORTS = 4, 16  # on a GPU, where a batch has many trees
_BATCH_SAMPLES = 1 << 18  # trees of a batch without reports: few waits for threads, little memory

GrowSome = Callable[[Batch], None]
"""Appends the trees of a batch to `batch.trees`."""


def in_batches(grow_some: GrowSome, growth: Growth, batch: int | None = None) -> list[Any]:
    """Calls grow_some until all trees have grown, or a report stops the growth; returns the trees.

    `batch` is the number of trees between reports.
    """
    n_samples, n_trees, bootstrap = len(growth.samples), growth.n_trees, growth.bootstrap
    xp = dispatch.array_module(growth.samples.numbers)
    trees: list[Any] = []
    with reporting(growth.progress, n_trees, "tree") as report:
        if batch is None and dispatch.runs_on_gpu(growth.samples.numbers):
            batch = dispatch.backend(PACKAGE, growth.samples.numbers).trees_at_once(xp, n_samples)
            if report is not unheard:
                batch = min(batch, max(_TREES_A_REPORT, n_trees // _REPORTS))
        elif batch is None:
            batch = _TREES_A_THREAD * machine.get_num_threads()
            if report is unheard:
                batch = max(batch, _BATCH_SAMPLES // n_samples)
        for first in range(0, n_trees, batch):
            count = min(batch, n_trees - first)
            number, counts = growth.first_tree + first, None
            if bootstrap is True:
                counts = xp.empty((count, n_samples), np.int32)
                dispatch.backend(PACKAGE, counts).bootstrap_counts(
                    growth.seed, number, n_samples if growth.n_draws is None else growth.n_draws, counts
                )
            elif isinstance(bootstrap, str):
                counts = xp.empty((count, n_samples), np.int32)
                dispatch.backend(PACKAGE, counts).poisson_counts(growth.seed, number, 0, counts)
            elif not isinstance(bootstrap, bool):
                counts = bootstrap[first : first + count]
            order = None if growth.order is None else growth.order[first : first + count]
            reached = None if growth.reached is None else growth.reached[first : first + count]
            weight = None
            if growth.balances and counts is not None:
                target, of_samples = growth.objective[:2]
                weight, counts = class_factors.balanced_in_trees(target, of_samples, counts), None
            grow_some(
                Batch(growth.seed, number, count, counts, trees, order=order, weight=weight, reached=reached)
            )
            if not report(len(trees)):
                break
    return trees


def on_bins(growth: Growth, *, max_features: int) -> GrowSome:
    """Returns the function that grows trees on bins, for `in_batches`."""
    samples, splitter = growth.samples, growth.splitter
    backend = dispatch.backend(PACKAGE, samples.numbers)
    read = backend.columns_read(splitter)
    if read == "numbers" and samples.are_exact_numbers:
        return partial(backend.grow, samples.matrix(), None, growth.objective, max_features, splitter)
    bins = samples.bins() if read == "tables" else samples.on_demand(tables=read == "numbers")
    workspace = samples.workspace(
        "columns", backend, splitter, lambda: backend.prepare_columns(bins, splitter)
    )
    return partial(backend.grow, bins, workspace, growth.objective, max_features, splitter)


def forest(trees: list[Any], growth: Growth, *, projected: bool) -> Forest:
    """Returns trees of `in_batches` as a forest."""
    samples = growth.samples
    backend = dispatch.backend(PACKAGE, samples.numbers)
    target = growth.objective.target
    arrays = backend.joined(trees, target.n_outputs, samples.dtype, projected)
    return as_forest(arrays, samples.shape[1], target.class_start)


def on_projections(growth: Growth, distribution: Distribution, *, n_projections: int) -> GrowSome:
    """Returns the function that grows trees on projections of a distribution, for `in_batches`."""
    samples, x = growth.samples, growth.samples.matrix()
    backend = dispatch.backend(PACKAGE, samples.numbers)
    workspace = samples.workspace(
        "projections", backend, distribution,
        lambda: backend.prepare_projections(x, distribution, samples.has_missing),
    )  # fmt: skip
    return partial(
        backend.grow_projected, x, workspace, growth.objective, distribution, n_projections, growth.splitter
    )


def grow_below(bins: Bins, objective: Objective, roots: Roots, *, max_features: int) -> list[Trees]:
    """Returns the subtrees that grow from nodes of other trees, separately; NumPy arrays only."""
    weight = objective.sample_weight
    backend = dispatch.backend(PACKAGE, weight)
    batch = Batch(0, 0, len(roots.key), None, [], roots)
    backend.grow(bins, backend.prepare_columns(bins, "best"), objective, max_features, "best", batch)
    return _each(backend.joined(batch.trees, objective.target.n_outputs, bins.dtype, False))


def grow_projected_below(
    x: FloatArray,
    objective: Objective,
    roots: Roots,
    distribution: Distribution,
    *,
    has_missing: bool,
    n_projections: int,
) -> list[Trees]:
    """Returns subtrees as `grow_below`, on projections of x (C-contiguous, without infinity)."""
    backend = dispatch.backend(PACKAGE, x)
    batch = Batch(0, 0, len(roots.key), None, [], roots)
    workspace = backend.prepare_projections(x, distribution, has_missing)
    backend.grow_projected(x, workspace, objective, distribution, n_projections, "best", batch)
    return _each(backend.joined(batch.trees, objective.target.n_outputs, x.dtype, True))


def _each(trees: Trees) -> list[Trees]:
    """Returns each tree alone, as views."""
    return [_tree(trees, m) for m in range(len(trees.tree_start) - 1)]


def _tree(trees: Trees, m: int) -> Trees:
    """Returns tree m alone, as views."""
    first, last = (int(v) for v in trees.tree_start[m : m + 2])
    nodes, rows_of = slice(first, last), slice((first + m) // 2, (last + m + 1) // 2)
    if len(trees.value) == len(trees.feature):  # rows of all nodes
        rows_of = nodes

    def rows(indptr: IntArray, *entries: Array) -> tuple[Array, ...]:
        """Returns the pointers and the entries of the nodes."""
        if not len(indptr):
            return indptr, *entries
        starts = indptr[first : last + 1]
        return starts - starts[0], *(a[starts[0] : starts[-1]] for a in entries)

    indptr, indices, data = rows(trees.indptr, trees.indices, trees.data)
    category_indptr, category_bits = rows(trees.category_indptr, trees.category_bits)
    return Trees(
        tree_start=np.array([0, last - first]),
        feature=trees.feature[nodes],
        threshold=trees.threshold[nodes],
        left=trees.left[nodes],
        value=trees.value[rows_of],
        gain=trees.gain[nodes],
        indptr=indptr,
        indices=indices,
        data=data,
        default_left=trees.default_left[nodes],
        category_indptr=category_indptr,
        category_bits=category_bits,
    )
