"""Every array that a call writes has memory of its own: no other array of the call overlaps it.

Functions that write into arrays are found by introspection, and what a good call changes is what it writes: a new
function without a call here fails.
"""

import importlib
import inspect
import re

import numpy as np
import pytest

import hforest
from hforest import hinge, layers, manifold, neural, optim, project, split, tree

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 4))
Y = np.array([0, 1, 2, 0, 1, 2], np.int32)
F = RNG.normal(size=(6, 2, 7))
LEAVES = neural.uniform_leaves(2, 3, 3, dtype=np.float64)
FOREST = manifold.grow(X, Y, 3, projection="sparse", rng=0)
PROJECTIONS = project.sample(project.sparse_distribution(4), 5, dtype=np.float64, rng=0)


def _hinge(kind):
    t, f, w = getattr(hinge, f"{kind}_init")(2, 3, 4, (2,), dtype=np.float64, rng=0)
    route = getattr(hinge, f"{kind}_traverse")(X, t, f)
    forest = {"thresholds": t, "features": f, "weights": w}
    grads = (np.empty_like(X), np.empty_like(t), np.empty_like(w))
    state = hinge.adam_state(t, w)
    step = {"state": state, "step": 9, "lr": 0.1}
    p = RNG.normal(size=(*t.shape, 4))
    linear_route = getattr(hinge, f"{kind}_linear_traverse")(X, t, p)
    linear = {"x": X, "projections": p, "weights": w}
    for a, low in zip(state, (0.1, 0.1, 1, 0.1, 0.1, 1), strict=True):
        a[...] = low
    return {
        "traverse": {"x": X, "thresholds": t, "features": f, "out": hinge.Route(*map(np.empty_like, route))},
        "forward": {"x": X, **forest, "out": np.empty((6, 2, 2))},
        "backward": {
            "grad_y": np.ones((6, 2, 2)), **route._asdict(), "features": f, "weights": w, "n_features": 4,
            "out": grads,
        },
        "conv_traverse": {
            "x": X[:, :, None], "thresholds": t, "features": f, "kernel_size": 1,
            "out": hinge.Route(*(np.empty((6, 1, 2), a.dtype) for a in route)),
        },
        "conv_forward": {"x": X[:, :, None], **forest, "kernel_size": 1, "out": np.empty((6, 1, 2, 2))},
        "conv_backward": {
            "grad_y": np.ones((6, 1, 2, 2)), "route": hinge.Route(*(a[:, None] for a in route)), "features": f,
            "weights": w, "x_shape": (6, 4, 1), "kernel_size": 1,
            "out": (np.empty((6, 4, 1)), *grads[1:]),
        },
        "linear_traverse": {
            "x": X, "thresholds": t, "projections": p, "out": hinge.Route(*map(np.empty_like, linear_route)),
        },
        "linear_forward": {**linear, "thresholds": t, "out": np.empty((6, 2, 2))},
        "linear_backward": {
            "grad_y": np.ones((6, 2, 2)), **linear_route._asdict(), **linear,
            "out": (np.empty_like(X), np.empty_like(t), np.empty_like(p), np.empty_like(w)),
        },
        "adam_forward": {"x": X, **forest, **step},
        "adam_backward": {"grad_y": np.ones((6, 2)), **route._asdict(), **forest, **step, "n_features": 4},
    }  # fmt: skip


