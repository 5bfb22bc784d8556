"""Columns of numbers as bins, the input of tree growth."""

from typing import NamedTuple

import numpy as np

from ..core.aliases import FloatArray, IntArray

BIN_DTYPES = tuple(np.dtype(t) for t in (np.uint8, np.uint16, np.uint32))


class Stored(NamedTuple):
    """Places of the stored numbers of a sparse matrix, column by column (CSC).

    Column f has the bins ``bins[0, indptr[f] : indptr[f + 1]]`` at the samples ``indices`` of the same range,
    and the bin ``default[f]`` at all others. Its bin b holds the values from ``low[0, table[f] + b]`` to
    ``high[0, table[f] + b]``.
    """

    indptr: IntArray
    """(n_columns + 1,) int64."""
    indices: IntArray
    """(n_stored,) int32: samples, ascending in each column."""
    default: IntArray
    """(n_columns,) int32: bin of 0."""
    table: IntArray
    """(n_columns + 1,) int64: start of the bins of a column in low and high."""
    n_samples: int
    """Number of samples."""


class Bins(NamedTuple):
    """Columns as numbers of bins, which are in the order of their values."""

    bins: IntArray
    """(n_columns, n_samples) of uint8, uint16 or uint32; (1, size of x) for windows; (1, n_stored) for a
    sparse matrix."""
    low: FloatArray
    """(n_columns, n_bins) float64: least value of each bin; later entries repeat that of the last bin.
    (1, n_bins) for windows; one row for a sparse matrix, see `Stored`. Without entries: no tables."""
    high: FloatArray
    """Greatest value of each bin, in the shape of low; for exact bins the array low itself."""
    dtype: np.dtype
    """Dtype of the values and of thresholds, float32 or float64."""
    base: IntArray | None = None
    """(n_samples,) int64: start of each window in the row of bins; None for other samples than windows."""
    offset: IntArray | None = None
    """(n_columns,) int64: distance of a window's columns from its start; None for other samples."""
    missing: IntArray | None = None
    """(n_columns,) int64: bin of a column's missing values, its last one, which is not in low and high;
    -1 for a column without. None: no column has missing values or categories."""
    categorical: IntArray | None = None
    """(n_columns,) bool: whether bins are categories, with their numbers in low and high. None: none are."""
    stored: Stored | None = None
    """Places of the stored numbers of a sparse matrix. None: every bin is stored."""
    values: FloatArray | None = None
    """(n_samples, n_columns): x, if it is an array and low and high have no entries, or `state` is not None.
    Only inside of `Samples`."""
    state: IntArray | None = None
    """(n_columns,) int32, 0 at first: a column is encoded when a node first samples it (on_demand.pyx).
    None: all are encoded. Only inside of `Samples`."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n_samples, n_columns)."""
        if self.stored is not None:
            return self.stored.n_samples, len(self.stored.indptr) - 1
        if self.base is None or self.offset is None:
            return self.bins.shape[1], self.bins.shape[0]
        return len(self.base), len(self.offset)


class Prepared(NamedTuple):
    """Representation of x on the CPU for trees on projections, made once for all trees."""

    whole: bool
    """Whether x has whole numbers whose sums float32 holds exactly."""
    numbers: IntArray | None
    """x as uint8 (n, n_features), for windows their array, if uint8 holds it."""
    columns: FloatArray | IntArray | None
    """A copy of x, or of `numbers`, features first: (n_features, n). None for windows."""
    corners: IntArray | None
    """(n, size) of uint16 or uint32: sums over the corners of each sample's planes, for patches."""
    has_missing: bool
    """Whether x has missing values."""
    table: IntArray
    """int32: groups of columns, or kernels (`core.projections.draw_table`)."""
