"""Alternating decision forests: times beside `hforest.grow`, and their column of Lay et al. 2018, Table 3.

    python bench/alternating.py [--quick] [--json FILE]
    python bench/alternating.py --data DIR [--sets letter usps mnist] [--runs 3] [--json FILE]

The first form times a forest of levels beside `hforest.grow` without a bootstrap, whose trees it equals where
the slope of the loss is constant, which is checked first; times are processor time on one thread.

The second form reads letter.npz, usps.npz and mnist.npz as lab/paper/table3.py does: the same training and
test samples. Forests have 100 trees, of depth at most 10, which Lay et al. name, or grown to purity. Errors
are those of the forest on test samples, in percent; nothing is selected. A random forest has the same seeds.
"""

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab" / "paper"))

import numpy as np
from common import labels, numbers, options_of, record, rows_by_cell, side_by_side
from table3 import load

import hforest
from hforest import alternating, tree

PAPER = {"letter": "3.42 ± 0.17", "usps": "5.59 ± 0.16", "mnist": "2.71 ± 0.10"}
"""Alternating Decision Forest in Lay et al. 2018, Table 3: mean and deviation in percent."""
STEEP = (lambda m: np.logaddexp(0, -4 * m), lambda m: -4 / (1 + np.exp(4 * m)))
CONSTANT = (lambda m: -m, lambda m: -np.ones_like(m))
METHODS: dict[str, Any] = {
    "random forest": hforest.grow,
    "without a bootstrap": partial(hforest.grow, bootstrap=False),
    "exponential": alternating.grow,
    "logistic": partial(alternating.grow, loss="logistic"),
    "logistic of 4 m": partial(alternating.grow, loss=STEEP),
}
DEPTHS: tuple[int | None, ...] = (10, None)


class Cell(NamedTuple):
    """A cell of the table."""

    data: str
    method: str
    depth: int | None

    @property
    def name(self) -> str:
        return f"{self.data}, {self.method}, depth {self.depth}"


def times(sizes: list[int], repeats: int) -> list[dict[str, Any]]:
    """Returns processor times of these forests and of `hforest.grow`, after a check that they are equal."""
    rows = []
    hforest.set_num_threads(1)
    for n, limited in itertools.product(sizes, (True, False)):
        depth = (6 if n <= 1000 else 10) if limited else None
        x, y = numbers(n, 16), labels(n, 8)
        settings: dict[str, Any] = {"n_trees": 10, "max_depth": depth, "rng": 0}
        want = hforest.grow(x, y, bootstrap=False, **settings)
        got = alternating.grow(x, y, loss=CONSTANT, **settings)
        if any(a.tobytes() != b.tobytes() for a, b in zip(got, want, strict=True)):
            raise SystemExit("a constant slope did not give the forest of hforest.grow")
        weight = np.random.default_rng(0).random(n)
        calls: dict[str, Callable[[], Any]] = {
            "grow": partial(hforest.grow, x, y, bootstrap=False, **settings),
            "grow, fractional weights": partial(
                hforest.grow, x, y, bootstrap=False, sample_weight=weight, **settings
            ),
            "alternating.grow": partial(alternating.grow, x, y, **settings),
        }
        taken = side_by_side(calls, repeats, time.process_time)
        least = {name: min(seconds) for name, seconds in taken.items()}
        rows.append({"n": n, "depth": depth, "seconds": least})
        shown = ", ".join(f"{name} {1e3 * s:.1f} ms" for name, s in least.items())
        print(f"{n} samples, depth {depth}: {shown}", flush=True)
    return rows


def errors(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns test errors of all methods, and prints the table."""
    rows = rows_by_cell(args.json, Cell)
    for name in args.sets:
        data = load(name, args.data)
        x, x_test = (a.reshape(len(a), -1) for a in (data.x_train, data.x_test))
        for depth in DEPTHS:
            for method, grow in METHODS.items():
                cell = Cell(name, method, depth)
                row = rows.setdefault(cell.name, {**cell._asdict(), "errors": [], "seconds": []})
                for seed in range(len(row["errors"]), args.runs):
                    begin = time.process_time()
                    forest = grow(x, data.y_train, args.trees, max_depth=depth, rng=seed)
                    row["seconds"].append(time.process_time() - begin)
                    wrong = tree.predict(forest, x_test).argmax(axis=1) != data.y_test
                    row["errors"].append(100 * float(wrong.mean()))
                    if args.json:
                        record(args.json, list(rows.values()))
                print(f"{cell.name}: {text_of(row['errors'])}", flush=True)
    return list(rows.values())


def text_of(errors: list[float]) -> str:
    """Returns the mean of errors, and their deviation if there are several."""
    spread = f" ± {statistics.stdev(errors):.2f}" if len(errors) > 1 else ""
    return f"{statistics.mean(errors):.2f}{spread}"


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the table in Markdown: test errors in percent by data set and depth."""
    lines = [
        f"| data, depth | paper | {' | '.join(METHODS)} | runs |",
        f"|---|---|{'---|' * len(METHODS)}---|",
    ]
    for data, paper in PAPER.items():
        for depth in DEPTHS:
            some = [row for row in rows if (row["data"], row["depth"]) == (data, depth) and row["errors"]]
            of_methods = {row["method"]: row["errors"] for row in some}
            if not some:
                continue
            cells = [text_of(of_methods[name]) if name in of_methods else "–" for name in METHODS]
            runs = min(map(len, of_methods.values()))
            lines.append(f"| {data}, {depth or 'full'} | {paper} | {' | '.join(cells)} | {runs} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1000, 10_000], help="samples of the first form"
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--sets", nargs="+", choices=list(PAPER), default=["letter", "usps"])
    parser.add_argument("--runs", type=int, default=3, help="number of seeds 0, 1, ...")
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--json", type=Path)
    args = options_of(parser, "--sizes 1000 --repeats 3")
    hforest.set_num_threads(1)
    if args.data is None:
        rows = times(args.sizes, args.repeats)
        if args.json:
            record(args.json, rows)
    else:
        print(table(errors(args)))


if __name__ == "__main__":
    main()
