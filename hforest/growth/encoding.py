"""Columns of numbers as bins."""

from ..core import supervised
from ..core.aliases import ArrayLike
from . import unchecked
from .bins import Bins, Windows
from .checks import check_windows


def encode(x: ArrayLike | Windows, *, max_bins: int | None = None) -> Bins:
    """Returns the columns of x as ranks of their distinct values, or as bins.

    Parameters
    ----------
    x : (n_samples, n_columns) array-like of real numbers, or Windows
        Samples; finite. Numbers that float32 holds exactly are computed in float32, others in float64.
        Windows are taken as they are: C-contiguous, float32 or float64.
    max_bins : int, optional
        1 to 256: columns of more distinct values get at most so many bins of about as many samples each. By
        default every distinct value has a bin of its own (exact).

    Returns
    -------
    Bins
        Indices of bins in the smallest unsigned type that holds them, and the least and greatest value of
        each bin.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong kind or dtype; wrong shape, no sample, NaN or infinity; windows that are not inside x.

    Notes
    -----
    Samples of one value share a bin: the one where the middle of its samples lies. -0 is 0. Cost: a radix
    sort of each column, 8 bytes a bin for the values, 16 with max_bins. Windows have one row of bins: each
    number of x is encoded once, however many windows hold it; trees on them are those of a copy, bit for bit.
    If x has more than max_bins distinct values, columns of windows have bins of their own, and bins are
    copied after all.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> encoded = hforest.growth.encode(np.array([[2.5], [-1.0], [2.5]]))
    >>> encoded.bins, encoded.low
    (array([[1, 0, 1]], dtype=uint8), array([[-1. ,  2.5]]))
    """
    n_bins = supervised.max_bins(max_bins)
    if isinstance(x, Windows):
        check_windows(x)
        return unchecked.encode(x, n_bins)
    return unchecked.encode(supervised.samples("x", x), n_bins)
