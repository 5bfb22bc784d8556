"""Ordinary tables: every kind of forest here beside other libraries, all at their defaults, one thread.

    python bench/tabular.py --data DIR [DIR ...] [--tables NAME ... | --half choose judge]
        [--methods NAME ...] [--splits 5] [--rows 20000] [--held-out] [--seconds S]
        [--scale raw unit deviations powers] [--json FILE]
    python bench/tabular.py --table FILE [FILE ...]   # markdown tables of records, without a measurement
    python bench/tabular.py --figure FILE OUT.png     # error over time, both against the random forest

A table is an npz file in one of the folders, of x and y, or of x_train, y_train, x_test and y_test, which
are joined. A split draws at most `rows` rows at random with its number as the seed, two thirds for fitting
and the rest for the test. With --held-out a quarter of the rows for fitting takes the place of the test
rows, which nothing sees then: so settings are chosen, on the tables of CHOOSE alone. Those of JUDGE took no
part in any choice.

A method is a name of METHODS, or `name:setting=value,...` with arguments of its public function or
estimator: "co2:nu=10,bootstrap=True"; n_projections may also be 'sqrt' or 'features' (100 at most). With
--seconds, a method that has a space in SPACES draws settings from it for so many seconds. Each is judged on
a fifth of the rows for fitting, the defaults first; the best one is fitted on all of them. Methods that are
not installed, or refuse a table, are left out.

Seconds are of the processor, which one thread spends: other work on the machine hardly moves them. Errors
are in percent of labels, or 1 - R2 in percent. --scale changes the columns after loading: to [0, 1],
to deviations from the mean (both by the rows for fitting), by random powers of ten, 1e-12 to 1e12, or from
columns of at most 16 whole numbers to an indicator of each.
The json record keeps its rows, so the same command goes on where it was stopped.
"""

import argparse
import ast
import importlib
import importlib.metadata
import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":  # read when the libraries are loaded
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["MKL_NUM_THREADS"] = "1"

import numpy as np
from common import Bar, machine_text, need, record

import hforest
from hforest import cascade, classic, co2, manifold, neural, tree

CHOOSE = (
    "letter", "magic", "phoneme", "dna", "spambase", "waveform_40", "connect4", "optdigits", "nursery",
    "yeast", "adult", "kddcup", "houses", "puma8NH", "abalone", "BNG_pwLinear",
)  # fmt: skip
JUDGE = (
    "churn", "coil2000", "ring", "splice", "sleep", "mushroom", "page_blocks", "usps", "isolet", "shuttle",
    "ijcnn1", "poker_train_only", "madelon", "pol", "fried", "mv",
)  # fmt: skip
HALVES = {"choose": CHOOSE, "judge": JUDGE}
REGRESSIONS = ("abalone",)
"""Tables whose targets are whole numbers."""
SCALES = ("raw", "unit", "deviations", "powers", "indicators")
CATEGORIES = 16
"""Values of a column of whole numbers that has an indicator for each, at most."""
BASE = "rf"
"""The method that others are compared with."""


class Data(NamedTuple):
    """Samples for fitting."""

    x: np.ndarray
    """(n_samples, n_features) float32."""
    y: np.ndarray
    """(n_samples,) labels 0 to n_classes - 1, int64, each of which occurs; or targets, float64."""
    n_classes: int | None
    """None in a regression."""
    seed: int

    @property
    def task(self) -> str:
        return "regression" if self.n_classes is None else "classification"


Settings = dict[str, Any]
Predict = Callable[[np.ndarray], np.ndarray]  # samples to labels, or to targets

# ------------------------------------------------------------------------------ methods of this library


def _answers(p: np.ndarray, data: Data) -> np.ndarray:
    """Labels of class probabilities, or targets of outputs."""
    return p.reshape(len(p), -1)[:, 0] if data.n_classes is None else p.argmax(axis=1)


