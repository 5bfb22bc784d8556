"""Models of treelite as ensembles."""

from typing import NamedTuple

import numpy as np
import treelite

from hforest import tree

from .ensemble import POSTPROCESSORS, Ensemble

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_EQUAL, _LESS, _LESS_EQUAL, _GREATER, _GREATER_EQUAL = 1, 2, 3, 4, 5
"""treelite's numbers of comparisons; 0 is none."""
_CATEGORICAL = 2
"""treelite's number of the kind of a node; 0 is a leaf, 1 a numerical split."""
_WORD = 32
"""Categories of a word of a set."""
_FIELDS = (
    "node_type",
    "cleft",
    "cright",
    "split_index",
    "default_left",
    "threshold",
    "cmp",
    "leaf_value",
    "leaf_vector",
    "leaf_vector_begin",
    "leaf_vector_end",
    "gain",
    "category_list_right_child",
    "category_list",
    "category_list_begin",
    "category_list_end",
)


class _Order(NamedTuple):
    """Nodes of all trees, breadth-first within a tree."""

    start: np.ndarray
    """(n_trees + 1,): first node of each tree."""
    old: np.ndarray
    """(n_nodes,): where a node stood."""
    left: np.ndarray
    """(n_nodes,): left child, numbered within the tree; -1 in a leaf."""


def _breadth_first(root: np.ndarray, left: np.ndarray, right: np.ndarray) -> _Order:
    """Returns the breadth-first order of each tree, computed for all trees at once, level by level.

    left and right are (n_nodes,), -1 in a leaf; root is (n_trees,).
    """
    known = np.ones(len(root), np.int64)
    nodes, trees, numbers, children = [], [], [], []
    level, tree_of, number = root, np.arange(len(root)), np.zeros(len(root), np.int64)
    while level.size:
        is_split = left[level] >= 0
        splits, split_tree = level[is_split], tree_of[is_split]
        # The nodes of a level stand in the order of the trees.
        n_splits = np.bincount(split_tree, minlength=len(root))
        rank = np.arange(len(split_tree)) - (np.cumsum(n_splits) - n_splits)[split_tree]
        first = np.full(len(level), -1, np.int64)
        first[is_split] = known[split_tree] + 2 * rank
        nodes.append(level)
        trees.append(tree_of)
        numbers.append(number)
        children.append(first)
        known += 2 * n_splits
        level = np.stack([left[splits], right[splits]], 1).ravel()
        tree_of = np.repeat(split_tree, 2)
        number = (first[is_split][:, None] + np.arange(2)).ravel()
    start = np.concatenate([[0], np.cumsum(known)])
    at = start[np.concatenate(trees)] + np.concatenate(numbers)
    old, new_left = np.empty_like(at), np.empty_like(at)
    old[at], new_left[at] = np.concatenate(nodes), np.concatenate(children)
    return _Order(start, old, new_left)


