"""A tree with upper nodes that sums over all parts split, and lower nodes that grow in one place."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from ...core.aliases import FloatArray, IntArray
from ..trees import GrownTree, Trees, kept_splits


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
        self.row: list[int] = [0]
        self.value: list[FloatArray] = []
        self.below: dict[int, Trees] = {}

    def add_row(self, v: int, value: FloatArray) -> None:
        """Adds the values of node v, which is a leaf or may become one."""
        self.row[v] = len(self.value)
        self.value.append(value)

    def make_split(self, v: int, split: Split) -> int:
        """Adds a split; returns the number of the left child, which the right one follows."""
        first = len(self.splits)
        self.splits[v] = split
        self.left[v] = first
        self.splits += [None, None]
        self.left += [0, 0]
        self.row += [0, 0]
        return first

    def grown(
        self, width: int, dtype: np.dtype, max_leaf_nodes: int, *, has_defaults: bool, projected: bool
    ) -> GrownTree:
        """Returns the tree, whose leaves have rows of `width` values, breadth-first."""
        parts = _joined(self, width, dtype)
        if max_leaf_nodes:
            kept = kept_splits(parts.feature != -1, parts.left, parts.gain, max_leaf_nodes)
            parts.feature[~kept] = -1
            for a in (parts.threshold, parts.gain, parts.default_left, parts.n_words, parts.n_entries):
                a[~kept] = 0
        order = _breadth_first(parts.feature, parts.left)
        place = np.empty(len(parts.left), np.int64)
        place[order] = np.arange(len(order))
        feature, left = parts.feature[order], parts.left[order]
        is_leaf = feature == -1
        value = parts.value[parts.row[order][is_leaf]]
        left = np.where(is_leaf, np.cumsum(is_leaf) - 1, place[np.where(is_leaf, 0, left)])
        grown = GrownTree(
            feature=feature.astype(np.int32), threshold=parts.threshold[order], left=left.astype(np.int32),
            gain=parts.gain[order], value=value.astype(dtype),
            default_left=parts.default_left[order].astype(np.uint8),
        )  # fmt: skip
        if projected:
            n_entries = parts.n_entries[order]
            entries = ranges(parts.first_entry[order], n_entries)
            grown = grown._replace(
                first_entry=np.cumsum(n_entries) - n_entries,
                indices=parts.indices[entries].astype(np.int32),
                data=parts.data[entries].astype(dtype),
            )
        if has_defaults:
            n_words = parts.n_words[order]
            words = parts.words[ranges(parts.first_word[order], n_words)]
            grown = grown._replace(n_words=n_words, words=words.astype(np.uint32))
        return grown


class _Nodes(NamedTuple):
    """All nodes of a tree, subtrees last."""

    feature: IntArray
    threshold: FloatArray
    left: IntArray
    """Left child, of splits."""
    row: IntArray
    """Row of `value`, of leaves and of nodes that may become leaves."""
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


def _joined(tree: Tree, width: int, dtype: np.dtype) -> _Nodes:
    """Returns the nodes that sums over all parts split, then those of the subtrees without their roots."""
    none = Split(-1, 0.0, 0.0, 0, [])
    splits = [none if split is None else split for split in tree.splits]
    feature, threshold, gain, default_left, words, indices, data = zip(*splits, strict=True)
    n_words, n_entries = (np.array([len(some) for some in several], np.int64) for several in (words, indices))
    top = _Nodes(
        feature=np.array(feature, np.int64),
        threshold=np.array(threshold),
        left=np.array(tree.left, np.int64),
        row=np.array(tree.row, np.int64),
        gain=np.array(gain),
        default_left=np.array(default_left, np.int64),
        n_words=n_words,
        first_word=np.cumsum(n_words) - n_words,
        n_entries=n_entries,
        first_entry=np.cumsum(n_entries) - n_entries,
        value=np.array(tree.value).reshape(-1, width).astype(dtype),
        words=np.array([*chain(*words)], np.int64),
        indices=np.array([*chain(*indices)], np.int64),
        data=np.array([*chain(*data)], np.float64),
    )
    parts, sizes = [top], np.array([len(splits), len(tree.value), len(top.words), len(top.data)])
    for v, subtree in tree.below.items():
        n_nodes, n_values, n_all_words, n_all_entries = sizes.tolist()
        has_all_rows = len(subtree.value) == len(subtree.left)
        nothing = np.zeros(len(subtree.left) + 1, np.int64)
        sets = subtree.category_indptr if len(subtree.category_indptr) else nothing
        starts = subtree.indptr if len(subtree.indptr) else nothing
        nodes = {
            "feature": subtree.feature,
            "threshold": subtree.threshold,
            # Node j > 0 of the subtree gets number n_nodes + j - 1.
            "left": subtree.left + n_nodes - 1,
            "row": n_values + (np.arange(len(subtree.left)) if has_all_rows else subtree.left),
            "gain": subtree.gain,
            "default_left": subtree.default_left if len(subtree.default_left) else nothing[1:],
            "n_words": np.diff(sets),
            "first_word": sets[:-1] + n_all_words,
            "n_entries": np.diff(starts),
            "first_entry": starts[:-1] + n_all_entries,
        }
        for name, of_subtree in nodes.items():
            getattr(top, name)[v] = of_subtree[0]
        below = {name: a[1:] for name, a in nodes.items()}
        entries = {"words": subtree.category_bits, "indices": subtree.indices, "data": subtree.data}
        parts.append(_Nodes(**below, value=subtree.value, **entries))
        sizes += [len(nothing) - 2, len(subtree.value), len(subtree.category_bits), len(subtree.data)]
    return _Nodes(*(np.concatenate(a) for a in zip(*parts, strict=True)))
