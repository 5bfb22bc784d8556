"""Lay et al. 2018, Table 2: UCI data sets with AdaGrad, the network of Fig. 2a, on real data; and Madelon
with selection.

    python lab/paper/table2.py --data DIR [--only iris-tree ...] [--runs 10] [--steps 40000] [--grid]
                                 [--as-authors bias once folds] [--looks 80]

The protocol has three sources. Lay et al. 2018, section 5, use AdaGrad with one learning rate per data set
and 10 runs (iris: 5 shuffles times 3 folds), with training and validation samples shuffled. Batches of 53, 40
000 steps and the learning rates are those of the authors' program (https://github.com/nslay/bleak,
`Experiments`). This script tests the state of the smallest *validation* error; the record also has the test
error of the state of the smallest validation loss, by which the authors' scripts choose.

--as-authors repeats further choices of their program and scripts: `bias` adds a learned bias to the last
layer; `once` shuffles once, so that all runs have one division into training and validation samples, and all
epochs one order; `folds` makes the third fold of iris from the samples of the second, as their script does.
Then a third of the runs learns from the test samples, a third chooses the state by them, and a third chooses
by the training samples.

--grid runs all 20 configurations of the paper: 1, 10, 50 and 100 trees of depth 1, 3, 5, 7 and 10. Ferns of
depth 1 are omitted, because they are the function that trees of depth 1 are. Without --grid only the paper's
winning configuration is run. A run is evaluated on the validation samples --looks times.

The random forests of the paper's last column (100 trees of depth 10) are those of `hforest.grow`.

Two data sets are not available. isolet replaces human activity, with the latter's configuration and the
official test speakers. New hands replace poker's test file: 1 000 000 as there, drawn uniformly and labelled
by the rules of poker. Abalone's test samples are the last 1044 rows.

`madelon, selected` is not in the paper, which leaves sparse features to future work. The 20 columns of
largest importance in a random forest of the training samples are selected, and the same network compares
these without inner products. The random forest beside it (100 trees of depth 10) is that of scikit-learn, if
installed, on the same splits.

A run is one seed (iris: one of five shuffles times one of three folds). Its result is written when it is
finished, and a restarted script begins with the next run.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Literal, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import numpy as np
from common import RESULTS, Bar, machine_text

import hforest
from hforest import demo, layers, tree


class Split(NamedTuple):
    """float32 samples and int32 labels, or float32 targets (n, 1) of a regression."""

    x: np.ndarray
    y: np.ndarray
    x_valid: np.ndarray
    y_valid: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def _parts(x: Any, y: Any, x_test: Any, y_test: Any, n: int, run: int) -> Split:
    # Training samples are the first n of a new shuffle, validation samples the others.
    order = np.random.default_rng([run, 2]).permutation(len(x))
    a, b = order[:n], order[n:]
    return Split(x[a], y[a], x[b], y[b], x_test, y_test)


def _typed(file: Any, names: tuple[str, ...]) -> list[np.ndarray]:
    return [file[name].astype(np.int32 if name.startswith("y") else np.float32) for name in names]


def iris(folder: Path, run: int, third: int = 2) -> Split:
    x, y = _typed(np.load(folder / "iris.npz"), ("x", "y"))
    shuffle, fold = divmod(run, 3)
    folds = np.split(np.random.default_rng([shuffle, 2]).permutation(len(x)), 3)
    folds[2] = folds[third]
    a, b, c = (folds[(fold + i) % 3] for i in range(3))
    return Split(x[a], y[a], x[b], y[b], x[c], y[c])


def abalone(folder: Path, run: int) -> Split:
    x, rings = _typed(np.load(folder / "abalone.npz"), ("x", "y"))
    y = np.digitize(rings, [9, 11]).astype(np.int32)
    return _parts(x[:3133], y[:3133], x[3133:], y[3133:], 2089, run)


def abalone_regression(folder: Path, run: int) -> Split:
    x, rings = _typed(np.load(folder / "abalone.npz"), ("x", "y"))
    y = rings.astype(np.float32)[:, None]
    return _parts(x[:3133], y[:3133], x[3133:], y[3133:], 2089, run)


SPLIT = ("x_train", "y_train", "x_test", "y_test")


def isolet(folder: Path, run: int) -> Split:
    x, y, x_test, y_test = _typed(np.load(folder / "isolet.npz"), SPLIT)
    return _parts(x, y, x_test, y_test, 4678, run)


def madelon(folder: Path, run: int) -> Split:
    x, y, x_test, y_test = _typed(np.load(folder / "madelon.npz"), SPLIT)
    return _parts(x, y, x_test, y_test, 1500, run)


def hands(n: int, rng: np.random.Generator) -> np.ndarray:
    """Returns (n, 10) suits 1-4 and ranks 1-13 of five cards each, drawn uniformly without replacement."""
    cards = np.argsort(rng.random((n, 52)), axis=1)[:, :5]
    return np.stack([cards // 13 + 1, cards % 13 + 1], axis=2).reshape(n, 10)


def poker_hand(x: np.ndarray) -> np.ndarray:
    """Class of each hand: nothing, pair, two pairs, three, straight, flush, full house, four, straight flush,
    royal flush (R. Cattral and F. Oppacher, UCI, 2007); the ace is low or high."""
    suit, rank = x[:, 0::2], np.sort(x[:, 1::2], axis=1)
    same = (rank[:, :, None] == rank[:, None, :]).sum(axis=2)
    pairs, threes, fours = ((same == k).sum(axis=1) // k for k in (2, 3, 4))
    royal = (rank == [1, 10, 11, 12, 13]).all(axis=1)
    straight = royal | (np.diff(rank, axis=1) == 1).all(axis=1)
    flush = (suit == suit[:, :1]).all(axis=1)
    y = np.zeros(len(x), np.int32)
    for label, found in enumerate(
        (
            pairs == 1,
            pairs == 2,
            threes == 1,
            straight,
            flush,
            (threes == 1) & (pairs == 1),
            fours == 1,
            straight & flush,
            royal & flush,
        ),
        1,
    ):
        y[found] = label
    return y


def poker(folder: Path, run: int) -> Split:
    x, y = _typed(np.load(folder / "poker_train_only.npz"), ("x", "y"))
    fresh = np.concatenate([hands(100_000, np.random.default_rng([k, 3])) for k in range(10)])
    return _parts(x, y, fresh.astype(np.float32), poker_hand(fresh), 18757, run)


class Task(NamedTuple):
    """A row of the table: data, the paper's winning configuration, its test error or R**2."""

    load: Callable[[Path, int], Split]
    lr: float
    n_outputs: int
    kind: Literal["tree", "fern", "forest"]
    n_trees: int
    depth: int
    paper: str
    n_selected: int = 0


