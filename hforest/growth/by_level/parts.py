"""Functions of the rows of a part, which return new values.

None of them changes its arguments, so that an engine may run one again elsewhere. Stages of a part:

    RawPart -> describe -> (for every part: the same bins of all) -> encode -> Part
    Part    -> start -> State of a batch of trees -> advance -> State of the next level -> ...
"""

from typing import Any, NamedTuple

import numpy as np

from ...core import check, dispatch, draws, several, supervised
from ...core.aliases import Array, FloatArray, IntArray
from .. import unchecked
from ..bins import Bins
from ..settings import most_drawn
from ..trees import Objective, Roots, RootUnits, Trees
from .edges import Edges, bins_of
from .levels import histograms as histograms_of
from .levels import in_units, partitioned
from .levels import leaf_totals as leaf_totals_of
from .nodes import ranges
from .settings import Checked

MAX_ROW_WEIGHT = 2**24
"""Maximum weight of a sample: products with in-bag counts fit into 32 bits."""

State = tuple[IntArray, IntArray, IntArray]
"""(row, weight, indptr) of the pending nodes of a batch of trees: see levels.pyx."""

Units = tuple[FloatArray, IntArray] | None
"""Centres (n_nodes, n_outputs) and exponents (n_nodes,) of nodes of a regression; None for labels."""


class RawPart(NamedTuple):
    """A part of the caller, not yet checked. All but x belong to the call (`check.owned`)."""

    x: Any
    y: Any
    sample_weight: Any
    counts: Any = None
    """(n_trees, n_rows) in-bag counts, or None."""


def raw_part(samples: tuple[Any, ...]) -> RawPart:
    """Returns a part from a tuple (x, y, sample_weight) or (x, y, sample_weight, counts)."""
    x, *others = samples
    names = ("y", "sample_weight", "bootstrap")
    return RawPart(
        x,
        *(
            None if a is None else check.owned(supervised.as_given(name, a))
            for name, a in zip(names, others, strict=False)
        ),
    )


class Description(NamedTuple):
    """Facts about a part that the other parts need."""

    n_rows: int
    n_columns: int
    itemsize: int
    has_missing: np.ndarray
    """(n_columns,) bool."""
    distinct: list[FloatArray | None]
    """Distinct values of each column in order, or None if they are more than its bins."""
    n_outputs: int
    """Number of targets."""
    classes: list[IntArray]
    """Number of rows of each class of each label; empty for targets."""
    extremes: FloatArray
    """(2,): least and greatest target, at most and at least 0; of labels 0 and 1."""
    max_weight: int
    """Largest product of a weight and an in-bag count."""
    heaviest: int
    """Largest weight of a row, 0 without rows."""
    max_count: int
    """Largest in-bag count."""
    drawn: np.ndarray
    """(n_trees,) bool: trees that draw a row of the part, by in-bag counts."""


class Part(NamedTuple):
    """A part as bins, with its labels or targets."""

    edges: Edges
    codes: Array
    """(n_columns, n_rows) of uint8, uint16 or uint32. For projections the numbers, row after row."""
    labels: IntArray | None
    """(n_rows,) int32."""
    targets: FloatArray | None
    """(n_rows, n_outputs) float64."""
    weight: IntArray | None
    """(n_rows,) int64; None: all are 1."""
    counts: IntArray | None
    first_row: int
    """Number of its first row among all rows."""
    n_outputs: int

    @property
    def n_channels(self) -> int:
        """Returns the number of sums of a node or bin: see levels.pyx."""
        return self.n_outputs + (1 if self.targets is None else 2)


class Draw(NamedTuple):
    """Range of the trees of a batch."""

    seed: int
    first: int
    """Number of the first tree, part of the keys of random numbers."""
    at: int
    """Place of the first tree among the trees of the call."""
    n_trees: int
    bootstrap: str
    whole: tuple[bool, ...] | None
    """(n_trees,) whether a tree takes every row because its draws have no weight; None: no tree does."""


# -------------------------------------------------------------------------------------------- before growth

_DISTINCT_ROWS = 1 << 16  # number of rows for which distinct values are searched at a time


def _distinct(column: Array, most: int) -> FloatArray | None:
    distinct = np.zeros(0)
    for first in range(0, len(column), _DISTINCT_ROWS):
        some = column[first : first + _DISTINCT_ROWS].astype(np.float64) + 0.0
        distinct = np.unique(np.concatenate([distinct, some[~np.isnan(some)]]))
        if len(distinct) > most:
            return None
    return distinct


