"""Forests that are checked and packed once, and applied many times."""

from .forest import Forest
from .prepared import Prepared


def prepare(forest: Forest | Prepared) -> Prepared:
    """Check and pack a forest once, to be applied to few rows at a time.

    Parameters
    ----------
    forest : Forest or Prepared
        Any forest of NumPy arrays. One that is prepared is returned as it is.

    Returns
    -------
    Prepared
        `apply`, `predict`, `vote_shares` and `path` take it in place of the forest, and return the same bits
        without checking it again. Its attribute `forest` is a copy whose arrays cannot be written to.

    Raises
    ------
    TypeError, ValueError, IndexError
        A forest that `check` refuses, or of CuPy arrays.
    MemoryError
        No memory for it.

    Notes
    -----
    It cannot be changed, and several threads may use one at the same time. Its pickle is that of its forest,
    which is checked and packed again when it is read. Nodes of splits by features are packed in 8 to 16
    bytes, a few levels of a tree next to each other; several trees are walked at once. Forests with
    projections or categories are walked as before, without their checks. Memory: that of the forest and 16
    to 24 bytes for each node. Cost: a check, a copy of the arrays and some tens of nanoseconds a node.

    Calls on few rows, of about 10,000 steps from node to node, keep the GIL, since waiting for it may take
    longer than they do. All others give it back.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.classic.grow(x, np.array([0, 1, 1], np.int32), 10, bootstrap=False, rng=0)
    >>> prepared = hforest.tree.prepare(forest)
    >>> hforest.tree.predict(prepared, x[:1])
    array([[1., 0.]])
    """
    return forest if isinstance(forest, Prepared) else Prepared(forest)
