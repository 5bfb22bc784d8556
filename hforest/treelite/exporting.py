"""Forests as models of treelite."""

import numpy as np
import treelite
from treelite.model_builder import Metadata, ModelBuilder, PostProcessorFunc, TreeAnnotation

from hforest import tree

_WORD = 32
"""Number of categories in a word of a set."""


def _metadata(forest: tree.Forest) -> tuple[Metadata, TreeAnnotation]:
    n_trees, n_outputs = len(forest.tree_start) - 1, forest.value.shape[1]
    metadata = Metadata(
        num_feature=int(forest.n_features),
        task_type="kMultiClf" if n_outputs > 1 else "kRegressor",
        average_tree_output=True,
        num_target=1,
        num_class=[n_outputs],
        leaf_vector_shape=(1, n_outputs),
    )
    one = -1 if n_outputs > 1 else 0
    return metadata, TreeAnnotation(n_trees, [0] * n_trees, [one] * n_trees)


def _members(forest: tree.Forest, node: int) -> tuple[np.ndarray, bool]:
    """Returns the categories to list at a split, and whether they go right; others go to the other side."""
    bits = forest.category_bits[int(forest.category_indptr[node]) : int(forest.category_indptr[node + 1])]
    goes_left = (bits[:, None] >> np.arange(_WORD, dtype=np.uint32) & 1).astype(bool).ravel()
    unknown_left = bool(forest.default_left[node] & 2)
    return np.flatnonzero(goes_left != unknown_left), unknown_left


def to_treelite(forest: tree.Forest) -> treelite.Model:
    """Returns a model of treelite that averages the trees of an axis-aligned forest.

    Parameters
    ----------
    forest : Forest
        Splits by single features, or categories; NumPy arrays.

    Returns
    -------
    treelite.Model
        Its thresholds and leaf values have the dtype of the forest. Of several outputs it is a classifier
        whose leaves hold class shares ("identity_multiclass"), of one a regression ("identity").

    Notes
    -----
    In treelite, NaN goes right if the forest was grown without missing values. Unknown categories go where
    the forest sends them; treelite drops the fraction of a number at a categorical split. Several regression
    targets become the classes of a model that returns means. Cost: about 5 microseconds per node.

    Examples
    --------
    >>> import numpy as np, hforest.treelite
    >>> import treelite
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.grow(x, np.array([0, 1, 1], np.int32), 4, bootstrap=False, rng=0)
    >>> model = hforest.treelite.to_treelite(forest)
    >>> treelite.gtil.predict(model, x, nthread=1)[:, 0]
    array([[1., 0.],
           [0., 1.],
           [0., 1.]])
    """
    if isinstance(forest, tree.Forest) and not isinstance(forest.feature, np.ndarray):
        raise TypeError(
            "forest: expected NumPy arrays, got CuPy arrays; pass Forest(*(a.get() for a in forest))"
        )
    tree.check(forest)
    if bool((forest.feature == -2).any()):
        raise ValueError(
            "forest: expected splits by single features, got projections; treelite has no projections: "
            "pass a forest "
            "grown without projections, or export it with hforest.onnx.to_onnx"
        )
    metadata, annotation = _metadata(forest)
    dtype, n_outputs = str(forest.threshold.dtype), forest.value.shape[1]
    builder = ModelBuilder(
        threshold_type=dtype,
        leaf_output_type=dtype,
        metadata=metadata,
        tree_annotation=annotation,
        postprocessor=PostProcessorFunc("identity_multiclass" if n_outputs > 1 else "identity"),
        base_scores=[0.0] * n_outputs,
    )
    for m in range(annotation.num_tree):
        builder.start_tree()
        _build(builder, forest, m)
        builder.end_tree()
    return builder.commit()


def _build(builder: ModelBuilder, forest: tree.Forest, m: int) -> None:
    """Declares the nodes of tree m."""
    root, stop = (int(v) for v in forest.tree_start[m : m + 2])
    nodes = slice(root, stop)
    feature, left = forest.feature[nodes].tolist(), forest.left[nodes].tolist()
    threshold, gain = forest.threshold[nodes].tolist(), forest.gain[nodes].tolist()
    value = forest.value[(root + m) // 2 : (stop + m + 1) // 2].tolist()
    missing_left = (forest.default_left[nodes] & 1).tolist() or [0] * (stop - root)
    by_category = (np.diff(forest.category_indptr)[nodes] > 0).tolist() or [False] * (stop - root)
    for v in range(stop - root):
        builder.start_node(v)
        if feature[v] < 0:
            row = value[left[v]]
            builder.leaf(row if len(row) > 1 else row[0])
        elif by_category[v]:
            members, go_right = _members(forest, root + v)
            builder.categorical_test(
                feature_id=feature[v],
                default_left=bool(missing_left[v]),
                category_list=members.tolist(),
                category_list_right_child=go_right,
                left_child_key=left[v],
                right_child_key=left[v] + 1,
            )
        else:
            builder.numerical_test(
                feature_id=feature[v],
                threshold=threshold[v],
                default_left=bool(missing_left[v]),
                opname="<=",
                left_child_key=left[v],
                right_child_key=left[v] + 1,
            )
        if feature[v] >= 0:
            builder.gain(gain[v])
        builder.end_node()