def _grown(grow: Callable[..., Any], given: Settings, data: Data, settings: Settings) -> Predict:
    """A grown forest; `given` are settings in place of the function's own defaults."""
    settings = {"n_trees": 100, **given, **settings}
    n_features = data.x.shape[1]
    if isinstance(settings.get("n_projections"), str):
        known = {"sqrt": math.ceil(n_features**0.5), "features": min(n_features, 100)}
        settings["n_projections"] = known[settings["n_projections"]]
    forest = grow(
        data.x, data.y, task=data.task, n_classes=data.n_classes, rng=data.seed, **settings,
    )  # fmt: skip
    return lambda x: _answers(tree.predict(forest, x), data)


def _cascade(data: Data, settings: Settings) -> Predict:
    settings = {"n_trees": 50, **settings}
    forests = cascade.default_forests(settings.pop("n_trees"))
    grown = cascade.grow(data.x, data.y, forests, n_classes=data.n_classes, rng=data.seed, **settings)
    return lambda x: _answers(cascade.predict(grown, x), data)


def _neural(data: Data, settings: Settings) -> Predict:
    """Algorithm 1 from a random start."""
    assert data.n_classes is not None
    settings = {"n_trees": 50, "depth": 7, "lr": 0.05, **settings}
    n_trees, depth = settings.pop("n_trees"), settings.pop("depth")
    starts: Settings = {name: settings.pop(name) for name in ("max_features", "scale") if name in settings}
    starts["x"] = data.x if settings.get("standardize", True) else None
    model = neural.linear_init(n_trees, depth, data.x.shape[1], data.n_classes, rng=data.seed, **starts)
    model = neural.fit(model, data.x, data.y, rng=data.seed, **settings)
    return lambda x: _answers(neural.predict(model, x), data)


def _hinge(data: Data, settings: Settings) -> Predict:
    tabular = importlib.import_module("hforest.tabular")
    model = tabular.fit(
        data.x, data.y, task=data.task, n_classes=data.n_classes, rng=data.seed, **settings,
    )  # fmt: skip
    return lambda x: _answers(tabular.predict(model, x), data)


# ------------------------------------------------------------------------------ methods of others


def _sklearn(names: tuple[str, str], given: Settings, data: Data, settings: Settings) -> Predict:
    """An estimator with scikit-learn's interface: "module.Classifier", "module.Regressor"."""
    module, name = names[data.n_classes is None].rsplit(".", 1)
    model = getattr(importlib.import_module(module), name)(**{"random_state": data.seed, **given, **settings})
    model.fit(data.x, data.y)
    return lambda x: np.asarray(model.predict(x)).reshape(len(x))


def _mlp(data: Data, settings: Settings) -> Predict:
    """scikit-learn's network on columns, and targets, in deviations."""
    scaled = _scaler("deviations", data.x, data.seed)
    y, mean, deviation = data.y, 0.0, 1.0
    if data.n_classes is None:
        mean, deviation = float(y.mean()), float(y.std()) or 1.0
        y = (y - mean) / deviation
    names = ("sklearn.neural_network.MLPClassifier", "sklearn.neural_network.MLPRegressor")
    predict = _sklearn(names, {}, data._replace(x=scaled(data.x), y=y), settings)
    if data.n_classes is not None:
        return lambda x: predict(scaled(x))
    return lambda x: predict(scaled(x)) * deviation + mean


def _ydf(data: Data, settings: Settings) -> Predict:
    """ydf's random forest with sparse oblique splits."""
    import ydf

    ydf.verbose(0)
    task = ydf.Task.REGRESSION if data.n_classes is None else ydf.Task.CLASSIFICATION
    settings = {"split_axis": "SPARSE_OBLIQUE", **settings}
    learner = ydf.RandomForestLearner(
        label="y", task=task, num_threads=1, random_seed=data.seed, **settings,
    )  # fmt: skip
    model = learner.train({"x": data.x, "y": data.y})

    def predict(x: np.ndarray) -> np.ndarray:
        p = model.predict({"x": x})
        if data.n_classes is None:
            return np.asarray(p)
        classes = np.array([int(name) for name in model.label_classes()])
        return classes[p.argmax(axis=1) if p.ndim == 2 else (p > 0.5).astype(int)]

    return predict


