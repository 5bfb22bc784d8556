"""Random forests: behaviour that users of scikit-learn expect."""

import numpy as np
import pytest
from conftest import assert_same_bits, error

from hforest import classic, growth, tree
from hforest.core import check, supervised


def blobs(n=200, n_features=5, n_classes=3, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % n_classes).astype(np.int32)
    return (rng.normal(size=(n, n_features)) + y[:, None]).astype(dtype), y


# ---------------------------------------------------------------------------------------- accuracy


@pytest.mark.parametrize("max_bins", [None, 256])
def test_digits(digits, max_bins):
    x, y, x_test, y_test = digits
    assert error(classic.grow(x, y, 100, max_bins=max_bins, rng=0), x_test, y_test) < 0.035


def test_digits_completely_random(digits):
    x, y, x_test, y_test = digits
    assert error(classic.grow_random(x, y, 100, rng=0), x_test, y_test) < 0.045


@pytest.mark.libraries
def test_extra_trees_are_as_good_as_scikit_learns(digits):
    ensemble = pytest.importorskip("sklearn.ensemble")
    x, y, x_test, y_test = digits
    ours = np.mean([error(classic.grow_extra(x, y, 50, rng=seed), x_test, y_test) for seed in range(3)])
    theirs = np.mean([
        1 - ensemble.ExtraTreesClassifier(50, random_state=seed).fit(x, y).score(x_test, y_test)
        for seed in range(3)
    ])  # fmt: skip
    assert abs(ours - theirs) < 0.006


@pytest.mark.libraries
def test_extra_trees_fit_targets_as_well_as_scikit_learns():
    ensemble = pytest.importorskip("sklearn.ensemble")
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(1500, 6))
    y = np.stack([10 * np.sin(np.pi * x[:, 0] * x[:, 1]), 20 * (x[:, 2] - 0.5) ** 2 + 5 * x[:, 3]], axis=1)
    forest = classic.grow_extra(x[:1000], y[:1000], 50, task="regression", max_features=None, rng=0)
    ours = ((tree.predict(forest, x[1000:]) - y[1000:]) ** 2).mean()
    model = ensemble.ExtraTreesRegressor(50, random_state=0).fit(x[:1000], y[:1000])
    assert 0.9 < ours / ((model.predict(x[1000:]) - y[1000:]) ** 2).mean() < 1.1


@pytest.mark.libraries
def test_as_good_as_scikit_learn(digits):
    ensemble = pytest.importorskip("sklearn.ensemble")
    x, y, x_test, y_test = digits
    ours = np.mean([error(classic.grow(x, y, 50, rng=seed), x_test, y_test) for seed in range(3)])
    theirs = np.mean([
        1 - ensemble.RandomForestClassifier(50, random_state=seed).fit(x, y).score(x_test, y_test)
        for seed in range(3)
    ])  # fmt: skip
    assert ours < theirs + 0.005


@pytest.mark.libraries
def test_regression_as_good_as_scikit_learn():
    ensemble = pytest.importorskip("sklearn.ensemble")
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(1500, 6))
    y = np.stack([10 * np.sin(np.pi * x[:, 0] * x[:, 1]), 20 * (x[:, 2] - 0.5) ** 2 + 5 * x[:, 3]], axis=1)
    forest = classic.grow(x[:1000], y[:1000], 50, task="regression", max_features=None, rng=0)
    ours = ((tree.predict(forest, x[1000:]) - y[1000:]) ** 2).mean()
    model = ensemble.RandomForestRegressor(50, random_state=0).fit(x[:1000], y[:1000])
    assert ours < 1.1 * ((model.predict(x[1000:]) - y[1000:]) ** 2).mean()


@pytest.mark.libraries
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


def test_bins_are_exact_on_few_values():
    x, y = blobs()
    x = np.round(4 * x)
    for a, b in zip(classic.grow(x, y, 5, rng=0), classic.grow(x, y, 5, max_bins=256, rng=0), strict=True):
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
    got = classic.grow(x, y, 3, sample_weight=weights, bootstrap=False, max_features=None, rng=0)
    want = classic.grow(x[times], y[times], 3, bootstrap=False, max_features=None, rng=0)
    for name in ("feature", "threshold", "left"):
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name), err_msg=name)
    np.testing.assert_allclose(got.value, want.value, rtol=1e-12)


