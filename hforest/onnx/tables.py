"""Models of tables as nodes: scaled and encoded columns, members, and the mean of their predictions."""

from collections.abc import Sequence

import numpy as np

from hforest import tabular

from . import forests, layers
from .graph import Graph

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)

_ENTRIES = 4
"""Maximum number of entries of inner products that are summed one by one."""


def _chosen(graph: Graph, x: str, columns: Sequence[int] | np.ndarray) -> str:
    """Returns some columns of a matrix."""
    return graph.add("Gather", x, np.asarray(columns, np.int64), axis=1)


def _put(graph: Graph, parts: list[str], columns: list[np.ndarray]) -> str:
    """Returns the matrix that has column ``columns[i][j]`` from column j of part i."""
    joined = graph.add("Concat", *parts, axis=1)
    return _chosen(graph, joined, np.argsort(np.concatenate(columns)))


def _scaled(graph: Graph, scaling: tabular.Scaling, x: str) -> str:
    """Returns columns in deviations or normal scores, (n_samples, n_features) float32 with NaN."""
    # Runtimes differ in the minimum of a number and NaN.
    z = _transformed(graph, scaling, x)
    return graph.add("Where", graph.add("IsNaN", x), np.array(np.nan, np.float32), z)


def _transformed(graph: Graph, scaling: tabular.Scaling, x: str) -> str:
    half = graph.add("Mul", graph.add("Min", graph.add("Max", x, scaling.low), scaling.high), np.array(0.5))
    start, size = scaling.start[:-1], np.diff(scaling.start)
    plain, curved = np.flatnonzero(size == 0), np.flatnonzero(size)
    if not len(curved):
        return layers.standardized(graph.add, half, scaling.center, scaling.scale)
    knots = [scaling.knots[first : first + n] for first, n in zip(start[curved], size[curved], strict=True)]
    scores = [scaling.scores[first : first + n] for first, n in zip(start[curved], size[curved], strict=True)]
    y = _chosen(graph, x, curved)
    ends = [np.array([of_column[end] for of_column in knots]) for end in (0, -1)]
    y = graph.add("Min", graph.add("Max", y, ends[0]), ends[1])
    # Segment i of a column is between knots i and i + 1; the last knot has a segment of its own, of slope 0.
    segment = layers.search(graph.add, y, [of_column[1:-1] for of_column in knots])
    segment = graph.add("Add", segment, start[curved])
    slopes = [np.append(np.diff(a) / np.diff(b), 0.0) for a, b in zip(scores, knots, strict=True)]
    knot, slope, score = (graph.add("Gather", np.concatenate(a), segment) for a in (knots, slopes, scores))
    y = graph.add("Add", graph.add("Mul", slope, graph.add("Sub", y, knot)), score)
    y = graph.cast(y, _FLOAT32)
    if not len(plain):
        return y
    half = _chosen(graph, half, plain)
    z = layers.standardized(graph.add, half, scaling.center[plain], scaling.scale[plain])
    return _put(graph, [z, y], [plain, curved])


def _refilled(
    graph: Graph, encoding: tabular.Encoding, slopes: np.ndarray, filled: str, missing: str, known: str
) -> str:
    """Returns columns with missing values replaced by the predictions of a round of regressions."""
    n_features, imputed = len(encoding.fill), encoding.imputed
    n = encoding.predictors.shape[1]
    weight = np.zeros((2, n_features, len(imputed)))
    for k, (columns, beta) in enumerate(zip(encoding.predictors, slopes.astype(np.float64), strict=True)):
        np.add.at(weight[:, :, k].T, columns, beta[: 2 * n].reshape(2, n).T)
    by_value = graph.add("MatMul", graph.cast(filled, _FLOAT64), weight[0])
    by_missing = graph.add("MatMul", graph.cast(missing, _FLOAT64), weight[1])
    y = graph.add("Add", graph.add("Add", by_value, by_missing), slopes[:, -1].astype(np.float64))
    low, high = (a[imputed].astype(np.float64) for a in (encoding.low, encoding.high))
    y = graph.cast(graph.add("Min", graph.add("Max", y, low), high), _FLOAT32)
    y = graph.add("Where", _chosen(graph, missing, imputed), y, _chosen(graph, known, imputed))
    others = np.setdiff1d(np.arange(n_features), imputed)
    return _put(graph, [_chosen(graph, filled, others), y], [others, imputed])


