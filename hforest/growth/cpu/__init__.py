"""The CPU backend of growth: Cython modules with OpenMP.

cpu.pyx        the functions that `hforest.growth` calls
builder.pyx    grows one tree from a candidate source
sources        candidates of a node: columns of bins or numbers, stored values, projections
scorers        the best split of a candidate
"""

from .cpu import (
    bootstrap_counts,
    columns_read,
    encode,
    grow,
    grow_projected,
    joined,
    poisson_counts,
    prepare_columns,
    prepare_projections,
)

__all__ = [
    "bootstrap_counts",
    "columns_read",
    "encode",
    "grow",
    "grow_projected",
    "joined",
    "poisson_counts",
    "prepare_columns",
    "prepare_projections",
]