def _fields(model: treelite.Model) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns fields of all trees, one after another, and (n_trees + 1,) the first node of each."""
    accessors = [model.get_tree_accessor(i) for i in range(model.num_tree)]
    parts = {name: [np.array(a.get_field(name)) for a in accessors] for name in _FIELDS}
    sizes = [len(part) for part in parts["node_type"]]
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    # Lists of categories are joined; so are vectors of leaves.
    for name in ("category_list", "leaf_vector"):
        base = np.cumsum([0, *(len(part) for part in parts[name])])[:-1].astype(np.int64)
        for end in ("begin", "end"):
            offsets = parts[f"{name}_{end}"]
            parts[f"{name}_{end}"] = [
                # Empty where no node of the tree has one.
                b + (offset.astype(np.int64) if len(offset) else np.zeros(n, np.int64))
                for b, offset, n in zip(base, offsets, sizes, strict=True)
            ]
    for name in ("gain", "category_list_right_child"):
        parts[name] = [
            part if len(part) else np.zeros(n, np.uint8) for part, n in zip(parts[name], sizes, strict=True)
        ]
    return {name: np.concatenate(part) for name, part in parts.items()}, start


def _rounded_down(threshold: np.ndarray) -> np.ndarray:
    # x <= t for a float32 x and a float64 t if and only if x <= the largest float32 that is at most t.
    with np.errstate(over="ignore"):
        t = threshold.astype(_FLOAT32)
    return np.where(t > threshold, np.nextafter(t, np.float32(-np.inf)), t)


def _in_dtype(name: str, a: np.ndarray, dtype: np.dtype) -> np.ndarray:
    with np.errstate(over="ignore"):
        narrow = np.ascontiguousarray(a, dtype)
    if not np.isfinite(narrow).all():
        raise ValueError(
            f"model: expected finite {name} in the range of {dtype}, got other values; train the model on "
            "scaled targets, or pass dtype=numpy.float64"
        )
    return narrow


def _thresholds(
    field: dict[str, np.ndarray], model_dtype: np.dtype, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """Returns thresholds of ``<=``, 0 in leaves and splits by categories, and which splits change sides."""
    compare = np.where(field["node_type"] == 1, field["cmp"], 0)
    if (compare == _EQUAL).any():
        raise ValueError(
            "model: expected splits by <, <=, > or >=, got ==; build it with categorical splits instead"
        )
    threshold = field["threshold"].astype(model_dtype, copy=False)
    # x < t if and only if x <= the largest number of the dtype in which they are compared that is below t.
    below = (compare == _LESS) | (compare == _GREATER_EQUAL)
    threshold = np.where(below, np.nextafter(threshold, model_dtype.type(-np.inf)), threshold)
    threshold = np.where(compare == 0, model_dtype.type(0), threshold)
    if dtype != model_dtype:
        threshold = _rounded_down(threshold)
    return threshold, (compare == _GREATER) | (compare == _GREATER_EQUAL)


def _categories(field: dict[str, np.ndarray], order: _Order) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns category_indptr and category_bits, and whether unknown categories go left at each node."""
    n_nodes = len(order.old)
    split = np.flatnonzero(field["node_type"][order.old] == _CATEGORICAL)
    unknown_left = np.zeros(n_nodes, bool)
    if not len(split):
        return np.zeros(0, np.int64), np.zeros(0, np.uint32), unknown_left
    old = order.old[split]
    begin, size = (
        field["category_list_begin"][old],
        field["category_list_end"][old] - field["category_list_begin"][old],
    )
    # Places in the joined lists, node after node.
    owner = np.repeat(np.arange(len(split)), size)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(size) - size, size) + np.repeat(begin, size)
    category = field["category_list"][place].astype(np.int64)
    last = np.zeros(len(split), np.int64)
    np.maximum.at(last, owner, category)
    n_words = np.zeros(n_nodes, np.int64)
    n_words[split] = last // _WORD + 1
    indptr = np.concatenate([[0], np.cumsum(n_words)])
    bits = np.zeros(indptr[-1], np.uint32)
    np.bitwise_or.at(
        bits, indptr[split[owner]] + category // _WORD, np.uint32(1) << (category % _WORD).astype(np.uint32)
    )
    # If a split lists the categories that go right, all others go left.
    unknown_left[split] = field["category_list_right_child"][old].astype(bool)
    bits = np.where(np.repeat(unknown_left, n_words), ~bits, bits)
    return indptr, bits, unknown_left


def _values(
    field: dict[str, np.ndarray],
    leaf: np.ndarray,
    columns: list[np.ndarray],
    tree_of: np.ndarray,
    n_outputs: int,
) -> np.ndarray:
    """Returns values of the leaves, each in the columns of its tree, 0 elsewhere."""
    value = np.zeros((len(leaf), n_outputs))
    n_values = field["leaf_vector_end"][leaf] - field["leaf_vector_begin"][leaf]
    n_columns = np.array([len(column) for column in columns])[tree_of]
    if (np.maximum(n_values, 1) != n_columns).any():
        raise ValueError(
            "model: expected as many values in each leaf as outputs of its tree, got another number; pass "
            "a model that "
            "treelite.gtil predicts"
        )
    row = np.repeat(np.arange(len(leaf)), n_columns)
    # Which of its values, for each value of each leaf.
    which = np.arange(len(row)) - np.repeat(np.cumsum(n_columns) - n_columns, n_columns)
    first = np.cumsum([0, *(len(column) for column in columns)])[:-1]
    column = np.concatenate(columns)[first[tree_of[row]] + which]
    vector = field["leaf_vector"] if len(field["leaf_vector"]) else np.zeros(1)
    at = np.where(n_values[row] > 0, field["leaf_vector_begin"][leaf[row]] + which, 0)
    values = np.where(n_values[row] > 0, vector[at], field["leaf_value"][leaf[row]])
    has_column = column >= 0
    value[row[has_column], column[has_column]] = values[has_column]
    return value


