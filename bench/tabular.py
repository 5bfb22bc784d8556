"""Errors and times on ordinary tables: all forests beside other libraries, at defaults, on one thread.

    python bench/tabular.py --data DIR [DIR ...] [--tables NAME ... | --half choose judge public]
        [--task classification | regression] [--methods NAME ...] [--splits 5] [--rows 20000] [--held-out]
        [--seconds S] [--no-categorical] [--gaps random value]
        [--scale raw unit deviations powers indicators] [--json FILE]
    python bench/tabular.py --table FILE [FILE ...]   # markdown tables of records, without a measurement
    python bench/tabular.py --figure FILE ... OUT.png # error over time, both against the random forest
    python bench/tabular.py --ranks FILE ... OUT.png  # mean ranks, with their critical difference

A table is an npz file in one of the folders, of x and y, or of x_train, y_train, x_test and y_test, which are
joined. A split draws at most `rows` rows at random with its number as the seed, two thirds for fitting and
the rest for the test. With --held-out a quarter of the rows for fitting replaces the test rows, which are
then not read. Settings are chosen in this way, only on the tables of CHOOSE. Those of JUDGE were used for no
choice. Neither were those of PUBLIC, on which nothing was measured before the public comparison.

A method is a name of METHODS, or `name:setting=value,...` with arguments of its public function or estimator,
such as "co2:nu=10,bootstrap=True"; n_projections may also be 'sqrt' or 'features' (100 at most). With
--seconds, a method with a space in SPACES draws settings from it for this time. Each is evaluated on a fifth
of the rows for fitting, the defaults first; the best one is fitted on all of them. Methods that are not
installed, or refuse a table, are left out.

Methods that take categories get the columns of categories (CATEGORIES in tabular_data.py) as such. Other
methods read their codes as numbers; with --no-categorical or --scale all methods do. With --gaps a fifth of
the values is missing in the rows for fitting and for the test: at random, or more often for larger values of
a column. Methods that refuse NaN are left out.

Seconds are processor time of one thread, which other work on the machine hardly changes. Errors are in
percent of labels, or 1 - R2 in percent. The log loss (natural logarithm) is a mean over the test rows whose
label occurs among the rows for fitting; no method has a probability for other labels. Probabilities below the
eps of float32, 1.2e-7, count as eps for all methods, because a forest of 100 trees has shares of 0. The AUC
and the expected calibration error (Guo et al. 2017, ten bins) are of the same rows; the AUC of more than two
classes is the mean over pairs of them (Hand and Till 2001). Regressions have the RMSE in the unit of the
target. Rows of older records lack some of these figures, and have dashes in tables.

--scale changes the columns after loading. "unit" maps them to [0, 1] and "deviations" divides the difference
from the mean by the standard deviation, both by the rows for fitting. "powers" multiplies them by random
powers of ten, 1e-12 to 1e12. "indicators" replaces columns of at most 16 whole numbers by an indicator of
each number.

--table, --figure and --ranks read only the methods of --methods, if it is passed. --ranks draws mean ranks by
error over the tables, of classes and of targets, on which all methods have errors. It also draws the critical
difference of mean ranks at the level .05 by Nemenyi's test (Demsar, Statistical comparisons of classifiers
over multiple data sets, JMLR 7, 2006, section 3.2.2). Bars join methods that differ by less. The json record
keeps its rows, so the same command continues after a stop.
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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":  # read when the libraries are loaded
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["MKL_NUM_THREADS"] = "1"

import numpy as np
from common import COMPLETELY_RANDOM, Bar, machine_text, need, options_of, record
from tabular_data import (
    CATEGORIES,
    GAPS,
    HALVES,
    REGRESSIONS,
    SCALES,
    Data,
    find,
    load,
    scaler,
)

import hforest
from hforest import alternating, cascade, co2, growth, neural, project, tree
from hforest.tabular.evaluation import metrics

BASE = "rf"
"""The method that others are compared with."""
NAMES = {"rf": "random forest's"}
"""Short names of methods that others are compared with, in heads of tables."""
EPS = float(np.finfo(np.float32).eps)
"""Minimum probability in a log loss."""

Settings = dict[str, Any]
Predict = Callable[[np.ndarray], np.ndarray]
"""Samples to class probabilities, (n_samples, n_classes), or labels; in a regression to targets."""

# ------------------------------------------------------------------------------ methods of this library


def _answers(p: np.ndarray, data: Data) -> np.ndarray:
    """Returns class probabilities as they are, or targets of outputs."""
    return p.reshape(len(p), -1)[:, 0] if data.n_classes is None else p


def _categorical(data: Data) -> tuple[Predict, Settings]:
    """Returns a conversion of missing categories to NaN, and the argument for columns of categories."""
    columns = list(data.categorical)
    if not columns:
        return lambda x: x, {}

    def changed(x: np.ndarray) -> np.ndarray:
        x = x.copy()
        x[:, columns] = np.where(x[:, columns] < 0, np.nan, x[:, columns])
        return x

    return changed, {"categorical": columns}


def _grown(grow: Callable[..., Any], given: Settings, data: Data, settings: Settings) -> Predict:
    """Returns a grown forest; `given` are settings that replace defaults of the function."""
    settings = {"n_trees": 100, **given, **settings}
    n_features = data.x.shape[1]
    if isinstance(settings.get("n_projections"), str):
        known = {"sqrt": math.ceil(n_features**0.5), "features": min(n_features, 100)}
        settings["n_projections"] = known[settings["n_projections"]]
    if "projections" in settings:
        options = {name: settings.pop(name) for name in ("density", "single_share") if name in settings}
        settings["projections"] = settings["projections"](n_features, **options)
    changed, more = _categorical(data)
    x = changed(data.x)
    forest = grow(
        x if grow is co2.grow else growth.samples(x, **more), data.y, task=data.task,
        n_classes=data.n_classes, rng=data.seed, **settings,
    )  # fmt: skip
    return lambda x: _answers(tree.predict(forest, changed(x)), data)


def _cascade(data: Data, settings: Settings) -> Predict:
    settings = {"n_trees": 50, **settings}
    forests = cascade.default_forests(settings.pop("n_trees"))
    grown = cascade.grow(data.x, data.y, forests, n_classes=data.n_classes, rng=data.seed, **settings)
    return lambda x: _answers(cascade.predict(grown, x), data)


def _neural(data: Data, settings: Settings) -> Predict:
    """Fits a neural forest by Algorithm 1 from a random start."""
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
    changed, more = _categorical(data)
    model = tabular.fit(
        changed(data.x), data.y, task=data.task, n_classes=data.n_classes, rng=data.seed, **more, **settings,
    )  # fmt: skip
    return lambda x: _answers(tabular.predict(model, changed(x)), data)


# ------------------------------------------------------------------------------ methods of others


def _texts(column: np.ndarray) -> np.ndarray:
    """Returns categories as non-numeric text; missing ones are empty."""
    missing = ~(column >= 0)
    codes = np.where(missing, 0, column).astype(np.int64).astype(str)
    return np.where(missing, "", np.char.add("c", codes))


def _with_texts(x: np.ndarray, columns: list[int]) -> np.ndarray:
    mixed = x.astype(object)
    for j in columns:
        mixed[:, j] = _texts(x[:, j])
    return mixed


def _with_levels(x: np.ndarray, levels: dict[int, np.ndarray]) -> Any:
    """Returns a data frame whose columns of categories have these levels; other values are missing."""
    import pandas

    columns: dict[str, Any] = {str(j): column for j, column in enumerate(x.T)}
    for j, names in levels.items():
        codes = pandas.Index(names).get_indexer(_texts(x[:, j]))
        columns[str(j)] = pandas.Categorical.from_codes(codes, names)
    return pandas.DataFrame(columns)


def _native(package: str, data: Data) -> tuple[Callable[[np.ndarray], Any], Settings, Settings]:
    """Returns a change of samples, and arguments of estimator and `fit`, for columns of categories."""
    columns = list(data.categorical)
    if columns and package == "catboost":
        return partial(_with_texts, columns=columns), {}, {"cat_features": columns}
    if columns and package == "xgboost":
        levels = {j: np.setdiff1d(_texts(data.x[:, j]), [""]) for j in columns}
        return partial(_with_levels, levels=levels), {"enable_categorical": True}, {}
    if columns and package == "lightgbm":
        return lambda x: x, {}, {"categorical_feature": columns}
    return lambda x: x, {"categorical_features": columns} if columns else {}, {}


def _sklearn(names: tuple[str, str], given: Settings, data: Data, settings: Settings) -> Predict:
    """Returns an estimator with scikit-learn's interface: "module.Classifier", "module.Regressor"."""
    module, name = names[data.n_classes is None].rsplit(".", 1)
    changed, more, of_fit = _native(module.split(".")[0], data)
    kind = getattr(importlib.import_module(module), name)
    model = kind(**{"random_state": data.seed, **given, **more, **settings})
    model.fit(changed(data.x), data.y, **of_fit)
    if data.n_classes is not None and hasattr(model, "predict_proba"):
        return lambda x: np.asarray(model.predict_proba(changed(x)))
    return lambda x: np.asarray(model.predict(changed(x))).reshape(len(x))


