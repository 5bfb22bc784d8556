"""The candidate sources of the GPU, which split the pending nodes of a level: columns and projections.

builder.py calls them. Kernels: gpu.cu, projections.cuh, node_orders.cuh; of scorers histogram.cuh and
sorted_scan.cuh. The array module sorts keys.
"""

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ...core.aliases import Array
from ...core.dispatch import array_module
from ...core.launch import launch, launch_each, numbers
from ...core.projections import Distribution
from ...core.scores import OF_RATIOS
from ...core.supervised import Limits
from ..bins import Bins
from ..trees import Objective
from .structs import (
    COLUMNS,
    NO_CANDIDATES,
    NO_ENTRIES,
    NO_ORDERS,
    NO_PROJECTIONS,
    PLAIN,
    PROJECTIONS,
    Candidates,
    CategorySets,
    Entries,
    KeyBits,
    Level,
    NodeEntries,
    Orders,
    Pending,
    Projections,
    Split,
    Target,
    no_node_entries,
)

PACKAGE = Path(__file__).parent.parent

BLOCK, LARGE, FEW = numbers("growth/gpu/gpu.cu", "BLOCK", "LARGE", "FEW")
(LEAF_VALUES,) = numbers("growth/leaf.h", "HF_LEAF_VALUES")
(SIDES,) = numbers("growth/gpu/levels.cuh", "SIDES")
(NEAR,) = numbers("growth/gpu/sorted_scan.cuh", "NEAR")
EXTREMES, MEANS, SUMS_OF_Q, SPREAD, INHERITED, MEASURES, TILE = numbers(
    "growth/gpu/units.cuh", "EXTREMES", "MEANS", "SUMS", "SPREAD", "INHERITED", "MEASURES", "TILE"
)
OF_UNIT, OF_BOUNDS, LOWER, UPPER = numbers(
    "growth/gpu/constraints.cuh", "OF_UNIT", "OF_BOUNDS", "LOWER", "UPPER"
)

COUNT_BYTES = 44 << 10
"""Bytes of a block's histogram and sums, at most: every GPU has 48 KB, and other arrays take 4."""

MAX_SUMS = 1 << 24
"""Sums of all threads of a scan together, at most, where they are in global memory."""


def _signed(seed: int) -> int:
    return seed - 2**64 if seed >= 2**63 else seed


def tree_keys(xp: ModuleType, seed: int, first: int, n_trees: int) -> Array:
    key = xp.empty(n_trees, np.uint64)
    launch_each(PACKAGE, "tree_keys", np.dtype(np.float64), n_trees, (_signed(seed), first, n_trees, key))
    return key


