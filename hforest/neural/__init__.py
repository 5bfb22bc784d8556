"""Neural decision forests: complete trees whose vertices send a sample both ways, in shares.

Paper 4 (p4): Y. Zhang, *Ensemble Tree Model with Deep Architecture*, 2017, §2, notes on P. Kontschieder,
M. Fiterau, A. Criminisi, S. Rota Bulò, *Deep Neural Decision Forests*, 2015.

The decision functions f are numbers that the caller computes, by a linear layer or any network; this room
routes by them and returns the loss's gradient by them. The leaves hold class probabilities, which a
closed-form update fits.

=========  =========================================  ===============  =====================================
`f`        (n_samples, n_trees, 2**depth - 1)         float32/float64  f_n(x), in natural-log odds
           or (n_samples, n_functions), with `index`
`index`    (n_trees, 2**depth - 1)                    int32            decision function of each vertex
`leaves`   (n_trees, 2**depth, n_classes)             as f             pi, rows that sum to 1
=========  =========================================  ===============  =====================================

Vertices are in heap order (root 0, children 2v + 1 and 2v + 2), leaves from left to right. As in the paper
the *left* child is the positive side, reached with probability d = sigmoid(f): the opposite of
`hforest.hinge`, where a positive decision goes right.

Everything here takes C-contiguous NumPy arrays or CuPy arrays and returns arrays of the same kind.
Wrong kinds and dtypes raise TypeError, wrong shapes and values ValueError, indices out of range
IndexError; the checks that read whole arrays can be skipped inside `hforest.unchecked()`.
"""

from typing import Any, Literal

import numpy as np

from ..core import check, dispatch
from ..core.dispatch import Array
from .linear import Linear, decisions, fit, linear_init, predict, to_hard

__all__ = [
    "Linear",
    "backward",
    "backward_outputs",
    "decisions",
    "fit",
    "forward",
    "linear_init",
    "predict",
    "route",
    "to_hard",
    "uniform_leaves",
    "update_leaves",
]

MAX_DEPTH = 20
"""A tree of depth 20 has a million leaves; every sample reaches all of them."""

_ROOM = __name__
_VERTICES = "2**depth - 1"
_LARGEST_COUNT = 2**31 - 1


# ------------------------------------------------------------------------------- checks of the room


def _depth(name: str, shape: tuple[int, ...], axis: int, text: str) -> int:
    size = shape[axis] if len(shape) > axis else 0
    depth = (size + 1).bit_length() - 1
    if not 1 <= depth <= MAX_DEPTH or size != 2**depth - 1:
        raise ValueError(
            f"{name}: expected shape {text} with 1 <= depth <= {MAX_DEPTH}, got {tuple(shape)}; "
            "a tree of depth 3 has 7 vertices"
        )
    return depth


def _check_functions(f: Array, index: Array | None) -> check.Sizes:
    dtype = check.floating("f", f)
    if index is None:
        depth = _depth("f", f.shape, 2, f"(n_samples, n_trees, {_VERTICES})")
        sizes: check.Sizes = {_VERTICES: 2**depth - 1, "2**depth": 2**depth}
        check.array("f", f, dtype, ("n_samples", "n_trees", _VERTICES), sizes)
        check.at_least_one(sizes, "n_trees")
    else:
        depth = _depth("index", index.shape, 1, f"(n_trees, {_VERTICES})")
        sizes = {_VERTICES: 2**depth - 1, "2**depth": 2**depth}
        check.array("f", f, dtype, ("n_samples", "n_functions"), sizes)
        check.array("index", index, check.INT32, ("n_trees", _VERTICES), sizes)
        check.at_least_one(sizes, "n_trees", "n_functions")
        check.indices("index", index, sizes["n_functions"], "n_functions")
    if sizes["n_samples"] > _LARGEST_COUNT:
        raise ValueError(
            f"f: expected at most 2**31 - 1 samples, got {sizes['n_samples']}; pass them in parts"
        )
    check.finite("f", f)
    return sizes


