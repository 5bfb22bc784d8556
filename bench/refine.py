"""Test errors of trees before and after `co2.refine`, beside forests of more trees.

    python bench/refine.py --data DIR [--only letter pol ...] [--json FILE]
    python bench/refine.py

DIR holds the .npz files that bench/data.py makes. Sets are those of Norouzi et al. 2015, with the test
samples of lab/paper/co2_data.py; tables are those of the second half of bench/tabular_data.py, a third for
the test. Of all other samples at most ROWS are used. NU is chosen for each forest by the error on a fifth of
them, with a tree, or four trees of ten, that grow on the rest; then forests grow and are refined on all of
them. Nothing is chosen by test errors. Other settings are the defaults, which were chosen on other tables and
on letter.

Errors are in percent: of labels, or 1 - R2. Seconds are processor time of growth and refinement, without the
choice, on one thread. A set is written to the record when it is finished; started again, the script continues
with the next one. Without --data the table of the record is printed.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab" / "paper"))

import co2_data
import numpy as np
import tabular_data
from common import RESULTS, options_of, record

import hforest
from hforest import co2, tree

SETS = ("letter", "usps", "connect4", "mnist")
TABLES = ("churn", "ring", "splice", "page_blocks", "pol", "fried")
ROWS = 8000
NU = (10.0, 40.0, 160.0)
FOREST = "random forest"
STARTS: dict[str, Callable[..., tree.Forest]] = {
    "CART": partial(hforest.grow, bootstrap=False, max_features=None),
    FOREST: hforest.grow,
    "CO2": partial(co2.grow, max_rounds=5),
}
"""CO2 with five rounds has nearly the error of the default twenty."""
CELLS = (("CART", 1), ("CO2", 1), (FOREST, 10), ("CO2", 10))
"""Refined forests: start and number of trees."""
JUDGED = 4
"""Maximum number of trees with which nu is chosen."""
MORE = ((FOREST, 100), ("CO2", 100))
"""Forests to compare them with."""

LEAST = 0.01
"""Errors and seconds below this count as this in means of ratios."""

Part = tuple[np.ndarray, np.ndarray]


def name_of(start: str, n_trees: int, refined: bool = False) -> str:
    return f"{start}, {n_trees}" + ", refined" * refined


def load(folder: Path, name: str) -> tuple[Part, Part, dict[str, Any]]:
    """Returns training and test samples, and the task with its number of classes."""
    if name in SETS:
        x, y, x_test, y_test = co2_data.load(folder, name)
    else:
        path = tabular_data.find([folder, folder / "tabular"], name)
        data, x_test, y_test = tabular_data.load(path, 3 * ROWS // 2, 0, False, "raw")
        x, y = data.x, data.y
    some = np.random.default_rng(0).permutation(len(x))[:ROWS]
    task: dict[str, Any] = {"task": "regression"}
    if y.dtype.kind != "f":
        task = {"task": "classification", "n_classes": int(max(y.max(), y_test.max())) + 1}
    return (x[some], y[some]), (x_test, y_test), task


def error(forest: tree.Forest, part: Part) -> float:
    """Returns the error in percent: of labels, or 1 - R2."""
    x, y = part
    p = tree.predict(forest, x)
    if y.dtype.kind != "f":
        return co2_data.percent_wrong(p, y)
    return 100 * float(((p[:, 0] - y) ** 2).mean() / y.var())


def choose(start: str, n_trees: int, part: Part, task: dict[str, Any]) -> dict[str, float]:
    """Returns the errors with each nu on a fifth of the samples."""
    x, y, *held = co2_data.held_out(*part)
    forest = STARTS[start](x, y, min(n_trees, JUDGED), rng=0, **task)
    return {
        f"{nu:g}": error(co2.refine(forest, x, y, nu=nu, task=task["task"], rng=0), (held[0], held[1]))
        for nu in NU
    }


def run(folder: Path, name: str) -> dict[str, Any]:
    """Returns errors and seconds of all methods on a set or table."""
    part, test, task = load(folder, name)
    row: dict[str, Any] = {"data": name, "n": len(part[0]), "held_out": {}, "error": {}, "seconds": {}}
    for start, n_trees in (*CELLS, *MORE):
        begin = time.process_time()
        forest = STARTS[start](*part, n_trees, rng=1, **task)
        taken = time.process_time() - begin
        found = {name_of(start, n_trees): (forest, taken)}
        if (start, n_trees) in CELLS:
            errors = row["held_out"][name_of(start, n_trees)] = choose(start, n_trees, part, task)
            nu = float(min(errors, key=lambda a: errors[a]))
            begin = time.process_time()
            forest = co2.refine(forest, *part, nu=nu, task=task["task"], rng=1)
            seconds = taken + time.process_time() - begin
            found[name_of(start, n_trees, True)] = forest, seconds
        for method, (forest, seconds) in found.items():
            row["error"][method], row["seconds"][method] = error(forest, test), seconds
    return row


def _cells(row: dict[str, Any], key: str, pattern: str) -> list[str]:
    """Returns cells of a row: refined forests after those before, then the others."""
    figures = row[key]
    pairs = [(figures[name_of(*cell)], figures[name_of(*cell, True)]) for cell in CELLS]
    return [
        *(f"{before:{pattern}} → {after:{pattern}}" for before, after in pairs),
        *(f"{figures[name_of(*cell)]:{pattern}}" for cell in MORE),
    ]


def _ratio(figures: dict[str, float], method: str, base: str) -> float:
    """Returns the logarithm of a ratio."""
    return float(np.log(max(figures[method], LEAST) / max(figures[base], LEAST)))


def table(rows: list[dict[str, Any]], each: bool = True) -> str:
    """Returns the table in Markdown: errors by set if `each`, then means of ratios of errors and seconds."""
    heads = [*(f"{start}, {n} → refined" for start, n in CELLS), *(f"{start}, {n}" for start, n in MORE)]
    lines = [f"| data | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    shown = rows if each else ()
    lines += [f"| {row['data']} | {' | '.join(_cells(row, 'error', '.3g'))} |" for row in shown]
    base = name_of(*MORE[0])
    for key, text in (("error", f"errors / those of {base}"), ("seconds", f"seconds / those of {base}")):
        methods = rows[0][key]
        means = {
            method: float(np.exp(np.mean([_ratio(row[key], method, base) for row in rows])))
            for method in methods
        }
        lines.append(f"| {text} | {' | '.join(_cells({key: means}, key, '.2f'))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the data sets; without it the record is printed")
    parser.add_argument("--only", nargs="+", choices=[*SETS, *TABLES], default=[*SETS, *TABLES])
    parser.add_argument("--json", type=Path, default=RESULTS / "refine.json")
    args = options_of(parser, "--data {data} --only churn", "churn")
    rows = json.loads(args.json.read_text())["rows"] if args.json.exists() else []
    hforest.set_num_threads(1)
    for name in args.only if args.data else ():
        if name not in {row["data"] for row in rows}:
            rows.append(run(args.data, name))
            print(name, rows[-1]["error"], rows[-1]["seconds"], file=sys.stderr, flush=True)
            record(args.json, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
