"""Neural decision forests: known answers, backends against the reference, gradients, leaf updates, bad input."""

import re
from functools import partial
from unittest import mock

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from conftest import Backend, assert_same_bits, several_paths, slope
from growers import assert_all_same, on_paths, on_threads

import hforest
from hforest import layers, neural
from hforest.core import dispatch
from hforest.neural import gpu

pytestmark = pytest.mark.kernels

LOSSES = ("forest", "tree")
losses = pytest.mark.parametrize("loss", LOSSES)

# (samples, trees, depth, classes): one of each, a tile and one more, more samples than a unit, more
# classes than registers hold, no sample.
SHAPES = [
    (1, 1, 1, 1),
    (0, 2, 3, 4),
    (17, 3, 2, 2),
    (5, 2, 5, 3),
    (130, 2, 4, 11),
    (9, 1, 6, 40),
    (23, 1, 8, 27),
]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


def problem(n, n_trees, depth, n_classes, dtype=np.float64, seed=0, scale=2.0):
    rng = np.random.default_rng(seed)
    f = (scale * rng.normal(size=(n, n_trees, 2**depth - 1))).astype(dtype)
    leaves = rng.dirichlet(np.ones(n_classes), size=(n_trees, 2**depth)).astype(dtype)
    return f, leaves, rng.integers(0, n_classes, n, dtype=np.int32)


def shared(n, n_trees, depth, n_classes, n_functions=6, dtype=np.float64, seed=0):
    """Returns the same problem with few functions that vertices share."""
    rng = np.random.default_rng(seed)
    _, leaves, y = problem(n, n_trees, depth, n_classes, dtype, seed)
    f = (2 * rng.normal(size=(n, n_functions))).astype(dtype)
    return f, leaves, y, rng.integers(0, n_functions, (n_trees, 2**depth - 1), dtype=np.int32)


def by_formula(f):
    """Returns mu by the formula of Zhang 2017, leaf by leaf, in extended precision."""
    n, n_trees, n_vertices = f.shape
    depth = (n_vertices + 1).bit_length() - 1
    d = 1 / (1 + np.exp(-f.astype(np.longdouble)))
    not_d = 1 / (1 + np.exp(f.astype(np.longdouble)))
    mu = np.ones((n, n_trees, 2**depth), np.longdouble)
    for leaf in range(2**depth):
        v = 0
        for level in range(depth):
            right = leaf >> (depth - 1 - level) & 1
            mu[:, :, leaf] *= not_d[:, :, v] if right else d[:, :, v]
            v = 2 * v + 1 + right
    return mu


def tolerance(dtype):
    return {"rtol": 3e-6, "atol": 3e-7} if dtype == np.float32 else {"rtol": 1e-13, "atol": 1e-15}


# -------------------------------------------------------------------------------- known answers


def test_left_is_the_positive_side(backend, dtype):
    f = np.array([[[50.0, 50.0, 50.0]], [[-50.0, 50.0, -50.0]]], dtype)
    mu = neural.route(f)
    assert mu.shape == (2, 1, 4)
    np.testing.assert_allclose(mu[:, 0], [[1, 0, 0, 0], [0, 0, 0, 1]], atol=1e-20)


def test_figure_1(backend, dtype):
    """Zhang 2017, Fig. 1: mu of leaf 4 is d1 (1 - d2) (1 - d5)."""
    odds = np.arange(2, 9)
    f = np.log(odds).reshape(1, 1, 7).astype(dtype)
    d = odds / (1 + odds)
    assert neural.route(f)[0, 0, 3] == pytest.approx(d[0] * (1 - d[1]) * (1 - d[4]), rel=1e-6)


def test_forward_by_hand(backend, dtype):
    f = np.log(np.array([[[3.0], [1.0]]])).astype(dtype)
    leaves = np.array([[[0.5, 0.5], [0, 1]], [[1, 0], [0.5, 0.5]]], dtype)
    p = neural.forward(f, leaves)
    assert p.dtype == dtype
    np.testing.assert_allclose(p, [[(0.375 + 0.75) / 2, (0.625 + 0.25) / 2]], rtol=1e-6)


def test_loss_backward_by_hand(backend, dtype):
    # P = 3/4 0.9 + 1/4 0.5 = 0.8, dP/df = 3/16 (0.9 - 0.5).
    f = np.log(np.array([[[3.0]]])).astype(dtype)
    leaves = np.array([[[0.9, 0.1], [0.5, 0.5]]], dtype)
    for loss in LOSSES:
        value, grad = neural.loss_backward(f, leaves, np.array([0], np.int32), loss=loss)
        assert value == pytest.approx(-np.log(0.8), rel=1e-6)
        assert grad.item() == pytest.approx(-3 / 16 * 0.4 / 0.8, rel=1e-6)


def test_leaf_update_by_hand(backend, dtype):
    """Samples reach both leaves equally, so pi is the class frequency after one iteration."""
    f = np.zeros((4, 1, 1), dtype)
    y = np.array([0, 0, 0, 1], np.int32)
    leaves = neural.update_leaves(f, y, neural.uniform_leaves(1, 1, 2, dtype=dtype), 1)
    np.testing.assert_allclose(leaves, [[[0.75, 0.25]] * 2], rtol=1e-6)


def test_one_class_is_certain(backend, dtype):
    f, leaves, y = problem(5, 2, 3, 1, dtype)
    np.testing.assert_allclose(neural.forward(f, leaves), 1, rtol=1e-6)
    value, grad = neural.loss_backward(f, leaves, y)
    assert value == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(grad, 0, atol=1e-7)


# ------------------------------------------------------------------- backends and the reference


