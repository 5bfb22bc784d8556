"""Checked samples for growth, with cached representations that trees read."""

from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any

import numpy as np

from ..core import blocks, check, machine, notebooks, sparse, supervised
from ..core.aliases import Array, ArrayLike, FloatArray, IntArray
from ..core.in_place import InPlace, PlacedWindows, check_places, read_only, rows_of
from ..core.sparse import Columns
from . import encoding
from . import sparse as sparse_encoding
from .bins import Bins


class Samples:
    """Checked samples of `samples`, which every function that grows forests takes as x.

    Functions that apply forests take Samples of an array or of windows, too. The first growth makes the bins,
    or copies in another order, that it needs; later forests on the same samples use them again. Attributes
    cannot be set, and their arrays are read-only.

    Attributes
    ----------
    x : array, matrix or windows
        Checked samples, on the memory of the caller's numbers, which should not change afterwards.
    numbers : array
        Array of their numbers.
    shape : (int, int)
        Numbers of samples and columns.
    dtype : numpy.dtype
        Dtype of thresholds and forests, float32 or float64.
    has_missing : bool
        Whether numbers are missing.
    categorical : (n_columns,) array of bools, or None
        Which columns are categories; None if none are.
    max_bins : int or None
        Maximum number of bins of a column.
    """

    # This class is a matrix without conversion. Subclasses are other representations: they make bins, columns
    # and the matrix in other ways. `samples` chooses one.
    __slots__ = (
        "_categorical", "_lock", "_made", "_numbers", "_x", "dtype", "has_missing", "max_bins", "numbers",
        "shape",
    )  # fmt: skip

    # A caller can set the shape of a public array.
    _x: Any
    _numbers: Array
    _categorical: np.ndarray | None
    numbers: Array
    shape: tuple[int, int]
    dtype: np.dtype
    max_bins: int | None
    has_missing: bool
    _made: dict[str, tuple[Hashable, Any]]
    _lock: RLock

    def __init__(
        self,
        x: Any,
        numbers: Array,
        dtype: np.dtype,
        max_bins: int | None = None,
        categorical: np.ndarray | None = None,
        has_missing: bool = False,
    ) -> None:
        own, once = super().__setattr__, dict[int, np.ndarray]()  # a pickle has an array once
        own("_x", read_only(x, once))
        own("_numbers", read_only(numbers, once))
        own("_categorical", categorical)
        own("numbers", read_only(numbers))
        own("shape", (x.shape[0], x.shape[1]))
        own("dtype", dtype)
        own("max_bins", max_bins)
        own("has_missing", has_missing)
        own("_made", {})
        own("_lock", RLock())

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"samples.{name}: expected no assignment, got one; make other samples by hforest.samples"
        )

    @property
    def x(self) -> Any:
        return read_only(self._x)

    @property
    def categorical(self) -> np.ndarray | None:
        return read_only(self._categorical)

    def __reduce__(self) -> tuple[type["Samples"], tuple[Any, ...]]:
        """Pickles without cached representations: another process makes them again."""
        return type(self), (
            self._x, self._numbers, self.dtype, self.max_bins, self._categorical, self.has_missing
        )  # fmt: skip

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Samples({type(self._x).__name__} of shape {self.shape}, {self.dtype})"

    @notebooks.shown_by
    def _repr_html_(self) -> notebooks.Rows:
        categorical = self._categorical
        return [
            ("Samples", f"{type(self._x).__name__}, {self.dtype}"),
            ("samples", self.shape[0]),
            ("columns", self.shape[1]),
            ("columns of categories", 0 if categorical is None else int(categorical.sum())),
            ("missing numbers", "some" if self.has_missing else "none"),
            ("bins of a column", "exact" if self.is_exact else f"at most {self.max_bins}"),
        ]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Returns the numbers, for functions that take arrays, such as `hforest.tree.predict`."""
        return np.array(self.numbers, dtype, copy=copy)

    @property
    def are_windows(self) -> bool:
        """Returns whether samples are parts of the rows of an array, which are read in place."""
        return False

    @property
    def is_exact(self) -> bool:
        """Returns whether any columns of numbers have a bin for each distinct value."""
        return self.max_bins is None or self.max_bins >= self.shape[0]

    @property
    def are_exact_numbers(self) -> bool:
        """Returns whether columns are numbers that are stored, none is missing, and bins are exact."""
        return self.is_exact and not self.has_missing and self._categorical is None

    def once(self, name: str, key: Hashable, make: Callable[[], Any]) -> Any:
        """Returns make(), or the cached result of the last call with the same name and key."""
        with self._lock:  # threads that grow on the same samples make it once
            made = self._made.get(name)
            if made is None or made[0] != key:
                made = self._made[name] = key, make()
            return made[1]

    def columns(self, which: slice | Array) -> Array:
        """Returns some columns in the dtype, of any strides."""
        return self._x[:, which]

    def _encode(self, tables: bool) -> Bins:
        bins = encoding.encode(self, tables)
        return bins if bins.low.size else bins._replace(values=self._x)

    def bins(self, *, tables: bool = True) -> Bins:
        """Returns the columns as bins; without `tables`, some have `values` in place of low and high."""
        bins = self.once("bins", (), lambda: read_only(self._encode(tables)))
        if tables and bins.values is not None:
            return self.once("tables", (), lambda: read_only(encoding.with_tables(bins)))
        return bins

    def on_demand(self, *, tables: bool) -> Bins:
        """Returns the columns as `bins`; of a wide array each is encoded when a node first samples it."""
        is_wide = self.shape[1] >= encoding.WIDE * self.shape[0]
        if is_wide and self._x is self._numbers and not self.has_missing and self._categorical is None:
            return self.once("on demand", (), lambda: read_only(encoding.on_demand(self)))
        return self.bins(tables=tables)

    def _matrix(self) -> FloatArray | Columns | PlacedWindows:
        return self._x

    def matrix(self) -> FloatArray | Columns | PlacedWindows:
        """Returns the numbers as a C-contiguous array, as a sparse matrix or as windows."""
        if self._categorical is not None:
            raise _no_numbers("columns of categories")
        return read_only(self.once("matrix", (), self._matrix))

    def workspace(self, name: str, backend: Any, key: Hashable, make: Callable[[], Any]) -> Any:
        """Returns a backend's representation of the samples, made `once` for each backend and vector path."""
        return self.once(name, (backend.__name__, machine.simd(), key), make)


