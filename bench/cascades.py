"""Growing a cascade, beside the same levels of scikit-learn's forests and, where installed, deep-forest.

    python bench/cascades.py [--data DIR] [--trees 50] [--levels 2] [--threads 1] [--json FILE]

The published level: four random and four completely random forests, 3 folds, class vectors of the folds
beside the input. scikit-learn's random forests are bagged, its ExtraTrees draw one feature and a random cut.
All grow the same number of levels, and must be about as accurate on the test samples, before their times are
compared. With --data DIR, which holds letter.npz, 16 000 samples are learned from; else the digits that are
built in.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import machine_text, record

import hforest
from hforest import cascade, classic
from hforest.demo import load_digits

FOLDS = 3


def load(folder: Path | None) -> tuple[Any, Any, Any, Any]:
    """Training and test samples."""
    if folder is not None:
        file = np.load(folder / "letter.npz")
        x, y = file["x"].astype(np.float32), file["y"].astype(np.int32)
        return x[:16_000], y[:16_000], x[16_000:], y[16_000:]
    data = load_digits()
    x, x_test = data.x_train.astype(np.float32), data.x_test.astype(np.float32)
    return x, data.y_train.astype(np.int32), x_test, data.y_test.astype(np.int32)


def ours(data: Any, n_trees: int, n_levels: int, threads: int) -> float:
    """Accuracy of `hforest.cascade`, all levels grown and the last one asked."""
    x, y, x_test, y_test = data
    level = [partial(classic.grow, n_trees=n_trees)] * 4 + [partial(classic.grow_random, n_trees=n_trees)] * 4
    grown = cascade.grow(x, y, level, max_levels=n_levels, patience=n_levels, rng=0)
    return float((cascade.predict(grown, x_test).argmax(axis=1) == y_test).mean())


def with_sklearn(data: Any, n_trees: int, n_levels: int, threads: int) -> float:
    """The same with scikit-learn's forests."""
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
    """The deep-forest package (21), as it comes but for the numbers of trees, forests and levels."""
    from deepforest import CascadeForestClassifier

    x, y, x_test, y_test = data
    model = CascadeForestClassifier(
        n_estimators=4, n_trees=n_trees, max_layers=n_levels, n_tolerant_rounds=n_levels, n_jobs=threads,
        random_state=0, verbose=0,
    )  # fmt: skip
    model.fit(x, y)
    return float((model.predict(x_test).ravel() == y_test).mean())


def main() -> None:
    """Each once, in turn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--trees", type=int, default=50)
    parser.add_argument("--levels", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    hforest.set_num_threads(options.threads)
    data = load(options.data)
    print(machine_text())
    rows: list[dict[str, Any]] = []
    peers: dict[str, Callable[..., float]] = {
        "hforest": ours,
        "sklearn": with_sklearn,
        "deep-forest": with_deep_forest,
    }
    for name, run in peers.items():
        begin = time.perf_counter()
        try:
            accuracy = run(data, options.trees, options.levels, options.threads)
        except ImportError as error:
            print(f"{name}: not installed ({error})")
            continue
        seconds = time.perf_counter() - begin
        rows.append({"rung": name, "seconds": seconds, "accuracy": accuracy})
        slower = seconds / rows[0]["seconds"]
        print(f"{name}: {seconds:.1f} s, {100 * accuracy:.2f} % right, {slower:.1f} times hforest's time")
    best = max(row["accuracy"] for row in rows)
    assert min(row["accuracy"] for row in rows) > best - 0.02, "the cascades are not equally good"
    if options.json is not None:
        record(
            options.json, rows, threads=options.threads, trees=options.trees, levels=options.levels,
            samples=len(data[0]),
        )  # fmt: skip


if __name__ == "__main__":
    main()
