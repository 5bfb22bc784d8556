"""CO2: the bound's inequalities, gradients, stumps, grown forests, the search, bad input."""

from functools import partial

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from conftest import assert_same_bits
from growers import assert_all_same, on_threads

import hforest
from hforest import co2, growth, tree
from hforest.co2 import StumpSettings
from hforest.demo import load_digits

pytestmark = pytest.mark.kernels

LOSSES = ("log", "squared")
QUICK = {"stump": StumpSettings(batch_size=10, min_steps=5), "max_rounds": 4, "lr": 0.1}


def problem(n, n_features, n_outputs=3, loss="log", dtype=np.float64, seed=0):
    """x, y, w, theta0, theta1: with ties (small whole numbers) among the features."""
    rng = np.random.default_rng(seed)
    x = np.where(rng.random((n, n_features)) < 0.3, rng.integers(-1, 2), rng.normal(size=(n, n_features)))
    y = (
        rng.integers(0, n_outputs, n, np.int32)
        if loss == "log"
        else rng.normal(size=(n, n_outputs)).astype(dtype)
    )
    w, *theta = rng.normal(size=n_features), *rng.normal(size=(2, n_outputs))
    return x.astype(dtype), y, w.astype(dtype), *(a.astype(dtype) for a in theta)


def losses(theta, y):
    """Returns eq. 3 or 4 for each sample, from the definition."""
    if y.ndim == 2:
        return ((y - theta) ** 2).sum(axis=1)
    return np.log(np.exp(theta - theta.max()).sum()) + theta.max() - theta[y]


def empirical(x, y, w, theta0, theta1):
    """Eq 2."""
    return np.where(x @ w < 0, losses(theta0, y), losses(theta1, y)).sum()


def by_formula(x, y, w, theta0, theta1, weights=1.0):
    """Eq 10."""
    p = x @ w
    return (weights * (np.maximum(losses(theta0, y) - p, losses(theta1, y) + p) - abs(p))).sum()


def learned(loss):
    """Arguments of `fit_stump` and `fit_oc1` for a problem."""
    return {"n_classes": 3} if loss == "log" else {"task": "regression"}


# ---------------------------------------------------------------------------------------- surrogate


def test_surrogate_by_hand(backend, dtype):
    # One sample at w.x = 1 with losses log 2 on both sides: max(log 2 - 1, log 2 + 1) - 1.
    x, y = np.array([[2.0]], dtype), np.array([1], np.int32)
    theta = np.zeros(2, dtype)
    value = co2.surrogate(x, y, np.array([0.5], dtype), theta, theta)
    assert value == pytest.approx(np.log(2), rel=1e-14)
    # On the wrong side of a good split it is larger than the loss there by twice the margin.
    targets = np.array([[3.0]], dtype)
    value = co2.surrogate(
        x, targets, np.array([0.5], dtype), np.array([3.0], dtype), np.array([1.0], dtype), loss="squared"
    )
    assert value == max(0 - 1, 4 + 1) - 1


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (7, 15), (40, 16), (33, 50)])
def test_surrogate_is_the_formula(backend, dtype, loss, shape):
    arguments = problem(*shape, loss=loss, dtype=dtype)
    weights = np.random.default_rng(1).integers(0, 4, shape[0]).astype(dtype)
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in (*arguments, weights)]
    for given_weights, factor in ((None, 1.0), (weights, wide[-1])):
        got = co2.surrogate(*arguments, loss=loss, sample_weight=given_weights)
        want = by_formula(*wide[:5], factor)
        assert got == pytest.approx(want, rel=200 * float(np.finfo(dtype).eps), abs=1e-12)


@hypothesis.given(
    shape=st.tuples(st.integers(1, 30), st.integers(1, 20)),
    loss=st.sampled_from(LOSSES),
    scale=st.sampled_from([1e-3, 0.1, 1.0, 30.0, 1e4]),
    seed=st.integers(0, 2**32 - 1),
)
def test_surrogate_bounds_the_loss_and_tightens(shape, loss, scale, seed):
    x, y, w, theta0, theta1 = problem(*shape, loss=loss, seed=seed)
    w *= scale
    value = co2.surrogate(x, y, w, theta0, theta1, loss=loss)
    loss_there = empirical(x, y, w, theta0, theta1)
    slack = 1e-12 * (abs(value) + abs(x @ w).sum() + 1)
    assert value >= loss_there - slack  # eq. 5
    before = value
    for a in (1.5, 7.0, 100.0):  # eq. 8
        larger = co2.surrogate(x, y, a * w, theta0, theta1, loss=loss)
        assert larger <= before + a * slack
        before = larger


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_is_central_differences(backend, loss):
    checked = 0
    for seed in range(6):
        x, y, w, theta0, theta1 = problem(1, 4, loss=loss, seed=seed)
        p = x @ w
        gap = losses(theta0, y) - losses(theta1, y) - 2 * p
        if min(abs(p).min(), abs(gap).min()) < 1e-2:
            continue  # near a point without a derivative
        checked += 1
        grads = co2.surrogate_grad(x, y, w, theta0, theta1, loss=loss)
        for at, grad in zip((w, theta0, theta1), grads, strict=True):
            for j in range(len(at)):
                kept, step, values = at[j], 1e-6, []
                for sign in (1, -1):
                    at[j] = kept + sign * step
                    values.append(by_formula(x, y, w, theta0, theta1))
                at[j] = kept
                assert grad[j] == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-6)
    assert checked >= 3


