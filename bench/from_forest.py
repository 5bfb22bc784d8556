"""Errors of hinge and neural forests that start from grown forests, before any training.

    python bench/from_forest.py --data DIR [--tables churn ...] [--rows 9000] [--splits 2] [--json FILE]

DIR holds the tables as npz files of x and y. Two thirds of `rows` random rows are for growing; columns and
targets are in units of their standard deviations in these rows. The bench grows forests of 100 trees, by
columns and by sparse projections: of depth 8, and without a limit of depth. Test errors are in percent of
labels, or of the variance of targets.

    grown      the forest of depth 8; "full" has no limit
    per leaf   each leaf has the least squares weight of the forest's values in it: w = sum |r| v / sum r**2
    own        `from_forest(x, None, forest)`: the forest's predictions by ridge regression on |r| of
               all trees; "far" is the mean squared difference from the forest in percent of its variance
    y          `from_forest(x, y, forest)`: labels or targets in place of predictions
    chosen     the same, with the l2 of the smallest error on a held-out fifth of the rows for growing
    soft       `neural.from_forest`, scale 10

The l2 of "per leaf" is chosen in the same way. No setting depends on test errors.

With --train the bench measures test errors after training instead. "grown" is the forest by columns. Hinge
trees start as this forest, and are tested before and after 2000 steps of Adam (batch 64, rate 0.001 falling
to a tenth). On tables of classes, 50 neural trees of depth 7 are trained for 5 epochs by `neural.fit` at lr
0.05: "random" starts from `linear_init`, "soft" from `from_forest`.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import machine_text, options_of, record, sparse

import hforest
from hforest import grow as grow_forest
from hforest import hinge, layers, neural, tree

TABLES = (
    "churn", "dna", "magic", "phoneme", "spambase", "waveform_40", "ring", "page_blocks",
    "houses", "pol", "puma8NH", "fried",
)  # fmt: skip
DEPTH, N_TREES = 8, 100
RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0)
SCALES = (1, 2, 3, 4, 5, 6, 8, 12)


def load(path: Path, rows: int, seed: int) -> dict[str, Any]:
    """Samples and targets in deviations, two thirds for growing."""
    with np.load(path) as table:
        x, y = table["x"].astype(np.float64), table["y"]
    picked = np.random.default_rng(seed).permutation(len(x))[:rows]
    train, test = np.split(picked, [2 * len(picked) // 3])
    deviation = x[train].std(axis=0)
    x = ((x - x[train].mean(axis=0)) / np.where(deviation > 0, deviation, 1)).astype(np.float32)
    regression = y.dtype.kind == "f"
    y = (y - y[train].mean()) / y[train].std() if regression else np.unique(y, return_inverse=True)[1]
    return {
        "x": x[train], "y": y[train], "x_test": x[test], "y_test": y[test],
        "task": "regression" if regression else "classification",
        "n_classes": None if regression else int(y.max()) + 1,
    }  # fmt: skip


def grow(kind: str, x: Any, y: Any, data: dict[str, Any], max_depth: int | None) -> Any:
    settings = {"task": data["task"], "n_classes": data["n_classes"], "max_depth": max_depth, "rng": 0}
    if kind == "sparse":
        return sparse(x, y, N_TREES, n_projections=x.shape[1], **settings)
    shared: Any = max(1, x.shape[1] // 3) if data["task"] == "regression" else "sqrt"
    return grow_forest(x, y, N_TREES, max_features=shared, **settings)


def start(kind: str, x: Any, y: Any, forest: Any, task: Any, **settings: Any) -> Any:
    """Returns a function from samples to the outputs of a start."""
    if kind == "sparse":
        parameters, intercept, kernel = hinge.from_forest(x, y, forest, kernel=True, task=task, **settings)
        return lambda a: hinge.forward(a @ kernel, *parameters, aggregate="sum") + intercept
    parameters, intercept, _ = hinge.from_forest(x, y, forest, task=task, **settings)
    return lambda a: hinge.forward(a, *parameters, aggregate="sum") + intercept


def per_leaf(x: Any, forest: Any, l2: float) -> Any:
    """Fits each leaf separately by least squares to the values of its grown tree minus their mean."""
    t, f, w = hinge.from_forest(x, None, forest, tolerance=1.0).parameters
    leaf, margin, _ = hinge.traverse(x, t, f)
    first = forest.tree_start[:-1]
    node = tree.apply(forest, x) + first
    row = (first + np.arange(N_TREES)) // 2 + forest.left[node]
    mean = forest.value[row].mean(axis=(0, 1))
    r = abs(margin.astype(np.float64))
    w = np.zeros_like(w, np.float64)
    for m in range(N_TREES):
        values = forest.value[row[:, m]] - mean
        squares = np.bincount(leaf[:, m], r[:, m] ** 2, w.shape[1]) + l2 * (r[:, m] ** 2).mean()
        for k in range(w.shape[2]):
            w[m, :, k] = np.bincount(leaf[:, m], r[:, m] * values[:, k], w.shape[1]) / squares
    w = w.astype(x.dtype)
    return lambda a: hinge.forward(a, t, f, w, aggregate="mean") + mean


def error(p: Any, y: Any, task: str) -> float:
    """Returns the percentage of wrong labels, or of the variance that is not explained."""
    if task == "regression":
        return float(100 * ((p[:, 0] - y) ** 2).mean() / y.var())
    return float(100 * (p.argmax(axis=1) != y).mean())


def log_loss(p: Any, y: Any) -> float:
    return float(layers.softmax_loss(np.ascontiguousarray(p, np.float64), y)[0])


def one(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """Returns the errors of one forest and of models that start as it."""
    x, y, x_test, y_test, task = (data[name] for name in ("x", "y", "x_test", "y_test", "task"))
    held = np.arange(len(x)) % 5 == 0
    inner = grow(kind, x[~held], y[~held], data, DEPTH)
    tried, best_scale, alone = {}, 0, {}
    for l2 in RIDGES:
        p = start(kind, x[~held], y[~held], inner, task, l2=l2)(x[held])
        tried[l2] = error(p, y[held], task)
        if task == "classification" and l2 == 0.3:
            best_scale = min(SCALES, key=lambda s: log_loss(s * p, y[held]))
        if kind == "columns":
            alone[l2] = error(per_leaf(x[~held], inner, l2)(x[held]), y[held], task)
    chosen = min(RIDGES, key=tried.__getitem__)
    begin = time.perf_counter()
    forest = grow(kind, x, y, data, DEPTH)
    grown_in = time.perf_counter() - begin
    begin = time.perf_counter()
    fitted = start(kind, x, y, forest, task)
    fitted_in = time.perf_counter() - begin
    wanted, own = tree.predict(forest, x_test), start(kind, x, None, forest, task)(x_test)
    soft = neural.from_forest(x, forest, scale=10.0, rng=0)
    decide = neural.forward(neural.decisions(soft, x_test), soft.leaves, task="regression")
    found = {
        "full": error(tree.predict(grow(kind, x, y, data, None), x_test), y_test, task),
        "grown": error(wanted, y_test, task),
        "own": error(own, y_test, task),
        "far": float(100 * ((own - wanted) ** 2).mean() / wanted.var(axis=0).mean()),
        "y": error(fitted(x_test), y_test, task),
        "chosen": error(start(kind, x, y, forest, task, l2=chosen)(x_test), y_test, task),
        "soft": error(decide, y_test, task),
        "l2": chosen, "held_out": tried, "scale": best_scale,
        "seconds_grown": grown_in, "seconds_fitted": fitted_in,
    }  # fmt: skip
    if kind == "columns":
        found["per leaf"] = error(
            per_leaf(x, forest, min(RIDGES, key=alone.__getitem__))(x_test), y_test, task
        )
    return found


def hinge_trained(data: dict[str, Any], steps: int = 2000) -> dict[str, float]:
    """Returns errors of a grown forest, of hinge trees that start as it, and of these after training."""
    x, y, x_test, y_test, task = (data[name] for name in ("x", "y", "x_test", "y_test", "task"))
    forest = grow("columns", x, y, data, DEPTH)
    (t, f, w), intercept, _ = hinge.from_forest(x, y, forest, task=task)
    found = {"grown": error(tree.predict(forest, x_test), y_test, task)}
    found["start"] = error(hinge.forward(x_test, t, f, w, aggregate="sum") + intercept, y_test, task)
    if task == "classification":
        w, intercept = 4 * w, 4 * intercept
    state, rng = hinge.adam_state(t, w), np.random.default_rng(0)
    for step in range(1, steps + 1):
        batch, lr = rng.integers(0, len(x), 64), 0.001 * (1 - 0.9 * step / steps)
        p, route = hinge.adam_forward(x[batch], t, f, w, state, step, lr)
        p += intercept
        if task == "regression":
            _, grad = layers.squared_loss(p, y[batch, None].astype(p.dtype))
        else:
            _, grad = layers.softmax_loss(p, y[batch])
        hinge.adam_backward(grad, route, x[batch], t, f, w, state, step, lr)
    hinge.adam_sync(t, w, state, steps, lr)
    found["trained"] = error(hinge.forward(x_test, t, f, w, aggregate="sum") + intercept, y_test, task)
    return found


def neural_trained(data: dict[str, Any]) -> dict[str, float]:
    """Returns errors of neural trees after training from a random start and from a grown forest."""
    x, y, n_classes = data["x"], data["y"], data["n_classes"]
    forest = grow_forest(x, y, 50, max_depth=7, n_classes=n_classes, rng=0)
    starts = {
        "random": neural.linear_init(50, 7, x.shape[1], n_classes, rng=0),
        "soft": neural.from_forest(x, forest, rng=0),
    }
    found = {}
    for name, begin in starts.items():
        model = neural.fit(begin, x, y, epochs=5, lr=0.05, standardize=False, rng=0)
        found[name] = error(neural.predict(model, data["x_test"]), data["y_test"], "classification")
    return found


def train(options: argparse.Namespace) -> None:
    """Prints and records errors after training."""
    names = ("grown", "start", "trained", "random", "soft")
    print("table        " + "".join(f"{name:>9}" for name in names))
    rows = []
    for table in options.tables:
        found = []
        for seed in range(options.splits):
            data = load(options.data / f"{table}.npz", options.rows, seed)
            errors = hinge_trained(data)
            found.append(errors | (neural_trained(data) if data["task"] == "classification" else {}))
        rows.append({"table": table, "splits": found})
        means = [np.mean([f.get(name, np.nan) for f in found]) for name in names]
        print(f"{table:13}" + "".join(f"{mean:9.2f}" for mean in means), flush=True)
        if options.json:
            record(options.json, rows, rows_of_a_table=options.rows, trees=N_TREES, depth=DEPTH)


def starts(options: argparse.Namespace) -> None:
    """Prints and records errors before training."""
    names = ("full", "grown", "per leaf", "own", "far", "y", "chosen", "soft")
    print(
        "table        forest  "
        + "".join(f"{name:>9}" for name in names)
        + "   l2  scale  seconds grown + fitted"
    )
    rows = []
    for table in options.tables:
        for kind in ("columns", "sparse"):
            found = [
                one(kind, load(options.data / f"{table}.npz", options.rows, s)) for s in range(options.splits)
            ]
            rows.append({"table": table, "kind": kind, "splits": found})
            means = [np.mean([f.get(name, np.nan) for f in found]) for name in names]
            print(
                f"{table:13}{kind:8}" + "".join(f"{mean:9.2f}" for mean in means)
                + f"  {[f['l2'] for f in found]} {[f['scale'] for f in found]}"
                + f" {found[0]['seconds_grown']:.1f} + {found[0]['seconds_fitted']:.1f}",
                flush=True,
            )  # fmt: skip
            if options.json:
                record(options.json, rows, rows_of_a_table=options.rows, trees=N_TREES, depth=DEPTH)
    for kind in ("columns", "sparse"):
        found = [f for row in rows if row["kind"] == kind for f in row["splits"]]
        ratio = {
            name: np.exp(np.mean([np.log(f[name] / f["grown"]) for f in found]))
            for name in names
            if name != "far" and name in found[0]
        }
        print(f"{kind}: error against the grown forest, geometric mean:",
              ", ".join(f"{name} {value:.3f}" for name, value in ratio.items()))  # fmt: skip
        by = {l2: np.exp(np.mean([np.log(f["held_out"][l2]) for f in found])) for l2 in RIDGES}
        print("held-out error by l2:", ", ".join(f"{l2:g}: {value:.3f}" for l2, value in by.items()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--rows", type=int, default=9000)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--json", type=Path)
    options = options_of(parser, "--data {data} --tables churn --rows 300 --splits 1", "churn")
    hforest.set_num_threads(options.threads)
    print(machine_text())
    if options.train:
        train(options)
    else:
        starts(options)


if __name__ == "__main__":
    main()
