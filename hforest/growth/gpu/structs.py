"""Structs of the kernels of growth, which describe their members: gpu.cu, node_orders.cuh, small_nodes.cuh."""

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ...core.aliases import Array
from ...core.launch import numbers


class Target(NamedTuple):
    """What trees learn, labels or targets: a struct of gpu.cu."""

    labels: Array | None
    targets: Array | None
    q: Array | None
    weight: Array | None
    whole: Array | None
    has_labels: int
    n_outputs: int
    n: int
    is_whole: int


class Level(NamedTuple):
    """Nodes of one depth, of all trees, and their samples."""

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
    """Nodes that are pending."""

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
    """The nodes of the next level and their samples: a struct of gpu.cu."""

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
    """Nodes that blocks grow to their leaves, listed while levels grow: a struct of gpu.cu."""

    first: Array
    count: Any
    tree: Array
    key: Array
    depth: Array
    unit: Array | None
    n_nodes: int


class Orders(NamedTuple):
    """In which orders columns with missing values, and of categories, are scanned: struct of node_orders.cuh."""

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
    """Entries of the projections of a level's nodes."""

    begin: Array
    count: Any
    index: Any
    factor: Array
    end: Array | None


class CategorySets(NamedTuple):
    """Sets of categories of a level's nodes: their numbers of words, and (n_nodes, max_words)."""

    count: Any
    word: Array


def no_node_entries(xp: ModuleType, n_nodes: int, end: Array, n_entries: int = 0) -> NodeEntries:
    """Returns no entry for each of the nodes, and room for some."""
    count, begin = xp.zeros(n_nodes, np.int64), xp.empty(n_nodes, np.int64)
    return NodeEntries(begin, count, xp.empty(n_entries, np.int32), xp.empty(n_entries, np.float32), end)


class Entries(NamedTuple):
    """The entries of the projections of pairs."""

    index: Any
    weight: Array | None
    n_entries: Array | None
    max_entries: int


NO_ENTRIES = Entries(None, None, None, 0)
"""Of splits on columns."""


class KeyBits(NamedTuple):
    """Bits of a key: weight and label of its sample, or none, and bin or value."""

    weight: int
    label: int
    value: int


class Candidates(NamedTuple):
    """The keys of a part, and the best split of each of its pairs."""

    key: Array | None
    sorted: Array | None
    order: Array | None
    left: Array | None
    score: Array | None
    n_right: Array | None
    greatest: Array | None
    threshold: Array | None
    flipped: Array | None
    slots: int
    weight_bits: int
    label_bits: int
    value_bits: int


NO_CANDIDATES = Candidates(None, None, None, None, None, None, None, None, None, 0, 0, 0, 0)
"""Where the sides of samples are known."""


class Split(NamedTuple):
    """The splits of the nodes of a part."""

    chosen: Array
    greatest: Array
    n_left: Array
    right: Array
    tail: Array


class Projections(NamedTuple):
    """Projections of x: a struct of small_nodes.cuh."""

    x: Array | None
    distribution: Array | None
    groups: Array | None
    n_features: int
    density: float
    zero_probability: float


NO_PROJECTIONS = Projections(None, None, None, 0, 0.0, 0.0)
"""Of splits on columns."""
