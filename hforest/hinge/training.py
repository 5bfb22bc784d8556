"""Forward and backward of a training step with exact Adam, at the cost of what a batch touches.

The dense step (`tree_forward`, `tree_backward`, `optim.adam`) moves every weight at every step. Here the
weights that a batch does not reach are not moved; their missed steps are taken when they are next read
(`optim.adam_catch_up` has the equations). The gradients of a tree are used as soon as they are known, without
an array of gradients for the forest.
"""

import math
from typing import Literal, NamedTuple

import numpy as np

from .. import optim
from ..core import check, dispatch
from ..core.aliases import FloatArray, IntArray
from ..optim.settings import check_adam
from ..optim.tables import tables
from .shared import (
    PACKAGE,
    VERTICES,
    Arrays,
    Kind,
    Route,
    check_depth,
    check_grad_y,
    check_route,
    check_routing,
    check_weights,
    divisor_of,
    flat,
    results,
)

Total = Literal["sum", "mean"]
_TOTALS = ("sum", "mean")

EAGER = 2**10 - 1
"""Vertices of the first ten levels. They move at every step: a batch of some fifty samples reaches most of
them, and a vector instruction moves up to sixteen neighbours."""


class AdamState(NamedTuple):
    """The state of Adam for a forest; `adam_state` makes it, the training functions change it in place.

    What the moments hold is checked by `adam_sync`, which reads all of them. The functions of a step do not
    check it, as that would cost more than the step: second moments that are NaN, infinite or below 0 make the
    parameters that are read NaN there.
    """

    thresholds_m: FloatArray
    """First moments, shape and dtype of thresholds."""
    thresholds_v: FloatArray
    """Second moments."""
    thresholds_last: IntArray
    """(n_trees, n_vertices) int64: step that each vertex has reached. The first ten levels move at every
    step; for them only `adam_sync` writes it."""
    weights_m: FloatArray
    """First moments, shape and dtype of weights."""
    weights_v: FloatArray
    """Second moments."""
    weights_last: IntArray
    """(n_trees, n_leaves) int64: step that each leaf has reached."""


def adam_state(thresholds: FloatArray, weights: FloatArray) -> AdamState:
    """Adam's state before the first step: zeros.

    Parameters
    ----------
    thresholds : (n_trees, n_vertices) array of float32 or float64
    weights : (n_trees, n_leaves, *outputs) array, dtype of thresholds

    Returns
    -------
    AdamState
        Arrays on the device of thresholds.

    Raises
    ------
    TypeError, ValueError
        Wrong dtype or device; wrong shape or layout.

    Notes
    -----
    Memory: twice that of the parameters, and 8 bytes a vertex and leaf.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> state = hforest.hinge.adam_state(np.zeros((5, 3)), np.zeros((5, 4, 2)))
    >>> state.weights_m.shape, state.weights_last.shape
    ((5, 4, 2), (5, 4))
    """
    _check_parameters(thresholds, weights)
    zeros = dispatch.array_module(thresholds).zeros
    return AdamState(
        zeros(thresholds.shape, thresholds.dtype),
        zeros(thresholds.shape, thresholds.dtype),
        zeros(thresholds.shape, np.int64),
        zeros(weights.shape, weights.dtype),
        zeros(weights.shape, weights.dtype),
        zeros(weights.shape[:2], np.int64),
    )


