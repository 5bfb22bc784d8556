"""Prints hashes of results of every subpackage, to show that a change keeps results bit-identical.

    python bench/bits.py > before.txt            # before the change
    python bench/bits.py --compare before.txt    # after it; exit status 1 if a line differs or is missing

A line is the vector path, the name of a result, and the first 16 digits of the SHA-256 of its arrays, dtypes
and shapes included. All vector paths of the processor are hashed in turn. Compare lines of one machine and
one version of NumPy. The parts are the functions `of_<subject>(task)` of the files bits_*.py.
"""

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from bits_forests import digits
from common import options_of
from digests import Results, Task, make_task

from hforest import _verify
from hforest.core import machine


def parts(subjects: Sequence[str]) -> Iterator[Callable[[Task], Results]]:
    """Returns the functions of_<subject> of bits_*.py, of all subjects if none is named."""
    for path in sorted(Path(__file__).parent.glob("bits_*.py")):
        module = importlib.import_module(path.stem)
        for name, part in vars(module).items():
            if name.startswith("of_") and (not subjects or name[3:] in subjects):
                yield part


def results(subjects: Sequence[str] = ()) -> Results:
    """Yields names and hashes of the results of all subpackages or of some subjects, in both dtypes."""
    for dtype in (np.float32, np.float64):
        task = make_task(dtype)
        for part in parts(subjects):
            for name, value in part(task):
                yield f"{np.dtype(dtype).name} {name}", value
    if not subjects:
        yield from digits()
        yield from ((f"verify {name}", value) for name, value in _verify.results())


def main() -> int:
    """Prints or compares the lines."""
    parser = argparse.ArgumentParser(description="Hashes of results, to show that a change keeps every bit.")
    parser.add_argument(
        "--paths", nargs="*", default=list(machine.simd_paths()), help="vector paths (default: all)"
    )
    parser.add_argument(
        "--parts", nargs="*", default=[], metavar="SUBJECT", help="such as co2 of of_co2 (default: all)"
    )
    parser.add_argument(
        "--compare", metavar="FILE", help="output of an earlier run: print the lines that differ"
    )
    options = options_of(parser, "--paths plain --parts cascade co2")
    before: dict[str, str] = {}
    if options.compare:
        rows = (
            line.rsplit(" | ", 1) for line in Path(options.compare).read_text(encoding="utf-8").splitlines()
        )
        before = {row[0]: row[1] for row in rows if row[0].split(" | ")[0] in options.paths}
    n_lines, n_different = 0, 0
    for path in options.paths:
        machine.set_simd(path)
        for name, value in results(options.parts):
            key = f"{path} | {name}"
            n_lines += 1
            earlier = before.pop(key, "no line")
            if not options.compare:
                print(f"{key} | {value}", flush=True)
            elif earlier != value:
                n_different += 1
                print(f"{key}: {earlier} before, {value} now", flush=True)
    for key, earlier in before.items():
        print(f"{key}: {earlier} before, no line now")
    if options.compare:
        print(f"{n_lines} results, {n_different} differ, {len(before)} are missing")
    return int(n_different + len(before) > 0)


if __name__ == "__main__":
    sys.exit(main())
