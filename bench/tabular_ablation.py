"""Errors of `tabular.fit` without each of its parts (ablation).

    python bench/tabular_ablation.py --data DIR [--tables letter ...] [--parts recipe start ...]
                                     [--rows 12000] [--splits 1] [--held-out] [--threads 1] [--json FILE]

DIR holds the tables as npz files of x and y, or of x_train and y_train, in itself or in DIR/tabular. Two
thirds of `rows` random rows are for training, the rest for testing. With --held-out the test rows are not
read: models are fitted on three quarters of the training rows, and errors are on the others. Defaults were
chosen in this way on the tables of CHOOSE in tabular_data.py, without those of JUDGE.

Errors are in percent of labels, or of the variance of targets, with the seconds of the fit. The last lines
divide errors and seconds by those of scikit-learn's random forest (100 trees, its defaults): geometric means
over tables, with 0.01 % added to both errors. Seconds are processor time; with several --threads, which both
have, wall time.
"""

import argparse
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from common import machine_text, need, options_of, record
from tabular_data import CHOOSE, JUDGE, REGRESSIONS

import hforest
from hforest import tabular
from hforest.tabular import recipe

_WHOLE = {
    task: tuple(group._replace(share=1.0) for group in groups) for task, groups in recipe.GROUPS.items()
}
PARTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "recipe": ({}, {}),
    "start": ({"steps": 0}, {}),
    "forest": ({"steps": 0, "share": 0.0}, {}),
    "trees": ({"share": 1.0}, {}),
    "last state": ({"validation": 0.0}, {}),
    "no average": ({"average": False}, {}),
    "deviations": ({"scaling": "deviations"}, {}),
    "columns": ({"n_projections": 0}, {}),
    "products": ({}, {"GROUPS": {task: groups[-1:] for task, groups in _WHOLE.items()}}),
    "no weights": ({}, {"MIN_STACKED": 2**40}),
    "no boosted": ({"n_boosted": 0}, {}),
    "no linear": ({}, {"MAX_LINEAR": 0}),
    "fixed": ({}, {"KERNEL_RATE": 0.0}),
    "one": ({"n_members": 1, "n_trees": 100}, {}),
}
"""Settings of `fit` and constants of its module, by the name of a part."""


def load(folder: Path, name: str, rows: int, seed: int, held_out: bool) -> dict[str, Any]:
    """Returns rows for fitting and rows for errors."""
    path = folder / f"{name}.npz"
    with np.load(path if path.exists() else folder / "tabular" / f"{name}.npz") as table:
        end = "" if "x" in table else "_train"
        x, y = table[f"x{end}"], table[f"y{end}"]
    regression = y.dtype.kind == "f" or name in REGRESSIONS
    y = y.astype(float) if regression else np.unique(y, return_inverse=True)[1]
    picked = np.random.default_rng(seed).permutation(len(x))[:rows]
    train, test = np.split(picked, [2 * len(picked) // 3])
    if held_out:
        train, test = np.split(train, [3 * len(train) // 4])
    return {
        "x": x[train].astype(float), "y": y[train], "x_test": x[test].astype(float), "y_test": y[test],
        "regression": regression, "n_classes": None if regression else int(y.max()) + 1,
    }  # fmt: skip


def error(p: Any, data: dict[str, Any]) -> float:
    """Returns the percentage of wrong labels, or of the variance of targets that is not explained."""
    y = data["y_test"]
    if data["regression"]:
        return float(100 * ((p - y) ** 2).mean() / y.var())
    return float(100 * (p != y).mean())


def clock() -> float:
    """Returns seconds: processor time for one thread, wall time for several."""
    return time.process_time() if hforest.get_num_threads() == 1 else time.perf_counter()


def random_forest(data: dict[str, Any], seed: int) -> tuple[float, float]:
    """Returns the error and the seconds of scikit-learn's random forest."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    kind = RandomForestRegressor if data["regression"] else RandomForestClassifier
    begin = clock()
    forest = kind(100, n_jobs=hforest.get_num_threads(), random_state=seed).fit(data["x"], data["y"])
    seconds = clock() - begin
    return error(forest.predict(data["x_test"]), data), seconds


@contextmanager
def constants(changed: dict[str, Any]) -> Iterator[None]:
    """Changes constants of the recipe inside a `with` block."""
    before = {name: getattr(recipe, name) for name in changed}
    for name, value in changed.items():
        setattr(recipe, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(recipe, name, value)


def fitted(data: dict[str, Any], part: str, seed: int) -> tuple[float, float]:
    """Returns the error and the seconds of `fit` with one part changed."""
    settings, changed = PARTS[part]
    task: Any = "regression" if data["regression"] else "classification"
    with constants(changed):
        begin = clock()
        model = tabular.fit(
            data["x"], data["y"], task=task, n_classes=data["n_classes"], rng=seed, **settings
        )
        seconds = clock() - begin
    p = tabular.predict(model, data["x_test"])
    return error(p if data["regression"] else p.argmax(axis=1), data), seconds


def ratio(rows: list[dict[str, Any]], part: str, what: str) -> float:
    """Returns the geometric mean over tables of errors or seconds relative to the random forest."""
    added = 0.01 if what == "error" else 0.0
    logs = []
    for row in rows:
        here, there = (float(np.mean(row[name][what])) + added for name in (part, "random forest"))
        logs.append(math.log(here / there))
    return math.exp(float(np.mean(logs)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tables", nargs="+", default=CHOOSE + JUDGE)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rows", type=int, default=12000)
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = options_of(parser, "--data {data} --tables magic --parts start one", "magic")
    need("-e '.[bench,sklearn]'", "sklearn")
    hforest.set_num_threads(options.threads)
    print(machine_text())
    names = ["random forest", *options.parts]
    print(f"{'table':17}" + "".join(f"{name:>15}" for name in names))
    rows: list[dict[str, Any]] = []
    for table in options.tables:
        row: dict[str, Any] = {"table": table} | {name: {"error": [], "seconds": []} for name in names}
        for seed in range(options.splits):
            data = load(options.data, table, options.rows, seed, options.held_out)
            for name in names:
                result = random_forest(data, seed) if name == names[0] else fitted(data, name, seed)
                row[name]["error"].append(result[0])
                row[name]["seconds"].append(result[1])
        rows.append(row)
        figures = [
            f"{np.mean(row[name]['error']):7.2f} ({np.mean(row[name]['seconds']):.2f})" for name in names
        ]
        print(f"{table:17}" + "".join(f"{text:>15}" for text in figures), flush=True)
        if options.json:
            record(
                options.json, rows, rows_of_a_table=options.rows, held_out=options.held_out,
                threads=options.threads,
            )  # fmt: skip
    for label, tables in (("chosen on", CHOOSE), ("judged on", JUDGE), ("all", options.tables)):
        some = [row for row in rows if row["table"] in tables]
        if some:
            for what in ("error", "seconds"):
                print(
                    f"{f'{label}, {what}':17}" + "".join(f"{ratio(some, name, what):15.3f}" for name in names)
                )


if __name__ == "__main__":
    main()
