"""Accuracy of forests of each kind: digits, simulations, and scikit-learn's forests."""

import numpy as np
import pytest
from conftest import error
from growers import blobs, grow

import hforest
from hforest import demo, growth, project, tree


@pytest.mark.parametrize(
    ("kind", "n_trees", "max_bins", "most"),
    [
        ("features", 100, None, 0.035), ("features", 100, 256, 0.035), ("random", 100, None, 0.045),
        ("sparse", 60, None, 0.04), ("probe", 60, None, 0.04), ("patch", 60, None, 0.04),
    ],
)  # fmt: skip
def test_digits(digits, kind, n_trees, max_bins, most):
    x, y, x_test, y_test = digits
    forest = grow(hforest.samples(x, max_bins=max_bins), y, n_trees, kind=kind, rng=0)
    assert error(forest, x_test, y_test) < most


@pytest.mark.libraries
@pytest.mark.parametrize(
    ("kind", "model", "least", "most"),
    [("features", "RandomForestClassifier", -1, 0.005), ("extra", "ExtraTreesClassifier", -0.006, 0.006)],
)
def test_errors_are_those_of_scikit_learn(digits, kind, model, least, most):
    model = getattr(pytest.importorskip("sklearn.ensemble"), model)
    x, y, x_test, y_test = digits
    ours = np.mean([error(grow(x, y, 50, kind=kind, rng=seed), x_test, y_test) for seed in range(3)])
    theirs = np.mean([1 - model(50, random_state=s).fit(x, y).score(x_test, y_test) for s in range(3)])
    assert least < ours - theirs < most


@pytest.mark.libraries
@pytest.mark.parametrize(
    ("kind", "model", "least"),
    [("features", "RandomForestRegressor", 0.0), ("extra", "ExtraTreesRegressor", 0.9)],
)
def test_errors_of_targets_are_those_of_scikit_learn(kind, model, least):
    model = getattr(pytest.importorskip("sklearn.ensemble"), model)(50, random_state=0)
    x = np.random.default_rng(0).uniform(size=(1500, 6))
    y = np.stack([10 * np.sin(np.pi * x[:, 0] * x[:, 1]), 20 * (x[:, 2] - 0.5) ** 2 + 5 * x[:, 3]], axis=1)
    forest = grow(x[:1000], y[:1000], 50, kind=kind, task="regression", max_features=None, rng=0)
    predicted = tree.predict(forest, x[1000:]), model.fit(x[:1000], y[:1000]).predict(x[1000:])
    ours, theirs = (((p - y[1000:]) ** 2).mean() for p in predicted)
    assert least < ours / theirs < 1.1


@pytest.mark.libraries
def test_the_first_levels_on_all_features_are_scikit_learns():
    # Continuous data, nodes of many samples: no ties, so that both take the same splits.
    tree_module = pytest.importorskip("sklearn.tree")
    x, y = blobs(600, dtype=np.float32)
    want = tree.from_sklearn(tree_module.DecisionTreeClassifier(max_depth=3).fit(x, y))
    got = hforest.grow(x, y, 1, bootstrap=False, max_features=None, max_depth=3, rng=0)
    for name, rtol in (("feature", 0), ("left", 0), ("threshold", 1e-6), ("value", 1e-6), ("gain", 1e-4)):
        np.testing.assert_allclose(getattr(got, name), getattr(want, name), rtol=rtol)


def test_out_of_bag_error_predicts_the_test_error(digits):
    x, y, x_test, y_test = digits
    forest = hforest.grow(x, y, 60, rng=5)
    p = tree.out_of_bag(forest, x, growth.bootstrap_counts(len(x), 60, rng=5))
    assert not np.isnan(p).any()
    assert (tree.predict(forest, x).argmax(axis=1) == y).all()
    wrong = (tree.predict(forest, x_test).argmax(axis=1) != y_test).mean()
    assert abs((p.argmax(axis=1) != y).mean() - wrong) < 0.015


def errors_of(train, test, *settings):
    """Returns the error on `test` of each forest of 100 trees grown on `train`."""
    return [error(hforest.grow(*train, 100, rng=0, **given), *test) for given in settings]


def test_patches_separate_bars_that_features_do_not():
    patches, simulate = project.patch_distribution((28, 28), patch_max=4), demo.simulate_bars
    first, *others = errors_of(
        simulate(50, rng=0), simulate(2000, rng=1), {"projections": patches, "n_projections": 28}, {},
        {"projections": project.sparse_distribution(784)},
    )  # fmt: skip
    assert first + 0.02 < min(others)


def test_cyclic_patches_separate_segments():
    patches, simulate = project.patch_distribution((100,), patch_max=15, cyclic=True), demo.simulate_circle
    first, other = errors_of(
        simulate(400, rng=0), simulate(1000, rng=1), {"projections": patches, "n_projections": 40},
        {"max_features": 40},
    )  # fmt: skip
    assert first + 0.3 < other


def test_importance_is_where_the_patches_are(digits):
    x, y, _, _ = digits
    share = tree.importance(grow(x, y, 40, kind="patch", rng=0)).reshape(8, 8)
    # The outermost columns of these digits are empty, but large patches reach over them.
    assert share[:, 1:7].sum() > 0.8


def test_differences_fit_a_difference():
    x = np.random.default_rng(0).normal(size=(600, 6))
    y, squares = x[:, 0] - x[:, 1], []
    differences = {"projections": project.probe_distribution(6), "n_projections": 10}
    for settings in (differences, {"max_features": None}):
        forest = hforest.grow(x[:400], y[:400], 40, task="regression", rng=0, **settings)
        squares.append(((tree.predict(forest, x[400:])[:, 0] - y[400:]) ** 2).mean())
    assert squares[0] < 0.7 * squares[1]


def test_single_features_see_what_differences_do_not():
    rng = np.random.default_rng(0)
    y = np.arange(800) % 2
    x = rng.normal(size=(800, 2)) * 0.1 + rng.normal(size=(800, 1)) * 0.3 + y[:, None] * 2
    settings = (
        {"projections": project.probe_distribution(2, share), "n_projections": 2} for share in (0.0, 0.5)
    )
    differences, with_features = errors_of((x[:400], y[:400]), (x[400:], y[400:]), *settings)
    assert differences > 0.4
    assert with_features < 0.02
