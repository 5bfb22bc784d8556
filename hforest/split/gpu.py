"""Impurities and best splits on a GPU, equal to those of reference.py; kernels are in gpu.cu, CuPy sorts."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..core.aliases import Array
from ..core.dispatch import array_module
from ..core.launch import launch_each
from ..core.supervised import Target

PACKAGE = Path(__file__).parent

LANES = 64
"""Number of runs into which a candidate's samples are divided. The order of sums depends on it and on shapes
alone."""


def impurity(counts: Array, criterion: int, out: Array) -> None:
    launch_each(PACKAGE, "impurity", counts.dtype, len(counts), (counts, *counts.shape, criterion, out))


class Samples(NamedTuple):
    """Samples with labels or targets, and their values for each candidate: a struct of gpu.cu."""

    values: Array
    order: Array
    labels: Array | None
    targets: Array | None
    weight: Array
    has_labels: int
    n_candidates: int
    n: int
    n_sums: int
    lanes: int


def splits(
    values: Array, target: Target, weights: Array, rules: tuple[int, int, int], threshold: Array, gain: Array
) -> None:
    """Writes the best threshold and gain of each candidate; rules are criterion, min_leaf and max_bins.

    Targets are given minus their mean.
    """
    (labels, targets, n_sums, _), (criterion, min_leaf, max_bins) = target, rules
    xp, (n_candidates, n) = array_module(values), values.shape
    key = xp.empty(values.shape, np.uint64)
    launch_each(PACKAGE, "keys_of_numbers", values.dtype, values.size, (values, values.size, key))
    order = xp.argsort(key, axis=1, kind="stable").astype(np.int64, copy=False)
    n_distinct = xp.ones(n_candidates, np.int64)
    if max_bins:
        ordered = xp.take_along_axis(key, order, axis=1)
        n_distinct += (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1)
    has_labels = int(labels is not None)
    samples = Samples(values, order, labels, targets, weights, has_labels, n_candidates, n, n_sums, LANES)
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
