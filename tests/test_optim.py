"""Optimisers: equations, row forms against dense forms, missed steps, bad input."""

import hashlib
import importlib
import math
from fractions import Fraction

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from conftest import assert_same_bits, several_paths
from growers import assert_all_same, on_paths, on_threads

import hforest
from hforest import optim
from hforest.optim.exact import bias, biases, exact_power, first_below, rounded
from hforest.optim.tables import _COSINES, DEGREE, MAX_STEPS, NEVER, _tail, tables

pytestmark = pytest.mark.kernels

LR = 0.05


class Adam:
    """Kingma & Ba 2015, Alg. 1, in extended precision if available; independent of the library."""

    def __init__(self, param, lr=LR, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0):
        self.param = param.astype(np.longdouble)
        self.m, self.v = np.zeros_like(self.param), np.zeros_like(self.param)
        self.lr, self.beta1, self.beta2, self.eps = (np.longdouble(a) for a in (lr, beta1, beta2, eps))
        self.shrink = 1 - self.lr * np.longdouble(weight_decay)
        self.step = 0

    def __call__(self, grad):
        self.step += 1
        g = grad.astype(np.longdouble)
        self.m = self.beta1 * self.m + (1 - self.beta1) * g
        self.v = self.beta2 * self.v + (1 - self.beta2) * g * g
        m_hat = self.m / (1 - self.beta1**self.step)
        v_hat = self.v / (1 - self.beta2**self.step)
        self.param = self.shrink * self.param - self.lr * m_hat / (np.sqrt(v_hat) + self.eps)


def zeros_like(param, n):
    return tuple(np.zeros_like(param) for _ in range(n))


def tolerance(dtype):
    return {"rtol": 2e-6, "atol": 1e-6} if dtype == np.float32 else {"rtol": 1e-12, "atol": 1e-14}


# ----------------------------------------------------------------------------------------- AdaGrad


def test_adagrad_by_hand(backend, dtype):
    param, state = np.zeros(4, dtype), np.array([4, 0, 0, 2], dtype)
    optim.adagrad(param, np.array([3, -2, 0, 0], dtype), state, 0.5)
    np.testing.assert_allclose(param, np.array([-0.3, 0.5, 0, 0], dtype), rtol=1e-7)
    assert state.tolist() == [5, 2, 0, 2]


@hypothesis.given(
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=70), seed=st.integers(0, 2**16)
)
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_adagrad_follows_the_equation(backend, dtype, shape, seed):
    rng = np.random.default_rng(seed)
    param, state = np.asarray(rng.normal(size=shape)).astype(dtype), np.zeros(shape, dtype)
    expected, h = param.astype(np.float64), np.zeros(shape)
    for _ in range(3):
        grad = np.asarray(rng.normal(size=shape)).astype(dtype)
        optim.adagrad(param, grad, state, LR)
        h = np.sqrt(h**2 + grad.astype(np.float64) ** 2)
        expected = expected - LR * grad / h
    np.testing.assert_allclose(param, expected, **tolerance(dtype))
    np.testing.assert_allclose(state, h, **tolerance(dtype))


@pytest.mark.parametrize("trailing", [(), (5,), (3, 70), (0,)], ids=str)
def test_adagrad_rows_have_the_bits_of_dense(backend, dtype, trailing):
    rng = np.random.default_rng(1)
    dense = rng.normal(size=(11, *trailing)).astype(dtype)
    sparse, (h_dense, h_sparse) = dense.copy(), zeros_like(dense, 2)
    # With h**2 below the smallest float64, a zero gradient must not set h to 0.
    h_dense[2] = h_sparse[2] = np.finfo(dtype).tiny
    for _ in range(6):
        rows = np.flatnonzero(rng.random(11) < 0.4)
        grad = rng.normal(size=(len(rows), *trailing)).astype(dtype)
        full = np.zeros_like(dense)
        full[rows] = grad
        optim.adagrad(dense, full, h_dense, LR)
        optim.adagrad_rows(sparse, rows, grad, h_sparse, LR)
    assert dense.tobytes() == sparse.tobytes()
    assert h_dense.tobytes() == h_sparse.tobytes()


# -------------------------------------------------------------------------------------------- Adam


