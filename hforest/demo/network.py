"""Lay et al. 2018, Fig. 2: inner products or convolutions -> normalise -> hinge forest -> sum over trees, or
an inner product of its scalar leaves -> softmax or squared loss.

The whole state of a run is one dict of arrays (`start` makes it, `step` changes it in place), so that a run
can be written to a file and resumed with the same bits. Batches depend on the seed and the number of the step
alone.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from typing import Literal

import numpy as np

from .. import hinge, layers, optim
from ..core import check
from ..core.aliases import Array, ArrayLike, FloatArray, Progress
from ..core.dispatch import array_module
from ..core.progress import check_progress, reporting
from ..tabular import descent
from . import model
from .model import STRIDE, WINDOW, Config, State, n_outputs

CHUNK = 2000
"""Samples that `predict` evaluates at a time."""


def _images(x: Array) -> Array:
    side = math.isqrt(x.shape[1])
    return x.reshape(-1, side, side)


def _inner(config: Config, kernel: Array, x: Array) -> Array:
    # The features of a batch before normalisation.
    if config.n_kernels:
        return layers.conv2d(_images(x), kernel, STRIDE).reshape(len(x), -1)
    return x @ kernel if config.n_features else x


def _kernel_gradient(config: Config, kernel: Array, x: Array, grad_inner: Array) -> Array:
    if not config.n_kernels:
        return x.T @ grad_inner[:, : config.n_features]
    images = _images(x)
    out = (images.shape[1] - WINDOW) // STRIDE + 1
    grad = grad_inner.reshape(len(x), config.n_kernels, out, out)
    return layers.conv2d_backward(grad, images, kernel, STRIDE)[1]


def _forest(state: State) -> hinge.Parameters:
    return hinge.Parameters(*(state[name] for name in hinge.Parameters._fields))


def _adam_state(state: State) -> hinge.AdamState:
    return hinge.AdamState(**{name: state[name] for name in hinge.AdamState._fields if name in state})


def _forward(config: Config, state: State, z: Array, step: int, lr: float) -> tuple[Array, hinge.Route]:
    # Class scores of a batch, and its route; with Adam, weights that the batch reads are brought up to date
    # first.
    if config.optimizer == "adam":
        return hinge.adam_forward(z, *_forest(state), _adam_state(state), step, lr, kind=config.kind)
    if config.leaves == "scalar":
        each, route = hinge.forward_with_route(z, *_forest(state), kind=config.kind)
        return _mixed(state, each), route
    return hinge.forward_with_route(z, *_forest(state), kind=config.kind, aggregate="sum")


def _mixed(state: State, each: Array) -> Array:
    # Outputs of scalar leaves: inner products of the trees' numbers, and a bias where there is one.
    scores: Array = each @ state["mixing"]
    return scores + state["bias"] if "bias" in state else scores


def _update(
    config: Config, state: State, grad: Array, route: hinge.Route, z: Array, step: int, lr: float
) -> Array:
    # Updates the forest's parameters in place; returns the gradient with respect to its input.
    if config.optimizer == "adam":
        arguments = grad, route, z, *_forest(state), _adam_state(state)
        return hinge.adam_backward(*arguments, step, lr, kind=config.kind)
    aggregate: Literal["sum"] | None = "sum"
    if config.leaves == "scalar":
        mixing, aggregate = state["mixing"], None
        each = hinge.leaf_outputs(route.leaf, route.margin, state["weights"])
        if config.output_bias:
            optim.adagrad(state["bias"], grad.sum(axis=0), state["bias_h"], lr)
        grad, grad_mixing = grad @ mixing.T, each.T @ grad
        optim.adagrad(mixing, grad_mixing, state["mixing_h"], lr)
    grads = hinge.backward_sparse(grad, route, z, *_forest(state), kind=config.kind, aggregate=aggregate)
    for name in ("thresholds", "weights"):
        param, h = state[name], state[f"{name}_h"]
        rows, values = getattr(grads, name)
        flat = (-1, *param.shape[2:])
        optim.adagrad_rows(param.reshape(flat), rows, values, h.reshape(flat), lr)
    return grads.x


def _steps(
    config: Config, state: State, name: str, batches: Iterable[tuple[FloatArray, Array]]
) -> Iterator[float]:
    """Makes a step on each batch, checked and converted; yields its loss. `name` is that of the samples."""

    def features(x: Array) -> tuple[Array, Callable[[Array, int, float], None]]:
        model.check_statistics(state)
        inner, z = _features(config, state, name, x)

        def move(grad_z: Array, step: int, lr: float) -> None:
            grad_inner = layers.normalize_backward(grad_z, state["var"])
            with np.errstate(over="ignore", invalid="ignore"):
                grad = _kernel_gradient(config, state["kernel"], x, grad_inner)
            layers.normalize_update(inner, state["mean"], state["var"], step - 1)
            if config.optimizer == "adam":
                optim.adam(state["kernel"], grad, state["kernel_m"], state["kernel_v"], step, lr)
            else:
                optim.adagrad(state["kernel"], grad, state["kernel_h"], lr)

        return z, move

    run = descent.steps(
        features, partial(_forward, config, state), partial(_loss, config), partial(_update, config, state),
        batches,
        state["step"], partial(model.learning_rate, config), partial(check.items_of, "state", state),
    )  # fmt: skip
    for step, _, loss in run:
        state["step"] = step
        yield loss


def _loss(config: Config, scores: FloatArray, y: Array) -> tuple[float, FloatArray]:
    loss = layers.softmax_loss if config.task == "classification" else layers.squared_loss
    try:
        return loss(scores, y)
    except ValueError:
        raise ValueError(
            "weights: expected leaf weights whose sums are finite, got infinite or NaN scores; go back to a "
            "checkpoint and lower the learning rate"
        ) from None


def step(config: Config, state: State, x: ArrayLike, y: ArrayLike) -> float:
    """Takes a step of stochastic gradient descent in place and returns the loss before it (Lay et al. 2018,
    Alg. 2).

    Parameters
    ----------
    config : Config
    state : dict
        From `start`; changed.
    x : (n_samples, n_inputs) array of real numbers
        A mini-batch; converted to the dtype of the state.
    y : (n_samples,) array of integers or bools, or (n_samples, n_outputs) array of real numbers
        Labels 0 to n_classes - 1, of which some may be absent, or targets.

    Returns
    -------
    float
        Mean softmax or squared loss of the batch before the step.

    Raises
    ------
    ValueError
        Arrays of the state that overlap each other or the samples, or are not those of the configuration.
        After an error no step has been made.

    Notes
    -----
    A step reads and updates only the leaf weights that the batch reaches: its cost does not grow with the
    number of leaves.

    Examples
    --------
    >>> import numpy as np
    >>> from hforest.demo import Config, start, step
    >>> config = Config(n_trees=5, depth=3, n_features=4)
    >>> state = start(config, n_inputs=2, n_classes=2)
    >>> x, y = np.array([[0, 1], [1, 0]]), np.array([0, 1])
    >>> losses = [step(config, state, x, y) for _ in range(300)]
    >>> losses[-1] < losses[0]
    True
    """
    arrays, caller_arrays = model.check_model(config, state), (x, y)
    x = model.samples(config, state, "x", x, 1)
    y = model.goals(config, state, "y", y, x)
    model.check_written(arrays, x=caller_arrays[0], y=caller_arrays[1])
    model.check_moments(config, state, ["kernel", *model.parameters(config)[3:]])
    return next(_steps(config, state, "x", [(x, y)]))


def _features(config: Config, state: State, name: str, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    # The learned features of samples before and after normalisation.
    with np.errstate(over="ignore", invalid="ignore"):
        inner = _inner(config, state["kernel"], x)
    _check_features(name, inner)
    z = layers.normalize(inner, state["mean"], state["var"])
    _check_features(name, z)
    return inner, z


def _check_features(name: str, a: FloatArray) -> None:
    try:
        check.finite(name, a)
    except ValueError:
        raise ValueError(
            f"{name}: expected samples whose learned features are finite, got an infinite or NaN feature; "
            "scale the samples, or go back to a checkpoint and lower the learning rate"
        ) from None


def predict(config: Config, state: State, x: ArrayLike) -> FloatArray:
    """Returns class scores, of which the highest is that of the predicted class, or targets of a regression.

    Other parameters: see `step`.

    Parameters
    ----------
    state : dict
        State, modified in place: leaf weights first take their missed steps.

    Returns
    -------
    scores : (n_samples, n_classes) array
        Logits or targets, in the dtype of the state. ``data.classes[scores.argmax(axis=1)]`` are the
        predicted labels as they stand in the data (`Data`, `Checkpoint`).

    Examples
    --------
    >>> import numpy as np
    >>> from hforest.demo import Config, predict, start
    >>> config = Config(n_trees=5, depth=3, n_features=4)
    >>> scores = predict(config, start(config, n_inputs=2, n_classes=3), np.zeros((7, 2)))
    >>> scores.shape
    (7, 3)
    >>> classes = np.array(["ant", "bee", "cat"])
    >>> classes[scores.argmax(axis=1)].shape
    (7,)
    """
    arrays, caller_arrays = model.check_model(config, state), x
    x = model.samples(config, state, "x", x)
    model.check_synced(config, arrays, x=caller_arrays)
    for place, a in arrays.items():
        if place[7:-2] in ("kernel", "thresholds", "weights", "mixing", "bias"):
            check.finite(place, a, remedy="train again with a lower lr")
    return _predict(config, state, "x", x)


def _predict(config: Config, state: State, name: str, x: FloatArray) -> FloatArray:
    # `predict` on rows that are checked and converted.
    t, f, w = _forest(state)
    scores = array_module(x).empty((len(x), n_outputs(state)), w.dtype)
    # The scores of a network that diverges may overflow.
    with check.items_of("state", state), np.errstate(over="ignore", invalid="ignore"):
        if config.optimizer == "adam":
            last = state["step"]
            hinge.adam_sync(t, w, _adam_state(state), last, model.learning_rate(config, last))
        for first in range(0, len(x), CHUNK):
            part = slice(first, first + CHUNK)
            _, z = _features(config, state, name, x[part])
            if config.leaves == "scalar":
                scores[part] = _mixed(state, hinge.forward(z, t, f, w, kind=config.kind))
            else:
                hinge.forward(z, t, f, w, kind=config.kind, aggregate="sum", out=scores[part])
    return scores


def error_rate(config: Config, state: State, x: ArrayLike, y: ArrayLike) -> float:
    """Returns the share of samples, 0 to 1, whose highest score is not that of their label; of a regression
    1 - R**2, the sum of squared errors over that of deviations from the mean target.

    Parameters: see `predict` and `step`.

    Returns
    -------
    float
        1 - R**2 is NaN or infinite where all targets are equal.
    """
    arrays, caller_arrays = model.check_model(config, state), (x, y)
    x = model.samples(config, state, "x", x, 1)
    y = model.goals(config, state, "y", y, x)
    model.check_synced(config, arrays, x=caller_arrays[0], y=caller_arrays[1])
    return _error_rate(config, state, "x", x, y)


def _error_rate(config: Config, state: State, name: str, x: FloatArray, y: Array) -> float:
    scores = _predict(config, state, name, x)
    if config.task == "classification":
        return float((scores.argmax(axis=1) != y).mean())
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return float(
            ((scores - y) ** 2).sum(dtype=np.float64) / ((y - y.mean(axis=0)) ** 2).sum(dtype=np.float64)
        )


@lru_cache(maxsize=2)
def _shuffle(seed: int, n: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, 1, epoch]).permutation(n)


def _batch(config: Config, n: int, i: int) -> np.ndarray:
    # Samples of step i. Every epoch has a shuffle of its own, keyed by the epoch's number; the samples that
    # do not fill a batch are left out of that epoch. With shuffle="once" batches follow each other in the
    # first epoch's order, without end.
    if config.shuffle == "once":
        first = i * config.batch_size
        return _shuffle(config.seed, n, 0)[np.arange(first, first + config.batch_size) % n]
    size = min(config.batch_size, n)
    epoch, part = divmod(i, n // size)
    return _shuffle(config.seed, n, epoch)[part * size : (part + 1) * size]


HISTORY = ("step", "loss", "error")


def _appended(state: State, name: str) -> list[float]:
    # Returns the history that an earlier part of the run has written.
    row = np.asarray(state.get(name, ()))
    if row.ndim != 1 or (row.dtype.kind not in "iuf" and row.size):
        raise TypeError(
            f"state[{name!r}]: expected a 1-D array, got {type(state[name]).__name__}; pass an array"
        )
    return list(row)


def train(
    config: Config,
    state: State,
    x_train: ArrayLike,
    y_train: ArrayLike,
    x_test: ArrayLike,
    y_test: ArrayLike,
    *,
    checkpoint: Callable[[State], object] | None = None,
    progress: Progress = None,
) -> dict[str, np.ndarray]:
    """Takes the steps from `state["step"]` to `config.steps` and returns the history of evaluations.

    Parameters
    ----------
    config : Config
    state : dict
        From `start` or `load_checkpoint`; changed.
    x_train, x_test : (n_samples, n_inputs) arrays of real numbers
        Converted to the dtype of the state; on one device with it. Test rows may be those of `hold_out`,
        which leaves the test set for `error_rate` at the end, as in `python -m hforest`.
    y_train, y_test : (n_samples,) arrays of integers or bools, or (n_samples, n_outputs) of real numbers
        Labels 0 to n_classes - 1, or targets.
    checkpoint : callable, optional
        Called as checkpoint(state) after every evaluation on x_test (every `eval_every`-th step and the last
        one). All weights are up to date then, and the history so far is in the state (history_step,
        history_loss, history_error).

    Returns
    -------
    dict
        Arrays step, loss (mean loss of the batches since the previous evaluation) and error (`error_rate` of
        x_test): one element for each evaluation, those of a resumed run's earlier part
        included.

    Notes
    -----
    A run that `progress` ended continues with a further `train` on that state, bit for bit. No state is
    selected by its error. The least test error over the evaluations is what Lay et al. 2018 report in their
    second set of experiments.

    With `config.lr_half_life`, leaf weights and thresholds take missed steps at the learning rate of the step
    that next reaches them.
    """
    check_progress(progress)
    check.function("checkpoint", checkpoint, "state")
    arrays = model.check_model(config, state)
    caller_arrays = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
    x_train = model.samples(config, state, "x_train", x_train, 1)
    y_train = model.goals(config, state, "y_train", y_train, x_train)
    x_test = model.samples(config, state, "x_test", x_test, 1)
    y_test = model.goals(config, state, "y_test", y_test, x_test)
    model.check_written(arrays, **caller_arrays)
    model.check_moments(config, state, model.parameters(config))
    history = {name: _appended(state, f"history_{name}") for name in HISTORY}
    # Losses of the batches since the last evaluation, if the run was stopped between two.
    losses = _appended(state, "history_pending")
    state.pop("history_pending", None)
    xp = array_module(x_train)
    try:
        with reporting(progress, config.steps, "step") as report:
            picked = (xp.asarray(_batch(config, len(x_train), i)) for i in range(state["step"], config.steps))
            batches = ((x_train[rows], y_train[rows]) for rows in picked)
            for loss in _steps(config, state, "x_train", batches):
                losses.append(loss)
                step = state["step"]
                if step % config.eval_every == 0 or step == config.steps:
                    error = _error_rate(config, state, "x_test", x_test, y_test)
                    for name, value in zip(HISTORY, (step, float(np.mean(losses)), error), strict=True):
                        history[name].append(value)
                        state[f"history_{name}"] = np.array(history[name])
                    losses = []
                    if checkpoint is not None:
                        checkpoint(state)
                if not report(step):
                    break
    finally:
        if losses:
            state["history_pending"] = np.array(losses)
    return {name: np.array(values) for name, values in history.items()}
