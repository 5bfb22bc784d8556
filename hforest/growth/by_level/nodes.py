"""A tree whose upper nodes were split by sums of all workers, and whose lower ones grew on one of them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...core.aliases import FloatArray, IntArray
from ..trees import Projected, Trees

MISSING_LEFT, UNKNOWN_LEFT = 1, 2
"""Bits of default_left."""


class Split(NamedTuple):
    """The split of a node."""

    feature: int
    threshold: float
    gain: float
    default_left: int
    words: list[int]
    """The set of categories that go left."""
    indices: Sequence[int] = ()
    """Of a projection (feature -2) its features."""
    data: Sequence[float] = ()
    """Their weights."""


class Tree:
    """Nodes in the order in which they were found; the children of a node are neighbours."""

    def __init__(self) -> None:
        self.splits: list[Split | None] = [None]
        self.left: list[int] = [0]
        self.value: list[FloatArray] = []
        self.below: dict[int, Trees | Projected] = {}

    def make_leaf(self, v: int, value: FloatArray) -> None:
        self.left[v] = len(self.value)
        self.value.append(value)

    def make_split(self, v: int, split: Split) -> int:
        """Returns the number of the left child; the right one has the next."""
        first = len(self.splits)
        self.splits[v] = split
        self.left[v] = first
        self.splits += [None, None]
        self.left += [0, 0]
        return first

    def arrays(
        self, n_outputs: int, dtype: np.dtype, has_defaults: bool, projected: bool
    ) -> tuple[IntArray, ...]:
        """Returns the tree as `growth.trees.joined` takes it, breadth-first."""
        parts = _joined(self, n_outputs, dtype)
        order = _breadth_first(parts.feature, parts.left)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        feature, left = parts.feature[order], parts.left[order]
        is_leaf = feature == -1
        value = parts.value[left[is_leaf]]
        left = np.where(is_leaf, np.cumsum(is_leaf) - 1, place[np.where(is_leaf, 0, left)])
        arrays: tuple[IntArray, ...] = (
            feature.astype(np.int32), parts.threshold[order], left.astype(np.int32), parts.gain[order],
            value.astype(dtype).ravel(),
        )  # fmt: skip
        if projected:
            n_entries = parts.n_entries[order]
            entries = ranges(parts.first_entry[order], n_entries)
            starts = np.cumsum(n_entries) - n_entries
            arrays += starts, parts.indices[entries].astype(np.int32), parts.data[entries].astype(dtype)
        if not has_defaults:
            return arrays
        n_words = parts.n_words[order]
        words = parts.words[ranges(parts.first_word[order], n_words)]
        return (*arrays, parts.default_left[order].astype(np.uint8), n_words, words.astype(np.uint32))


class _Nodes(NamedTuple):
    """All nodes of a tree, the subtrees after the others."""

    feature: IntArray
    threshold: FloatArray
    left: IntArray
    """Of a leaf its row of `value`."""
    gain: FloatArray
    value: FloatArray
    default_left: IntArray
    n_words: IntArray
    first_word: IntArray
    n_entries: IntArray
    first_entry: IntArray
    words: IntArray
    indices: IntArray
    data: FloatArray


def ranges(first: IntArray, count: IntArray) -> IntArray:
    """Returns first[i], ..., first[i] + count[i] - 1 for each i, one after another."""
    stop = np.cumsum(count)
    total = int(stop[-1]) if len(stop) else 0
    return np.repeat(first - (stop - count), count) + np.arange(total)


def _breadth_first(feature: IntArray, left: IntArray) -> IntArray:
    """Returns the numbers of the nodes in the order of a breadth-first walk."""
    level = np.zeros(1, np.int64)
    levels = []
    while len(level):
        levels.append(level)
        first = left[level[feature[level] != -1]]
        level = np.stack([first, first + 1], axis=1).ravel()
    return np.concatenate(levels)


def _with_projections(subtree: Trees | Projected) -> Projected:
    if isinstance(subtree, Projected):
        return subtree
    none = np.zeros(0, np.int64)
    return Projected(subtree, np.zeros(len(subtree.left) + 1, np.int64), none, none)


def _joined(tree: Tree, n_outputs: int, dtype: np.dtype) -> _Nodes:
    """The nodes that were split on all workers, then those of the subtrees but their roots."""
    none = Split(-1, 0.0, 0.0, 0, [])
    splits = [none if split is None else split for split in tree.splits]
    feature = [np.array([split.feature for split in splits], np.int64)]
    threshold = [np.array([split.threshold for split in splits])]
    gain = [np.array([split.gain for split in splits])]
    left = [np.array(tree.left, np.int64)]
    default_left = [np.array([split.default_left for split in splits], np.int64)]
    n_words = [np.array([len(split.words) for split in splits], np.int64)]
    first_word = [np.cumsum([0, *n_words[0][:-1]], dtype=np.int64)]
    n_entries = [np.array([len(split.indices) for split in splits], np.int64)]
    first_entry = [np.cumsum([0, *n_entries[0][:-1]], dtype=np.int64)]
    words = [np.array([word for split in splits for word in split.words], np.int64)]
    indices = [np.array([i for split in splits for i in split.indices], np.int64)]
    data = [np.array([w for split in splits for w in split.data], np.float64)]
    value = [np.array(tree.value).reshape(-1, n_outputs).astype(dtype)]
    n_nodes, n_values, n_all_words, n_all_entries = (len(a) for a in (splits, tree.value, words[0], data[0]))
    for v, subtree in tree.below.items():
        below, starts, features, weights = _with_projections(subtree)
        known = len(below.default_left) > 0
        indptr = (
            below.category_indptr if len(below.category_indptr) else np.zeros(len(below.left) + 1, np.int64)
        )
        inner = below.feature != -1
        # Node j of the subtree, but its root, is number n_nodes + j - 1.
        lefts = np.where(inner, below.left + (n_nodes - 1), below.left + n_values).astype(np.int64)
        new = (
            (feature, below.feature), (threshold, below.threshold), (gain, below.gain), (left, lefts),
            (default_left, below.default_left if known else np.zeros(len(lefts), np.int64)),
            (n_words, np.diff(indptr)), (first_word, indptr[:-1] + n_all_words),
            (n_entries, np.diff(starts)), (first_entry, starts[:-1] + n_all_entries),
        )  # fmt: skip
        for arrays, array in new:
            arrays[0][v] = array[0]
            arrays.append(array[1:])
        value.append(below.value)
        words.append(below.category_bits)
        indices.append(features)
        data.append(weights)
        n_nodes += len(lefts) - 1
        n_values += len(below.value)
        n_all_words += len(below.category_bits)
        n_all_entries += len(weights)
    return _Nodes(
        *(np.concatenate(a) for a in (feature, threshold, left, gain, value, default_left)),
        *(np.concatenate(a) for a in (n_words, first_word, n_entries, first_entry, words, indices, data)),
    )
