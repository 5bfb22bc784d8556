"""The CPU backend of grown forests: Cython modules with OpenMP.

cpu.pyx              the functions that `hforest.tree` calls
prepared.pyx         forests that are packed once for many calls
places.pyx           the order of their nodes, for single rows
layouts.pyx          their trees for calls on many samples
shap.pyx             Shapley values
shap_background.pyx  interventional ones
shap_paths.pyx       path-dependent ones
walk.pyx             ways of samples through packed trees
"""

from .cpu import (
    apply,
    count_neighbors,
    faults,
    group,
    neighbors,
    predict,
    quantiles,
)
from .shap import shap_interventional, shap_path_dependent

__all__ = [
    "apply",
    "count_neighbors",
    "faults",
    "group",
    "neighbors",
    "predict",
    "quantiles",
    "shap_interventional",
    "shap_path_dependent",
]
