"""The network's settings and state: what `start` makes; checks of a state and of samples for it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .. import hinge
from ..core import check, series, supervised
from ..core.aliases import Array, ArrayLike, DType, FloatArray
from ..core.dispatch import array_module
from ..core.gpu import cast

Kind = Literal["tree", "fern"]
State = dict[str, Any]


@dataclass(frozen=True)
class Config:
    """Settings of a run; runs with equal settings and data are bit-identical on one machine.

    Parameters
    ----------
    kind : "tree" or "fern"
        Whether the forest consists of trees or ferns.
    n_trees : int
        Trees or ferns.
    depth : int
        Decisions on a path, 1 to 30.
    n_features : int
        Number of learned inner products between data and forest (Lay et al. 2018, Fig. 2a, 2b). With 0 the
        forest reads the normalised columns.
    n_kernels : int
        Number of learned 5x5 convolutions with stride 3 on square images, which replace inner products (Lay
        et al. 2018, Fig. 2c); 0 for inner products.
    optimizer : "adam" or "adagrad"
    lr : float
        Learning rate of the first steps, above 0.
    lr_half_life : int
        Number of steps after which the learning rate is halved, at most ten times: it is lr * 2**-min(10,
        step / lr_half_life). With 0 it is constant.
    batch_size : int
        Number of samples per mini-batch.
    steps : int
        Number of mini-batches of the whole run.
    eval_every : int
        Number of steps between evaluations, at which weights take their missed steps.
    seed : int
        Seed of parameters and batches, at least 0.
    leaves : "vector" or "scalar"
        "vector": a leaf holds a vector of scores, which is summed over trees (Lay et al. 2018, Fig. 2b, 2c).
        "scalar": a leaf holds a number, and each output is an inner product of the trees' numbers (Fig. 2a,
        for UCI data); requires "adagrad", as in the paper.
    output_bias : bool
        Whether a learned number, 0 at the start, is added to each of these inner products, as in the program
        of Lay et al. 2018; requires scalar leaves.
    shuffle : "epochs" or "once"
        "epochs": every epoch shuffles the samples, and omits those that do not fill a batch. "once": all
        epochs have the order of one shuffle, and a batch at its end continues at its beginning, as in the
        program of Lay et al. 2018.
    task : "classification" or "regression"
        Softmax loss of labels, or squared loss of targets.

    Raises
    ------
    ValueError
        Scalar leaves with Adam; `output_bias` with a vector in each leaf.
    """

    kind: Kind = "tree"
    n_trees: int = 100
    depth: int = 10
    n_features: int = 100
    n_kernels: int = 0
    optimizer: Literal["adam", "adagrad"] = "adam"
    lr: float = 0.005
    lr_half_life: int = 0
    batch_size: int = 53
    steps: int = 40_000
    eval_every: int = 500
    seed: int = 0
    leaves: Literal["vector", "scalar"] = "vector"
    task: Literal["classification", "regression"] = "classification"
    output_bias: bool = False
    shuffle: Literal["epochs", "once"] = "epochs"

    def __post_init__(self) -> None:
        check.choice("kind", self.kind, ("tree", "fern"))
        check.choice("optimizer", self.optimizer, ("adam", "adagrad"))
        check.choice("leaves", self.leaves, ("vector", "scalar"))
        check.choice("task", self.task, supervised.TASKS)
        check.choice("shuffle", self.shuffle, ("epochs", "once"))
        check.flag("output_bias", self.output_bias)
        if self.leaves == "scalar" and self.optimizer == "adam":
            raise ValueError(
                "leaves: expected 'vector' with optimizer='adam', whose steps sum gradients over trees, "
                "got 'scalar'; "
                "pass optimizer='adagrad'"
            )
        check.require(
            self.leaves == "scalar" or not self.output_bias, "output_bias", "False with leaves='vector'",
            self.output_bias, "pass leaves='scalar', whose outputs are inner products",
        )  # fmt: skip
        plain: dict[str, int | float] = {
            name: check.integer(name, getattr(self, name), 1)
            for name in ("n_trees", "batch_size", "steps", "eval_every")
        }
        plain["n_features"] = check.integer("n_features", self.n_features, 0)
        plain["depth"] = check.integer("depth", self.depth, 1, check.MAX_DEPTH)
        plain["n_kernels"] = check.integer("n_kernels", self.n_kernels, 0)
        plain["lr_half_life"] = check.integer("lr_half_life", self.lr_half_life, 0)
        plain["seed"] = check.integer("seed", self.seed, 0)
        plain["lr"] = check.number("lr", self.lr, 0.0, open_low=True)
        for name, value in plain.items():  # Python's numbers, which a checkpoint stores
            object.__setattr__(self, name, value)


def learning_rate(config: Config, step: int) -> float:
    """Returns the learning rate of a step, of which the first is 1.

    It does not depend on `config.steps`: a continued run is bit-identical to a longer one.
    """
    half_lives = min(10.0, step / config.lr_half_life if config.lr_half_life else 0.0)
    part, whole = math.modf(half_lives)
    return config.lr * math.ldexp(float(series.exp(-math.log(2) * part)), -int(whole))


WINDOW, STRIDE = 5, 3


def parameters(config: Config) -> tuple[str, ...]:
    """Returns the names of the arrays of a state that an optimiser updates."""
    last = ("mixing", "bias") if config.output_bias else ("mixing",)
    return ("kernel", "thresholds", "weights", *(last if config.leaves == "scalar" else ()))


def n_outputs(state: State) -> int:
    """Returns the number of classes or targets of a state."""
    return int(state["mixing" if "mixing" in state else "weights"].shape[-1])


def first_layer(config: Config, n_inputs: int) -> tuple[tuple[int, ...], int]:
    """Returns the shape of the first layer's kernel, and the number of features that the layer makes.

    `n_inputs` is the number of columns. With `config.n_kernels` they are the pixels of a square image of at
    least 5x5, else ValueError.
    """
    if not config.n_kernels:
        return (n_inputs, config.n_features), config.n_features or n_inputs
    side = math.isqrt(n_inputs)
    if side * side != n_inputs or side < WINDOW:
        raise ValueError(
            f"n_kernels: expected 0 or square images of at least {WINDOW}x{WINDOW}, got {n_inputs} columns; "
            "pass n_kernels=0 for a layer of inner products"
        )
    return (config.n_kernels, WINDOW, WINDOW), config.n_kernels * ((side - WINDOW) // STRIDE + 1) ** 2


def start(config: Config, n_inputs: int, n_classes: int, *, dtype: DType = np.float32) -> State:
    """Returns the state before the first step.

    Parameters
    ----------
    config : Config
    n_inputs, n_classes : int
        Columns of the data, and classes or targets.

    Returns
    -------
    dict
        kernel (n_inputs, n_features) or (n_kernels, 5, 5) ~ N(0, 1); thresholds, features and weights of the
        forest (Lay et al. 2018, Alg. 1); of scalar leaves mixing (n_trees, n_classes) ~ N(0, 1), and with
        `output_bias` bias (n_classes,) of zeros; mean 0 and var 1 of the normalisation; the optimiser's
        arrays; step, the int 0.

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
    shape, n_features = first_layer(config, n_inputs)
    with check.memory("n_inputs", "weights", math.prod(shape) * (8 + dtype.itemsize)):
        state: State = {"kernel": rng.standard_normal(shape).astype(dtype)}
    state["thresholds"], state["features"], state["weights"] = hinge.init(
        config.n_trees, config.depth, n_features, () if config.leaves == "scalar" else n_classes,
        kind=config.kind, dtype=dtype, rng=rng,
    )  # fmt: skip
    if config.leaves == "scalar":
        state["mixing"] = rng.standard_normal((config.n_trees, n_classes)).astype(dtype)
    if config.output_bias:
        state["bias"] = np.zeros(n_classes, dtype)
    state["mean"] = np.zeros(n_features, dtype)
    state["var"] = np.ones(n_features, dtype)
    adam = config.optimizer == "adam"
    for name in ("kernel",) if adam else parameters(config):
        for moment in ("m", "v") if adam else ("h",):
            state[f"{name}_{moment}"] = np.zeros_like(state[name])
    if adam:
        moments = hinge.adam_state(state["thresholds"], state["weights"])
        state |= {name: a for name, a in moments._asdict().items() if a is not None}
    state["step"] = 0
    return state


