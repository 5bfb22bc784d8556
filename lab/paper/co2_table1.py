"""Norouzi et al. 2015, Table I: CO2 forests beside random forests and OC1 forests of the same size, on real
data.

    python lab/paper/co2_table1.py --data DIR [--only letter usps ...] [--trees 30] [--runs 5]
        [--methods CO2 RF OC1] [--votes FOLDER]
    python lab/paper/co2_table1.py

DIR holds letter, usps, mnist, connect4, isolet, optdigits and shuttle as .npz and, if bench/data.py made
them, satimage, pendigits, protein, sensit and covertype. The script omits sets that are missing, and prints
their names. Without --data nothing is grown, and the table of the record is printed. A cell is the mean test
error in percent over seeds, with their deviation. `--png FILE` draws Fig. 2, error by number of trees, from
the record with matplotlib. SETTINGS are those that co2_search.py and results-co2.md describe.

A run is one seed of one forest, grown in parts of 50 trees, of which only the votes are kept. The first 10
and 30 trees of a forest are the forests of 10 and of 30 trees, so one growth fills a row. Errors are written
after each part. Started again, the script continues with the missing runs. With `--votes` it continues within
a forest, whose votes so far are in that folder; without it, the forest starts again. Rows contain their
settings, so that runs with different settings are not mixed. "coding" is for OC1 alone, whose errors depend on the
scale of the features.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import co2_data
import numpy as np
from common import RESULTS

import hforest
from hforest import tree

PART = 50
SQUARES = {"nu": 10.0, "lr": 0.003, "max_features": 78, "convex_rounds": 1, "min_samples_oblique": 2000}
MEASUREMENTS = {"max_features": 4, "max_rounds": 5, "min_samples_oblique": 1000}
NOT_HERE = {"satimage": 8, "pendigits": 5, "protein": 34, "sensit": 15, "covertype": 10}
"""Data sets of the paper that no record has, and p**.6. Their nu and lr are from the middle of the paper's
grid, not chosen."""
SETTINGS: dict[str, dict[str, Any]] = {
    "letter": co2_data.SETTINGS["letter"],
    "letter, no bootstrap": {**co2_data.SETTINGS["letter"], "bootstrap": False},
    "usps": co2_data.SETTINGS["usps"],
    "usps, as published": {"max_features": 28, "coding": "as published"},
    "mnist": co2_data.SETTINGS["mnist"],
    "mnist, no bootstrap": {**co2_data.SETTINGS["mnist"], "nu": 4.0, "max_rounds": 5, "bootstrap": False},
    "connect4": SQUARES,
    "connect4, no bootstrap": {**SQUARES, "bootstrap": False},
    "isolet": {"nu": 10.0, "lr": 0.003, "max_features": 47},
    "optdigits": {"nu": 10.0, "lr": 0.01, "max_features": 12},
    "shuttle": {"nu": 4.0, "lr": 0.03, **MEASUREMENTS},
    "shuttle, no bootstrap": {"nu": 43.0, "lr": 0.1, **MEASUREMENTS, "bootstrap": False},
    **{name: {"nu": 10.0, "lr": 0.01, "max_features": q} for name, q in NOT_HERE.items()},
    **{f"{name}, defaults": {} for name in ("letter", "usps", "connect4")},
}
METHODS = {"CO2": "CO2", "RF": "RF", "OC1": "OC1, no restarts"}
PAPER = {
    ("letter", "CO2"): (3.2, 2.3, 1.8),
    ("letter", "RF"): (6.6, 4.7, 3.7),
    ("letter", "OC1"): (7.6, 5.0, 3.8),
    ("usps", "CO2"): (5.8, 5.9, 5.5),
    ("usps", "RF"): (9.0, 7.2, 6.4),
    ("usps", "OC1"): (7.1, 7.1, 6.8),
    ("mnist", "CO2"): (2.5, 2.0, 1.9),
    ("mnist", "RF"): (4.5, 3.5, 2.8),
    ("connect4", "CO2"): (17.1, 15.7, 14.7),
    ("connect4", "RF"): (18.9, 17.4, 16.2),
}
"""Test error in percent with 10, 30 and 1000 trees; the paper's forests have a bootstrap."""
LOOKED = {
    "mnist": "least of 3 looks: the step, with 10 trees",
    **dict.fromkeys(("letter", "letter, no bootstrap"), "split rule by test error"),
    **dict.fromkeys(("isolet", "optdigits"), "settings by hand"),
    **dict.fromkeys(("letter, defaults", "connect4, defaults"), "some of its rows chose the defaults"),
}
"""Settings of CO2 forests that were chosen by test error, by data set; results-co2.md has the details."""
SIZES = (10, 30, 1000)


def looks(name: str, method: str) -> str:
    """Returns the use of the test samples of a row before its errors were taken."""
    return LOOKED.get(name, "held out") if method == "CO2" else "held out"


