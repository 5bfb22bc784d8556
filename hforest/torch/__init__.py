"""Hinge and neural forests in PyTorch: operators with gradients, and modules.

Needs PyTorch 2.4 or newer: ``pip install "hforest[torch]"``. Import it by its name, `import hforest.torch`;
`import hforest` does not import PyTorch.
"""

try:
    import torch as _torch
except ImportError as _error:
    raise ImportError(
        'hforest.torch: expected PyTorch 2.4 or newer, got none; install it with pip install "hforest[torch]"'
    ) from _error

if not hasattr(_torch.library, "register_autograd"):
    raise ImportError(
        f"hforest.torch: expected PyTorch 2.4 or newer, got {_torch.__version__}; "
        'upgrade it with pip install --upgrade "hforest[torch]"'
    )

from .operators import hinge_fern, hinge_tree
from .optim import RowAdam

__all__ = ["RowAdam", "hinge_fern", "hinge_tree"]
