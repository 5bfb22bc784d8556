"""Sparse projections of samples: distributions, random draws and values (Perry et al. 2019,
sections 2.3, 3 and 6).

Projections are the rows of a sparse matrix in CSR form: projection p has the entries indptr[p] to
``indptr[p + 1] - 1`` of `indices` (features) and `data` (weights).
`scipy.sparse.csr_matrix((data, indices, indptr))` is the same matrix.
"""

from ..core.projections import (
    Distribution,
    axis_distribution,
    grouped_distribution,
    kernel_distribution,
    patch_distribution,
    probe_distribution,
    sparse_distribution,
)
from .sampling import Projections, sample
from .values import project

__all__ = [
    "Distribution",
    "Projections",
    "axis_distribution",
    "grouped_distribution",
    "kernel_distribution",
    "patch_distribution",
    "probe_distribution",
    "project",
    "sample",
    "sparse_distribution",
]
