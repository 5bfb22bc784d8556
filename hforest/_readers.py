"""Files with named columns: CSV by Python's own reader, Parquet by whichever library is installed.

What a CSV file holds follows from its text alone, and not from libraries: a column of which every value reads
as a number, a boolean or a date is one; all others are text.
"""

import csv
import gzip
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, time
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from .core.extras import missing
from .tabular.tables import ColumnError, missing_rows, of_array

GAPS = ("", "?", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None")
"""Texts of a CSV file that stand for a missing value, spaces around them left out."""
SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz", ".parquet", ".pq")
"""Ends of the names of files with named columns."""
_ROWS = 1 << 14
"""Rows of a CSV file that are read at a time."""
_SEPARATORS = ",;\t|"
_DATE = re.compile(
    r"\d{4}-\d\d-\d\d(?P<time>[ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(?P<zone> ?(Z|UTC|[+-]\d\d:?\d\d))?)?"
)
_TIME = re.compile(r"\d\d:\d\d(:\d\d(\.\d{1,6})?)?")
_BOOLEANS = {"true": True, "false": False}

Table = Any
"""A mapping from names to arrays, or a data frame of narwhals."""


def has_columns(path: str) -> bool:
    """Returns whether a file has named columns, by its name."""
    return path.lower().endswith(SUFFIXES)


def read(path: str, *, header: bool = True, text: Collection[str] = ()) -> Table:
    """Returns the columns of a file; those in `text` hold text, whatever it looks like."""
    if not Path(path).exists():
        raise FileNotFoundError(f"{path}: expected a table, got no such file; check the path")
    if path.lower().endswith((".parquet", ".pq")):
        return _parquet(path)
    return _csv(path, header, text)


# --------------------------------------------------------------------------------------------- CSV


@contextmanager
def _stream(path: str) -> Iterator[TextIO]:
    opened: Callable[..., Any] = gzip.open if path.lower().endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as stream:
            yield stream
    except (UnicodeDecodeError, csv.Error, EOFError, gzip.BadGzipFile) as error:
        error.__traceback__ = None  # see check.fields_of
        raise ValueError(
            f"{path}: expected a CSV file in UTF-8, got an unreadable file ({error}); save it as "
            "UTF-8, and give a compressed file the suffix .gz"
        ) from None


def _names(path: str, row: Sequence[str], header: bool) -> list[str]:
    names = [name.strip() for name in row] if header else [str(j) for j in range(len(row))]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"{path}: expected a first line of unique column names, got {twice[0]!r} twice; rename "
            "one, or pass --no-header if the first line is no header"
        )
    return names


def _csv(path: str, header: bool, text: Collection[str]) -> dict[str, np.ndarray]:
    with _stream(path) as stream:
        first = stream.readline()
        stream.seek(0)
        counts = {separator: first.count(separator) for separator in _SEPARATORS}
        rows = csv.reader(stream, delimiter=max(counts, key=lambda separator: counts[separator]))
        row = next((row for row in rows if row), None)
        if row is None:
            raise ValueError(f"{path}: expected a line of column names, got an empty file; check the file")
        names = _names(path, row, header)
        columns = [_Texts() for _ in names]
        part = [] if header else [row]
        while True:
            part += filter(None, islice(rows, _ROWS))
            if not part:
                break
            for line in (line for line in part if len(line) != len(names)):
                raise ValueError(
                    f"{path}: expected {len(names)} values in each line, as in the first, got {len(line)}: "
                    f"{', '.join(line)!r:.100}; put text that contains separators in quotes"
                )
            for column, values in zip(columns, zip(*part, strict=True), strict=True):
                column.add(values)
            part = []
    return {name: column.array(name in text) for name, column in zip(names, columns, strict=True)}


