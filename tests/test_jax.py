"""hforest.jax: bit-identical to the NumPy functions; gradients, transformations, errors, XLA's interface."""

import functools
import json
import subprocess
import sys
import threading

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from conftest import assert_same_bits, same_bits

from hforest import hinge, neural

jax = pytest.importorskip("jax", minversion="0.5", reason="needs jax 0.5 or newer")

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import hforest.jax as hj  # noqa: E402
from hforest.jax import foreign  # noqa: E402

KINDS = pytest.mark.parametrize("kind", ["tree", "fern"])
AGGREGATES = pytest.mark.parametrize("aggregate", ["sum", "mean", None])


@pytest.fixture
def dtype(request):
    """float32, or float64 with JAX's 64-bit types."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", request.param == np.float64)
    yield request.param
    jax.config.update("jax_enable_x64", before)


def pytest_generate_tests(metafunc):
    if "dtype" in metafunc.fixturenames:
        types = (
            [np.float64]
            if metafunc.function.__name__.startswith("test_derivatives")
            else [np.float32, np.float64]
        )
        metafunc.parametrize("dtype", types, ids=lambda t: t.__name__, indirect=True)


def problem(kind, dtype=np.float32, n=9, n_trees=5, depth=3, outputs=(2,), n_features=6, seed=0):
    """Returns samples, and the parameters of a forest whose leaf weights are not 0."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, n_features)).astype(dtype)
    thresholds, features, weights = hinge.init(
        n_trees, depth, n_features, outputs, kind=kind, rng=seed, dtype=dtype
    )
    return x, thresholds, features, rng.normal(size=weights.shape).astype(dtype)


def soft(dtype=np.float32, n=9, n_trees=3, depth=3, n_classes=4, indexed=False, seed=0):
    """Returns decision functions, leaves, and an index or None."""
    rng = np.random.default_rng(seed)
    shape = (n, 6) if indexed else (n, n_trees, 2**depth - 1)
    leaves = rng.random((n_trees, 2**depth, n_classes)) + 0.1
    leaves = (leaves / leaves.sum(axis=2, keepdims=True)).astype(dtype)
    index = rng.integers(0, 6, (n_trees, 2**depth - 1)).astype(np.int32) if indexed else None
    return rng.normal(size=shape).astype(dtype), leaves, index


def numpy_gradients(kind, x, thresholds, features, weights, aggregate, grad_y=None):
    """Returns gradients of sum(y * grad_y), or of sum(y) without grad_y."""
    words = {"kind": kind, "aggregate": aggregate}
    y, route = hinge.forward_with_route(x, thresholds, features, weights, **words)
    g = np.ones_like(y) if grad_y is None else grad_y(y)
    by = hinge.backward(g, route, x, thresholds, features, weights, **words)
    return by.x, by.thresholds, by.weights


@pytest.fixture
def calls(monkeypatch):
    """The functions that XLA called, in this order."""
    found = []
    for name, function in foreign.functions.items():

        def noted(*arguments, name=name, function=function):
            found.append(name)
            function(*arguments)

        monkeypatch.setitem(foreign.functions, name, noted)
    return found


# ------------------------------------------------------------------------------------- values


@KINDS
def test_large_results_are_written_in_place(kind):
    """Results above calls.SMALL are written through `out`, smaller ones are copied; both are bit-identical."""
    x, thresholds, features, weights = problem(kind, n=300, n_trees=40, depth=12, outputs=(8,))
    assert x.nbytes < hj.calls.SMALL < 1 << 22 < weights.nbytes, "huge pages are asked for too"
    y = jax.jit(lambda *a: hj.hinge_forest(*a, aggregate=None, kind=kind))(x, thresholds, features, weights)
    assert y.nbytes > hj.calls.SMALL
    assert same_bits(y, hinge.forward(x, thresholds, features, weights, kind=kind))
    grads = jax.grad(lambda x, t, w: hj.hinge_forest(x, t, features, w, kind=kind).sum(), (0, 1, 2))(
        x, thresholds, weights
    )
    assert_same_bits(grads, numpy_gradients(kind, x, thresholds, features, weights, "sum"))


