"""Training steps in which every parameter moves.

They are the reference implementation of the steps in `cpu` and `gpu`, which move only rows that a batch
touches. `backend` and `optimizer` are reference modules; `parameters` are thresholds, features and weights.
"""

from types import ModuleType

import numpy as np

from ..core.aliases import FloatArray
from ..core.dispatch import array_module
from ..optim.settings import Visit
from .shared import EAGER, AdamState, Arrays, Gradients, Kind, Route, Settings


def _catch_up(
    optimizer: ModuleType, parameters: Arrays, state: AdamState, step: int, settings: Settings
) -> None:
    if step == 0:
        return
    thresholds, _, weights = parameters
    state.thresholds_last[:, :EAGER] = step
    arange = array_module(weights).arange
    for param, m, v, last in (
        (thresholds, state.thresholds_m, state.thresholds_v, state.thresholds_last),
        (weights, state.weights_m, state.weights_v, state.weights_last),
    ):
        by_row = (array.reshape(last.size, -1) for array in (param, m, v))
        at = Visit._make([*by_row, arange(last.size, dtype=np.int64), last.reshape(-1)])
        optimizer.adam_catch_up(at, step, settings[:4], settings[4])


def adam_forward(
    backend: ModuleType,
    optimizer: ModuleType,
    kind: Kind,
    x: FloatArray,
    parameters: Arrays,
    state: AdamState,
    step: int,
    settings: Settings,
    divisor: float,
    route: Route,
    y: FloatArray,
) -> None:
    """Brings all parameters to step - 1, then writes the route and the outputs."""
    thresholds, features, weights = parameters
    _catch_up(optimizer, parameters, state, step - 1, settings)
    backend.traverse(kind, "column", x, thresholds, features, route)
    backend.leaf_outputs(route[0], route[1], weights, divisor, y)


def adam_backward(
    backend: ModuleType,
    optimizer: ModuleType,
    grad_y: FloatArray,
    route: Route,
    parameters: Arrays,
    state: AdamState,
    step: int,
    settings: Settings,
    divisor: float,
    grad_x: FloatArray,
) -> None:
    """Writes the gradient with respect to x, then takes a dense step of all parameters."""
    thresholds, features, weights = parameters
    _catch_up(optimizer, parameters, state, step - 1, settings)
    empty_like = array_module(weights).empty_like
    grad_t, grad_w = empty_like(thresholds), empty_like(weights)
    grads = Gradients(grad_x, grad_t, None, grad_w)
    backend.backward("column", grad_y, route, None, features, weights, divisor, None, grads)
    for param, grad, m, v in (
        (thresholds, grad_t, state.thresholds_m, state.thresholds_v),
        (weights, grad_w, state.weights_m, state.weights_v),
    ):
        flat = (a.reshape(-1) for a in (param, grad, m, v))
        optimizer.adam(*flat, step, settings[:4])
    state.thresholds_last[...] = step
    state.weights_last[...] = step
