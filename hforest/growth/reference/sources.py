"""Reference candidate sources: the best split of a node among columns of bins, or among random projections.

A source returns None or a `Split`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...core.defaults import draws_missing_left
from ...core.in_place import PlacedWindows, rows_of
from ...core.launch import numbers
from ...core.philox import CANDIDATES, DIRECTION, below, philox
from ...core.projections import draw_projection
from ...core.scores import beats
from ...core.sparse import Columns
from ..sparse import all_bins, all_numbers
from .scorers import best_threshold, random_threshold, score_left

POWER_STEPS, ALL_DIVISIONS, COMMON, CATEGORY_BITS = numbers(
    "growth/categories.h", "HF_POWER_STEPS", "HF_ALL_DIVISIONS", "HF_COMMON", "HF_CATEGORY_BITS"
)


class Split(NamedTuple):
    """The split of a node."""

    column: Any
    """A column, or (indices, data) of a projection."""
    goes_left: Callable[[int], bool | None]
    """Returns whether a sample goes left; None: its value is missing."""
    gain: float
    threshold: float
    seen: int = -1
    """Side of the node's missing values in the scan or the draw, as in core/defaults.py; -1: it has none."""
    categories: list[int] | None = None
    """Categories on the left and on the right, for a split by categories."""
    others: list[int] | None = None


def between(low, high, dtype):
    """Returns a threshold t with low <= t < high: the mean, or low if the mean rounds to high."""
    t = dtype.type(low / 2 + high / 2)
    return float(t) if low <= t < high else low


def direction(node, members):
    """Returns the score of each group of samples along the first principal direction of the groups' means
    (Coppersmith, Hong and Hosking 1999), by the power iteration.

    members: lists of samples.
    """
    n_outputs = node.tree.n_outputs
    is_regression = node.tree.targets is not None
    total = [0.0] * n_outputs if is_regression else node.terms(node.total, node.u)
    weight = float(node.u) if is_regression else node.weight
    share, size = [], []
    for group in members:
        sums, u = node.sums(group)
        size.append(float(u) if is_regression else node.weight_of(u))
        share.append([a / size[-1] - b / weight for a, b in zip(node.terms(sums, u), total, strict=True)])

    def dot(a, b):
        result = 0.0
        for p, q in zip(a, b, strict=True):
            result += p * q
        return result

    spread = [w * dot(p, p) for w, p in zip(size, share, strict=True)]
    axis = share[spread.index(max(spread))]
    for _ in range(POWER_STEPS):
        sums = [0.0] * n_outputs
        for w, p in zip(size, share, strict=True):
            step = w * dot(p, axis)
            sums = [a + step * b for a, b in zip(sums, p, strict=True)]
        largest = max(abs(a) for a in sums)
        if not largest > 0:
            break
        axis = [a / largest for a in sums]
    return [dot(p, axis) for p in share]


def grouped(counts):
    """Returns the groups of categories that have a place in an order: lists of indices.

    counts: the samples of the node in each category.
    """
    is_rare = [len(counts) > ALL_DIVISIONS and count < COMMON for count in counts]
    rare = [j for j, this in enumerate(is_rare) if this]
    common = [[j] for j, this in enumerate(is_rare) if not this]
    return sorted([*common, rare] if rare else common)


def orders(node, bins, missing, is_categorical):
    """Returns the orders in which a node scans the bins of a column, as dictionaries from bin to place.

    Missing values are last in one order and first in the next. Categories are ordered by their share of the
    second class or their mean. With more classes or outputs up to four categories are divided in all ways,
    and more are ordered along the first principal direction of their means. Of more than four categories,
    those of fewer than four samples have one place.
    """
    tree, samples = node.tree, node.samples
    present = sorted({int(bins[s]) for s in samples})
    if not is_categorical:
        last = {b: b for b in present}
        return [last, last | {missing: -1}] if missing in last else [last]
    if not tree.is_ordered and len(present) <= ALL_DIVISIONS:
        masks = range(1, 2 ** (len(present) - 1))
        return [{b: 1 - (mask >> j & 1) for j, b in enumerate(present)} for mask in masks]
    groups = grouped([sum(int(bins[s]) == b for s in samples) for b in present])
    members = [[s for s in samples if int(bins[s]) in [present[j] for j in group]] for group in groups]
    if tree.is_ordered:
        score = []
        for group in members:
            sums, u = node.sums(group)
            size = node.weight_of(u) if tree.targets is None else float(u)
            score.append(node.terms(sums, u)[-1] / size)
    else:
        score = direction(node, members)
    ordered = sorted(range(len(groups)), key=lambda i: score[i])  # stable
    return [{present[j]: place for place, i in enumerate(ordered) for j in groups[i]}]


