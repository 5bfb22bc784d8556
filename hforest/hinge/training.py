"""Forward and backward passes of exact Adam at a cost that depends only on the rows that a batch touches.

A dense step (`forward`, `backward`, `optim.adam`) moves every weight. Here weights that a batch does not
reach stay; they take their missed steps when a later batch reads them (`optim.adam_catch_up` has the
equations). The gradients of a tree are used as soon as they are known, without an array of gradients for the
forest.
"""

import math
from typing import Any, Literal

import numpy as np

from .. import optim
from ..core import check, dispatch, supervised
from ..core.aliases import Array, ArrayLike, FloatArray, IntArray
from ..core.windows import Windows
from ..optim.settings import check_adam
from ..optim.tables import tables
from . import kernels
from .margins import MARGINS, MarginName
from .operators import check_backward, check_forward
from .shared import EAGER, AdamState, Kind, Route, named_route, new_route

Total = Literal["sum", "mean"]
_TOTALS = ("sum", "mean")


def adam_state(thresholds: FloatArray, weights: FloatArray, features: FloatArray | None = None) -> AdamState:
    """Returns Adam's state before the first step: zeros.

    Parameters
    ----------
    thresholds : (n_trees, n_vertices) array of float32 or float64
    weights : (n_trees, n_leaves, *outputs) array, dtype of thresholds
    features : (n_trees, n_vertices, n_features) array, dtype of thresholds, optional
        Learned vectors of ``margin="projection"``.

    Returns
    -------
    AdamState
        Arrays on the device of thresholds.

    Notes
    -----
    Memory: twice that of the parameters, and 8 bytes per vertex and per leaf.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> state = hforest.hinge.adam_state(np.zeros((5, 3)), np.zeros((5, 4, 2)))
    >>> state.weights_m.shape, state.weights_last.shape
    ((5, 4, 2), (5, 4))
    """
    _check_parameters(thresholds, weights)
    learned: dict[str, FloatArray] = {}
    if features is not None:
        check.same_device(thresholds=thresholds, features=features)
        check.array("features", features, thresholds.dtype, (*thresholds.shape, ...), {})
        learned = {"features": features}
    zeros = dispatch.array_module(thresholds).zeros
    state: dict[str, Any] = {}
    for name, a in {"thresholds": thresholds, "weights": weights, **learned}.items():
        state[f"{name}_m"], state[f"{name}_v"] = (zeros(a.shape, a.dtype) for _ in range(2))
        if name not in learned:
            state[f"{name}_last"] = zeros(a.shape[:2], np.int64)
    return AdamState(**state)


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
    """Updates all parameters of a forest by their missed steps up to `step`, in place.

    Call it before you evaluate or save the forest, and before you change the learning rate. Other parameters:
    see `hforest.optim.adam_rows`.

    Parameters
    ----------
    thresholds, weights : arrays
        Parameters. Changed in place.
    state : AdamState
        State of `adam_state`, changed in place.
    step : int
        Last step taken; at 0 nothing happens.
    lr : float
        Learning rate of the missed steps.

    Raises
    ------
    ValueError
        A row of the state beyond `step`. After an error nothing has changed.

    Notes
    -----
    Calls `optim.adam_catch_up` for every vertex and leaf. Cost: a few dense steps of Adam for those with
    missed steps, one read of the state for the others.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> t = np.zeros((1, 1)); w = np.zeros((1, 2)); state = hforest.hinge.adam_state(t, w)
    >>> hforest.hinge.adam_sync(t, w, state, 3, 0.01)
    >>> state.weights_last
    array([[3, 3]])
    """
    _check_parameters(thresholds, weights)
    arrays = _check_state({"thresholds": thresholds, "weights": weights}, state)
    check.outputs({"thresholds": thresholds, "weights": weights, **arrays}, {})
    step, (lr, beta1, beta2, eps) = check_adam(step, lr, beta1, beta2, eps, thresholds.dtype, first=0)
    _check_last(state, step, "step")
    _check_moments(arrays)
    tables(thresholds, beta1, beta2, step)  # refuses a later step before anything has changed
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