def test_class_weight():
    x, y = blobs(120, n_classes=2)
    y[:100] = 0
    plain = classic.grow(x, y, 20, max_depth=2, rng=0)
    balanced = classic.grow(x, y, 20, max_depth=2, class_weight="balanced", rng=0)
    assert tree.predict(balanced, x)[:, 1].mean() > 1.5 * tree.predict(plain, x)[:, 1].mean()
    counts = np.bincount(y)
    same = classic.grow(x, y, 20, max_depth=2, class_weight=60 / counts, rng=0)
    by_name = classic.grow(x, y, 20, max_depth=2, class_weight={0: 60 / counts[0], 1: 60 / counts[1]}, rng=0)
    for forest in (same, by_name):
        for a, b in zip(forest, balanced, strict=True):
            np.testing.assert_array_equal(a, b)


def test_out_of_bag_error_predicts_the_test_error(digits):
    x, y, x_test, y_test = digits
    forest = classic.grow(x, y, 60, rng=5)
    counts = growth.bootstrap_counts(len(x), 60, rng=5)
    p = tree.out_of_bag(forest, x, counts)
    assert not np.isnan(p).any()
    unseen = (p.argmax(axis=1) != y).mean()
    assert error(forest, x, y) == 0
    assert abs(unseen - error(forest, x_test, y_test)) < 0.015
    same = classic.grow(x, y, 60, bootstrap=counts, rng=5)
    for a, b in zip(same, forest, strict=True):
        np.testing.assert_array_equal(a, b)


