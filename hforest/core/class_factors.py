"""Weights of classes: factors of the weights of samples."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import check, several
from .aliases import FloatArray, IntArray
from .dispatch import array_module, to_numpy
from .supervised import MAX_WEIGHT, Target, bounded, converted_numbers, real, scaled_weight, similar

__all__ = ["applied", "are_of_trees", "balanced", "balanced_in_trees", "check_labels"]

_FLOAT64 = np.dtype(np.float64)


def are_of_trees(weight: Any) -> bool:
    """Returns whether class weights are made for each tree, by `balanced_in_trees`."""
    return isinstance(weight, str) and weight == "balanced_subsample"


def check_labels(weight: Any, target: Target) -> None:
    """Checks that class weights, if there are any, are for labels."""
    check.require(
        weight is None or target.labels is not None or target.class_start is not None, "class_weight",
        'None with task="regression"', "class weights", "pass sample_weight instead",
    )  # fmt: skip


def applied(weight: Any, target: Target, of_samples: FloatArray) -> FloatArray:
    """Returns `of_samples` times the weights of the classes, times a power of two if they are extreme.

    `weight` is None, "balanced" (classes that occur get equal weight), a mapping from labels (others have 1),
    or an array of n_classes numbers. With several labels a sample it is "balanced", or a list of such values,
    one for each label; their factors are multiplied.
    """
    if weight is None:
        return of_samples
    check_labels(weight, target)
    labels = several.labels_of(target)
    values = [weight]
    if target.class_start is not None:
        values = [weight] * len(labels) if isinstance(weight, str) else weight
        check.require(
            isinstance(values, Sequence) and len(values) == len(labels), "class_weight",
            f'"balanced", or a list of a value for each of {len(labels)} labels', type(weight).__name__,
            "pass such as [{0: 1.0, 1: 5.0}, None]",
        )  # fmt: skip
    xp, total = array_module(of_samples), of_samples
    for value, (of_label, n_classes) in zip(values, labels, strict=True):
        if value is not None:
            # Products of extreme numbers would leave the range of float64.
            total, _ = scaled_weight(total, None, _FLOAT64, 1)
            factor, _ = scaled_weight(
                xp.asarray(_factor(value, of_label, n_classes, of_samples)), None, _FLOAT64, 1
            )
            total = total * factor[of_label]
    above_0 = (total > 0).any()
    check.require(
        above_0,
        "class_weight",
        "at least one sample of weight above 0",
        "none",
        "raise the weight of a class",
    )
    return total


def _factor(weight: Any, labels: IntArray, n_classes: int, of_samples: FloatArray) -> FloatArray:
    """Returns (n_classes,) factors of the classes of a label."""
    if isinstance(weight, str):
        check.choice("class_weight", weight, ("balanced",))
        # Summed on the host in the order of samples, so that results are bit-identical on every device.
        return balanced(to_numpy(labels), to_numpy(of_samples), n_classes)
    if isinstance(weight, Mapping):
        factor = np.ones(n_classes)
        for label, w in weight.items():
            k = int(label) if isinstance(label, bool | np.bool_) else label  # labels may be bools
            factor[check.integer("class_weight", k, 0, n_classes - 1)] = check.number(
                "class_weight", w, 0.0, MAX_WEIGHT
            )
        return factor
    numbers = real("class_weight", weight)
    check.require(
        numbers.shape == (n_classes,), "class_weight", f"shape (n_classes,) = ({n_classes},)",
        tuple(numbers.shape), "pass one number for each class",
    )  # fmt: skip
    factor = converted_numbers(numbers, _FLOAT64)
    bounded("class_weight", factor, 0.0, MAX_WEIGHT)
    return factor


def balanced(labels: IntArray, of_samples: FloatArray, n_classes: int) -> FloatArray:
    """Returns (n_classes,) factors with which classes that occur have equal weight, and the same in all; 0
    for others. NumPy arrays only."""
    of_class = np.bincount(labels, of_samples, n_classes)
    share = of_class.sum() / max(1, np.count_nonzero(of_class))
    return np.divide(share, of_class, out=np.zeros(n_classes), where=of_class > 0)


def balanced_in_trees(target: Target, of_samples: FloatArray, counts: IntArray) -> FloatArray:
    """Returns (n_trees, n_samples) float64: weights times in-bag counts, balanced in each tree.

    A tree that drew only samples of weight 0 takes all. Several labels multiply their factors.

    counts: (n_trees, n_samples) in-bag counts.
    """
    labels = [(to_numpy(of_label), n_classes) for of_label, n_classes in several.labels_of(target)]
    xp, weight = array_module(of_samples), to_numpy(of_samples)
    result = weight * to_numpy(counts)
    for row in result:
        if not row.any():
            row[:] = weight
        in_bag = row.copy()
        for of_label, n_classes in labels:
            row *= balanced(of_label, in_bag, n_classes)[of_label]
        similar("class_weight", row)
    return xp.asarray(result)
