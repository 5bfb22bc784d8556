"""Every public function of hinge, neural and optim with one argument of a wrong kind.

Functions and parameters are found by introspection: a new function without a good call here fails.
"""

import inspect

import numpy as np
import pytest

from hforest import hinge, neural, optim

T, F, W = hinge.tree_init(2, 3, 4, (2,), dtype=np.float64, rng=0)
FT, FF, FW = hinge.fern_init(2, 3, 4, (2,), dtype=np.float64, rng=0)
X = np.random.default_rng(0).normal(size=(5, 4))
Y = np.array([0, 1, 2, 0, 1])
DECISIONS = np.random.default_rng(1).normal(size=(5, 2, 7))
LINEAR = neural.linear_init(2, 2, 4, 3, dtype=np.float64, rng=0)

WRONG = {
    "None": None,
    "list": [1.5, "two"],
    "string": "no such word",
    "2**70": 2**70,
    "object": object(),
}

# Values that a parameter takes beside its default, and which are therefore no errors.
TAKEN = {(name, "2**70") for name in ("rng", "lr", "eps", "scale")} | {
    ("max_features", "None"),
    ("history", "list"),
}


def _good(function):
    """Arguments of a good call, with arrays of its own; the rest are defaults."""
    fern = function.__name__.startswith("fern")
    t, f, w = (a.copy() for a in ((FT, FF, FW) if fern else (T, F, W)))
    traverse = hinge.fern_traverse if fern else hinge.tree_traverse
    leaf, margin, vertex = traverse(X, t, f)
    n_classes = 3
    param = np.ones((3, 2))
    of_hinge = {
        "x": X, "thresholds": t, "features": f, "weights": w, "leaf": leaf, "margin": margin, "vertex": vertex,
        "grad_y": np.ones((5, 2, 2)), "n_features": 4, "n_trees": 2, "depth": 3, "n_leaves": 8, "n_slots": 7,
        "y": Y, "state": hinge.adam_state(t, w), "step": 1, "lr": 0.1,
    }  # fmt: skip
    of_neural = {
        "f": DECISIONS, "leaves": neural.uniform_leaves(2, 3, n_classes, dtype=np.float64), "y": Y,
        "grad_p": np.ones((5, n_classes)), "n_trees": 2, "depth": 2, "n_features": 4, "n_classes": n_classes,
        "model": LINEAR, "x": X,
    }  # fmt: skip
    of_optim = {
        "param": param, "rows": np.array([0, 2]), "grad": param.copy(), "state": np.zeros((3, 2)),
        "m": np.zeros((3, 2)), "v": np.zeros((3, 2)), "last": np.zeros(3, np.int64), "step": 1, "lr": 0.1,
    }  # fmt: skip
    package = function.__module__.split(".")[1]
    values = {"hinge": of_hinge, "neural": of_neural, "optim": of_optim}[package]
    parameters = inspect.signature(function).parameters
    call = {name: values[name] for name, p in parameters.items() if p.default is p.empty}
    if "adam_backward" in function.__name__:
        call["grad_y"] = np.ones((5, 2))
    if package == "optim" and "rows" in call:
        call["grad"] = np.ones((2, 2))
    if function is neural.fit:
        call["epochs"] = 1
    return call


FUNCTIONS = {
    f"{package.__name__.split('.')[1]}.{name}": getattr(package, name)
    for package in (hinge, neural, optim)
    for name in package.__all__
    if inspect.isfunction(getattr(package, name))
}
CASES = [(name, argument) for name, f in FUNCTIONS.items() for argument in inspect.signature(f).parameters]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_good_call_is_good(name):
    function = FUNCTIONS[name]
    function(**_good(function))


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize(("name", "argument"), CASES)
def test_one_argument_of_a_wrong_kind(name, argument, kind):
    function = FUNCTIONS[name]
    parameter = inspect.signature(function).parameters[argument]
    call = _good(function) | {argument: WRONG[kind]}
    if (kind == "None" and parameter.default is None) or (argument, kind) in TAKEN:
        function(**call)
        return
    before = {key: a.copy() for key, a in call.items() if isinstance(a, np.ndarray)}
    with pytest.raises(
        (TypeError, ValueError, IndexError), match=rf"(?s)^{argument}\b.*: expected .*got .*; "
    ):
        function(**call)
    for key, a in before.items():
        np.testing.assert_array_equal(call[key], a)
