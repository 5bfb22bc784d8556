"""The tree builder of the GPU: grows trees level by level. Kernels: gpu.cu; the array module sorts keys.

The trees of a call grow together. The host sees how many samples each node of a level has and sends to its
left, and lays out the next level; samples, sums and trees stay on the device.
"""

from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ..core.aliases import Array
from ..core.dispatch import array_module, to_numpy
from ..core.gpu import cast
from ..core.launch import launch_each
from ..core.projections import Distribution
from ..core.supervised import Limits
from .bins import Bins
from .trees import Batch, Learned

PACKAGE = Path(__file__).parent

KEYS = 1 << 24
"""Keys, sums or entries of candidates held at a time, unless one node has more: bounds the workspace."""


def _signed(seed: int) -> int:
    return seed - 2**64 if seed >= 2**63 else seed


def tree_keys(xp: ModuleType, seed: int, first: int, n_trees: int) -> Array:
    key = xp.empty(n_trees, np.uint64)
    launch_each(PACKAGE, "tree_keys", np.dtype(np.float64), n_trees, (_signed(seed), first, n_trees, key))
    return key


class Target(NamedTuple):
    """What trees learn, labels or targets: a struct of gpu.cu."""

    labels: Array | None
    targets: Array | None
    has_labels: int
    n_outputs: int


class Task(NamedTuple):
    """What all trees of a call share."""

    xp: ModuleType
    real: np.dtype
    target: Target
    criterion: int
    limits: Limits
    random_thresholds: bool = False
    has_defaults: bool = False

    @property
    def fit_targets(self) -> bool:
        return not self.target.has_labels

    @property
    def n_outputs(self) -> int:
        return self.target.n_outputs

    @property
    def rules(self) -> tuple[Target, int, Limits]:
        """What kernels that find splits take first."""
        return self.target, self.criterion, self.limits

    def launch(self, name: str, n: int, *args: Any) -> None:
        launch_each(PACKAGE, name, self.real, n, args)


def task_of(learned: Learned, real: np.dtype, splitter: str = "best", has_defaults: bool = False) -> Task:
    """Returns what trees learn, as kernels take it; with has_defaults they know missing values."""
    xp = array_module(learned.sample_weight)
    is_random, (labels, targets, n_outputs) = splitter == "random", learned.target
    target = Target(labels, targets, int(labels is not None), n_outputs)
    return Task(xp, real, target, learned.criterion, learned.limits, is_random, has_defaults)


# ----------------------------------------------------------- structs of gpu.cu, which describes their members


class Level(NamedTuple):
    """Nodes of one depth, of all trees, and their samples."""

    first: Array
    tree: Array
    key: Array
    root_weight: Array
    sample: Array
    sample_weight: Array
    total: Array
    mean: Array
    weight: Array
    feature: Array
    threshold: Array
    gain: Array
    n_left: Array
    right: Array
    default_left: Array


class Part(NamedTuple):
    """Nodes that are split together."""

    node: Array
    begin: Array
    n_nodes: int
    n_samples: int


class Orders(NamedTuple):
    """In which orders columns with missing values, and of categories, are scanned: struct of orders.cuh."""

    kind: int
    n_orders: int
    random: int
    missing: Array | None
    categorical: Array | None
    place: Array | None
    sorted: Array | None
    sums: Array | None
    weight: Array | None
    score: Array | None
    axis: Array | None
    flipped: Array | None


_PLAIN, _COLUMNS, _PROJECTIONS = range(3)
_NO_ORDERS = Orders(_PLAIN, 1, 0, None, None, None, None, None, None, None, None, None)


class Kept(NamedTuple):
    """Arrays of several entries a node, node by node: projections and sets of categories."""

    n_entries: Array
    index: Any
    factor: Array
    n_words: Array
    words: Array


def nothing_kept(task: Task, n_nodes: int) -> Kept:
    """Returns no entry for each of the nodes."""
    xp = task.xp
    none = xp.zeros(n_nodes, np.int64)
    return Kept(none, xp.empty(0, np.int32), xp.empty(0, np.float32), none, xp.empty(0, np.uint32))


