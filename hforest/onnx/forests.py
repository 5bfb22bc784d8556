"""Forests as nodes: columns that splits compare, trees, and means of their values."""

import numpy as np

from hforest import tree

from . import trees
from .graph import Graph

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def _rounded_down(threshold: np.ndarray) -> np.ndarray:
    # x <= t for a float32 x and a float64 t if and only if x <= the largest float32 that is at most t.
    with np.errstate(over="ignore"):
        t = threshold.astype(np.float32)
    return np.where(t > threshold, np.nextafter(t, np.float32(-np.inf)), t)


def _projections(forest: tree.Forest) -> tuple[np.ndarray, np.ndarray]:
    """Returns the column of each split, and the weights (n_features, n_columns) of the distinct columns."""
    column = np.zeros(len(forest.feature), np.int64)
    numbers: dict[tuple[bytes, bytes], int] = {}
    entries: list[tuple[np.ndarray, np.ndarray]] = []
    for v in np.flatnonzero(forest.feature != -1):
        if forest.feature[v] >= 0:
            indices, data = forest.feature[v : v + 1], np.ones(1)
        else:
            part = slice(int(forest.indptr[v]), int(forest.indptr[v + 1]))
            order = np.argsort(forest.indices[part], kind="stable")
            indices, data = forest.indices[part][order], forest.data[part][order].astype(np.float64)
        key = indices.tobytes(), data.tobytes()
        if key not in numbers:
            numbers[key] = len(entries)
            entries.append((indices, data))
        column[v] = numbers[key]
    weight = np.zeros((int(forest.n_features), max(len(entries), 1)))
    for j, (indices, data) in enumerate(entries):
        np.add.at(weight[:, j], indices, data)
    return column, weight


def _projected(graph: Graph, forest: tree.Forest, weight: np.ndarray, x: str, dtype: np.dtype) -> str:
    """Adds the products of samples and projections, in float64, rounded once; returns their name."""
    x = x if dtype == _FLOAT64 else graph.cast(x, _FLOAT64)
    projections = graph.constant("projections", weight)
    if not forest.default_left.size:
        product = graph.add("MatMul", x, projections)
    else:
        # A projection is missing if one of its features is; 0 * NaN is NaN, so that NaN becomes 0 first.
        missing = graph.add("IsNaN", x)
        zero = graph.constant("zero", np.zeros(()))
        product = graph.add("MatMul", graph.add("Where", missing, zero, x), projections)
        n_missing = graph.add("MatMul", graph.cast(missing, _FLOAT64), (weight != 0).astype(np.float64))
        product = graph.add("Where", graph.add("Greater", n_missing, zero), np.array(np.nan), product)
    return product if forest.threshold.dtype == _FLOAT64 else graph.cast(product, _FLOAT32)


def means(
    graph: Graph, forest: tree.Forest, x: str, dtype: np.dtype, values: str = "", *, exact: bool = False
) -> str:
    """Adds a forest and returns the name of the means over its trees, (n_samples, n_outputs) float32.

    `x` is the name of samples of `dtype`, in which splits by features are compared and values added. float64
    for a forest of float32 changes no decision. With `exact` means are of `dtype`, and each tree stands once
    for each output, as it does where splits are by categories.
    """
    missing_left = (
        (forest.default_left & 1).astype(bool)
        if forest.default_left.size
        else np.zeros(len(forest.feature), bool)
    )
    if bool((forest.feature == -2).any()):
        column, weight = _projections(forest)
        columns = trees.Columns(column, forest.threshold, missing_left)
        source = _projected(graph, forest, weight, x, dtype)
    else:
        threshold = forest.threshold
        if dtype != threshold.dtype:
            threshold = _rounded_down(threshold) if dtype == _FLOAT32 else threshold.astype(np.float64)
        columns = trees.Columns(np.maximum(forest.feature, 0).astype(np.int64), threshold, missing_left)
        source = x
    values = values or f"means_{len(graph.nodes)}"
    if not forest.category_bits.size and not exact:
        graph.nodes.append(trees.regressor(forest, columns, source, values))
        return values
    sums = f"sums_{len(graph.nodes)}"
    graph.nodes.append(trees.ensemble(forest, columns, source, sums))
    n_trees = np.array(len(forest.tree_start) - 1, columns.threshold.dtype)
    if columns.threshold.dtype == _FLOAT32 or exact:
        return graph.add("Div", sums, n_trees, output=values)
    return graph.cast(graph.add("Div", sums, n_trees), _FLOAT32, values)
