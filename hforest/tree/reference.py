"""Reference implementation: forests applied to samples, node by node.

Functions, parameters and arrays are those of `cpu` and `gpu`. Node v of tree m is at tree_start[m] + v. A
leaf has feature -1, and `left` is its row among the tree's leaf values. A split has a feature, or feature -2
and the projection indptr[v]:indptr[v + 1] of (indices, data). A value `<= threshold` goes to node `left`,
others to node `left + 1`; `goes_right` routes missing values and categories.
"""

import itertools
import math

import numpy as np

from ..core.in_place import PlacedWindows
from ..core.sparse import Compressed
from .forest import goes_right


def _candidate(row, at, forest):
    # Perry et al. 2019, section 2.3: a split compares a projection of the sample; a unit vector (a feature)
    # costs no sum.
    if forest.feature[at] >= 0:
        return row[forest.feature[at]]
    total = 0.0
    for j in range(forest.indptr[at], forest.indptr[at + 1]):
        total += float(forest.data[j]) * float(row[forest.indices[j]])
    return row.dtype.type(total)


def _rows(x):
    if isinstance(x, PlacedWindows):
        numbers = x.x.ravel()
        return (numbers[base + x.offset] for base in x.base)
    if not isinstance(x, Compressed):
        return x
    numbers = np.zeros(x.shape, x.data.dtype)
    for i, row in enumerate(numbers):
        for e in range(x.indptr[i], x.indptr[i + 1]):
            row[x.indices[e]] = x.data[e]
    return numbers


def apply(x, forest, leaf):
    """Writes the leaf that each sample reaches in each tree, numbered within the tree."""
    for i, row in enumerate(_rows(x)):
        for m, root in enumerate(forest.tree_start[:-1]):
            v = 0
            while forest.feature[root + v] != -1:
                at = root + v
                v = int(forest.left[at]) + int(goes_right(forest, at, _candidate(row, at, forest)))
            leaf[i, m] = v


