"""A tree with upper nodes that sums over all parts split, and lower nodes that grow in one place."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from ...core.aliases import FloatArray, IntArray
from ...core.launch import numbers
from ..trees import Projected, Trees

MISSING_LEFT, UNKNOWN_LEFT = numbers("core/defaults.h", "HF_MISSING_LEFT", "HF_UNKNOWN_LEFT")
"""Bits of default_left."""


class Split(NamedTuple):
    """The split of a node."""

    feature: int
    threshold: float
    gain: float
    default_left: int
    words: list[int]
    """Words of 32 bits of the set of categories that go left; empty for numbers."""
    indices: Sequence[int] = ()
    """Features of the projection of a split with feature -2."""
    data: Sequence[float] = ()
    """Weights of the features in `indices`."""


class Tree:
    """Nodes in the order of their splits; the children of a node are neighbours."""

    def __init__(self) -> None:
        self.splits: list[Split | None] = [None]
        self.left: list[int] = [0]
        self.value: list[FloatArray] = []
        self.below: dict[int, Trees | Projected] = {}

    def make_leaf(self, v: int, value: FloatArray) -> None:
        self.left[v] = len(self.value)
        self.value.append(value)

    def make_split(self, v: int, split: Split) -> int:
        """Adds a split; returns the number of the left child, which the right one follows."""
        first = len(self.splits)
        self.splits[v] = split
        self.left[v] = first
        self.splits += [None, None]
        self.left += [0, 0]
        return first

    def arrays(
        self, n_outputs: int, dtype: np.dtype, has_defaults: bool, projected: bool
    ) -> tuple[IntArray, ...]:
        """Returns the tree in the form that `growth.trees.joined` takes, breadth-first."""
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
    """All nodes of a tree, subtrees last."""

    feature: IntArray
    threshold: FloatArray
    left: IntArray
    """Left child; in a leaf its row of `value`."""
    gain: FloatArray
    default_left: IntArray
    n_words: IntArray
    first_word: IntArray
    n_entries: IntArray
    first_entry: IntArray
    # The fields above have an element for each node.
    value: FloatArray
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
    """Returns the nodes that sums over all parts split, then those of the subtrees without their roots."""
    none = Split(-1, 0.0, 0.0, 0, [])
    splits = [none if split is None else split for split in tree.splits]
    feature, threshold, gain, default_left, words, indices, data = zip(*splits, strict=True)
    n_words, n_entries = (np.array([len(some) for some in several], np.int64) for several in (words, indices))
    top = _Nodes(
        np.array(feature, np.int64), np.array(threshold), np.array(tree.left, np.int64), np.array(gain),
        np.array(default_left, np.int64), n_words, np.cumsum(n_words) - n_words, n_entries,
        np.cumsum(n_entries) - n_entries, np.array(tree.value).reshape(-1, n_outputs).astype(dtype),
        *(np.array([*chain(*several)], t) for several, t in ((words, "i8"), (indices, "i8"), (data, "f8"))),
    )  # fmt: skip
    parts, sizes = [top], np.array([len(splits), len(tree.value), len(top.words), len(top.data)])
    for v, subtree in tree.below.items():
        below, starts, features, weights = _with_projections(subtree)
        n_nodes, n_values, n_all_words, n_all_entries = sizes.tolist()
        nothing = np.zeros(len(below.left) + 1, np.int64)
        indptr = below.category_indptr if len(below.category_indptr) else nothing
        # Node j > 0 of the subtree gets number n_nodes + j - 1.
        left = below.left + np.where(below.feature != -1, n_nodes - 1, n_values)
        nodes = (
            below.feature, below.threshold, left, below.gain,
            below.default_left if len(below.default_left) else nothing[1:], np.diff(indptr),
            indptr[:-1] + n_all_words, np.diff(starts), starts[:-1] + n_all_entries,
        )  # fmt: skip
        for of_top, of_subtree in zip(top, nodes, strict=False):
            of_top[v] = of_subtree[0]
        values = below.value, below.category_bits, features, weights
        parts.append(_Nodes._make((*(a[1:] for a in nodes), *values)))
        sizes += [len(left) - 1, len(below.value), len(below.category_bits), len(weights)]
    return _Nodes(*(np.concatenate(a) for a in zip(*parts, strict=True)))
