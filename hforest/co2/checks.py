"""Checks that the functions of this subpackage share: samples, weights of a split, labels or targets."""

from typing import Any, NamedTuple

import numpy as np

from ..core import check, supervised
from ..core.aliases import Array, ArrayLike, Bootstrap, Classes, FloatArray, IntArray, Task
from ..core.in_place import PlacedWindows
from ..growth.settings import most_drawn

MAX_MAGNITUDE = 1e15
"""Bound of x, w, targets and sample weights, so that squares of their products do not overflow."""

LEAST_WEIGHT = 1e-60
"""Bound of the largest sample weight, so that squares of sums do not underflow."""

LOSSES = ("log", "squared")
DEFAULT = "n**0.6"
"""Default number of features sampled at a node."""
WORDS = (DEFAULT, "sqrt", "log2")


class Samples(NamedTuple):
    """Samples of a node, for the backends."""

    x: FloatArray
    """(n_samples, n_features)."""
    labels: IntArray | None
    """(n_samples,) int32."""
    targets: FloatArray | None
    """(n_samples, n_outputs) float64."""
    weight: FloatArray
    """(n_samples,) float64."""


Split = tuple[FloatArray, FloatArray, FloatArray]
"""w, theta0 and theta1 of the backends, or gradients with respect to them; theta is float64."""


def moderate(name: str, a: FloatArray) -> None:
    """Checks that numbers are at most MAX_MAGNITUDE."""
    supervised.bounded(name, a, -MAX_MAGNITUDE, MAX_MAGNITUDE)


def target_and_weight(
    x: Any,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    task: Task,
    n_classes: Classes,
    *,
    some_above_0: bool = True,
) -> tuple[supervised.Target, FloatArray]:
    """Returns the labels or targets of the samples x, and their weights."""
    target = supervised.target(y, x.shape[0], task, n_classes, MAX_MAGNITUDE)
    check.same_device(x=x.x if isinstance(x, PlacedWindows) else x, y=target.y)
    return target, weight_of(target.y, sample_weight, some_above_0=some_above_0)


def weight_of(y: Array, sample_weight: ArrayLike | None, *, some_above_0: bool = True) -> FloatArray:
    """Returns the weights of samples with these labels or targets."""
    weight = supervised.sample_weight(sample_weight, y, MAX_MAGNITUDE, some_above_0=some_above_0)
    moderate_weight("sample_weight", weight)
    return weight


def moderate_weight(name: str, weight: FloatArray) -> None:
    """Checks that weights are all 0, or similar and not all tiny."""
    supervised.similar(name, weight)
    if check.values_checked() and weight.size and 0 < float(weight.max()) < LEAST_WEIGHT:
        raise ValueError(
            f"{name}: expected at least one weight of at least {LEAST_WEIGHT:g}, got a largest weight of "
            f"{float(weight.max()):g}; scale the weights up"
        )


def check_gains(
    weight: FloatArray, targets: FloatArray | None, dtype: np.dtype, bootstrap: Bootstrap
) -> None:
    """Checks that gains of splits are in the range of the dtype of the forest."""
    n_drawn = most_drawn(len(weight), bootstrap)
    if supervised.scaled_weight(weight, targets, dtype, n_drawn)[1] < 0:
        raise ValueError(
            f"sample_weight: expected weights whose sum times squared targets is in the range of {dtype}, "
            f"got weights up to {float(weight.max()):g}; scale the weights or y, or pass x as float64"
        )


def split(x: FloatArray, w: FloatArray) -> None:
    """Checks the samples of a node and an initial w."""
    check.same_device(x=x, w=w)
    dtype = check.floating("x", x)
    sizes: check.Sizes = {}
    check.array("x", x, dtype, ("n_samples", "n_features"), sizes)
    check.array("w", w, dtype, ("n_features",), sizes)
    check.at_least_one(sizes, "n_features")
    if not 1 <= sizes["n_samples"] <= check.MAX_COUNT:
        raise ValueError(
            f"x: expected 1 to 2**31 - 1 samples, got {sizes['n_samples']}; pass samples to learn from"
        )
    moderate("x", x)
    moderate("w", w)


def samples_and_split(
    x: FloatArray,
    y: ArrayLike,
    w: FloatArray,
    sample_weight: ArrayLike | None,
    task: Task,
    n_classes: int | None,
) -> tuple[Samples, int]:
    """Returns the samples of positive weight of a node, and the number of outputs, after a check of w."""
    split(x, w)
    target, weight = target_and_weight(x, y, sample_weight, task, n_classes)
    samples = Samples(x, target.labels, target.targets, weight)
    heavy = weight > 0
    if not bool(heavy.all()):
        samples = Samples._make(None if a is None else a[heavy] for a in samples)
    return samples, target.n_outputs


def candidates(max_features: Any, n_features: int) -> int:
    """Returns the number of features sampled at a node, q in Norouzi et al. 2015."""
    if isinstance(max_features, str) and check.choice("max_features", max_features, WORDS) == DEFAULT:
        return max(1, round(n_features**0.6))
    return supervised.max_features(max_features, n_features)