@hypothesis.given(
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=70),
    seed=st.integers(0, 2**16),
    beta1=st.sampled_from([0.0, 0.5, 0.9, 0.99]),
    beta2=st.sampled_from([0.0, 0.9, 0.999]),
    eps=st.sampled_from([1e-8, 1e-3, 10.0]),
    weight_decay=st.sampled_from([0.0, 0.1]),
)
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_adam_follows_the_paper(backend, dtype, shape, seed, beta1, beta2, eps, weight_decay):
    rng = np.random.default_rng(seed)
    param = np.asarray(rng.normal(size=shape)).astype(dtype)
    m, v = zeros_like(param, 2)
    expected = Adam(param, LR, beta1, beta2, eps, weight_decay)
    words = {"beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
    for step in range(1, 5):
        grad = np.asarray(rng.normal(size=shape)).astype(dtype)
        optim.adam(param, grad, m, v, step, LR, **words)
        expected(grad)
    np.testing.assert_allclose(param, expected.param.astype(float), **tolerance(dtype))
    np.testing.assert_allclose(m, expected.m.astype(float), **tolerance(dtype))
    np.testing.assert_allclose(v, expected.v.astype(float), **tolerance(dtype))


def test_first_adam_step_is_the_learning_rate(backend, dtype):
    param = np.zeros(3, dtype)
    m, v = zeros_like(param, 2)
    optim.adam(param, np.array([1e-3, -20, 0], dtype), m, v, 1, 0.25, eps=1e-12)
    np.testing.assert_allclose(param, [-0.25, 0.25, 0], rtol=1e-6)


@pytest.mark.parametrize("weight_decay", [0.0, 0.5])
def test_adam_on_all_rows_has_the_bits_of_dense(backend, dtype, weight_decay):
    rng = np.random.default_rng(2)
    dense = rng.normal(size=(9, 70)).astype(dtype)
    sparse, (m, v, m_sparse, v_sparse) = dense.copy(), zeros_like(dense, 4)
    last = np.zeros(9, np.int64)
    for step in range(1, 6):
        grad = rng.normal(size=dense.shape).astype(dtype)
        optim.adam(dense, grad, m, v, step, LR, weight_decay=weight_decay)
        optim.adam_rows(
            sparse, np.arange(9), grad, m_sparse, v_sparse, last, step, LR, weight_decay=weight_decay
        )
    assert_same_bits((sparse, m_sparse, v_sparse), (dense, m, v))
    assert last.tolist() == [5] * 9


@pytest.mark.parametrize(
    ("beta1", "beta2"), [(0.9, 0.999), (0.0, 0.9), (0.5, 0.0), (0.9, 0.8), (0.99, 0.999)]
)
@pytest.mark.parametrize("eps", [1e-8, pytest.param(1e-2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("trailing", "weight_decay"),
    [((), 0.0), ((3,), 0.0), ((2, 40), 0.0), ((2, 40), 0.3), ((3,), 15.0)],
    ids=str,
)
def test_rows_equal_dense(backend, dtype, beta1, beta2, eps, trailing, weight_decay):
    rng = np.random.default_rng(3)
    n_rows, n_steps = 6, 300
    param = rng.normal(size=(n_rows, *trailing)).astype(dtype)
    expected = Adam(param, LR, beta1, beta2, eps, weight_decay)
    m, v = zeros_like(param, 2)
    last = np.zeros(n_rows, np.int64)
    touched = np.array([1.0, 0.3, 0.1, 0.03, 0.01, 0.0])
    betas = {"beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
    for step in range(1, n_steps + 1):
        rows = np.flatnonzero(rng.random(n_rows) < touched)
        grad = (10.0 ** rng.uniform(-6, 1) * rng.normal(size=(len(rows), *trailing))).astype(dtype)
        optim.adam_rows(param, rows, grad, m, v, last, step, LR, **betas)
        full = np.zeros_like(param)
        full[rows] = grad
        expected(full)
    optim.adam_catch_up(param, m, v, last, n_steps, LR, **betas)
    assert last.tolist() == [n_steps] * n_rows
    # Stored moments of float32 are rounded at each touch, and a motion is their quotient.
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == np.float32 else {"rtol": 1e-11, "atol": 1e-12}
    if weight_decay:  # this returns numbers from large values, at which they were rounded
        close["atol"] *= max(1.0, float(abs(expected.param).max()))
    np.testing.assert_allclose(param, expected.param.astype(float), **close)


def test_rows_are_catch_up_and_step(backend, dtype):
    rng = np.random.default_rng(4)
    start = rng.normal(size=(5, 3)).astype(dtype)
    m = rng.normal(size=(5, 3)).astype(dtype)
    v = (m * m).astype(dtype)
    last = np.array([200, 150, 3, 199, 0])
    rows, grad = np.array([1, 2, 4]), rng.normal(size=(3, 3)).astype(dtype)
    at_once = [a.copy() for a in (start, m, v, last)]
    optim.adam_rows(at_once[0], rows, grad, *at_once[1:], 201, LR)
    apart = [a.copy() for a in (start, m, v, last)]
    optim.adam_catch_up(*apart, 200, LR, rows=rows)
    assert apart[3].tolist() == [200, 200, 200, 199, 200]
    optim.adam_rows(apart[0], rows, grad, *apart[1:], 201, LR)
    assert_same_bits(at_once, apart)
    np.testing.assert_array_equal(at_once[0][[0, 3]], start[[0, 3]])


@pytest.mark.parametrize("start", [0, 1, 50, 104, 130, 5000, 60000])
@pytest.mark.parametrize("missed", [1, 4, 5, 30, 700])
@pytest.mark.parametrize("eps", [1e-8, 1.0])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01, 1.0])
def test_missed_steps(start, missed, eps, weight_decay):
    # Every size of sqrt(v) against eps, from far above to far below.
    sizes = np.array([[10.0**k for k in range(-12, 4)]])
    param, m, v, last = np.zeros_like(sizes), 0.3 * sizes, sizes**2, np.array([start])
    param += 1.0 if weight_decay else 0.0
    expected = Adam(param, eps=eps, weight_decay=weight_decay)
    expected.m, expected.v, expected.step = m.astype(np.longdouble), v.astype(np.longdouble), start
    for _ in range(missed):
        expected(np.zeros_like(sizes))
    optim.adam_catch_up(param, m, v, last, start + missed, LR, eps=eps, weight_decay=weight_decay)
    np.testing.assert_allclose(param, expected.param.astype(float), rtol=1e-13)
    np.testing.assert_allclose(m, expected.m.astype(float), rtol=1e-13)
    np.testing.assert_allclose(v, expected.v.astype(float), rtol=1e-13)


@pytest.mark.parametrize("step", [7, 300, 2000])
def test_a_row_whose_second_moment_is_infinite_stands_still(backend, dtype, step):
    """The squared gradient of a row has overflowed: dense steps also divide by infinity."""
    (param, m, v), last = np.ones((3, 2, 3), dtype), np.array([5, 5])
    v[1] = np.inf
    optim.adam_catch_up(param, m, v, last, step, 0.01)
    assert np.isfinite(param).all()
    np.testing.assert_array_equal(param[1], 1)
    assert (param[0] < 1).all()
    assert (m < 1).all()
    assert np.isinf(v[1]).all()


def test_rows_without_moments_stay(backend, dtype):
    param = np.arange(4, dtype=dtype).reshape(2, 2)
    m, v = zeros_like(param, 2)
    m[1] = np.finfo(dtype).tiny  # decays to a subnormal, which is stored as 0
    last = np.zeros(2, np.int64)
    optim.adam_catch_up(param, m, v, last, 1000, LR)
    assert param[0].tolist() == [0, 1]
    assert not m.any()
    assert np.isfinite(param).all()


def powers_of_ten(exponents):
    # NumPy's power has other last bits on processors with AVX-512.
    return np.array([10.0 ** float(a) for a in exponents.ravel()]).reshape(exponents.shape)


def touch_at_random(dtype, n_rows=200, width=4, n_steps=5000):
    """Returns distances of row-sparse, dense and exact parameters after steps that miss most rows.

    The distances are rows to dense, rows to exact and dense to exact. They are relative to the final numbers,
    and to the largest numbers of all steps, at which rounding happened.
    """
    rng = np.random.default_rng(5)
    touched = np.concatenate([[1.0] * 5, [0.0005] * 50, powers_of_ten(rng.uniform(-3.7, 0, n_rows - 55))])
    scale = powers_of_ten(rng.uniform(-6, 1, (n_rows, width)))
    param = rng.normal(size=(n_rows, width)).astype(dtype)
    exact, dense, lr = Adam(param, 0.005), param.copy(), 0.005
    m, v, m_dense, v_dense = zeros_like(param, 4)
    last = np.zeros(n_rows, np.int64)
    largest = np.abs(param)
    for step in range(1, n_steps + 1):
        rows = np.flatnonzero(rng.random(n_rows) < touched)
        grad = (scale[rows] * (rng.normal(size=(len(rows), width)) + 0.3)).astype(dtype)
        full = np.zeros_like(param)
        full[rows] = grad
        exact(full)
        optim.adam(dense, full, m_dense, v_dense, step, lr)
        optim.adam_rows(param, rows, grad, m, v, last, step, lr)
        largest = np.maximum(largest, np.abs(exact.param))
    optim.adam_catch_up(param, m, v, last, n_steps, lr)
    pairs = ((param, dense), (param, exact.param), (dense, exact.param))
    return [
        tuple(float((np.abs(a - b) / size).max()) for a, b in pairs)
        for size in (np.abs(exact.param) + 1e-3, largest)
    ]


@pytest.mark.skipif(
    np.finfo(np.longdouble).eps == np.finfo(np.float64).eps, reason="the truth is computed in long double"
)
@pytest.mark.slow
def test_thousands_of_steps_float64():
    at_the_end, on_the_way = touch_at_random(np.float64)
    # The dense form is up to 1.5e-12 from the exact values here, for numbers that end near 0.
    assert at_the_end[0] <= 1e-12
    assert on_the_way[0] <= 2e-14
    assert on_the_way[1] <= 2 * on_the_way[2]


@pytest.mark.slow
def test_thousands_of_steps_float32():
    for _, rows_error, dense_error in touch_at_random(np.float32):
        assert rows_error <= 2 * dense_error


@pytest.mark.parametrize(("beta1", "beta2"), [(0.9, 0.999), (0.99, 0.9999), (0.0, 0.999), (0.5, 0.99)])
def test_polynomials_are_the_sums(beta1, beta2):
    table = tables(np.zeros(1), beta1, beta2, 3000)
    assert table.closed < 3000
    n_terms = int(np.log(1e-20) / np.log(beta1)) if beta1 else 1
    k = np.arange(1, n_terms + 1, dtype=np.float64)
    for step in (max(table.closed, 1), 2 * table.closed + 1, 2999):
        row = table.tail[min(step, len(table.tail) - 1)]
        a = np.sqrt(beta2**k / (1 - beta2 ** (step + k)))
        weight = beta1**k / (1 - beta1 ** (step + k))
        for z in np.linspace(0, 1, 11):
            exact = (weight / (1 + z * (a / row[2] - 1))).sum()
            assert np.polyval(row[:2:-1], 2 * z - 1) == pytest.approx(exact, rel=2e-14)
        assert row[0] == pytest.approx(1 / (1 - beta1**step), rel=1e-12)
        assert row[1] == pytest.approx((1 - beta2**step) ** -0.5, rel=1e-11)


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9, 0.99, 0.999, 0.999999])
def test_powers_and_biases_are_correctly_rounded(beta):
    every = biases(beta, 700)
    for step in (0, 1, 2, 3, 10, 255, 256, 257, 699):
        exact = Fraction(beta) ** step
        assert rounded(exact_power(beta, step)) == float(exact)
        assert bias(beta, step) == every[step] == float(1 - exact)
    assert bias(beta, 2**62) == 1


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9, 0.999, 0.999999])
def test_first_power_below(beta):
    n = first_below(beta, 2.0**-60)
    assert rounded(exact_power(beta, n)) <= 2.0**-60
    assert n == 1 or rounded(exact_power(beta, n - 1)) > 2.0**-60