class _Texts:
    """A column as its distinct texts, and the place of each row's text among them."""

    def __init__(self) -> None:
        self._places: defaultdict[str, int] = defaultdict()
        self._places.default_factory = self._places.__len__
        self._codes: list[np.ndarray] = [np.zeros(0, np.int32)]

    def add(self, values: Sequence[str]) -> None:
        """Adds the values of some rows."""
        self._codes.append(np.fromiter(map(self._places.__getitem__, values), np.int32, len(values)))

    def array(self, as_text: bool) -> np.ndarray:
        """Returns the values of all rows, of the dtype that their texts say."""
        texts = [value.strip() for value in self._places]
        gap = np.array([value in GAPS for value in texts], bool)
        present = [value for value in texts if value not in GAPS]
        values = np.array([None] * len(present), object)
        values[:] = present
        typed = values if as_text or not present else typed_texts(present)
        fill = {"f": np.nan, "M": np.datetime64("NaT", "us")}.get(typed.dtype.kind)
        if typed.dtype.kind == "b" and gap.any():
            typed = typed.astype(object)
        of_texts = np.full(len(texts), fill, typed.dtype) if gap.any() else np.empty(len(texts), typed.dtype)
        of_texts[~gap] = typed
        return of_texts[np.concatenate(self._codes)]


def typed_texts(texts: list[str]) -> np.ndarray:
    """Returns texts as numbers, booleans, dates or times if all of them are such, else as objects."""
    if not any("_" in text for text in texts):
        try:
            return np.array(texts).astype(np.float64)
        except ValueError:
            pass
    if all(text.lower() in _BOOLEANS for text in texts):
        return np.array([_BOOLEANS[text.lower()] for text in texts])
    values = np.empty(len(texts), object)
    values[:] = texts
    try:
        return _dates(texts, values)
    except ValueError:  # the 30th of February
        return values


def _dates(texts: list[str], values: np.ndarray) -> np.ndarray:
    matches = []
    for text in texts:
        match = _DATE.fullmatch(text)
        if match is None:
            break
        matches.append(match)
    if len(matches) == len(texts):
        if any(match["zone"] for match in matches):
            values[:] = [datetime.fromisoformat(text.replace(" UTC", "Z")) for text in texts]
            return values
        return np.array(
            texts, "datetime64[us]" if any(match["time"] for match in matches) else "datetime64[D]"
        )
    if all(map(_TIME.fullmatch, texts)):
        values[:] = [time.fromisoformat(text) for text in texts]
    return values


# ----------------------------------------------------------------------------------------- Parquet


def _parquet(path: str) -> Table:
    libraries = [name for name in ("polars", "pyarrow", "pandas") if find_spec(name) is not None]
    if not libraries:
        raise ImportError(
            f"{path}: expected polars, pyarrow or pandas to read a Parquet file, got none; install one, or "
            "save the table as CSV"
        )
    try:
        import narwhals.stable.v2 as nw
    except ImportError:
        raise missing(path, "narwhals 2.0 or newer to read a Parquet file", "tables") from None
    read_parquet: Any = nw.read_parquet
    try:
        return read_parquet(path, backend=libraries[0])
    except Exception as error:  # each library raises its own
        raise ValueError(
            f"{path}: expected a Parquet file, got an error of {libraries[0]} ({error!s:.200}); restore it"
        ) from None


# ------------------------------------------------------------------------------------------ tables


def names_of(table: Table) -> list[str]:
    """Returns the names of the columns."""
    return list(table) if isinstance(table, dict) else list(table.columns)


def rows_of(table: Table, rows: np.ndarray) -> Table:
    """Returns some of the rows."""
    return {name: a[rows] for name, a in table.items()} if isinstance(table, dict) else table[rows.tolist()]


def without(table: Table, names: Collection[str]) -> Table:
    """Returns the columns of other names."""
    if isinstance(table, dict):
        return {name: a for name, a in table.items() if name not in names}
    return table.select([name for name in table.columns if name not in names])


def column_of(table: Table, name: str) -> np.ndarray:
    """Returns the values of a column."""
    return table[name] if isinstance(table, dict) else np.asarray(table[name].to_numpy())


def present(name: str, a: np.ndarray) -> np.ndarray:
    """Returns (n_rows,) bool: where a column has a value."""
    try:
        return np.asarray(~missing_rows(of_array(a), len(a)))
    except ColumnError as fault:
        raise fault.error(f"{name}: {fault}") from None