class Method(NamedTuple):
    """A kind of model."""

    fit: Callable[[Data, Settings], Predict]
    needs: str = "hforest"
    """The package that must be installed."""
    classes_only: bool = False


def _of_sklearn(module: str, first: str, **given: Any) -> Callable[[Data, Settings], Predict]:
    return partial(_sklearn, (f"{module}.{first}Classifier", f"{module}.{first}Regressor"), given)


METHODS = {
    "classic": Method(partial(_grown, classic.grow, {})),
    "extra": Method(partial(_grown, classic.grow_extra, {})),
    "complete": Method(partial(_grown, classic.grow_random, {})),
    "sporf": Method(partial(_grown, manifold.grow, {"projection": "sparse"})),
    "probes": Method(partial(_grown, manifold.grow, {"projection": "probe"})),
    "co2": Method(partial(_grown, co2.grow, {"n_trees": 30})),
    "cascade": Method(_cascade, classes_only=True),
    "neural": Method(_neural, classes_only=True),
    "hinge": Method(_hinge, "hforest.tabular"),
    "rf": Method(_of_sklearn("sklearn.ensemble", "RandomForest", n_jobs=1), "sklearn"),
    "et": Method(_of_sklearn("sklearn.ensemble", "ExtraTrees", n_jobs=1), "sklearn"),
    "histgb": Method(_of_sklearn("sklearn.ensemble", "HistGradientBoosting"), "sklearn"),
    "mlp": Method(_mlp, "sklearn"),
    "xgboost": Method(_of_sklearn("xgboost", "XGB", n_jobs=1), "xgboost"),
    "lightgbm": Method(_of_sklearn("lightgbm", "LGBM", n_jobs=1, verbose=-1), "lightgbm"),
    "catboost": Method(
        _of_sklearn("catboost", "CatBoost", thread_count=1, verbose=0, allow_writing_files=False), "catboost"
    ),
    "ydf": Method(_ydf, "ydf"),
}

_LEAVES: dict[str, list[Any]] = {"min_samples_leaf": [1, 2, 4, 8]}
_BOOSTED: dict[str, list[Any]] = {
    "learning_rate": [0.02, 0.05, 0.1, 0.2], "n_estimators": [100, 200, 400, 800],
    "subsample": [0.6, 0.8, 1.0], "colsample_bytree": [0.5, 0.75, 1.0],
}  # fmt: skip
SPACES: dict[str, dict[str, list[Any]]] = {
    "classic": {"max_features": ["sqrt", 0.3, 0.6, None], **_LEAVES},
    "extra": {"max_features": ["sqrt", 0.3, 0.6, None], **_LEAVES},
    "rf": {"max_features": ["sqrt", 0.3, 0.6, None], **_LEAVES},
    "et": {"max_features": ["sqrt", 0.3, 0.6, None], **_LEAVES},
    "sporf": {"density": [1.0, 1.5, 3.0, 6.0], "n_projections": [5, 10, 20, 40, 80], **_LEAVES},
    "co2": {
        "nu": [1.0, 4.0, 10.0, 43.0], "lr": [0.01, 0.03, 0.1], "min_samples_oblique": [1, 10, 50, 200],
        "bootstrap": [False, True],
    },
    "hinge": {
        "n_trees": [25, 50, 100], "lr": [0.0005, 0.001, 0.002], "n_projections": [0, 100, 300],
        "n_members": [3, 5], "scaling": ["auto", "normal"],
    },
    "neural": {"lr": [0.01, 0.03, 0.05, 0.1], "epochs": [5, 10, 20, 40], "depth": [5, 7]},
    "histgb": {
        "learning_rate": [0.02, 0.05, 0.1, 0.2], "max_iter": [100, 200, 400],
        "max_leaf_nodes": [7, 15, 31, 63], "l2_regularization": [0.0, 1.0, 10.0],
    },
    "mlp": {"alpha": [1e-5, 1e-4, 1e-3, 1e-2], "hidden_layer_sizes": [(100,), (300,), (100, 100)]},
    "xgboost": {"max_depth": [3, 6, 9], "min_child_weight": [1, 4, 16], **_BOOSTED},
    "lightgbm": {"num_leaves": [7, 15, 31, 63], "subsample_freq": [1], **_BOOSTED},
    "catboost": {"depth": [4, 6, 8], "learning_rate": [0.03, 0.06, 0.12], "l2_leaf_reg": [1.0, 3.0, 9.0]},
}  # fmt: skip


