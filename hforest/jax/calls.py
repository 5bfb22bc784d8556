"""What XLA calls: functions of NumPy arrays that read XLA's buffers and write their results into others.

Each takes a setting (a text), the arrays of the arguments and those of the results, in this order.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import hinge, neural

SMALL = 1 << 16
"""Bytes of results that are copied: for fewer the checks of `out` take longer than the copy."""

CHUNK = 1 << 22
"""Probabilities of leaves that the gradient of neural leaves holds at a time."""

Arrays = tuple[np.ndarray, ...]


def _write(results: Arrays, function: Callable[..., Any], *arguments: Any, **settings: Any) -> None:
    """Calls a public function; its results are written to `results`."""
    if sum(a.nbytes for a in results) > SMALL:
        function(*arguments, **settings, out=results if len(results) > 1 else results[0])
        return
    values = function(*arguments, **settings)
    for a, value in zip(results, values if len(results) > 1 else (values,), strict=True):
        a[...] = value


def _forward(function: Callable[..., Any]) -> Callable[..., None]:
    def call(setting: str, x: Any, thresholds: Any, features: Any, weights: Any, y: Any) -> None:
        _write((y,), function, x, thresholds, features, weights, aggregate=setting or None)

    return call


def _routed(function: Callable[..., Any]) -> Callable[..., None]:
    def call(setting: str, x: Any, thresholds: Any, features: Any, weights: Any, y: Any, *route: Any) -> None:
        found, found_route = function(
            x, thresholds, features, weights, aggregate=setting or None, return_route=True
        )
        for a, value in zip((y, *route), (found, *found_route), strict=True):
            a[...] = value

    return call


def _backward(function: Callable[..., Any]) -> Callable[..., None]:
    def call(setting: str, *arrays: Any) -> None:
        arguments, results = arrays[:6], arrays[6:]  # grad_y, leaf, margin, vertex, features, weights
        _write(results, function, *arguments, results[0].shape[1], aggregate=setting or None)

    return call


def _neural_forward(setting: Any, f: Any, leaves: Any, *rest: Any) -> None:
    *index, p = rest
    p[...] = neural.forward(f, leaves, index=index[0] if index else None, task=setting)


def _neural_backward(setting: str, grad_p: Any, f: Any, leaves: Any, *rest: Any) -> None:
    *index, grad_f = rest
    _write((grad_f,), neural.backward, grad_p, f, leaves, index=index[0] if index else None)


def _neural_leaves_backward(setting: str, grad_p: Any, f: Any, leaves: Any, *rest: Any) -> None:
    """p is linear in the leaves: dL/dpi_mlk = sum over samples of mu_ml grad_p_k, divided by n_trees."""
    *index, grad_leaves = rest
    n_trees, n_leaves, n_classes = leaves.shape
    total = np.zeros((n_trees * n_leaves, n_classes))
    step = max(1, CHUNK // len(total))
    for begin in range(0, len(f), step):
        part = slice(begin, begin + step)
        mu = neural.route(f[part], index=index[0] if index else None)
        total += mu.reshape(len(mu), -1).T.astype(np.float64) @ grad_p[part].astype(np.float64)
    grad_leaves[...] = (total / n_trees).reshape(leaves.shape)


FUNCTIONS: dict[str, Callable[..., None]] = {
    "hinge_tree": _forward(hinge.tree_forward),
    "hinge_tree_routed": _routed(hinge.tree_forward),
    "hinge_tree_backward": _backward(hinge.tree_backward),
    "hinge_fern": _forward(hinge.fern_forward),
    "hinge_fern_routed": _routed(hinge.fern_forward),
    "hinge_fern_backward": _backward(hinge.fern_backward),
    "neural_forest": _neural_forward,
    "neural_forest_backward": _neural_backward,
    "neural_forest_leaves_backward": _neural_leaves_backward,
}