GRID = [(n_trees, depth) for n_trees in (1, 10, 50, 100) for depth in (1, 3, 5, 7, 10)]
"""Trees and depths of Lay et al. 2018, section 5."""


def sizes(name: str) -> list[tuple[int, int]]:
    """Returns the configurations of a task: ferns of depth 1 are trees of depth 1."""
    kind = TASKS[name].kind
    return [size for size in GRID if kind == "tree" or (kind == "fern" and size[1] > 1)]


TASKS = {
    "iris-tree": Task(iris, 0.05, 3, "tree", 10, 5, "2.13 ± 2.66"),
    "iris-fern": Task(iris, 0.05, 3, "fern", 10, 5, "2.27 ± 2.25"),
    "abalone-tree": Task(abalone, 0.05, 3, "tree", 50, 1, "34.4 ± 0.56"),
    "abalone-fern": Task(abalone, 0.05, 3, "fern", 50, 1, "34.4 ± 0.56"),
    "abalone_regression-tree": Task(abalone_regression, 0.05, 1, "tree", 100, 1, "R² 0.57 ± 0.07"),
    "abalone_regression-fern": Task(abalone_regression, 0.05, 1, "fern", 100, 1, "R² 0.57 ± 0.07"),
    "isolet-tree": Task(isolet, 0.04, 26, "tree", 50, 1, "5.52 ± 0.51 (human activity)"),
    "isolet-fern": Task(isolet, 0.04, 26, "fern", 50, 1, "5.52 ± 0.51 (human activity)"),
    "madelon-tree": Task(madelon, 0.01, 2, "tree", 10, 3, "40.8 ± 1.60"),
    "madelon-fern": Task(madelon, 0.01, 2, "fern", 50, 7, "40.8 ± 1.41"),
    "madelon_selected-tree": Task(madelon, 0.01, 2, "tree", 100, 7, "29.3 ± 1.13 (random forest)", 20),
    "madelon_selected-fern": Task(madelon, 0.01, 2, "fern", 100, 7, "29.3 ± 1.13 (random forest)", 20),
    "poker-tree": Task(poker, 0.3, 10, "tree", 50, 3, "32.6 ± 4.80"),
    "poker-fern": Task(poker, 0.3, 10, "fern", 100, 3, "33.9 ± 4.70"),
    "iris-forest": Task(iris, 0.0, 3, "forest", 100, 10, "4.13 ± 2.33"),
    "abalone-forest": Task(abalone, 0.0, 3, "forest", 100, 10, "34.8 ± 0.40"),
    "abalone_regression-forest": Task(abalone_regression, 0.0, 1, "forest", 100, 10, "R² 0.54 ± 0.01"),
    "isolet-forest": Task(isolet, 0.0, 26, "forest", 100, 10, "8.23 ± 0.50 (human activity)"),
    "madelon-forest": Task(madelon, 0.0, 2, "forest", 100, 10, "29.3 ± 1.13"),
    "poker-forest": Task(poker, 0.0, 10, "forest", 100, 10, "40.4 ± 0.18"),
}
AUTHORS = ("bias", "once", "folds")
"""Choices of --as-authors."""