READS = {
    "rows": ((9, 12), None, (2, 3)),
    "rows, one output": ((9, 12), None, ()),
    "windows on an axis": ((4, 3, 9), hinge.Windows(4, 2, 1, 2), ()),
    "windows on two axes": ((3, 2, 7, 6), hinge.Windows((3, 2), (2, 1), 1), (2,)),
    "windows of numbers of NumPy": ((3, 2, 7, 6), hinge.Windows(np.array([3, 2]).tolist(), np.int64(2)), 2),
}
"""Shapes of x, windows, and outputs."""
CASES = pytest.mark.parametrize("case", READS)
MARGINS = pytest.mark.parametrize("margin", ["column", "projection"])


def read(kind, margin, case, dtype=np.float32):
    """Returns rows or images, parameters of a forest that reads them, differentiable arguments and settings."""
    shape, windows, outputs = READS[case]
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype(dtype)
    t, f, w = hinge.init(5, 3, 12, outputs, kind=kind, margin=margin, scale=1.0, dtype=dtype, rng=0)
    words = {"kind": kind, "margin": margin, "windows": windows}

    def layer(*a, **more):
        x, t, *learned, w = a
        return hj.hinge_forest(x, t, *(learned or (f,)), w, **words, **more)

    return (x, t, f, w), (x, t, f, w) if margin == "projection" else (x, t, w), layer, words


@KINDS
@MARGINS
@CASES
@AGGREGATES
def test_all_margins_and_windows_have_the_bits_of_numpy(kind, margin, case, aggregate, dtype, calls):
    arrays, floats, layer, words = read(kind, margin, case, dtype)
    words = {**words, "aggregate": aggregate}
    expected, route = hinge.forward_with_route(*arrays, **words)
    grad_y = np.random.default_rng(1).normal(size=expected.shape).astype(dtype)
    grads = [a for a in hinge.backward(grad_y, route, *arrays, **words) if a is not None]

    def both(grad_y, *a):
        y, back = jax.vjp(functools.partial(layer, aggregate=aggregate), *a)
        return (y, *back(grad_y))

    for wrap in (jax.jit, lambda function: function):
        assert same_bits(wrap(functools.partial(layer, aggregate=aggregate))(*floats), expected)
        assert_same_bits(wrap(both)(grad_y, *floats), (expected, *grads))
    calls.clear()
    x, *parameters = floats
    y = jax.vmap(lambda x: layer(x[None], *parameters, aggregate=aggregate)[0])(x)
    assert same_bits(y, expected)
    assert calls == ["hinge_forest"], "an image at a time is one call"


@KINDS
@MARGINS
@CASES
def test_derivatives_of_all_margins_are_those_of_differences(kind, margin, case, dtype):
    arrays, floats, layer, words = read(kind, margin, case, dtype)
    assert np.abs(hinge.traverse(*arrays[:3], **words).margin).min() > 1e-4, "no tie within reach"
    check_grads(layer, floats, order=1, modes=["rev"], eps=1e-6, rtol=1e-5, atol=1e-5)


@MARGINS
@CASES
def test_x_is_kept_where_a_gradient_reads_it(margin, case, monkeypatch):
    (x, *_), floats, layer, _ = read("tree", margin, case)
    function, shapes = foreign.functions["hinge_forest_backward"], []

    def noted(setting, *arrays):
        shapes.append(arrays[4].shape)
        function(setting, *arrays)

    monkeypatch.setitem(foreign.functions, "hinge_forest_backward", noted)
    jax.block_until_ready(jax.grad(lambda *a: layer(*a).sum())(*floats))
    assert shapes == [x.shape if margin == "projection" else (0, *x.shape[1:])]


