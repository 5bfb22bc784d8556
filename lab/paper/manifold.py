"""Perry et al. 2019, Fig. 1 to 4: manifold forests (MORF) beside SPORF, random forests and other classifiers.

    python lab/paper/manifold.py --data DIR [--only circle bars impulse mnist importance] [--runs 5]
        [--methods MORF SPORF RF LogReg LinSVM SVM kNN MLP CNN] [--most SIZE]
    python lab/paper/manifold.py

    Fig. 1    three simulations by training size: 100 trees, 10 000 test samples, patches and numbers of
              projections of the paper; a random forest samples as many features per node as the others
              sample projections
    Fig. 2    processor seconds of training and of the test, on one thread
    Fig. 3    MNIST by training size: 500 trees, patches up to 3x3, the 10 000 official test images
    Fig. 4    importances of pixels, threes against fives, 100 images of each

DIR holds mnist.npz. The other classifiers are those of manifold_peers.py.

A run is one seed of one method at one size; its error is written when it is known. Started again, the script
continues with the missing runs. At its end it prints Markdown tables and, if matplotlib is installed, draws
the pictures. Without --data it makes no run.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import numpy as np
from common import RESULTS, machine_text, need
from manifold_peers import PEERS, fit

import hforest
from hforest import demo, project, tree

N_TEST = 10_000
METHODS = ("MORF", "SPORF", "RF")
ALL = (*METHODS, *PEERS)
SHOWN = (*METHODS, "SVM", "CNN")
"""The methods in the table of the page. No other classifier has a lower error than MORF at any size."""
SIMULATIONS: dict[str, dict[str, Any]] = {
    "circle": {
        "draw": demo.simulate_circle,
        "sizes": (50, 100, 200, 400, 800, 2000),
        "patch": {"shape": (100,), "patch_max": 15, "cyclic": True},
        "n_projections": 40,
    },
    "bars": {
        "draw": demo.simulate_bars,
        "sizes": (10, 20, 50, 100, 200),
        "patch": {"shape": (28, 28), "patch_max": 4},
        "n_projections": 28,
    },
    "impulse": {
        "draw": demo.simulate_impulse,
        "sizes": (50, 100, 200, 400, 800, 1600),
        "patch": {"shape": (100,), "patch_max": 5},
        "n_projections": 10,
    },
}
MNIST_SIZES = (100, 300, 1000, 3000, 10_000, 50_000)
MNIST_PATCH: dict[str, Any] = {"shape": (28, 28), "patch_max": 3}


def grow(
    method: str, x: Any, y: Any, n_classes: int, n_trees: int, patch: Any, n_projections: int, seed: int
) -> tree.Forest:
    """Returns a forest of one method; n_classes is passed, since a small sample may lack a class."""
    if method == "RF":
        return hforest.grow(x, y, n_trees, max_features=n_projections, n_classes=n_classes, rng=seed)
    distribution = (
        project.sparse_distribution(x.shape[1]) if method == "SPORF" else project.patch_distribution(**patch)
    )
    return hforest.grow(
        x, y, n_trees, projections=distribution, n_projections=n_projections, n_classes=n_classes, rng=seed
    )


def simulated(name: str, size: int, seed: int) -> tuple[Any, Any, Any, Any]:
    """Returns training and test samples; test samples depend on the seed, not on size and method."""
    draw: Callable[..., tuple[Any, Any]] = SIMULATIONS[name]["draw"]
    return (*draw(size, rng=10_000 * seed + size), *draw(N_TEST, rng=10**6 + seed))


def mnist(folder: Path, size: int, seed: int) -> tuple[Any, Any, Any, Any]:
    """Returns random training images, which depend on the seed, and the official test images."""
    file = np.load(folder / "mnist.npz")
    chosen = np.random.default_rng(seed).permutation(60_000)[:size]
    x, x_test = (file[key].reshape(len(file[key]), -1).astype(np.float32) for key in ("x_train", "x_test"))
    return x[chosen], file["y_train"][chosen].astype(np.int32), x_test, file["y_test"].astype(np.int32)


def importance(folder: Path) -> dict[str, list[float]]:
    """Returns the share of each pixel in the importances, threes against fives, 500 trees."""
    file = np.load(folder / "mnist.npz")
    labels = file["y_train"]
    chosen = np.concatenate([np.flatnonzero(labels == digit)[:100] for digit in (3, 5)])
    x = file["x_train"][chosen].reshape(200, -1).astype(np.float32)
    y = (labels[chosen] == 5).astype(np.int32)
    found: dict[str, list[float]] = {}
    for method in METHODS:
        forest = grow(method, x, y, 2, 500, MNIST_PATCH, 28, 0)
        found[method] = tree.importance(forest).tolist()
    for digit, name in enumerate(("threes", "fives")):
        found[name] = x[y == digit].mean(axis=0).tolist()
    found["difference"] = (x[y == 1].mean(axis=0) - x[y == 0].mean(axis=0)).tolist()
    found["empty"] = (x.max(axis=0) == 0).astype(float).tolist()
    return found


def run(name: str, size: int, method: str, seed: int, folder: Path | None) -> dict[str, Any]:
    """Returns the error, and processor seconds of training and test, of one classifier."""
    patch: dict[str, Any]
    if name == "mnist":
        assert folder is not None
        x, y, x_test, y_test = mnist(folder, size, seed)
        n_classes, n_trees, patch, n_projections = 10, 500, MNIST_PATCH, 28
    else:
        x, y, x_test, y_test = simulated(name, size, seed)
        task = SIMULATIONS[name]
        n_classes, n_trees, patch, n_projections = 2, 100, task["patch"], task["n_projections"]
    begin = time.process_time()
    if method in PEERS:
        if name == "mnist":
            x, x_test = x / 255, x_test / 255
        predict = fit(method, name, x, y, patch["shape"], n_classes, seed)
    else:
        forest = grow(method, x, y, n_classes, n_trees, patch, n_projections, seed)

        def predict(samples: Any) -> Any:
            return tree.predict(forest, samples).argmax(axis=1)

    trained = time.process_time()
    error = 100 * float((predict(x_test) != y_test).mean())
    return {"error": error, "seconds": trained - begin, "test_seconds": time.process_time() - trained}


def cells(rows: list[dict[str, Any]], methods: tuple[str, ...], text: Callable[[Any], str]) -> str:
    """Returns a table of methods: a line for each size, and a cell for the runs of a method."""
    lines = [f"| data | training samples | {' | '.join(methods)} |", "|---" * (2 + len(methods)) + "|"]
    for name, size in dict.fromkeys((row["data"], row["size"]) for row in rows):
        found = [
            [row for row in rows if (row["data"], row["size"], row["method"]) == (name, size, method)]
            for method in methods
        ]
        lines.append(f"| {name} | {size} | {' | '.join(text(some) if some else '–' for some in found)} |")
    return "\n".join(lines)


def table(rows: list[dict[str, Any]], methods: tuple[str, ...] = SHOWN) -> str:
    """Returns a table of mean errors in percent and deviations, a line for each size; of SHOWN every third size."""

    def text(some: list[dict[str, Any]]) -> str:
        errors = [row["error"] for row in some]
        return f"{statistics.mean(errors):.2f} ± {statistics.stdev(errors) if len(errors) > 1 else 0:.2f}"

    if methods == SHOWN:
        sizes = {
            name: sorted({row["size"] for row in rows if row["data"] == name})[::3]
            for name in (*SIMULATIONS, "mnist")
        }
        rows = [row for row in rows if row["size"] in sizes[row["data"]]]
    return cells(rows, methods, text)


def seconds_table(rows: list[dict[str, Any]]) -> str:
    """Returns a table of median processor milliseconds of training / of the test, at the largest sizes."""
    most = {(name, task["sizes"][-1]) for name, task in SIMULATIONS.items()}

    def short(ms: float) -> str:
        return f"{ms:.1f}" if ms < 10 else f"{ms:.0f}"

    def text(some: list[dict[str, Any]]) -> str:
        return " / ".join(
            short(1000 * statistics.median(row[key] for row in some)) for key in ("seconds", "test_seconds")
        )

    return cells([row for row in rows if (row["data"], row["size"]) in most], ALL, text)


def importance_table(shares: dict[str, list[float]]) -> str:
    """Returns a table of shares of importance on pixels that are empty in all images, in percent."""
    empty = np.array(shares["empty"]) > 0
    lines = ["| method | share on empty pixels, % | pixels used |", "|---|---|---|"]
    for method in METHODS:
        share = np.array(shares[method])
        lines.append(f"| {method} | {100 * share[empty].sum():.2f} | {(share > 0).sum()} |")
    return "\n".join(lines)


def draw(rows: list[dict[str, Any]], shares: dict[str, list[float]] | None, folder: Path) -> None:
    """Draws Fig. 1 and 3 in one picture, and Fig. 4 in another."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(row["data"] for row in rows))
    if names:
        figure, axes = pyplot.subplots(1, len(names), figsize=(4 * len(names), 3.5), squeeze=False)
        for axis, name in zip(axes[0], names, strict=True):
            for method in ALL:
                sizes = sorted({r["size"] for r in rows if r["data"] == name and r["method"] == method})
                means = [
                    statistics.mean(
                        r["error"]
                        for r in rows
                        if (r["data"], r["size"], r["method"]) == (name, size, method)
                    )
                    for size in sizes
                ]
                axis.plot(sizes, means, "o-" if method in METHODS else "o:", label=method)
            axis.set(title=name, xlabel="training samples", ylabel="test error, %", xscale="log")
        axes[0, -1].legend(fontsize="small", loc="upper right")
        figure.tight_layout()
        figure.savefig(folder / "manifold.png", dpi=110)
        pyplot.close(figure)
    if shares:
        figure, axes = pyplot.subplots(1, 6, figsize=(15, 2.9))
        for axis, name in zip(axes, ("threes", "fives", "difference", *METHODS), strict=True):
            axis.imshow(np.reshape(shares[name], (28, 28)))
            axis.set(title=name, xticks=[], yticks=[])
        figure.tight_layout()
        figure.savefig(folder / "manifold_importance.png", dpi=110)
        pyplot.close(figure)


