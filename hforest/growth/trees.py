"""Input and output of tree growth, as tuples of arrays."""

from heapq import heappop, heappush
from typing import Any, NamedTuple, cast

import numpy as np

from ..core import check
from ..core.aliases import Array, FloatArray, IntArray
from ..core.dispatch import array_module
from ..core.supervised import Limits, Target
from ..tree import Forest
from ..tree.forest import LEAF_FIELDS, ROUTES

NO_DEFAULTS = check.NO_DEFAULTS


class GrownTree(NamedTuple):
    """A grown tree, breadth-first, as the backends without a type of their own append it to `Batch.trees`."""

    feature: IntArray
    threshold: FloatArray
    left: IntArray
    gain: FloatArray
    value: FloatArray
    """(n_leaves, width): rows of leaves (leaf.h); of all nodes, if `Roots` grew with max_leaf_nodes."""
    default_left: IntArray
    first_entry: IntArray | None = None
    """(n_nodes,) int64: start of each projection; None, as the next two, without projections."""
    indices: IntArray | None = None
    data: FloatArray | None = None
    n_words: IntArray | None = None
    """(n_nodes,): number of words of each set of categories; None, as the next, without missing values and
    categories."""
    words: IntArray | None = None


class Trees(NamedTuple):
    """Grown trees as the arrays of a `hforest.tree.Forest`."""

    tree_start: IntArray
    feature: IntArray
    threshold: FloatArray
    left: IntArray
    value: FloatArray
    """(n_leaves, width): rows of leaves (leaf.h); of all nodes, if `Roots` grew with max_leaf_nodes."""
    gain: FloatArray
    indptr: IntArray
    indices: IntArray
    data: FloatArray
    default_left: IntArray = NO_DEFAULTS[0]
    category_indptr: IntArray = NO_DEFAULTS[1]
    category_bits: IntArray = NO_DEFAULTS[2]


def as_forest(trees: Trees, n_features: int, class_start: IntArray | None = None) -> Forest:
    """Returns trees as a forest of samples of n_features columns.

    class_start: that of a `supervised.Target`.
    """
    xp = array_module(trees.feature)
    rows = trees.value.reshape(len(trees.value), len(LEAF_FIELDS), -1)
    of_leaves = {name: xp.ascontiguousarray(rows[:, i]) for i, name in enumerate(LEAF_FIELDS)}
    if class_start is not None:
        of_leaves["class_start"] = class_start.copy()
    arrays = {**trees._asdict(), **of_leaves, "n_features": xp.array(n_features, np.int64)}
    return Forest(**arrays)._replace(gain=trees.gain.astype(trees.threshold.dtype, copy=False))


class Objective(NamedTuple):
    """What trees are grown for: checked labels or targets, weights, criterion and limits."""

    target: Target
    sample_weight: FloatArray
    criterion: int
    limits: Limits
    scale: int = 0
    """Gains are multiplied by 2**scale."""
    monotonic: IntArray | None = None
    """(n_features,) int32: the sign of the monotonic constraint of each feature, or 0."""


class RootUnits(NamedTuple):
    """Units in which the sums of nodes of whole weights are, see docs/growth.md."""

    centre: FloatArray
    """(n_trees, n_outputs) float64."""
    exponent: IntArray
    """(n_trees,) int64: that of the targets."""
    spread: FloatArray
    """(n_trees,) float64: range of q where the unit was made."""
    heaviest: FloatArray
    """(n_trees,) float64: greatest weight there."""


class Roots(NamedTuple):
    """Nodes of other trees, each the root of a subtree that grows below it."""

    indptr: IntArray
    """(n_trees + 1,) int64: tree m has the samples indptr[m] to indptr[m + 1] - 1, of positive weight; those
    at these places of `sample`, if it is not None."""
    key: IntArray
    """(n_trees,) uint64: key of the node."""
    weight: FloatArray
    """(n_trees,) float64: weight of its whole tree."""
    depth: IntArray
    """(n_trees,) int64: depth of the node there."""
    unit: RootUnits | None = None
    """Units of the nodes for targets; None for labels."""
    bounds: FloatArray | None = None
    """(n_trees, 2) float64: bounds of their values by monotonic constraints; None: there are none."""
    sample: IntArray | None = None
    """(indptr[-1],) int32: samples of the nodes, ascending within a node; None: all in their order. On a GPU
    there are no roots without it, none for targets, none with bounds and none of a depth above 0."""


