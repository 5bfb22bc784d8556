"""CO2: the bound's inequalities, gradients, stumps, grown forests, the search, bad input."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import hforest
from hforest import classic, co2, growth, tree
from hforest.core import machine
from hforest.demo import load_digits

LOSSES = ("log", "squared")
QUICK = {"batch": 10, "max_rounds": 4, "min_steps": 5, "eta": 0.1}


def problem(n, n_features, n_outputs=3, loss="log", dtype=np.float64, seed=0):
    """w, theta0, theta1, x, y: with ties (small whole numbers) among the features."""
    rng = np.random.default_rng(seed)
    x = np.where(rng.random((n, n_features)) < 0.3, rng.integers(-1, 2), rng.normal(size=(n, n_features)))
    y = (
        rng.integers(0, n_outputs, n, np.int32)
        if loss == "log"
        else rng.normal(size=(n, n_outputs)).astype(dtype)
    )
    w, *theta = rng.normal(size=n_features), *rng.normal(size=(2, n_outputs))
    return w.astype(dtype), *(a.astype(dtype) for a in theta), x.astype(dtype), y


def losses(theta, y):
    """Eq 3 or 4 of every sample, from the definition."""
    if y.ndim == 2:
        return ((y - theta) ** 2).sum(axis=1)
    return np.log(np.exp(theta - theta.max()).sum()) + theta.max() - theta[y]


def empirical(w, theta0, theta1, x, y):
    """Eq 2."""
    return np.where(x @ w < 0, losses(theta0, y), losses(theta1, y)).sum()


def by_formula(w, theta0, theta1, x, y, weights=1.0):
    """Eq 10."""
    p = x @ w
    return (weights * (np.maximum(losses(theta0, y) - p, losses(theta1, y) + p) - abs(p))).sum()


def same_bits(got, want):
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()


# ---------------------------------------------------------------------------------------- surrogate


def test_surrogate_by_hand(twin, dtype):
    # One sample at w.x = 1 with losses log 2 on both sides: max(log 2 - 1, log 2 + 1) - 1.
    x, y = np.array([[2.0]], dtype), np.array([1], np.int32)
    theta = np.zeros(2, dtype)
    value = co2.surrogate(np.array([0.5], dtype), theta, theta, x, y)
    assert value == pytest.approx(np.log(2), rel=1e-14)
    # On the wrong side of a good split it is larger than the loss there by twice the margin.
    targets = np.array([[3.0]], dtype)
    value = co2.surrogate(
        np.array([0.5], dtype), np.array([3.0], dtype), np.array([1.0], dtype), x, targets, loss="squared"
    )
    assert value == max(0 - 1, 4 + 1) - 1


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (7, 15), (40, 16), (33, 50)])
def test_surrogate_is_the_formula(twin, dtype, loss, shape):
    arguments = problem(*shape, loss=loss, dtype=dtype)
    weights = np.random.default_rng(1).integers(0, 4, shape[0]).astype(dtype)
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in (*arguments, weights)]
    for given_weights, factor in ((None, 1.0), (weights, wide[-1])):
        got = co2.surrogate(*arguments, loss=loss, weights=given_weights)
        want = by_formula(*wide[:5], factor)
        assert got == pytest.approx(want, rel=200 * float(np.finfo(dtype).eps), abs=1e-12)


@hypothesis.given(
    shape=st.tuples(st.integers(1, 30), st.integers(1, 20)),
    loss=st.sampled_from(LOSSES),
    scale=st.sampled_from([1e-3, 0.1, 1.0, 30.0, 1e4]),
    seed=st.integers(0, 2**32 - 1),
)
def test_surrogate_bounds_the_loss_and_tightens(shape, loss, scale, seed):
    w, theta0, theta1, x, y = problem(*shape, loss=loss, seed=seed)
    w *= scale
    value = co2.surrogate(w, theta0, theta1, x, y, loss=loss)
    loss_there = empirical(w, theta0, theta1, x, y)
    slack = 1e-12 * (abs(value) + abs(x @ w).sum() + 1)
    assert value >= loss_there - slack  # eq 5
    before = value
    for a in (1.5, 7.0, 100.0):  # eq 8
        larger = co2.surrogate(a * w, theta0, theta1, x, y, loss=loss)
        assert larger <= before + a * slack
        before = larger


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_is_central_differences(twin, loss):
    checked = 0
    for seed in range(6):
        w, theta0, theta1, x, y = problem(1, 4, loss=loss, seed=seed)
        p = x @ w
        gap = losses(theta0, y) - losses(theta1, y) - 2 * p
        if min(abs(p).min(), abs(gap).min()) < 1e-2:
            continue  # near a kink
        checked += 1
        grads = co2.surrogate_grad(w, theta0, theta1, x, y, loss=loss)
        for at, grad in zip((w, theta0, theta1), grads, strict=True):
            for j in range(len(at)):
                kept, step, values = at[j], 1e-6, []
                for sign in (1, -1):
                    at[j] = kept + sign * step
                    values.append(by_formula(w, theta0, theta1, x, y))
                at[j] = kept
                assert grad[j] == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-6)
    assert checked >= 3


def test_gradient_at_kinks(twin, dtype):
    # w.x = 0 and equal losses: the left side takes it, and sgn(0) = 0.
    x, y = np.array([[1.0, 0.0]], dtype), np.array([0], np.int32)
    w, theta = np.array([0.0, 1.0], dtype), np.zeros(2, dtype)
    grad_w, grad0, grad1 = co2.surrogate_grad(w, theta, theta, x, y)
    np.testing.assert_array_equal(grad_w, [-1, 0])
    np.testing.assert_allclose(grad0, [-0.5, 0.5], rtol=1e-6)
    np.testing.assert_array_equal(grad1, [0, 0])


@pytest.mark.parametrize(
    ("shape", "loss"),
    [(shape, loss) for shape in ((0, 2), (1, 1), (5, 16), (21, 17)) for loss in LOSSES]
    + [((1100, 2), "log")],
)
def test_doors_equal_the_reference(fast_twin, dtype, loss, shape, reference):
    arguments = problem(*shape, loss=loss, dtype=dtype)
    there = [fast_twin.array(a) for a in arguments]
    same_bits([co2.surrogate(*there, loss=loss)], [reference(co2.surrogate, *arguments, loss=loss)])
    got = co2.surrogate_grad(*there, loss=loss)
    same_bits(map_numpy(fast_twin, got), reference(co2.surrogate_grad, *arguments, loss=loss))


def map_numpy(twin, arrays):
    return [twin.numpy(a) for a in arrays]


# ------------------------------------------------------------------------------------------- stumps


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", [(1, 1), (9, 4), (23, 18)])
def test_stump_equals_the_reference(fast_twin, dtype, loss, shape, reference):
    w, _, _, x, y = problem(*shape, loss=loss, dtype=dtype)
    weights = np.random.default_rng(2).integers(0, 3, shape[0]).astype(dtype) + (shape[0] == 1)
    n_classes = 3 if loss == "log" else None
    options = {"n_classes": n_classes, "rng": 3, **QUICK, "batch": 8, "max_rounds": 2, "convex_rounds": 1}
    there = [fast_twin.array(a) for a in (x, y, w)]
    got = co2.fit_stump(*there, weights=fast_twin.array(weights), **options)
    same_bits(map_numpy(fast_twin, got), reference(co2.fit_stump, x, y, w, weights=weights, **options))


@hypothesis.given(
    shape=st.tuples(st.integers(1, 60), st.integers(1, 20)),
    loss=st.sampled_from(LOSSES),
    nu=st.sampled_from([1e-3, 0.1, 1.0, 43.0, 1e6]),
    eta=st.sampled_from([1e-3, 0.1, 10.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_stump_stays_in_the_ball_and_does_not_lose(shape, loss, nu, eta, seed):
    for dtype in (np.float32, np.float64):
        w, _, _, x, y = problem(*shape, loss=loss, dtype=dtype, seed=seed)
        history: list[float] = []
        got, theta0, theta1 = co2.fit_stump(
            x,
            y,
            w,
            3 if loss == "log" else None,
            nu=nu,
            eta=eta,
            batch=16,
            max_rounds=5,
            rng=0,
            history=history,
        )
        assert (got.astype(np.float64) ** 2).sum() <= nu
        assert np.isfinite(got).all()
        assert np.isfinite(theta0).all()
        assert np.isfinite(theta1).all()
        value = co2.surrogate(got, theta0, theta1, x, y, loss=loss)
        assert value == pytest.approx(min(history), rel=1e-4, abs=1e-4)
        assert min(history) <= history[0]
        assert len(history) <= 6


def test_stump_finds_an_oblique_split(twin, dtype):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(24, 2)), -np.ones((24, 1))], axis=1).astype(dtype)
    y = (x[:, 0] + x[:, 1] > 0.2).astype(np.int32)
    start = np.array([1, 0, 0], dtype)
    w, theta0, theta1 = co2.fit_stump(x, y, start, 2, eta=0.3, max_rounds=2, min_steps=20, rng=0)
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
    options = {"nu": 1.0, "eta": 0.01, "rng": 0}
    flat, *_ = co2.fit_stump(x, y, start, 2, **options)
    np.testing.assert_array_equal(flat, start)
    w, *_ = co2.fit_stump(x, y, start, 2, convex_rounds=1, **options)
    assert purity(w, x, y) < 0.75 * purity(start, x, y)


def test_stump_of_one_class(twin):
    x, y = np.random.default_rng(0).normal(size=(12, 3)), np.ones(12, np.int32)
    w, theta0, theta1 = co2.fit_stump(x, y, np.ones(3), 3, max_rounds=1, min_steps=5, rng=0)
    assert theta0.argmax() == theta1.argmax() == 1
    assert np.isfinite([*w, *theta0, *theta1]).all()


def test_no_rounds_is_the_start(twin, dtype):
    w, _, _, x, y = problem(20, 4, dtype=dtype)
    got, theta0, theta1 = co2.fit_stump(x, y, w, 3, nu=1e6, max_rounds=0, smooth=1.0)
    np.testing.assert_array_equal(got, w)
    right = x @ w >= 0
    for theta, side in ((theta0, ~right), (theta1, right)):
        counts = np.bincount(y[side], minlength=3) + 1.0
        np.testing.assert_allclose(theta, np.log(counts / counts.sum()), rtol=1e-6)


def test_weights_are_multiplicities(dtype):
    # The same samples in one batch: a weight of 2 is the sample twice, up to the order of sums.
    w, _, _, x, y = problem(15, 3, dtype=dtype)
    weights = np.random.default_rng(0).integers(1, 4, 15)
    often = np.repeat(np.arange(15), weights)
    options = {"n_classes": 3, "eta": 0.05, "batch": 100, "max_rounds": 3, "min_steps": 3, "rng": 0}
    one = co2.fit_stump(x, y, w, weights=weights.astype(dtype), **options)
    other = co2.fit_stump(x[often], y[often], w, **options)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3 if dtype == np.float32 else 1e-9)


def test_samples_without_weight_count_for_nothing(twin):
    w, _, _, x, y = problem(15, 3)
    weights = (np.arange(15) % 3 > 0).astype(float)
    heavy, options = weights > 0, {**QUICK, "max_rounds": 1, "rng": 0}
    same_bits(
        co2.fit_stump(x, y, w, 3, weights=weights, **options),
        co2.fit_stump(x[heavy], y[heavy], w, 3, **options),
    )


def stump_bits(dtype, loss):
    w, _, _, x, y = problem(77, 37, loss=loss, dtype=dtype)
    fitted = co2.fit_stump(x, y, w, 3 if loss == "log" else None, rng=0, eta=0.1, max_rounds=5)
    grads = co2.surrogate_grad(*fitted, x, y, loss=loss)
    return b"".join(a.tobytes() for a in (*fitted, *grads))


@pytest.mark.parametrize("loss", LOSSES)
def test_vector_paths_have_the_same_bits(dtype, loss, simd):
    found = set()
    for path in machine.simd_paths():
        simd(path)
        found.add(stump_bits(dtype, loss))
    assert len(found) == 1


# ---------------------------------------------------------------------------------------------- OC1


def purity(w, x, y, weights=None):
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
    w, _, _, x, y = problem(25, 4, loss=loss, dtype=dtype)
    weights = np.random.default_rng(2).integers(0, 3, 25).astype(dtype)
    n_classes = 3 if loss == "log" else None
    for options in ({"restarts": 2}, {"weights": weights, "jumps": 2}, {"min_samples_leaf": 4}):
        same_bits(
            [co2.fit_oc1(x, y, w, n_classes, rng=1, **options)],
            [reference(co2.fit_oc1, x, y, w, n_classes, rng=1, **options)],
        )


@pytest.mark.parametrize("criterion", ["entropy", "gini"])
def test_oc1_forest_equals_the_reference(dtype, criterion, reference):
    _, _, _, x, y = problem(30, 4, dtype=dtype)
    call = {"splitter": "oc1", "criterion": criterion, "jumps": 2, "rng": 5}
    same_bits(co2.grow(x, y, 2, **call), reference(co2.grow, x, y, 2, **call))


def test_oc1_leaves_no_better_step():
    # Where the search without jumps ends, no single weight can lower the entropy: tried on a fine grid.
    w, _, _, x, y = problem(40, 3, seed=3)
    found = co2.fit_oc1(x, y, w, 3, jumps=0)
    there = purity(found, x, y)
    assert there <= purity(w, x, y)
    for j in range(3):
        for step in np.linspace(-4, 4, 4001):
            other = found.copy()
            other[j] += step
            assert purity(other, x, y) >= there - 1e-9


def test_more_search_is_no_worse():
    w, _, _, x, y = problem(60, 5, seed=1)
    scores = [
        purity(co2.fit_oc1(x, y, w, 3, jumps=jumps, restarts=restarts, rng=0), x, y)
        for jumps, restarts in ((0, 0), (10, 0), (10, 10))
    ]
    assert scores[0] >= scores[1] >= scores[2] - 1e-9
    assert scores[2] < scores[0]


# ------------------------------------------------------------------------------------------ forests


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize(
    "options",
    [{}, {"bootstrap": False, "min_samples_leaf": 3}, {"max_depth": 2, "q": 1}, {"nu": 0.01}]
    + [{"min_samples_oblique": 9, "convex_rounds": 1}],
)
def test_forest_equals_the_reference(fast_twin, dtype, task, options, reference):
    _, _, _, x, y = problem(30, 5, loss="log" if task == "classification" else "squared", dtype=dtype)
    call = {"task": task, "rng": 5, **QUICK, "max_rounds": 2, "min_steps": 3, **options}
    got = co2.grow(fast_twin.array(x), fast_twin.array(y), 2, **call)
    same_bits(map_numpy(fast_twin, got), reference(co2.grow, x, y, 2, **call))


def test_gini_equals_the_reference(dtype, reference):
    _, _, _, x, y = problem(30, 5, dtype=dtype)
    call = {"criterion": "gini", "rng": 5, **QUICK}
    same_bits(co2.grow(x, y, 2, **call), reference(co2.grow, x, y, 2, **call))


def test_threads_do_not_change_bits(threads, dtype):
    _, _, _, x, y = problem(150, 6, dtype=dtype)
    found = []
    for n in (1, 2, 7):
        threads(n)
        forest = co2.grow(x, y, 9, eta=0.1, rng=1)
        found.append(b"".join(a.tobytes() for a in forest))
    assert found[0] == found[1] == found[2]


def test_a_forest_learns_its_samples(dtype):
    _, _, _, x, y = problem(200, 7, dtype=dtype)
    x[:, 0] = np.random.default_rng(4).permutation(200)  # no two samples alike
    forest = tree.check(co2.grow(x, y, 3, bootstrap=False, eta=0.1, rng=0))
    assert (tree.predict(forest, x).argmax(axis=1) == y).all()
    assert (forest.feature == -2).any()
    # Leaves of trees grown to purity hold one class.
    assert set(np.unique(forest.value)) == {0, 1}


def test_leaf_values_are_those_of_the_samples_that_walk_there(dtype):
    _, _, _, x, y = problem(300, 20, dtype=dtype)
    weights = np.random.default_rng(0).integers(1, 4, 300).astype(dtype)
    forest = co2.grow(x, y, 1, bootstrap=False, weights=weights, max_depth=3, eta=0.1, rng=0)
    leaf = tree.leaves(forest, x)[:, 0]
    for node in np.unique(leaf):
        here = leaf == node
        share = np.bincount(y[here], weights[here], 3) / weights[here].sum()
        np.testing.assert_allclose(forest.value[forest.left[node]], share, rtol=1e-6)


def test_a_stump_that_empties_a_side_gives_way():
    # Rare labels without a pattern: the bound is least where all go one way.
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
    forest = co2.grow(x[:400], y[:400], 20, task="regression", eta=0.03, min_samples_leaf=3, rng=0)
    error = ((tree.predict(forest, x[400:]) - y[400:]) ** 2).mean(axis=0)
    assert (error < 0.35 * y[400:].var(axis=0)).all()


def test_bags_are_weights():
    _, _, _, x, y = problem(60, 4)
    bags = growth.draw_bags(60, 3, rng=9)
    same_bits(co2.grow(x, y, 3, rng=9, **QUICK), co2.grow(x, y, 3, bootstrap=bags, rng=9, **QUICK))


def test_digits_below_the_random_forest():
    data = load_digits()
    x, x_test = (a.astype(np.float32) / 16 for a in (data.x_train, data.x_test))
    y, y_test = data.y_train.astype(np.int32), data.y_test
    errors = {}
    for name, forest in (
        ("co2", co2.grow(x, y, 10, rng=0)),
        ("classic", classic.grow(x, y, 10, rng=0)),
    ):
        errors[name] = (tree.predict(forest, x_test).argmax(axis=1) != y_test).mean()
    assert errors["co2"] < 0.75 * errors["classic"]


def test_progress_ends_the_growth(threads):
    threads(1)
    _, _, _, x, y = problem(40, 3)
    seen = []
    forest = co2.grow(
        x, y, 5, rng=0, progress=lambda done, total: seen.append((done, total)) or done == 2, **QUICK
    )
    assert seen == [(1, 5), (2, 5)]
    assert len(forest.tree_start) == 3
    same_bits(forest, co2.grow(x, y, 2, rng=0, **QUICK))


def test_search():
    _, _, _, x, y = problem(100, 3)
    seen = []
    part = co2.search(
        x,
        y,
        2,
        nu=[1, 10],
        eta=[0.1, 0.03],
        progress=lambda done, total, trials: seen.append(done) or done == 3,
    )
    assert seen == [1, 2, 3]
    assert part.nu.tolist() == [1, 1, 10]
    seen.clear()
    more = {"nu": [1, 10], "eta": [0.1, 0.03]}
    whole = co2.search(x, y, 2, **more, trials=part, progress=lambda done, total, trials: seen.append(done))
    assert seen == [4]
    same_bits(whole, co2.search(x, y, 2, **more))
    assert ((whole.error >= 0) & (whole.error <= 1)).all()
    assert whole.q.tolist() == [2] * 4
    # The errors are those of a forest that never saw the held-out part.
    order = np.random.default_rng(0).permutation(100)
    kept, held = np.sort(order[20:]), np.sort(order[:20])
    forest = co2.grow(x[kept], y[kept], 2, nu=1, eta=0.1, q=2, n_classes=3, rng=0)
    assert whole.error[0] == (tree.predict(forest, x[held]).argmax(axis=1) != y[held]).mean()
    forest = co2.grow(
        x[kept], y[kept], 2, nu=1, eta=0.1, q=2, n_classes=3, rng=0, bootstrap=False, max_rounds=2
    )
    fixed = co2.search(x, y, 2, nu=[1], eta=[0.1], settings={"bootstrap": False, "max_rounds": 2})
    assert fixed.error[0] == (tree.predict(forest, x[held]).argmax(axis=1) != y[held]).mean()
    squares = co2.search(x, x[:, 0].copy(), 2, nu=[1], eta=[0.01], task="regression")
    assert 0 < squares.error[0] < x[:, 0].var()


# ---------------------------------------------------------------------------------------- bad input


def bad_calls():
    w, theta0, theta1, x, y = problem(10, 3)
    at = {"w": w, "theta0": theta0, "theta1": theta1, "x": x, "y": y}
    for name, value, error in (
        ("w", w[None], ValueError),
        ("w", w.astype(np.float32), TypeError),
        ("theta0", theta0[:, None], ValueError),
        ("theta1", np.full(3, np.nan), ValueError),
        ("x", x.astype(int), TypeError),
        ("x", np.asfortranarray(x), ValueError),
        ("x", np.full((10, 3), 1e20), ValueError),
        ("x", x.tolist(), TypeError),
        ("y", y + 3, IndexError),
        ("y", y.astype(np.int64), TypeError),
        ("y", y[:9], ValueError),
    ):
        yield f"surrogate {name}", lambda a={**at, name: value}: co2.surrogate(**a), error, name
        yield f"surrogate_grad {name}", lambda a={**at, name: value}: co2.surrogate_grad(**a), error, name
    yield "loss", lambda: co2.surrogate(**at, loss="hinge"), ValueError, "loss"
    yield "weights", lambda: co2.surrogate(**at, weights=-np.ones(10)), ValueError, "weights"
    yield "targets", lambda: co2.surrogate(**{**at, "y": np.ones((10, 2))}, loss="squared"), ValueError, "y"
    yield "few targets", lambda: co2.surrogate(**{**at, "y": np.ones(10)}, loss="squared"), ValueError, "y"
    settings = (
        ("nu", 0, ValueError), ("nu", -1.0, ValueError), ("nu", np.nan, ValueError), ("nu", "1", TypeError),
        ("eta", 0.0, ValueError), ("eta", -0.1, ValueError), ("momentum", 1.5, ValueError),
        ("decay", 0.0, ValueError), ("tolerance", -1.0, ValueError), ("smooth", 0.0, ValueError),
        ("tau", 0, ValueError), ("batch", 0, ValueError), ("min_steps", 0, ValueError),
        ("patience", -1, ValueError), ("max_rounds", -1, ValueError), ("max_rounds", 1.5, TypeError),
        ("convex_rounds", -1, ValueError),
    )  # fmt: skip
    for name, value, error in settings:
        yield f"stump {name}", lambda a={name: value}: co2.fit_stump(x, y, w, 3, **a), error, name
        yield f"grow {name}", lambda a={name: value}: co2.grow(x, y, 2, **a), error, name
    none = np.zeros((0, 3)), np.zeros(0, np.int32)
    for name, call, error, word in (
        ("stump w", lambda: co2.fit_stump(x, y, w[:2], 3), ValueError, "w"),
        ("stump label", lambda: co2.fit_stump(x, y, w, 2), IndexError, "y"),
        ("stump classes", lambda: co2.fit_stump(x, y, w, 0), ValueError, "n_classes"),
        ("stump of none", lambda: co2.fit_stump(*none, w, 3), ValueError, "x"),
        ("stump weights", lambda: co2.fit_stump(x, y, w, 3, weights=np.zeros(10)), ValueError, "weights"),
        ("grow of none", lambda: co2.grow(*none, 2), ValueError, "x"),
        ("grow nan", lambda: co2.grow(np.full((10, 3), np.nan), y, 2), ValueError, "x"),
        ("grow label", lambda: co2.grow(x, y - 1, 2), IndexError, "y"),
        ("grow classes", lambda: co2.grow(x, y, 2, n_classes=2), IndexError, "y"),
        ("grow trees", lambda: co2.grow(x, y, 0), ValueError, "n_trees"),
        ("grow q", lambda: co2.grow(x, y, 2, q=4), ValueError, "q"),
        ("grow few", lambda: co2.grow(x, y, 2, min_samples_oblique=0), ValueError, "min_samples_oblique"),
        ("grow weights", lambda: co2.grow(x, y, 2, weights=np.zeros(10)), ValueError, "weights"),
        ("grow nan weights", lambda: co2.grow(x, y, 2, weights=np.full(10, np.nan)), ValueError, "weights"),
        (
            "grow bags",
            lambda: co2.grow(x, y, 2, bootstrap=np.ones((1, 10), np.int32)),
            ValueError,
            "bootstrap",
        ),
        ("grow task", lambda: co2.grow(x, y, 2, task="ranking"), ValueError, "task"),
        ("grow criterion", lambda: co2.grow(x, y, 2, criterion="squared_error"), ValueError, "criterion"),
        ("grow targets", lambda: co2.grow(x, y, 2, task="regression"), TypeError, "y"),
        ("grow splitter", lambda: co2.grow(x, y, 2, splitter="oc2"), ValueError, "splitter"),
        ("grow jumps", lambda: co2.grow(x, y, 2, splitter="oc1", jumps=-1), ValueError, "jumps"),
        ("oc1 w", lambda: co2.fit_oc1(x, y, w[:2], 3), ValueError, "w"),
        ("oc1 label", lambda: co2.fit_oc1(x, y, w, 2), IndexError, "y"),
        ("oc1 restarts", lambda: co2.fit_oc1(x, y, w, 3, restarts=-1), ValueError, "restarts"),
        ("oc1 leaf", lambda: co2.fit_oc1(x, y, w, 3, min_samples_leaf=0), ValueError, "min_samples_leaf"),
        ("oc1 criterion", lambda: co2.fit_oc1(x, y, w, 3, criterion="gain"), ValueError, "criterion"),
        ("oc1 weights", lambda: co2.fit_oc1(x, y, w, 3, weights=np.zeros(10)), ValueError, "weights"),
        ("search part", lambda: co2.search(x, y, held_out=0.01), ValueError, "held_out"),
        ("search grid", lambda: co2.search(x, y, nu=[]), ValueError, "nu"),
        ("search nu", lambda: co2.search(x, y, nu=[0]), ValueError, "nu"),
        ("search q", lambda: co2.search(x, y, q=[9]), ValueError, "q"),
        ("search settings", lambda: co2.search(x, y, settings={"nu": 1}), ValueError, "settings"),
        ("search y", lambda: co2.search(x, y[:5]), ValueError, "y"),
    ):
        yield name, call, error, word


@pytest.mark.parametrize(
    ("call", "error", "word"), [pytest.param(*rest, id=name) for name, *rest in bad_calls()]
)
def test_bad_input_is_told(call, error, word):
    with pytest.raises(error, match=rf"\b{word}\b"):
        call()


def test_unchecked_still_refuses_shapes():
    w, theta0, theta1, x, y = problem(10, 3)
    with hforest.unchecked():
        assert np.isfinite(co2.surrogate(w, theta0, theta1, x, y))
        with pytest.raises(ValueError, match="expected shape"):
            co2.surrogate(w[:2], theta0, theta1, x, y)
