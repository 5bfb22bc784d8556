"""Class probabilities of leaves: initial values and updates."""

import math

import numpy as np

from ..core import check, dispatch
from ..core.aliases import ArrayLike, DType, FloatArray, IntArray
from . import checks

_PACKAGE = "hforest.neural"


def uniform_leaves(n_trees: int, depth: int, n_classes: int, *, dtype: DType = np.float32) -> FloatArray:
    """Returns leaves in which all classes have equal probability, the usual start of `update_leaves`.

    Parameters
    ----------
    n_trees, n_classes : int
        At least 1.
    depth : int
        1 to 20.

    Returns
    -------
    leaves : (n_trees, 2**depth, n_classes) NumPy array

    Examples
    --------
    >>> import hforest
    >>> hforest.neural.uniform_leaves(1, 1, 4)
    array([[[0.25, 0.25, 0.25, 0.25],
            [0.25, 0.25, 0.25, 0.25]]], dtype=float32)
    """
    n_trees = check.integer("n_trees", n_trees, 1, check.MAX_COUNT)
    depth = check.integer("depth", depth, 1, checks.MAX_DEPTH)
    n_classes = check.integer("n_classes", n_classes, 1, check.MAX_COUNT)
    kind = check.float_dtype(dtype)
    shape = (n_trees, 2**depth, n_classes)
    with check.memory("n_trees", "leaves", math.prod(shape) * kind.itemsize):
        return np.full(shape, 1 / n_classes, kind)


def update_leaves(
    f: FloatArray,
    y: ArrayLike,
    leaves: FloatArray,
    n_iter: int = 20,
    *,
    index: IntArray | None = None,
    sample_weight: ArrayLike | None = None,
) -> FloatArray:
    """Returns leaves fitted to labelled samples, tree by tree (Zhang 2017, section 2, last formula).

    pi_lk <- sum over samples of class k of pi_lk mu_l(x) / P_T[k | x], divided by the row's sum Z_l. Other
    parameters: see `loss_backward`.

    Parameters
    ----------
    f : (n_samples, n_trees, 2**depth - 1) array of float32 or float64
        Decision functions of the whole training set, finite, in log odds of going left; without samples
        leaves do not change. With `index`, (n_samples, n_functions).
    leaves : (n_trees, 2**depth, n_classes) array, dtype of f
        Initial leaves: those of `uniform_leaves`, or of an earlier call. A class of probability 0 in a leaf
        keeps it.
    n_iter : int
        Number of iterations, 0 to 2**20; Kontschieder et al. 2015 take 20 per epoch.

    Returns
    -------
    leaves : array, shape and dtype of the argument
        A new array.

    Notes
    -----
    This is expectation maximisation with the leaf as hidden variable: an iteration never lowers the
    likelihood of the labels under any tree. A leaf that no sample reaches (Z below 2**-40 of a sample) keeps
    its row. A sample whose class has probability 0 in every leaf adds nothing.

    Trees are independent, so if f of the forest is too large for memory, fit tree by tree. Posteriors are
    added over 16 (float32) or 8 (float64) samples in the dtype of f, then in float64. Cost: a pass of
    sigmoids over f, and in every iteration four operations per leaf and sample. Extra memory: mu of as many
    trees as fit into 256 MiB, float64 sums for the leaves of one to 64 trees, and about 256 * 2**depth bytes
    per thread. If mu of a single tree does not fit, samples are routed again in every iteration, as they
    always are on a GPU.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> f = np.array([[[9.0]], [[9.0]], [[-9.0]]]); y = np.array([0, 0, 1])
    >>> start = hforest.neural.uniform_leaves(1, 1, 2, dtype=np.float64)
    >>> hforest.neural.update_leaves(f, y, start).round(3)
    array([[[1., 0.],
            [0., 1.]]])
    """
    sizes, index = checks.forest(f, leaves, index)
    y = checks.labels(f, y, sizes)
    weight = checks.weights(y, sample_weight)
    n_iter = check.integer("n_iter", n_iter, 0, checks.MAX_ITERATIONS)
    result = leaves.copy()
    if sizes["n_samples"]:
        dispatch.backend(_PACKAGE, f).update_leaves(checks.flat(f), index, y, weight, n_iter, result)
    return result