def adam_sync(
    thresholds: FloatArray,
    weights: FloatArray,
    state: AdamState,
    step: int,
    lr: float,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
) -> None:
    """Take the missed steps of a whole forest up to `step`, in place.

    Call it before the forest is evaluated or saved, and before the learning rate changes.

    Parameters
    ----------
    thresholds, weights : arrays
        Parameters. Changed in place.
    state : AdamState
        Changed in place.
    step : int
        Last step taken; at 0 nothing happens.
    lr, beta1, beta2, eps : float
        As in the steps.

    Raises
    ------
    TypeError, ValueError
        Wrong dtype or device; wrong shape or layout; a row of the state beyond `step`; moments that are NaN
        or infinite, second moments below 0; a number out of its range. Nothing has changed then.

    Notes
    -----
    `optim.adam_catch_up` for every vertex and leaf. Cost: a few dense steps of Adam for those with missed
    steps, one read of the state for the others.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> t = np.zeros((1, 1)); w = np.zeros((1, 2)); state = hforest.hinge.adam_state(t, w)
    >>> hforest.hinge.adam_sync(t, w, state, 3, 0.01)
    >>> state.weights_last
    array([[3, 3]])
    """
    _check_parameters(thresholds, weights)
    arrays = _check_state(thresholds, weights, state)
    check.outputs({"thresholds": thresholds, "weights": weights, **arrays}, {})
    step, (lr, beta1, beta2, eps) = check_adam(step, lr, beta1, beta2, eps, thresholds.dtype, first=0)
    _check_last(state, step, "step")
    _check_moments(arrays)
    tables(thresholds, beta1, beta2, step)  # refuses a step beyond them before anything has changed
    state.thresholds_last[:, :EAGER] = step
    for param, m, v, last in (
        (thresholds, state.thresholds_m, state.thresholds_v, state.thresholds_last),
        (weights, state.weights_m, state.weights_v, state.weights_last),
    ):
        n_rows = last.size
        p, first, second = (a.reshape(n_rows, *a.shape[2:]) for a in (param, m, v))
        optim.adam_catch_up(
            p, first, second, last.reshape(n_rows), step, lr, beta1=beta1, beta2=beta2, eps=eps
        )


# ------------------------------------------------------------------------------- checks


def _check_parameters(thresholds: FloatArray, weights: FloatArray) -> None:
    check.same_device(thresholds=thresholds, weights=weights)
    dtype = check.floating("thresholds", thresholds)
    sizes: check.Sizes = {}
    check.array("thresholds", thresholds, dtype, ("n_trees", "n_vertices"), sizes)
    check.array("weights", weights, dtype, ("n_trees", "n_leaves", ...), sizes)
    check.at_least_one(sizes, "n_trees", "n_vertices", "n_leaves")


def _check_state(thresholds: FloatArray, weights: FloatArray, state: AdamState) -> dict[str, FloatArray]:
    if not isinstance(state, AdamState):
        raise TypeError(
            f"state: expected an AdamState, got {type(state).__name__}; "
            "adam_state(thresholds, weights) makes one"
        )
    arrays = {f"state.{name}": a for name, a in state._asdict().items()}
    check.same_device(thresholds=thresholds, **arrays)
    for name, a in arrays.items():
        of = thresholds if name.startswith("state.thresholds") else weights
        last = name.endswith("last")
        shape = tuple(of.shape[:2] if last else of.shape)
        check.array(name, a, check.INT64 if last else np.dtype(of.dtype), shape, {})
    return arrays


def _check_last(state: AdamState, reached: int, what: str) -> None:
    # A row cannot return to an earlier step.
    if not check.values_checked():
        return
    for name in ("thresholds_last", "weights_last"):
        last = getattr(state, name)
        # One pass: as unsigned numbers negative ones are the largest.
        if int(last.view(np.uint64).max()) <= reached:
            continue
        index = divmod(int(last.view(np.uint64).argmax()), last.shape[1])
        raise ValueError(
            f"state.{name}: expected 0 <= last <= {what} = {reached}, got {int(last[index])} at index "
            f"{index}; pass the steps 1, 2, ... in order, each once, and the state of these parameters"
        )


def _check_moments(arrays: dict[str, FloatArray]) -> None:
    if not check.values_checked():
        return
    remedy = "training has diverged, go back to a checkpoint or lower the learning rate"
    for name, a in arrays.items():
        if name.endswith("last"):
            continue
        try:
            check.finite(name, a)
        except ValueError as error:
            raise ValueError(f"{str(error).split('; ')[0]}; {remedy}") from None
        if name.endswith("v") and a.size and float(a.min()) < 0:
            raise ValueError(
                f"{name}: expected second moments of at least 0, got {float(a.min()):g}; pass the state of "
                "these parameters, unchanged"
            )


