"""`read`: the columns of a CSV or Parquet file, read by polars.

The cells of a CSV file are text; `columns` decides what they are. Only the first lines are looked at here,
for the separator, and the lines of a file that polars refuses, for a message that names the first bad one.
"""

import codecs
import csv
import gzip
import io
import os
import sys
import zlib
from collections import Counter
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from ..core import check
from .library import HEAD, aside, is_failure, is_repeated, polars
from .tables import File

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz", ".parquet", ".pq")
"""Ends of the names of files with named columns."""
SEPARATORS = ",;\t|"
BEGIN = 1 << 16
"""Number of characters in which the separator is looked for."""


def has_columns(path: str) -> bool:
    """Returns whether a file has named columns, by its name."""
    return path.lower().endswith(SUFFIXES)


@aside
def read(path: str | os.PathLike[str], *, header: bool = True) -> File:
    """Returns the columns of a CSV or Parquet file, for `columns` and `fit`.

    Parameters
    ----------
    path : str or path
        A file whose name ends in .csv, .tsv or .txt, also with .gz, or in .parquet or .pq. A CSV file is in
        UTF-8 or UTF-16; its separator is one of ``, ; |`` and tab.
    header : bool
        Whether the first line of a CSV file has names; else columns are called "0", "1", ...

    Returns
    -------
    table
        Has `columns` (the names), ``table[rows]``, ``table.without(names)``. Cells of a CSV file are text,
        which the function `columns` reads as numbers, dates and other kinds.

    Raises
    ------
    ValueError
        Not such a file; lines with different numbers of values; repeated names.
    ImportError
        polars is not installed.
    RuntimeError
        The process was forked while threads of polars ran.

    Notes
    -----
    A line ``sep=;``, blank lines, and a separator at the end of each line are no values. Cost: that of
    polars, and the bytes of the file in memory while it is read. A Parquet file is read by a process of its
    own, because polars ends its process on some damaged files; this takes about a third of a second more.
    """
    name = check.path("path", path)
    check.flag("header", header)
    pl = polars(name)
    if "\0" in name or not os.path.isfile(name):
        raise FileNotFoundError(f"{name}: expected a table, got no such file; check the path")
    if name.lower().endswith((".parquet", ".pq")):
        return File(_polars(name, "a Parquet file", lambda: pl.read_ipc(io.BytesIO(_converted(name)))))
    return _csv(name, header)


def _polars(path: str, what: str, function: Any) -> Any:
    """Returns the result of a function of polars; its errors become ValueError."""
    try:
        return function()
    except (MemoryError, ImportError):
        raise
    except BaseException as error:
        if not is_failure(error):
            raise
        text = " ".join(str(error).split())
        raise ValueError(
            f"{path}: expected {what}, got an error of polars ({text:.200}); restore it"
        ) from None


_CONVERT = """import sys
sys.path.insert(0, sys.argv[2])
import polars
polars.read_parquet(sys.argv[1]).write_ipc(sys.stdout.buffer)"""


def _converted(path: str) -> bytes:
    """Returns a Parquet file in Arrow's format. A process of its own reads it: on some damaged files polars
    aborts its process.
    """
    import subprocess  # which takes longer to import than hforest

    package = os.path.dirname(os.path.dirname(polars(path).__file__))
    # -P: no module of the working folder is imported.
    command = [sys.executable, "-P", "-c", _CONVERT, os.path.abspath(path), package]
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        text = lines[-1] if done.returncode > 0 and lines else "polars ended its process"
        raise ValueError(text.partition(": ")[2] or text)
    return done.stdout


# --------------------------------------------------------------------------------------------- CSV


class _Dialect(NamedTuple):
    separator: str
    skipped: int
    """Number of lines before the first one with values."""
    names: list[str]
    trailing: bool
    """Whether lines may end with a separator."""
    n_first: int
    """Number of values in the first line behind the names, which polars takes for that of all lines."""


def _bytes(path: str) -> bytes:
    """Returns the content of a file in UTF-8 without a byte order mark."""
    try:
        with open(path, "rb") as stream:
            data = stream.read()
        if path.lower().endswith(".gz"):
            data = gzip.decompress(data)
        if data[:3] == codecs.BOM_UTF8:
            data = data[3:]
        if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            data = data.decode("utf-16").encode()
        data[:BEGIN].decode(errors="strict" if len(data) <= BEGIN else "replace")
        return data
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: str, error: object) -> ValueError:
    return ValueError(
        f"{path}: expected a CSV file in UTF-8, got an unreadable file ({error!s:.200}); save it as "
        "UTF-8, and give a compressed file the suffix .gz"
    )


def _rows(text: str, separator: str) -> Any:
    return csv.reader(io.StringIO(text, newline=""), delimiter=separator)


