"""Tables of few rows as numbers, cell by cell.

`columns.converted` takes tens of microseconds or more for each column. `Cells` reads few rows faster, if it
knows that both give the same numbers. `converted` reads all other tables, or says what is wrong with them.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import date
from math import isinf
from typing import Any

import numpy as np

from ..core.aliases import FloatArray
from .columns import converted, of_values
from .kinds import PARTS, Columns
from .library import aside, is_failure, polars
from .tables import LEVELS, Values

FEW = 1 << 14
"""Number of rows up to which cells are read one by one; with more, whole columns are as fast."""
_BY_CELL = 4
"""Number of rows up to which single cells of a frame of pandas are faster than its blocks."""
_LARGE = 2**53
"""Greatest integer up to which float64 holds all."""
_FLOATS = frozenset((float, np.float64, np.float32))
_INTEGERS = frozenset((int, bool, np.bool_, *(np.dtype(code).type for code in "bhilqBHILQ")))
_TEXTS = frozenset((str, np.str_))

Column = Sequence[Any] | np.ndarray
"""Cells of a column: Python objects, or an array of float64 without infinity."""
Read = Callable[[Column, bool], Iterable[Any] | None]
"""Returns the features of the cells of a column; None if `converted` must read them. The second argument is
True where NaN is a missing value in columns of any kind, as in frames of pandas."""


def _is_missing(cell: Any) -> bool:
    return cell is None or type(cell).__name__ in ("NAType", "NaTType")


def _numbers(cells: Column, nan_is_missing: bool) -> Iterable[Any] | None:
    if isinstance(cells, np.ndarray):
        return [cells]
    found = []
    for cell in cells:
        kind = type(cell)
        if kind in _FLOATS:
            if isinf(cell):
                return None
            found.append(cell)
        elif kind in _INTEGERS and -_LARGE <= cell <= _LARGE:
            found.append(cell)
        elif _is_missing(cell):
            found.append(np.nan)
        else:
            return None
    return [found]


def _levels(levels: Sequence[str], n_parts: int) -> Read:
    places = {level: float(i) for i, level in enumerate(levels)}

    def of_other(cell: Any, nan_is_missing: bool) -> float | None:
        # Spaces around a text count in a category, and not in other text.
        kind = type(cell)
        if kind in _TEXTS:
            return np.nan if cell == cell.strip() else None
        is_missing = _is_missing(cell) or (nan_is_missing and kind in _FLOATS and cell != cell)
        return np.nan if is_missing else None

    def read(cells: Column, nan_is_missing: bool) -> Iterable[Any] | None:
        try:
            found = list(map(places.get, cells))
        except TypeError:  # a list in a cell
            return None
        for i in [i for i, place in enumerate(found) if place is None]:
            found[i] = of_other(cells[i], nan_is_missing)
            if found[i] is None:
                return None
        return [found] * n_parts

    return read


def _times(parts: Sequence[str]) -> Read:
    def read(cells: Column, nan_is_missing: bool) -> Iterable[Any] | None:
        times = np.full(len(cells), np.datetime64("NaT", "us"), "datetime64[us]")
        for i, cell in enumerate(cells):
            if _is_missing(cell):
                continue
            if not isinstance(cell, date) or getattr(cell, "tzinfo", None) is not None:
                return None
            of_pandas = getattr(cell, "to_datetime64", None)  # of a Timestamp, which has nanoseconds
            times[i] = np.datetime64(cell, "us") if of_pandas is None else of_pandas()
        return of_values((), parts, Values("datetime", times, np.isnat(times)))

    return read


class Cells:
    """The columns of a model, for tables of few rows."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._names = frozenset(columns.names.tolist())
        self._reads: list[tuple[str, Read]] = []
        """Names of the columns with features, and what reads their cells."""
        self._is_known = True
        """Whether there is such a function for each of them."""
        self._is_numeric = True
        """Whether all features are numbers of a column."""
        parts, start = columns.parts.tolist(), columns.level_start.tolist()
        for j, name in enumerate(columns.names.tolist()):
            of_column = [
                part for part, source in zip(parts, columns.source.tolist(), strict=True) if source == j
            ]
            if not of_column:
                continue
            kind, levels = str(columns.kinds[j]), columns.levels[start[j] : start[j + 1]].tolist()
            self._is_numeric &= of_column == ["value"] and kind in ("number", "boolean")
            if of_column == ["value"] and kind in ("number", "boolean"):
                self._reads.append((name, _numbers))
            elif kind in LEVELS and all(level == level.strip() for level in levels):
                self._reads.append((name, _levels(levels, len(of_column))))
            elif kind in ("date", "datetime") and set(of_column) <= set(PARTS):
                self._reads.append((name, _times(of_column)))
            else:
                self._is_known = False

    def numbers(self, table: Any) -> FloatArray:
        """Returns what `columns.converted` returns."""
        numbers = self._of_matrix(table) if type(table) is np.ndarray else self._of_table(table)
        return converted("x", self._columns, table) if numbers is None else numbers

    def _of_matrix(self, x: np.ndarray) -> FloatArray | None:
        if not self._is_numeric or x.dtype.kind not in "biuf" or x.shape[1:] != (len(self._names),):
            return None
        numbers = x[:, self._columns.source].astype(np.float64)
        return None if np.isinf(numbers).any() else numbers

    def _of_table(self, table: Any) -> FloatArray | None:
        opened = _opened(table) if self._is_known else None
        if opened is None:
            return None
        columns, n_rows, nan_is_missing = opened
        if not self._names.issuperset(columns):
            return None
        features: list[Any] = []
        for name, read in self._reads:
            cells = columns.get(name)
            found = None if cells is None else read(cells, nan_is_missing)
            if found is None:
                return None
            features += found
        return np.ascontiguousarray(np.array(features, np.float64).reshape(len(features), n_rows).T)


