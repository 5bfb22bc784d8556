"""Growing forests: random forests beside scikit-learn's, oblique and manifold forests beside them.

    python bench/grow.py [--data DIR] [--sets synthetic letter usps mnist] [--threads 1] [--json FILE]

Trees are grown to purity. Every forest's test error is printed beside its time, and a random forest whose
error is worse than scikit-learn's by more than two points ends the bench. DIR holds letter.npz, usps.npz
and mnist.npz; sets without their file are left out.
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import machine_text, record

import hforest
from hforest import classic, manifold, tree

SETS = ("synthetic", "letter", "usps", "mnist")
Data = tuple[Any, Any, Any, Any]


def synthetic() -> Data:
    """Ten classes of two clusters each in 20 of 100 columns, mixed; a fifth to test on."""
    rng = np.random.default_rng(0)
    n, n_features, n_informative, n_classes = 25000, 100, 20, 10
    centre = rng.choice([-1.0, 1.0], (2 * n_classes, n_informative))
    cluster = rng.integers(0, 2 * n_classes, n)
    informative = centre[cluster] + rng.normal(size=(n, n_informative)) @ rng.uniform(
        -1, 1, (n_informative,) * 2
    )
    x = rng.normal(size=(n, n_features))
    x[:, rng.permutation(n_features)[:n_informative]] = informative
    x, y = x.astype(np.float32), (cluster % n_classes).astype(np.int32)
    return x[:20000], y[:20000], x[20000:], y[20000:]


def load(name: str, folder: Path | None) -> Data | None:
    """Training and test samples of a set, or None where its file is not there."""
    if name == "synthetic":
        return synthetic()
    path = folder / f"{name}.npz" if folder else None
    if path is None or not path.exists():
        print(f"{name}: left out, {path or 'no --data'} is not there")
        return None
    file = np.load(path)
    if name == "letter":
        x, y = file["x"].astype(np.float32), file["y"].astype(np.int32)
        return x[:15000], y[:15000], x[15000:], y[15000:]
    parts = [file[key] for key in ("x_train", "y_train", "x_test", "y_test")]
    x, y, x_test, y_test = parts
    n = 10000 if name == "mnist" else len(x)
    return (
        x[:n].reshape(n, -1).astype(np.float32), y[:n].astype(np.int32),
        x_test.reshape(len(x_test), -1).astype(np.float32), y_test.astype(np.int32),
    )  # fmt: skip


def growers(name: str, data: Data, n_trees: int, threads: int) -> dict[str, Callable[[], tree.Forest]]:
    """What to time; each call returns a forest."""
    x, y, _, _ = data
    calls: dict[str, Callable[[], tree.Forest]] = {
        "exact": lambda: classic.grow(x, y, n_trees, rng=0),
        "binned": lambda: classic.grow(x, y, n_trees, splitter="binned", rng=0),
        "completely random": lambda: classic.grow_random(x, y, n_trees, rng=0),
        "sparse": lambda: manifold.grow(x, y, n_trees, projection="sparse", rng=0),
    }
    if name in ("usps", "mnist"):
        side = int(x.shape[1] ** 0.5)
        for most in (2, 3, 8):
            calls[f"patches to {most}x{most}"] = partial(
                manifold.grow, x, y, n_trees, shape=(side, side), patch_max=most, rng=0
            )
    try:
        from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
    except ImportError:
        return calls

    def theirs(model: Any) -> tree.Forest:
        return tree.from_sklearn(model(n_trees, n_jobs=threads, random_state=0).fit(x, y))

    calls["scikit-learn"] = partial(theirs, RandomForestClassifier)
    calls["scikit-learn, extra trees"] = partial(theirs, ExtraTreesClassifier)
    return calls


def run(name: str, data: Data, options: argparse.Namespace, threads: int) -> list[dict[str, Any]]:
    """Every grower on one set, in turn, `repeats` times; the least time counts."""
    _, _, x_test, y_test = data
    calls = growers(name, data, options.trees, threads)
    best: dict[str, float] = dict.fromkeys(calls, float("inf"))
    error: dict[str, float] = {}
    nodes: dict[str, int] = {}
    for _ in range(options.repeats):
        for label, call in calls.items():
            begin = time.perf_counter()
            forest = call()
            best[label] = min(best[label], time.perf_counter() - begin)
            error[label] = float((tree.predict(forest, x_test).argmax(axis=1) != y_test).mean())
            nodes[label] = len(forest.feature)
    rival = best.get("scikit-learn", float("nan"))
    rows: list[dict[str, Any]] = []
    for label in calls:
        if label in ("exact", "binned") and error[label] > error.get("scikit-learn", 1.0) + 0.02:
            raise SystemExit(f"{name}, {label}: error {error[label]:.4f} against {error['scikit-learn']:.4f}")
        row = {
            "set": name,
            "rung": label,
            "threads": threads,
            "trees": options.trees,
            "seconds": best[label],
            "against_sklearn": rival / best[label],
            "error": error[label],
            "nodes": nodes[label],
        }
        rows.append(row)
        print(
            f"{name:10} {label:26} {best[label]:8.2f} s {rival / best[label]:7.1f}x  error "
            f"{100 * error[label]:6.2f} %  {nodes[label]:9d} nodes",
            flush=True,
        )
    return rows


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    print(machine_text())
    rows: list[dict[str, Any]] = []
    for name in options.sets:
        data = load(name, options.data)
        for threads in options.threads if data is not None else ():
            hforest.set_num_threads(threads)
            assert data is not None
            rows += run(name, data, options, threads)
    if options.json:
        record(options.json, rows, command=" ".join(sys.argv))
    return 0


if __name__ == "__main__":
    sys.exit(main())
