"""Common parts of the benches: timing, the machine's highest measured rates, records, progress bars."""

import argparse
import importlib.util
import json
import math
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import hforest
from hforest import project, tree
from hforest.core import machine

COMPLETELY_RANDOM: dict[str, Any] = {"splitter": "random", "max_features": 1, "bootstrap": False}
"""Settings of `hforest.grow` for completely random trees."""

CLOCKS = {"processor": time.process_time, "wall": time.perf_counter}
"""Clocks by name. A share of a ceiling is of two times by one clock, which the record names."""

RESULTS = Path(__file__).with_name("results")


def numbers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Returns normal numbers: the same for every dtype, rounded to it."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype, copy=False)


def projected(make: Callable[..., Any], **options: Any) -> Callable[..., tree.Forest]:
    """Returns a function that grows on projections of make(n_features, **options), of `hforest.project`."""

    def grow(x: Any, y: Any, n_trees: int = 100, **settings: Any) -> tree.Forest:
        return hforest.grow(x, y, n_trees, projections=make(x.shape[1], **options), **settings)

    return grow


sparse = projected(project.sparse_distribution)


def labels(n: int, n_classes: int) -> np.ndarray:
    """Returns labels of n samples, int32."""
    return np.random.default_rng(1).integers(0, n_classes, n, np.int32)


def need(install: str, *modules: str) -> None:
    """Ends the program with the command that installs missing modules."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        script = Path(sys.argv[0]).name
        sys.exit(
            f"{script}: expected {', '.join(modules)} to be installed, got no {', '.join(missing)}; "
            f"run pip install {install} in the checkout"
        )


def seconds(
    call: Callable[[], Any],
    repeats: int = 7,
    least: float = 0.02,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Returns `repeats` times of one call; short calls run in a loop of at least `least` seconds.

    With `clock=time.process_time` they are processor times, which other processes disturb less.
    """
    call()
    begin = clock()
    call()
    once = max(clock() - begin, 1e-7)
    loops = max(1, round(least / once))
    taken = []
    for _ in range(repeats):
        begin = clock()
        for _ in range(loops):
            call()
        taken.append((clock() - begin) / loops)
    return taken


def side_by_side(
    calls: dict[str, Callable[[], Any]], repeats: int = 7, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Returns times of calls that are measured in turn, so that a drift of the machine affects all."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(repeats):
        for name, call in calls.items():
            taken[name].append(seconds(call, repeats=1, clock=clock)[0])
    return taken


def sizes_like(
    example: str, least: Sequence[float] = (1,), most: Sequence[float] = (math.inf,)
) -> Callable[[str], tuple[int, ...]]:
    """Returns a reader for argparse of sizes within bounds, as many as in an example such as "1000,25,7"."""
    n = example.count(",") + 1
    number = {3: "three", 4: "four", 5: "five"}[n]

    def read(text: str) -> tuple[int, ...]:
        sizes = tuple(int(part) for part in text.split(","))
        if len(sizes) != n or np.less(sizes, least).any() or np.greater(sizes, most).any():
            raise argparse.ArgumentTypeError(f"expected {number} sizes such as {example}, got {text}")
        return sizes

    read.__name__ = "shape"  # argparse shows this name if a size is not a number
    return read


def plainly(call: Callable[[], Any]) -> Callable[[], Any]:
    """Returns the same call on the path without vector instructions."""

    def timed() -> None:
        best = machine.simd()
        machine.set_simd("plain")
        try:
            call()
        finally:
            machine.set_simd(best)

    return timed


def add_clock(parser: argparse.ArgumentParser) -> None:
    """Adds the option `--clock`, a name of `CLOCKS`."""
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="processor",
        help="processor: time of all threads, without other processes; wall: for a GPU and several threads",
    )