def _calls():
    calls = {f"hinge.{kind}_{name}": c for kind in ("tree", "fern") for name, c in _hinge(kind).items()}
    of_hinge = calls["hinge.tree_adam_backward"]
    route = {name: of_hinge[name] for name in ("leaf", "margin", "vertex")}
    calls["hinge.leaf_outputs"] = {
        "leaf": route["leaf"], "margin": route["margin"], "weights": of_hinge["weights"], "out": np.empty((6, 2, 2)),
    }  # fmt: skip
    calls["hinge.adam_sync"] = {n: of_hinge[n] for n in ("thresholds", "weights", "state", "step", "lr")}
    index = np.array([[0, 1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1, 0]], np.int32)
    shared = {"f": np.ascontiguousarray(F[:, 0]), "leaves": LEAVES, "index": index, "out": np.empty((6, 7))}
    calls["neural.loss_backward"] = {**shared, "y": Y, "sample_weight": np.ones(6)}
    calls["neural.backward"] = {**shared, "grad_p": np.ones((6, 3))}
    for name in ("apply", "predict", "vote_shares"):
        out = np.empty((6, 3), np.int32 if name == "apply" else np.float64)
        calls[f"tree.{name}"] = {"forest": FOREST, "x": X, "out": out}
    calls["split.impurity"] = {"counts": np.ones((6, 4)), "out": np.empty(6)}
    calls["project.project"] = {
        "x": X, **PROJECTIONS._asdict(), "samples": np.arange(3, dtype=np.int32), "out": np.empty((5, 3))
    }  # fmt: skip
    calls["layers.normalize_update"] = {"x": X, "mean": np.zeros(4), "var": np.ones(4), "step": 1}
    param, rows, last = np.ones((3, 2)), np.array([0, 1, 2]), np.zeros(3, np.int64)
    dense = {"param": param, "grad": param + 1, "lr": 0.1}
    adam = {"m": param / 2, "v": param / 3, "step": 1}
    calls["optim.adagrad"] = {**dense, "state": param / 2}
    calls["optim.adagrad_rows"] = {**dense, "rows": rows, "state": param / 2}
    calls["optim.adam"] = {**dense, **adam}
    calls["optim.adam_rows"] = {**dense, **adam, "rows": rows, "last": last}
    calls["optim.adam_catch_up"] = {"param": param, "lr": 0.1, **adam, "last": last, "rows": rows}
    return calls


CALLS = _calls()
GRADIENTS = {
    3: ("grad_x", "grad_thresholds", "grad_weights"),
    4: ("grad_x", "grad_thresholds", "grad_projections", "grad_weights"),
}
"""Names of gradients that a call returns, by their number."""


def _function(name):
    package, function = name.split(".")
    return getattr(importlib.import_module(f"hforest.{package}"), function)


def _arrays(value, name):
    """The arrays in a value, by the names that messages give them."""
    if isinstance(value, np.ndarray):
        yield name, value
    elif isinstance(value, dict):
        for key, a in value.items():
            yield from _arrays(a, key)
    elif isinstance(value, tuple) and any(isinstance(a, np.ndarray) for a in value):
        fields = getattr(value, "_fields", None) or GRADIENTS[len(value)]
        for field, a in zip(fields, value, strict=True):
            yield from _arrays(a, f"out {field}" if name == "out" else f"{name}.{field}")


def _replaced(value, arrays, name=""):
    """The value with other arrays in it, by name."""
    if isinstance(value, dict):
        return {key: _replaced(a, arrays, key) for key, a in value.items()}
    if isinstance(value, tuple):
        names = [key for key, _ in _arrays(value, name)]
        if not names:
            return value
        parts = [arrays[key] for key in names]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return arrays[name] if isinstance(value, np.ndarray) else value


def _copies(name):
    return {key: a.copy() for key, a in _arrays(CALLS[name], "")}


def _written(name):
    """The arrays that a good call changes."""
    arrays = _copies(name)
    for key, a in arrays.items():
        if key.startswith("out"):
            a.view(np.uint8).fill(255) if a.ndim else a.fill(255)
    before = {key: a.tobytes() for key, a in arrays.items()}
    _function(name)(**_replaced(CALLS[name], arrays))
    return [key for key, a in arrays.items() if a.tobytes() != before[key]]


def _overlapping(a, b, offset):
    """Copies of two arrays in one buffer, the second at an offset."""
    buffer = np.zeros(a.nbytes + b.nbytes + offset, np.uint8)
    views = [np.ndarray(part.shape, part.dtype, buffer, start) for part, start in ((a, 0), (b, offset))]
    for view, part in zip(views, (a, b), strict=True):
        view[...] = part  # the second, which is read, is whole
    return views


