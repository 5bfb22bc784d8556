"""Forests of other libraries as `Forest`."""

from typing import Any

import numpy as np

from ..core import check
from .forest import Forest

_FLOAT32 = np.dtype(np.float32)


def _breadth_first(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Old numbers of nodes in their new order, and the new left children of splits."""
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


def from_sklearn(model: object) -> Forest:
    """A fitted forest or tree of scikit-learn as a Forest.

    Parameters
    ----------
    model : fitted RandomForest, ExtraTrees or DecisionTree, Classifier or Regressor
        Known by its attributes; scikit-learn is not imported.

    Returns
    -------
    Forest
        Of float32, NumPy arrays. It reaches the same leaves for every finite float32 x, which is what
        scikit-learn makes of its input.

    Raises
    ------
    TypeError, ValueError
        Not such a model, or not fitted; a classifier of several outputs.

    Notes
    -----
    Class probabilities become shares that sum to 1, in the order of ``model.classes_``. Thresholds are
    rounded down to float32, which changes no decision. Nodes are put in breadth-first order. Cost: a few
    microseconds a node.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> class Tree:
    ...     children_left, children_right = np.array([1, -1, -1]), np.array([2, -1, -1])
    ...     feature, threshold = np.array([0, -2, -2]), np.array([0.5, -2, -2])
    ...     value, n_features = np.array([[[0.5, 0.5]], [[1, 0]], [[0, 1]]]), 1
    ...     impurity, weighted_n_node_samples = np.array([0.5, 0, 0]), np.array([2.0, 1, 1])
    >>> class Model:
    ...     tree_, classes_, n_outputs_ = Tree, np.array([0, 1]), 1
    >>> forest = hforest.tree.from_sklearn(Model)
    >>> hforest.tree.predict(forest, np.array([[0.25]], np.float32))
    array([[1., 0.]], dtype=float32)
    """
    estimators = getattr(model, "estimators_", [model])
    trees: Any = [getattr(estimator, "tree_", None) for estimator in np.ravel(np.asarray(estimators, object))]
    if not trees or any(tree is None for tree in trees):
        raise TypeError(
            f"model: expected a fitted forest or tree of scikit-learn, got {type(model).__name__}; "
            "fit it first, and pass one with the attribute estimators_ or tree_"
        )
    classifier = hasattr(model, "classes_")
    if classifier and getattr(model, "n_outputs_", 1) != 1:
        raise ValueError("model: expected a classifier of one output, got several; convert one for each")
    if hasattr(model, "init_") or hasattr(model, "learning_rate"):
        raise TypeError(
            f"model: expected trees that are averaged, got {type(model).__name__}, which adds them; "
            "pass a random forest"
        )
    parts: dict[str, list[np.ndarray]] = {
        name: [] for name in ("feature", "threshold", "left", "value", "gain")
    }
    for tree in trees:
        order, first = _breadth_first(tree.children_left, tree.children_right)
        is_leaf = first < 0
        n_leaves = int(is_leaf.sum())
        first[is_leaf] = np.arange(n_leaves)
        value = tree.value.reshape(len(order), -1)[order[is_leaf]].astype(np.float64)
        if classifier:
            value = value / value.sum(axis=1, keepdims=True)
        weighted = tree.impurity * tree.weighted_n_node_samples
        gain = weighted - weighted[tree.children_left] - weighted[tree.children_right]
        parts["feature"].append(np.where(is_leaf, -1, tree.feature[order]).astype(np.int32))
        threshold = _rounded_down(np.where(is_leaf, 0.0, tree.threshold[order]))
        parts["threshold"].append(threshold)
        parts["left"].append(first.astype(np.int32))
        parts["value"].append(value.astype(_FLOAT32))
        parts["gain"].append(np.where(is_leaf, 0.0, gain[order]).astype(_FLOAT32))
    sizes = [len(part) for part in parts["feature"]]
    arrays = {name: np.ascontiguousarray(np.concatenate(part)) for name, part in parts.items()}
    return Forest(
        n_features=np.array(trees[0].n_features, check.INT64),
        tree_start=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        indptr=np.zeros(0, np.int64),
        indices=np.zeros(0, np.int32),
        data=np.zeros(0, _FLOAT32),
        **arrays,
    )