def _check_config(config: Config) -> None:
    check.instance("config", config, Config, "a Config", "pass hforest.demo.Config()")


def shapes(config: Config) -> dict[str, check.Axes]:
    """Returns the shapes of a state's arrays by their names, as far as the configuration tells them."""
    vertices = (config.n_trees, 2**config.depth - 1 if config.kind == "tree" else config.depth)
    axes_of: dict[str, check.Axes] = {
        "kernel": (config.n_kernels, WINDOW, WINDOW) if config.n_kernels else ("n_inputs", config.n_features),
        "thresholds": vertices, "features": vertices,
        "weights": (config.n_trees, 2**config.depth, "n_classes"),
        "mean": ("n_normalized",), "var": ("n_normalized",),
    }  # fmt: skip
    if not (config.n_kernels or config.n_features):
        axes_of |= {"mean": ("n_inputs",), "var": ("n_inputs",)}
    if config.leaves == "scalar":
        axes_of |= {"weights": axes_of["weights"][:2], "mixing": (config.n_trees, "n_classes")}
    if config.output_bias:
        axes_of |= {"bias": ("n_classes",)}
    adam = config.optimizer == "adam"
    for name in parameters(config):
        axes_of |= {f"{name}_{moment}": axes_of[name] for moment in (("m", "v") if adam else ("h",))}
    if adam:
        axes_of |= {"thresholds_last": vertices, "weights_last": axes_of["weights"][:2]}
    return axes_of


