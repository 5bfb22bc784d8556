"""Cascades on letter, adult, yeast and, with scanning, MNIST, beside the published accuracies of gcForest.

    python bench/paper/cascade.py --data DIR [--only letter adult yeast mnist] [--trees N] [--runs 1]

The published level: four random forests and four completely random ones of 500 trees, 3 folds, growth until
validation no longer improves; fewer trees (TREES) where one thread would take longer than some ten minutes.
letter: 16 000 / 4000. adult: the official split; categorical columns as indicators; random trees with leaves
of at least 5 samples, chosen by the validation accuracy of small cascades. yeast: 1038 / 446 at random.
mnist: the first 10 000 training images, the 10 000 official test images; windows of 7, 10 and 14 with stride
2 (the paper's 1 would be four times as much), two forests of 50 trees each that learn from 10 windows of each
image; beside it the same cascade without scanning.

A run is written as soon as it is known, and started again the script goes on with the rest.
"""

import argparse
import json
import resource
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from common import RESULTS, machine_text

import hforest
from hforest import cascade, classic

PUBLISHED = {"letter": 97.40, "adult": 86.40, "yeast": 63.45}
TREES = {"letter": 500, "adult": 200, "yeast": 500, "mnist": 100, "mnist scanned": 100}
LEAF = {"adult": 5}
Data = tuple[Any, Any, Any, Any]


def indicators(x: Any, categorical: Any, n_levels: Any) -> Any:
    """Categorical columns as one column a level; missing ones have none."""
    levels = dict(zip(categorical.tolist(), n_levels.tolist(), strict=True))
    parts = [
        x[:, f, None] == np.arange(levels[f]) if f in levels else x[:, f, None] for f in range(x.shape[1])
    ]
    return np.concatenate([part.astype(np.float32) for part in parts], axis=1)


def load(name: str, seed: int, folder: Path) -> Data:
    """Training and test samples."""
    file = np.load(folder / f"{name.split()[0]}.npz")
    if name == "letter":
        x, y = file["x"].astype(np.float32), file["y"].astype(np.int32)
        return x[:16000], y[:16000], x[16000:], y[16000:]
    if name == "yeast":
        order = np.random.default_rng(seed).permutation(len(file["x"]))
        x, y = file["x"][order].astype(np.float32), file["y"][order].astype(np.int32)
        return x[:1038], y[:1038], x[1038:], y[1038:]
    x, y, x_test, y_test = (file[key] for key in ("x_train", "y_train", "x_test", "y_test"))
    if name == "adult":
        x, x_test = (indicators(a, file["categorical"], file["n_levels"]) for a in (x, x_test))
    else:
        x, y = x[:10_000].reshape(10_000, -1).astype(np.float32), y[:10_000]
        x_test = x_test.reshape(len(x_test), -1).astype(np.float32)
    return x, y.astype(np.int32), x_test, y_test.astype(np.int32)


def peak_mb() -> float:
    """The most memory that this process has held since the last call."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def level(n_trees: int, leaf: int) -> list[Any]:
    """The published level; whole numbers and bins make exact growth and binned one the same or nearly so."""
    random = partial(classic.grow, n_trees=n_trees, min_samples_leaf=leaf, splitter="binned")
    completely = partial(classic.grow_random, n_trees=n_trees)
    return [random] * 4 + [completely] * 4


def run(name: str, seed: int, n_trees: int, folder: Path) -> dict[str, Any]:
    """Accuracy and time of one cascade."""
    x, y, x_test, y_test = load(name, seed, folder)
    peak_mb()
    begin = time.perf_counter()
    grains, test = [x], [x_test]
    folds = min(3, int(np.bincount(y)[np.bincount(y) > 0].min()))
    if name == "mnist scanned":
        grains, test = [], []
        few = [partial(classic.grow, n_trees=50, splitter="binned"), partial(classic.grow_random, n_trees=50)]
        for size in (7, 10, 14):
            scanner, vectors = cascade.grow_scanner(
                x, y, (28, 28), size, few, stride=2, max_windows=10, rng=seed + size
            )
            grains.append(vectors)
            test.append(cascade.scan_vectors(scanner, x_test))
            del scanner  # its trees take more memory than all the rest
            print(f"windows of {size}: {vectors.shape[1]} numbers an image", flush=True)

    def progress(state: cascade.Cascade) -> None:
        print(f"{name}, level {len(state.levels)}: validation {100 * state.scores[-1]:.2f} %", flush=True)

    forests = level(n_trees, LEAF.get(name, 1))
    grown = cascade.grow(grains, y, forests, folds=folds, progress=progress, rng=seed)
    seconds = time.perf_counter() - begin
    p = cascade.predict(grown, test)
    return {
        "accuracy": 100 * float((p.argmax(axis=1) == y_test).mean()),
        "levels": len(grown.levels),
        "seconds": seconds,
        "validation": [100 * score for score in grown.scores],
        "peak_mb": peak_mb(),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Published and measured accuracy in percent."""
    lines = [
        "| data | published | here | runs | trees a forest | levels | seconds a run | peak MiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, n_trees in dict.fromkeys((row["data"], row["trees"]) for row in rows):
        some = [row for row in rows if (row["data"], row["trees"]) == (name, n_trees)]
        found = [row["accuracy"] for row in some]
        spread = f" ± {statistics.stdev(found):.2f}" if len(found) > 1 else ""
        levels = ", ".join(str(row["levels"]) for row in some)
        seconds = statistics.mean(row["seconds"] for row in some)
        lines.append(
            f"| {name} | {PUBLISHED.get(name, '–')} | {statistics.mean(found):.2f}{spread} | {len(found)} "
            f"| {n_trees} | {levels} | {seconds:.0f} | {max(row['peak_mb'] for row in some):.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--only", nargs="+", choices=list(TREES), default=list(TREES))
    parser.add_argument("--trees", type=int, help="of a forest; by default as in TREES")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=hforest.get_num_threads())
    parser.add_argument("--json", type=Path, default=RESULTS / "cascade.json")
    args = parser.parse_args()
    hforest.set_num_threads(args.threads)
    rows: list[dict[str, Any]] = json.loads(args.json.read_text())["rows"] if args.json.exists() else []
    for name in args.only:
        n_trees = args.trees or TREES[name]
        for seed in range(args.runs):
            key = {"data": name, "seed": seed, "trees": n_trees}
            if any(key.items() <= row.items() for row in rows):
                continue
            rows.append({**key, **run(name, seed, n_trees, args.data), "threads": args.threads})
            print(f"{name}, seed {seed}: {rows[-1]['accuracy']:.2f} %", flush=True)
            args.json.write_text(json.dumps({"machine": machine_text(), "rows": rows}) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