def _mlp(data: Data, settings: Settings) -> Predict:
    """Fits scikit-learn's network to columns, and targets, in units of their deviations."""
    scaled = scaler("deviations", data.x, data.seed)
    y, mean, deviation = data.y, 0.0, 1.0
    if data.n_classes is None:
        mean, deviation = float(y.mean()), float(y.std()) or 1.0
        y = (y - mean) / deviation
    names = ("sklearn.neural_network.MLPClassifier", "sklearn.neural_network.MLPRegressor")
    predict = _sklearn(names, {}, data._replace(x=scaled(data.x), y=y), settings)
    if data.n_classes is not None:
        return lambda x: predict(scaled(x))
    return lambda x: predict(scaled(x)) * deviation + mean


def _ydf(learner: str, given: Settings, data: Data, settings: Settings) -> Predict:
    """Fits a learner of ydf."""
    import ydf

    ydf.verbose(0)
    columns = list(data.categorical)
    others = np.setdiff1d(np.arange(data.x.shape[1]), columns)

    def features(x: np.ndarray) -> dict[str, np.ndarray]:
        named = {f"category{j}": _texts(x[:, j]) for j in columns}
        return named | ({"x": x[:, others]} if len(others) else {})

    task = ydf.Task.REGRESSION if data.n_classes is None else ydf.Task.CLASSIFICATION
    settings = {"num_threads": 1, "random_seed": data.seed, **given, **settings}
    model = getattr(ydf, learner)(label="y", task=task, **settings).train({**features(data.x), "y": data.y})

    def predict(x: np.ndarray) -> np.ndarray:
        p = np.asarray(model.predict(features(x)))
        if data.n_classes is None:
            return p
        if p.ndim == 1:  # probabilities of the second of two classes
            p = np.column_stack([1 - p, p])
        ordered = np.zeros((len(x), data.n_classes))
        ordered[:, [int(name) for name in model.label_classes()]] = p
        return ordered

    return predict


