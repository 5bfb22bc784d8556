"""The trees of a fitted estimator, one by one."""

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from .. import tree


def parents(forest: tree.Forest) -> np.ndarray:
    """Returns the parent of each node, (n_nodes,) int64, numbered over all trees; of a root -1."""
    start = np.repeat(forest.tree_start[:-1], np.diff(forest.tree_start))
    split = np.flatnonzero(forest.feature != -1)
    left = start[split] + forest.left[split]
    parent = np.full(len(forest.feature), -1, np.int64)
    parent[left], parent[left + 1] = split, split
    return parent


def single(forest: tree.Forest, m: int) -> tree.Forest:
    """Returns the arrays of tree m as a forest of one tree."""
    first, end = map(int, forest.tree_start[m : m + 2])
    nodes = slice(first, end)
    leaves = slice((first + m) // 2, (end + m + 1) // 2)  # a tree of N nodes has (N + 1) / 2 leaves
    arrays: dict[str, Any] = {
        name: getattr(forest, name)[nodes]
        for name in ("feature", "threshold", "left", "gain", "default_left")
    }
    for pointers, names in (("indptr", ("indices", "data")), ("category_indptr", ("category_bits",))):
        start = getattr(forest, pointers)[first : end + 1]
        if start.size:
            arrays |= {name: getattr(forest, name)[start[0] : start[-1]] for name in names}
            arrays[pointers] = start - start[0]
    return forest._replace(tree_start=np.array([0, end - first]), value=forest.value[leaves], **arrays)


class Trees(Sequence[Any]):
    """The trees of a fitted estimator; each is made at access, as a fitted estimator of the same class with
    this tree alone. A slice is a list of them."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __len__(self) -> int:
        return int(self._model.forest_.n_trees)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[m] for m in range(*place.indices(len(self)))]
        n, m = len(self), index(place)
        if not -n <= m < n:
            raise IndexError(f"estimators_: expected a tree below {n}, got {m}; len() is their number")
        return self._model._single(m % n)

    def __repr__(self) -> str:
        return f"<{len(self)} trees of {type(self._model).__name__}>"
