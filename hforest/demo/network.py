"""p1 Fig. 2b, 2c: inner products or convolutions -> normalise -> hinge forest -> sum over trees -> softmax.

The whole state of a run is one dict of arrays (`start` makes it, `step` changes it in place), so that a run
can be written to a file and resumed with the same bits. Batches depend on the seed and the number of the step
alone.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from .. import hinge, layers, optim
from ..core import check, supervised
from ..core.aliases import Array, ArrayLike, DType, FloatArray, IntArray, Progress
from ..core.dispatch import array_module
from ..core.progress import check_progress, reporting

Kind = Literal["tree", "fern"]
State = dict[str, Array]


@dataclass(frozen=True)
class Config:
    """What a run does; two runs with equal configs and data give the same bits on one machine.

    Parameters
    ----------
    kind : "tree" or "fern"
        The forest's members.
    n_trees : int
        Trees or ferns.
    depth : int
        Decisions on a path, 1 to 30.
    n_features : int
        Learned inner products between the data and the forest (p1 Fig. 2b).
    n_kernels : int
        Learned 5x5 convolutions with stride 3 of square images (p1 Fig. 2c) instead of inner products; 0:
        inner products.
    optimizer : "adam" or "adagrad"
    lr : float
        Learning rate, above 0.
    batch_size : int
        Samples of a mini-batch.
    steps : int
        Mini-batches of the whole run.
    eval_every : int
        Steps from one evaluation on the test set to the next; weights are brought up to date then.
    seed : int
        Of parameters and batches, at least 0.

    Raises
    ------
    TypeError, ValueError
        A setting of another type; outside its range.
    """

    kind: Kind = "tree"
    n_trees: int = 100
    depth: int = 10
    n_features: int = 100
    n_kernels: int = 0
    optimizer: Literal["adam", "adagrad"] = "adam"
    lr: float = 0.005
    batch_size: int = 53
    steps: int = 40_000
    eval_every: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        check.choice("kind", self.kind, ("tree", "fern"))
        check.choice("optimizer", self.optimizer, ("adam", "adagrad"))
        plain: dict[str, int | float] = {
            name: check.integer(name, getattr(self, name), 1)
            for name in ("n_trees", "n_features", "batch_size", "steps", "eval_every")
        }
        plain["depth"] = check.integer("depth", self.depth, 1, check.MAX_DEPTH)
        plain["n_kernels"] = check.integer("n_kernels", self.n_kernels, 0)
        plain["seed"] = check.integer("seed", self.seed, 0)
        plain["lr"] = check.number("lr", self.lr, 0.0, open_low=True)
        for name, value in plain.items():  # Python's numbers, which a checkpoint stores
            object.__setattr__(self, name, value)


PARAMETERS = ("kernel", "thresholds", "weights")
WINDOW, STRIDE = 5, 3
CHUNK = 2000
"""Samples that `predict` evaluates at a time."""


def _first_layer(config: Config, n_inputs: int) -> tuple[tuple[int, ...], int]:
    """The shape of the first layer's kernel, and the number of features that the layer makes.

    Parameters
    ----------
    config : Config
    n_inputs : int
        Columns of the data; with `config.n_kernels` the pixels of a square image.

    Returns
    -------
    shape : tuple of int
    n_features : int

    Raises
    ------
    ValueError
        Kernels, and columns that are no square image of at least 5x5.
    """
    if not config.n_kernels:
        return (n_inputs, config.n_features), config.n_features
    side = math.isqrt(n_inputs)
    if side * side != n_inputs or side < WINDOW:
        raise ValueError(
            f"n_kernels: expected 0 or square images of at least {WINDOW}x{WINDOW}, got {n_inputs} columns; "
            "pass n_kernels=0 to learn inner products"
        )
    return (config.n_kernels, WINDOW, WINDOW), config.n_kernels * ((side - WINDOW) // STRIDE + 1) ** 2


def _images(x: Array) -> Array:
    side = math.isqrt(x.shape[1])
    return x.reshape(-1, side, side)


def _inner(config: Config, kernel: Array, x: Array) -> Array:
    # The features of a batch before normalisation.
    if config.n_kernels:
        return layers.conv2d(_images(x), kernel, STRIDE).reshape(len(x), -1)
    return x @ kernel


def _kernel_gradient(config: Config, kernel: Array, x: Array, grad_inner: Array) -> Array:
    if not config.n_kernels:
        return x.T @ grad_inner
    images = _images(x)
    out = (images.shape[1] - WINDOW) // STRIDE + 1
    grad = grad_inner.reshape(len(x), config.n_kernels, out, out)
    return layers.conv2d_backward(grad, images, kernel, STRIDE)[1]


def start(config: Config, n_inputs: int, n_classes: int, *, dtype: DType = np.float32) -> State:
    """Returns the state before the first step.

    Parameters
    ----------
    config : Config
    n_inputs, n_classes : int
        Columns of the data and classes.
    dtype : float32 or float64

    Returns
    -------
    dict
        kernel (n_inputs, n_features) or (n_kernels, 5, 5) ~ N(0, 1); thresholds, features and weights of the
        forest (p1 Alg. 1); mean 0 and var 1 of the normalisation; the optimiser's arrays; step, the int 0.

    Raises
    ------
    TypeError, ValueError
        A size that is not an integer, or below 1; another dtype; `n_kernels` and columns that are no square
        image of at least 5x5.

    Examples
    --------
    >>> from hforest.demo import Config, start
    >>> state = start(Config(n_trees=2, depth=3, n_features=4), n_inputs=5, n_classes=3)
    >>> state["kernel"].shape, state["weights"].shape
    ((5, 4), (2, 8, 3))
    """
    _check_config(config)
    n_inputs = check.integer("n_inputs", n_inputs, 1, check.MAX_COUNT)
    n_classes = check.integer("n_classes", n_classes, 1, supervised.MAX_CLASSES)
    dtype = check.float_dtype(dtype)
    rng = np.random.default_rng([config.seed, 0])
    init = hinge.tree_init if config.kind == "tree" else hinge.fern_init
    shape, n_features = _first_layer(config, n_inputs)
    with check.memory("n_inputs", "weights", math.prod(shape) * (8 + dtype.itemsize)):
        state: State = {"kernel": rng.standard_normal(shape).astype(dtype)}
    state["thresholds"], state["features"], state["weights"] = init(
        config.n_trees, config.depth, n_features, n_classes, dtype=dtype, rng=rng
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
    # Class scores of a batch, and its route; with Adam, weights that the batch reads are brought up to date
    # first.
    t, f, w = (state[name] for name in ("thresholds", "features", "weights"))
    if config.optimizer == "adam":
        forward = hinge.tree_adam_forward if config.kind == "tree" else hinge.fern_adam_forward
        return forward(z, t, f, w, _adam_state(state), state["step"] + 1, config.lr)
    plain: Any = hinge.tree_forward if config.kind == "tree" else hinge.fern_forward
    return plain(z, t, f, w, aggregate="sum", return_route=True)


def _update(config: Config, state: State, grad_scores: Array, route: Any) -> Array:
    # Updates the forest's parameters in place; returns the gradient by its input.
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


def _check_config(config: Config) -> None:
    if not isinstance(config, Config):
        raise TypeError(f"config: expected a Config, got {type(config).__name__}; pass hforest.demo.Config()")


def check_model(config: Config, state: State) -> dict[str, Array]:
    """The arrays of a state by their places ("state['kernel']"), if they are those of the configuration.

    What they hold is checked where it is used.
    """
    _check_config(config)
    if not isinstance(state, dict):
        raise TypeError(f"state: expected a dict, got {type(state).__name__}; call hforest.demo.start")
    adam = config.optimizer == "adam"
    n_vertices = 2**config.depth - 1 if config.kind == "tree" else config.depth
    vertices = (config.n_trees, n_vertices)
    shapes: dict[str, check.Axes] = {
        "kernel": (config.n_kernels, WINDOW, WINDOW) if config.n_kernels else ("n_inputs", config.n_features),
        "thresholds": vertices, "features": vertices,
        "weights": (config.n_trees, 2**config.depth, "n_classes"),
        "mean": ("n_normalized",), "var": ("n_normalized",),
    }  # fmt: skip
    for name in PARAMETERS:
        shapes |= {f"{name}_{moment}": shapes[name] for moment in (("m", "v") if adam else ("h",))}
    if adam:
        shapes |= {"thresholds_last": vertices, "weights_last": shapes["weights"][:2]}
    for name in (*shapes, "step"):
        if name not in state:
            raise ValueError(
                f"state: expected the arrays that start makes, got none called {name!r}; pass a whole state"
            )
    named = {f"state[{name!r}]": state[name] for name in shapes}
    check.same_device(**named)
    real = check.floating("state['kernel']", state["kernel"])
    whole: dict[str, np.dtype] = {
        "features": check.INT32, "thresholds_last": check.INT64, "weights_last": check.INT64,
    }  # fmt: skip
    sizes: check.Sizes = {} if config.n_kernels else {"n_normalized": config.n_features}
    for (label, a), (name, axes) in zip(named.items(), shapes.items(), strict=True):
        check.array(label, a, whole.get(name, real), axes, sizes)
    check.integer("state['step']", state["step"], 0, 2**62)
    return named


def _check_written(arrays: dict[str, Array], **read: ArrayLike) -> None:
    # A step changes all arrays of the state but the features in place; `read` has the samples and labels as
    # the caller gave them.
    written = dict(arrays)
    features = {"state['features']": written.pop("state['features']")}
    check.outputs(written, features | {name: supervised.as_given(name, a) for name, a in read.items()})


def _check_moments(config: Config, state: State, names: Sequence[str]) -> None:
    # An optimiser would make NaN of moments that it cannot have made.
    kinds = ("m", "v") if config.optimizer == "adam" else ("h",)
    for name in (f"{parameter}_{kind}" for parameter in names for kind in kinds):
        with check.items_of("state", state):
            check.finite(name, state[name])
        if check.values_checked() and not name.endswith("_m") and bool((state[name] < 0).any()):
            raise ValueError(
                f"state[{name!r}]: expected sums of squares, got a number below 0; go back to a checkpoint"
            )


def _check_synced(config: Config, arrays: dict[str, Array], **read: ArrayLike) -> None:
    # An evaluation brings the forest up to date where Adam trains it.
    if config.optimizer == "adam":
        written = {place: a for place, a in arrays.items() if place[7:].startswith(("thresholds", "weights"))}
        check.outputs(written, {name: supervised.as_given(name, a) for name, a in read.items()})


def _samples(config: Config, state: State, name: str, x: ArrayLike, least: int = 0) -> FloatArray:
    # At least `least` rows in the dtype of the state, on its device, with the columns that the first layer
    # takes.
    kernel = state["kernel"]
    x = supervised.matrix(name, x, kernel.dtype)
    check.same_device(state=kernel, **{name: x})
    n = x.shape[1]
    fits = _first_layer(config, n)[1] == len(state["mean"]) if config.n_kernels else n == len(kernel)
    if not fits:
        wanted = "the images" if config.n_kernels else f"the {len(kernel)} columns"
        raise ValueError(
            f"{name}: expected {wanted} that the state was made for, got {n} columns; pass such data"
        )
    if len(x) < least:
        raise ValueError(f"{name}: expected at least {least} sample, got {len(x)}; pass some samples")
    return x


def _labels(state: State, name: str, y: ArrayLike, x: FloatArray) -> IntArray:
    labels, _ = supervised.labels(name, y, len(x), state["weights"].shape[-1])
    check.same_device(x=x, **{name: labels})
    return labels


def step(config: Config, state: State, x: ArrayLike, y: ArrayLike) -> float:
    """Makes one step of stochastic gradient descent (p1 Alg. 2) in place and returns the loss before it.

    Parameters
    ----------
    config : Config
    state : dict
        From `start`; changed.
    x : (n_samples, n_inputs) array of real numbers
        A mini-batch; converted to the dtype of the state.
    y : (n_samples,) array of integers or bools
        Labels 0 to n_classes - 1; classes may be absent.

    Returns
    -------
    float
        Mean softmax loss of the batch before the step.

    Raises
    ------
    TypeError, ValueError, IndexError
        Arrays of another kind or shape; numbers that are not finite; labels that are not those of the state;
        arrays of the state that are read-only, overlap each other or the samples, or are not those of the
        configuration. No step has been made then.

    Notes
    -----
    Only leaf weights that the batch reaches are read, updated and brought up to date: the cost of a step does
    not grow with the number of leaves.

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
    arrays, given = check_model(config, state), (x, y)
    x = _samples(config, state, "x", x, 1)
    y = _labels(state, "y", y, x)
    _check_written(arrays, x=given[0], y=given[1])
    _check_moments(config, state, ["kernel"])
    return _step(config, state, "x", x, y)


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
            f"{name}: expected samples whose learned features are finite, got one that is not; scale them, "
            "or go back to a checkpoint and lower the learning rate"
        ) from None


