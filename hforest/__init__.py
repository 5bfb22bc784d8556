"""Differentiable and oblique decision forests as plain array functions, on CPU and GPU.

Rooms: `hinge` (random hinge trees and ferns), `neural` (neural decision forests with soft routing), `classic`
(random forests), `manifold` (oblique and manifold forests), `co2` (continuously optimised oblique splits),
`cascade` (gcForest); below them `layers` (what surrounds a forest in a network), `optim` (optimisers, dense
and row-sparse), `split` (scores of splits), `project` (sparse projections), `tree` (grown forests as arrays)
and `growth` (the engine that grows them). Every function takes its arrays explicitly.
"""

from . import cascade, classic, co2, growth, hinge, layers, manifold, neural, optim, project, split, tree
from ._version import __version__
from .core.check import unchecked
from .core.dispatch import using
from .core.threads import get_num_threads, keep_memory, set_num_threads, show_config

__all__ = [
    "__version__",
    "cascade",
    "classic",
    "co2",
    "get_num_threads",
    "growth",
    "hinge",
    "keep_memory",
    "layers",
    "manifold",
    "neural",
    "optim",
    "project",
    "set_num_threads",
    "show_config",
    "split",
    "tree",
    "unchecked",
    "using",
]
