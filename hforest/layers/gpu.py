"""The softmax loss on a GPU; the kernels are in gpu.cu. No function waits for the device."""

from pathlib import Path

from ..core.aliases import Array, FloatArray, IntArray
from ..core.dispatch import array_module
from ..core.launch import launch, launch_each, numbers

_PACKAGE = Path(__file__).parent
WARP, MAX_THREADS = numbers("layers/sums.h", "HF_WARP", "HF_PARTS")


def softmax_loss(scores: FloatArray, labels: IntArray) -> tuple[Array, FloatArray]:
    """Returns the loss of at least one sample, a float64 array without axes, and its gradient."""
    (n_samples, n_classes), xp = scores.shape, array_module(scores)
    losses, loss, grad = xp.empty(n_samples), xp.empty(()), xp.empty_like(scores)
    args = (scores, labels, n_samples, n_classes, losses, grad)
    launch_each(_PACKAGE, "softmax", scores.dtype, n_samples * WARP, args)
    threads = min(MAX_THREADS, -(-n_samples // WARP) * WARP)
    launch(_PACKAGE, "mean", scores.dtype, 1, (losses, n_samples, loss), threads)
    return loss, grad