def parsed(method: str) -> tuple[str, Settings]:
    """The name and the settings of "name:setting=value,..."."""
    name, _, text = method.partition(":")
    if name not in METHODS:
        raise SystemExit(
            f"--methods: expected names of METHODS, got {name!r}; choose from {', '.join(METHODS)}"
        )
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        assert isinstance(call, ast.Call)
        if call.args or any(word.arg is None for word in call.keywords):
            raise ValueError
        return name, {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError):
        raise SystemExit(
            f"--methods: expected name:setting=value,... with plain values, got {method!r}; "
            "write texts in quotes"
        ) from None


def installed(method: str) -> bool:
    """Whether the package that a method needs is there."""
    try:
        importlib.import_module(METHODS[parsed(method)[0]].needs)
    except ImportError:
        return False
    return True


# ------------------------------------------------------------------------------ tables


def find(folders: Iterable[Path], table: str) -> Path:
    """The file of a table."""
    for folder in folders:
        if (folder / f"{table}.npz").is_file():
            return folder / f"{table}.npz"
    raise SystemExit(f"--data: expected folders with {table}.npz, found it in none; add its folder")


def _indicators(x: np.ndarray) -> Predict:
    """Columns of few whole numbers become indicators of those that the samples for fitting have."""
    values = [np.unique(column) for column in x.T]
    few = [len(v) <= CATEGORIES and bool((v == np.round(v)).all()) for v in values]

    def changed(a: np.ndarray) -> np.ndarray:
        columns = [a[:, f, None] == values[f] if is_few else a[:, f, None] for f, is_few in enumerate(few)]
        return np.concatenate(columns, axis=1).astype(np.float32)

    return changed


def _scaler(scale: str, x: np.ndarray, seed: int) -> Predict:
    """The change of columns: of samples, by the samples for fitting."""
    if scale == "indicators":
        return _indicators(x)
    low: Any = np.zeros(x.shape[1])
    divisor: Any = np.ones(x.shape[1])
    if scale == "unit":
        low, divisor = x.min(axis=0).astype(np.float64), np.ptp(x, axis=0).astype(np.float64)
    elif scale == "deviations":
        low, divisor = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
    elif scale == "powers":
        divisor = 10.0 ** np.random.default_rng([seed, 1]).integers(-12, 13, x.shape[1])
    divisor = np.where(divisor > 0, divisor, 1)
    return lambda a: ((a - low) / divisor).astype(np.float32)


