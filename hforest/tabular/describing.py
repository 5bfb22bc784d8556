"""`describe`: what was read from a table."""

from html import escape

import numpy as np

from ..core.notebooks import printable, shortened, table
from .kinds import Columns, check_columns
from .tables import MISSING, TIMES, WORDS


class Description(str):
    """A text about the columns of a table, which notebooks show as a table of HTML."""

    rows: list[tuple[str, ...]]
    notes: list[str]

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return table(self.rows[0], self.rows[1:]) + (f"<ul>{notes}</ul>" if notes else "")


def describe(columns: Columns) -> str:
    """Returns a text with one line per column of a table: its content and its features; then notes.

    Parameters
    ----------
    columns : Columns
        Result of `columns`.

    Returns
    -------
    str
        Name, kind, range or categories, share of missing values, and features. A line for each column with
        unreadable cells, of which some are shown, or with other warnings. Notebooks show it as HTML.
    """
    check_columns("columns", columns)
    rows: list[tuple[str, ...]] = [("column", "kind", "values", "missing", "features")]
    kinds, shares = columns.kinds.tolist(), columns.missing.tolist()
    for j, name in enumerate(columns.names.tolist()):
        kind, missing = kinds[j], f"{100 * shares[j]:.3g} %"
        parts = columns.parts[columns.source == j].tolist()
        constant = columns.low[j] == columns.high[j] or columns.level_start[j] < columns.level_start[j + 1]
        none = "none (no value)" if kind == MISSING else "none (one value)" if constant else "none (left out)"
        rows.append(
            (shortened(name, 30), _KIND[kind], _values(columns, kind, j), missing, ", ".join(parts) or none)
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        cells[3] = row[3].rjust(widths[3])
        lines.append("  ".join(cells).rstrip())
    pairs = zip(columns.names.tolist(), columns.notes.tolist(), strict=True)
    notes = [f"{shortened(name, 30)}: {printable(note)}" for name, note in pairs if note]
    text = Description("\n".join([*lines, *([""] if notes else []), *notes]))
    text.rows, text.notes = rows, notes
    return text


_KIND = {
    **WORDS, "time": "times", "datetime": "dates, times", "instant": "dates, times UTC", "missing": "nothing",
}  # fmt: skip
_WIDTH = 44
"""Maximum number of characters for the values of a column."""


def _values(columns: Columns, kind: str, j: int) -> str:
    """Returns the range of a column, or its categories."""
    first, last = columns.level_start[j : j + 2].tolist()
    if first < last:
        some = ", ".join(repr(level) for level in columns.levels[first : min(last, first + 5)].tolist())
        return shortened(f"{last - first}: {some}" + ", ..." * (last - first > 5), _WIDTH)
    low, high = float(columns.low[j]), float(columns.high[j])
    if np.isnan(low):
        return ""
    if kind in TIMES:
        seconds = np.round(86400 * np.array([low, high])).astype("datetime64[s]")
        ends = [time[:16].replace("T", " ") for time in np.datetime_as_string(seconds).tolist()]
        if kind == "date":
            ends = [end[:10] for end in ends]
    else:
        unit = " days" if kind in ("time", "duration") else ""
        ends = [f"{low:.6g}", f"{high:.6g}{unit}"]
    return ends[0] if low == high else " to ".join(ends)
