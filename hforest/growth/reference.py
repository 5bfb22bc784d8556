"""The law: trees grown top-down, node by node, in plain loops (p5; p3 Alg. 1 with the axes as atoms).

Same functions, parameters and arrays as `cpu`. Criteria are numbers: 0 Gini, 1 entropy, 2 squared error.
"""

import math

import numpy as np

from ..core.atoms import atom_key, draw_atom
from ..core.philox import below, keys, philox, unit
from .trees import joined as join_arrays

ENTROPY = 1
BAG, CHILDREN, CANDIDATES, CUT = 1, 2, 3, 4


def _tree_key(seed, tree):
    return keys(philox(seed, tree, 0))[0]


def draw_bags(seed, first, counts):
    """counts[m] = how often tree first + m draws each sample, n times with replacement."""
    n = counts.shape[1]
    for m, count in enumerate(counts):
        key = _tree_key(seed, first + m)
        count[:] = 0
        for i in range(n):
            count[below(philox(key, i // 4, BAG)[i % 4], n)] += 1


def encode(x, codes, low, high, n_codes):
    """Ranks of the values of each column, or bins where they are more than a row of `low` holds."""
    for f, column in enumerate(x.T.astype(np.float64) + 0.0):
        distinct, counts = np.unique(column, return_counts=True)
        code = np.arange(len(distinct))
        if len(distinct) > low.shape[1]:
            stop = np.cumsum(counts)
            # Where the middle of a value's samples lies, then numbered without gaps.
            wanted = (2 * stop - counts) * low.shape[1] // (2 * len(column))
            code = np.cumsum(np.diff(wanted, prepend=wanted[0]) > 0)
        codes[f] = code[np.searchsorted(distinct, column)]
        n_codes[f] = code[-1] + 1
        for c in range(n_codes[f]):
            low[f, c], high[f, c] = distinct[code == c][[0, -1]]


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


def _purity(criterion, sums, weight):
    # -W H of a branch, but for terms that all splits of a node share.
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


def _between(low, high, real):
    t = real.type(low / 2 + high / 2)
    return float(t) if low <= t < high else low


class _Tree:
    """What all nodes of a tree share."""

    def __init__(self, codes, labels, targets, n_outputs, weight, criterion):
        self.codes, self.labels, self.targets = codes, labels, targets
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
        return _purity(self.criterion, left, left_weight) + _purity(
            self.criterion, right, weight - left_weight
        )


def _best_cut(tree, samples, rows, total, weight, column, value, min_leaf, best):
    # p5 step 2 on one candidate: cuts between neighbours of different value (or code).
    order = sorted(samples, key=lambda s: value[s])  # stable
    left, left_weight = [0.0] * tree.n_outputs, 0.0
    for i in range(len(order) - 1):
        left = _add(left, rows[order[i]])
        left_weight += float(tree.weight[order[i]])
        low, high = (value[order[j]] for j in (i, i + 1))
        if low == high or i + 1 < min_leaf or len(order) - i - 1 < min_leaf or not weight - left_weight > 0:
            continue
        score = tree.score(left, left_weight, total, weight)
        if score > best[0]:
            best = (score, column, low, high)
    return best


def _random_cut(tree, samples, key, column, low, high, real):
    # Completely random trees (p4 section 3): uniform between the least and the greatest value.
    present = sorted({int(tree.codes[column, s]) for s in samples})
    least, greatest = high[column, present[0]], low[column, present[-1]]
    cut = least + unit(philox(key, 0, CUT)) * (greatest - least)
    if not cut < math.inf:
        cut = least / 2 + greatest / 2
    cut = float(real.type(cut))
    if not least <= cut < greatest:
        cut = least
    last = max(c for c in range(present[0], present[-1]) if c == present[0] or high[column, c] <= cut)
    return last, float(cut)


def _candidates(key, n_columns):
    # Without replacement: the first places of a Fisher-Yates shuffle.
    columns = list(range(n_columns))
    for i in range(n_columns):
        other = i + below(philox(key, i // 4, CANDIDATES)[i % 4], n_columns - i)
        columns[i], columns[other] = columns[other], columns[i]
        yield columns[i]


def rows_of(codes):
    """None: the law looks at codes column by column."""


def grow(
    codes, rows, low, high, base, offset, real, labels, targets, n_outputs, weight, criterion, n_drawn,
    max_depth, min_split, min_leaf, min_decrease, completely_random, seed, first, n_trees, bags, trees,
):  # fmt: skip
    """Appends (feature, threshold, left, gain, value) of trees first, ..., first + n_trees - 1 to `trees`."""
    if base is not None:
        # Windows: one row of codes and tables for all columns.
        codes = codes[0][offset[:, None] + base]
        low, high = (np.repeat(table, len(offset), axis=0) for table in (low, high))

    def split(tree, samples, mean, weight, key):
        return _split(tree, samples, mean, weight, key, low, high, real, n_drawn, min_leaf, completely_random)

    limits = (max_depth, min_split, min_leaf, min_decrease)
    for m in range(n_trees):
        tree = _Tree(codes, labels, targets, n_outputs, _bagged(weight, bags, m), criterion)
        *arrays, _ = _grow(tree, split, *limits, real, _tree_key(seed, first + m))
        trees.append(tuple(arrays))


def whole_numbers(x, small):
    """2 if x is whole numbers 0 to 255, now in `small`; 1 if whole numbers; 0 if not, or sums not exact."""
    exact = (x == np.trunc(x)).all() and (np.abs(x).sum(axis=1, dtype=np.float64) <= 2**24).all()
    fits = exact and ((x >= 0) & (x < 256)).all()
    if fits:
        small[...] = x
    return int(exact) + int(fits)


def columns_of(x, whole, small):
    """None: the law looks at x itself."""


def corner_table(x, atoms, table):
    """Sums over all corners of the planes of each sample, of whole numbers, modulo the table's range."""
    planes = np.moveaxis(x.reshape(len(x), *atoms.shape, atoms.channels), 4, 1)
    sums = np.zeros((len(x), atoms.channels, *(size + (axis > 0) for axis, size in enumerate(atoms.shape))))
    sums[:, :, :, 1:, 1:] = planes.cumsum(axis=3).cumsum(axis=4)
    table[...] = sums.reshape(len(x), -1).astype(np.int64).astype(table.dtype)


def grow_projected(
    x, whole, small, columns, table, labels, targets, n_outputs, weight, criterion, atoms, n_drawn, max_depth,
    min_split, min_leaf, min_decrease, seed, first, n_trees, bags, trees,
):  # fmt: skip
    """The same on random projections (p3 Alg. 1), with their (start, index, weight) behind.

    `whole`, `small`, `columns` and `table` are shortcuts; the law adds up x.
    """

    def split(tree, samples, mean, weight, key):
        return _split_projected(tree, samples, mean, weight, key, x, atoms, n_drawn, min_leaf)

    limits = (max_depth, min_split, min_leaf, min_decrease)
    for m in range(n_trees):
        tree = _Tree(None, labels, targets, n_outputs, _bagged(weight, bags, m), criterion)
        *arrays, projections = _grow(tree, split, *limits, x.dtype, _tree_key(seed, first + m))
        start: list[int] = []
        index: list[int] = []
        weights: list[float] = []
        for v in range(len(arrays[0])):
            start.append(len(index))
            entries = projections.get(v, ([], []))
            if len(entries[0]) == 1 and entries[1][0] == 1:
                arrays[0][v] = entries[0][0]  # a feature
            else:
                index += entries[0]
                weights += entries[1]
        trees.append((*arrays, np.array(start), np.array(index, np.int32), np.array(weights, np.float32)))


def _bagged(weight, bags, m):
    bagged = weight if bags is None else weight * bags[m]
    # Where only samples without weight were drawn, the tree takes all.
    return bagged if (bagged > 0).any() else weight


def _grow(tree, split, max_depth, min_split, min_leaf, min_decrease, real, root_key):
    columns: tuple[list[float], ...] = ([-1], [0.0], [0], [0.0])
    feature, threshold, left, gain = columns
    value: list[list[float]] = []
    projections: dict[int, tuple[list[int], list[float]]] = {}
    root = [int(s) for s in np.flatnonzero(tree.weight > 0)]
    opened = [(root, root_key, 0)]
    root_weight = tree.mean(root)[1]
    v = 0
    while v < len(opened):  # breadth-first
        samples, key, depth = opened[v]
        mean, weight = tree.mean(samples)
        pure = all(tree.row(s) == tree.row(samples[0]) for s in samples)
        found = None
        if not (pure or len(samples) < max(2, min_split, 2 * min_leaf) or depth >= max_depth):
            found = split(tree, samples, mean, weight, key)
        if found is None or found[2] / root_weight < min_decrease:
            left[v] = len(value)
            value.append(mean)
        else:
            column, goes_left, decrease, cut = found
            if isinstance(column, tuple):
                projections[v] = column
                column = -2
            sides = [[s for s in samples if goes_left(s) == here] for here in (True, False)]
            feature[v], threshold[v], gain[v], left[v] = column, cut, max(decrease, 0.0), len(feature)
            for side, child in zip(sides, keys(philox(key, 0, CHILDREN)), strict=True):
                opened.append((side, child, depth + 1))
                for a, blank in zip(columns, (-1, 0.0, 0, 0.0), strict=True):
                    a.append(blank)
        v += 1
    return (
        np.array(feature, np.int32), np.array(threshold), np.array(left, np.int32), np.array(gain),
        np.array(value, real).ravel(), projections,
    )  # fmt: skip


def _split_projected(tree, samples, mean, weight, key, x, atoms, n_drawn, min_leaf):
    """((features, weights), which samples go left, gain, threshold), or None."""
    rows = tree.rows(samples, mean)
    total = [0.0] * tree.n_outputs
    for s in samples:
        total = _add(total, rows[s])
    base = _purity(tree.criterion, total, weight)
    best, chosen = (-math.inf, -1, 0.0, 0.0), None
    for number in range(n_drawn):
        index, factor = draw_atom(atoms, atom_key(key, number))
        values = {}
        for s in samples:
            value = 0.0
            for i, w in zip(index, factor, strict=True):
                value += w * float(x[s, i])
            values[s] = float(x.dtype.type(value))  # rounded once, as a walk down the tree does
        better = _best_cut(tree, samples, rows, total, weight, number, values, min_leaf, best)
        if better[0] > best[0]:
            best, chosen = better, (index, factor, values)
    if chosen is None:
        return None
    score, _, low, high = best
    index, factor, values = chosen
    return (index, factor), lambda s: values[s] <= low, score - base, _between(low, high, x.dtype)


def _split(tree, samples, mean, weight, key, low, high, real, n_drawn, min_leaf, completely_random):
    """(column, which samples go left, gain, threshold), or None."""
    rows = tree.rows(samples, mean)
    total = [0.0] * tree.n_outputs
    for s in samples:
        total = _add(total, rows[s])
    base = _purity(tree.criterion, total, weight)
    best, varies = (-math.inf, -1, 0, 0), False
    for i, column in enumerate(_candidates(key, len(tree.codes))):
        if i >= n_drawn and varies:
            break
        if len({int(tree.codes[column, s]) for s in samples}) == 1:
            continue
        varies = True
        if completely_random:
            last, cut = _random_cut(tree, samples, key, column, low, high, real)
            return _scored(tree, samples, rows, total, weight, base, column, last, cut, min_leaf)
        best = _best_cut(tree, samples, rows, total, weight, column, tree.codes[column], min_leaf, best)
    score, column, last, after = best
    if column < 0:
        return None
    cut = _between(high[column, last], low[column, after], real)
    return column, lambda s: tree.codes[column, s] <= last, score - base, cut


def _scored(tree, samples, rows, total, weight, base, column, last, cut, min_leaf):
    left, left_weight, n_left = [0.0] * tree.n_outputs, 0.0, 0
    for s in samples:
        if tree.codes[column, s] <= last:
            left, left_weight, n_left = _add(left, rows[s]), left_weight + float(tree.weight[s]), n_left + 1
    if min(n_left, len(samples) - n_left) < min_leaf or not weight - left_weight > 0:
        return None
    gain = tree.score(left, left_weight, total, weight) - base
    return column, lambda s: tree.codes[column, s] <= last, gain, cut


def joined(trees, n_outputs, real, projected):
    """Trees one after another: see `trees.joined`."""
    return join_arrays(trees, n_outputs, real, projected)
