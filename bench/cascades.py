"""Times of growing a cascade, beside the same levels with scikit-learn and, if installed, deep-forest.

    python bench/cascades.py [--data DIR] [--trees 50] [--levels 2] [--threads 1] [--repeats 1] [--json FILE]

The published level: four random and four completely random forests, 3 folds, class vectors of the folds
beside the input. scikit-learn's random forests are bootstrapped; its ExtraTrees sample one feature and a
random threshold per node. All libraries grow the same number of levels. Before times are compared, accuracies
on the test samples must be similar. A time is that of growing the cascade and of classifying the test
samples, the minimum of --repeats taken in turn. The data are the built-in digits and, with --data DIR that
holds letter.npz, the 16 000 training samples of letter.

With --json, an existing file keeps rows with other data, numbers of trees, levels and threads.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import machine_text, options_of, record

import hforest
from hforest import cascade
from hforest.demo import load_digits

FOLDS = 3


def load(name: str, folder: Path | None) -> tuple[Any, Any, Any, Any]:
    """Returns training and test samples."""
    if name == "letter":
        assert folder is not None
        file = np.load(folder / "letter.npz")
        x, y = file["x"].astype(np.float32), file["y"].astype(np.int32)
        return x[:16_000], y[:16_000], x[16_000:], y[16_000:]
    data = load_digits()
    x, x_test = data.x_train.astype(np.float32), data.x_test.astype(np.float32)
    return x, data.y_train.astype(np.int32), x_test, data.y_test.astype(np.int32)


def ours(data: Any, n_trees: int, n_levels: int, threads: int) -> float:
    """Returns the accuracy of the best level of `hforest.cascade`; all levels are grown."""
    x, y, x_test, y_test = data
    level = list(cascade.default_forests(n_trees))
    grown = cascade.grow(x, y, level, max_levels=n_levels, patience=n_levels, rng=0)
    return float((cascade.predict(grown, x_test).argmax(axis=1) == y_test).mean())


def with_sklearn(data: Any, n_trees: int, n_levels: int, threads: int) -> float:
    """Returns the same accuracy with scikit-learn's forests."""
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
    from sklearn.model_selection import StratifiedKFold

    x, y, x_test, y_test = data
    now, now_test = x, x_test
    p_test = np.zeros(())
    for _ in range(n_levels):
        vectors, vectors_test = [], []
        for i in range(8):
            own = np.zeros((len(x), int(y.max()) + 1), np.float32)
            test = np.zeros((len(x_test), own.shape[1]), np.float32)
            split = StratifiedKFold(FOLDS, shuffle=True, random_state=i).split(now, y)
            for k, (learn, held) in enumerate(split):
                kind: Any = RandomForestClassifier if i < 4 else partial(ExtraTreesClassifier, max_features=1)
                model = kind(n_trees, n_jobs=threads, random_state=FOLDS * i + k).fit(now[learn], y[learn])
                own[held] = model.predict_proba(now[held])
                test += model.predict_proba(now_test) / FOLDS
            vectors.append(own)
            vectors_test.append(test)
        p_test = np.mean(vectors_test, axis=0)
        now, now_test = np.hstack([x, *vectors]), np.hstack([x_test, *vectors_test])
    return float((p_test.argmax(axis=1) == y_test).mean())


def with_deep_forest(data: Any, n_trees: int, n_levels: int, threads: int) -> float:
    """Returns the same for deep-forest (21): its defaults except numbers of trees, forests and levels."""
    from deepforest import CascadeForestClassifier

    x, y, x_test, y_test = data
    model = CascadeForestClassifier(
        n_estimators=4, n_trees=n_trees, max_layers=n_levels, n_tolerant_rounds=n_levels, n_jobs=threads,
        random_state=0, verbose=0,
    )  # fmt: skip
    model.fit(x, y)
    return float((model.predict(x_test).ravel() == y_test).mean())


PEERS: dict[str, Callable[..., float]] = {
    "hforest": ours,
    "sklearn": with_sklearn,
    "deep-forest": with_deep_forest,
}


def compare(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures the minimum time and the accuracy of every installed library."""
    data = load(name, options.data)
    rows: dict[str, dict[str, Any]] = {}
    for _ in range(options.repeats):
        for rung, run in PEERS.items():
            begin = time.perf_counter()
            try:
                accuracy = run(data, options.trees, options.levels, options.threads)
            except ImportError:
                continue
            seconds = min(time.perf_counter() - begin, rows.get(rung, {}).get("seconds", np.inf))
            rows[rung] = {
                "data": name,
                "rung": rung,
                "samples": len(data[0]),
                "trees": options.trees,
                "levels": options.levels,
                "threads": options.threads,
                "seconds": seconds,
                "accuracy": accuracy,
            }
    for rung, row in rows.items():
        slower = row["seconds"] / rows["hforest"]["seconds"]
        print(
            f"{name}, {rung}: {row['seconds']:.1f} s, {100 * row['accuracy']:.2f} % right, "
            f"{slower:.1f} times hforest's time",
            flush=True,
        )
    best = max(row["accuracy"] for row in rows.values())
    assert min(row["accuracy"] for row in rows.values()) > best - 0.02, "the cascades are not equally good"
    return list(rows.values())


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--only", nargs="+", choices=("digits", "letter"))
    parser.add_argument("--trees", type=int, default=50)
    parser.add_argument("--levels", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = options_of(parser, "--trees 2 --levels 1")
    hforest.set_num_threads(options.threads)
    print(machine_text())
    names = options.only or (["digits"] if options.data is None else ["digits", "letter"])
    rows = [row for name in names for row in compare(name, options)]
    if options.json is None:
        return
    about = ("data", "trees", "levels", "threads")
    mine = {tuple(row[name] for name in about) for row in rows}
    others = json.loads(options.json.read_text())["rows"] if options.json.exists() else []
    record(options.json, [row for row in others if tuple(row[name] for name in about) not in mine] + rows)


if __name__ == "__main__":
    main()