def test_every_function_that_writes_is_called():
    packages = (
        hinge,
        layers,
        neural,
        optim,
        project,
        split,
        tree,
        hforest.growth,
        hforest.co2,
        hforest.classic,
    )
    writes = re.compile(r"changed in place|, in place[.;:]", re.IGNORECASE)
    for package in (*packages, hforest.cascade, manifold):
        for name in package.__all__:
            function = getattr(package, name)
            if not inspect.isfunction(function):
                continue
            known = f"{package.__name__.split('.')[1]}.{name}" in CALLS
            assert known or "out" not in inspect.signature(function).parameters, name
            assert known or not writes.search(inspect.getdoc(function)), name


@pytest.mark.parametrize("name", CALLS)
def test_outputs_overlap_nothing(name):
    arrays, written = _copies(name), _written(name)
    assert written
    if "out" in CALLS[name]:
        assert written == [key for key in arrays if key.startswith("out")]
    for output in written:
        for other, b in arrays.items():
            # At the same place, and with the first number of one in the last place of the other.
            for offset in {0, (arrays[output].nbytes - 1) // 8 * 8}:
                if other == output or not b.size:  # an empty array lies nowhere
                    continue
                first, second = _overlapping(arrays[output], b, offset)
                call = _replaced(CALLS[name], {**_copies(name), output: first, other: second})
                pair = rf"({re.escape(output)}: .*{re.escape(other)};|{re.escape(other)}: .*{re.escape(output)};)"
                with pytest.raises(ValueError, match=pair) as caught:
                    _function(name)(**call)
                assert "expected memory of its own, got an array that overlaps" in str(caught.value)


@pytest.mark.parametrize("name", CALLS)
def test_outputs_are_writable(name):
    for output in _written(name):
        arrays = _copies(name)
        arrays[output].flags.writeable = False
        with pytest.raises(ValueError, match=f"^{re.escape(output)}: expected a writable array"):
            _function(name)(**_replaced(CALLS[name], arrays))


def _out_and(shape, dtype, x):
    """An array for a result in the memory of a copy of x, and that copy."""
    buffer = np.zeros(max(x.nbytes, int(np.prod(shape)) * np.dtype(dtype).itemsize), np.uint8)
    given = np.ndarray(x.shape, x.dtype, buffer)
    given[...] = x
    return np.ndarray(shape, dtype, buffer), given


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("neural.loss_backward", dtype) for dtype in (np.int8, np.int64)]
    + [
        (name, dtype)
        for name in ("tree.apply", "tree.predict", "tree.vote_shares", "split.impurity")
        for dtype in (np.int8, np.int64, np.float32, np.float64)
    ],
)
def test_inputs_that_are_converted_first(name, dtype):
    argument = {"neural": "y", "tree": "x", "split": "counts"}[name.split(".")[0]]
    call = CALLS[name]
    given = np.abs(call[argument]).astype(dtype)
    expected = _function(name)(**call | {argument: given, "out": None})
    expected = expected[1] if isinstance(expected, tuple) else expected
    out, shared = _out_and(expected.shape, expected.dtype, given)
    with pytest.raises(
        ValueError, match=f"^out: expected memory of its own, got an array that overlaps {argument};"
    ):
        _function(name)(**call | {argument: shared, "out": out})
    np.testing.assert_array_equal(shared, given)


def test_outputs_between_the_rows_of_an_input():
    both = np.zeros((12, 4))
    x, out = both[::2], both[1::2][:1].reshape(4)
    x[...] = np.abs(X)
    np.testing.assert_array_equal(split.impurity(x[:4], out=out), split.impurity(x[:4].copy()))
    with pytest.raises(ValueError, match="^out: .*overlaps counts;"):
        split.impurity(x[:4], out=both[2])
