"""The three simulations of Perry et al. 2019, section 4.1, as seeded generators."""

import numpy as np

from ..core import check, series
from ..core.aliases import DType, FloatArray, IntArray, Rng

_LENGTH = 100


def _labels(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 2, n, dtype=np.int32)


def simulate_circle(n: int, *, dtype: DType = np.float32, rng: Rng = None) -> tuple[FloatArray, IntArray]:
    """Returns labelled samples of two segments on a circle of 100 points (Perry et al. 2019, section 4.1 A).

    Parameters
    ----------
    n : int
        Number of samples.

    Returns
    -------
    x : (n, 100) array
        Zeros, with ones in two segments that do not touch; indices are modulo 100.
    y : (n,) array of int32
        Classes, with equal probability. 0: two segments of five ones; 1: one of four and one of six.

    Notes
    -----
    If the first segment starts at s, the second starts uniformly outside ``[s - 5, s + 5]`` (class 0) or ``[s
    - 6, s + 4]`` (class 1, where the first segment has four ones).

    Examples
    --------
    >>> import hforest.demo
    >>> x, y = hforest.demo.simulate_circle(50, rng=0)
    >>> set(x.sum(axis=1).tolist())
    {10.0}
    """
    x, generator, _ = _arguments(n, dtype, rng, _LENGTH)
    n = len(x)
    y = _labels(n, generator)
    first = generator.integers(0, _LENGTH, n)
    # The distance from the first segment's start to the second's, modulo 100.
    gap = np.where(y == 0, generator.integers(6, _LENGTH - 5, n), generator.integers(5, _LENGTH - 6, n))
    for start, length in ((first, np.where(y == 0, 5, 4)), (first + gap, np.where(y == 0, 5, 6))):
        for i in range(6):
            rows = np.flatnonzero(i < length)
            x[rows, (start[rows] + i) % _LENGTH] = 1
    return x, y


def simulate_bars(n: int, *, dtype: DType = np.float32, rng: Rng = None) -> tuple[FloatArray, IntArray]:
    """Returns 28x28 images of horizontal or vertical bars, with labels (Perry et al. 2019, section 4.1 B).

    Parameters: see `simulate_circle`.

    Returns
    -------
    x : (n, 784) array
        Zeros, with Poisson(10) rows (class 0) or columns (class 1) of ones, at uniform positions.
    y : (n,) array of int32
        Classes, with equal probability.

    Examples
    --------
    >>> import hforest.demo
    >>> x, y = hforest.demo.simulate_bars(5, rng=0)
    >>> bool((x.reshape(5, 28, 28)[y == 0].std(axis=2) == 0).all())
    True
    """
    x, generator, _ = _arguments(n, dtype, rng, 28 * 28)
    n = len(x)
    y = _labels(n, generator)
    for image, label, count in zip(x.reshape(n, 28, 28), y, generator.poisson(10, n), strict=True):
        # Positions with replacement: two bars may fall on one row.
        image[generator.integers(0, 28, count)] = 1
        if label:
            image[:] = image.T.copy()
    return x, y


def simulate_impulse(n: int, *, dtype: DType = np.float32, rng: Rng = None) -> tuple[FloatArray, IntArray]:
    """Returns white noise with or without an impulse response (Perry et al. 2019, section 4.1 C).

    Parameters: see `simulate_circle`.

    Returns
    -------
    x : (n, 100) array
        N(0, 1), in class 1 plus ``exp(-0.1 (j - 20))`` for j >= 20.
    y : (n,) array of int32
        Classes, with equal probability.

    Examples
    --------
    >>> import hforest.demo
    >>> x, y = hforest.demo.simulate_impulse(1000, rng=0)
    >>> bool(x[y == 1, 20].mean() > 0.8)
    True
    """
    x, generator, dtype = _arguments(n, dtype, rng, _LENGTH)
    n = len(x)
    y = _labels(n, generator)
    j = np.arange(_LENGTH)
    response = np.where(j >= 20, series.exp(-0.1 * (j - 20.0)), 0)
    return (generator.standard_normal((n, _LENGTH)) + y[:, None] * response).astype(dtype), y


def _arguments(
    n: int, dtype: DType, rng: Rng, n_features: int
) -> tuple[FloatArray, np.random.Generator, np.dtype]:
    """Returns zeros for the samples, the generator and the dtype."""
    n = check.integer("n", n, 0, check.MAX_COUNT)
    generator, dtype = check.generator(rng), check.float_dtype(dtype)
    with check.memory("n", "samples", n * n_features * dtype.itemsize):
        return np.zeros((n, n_features), dtype), generator, dtype