@shapes
def test_route_is_the_product_over_the_path(backend, dtype, shape):
    f, _, _ = problem(*shape, dtype)
    mu = neural.route(f)
    assert (mu.shape, mu.dtype) == ((shape[0], shape[1], 2 ** shape[2]), dtype)
    np.testing.assert_allclose(mu, by_formula(f), rtol=60 * np.finfo(dtype).eps)
    np.testing.assert_allclose(mu.sum(axis=2, dtype=np.float64), 1, rtol=8 * np.finfo(dtype).eps)


def everything(arrays, index, grad_p, backend):
    f, leaves, y, grad_p, index = (None if a is None else backend.array(a) for a in (*arrays, grad_p, index))
    results = [neural.route(f, index=index), neural.forward(f, leaves, index=index)]
    values = []
    for loss in LOSSES:
        value, *arrays = neural.loss_backward(f, leaves, y, index=index, loss=loss, return_p=True)
        values.append(value)
        results += arrays
    results.append(neural.backward(grad_p, f, leaves, index=index))
    results.append(neural.update_leaves(f, y, leaves, 2, index=index))
    weight = backend.array(np.random.default_rng(0).gamma(0.5, size=len(y)))
    values.append(neural.loss_backward(f, leaves, y, index=index, sample_weight=weight)[0])
    results.append(neural.update_leaves(f, y, leaves, 2, index=index, sample_weight=weight))
    return [np.array(values), *map(backend.numpy, results)]


def close(got, want, dtype):
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        # Gradients are differences of numbers up to 1, and may cancel.
        scale = abs(b[np.isfinite(b)]).max(initial=0.1)
        np.testing.assert_allclose(
            a, b, rtol=tolerance(dtype)["rtol"] * 10, atol=tolerance(dtype)["rtol"] * scale
        )


@hypothesis.given(
    shape=st.tuples(st.integers(0, 40), st.integers(1, 3), st.integers(1, 6)),
    sizes=st.lists(st.sampled_from([0.0, 1e-30, 1.0, 85.0, 90.0, 708.0, 1e4]), min_size=1, max_size=4),
    seed=st.integers(0, 2**16),
)
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], max_examples=50)
def test_mu_sums_to_one_at_any_decision(backend, dtype, shape, sizes, seed):
    rng = np.random.default_rng(seed)
    whole = (*shape[:2], 2 ** shape[2] - 1)
    f = (rng.choice(sizes, whole) * rng.choice([-1.0, 1.0], whole)).astype(dtype)
    mu = neural.route(f)
    assert (mu >= 0).all()
    np.testing.assert_allclose(mu.sum(axis=2, dtype=np.float64), 1, rtol=8 * np.finfo(dtype).eps)


@shapes
@pytest.mark.parametrize("sharing", [False, True], ids=["own", "shared"])
def test_backend_equals_reference(fast_backend, dtype, shape, sharing):
    *arrays, index = shared(*shape, dtype=dtype) if sharing else (*problem(*shape, dtype), None)
    grad_p = np.random.default_rng(1).normal(size=(shape[0], shape[3])).astype(dtype)
    got = everything(arrays, index, grad_p, fast_backend)
    with hforest.using("reference"):
        want = everything(arrays, index, grad_p, Backend("reference"))
    close(got, want, dtype)


@hypothesis.given(
    shape=st.tuples(st.integers(0, 20), st.integers(1, 3), st.integers(1, 4), st.integers(1, 20)),
    scale=st.sampled_from([0.1, 3.0, 30.0, 300.0]),
    seed=st.integers(0, 2**16),
)
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], max_examples=25)
def test_any_shape_and_size_of_decisions(fast_backend, dtype, shape, scale, seed):
    arrays = problem(*shape, dtype, seed, scale)
    grad_p = np.random.default_rng(1).normal(size=(shape[0], shape[3])).astype(dtype)
    got = everything(arrays, None, grad_p, fast_backend)
    with hforest.using("reference"):
        want = everything(arrays, None, grad_p, Backend("reference"))
    close(got, want, dtype)


@shapes
@losses
@pytest.mark.parametrize("sharing", [False, True], ids=["own", "shared"])
def test_loss_backward_gives_what_forward_gives(backend, dtype, shape, loss, sharing):
    """The probabilities are bit-identical to those of `forward`, and returning them changes nothing else."""
    f, leaves, y, index = shared(*shape, dtype=dtype) if sharing else (*problem(*shape, dtype), None)
    value, grad, p = neural.loss_backward(f, leaves, y, index=index, loss=loss, return_p=True)
    assert p.tobytes() == neural.forward(f, leaves, index=index).tobytes()
    value_alone, grad_alone = neural.loss_backward(f, leaves, y, index=index, loss=loss)
    assert value == value_alone
    assert grad.tobytes() == grad_alone.tobytes()


@pytest.mark.parametrize("n_functions", [1, 5, 14])
def test_an_index_is_a_gather(backend, dtype, n_functions):
    f, leaves, y, index = shared(20, 2, 3, 3, n_functions, dtype)
    own = np.ascontiguousarray(f[:, index])
    np.testing.assert_array_equal(neural.route(f, index=index), neural.route(own))
    np.testing.assert_array_equal(neural.forward(f, leaves, index=index), neural.forward(own, leaves))
    np.testing.assert_array_equal(
        neural.update_leaves(f, y, leaves, 2, index=index), neural.update_leaves(own, y, leaves, 2)
    )
    for loss in LOSSES:
        value, grad = neural.loss_backward(f, leaves, y, index=index, loss=loss)
        value_own, grad_own = neural.loss_backward(own, leaves, y, loss=loss)
        assert value == value_own
        want = np.zeros(f.shape)
        np.add.at(want, (slice(None), index), grad_own)
        np.testing.assert_allclose(grad, want, **tolerance(dtype))


# ---------------------------------------------------------------------------------- arithmetic


