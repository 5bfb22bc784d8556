"""Random forests: what users of scikit-learn expect of them."""

import numpy as np
import pytest

import hforest
from hforest import classic, tree
from hforest.demo import load_digits


def blobs(n=200, n_features=5, n_classes=3, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % n_classes).astype(np.int32)
    return (rng.normal(size=(n, n_features)) + y[:, None]).astype(dtype), y


def error(forest, x, y):
    return float((tree.predict(forest, x).argmax(axis=1) != y).mean())


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    return (
        data.x_train.astype(np.float32), data.y_train.astype(np.int32), data.x_test.astype(np.float32),
        data.y_test.astype(np.int32),
    )  # fmt: skip


# ---------------------------------------------------------------------------------------- accuracy


@pytest.mark.parametrize("splitter", ["exact", "binned"])
def test_digits(digits, splitter):
    x, y, x_test, y_test = digits
    assert error(classic.grow(x, y, 100, splitter=splitter, rng=0), x_test, y_test) < 0.035


def test_digits_completely_random(digits):
    x, y, x_test, y_test = digits
    assert error(classic.grow_random(x, y, 100, rng=0), x_test, y_test) < 0.045


def test_as_good_as_scikit_learn(digits):
    ensemble = pytest.importorskip("sklearn.ensemble")
    x, y, x_test, y_test = digits
    ours = np.mean([error(classic.grow(x, y, 50, rng=seed), x_test, y_test) for seed in range(3)])
    theirs = np.mean([
        1 - ensemble.RandomForestClassifier(50, random_state=seed).fit(x, y).score(x_test, y_test)
        for seed in range(3)
    ])  # fmt: skip
    assert ours < theirs + 0.005


def test_regression_as_good_as_scikit_learn():
    ensemble = pytest.importorskip("sklearn.ensemble")
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(1500, 6))
    y = np.stack([10 * np.sin(np.pi * x[:, 0] * x[:, 1]), 20 * (x[:, 2] - 0.5) ** 2 + 5 * x[:, 3]], axis=1)
    forest = classic.grow(x[:1000], y[:1000], 50, task="regression", max_features=None, rng=0)
    ours = ((tree.predict(forest, x[1000:]) - y[1000:]) ** 2).mean()
    model = ensemble.RandomForestRegressor(50, random_state=0).fit(x[:1000], y[:1000])
    assert ours < 1.1 * ((model.predict(x[1000:]) - y[1000:]) ** 2).mean()


def test_the_first_levels_on_all_features_are_scikit_learns():
    # Continuous data, nodes of many samples: no ties, so that both take the same splits.
    tree_module = pytest.importorskip("sklearn.tree")
    x, y = blobs(600, dtype=np.float32)
    want = tree.from_sklearn(tree_module.DecisionTreeClassifier(max_depth=3).fit(x, y))
    got = classic.grow(x, y, 1, bootstrap=False, max_features=None, max_depth=3, rng=0)
    np.testing.assert_array_equal(got.feature, want.feature)
    np.testing.assert_array_equal(got.left, want.left)
    np.testing.assert_allclose(got.threshold, want.threshold, rtol=1e-6)
    np.testing.assert_allclose(got.value, want.value, rtol=1e-6)
    np.testing.assert_allclose(got.gain, want.gain, rtol=1e-4)


# ------------------------------------------------------------------------------------------ meaning


