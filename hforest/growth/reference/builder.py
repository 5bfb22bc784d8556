"""The reference tree builder: grows trees top-down, node by node, in plain loops (Don't Get Lost in the
Forest; Perry et al. 2019, Alg. 1).

A candidate source is a function split(node, key) that returns None or a `Split`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...core.defaults import default_left, draws_missing_left, sends_missing_left, sends_unknown_left
from ...core.launch import numbers
from ...core.philox import CANDIDATES, CHILDREN, DIRECTION, THRESHOLD, below, keys, philox, unit
from ...core.projections import draw_projection
from ...core.scores import beats, node_score, sum_of_squares
from ..trees import GrownTree
from .leaves import LEAF_TOTALS, add_to_leaf, leaf_of_classes, leaf_of_targets
from .units import (
    Unit,
    are_whole,
    distance,
    is_narrow,
    means,
    spread_of,
    sums_of,
    unit_of_labels,
    unit_of_targets,
    with_samples,
)  # fmt: skip

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


def tree_key(seed, tree):
    """Returns the key of a tree's root and of its bootstrap."""
    return keys(philox(seed, tree, 0))[0]


def between(low, high, dtype):
    """Returns a threshold t with low <= t < high: the mean, or low if the mean rounds to high."""
    t = dtype.type(low / 2 + high / 2)
    return float(t) if low <= t < high else low


class Tree:
    """Data that all nodes of a tree share."""

    def __init__(self, bins, labels, targets, n_outputs, weight, criterion):
        self.bins, self.labels, self.n_outputs, self.criterion = bins, labels, n_outputs, criterion
        self.targets = None if targets is None else [[float(t) for t in row] for row in targets]
        self.weight = weight
        self.whole = are_whole([float(w) for w in weight if w > 0])
        self.least_weight = 0.0
        """Minimum weight of a side of a split."""

    @property
    def is_ordered(self):
        """Returns whether an order of categories has their best split (Fisher 1958; Breiman et al. 1984)."""
        return self.n_outputs <= (1 if self.targets is not None else 2)

    def unit_of(self, samples):
        """Returns a unit that is made from the samples of a node."""
        weight = {s: float(self.weight[s]) for s in samples}
        if self.targets is None:
            return unit_of_labels(weight, self.whole)
        return unit_of_targets(weight, self.targets, self.n_outputs, self.whole)

    def is_pure(self, samples):
        """Returns whether all samples have the same class, or the same targets."""
        y = self.labels if self.targets is None else self.targets
        return all(y[s] == y[samples[0]] for s in samples)


class Node:
    """Samples of a node, and their sums in a unit."""

    def __init__(self, tree, samples, unit):
        self.tree, self.samples = tree, samples
        u = {s: unit.u[s] for s in samples}
        spread = 0.0
        if tree.targets is not None:
            q = {s: unit.q[s] for s in samples}
            spread = spread_of(q, u, tree.n_outputs, tree.whole)
        if is_narrow(unit, spread, float(max(u.values()))):
            unit = tree.unit_of(samples)
        self.unit = unit
        self.total, self.u = self.sums(samples)
        self.mean = means(self.total, self.u)
        self.weight = self.weight_of(self.u)

    def weight_of(self, u):
        """Returns a weight, given in the unit."""
        return math.ldexp(float(u), -self.unit.m)

    def row(self, s):
        """Returns the terms of a sample by class or output, in the unit."""
        if self.tree.targets is not None:
            return self.unit.q[s]
        return [self.unit.u[s] * (self.tree.labels[s] == k) for k in range(self.tree.n_outputs)]

    def sums(self, samples):
        """Returns the sums of samples by class or output, and their weight, in the unit."""
        return sums_of(map(self.row, samples), self.tree.n_outputs), sum(self.unit.u[s] for s in samples)

    def terms(self, sums, u):
        """Returns sums of a branch as float64: weights of classes, or distances from the node's means."""
        if self.tree.targets is None:
            return [self.weight_of(a) for a in sums]
        return [distance(a, u, mean) for a, mean in zip(sums, self.mean, strict=True)]

    def branch_score(self, sums, u):
        """Returns the score of a branch."""
        terms = self.terms(sums, u)
        if self.tree.targets is None:
            return node_score(self.tree.criterion, terms, self.weight_of(u))
        return sum_of_squares(terms) / float(u)

    def split_score(self, left, left_u):
        """Returns the score of a split, given the sums on the left; -inf if a side has too little weight."""
        right, right_u = [a - b for a, b in zip(self.total, left, strict=True)], self.u - left_u
        if min(self.weight_of(left_u), self.weight_of(right_u)) < self.tree.least_weight:
            return -math.inf
        return self.branch_score(left, left_u) + self.branch_score(right, right_u)

    def gain(self, score):
        """Returns the decrease of the impurity by a split."""
        if self.tree.targets is None:
            return score - self.branch_score(self.total, self.u)
        return float(np.ldexp(score, self.unit.m - 2 * self.unit.k))

    def leaf_value(self):
        """Returns the row of the leaf; the totals of targets are in a unit of its own."""
        if self.tree.targets is None:
            return leaf_of_classes(self.total)
        unit, totals = self.tree.unit_of(self.samples), []
        for j in range(self.tree.n_outputs):
            totals.append([0] * LEAF_TOTALS)
            for s in self.samples:
                totals[j] = add_to_leaf(totals[j], unit.q[s][j], unit.u[s])
        return leaf_of_targets(totals, unit.c, unit.k, unit.m)


