"""Trees that grow together, level by level, from sums of integers over the rows of all parts (growing.py)."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...core import check, machine
from ...core.aliases import FloatArray, IntArray
from ...core.defaults import default_left, sends_missing_left, sends_unknown_left
from ...core.philox import CHILDREN, keys, philox
from ...core.scores import OF_RATIOS, node_score
from ..reference.bounds import FREE, Bounds, clipped, of_children
from ..reference.builder import bit_set
from ..reference.leaves import LEAF_TOTALS, LEAF_VALUES, leaf_of_classes, leaf_of_targets
from ..reference.units import gain_in_unit, is_narrow, value
from ..trees import GrownTree, RootUnits
from . import parts, units
from .engine import Engine, Handle
from .levels import sampled_features
from .nodes import Split, Tree
from .parts import Below, Draw, Step
from .planning import Plan
from .scorers import best_splits
from .units import Unit

_HISTOGRAM_BYTES = 1 << 28  # bytes of histograms that are summed at a time
_GATHERED_BYTES = 1 << 28  # bytes of rows of small nodes that are gathered at a time
LEFT, RIGHT = 1, 0
"""Sides of a bin, as in scorers.pyx."""


class Pending(NamedTuple):
    """A pending node, whose rows are in the state."""

    tree: int
    """Number of its tree in the batch."""
    node: int
    key: int
    depth: int
    sums: IntArray
    """(n_channels,), those of targets in the unit."""
    unit: Unit
    """Unit of a regression's targets: of the node, or that of its parent."""
    bounds: Bounds = FREE
    """Bounds of its values by monotonic constraints."""