def forest_error(split: Split, seed: int, regression: bool) -> float | None:
    """Returns the error of scikit-learn's random forest, 100 trees of depth 10; None without it."""
    try:
        from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    except ImportError:
        return None
    kind = RandomForestRegressor if regression else RandomForestClassifier
    model = kind(100, max_depth=10, random_state=seed).fit(
        split.x, split.y.ravel() if regression else split.y
    )
    return 1 - float(model.score(split.x_test, split.y_test))


def best_states(
    config: demo.Config, split: Split, progress: Any = None
) -> tuple[dict[str, dict[str, Any]], dict[str, np.ndarray]]:
    """Returns the states of least validation error and of least validation loss, and the evaluations."""
    state = demo.start(
        config, split.x.shape[1], int(split.y.max()) + 1 if split.y.ndim == 1 else split.y.shape[1]
    )
    best: dict[str, dict[str, Any]] = {"error": {}, "loss": {}}
    least = dict.fromkeys(best, np.inf)
    loss = layers.softmax_loss if config.task == "classification" else layers.squared_loss

    def keep(state: dict[str, Any]) -> None:
        of_loss = loss(demo.predict(config, state, split.x_valid), split.y_valid)[0]
        for by, value in (("error", state["history_error"][-1]), ("loss", of_loss)):
            if value < least[by]:
                least[by] = value
                best[by] = {key: np.copy(a) if isinstance(a, np.ndarray) else a for key, a in state.items()}

    with hforest.unchecked():
        history = demo.train(config, state, *split[:4], checkpoint=keep, progress=progress)
    return best, history