def test_gradient_at_kinks(backend, dtype):
    # w.x = 0 and equal losses: the left side takes it, and sgn(0) = 0.
    x, y = np.array([[1.0, 0.0]], dtype), np.array([0], np.int32)
    w, theta = np.array([0.0, 1.0], dtype), np.zeros(2, dtype)
    grad_w, grad0, grad1 = co2.surrogate_grad(x, y, w, theta, theta)
    np.testing.assert_array_equal(grad_w, [-1, 0])
    np.testing.assert_allclose(grad0, [-0.5, 0.5], rtol=1e-6)
    np.testing.assert_array_equal(grad1, [0, 0])


@pytest.mark.parametrize(
    ("shape", "loss"),
    [(shape, loss) for shape in ((0, 2), (1, 1), (5, 16), (21, 17)) for loss in LOSSES]
    + [((2100, 2), loss) for loss in LOSSES],  # three chunks
)
def test_surrogates_equal_the_reference(fast_backend, dtype, loss, shape, reference):
    arguments = problem(*shape, loss=loss, dtype=dtype)
    there = [fast_backend.array(a) for a in arguments]
    for weights in (None, np.random.default_rng(2).uniform(0, 3, shape[0])):
        options = {"loss": loss, "sample_weight": weights}
        options_there = options | ({} if weights is None else {"sample_weight": fast_backend.array(weights)})
        assert_same_bits(
            [co2.surrogate(*there, **options_there)], [reference(co2.surrogate, *arguments, **options)]
        )
        got = co2.surrogate_grad(*there, **options_there)
        assert_same_bits(map_numpy(fast_backend, got), reference(co2.surrogate_grad, *arguments, **options))


@pytest.mark.parametrize("loss", LOSSES)
def test_many_chunks_are_the_formula_on_any_number_of_threads(threads, dtype, loss):
    n = 70_000  # more chunks than have sums at a time
    x, y, w, *theta = problem(n, 4, loss=loss, dtype=dtype)

    def bound():
        value = co2.surrogate(x, y, w, *theta, loss=loss)
        return [np.array(value), *co2.surrogate_grad(x, y, w, *theta, loss=loss)]

    results = on_threads(threads, bound)
    assert_all_same(results)
    value, *slopes = results[0]
    exact = [a if a.dtype.kind == "i" else a.astype(np.float64) for a in (x, y, w, *theta)]
    assert value == pytest.approx(by_formula(*exact), rel=1e-5)
    halves = [slice(0, n // 2), slice(n // 2, n)]
    sums = [co2.surrogate_grad(x[half], y[half], w, *theta, loss=loss) for half in halves]
    for slope, left, right in zip(slopes, *sums, strict=True):
        np.testing.assert_allclose(slope, left + right, rtol=1e-4, atol=1e-4 * n)


def map_numpy(backend, arrays):
    return [backend.numpy(a) for a in arrays]


# ------------------------------------------------------------------------------ losses of the caller


def _log_value(theta, y):
    return losses(theta, y)


def _log_gradient(theta, y):
    p = np.exp(theta - theta.max())
    return p / p.sum() - np.eye(len(theta))[y]


def _squared_value(theta, y):
    return ((theta - y) ** 2).sum(axis=1)


def _squared_gradient(theta, y):
    return 2 * (theta - y)


PAIRS = {"log": (_log_value, _log_gradient), "squared": (_squared_value, _squared_gradient)}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_pair_of_functions_is_the_loss_of_that_name(dtype, loss):
    x, y, w, theta0, theta1 = problem(50, 4, 3, loss, dtype)
    weights = np.random.default_rng(1).integers(0, 3, 50).astype(dtype)
    at, tolerance = {"sample_weight": weights}, 1e-5 if dtype == np.float32 else 1e-12
    value = co2.surrogate(x, y, w, theta0, theta1, loss=PAIRS[loss], **at)
    assert value == pytest.approx(co2.surrogate(x, y, w, theta0, theta1, loss=loss, **at), rel=tolerance)
    got = co2.surrogate_grad(x, y, w, theta0, theta1, loss=PAIRS[loss], **at)
    want = co2.surrogate_grad(x, y, w, theta0, theta1, loss=loss, **at)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("convex_rounds", [0, 1])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_stump_of_a_pair_is_the_stump_of_that_name(loss, convex_rounds):
    x, y, w, *_ = problem(50, 4, 3, loss)
    weights = np.random.default_rng(1).integers(0, 3, 50)
    stump = StumpSettings(batch_size=10, min_steps=5, convex_rounds=convex_rounds)
    settings = {"sample_weight": weights, "stump": stump, "lr": 0.1, "rng": 3}
    start = co2.fit_stump(x, y, w, max_rounds=0, **settings, **learned(loss))[1:]
    got, want = [], []
    fitted = co2.fit_stump(x, y, w, loss=PAIRS[loss], theta=start, max_rounds=6, history=got, **settings)
    named = co2.fit_stump(x, y, w, max_rounds=6, history=want, **settings, **learned(loss))
    assert len(got) == len(want) > 3
    np.testing.assert_allclose(got, want, rtol=1e-9)
    for a, b in zip(fitted, named, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


def test_a_pair_takes_rows_of_any_kind():
    """The functions receive rows of y unchanged: here pairs of strings."""
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=(200, 2)), -np.ones(200)])
    side = x[:, 0] + x[:, 1] > 0
    y = np.where(side[:, None], ["on", "off"], ["off", "on"])

    def gap(theta, rows):
        return np.where(rows == "on", 1, -1) - theta

    loss = (
        lambda theta, rows: (gap(theta, rows) ** 2).sum(axis=1),
        lambda theta, rows: -2 * gap(theta, rows),
    )
    start = np.array([1.0, 0, 0])
    w, *theta = co2.fit_stump(x, y, start, loss=loss, theta=np.zeros((2, 2)), lr=0.1, rng=0)
    assert ((x @ w >= 0) == side).mean() > 0.95
    assert np.array_equal(np.sign(theta), [[-1, 1], [1, -1]])
    zeros = np.zeros(2)
    assert co2.surrogate(x, y, start, zeros, zeros, loss=loss) == pytest.approx(2 * len(x))
    assert np.array_equal(start, [1, 0, 0])


