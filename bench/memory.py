"""Peak memory of encoding and predicting samples that are mapped into memory from a file.

    python bench/memory.py                    # 2,000,000 rows of 50 numbers: 800 MB of float64
    python bench/memory.py --rows 200000      # a tenth of it
    python bench/memory.py --json memory.json
    python bench/memory.py --calls --json bench/results/memory.json
    python bench/memory.py --table bench/results/memory.json

Each call runs in a process of its own. "own" is the peak of allocated memory (RssAnon, sampled every two
milliseconds) above that before the call. It excludes pages of the file, which the system reclaims when memory
is short. "above" is the same without the result. "maxrss" is getrusage's peak of the whole process, with
pages of the file.

With --calls the bench measures each kind of call on float32 arrays in memory, of two shapes. "own" includes
the result, but not the array.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, options_of, record, sparse

import hforest
from hforest import cascade, co2, grow, hinge, neural, samples, stats, tabular, tree

CALLS = ("encode, 256 bins", "encode, exact", "predict", "apply")
DTYPES = ("uint16", "int64")
N_COLUMNS = 50


def _file(path: Path, n: int, dtype: np.dtype) -> None:
    a = np.memmap(path, dtype, "w+", shape=(n, N_COLUMNS))
    rng = np.random.default_rng(0)
    for first in range(0, n, 100_000):
        part = a[first : first + 100_000]
        part[:] = rng.integers(0, 1000, part.shape)
    a.flush()


def _own() -> int:
    """Returns the bytes of this process that are not pages of files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("no RssAnon in /proc/self/status: this bench runs on Linux")


class _Peak:
    """Samples `_own` in a thread inside a `with` block; `bytes` is the largest, above that at the start."""

    def __enter__(self) -> "_Peak":
        self._start, self.bytes, self._ended = _own(), 0, threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def _sample(self) -> None:
        while not self._ended.wait(0.002):
            self.bytes = max(self.bytes, _own() - self._start)

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


SHAPES = ((100_000, 40), (5_000, 800))


def _hinge(x: np.ndarray, y: np.ndarray) -> Any:
    thresholds, features, weights = hinge.init(50, 6, x.shape[1], outputs=10, rng=0)
    out, route = hinge.forward_with_route(x, thresholds, features, weights, aggregate="sum")
    return hinge.backward(np.ones_like(out), route, x, thresholds, features, weights, aggregate="sum")


def _neural(x: np.ndarray, y: np.ndarray) -> Any:
    model = neural.linear_init(10, 6, x.shape[1], 2, rng=0)
    return neural.fit(model, x, y, epochs=1, rng=0)


def _honest(x: np.ndarray, y: np.ndarray) -> Any:
    counts = stats.honest_counts(y, 10, rng=0)
    return grow(x, y, 10, bootstrap=counts.structure, rng=0), counts


CASES: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "grow, 10 trees": lambda x, y: grow(x, y, 10, rng=0),
    "grow, 10 trees, max_bins=256": lambda x, y: grow(samples(x, max_bins=256), y, 10, rng=0),
    "grow, 10 trees, sparse projections": lambda x, y: sparse(x, y, 10, rng=0),
    "co2.grow, 1 tree of depth 4": lambda x, y: co2.grow(x, y, 1, max_depth=4, rng=0),
    "honest forest, 10 trees": _honest,
    "cascade.grow, 10 trees, 1 level": lambda x, y: cascade.grow(
        x, y, [partial(grow, n_trees=10)], max_levels=1, rng=0
    ),
    "tabular.fit": lambda x, y: tabular.fit(x, y, rng=0),
    "hinge, forward and backward, 50 trees of depth 6": _hinge,
    "neural.fit, 10 trees of depth 6": _neural,
}


def measure_case(name: str, n: int, p: int) -> dict[str, float]:
    """Runs a call of CASES in this process; returns megabytes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, p)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] + rng.normal(size=n) > 0).astype(np.int32)
    CASES[name](x[:500], y[:500])  # starts threads
    with _Peak() as peak:
        CASES[name](x, y)
    return {"x": x.nbytes / 1e6, "own": peak.bytes / 1e6}


def table(rows: list[dict[str, Any]]) -> str:
    """Returns Markdown of megabytes in addition to x, one line per call."""
    shapes = " | ".join(f"{n:,} rows, {p} columns" for n, p in SHAPES)
    lines = [f"| MB beside x (16 MB) | {shapes} |", "|---|---|---|"]
    for name in CASES:
        cells = [
            f"{row['own']:.0f}"
            for shape in SHAPES
            for row in rows
            if (row["call"], tuple(row["shape"])) == (name, shape)
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def measure(call: str, path: str, n: int, dtype: str) -> dict[str, float]:
    """Runs a call in this process; returns megabytes."""
    x = np.memmap(path, dtype, "r", shape=(n, N_COLUMNS))
    few = np.array(x[:2000], np.float32)
    forest = grow(few, few[:, 0] > 500, 20, rng=0)
    samples(few).bins()  # starts threads
    start = time.perf_counter()
    with _Peak() as peak:
        if call.startswith("encode"):
            bins = samples(x, max_bins=256 if "256" in call else None).bins()
            # low and high of exact bins are one array.
            kept = bins.bins.nbytes + bins.low.nbytes + (0 if bins.high is bins.low else bins.high.nbytes)
        else:
            kept = {"predict": tree.predict, "apply": tree.apply}[call](forest, x).nbytes
    return {
        "seconds": time.perf_counter() - start,
        "file": x.nbytes / 1e6,
        "result": kept / 1e6,
        "own": peak.bytes / 1e6,
        "maxrss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--json", help="file for the record")
    parser.add_argument("--calls", action="store_true", help="measure each kind of call, on arrays in memory")
    parser.add_argument("--table", type=Path, help="print the table of a record of --calls")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    options = options_of(parser, "--rows 20000 --dtypes uint16")
    if options.table:
        print(table(json.loads(options.table.read_text())["rows"]))
        return
    if options.case:
        name, n, p = options.case
        print(json.dumps(measure_case(name, int(n), int(p))))
        return
    if options.one:
        call, path, n, dtype = options.one
        print(json.dumps(measure(call, path, int(n), dtype)))
        return
    rows: list[dict[str, Any]] = []
    if options.calls:
        for name in CASES:
            for n, p in SHAPES:
                command = [sys.executable, __file__, "--case", name, str(n), str(p)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                rows.append({"call": name, "shape": (n, p), **json.loads(done.stdout)})
                print(rows[-1], flush=True)
        record(options.json or RESULTS / "memory.json", rows, command=" ".join(sys.argv))
        print(table(rows))
        return
    print(f"{hforest.get_num_threads()} threads; megabytes")
    print(f"{'call':18} {'dtype':8} {'file':>6} {'result':>6} {'own':>6} {'above':>6} {'maxrss':>6} {'s':>6}")
    for dtype in options.dtypes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "x")
            _file(path, options.rows, np.dtype(dtype))
            for call in CALLS:
                command = [sys.executable, __file__, "--one", call, str(path), str(options.rows), dtype]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                found = json.loads(done.stdout)
                rows.append({"call": call, "dtype": dtype, "rows": options.rows, **found})
                print(
                    f"{call:18} {dtype:8} {found['file']:6.0f} {found['result']:6.0f} {found['own']:6.0f} "
                    f"{found['own'] - found['result']:6.0f} {found['maxrss']:6.0f} {found['seconds']:6.2f}"
                )
    if options.json:
        record(options.json, rows)


if __name__ == "__main__":
    main()
