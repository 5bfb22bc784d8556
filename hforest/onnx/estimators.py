"""Estimators as nodes: the samples that their models read, and models that are not forests or tables."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hforest import cascade, layers, neural

from . import forests
from . import layers as nodes
from .graph import Graph
from .sources import FLOAT32, FLOAT64, Source

_MAX_LEVELS = 2**16
"""Number of categories that a split can list."""


def _columns(graph: Graph, estimator: Any, x: str) -> str:
    """Returns samples as the model reads them, from numbers of a table; float64."""
    levels = vars(estimator).get("levels_")
    if levels is None:
        if not estimator.complete_.any():
            return x
        # A category that a forest without missing values does not know is NaN in x.
        columns = estimator.columns_
        size = np.diff(columns.level_start)[columns.source]
        unknown = graph.add("And", graph.add("IsNaN", x), estimator.complete_ & (size < _MAX_LEVELS))
        return graph.add("Where", unknown, size.astype(np.float64), x)
    parts = []
    for j, most in enumerate(levels):
        part = graph.add("Gather", x, np.array([j]), axis=1)
        if most is not None:
            part = graph.cast(graph.add("Equal", part, most.astype(np.float64)), FLOAT64)
        parts.append(part)
    return graph.add("Concat", *parts, axis=1)


def _standardized(graph: Graph, x: str, units: Any, dtype: np.dtype) -> str:
    """Returns samples in float32, standardised where there are units; `dtype` is that of x."""
    if units is None:
        return x if dtype == FLOAT32 else graph.cast(x, FLOAT32)
    x = x if dtype == FLOAT64 else graph.cast(x, FLOAT64)
    return nodes.standardized(graph.add, x, *units)


def _of_network(estimator: Any) -> Source:
    """Returns the network of Lay et al. 2018, Fig. 2a and 2b."""
    config, state = estimator.config_, estimator.state_
    thresholds, features, weights = (state[name] for name in ("thresholds", "features", "weights"))
    is_classes, n_outputs = config.task == "classification", state.get("mixing", weights).shape[-1]
    per_deviation = layers.normalize_backward(
        np.ones((1, len(state["var"])), state["var"].dtype), state["var"]
    )

    def add(graph: Graph, x: str, dtype: np.dtype, name: str) -> str:
        z = _standardized(graph, x, estimator.units_, dtype)
        if config.n_features:
            z = graph.add("MatMul", z, state["kernel"])
        z = graph.add("Mul", graph.add("Sub", z, state["mean"]), per_deviation[0])
        scalar = "mixing" in state
        values = weights.reshape(-1, 1 if scalar else n_outputs)
        arrays = thresholds.ravel(), features.ravel().astype(np.int64), values
        sizes = config.n_trees, config.depth, [] if scalar else [n_outputs]
        aggregate = None if scalar else "sum"
        y = nodes.hinge_forest(graph.add, z, arrays, sizes, kind=config.kind, aggregate=aggregate)
        y = graph.add("MatMul", y, state["mixing"]) if scalar else y
        if is_classes:
            return graph.add("Softmax", y, axis=1)
        mean, deviation = estimator.target_units_
        return graph.add("Add", graph.add("Mul", graph.cast(y, FLOAT64), deviation), mean)

    n_features = len(estimator.units_[0])
    return Source(n_features, n_outputs, FLOAT64, add, result=FLOAT32 if is_classes else FLOAT64)


def _of_neural(estimator: Any) -> Source:
    """Returns a neural decision forest with linear decision functions (Zhang 2017, section 2)."""
    model: neural.Linear = estimator.model_
    n_trees, _, n_vertices = model.weights.shape
    n_features, n_classes = estimator.n_features_in_, model.leaves.shape[2]
    if getattr(estimator, "levels_", None) is not None:
        n_features = sum(1 if most is None else len(most) for most in estimator.levels_)
    weight = np.zeros((n_features, n_trees, n_vertices), model.weights.dtype)
    for m, columns in enumerate(model.features):
        weight[columns, m] = model.weights[m, :-1]
    bias = model.weights[:, -1].ravel()

    def add(graph: Graph, x: str, dtype: np.dtype, name: str) -> str:
        units = estimator.units_ if estimator.standardize else None
        z = _standardized(graph, x, units, dtype)
        f = graph.add("Add", graph.add("MatMul", z, weight.reshape(n_features, -1)), bias)
        f = graph.add("Reshape", f, np.array([-1, n_trees, n_vertices]))
        depth = (n_vertices + 1).bit_length() - 1
        return nodes.neural_forest(graph.add, f, model.leaves.reshape(-1, n_classes), n_trees, depth)

    return Source(n_features, n_classes, FLOAT64, add)


def _as(graph: Graph, x: str, dtype: np.dtype) -> str:
    """Returns numbers rounded to a dtype, as float64."""
    return graph.cast(x if dtype == FLOAT64 else graph.cast(x, dtype), FLOAT64)


def _of_cascade(estimator: Any) -> Source:
    """Returns the levels of a cascade; class vectors and their sums are in float64."""
    model: cascade.Cascade = estimator.cascade_
    grown = model.levels[0][0].threshold.dtype

    def add(graph: Graph, x: str, dtype: np.dtype, name: str) -> str:
        x = _as(graph, x, grown)
        vectors: list[str] = []
        for level in model.levels:
            z = graph.add("Concat", x, *vectors, axis=1) if vectors else x
            vectors = [_as(graph, forests.means(graph, one, z, FLOAT64, exact=True), grown) for one in level]
        return graph.cast(nodes.mean(graph.add, vectors), FLOAT32, name)

    return Source(model.n_features[0], model.n_classes, grown, add)


def _with_fallback(source: Source, fallback: np.ndarray) -> Source:
    """Returns class shares of the trees that vote; `fallback` where none does."""

    def add(graph: Graph, x: str, dtype: np.dtype, name: str) -> str:
        shares = source.add(graph, x, dtype, "")
        votes = graph.add("ReduceSum", shares, np.array([1]), keepdims=1)
        some = graph.add("Greater", votes, np.zeros((), np.float32))
        divided = graph.add("Div", shares, graph.add("Where", some, votes, np.ones((), np.float32)))
        return graph.add("Where", some, divided, fallback.astype(np.float32), output=name)

    return source._replace(add=add)


def source(estimator: Any, source_of: Callable[[Any], Source]) -> Source:
    """Returns what a fitted estimator needs; `source_of` is that of a forest or a model of a table."""
    name, fitted = type(estimator).__name__, vars(estimator)
    if "n_features_in_" not in fitted:
        raise ValueError(f"model: expected a fitted estimator, got {name} without a fit; call fit first")
    part: Source
    if "forest_" in fitted:
        part = source_of(estimator.forest_)
        fallback = fitted.get("fallback_")
        part = part if fallback is None else _with_fallback(part, fallback)
    elif isinstance(fitted.get("model_"), neural.Linear):
        part = _of_neural(estimator)
    elif "model_" in fitted:
        part = source_of(estimator.model_)
    elif "cascade_" in fitted:
        part = _of_cascade(estimator)
    elif "state_" in fitted:
        part = _of_network(estimator)
    else:
        raise TypeError(f"model: expected an estimator that has a model, got {name}; pass its forest")
    if "classes_" in fitted:
        classes = estimator.classes_
        part = part._replace(labels=tuple(classes) if isinstance(classes, list) else (classes,))
    if fitted.get("columns_") is None:
        return part
    inner, dtype = part.add, part.dtype

    def add(graph: Graph, x: str, given: np.dtype, name: str) -> str:
        z = _columns(graph, estimator, x if given == FLOAT64 else graph.cast(x, FLOAT64))
        return inner(graph, z if dtype == FLOAT64 else graph.cast(z, dtype), dtype, name)

    return part._replace(n_features=len(estimator.columns_.parts), dtype=FLOAT64, add=add, exact=False)
