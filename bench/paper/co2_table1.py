"""p2 Table I: CO2 forests beside random forests (and OC1 forests) of the same size, on real data.

    python bench/paper/co2_table1.py --data DIR [--only letter usps ...] [--trees 30] [--runs 5]
        [--methods CO2 RF OC1] [--votes FOLDER]
    python bench/paper/co2_table1.py --data DIR --search [--only ...]

DIR holds letter, usps, mnist, connect4, isolet, optdigits and shuttle as .npz. `--search` holds out 20 % of
the training samples and compares forests of 30 trees (10 for mnist) over bounds and steps, as the paper does;
SETTINGS are what it chose. A table's cell is the mean test error of the runs, with their deviation.

A run is one seed of one forest, grown in parts of 50 trees, of which only the votes are kept; the first 10
and 30 trees of a forest are the forest of 10 and of 30, so one growth fills a row. Errors are written after
each part. Started again the script goes on with the rest; with `--votes` that is in the middle of a forest,
whose votes so far lie in that folder, and without it the forest begins anew.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from common import RESULTS, machine_text

import hforest
from hforest import classic, co2, tree

PART = 50
SQUARES = {"convex_rounds": 1, "min_samples_oblique": 2000}  # for features of two values
SETTINGS: dict[str, dict[str, Any]] = {
    "letter": {"nu": 4.0, "eta": 0.1, "q": 5},
    "letter, no bags": {"nu": 4.0, "eta": 0.1, "q": 5, "bootstrap": False},
    "usps": {"nu": 1.0, "eta": 0.01, "q": 28},
    "mnist": {"nu": 10.0, "eta": 0.01, "q": 54},
    "mnist, no bags": {"nu": 4.0, "eta": 0.01, "q": 54, "max_rounds": 5, "bootstrap": False},
    "connect4": {"nu": 10.0, "eta": 0.003, "q": 78, **SQUARES},
    "connect4, no bags": {"nu": 10.0, "eta": 0.003, "q": 78, **SQUARES, "bootstrap": False},
    "isolet": {"nu": 10.0, "eta": 0.003, "q": 47},
    "optdigits": {"nu": 10.0, "eta": 0.01, "q": 12},
    "shuttle": {"nu": 4.0, "eta": 0.03, "q": 4, "max_rounds": 5, "min_samples_oblique": 1000},
    "shuttle, no bags": {
        "nu": 43.0,
        "eta": 0.1,
        "q": 4,
        "max_rounds": 5,
        "min_samples_oblique": 1000,
        "bootstrap": False,
    },
}
GRID: dict[str, Any] = {"nu": [1.0, 4.0, 10.0, 43.0], "eta": [0.1, 0.03, 0.01, 0.003]}
PAPER = {
    ("letter", "CO2"): (3.2, 2.3, 1.8),
    ("letter", "RF"): (6.6, 4.7, 3.7),
    ("letter", "OC1"): (7.6, 5.0, 3.8),
    ("usps", "CO2"): (5.8, 5.9, 5.5),
    ("usps", "RF"): (9.0, 7.2, 6.4),
    ("mnist", "CO2"): (2.5, 2.0, 1.9),
    ("mnist", "RF"): (4.5, 3.5, 2.8),
    ("connect4", "CO2"): (17.1, 15.7, 14.7),
    ("connect4", "RF"): (18.9, 17.4, 16.2),
}
"""Test error in percent with 10, 30 and 1000 trees."""
TREES = (10, 30, 1000)


def standardised(x: np.ndarray, x_test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Zero mean and unit deviation, of the training samples."""
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    deviation[deviation == 0] = 1
    return (x - mean) / deviation, (x_test - mean) / deviation


