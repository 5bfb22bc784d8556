"""The reference tree builder: grows trees top-down, node by node, in plain loops (p5; p3 Alg. 1).

A candidate source is a function split(tree, samples, mean, weight, key) that returns None or a tuple: column,
or (indices, data) of a projection; a function that says which samples go left; gain; threshold.
"""

import math

import numpy as np

from ..core.philox import below, keys, philox, unit
from ..core.projections import draw_projection, projection_key
from ..core.scores import node_score

# Streams of the generator.
BOOTSTRAP, CHILDREN, CANDIDATES, THRESHOLD = 1, 2, 3, 4


def tree_key(seed, tree):
    """Returns the key of a tree's root, and of the bootstrap that it draws."""
    return keys(philox(seed, tree, 0))[0]


def add(a, b):
    """Returns the sums of two lists."""
    return [p + q for p, q in zip(a, b, strict=True)]


def between(low, high, dtype):
    """Returns a threshold t with low <= t < high: the mean, or low where the mean rounds to high."""
    t = dtype.type(low / 2 + high / 2)
    return float(t) if low <= t < high else low


class Tree:
    """What all nodes of a tree share."""

    def __init__(self, bins, labels, targets, n_outputs, weight, criterion):
        self.bins, self.labels, self.targets = bins, labels, targets
        self.n_outputs, self.weight, self.criterion = n_outputs, weight, criterion

    def mean(self, samples):
        """Shares of the classes, or the mean target."""
        total, weight = [0.0] * self.n_outputs, 0.0
        for s in samples:
            weight += float(self.weight[s])
            total = add(total, [float(self.weight[s]) * a for a in self.row(s)])
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
        return node_score(self.criterion, left, left_weight) + node_score(
            self.criterion, right, weight - left_weight
        )


def best_threshold(tree, samples, rows, total, weight, column, value, min_samples_leaf, best):
    """Returns the better of `best` and the best split of one candidate (p5 step 2): thresholds lie between
    neighbours of different value (or bin).
    """
    order = sorted(samples, key=lambda s: value[s])  # stable
    left, left_weight = [0.0] * tree.n_outputs, 0.0
    for i in range(len(order) - 1):
        left = add(left, rows[order[i]])
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


def random_threshold(key, number, least, greatest, dtype):
    """Returns the threshold of a node's candidate `number` (Geurts, Ernst and Wehenkel 2006): uniform from
    the least value, and below the greatest.
    """
    threshold = least + unit(philox(key, number, THRESHOLD)) * (greatest - least)
    if not threshold < math.inf:
        threshold = least / 2 + greatest / 2
    threshold = float(dtype.type(threshold))
    return threshold if least <= threshold < greatest else float(least)


def score_left(tree, samples, rows, total, weight, left_side, min_samples_leaf):
    """Returns the score of the split whose left side is a set of samples; -inf if a side is too small."""
    left, left_weight, n_left = [0.0] * tree.n_outputs, 0.0, 0
    for s in samples:
        if s in left_side:
            left, left_weight, n_left = add(left, rows[s]), left_weight + float(tree.weight[s]), n_left + 1
    if min(n_left, len(samples) - n_left) < min_samples_leaf or not weight - left_weight > 0:
        return -math.inf
    return tree.score(left, left_weight, total, weight)


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
    # Where only samples without weight were drawn, the tree takes all.
    return in_bag if (in_bag > 0).any() else weight


def grow_tree(tree, split, limits, dtype, root_key):
    """Returns (feature, threshold, left, gain, value), and the projections by node."""
    max_depth, min_samples_split, min_samples_leaf, min_impurity_decrease = limits
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


def grow_batch(split, codes, learned, batch, dtype, projected):
    """Appends the trees of a batch to `batch.trees`, if `projected` with (indptr, indices, data)."""
    (labels, targets, n_outputs), sample_weight, criterion, limits = learned
    for m in range(batch.n_trees):
        weight = in_bag_weight(sample_weight, batch.counts, m)
        tree = Tree(codes, labels, targets, n_outputs, weight, criterion)
        *arrays, projections = grow_tree(tree, split, limits, dtype, tree_key(batch.seed, batch.first + m))
        if projected:
            entries = [projections.get(v, ([], [])) for v in range(len(arrays[0]))]
            sizes = [len(indices) for indices, _ in entries]
            arrays += [
                np.cumsum([0, *sizes[:-1]], dtype=np.int64),
                np.array([i for indices, _ in entries for i in indices], np.int32),
                np.array([w for _, data in entries for w in data], dtype),
            ]
        batch.trees.append(tuple(arrays))


def split_by_projection(
    tree, samples, mean, weight, key, x, distribution, n_projections, min_samples_leaf, splitter
):
    """Returns the best split of a node's projections, or None."""
    rows = tree.rows(samples, mean)
    total = [0.0] * tree.n_outputs
    for s in samples:
        total = add(total, rows[s])
    base = node_score(tree.criterion, total, weight)
    best, chosen = (-math.inf, -1, 0.0, 0.0), None
    for number in range(n_projections):
        index, factor = draw_projection(distribution, projection_key(key, number))
        values = {}
        for s in samples:
            value = 0.0
            for i, w in zip(index, factor, strict=True):
                value += w * float(x[s, i])
            values[s] = float(x.dtype.type(value))  # rounded once, as hforest.tree does
        if splitter == "best":
            better = best_threshold(
                tree, samples, rows, total, weight, number, values, min_samples_leaf, best
            )
        else:
            least, greatest = min(values.values()) + 0.0, max(values.values())
            if least == greatest:
                continue
            limit = random_threshold(key, number, least, greatest, x.dtype)
            left_side = {s for s in samples if values[s] <= limit}
            score = score_left(tree, samples, rows, total, weight, left_side, min_samples_leaf)
            better = score, number, limit, limit
        if better[0] > best[0]:
            best, chosen = better, (index, factor, values)
    if chosen is None:
        return None
    score, _, low, high = best
    index, factor, values = chosen
    column = index[0] if len(index) == 1 and factor[0] == 1 else (index, factor)  # a feature
    limit = between(low, high, x.dtype) if splitter == "best" else low
    return column, lambda s: values[s] <= low, score - base, limit


def split_by_column(
    tree, samples, mean, weight, key, low, high, dtype, max_features, min_samples_leaf, splitter
):
    """Returns the best split of the features that a node samples, or None."""
    rows = tree.rows(samples, mean)
    total = [0.0] * tree.n_outputs
    for s in samples:
        total = add(total, rows[s])
    base = node_score(tree.criterion, total, weight)
    best, number = (-math.inf, -1, 0, 0.0), 0
    for i, column in enumerate(sampled_features(key, len(tree.bins))):
        if i >= max_features and number:
            break
        present = sorted({int(tree.bins[column, s]) for s in samples})
        if len(present) == 1:
            continue
        if splitter == "best":
            best = best_threshold(
                tree, samples, rows, total, weight, column, tree.bins[column], min_samples_leaf, best
            )
        else:
            least, greatest = high[column, present[0]], low[column, present[-1]]
            limit = random_threshold(key, number, least, greatest, dtype)
            last = max(b for b in present[:-1] if b == present[0] or high[column, b] <= limit)
            left_side = {s for s in samples if tree.bins[column, s] <= last}
            score = score_left(tree, samples, rows, total, weight, left_side, min_samples_leaf)
            if score > best[0]:
                best = score, column, last, limit
        number += 1
    score, column, last, after = best
    if column < 0:
        return None
    limit = between(high[column, last], low[column, after], dtype) if splitter == "best" else after
    return column, lambda s: tree.bins[column, s] <= last, score - base, limit
