"""ONNX nodes that walk the trees of a forest whose splits read the columns of one matrix."""

from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hforest import tree

_WORD = 32
"""Number of categories in a word of a set."""
_LEQ, _MEMBER = 0, 6
"""Modes of nodes of TreeEnsemble."""


class Columns(NamedTuple):
    """The splits of a forest as comparisons of columns."""

    column: np.ndarray
    """(n_nodes,) column that a split compares; 0 in a leaf."""
    threshold: np.ndarray
    """(n_nodes,) thresholds, in the dtype of the columns."""
    missing_left: np.ndarray
    """(n_nodes,) whether NaN goes left."""


def _trees(forest: tree.Forest) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tree of each node and its number within the tree, both (n_nodes,)."""
    n_nodes = np.diff(forest.tree_start)
    tree_of = np.repeat(np.arange(len(n_nodes)), n_nodes)
    return tree_of, np.arange(len(tree_of)) - forest.tree_start[tree_of]


def _leaf_rows(forest: tree.Forest, tree_of: np.ndarray, leaves: np.ndarray) -> np.ndarray:
    return (forest.tree_start[tree_of[leaves]] + tree_of[leaves]) // 2 + forest.left[leaves]


def regressor(forest: tree.Forest, columns: Columns, x: str, values: str) -> onnx.NodeProto:
    """Returns a TreeEnsembleRegressor (opset 3 of ai.onnx.ml): float32 means of leaf values."""
    tree_of, number = _trees(forest)
    is_leaf = forest.feature == -1
    leaves = np.flatnonzero(is_leaf)
    n_outputs = forest.value.shape[1]
    weight = (
        forest.value[_leaf_rows(forest, tree_of, leaves)].astype(columns.threshold.dtype, copy=False).ravel()
    )
    if columns.threshold.dtype == np.float32:
        numbers = {"nodes_values": columns.threshold, "target_weights": weight}
    else:
        numbers = {
            "nodes_values_as_tensor": numpy_helper.from_array(columns.threshold, "thresholds"),
            "target_weights_as_tensor": numpy_helper.from_array(weight, "values"),
        }
    return helper.make_node(
        "TreeEnsembleRegressor",
        [x],
        [values],
        domain="ai.onnx.ml",
        aggregate_function="AVERAGE",
        n_targets=n_outputs,
        nodes_treeids=tree_of,
        nodes_nodeids=number,
        nodes_featureids=columns.column,
        nodes_modes=["LEAF" if leaf else "BRANCH_LEQ" for leaf in is_leaf.tolist()],
        nodes_truenodeids=np.where(is_leaf, 0, forest.left).astype(np.int64),
        nodes_falsenodeids=np.where(is_leaf, 0, forest.left + 1).astype(np.int64),
        nodes_missing_value_tracks_true=columns.missing_left.astype(np.int64),
        target_treeids=np.repeat(tree_of[leaves], n_outputs),
        target_nodeids=np.repeat(number[leaves], n_outputs),
        target_ids=np.tile(np.arange(n_outputs), len(leaves)),
        **numbers,
    )


def _members(forest: tree.Forest, node: int) -> tuple[np.ndarray, bool]:
    """Returns the categories to list at a split, and whether they go right; others go to the other side."""
    bits = forest.category_bits[int(forest.category_indptr[node]) : int(forest.category_indptr[node + 1])]
    goes_left = (bits[:, None] >> np.arange(_WORD, dtype=np.uint32) & 1).astype(bool).ravel()
    unknown_left = bool(forest.default_left[node] & 2)
    return np.flatnonzero(goes_left != unknown_left), unknown_left


class _Branches(NamedTuple):
    """Splits in the format of TreeEnsemble: a child is a split or a leaf, both numbered from 0."""

    mode: np.ndarray
    threshold: np.ndarray
    column: np.ndarray
    child: list[np.ndarray]
    """Children of samples for which the comparison is true, and of other samples."""
    leads_to_leaf: list[np.ndarray]
    tracks_true: np.ndarray
    members: np.ndarray
    """Categories of the splits by categories, in the order of the splits; NaN ends a list."""
    root: np.ndarray


def _branches(forest: tree.Forest, columns: Columns) -> _Branches:
    tree_of, _ = _trees(forest)
    is_leaf, first = forest.feature == -1, forest.tree_start[tree_of]
    # A tree of one leaf becomes a split both of whose children are that leaf.
    roots = forest.tree_start[:-1]
    alone = roots[is_leaf[roots]]
    is_split = ~is_leaf
    is_split[alone] = True
    splits = np.flatnonzero(is_split)
    split_number, leaf_number = np.cumsum(is_split) - 1, np.cumsum(is_leaf) - 1
    left = np.where(is_leaf, np.arange(len(tree_of)), first + forest.left)[splits]
    right = np.where(is_leaf[splits], left, left + 1)
    mode, threshold = np.full(len(splits), _LEQ, np.uint8), columns.threshold[splits]
    dtype = threshold.dtype
    swapped, members = np.zeros(len(splits), bool), []
    sets = np.diff(forest.category_indptr) if forest.category_indptr.size else np.zeros(len(tree_of))
    for i in np.flatnonzero(sets[splits] > 0):
        categories, swapped[i] = _members(forest, int(splits[i]))
        if len(categories):
            mode[i] = _MEMBER
            members += [categories.astype(dtype), np.array([np.nan], dtype)]
        else:
            # A list must not be empty: this comparison is false for every number.
            threshold[i] = -np.inf
    true, false = np.where(swapped, right, left), np.where(swapped, left, right)
    return _Branches(
        mode=mode,
        threshold=threshold,
        column=columns.column[splits],
        child=[np.where(is_leaf[v], leaf_number[v], split_number[v]) for v in (true, false)],
        leads_to_leaf=[is_leaf[v] for v in (true, false)],
        tracks_true=(columns.missing_left[splits] != swapped).astype(np.int64),
        members=np.concatenate(members) if members else np.zeros(0, dtype),
        root=split_number[roots],
    )


def ensemble(forest: tree.Forest, columns: Columns, x: str, sums: str) -> onnx.NodeProto:
    """Returns a TreeEnsemble (opset 5 of ai.onnx.ml), which sums leaf values and has splits by categories.

    A leaf has one value there, so that every tree stands once for each output.
    """
    part, n_outputs = _branches(forest, columns), forest.value.shape[1]
    tree_of, _ = _trees(forest)
    leaves = np.flatnonzero(forest.feature == -1)
    value = forest.value[_leaf_rows(forest, tree_of, leaves)].astype(columns.threshold.dtype, copy=False)
    n_splits = len(part.mode)
    copy = np.arange(n_outputs)[:, None]
    child = [
        (one + copy * np.where(to_leaf, len(leaves), n_splits)).ravel()
        for one, to_leaf in zip(part.child, part.leads_to_leaf, strict=True)
    ]

    def tensor(name: str, a: np.ndarray) -> onnx.TensorProto:
        return numpy_helper.from_array(np.ascontiguousarray(np.tile(a, n_outputs)), name)

    return helper.make_node(
        "TreeEnsemble",
        [x],
        [sums],
        domain="ai.onnx.ml",
        aggregate_function=1,
        n_targets=n_outputs,
        nodes_modes=tensor("modes", part.mode),
        nodes_splits=tensor("thresholds", part.threshold),
        nodes_featureids=np.tile(part.column, n_outputs),
        nodes_truenodeids=child[0],
        nodes_falsenodeids=child[1],
        nodes_trueleafs=np.tile(part.leads_to_leaf[0], n_outputs).astype(np.int64),
        nodes_falseleafs=np.tile(part.leads_to_leaf[1], n_outputs).astype(np.int64),
        nodes_missing_value_tracks_true=np.tile(part.tracks_true, n_outputs),
        membership_values=tensor("categories", part.members),
        tree_roots=(part.root + copy * n_splits).ravel(),
        leaf_targetids=np.repeat(np.arange(n_outputs), len(leaves)),
        leaf_weights=numpy_helper.from_array(np.ascontiguousarray(value.T).ravel(), "values"),
    )
