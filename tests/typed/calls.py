"""What type checkers see of public functions; mypy and pyright read this file, nothing runs it.

An ignored error that is not seen is an error of both (warn_unused_ignores, reportUnnecessaryTypeIgnoreComment).
"""

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import hforest
import hforest.sklearn as estimators
from hforest import co2, dask, growth, hinge, project, scale, stats, tabular, tree
from hforest.growth import by_level

x, y = np.zeros((4, 2), np.float32), np.zeros(4, np.int64)
forest = hforest.grow(x, y, task="classification", criterion="gini", max_features="auto", bootstrap="poisson")

# Settings that functions hand on are complete, and checked in each.
of_trees: growth.TreeSettings = {
    "max_depth": 3, "min_samples_split": 2, "min_samples_leaf": 1, "min_weight_fraction_leaf": 0.0,
    "min_impurity_decrease": 0.0, "max_leaf_nodes": 9, "sample_weight": y, "criterion": "gini", "task": "classification", "n_classes": 3, "first_tree": 0,
    "progress": lambda done, n_trees: done < n_trees, "rng": np.random.default_rng(0),
}  # fmt: skip
of_grow: growth.Settings = {
    **of_trees, "projections": project.axis_distribution(2), "n_projections": 1, "max_features": "auto",
    "splitter": "random", "bootstrap": y, "max_samples": None, "y_order": None, "class_weight": {0: 1.0},
    "monotonic_cst": [1, 0],
}  # fmt: skip
by_rows: by_level.Settings = {
    **of_trees, "projections": None, "n_projections": None, "max_features": 0.5, "bootstrap": "poisson",
    "max_bins": 8, "categorical": [0], "max_gathered": 9, "monotonic_cst": [1, 0],
}  # fmt: skip


def on_engine(engine: by_level.Engine) -> tree.Forest:
    scale.grow_on_engine(engine, [x], max_dept=3)  # type: ignore[call-arg]
    scale.grow_on_engine(engine, [x], max_depth="3")  # type: ignore[arg-type]
    return assert_type(scale.grow_on_engine(engine, [x], 1, **by_rows), tree.Forest)


assert_type(hforest.grow(x, y, 1, **of_grow), tree.Forest)
assert_type(growth.grow_with_leaves(x, y, 1, **of_grow), tuple[tree.Forest, NDArray[Any]])
assert_type(hforest.grow(hforest.samples(x, max_bins=8, categorical=[0], windows=None), y), tree.Forest)
assert_type(co2.grow(x, y, 1, nu=1.0, splitter="oc1", bootstrap=True, **of_trees), tree.Forest)
assert_type(scale.grow_by_rows(None, x, y, 1, **by_rows), tree.Forest)
assert_type(dask.grow(None, x, y, 1, **by_rows), tree.Forest)
growth.TreeSettings(max_dept=3)  # type: ignore[typeddict-unknown-key]
growth.Settings(max_bins=8)  # type: ignore[typeddict-unknown-key]
hforest.grow(x, y, max_dept=3)  # type: ignore[call-arg]
hforest.grow(x, y, max_bins=8)  # type: ignore[call-arg]
hforest.grow(x, y, max_depth="3")  # type: ignore[arg-type]
hforest.grow(x, y, projections="sparse")  # type: ignore[arg-type]
hforest.samples(x, max_bins="8")  # type: ignore[arg-type]
hforest.samples(x, windows=(y,))  # type: ignore[arg-type]
growth.grow_with_leaves(x, y, max_dept=3)  # type: ignore[call-arg]
growth.grow_with_leaves(x, y, max_depth="3")  # type: ignore[arg-type]
co2.grow(x, y, max_dept=3)  # type: ignore[call-arg]
co2.grow(x, y, max_depth="3")  # type: ignore[arg-type]
co2.grow(x, y, y_order=None)  # type: ignore[call-arg]
scale.grow_by_rows(None, x, y, max_dept=3)  # type: ignore[call-arg]
scale.grow_by_rows(None, x, y, min_samples_leaf="3")  # type: ignore[arg-type]
scale.grow_by_rows(None, x, y, splitter="random")  # type: ignore[call-arg]
dask.grow(None, x, y, max_dept=3)  # type: ignore[call-arg]
dask.grow(None, x, y, max_bins="8")  # type: ignore[arg-type]

assert_type(forest, tree.Forest)
assert_type(forest.n_trees, int)
assert_type(tree.predict(forest, x), NDArray[Any])
assert_type(tree.apply(forest, x), NDArray[Any])
assert_type(tree.importance(forest, by="gain"), NDArray[Any])
assert_type(tabular.predict(tabular.fit(x, y, scaling="normal"), x), NDArray[Any])
assert_type(stats.permutation_test(x, y, statistic="auc", draw="bootstrap").p_value, float)
assert_type(hinge.init(2, 3, 4, kind="fern").thresholds, NDArray[Any])
assert_type(hforest.show_config("dicts"), dict[str, Any])
assert_type(tree.to_text(forest, feature_names=np.array(["length", "width"])), str)
assert_type(estimators.RandomForestClassifier(max_features="log2").fit(x, y).predict(x), NDArray[Any])

estimators.CO2ForestClassifier(max_features="log3")  # type: ignore[arg-type]
hforest.grow(x, y, task="labels")  # type: ignore[arg-type]
hforest.grow(x, y, criterion="mse")  # type: ignore[arg-type]
hforest.grow(x, y, max_features="log3")  # type: ignore[arg-type]
hforest.grow(x, y, splitter="first")  # type: ignore[arg-type]
co2.grow(x, y, splitter="best")  # type: ignore[arg-type]
tree.importance(forest, by="gini")  # type: ignore[arg-type]
tree.refit(forest, x, y, empty="keep")  # type: ignore[arg-type]
tabular.fit(x, y, scaling="standard")  # type: ignore[arg-type]
stats.honest_counts(y, 10, draw="boot")  # type: ignore[arg-type]
stats.auc(x, y, missing="drop")  # type: ignore[arg-type]
stats.oob_importance(forest, x, y, y, by="error")  # type: ignore[arg-type]
hinge.init(2, 3, 4, kind="shrub")  # type: ignore[arg-type]
hinge.forward(x, x, y, x, aggregate="max")  # type: ignore[arg-type]
forest.n_trees = 3  # type: ignore[misc]
hforest.using("cpu")  # type: ignore[arg-type]
