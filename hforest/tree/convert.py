"""Forests of other libraries as `Forest`."""

from typing import Any

import numpy as np

from ..core import check
from .forest import Forest, marked

_FLOAT32 = np.dtype(np.float32)

_TREE = "DecisionTree"
_AVERAGES = (_TREE, "RandomForest", "ExtraTrees", "Bagging")
"""Names of scikit-learn's classes, without Classifier or Regressor; an ExtraTree is a DecisionTree, too."""
_PREDICTS = {"Classifier": "predict_proba", "Regressor": "predict"}
"""The methods whose results `predict` reproduces."""


def _breadth_first(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the old numbers of nodes in their new order, and the new left children of splits."""
    order, first = np.empty(len(left), np.int64), np.full(len(left), -1, np.int64)
    order[0], n_known = 0, 1
    for v in range(len(left)):
        old = order[v]
        if left[old] >= 0:
            first[v] = n_known
            order[n_known], order[n_known + 1] = left[old], right[old]
            n_known += 2
    return order, first


def _rounded_down(threshold: np.ndarray) -> np.ndarray:
    # x <= t for a float32 x and a float64 t if and only if x <= the largest float32 that is at most t.
    t = threshold.astype(_FLOAT32)
    return np.where(t > threshold, np.nextafter(t, np.float32(-np.inf)), t)


def _in_float32(name: str, a: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        narrow = a.astype(_FLOAT32)
    if not np.isfinite(narrow).all():
        raise ValueError(
            f"model: expected {name} in the range of float32, got larger ones or NaN; scale the targets "
            "before fitting"
        )
    return narrow


def _is_a(model: object, kind: str, names: tuple[str, ...]) -> bool:
    """Returns whether a model is of a class of scikit-learn with such a name, and predicts by its method."""
    classes = type(model).__mro__
    ours = [c for c in classes if c.__module__.startswith("sklearn.")]
    known = any(c.__name__ == name + kind for c in ours for name in names)
    return known and next((c for c in classes if _PREDICTS[kind] in vars(c)), None) in ours


def _averaged_trees(model: object, kind: str) -> list[Any]:
    """Returns the fitted trees that a model averages, in their order; raises if it does not average trees."""
    trees: list[Any] = [model] if _is_a(model, kind, (_TREE,)) else list(getattr(model, "estimators_", ()))
    if not all(_is_a(tree, kind, (_TREE,)) for tree in trees):
        raise TypeError(
            f"model: expected decision trees as its estimators, each a {kind}, got {type(model).__name__} "
            "of other estimators; pass bagged trees or a random forest"
        )
    if not trees or not all(hasattr(tree, "tree_") for tree in trees):
        raise TypeError(
            f"model: expected a fitted forest or tree of scikit-learn, got {type(model).__name__} without "
            "trees; fit it first"
        )
    every = np.arange(getattr(model, "n_features_in_", trees[0].tree_.n_features))
    if any(not np.array_equal(every, features) for features in getattr(model, "estimators_features_", ())):
        raise TypeError(
            f"model: expected trees that read all features, got {type(model).__name__} that samples "
            "features for each tree; fit it with max_features=1.0 and bootstrap_features=False"
        )
    return trees


def from_sklearn(model: object) -> Forest:
    """Returns a fitted forest or tree of scikit-learn as a Forest.

    Parameters
    ----------
    model : fitted estimator of scikit-learn
        RandomForest, ExtraTrees, DecisionTree or ExtraTree, or Bagging of decision trees that read all
        features; Classifier or Regressor. It is recognised by the names of its classes; scikit-learn is not
        imported.

    Returns
    -------
    Forest
        NumPy arrays of float32. It reaches the same leaves for every finite float32 x, the dtype to which
        scikit-learn converts its input.

    Raises
    ------
    TypeError, ValueError
        Any other model, such as boosted trees, voting, stacking or an isolation forest; a subclass with
        another `predict_proba` (for a regressor `predict`); a model that is not fitted; a classifier with
        several outputs; leaf values or gains beyond float32.

    Notes
    -----
    Class probabilities become shares that sum to 1, in the order of ``model.classes_``. Thresholds are
    rounded down to float32, which changes no decision. Nodes are put in breadth-first order. Cost: a few
    microseconds per node.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> from sklearn.tree import DecisionTreeClassifier  # doctest: +SKIP
    >>> x, y = np.array([[0.0], [1.0], [2.0]], np.float32), ["no", "yes", "yes"]
    >>> model = DecisionTreeClassifier(random_state=0).fit(x, y)  # doctest: +SKIP
    >>> forest = hforest.tree.from_sklearn(model)  # doctest: +SKIP
    >>> hforest.tree.predict(forest, x)  # doctest: +SKIP
    array([[1., 0.],
           [0., 1.],
           [0., 1.]], dtype=float32)
    """
    kind = next((kind for kind in _PREDICTS if _is_a(model, kind, _AVERAGES)), None)
    if kind is None:
        raise TypeError(
            f"model: expected averaged trees of scikit-learn, got {type(model).__name__}; pass a "
            "RandomForest, ExtraTrees, DecisionTree or ExtraTree, or Bagging of decision trees"
        )
    trees = _averaged_trees(model, kind)
    if kind == "Classifier" and any(tree.n_outputs_ != 1 for tree in trees):
        raise ValueError(
            "model: expected a classifier of one output, got several; convert one classifier per output"
        )
    n_classes = len(getattr(model, "classes_", ()))
    parts: dict[str, list[np.ndarray]] = {
        name: [] for name in ("feature", "threshold", "left", "value", "gain", "default_left")
    }
    for estimator in trees:
        tree = estimator.tree_
        order, first = _breadth_first(tree.children_left, tree.children_right)
        is_leaf = first < 0
        n_leaves = int(is_leaf.sum())
        first[is_leaf] = np.arange(n_leaves)
        value = tree.value.reshape(len(order), -1)[order[is_leaf]].astype(np.float64)
        if kind == "Classifier":
            value = value / value.sum(axis=1, keepdims=True)
        if estimator is not model and kind == "Classifier":
            # A bagged tree may know only some of the classes.
            known, value = value, np.zeros((n_leaves, n_classes))
            value[:, np.asarray(estimator.classes_, np.int64)] = known
        weighted = tree.impurity * tree.weighted_n_node_samples
        gain = weighted - weighted[tree.children_left] - weighted[tree.children_right]
        parts["feature"].append(np.where(is_leaf, -1, tree.feature[order]).astype(np.int32))
        # A threshold of infinity separates missing values from all others.
        threshold = _rounded_down(np.where(is_leaf, 0.0, tree.threshold[order]))
        threshold = np.minimum(threshold, np.finfo(np.float32).max)
        parts["threshold"].append(threshold)
        parts["left"].append(first.astype(np.int32))
        parts["value"].append(_in_float32("leaf values", value))
        parts["gain"].append(_in_float32("gains", np.where(is_leaf, 0.0, gain[order])))
        left = getattr(tree, "missing_go_to_left", np.zeros(0, np.uint8)).astype(np.uint8)
        parts["default_left"].append(
            np.where(is_leaf, 0, left[order]).astype(np.uint8) if left.size else left
        )
    sizes = [len(part) for part in parts["feature"]]
    arrays = {name: np.ascontiguousarray(np.concatenate(part)) for name, part in parts.items()}
    forest = Forest(
        n_features=np.array(trees[0].tree_.n_features, check.INT64),
        tree_start=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), indptr=np.zeros(0, np.int64),
        indices=np.zeros(0, np.int32), data=np.zeros(0, _FLOAT32), **arrays,
    )  # fmt: skip
    return marked(forest, valid=False)