class UnconvertedSamples(Samples):
    """A large matrix that is converted in blocks (`core.blocks.Unconverted`)."""

    __slots__ = ()

    def columns(self, which: slice | Array) -> Array:
        return self._x.columns(which)

    def _encode(self, tables: bool) -> Bins:
        return super()._encode(True)

    def _matrix(self) -> FloatArray:
        return supervised.converted_numbers(self._x.source, self.dtype)


class NoArraySamples(Samples):
    """Samples that are neither an array nor numbers for projections."""

    __slots__ = ()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise TypeError(
            f"{type(self._x).__name__} in place of numbers: pass the data that the samples were made from"
        )

    def _matrix(self) -> FloatArray | Columns | PlacedWindows:
        raise _no_numbers(type(self._x).__name__)


class SparseSamples(NoArraySamples):
    """A sparse matrix (`core.sparse.Columns`)."""

    __slots__ = ()

    @property
    def are_exact_numbers(self) -> bool:
        return False

    def _encode(self, tables: bool) -> Bins:
        return sparse_encoding.encode(self._x, self.max_bins, self._categorical, self.has_missing)

    def _matrix(self) -> Columns:
        return self._x


class WindowSamples(NoArraySamples, InPlace):
    """Windows of the rows of an array."""

    __slots__ = ()

    @property
    def are_windows(self) -> bool:
        return True

    def moved(self, base: IntArray) -> "WindowSamples":
        """Returns windows of the same shape at other places of the array, with the cached representations."""
        base = base.copy()
        check_places(base, self._x.offset, self._numbers.size)
        other = WindowSamples(
            self._x._replace(base=base), self._numbers, self.dtype, self.max_bins, None, self.has_missing
        )
        for name, (key, made) in self._made.items():
            if name == "bins" and made.base is not None:
                other._made[name] = key, made._replace(base=base)
            elif name == "projections":
                other._made[name] = key, made
        return other

    def columns(self, which: slice | Array) -> Array:
        return rows_of(self._x, which)

    def _matrix(self) -> PlacedWindows:
        return self._x

    def _encode(self, tables: bool) -> Bins:
        # One row of bins for all columns, if each distinct number can have a bin of its own.
        rows = self._x.x.reshape(-1, 1)
        exact = encoding.encode(Samples(rows, rows, self.dtype))
        if self.max_bins is not None and exact.low.shape[1] > self.max_bins:
            return super()._encode(True)
        return exact._replace(base=self._x.base, offset=self._x.offset)


def _no_numbers(what: str) -> TypeError:
    return TypeError(
        f"x: expected numbers, got {what}; projections read numbers: pass an array, a sparse matrix or "
        "windows"
    )


