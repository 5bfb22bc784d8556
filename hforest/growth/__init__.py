"""The engine that grows forests: samples, in-bag counts, and trees on features or on random projections.

A column is encoded once for all trees: as ranks of its distinct values, which is exact, or as at most 256
bins. So a node orders small whole numbers. NumPy arrays are grown on the CPU; CuPy arrays give the same trees
on the GPU. `hforest.grow` and `hforest.samples` are the functions of this package.

Samples, labels, targets and weights are what `numpy.asarray` takes, of any real dtype and layout.
"""

from .counts import bootstrap_counts, poisson_counts
from .growing import grow, grow_with_leaves
from .samples import Samples, samples
from .settings import Settings, TreeSettings

__all__ = [
    "Samples",
    "Settings",
    "TreeSettings",
    "bootstrap_counts",
    "grow",
    "grow_with_leaves",
    "poisson_counts",
    "samples",
]
