"""Random hinge trees and ferns: routing by the margin nearest to zero, differentiable almost everywhere.

N. Lay, A. P. Harrison, S. Schreiber, G. Dawer, A. Barbu, *Random Hinge Forest for
Differentiable Learning*, 2018.

A forest is three arrays. A complete tree of depth D has V = 2**D - 1 vertices in heap order (root 0,
left child 2v + 1, right child 2v + 2) and L = 2**D leaves numbered from left to right; a fern has V = D
decisions, the first of which gives the leaf's most significant bit.

=============  =======================  ===============  ==========================================
`thresholds`   (n_trees, V)             float32/float64  t_v, in the unit of the input
`features`     (n_trees, V)             int32            f_v, column of the input
`weights`      (n_trees, L, *outputs)   as thresholds    w_leaf, in the unit of the output per margin
=============  =======================  ===============  ==========================================

In the functions named `linear` each vertex has an inner product of its own in place of a column:
`projections` (n_trees, V, n_features) stands for `features`.

`Parameters` is the NamedTuple of the three. Everything here takes C-contiguous NumPy arrays or CuPy arrays
and returns arrays of the same kind. Wrong kinds and dtypes raise TypeError, wrong shapes and values
ValueError, indices out of range IndexError; the checks that read whole arrays can be skipped inside
`hforest.unchecked()`.
"""

from .convolution import fern_conv_forward, fern_conv_traverse, tree_conv_forward, tree_conv_traverse
from .convolution_gradients import fern_conv_backward, tree_conv_backward
from .gradients import fern_backward, tree_backward
from .grown import ForestStart, ObliqueStart, tree_from_forest, tree_from_oblique_forest
from .init import Parameters, fern_init, tree_greedy_init, tree_init
from .linear import (
    fern_linear_forward,
    fern_linear_traverse,
    tree_linear_forward,
    tree_linear_traverse,
)
from .linear_gradients import fern_linear_backward, tree_linear_backward
from .outputs import fern_forward, leaf_outputs, tree_forward
from .paths import TreePath, leaf_counts, leaf_rows, tree_path
from .ridge import LeafFit, fit_weights
from .routing import fern_traverse, tree_traverse
from .shared import Route, RowGradient
from .thresholds import (
    fern_median_thresholds,
    tree_median_thresholds,
    tree_repair_thresholds,
    tree_thresholds_consistent,
)
from .training import (
    AdamState,
    adam_state,
    adam_sync,
    fern_adam_backward,
    fern_adam_forward,
    tree_adam_backward,
    tree_adam_forward,
)

__all__ = [
    "AdamState",
    "ForestStart",
    "LeafFit",
    "ObliqueStart",
    "Parameters",
    "Route",
    "RowGradient",
    "TreePath",
    "adam_state",
    "adam_sync",
    "fern_adam_backward",
    "fern_adam_forward",
    "fern_backward",
    "fern_conv_backward",
    "fern_conv_forward",
    "fern_conv_traverse",
    "fern_forward",
    "fern_init",
    "fern_linear_backward",
    "fern_linear_forward",
    "fern_linear_traverse",
    "fern_median_thresholds",
    "fern_traverse",
    "fit_weights",
    "leaf_counts",
    "leaf_outputs",
    "leaf_rows",
    "tree_adam_backward",
    "tree_adam_forward",
    "tree_backward",
    "tree_conv_backward",
    "tree_conv_forward",
    "tree_conv_traverse",
    "tree_forward",
    "tree_from_forest",
    "tree_from_oblique_forest",
    "tree_greedy_init",
    "tree_init",
    "tree_linear_backward",
    "tree_linear_forward",
    "tree_linear_traverse",
    "tree_median_thresholds",
    "tree_path",
    "tree_repair_thresholds",
    "tree_thresholds_consistent",
    "tree_traverse",
]
