"""Strength of the tests: `python -m lab.mutate --count 40 [--seed 1] [--only "hforest/split/*"] [--kinds python]`.

Changes the sources at lines chosen by the seed, one change a run, and runs the tests that cover the line. A mutant that
no test sees is a survivor: a test is missing, or the change makes no difference and mutants.toml says why. Exit status 1:
fewer mutants were killed than --at-least says, or a reason has no mutant any more.
"""

import argparse
import fnmatch
import hashlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from . import copies
from .copies import Copy
from .covered import Covered, subject
from .mutants import KINDS, Mutant, mutants, valid

ROOT = Path(__file__).resolve().parents[2]
REASONS = Path(__file__).with_name("mutants.toml")
BUILT = (".pyx", ".pxd", ".h")


def _options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.mutate", description=__doc__)
    parser.add_argument("--count", type=int, default=40, help="number of mutants")
    parser.add_argument("--seed", default="0", help="chooses the mutants; any text, as a commit's hash")
    parser.add_argument("--kinds", default="python,cython,c", help="kinds of files")
    parser.add_argument("--only", default="*", help="files, as a pattern: 'hforest/hinge/*'")
    parser.add_argument("--diff", metavar="COMMIT", help="only lines changed since a commit")
    parser.add_argument("--jobs", type=int, default=1, help="mutants that run side by side, each in a copy")
    parser.add_argument("--at-least", type=float, default=1.0, help="share of mutants to be killed")
    parser.add_argument(
        "--limit",
        type=float,
        default=60,
        help="seconds that a mutant may take beside 3 times those of its tests",
    )
    parser.add_argument(
        "--cache", type=Path, help="folder that keeps which test runs which line for the next run"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.kinds.split(",")) - set(KINDS.values()):
        parser.error(f"--kinds: expected some of python,cython,c, got {','.join(sorted(unknown))}")
    return options


class Outcome(NamedTuple):
    """What became of a mutant: killed, hang (which counts as killed), survived, or does not compile.

    `tests` are those that cover it, `by` is the one that failed.
    """

    verdict: str
    tests: list[str]
    seconds: float
    by: str = ""


def sources(root: Path, only: str = "*", kinds: str = "python,cython,c") -> dict[str, bytes]:
    """Returns the files that may change, by name."""
    paths = (
        path for path in sorted((root / "hforest").rglob("*")) if KINDS.get(path.suffix) in kinds.split(",")
    )
    names = {path.relative_to(root).as_posix(): path for path in paths}
    return {name: path.read_bytes() for name, path in names.items() if fnmatch.fnmatchcase(name, only)}


def changed_lines(root: Path, commit: str) -> set[tuple[str, int]]:
    """Returns the lines of files that are not those of a commit."""
    command = ["git", "diff", "-U0", "--no-ext-diff", commit, "--", "hforest"]
    text = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    lines, file = set(), ""
    for line in text.splitlines():
        if line.startswith("+++ "):
            file = line[6:]
        elif found := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line):
            first = int(found[1])
            lines.update((file, i) for i in range(first, first + int(found[2] or 1)))
    return lines


def draw(
    texts: dict[str, bytes], seed: str, count: int, lines: set[tuple[str, int]] | None = None
) -> list[Mutant]:
    """Returns one mutant for each of `count` lines; a line's lot changes with its text alone."""

    def lot(*words: str) -> bytes:
        return hashlib.sha256("\0".join((seed, *words)).encode()).digest()

    drawn: dict[tuple[str, int], tuple[bytes, Mutant]] = {}
    for file, text in texts.items():
        for mutant in mutants(file, text):
            place = file, mutant.line(text)
            if lines is None or place in lines:
                mine = lot(file, *mutant.change(text)), mutant
                drawn[place] = min(drawn.get(place, mine), mine)
    seen: Counter[tuple[str, str]] = Counter()  # lines of one text have lots of their own
    lots = []
    for (file, _), (_, mutant) in sorted(drawn.items(), key=lambda item: item[0]):
        line = mutant.change(texts[file])[0]
        lots.append((lot(file, line, str(seen[file, line])), mutant))
        seen[file, line] += 1
    chosen: list[Mutant] = []
    for _, mutant in sorted(lots):
        if len(chosen) < count and valid(mutant, texts[mutant.file]):
            chosen.append(mutant)
    return chosen


class Reasons:
    """Reasons of mutants that change no behaviour, by file, text of the lines, and what they become."""

    def __init__(self, path: Path) -> None:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", []) if path.exists() else []
        self.table = {(row["file"], row["line"], row["becomes"]): row["reason"] for row in table}

    def of(self, mutant: Mutant, text: bytes) -> str | None:
        return self.table.get((mutant.file, *mutant.change(text)))

    def stale(self, root: Path) -> list[tuple[str, str, str]]:
        """Returns the reasons whose mutant does not exist."""
        exist = set()
        for file in {file for file, *_ in self.table if (root / file).exists()}:
            text = (root / file).read_bytes()
            exist.update((file, *mutant.change(text)) for mutant in mutants(file, text))
        return sorted(set(self.table) - exist)


