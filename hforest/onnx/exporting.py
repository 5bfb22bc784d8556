"""Conversion of a forest to an ONNX model: columns that splits compare, trees and outputs."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hforest import __version__, tree

from . import trees

_TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float64): TensorProto.DOUBLE}
_OPSET = 18
_IR_VERSION = 10
"""Version in onnx 1.16, the first with TreeEnsemble."""


class _Graph:
    """Nodes and constants in the order in which they are added; names are numbered."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, kind: str, *inputs: str, output: str = "", **attributes: int) -> str:
        """Adds a node with one output and returns the name of the output."""
        output = output or f"{kind.lower()}_{len(self.nodes)}"
        node = helper.make_node(kind, list(inputs), [output])
        node.attribute.extend(helper.make_attribute(name, a) for name, a in attributes.items())
        self.nodes.append(node)
        return output

    def constant(self, name: str, a: np.ndarray) -> str:
        """Adds an array and returns its name."""
        self.constants.append(numpy_helper.from_array(a, name))
        return name


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


def _projected(graph: _Graph, forest: tree.Forest, weight: np.ndarray, dtype: np.dtype) -> str:
    """Adds the products of samples and projections, in float64, rounded once; returns their name."""
    x = "x" if dtype == np.float64 else graph.add("Cast", "x", to=TensorProto.DOUBLE)
    projections = graph.constant("projections", weight)
    if not forest.default_left.size:
        product = graph.add("MatMul", x, projections)
    else:
        # A projection is missing if one of its features is; 0 * NaN is NaN, so that NaN becomes 0 first.
        missing = graph.add("IsNaN", x)
        zero, nan = graph.constant("zero", np.zeros(())), graph.constant("nan", np.array(np.nan))
        product = graph.add("MatMul", graph.add("Where", missing, zero, x), projections)
        read = graph.constant("read", (weight != 0).astype(np.float64))
        n_missing = graph.add("MatMul", graph.add("Cast", missing, to=TensorProto.DOUBLE), read)
        product = graph.add("Where", graph.add("Greater", n_missing, zero), nan, product)
    if forest.threshold.dtype == np.float64:
        return product
    return graph.add("Cast", product, to=TensorProto.FLOAT)


def _classes(forest: tree.Forest, classes: np.ndarray | list | None) -> np.ndarray | None:
    if classes is None:
        return None
    labels = np.asarray(classes)
    n_outputs = forest.value.shape[1]
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
    return labels.astype(np.int64 if labels.dtype.kind in "iu" else object)


def _checked(forest: tree.Forest, dtype: np.dtype | type | str | None) -> np.dtype:
    if isinstance(forest, tree.Forest) and not isinstance(forest.feature, np.ndarray):
        raise TypeError(
            "forest: expected NumPy arrays, got CuPy arrays; pass Forest(*(a.get() for a in forest))"
        )
    tree.check(forest)
    forest_dtype = forest.threshold.dtype
    wanted = forest_dtype if dtype is None else np.dtype(dtype)
    if wanted not in _TYPES:
        raise TypeError(
            f"dtype: expected float32 or float64, got {wanted}; leave it out to export {forest_dtype}"
        )
    if forest_dtype == np.float32 and wanted == np.float64:
        raise ValueError(
            "dtype: expected float32, in which this forest compares, got float64; leave it out, and round "
            "samples to float32"
        )
    return wanted


