"""The reference tree builder: grows trees top-down, node by node, in plain loops (Don't Get Lost in the
Forest; Perry et al. 2019, Alg. 1).

A candidate source is a function split(node, key) that returns None or a `Split` (sources.py).
"""

import heapq
from typing import Any

import numpy as np

from ...core.defaults import default_left, sends_missing_left, sends_unknown_left
from ...core.philox import CHILDREN, keys, philox
from ..trees import GrownTree
from .bounds import FREE, Bounds
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


class Grown:
    """A node of a growing tree: a leaf until it is split."""

    def __init__(self, samples, key, depth, node):
        self.samples, self.key, self.depth, self.node = samples, key, depth, node
        self.best: Any = None
        """Its best split, if it may be split."""
        self.gain, self.default_left = 0.0, 0
        self.children: list[Grown] = []


def least_size(limits):
    """Returns the least number of samples of a node that may be split."""
    return max(2, limits.min_samples_split, 2 * limits.min_samples_leaf)


def grow_tree(tree, split, limits, dtype, root, scale, projected, has_defaults):
    """Returns a tree.

    root: the key of its root, its depth, the weight of the whole tree, or None if this is one, the unit
    of the root, or None if its samples make it, and its bounds. scale: gains are multiplied by 2**scale.
    """
    root_key, root_depth, root_weight, unit, root_bounds = root
    samples = [int(s) for s in np.flatnonzero(tree.weight > 0)]
    if unit is None:
        unit = tree.unit_of(samples)
    else:
        unit = with_samples(unit, {s: float(tree.weight[s]) for s in samples}, tree.targets)
    is_whole = root_weight is None
    if root_weight is None:
        root_weight = Node(tree, samples, unit).weight
    tree.least_weight = limits.min_weight_fraction_leaf * root_weight
    smallest = least_size(limits)

    def grown(samples, key, depth, unit, bounds):
        """Returns a node with its best split."""
        made = Grown(samples, key, depth, Node(tree, samples, unit, bounds))
        if not (tree.is_pure(samples) or len(samples) < smallest or depth >= limits.max_depth):
            best = split(made.node, key)
            if best is not None and not best.gain / root_weight < limits.min_impurity_decrease:
                made.best, made.gain = best, float(np.ldexp(max(best.gain, 0.0), scale))
        return made

    nodes = [grown(samples, root_key, root_depth, unit, root_bounds)]
    pending, n_made, n_leaves = [(-nodes[0].gain, 0, nodes[0])], 1, 1
    while pending and n_leaves != limits.max_leaf_nodes:
        # The node of greatest gain, of equal ones the first: without a maximum any order gives this tree.
        _, _, made = heapq.heappop(pending)
        if made.best is None:
            continue
        left, right, made.default_left = divided(made.best, made.samples)
        bounds = (made.node.bounds, made.node.bounds)
        if tree.monotonic is not None:
            bounds = made.node.bounds_of_children(left, tree.monotonic[made.best.column])
        of_children = zip((left, right), keys(philox(made.key, 0, CHILDREN)), bounds, strict=True)
        for side, key, of_child in of_children:
            child = grown(side, key, made.depth + 1, made.node.unit, of_child)
            made.children.append(child)
            heapq.heappush(pending, (-child.gain, n_made, child))
            n_made += 1
        n_leaves += 1
    for made in nodes:  # breadth-first
        nodes += made.children
    # A node of another tree may become a leaf when that tree is whole.
    has_all_rows = limits.max_leaf_nodes > 0 and not is_whole
    return written(nodes, dtype, projected, has_defaults, has_all_rows)


def divided(best, samples):
    """Returns the samples on the left and on the right of a split, ascending, and its default_left."""
    left, right, missing = ([s for s in samples if best.goes_left(s) == here] for here in (True, False, None))
    bits = default_left(best.seen, len(left), len(right), len(missing))
    left += missing if sends_missing_left(bits) else []
    return sorted(left), sorted({*samples} - {*left}), bits


def written(nodes, dtype, projected, has_defaults, has_all_rows):
    """Returns breadth-first nodes as a tree, which has rows of leaves, or of all nodes."""
    splits = [made.best if made.children else None for made in nodes]
    columns = [-1 if best is None else best.column for best in splits]
    left, n_children, n_rows = [], 1, 0
    for best in splits:
        left.append(n_rows if best is None else n_children)
        n_children += 0 if best is None else 2
        n_rows += best is None or has_all_rows
    rows = [made.node.leaf_value() for made in nodes if has_all_rows or not made.children]
    tree = GrownTree(
        feature=np.array([-2 if isinstance(c, tuple) else c for c in columns], np.int32),
        threshold=np.array([0.0 if best is None else best.threshold for best in splits]),
        left=np.array(left, np.int32),
        gain=np.array([made.gain if made.children else 0.0 for made in nodes]),
        value=np.array(rows, dtype),
        default_left=np.array([made.default_left for made in nodes], np.uint8),
    )
    if projected:
        entries = [c if isinstance(c, tuple) else ([], []) for c in columns]
        tree = tree._replace(
            first_entry=np.cumsum([0, *(len(indices) for indices, _ in entries[:-1])], dtype=np.int64),
            indices=np.array([i for indices, _ in entries for i in indices], np.int32),
            data=np.array([w for _, data in entries for w in data], dtype),
        )
    if has_defaults:
        sets = [
            []
            if best is None or best.categories is None
            else bit_set(best.categories, best.others, sends_unknown_left(made.default_left))
            for best, made in zip(splits, nodes, strict=True)
        ]
        tree = tree._replace(
            n_words=np.array([len(words) for words in sets], np.int64),
            words=np.array([word for words in sets for word in words], np.uint32),
        )
    return tree


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
        root: tuple[int, int, float | None, Unit | None, Bounds]
        if batch.roots is None:
            weight = in_bag_weight(sample_weight, batch.counts, m)
            if batch.weight is not None:
                weight = batch.weight[m]
            root = tree_key(batch.seed, batch.first + m), 0, None, None, FREE
        else:
            roots = batch.roots
            inside = np.zeros(len(sample_weight), bool)
            places = slice(roots.indptr[m], roots.indptr[m + 1])
            inside[places if roots.sample is None else roots.sample[places]] = True
            weight = np.where(inside, sample_weight, 0)
            bounds = FREE if roots.bounds is None else tuple(roots.bounds[m].tolist())
            of_tree = int(roots.depth[m]), float(roots.weight[m])
            root = int(roots.key[m]), *of_tree, root_unit(roots, m), bounds
        of_labels, of_targets = labels, targets
        if batch.order is not None:
            of_labels, of_targets = (None if a is None else a[batch.order[m]] for a in (labels, targets))
        tree = Tree(codes, of_labels, of_targets, n_outputs, weight, criterion)
        tree.monotonic = monotonic
        batch.trees.append(grow_tree(tree, split, limits, dtype, root, scale, projected, has_defaults))