class BatchOfTrees:
    """Trees that grow together."""

    def __init__(self, engine: Engine, data: Handle, plan: Plan, draw: Draw) -> None:
        self.engine, self.data, self.plan, self.draw = engine, data, plan, draw
        self.trees = [Tree() for _ in range(draw.n_trees)]
        self.state: Handle = None
        self.root_weight: list[int] = []
        self.dtype: np.dtype = check.INT64

    def grow(self) -> list[GrownTree]:
        """Returns the trees."""
        pending = self._roots()
        while pending:
            is_small = [int(p.sums[-1]) <= self.plan.max_gathered for p in pending]
            small, large = ([i for i, a in enumerate(is_small) if a == size] for size in (True, False))
            if self.plan.is_classification:
                small = self._without_leaves(pending, small)
            self._finish(pending, small)  # with leaves of a regression, for it has their rows
            large = self._without_leaves(pending, large)
            pending = self._split(pending, large) if large else []
        edges, projected = self.plan.edges, self.plan.settings.projections is not None
        has_missing = edges.missing is not None
        width = self.plan.n_outputs * LEAF_VALUES
        most = self.plan.settings.limits.max_leaf_nodes
        return [
            tree.grown(width, edges.dtype, most, has_defaults=has_missing, projected=projected)
            for tree in self.trees
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
            roots.append(Pending(m, 0, key, 0, row, units.no_unit(self.plan.n_outputs)))
        return roots

    # -------------------------------------------------------------------------------- sums of a node

    def _weight(self, sums: IntArray) -> int:
        k = self.plan.n_outputs
        return int(sums[:k].sum()) if self.plan.is_classification else int(sums[k])

    def _is_leaf(self, p: Pending) -> bool:
        limits, n = self.plan.settings.limits, int(p.sums[-1])
        least = max(2, limits.min_samples_split, 2 * limits.min_samples_leaf)
        if n < least or p.depth >= limits.max_depth:
            return True
        return self._weight(p.sums) < 2 * self._least_weight(p)

    def _least_weight(self, p: Pending) -> float:
        """Returns the minimum weight of each side of a split of a node."""
        return self.plan.settings.limits.min_weight_fraction_leaf * self.root_weight[p.tree]

    def _without_leaves(self, pending: list[Pending], nodes: list[int]) -> list[int]:
        """Makes nodes leaves where they can't be split, and returns the others.

        Those of a regression get units of their own where they need them.
        """
        if not nodes:
            return []
        k, own, of_nodes = self.plan.n_outputs, [], self._units(pending, nodes)
        if of_nodes is None:
            is_pure = [int(np.count_nonzero(pending[i].sums[:k])) == 1 for i in nodes]
        else:
            seen = self._measured(nodes, *of_nodes)
            is_pure = (seen.least == seen.greatest).all(axis=1).tolist()
            extremes = zip(nodes, seen.spread.tolist(), seen.heaviest.tolist(), strict=True)
            own = [i for i, spread, heaviest in extremes if is_narrow(pending[i].unit, spread, heaviest)]
        leaves = {i for i, pure in zip(nodes, is_pure, strict=True) if pure or self._is_leaf(pending[i])}
        self._add_rows(pending, sorted(leaves), own)
        return [i for i in nodes if i not in leaves]

    def _add_rows(self, pending: list[Pending], leaves: list[int], own: list[int]) -> None:
        """Adds the rows of leaves; gives them, and the nodes in `own`, units of their own."""
        if not self.plan.is_classification:
            of_nodes = set(own) - {*leaves} if self.plan.settings.criterion in OF_RATIOS else set()
            self._make_units(pending, sorted({*leaves, *own}), of_nodes)
        totals = self._leaf_totals(pending, leaves)
        for j, i in enumerate(leaves):
            p = pending[i]
            if self.plan.is_classification:
                row = leaf_of_classes(p.sums[: self.plan.n_outputs].tolist())
            else:
                row = leaf_of_targets(totals[j], p.unit.centre.tolist(), p.unit.exponent, 0)
            row = clipped(row, p.bounds, of_classes=self.plan.is_classification)
            self.trees[p.tree].add_row(p.node, np.array(row))

    def _leaf_totals(self, pending: list[Pending], leaves: list[int]) -> list[list[list[int]]]:
        """Returns the totals of the outputs of each leaf; nothing for labels."""
        of_leaves = self._units(pending, leaves)
        if of_leaves is None or not leaves:
            return []
        shape = len(leaves), self.plan.n_outputs, LEAF_TOTALS
        args = (self.data, self.state), np.array(leaves, np.int64), of_leaves
        totals: list[list[list[int]]]
        totals = self.engine.total(parts.leaf_totals, *args, shape=shape, dtype=check.INT64).tolist()
        return totals

    def _gain(self, p: Pending, score: float) -> float:
        """Returns the gain of a split."""
        if not self.plan.is_classification:
            return gain_in_unit(self.plan.settings.criterion, score, p.unit.exponent, 0)
        of_class = [float(a) for a in p.sums[: self.plan.n_outputs]]
        return score - float(node_score(self.plan.settings.criterion, of_class, float(self._weight(p.sums))))

    def _bounds(self, p: Pending, best: Any) -> tuple[Bounds, Bounds]:
        """Returns the bounds of the children of a node."""
        sign = 0 if self.plan.settings.monotonic is None else int(self.plan.settings.monotonic[best.column])
        if sign == 0:
            return p.bounds, p.bounds
        last, (c, k) = self.plan.n_outputs - 1, self._unit_of_values(p)
        sides = best.left, p.sums - best.left
        left, right = (value(c, k, 0, int(sums[last]), self._weight(sums)) for sums in sides)
        return of_children(p.bounds, left, right, sign)

    # -------------------------------------------------------------------------------- units

    def _unit_of_values(self, p: Pending) -> tuple[float, int]:
        """Returns centre and exponent of a unit: of one target, or of shares of the second class."""
        return (0.0, 0) if self.plan.is_classification else (float(p.unit.centre[0]), p.unit.exponent)

    def _units(self, pending: list[Pending], nodes: list[int]) -> parts.Units:
        """Returns the centres and exponents of nodes of a regression."""
        if self.plan.is_classification:
            return None
        some = [pending[i].unit for i in nodes]
        return np.array([unit.centre for unit in some]), np.array([unit.exponent for unit in some])

    def _measured(self, nodes: list[int], centre: FloatArray, exponent: IntArray) -> units.Measures:
        handles, place = (self.data, self.state), np.array(nodes, np.int64)
        return units.merged(self.engine.collect(parts.measured, handles, place, centre, exponent))

    def _make_units(self, pending: list[Pending], nodes: list[int], from_0: set[int]) -> None:
        """Gives nodes units that are made from their own rows, with centre 0 for the nodes in `from_0`."""
        if not nodes:
            return
        k, sums = self.plan.n_outputs, np.stack([pending[i].sums for i in nodes])
        are_from_0 = np.array([i in from_0 for i in nodes])
        made, sums[:, :k] = units.made(
            partial(self._measured, nodes), k, sums[:, k + 1], sums[:, k], are_from_0
        )
        centre, *others = made
        for i, row, *unit in zip(nodes, sums, centre, *(a.tolist() for a in others), strict=True):
            pending[i] = pending[i]._replace(sums=row, unit=Unit(*unit))

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
        of_nodes = None
        if not plan.is_classification:
            of_nodes = RootUnits(*map(np.array, zip(*(p.unit for p in some), strict=True)))
        return Below(
            np.array([p.key for p in some], np.uint64), np.array([p.depth for p in some], np.int64),
            np.array([float(self.root_weight[p.tree]) for p in some]), plan.max_features, plan.settings,
            plan.scale, of_nodes, np.array([p.bounds for p in some]).reshape(-1, 2),
        )  # fmt: skip

    # -------------------------------------------------------------------------------- splits

    def _split(self, pending: list[Pending], large: list[int]) -> list[Pending]:
        """Splits nodes or makes them leaves; returns the children."""
        chosen: dict[int, Any] = {}
        children, leaves = [], []
        splits = self._best_splits(pending, large)
        of_children = machine.words(np.array([pending[i].key for i in large], np.uint64), CHILDREN, 0, 2)
        limit = self.plan.settings.limits.min_impurity_decrease
        for i, best, two_keys in zip(large, splits, of_children.tolist(), strict=True):
            p = pending[i]
            gain = 0.0 if best is None else self._gain(p, best.score)
            if best is None or gain / self.root_weight[p.tree] < limit:
                leaves.append(i)
                continue
            both = best.left, p.sums - best.left
            gain = float(np.ldexp(max(gain, 0.0), self.plan.scale))
            first = self.trees[p.tree].make_split(p.node, self._record(best, gain))
            chosen[i] = best
            for side, (sums, bounds) in enumerate(zip(both, self._bounds(p, best), strict=True)):
                child = Pending(p.tree, first + side, two_keys[side], p.depth + 1, sums, p.unit, bounds)
                children.append(child)
        self._add_rows(pending, leaves, [])
        if children:
            if self.plan.settings.limits.max_leaf_nodes:  # splits may become leaves when the tree is whole
                self._add_rows([*pending], list(chosen), [])
            self._advance(pending, chosen)
        return children

    def _advance(self, pending: list[Pending], chosen: dict[int, Any]) -> None:
        """Divides the rows of nodes by their splits."""
        column = np.full(len(pending), -1, np.int32)
        tables: list[IntArray] = [np.zeros(0, np.uint8)] * len(pending)
        for i, best in chosen.items():
            column[i], tables[i] = best.column, (best.side == LEFT).astype(np.uint8)
        starts = np.cumsum([0, *(len(table) for table in tables)], dtype=np.int64)
        step = Step(column, starts, np.concatenate([*tables, np.zeros(1, np.uint8)]))
        self.state = self.engine.map(parts.advance, (self.data, self.state), step)

    def _record(self, best: Any, gain: float) -> Split:
        """Returns the split of a node for its tree."""
        edges, f, default_left = self.plan.edges, best.column, best.default_left
        missing = -1 if edges.missing is None else int(edges.missing[f])
        if edges.categorical is not None and edges.categorical[f]:
            bins = ([b for b in np.flatnonzero(best.side == s).tolist() if b != missing] for s in (1, 0))
            here, there = ([int(edges.low[f, b]) for b in side] for side in bins)
            words = bit_set(here, there, sends_unknown_left(default_left))
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
            signs = np.zeros(len(column), np.int32)
            if self.plan.settings.monotonic is not None:
                signs = self.plan.settings.monotonic[column]
            of_nodes = self._units(pending, numbers.tolist())
            sums = self._histograms(parts.histograms, numbers, columns[some], of_nodes, cells=cells)
            found, unvaried = self._best_slots(
                pending, numbers.tolist(), sums, cells, (missing, named, signs), all_sampled=first == 0
            )
            constant += unvaried
            for i, best in found.items():
                splits[i] = best._replace(column=int(column[best.column]))
        return constant

    def _histograms(self, function: Callable[..., IntArray], *args: Any, cells: IntArray) -> IntArray:
        """Returns the histograms of slots, summed over parts."""
        shape = int(cells[-1]), self.plan.n_channels
        handles = (self.data, self.state)
        sums = self.engine.total(function, handles, *args, self.dtype, shape=shape, dtype=self.dtype)
        return sums.astype(np.int64, copy=False)

    def _best_slots(
        self, pending: list[Pending], nodes: list[int], sums: IntArray, cells: IntArray,
        slots: tuple[IntArray, IntArray, IntArray], *, all_sampled: bool,
    ) -> tuple[dict[int, "Best"], list[int]]:  # fmt: skip
        """Returns the best splits of nodes by the histograms of slots, and the nodes in which no slot varies.

        Each node has equally many slots, node after node; `column` of a split is the number of its slot.
        slots: missing, categorical and sign of scorers.pyx.
        """
        limits, some = self.plan.settings.limits, [pending[i] for i in nodes]
        centre, exponent = (np.array(a) for a in zip(*(self._unit_of_values(p) for p in some), strict=True))
        score, split, sides = best_splits(
            np.stack([p.sums for p in some]), sums, cells, *slots,
            self.plan.settings.criterion, limits.min_samples_leaf,
            np.array([self._least_weight(p) for p in some]), all_sampled,
            np.array([[*p.bounds, c] for p, c in zip(some, centre, strict=True)]), exponent,
        )  # fmt: skip
        missing = slots[0]
        n_slots, constant = len(missing) // len(nodes), []
        of_nodes: dict[int, Best] = {}
        for j, i in enumerate(nodes):
            slot, low, high, seen, n_varied = split[j].tolist()
            if slot >= 0:
                slot += j * n_slots
                at = slice(int(cells[slot]), int(cells[slot + 1]))
                side, bits = _placed(sums[at, -1], sides[at], int(missing[slot]), seen)
                left = sums[at][side == LEFT].sum(axis=0, dtype=np.int64)
                of_nodes[i] = Best(float(score[j]), slot, low, high, bits, side, left)
            elif n_varied == 0:
                constant.append(i)
        return of_nodes, constant


class Best(NamedTuple):
    """The best split of a node."""

    score: float
    column: int
    """Number of the feature; for projections the number of the slot."""
    low: int
    high: int
    default_left: int
    """Sides of values that the split does not compare (core/defaults.h)."""
    side: IntArray
    """(n_bins,) uint8, side of each bin: 1 left, 0 right, 2 no row of the node has the bin."""
    left: IntArray
    """(n_channels,): sums of the left side."""


def _placed(n: IntArray, side: IntArray, missing: int, seen: int) -> tuple[IntArray, int]:
    """Returns the sides of bins, with the chosen one for missing values, and default_left of a split.

    n: (n_bins,) numbers of rows. missing: the bin of missing values; -1: none. seen: as in core/defaults.h.
    """
    side, is_known = side.copy(), np.arange(len(n)) != missing
    n_left, n_right = (int(n[is_known & (side == s)].sum()) for s in (LEFT, RIGHT))
    bits = default_left(seen, n_left, n_right, int(n[~is_known].sum()))
    if seen >= 0:
        side[missing] = LEFT if sends_missing_left(bits) else RIGHT
    return side, bits


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
