"""Hinge and neural forests in PyTorch: operators with gradients, and modules.

Requires PyTorch 2.8 or newer: ``pip install -e '.[torch]'``. Write `import hforest.torch`; `import hforest`
does not import PyTorch.

Errors are those of the array functions, with their messages. Half types outside of `torch.autocast` raise
TypeError, second derivatives RuntimeError. Methods that set parameters from samples run on the CPU.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..core.counterparts import lookup as _lookup
from ..core.extras import is_older as _is_older
from ..core.extras import missing as _missing

try:
    import torch as _torch
except ImportError as _error:
    raise _missing("hforest.torch", "PyTorch 2.8 or newer", "torch") from _error

if _is_older(_torch.__version__, 2, 8):
    raise _missing("hforest.torch", "PyTorch 2.8 or newer", "torch", got=_torch.__version__)

from .conv_layers import HingeConv1d, HingeConv2d, HingeConv3d
from .heads import NeuralForest
from .modules import HingeForest
from .neural import neural_forest, neural_loss
from .normalization import RunningNorm
from .operators import hinge_forest
from .optim import RowAdam

__all__ = [
    "HingeConv1d",
    "HingeConv2d",
    "HingeConv3d",
    "HingeForest",
    "NeuralForest",
    "RowAdam",
    "RunningNorm",
    "hinge_forest",
    "neural_forest",
    "neural_loss",
]

# Classes are known by their public names, in `help` and in pickles, whatever file holds them.
for _name in __all__:
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = __name__
del _name

if not _TYPE_CHECKING:
    __getattr__, __dir__ = _lookup(__name__)
