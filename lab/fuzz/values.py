"""Good values of arguments, by name: hinge and neural forests. A new name without a value fails a test.

A value is looked up as "package.function.name", then "package.name", then "name". Files values_*.py beside this one
register more: values_<package>.py has those of a package. Values of one call share a `Setting`: sizes, a dtype and a generator of random numbers, all drawn by hypothesis, so that a failing call shrinks
to small arrays.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hforest import hinge, neural

from .targets import Target
from .trees import copied

NO_LEARNERS = {"", "hinge", "layers", "neural", "optim", "project", "tree"}
"""Packages whose functions take no samples, too. Those of others learn from one or more: "learners.name" is a value of
their arguments."""

VALUES: dict[str, Callable[["Setting"], Any]] = {}


def value(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function of a setting as the value of arguments."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            VALUES[name] = function
        return function

    return register


def options(names: str, *choices: Any) -> None:
    """Registers that arguments are one of some constants."""
    for name in names.split():
        VALUES[name] = lambda s: s.choice(choices)


def value_of(target: Target, name: str) -> Callable[["Setting"], Any] | None:
    """What makes the value of an argument; where nothing is registered, a flag is True or False."""
    package = [target.package, *["learners"] * (target.package not in NO_LEARNERS)]
    for key in (f"{target.name}.{name}", *(f"{word}.{name}" for word in package), name):
        if key in VALUES:
            return VALUES[key]
    parameter = target.parameters.get(name)
    flag = parameter is not None and isinstance(parameter.default, bool)
    return (lambda s: s.flag()) if flag else None


ALWAYS = {"rng", "epochs", "n_train", "nu", "shape", "patch_max", "forests", "max_levels",
          "resume", "trials", "steps", "n_boosted",
          "n_trees", "theta", "last_lr", "n_permutations", "n_bootstrap", "background", "cover",
          "stats.confidence_intervals.feature", "hinge.forward.features", "hinge.forward.weights"}  # fmt: skip
"""Arguments that are never left to their defaults, which don't fit small arrays, take long or exclude one another."""


NOT_EMPTY = {"median_thresholds", "fit_weights", "from_forest", "prune", "pruning_alphas"}
"""Functions besides learners that take at least one sample."""


class Missing(LookupError):
    """An argument that has no value here."""


# Sizes of one block of a vector body, of several, and of none; small ones come first, since hypothesis shrinks to them.
_SAMPLES = (2, 1, 3, 0, 5, 17, 40)
_SIZES = (2, 1, 3, 5, 17)