def _columns(header: treelite.model.HeaderAccessor, n_classes: np.ndarray) -> list[np.ndarray]:
    """Returns for each tree the outputs of the values of its leaves; -1 where a target has fewer classes."""
    most = int(n_classes.max())
    first = np.cumsum(n_classes) - n_classes
    table = np.where(np.arange(most) < n_classes[:, None], first[:, None] + np.arange(most), -1)
    columns = []
    for target, one in zip(header.get_field("target_id"), header.get_field("class_id"), strict=True):
        part = table if target < 0 else table[target : target + 1]
        columns.append((part if one < 0 else part[:, one : one + 1]).ravel())
    return columns


def from_treelite(model: treelite.Model, *, dtype: np.dtype | type | str | None = None) -> Ensemble:
    """Returns an `Ensemble`, a forest with the same predictions, from a treelite model.

    Parameters
    ----------
    model : treelite.Model
        Of XGBoost, LightGBM, scikit-learn or cuML (`treelite.frontend`, `treelite.sklearn`), or built by
        hand. Splits by numbers and categories, with any directions of missing values; sums or averages;
        several targets and classes.
    dtype : dtype, optional
        Dtype of the forest; by default that of the model's thresholds: float32 for XGBoost, float64 for
        LightGBM and scikit-learn. float32 halves the memory that prediction reads. Thresholds are then
        rounded down, which changes no decision for float32 samples, and leaf values are rounded.

    Returns
    -------
    Ensemble
        Ensemble of NumPy arrays. Predictions equal those of the model up to rounding; leaves are the same.

    Raises
    ------
    TypeError
        Not a treelite model; a dtype other than float32 and float64.
    ValueError
        No trees, splits by ==, a function of the margin that `predict` does not know, leaf values that are
        not finite in the dtype; float64 of a model whose thresholds are float32.

    Notes
    -----
    XGBoost compares with ``<`` in float32: a threshold becomes the next smaller float32 number. The leaf
    values of a boosting tree of one class are in the column of that class; the other columns are 0.
    Departures: a number that is not an integer is an unknown category here, but XGBoost and LightGBM drop its
    fraction. scikit-learn rounds samples to float32; here dtype=numpy.float32 does so. Nodes are in
    breadth-first order. Cost: less than a microsecond per node, and a tenth of a millisecond per tree.

    Examples
    --------
    >>> import numpy as np, hforest.treelite
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.grow(x, np.array([0, 1, 1], np.int32), 1, bootstrap=False, rng=0)
    >>> ensemble = hforest.treelite.from_treelite(hforest.treelite.to_treelite(forest))
    >>> hforest.tree.apply(ensemble.forest, x).ravel()
    array([1, 2, 2], dtype=int32)
    """
    if not isinstance(model, treelite.Model):
        raise TypeError(
            f"model: expected a treelite.Model, got {type(model).__name__}; convert it first, for example "
            "with "
            "treelite.frontend.from_xgboost"
        )
    if not model.num_tree:
        raise ValueError("model: expected at least one tree, got 0; train it for at least one step")
    header = model.get_header_accessor()
    postprocessor = str(header.get_field("postprocessor"))
    if postprocessor not in POSTPROCESSORS:
        raise ValueError(
            f"model: expected a postprocessor of {', '.join(POSTPROCESSORS)}, got {postprocessor!r}; set "
            'another one, for example by model.get_header_accessor().set_field("postprocessor", "identity")'
        )
    field, start = _fields(model)
    model_dtype = field["threshold"].dtype
    dtype = _dtype_of(dtype, model_dtype)

    threshold, swapped = _thresholds(field, model_dtype, dtype)
    node_tree = np.repeat(np.arange(model.num_tree), np.diff(start))
    children = [
        np.where(field[side] >= 0, field[side] + start[node_tree], -1).astype(np.int64)
        for side in ("cleft", "cright")
    ]
    left, right = (np.where(swapped, *pair) for pair in (children[::-1], children))
    order = _breadth_first(start[:-1], left, right)
    old, is_leaf = order.old, order.left < 0
    indptr, bits, unknown_left = _categories(field, order)
    missing_left = np.where(swapped, field["default_left"] == 0, field["default_left"] != 0)[old]
    default_left = np.where(is_leaf, 0, missing_left + 2 * unknown_left).astype(np.uint8)

    tree_of = np.repeat(np.arange(model.num_tree), np.diff(order.start))[is_leaf]
    n_classes = np.array(header.get_field("num_class"), np.int64)
    columns = _columns(header, n_classes)
    n_outputs = int(n_classes.sum())
    value = _values(field, old[is_leaf], columns, tree_of, n_outputs)
    # Leaves are numbered within their trees; a tree of N nodes has (N + 1) / 2.
    n_leaves = (np.diff(order.start) + 1) // 2
    row = np.arange(len(tree_of)) - (np.cumsum(n_leaves) - n_leaves)[tree_of]
    child = order.left.astype(np.int32)
    child[is_leaf] = row
    forest = tree.Forest(
        n_features=np.array(model.num_feature, np.int64),
        tree_start=order.start,
        feature=np.where(is_leaf, -1, field["split_index"][old]).astype(np.int32),
        threshold=np.where(is_leaf, 0, threshold[old]).astype(dtype),
        left=child,
        value=_in_dtype("leaf values", value, dtype),
        gain=_in_dtype("gains", np.where(is_leaf, 0, field["gain"][old]), dtype),
        indptr=np.zeros(0, np.int64),
        indices=np.zeros(0, np.int32),
        data=np.zeros(0, dtype),
        default_left=default_left,
        category_indptr=indptr,
        category_bits=bits,
    )
    return Ensemble(
        tree.join([tree.check(forest)]),
        scale=_scale(model, header, columns, n_outputs),
        base_score=_base_scores(header, n_classes),
        n_classes=n_classes,
        postprocessor=np.array(postprocessor),
        parameter=_parameter(header, postprocessor),
    )


