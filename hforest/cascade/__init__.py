"""Cascades of forests, level by level, and multi-grained scanning (gcForest).

Zhou and Feng, *Deep Forest: Towards an Alternative to Deep Neural Networks*, 2017 (arXiv:1702.08835); Zhang
2017, section 3, shows the cascade. A level consists of several forests. Their class vectors, concatenated
with the input, are the input of the next level. During growth, the class vectors of a training sample come
from trees that were grown without it. A `Cascade` is a tuple of forests and plain numbers: `save` and `load`
store it in one file of plain arrays, `predict` applies it.

Samples and labels are array-likes. Cascades are grown on the CPU; CuPy arrays raise TypeError.
"""

from .files import load, save
from .folds import Grower
from .levels import Cascade, default_forests, grow, predict
from .windows import Scanner, grow_scanner, scan, scan_vectors

__all__ = [
    "Cascade",
    "Grower",
    "Scanner",
    "default_forests",
    "grow",
    "grow_scanner",
    "load",
    "predict",
    "save",
    "scan",
    "scan_vectors",
]