def _flat_state(state: AdamState, n_outputs: int) -> AdamState:
    return state._replace(
        weights_m=flat(state.weights_m, 2, n_outputs), weights_v=flat(state.weights_v, 2, n_outputs)
    )


# -------------------------------------------------------------------------------------------- steps


def _forward(
    kind: Kind,
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    weights: FloatArray,
    state: AdamState,
    step: int,
    lr: float,
    aggregate: Total,
    numbers: tuple[float, float, float],
) -> tuple[FloatArray, Route]:
    check.same_device(x=x, thresholds=thresholds, features=features, weights=weights)
    sizes = check_routing(kind, x, thresholds, features)
    outputs = check_weights(weights, x.dtype, sizes)
    check.choice("aggregate", aggregate, _TOTALS)
    moments = _check_state(thresholds, weights, state)
    inputs = {"x": x, "features": features}
    check.outputs({"thresholds": thresholds, "weights": weights, **moments}, inputs)
    step, settings = check_adam(step, lr, *numbers, x.dtype)
    _check_last(state, step - 1, "step - 1")
    n, n_trees, n_outputs = sizes["n_samples"], sizes["n_trees"], sizes["n_outputs"]
    shape = (n, n_trees)
    y, leaf, margin, vertex = results(
        ("y", "leaf", "margin", "vertex"),
        None,
        ((n, *outputs), shape, shape, shape),
        (x.dtype, np.int32, x.dtype, np.int32),
        inputs,
    )
    route = Route(leaf, margin, vertex)
    getattr(dispatch.backend(PACKAGE, x), f"{kind}_adam_forward")(
        x,
        (thresholds, features, flat(weights, 2, n_outputs)),
        _flat_state(state, n_outputs),
        step,
        (*settings, tables(x, settings[1], settings[2], step)),
        divisor_of(aggregate, n_trees),
        route,
        flat(y, 1, n_outputs),
    )
    return y, route


def _backward(
    kind: Kind,
    grad_y: FloatArray,
    route: Route,
    parameters: Arrays,
    state: AdamState,
    n_features: int,
    step: int,
    lr: float,
    aggregate: Total,
    numbers: tuple[float, float, float],
) -> FloatArray:
    (leaf, margin, vertex), (thresholds, features, weights) = route, parameters
    inputs = {"grad_y": grad_y, "leaf": leaf, "margin": margin, "vertex": vertex, "features": features}
    check.same_device(**inputs, thresholds=thresholds, weights=weights)
    n_features = check.integer("n_features", n_features, 1, check.MAX_COUNT)
    sizes = check_depth(kind, "features", features)
    dtype = check_route(leaf, margin, sizes)
    check.array("vertex", vertex, check.INT32, ("n_samples", "n_trees"), sizes)
    check.array("thresholds", thresholds, dtype, ("n_trees", VERTICES[kind]), sizes)
    check.array("features", features, check.INT32, ("n_trees", VERTICES[kind]), sizes)
    outputs = check_weights(weights, dtype, sizes)
    n_outputs = sizes["n_outputs"]
    check.choice("aggregate", aggregate, _TOTALS)
    check.array("grad_y", grad_y, dtype, ("n_samples", *outputs), sizes)
    check_grad_y(grad_y)
    moments = _check_state(thresholds, weights, state)
    check.outputs({"thresholds": thresholds, "weights": weights, **moments}, inputs)
    step, settings = check_adam(step, lr, *numbers, dtype)
    _check_last(state, step - 1, "step - 1")
    check.indices("leaf", leaf, sizes["2**depth"], "2**depth")
    check.indices("vertex", vertex, features.shape[1], VERTICES[kind])
    check.indices("features", features, n_features, "n_features")
    shape = (sizes["n_samples"], n_features)
    with check.memory("n_features", "gradients", math.prod(shape) * dtype.itemsize):
        (grad_x,) = results(("grad_x",), None, (shape,), (dtype,), inputs)
    dispatch.backend(PACKAGE, leaf).adam_backward(
        flat(grad_y, 1, n_outputs),
        route,
        (thresholds, features, flat(weights, 2, n_outputs)),
        _flat_state(state, n_outputs),
        step,
        (*settings, tables(leaf, settings[1], settings[2], step)),
        divisor_of(aggregate, sizes["n_trees"]),
        grad_x,
    )
    return grad_x