def sigmoid_error(dtype):
    """Returns the largest error of d and 1 - d in units of the last place, over many decisions."""
    end = 85.99 if dtype == np.float32 else 706.9
    f = np.concatenate([np.linspace(-end, end, 200001), np.geomspace(1e-30, 1, 50001)]).astype(dtype)
    mu = neural.route(f.reshape(-1, 1, 1))[:, 0]
    x = f.astype(np.longdouble)
    worst = 0
    for got, want in ((mu[:, 0], 1 / (1 + np.exp(-x))), (mu[:, 1], 1 / (1 + np.exp(x)))):
        unit = np.spacing(want.astype(dtype)).astype(np.longdouble)
        worst = max(worst, float((abs(got - want) / unit).max()))
    return worst


def test_the_sigmoid_is_right_to_a_few_units(simd, dtype):
    assert max(on_paths(simd, lambda: sigmoid_error(dtype))) < 3.5


def bits(dtype, index=False):
    *arrays, vertices = shared(333, 5, 6, 19, 50, dtype) if index else (*problem(333, 5, 6, 19, dtype), None)
    arrays[0][::50] *= 1000
    grad_p = np.random.default_rng(1).normal(size=(333, 19)).astype(dtype)
    return everything(arrays, vertices, grad_p, Backend("cpu"))


@pytest.mark.parametrize("index", [False, True], ids=["own", "shared"])
def test_threads_do_not_change_bits(threads, dtype, index):
    assert_all_same(on_threads(threads, lambda: bits(dtype, index)))


@several_paths
@pytest.mark.parametrize("n_classes", [3, 8, 9, 16, 17, 32, 33])
def test_vector_paths_have_the_same_bits(simd, dtype, n_classes):
    arrays = problem(61, 3, 5, n_classes, dtype)
    arrays[0][::7] *= 1000
    grad_p = np.random.default_rng(1).normal(size=(61, n_classes)).astype(dtype)
    assert_all_same(on_paths(simd, lambda: everything(arrays, None, grad_p, Backend("cpu"))))


def test_a_sample_does_not_depend_on_the_others(backend, dtype):
    f, leaves, y = problem(70, 2, 4, 5, dtype)
    p = neural.forward(f, leaves)
    _, grad = neural.loss_backward(f, leaves, y)
    for n in (0, 13, 69):
        one = np.ascontiguousarray(f[n : n + 1])
        assert neural.forward(one, leaves).tobytes() == p[n].tobytes()
        np.testing.assert_allclose(
            neural.loss_backward(one, leaves, y[n : n + 1])[1][0] / 70, grad[n], rtol=1e-5
        )


def test_float_error_is_that_of_numpy():
    f, leaves, _ = problem(200, 4, 8, 10, np.float32)
    exact = np.einsum("nml,mlk->nk", by_formula(f).astype(np.float64), leaves.astype(np.float64)) / 4
    d, mu, at = 1 / (1 + np.exp(-f)), np.ones((200, 4, 1), np.float32), 0
    for level in range(8):
        here = d[:, :, at : at + 2**level]
        mu = np.stack([mu * here, mu * (1 - here)], -1).reshape(200, 4, -1)
        at += 2**level
    plain = np.einsum("nml,mlk->nk", mu, leaves) / np.float32(4)
    p = neural.forward(f, leaves)
    assert p.dtype == plain.dtype == np.float32
    assert np.sqrt(((p - exact) ** 2).mean()) <= 2 * np.sqrt(((plain - exact) ** 2).mean())


# ----------------------------------------------------------------------------------- gradients


@losses
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_gradient_is_central_differences(backend, loss, depth):
    f, leaves, y = problem(4, 2, depth, 4)
    _, grad = neural.loss_backward(f, leaves, y, loss=loss)
    want = slope(lambda: neural.loss_backward(f, leaves, y, loss=loss)[0], f)
    np.testing.assert_allclose(grad, want, atol=1e-9)


@losses
@pytest.mark.parametrize("size", [40.0, pytest.param(800.0, marks=pytest.mark.slow), 1e4])
def test_gradient_at_saturated_decisions(backend, loss, size):
    """Impossible classes on the path of saturated decisions: P is far below the smallest float64."""
    rng = np.random.default_rng(3)
    f = size * rng.choice([-1.0, 1.0], (6, 2, 7)) + rng.normal(size=(6, 2, 7))
    leaves = np.zeros((2, 8, 3))
    leaves[np.arange(2)[:, None], np.arange(8), rng.integers(0, 3, (2, 8))] = 1
    leaves[:, 0] = (0.5, 0.25, 0.25)
    y = rng.integers(0, 3, 6, dtype=np.int32)
    value, grad = neural.loss_backward(f, leaves, y, loss=loss)
    assert np.isfinite(value)
    assert np.isfinite(grad).all()
    assert abs(grad).max() > 0.01
    # The loss is of the size of f here: a longer step loses fewer digits.
    want = slope(lambda: neural.loss_backward(f, leaves, y, loss=loss)[0], f, 1e-3)
    np.testing.assert_allclose(grad, want, atol=1e-6)


@losses
def test_a_saturated_decision_that_is_wrong_has_slope_one(backend, dtype, loss):
    f = np.array([[[1e4]], [[-1e4]]], dtype)
    leaves = np.array([[[0, 1], [1, 0]]], dtype)
    value, grad = neural.loss_backward(f, leaves, np.array([0, 1], np.int32), loss=loss)
    assert value == 1e4
    np.testing.assert_array_equal(grad.ravel(), [0.5, -0.5])


def test_gradient_with_shared_functions_is_central_differences(backend):
    f, leaves, y, index = shared(4, 2, 3, 3)
    for loss in LOSSES:
        _, grad = neural.loss_backward(f, leaves, y, index=index, loss=loss)
        want = slope(lambda at=loss: neural.loss_backward(f, leaves, y, index=index, loss=at)[0], f)
        np.testing.assert_allclose(grad, want, atol=1e-9)


