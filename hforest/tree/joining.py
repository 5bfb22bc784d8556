"""Trees of several forests as one forest."""

import re
from collections.abc import Sequence
from itertools import accumulate
from types import ModuleType

import numpy as np

from ..core import check as checks
from ..core import dispatch
from ..core.aliases import Array, IntArray
from .forest import LEAF_FIELDS, NO_DEFAULTS, Forest, arrays_of, check, has_sets, is_marked, marked

_CONCATENATED = ("feature", "threshold", "left", "gain", *LEAF_FIELDS, "indices", "data", "category_bits")


def join(forests: Sequence[Forest]) -> Forest:
    """Returns the trees of several forests as one forest, in the order of the forests.

    Parameters
    ----------
    forests : sequence of Forest
        At least one; all with the same dtype, device, number of features and number of outputs. Either all
        have routes for missing values (`default_left`), or none. Splits by features, projections and sets of
        categories may be mixed.

    Returns
    -------
    Forest
        New arrays, read-only. Tree m of forest k is tree ``n_trees[0] + ... + n_trees[k - 1] + m``.

    Notes
    -----
    Forests that were grown in ranges of trees (argument first_tree), with the same arguments and the same int
    as rng, join to a forest that is bit-identical to that of one call. To add trees to a forest, grow with
    ``first_tree = n_trees``, and join.

    All trees have equal weight: up to rounding, a prediction of the joined forest is the mean of the forests'
    predictions, weighted by their numbers of trees.

    Grown forests have routes for missing values. Forests made by hand or read from older files may refuse
    NaN, and joining both would need an arbitrary rule. To send missing values left in such a forest, replace
    its array: ``forest._replace(default_left=(forest.feature != -1).astype(numpy.uint8))``. Cost: a copy of
    the arrays.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(200, 4))
    >>> y = x[:, 0] > x[:, 1]
    >>> parts = [hforest.grow(x, y, 5, first_tree=first, rng=3) for first in (0, 5)]
    >>> whole = hforest.grow(x, y, 10, rng=3)
    >>> all((a == b).all() for a, b in zip(hforest.tree.join(parts), whole))
    True
    """
    _check(forests)
    return joined(forests)


def joined(forests: Sequence[Forest]) -> Forest:
    """Returns the same as `join`, for checked forests."""
    valid = all(map(is_marked, forests))
    forests = [arrays_of(forest) for forest in forests]
    xp = dispatch.array_module(forests[0].feature)
    n_nodes = [forest.feature.size for forest in forests]
    arrays = {
        name: xp.concatenate([xp.asarray(getattr(forest, name)) for forest in forests])
        for name in _CONCATENATED
    }
    tree_start = _starts(xp, [forest.tree_start for forest in forests], n_nodes)
    indptr, category_indptr = xp.zeros(0, np.int64), xp.zeros(0, np.int64)
    if any(forest.indptr.size for forest in forests):
        indptr = _pointers(xp, [f.indptr for f in forests], n_nodes, [f.indices.size for f in forests])
    if any(has_sets(forest) for forest in forests):
        n_words = [forest.category_bits.size for forest in forests]
        category_indptr = _pointers(xp, [f.category_indptr for f in forests], n_nodes, n_words)
    default_left = xp.asarray(NO_DEFAULTS[0])
    if forests[0].default_left.size:
        default_left = xp.concatenate([forest.default_left for forest in forests])
    whole = Forest(
        n_features=forests[0].n_features.copy(), tree_start=tree_start, indptr=indptr,
        default_left=default_left, category_indptr=category_indptr,
        class_start=forests[0].class_start.copy(), **arrays,
    )  # fmt: skip
    # Another thread may have changed forests without a mark since they were checked.
    return marked(whole, valid)


def _check(forests: Sequence[Forest]) -> None:
    remedy = "pass a list such as [forest, other]"
    if isinstance(forests, Forest) or not isinstance(forests, Sequence) or isinstance(forests, str | bytes):
        raise TypeError(f"forests: expected a sequence of forests, got {type(forests).__name__}; {remedy}")
    if not forests:
        raise ValueError(f"forests: expected at least one forest, got none; {remedy}")
    for i, forest in enumerate(forests):
        check_forest(f"forests[{i}]", forest)
    arrays = [arrays_of(forest) for forest in forests]
    first, n_features = arrays[0], int(arrays[0].n_features)
    for i, forest in enumerate(arrays[1:], 1):
        checks.same_device(**{"forests[0].feature": first.feature, f"forests[{i}].feature": forest.feature})
        for what, expected, got, kind in (
            ("dtype", first.threshold.dtype, forest.threshold.dtype, TypeError),
            ("n_features", n_features, int(forest.n_features), ValueError),
            ("n_outputs", first.value.shape[1], forest.value.shape[1], ValueError),
            ("class_start", *(f.class_start.tolist() for f in (first, forest)), ValueError),
        ):
            if got != expected:
                raise kind(
                    f"forests[{i}]: expected {what} = {expected} as in forests[0], got {got}; join forests "
                    "that were grown on samples of the same features, classes or targets, and dtype"
                )
        if bool(forest.default_left.size) != bool(first.default_left.size):
            wanted, got = (
                ("n_nodes numbers", "none") if first.default_left.size else ("none", "n_nodes numbers")
            )
            raise ValueError(
                f"forests[{i}].default_left: expected {wanted} as in forests[0], got {got}; grow them anew, "
                "or replace the empty array as the notes of join describe"
            )


def check_forest(name: str, forest: Forest) -> None:
    """Checks a forest, inside `unchecked()` of its kinds and shapes alone."""
    try:
        if checks.values_checked():
            check(forest)
        else:
            arrays_of(forest)
    except (TypeError, ValueError, IndexError) as error:
        raise type(error)(re.sub(r"^forest\b|\bforest(?=\.)", name, str(error))) from None


def _starts(xp: ModuleType, starts: list[IntArray], sizes: list[int]) -> Array:
    """Returns starts within each part as starts within all parts; arrays end with the number of members."""
    before = [0, *accumulate(sizes)]
    shifted = [start[1:] + n for start, n in zip(starts, before, strict=False)]
    return xp.concatenate([xp.zeros(1, np.int64), *shifted])


def _pointers(xp: ModuleType, indptrs: list[IntArray], n_nodes: list[int], n_entries: list[int]) -> Array:
    """Returns the same for entries of nodes; a forest without such entries has an empty array."""
    full = [p if p.size else xp.zeros(n + 1, np.int64) for p, n in zip(indptrs, n_nodes, strict=True)]
    return _starts(xp, full, n_entries)
