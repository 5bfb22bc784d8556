"""Peak memory of encoding and predicting samples that are mapped into memory from a file.

    python bench/memory.py                    # 2,000,000 rows of 50 numbers: 800 MB of float64
    python bench/memory.py --rows 200000      # a tenth of it
    python bench/memory.py --json memory.json

Each call runs in a process of its own. "own" is the peak of what the process allocated (RssAnon, sampled
every two milliseconds) above what it had before the call; pages of the file are not in it, for the system
takes them back when memory is short. "above" is that without the result. "maxrss" is getrusage's peak of the
whole process, with pages of the file.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from common import record

import hforest
from hforest import classic, growth, tree

CALLS = ("encode, 256 bins", "encode, exact", "predict", "apply")
N_COLUMNS = 50


def _file(path: Path, n: int, dtype: np.dtype) -> None:
    a = np.memmap(path, dtype, "w+", shape=(n, N_COLUMNS))
    rng = np.random.default_rng(0)
    for first in range(0, n, 100_000):
        part = a[first : first + 100_000]
        part[:] = rng.integers(0, 1000, part.shape)
    a.flush()


def _own() -> int:
    """Bytes of this process that are no pages of files."""
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


def measure(call: str, path: str, n: int, dtype: str) -> dict[str, float]:
    """Runs a call in this process; returns megabytes."""
    x = np.memmap(path, dtype, "r", shape=(n, N_COLUMNS))
    few = np.array(x[:2000], np.float32)
    forest = classic.grow(few, few[:, 0] > 500, 20, rng=0)
    growth.encode(few)  # starts threads
    start = time.perf_counter()
    with _Peak() as peak:
        if call.startswith("encode"):
            bins = growth.encode(x, max_bins=256 if "256" in call else None)
            # Of exact bins low and high are one array.
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
    parser.add_argument("--json", help="file for the record")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        call, path, n, dtype = options.one
        print(json.dumps(measure(call, path, int(n), dtype)))
        return
    rows = []
    print(f"{hforest.get_num_threads()} threads; megabytes")
    print(f"{'call':18} {'dtype':8} {'file':>6} {'result':>6} {'own':>6} {'above':>6} {'maxrss':>6} {'s':>6}")
    for dtype in ("uint16", "int64"):
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