class Method(NamedTuple):
    """A kind of model."""

    fit: Callable[[Data, Settings], Predict]
    needs: str = "hforest"
    """The package that must be installed."""
    classes_only: bool = False
    categorical: bool = False
    """Whether it takes columns of categories; if not, it reads their codes as numbers."""


def _of_sklearn(module: str, first: str, **given: Any) -> Callable[[Data, Settings], Predict]:
    return partial(_sklearn, (f"{module}.{first}Classifier", f"{module}.{first}Regressor"), given)


METHODS = {
    "classic": Method(partial(_grown, growth.grow, {}), categorical=True),
    "extra": Method(
        partial(_grown, growth.grow, {"splitter": "random", "bootstrap": False}), categorical=True
    ),
    "complete": Method(partial(_grown, growth.grow, COMPLETELY_RANDOM), categorical=True),
    "sporf": Method(partial(_grown, growth.grow, {"projections": project.sparse_distribution})),
    "probes": Method(
        partial(_grown, growth.grow, {"projections": project.probe_distribution, "single_share": 0.5})
    ),
    "alternating": Method(partial(_grown, alternating.grow, {}), classes_only=True, categorical=True),
    "co2": Method(partial(_grown, co2.grow, {"n_trees": 30})),
    "cascade": Method(_cascade, classes_only=True),
    "neural": Method(_neural, classes_only=True),
    "hinge": Method(_hinge, "hforest.tabular", categorical=True),
    "rf": Method(_of_sklearn("sklearn.ensemble", "RandomForest", n_jobs=1), "sklearn"),
    "et": Method(_of_sklearn("sklearn.ensemble", "ExtraTrees", n_jobs=1), "sklearn"),
    "histgb": Method(_of_sklearn("sklearn.ensemble", "HistGradientBoosting"), "sklearn", categorical=True),
    "mlp": Method(_mlp, "sklearn"),
    "xgboost": Method(_of_sklearn("xgboost", "XGB", n_jobs=1), "xgboost", categorical=True),
    "lightgbm": Method(_of_sklearn("lightgbm", "LGBM", n_jobs=1, verbose=-1), "lightgbm", categorical=True),
    "catboost": Method(
        _of_sklearn("catboost", "CatBoost", thread_count=1, verbose=0, allow_writing_files=False),
        "catboost",
        categorical=True,
    ),
    "ydf": Method(
        partial(_ydf, "RandomForestLearner", {"split_axis": "SPARSE_OBLIQUE"}), "ydf", categorical=True
    ),
    "ydf_boosted": Method(partial(_ydf, "GradientBoostedTreesLearner", {}), "ydf", categorical=True),
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
    """Returns the name and the settings of "name:setting=value,..."."""
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


def fit(method: str, data: Data, settings: Settings) -> Predict:
    """Returns a function that predicts with a fitted model."""
    kind = METHODS[parsed(method)[0]]
    return kind.fit(data if kind.categorical else data._replace(categorical=()), settings)


def installed(method: str) -> bool:
    """Returns whether the package that a method needs is installed."""
    try:
        importlib.import_module(METHODS[parsed(method)[0]].needs)
    except ImportError:
        return False
    return True


# ------------------------------------------------------------------------------ errors


def labels_of(p: np.ndarray) -> np.ndarray:
    """Returns the labels of class probabilities; labels and targets unchanged."""
    return p.argmax(axis=1) if p.ndim == 2 else p


def log_loss(p: np.ndarray, y: np.ndarray) -> float:
    """Returns the mean of -ln of the probabilities of labels, at least EPS, without rows of label -1."""
    return float(metrics.log_losses(p[y >= 0], y[y >= 0], EPS).mean())


def figures(p: np.ndarray, y: np.ndarray, n_classes: int | None) -> dict[str, float]:
    """Returns the FIGURES of predictions; those that there are not are missing."""
    if n_classes is None:
        return {"rmse": float(((p - y) ** 2).mean() ** 0.5)}
    if p.ndim == 1 or not (y >= 0).any():
        return {}
    known = p[y >= 0], y[y >= 0]
    found = {"log_loss": log_loss(p, y), "auc": metrics.auc(*known), "ece": metrics.calibration(*known).error}
    return {name: value for name, value in found.items() if not math.isnan(value)}


def error(p: np.ndarray, y: np.ndarray, n_classes: int | None) -> float:
    """Returns the percentage of wrong labels, or of unexplained variance."""
    if n_classes is None:
        return float(100 * ((p - y) ** 2).mean() / y.var())
    return float(100 * (p != y).mean())


def search(method: str, data: Data, seconds: float) -> Settings:
    """Returns the settings of smallest error on a fifth of the samples, among those tried in time."""
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
        p = labels_of(fit(name, kept, tried)(data.x[held]))
        found = error(p if data.n_classes is None else labels[p], data.y[held], data.n_classes)
        if found < least:
            best, least = tried, found
        if time.process_time() > end:
            return best
        tried = {key: values[int(rng.integers(len(values)))] for key, values in SPACES[name].items()} | given


# ------------------------------------------------------------------------------ measurement


def measure(method: str, path: Path, key: Settings) -> Settings:
    """Returns the row of one method, table and split."""
    names = ("rows", "split", "held_out", "scale", "categorical", "gaps")
    data, x_test, y_test = load(path, *(key[name] for name in names))
    name, settings = parsed(method)
    begin = time.process_time()
    if key["seconds"] and name in SPACES:
        settings = search(method, data, key["seconds"])
    searched = time.process_time()
    predict = fit(name, data, settings)
    fitted = time.process_time()
    p = predict(x_test)
    end = time.process_time()
    return {
        **key, "task": data.task, "n_fitted": len(data.y), "n_features": data.x.shape[1],
        "n_classes": data.n_classes, "settings": settings,
        "error": error(labels_of(p), y_test, data.n_classes), **figures(p, y_test, data.n_classes),
        "search_seconds": searched - begin, "fit_seconds": fitted - searched,
        "predict_seconds": end - fitted,
    }  # fmt: skip


OLD = {"categorical": False, "gaps": None}
"""Values for rows of records that lack them."""


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
    warnings.filterwarnings("ignore")  # warnings of peers: unfinished networks, missing column names
    tables = options.tables or [name for half in options.half for name in HALVES[half]]
    asked = options.methods or list(METHODS)
    methods = [name for name in asked if installed(name)]
    missing = [name for name in asked if name not in methods]
    if missing:
        print("not installed:", ", ".join(missing), file=sys.stderr)
    rows: list[Settings] = []
    if options.json and options.json.is_file():
        rows = json.loads(options.json.read_text())["rows"]
    wanted = [
        (find(options.data, table), {
            "table": table, "method": method, "split": split, "scale": scale, "rows": options.rows,
            "held_out": options.held_out, "seconds": options.seconds,
            "categorical": options.categorical and scale == "raw" and table in CATEGORIES
            and METHODS[parsed(method)[0]].categorical,
            "gaps": gaps,
        })
        for table in tables for scale in options.scale for gaps in options.gaps
        for split in range(options.splits)
        for method in methods if measured(find(options.data, table), method, options.task)
    ]  # fmt: skip
    found = []
    with Bar("tabular") as bar:
        for done, (path, key) in enumerate(wanted):
            row = next((row for row in rows if key.items() <= {**OLD, **row}.items()), None)
            bar(done, len(wanted))
            bar.note(f"{key['table']}, {key['method']}, split {key['split']}")
            if row is None:
                try:
                    row = measure(key["method"], path, key)
                except Exception as refused:  # each library has its own; a cascade needs some of each class
                    print(f"{key['table']}, {key['method']}: left out: {refused!r}", file=sys.stderr)
                    continue
                rows.append(row)
                if options.json:
                    record(options.json, rows, versions=versions())
            if row is not None:
                found.append(row)
        bar(len(wanted), len(wanted))
    print(machine_text())
    print(tables_of(found, options.base))


def measured(path: Path, method: str, task: str | None) -> bool:
    """Returns whether a table is of the task, if one is given, and a method is for tables of its kind."""
    with np.load(path) as file:
        kind = file["y" if "y" in file else "y_train"].dtype.kind
    regression = kind == "f" or path.stem in REGRESSIONS
    if METHODS[parsed(method)[0]].classes_only and regression:
        return False
    return task is None or (task == "regression") == regression


# ------------------------------------------------------------------------------ tables of a record


FIGURES = {"log_loss": "{:.3f}", "auc": "{:.4f}", "ece": "{:.2%}", "rmse": "{:.4g}"}
"""Figures of rows besides the error, and how tables show them."""
TITLES = {"log_loss": "Log losses", "auc": "AUC", "ece": "Expected calibration errors", "rmse": "RMSE"}


class Summary(NamedTuple):
    """Results of methods over the splits of all tables of a task."""

    tables: list[str]
    methods: list[str]
    errors: np.ndarray
    """(n_tables, n_methods) means over splits, NaN if there are none."""
    seconds: np.ndarray
    """Means of the seconds of fitting, in the form of errors."""
    ranks: np.ndarray
    """(n_methods,) mean rank by error over tables; equal errors share a rank."""
    ratios: np.ndarray
    """(n_methods,) geometric mean of errors over BASE's, of tables on which no method's error is 0."""
    times: np.ndarray
    """(n_methods,) geometric mean of seconds over BASE's."""
    figures: dict[str, np.ndarray]
    """Means over splits of FIGURES, in the form of errors."""
    loss_ratios: np.ndarray
    """(n_methods,) geometric mean of log losses over BASE's, of tables on which none is 0."""


def _ranks(errors: np.ndarray) -> np.ndarray:
    """Returns ranks in each row, 1 for the smallest; equal errors share a rank, NaN has none."""
    less = (errors[:, None, :] < errors[:, :, None]).sum(axis=2)
    equal = (errors[:, None, :] == errors[:, :, None]).sum(axis=2)
    return np.where(np.isnan(errors), np.nan, less + (equal + 1) / 2)


def _geometric(a: np.ndarray, base: np.ndarray, which: np.ndarray) -> np.ndarray:
    a = np.where(which[:, None], a / np.where(which, base, 1)[:, None], np.nan)
    return np.exp(np.nanmean(np.log(a), axis=0)) if which.any() else np.full(a.shape[1], np.nan)


def summary(rows: list[Settings], task: str, base: str = BASE) -> Summary | None:
    """Returns the summary of the rows of a task, relative to the method `base`; None without rows."""
    by: dict[tuple[str, str], list[Settings]] = {}
    for row in rows:
        if row["task"] == task:
            changes = [change for change in (row["scale"], row.get("gaps")) if change not in ("raw", None)]
            table = ", ".join([row["table"], *changes])
            by.setdefault((table, row["method"]), []).append(row)
    if not by:
        return None
    tables, methods = (list(dict.fromkeys(key[i] for key in by)) for i in (0, 1))
    found = {
        name: np.array([
            [np.mean([row.get(name, np.nan) for row in by.get((t, m), [{}])]) for m in methods]
            for t in tables
        ])
        for name in ("error", "fit_seconds", *FIGURES)
    }  # fmt: skip
    errors, seconds, losses = found.pop("error"), found.pop("fit_seconds"), found["log_loss"]
    ratios = times = loss_ratios = np.full(len(methods), np.nan)
    if base in methods:
        column = methods.index(base)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a method without tables
            ratios, loss_ratios = (
                _geometric(a, a[:, column], ~np.isnan(a[:, column]) & ~(a == 0).any(axis=1))
                for a in (errors, losses)
            )
            times = _geometric(seconds, seconds[:, column], ~np.isnan(seconds[:, column]))
    ranks = np.nanmean(_ranks(errors), axis=0)
    return Summary(tables, methods, errors, seconds, ranks, ratios, times, found, loss_ratios)


def _markdown(head: list[str], lines: list[list[str]]) -> str:
    first, *others = ("| " + " | ".join(line) + " |" for line in [head, *lines])
    return "\n".join([first, "|" + "---|" * len(head), *others])


def _number(a: float, digits: int) -> str:
    return "–" if np.isnan(a) else f"{a:.{digits}f}"


def _errors(row: np.ndarray) -> list[str]:
    return [_number(a, 3 if a < 0.1 else 2 if a < 10 else 1) for a in row]


def summary_table(rows: list[Settings], task: str = "classification", base: str = BASE) -> str:
    """Returns a line per method: mean rank, error, log loss and seconds of fitting relative to `base`."""
    found = summary(rows, task, base)
    assert found is not None, f"no rows of a {task}"
    columns = {"error": (found.ratios, 3), "log loss": (found.loss_ratios, 3), "seconds": (found.times, 2)}
    if np.isnan(found.figures["log_loss"]).all():
        del columns["log loss"]
    of = NAMES.get(base, f"{base}'s")
    return _markdown(
        ["method", "mean rank", *(f"{name} / {of}" for name in columns), "tables"],
        [
            [f"`{found.methods[i]}`", _number(found.ranks[i], 1),
             *(_number(a[i], digits) for a, digits in columns.values()),
             str(int((~np.isnan(found.errors[:, i])).sum()))]
            for i in np.argsort(found.ranks, kind="stable")
        ],
    )  # fmt: skip


def errors_table(rows: list[Settings], task: str = "classification") -> str:
    """Returns a line per table and a column per method: errors in percent, means over splits."""
    found = summary(rows, task)
    assert found is not None, f"no rows of a {task}"
    return _by_table(found, [_errors(row) for row in found.errors])


def figures_table(rows: list[Settings], task: str, name: str) -> str:
    """Returns one of FIGURES in the form of `errors_table`."""
    found = summary(rows, task)
    assert found is not None, f"no rows of a {task}"
    return _by_table(
        found, [["–" if np.isnan(a) else FIGURES[name].format(a) for a in row] for row in found.figures[name]]
    )


def _by_table(found: Summary, figures: list[list[str]]) -> str:
    lines = [[name, *row] for name, row in zip(found.tables, figures, strict=True)]
    return _markdown(["table", *(f"`{name}`" for name in found.methods)], lines)


def tables_of(rows: list[Settings], base: str = BASE) -> str:
    """Returns all tables of a record, under headings."""
    parts = []
    for task in ("classification", "regression"):
        found = summary(rows, task)
        if found is not None:
            parts += [f"## {task.capitalize()}", summary_table(rows, task, base)]
            parts += ["### Errors in percent", errors_table(rows, task)]
            for name, values in found.figures.items():
                if not np.isnan(values).all():
                    parts += [f"### {TITLES[name]}", figures_table(rows, task, name)]
    return "\n\n".join(parts)


# ------------------------------------------------------------------------------ pictures of a record


def critical_difference(n_methods: int, n_tables: int, level: float = 0.05) -> float:
    """Returns the critical difference of mean ranks of Nemenyi's test (Demsar 2006, 3.2.2)."""
    from scipy import stats

    q = stats.studentized_range.ppf(1 - level, n_methods, np.inf) / math.sqrt(2)
    return float(q * math.sqrt(n_methods * (n_methods + 1) / (6 * n_tables)))


def mean_ranks(rows: list[Settings]) -> tuple[list[str], np.ndarray, int, int]:
    """Returns methods by mean rank over tables with all errors, the number of these, and of all tables."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    parts = []
    for task in ("classification", "regression"):
        found = summary(rows, task)
        if found is not None:
            errors = np.full((len(found.tables), len(methods)), np.nan)
            errors[:, [methods.index(name) for name in found.methods]] = found.errors
            parts.append(errors)
    errors = np.concatenate(parts)
    whole = errors[~np.isnan(errors).any(axis=1)]
    if not len(whole) or len(methods) < 2:
        raise SystemExit(
            f"--ranks: expected tables with errors of two methods or more, got {len(whole)} of "
            f"{len(errors)} with errors of all {len(methods)}; name other --methods"
        )
    ranks = _ranks(whole).mean(axis=0)
    order = np.argsort(ranks, kind="stable")
    return [methods[i] for i in order], ranks[order], len(whole), len(errors)


def alike(ranks: np.ndarray, difference: float) -> list[tuple[int, int]]:
    """Returns first and last of the longest runs of ascending ranks that differ by less than `difference`."""
    ends = [int(np.searchsorted(ranks, rank + difference)) - 1 for rank in ranks]
    return [
        (first, last)
        for first, last in enumerate(ends)
        if last > first and (first == 0 or last > ends[first - 1])
    ]


def _ours(method: str) -> bool:
    return METHODS[parsed(method)[0]].needs.startswith("hforest")


def ranks_figure(rows: list[Settings], path: Path) -> None:
    """Draws mean ranks on a line, and bars over those that Nemenyi's test does not separate."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    methods, ranks, n, n_all = mean_ranks(rows)
    k, half = len(methods), math.ceil(len(methods) / 2)
    difference = critical_difference(k, n)
    bars = alike(ranks, difference)
    left, right = math.floor(ranks[0]), math.ceil(ranks[-1])
    depth = 0.3 * len(bars) + 0.3  # height of the bars in lines of text
    drawing, panel = pyplot.subplots(figsize=(8, 1.3 + 0.28 * (half + depth)))
    margin = 0.3 * (right - left)
    panel.set_xlim(left - margin, right + margin)
    panel.set_ylim(half + depth + 0.6, -2.4)
    panel.axis("off")
    panel.plot([left, right], [0, 0], color="black", linewidth=1)
    for tick in range(left, right + 1):
        panel.plot([tick, tick], [0, -0.2], color="black", linewidth=1)
        panel.text(tick, -0.35, str(tick), ha="center", va="bottom", fontsize=9)
    for i, (name, rank) in enumerate(zip(methods, ranks, strict=True)):
        on_left = i < half
        y = depth + 0.7 + (i if on_left else k - 1 - i)
        end = left - 0.05 * margin if on_left else right + 0.05 * margin
        color = "C0" if _ours(name) else "0.3"
        panel.plot([rank, rank, end], [0, y, y], color=color, linewidth=1)
        panel.text(
            end, y, f" {name} {rank:.2f} ", ha="right" if on_left else "left", va="center", color=color,
            fontsize=9,
        )  # fmt: skip
    for i, (first, last) in enumerate(bars):
        y = 0.3 * (i + 1)
        panel.plot([ranks[first], ranks[last]], [y, y], color="black", linewidth=3, solid_capstyle="butt")
    panel.plot([left, left + difference], [-1.5, -1.5], color="black", linewidth=2)
    panel.text(left, -1.65, f"critical difference {difference:.2f}", ha="left", va="bottom", fontsize=9)
    tables = f"{n} tables" if n == n_all else f"{n} of {n_all} tables, on which all have errors"
    title = f"mean rank by error, {tables}; blue: hforest"
    panel.set_title(title, fontsize=10)
    drawing.tight_layout()
    drawing.savefig(path, dpi=110)


def figure(rows: list[Settings], path: Path) -> None:
    """Draws error over time, both relative to the random forest, with a panel for each task."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    tasks = [task for task in ("classification", "regression") if summary(rows, task) is not None]
    drawing, panels = pyplot.subplots(1, len(tasks), figsize=(6.5 * len(tasks), 5), squeeze=False)
    for panel, task in zip(panels[0], tasks, strict=True):
        found = summary(rows, task)
        assert found is not None
        for name, x, y in zip(found.methods, found.times, found.ratios, strict=True):
            ours = _ours(name)
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
    which.add_argument("--half", nargs="+", choices=tuple(HALVES), default=("choose", "judge"))
    parser.add_argument("--task", choices=("classification", "regression"))
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--scale", nargs="+", choices=SCALES, default=["raw"])
    parser.add_argument("--categorical", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--gaps", nargs="+", choices=GAPS, default=[None])
    parser.add_argument("--base", default=BASE)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path, nargs="+")
    parser.add_argument("--figure", type=Path, nargs="+", metavar=("FILE", "OUT"))
    parser.add_argument("--ranks", type=Path, nargs="+", metavar=("FILE", "OUT"))
    options = options_of(
        parser, "--data {data} --tables magic --splits 1 --methods classic extra", "magic", "houses"
    )

    def rows_of(*files: Path) -> list[Settings]:
        rows = [row for file in files for row in json.loads(file.read_text())["rows"]]
        return [row for row in rows if options.methods is None or row["method"] in options.methods]

    if options.figure:
        need("-e '.[bench]'", "matplotlib")
        figure(rows_of(*options.figure[:-1]), options.figure[-1])
    if options.ranks:
        need("-e '.[bench]'", "matplotlib")
        ranks_figure(rows_of(*options.ranks[:-1]), options.ranks[-1])
    if options.table:
        print(tables_of(rows_of(*options.table), options.base))
    elif options.data:
        run(options)
    elif not options.figure and not options.ranks:
        parser.error("pass --data to measure, or --table, --figure or --ranks and a record")


if __name__ == "__main__":
    main()