def _check_state(parameters: dict[str, FloatArray], state: AdamState) -> dict[str, FloatArray]:
    check.instance("state", state, AdamState, "an AdamState", "call adam_state(thresholds, weights)")
    arrays = {}
    for name in parameters:
        for part in ("m", "v", "last")[: 2 if name == "features" else 3]:
            a = getattr(state, f"{name}_{part}")
            if a is None:
                raise TypeError(
                    f"state.{name}_{part}: expected an array, got None; call adam_state(thresholds, "
                    "weights, features) for a margin whose features are learned"
                )
            arrays[f"state.{name}_{part}"] = a
    check.same_device(thresholds=parameters["thresholds"], **arrays)
    for name, a in arrays.items():
        param, last = parameters[name[6:].split("_")[0]], name.endswith("last")
        shape = tuple(param.shape[:2] if last else param.shape)
        check.array(name, a, check.INT64 if last else np.dtype(param.dtype), shape, {})
    return arrays


def _check_last(state: AdamState, reached: int, what: str) -> None:
    # A row cannot return to an earlier step.
    for name in ("thresholds_last", "weights_last"):
        check.steps(f"state.{name}", getattr(state, name), reached, what)


def _check_moments(arrays: dict[str, FloatArray]) -> None:
    if not check.values_checked():
        return
    for name, a in arrays.items():
        if name.endswith("last"):
            continue
        check.finite(name, a, remedy=check.DIVERGED)
        if name.endswith("v") and a.size and float(a.min()) < 0:
            raise ValueError(
                f"{name}: expected second moments of at least 0, got {float(a.min()):g}; pass the state of "
                "these parameters, unchanged"
            )


# -------------------------------------------------------------------------------------------- steps


def _check_step(
    thresholds: FloatArray,
    features: Array,
    weights: FloatArray,
    state: AdamState,
    step: int,
    settings: tuple[float, float, float, float],
    margin: str,
    inputs: dict[str, Array],
) -> dict[str, Any]:
    """Returns the state and the settings of a step after a check: step, lr, beta1, beta2 and eps by name."""
    written = {"thresholds": thresholds, "weights": weights}
    if MARGINS[margin].learned:
        written["features"] = features
    moments = _check_state(written, state)
    check.outputs({**written, **moments}, {name: a for name, a in inputs.items() if name not in written})
    step, numbers = check_adam(step, *settings, thresholds.dtype)
    _check_last(state, step - 1, "step - 1")
    return dict(zip(("step", "lr", "beta1", "beta2", "eps"), (step, *numbers), strict=True))


