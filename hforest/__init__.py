"""Differentiable and oblique decision forests as plain array functions.

`grow` grows random forests, extra trees, completely random trees and forests on random projections; `samples`
prepares samples for it. Each subpackage has one published algorithm, or code that several share. Functions
take their arrays explicitly and have no state; a forest is a tuple of arrays. `growth.Settings` describes the
settings of `grow`, which other functions pass on.

==============  =================================================================================
`hinge`         random hinge trees and ferns: differentiable layers with hard routing
`neural`        neural decision forests: differentiable trees with soft routing
`co2`           forests of continuously optimised oblique splits
`alternating`   forests that grow level by level on weights of a loss
`cascade`       deep forests (gcForest): levels of forests, multi-grained scanning
`tabular`       one recipe for ordinary tables: hinge forests that start from grown forests
`stats`         honest forests, and tests of dependence with valid p-values
`images`        labels of pixels: forests on windows of images, channels, scores
`tree`          grown forests: leaves, predictions, out-of-bag errors, importance, text, import
`split`         the best split of a node, impurities
`growth`        growing forests: samples, bootstrap counts, settings
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

These parameters mean the same in all functions, whose docstrings have them only where there is more to say:

rng : None, int or numpy.random.Generator
    Source of random numbers; the same int gives the same result in every call.
progress : callable or bool, optional
    Called as progress(done, total). If it returns False, the call ends and returns what is finished. True
    shows a bar.
task : "classification" or "regression"
    Whether y holds labels or targets.
n_classes : int, optional
    Number of classes, at most 2**20; some of them may be absent. By default it is the largest label plus 1,
    and every class must occur. Classification only.
class_weight : "balanced", mapping, or (n_classes,) array-like, optional
    Factors of the sample weights of each class. Classes that a mapping omits have factor 1; "balanced" gives
    all classes that occur the same total weight.
dtype : float32 or float64
    Dtype of the arrays of the result. Random numbers are drawn in float64 and rounded.
out : array or tuple of arrays, optional
    Writeable arrays of the shapes and dtypes of the result, which the call writes and returns. They overlap
    no other array.

These errors mean the same, too. They name the argument, what was expected, what it was, and a remedy:

TypeError
    An argument of another kind, dtype or device.
ValueError
    Another shape or memory layout; NaN or infinity; an unknown word, or a number out of range; arrays that
    overlap or contradict each other.
IndexError
    A label, feature, leaf or other index out of range.
MemoryError
    A result or workspace that does not fit into memory.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import (
    _interrupts,  # noqa: F401, before all others
    alternating,
    cascade,
    co2,
    growth,
    hinge,
    images,
    layers,
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
from .growth import grow, samples

__all__ = [
    "__version__",
    "alternating",
    "cascade",
    "co2",
    "get_num_threads",
    "grow",
    "growth",
    "hinge",
    "images",
    "layers",
    "neural",
    "optim",
    "project",
    "samples",
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