class Setting:
    """What the arguments of one call share."""

    def __init__(self, draw: Callable[[Any], Any], target: Target) -> None:
        self.draw, self.target = draw, target
        self.random = np.random.default_rng(draw(st.integers(0, 999)))
        self.dtype = np.dtype(self.choice((np.float64, np.float32)))
        self.ties = self.flag()
        self.learns = target.package not in NO_LEARNERS
        self.n = max(self.choice(_SAMPLES), 1 if self.learns or target.last in NOT_EMPTY else 0)
        self.n_features = self.choice(_SIZES)
        self.n_trees = self.choice((1, 2, 3, 9))
        self.depth = self.choice((2, 1, 3))
        self.n_classes = self.choice((2, 1, 3))
        if target.package == "cascade":
            self.n = 3 * self.n_classes + self.choice((0, 5))
        elif target.package == "stats":  # each class has rows for both parts of a tree, and others
            self.n_classes = max(self.n_classes, 2)
            self.n = 4 * self.n_classes + self.choice((0, 5))
        elif target.name == "co2.search":
            self.n = max(self.n, 5)
        self._arguments: dict[str, Any] = {}

    # ---------------------------------------------------------------------------------- drawing

    def choice(self, choices: Any) -> Any:
        """One of some values; hypothesis shrinks to the first."""
        return choices[self.draw(st.integers(0, len(choices) - 1))]

    def flag(self) -> bool:
        return bool(self.draw(st.booleans()))

    def integer(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def numbers(self, *shape: int) -> np.ndarray:
        """Random numbers: with `ties` few different ones, which every dtype holds exactly."""
        a = self.random.integers(-2, 3, shape) / 2 if self.ties else self.random.normal(size=shape)
        return np.asarray(a, self.dtype)

    def positive(self, *shape: int) -> np.ndarray:
        return np.abs(self.numbers(*shape)) + self.dtype.type(0.5)

    def indices(self, stop: int, *shape: int, dtype: Any = np.int32) -> np.ndarray:
        return self.random.integers(0, stop, shape).astype(dtype)

    # -------------------------------------------------------------------------------- arguments

    def make(self, name: str) -> Any:
        """A value for an argument, new at every call."""
        function = value_of(self.target, name)
        if function is None:
            raise Missing(
                f"{self.target.name}: no value for the argument {name!r}; add one to lab/fuzz/values_{self.target.package}.py"
            )
        return function(self)

    def argument(self, name: str) -> Any:
        """The value of an argument of this call, or its default; the same every time."""
        if name not in self._arguments:
            parameter = self.target.parameters.get(name)
            left_out = parameter is None or (parameter.default is not parameter.empty and self.flag())
            always = name in ALWAYS or f"{self.target.name}.{name}" in ALWAYS
            if parameter is not None and left_out and not always:
                self._arguments[name] = parameter.default
            else:
                self._arguments[name] = self.make(name)
        return self._arguments[name]

    def given(self, name: str, default: Any = None) -> Any:
        """As `argument`, or `default` where the function has no such argument."""
        return self.argument(name) if name in self.target.parameters else default

    def arguments(self) -> dict[str, Any]:
        """All arguments of a good call. Defaults are passed, too."""
        return {name: self.argument(name) for name in self.target.parameters}


def result_of(s: Setting, left_out: str = "out", **settings: Any) -> Any:
    """What the function returns without an argument, with some settings in place of those of the call."""
    others = {
        name: copied(s.argument(name)) for name in s.target.parameters if name not in (left_out, *settings)
    }
    return s.target.function(**others, **settings)


# ------------------------------------------------------------------------------------------ shared

value("rng")(lambda s: s.integer(0, 3))
value("n_trees")(lambda s: s.n_trees)
value("depth")(lambda s: s.depth)
value("n_features")(lambda s: s.n_features)
value("n_classes")(lambda s: s.n_classes)
value("dtype")(lambda s: s.dtype)
value("n_samples")(lambda s: max(s.n, 1))
value("lr")(lambda s: s.choice((0.1, 1e-3)))
value("eps")(lambda s: s.choice((1e-8, 1e-3)))
value("scale")(lambda s: s.choice((1.0, 0.01)))
options("first_tree", 0, 1, 1000)
options("beta1", 0.9, 0.0, 0.5)
options("beta2", 0.999, 0.9)
options("weight_decay", 0.0, 0.01, 3.0)
options("n", 1, 2, 5)
options("mode", "stdout", "dicts")
options("backend", "reference")
options("n_bytes", 512 << 20, 0)
options("loss", "tree", "forest")
options("max_features", None, "sqrt", 1, 0.5, 1.0)
options("task", "classification", "regression")


class Progress:
    """A progress function with a readable representation."""

    def __call__(self, done: int, total: int) -> None:
        assert 0 <= done <= total

    def __repr__(self) -> str:
        return "lambda done, total: None"


options("progress", None, False, Progress())


@value("x")
def _x(s: Setting) -> np.ndarray:
    return s.numbers(s.n, s.n_features)


@value("y")
def _labels(s: Setting) -> np.ndarray:
    return s.indices(s.n_classes, s.n, dtype=np.int64)


# ------------------------------------------------------------------------------------------- hinge

options("aggregate", None, "sum", "mean")
options("outputs", (), 2, (2, 1))
for _name in ("adam_forward", "adam_backward", "adam_step"):
    options(f"hinge.{_name}.aggregate", "sum", "mean")
options("hinge.kind", "tree", "fern")
options("hinge.margin", "column", "projection")
options(
    "hinge.windows",
    None,
    hinge.Windows(1),
    hinge.Windows(2, (2, 1), 1),
    hinge.Windows((1, 3), 1, (0, 2), (1, 2)),
)
value("n_leaves")(lambda s: 2**s.depth)
options("l2", 0.3, 1e-3)
options("hinge.bayes_weights.prior", 1.0, 0.01)
options("tolerance", 1e-3, 0.1)

_SPACE = (4, 5)


def _projections(s: Setting) -> bool:
    """Whether vertices read vectors; elsewhere `margin` is an array."""
    return "kind" in s.target.parameters and s.given("margin") == "projection"


def _n_vertices(s: Setting) -> int:
    return s.depth if s.given("kind") == "fern" else 2**s.depth - 1


def _n_columns(s: Setting) -> int:
    """Columns of a sample: of a row, or of a window of images whose channels are the features."""
    windows = s.given("windows")
    if windows is None:
        return s.n_features
    size = windows.kernel_size
    return s.n_features * int(np.prod(size if isinstance(size, tuple) else (size,) * len(_SPACE)))


@value("hinge.x")
def _x_of_hinge(s: Setting) -> np.ndarray:
    return s.numbers(s.n, s.n_features, *(() if s.given("windows") is None else _SPACE))


value("thresholds")(lambda s: s.numbers(s.n_trees, _n_vertices(s)))
value("hinge.init.features")(lambda s: "random" if _projections(s) else s.choice(("random", "sequential")))
value("hinge.adam_state.features")(lambda s: s.numbers(s.n_trees, _n_vertices(s), s.n_features))


@value("features")
def _features(s: Setting) -> np.ndarray:
    if _projections(s):
        return s.numbers(s.n_trees, _n_vertices(s), _n_columns(s))
    return s.indices(_n_columns(s), s.n_trees, _n_vertices(s))


@value("weights")
def _weights(s: Setting) -> np.ndarray:
    return s.numbers(s.n_trees, 2**s.depth, *s.choice(((), (2,), (17,))))


@value("hinge.adam_step.weights")
def _weights_of_classes(s: Setting) -> np.ndarray:
    return s.numbers(s.n_trees, 2**s.depth, s.choice((1, 2, 17)))


_WORDS = ("kind", "margin", "windows")


@value("hinge.adam_step.y")
def _labels_of_places(s: Setting) -> np.ndarray:
    arrays = [s.argument(name) for name in ("x", "thresholds", "features")]
    route = hinge.traverse(*arrays, **{name: s.argument(name) for name in _WORDS})
    return s.indices(s.argument("weights").shape[2], *route.leaf.shape[:-1], dtype=np.int64)


@value("hinge.route")
def _route(s: Setting) -> Any:
    """The route of some samples; in `adam_backward` the one of the forward call, which changes the state."""
    if "_route" not in s._arguments:
        words = {
            name: s.argument(name) for name in _WORDS if name in s.target.parameters and name != "margin"
        }
        if "route" in s.target.parameters:
            words["margin"] = s.argument("margin")
        x = s.argument("x") if "route" in s.target.parameters else _x(s)
        if s.target.last == "adam_backward":
            arrays = [s.argument(name) for name in ("thresholds", "features", "weights", "state")]
            settings = {name: s.argument(name) for name in ("aggregate", "beta1", "beta2", "eps")}
            _, route = hinge.adam_forward(
                x, *arrays, s.argument("step"), s.argument("lr"), **words, **settings
            )
        else:
            thresholds = s.numbers(s.n_trees, _n_vertices(s))
            features = s.given("features")
            route = hinge.traverse(x, thresholds, _features(s) if features is None else features, **words)
        s._arguments["_route"] = route
    return s._arguments["_route"]


value("leaf")(lambda s: _route(s).leaf)
value("hinge.leaf_outputs.margin", "hinge.fit_weights.margin")(lambda s: _route(s).margin)
value("hinge.step")(lambda s: s.choice((1, 3, 40)))


@value("hinge.grad_y")
def _grad_y(s: Setting) -> np.ndarray:
    places = s.argument("route").leaf.shape
    return s.numbers(*(places[:-1] if s.argument("aggregate") else places), *s.argument("weights").shape[2:])


@value("hinge.state")
def _adam_state(s: Setting) -> hinge.AdamState:
    learned = s.argument("features") if _projections(s) else None
    state = hinge.adam_state(s.argument("thresholds"), s.argument("weights"), learned)
    step = s.argument("step")
    if step > 1 and s.flag():
        for name in ("thresholds", "weights"):
            for moment, numbers in (("m", s.numbers), ("v", s.positive)):
                getattr(state, f"{name}_{moment}")[...] = numbers(*getattr(state, f"{name}_{moment}").shape)
            last = getattr(state, f"{name}_last")
            last[...] = s.indices(step, *last.shape)
    return state


@value("hinge.backward_sparse.out")
def _out_of_sparse(s: Setting) -> Any:
    return _blank(result_of(s).x)


@value("out")
def _out(s: Setting) -> Any:
    return _blank(result_of(s)[1] if s.target.last == "loss_backward" else result_of(s))


def _blank(a: Any) -> Any:
    if isinstance(a, tuple):
        parts = [_blank(b) for b in a]
        return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
    return None if a is None else np.full_like(a, 7)


# ------------------------------------------------------------------------------------------ neural

options("epochs", 1, 2)
options("batch_size", 2, 1, 64)
options("n_iter", 1, 0, 5)
options("neural.fit.n_iter", 1, 5)
options("first_epoch", 0, 1)
value("last_lr")(lambda s: s.argument("lr") * s.choice((0.5, 1.0)))
value("history")(lambda s: [])
value("checkpoint")(lambda s: _Called())


class _Called:
    """A function of one argument with a readable representation."""

    def __call__(self, state: Any) -> None:
        assert state is not None

    def __repr__(self) -> str:
        return "lambda state: None"


@value("neural.index")
def _index(s: Setting) -> np.ndarray:
    return s.indices(s.n_features, s.n_trees, 2**s.depth - 1)


@value("neural.f")
def _f(s: Setting) -> np.ndarray:
    if s.given("index") is None:
        return s.numbers(s.n, s.n_trees, 2**s.depth - 1)
    return s.numbers(s.n, s.n_features)


@value("neural.leaves")
def _leaves(s: Setting) -> np.ndarray:
    shares = s.positive(s.n_trees, 2**s.depth, s.n_classes)
    return np.asarray(shares / shares.sum(axis=2, keepdims=True), s.dtype)


value("neural.sample_weight")(lambda s: s.positive(s.n))
value("neural.class_weight")(lambda s: s.choice((None, "balanced", {0: 2.5}, np.full(s.n_classes, 2.0))))
value("neural.grad_p")(lambda s: s.numbers(s.n, s.n_classes))


@value("neural.model")
def _model(s: Setting) -> neural.Linear:
    model = neural.linear_init(
        s.n_trees, s.depth, s.n_features, s.n_classes, max_features=s.choice((None, 1)), dtype=s.dtype, rng=0
    )
    return model._replace(leaves=_leaves(s))


@value("neural.partial_fit.state")
def _online_state(s: Setting) -> neural.OnlineState | None:
    model, x = s.argument("model"), s.argument("x")
    if s.flag():
        return None
    x, y = np.zeros((2, x.shape[1])), np.zeros(2, int)
    return neural.partial_fit(model, x, y)[1]


@value("neural.linear_init.x", "neural.fit.x", "neural.partial_fit.x")
def _some_samples(s: Setting) -> np.ndarray:
    s.n = max(s.n, 1)
    return s.numbers(s.n, s.n_features)
