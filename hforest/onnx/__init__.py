"""Forests as ONNX models.

`to_onnx` makes a model of a `hforest.tree.Forest` that onnxruntime and other runtimes of ONNX apply: splits
by features, categories and projections, missing values, class shares with labels, or values.

Needs onnx 1.16 or newer: ``pip install -e '.[onnx]'``. Import it by its name, `import hforest.onnx`;
`import hforest` does not import onnx.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..core.extras import missing as _missing
from ..core.habits import lookup as _lookup

try:
    import onnx as _onnx
except ImportError as _error:
    raise _missing("hforest.onnx", "onnx 1.16 or newer", "onnx") from _error

if _onnx.defs.onnx_opset_version() < 21:
    raise _missing("hforest.onnx", "onnx 1.16 or newer", "onnx", got=_onnx.__version__)

from .exporting import to_onnx

__all__ = ["to_onnx"]

if not _TYPE_CHECKING:
    __getattr__, __dir__ = _lookup(__name__)