@pytest.mark.parametrize("sharing", [False, True], ids=["own", "shared"])
def test_regression_is_central_differences(backend, sharing):
    *arrays, index = shared(4, 2, 3, 2) if sharing else (*problem(4, 2, 3, 2), None)
    f = arrays[0]
    rng = np.random.default_rng(5)
    leaves, target = rng.normal(size=(2, 8, 2)), rng.normal(size=(4, 2))

    def loss():
        return layers.squared_loss(neural.forward(f, leaves, index=index, task="regression"), target)

    grad = neural.backward(loss()[1], f, leaves, index=index)
    np.testing.assert_allclose(grad, slope(lambda: loss()[0], f), atol=1e-9)


def test_outputs_and_labels_have_one_gradient(backend, dtype):
    f, leaves, y = problem(30, 3, 4, 5, dtype)
    p = neural.forward(f, leaves)
    grad_p = np.zeros_like(p)
    grad_p[np.arange(30), y] = -1 / p[np.arange(30), y] / 30
    got = neural.backward(grad_p, f, leaves)
    np.testing.assert_allclose(got, neural.loss_backward(f, leaves, y)[1], rtol=1e-4, atol=1e-7)


def test_a_class_that_no_leaf_holds_costs_infinity(backend, dtype):
    f, leaves, y = problem(20, 2, 3, 3, dtype)
    leaves[:, :, 2] = 0
    leaves /= leaves.sum(axis=2, keepdims=True)
    y[:] = 1
    y[7] = 2
    for loss in LOSSES:
        value, grad = neural.loss_backward(f, leaves, y, loss=loss)
        assert value == np.inf
        assert (grad[7] == 0).all()
        assert np.isfinite(grad).all()
    leaves = neural.update_leaves(f, y, leaves, 3)
    np.testing.assert_allclose(leaves.sum(axis=2), 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("depth", "size"), [(15, 0.0), (15, 1.0), (15, 1e4), pytest.param(20, 1e4, marks=pytest.mark.slow)]
)
def test_deep_trees(dtype, depth, size):
    rng = np.random.default_rng(depth)
    f = (size * rng.normal(size=(2, 1, 2**depth - 1))).astype(dtype)
    leaves = np.empty((1, 2**depth, 2), dtype)
    leaves[..., 0] = rng.random((1, 2**depth)) > 0.5
    leaves[..., 1] = 1 - leaves[..., 0]
    y = np.array([0, 1], np.int32)
    mu = neural.route(f)
    assert np.isfinite(mu).all()
    np.testing.assert_allclose(mu.sum(axis=2, dtype=np.float64), 1, rtol=1e-5)
    p = neural.forward(f, leaves)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    for loss in LOSSES:
        value, grad = neural.loss_backward(f, leaves, y, loss=loss)
        assert np.isfinite(value)
        assert np.isfinite(grad).all()
        if size < 1e4:
            assert value == pytest.approx(-np.log(p[[0, 1], y]).mean(), rel=1e-4)
    fitted = neural.update_leaves(f, y, neural.uniform_leaves(1, depth, 2, dtype=dtype), 2)
    np.testing.assert_allclose(fitted.sum(axis=2), 1, rtol=1e-6)


def test_tiny_products_in_a_deep_tree_are_exact(dtype):
    """P is the product of 15 small decisions, 10**-105, and its logarithm is exact."""
    f = np.zeros((1, 1, 2**15 - 1), dtype)
    f[0, 0, 2 ** np.arange(15) - 1] = -16.0  # the leftmost path
    leaves = np.zeros((1, 2**15, 2), dtype)
    leaves[..., 1] = 1
    leaves[0, 0] = (1, 0)
    value, grad = neural.loss_backward(f, leaves, np.array([0], np.int32))
    assert value == pytest.approx(15 * (16 + np.log1p(np.exp(-16.0))), rel=1e-12)
    want = np.zeros(2**15 - 1)
    want[2 ** np.arange(15) - 1] = -1 / (1 + np.exp(-16.0))
    np.testing.assert_allclose(grad[0, 0], want, rtol=1e-6)


# -------------------------------------------------------------------------------------- leaves


def log_likelihood(f, leaves, y):
    """Returns the log-likelihood of every tree, in extended precision."""
    p = np.einsum("nml,mln->nm", by_formula(f), leaves[:, :, y].astype(np.longdouble))
    return np.log(p).sum(axis=0)


@hypothesis.given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 3), st.integers(1, 4), st.integers(1, 6)),
    scale=st.sampled_from([0.3, 3.0, 12.0]),
    uniform=st.booleans(),
    seed=st.integers(0, 2**16),
)
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], max_examples=30)
def test_a_leaf_update_never_lowers_the_likelihood(backend, dtype, shape, scale, uniform, seed):
    f, leaves, y = problem(*shape, dtype, seed, scale)
    if uniform:
        leaves = neural.uniform_leaves(*shape[1:], dtype=dtype)
    before = log_likelihood(f, leaves, y)
    for _ in range(4):
        leaves = neural.update_leaves(f, y, leaves, 1)
        np.testing.assert_allclose(leaves.sum(axis=2, dtype=np.float64), 1, rtol=8 * np.finfo(dtype).eps)
        assert (leaves >= 0).all()
        after = log_likelihood(f, leaves, y)
        assert (after >= before - 8 * np.finfo(dtype).eps * (1 + abs(before)) * len(y)).all()
        before = after


