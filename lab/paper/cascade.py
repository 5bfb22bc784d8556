"""Cascades on letter, adult, yeast and, with scanning, MNIST, beside the published accuracies of gcForest.

    python lab/paper/cascade.py --data DIR [--only letter adult yeast mnist "mnist scanned"
        "mnist full scanned"] [--trees N] [--runs N] [--images N]
    python lab/paper/cascade.py

A level is the published one: four random forests and four completely random forests of 500 trees, 3 folds.
Levels are added until the validation accuracy no longer improves. Forests have fewer trees (TREES) if one
thread would take longer than about ten minutes.

    letter              16 000 / 4000 samples
    adult               the official split; categorical columns as indicators; random trees with at least 5
                        samples per leaf, chosen by cascade_leaves.py
    yeast               1038 / 446 samples at random mnist               the first 10 000 training images and
    the 10 000 official test images mnist scanned       windows of 7, 10 and 14 with stride 2 (the paper's
    stride of 1 would take four times as
                        long); two forests of 50 trees each, which learn from 10 windows of each image
    mnist full scanned  the same with all 60 000 training images, and at least 10 samples per leaf, because
    the
                        nodes of pure trees would take more than 6 GB

With --images the sets of MNIST are limited to the first N training images, and a separate table has the
memory and time of scanning and growing. Without --runs the script makes the runs of the record (RUNS).
Without --data it makes none, and prints the table of the record. Each run is written when it is finished;
started again, the script continues with the missing runs.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import numpy as np
from common import RESULTS, machine_text

import hforest
from hforest import cascade

PUBLISHED = {"letter": 97.40, "adult": 86.40, "yeast": 63.45, "mnist full scanned": 99.26}
TREES = {
    "letter": 500,
    "adult": 200,
    "yeast": 500,
    "mnist": 100,
    "mnist scanned": 100,
    "mnist full scanned": 100,
}
RUNS = {"letter": 3, "adult": 2, "yeast": 20, "mnist": 3, "mnist scanned": 1, "mnist full scanned": 1}
LEAF = {"adult": 5, "mnist full scanned": 10}
RANDOM_LEAF = {"mnist full scanned": 10}
LABELS = {
    "mnist": "MNIST, 10 000 images",
    "mnist scanned": "the same, scanned",
    "mnist full scanned": "MNIST, all images, scanned",
}
Data = tuple[Any, Any, Any, Any]


def indicators(x: Any, categorical: Any, n_levels: Any) -> Any:
    """Returns categorical columns as one column per category; rows with a missing value have zeros."""
    levels = dict(zip(categorical.tolist(), n_levels.tolist(), strict=True))
    parts = [
        x[:, f, None] == np.arange(levels[f]) if f in levels else x[:, f, None] for f in range(x.shape[1])
    ]
    return np.concatenate([part.astype(np.float32) for part in parts], axis=1)


def load(name: str, seed: int, folder: Path, images: int | None = None) -> Data:
    """Returns training and test samples; of MNIST the first `images` for training."""
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
        n = images or (60_000 if "full" in name else 10_000)
        x, y = x[:n].reshape(len(x[:n]), -1).astype(np.float32), y[:n]
        x_test = x_test.reshape(len(x_test), -1).astype(np.float32)
    return x, y.astype(np.int32), x_test, y_test.astype(np.int32)


def peak_mb() -> float:
    """Returns peak resident memory of this process since the last call, MiB (VmHWM)."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def level(n_trees: int, leaf: int, n_forests: int = 4, random_leaf: int = 1) -> list[Any]:
    """Returns as many random as completely random forests, with the minimum samples of leaves.

    The only place where this script and cascade_leaves.py name arguments of functions that grow forests.
    """
    random = partial(hforest.grow, n_trees=n_trees, min_samples_leaf=leaf)
    completely = partial(
        hforest.grow, n_trees=n_trees, min_samples_leaf=random_leaf, splitter="random", max_features=1,
        bootstrap=False,
    )  # fmt: skip
    return [random] * n_forests + [completely] * n_forests


def grow(
    grains: list[Any], y: Any, forests: list[Any], n_folds: int, rng: int, **more: Any
) -> cascade.Cascade:
    """Grows a cascade (the only call of the library), and prints each level's validation accuracy."""

    def report(state: cascade.Cascade) -> None:
        print(f"level {len(state.levels)}: validation {100 * state.scores[-1]:.2f} %", flush=True)

    return cascade.grow(grains, y, forests, n_folds=n_folds, checkpoint=report, rng=rng, **more)