def _step(config: Config, state: State, name: str, x: FloatArray, y: IntArray) -> float:
    # `step` on arrays that are checked and converted; `name` is that of the samples.
    with check.items_of("state", state):
        inner, z = _features(config, state, name, x)
        scores, route = _forward(config, state, z)
        try:
            loss, grad_scores = layers.softmax_loss(scores, y)
        except ValueError:
            raise ValueError(
                "weights: expected leaf weights whose sums are finite, got scores that are not; go back to a "
                "checkpoint and lower the learning rate"
            ) from None

        # Nothing is refused from here on: no error leaves a state that is half changed.
        grad_z = _update(config, state, grad_scores, route)
    grad_inner = layers.normalize_backward(grad_z, state["var"])
    with np.errstate(over="ignore", invalid="ignore"):
        grad_kernel = _kernel_gradient(config, state["kernel"], x, grad_inner)
    layers.normalize_update(inner, state["mean"], state["var"], state["step"])
    state["step"] += 1
    if config.optimizer == "adam":
        m, v = state["kernel_m"], state["kernel_v"]
        optim.adam(state["kernel"], grad_kernel, m, v, state["step"], config.lr)
    else:
        optim.adagrad(state["kernel"], grad_kernel, state["kernel_h"], config.lr)
    return loss