def _checked(raw: RawPart, settings: Checked) -> tuple[FloatArray, Any, IntArray | None]:
    """Returns samples, y and whole weights or None, for any number of rows."""
    x = supervised.matrix("x", raw.x, missing=True)
    check.require(
        x.shape[1] > 0 and max(x.shape) <= check.MAX_COUNT, "x", "1 to 2**31 - 1 features and at most "
            "2**31 - 1 rows",
        f"shape {x.shape}", "pass some columns",
    )  # fmt: skip
    y = raw.y
    if not len(x):  # no y has a shape or a dtype that others must have
        sizes = settings.n_classes
        n_outputs = len(sizes) if isinstance(sizes, tuple) else 1
        y = np.zeros((0, n_outputs), np.float64 if settings.task == "regression" else np.int32)
        y = y if n_outputs > 1 else y[:, 0]
    return x, y, _whole_weight(raw.sample_weight, len(x))


def _largest(x: FloatArray) -> float:
    """Returns the largest absolute target that the leaves of a forest on x hold."""
    return min(supervised.MAX_WEIGHT, float(np.finfo(x.dtype).max))


def _whole_weight(weight: Any, n: int) -> IntArray | None:
    if weight is None:
        return None
    numbers = supervised.sample_weight(weight, np.zeros(n), MAX_ROW_WEIGHT, some_above_0=False)
    check.require(
        (numbers == np.floor(numbers)).all(), "sample_weight", "whole numbers", "fractions",
        "scale them to whole numbers: only their sums do not depend on the order of workers",
    )  # fmt: skip
    return numbers.astype(np.int64)


def describe(raw: RawPart, settings: Checked) -> Description:
    """Returns the description of a part after a check."""
    x, y, weight = _checked(raw, settings)
    n, n_columns = x.shape
    n_outputs, classes, extremes = 0, [], [0.0, 1.0]
    if settings.task == "classification":
        sizes = supervised.MAX_CLASSES if settings.n_classes is None else settings.n_classes
        classes = [np.bincount(column, minlength=1) for column, _ in several.check_labels(y, n, sizes)]
    else:
        targets = supervised.targets("y", y, n, _largest(x))
        n_outputs, extremes = targets.shape[1], [targets.min(initial=0.0), targets.max(initial=0.0)]
    most = [settings.max_bins if settings.projections is None else 0] * n_columns  # or no column has bins
    is_categorical = supervised.categorical(settings.categorical, n_columns)
    if is_categorical is not None:
        supervised.categories("x", x, is_categorical)
        most = [supervised.MAX_CATEGORY + 1 if named else settings.max_bins for named in is_categorical]
    heaviest = min(n, 1) if weight is None else int(weight.max(initial=0))
    drawn = np.ones(settings.n_trees, bool)
    if settings.bootstrap == "counts":
        counts = supervised.in_bag_counts("bootstrap", raw.counts, settings.n_trees, n)
        of_row = counts.max(axis=0, initial=0).astype(np.int64) * (1 if weight is None else weight)
        greatest, max_count = int(of_row.max(initial=0)), most_drawn(1, counts)
        drawn = np.any(counts, axis=1)
    else:
        max_count = most_drawn(1, "poisson" if settings.bootstrap == "poisson" else False)
        greatest = heaviest * max_count
    check.require(
        greatest <= check.MAX_COUNT, "sample_weight", "products with in-bag counts below 2**31",
        "larger ones",
        "scale the weights down",
    )  # fmt: skip
    return Description(
        n, n_columns, x.dtype.itemsize, np.any(np.isnan(x), axis=0),
        [_distinct(x[:, f], most[f]) for f in range(n_columns)], n_outputs, classes, np.array(extremes),
        greatest, heaviest, max_count, drawn,
    )  # fmt: skip


def sample(raw: RawPart, dtype: np.dtype, columns: IntArray, chosen: tuple[int, int, int]) -> FloatArray:
    """Returns the values of some columns of sampled rows, in the order of rows.

    chosen: the seed, the number of the first row, and the number of rows of 2**32 that are sampled.
    """
    x = supervised.matrix("x", raw.x, dtype, missing=True)
    seed, first_row, threshold = chosen
    if threshold < 2**32:
        x = x[sampled_rows(seed, first_row, len(x), threshold)]
    return x[:, columns].astype(np.float64) + 0.0


def sampled_rows(seed: int, first_row: int, n: int, threshold: int) -> np.ndarray:
    """Returns which of the rows from first_row on are sampled, each by a draw of its own."""
    return draws.of_rows(seed, first_row, n) < threshold


