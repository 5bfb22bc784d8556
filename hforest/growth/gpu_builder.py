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
from ..core.launch import launch_each
from ..core.projections import Distribution
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


class Task(NamedTuple):
    """What all trees of a call share."""

    xp: ModuleType
    real: np.dtype
    labels: Array
    targets: Array
    fit_targets: int
    n_outputs: int
    criterion: int
    max_depth: int
    min_split: int
    min_leaf: int
    min_decrease: float

    @property
    def learned(self) -> tuple[Any, ...]:
        return self.labels, self.targets, self.fit_targets, self.n_outputs

    def launch(self, name: str, n: int, *args: Any) -> None:
        launch_each(PACKAGE, name, self.real, n, args)


def task_of(learned: Learned, real: np.dtype) -> Task:
    """Returns what trees learn, as kernels take it."""
    xp = array_module(learned.sample_weight)
    labels, targets, n_outputs = learned.target
    labels_or_none = xp.empty(0, np.int32) if labels is None else labels
    targets_or_none = xp.empty(0) if targets is None else targets
    fit_targets = int(labels is None)
    return Task(
        xp,
        real,
        labels_or_none,
        targets_or_none,
        fit_targets,
        int(n_outputs),
        learned.criterion,
        *learned.limits,
    )


class Level(NamedTuple):
    """Nodes of one depth, of all trees, and their samples."""

    first: Array
    """Where each node's samples begin, and where the last one's end."""
    tree: Array
    key: Array
    root_weight: Array
    """By tree."""
    sample: Array
    sample_weight: Array
    total: Array
    mean: Array
    weight: Array
    feature: Array
    threshold: Array
    gain: Array
    n_left: Array
    """-1: a leaf."""
    right: Array
    """1 where a sample goes right."""


class Part(NamedTuple):
    """Nodes that are split together."""

    node: Array
    begin: Array
    """Samples before those of each node, and of all."""
    n_nodes: int
    n_samples: int


class Columns(NamedTuple):
    """Candidates that are columns of bins."""

    bins: Array
    low: Array
    high: Array
    width: int
    base: Array
    offset: Array
    windows: int
    n: int
    n_columns: int
    n_sampled: int
    completely_random: bool

    @property
    def projected(self) -> bool:
        return False

    def slots(self) -> int:
        return 1 if self.completely_random else self.n_sampled

    def workspace_size(self) -> int:
        return self.n_columns

    def split(self, task: Task, level: Level, part: Part, n_left: Array) -> tuple[Array, Array]:
        """Splits nodes and returns the entries of their projections: none."""
        xp, n_nodes, slots = task.xp, part.n_nodes, self.slots()
        column = xp.empty((n_nodes, slots), np.int32)
        places = (self.bins, self.width, self.base, self.offset, self.windows, self.n)
        swap = xp.empty((n_nodes, self.n_columns), np.int32)
        task.launch(
            "draw_columns", n_nodes, *places, self.n_columns, level.sample, level.first, level.key,
            part.node, n_nodes, self.n_sampled, int(self.completely_random), swap, column,
        )  # fmt: skip
        n_keys = part.n_samples * slots
        key = xp.empty(n_keys, np.uint64)
        task.launch(
            "bin_keys", n_keys, *places, level.sample, level.first, part.node, part.begin, n_nodes, slots,
            column, n_keys, key,
        )  # fmt: skip
        tables = (column, self.low, self.high, self.low.shape[1], self.windows)
        if self.completely_random:
            chosen = _random_split(task, level, part, key, tables, n_left)
        else:
            order = xp.argsort(key, kind="stable").astype(np.int64, copy=False)
            chosen = _best_split(task, level, part, key, order, slots, tables, n_left)
        task.launch("name_columns", n_nodes, chosen, n_left, n_nodes, column, part.node, level.feature)
        return xp.empty(0, np.int32), xp.empty(0, np.float32)


