"""Conversion of a model to an ONNX model: the kinds of models, samples, labels and outputs."""

from typing import Any

import numpy as np
import onnx

from hforest import tabular, tree

from . import estimators, forests, tables
from .graph import Graph, info
from .sources import FLOAT32, FLOAT64, Source

_MODELS = "a Forest, a tabular.Model or a fitted estimator of hforest.sklearn"


def _of_forest(forest: tree.Forest) -> Source:
    if not isinstance(forest.feature, np.ndarray):
        raise TypeError(
            "model: expected NumPy arrays, got CuPy arrays; pass Forest(*(a.get() for a in forest))"
        )
    tree.check(forest)
    return Source(
        int(forest.n_features), forest.value.shape[1], forest.threshold.dtype,
        lambda graph, x, dtype, name: forests.means(graph, forest, x, dtype, name),
        labels=(), exact=forest.threshold.dtype == FLOAT32,
    )  # fmt: skip


def _of_table(model: tabular.Model) -> Source:
    n_features = int(np.size(getattr(model.scaling, "low", ())))
    tabular.predict(model._replace(columns=None), np.zeros((0, n_features)))  # checks the model
    labels = model.classes
    if labels is None and model.task == "classification":
        labels = np.arange(len(model.target_center))
    return Source(
        n_features, len(model.target_center), FLOAT64,
        lambda graph, x, dtype, name: tables.predictions(graph, model, x, dtype),
        labels=None if labels is None else (labels,), result=FLOAT64,
    )  # fmt: skip


def source_of(model: Any) -> Source:
    """Returns what a model of any kind needs in order to become a graph."""
    if isinstance(model, tree.Forest):
        return _of_forest(model)
    if isinstance(model, tabular.Model):
        return _of_table(model)
    if type(model).__module__.partition(".")[0] == "hforest" and hasattr(model, "get_params"):
        return estimators.source(model, source_of)
    raise TypeError(f"model: expected {_MODELS}, got {type(model).__name__}; pass one of them")


def _classes(classes: np.ndarray | list, source: Source) -> np.ndarray:
    if source.labels is None or len(source.labels) > 1:
        kind = "a regression" if source.labels is None else "several labels a sample"
        raise ValueError(f"classes: expected None of {kind}, got labels; leave it out")
    labels, n_outputs = np.asarray(classes), source.n_outputs
    if labels.dtype.kind not in "iuUO" or (
        labels.dtype.kind == "O" and not all(isinstance(a, str) for a in labels.ravel())
    ):
        raise TypeError(
            f"classes: expected integers or text, got {labels.dtype}; pass the labels of the classes"
        )
    if labels.shape != (n_outputs,):
        raise ValueError(
            f"classes: expected shape (n_outputs,) = ({n_outputs},), got {labels.shape}; pass one label "
            "per class, or None for regression"
        )
    return labels


def _dtype(source: Source, dtype: np.dtype | type | str | None) -> np.dtype:
    wanted = source.dtype if dtype is None else np.dtype(dtype)
    if wanted not in (FLOAT32, FLOAT64):
        raise TypeError(
            f"dtype: expected float32 or float64, got {wanted}; leave it out to export {source.dtype}"
        )
    if source.exact and wanted != source.dtype:
        raise ValueError(
            "dtype: expected float32, in which this forest compares, got float64; leave it out, and round "
            "samples to float32"
        )
    return wanted


def _of_labels(graph: Graph, shares: str, labels: tuple[np.ndarray, ...]) -> np.dtype:
    """Adds "label", the class of the largest share (of several labels, one for each); returns its dtype."""
    kinds = {"i": np.int64, "u": np.int64, "b": np.int64, "f": np.float64}
    dtypes = {np.dtype(kinds.get(a.dtype.kind, object)) for a in labels}
    if len(dtypes) > 1:
        raise TypeError("model: expected labels of one kind, got numbers and text; fit it on labels of text")
    dtype, start, found = dtypes.pop(), 0, []
    for known in labels:
        part = shares
        if len(labels) > 1:
            ends = np.array([start]), np.array([start + len(known)])
            part, start = graph.add("Slice", shares, *ends, np.array([1])), start + len(known)
        place = graph.add("ArgMax", part, axis=1, keepdims=int(len(labels) > 1))
        names = np.array(known.tolist(), object) if dtype.kind == "O" else known.astype(dtype)
        last = {"output": "label"} if len(labels) == 1 else {}
        found.append(graph.add("Gather", graph.constant("", names), place, **last))
    if len(labels) > 1:
        graph.add("Concat", *found, axis=1, output="label")
    return dtype


