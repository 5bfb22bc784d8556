"""Normalisation, convolution, losses: known answers, central differences, bad input."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from conftest import slope

import hforest
from hforest import layers

pytestmark = pytest.mark.kernels


def tolerance(dtype):
    return {"rtol": 2e-5, "atol": 2e-5} if dtype == np.float32 else {"rtol": 1e-12, "atol": 1e-12}


# ----------------------------------------------------------------------------------- normalisation


@pytest.mark.parametrize("n", [0, 1, 5])
def test_normalize(dtype, n):
    rng = np.random.default_rng(0)
    x, mean = rng.normal(size=(n, 3)).astype(dtype), rng.normal(size=3).astype(dtype)
    var = np.array([4, 1, 0], dtype)
    z = layers.normalize(x, mean, var)
    assert (z.shape, z.dtype) == ((n, 3), dtype)
    np.testing.assert_allclose(z, (x - mean) / np.sqrt(var + dtype(1e-7)), **tolerance(dtype))
    grad_x = layers.normalize_backward(np.ones_like(x), var)
    np.testing.assert_allclose(grad_x, np.ones_like(x) / np.sqrt(var + dtype(1e-7)), **tolerance(dtype))


def test_normalize_gradient():
    rng = np.random.default_rng(1)
    x, mean, var = rng.normal(size=(4, 3)), rng.normal(size=3), rng.random(3) + 0.5
    g = rng.normal(size=x.shape)
    expected = slope(lambda: float((layers.normalize(x, mean, var) * g).sum()), x)
    np.testing.assert_allclose(layers.normalize_backward(g, var), expected, rtol=1e-8)


def test_running_statistics(dtype):
    rng = np.random.default_rng(2)
    mean, var = np.full(3, 7, dtype), np.full(3, 9, dtype)
    expected_mean, expected_var = 0.0, 0.0
    for step in range(150):
        x = (rng.normal(size=(6, 3)) * 2 + 1).astype(dtype)
        layers.normalize_update(x, mean, var, step)
        a = min(step / (step + 1), 0.99)
        expected_mean = a * expected_mean + (1 - a) * x.astype(float).mean(axis=0)
        expected_var = a * expected_var + (1 - a) * x.astype(float).var(axis=0, ddof=1)
    np.testing.assert_allclose(mean, expected_mean, **tolerance(dtype))
    np.testing.assert_allclose(var, expected_var, **tolerance(dtype))


def test_small_batches(dtype):
    mean, var = np.zeros(2, dtype), np.full(2, 3, dtype)
    layers.normalize_update(np.zeros((0, 2), dtype), mean, var, 0)
    assert (mean.tolist(), var.tolist()) == ([0, 0], [3, 3])
    layers.normalize_update(np.array([[2, 4]], dtype), mean, var, 1)  # one sample has no variance
    assert (mean.tolist(), var.tolist()) == ([1, 2], [3, 3])


def test_variance_of_data_far_from_zero():
    x = np.array([[1e4], [1e4 + 1]], np.float32)
    mean, var = np.zeros(1, np.float32), np.ones(1, np.float32)
    layers.normalize_update(x, mean, var, 0)
    assert var.tolist() == [0.5]


# ------------------------------------------------------------------------------------- convolution


def conv_by_loops(x, kernels, stride):
    n, _, height, width = x.shape
    n_kernels, _, kh, kw = kernels.shape
    y = np.empty((n, n_kernels, (height - kh) // stride + 1, (width - kw) // stride + 1))
    for at in np.ndindex(y.shape):
        i, j = at[2] * stride, at[3] * stride
        y[at] = (kernels[at[1]].astype(float) * x[at[0], :, i : i + kh, j : j + kw].astype(float)).sum()
    return y


@st.composite
def conv_problems(draw):
    kernel = [draw(st.integers(1, 4)) for _ in range(2)]
    image = [k + draw(st.integers(0, 5)) for k in kernel]
    n, channels, n_kernels = draw(st.integers(0, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    return (
        rng.normal(size=(n, channels, *image)),
        rng.normal(size=(n_kernels, channels, *kernel)),
        draw(st.integers(1, 4)),
    )


@hypothesis.given(problem=conv_problems(), few=st.booleans())
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_conv2d(dtype, problem, few):
    x, kernels, stride = problem[0].astype(dtype), problem[1].astype(dtype), problem[2]
    with pytest.MonkeyPatch.context() as patch:
        if few:
            patch.setattr(layers.convolution, "_CHUNK", 1)  # one sample at a time
        y = layers.conv2d(x, kernels, stride)
        grad_x, grad_kernels = layers.conv2d_backward(np.ones_like(y), x, kernels, stride)
    expected = conv_by_loops(x, kernels, stride)
    assert (y.shape, y.dtype, y.flags.c_contiguous) == (expected.shape, dtype, True)
    np.testing.assert_allclose(y, expected, **tolerance(dtype))
    assert (grad_x.shape, grad_kernels.shape) == (x.shape, kernels.shape)
    assert grad_x.dtype == grad_kernels.dtype == dtype
    # y is linear in both: <grad_x, x> = <grad_kernels, kernels> = <1, y>.
    total = expected.sum()
    close = {"rel": 1e-3, "abs": 1e-3} if dtype == np.float32 else {"rel": 1e-9, "abs": 1e-9}
    assert (grad_x * x).sum(dtype=float) == pytest.approx(total, **close)
    assert (grad_kernels * kernels).sum(dtype=float) == pytest.approx(total, **close)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_conv2d_gradients(stride):
    rng = np.random.default_rng(3)
    x, kernels = rng.normal(size=(2, 2, 5, 6)), rng.normal(size=(3, 2, 2, 3))
    g = rng.normal(size=layers.conv2d(x, kernels, stride).shape)

    def loss():
        return float((layers.conv2d(x, kernels, stride) * g).sum())

    grad_x, grad_kernels = layers.conv2d_backward(g, x, kernels, stride)
    np.testing.assert_allclose(grad_x, slope(loss, x), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(grad_kernels, slope(loss, kernels), rtol=1e-7, atol=1e-9)


def test_conv2d_without_channels(dtype):
    rng = np.random.default_rng(4)
    x, kernels = rng.normal(size=(3, 28, 28)).astype(dtype), rng.normal(size=(8, 5, 5)).astype(dtype)
    y = layers.conv2d(x, kernels, 3)
    assert y.shape == (3, 8, 8, 8)
    assert y.tobytes() == layers.conv2d(x[:, None], kernels[:, None], 3).tobytes()
    grad_x, grad_kernels = layers.conv2d_backward(y, x, kernels, 3)
    assert (grad_x.shape, grad_kernels.shape) == (x.shape, kernels.shape)


# ------------------------------------------------------------------------------------------ losses


def test_softmax_by_hand(dtype):
    scores = np.log(np.array([[1, 1, 2], [8, 1, 1]], dtype))
    loss, grad = layers.softmax_loss(scores, np.array([2, 1], np.int32))
    assert isinstance(loss, float)
    assert loss == pytest.approx((np.log(2) + np.log(10)) / 2, rel=1e-6)
    expected = np.array([[0.25, 0.25, -0.5], [0.8, -0.9, 0.1]]) / 2
    np.testing.assert_allclose(grad, expected, rtol=1e-6)
    assert grad.dtype == dtype


@pytest.mark.parametrize(
    ("n", "n_classes"), [(1, 1), (3, 7), (5, 8), (40, 17), (9, 129), (4, 1000), (3300, 10)]
)
@pytest.mark.parametrize("scale", [1, 1e30])
def test_softmax_of_the_reference_and_in_numpy(n, n_classes, scale, dtype):
    rng = np.random.default_rng(n)
    scores, y = (scale * rng.normal(size=(n, n_classes))).astype(dtype), rng.integers(0, n_classes, n)
    loss, grad = layers.softmax_loss(scores, y)
    with hforest.using("reference"):
        want_loss, want = layers.softmax_loss(scores, y)
    assert loss == want_loss
    assert grad.tobytes() == want.tobytes()
    shifted = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
    p = np.exp(shifted)
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(n), y] -= 1
    np.testing.assert_allclose(grad, p / n, rtol=1e-6 if dtype == np.float32 else 1e-14, atol=2e-16)


def test_labels_outside_are_refused_without_checks():
    scores, y = np.zeros((2, 3)), np.array([0, 3], np.int32)
    for fault in (3, -1):
        y[1] = fault
        with hforest.unchecked(), pytest.raises(IndexError, match="y: expected labels 0 to n_classes - 1"):
            layers.softmax_loss(scores, y)


def test_softmax_of_huge_scores(dtype):
    loss, grad = layers.softmax_loss(np.array([[1e30, 0], [-1e30, 0]], dtype), np.array([0, 1], np.int32))
    assert loss == 0
    assert not grad.any()


@hypothesis.given(n=st.integers(1, 5), k=st.integers(1, 5), seed=st.integers(0, 2**16))
def test_softmax_gradient(n, k, seed):
    rng = np.random.default_rng(seed)
    scores, y = rng.normal(size=(n, k)), rng.integers(0, k, n).astype(np.int32)
    _, grad = layers.softmax_loss(scores, y)
    np.testing.assert_allclose(
        grad, slope(lambda: layers.softmax_loss(scores, y)[0], scores), rtol=1e-6, atol=1e-9
    )


@hypothesis.given(
    n=st.integers(1, 4), outputs=st.lists(st.integers(0, 3), max_size=2), seed=st.integers(0, 2**16)
)
def test_squared_gradient(n, outputs, seed):
    rng = np.random.default_rng(seed)
    p, y = rng.normal(size=(n, *outputs)), rng.normal(size=(n, *outputs))
    loss, grad = layers.squared_loss(p, y)
    assert loss == pytest.approx(((p - y) ** 2).sum() / 2 / n)
    np.testing.assert_allclose(grad, slope(lambda: layers.squared_loss(p, y)[0], p), rtol=1e-6, atol=1e-9)


def test_losses_of_no_samples(dtype):
    loss, grad = layers.softmax_loss(np.empty((0, 3), dtype), np.empty(0, np.int32))
    assert (loss, grad.shape, grad.dtype) == (0.0, (0, 3), dtype)
    loss, grad = layers.squared_loss(np.empty((0, 3), dtype), np.empty((0, 3), dtype))
    assert (loss, grad.shape, grad.dtype) == (0.0, (0, 3), dtype)


# --------------------------------------------------------------------------------------- bad input

X = np.ones((4, 3))
MEAN, VAR = np.zeros(3), np.ones(3)
IMAGES, KERNELS = np.ones((2, 1, 6, 6)), np.ones((3, 1, 2, 2))
LABELS = np.zeros(4, np.int32)
FROZEN = np.zeros(3)
FROZEN.flags.writeable = False
NAN = np.full((4, 3), np.nan)

BAD = [
    (layers.normalize, (X.tolist(), MEAN, VAR), TypeError, "x", "numpy.asarray"),
    (layers.normalize, (X.astype(int), MEAN, VAR), TypeError, "x", "astype"),
    (layers.normalize, (X, MEAN.astype(np.float32), VAR), TypeError, "mean", "astype"),
    (layers.normalize, (X, MEAN, np.ones(4)), ValueError, "var", r"\(n_features,\) = \(3,\)"),
    (layers.normalize, (np.ones((3, 4)).T, MEAN, VAR), ValueError, "x", "ascontiguousarray"),
    (layers.normalize, (NAN, MEAN, VAR), ValueError, "x", "impute"),
    (layers.normalize_backward, (X, np.ones((1, 3))), ValueError, "var", "sizes agree"),
    (layers.normalize_update, (X, MEAN, VAR, -1), ValueError, "step", "range"),
    (layers.normalize_update, (X, MEAN, VAR, 0.5), TypeError, "step", "integer"),
    (layers.normalize_update, (X, FROZEN, VAR, 0), ValueError, "mean", "copy"),
    (
        layers.normalize_update,
        (X, MEAN, MEAN, 0),
        ValueError,
        "mean: expected memory that no other argument uses",
        "copy",
    ),
    (layers.normalize_update, (NAN, MEAN, VAR, 0), ValueError, "x", "impute"),
    (layers.conv2d, (IMAGES, np.ones((3, 1, 7, 2)), 1), ValueError, "kernels", "numpy.pad"),
    (layers.conv2d, (IMAGES, np.ones((3, 2, 2, 2)), 1), ValueError, "kernels", "sizes agree"),
    (layers.conv2d, (IMAGES, np.ones((3, 2, 2)), 1), ValueError, "kernels", "sizes agree"),
    (layers.conv2d, (np.ones((2, 6)), KERNELS, 1), ValueError, "x", "sizes agree"),
    (layers.conv2d, (IMAGES, KERNELS.astype(np.float32), 1), TypeError, "kernels", "astype"),
    (layers.conv2d, (IMAGES, KERNELS, 0), ValueError, "stride", "range"),
    (layers.conv2d, (IMAGES, np.ones((0, 1, 2, 2)), 1), ValueError, "n_kernels", "n_samples may be 0"),
    (layers.conv2d, (IMAGES * np.inf, KERNELS, 1), ValueError, "x", "impute"),
    (layers.conv2d_backward, (np.ones((2, 3, 4, 4)), IMAGES, KERNELS, 1), ValueError, "grad_y", "agree"),
    (
        layers.softmax_loss,
        (X, LABELS.astype(float)),
        TypeError,
        "y",
        r"numpy.unique\(y, return_inverse=True\)",
    ),
    (layers.softmax_loss, (X, list("abca")), TypeError, "y", r"numpy.unique\(y, return_inverse=True\)"),
    (layers.softmax_loss, (X, LABELS + np.int32(3)), IndexError, "y", "n_classes = 3"),
    (layers.softmax_loss, (X, LABELS.astype(np.int64) + 2**32), IndexError, "y", "n_classes = 3"),
    (layers.softmax_loss, (X, LABELS - np.int32(1)), IndexError, "y", "at least 0, got -1"),
    (layers.softmax_loss, (X, LABELS[:3]), ValueError, "y", r"\(n_samples,\) = \(4,\)"),
    (layers.softmax_loss, (np.ones((4, 0)), LABELS), ValueError, "n_classes", "at least 1"),
    (layers.softmax_loss, (NAN, LABELS), ValueError, "scores", "impute"),
    (layers.squared_loss, (X, np.ones((4, 1))), ValueError, "y", "sizes agree"),
    (layers.squared_loss, (X, X.astype(np.float32)), TypeError, "y", "astype"),
    (layers.squared_loss, (X, NAN), ValueError, "y", "impute"),
]


@pytest.mark.parametrize(("function", "args", "error", "name", "remedy"), BAD)
def test_bad_input(function, args, error, name, remedy):
    with pytest.raises(error, match=f"(?s)^{name}.*{remedy}"):
        function(*args)


LARGE = [(np.float32, 3e38), (np.float64, 1.7e308)]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("dtype", "big"), LARGE)
def test_numbers_near_the_largest(dtype, big):
    x, one = np.array([[big, big], [-big, big]], dtype), np.ones(2, dtype)
    assert np.isinf(layers.conv2d(x[None], np.ones((1, 1, 2), dtype), 1)[0, 0, 0, 0])
    assert np.isnan(layers.conv2d(x[None], np.full((1, 2, 1), np.inf, dtype), 1)).any()
    for grad in layers.conv2d_backward(
        x[None, None, :1, :1], x[None, :1, :1], np.full((1, 1, 1), big, dtype), 1
    ):
        assert np.isinf(grad).all()
    assert np.isinf(layers.normalize(x, -x[0], one)).any()
    assert np.isinf(layers.normalize(x, 0 * one, 0 * one)).all()
    assert np.isinf(layers.normalize_backward(x, 0 * one)).all()
    loss, grad = layers.squared_loss(x, -x)
    assert loss == np.inf or dtype == np.float32
    assert np.isinf(layers.squared_loss(x[:1], -x[:1])[1]).all()
    loss, grad = layers.softmax_loss(x, np.array([0, 0]))
    assert loss == np.inf or dtype == np.float32
    np.testing.assert_array_equal(grad, [[-0.25, 0.25], [-0.5, 0.5]])
    mean, var = 0 * one, one.copy()
    layers.normalize_update(x, mean, var, 0)
    assert var[0] == np.inf
    assert mean[0] == 0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [-1.0, -np.inf, np.nan, -1e-300])
def test_variances_below_0(value):
    mean, var = MEAN.copy(), np.array([1.0, value, 1.0])
    calls = (
        lambda: layers.normalize(X, mean, var),
        lambda: layers.normalize_update(X, mean, var, 3),
        lambda: layers.normalize_backward(X, var),
    )
    for call in calls:
        with pytest.raises(
            ValueError, match=rf"^var: expected variances of at least 0, got {value} at index 1; "
        ):
            call()
    assert not mean.any()
    with hforest.unchecked():
        assert np.isnan(layers.normalize(X, mean, var)[:, 1]).all() or value == -1e-300


def test_unchecked_lets_nan_through():
    with hforest.unchecked():
        assert np.isnan(layers.normalize(NAN, MEAN, VAR)).all()
