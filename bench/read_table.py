"""Time and memory of reading a CSV file as columns of a table, beside `polars.read_csv`.

    python bench/read_table.py [--rows 1000000] [--columns 20] [--kinds numbers text digits]

A file of each kind of cells (random numbers of float64; 50 texts; one digit) is written and read. Times are
those of `tabular.read` and `tabular.columns` together over that of `polars.read_csv`, in turn: medians of
three. Memory is the growth of the peak of a process that reads the file, per byte of the file.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from common import machine_text, need, options_of

KINDS = ("numbers", "text", "digits")


def write(path: str, kind: str, n_rows: int, n_columns: int) -> None:
    """Writes a file of cells of one kind."""
    import polars

    rng, columns = np.random.default_rng(0), {}
    names = np.array([f"level {i}" for i in range(50)])
    for j in range(n_columns):
        codes = rng.integers(0, 50, n_rows)
        cells = {"numbers": rng.normal(size=n_rows), "text": names[codes], "digits": codes % 10}
        columns[f"c{j}"] = cells[kind]
    polars.DataFrame(columns).write_csv(path)


def read(path: str) -> None:
    """Reads a file as columns."""
    from hforest import tabular

    tabular.columns(tabular.read(path))


def peak() -> int:
    """Returns the peak of the memory of this process in bytes, on Linux."""
    with open("/proc/self/status") as lines:
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def memory(path: str) -> None:
    """Prints how many bytes a process takes to read a file, per byte of the file."""
    import polars  # noqa: F401

    from hforest import tabular  # noqa: F401

    before = peak()
    read(path)
    print(f"{(peak() - before) / os.path.getsize(path):.1f}")


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    options = options_of(parser, "--rows 2000 --columns 5 --kinds numbers")
    need("-e '.[tables]'", "polars", "narwhals")
    if options.memory_of:
        memory(options.memory_of)
        return
    import polars

    print(machine_text())
    print("kind      file     processor time / polars' own  wall / polars' own  memory / file")
    for kind in options.kinds:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "table.csv")
            write(path, kind, options.rows, options.columns)
            ratios: list[list[float]] = [[], []]
            for _ in range(3):
                taken = []
                for function in (polars.read_csv, read):
                    begin = time.process_time(), time.perf_counter()
                    function(path)
                    taken.append((time.process_time() - begin[0], time.perf_counter() - begin[1]))
                for ratio, own, other in zip(ratios, taken[1], taken[0], strict=True):
                    ratio.append(own / other)
            command = [sys.executable, __file__, "--memory-of", path]
            grown = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
            size = os.path.getsize(path) / 1e6
            cpu, wall = map(statistics.median, ratios)
            print(f"{kind:8} {size:5.0f} MB {cpu:29.2f} {wall:19.2f} {grown:>14}", flush=True)


if __name__ == "__main__":
    main()