def to_onnx(
    model: Any,
    *,
    classes: np.ndarray | list | None = None,
    dtype: np.dtype | type | str | None = None,
) -> onnx.ModelProto:
    """Returns an ONNX model of a forest, a model of a table, or an estimator.

    Parameters
    ----------
    model : Forest, tabular.Model, or estimator of hforest.sklearn
        A forest of NumPy arrays; a model of `hforest.tabular.fit`; a fitted estimator of any kind.
    classes : (n_outputs,) array_like of integers or text, optional
        Labels of the classes of a classification; by default those that the model has. A forest has none.
    dtype : dtype, optional
        Dtype of the model's samples; by default that of a grown forest, and float64 of other models. With
        float32 for a forest of float64, thresholds are rounded down, which changes no decision for float32
        samples.

    Returns
    -------
    onnx.ModelProto
        Its input is "x", (n_samples, n_features) of `dtype`: of a table, and of an estimator that was fitted
        on one, the matrix that `hforest.tabular.numbers` returns for the model's columns. Without classes its
        output is "values", (n_samples, n_outputs): the predictions of the model up to rounding. With classes
        its outputs are "label" and "shares". "label", (n_samples,) int64, float64 or text, is the class with
        the largest share (the first of equals); "shares" is (n_samples, n_outputs). Of several labels a
        sample "label" is (n_samples, n_labels). Values and shares are float64 of a table, float32 of others.

    Raises
    ------
    TypeError
        Another object; labels of several kinds.
    ValueError
        float64 for a forest of float32; an estimator that has not been fitted.

    Notes
    -----
    Trees are a TreeEnsembleRegressor (ai.onnx.ml 3), with splits by categories a TreeEnsemble (ai.onnx.ml 5,
    onnxruntime 1.20 or newer) in which each tree stands once for each output. A forest with projections first
    multiplies samples by a matrix with a column for each distinct projection and feature that a split reads.
    Products are in float64, and rounded to the dtype of the forest; a sum is rounded once, but in the order
    of the runtime, so that a sample next to a threshold may change its side. Missing values go where the
    forest sends them, or right if the forest was grown without any. The runtime adds leaf values in float32
    (float64 if `dtype` is), so labels may differ for nearly equal shares.

    Hinge trees are walked level by level, with Gather and GatherElements (Lay et al. 2018, Alg. 3). Inner
    products of a table are in float32, as in `hforest.tabular.predict`. Cost: microseconds per node;
    n_features * n_columns numbers for projections.

    Examples
    --------
    >>> import numpy as np, hforest.onnx
    >>> x = np.array([[0.0], [1.0], [2.0]], np.float32)
    >>> forest = hforest.grow(x, np.array([0, 1, 1], np.int32), 4, bootstrap=False, rng=0)
    >>> model = hforest.onnx.to_onnx(forest, classes=["no", "yes"])
    >>> [output.name for output in model.graph.output]
    ['label', 'shares']
    >>> import onnxruntime  # doctest: +SKIP
    >>> session = onnxruntime.InferenceSession(model.SerializeToString())  # doctest: +SKIP
    >>> session.run(["label"], {"x": x})  # doctest: +SKIP
    [array(['no', 'yes', 'yes'], dtype=object)]
    """
    source = source_of(model)
    dtype = _dtype(source, dtype)
    labels = source.labels or None if classes is None else (_classes(classes, source),)
    graph = Graph()
    name = "values" if labels is None else "shares"
    result = source.add(graph, "x", dtype, name)
    if result != name:
        graph.add("Identity", result, output=name)
    outputs = [info(name, source.result, "n_samples", source.n_outputs)]
    if labels is not None:
        axes = ("n_samples",) if len(labels) == 1 else ("n_samples", len(labels))
        outputs.insert(0, info("label", _of_labels(graph, name, labels), *axes))
    return graph.model(info("x", dtype, "n_samples", source.n_features), outputs)
