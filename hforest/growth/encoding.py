"""Columns of numbers as bins."""

from ..core.aliases import ArrayLike
from .bins import Bins, Windows
from .samples import samples


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
        1 to 256: columns of more distinct values get at most so many bins of about as many samples each. By
        default every distinct value has a bin of its own (exact).
    categorical : (n_columns,) array-like of bools, or array-like of column numbers, optional
        Columns of categories: whole numbers 0 to 65535. Each category has a bin of its own, whatever
        max_bins. Not for windows.

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
