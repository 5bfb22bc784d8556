"""Lay et al. 2018, Fig. 2a, the network of the UCI experiments: inner products -> normalise -> forest of
scalar leaves -> inner product to the outputs -> softmax or squared loss; AdaGrad without epsilon on all
parameters.

Without inner products (`n_features=0`) the forest compares the normalised columns of the data themselves.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hforest import hinge, layers, optim
from hforest.core.aliases import Progress
from hforest.core.progress import reporting

CHUNK = 1 << 14
State = dict[str, Any]


@dataclass(frozen=True)
class Config:
    """One run. `n_outputs` is the number of classes, or 1 for a regression."""

    kind: str
    n_trees: int
    depth: int
    n_outputs: int
    lr: float
    regression: bool = False
    n_features: int = 100
    batch_size: int = 53
    steps: int = 40_000
    n_evaluations: int = 80
    """Evaluations on the validation samples."""
    seed: int = 0


def start(config: Config, n_inputs: int) -> State:
    """Returns parameters (Lay et al. 2018, Alg. 1; inner products N(0, 1) without bias) and AdaGrad's
    histories.
    """
    rng = np.random.default_rng([config.seed, 0])
    n_features = config.n_features or n_inputs
    state: State = {}
    if config.n_features:
        state["kernel"] = rng.standard_normal((n_inputs, n_features), np.float32)
    state["thresholds"], state["tests"], state["weights"] = hinge.init(
        config.n_trees, config.depth, n_features, kind=config.kind, rng=rng
    )
    state["mixing"] = rng.standard_normal((config.n_trees, config.n_outputs), np.float32)
    state["mean"], state["var"] = np.zeros(n_features, np.float32), np.ones(n_features, np.float32)
    for name in ("kernel", "thresholds", "weights", "mixing"):
        if name in state:
            state[f"{name}_h"] = np.zeros_like(state[name])
    state["step"] = 0
    return state


def step(config: Config, state: State, x: np.ndarray, y: np.ndarray) -> float:
    """Makes one step with a batch and returns the loss before it."""
    t, f, w, mixing = (state[name] for name in ("thresholds", "tests", "weights", "mixing"))
    inner = x @ state["kernel"] if config.n_features else x
    z = layers.normalize(inner, state["mean"], state["var"])
    hidden, route = hinge.forward_with_route(z, t, f, w, kind=config.kind)
    outputs = hidden @ mixing
    loss, grad = layers.squared_loss(outputs, y) if config.regression else layers.softmax_loss(outputs, y)
    grads = hinge.backward_sparse(grad @ mixing.T, route, z, t, f, w, kind=config.kind)
    optim.adagrad(mixing, hidden.T @ grad, state["mixing_h"], config.lr)
    rows, grad_t = grads.thresholds
    optim.adagrad_rows(t.reshape(-1), rows, grad_t, state["thresholds_h"].reshape(-1), config.lr)
    rows, grad_w = grads.weights
    optim.adagrad_rows(w.reshape(-1), rows, grad_w, state["weights_h"].reshape(-1), config.lr)
    if config.n_features:
        grad_kernel = x.T @ layers.normalize_backward(grads.x, state["var"])
        optim.adagrad(state["kernel"], grad_kernel, state["kernel_h"], config.lr)
    layers.normalize_update(inner, state["mean"], state["var"], state["step"])
    state["step"] += 1
    return loss


def predict(config: Config, state: State, x: np.ndarray) -> np.ndarray:
    """Returns scores or predictions, (n_samples, n_outputs)."""
    parts = []
    for first in range(0, len(x), CHUNK):
        part = x[first : first + CHUNK]
        inner = part @ state["kernel"] if config.n_features else part
        z = layers.normalize(inner, state["mean"], state["var"])
        t, f, w = (state[name] for name in ("thresholds", "tests", "weights"))
        parts.append(hinge.forward(z, t, f, w, kind=config.kind) @ state["mixing"])
    return np.concatenate(parts)


def error(config: Config, state: State, x: np.ndarray, y: np.ndarray) -> float:
    """Returns the share of wrong classes, or 1 - R**2."""
    outputs = predict(config, state, x)
    if config.regression:
        return float(((outputs - y) ** 2).sum() / ((y - y.mean()) ** 2).sum())
    return float((outputs.argmax(axis=1) != y).mean())


PARAMETERS = ("kernel", "thresholds", "tests", "weights", "mixing", "mean", "var")


def train(
    config: Config,
    x: Any,
    y: Any,
    x_valid: Any,
    y_valid: Any,
    *,
    checkpoint: Callable[[State], object] | None = None,
    progress: Progress = None,
) -> tuple[State, dict[str, list[float]]]:
    """Returns the state of least validation error, and the losses and validation errors of all evaluations.

    `checkpoint(state)` is called after every evaluation, `progress(done, total)` after every step.
    """
    state = start(config, x.shape[1])
    rng = np.random.default_rng([config.seed, 1])
    size = min(config.batch_size, len(x))
    every = max(1, config.steps // config.n_evaluations)
    best, least, losses = dict(state), np.inf, []
    history: dict[str, list[float]] = {"step": [], "loss": [], "error": []}
    order = rng.permutation(len(x))
    at = 0
    with reporting(progress, config.steps, "step") as report:
        for i in range(config.steps):
            if at + size > len(x):
                order, at = rng.permutation(len(x)), 0
            picked = order[at : at + size]
            at += size
            losses.append(step(config, state, x[picked], y[picked]))
            if (i + 1) % every == 0:
                now = error(config, state, x_valid, y_valid)
                for name, value in (("step", i + 1), ("loss", float(np.mean(losses))), ("error", now)):
                    history[name].append(value)
                losses = []
                if now < least:
                    least = now
                    best = {name: state[name].copy() for name in PARAMETERS if name in state}
                if checkpoint is not None:
                    checkpoint(state)
            if not report(i + 1):
                break
    return best, history
