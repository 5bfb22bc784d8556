"""Surrogates and stumps on a GPU; the kernels are in gpu.cu. A stump is one block's work."""

from pathlib import Path
from typing import Any

import numpy as np

from ..core.dispatch import Array, array_module
from ..core.launch import launch, launch_each

ROOM = Path(__file__).parent

CHUNK = 1024
"""Samples whose slopes are summed in the dtype of x."""

LANES = 16
"""Threads that share a product w.x."""


def _samples(
    xp: Any, x: Array, labels: Array | None, targets: Array | None, weight: Array
) -> tuple[Any, ...]:
    n_outputs = 0 if targets is None else targets.shape[1]
    return (
        x,
        xp.empty(0, np.int32) if labels is None else labels,
        xp.empty((0, 0)) if targets is None else targets,
        weight,
        *x.shape,
        n_outputs,
        int(labels is None),
    )


def _terms(
    w: Array,
    theta0: Array,
    theta1: Array,
    x: Array,
    labels: Array | None,
    targets: Array | None,
    weight: Array,
) -> tuple[Any, ...]:
    xp = array_module(x)
    theta = xp.concatenate([theta0, theta1])
    table = xp.empty(theta.shape)
    *arrays, n, n_features, _, squared = _samples(xp, x, labels, targets, weight)
    samples = (*arrays, n, n_features, len(theta0), squared)
    launch_each(ROOM, "tables", x.dtype, 2, (x, arrays[1], len(theta0), squared, theta, table))
    term, side, factor = xp.empty(n), xp.empty(n, np.int32), xp.empty(n, x.dtype)
    launch_each(ROOM, "terms", x.dtype, LANES * n, (w, theta, table, *samples, term, side, factor))
    return samples, theta, table, term, side, factor


def surrogate(
    w: Array,
    theta0: Array,
    theta1: Array,
    x: Array,
    labels: Array | None,
    targets: Array | None,
    weight: Array,
    out: Array,
) -> None:
    """out[0] = the surrogate, a sum over samples (eq 10)."""
    _, _, _, term, _, _ = _terms(w, theta0, theta1, x, labels, targets, weight)
    launch_each(ROOM, "total", x.dtype, 1, (term, len(term), out))


def surrogate_grad(
    w: Array,
    theta0: Array,
    theta1: Array,
    x: Array,
    labels: Array | None,
    targets: Array | None,
    weight: Array,
    grad_w: Array,
    grad_theta0: Array,
    grad_theta1: Array,
) -> None:
    """Its subgradient."""
    xp = array_module(x)
    samples, theta, table, _, side, factor = _terms(w, theta0, theta1, x, labels, targets, weight)
    n, n_features = x.shape
    n_chunks = -(-n // CHUNK)
    slope = xp.empty((n_chunks, n_features), x.dtype)
    launch_each(ROOM, "chunk_slopes", x.dtype, slope.size, (x, factor, n, n_features, CHUNK, n_chunks, slope))
    launch_each(ROOM, "chunk_sums", x.dtype, n_features, (slope, n_features, n_chunks, grad_w))
    launch_each(
        ROOM, "theta_slopes", x.dtype, theta.size,
        (theta, table, side, *samples, xp.empty(theta.shape), grad_theta0, grad_theta1),
    )  # fmt: skip


def fit_stump(
    x: Array,
    labels: Array | None,
    targets: Array | None,
    weight: Array,
    schedule: Any,
    key: int,
    w: Array,
    theta0: Array,
    theta1: Array,
    history: Array,
) -> None:
    """Fits w, in place, and theta (Alg. 1); the surrogate at the start and after each round."""
    xp = array_module(x)
    *arrays, n, n_features, _, squared = _samples(xp, x, labels, targets, weight)
    n_outputs = len(theta0)
    theta = xp.empty((2, n_outputs))
    reals = xp.empty(2 * n_features + n, x.dtype)
    doubles, ints = xp.empty(8 * n_outputs + n), xp.empty(3 * n, np.int32)
    launch(
        ROOM, "fit_stump", x.dtype, 1,
        (
            *arrays, n, n_features, n_outputs, squared, *schedule, key & 0xFFFFFFFF, key >> 32, w, reals,
            theta, doubles, ints, history,
        ),
    )  # fmt: skip
    theta0[:], theta1[:] = theta
