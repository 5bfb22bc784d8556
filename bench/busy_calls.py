"""Processor time of short calls beside other busy processes.

    python bench/busy_calls.py [--busy 8] [--repeats 50] [--json FILE] [--quick]

Each setting has its own process, because libgomp reads its settings when it is loaded: one thread; two
threads that spin as long as libgomp lets them by default (GOMP_SPINCOUNT=300000), as hforest sets it, and not
at all (OMP_WAIT_POLICY=passive). Times are milliseconds of processor time of a call, of all its threads: the
mean of the repeats. The results of two threads are compared with those of one.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
from common import machine_text, numbers, options_of, record

SETTINGS: dict[str, tuple[int, dict[str, str]]] = {
    "one thread": (1, {}),
    "two, libgomp's default": (2, {"GOMP_SPINCOUNT": "300000"}),
    "two, as set": (2, {}),
    "two, passive": (2, {"OMP_WAIT_POLICY": "passive"}),
}
"""Number of threads and variables of the environment."""


def calls() -> dict[str, Callable[[], Any]]:
    """Returns the calls by name."""
    import hforest
    from hforest import hinge, tree

    x = numbers(2048, 5)
    y = (x[:, 0] > 0).astype(np.int32)
    parameters, forest = hinge.init(100, 7, 5, 3, rng=0), hforest.grow(x[:20], y[:20], 100, rng=0)
    return {
        "grow, 20 rows, 10 trees": lambda: hforest.grow(x[:20], y[:20], 10, rng=0).value,
        "hinge.forward, 256 samples, 100 trees": lambda: hinge.forward(x[:256], *parameters),
        "hinge.forward, 1024 samples, 100 trees": lambda: hinge.forward(x[:1024], *parameters),
        "tree.predict, 2048 samples, 100 small trees": lambda: tree.predict(forest, x),
    }


def measured(n_threads: int, repeats: int) -> dict[str, tuple[float, np.ndarray]]:
    """Returns milliseconds of processor time and the result of each call."""
    import hforest

    hforest.set_num_threads(n_threads)
    found = {}
    for name, call in calls().items():
        result, begin = call(), time.process_time()
        for _ in range(repeats):
            call()
        found[name] = 1e3 * (time.process_time() - begin) / repeats, result
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the table in Markdown: a line for each call."""
    taken = {(row["call"], row["setting"]): row["milliseconds"] for row in rows}
    settings = list(dict.fromkeys(setting for _, setting in taken))
    lines = [f"| call | {' | '.join(settings)} |", f"|---|{'---|' * len(settings)}"]
    for call in dict.fromkeys(call for call, _ in taken):
        lines.append(f"| {call} | {' | '.join(f'{taken[call, a]:.2f}' for a in settings)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--busy", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--json")
    options = options_of(parser, "--busy 1 --repeats 3 --settings 'one thread' 'two, as set'")
    print(machine_text(), f"{options.busy} other busy processes", sep="\n")
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.busy)]
    rows: list[dict[str, Any]] = []
    want: dict[str, np.ndarray] = {}
    try:
        for setting in options.settings:
            n_threads, variables = SETTINGS[setting]
            os.environ.update(variables)
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                found = process.submit(measured, n_threads, options.repeats).result()
            for name in variables:
                del os.environ[name]
            for call, (milliseconds, result) in found.items():
                np.testing.assert_array_equal(result, want.setdefault(call, result))
                rows.append({"call": call, "setting": setting, "milliseconds": milliseconds})
    finally:
        for other in others:
            other.kill()
    print(table(rows))
    if options.json:
        record(options.json, rows, busy=options.busy)


if __name__ == "__main__":
    main()
