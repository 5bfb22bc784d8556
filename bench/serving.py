"""Times of predictions of prepared models and forests, beside predictions without preparing and LightGBM.

    python bench/serving.py [--parts tables forests] [--repeats 7] [--json FILE]

tables     tabular.predict of one and of 1,000 rows: a regression of 28 columns, as an array, and two classes
           of 14 columns, of which 8 are categories, as a matrix of numbers, a frame of pandas and a mapping
forests    tree.predict of 1 to 4,000 rows: 100 trees to purity on letter's shape, and on sparse projections

The rungs are `prepared`, `checked` (the model or forest itself) and `lightgbm`, 100 trees of 31 leaves on the
same rows, as an array or a frame with categorical columns. A time is processor time per row, on one thread:
the minimum of repeats in turn, each on other rows. Results are compared first.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from common import machine_text, need, options_of, record, side_by_side, sparse
from one_row import N_TRAIN, letters

import hforest
from hforest import grow, tabular, tree

N_ROWS, N_FRAMES = 4000, 200
Call = Callable[[Any], Any]
Part = Callable[[int, int], Any]
"""Returns rows first to last - 1."""
COUNTS = (1, 100, 130, 132, 300, 1000, 1340, 4000)


def columns_of(n: int) -> dict[str, Any]:
    """Returns 6 columns of numbers and 8 of categories."""
    rng = np.random.default_rng(0)
    table: dict[str, Any] = {f"number {i}": rng.lognormal(size=n) for i in range(6)}
    for i in range(8):
        table[f"category {i}"] = np.array([f"level {j}" for j in range(2 + 3 * i)])[
            rng.integers(0, 2 + 3 * i, n)
        ]
    return table


def in_turn(call: Call, rows: Sequence[Any], n: int) -> Callable[[], None]:
    """Returns a function that makes n calls on parts of the rows in turn."""
    turns = itertools.cycle(rows)

    def run() -> None:
        for _ in range(n):
            call(next(turns))

    return run


def boosted(x: Any, y: Any, objective: str) -> Call:
    """Returns the prediction of LightGBM's trees."""
    import lightgbm

    settings = {"num_leaves": 31, "objective": objective, "verbose": -1, "seed": 0, "num_threads": 1}
    booster: Any = lightgbm.train(settings, lightgbm.Dataset(x, y), 100)
    return partial(booster.predict, num_threads=1)


def of_tables() -> dict[str, dict[str, tuple[Call, Part]]]:
    """Returns for each input the rungs: a call, and its argument of rows first to last - 1."""
    import pandas as pd

    rng = np.random.default_rng(0)
    x = rng.normal(size=(N_ROWS, 28)).astype(np.float32)
    target = x[:, 0] * x[:, 1] + x[:, 2] + rng.normal(size=N_ROWS)
    model = tabular.fit(x, target, task="regression", rng=0)
    table = columns_of(N_ROWS)
    noisy = np.log(table["number 0"] / table["number 1"]) + (table["category 3"] == "level 2")
    y = noisy + rng.normal(size=N_ROWS) > 0
    frame = pd.DataFrame(table)
    typed = frame.astype({name: "category" for name in frame if name.startswith("category")})
    of_frame = tabular.fit(frame, y, rng=0)
    assert of_frame.columns is not None
    numbers = tabular.numbers(of_frame.columns, frame)
    plain = of_frame._replace(columns=None)
    lists = {name: a.tolist() for name, a in table.items()}
    inputs: dict[str, tuple[tabular.Model, Part, Call | None, Part | None]] = {
        "array": (model, lambda i, j: x[i:j].copy(), boosted(x, target, "regression"), None),
        "numbers": (plain, lambda i, j: numbers[i:j].copy(), boosted(numbers, y, "binary"), None),
        "frame": (
            of_frame, lambda i, j: frame.iloc[i:j].copy(), boosted(typed, y, "binary"),
            lambda i, j: typed.iloc[i:j].copy(),
        ),
        "mapping": (of_frame, lambda i, j: {name: a[i:j] for name, a in lists.items()}, None, None),
    }  # fmt: skip
    found: dict[str, dict[str, tuple[Call, Part]]] = {}
    for name, (fit, part, other, other_part) in inputs.items():
        ready, rows = tabular.prepare(fit), part(0, N_ROWS)
        assert tabular.predict(ready, rows).tobytes() == tabular.predict(fit, rows).tobytes()
        found[name] = {
            "prepared": (partial(tabular.predict, ready), part),
            "checked": (partial(tabular.predict, fit), part),
        }
        if other is not None:
            found[name]["lightgbm"] = (other, other_part or part)
    return found


def of_forests(n_trees: int) -> dict[str, dict[str, tuple[Call, Part]]]:
    """Returns the rungs of forests."""
    x, y = letters("")
    rows = x[N_TRAIN:]
    found: dict[str, dict[str, tuple[Call, Part]]] = {}
    for name, grower in (("trees", grow), ("oblique", sparse)):
        forest = grower(x[:N_TRAIN], y[:N_TRAIN], n_trees, rng=0)
        ready = tree.prepare(forest)
        for _ in range(2):  # after the first call the trees are packed for many rows
            assert tree.predict(ready, rows).tobytes() == tree.predict(forest, rows).tobytes()
        calls: dict[str, tree.Forest | tree.Prepared] = {"prepared": ready, "checked": forest}
        found[name] = {
            rung: (partial(tree.predict, of), lambda i, j: rows[i:j].copy()) for rung, of in calls.items()
        }
    return found


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures every part."""
    measured: list[dict[str, Any]] = []
    hforest.set_num_threads(1)
    print(f"{'input':>10} {'rows':>5} {'rung':10} {'us/row':>9} {'/prepared':>10}")
    for part in options.parts:
        found, counts = (of_tables(), (1, 1000)) if part == "tables" else (of_forests(options.trees), COUNTS)
        for (name, rungs), n in itertools.product(found.items(), counts):
            n_parts = min(N_FRAMES, N_ROWS // n)
            often = {rung: max(1, (100 if rung == "prepared" else 10) // n) for rung in rungs}
            calls = {
                rung: in_turn(call, [rows(k * n, k * n + n) for k in range(n_parts)], often[rung])
                for rung, (call, rows) in rungs.items()
            }
            times = side_by_side(calls, options.repeats, clock=time.process_time)
            least = {rung: min(taken) / often[rung] / n for rung, taken in times.items()}
            for rung, seconds in least.items():
                ratio = seconds / least["prepared"]
                measured.append(
                    {"input": name, "rows": n, "rung": rung, "seconds_per_row": seconds, "ratio": ratio}
                )
                print(f"{name:>10} {n:5d} {rung:10} {1e6 * seconds:9.2f} {ratio:10.2f}", flush=True)
    return measured


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=("tables", "forests"), default=["tables", "forests"])
    parser.add_argument("--trees", type=int, default=100, help="trees of a forest")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", metavar="FILE")
    options = options_of(parser, "--parts forests --trees 3 --repeats 1")
    if "tables" in options.parts:
        need("-e '.[bench,tables]' lightgbm pandas", "lightgbm", "pandas")
    print(machine_text())
    measured = run(options)
    if options.json:
        record(options.json, measured, command=" ".join(sys.argv))
    return 0


if __name__ == "__main__":
    sys.exit(main())
