"""Structs that the kernels of growth take by value, with the members of the structs of the same names.

Shapes of members, and which kernel writes them, stand at the structs: gpu.cu; of Orders node_orders.cuh, of
Projections small_nodes.cuh. Where the type of a member allows None, None is a null pointer.
"""

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ...core.aliases import Array
from ...core.launch import numbers


class Target(NamedTuple):
    """The labels or targets of all samples, and their weights in each tree."""

    labels: Array | None
    targets: Array | None
    q: Array | None
    weight: Array | None
    whole: Array | None
    sign: Array | None
    has_labels: int
    n_outputs: int
    n: int
    is_whole: int
    from_0: int
    stride: int


class Level(NamedTuple):
    """The nodes of a level, of all trees, and their samples."""

    first: Array
    count: Any
    tree: Array
    key: Array
    root_weight: Array
    sample: Array
    u: Array
    measured: Array | None
    unit: Array | None
    total: Array
    mean: Array | None
    weight: Array
    value: Array | None
    feature: Array
    threshold: Array
    gain: Array
    default_left: Array
    place: Array
    n_nodes: int
    n_samples: int
    number: int


class Pending(NamedTuple):
    """The pending nodes of a level: those that are to be split."""

    node: Array
    begin: Array
    large: Array
    run: Array
    n_nodes: int
    n_samples: int
    n_large: int
    n_runs: int
    counts_bins: int
    small: int


class Children(NamedTuple):
    """The nodes of the next level, and their samples."""

    first: Array
    count: Any
    tree: Array
    key: Array
    sample: Array
    u: Array
    unit: Array | None
    total: Array | None
    n_trees: int


class SmallNodes(NamedTuple):
    """The small nodes, each of which a block grows to its leaves, listed while levels grow."""

    first: Array
    count: Any
    tree: Array
    key: Array
    depth: Array
    unit: Array | None
    n_nodes: int


class Orders(NamedTuple):
    """The orders in which nodes scan columns with missing values, and columns of categories."""

    kind: int
    n_orders: int
    random: int
    missing: Array | None
    categorical: Array | None
    place: Array | None
    sorted: Array | None
    sums: Array | None
    terms: Array | None
    weight: Array | None
    score: Array | None
    axis: Array | None
    flipped: Array | None


PLAIN, COLUMNS, PROJECTIONS = numbers("growth/gpu/node_orders.cuh", "PLAIN", "COLUMNS", "PROJECTIONS")
NO_ORDERS = Orders(PLAIN, 1, 0, None, None, None, None, None, None, None, None, None, None)


class NodeEntries(NamedTuple):
    """The entries of the projections that split the nodes of a level."""

    begin: Array
    count: Any
    index: Any
    factor: Array
    end: Array | None


class CategorySets(NamedTuple):
    """The categories that go left at each node of a level, as bits; no struct of a kernel."""

    count: Any
    """(n_nodes,) int64: number of words of a set; 0: the node does not split by categories."""
    word: Array
    """(n_nodes, max_words) uint32: bit c % 32 of word c // 32 says whether category c goes left."""


def no_node_entries(xp: ModuleType, n_nodes: int, end: Array, n_entries: int = 0) -> NodeEntries:
    """Returns entries of `n_nodes` nodes, which have none yet, with memory for `n_entries` entries of all."""
    count, begin = xp.zeros(n_nodes, np.int64), xp.empty(n_nodes, np.int64)
    return NodeEntries(begin, count, xp.empty(n_entries, np.int32), xp.empty(n_entries, np.float32), end)


class Entries(NamedTuple):
    """The entries of the projections that pending nodes compare."""

    index: Any
    weight: Array | None
    n_entries: Array | None
    max_entries: int


NO_ENTRIES = Entries(None, None, None, 0)
"""Where candidates are columns, which have no entries."""


class KeyBits(NamedTuple):
    """Numbers of bits in a key: weight and label of its sample, or 0 and 0; then its bin or value."""

    weight: int
    label: int
    value: int


class Candidates(NamedTuple):
    """The candidates of the pending nodes: their keys, and the split of each."""

    key: Array | None
    sorted: Array | None
    order: Array | None
    near: Array | None
    left: Array | None
    score: Array | None
    n_right: Array | None
    greatest: Array | None
    threshold: Array | None
    flipped: Array | None
    column: Array | None
    slots: int
    n_orders: int
    weight_bits: int
    label_bits: int
    value_bits: int
    start: int
    together: int


NO_CANDIDATES = Candidates(
    None, None, None, None, None, None, None, None, None, None, None, 0, 1, 0, 0, 0, 0, 0
)  # fmt: skip
"""For `sides`, where split.right has the sides of samples already."""


class Split(NamedTuple):
    """The splits of the pending nodes."""

    chosen: Array
    greatest: Array
    n_left: Array
    right: Array
    tail: Array


class Projections(NamedTuple):
    """x, and the distribution from which projections are drawn."""

    x: Array | None
    distribution: Array | None
    table: Array | None
    n_features: int
    density: float
    zero_probability: float


NO_PROJECTIONS = Projections(None, None, None, 0, 0.0, 0.0)
"""Where candidates are columns."""