def bad_pairs():
    x, y, w, theta0, theta1 = problem(10, 3)
    log, start = PAIRS["log"], np.zeros((2, 3))

    def changed(k, function):
        return {"loss": tuple(function if i == k else a for i, a in enumerate(log))}

    for name, more, error, word in (
        ("alone", {"loss": log[0]}, TypeError, "loss"),
        ("a list", {"loss": list(log)}, TypeError, "loss"),
        ("three", {"loss": (*log, log[0])}, TypeError, "loss"),
        ("a number", {"loss": (log[0], 1)}, TypeError, "loss"),
        ("of one argument", changed(1, lambda theta: theta), TypeError, r"loss\[1\]"),
        ("sum", changed(0, lambda theta, y: 1.0), ValueError, r"loss\[0\]"),
        ("text", changed(0, lambda theta, y: "no"), TypeError, r"loss\[0\]"),
        ("nan", changed(0, lambda theta, y: np.full(len(y), np.nan)), ValueError, r"loss\[0\]"),
        ("large", changed(1, lambda theta, y: np.full((len(y), 3), 2e100)), ValueError, r"loss\[1\]"),
        ("gradient of a sum", changed(1, lambda theta, y: theta), ValueError, r"loss\[1\]"),
        ("rows", {"loss": log, "y": y[:9]}, ValueError, "y"),
    ):
        at = {"x": x, "y": y, "w": w} | more
        yield (
            f"gradient, {name}",
            partial(co2.surrogate_grad, **at, theta0=theta0, theta1=theta1),
            error,
            word,
        )
        yield f"stump, {name}", partial(co2.fit_stump, **at, theta=start), error, word
    for name, more, error, word in (
        ("no theta", {}, ValueError, "theta"),
        ("theta of one side", {"theta": start[0]}, ValueError, "theta"),
        ("theta without outputs", {"theta": start[:, :0]}, ValueError, "theta"),
        ("theta beyond", {"theta": start + 1e16}, ValueError, "theta"),
        ("theta alone", {"theta": start, "loss": None}, ValueError, "theta"),
        ("task", {"theta": start, "task": "regression"}, ValueError, "task"),
        ("classes", {"theta": start, "n_classes": 3}, ValueError, "n_classes"),
    ):
        yield name, lambda a={"loss": log} | more: co2.fit_stump(x, y, w, **a), error, word


@pytest.mark.parametrize(
    ("call", "error", "word"), [pytest.param(*case[1:], id=case[0]) for case in bad_pairs()]
)
def test_bad_pairs(call, error, word):
    with pytest.raises(error, match=rf"^{word}: expected .*, got .*; "):
        call()