def run(
    mutant: Mutant, text: bytes, copy: Copy, built: Copy | None, covered: Covered, limit: float
) -> Outcome:
    """Runs the tests that cover a mutant, in a copy; `built` is another one, with the modules of the sources."""
    begin = time.monotonic()
    kind = Path(mutant.file).suffix
    with copy.changed(mutant.file, mutant.apply(text)):
        if kind == ".py":
            tests = covered.of_line(mutant)
        else:
            names = {subject(mutant.file)}
            if kind in BUILT:
                done = copy.build()
                if done.status != 0:
                    copy.restore(built)
                    return Outcome("does not compile", [], time.monotonic() - begin)
                names |= {subject(file) for file in copy.differing(built) if file.startswith("hforest/")}
            tests = covered.of_subpackages(names, subject(mutant.file))
        done, by = copies.Done(0, ""), ""
        for part in covered.parts(tests):
            done = copy.tests(part, limit + 3 * sum(covered.seconds[test] for test in part))
            if done.status != 0:
                by = failing(part, done.output)
                break
    if built:
        copy.restore(built)
    verdict = "hang" if done.status is None else "killed" if done.status else "survived"
    if verdict == "killed" and re.search(r"kernels\.cpp\S*: error: ", done.output):
        verdict = "does not compile"
    return Outcome(verdict, tests, time.monotonic() - begin, by)


def failing(tests: list[str], output: str) -> str:
    """Returns the test that an output of pytest says failed, or the first where it names none."""
    lines = re.findall(r"^(?:FAILED |ERROR).*", output, re.MULTILINE)
    return max((test for test in tests if any(test in line for line in lines)), key=len, default=tests[0])


def measure(options: argparse.Namespace, root: Path, reasons: Reasons, folder: Path) -> int:
    """Draws mutants, runs them and prints what became of each; returns the exit status."""
    cache = (options.cache or folder / "cache").resolve()
    scratch = cache / "tmp"  # has kernels of the CUDA backend, which are named by their text
    built = None
    if options.kinds != "python":
        built = Copy(root, folder / "built", scratch)
        if (done := built.build()).status != 0:
            raise SystemExit(done.output)
    base = built.folder if built else root
    several = [Copy(base, folder / f"copy{i}", scratch) for i in range(options.jobs)]
    covered = Covered(several, cache)
    for test in covered.failed:
        print(f"fails without a mutant, and is not run: {test}")
    texts = sources(root, options.only, options.kinds)
    without = [file for file in texts if not covered.knows(file)]
    if without:
        print("no test of these runs here: " + ", ".join(without))
    texts = {file: text for file, text in texts.items() if file not in without}
    lines = changed_lines(root, options.diff) if options.diff else None
    chosen = draw(texts, options.seed, options.count, lines)
    todo = [mutant for mutant in chosen if not reasons.of(mutant, texts[mutant.file])]
    done_so_far = []

    def one(copy: Copy, mutant: Mutant) -> Outcome:
        text = texts[mutant.file]
        outcome = run(mutant, text, copy, built, covered, options.limit)
        done_so_far.append(mutant)
        print(
            f"{len(done_so_far):4}/{len(todo)} {outcome.verdict:9} {outcome.seconds:6.1f} s {len(outcome.tests):5} "
            f"tests  {mutant.file}:{mutant.line(text)} {mutant.operator}  {outcome.by}",
            flush=True,
        )
        if outcome.verdict == "survived":
            print(_survivor(mutant, text, outcome.tests), flush=True)
        return outcome

    outcomes = list(copies.each(several, one, todo))
    # A test that fails without a mutant, alone or after those before it, kills nothing.
    by = sorted({outcome.by for outcome in outcomes if outcome.verdict == "killed"})
    while by and (done := several[0].tests(by)).status != 0:
        test = failing(by, done.output)
        print(f"fails without a mutant, too, and kills nothing: {test}\n{done.output[-2000:]}")
        by.remove(test)
    outcomes = [o for o in outcomes if o.verdict != "killed" or o.by in by]
    stale = reasons.stale(root)
    for file, line, becomes in stale:
        print(
            f"\nSTALE REASON: {file}: no mutant changes {line!r} to {becomes!r}: take it out of mutants.toml"
        )
    counts = Counter(outcome.verdict for outcome in outcomes)
    killed = counts["killed"] + counts["hang"]
    n = killed + counts["survived"]
    print(
        f"\nseed {options.seed}: {len(chosen)} mutants, {len(chosen) - len(todo)} with a reason, "
        f"{counts['does not compile']} that do not compile; of {n} others {killed} killed "
        f"({100 * killed / max(1, n):.0f} %), {counts['hang']} of them by the time limit; "
        f"{counts['survived']} survivors, {len(stale)} stale reasons"
    )
    return int(bool(stale) or killed < options.at_least * n)


def _survivor(mutant: Mutant, text: bytes, tests: list[str]) -> str:
    files = Counter(test.partition("::")[0] for test in tests)
    ran = "\n".join([f"{len(tests)} tests ran:", *(f"{n:7} of {file}" for file, n in files.items())])
    return f"\nSURVIVOR: {mutant.file}:{mutant.line(text)}, {mutant.operator}\n{mutant.diff(text)}\n{ran}\n"


def _stop(number: int, frame: object) -> None:
    copies.stop.set()
    raise KeyboardInterrupt


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        with tempfile.TemporaryDirectory(prefix="hforest-mutate-") as name:
            sys.exit(measure(_options(), ROOT, Reasons(REASONS), Path(name)))
    except KeyboardInterrupt:
        sys.exit("stopped")
