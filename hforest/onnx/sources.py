"""What a model needs in order to become a graph."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .graph import Graph

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


class Source(NamedTuple):
    """A model of any kind."""

    n_features: int
    """Number of columns of x."""
    n_outputs: int
    """Number of targets, or of classes of all labels."""
    dtype: np.dtype
    """Dtype of x by default."""
    add: Callable[[Graph, str, np.dtype, str], str]
    """Adds nodes for x of a dtype and returns the name of the predictions; they may have the given name."""
    labels: tuple[np.ndarray, ...] | None = None
    """Labels of the classes, of each label that a sample has; None of a regression, () if unknown."""
    result: np.dtype = FLOAT32
    """Dtype of the predictions."""
    exact: bool = False
    """Whether x has no other dtype."""