# ------------------------------------------------------------------------------------------- stumps


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", [(1, 1), (9, 4), (23, 18)])
@pytest.mark.parametrize("whole", [True, False])
def test_stump_equals_the_reference(fast_backend, dtype, loss, shape, whole, reference):
    x, y, w, _, _ = problem(*shape, loss=loss, dtype=dtype)
    weights = np.random.default_rng(2).integers(0, 3, shape[0]).astype(dtype) + (shape[0] == 1)
    if not whole:
        weights = np.random.default_rng(2).uniform(0.1, 3, shape[0])
    options = {**learned(loss), "rng": 3, "lr": 0.1, "max_rounds": 2}
    options["stump"] = StumpSettings(batch_size=8, min_steps=5, convex_rounds=1)
    there = [fast_backend.array(a) for a in (x, y, w)]
    got = co2.fit_stump(*there, sample_weight=fast_backend.array(weights), **options)
    assert_same_bits(
        map_numpy(fast_backend, got), reference(co2.fit_stump, x, y, w, sample_weight=weights, **options)
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_stump_of_several_chunks_equals_the_reference(fast_backend, dtype, loss, reference):
    x, y, w, _, _ = problem(2100, 2, loss=loss, dtype=dtype)
    weights = np.random.default_rng(2).uniform(0.1, 3, len(x))
    options = {**learned(loss), "rng": 3, "lr": 0.1, "max_rounds": 1}
    options["stump"] = StumpSettings(tau=1, batch_size=1500, min_steps=1)  # a step of two chunks
    there = [fast_backend.array(a) for a in (x, y, w)]
    got = co2.fit_stump(*there, sample_weight=fast_backend.array(weights), **options)
    assert_same_bits(
        map_numpy(fast_backend, got), reference(co2.fit_stump, x, y, w, sample_weight=weights, **options)
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("batch_size", [100, 5000])
def test_threads_share_a_large_stump_with_equal_bits(threads, dtype, loss, batch_size):
    x, y, w, _, _ = problem(70_000, 27, loss=loss, dtype=dtype)
    stump = StumpSettings(tau=1, batch_size=batch_size, min_steps=1)
    history = []

    def fit():
        history.append([])
        options = {**learned(loss), "lr": 0.1, "max_rounds": 2, "stump": stump, "history": history[-1]}
        return co2.fit_stump(x, y, w, rng=0, **options)

    assert_all_same(on_threads(threads, fit))
    assert history[0] == history[1] == history[2]
    assert len(history[0]) == 3


@hypothesis.given(
    shape=st.tuples(st.integers(1, 60), st.integers(1, 20)),
    loss=st.sampled_from(LOSSES),
    nu=st.sampled_from([1e-3, 0.1, 1.0, 43.0, 1e6]),
    lr=st.sampled_from([1e-3, 0.1, 10.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_stump_stays_in_the_ball_and_does_not_lose(shape, loss, nu, lr, seed):
    for dtype in (np.float32, np.float64):
        x, y, w, _, _ = problem(*shape, loss=loss, dtype=dtype, seed=seed)
        history: list[float] = []
        settings = {
            **learned(loss),
            "nu": nu,
            "lr": lr,
            "stump": StumpSettings(batch_size=16),
            "max_rounds": 5,
        }
        got, theta0, theta1 = co2.fit_stump(x, y, w, **settings, rng=0, history=history)
        assert (got.astype(np.float64) ** 2).sum() <= nu
        assert np.isfinite(got).all()
        assert np.isfinite(theta0).all()
        assert np.isfinite(theta1).all()
        value = co2.surrogate(x, y, got, theta0, theta1, loss=loss)
        assert value == pytest.approx(min(history), rel=1e-4, abs=1e-4)
        assert min(history) <= history[0]
        assert len(history) <= 6


@pytest.mark.parametrize(("convex_rounds", "entries"), [(0, 4), (2, 6)])
def test_rounds_without_progress_lower_the_learning_rate_three_times(
    backend, reference, dtype, convex_rounds, entries
):
    # A tolerance of 1: no round is progress. The rate falls after each round that is not convex.
    x, y, w, _, _ = problem(30, 4, dtype=dtype, seed=0)
    stump = StumpSettings(patience=0, tolerance=1.0, convex_rounds=convex_rounds)
    settings = {"n_classes": int(y.max()) + 1, "lr": 0.1, "max_rounds": 8, "stump": stump, "rng": 0}
    got: list[float] = []
    want: list[float] = []
    co2.fit_stump(x, y, w, **settings, history=got)
    reference(co2.fit_stump, x, y, w, **settings, history=want)
    assert got == want
    assert len(got) == entries
    same: list[float] = []
    co2.fit_stump(x, y, w, **settings | {"stump": stump._replace(decay=1.0)}, history=same)
    n_before = convex_rounds + 2  # the start, and rounds up to the first that lowers the rate
    assert same[:n_before] == got[:n_before]
    assert same[n_before] != got[n_before]


def test_stump_finds_an_oblique_split(backend, dtype):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(24, 2)), -np.ones((24, 1))], axis=1).astype(dtype)
    y = (x[:, 0] + x[:, 1] > 0.2).astype(np.int32)
    start = np.array([1, 0, 0], dtype)
    w, theta0, theta1 = co2.fit_stump(x, y, start, lr=0.3, max_rounds=2, rng=0)
    assert ((x @ w >= 0) == y).mean() > 0.85 > ((x @ start >= 0) == y).mean()
    assert theta0[0] > theta0[1]
    assert theta1[1] > theta1[0]
    np.testing.assert_array_equal(start, [1, 0, 0])


def test_convex_rounds_leave_a_flat_start():
    # Features of two values: every sample is far from the first split, no slope is left, and w stays.
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.integers(0, 2, (2000, 15)) - 0.5, -np.ones((2000, 1))], axis=1)
    y = (x[:, :15].sum(axis=1) + rng.normal(size=2000) > 0).astype(np.int32)
    start = np.eye(16)[0]
    options = {"nu": 1.0, "lr": 0.01, "rng": 0}
    flat, *_ = co2.fit_stump(x, y, start, **options)
    np.testing.assert_array_equal(flat, start)
    w, *_ = co2.fit_stump(x, y, start, stump=StumpSettings(convex_rounds=1), **options)
    assert impurity(w, x, y) < 0.75 * impurity(start, x, y)


def test_stump_of_one_class(backend):
    x, y = np.random.default_rng(0).normal(size=(12, 3)), np.ones(12, np.int32)
    w, theta0, theta1 = co2.fit_stump(
        x, y, np.ones(3), n_classes=3, max_rounds=1, stump=StumpSettings(min_steps=5), rng=0
    )
    assert theta0.argmax() == theta1.argmax() == 1
    assert np.isfinite([*w, *theta0, *theta1]).all()