def leaf_update(dtype, seed):
    """Returns arguments of `update_leaves` of any kind: likelihoods of any size, subnormal leaves and weights."""
    rng = np.random.default_rng(seed)
    n, n_trees, depth, n_classes = (rng.integers(1, most) for most in (150, 4, 9, 12))
    scale, tiny = rng.choice([1.0, 8.0, 100.0, 1000.0]), seed % 3 == 0
    f, leaves, y = problem(n, n_trees, depth, n_classes, dtype, seed, scale)
    small = rng.choice([1e-12, 64 * np.finfo(dtype).smallest_subnormal] if tiny else [1e-12], leaves.shape)
    leaves *= np.where(rng.random(leaves.shape) < 0.4, small, 1).astype(dtype)
    leaves /= leaves.sum(axis=2, keepdims=True)
    index = weight = None
    if seed % 2:
        index = rng.integers(0, 6, f.shape[1:], dtype=np.int32)
        f = (scale * rng.standard_normal((n, 6))).astype(dtype)
    if seed % 4 < 2:
        weight = rng.gamma(0.5, size=n) * rng.choice([0, 1, 1], n)
        weight *= rng.choice([1, 1e-40, 1e-306, 1e-310] if tiny else [1], n_classes)[y]
        weight[0] = 1
    return f, y, leaves, index, weight


@pytest.mark.parametrize("numbers", [1, 1 << 25])  # chunks of 16 or 8 samples, and one chunk
def test_a_leaf_update_has_the_bits_of_the_cpu(fast_backend, dtype, numbers):
    for seed in range(100):
        *arrays, index, weight = leaf_update(dtype, seed)
        moved = [None if a is None else fast_backend.array(a) for a in (*arrays, index, weight)]
        with mock.patch.object(gpu, "NUMBERS", numbers):
            got = neural.update_leaves(*moved[:3], 3, index=moved[3], sample_weight=moved[4])
        with dispatch.forced("cpu"):
            want = neural.update_leaves(*arrays, 3, index=index, sample_weight=weight)
        assert fast_backend.numpy(got).tobytes() == want.tobytes(), seed


def test_iterations_add_up(backend, dtype):
    f, leaves, y = problem(40, 2, 3, 3, dtype)
    once = leaves
    for _ in range(3):
        once = neural.update_leaves(f, y, once, 1)
    np.testing.assert_array_equal(neural.update_leaves(f, y, leaves, 3), once)
    np.testing.assert_array_equal(neural.update_leaves(f, y, leaves, 0), leaves)


@pytest.mark.parametrize("sharing", [False, True])
@pytest.mark.parametrize("scale", [2.0, 60.0])  # with the larger one products of decisions are beyond float32
def test_weights_count_samples(backend, dtype, sharing, scale):
    f, leaves, y = problem(30, 3, 3, 4, dtype, scale=scale)
    index = None
    if sharing:
        f = np.ascontiguousarray(f.reshape(30, -1)[:, :6])
        index = np.random.default_rng(0).integers(0, 6, (3, 7)).astype(np.int32)
    times = np.random.default_rng(1).integers(0, 4, 30)
    of = np.repeat(np.arange(30), times)
    rtol = 100 * float(np.finfo(dtype).eps)
    for weight in (times, times / 7, times * 1e80, list(times)):
        got = neural.update_leaves(f, y, leaves, 3, index=index, sample_weight=weight)
        want = neural.update_leaves(np.ascontiguousarray(f[of]), y[of], leaves, 3, index=index)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)
        for loss in LOSSES:
            settings = {"index": index, "loss": loss}
            value, grad = neural.loss_backward(f, leaves, y, sample_weight=weight, **settings)
            repeated, of_each = neural.loss_backward(np.ascontiguousarray(f[of]), leaves, y[of], **settings)
            assert value == pytest.approx(repeated, rel=rtol)
            total = np.zeros(f.shape)
            np.add.at(total, of, of_each)
            np.testing.assert_allclose(grad, total, rtol=rtol, atol=rtol / 30)
    plain = neural.update_leaves(f, y, leaves, 3, index=index)
    for weight in (np.ones(30), np.full(30, 0.5)):
        np.testing.assert_array_equal(
            neural.update_leaves(f, y, leaves, 3, index=index, sample_weight=weight), plain
        )
        value, grad = neural.loss_backward(f, leaves, y, index=index, sample_weight=weight)
        want_value, want_grad = neural.loss_backward(f, leaves, y, index=index)
        assert value == want_value
        np.testing.assert_array_equal(grad, want_grad)


def test_samples_of_weight_0_and_infinite_loss_count_nothing(backend, dtype):
    f, leaves, y = problem(5, 2, 2, 3, dtype)
    leaves[:, :, 0], leaves[:, :, 1:] = 0, 0.5
    value, grad = neural.loss_backward(f, leaves, y, sample_weight=(y != 0).astype(float))
    assert np.isfinite(value) == (y != 0).any()
    assert np.isfinite(grad).all()
    assert (grad[y == 0] == 0).all()


def test_trees_are_fitted_independently(backend, dtype):
    f, leaves, y = problem(40, 4, 3, 3, dtype)
    together = neural.update_leaves(f, y, leaves, 3)
    for m in range(4):
        alone = neural.update_leaves(np.ascontiguousarray(f[:, m : m + 1]), y, leaves[m : m + 1], 3)
        np.testing.assert_array_equal(alone[0], together[m])


def test_a_leaf_without_samples_keeps_its_row(backend, dtype):
    f = np.full((30, 1, 3), 1e4, dtype)  # all samples in leaf 0
    start = problem(1, 1, 2, 3, dtype)[1]
    leaves = neural.update_leaves(f, np.arange(30, dtype=np.int32) % 3, start, 2)
    np.testing.assert_array_equal(leaves[0, 1:], start[0, 1:])
    np.testing.assert_allclose(leaves[0, 0], 1 / 3, rtol=1e-6)


