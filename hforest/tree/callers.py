"""Forests of a caller: results of its functions, forests made by hand, and several forests as one."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .forest import Forest
from .forest import trusted as trusted
from .joining import check_forest as check_forest
from .joining import joined


def join_any(forests: Sequence[Forest]) -> Forest:
    """Returns the trees of checked forests as one forest.

    If only some forests were grown on missing values, trees of the others send them left.
    """
    if any(forest.default_left.size for forest in forests):
        forests = [
            f if f.default_left.size else f._replace(default_left=(f.feature != -1).astype(np.uint8))
            for f in forests
        ]
    return joined(forests)


def grown(
    name: str,
    grower: Callable[..., Forest],
    x: Any,
    y: np.ndarray,
    n_classes: int,
    **more: Any,
) -> Forest:
    """Returns the forest that a caller's function returns, after a check; a copy if it is not read-only."""
    forest = grower(x, y, n_classes=n_classes, **more)
    if not isinstance(forest, Forest):
        raise TypeError(
            f"{name}: expected a function that returns a hforest.tree.Forest, got a {type(forest).__name__}; "
            "pass a subpackage's grow, its settings bound by functools.partial"
        )
    forest = trusted(forest)
    if forest.value.shape[1] != n_classes or int(forest.n_features) != x.shape[1]:
        raise ValueError(
            f"{name}: expected a forest of n_features = {x.shape[1]} and n_classes = {n_classes}, got "
            f"{int(forest.n_features)} and {forest.value.shape[1]}; grow on the arrays that grow receives"
        )
    if forest.threshold.dtype != x.dtype:
        raise TypeError(
            f"{name}: expected a forest of dtype {x.dtype} like the samples, got {forest.threshold.dtype}; "
            "grow on the arrays that grow receives"
        )
    return forest
