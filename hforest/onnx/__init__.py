"""Forests as ONNX models.

`to_onnx` makes a model of a `hforest.tree.Forest` that onnxruntime and other runtimes of ONNX apply: splits
by features, categories and projections, missing values, class shares with labels, or values.

Needs onnx 1.16 or newer: ``pip install "hforest[onnx]"``. Import it by its name, `import hforest.onnx`;
`import hforest` does not import onnx.
"""

try:
    import onnx as _onnx
except ImportError as _error:
    raise ImportError(
        'hforest.onnx: expected onnx 1.16 or newer, got none; install it with pip install "hforest[onnx]"'
    ) from _error

if _onnx.defs.onnx_opset_version() < 21:
    raise ImportError(
        f"hforest.onnx: expected onnx 1.16 or newer, got {_onnx.__version__}; "
        'upgrade it with pip install --upgrade "hforest[onnx]"'
    )

from .exporting import to_onnx

__all__ = ["to_onnx"]
