"""Soft routing: probabilities of leaves, and outputs."""

from typing import Literal

import numpy as np

from ..core import check, dispatch
from ..core.aliases import FloatArray, IntArray
from . import checks

_PACKAGE = "hforest.neural"


def route(f: FloatArray, *, index: IntArray | None = None) -> FloatArray:
    """Returns the probability mu that a sample reaches each leaf (Zhang 2017, section 2).

    mu_l is the product over the path to l of d_v = sigmoid(f_v) where it goes left, and of 1 - d_v where it
    goes right. Parameters: see `forward`.

    Returns
    -------
    mu : (n_samples, n_trees, 2**depth) array, dtype of f
        Probabilities, which sum to 1 over the leaves up to rounding.

    Notes
    -----
    If mu does not fit into memory, pass the samples in parts. Use it for inspection: `forward` and
    `loss_backward` never hold such an array. Cost: for each sample and tree one sigmoid per vertex and one
    product per leaf.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> f = np.log([[[1.0, 3.0, 1.0]]])  # odds of going left
    >>> hforest.neural.route(f).round(6)
    array([[[0.375, 0.125, 0.25 , 0.25 ]]])
    """
    check.same_device(**checks.present(f=f, index=index))
    with check.together(f):
        sizes, index = checks.functions(f, index)
    shape = (sizes["n_samples"], sizes["n_trees"], sizes["2**depth"])
    if np.prod([float(size) for size in shape]) * f.dtype.itemsize >= 2**62:
        raise ValueError(
            f"f: expected samples whose mu fits into memory, got {shape}; split the samples "
            "into several calls"
        )
    mu = dispatch.array_module(f).empty(shape, f.dtype)
    dispatch.backend(_PACKAGE, f).route(checks.flat(f), index, mu)
    return mu


def forward(
    f: FloatArray,
    leaves: FloatArray,
    *,
    index: IntArray | None = None,
    task: Literal["classification", "regression"] = "classification",
) -> FloatArray:
    """Returns the class probabilities of samples, the mean over trees (Zhang 2017, section 2).

    p(k | x) is the mean over trees of sum_l mu_l(x) pi_lk.

    Parameters
    ----------
    f : (n_samples, n_trees, 2**depth - 1) array of float32 or float64
        Decision functions, finite, in log odds of going left; n_samples may be 0. With `index`, (n_samples,
        n_functions).
    leaves : (n_trees, 2**depth, n_classes) array, dtype of f
        Class probabilities of each leaf, pi: at least 0, with sum 1.
    index : (n_trees, 2**depth - 1) array of int32, optional
        Decision function of each vertex, 0 to n_functions - 1; vertices and trees may share one. It is not
        trained.
    task : "classification" or "regression"
        With "regression" leaves hold any finite numbers, in the unit of the targets, up to the largest number
        of the dtype divided by 4 n_trees.

    Returns
    -------
    p : (n_samples, n_classes) array, dtype of f

    Notes
    -----
    Sums of up to 64 leaves run in the dtype of f, then in float64. Cost: for each sample and tree one sigmoid
    per vertex and n_classes products per leaf. Extra memory: about 192 * 2**depth bytes per thread.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> f = np.log([[[3.0]]]); leaves = np.array([[[0.9, 0.1], [0.5, 0.5]]])
    >>> hforest.neural.forward(f, leaves)
    array([[0.8, 0.2]])
    """
    check.choice("task", task, ("classification", "regression"))
    sizes, index = checks.forest(f, leaves, index, probabilities=task == "classification")
    if task == "regression":
        checks.outputs_fit(leaves)
    p = dispatch.array_module(f).empty((sizes["n_samples"], sizes["n_classes"]), f.dtype)
    dispatch.backend(_PACKAGE, f).forward(checks.flat(f), index, leaves, p)
    return p