def tree_adam_forward(
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    weights: FloatArray,
    state: AdamState,
    step: int,
    lr: float,
    *,
    aggregate: Total = "sum",
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
) -> tuple[FloatArray, Route]:
    """Outputs of hinge trees in training: `tree_forward` on parameters with missed steps (Lay et al. 2018,
    eq. 10).

    What the batch reads is brought to step - 1 first, as if every parameter had taken every step.

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Finite.
    thresholds, features : (n_trees, 2**depth - 1) arrays, dtype of x and int32
        Thresholds that are read are brought up to date in place.
    weights : (n_trees, 2**depth, *outputs) array, dtype of x
        Likewise.
    state : AdamState
        From `adam_state`. Changed in place.
    step : int
        Number of the step that this call begins: 1, 2, ...
    lr : float
        Learning rate of the steps before; at least 0. Before a change call `adam_sync`.
    aggregate : "sum" or "mean"
        How outputs of trees are combined, in float64 in the order of the trees.
    beta1, beta2, eps : float
        As for `optim.adam`, the same in every call.

    Returns
    -------
    y : (n_samples, *outputs) array
    route : Route
        (leaf, margin, vertex), for `tree_adam_backward`.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape, layout or NaN; a row of the state beyond step - 1; a feature
        outside x; a number out of its range. Nothing has changed then.

    Notes
    -----
    A departure from dense Adam in rounding only (`optim.adam_rows`). Vertices of the first ten levels move
    at every step, deeper ones and leaves when a batch reaches them: the cost grows with the depth, not with
    the number of leaves. On a GPU, where a dense step is cheap, everything moves at every step.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> from hforest import hinge
    >>> t, f, w = hinge.tree_init(20, 4, n_features=3, outputs=2, dtype=np.float64, rng=0)
    >>> state = hinge.adam_state(t, w)
    >>> x = np.random.default_rng(0).normal(size=(8, 3)); goal = x[:, :2].copy()
    >>> losses = []
    >>> for step in range(1, 201):
    ...     y, route = hinge.tree_adam_forward(x, t, f, w, state, step, 0.01)
    ...     loss, grad_y = hforest.layers.squared_loss(y, goal)
    ...     grad_x = hinge.tree_adam_backward(grad_y, *route, t, f, w, state, 3, step, 0.01)
    ...     losses.append(loss)
    >>> hinge.adam_sync(t, w, state, 200, 0.01)
    >>> losses[-1] < 0.01 * losses[0]
    True
    """
    numbers = (beta1, beta2, eps)
    return _forward("tree", x, thresholds, features, weights, state, step, lr, aggregate, numbers)


def fern_adam_forward(
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    weights: FloatArray,
    state: AdamState,
    step: int,
    lr: float,
    *,
    aggregate: Total = "sum",
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
) -> tuple[FloatArray, Route]:
    """Outputs of hinge ferns in training: `fern_forward` on parameters with missed steps (Lay et al. 2018,
    eq. 10).

    Parameters
    ----------
    x : (n_samples, n_features) array of float32 or float64
        Finite.
    thresholds, features : (n_ferns, depth) arrays, dtype of x and int32
    weights : (n_ferns, 2**depth, *outputs) array, dtype of x
        Rows that are read are brought up to date in place.
    state : AdamState
        From `adam_state`. Changed in place.
    step : int
        Number of the step that this call begins: 1, 2, ...
    lr : float
        Learning rate of the steps before; at least 0.
    aggregate : "sum" or "mean"
        How outputs of ferns are combined.
    beta1, beta2, eps : float
        As for `optim.adam`, the same in every call.

    Returns
    -------
    y : (n_samples, *outputs) array
    route : Route
        (leaf, margin, vertex), for `fern_adam_backward`.

    Raises
    ------
    TypeError, ValueError, IndexError
        As for `tree_adam_forward`, where the notes and an example are.
    """
    numbers = (beta1, beta2, eps)
    return _forward("fern", x, thresholds, features, weights, state, step, lr, aggregate, numbers)


