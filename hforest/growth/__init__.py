"""The engine that grows forests: columns in bins, bootstraps, and trees on bins or on random projections.

A column is encoded once for all trees: as ranks of its distinct values, which is exact, or as at most 256
bins. So a node orders small whole numbers. To grow trees on other candidates than features, encode the
candidates. NumPy arrays are grown on the CPU; CuPy arrays give the same trees on the GPU.

Samples, labels, targets and weights are what `numpy.asarray` takes, of any real dtype and layout; `Windows`
and `Bins` are not converted. Wrong kinds and dtypes raise TypeError, wrong shapes and values ValueError,
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