def ceilings(clock: Callable[[], float] = time.process_time) -> dict[str, float]:
    """Returns this machine's highest rates with the current threads: bytes copied, loads from L1 and L2.

    They are per second of the clock; of processor time, which sums the threads, in the mean of the threads.
    """
    source = np.ones(1 << 28, np.uint8)
    target = np.empty_like(source)
    rng = np.random.default_rng(0)
    index = rng.integers(0, 1 << 22, 1 << 20, np.int32)
    copies = seconds(lambda: machine.copy(target, source), 5, clock=clock)
    best = {"copy_bytes": 2 * source.nbytes / min(copies)}
    for name, size in (("l1", 1 << 12), ("l2", 1 << 17)):
        table, within = np.arange(size, dtype=np.int32), index % size
        rate = index.size / min(seconds(partial(machine.gather, table, within), 5, clock=clock))
        best[f"gathers_{name}"] = rate
    return best


def machine_text() -> str:
    """Returns processor, compiler and versions in one line."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    report = hforest.show_config("dicts")
    assert report is not None
    return (
        f"{model}, {' '.join(report['cpu_features']) or 'baseline'}, {report['compiler']}, "
        f"OpenMP {report['openmp']}, Python {report['python']}, NumPy {report['numpy']}, "
        f"hforest {report['version']}"
    )


def changed(settings: Any, changes: list[str]) -> Any:
    """Returns the settings, a dataclass, with values replaced by name=value."""
    kinds = {field.name: type(getattr(settings, field.name)) for field in fields(settings)}
    for change in changes:
        name, _, value = change.partition("=")
        if name not in kinds:
            raise SystemExit(f"--set {change}: expected name=value with a name of {', '.join(kinds)}")
        settings = replace(settings, **{name: kinds[name](value)})
    return settings


def parser_of_cells(text: str | None, n_sets: int) -> argparse.ArgumentParser:
    """Returns the parser of a simulation: --sets (n_sets), --cells and --json; text is its help."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=n_sets, help="number of data sets per cell")
    parser.add_argument(
        "--cells", nargs="+", default=["*"], metavar="PATTERN", help="names of cells; * stands for any text"
    )
    parser.add_argument("--json", type=Path, help="the record; an existing one is read first")
    return parser


def cells_named(parser: argparse.ArgumentParser, cells: Sequence[Any], patterns: Sequence[str]) -> list[Any]:
    """Returns the cells of a simulation whose names match patterns such as "waves 200 *"."""
    chosen = [cell for cell in cells if any(fnmatchcase(cell.name, pattern) for pattern in patterns)]
    if not chosen:
        parser.error(f"--cells: expected the names of some cells, got {' '.join(patterns)}")
    return chosen


def rows_by_cell(path: Path | None, kind: Any) -> dict[str, dict[str, Any]]:
    """Returns the rows of a record by the names of their cells, which are NamedTuples of class `kind`."""
    if not path or not path.exists():
        return {}
    rows = json.loads(path.read_text())["rows"]
    return {kind(*(row[key] for key in kind._fields)).name: row for row in rows}


def record(path: str | Path, rows: Sequence[dict[str, Any]], **more: Any) -> None:
    """Writes rows with the machine's description as json, each list of numbers on one line."""
    report = hforest.show_config("dicts")
    text = json.dumps({"machine": machine_text(), "config": report, **more, "rows": list(rows)}, indent=1)
    text = re.sub(r"\[\n\s+([-+.,\deE\s]+?)\n\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    Path(path).write_text(text + "\n")


def spread(taken: list[float]) -> float:
    """Returns half the range divided by the median: the relative error of a single figure."""
    return (max(taken) - min(taken)) / 2 / statistics.median(taken)


class Bar:
    """A progress(done, total) that shows tqdm's bar with a name; without tqdm it only prints notes."""

    def __init__(self, name: str, first: int = 0) -> None:
        self._name, self._first = name, first
        self._bar: Any = None

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, done: int, total: int) -> None:
        """Shows that `done` of `total` units are finished."""
        if self._bar is None:
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=total, initial=self._first, desc=self._name, unit="step", mininterval=1.0)
        self._bar.update(done - self._bar.n)

    def note(self, text: str) -> None:
        """Shows a text beside the bar, or on a line."""
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
        else:
            print(f"{self._name}: {text}", flush=True)