def _dialect(path: str, text: str, header: bool) -> _Dialect:
    skipped, start, separator = 0, 0, ""
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        line = text[start:end].strip("\r\n")
        if line.lower().startswith("sep=") and len(line) == 5:
            separator = line[4]
        elif line.strip():
            break
        skipped, start = skipped + 1, end
    else:
        raise ValueError(f"{path}: expected a line of column names, got an empty file; check the file")
    head = text[start : start + BEGIN]
    if not separator:
        widths = {
            mark: [len(row) for row in islice(_rows(head, mark), 20) if row][:-1] or [1]
            for mark in SEPARATORS
        }
        first = {mark: len(next(_rows(head, mark))) for mark in SEPARATORS}
        even = {mark: Counter(widths[mark]).most_common(1)[0] for mark in SEPARATORS}
        separator = max(SEPARATORS, key=lambda mark: (first[mark] > 1 and even[mark][0] > 1, first[mark]))
    rows = [row for row in islice(_rows(head, separator), 20) if row]
    names, others = rows[0], rows[1:-1] or rows[1:]
    trailing = bool(others) and all(len(row) == len(names) + 1 and not row[-1].strip() for row in others)
    n_first = len(rows[1]) if trailing and header else len(names)
    names = [name.strip() for name in names] if header else [str(j) for j in range(len(names))]
    return _Dialect(separator, skipped, names, trailing, n_first)


def _csv(path: str, header: bool) -> File:
    pl = polars(path)
    data = _bytes(path)
    try:
        dialect = _dialect(path, data[: 2 * BEGIN].decode(errors="replace"), header)
    except csv.Error as error:
        raise _unreadable(path, error) from None
    names = dialect.names
    twice = [name for name, count in Counter(names).items() if count > 1 and name]
    if twice:
        raise ValueError(
            f"{path}: expected a first line of unique column names, got {twice[0]!r} twice; rename "
            "one, or pass --no-header if the first line is no header"
        )
    columns = [f"column_{j}" for j in range(dialect.n_first)]

    def parsed(types: Any, n_rows: int | None = None) -> Any:
        return pl.read_csv(
            data, separator=dialect.separator, has_header=False, infer_schema=False, n_rows=n_rows,
            skip_lines=dialect.skipped + header, schema=dict(zip(columns, types, strict=True)),
            raise_if_empty=False, truncate_ragged_lines=dialect.trailing,
        )  # fmt: skip

    def read_all() -> Any:
        # Cells of few different texts take 4 bytes each instead of 16.
        head = parsed([pl.String] * len(columns), HEAD)
        return parsed(
            [pl.Categorical if is_repeated(column) else pl.String for column in head.iter_columns()]
        )

    try:
        frame = _polars(path, "a CSV file", read_all)
    except ValueError as error:
        _check_lines(path, data, dialect)
        raise error from None
    frame = frame[:, : len(names)]
    last = frame.to_series(len(names) - 1)
    is_quoted, n_separators = b'"' in data, (len(frame) + header) * (len(names) - 1)
    # A missing value in the last column is perhaps that of a line that is too short.
    if dialect.trailing or (
        last.null_count() and (is_quoted or data.count(dialect.separator.encode()) < n_separators)
    ):
        _check_lines(path, data, dialect)
    first_line = dialect.skipped + header + 1
    lines: Any = np.arange(first_line, first_line + len(frame))
    blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
    if blank.any():
        frame, lines = frame.filter(~blank), lines[~blank.to_numpy()]
    if is_quoted and data.count(b"\n") > len(blank) + first_line - 1:
        lines = None  # values of several lines
    unnamed = [j for j, name in enumerate(names) if not name]
    for j in unnamed:
        if frame.to_series(j).null_count() < len(frame):
            raise ValueError(f"{path}: expected a name for each column, got none for column {j + 1}; name it")
    named = {columns[j]: name for j, name in enumerate(names) if j not in unnamed}
    frame = frame.select(list(named)).rename(named)
    return File(frame, lines, "," if dialect.separator == ";" else ".", True)


def _check_lines(path: str, data: bytes, dialect: _Dialect) -> None:
    """Raises ValueError at the first line with another number of values than the first one."""
    csv.field_size_limit(1 << 30)
    try:
        rows = _rows(data.decode(), dialect.separator)
        for row in rows:
            n = len(row) - (dialect.trailing and len(row) > len(dialect.names) and not row[-1].strip())
            if row and n != len(dialect.names) and rows.line_num > dialect.skipped:
                raise ValueError(
                    f"{path}: expected {len(dialect.names)} values in each line, as in the first, got "
                    f"{len(row)} in line {rows.line_num}: {', '.join(row)!r:.100}; put text that contains "
                    "separators in quotes, and remove lines that are no rows of the table"
                )
    except (csv.Error, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from None
