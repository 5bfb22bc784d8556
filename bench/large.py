"""Times of growing on tables of 0.5, 1 and 5 million rows of 30 float32 columns, beside other libraries.

    python bench/large.py [--rows 500000 1000000 5000000] [--tables clusters skewed] [--trees 1 10]
        [--threads 1 2] [--only WORD ...] [--limit SECONDS] [--repeats 1] [--json FILE]
    python bench/large.py --table        # the record's table, without a measurement

`clusters` has ten classes in clusters of normal numbers. `skewed` is shaped like the records of KDD Cup
1999: flags, codes of few values, rates with most of their weight at 0 and 1, counts with heavy tails, and
23 classes from four rows in ten down to a few. Both are made here, with 50 000 rows more to test on.

Each measurement is a process of its own with a time limit. It first grows on 20 000 rows and tests the
forest, whose error must be below that of the largest class; then it grows on all rows. Its figures are the
wall time of growing, with what the library must do to take a NumPy array; the peak of memory that growing
takes in addition to the table, in multiples of the table; and the test error of the forest that was timed.
The bench ends with an error if a random forest of hforest has an error of more than two points above that of
scikit-learn.

Trees are grown to purity on bootstrap samples with five candidates per node, except for these: LightGBM and
XGBoost, in forest mode, grow a tree for each class by gradients, on 63 % of the rows. They have at most 4096
leaves (LightGBM) or 16 levels (XGBoost), since more would exhaust the memory. Their time per tree is for all
classes. scikit-learn-intelex, LightGBM, XGBoost and `binned` put values into at most 256 bins; the others are
exact. Libraries that are not installed are left out.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import forest_peers
import numpy as np
from common import RESULTS, machine_text, options_of, record, sparse
from grow import peak_resident

import hforest
from hforest import growth, tree

N_FEATURES, N_TEST, N_CHECK = 30, 50_000, 20_000
Table = tuple[np.ndarray, np.ndarray]


def clusters(n: int, rng: np.random.Generator) -> Table:
    """Returns ten classes of two clusters each in 12 of 30 columns, mixed."""
    n_informative, n_classes = 12, 10
    centre = rng.choice([-1.0, 1.0], (2 * n_classes, n_informative)).astype(np.float32)
    mix = rng.uniform(-0.6, 0.6, (n_informative, n_informative)).astype(np.float32)
    columns = rng.permutation(N_FEATURES)[:n_informative]
    cluster = rng.integers(0, 2 * n_classes, n)
    x = rng.standard_normal((n, N_FEATURES), np.float32)
    x[:, columns] = centre[cluster] + x[:, columns] @ mix
    return x, (cluster % n_classes).astype(np.int32)


def skewed(n: int, rng: np.random.Generator) -> Table:
    """Returns 23 classes of unequal sizes; flags, codes, rates, heavy-tailed counts depend on them."""
    n_classes = 23
    share = 0.6 ** np.arange(n_classes)
    y = rng.choice(n_classes, n, p=share / share.sum()).astype(np.int32)
    y[: 20 * n_classes] = (
        np.arange(20 * n_classes) % n_classes
    )  # the first rows are for training: each class is there
    x = np.empty((n, N_FEATURES), np.float32)
    kinds = ["flag"] * 7 + ["code"] * 6 + ["rate"] * 9 + ["count"] * 8
    value: np.ndarray
    for f, kind in enumerate(kinds):
        usual = rng.random(n) < 0.85  # the others are alike in all classes
        if kind == "flag":
            value = rng.random(n) < np.where(usual, rng.choice([0.001, 0.02, 0.98], n_classes)[y], 0.01)
        elif kind == "code":
            n_codes = int(rng.choice([3, 11, 66]))
            value = np.where(usual, rng.integers(0, n_codes, n_classes)[y], rng.zipf(1.6, n) % n_codes)
        elif kind == "rate":
            value = np.where(usual, rng.choice([0, 0, 0.5, 1], n_classes)[y], rng.beta(0.2, 0.2, n))
            value = np.round(np.clip(value + 0.03 * rng.standard_normal(n), 0, 1), 2)
        else:
            scale = np.exp(rng.uniform(-2, 8, n_classes))[y]
            value = np.floor(np.where(usual, scale, 1) * np.exp(rng.standard_normal(n) * 1.5))
        x[:, f] = value
    return x, y


TABLES: dict[str, Callable[[int, np.random.Generator], Table]] = {"clusters": clusters, "skewed": skewed}


# ---------------------------------------------------------------------------------------------- forests


def _ours(
    grow: Callable[..., tree.Forest], max_bins: int | None, x: Any, y: Any, n_trees: int
) -> forest_peers.Labels:
    forest = grow(growth.samples(x, max_bins=max_bins), y, n_trees, rng=0)
    return lambda samples: tree.predict(forest, samples).argmax(axis=1)


def _lightgbm(x: Any, y: Any, n_trees: int, threads: int) -> forest_peers.Labels:
    import lightgbm

    settings = {
        "objective": "multiclass", "num_class": int(y.max()) + 1, "boosting": "rf",
        "bagging_fraction": 0.632, "bagging_freq": 1, "feature_fraction_bynode": N_FEATURES**-0.5,
        "max_depth": -1, "num_leaves": 4096, "min_data_in_leaf": 1,
        "min_sum_hessian_in_leaf": 0.0, "verbose": -1, "num_threads": threads,
    }  # fmt: skip
    model: Any = lightgbm.train(settings, lightgbm.Dataset(x, y), n_trees)
    return lambda samples: model.predict(samples).argmax(axis=1)


def _xgboost(x: Any, y: Any, n_trees: int, threads: int) -> forest_peers.Labels:
    import xgboost

    settings = {
        "objective": "multi:softprob", "num_class": int(y.max()) + 1, "num_parallel_tree": n_trees,
        "max_depth": 16, "subsample": 0.632, "colsample_bynode": N_FEATURES**-0.5, "eta": 1.0, "lambda": 0.0,
        "min_child_weight": 0, "max_bin": 256, "tree_method": "hist", "nthread": threads,
    }  # fmt: skip
    model = xgboost.train(settings, xgboost.DMatrix(x, y, nthread=threads), 1)
    return lambda samples: model.predict(xgboost.DMatrix(samples)).argmax(axis=1)


OURS: dict[str, Callable[..., forest_peers.Labels]] = {
    "exact": partial(_ours, growth.grow, None),
    "binned": partial(_ours, growth.grow, 256),
    "sparse": partial(_ours, sparse, None),
}
MODULES = {
    "scikit-learn": "sklearn", "scikit-learn-intelex": "sklearnex", "ydf": "ydf", "ydf, oblique": "ydf",
    "lightgbm": "lightgbm", "xgboost": "xgboost",
}  # fmt: skip
"""Peers, and the module that each needs."""
PEERS = {
    "exact": ["scikit-learn", "ydf"],
    "binned": ["scikit-learn", "scikit-learn-intelex", "lightgbm", "xgboost"],
    "sparse": ["ydf, oblique"],
}
"""Peers whose time a forest of hforest is compared with."""


def grower(name: str, x: Any, y: Any, n_trees: int, threads: int) -> Callable[[], forest_peers.Labels]:
    """Returns a call that grows a forest and returns a function from samples to classes."""
    if name in OURS:
        return partial(OURS[name], x, y, n_trees)
    if name in ("lightgbm", "xgboost"):
        return partial(_lightgbm if name == "lightgbm" else _xgboost, x, y, n_trees, threads)
    return forest_peers.growers(x, y, n_trees, threads, ())[name]


# -------------------------------------------------------------------------------------------- measuring


def forget_peak() -> None:
    """Resets the memory peak of this process, if the system can."""
    path = Path("/proc/self/clear_refs")
    if path.exists():
        path.write_text("5")


def measure(name: str, folder: Path, n: int, n_trees: int, threads: int) -> dict[str, Any]:
    """Returns one measurement, taken in a separate process."""
    hforest.set_num_threads(threads)
    x, y = np.fromfile(folder / "x", np.float32).reshape(-1, N_FEATURES), np.fromfile(folder / "y", np.int32)
    x, y, x_test, y_test = x[:n], y[:n], x[n:], y[n:]
    largest = np.bincount(y_test).max() / len(y_test)
    small = grower(name, x[:N_CHECK], y[:N_CHECK], n_trees, threads)()
    error = float((small(x_test) != y_test).mean())
    if error >= 1 - largest:
        return {"wrong": error}
    del small
    forget_peak()
    before = peak_resident()
    begin = time.perf_counter()
    labels = grower(name, x, y, n_trees, threads)()
    seconds = time.perf_counter() - begin
    more = peak_resident() - before
    return {
        "seconds": seconds, "more_bytes": more, "input_bytes": x.nbytes,
        "error": float((labels(x_test) != y_test).mean()),
    }  # fmt: skip


def in_a_process(name: str, folder: Path, n: int, n_trees: int, threads: int, limit: float) -> dict[str, Any]:
    """Returns the measurement, or the reason why it is missing."""
    command = [sys.executable, __file__, "--measure", name, str(folder), str(n), str(n_trees), str(threads)]
    # Pools of threads that a library starts by itself.
    environment = {**os.environ, **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment)
    except subprocess.TimeoutExpired:
        return {"limit": limit}
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
        return {"failed": last[0]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def least(names: list[str], repeats: int, *settings: Any) -> dict[str, dict[str, Any]]:
    """Measures each forest in turn, and returns the minimum times."""
    best: dict[str, dict[str, Any]] = {}
    for _ in range(repeats):
        for name in names:
            before = best.get(name)
            if before is None or "seconds" in before:  # a forest that failed is not tried again
                found = in_a_process(name, *settings)
                if before is None or found.get("seconds", np.inf) < before["seconds"]:
                    best[name] = found
    return best


def check(best: dict[str, dict[str, Any]]) -> None:
    """Ends the bench where a forest is worse than its peer, or than the largest class alone."""
    for name, found in best.items():
        if "wrong" in found:
            raise SystemExit(f"{name}: error {found['wrong']:.4f}, no better than the largest class")
    expected = best.get("scikit-learn", {}).get("error", 1.0)
    for name in ("exact", "binned"):
        error = best.get(name, {}).get("error", 0.0)
        if error > expected + 0.02:
            raise SystemExit(f"{name}: error {error:.4f} against {expected:.4f} of scikit-learn")


def against(name: str, best: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Returns the times of peers relative to that of hforest."""
    taken = {peer: found["seconds"] for peer, found in best.items() if "seconds" in found}
    return {
        peer: taken[peer] / taken[name] for peer in PEERS.get(name, []) if peer in taken and name in taken
    }