def columns_of(bins: Bins, n_sampled: int, completely_random: bool) -> Columns:
    """Returns the candidates of the columns of bins."""
    xp = array_module(bins.bins)
    none = xp.empty(0, np.int64)
    n, n_columns = bins.shape
    return Columns(
        bins.bins.view(np.uint8), bins.low, bins.high, bins.bins.dtype.itemsize,
        none if bins.base is None else bins.base, none if bins.offset is None else bins.offset,
        int(bins.base is not None), n, n_columns, n_sampled, completely_random,
    )  # fmt: skip


class Projections(NamedTuple):
    """Candidates that are projections of x."""

    x: Array
    distribution: Distribution
    numbers: Array
    n_sampled: int

    @property
    def projected(self) -> bool:
        return True

    def slots(self) -> int:
        return self.n_sampled

    def workspace_size(self) -> int:
        return self.n_sampled * self.distribution.max_entries

    def split(
        self, task: Task, level: Level, part: Part, n_left: Array, n_kept: Array
    ) -> tuple[Array, Array]:
        """Splits nodes and returns the entries of their projections, node by node."""
        xp, n_nodes, slots, max_entries = task.xp, part.n_nodes, self.n_sampled, self.distribution.max_entries
        index = xp.empty((n_nodes * slots, max_entries), np.int32)
        factor = xp.empty((n_nodes * slots, max_entries), np.float32)
        n_entries = xp.empty(n_nodes * slots, np.int64)
        task.launch(
            "draw_projections", n_nodes * slots, self.numbers, self.distribution.density,
            self.distribution.zero_probability, level.key, part.node, n_nodes, slots, max_entries, index,
            factor, n_entries,
        )  # fmt: skip
        n_keys, double = part.n_samples * slots, task.real.itemsize == 8
        key, pair = xp.empty(n_keys, np.uint64), xp.empty(n_keys if double else 0, np.uint32)
        task.launch(
            "value_keys", n_keys, self.x, self.x.shape[1], level.sample, level.first, part.node, part.begin,
            n_nodes, slots, max_entries, index, factor, n_entries, n_keys, key, pair,
        )  # fmt: skip
        order = xp.argsort(key, kind="stable").astype(np.int64, copy=False)
        if double:
            order = order[xp.argsort(pair[order], kind="stable")]
        none = xp.empty(0)
        chosen = _best_split(
            task, level, part, key, order, slots, (xp.empty(0, np.int32), none, none, 0, 0), n_left
        )
        task.launch(
            "name_projections", n_nodes, chosen, n_left, n_nodes, max_entries, index, factor, n_entries,
            part.node, level.feature, n_kept,
        )  # fmt: skip
        stop = xp.cumsum(n_kept)
        size = int(stop[-1])
        kept = xp.empty(size, np.int32), xp.empty(size, np.float32)
        task.launch(
            "move_entries",
            n_nodes,
            index,
            factor,
            chosen * max_entries,
            stop - n_kept,
            n_kept,
            n_nodes,
            *kept,
        )
        return kept


def _best_split(
    task: Task,
    level: Level,
    part: Part,
    key: Array,
    order: Array,
    slots: int,
    tables: tuple[Any, ...],
    n_left: Array,
) -> Array:
    """Returns the best split of each node, as its pair; writes the side of each sample."""
    xp, n_nodes = task.xp, part.n_nodes
    n_pairs = n_nodes * slots
    left, score = xp.empty((n_pairs, task.n_outputs)), xp.empty(n_pairs)
    pair_left = xp.empty(n_pairs, np.int64)
    task.launch(
        "scan_splits", n_pairs, key, order, level.sample, level.sample_weight, *task.learned, level.first,
        part.node, part.begin, n_nodes, slots, task.criterion, task.min_leaf, level.total, level.mean,
        level.weight, left, score, pair_left,
    )  # fmt: skip
    chosen, split_key = xp.empty(n_nodes, np.int64), xp.empty(n_nodes, np.uint64)
    task.launch(
        "pick_splits", n_nodes, key, order, part.node, part.begin, n_nodes, slots, task.n_outputs,
        task.criterion, task.min_decrease, level.tree, level.root_weight, level.total, level.weight, score,
        pair_left, *tables, chosen, split_key, n_left, level.threshold, level.gain,
    )  # fmt: skip
    _take_sides(task, level, part, key, slots, chosen, split_key, n_left)
    return chosen


