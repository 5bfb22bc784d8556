"""Proximities: shares of the trees in which two samples are in the same leaf."""

import math

import numpy as np

from ..core import check as checks
from ..core import dispatch
from ..core.aliases import ArrayLike, SparseArray
from .covers import matrix
from .forest import PACKAGE, Forest, trusted
from .leaves import grouped
from .walks import apply


def proximity(
    forest: Forest,
    x: ArrayLike,
    other: ArrayLike | None = None,
    *,
    min_share: float = 0.0,
    max_neighbors: int | None = None,
) -> SparseArray:
    """Returns the share of the trees in which two samples reach the same leaf, as a sparse matrix.

    Other parameters: see `apply`.

    Parameters
    ----------
    forest : Forest
        Any forest.
    other : (n_others, n_features) array_like, optional
        Samples of the columns, such as the training samples; by default x.
    min_share : float
        Least share that is stored, 0 to 1; smaller ones are 0 in the matrix. By default every pair of samples
        that shares a leaf is stored.
    max_neighbors : int, optional
        Maximum number of entries of a row, at least 1: the largest shares, of equal ones the first columns.
        In a matrix of x with itself a sample is its own neighbor. By default all.

    Returns
    -------
    (n_samples, n_others) scipy.sparse.csr_array, dtype of the forest
        Shares above 0 to 1, columns in ascending order. Without `max_neighbors` the matrix of x with itself
        is symmetric, with a diagonal of 1.

    Notes
    -----
    Breiman 2001: the proximity of two samples is ``1 / n_trees sum_t [leaf_t(x_i) = leaf_t(x_j)]``. All
    samples go down all trees, whether a tree drew them or not. ``1 - p`` is a dissimilarity for scaling,
    clusters and neighbors. Cost: that of `apply`, and two steps of a few nanoseconds for each row, tree and
    sample in its leaf. Memory: 8 bytes (16 in float64) per stored number, 4 per sample and tree. Forests with
    few leaves give dense matrices: pass min_share or max_neighbors then.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.grow(x, np.array([0, 1, 1], np.int32), 1, bootstrap=False, rng=0)
    >>> hforest.tree.proximity(forest, x).toarray()
    array([[1., 0., 0.],
           [0., 1., 1.],
           [0., 1., 1.]])
    """
    from scipy import sparse

    share = checks.number("min_share", min_share, 0.0, 1.0)
    most = None if max_neighbors is None else checks.integer("max_neighbors", max_neighbors, 1)
    checks.on_cpu(x=x, other=other)
    forest = trusted(forest, x)
    leaf = apply(forest, x)
    of_others = leaf if other is None else apply(forest, matrix("other", "n_others", forest, other))
    n, n_trees = leaf.shape
    n_others = len(of_others)
    indptr, member = grouped(forest, of_others)
    # A share is a number of trees: 0.3 of ten trees are three, however their product is rounded.
    least = max(1, math.ceil(share * n_trees * (1 - 1e-12)))
    most = n_others if most is None else min(most, n_others)
    row_start, dtype = np.zeros(n + 1, np.int64), forest.threshold.dtype
    groups = (leaf, forest.tree_start, indptr, member, n_others, least, most)
    backend = dispatch.backend(PACKAGE, leaf)
    if n and n_others:
        backend.count_neighbors(*groups, row_start[1:])
    np.cumsum(row_start, out=row_start)
    n_stored = int(row_start[-1])
    with checks.memory("x", "shares of pairs of samples", n_stored * (4 + dtype.itemsize)):
        indices, data = np.empty(n_stored, np.int32), np.empty(n_stored, dtype)
    if n_stored:
        backend.neighbors(*groups, row_start, indices, data)
    return sparse.csr_array((data, indices, row_start), shape=(n, n_others))
