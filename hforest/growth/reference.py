"""Reference implementation: trees grown top-down, node by node, in plain loops (p5; p3 Alg. 1).

Same functions, parameters and arrays as `cpu`. Criteria are numbers: 0 Gini, 1 entropy, 2 squared error.
"""

import math

import numpy as np

from ..core.philox import below, keys, philox, unit
from ..core.projections import draw_projection, projection_key
from .trees import joined as join_arrays

ENTROPY = 1
# Streams of the generator.
BOOTSTRAP, CHILDREN, CANDIDATES, THRESHOLD = 1, 2, 3, 4


def _tree_key(seed, tree):
    return keys(philox(seed, tree, 0))[0]


def bootstrap_counts(seed, first, counts):
    """Writes to counts[m] (OUT) how often tree first + m draws each sample, n times with replacement."""
    n = counts.shape[1]
    for m, count in enumerate(counts):
        key = _tree_key(seed, first + m)
        count[:] = 0
        for i in range(n):
            count[below(philox(key, i // 4, BOOTSTRAP)[i % 4], n)] += 1


def encode(x, bins, low, high, n_bins):
    """Writes the rank of each value in its column, or its bin where ranks are more than a row of `low` holds.

    x (n, n_columns): IN. bins (n_columns, n) uint32, low and high (n_columns, max_bins) float64 and n_bins
    (n_columns,) int64: OUT.
    """
    for f, column in enumerate(x.T.astype(np.float64) + 0.0):
        distinct, counts = np.unique(column, return_counts=True)
        bin_of = np.arange(len(distinct))
        if len(distinct) > low.shape[1]:
            stop = np.cumsum(counts)
            # The bin where the middle of a value's samples lies; then bins are numbered without gaps.
            wanted = (2 * stop - counts) * low.shape[1] // (2 * len(column))
            bin_of = np.cumsum(np.diff(wanted, prepend=wanted[0]) > 0)
        bins[f] = bin_of[np.searchsorted(distinct, column)]
        n_bins[f] = bin_of[-1] + 1
        for b in range(n_bins[f]):
            low[f, b], high[f, b] = distinct[bin_of == b][[0, -1]]


def _log2(a):
    # As hforest/core/score.h has it, for the same bits.
    m, e = math.frexp(a)
    if m < 0.70710678118654752:
        m, e = 2 * m, e - 1
    s = (m - 1) / (m + 1)
    q = s * s
    total = 1.0 / 23
    for k in range(21, 0, -2):
        total = total * q + 1.0 / k
    return e + s * total * 2.8853900817779268


def _xlogx(a):
    return a * _log2(a) if a > 0 else 0.0


def _node_score(criterion, sums, weight):
    # -W H of a branch, without terms that all splits of a node share.
    total = 0.0
    if criterion == ENTROPY:
        for c in sums:
            total += _xlogx(c)
        return total - _xlogx(weight)
    for c in sums:
        total += c * c
    return total / weight


def _add(a, b):
    return [p + q for p, q in zip(a, b, strict=True)]


def _between(low, high, dtype):
    t = dtype.type(low / 2 + high / 2)
    return float(t) if low <= t < high else low


class _Tree:
    """What all nodes of a tree share."""

    def __init__(self, bins, labels, targets, n_outputs, weight, criterion):
        self.bins, self.labels, self.targets = bins, labels, targets
        self.n_outputs, self.weight, self.criterion = n_outputs, weight, criterion

    def mean(self, samples):
        """Shares of the classes, or the mean target."""
        total, weight = [0.0] * self.n_outputs, 0.0
        for s in samples:
            weight += float(self.weight[s])
            total = _add(total, [float(self.weight[s]) * a for a in self.row(s)])
        return [a / weight for a in total], weight

    def row(self, s):
        if self.targets is not None:
            return [float(a) for a in self.targets[s]]
        return [float(self.labels[s] == k) for k in range(self.n_outputs)]

    def rows(self, samples, mean):
        """What each sample adds to sums: its weight at its class, or its weighted distance from the mean."""
        centre = mean if self.targets is not None else [0.0] * self.n_outputs
        return {
            s: [float(self.weight[s]) * (a - c) for a, c in zip(self.row(s), centre, strict=True)]
            for s in samples
        }

    def score(self, left, left_weight, total, weight):
        right = [a - b for a, b in zip(total, left, strict=True)]
        return _node_score(self.criterion, left, left_weight) + _node_score(
            self.criterion, right, weight - left_weight
        )


def _best_split(tree, samples, rows, total, weight, column, value, min_samples_leaf, best):
    # p5 step 2 on one candidate: thresholds between neighbours of different value (or bin).
    order = sorted(samples, key=lambda s: value[s])  # stable
    left, left_weight = [0.0] * tree.n_outputs, 0.0
    for i in range(len(order) - 1):
        left = _add(left, rows[order[i]])
        left_weight += float(tree.weight[order[i]])
        low, high = (value[order[j]] for j in (i, i + 1))
        if (
            low == high
            or i + 1 < min_samples_leaf
            or len(order) - i - 1 < min_samples_leaf
            or not weight - left_weight > 0
        ):
            continue
        score = tree.score(left, left_weight, total, weight)
        if score > best[0]:
            best = (score, column, low, high)
    return best


def _random_split(tree, samples, key, column, low, high, dtype):
    # Completely random trees (Zhou and Feng 2017): uniform between the least and the greatest value.
    present = sorted({int(tree.bins[column, s]) for s in samples})
    least, greatest = high[column, present[0]], low[column, present[-1]]
    threshold = least + unit(philox(key, 0, THRESHOLD)) * (greatest - least)
    if not threshold < math.inf:
        threshold = least / 2 + greatest / 2
    threshold = float(dtype.type(threshold))
    if not least <= threshold < greatest:
        threshold = least
    last = max(b for b in range(present[0], present[-1]) if b == present[0] or high[column, b] <= threshold)
    return last, float(threshold)


def _candidates(key, n_columns):
    # Without replacement: the first places of a Fisher-Yates shuffle.
    columns = list(range(n_columns))
    for i in range(n_columns):
        other = i + below(philox(key, i // 4, CANDIDATES)[i % 4], n_columns - i)
        columns[i], columns[other] = columns[other], columns[i]
        yield columns[i]


def rows_of(bins):
    """None: the reference implementation reads bins by columns."""


def grow(
    bins, rows, low, high, base, offset, dtype, labels, targets, n_outputs, sample_weight, criterion,
    max_features, max_depth, min_samples_split, min_samples_leaf, min_impurity_decrease, completely_random,
    seed, first, n_trees, counts, trees,
):  # fmt: skip
    """Appends (feature, threshold, left, gain, value) of trees first, ..., first + n_trees - 1 to `trees`."""
    if base is not None:
        # Windows: one row of bins and tables for all columns.
        bins = bins[0][offset[:, None] + base]
        low, high = (np.repeat(table, len(offset), axis=0) for table in (low, high))

    def split(tree, samples, mean, weight, key):
        return _split(
            tree, samples, mean, weight, key, low, high, dtype, max_features, min_samples_leaf,
            completely_random,
        )  # fmt: skip

    limits = (max_depth, min_samples_split, min_samples_leaf, min_impurity_decrease)
    for m in range(n_trees):
        tree = _Tree(bins, labels, targets, n_outputs, _in_bag_weight(sample_weight, counts, m), criterion)
        *arrays, _ = _grow(tree, split, *limits, dtype, _tree_key(seed, first + m))
        trees.append(tuple(arrays))


def whole_numbers(x, small):
    """Returns 2 if x is whole numbers 0 to 255, written to `small` (OUT); 1 if x is whole numbers whose sums
    float32
    holds exactly; else 0.
    """
    exact = (x == np.trunc(x)).all() and (np.abs(x).sum(axis=1, dtype=np.float64) <= 2**24).all()
    fits = exact and ((x >= 0) & (x < 256)).all()
    if fits:
        small[...] = x
    return int(exact) + int(fits)


def columns_of(x, whole, small):
    """None: the reference implementation reads x itself."""


def corner_table(x, distribution, table):
    """Writes to `table` (OUT) the sums over all corners of the planes of each sample: of whole numbers,
    modulo the
    table's range.
    """
    planes = np.moveaxis(x.reshape(len(x), *distribution.shape, distribution.channels), 4, 1)
    sums = np.zeros(
        (len(x), distribution.channels, *(size + (axis > 0) for axis, size in enumerate(distribution.shape)))
    )
    sums[:, :, :, 1:, 1:] = planes.cumsum(axis=3).cumsum(axis=4)
    table[...] = sums.reshape(len(x), -1).astype(np.int64).astype(table.dtype)


def grow_projected(
    x, whole, small, columns, table, labels, targets, n_outputs, sample_weight, criterion, distribution,
    n_projections, max_depth, min_samples_split, min_samples_leaf, min_impurity_decrease, seed, first,
    n_trees, counts, trees,
):  # fmt: skip
    """Appends trees on random projections (p3 Alg. 1): as `grow`, then (indptr, indices, data) of their
    projections.

    `whole`, `small`, `columns` and `table` are shortcuts; the reference implementation adds up x.
    """

    def split(tree, samples, mean, weight, key):
        return _split_projected(
            tree, samples, mean, weight, key, x, distribution, n_projections, min_samples_leaf
        )

    limits = (max_depth, min_samples_split, min_samples_leaf, min_impurity_decrease)
    for m in range(n_trees):
        tree = _Tree(None, labels, targets, n_outputs, _in_bag_weight(sample_weight, counts, m), criterion)
        *arrays, projections = _grow(tree, split, *limits, x.dtype, _tree_key(seed, first + m))
        indptr: list[int] = []
        indices: list[int] = []
        data: list[float] = []
        for v in range(len(arrays[0])):
            indptr.append(len(indices))
            entries = projections.get(v, ([], []))
            if len(entries[0]) == 1 and entries[1][0] == 1:
                arrays[0][v] = entries[0][0]  # a feature
            else:
                indices += entries[0]
                data += entries[1]
        trees.append((*arrays, np.array(indptr), np.array(indices, np.int32), np.array(data, np.float32)))


def _in_bag_weight(weight, counts, m):
    in_bag = weight if counts is None else weight * counts[m]
    # Where only samples without weight were drawn, the tree takes all.
    return in_bag if (in_bag > 0).any() else weight


def _grow(
    tree, split, max_depth, min_samples_split, min_samples_leaf, min_impurity_decrease, dtype, root_key
):
    columns: tuple[list[float], ...] = ([-1], [0.0], [0], [0.0])
    feature, threshold, left, gain = columns
    value: list[list[float]] = []
    projections: dict[int, tuple[list[int], list[float]]] = {}
    root = [int(s) for s in np.flatnonzero(tree.weight > 0)]
    pending = [(root, root_key, 0)]
    root_weight = tree.mean(root)[1]
    v = 0
    while v < len(pending):  # breadth-first
        samples, key, depth = pending[v]
        mean, weight = tree.mean(samples)
        pure = all(tree.row(s) == tree.row(samples[0]) for s in samples)
        found = None
        if not (pure or len(samples) < max(2, min_samples_split, 2 * min_samples_leaf) or depth >= max_depth):
            found = split(tree, samples, mean, weight, key)
        if found is None or found[2] / root_weight < min_impurity_decrease:
            left[v] = len(value)
            value.append(mean)
        else:
            column, goes_left, decrease, limit = found
            if isinstance(column, tuple):
                projections[v] = column
                column = -2
            sides = [[s for s in samples if goes_left(s) == here] for here in (True, False)]
            feature[v], threshold[v], gain[v], left[v] = column, limit, max(decrease, 0.0), len(feature)
            for side, child in zip(sides, keys(philox(key, 0, CHILDREN)), strict=True):
                pending.append((side, child, depth + 1))
                for a, blank in zip(columns, (-1, 0.0, 0, 0.0), strict=True):
                    a.append(blank)
        v += 1
    return (
        np.array(feature, np.int32), np.array(threshold), np.array(left, np.int32), np.array(gain),
        np.array(value, dtype).ravel(), projections,
    )  # fmt: skip


def _split_projected(tree, samples, mean, weight, key, x, distribution, n_projections, min_samples_leaf):
    """((features, weights), which samples go left, gain, threshold), or None."""
    rows = tree.rows(samples, mean)
    total = [0.0] * tree.n_outputs
    for s in samples:
        total = _add(total, rows[s])
    base = _node_score(tree.criterion, total, weight)
    best, chosen = (-math.inf, -1, 0.0, 0.0), None
    for number in range(n_projections):
        index, factor = draw_projection(distribution, projection_key(key, number))
        values = {}
        for s in samples:
            value = 0.0
            for i, w in zip(index, factor, strict=True):
                value += w * float(x[s, i])
            values[s] = float(x.dtype.type(value))  # rounded once, as hforest.tree does
        better = _best_split(tree, samples, rows, total, weight, number, values, min_samples_leaf, best)
        if better[0] > best[0]:
            best, chosen = better, (index, factor, values)
    if chosen is None:
        return None
    score, _, low, high = best
    index, factor, values = chosen
    return (index, factor), lambda s: values[s] <= low, score - base, _between(low, high, x.dtype)


def _split(
    tree, samples, mean, weight, key, low, high, dtype, max_features, min_samples_leaf, completely_random
):
    """(column, which samples go left, gain, threshold), or None."""
    rows = tree.rows(samples, mean)
    total = [0.0] * tree.n_outputs
    for s in samples:
        total = _add(total, rows[s])
    base = _node_score(tree.criterion, total, weight)
    best, varies = (-math.inf, -1, 0, 0), False
    for i, column in enumerate(_candidates(key, len(tree.bins))):
        if i >= max_features and varies:
            break
        if len({int(tree.bins[column, s]) for s in samples}) == 1:
            continue
        varies = True
        if completely_random:
            last, limit = _random_split(tree, samples, key, column, low, high, dtype)
            return _scored(tree, samples, rows, total, weight, base, column, last, limit, min_samples_leaf)
        best = _best_split(
            tree, samples, rows, total, weight, column, tree.bins[column], min_samples_leaf, best
        )
    score, column, last, after = best
    if column < 0:
        return None
    limit = _between(high[column, last], low[column, after], dtype)
    return column, lambda s: tree.bins[column, s] <= last, score - base, limit


def _scored(tree, samples, rows, total, weight, base, column, last, limit, min_samples_leaf):
    left, left_weight, n_left = [0.0] * tree.n_outputs, 0.0, 0
    for s in samples:
        if tree.bins[column, s] <= last:
            left, left_weight, n_left = _add(left, rows[s]), left_weight + float(tree.weight[s]), n_left + 1
    if min(n_left, len(samples) - n_left) < min_samples_leaf or not weight - left_weight > 0:
        return None
    gain = tree.score(left, left_weight, total, weight) - base
    return column, lambda s: tree.bins[column, s] <= last, gain, limit


def joined(trees, n_outputs, dtype, projected):
    """Returns the arrays of trees: see `trees.joined`."""
    return join_arrays(trees, n_outputs, dtype, projected)