def test_out_of_bag_by_hand():
    x, y = blobs(30)
    forest = classic.grow(x, y, 3, rng=5)
    counts = growth.bootstrap_counts(30, 3, rng=5)
    got = tree.out_of_bag(forest, x, counts)
    leaf = tree.apply(forest, x)
    for i in range(30):
        out = [m for m in range(3) if counts[m, i] == 0]
        if not out:
            assert np.isnan(got[i]).all()
            continue
        rows = []
        for m in out:
            root = forest.tree_start[m]
            rows.append(forest.value[(root + m) // 2 + forest.left[root + leaf[i, m]]])
        np.testing.assert_allclose(got[i], np.mean(rows, axis=0), rtol=1e-12)


@pytest.mark.parametrize(
    ("max_features", "n_sampled"), [("sqrt", 3), (None, 9), (0.5, 4), (0.01, 1), (7, 7), (np.int64(2), 2)]
)
def test_features_sampled(monkeypatch, max_features, n_sampled):
    x, y = blobs(20, 9)
    seen = []

    def spy(*args, **settings):
        seen.append(settings["max_features"])
        return real(*args, **settings)

    real = growth.unchecked.on_bins
    monkeypatch.setattr(growth.unchecked, "on_bins", spy)
    classic.grow(x, y, 1, max_features=max_features, rng=0)
    assert seen == [n_sampled]


@pytest.mark.parametrize("grow", [classic.grow, classic.grow_extra])
def test_default_settings(grow):
    # The square root of the number of features, in a regression all; 100 trees.
    x, y = blobs(40, 9)
    for task, n_sampled in (("classification", 3), ("regression", 9)):
        got = grow(x, y, task=task, rng=0)
        want = grow(x, y, 100, max_features=n_sampled, task=task, rng=0)
        assert len(got.tree_start) == 101
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("grow", [classic.grow, classic.grow_extra, classic.grow_random])
def test_samples_and_labels_are_scanned_once(monkeypatch, grow):
    x, y = blobs(20)
    seen = []
    spied = (
        (check, "finite"),
        (check, "finite_or_missing"),
        (supervised, "bounded"),
        (supervised, "labels"),
        (growth.checks, "check_bins"),
    )
    for module, name in spied:
        real = getattr(module, name)

        def spy(*args, _name=name, _real=real, **settings):
            seen.append(args[0] if _name in ("finite", "finite_or_missing", "bounded") else _name)
            return _real(*args, **settings)

        monkeypatch.setattr(module, name, spy)
    grow(x, y, 2, sample_weight=np.ones(20), rng=0)
    assert sorted(seen) == ["labels", "sample_weight", "x"]


# --------------------------------------------------------------------------------- edges, bad input


def test_edges():
    x, y = blobs(20)
    one_class = classic.grow(x, np.zeros(20, np.int32), 3, rng=0)
    assert len(classic.grow_extra(x, np.zeros(20, np.int32), 3, rng=0).feature) == 3
    assert len(classic.grow_extra(np.ones((20, 3)), y, 3, rng=0).feature) == 3
    assert tree.predict(classic.grow_extra(x[:1], y[:1], 3, n_classes=4, rng=0), x[:1])[0, 0] == 1
    assert len(one_class.feature) == 3
    assert (tree.predict(one_class, x) == 1).all()
    alone = classic.grow(x[:1], y[:1], 3, n_classes=4, rng=0)
    assert tree.predict(alone, x[:1]).tolist() == [[1, 0, 0, 0]]
    constant = classic.grow(np.ones((20, 3)), y, 3, bootstrap=False, rng=0)
    assert len(constant.feature) == 3
    np.testing.assert_allclose(tree.predict(constant, np.ones((1, 3)))[0], np.bincount(y) / 20)
    many = classic.grow(x[:3], np.array([0, 50, 99]), 5, n_classes=100, bootstrap=False, rng=0)
    assert (tree.predict(many, x[:3]).argmax(axis=1) == [0, 50, 99]).all()


@pytest.mark.parametrize("grow", [classic.grow, classic.grow_extra, classic.grow_random])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"y": np.zeros(19, np.int32)}, ValueError, r"y: expected shape \(n_samples,\) = \(20,\)"),
        ({"y": np.zeros(20)}, TypeError, "y: expected labels of an integer or bool dtype, got float64"),
        ({"y": np.array(["a", "b"] * 10)}, TypeError, "number the classes with numpy.unique"),
        (
            {"y": np.arange(20) % 3 + 1},
            ValueError,
            "got none of class 0; renumber the classes with numpy.unique",
        ),
        ({"y": np.full(20, -1, np.int32)}, IndexError, "y: expected labels of at least 0, got -1"),
        ({"n_classes": 2}, IndexError, "n_classes = 2, got 2"),
        ({"sample_weight": -np.ones(20)}, ValueError, "sample_weight: expected numbers from 0"),
        ({"sample_weight": np.full(20, np.nan)}, ValueError, "sample_weight: expected finite"),
        ({"sample_weight": np.zeros(20)}, ValueError, "sample_weight: expected at least one weight above 0"),
        ({"sample_weight": np.ones(19)}, ValueError, "sample_weight: expected shape"),
        (
            {"class_weight": np.zeros(3)},
            ValueError,
            "class_weight: expected at least one sample of weight above 0",
        ),
        ({"class_weight": "even"}, ValueError, "class_weight: expected one of 'balanced'"),
        ({"class_weight": {7: 1.0}}, ValueError, "class_weight"),
        ({"class_weight": {0: -1.0}}, ValueError, "class_weight"),
        ({"class_weight": np.ones(2)}, ValueError, "class_weight: expected shape"),
        ({"task": "ranking"}, ValueError, "task: expected one of"),
        (
            {"task": "regression", "class_weight": "balanced"},
            ValueError,
            "class_weight: expected None with task",
        ),
        ({"task": "regression", "y": np.full(20, np.nan)}, ValueError, "y: expected finite"),
        ({"task": "regression", "y": np.zeros(20), "n_classes": 3}, ValueError, "n_classes: expected None"),
        ({"x": np.full((20, 5), np.inf)}, ValueError, "x: expected finite"),
        ({"x": np.zeros((20, 5), complex)}, TypeError, "x: expected an array of real numbers"),
        ({"x": np.zeros(20)}, ValueError, r"pass \[x\] for one sample"),
        ({"x": np.zeros((20, 0))}, ValueError, "features, got 0"),
        ({"x": np.zeros((0, 5)), "y": np.zeros(0, np.int32)}, ValueError, "samples, got 0"),
        ({"n_trees": 0}, ValueError, "n_trees"),
        ({"progress": 3}, TypeError, "progress: expected None, True or a function, got int"),
        ({"rng": True}, TypeError, "rng: expected"),
        ({"bootstrap": "yes"}, ValueError, "bootstrap: expected"),
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
        ({"max_bins": 0}, ValueError, "max_bins: expected 1 to 256, got 0"),
        ({"max_bins": "binned"}, TypeError, "max_bins: expected an int"),
        ({"criterion": "log"}, ValueError, "criterion: expected one of 'gini', 'entropy'"),
        ({"max_features": "log2"}, ValueError, "max_features: expected one of 'auto', 'sqrt'"),
        ({"max_features": 6}, ValueError, "max_features: expected 1 to 5"),
        ({"max_features": 1.5}, ValueError, "max_features: expected a finite number"),
    ],
)
def test_bad_settings(change, error, message):
    x, y = blobs(20)
    with pytest.raises(error, match=message):
        classic.grow(x, y, 2, **change)


