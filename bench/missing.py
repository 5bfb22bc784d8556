"""Missing values and categories: errors and times beside scikit-learn's forests and histogram boosting.

    python bench/missing.py --data DIR [DIR ...] [--tables NAME ...] [--seeds 5] [--json FILE]
    python bench/missing.py --data DIR --categories [--seeds 5] [--json FILE]
    python bench/missing.py --table FILE

The seed draws at most 6000 rows of each table; two thirds of them are for growing. Then 10 or 30 % of all
values are removed, also from the test rows: at random, or by value (values above the median of their column
are removed twice as often). Forests have 100 trees with default settings, on one thread. Seconds of growing
are processor seconds, the minimum of three (scikit-learn: one), beside those on the complete table.
--categories grows on adult, whose eight categorical columns mark missing values by -1: as numbers and as
categories, beside scikit-learn's histogram boosting with categories.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # read when the libraries are loaded
    for name in ("OMP", "OPENBLAS", "MKL"):
        os.environ[f"{name}_NUM_THREADS"] = "1"

import numpy as np
from common import machine_text, need, options_of, record

from hforest import grow, tree

TABLES = ("churn", "spambase", "phoneme", "page_blocks", "waveform_40", "letter")
KINDS = ("at random", "by value")
SHARES = (0.1, 0.3)
ROWS = 6000
REPEATS = 3
ADULT = (1, 3, 5, 6, 7, 8, 9, 13)
"""Columns of categories: work class, education, marital status, occupation, relationship, race, sex,
country."""

Fit = Callable[[np.ndarray, np.ndarray, int], Callable[[np.ndarray], np.ndarray]]


def load(name: str, folders: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Samples and labels of a table."""
    for folder in folders:
        path = folder / f"{name}.npz"
        if path.exists():
            with np.load(path) as found:
                keys = ("x", "y") if "x" in found else ("x_train", "y_train", "x_test", "y_test")
                arrays = [found[key] for key in keys]
            x = np.concatenate(arrays[::2]).astype(np.float32)
            return x, np.unique(np.concatenate(arrays[1::2]), return_inverse=True)[1]
    raise FileNotFoundError(f"{name}.npz: none in {', '.join(map(str, folders))}")


def removed(x: np.ndarray, kind: str, share: float, rng: np.random.Generator) -> np.ndarray:
    """Returns a copy in which a share of the values is NaN."""
    chance = np.full(x.shape, share)
    if kind == "by value":
        high = x > np.median(x, axis=0)
        factor = 1.0 + high
        chance = share * factor / factor.mean(axis=0)
    return np.where(rng.random(x.shape) < chance, np.float32(np.nan), x)