def _check_leaves(leaves: Array, dtype: np.dtype, sizes: check.Sizes, *, probabilities: bool) -> None:
    check.array("leaves", leaves, dtype, ("n_trees", "2**depth", "n_classes"), sizes)
    check.at_least_one(sizes, "n_classes")
    if sizes["n_classes"] > _LARGEST_COUNT:
        raise ValueError(f"leaves: expected at most 2**31 - 1 classes, got {sizes['n_classes']}; merge some")
    check.finite("leaves", leaves)
    if not probabilities or not check.values_checked():
        return
    worst = abs(leaves.sum(axis=2, dtype=np.float64) - 1).max()
    if float(leaves.min()) < 0 or float(worst) > float(np.finfo(dtype).eps) ** 0.5:
        raise ValueError(
            f"leaves: expected probabilities that sum to 1 in every leaf, got a least one of "
            f"{float(leaves.min()):g} and a sum that is {float(worst):g} off; divide by "
            "leaves.sum(axis=2, keepdims=True), or begin with hforest.neural.uniform_leaves"
        )


def _check_labels(y: Array, sizes: check.Sizes) -> None:
    check.array("y", y, check.INT32, ("n_samples",), sizes)
    check.indices("y", y, sizes["n_classes"], "n_classes")


def _given(**arrays: Array | None) -> dict[str, Any]:
    return {name: a for name, a in arrays.items() if a is not None}


def _gradient(f: Array, out: Array | None, inputs: dict[str, Array | None]) -> Array:
    """Where a gradient by f goes: `out`, which overlaps no input, or a new array."""
    if out is None:
        return dispatch.array_module(f).empty(f.shape, f.dtype)
    check.same_device(f=f, out=out)
    check.array("out", out, f.dtype, f.shape, {})
    check.writable("out", out)
    check.no_overlap({"out": out}, _given(**inputs))
    return out


def _flat(f: Array) -> Array:
    # Trees and vertices as one axis, so that twins see one layout.
    return f.reshape(f.shape[0], -1) if f.size else f.reshape(0, int(np.prod(f.shape[1:], dtype=np.int64)))


# ------------------------------------------------------------------------------------------ routing


def route(f: Array, *, index: Array | None = None) -> Array:
    """Probability mu that a sample reaches each leaf (p4 §2).

    mu_l = product over the path to l of d_v where it goes left and 1 - d_v where it goes right, with
    d_v = sigmoid(f_v).

    Parameters
    ----------
    f : (n_samples, n_trees, 2**depth - 1) array of float32 or float64
        Decision functions, in log odds of going left. Finite. Zero samples are legal. With `index`,
        (n_samples, n_functions).
    index : (n_trees, 2**depth - 1) array of int32, optional
        Decision function of each vertex, 0 to n_functions - 1; vertices and trees may share some.

    Returns
    -------
    mu : (n_samples, n_trees, 2**depth) array, dtype of f
        Sums to 1 over the leaves within rounding.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape, layout, depth above 20, NaN or infinity; an index outside f.
    MemoryError
        mu does not fit into memory; pass the samples in parts.

    Notes
    -----
    Meant for looking at: `forward` and `backward` never hold such an array. Cost: one sigmoid a vertex and
    one product a leaf for each sample and tree.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> f = np.log([[[1.0, 3.0, 1.0]]])  # odds of going left
    >>> hforest.neural.route(f).round(6)
    array([[[0.375, 0.125, 0.25 , 0.25 ]]])
    """
    check.same_device(**_given(f=f, index=index))
    sizes = _check_functions(f, index)
    shape = (sizes["n_samples"], sizes["n_trees"], sizes["2**depth"])
    if np.prod([float(size) for size in shape]) * f.dtype.itemsize >= 2**62:
        raise ValueError(f"f: expected samples whose mu fits into memory, got {shape}; pass them in parts")
    mu = dispatch.array_module(f).empty(shape, f.dtype)
    dispatch.twin(_ROOM, f).route(_flat(f), index, mu)
    return mu


# ------------------------------------------------------------------------------------------ outputs


