"""Files of predictions: CSV, Parquet or .npz, which are recognised by their content."""

import csv
import io
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core import check, files
from ..core.notebooks import printable
from .library import aside, polars
from .reading import read

SUFFIXES = (".csv", ".parquet", ".npz")
_MARK = "predictions_format"
"""Array that marks an archive of predictions."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of text that a spreadsheet executes."""
_LONGEST = 2**26
"""Maximum number of characters of the labels of an archive, which are of fixed width."""


def check_suffix(name: str, path: str | os.PathLike[str]) -> None:
    """Checks that the name of a file ends in one of SUFFIXES."""
    suffix = Path(path).suffix.lower()
    known, remedy = f"a file that ends in {', '.join(SUFFIXES)}", "choose one of these suffixes"
    check.require(suffix in SUFFIXES, name, known, str(path), remedy)


class Predictions(NamedTuple):
    """Predictions of a model for the rows of a table."""

    p: np.ndarray
    """(n_rows, n_classes) probabilities, or (n_rows,) or (n_rows, n_outputs) targets."""
    classes: np.ndarray | None = None
    """(n_classes,) labels; None in a regression."""
    target: str | None = None
    """Name of the target."""

    def header(self) -> list[str]:
        """Returns the names of the columns."""
        name = self.target or ("target" if self.classes is None else "label")
        if self.classes is not None:
            return [f"predicted {name}", *(f"probability of {label}" for label in self.classes.tolist())]
        n = self.p.shape[1] if self.p.ndim > 1 else 0
        return [f"predicted {name} {k}" for k in range(n)] or [f"predicted {name}"]

    def rows(self, *, raw: bool = True) -> Iterator[list[str]]:
        """Yields the cells of each row: the label and the probabilities, or the targets."""
        if self.classes is None:
            yield from ([f"{value:.9g}" for value in row] for row in self.p.reshape(len(self.p), -1))
            return
        labels = [str(label) if raw else harmless(str(label)) for label in self.classes.tolist()]
        for row in self.p:
            yield [labels[row.argmax()], *(f"{value:.6f}" for value in row)]

    def write(self, path: str | os.PathLike[str], *, raw: bool = False) -> None:
        """Writes a file in the format of its suffix; `raw`: labels in CSV that begin as formulas do, too."""
        suffix = Path(path).suffix.lower()
        if suffix == ".npz":
            files.write_npz(path, self._arrays() | {_MARK: np.array(1)})
            return
        with files.replacing(path) as stream:
            stream.write(self._csv(raw) if suffix == ".csv" else self._parquet())

    def is_file(self, path: str | os.PathLike[str]) -> bool:
        """Returns whether a file has the columns of such predictions."""
        with suppress(ValueError):
            if Path(path).suffix.lower() == ".npz":
                with files.opened(path, "an .npz archive") as arrays:
                    return _MARK in arrays
            return read(path).columns == [printable(name) for name in self.header()]
        return False

    def _arrays(self) -> dict[str, np.ndarray]:
        if self.classes is None:
            return {"targets": self.p}
        labels = self.classes[self.p.argmax(axis=1)]
        if labels.dtype.kind == "T":
            longest = max(map(len, set(labels.tolist())), default=1)
            check.require(
                longest * len(labels) <= _LONGEST,
                "path",
                "labels of at most 2**26 characters for an archive",
                longest * len(labels), "write .csv or .parquet",
            )  # fmt: skip
            labels = np.array(labels.tolist(), f"U{max(longest, 1)}")
        return {"labels": labels, "probabilities": self.p}

    def _csv(self, raw: bool) -> bytes:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([printable(name) for name in self.header()])
        writer.writerows(self.rows(raw=raw))
        return text.getvalue().encode()

    @aside
    def _parquet(self) -> bytes:
        pl = polars("a Parquet file")
        columns: list[Any] = list(self.p.reshape(len(self.p), -1).T)
        if self.classes is not None:
            labels = self.classes.tolist()
            columns.insert(0, [labels[k] for k in self.p.argmax(axis=1)])
        stream = io.BytesIO()
        names: dict[str, Any] = dict(zip(map(printable, self.header()), columns, strict=True))
        pl.DataFrame(names).write_parquet(stream)
        return stream.getvalue()


def harmless(text: str) -> str:
    """Returns text that a spreadsheet does not execute: with an apostrophe before signs of formulas."""
    with suppress(ValueError):
        float(text)
        return text
    return f"'{text}" if text.startswith(_FORMULA) else text
