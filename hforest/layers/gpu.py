"""The softmax loss on a GPU; the kernels are in gpu.cu. No function waits for the device."""

from pathlib import Path

from ..core import launch as launcher
from ..core.aliases import Array, FloatArray, IntArray
from ..core.dispatch import array_module
from ..core.launch import launch, numbers

_PACKAGE = Path(__file__).parent
WARP, PARTS = numbers("layers/sums.h", "HF_WARP", "HF_PARTS")


def softmax_loss(scores: FloatArray, labels: IntArray) -> tuple[Array, FloatArray]:
    """Returns the loss of at least one sample, a float64 array without axes, and its gradient."""
    (n_samples, n_classes), xp = scores.shape, array_module(scores)
    losses, loss, grad = xp.empty(n_samples), xp.empty(()), xp.empty_like(scores)
    n_blocks = -(-n_samples * (1 if n_classes <= WARP else WARP) // launcher.THREADS)
    args = (scores, labels, n_samples, n_classes, losses, loss, grad)
    launch(_PACKAGE, "softmax", scores.dtype, n_blocks, args)
    if n_blocks > 1:
        launch(_PACKAGE, "mean", scores.dtype, 1, (losses, n_samples, loss), PARTS)
    return loss, grad
