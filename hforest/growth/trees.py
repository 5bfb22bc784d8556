"""Input and output of tree growth, as tuples of arrays."""

from typing import Any, NamedTuple

import numpy as np

from ..core import check
from ..core.aliases import Array, FloatArray, IntArray
from ..core.dispatch import array_module
from ..core.supervised import Limits, Target
from ..tree import Forest

NO_DEFAULTS = check.NO_DEFAULTS


class Trees(NamedTuple):
    """Grown trees as the arrays of a `hforest.tree.Forest` of features."""

    tree_start: IntArray
    feature: IntArray
    threshold: FloatArray
    left: IntArray
    value: FloatArray
    gain: FloatArray
    default_left: IntArray = NO_DEFAULTS[0]
    category_indptr: IntArray = NO_DEFAULTS[1]
    category_bits: IntArray = NO_DEFAULTS[2]


class Projected(NamedTuple):
    """Grown trees on projections, as the arrays of a `hforest.tree.Forest`."""

    trees: Trees
    indptr: IntArray
    indices: IntArray
    data: FloatArray


def as_forest(arrays: tuple[Array, ...], n_features: int) -> Forest:
    """Returns the result of `joined` as a forest of samples of n_features columns."""
    xp, threshold, n = array_module(arrays[0]), arrays[2], len(Trees._fields)
    entries = arrays[n:] or (xp.zeros(0, np.int64), xp.zeros(0, np.int32), xp.zeros(0, threshold.dtype))
    indptr, indices, data = entries
    return Forest(
        xp.array(n_features, np.int64), **Trees(*arrays[:n])._asdict(), indptr=indptr, indices=indices,
        data=data,
    )  # fmt: skip


class Objective(NamedTuple):
    """What trees are grown for: checked labels or targets, weights, criterion and limits."""

    target: Target
    sample_weight: FloatArray
    criterion: int
    limits: Limits
    scale: int = 0
    """Gains are multiplied by 2**scale."""


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
    """(n_trees + 1,) int64: tree m has the samples indptr[m] to indptr[m + 1] - 1, of positive weight."""
    key: IntArray
    """(n_trees,) uint64: key of the node."""
    weight: FloatArray
    """(n_trees,) float64: weight of its whole tree."""
    depth: IntArray
    """(n_trees,) int64: depth of the node there."""
    unit: RootUnits | None = None
    """Units of the nodes for targets; None for labels."""


class Batch(NamedTuple):
    """A range of trees, first to first + n_trees - 1, which a backend appends to `trees`."""

    seed: int
    first: int
    n_trees: int
    counts: IntArray | None
    """(n_trees, n_samples): in-bag counts; None if each sample is drawn once."""
    trees: list[Any]
    roots: Roots | None = None
    """Roots, if nodes take the place of whole trees: `first` is 0, `counts` is None. Only on the CPU."""
    order: IntArray | None = None
    """(n_trees, n_samples) int32: sample whose label or target each one has; None: itself. CPU only."""
    reached: IntArray | None = None
    """(n_trees, n_samples) int32, OUT: leaf of each sample that a tree takes. Only the CPU backend writes
    it, and not for windows."""


def joined(
    trees: list[tuple[Array, ...]], n_outputs: int, dtype: np.dtype, projected: bool
) -> tuple[Array, ...]:
    """Returns the arrays of `Trees`, and with projections `indptr`, `indices` and `data` of a Forest.

    A tree is (feature, threshold, left, gain, value), then with projections (indptr without its end, indices,
    data), then with missing values or categories (default_left, words of each node's set of categories, all
    words).
    """
    xp = array_module(trees[0][0])
    feature, threshold, left, gain, value = (xp.concatenate([tree[i] for tree in trees]) for i in range(5))
    tree_start = xp.asarray(np.cumsum([0, *(len(tree[0]) for tree in trees)], dtype=np.int64))
    defaults: tuple[Array, ...] = tuple(xp.asarray(a) for a in NO_DEFAULTS)
    at = 8 if projected else 5
    if len(trees[0]) > at:
        default_left, n_words, words = (
            xp.concatenate([tree[i] for tree in trees]) for i in range(at, at + 3)
        )
        defaults = (default_left, *defaults[1:])
        if words.size:
            indptr = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(n_words)])
            defaults = default_left, indptr, words
    arrays = (
        tree_start,
        feature,
        threshold.astype(dtype, copy=False),
        left,
        value.reshape(-1, n_outputs),
        gain.astype(dtype, copy=False),
        *defaults,
    )
    if not projected:
        return arrays
    entries = np.cumsum([0, *(len(tree[6]) for tree in trees)], dtype=np.int64)
    starts = [tree[5] + first for tree, first in zip(trees, entries, strict=False)]
    return (
        *arrays,
        xp.concatenate([*starts, xp.asarray(entries[-1:])]),
        xp.concatenate([tree[6] for tree in trees]),
        xp.concatenate([tree[7] for tree in trees]).astype(dtype, copy=False),
    )