class Entries(NamedTuple):
    """The entries of the projections of pairs."""

    index: Any
    weight: Array
    n_entries: Array
    max_entries: int


class Pairs(NamedTuple):
    """The keys of a part, and the best split of each of its pairs."""

    key: Array
    order: Array | None
    left: Array
    score: Array
    n_left: Array
    greatest: Array | None
    threshold: Array | None
    flipped: Array | None
    slots: int


class Split(NamedTuple):
    """The splits of the nodes of a part."""

    chosen: Array
    greatest: Array
    n_left: Array


class Columns(NamedTuple):
    """Candidates that are columns of bins."""

    bins: Array | None
    low: Array | None
    high: Array | None
    base: Array | None
    offset: Array | None
    width: int
    n: int
    n_columns: int
    n_bins: int
    n_sampled: int

    def split(
        self, task: Task, level: Level, part: Part, orders: Orders, column: Array, key: Array, n_left: Array
    ) -> tuple[Pairs, Split]:
        """Splits nodes by sampled columns, which go to `column` (OUT), with the workspace `key`."""
        xp, n_nodes, slots = task.xp, part.n_nodes, self.n_sampled * orders.n_orders
        swap = xp.empty((n_nodes, self.n_columns), np.int32)
        task.launch("draw_columns", n_nodes, self, level, part, orders, swap, column)
        if orders.place is not None:
            task.launch(
                "order_columns", n_nodes * self.n_sampled, task.target, self, level, part, orders, column
            )
        task.launch("bin_keys", len(key), self, level, part, slots, orders, column, key)
        order = None
        if not task.random_thresholds:
            order = xp.argsort(key, kind="stable").astype(np.int64, copy=False)
        pairs = _pairs(task, part, key, order, slots)
        split = _best_splits(task, level, part, pairs, self, orders, column, n_left)
        task.launch("name_columns", n_nodes, level, part, split, column)
        return pairs, split


class Kinds(NamedTuple):
    """Which columns have missing values, and which hold categories."""

    missing: Array | None = None
    categorical: Array | None = None
    max_words: int = 0
    """Words of the largest set of categories."""


class ColumnSource(NamedTuple):
    """Candidates that are columns of bins, in all orders in which they are scanned."""

    columns: Columns
    kinds: Kinds = Kinds()

    @property
    def projected(self) -> bool:
        return False

    def _n_orders(self, task: Task) -> int:
        """Orders of a column, at most."""
        if self.kinds.missing is None or task.random_thresholds:
            return 1
        one_output = task.n_outputs <= (1 if task.fit_targets else 2)
        return 2 if self.kinds.categorical is None or one_output else 7

    def slots(self, task: Task) -> int:
        return self.columns.n_sampled * self._n_orders(task)

    def workspace_size(self, task: Task) -> int:
        size = self.columns.n_columns
        if self.kinds.categorical is not None:
            size = max(size, self.columns.n_sampled * self.columns.n_bins * task.n_outputs)
        return size

    def _orders(self, task: Task, part: Part) -> Orders:
        xp, c = task.xp, self.columns
        if self.kinds.missing is None:
            return _NO_ORDERS
        orders = _NO_ORDERS._replace(
            kind=_COLUMNS, n_orders=self._n_orders(task), random=int(task.random_thresholds),
            missing=self.kinds.missing, flipped=xp.zeros(part.n_nodes, np.int32),
        )  # fmt: skip
        if self.kinds.categorical is None:
            return orders
        shape = part.n_nodes, c.n_sampled, c.n_bins
        return orders._replace(
            categorical=self.kinds.categorical, place=xp.empty(shape, np.int32),
            sorted=xp.empty(shape, np.int32), sums=xp.empty((*shape, task.n_outputs)),
            weight=xp.empty(shape), score=xp.empty(shape), axis=xp.empty((*shape[:2], 2, task.n_outputs)),
        )  # fmt: skip

    def split(self, task: Task, level: Level, part: Part, n_left: Array) -> Kept:
        """Splits nodes and returns their sets of categories."""
        xp, n_nodes, slots, orders = task.xp, part.n_nodes, self.slots(task), self._orders(task, part)
        column, key = xp.empty((n_nodes, slots), np.int32), xp.empty(part.n_samples * slots, np.uint64)
        pairs, split = self.columns.split(task, level, part, orders, column, key, n_left)
        none = nothing_kept(task, n_nodes)
        if not self.kinds.max_words:
            return none
        words = xp.zeros((n_nodes, self.kinds.max_words), np.uint32)
        n_words = xp.empty(n_nodes, np.int64)
        task.launch(
            "category_words", n_nodes, self.columns, level, part, pairs, split, column, orders,
            self.kinds.max_words, words, n_words,
        )  # fmt: skip
        used = xp.arange(self.kinds.max_words) < n_words[:, None]
        return none._replace(n_words=n_words, words=words[used])