def tree_adam_backward(
    grad_y: FloatArray,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
    thresholds: FloatArray,
    features: IntArray,
    weights: FloatArray,
    state: AdamState,
    n_features: int,
    step: int,
    lr: float,
    *,
    aggregate: Total = "sum",
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
) -> FloatArray:
    """The gradient by the input of hinge trees, after a step of Adam (Lay et al. 2018, eq. 11-12; Kingma &
    Ba 2015, Alg. 1).

    One pass computes the gradients of a tree and moves its thresholds and weights.

    Parameters
    ----------
    grad_y : (n_samples, *outputs) array, dtype of margin
        dL/dy.
    leaf, margin, vertex : (n_samples, n_trees) arrays
        The route, from `tree_adam_forward` of the same step.
    thresholds, features, weights, state
        As there. Thresholds, weights and state are changed in place.
    n_features : int
        Columns of x.
    step : int
        Number of this step: 1, 2, ..., each of them once.
    lr : float
        Learning rate, at least 0.
    aggregate : "sum" or "mean"
        As in the forward call.
    beta1, beta2, eps : float
        As for `optim.adam`, the same in every call.

    Returns
    -------
    grad_x : (n_samples, n_features) array
        With the weights as they were before the step.

    Raises
    ------
    TypeError, ValueError, IndexError
        Wrong dtype or device; wrong shape or layout; a margin that is NaN, a grad_y that is not finite; a
        row of the state beyond step - 1; a leaf, vertex or feature out of range; a number out of its range.
        Nothing has changed then.

    Notes
    -----
    Equal to `tree_backward(..., sparse=True)`, then `optim.adam` on the thresholds and `optim.adam_rows` on
    the weights. Extra memory: a slope for each sample and tree, and per thread a few numbers
    for each leaf and vertex of one tree.
    """
    return _backward(
        "tree", grad_y, Route(leaf, margin, vertex), (thresholds, features, weights), state, n_features,
        step, lr, aggregate, (beta1, beta2, eps),
    )  # fmt: skip


def fern_adam_backward(
    grad_y: FloatArray,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
    thresholds: FloatArray,
    features: IntArray,
    weights: FloatArray,
    state: AdamState,
    n_features: int,
    step: int,
    lr: float,
    *,
    aggregate: Total = "sum",
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
) -> FloatArray:
    """The gradient by the input of hinge ferns, after a step of Adam (Lay et al. 2018, eq. 11-12; Kingma &
    Ba 2015, Alg. 1).

    Parameters
    ----------
    grad_y : (n_samples, *outputs) array, dtype of margin
        dL/dy.
    leaf, margin, vertex : (n_samples, n_ferns) arrays
        The route, from `fern_adam_forward` of the same step.
    thresholds, features, weights, state
        As there. Thresholds, weights and state are changed in place.
    n_features : int
        Columns of x.
    step : int
        Number of this step: 1, 2, ..., each of them once.
    lr : float
        Learning rate, at least 0.
    aggregate : "sum" or "mean"
        As in the forward call.
    beta1, beta2, eps : float
        As for `optim.adam`, the same in every call.

    Returns
    -------
    grad_x : (n_samples, n_features) array

    Raises
    ------
    TypeError, ValueError, IndexError
        As for `tree_adam_backward`, where the notes are.
    """
    return _backward(
        "fern", grad_y, Route(leaf, margin, vertex), (thresholds, features, weights), state, n_features,
        step, lr, aggregate, (beta1, beta2, eps),
    )  # fmt: skip
