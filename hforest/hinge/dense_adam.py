"""Training steps in which every parameter moves.

They are the reference implementation of the steps in `cpu`, which move what a batch touches, and the fast way
on a GPU. `backend` and `optimizer` are backends of one device.
"""

from types import ModuleType
from typing import Any

import numpy as np

from ..core.aliases import FloatArray, IntArray
from ..core.dispatch import array_module
from ..optim.tables import Tables
from .training import EAGER, AdamState


def _catch_up(
    optimizer: ModuleType,
    thresholds: FloatArray,
    weights: FloatArray,
    state: AdamState,
    step: int,
    settings: Any,
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
    backend: ModuleType,
    optimizer: ModuleType,
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    weights: FloatArray,
    state: AdamState,
    step: int,
    settings: tuple[float, float, float, float, Tables],
    divisor: float,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
    y: FloatArray,
) -> None:
    """Everything to step - 1, then a traversal and its outputs."""
    _catch_up(optimizer, thresholds, weights, state, step - 1, settings)
    traverse(x, thresholds, features, leaf, margin, vertex)
    backend.leaf_outputs(leaf, margin, weights, divisor, y)


def adam_backward(
    backend: ModuleType,
    optimizer: ModuleType,
    grad_y: FloatArray,
    leaf: IntArray,
    margin: FloatArray,
    vertex: IntArray,
    thresholds: FloatArray,
    features: IntArray,
    weights: FloatArray,
    state: AdamState,
    step: int,
    settings: tuple[float, float, float, float, Tables],
    divisor: float,
    grad_x: FloatArray,
) -> None:
    """Dense gradients, then a dense step of everything."""
    _catch_up(optimizer, thresholds, weights, state, step - 1, settings)
    empty_like = array_module(weights).empty_like
    grad_t, grad_w = empty_like(thresholds), empty_like(weights)
    backend.backward(grad_y, leaf, margin, vertex, features, weights, divisor, grad_x, grad_t, grad_w)
    for param, grad, m, v in (
        (thresholds, grad_t, state.thresholds_m, state.thresholds_v),
        (weights, grad_w, state.weights_m, state.weights_v),
    ):
        flat = (a.reshape(-1) for a in (param, grad, m, v))
        optimizer.adam(*flat, step, *settings[:-1])
    state.thresholds_last[...] = step
    state.weights_last[...] = step