def predict(x, forest, vote, y):
    """Writes the mean over trees of the leaf values, or the share of the trees that vote for each class."""
    tree_start, left, value = forest.tree_start, forest.left, forest.value
    n_trees = len(tree_start) - 1
    leaf = np.empty((len(y), n_trees), np.int32)
    apply(x, forest, leaf)
    for i in range(len(y)):
        total = np.zeros(value.shape[1])
        for m, root in enumerate(tree_start[:-1]):
            # A tree of N nodes has (N + 1) / 2 leaves.
            row = value[(root + m) // 2 + left[root + leaf[i, m]]].astype(np.float64)
            total += np.eye(len(row))[row.argmax()] if vote else row
        y[i] = total / n_trees


def faults(forest, first):
    """Writes the first node with a fault, or -1, to first[0]; the number of the fault, or 0, to first[1].

    A node has a fault if a walk could leave the tree or x there, or if it has two parents or none.
    """
    first[0], first[1], feature, left = -1, 0, forest.feature, forest.left
    for root, stop in itertools.pairwise(forest.tree_start):
        n_nodes = int(stop - root)
        n_parents = [1] + [0] * (n_nodes - 1)  # The root has no parent.
        for v in range(n_nodes):
            at = int(root + v)
            first[1] = _fault(at, v, n_nodes, forest)
            if not first[1] and n_parents[v] != 1:
                # Parents come before their children: all parents of v have been counted.
                first[1] = 7 if n_parents[v] else 8
            if first[1]:
                first[0] = at
                return
            if feature[at] != -1:
                n_parents[left[at]] += 1
                n_parents[left[at] + 1] += 1


def _fault(at, v, n_nodes, forest):
    indptr, indices, n_features = forest.indptr, forest.indices, int(forest.n_features)
    f, to = int(forest.feature[at]), int(forest.left[at])
    if f == -1:
        return 0 if 0 <= to < (n_nodes + 1) // 2 else 1
    # Children come after their parent: no cycles.
    if not v < to < n_nodes - 1:
        return 2
    if math.isnan(forest.threshold[at]):
        return 3
    if f == -2 and len(indptr):
        first, last = int(indptr[at]), int(indptr[at + 1])
        if not 0 <= first <= last <= len(indices):
            return 5
        return 0 if all(0 <= i < n_features for i in indices[first:last]) else 6
    return 0 if 0 <= f < n_features else 4


# ------------------------------------------------------------------------------------- members of leaves


def group(leaf, tree_start, indptr, member):
    """Writes the samples of each node in ascending order, and where those of each node begin."""
    of_node: list[list[int]] = [[] for _ in range(len(indptr) - 1)]
    for i, row in enumerate(leaf):
        for m, v in enumerate(row):
            if v >= 0:
                of_node[tree_start[m] + v].append(i)
    indptr[0] = 0
    for v, samples in enumerate(of_node):
        indptr[v + 1] = indptr[v] + len(samples)
        member[indptr[v] : indptr[v + 1]] = samples


def _weights(row, tree_start, indptr, member, weight, equal_trees):
    # Meinshausen 2006, eq. 4 and 5, without 1 / n_trees: the weight of each member, by its number.
    total: dict[int, float] = {}
    for m, v in enumerate(row):
        if v < 0:
            continue
        entries = range(int(indptr[tree_start[m] + v]), int(indptr[tree_start[m] + v + 1]))
        of_leaf = 0.0
        for j in entries:
            of_leaf += float(weight[j]) if len(weight) else 1.0
        for j in entries:
            w = float(weight[j]) if len(weight) else 1.0
            total[int(member[j])] = total.get(int(member[j]), 0.0) + (w / of_leaf if equal_trees else w)
    return total


def _quantile(numbers, weights, level, equal_trees):
    # numbers in ascending order.
    totals = list(itertools.accumulate(weights))
    if equal_trees:
        # Meinshausen 2006, eq. 1 and 6: the least y with F(y | x) >= level.
        return next(y for y, total in zip(numbers, totals, strict=True) if total / totals[-1] >= level)
    # Each number as often as its whole weight says, in ascending order; between neighbours linearly.
    place = (totals[-1] - 1.0) * level
    whole = math.floor(place)
    share = place - whole
    low, high = (
        next((y for y, total in zip(numbers, totals, strict=True) if total > at), numbers[-1])
        for at in (whole, whole + 1)
    )
    return low + (high - low) * share if share < 0.5 else high - (high - low) * (1 - share)


def quantiles(leaf, tree_start, indptr, rank, weight, y, levels, equal_trees, values):
    """Writes the quantiles of the targets in the leaves of each row; rows without targets stay unchanged."""
    for k in range(len(y)):
        for i, row in enumerate(leaf):
            total = _weights(row, tree_start, indptr, rank[k], weight, equal_trees)
            places = sorted(total)
            numbers, weights = [float(y[k, place]) for place in places], [total[place] for place in places]
            if places:
                values[i, k] = [_quantile(numbers, weights, float(level), equal_trees) for level in levels]


def _nearest(row, tree_start, indptr, member, least, most):
    # Returns (member, shared trees) of the `most` nearest members, of equal ones the first, in ascending
    # order.
    shared = _weights(row, tree_start, indptr, member, (), False)
    nearest = sorted((-int(count), j) for j, count in shared.items() if count >= least)[:most]
    return sorted((j, -count) for count, j in nearest)


def count_neighbors(leaf, tree_start, indptr, member, n_members, least, most, size):
    """Writes the number of members that share at least `least` leaves with each row, at most `most`."""
    for i, row in enumerate(leaf):
        size[i] = len(_nearest(row, tree_start, indptr, member, least, most))


def neighbors(leaf, tree_start, indptr, member, n_members, least, most, row_start, indices, data):
    """Writes the members that `count_neighbors` counts, and their shares of the trees."""
    for i, row in enumerate(leaf):
        at = int(row_start[i])
        for k, (j, count) in enumerate(_nearest(row, tree_start, indptr, member, least, most)):
            indices[at + k], data[at + k] = j, count / leaf.shape[1]


# ------------------------------------------------------------------------------------------- SHAP values


def shap_path_dependent(x, forest, share, values):
    """Adds path-dependent SHAP values. share: (n_nodes,), of the samples of the parent in each node."""
    n_trees = len(forest.tree_start) - 1
    for i, row in enumerate(x):
        for m, root in enumerate(forest.tree_start[:-1]):
            _add_leaves(forest, row, (int(root), m), 0, {}, share, values[i])
        values[i] /= n_trees


def _add_leaves(forest, row, tree, v, players, share, values):
    # players: for each feature on the path whether the sample follows all its splits, and the product of the
    # shares of the children there.
    root, m = tree
    at = root + v
    if forest.feature[at] == -1:
        value = forest.value[(root + m) // 2 + forest.left[at]].astype(np.float64)
        for j, (one, zero) in players.items():
            others = [player for other, player in players.items() if other != j]
            values[j] += (one - zero) * _mean_of_sets(others) * value
        return
    j, right = int(forest.feature[at]), goes_right(forest, at, _candidate(row, at, forest))
    one, zero = players.get(j, (1.0, 1.0))
    for side in (0, 1):
        child = int(forest.left[at]) + side
        player = {j: (one * (side == right), zero * share[root + child])}
        _add_leaves(forest, row, tree, child, {**players, **player}, share, values)


def _mean_of_sets(players):
    # Lundberg et al. 2020, algorithm 2: the sum over sets S of |S|! (d - |S|)! / (d + 1)! times the product
    # of `one` over the members of S and `zero` over the others; by_size adds up sets of each size.
    by_size = np.ones(1)
    for one, zero in players:
        by_size = np.append(by_size * zero, 0.0) + np.append(0.0, by_size * one)
    d = len(players)
    return sum(total / ((d + 1) * math.comb(d, size)) for size, total in enumerate(by_size))


def shap_interventional(x, forest, background, weight, max_branches, values):
    """Adds interventional SHAP values. Returns whether no tree needed more branches at projections.

    weight: (n_background,), weights of the rows of the background, sum 1.
    """
    n_trees = len(forest.tree_start) - 1
    for i, row in enumerate(x):
        for m, root in enumerate(forest.tree_start[:-1]):
            for b, other in enumerate(background):
                left = [max_branches]
                scale = weight[b] / n_trees
                _add_hybrids(forest, (row, other), (int(root), m), 0, {}, scale, left, values[i])
                if left[0] < 0:
                    return False
    return True


def _add_hybrids(forest, rows, tree, v, side, scale, left, values):
    # side: for each decided feature the row that it comes from, 0: x, 1: the background.
    root, m = tree
    at = root + v
    if forest.feature[at] == -1:
        value = scale * forest.value[(root + m) // 2 + forest.left[at]].astype(np.float64)
        n_b = sum(side.values())
        n_x = len(side) - n_b
        for j, of_b in side.items():
            # Lundberg et al. 2020, algorithm 3: v(S) is `value` if S has the n_x features, none of the n_b.
            size = n_x - (not of_b)
            one = 1.0 / (len(side) * math.comb(len(side) - 1, size))
            values[j] += (-one if of_b else one) * value
        return
    features = _undecided(forest, at, rows, side)
    if not features:
        hybrid = rows[0].copy()
        for j, of_b in side.items():
            hybrid[j] = rows[of_b][j]
        child = int(forest.left[at]) + int(goes_right(forest, at, _candidate(hybrid, at, forest)))
        _add_hybrids(forest, rows, tree, child, side, scale, left, values)
        return
    left[0] -= forest.feature[at] == -2
    for of_b in (0, 1) if left[0] >= 0 else ():
        _add_hybrids(forest, rows, tree, v, {**side, features[0]: of_b}, scale, left, values)


def _undecided(forest, at, rows, side):
    # Returns the features without a row on which the side of a split depends, the one whose terms differ most
    # first.
    if forest.feature[at] >= 0:
        j = int(forest.feature[at])
        return [j] * (j not in side and len({goes_right(forest, at, row[j]) for row in rows}) > 1)
    low = high = 0.0
    gaps: dict[int, float] = {}
    missing = set()
    for e in range(forest.indptr[at], forest.indptr[at + 1]):
        j = int(forest.indices[e])
        sources = rows if j not in side else [rows[side[j]]]
        terms = [float(forest.data[e]) * float(row[j]) for row in sources]
        known = [term for term in terms if not math.isnan(term)]
        if not known:
            return []  # every hybrid sample misses a value
        if len(known) < len(terms):
            missing.add(j)
        low, high = low + min(known), high + max(known)
        if j not in side:
            gap = math.inf if j in missing else max(known) - min(known)
            gaps[j] = max(gap, gaps.get(j, gap))
    ends = {goes_right(forest, at, rows[0].dtype.type(a)) for a in (low, high)}
    if missing:
        ends.add(goes_right(forest, at, math.nan))
    return sorted(gaps, key=lambda j: -gaps[j]) if len(ends) > 1 else []
