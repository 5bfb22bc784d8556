"""Columns of a sparse matrix as bins, in memory that is linear in its stored numbers."""

from typing import Any, NamedTuple

import numpy as np

from ..core.aliases import FloatArray, IntArray
from ..core.sparse import Columns
from .bins import BIN_DTYPES, Bins, Stored
from .encoding import check_categories, check_unchanged


class _Values(NamedTuple):
    """The distinct values of all columns, column after column, ascending, missing values last."""

    value: FloatArray
    """(n_values,) float64."""
    column: IntArray
    """(n_values,)"""
    count: Any
    """(n_values,): number of samples with it."""
    of_entry: IntArray
    """(n_stored + n_columns,): number of the value of each stored number, then of 0 in each column."""


def _order(column: IntArray, value: FloatArray) -> IntArray:
    """Returns the order by column, then by value, with missing values last; -0 does not occur."""
    if value.itemsize == 8:
        return np.lexsort((value, column))
    # One integer orders a column and a float32: bits of negative numbers, but the sign, are inverted.
    bits = np.where(np.isnan(value), np.float32(np.nan), value).view(np.int32)
    return np.argsort((column << 32) + (bits ^ (bits >> 31 & 0x7FFFFFFF)))


def _distinct_values(x: Columns) -> _Values:
    """Returns stored values, and 0 in each column, with the number of samples that do not store it."""
    n_samples, n_columns = x.shape
    data, _, indptr, _ = x.stored
    counts = np.diff(indptr)
    value = np.concatenate([data, np.zeros(n_columns, data.dtype)]) + data.dtype.type(0)
    column = np.concatenate([np.repeat(np.arange(n_columns), counts), np.arange(n_columns)])
    weight = np.concatenate([np.ones(len(data), np.int64), n_samples - counts])
    order = _order(column, value)
    value, column = value[order], column[order]
    same = (value[1:] == value[:-1]) | np.isnan(value[1:]) & np.isnan(value[:-1])
    begins = np.concatenate([[True], ~same | (column[1:] != column[:-1])])
    first = np.flatnonzero(begins)
    of_entry = np.empty(len(order), np.int64)
    of_entry[order] = np.cumsum(begins) - 1
    return _Values(
        value[first].astype(np.float64), column[first], np.add.reduceat(weight[order], first), of_entry
    )


def _firsts(column: IntArray, n_columns: int) -> IntArray:
    """Returns (n_columns + 1,): the start of each column."""
    return np.searchsorted(column, np.arange(n_columns + 1))


def _bins_of(values: _Values, n_columns: int, limit: IntArray) -> IntArray:
    """Returns the bin of each distinct value in its column, with at most `limit` (n_columns,) bins."""
    first, column = _firsts(values.column, n_columns), values.column
    rank = np.arange(len(column)) - first[column]
    n_distinct = np.diff(first)
    cut = np.flatnonzero(n_distinct > limit)
    for f in cut.tolist():
        part = slice(first[f], first[f + 1])
        stop = np.cumsum(values.count[part])
        # The bin that holds the middle of a value's samples; then bins are numbered without gaps.
        wanted = (2 * stop - values.count[part]) * limit[f] // (2 * stop[-1])
        rank[part] = np.cumsum(np.diff(wanted, prepend=wanted[0]) > 0)
    return rank


def encode(x: Columns, max_bins: int | None, categorical: np.ndarray | None, has_missing: bool) -> Bins:
    """Returns bins of the columns of a sparse matrix, equal to those of its dense form."""
    n_samples, n_columns = x.shape
    n_stored = len(x.stored.data)
    distinct = _distinct_values(x)
    # 0 is not a value of a column that stores all samples.
    occurs = distinct.count > 0
    is_missing = np.isnan(distinct.value)
    number = occurs & ~is_missing
    check_unchanged(has_missing or not is_missing.any(), "NaN, where there was none")
    if categorical is not None:
        check_categories(distinct.value[categorical[distinct.column]])
    if max_bins is not None and has_missing:
        max_bins = max(1, max_bins - 1)  # missing values have a bin, too
    limit = np.full(n_columns, n_samples if max_bins is None else max_bins)
    if categorical is not None:
        limit[categorical] = n_samples
    numbers = _Values(
        distinct.value[number], distinct.column[number], distinct.count[number], distinct.of_entry
    )
    rank = _bins_of(numbers, n_columns, limit)
    # Tables: least and greatest value of each bin. That of missing values repeats the previous one.
    n_bins = np.zeros(n_columns, np.int64)
    np.maximum.at(n_bins, numbers.column, rank + 1)
    missing = np.full(n_columns, -1, np.int64)
    missing[distinct.column[is_missing]] = n_bins[distinct.column[is_missing]]
    table = np.concatenate([[0], np.cumsum(n_bins + (missing >= 0))])
    place = table[numbers.column] + rank
    low, high = np.zeros((1, int(table[-1]))), np.zeros((1, int(table[-1])))
    low[0, place[::-1]] = numbers.value[::-1]
    high[0, place] = numbers.value
    after = table[:-1][(missing >= 0) & (n_bins > 0)] + n_bins[(missing >= 0) & (n_bins > 0)]
    low[0, after], high[0, after] = low[0, after - 1], high[0, after - 1]
    if np.array_equal(low, high):
        high = low  # one table fits a cache better than two
    bin_of = np.zeros(len(distinct.value), np.int64)
    bin_of[number] = rank
    bin_of[is_missing] = missing[distinct.column[is_missing]]
    of_entry = bin_of[distinct.of_entry]
    widest = int(np.diff(table).max())
    dtype = next(t for t in BIN_DTYPES if widest <= 256**t.itemsize)
    stored = Stored(x.stored.indptr, x.stored.indices, of_entry[n_stored:].astype(np.int32), table, n_samples)
    kinds = has_missing or categorical is not None
    return Bins(
        of_entry[:n_stored].astype(dtype)[None], low, high, x.dtype, missing=missing if kinds else None,
        categorical=categorical, stored=stored,
    )  # fmt: skip


def all_bins(bins: Bins) -> Bins:
    """Returns the same bins in dense form."""
    stored = bins.stored
    assert stored is not None
    n_columns = len(stored.indptr) - 1
    full = np.repeat(stored.default[:, None], stored.n_samples, axis=1).astype(bins.bins.dtype)
    full[np.repeat(np.arange(n_columns), np.diff(stored.indptr)), stored.indices] = bins.bins[0]
    n_bins = int(np.diff(stored.table).max())
    low, high = np.zeros((n_columns, n_bins)), np.zeros((n_columns, n_bins))
    for f in range(n_columns):
        part = slice(stored.table[f], stored.table[f + 1])
        count = part.stop - part.start
        for full_table, one in ((low, bins.low), (high, bins.high)):
            full_table[f, :count] = one[0, part]
            full_table[f, count:] = one[0, part.stop - 1]
    return bins._replace(bins=full, low=low, high=high, stored=None)


def all_numbers(x: Columns) -> FloatArray:
    """Returns the samples as a dense array."""
    dense = np.zeros(x.shape, x.dtype)
    dense[x.stored.indices, np.repeat(np.arange(x.shape[1]), np.diff(x.stored.indptr))] = x.stored.data
    return dense
