"""Forests in the formats of other libraries."""

from typing import Any

import numpy as np

from ..core import check as checks
from ..core import supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray
from ..core.defaults import sends_missing_left
from .complete import levels
from .forest import Forest, has_sets, knows_missing, trusted
from .walks import REMEDY, apply


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
    x = supervised.matrix("x", x, forest.threshold.dtype, missing=knows_missing(forest), remedy=REMEDY)
    leaf = apply(forest, x)
    if not len(x):
        raise ValueError("x: expected at least one sample, got 0; pass samples that the forest was grown on")
    weight = supervised.sample_weight(sample_weight, x)
    weight, _ = supervised.scaled_weight(weight, None, weight.dtype, len(x))
    in_tree = None if counts is None else supervised.in_bag_counts("counts", counts, *leaf.shape[::-1])
    return _dict(forest, *_weights_and_values(forest, leaf, weight, in_tree))


def _weights_and_values(
    forest: Forest, leaf: IntArray, weight: FloatArray, counts: IntArray | None
) -> tuple[FloatArray, FloatArray]:
    """Returns the weight of the samples and the mean value in each node, both float64."""
    start, n_trees = forest.tree_start, leaf.shape[1]
    n_nodes = np.diff(start)
    of_node = np.concatenate(
        [
            np.bincount(leaf[:, m], weight if counts is None else weight * counts[m], n_nodes[m])
            for m in range(n_trees)
        ]
    )
    value = np.zeros((len(forest.feature), forest.value.shape[1]))
    is_leaf = np.flatnonzero(forest.feature == -1)
    tree = np.searchsorted(start, is_leaf, side="right") - 1
    value[is_leaf] = forest.value[(start[tree] + tree) // 2 + forest.left[is_leaf]]
    for split in reversed(levels(forest)):
        first = start[np.searchsorted(start, split, side="right") - 1] + forest.left[split]
        total = of_node[first] + of_node[first + 1]
        of_node[split] = total
        share = np.divide(of_node[first], total, out=np.full(len(split), 0.5), where=total > 0)[:, None]
        value[split] = share * value[first] + (1 - share) * value[first + 1]
    return of_node, value / n_trees


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