def to_onnx(
    forest: tree.Forest,
    *,
    classes: np.ndarray | list | None = None,
    dtype: np.dtype | type | str | None = None,
) -> onnx.ModelProto:
    """Returns an ONNX model of a forest: values of a regression, or labels and class shares.

    Parameters
    ----------
    forest : Forest
        Splits by features, categories or projections; NumPy arrays.
    classes : (n_outputs,) array_like of integers or text, optional
        Labels of the classes of a classification.
    dtype : dtype, optional
        Dtype of the model's samples; by default that of the forest. With float32 for a forest of float64,
        thresholds are rounded down, which changes no decision for float32 samples.

    Returns
    -------
    onnx.ModelProto
        Its input is "x", (n_samples, n_features) of `dtype`. Without `classes` its output is "values",
        (n_samples, n_outputs) float32: the result of `hforest.tree.predict` up to rounding. With `classes`
        its outputs are "label" and "shares". "label", (n_samples,) int64 or text, is the class with the
        largest share (the first of equals); "shares" is (n_samples, n_outputs) float32.

    Raises
    ------
    ValueError
        float64 for a forest of float32.

    Notes
    -----
    Trees are a TreeEnsembleRegressor (ai.onnx.ml 3), with splits by categories a TreeEnsemble (ai.onnx.ml 5,
    onnxruntime 1.20 or newer) in which each tree stands once for each output. A forest with projections first
    multiplies samples by a matrix with a column for each distinct projection and feature that a split reads.
    Products are in float64, and rounded to the dtype of the forest; a sum is rounded once, but in the order
    of the runtime, so that a sample next to a threshold may change its side. Missing values go where the
    forest sends them, or right if the forest was grown without any. The runtime adds leaf values in float32
    (float64 if `dtype` is), so labels may differ for nearly equal shares. Cost: microseconds per node;
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
    dtype = _checked(forest, dtype)
    labels = _classes(forest, classes)
    graph = _Graph()
    missing_left = (
        (forest.default_left & 1).astype(bool)
        if forest.default_left.size
        else np.zeros(len(forest.feature), bool)
    )
    if bool((forest.feature == -2).any()):
        column, weight = _projections(forest)
        columns = trees.Columns(column, forest.threshold, missing_left)
        source = _projected(graph, forest, weight, dtype)
    else:
        threshold = forest.threshold if dtype == forest.threshold.dtype else _rounded_down(forest.threshold)
        columns = trees.Columns(np.maximum(forest.feature, 0).astype(np.int64), threshold, missing_left)
        source = "x"
    values = "values" if labels is None else "shares"
    by_category = bool(forest.category_bits.size)
    _add_trees(graph, forest, columns, source, values)
    outputs = [helper.make_tensor_value_info(values, TensorProto.FLOAT, ["n_samples", forest.value.shape[1]])]
    if labels is not None:
        place = graph.add("ArgMax", values, axis=1, keepdims=0)
        graph.add("Gather", graph.constant("classes", labels), place, output="label")
        kind = TensorProto.INT64 if labels.dtype.kind == "i" else TensorProto.STRING
        outputs.insert(0, helper.make_tensor_value_info("label", kind, ["n_samples"]))
    x = helper.make_tensor_value_info("x", _TYPES[dtype], ["n_samples", int(forest.n_features)])
    model = helper.make_model(
        helper.make_graph(graph.nodes, "forest", [x], outputs, graph.constants),
        opset_imports=[
            helper.make_opsetid("", _OPSET),
            helper.make_opsetid("ai.onnx.ml", 5 if by_category else 3),
        ],
        ir_version=_IR_VERSION,
        producer_name="hforest",
        producer_version=__version__,
    )
    onnx.checker.check_model(model)
    return model


def _add_trees(graph: _Graph, forest: tree.Forest, columns: trees.Columns, source: str, values: str) -> None:
    """Adds the trees and the nodes that compute float32 means of their results."""
    if not forest.category_bits.size:
        graph.nodes.append(trees.regressor(forest, columns, source, values))
        return
    graph.nodes.append(trees.ensemble(forest, columns, source, "sums"))
    n_trees = graph.constant("n_trees", np.array(len(forest.tree_start) - 1, columns.threshold.dtype))
    if columns.threshold.dtype == np.float32:
        graph.add("Div", "sums", n_trees, output=values)
    else:
        graph.add("Cast", graph.add("Div", "sums", n_trees), output=values, to=TensorProto.FLOAT)