NO_COLUMNS = Columns(None, None, None, None, None, 0, 0, 0, 0, 0)
"""Of splits on projections."""


# -------------------------------------------------------------------------------------------------- splits


def columns_of(bins: Bins, n_sampled: int) -> Columns:
    """Returns the candidates of the columns of bins."""
    n, n_columns = bins.shape
    return Columns(
        bins.bins.view(np.uint8), bins.low, bins.high, bins.base, bins.offset, bins.bins.dtype.itemsize, n,
        n_columns, bins.low.shape[1], n_sampled,
    )  # fmt: skip


def kinds_of(bins: Bins) -> Kinds:
    """Returns which columns have missing values, and which hold categories."""
    if bins.categorical is None or not bool(bins.categorical.any()):
        return Kinds(bins.missing)
    max_words = int(bins.low[bins.categorical].max()) // 32 + 1
    return Kinds(bins.missing, bins.categorical.view(np.uint8), max_words)


class Projections(NamedTuple):
    """Candidates that are projections of x."""

    x: Array
    distribution: Distribution
    numbers: Array
    groups: Array
    n_sampled: int

    @property
    def projected(self) -> bool:
        return True

    def _n_orders(self, task: Task) -> int:
        return 2 if task.has_defaults and not task.random_thresholds else 1

    def slots(self, task: Task) -> int:
        return self.n_sampled * self._n_orders(task)

    def workspace_size(self, task: Task) -> int:
        return self.slots(task) * self.distribution.max_entries

    def split(self, task: Task, level: Level, part: Part, n_left: Array) -> Kept:
        """Splits nodes and returns the entries of their projections."""
        xp, n_nodes, slots, max_entries = (
            task.xp, part.n_nodes, self.slots(task), self.distribution.max_entries
        )  # fmt: skip
        orders = _NO_ORDERS
        if task.has_defaults:
            orders = orders._replace(
                kind=_PROJECTIONS, n_orders=self._n_orders(task), random=int(task.random_thresholds),
                flipped=xp.zeros(n_nodes, np.int32),
            )  # fmt: skip
        n_pairs = n_nodes * slots
        entries = Entries(
            xp.empty((n_pairs, max_entries), np.int32), xp.empty((n_pairs, max_entries), np.float32),
            xp.empty(n_pairs, np.int64), max_entries,
        )  # fmt: skip
        task.launch(
            "draw_projections", n_pairs, self.numbers, self.groups, self.distribution.density,
            self.distribution.zero_probability, level, part, slots, orders, entries,
        )  # fmt: skip
        n_keys, double = part.n_samples * slots, task.real.itemsize == 8
        key, pair = xp.empty(n_keys, np.uint64), xp.empty(n_keys if double else 0, np.uint32)
        task.launch(
            "value_keys", n_keys, self.x, self.x.shape[1], level, part, slots, entries, orders, key, pair
        )
        order = None
        if not task.random_thresholds:
            order = xp.argsort(key, kind="stable").astype(np.int64, copy=False)
        if double and order is not None:
            order = order[xp.argsort(pair[order], kind="stable")]
        pairs, no_column = _pairs(task, part, key, order, slots), xp.empty(0, np.int32)
        split = _best_splits(task, level, part, pairs, NO_COLUMNS, orders, no_column, n_left)
        n_kept = xp.empty(n_nodes, np.int64)
        task.launch("name_projections", n_nodes, level, part, split, entries, n_kept)
        stop = xp.cumsum(n_kept)
        size = int(stop[-1])
        projections = xp.empty(size, np.int32), xp.empty(size, np.float32)
        task.launch(
            "move_entries", n_nodes, entries.index, entries.weight, split.chosen * max_entries, stop - n_kept,
            n_kept, n_nodes, *projections,
        )  # fmt: skip
        return nothing_kept(task, n_nodes)._replace(
            n_entries=n_kept, index=projections[0], factor=projections[1]
        )


