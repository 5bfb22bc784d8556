"""Tables of HTML that notebooks show for results. Text is escaped, and nothing in a table is executed."""

from collections.abc import Callable, Sequence
from html import escape
from typing import TypeVar

import numpy as np

from .aliases import Array, IntArray

Rows = Sequence[Sequence[object]]

MOST = 10
"""Maximum number of features of a table of importances."""
_FIRST = 5
"""Number of names and classes that a cell shows."""
_WIDTH = 120
"""Maximum number of characters of a cell of `shown_by`."""

_T = TypeVar("_T")


def printable(text: str) -> str:
    """Returns a text with spaces in place of characters that a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in text)


def shortened(text: str, most: int) -> str:
    """Returns at most so many characters of a text, as `printable`; "..." stands for the rest."""
    text = printable(text)
    return text if len(text) <= most else text[: most - 3] + "..."


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: int | None = None) -> str:
    """Returns a table of HTML; cells have the class n from column `numbers` on, and none by default."""

    def line(cells: Sequence[str], tag: str) -> str:
        least = len(cells) if numbers is None else numbers
        kinds = ['<{} class="n">' if j >= least else "<{}>" for j in range(len(cells))]
        pairs = zip(kinds, cells, strict=True)
        return f"<tr>{''.join(kind.format(tag) + escape(cell) + f'</{tag}>' for kind, cell in pairs)}</tr>"

    return f"<table>{line(head, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else shortened(str(value), _WIDTH)


def shown_by(rows_of: Callable[[_T], Rows]) -> Callable[[_T], str | None]:
    """Returns the method `_repr_html_` of a class from a function that returns rows of cells, the head first.

    Its result is a table, or None where the function raises an exception, such as for fields of wrong types:
    notebooks then show the text of `repr`.
    """

    def _repr_html_(self: _T) -> str | None:
        try:
            head, *rows = [[_text(cell) for cell in row] for row in rows_of(self)]
            return table(head, rows)
        except Exception:  # from fields that contradict each other or are not arrays
            return None

    return _repr_html_


def counted(values: Sequence[object] | Array) -> str:
    """Returns the number of values and the first of them as text; "..." stands for the others."""
    some = [shortened(str(value), 20) for value in values[:_FIRST]]
    return f"{len(values)}: {', '.join([*some, *(['...'] if len(values) > _FIRST else [])])}"


def span(a: Array) -> str:
    """Returns the least and the greatest number of an array as text, without NaN."""
    numbers = a[~np.isnan(a)]
    if not numbers.size:
        return "none"
    low, high = _text(numbers.min()), _text(numbers.max())
    return low if low == high else f"{low} to {high}"


def largest(values: Array) -> IntArray:
    """Returns the places of the largest numbers, at most `MOST`, in descending order; NaN is left out."""
    order = np.argsort(-values, kind="stable")
    return order[~np.isnan(values[order])][:MOST]
