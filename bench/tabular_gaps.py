"""Missing values and categories in `tabular.fit`: errors by encoding for hinge trees, on held-out rows.

    python bench/tabular_gaps.py --data DIR [DIR ...] [--tables letter ...] [--kinds random value]
                                 [--methods medians ...] [--rows 2000] [--members 1] [--json FILE]
    python bench/tabular_gaps.py --data DIR [DIR ...] --categories [--methods numbers ...] [--json FILE]
    python bench/tabular_gaps.py --table FILE         # the means of a record

Tables are those of CHOOSE in tabular_data.py. Two thirds of 9000 random rows are for training; the rest, for
tests, is not read. Models are fitted on `rows` of the training rows, at most three quarters, and errors are
on the others: percent of labels, or 1 - R2 in percent. One thread; seconds are of the processor.

A fifth of all values is removed, also from the rows on which errors are measured: at random, or by value,
with probability 0.4 times the rank in the column (0 for the smallest value, 1 for the largest). In all
methods except lightgbm the grown forest reads NaN. For hinge trees and inner products, "medians" replaces NaN
by the median of the column. "indicators" adds an indicator of missing values for each column. "forests"
predicts each column from the others with 20 regression trees. "regressions" is `tabular.fit`.

--categories measures tables with columns of categories: connect4 and dna, whose indicators are converted to
42 and 60 columns of categories, nursery, three columns of kddcup, the sex of abalone, and eight columns of
adult, in which -1 is a missing value. "numbers" takes them as numbers.
"""

import argparse
import importlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # read when the libraries are loaded
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"

import numpy as np
from common import machine_text, need, options_of, record
from tabular_ablation import error
from tabular_data import CATEGORIES, CHOOSE, GAPS, REGRESSIONS, find
from tabular_data import removed as without

import hforest
from hforest import grow, tabular, tree
from hforest.tabular import encoding

ROWS = 9000
"""Rows of a table, of which two thirds are for training."""
COLUMNS = {
    "adult": CATEGORIES["adult"], "nursery": tuple(range(8)), "connect4": tuple(range(42)),
    "dna": tuple(range(60)), "kddcup": CATEGORIES["kddcup"], "abalone": CATEGORIES["abalone"],
}  # fmt: skip
"""Columns that --categories takes as categories."""
INDICATORS = {"connect4": 3, "dna": 3}
"""Indicators that represent one column of these tables; all are 0 for one further category."""

Table = dict[str, Any]


