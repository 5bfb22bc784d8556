"""Gradients of hinge trees and ferns, and aggregates of a caller's own."""

import numpy as np
import pytest
from conftest import assert_same_bits, slope
from test_hinge import (
    SMALL,
    Case,
    aggregates,
    assert_rows_are_dense,
    everything,
    kinds,
    margins,
    problem,
    pushed,
    unfolded,
    values,
    words_of,
)

from hforest import hinge
from hforest.core import dispatch, machine
from hforest.hinge import Windows, gpu, shared

pytestmark = pytest.mark.kernels


# --------------------------------------------------------------------------------- gradients


def assert_central_differences(words, arrays, aggregate):
    """Asserts that gradients of a sum of outputs with random signs equal central differences."""
    x, t, f, w = arrays
    y, route = hinge.forward_with_route(x, t, f, w, **words, aggregate=aggregate)
    g, step = np.random.default_rng(3).normal(size=y.shape), 1e-6
    grads = hinge.backward(g, route, x, t, f, w, **words, aggregate=aggregate)
    # Away from points without a derivative: no decision changes, and no other margin becomes the smallest.
    rows = unfolded(x, words["windows"])
    r = np.sort(abs(values(words["margin"], rows.reshape(-1, rows.shape[-1]), f) - t), axis=2)
    assert r[..., 0].min() > 20 * step
    assert np.diff(r, axis=2).min() > 20 * step or (words["kind"], words["margin"]) == ("tree", "column")

    def loss():
        return (hinge.forward(x, t, f, w, **words, aggregate=aggregate) * g).sum()

    parameters = {"x": x, "thresholds": t, "features": f, "weights": w}
    for name, grad in pushed(grads).items():
        want = slope(loss, parameters[name], step).ravel()
        np.testing.assert_allclose(grad.ravel(), want, rtol=1e-6, atol=1e-7 * abs(want).max(), err_msg=name)


# Cases without such points for either margin; with seed 0 there are none.
SMOOTH = [
    Case((5, 4), 3, 2, (3, 2)),
    Case((5, 4), 3, 2),
    Case((2, 2, 4, 3), 2, 2, 2, Windows(2, (1, 2), (0, 1), (2, 1))),
]


@kinds
@margins
@aggregates
@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_central_differences(backend, kind, margin, aggregate, case):
    arrays = problem(kind, margin, case, seed=3)
    assert_central_differences(words_of(kind, margin, case), arrays, aggregate)


@kinds
@margins
def test_margin_zero_has_no_gradient(backend, kind, margin):
    x, t, w = np.ones((1, 2)), np.ones((1, 1)), np.ones((1, 2))
    f = np.zeros((1, 1), np.int32) if margin == "column" else np.array([[[2.0, -1.0]]])
    y, route = hinge.forward_with_route(x, t, f, w, kind=kind, margin=margin)
    assert y.item() == 0
    for grad in pushed(hinge.backward(np.ones((1, 1)), route, x, t, f, w, kind=kind, margin=margin)).values():
        assert not grad.any()


@margins
def test_backward_never_traverses(backend, margin):
    """The gradient follows the route argument, not the arrays from which the route came."""
    t, w = np.full((1, 3), np.nan), np.array([[1.0, 2.0, 4.0, 8.0]])
    route = hinge.Route(np.array([[3]], np.int32), np.array([[-0.5]]), np.array([[2]], np.int32))
    if margin == "column":
        x, f = np.full((1, 3), np.nan), np.array([[0, 1, 2]], np.int32)
        want = [[[0, 0, -80]], [[0, 0, 80]], None, [[0, 0, 0, 5]]]
    else:
        x, f = np.array([[7.0]]), np.array([[[1.0], [3], [5]]])
        want = [[[-400]], [[0, 0, 80]], [[[0], [0], [-560]]], [[0, 0, 0, 5]]]
    grads = hinge.backward(np.array([[10.0]]), route, x, t, f, w, margin=margin)
    assert [None if g is None else g.tolist() for g in grads] == want