def _dtype_of(dtype: np.dtype | type | str | None, model_dtype: np.dtype) -> np.dtype:
    if model_dtype not in (_FLOAT32, _FLOAT64):
        raise TypeError(
            f"model: expected thresholds of float32 or float64, got {model_dtype}; build the model with "
            "one of these types"
        )
    if dtype is None:
        return model_dtype
    wanted = np.dtype(dtype)
    if wanted not in (_FLOAT32, _FLOAT64):
        raise TypeError(
            f"dtype: expected float32 or float64, got {wanted}; leave it out to keep {model_dtype}"
        )
    if wanted == _FLOAT64 and model_dtype == _FLOAT32:
        raise ValueError(
            "dtype: expected float32, in which this model compares, got float64; leave it out, and convert "
            "predictions"
        )
    return wanted


def _scale(
    model: treelite.Model,
    header: treelite.model.HeaderAccessor,
    columns: list[np.ndarray],
    n_outputs: int,
) -> np.ndarray:
    if not header.get_field("average_tree_output")[0]:
        return np.full(n_outputs, float(model.num_tree))
    every = np.concatenate(columns)
    n_trees = np.bincount(every[every >= 0], minlength=n_outputs)
    return np.asarray(model.num_tree / np.maximum(n_trees, 1), _FLOAT64)


def _base_scores(header: treelite.model.HeaderAccessor, n_classes: np.ndarray) -> np.ndarray:
    # (n_targets, the most classes)
    scores = np.asarray(header.get_field("base_scores"), np.float64).reshape(len(n_classes), -1)
    return np.concatenate([row[:n] for row, n in zip(scores, n_classes, strict=True)])


def _parameter(header: treelite.model.HeaderAccessor, postprocessor: str) -> np.ndarray:
    name = {
        "sigmoid": "sigmoid_alpha",
        "multiclass_ova": "sigmoid_alpha",
        "exponential_standard_ratio": "ratio_c",
    }.get(postprocessor)
    # treelite keeps it in float32: the shortest decimal number that is this one is what the model was given.
    return np.array(1.0 if name is None else float(str(header.get_field(name)[0])))
