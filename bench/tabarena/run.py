"""Runs `hforest.tabular` in the protocol of TabArena: bagged over folds, beside models of AutoGluon.

    python bench/tabarena/run.py [--data DIR ... --tables NAME ...] [--rows 2000] [--folds 3]
        [--inner-folds 8] [--models hforest rf lightgbm] [--seconds S] [--cpus 1] [--json FILE]
    python bench/tabarena/run.py --table FILE   # the table of a record, without a measurement

Needs `pip install tabarena` (with autogluon.tabular), and for lightgbm `pip install lightgbm`. A table is one
of SHIPPED, which scikit-learn contains, or with --data an npz file as of bench/tabular.py, with at most
`rows` random rows. Outer folds are the tests; within the training rows of each, TabArena fits a model to each
of the inner folds and averages their predictions. Errors are TabArena's: 1 - AUC of two classes, the log loss
of more, the RMSE of targets. The tables of the public leaderboard are on OpenML; this script opens no
connection. On them, run the class of hforest_model.py by TabArena's own scripts.
"""

import argparse
import importlib.metadata
import itertools
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from common import machine_text, need, record  # noqa: E402
from tabular_data import CATEGORIES, REGRESSIONS, find  # noqa: E402

MODELS = ("hforest", "rf", "lightgbm")
SHIPPED = ("breast_cancer", "wine", "diabetes")
"""Tables that scikit-learn contains; diabetes is a regression."""


def classes() -> dict[str, Any]:
    """Returns the class of each of MODELS."""
    from autogluon.tabular import models
    from hforest_model import HingeForestModel

    return {"hforest": HingeForestModel, "rf": models.RFModel, "lightgbm": models.LGBModel}


def frame_of(name: str, folders: list[Path] | None, n_rows: int) -> tuple[Any, bool]:
    """Returns at most `n_rows` random rows of a table as a data frame, and whether it is a regression."""
    import pandas
    from sklearn import datasets

    if folders is None:
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    else:
        with np.load(find(folders, name)) as file:
            ends = [""] if "x" in file else ["_train", "_test"]
            x, y = (np.concatenate([file[key + end] for end in ends]) for key in ("x", "y"))
    rows = np.random.default_rng(0).permutation(len(y))[:n_rows]
    frame = pandas.DataFrame({f"column{j}": column for j, column in enumerate(x[rows].astype(float).T)})
    for j in CATEGORIES.get(name, ()):
        frame[f"column{j}"] = frame[f"column{j}"].where(frame[f"column{j}"] >= 0).astype("category")
    regression = y.dtype.kind == "f" or name in REGRESSIONS
    frame["target"] = y[rows].astype(float) if regression else pandas.Categorical(y[rows].astype(str))
    return frame, regression


def task_of(name: str, frame: Any, regression: bool, n_folds: int) -> Any:
    """Returns a task of TabArena, whose outer folds are those of scikit-learn."""
    from sklearn.model_selection import KFold, StratifiedKFold
    from tabarena.benchmark.task.user_task import UserTask, from_sklearn_splits_to_user_task_splits

    folds = (KFold if regression else StratifiedKFold)(n_folds, shuffle=True, random_state=0)
    splits = from_sklearn_splits_to_user_task_splits(folds.split(frame, frame["target"]), n_folds)
    return UserTask(task_name=name).create_task(
        target_feature="target", problem_type="regression" if regression else "classification",
        dataset=frame, splits=splits,
    )  # fmt: skip


def experiment_of(model: str, n_inner: int, seconds: float | None, cpus: int) -> Any:
    """Returns the bagged experiment of one of MODELS at its defaults."""
    from tabarena.benchmark.experiment import AGModelBagExperiment

    return AGModelBagExperiment(
        name=model, model_cls=classes()[model], num_bag_folds=n_inner, time_limit=seconds,
        model_hyperparameters={"ag_args_ensemble": {"fold_fitting_strategy": "sequential_local"}},
        method_kwargs={"init_kwargs": {"verbosity": 0}, "fit_kwargs": {"num_cpus": cpus}},
    )  # fmt: skip


def measure(task: Any, key: dict[str, Any], cpus: int) -> dict[str, Any]:
    """Returns the row of one table, model and outer fold."""
    experiment = experiment_of(key["method"], key["inner_folds"], key["seconds"], cpus)
    name = key["table"]
    found = experiment.run(task=task, fold=key["fold"], task_name=name, cache_task_key=name)
    return {
        **key, "metric": found["metric"], "error": float(found["metric_error"]),
        "fit_seconds": float(found["time_train_s"]), "predict_seconds": float(found["time_infer_s"]),
    }  # fmt: skip


def versions() -> dict[str, str]:
    """Returns the versions of the libraries that are compared."""
    names = ("tabarena", "autogluon.tabular", "scikit-learn", "lightgbm")
    return {name: importlib.metadata.version(name) for name in names}


def table_of(rows: list[dict[str, Any]]) -> str:
    """Returns a line per table and a column per method: means of the errors over folds."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = [["table", "error", *(f"`{name}`" for name in methods)], ["---"] * (2 + len(methods))]
    for table in dict.fromkeys(row["table"] for row in rows):
        some = [row for row in rows if row["table"] == table]
        errors = [[row["error"] for row in some if row["method"] == name] for name in methods]
        lines.append([table, some[0]["metric"], *(f"{np.mean(a):.4g}" if a else "–" for a in errors)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Measures what the record does not have, and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, nargs="+")
    parser.add_argument("--tables", nargs="+", default=list(SHIPPED))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--inner-folds", type=int, default=8)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--cpus", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path, help="print the table of a record, without a measurement")
    options = parser.parse_args()
    if options.table:
        print(table_of(json.loads(options.table.read_text())["rows"]))
        return
    if options.data is None and not set(options.tables) <= set(SHIPPED):
        parser.error(f"pass --data DIR for tables other than {', '.join(SHIPPED)}")
    need("tabarena", "autogluon")
    warnings.filterwarnings("ignore")
    rows = []
    options.json = options.json and options.json.resolve()
    if options.json and options.json.is_file():
        rows = json.loads(options.json.read_text())["rows"]
    folders = options.data and [folder.resolve() for folder in options.data]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # AutoGluon writes models to the current folder
        for name in options.tables:
            frame, regression = frame_of(name, folders, options.rows)
            task = task_of(name, frame, regression, options.folds)
            for fold, model in itertools.product(range(options.folds), options.models):
                key = {
                    "table": name, "method": model, "fold": fold, "rows": options.rows,
                    "folds": options.folds, "inner_folds": options.inner_folds, "seconds": options.seconds,
                }  # fmt: skip
                if not any(key.items() <= row.items() for row in rows):
                    rows.append(measure(task, key, options.cpus))
                    if options.json:
                        record(options.json, rows, versions=versions())
    print(machine_text())
    print(table_of(rows))


if __name__ == "__main__":
    main()