def _opened(table: Any) -> tuple[dict[str, Column], int, bool] | None:
    """Returns the cells of each column, the number of rows, and the second argument of `Read`; or None."""
    kind = type(table)
    if kind is dict:
        return _of_mapping(table)
    library = kind.__module__.partition(".")[0]
    if kind.__name__ != "DataFrame" or library not in ("pandas", "polars") or len(table) > FEW:
        return None
    names = table.columns if library == "polars" else table.columns.tolist()
    if not all(type(name) is str for name in names) or len(set(names)) < len(names):
        return None
    try:
        columns = _of_pandas(table) if library == "pandas" else _of_polars(table)
    except BaseException as error:  # each library raises its own
        if not is_failure(error):
            raise
        return None
    return (
        None if columns is None else (dict(zip(names, columns, strict=True)), len(table), library == "pandas")
    )


def _of_pandas(table: Any) -> list[Column] | None:
    n_rows, n_columns = table.shape
    if n_rows <= _BY_CELL:
        at = table.iat
        return [[at[i, k] for i in range(n_rows)] for k in range(n_columns)]
    columns: list[Column] = [()] * n_columns
    is_number = [isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in table.dtypes.tolist()]
    numbers, others = ([k for k in range(n_columns) if is_number[k] == which] for which in (True, False))
    if numbers:
        block = table.iloc[:, numbers].to_numpy(np.float64)
        if np.isinf(block).any():
            return None
        for k, column in zip(numbers, block.T, strict=True):
            columns[k] = column
    for k in others:
        columns[k] = table.iloc[:, k].tolist()
    return columns


@aside
def _of_polars(table: Any) -> list[Column]:
    polars("x")
    return [column.to_list() for column in table.get_columns()]


def _of_mapping(table: dict[Any, Any]) -> tuple[dict[str, Column], int, bool] | None:
    found: dict[str, Column] = {}
    n_rows = -1
    for name, cells in table.items():
        if type(cells) is np.ndarray and cells.ndim == 1 and cells.dtype.kind in "biufU":
            cells = cells[: FEW + 1].tolist()
        if type(name) is not str or type(cells) not in (list, tuple):
            return None
        n_rows = len(cells) if n_rows < 0 else n_rows
        if len(cells) != n_rows or n_rows > FEW:
            return None
        found[name] = cells
    return (found, n_rows, False) if n_rows >= 0 else None
