"""Training steps in which every parameter moves: the law of those in `cpu` that move what a batch touches,
and the fast way on a GPU. `room` and `optimizer` are twins of one device."""

from types import ModuleType
from typing import Any

import numpy as np

from ..core.dispatch import Array, array_module
from ..optim.tables import Tables
from .training import EAGER, AdamState


def _catch_up(
    optimizer: ModuleType, thresholds: Array, weights: Array, state: AdamState, step: int, settings: Any
) -> None:
    if step == 0:
        return
    state.thresholds_last[:, :EAGER] = step
    arange = array_module(weights).arange
    for param, m, v, last in (
        (thresholds, state.thresholds_m, state.thresholds_v, state.thresholds_last),
        (weights, state.weights_m, state.weights_v, state.weights_last),
    ):
        rows = arange(last.size, dtype=np.int64)
        a, b, c = (array.reshape(last.size, -1) for array in (param, m, v))
        optimizer.adam_catch_up(a, rows, b, c, last.reshape(-1), step, *settings)


def adam_forward(
    traverse: Any,
    room: ModuleType,
    optimizer: ModuleType,
    x: Array,
    thresholds: Array,
    features: Array,
    weights: Array,
    state: AdamState,
    step: int,
    settings: tuple[float, float, float, float, Tables],
    divisor: float,
    leaf: Array,
    margin: Array,
    vertex: Array,
    y: Array,
) -> None:
    """Everything to step - 1, then a traversal and its outputs."""
    _catch_up(optimizer, thresholds, weights, state, step - 1, settings)
    traverse(x, thresholds, features, leaf, margin, vertex)
    room.leaf_outputs(leaf, margin, weights, divisor, y)


def adam_backward(
    room: ModuleType,
    optimizer: ModuleType,
    grad_y: Array,
    leaf: Array,
    margin: Array,
    vertex: Array,
    thresholds: Array,
    features: Array,
    weights: Array,
    state: AdamState,
    step: int,
    settings: tuple[float, float, float, float, Tables],
    divisor: float,
    grad_x: Array,
) -> None:
    """Dense gradients, then a dense step of everything."""
    _catch_up(optimizer, thresholds, weights, state, step - 1, settings)
    empty_like = array_module(weights).empty_like
    grad_t, grad_w = empty_like(thresholds), empty_like(weights)
    room.backward(grad_y, leaf, margin, vertex, features, weights, divisor, grad_x, grad_t, grad_w)
    for param, grad, m, v in (
        (thresholds, grad_t, state.thresholds_m, state.thresholds_v),
        (weights, grad_w, state.weights_m, state.weights_v),
    ):
        flat = (a.reshape(-1) for a in (param, grad, m, v))
        optimizer.adam(*flat, step, *settings[:-1])
    state.thresholds_last[...] = step
    state.weights_last[...] = step