def _random_split(
    task: Task, level: Level, part: Part, key: Array, tables: tuple[Any, ...], n_left: Array
) -> Array:
    """As `_best_split`, of completely random trees."""
    xp, n_nodes = task.xp, part.n_nodes
    left = xp.empty((n_nodes, task.n_outputs))
    chosen, split_key = xp.empty(n_nodes, np.int64), xp.empty(n_nodes, np.uint64)
    task.launch(
        "random_split", n_nodes, key, level.sample, level.sample_weight, *task.learned, level.first,
        level.key, part.node, part.begin, n_nodes, task.criterion, task.min_leaf, task.min_decrease,
        level.tree, level.root_weight, level.total, level.mean, level.weight, *tables, left, chosen,
        split_key, n_left, level.threshold, level.gain,
    )  # fmt: skip
    _take_sides(task, level, part, key, 1, chosen, split_key, n_left)
    return chosen


def _take_sides(
    task: Task, level: Level, part: Part, key: Array, slots: int, chosen: Array, split_key: Array,
    n_left: Array,
) -> None:  # fmt: skip
    task.launch(
        "sides", part.n_samples, key, level.first, part.node, part.begin, part.n_nodes, slots, chosen,
        split_key, n_left, part.n_samples, level.right,
    )  # fmt: skip


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
    value: Array
    index: Array
    factor: Array
    tree: np.ndarray
    is_leaf: np.ndarray
    n_kept: np.ndarray


def grow_trees(task: Task, candidates: Any, weight: Array, batch: Batch) -> None:
    """Appends the trees of a batch, on columns, projections or hyperplanes, to `batch.trees`."""
    xp, counts, n_trees = task.xp, batch.counts, batch.n_trees
    weights = xp.broadcast_to(weight, (n_trees, len(weight))) if counts is None else weight * counts
    # Where only samples without weight were drawn, the tree takes all.
    weights = xp.where((weights > 0).any(axis=1)[:, None], weights, weight)
    drawn = weights > 0
    sizes = to_numpy(drawn.sum(axis=1)).astype(np.int64)
    tree = np.arange(n_trees)
    sample, sample_weight = xp.nonzero(drawn)[1].astype(np.int32), weights[drawn]
    key = tree_keys(xp, batch.seed, batch.first, n_trees)
    root_weight: Array = None
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
        )  # fmt: skip
        pure = xp.ones(n_nodes, np.int32)
        task.launch(
            "sum_up", n_nodes * task.n_outputs, sample, sample_weight, *task.learned, level.first, n_nodes,
            level.total, level.mean, node_weight, pure,
        )  # fmt: skip
        least = max(2, task.min_split, 2 * task.min_leaf)
        pending = np.flatnonzero((to_numpy(pure) == 0) & (sizes >= least) & (len(levels) < task.max_depth))
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
    xp, slots = task.xp, candidates.slots()
    size = max(candidates.workspace_size(), slots * task.n_outputs)
    n_left_of, n_kept_of = np.full(len(sizes), -1), np.zeros(len(sizes), np.int64)
    kept = [(xp.empty(0, np.int32), xp.empty(0, np.float32))]
    for a, b in _parts(sizes[pending], slots, size):
        node, of_part = pending[a:b], sizes[pending[a:b]]
        begin = np.concatenate([[0], np.cumsum(of_part)]).astype(np.int64)
        part = Part(xp.asarray(node.astype(np.int64)), xp.asarray(begin), b - a, int(begin[-1]))
        n_left = xp.empty(b - a, np.int64)
        if candidates.projected:
            n_kept = xp.empty(b - a, np.int64)
            kept.append(candidates.split(task, level, part, n_left, n_kept))
            n_kept_of[node] = to_numpy(n_kept)
        else:
            kept.append(candidates.split(task, level, part, n_left))
        level.n_left[part.node] = n_left
        n_left_of[node] = to_numpy(n_left)
    leaves = np.flatnonzero(n_left_of < 0).astype(np.int64)
    value = xp.empty((len(leaves), task.n_outputs), task.real)
    task.launch(
        "leaf_values", value.size, xp.asarray(leaves), len(leaves), task.n_outputs, task.fit_targets,
        level.total, level.mean, level.weight, value,
    )  # fmt: skip
    index, factor = (xp.concatenate(parts) for parts in zip(*kept, strict=True))
    grown = Grown(
        level.feature, level.threshold, level.gain, value, index, factor, tree, n_left_of < 0, n_kept_of
    )
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
        "move_samples", n, level.sample, level.sample_weight, level.first, len(sizes), level.right,
        xp.cumsum(level.right), xp.asarray(child), level.n_left, n, sample, sample_weight,
    )  # fmt: skip
    key = xp.empty(2 * len(split), np.uint64)
    task.launch("child_keys", len(split), level.key, xp.asarray(split.astype(np.int64)), len(split), key)
    return sample, sample_weight, key, sizes_after, np.repeat(tree[split], 2)


