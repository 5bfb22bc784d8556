"""Trees that are tuples of arrays, one after another."""

import numpy as np

from ..core.dispatch import Array, array_module


def joined(
    trees: list[tuple[Array, ...]], n_outputs: int, real: np.dtype, projected: bool
) -> tuple[Array, ...]:
    """The arrays of `growth.Trees`, and if trees have projections `start`, `index` and `weight` of a Forest.

    A tree is (feature, threshold, left, gain, value), and (start, index, weight) if it has projections.
    """
    xp = array_module(trees[0][0])
    feature, threshold, left, gain, value = (xp.concatenate([tree[i] for tree in trees]) for i in range(5))
    tree_start = xp.asarray(np.cumsum([0, *(len(tree[0]) for tree in trees)], dtype=np.int64))
    arrays = (
        tree_start,
        feature,
        threshold.astype(real, copy=False),
        left,
        value.reshape(-1, n_outputs),
        gain.astype(real, copy=False),
    )
    if not projected:
        return arrays
    entries = np.cumsum([0, *(len(tree[6]) for tree in trees)], dtype=np.int64)
    starts = [tree[5] + first for tree, first in zip(trees, entries, strict=False)]
    return (
        *arrays,
        xp.concatenate([*starts, xp.asarray(entries[-1:])]),
        xp.concatenate([tree[6] for tree in trees]),
        xp.concatenate([tree[7] for tree in trees]).astype(real, copy=False),
    )