def load(folders: list[Path], name: str, rows: int, seed: int, together: bool) -> Table:
    """Returns rows for fitting and rows for errors; `together` converts indicators to categories."""
    with np.load(find(folders, name)) as table:
        end = "" if "x" in table else "_train"
        x, y = table[f"x{end}"].astype(float), table[f"y{end}"]
    if together and name in INDICATORS:
        parts = x.reshape(len(x), -1, INDICATORS[name])
        x = np.where(parts.any(axis=2), parts.argmax(axis=2), INDICATORS[name]).astype(float)
    if together and name == "adult":
        x[x < 0] = np.nan
    regression = y.dtype.kind == "f" or name in REGRESSIONS
    y = y.astype(float) if regression else np.unique(y, return_inverse=True)[1]
    picked = np.random.default_rng(seed).permutation(len(x))[:ROWS]
    train = picked[: 2 * len(picked) // 3]
    fit, judge = np.split(train, [min(rows, 3 * len(train) // 4)])
    return {
        "x": x[fit], "y": y[fit], "x_test": x[judge], "y_test": y[judge], "regression": regression,
        "n_classes": None if regression else int(y.max()) + 1,
    }  # fmt: skip


def removed(data: Table, kind: str, seed: int) -> Table:
    """Returns a table in which a fifth of the values is missing."""
    x = without(np.concatenate([data["x"], data["x_test"]]), kind, seed)
    return data | {"x": x[: len(data["x"])], "x_test": x[len(data["x"]) :]}


def _fitted(data: Table, seed: int, **settings: Any) -> float:
    task: Any = "regression" if data["regression"] else "classification"
    model = tabular.fit(data["x"], data["y"], task=task, n_classes=data["n_classes"], rng=seed, **settings)
    p = tabular.predict(model, data["x_test"])
    return error(p if data["regression"] else p.argmax(axis=1), data)


def _boosted(data: Table, seed: int, **settings: Any) -> float:
    import lightgbm

    kind = lightgbm.LGBMRegressor if data["regression"] else lightgbm.LGBMClassifier
    model = kind(n_jobs=1, verbose=-1, random_state=seed).fit(data["x"], data["y"], **settings)
    return error(np.asarray(model.predict(data["x_test"])), data)


# ------------------------------------------------------------------------------------- missing values


@contextmanager
def _replaced(**functions: Any) -> Iterator[None]:
    """Replaces names of the module `encoding` in a `with` block."""
    before = {name: getattr(encoding, name) for name in functions}
    try:
        vars(encoding).update(functions)
        yield
    finally:
        vars(encoding).update(before)


def _indicated(data: Table) -> Table:
    gaps = np.isnan(data["x"]).any(axis=0)
    return data | {k: np.hstack([data[k], np.isnan(data[k])[:, gaps]]) for k in ("x", "x_test")}


def _by_forests(data: Table, seed: int, **settings: Any) -> float:
    forests: dict[int, Any] = {}
    filled_in, fit_numbers = encoding.filled_in, encoding.fit_numbers

    def fitted(z: np.ndarray, seed: int) -> Any:
        for j in np.flatnonzero(np.isnan(z).any(axis=0)).tolist():
            rows = ~np.isnan(z[:, j])
            if rows.sum() >= 5 and z.shape[1] > 1:
                others = z[rows]
                others[:, j] = 0
                forests[j] = grow(
                    others, z[rows, j], 20, task="regression", min_samples_leaf=5, rng=0,
                    max_features=max(1, (z.shape[1] - 1) // 3),
                )  # fmt: skip
        return fit_numbers(z, seed)

    def filled(model: Any, z: np.ndarray) -> np.ndarray:
        numbers = filled_in(model, z)
        for j, forest in forests.items():
            rows = np.isnan(z[:, j])
            if rows.any():
                numbers[rows, j] = tree.predict(forest, z[rows])[:, 0]
        return numbers

    with _replaced(fit_numbers=fitted, filled_in=filled):
        return _fitted(data, seed, **settings)


def _by_medians(data: Table, seed: int, **settings: Any) -> float:
    with _replaced(ROUNDS=0):
        return _fitted(data, seed, **settings)


Method = Callable[..., float]
METHODS: dict[str, Method] = {
    "medians": _by_medians,
    "indicators": lambda data, seed, **more: _by_medians(_indicated(data), seed, **more),
    "forests": _by_forests,
    "regressions": _fitted,
    "regressions, indicators": lambda data, seed, **more: _fitted(_indicated(data), seed, **more),
    "forest alone": lambda data, seed, **more: _fitted(data, seed, steps=0, share=0.0, **more),
    "lightgbm": lambda data, seed, **more: _boosted(data, seed),
}
"""Replacements of missing values, by name."""


# ------------------------------------------------------------------------------------------- categories


def _of_catboost(data: Table, seed: int) -> float:
    catboost = importlib.import_module("catboost")

    def texts(x: np.ndarray) -> Any:
        rows: list[list[Any]] = x.tolist()
        for row in rows:
            for j in data["categorical"]:
                row[j] = str(row[j])
        return rows

    kind = catboost.CatBoostRegressor if data["regression"] else catboost.CatBoostClassifier
    model = kind(thread_count=1, verbose=0, allow_writing_files=False, random_seed=seed)
    model.fit(texts(data["x"]), data["y"], cat_features=data["categorical"])
    return error(np.asarray(model.predict(texts(data["x_test"]))).reshape(-1), data)


OF_CATEGORIES: dict[str, Method] = {
    "numbers": _fitted,
    "categories": lambda data, seed, **more: _fitted(data, seed, categorical=data["categorical"], **more),
    "lightgbm": lambda data, seed, **more: _boosted(data, seed),
    "lightgbm, categories": lambda data, seed, **more: _boosted(
        data, seed, categorical_feature=data["categorical"]
    ),
    "catboost, categories": lambda data, seed, **more: _of_catboost(data, seed),
}
"""Interpretations of columns of categories, by name."""


# -------------------------------------------------------------------------------------------- record


def means(rows: list[dict[str, Any]]) -> str:
    """Prints a line for each kind and method: geometric means over tables, relative to the first method."""
    lines = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        some = [row for row in rows if row["kind"] == kind]
        methods = [name for name in some[0]["error"] if all(name in row["error"] for row in some)]
        for name in methods:
            logs = [math.log((row["error"][name] + 0.01) / (row["error"][methods[0]] + 0.01)) for row in some]
            seconds = [math.log(row["seconds"][name]) for row in some]
            lines.append(
                f"{kind:12} {name:26} {math.exp(sum(logs) / len(logs)):.3f} "
                f"{math.exp(sum(seconds) / len(seconds)):8.2f} s, {len(some)} tables"
            )
    return "\n".join(lines)


def measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measures a row for each table and kind of gaps."""
    known = OF_CATEGORIES if options.categories else METHODS
    methods = {name: known[name] for name in options.methods or known}
    kinds = ["categories"] if options.categories else options.kinds
    for name in options.tables or (COLUMNS if options.categories else CHOOSE):
        whole = load(options.data, name, options.rows, options.seed, options.categories)
        for kind in kinds:
            data = whole if options.categories else removed(whole, kind, options.seed)
            data["categorical"] = list(COLUMNS.get(name, ()))
            row: dict[str, Any] = {"table": name, "kind": kind, "error": {}, "seconds": {}}
            for method, run in methods.items():
                begin = time.process_time()
                row["error"][method] = run(data, options.seed, n_members=options.members)
                row["seconds"][method] = time.process_time() - begin
            yield row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, nargs="+")
    parser.add_argument("--tables", nargs="+")
    parser.add_argument("--kinds", nargs="+", choices=GAPS, default=list(GAPS))
    parser.add_argument("--categories", action="store_true")
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path)
    options = options_of(parser, "--data {data} --tables magic --methods medians --kinds random", "magic")
    if options.table:
        print(means(json.loads(options.table.read_text())["rows"]))
        return
    if not options.data:
        parser.error("pass --data to measure, or --table and a record")
    if not options.methods or "lightgbm" in options.methods:
        need("lightgbm", "lightgbm")
    hforest.set_num_threads(1)
    print(machine_text())
    rows = []
    for row in measured(options):
        rows.append(row)
        errors = ", ".join(f"{name} {value:.2f}" for name, value in row["error"].items())
        print(f"{row['table']} {row['kind']}: {errors}", flush=True)
        if options.json:
            record(options.json, rows, rows_fitted=options.rows, members=options.members)
    print(means(rows))


if __name__ == "__main__":
    main()
