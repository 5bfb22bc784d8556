"""Checked, bins and limits for all parts before trees grow, from descriptions of all rows."""

from typing import NamedTuple

import numpy as np

from ...core import check, scores, several, supervised
from ...core.aliases import FloatArray, IntArray
from ...core.projections import check_n_features
from ..settings import check_counts, check_signs
from . import parts
from .edges import Edges, edges_of, of_sample
from .engine import Engine, Handle
from .parts import Description
from .settings import Checked

SAMPLED = 1 << 17
"""Number of rows from which bins are made: all if there are no more, else about this number."""
_SAMPLE_BYTES = 1 << 26  # bytes of sampled values that are collected at a time
_STATE_BYTES = 1 << 29  # bytes of a part's rows of a batch of trees
_BATCH = 64  # maximum number of trees of a batch
_GATHER_RATIO = 8  # rows are gathered up to this ratio of their bytes to those of the node's histograms


class Plan(NamedTuple):
    """Checked, bins and limits, after all parts have described their rows."""

    edges: Edges
    settings: Checked
    """Several labels a sample are a regression on their indicators; `monotonic` is an array of int32."""
    n_outputs: int
    class_start: IntArray | None
    """That of a `supervised.Target`."""
    scale: int
    """Gains are multiplied by 2**scale, so that they are in range."""
    max_features: int
    row_bytes: int
    """Bytes of a row that is gathered."""
    max_gathered: int
    n_batch: int

    @property
    def is_classification(self) -> bool:
        return self.settings.task == "classification"

    @property
    def n_channels(self) -> int:
        return self.n_outputs + (1 if self.is_classification else 2)


def _sizes(descriptions: list[Description], settings: Checked) -> tuple[int, ...]:
    """Returns the number of classes of each label of all parts, or the number of targets."""
    is_regression = settings.task == "regression"
    with_rows = [d for d in descriptions if d.n_rows]
    numbers = sorted({d.n_outputs if is_regression else len(d.classes) for d in with_rows})
    expected = "the same number of outputs on every worker"
    check.require(len(numbers) == 1, "y", expected, numbers, "pass labels or targets with the same columns")
    if is_regression:
        return (numbers[0],)
    if settings.n_classes is not None:
        return (
            settings.n_classes
            if isinstance(settings.n_classes, tuple)
            else (settings.n_classes,) * numbers[0]
        )
    return tuple(_n_classes(of_label) for of_label in zip(*(d.classes for d in with_rows), strict=True))


def _n_classes(of_parts: tuple[IntArray, ...]) -> int:
    """Returns the number of classes of a label from the number of rows of each class in each part."""
    counts = np.zeros(max(len(a) for a in of_parts), np.int64)
    for a in of_parts:
        counts[: len(a)] += a
    check.require(
        counts.all(), "y", f"labels 0 to {len(counts) - 1} that each occur on at least one worker",
        f"none of class {int((counts == 0).argmax())}",
        f"renumber the classes, or pass n_classes={len(counts)} if that class exists",
    )  # fmt: skip
    return len(counts)


def _merged_distinct(descriptions: list[Description], f: int, most: int) -> FloatArray | None:
    """Returns the distinct values of a column in all parts, or None if they are more than `most`."""
    merged = np.zeros(0)
    for d in descriptions:
        values = d.distinct[f]
        if values is None:
            return None
        merged = np.unique(np.concatenate([merged, values]))
        if len(merged) > most:
            return None
    return merged


