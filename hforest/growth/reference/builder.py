"""The reference tree builder: grows trees top-down, node by node, in plain loops (Don't Get Lost in the
Forest; Perry et al. 2019, Alg. 1).

A candidate source is a function split(node, key) that returns None or a `Split` (sources.py).
"""

import math

import numpy as np

from ...core.defaults import default_left, sends_missing_left, sends_unknown_left
from ...core.philox import CHILDREN, keys, philox
from ..trees import GrownTree
from .node_samples import Node, Tree
from .units import Unit, with_samples


def tree_key(seed, tree):
    """Returns the key of a tree's root and of its bootstrap."""
    return keys(philox(seed, tree, 0))[0]


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
    pending = [(samples, root_key, root_depth, unit, (-math.inf, math.inf))]
    tree.least_weight = min_weight_fraction_leaf * root_weight
    least_size = max(2, min_samples_split, 2 * min_samples_leaf)
    v = 0
    while v < len(pending):  # breadth-first
        samples, key, depth, unit, bounds = pending[v]
        node, best = Node(tree, samples, unit, bounds), None
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
            of_children = (bounds, bounds)
            # A split of missing values from all others orders no values.
            if tree.monotonic is not None and best.threshold != np.finfo(dtype).max:
                of_children = node.bounds_of_children(sides[0], tree.monotonic[column])
            for side, child, of_child in zip(sides, keys(philox(key, 0, CHILDREN)), of_children, strict=True):
                pending.append((side, child, depth + 1, node.unit, of_child))
                for a, blank in zip(columns, (-1, 0.0, 0, 0.0), strict=True):
                    a.append(blank)
        v += 1
    grown = GrownTree(
        feature=np.array(feature, np.int32), threshold=np.array(threshold), left=np.array(left, np.int32),
        gain=np.array(gain), value=np.array(values, dtype).ravel(),
        default_left=np.array([defaults.get(v, 0) for v in range(len(feature))], np.uint8),
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

    projected, has_defaults: whether they have projections, and were grown on missing values or categories.
    """
    (labels, targets, n_outputs, _), sample_weight, criterion, limits, scale, monotonic = objective
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
        tree.monotonic = monotonic
        batch.trees.append(grow_tree(tree, split, limits, dtype, root, scale, projected, has_defaults))