def best_threshold(node, column, value, min_samples_leaf, best):
    """Returns the better of `best` and the best split of one candidate (Don't Get Lost in the Forest,
    step 2): thresholds lie between neighbours of different value (or bin).
    """
    order = sorted(node.samples, key=lambda s: value[s])  # stable
    left, left_u = [0] * node.tree.n_outputs, 0
    for i in range(len(order) - 1):
        left = [a + b for a, b in zip(left, node.row(order[i]), strict=True)]
        left_u += node.unit.u[order[i]]
        low, high = (value[order[j]] for j in (i, i + 1))
        if low == high or i + 1 < min_samples_leaf or len(order) - i - 1 < min_samples_leaf:
            continue
        score = node.split_score(left, left_u)
        if beats(score, best[0]):
            best = (score, column, low, high)
    return best


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


def random_threshold(key, number, least, greatest, dtype):
    """Returns a random threshold of a node's candidate `number` (Geurts, Ernst and Wehenkel 2006).

    It is uniform from the least value to below the greatest.
    """
    threshold = least + unit(philox(key, number, THRESHOLD)) * (greatest - least)
    if not threshold < math.inf:
        threshold = least / 2 + greatest / 2
    threshold = float(dtype.type(threshold))
    return threshold if least <= threshold < greatest else float(least)


def score_left(node, left_side, min_samples_leaf):
    """Returns the score of the split whose left side is a set of samples; -inf if a side is too small."""
    left = [s for s in node.samples if s in left_side]
    if min(len(left), len(node.samples) - len(left)) < min_samples_leaf:
        return -math.inf
    return node.split_score(*node.sums(left))


