"""Grown forests as plain arrays, and functions that apply, inspect, check and convert them.

A `Forest` is a tuple of arrays; it has no methods and no state. The nodes of all trees stand one tree after
another, breadth-first within a tree, so that children come after their parent and a right child next to its
left one. `save` writes it to a file, `load` reads it back and checks it.

Samples are what `numpy.asarray` takes: arrays of any strides, order and real dtype, lists, data frames of
numbers. They are converted to the dtype of the forest: a forest grown on float32 rounds float64 rows to
float32.

Forests that were grown, loaded, joined or converted are valid, and their arrays are read-only. Every other
forest, such as one of `_replace` or of a pickle, is checked by each call that walks it (a few nanoseconds per
node), unless it runs inside `hforest.unchecked()`. To apply a forest to single rows, `prepare` it. Wrong
kinds and dtypes raise TypeError, wrong shapes and values ValueError, nodes and features out of range
IndexError.
"""

from .complete import depth, splits
from .convert import from_sklearn
from .cpu.prepared import Prepared
from .estimates import Interval, out_of_bag, prediction_intervals
from .export import to_dict
from .files import load, save
from .forest import Forest, check
from .importances import importance, permutation_importance
from .joining import join
from .leaves import LeafTargets, leaf_targets, quantiles
from .proximities import proximity
from .pruning import prune, pruning_alphas
from .refitting import leaf_counts, refit
from .shap import ShapValues, shap_values
from .text import to_text
from .walks import apply, path, predict, prepare, vote_shares

__all__ = [
    "Forest",
    "Interval",
    "LeafTargets",
    "Prepared",
    "ShapValues",
    "apply",
    "check",
    "depth",
    "from_sklearn",
    "importance",
    "join",
    "leaf_counts",
    "leaf_targets",
    "load",
    "out_of_bag",
    "path",
    "permutation_importance",
    "predict",
    "prediction_intervals",
    "prepare",
    "proximity",
    "prune",
    "pruning_alphas",
    "quantiles",
    "refit",
    "save",
    "shap_values",
    "splits",
    "to_dict",
    "to_text",
    "vote_shares",
]