def _pairs(task: Task, part: Part, key: Array, order: Array | None, slots: int) -> Pairs:
    """Returns the pairs of a part, before their splits are known; without an order, of random thresholds."""
    xp, n_pairs = task.xp, part.n_nodes * slots
    left, score = xp.empty((n_pairs, task.n_outputs)), xp.empty(n_pairs)
    greatest, threshold, flipped = None, None, None
    if order is None:
        greatest, threshold = xp.empty(n_pairs, np.uint64), xp.empty(n_pairs)
        flipped = xp.empty(n_pairs if task.has_defaults else 0, np.int32)
    return Pairs(key, order, left, score, xp.empty(n_pairs, np.int64), greatest, threshold, flipped, slots)


def _best_splits(
    task: Task, level: Level, part: Part, pairs: Pairs, columns: Columns, orders: Orders, column: Array,
    n_left: Array,
) -> Split:  # fmt: skip
    """Returns the split of each node; writes `n_left` (OUT) and the side of each sample."""
    xp, n_nodes = task.xp, part.n_nodes
    split = Split(xp.empty(n_nodes, np.int64), xp.empty(n_nodes, np.uint64), n_left)
    if task.random_thresholds:
        task.launch(
            "random_splits", n_nodes * pairs.slots, *task.rules, level, part, pairs, columns, orders, column
        )  # fmt: skip
    else:
        task.launch("scan_splits", n_nodes * pairs.slots, *task.rules, level, part, pairs)
    task.launch("pick_splits", n_nodes, *task.rules, level, part, pairs, columns, orders, column, split)
    task.launch("sides", part.n_samples, level, part, pairs, orders, split)
    return split


def _parts(sizes: np.ndarray, per_sample: int, per_node: int) -> list[tuple[int, int]]:
    """Runs of nodes whose workspace is at max_entries KEYS, or that are one node."""
    cost = np.cumsum(np.maximum(sizes * per_sample, per_node))
    parts, first, spent = [], 0, 0
    while first < len(sizes):
        stop = max(first + 1, int(np.searchsorted(cost, spent + KEYS, side="right")))
        parts.append((first, stop))
        first, spent = stop, int(cost[stop - 1])
    return parts


class Grown(NamedTuple):
    """Nodes of one level when it is done: arrays of the device, and what the host knows of them."""

    feature: Array
    threshold: Array
    gain: Array
    default_left: Array
    value: Array
    index: Any
    factor: Array
    words: Array
    tree: np.ndarray
    is_leaf: np.ndarray
    n_kept: np.ndarray
    n_words: np.ndarray