def ranked(x: np.ndarray, x_test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the training samples below, equal ones by half; uniform, of zero mean and unit deviation."""
    columns = np.sort(x, axis=0)

    def share(a: np.ndarray) -> np.ndarray:
        below = [
            np.searchsorted(c, b, "left") + np.searchsorted(c, b, "right")
            for c, b in zip(columns.T, a.T, strict=True)
        ]
        return (np.stack(below, axis=1) / len(x) - 1) * 3**0.5

    return share(x), share(x_test)


def load(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test samples; pixels and counts in [0, 1], measurements and squares standardised.

    Shuttle's measurements lie up to 96 deviations from their means: they are ranked.
    """
    name = name.split(",")[0]  # behind the comma: what is different from another row
    file = np.load(folder / f"{name}.npz")
    if name in ("letter", "connect4"):
        x, y = file["x"].astype(np.float32), file["y"]
        n = 15_000 if name == "letter" else 55_000
        if name == "connect4":
            order = np.random.default_rng(0).permutation(len(x))
            x, y = x[order], y[order]
        x, y, x_test, y_test = x[:n], y[:n], x[n:], y[n:]
    else:
        x, x_test = (
            file[key].reshape(len(file[key]), -1).astype(np.float32) for key in ("x_train", "x_test")
        )
        y, y_test = file["y_train"], file["y_test"]
    if name == "shuttle":
        x, x_test = ranked(x, x_test)
    if name in ("letter", "connect4"):
        x, x_test = standardised(x, x_test)
    elif name in ("mnist", "usps", "optdigits"):
        low, high = {"mnist": (0, 255), "usps": (-1, 1), "optdigits": (0, 16)}[name]
        x, x_test = ((a - low) / (high - low) for a in (x, x_test))
    x, x_test = (np.ascontiguousarray(a, np.float32) for a in (x, x_test))
    return x, y.astype(np.int32), x_test, y_test.astype(np.int32)


def first_trees(forest: tree.Forest, n_trees: int) -> tree.Forest:
    """The forest of the first trees alone."""
    n_nodes = int(forest.tree_start[n_trees])
    entries = int(forest.start[n_nodes]) if len(forest.start) > 1 else 0
    return forest._replace(
        tree_start=forest.tree_start[: n_trees + 1],
        feature=forest.feature[:n_nodes],
        threshold=forest.threshold[:n_nodes],
        left=forest.left[:n_nodes],
        gain=forest.gain[:n_nodes],
        value=forest.value[: (n_nodes + n_trees) // 2],
        start=forest.start[: n_nodes + 1],
        index=forest.index[:entries],
        weight=forest.weight[:entries],
    )


def grow(name: str, method: str, x: Any, y: Any, n_trees: int, rng: int) -> tree.Forest:
    """A part of a forest."""
    settings = SETTINGS[name]
    q, bags = settings["q"], settings.get("bootstrap", True)
    if method == "CO2":
        return co2.grow(x, y, n_trees, rng=rng, **settings)
    if method == "OC1":
        return co2.grow(x, y, n_trees, rng=rng, q=q, splitter="oc1", bootstrap=bags)
    return classic.grow(x, y, n_trees, criterion="entropy", max_features=q, bootstrap=bags, rng=rng)


def run(row: dict[str, Any], n_trees: int, data: Any, votes: Path | None, save: Any) -> None:
    """Errors by number of trees, and time, of one forest, part after part."""
    x, y, x_test, y_test = data
    total = np.zeros((len(x_test), int(y.max()) + 1))
    kept = None if votes is None else votes / f"{row['data']}-{row['method']}-{row['seed']}.npz"
    settings = json.dumps(SETTINGS[row["data"]])
    if kept is not None and kept.exists() and row["trees"]:
        file = np.load(kept)
        if (int(file["trees"]), str(file["settings"])) == (row["trees"], settings):
            total = file["total"]
    if not total.any():
        row.update(trees=0, errors={}, seconds=0.0, threads=hforest.get_num_threads())
    # Part by part from where a multiple of PART was reached: smaller forests end within a part.
    for first in range(row["trees"], n_trees, PART):
        count = min(PART, n_trees - first)
        begin = time.perf_counter()
        forest = grow(row["data"], row["method"], x, y, count, 1000 * row["seed"] + first // PART)
        row["seconds"] += time.perf_counter() - begin
        for m in sorted({a for a in TREES if first < a < first + count} | {first + count}):
            part = first_trees(forest, m - first)
            sums = total + (m - first) * tree.predict(part, x_test).astype(np.float64)
            row["errors"][str(m)] = 100 * float((sums.argmax(axis=1) != y_test).mean())
        total, row["trees"] = sums, first + count
        if kept is not None and row["trees"] % PART == 0:
            kept.parent.mkdir(parents=True, exist_ok=True)
            np.savez(kept, total=total, trees=row["trees"], settings=settings)
        save()
        print(*row.values(), file=sys.stderr)


def search(name: str, data: Any, trials: co2.Trials | None, save: Any) -> co2.Trials:
    """The paper's search over bounds and steps."""
    x, y = data[:2]
    fixed = {key: value for key, value in SETTINGS[name].items() if key not in co2.Trials._fields}

    def progress(done: int, n_trials: int, trials: co2.Trials) -> None:
        print(f"{name}: {done} of {n_trials}", *(a[-1] for a in trials), file=sys.stderr)
        save(trials)

    return co2.search(
        x,
        y,
        10 if name.startswith("mnist") else 30,
        q=[SETTINGS[name]["q"]],
        settings=fixed,
        trials=trials,
        progress=progress,
        **GRID,
    )


def table(rows: list[dict[str, Any]]) -> str:
    """Mean error in percent and deviation; the paper's behind."""
    lines = [
        "| data | forest | " + " | ".join(f"{n} trees" for n in TREES) + " | paper |",
        "|---|---|" + "---|" * (len(TREES) + 1),
    ]
    for name, method in dict.fromkeys((row["data"], row["method"]) for row in rows):
        of = [row for row in rows if (row["data"], row["method"]) == (name, method)]
        cells = []
        for n_trees in TREES:
            errors = [row["errors"][str(n_trees)] for row in of if str(n_trees) in row["errors"]]
            spread = f" ± {statistics.stdev(errors):.2f}" if len(errors) > 1 else ""
            cells.append(f"{statistics.mean(errors):.2f}{spread} ({len(errors)})" if errors else "–")
        most = max(row["trees"] for row in of)
        if most not in TREES:
            error = min(row["errors"][str(most)] for row in of if row["trees"] == most)
            cells[-1] += f" ({error:.2f} with {most})"
        paper = " / ".join(str(a) for a in PAPER.get((name, method), ())) or "–"
        lines.append(f"| {name} | {method} | {' | '.join(cells)} | {paper} |")
    return "\n".join(lines)


def main() -> None:
    """Every run that is not there yet, then the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--trees", type=int, default=30, help="10 and 30 are looked at on the way")
    parser.add_argument("--methods", nargs="*", default=["CO2", "RF"], choices=["CO2", "RF", "OC1"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--votes", type=Path, help="folder for the votes of unfinished forests")
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--json", type=Path, default=RESULTS / "co2_table1.json")
    args = parser.parse_args()
    if args.threads:
        hforest.set_num_threads(args.threads)
    report = json.loads(args.json.read_text()) if args.json.exists() else {"runs": [], "search": {}}

    def write() -> None:
        args.json.write_text(json.dumps({**report, "machine": machine_text()}, indent=1) + "\n")

    for name in args.only:
        data = load(args.data, name)
        if args.search:
            kept = report["search"].get(name)
            trials = (
                None if kept is None else co2.Trials(*(np.array(kept[key]) for key in co2.Trials._fields))
            )

            def save(trials: co2.Trials, name: str = name) -> None:
                report["search"][name] = {key: a.tolist() for key, a in trials._asdict().items()}
                write()

            search(name, data, trials, save)
            continue
        for method in args.methods:
            for seed in range(args.runs):
                key = {"data": name, "method": method, "seed": seed, **SETTINGS[name]}
                row = next((row for row in report["runs"] if key.items() <= row.items()), None)
                if row is None:
                    row = {**key, "trees": 0, "errors": {}}
                    report["runs"].append(row)
                if row["trees"] < args.trees:
                    run(row, args.trees, data, args.votes, write)
    print(table(report["runs"]))


if __name__ == "__main__":
    main()
