"""Checks and arrays of hinge forests whose trees lie on several workers."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ... import hinge, optim
from ...core import check
from ...core.aliases import Array, FloatArray
from ...core.launch import numbers

(EAGER,) = numbers("hinge/eager.h", "HF_EAGER")
"""Number of vertices of the first ten levels, which move at every step (`hinge.AdamState`)."""


def digest(a: FloatArray) -> str:
    """Returns dtype, shape and checksum of an array as text."""
    data: Any = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
    return f"{a.dtype} {a.shape} with checksum {zlib.crc32(data):08x}"


def _some(whole: hinge.Parameters) -> hinge.Parameters:
    """Returns the forest, or one tree of zeros in place of none, which `hinge` refuses."""
    return hinge.Parameters(*(a if len(a) else np.zeros((1, *a.shape[1:]), a.dtype) for a in whole))


def learned(whole: hinge.Parameters) -> dict[str, FloatArray]:
    """Returns the parameters that have gradients, by name."""
    return {name: a for name, a in whole._asdict().items() if a.dtype.kind == "f"}


def of_arrays(function: Callable[..., Array], *states: hinge.AdamState) -> hinge.AdamState:
    """Returns a state of the results of a function on each array of some states; None stays None."""
    return hinge.AdamState._make(None if a[0] is None else function(*a) for a in zip(*states, strict=True))


def check_forest(forest: hinge.Parameters, **variant: Any) -> np.dtype:
    """Checks a forest as the functions of `hinge` do, without samples; arrays may have no trees."""
    check.on_cpu(**forest._asdict())
    check.same_device(**forest._asdict())
    dtype = check.floating("thresholds", forest.thresholds)
    if all(a.ndim for a in forest):
        forest = _some(forest)
    features = forest.features
    n_features = features.shape[-1] if features.ndim else 1
    if features.size and features.dtype.kind == "i":
        n_features = int(features.max()) + 1
    hinge.forward(np.zeros((0, max(1, n_features)), dtype), *forest, **variant)
    return dtype


def check_settings(dtype: np.dtype, step: int, lr: float, betas: Mapping[str, Any]) -> None:
    """Checks settings as `optim.adam` does."""
    p, g, m, v = np.zeros((4, 1), dtype)
    optim.adam(p, g, m, v, step, lr, **betas)


def check_state(whole: hinge.Parameters, state: hinge.AdamState, steps: int) -> None:
    remedy = "pass the state that HingeShards.adam_state returned"
    check.instance("state", state, hinge.AdamState, "an AdamState", remedy)
    parameters = learned(whole)
    for name, a in state._asdict().items():
        param = parameters.get(name.split("_")[0])
        if param is None:
            continue
        last = name.endswith("last")
        check.on_cpu(**{f"state.{name}": a})
        check.same_device(thresholds=whole.thresholds, **{f"state.{name}": a})
        shape = tuple(param.shape[:2] if last else param.shape)
        check.array(f"state.{name}", a, check.INT64 if last else param.dtype, shape, {})
        if last and (a != steps).any():
            raise ValueError(
                f"state.{name}: expected steps = {steps} in every row, got {int(a[a != steps][0])}; call "
                "hinge.adam_sync first, and pass its step as steps"
            )


def zeros(whole: hinge.Parameters) -> hinge.AdamState:
    """Returns the state before the first step; the number of trees may be 0."""
    state = hinge.adam_state(**learned(_some(whole)))
    return of_arrays(lambda a: a[: len(whole.weights)], state)


def row_gradient(
    parts: Sequence[hinge.RowGradient], starts: Sequence[int], param: FloatArray
) -> hinge.RowGradient:
    """Returns one gradient from those of chunks of trees; its rows number all trees of a worker."""
    if not parts:
        return hinge.RowGradient(np.zeros(0, np.int64), np.zeros((0, *param.shape[2:]), param.dtype))
    rows = [part.rows + start * param.shape[1] for part, start in zip(parts, starts, strict=True)]
    return hinge.RowGradient(np.concatenate(rows), np.concatenate([part.values for part in parts]))


def _move_all(
    param: FloatArray,
    gradient: hinge.RowGradient,
    m: Any,
    v: Any,
    step: int,
    settings: dict[str, Any],
) -> None:
    grad = np.zeros_like(param)
    _by_row(grad)[gradient.rows] = gradient.values
    optim.adam(param, grad, m, v, step, **settings)


def _by_row(a: FloatArray) -> FloatArray:
    """Returns a view whose first axis joins trees and vertices, or trees and leaves, as rows of gradients."""
    return a.reshape(-1, *a.shape[2:])


def move(
    parameters: dict[str, FloatArray],
    state: hinge.AdamState,
    gradients: Any,
    lazy: bool,
    step: int,
    settings: dict[str, Any],
) -> None:
    """Takes a step of Adam on the learned parameters, in place: on touched leaves and on all vertices.

    With `lazy`, vertices below the tenth level move only at touched rows.
    """
    t, m, v = parameters["thresholds"], state.thresholds_m, state.thresholds_v
    last = state.thresholds_last
    rows, values = gradients.thresholds
    if not lazy or t.shape[1] <= EAGER:
        _move_all(t, gradients.thresholds, m, v, step, settings)
        last[...] = step
    else:
        eager = (np.arange(len(t))[:, None] * t.shape[1] + np.arange(EAGER)).reshape(-1)
        last[:, :EAGER] = step - 1
        every = np.union1d(eager, rows)
        grad = np.zeros(len(every), t.dtype)
        grad[np.searchsorted(every, rows)] = values
        optim.adam_rows(_by_row(t), every, grad, _by_row(m), _by_row(v), _by_row(last), step, **settings)
    if "features" in parameters:
        features = parameters["features"], gradients.features
        _move_all(*features, state.features_m, state.features_v, step, settings)
    w, m, v, last = map(
        _by_row, (parameters["weights"], state.weights_m, state.weights_v, state.weights_last)
    )
    by_weight: hinge.RowGradient = gradients.weights
    optim.adam_rows(w, *by_weight, m, v, last, step, **settings)