def grow_trees(task: Task, candidates: Any, weight: Array, batch: Batch) -> None:
    """Appends the trees of a batch, on columns, projections or hyperplanes, to `batch.trees`."""
    xp, counts, n_trees = task.xp, batch.counts, batch.n_trees
    weights: Any = xp.broadcast_to(weight, (n_trees, len(weight))) if counts is None else weight * counts
    # Where only samples without weight were drawn, the tree takes all.
    weights = xp.where((weights > 0).any(axis=1)[:, None], weights, weight)
    drawn = weights > 0
    sizes = to_numpy(drawn.sum(axis=1)).astype(np.int64)
    tree = np.arange(n_trees)
    sample, sample_weight = xp.nonzero(drawn)[1].astype(np.int32), weights[drawn]
    key = tree_keys(xp, batch.seed, batch.first, n_trees)
    root_weight: Any = None
    levels: list[Grown] = []
    while len(tree):
        n_nodes = len(tree)
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        node_weight = xp.empty(n_nodes)
        root_weight = node_weight if root_weight is None else root_weight
        level = Level(
            xp.asarray(starts), xp.asarray(tree.astype(np.int32)), key, root_weight, sample, sample_weight,
            xp.empty((n_nodes, task.n_outputs)),
            xp.empty((n_nodes if task.fit_targets else 0, task.n_outputs)),
            node_weight, xp.full(n_nodes, -1, np.int32), xp.zeros(n_nodes), xp.zeros(n_nodes),
            xp.full(n_nodes, -1, np.int64), xp.zeros(len(sample), np.int64),
            xp.zeros(n_nodes if task.has_defaults else 0, np.uint8),
        )  # fmt: skip
        pure = xp.ones(n_nodes, np.int32)
        task.launch("sum_up", n_nodes * task.n_outputs, task.target, level, n_nodes, pure)
        limits = task.limits
        least = max(2, limits.min_samples_split, 2 * limits.min_samples_leaf)
        pending = np.flatnonzero((to_numpy(pure) == 0) & (sizes >= least) & (len(levels) < limits.max_depth))
        n_left, grown = _split_level(task, candidates, level, pending, sizes, tree)
        levels.append(grown)
        sample, sample_weight, key, sizes, tree = _next_level(task, level, n_left, sizes, tree)
    _collect(task, candidates.projected, levels, n_trees, batch.trees)


def _split_level(
    task: Task,
    candidates: Any,
    level: Level,
    pending: np.ndarray,
    sizes: np.ndarray,
    tree: np.ndarray,
) -> tuple[np.ndarray, Grown]:
    """Splits the pending nodes; returns how many samples go left (-1 in leaves), on the host."""
    xp, slots = task.xp, candidates.slots(task)
    size = max(candidates.workspace_size(task), slots * task.n_outputs)
    n_left_of, n_kept_of, n_words_of = (np.full(len(sizes), fill) for fill in (-1, 0, 0))
    splits = [nothing_kept(task, 0)]
    for a, b in _parts(sizes[pending], slots, size):
        node, of_part = pending[a:b], sizes[pending[a:b]]
        begin = np.concatenate([[0], np.cumsum(of_part)]).astype(np.int64)
        part = Part(xp.asarray(node.astype(np.int64)), xp.asarray(begin), b - a, int(begin[-1]))
        n_left = xp.empty(b - a, np.int64)
        splits.append(candidates.split(task, level, part, n_left))
        n_kept_of[node], n_words_of[node] = to_numpy(splits[-1].n_entries), to_numpy(splits[-1].n_words)
        level.n_left[part.node] = n_left
        n_left_of[node] = to_numpy(n_left)
    leaves = np.flatnonzero(n_left_of < 0).astype(np.int64)
    value = xp.empty((len(leaves), task.n_outputs), task.real)
    task.launch("leaf_values", value.size, task.target, level, xp.asarray(leaves), len(leaves), value)
    index, factor, words = (
        xp.concatenate([getattr(some, name) for some in splits]) for name in ("index", "factor", "words")
    )
    grown = Grown(
        level.feature, level.threshold, level.gain, level.default_left, value, index, factor, words, tree,
        n_left_of < 0, n_kept_of, n_words_of,
    )  # fmt: skip
    return n_left_of, grown