def test_binned_is_exact_on_few_values():
    x, y = blobs()
    x = np.round(4 * x)
    for a, b in zip(
        classic.grow(x, y, 5, rng=0), classic.grow(x, y, 5, splitter="binned", rng=0), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_leaf_values_are_shares():
    x, y = blobs()
    forest = classic.grow(x, y, 5, max_depth=2, rng=0)
    np.testing.assert_allclose(forest.value.sum(axis=1), 1)
    stump = classic.grow(x, y, 1, max_depth=0, bootstrap=False, rng=0)
    np.testing.assert_allclose(stump.value[0], np.bincount(y) / len(y))


def test_float32_stays_float32():
    x, y = blobs(dtype=np.float32)
    forest = classic.grow(x, y, 2, rng=0)
    assert forest.threshold.dtype == forest.value.dtype == forest.gain.dtype == np.float32


def test_a_weight_of_two_is_a_sample_twice():
    x, y = blobs(60)
    weights = np.random.default_rng(0).integers(0, 3, 60).astype(float)
    times = np.repeat(np.arange(60), weights.astype(int))
    got = classic.grow(x, y, 3, weights=weights, bootstrap=False, max_features=None, rng=0)
    want = classic.grow(x[times], y[times], 3, bootstrap=False, max_features=None, rng=0)
    for name in ("feature", "threshold", "left"):
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name), err_msg=name)
    np.testing.assert_allclose(got.value, want.value, rtol=1e-12)


def test_class_weights():
    x, y = blobs(120, n_classes=2)
    y[:100] = 0
    plain = classic.grow(x, y, 20, max_depth=2, rng=0)
    balanced = classic.grow(x, y, 20, max_depth=2, class_weights="balanced", rng=0)
    assert tree.predict(balanced, x)[:, 1].mean() > 1.5 * tree.predict(plain, x)[:, 1].mean()
    counts = np.bincount(y)
    same = classic.grow(x, y, 20, max_depth=2, class_weights=60 / counts, rng=0)
    by_name = classic.grow(x, y, 20, max_depth=2, class_weights={0: 60 / counts[0], 1: 60 / counts[1]}, rng=0)
    for forest in (same, by_name):
        for a, b in zip(forest, balanced, strict=True):
            np.testing.assert_array_equal(a, b)


def test_out_of_bag_error_foresees_the_test_error(digits):
    x, y, x_test, y_test = digits
    forest = classic.grow(x, y, 60, rng=5)
    bags = classic.draw_bags(len(x), 60, rng=5)
    p = classic.out_of_bag(forest, x, bags)
    assert not np.isnan(p).any()
    unseen = (p.argmax(axis=1) != y).mean()
    assert error(forest, x, y) == 0
    assert abs(unseen - error(forest, x_test, y_test)) < 0.015
    same = classic.grow(x, y, 60, bootstrap=bags, rng=5)
    for a, b in zip(same, forest, strict=True):
        np.testing.assert_array_equal(a, b)


