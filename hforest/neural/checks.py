"""Checks that the functions of this subpackage share: decision functions, leaves, labels, results."""

from typing import Any

import numpy as np

from ..core import check, dispatch, supervised
from ..core.aliases import Array, ArrayLike, FloatArray, IntArray

MAX_DEPTH = 20
"""A tree of depth 20 has a million leaves; every sample reaches all of them."""

MAX_ITERATIONS = 2**20
"""Maximum number of iterations of a leaf update; tens are usual."""

_VERTICES = "2**depth - 1"


def _depth(name: str, shape: tuple[int, ...], axis: int, text: str) -> int:
    size = shape[axis] if len(shape) > axis else 0
    depth = (size + 1).bit_length() - 1
    if not 1 <= depth <= MAX_DEPTH or size != 2**depth - 1:
        raise ValueError(
            f"{name}: expected shape {text} with 1 <= depth <= {MAX_DEPTH}, got {tuple(shape)}; "
            "pass, for example, 7 vertices for depth 3"
        )
    return depth


def functions(f: FloatArray, index: IntArray | None) -> tuple[check.Sizes, IntArray | None]:
    """Checks decision functions; returns the sizes that they set, and a copy of the index of shared ones."""
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
        index = check.owned(index)
        check.indices("index", index, sizes["n_functions"], "n_functions")
    if sizes["n_samples"] > check.MAX_COUNT:
        raise ValueError(
            f"f: expected at most 2**31 - 1 samples, got {sizes['n_samples']}; split them into several calls"
        )
    check.finite("f", f, remedy=check.OF_LAYERS)
    return sizes, index


def _leaf_values(leaves: FloatArray, dtype: np.dtype, sizes: check.Sizes) -> None:
    """Checks that leaves fit the decision functions."""
    check.array("leaves", leaves, dtype, ("n_trees", "2**depth", "n_classes"), sizes)
    check.at_least_one(sizes, "n_classes")
    if sizes["n_classes"] > check.MAX_COUNT:
        raise ValueError(
            f"leaves: expected at most 2**31 - 1 classes, got {sizes['n_classes']}; merge some classes"
        )
    check.finite("leaves", leaves)


def _probabilities(leaves: FloatArray) -> None:
    """Checks that every leaf sums to 1, unless inside `unchecked()`."""
    if not check.values_checked():
        return
    worst = abs(leaves.sum(axis=2, dtype=np.float64) - 1).max()
    # Leaves of float64 may be those of float32, cast.
    if float(leaves.min()) < 0 or float(worst) > max(float(np.finfo(leaves.dtype).eps) ** 0.5, 1e-5):
        raise ValueError(
            "leaves: expected probabilities that sum to 1 in every leaf, got a minimum of "
            f"{float(leaves.min()):g} and a sum that differs from 1 by {float(worst):g}; divide by "
            "leaves.sum(axis=2, keepdims=True), or start from hforest.neural.uniform_leaves"
        )


def forest(
    f: FloatArray,
    leaves: FloatArray,
    index: IntArray | None,
    *,
    probabilities: bool = True,
    **others: Array,
) -> tuple[check.Sizes, IntArray | None]:
    """Checks the arguments of a forest, all on one device; returns the sizes that they set, and the index."""
    check.same_device(**others, **present(f=f, leaves=leaves, index=index))
    with check.together(f):
        sizes, index = functions(f, index)
        _leaf_values(leaves, f.dtype, sizes)
    if probabilities:
        _probabilities(leaves)
    return sizes, index


def _largest(a: FloatArray) -> float:
    return max(float(a.max()), -float(a.min())) if a.size else 0.0


def outputs_fit(leaves: FloatArray) -> None:
    """Checks that means of these leaves over trees do not overflow, unless inside `unchecked()`."""
    if not check.values_checked():
        return
    size, limit = _largest(leaves), float(np.finfo(leaves.dtype).max) / (4 * len(leaves))
    if size > limit:
        raise ValueError(
            f"leaves: expected numbers of at most {limit:.3g}, so that sums over {len(leaves)} trees stay "
            f"finite, got {size:.3g}; divide the targets by a constant, such as their standard deviation"
        )


def gradients_fit(grad_p: FloatArray, leaves: FloatArray) -> None:
    """Checks that products of leaves and gradients do not overflow, unless inside `unchecked()`."""
    if not check.values_checked():
        return
    # A vertex has n_classes products below; a function's gradient sums at most half of that over each level.
    slope, size, limit = _largest(grad_p), _largest(leaves), float(np.finfo(leaves.dtype).max) / 64
    if slope * size * leaves.shape[2] > limit:
        name = "grad_p" if slope >= size else "leaves"
        raise ValueError(
            f"{name}: expected sums of grad_p * leaves of at most {limit:.3g}, got grad_p up to {slope:.3g} "
            f"and leaves up to {size:.3g} for {leaves.shape[2]} classes; divide the targets or "
            "the loss by a constant"
        )


def labels(f: FloatArray, y: ArrayLike, sizes: check.Sizes) -> IntArray:
    """Returns the labels of the samples of `f` as int32, on its device."""
    classes, _ = supervised.labels("y", y, sizes["n_samples"], sizes["n_classes"])
    check.same_device(f=f, y=classes)
    return classes


def weights(y: IntArray, sample_weight: ArrayLike | None) -> FloatArray | None:
    """Returns float64 weights of the samples of `y`, divided by their mean; None for None or no samples."""
    if sample_weight is None:
        return None
    weight = supervised.sample_weight(sample_weight, y, some_above_0=len(y) > 0)
    # NumPy adds them: the sum of a GPU has another order.
    return weight / float(dispatch.to_numpy(weight).mean()) if len(y) else None


def present(**arrays: Array | None) -> dict[str, Any]:
    """Returns the arrays without those that are None, such as the index of shared decision functions."""
    return {name: a for name, a in arrays.items() if a is not None or name != "index"}


def gradient(f: FloatArray, out: FloatArray | None, inputs: dict[str, Array | None]) -> FloatArray:
    """Returns the array for a gradient with respect to f: `out`, which overlaps no input, or a new one."""
    if out is None:
        return dispatch.array_module(f).empty(f.shape, f.dtype)
    check.same_device(f=f, out=out)
    check.array("out", out, f.dtype, f.shape, {})
    check.outputs({"out": out}, inputs)
    return out


def flat(f: FloatArray) -> FloatArray:
    """Returns `f` with trees and vertices as one axis, the layout that backends take."""
    return f.reshape(f.shape[0], -1) if f.size else f.reshape(0, int(np.prod(f.shape[1:], dtype=np.int64)))