@kinds
def test_training_fits_an_oblique_boundary(kind):
    """Two hundred steps of gradient descent on classes that no single column separates."""
    rng, words = np.random.default_rng(0), {"kind": kind, "margin": "projection", "aggregate": "sum"}
    x = rng.normal(size=(300, 6)).astype(np.float32)
    target = np.sign(x @ rng.normal(size=6)).astype(np.float32)
    _, t, p, w = problem(kind, "projection", Case((1, 6), 10, 3), np.float32, seed=1)
    t *= 0
    p *= np.float32(6**0.5)
    w *= np.float32(0.1)
    losses = []
    for _ in range(200):
        y, route = hinge.forward_with_route(x, t, p, w, **words)
        losses.append(float(((y - target) ** 2).mean()))
        grads = hinge.backward((y - target) / 300, route, x, t, p, w, **words)
        for parameter, grad in zip((t, p, w), grads[1:], strict=True):
            parameter -= np.float32(0.1) * grad
    assert losses[-1] < 0.3 < 0.8 < losses[0]


# ------------------------------------------------------------------- aggregates of one's own


def _pull_maximum(grad_y, outputs):
    return np.where(outputs == outputs.max(axis=1, keepdims=True), grad_y[:, None], 0).astype(outputs.dtype)


SHARES = np.array([[0.5], [-2.0], [1.0]])

ENTRIES = {
    "maximum": shared.Reduction(False, combine=lambda a: a.max(axis=1), pull=_pull_maximum),
    "weighted": shared.Reduction(
        False,
        combine=lambda a: (a * SHARES.astype(a.dtype)).sum(axis=1),
        pull=lambda g, a: g[:, None] * SHARES.astype(a.dtype),
    ),
    "squares": shared.Reduction(
        False, combine=lambda a: (a * a).sum(axis=1), pull=lambda g, a: 2 * g[:, None] * a
    ),
}


@kinds
@margins
@pytest.mark.parametrize("case", SMOOTH, ids=str)
@pytest.mark.parametrize("word", ENTRIES)
def test_an_aggregate_is_an_entry(backend, monkeypatch, dtype, kind, margin, case, word):
    monkeypatch.setitem(shared.REDUCTIONS, word, ENTRIES[word])
    case, words = case._replace(n_trees=3), words_of(kind, margin, case)
    x, t, f, w = arrays = problem(kind, margin, case, dtype, seed=3)
    found = everything(kind, margin, case, arrays, word)
    route = hinge.Route(*(found[name] for name in hinge.Route._fields))
    apart = hinge.forward(x, t, f, w, **words)
    flat = apart.reshape(route.leaf.size // 3, 3, -1)
    want = ENTRIES[word].combine(flat)
    assert found["y"].tobytes() == want.tobytes()
    assert found["y"].shape == (*route.leaf.shape[:-1], *w.shape[2:])
    # The gradients equal those of separate outputs, through the derivative of the aggregate.
    grad_y = np.random.default_rng(1).normal(size=found["y"].shape).astype(dtype)
    pulled = ENTRIES[word].pull(grad_y.reshape(want.shape), flat).reshape(apart.shape)
    for name, a in pushed(hinge.backward(pulled, route, x, t, f, w, **words)).items():
        assert found[f"grad_{name}"].tobytes() == a.tobytes(), name
    if dtype == np.float64:
        assert_central_differences(words, arrays, word)


def test_an_aggregate_that_is_an_entry_is_named(monkeypatch):
    monkeypatch.setitem(shared.REDUCTIONS, "maximum", ENTRIES["maximum"])
    x, t, f, w = problem("tree", "column", SMALL[0])
    with pytest.raises(
        ValueError, match="^aggregate: expected one of None, 'sum', 'mean', 'maximum', got 'least'"
    ):
        hinge.forward(x, t, f, w, aggregate="least")
    with pytest.raises(ValueError, match="^aggregate: expected one of 'sum', 'mean', got 'maximum'"):
        hinge.adam_forward(x, t, f, w, hinge.adam_state(t, w), 1, 0.1, aggregate="maximum")


# --------------------------------------------------------------------------------- bad input


@kinds
@margins
@aggregates
@pytest.mark.parametrize(
    ("n_samples", "outputs", "many"), [(600, 1, 600), (603, 10, 600), (600, 37, 601), (1, 3, 1), (9, 3, 1)]
)
def test_gradients_have_the_bits_of_the_cpu(
    fast_backend, dtype, kind, margin, aggregate, n_samples, outputs, many, monkeypatch
):
    # With at least `many` samples, a GPU transposes routes.
    monkeypatch.setattr(gpu, "MANY", many)
    case = Case((n_samples, 6), 4, 4, outputs)
    arrays = problem(kind, margin, case, dtype)
    with dispatch.forced("cpu"):
        expected = everything(kind, margin, case, arrays, aggregate)
    assert_same_bits(everything(kind, margin, case, arrays, aggregate, fast_backend), expected)


@pytest.mark.parametrize("kind", ["tree", "fern"])
@pytest.mark.parametrize("margin", ["column", "projection"])
@pytest.mark.parametrize("n_threads", [1, 2, 7])
@pytest.mark.parametrize("path", machine.simd_paths())
def test_memory_orders_of_routes(path, n_threads, kind, margin, simd, threads):
    """Routes in C order, with the samples of each tree contiguous, of some samples, and in mixed orders."""
    simd(path)
    threads(n_threads)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1013, 5))
    t, f, w = hinge.init(18, 4, 5, 3, kind=kind, dtype=x.dtype, rng=1)
    f = f if margin == "column" else rng.normal(size=(*t.shape, 5))
    words = {"kind": kind, "margin": margin, "aggregate": "sum"}
    y, route = hinge.forward_with_route(x, t, f, w, **words)
    assert all(a.T.flags.c_contiguous for a in route)
    c_order = hinge.Route(*map(np.ascontiguousarray, route))
    by_call = [np.zeros(route.leaf.shape, a.dtype) for a in route]
    for a, b in zip(
        hinge.traverse(x, t, f, kind=kind, margin=margin, out=hinge.Route(*by_call)), route, strict=True
    ):
        np.testing.assert_array_equal(a, b)
    some = slice(7, 961)
    mixed = hinge.Route(route.leaf, c_order.margin, route.vertex)
    for rows, routes in ((slice(None), (route, c_order, mixed)), (some, (route, c_order))):
        want = None
        for one in routes:
            part = hinge.Route(*(a[rows] for a in one))
            found = hinge.backward(y[rows].copy(), part, x[rows].copy(), t, f, w, **words)
            outputs = hinge.leaf_outputs(part.leaf, part.margin, w, aggregate="sum")
            np.testing.assert_array_equal(outputs, y[rows])
            counts = hinge.leaf_counts(part.leaf, 16), hinge.leaf_rows(part.leaf, 16)
            got = [a for a in (*found, *counts) if a is not None]
            want = got if want is None else want
            for a, b in zip(got, want, strict=True):
                np.testing.assert_array_equal(a, b)


