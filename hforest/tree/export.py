"""Forests in the formats of other libraries."""

from typing import Any

import numpy as np

from ..core import check as checks
from ..core.aliases import ArrayLike, FloatArray
from ..core.defaults import sends_missing_left
from .covers import covers, matrix
from .forest import Forest, has_sets, knows_missing, trusted


def to_dict(
    forest: Forest, x: ArrayLike, *, sample_weight: ArrayLike | None = None, counts: ArrayLike | None = None
) -> dict[str, Any]:
    """Returns an axis-aligned forest as a dictionary that SHAP's TreeExplainer takes as a model.

    Parameters
    ----------
    forest : Forest
        Forest with splits by single features, without sets of categories.
    x : (n_samples, n_features) array_like
        Samples whose weight in each node is counted, at least one; preferably those that the forest was grown
        on.
    sample_weight : (n_samples,) array_like, optional
        Weights, not all 0; by default 1.
    counts : (n_trees, n_samples) array_like of integers, optional
        How often each tree drew each sample; by default once.

    Returns
    -------
    dict
        "input_dtype" and "internal_dtype" (types of NumPy), "tree_output", and "trees", a list with a
        dictionary per tree. Its arrays have an entry per node, numbered within the tree: "children_left",
        "children_right", "children_default" (int32, -1 in a leaf), "features" (int32, -1 in a leaf),
        "thresholds" (float64), "values" ((n_nodes, n_outputs) float64) and "node_sample_weight" (float64).

    Raises
    ------
    ValueError
        A forest with projections or categories.

    Notes
    -----
    Values are divided by n_trees, so that the sum over trees is the mean that `predict` returns. A split has
    the mean of its children's values, weighted by their samples, or the plain mean without samples. Missing
    values go to `children_default`, which is the left child in a forest grown without them. Expected values
    and attributions of `TreeExplainer(model)` depend on the weights of the nodes; ``TreeExplainer(model,
    background)`` does not read them. Cost: that of `apply`, and a pass over the nodes of each level.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.grow(x, np.array([0, 1, 1], np.int32), 1, bootstrap=False, rng=0)
    >>> model = hforest.tree.to_dict(forest, x)
    >>> model["trees"][0]["node_sample_weight"]
    array([3., 1., 2.])
    >>> import shap  # doctest: +SKIP
    >>> shap.TreeExplainer(model).shap_values(x)  # doctest: +SKIP
    """
    checks.on_cpu(x=x, sample_weight=sample_weight, counts=counts)
    forest = trusted(forest, x)
    if bool((forest.feature == -2).any()):
        raise ValueError(
            "forest: expected splits by single features, got projections; SHAP explains axis-aligned trees: "
            "pass a forest that was grown without projections"
        )
    if has_sets(forest):
        raise ValueError(
            "forest: expected splits by thresholds, got sets of categories; SHAP's dictionaries have no "
            "such splits: grow the forest without categorical="
        )
    rows = matrix("x", "n_samples", forest, x)
    found = covers("x", forest, rows, sample_weight, counts)
    return _dict(forest, found.weight, found.mean / forest.n_trees)


def _dict(forest: Forest, of_node: FloatArray, value: FloatArray) -> dict[str, Any]:
    trees = []
    for first, stop in zip(forest.tree_start[:-1], forest.tree_start[1:], strict=True):
        part = slice(int(first), int(stop))
        is_leaf = forest.feature[part] == -1
        left = np.where(is_leaf, -1, forest.left[part]).astype(np.int32)
        default = left.copy()
        if knows_missing(forest):
            default += ~is_leaf & ~sends_missing_left(forest.default_left[part])
        trees.append(
            {
                "children_left": left,
                "children_right": np.where(is_leaf, -1, left + 1).astype(np.int32),
                "children_default": default,
                "features": forest.feature[part].copy(),
                "thresholds": forest.threshold[part].astype(np.float64),
                "values": value[part],
                "node_sample_weight": of_node[part],
            }
        )
    return {
        "input_dtype": forest.threshold.dtype.type,
        "internal_dtype": np.float64,
        "tree_output": "raw_value",
        "trees": trees,
    }
