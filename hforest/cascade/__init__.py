"""Cascades of forests, level by level, and multi-grained scanning (gcForest), built from other rooms' doors.

Zhou and Feng, *Deep Forest*, 2017, as p4 section 3 describes it. A level is some forests; their class
vectors, side by side with the input, are what the next level sees. While it grows, the vectors of a training
sample come from trees that never saw it. A `Cascade` is a tuple of forests and plain numbers: `save` and
`load` keep it in one file of plain arrays, `predict` applies it.

Cascades are grown on the CPU; CuPy arrays raise TypeError. Wrong kinds and dtypes raise TypeError, wrong
shapes and values ValueError, labels out of range IndexError.
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