def test_no_rounds_is_the_start(backend, dtype):
    x, y, w, _, _ = problem(20, 4, dtype=dtype)
    got, theta0, theta1 = co2.fit_stump(
        x, y, w, n_classes=3, nu=1e6, max_rounds=0, stump=StumpSettings(smooth=1.0)
    )
    np.testing.assert_array_equal(got, w)
    right = x @ w >= 0
    for theta, side in ((theta0, ~right), (theta1, right)):
        counts = np.bincount(y[side], minlength=3) + 1.0
        np.testing.assert_allclose(theta, np.log(counts / counts.sum()), rtol=1e-6)


def test_weights_are_multiplicities(dtype):
    # The same samples in one batch: a weight of 2 is the sample twice, up to the order of sums.
    x, y, w, _, _ = problem(15, 3, dtype=dtype)
    weights = np.random.default_rng(0).integers(1, 4, 15)
    often = np.repeat(np.arange(15), weights)
    options = {"n_classes": 3, "lr": 0.05, "max_rounds": 3, "stump": StumpSettings(min_steps=3), "rng": 0}
    one = co2.fit_stump(x, y, w, sample_weight=weights.astype(dtype), **options)
    other = co2.fit_stump(x[often], y[often], w, **options)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3 if dtype == np.float32 else 1e-9)


def test_samples_without_weight_count_for_nothing(backend):
    x, y, w, _, _ = problem(15, 3)
    weights = (np.arange(15) % 3 > 0).astype(float)
    heavy, options = weights > 0, {**QUICK, "max_rounds": 1, "n_classes": 3, "rng": 0}
    assert_same_bits(
        co2.fit_stump(x, y, w, sample_weight=weights, **options),
        co2.fit_stump(x[heavy], y[heavy], w, **options),
    )


# ---------------------------------------------------------------------------------------------- OC1


def impurity(w, x, y, weights=None):
    """Weighted entropy of the sides, in bits, from the definition."""
    right, total = x.astype(np.float64) @ w.astype(np.float64) >= 0, 0.0
    weights = np.ones(len(x)) if weights is None else weights
    for side in (right, ~right):
        counts = np.bincount(y[side], weights[side])
        share = counts[counts > 0] / counts.sum()
        total -= counts.sum() * (share * np.log2(share)).sum()
    return total


@pytest.mark.parametrize("loss", LOSSES)
def test_oc1_equals_the_reference(dtype, loss, reference):
    x, y, w, _, _ = problem(25, 4, loss=loss, dtype=dtype)
    weights = np.random.default_rng(2).integers(0, 3, 25).astype(dtype)
    for options in ({"restarts": 2}, {"sample_weight": weights, "jumps": 2}, {"min_samples_leaf": 4},
                    {"sample_weight": weights, "min_weight_fraction_leaf": 0.4}):  # fmt: skip
        call = {**learned(loss), "rng": 1, **options}
        assert_same_bits([co2.fit_oc1(x, y, w, **call)], [reference(co2.fit_oc1, x, y, w, **call)])


@pytest.mark.parametrize("loss", LOSSES)
def test_threads_share_a_large_search_with_equal_bits(threads, dtype, loss):
    x, y, w, _, _ = problem(9000, 5, loss=loss, dtype=dtype)
    options = {**learned(loss), "jumps": 3, "restarts": 1, "rng": 1}
    assert_all_same(on_threads(threads, lambda: [co2.fit_oc1(x, y, w, **options)]))


@pytest.mark.parametrize("criterion", ["entropy", "gini"])
def test_oc1_forest_equals_the_reference(dtype, criterion, reference):
    x, y, _, _, _ = problem(30, 4, dtype=dtype)
    call = {"splitter": "oc1", "criterion": criterion, "jumps": 2, "rng": 5}
    for least in (0.0, 0.2):
        call["min_weight_fraction_leaf"] = least
        assert_same_bits(co2.grow(x, y, 2, **call), reference(co2.grow, x, y, 2, **call))


def test_oc1_searches_among_sides_of_a_least_weight():
    x = np.random.default_rng(0).normal(size=(200, 2))
    y = (x[:, 0] + x[:, 1] > 2).astype(np.int32)  # 7 %
    settings = {"bootstrap": False, "max_depth": 1, "splitter": "oc1", "rng": 0}
    free, least = (co2.grow(x, y, 1, min_weight_fraction_leaf=share, **settings) for share in (0.0, 0.3))
    shares = [np.unique(tree.apply(forest, x), return_counts=True)[1] / 200 for forest in (free, least)]
    assert shares[0].min() < 0.1
    assert shares[1].min() >= 0.3
    assert least.feature[0] == -2
    with_offset = np.concatenate([x, np.full((200, 1), -1.0)], axis=1)
    w = co2.fit_oc1(with_offset, y, np.array([1.0, 0, 0]), min_weight_fraction_leaf=0.3, rng=0)
    assert 0.3 <= (with_offset @ w >= 0).mean() < 0.4


def test_oc1_leaves_no_better_step():
    # When the search without jumps ends, no single weight lowers the entropy; a fine grid checks this.
    x, y, w, _, _ = problem(40, 3, seed=3)
    found = co2.fit_oc1(x, y, w, n_classes=3, jumps=0)
    there = impurity(found, x, y)
    assert there <= impurity(w, x, y)
    for j in range(3):
        for step in np.linspace(-4, 4, 4001):
            other = found.copy()
            other[j] += step
            assert impurity(other, x, y) >= there - 1e-9


