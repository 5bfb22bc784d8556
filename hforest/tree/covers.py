"""Weights of samples in the nodes of trees, and the means of leaf values that follow from them."""

from typing import NamedTuple

import numpy as np

from ..core import check as checks
from ..core import supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray
from .forest import Forest, knows_missing, levels
from .walks import REMEDY, apply


class Covers(NamedTuple):
    """Numbers of all nodes, float64."""

    weight: FloatArray
    """(n_nodes,): sum of the weights of the samples that reach a node."""
    share: FloatArray
    """(n_nodes,): share of this weight in that of the parent; 1/2 without samples in the parent; 1 of a
    root."""
    mean: FloatArray
    """(n_nodes, n_outputs): the value of a leaf; of a split, the mean of its children by their shares."""


def matrix(name: str, n: str, forest: Forest, x: ArrayLike) -> FloatArray:
    """Returns rows of a checked forest's features and dtype, (n, n_features), in C order."""
    rows = supervised.matrix(
        name, x, forest.threshold.dtype, (n, "n_features"), missing=knows_missing(forest), remedy=REMEDY
    )
    if rows.shape[1] != int(forest.n_features):
        raise ValueError(
            f"{name}: expected shape ({n}, n_features) = ({n}, {int(forest.n_features)}), got "
            f"{tuple(rows.shape)}; pass the features that the forest was grown on"
        )
    return rows


def covers(
    name: str, forest: Forest, x: FloatArray, sample_weight: ArrayLike | None, counts: ArrayLike | None
) -> Covers:
    """Returns the numbers of all nodes from the samples of `matrix`; checks weights and counts.

    counts: (n_trees, n_samples), how often each tree drew each sample.
    """
    return covers_of(name, forest, apply(forest, x), sample_weight, counts)


def weights(sample_weight: ArrayLike | None, leaf: IntArray) -> FloatArray:
    """Returns checked weights, (n_samples,) or those of each tree, (n_trees, n_samples), in float64.

    leaf: (n_samples, n_trees).
    """
    shape = leaf.shape[::-1]
    if sample_weight is None or np.ndim(sample_weight) != 2:
        return supervised.sample_weight(sample_weight, leaf)
    numbers = supervised.real("sample_weight", sample_weight)
    checks.require(
        numbers.shape == shape, "sample_weight",
        f"shape (n_samples,) = ({shape[1]},) or (n_trees, n_samples) = {shape}",
        tuple(numbers.shape), "pass one weight for each sample, or a row for each tree",
    )  # fmt: skip
    flat = numbers.ravel()
    of_trees = supervised.sample_weight(flat, flat).reshape(shape)
    supervised.check_some_weight((of_trees > 0).any(axis=1).all())
    return of_trees


def covers_of(
    name: str, forest: Forest, leaf: IntArray, sample_weight: ArrayLike | None, counts: ArrayLike | None
) -> Covers:
    """Returns what `covers` does, from the leaves (n_samples, n_trees) of the samples."""
    if not len(leaf):
        raise ValueError(
            f"{name}: expected at least one sample, got 0; pass samples that the forest was grown on"
        )
    weight = weights(sample_weight, leaf)
    weight, _ = supervised.scaled_weight(weight, None, weight.dtype, len(leaf))
    weight = np.broadcast_to(weight, leaf.shape[::-1])
    in_tree = None if counts is None else supervised.in_bag_counts("counts", counts, *leaf.shape[::-1])
    start, n_trees = forest.tree_start, leaf.shape[1]
    n_nodes = np.diff(start)
    of_node = np.concatenate(
        [
            np.bincount(leaf[:, m], weight[m] * (1 if in_tree is None else in_tree[m]), n_nodes[m])
            for m in range(n_trees)
        ]
    )
    n_outputs = forest.value.shape[1]
    size = of_node.size * (n_outputs + 1) * 8
    with checks.memory(name, "means of the nodes", size):
        share, mean = np.ones(len(of_node)), np.zeros((len(of_node), n_outputs))
    is_leaf = np.flatnonzero(forest.feature == -1)
    tree = np.searchsorted(start, is_leaf, side="right") - 1
    mean[is_leaf] = forest.value[(start[tree] + tree) // 2 + forest.left[is_leaf]]
    for split in reversed(levels(forest)):
        first = start[np.searchsorted(start, split, side="right") - 1] + forest.left[split]
        total = of_node[first] + of_node[first + 1]
        of_node[split] = total
        share[first] = np.divide(of_node[first], total, out=np.full(len(split), 0.5), where=total > 0)
        share[first + 1] = 1 - share[first]
        mean[split] = share[first, None] * mean[first] + share[first + 1, None] * mean[first + 1]
    return Covers(of_node, share, mean)
