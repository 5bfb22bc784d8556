"""Nodes and constants of an ONNX model, in the order in which they are added."""

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hforest import __version__

OPSET = 18
_IR_VERSION = 10
"""Version in onnx 1.16, the first with TreeEnsemble."""
TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.float64): TensorProto.DOUBLE,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(object): TensorProto.STRING,
}
Value = Any
"""A value of a graph: the name of a constant or of an output of a node; an array becomes a constant."""


class Graph:
    """Nodes and constants of a graph; names are numbered."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, kind: str, *inputs: Value, output: str = "", domain: str = "", **attributes: Any) -> str:
        """Adds a node with one output and returns the name of the output."""
        names = [a if isinstance(a, str) else self.constant("", np.asarray(a)) for a in inputs]
        output = output or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [output], domain=domain, **attributes))
        return output

    def constant(self, name: str, a: np.ndarray) -> str:
        """Adds an array and returns its name."""
        name = name or f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(a, order="C"), name))
        return name

    def cast(self, value: str, dtype: np.dtype, output: str = "") -> str:
        """Returns a value in another dtype."""
        return self.add("Cast", value, to=TYPES[np.dtype(dtype)], output=output)

    def model(self, x: onnx.ValueInfoProto, outputs: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
        """Returns the checked model of the graph."""
        trees = 5 if any(node.op_type == "TreeEnsemble" for node in self.nodes) else 3
        model = helper.make_model(
            helper.make_graph(self.nodes, "forest", [x], outputs, self.constants),
            opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", trees)],
            ir_version=_IR_VERSION,
            producer_name="hforest",
            producer_version=__version__,
        )
        onnx.checker.check_model(model)
        return model


def info(name: str, dtype: np.dtype, *axes: str | int) -> onnx.ValueInfoProto:
    """Returns the description of an input or output."""
    return helper.make_tensor_value_info(name, TYPES[dtype], list(axes))
