"""Large matrices that need a conversion, which runs block by block.

A copy of a matrix that is mapped into memory (numpy.memmap), or that has another dtype or layout, can be
larger than the free memory.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from . import check, supervised

CONVERTED = 1 << 22
"""Maximum number of entries that are converted at a time, but at least a row: 32 MB in float64."""


class Unconverted(NamedTuple):
    """A matrix of real numbers, and the dtype of computations."""

    source: np.ndarray
    """(n, n_columns) of any real dtype, order and strides."""
    dtype: np.dtype
    """float32 or float64."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n_rows, n_columns)."""
        return self.source.shape[0], self.source.shape[1]

    def rows(
        self, name: str, missing: bool, remedy: str = check.DROP
    ) -> Iterator[tuple[slice, np.ndarray, bool]]:
        """Yields the place of rows, these rows in C order in the dtype, and whether some numbers are missing.

        The next rows overwrite them. Raises ValueError as for the whole matrix if a number is not finite, or
        missing without `missing`, or out of the range of the dtype.
        """
        n, n_columns = self.shape
        converted = np.empty((min(n, max(1, CONVERTED // n_columns)), n_columns), self.dtype)
        for first in range(0, n, len(converted)):
            part = slice(first, min(first + len(converted), n))
            with np.errstate(over="ignore", invalid="ignore"):
                np.copyto(converted[: part.stop - first], self.source[part], casting="unsafe")
            rows = converted[: part.stop - first]
            try:
                has_missing = supervised.check_finite(name, rows, self.source[part], missing, remedy)
            except ValueError as error:
                # The index is that in the matrix.
                before, *row = re.split(r"(?<=at index \()(\d+)", str(error), maxsplit=1)
                text = f"{before}{int(row[0]) + first}{row[1]}" if row else before
                raise ValueError(text) from None
            yield part, rows, has_missing

    def columns(self, columns: slice | np.ndarray) -> np.ndarray:
        """Returns some columns in the dtype, aligned, of any strides."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.require(self.source[:, columns], self.dtype, ["A"])


def unconverted(a: object, dtype: np.dtype | None = None) -> Unconverted | None:
    """Returns an Unconverted for a large matrix that needs a conversion, or None for any other `a`.

    `dtype` is that of the result; by default that in which samples of the dtype of `a` are computed.
    """
    if type(a) not in check.NUMPY_TYPES or not isinstance(a, np.ndarray):
        return None
    if a.ndim != 2 or a.size <= CONVERTED or a.dtype.kind not in "biuf":
        return None
    matrix = np.asarray(a)
    dtype = supervised.float_dtype(matrix) if dtype is None else dtype
    if matrix.dtype == dtype and matrix.flags.c_contiguous and matrix.flags.aligned:
        return None
    return Unconverted(matrix, dtype)


def has_missing(lazy: Unconverted, is_categorical: np.ndarray | None) -> bool:
    """Returns whether large samples have missing values, after the usual checks."""
    missing = False
    for _, _, some in lazy.rows("x", True):
        missing |= some
    if is_categorical is not None and check.values_checked():
        for f in np.flatnonzero(is_categorical).tolist():
            supervised.check_categories("x", lazy.columns(slice(f, f + 1))[:, 0], f)
    return missing