@kinds
@pytest.mark.parametrize(("depth", "outputs"), [(16, 1), (15, 3), (13, 10)])
@pytest.mark.parametrize("n", [1, 30, 1100])
def test_few_samples_in_deep_trees(threads, simd, dtype, kind, n, depth, outputs):
    """Only touched rows have sums; some samples share them. Marks of leaves take several words of words."""
    case = Case((n, 11), 19, depth, outputs)
    arrays, results = problem(kind, "column", case, dtype), []
    for path in machine.simd_paths():
        simd(path)
        for count in (1, 2, 7):
            threads(count)
            results.append(everything(kind, "column", case, arrays, "sum"))
    assert_rows_are_dense(results[0], case.n_trees)
    for other in results[1:]:
        assert_same_bits(other, results[0])


def test_refused_orders_of_routes():
    x = np.random.default_rng(0).normal(size=(9, 5))
    t, f, _ = hinge.init(6, 3, 5, 2, dtype=x.dtype, rng=1)
    route = hinge.traverse(x, t, f)
    mixed = hinge.Route(route.leaf, route.margin.copy(order="C"), route.vertex)
    with pytest.raises(ValueError, match="out: expected leaf, margin and vertex in one memory order"):
        hinge.traverse(x, t, f, out=mixed)
    with pytest.raises(ValueError, match=r"leaf: expected a C-contiguous array"):
        hinge.leaf_counts(route.leaf[::2], 8)
    with pytest.raises(ValueError, match=r"leaf: expected a C-contiguous array"):
        hinge.leaf_counts(np.broadcast_to(route.leaf[:, :1], (9, 6)), 8)
    leaf = route.leaf.copy(order="F")
    leaf[5, 4] = 8
    with pytest.raises(IndexError, match=r"got 8 at index \(5, 4\)"):
        hinge.leaf_counts(leaf, 8)
