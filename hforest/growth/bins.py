"""What trees grow on: columns of numbers as bins."""

from typing import NamedTuple

import numpy as np

from ..core.aliases import FloatArray, IntArray


class Stored(NamedTuple):
    """Where the numbers of a sparse matrix stand, column by column (CSC).

    Column f has the bins ``bins[0, indptr[f] : indptr[f + 1]]`` at the samples ``indices`` of the same range
    and the bin ``default[f]`` at all others. Bin b of it holds the values from ``low[0, table[f] + b]`` to
    ``high[0, table[f] + b]``.
    """

    indptr: IntArray
    """(n_columns + 1,) int64."""
    indices: IntArray
    """(n_stored,) int32: samples, ascending in each column."""
    default: IntArray
    """(n_columns,) int32: the bin of 0."""
    table: IntArray
    """(n_columns + 1,) int64: where the bins of a column begin in low and high."""
    n_samples: int
    """Samples."""


class Bins(NamedTuple):
    """Columns as numbers of bins, which are in the order of the values that they hold."""

    bins: IntArray
    """(n_columns, n_samples) of uint8, uint16 or uint32; of windows (1, size of x); of a sparse matrix
    (1, n_stored)."""
    low: FloatArray
    """(n_columns, n_bins) float64: least value in each bin; what follows a column's last bin repeats it. Of
    windows (1, n_bins); of a sparse matrix one row, see `Stored`."""
    high: FloatArray
    """As low: the greatest. Of exact bins the same array."""
    dtype: np.dtype
    """float32 or float64: of the values, and of thresholds between them."""
    base: IntArray | None = None
    """Of windows, as in `Windows`."""
    offset: IntArray | None = None
    """Likewise."""
    missing: IntArray | None = None
    """(n_columns,) int64: the bin of a column's missing values, which is its last one and which low and high
    do not describe; -1 where it has none. None: no column has any, nor categories."""
    categorical: IntArray | None = None
    """(n_columns,) bool: whether bins are categories, which low and high name. None: none are."""
    stored: Stored | None = None
    """Of a sparse matrix. None: every bin is stored."""
    values: FloatArray | None = None
    """(n_samples, n_columns): what exact bins of 32 bits stand for, where low and high have no entry. Inside
    of `Samples` alone."""

    @property
    def shape(self) -> tuple[int, int]:
        """Samples and columns."""
        if self.stored is not None:
            return self.stored.n_samples, len(self.stored.indptr) - 1
        if self.base is None or self.offset is None:
            return self.bins.shape[1], self.bins.shape[0]
        return len(self.base), len(self.offset)


class Prepared(NamedTuple):
    """What the CPU reads in place of x, made once for all trees on projections of it."""

    whole: bool
    """Whether x is whole numbers whose sums float32 holds exactly."""
    numbers: IntArray | None
    """x as uint8 (n, n_features), of windows their array, where that holds it."""
    columns: FloatArray | IntArray | None
    """x, or `numbers`, once more, features first: (n_features, n). None of windows."""
    corners: IntArray | None
    """(n, size) of uint16 or uint32: sums over the corners of each sample's planes, for patches."""
    has_missing: bool
    """Whether x has missing values."""
    groups: IntArray
    """int32: the groups of columns (`core.projections.group_table`)."""