def test_more_search_is_no_worse():
    x, y, w, _, _ = problem(60, 5, seed=1)
    scores = [
        impurity(co2.fit_oc1(x, y, w, n_classes=3, jumps=jumps, restarts=restarts, rng=0), x, y)
        for jumps, restarts in ((0, 0), (10, 0), (10, 10))
    ]
    assert scores[0] >= scores[1] >= scores[2] - 1e-9
    assert scores[2] < scores[0]


# ------------------------------------------------------------------------------------------ forests


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize(
    "options",
    [{}, {"bootstrap": False, "min_samples_leaf": 3}, {"max_depth": 2, "max_features": 1}, {"nu": 0.01}]
    + [{"sample_weight": np.random.default_rng(2).uniform(0.1, 3, 30)}]
    + [{"min_samples_oblique": 9, "stump": StumpSettings(batch_size=10, min_steps=3, convex_rounds=1)}],
)
def test_forest_equals_the_reference(fast_backend, dtype, task, options, reference):
    x, y, _, _, _ = problem(30, 5, loss="log" if task == "classification" else "squared", dtype=dtype)
    call = {"task": task, "rng": 5, "lr": 0.1, "max_rounds": 2, **options}
    call.setdefault("stump", StumpSettings(batch_size=10, min_steps=3))
    there = {
        name: fast_backend.array(value) if isinstance(value, np.ndarray) else value
        for name, value in call.items()
    }
    got = co2.grow(fast_backend.array(x), fast_backend.array(y), 2, **there)
    assert_same_bits(map_numpy(fast_backend, got), reference(co2.grow, x, y, 2, **call))


def test_gini_equals_the_reference(dtype, reference):
    x, y, _, _, _ = problem(30, 5, dtype=dtype)
    call = {"criterion": "gini", "rng": 5, **QUICK}
    assert_same_bits(co2.grow(x, y, 2, **call), reference(co2.grow, x, y, 2, **call))


def test_threads_do_not_change_bits(threads, dtype):
    x, y, _, _, _ = problem(150, 6, dtype=dtype)
    assert_all_same(on_threads(threads, lambda: co2.grow(x, y, 9, lr=0.1, rng=1)))


def test_a_forest_fits_its_samples(dtype):
    x, y, _, _, _ = problem(200, 7, dtype=dtype)
    x[:, 0] = np.random.default_rng(4).permutation(200)  # no two samples alike
    forest = tree.check(co2.grow(x, y, 3, bootstrap=False, lr=0.1, rng=0))
    assert (tree.predict(forest, x).argmax(axis=1) == y).all()
    assert (forest.feature == -2).any()
    # Leaves of trees grown to purity hold one class.
    assert set(np.unique(forest.value)) == {0, 1}


def test_leaf_values_are_those_of_the_samples_that_reach_them(dtype):
    x, y, _, _, _ = problem(300, 20, dtype=dtype)
    weights = np.random.default_rng(0).integers(1, 4, 300).astype(dtype)
    forest = co2.grow(x, y, 1, bootstrap=False, sample_weight=weights, max_depth=3, lr=0.1, rng=0)
    leaf = tree.apply(forest, x)[:, 0]
    for node in np.unique(leaf):
        here = leaf == node
        share = np.bincount(y[here], weights[here], 3) / weights[here].sum()
        np.testing.assert_allclose(forest.value[forest.left[node]], share, rtol=1e-6)


def test_a_stump_that_empties_a_side_gives_way():
    # Rare labels without a pattern: the bound is smallest if all samples go to one side.
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 3)), (rng.random(300) < 0.1).astype(np.int32)
    forest = co2.grow(x, y, 2, nu=0.01, bootstrap=False, rng=0)
    assert (forest.feature >= 0).any()
    assert (forest.feature == -2).any()
    assert (tree.predict(forest, x).argmax(axis=1) == y).all()


def test_one_class_one_sample_constant_features():
    x = np.zeros((8, 2), np.float32)
    y = np.arange(8, dtype=np.int32) % 2
    for samples, labels in ((x, y), (x[:1], y[:1]), (x + np.arange(8, dtype=np.float32)[:, None], 0 * y)):
        forest = co2.grow(samples, labels, 2, n_classes=5, bootstrap=False, rng=0)
        assert forest.feature.tolist() == [-1, -1]
        np.testing.assert_allclose(forest.value.sum(axis=1), 1)


def test_regression_beats_the_mean():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 5))
    y = np.stack([x @ [1, -1, 0.5, 0, 0], np.sin(x[:, 0] + x[:, 1])], axis=1)
    forest = co2.grow(x[:400], y[:400], 20, task="regression", lr=0.03, min_samples_leaf=3, rng=0)
    error = ((tree.predict(forest, x[400:]) - y[400:]) ** 2).mean(axis=0)
    assert (error < 0.35 * y[400:].var(axis=0)).all()


def test_in_bag_counts_are_weights():
    x, y, _, _, _ = problem(60, 4)
    counts = growth.bootstrap_counts(60, 3, rng=9)
    drawn = co2.grow(x, y, 3, bootstrap=True, rng=9, **QUICK)
    assert_same_bits(drawn, co2.grow(x, y, 3, bootstrap=counts, rng=9, **QUICK))