def forward(
    f: Array,
    leaves: Array,
    *,
    index: Array | None = None,
    task: Literal["classification", "regression"] = "classification",
) -> Array:
    """Class probabilities of samples, the mean over trees (p4 §2).

    p(k | x) = mean over trees of sum_l mu_l(x) pi_lk.

    Parameters
    ----------
    f : (n_samples, n_trees, 2**depth - 1) array of float32 or float64
        Decision functions, in log odds of going left. Finite. Zero samples are legal. With `index`,
        (n_samples, n_functions).
    leaves : (n_trees, 2**depth, n_classes) array, dtype of f
        pi: at least 0, and 1 in sum over a leaf's classes.
    index : (n_trees, 2**depth - 1) array of int32, optional
        Decision function of each vertex.
    task : "classification" or "regression"
        With "regression" leaves hold any finite numbers, in the unit of the targets.

    Returns
    -------
    p : (n_samples, n_classes) array, dtype of f

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape, layout, depth above 20, NaN or infinity, leaves that are no
        probabilities; an index outside f.

    Notes
    -----
    Sums of up to 64 leaves run in the dtype of f, then in float64. Cost: a sigmoid a vertex and n_classes
    products a leaf for each sample and tree. Extra memory: about 192 * 2**depth bytes a thread.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> f = np.log([[[3.0]]]); leaves = np.array([[[0.9, 0.1], [0.5, 0.5]]])
    >>> hforest.neural.forward(f, leaves)
    array([[0.8, 0.2]])
    """
    check.choice("task", task, ("classification", "regression"))
    check.same_device(**_given(f=f, leaves=leaves, index=index))
    sizes = _check_functions(f, index)
    _check_leaves(leaves, f.dtype, sizes, probabilities=task == "classification")
    p = dispatch.array_module(f).empty((sizes["n_samples"], sizes["n_classes"]), f.dtype)
    dispatch.twin(_ROOM, f).forward(_flat(f), index, leaves, p)
    return p


# ---------------------------------------------------------------------------------------- gradients


def backward(
    f: Array,
    leaves: Array,
    y: Array,
    *,
    index: Array | None = None,
    loss: Literal["forest", "tree"] = "forest",
    return_p: bool = False,
    out: Array | None = None,
) -> Any:
    """Negative log-likelihood of labels, and its gradient by the decision functions (p4 §2).

    Parameters
    ----------
    f : (n_samples, n_trees, 2**depth - 1) array of float32 or float64
        Decision functions, in log odds of going left. Finite. Zero samples are legal. With `index`,
        (n_samples, n_functions).
    leaves : (n_trees, 2**depth, n_classes) array, dtype of f
        pi: at least 0, and 1 in sum over a leaf's classes.
    y : (n_samples,) array of int32
        Labels, 0 to n_classes - 1.
    index : (n_trees, 2**depth - 1) array of int32, optional
        Decision function of each vertex.
    loss : "forest" or "tree"
        -log of the forest's mean probability, or the mean over trees of each tree's own -log P_T as p4
        writes it; for one tree they are the same.
    return_p : bool
        Also return the class probabilities, for much less than a call of `forward`.
    out : array, shape and dtype of f, optional
        Where to write grad_f: a training loop keeps one array for all its steps.

    Returns
    -------
    loss : float
        Mean over the samples, in nats; 0.0 for no samples. Infinite where a sample's class has
        probability 0 in every leaf.
    grad_f : array, shape and dtype of f
        Gradient of that mean. Samples of infinite loss have gradient 0 (with "tree": from the trees of
        infinite loss).
    p : (n_samples, n_classes) array, dtype of f
        With `return_p` only: what `forward` returns, bit for bit.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape, layout, depth above 20, NaN or infinity, leaves that are no
        probabilities, an `out` that is read-only or overlaps another array; a label that is no class, an
        index outside f.

    Notes
    -----
    With A_m the part of P[y | x] that comes from the leaves below m, divided by P[y | x],
    dL/df_v = d_v A_right(v) - (1 - d_v) A_left(v); the forest's loss weighs a tree by its share of the
    mean. p4 prints the formula with garbled indices; this one agrees with central differences. Where
    products of decisions leave the range of the dtype, a sample is done again in float64 logarithms, so
    saturated decisions have exact gradients too.

    Cost: a sigmoid a vertex and about eight operations more for each sample and tree, with `return_p` also
    n_classes products a leaf; f is read and grad_f written once. Extra memory: about 256 * 2**depth bytes a
    thread. On a GPU this waits for the loss.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> f = np.log([[[3.0]]]); leaves = np.array([[[0.9, 0.1], [0.5, 0.5]]])
    >>> loss, grad_f = hforest.neural.backward(f, leaves, np.array([0], dtype=np.int32))
    >>> round(loss, 6), grad_f.round(6)
    (0.223144, array([[[-0.09375]]]))
    """
    check.choice("loss", loss, ("forest", "tree"))
    check.same_device(**_given(f=f, leaves=leaves, y=y, index=index))
    sizes = _check_functions(f, index)
    _check_leaves(leaves, f.dtype, sizes, probabilities=True)
    _check_labels(y, sizes)
    n = sizes["n_samples"]
    grad_f = _gradient(f, out, {"f": f, "leaves": leaves, "y": y, "index": index})
    empty = dispatch.array_module(f).empty
    losses, p = empty(n, np.float64), empty((n, sizes["n_classes"]), f.dtype) if return_p else None
    dispatch.twin(_ROOM, f).backward(_flat(f), index, leaves, y, loss == "forest", losses, _flat(grad_f), p)
    mean = float(losses.sum()) / n if n else 0.0
    return (mean, grad_f, p) if return_p else (mean, grad_f)