def run(name: str, seed: int, n_trees: int, folder: Path, images: int | None = None) -> dict[str, Any]:
    """Returns accuracy, time and memory of one cascade."""
    x, y, x_test, y_test = load(name, seed, folder, images)
    peak_mb()
    begin, processor = time.perf_counter(), time.process_time()
    leaf, random_leaf = LEAF.get(name, 1), RANDOM_LEAF.get(name, 1)
    grains, test = [x], [x_test]
    n_folds = min(3, int(np.bincount(y)[np.bincount(y) > 0].min()))
    if "scanned" in name:
        grains, test = [], []
        for size in (7, 10, 14):
            scanner, vectors = cascade.grow_scanner(
                x,
                y,
                (28, 28),
                size,
                level(50, leaf, 1, random_leaf),
                stride=2,
                max_windows=10,
                rng=seed + size,
            )
            grains.append(vectors)
            test.append(cascade.scan_vectors(scanner, x_test))
            del scanner  # its trees take more memory than all the rest
            print(f"windows of {size}: {vectors.shape[1]} numbers per image", flush=True)

    scan_peak = peak_mb()
    grown = grow(grains, y, level(n_trees, leaf, random_leaf=random_leaf), n_folds, seed)
    seconds, processor = time.perf_counter() - begin, time.process_time() - processor
    p = cascade.predict(grown, test)
    return {
        "accuracy": 100 * float((p.argmax(axis=1) == y_test).mean()),
        "levels": len(grown.levels),
        "seconds": seconds,
        "validation": [100 * score for score in grown.scores],
        "peak_mb": max(scan_peak, peak_mb()),
        "scan_peak_mb": scan_peak,
        "vectors_mb": sum(a.nbytes for a in grains) / 2**20,
        "trees_mb": sum(a.nbytes for row in grown.levels for forest in row for a in forest) / 2**20,
        "processor_seconds": processor,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Returns a table of published and measured accuracy in percent; times exclude runs that were paused."""
    rows = [row for row in rows if "images" not in row]
    lines = [
        "| data | published | here, held out | runs | trees per forest | levels kept | seconds per run "
        "| peak memory, MiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, n_trees in dict.fromkeys(
        (name, row["trees"]) for name in TREES for row in rows if row["data"] == name
    ):
        some = [row for row in rows if (row["data"], row["trees"]) == (name, n_trees)]
        found = [row["accuracy"] for row in some]
        spread = f" ± {statistics.stdev(found):.2f}" if len(found) > 1 else ""
        published = f"{PUBLISHED[name]:.2f}" if name in PUBLISHED else "–"
        levels = ", ".join(str(row["levels"]) for row in some)
        seconds = statistics.mean(
            row.get("processor_seconds", row["seconds"]) for row in some if not row.get("paused")
        )
        lines.append(
            f"| {LABELS.get(name, name)} | {published} | {statistics.mean(found):.2f}{spread} | {len(found)} "
            f"| {n_trees} | {levels} | {seconds:.0f} | {max(row['peak_mb'] for row in some):.0f} |"
        )
    return "\n".join(lines)


def memory_table(rows: list[dict[str, Any]]) -> str:
    """Returns the table of memory and time by number of training images."""
    lines = [
        "| training images | accuracy | levels | peak of the scan, MiB | peak, MiB "
        "| class vectors, MiB | trees of the levels kept, MiB | processor seconds |",
        "|---" * 8 + "|",
    ]
    some = [{"images": 60_000, **row} for row in rows if row["data"] == "mnist full scanned"]
    for row in sorted(some, key=lambda row: row["images"]):
        numbers = (
            row[key] for key in ("scan_peak_mb", "peak_mb", "vectors_mb", "trees_mb", "processor_seconds")
        )
        lines.append(
            f"| {row['images']} | {row['accuracy']:.2f} | {row['levels']} "
            f"| {' | '.join(f'{number:.0f}' for number in numbers)} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the data sets; without it the record is printed")
    parser.add_argument("--only", nargs="+", choices=list(TREES), default=list(TREES))
    parser.add_argument("--trees", type=int, help="number of trees per forest (default: TREES)")
    parser.add_argument("--runs", type=int, help="number of seeds 0, 1, ... (default: RUNS)")
    parser.add_argument(
        "--images", type=int, help="number of training images of MNIST (default: as the set says)"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=RESULTS / "cascade.json")
    args = parser.parse_args()
    hforest.set_num_threads(args.threads)
    file: dict[str, Any] = json.loads(args.json.read_text()) if args.json.exists() else {"rows": []}
    rows, machine = file["rows"], machine_text()
    for name in args.only if args.data else ():
        n_trees = args.trees or TREES[name]
        for seed in range(args.runs or RUNS[name]):
            key = {"data": name, "seed": seed, "trees": n_trees}
            key["settings"] = {"min_samples_leaf": LEAF.get(name, 1)}
            images = {"images": args.images} if args.images and name.startswith("mnist") else {}
            if any(row.get("images") == images.get("images") and key.items() <= row.items() for row in rows):
                continue
            more = {"threads": args.threads, "machine": machine}
            rows.append({**key, **images, **run(name, seed, n_trees, args.data, args.images), **more})
            print(f"{name}, seed {seed}: {rows[-1]['accuracy']:.2f} %", flush=True)
            args.json.write_text(json.dumps({"machine": file.get("machine", machine), "rows": rows}) + "\n")
    print(table(rows), memory_table(rows), sep="\n\n")


if __name__ == "__main__":
    main()
