"""Impurities and best splits on a GPU; the kernels are in gpu.cu, the array module sorts."""

from pathlib import Path
from typing import NamedTuple

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


class Samples(NamedTuple):
    """Samples, what they learn, and their values of each candidate: a struct of gpu.cu."""

    values: Array
    order: Array
    labels: Array | None
    targets: Array | None
    weight: Array
    n_candidates: int
    n: int
    n_sums: int
    lanes: int


def _samples(
    values: Array, labels: Array | None, targets: Array | None, weight: Array, n_sums: int
) -> Samples:
    n_candidates, n = values.shape
    # -0 is sorted as the 0 that it equals.
    order = array_module(values).argsort(values + values.dtype.type(0), axis=1, kind="stable")
    return Samples(values, order.astype(np.int64), labels, targets, weight, n_candidates, n, n_sums, LANES)


def _splits(
    samples: Samples, criterion: int, min_leaf: int, max_bins: int, threshold: Array, gain: Array
) -> None:
    values, n_candidates, n_sums = samples.values, samples.n_candidates, samples.n_sums
    xp = array_module(values)
    n_distinct = xp.ones(n_candidates, np.int64)
    if max_bins:
        ordered = xp.take_along_axis(values, samples.order, axis=1)
        n_distinct += (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1)
    sums = xp.empty((n_candidates, LANES, n_sums + 1))
    totals = xp.empty((n_candidates, n_sums + 1))
    best, best_at = xp.empty((n_candidates, LANES)), xp.empty((n_candidates, LANES), np.int64)
    threshold.fill(np.nan)
    gain.fill(-np.inf)
    launch_each(PACKAGE, "lane_sums", values.dtype, best.size, (samples, sums))
    launch_each(
        PACKAGE, "lane_starts", values.dtype, totals.size, (sums, n_candidates, n_sums + 1, LANES, totals)
    )
    launch_each(
        PACKAGE, "scan", values.dtype, best.size,
        (samples, totals, n_distinct, criterion, min_leaf, max_bins, sums, best, best_at),
    )  # fmt: skip
    launch_each(
        PACKAGE, "pick", values.dtype, n_candidates,
        (samples, totals, best, best_at, criterion, threshold, gain),
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
    samples = _samples(values, y, None, weights, n_classes)
    _splits(samples, criterion, min_leaf, max_bins, threshold, gain)


def target_splits(
    values: Array, y: Array, weights: Array, min_leaf: int, max_bins: int, threshold: Array, gain: Array
) -> None:
    """The same for squared error; y (n, n_outputs) holds targets minus their mean."""
    samples = _samples(values, None, y, weights, y.shape[1])
    _splits(samples, SQUARED, min_leaf, max_bins, threshold, gain)
