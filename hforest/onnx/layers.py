"""Hinge forests, neural forests and their inputs as nodes, for graphs and for translations of operators.

Each function adds nodes by `add(kind, *inputs, **attributes)`, which returns the value of the node; an input
is a value or an array. The names of axes are those of `hforest.hinge` and `hforest.neural`.
"""

from collections.abc import Callable, Sequence

import numpy as np

from .graph import Value

Add = Callable[..., Value]
_INT64 = 7
_FLOAT32, _FLOAT64 = 1, 11


class _Margins:
    """Margins x_f - t of the vertices of all trees, numbered tree by tree."""

    def __init__(self, add: Add, x: Value, thresholds: Value, features: Value) -> None:
        self.add, self.x, self.thresholds, self.features = add, x, thresholds, features

    def shared(self, vertices: np.ndarray) -> Value:
        """Returns the margins at vertices that are those of all samples, (n_samples, n_trees)."""
        return self._of(vertices, "Gather")

    def own(self, vertices: Value) -> Value:
        """Returns the margins at vertices (n_samples, n_trees) of each sample."""
        return self._of(vertices, "GatherElements")

    def _of(self, vertices: Value, gather: str) -> Value:
        columns = self.add("Gather", self.features, vertices)
        values = self.add(gather, self.x, columns, axis=1)
        return self.add("Sub", values, self.add("Gather", self.thresholds, vertices))


class _ProjectedMargins(_Margins):
    """Margins of inner products, which are computed at all vertices."""

    def __init__(self, add: Add, x: Value, thresholds: Value, features: Value) -> None:
        wide = add("Cast", x, to=_FLOAT64)
        vectors = add("Transpose", add("Cast", features, to=_FLOAT64), perm=[1, 0])
        product = add("CastLike", add("MatMul", wide, vectors), thresholds)
        super().__init__(add, add("Sub", product, thresholds), None, None)

    def _of(self, vertices: Value, gather: str) -> Value:
        return self.add(gather, self.x, vertices, axis=1)


def descended(
    add: Add, margins: _Margins, n_trees: int, depth: int, kind: str = "tree"
) -> tuple[Value, Value]:
    """Returns the numbers of leaves over all trees, and the least |margin| on the paths to them.

    Both are (n_samples, n_trees), the former int64 (Lay et al. 2018, Alg. 3).
    """
    n_vertices = 2**depth - 1 if kind == "tree" else depth
    root = np.arange(n_trees) * n_vertices
    two, number, least = np.array(2), None, None
    for level in range(depth):
        if kind == "fern" or number is None:
            r = margins.shared(root + level)
        else:  # vertices of a level begin at 2**level - 1
            r = margins.own(add("Add", number, root + (2**level - 1)))
        size = add("Abs", r)
        least = size if least is None else add("Min", least, size)
        right = add("Cast", add("Greater", r, add("CastLike", np.zeros(1), r)), to=_INT64)
        number = right if number is None else add("Add", add("Mul", number, two), right)
    return add("Add", number, np.arange(n_trees) * 2**depth), least


def hinge_forest(
    add: Add,
    x: Value,
    forest: tuple[Value, Value, Value],
    sizes: tuple[int, int, Sequence[int]],
    *,
    kind: str = "tree",
    margin: str = "column",
    aggregate: str | None = "sum",
) -> Value:
    """Returns the outputs of a hinge forest, (n_samples, *outputs); with (n_trees,) before without aggregate.

    `forest` has thresholds (n_trees * n_vertices,), features (n_trees * n_vertices, ...) and weights
    (n_trees * n_leaves, n_outputs), `sizes` n_trees, depth and outputs. Sums run in float64.
    """
    thresholds, features, weights = forest
    n_trees, depth, outputs = sizes
    margins = (_Margins if margin == "column" else _ProjectedMargins)(add, x, thresholds, features)
    leaf, least = descended(add, margins, n_trees, depth, kind)
    each = add("Mul", add("Gather", weights, leaf), add("Unsqueeze", least, np.array([2])))
    if aggregate is None:
        return add("Reshape", each, np.array([-1, n_trees, *outputs]))
    total = add("ReduceSum", add("Cast", each, to=_FLOAT64), np.array([1]), keepdims=0)
    if aggregate == "mean":
        total = add("Div", total, np.array(float(n_trees)))
    return add("Reshape", add("CastLike", total, thresholds), np.array([-1, *outputs]))


def neural_forest(add: Add, f: Value, leaves: Value, n_trees: int, depth: int) -> Value:
    """Returns means over trees of the leaves that soft decisions reach (Zhang 2017, section 2).

    `f` is (n_samples, n_trees, n_vertices), `leaves` (n_trees * n_leaves, n_classes).
    """
    reached = None
    for level in range(depth):
        ends = np.array([2**level - 1]), np.array([2 ** (level + 1) - 1])
        part = add("Slice", f, *ends, np.array([2]))
        sides = []
        for log_odds in (part, add("Neg", part)):
            side = add("Sigmoid", log_odds)
            sides.append(
                add("Unsqueeze", side if reached is None else add("Mul", reached, side), np.array([3]))
            )
        reached = add("Reshape", add("Concat", *sides, axis=3), np.array([0, n_trees, 2 ** (level + 1)]))
    total = add("MatMul", add("Reshape", reached, np.array([-1, n_trees * 2**depth])), leaves)
    return add("Div", total, add("CastLike", np.array(float(n_trees)), total))


def search(add: Add, x: Value, tables: Sequence[np.ndarray]) -> Value:
    """Returns how many numbers of its ascending table a value exceeds, (n_samples, n_tables) int64.

    `x` is (n_samples, n_tables) float64; the number is 0 for NaN. Tables are the thresholds of binary trees.
    """
    depth = max(1, max(len(table) for table in tables).bit_length())
    level = np.concatenate([np.full(2**i, i) for i in range(depth)])
    within = np.arange(2**depth - 1) - (2**level - 1)
    sorted_place = (2 * within + 1) * 2 ** (depth - 1 - level) - 1
    padded = np.full((len(tables), 2**depth - 1), np.inf)
    for row, table in zip(padded, tables, strict=True):
        row[: len(table)] = table
    thresholds = padded[:, sorted_place].ravel()
    features = np.repeat(np.arange(len(tables)), 2**depth - 1)
    leaf, _ = descended(add, _Margins(add, x, thresholds, features), len(tables), depth)
    return add("Sub", leaf, np.arange(len(tables)) * 2**depth)


def standardized(add: Add, x: Value, center: np.ndarray, scale: np.ndarray) -> Value:
    """Returns (x - center) / scale in float32; x, center and scale are float64."""
    return add("Cast", add("Div", add("Sub", x, center), scale), to=_FLOAT32)


def mean(add: Add, parts: Sequence[Value]) -> Value:
    """Returns the mean of values of one shape, float64."""
    return add("Div", add("Sum", *parts), np.array(float(len(parts)))) if len(parts) > 1 else parts[0]