def test_cosines():
    np.testing.assert_allclose(_COSINES, [math.cos(j * math.pi / 22) for j in range(12)], rtol=0, atol=4e-16)
    assert len(_COSINES) == DEGREE + 2


def test_tables_have_the_same_bits_on_every_machine():
    # Recorded on an AMD processor without AVX-512, glibc 2.36.
    found = {}
    for beta1, beta2 in ((0.9, 0.999), (0.99, 0.9999), (0.85, 0.98), (0.99999, 0.999)):
        table = tables(np.zeros(1), beta1, beta2, 3000)
        arrays = table.powers[:2], table.decay[:3], table.tail, table.visible  # not those of weight decay
        found[beta1, beta2] = (
            hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()[:16],
            table.closed,
        )
    assert found == {
        (0.9, 0.999): ("b1bf3a1eecf3b058", 106),
        (0.99, 0.9999): ("1c071ba507d642d0", 1120),
        (0.85, 0.98): ("dbfc7558d28b018b", NEVER),
        (0.99999, 0.999): ("ffe523c2d45bbd28", NEVER),
    }


def test_tables_do_not_depend_on_their_length():
    short, long = (tables(np.zeros(1), 0.9, 0.999, step) for step in (1000, 9000))
    assert short.tail.shape[1] == long.tail.shape[1] == 3 + DEGREE + 1
    np.testing.assert_array_equal(short.tail, long.tail[: len(short.tail)])
    assert short.closed == long.closed


