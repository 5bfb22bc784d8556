"""What a worker does with its own rows where nodes compare projections: as parts.py, without bins of columns.

Values of a node's projections have bins of their own, made of rows of this node:

    Nodes -> sampled_values -> (on every worker: the same bins) -> histograms -> advance
"""

from typing import NamedTuple

import numpy as np

from ..core import dispatch
from ..core.aliases import Array, FloatArray, IntArray
from ..core.projections import Distribution, draw_projection, projection_key
from .levels import histograms as histograms_of
from .levels import words
from .parts import Part, State

_PROJECT = "hforest.project"


class Nodes(NamedTuple):
    """Some nodes of a state."""

    place: IntArray
    """(n_nodes,) int64: their numbers in the state."""
    key: IntArray
    """(n_nodes,) uint64."""
    distribution: Distribution
    n_projections: int


class Limits(NamedTuple):
    """Between which values bins of projections lie. A slot is a node and one of its projections."""

    start: IntArray
    """(n_slots + 1,) int64: slot s has the limits start[s] to start[s + 1] - 1, ascending."""
    value: FloatArray
    cells: IntArray
    """(n_slots + 1,) int64: where the cells of each slot's histogram begin; none of a slot without values."""


class Splits(NamedTuple):
    """The splits of some nodes of a state, in the order of the nodes."""

    place: IntArray
    """(n,) int64: numbers of the nodes in the state; the rows of others are dropped."""
    key: IntArray
    """(n,) uint64."""
    number: IntArray
    """(n,) int64: the projection among those of the node."""
    threshold: FloatArray
    missing_left: np.ndarray
    """(n,) bool: whether missing values go left."""
    keeps: np.ndarray
    """(n, 2) bool: whether the left and the right child are pending."""
    distribution: Distribution


def _values(part: Part, rows: IntArray, distribution: Distribution, key: int, numbers: range) -> FloatArray:
    """Returns the values of some projections of a node, of some rows: (n_projections, n_rows)."""
    x = part.codes.T
    values = np.empty((len(numbers), len(rows)), x.dtype)
    if not values.size:
        return values
    drawn = [draw_projection(distribution, projection_key(key, number)) for number in numbers]
    indptr = np.cumsum([0, *(len(features) for features, _ in drawn)], dtype=np.int64)
    indices = np.array([i for features, _ in drawn for i in features], np.int32)
    data = np.array([w for _, weights in drawn for w in weights], x.dtype)
    dispatch.backend(_PROJECT, x).project_some(x, rows, indptr, indices, data, values)
    return values


def _rows_of(state: State, v: int) -> tuple[IntArray, IntArray]:
    """Returns the rows of a node of a state and their weights."""
    row, weight, indptr = state
    return row[indptr[v] : indptr[v + 1]], weight[indptr[v] : indptr[v + 1]]


def sampled_values(
    part: Part, state: State, nodes: Nodes, seed: int, share: IntArray
) -> tuple[FloatArray, IntArray]:
    """Returns values of the projections of nodes, node after node, and of how many rows: (n_nodes,) int64.

    share: (n_nodes,) uint64: how many rows of 2**32 are sampled, each by its own draw.
    """
    word = words(seed, part.first_row, part.codes.shape[1]).astype(np.uint64)
    found = []
    for v, key, least in zip(nodes.place.tolist(), nodes.key.tolist(), share, strict=True):
        rows, _ = _rows_of(state, v)
        some = rows[word[rows] < least]
        found.append(_values(part, some, nodes.distribution, key, range(nodes.n_projections)))
    values = np.concatenate([a.ravel() for a in found])
    return values, np.array([a.shape[1] for a in found], np.int64)


def extremes(part: Part, state: State, nodes: Nodes) -> FloatArray:
    """Returns the least and the greatest value of each slot, infinite without one: (n_slots, 2)."""
    found = np.empty((len(nodes.place), nodes.n_projections, 2), part.codes.dtype)
    found[:, :, 0], found[:, :, 1] = np.inf, -np.inf
    for i, (v, key) in enumerate(zip(nodes.place.tolist(), nodes.key.tolist(), strict=True)):
        rows, _ = _rows_of(state, v)
        values = _values(part, rows, nodes.distribution, key, range(nodes.n_projections))
        found[i, :, 0] = np.fmin.reduce(values, axis=1, initial=np.inf)
        found[i, :, 1] = np.fmax.reduce(values, axis=1, initial=-np.inf)
    return found.reshape(-1, 2)


def _bins(values: FloatArray, limits: FloatArray) -> Array:
    """Returns the bins of a slot's values: how many limits are below; missing values have the last bin."""
    bins: Array = np.searchsorted(limits, values, side="left").astype(np.uint16)
    bins[np.isnan(values)] = len(limits) + 1
    return bins


def histograms(part: Part, state: State, nodes: Nodes, limits: Limits, dtype: np.dtype) -> IntArray:
    """Returns the histograms of the slots of nodes: see levels.pyx."""
    found = np.zeros((limits.cells[-1], part.n_outputs + (1 if part.fixed is None else 3)), dtype)
    n = nodes.n_projections
    column = np.arange(n)
    for i, (v, key) in enumerate(zip(nodes.place.tolist(), nodes.key.tolist(), strict=True)):
        rows, weight = _rows_of(state, v)
        if not len(rows):
            continue
        slots = range(i * n, (i + 1) * n)
        values = _values(part, rows, nodes.distribution, key, range(n))
        bins = np.stack(
            [
                _bins(values[j], limits.value[limits.start[s] : limits.start[s + 1]])
                for j, s in enumerate(slots)
            ]
        )
        cells = limits.cells[slots.start : slots.stop + 1]
        filled = np.diff(cells) > 0  # others have no value that is known
        one_node = np.arange(len(rows), dtype=np.int32), weight, np.array([0, len(rows)])
        found[cells[0] : cells[-1]] = histograms_of(
            np.ascontiguousarray(bins[filled]),
            None if part.labels is None else part.labels[rows],
            None if part.fixed is None else part.fixed[rows],
            part.n_outputs, one_node, np.zeros(filled.sum(), np.int64),
            column[: filled.sum()].astype(np.int32), np.append(cells[:-1][filled], cells[-1]) - cells[0],
        )  # fmt: skip
    return found


def advance(part: Part, state: State, splits: Splits) -> State:
    """Returns the kept children of nodes, left before right, in the order of nodes."""
    rows: list[IntArray] = [np.zeros(0, np.int32)]
    weights: list[IntArray] = [np.zeros(0, np.int32)]
    for v, key, number, threshold, missing_left, keeps in zip(*(a.tolist() for a in splits[:6]), strict=True):
        row, weight = _rows_of(state, v)
        value = _values(part, row, splits.distribution, key, range(number, number + 1))[0]
        left = (value <= threshold) | (np.isnan(value) & missing_left)
        for side, kept in zip((left, ~left), keeps, strict=True):
            if kept:
                rows.append(row[side])
                weights.append(weight[side])
    indptr = np.cumsum([0, *(len(a) for a in rows[1:])], dtype=np.int64)
    return np.concatenate(rows), np.concatenate(weights), indptr