def test_out_of_bag_by_hand():
    x, y = blobs(30)
    forest = classic.grow(x, y, 3, rng=5)
    bags = classic.draw_bags(30, 3, rng=5)
    got = classic.out_of_bag(forest, x, bags)
    leaf = tree.leaves(forest, x)
    for i in range(30):
        out = [m for m in range(3) if bags[m, i] == 0]
        if not out:
            assert np.isnan(got[i]).all()
            continue
        rows = []
        for m in out:
            root = forest.tree_start[m]
            rows.append(forest.value[(root + m) // 2 + forest.left[root + leaf[i, m]]])
        np.testing.assert_allclose(got[i], np.mean(rows, axis=0), rtol=1e-12)


@pytest.mark.parametrize(
    ("max_features", "n_drawn"), [("sqrt", 3), (None, 9), (0.5, 4), (0.01, 1), (7, 7), (np.int64(2), 2)]
)
def test_features_drawn(monkeypatch, max_features, n_drawn):
    x, y = blobs(20, 9)
    seen = []

    def spy(*args, **settings):
        seen.append(settings["n_drawn"])
        return real(*args, **settings)

    real = hforest.growth.grow
    monkeypatch.setattr(hforest.growth, "grow", spy)
    classic.grow(x, y, 1, max_features=max_features, rng=0)
    assert seen == [n_drawn]


# --------------------------------------------------------------------------------- edges, bad input


def test_edges():
    x, y = blobs(20)
    one_class = classic.grow(x, np.zeros(20, np.int32), 3, rng=0)
    assert len(one_class.feature) == 3
    assert (tree.predict(one_class, x) == 1).all()
    alone = classic.grow(x[:1], y[:1], 3, n_classes=4, rng=0)
    assert tree.predict(alone, x[:1]).tolist() == [[1, 0, 0, 0]]
    constant = classic.grow(np.ones((20, 3)), y, 3, bootstrap=False, rng=0)
    assert len(constant.feature) == 3
    np.testing.assert_allclose(tree.predict(constant, np.ones((1, 3)))[0], np.bincount(y) / 20)
    many = classic.grow(x[:3], np.array([0, 50, 99], np.int32), 5, bootstrap=False, rng=0)
    assert (tree.predict(many, x[:3]).argmax(axis=1) == [0, 50, 99]).all()


@pytest.mark.parametrize("grow", [classic.grow, classic.grow_random])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"y": np.zeros(19, np.int32)}, ValueError, r"y: expected shape \(n,\) = \(20,\)"),
        ({"y": np.zeros(20)}, TypeError, "y: expected dtype int32"),
        ({"y": np.full(20, -1, np.int32)}, IndexError, "y: expected 0 <= index"),
        ({"n_classes": 2}, IndexError, "n_classes = 2, got 2"),
        ({"weights": -np.ones(20)}, ValueError, "weights: expected numbers from 0"),
        ({"weights": np.full(20, np.nan)}, ValueError, "weights: expected finite"),
        ({"weights": np.zeros(20)}, ValueError, "weights: expected some above 0"),
        ({"weights": np.ones(20, np.float32)}, TypeError, "weights: expected dtype float64"),
        ({"class_weights": "even"}, ValueError, "class_weights: expected one of 'balanced'"),
        ({"class_weights": {7: 1.0}}, ValueError, "class_weights"),
        ({"class_weights": {0: -1.0}}, ValueError, "class_weights"),
        ({"class_weights": np.ones(2)}, ValueError, "class_weights: expected shape"),
        ({"task": "ranking"}, ValueError, "task: expected one of"),
        ({"task": "regression"}, TypeError, "y: expected dtype float64"),
        ({"task": "regression", "y": np.zeros(20), "n_classes": 3}, ValueError, "n_classes: expected None"),
        ({"x": np.full((20, 5), np.nan)}, ValueError, "x: expected finite"),
        ({"x": np.zeros((20, 5), int)}, TypeError, "x: expected dtype float32 or float64"),
        ({"x": np.zeros((20, 0))}, ValueError, "n_features"),
        ({"x": np.zeros((0, 5)), "y": np.zeros(0, np.int32)}, ValueError, "samples, got 0"),
        ({"n_trees": 0}, ValueError, "n_trees"),
    ],
)
def test_bad_input(grow, change, error, message):
    x, y = blobs(20)
    settings = {"x": x, "y": y, "n_trees": 2} | change
    with pytest.raises(error, match=message):
        grow(settings.pop("x"), settings.pop("y"), settings.pop("n_trees"), **settings)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"splitter": "best"}, ValueError, "splitter: expected one of 'exact', 'binned'"),
        ({"criterion": "log"}, ValueError, "criterion: expected one of 'gini', 'entropy'"),
        ({"max_features": "log2"}, ValueError, "max_features: expected one of 'sqrt'"),
        ({"max_features": 6}, ValueError, "max_features: expected 1 to 5"),
        ({"max_features": 1.5}, ValueError, "max_features: expected a finite number"),
    ],
)
def test_bad_settings(change, error, message):
    x, y = blobs(20)
    with pytest.raises(error, match=message):
        classic.grow(x, y, 2, **change)


def test_bad_bags():
    x, y = blobs(20)
    forest = classic.grow(x, y, 2, rng=0)
    with pytest.raises(ValueError, match=r"bags: expected shape \(2, 20\)"):
        classic.out_of_bag(forest, x, np.zeros((2, 19), np.int32))
    with pytest.raises(TypeError, match="bags: expected dtype int32"):
        classic.out_of_bag(forest, x, np.zeros((2, 20)))