class Task(NamedTuple):
    """Labels or targets, criterion and limits of all trees of a call, and how their samples are stored."""

    xp: ModuleType
    real: np.dtype
    target: Target
    criterion: int
    limits: Limits
    random_thresholds: bool = False
    has_defaults: bool = False
    scale: int = 0
    """Gains are multiplied by 2**scale."""
    weight_bits: int = 0
    """Bits of the greatest weight of a label; 0 for targets and weights that are not whole."""
    n_bins: int = 0
    """Number of bins of a column, if histograms are made of them (histogram.cuh); 0: keys are sorted."""
    counts_bins: int = 8
    """Bytes of a count of a histogram: 4 or 8."""

    @property
    def fit_targets(self) -> bool:
        return not self.target.has_labels

    @property
    def n_outputs(self) -> int:
        return self.target.n_outputs

    @property
    def rules(self) -> tuple[Target, int, Limits]:
        """The first three arguments of every kernel that scores splits."""
        return self.target, self.criterion, self.limits

    @property
    def n_sums(self) -> int:
        """Number of sums of a node: one for each class or output, and the sum of u."""
        return self.n_outputs + 1

    @property
    def is_monotonic(self) -> bool:
        """Whether columns have monotonic constraints; their kernels are a module of their own."""
        return self.target.sign is not None

    @property
    def has_units(self) -> bool:
        """Whether nodes have units (units.cuh)."""
        return self.fit_targets or self.is_monotonic or not self.target.is_whole

    @property
    def n_measures(self) -> int:
        """Numbers in a node's row of `Level.measured`."""
        return MEASURES * (1 + self.n_outputs * self.fit_targets) if self.has_units else 0

    @property
    def stages(self) -> range:
        """The stages of `measure` that make units (units.cuh)."""
        last = SUMS_OF_Q if self.target.is_whole else SPREAD
        return range(EXTREMES, (last if self.fit_targets else MEANS) + 1)

    def measure(
        self, stages: Iterable[int], level: Level, above: Pending | None, wants: Array | None = None
    ) -> None:
        """Measures the samples of a level below a part, or of those of its nodes that want a unit."""
        begin, n, n_samples = level.first, level.n_nodes, level.n_samples
        if above is not None:
            begin, n, n_samples = above.begin, above.n_nodes, above.n_samples
        rest = begin, n, int(above is not None), *self._some(wants)
        for stage in stages:
            self.launch_blocks("measure", -(-n_samples // TILE), self.target, level, *rest, stage, n_samples)

    def make_units(self, level: Level, above: Pending | None, wants: Array | None = None) -> None:
        """Makes units of the nodes of a level below a part, or of those that want one."""
        self.measure(self.stages, level, above, wants)
        self.launch("finish_units", level.n_nodes, self.target, level, *self._some(wants))

    def _some(self, wants: Array | None) -> tuple[Array, int]:
        return (self.xp.empty(0, np.uint8), 0) if wants is None else (wants, 1)

    def leaf_rows(self, n: int) -> Array:
        """Returns memory for the rows of n leaves."""
        return self.xp.empty((n, LEAF_VALUES * self.n_outputs), self.real)

    def units(self, n: int) -> Array | None:
        """Returns memory for the units of n nodes, without bounds yet; None if nodes have no units."""
        if not self.has_units:
            return None
        if not self.is_monotonic:
            return self.xp.empty((n, OF_UNIT))
        unit = self.xp.zeros((n, OF_UNIT + OF_BOUNDS))
        unit[:, LOWER], unit[:, UPPER] = -np.inf, np.inf
        return unit

    def launch(self, name: str, n: int, *args: Any) -> None:
        """Launches n threads."""
        self.launch_blocks(name, -(-n // BLOCK), *args)

    @property
    def n_counts(self) -> int:
        """Number of counts of a histogram: those of all bins."""
        return self.n_bins * (self.n_outputs + self.fit_targets + 1 | 1)

    @property
    def sum_bytes(self) -> int:
        """Bytes of the sums of the threads of a block that scores bins."""
        return 8 * BLOCK * (self.n_outputs | 1)

    @property
    def count_bytes(self) -> int:
        """Bytes of `block_memory` of a block that counts bins: sums of threads, then a histogram."""
        return self.sum_bytes + self.counts_bins * self.n_counts

    def launch_blocks(self, name: str, n_blocks: int, *args: Any, n_bytes: int = 0) -> None:
        macros = ("MONOTONIC",) if self.is_monotonic else ()
        launch(PACKAGE, name, self.real, n_blocks, args, threads=BLOCK, n_bytes=n_bytes, macros=macros)

    def both(self, name: str, n_large: int, n: int, *args: Any) -> None:
        """Launches a block for each large node, and behind them n threads."""
        self.launch_blocks(name, n_large + -(-n // BLOCK), *args)


def task_of(objective: Objective, real: np.dtype, splitter: str = "best", has_defaults: bool = False) -> Task:
    """Returns what trees learn, as kernels take it; with has_defaults they know missing values."""
    xp = array_module(objective.sample_weight)
    is_random, (labels, targets, n_outputs, _) = splitter == "random", objective.target
    n = len(objective.sample_weight)
    from_0 = int(objective.criterion in OF_RATIOS)
    sign = None if objective.monotonic is None else xp.asarray(objective.monotonic)
    target = Target(
        labels, targets, None, None, None, sign, int(labels is not None), n_outputs, n, 0, from_0, n
    )  # fmt: skip
    return Task(
        xp, real, target, objective.criterion, objective.limits, is_random, has_defaults, objective.scale
    )  # fmt: skip


class Columns(NamedTuple):
    """Columns of bins, the candidates of ColumnSource: a struct of gpu.cu."""

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
        self,
        task: Task,
        level: Level,
        pending: Pending,
        orders: Orders,
        column: Array,
        node_entries: NodeEntries,
    ) -> tuple[Candidates, Split]:
        """Splits nodes by sampled columns, which go to `column` (OUT)."""
        xp, n_nodes, slots = task.xp, pending.n_nodes, self.n_sampled * orders.n_orders
        swap = xp.empty((n_nodes, self.n_columns), np.int32)
        task.both("draw_columns", pending.n_large, n_nodes, self, level, pending, orders, swap, column)
        if orders.place is not None:
            task.launch(
                "order_columns", n_nodes * self.n_sampled, task.target, self, level, pending, orders, column
            )
        if task.n_bins:
            candidates = self._counted(task, level, pending, column)
        else:
            bits = _bits(task, orders, n_nodes * slots, max(1, (self.n_bins - 1).bit_length()), 32)
            key = xp.empty(pending.n_samples * slots, np.uint64)
            task.launch(
                "bin_keys", len(key), self, task.target, level, pending, slots, orders, bits, column, key
            )
            candidates = _candidates_of(task, pending, key, bits, slots)._replace(
                column=column, n_orders=orders.n_orders
            )
        return candidates, _best_splits(
            task, level, pending, candidates, self, orders, NO_ENTRIES, node_entries
        )

    def _counted(self, task: Task, level: Level, pending: Pending, column: Array) -> Candidates:
        """Returns pairs with their splits, from histograms."""
        xp, slots, n_bytes = task.xp, self.n_sampled, task.count_bytes
        n_candidates = pending.n_nodes * slots
        score, n_right, greatest = (xp.empty(n_candidates, np.uint64) for _ in range(3))
        candidates = NO_CANDIDATES._replace(
            score=score, n_right=n_right, greatest=greatest, threshold=xp.empty(n_candidates), column=column,
            slots=slots,
        )  # fmt: skip
        chunks = xp.empty(pending.n_runs * slots * task.n_counts * task.counts_bins // 4, np.uint32)
        task.launch_blocks(
            "count_bins", pending.n_runs * slots, self, task.target, level, pending, slots, column, chunks,
            n_bytes=n_bytes,
        )  # fmt: skip
        task.launch_blocks(
            "score_bins", pending.n_large * slots, *task.rules, level, pending, candidates, self, chunks,
            n_bytes=n_bytes,
        )  # fmt: skip
        task.launch_blocks(
            "compare_bins", pending.n_nodes, *task.rules, level, pending, candidates, self,
            n_bytes=task.sum_bytes,
        )  # fmt: skip
        return candidates


NO_COLUMNS = Columns(None, None, None, None, None, 0, 0, 0, 0, 0)
"""Where candidates are projections."""


class BlockSource(NamedTuple):
    """What a candidate source gives to blocks that grow small nodes to their leaves."""

    columns: Columns
    orders: Orders
    projected: Projections
    value_bits: int
    """Bits of a bin or value in a key."""
    max_entries: int
    """Entries of a projection, at most; 0 for columns."""


class Kinds(NamedTuple):
    """Which columns have missing values, and which hold categories."""

    missing: Array | None = None
    """(n_columns,) int64: the bin of missing values of a column, or -1; None: no column has any."""
    categorical: Array | None = None
    """(n_columns,) uint8: whether bins of a column are categories; None: those of no column are."""
    max_words: int = 0
    """Words of 32 bits that hold a set of all categories of the column with most."""


class ColumnSource(NamedTuple):
    """Candidates that are columns of bins, in all orders in which they are scanned."""

    columns: Columns
    kinds: Kinds = Kinds()

    @property
    def projected(self) -> bool:
        return False

    def task(self, task: Task) -> Task:
        """Returns a task whose bins are counted if they can be: columns of numbers, of bins of a byte."""
        plain = self.kinds.missing is None and not task.random_thresholds and self.columns.width == 1
        return task._replace(n_bins=self.columns.n_bins) if plain else task

    def _n_orders(self, task: Task) -> int:
        """Returns the maximum number of orders in which a node scans a column."""
        if self.kinds.missing is None or task.random_thresholds:
            return 1
        one_output = task.n_outputs <= (1 if task.fit_targets else 2)
        return 2 if self.kinds.categorical is None or one_output else 7

    def slots(self, task: Task) -> int:
        return self.columns.n_sampled * self._n_orders(task)

    def bytes_a_node(self, task: Task) -> int:
        """Bytes of the workspace of a pending node, beside its keys."""
        sampled = self.columns.n_sampled * self.columns.n_bins * (16 * task.n_outputs + 32)
        return 4 * self.columns.n_columns + (0 if self.kinds.categorical is None else sampled)

    def _orders(self, task: Task, n_nodes: int) -> Orders:
        xp, c = task.xp, self.columns
        if self.kinds.missing is None:
            return NO_ORDERS._replace(random=int(task.random_thresholds))
        orders = NO_ORDERS._replace(
            kind=COLUMNS, n_orders=self._n_orders(task), random=int(task.random_thresholds),
            missing=self.kinds.missing, flipped=xp.zeros(n_nodes, np.int32),
        )  # fmt: skip
        if self.kinds.categorical is None:
            return orders
        shape = n_nodes, c.n_sampled, c.n_bins
        return orders._replace(
            categorical=self.kinds.categorical, place=xp.empty(shape, np.int32),
            sorted=xp.empty(shape, np.int32), sums=xp.empty((*shape, task.n_sums), np.int64),
            terms=xp.empty((*shape, task.n_outputs)), weight=xp.empty(shape), score=xp.empty(shape),
            axis=xp.empty((*shape[:2], 3, task.n_outputs)),
        )  # fmt: skip

    def split(
        self, task: Task, level: Level, pending: Pending, end: Array
    ) -> tuple[Split, NodeEntries, CategorySets | None]:
        """Splits the pending nodes and returns their sets of categories, if columns have categories."""
        xp, n_nodes, slots = task.xp, pending.n_nodes, self.slots(task)
        orders = self._orders(task, n_nodes)
        column, none = xp.empty((n_nodes, slots), np.int32), no_node_entries(xp, 0, end)
        candidates, split = self.columns.split(task, level, pending, orders, column, none)
        if not self.kinds.max_words:
            return split, none, None
        words = CategorySets(
            xp.zeros(level.n_nodes, np.int64), xp.zeros((level.n_nodes, self.kinds.max_words), np.uint32)
        )
        task.launch(
            "category_words", n_nodes, self.columns, level, pending, candidates, split, orders,
            self.kinds.max_words, words.word, words.count,
        )  # fmt: skip
        return split, none, words

    def block_source(self, task: Task, n_nodes: int) -> BlockSource | None:
        if self.kinds.categorical is not None:  # the orders of categories take many bytes a node
            return None
        return BlockSource(self.columns, self._orders(task, n_nodes), NO_PROJECTIONS, 32, 0)


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


class ProjectionSource(NamedTuple):
    """Candidates that are projections of x."""

    x: Array
    distribution: Distribution
    numbers: Array
    table: Array
    n_sampled: int

    @property
    def projected(self) -> bool:
        return True

    def _n_orders(self, task: Task) -> int:
        return 2 if task.has_defaults and not task.random_thresholds else 1

    def slots(self, task: Task) -> int:
        return self.n_sampled * self._n_orders(task)

    def bytes_a_node(self, task: Task) -> int:
        """Bytes of the workspace of a pending node, beside its keys."""
        return 8 * (self.slots(task) + 1) * self.distribution.max_entries

    def _orders(self, task: Task, n_nodes: int) -> Orders:
        if not task.has_defaults:
            return NO_ORDERS
        return NO_ORDERS._replace(
            kind=PROJECTIONS, n_orders=self._n_orders(task), random=int(task.random_thresholds),
            flipped=task.xp.zeros(n_nodes, np.int32),
        )  # fmt: skip

    def block_source(self, task: Task, n_nodes: int) -> BlockSource:
        d = self.distribution
        x = Projections(self.x, self.numbers, self.table, self.x.shape[1], d.density, d.zero_probability)
        return BlockSource(NO_COLUMNS, self._orders(task, n_nodes), x, 8 * task.real.itemsize, d.max_entries)

    def split(
        self, task: Task, level: Level, pending: Pending, end: Array
    ) -> tuple[Split, NodeEntries, None]:
        """Splits nodes and returns the entries of their projections."""
        xp, n_nodes, slots, max_entries = (
            task.xp, pending.n_nodes, self.slots(task), self.distribution.max_entries
        )  # fmt: skip
        orders = self._orders(task, n_nodes)
        n_candidates = n_nodes * slots
        entries = Entries(
            xp.empty((n_candidates, max_entries), np.int32),
            xp.empty((n_candidates, max_entries), np.float32), xp.empty(n_candidates, np.int64), max_entries,
        )  # fmt: skip
        task.launch(
            "draw_projections", n_candidates, self.numbers, self.table, self.distribution.density,
            self.distribution.zero_probability, level, pending, slots, orders, entries,
        )  # fmt: skip
        n_keys, double = pending.n_samples * slots, task.real.itemsize == 8
        key, candidate = xp.empty(n_keys, np.uint64), xp.empty(n_keys if double else 0, np.uint32)
        bits = _bits(task, orders, n_candidates, *(64, 64) if double else (32, 32))
        task.launch(
            "value_keys", n_keys, self.x, self.x.shape[1], task.target, level, pending, slots, entries,
            orders, bits, key, candidate,
        )  # fmt: skip
        candidates = _candidates_of(task, pending, key, bits, slots)
        if double and candidates.order is not None:
            candidates = candidates._replace(
                order=candidates.order[xp.argsort(candidate[candidates.order], kind="stable")]
            )
        node_entries = no_node_entries(xp, level.n_nodes, end, n_nodes * max_entries)
        split = _best_splits(task, level, pending, candidates, NO_COLUMNS, orders, entries, node_entries)
        return split, node_entries, None


def _bits(task: Task, orders: Orders, n_candidates: int, packed: int, alone: int) -> KeyBits:
    """Returns the bits of keys, whose values have `packed` of them, or `alone` beside the pair alone.

    Labels and weights are in the keys if they are whole weights and fit.
    """
    bits = KeyBits(task.weight_bits, (task.n_outputs - 1).bit_length(), packed)
    plain = task.weight_bits and orders.kind == PLAIN and not task.random_thresholds
    return bits if plain and sum(bits) + n_candidates.bit_length() <= 64 else KeyBits(0, 0, alone)


def _candidates_of(task: Task, pending: Pending, key: Array, bits: KeyBits, slots: int) -> Candidates:
    """Returns the pairs of a part, sorted, before their splits are known."""
    xp, n_candidates = task.xp, pending.n_nodes * slots
    in_order, order, greatest, threshold, flipped = (None,) * 5
    n_sums = n_candidates
    if task.random_thresholds:
        greatest, threshold = xp.empty(n_candidates, np.uint64), xp.empty(n_candidates)
        flipped = xp.empty(n_candidates if task.has_defaults else 0, np.int32)
    elif bits.weight:
        in_order = key.copy()
        in_order.sort()
    else:
        order = xp.argsort(key, kind="stable").astype(np.int64, copy=False)
    if not task.random_thresholds:
        n_sums = _n_threads(task, n_candidates) if task.n_outputs > NEAR else 0
    score, n_right = xp.zeros(n_candidates, np.uint64), xp.zeros(n_candidates, np.uint64)
    left = xp.empty((n_sums, task.n_outputs), np.int64)
    return Candidates(
        key, in_order, order, None, left, score, n_right, greatest, threshold, flipped, None, slots, 1,
        bits.weight, bits.label, bits.value, 0, slots,
    )  # fmt: skip


def _n_threads(task: Task, n: int) -> int:
    """Returns how many threads scan n pairs or runs, some of them several."""
    return n if task.n_outputs <= NEAR else min(n, max(1, MAX_SUMS // task.n_outputs))


def _scan(task: Task, level: Level, pending: Pending, candidates: Candidates) -> None:
    """Writes the best thresholds of pairs."""
    xp, slots, n_candidates = task.xp, candidates.slots, pending.n_nodes * candidates.slots
    rules = (*task.rules, level, pending, candidates)
    n_runs = pending.n_runs * slots
    start, best, place = (
        xp.empty((n_runs, task.n_sums), np.int64),
        xp.empty(n_runs, np.uint64),
        xp.empty(n_runs, np.int64),
    )
    task.launch("count_runs", n_runs, task.target, level, pending, candidates, start)
    task.launch_blocks("start_runs", pending.n_large * slots, task.target, pending, candidates, start)
    n_threads = n_runs + n_candidates if task.n_outputs <= NEAR else _n_threads(task, n_candidates)
    task.launch("score_runs", n_threads, *rules, n_threads, start, best, place)
    task.launch("first_best", n_runs, level, pending, candidates, best, place)


def _best_splits(
    task: Task, level: Level, pending: Pending, candidates: Candidates, columns: Columns, orders: Orders,
    entries: Entries, node_entries: NodeEntries,
) -> Split:  # fmt: skip
    """Returns the split of each node and the side of each sample."""
    xp, n_nodes = task.xp, pending.n_nodes
    split = Split(
        xp.empty(n_nodes, np.int64), xp.empty(n_nodes, np.uint64), xp.empty(n_nodes, np.int64),
        xp.empty(pending.n_samples, np.uint8), xp.empty(-(-pending.n_samples // SIDES), np.int64),
    )  # fmt: skip
    if task.random_thresholds:
        task.launch(
            "random_splits", n_nodes * candidates.slots, *task.rules, level, pending, candidates, columns,
            orders,
        )  # fmt: skip
    elif not task.n_bins:
        _scan(task, level, pending, candidates)
    task.launch(
        "pick_splits", n_nodes, *task.rules, level, pending, candidates, columns, orders, entries, split,
        node_entries,
    )  # fmt: skip
    sides(task, level, pending, split, candidates, columns, orders)
    return split


def sides(
    task: Task, level: Level, pending: Pending, split: Split, candidates: Candidates = NO_CANDIDATES,
    columns: Columns = NO_COLUMNS, orders: Orders = NO_ORDERS,
) -> None:  # fmt: skip
    """Writes the side of each sample, unless it is known (no pairs), and counts those on the right."""
    task.launch_blocks("sides", len(split.tail), level, pending, candidates, columns, orders, split)