def check_model(config: Config, state: State) -> dict[str, Array]:
    """The arrays of a state by their places ("state['kernel']"), if they are those of the configuration.

    What they hold is checked where it is used.
    """
    _check_config(config)
    check.instance("state", state, dict, "a dict", "call hforest.demo.start")
    axes_of = shapes(config)
    for name in (*axes_of, "step"):
        if name not in state:
            raise ValueError(
                f"state: expected all arrays of a state, got none called {name!r}; pass the state that "
                "start returned"
            )
    named = {f"state[{name!r}]": state[name] for name in axes_of}
    check.same_device(**named)
    real = check.floating("state['kernel']", state["kernel"])
    whole: dict[str, np.dtype] = {
        "features": check.INT32, "thresholds_last": check.INT64, "weights_last": check.INT64,
    }  # fmt: skip
    sizes: check.Sizes = {} if config.n_kernels else {"n_normalized": config.n_features}
    for (label, a), (name, axes) in zip(named.items(), axes_of.items(), strict=True):
        check.array(label, a, whole.get(name, real), axes, sizes)
    check.integer("state['step']", state["step"], 0, 2**62)
    return named


def check_written(arrays: dict[str, Array], **read: ArrayLike) -> None:
    # A step changes all arrays of the state but the features in place; `read` has the samples and labels as
    # the caller gave them.
    written = dict(arrays)
    features = {"state['features']": written.pop("state['features']")}
    check.outputs(written, features | {name: supervised.as_given(name, a) for name, a in read.items()})


def check_moments(config: Config, state: State, names: Sequence[str]) -> None:
    # An optimiser would make NaN of moments that it cannot have made.
    kinds = ("m", "v") if config.optimizer == "adam" else ("h",)
    for name in (f"{parameter}_{kind}" for parameter in names for kind in kinds):
        with check.items_of("state", state):
            check.finite(name, state[name])
        if check.values_checked() and not name.endswith("_m") and bool((state[name] < 0).any()):
            raise ValueError(
                f"state[{name!r}]: expected sums of squares, got a number below 0; go back to a checkpoint"
            )


def check_statistics(state: State) -> None:
    """Checks the running mean and variance: a step would make NaN of infinities."""
    if not check.values_checked():
        return
    for name in ("mean", "var"):
        bad = ~array_module(state[name]).isfinite(state[name])
        if bool(bad.any()):
            i = int(bad.argmax())
            raise ValueError(
                f"state[{name!r}]: expected finite running statistics, got {state[name][i].item()} at "
                f"index {i}; "
                "training has diverged: go back to a checkpoint or lower the learning rate"
            )


def check_synced(config: Config, arrays: dict[str, Array], **read: ArrayLike) -> None:
    # An evaluation brings the forest up to date where Adam trains it.
    if config.optimizer == "adam":
        written = {place: a for place, a in arrays.items() if place[7:].startswith(("thresholds", "weights"))}
        check.outputs(written, {name: supervised.as_given(name, a) for name, a in read.items()})


def samples(config: Config, state: State, name: str, x: ArrayLike, least: int = 0) -> FloatArray:
    # At least `least` rows in the dtype of the state, on its device, with the columns that the first layer
    # takes.
    kernel = state["kernel"]
    x = supervised.matrix(name, x, kernel.dtype)
    check.same_device(state=kernel, **{name: x})
    n = x.shape[1]
    fits = first_layer(config, n)[1] == len(state["mean"]) if config.n_kernels else n == len(kernel)
    if not fits:
        wanted = "the images" if config.n_kernels else f"the {len(kernel)} columns"
        raise ValueError(
            f"{name}: expected {wanted} of the data that the state was started on, got {n} columns; pass "
            "data with the same columns"
        )
    if len(x) < least:
        raise ValueError(f"{name}: expected at least {least} sample, got {len(x)}; pass more samples")
    return x


def goals(config: Config, state: State, name: str, y: ArrayLike, x: FloatArray) -> Array:
    # Labels, or targets (n_samples, n_outputs) in the dtype of the samples.
    goals: Array
    if config.task == "classification":
        goals, _ = supervised.labels(name, y, len(x), n_outputs(state))
    else:
        goals = cast(supervised.targets(name, y, len(x)), x.dtype)
        check.require(
            goals.shape[1] == n_outputs(state), name, f"{n_outputs(state)} targets per sample",
            goals.shape[1], "pass as many targets as to start",
        )  # fmt: skip
    check.same_device(x=x, **{name: goals})
    return goals