def test_no_samples_leave_the_leaves_alone(backend, dtype):
    f, leaves, y = problem(0, 2, 2, 3, dtype)
    fitted = neural.update_leaves(f, y, leaves)
    np.testing.assert_array_equal(fitted, leaves)
    assert fitted is not leaves
    assert neural.loss_backward(f, leaves, y)[0] == 0.0
    assert neural.loss_backward(f, leaves, y, sample_weight=[])[0] == 0.0
    np.testing.assert_array_equal(neural.update_leaves(f, y, leaves, sample_weight=[]), leaves)
    assert neural.forward(f, leaves).shape == (0, 3)


def test_digits_are_learned(data):
    """Ten random linear trees with fitted leaves are far better than guessing; a few steps of descent help."""
    from hforest import demo, optim

    x, y, x_test, y_test = demo.load_digits()[:4]
    x, x_test = x / 16 - 0.5, x_test / 16 - 0.5
    rng = np.random.default_rng(0)
    w = (0.5 * rng.standard_normal((64, 10 * 31))).astype(np.float32)
    m, v, leaves = np.zeros_like(w), np.zeros_like(w), neural.uniform_leaves(10, 5, 10)

    def functions(a):
        return (a @ w).reshape(-1, 10, 31)

    def error():
        return (neural.forward(functions(x_test), leaves).argmax(axis=1) != y_test).mean()

    leaves = neural.update_leaves(functions(x), y, leaves)
    start = error()
    assert start < 0.35
    for step in range(1, 101):
        picked = rng.integers(0, len(x), 200)
        _, grad = neural.loss_backward(functions(x[picked]), leaves, y[picked])
        optim.adam(w, x[picked].T @ grad.reshape(200, -1), m, v, step, 0.02)
    leaves = neural.update_leaves(functions(x), y, leaves)
    assert error() < start / 2


# ------------------------------------------------------------------------------------ bad input


def call(**changes):
    f, leaves, y = problem(4, 2, 2, 3)
    return {"f": f, "leaves": leaves, "y": y} | changes


def raises(error, name, remedy, run):
    with pytest.raises(error, match=f"(?s)^{name}.*{remedy}"):
        run()


F, LEAVES, Y = problem(4, 2, 2, 3)
NAN, INFINITE = F.copy(), F.copy()
NAN[1, 0, 2], INFINITE[3, 1, 0] = np.nan, np.inf

BAD = [
    ({"f": [[0.0]]}, TypeError, "f", "numpy.asarray"),
    ({"f": F.astype(int)}, TypeError, "f", "astype"),
    ({"f": F.astype(np.float16)}, TypeError, "f", "astype"),
    ({"f": F[:, :, 0]}, ValueError, "f: expected shape", "7 vertices"),
    ({"f": np.zeros((4, 2, 4))}, ValueError, "f: expected shape", "7 vertices"),
    ({"f": np.zeros((4, 2, 0))}, ValueError, "f: expected shape", "7 vertices"),
    ({"f": np.zeros((0, 2, 2**21 - 1))}, ValueError, "f: expected shape", "depth <= 20"),
    ({"f": np.zeros((4, 0, 3))}, ValueError, "n_trees", "at least 1"),
    ({"f": np.asfortranarray(F)}, ValueError, "f", "ascontiguousarray"),
    ({"f": NAN}, ValueError, "f: expected finite numbers, got nan at index \\(1, 0, 2\\)", "drop"),
    ({"f": INFINITE}, ValueError, "f: expected finite numbers", "drop"),
    ({"leaves": LEAVES.astype(np.float32)}, TypeError, "leaves", "astype"),
    ({"leaves": LEAVES[:1]}, ValueError, "leaves: expected shape", "agree"),
    ({"leaves": np.ones((2, 8, 1))}, ValueError, "leaves: expected shape", "agree"),
    ({"leaves": np.ones((2, 4, 0))}, ValueError, "n_classes", "at least 1"),
    ({"leaves": LEAVES[0]}, ValueError, "leaves: expected shape", "agree"),
    ({"leaves": LEAVES * 1.01}, ValueError, "leaves: expected probabilities", "uniform_leaves"),
    ({"leaves": 2 * LEAVES - 1 / 3}, ValueError, "leaves: expected probabilities", "uniform_leaves"),
    ({"leaves": np.full((2, 4, 3), np.nan)}, ValueError, "leaves: expected finite", "nan"),
]

BAD_LABELS = [
    ({"y": Y.astype(np.float64)}, TypeError, "y: expected labels of an integer or bool", "return_inverse"),
    ({"y": np.array(list("abca"))}, TypeError, "y", "return_inverse"),
    ({"y": Y[:2]}, ValueError, "y: expected shape", "for each sample"),
    ({"y": np.array([0, 1, 2, 3], np.int32)}, IndexError, "y", "got 3"),
    ({"y": np.array([0, -1, 2, 0], np.int8)}, IndexError, "y", "got -1"),
]


@pytest.mark.parametrize(("changes", "error", "name", "remedy"), BAD)
def test_bad_input(changes, error, name, remedy):
    a = call(**changes)
    raises(error, name, remedy, lambda: neural.forward(a["f"], a["leaves"]))
    if "f" in changes:
        raises(error, name, remedy, lambda: neural.route(a["f"]))


@pytest.mark.parametrize(("changes", "error", "name", "remedy"), BAD + BAD_LABELS)
def test_bad_input_with_labels(changes, error, name, remedy):
    a = call(**changes)
    for loss in LOSSES:
        raises(error, name, remedy, lambda at=loss: neural.loss_backward(**a, loss=at))
    raises(error, name, remedy, lambda: neural.update_leaves(a["f"], a["y"], a["leaves"]))


