"""What type checkers see of public functions; mypy and pyright read this file, nothing runs it.

An ignored error that is not seen is an error of both (warn_unused_ignores, reportUnnecessaryTypeIgnoreComment).
"""

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import hforest
import hforest.sklearn as estimators
from hforest import classic, co2, hinge, manifold, stats, tabular, tree

x, y = np.zeros((4, 2), np.float32), np.zeros(4, np.int64)
forest = classic.grow(x, y, task="classification", criterion="gini", max_features="auto", bootstrap="poisson")

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
classic.grow(x, y, task="labels")  # type: ignore[arg-type]
classic.grow(x, y, criterion="mse")  # type: ignore[arg-type]
classic.grow(x, y, max_features="log2")  # type: ignore[arg-type]
manifold.grow(x, y, projection="sprase")  # type: ignore[arg-type]
manifold.grow(x, y, splitter="first")  # type: ignore[arg-type]
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
