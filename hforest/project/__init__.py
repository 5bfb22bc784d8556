"""Sparse projections of samples: random ones drawn from a seed, and their values (p3 sections 2.3 and 3).

Projections are the rows of a sparse matrix in CSR form: projection p has the entries start[p] to
``start[p + 1] - 1`` of `index` (features) and `weight`. `scipy.sparse.csr_matrix((weight, index, start))` is
the same matrix.

Wrong kinds and dtypes raise TypeError, wrong shapes and values ValueError, features and samples out of range
IndexError; the checks that read whole arrays can be skipped inside `hforest.unchecked()`.
"""

from typing import Any, NamedTuple

import numpy as np

from ..core import check, dispatch
from ..core.atoms import (
    Atoms,
    atom_key,
    axis_atoms,
    draw_atom,
    patch_atoms,
    probe_atoms,
    sparse_atoms,
)
from ..core.dispatch import Array

__all__ = ["Projections", "project", "sample_axis", "sample_patches", "sample_probes", "sample_sparse"]

_ROOM = __name__
_MOST = 2**31 - 1


class Projections(NamedTuple):
    """Rows of a sparse matrix."""

    start: Array
    """(n_projections + 1,) int64."""
    index: Array
    """(n_entries,) int32: features."""
    weight: Array
    """(n_entries,) float32 or float64."""


def _sample(n_projections: int, atoms: Atoms, dtype: Any, rng: Any) -> Projections:
    n_projections = check.integer("n_projections", n_projections, 0, _MOST)
    dtype = np.dtype(dtype)
    if dtype not in check.FLOATS:
        raise TypeError(f"dtype: expected float32 or float64, got {dtype}; pass numpy.float32")
    seed = int(check.generator(rng).integers(2**64, dtype=np.uint64))
    start, index, weight = [0], [], []
    for number in range(n_projections):
        entries, factors = draw_atom(atoms, atom_key(seed, number))
        index += entries
        weight += factors
        start.append(len(index))
    return Projections(np.array(start, np.int64), np.array(index, np.int32), np.array(weight, dtype))


def sample_axis(
    n_projections: int, n_features: int, *, dtype: Any = np.float32, rng: Any = None
) -> Projections:
    """Single features, drawn with replacement.

    Parameters
    ----------
    n_projections, n_features : int
        How many, from how many.
    dtype : float32 or float64
        Of the weights.
    rng : None, int or numpy.random.Generator
        Where the seed comes from.

    Returns
    -------
    Projections
        NumPy arrays, one entry of weight 1 each.

    Raises
    ------
    TypeError, ValueError
        Not such numbers.

    Examples
    --------
    >>> import hforest
    >>> hforest.project.sample_axis(3, 10, rng=0).start
    array([0, 1, 2, 3])
    """
    return _sample(n_projections, axis_atoms(n_features), dtype, rng)


def sample_sparse(
    n_projections: int, n_features: int, *, density: float = 1.5, dtype: Any = np.float32, rng: Any = None
) -> Projections:
    """Sparse vectors of +1 and -1 (SPORF; p3 section 2.3).

    Parameters
    ----------
    n_projections, n_features : int
        How many, over how many features.
    density : float
        Mean of the Poisson distribution that the number of non-zeros is drawn from, above 0 to 500; at least
        one is drawn, at most min(n_features, 4096).
    dtype : float32 or float64
        Of the weights.
    rng : None, int or numpy.random.Generator
        Where the seed comes from.

    Returns
    -------
    Projections
        NumPy arrays. Features of a projection are distinct and uniform, signs are even.

    Raises
    ------
    TypeError, ValueError
        Not such numbers.

    Notes
    -----
    Floyd's sampling: the cost is that of the non-zeros, not of n_features.

    Examples
    --------
    >>> import hforest
    >>> start, index, weight = hforest.project.sample_sparse(1000, 50, rng=0)
    >>> bool(1.5 < start[-1] / 1000 < 1.9), sorted(set(weight.tolist()))
    (True, [-1.0, 1.0])
    """
    return _sample(n_projections, sparse_atoms(n_features, density), dtype, rng)


