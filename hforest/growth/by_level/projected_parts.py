"""Functions of the rows of a part if nodes compare projections: as parts.py, without bins of columns.

Values of a node's projections have bins of their own, made from rows of this node:

    Nodes -> sampled_values -> (for every part: the same bins) -> histograms -> advance
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...core import dispatch, draws
from ...core.aliases import FloatArray, IntArray
from ...core.defaults import sends_missing_left
from .levels import find_bins
from .levels import histograms as histograms_of
from .nodes import ranges
from .parts import Part, State, Units, targets_in

_PROJECT = "hforest.project"


class Nodes(NamedTuple):
    """Some nodes of a state."""

    place: IntArray
    """(n_nodes,) int64: their numbers in the state."""
    projections: "Entries"
    """The slots: equally many projections of each node, node after node."""


class Entries(NamedTuple):
    """Projections as the rows of a sparse matrix."""

    indptr: IntArray
    indices: IntArray
    data: FloatArray

    def some(self, numbers: IntArray) -> "Entries":
        """Returns some of the projections."""
        first, count = self.indptr[numbers], np.diff(self.indptr)[numbers]
        at = ranges(first, count)
        return Entries(np.cumsum([0, *count], dtype=np.int64), self.indices[at], self.data[at])


class Limits(NamedTuple):
    """Limits between the bins of slots."""

    start: IntArray
    """(n_slots + 1,) int64: slot s has the limits start[s] to start[s + 1] - 1, ascending."""
    value: FloatArray
    cells: IntArray
    """(n_slots + 1,) int64: start of the cells of each slot's histogram; a slot without values has none."""


class Splits(NamedTuple):
    """The splits of some nodes of a state, in the order of the nodes."""

    place: IntArray
    """(n,) int64: numbers of the nodes in the state; rows of other nodes are dropped."""
    projections: Entries
    """The projection of each node."""
    threshold: FloatArray
    default_left: np.ndarray
    """(n,) uint8: sides of values that the splits do not compare (core/defaults.h)."""


def _values(part: Part, rows: IntArray, projections: Entries, first: int, last: int) -> FloatArray:
    """Returns the values (last - first, n_rows) of projections first to last - 1 for some rows."""
    x = part.codes.T
    values = np.empty((last - first, len(rows)), x.dtype)
    if not values.size:
        return values
    starts = projections.indptr[first : last + 1]
    entries = slice(starts[0], starts[-1])
    dispatch.backend(_PROJECT, x).project_some(
        x, rows, starts - starts[0], projections.indices[entries],
        projections.data[entries].astype(x.dtype, copy=False), values,
    )  # fmt: skip
    return values


def _each(state: State, nodes: Nodes) -> Iterator[tuple[IntArray, IntArray, int, int]]:
    """Yields for each node its rows, their weights, and the range of its slots."""
    n_slots = (len(nodes.projections.indptr) - 1) // max(1, len(nodes.place))
    for i, v in enumerate(nodes.place.tolist()):
        yield *_rows_of(state, v), i * n_slots, (i + 1) * n_slots


def _rows_of(state: State, v: int) -> tuple[IntArray, IntArray]:
    """Returns the rows of a node of a state and their weights."""
    row, weight, indptr = state
    return row[indptr[v] : indptr[v + 1]], weight[indptr[v] : indptr[v + 1]]


def sampled_values(
    part: Part, state: State, nodes: Nodes, seed: int, share: IntArray
) -> tuple[FloatArray, IntArray]:
    """Returns values of the projections of nodes, node after node, and numbers of rows (n_nodes,) int64.

    share: (n_nodes,) uint64: the number of rows of 2**32 that are sampled, each by a draw of its own.
    """
    word = draws.of_rows(seed, part.first_row, part.codes.shape[1]).astype(np.uint64)
    of_nodes = [
        _values(part, rows[word[rows] < least], nodes.projections, first, last)
        for (rows, _, first, last), least in zip(_each(state, nodes), share, strict=True)
    ]
    values = np.concatenate([a.ravel() for a in of_nodes])
    return values, np.array([a.shape[1] for a in of_nodes], np.int64)


def extremes(part: Part, state: State, nodes: Nodes) -> FloatArray:
    """Returns (n_slots, 2): the least and the greatest value of each slot, infinite without values."""
    ends = np.empty((len(nodes.projections.indptr) - 1, 2), part.codes.dtype)
    for rows, _, first, last in _each(state, nodes):
        values = _values(part, rows, nodes.projections, first, last)
        ends[first:last, 0] = np.fmin.reduce(values, axis=1, initial=np.inf)
        ends[first:last, 1] = np.fmax.reduce(values, axis=1, initial=-np.inf)
    return ends


def histograms(
    part: Part, state: State, nodes: Nodes, limits: Limits, units: Units, dtype: np.dtype
) -> IntArray:
    """Returns the histograms of the slots of nodes (see levels.pyx)."""
    sums = np.zeros((limits.cells[-1], part.n_channels), dtype)
    q, indptr = targets_in(part, state, nodes.place, units), state[2]
    for v, (rows, weight, first, last) in zip(nodes.place.tolist(), _each(state, nodes), strict=True):
        if not len(rows):
            continue
        values = _values(part, rows, nodes.projections, first, last)
        start, bins = limits.start[first : last + 1], np.empty(values.shape, np.uint16)
        find_bins(values, start, limits.value, np.diff(start) + 1, bins)
        cells = limits.cells[first : last + 1]
        filled = np.diff(cells) > 0  # other slots have no known value
        one_node = np.arange(len(rows), dtype=np.int32), weight, np.array([0, len(rows)])
        sums[cells[0] : cells[-1]] = histograms_of(
            np.ascontiguousarray(bins[filled]),
            None if part.labels is None else part.labels[rows],
            None if q is None else q[indptr[v] : indptr[v + 1]],
            part.n_outputs, one_node, np.zeros(filled.sum(), np.int64),
            np.arange(filled.sum(), dtype=np.int32), np.append(cells[:-1][filled], cells[-1]) - cells[0],
        )  # fmt: skip
    return sums


def advance(part: Part, state: State, splits: Splits) -> State:
    """Returns the children of nodes, left before right, in the order of nodes."""
    rows: list[IntArray] = [np.zeros(0, np.int32)]
    weights: list[IntArray] = [np.zeros(0, np.int32)]
    of_node = zip(splits.threshold.tolist(), splits.default_left.tolist(), strict=True)
    for i, (threshold, default_left) in enumerate(of_node):
        row, weight = _rows_of(state, int(splits.place[i]))
        value = _values(part, row, splits.projections, i, i + 1)[0]
        left = np.where(np.isnan(value), sends_missing_left(default_left), value <= threshold)
        for side in (left, ~left):
            rows.append(row[side])
            weights.append(weight[side])
    indptr = np.cumsum([0, *(len(a) for a in rows[1:])], dtype=np.int64)
    return np.concatenate(rows), np.concatenate(weights), indptr
