"""Reference implementation: impurities, and the best threshold of every candidate by a scan of sorted values.

Functions, parameters and arrays are those of `cpu` and `gpu`. Criteria are numbers, those of core/scores.py.
"""

import math

import numpy as np

from ..core import scores
from ..core.scores import SQUARED_ERROR, beats, node_score


def impurity(counts, criterion, out):
    """Writes the impurity of each row, 0 if a row is empty."""
    for i, row in enumerate(counts):
        if criterion == SQUARED_ERROR:
            # From weight, sum and sum of squares: the mean square minus the squared mean.
            weight = float(row[0])
            mean = float(row[1]) / weight if weight > 0 else 0.0
            out[i] = max(float(row[2]) / weight - mean * mean, 0.0) if weight > 0 else 0.0
            continue
        weight = 0.0
        for c in row:
            weight += float(c)
        out[i] = scores.impurity(criterion, [float(c) / weight for c in row]) if weight > 0 else 0.0


def _between(low, high, real):
    # A threshold t with low <= t < high, so that `<= t` keeps low on the left and high on the right.
    t = real(float(low) / 2 + float(high) / 2)
    return t if low <= t < high else low


def _bins(value, max_bins):
    """Returns a number for each sample, that of its value or bin; no threshold separates equal numbers."""
    distinct, at, counts = np.unique(value, return_inverse=True, return_counts=True)
    if not max_bins or len(distinct) <= max_bins:
        return at
    # A value is in the bin that holds the middle of its samples.
    stop = np.cumsum(counts)
    return ((2 * stop - counts) * max_bins // (2 * len(value)))[at]


def _best(value, rows, weights, criterion, min_leaf, max_bins):
    # The scan of Don't Get Lost in the Forest, step 2: successive samples of different value; sample i adds
    # rows[i] to the sums.
    number = _bins(value, max_bins)
    order = np.argsort(value, kind="stable")
    total, total_weight = [0.0] * len(rows[0]), 0.0
    for row, w in zip(rows, weights, strict=True):
        total = [a + w * b for a, b in zip(total, row, strict=True)]
        total_weight += w
    base = node_score(criterion, total, total_weight)
    left, left_weight = [0.0] * len(total), 0.0
    best, threshold = -math.inf, math.nan
    for i in range(len(order) - 1):
        at, after = order[i], order[i + 1]
        left = [a + weights[at] * b for a, b in zip(left, rows[at], strict=True)]
        left_weight += weights[at]
        if number[at] == number[after] or i + 1 < min_leaf or len(order) - i - 1 < min_leaf:
            continue
        right_weight = total_weight - left_weight
        if not right_weight > 0:
            continue
        right = [a - b for a, b in zip(total, left, strict=True)]
        score = node_score(criterion, left, left_weight) + node_score(criterion, right, right_weight)
        if beats(score, best):
            best, threshold = score, _between(value[at], value[after], value.dtype.type)
    return threshold, best - base


def splits(values, target, weights, rules, threshold, gain):
    """Writes the best threshold and gain of every candidate; rules are criterion, min_leaf and max_bins.

    Targets are given minus their mean.
    """
    labels, targets, n_outputs, _ = target
    if labels is None:
        rows = [[float(t) for t in row] for row in targets]
    else:
        rows = [[float(k == label) for k in range(n_outputs)] for label in labels]
    weights = [float(w) for w in weights]
    for c, value in enumerate(values):
        threshold[c], gain[c] = _best(value, rows, weights, *rules)