def samples(
    x: ArrayLike | Samples,
    *,
    categorical: ArrayLike | None = None,
    max_bins: int | None = None,
    windows: tuple[IntArray, IntArray] | None = None,
) -> Samples:
    """Returns samples that are checked once and encoded once for several forests.

    Parameters
    ----------
    x : (n_samples, n_columns) array-like of real numbers, sparse matrix, or Samples
        As `hforest.grow` takes it. Samples are returned unchanged. An array is copied only for a conversion;
        it should not change while the result is in use. Forests of a changed array have splits of old or new
        numbers, or a ValueError says that it changed.
    categorical : (n_columns,) array-like of bools, or array-like of column numbers, optional
        Columns of categories: whole numbers 0 to 65535, or NaN. Their splits send a set of categories to one
        side. Each category has a bin of its own, whatever max_bins is. Not for windows.
    max_bins : int, optional
        Maximum number of bins, 1 to 256, of a column of more distinct values; bins have about equal numbers
        of samples, and thresholds lie between them. By default every distinct value has a bin of its own
        (exact).
    windows : (base, offset), optional
        Samples that are parts of the rows of x, read in place: number f of sample i is
        ``x.ravel()[base[i] + offset[f]]``. base (n_samples,) and offset (n_columns,) are arrays of int64. For
        classification only, without categories; forests grow on windows without missing values.

    Returns
    -------
    Samples
        Argument x of every function that grows forests, and of those that apply them.

    Raises
    ------
    ValueError
        Categories other than whole numbers 0 to 65535; settings together with Samples.
    IndexError
        Windows outside of x; categorical columns out of range.

    Notes
    -----
    Cost: one read of x, for the check. The first growth that needs bins makes them, by a sort per column;
    those of an array of 8 or more columns per sample when a node first samples the column. On the CPU random
    thresholds of exact numbers need no bins. Bins take memory as long as the result exists: one byte for each
    number with at most 256 bins in every column, else 2 or 4. Pickled samples make them anew. Windows share
    one row of bins: each number of x is encoded once, however many windows contain it, unless x has more than
    max_bins distinct values. Of a sparse matrix only stored numbers have bins. A large x that needs a
    conversion, such as a numpy.memmap, is checked in blocks of rows and encoded in blocks of columns. Besides
    the bins this takes about 30 bytes for each of 2**22 numbers, or of two columns per thread, if these are
    more.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(100, 3))
    >>> samples = hforest.samples(x, max_bins=64)
    >>> forests = [hforest.grow(samples, x[:, 0] > 0, 1, first_tree=m, rng=0) for m in range(3)]
    >>> samples.shape
    (100, 3)
    """
    n_bins = supervised.max_bins(max_bins)
    if isinstance(x, Samples):
        for name, value in (("categorical", categorical), ("max_bins", max_bins), ("windows", windows)):
            check.require(
                value is None, name, "None for Samples, which have their own", type(value).__name__,
                "pass the array of the samples",
            )  # fmt: skip
        return x
    if windows is not None:
        placed = _windows(x, windows, n_bins)
        check.require(
            categorical is None, "categorical", "None for windows", "columns",
            "copy the windows into an array to grow on categories",
        )  # fmt: skip
        return placed
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
        return UnconvertedSamples(lazy, lazy.source, lazy.dtype, n_bins, mask, blocks.has_missing(lazy, mask))
    x, has_missing = supervised.samples_or_missing("x", x)
    mask = supervised.categorical(categorical, x.shape[1])
    if mask is not None:
        supervised.categories("x", x, mask)
    return Samples(x, x, x.dtype, n_bins, mask, has_missing)


def _windows(x: ArrayLike, windows: Any, max_bins: int | None) -> WindowSamples:
    """Returns samples that are windows of the rows of x."""
    remedy = "pass two arrays of int64: the start of each sample, and the distance of each number from it"
    check.instance("windows", windows, tuple | list, "(base, offset)", remedy)
    check.require(len(windows) == 2, "windows", "(base, offset)", f"{len(windows)} items", remedy)
    # Kernels follow these: copies, which a caller does not change.
    base, offset = (a.copy() if hasattr(a, "copy") else a for a in windows)
    numbers, has_missing = supervised.samples_or_missing("x", x)
    check.same_device(x=numbers, base=base, offset=offset)
    check_places(base, offset, numbers.size)
    placed = PlacedWindows(numbers, base, offset)
    return WindowSamples(placed, numbers, numbers.dtype, max_bins, has_missing=has_missing)


def check_dense(source: Samples) -> FloatArray:
    """Returns the numbers of dense, finite samples as a C-contiguous array."""
    x = source.matrix()
    if isinstance(x, PlacedWindows):
        raise TypeError("x: expected an array of real numbers, got windows; copy them into an array")
    if isinstance(x, Columns):
        raise TypeError("x: expected an array of real numbers, got a sparse matrix; pass x.toarray()")
    if source.has_missing:
        check.finite("x", x)
    return x
