"""Which tests run a line.

Each test's lines of Python are recorded by lines.py, in one process for each file of tests, and kept in the cache.
"""

import hashlib
import json
import shutil
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from .copies import Copy, each
from .mutants import Mutant


def digest(paths: Iterable[Path]) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()[:16]


class Covered:
    """Tests by line; `seconds` has the time that each test took while its lines were recorded."""

    def __init__(self, copies: list[Copy], cache: Path) -> None:
        root = copies[0].folder
        files = sorted((root / "tests").rglob("test_*.py"))
        sources = sorted((root / "hforest").rglob("*.py"))
        sources += [*sorted((root / "tests").glob("[!t]*.py")), *root.glob("conftest.py")]
        folder = cache / digest(sources)
        folder.mkdir(parents=True, exist_ok=True)

        def record(copy: Copy, path: Path) -> Path:
            report = folder / f"{path.stem}-{digest([path])}.json"
            if not report.exists():
                part = copy.folder / report.name
                done = copy.tests([str(path.relative_to(root))], HFOREST_LINES=str(part))
                if not part.exists():
                    raise SystemExit(f"{path.name}: status {done.status}\n{done.output[-3000:]}")
                shutil.move(part, report)
            return report

        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        """Tests that fail without a mutant; they are not run."""
        self.lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for path, report in zip(files, each(copies, record, files), strict=True):
            self._add(json.loads(report.read_text(encoding="utf-8")))
            print(f"lines of {len(self.seconds)} tests, {path.name}", flush=True)

    def _add(self, report: dict) -> None:
        names = [name for name, _ in report["tests"]]
        self.seconds.update(report["tests"])
        self.failed += report["failed"]
        for file, lines in report["lines"].items():
            for line, numbers in lines.items():
                self.lines[file][int(line)].update(names[i] for i in numbers)

    def knows(self, file: str) -> bool:
        """Whether tests of a file run here; a library may be missing."""
        return bool(self.lines.get(file)) or bool(self.named([subject(file)]))

    def of_line(self, mutant: Mutant) -> list[str]:
        """Returns the tests that ran a line of a statement, or, outside of functions, a line of the file."""
        of_file = self.lines.get(mutant.file, {})
        lines = range(mutant.first, mutant.last + 1) if mutant.first else of_file
        found = set().union(*(of_file.get(line, ()) for line in lines))
        return self.ordered(found or self.named([subject(mutant.file)]), subject(mutant.file))

    def of_subpackages(self, names: Iterable[str], first: str) -> list[str]:
        """Returns the tests that ran a line of Python of subpackages, and all those of files with their names."""
        names = list(names)
        found = self.named(names)
        for file, lines in self.lines.items():
            if subject(file) in names:
                found.update(*lines.values())
        return self.ordered(found, first)

    def parts(self, tests: list[str]) -> list[list[str]]:
        """Returns the tests of the first file and those of the others: most mutants need no more than the first."""
        n = sum(test.partition("::")[0] == tests[0].partition("::")[0] for test in tests)
        return [part for part in (tests[:n], tests[n:]) if part]

    def named(self, names: Iterable[str]) -> set[str]:
        starts = tuple(f"test_{name}" for name in names)
        return {test for test in self.seconds if Path(test.partition("::")[0]).name.startswith(starts)}

    def ordered(self, tests: Iterable[str], first: str) -> list[str]:
        """Returns tests by file, those of files with a subpackage's name first, then by the time that files take."""
        files = defaultdict(list)
        for test in tests:
            files[test.partition("::")[0]].append(test)
        cost = {file: sum(self.seconds[test] for test in several) for file, several in files.items()}
        order = sorted(files, key=lambda file: (first not in Path(file).name, cost[file], file))
        return [test for file in order for test in sorted(files[file], key=lambda t: (self.seconds[t], t))]


def subject(file: str) -> str:
    """Returns the subpackage of a file, or of a file beside the subpackages its name."""
    parts = Path(file).with_suffix("").parts
    return parts[1].strip("_")
