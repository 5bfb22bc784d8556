"""Growth without checks, for public functions that have checked their arguments."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..core import dispatch, machine
from ..core.aliases import Array, FloatArray
from ..core.progress import reporting, unheard
from ..core.projections import Distribution
from ..tree import Forest
from .bins import Bins
from .settings import Growth
from .trees import Batch, Objective, Projected, Roots, Trees, as_forest

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
                dispatch.backend(PACKAGE, counts).bootstrap_counts(growth.seed, number, counts)
            elif isinstance(bootstrap, str):
                counts = xp.empty((count, n_samples), np.int32)
                dispatch.backend(PACKAGE, counts).poisson_counts(growth.seed, number, 0, counts)
            elif not isinstance(bootstrap, bool):
                counts = bootstrap[first : first + count]
            order = None if growth.order is None else growth.order[first : first + count]
            reached = None if growth.reached is None else growth.reached[first : first + count]
            grow_some(Batch(growth.seed, number, count, counts, trees, None, order, reached))
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
    arrays = backend.joined(trees, growth.objective.target.n_outputs, samples.dtype, projected)
    return as_forest(arrays, samples.shape[1])


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


def joined(trees: list[Any], n_outputs: int, beside: Array, dtype: np.dtype) -> Projected:
    """Returns the arrays of trees on projections, which the backend of the array `beside` has grown."""
    arrays = dispatch.backend(PACKAGE, beside).joined(trees, n_outputs, dtype, True)
    return Projected(Trees(*arrays[:9]), *arrays[9:])


def grow_below(bins: Bins, objective: Objective, roots: Roots, *, max_features: int) -> list[Trees]:
    """Returns the subtrees that grow from nodes of other trees, separately; NumPy arrays only."""
    weight = objective.sample_weight
    backend = dispatch.backend(PACKAGE, weight)
    batch = Batch(0, 0, len(roots.key), None, [], roots)
    backend.grow(bins, backend.prepare_columns(bins, "best"), objective, max_features, "best", batch)
    joined = Trees(*backend.joined(batch.trees, objective.target.n_outputs, bins.dtype, False))
    return [_tree(joined, m, first) for m, first in enumerate(_first_leaves(joined))]


def grow_projected_below(
    x: FloatArray,
    objective: Objective,
    roots: Roots,
    distribution: Distribution,
    *,
    has_missing: bool,
    n_projections: int,
) -> list[Projected]:
    """Returns subtrees as `grow_below`, on projections of x (C-contiguous, without infinity)."""
    backend = dispatch.backend(PACKAGE, x)
    batch = Batch(0, 0, len(roots.key), None, [], roots)
    workspace = backend.prepare_projections(x, distribution, has_missing)
    backend.grow_projected(x, workspace, objective, distribution, n_projections, "best", batch)
    trees, indptr, indices, data = joined(batch.trees, objective.target.n_outputs, x, x.dtype)
    subtrees = []
    for m, first in enumerate(_first_leaves(trees)):
        starts = indptr[trees.tree_start[m] : trees.tree_start[m + 1] + 1]
        entries = slice(starts[0], starts[-1])
        subtrees.append(
            Projected(_tree(trees, m, first), starts - starts[0], indices[entries], data[entries])
        )
    return subtrees


def _first_leaves(trees: Trees) -> list[int]:
    """Returns the start of the values of each tree."""
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(trees.feature == -1)])
    return [int(n) for n in before[trees.tree_start[:-1]]]


def _tree(trees: Trees, m: int, first_leaf: int) -> Trees:
    """Returns one of the trees, as views."""
    nodes = slice(int(trees.tree_start[m]), int(trees.tree_start[m + 1]))
    feature = trees.feature[nodes]
    n_leaves = (len(feature) + 1) // 2
    indptr, bits = trees.category_indptr, trees.category_bits
    if len(indptr):
        indptr = indptr[nodes.start : nodes.stop + 1]
        indptr, bits = indptr - indptr[0], bits[indptr[0] : indptr[-1]]
    return Trees(
        np.array([0, len(feature)]), feature, trees.threshold[nodes], trees.left[nodes],
        trees.value[first_leaf : first_leaf + n_leaves], trees.gain[nodes], trees.default_left[nodes],
        indptr, bits,
    )  # fmt: skip