def test_digits_below_the_random_forest():
    data = load_digits()
    x, x_test = (a.astype(np.float32) / 16 for a in (data.x_train, data.x_test))
    y, y_test = data.y_train.astype(np.int32), data.y_test
    errors = {}
    for name, forest in (
        ("co2", co2.grow(x, y, 10, rng=0)),
        ("axis", hforest.grow(x, y, 10, rng=0)),
    ):
        errors[name] = (tree.predict(forest, x_test).argmax(axis=1) != y_test).mean()
    assert errors["co2"] < 0.75 * errors["axis"]


def test_progress_ends_the_growth(threads):
    threads(1)
    x, y, _, _, _ = problem(40, 3)
    seen = []
    forest = co2.grow(
        x, y, 5, rng=0, progress=lambda done, total: seen.append((done, total)) or done < 2, **QUICK
    )
    assert seen == [(1, 5), (2, 5)]
    assert len(forest.tree_start) == 3
    assert_same_bits(forest, co2.grow(x, y, 2, rng=0, **QUICK))


def test_progress_that_shows_or_does_nothing(capfd):
    x, y, _, _, _ = problem(40, 3)
    plain = co2.grow(x, y, 3, rng=0, **QUICK)
    assert capfd.readouterr().err == ""
    assert_same_bits(co2.grow(x, y, 3, rng=0, progress=False, **QUICK), plain)
    assert capfd.readouterr().err == ""
    assert_same_bits(co2.grow(x, y, 3, rng=0, progress=True, **QUICK), plain)
    assert "tree" in capfd.readouterr().err
    assert_same_bits(co2.grow(x, y, 3, rng=0, progress=lambda done, total: None, **QUICK), plain)


def test_search_tries_the_settings_of_the_paper():
    """Norouzi et al. 2015: bounds on the norm of w, and learning rates."""
    x, y, _, _, _ = problem(60, 3)
    found = co2.search(x, y, 1, held_out=0.5, settings={"max_depth": 1}, rng=0)
    assert sorted({*found.nu.tolist()}) == [0.1, 1, 4, 10, 43, 100]
    assert sorted({*found.lr.tolist()}) == [0.003, 0.01, 0.03]
    assert len(found.nu) == 18


def test_search_refuses_windows():
    windows = hforest.samples(np.zeros((3, 10)), windows=(np.arange(20), np.arange(3)))
    with pytest.raises(
        TypeError, match=r"^x: expected an array, got samples of windows; copy them: "
    ) as caught:
        co2.search(windows, np.arange(20) % 2, 2)
    x, base, offset = windows.x
    assert eval(
        str(caught.value).split("copy them: ")[1], {"x": x, "base": base, "offset": offset}
    ).shape == (20, 3)


def test_search():
    x, y, _, _, _ = problem(100, 3)
    seen, states = [], []
    part = co2.search(
        x, y, 2, nu=[1, 10], lr=[0.1, 0.03], rng=0, checkpoint=states.append,
        progress=lambda done, total: seen.append((done, total)) or done < 3,
    )  # fmt: skip
    assert seen == [(1, 4), (2, 4), (3, 4)]
    assert [len(state.nu) for state in states] == [1, 2, 3]
    assert_same_bits(states[-1], part)
    assert part.nu.tolist() == [1, 1, 10]
    seen.clear()
    more = {"nu": [1, 10], "lr": [0.1, 0.03], "rng": 0}
    whole = co2.search(x, y, 2, **more, trials=part, progress=lambda done, total: seen.append(done))
    assert seen == [4]
    assert_same_bits(whole, co2.search(x, y, 2, **more))
    assert ((whole.error >= 0) & (whole.error <= 1)).all()
    assert whole.max_features.tolist() == [2] * 4
    # The errors are out-of-bag errors of bootstraps that all forests share.
    counts = growth.bootstrap_counts(100, 2, rng=0)
    grown = {"nu": 1, "lr": 0.1, "max_features": 2, "n_classes": 3, "rng": 0}
    out = tree.out_of_bag(co2.grow(x, y, 2, **grown, bootstrap=counts), x, counts)
    judges = ~np.isnan(out).any(axis=1)
    assert 0 < judges.sum() < 100
    assert whole.error[0] == (out[judges].argmax(axis=1) != y[judges]).mean()
    squares = co2.search(x, x[:, 0].copy(), 2, nu=[1], lr=[0.01], task="regression", rng=0)
    assert 0 < squares.error[0] < x[:, 0].var()


def test_search_on_a_held_out_part():
    x, y, _, _, _ = problem(100, 3)
    whole = co2.search(x, y, 2, nu=[1], lr=[0.1], held_out=0.2, rng=0)
    # The error is that of a forest that was grown without the held-out part.
    order = np.random.default_rng(0).permutation(100)
    kept, held = np.sort(order[20:]), np.sort(order[:20])
    grown = {"nu": 1, "lr": 0.1, "max_features": 2, "n_classes": 3, "rng": 0}
    forest = co2.grow(x[kept], y[kept], 2, **grown)
    assert whole.error[0] == (tree.predict(forest, x[held]).argmax(axis=1) != y[held]).mean()
    forest = co2.grow(x[kept], y[kept], 2, **grown, bootstrap=False, max_rounds=2)
    settings = {"bootstrap": False, "max_rounds": 2}
    fixed = co2.search(x, y, 2, nu=[1], lr=[0.1], held_out=0.2, settings=settings, rng=0)
    assert fixed.error[0] == (tree.predict(forest, x[held]).argmax(axis=1) != y[held]).mean()