def _filled(graph: Graph, encoding: tabular.Encoding, z: str) -> str:
    """Returns columns without missing values, float32."""
    missing = graph.add("IsNaN", z)
    filled = known = graph.add("Where", missing, encoding.fill, z)
    if len(encoding.imputed):
        for slopes in encoding.slopes:
            filled = _refilled(graph, encoding, slopes, filled, missing, known)
    return filled


def _codes(graph: Graph, levels: tabular.Levels, x: str) -> list[str]:
    """Returns the codes of the columns of categories, (n_samples, width) float32 each."""
    columns = np.flatnonzero(levels.categorical)
    start, size = levels.start[columns], np.diff(levels.start)[columns]
    known = [
        levels.levels[first : first + n].astype(np.float64) for first, n in zip(start, size, strict=True)
    ]
    x = _chosen(graph, x, columns)
    # Thresholds between categories; of a number that is none of them the place is that of the first level.
    place = graph.add("Add", layers.search(graph.add, x, [a[1:] - 0.5 for a in known]), start)
    same = graph.add("Equal", graph.add("Gather", np.concatenate(known), place), x)
    place = graph.add("Sub", graph.add("Where", same, place, start), start)
    begin, codes = 0, []
    for k, n in enumerate(size):
        width = int(levels.widths[columns[k]])
        table = levels.codes[begin : begin + n * width].reshape(n, width)
        codes.append(graph.add("Gather", table, graph.add("Gather", place, np.array(k), axis=1)))
        begin += n * width
    return codes


def _encoded(graph: Graph, model: tabular.Model, x: str) -> tuple[str, str]:
    """Returns the inputs of the inner products, and of the trees of forests with NaN, float32."""
    scaling, encoding = model.scaling, model.encoding
    if encoding is None:
        z = _scaled(graph, scaling, x)
        z = graph.add("Where", graph.add("IsNaN", z), np.zeros((), np.float32), z)
        return z, z
    if encoding.levels is None:
        z = _scaled(graph, scaling, x)
        filled = _filled(graph, encoding, z)
        return filled, z if len(encoding.imputed) else filled
    levels = encoding.levels
    zeroed = graph.add("Where", levels.categorical, np.zeros(()), x)
    z = _scaled(graph, scaling, zeroed)
    numbers = np.flatnonzero(~levels.categorical)
    of_categories = np.repeat(levels.categorical, levels.widths)
    at = [np.flatnonzero(~of_categories), np.flatnonzero(of_categories)]
    codes = _codes(graph, levels, x)
    filled = _put(graph, [_chosen(graph, _filled(graph, encoding, z), numbers), *codes], at)
    if not len(encoding.imputed):
        return filled, filled
    return filled, _put(graph, [_chosen(graph, z, numbers), *codes], at)


def _probabilities(graph: Graph, scores: str) -> str:
    return graph.add("Softmax", graph.cast(scores, _FLOAT64), axis=1)


def _inputs(graph: Graph, x: str, columns: str, kernel: np.ndarray) -> str:
    """Returns `columns`, followed by inner products of `x`.

    Those of few entries are summed as `tabular.predict` does, each step rounded to float32.
    """
    used = kernel != 0
    n_entries = int(used.sum(axis=0).max(initial=0))
    if not kernel.shape[1]:
        return columns
    if not 0 < n_entries <= _ENTRIES:
        return graph.add("Concat", columns, graph.add("MatMul", x, kernel), axis=1)
    order = np.argsort(~used, axis=0, kind="stable")[:n_entries]
    terms = [
        graph.add("Mul", _chosen(graph, x, places), weights[None])
        for places, weights in zip(order, np.take_along_axis(kernel, order, axis=0), strict=True)
    ]
    products = terms[0]
    for term in terms[1:]:
        products = graph.add("Add", products, term)
    return graph.add("Concat", columns, products, axis=1)


