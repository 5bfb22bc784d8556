"""Marks cells of numbers in tables with the class "number", and wide tables with such cells with "wide".

site.css keeps numbers on one line, and gives wide tables a smaller font.
"""

import re

from docutils import nodes
from sphinx.application import Sphinx

MAX_CHARACTERS = 24
MAX_WIDTH, GAP = 70, 1.2
"""Characters of numbers and words, and of space per column, that fit the text on a screen of 1280 pixels."""
NUMBERS = re.compile(
    r"[-+−–±≈<>/×%.,:;()\d\s]*\d([-+−–±≈<>/×%.,:;()\d\s]|x|to|of|step|error|ms|s|us|µs|MB|GB)*"
)
"""Numbers with signs, units, and words between two numbers."""


def is_number(cell: nodes.entry) -> bool:
    """Returns whether a cell has only a few numbers."""
    text = cell.astext()
    return len(text) <= MAX_CHARACTERS and NUMBERS.fullmatch(text) is not None


def width(cell: nodes.entry) -> int:
    """Returns the minimum number of characters per line: all of a number, or the longest word."""
    text = cell.astext()
    return len(text) if is_number(cell) else max(map(len, text.split()), default=0)


def mark(app: Sphinx, doctree: nodes.document) -> None:
    """Adds the classes to the cells and tables of a page."""
    for table in doctree.findall(nodes.table):
        rows = [list(row.findall(nodes.entry)) for row in table.findall(nodes.row)]
        numbers = [cell for row in rows for cell in row if is_number(cell)]
        for cell in numbers:
            cell["classes"].append("number")
        columns = zip(*rows, strict=False)
        if numbers and sum(max(map(width, column)) + GAP for column in columns) > MAX_WIDTH:
            table["classes"].append("wide")


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the marks."""
    app.connect("doctree-read", mark)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