def forest_of_hforest(split: Split, seed: int, n_trees: int, depth: int) -> dict[str, float]:
    """Returns the errors of a random forest of `hforest.grow` on the validation and the test samples."""
    regression = split.y.dtype == np.float32
    task: Literal["regression", "classification"] = "regression" if regression else "classification"
    y = split.y.ravel()
    forest = hforest.grow(split.x, y, n_trees, max_depth=depth, task=task, rng=seed)
    errors = {}
    for name, x, truth in (("error", split.x_test, split.y_test), ("valid", split.x_valid, split.y_valid)):
        p = tree.predict(forest, x)
        if regression:
            wrong = ((p.ravel() - truth.ravel()) ** 2).sum() / ((truth - truth.mean()) ** 2).sum()
        else:
            wrong = (p.argmax(axis=1) != truth).mean()
        errors[name] = 100 * float(wrong)
    return errors


def run(
    name: str, number: int, steps: int, folder: Path, size: tuple[int, int] | None = None,
    authors: Collection[str] = (), looks: int = 80,
) -> dict[str, Any]:  # fmt: skip
    """Returns the result of one run of one task, of its own configuration or of another (trees, depth)."""
    task = TASKS[name]
    n_trees, depth = size or (task.n_trees, task.depth)
    begin = time.perf_counter()
    if task.load is iris:
        split = iris(folder, number, 1 if "folds" in authors else 2)
    else:
        split = task.load(folder, 0 if "once" in authors else number)
    regression = split.y.dtype == np.float32
    row = {
        "task": name, **({"size": [n_trees, depth]} if size else {}),
        **({"as_authors": list(authors)} if authors else {}), **({"looks": looks} if looks != 80 else {}),
        "run": number, "steps": steps,
    }  # fmt: skip
    if task.kind == "forest":
        errors = forest_of_hforest(split, number, n_trees, depth)
        return {**row, **errors, "seconds": time.perf_counter() - begin}
    config = demo.Config(
        kind=task.kind, n_trees=n_trees, depth=depth, n_features=0 if task.n_selected else 100,
        optimizer="adagrad", lr=task.lr, steps=steps, eval_every=max(1, steps // looks), seed=number,
        leaves="scalar", task="regression" if regression else "classification",
        output_bias="bias" in authors, shuffle="once" if "once" in authors else "epochs",
    )  # fmt: skip
    if task.n_selected:
        forest = hforest.grow(split.x, split.y, 300, max_features=1 / 3, rng=number)
        gain = tree.importance(forest, by="gain")
        columns = np.sort(np.argsort(-gain, kind="stable")[: task.n_selected])
        narrow = {key: getattr(split, key)[:, columns].copy() for key in ("x", "x_valid", "x_test")}
        split = split._replace(**narrow)
    with Bar(f"{name}, {n_trees}/{depth}, run {number}") as bar:
        best, history = best_states(config, split, bar)
    test = {by: 100 * demo.error_rate(config, a, split.x_test, split.y_test) for by, a in best.items()}
    return {
        **row,
        "error": test["error"],
        "by_loss": test["loss"],
        "valid": 100 * float(history["error"].min()),
        "at": int(history["step"][history["error"].argmin()]),
        "seconds": time.perf_counter() - begin,
        "random_forest": None
        if task.n_selected or task.kind == "fern" or size or authors
        else _percent(split, number, regression),
    }


def _percent(split: Split, seed: int, regression: bool) -> float | None:
    error = forest_error(split, seed, regression)
    return None if error is None else 100 * error


def label(name: str) -> str:
    """Returns the name of a task in tables."""
    return name.replace("-forest", ", random forest").replace("-", ", ").replace("_", " ")


def text(values: list[float], regression: bool) -> str:
    """Returns mean and deviation as text: percent, or R**2."""
    if regression:
        values = [1 - v / 100 for v in values]
    mean = f"{'R² ' if regression else ''}{statistics.mean(values):.2f}"
    return mean + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


def table(results: list[dict[str, Any]]) -> str:
    """Returns the table in Markdown: the paper's figures and these."""
    lines = [
        "| data, kind | trees/depth | paper | here, held out | runs | scikit-learn's random forest |",
        "|---|---|---|---|---|---|",
    ]
    for name, task in TASKS.items():
        runs = [r for r in results if r["task"] == name and "as_authors" not in r and "looks" not in r]
        if not runs:
            continue
        regression = "regression" in name
        forests = [r["random_forest"] for r in runs if r.get("random_forest") is not None]
        lines.append(
            f"| {label(name)} | {task.n_trees}/{task.depth} | {task.paper} "
            f"| {text([r['error'] for r in runs], regression)} | {len(runs)} "
            f"| {text(forests, regression) if forests else '–'} |"
        )
    return "\n".join(lines)


def authors_table(results: list[dict[str, Any]]) -> str:
    """Returns the table of the authors' choices in Markdown, the state by validation error and by loss."""
    lines = ["| data, kind | choices of the authors | runs | by error | by loss |", "|---|---|---|---|---|"]
    for name in TASKS:
        runs = [r for r in results if r["task"] == name and "by_loss" in r and "looks" not in r]
        for choices in sorted({tuple(r.get("as_authors", ())) for r in runs}, key=lambda a: (len(a), a)):
            some = [r for r in runs if tuple(r.get("as_authors", ())) == choices]
            cells = [text([r[key] for r in some], "regression" in name) for key in ("error", "by_loss")]
            words = ", ".join(f"`{word}`" for word in choices) or "–"
            lines.append(f"| {label(name)} | {words} | {len(some)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def grid_table(results: list[dict[str, Any]]) -> str:
    """Returns the table of all configurations in Markdown; bold: least mean validation error of the task."""
    lines = ["| data, kind | trees/depth | runs | validation | test |", "|---|---|---|---|---|"]
    for name in TASKS:
        regression = "regression" in name
        runs = {size: [r for r in results if r["task"] == name and tuple(r["size"]) == size] for size in GRID}
        valid = {size: statistics.mean(r["valid"] for r in rows) for size, rows in runs.items() if rows}
        for size in valid:
            mark = "**" if valid[size] == min(valid.values()) else ""
            cells = [text([r[key] for r in runs[size]], regression) for key in ("valid", "error")]
            lines.append(
                f"| {label(name)} | {mark}{size[0]}/{size[1]}{mark} "
                f"| {len(runs[size])} | {' | '.join(cells)} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--only", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument(
        "--runs",
        type=int,
        default=10,
        help="number of runs per data set; iris has one and a half times as many",
    )
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--grid", action="store_true", help="run all 20 configurations")
    parser.add_argument(
        "--as-authors", nargs="+", choices=AUTHORS, default=[], help="choices of the authors' program"
    )
    parser.add_argument("--looks", type=int, default=80, help="number of evaluations of a run")
    parser.add_argument(
        "--json", type=Path, help="the record (default: table2.json or table2_grid.json in bench/results)"
    )
    args = parser.parse_args()
    args.json = args.json or RESULTS / ("table2_grid.json" if args.grid else "table2.json")
    authors = [a for a in AUTHORS if a in args.as_authors]
    hforest.set_num_threads(1)
    results = json.loads(args.json.read_text())["rows"] if args.json.exists() else []
    for number in range(args.runs * 3 // 2):
        for name in args.only:
            if number >= args.runs and not name.startswith("iris"):
                continue
            for size in sizes(name) if args.grid else [None]:
                wanted = {
                    "task": name, "run": number, "steps": args.steps, "size": list(size) if size else None,
                    "as_authors": authors or None, "looks": args.looks if args.looks != 80 else None,
                }  # fmt: skip
                if any(all(r.get(key) == a for key, a in wanted.items()) for r in results):
                    continue
                results.append(run(name, number, args.steps, args.data, size, authors, args.looks))
                args.json.write_text(
                    json.dumps({"machine": machine_text(), "rows": results}, indent=1) + "\n"
                )
    results = [r for r in results if r["steps"] == args.steps]
    print(grid_table(results) if args.grid else f"{table(results)}\n\n{authors_table(results)}")


if __name__ == "__main__":
    main()
