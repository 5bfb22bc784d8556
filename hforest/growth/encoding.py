"""Encoding of columns as ranks of their values, or as bins, without checks."""

from typing import Protocol

import numpy as np

from ..core import check, dispatch, machine, supervised
from ..core.aliases import Array, FloatArray, IntArray
from .bins import BIN_DTYPES, Bins

PACKAGE = __package__
WIDE = 8  # columns per sample from which a column is encoded when a node first samples it
_ENCODED_VALUES = 1 << 22  # number of values that are encoded at a time, but at least two columns per thread


def _smallest_dtype(n_bins: int) -> np.dtype:
    return next(t for t in BIN_DTYPES if n_bins <= 256**t.itemsize)


class Readable(Protocol):
    """Attributes of `samples.Samples` that the encoding reads."""

    numbers: Array
    shape: tuple[int, int]
    dtype: np.dtype
    max_bins: int | None
    has_missing: bool

    @property
    def categorical(self) -> np.ndarray | None:
        """(n_columns,) bool: whether a column is categories. None: none is."""

    @property
    def is_exact(self) -> bool:
        """Whether each distinct value of any column has a bin of its own."""

    def columns(self, which: slice | Array) -> Array:
        """Returns some columns in the dtype."""


def _encode_columns(x: Readable, which: IntArray, max_bins: int | None, tables: bool = True) -> Bins:
    """Returns bins as `encode`, of the columns with the numbers `which` (n_columns,)."""
    n, n_columns, has_missing = x.shape[0], len(which), x.has_missing
    if has_missing and max_bins is not None:
        max_bins = max(1, max_bins - 1)  # missing values have a bin, too
    n_entries = n if max_bins is None else min(n, max_bins)  # maximum size of a column's table
    xp, backend = dispatch.array_module(x.numbers), dispatch.backend(PACKAGE, x.numbers)
    # Some columns at a time: their numbers of bins are known only after the sort, and tables with n_samples
    # entries for all columns would be many times as large as x.
    block = min(n_columns, max(2 * machine.get_num_threads(), _ENCODED_VALUES // n))
    wide = xp.empty((block, n), np.uint32)
    # In bins of one value least and greatest are equal: one table holds both.
    values = [xp.empty((block, n_entries)) for _ in range(1 if max_bins is None else 2)]
    n_bins = np.empty(n_columns, np.int64)
    some_missing = xp.zeros(n_columns, bool)
    parts: list[tuple[slice, Array, list[Array]]] = []
    for first in range(0, n_columns, block):
        part = slice(first, min(first + block, n_columns))
        count = part.stop - first
        at = which[part]
        in_a_row = at[-1] - at[0] == count - 1
        columns = x.columns(slice(at[0], at[-1] + 1) if in_a_row else xp.asarray(at))
        backend.encode(columns, wide[:count], values[0][:count], values[-1][:count], n_bins[part])
        # The numbers may have changed since their check, and may change now: they are read only once.
        is_missing = wide[:count].max(axis=1) >= xp.asarray(n_bins[part])
        if has_missing:
            some_missing[part] = is_missing
        else:
            check_unchanged(not is_missing.any(), "NaN, where there was none")
        del columns
        widest = int(n_bins[part].max())
        dtype = _smallest_dtype(widest + has_missing)
        # For bins of 32 bits, values take more memory than bins.
        n_values = widest if tables or dtype.itemsize < 4 else 0
        copies = [table[:count, :n_values].copy() for table in values]
        parts.append((part, wide[:count].astype(dtype), copies))
    del wide, values
    if len(parts) == 1 and not has_missing:
        bins, joined = parts[0][1:]
    else:
        widest = int(n_bins.max()) + has_missing
        bins = xp.empty((n_columns, n), _smallest_dtype(widest))
        if not tables and bins.itemsize == 4:
            widest = 0
        joined = [xp.empty((n_columns, widest)) for _ in copies]
        while parts:  # each is freed after its copy
            part, some, copies = parts.pop()
            bins[part] = some
            for table, copy in zip(joined, copies, strict=True):
                table[part, : copy.shape[1]] = copy[:, :widest]
    widest = joined[0].shape[1]
    for f, used in enumerate(n_bins.tolist()):
        for table in joined if used < widest else ():
            table[f, used:] = table[f, used - 1] if used else 0.0
    missing = xp.where(some_missing, xp.asarray(n_bins), -1) if has_missing else None
    return Bins(bins, joined[0], joined[-1], x.dtype, missing=missing)


def check_unchanged(fine: object, got: str) -> None:
    """Checks that numbers are `fine`, as they were when the samples were made."""
    check.require(
        fine, "x", "the numbers of which samples were made", got, "make samples of the changed numbers"
    )


def check_categories(values: Array) -> None:
    """Checks the values of categories that have been encoded."""
    check_unchanged(not supervised.are_no_categories(values).any(), "numbers that are no categories")


def with_tables(bins: Bins) -> Bins:
    """Returns bins with the values of `bins.values` in low and high."""
    assert bins.values is not None
    numbers = bins.bins
    low = np.empty((len(numbers), int(numbers.max()) + 1))
    for f, column in enumerate(numbers):
        low[f, column] = bins.values[:, f] + 0.0
        used = int(column.max()) + 1
        if bins.missing is not None and bins.missing[f] >= 0:
            used = int(bins.missing[f])
        low[f, used:] = low[f, used - 1] if used else 0.0
    return bins._replace(low=low, high=low, values=None)


def encode(x: Readable, tables: bool = True) -> Bins:
    """Returns bins of the columns of checked samples x; categories have exact bins.

    Without `tables`, low and high have no entries for bins of 32 bits.
    """
    n, n_columns = x.shape
    if x.categorical is None:
        return _encode_columns(x, np.arange(n_columns), x.max_bins, tables)
    xp = dispatch.array_module(x.numbers)
    numbers, named = np.flatnonzero(~x.categorical), np.flatnonzero(x.categorical)
    parts = [(named, _encode_columns(x, named, None))]
    check_categories(parts[0][1].low)
    if numbers.size:
        parts.append((numbers, _encode_columns(x, numbers, x.max_bins)))
    widest = max(part.low.shape[1] for _, part in parts)
    bins = xp.empty((n_columns, n), _smallest_dtype(widest))
    low, high = (xp.empty((n_columns, widest)) for _ in range(2))
    missing = xp.full(n_columns, -1, np.int64)
    for columns, part in parts:
        at = xp.asarray(columns)
        bins[at] = part.bins
        for table, of_part in ((low, part.low), (high, part.high)):
            table[at, : of_part.shape[1]] = of_part
            table[at, of_part.shape[1] :] = of_part[:, -1:]
        if part.missing is not None:
            missing[at] = part.missing
    return Bins(bins, low, high, x.dtype, missing=missing, categorical=xp.asarray(x.categorical))


def on_demand(x: Readable) -> Bins:
    """Returns bins of an array without missing values, columns of which are encoded when a node samples them.

    Exact bins have no entries in low and high.
    """
    (n, n_columns), numbers = x.shape, x.columns(slice(None))
    most, n_rows = (n, 0) if x.max_bins is None or x.is_exact else (x.max_bins, n_columns)
    if n > 256 and whole_numbers(numbers[:1], 255)[1] == 2 == whole_numbers(numbers, 255)[1]:
        most = min(most, 256)
    low, high = (np.empty((n_rows, most)) for _ in range(2))
    bins, state = np.empty((n_columns, n), _smallest_dtype(most)), np.zeros(n_columns, np.int32)
    return Bins(bins, low, high, x.dtype, values=numbers, state=state)


def whole_numbers(x: FloatArray, bound: int) -> tuple[IntArray | None, int]:
    """Returns x as uint8, or None, and a code for its numbers.

    0: some number is not whole or is above `bound`; 2: all are bytes; 1: others.
    """
    flat, kind = x.reshape(-1), 2
    for first in range(0, len(flat), _ENCODED_VALUES):
        part = flat[first : first + _ENCODED_VALUES]
        if not bool(((np.abs(part) <= bound) & (part == np.rint(part))).all()):
            return None, 0
        if part.min() < 0 or part.max() > 255:
            kind = 1
    return x.astype(np.uint8) if kind == 2 else None, kind
