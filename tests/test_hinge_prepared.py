"""Prepared hinge forests: calls on them are bit-identical to calls on arrays, and nothing can be changed."""

import copy
import pickle
import sys
import types

import numpy as np
import pytest

import hforest
from hforest import hinge
from hforest.hinge import operators

pytestmark = pytest.mark.kernels

AGGREGATES = (None, "sum", "mean")
SHAPES = {"rows": (7, 6), "images": (2, 1, 3, 5)}


def forest_of(kind="tree", margin="column", outputs=(3,), dtype=np.float32, depth=4):
    return hinge.init(5, depth, 6, outputs, kind=kind, margin=margin, dtype=dtype, rng=1, scale=1)


def samples_of(name, dtype):
    return np.random.default_rng(2).normal(size=SHAPES[name]).astype(dtype)


@pytest.mark.parametrize("kind", ["tree", "fern"])
@pytest.mark.parametrize("margin", ["column", "projection"])
@pytest.mark.parametrize("outputs", [(), (3,), (2, 2)])
@pytest.mark.parametrize("name", SHAPES)
def test_results_are_those_of_the_arrays(kind, margin, outputs, name, dtype, threads):
    windows = hinge.Windows((2, 3)) if name == "images" else None
    words = {"kind": kind, "margin": margin, "windows": windows}
    p, x = forest_of(kind, margin, outputs, dtype), samples_of(name, dtype)
    ready = hinge.prepare(*p, **words)
    for aggregate in AGGREGATES:
        for some in (x, x[:1], x[:0]):
            for n in (1, 2):
                threads(n)
                want = hinge.forward(some, *p, **words, aggregate=aggregate)
                out = np.empty_like(want)
                for got in (
                    hinge.forward(some, ready, aggregate=aggregate),
                    hinge.forward(some, ready, **words, aggregate=aggregate, out=out),
                ):
                    assert got.shape == want.shape
                    assert got.tobytes() == want.tobytes()
                assert got is out
    with hforest.using("reference"):
        want = hinge.forward(x, *p, **words)
        assert hinge.forward(x, ready).tobytes() == want.tobytes()


