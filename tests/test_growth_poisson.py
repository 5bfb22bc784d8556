"""The Poisson deviance as criterion of `hforest.grow`: against the reference, exact gains, and scikit-learn."""

import math

import numpy as np
import pytest
from growers import KINDS, assert_all_same, both, make, on_paths, on_threads, problem

import hforest
from hforest import project, tree

pytestmark = pytest.mark.kernels

SETTINGS = {"n_classes": None, "criterion": "poisson"}


def counts(n=90, n_features=4, seed=0, scale=1.0, coarse=False, dtype=np.float64, missing=0.0):
    """Returns samples, and counts whose expectation depends on two features; many are 0."""
    x, _ = problem(n, n_features, 2, dtype, seed, coarse)
    rng = np.random.default_rng(seed + 1)
    y = rng.poisson(np.exp(x[:, 0].astype(np.float64) - 0.5 * (x[:, 1] > 0))) * scale
    y[0] = scale
    x[rng.random(x.shape) < missing] = np.nan
    return x, y


CASES = {
    "plain": {},
    "float32": {"dtype": np.float32},
    "ties": {"coarse": True},
    "missing": {"missing": 0.2},
    "tiny": {"scale": 1e-12},
    "huge": {"scale": 1e12},
}
OF_TREES = {
    "features": {},
    "bins": {"max_bins": 7},
    "leaves": {"min_samples_leaf": 3, "min_weight_fraction_leaf": 0.05},
    "decrease": {"min_impurity_decrease": 0.01, "max_features": None},
    "leaf nodes": {"max_leaf_nodes": 7},
    "random": {"splitter": "random"},
    "random bins": {"splitter": "random", "max_bins": 9},
    "sparse": {"projections": project.sparse_distribution(4)},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("of_trees", OF_TREES)
def test_forests_are_those_of_the_reference(case, of_trees):
    for n, seed in ((90, 0), (25, 1)):
        x, y = counts(n, seed=seed, **CASES[case])
        got = both(x, y, **SETTINGS, **OF_TREES[of_trees])
        assert len(got.feature) > 3 or (case, of_trees) == ("tiny", "decrease")


def test_weights_outputs_and_categories_are_those_of_the_reference():
    rng = np.random.default_rng(0)
    x, y = counts(80, coarse=True)
    other = rng.poisson(np.exp(x[:, 2])).astype(float)
    for targets in (y, np.stack([y, other, np.zeros(80)], axis=1)):
        for weight in (None, rng.integers(0, 3, 80), 10.0 ** rng.uniform(-3, 3, 80)):
            for extra in ({}, {"max_bins": 3}, {"splitter": "random"}):
                assert len(both(x, targets, **SETTINGS, sample_weight=weight, **extra).feature) > 3
    samples = hforest.samples(x * 2 + 4, categorical=[0])
    settings = {"task": "regression", "criterion": "poisson", "max_features": None, "rng": 0}
    got = hforest.grow(samples, y, 3, **settings)
    with hforest.using("reference"):
        want = hforest.grow(samples, y, 3, **settings)
    assert got.category_bits.size
    for name in ("feature", "threshold", "category_bits", "value"):
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name))


def test_bits_do_not_depend_on_paths_and_threads(simd, threads):
    x, y = counts(700, missing=0.1)
    assert_all_same(on_paths(simd, lambda: make(x, y, **SETTINGS)))
    assert_all_same(on_threads(threads, lambda: make(x, y, **SETTINGS, max_bins=20)))


def deviance(y):
    """Returns half the Poisson deviance of targets from their mean, by fsum."""
    mean = math.fsum(y) / len(y)
    return math.fsum((t * math.log(t / mean) if t > 0 else 0.0) - t + mean for t in y)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_gains_are_decreases_of_half_the_deviance(scale):
    x, y = counts(300, scale=scale)
    forest = hforest.grow(
        x, y, 1, task="regression", criterion="poisson", bootstrap=False, max_features=None, rng=0
    )
    samples = {0: np.arange(len(x))}
    for v in np.flatnonzero(forest.feature >= 0):
        here = samples[v]
        right = x[here, forest.feature[v]] > forest.threshold[v]
        sides = here[~right], here[right]
        samples |= {forest.left[v] + k: side for k, side in enumerate(sides)}
        gain = deviance(y[here]) - sum(deviance(y[side]) for side in sides)
        np.testing.assert_allclose(forest.gain[v], gain, rtol=1e-9, atol=1e-13 * scale)
        assert all(y[side].sum() > 0 for side in sides)
        best = max(
            deviance(y[here]) - deviance(y[here[below]]) - deviance(y[here[~below]])
            for f in range(4)
            for t in x[here, f]
            if y[here[below := x[here, f] <= t]].sum() > 0 and y[here[~below]].sum() > 0
        )
        assert gain >= best * (1 - 1e-9) - 1e-13 * scale


@pytest.mark.libraries
def test_trees_are_those_of_scikit_learn():
    trees = pytest.importorskip("sklearn.tree")
    for seed in range(6):
        x, y = counts(200, seed=seed, dtype=np.float32)
        y += np.random.default_rng(seed).uniform(0.01, 0.1, 200)  # no two splits have equal gains
        limits = {"criterion": "poisson", "max_depth": 4, "min_samples_leaf": 5}
        want = trees.DecisionTreeRegressor(random_state=0, **limits).fit(x, y).predict(x)
        x = x.astype(np.float64)
        ours = hforest.grow(x, y, 1, task="regression", bootstrap=False, max_features=None, rng=0, **limits)
        np.testing.assert_allclose(tree.predict(ours, x)[:, 0], want, rtol=1e-12)


def test_poisson_and_monotonic_constraints():
    x, y = counts(90)
    forest = both(x, y, **SETTINGS, monotonic_cst=[1, -1, 0, 0], max_features=None)
    grid = np.linspace(-3, 3, 40)[:, None] * [1.0, 0, 0, 0]
    assert (np.diff(tree.predict(forest, grid)[:, 0]) >= 0).all()


def test_only_zeros_are_a_leaf():
    # The samples of the left side sum to 0, so that no split is allowed though 0.5 gains most.
    x = np.arange(4.0)[:, None]
    forest = both(x, np.array([0.0, 0, 0, 7]), **SETTINGS, n_trees=1, bootstrap=False)
    assert (forest.feature.tolist(), forest.value.tolist()) == ([-1], [[1.75]])


@pytest.mark.parametrize("kind", ["features", "extra", "random", "probe"])
def test_bad_targets(kind):
    x, y = counts(20)
    settings = {"task": "regression", "criterion": "poisson", **KINDS[kind](4)}
    with pytest.raises(
        ValueError, match='y: expected targets of at least 0 with criterion="poisson", got -1.0; '
    ):
        hforest.grow(x, y - 1, 1, **settings)
    with pytest.raises(
        ValueError, match='y: expected some targets above 0 with criterion="poisson", got only'
    ):
        hforest.grow(x, 0 * y, 1, **settings)
    with pytest.raises(
        ValueError, match="criterion: expected one of 'gini', 'entropy', 'log_loss', got 'poisson'"
    ):
        hforest.grow(x, y.astype(int), 1, criterion="poisson")
