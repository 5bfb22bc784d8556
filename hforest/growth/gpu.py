"""Grows trees on a GPU, level by level; the kernels are in gpu.cu, keys are ordered by the array module.

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
from .trees import joined as join_arrays

PACKAGE = Path(__file__).parent

KEYS = 1 << 24
"""Keys, sums or entries of candidates held at a time, unless one node has more: bounds the workspace."""


def _signed(seed: int) -> int:
    return seed - 2**64 if seed >= 2**63 else seed


def _tree_keys(xp: ModuleType, seed: int, first: int, n_trees: int) -> Array:
    key = xp.empty(n_trees, np.uint64)
    launch_each(PACKAGE, "tree_keys", np.dtype(np.float64), n_trees, (_signed(seed), first, n_trees, key))
    return key


def bootstrap_counts(seed: int, first: int, counts: Array) -> None:
    """Writes to counts[m] (OUT) how often tree first + m draws each sample, n times with replacement."""
    n_trees, n = counts.shape
    counts.fill(0)
    key = _tree_keys(array_module(counts), seed, first, n_trees)
    launch_each(
        PACKAGE, "bootstrap_counts", np.dtype(np.float64), n_trees * (-(-n // 4)), (key, n_trees, n, counts)
    )  # fmt: skip


def encode(x: Array, bins: Array, low: Array, high: Array, n_bins: Array) -> None:
    """Writes the rank of each value in its column, or its bin where ranks are more than a row of `low`
    holds."""
    xp = array_module(x)
    n, max_bins = len(x), low.shape[1]
    for f in range(x.shape[1]):
        column = x[:, f].astype(np.float64) + 0.0
        order = xp.argsort(column, kind="stable")
        value = column[order]
        new = xp.ones(n, bool)
        new[1:] = value[1:] != value[:-1]
        rank = xp.cumsum(new) - 1
        start = xp.flatnonzero(new)
        if len(start) > max_bins:
            stop = xp.concatenate([start[1:], xp.full(1, n, start.dtype)])
            # The bin where the middle of a value's samples lies; then bins are numbered without gaps.
            wanted = (start + stop) * max_bins // (2 * n)
            jump = xp.zeros(len(start), np.int64)
            jump[1:] = wanted[1:] > wanted[:-1]
            rank = xp.cumsum(jump)[rank]
            new[1:] = rank[1:] != rank[:-1]
            start = xp.flatnonzero(new)
        used = len(start)
        bins[f, order] = rank.astype(bins.dtype)
        n_bins[f] = used
        low[f, :used] = value[start]
        high[f, : used - 1] = value[start[1:] - 1]
        high[f, used - 1] = value[-1]


class _Task(NamedTuple):
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


def _task(
    xp: ModuleType, real: np.dtype, labels: Array | None, targets: Array | None, n_outputs: int, *rest: Any
) -> _Task:
    labels_or_none = xp.empty(0, np.int32) if labels is None else labels
    targets_or_none = xp.empty(0) if targets is None else targets
    return _Task(xp, real, labels_or_none, targets_or_none, int(labels is None), int(n_outputs), *rest)


class _Level(NamedTuple):
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


class _Part(NamedTuple):
    """Nodes that are split together."""

    node: Array
    begin: Array
    """Samples before those of each node, and of all."""
    n_nodes: int
    n_samples: int


class _Columns(NamedTuple):
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

    def split(self, task: _Task, level: _Level, part: _Part, n_left: Array) -> tuple[Array, Array]:
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


class _Projections(NamedTuple):
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
        self, task: _Task, level: _Level, part: _Part, n_left: Array, n_kept: Array
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
    task: _Task,
    level: _Level,
    part: _Part,
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
    task: _Task, level: _Level, part: _Part, key: Array, tables: tuple[Any, ...], n_left: Array
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
    task: _Task, level: _Level, part: _Part, key: Array, slots: int, chosen: Array, split_key: Array,
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


class _Grown(NamedTuple):
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


def _grow(
    task: _Task,
    candidates: Any,
    weight: Array,
    seed: int,
    first: int,
    n_trees: int,
    counts: Array | None,
    trees: list[tuple[Array, ...]],
) -> None:
    xp = task.xp
    weights = xp.broadcast_to(weight, (n_trees, len(weight))) if counts is None else weight * counts
    # Where only samples without weight were drawn, the tree takes all.
    weights = xp.where((weights > 0).any(axis=1)[:, None], weights, weight)
    drawn = weights > 0
    sizes = to_numpy(drawn.sum(axis=1)).astype(np.int64)
    tree = np.arange(n_trees)
    sample, sample_weight = xp.nonzero(drawn)[1].astype(np.int32), weights[drawn]
    key = _tree_keys(xp, seed, first, n_trees)
    root_weight: Array = None
    levels: list[_Grown] = []
    while len(tree):
        n_nodes = len(tree)
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        node_weight = xp.empty(n_nodes)
        root_weight = node_weight if root_weight is None else root_weight
        level = _Level(
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
    _collect(task, candidates.projected, levels, n_trees, trees)


def _split_level(
    task: _Task,
    candidates: Any,
    level: _Level,
    pending: np.ndarray,
    sizes: np.ndarray,
    tree: np.ndarray,
) -> tuple[np.ndarray, _Grown]:
    """Splits the pending nodes; returns how many samples go left (-1 in leaves), on the host."""
    xp, slots = task.xp, candidates.slots()
    size = max(candidates.workspace_size(), slots * task.n_outputs)
    n_left_of, n_kept_of = np.full(len(sizes), -1), np.zeros(len(sizes), np.int64)
    kept = [(xp.empty(0, np.int32), xp.empty(0, np.float32))]
    for a, b in _parts(sizes[pending], slots, size):
        node, of_part = pending[a:b], sizes[pending[a:b]]
        begin = np.concatenate([[0], np.cumsum(of_part)]).astype(np.int64)
        part = _Part(xp.asarray(node.astype(np.int64)), xp.asarray(begin), b - a, int(begin[-1]))
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
    grown = _Grown(
        level.feature, level.threshold, level.gain, value, index, factor, tree, n_left_of < 0, n_kept_of
    )
    return n_left_of, grown


def _next_level(
    task: _Task, level: _Level, n_left: np.ndarray, sizes: np.ndarray, tree: np.ndarray
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
    task: _Task, projected: bool, levels: list[_Grown], n_trees: int, trees: list[tuple[Array, ...]]
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


def rows_of(bins: Array) -> None:
    """None: a thread reads one sample of a column."""


def grow(
    bins: Array,
    rows: None,
    low: Array,
    high: Array,
    base: Array | None,
    offset: Array | None,
    dtype: np.dtype,
    labels: Array | None,
    targets: Array | None,
    n_outputs: int,
    sample_weight: Array,
    criterion: int,
    max_features: int,
    max_depth: int,
    min_samples_split: int,
    min_samples_leaf: int,
    min_impurity_decrease: float,
    completely_random: bool,
    seed: int,
    first: int,
    n_trees: int,
    counts: Array | None,
    trees: list[tuple[Array, ...]],
) -> None:
    """Appends (feature, threshold, left, gain, value) of trees first, ..., first + n_trees - 1 to `trees`."""
    xp = array_module(sample_weight)
    task = _task(
        xp, dtype, labels, targets, n_outputs, criterion, max_depth, min_samples_split, min_samples_leaf,
        min_impurity_decrease,
    )  # fmt: skip
    none, width = xp.empty(0, np.int64), bins.dtype.itemsize
    columns = _Columns(
        bins.view(np.uint8), low, high, width, none if base is None else base,
        none if offset is None else offset, int(base is not None), len(sample_weight),
        len(bins) if offset is None else len(offset), max_features, completely_random,
    )  # fmt: skip
    _grow(task, columns, sample_weight, seed, first, n_trees, counts, trees)


def whole_numbers(x: Array, small: Array) -> int:
    """Returns 2 if x is whole numbers 0 to 255, written to `small` (OUT); 1 if x is whole numbers whose sums
    float32
    holds exactly; else 0.
    """
    xp = array_module(x)
    sums = abs(x).sum(axis=1, dtype=np.float64)
    exact = bool((x == xp.trunc(x)).all()) and bool((sums <= 2**24).all())
    fits = exact and bool(((x >= 0) & (x < 256)).all())
    if fits:
        small[...] = x.astype(np.uint8)
    return int(exact) + int(fits)


def columns_of(x: Array, whole: bool, small: Array | None) -> None:
    """None: here every thread adds up numbers of x."""


def corner_table(x: Array, distribution: Distribution, table: Array) -> None:
    """Writes to `table` (OUT) the sums over all corners of the planes of each sample: of whole numbers,
    modulo the
    table's range.
    """
    xp = array_module(x)
    planes = xp.moveaxis(x.reshape(len(x), *distribution.shape, distribution.channels), 4, 1).astype(np.int64)
    sizes = (size + (axis > 0) for axis, size in enumerate(distribution.shape))
    sums = xp.zeros((len(x), distribution.channels, *sizes), np.int64)
    sums[:, :, :, 1:, 1:] = planes.cumsum(axis=3).cumsum(axis=4)
    table[...] = sums.reshape(len(x), -1).astype(table.dtype)


def grow_projected(
    x: Array,
    whole: bool,
    small: Array | None,
    columns: Array | None,
    table: Array | None,
    labels: Array | None,
    targets: Array | None,
    n_outputs: int,
    sample_weight: Array,
    criterion: int,
    distribution: Distribution,
    n_projections: int,
    max_depth: int,
    min_samples_split: int,
    min_samples_leaf: int,
    min_impurity_decrease: float,
    seed: int,
    first: int,
    n_trees: int,
    counts: Array | None,
    trees: list[tuple[Array, ...]],
) -> None:
    """Appends trees on random projections: as `grow`, with (indptr, indices, data) at the end.

    `whole`, `small`, `columns` and `table` are shortcuts of the CPU; here every thread adds up numbers of x.
    """
    xp = array_module(x)
    task = _task(
        xp, x.dtype, labels, targets, n_outputs, criterion, max_depth, min_samples_split, min_samples_leaf,
        min_impurity_decrease,
    )  # fmt: skip
    d = distribution
    numbers = (
        d.kind, d.n_features, d.channels, d.cyclic, d.max_entries, *d.shape, *d.patch_min, *d.patch_max
    )  # fmt: skip
    projections = _Projections(x, distribution, xp.asarray(np.array(numbers, np.int64)), n_projections)
    _grow(task, projections, sample_weight, seed, first, n_trees, counts, trees)


def joined(
    trees: list[tuple[Array, ...]], n_outputs: int, dtype: np.dtype, projected: bool
) -> tuple[Array, ...]:
    """Returns the arrays of trees: see `trees.joined`."""
    return join_arrays(trees, n_outputs, dtype, projected)
