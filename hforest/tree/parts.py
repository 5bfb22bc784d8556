"""Several forests as one, and some trees of a forest; on the host."""

from collections.abc import Sequence

import numpy as np

from .forest import Forest


def join(forests: Sequence[Forest]) -> Forest:
    """The trees of several forests as one forest."""
    starts = [np.zeros(1, np.int64)]
    nodes = 0
    for forest in forests:
        starts.append(forest.tree_start[1:] + nodes)
        nodes += forest.feature.size
    arrays = {
        name: np.concatenate([getattr(forest, name) for forest in forests])
        for name in ("feature", "threshold", "left", "value", "gain", "indices", "data", "category_bits")
    }
    if all(forest.default_left.size for forest in forests):
        arrays["default_left"] = np.concatenate([forest.default_left for forest in forests])
    elif any(forest.default_left.size for forest in forests):
        raise ValueError(
            "forests: expected all to know missing values or none, got some of each; grow them on the same "
            "samples"
        )
    return Forest(
        n_features=forests[0].n_features,
        tree_start=np.concatenate(starts),
        indptr=_joined_starts(forests, "indptr", "indices"),
        category_indptr=_joined_starts(forests, "category_indptr", "category_bits"),
        **arrays,
    )


def _joined_starts(forests: Sequence[Forest], name: str, of: str) -> np.ndarray:
    """Where the entries of nodes begin in several forests as one; empty where no forest has any."""
    if not any(getattr(forest, name).size for forest in forests):
        return np.zeros(0, np.int64)
    starts, entries = [np.zeros(1, np.int64)], 0
    for forest in forests:
        given = getattr(forest, name)
        given = given if given.size else np.zeros(forest.feature.size + 1, np.int64)
        starts.append(given[1:] + entries)
        entries += getattr(forest, of).size
    return np.concatenate(starts)


def part(forest: Forest, first: int, last: int) -> Forest:
    """Trees first to last - 1 of a forest."""
    a, b = int(forest.tree_start[first]), int(forest.tree_start[last])
    rows = slice((a + first) // 2, (b + last) // 2)
    indptr, entries = _part_of_starts(forest.indptr, a, b)
    category_indptr, words = _part_of_starts(forest.category_indptr, a, b)
    return Forest(
        n_features=forest.n_features,
        tree_start=forest.tree_start[first : last + 1] - a,
        feature=forest.feature[a:b],
        threshold=forest.threshold[a:b],
        left=forest.left[a:b],
        value=forest.value[rows],
        gain=forest.gain[a:b],
        indptr=indptr,
        indices=forest.indices[entries],
        data=forest.data[entries],
        default_left=forest.default_left[a:b],
        category_indptr=category_indptr,
        category_bits=forest.category_bits[words],
    )


def _part_of_starts(starts: np.ndarray, a: int, b: int) -> tuple[np.ndarray, slice]:
    """Where the entries of nodes a to b - 1 begin, and which they are."""
    if not starts.size:
        return starts, slice(0, 0)
    entries = slice(int(starts[a]), int(starts[b]))
    return starts[a : b + 1] - entries.start, entries