def _next_level(
    task: Task, level: Level, n_left: np.ndarray, sizes: np.ndarray, tree: np.ndarray
) -> tuple[Array, Array, Array, np.ndarray, np.ndarray]:
    """Samples, their weights and keys of the children; their sizes and trees."""
    xp = task.xp
    split = np.flatnonzero(n_left >= 0)
    sizes_after = np.stack([n_left[split], sizes[split] - n_left[split]], axis=1).ravel()
    child = np.full(len(sizes), -1)
    child[split] = np.cumsum(sizes[split]) - sizes[split]
    n_after = int(sizes_after.sum())
    sample, sample_weight = xp.empty(n_after, np.int32), xp.empty(n_after)
    n = len(level.sample) if n_after else 0
    task.launch(
        "move_samples", n, level, len(sizes), n, xp.cumsum(level.right), xp.asarray(child), sample,
        sample_weight,
    )  # fmt: skip
    key = xp.empty(2 * len(split), np.uint64)
    task.launch("child_keys", len(split), level.key, xp.asarray(split.astype(np.int64)), len(split), key)
    return sample, sample_weight, key, sizes_after, np.repeat(tree[split], 2)


def _collect(
    task: Task, projected: bool, levels: list[Grown], n_trees: int, trees: list[tuple[Array, ...]]
) -> None:
    """From nodes level by level to nodes tree by tree, which keeps those of a tree breadth-first."""
    xp = task.xp
    joined = Grown(*(
        (np if i >= 8 else xp).concatenate([grown[i] for grown in levels]) for i in range(len(Grown._fields))
    ))  # fmt: skip
    order = np.argsort(joined.tree, kind="stable")
    of_tree, leaf_row = joined.tree[order], np.cumsum(joined.is_leaf) - 1
    is_leaf_there = joined.is_leaf[order]
    starts = np.searchsorted(of_tree, np.arange(n_trees + 1))
    leaf_starts = np.concatenate([[0], np.cumsum(is_leaf_there)])[starts]
    # Children follow the root in the order of their parents; leaves are numbered in the order of nodes.
    parents = np.cumsum(~is_leaf_there)
    parents_before = np.concatenate([[0], parents])[starts][of_tree]
    leaves = np.cumsum(is_leaf_there) - 1 - leaf_starts[of_tree]
    left = xp.asarray(np.where(is_leaf_there, leaves, 2 * (parents - parents_before) - 1).astype(np.int32))
    at = xp.asarray(order)
    feature, threshold, gain = joined.feature[at], *(cast(a[at], task.real) for a in joined[1:3])
    value = joined.value[xp.asarray(leaf_row[order][is_leaf_there])]
    entry, source = _moved(joined.n_kept, order)
    index, factor = (a[xp.asarray(source)] for a in (joined.index, joined.factor))
    word, source = _moved(joined.n_words, order)
    words = joined.words[xp.asarray(source)]
    default_left = joined.default_left[at] if task.has_defaults else None
    for m in range(n_trees):
        nodes, rows = slice(*starts[m : m + 2]), slice(*leaf_starts[m : m + 2])
        grown: tuple[Array, ...] = (
            feature[nodes], threshold[nodes], left[nodes], gain[nodes], value[rows].ravel()
        )  # fmt: skip
        if projected:
            entries = slice(entry[nodes.start], entry[nodes.stop])
            grown += xp.asarray(entry[nodes] - entry[nodes.start]), index[entries], factor[entries]
        if default_left is not None:
            n_words = np.diff(word[nodes.start : nodes.stop + 1])
            grown += default_left[nodes], xp.asarray(n_words), words[word[nodes.start] : word[nodes.stop]]
        trees.append(grown)


def _moved(count: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns where each node's entries begin when nodes are in another order, and where each entry was."""
    there = count[order]
    entry = np.cumsum(there) - there
    source = np.repeat((np.cumsum(count) - count)[order] - entry, there)
    return np.concatenate([entry, [there.sum()]]), source + np.arange(len(source))
