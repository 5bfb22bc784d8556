"""Long runs: `python -m lab.fuzz --minutes 30 [--seed 1] [--only "hinge.*"] [--kind bad]`.

The search runs in a child process, which is started again after a crash or a hang. Exit status 1: a finding.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[2] / "tests")
)  # as pytest: for host and test_torch_lives

from . import growing, search
from .cases import KINDS
from .oracle import Finding


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="*", help="functions, as a pattern: 'hinge.*'")
    parser.add_argument("--kind", default="*", help="kind of cases: good, layout, bad, overlap, ...")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--again", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args()


def _child(options: argparse.Namespace) -> None:
    folder: Path = options.child
    os.chdir(folder)  # files named by wrong arguments

    def report(finding: Finding) -> None:
        with open(folder / "findings", "a", encoding="utf-8") as stream:
            print(json.dumps([finding.key, str(finding)]), file=stream)

    def beat(counts: Counter[str]) -> None:
        (folder / "counts").write_text(json.dumps(counts))

    try:
        if options.again:
            name, kind, seed, n = options.again
            judge = search.isolated(kind, folder)
            finding = search.look(KINDS[kind].targets[name], kind, int(seed), int(n), Counter(), judge=judge)
            if finding:
                report(finding)
        else:
            search.rounds(options.seed, options.minutes, options.only, options.kind, folder, report, beat)
    finally:
        shutil.rmtree(growing.FOLDER, ignore_errors=True)


def _start(folder: Path, *more: str) -> int:
    with open(folder / "errors", "wb") as errors:
        command = [sys.executable, "-m", __spec__.parent, "--child", str(folder), *more]
        return subprocess.run(command, stderr=errors).returncode


def _crashed(folder: Path, status: int) -> str:
    """The finding of a process that ended before its time: shrunk if it ends again."""
    where, _, text = (folder / "call").read_text(encoding="utf-8").partition("\n")
    errors = (folder / "errors").read_text(errors="replace")[-3000:]
    before = _findings(folder)
    _start(folder, "--again", *where.split())
    new = _findings(folder)[len(before) :]
    shortest = new[-1][1] if new else f"(not found again by itself)\n  call: {text}"
    return f"the process ended with status {status}\n{errors}\n{shortest}"


def _findings(folder: Path) -> list[tuple[list[str], str]]:
    path = folder / "findings"
    return (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    )


def _parent(options: argparse.Namespace) -> int:
    end = time.monotonic() + 60 * options.minutes
    total: Counter[str] = Counter()
    crashes = []
    with tempfile.TemporaryDirectory(prefix="hforest-fuzz-") as name:
        folder = Path(name)
        seed = options.seed
        while (left := (end - time.monotonic()) / 60) > 0.01:
            arguments = [
                "--seed",
                str(seed),
                "--minutes",
                str(left),
                "--only",
                options.only,
                "--kind",
                options.kind,
            ]
            status = _start(folder, *arguments)
            counts = folder / "counts"
            total.update(json.loads(counts.read_text(encoding="utf-8")) if counts.exists() else {})
            counts.unlink(missing_ok=True)
            if not status:
                break
            if not (folder / "call").exists():
                print((folder / "errors").read_text(errors="replace"), file=sys.stderr)
                return 2
            crashes.append(_crashed(folder, status))
            print(crashes[-1], flush=True)
            seed += 1
        findings = {tuple(key): text for key, text in _findings(folder)}
    return _summary(total, [*findings.values(), *crashes], options)


def _summary(total: Counter[str], findings: list[str], options: argparse.Namespace) -> int:
    known = {name: n for name, n in total.items() if name.startswith("known: ")}
    counts = {
        name: n
        for name, n in total.items()
        if name not in known and name not in ("findings", "flaky", "calls")
    }
    for name, n in sorted(counts.items()):
        print(f"{n:8} {name}")
    for name, n in sorted(known.items()):
        print(f"{n:8} NOT YET MENDED, {name}")
    for text in findings:
        print(f"\nFINDING: {text}")
    functions = {name.split()[0] for name in counts}
    print(
        f"\n{sum(counts.values())} cases ({total['calls']} calls) of {len(functions)} functions in {options.minutes:g} "
        f"minutes, seed {options.seed}: {len(findings)} findings, {sum(known.values())} cases of known ones"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    options = _options()
    if options.child:
        _child(options)
    else:
        sys.exit(_parent(options))
