"""Random hinge trees and ferns, whose output is differentiable almost everywhere.

N. Lay, A. P. Harrison, S. Schreiber, G. Dawer, A. Barbu, *Random Hinge Forest for Differentiable Learning*,
2018.

A forest is three arrays. A complete tree of depth D has V = 2**D - 1 vertices in heap order (root 0, left
child 2v + 1, right child 2v + 2) and L = 2**D leaves numbered from left to right; a fern (``kind="fern"``)
has V = D decisions, the first of which gives the leaf's most significant bit.

=============  =======================  ===============  ==========================================
`thresholds`   (n_trees, V)             float32/float64  t_v, in the unit of the margin
`features`     (n_trees, V)             int32            f_v, column of the input
`weights`      (n_trees, L, *outputs)   as thresholds    w_leaf, in the unit of the output per margin
=============  =======================  ===============  ==========================================

With ``margin="projection"`` `features` are vectors (n_trees, V, n_features), dtype of thresholds. They are
learned, and vertices compare their inner products with the input. With ``windows=Windows(kernel_size, ...)``
samples are windows of images.

`Parameters` is the NamedTuple of the three. All functions take C-contiguous NumPy or CuPy arrays and return
arrays of the same kind. `hforest.unchecked()` skips the checks that read whole arrays; `hinge.kernels` has
the operators without any check, and `prepare` checks a forest once.
"""

from ..core.windows import Windows
from . import kernels
from .grown import ForestStart, from_forest
from .operators import backward, backward_sparse, forward, forward_with_route, leaf_outputs, traverse
from .paths import TreePath, bayes_weights, leaf_counts, leaf_rows, tree_path
from .prepared import Prepared, prepare
from .ridge import LeafFit, fit_weights
from .shared import AdamState, Gradients, Route, RowGradient
from .starts import Parameters, init
from .thresholds import median_thresholds, repair_thresholds, thresholds_consistent
from .training import adam_backward, adam_forward, adam_state, adam_step, adam_sync

__all__ = [
    "AdamState",
    "ForestStart",
    "Gradients",
    "LeafFit",
    "Parameters",
    "Prepared",
    "Route",
    "RowGradient",
    "TreePath",
    "Windows",
    "adam_backward",
    "adam_forward",
    "adam_state",
    "adam_step",
    "adam_sync",
    "backward",
    "backward_sparse",
    "bayes_weights",
    "fit_weights",
    "forward",
    "forward_with_route",
    "from_forest",
    "init",
    "kernels",
    "leaf_counts",
    "leaf_outputs",
    "leaf_rows",
    "median_thresholds",
    "prepare",
    "repair_thresholds",
    "thresholds_consistent",
    "traverse",
    "tree_path",
]