@hypothesis.settings(max_examples=15)
@hypothesis.given(
    st.sampled_from(["tree", "fern"]),
    st.integers(0, 40),
    st.integers(1, 20),
    st.integers(1, 5),
    st.integers(1, 9),
)
def test_hinge_has_the_bits_of_numpy_at_any_shape(kind, n, n_trees, depth, n_features):
    x, thresholds, features, weights = problem(
        kind, n=n, n_trees=n_trees, depth=depth, outputs=(n % 3,) if n % 3 else (), n_features=n_features
    )
    value = jax.value_and_grad(lambda x, t, w: hj.hinge_forest(x, t, features, w, kind=kind).sum(), (0, 1, 2))
    _, grads = jax.jit(value)(x, thresholds, weights)
    assert_same_bits(grads, numpy_gradients(kind, x, thresholds, features, weights, "sum"))


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_neural_has_the_bits_of_numpy(dtype, indexed, task):
    f, leaves, index = soft(dtype, indexed=indexed)
    grad_p = np.random.default_rng(1).normal(size=(len(f), leaves.shape[2])).astype(dtype)

    def loss(f, leaves):
        return (hj.neural_forest(f, leaves, index=index, task=task) * grad_p).sum()

    p = jax.jit(lambda f, leaves: hj.neural_forest(f, leaves, index=index, task=task))(f, leaves)
    assert same_bits(p, neural.forward(f, leaves, index=index, task=task))
    for wrap in (jax.jit, lambda function: function):
        grad_f, grad_leaves = wrap(jax.grad(loss, (0, 1)))(f, leaves)
        assert same_bits(grad_f, neural.backward(grad_p, f, leaves, index=index))
        mu = neural.route(f, index=index).astype(np.float64)
        expected = np.einsum("nml,nk->mlk", mu, grad_p.astype(np.float64)) / len(leaves)
        assert grad_leaves.dtype == dtype
        np.testing.assert_allclose(
            grad_leaves, expected, rtol=4 * np.finfo(dtype).eps, atol=4 * np.finfo(dtype).eps
        )


def test_leaf_gradients_are_added_in_parts(monkeypatch):
    f, leaves, _ = soft(n=50)
    grad = jax.grad(lambda leaves: (hj.neural_forest(f, leaves) ** 2).sum())
    whole = grad(leaves)
    monkeypatch.setattr(hj.calls, "CHUNK", 100)
    np.testing.assert_allclose(grad(leaves), whole, rtol=1e-6)


