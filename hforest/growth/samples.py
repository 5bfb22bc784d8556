"""Samples that trees are grown on: checked once, and kept with what trees read of them."""

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from ..core import blocks, check, machine, sparse, supervised
from ..core.aliases import Array, ArrayLike, FloatArray, IntArray
from ..core.in_place import Windows, check_windows, rows_of
from ..core.sparse import Columns
from . import encoding
from . import sparse as sparse_encoding
from .bins import Bins
from .checks import check_bins, check_no_categories, has_missing_rows


class Samples:
    """Checked samples, from `samples`; every function that grows forests takes them as x.

    Samples of an array are also arrays for the functions that apply forests (`numpy.asarray` returns it).

    What trees read of them (bins, copies in another order) is made by the first growth that needs it and
    kept: further forests on the same samples skip that.

    Attributes
    ----------
    x : array, matrix, Windows or Bins
        The samples as they were checked. They must not change afterwards.
    numbers : array
        The array that holds their numbers, or their bins.
    shape : (int, int)
        Samples and columns.
    dtype : numpy.dtype
        float32 or float64: of thresholds and forests.
    has_missing : bool
        Whether numbers are missing.
    categorical : (n_columns,) array of bools, or None
        Which columns are categories; None where none are.
    max_bins : int or None
        Bins of a column at most.
    """

    # This class is a matrix that is computed in as it is. A representation is a subclass: it says how bins,
    # columns and the matrix are made. `samples` chooses it.
    __slots__ = ("_made", "categorical", "dtype", "has_missing", "max_bins", "numbers", "shape", "x")

    def __init__(
        self,
        x: Any,
        numbers: Array,
        dtype: np.dtype,
        max_bins: int | None = None,
        categorical: np.ndarray | None = None,
        has_missing: bool = False,
    ) -> None:
        self.x, self.numbers, self.dtype, self.max_bins = x, numbers, dtype, max_bins
        self.shape: tuple[int, int] = (x.shape[0], x.shape[1])
        self.categorical, self.has_missing = categorical, has_missing
        self._made: dict[str, tuple[Hashable, Any]] = {}

    def __reduce__(self) -> tuple[type["Samples"], tuple[Any, ...]]:
        """Leaves out what was made: a process that gets the samples makes it anew."""
        return type(self), (
            self.x, self.numbers, self.dtype, self.max_bins, self.categorical, self.has_missing
        )  # fmt: skip

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Samples({type(self.x).__name__} of shape {self.shape}, {self.dtype})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Returns the numbers, for functions that take arrays, as `hforest.tree.predict`."""
        return np.array(self.numbers, dtype, copy=copy)

    @property
    def are_windows(self) -> bool:
        """Whether samples are parts of the rows of an array, read in place."""
        return False

    def once(self, name: str, key: Hashable, make: Callable[[], Any]) -> Any:
        """Returns make(), or what the last call with the same name and key has made."""
        made = self._made.get(name)
        if made is None or made[0] != key:
            made = self._made[name] = key, make()
        return made[1]

    def columns(self, which: slice | Array) -> Array:
        """Returns some columns in the dtype, of any strides."""
        return self.x[:, which]

    def _encode(self, tables: bool) -> Bins:
        bins = encoding.encode(self, tables)
        return bins if bins.low.size else bins._replace(values=self.x)

    def bins(self, *, tables: bool = True) -> Bins:
        """Returns the columns as bins; without `tables`, some have `values` in place of low and high."""
        bins = self.once("bins", (), lambda: self._encode(tables))
        if tables and bins.values is not None:
            return self.once("tables", (), lambda: encoding.with_tables(bins))
        return bins

    def _matrix(self) -> FloatArray | Columns | Windows:
        return self.x

    def matrix(self) -> FloatArray | Columns | Windows:
        """Returns the numbers as a C-contiguous array, as a sparse matrix or as windows."""
        if self.categorical is not None:
            raise _no_numbers("columns of categories")
        return self.once("matrix", (), self._matrix)

    def workspace(self, name: str, backend: Any, key: Hashable, make: Callable[[], Any]) -> Any:
        """Returns what a backend reads beside the samples: `once` for each backend and vector path."""
        return self.once(name, (backend.__name__, machine.simd(), key), make)


class UnconvertedSamples(Samples):
    """A large matrix that is converted by blocks (`core.blocks.Unconverted`)."""

    __slots__ = ()

    def columns(self, which: slice | Array) -> Array:
        return self.x.columns(which)

    def _encode(self, tables: bool) -> Bins:
        return super()._encode(True)

    def _matrix(self) -> FloatArray:
        return supervised.converted_numbers(self.x.source, self.dtype)


class NoArraySamples(Samples):
    """Samples that are no array, nor numbers that projections read."""

    __slots__ = ()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise TypeError(f"{type(self.x).__name__} in place of numbers: pass what the samples were made from")

    def _matrix(self) -> FloatArray | Columns | Windows:
        raise _no_numbers(type(self.x).__name__)


class SparseSamples(NoArraySamples):
    """A sparse matrix (`core.sparse.Columns`)."""

    __slots__ = ()

    def _encode(self, tables: bool) -> Bins:
        return sparse_encoding.encode(self.x, self.max_bins, self.categorical, self.has_missing)

    def _matrix(self) -> Columns:
        return self.x


class WindowSamples(NoArraySamples):
    """Windows of images."""

    __slots__ = ()

    @property
    def are_windows(self) -> bool:
        return True

    def moved(self, base: IntArray) -> "WindowSamples":
        """Returns windows of the same shape at other places of the array, with what was made of this."""
        other = WindowSamples(self.x._replace(base=base), self.numbers, self.dtype, self.max_bins)
        for name, (key, made) in self._made.items():
            if name == "bins" and made.base is not None:
                other._made[name] = key, made._replace(base=base)
            elif name == "projections":
                other._made[name] = key, made
        return other

    def columns(self, which: slice | Array) -> Array:
        return rows_of(self.x, which)

    def _matrix(self) -> Windows:
        return self.x

    def _encode(self, tables: bool) -> Bins:
        # One row of bins for all columns, where each distinct number can have a bin of its own.
        rows = self.x.x.reshape(-1, 1)
        exact = encoding.encode(Samples(rows, rows, self.dtype))
        if self.max_bins is not None and exact.low.shape[1] > self.max_bins:
            return super()._encode(True)
        return exact._replace(base=self.x.base, offset=self.x.offset)


class EncodedSamples(NoArraySamples):
    """Bins that were made before."""

    __slots__ = ()

    @property
    def are_windows(self) -> bool:
        return self.x.base is not None

    def _encode(self, tables: bool) -> Bins:
        return self.x


def _no_numbers(what: str) -> TypeError:
    return TypeError(
        f"x: expected numbers, got {what}; projections read numbers: pass an array, sparse matrix or Windows"
    )


def _check_none(what: str, remedy: str, **settings: Any) -> None:
    """Settings that belong to the encoding, which has been chosen."""
    for name, value in settings.items():
        if value is not None:
            raise ValueError(f"{name}: expected None for {what}, got {type(value).__name__}; {remedy}")


def of_bins(bins: Bins, name: str) -> Samples:
    """Bins, checked, as samples."""
    check_bins(bins, name)
    return EncodedSamples(bins, bins.bins, bins.dtype, has_missing=bins.missing is not None)


def samples(
    x: ArrayLike | Windows | Bins | Samples,
    *,
    categorical: ArrayLike | None = None,
    max_bins: int | None = None,
) -> Samples:
    """Returns samples that several forests can be grown on: they are checked and encoded once.

    Parameters
    ----------
    x : (n_samples, n_columns) array-like of real numbers, sparse matrix, Windows, Bins or Samples
        As `encode` takes it, or what it returns. Samples are returned as they are. An array is not copied
        unless it is converted; it must not change while the result is in use.
    categorical : (n_columns,) array-like of bools, or array-like of column numbers, optional
        Columns of categories: whole numbers 0 to 65535. Each category has a bin of its own, whatever max_bins
        is. Not for windows. Must be None for Bins and Samples, which have their own.
    max_bins : int, optional
        Maximum number of bins, 1 to 256, of a column of more distinct values; bins have about equal numbers
        of samples. By default every distinct value has a bin of its own (exact). Must be None for Bins and
        Samples, which have their own.

    Returns
    -------
    Samples
        What every function that grows forests takes as x.

    Raises
    ------
    TypeError, ValueError, IndexError
        As from `encode`; settings beside Bins or Samples.

    Notes
    -----
    Cost: one read of x, for the check. Bins are made by the first growth that needs them, in the time of
    `encode`, and take its memory as long as the result lives.

    Examples
    --------
    >>> import numpy as np
    >>> from hforest import classic, growth
    >>> x = np.random.default_rng(0).normal(size=(100, 3))
    >>> samples = growth.samples(x, max_bins=64)
    >>> forests = [classic.grow(samples, x[:, 0] > 0, 1, first_tree=m, rng=0) for m in range(3)]
    >>> samples.shape, samples.bins().bins.dtype
    ((100, 3), dtype('uint8'))
    """
    n_bins = supervised.max_bins(max_bins)
    if isinstance(x, Samples):
        _check_none("samples", "give it to growth.samples", max_bins=max_bins, categorical=categorical)
        return x
    if isinstance(x, Bins):
        _check_none("bins", "give it to encode", max_bins=max_bins, categorical=categorical)
        return of_bins(x, "x")
    if isinstance(x, Windows):
        check_windows(x)
        check_no_categories(categorical)
        return WindowSamples(x, x.x, x.x.dtype, n_bins)
    if sparse.is_sparse(x):
        columns, has_missing = sparse.columns_or_missing("x", x)
        mask = supervised.categorical(categorical, columns.shape[1])
        if mask is not None:
            sparse.check_categories("x", columns, mask)
        return SparseSamples(columns, columns.stored.data, columns.dtype, n_bins, mask, has_missing)
    lazy = blocks.unconverted(x)
    if lazy is not None:
        supervised.check_sizes("x", lazy.shape)
        mask = supervised.categorical(categorical, lazy.shape[1])
        return UnconvertedSamples(lazy, lazy.source, lazy.dtype, n_bins, mask, has_missing_rows(lazy, mask))
    x, has_missing = supervised.samples_or_missing("x", x)
    mask = supervised.categorical(categorical, x.shape[1])
    if mask is not None:
        supervised.categories("x", x, mask)
    return Samples(x, x, x.dtype, n_bins, mask, has_missing)


def encode(
    x: ArrayLike | Windows, *, max_bins: int | None = None, categorical: ArrayLike | None = None
) -> Bins:
    """Returns the columns of x as ranks of their distinct values, or as bins.

    Parameters
    ----------
    x : (n_samples, n_columns) array-like of real numbers, CSR or CSC matrix of SciPy, or Windows
        Samples; finite, or NaN for missing values. What a sparse matrix does not store is 0. Numbers that
        float32 holds exactly are computed in float32, others in float64. Windows are taken as they are:
        C-contiguous, float32 or float64, finite.
    max_bins : int, optional
        Maximum number of bins, 1 to 256, of a column of more distinct values; bins have about equal numbers
        of samples. By default every distinct value has a bin of its own (exact).
    categorical : (n_columns,) array-like of bools, or array-like of column numbers, optional
        Columns of categories: whole numbers 0 to 65535. Each category has a bin of its own, whatever max_bins
        is. Not for windows.

    Returns
    -------
    Bins
        Indices of bins in the smallest unsigned type that holds them, and the least and greatest value of
        each bin.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong kind or dtype; wrong shape, no sample, infinity, categories that are no whole numbers from 0 to
        65535; windows with NaN, or that are not inside x; categorical columns out of range.

    Notes
    -----
    Samples of one value share a bin: the one where the middle of its samples lies. -0 is 0. Missing values of
    a column have a bin of their own, after the others; with max_bins a matrix that has any gets at most
    max_bins - 1 others a column, but one. Cost: a radix
    sort of each column, 8 bytes a bin for the values, 16 with max_bins. Windows have one row of bins: each
    number of x is encoded once, however many windows hold it; trees on them are those of a copy, bit for bit.
    If x has more than max_bins distinct values, columns of windows have bins of their own, and bins are
    copied after all. Of a sparse matrix the bins of its stored numbers are stored (`Stored`), on the CPU;
    trees on them are those of ``x.toarray()``.

    A large x of another dtype or layout than is computed in, such as a numpy.memmap, is read by blocks of
    rows to be checked and by blocks of columns to be encoded: beside the bins this takes about 30 bytes
    for each of 2**22 numbers, or of two columns a thread where these are more.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> encoded = hforest.growth.encode(np.array([[2.5], [-1.0], [2.5]]))
    >>> encoded.bins, encoded.low
    (array([[1, 0, 1]], dtype=uint8), array([[-1. ,  2.5]]))
    """
    return samples(x, categorical=categorical, max_bins=max_bins).bins()


def check_dense(source: Samples) -> FloatArray:
    """Returns the numbers of samples that are all stored and finite, as a C-contiguous array."""
    x = source.matrix()
    if isinstance(x, Windows):
        raise TypeError("x: expected an array of real numbers, got Windows; copy them to an array")
    if isinstance(x, Columns):
        raise TypeError(
            "x: expected an array of real numbers, got a sparse matrix; make it dense with x.toarray()"
        )
    if source.has_missing:
        check.finite("x", x)
    return x
