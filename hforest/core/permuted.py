"""Decreases of a score when rows of columns are permuted (Breiman 2001, section 10)."""

from collections.abc import Callable, Sequence

import numpy as np

from . import dispatch
from .aliases import FloatArray, IntArray
from .progress import Report


def losses(
    score: Callable[[FloatArray], float],
    x: FloatArray,
    sets: Sequence[IntArray],
    n_repeats: int,
    rng: np.random.Generator,
    report: Report,
) -> np.ndarray:
    """Returns (n_sets, n_repeats): the decrease of the score after a permutation of the rows of columns.

    Sets that come after an end by `report` are missing.
    """
    xp = dispatch.array_module(x)
    whole = score(x)
    lost = np.zeros((len(sets), n_repeats))
    permuted = x.copy()
    for at, columns in enumerate(sets):
        some = x[:, columns]
        for repeat in range(n_repeats if len(columns) else 0):
            permuted[:, columns] = some[xp.asarray(rng.permutation(len(x)))]
            lost[at, repeat] = whole - score(permuted)
        permuted[:, columns] = some
        if not report(at + 1):
            return lost[: at + 1]
    return lost