def test_bad_counts():
    x, y = blobs(20)
    forest = classic.grow(x, y, 2, rng=0)
    with pytest.raises(ValueError, match=r"counts: expected shape \(n_trees, n_samples\) = \(2, 20\)"):
        tree.out_of_bag(forest, x, np.zeros((2, 19), np.int32))
    with pytest.raises(TypeError, match="counts: expected an array of an integer dtype"):
        tree.out_of_bag(forest, x, np.zeros((2, 20)))
    with pytest.raises(ValueError, match="counts: expected counts from 0"):
        tree.out_of_bag(forest, x, np.full((2, 20), -1))


# ----------------------------------------------------------------------------------- lenient input


class Table:
    """An object of numbers that converts itself to an array."""

    def __init__(self, a):
        self.a = a

    def __array__(self, dtype=None, copy=None):
        return np.array(self.a, dtype)


@pytest.mark.parametrize("grow", [classic.grow, classic.grow_extra, classic.grow_random])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_layouts_and_tables_change_nothing(grow, dtype):
    x, y = blobs(80, dtype=dtype)
    want = grow(x, y, 3, rng=0)
    reversed_x = np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1]
    for other in (np.asfortranarray(x), reversed_x, np.repeat(x, 2, axis=1)[:, ::2], Table(x)):
        assert_same_bits(grow(other, y, 3, rng=0), want)
        assert_same_bits(grow(other, Table(y), 3, rng=0), want)


@pytest.mark.libraries
@pytest.mark.parametrize("grow", [classic.grow, classic.grow_extra, classic.grow_random])
def test_data_frames(grow):
    pandas = pytest.importorskip("pandas")
    x, y = blobs(80)
    want = grow(x, y, 3, rng=0)
    frame = pandas.DataFrame(x, columns=list("abcde"))
    assert_same_bits(grow(frame, pandas.Series(y), 3, rng=0), want)
    frame["a"] = np.round(x[:, 0]).astype(np.int64)
    mixed = grow(frame, y, 3, sample_weight=pandas.Series(np.ones(80)), rng=0)
    assert_same_bits(mixed, grow(frame.to_numpy(), y, 3, rng=0))
    frame["a"] = pandas.Series(["red", "blue"] * 40)
    with pytest.raises(TypeError, match="x: expected numbers, got 'red'"):
        grow(frame, y, 3, rng=0)


@pytest.mark.parametrize("grow", [classic.grow, classic.grow_extra, classic.grow_random])
@pytest.mark.parametrize("given", [bool, np.int8, np.uint16, np.int64, np.float16])
def test_dtypes_of_samples(grow, given):
    x, y = blobs(80)
    x = (3 * x).astype(given)
    dtype = np.float64 if given is np.int64 else np.float32
    forest = grow(x, y, 3, rng=0)
    assert forest.threshold.dtype == dtype
    assert_same_bits(forest, grow(x.astype(dtype), y, 3, rng=0))