@pytest.mark.parametrize(
    ("weight", "error", "remedy"),
    [
        (np.ones(3), ValueError, "expected shape"),
        (-np.ones(4), ValueError, "expected numbers from 0"),
        (np.zeros(4), ValueError, "at least one weight above 0"),
        ([1.0, np.nan, 1.0, 1.0], ValueError, "finite"),
        (["a"] * 4, TypeError, "expected"),
    ],
)
def test_bad_weights(weight, error, remedy):
    with pytest.raises(error, match=f"sample_weight.*{remedy}"):
        neural.loss_backward(F, LEAVES, Y, sample_weight=weight)
    with pytest.raises(error, match=f"sample_weight.*{remedy}"):
        neural.update_leaves(F, Y, LEAVES, sample_weight=weight)


@pytest.mark.parametrize(
    ("changes", "error", "name", "remedy"),
    [
        ({"index": np.zeros((2, 3), np.int64)}, TypeError, "index", "int32"),
        ({"index": np.zeros((2, 4), np.int32)}, ValueError, "index: expected shape", "7 vertices"),
        ({"index": np.zeros(3, np.int32)}, ValueError, "index: expected shape", "7 vertices"),
        ({"index": np.zeros((1, 2**21 - 1), np.int32)}, ValueError, "index: expected shape", "depth <= 20"),
        ({"index": np.full((2, 3), 5, np.int32)}, IndexError, "index", "n_functions = 5"),
        ({"index": np.full((2, 3), -1, np.int32)}, IndexError, "index", "got -1"),
        ({"index": np.zeros((3, 3), np.int32)}, ValueError, "leaves: expected shape", "agree"),
        ({"index": [[0, 1, 2]]}, TypeError, "index", "numpy.asarray"),
        ({"f": np.zeros((4, 0))}, ValueError, "n_functions", "at least 1"),
        ({"f": F}, ValueError, "f: expected shape", "agree"),
    ],
)
def test_bad_index(changes, error, name, remedy):
    a = {"f": np.zeros((4, 5)), "index": np.zeros((2, 3), np.int32)} | changes
    for function, given in (
        (neural.forward, (a["f"], LEAVES)),
        (neural.loss_backward, (a["f"], LEAVES, Y)),
        (neural.update_leaves, (a["f"], Y, LEAVES)),
        (neural.backward, (np.zeros((4, 3)), a["f"], LEAVES)),
    ):
        raises(error, name, remedy, partial(function, *given, index=a["index"]))


def test_bad_words_and_numbers():
    raises(ValueError, "loss", "choose", lambda: neural.loss_backward(F, LEAVES, Y, loss="sum"))
    raises(ValueError, "task", "choose", lambda: neural.forward(F, LEAVES, task="ranking"))
    raises(ValueError, "n_iter", "range", lambda: neural.update_leaves(F, Y, LEAVES, -1))
    raises(TypeError, "n_iter", "integer", lambda: neural.update_leaves(F, Y, LEAVES, 1.5))
    raises(ValueError, "grad_p", "agree", lambda: neural.backward(np.zeros((4, 2)), F, LEAVES))
    raises(TypeError, "grad_p", "astype", lambda: neural.backward(np.zeros((4, 3), "f4"), F, LEAVES))
    raises(ValueError, "grad_p", "nan", lambda: neural.backward(np.full((4, 3), np.nan), F, LEAVES))
    raises(ValueError, "depth", "1 to 20", lambda: neural.uniform_leaves(1, 21, 2))
    raises(ValueError, "n_trees", "at least 1|1 to", lambda: neural.uniform_leaves(0, 2, 2))
    raises(TypeError, "n_classes", "integer", lambda: neural.uniform_leaves(1, 2, 2.0))
    raises(TypeError, "dtype", "float32", lambda: neural.uniform_leaves(1, 2, 2, dtype=np.int32))


def test_sizes_that_overflow_are_refused():
    raises(ValueError, "n_trees", "fewer", lambda: neural.uniform_leaves(2**31 - 1, 20, 2**31 - 1))
    f, index = np.zeros((1 << 12, 1)), np.zeros((1, 2**20 - 1), np.int32)
    with pytest.raises((MemoryError, ValueError)):
        neural.route(np.zeros((1 << 24, 1), np.float32), index=np.zeros((16, 2**20 - 1), np.int32))
    leaves = neural.uniform_leaves(1, 20, 2, dtype=np.float64)
    assert neural.forward(f[:1], leaves, index=index).shape == (1, 2)


def test_regression_leaves_are_any_numbers(backend):
    leaves = np.array([[[5.0], [-3.0]]])
    p = neural.forward(np.zeros((1, 1, 1)), leaves, task="regression")
    assert p.item() == 1.0
    with pytest.raises(ValueError, match="^leaves"):
        neural.forward(np.zeros((1, 1, 1)), leaves)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e38])
def test_nothing_crashes_on_unchecked_numbers(dtype, value):
    f, leaves, y = problem(20, 2, 3, 4, dtype)
    f[3] = value
    with hforest.unchecked():
        neural.route(f)
        neural.forward(f, leaves)
        for loss in LOSSES:
            neural.loss_backward(f, leaves, y, loss=loss)
        neural.update_leaves(f, y, leaves, 2)
        leaves[:] = np.nan
        neural.loss_backward(f, leaves, y)
        neural.update_leaves(f, y, leaves, 2)


def test_the_callers_arrays_stay_as_they_are(backend, dtype):
    f, leaves, y = problem(9, 2, 3, 4, dtype)
    copies = [a.copy() for a in (f, leaves, y)]
    neural.forward(f, leaves)
    neural.loss_backward(f, leaves, y)
    neural.update_leaves(f, y, leaves, 2)
    assert_same_bits([f, leaves, y], copies)


# --------------------------------------------------------------------------------------- units, out