def _trees(graph: Graph, member: tabular.Member, x: str, grown: str, is_classes: bool) -> str:
    """Returns predictions of the hinge trees, float64; `grown` are those of the forest, or empty."""
    n_trees, n_vertices = member.thresholds.shape
    n_outputs = len(member.intercept)
    arrays = (
        member.thresholds.ravel(),
        member.features.ravel().astype(np.int64),
        member.weights.reshape(-1, n_outputs),
    )
    sizes = n_trees, (n_vertices + 1).bit_length() - 1, [n_outputs]
    z = _inputs(graph, x, x, member.kernel)
    y = graph.add("Add", layers.hinge_forest(graph.add, z, arrays, sizes), member.intercept)
    if float(member.offset):
        if is_classes:
            size, every = np.array(member.smoothing), np.array(1 + member.smoothing * n_outputs)
            grown = graph.add("Log", graph.add("Div", graph.add("Add", grown, size), every))
        offset = graph.add("Mul", np.array(member.offset, np.float32), graph.cast(grown, _FLOAT32))
        y = graph.add("Add", y, offset)
    return _probabilities(graph, y) if is_classes else graph.cast(y, _FLOAT64)


def _mixed(graph: Graph, some: str, others: str, share: np.ndarray) -> str:
    parts = graph.add("Mul", some, share), graph.add("Mul", others, np.asarray(1 - share))
    return graph.add("Add", *parts)


def _boosted(
    graph: Graph, boosted: tabular.Boosted, x: str, native: str, n_outputs: int, is_classes: bool
) -> str:
    scores = forests.means(graph, boosted.forest, native, _FLOAT32)
    if not is_classes:
        y = graph.cast(scores, _FLOAT64)
        if boosted.linear is None:
            return y
        return graph.add("Add", y, graph.cast(graph.add("MatMul", x, boosted.linear), _FLOAT64))
    if boosted.forest.value.shape[1] < n_outputs:
        scores = graph.add("Concat", graph.add("Sub", scores, scores), scores, axis=1)
    return _probabilities(graph, scores)


def _member(graph: Graph, member: tabular.Member, x: str, native: str, is_classes: bool) -> str:
    """Returns predictions of a member, (n_samples, n_outputs) float64."""
    share, grown = float(member.share), ""
    if share < 1 or float(member.offset):
        z = _inputs(graph, x, native, member.grown_kernel)
        grown = graph.cast(forests.means(graph, member.forest, z, _FLOAT32), _FLOAT64)
    y = _trees(graph, member, x, grown, is_classes) if share > 0 else grown
    if 0 < share < 1:
        y = _mixed(graph, y, grown, member.share)
    if member.boosted is None:
        return y
    boosted = _boosted(graph, member.boosted, x, native, len(member.intercept), is_classes)
    return _mixed(graph, boosted, y, member.boosted.share)


def predictions(graph: Graph, model: tabular.Model, x: str, dtype: np.dtype) -> str:
    """Adds a checked model and returns the name of its predictions, float64; `x` is of `dtype`, with NaN."""
    is_classes = model.task == "classification"
    z, native = _encoded(graph, model, x if dtype == _FLOAT64 else graph.cast(x, _FLOAT64))
    parts = [_member(graph, member, z, native, is_classes) for member in model.members]
    geometric = model.mean == "geometric" and len(parts) > 1
    if geometric:
        least = np.array(model.least_probability)
        parts = [graph.add("Log", graph.add("Max", p, least)) for p in parts]
    y = layers.mean(graph.add, parts)
    if is_classes:
        return graph.add("Softmax", y, axis=1) if geometric else y
    return graph.add("Add", graph.add("Mul", y, model.target_scale), model.target_center)
