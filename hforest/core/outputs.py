"""Output files of a command: each can be written, and replaces only its older versions."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from .files import check_writable


class Output(NamedTuple):
    """A file that an option names."""

    option: str
    path: str | Path
    what: str = ""
    is_older: Callable[[str | Path], bool] | None = None
    """Returns whether an existing file may be replaced; None: any may."""


def check_outputs(outputs: Iterable[Output], inputs: Mapping[str, str | None]) -> None:
    """Checks, before any work, that every output can be written and replaces only older output."""
    taken = [(name, path) for name, path in inputs.items() if path is not None]
    for option, path, what, is_older in outputs:
        for other, used in taken:
            if _same_file(path, used):
                raise ValueError(
                    f"{option}: expected a different file from {other}, got {path}; choose another path"
                )
        taken.append((option, str(path)))
        check_writable(path)
        if is_older is not None and os.path.exists(path) and not is_older(path):
            raise ValueError(
                f"{option}: expected a new file or {what} written by hforest, got {path}, which is a "
                "damaged file or of another kind; choose another path, or remove that file"
            )


def _same_file(a: str | Path, b: str | Path) -> bool:
    return os.path.realpath(a) == os.path.realpath(b) or (
        os.path.exists(a) and os.path.exists(b) and os.path.samefile(a, b)
    )
