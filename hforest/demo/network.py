"""p1 Fig. 2b, 2c: inner products or convolutions -> normalise -> hinge forest -> sum over trees -> softmax.

The whole state of a run is one dict of arrays (`start` makes it, `step` moves it in place), so that a
run can be written to a file and taken up again with the same bits. Batches follow from the seed and
the step alone.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from .. import hinge, layers, optim
from ..core import check
from ..core.dispatch import Array, array_module

Kind = Literal["tree", "fern"]
State = dict[str, Any]
Callback = Callable[[int, State, dict[str, float]], None]


@dataclass(frozen=True)
class Config:
    """What a run does; two runs with equal configs and data give the same bits on one machine."""

    kind: Kind = "tree"
    trees: int = 100
    depth: int = 10
    features: int = 100
    """Inner products between the data and the forest."""
    kernels: int = 0
    """Convolutions in their place, 5x5 with stride 3 on square images (p1 Fig. 2c); 0: inner products."""
    optimizer: Literal["adam", "adagrad"] = "adam"
    lr: float = 0.005
    batch: int = 53
    steps: int = 40_000
    eval_every: int = 500
    """Steps between two looks at the test set; weights are brought up to date then."""
    seed: int = 0

    def __post_init__(self) -> None:
        check.choice("kind", self.kind, ("tree", "fern"))
        check.choice("optimizer", self.optimizer, ("adam", "adagrad"))
        check.integer("trees", self.trees, 1)
        check.integer("depth", self.depth, 1, check.MAX_DEPTH)
        for name in ("features", "batch", "steps", "eval_every"):
            check.integer(name, getattr(self, name), 1)
        check.integer("kernels", self.kernels, 0)
        check.integer("seed", self.seed, 0)
        check.number("lr", self.lr, 0.0, open_low=True)


PARAMETERS = ("kernel", "thresholds", "weights")
WINDOW, STRIDE = 5, 3
CHUNK = 2000
"""Samples that are evaluated at a time."""


def _first_layer(config: Config, n_inputs: int) -> tuple[tuple[int, ...], int]:
    """Shape of the first layer's kernel, and the number of features that it makes.

    Parameters
    ----------
    config : Config
    n_inputs : int
        Columns of the data; with `config.kernels` the pixels of a square image.

    Returns
    -------
    shape : tuple of int
    n_features : int

    Raises
    ------
    ValueError
        Kernels, and columns that are no square image of at least 5x5.
    """
    if not config.kernels:
        return (n_inputs, config.features), config.features
    side = math.isqrt(n_inputs)
    if side * side != n_inputs or side < WINDOW:
        raise ValueError(
            f"kernels: expected square images of at least {WINDOW}x{WINDOW}, got {n_inputs} columns; "
            "use inner-product features (kernels 0)"
        )
    return (config.kernels, WINDOW, WINDOW), config.kernels * ((side - WINDOW) // STRIDE + 1) ** 2


def _images(x: Array) -> Array:
    side = math.isqrt(x.shape[1])
    return x.reshape(-1, side, side)


def _inner(config: Config, kernel: Array, x: Array) -> Array:
    # The features of a batch before normalisation.
    if config.kernels:
        return layers.conv2d(_images(x), kernel, STRIDE).reshape(len(x), -1)
    return x @ kernel


def _kernel_gradient(config: Config, kernel: Array, x: Array, grad_inner: Array) -> Array:
    if not config.kernels:
        return x.T @ grad_inner
    images = _images(x)
    out = (images.shape[1] - WINDOW) // STRIDE + 1
    grad = grad_inner.reshape(len(x), config.kernels, out, out)
    return layers.conv2d_backward(grad, images, kernel, STRIDE)[1]


def start(config: Config, n_inputs: int, n_classes: int, dtype: Any = np.float32) -> State:
    """State before the first step.

    Parameters
    ----------
    config : Config
    n_inputs, n_classes : int
        Columns of the data and classes.
    dtype : float32 or float64

    Returns
    -------
    dict
        kernel (n_inputs, features) or (kernels, 5, 5) ~ N(0, 1); thresholds, features and weights of the
        forest (p1 Alg. 1); mean 0 and var 1 of the normalisation; the optimiser's arrays; step 0.

    Raises
    ------
    TypeError, ValueError
        A size that is not an integer or too small.

    Examples
    --------
    >>> from hforest.demo import Config, start
    >>> state = start(Config(trees=2, depth=3, features=4), n_inputs=5, n_classes=3)
    >>> state["kernel"].shape, state["weights"].shape
    ((5, 4), (2, 8, 3))
    """
    check.integer("n_inputs", n_inputs, 1)
    check.integer("n_classes", n_classes, 1)
    rng = np.random.default_rng([config.seed, 0])
    init = hinge.tree_init if config.kind == "tree" else hinge.fern_init
    shape, n_features = _first_layer(config, n_inputs)
    state: State = {"kernel": rng.standard_normal(shape).astype(dtype)}
    state["thresholds"], state["features"], state["weights"] = init(
        config.trees, config.depth, n_features, n_classes, dtype=dtype, rng=rng
    )
    state["mean"] = np.zeros(n_features, dtype)
    state["var"] = np.ones(n_features, dtype)
    adam = config.optimizer == "adam"
    for name in ("kernel",) if adam else PARAMETERS:
        for moment in ("m", "v") if adam else ("h",):
            state[f"{name}_{moment}"] = np.zeros_like(state[name])
    if adam:
        state |= hinge.adam_state(state["thresholds"], state["weights"])._asdict()
    state["step"] = 0
    return state


def _adam_state(state: State) -> hinge.AdamState:
    return hinge.AdamState(*(state[name] for name in hinge.AdamState._fields))


def _forward(config: Config, state: State, z: Array) -> tuple[Array, Any]:
    # Class scores of a batch and its route; with Adam, what the batch reads is brought up to date.
    t, f, w = (state[name] for name in ("thresholds", "features", "weights"))
    if config.optimizer == "adam":
        forward = hinge.tree_adam_forward if config.kind == "tree" else hinge.fern_adam_forward
        return forward(z, t, f, w, _adam_state(state), state["step"] + 1, config.lr)
    plain: Any = hinge.tree_forward if config.kind == "tree" else hinge.fern_forward
    return plain(z, t, f, w, aggregate="sum", return_route=True)


def _update(config: Config, state: State, grad_scores: Array, route: Any) -> Array:
    # Moves the forest; the gradient by its input.
    t, f, w = (state[name] for name in ("thresholds", "features", "weights"))
    n_features = len(state["mean"])
    if config.optimizer == "adam":
        backward: Any = hinge.tree_adam_backward if config.kind == "tree" else hinge.fern_adam_backward
        leaf, margin, vertex = route
        return backward(
            *(grad_scores, leaf, margin, vertex, t, f, w, _adam_state(state)),
            *(n_features, state["step"] + 1, config.lr),
        )
    plain: Any = hinge.tree_backward if config.kind == "tree" else hinge.fern_backward
    grad_z, (t_rows, t_grad), (w_rows, w_grad) = plain(
        grad_scores, *route, f, w, n_features, aggregate="sum", sparse=True
    )
    optim.adagrad_rows(t.reshape(-1), t_rows, t_grad, state["thresholds_h"].reshape(-1), config.lr)
    flat = (-1, w.shape[-1])
    optim.adagrad_rows(w.reshape(flat), w_rows, w_grad, state["weights_h"].reshape(flat), config.lr)
    return grad_z


def step(config: Config, state: State, x: Array, y: Array) -> float:
    """One step of stochastic gradient descent (p1 Alg. 2), in place.

    Parameters
    ----------
    config : Config
    state : dict
        From `start`; changed.
    x : (n_samples, n_inputs) array
    y : (n_samples,) array of int32

    Returns
    -------
    float
        Mean softmax loss of the batch before the step.

    Raises
    ------
    TypeError, ValueError, IndexError
        As the doors it calls.

    Notes
    -----
    Only leaf weights that the batch touches are read, moved and brought up to date: the cost of a
    step does not grow with their number.

    Examples
    --------
    >>> import numpy as np
    >>> from hforest.demo import Config, start, step
    >>> config = Config(trees=5, depth=3, features=4)
    >>> state = start(config, n_inputs=2, n_classes=2)
    >>> x = np.array([[0, 1], [1, 0]], np.float32); y = np.array([0, 1], np.int32)
    >>> losses = [step(config, state, x, y) for _ in range(300)]
    >>> losses[-1] < losses[0]
    True
    """
    inner = _inner(config, state["kernel"], x)
    z = layers.normalize(inner, state["mean"], state["var"])
    scores, route = _forward(config, state, z)
    loss, grad_scores = layers.softmax_loss(scores, y)

    grad_z = _update(config, state, grad_scores, route)
    grad_inner = layers.normalize_backward(grad_z, state["var"])
    grad_kernel = _kernel_gradient(config, state["kernel"], x, grad_inner)
    layers.normalize_update(inner, state["mean"], state["var"], state["step"])
    state["step"] += 1
    if config.optimizer == "adam":
        m, v = state["kernel_m"], state["kernel_v"]
        optim.adam(state["kernel"], grad_kernel, m, v, state["step"], config.lr)
    else:
        optim.adagrad(state["kernel"], grad_kernel, state["kernel_h"], config.lr)
    return loss


def predict(config: Config, state: State, x: Array) -> Array:
    """Class scores of a batch of any size; the highest is the predicted class.

    Parameters
    ----------
    config : Config
    state : dict
        Brought up to date first (leaf weights that no recent batch touched lag behind).
    x : (n_samples, n_inputs) array

    Returns
    -------
    scores : (n_samples, n_classes) array

    Raises
    ------
    TypeError, ValueError, IndexError
        As the doors it calls.

    Examples
    --------
    >>> import numpy as np
    >>> from hforest.demo import Config, predict, start
    >>> config = Config(trees=5, depth=3, features=4)
    >>> predict(config, start(config, 2, 3), np.zeros((7, 2), np.float32)).shape
    (7, 3)
    """
    if config.optimizer == "adam":
        hinge.adam_catch_up(
            state["thresholds"], state["weights"], _adam_state(state), state["step"], config.lr
        )
    forward = hinge.tree_forward if config.kind == "tree" else hinge.fern_forward
    t, f, w = (state[name] for name in ("thresholds", "features", "weights"))
    scores = array_module(x).empty((len(x), *w.shape[2:]), w.dtype)
    for first in range(0, len(x), CHUNK):
        part = slice(first, first + CHUNK)
        z = layers.normalize(_inner(config, state["kernel"], x[part]), state["mean"], state["var"])
        forward(z, t, f, w, aggregate="sum", out=scores[part])
    return scores


def error_rate(config: Config, state: State, x: Array, y: Array) -> float:
    """Share of samples whose highest score is not their label, 0 to 1.

    Parameters
    ----------
    config, state, x
        As for `predict`.
    y : (n_samples,) array of int32

    Returns
    -------
    float

    Raises
    ------
    TypeError, ValueError, IndexError
        As the doors it calls.
    """
    return float((predict(config, state, x).argmax(axis=1) != y).mean())


@lru_cache(maxsize=2)
def _shuffle(seed: int, n: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, 1, epoch]).permutation(n)


def _batch(config: Config, n: int, i: int) -> np.ndarray:
    # Step i's samples: a fresh shuffle every epoch, keyed by the epoch's number; the few samples that
    # do not fill a batch sit out.
    size = min(config.batch, n)
    epoch, part = divmod(i, n // size)
    return _shuffle(config.seed, n, epoch)[part * size : (part + 1) * size]


def train(
    config: Config,
    state: State,
    x_train: Array,
    y_train: Array,
    x_test: Array,
    y_test: Array,
    callback: Callback | None = None,
) -> dict[str, np.ndarray]:
    """Run `step` from where the state stands to `config.steps`, looking at the test set on the way.

    Parameters
    ----------
    config : Config
    state : dict
        From `start` or a checkpoint; changed, and consistent after every callback.
    x_train, y_train, x_test, y_test : arrays
        Data on one device, labels int32.
    callback : callable, optional
        `callback(step, state, report)` after every step; `report` is empty but for every
        `eval_every`-th step and the last, when it holds loss (mean of the batches since the last
        report) and error (of the test set).

    Returns
    -------
    dict
        Arrays step, loss, error: one element a look, those of a resumed run's earlier part included.

    Raises
    ------
    TypeError, ValueError, IndexError
        As the doors it calls.

    Notes
    -----
    There is no validation set: the least test error over these looks is what p1 reports in its second
    set of experiments.
    """
    history: dict[str, list[float]] = {
        name: list(state.get(f"history_{name}", ())) for name in ("step", "loss", "error")
    }
    xp, losses = array_module(x_train), []
    for i in range(state["step"], config.steps):
        picked = xp.asarray(_batch(config, len(x_train), i))
        losses.append(step(config, state, x_train[picked], y_train[picked]))
        report: dict[str, float] = {}
        if (i + 1) % config.eval_every == 0 or i + 1 == config.steps:
            report = {"loss": float(np.mean(losses)), "error": error_rate(config, state, x_test, y_test)}
            losses = []
            for name, value in (("step", i + 1), *report.items()):
                history[name].append(value)
                state[f"history_{name}"] = np.array(history[name])
        if callback is not None:
            callback(i + 1, state, report)
    return {name: np.array(values) for name, values in history.items()}