def test_tables_end_where_the_biases_do():
    table = tables(np.zeros(1), 0.9, 0.999, 2**40)
    assert len(table.tail) < 50_000
    assert table.tail[-1, :2].tolist() == [1, 1]


@pytest.mark.unsanitized
@pytest.mark.slow
def test_the_largest_table_takes_few_megabytes():
    # 330 MB before steps were computed in blocks.
    table = tables(np.zeros(1), 0.9, 0.9999, 10**9)
    assert len(table.tail) < MAX_STEPS
    assert sum(a.nbytes for a in table[:4]) < 64e6
    assert table.tail[-1, :2].tolist() == [1, 1]


def test_blocks_of_steps_give_the_same_bits(monkeypatch):
    whole, exact = _tail(0.9, 0.9999, 0.999, 3000, 9)
    module = importlib.import_module("hforest.optim.tables")
    monkeypatch.setattr(module, "_BLOCK", 700)
    again, exact_again = _tail(0.9, 0.9999, 0.999, 3000, 9)
    assert whole.tobytes() == again.tobytes()
    assert exact.tobytes() == exact_again.tobytes()


@pytest.mark.parametrize(
    ("betas", "name"),
    [({"beta2": 0.99999}, "beta2"), ({"beta2": 0.999999}, "beta2"), ({"beta1": 0.99999}, "beta1")],
)
def test_steps_beyond_the_largest_table_are_refused(betas, name):
    call = rows_call(step=10**9, **betas)
    raises(
        ValueError,
        f"step: expected at most 524287 with {name}",
        r"optim\.adam",
        lambda: optim.adam_rows(**call),
    )
    del call["grad"]
    raises(ValueError, f"step.*{name}", r"0\.9999", lambda: optim.adam_catch_up(**call))
    assert (call["param"] == 1).all()
    assert not call["last"].any()
    optim.adam(**dense_call(step=10**9, **betas))


