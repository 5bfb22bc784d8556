"""Trees that grow together, level by level, from sums of integers over the rows of all parts (growing.py)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...core import check
from ...core.aliases import IntArray
from ...core.philox import keys, philox
from ...core.scores import node_score
from . import parts
from .best_splits import best_splits
from .engine import Engine, Handle
from .levels import child_keys, sampled_features
from .nodes import MISSING_LEFT, UNKNOWN_LEFT, Split, Tree
from .parts import Below, Draw, Step
from .planning import Plan

_HISTOGRAM_BYTES = 1 << 28  # bytes of histograms that are summed at a time
_GATHERED_BYTES = 1 << 28  # bytes of rows of small nodes that are gathered at a time
LEFT = 1
"""A side of a bin, as in best_splits.pyx."""


class Pending(NamedTuple):
    """A pending node, whose rows are in the state."""

    tree: int
    """Number of its tree in the batch."""
    node: int
    key: int
    depth: int
    sums: IntArray
    """(n_channels,)."""


class BatchOfTrees:
    """Trees that grow together."""

    def __init__(self, engine: Engine, data: Handle, plan: Plan, draw: Draw) -> None:
        self.engine, self.data, self.plan, self.draw = engine, data, plan, draw
        self.trees = [Tree() for _ in range(draw.n_trees)]
        self.state: Handle = None
        self.root_weight: list[int] = []
        self.dtype: np.dtype = check.INT64

    def grow(self) -> list[tuple[Any, ...]]:
        """Returns the trees in the form that `growth.trees.joined` takes."""
        pending = self._roots()
        while pending:
            size = {i: int(p.sums[-1]) for i, p in enumerate(pending) if not self._is_leaf(p)}
            self._finish(pending, [i for i, n in size.items() if n <= self.plan.max_gathered])
            large = [i for i, n in size.items() if n > self.plan.max_gathered]
            pending = self._split(pending, large) if large else []
        edges, projected = self.plan.edges, self.plan.settings.projections is not None
        has_missing = edges.missing is not None
        return [tree.arrays(self.plan.n_outputs, edges.dtype, has_missing, projected) for tree in self.trees]

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
        if n < least or p.depth >= limits.max_depth or self._is_pure(p.sums):
            return True
        return self._weight(p.sums) < 2 * self._least_weight(p)

    def _least_weight(self, p: Pending) -> float:
        """Returns the minimum weight of each side of a split of a node."""
        return self.plan.settings.limits.min_weight_fraction_leaf * self.root_weight[p.tree]

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
        """Gathers the rows of each small node in one place, and grows its subtree there."""
        plan, n_tasks = self.plan, self.engine.n_tasks
        size = np.array([int(pending[i].sums[-1]) * plan.row_bytes for i in small], np.int64)
        for some in chunks(np.array(small, np.int64), size, _GATHERED_BYTES):
            items = [some[task::n_tasks] for task in range(min(n_tasks, len(some)))]
            args = [(plan.edges, plan.n_outputs, self._below(pending, item)) for item in items]
            handles = (self.data, self.state)
            of_items = self.engine.exchange(parts.gathered, handles, items, parts.finish, args)
            for item, subtrees in zip(items, of_items, strict=True):
                for i, subtree in zip(item.tolist(), subtrees, strict=True):
                    self.trees[pending[i].tree].below[pending[i].node] = subtree

    def _below(self, pending: list[Pending], nodes: IntArray) -> Below:
        plan, some = self.plan, [pending[i] for i in nodes.tolist()]
        return Below(
            np.array([p.key for p in some], np.uint64), np.array([p.depth for p in some], np.int64),
            np.array([float(self.root_weight[p.tree]) for p in some]), plan.max_features, plan.settings,
            plan.scale,
        )  # fmt: skip

    # -------------------------------------------------------------------------------- splits

    def _split(self, pending: list[Pending], large: list[int]) -> list[Pending]:
        """Splits nodes or makes them leaves; returns the pending children."""
        keeps = np.zeros((len(pending), 2), bool)
        chosen: dict[int, Any] = {}
        children = []
        splits = self._best_splits(pending, large)
        of_children = child_keys(np.array([pending[i].key for i in large], np.uint64))
        limit = self.plan.settings.limits.min_impurity_decrease
        for i, best, two_keys in zip(large, splits, of_children.tolist(), strict=True):
            p = pending[i]
            base = self._base_score(p.sums)
            if best is None or self._in_units(best.score - base) / self.root_weight[p.tree] < limit:
                self._make_leaf(p)
                continue
            both = best.left, p.sums - best.left
            gain = float(np.ldexp(self._in_units(max(best.score - base, 0.0)), self.plan.scale))
            first = self.trees[p.tree].make_split(p.node, self._record(p, best, both, gain))
            chosen[i] = best
            for side, sums in enumerate(both):
                child = Pending(p.tree, first + side, two_keys[side], p.depth + 1, sums)
                if self._is_leaf(child):
                    self._make_leaf(child)
                else:
                    keeps[i, side] = True
                    children.append(child)
        if children:
            self._advance(pending, chosen, keeps)
        return children

    def _advance(self, pending: list[Pending], chosen: dict[int, Any], keeps: np.ndarray) -> None:
        """Divides the rows of nodes by their splits, and keeps those of some children."""
        column = np.full(len(pending), -1, np.int32)
        tables: list[IntArray] = [np.zeros(0, np.uint8)] * len(pending)
        for i, best in chosen.items():
            column[i], tables[i] = best.column, (best.side == LEFT).astype(np.uint8)
        starts = np.cumsum([0, *(len(table) for table in tables)], dtype=np.int64)
        step = Step(column, starts, np.concatenate([*tables, np.zeros(1, np.uint8)]), keeps)
        self.state = self.engine.map(parts.advance, (self.data, self.state), step)

    def _in_units(self, gain: float) -> float:
        return float(np.ldexp(gain, -2 * self.plan.exponent))

    @staticmethod
    def _default_left(missing: int, sides: tuple[IntArray, IntArray]) -> int:
        """Returns default_left: values that did not occur in the node go to its larger side."""
        heavier = int(sides[0][-1]) >= int(sides[1][-1])
        missing_left = heavier if missing < 0 else bool(missing)
        return MISSING_LEFT * missing_left + UNKNOWN_LEFT * heavier

    def _record(self, p: Pending, best: Any, sides: tuple[IntArray, IntArray], gain: float) -> Split:
        """Returns the split of a node for its tree; sides: sums of the left and the right one."""
        edges, f = self.plan.edges, best.column
        default_left = self._default_left(best.missing, sides)
        missing = -1 if edges.missing is None else int(edges.missing[f])
        if edges.categorical is not None and edges.categorical[f]:
            bins = ([b for b in np.flatnonzero(best.side == s).tolist() if b != missing] for s in (1, 0))
            here, there = ([int(edges.low[f, b]) for b in side] for side in bins)
            words = _bit_set(here, there, bool(default_left & UNKNOWN_LEFT))
            return Split(f, 0.0, gain, default_left, words)
        if best.high == missing:  # missing values against all others
            return Split(f, float(np.finfo(edges.dtype).max), gain, default_left, [])
        return Split(f, edges.threshold(f, best.low, best.high), gain, default_left, [])

    def _best_splits(self, pending: list[Pending], nodes: list[int]) -> list[Any]:
        """Returns the best split of each node, or None."""
        splits: dict[int, Best | None] = {}
        first, count, constant = 0, self.plan.max_features, nodes
        n_columns = len(self.plan.edges.n_bins)
        while constant and first < n_columns:
            # Further features than max_features are sampled one by one, until one varies in the node.
            constant = self._compare(pending, constant, (first, count), splits)
            first += count
            count = min(max(count, 4), n_columns - first)
        return [splits.get(i) for i in nodes]

    def _compare(
        self,
        pending: list[Pending],
        nodes: list[int],
        sampled: tuple[int, int],
        splits: dict[int, "Best | None"],
    ) -> list[int]:
        """Writes the best splits of nodes over a range of features; returns nodes where all are constant."""
        first, count = sampled
        node_keys = np.array([pending[i].key for i in nodes], np.uint64)
        edges = self.plan.edges
        columns = sampled_features(node_keys, first, count, len(edges.n_bins))
        sizes = np.array([edges.cells(row)[-1] for row in columns]) * (8 * self.plan.n_channels)
        constant: list[int] = []
        for some in chunks(np.arange(len(nodes)), sizes, _HISTOGRAM_BYTES):
            numbers = np.array(nodes, np.int64)[some]
            column = columns[some].ravel()
            # Place among the slot's cells: the last one, if a column has missing values.
            missing = np.full(len(column), -1, np.int64) if edges.missing is None else edges.missing[column]
            named = np.zeros(len(column), np.uint8)
            if edges.categorical is not None:
                named = edges.categorical[column].astype(np.uint8)
            cells = edges.cells(column)
            sums = self._histograms(parts.histograms, np.repeat(numbers, count), column, cells=cells)
            of_nodes, unvaried = self._best_slots(
                pending, numbers.tolist(), sums, cells, missing, named, all_sampled=first == 0
            )
            constant += unvaried
            for i, best in of_nodes.items():
                splits[i] = best._replace(column=int(column[best.column]))
        return constant

    def _histograms(self, function: Callable[..., IntArray], *args: Any, cells: IntArray) -> IntArray:
        """Returns the histograms of slots, summed over parts."""
        shape = int(cells[-1]), self.plan.n_channels
        handles = (self.data, self.state)
        sums = self.engine.total(function, handles, *args, self.dtype, shape=shape, dtype=self.dtype)
        return sums.astype(np.int64, copy=False)

    def _best_slots(
        self, pending: list[Pending], nodes: list[int], sums: IntArray, cells: IntArray, missing: IntArray,
        named: IntArray, *, all_sampled: bool,
    ) -> tuple[dict[int, "Best"], list[int]]:  # fmt: skip
        """Returns the best splits of nodes by the histograms of slots, and the nodes in which no slot varies.

        Each node has equally many slots, node after node; `column` of a split is the number of its slot. See
        best_splits.pyx.
        """
        limits, some = self.plan.settings.limits, [pending[i] for i in nodes]
        score, split, sides = best_splits(
            np.stack([p.sums for p in some]), sums, cells, missing, named,
            self.plan.settings.criterion, limits.min_samples_leaf,
            np.array([self._least_weight(p) for p in some]), all_sampled,
        )  # fmt: skip
        n_slots, constant = len(missing) // len(nodes), []
        of_nodes: dict[int, Best] = {}
        for j, i in enumerate(nodes):
            slot, low, high, side_of_missing, n_varied = split[j].tolist()
            if slot >= 0:
                slot += j * n_slots
                at = slice(int(cells[slot]), int(cells[slot + 1]))
                left = sums[at][sides[at] == LEFT].sum(axis=0, dtype=np.int64)
                of_nodes[i] = Best(float(score[j]), slot, low, high, side_of_missing, sides[at].copy(), left)
            elif n_varied == 0:
                constant.append(i)
        return of_nodes, constant


class Best(NamedTuple):
    """The best split of a node."""

    score: float
    column: int
    """Feature, or slot."""
    low: int
    high: int
    missing: int
    """1 or 0: missing values go left or right; -1: the node has none."""
    side: IntArray
    """For each bin 1: left, 0: right, 2: not in the node."""
    left: IntArray
    """(n_channels,): sums of the left side."""


def _bit_set(here: list[int], there: list[int], others: bool) -> list[int]:
    """Returns the words of a set of categories: those here, and with `others` all further ones."""
    words = [0xFFFFFFFF if others else 0] * (max([*here, *there], default=0) // 32 + 1)
    for c in here:
        words[c // 32] |= 1 << c % 32
    for c in there:
        words[c // 32] &= ~(1 << c % 32)
    return words


def chunks(numbers: IntArray, sizes: IntArray, most: int) -> list[IntArray]:
    """Returns numbers in groups whose sizes sum to at most `most`, or of one number."""
    if not len(numbers):
        return []
    groups, first, size = [], 0, 0
    for i, more in enumerate(sizes.tolist()):
        if i > first and size + more > most:
            groups.append(numbers[first:i])
            first, size = i, 0
        size += more
    return [*groups, numbers[first:]]