def encode(raw: RawPart, edges: Edges, settings: Checked, n_outputs: int, first_row: int) -> Part:
    """Returns a part as bins or numbers.

    settings: with the numbers of classes of all labels.
    """
    x = supervised.matrix("x", raw.x, edges.dtype, missing=True)
    known = edges.n_bins >= 0 if edges.missing is None else edges.missing < 0
    check.require(
        x.shape[1] == len(known) and not np.isnan(x[:, known]).any(), "x",
        "the samples that the call began with", "others", "do not change them during the call",
    )  # fmt: skip
    counts = None
    _, y, weight = _checked(raw, settings)
    labels, targets, *_ = several.target_or_several(y, len(x), settings.task, settings.n_classes, _largest(x))
    if targets is not None:
        targets = targets.reshape(len(x), n_outputs)
    if settings.bootstrap == "counts":
        counts = supervised.in_bag_counts("bootstrap", raw.counts, settings.n_trees, len(x))
    codes = bins_of(x, edges) if settings.projections is None else x.T
    return Part(edges, codes, labels, targets, weight, counts, first_row, n_outputs)


# -------------------------------------------------------------------------------------------- levels


def start(part: Part, draw: Draw) -> State:
    """Returns the roots of the trees of a batch, with their rows."""
    n = part.codes.shape[1]
    if draw.bootstrap == "poisson":
        counts = np.empty((draw.n_trees, n), np.int32)
        backend = dispatch.backend(unchecked.PACKAGE, counts)
        backend.poisson_counts(draw.seed, draw.first, part.first_row, counts)
    elif part.counts is not None:
        counts = part.counts[draw.at : draw.at + draw.n_trees]
    else:
        counts = np.ones((draw.n_trees, n), np.int32)
    if draw.whole is not None:
        counts = counts.copy()
        counts[np.array(draw.whole)] = 1
    rows, weights, indptr = [], [], [0]
    for count in counts:
        in_bag = count if part.weight is None else count * part.weight
        row = np.flatnonzero(in_bag).astype(np.int32)
        rows.append(row)
        weights.append(in_bag[row].astype(np.int32))
        indptr.append(indptr[-1] + len(row))
    return np.concatenate(rows), np.concatenate(weights), np.array(indptr, np.int64)


def root_sums(part: Part, state: State) -> IntArray:
    """Returns the sums of the nodes of a state, without those of targets: (n_nodes, n_channels) int64."""
    row, weight, indptr = state
    n_nodes, k = len(indptr) - 1, part.n_outputs
    sums = np.zeros((n_nodes, part.n_channels), np.int64)
    for v in range(n_nodes):
        entries = slice(indptr[v], indptr[v + 1])
        some, by = row[entries], weight[entries].astype(np.int64)
        if part.labels is not None:
            sums[v, :k] = np.bincount(part.labels[some], by, k)
        else:
            sums[v, k] = by.sum()
        sums[v, -1] = len(some)
    return sums


def measured(
    part: Part, state: State, nodes: IntArray, centre: FloatArray, exponent: IntArray
) -> tuple[FloatArray, IntArray]:
    """Returns extremes and sums over the targets of some nodes (see levels.pyx)."""
    assert part.targets is not None
    return in_units(part.targets, state, nodes, centre, exponent)[1:]


def targets_in(part: Part, state: State, nodes: IntArray, units: Units) -> IntArray | None:
    """Returns the targets of the entries of some nodes in their units; None for labels."""
    if part.targets is None or units is None:
        return None
    return in_units(part.targets, state, nodes, *units)[0]


def leaf_totals(part: Part, state: State, nodes: IntArray, units: Units) -> IntArray:
    """Returns the totals of leaves over the targets of the part: (n_leaves, n_outputs, LEAF_TOTALS) int64."""
    q = targets_in(part, state, nodes, units)
    assert q is not None
    return leaf_totals_of(q, state, nodes)


def histograms(
    part: Part, state: State, nodes: IntArray, columns: IntArray, units: Units, dtype: np.dtype
) -> IntArray:
    """Returns the histograms of slots (see levels.pyx); columns: (n_nodes, n_slots)."""
    n_slots, column = columns.shape[1], columns.ravel()
    q = targets_in(part, state, nodes, units)
    sums = histograms_of(
        part.codes, part.labels, q, part.n_outputs, state, np.repeat(nodes, n_slots), column,
        part.edges.cells(column),
    )  # fmt: skip
    return sums.astype(dtype, copy=False)


class Step(NamedTuple):
    """Splits of the nodes of a state."""

    column: IntArray
    """(n_nodes,) int32: feature of the split; -1: the node's rows are dropped."""
    tables: IntArray
    """(n_nodes + 1,) int64: start of the sides of its bins."""
    goes_left: IntArray
    """uint8."""


def advance(part: Part, state: State, step: Step) -> State:
    """Returns the children of the nodes of a state."""
    return partitioned(part.codes, state, *step)


# -------------------------------------------------------------------------------------------- small nodes


class Gathered(NamedTuple):
    """Rows of some nodes, node after node."""

    indptr: IntArray
    codes: Array
    """(n_columns, n_rows)."""
    labels: IntArray | None
    targets: FloatArray | None
    weight: IntArray


