"""Models as ONNX models.

`to_onnx` converts a `hforest.tree.Forest`, a `hforest.tabular.Model` or an estimator of `hforest.sklearn` to
a model for onnxruntime and other ONNX runtimes, with missing values and categories.

Requires onnx 1.16 or newer: ``pip install -e '.[onnx]'``. Write `import hforest.onnx`; `import hforest` does
not import onnx.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..core.counterparts import lookup as _lookup
from ..core.extras import missing as _missing

try:
    import onnx as _onnx
except ImportError as _error:
    raise _missing("hforest.onnx", "onnx 1.16 or newer", "onnx") from _error

if _onnx.defs.onnx_opset_version() < 21:
    raise _missing("hforest.onnx", "onnx 1.16 or newer", "onnx", got=_onnx.__version__)

from .exporting import to_onnx
from .translations import translations

__all__ = ["to_onnx", "translations"]

if not _TYPE_CHECKING:
    __getattr__, __dir__ = _lookup(__name__)
