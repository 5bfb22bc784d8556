"""Checks and arrays of hinge forests whose trees lie on several workers."""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import hinge, optim
from ..core import check
from ..core.aliases import FloatArray

EAGER = 2**10 - 1
"""Vertices of the first ten levels, which `hinge.AdamState` says move at every step."""


def digest(a: FloatArray) -> str:
    """Returns a text that differs where two workers' arrays do."""
    data: Any = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
    return f"{a.dtype} {a.shape} with checksum {zlib.crc32(data):08x}"


def check_forest(kind: str, forest: hinge.Parameters) -> np.dtype:
    """The checks of the functions of `hinge`, on no samples; arrays may have no trees."""
    check.on_cpu(**forest._asdict())
    check.same_device(**forest._asdict())
    thresholds, features, weights = forest
    dtype = check.floating("thresholds", thresholds)
    if thresholds.ndim and not len(thresholds):
        sizes: check.Sizes = {}
        check.array("thresholds", thresholds, dtype, ("n_trees", "n_vertices"), sizes)
        check.array("features", features, check.INT32, ("n_trees", "n_vertices"), sizes)
        check.array("weights", weights, dtype, ("n_trees", "n_leaves", ...), sizes)
        return dtype
    forward = hinge.tree_forward if kind == "tree" else hinge.fern_forward
    n_features = int(features.max()) + 1 if features.size and features.dtype.kind == "i" else 1
    forward(np.zeros((0, max(1, n_features)), dtype), thresholds, features, weights)
    return dtype


def check_settings(dtype: np.dtype, step: int, lr: float, betas: Mapping[str, Any]) -> None:
    """The checks of `optim.adam`."""
    p, g, m, v = np.zeros((4, 1), dtype)
    optim.adam(p, g, m, v, step, lr, **betas)


def check_state(thresholds: FloatArray, weights: FloatArray, state: hinge.AdamState, steps: int) -> None:
    if not isinstance(state, hinge.AdamState):
        raise TypeError(
            f"state: expected an AdamState, got {type(state).__name__}; pass that of HingeShards.adam_state"
        )
    for name, a in state._asdict().items():
        of = thresholds if name.startswith("thresholds") else weights
        last = name.endswith("last")
        check.on_cpu(**{f"state.{name}": a})
        check.same_device(thresholds=thresholds, **{f"state.{name}": a})
        shape = tuple(of.shape[:2] if last else of.shape)
        check.array(f"state.{name}", a, check.INT64 if last else of.dtype, shape, {})
        if last and (a != steps).any():
            raise ValueError(
                f"state.{name}: expected {steps} = steps in every row, got {int(a[a != steps][0])}; call "
                "hinge.adam_sync before, and pass its step as steps"
            )


def check_rows(name: str, gradient: hinge.RowGradient, param: FloatArray) -> None:
    if not isinstance(gradient, hinge.RowGradient):
        raise TypeError(
            f"{name}: expected a RowGradient, got {type(gradient).__name__}; pass those of backward"
        )
    rows, values = gradient
    check.same_device(**{f"{name}.rows": rows, f"{name}.values": values})
    sizes: check.Sizes = {}
    check.array(f"{name}.rows", rows, check.INT64, ("n_rows",), sizes)
    check.array(f"{name}.values", values, param.dtype, ("n_rows", *param.shape[2:]), sizes)
    check.rows(f"{name}.rows", rows, param.shape[0] * param.shape[1])


def zeros(thresholds: FloatArray, weights: FloatArray) -> hinge.AdamState:
    if len(thresholds):
        return hinge.adam_state(thresholds, weights)
    last = (np.zeros(a.shape[:2], np.int64) for a in (thresholds, weights))
    t, w = (np.zeros_like(a) for a in (thresholds, weights))
    return hinge.AdamState(t, t.copy(), next(last), w, w.copy(), next(last))


def row_gradient(
    parts: Sequence[hinge.RowGradient], starts: Sequence[int], param: FloatArray
) -> hinge.RowGradient:
    """The gradients of chunks of trees as one, at rows of all of a worker's trees."""
    if not parts:
        return hinge.RowGradient(np.zeros(0, np.int64), np.zeros((0, *param.shape[2:]), param.dtype))
    rows = [part.rows + start * param.shape[1] for part, start in zip(parts, starts, strict=True)]
    return hinge.RowGradient(np.concatenate(rows), np.concatenate([part.values for part in parts]))


def move(
    parameters: tuple[FloatArray, FloatArray],
    state: hinge.AdamState,
    gradients: tuple[hinge.RowGradient, hinge.RowGradient],
    step: int,
    lr: float,
    betas: Mapping[str, Any],
) -> None:
    """A step of Adam on thresholds and weights, in place: the first ten levels, and touched rows."""
    t, w = parameters
    m, v, last = state.thresholds_m, state.thresholds_v, state.thresholds_last
    rows, values = gradients[0]
    if t.shape[1] <= EAGER:
        grad = np.zeros_like(t)
        grad.reshape(-1)[rows] = values
        optim.adam(t, grad, m, v, step, lr, **betas)
        last[...] = step
    else:
        eager = (np.arange(len(t))[:, None] * t.shape[1] + np.arange(EAGER)).reshape(-1)
        last[:, :EAGER] = step - 1
        every = np.union1d(eager, rows)
        grad = np.zeros(len(every), t.dtype)
        grad[np.searchsorted(every, rows)] = values
        t, m, v, last = (a.reshape(-1) for a in (t, m, v, last))
        optim.adam_rows(t, every, grad, m, v, last, step, lr, **betas)
    w, m, v = (a.reshape(-1, *w.shape[2:]) for a in (w, state.weights_m, state.weights_v))
    optim.adam_rows(w, *gradients[1], m, v, state.weights_last.reshape(-1), step, lr, **betas)
