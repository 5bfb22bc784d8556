"""The state machine that grows trees on rows of several workers: level by level, from sums of integers.

    start                    roots of a batch of trees, each worker with its own rows
    level: small nodes       gathered on one worker each, finished there by the engine of hforest.growth
           other nodes       histograms of the sampled features, summed over workers; best splits
    advance                  each worker divides its rows

Sums of integers are exact, so all workers find the same splits, however rows are divided among them.
"""

from typing import Any, NamedTuple

import numpy as np

from ..core import check, supervised
from ..core.aliases import FloatArray, IntArray
from ..core.philox import keys, philox
from ..core.progress import Report
from ..core.scores import node_score
from ..growth.trees import Trees
from ..growth.trees import joined as join_arrays
from ..tree import Forest
from . import parts
from .best_splits import best_splits
from .edges import Edges, edges_of, of_sample
from .engine import Engine, Handle
from .levels import child_keys, sampled_features
from .nodes import MISSING_LEFT, UNKNOWN_LEFT, Split, Tree
from .parts import Below, Description, Draw, Settings, Step

SAMPLED = 1 << 17
"""Rows from which bins are made: all where there are no more, else about so many."""
_SAMPLE_BYTES = 1 << 26  # of sampled values that are collected at a time
_HISTOGRAM_BYTES = 1 << 28  # of the histograms that are summed at a time
_GATHERED_BYTES = 1 << 28  # of the rows of small nodes that are gathered at a time
_STATE_BYTES = 1 << 29  # of a worker's rows of a batch of trees
_BATCH = 64  # trees of a batch at most
_GATHER_RATIO = 8  # bytes of a node's rows to those of its histograms, up to which rows are gathered
_LEFT, _ABSENT = 1, 2  # sides of bins, as levels.pyx has them


class Plan(NamedTuple):
    """What all workers know once they have described their rows."""

    edges: Edges
    settings: Settings
    n_outputs: int
    exponent: int
    """Of targets in fixed point: multiples of 2**-exponent."""
    scale: int
    """Gains are multiplied by 2**scale, so that they are in range."""
    max_features: int
    max_gathered: int
    n_batch: int
    seed: int

    @property
    def is_classification(self) -> bool:
        return self.settings.task == "classification"

    @property
    def n_channels(self) -> int:
        return self.n_outputs + (1 if self.is_classification else 3)


# ------------------------------------------------------------------------------------------------ plan


def _differ(name: str, values: list[Any], remedy: str) -> None:
    for number, value in enumerate(values):
        if value != values[0]:
            raise ValueError(
                f"{name}: expected the same on every worker, got {values[0]} on worker 0 and {value} on "
                f"worker {number}; {remedy}"
            )


def same_settings(found: list[Settings]) -> None:
    """Settings of all workers, which must be the same."""
    for name in Settings._fields:
        _differ(name, [repr(getattr(settings, name)) for settings in found], "pass the same settings")


def _n_outputs(found: list[Description], settings: Settings) -> int:
    """Classes or targets of all workers."""
    with_rows = [d for d in found if d.n_rows]
    if settings.task == "regression":
        if len({d.n_outputs for d in with_rows}) > 1:
            numbers = sorted({d.n_outputs for d in with_rows})
            raise ValueError(
                f"y: expected as many outputs on every worker, got {numbers}; pass the same columns"
            )
        return with_rows[0].n_outputs
    if settings.n_classes is not None:
        return settings.n_classes
    of_class = [d.labels for d in with_rows if d.labels is not None]
    counts = np.zeros(max(len(a) for a in of_class), np.int64)
    for a in of_class:
        counts[: len(a)] += a
    if not counts.all():
        absent, high = int((counts == 0).argmax()), len(counts) - 1
        raise ValueError(
            f"y: expected labels 0 to {high} that each occur on some worker, got none of class {absent}; "
            f"renumber the classes, or pass n_classes={high + 1} if that class exists"
        )
    return len(counts)


def _merged_distinct(found: list[Description], f: int, most: int) -> FloatArray | None:
    """Distinct values of a column on all workers, or None where these are more than `most`."""
    merged = np.zeros(0)
    for d in found:
        values = d.distinct[f]
        if values is None:
            return None
        merged = np.unique(np.concatenate([merged, values]))
        if len(merged) > most:
            return None
    return merged


