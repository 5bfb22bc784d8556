"""Labels of any kind as class numbers, without a detour by float64 or text that would merge some of them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core import check, supervised
from ..core.aliases import ArrayLike, IntArray, Table, Task
from ..core.real import as_given
from . import texts
from .columns import coded, text_array
from .library import aside
from .tables import MISSING, NUMBERS, TIMES, WORDS, ColumnError, group_of, objects, opened, place_of

FEW = 20
"""Number of classes up to which each may have a single row."""


def labels(y: ArrayLike) -> tuple[np.ndarray, IntArray]:
    """Returns the classes of labels of one kind: text, booleans, integers or other numbers.

    Parameters
    ----------
    y : (n_samples,) array_like
        Labels. The items of a list keep their Python types.

    Returns
    -------
    classes : (n_classes,) array
        The labels that occur, in ascending order: text as StringDType, numbers of the dtype of y.
    places : (n_samples,) array of int64
        Places of the labels in `classes`.

    Raises
    ------
    TypeError
        Labels of several kinds, such as 1 and "1", or of another one.
    ValueError
        A missing label; more than 20 classes that are more than half of the rows.

    Examples
    --------
    >>> import hforest
    >>> classes, places = hforest.tabular.labels(["no", "yes", "no"])
    >>> classes.tolist(), places.tolist()
    (['no', 'yes'], [0, 1, 0])
    """
    return labels_of("y", y)


def labels_of(name: str, y: ArrayLike) -> tuple[np.ndarray, IntArray]:
    """Returns `labels` of an argument that messages call `name`."""
    a = one_kind(name, y)
    check.require(a.ndim == 1, name, "shape (n_samples,)", a.shape, "pass one label for each sample")
    if a.dtype.kind in "UO" and len(a) and isinstance(a[0], str):
        a = np.array(a.tolist(), np.dtypes.StringDType())
    if a.dtype.kind == "f":
        check.finite(name, a, remedy="drop such samples")
    if a.dtype.kind in "iuf":
        a = a.astype(a.dtype.newbyteorder("="), copy=False)
    classes, places = np.unique(a, return_inverse=True)
    if len(classes) > max(FEW, len(a) // 2):
        raise ValueError(
            f"{name}: expected classes of several rows each, got {len(classes)} classes in {len(a)} rows; "
            'pass task="regression" for numbers, or merge classes'
        )
    return classes, places.reshape(-1)


def one_kind(name: str, y: Any) -> np.ndarray:
    """Returns labels as an array, after checking that all are of one kind and that none is missing."""
    a = y
    if isinstance(y, list | tuple) and not any(isinstance(item, list | tuple | np.ndarray) for item in y[:1]):
        a = objects(y)
    a = as_given(name, a)
    if a.dtype.kind == "S":
        a = np.strings.decode(a, "utf-8")
    if a.dtype.kind in "biufUT":
        return a
    check.require(
        a.dtype.kind == "O", name, "text, booleans or numbers", f"dtype {a.dtype}", "convert them", TypeError
    )
    first: dict[str, int] = {}
    for i, item in enumerate(a.ravel().tolist()):
        kind = group_of(type(item))
        if kind == MISSING or item != item:
            raise ValueError(
                f"{name}: expected a label of each sample, got {item} at index {i}; drop such samples"
            )
        first.setdefault(kind, i)
    if len(first) > 1 or not first.keys() <= {"text", "boolean", "number"}:
        flat = a.ravel()
        each = " and ".join(
            f"{WORDS.get(kind, 'objects')} such as {flat[i]!r:.60} at index {i}" for kind, i in first.items()
        )
        raise TypeError(f"{name}: expected labels of one kind, got {each}; convert them")
    if "text" in first or not first:
        return a
    if "boolean" in first:
        return a.astype(bool)
    whole = all(item == int(item) for item in a.ravel().tolist())
    try:
        exact = np.array([int(item) for item in a.ravel().tolist()], np.int64) if whole else None
    except OverflowError:
        raise ValueError(
            f"{name}: expected labels in the range of int64, got larger integers; pass them as text"
        ) from None
    if exact is not None and not all(isinstance(item, float) for item in a.ravel().tolist()):
        return exact.reshape(a.shape)
    return a.astype(np.float64)


def places_of(classes: np.ndarray, y: ArrayLike, name: str = "y") -> IntArray:
    """Returns the places (n_samples,) int64 of labels in `classes`, -1 for other labels."""
    place = {label: i for i, label in enumerate(classes.tolist())}
    values = one_kind(name, y).ravel().tolist()
    return np.fromiter((place.get(value, -1) for value in values), np.int64, len(values))


def known_places(name: str, classes: np.ndarray, y: ArrayLike) -> IntArray:
    """Returns `places_of` labels that are all classes; IndexError for others."""
    places = places_of(classes, y, name)
    unknown = np.flatnonzero(places < 0)
    if len(unknown):
        got = f"{one_kind(name, y).ravel()[unknown[0]]!r:.60} at index {unknown[0]}"
        known = ", ".join(map(repr, classes[:8].tolist())) + (", ..." if len(classes) > 8 else "")
        raise IndexError(
            f"{name}: expected labels of the classes {known}, got {got}; drop such samples, or pass n_classes"
        )
    return places


def class_weight_of(class_weight: Any, classes: np.ndarray) -> Any:
    """Returns `class_weight` with class numbers in place of labels."""
    if not isinstance(class_weight, Mapping):
        return class_weight
    place = {label: i for i, label in enumerate(classes.tolist())}
    unknown = [label for label in class_weight if label not in place]
    check.require(
        not unknown, "class_weight", "labels of y", repr(unknown[:1]), "leave out labels that do not occur"
    )
    return {place[label]: weight for label, weight in class_weight.items()}


class Target(NamedTuple):
    """The column of a table that is to be predicted."""

    rows: IntArray
    """(n,) int64: the rows that have a value."""
    y: np.ndarray
    """(n,) labels as they are spelt, or targets as float64."""
    task: Task


@aside
def target(
    table: Table,
    column: str,
    *,
    task: Task | None = None,
    null_values: Sequence[str] | None = None,
    day_first: bool | None = None,
) -> Target:
    """Returns a column of a table as labels or targets, for `fit`.

    Parameters
    ----------
    table, null_values, day_first
        As for `columns`.
    column : str
        Name of the column.
    task : "classification" or "regression", optional
        By default regression if the values are numbers that are not all whole, or more than 20 different
        ones.

    Returns
    -------
    Target
        Labels that were read from text keep their spelling, unless they are whole numbers that are spelt as
        Python does; these are int64.

    Raises
    ------
    TypeError, ValueError
        Dates; infinite targets; text of which most values, but not all, are numbers (pass null_values or
        `task`); with "regression" text that is not numbers.

    Examples
    --------
    >>> import hforest
    >>> hforest.tabular.target({"code": ["001", "010", None]}, "code").y.tolist()
    ['001', '010']
    """
    names, readers, _ = opened("table", table)
    check.choice("column", column, names)
    check.choice("task", task, (None, *supervised.TASKS))
    hints, where = texts.hints_of(table, null_values, day_first), f"column {column!r}"
    try:
        values, place = readers[names.index(column)](), place_of(table)
    except ColumnError as fault:
        raise fault.error(f"{where}: {fault}") from None
    typed = values
    faults: tuple[str, ...] = ()
    if values.kind == "text":
        typed, form, rows, faults, _ = texts.typed(values, hints)
        if task != "classification":
            faults = (
                *texts.unread(form, rows, values, typed, place),
                *(f for f in faults if "looks like" in f),
            )
    if faults and task != "classification":
        raise ValueError(
            f"{where}: expected numbers, or labels of several rows each, got values of which {faults[0]}; "
            'correct them, name them in null_values, or pass task="classification"'
        )
    if typed.kind in TIMES or (values.kind != "text" and values.kind in ("time", "duration")):
        raise TypeError(
            f"{where}: expected text, booleans or numbers to predict, got {WORDS[typed.kind]}; choose "
            "another column"
        )
    if typed.kind in NUMBERS and task != "classification":
        known = np.flatnonzero(~typed.absent)
        y = typed.data[known].astype(np.float64)
        distinct = np.unique(typed.data[known])
        whole = typed.kind in ("number", "boolean") and bool((distinct == np.trunc(distinct * 1.0)).all())
        if task == "regression" or not whole or len(distinct) > FEW:
            check.finite(where, y, remedy="correct these values")
            return Target(known, y, "regression")
    levels, codes = coded(values, hints.null_values)
    rows = np.flatnonzero(codes >= 0)
    if task == "regression":
        raise TypeError(
            f"{where}: expected numbers as targets, got {WORDS[values.kind]}; choose another task"
        )
    if values.kind in NUMBERS and values.kind != "time":
        return Target(rows, values.data[rows], "classification")
    spelt = _spelt_once(levels, codes, typed) if typed.kind in NUMBERS else list(levels)
    if spelt and all(re.fullmatch(r"0|-?[1-9]\d{0,17}", text) for text in spelt):
        return Target(rows, np.array(list(map(int, spelt)))[codes[rows]], "classification")
    return Target(rows, text_array(spelt)[codes[rows]] if spelt else np.zeros(0, "U1"), "classification")


def _spelt_once(levels: Sequence[str], codes: IntArray, typed: Any) -> list[str]:
    """Returns the texts of levels; those that are equal numbers have that of the first."""
    first = np.full(len(levels), -1)
    rows = np.flatnonzero(codes >= 0)[::-1]
    first[codes[rows]] = rows  # the last write is that of the first row
    spelling: dict[Any, str] = {}
    numbers = typed.data[first].tolist()
    return [spelling.setdefault(number, level) for number, level in zip(numbers, levels, strict=True)]
