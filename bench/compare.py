"""Runs the benches of two checkouts of hforest alternately and prints ratios of their times, new to old.

    python bench/compare.py OLD [--benches grow predict hinge co2 neural] [--rounds 3] [--data DIR]
        [--simd avx512] [--json FILE]

OLD is a checkout of another commit, built in place (default: that of this script, to see the noise); the
new one is that of this script. A round runs each
bench of both checkouts, each in its own process on one thread. The order alternates between rounds. Each
checkout runs its own script, which checks results before it takes times; rows that both have are compared, by
the least time of all rounds. Rows of other libraries and of the reference are left out. Run it in an
environment without peers, since their times are not used.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import QUICK, Bar, machine_text, options_of, record

ROOT = Path(__file__).resolve().parents[1]
BENCHES = {
    "grow": "--threads 1 --repeats 1",
    "predict": "--threads 1 --repeats 3",
    "hinge": "--threads 1 --repeats 3",
    "co2": "--repeats 3",
    "neural": "--threads 1 --repeats 3",
}
WITH_DATA = ("grow", "co2")
TIMES = ("seconds", "seconds_per_row", "ns_per_pair", "us", "least_ms", "ms", "microseconds")
NAMES = ("set", "job", "kind", "rung", "dtype", "shape", "features", "q")
OTHERS = ("reference", "numpy", "torch", "scikit", "treeple", "ydf", "xgboost", "lightgbm", "onnx", "jax")


def times(path: Path) -> dict[str, float]:
    """Returns a bench's record as `{name of a row: time}`, only rows of hforest."""
    found = {}
    for row in json.loads(path.read_text())["rows"]:
        field = next((f for f in TIMES if f in row), None)
        if field is None or str(row.get("rung", "")).lower().startswith(OTHERS):
            continue
        name = ", ".join(
            ",".join(map(str, row[n])) if isinstance(row[n], list) else str(row[n]) for n in NAMES if n in row
        )
        found[name] = row[field]
    return found


def run(checkout: Path, bench: str, options: argparse.Namespace, directory: str) -> dict[str, float]:
    """Returns the times of one run of a checkout's bench."""
    out = Path(directory) / "record.json"
    out.unlink(missing_ok=True)
    words = QUICK if options.quick else BENCHES[bench]
    command = [sys.executable, f"bench/{bench}.py", "--json", str(out), *words.split()]
    if options.data is not None and bench in WITH_DATA:
        command += ["--data", str(options.data.resolve())]
    environment = {**os.environ, "PYTHONPATH": "."}
    if options.simd is not None:
        environment["HFOREST_SIMD"] = options.simd
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{checkout}: {' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return times(out)


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns one row for each row that the benches of both checkouts have."""
    least: dict[tuple[str, str], dict[str, float]] = {}
    checkouts = {"old": options.old.resolve(), "new": ROOT}
    total = options.rounds * len(options.benches) * 2
    with tempfile.TemporaryDirectory() as directory, Bar("compare") as bar:
        done = 0
        for r in range(options.rounds):
            for bench in options.benches:
                for which in ("old", "new") if r % 2 == 0 else ("new", "old"):
                    for name, t in run(checkouts[which], bench, options, directory).items():
                        taken = least.setdefault((bench, name), {})
                        taken[which] = min(t, taken.get(which, math.inf))
                    done += 1
                    bar(done, total)
    return [
        {"bench": bench, "row": name, **taken, "ratio": taken["new"] / taken["old"]}
        for (bench, name), taken in least.items()
        if len(taken) == 2
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--benches", nargs="+", choices=tuple(BENCHES), default=list(BENCHES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--simd", choices=("plain", "vector", "avx2", "avx512"))
    parser.add_argument("--json", type=Path)
    options = options_of(parser, "--benches hinge --rounds 1")
    if not (options.old / "hforest").is_dir():
        parser.error(f"OLD: expected a checkout built in place, got {options.old}")
    print(machine_text())
    rows = measure(options)
    for row in sorted(rows, key=lambda row: (row["bench"], -row["ratio"])):
        print(f"{row['bench']:8} {row['ratio']:6.2f}  {row['row']}")
    if options.json is not None:
        record(options.json, rows, old=str(options.old.name), simd=options.simd, rounds=options.rounds)


if __name__ == "__main__":
    main()
