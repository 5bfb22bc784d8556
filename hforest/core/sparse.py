"""Sparse matrices of SciPy as checked plain arrays, without duplicates, in ascending order."""

import sys
from typing import Any, NamedTuple

import numpy as np

from . import check
from .aliases import FloatArray, IntArray
from .supervised import are_no_categories, float_dtype, refuse_category

_AXES = ("n_samples", "n_features")


class Compressed(NamedTuple):
    """A matrix along its major axis: rows (CSR) or columns (CSC)."""

    data: FloatArray
    """(n_stored,) float32 or float64, finite or NaN."""
    indices: IntArray
    """(n_stored,) int32: indices along the other axis, ascending in each row or column."""
    indptr: IntArray
    """(n_major + 1,) int64."""
    n_minor: int
    """Number of places along the other axis."""

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of places along the major and the other axis."""
        return len(self.indptr) - 1, self.n_minor


class Columns(NamedTuple):
    """Samples in a sparse matrix, column by column; entries that are not stored are 0."""

    stored: Compressed
    """The matrix by columns; samples are along its other axis."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n_samples, n_features)."""
        return self.stored.n_minor, len(self.stored.indptr) - 1

    @property
    def dtype(self) -> np.dtype:
        """Dtype in which samples are computed, float32 or float64."""
        return self.stored.data.dtype

    def __len__(self) -> int:
        return self.stored.n_minor


def is_sparse(a: Any) -> bool:
    """Returns whether `a` is a sparse matrix or array of SciPy, without importing SciPy."""
    module = sys.modules.get("scipy.sparse")
    return module is not None and bool(module.issparse(a))


def _check_structure(
    name: str, kind: str, data: Any, indices: Any, indptr: Any, n_major: int, n_minor: int
) -> None:
    """Checks that row pointers and indices of a matrix of a kind, "csr" or "csc", are inside their arrays."""
    fine = (
        indptr.shape == (n_major + 1,)
        and indices.ndim == 1
        and data.ndim == 1
        and indptr.dtype.kind in "iu"
        and indices.dtype.kind in "iu"
        and int(indptr[0]) == 0
        and bool((indptr[1:] >= indptr[:-1]).all())
        and int(indptr[-1]) <= min(len(indices), len(data))
    )
    if not fine:
        raise ValueError(
            f"{name}.indptr: expected {n_major + 1} ascending numbers from 0 to at most the lengths of "
            "indices and data, got other numbers; make the matrix with "
            f"scipy.sparse.{kind}_array((data, indices, indptr))"
        )
    used = indices[: int(indptr[-1])]
    low, high = (int(used.min()), int(used.max())) if used.size else (0, -1)
    if low < 0 or high >= n_minor:
        raise IndexError(
            f"{name}.indices: expected 0 <= index < {n_minor}, got {low} to {high}; pass indices that fit "
            "the shape of the matrix"
        )


def _check_kind(name: str, a: Any) -> tuple[int, int]:
    """Checks a CSR or CSC matrix of real numbers; returns its shape."""
    shape: tuple[int, ...] = tuple(a.shape)
    if a.format not in ("csr", "csc"):
        raise TypeError(
            f"{name}: expected a sparse matrix in CSR or CSC format, got {a.format.upper()}; pass "
            f"{name}.tocsr()"
        )
    if len(shape) != 2:
        raise ValueError(
            f"{name}: expected shape ({', '.join(_AXES)}), got {shape}; pass a row for each sample"
        )
    if a.dtype.kind not in "biuf":
        raise TypeError(
            f"{name}: expected real numbers, got dtype {a.dtype}; encode text, dates and complex numbers as "
            "real numbers"
        )
    if max(shape) > check.MAX_COUNT:
        raise ValueError(
            f"{name}: expected at most 2**31 - 1 samples and features, got shape {shape}; pass fewer"
        )
    return shape[0], shape[1]


