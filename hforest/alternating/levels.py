"""Levels of trees that grow together: each level is a batch of roots for the engine of `hforest.growth`."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..core import dispatch, machine
from ..core.aliases import Array, FloatArray, IntArray
from ..core.philox import CHILDREN, keys, philox
from ..growth import unchecked
from ..growth.by_level.nodes import ranges
from ..growth.settings import Growth
from ..growth.trees import Batch, Roots, left_of
from ..tree import Forest
from ..tree.forest import NO_DEFAULTS


class Engine(NamedTuple):
    """What grows trees below nodes: settings, and candidates of splits."""

    growth: Growth
    candidates: Callable[[Growth], unchecked.GrowSome]
    """Returns the function that grows trees for an objective: on bins or on projections."""
    projected: bool
    total: float
    """Weight of a whole tree."""


class Nodes(NamedTuple):
    """The nodes of a level of all trees, tree after tree; the children of a split are neighbours."""

    tree: IntArray
    key: IntArray
    feature: IntArray
    threshold: FloatArray
    gain: FloatArray
    default_left: IntArray
    value: FloatArray
    """(n_nodes, n_classes): shares of the classes."""
    n_entries: IntArray
    indices: IntArray
    data: FloatArray
    """Entries of the projections of all nodes, one node after another; so are `words`."""
    n_words: IntArray
    words: IntArray


class Samples(NamedTuple):
    """The samples of nodes, of positive weight."""

    indptr: IntArray
    """(n_nodes + 1,) int64: node v has the samples at the places indptr[v] to indptr[v + 1] - 1."""
    sample: IntArray
    """(indptr[-1],) int32, ascending within a node."""

    def of(self, nodes: IntArray) -> "Samples":
        """Returns the samples of some nodes."""
        count = np.diff(self.indptr)[nodes]
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(count)])
        return Samples(indptr, self.sample[ranges(self.indptr[nodes], count)])


def new_nodes(tree: IntArray, key: IntArray, n_classes: int, dtype: np.dtype) -> Nodes:
    """Returns nodes without splits and values."""
    n = len(tree)
    nothing = np.zeros(n, np.int64)
    return Nodes(
        tree=tree, key=key, feature=np.full(n, -1, np.int32), threshold=np.zeros(n, dtype),
        gain=np.zeros(n, dtype), default_left=np.zeros(n, np.uint8), value=np.zeros((n, n_classes), dtype),
        n_entries=nothing, indices=np.zeros(0, np.int32), data=np.zeros(0, dtype),
        n_words=nothing.copy(), words=np.zeros(0, np.uint32),
    )  # fmt: skip


def roots(growth: Growth) -> Nodes:
    """Returns the roots of the trees."""
    key = [keys(philox(growth.seed, m, 0))[0] for m in range(growth.n_trees)]
    n_classes = growth.objective.target.n_outputs
    return new_nodes(np.arange(growth.n_trees), np.array(key, np.uint64), n_classes, growth.samples.dtype)


def of_roots(inside: Array, n_trees: int) -> Samples:
    """Returns the samples of the roots: all that are inside, (n_samples,) bool."""
    sample = np.flatnonzero(inside).astype(np.int32)
    return Samples(np.arange(n_trees + 1) * len(sample), np.tile(sample, n_trees))


def impure(labels: IntArray, samples: Samples) -> IntArray:
    """Returns the numbers of the nodes whose samples have several classes."""
    of_samples, first = labels[samples.sample], samples.indptr[:-1]
    return np.flatnonzero(np.minimum.reduceat(of_samples, first) < np.maximum.reduceat(of_samples, first))


def grown(engine: Engine, samples: Samples, key: IntArray, weight: FloatArray, max_depth: int) -> Forest:
    """Returns a tree below each node, of depth `max_depth` at most, by sample weights (n_samples,).

    key: (n_nodes,) uint64.
    """
    objective, n = engine.growth.objective, len(key)
    objective = objective._replace(
        sample_weight=dispatch.array_module(engine.growth.samples.numbers).asarray(weight),
        limits=objective.limits._replace(max_depth=max_depth),
    )
    growth = engine.growth._replace(objective=objective)
    roots = Roots(samples.indptr, key, np.full(n, engine.total), np.zeros(n, np.int64), sample=samples.sample)
    batch = Batch(0, 0, n, None, [], roots)
    engine.candidates(growth)(batch)
    forest = unchecked.forest(batch.trees, growth, projected=engine.projected)
    return Forest(*map(dispatch.to_numpy, forest))


def with_splits(nodes: Nodes, some: IntArray, trees: Forest) -> Nodes:
    """Returns nodes with the splits that the roots of trees below some of them have."""
    root = trees.tree_start[:-1]
    for name in ("feature", "threshold", "gain", "default_left"):
        getattr(nodes, name)[some] = getattr(trees, name)[root]
    for count, indptr in ((nodes.n_entries, trees.indptr), (nodes.n_words, trees.category_indptr)):
        if len(indptr):
            count[some] = np.diff(indptr)[root]
    return nodes._replace(indices=trees.indices, data=trees.data, words=trees.category_bits)


def children(nodes: Nodes) -> Nodes:
    """Returns the children of the splits, without splits and values."""
    split = np.flatnonzero(nodes.feature != -1)
    key = machine.words(nodes.key[split], CHILDREN, 0, 2).ravel()
    return new_nodes(np.repeat(nodes.tree[split], 2), key, nodes.value.shape[1], nodes.threshold.dtype)


def forest_of(
    levels: list[Nodes], n_trees: int, n_features: int, *, projected: bool
) -> tuple[Forest, IntArray]:
    """Returns the nodes of all levels as a forest, and the number of each, (n_nodes,), in `levels`."""
    tree = np.concatenate([nodes.tree for nodes in levels])
    order = np.argsort(tree, kind="stable")  # breadth-first in each tree
    tree_start = np.searchsorted(tree[order], np.arange(n_trees + 1))

    def joined(name: str) -> Array:
        return np.concatenate([getattr(nodes, name) for nodes in levels])

    def entries(count: str, *names: str) -> tuple[Array, ...]:
        """Returns where the entries of each node begin, and the entries."""
        n = joined(count)
        first, n = (np.cumsum(n) - n)[order], n[order]
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(n)])
        return indptr, *(joined(name)[ranges(first, n)] for name in names)

    feature = joined("feature")[order]
    is_leaf = feature == -1
    indptr, indices, data = entries("n_entries", "indices", "data")
    sets = entries("n_words", "words")
    forest = Forest(
        n_features=np.array(n_features, np.int64), tree_start=tree_start, feature=feature,
        threshold=joined("threshold")[order], left=left_of(is_leaf, tree_start),
        value=joined("value")[order][is_leaf], gain=joined("gain")[order],
        indptr=indptr if projected else NO_DEFAULTS[1], indices=indices, data=data,
        default_left=joined("default_left")[order],
    )  # fmt: skip
    if len(sets[1]):
        forest = forest._replace(category_indptr=sets[0], category_bits=sets[1])
    return forest, order


def with_values(forest: Forest, number: IntArray, levels: list[Nodes]) -> Forest:
    """Returns the forest of `forest_of`, with its numbers, and the present values of the nodes."""
    value = np.concatenate([nodes.value for nodes in levels])
    return forest._replace(value=value[number[forest.feature == -1]])


def samples_of(
    leaf: IntArray, tree_start: IntArray, number: IntArray, n_nodes: int, inside: Array
) -> Samples:
    """Returns the samples of the n_nodes nodes of the last level, those of positive weight.

    leaf: (n_samples, n_trees), of `hforest.tree.apply`. number: of `forest_of`. inside: (n_samples,) bool.
    """
    number = np.maximum(number - (len(number) - n_nodes), -1)
    node = np.where(inside[:, None], number[leaf + tree_start[:-1]], -1).T.ravel()
    place = np.flatnonzero(node >= 0)
    node = node[place]
    order = np.argsort(node, kind="stable")
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(node, minlength=n_nodes))])
    return Samples(indptr, (place[order] % len(leaf)).astype(np.int32))