def backward_outputs(
    grad_p: Array, f: Array, leaves: Array, *, index: Array | None = None, out: Array | None = None
) -> Array:
    """Gradient by the decision functions of any loss of `forward`'s result: regression, or your own.

    Parameters
    ----------
    grad_p : (n_samples, n_classes) array of float32 or float64
        Gradient of the loss by p. Finite.
    f : (n_samples, n_trees, 2**depth - 1) array, dtype of grad_p
        Decision functions, in log odds of going left. Finite. Zero samples are legal. With `index`,
        (n_samples, n_functions).
    leaves : (n_trees, 2**depth, n_classes) array, dtype of grad_p
        Any finite numbers.
    index : (n_trees, 2**depth - 1) array of int32, optional
        Decision function of each vertex.
    out : array, shape and dtype of f, optional
        Where to write the result.

    Returns
    -------
    grad_f : array, shape and dtype of f

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape, layout, depth above 20, NaN or infinity, an `out` that is
        read-only or overlaps another array; an index outside f.

    Notes
    -----
    With V_m = sum over leaves l below m of mu_l / mu_m (leaves_l . grad_p),
    dL/df_v = mu_v d_v (1 - d_v) (V_left - V_right) / n_trees. Cost: that of `forward` and `backward`
    together.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> f = np.zeros((1, 1, 1)); leaves = np.array([[[2.0], [-2.0]]])
    >>> p = hforest.neural.forward(f, leaves, task="regression")
    >>> loss, grad_p = hforest.layers.squared_loss(p, np.array([[1.0]]))
    >>> hforest.neural.backward_outputs(grad_p, f, leaves)
    array([[[-1.]]])
    """
    check.same_device(**_given(grad_p=grad_p, f=f, leaves=leaves, index=index))
    sizes = _check_functions(f, index)
    _check_leaves(leaves, f.dtype, sizes, probabilities=False)
    check.array("grad_p", grad_p, f.dtype, ("n_samples", "n_classes"), sizes)
    check.finite("grad_p", grad_p)
    grad_f = _gradient(f, out, {"grad_p": grad_p, "f": f, "leaves": leaves, "index": index})
    dispatch.twin(_ROOM, f).backward_outputs(grad_p, _flat(f), index, leaves, _flat(grad_f))
    return grad_f


# ------------------------------------------------------------------------------------------- leaves


