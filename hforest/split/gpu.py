"""Impurities and best splits on a GPU; the kernels are in gpu.cu, the array module sorts."""

from pathlib import Path
from types import ModuleType

import numpy as np

from ..core.aliases import Array
from ..core.dispatch import array_module
from ..core.launch import launch_each

PACKAGE = Path(__file__).parent

LANES = 64
"""Runs into which a candidate's samples are divided; sums depend on this number and on shapes alone."""

SQUARED = 2


def impurity(counts: Array, criterion: int, out: Array) -> None:
    """Writes H of every row; 0 if a row is empty."""
    launch_each(PACKAGE, "impurity", counts.dtype, len(counts), (counts, *counts.shape, criterion, out))


def _splits(
    xp: ModuleType,
    values: Array,
    y: Array,
    outputs: Array,
    weights: Array,
    n_sums: int,
    criterion: int,
    min_leaf: int,
    max_bins: int,
    threshold: Array,
    gain: Array,
) -> None:
    n_candidates, n = values.shape
    n_outputs = outputs.shape[1]
    # -0 is sorted as the 0 that it equals.
    order = xp.argsort(values + values.dtype.type(0), axis=1, kind="stable").astype(np.int64)
    n_distinct = xp.ones(n_candidates, np.int64)
    if max_bins:
        ordered = xp.take_along_axis(values, order, axis=1)
        n_distinct += (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1)
    sums = xp.empty((n_candidates, LANES, n_sums + 1))
    totals = xp.empty((n_candidates, n_sums + 1))
    best, best_at = xp.empty((n_candidates, LANES)), xp.empty((n_candidates, LANES), np.int64)
    samples = (order, y, outputs, weights)
    threshold.fill(np.nan)
    gain.fill(-np.inf)
    launch_each(
        PACKAGE, "lane_sums", values.dtype, best.size,
        (*samples, n_candidates, n, n_outputs, n_sums, LANES, sums),
    )  # fmt: skip
    launch_each(
        PACKAGE, "lane_starts", values.dtype, totals.size, (sums, n_candidates, n_sums + 1, LANES, totals)
    )
    launch_each(
        PACKAGE, "scan", values.dtype, best.size,
        (
            values, *samples, totals, n_candidates, n, n_outputs, n_sums, criterion, min_leaf, max_bins,
            n_distinct, LANES, sums, best, best_at,
        ),
    )  # fmt: skip
    launch_each(
        PACKAGE, "pick", values.dtype, n_candidates,
        (values, order, totals, best, best_at, n_candidates, n, n_sums, criterion, LANES, threshold, gain),
    )  # fmt: skip


def class_splits(
    values: Array,
    y: Array,
    weights: Array,
    n_classes: int,
    criterion: int,
    min_leaf: int,
    max_bins: int,
    threshold: Array,
    gain: Array,
) -> None:
    """Writes the best threshold and gain of every candidate, for classes."""
    xp = array_module(values)
    outputs = xp.empty((0, 0))
    _splits(xp, values, y, outputs, weights, n_classes, criterion, min_leaf, max_bins, threshold, gain)


def target_splits(
    values: Array, y: Array, weights: Array, min_leaf: int, max_bins: int, threshold: Array, gain: Array
) -> None:
    """The same for squared error; y (n, n_outputs) holds targets minus their mean."""
    xp = array_module(values)
    labels = xp.empty(0, np.int32)
    _splits(xp, values, labels, y, weights, y.shape[1], SQUARED, min_leaf, max_bins, threshold, gain)