def forest(x: np.ndarray, y: np.ndarray, seed: int, **settings: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Grows hforest's random forest; returns a function from samples to classes."""
    grown = grow(x, y, rng=seed, **settings)
    return lambda z: tree.predict(grown, z).argmax(axis=1)


def of_sklearn(x: np.ndarray, y: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Grows scikit-learn's random forest; returns a function from samples to classes."""
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(random_state=seed).fit(x, y).predict


def timed(
    fit: Fit, x: np.ndarray, y: np.ndarray, z: np.ndarray, y_test: np.ndarray, seed: int
) -> tuple[float, float]:
    """Returns the error in percent, and the minimum processor seconds of growing."""
    seconds = []
    for _ in range(REPEATS if fit is forest else 1):
        start = time.process_time()
        predict = fit(x, y, seed)
        seconds.append(time.process_time() - start)
    return 100 * float((predict(z) != y_test).mean()), min(seconds)


def measure_table(name: str, folders: list[Path], seed: int) -> list[dict[str, Any]]:
    """Measures the rows of one table and seed."""
    x, y = load(name, folders)
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(x))[:ROWS]
    x, y = x[rows], y[rows]
    cut = 2 * len(x) // 3
    found = []
    for kind, share in [("none", 0.0), *((kind, share) for kind in KINDS for share in SHARES)]:
        z = removed(x, kind, share, np.random.default_rng([seed, int(100 * share)])) if share else x
        row: dict[str, Any] = {"table": name, "seed": seed, "kind": kind, "share": share, "n_fitted": cut}
        row["nodes"] = int(grow(z[:cut], y[:cut], rng=seed).feature.size)
        for method, fit in (("hforest", forest), ("scikit-learn", of_sklearn)):
            row[method] = dict(
                zip(("error", "seconds"), timed(fit, z[:cut], y[:cut], z[cut:], y[cut:], seed), strict=True)
            )
        found.append(row)
    return found


def measure_adult(folders: list[Path], seed: int) -> dict[str, Any]:
    """Measures errors on adult with its columns as numbers and as categories."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    x, y = load("adult", folders)
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(x))
    x, y = x[rows], y[rows]
    cut = 2 * len(x) // 3
    columns = list(ADULT)
    known = x.copy()
    known[:, columns] = np.where(x[:, columns] < 0, np.float32(np.nan), x[:, columns])
    boosting = HistGradientBoostingClassifier(categorical_features=columns, random_state=seed)
    methods: dict[str, tuple[np.ndarray, Fit]] = {
        "numbers": (x, forest),
        "categories, missing": (known, lambda a, b, s: forest(a, b, s, categorical=columns)),
        "boosting with categories": (known, lambda a, b, s: boosting.fit(a, b).predict),
    }
    row: dict[str, Any] = {"table": "adult", "seed": seed}
    for method, (z, fit) in methods.items():
        error, seconds = timed(fit, z[:cut], y[:cut], z[cut:], y[cut:], seed)
        row[method] = {"error": error, "seconds": seconds}
    return row


def geometric_mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def table(rows: list[dict[str, Any]]) -> str:
    """Returns a Markdown table of the rows of a record."""
    if rows[0]["table"] == "adult":
        methods = [name for name in rows[0] if name not in ("table", "seed")]
        lines = ["| adult | error % | deviation | seconds |", "|---|---|---|---|"]
        for method in methods:
            errors = [row[method]["error"] for row in rows]
            seconds = np.median([row[method]["seconds"] for row in rows])
            lines.append(f"| {method} | {np.mean(errors):.2f} | {np.std(errors):.2f} | {seconds:.2f} |")
        return "\n".join(lines)
    lines = [
        "| table | removed | hforest error % | scikit-learn error % | deviation | time / none removed | "
        "scikit-learn's |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["table"] for row in rows):
        own = [row for row in rows if row["table"] == name]
        base = {row["seed"]: row for row in own if row["kind"] == "none"}
        for kind, share in dict.fromkeys((row["kind"], row["share"]) for row in own):
            some = [row for row in own if (row["kind"], row["share"]) == (kind, share)]
            ours, theirs = ([row[m]["error"] for row in some] for m in ("hforest", "scikit-learn"))
            slower = [
                geometric_mean([row[m]["seconds"] / base[row["seed"]][m]["seconds"] for row in some])
                for m in ("hforest", "scikit-learn")
            ]
            what = f"{share:.0%} {kind}" if share else "none"
            lines.append(
                f"| {name} | {what} | {np.mean(ours):.2f} | {np.mean(theirs):.2f} | {np.std(theirs):.2f} | "
                f"{slower[0]:.2f} | {slower[1]:.2f} |"
            )
    return "\n".join(lines)


def summary(rows: list[dict[str, Any]]) -> str:
    """Returns a Markdown table of geometric means over tables and seeds."""
    lines = [
        "| removed | error / scikit-learn's | within a deviation | growing / nothing removed | nodes | "
        "scikit-learn's growing | growing / scikit-learn's |",
        "|---|---|---|---|---|---|---|",
    ]
    base = {(row["table"], row["seed"]): row for row in rows if row["kind"] == "none"}
    for kind, share in dict.fromkeys((row["kind"], row["share"]) for row in rows):
        some = [row for row in rows if (row["kind"], row["share"]) == (kind, share)]
        names = list(dict.fromkeys(row["table"] for row in some))
        near, ratio = 0, []
        for name in names:
            ours, theirs = (
                [row[m]["error"] for row in some if row["table"] == name] for m in ("hforest", "scikit-learn")
            )
            ratio.append(float(np.mean(ours) / np.mean(theirs)))
            near += float(np.mean(ours)) <= float(np.mean(theirs) + np.std(theirs))
        slower = [
            geometric_mean(
                [row[m]["seconds"] / base[row["table"], row["seed"]][m]["seconds"] for row in some]
            )
            for m in ("hforest", "scikit-learn")
        ]
        nodes = geometric_mean([row["nodes"] / base[row["table"], row["seed"]]["nodes"] for row in some])
        beside = geometric_mean([row["hforest"]["seconds"] / row["scikit-learn"]["seconds"] for row in some])
        what = f"{share:.0%} {kind}" if share else "none"
        lines.append(
            f"| {what} | {geometric_mean(ratio):.3f} | {near} of {len(names)} | {slower[0]:.2f} | "
            f"{nodes:.2f} | {slower[1]:.2f} | {beside:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, nargs="+")
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--categories", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path)
    options = options_of(parser, "--data {data} --tables magic --seeds 1", "magic")
    if options.table:
        old = json.loads(options.table.read_text())["rows"]
        print(table(old))
        if old[0]["table"] != "adult":
            print("\n" + summary(old))
        return
    if not options.data:
        parser.error("--data: expected folders of npz files")
    need("-e '.[bench,sklearn]'", "sklearn")
    rows: list[dict[str, Any]] = []
    print(machine_text())
    for seed in range(options.seeds):
        if options.categories:
            rows.append(measure_adult(options.data, seed))
        for name in () if options.categories else options.tables:
            rows += measure_table(name, options.data, seed)
            print(name, seed, file=sys.stderr)
    print(table(rows))
    if options.json:
        record(options.json, rows=rows)


if __name__ == "__main__":
    main()