@KINDS
def test_derivatives_of_hinge_are_those_of_differences(kind, dtype):
    x, thresholds, features, weights = problem(kind, dtype, n=4, n_trees=3)
    route = hinge.traverse(x, thresholds, features, kind=kind)
    assert np.abs(route.margin).min() > 1e-3, "no tie within reach"
    for aggregate in ("sum", None):

        def layer(x, t, w, aggregate=aggregate):
            return hj.hinge_forest(x, t, features, w, aggregate=aggregate, kind=kind)

        check_grads(layer, (x, thresholds, weights), order=1, modes=["rev"], eps=1e-6, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("indexed", [False, True])
def test_derivatives_of_neural_are_those_of_differences(indexed, dtype):
    f, leaves, index = soft(dtype, n=4, indexed=indexed)

    def forest(f, leaves):
        return hj.neural_forest(f, leaves, index=index, task="regression")

    check_grads(forest, (f, leaves), order=1, modes=["rev"], eps=1e-6, rtol=1e-6, atol=1e-6)

    def softmax_leaves(f, logits):
        return hj.neural_forest(f, jax.nn.softmax(logits), index=index)

    check_grads(softmax_leaves, (f, np.log(leaves)), order=1, modes=["rev"], eps=1e-6, rtol=1e-6, atol=1e-6)


@KINDS
def test_no_samples(kind, dtype):
    x, thresholds, features, weights = problem(kind, dtype, n=0)
    y, grads = jax.value_and_grad(
        lambda *a: hj.hinge_forest(a[0], a[1], features, a[2], kind=kind).sum(), (0, 1, 2)
    )(x, thresholds, weights)
    assert y == 0
    assert grads[0].shape == x.shape
    assert not np.any(grads[1])
    assert not np.any(grads[2])
    f, leaves, _ = soft(dtype, n=0)
    p, grads = jax.value_and_grad(lambda *a: hj.neural_forest(*a).sum(), (0, 1))(f, leaves)
    assert p == 0
    assert grads[0].shape == f.shape
    assert not np.any(grads[1])


# ---------------------------------------------------------------------------------- what runs


@KINDS
def test_the_backward_pass_does_not_route_again(kind, calls):
    x, thresholds, features, weights = problem(kind)
    layer = jax.jit(lambda w: hj.hinge_forest(x, thresholds, features, w, kind=kind).sum())
    layer(weights).block_until_ready()
    assert calls == ["hinge_forest"]
    calls.clear()
    jax.block_until_ready(jax.jit(jax.value_and_grad(layer))(weights))
    assert calls == ["hinge_forest_routed", "hinge_forest_backward"]


def test_neural_computes_the_gradients_that_are_wanted(calls):
    f, leaves, _ = soft()
    for argument, name in enumerate(["neural_forest_backward", "neural_forest_leaves_backward"]):
        jax.grad(lambda *a: hj.neural_forest(*a)[:, 0].sum(), argument)(f, leaves).block_until_ready()
        assert calls == ["neural_forest", name]
        calls.clear()


def test_a_training_step_has_the_bits_of_numpy(dtype):
    """Loss, gradient and update in one program; factors are powers of two, so that no rounding differs."""
    x, thresholds, features, weights = problem("tree", dtype, n=50, n_trees=10, outputs=(3,))
    target = np.random.default_rng(1).normal(size=(50, 3)).astype(dtype)

    @jax.jit
    def step(thresholds, weights):
        def loss(thresholds, weights):
            return 0.5 * ((hj.hinge_forest(x, thresholds, features, weights) - target) ** 2).sum()

        value, (grad_t, grad_w) = jax.value_and_grad(loss, (0, 1))(thresholds, weights)
        return value, thresholds - 2.0**-9 * grad_t, weights - 2.0**-9 * grad_w

    t, w, losses = thresholds, weights, []
    for _ in range(5):
        value, t, w = step(t, w)
        losses.append(float(value))
        _, grad_t, grad_w = numpy_gradients(
            "tree", x, thresholds, features, weights, "sum", lambda y: y - target
        )
        thresholds, weights = thresholds - 2.0**-9 * grad_t, weights - 2.0**-9 * grad_w
        assert same_bits(t, thresholds)
        assert same_bits(w, weights)
    assert losses[-1] < losses[0]


def test_two_layers_and_a_network_around_them(dtype):
    """Gradients go through x: a hinge forest after an inner product, a neural forest after it."""
    rng = np.random.default_rng(0)
    x, thresholds, features, weights = problem("fern", dtype, n_trees=14, outputs=())
    kernel = rng.normal(size=(6, 6)).astype(dtype)
    _, leaves, _ = soft(dtype, n_trees=2)

    def loss(kernel):
        z = hj.hinge_forest(x @ kernel, thresholds, features, weights, aggregate=None, kind="fern")
        return -jnp.log(hj.neural_forest(z.reshape(len(x), 2, 7), leaves)[:, 1]).mean()

    if dtype == np.float64:
        check_grads(loss, (kernel,), order=1, modes=["rev"], eps=1e-7, rtol=1e-4, atol=1e-4)
    grad = jax.jit(jax.grad(loss))(kernel)
    assert np.abs(grad).max() > 0
    np.testing.assert_allclose(grad, jax.grad(loss)(kernel), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("policy", [None, "nothing_saveable", "everything_saveable"])
def test_checkpoint(policy):
    x, thresholds, features, weights = problem("tree")

    def loss(x, t, w):
        return (hj.hinge_forest(jnp.tanh(x), t, features, w) ** 2).sum()

    again = jax.checkpoint(loss, policy=policy and getattr(jax.checkpoint_policies, policy))
    expected = jax.jit(jax.grad(loss, (0, 1, 2)))(x, thresholds, weights)
    for wrap in (jax.jit, lambda function: function):
        found = wrap(jax.grad(again, (0, 1, 2)))(x, thresholds, weights)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_loops_of_xla():
    x, thresholds, features, weights = problem("tree", n=12)

    def loss(w):
        def add(total, part):
            return total + hj.hinge_forest(part, thresholds, features, w).sum(), None

        return jax.lax.scan(add, 0.0, x.reshape(3, 4, 6))[0]

    expected = numpy_gradients("tree", x, thresholds, features, weights, "sum")[2]
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(weights), expected, rtol=1e-5, atol=1e-6)


# --------------------------------------------------------------------------------------- vmap


@KINDS
def test_vmap_over_samples_is_one_call(kind, dtype, calls):
    x, thresholds, features, weights = problem(kind, dtype, n=12)
    parts = x.reshape(3, 4, 6)
    y = jax.vmap(lambda x: hj.hinge_forest(x, thresholds, features, weights, kind=kind))(parts)
    want = hinge.forward(x, thresholds, features, weights, aggregate="sum", kind=kind)
    assert same_bits(np.reshape(y, (12, 2)), want)
    assert calls == ["hinge_forest"]
    calls.clear()
    # Models are written for single samples; axis 1 is mapped.
    y = jax.vmap(lambda x: hj.hinge_forest(x[None], thresholds, features, weights, kind=kind)[0], 1, 1)(x.T)
    assert same_bits(y.T, want)
    assert calls == ["hinge_forest"]
    calls.clear()
    nested = jax.vmap(jax.vmap(lambda x: hj.hinge_forest(x, thresholds, features, weights, kind=kind)))(
        x.reshape(2, 3, 2, 6)
    )
    assert same_bits(np.reshape(nested, (12, 2)), want)
    assert calls == ["hinge_forest"]


@KINDS
@pytest.mark.parametrize("compiled", [True, False], ids=["jit", "eager"])
def test_the_gradient_of_vmap_is_one_call(kind, compiled, calls):
    x, thresholds, features, weights = problem(kind, n=12)

    def loss(x, t, w):
        return jax.vmap(lambda x: hj.hinge_forest(x[None], t, features, w, kind=kind)[0])(x).sum()

    grad = jax.grad(loss, (0, 1, 2))
    found = (jax.jit(grad) if compiled else grad)(x, thresholds, weights)
    assert_same_bits(found, numpy_gradients(kind, x, thresholds, features, weights, "sum"))
    assert calls == ["hinge_forest_routed", "hinge_forest_backward"]


@KINDS
def test_gradients_of_single_samples(kind):
    x, thresholds, features, weights = problem(kind, n=4)

    def loss(x, t, w):
        return (hj.hinge_forest(x[None], t, features, w, kind=kind) ** 2).sum()

    found = jax.jit(jax.vmap(jax.grad(loss, (0, 1, 2)), (0, None, None)))(x, thresholds, weights)
    for n in range(4):
        single = numpy_gradients(kind, x[n : n + 1], thresholds, features, weights, "sum", lambda y: 2 * y)
        for a, b in zip(found, single, strict=True):
            assert same_bits(np.reshape(a[n], b.shape), b)


@KINDS
def test_vmap_over_parameters(kind):
    forests = [problem(kind, seed=seed) for seed in range(3)]
    x = forests[0][0]
    thresholds, features, weights = (np.stack(arrays) for arrays in list(zip(*forests, strict=True))[1:])
    y = jax.vmap(functools.partial(hj.hinge_forest, kind=kind), (None, 0, 0, 0))(
        x, thresholds, features, weights
    )
    for m, (_, t, f, w) in enumerate(forests):
        assert same_bits(y[m], hinge.forward(x, t, f, w, aggregate="sum", kind=kind))
    # Samples and parameters together, and the gradient of it.
    xs = np.stack([forest[0] for forest in forests])

    def loss(xs, weights):
        return jax.vmap(functools.partial(hj.hinge_forest, kind=kind), (0, 0, None, 0))(
            xs, thresholds, features[0], weights
        ).sum()

    grad_x, grad_w = jax.jit(jax.grad(loss, (0, 1)))(xs, weights)
    for m in range(3):
        expected = numpy_gradients(kind, xs[m], thresholds[m], features[0], weights[m], "sum")
        assert same_bits(grad_x[m], expected[0])
        assert same_bits(grad_w[m], expected[2])


@pytest.mark.parametrize("indexed", [False, True])
def test_vmap_of_neural(indexed, calls):
    f, leaves, index = soft(n=12, indexed=indexed)
    grad = jax.grad(
        lambda f, leaves: jax.vmap(lambda f: hj.neural_forest(f[None], leaves, index=index)[0])(f)[
            :, 0
        ].sum(),
        (0, 1),
    )
    grad_f, grad_leaves = grad(f, leaves)
    assert calls == ["neural_forest", "neural_forest_backward", "neural_forest_leaves_backward"]
    grad_p = np.zeros((12, 4), np.float32)
    grad_p[:, 0] = 1
    assert same_bits(grad_f, neural.backward(grad_p, f, leaves, index=index))
    several = np.stack([leaves, leaves[:, ::-1]])
    p = jax.vmap(lambda leaves: hj.neural_forest(f, leaves, index=index))(several)
    for m in range(2):
        assert same_bits(p[m], neural.forward(f, np.ascontiguousarray(several[m]), index=index))
    assert np.isfinite(grad_leaves).all()


# ------------------------------------------------------------------------------------- errors


def message(call):
    """Returns the class and the text of the error that a call raises."""
    with pytest.raises((TypeError, ValueError, IndexError)) as caught:
        call()
    return type(caught.value), str(caught.value)


WRONG = {
    "x of one axis": lambda x, t, f, w: (x[0], t, f, w),
    "x of no axis": lambda x, t, f, w: (np.array(x[0, 0]), t, f, w),
    "x of integers": lambda x, t, f, w: (x.astype(np.int32), t, f, w),
    "x of half floats": lambda x, t, f, w: (x.astype(np.float16), t, f, w),
    "no features": lambda x, t, f, w: (x[:, :0], t, f, w),
    "fewer vertices": lambda x, t, f, w: (x, t[:, :-1], f, w),
    "fewer trees": lambda x, t, f, w: (x, t, f[:3], w),
    "features of floats": lambda x, t, f, w: (x, t, f.astype(np.float32), w),
    "features of int16": lambda x, t, f, w: (x, t, f.astype(np.int16), w),
    "leaves of another depth": lambda x, t, f, w: (x, t, f, w[:, :3]),
    "weights of two axes less": lambda x, t, f, w: (x, t, f, w[0, 0]),
    "no outputs": lambda x, t, f, w: (x, t, f, w[:, :, :0]),
}


@KINDS
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_arrays_have_the_errors_of_numpy(kind, wrong):
    arrays = [np.ascontiguousarray(a) if a.ndim else a for a in WRONG[wrong](*problem(kind))]
    layer = functools.partial(hj.hinge_forest, kind=kind)
    expected = message(lambda: hinge.forward(*arrays, aggregate="sum", kind=kind))
    assert message(lambda: layer(*arrays)) == expected
    assert message(lambda: jax.jit(layer)(*arrays)) == expected


def test_mixed_dtypes_are_refused():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        x, t, f, w = problem("tree")
        for arrays in (
            (x.astype(np.float64), t, f, w),
            (x, t, f, w.astype(np.float64)),
            (x, t, f.astype(np.int64), w),
        ):
            assert message(lambda a=arrays: hj.hinge_forest(*a)) == message(
                lambda a=arrays: hinge.forward(*a)
            )
    finally:
        jax.config.update("jax_enable_x64", before)


def test_arrays_that_jax_would_cast_are_refused():
    x, t, f, w = problem("tree")
    kind, text = message(lambda: hj.hinge_forest(x.astype(np.float64), t, f, w))
    assert kind is TypeError
    assert text == (
        "x: expected dtype float32 while JAX's 64-bit types are off, got float64; convert it with "
        'x.astype(numpy.float32), or call jax.config.update("jax_enable_x64", True)'
    )
    kind, text = message(lambda: hj.hinge_forest(x.tolist(), t, f, w))
    assert kind is TypeError
    assert text.startswith("x: expected a jax.Array or numpy.ndarray, got list; ")


@pytest.mark.parametrize(
    "words",
    [
        {"kind": "bush"},
        {"kind": None},
        {"margin": "plane"},
        {"margin": "projection"},
        {"windows": hinge.Windows(2)},
        {"windows": (2, 1, 0, 1)},
        *({"aggregate": aggregate} for aggregate in ("max", 1, True, ["sum"])),
    ],
    ids=str,
)
def test_wrong_words(words):
    arrays = problem("tree")
    expected = message(lambda: hinge.forward(*arrays, **words))
    assert message(lambda: hj.hinge_forest(*arrays, **words)) == expected


@pytest.mark.parametrize(
    "windows",
    [
        (3, 2, 0, 1),
        [3],
        hinge.Windows(3.0, 2),
        hinge.Windows(3, True),
        hinge.Windows((3, 2)),
        hinge.Windows(99),
    ],
    ids=str,
)
def test_wrong_windows(windows):
    """Also after a call with valid windows of equal numbers."""
    x = np.zeros((2, 4, 9), np.float32)
    p = hinge.init(5, 3, 12, rng=0)
    hj.hinge_forest(x, *p, windows=hinge.Windows(3, 2))
    hj.hinge_forest(x, *p, windows=hinge.Windows(3))
    expected = message(lambda: hinge.forward(x, *p, windows=windows))
    assert message(lambda: hj.hinge_forest(x, *p, windows=windows)) == expected


def test_wrong_neural_arguments():
    f, leaves, index = soft(indexed=True)
    g, _, _ = soft()
    for call in [
        lambda forest: forest(g[:, :, :5].copy(), leaves),
        lambda forest: forest(g[0], leaves),
        lambda forest: forest(g, leaves[:2]),
        lambda forest: forest(f, leaves, index=index[:, :5].copy()),
        lambda forest: forest(g, leaves, index=index),
        lambda forest: forest(f, leaves, index=index.astype(np.int16)),
        lambda forest: forest(g, leaves, task="ranking"),
    ]:
        expected = message(lambda call=call: call(neural.forward))
        assert message(lambda call=call: call(hj.neural_forest)) == expected


def runtime_error(call):
    """Returns the text of the error that ends a program: a ValueError, or JAX's class of RuntimeError."""
    with pytest.raises((ValueError, RuntimeError)) as caught:
        jax.block_until_ready(call())
    return str(caught.value)


@pytest.mark.parametrize("n", [9, 5000], ids=["on this thread", "on a thread of XLA"])
def test_wrong_values_have_the_errors_of_numpy(n):
    x, t, f, w = problem("tree", n=n)
    nan = x.copy()
    nan[3, 2] = np.nan
    infinite = t.copy()
    infinite[1, 2] = np.nan
    outside = f.copy()
    outside[2, 1] = 6
    layer = jax.jit(hj.hinge_forest)
    for arrays in ((nan, t, f, w), (x, infinite, f, w), (x, t, outside, w)):
        _, expected = message(lambda a=arrays: hinge.forward(*a))
        assert expected in runtime_error(lambda a=arrays: layer(*a))
    projections = np.zeros((*t.shape, 6), np.float32)
    projections[1, 2, 3] = np.inf
    expected = message(lambda: hinge.forward(x, t, projections, w, margin="projection"))[1]
    inner = jax.jit(functools.partial(hj.hinge_forest, margin="projection"))
    assert expected in runtime_error(lambda: inner(x, t, projections, w))
    # The library works after them.
    assert same_bits(layer(x, t, f, w), hinge.forward(x, t, f, w, aggregate="sum"))


@pytest.mark.parametrize("windows", [None, hinge.Windows(2)])
def test_columns_of_a_backward_pass_lie_in_x(windows):
    """NumPy may have changed the memory that JAX reads, after the forward pass."""
    _, t, f, w = problem("tree")
    x = np.ones((3, 6) if windows is None else (3, 2, 5), np.float32)
    text = json.dumps({"aggregate": "sum"} | ({} if windows is None else {"windows": windows}))
    y, route = hinge.forward_with_route(x, t, f % 4, w, aggregate="sum", windows=windows)
    results = np.empty_like(x), np.empty_like(t), np.empty_like(w)
    with pytest.raises(IndexError, match="^features: expected 0 <= index < n_features = "):
        hj.calls.FUNCTIONS["hinge_forest_backward"](text, y, *route, x, f + 2**20, w, *results)


def test_a_diverged_gradient_has_the_error_of_numpy():
    x, t, f, w = problem("tree")
    text = runtime_error(lambda: jax.grad(lambda w: hj.hinge_forest(x, t, f, w).sum() * jnp.inf)(w))
    assert "grad_y: expected finite numbers, got inf at index (0, 0); the loss has diverged" in text
    g, leaves, _ = soft()
    assert "leaves: expected probabilities" in runtime_error(lambda: hj.neural_forest(g, 2 * leaves))


@pytest.mark.parametrize("error", [OSError, MemoryError, SystemExit])
def test_any_exception_becomes_an_error_of_the_program(error, monkeypatch):
    def fail(*_):
        raise error("no\0 luck")

    x, t, f, w = problem("tree")
    layer = jax.jit(hj.hinge_forest)
    with monkeypatch.context() as changed:
        changed.setitem(foreign.functions, "hinge_forest", fail)
        text = runtime_error(lambda: layer(x, t, f, w))
    assert f"hforest.jax: expected a call that ends, got {error.__name__}: no? luck; the results" in text
    assert same_bits(layer(x, t, f, w), hinge.forward(x, t, f, w, aggregate="sum"))


def test_features_have_no_gradient():
    x, t, f, w = problem("tree")

    def loss(f):
        return hj.hinge_forest(x, t, f, w).sum()

    with pytest.raises(TypeError, match="int32"):
        jax.grad(loss)(f)
    assert jax.grad(loss, allow_int=True)(f).dtype == jax.dtypes.float0
    g, leaves, index = soft(indexed=True)
    grad = jax.grad(lambda index: hj.neural_forest(g, leaves, index=index).sum(), allow_int=True)(index)
    assert grad.dtype == jax.dtypes.float0


@KINDS
def test_second_and_forward_derivatives_are_refused(kind):
    x, t, f, w = problem(kind)

    def loss(x):
        return hj.hinge_forest(x, t, f, w, kind=kind).sum()

    text = "hforest.jax: expected at most first derivatives, got a second derivative; differentiate once"
    for function in (loss, jax.jit(loss)):
        with pytest.raises(TypeError, match=text):
            jax.grad(lambda x, function=function: jax.grad(function)(x).sum())(x)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(loss, (x,), (x,))


# ------------------------------------------------------------------------ threads and signals


def test_a_step_called_from_several_threads():
    """XLA runs independent forests of one program on its own threads, while Python's threads wait or work."""
    x, t, f, w = problem("tree", n=200, n_trees=20, depth=6)

    @jax.jit
    def step(t, w):
        def loss(t, w):
            return sum((hj.hinge_forest(x * s, t, f, w) ** 2).mean() for s in (1, 2, 3))

        return jax.value_and_grad(loss, (0, 1))(t, w)

    value, grads = jax.block_until_ready(step(t, w))
    expected = [np.asarray(value), *map(np.asarray, grads)]
    wrong = []

    def work():
        for _ in range(20):
            value, grads = step(t, w)
            sum(i * i for i in range(1000))
            if not all(same_bits(a, b) for a, b in zip((value, *grads), expected, strict=True)):
                wrong.append(value)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "deadlock"
    assert not wrong


def python(code):
    """Runs a Python program and returns its output."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_interrupted_call_raises_keyboard_interrupt():
    """XLA has only errors: the program ends with one, and the main thread then raises the interrupt again."""
    code = """
import signal, time
import jax, numpy as np, hforest.jax
from hforest import hinge
from hforest.jax import foreign
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore SIGINT
t, f, w = hinge.init(5, 3, 6, rng=0)
x = np.random.default_rng(0).random((9, 6), dtype=np.float32)
layer, function = jax.jit(hforest.jax.hinge_forest), foreign.functions["hinge_forest"]
def interrupted(*_):
    foreign.functions["hinge_forest"] = function
    raise KeyboardInterrupt
foreign.functions["hinge_forest"] = interrupted
try:
    try:
        layer(x, t, f, w).block_until_ready()
        print("no error")
    except (ValueError, RuntimeError) as error:
        print("got KeyboardInterrupt" in str(error))
    time.sleep(10)
except KeyboardInterrupt:
    print("interrupted")
print(np.array_equal(layer(x, t, f, w), hinge.forward(x, t, f, w, aggregate="sum")))
"""
    *_, interrupted, works = python(code).split()
    assert (interrupted, works) == ("interrupted", "True")
