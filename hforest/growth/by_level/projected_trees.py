"""Trees on projections with rows in several parts: the steps in which nodes compare projections."""

from typing import Any, NamedTuple

import numpy as np

from ...core.aliases import FloatArray, IntArray
from . import projected_parts
from .batches import BatchOfTrees, Pending, chunks
from .edges import between, of_sample
from .levels import draw_projections
from .nodes import Split
from .projected_parts import Entries, Limits, Nodes, Splits

_SAMPLED = (
    1 << 10
)  # number of sampled rows from which a node's bins are made; up to twice as many rows are all taken
_VALUES_BYTES = 1 << 26  # bytes of sampled values that are collected at a time
_HISTOGRAM_BYTES = 1 << 28  # bytes of histograms that are summed at a time

Table = tuple[FloatArray, FloatArray]
"""Least and greatest value of each bin of a slot."""


class BestProjection(NamedTuple):
    """The best split of a node."""

    score: float
    projection: Entries
    """A single projection."""
    threshold: float
    default_left: int
    """Sides of values that the split does not compare (core/defaults.h)."""
    left: IntArray
    """(n_channels,): sums of the left side."""


class ProjectedTrees(BatchOfTrees):
    """Trees that grow together, with nodes that compare projections."""

    def _nodes(self, pending: list[Pending], numbers: IntArray) -> Nodes:
        settings = self.plan.settings
        keys = np.array([pending[i].key for i in numbers.tolist()], np.uint64)
        assert settings.projections is not None
        drawn = draw_projections(settings.projections, keys, settings.n_projections)
        return Nodes(numbers, Entries(*drawn))

    # ------------------------------------------------------------------------------------- bins

    def _sampled_tables(self, pending: list[Pending], nodes: Nodes) -> list[Table]:
        """Returns the bins of each slot of nodes, from the values of sampled rows."""
        size = [int(pending[i].sums[-1]) for i in nodes.place.tolist()]
        share = [2**32 if n <= 2 * _SAMPLED else 2**32 * _SAMPLED // n for n in size]
        sampled = self.engine.collect(
            projected_parts.sampled_values, (self.data, self.state), nodes, self.plan.settings.seed,
            np.array(share, np.uint64),
        )  # fmt: skip
        n_slots = self.plan.settings.n_projections
        of_part = [np.split(values, np.cumsum(sizes * n_slots)[:-1]) for values, sizes in sampled]
        most = max(1, self.plan.settings.max_bins - (self.plan.edges.missing is not None))
        return [
            of_sample(slot + 0.0, most)
            for of_node in zip(*of_part, strict=True)
            for slot in np.concatenate([values.reshape(n_slots, -1) for values in of_node], axis=1)
        ]

    def _extreme_tables(self, _: list[Pending], nodes: Nodes) -> list[Table]:
        """Returns two bins of each slot of nodes, or one for a constant slot."""
        ends = np.stack(self.engine.collect(projected_parts.extremes, (self.data, self.state), nodes))
        least, greatest = ends[:, :, 0].min(axis=0), ends[:, :, 1].max(axis=0)
        tables = []
        for low, high in zip((least + 0.0).tolist(), (greatest + 0.0).tolist(), strict=True):
            values = np.array([low, high][: (low <= high) + (low < high)], self.plan.edges.dtype)
            tables.append((values, values))
        return tables

    def _limits(self, tables: list[Table]) -> Limits:
        dtype = self.plan.edges.dtype
        limits = [between(high[:-1], low[1:], dtype) for low, high in tables]
        n_bins = np.array([len(low) for low, _ in tables], np.int64)
        sizes = np.where(n_bins > 0, n_bins + (self.plan.edges.missing is not None), 0)
        return Limits(
            np.cumsum([0, *(len(a) for a in limits)], dtype=np.int64),
            np.concatenate(limits).astype(dtype),
            np.cumsum([0, *sizes], dtype=np.int64),
        )

    # ----------------------------------------------------------------------------------- splits

    def _best_splits(self, pending: list[Pending], nodes: list[int]) -> list[BestProjection | None]:
        splits: dict[int, BestProjection] = {}
        n_slots, channels = self.plan.settings.n_projections, self.plan.n_channels
        of_node = n_slots * max(
            (self.plan.settings.max_bins + 1) * 8 * channels * _VALUES_BYTES // _HISTOGRAM_BYTES,
            2 * _SAMPLED * self.plan.edges.dtype.itemsize,
        )
        constant = nodes
        # If all sampled rows are equal in the projections, the extremes of all rows decide whether one
        # varies.
        for tables_of in (self._sampled_tables, self._extreme_tables):
            compared, constant = np.array(constant, np.int64), []
            for some in chunks(compared, np.full(len(compared), of_node), _VALUES_BYTES):
                drawn = self._nodes(pending, some)
                constant += self._compare_projections(pending, drawn, tables_of(pending, drawn), splits)
        return [splits.get(i) for i in nodes]

    def _compare_projections(
        self,
        pending: list[Pending],
        nodes: Nodes,
        tables: list[Table],
        splits: dict[int, BestProjection],
    ) -> list[int]:
        """Writes the best splits of nodes; returns nodes in which no slot varies."""
        limits, dtype = self._limits(tables), self.plan.edges.dtype
        units = self._units(pending, nodes.place.tolist())
        sums = self._histograms(projected_parts.histograms, nodes, limits, units, cells=limits.cells)
        missing = np.full(len(tables), -1, np.int64)
        if self.plan.edges.missing is not None:
            missing = np.array([len(low) for low, _ in tables], np.int64)
        slots = missing, np.zeros(len(tables), np.uint8), np.zeros(len(tables), np.int32)
        of_nodes, constant = self._best_slots(
            pending, nodes.place.tolist(), sums, limits.cells, slots, all_sampled=True
        )
        for i, best in of_nodes.items():
            threshold = float(np.finfo(dtype).max)  # missing values against all others
            if best.high != missing[best.column]:
                low, high = tables[best.column]
                threshold = float(between(high[best.low], low[best.high], dtype))
            projection = nodes.projections.some(np.array([best.column]))
            splits[i] = BestProjection(best.score, projection, threshold, best.default_left, best.left)
        return constant

    def _record(self, best: Any, gain: float) -> Split:
        features, weights = best.projection.indices.tolist(), best.projection.data.tolist()
        if len(features) == 1 and weights[0] == 1:
            return Split(features[0], best.threshold, gain, best.default_left, [])
        return Split(-2, best.threshold, gain, best.default_left, [], features, weights)

    def _advance(self, pending: list[Pending], chosen: dict[int, Any]) -> None:
        best = list(chosen.values())
        projections = Entries(
            np.cumsum([0, *(len(b.projection.indices) for b in best)], dtype=np.int64),
            np.concatenate([b.projection.indices for b in best]),
            np.concatenate([b.projection.data for b in best]),
        )
        threshold = np.array([b.threshold for b in best], self.plan.edges.dtype)
        default_left = np.array([b.default_left for b in best], np.uint8)
        splits = Splits(np.array(list(chosen), np.int64), projections, threshold, default_left)
        self.state = self.engine.map(projected_parts.advance, (self.data, self.state), splits)
