"""The engine that grows forests: columns in bins, bootstraps, and trees on bins or on random projections.

A column of numbers is encoded once for all trees: as ranks of its distinct values, which loses nothing, or as
at most 256 bins. A node then orders small whole numbers. To grow trees on other candidates than features
(such as projections), encode those. NumPy arrays make trees on the CPU, CuPy arrays the same trees on the
GPU.

Samples, labels, targets and weights are what `numpy.asarray` takes, of any real dtype and layout; `Windows`
and `Bins` are taken as they are. Wrong kinds and dtypes raise TypeError, wrong shapes and values ValueError,
labels and bins out of range IndexError; the checks that read whole arrays can be skipped inside
`hforest.unchecked()`.
"""

from ..core.in_place import Windows
from .bins import Bins, Stored
from .growing import bootstrap_counts, grow, grow_projected, poisson_counts
from .samples import Samples, encode, samples
from .trees import Projected, Trees

__all__ = [
    "Bins",
    "Projected",
    "Samples",
    "Stored",
    "Trees",
    "Windows",
    "bootstrap_counts",
    "encode",
    "grow",
    "grow_projected",
    "poisson_counts",
    "samples",
]