def uniform_leaves(n_trees: int, depth: int, n_classes: int, *, dtype: Any = np.float32) -> np.ndarray:
    """Leaves that hold every class for equally likely: where p4's update begins.

    Parameters
    ----------
    n_trees, n_classes : int
        At least 1.
    depth : int
        1 to 20.
    dtype : float32 or float64

    Returns
    -------
    leaves : (n_trees, 2**depth, n_classes) NumPy array

    Raises
    ------
    TypeError, ValueError
        A size that is no integer; out of range; another dtype.

    Examples
    --------
    >>> import hforest
    >>> hforest.neural.uniform_leaves(1, 1, 4)
    array([[[0.25, 0.25, 0.25, 0.25],
            [0.25, 0.25, 0.25, 0.25]]], dtype=float32)
    """
    n_trees = check.integer("n_trees", n_trees, 1, _LARGEST_COUNT)
    depth = check.integer("depth", depth, 1, MAX_DEPTH)
    n_classes = check.integer("n_classes", n_classes, 1, _LARGEST_COUNT)
    kind = np.dtype(dtype)
    if kind not in check.FLOATS:
        raise TypeError(f"dtype: expected float32 or float64, got {kind}; choose one of them")
    if n_trees * 2**depth * n_classes * kind.itemsize >= 2**62:
        raise ValueError(
            f"n_trees: expected leaves that fit into memory, got {n_trees} trees of depth {depth} with "
            f"{n_classes} classes; choose fewer"
        )
    return np.full((n_trees, 2**depth, n_classes), 1 / n_classes, kind)


def update_leaves(
    f: Array, y: Array, leaves: Array, n_iter: int = 20, *, index: Array | None = None
) -> Array:
    """Fit the leaves' class probabilities to labelled samples, each tree for itself (p4 §2, last formula).

    pi_lk <- sum over samples of class k of pi_lk mu_l(x) / P_T[k | x], divided by the row's sum Z_l.

    Parameters
    ----------
    f : (n_samples, n_trees, 2**depth - 1) array of float32 or float64
        Decision functions of the whole training set, in log odds of going left. Finite. Zero samples are
        legal, and change nothing. With `index`, (n_samples, n_functions).
    y : (n_samples,) array of int32
        Labels, 0 to n_classes - 1.
    leaves : (n_trees, 2**depth, n_classes) array, dtype of f
        Where to begin: `uniform_leaves`, or leaves fitted before. A class that a leaf holds for
        impossible stays so.
    n_iter : int
        Iterations, at least 0; p4 and its source take 20 an epoch.
    index : (n_trees, 2**depth - 1) array of int32, optional
        Decision function of each vertex.

    Returns
    -------
    leaves : (n_trees, 2**depth, n_classes) array, dtype of f
        A new array.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape, layout, depth above 20, NaN or infinity, leaves that are no
        probabilities, a negative n_iter; a label that is no class, an index outside f.

    Notes
    -----
    Expectation maximisation with the leaf as hidden variable: an iteration never lowers the likelihood of
    the labels under any tree. A leaf that no sample reaches (its Z is below 2**-40 of a sample) keeps its
    row, which cannot lower it either, as leaves do not share parameters. A sample whose class has
    probability 0 in every leaf adds nothing.

    Trees do not see one another, so a forest whose f is too large to hold is fitted tree by tree. Posteriors
    are added over 16 (float32) or 8 (float64) samples in the dtype of f, then in float64. Cost: a pass of
    sigmoids over f, and in every iteration four operations a leaf and sample. Extra memory: mu of as many
    trees as fit into 256 MiB, float64 sums for the leaves of one to 64 trees, and about 256 * 2**depth bytes
    a thread. Where mu of a single tree does not fit, samples are routed again in every iteration, as they
    always are on a GPU.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> f = np.array([[[9.0]], [[9.0]], [[-9.0]]]); y = np.array([0, 0, 1], dtype=np.int32)
    >>> start = hforest.neural.uniform_leaves(1, 1, 2, dtype=np.float64)
    >>> hforest.neural.update_leaves(f, y, start).round(3)
    array([[[1., 0.],
            [0., 1.]]])
    """
    check.same_device(**_given(f=f, y=y, leaves=leaves, index=index))
    sizes = _check_functions(f, index)
    _check_leaves(leaves, f.dtype, sizes, probabilities=True)
    _check_labels(y, sizes)
    n_iter = check.integer("n_iter", n_iter, 0)
    result = leaves.copy()
    if sizes["n_samples"]:
        dispatch.twin(_ROOM, f).update_leaves(_flat(f), index, y, n_iter, result)
    return result