def tasks(only: list[str], methods: list[str], runs: int, most: int) -> list[tuple[str, int, str, int]]:
    """Returns all planned runs; the largest size of MNIST has few seeds."""
    found = []
    for name in only:
        sizes = MNIST_SIZES if name == "mnist" else SIMULATIONS[name]["sizes"]
        for size in (size for size in sizes if size <= most):
            count = min(runs, 2) if size > 10_000 else runs
            found += [(name, size, method, seed) for method in methods for seed in range(count)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of mnist.npz; without it the record is printed")
    names = [*SIMULATIONS, "mnist", "importance"]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--methods", nargs="+", choices=ALL, default=list(METHODS))
    parser.add_argument(
        "--most", type=int, default=MNIST_SIZES[-1], help="the largest number of training samples"
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=RESULTS / "manifold.json")
    args = parser.parse_args()
    hforest.set_num_threads(args.threads)
    known = json.loads(args.json.read_text()) if args.json.exists() else {"rows": [], "importance": None}
    rows: list[dict[str, Any]] = known["rows"]
    if args.data and set(args.methods) & set(PEERS):
        need("scikit-learn torch", *({"torch"} if "CNN" in args.methods else ()), "sklearn")

        x, y = demo.simulate_bars(20, rng=0)
        for method in set(args.methods) & set(PEERS):
            fit(method, "bars", x, y, (28, 28), 2, 0)(x)  # imports are not timed

    def save() -> None:
        order = {name: i for i, name in enumerate((*SIMULATIONS, "mnist"))}
        rows.sort(key=lambda r: (order[r["data"]], r["size"], ALL.index(r["method"]), r["seed"]))
        args.json.write_text(json.dumps({"machine": machine_text(), **known}) + "\n")

    todo = [n for n in args.only if n != "importance"] if args.data else []
    for name, size, method, seed in tasks(todo, args.methods, args.runs, args.most):
        key = {"data": name, "size": size, "method": method, "seed": seed}
        if any(key.items() <= row.items() for row in rows):
            continue
        row = {**key, **run(name, size, method, seed, args.data)}
        print(f"{name}, {size} samples, {method}, seed {seed}: {row['error']:.2f} %", flush=True)
        rows.append(row)
        save()
    if args.data and "importance" in args.only and not known["importance"]:
        known["importance"] = importance(args.data)
        save()
    print(table(rows, ALL), seconds_table(rows), sep="\n\n", end="\n\n")
    if known["importance"]:
        print(importance_table(known["importance"]))
    draw(rows, known["importance"], args.json.parent)


if __name__ == "__main__":
    main()
