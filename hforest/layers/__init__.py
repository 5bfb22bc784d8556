"""Layers around a forest: normalisation, convolution, losses (Lay et al. 2018, sections 4 and 6).

All functions take C-contiguous NumPy or CuPy arrays of float32 or float64, and return new arrays of the same
kind and dtype; labels are of any integer or bool dtype. They are made of matrix products and passes over
arrays; the softmax loss has kernels. Wrong kinds and dtypes raise TypeError, wrong shapes and values
ValueError, labels out of range IndexError; the checks that read whole arrays can be skipped inside
`hforest.unchecked()`.
"""

from .convolution import conv2d, conv2d_backward
from .losses import softmax_loss, squared_loss
from .normalization import normalize, normalize_backward, normalize_update

__all__ = [
    "conv2d",
    "conv2d_backward",
    "normalize",
    "normalize_backward",
    "normalize_update",
    "softmax_loss",
    "squared_loss",
]