def adam_forward(
    x: FloatArray,
    thresholds: FloatArray,
    features: Array,
    weights: FloatArray,
    state: AdamState,
    step: int,
    lr: float,
    *,
    kind: Kind = "tree",
    margin: MarginName = "column",
    windows: Windows | None = None,
    aggregate: Total = "sum",
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
) -> tuple[FloatArray, Route]:
    """Returns outputs and route of parameters with missed steps (Lay et al. 2018, Alg. 3, eq. 10).

    Parameters that the batch reads first take their missed steps up to step - 1, in place. `aggregate` is
    "sum" or "mean". Other parameters: see `forward` and `hforest.optim.adam_rows`.

    Parameters
    ----------
    state : AdamState
        State of `adam_state`, changed in place.
    step : int
        Number of the step that this call begins: 1, 2, ...
    lr : float
        Learning rate of the steps before, at least 0. Call `adam_sync` before you change it.

    Returns
    -------
    y : (n_samples, *outputs) array, with `windows` (n_images, *out, *outputs)
    route : Route
        (leaf, margin, vertex), for `adam_backward`.

    Raises
    ------
    ValueError
        A row of the state beyond step - 1. After an error nothing has changed.

    Notes
    -----
    Parameters differ from those of dense Adam by rounding alone (`optim.adam_rows`). With ``margin="column"``
    and without windows, vertices of the first ten levels move at every step, deeper vertices and leaves when
    a batch reaches them. So the cost grows with the depth, not with the number of leaves. With projections or
    windows all vertices move at every step, and leaves when a batch reaches them.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> from hforest import hinge
    >>> t, f, w = hinge.init(20, 4, n_features=3, outputs=2, dtype=np.float64, rng=0)
    >>> state = hinge.adam_state(t, w)
    >>> x = np.random.default_rng(0).normal(size=(8, 3)); target = x[:, :2].copy()
    >>> losses = []
    >>> for step in range(1, 201):
    ...     y, route = hinge.adam_forward(x, t, f, w, state, step, 0.01)
    ...     loss, grad_y = hforest.layers.squared_loss(y, target)
    ...     grad_x = hinge.adam_backward(grad_y, route, x, t, f, w, state, step, 0.01)
    ...     losses.append(loss)
    >>> hinge.adam_sync(t, w, state, 200, 0.01)
    >>> losses[-1] < 0.01 * losses[0]
    True
    """
    check.choice("aggregate", aggregate, _TOTALS)
    inputs = {"x": x, "thresholds": thresholds, "features": features, "weights": weights}
    with check.together(x):
        call, shape = check_forward(kind, margin, windows, aggregate, inputs)
        settings = _check_step(
            thresholds, features, weights, state, step, (lr, beta1, beta2, eps), margin, inputs
        )
    out = dispatch.empty(x)(shape, x.dtype), new_route(x, (*call.places, len(thresholds)), x.dtype)
    kernels.adam_forward(
        x, thresholds, features, weights, state, **settings,
        kind=kind, margin=margin, windows=windows, aggregate=aggregate, out=out,
    )  # fmt: skip
    return out


def adam_backward(
    grad_y: FloatArray,
    route: Route,
    x: FloatArray,
    thresholds: FloatArray,
    features: Array,
    weights: FloatArray,
    state: AdamState,
    step: int,
    lr: float,
    *,
    kind: Kind = "tree",
    margin: MarginName = "column",
    windows: Windows | None = None,
    aggregate: Total = "sum",
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
) -> FloatArray:
    """Returns the gradient with respect to x and takes a step of Adam (Lay et al. 2018, eq. 11-12).

    The step is Kingma & Ba 2015, Alg. 1. One pass computes the gradients of a tree and moves its parameters,
    in place. Other parameters: see `adam_forward` and `backward`.

    Parameters
    ----------
    route : Route
        From `adam_forward` of the same step.
    step : int
        Number of this step: 1, 2, ..., each once.
    lr : float
        Learning rate, at least 0.

    Returns
    -------
    grad_x : array of the shape of x
        Gradient at the parameters before the step.

    Raises
    ------
    ValueError
        As `adam_forward`.

    Notes
    -----
    Equals `backward_sparse`, then `optim.adam` on thresholds and learned features, and `optim.adam_rows` on
    the weights. Extra memory with ``margin="column"`` and without windows: a slope for each sample and tree,
    and per thread a few numbers for each leaf and vertex of one tree; otherwise that of the sparse gradients.
    """
    check.choice("aggregate", aggregate, _TOTALS)
    inputs = {"x": x, "thresholds": thresholds, "features": features, "weights": weights}
    with check.together(x):
        check_backward(kind, margin, windows, aggregate, grad_y, route, inputs)
        read = {**inputs, "grad_y": grad_y, **named_route(route)}
        settings = _check_step(
            thresholds, features, weights, state, step, (lr, beta1, beta2, eps), margin, read
        )
    grad_x: FloatArray = dispatch.empty(x)(x.shape, x.dtype)
    kernels.adam_backward(
        grad_y, route, x, thresholds, features, weights, state, **settings,
        kind=kind, margin=margin, windows=windows, aggregate=aggregate, out=grad_x,
    )  # fmt: skip
    return grad_x