def _edges(
    engine: Engine,
    given: Handle,
    found: list[Description],
    first_rows: list[int],
    settings: Settings,
    seed: int,
) -> Edges:
    """The bins of all columns."""
    n, n_columns = sum(d.n_rows for d in found), found[0].n_columns
    dtype = np.dtype(np.float64 if max(d.itemsize for d in found if d.n_rows) == 8 else np.float32)
    categorical = supervised.categorical(settings.categorical, n_columns)
    has_missing = np.any([d.has_missing for d in found], axis=0)
    most = max(1, settings.max_bins - int(has_missing.any()))  # missing values have a bin too
    tables: list[tuple[FloatArray, FloatArray] | None] = []
    for f in range(n_columns):
        named = categorical is not None and bool(categorical[f])
        distinct = _merged_distinct(found, f, supervised.MAX_CATEGORY + 1 if named else most)
        tables.append(None if distinct is None else (distinct, distinct))
    sampled = np.array([f for f, table in enumerate(tables) if table is None], np.int64)
    threshold = 2**32 if n <= SAMPLED else max(1, 2**32 * SAMPLED // n)
    step = max(1, _SAMPLE_BYTES // (8 * min(n, 2 * SAMPLED)))
    for at in range(0, len(sampled), step):
        some = sampled[at : at + step]
        each = [(seed, first, threshold) for first in first_rows]
        values = np.concatenate(engine.collect(parts.sample, (given,), dtype, some, each=each))
        for i, f in enumerate(some.tolist()):
            tables[f] = of_sample(values[:, i], most)
    return edges_of([table for table in tables if table is not None], has_missing, categorical, dtype)


def _exponent(found: list[Description], n_drawn: int) -> int:
    """How many binary places targets in fixed point have, so that no sum leaves 62 bits."""
    greatest = max((float(d.total) for d in found if d.total is not None), default=0.0)
    if not greatest:
        return 0
    places = int(np.frexp(greatest)[1])  # all targets are below 2**places
    return min(61 - n_drawn.bit_length() - places, 52 - places)


def _max_gathered(settings: Settings, edges: Edges, max_features: int, n_channels: int, itemsize: int) -> int:
    """Rows up to which it is cheaper to gather a node than to sum its histograms down to the leaves."""
    if settings.max_gathered is not None:
        return settings.max_gathered
    n_cells = float(np.mean(np.diff(edges.cells(np.arange(len(edges.n_bins))))))
    of_histograms = 8 * n_channels * n_cells * max_features
    of_row = len(edges.n_bins) * itemsize + 12
    return int(min(1 << 16, max(256, _GATHER_RATIO * of_histograms / of_row)))


def plan(engine: Engine, given: Handle, settings: Settings, seed: int) -> tuple[Plan, Handle]:
    """Returns what all workers know, and their rows as bins."""
    found: list[Description] = engine.collect(parts.describe, (given,), settings)
    _differ("x", [d.n_columns for d in found], "pass the same columns")
    n = sum(d.n_rows for d in found)
    if n == 0:
        raise ValueError("x: expected at least 1 sample on some worker, got 0; pass samples to learn from")
    if not any(d.weight for d in found):
        raise ValueError("sample_weight: expected some above 0, got zeros alone; give some samples weight")
    n_outputs = _n_outputs(found, settings)
    max_features = settings.max_features
    if isinstance(max_features, str) and max_features == "auto":
        max_features = None if settings.task == "regression" else "sqrt"
    max_features = supervised.max_features(max_features, found[0].n_columns)
    n_drawn = n * max(d.max_weight for d in found)
    if n_drawn >= 2**53:
        raise ValueError(
            f"sample_weight: expected sums of weights and in-bag counts below 2**53, got up to {n_drawn}; "
            "scale the weights"
        )
    first_rows = [0, *np.cumsum([d.n_rows for d in found]).tolist()][:-1]
    edges = _edges(engine, given, found, first_rows, settings, seed)
    exponent, scale = 0, 0
    if settings.task == "regression":
        exponent = _exponent(found, n_drawn)
        greatest = np.array([[max(float(d.total) for d in found if d.total is not None)]])
        weight = np.array([float(max(d.max_weight for d in found))])
        scale = supervised.scaled_weight(weight, greatest, edges.dtype, n_drawn)[1]
    codes_itemsize = 1 if edges.low.shape[1] <= 256 else 2
    n_channels = n_outputs + (1 if settings.task == "classification" else 3)
    known = Plan(
        edges, settings, n_outputs, exponent, scale, max_features,
        _max_gathered(settings, edges, max_features, n_channels, codes_itemsize),
        max(1, min(_BATCH, _STATE_BYTES // (24 * max(d.n_rows for d in found) + 1))), seed,
    )  # fmt: skip
    data = engine.map(parts.encode, (given,), edges, settings, n_outputs, exponent, each=first_rows)
    return known, data


# -------------------------------------------------------------------------------------------- growth


class Pending(NamedTuple):
    """A node whose rows are in the state."""

    tree: int
    """Of the batch."""
    node: int
    key: int
    depth: int
    sums: IntArray
    """(n_channels,)."""


def grow(engine: Engine, given: Handle, settings: Settings, seed: int, report: Report) -> Forest:
    """Returns the forest that grows on all rows."""
    known, data = plan(engine, given, settings, seed)
    trees: list[tuple[Any, ...]] = []
    for at in range(0, settings.n_trees, known.n_batch):
        n_trees = min(known.n_batch, settings.n_trees - at)
        draw = Draw(seed, settings.first_tree + at, at, n_trees, settings.bootstrap, None)
        trees += BatchOfTrees(engine, data, known, draw).grow()
        if not engine.agree(report(len(trees))):
            break
    dtype = known.edges.dtype
    arrays = Trees(*join_arrays(trees, known.n_outputs, dtype, False))
    return Forest(
        n_features=np.array(len(known.edges.n_bins), np.int64),
        **arrays._asdict(),
        indptr=np.zeros(0, np.int64),
        indices=np.zeros(0, np.int32),
        data=np.zeros(0, dtype),
    )


class BatchOfTrees:
    """Trees that grow together."""

    def __init__(self, engine: Engine, data: Handle, known: Plan, draw: Draw) -> None:
        self.engine, self.data, self.plan, self.draw = engine, data, known, draw
        self.trees = [Tree() for _ in range(draw.n_trees)]
        self.state: Handle = None
        self.root_weight: list[int] = []
        self.dtype: np.dtype = check.INT64

    def grow(self) -> list[tuple[Any, ...]]:
        """Returns the trees as `growth.trees.joined` takes them."""
        pending = self._roots()
        while pending:
            n_max = self.plan.max_gathered
            small = [i for i, p in enumerate(pending) if int(p.sums[-1]) <= n_max and not self._is_leaf(p)]
            self._finish(pending, small)
            chosen = set(small)
            large = [i for i, p in enumerate(pending) if i not in chosen and not self._is_leaf(p)]
            if not large:
                break
            pending = self._split(pending, large)
        edges = self.plan.edges
        return [
            tree.arrays(self.plan.n_outputs, edges.dtype, edges.missing is not None) for tree in self.trees
        ]

    def _roots(self) -> list[Pending]:
        draw, shape = self.draw, (self.draw.n_trees, self.plan.n_channels)
        while True:
            self.state = self.engine.map(parts.start, (self.data,), draw)
            handles = (self.data, self.state)
            sums = self.engine.total(parts.root_sums, handles, shape=shape, dtype=check.INT64)
            empty = sums[:, -1] == 0
            if draw.whole is not None or not empty.any():
                break
            draw = draw._replace(whole=tuple(empty.tolist()))  # these trees take every row
        self.root_weight = [self._weight(row) for row in sums]
        if self.plan.is_classification and max(self.root_weight) <= check.MAX_COUNT:
            self.dtype = check.INT32
        roots = []
        for m, row in enumerate(sums):
            key = keys(philox(draw.seed, draw.first + m, 0))[0]
            roots.append(Pending(m, 0, key, 0, row))
            if self._is_leaf(roots[-1]):
                self._make_leaf(roots[-1])
        return roots

    # -------------------------------------------------------------------------------- sums of a node

    def _weight(self, sums: IntArray) -> int:
        k = self.plan.n_outputs
        return int(sums[:k].sum()) if self.plan.is_classification else int(sums[k])

    def _is_leaf(self, p: Pending) -> bool:
        limits, n = self.plan.settings.limits, int(p.sums[-1])
        least = max(2, limits.min_samples_split, 2 * limits.min_samples_leaf)
        return n < least or p.depth >= limits.max_depth or self._is_pure(p.sums)

    def _is_pure(self, sums: IntArray) -> bool:
        k = self.plan.n_outputs
        if self.plan.is_classification:
            return int(np.count_nonzero(sums[:k])) == 1
        weight = int(sums[k])
        if any(int(a) % weight for a in sums[:k]):
            return False
        row = np.array([int(a) // weight for a in sums[:k]], np.int64)
        return (parts.hash_of(row) * weight - int(sums[k + 1])) % 2**64 == 0

    def _make_leaf(self, p: Pending) -> None:
        sums, weight = p.sums[: self.plan.n_outputs].astype(np.float64), float(self._weight(p.sums))
        self.trees[p.tree].make_leaf(p.node, np.ldexp(sums / weight, -self.plan.exponent))

    def _base_score(self, sums: IntArray) -> float:
        if not self.plan.is_classification:
            return 0.0
        of_class = [float(a) for a in sums[: self.plan.n_outputs]]
        return float(node_score(self.plan.settings.criterion, of_class, float(self._weight(sums))))

    # -------------------------------------------------------------------------------- small nodes

    def _finish(self, pending: list[Pending], small: list[int]) -> None:
        """Gathers the rows of small nodes on one worker each, which grows what is below them."""
        known, n_tasks = self.plan, self.engine.n_tasks
        of_row = known.edges.low.shape[0] * (1 if known.edges.low.shape[1] <= 256 else 2) + 12
        size = np.array([int(pending[i].sums[-1]) * of_row for i in small], np.int64)
        for some in _chunks(np.array(small, np.int64), size, _GATHERED_BYTES):
            items = [part for part in (some[t::n_tasks] for t in range(n_tasks)) if len(part)]
            args = [(known.edges, known.n_outputs, self._below(pending, item)) for item in items]
            handles = (self.data, self.state)
            found = self.engine.exchange(parts.gathered, handles, items, parts.finish, args)
            for item, subtrees in zip(items, found, strict=True):
                for i, subtree in zip(item.tolist(), subtrees, strict=True):
                    self.trees[pending[i].tree].below[pending[i].node] = subtree

    def _below(self, pending: list[Pending], nodes: IntArray) -> Below:
        known = self.plan
        some = [pending[i] for i in nodes.tolist()]
        return Below(
            np.array([p.key for p in some], np.uint64), np.array([p.depth for p in some], np.int64),
            np.array([float(self.root_weight[p.tree]) for p in some]), known.settings.criterion,
            known.max_features, known.settings.limits, known.scale,
        )  # fmt: skip

    # -------------------------------------------------------------------------------- splits

    def _split(self, pending: list[Pending], large: list[int]) -> list[Pending]:
        """Splits nodes, or makes leaves of them; returns the children that are pending."""
        column, keeps = np.full(len(pending), -1, np.int32), np.zeros((len(pending), 2), bool)
        tables: list[IntArray] = [np.zeros(0, np.uint8)] * len(pending)
        children = []
        found = self._best_splits(pending, large)
        of_children = child_keys(np.array([pending[i].key for i in large], np.uint64))
        for i, best, two_keys in zip(large, found, of_children.tolist(), strict=True):
            p = pending[i]
            base = self._base_score(p.sums)
            limit = self.plan.settings.limits.min_impurity_decrease
            if best is None or self._in_units(best.score - base) / self.root_weight[p.tree] < limit:
                self._make_leaf(p)
                continue
            both = best.left, p.sums - best.left
            first = self.trees[p.tree].make_split(p.node, self._record(best, base, *both))
            column[i], tables[i] = best.column, (best.side == _LEFT).astype(np.uint8)
            for side, sums in enumerate(both):
                child = Pending(p.tree, first + side, two_keys[side], p.depth + 1, sums)
                if self._is_leaf(child):
                    self._make_leaf(child)
                else:
                    keeps[i, side] = True
                    children.append(child)
        if children:
            starts = np.cumsum([0, *(len(table) for table in tables)], dtype=np.int64)
            step = Step(column, starts, np.concatenate([*tables, np.zeros(1, np.uint8)]), keeps)
            self.state = self.engine.map(parts.advance, (self.data, self.state), step)
        return children

    def _in_units(self, gain: float) -> float:
        return float(np.ldexp(gain, -2 * self.plan.exponent))

    def _record(self, best: "Best", base: float, left: IntArray, right: IntArray) -> Split:
        edges, f = self.plan.edges, best.column
        heavier = int(left[-1]) >= int(right[-1])
        missing_left = heavier if best.missing < 0 else bool(best.missing)
        default_left = MISSING_LEFT * missing_left + UNKNOWN_LEFT * heavier
        gain = float(np.ldexp(self._in_units(max(best.score - base, 0.0)), self.plan.scale))
        missing = -1 if edges.missing is None else int(edges.missing[f])
        if edges.categorical is not None and edges.categorical[f]:
            sides = ([b for b in np.flatnonzero(best.side == s).tolist() if b != missing] for s in (1, 0))
            here, there = ([int(edges.low[f, b]) for b in side] for side in sides)
            return Split(f, 0.0, gain, default_left, _bit_set(here, there, heavier))
        if best.high == missing:  # missing values against all others
            return Split(f, float(np.finfo(edges.dtype).max), gain, default_left, [])
        return Split(f, edges.threshold(f, best.low, best.high), gain, default_left, [])

    def _best_splits(self, pending: list[Pending], nodes: list[int]) -> list["Best | None"]:
        """The best splits of nodes; None where there is none."""
        found: dict[int, Best | None] = {}
        first, count, rest = 0, self.plan.max_features, nodes
        n_columns = len(self.plan.edges.n_bins)
        while rest:
            # Features beyond max_features are sampled one by one, until one varies in the node.
            constant = self._compare(pending, rest, (first, count), found)
            first += count
            rest = constant if first < n_columns else []
            count = min(max(count, 4), n_columns - first)
        return [found.get(i) for i in nodes]

    def _compare(
        self,
        pending: list[Pending],
        nodes: list[int],
        sampled: tuple[int, int],
        found: dict[int, "Best | None"],
    ) -> list[int]:
        """Writes the best splits of nodes over a range of their features; returns where all are constant."""
        first, count = sampled
        node_keys = np.array([pending[i].key for i in nodes], np.uint64)
        edges, settings = self.plan.edges, self.plan.settings
        columns = sampled_features(node_keys, first, count, len(edges.n_bins))
        sizes = np.array([edges.cells(row)[-1] for row in columns]) * (8 * self.plan.n_channels)
        constant: list[int] = []
        for some in _chunks(np.arange(len(nodes)), sizes, _HISTOGRAM_BYTES):
            numbers = np.array(nodes, np.int64)[some]
            column = columns[some].ravel()
            cells = edges.cells(column)
            sums = self.engine.total(
                parts.histograms, (self.data, self.state), np.repeat(numbers, count), column, self.dtype,
                shape=(int(cells[-1]), self.plan.n_channels), dtype=self.dtype,
            ).astype(np.int64, copy=False)  # fmt: skip
            missing = np.full(len(column), -1, np.int64) if edges.missing is None else edges.missing[column]
            # Places in the slot's cells: the last one, where a column has missing values.
            named = np.zeros(len(column), np.uint8)
            if edges.categorical is not None:
                named = edges.categorical[column].astype(np.uint8)
            total = np.stack([pending[i].sums for i in numbers.tolist()])
            score, split, sides = best_splits(
                total, sums, cells, missing, named, settings.criterion, settings.limits.min_samples_leaf,
                first == 0,
            )  # fmt: skip
            for j, i in enumerate(numbers.tolist()):
                slot, low, high, side_of_missing, n_varied = split[j].tolist()
                if slot >= 0:
                    at = slice(int(cells[j * count + slot]), int(cells[j * count + slot + 1]))
                    left = sums[at][sides[at] == _LEFT].sum(axis=0, dtype=np.int64)
                    f = int(column[j * count + slot])
                    found[i] = Best(float(score[j]), f, low, high, side_of_missing, sides[at].copy(), left)
                elif n_varied == 0:
                    constant.append(i)
        return constant


class Best(NamedTuple):
    """The best split of a node."""

    score: float
    column: int
    low: int
    high: int
    missing: int
    """1 or 0: missing values go left or right; -1: the node has none."""
    side: IntArray
    """Of each bin: 1 left, 0 right, 2 the node has none."""
    left: IntArray
    """(n_channels,): sums of the left side."""


def _bit_set(here: list[int], there: list[int], others: bool) -> list[int]:
    """Words of a set of categories: those here, and others up to the last word if `others` says so."""
    words = [0xFFFFFFFF if others else 0] * (max([*here, *there], default=0) // 32 + 1)
    for c in here:
        words[c // 32] |= 1 << c % 32
    for c in there:
        words[c // 32] &= ~(1 << c % 32)
    return words


def _chunks(numbers: IntArray, sizes: IntArray, most: int) -> list[IntArray]:
    """Numbers in groups whose sizes sum to at most `most`, or are one."""
    if not len(numbers):
        return []
    groups, first, size = [], 0, 0
    for i, more in enumerate(sizes.tolist()):
        if i > first and size + more > most:
            groups.append(numbers[first:i])
            first, size = i, 0
        size += more
    return [*groups, numbers[first:]]