def test_settings_of_a_search_are_checked_once_and_seeds_repeat():
    x, y, _, _, _ = problem(60, 3)
    call = {"nu": [1, 10], "lr": [0.1], "settings": {"max_rounds": 1}}
    first = co2.search(x, y, 2, **call, rng=np.random.default_rng(3))
    assert_same_bits(first, co2.search(x, y, 2, **call, rng=np.random.default_rng(3)))
    assert co2.search(x, y, 2, **call).error.shape == (2,)
    with pytest.raises(ValueError, match="class_weight"):
        co2.search(x, y, 2, nu=[1, 10], lr=[0.1], settings={"class_weight": [1, np.nan, 1]})
    # A class that occurs only in the held-out part is still a class of the forest.
    rare = np.zeros(60, int)
    rare[np.random.default_rng(0).permutation(60)[0]] = 1
    call = {"nu": [1], "lr": [0.1], "held_out": 0.2, "settings": {"max_rounds": 0}}
    assert co2.search(x, rare, 1, **call, rng=0).error[0] == 1 / 12


def test_a_search_by_out_of_bag_errors_needs_bootstraps():
    x, y, _, _, _ = problem(60, 3)
    with pytest.raises(ValueError, match=r"^settings\['bootstrap'\]: expected no value without held_out"):
        co2.search(x, y, 2, settings={"bootstrap": False}, rng=0)
    with pytest.raises(
        ValueError, match=r"^n_trees: expected enough trees that at least one sample is out-of-bag, got 2"
    ):
        co2.search(x[:1], [0], 2, rng=0)


# --------------------------------------------------------------------------------------------- windows


def windows_and_copies(dtype, n_columns=12, n=300, collide=False):
    """Returns windows in two rows of an array, with gaps, a copy of them, and labels that depend on some numbers."""
    rng = np.random.default_rng(0)
    width = 2 * n_columns + 16
    x = rng.normal(size=(30, width)).astype(dtype)
    x[x > 1.5] = 0
    if collide:  # numbers that are equal in standard deviations
        tiny = x < -1
        x[tiny] = np.finfo(dtype).tiny * rng.integers(1, 9, tiny.sum())
        x += 7 * (rng.random(x.shape) < 0.5).astype(dtype)
    offset = np.concatenate([np.arange(-6, 6, 2), width + np.arange(n_columns - 6)])
    base = rng.integers(6, x.size - width - n_columns, n)
    copies = x.ravel()[base[:, None] + offset]
    y = rng.integers(0, 3, n)
    y[copies[:, 2] > copies[:, 7]] = 2
    return hforest.samples(x, windows=(base, offset)), copies, y


@pytest.mark.parametrize("collide", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"standardize": False, "nu": 10.0},
        {"sample_weight": np.arange(300) % 4 / 3.0},
        {"criterion": "gini", "min_samples_leaf": 4, "min_samples_oblique": 1},
        {"bootstrap": True, "class_weight": "balanced"},
    ],
)
def test_forests_on_windows_are_those_on_copies(threads, dtype, settings, collide):
    windows, copies, y = windows_and_copies(dtype, collide=collide)
    threads(1)
    want = co2.grow(copies, y, 4, rng=0, **settings)
    assert_all_same([want, *on_threads(threads, lambda: co2.grow(windows, y, 4, rng=0, **settings))])


def test_windows_that_are_copied_in_each_pass(monkeypatch, dtype):
    windows, copies, y = windows_and_copies(dtype, 37)
    want = co2.grow(copies, y, 2, max_depth=4, rng=0)
    for n_bytes in (0, 20_000, 40_000):  # room for no window, and for some of them
        monkeypatch.setattr(co2.cpu.cpu, "COPIED", n_bytes)
        assert_same_bits(co2.grow(windows, y, 2, max_depth=4, rng=0), want)


def test_the_reference_and_other_backends_copy_windows():
    windows, copies, y = windows_and_copies(np.float64, n=40)
    settings = {"n_trees": 1, "max_depth": 2, "max_rounds": 2, "rng": 0}
    want = co2.grow(copies, y, **settings)
    assert_same_bits(co2.grow(windows, y, **settings), want)
    with hforest.using("reference"):
        assert_same_splits(co2.grow(windows, y, **settings), want)


def assert_same_splits(got, want):
    np.testing.assert_array_equal(got.feature, want.feature)
    np.testing.assert_array_equal(got.indices, want.indices)
    np.testing.assert_allclose(got.threshold, want.threshold, rtol=1e-9)


def test_what_windows_are_not_for():
    windows, copies, y = windows_and_copies(np.float32)
    x, *places = windows.x
    for given, target, settings, message in (
        (windows, y, {"splitter": "oc1"}, 'splitter: expected "co2" for windows, got .oc1.; copy'),
        (windows, copies[:, 0], {"task": "regression"}, 'task: expected "classification" for windows'),
        (hforest.samples(x * np.float32(1e20), windows=places), y, {}, "x: expected .*1e"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            co2.grow(given, target, 1, **settings)