def adam_step(
    x: FloatArray,
    y: ArrayLike,
    thresholds: FloatArray,
    features: Array,
    weights: FloatArray,
    state: AdamState,
    step: int,
    lr: float,
    *,
    kind: Kind = "tree",
    margin: MarginName = "column",
    windows: Windows | None = None,
    aggregate: Total = "sum",
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
) -> tuple[float, FloatArray, FloatArray]:
    """Takes a step of Adam on the softmax loss of labels, in one call (Lay et al. 2018, eq. 10-12, Fig. 2).

    Other parameters: see `adam_forward`.

    Parameters
    ----------
    y : (n_samples,) array of integers or bools, with `windows` (n_images, *out)
        Classes of the samples, 0 to n_classes - 1.
    weights : (n_trees, n_leaves, n_classes) array
        Weights of leaves; changed in place.

    Returns
    -------
    loss : float
        Mean of the softmax loss before the step, in nats. For CuPy arrays an array without axes.
    scores : (n_samples, n_classes) array, with `windows` (n_images, *out, n_classes)
        Outputs before the step, the logarithms of class shares but for a constant of each sample.
    grad_x : array, shape of x
        Gradient with respect to x before the step.

    Raises
    ------
    ValueError
        As `adam_forward`, and scores that are not finite; then no parameter has taken the step.
    IndexError
        A label that is no class.

    Notes
    -----
    Equals `adam_forward`, `hforest.layers.softmax_loss` and `adam_backward`, bit for bit, with one check of
    the arguments. On a GPU inside `hforest.unchecked()`, at most 512 samples, columns and no windows: three
    kernels in place of five, and no wait.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> from hforest import hinge
    >>> t, f, w = hinge.init(20, 4, n_features=3, outputs=2, dtype=np.float64, rng=0)
    >>> state = hinge.adam_state(t, w)
    >>> x = np.random.default_rng(0).normal(size=(50, 3)); y = x[:, 0] > 0
    >>> losses = [hinge.adam_step(x, y, t, f, w, state, step, 0.01)[0] for step in range(1, 101)]
    >>> hinge.adam_sync(t, w, state, 100, 0.01)
    >>> losses[-1] < 0.2 * losses[0]
    True
    """
    check.choice("aggregate", aggregate, _TOTALS)
    inputs = {"x": x, "thresholds": thresholds, "features": features, "weights": weights}
    with check.together(x):
        call, shape = check_forward(kind, margin, windows, aggregate, inputs)
        check.array("weights", weights, x.dtype, ("n_trees", "n_leaves", "n_classes"), {})
        labels = _labels(y, shape[:-1], shape[-1])
        check.same_device(x=x, y=labels)
        read = {**inputs, "y": y}
        settings = _check_step(
            thresholds, features, weights, state, step, (lr, beta1, beta2, eps), margin, read
        )
    empty = dispatch.empty(x)
    scores, grad_x = empty(shape, x.dtype), empty(x.shape, x.dtype)
    route = new_route(x, (*call.places, len(thresholds)), x.dtype)
    loss = kernels.adam_step(
        x, labels, thresholds, features, weights, state, **settings,
        kind=kind, margin=margin, windows=windows, aggregate=aggregate, out=(scores, route, grad_x),
        check_scores=_check_scores if check.values_checked() else None,
    )  # fmt: skip
    return loss, scores, grad_x


def _labels(y: ArrayLike, places: tuple[int, ...], n_classes: int) -> IntArray:
    """Returns the labels of samples, or of windows at places, as int32."""
    labels = supervised.as_given("y", y)
    shape = tuple(labels.shape)
    check.require(shape == places, "y", f"shape {places}", shape, "pass a label for each sample")
    flat, _ = supervised.labels("y", labels.reshape(-1), math.prod(places), n_classes, kernels_index=False)
    return flat


def _check_scores(scores: FloatArray) -> None:
    check.finite("weights", scores, remedy=f"scale x, or {check.DIVERGED}", what="sums of outputs")
