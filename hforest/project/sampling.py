"""Random projections from a distribution and a seed."""

from typing import NamedTuple

import numpy as np

from ..core import check
from ..core.aliases import Array, DType, Rng
from ..core.projections import (
    MAX_PROJECTIONS,
    Distribution,
    check_distribution,
    draw_projection,
)


class Projections(NamedTuple):
    """Rows of a sparse matrix in CSR form."""

    indptr: Array
    """(n_projections + 1,) int64."""
    indices: Array
    """(n_entries,) int32: features."""
    data: Array
    """(n_entries,) float32 or float64: weights."""


def sample(
    distribution: Distribution, n_projections: int, *, dtype: DType = np.float32, rng: Rng = None
) -> Projections:
    """Returns independent random projections.

    Parameters
    ----------
    distribution : Distribution
        Result of `axis_distribution`, `sparse_distribution`, `patch_distribution`, `kernel_distribution`,
        `probe_distribution` or `grouped_distribution`.
    n_projections : int
        Number of projections, 0 to 2**20.

    Returns
    -------
    Projections
        NumPy arrays.

    Notes
    -----
    The seed and i determine projection i, as `hforest.grow` draws candidate i of a node.
    With groups of columns i is taken modulo the number of candidates of a node. Cost: about ten microseconds
    per projection, in Python. A sparse one takes time proportional to its non-zeros (Floyd's sampling),
    whatever the number of features.

    Examples
    --------
    >>> import hforest
    >>> from hforest import project
    >>> indptr, indices, data = project.sample(project.sparse_distribution(50), 1000, rng=0)
    >>> bool(1.5 < indptr[-1] / 1000 < 1.9), sorted(set(data.tolist()))
    (True, [-1.0, 1.0])
    >>> squares = project.patch_distribution((28, 28), patch_min=2, patch_max=2)
    >>> indices = project.sample(squares, 1, rng=0).indices
    >>> (indices - indices[0]).tolist()
    [0, 1, 28, 29]
    """
    distribution = check_distribution(distribution)
    n_projections = check.integer("n_projections", n_projections, 0, MAX_PROJECTIONS)
    dtype = check.float_dtype(dtype)
    seed = check.seed(rng)
    indptr: list[int] = [0]
    indices: list[int] = []
    data: list[float] = []
    for number in range(n_projections):
        features, weights = draw_projection(distribution, seed, number)
        indices += features
        data += weights
        indptr.append(len(indices))
    return Projections(np.array(indptr, np.int64), np.array(indices, np.int32), np.array(data, dtype))