def run(row: dict[str, Any], n_trees: int, data: Any, votes: Path | None, save: Any) -> None:
    """Returns the errors of one forest by number of trees, and its time; it grows part after part."""
    x, y, x_test, y_test = data
    total = np.zeros((len(x_test), int(y.max()) + 1))
    kept = None if votes is None else votes / f"{row['data']}-{row['method']}-{row['seed']}.npz"
    settings = json.dumps(row["settings"])
    if kept is not None and kept.exists() and row["trees"]:
        file = np.load(kept)
        if (int(file["trees"]), str(file["settings"])) == (row["trees"], settings):
            total = file["total"]
    if not total.any():
        row.update(trees=0, errors={}, seconds=0.0, threads=hforest.get_num_threads())
    # Part by part from where a multiple of PART was reached: smaller forests end within a part.
    for first in range(row["trees"], n_trees, PART):
        count = min(PART, n_trees - first)
        rng = 1000 * row["seed"] + first // PART
        begin = time.perf_counter()
        forest = co2_data.grow(row["method"], x, y, count, row["settings"], rng)
        row["seconds"] += time.perf_counter() - begin
        for m in sorted({a for a in SIZES if first < a < first + count} | {first + count}):
            part = co2_data.first_trees(forest, m - first)
            sums = total + (m - first) * tree.predict(part, x_test).astype(np.float64)
            row["errors"][str(m)] = co2_data.percent_wrong(sums, y_test)
        total, row["trees"] = sums, first + count
        if kept is not None and row["trees"] % PART == 0:
            kept.parent.mkdir(parents=True, exist_ok=True)
            np.savez(kept, total=total, trees=row["trees"], settings=settings)
        save()
        print(*row.values(), file=sys.stderr)


def table(rows: list[dict[str, Any]]) -> str:
    """Returns a table of errors in percent, here and in the paper, with 10, 30 and 1000 trees."""
    lines = ["| data | forest | 10 trees | 30 trees | 1000 trees | paper |", "|---|---|---|---|---|---|"]
    for name in SETTINGS:
        for method in METHODS:
            of = [row for row in rows if (row["data"], row["method"]) == (name, method)]
            if not of:
                continue
            digits = 3 if name.startswith("shuttle") else 2
            cells = []
            for n_trees in SIZES:
                errors = [row["errors"][str(n_trees)] for row in of if str(n_trees) in row["errors"]]
                spread = f" ± {statistics.stdev(errors):.{digits}f}" if len(errors) > 1 else ""
                cells.append(f"{statistics.mean(errors):.{digits}f}{spread}" if errors else "–")
            paper = (
                ", ".join(str(a) for a in PAPER.get((name.removesuffix(", as published"), method), ())) or "–"
            )
            lines.append(f"| {name} | {method} | {' | '.join(cells)} | {paper} |")
    return "\n".join(lines)


def curve(rows: list[dict[str, Any]], name: str, method: str) -> dict[int, float]:
    """Returns mean test error by number of trees, over the seeds that have it."""
    errors: dict[int, list[float]] = {}
    for row in rows:
        if (row["data"], row["method"]) == (name, method):
            for n_trees, error in row["errors"].items():
                errors.setdefault(int(n_trees), []).append(error)
    return {n_trees: statistics.mean(errors[n_trees]) for n_trees in sorted(errors)}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draws Fig. 2: a panel for each data set of the paper, with the paper's figures as crosses."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [name for name in dict.fromkeys(name for name, _ in PAPER) if curve(rows, name, "RF")]
    figure, axes = pyplot.subplots(
        1, len(names), figsize=(3.4 * len(names), 3.4), layout="constrained", squeeze=False
    )
    for axis, name in zip(axes[0], names, strict=True):
        for color, (method, label) in zip(("C0", "C1", "C2"), METHODS.items(), strict=True):
            if (name, method) in PAPER:
                axis.plot(SIZES, PAPER[name, method], "x", color=color)
            for variant, style in ((name, "-"), (f"{name}, no bootstrap", "--")):
                points = curve(rows, variant, method)
                if points and (variant == name or method == "CO2"):
                    words = label + variant.removeprefix(name)
                    axis.plot([*points], [*points.values()], style, color=color, marker=".", label=words)
        axis.set(title=name, xlabel="trees", xscale="log")
        axis.legend(fontsize="small")
    axes[0, 0].set_ylabel("test error, %")
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def main() -> None:
    """Makes every run that the record lacks, then prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the data sets; without it the record is printed")
    parser.add_argument("--only", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument(
        "--trees", type=int, default=30, help="number of trees; errors with 10 and 30 trees are measured, too"
    )
    parser.add_argument("--methods", nargs="*", default=["CO2", "RF"], choices=list(METHODS))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--votes", type=Path, help="folder for the votes of unfinished forests")
    parser.add_argument("--png", type=Path, help="file of Fig. 2")
    parser.add_argument("--json", type=Path, default=RESULTS / "co2_table1.json")
    args = parser.parse_args()
    if args.threads:
        hforest.set_num_threads(args.threads)
    record = co2_data.Record(args.json, "runs")
    for name in args.only if args.data else ():
        data, file, coding = None, name.split(",")[0], SETTINGS[name].get("coding")
        if name in NOT_HERE and not (args.data / f"{file}.npz").exists():
            print(f"{name}: left out, as {file}.npz is not in {args.data}", file=sys.stderr)
            continue
        for method in [a for a in args.methods if coding is None or a == "OC1"]:
            for seed in range(args.runs):
                key = {"data": name, "method": method, "seed": seed, "settings": SETTINGS[name]}
                row = record.find(key) or record.add({**key, "trees": 0, "errors": {}})
                if row["trees"] < args.trees:
                    data = data or co2_data.load(args.data, file, coding)
                    run(row, args.trees, data, args.votes, record.write)
    print(table(record.rows))
    if args.png:
        draw(record.rows, args.png)


if __name__ == "__main__":
    main()
