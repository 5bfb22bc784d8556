"""No array that a call writes overlaps another array of the call.

Introspection finds the functions that write into arrays; the arrays that a valid call changes are those that
it writes. A new function without a call here fails.
"""

import importlib
import inspect
import itertools
import re

import numpy as np
import pytest
from conftest import covering
from growers import grow

import hforest
from hforest import hinge, layers, neural, optim, project, split, tree

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 4))
Y = np.array([0, 1, 2, 0, 1, 2], np.int32)
F = RNG.normal(size=(6, 2, 7))
LEAVES = neural.uniform_leaves(2, 3, 3, dtype=np.float64)
FOREST = grow(X, Y, 3, kind="sparse", rng=0)
PROJECTIONS = project.sample(project.sparse_distribution(4), 5, dtype=np.float64, rng=0)


def _hinge(kind, margin, windows):
    """Returns calls of hinge's operators by name; images have one pixel and one window."""
    words = {"kind": kind, "margin": margin, "windows": windows}
    x = X if windows is None else X[:, :, None]
    t, f, w = hinge.init(2, 3, 4, (2,), kind=kind, margin=margin, dtype=np.float64, rng=0)
    forest = {"x": x, "thresholds": t, "features": f, "weights": w}
    y, route = hinge.forward_with_route(*forest.values(), **words)
    grads = hinge.Gradients(*map(np.empty_like, hinge.backward(y, route, *forest.values(), **words)))
    if margin == "column":
        grads = grads._replace(features=None)
    state = hinge.adam_state(t, w, f if margin == "projection" else None)
    for name, a in state._asdict().items():
        if a is not None:
            a[...] = 1 if name.endswith("last") else 0.1
    step = {"state": state, "step": 9, "lr": 0.1, **words}
    back = {"grad_y": np.ones_like(y), "route": route, **forest, **words}
    return {
        "traverse": {
            "x": x, "thresholds": t, "features": f, **words, "out": hinge.Route(*map(np.empty_like, route)),
        },
        "forward": {**forest, **words, "out": np.empty_like(y)},
        "forward_with_route": {
            **forest, **words, "out": (np.empty_like(y), hinge.Route(*map(np.empty_like, route))),
        },
        "backward": {**back, "out": grads},
        "backward_sparse": {**back, "out": np.empty_like(x)},
        "adam_forward": {**forest, **step},
        "adam_backward": {**back, "grad_y": np.ones_like(y).sum(axis=-2), **step},
        "adam_step": {**forest, "y": np.zeros(y.shape[:-2], np.int32), **step},
    }  # fmt: skip


