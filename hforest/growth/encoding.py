"""Encoding without checks: columns of numbers as ranks of their values, or as bins."""

import numpy as np

from ..core import dispatch, machine
from ..core.aliases import Array, FloatArray, IntArray
from ..core.blocks import Unconverted
from ..core.sparse import Columns
from . import sparse
from .bins import Bins, Windows
from .checks import BIN_DTYPES

PACKAGE = __package__
_ENCODED_VALUES = 1 << 22  # values that are encoded at a time, but at least two columns a thread
_WINDOW_COLUMNS = 8  # columns of windows that get bins of their own at a time


def _smallest_dtype(n_bins: int) -> np.dtype:
    return next(t for t in BIN_DTYPES if n_bins <= 256**t.itemsize)


def _encode_copies(windows: Windows, max_bins: int) -> Bins:
    """As of a copy, but of a few columns at a time."""
    xp, flat = dispatch.array_module(windows.x), windows.x.reshape(-1)
    parts = [
        _encode_columns(flat[windows.base[:, None] + windows.offset[f : f + _WINDOW_COLUMNS]], max_bins)
        for f in range(0, len(windows.offset), _WINDOW_COLUMNS)
    ]
    n_bins = max(part.low.shape[1] for part in parts)
    low, high = (
        xp.concatenate([xp.pad(table, ((0, 0), (0, n_bins - table.shape[1])), "edge") for table in tables])
        for tables in ([part.low for part in parts], [part.high for part in parts])
    )
    return Bins(xp.concatenate([part.bins for part in parts]), low, high, parts[0].dtype)


def _encode_windows(windows: Windows, max_bins: int | None) -> Bins:
    exact = _encode_columns(windows.x.reshape(-1, 1), None)
    if max_bins is not None and exact.low.shape[1] > max_bins:
        return _encode_copies(windows, max_bins)
    return exact._replace(base=windows.base, offset=windows.offset)


def _encode_columns(
    x: FloatArray | Unconverted,
    max_bins: int | None,
    has_missing: bool = False,
    which: IntArray | None = None,
) -> Bins:
    """Bins of all columns of x, or of those that `which` (n_columns,) numbers."""
    n, n_columns = x.shape[0], x.shape[1] if which is None else len(which)
    if has_missing and max_bins is not None:
        max_bins = max(1, max_bins - 1)  # missing values have a bin too
    n_entries = n if max_bins is None else min(n, max_bins)  # of a column's table, at most
    given = x.given if isinstance(x, Unconverted) else x
    xp, backend = dispatch.array_module(given), dispatch.backend(PACKAGE, given)
    # Some columns at a time on a CPU: how many bins they have is known when they are sorted, and tables with
    # as many entries as samples, for all columns, would be many times x.
    block = n_columns
    if xp is np:
        block = min(n_columns, max(2 * machine.get_num_threads(), _ENCODED_VALUES // n))
    wide = xp.empty((block, n), np.uint32)
    # A bin of one value has it as its least and its greatest: one table holds both.
    tables = [xp.empty((block, n_entries)) for _ in range(1 if max_bins is None else 2)]
    n_bins = np.empty(n_columns, np.int64)
    some_missing = xp.zeros(n_columns, bool)
    parts: list[tuple[slice, Array, list[Array]]] = []
    for first in range(0, n_columns, block):
        part = slice(first, min(first + block, n_columns))
        count = part.stop - first
        at = part if which is None else xp.asarray(which[part])
        columns = x.columns(at) if isinstance(x, Unconverted) else x[:, at]
        backend.encode(columns, wide[:count], tables[0][:count], tables[-1][:count], n_bins[part])
        if has_missing:
            some_missing[part] = xp.isnan(columns).any(axis=0)
        del columns
        widest = int(n_bins[part].max())
        copies = [table[:count, :widest].copy() for table in tables]
        parts.append((part, wide[:count].astype(_smallest_dtype(widest + has_missing)), copies))
    del wide, tables
    widest = int(n_bins.max()) + has_missing
    bins = xp.empty((n_columns, n), _smallest_dtype(widest))
    joined = [xp.empty((n_columns, widest)) for _ in copies]
    while parts:  # each is freed when it is copied
        part, some, copies = parts.pop()
        bins[part] = some
        for table, copy in zip(joined, copies, strict=True):
            table[part, : copy.shape[1]] = copy
    for f, used in enumerate(n_bins.tolist()):
        for table in joined:
            table[f, used:] = table[f, used - 1] if used else 0.0
    found = Bins(bins, joined[0], joined[-1], x.dtype)
    if not has_missing:
        return found
    return found._replace(missing=xp.where(some_missing, xp.asarray(n_bins), -1))


def _encode_kinds(
    x: FloatArray | Unconverted, max_bins: int | None, categorical: np.ndarray, has_missing: bool
) -> Bins:
    """As of columns of numbers, and of columns of categories, whose bins are exact."""
    xp = dispatch.array_module(x.given if isinstance(x, Unconverted) else x)
    numbers, named = np.flatnonzero(~categorical), np.flatnonzero(categorical)
    parts = [(named, _encode_columns(x, None, has_missing, named))]
    if numbers.size:
        parts.append((numbers, _encode_columns(x, max_bins, has_missing, numbers)))
    widest = max(part.low.shape[1] for _, part in parts)
    bins = xp.empty((x.shape[1], x.shape[0]), _smallest_dtype(widest))
    low, high = (xp.empty((x.shape[1], widest)) for _ in range(2))
    missing = xp.full(x.shape[1], -1, np.int64)
    for columns, part in parts:
        at = xp.asarray(columns)
        bins[at] = part.bins
        for table, of_part in ((low, part.low), (high, part.high)):
            table[at, : of_part.shape[1]] = of_part
            table[at, of_part.shape[1] :] = of_part[:, -1:]
        if part.missing is not None:
            missing[at] = part.missing
    return Bins(bins, low, high, x.dtype, missing=missing, categorical=xp.asarray(categorical))


def encode(
    x: FloatArray | Unconverted | Columns | Windows,
    max_bins: int | None,
    categorical: np.ndarray | None = None,
    has_missing: bool = False,
) -> Bins:
    """Bins of the columns of x (no infinity, not empty) or of fitting windows."""
    if isinstance(x, Columns):
        return sparse.encode(x, max_bins, categorical, has_missing)
    if isinstance(x, Windows):
        return _encode_windows(x, max_bins)
    if categorical is None:
        return _encode_columns(x, max_bins, has_missing)
    return _encode_kinds(x, max_bins, categorical, has_missing)