def _collect(
    task: Task, projected: bool, levels: list[Grown], n_trees: int, trees: list[tuple[Array, ...]]
) -> None:
    """From nodes level by level to nodes tree by tree, which keeps those of a tree breadth-first."""
    xp = task.xp
    joined = [xp.concatenate([grown[i] for grown in levels]) for i in range(6)]
    of_tree, is_leaf, n_kept = (np.concatenate([grown[i] for grown in levels]) for i in range(6, 9))
    order = np.argsort(of_tree, kind="stable")
    of_tree, leaf_row = of_tree[order], np.cumsum(is_leaf) - 1
    is_leaf_there, kept_there = is_leaf[order], n_kept[order]
    starts = np.searchsorted(of_tree, np.arange(n_trees + 1))
    leaf_starts = np.concatenate([[0], np.cumsum(is_leaf_there)])[starts]
    # Children follow the root in the order of their parents; leaves are numbered in the order of nodes.
    parents = np.cumsum(~is_leaf_there)
    parents_before = np.concatenate([[0], parents])[starts][of_tree]
    leaves = np.cumsum(is_leaf_there) - 1 - leaf_starts[of_tree]
    left = xp.asarray(np.where(is_leaf_there, leaves, 2 * (parents - parents_before) - 1).astype(np.int32))
    at = xp.asarray(order)
    feature, threshold, gain = (a[at] for a in joined[:3])
    value = joined[3][xp.asarray(leaf_row[order][is_leaf_there])]
    entry = np.cumsum(kept_there) - kept_there
    from_ = np.repeat((np.cumsum(n_kept) - n_kept)[order] - entry, kept_there)
    source = xp.asarray(from_ + np.arange(len(from_)))
    index, factor = joined[4][source], joined[5][source]
    entry = np.concatenate([entry, [kept_there.sum()]])
    for m in range(n_trees):
        nodes, rows = slice(*starts[m : m + 2]), slice(*leaf_starts[m : m + 2])
        grown: tuple[Array, ...] = (
            feature[nodes], threshold[nodes], left[nodes], gain[nodes], value[rows].ravel()
        )  # fmt: skip
        if projected:
            entries = slice(entry[nodes.start], entry[nodes.stop])
            grown += xp.asarray(entry[nodes] - entry[nodes.start]), index[entries], factor[entries]
        trees.append(grown)