def outcome(row: dict[str, Any]) -> str:
    """Returns the result of a measurement as text."""
    if "seconds" not in row:
        return f"over {row['limit']:g} s" if "limit" in row else f"failed: {row['failed']}"
    against = ", ".join(f"{ratio:.1f}x {peer}" for peer, ratio in row["against"].items())
    memory = row["more_bytes"] / row["input_bytes"]
    each, error = row["seconds"] / row["trees"], 100 * row["error"]
    return f"{each:8.2f} s per tree  {memory:5.1f}x memory  error {error:6.2f} %  {against}"


def installed() -> list[str]:
    """Names of the forests that can be grown here; says which are left out."""
    names = list(OURS)
    for peer, module in MODULES.items():
        try:
            __import__(module)
        except ImportError:
            print(f"{peer}: left out, not installed")
        else:
            names.append(peer)
    return names


def markdown(rows: list[dict[str, Any]]) -> str:
    """Returns the table: seconds per tree, multiples of the table's memory, test error."""
    keys = sorted({(row["table"], row["rows"], row["trees"], row["threads"]) for row in rows})
    lines = ["| forest | table | rows | trees | threads | s per tree | memory | error |", "|---" * 8 + "|"]
    for key in keys:
        for row in rows:
            if (row["table"], row["rows"], row["trees"], row["threads"]) == key:
                n_rows = f"{row['rows'] / 1e6:g} M"
                cells = [row["forest"], key[0], n_rows, str(key[2]), str(key[3])]
                if "seconds" in row:
                    cells += [
                        f"{row['seconds'] / row['trees']:.2f}",
                        f"{row['more_bytes'] / row['input_bytes']:.1f}x",
                        f"{100 * row['error']:.2f} %",
                    ]
                else:
                    cells += [outcome(row), "", ""]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Runs the command."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rows", nargs="+", type=int, default=[500_000, 1_000_000, 5_000_000])
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--trees", nargs="+", type=int, default=[1, 10])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument(
        "--only", nargs="+", metavar="WORD", help="measure forests whose name contains one of the words"
    )
    parser.add_argument(
        "--limit", type=float, default=1800, help="time limit of a process in seconds (default: %(default)s)"
    )
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--table", action="store_true", help="print the table of the record")
    parser.add_argument("--measure", nargs=5, help=argparse.SUPPRESS)
    options = options_of(parser, "--rows 3000 --trees 1 --threads 1 --only exact")
    if options.measure:
        name, folder, *numbers = options.measure
        print(json.dumps(measure(name, Path(folder), *map(int, numbers))))
        return 0
    if options.table:
        print(markdown(json.loads((RESULTS / "large.json").read_text())["rows"]))
        return 0
    print(machine_text())
    names = installed()
    if options.only:
        names = [name for name in names if any(word in name for word in options.only)]
    rows: list[dict[str, Any]] = []
    for table, n in itertools.product(options.tables, options.rows):
        with tempfile.TemporaryDirectory() as folder:
            x, y = TABLES[table](n + N_TEST, np.random.default_rng(0))
            x.tofile(Path(folder) / "x")
            y.tofile(Path(folder) / "y")
            del x, y
            for n_trees, threads in itertools.product(options.trees, options.threads):
                print(f"\n{table}, {n} rows, {n_trees} trees, {threads} threads", flush=True)
                settings = (Path(folder), n, n_trees, threads, options.limit)
                best = least(names, options.repeats, *settings)
                check(best)
                key = {"table": table, "rows": n, "trees": n_trees, "threads": threads}
                for name, found in best.items():
                    rows.append({**key, "forest": name, "against": against(name, best), **found})
                    print(f"{name:22} {outcome(rows[-1])}", flush=True)
                if options.json:  # after each group, so that a run that ends early has a record
                    record(options.json, rows, command=" ".join(sys.argv))
    return 0


if __name__ == "__main__":
    sys.exit(main())