@pytest.mark.parametrize("step", [10, 3000])
def test_betas_near_one_are_right_before_the_limit(step):
    param, m, v, last = np.zeros((1, 2)), np.full((1, 2), 0.3), np.full((1, 2), 0.5), np.array([3])
    expected = Adam(param, LR, 0.9, 0.99999)
    expected.m, expected.v, expected.step = m.astype(np.longdouble), v.astype(np.longdouble), 3
    for _ in range(step - 3):
        expected(np.zeros((1, 2)))
    optim.adam_catch_up(param, m, v, last, step, LR, beta2=0.99999)
    np.testing.assert_allclose(param, expected.param.astype(float), rtol=1e-12)


@pytest.mark.parametrize(("beta1", "beta2"), [(0.99, 0.5), (0.9, 0.8), (0.99999, 0.999)])
def test_betas_without_polynomials_take_every_step(beta1, beta2):
    assert tables(np.zeros(1), beta1, beta2, 10**4).closed == NEVER
    param, m, v, last = np.zeros((1, 2)), np.full((1, 2), 0.3), np.full((1, 2), 0.5), np.array([7])
    expected = Adam(param, LR, beta1, beta2)
    expected.m, expected.v, expected.step = m.astype(np.longdouble), v.astype(np.longdouble), 7
    for _ in range(40):
        expected(np.zeros((1, 2)))
    optim.adam_catch_up(param, m, v, last, 47, LR, beta1=beta1, beta2=beta2)
    np.testing.assert_allclose(param, expected.param.astype(float), rtol=1e-9)