def _edges(
    engine: Engine,
    raw_parts: Handle,
    descriptions: list[Description],
    first_rows: list[int],
    settings: Checked,
) -> Edges:
    """Returns the bins of all columns."""
    n, n_columns = sum(d.n_rows for d in descriptions), descriptions[0].n_columns
    dtype = np.dtype(np.float64 if max(d.itemsize for d in descriptions if d.n_rows) == 8 else np.float32)
    categorical = supervised.categorical(settings.categorical, n_columns)
    has_missing = np.any([d.has_missing for d in descriptions], axis=0)
    if settings.projections is not None:
        none = np.zeros(0)
        return edges_of([(none, none)] * n_columns, has_missing, None, dtype)
    most = max(1, settings.max_bins - int(has_missing.any()))  # missing values have a bin, too
    tables: list[tuple[FloatArray, FloatArray] | None] = []
    for f in range(n_columns):
        named = categorical is not None and bool(categorical[f])
        distinct = _merged_distinct(descriptions, f, supervised.MAX_CATEGORY + 1 if named else most)
        tables.append(None if distinct is None else (distinct, distinct))
    sampled = np.array([f for f, table in enumerate(tables) if table is None], np.int64)
    threshold = 2**32 if n <= SAMPLED else max(1, 2**32 * SAMPLED // n)
    step = max(1, _SAMPLE_BYTES // (8 * min(n, 2 * SAMPLED)))
    for at in range(0, len(sampled), step):
        some = sampled[at : at + step]
        each = [(settings.seed, first, threshold) for first in first_rows]
        values = np.concatenate(engine.collect(parts.sample, (raw_parts,), dtype, some, each=each))
        for i, f in enumerate(some.tolist()):
            tables[f] = of_sample(values[:, i], most)
    return edges_of([table for table in tables if table is not None], has_missing, categorical, dtype)


def _max_gathered(planned: Plan) -> int:
    """Returns the number of rows up to which gathering a node is cheaper than summing its histograms."""
    settings, edges = planned.settings, planned.edges
    if settings.max_gathered is not None:
        return settings.max_gathered
    n_cells = float(settings.max_bins * settings.n_projections)
    if settings.projections is None:
        n_cells = float(np.mean(np.diff(edges.cells(np.arange(len(edges.n_bins)))))) * planned.max_features
    return int(min(1 << 16, max(256, _GATHER_RATIO * 8 * planned.n_channels * n_cells / planned.row_bytes)))


def plan(engine: Engine, raw_parts: Handle, settings: Checked) -> tuple[Plan, Handle]:
    """Returns the plan for all parts, and their rows as bins."""
    descriptions: list[Description] = engine.collect(parts.describe, (raw_parts,), settings)
    check.same("x", [d.n_columns for d in descriptions], "pass targets with the same columns")
    n, n_columns = sum(d.n_rows for d in descriptions), descriptions[0].n_columns
    check.require(n > 0, "x", "at least 1 sample on at least one worker", n, "pass samples to learn from")
    supervised.check_some_weight(any(d.heaviest for d in descriptions))
    supervised.check_drawn("bootstrap", np.any([d.drawn for d in descriptions], axis=0))
    if settings.projections is not None:
        check_n_features(settings.projections, n_columns)
    least, greatest = np.sort([d.extremes for d in descriptions], axis=0)[[0, -1], [0, 1]].tolist()
    if settings.criterion == scores.POISSON:
        check_counts(least, greatest)
    sizes, class_start = _sizes(descriptions, settings), None
    n_outputs = sum(sizes)
    max_features = settings.max_features
    max_features = supervised.max_features(max_features, n_columns, settings.task)
    with_sizes = settings
    if settings.task == "classification":
        with_sizes = settings._replace(n_classes=sizes if len(sizes) > 1 else sizes[0])
    if len(sizes) > 1:
        class_start = np.cumsum([0, *sizes], dtype=np.int64)
        settings = settings._replace(task="regression", criterion=several.CRITERIA[settings.criterion])
    max_weight = max(d.max_weight for d in descriptions)
    n_drawn = n * max_weight
    check.require(
        n_drawn < 2**53, "sample_weight", "sums of weights and in-bag counts below 2**53",
        f"up to {n_drawn}", "scale the weights down",
    )  # fmt: skip
    first_rows = [0, *np.cumsum([d.n_rows for d in descriptions]).tolist()][:-1]
    edges = _edges(engine, raw_parts, descriptions, first_rows, settings)
    if settings.monotonic is not None:
        of_classes = settings.task == "classification"
        signs = check_signs(
            settings.monotonic, n_columns, edges.categorical, n_outputs, of_classes=of_classes
        )
        settings = settings._replace(monotonic=signs)
    scale, of_entry = 0, 24
    if settings.task == "regression":
        heaviest = np.array([float(max(d.heaviest for d in descriptions))])
        most_drawn = n * max(d.max_count for d in descriptions)
        _, scale = supervised.scaled_weight(heaviest, np.array([least, greatest]), edges.dtype, most_drawn)
        of_entry += 8 * n_outputs
    codes_itemsize = 1 if edges.low.shape[1] <= 256 else 2
    if settings.projections is not None:
        codes_itemsize = edges.dtype.itemsize
    planned = Plan(
        edges, settings, n_outputs, class_start, scale, max_features, n_columns * codes_itemsize + 12, 0,
        max(1, min(_BATCH, _STATE_BYTES // (of_entry * max(d.n_rows for d in descriptions) + 1))),
    )  # fmt: skip
    planned = planned._replace(max_gathered=_max_gathered(planned))
    data = engine.map(parts.encode, (raw_parts,), edges, with_sizes, n_outputs, each=first_rows)
    return planned, data