def test_nothing_reads_the_whole_forest(monkeypatch, dtype):
    p, x = forest_of(dtype=dtype), samples_of("rows", dtype)
    ready, want = hinge.prepare(*p), hinge.forward(x, *p)

    def fail(*arguments):
        raise AssertionError

    monkeypatch.setattr(operators, "check_forward", fail)
    assert hinge.forward(x, ready).tobytes() == want.tobytes()
    assert hinge.forward(np.hstack([x, x]), ready).tobytes() == want.tobytes()  # more columns than are read
    with pytest.raises(AssertionError):
        hinge.forward(x, *p)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ([[0.0] * 6], {}), (np.zeros(6, np.float32), {}), (np.zeros((2, 6)), {}), (np.zeros((6, 2), np.float32).T, {}),
        (np.full((1, 6), np.nan, np.float32), {}), (np.full((1, 6), np.inf, np.float32), {}),
        (np.zeros((2, 1), np.float32), {}), (np.zeros((2, 0), np.float32), {}), (np.zeros((1, 6), np.int32), {}),
        (np.zeros((1, 6), np.float32), {"aggregate": "median"}), (np.zeros((1, 6), np.float32), {"aggregate": []}),
        (np.zeros((1, 6), np.float32), {"out": np.empty((1, 5), np.float32)}),
        (np.zeros((1, 6), np.float32), {"out": np.empty((1, 5, 3))}), (np.zeros((1, 6), np.float32), {"out": []}),
        (None, {}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("margin", ["column", "projection"])
def test_errors_are_those_of_the_arrays(x, words, margin):
    p = forest_of(margin=margin)
    with pytest.raises((TypeError, ValueError, IndexError, AttributeError)) as want:
        hinge.forward(x, *p, margin=margin, **words)
    with pytest.raises(type(want.value)) as got:
        hinge.forward(x, hinge.prepare(*p, margin=margin), **words)
    assert str(got.value) == str(want.value)


def test_out_that_overlaps_is_refused():
    x = np.zeros((5, 5), np.float32)
    ready = hinge.prepare(*hinge.init(5, 2, 5, rng=0))
    with pytest.raises(ValueError, match="out: expected memory that no other argument uses"):
        hinge.forward(x, ready, out=x)
    with pytest.raises(ValueError, match="out: expected a writable array"):
        hinge.forward(np.zeros((5, 5), np.float32), ready, out=np.broadcast_to(x, x.shape))


def test_words_and_arrays_beside_a_prepared_forest_are_refused():
    p, x = forest_of("fern"), samples_of("rows", np.float32)
    ready = hinge.prepare(*p, kind="fern")
    for name, a in (("features", p.features), ("weights", p.weights)):
        with pytest.raises(
            TypeError, match=f"{name}: expected None with a prepared forest, got ndarray; pass x"
        ):
            hinge.forward(x, ready, **{name: a})
    ready = hinge.prepare(*forest_of())
    for name, word in (("kind", "fern"), ("margin", "projection"), ("windows", hinge.Windows(2))):
        with pytest.raises(
            ValueError, match=f"{name}: expected .*, as the forest was prepared, got .*; leave {name}"
        ):
            hinge.forward(x, ready, **{name: word})
    with pytest.raises(
        TypeError, match=r"features: expected a numpy\.ndarray or cupy\.ndarray, got NoneType"
    ):
        hinge.forward(x, p.thresholds)


def test_only_a_sound_forest_makes_one():
    t, f, w = forest_of()
    for p, error, text in (
        ((np.where(t > 0, np.nan, t), f, w), ValueError, "thresholds: expected no NaN"),
        ((t, f - np.int32(9), w), IndexError, "features: expected 0 <= "),
        ((t, f.astype(np.int64), w), TypeError, "features: expected dtype int32"),
        ((t[:, 1:].copy(), f, w), ValueError, "thresholds: expected "),
        ((t, f, w[:, 1:].copy()), ValueError, "weights: expected shape"),
        ((t[:0], f[:0], w[:0]), ValueError, "n_trees"),
        ((t.tolist(), f, w), TypeError, "thresholds: expected a numpy.ndarray"),
    ):
        for block in (hforest.unchecked(), hforest.core.check.checked()):
            with block, pytest.raises(error, match=text):
                hinge.prepare(*p)
    with pytest.raises(ValueError, match="kind: expected "):
        hinge.prepare(t, f, w, kind="bush")
    with pytest.raises(TypeError):
        type("Other", (hinge.Prepared,), {})(hinge.Parameters(t, f, w))


def test_nothing_can_be_changed():
    p, x = forest_of(), samples_of("rows", np.float32)
    ready, want = hinge.prepare(*p), hinge.forward(x, *p)
    for a in p:
        a[...] = 0
    assert hinge.forward(x, ready).tobytes() == want.tobytes()
    for a in ready.parameters:
        with pytest.raises(ValueError, match="read-only"):
            a[...] = 0
        with pytest.raises(ValueError, match="WRITEABLE"):
            a.flags.writeable = True
    for name in ("parameters", "kind", "_weights", "anything"):
        with pytest.raises(AttributeError):
            setattr(ready, name, None)
        with pytest.raises(AttributeError):
            delattr(ready, name)


def test_pickles_and_copies():
    p, x = forest_of("fern"), samples_of("rows", np.float32)
    ready = hinge.prepare(*p, kind="fern")
    assert copy.copy(ready) is copy.deepcopy(ready) is ready
    back = pickle.loads(pickle.dumps(ready))
    assert back.kind == "fern"
    assert hinge.forward(x, back).tobytes() == hinge.forward(x, *p, kind="fern").tobytes()
    with pytest.raises(ValueError, match="read-only"):
        back.parameters.features[...] = 7
    assert repr(back) == "<Prepared of 5 trees, kind='fern', margin='column'>"


def test_forests_of_a_gpu_are_refused(monkeypatch):
    cupy = types.ModuleType("cupy")
    cupy.ndarray = type("ndarray", (np.ndarray,), {})
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    there = (a.copy().view(cupy.ndarray) for a in forest_of())
    with pytest.raises(TypeError, match=r"thresholds: expected a numpy\.ndarray, got a CuPy array"):
        hinge.prepare(*there)