@pytest.mark.parametrize(("beta1", "beta2"), [(0.9, 0.8), (0.5, 0.0), (0.0, 0.9)])
def test_missed_steps_end_when_the_moment_has_underflowed(backend, dtype, beta1, beta2):
    # Also with NaN and infinite moments, as after a training that diverged.
    m = np.array([[0.3, 0.0, -2e-30, np.nan, np.inf]], dtype)
    results = []
    for step in (8, 10**5, 10**9):  # the first one builds what is built once
        param, first, second = np.ones(m.shape, dtype), m.copy(), np.full(m.shape, 0.5, dtype)
        with np.errstate(invalid="ignore"):
            optim.adam_catch_up(param, first, second, np.array([7]), step, LR, beta1=beta1, beta2=beta2)
        assert step == 8 or not (first[0, :3].any() or second[0, :3].any())
        results.append(param[0, :3].tobytes())
    assert results[1] == results[2]  # the steps after these move nothing
    expected = Adam(np.ones((1, 3)), LR, beta1, beta2)
    expected.m, expected.v = m[:, :3].astype(np.longdouble), np.full((1, 3), 0.5, np.longdouble)
    expected.step = 7
    for _ in range(2000):
        expected(np.zeros((1, 3)))
    np.testing.assert_allclose(param[:, :3], expected.param.astype(float), **tolerance(dtype))


# --------------------------------------------------------------------------- backends, threads, layout


def few_steps(dtype, weight_decay=0.0):
    rng = np.random.default_rng(6)
    param = rng.normal(size=(3000, 9)).astype(dtype)
    m, v, h = zeros_like(param, 3)
    last = np.zeros(3000, np.int64)
    for step in (1, 2, 90, 300, 302, 310, 2000):
        rows = np.flatnonzero(rng.random(3000) < 0.5)
        grad = rng.normal(size=(len(rows), 9)).astype(dtype)
        optim.adam_rows(param, rows, grad, m, v, last, step, LR, weight_decay=weight_decay)
        optim.adagrad_rows(param, rows, grad, h, LR)
        full = rng.normal(size=param.shape).astype(dtype)
        optim.adagrad(param, full, h, LR)
    optim.adam_catch_up(param, m, v, last, 2000, LR, weight_decay=weight_decay)
    optim.adam(param, full, m, v, 2001, LR, weight_decay=weight_decay)
    return param, m, v, h, last


@pytest.mark.parametrize("weight_decay", [0.0, 0.01, 5.0])
def test_threads_do_not_change_bits(threads, dtype, weight_decay):
    assert_all_same(on_threads(threads, lambda: few_steps(dtype, weight_decay)))


@several_paths
@pytest.mark.parametrize("weight_decay", [0.01, 5.0])
def test_vector_paths_do_not_change_bits_of_weight_decay(simd, dtype, weight_decay):
    assert_all_same(on_paths(simd, lambda: few_steps(dtype, weight_decay)))


@pytest.mark.parametrize("weight_decay", [0.02, 2.0, 19.0])
def test_rows_without_gradients_decay(backend, dtype, weight_decay):
    """Also where beta1 / (1 - lr weight_decay) is 1 or more, and no series converges."""
    param, last = np.ones((2, 3), dtype), np.zeros(2, np.int64)
    m, v = zeros_like(param, 2)
    m[1], v[1] = 0.1, 0.01
    expected = Adam(param, LR, weight_decay=weight_decay)
    expected.m, expected.v = m.astype(np.longdouble), v.astype(np.longdouble)
    for _ in range(400):
        expected(np.zeros_like(param))
    optim.adam_catch_up(param, m, v, last, 400, LR, weight_decay=weight_decay)
    np.testing.assert_allclose(param, expected.param.astype(float), **tolerance(dtype))


@pytest.mark.parametrize(("weight_decay", "error"), [(-1, ValueError), (20.0, ValueError), ("a", TypeError)])
def test_a_weight_decay_out_of_range_is_refused(weight_decay, error):
    with pytest.raises(error, match="weight_decay: expected"):
        optim.adam(*np.zeros((4, 3)), 1, LR, weight_decay=weight_decay)