@pytest.mark.parametrize("grow", [classic.grow, classic.grow_extra, classic.grow_random])
@pytest.mark.parametrize("given", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", bool, list])
def test_dtypes_of_labels(grow, given):
    x, y = blobs(80, n_classes=2)
    other = y.tolist() if given is list else y.astype(given)
    assert_same_bits(
        grow(x, other, 3, class_weight="balanced", rng=0), grow(x, y, 3, class_weight="balanced", rng=0)
    )


@pytest.mark.parametrize("grow", [classic.grow, classic.grow_extra, classic.grow_random])
def test_targets_and_weights_of_any_real_dtype(grow):
    x, _ = blobs(80)
    target, weight = np.round(9 * x[:, :2]), np.arange(80) % 4
    want = grow(x, target, 3, task="regression", sample_weight=weight.astype(float), rng=0)
    for other in (target.astype(np.float16), target.astype(int), np.asfortranarray(target), target.tolist()):
        for w in (weight, weight.astype(np.float32), weight.tolist()):
            assert_same_bits(grow(x, other, 3, task="regression", sample_weight=w, rng=0), want)


def test_advice_on_labels_works():
    x, y = blobs(60)
    for labels in (y + 1, np.array(["setosa", "versicolor", "virginica"])[y], y * 2.5):
        with pytest.raises((TypeError, ValueError), match=r"numpy\.unique\(y, return_inverse=True\)\[1\]"):
            classic.grow(x, labels, 2, rng=0)
        assert_same_bits(
            classic.grow(x, np.unique(labels, return_inverse=True)[1], 2, rng=0), classic.grow(x, y, 2, rng=0)
        )


@pytest.mark.parametrize("grown", [np.float32, np.float64])
def test_out_of_bag_converts_rows_to_the_forests_dtype(grown):
    x, y = blobs(60, dtype=np.float32)
    forest = classic.grow(x.astype(grown), y, 5, rng=3)
    counts = growth.bootstrap_counts(60, 5, rng=3)
    want = tree.out_of_bag(forest, x.astype(grown), counts)
    assert want.dtype == grown
    for other in (x, x.astype(np.float64), np.asfortranarray(x), Table(x), x.tolist()):
        for many in (counts, counts.astype(np.int64), counts.tolist()):
            np.testing.assert_array_equal(tree.out_of_bag(forest, other, many), want)


@pytest.mark.parametrize("grow", [classic.grow, classic.grow_extra, classic.grow_random])
def test_progress(grow):
    x, y = blobs(60)
    calls = []
    grow(x, y, 30, progress=lambda done, n_trees: calls.append((done, n_trees)), rng=0)
    assert calls[-1] == (30, 30)
    few = grow(x, y, 1000, progress=lambda done, n_trees: done < 10, rng=0)
    n_trees = len(few.tree_start) - 1
    assert 10 <= n_trees < 1000
    assert_same_bits(few, grow(x, y, n_trees, rng=0))


def test_in_bag_counts_may_be_objects():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 3)), rng.integers(0, 2, 30)
    counts = growth.bootstrap_counts(30, 4, rng=0)
    forest = classic.grow(x, y, 4, bootstrap=counts, rng=0)
    expected = tree.out_of_bag(forest, x, counts)
    for got, want in zip(tree.out_of_bag(forest, x, counts.astype(object)), expected, strict=True):
        np.testing.assert_array_equal(got, want)


# -------------------------------------------------------------------------------------------- bins


@pytest.mark.parametrize(
    ("grow", "encoding", "missing", "regression"),
    [
        (grow, *case)
        for grow in (classic.grow, classic.grow_extra, classic.grow_random)
        for case in (
            ({}, False, False),
            ({}, True, True),
            ({"categorical": [2]}, True, False),
            ({"max_bins": 8}, False, True),
        )
        if grow is not classic.grow_random or "max_bins" not in case[0]  # which it has not
    ],
)
def test_samples_in_bins_give_the_same_forest(backend, dtype, grow, encoding, missing, regression):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 4)).astype(dtype)
    x[:, 2] = rng.integers(0, 5, 40)
    if missing:
        x[rng.random(x.shape) < 0.2] = np.nan
    y = rng.normal(size=40) if regression else rng.integers(0, 3, 40)
    settings = {"task": "regression"} if regression else {}
    want = grow(x, y, 3, rng=1, **encoding, **settings)
    got = grow(growth.encode(x, **encoding), y, 3, rng=1, **settings)
    for name, a, b in zip(want._fields, got, want, strict=True):
        assert a.dtype == b.dtype, name
        np.testing.assert_array_equal(a, b, err_msg=name)


def test_windows_in_bins_give_the_same_forest():
    windows = growth.Windows(np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) * 3, np.arange(3))
    y = np.arange(40) % 2
    forests = [classic.grow(x, y, 3, rng=1) for x in (windows, growth.encode(windows))]
    for a, b in zip(*forests, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match=r"^task: "):
        classic.grow(growth.encode(windows), y, 3, task="regression")


def test_bad_bins():
    bins, y = growth.encode(np.arange(6.0).reshape(6, 1)), [0, 1] * 3
    with pytest.raises(ValueError, match=r"^max_bins: expected None for bins, got int; pass it to encode$"):
        classic.grow(bins, y, 1, max_bins=8)
    with pytest.raises(
        ValueError, match=r"^categorical: expected None for bins, got list; pass it to encode$"
    ):
        classic.grow_random(bins, y, 1, categorical=[0])
    with pytest.raises(IndexError, match=r"^x.bins: expected numbers below n_bins = 6, got 7; call encode"):
        classic.grow(bins._replace(bins=bins.bins + np.uint8(2)), y, 1)
    with pytest.raises(TypeError, match=r"^x.base: expected x.base and x.offset together"):
        classic.grow(bins._replace(base=np.zeros(6, np.int64)), y, 1)
