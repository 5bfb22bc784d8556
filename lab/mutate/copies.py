"""Copies of the checkout, in which mutants are built and run."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple, TypeVar

IGNORED = (
    ".git",
    ".hypothesis",
    ".pytest_cache",
    "*.egg-info",
    "_build",
    ".venv*",
    ".mypy_cache",
    ".ruff_cache",
)
T, R = TypeVar("T"), TypeVar("R")
MARK = "not slow"
stop = threading.Event()
"""Set by Ctrl-C: programs that run are killed, and no other begins."""


class Done(NamedTuple):
    """A program that ended: its status, None where the time limit ended it, and its output."""

    status: int | None
    output: str


class Copy:
    """A copy of a checkout; `built` is another one, whose compiled files are those of the unchanged sources."""

    def __init__(self, root: Path, folder: Path, scratch: Path) -> None:
        self.folder, self.scratch = folder, scratch
        shutil.copytree(root, folder, ignore=shutil.ignore_patterns(*IGNORED), symlinks=True)

    def run(self, *arguments: str, limit: float = 3600, **environment: str) -> Done:
        """Runs Python in the copy, and kills it and its children at the time limit."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        settings = {
            "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(self.scratch),
            "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive",
        }  # fmt: skip
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.folder,
                env=os.environ | settings | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            status = None
            try:
                for _ in range(max(1, round(limit / 0.2))):
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        status = process.wait(0.2)
                        break
                    if stop.is_set():
                        raise KeyboardInterrupt
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # and what it started
                process.wait()
            output.seek(0)
            return Done(status, output.read())

    def build(self) -> Done:
        """Builds the modules whose files changed."""
        return self.run("setup.py", "-q", "build_ext", "--inplace", limit=1800)

    def tests(self, arguments: Sequence[str], limit: float = 3600, **environment: str) -> Done:
        """Runs tests, until one fails unless the lines of each are recorded."""
        options = ["-q", "-p", "no:cacheprovider", "-m", MARK, *["-x"][: "HFOREST_LINES" not in environment]]
        if "HFOREST_LINES" in environment:
            options += ["-p", "lab.mutate.lines"]
        names = self.folder / "names"
        names.write_text("\n".join(arguments), encoding="utf-8")
        return self.run("-m", "pytest", *options, f"@{names}", limit=limit, **environment)

    @contextlib.contextmanager
    def changed(self, file: str, text: bytes) -> Iterator[None]:
        """The copy with another text of a file, which it loses afterwards."""
        path = self.folder / file
        before, status = path.read_bytes(), path.stat()
        path.write_bytes(text)
        try:
            yield
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def differing(self, built: "Copy") -> list[str]:
        """Returns the compiled files that are not those of another copy."""
        files = []
        for pattern in ("build/**/*", "hforest/**/*.so"):
            for path in filter(Path.is_file, built.folder.glob(pattern)):
                name = path.relative_to(built.folder)
                mine = self.folder / name
                if not mine.exists() or mine.stat().st_mtime_ns != path.stat().st_mtime_ns:
                    files.append(name.as_posix())
        return files

    def restore(self, built: "Copy") -> None:
        """Takes the compiled files of another copy where they are not the same."""
        for name in self.differing(built):
            shutil.copy2(built.folder / name, self.folder / name)


def each(copies: Sequence[Copy], function: Callable[[Copy, T], R], items: Iterable[T]) -> Iterator[R]:
    """Yields function(copy, item) of each item in turn, on a thread for each copy."""
    free = list(copies)

    def one(item: T) -> R:
        copy = free.pop()
        try:
            return function(copy, item)
        finally:
            free.append(copy)

    pool = ThreadPoolExecutor(len(free))
    try:
        for future in [pool.submit(one, item) for item in items]:
            # A signal that came right before the main thread waits does not wake it.
            while not wait([future], 0.2).done:
                pass
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)