@hypothesis.given(
    n_rows=st.integers(0, 9),
    trailing=hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=9),
    data=st.data(),
)
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], max_examples=25)
def test_backends_agree(fast_backend, dtype, reference, n_rows, trailing, data):
    chosen = data.draw(st.lists(st.booleans(), min_size=n_rows, max_size=n_rows))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    rows = np.flatnonzero(chosen)
    param = rng.normal(size=(n_rows, *trailing)).astype(dtype)
    m = rng.normal(size=param.shape).astype(dtype)
    v = (m * m + rng.random(param.shape)).astype(dtype)
    last = rng.integers(0, 160, n_rows)
    grad = rng.normal(size=(len(rows), *trailing)).astype(dtype)
    words = {"weight_decay": data.draw(st.sampled_from([0.0, 0.05, 3.0]))}
    expected = [a.copy() for a in (param, m, v, last)]
    reference(optim.adam_rows, expected[0], rows, grad, *expected[1:], 160, LR, **words)
    reference(optim.adam_catch_up, *expected, 190, LR, **words)
    got = [fast_backend.array(a) for a in (param, m, v, last)]
    optim.adam_rows(got[0], fast_backend.array(rows), fast_backend.array(grad), *got[1:], 160, LR, **words)
    optim.adam_catch_up(*got, 190, LR, **words)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(fast_backend.numpy(a), b, **tolerance(dtype))


# --------------------------------------------------------------------------------------- bad input


def dense_call(**changes):
    a = {"param": np.ones((3, 2)), "grad": np.ones((3, 2)), "m": np.zeros((3, 2)), "v": np.zeros((3, 2))}
    return a | {"step": 1, "lr": LR} | changes


def rows_call(**changes):
    a = {"param": np.ones((3, 2)), "rows": np.array([0, 2]), "grad": np.ones((2, 2))}
    a |= {"m": np.zeros((3, 2)), "v": np.zeros((3, 2)), "last": np.zeros(3, np.int64)}
    return a | {"step": 1, "lr": LR} | changes


def frozen(a):
    a.flags.writeable = False
    return a


SHARED = np.zeros((3, 2))

BAD = [
    ({"param": [[1.0]]}, TypeError, "param", "numpy.asarray"),
    ({"param": np.ones((3, 2), int)}, TypeError, "param", "astype"),
    ({"grad": np.ones((3, 2), np.float32)}, TypeError, "grad", "astype"),
    ({"m": np.zeros((2, 3))}, ValueError, "m: expected shape", "sizes agree"),
    ({"v": np.zeros((2, 3)).T}, ValueError, "v", "ascontiguousarray"),
    ({"param": frozen(np.ones((3, 2)))}, ValueError, "param", "copy"),
    ({"v": frozen(np.zeros((3, 2)))}, ValueError, "v", "copy"),
    ({"m": SHARED, "v": SHARED}, ValueError, "m: expected memory that no other argument uses", "copy"),
    ({"step": 0}, ValueError, "step", "range"),
    ({"step": 1.0}, TypeError, "step", "integer"),
    ({"lr": -1.0}, ValueError, "lr", "range"),
    ({"lr": np.nan}, ValueError, "lr", "range"),
    ({"lr": "fast"}, TypeError, "lr", "float"),
    ({"beta1": 1.0}, ValueError, "beta1", "range"),
    ({"beta2": -0.1}, ValueError, "beta2", "range"),
    ({"eps": 0.0}, ValueError, "eps", "range"),
]

BAD_ROWS = [
    ({"rows": np.array([0, 2], np.int32)}, TypeError, "rows", "int64"),
    ({"rows": np.array([2, 0])}, ValueError, "rows", "increasing"),
    ({"rows": np.array([1, 1])}, ValueError, "rows", "numpy.unique"),
    ({"rows": np.array([0, 3])}, IndexError, "rows", "belong"),
    ({"rows": np.array([-1, 0])}, IndexError, "rows", "belong"),
    ({"param": np.ones(())}, ValueError, "param", "sizes agree"),
    ({"last": np.zeros(2, np.int64)}, ValueError, "last", r"\(n_rows,\) = \(3,\)"),
    ({"last": np.zeros(3, np.int32)}, TypeError, "last", "int64"),
    ({"last": np.array([0, 9, 0]), "rows": np.array([0, 1])}, ValueError, "last", "row 1"),
    ({"last": np.array([-1, 0, 0])}, ValueError, "last", "row 0"),
    ({"last": frozen(np.zeros(3, np.int64))}, ValueError, "last", "copy"),
]


def raises(error, name, remedy, call):
    with pytest.raises(error, match=f"(?s)^{name}.*{remedy}"):
        call()


@pytest.mark.parametrize(("changes", "error", "name", "remedy"), BAD)
def test_bad_dense_input(changes, error, name, remedy):
    raises(error, name, remedy, lambda: optim.adam(**dense_call(**changes)))


