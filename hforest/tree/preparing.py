"""Forests that are checked and packed once and applied many times."""

from .cpu.prepared import Prepared
from .forest import Forest


def prepare(forest: Forest | Prepared) -> Prepared:
    """Returns a checked and packed forest, for many calls on few rows.

    Parameters
    ----------
    forest : Forest or Prepared
        Any forest of NumPy arrays. A Prepared is returned itself.

    Returns
    -------
    Prepared
        `apply`, `predict`, `vote_shares` and `path` take it in place of the forest, and return bit-identical
        results. Its attribute `forest` is the forest if its arrays are read-only, else a read-only copy.

    Notes
    -----
    A Prepared cannot be changed, and several threads may use it at the same time. Its pickle is that of its
    forest, which is checked and packed again when it is read. Splits by features are packed in 8 to 16 bytes,
    with a few levels of a tree next to each other; several trees are walked at once. Forests with projections
    or categories are not packed, but skip their checks. Memory: 16 to 24 bytes per node, and a copy of a
    forest that was neither grown nor loaded. Cost: some tens of nanoseconds per node, and a check of a copy.

    Calls on few rows, of up to about 16,000 steps from node to node, keep the GIL, for waiting for it may
    take longer than the call. All others release it.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.grow(x, np.array([0, 1, 1], np.int32), 10, bootstrap=False, rng=0)
    >>> prepared = hforest.tree.prepare(forest)
    >>> hforest.tree.predict(prepared, x[:1])
    array([[1., 0.]])
    """
    return forest if isinstance(forest, Prepared) else Prepared(forest)
