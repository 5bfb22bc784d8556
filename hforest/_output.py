"""Output of the commands: text for terminals, a bar, files that replace only their older versions."""

import os
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from .core import files

PICTURE_SUFFIXES = (".png", ".pdf", ".svg", ".ps", ".eps", ".jpg", ".jpeg", ".webp", ".tif", ".tiff")


def echo(text: str, *, error: bool = False) -> None:
    """Prints text, in which control characters other than line ends and tabs are shown as escapes."""
    shown = "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)
    print(shown, file=sys.stderr if error else sys.stdout, flush=True)


class Bar:
    """On a terminal a line that is rewritten; elsewhere a line for each new text, and one at the end."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total, self._done, self._text, self._shown = name, total, 0, "", 0.0

    def __call__(self, done: int, text: str = "") -> None:
        """Shows that `done` steps are finished."""
        new, self._done, self._text = text != self._text, done, text
        if not sys.stderr.isatty():
            if new:
                self._line(sys.stdout, "\n")
        elif done == self._total or time.perf_counter() - self._shown > 0.1:
            self._shown = time.perf_counter()
            self._line(sys.stderr, "\r")

    def _line(self, stream: Any, end: str) -> None:
        text = f", {self._text}" if self._text else ""
        print(f"{self._name}: step {self._done} of {self._total}{text}", end=end, file=stream, flush=True)

    def close(self) -> None:
        """Ends the line."""
        if sys.stderr.isatty():
            print(file=sys.stderr)
        elif not self._text:
            self._line(sys.stdout, "\n")


# -------------------------------------------------------------------------------------------- files


def model_path(save: str, kind: str = "") -> Path:
    """Returns the model file of --save; with a kind, that of model.npz is model.kind.npz."""
    path = Path(save)
    if not path.name or save.endswith(os.sep) or path.is_dir():
        raise IsADirectoryError(
            f"--save: expected the path of a file, got the folder {save!r}; add a file name"
        )
    return path.with_name(f"{path.stem}.{kind}{path.suffix or '.npz'}") if kind else path


def check_archive(path: str) -> None:
    """Says of a file of another kind what the command reads."""
    if os.path.isfile(path) and not path.endswith(".npz") and not zipfile.is_zipfile(path):
        raise ValueError(
            f"{path}: expected an .npz archive with arrays x and y, or a table whose name ends in .csv or "
            ".parquet, got another file; rename it, or store arrays by numpy.savez"
        )


def has(path: str | Path, name: str) -> bool:
    """Returns whether a file is an archive with an array of this name."""
    with suppress(ValueError), files.opened(path, "an .npz archive") as arrays:
        return name in arrays
    return False