class Batch(NamedTuple):
    """A range of trees, first to first + n_trees - 1, which a backend appends to `trees`."""

    seed: int
    first: int
    n_trees: int
    counts: IntArray | None
    """(n_trees, n_samples): in-bag counts; None if each sample is drawn once."""
    trees: list[Any]
    roots: Roots | None = None
    """Roots, if nodes take the place of whole trees: `first` is 0, `counts` is None."""
    order: IntArray | None = None
    """(n_trees, n_samples) int32: sample whose label or target each one has; None: itself. CPU only."""
    weight: FloatArray | None = None
    """(n_trees, n_samples) float64: sample weights times in-bag counts of each tree, in place of the weights
    of the objective; `counts` is None."""
    reached: IntArray | None = None
    """(n_trees, n_samples) int32, OUT: leaf of each sample that a tree takes. Only the CPU backend writes
    it, and not for windows."""


def left_of(is_leaf: Array, tree_start: IntArray) -> IntArray:
    """Returns `left` of breadth-first trees, (n_nodes,) int32: a left child, or the row of a leaf.

    is_leaf: (n_nodes,) bool. tree_start: (n_trees + 1,), NumPy. Children follow the root in the order of
    their parents; leaves are numbered in the order of nodes.
    """
    xp, n_nodes = array_module(is_leaf), len(is_leaf)
    tree_start = xp.asarray(tree_start)
    start = tree_start[xp.searchsorted(tree_start[1:], xp.arange(n_nodes), side="right")]
    before = xp.zeros(n_nodes + 1, np.int64)
    before[1:] = xp.cumsum(is_leaf)
    leaves = before[:-1] - before[start]
    return xp.where(is_leaf, leaves, 2 * (xp.arange(n_nodes) - start - leaves) + 1).astype(np.int32)


def kept_splits(is_split: Array, left: IntArray, gain: FloatArray, max_leaf_nodes: int) -> Array:
    """Returns which splits of a tree, (n_nodes,) bool, remain if it has at most max_leaf_nodes leaves.

    NumPy arrays of the whole tree: left (n_nodes,) has the left child of a split; node 0 is the root. Splits
    remain in the order of gain (n_nodes,), of equal gains the node that was made first, left before right.
    """
    kept = np.zeros(len(left), bool)
    pending, n_made = [(-float(gain[0]), 0, 0)] if is_split[0] else [], 1
    for _ in range(max_leaf_nodes - 1):
        if not pending:
            break
        _, _, v = heappop(pending)
        kept[v] = True
        for child in (int(left[v]), int(left[v]) + 1):
            if is_split[child]:
                heappush(pending, (-float(gain[child]), n_made, child))
            n_made += 1
    return kept


def joined(trees: list[GrownTree], dtype: np.dtype) -> Trees:
    """Returns grown trees in one record, with the dtype of the forest."""
    xp = array_module(trees[0].feature)

    def whole(name: str) -> Array:
        arrays = [getattr(tree, name) for tree in trees]
        return xp.zeros(0, np.int64) if arrays[0] is None else xp.concatenate(arrays)

    entries = np.zeros(len(trees) + 1, np.int64)
    tree_start = xp.asarray(np.cumsum([0, *(len(tree.feature) for tree in trees)], dtype=np.int64))
    indptr = xp.zeros(0, np.int64)
    if trees[0].indices is not None:
        entries[1:] = np.cumsum([len(cast(Array, tree.indices)) for tree in trees])
        starts = [cast(Array, t.first_entry) + first for t, first in zip(trees, entries, strict=False)]
        indptr = xp.concatenate([*starts, xp.asarray(entries[-1:])])
    defaults: dict[str, Array] = dict(zip(ROUTES, map(xp.asarray, NO_DEFAULTS), strict=True))
    defaults["default_left"] = whole("default_left")
    if trees[0].words is not None:
        words = whole("words")
        if words.size:
            n_words = xp.cumsum(whole("n_words"))
            defaults["category_indptr"] = xp.concatenate([xp.zeros(1, np.int64), n_words])
            defaults["category_bits"] = words
    return Trees(
        tree_start=tree_start,
        feature=whole("feature"),
        threshold=whole("threshold").astype(dtype, copy=False),
        left=whole("left"),
        value=whole("value"),
        gain=whole("gain"),
        indptr=indptr,
        indices=whole("indices").astype(np.int32, copy=False),
        data=whole("data").astype(dtype, copy=False),
        **defaults,
    )
