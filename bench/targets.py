"""Times of growing on targets and on weights, beside those of other libraries.

    python bench/targets.py [--sizes 5000 20000 50000] [--json FILE]
    python bench/targets.py --table FILE      prints the table of a record

Data are normal numbers in 30 columns, and targets depend on four of them. Calls run in turn on one thread,
and processor time is measured.
Before a call is timed, the error of its forest on 2000 further samples is compared with that of the other
library: the bench ends with an error if it exceeds it by more than 15 %, as forests of few trees vary.

* bootstrap forests to pure leaves with a third of the columns, of one and of several targets, beside
  scikit-learn's: with exact thresholds, and with 255 bins, encoding included;
* a tree of depth 6 with all columns and 255 bins, encoded before, beside LightGBM's by columns and by rows;
* classes with real weights, with class weights and by entropy, beside Gini without weights.
"""

import argparse
import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import machine_text, options_of, record, side_by_side

import hforest
from hforest import tree

N_COLUMNS, N_HELD, BINS = 30, 2000, 255
Call = Callable[[], Callable[[np.ndarray], np.ndarray]]
"""Grows, and returns the function that predicts."""


def make(n: int, n_outputs: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns samples and targets."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, N_COLUMNS), np.float32)
    t = 2 * x[:, 0] + np.sin(3 * x[:, 1]) + x[:, 2] * x[:, 3] + rng.normal(size=n)
    return x, t if n_outputs == 1 else np.stack([t + x[:, k % N_COLUMNS] for k in range(n_outputs)], axis=1)


def grown(x: Any, y: np.ndarray, n_trees: int, **settings: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Grows a forest; returns its predictions."""
    forest = hforest.grow(x, y, n_trees, task="regression", rng=0, **settings)
    return lambda held: np.squeeze(tree.predict(forest, held))


def binned(x: np.ndarray, y: np.ndarray, n_trees: int) -> Callable[[np.ndarray], np.ndarray]:
    return grown(hforest.samples(x, max_bins=BINS), y, n_trees, max_features=N_COLUMNS // 3)


def scikit_learn(x: np.ndarray, y: np.ndarray, n_trees: int) -> Callable[[np.ndarray], np.ndarray]:
    from sklearn.ensemble import RandomForestRegressor

    model = RandomForestRegressor(n_trees, max_features=N_COLUMNS // 3, random_state=0, n_jobs=1)
    return model.fit(x, y).predict


def lightgbm(data: Any, way: str) -> Callable[[np.ndarray], np.ndarray]:
    import lightgbm as lgb

    settings = {"objective": "regression", "num_leaves": 64, "max_depth": 6, "min_data_in_leaf": 1}
    settings |= {"min_sum_hessian_in_leaf": 0, "learning_rate": 1, "num_threads": 1, "verbose": -1}
    settings |= {"max_bin": BINS, "feature_pre_filter": False, way: True}
    return lgb.train(settings, data, 1).predict


def check(name: str, calls: dict[str, Call], x: np.ndarray, y: np.ndarray) -> None:
    """Compares the errors of the first call with those of the others."""
    errors = {kind: float(((call()(x) - y) ** 2).mean()) for kind, call in calls.items()}
    own = next(iter(errors.values()))
    if own > 1.15 * min(errors.values()):
        raise SystemExit(f"{name}: expected errors within 15 %, got {errors}")


def forests(n: int, n_outputs: int, n_trees: int) -> dict[str, dict[str, Call]]:
    x, y = make(n, n_outputs)
    peer = partial(scikit_learn, x, y, n_trees)
    exact = partial(grown, x, y, n_trees, max_features=N_COLUMNS // 3)
    outputs = f", {n_outputs} targets" if n_outputs > 1 else ""
    return {
        f"forest, {n} rows{outputs}, exact": {"hforest": exact, "scikit-learn": peer},
        f"forest, {n} rows{outputs}, 255 bins": {
            "hforest": partial(binned, x, y, n_trees), "scikit-learn": peer,
        },
    }  # fmt: skip


def trees(n: int) -> dict[str, dict[str, Call]]:
    import lightgbm as lgb

    x, y = make(n)
    samples = hforest.samples(x, max_bins=BINS)
    data = lgb.Dataset(x, y, params={"max_bin": BINS, "verbose": -1, "feature_pre_filter": False}).construct()
    own = partial(grown, samples, y, 1, max_depth=6, max_features=None, bootstrap=False)
    ways = {"by columns": "force_col_wise", "by rows": "force_row_wise"}
    return {
        f"tree of depth 6, {n} rows": {"hforest": own}
        | {f"LightGBM {word}": partial(lightgbm, data, way) for word, way in ways.items()}
    }


def weights(n: int, n_classes: int, max_bins: int | None) -> dict[str, dict[str, Callable[[], Any]]]:
    x, t = make(n)
    y = np.digitize(t, np.quantile(t, np.arange(1, n_classes) / n_classes))
    samples = hforest.samples(x, max_bins=max_bins)
    of_classes = np.linspace(1, 2.7, n_classes)
    ways: dict[str, dict[str, Any]] = {
        "Gini": {}, "class_weight": {"class_weight": of_classes},
        "sample_weight": {"sample_weight": np.random.default_rng(1).random(n) + 0.5},
        "entropy": {"criterion": "entropy"},
    }  # fmt: skip
    bins = "exact" if max_bins is None else f"{max_bins} bins"
    return {
        f"{n_classes} classes, {n} rows, {bins}": {
            word: partial(hforest.grow, samples, y, 3, rng=0, **settings) for word, settings in ways.items()
        }
    }


def measure(name: str, calls: dict[str, Any], repeats: int) -> list[dict[str, Any]]:
    """Returns a row of the record for each call."""
    taken = side_by_side(calls, repeats, time.process_time)
    return [
        {"name": name, "call": call, "seconds": statistics.median(some), "all": some}
        for call, some in taken.items()
    ]


NOT_SHOWN = tuple(f"forest, {n} rows, {bins}" for n in (5000, 50000) for bins in ("exact", "255 bins"))
"""Jobs of the record that the page does not show."""


def table(rows: list[dict[str, Any]], on_page: bool = True) -> str:
    """Returns milliseconds of the first call, and ratios of the others' times to it; of jobs on the page."""
    lines = ["| | ms | times of others / it |", "|---|---|---|"]
    names = dict.fromkeys(row["name"] for row in rows)
    for name in (name for name in names if not on_page or name not in NOT_SHOWN):
        (_, own), *others = ((row["call"], row["seconds"]) for row in rows if row["name"] == name)
        ratios = ", ".join(f"{call} {taken / own:.2f}" for call, taken in others)
        lines.append(f"| {name} | {1000 * own:.1f} | {ratios} |")
    return "\n".join(lines)


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--sizes", type=int, nargs="+", default=[5000, 20000, 50000])
    parser.add_argument("--work", type=int, default=100_000, help="rows of all trees of a forest")
    parser.add_argument("--outputs", type=int, nargs="*", default=[10, 100], help="numbers of targets")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", metavar="WORD", help="measures only jobs whose names have it")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path)
    options = options_of(parser, "--sizes 1000 --work 30000 --outputs --repeats 1")
    if options.table:
        print(table(json.loads(options.table.read_text())["rows"], on_page=False))
        return
    hforest.set_num_threads(1)
    print(machine_text())
    rows: list[dict[str, Any]] = []
    jobs: dict[str, dict[str, Any]] = {}
    if importlib.util.find_spec("sklearn"):
        for n in options.sizes:
            jobs |= forests(n, 1, max(2, options.work // n))
        for n_outputs in options.outputs:
            jobs |= forests(options.sizes[0], n_outputs, 2)
    if importlib.util.find_spec("lightgbm"):
        for n in (20000, 200000):
            jobs |= trees(min(n, 4 * max(options.sizes)))
    for name, calls in jobs.items():
        n_outputs = int(name.split(", ")[2].split()[0]) if "targets" in name else 1
        check(name, calls, *make(N_HELD, n_outputs, 1))
    for n_classes in (2, 7):
        for max_bins in (BINS, None):
            jobs |= weights(min(20000, max(options.sizes)), n_classes, max_bins)
    jobs = {name: calls for name, calls in jobs.items() if options.only in name}
    for name, calls in jobs.items():
        rows += measure(name, calls, options.repeats)
        print(table(rows, on_page=False).splitlines()[-1], flush=True)
    if options.json:
        record(options.json, rows)


if __name__ == "__main__":
    main()