def sampled_features(key, n_columns):
    """Yields features without replacement: the first places of a Fisher-Yates shuffle."""
    columns = list(range(n_columns))
    for i in range(n_columns):
        other = i + below(philox(key, i // 4, CANDIDATES)[i % 4], n_columns - i)
        columns[i], columns[other] = columns[other], columns[i]
        yield columns[i]


def in_bag_weight(weight, counts, m):
    """Returns the weights of the samples in tree m of a batch."""
    in_bag = weight if counts is None else weight * counts[m]
    # If it drew only samples of weight 0, the tree takes all.
    return in_bag if (in_bag > 0).any() else weight


def grow_tree(tree, split, limits, dtype, root, scale, projected, has_defaults):
    """Returns a tree.

    root: the key of its root, its depth, the weight of the whole tree, or None if this is one, and the unit
    of the root, or None if its samples make it. scale: gains are multiplied by 2**scale.
    """
    max_depth, min_samples_split, min_samples_leaf, min_impurity_decrease, min_weight_fraction_leaf = limits
    columns: tuple[list[float], ...] = ([-1], [0.0], [0], [0.0])
    feature, threshold, left, gain = columns
    values: list[list[float]] = []
    projections: dict[int, tuple[list[int], list[float]]] = {}
    defaults: dict[int, int] = {}
    sets: dict[int, list[int]] = {}
    root_key, root_depth, root_weight, unit = root
    samples = [int(s) for s in np.flatnonzero(tree.weight > 0)]
    if unit is None:
        unit = tree.unit_of(samples)
    else:
        unit = with_samples(unit, {s: float(tree.weight[s]) for s in samples}, tree.targets)
    if root_weight is None:
        root_weight = Node(tree, samples, unit).weight
    pending = [(samples, root_key, root_depth, unit)]
    tree.least_weight = min_weight_fraction_leaf * root_weight
    least_size = max(2, min_samples_split, 2 * min_samples_leaf)
    v = 0
    while v < len(pending):  # breadth-first
        samples, key, depth, unit = pending[v]
        node, best = Node(tree, samples, unit), None
        if not (tree.is_pure(samples) or len(samples) < least_size or depth >= max_depth):
            best = split(node, key)
        if best is None or best.gain / root_weight < min_impurity_decrease:
            left[v] = len(values)
            values.append(node.leaf_value())
        else:
            column = best.column
            if isinstance(column, tuple):
                projections[v] = column
                column = -2
            left_side, right_side, missing = (
                [s for s in samples if best.goes_left(s) == here] for here in (True, False, None)
            )
            bits = default_left(best.seen, len(left_side), len(right_side), len(missing))
            left_side += missing if sends_missing_left(bits) else []
            sides = sorted(left_side), sorted({*samples} - {*left_side})
            feature[v], threshold[v] = column, best.threshold
            gain[v] = float(np.ldexp(max(best.gain, 0.0), scale))
            left[v] = len(feature)
            defaults[v] = bits
            if best.categories is not None:
                sets[v] = bit_set(best.categories, best.others, sends_unknown_left(bits))
            for side, child in zip(sides, keys(philox(key, 0, CHILDREN)), strict=True):
                pending.append((side, child, depth + 1, node.unit))
                for a, blank in zip(columns, (-1, 0.0, 0, 0.0), strict=True):
                    a.append(blank)
        v += 1
    grown = GrownTree(
        feature=np.array(feature, np.int32), threshold=np.array(threshold), left=np.array(left, np.int32),
        gain=np.array(gain), value=np.array(values, dtype).ravel(),
    )  # fmt: skip
    nodes = range(len(feature))
    if projected:
        entries = [projections.get(v, ([], [])) for v in nodes]
        grown = grown._replace(
            first_entry=np.cumsum([0, *(len(indices) for indices, _ in entries[:-1])], dtype=np.int64),
            indices=np.array([i for indices, _ in entries for i in indices], np.int32),
            data=np.array([w for _, data in entries for w in data], dtype),
        )
    if has_defaults:
        grown = grown._replace(
            default_left=np.array([defaults.get(v, 0) for v in nodes], np.uint8),
            n_words=np.array([len(sets.get(v, [])) for v in nodes], np.int64),
            words=np.array([word for v in nodes for word in sets.get(v, [])], np.uint32),
        )
    return grown


def bit_set(here: list[int], there: list[int], others: bool) -> list[int]:
    """Returns the words of a set of categories: it contains `here` and not `there`.

    It contains other categories, up to the last word, if `others`.
    """
    words = [0xFFFFFFFF if others else 0] * (max(here + there) // 32 + 1)
    for c in here:
        words[c // 32] |= 1 << c % 32
    for c in there:
        words[c // 32] &= ~(1 << c % 32)
    return words


def root_unit(roots, m):
    """Returns the unit of a node of another tree, without samples; None for labels."""
    if roots.unit is None:
        return None
    c, k, spread, heaviest = (a[m].tolist() for a in roots.unit)
    return Unit(c, k, 0, {}, {}, spread, heaviest)


def grow_batch(split, codes, objective, batch, dtype, projected, has_defaults):
    """Appends the trees of a batch to `batch.trees`.

    projected, has_defaults: whether they have projections, and routes of missing values and categories.
    """
    (labels, targets, n_outputs), sample_weight, criterion, limits, scale = objective
    for m in range(batch.n_trees):
        root: tuple[int, int, float | None, Unit | None]
        if batch.roots is None:
            weight = in_bag_weight(sample_weight, batch.counts, m)
            root = tree_key(batch.seed, batch.first + m), 0, None, None
        else:
            roots = batch.roots
            inside = np.zeros(len(sample_weight), bool)
            inside[roots.indptr[m] : roots.indptr[m + 1]] = True
            weight = np.where(inside, sample_weight, 0)
            root = int(roots.key[m]), int(roots.depth[m]), float(roots.weight[m]), root_unit(roots, m)
        of_labels, of_targets = labels, targets
        if batch.order is not None:
            of_labels, of_targets = (None if a is None else a[batch.order[m]] for a in (labels, targets))
        tree = Tree(codes, of_labels, of_targets, n_outputs, weight, criterion)
        batch.trees.append(grow_tree(tree, split, limits, dtype, root, scale, projected, has_defaults))


def split_by_projection(node, key, x, distribution, n_projections, min_samples_leaf, splitter):
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


def split_by_column(node, key, low, high, dtype, kinds, max_features, min_samples_leaf, splitter):
    """Returns the best split of the features that a node samples, or None.

    kinds: the bin of missing values of each column, -1 without, and whether it holds categories.
    """
    tree, samples = node.tree, node.samples
    best, number, places, limit = (-math.inf, -1, 0, 0.0), 0, {}, 0.0
    for i, column in enumerate(sampled_features(key, len(tree.bins))):
        if i >= max_features and number:
            break
        bins, missing, is_categorical = tree.bins[column], int(kinds[0][column]), bool(kinds[1][column])
        present = sorted({int(bins[s]) for s in samples})
        if len(present) == 1:
            continue
        if splitter == "best":
            for order in orders(node, bins, missing, is_categorical):
                value = {s: order[int(bins[s])] for s in samples}
                better = best_threshold(node, column, value, min_samples_leaf, best)
                if beats(better[0], best[0]):
                    best, places = better, order
        else:
            order, least = random_order(
                tree, present, key, number, missing, is_categorical, low[column], high[column], dtype
            )
            left_side = {s for s in samples if not order[int(bins[s])]}
            score = score_left(node, left_side, min_samples_leaf)
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