class Below(NamedTuple):
    """Data besides rows that are needed to finish nodes."""

    key: IntArray
    depth: IntArray
    root_weight: FloatArray
    max_features: int
    settings: Checked
    scale: int
    """Gains are multiplied by 2**scale."""
    unit: RootUnits | None
    """Units of the nodes' parents; None for labels."""
    bounds: FloatArray
    """(n_nodes, 2) float64: bounds of their values by monotonic constraints."""


def gathered(part: Part, state: State, nodes: IntArray) -> Gathered:
    """Returns the rows of some nodes of a state."""
    row, weight, indptr = state
    sizes = indptr[nodes + 1] - indptr[nodes]
    at = ranges(indptr[nodes], sizes)
    some = row[at]
    return Gathered(
        np.cumsum([0, *sizes], dtype=np.int64),
        np.ascontiguousarray(part.codes[:, some]),
        None if part.labels is None else part.labels[some],
        None if part.targets is None else part.targets[some],
        weight[at],
    )


def _merged(parts: list[Gathered]) -> Gathered:
    """Returns the rows of each node in the order of parts, which is that of all rows."""
    if len(parts) == 1:
        return parts[0]
    sizes = np.stack([np.diff(part.indptr) for part in parts], axis=1)  # (n_nodes, n_parts)
    first = np.cumsum([0, *(part.indptr[-1] for part in parts)])
    starts = first[:-1] + np.stack([part.indptr[:-1] for part in parts], axis=1)
    order = ranges(starts.ravel(), sizes.ravel())

    def joined(name: str) -> Any:
        arrays = [getattr(part, name) for part in parts]
        return None if arrays[0] is None else np.concatenate(arrays)[order]

    return Gathered(
        np.cumsum([0, *sizes.sum(axis=1)], dtype=np.int64),
        np.ascontiguousarray(np.concatenate([part.codes for part in parts], axis=1)[:, order]),
        joined("labels"), joined("targets"), joined("weight"),
    )  # fmt: skip


def _check_gathered(part: Gathered, number: int, edges: Edges, n_outputs: int, below: Below) -> None:
    """Checks the rows that another part sent, for compiled code relies on them."""
    n_columns, n = len(edges.n_bins), part.codes.shape[-1]
    projected, classes = below.settings.projections is not None, below.settings.task == "classification"
    codes = edges.dtype if projected else np.dtype(np.uint8 if edges.low.shape[1] <= 256 else np.uint16)
    fine = (
        part.indptr.dtype == np.int64 and part.indptr.shape == (len(below.key) + 1,)
        and part.indptr[0] == 0 and part.indptr[-1] == n and bool((np.diff(part.indptr) >= 0).all())
        and part.codes.dtype == codes and part.codes.shape == (n_columns, n)
        and part.weight.shape == (n,) and part.weight.dtype.kind == "i" and bool((part.weight > 0).all())
        and (part.labels is not None) == classes and (part.targets is None) == classes
    )  # fmt: skip
    if fine and not projected and n:
        n_bins = edges.n_bins + (0 if edges.missing is None else edges.missing >= 0)
        fine = bool((part.codes.max(axis=1) < n_bins).all())
    if fine and part.labels is not None:
        fine = part.labels.shape == (n,) and part.labels.dtype == np.int32
        fine = fine and (not n or 0 <= int(part.labels.min()) <= int(part.labels.max()) < n_outputs)
    elif fine and part.targets is not None:
        fine = part.targets.shape == (n, n_outputs) and part.targets.dtype == np.float64
    check.require(
        fine, "comm", f"the rows of nodes from worker {number}", "arrays that contradict each other",
        "run the same version of hforest on all workers",
    )  # fmt: skip


def finish(parts: list[Gathered], edges: Edges, n_outputs: int, below: Below) -> list[Trees]:
    """Returns the subtrees of nodes whose rows come from all parts."""
    if len(parts) > 1:
        for number, part in enumerate(parts):
            _check_gathered(part, number, edges, n_outputs, below)
    rows, settings = _merged(parts), below.settings
    objective = Objective(
        supervised.Target(rows.labels, rows.targets, n_outputs), rows.weight.astype(np.float64),
        settings.criterion, settings.limits, below.scale, settings.monotonic,
    )  # fmt: skip
    roots = Roots(rows.indptr, below.key, below.root_weight, below.depth, below.unit, below.bounds)
    if settings.projections is not None:
        return unchecked.grow_projected_below(
            np.ascontiguousarray(rows.codes.T), objective, roots, settings.projections,
            has_missing=edges.missing is not None, n_projections=settings.n_projections,
        )  # fmt: skip
    bins = Bins(rows.codes, edges.low, edges.high, edges.dtype, missing=edges.missing)
    if edges.categorical is not None:
        bins = bins._replace(categorical=edges.categorical)
    return unchecked.grow_below(bins, objective, roots, max_features=below.max_features)