@pytest.mark.parametrize(
    ("changes", "error", "name", "remedy"),
    [case for case in BAD if "grad" not in case[0]] + BAD_ROWS,
)
def test_bad_row_input(changes, error, name, remedy):
    raises(error, name, remedy, lambda: optim.adam_rows(**rows_call(**changes)))


@pytest.mark.parametrize(("changes", "error", "name", "remedy"), BAD_ROWS)
def test_bad_catch_up_input(changes, error, name, remedy):
    call = rows_call(**changes)
    del call["grad"]
    raises(error, name, remedy, lambda: optim.adam_catch_up(**call))


@pytest.mark.parametrize(
    ("dtype", "changes", "name", "remedy"),
    [
        (np.float32, {"eps": 1e-50}, "eps: expected 1.17549e-38 to", "float64"),
        (np.float32, {"eps": 1e-45}, "eps", "float64"),
        (np.float32, {"eps": 1e39}, "eps", "float64"),
        (np.float64, {"eps": 5e-324}, "eps", "range"),
        (np.float32, {"lr": 1e38}, "lr", "range"),
        (np.float64, {"lr": 1e308}, "lr", "range"),
    ],
)
def test_numbers_that_the_dtype_does_not_hold(dtype, changes, name, remedy):
    dense = {k: a.astype(dtype) if isinstance(a, np.ndarray) else a for k, a in dense_call(**changes).items()}
    dense["grad"][:] = 0
    raises(ValueError, name, remedy, lambda: optim.adam(**dense))
    assert (dense["param"] == 1).all()
    rows = {
        k: a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype == np.float64 else a
        for k, a in rows_call(**changes).items()
    }
    raises(ValueError, name, remedy, lambda: optim.adam_rows(**rows))
    del rows["grad"]
    raises(ValueError, name, remedy, lambda: optim.adam_catch_up(**rows))


def test_the_least_eps_gives_numbers(backend, dtype):
    eps = float(np.finfo(dtype).tiny)
    param, m, v = np.ones((2, 1), dtype), np.zeros((2, 1), dtype), np.zeros((2, 1), dtype)
    last = np.zeros(2, np.int64)
    optim.adam(param, np.zeros_like(param), m, v, 1, LR, eps=eps)
    optim.adam_catch_up(param, m, v, last, 300, LR, eps=eps)
    assert (param == 1).all()


def test_bad_adagrad_input():
    a, rows = np.ones((3, 2)), np.array([0, 2])
    raises(TypeError, "state", "astype", lambda: optim.adagrad(a, a.copy(), a.astype(np.float32), LR))
    raises(ValueError, "param: expected memory", "copy", lambda: optim.adagrad(a, a, a.copy(), LR))
    raises(ValueError, "grad", "agree", lambda: optim.adagrad_rows(a, rows, np.ones((3, 2)), a.copy(), LR))
    raises(ValueError, "lr", "range", lambda: optim.adagrad_rows(a, rows, np.ones((2, 2)), a.copy(), -1))
    raises(ValueError, "state", "copy", lambda: optim.adagrad(a, a.copy(), frozen(a.copy()), LR))
    single = a.astype(np.float32)
    raises(ValueError, "lr", "range", lambda: optim.adagrad(single, single.copy(), single.copy(), 1e39))


def test_catch_up_takes_all_rows_of_nothing_to_count():
    call = {"m": np.zeros(()), "v": np.zeros(()), "last": np.zeros(1, np.int64), "step": 1, "lr": LR}
    raises(ValueError, "param", "agree", lambda: optim.adam_catch_up(np.zeros(()), **call))
    raises(TypeError, "param", "numpy.asarray", lambda: optim.adam_catch_up([0.0], **call))


def test_a_row_beyond_the_step_is_left_where_it_is_when_unchecked(backend):
    call = rows_call(last=np.array([99, 0, -(2**63)]))
    with hforest.unchecked():
        optim.adam_rows(**call)
        assert call["last"].tolist() == [1, 0, 1]
    fresh = rows_call()
    optim.adam_rows(**fresh)
    np.testing.assert_array_equal(call["param"], fresh["param"])


def test_nothing_is_changed_by_a_refused_call():
    call = rows_call(last=np.array([0, 0, 5]))
    with pytest.raises(ValueError, match="^last"):
        optim.adam_rows(**call)
    assert (call["param"] == 1).all()
    assert call["last"].tolist() == [0, 0, 5]
