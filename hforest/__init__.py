"""Differentiable and oblique decision forests as plain array functions.

Each subpackage has one published algorithm, or code that several share. Functions take their arrays
explicitly and have no state; a forest is a tuple of arrays.

==============  =================================================================================
`hinge`         random hinge trees and ferns: differentiable layers with hard routing
`neural`        neural decision forests: differentiable trees with soft routing
`classic`       random forests, extra trees, completely random forests, out-of-bag predictions
`manifold`      sparse projection oblique forests and manifold oblique forests
`co2`           forests of continuously optimised oblique splits
`cascade`       deep forests (gcForest): levels of forests, multi-grained scanning
`tabular`       one recipe for ordinary tables: hinge forests that start from grown forests
`stats`         honest forests, and tests of dependence with valid p-values
`images`        labels of pixels: forests on windows of images, channels, scores
`tree`          grown forests: leaves, predictions, importance, text, import
`split`         the best split of a node, impurities
`growth`        growing trees: binning, bootstrap counts, axis-aligned and projected splits
`project`       sparse random projections: distributions, samples, products
`layers`        normalisation, convolution and losses around a forest in a network
`optim`         optimisers, dense and by rows
`demo`          `python -m hforest`: a network with a hinge forest
==============  =================================================================================

NumPy arrays are computed on the CPU, CuPy arrays on the GPU.
`using("reference")` runs the plain loops that define each algorithm, `unchecked()` skips the checks of
values, `set_num_threads` sets the number of threads, and `show_config()` prints the features of this build.
`hforest.torch`, `hforest.jax` and `hforest.sklearn` have forests as layers of PyTorch, functions of JAX and
estimators of scikit-learn. `hforest.treelite` and `hforest.onnx` exchange models, `hforest.plot` draws them,
and `hforest.scale` grows forests on several workers. Import each by its own name.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import (
    _interrupts,  # noqa: F401, before all others
    cascade,
    classic,
    co2,
    growth,
    hinge,
    images,
    layers,
    manifold,
    neural,
    optim,
    project,
    split,
    stats,
    tabular,
    tree,
)
from ._version import __version__
from .core.check import unchecked
from .core.counterparts import lookup as _lookup
from .core.dispatch import using
from .core.threads import get_num_threads, set_num_threads, show_config

__all__ = [
    "__version__",
    "cascade",
    "classic",
    "co2",
    "get_num_threads",
    "growth",
    "hinge",
    "images",
    "layers",
    "manifold",
    "neural",
    "optim",
    "project",
    "set_num_threads",
    "show_config",
    "split",
    "stats",
    "tabular",
    "tree",
    "unchecked",
    "using",
]

# Public classes are known by their public names, in `help` and in pickles, whatever file holds them.
# A wrong name is answered by the right one, and `dir` shows public names alone.
for _package in [globals()[_name] for _name in __all__]:
    if hasattr(_package, "__all__"):
        _package.__getattr__, _package.__dir__ = _lookup(_package.__name__)
    for _name in getattr(_package, "__all__", ()):
        _member = getattr(_package, _name)
        # Types of compiled modules cannot be changed.
        if isinstance(_member, type) and _member is not tree.Prepared:
            _member.__module__ = _package.__name__
del _package, _name, _member

if not _TYPE_CHECKING:
    __getattr__, __dir__ = _lookup(__name__)
