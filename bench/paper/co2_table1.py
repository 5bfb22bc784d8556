"""p2 Table I: CO2 forests beside random forests (and OC1 forests) of the same size, on real data.

    python bench/paper/co2_table1.py --data DIR [--only letter usps ...] [--trees 10 30 1000] [--runs 5]
        [--methods CO2 RF OC1]
    python bench/paper/co2_table1.py --data DIR --search [--only ...]

DIR holds letter, usps, mnist, connect4, isolet, optdigits and shuttle as .npz. `--search` holds out 20 % of
the training samples and compares forests of 30 trees (10 for mnist) over bounds and steps, as the paper does;
SETTINGS are what it chose. A table's cell is the mean test error of the runs, with their deviation; a forest
of 1000 trees is grown in parts of 50, of which only the votes are kept.

A run is one seed of one forest. Its error is written as soon as it is known, and started again the script
goes on with the rest.
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
SETTINGS: dict[str, dict[str, Any]] = {
    "letter": {"nu": 4.0, "eta": 0.1, "q": 5},
    "usps": {"nu": 1.0, "eta": 0.01, "q": 28},
    "mnist": {"nu": 10.0, "eta": 0.01, "q": 54},
    "connect4": {"nu": 10.0, "eta": 0.01, "q": 18},
    "isolet": {"nu": 10.0, "eta": 0.003, "q": 47},
    "optdigits": {"nu": 10.0, "eta": 0.01, "q": 12},
    "shuttle": {"nu": 43.0, "eta": 0.1, "q": 4},
}
GRID: dict[str, Any] = {"nu": [1.0, 4.0, 10.0, 43.0], "eta": [0.1, 0.03, 0.01, 0.003]}
PAPER = {
    ("letter", "CO2"): (3.2, 2.3, 1.8),
    ("letter", "RF"): (6.6, 4.7, 3.7),
    ("usps", "CO2"): (5.8, 5.9, 5.5),
    ("mnist", "CO2"): (2.5, 2.0, 1.9),
    ("connect4", "CO2"): (17.1, 15.7, 14.7),
}
"""Test error in percent with 10, 30 and 1000 trees."""
TREES = (10, 30, 1000)


def standardised(x: np.ndarray, x_test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Zero mean and unit deviation, of the training samples."""
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    deviation[deviation == 0] = 1
    return (x - mean) / deviation, (x_test - mean) / deviation


def load(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test samples; pixels and counts in [0, 1], measurements standardised."""
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
    if name in ("letter", "shuttle"):
        x, x_test = standardised(x, x_test)
    elif name in ("mnist", "usps", "optdigits"):
        low, high = {"mnist": (0, 255), "usps": (-1, 1), "optdigits": (0, 16)}[name]
        x, x_test = ((a - low) / (high - low) for a in (x, x_test))
    x, x_test = (np.ascontiguousarray(a, np.float32) for a in (x, x_test))
    return x, y.astype(np.int32), x_test, y_test.astype(np.int32)


def run(name: str, method: str, n_trees: int, seed: int, data: Any) -> dict[str, Any]:
    """Error and time of one forest."""
    x, y, x_test, y_test = data
    settings, seconds, total = SETTINGS[name], 0.0, np.zeros(())
    for first in range(0, n_trees, PART):
        count, rng = min(PART, n_trees - first), 1000 * seed + first // PART
        begin = time.perf_counter()
        if method == "CO2":
            forest = co2.grow(x, y, count, rng=rng, **settings)
        elif method == "OC1":
            forest = co2.grow(x, y, count, rng=rng, q=settings["q"], splitter="oc1")
        else:
            forest = classic.grow(x, y, count, criterion="entropy", max_features=settings["q"], rng=rng)
        seconds += time.perf_counter() - begin
        total = total + count * tree.predict(forest, x_test).astype(np.float64)
        print(f"{name} {method}: {first + count} of {n_trees} trees, {seconds:.0f} s", file=sys.stderr)
    error = 100 * float((total.argmax(axis=1) != y_test).mean())
    return {"error": error, "seconds": seconds, "threads": hforest.get_num_threads()}


def search(name: str, data: Any, trials: co2.Trials | None, save: Any) -> co2.Trials:
    """The paper's search over bounds and steps."""
    x, y = data[:2]

    def progress(done: int, n_trials: int, trials: co2.Trials) -> None:
        print(f"{name}: {done} of {n_trials}", *(a[-1] for a in trials), file=sys.stderr)
        save(trials)

    return co2.search(
        x, y, 10 if name == "mnist" else 30, q=[SETTINGS[name]["q"]], trials=trials, progress=progress, **GRID
    )


def table(rows: list[dict[str, Any]]) -> str:
    """Mean error in percent and deviation; the paper's behind."""
    lines = [
        "| data | forest | " + " | ".join(f"{n} trees" for n in TREES) + " | paper |",
        "|---|---|" + "---|" * (len(TREES) + 1),
    ]
    for name, method in dict.fromkeys((row["data"], row["method"]) for row in rows):
        cells = []
        for n_trees in TREES:
            of = [r["error"] for r in rows if (r["data"], r["method"], r["trees"]) == (name, method, n_trees)]
            spread = f" ± {statistics.stdev(of):.2f}" if len(of) > 1 else ""
            cells.append(f"{statistics.mean(of):.2f}{spread} ({len(of)})" if of else "–")
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
    parser.add_argument("--trees", nargs="*", type=int, default=[10, 30], choices=TREES)
    parser.add_argument("--methods", nargs="*", default=["CO2", "RF"], choices=["CO2", "RF", "OC1"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int)
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
        for n_trees in args.trees:
            for method in args.methods:
                for seed in range(1 if n_trees == 1000 else args.runs):
                    key = {"data": name, "method": method, "trees": n_trees, "seed": seed}
                    if any(key.items() <= row.items() for row in report["runs"]):
                        continue
                    report["runs"].append({**key, **SETTINGS[name], **run(name, method, n_trees, seed, data)})
                    write()
    print(table(report["runs"]))


if __name__ == "__main__":
    main()