def load(
    path: Path, rows: int, split: int, held_out: bool, scale: str
) -> tuple[Data, np.ndarray, np.ndarray]:
    """Samples for fitting, and samples and their labels or targets for the test.

    Labels are numbered as they occur among the samples for fitting; others are -1, which nobody predicts.
    """
    with np.load(path) as file:
        names = ("x_train", "x_test") if "x_train" in file else ("x",)
        x = np.concatenate([file[name] for name in names])
        y = np.concatenate([file["y" + name[1:]] for name in names])
    picked = np.random.default_rng(split).permutation(len(x))[:rows]
    train, test = np.split(picked, [2 * len(picked) // 3])
    if held_out:
        train, test = np.split(train, [3 * len(train) // 4])
    n_classes, y_train, y_test = None, y[train].astype(np.float64), y[test].astype(np.float64)
    if y.dtype.kind != "f" and path.stem not in REGRESSIONS:
        classes, numbers = np.unique(y[train], return_inverse=True)
        n_classes, y_train = len(classes), np.asarray(numbers)
        number = np.full(int(y.max()) + 1, -1)
        number[classes] = np.arange(n_classes)
        y_test = number[y[test]]
    x = x.astype(np.float32)
    x_train, x_test = x[train], x[test]
    if scale != "raw":
        change = _scaler(scale, x_train, split)
        x_train, x_test = change(x_train), change(x_test)
    return Data(x_train, y_train, n_classes, split), x_test, y_test


def error(p: np.ndarray, y: np.ndarray, n_classes: int | None) -> float:
    """Percent of wrong labels, or of the variance that is not explained."""
    if n_classes is None:
        return float(100 * ((p - y) ** 2).mean() / y.var())
    return float(100 * (p != y).mean())


def search(method: str, data: Data, seconds: float) -> Settings:
    """The settings of least error on a fifth of the samples, of those that were tried in so many seconds."""
    name, given = parsed(method)
    rng, end = np.random.default_rng([data.seed, 2]), time.process_time() + seconds
    held = np.arange(len(data.y)) % 5 == 0  # the samples are in random order
    kept = data._replace(x=data.x[~held], y=data.y[~held])
    labels = np.arange(data.n_classes or 0)
    if data.n_classes is not None:
        labels, y = np.unique(kept.y, return_inverse=True)
        kept = kept._replace(y=y, n_classes=len(labels))
    best, least = given, np.inf
    tried = dict(given)
    while True:
        p = METHODS[name].fit(kept, tried)(data.x[held])
        found = error(p if data.n_classes is None else labels[p], data.y[held], data.n_classes)
        if found < least:
            best, least = tried, found
        if time.process_time() > end:
            return best
        tried = {key: values[int(rng.integers(len(values)))] for key, values in SPACES[name].items()} | given


# ------------------------------------------------------------------------------ measurement


def measure(method: str, path: Path, key: Settings) -> Settings:
    """The row of one method, table and split."""
    data, x_test, y_test = load(path, key["rows"], key["split"], key["held_out"], key["scale"])
    name, settings = parsed(method)
    begin = time.process_time()
    if key["seconds"] and name in SPACES:
        settings = search(method, data, key["seconds"])
    searched = time.process_time()
    predict = METHODS[name].fit(data, settings)
    fitted = time.process_time()
    p = predict(x_test)
    return {
        **key, "task": data.task, "n_fitted": len(data.y), "n_features": data.x.shape[1],
        "n_classes": data.n_classes, "settings": settings, "error": error(p, y_test, data.n_classes),
        "search_seconds": searched - begin, "fit_seconds": fitted - searched,
        "predict_seconds": time.process_time() - fitted,
    }  # fmt: skip


def versions() -> dict[str, str]:
    found = {}
    for name in ("scikit-learn", "xgboost", "xgboost-cpu", "lightgbm", "catboost", "ydf"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def run(options: argparse.Namespace) -> None:
    """Measures what the record does not have."""
    hforest.set_num_threads(1)
    warnings.filterwarnings("ignore")  # of peers: unfinished networks, missing column names
    tables = options.tables or [name for half in options.half for name in HALVES[half]]
    methods = [name for name in options.methods if installed(name)]
    missing = [name for name in options.methods if name not in methods]
    if missing:
        print("not installed:", ", ".join(missing), file=sys.stderr)
    rows: list[Settings] = []
    if options.json and options.json.is_file():
        rows = json.loads(options.json.read_text())["rows"]
    wanted = [
        (find(options.data, table), {
            "table": table, "method": method, "split": split, "scale": scale, "rows": options.rows,
            "held_out": options.held_out, "seconds": options.seconds,
        })
        for table in tables for scale in options.scale for split in range(options.splits)
        for method in methods
    ]  # fmt: skip
    found = []
    with Bar("tabular") as bar:
        for done, (path, key) in enumerate(wanted):
            row = next((row for row in rows if key.items() <= row.items()), None)
            bar(done, len(wanted))
            bar.note(f"{key['table']}, {key['method']}, split {key['split']}")
            if row is None and not _skipped(path, key):
                try:
                    row = measure(key["method"], path, key)
                except ValueError as refused:  # a cascade needs some samples of each class
                    print(f"{key['table']}, {key['method']}: left out: {refused}", file=sys.stderr)
                    continue
                rows.append(row)
                if options.json:
                    record(options.json, rows, versions=versions())
            if row is not None:
                found.append(row)
        bar(len(wanted), len(wanted))
    print(machine_text())
    print(tables_of(found))


def _skipped(path: Path, key: Settings) -> bool:
    """Whether a method is for classes alone and the table a regression."""
    if not METHODS[parsed(key["method"])[0]].classes_only:
        return False
    with np.load(path) as file:
        kind = file["y" if "y" in file else "y_train"].dtype.kind
    return bool(kind == "f" or path.stem in REGRESSIONS)


# ------------------------------------------------------------------------------ tables of a record


class Summary(NamedTuple):
    """What the splits of all tables of a task say about methods."""

    tables: list[str]
    methods: list[str]
    errors: np.ndarray
    """(n_tables, n_methods) means over splits, NaN where there are none."""
    seconds: np.ndarray
    """As errors: means of the seconds of fitting."""
    ranks: np.ndarray
    """(n_methods,) mean rank by error over tables; equal errors share a rank."""
    ratios: np.ndarray
    """(n_methods,) geometric mean of errors over BASE's, of tables on which no method's error is 0."""
    times: np.ndarray
    """(n_methods,) geometric mean of seconds over BASE's."""


def _geometric(a: np.ndarray, base: np.ndarray, which: np.ndarray) -> np.ndarray:
    a = np.where(which[:, None], a / np.where(which, base, 1)[:, None], np.nan)
    return np.exp(np.nanmean(np.log(a), axis=0)) if which.any() else np.full(a.shape[1], np.nan)


def summary(rows: list[Settings], task: str) -> Summary | None:
    """The summary of the rows of a task; None without rows."""
    by: dict[tuple[str, str], list[Settings]] = {}
    for row in rows:
        if row["task"] == task:
            table = row["table"] if row["scale"] == "raw" else f"{row['table']}, {row['scale']}"
            by.setdefault((table, row["method"]), []).append(row)
    if not by:
        return None
    tables, methods = (list(dict.fromkeys(key[i] for key in by)) for i in (0, 1))
    errors, seconds = (
        np.array([
            [np.mean([row[name] for row in by[t, m]]) if (t, m) in by else np.nan for m in methods]
            for t in tables
        ])
        for name in ("error", "fit_seconds")
    )  # fmt: skip
    less = (errors[:, None, :] < errors[:, :, None]).sum(axis=2)
    equal = (errors[:, None, :] == errors[:, :, None]).sum(axis=2)
    ranks = np.where(np.isnan(errors), np.nan, less + (equal + 1) / 2)
    ratios = times = np.full(len(methods), np.nan)
    if BASE in methods:
        base = methods.index(BASE)
        there = ~np.isnan(errors[:, base])
        positive = there & ~(errors == 0).any(axis=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a method without tables
            ratios = _geometric(errors, errors[:, base], positive)
            times = _geometric(seconds, seconds[:, base], there)
    return Summary(tables, methods, errors, seconds, np.nanmean(ranks, axis=0), ratios, times)


def _markdown(head: list[str], lines: list[list[str]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *lines])


def _number(a: float, digits: int) -> str:
    return "–" if np.isnan(a) else f"{a:.{digits}f}"


def _errors(row: np.ndarray) -> list[str]:
    return [_number(a, 3 if a < 0.1 else 2 if a < 10 else 1) for a in row]


def summary_table(rows: list[Settings], task: str = "classification") -> str:
    """A line for each method: mean rank, error and seconds of fitting against the random forest."""
    found = summary(rows, task)
    assert found is not None, f"no rows of a {task}"
    return _markdown(
        ["method", "mean rank", "error / random forest's", "seconds / random forest's", "tables"],
        [
            [f"`{found.methods[i]}`", _number(found.ranks[i], 1), _number(found.ratios[i], 3),
             _number(found.times[i], 2), str(int((~np.isnan(found.errors[:, i])).sum()))]
            for i in np.argsort(found.ranks, kind="stable")
        ],
    )  # fmt: skip


def errors_table(rows: list[Settings], task: str = "classification") -> str:
    """A line for each table, a column for each method: errors in percent, means over splits."""
    found = summary(rows, task)
    assert found is not None, f"no rows of a {task}"
    lines = [[name, *_errors(row)] for name, row in zip(found.tables, found.errors, strict=True)]
    return _markdown(["table", *(f"`{name}`" for name in found.methods)], lines)


def tables_of(rows: list[Settings]) -> str:
    """All tables of a record."""
    return "\n\n".join(
        f"{task}\n\n{summary_table(rows, task)}\n\n{errors_table(rows, task)}"
        for task in ("classification", "regression")
        if summary(rows, task) is not None
    )


def figure(rows: list[Settings], path: Path) -> None:
    """Error against the random forest's over time against its, a panel for each task."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    tasks = [task for task in ("classification", "regression") if summary(rows, task) is not None]
    drawing, panels = pyplot.subplots(1, len(tasks), figsize=(6.5 * len(tasks), 5), squeeze=False)
    for panel, task in zip(panels[0], tasks, strict=True):
        found = summary(rows, task)
        assert found is not None
        for name, x, y in zip(found.methods, found.times, found.ratios, strict=True):
            ours = METHODS[parsed(name)[0]].needs.startswith("hforest")
            panel.plot(x, y, "o" if ours else "s", color="C0" if ours else "C7")
            panel.annotate(name, (x, y), xytext=(4, 4), textcoords="offset points", fontsize=8)
        panel.axhline(1, color="0.8", linewidth=0.8, zorder=0)
        panel.axvline(1, color="0.8", linewidth=0.8, zorder=0)
        panel.set_xscale("log")
        panel.set_xlabel("seconds of fitting / random forest's")
        panel.set_ylabel("error / random forest's")
        panel.set_title(f"{task}, {len(found.tables)} tables; circles: hforest")
    drawing.tight_layout()
    drawing.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, nargs="+")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tables", nargs="+")
    which.add_argument("--half", nargs="+", choices=tuple(HALVES), default=tuple(HALVES))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--scale", nargs="+", choices=SCALES, default=["raw"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path, nargs="+")
    parser.add_argument("--figure", type=Path, nargs=2, metavar=("FILE", "OUT"))
    options = parser.parse_args()
    if options.figure:
        need("-e '.[bench]'", "matplotlib")
        figure(json.loads(options.figure[0].read_text())["rows"], options.figure[1])
    elif options.table:
        print(tables_of([row for file in options.table for row in json.loads(file.read_text())["rows"]]))
    elif options.data:
        run(options)
    else:
        parser.error("pass --data to measure, or --table or --figure and a record")


if __name__ == "__main__":
    main()