def random_order(tree, present, key, number, missing, is_categorical, low, high, dtype):
    """Returns an order of a column's bins in which places up to 0 go left, and the threshold: a random split.

    Missing values, and each category, go left or right with probability 1/2. None: there is one bin.
    """
    if len(present) == 1:
        return None
    if is_categorical:
        side = {}
        for b in present:
            word = philox(key, number << 16 | b >> CATEGORY_BITS, DIRECTION)[b >> 5 & 3]
            side[b] = word >> (b & 31) & 1
        if len(set(side.values())) == 1:
            side[present[0]] ^= 1
        return side, 0.0
    numbers = [b for b in present if b != missing]
    if len(numbers) == 1:
        return {numbers[0]: 0, missing: 1}, float(np.finfo(dtype).max)
    least, greatest = high[numbers[0]], low[numbers[-1]]
    limit = random_threshold(key, number, least, greatest, dtype)
    last = max(b for b in numbers[:-1] if b == numbers[0] or high[b] <= limit)
    side = {b: int(b > last) for b in numbers}
    if missing in present:
        side[missing] = int(not draws_missing_left(philox(key, number, DIRECTION)[0]))
    return side, limit


def sampled_features(key, n_columns):
    """Yields features without replacement: the first places of a Fisher-Yates shuffle."""
    columns = list(range(n_columns))
    for i in range(n_columns):
        other = i + below(philox(key, i // 4, CANDIDATES)[i % 4], n_columns - i)
        columns[i], columns[other] = columns[other], columns[i]
        yield columns[i]


def best_projection(node, key, x, distribution, n_projections, min_samples_leaf, splitter):
    """Returns the best split of a node's projections, or None. A projection of a missing value is missing."""
    samples = node.samples
    best, chosen = (-math.inf, -1, 0.0, 0.0), None
    for number in range(n_projections):
        index, factor = draw_projection(distribution, key, number)
        values = {}
        for s in samples:
            value = 0.0
            for i, w in zip(index, factor, strict=True):
                value += w * float(x[s, i])
            values[s] = float(x.dtype.type(value)) + 0.0  # rounded once, as in hforest.tree
        missing = {s for s in samples if math.isnan(values[s])}
        distinct = sorted({values[s] for s in samples if s not in missing})
        if splitter == "best":
            for end in (math.inf, -math.inf) if missing else (math.inf,):
                places = {s: end if s in missing else values[s] for s in samples}
                better = best_threshold(node, number, places, min_samples_leaf, best)
                if beats(better[0], best[0]):
                    best, chosen = better, (index, factor, places, missing)
            continue
        limit, end = float(np.finfo(x.dtype).max), 1
        if len(distinct) > 1:
            limit = random_threshold(key, number, distinct[0], distinct[-1], x.dtype)
            end = not draws_missing_left(philox(key, number, DIRECTION)[0])
        places = {s: (math.inf if end else -math.inf) if s in missing else values[s] for s in samples}
        left_side = {s for s in samples if places[s] <= limit}
        score = score_left(node, left_side, min_samples_leaf)
        if beats(score, best[0]):
            best, chosen = (score, number, limit, limit), (index, factor, places, missing)
    if chosen is None:
        return None
    score, _, low, high = best
    gain = node.gain(score)
    index, factor, places, missing = chosen
    column = index[0] if len(index) == 1 and factor[0] == 1 else (index, factor)  # a feature
    limit = between(low, high, x.dtype) if splitter == "best" else low
    seen = int(places[min(missing)] <= low) if missing else -1
    if math.isinf(low) or math.isinf(high):  # missing values against all others
        low, limit, seen = math.inf, float(np.finfo(x.dtype).max), 0
    return Split(column, lambda s: None if s in missing else places[s] <= low, gain, limit, seen)


def kinds_of(bins):
    """Returns the bin of missing values of each column, -1 without, and whether it holds categories."""
    n_columns = bins.shape[1]
    missing = np.full(n_columns, -1) if bins.missing is None else bins.missing
    categorical = np.zeros(n_columns, bool) if bins.categorical is None else bins.categorical
    return missing, categorical


def best_column(node, key, low, high, dtype, kinds, max_features, min_samples_leaf, splitter):
    """Returns the best split of the features that a node samples, or None.

    kinds: the bin of missing values of each column, -1 without, and whether it holds categories.
    """
    tree, samples = node.tree, node.samples
    best, number, places, limit = (-math.inf, -1, 0, 0.0), 0, {}, 0.0
    for i, column in enumerate(sampled_features(key, len(tree.bins))):
        if i >= max_features and number:
            break
        bins, missing, is_categorical = tree.bins[column], int(kinds[0][column]), bool(kinds[1][column])
        sign = 0 if tree.monotonic is None else int(tree.monotonic[column])
        present = sorted({int(bins[s]) for s in samples})
        if len(present) == 1:
            continue
        if splitter == "best":
            for order in orders(node, bins, missing, is_categorical):
                value = {s: order[int(bins[s])] for s in samples}
                better = best_threshold(node, column, value, min_samples_leaf, best, sign)
                if beats(better[0], best[0]):
                    best, places = better, order
        else:
            order, least = random_order(
                tree, present, key, number, missing, is_categorical, low[column], high[column], dtype
            )
            left_side = {s for s in samples if not order[int(bins[s])]}
            score = score_left(node, left_side, min_samples_leaf, sign)
            if beats(score, best[0]):
                best, places, limit = (score, column, 0, 1), order, least
        number += 1
    score, column, last, _ = best
    if column < 0:
        return None
    gain = node.gain(score)
    bins, missing = tree.bins[column], int(kinds[0][column])
    here, there = (sorted(b for b in places if (places[b] <= last) == left) for left in (True, False))
    seen = int(missing in here) if missing in places else -1
    here, there = ([b for b in side if b != missing] for side in (here, there))

    def goes_left(s):
        b = int(bins[s])
        return None if b == missing else b in here

    if kinds[1][column]:
        categories = ([int(low[column, b]) for b in side] for side in (here, there))
        return Split(column, goes_left, gain, 0.0, seen, *categories)
    if not here or not there:  # missing values against all others
        here, limit, seen = [*here, *there], float(np.finfo(dtype).max), 0
    elif splitter == "best":
        limit = between(high[column, here[-1]], low[column, there[0]], dtype)
    return Split(column, goes_left, gain, limit, seen)


def splits_of_columns(bins, min_samples_leaf, max_features, splitter):
    """Returns the candidate source of columns of bins, and the bins."""
    if bins.stored is not None:
        bins = all_bins(bins)
    codes, low, high, dtype, base, offset, *_ = bins
    kinds = kinds_of(bins)
    if base is not None:
        # Windows: one row of bins and tables for all columns.
        codes = codes[0][offset[:, None] + base]
        low, high = (np.repeat(table, len(offset), axis=0) for table in (low, high))

    def split(node, key):
        return best_column(node, key, low, high, dtype, kinds, max_features, min_samples_leaf, splitter)

    return split, codes


def splits_of_projections(x, distribution, min_samples_leaf, n_projections, splitter):
    """Returns the candidate source of random projections (Perry et al. 2019, Alg. 1)."""
    if isinstance(x, Columns):
        x = all_numbers(x)
    elif isinstance(x, PlacedWindows):
        x = rows_of(x)

    def split(node, key):
        return best_projection(node, key, x, distribution, n_projections, min_samples_leaf, splitter)

    return split
