"""SHAP values, compared with the package shap and with LightGBM's pred_contrib.

    python bench/shap_values.py [--threads 1 2] [--repeats 5] [--rows 500] [--peer-rows 20] [--trees 20]

A forest of hforest is passed to shap's TreeExplainer by `tree.to_dict`, so that both explain the same trees;
values are compared before anything is timed. LightGBM explains a forest of its own with as many trees and
leaves. Calls are timed in turn; figures are the best of the repeats, in milliseconds per row: processor time
on one thread, else elapsed time. The time of hforest includes the counts of the samples of `cover` in all
nodes, which shap's explainer is given. The other libraries explain fewer rows, because they take longer and
their time per row does not depend on it. A library that is not installed is left out, with a line that says
so.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from common import machine_text, options_of, side_by_side

import hforest
from hforest import grow, tree

SHAPES: tuple[tuple[str, Any, int, dict[str, Any]], ...] = (
    ("regression, depth 6", "regression", 1, {"max_depth": 6}),
    ("regression, to purity", "regression", 1, {}),
    ("2 classes, to purity", "classification", 2, {}),
    ("10 classes, to purity", "classification", 10, {}),
)
N, N_FEATURES, N_BACKGROUND = 5000, 30, 50


def problem(task: str, n_classes: int) -> tuple[Any, Any]:
    """Samples, and targets or classes that depend on four features."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, N_FEATURES)).astype(np.float32)
    signal = x[:, 0] * x[:, 1] + x[:, 2] + abs(x[:, 3]) + rng.normal(size=N)
    if task == "regression":
        return x, signal
    return x, np.searchsorted(np.quantile(signal, np.arange(1, n_classes) / n_classes), signal)


def of_lightgbm(x: Any, y: Any, task: str, n_trees: int, forest: tree.Forest) -> Any:
    """Returns a forest of LightGBM with the mean number of leaves of a forest."""
    import lightgbm

    n_leaves = len(forest.value) // forest.n_trees
    settings = {
        "boosting": "rf", "num_leaves": n_leaves, "min_data_in_leaf": 1, "bagging_freq": 1, "verbosity": -1,
        "bagging_fraction": 0.632, "feature_fraction": 0.5, "min_sum_hessian_in_leaf": 0, "num_threads": 1,
    }  # fmt: skip
    if task != "regression":
        n_classes = forest.n_classes
        settings |= (
            {"objective": "multiclass", "num_class": n_classes} if n_classes > 2 else {"objective": "binary"}
        )
    return lightgbm.train(settings, lightgbm.Dataset(x, y), n_trees)


def compare(shape: tuple[str, Any, int, dict[str, Any]], options: argparse.Namespace) -> None:
    """Prints a line for each game and number of threads."""
    text, task, n_classes, settings = shape
    x, y = problem(task, n_classes)
    forest = grow(x, y, options.trees, task=task, rng=0, **settings)
    rows, few, background = x[: options.rows], x[: options.peer_rows], x[-N_BACKGROUND:]
    n_rows = {"hforest": len(rows), "shap": len(few), "lightgbm": len(few)}
    size = f"{len(forest.value) // forest.n_trees} leaves, depth {len(tree.splits(forest))}"
    print(f"{text}: {forest.n_trees} trees, {size}, {forest.n_classes} outputs")
    for how, given in (("path-dependent", {"cover": x}), ("interventional", {"background": background})):
        calls: dict[str, Callable[[], Any]] = {"hforest": partial(tree.shap_values, forest, rows, **given)}
        found = calls["hforest"]()
        sums = found.expected + found.values.sum(axis=1)
        want = tree.predict(forest._replace(**wide(forest)), rows)
        error = abs(sums - want).max()
        assert error <= 1e-12 * abs(want).max(), error
        line = f"  {how}: error of sums {error:.1e}"
        if find_spec("shap"):
            import shap

            data = {} if how == "path-dependent" else {"data": background}
            kind = "tree_path_dependent" if how == "path-dependent" else "interventional"
            explainer = shap.TreeExplainer(tree.to_dict(forest, x), feature_perturbation=kind, **data)
            calls["shap"] = partial(explainer.shap_values, few, check_additivity=False)
            values = found.values[: len(few)]
            difference = abs(calls["shap"]().reshape(values.shape) - values).max()
            assert difference <= 1e-6 * abs(want).max(), difference
            line += f", from shap {difference:.1e}"
        if how == "path-dependent" and find_spec("lightgbm"):
            model = of_lightgbm(x, y, task, options.trees, forest)
            calls["lightgbm"] = partial(model.predict, few, pred_contrib=True, num_threads=1)
        print(line)
        for n in options.threads:
            hforest.set_num_threads(n)
            clock = time.process_time if n == 1 else time.perf_counter
            taken = side_by_side(calls, options.repeats, clock)
            best = {name: 1e3 * min(times) / n_rows[name] for name, times in taken.items()}
            figures = "  ".join(f"{name} {t:.3f} ({t / best['hforest']:.1f})" for name, t in best.items())
            print(f"    {n} threads, ms per row (ratio): {figures}", flush=True)


def wide(forest: tree.Forest) -> dict[str, Any]:
    """Returns the arrays of a forest in float64: the same splits, and means that are not rounded."""
    return {name: getattr(forest, name).astype(np.float64) for name in ("threshold", "value", "gain", "data")}


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--peer-rows", type=int, default=20)
    parser.add_argument("--trees", type=int, default=20)
    options = options_of(parser, "--trees 1 --rows 10 --peer-rows 1 --repeats 1")
    print(machine_text())
    for name in ("shap", "lightgbm"):
        if not find_spec(name):
            print(f"{name} is not installed: left out; pip install {name}")
    for shape in SHAPES:
        compare(shape, options)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