def sample_patches(
    n_projections: int,
    shape: Any,
    *,
    patch_min: Any = 1,
    patch_max: Any = 1,
    channels: bool = False,
    cyclic: bool = False,
    dtype: Any = np.float32,
    rng: Any = None,
) -> Projections:
    """Sums over contiguous patches (MORF; p3 section 3).

    Parameters
    ----------
    n_projections : int
        How many.
    shape : tuple of 1 to 3 ints, and the number of channels behind them with `channels`
        Of one sample: a signal, an image, a volume, in C order.
    patch_min, patch_max : int or tuple of ints
        Least and greatest size along each axis; sizes are independent and uniform.
    channels : bool
        Whether the last axis of shape counts channels; a patch lies in one of them.
    cyclic : bool
        Whether patches wrap around the borders. Else the corner is uniform where the patch fits.
    dtype : float32 or float64
        Of the weights.
    rng : None, int or numpy.random.Generator
        Where the seed comes from.

    Returns
    -------
    Projections
        NumPy arrays; all weights are 1.

    Raises
    ------
    TypeError, ValueError
        Not such numbers; a patch larger than the sample.

    Examples
    --------
    >>> import hforest
    >>> start, index, weight = hforest.project.sample_patches(1, (28, 28), patch_min=2, patch_max=2, rng=0)
    >>> (index - index[0]).tolist()
    [0, 1, 28, 29]
    """
    n_features = int(np.prod(shape)) if isinstance(shape, tuple | list) else 1
    atoms = patch_atoms(n_features, shape, patch_min, patch_max, channels, cyclic)
    return _sample(n_projections, atoms, dtype, rng)


def sample_probes(
    n_projections: int, n_features: int, *, dtype: Any = np.float32, rng: Any = None
) -> Projections:
    """Differences of two features (p2 section 6.2).

    Parameters
    ----------
    n_projections, n_features : int
        How many, from how many (at least 2).
    dtype : float32 or float64
        Of the weights.
    rng : None, int or numpy.random.Generator
        Where the seed comes from.

    Returns
    -------
    Projections
        NumPy arrays; the weights of each are 1 and -1.

    Raises
    ------
    TypeError, ValueError
        Not such numbers.

    Examples
    --------
    >>> import hforest
    >>> hforest.project.sample_probes(2, 10, rng=0).weight
    array([ 1., -1.,  1., -1.], dtype=float32)
    """
    return _sample(n_projections, probe_atoms(n_features), dtype, rng)


def _check_start(start: Array, n_entries: int) -> None:
    if not check.values_checked():
        return
    host = dispatch.to_numpy(start)
    if host[0] != 0 or host[-1] != n_entries or bool((np.diff(host) < 0).any()):
        raise ValueError(
            f"start: expected 0, ..., n_entries = {n_entries}, nowhere falling, got others; "
            "pass the arrays of one set of projections"
        )


def project(
    x: Array,
    start: Array,
    index: Array,
    weight: Array,
    *,
    samples: Array | None = None,
    out: Array | None = None,
) -> Array:
    """Values of projections.

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Samples; finite.
    start : (n_projections + 1,) array of int64
        Where a projection's entries begin.
    index : (n_entries,) array of int32
        Features.
    weight : (n_entries,) array, dtype of x
        Weights.
    samples : (n,) array of int32, optional
        Rows of x to project, such as a node's; by default all.
    out : (n_projections, n) array, dtype of x, optional
        Where to write the result.

    Returns
    -------
    (n_projections, n) array, dtype of x
        ``sum weight[j] x[s, index[j]]``, 0 for a projection without entries.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong kind, dtype or device; wrong shape or layout, NaN or infinity in x; start that falls; a feature
        or sample out of range.

    Notes
    -----
    Summed in float64 in the order of the entries and rounded once: the same bits on every device. Cost: a
    load and a multiplication for each entry and sample.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[1.0, 2, 4], [0, 1, 1]])
    >>> start, index = np.array([0, 1, 3]), np.array([1, 0, 2], np.int32)
    >>> hforest.project.project(x, start, index, np.array([1.0, 1, -1]))
    array([[ 2.,  1.],
           [-3., -1.]])
    """
    check.same_device(x=x, start=start, index=index, weight=weight)
    dtype = check.floating("x", x)
    sizes: check.Sizes = {}
    check.array("x", x, dtype, ("n_samples", "n_features"), sizes)
    check.array("start", start, check.INT64, ("n_projections + 1",), sizes)
    check.array("index", index, check.INT32, ("n_entries",), sizes)
    check.array("weight", weight, dtype, ("n_entries",), sizes)
    check.at_least_one(sizes, "n_projections + 1")
    check.finite("x", x)
    _check_start(start, sizes["n_entries"])
    check.indices("index", index, sizes["n_features"], "n_features")
    n = sizes["n_samples"]
    if samples is not None:
        check.same_device(x=x, samples=samples)
        check.array("samples", samples, check.INT32, ("n",), sizes)
        check.indices("samples", samples, sizes["n_samples"], "n_samples")
        n = sizes["n"]
    shape = (sizes["n_projections + 1"] - 1, n)
    if out is None:
        out = dispatch.array_module(x).empty(shape, dtype)
    else:
        check.same_device(x=x, out=out)
        check.array("out", out, dtype, shape, {})
        check.writable("out", out)
        check.no_overlap({"out": out}, {"x": x, "weight": weight})
    if out.size:
        twin = dispatch.twin(_ROOM, x)
        if samples is None:
            twin.project(x, start, index, weight, out)
        else:
            twin.project_some(x, samples, start, index, weight, out)
    return out
