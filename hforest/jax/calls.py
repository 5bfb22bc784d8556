"""Functions that XLA calls: they read some of XLA's buffers as NumPy arrays and write results into others.

Each takes its settings (JSON text), the arrays of the arguments and the arrays of the results, in this order.
"""

import functools
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import hinge, neural

SMALL = 1 << 16
"""Results of at most this number of bytes are copied: the checks of `out` would take longer."""

CHUNK = 1 << 22
"""Number of leaf probabilities that the gradient with respect to neural leaves holds at a time."""

Arrays = tuple[np.ndarray, ...]


@functools.lru_cache(maxsize=4096)
def settings_of(text: str) -> dict[str, Any]:
    """Returns the settings of a call, which are keyword arguments of the public function."""
    settings: dict[str, Any] = json.loads(text)
    if settings.get("windows") is not None:
        settings["windows"] = hinge.Windows(*settings["windows"])
    return settings


def reads_x(text: str) -> bool:
    """Returns whether the gradient of a hinge forest reads x; otherwise the shape of x is enough."""
    return hinge.kernels.MARGINS[settings_of(text)["margin"]].gradient_reads_x


def _write(results: Arrays, function: Callable[..., Any], *arguments: Any, **settings: Any) -> None:
    """Calls a public function and writes its results to `results`."""
    if sum(a.nbytes for a in results) > SMALL:
        function(*arguments, **settings, out=results if len(results) > 1 else results[0])
        return
    values = function(*arguments, **settings)
    for a, value in zip(results, values if len(results) > 1 else (values,), strict=True):
        a[...] = value


def _hinge(text: str, *arrays: np.ndarray) -> None:
    _write(arrays[4:], hinge.forward, *arrays[:4], **settings_of(text))


def _with_route(*arguments: Any, out: Arrays | None = None, **settings: Any) -> Arrays:
    into = None if out is None else (out[0], hinge.Route(*out[1:]))
    y, route = hinge.forward_with_route(*arguments, **settings, out=into)
    return (y, *route)


def _hinge_routed(text: str, *arrays: np.ndarray) -> None:
    _write(arrays[4:], _with_route, *arrays[:4], **settings_of(text))


def _hinge_backward(text: str, *arrays: Any) -> None:
    """Writes gradients of a hinge forest; checks only values that may differ since the forward call."""
    grad_y, leaf, margin, vertex, x, features, weights = arrays[:7]
    grad_x, grad_thresholds, *learned, grad_weights = arrays[7:]
    settings = settings_of(text)
    variant = {name: settings[name] for name in ("margin", "windows") if name in settings}
    hinge.kernels.check_changed(grad_y, weights.dtype, features, grad_x.shape, **variant, vertex=vertex)
    grads = hinge.Gradients(grad_x, grad_thresholds, learned[0] if learned else None, grad_weights)
    hinge.kernels.backward(
        grad_y, hinge.Route(leaf, margin, vertex), x if reads_x(text) else None, None, features, weights,
        **settings, out=grads,
    )  # fmt: skip


def _neural_forward(text: str, f: Any, leaves: Any, *others: Any) -> None:
    *index, p = others
    p[...] = neural.forward(f, leaves, index=index[0] if index else None, **settings_of(text))


def _neural_backward(text: str, grad_p: Any, f: Any, leaves: Any, *others: Any) -> None:
    *index, grad_f = others
    _write((grad_f,), neural.backward, grad_p, f, leaves, index=index[0] if index else None)


def _neural_leaves_backward(text: str, grad_p: Any, f: Any, leaves: Any, *others: Any) -> None:
    """Writes dL/dpi_mlk = sum over samples of mu_ml grad_p_k, divided by n_trees: p is linear in pi."""
    *index, grad_leaves = others
    n_trees, n_leaves, n_classes = leaves.shape
    total = np.zeros((n_trees * n_leaves, n_classes))
    step = max(1, CHUNK // len(total))
    for begin in range(0, len(f), step):
        part = slice(begin, begin + step)
        mu = neural.route(f[part], index=index[0] if index else None)
        total += mu.reshape(len(mu), -1).T.astype(np.float64) @ grad_p[part].astype(np.float64)
    grad_leaves[...] = (total / n_trees).reshape(leaves.shape)


FUNCTIONS: dict[str, Callable[..., None]] = {
    "hinge_forest": _hinge,
    "hinge_forest_routed": _hinge_routed,
    "hinge_forest_backward": _hinge_backward,
    "neural_forest": _neural_forward,
    "neural_forest_backward": _neural_backward,
    "neural_forest_leaves_backward": _neural_leaves_backward,
}
"""Functions by the names in foreign calls."""
