"""Values of sparse projections."""

import numpy as np

from ..core import check, dispatch
from ..core.aliases import FloatArray, IntArray

_PACKAGE = __package__


def _check_indptr(indptr: IntArray, n_entries: int) -> None:
    if not check.values_checked():
        return
    host = dispatch.to_numpy(indptr)
    if host[0] != 0 or host[-1] != n_entries or bool((np.diff(host) < 0).any()):
        raise ValueError(
            f"indptr: expected 0, ..., n_entries = {n_entries}, in non-decreasing order, got other "
            "numbers; pass the arrays of one set of projections"
        )


def project(
    x: FloatArray,
    indptr: IntArray,
    indices: IntArray,
    data: FloatArray,
    *,
    samples: IntArray | None = None,
    out: FloatArray | None = None,
) -> FloatArray:
    """Returns the values of sparse projections of samples.

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Samples; finite, C-contiguous. Nothing is cast or copied.
    indptr : (n_projections + 1,) array of int64
        Projection p has the entries ``indptr[p]`` to ``indptr[p + 1] - 1``.
    indices : (n_entries,) array of int32
        Features.
    data : (n_entries,) array, dtype of x
        Weights.
    samples : (n,) array of int32, optional
        Rows of x to project, such as those of a node; by default all.

    Returns
    -------
    (n_projections, n) array, dtype of x
        ``sum data[j] x[s, indices[j]]`` over the entries j of a projection; 0 for one without entries.

    Notes
    -----
    Sums run in float64 in the order of the entries and are rounded once: results are bit-identical on every
    device. Cost: a load and a multiplication per entry and sample.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[1.0, 2, 4], [0, 1, 1]])
    >>> indptr, indices = np.array([0, 1, 3]), np.array([1, 0, 2], np.int32)
    >>> hforest.project.project(x, indptr, indices, np.array([1.0, 1, -1]))
    array([[ 2.,  1.],
           [-3., -1.]])
    """
    check.same_device(x=x, indptr=indptr, indices=indices, data=data)
    dtype = check.floating("x", x)
    sizes: check.Sizes = {}
    check.array("x", x, dtype, ("n_samples", "n_features"), sizes)
    check.array("indptr", indptr, check.INT64, ("n_projections + 1",), sizes)
    check.array("indices", indices, check.INT32, ("n_entries",), sizes)
    check.array("data", data, dtype, ("n_entries",), sizes)
    check.at_least_one(sizes, "n_projections + 1")
    n = sizes["n_samples"]
    inputs = {"x": x, "indptr": indptr, "indices": indices, "data": data, "samples": samples}
    indptr, indices = check.owned(indptr), check.owned(indices)
    with check.together(x):
        check.finite("x", x)
        check.indices("indices", indices, sizes["n_features"], "n_features")
        if samples is not None:
            check.same_device(x=x, samples=samples)
            check.array("samples", samples, check.INT32, ("n",), sizes)
            samples = check.owned(samples)
            check.indices("samples", samples, sizes["n_samples"], "n_samples")
            n = sizes["n"]
    _check_indptr(indptr, sizes["n_entries"])
    shape = (sizes["n_projections + 1"] - 1, n)
    if out is None:
        out = dispatch.array_module(x).empty(shape, dtype)
    else:
        check.same_device(x=x, out=out)
        check.array("out", out, dtype, shape, {})
        check.outputs({"out": out}, inputs)
    if out.size:
        dispatch.backend(_PACKAGE, x).project_some(x, samples, indptr, indices, data, out)
    return out