def predict(config: Config, state: State, x: ArrayLike) -> FloatArray:
    """Returns class scores; the class with the highest score is the predicted one.

    Parameters
    ----------
    config : Config
    state : dict
        Changed: leaf weights that no recent batch has read are brought up to date first.
    x : (n_samples, n_inputs) array of real numbers
        Converted to the dtype of the state.

    Returns
    -------
    scores : (n_samples, n_classes) array
        Logits, in the dtype of the state. ``data.classes[scores.argmax(axis=1)]`` are the predicted labels as
        they stand in the data (`Data`, `Checkpoint`).

    Raises
    ------
    TypeError, ValueError
        x of another kind or shape; numbers that are not finite.

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
    arrays, given = check_model(config, state), x
    x = _samples(config, state, "x", x)
    _check_synced(config, arrays, x=given)
    return _predict(config, state, "x", x)


def _predict(config: Config, state: State, name: str, x: FloatArray) -> FloatArray:
    # `predict` on rows that are checked and converted.
    forward = hinge.tree_forward if config.kind == "tree" else hinge.fern_forward
    t, f, w = (state[name] for name in ("thresholds", "features", "weights"))
    scores = array_module(x).empty((len(x), *w.shape[2:]), w.dtype)
    with check.items_of("state", state):
        if config.optimizer == "adam":
            hinge.adam_sync(t, w, _adam_state(state), state["step"], config.lr)
        for first in range(0, len(x), CHUNK):
            part = slice(first, first + CHUNK)
            _, z = _features(config, state, name, x[part])
            forward(z, t, f, w, aggregate="sum", out=scores[part])
    return scores


def error_rate(config: Config, state: State, x: ArrayLike, y: ArrayLike) -> float:
    """Returns the share of samples, 0 to 1, whose highest score is not that of their label.

    Parameters
    ----------
    config, state, x
        As for `predict`.
    y : (n_samples,) array of integers or bools
        Labels 0 to n_classes - 1.

    Returns
    -------
    float

    Raises
    ------
    TypeError, ValueError, IndexError
        As `predict`; labels that are not those of the state; no sample.
    """
    arrays, given = check_model(config, state), (x, y)
    x = _samples(config, state, "x", x, 1)
    y = _labels(state, "y", y, x)
    _check_synced(config, arrays, x=given[0], y=given[1])
    return _error_rate(config, state, "x", x, y)


def _error_rate(config: Config, state: State, name: str, x: FloatArray, y: IntArray) -> float:
    return float((_predict(config, state, name, x).argmax(axis=1) != y).mean())


@lru_cache(maxsize=2)
def _shuffle(seed: int, n: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, 1, epoch]).permutation(n)


def _batch(config: Config, n: int, i: int) -> np.ndarray:
    # Samples of step i. Every epoch has a shuffle of its own, keyed by the epoch's number; the samples that
    # do not fill a batch are left out of that epoch.
    size = min(config.batch_size, n)
    epoch, part = divmod(i, n // size)
    return _shuffle(config.seed, n, epoch)[part * size : (part + 1) * size]


HISTORY = ("step", "loss", "error")


def _appended(state: State, name: str) -> list[float]:
    # What an earlier part of the run has written.
    given = np.asarray(state.get(name, ()))
    if given.ndim != 1 or (given.dtype.kind not in "iuf" and given.size):
        raise TypeError(
            f"state[{name!r}]: expected a row of numbers, got {type(state[name]).__name__}; pass an array"
        )
    return list(given)


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
    """Makes the steps from `state["step"]` to `config.steps` and returns the history of evaluations.

    Parameters
    ----------
    config : Config
    state : dict
        From `start` or `load_checkpoint`; changed.
    x_train, x_test : (n_samples, n_inputs) arrays of real numbers
        Converted to the dtype of the state; on one device with it.
    y_train, y_test : (n_samples,) arrays of integers or bools
        Labels 0 to n_classes - 1.
    checkpoint : callable, optional
        Called as checkpoint(state) after every evaluation on the test set (every `eval_every`-th step and the
        last one). All weights are up to date then, and the history so far is in the state (history_step,
        history_loss, history_error).
    progress : callable or bool, optional
        Called as progress(done, total) after every step; False ends the training and returns the history so
        far, and `train` goes on from that state to the same bits. True shows a bar.

    Returns
    -------
    dict
        Arrays step, loss (mean softmax loss of the batches since the previous evaluation) and error (share of
        wrong classes of the test set): one element for each evaluation, those of a resumed run's earlier part
        included.

    Raises
    ------
    TypeError, ValueError, IndexError
        Arrays of another kind or shape; numbers that are not finite; labels that are not those of the state;
        a `checkpoint` or `progress` that is no function.

    Notes
    -----
    There is no validation set: the least test error over the evaluations is what p1 reports in its second set
    of experiments.
    """
    check_progress(progress)
    check.function("checkpoint", checkpoint, "state")
    arrays = check_model(config, state)
    given = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
    x_train = _samples(config, state, "x_train", x_train, 1)
    y_train = _labels(state, "y_train", y_train, x_train)
    x_test = _samples(config, state, "x_test", x_test, 1)
    y_test = _labels(state, "y_test", y_test, x_test)
    _check_written(arrays, **given)
    _check_moments(config, state, PARAMETERS)
    history = {name: _appended(state, f"history_{name}") for name in HISTORY}
    # Losses of the batches since the last evaluation, if the run was stopped between two.
    losses = _appended(state, "history_pending")
    state.pop("history_pending", None)
    xp = array_module(x_train)
    try:
        with reporting(progress, config.steps, "step") as report:
            for i in range(state["step"], config.steps):
                picked = xp.asarray(_batch(config, len(x_train), i))
                losses.append(_step(config, state, "x_train", x_train[picked], y_train[picked]))
                if (i + 1) % config.eval_every == 0 or i + 1 == config.steps:
                    error = _error_rate(config, state, "x_test", x_test, y_test)
                    for name, value in zip(HISTORY, (i + 1, float(np.mean(losses)), error), strict=True):
                        history[name].append(value)
                        state[f"history_{name}"] = np.array(history[name])
                    losses = []
                    if checkpoint is not None:
                        checkpoint(state)
                if not report(i + 1):
                    break
    finally:
        if losses:
            state["history_pending"] = np.array(losses)
    return {name: np.array(values) for name, values in history.items()}