def _calls():
    calls = {}
    every = [*itertools.product(("tree", "fern"), ("column", "projection"), (None, hinge.Windows(1)))]
    for i in covering(every):
        kind, margin, windows = every[i]
        word = f"{kind} {margin} {'rows' if windows is None else 'windows'}"
        of_hinge = _hinge(kind, margin, windows)
        calls |= {f"hinge.{name} {word}": call for name, call in of_hinge.items()}
    of_hinge = _hinge("tree", "column", None)["adam_backward"]
    route = of_hinge["route"]
    calls["hinge.leaf_outputs"] = {
        "leaf": route.leaf, "margin": route.margin, "weights": of_hinge["weights"], "out": np.empty((6, 2, 2)),
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


def _function(name):
    package, function = name.split()[0].split(".")
    return getattr(importlib.import_module(f"hforest.{package}"), function)


def _parts(value, name):
    """Returns the parts of a tuple with their names in messages."""
    for field, a in zip(getattr(value, "_fields", ("y", "route")), value, strict=True):
        if name != "out":
            yield f"{name}.{field}", a
        elif isinstance(a, tuple):
            yield name, a
        else:
            yield f"out {'grad_' if isinstance(value, hinge.Gradients) else ''}{field}", a


def _arrays(value, name):
    """Returns the arrays in a value by their names in messages."""
    if isinstance(value, np.ndarray):
        yield name, value
    elif isinstance(value, dict | tuple):
        for key, a in value.items() if isinstance(value, dict) else _parts(value, name):
            yield from _arrays(a, key)


def _replaced(value, arrays, name=""):
    """Returns the value with arrays replaced by name."""
    if isinstance(value, dict):
        return {key: _replaced(a, arrays, key) for key, a in value.items()}
    if isinstance(value, tuple):
        parts = [_replaced(a, arrays, key) for key, a in _parts(value, name)]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return arrays[name] if isinstance(value, np.ndarray) else value


def _copies(name):
    return {key: a.copy() for key, a in _arrays(CALLS[name], "")}


def _written(name):
    """Returns the names of the arrays that a valid call changes."""
    arrays = _copies(name)
    for key, a in arrays.items():
        if key.startswith("out"):
            a.view(np.uint8).fill(255) if a.ndim else a.fill(255)
    before = {key: a.tobytes() for key, a in arrays.items()}
    _function(name)(**_replaced(CALLS[name], arrays))
    return [key for key, a in arrays.items() if a.tobytes() != before[key]]


def _overlapping(a, b, offset):
    """Returns copies of two arrays in one buffer, the second at an offset."""
    buffer = np.zeros(a.nbytes + b.nbytes + offset, np.uint8)
    views = [np.ndarray(part.shape, part.dtype, buffer, start) for part, start in ((a, 0), (b, offset))]
    for view, part in zip(views, (a, b), strict=True):
        view[...] = part  # the second, which is read, is complete
    return views


def test_every_function_that_writes_is_called():
    packages = (
        hinge, layers, neural, optim, project, split, tree, hforest.growth, hforest.co2, hforest.cascade,
    )  # fmt: skip
    writes = re.compile(r"changed in place|, in place[.;:]", re.IGNORECASE)
    for package in packages:
        for name in package.__all__:
            function = getattr(package, name)
            if not inspect.isfunction(function):
                continue
            known = f"{package.__name__.split('.')[1]}.{name}" in {call.split()[0] for call in CALLS}
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
            # At the same address, and with the first number of one at the last number of the other.
            for offset in {0, (arrays[output].nbytes - 1) // 8 * 8}:
                if other == output or not b.size:  # an empty array has no memory
                    continue
                first, second = _overlapping(arrays[output], b, offset)
                call = _replaced(CALLS[name], {**_copies(name), output: first, other: second})
                pair = rf"({re.escape(output)}: .*{re.escape(other)};|{re.escape(other)}: .*{re.escape(output)};)"
                with pytest.raises(ValueError, match=pair) as caught:
                    _function(name)(**call)
                words = "expected memory that no other argument uses, got an array that overlaps"
                assert words in str(caught.value)


@pytest.mark.parametrize("name", CALLS)
def test_outputs_are_writable(name):
    for output in _written(name):
        arrays = _copies(name)
        arrays[output].flags.writeable = False
        with pytest.raises(ValueError, match=f"^{re.escape(output)}: expected a writable array"):
            _function(name)(**_replaced(CALLS[name], arrays))


def _out_and(shape, dtype, x):
    """Returns an array for a result in the memory of a copy of x, and that copy."""
    buffer = np.zeros(max(x.nbytes, int(np.prod(shape)) * np.dtype(dtype).itemsize), np.uint8)
    given = np.ndarray(x.shape, x.dtype, buffer)
    given[...] = x
    return np.ndarray(shape, dtype, buffer), given


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *itertools.product(["neural.loss_backward"], [np.int8, np.int64]),
        *itertools.product(
            ["tree.apply", "tree.predict", "tree.vote_shares", "split.impurity"],
            [np.int8, np.int64, np.float32, np.float64],
        ),
    ],
)
def test_inputs_that_are_converted_first(name, dtype):
    argument = {"neural": "y", "tree": "x", "split": "counts"}[name.split(".")[0]]
    call = CALLS[name]
    given = np.abs(call[argument]).astype(dtype)
    expected = _function(name)(**call | {argument: given, "out": None})
    expected = expected[1] if isinstance(expected, tuple) else expected
    out, shared = _out_and(expected.shape, expected.dtype, given)
    message = f"^out: expected memory that no other argument uses, got an array that overlaps {argument};"
    with pytest.raises(ValueError, match=message):
        _function(name)(**call | {argument: shared, "out": out})
    np.testing.assert_array_equal(shared, given)


def test_outputs_between_the_rows_of_an_input():
    both = np.zeros((12, 4))
    x, out = both[::2], both[1::2][:1].reshape(4)
    x[...] = np.abs(X)
    np.testing.assert_array_equal(split.impurity(x[:4], out=out), split.impurity(x[:4].copy()))
    with pytest.raises(ValueError, match="^out: .*overlaps counts;"):
        split.impurity(x[:4], out=both[2])