@pytest.mark.parametrize("depth", [9, 10, 11])
def test_units_of_samples_do_not_show(dtype, depth):
    """Trees of a page and more take 64 samples at a time, smaller ones a tile; a single sample is computed alone."""
    f, leaves, y = problem(131, 2, depth, 3, dtype)
    p, (_, grad) = neural.forward(f, leaves), neural.loss_backward(f, leaves, y, loss="tree")
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    for n in (0, 15, 64, 127, 130):
        one = np.ascontiguousarray(f[n : n + 1])
        assert neural.forward(one, leaves).tobytes() == p[n].tobytes()
        alone = neural.loss_backward(one, leaves, y[n : n + 1], loss="tree")[1][0] / 131
        np.testing.assert_allclose(alone, grad[n], rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("shape", [(40, 3, 4, 3), (300, 2, 9, 4), (1100, 1, 12, 2)])
def test_kept_routes_give_the_same_bits(dtype, shape):
    """Iterations of one call store mu; separate calls of one iteration do not."""
    f, leaves, y = problem(*shape, dtype)
    step = leaves
    for _ in range(4):
        step = neural.update_leaves(f, y, step, 1)
    assert neural.update_leaves(f, y, leaves, 4).tobytes() == step.tobytes()


def test_out_is_written_and_returned(backend, dtype):
    f, leaves, y = problem(20, 2, 3, 4, dtype)
    out = np.full_like(f, 7)
    loss, grad = neural.loss_backward(f, leaves, y)
    again, result = neural.loss_backward(f, leaves, y, out=out)
    assert result is out
    assert again == loss
    np.testing.assert_array_equal(out, grad)
    grad_p = np.ones((20, 4), dtype)
    assert neural.backward(grad_p, f, leaves, out=out) is out
    np.testing.assert_array_equal(out, neural.backward(grad_p, f, leaves))


def test_bad_out():
    frozen = np.empty_like(F)
    frozen.flags.writeable = False
    for out, error, remedy in (
        (F, ValueError, "copy"),
        (frozen, ValueError, "copy"),
        (np.empty((4, 2, 7)), ValueError, "agree"),
        (np.empty_like(F, np.float32), TypeError, "astype"),
        ([0.0], TypeError, "asarray"),
    ):
        raises(error, "out", remedy, lambda out=out: neural.loss_backward(F, LEAVES, Y, out=out))
        raises(error, "out", remedy, lambda out=out: neural.backward(np.ones((4, 3)), F, LEAVES, out=out))


# ------------------------------------------------------------------------ numbers near the largest


@pytest.mark.parametrize("sharing", [False, True])
def test_decisions_near_the_largest_number(backend, dtype, sharing):
    f, leaves, y = problem(40, 3, 3, 4, dtype)
    # The reference adds logarithms of a path in float64.
    size = (0.9 if dtype == np.float32 else 0.1) * float(np.finfo(dtype).max)
    f[:] = np.random.default_rng(0).choice([-size, size], size=f.shape)
    index = None
    if sharing:
        f = f.reshape(40, 21)
        index = np.random.default_rng(1).integers(0, 21, (3, 7)).astype(np.int32)
    found = [neural.route(f, index=index), neural.forward(f, leaves, index=index)]
    for loss in ("tree", "forest"):
        found += neural.loss_backward(f, leaves, y, index=index, loss=loss)
    found.append(neural.update_leaves(f, y, leaves, 3, index=index))
    assert all(np.isfinite(a).all() for a in found)
    mu = found[0]
    assert set(np.unique(mu)) == {0, 1}
    assert (mu.sum(axis=2) == 1).all()


def test_outputs_that_would_overflow_are_refused(backend, dtype):
    f, leaves, _ = problem(4, 3, 2, 2, dtype)
    largest = float(np.finfo(dtype).max)
    fits = np.full_like(leaves, largest / 13)
    assert np.isfinite(neural.forward(f, fits, task="regression")).all()
    with pytest.raises(ValueError, match="^leaves: expected numbers of at most.*divide the targets"):
        neural.forward(f, np.full_like(leaves, -largest / 2), task="regression")
    with hforest.unchecked(), np.errstate(over="ignore", invalid="ignore"):
        neural.forward(f, np.full_like(leaves, largest / 2), task="regression")


def test_gradients_up_to_the_limit_are_taken(backend, dtype):
    f, _, _ = problem(4, 3, 2, 2, dtype)
    leaves = np.ones((3, 4, 2), dtype)
    largest = np.finfo(dtype).max / dtype(64)
    grad_p = np.full((4, 2), largest / 2, dtype)
    assert np.isfinite(neural.backward(grad_p, f, leaves)).all()
    grad_p[1, 1] = -np.nextafter(grad_p[1, 1], dtype(np.inf))
    with pytest.raises(ValueError, match=f"^grad_p: .* at most {re.escape(f'{float(largest):.3g}')}, got"):
        neural.backward(grad_p, f, leaves)


@pytest.mark.parametrize(
    ("slope", "size", "name"), [(0.5, 1.0, "grad_p"), (1e-3, 0.5, "leaves"), (0.1, 0.1, "grad_p")]
)
def test_gradients_that_would_overflow_are_refused(backend, dtype, slope, size, name):
    f, leaves, _ = problem(4, 3, 2, 2, dtype)
    largest = float(np.finfo(dtype).max)
    grad_p = np.full((4, 2), slope * (largest if name == "grad_p" else 1e6), dtype)
    grad_p[0] *= -1
    leaves[:] = size * (largest if name == "leaves" or slope == size else 1)
    with pytest.raises(ValueError, match=f"^{name}: expected sums of grad_p . leaves.*divide"):
        neural.backward(grad_p, f, leaves)
    assert np.isfinite(neural.backward(grad_p / dtype(largest / 64), f, leaves / dtype(leaves.max()))).all()