def _converted(a: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Returns `a` in C order, aligned, of `dtype`."""
    with np.errstate(over="ignore", invalid="ignore"):
        return a.astype(dtype, order="C", copy=not a.flags.aligned)


def _starts(indptr: IntArray, n_stored: int) -> np.ndarray:
    """Returns (n_stored,) bool: whether a row or column begins at a stored number."""
    starts = np.zeros(n_stored + 1, bool)
    starts[indptr] = True
    return starts[:-1]


def _compressed(name: str, a: Any, by_columns: bool, dtype: np.dtype | None) -> Compressed:
    """Returns the matrix by columns or by rows, with ascending indices."""
    n_major, n_minor = a.shape[::-1] if a.format == "csc" else a.shape
    # Kernels, and those of SciPy, follow indices and indptr: copies, which nobody changes after the check.
    data, indices, indptr = a.data, check.owned(a.indices), check.owned(a.indptr)
    _check_structure(name, a.format, data, indices, indptr, n_major, n_minor)
    dtype = float_dtype(data) if dtype is None else dtype
    n_stored = int(indptr[-1])
    data, indices = data[:n_stored], indices[:n_stored]
    if (a.format == "csc") != by_columns:
        make = getattr(sys.modules["scipy.sparse"], f"{a.format}_array")
        b = make((data, indices, indptr), shape=a.shape)
        b = b.tocsc() if by_columns else b.tocsr()
        data, indices, indptr = b.data, b.indices, b.indptr
        n_major, n_minor = n_minor, n_major
    indptr = _converted(indptr, np.dtype(np.int64))
    inside = ~_starts(indptr, n_stored)[1:]
    if bool((inside & (indices[1:] <= indices[:-1])).any()):
        order = np.lexsort((indices, np.repeat(np.arange(n_major), np.diff(indptr))))
        indices, data = indices[order], data[order]
        twice = inside & (indices[1:] == indices[:-1])
        if bool(twice.any()):
            at = int(twice.argmax())
            major = int(np.searchsorted(indptr, at, side="right")) - 1
            place = (int(indices[at]), major) if by_columns else (major, int(indices[at]))
            raise ValueError(
                f"{name}: expected each entry to be stored once, got entry {place} repeatedly; call "
                f"{name}.sum_duplicates()"
            )
    numbers = _converted(data, dtype)
    return Compressed(numbers, _converted(indices, check.INT32), indptr, n_minor)


def columns_or_missing(name: str, a: Any) -> tuple[Columns, bool]:
    """Returns training samples, in the dtype of computations, and whether there are missing values.

    There is at least one sample and one feature.
    """
    n_samples, n_features = _check_kind(name, a)
    for count, axis in ((n_samples, "samples"), (n_features, "features")):
        check.require(count, name, f"1 to 2**31 - 1 {axis}", 0, "pass at least one")
    stored = _compressed(name, a, True, None)
    return Columns(stored), check.finite_or_missing(f"{name}.data", stored.data)


def rows(name: str, a: Any, dtype: np.dtype, *, missing: bool, remedy: str) -> tuple[Compressed, bool]:
    """Returns samples by rows in `dtype`, and whether some numbers are missing, which `missing` allows."""
    _check_kind(name, a)
    stored = _compressed(name, a, False, dtype)
    if missing:
        return stored, check.finite_or_missing(f"{name}.data", stored.data)
    check.finite(f"{name}.data", stored.data, remedy=remedy)
    return stored, False


def check_categories(name: str, x: Columns, is_categorical: np.ndarray) -> None:
    """Checks columns as `supervised.categories`."""
    if not check.values_checked():
        return
    data, indices, indptr, _ = x.stored
    for at in np.flatnonzero(are_no_categories(data)).tolist():
        f = int(np.searchsorted(indptr, at, side="right")) - 1
        if is_categorical[f]:
            refuse_category(name, data[at], int(indices[at]), f)
