"""Monotonic constraints of `hforest.grow`: against the reference, on random points, and beside scikit-learn."""

import numpy as np
import pytest
import scipy.sparse
from conftest import assert_same_bits
from growers import assert_all_same, both, make, on_paths, on_threads, overlapping, problem

import hforest
from hforest import project, tree

pytestmark = pytest.mark.kernels

SIGNS = np.array([1, -1, 0, 1])


def data(n=120, kind="labels", *, coarse=False, dtype=np.float64, seed=0, missing=0.0):
    """Returns samples of four features, and labels or targets that two of them move against their signs."""
    x, _ = problem(n, 4, 2, dtype, seed, coarse)
    rng = np.random.default_rng(seed + 1)
    y = x[:, 0] + 0.7 * x[:, 1] + np.abs(x[:, 2]) - 0.5 * x[:, 3] + 0.5 * rng.normal(size=n)
    if missing:
        x[rng.random(x.shape) < missing] = np.nan
    return x, (y > 0.5).astype(np.int32) if kind == "labels" else y


def settings_of(kind):
    return {"n_classes": 2 if kind == "labels" else None, "monotonic_cst": SIGNS}


def of_trees(forest, x):
    """Returns the last value of the leaf of each sample in each tree."""
    first, nodes = forest.tree_start[:-1], tree.apply(forest, x)
    return forest.value[(first + np.arange(len(first))) // 2 + forest.left[first + nodes], -1]


def violations(forest, x, seed=0):
    """Returns how many predictions of random points move against the signs, of each tree."""
    rng = np.random.default_rng(seed)
    low, high = np.nanmin(x, 0) - 0.1, np.nanmax(x, 0) + 0.1
    points, count = rng.uniform(low, high, (400, x.shape[1])).astype(x.dtype), 0
    for f in np.flatnonzero(SIGNS):
        moved = points.copy()
        moved[:, f] = np.maximum(points[:, f], rng.uniform(low[f], high[f], len(points)))
        before, after = (of_trees(forest, p) for p in (points, moved))
        count += int((SIGNS[f] * (after - before) < 0).sum())
    return count


CASES = {
    "plain": {},
    "float32": {"dtype": np.float32},
    "ties": {"coarse": True},
    "missing": {"missing": 0.2},
    "missing ties": {"missing": 0.3, "coarse": True, "dtype": np.float32},
}
OF_TREES = {
    "features": {},
    "bins": {"max_bins": 7},
    "leaves": {"min_samples_leaf": 3, "min_weight_fraction_leaf": 0.05},
    "random": {"splitter": "random"},
    "random bins": {"splitter": "random", "max_bins": 9, "min_samples_leaf": 2},
    "leaf nodes": {"max_leaf_nodes": 6},
    "all features": {"max_features": None, "bootstrap": False, "max_depth": 4},
    "few leaves": {"max_leaf_nodes": 6},
}


@pytest.mark.parametrize("kind", ["labels", "targets"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("of_trees", OF_TREES)
def test_forests_are_those_of_the_reference_and_monotonic(kind, case, of_trees):
    for n, seed in ((70, 0), (20, 1)):
        x, y = data(n, kind, seed=seed, **CASES[case])
        got = both(x, y, **settings_of(kind), **OF_TREES[of_trees])
        assert violations(got, x) == 0
    free = make(x, y, **settings_of(kind) | OF_TREES[of_trees] | {"monotonic_cst": None})
    assert len(free.feature) >= 3


@pytest.mark.parametrize("kind", ["labels", "targets"])
def test_weights_and_criteria_are_those_of_the_reference(kind):
    rng = np.random.default_rng(0)
    for seed, criterion in enumerate(("gini", "entropy") if kind == "labels" else (None, "friedman_mse")):
        x, y = data(90, kind, seed=seed, missing=0.1)
        for weight in (rng.uniform(0, 3, 90), 10.0 ** rng.uniform(-3, 3, 90), rng.integers(0, 4, 90)):
            got = both(x, y, **settings_of(kind), criterion=criterion, sample_weight=weight)
            assert violations(got, x) == 0


@pytest.mark.parametrize("kind", ["labels", "targets"])
def test_constraints_change_trees_and_not_their_means(kind):
    x, y = data(600, kind)
    settings = settings_of(kind) | {"min_samples_leaf": 5, "bootstrap": False}
    with_constraints = make(x, y, **settings)
    without = make(x, y, **settings | {"monotonic_cst": None})
    assert violations(with_constraints, x) == 0 < violations(without, x)
    p = tree.predict(with_constraints, x)[:, -1]
    # Few leaves are clipped, so that the mean prediction stays near that of the samples.
    assert abs(p.mean() - y.mean()) < 0.1 * y.std()


@pytest.mark.parametrize("kind", ["labels", "targets"])
@pytest.mark.parametrize("case", CASES)
def test_a_constraint_on_a_constant_changes_nothing(kind, case):
    for n in (20, 300):
        x, y = data(n, kind, **CASES[case])
        x[:, 2] = 0
        for extra in ({}, {"splitter": "random"}, {"criterion": "entropy"} if kind == "labels" else {}):
            settings = settings_of(kind) | extra | {"max_features": None}
            a = make(x, y, **settings | {"monotonic_cst": None})
            assert_same_bits(make(x, y, **settings | {"monotonic_cst": [0, 0, 1, 0]}), a)
            assert_same_bits(make(x, y, **settings | {"monotonic_cst": np.zeros(4)}), a)


def test_bits_do_not_depend_on_paths_and_threads(simd, threads):
    for kind in ("labels", "targets"):
        x, y = data(700, kind, missing=0.1)
        assert_all_same(on_paths(simd, lambda x=x, y=y, kind=kind: make(x, y, **settings_of(kind))))
        assert_all_same(on_threads(threads, lambda x=x, y=y, kind=kind: make(x, y, **settings_of(kind))))


def test_sparse_samples_have_the_bits_of_arrays():
    x, y = data(200, coarse=True)
    for splitter in ("best", "random"):
        settings = {"monotonic_cst": SIGNS, "splitter": splitter, "rng": 0}
        a, b = (hforest.grow(samples, y, 5, **settings) for samples in (x, scipy.sparse.csr_array(x)))
        assert_same_bits(a, b)


def test_categories_stand_beside_constraints():
    x, y = data(150, "targets", coarse=True)
    x[:, 2] = np.round(2 * x[:, 2] + 4)
    samples = hforest.samples(x, categorical=[2])
    settings = {"task": "regression", "monotonic_cst": SIGNS, "max_features": None, "rng": 0}
    got = hforest.grow(samples, y, 3, **settings)
    with hforest.using("reference"):
        assert_same_bits(got._replace(gain=got.gain), hforest.grow(samples, y, 3, **settings))
    assert (got.feature == 2).any()


def test_missing_values_alone_are_above_all_others():
    # Feature 0 has no threshold that may rise, but its missing values may lie above all others.
    x = np.array([[0.0], [1], [2], [3], [np.nan], [np.nan]])
    for sign, y in ((1, [4.0, 3, 2, 1, 9, 9]), (-1, [1.0, 2, 3, 4, -9, -9]), (1, [4.0, 3, 2, 1, -9, -9])):
        for splitter in ("best", "random"):
            forest = both(
                x, np.array(y), n_classes=None, n_trees=1, bootstrap=False, monotonic_cst=[sign],
                splitter=splitter, max_features=None,
            )  # fmt: skip
            if splitter == "best" and sign * y[-1] > 0:
                assert forest.threshold[0] == np.finfo(np.float64).max
                np.testing.assert_array_equal(tree.predict(forest, x)[:, 0], [2.5] * 4 + y[4:])


def test_a_tree_by_hand():
    # The threshold 1.5 gains most, but falls from 5 to 1; 0.5 rises from 1 to 11 / 3, and no threshold after it rises.
    x, y = np.arange(4.0)[:, None], np.array([1.0, 9, 0, 2])
    settings = {"task": "regression", "bootstrap": False, "rng": 0}
    assert hforest.grow(x, y, 1, **settings).threshold[0] == 1.5
    rising = hforest.grow(x, y, 1, monotonic_cst=[1], **settings)
    np.testing.assert_allclose(tree.predict(rising, x)[:, 0], [1, 11 / 3, 11 / 3, 11 / 3], rtol=1e-15)


@pytest.mark.libraries
@pytest.mark.parametrize("kind", ["labels", "targets"])
def test_trees_are_those_of_scikit_learn(kind):
    trees = pytest.importorskip("sklearn.tree")
    peer = trees.DecisionTreeClassifier if kind == "labels" else trees.DecisionTreeRegressor
    for seed in range(6):
        x, y = data(150, kind, seed=seed)
        x = x.astype(np.float32)
        limits = {"max_depth": 5, "min_samples_leaf": 4, "monotonic_cst": SIGNS}
        theirs = peer(random_state=0, **limits).fit(x, y)
        ours = hforest.grow(
            x.astype(np.float64), y, 1, bootstrap=False, max_features=None, rng=0, **limits,
            task="classification" if kind == "labels" else "regression",
        )  # fmt: skip
        want = theirs.predict_proba(x)[:, 1] if kind == "labels" else theirs.predict(x)
        np.testing.assert_allclose(
            tree.predict(ours, x.astype(np.float64))[:, -1], want, rtol=1e-12, atol=1e-12
        )


BAD = {
    "shape": ({"monotonic_cst": [1]}, r"monotonic_cst: expected shape \(n_features,\) = \(4,\), got \(1,\)"),
    "values": ({"monotonic_cst": [1, 0, 2, 0]}, "monotonic_cst: expected only -1, 0 and 1, got 2"),
    "nan": ({"monotonic_cst": [1, 0, np.nan, 0]}, "monotonic_cst: expected only -1, 0 and 1, got nan"),
    "classes": ({"n_classes": 3}, "monotonic_cst: expected None .* more than two classes, got 3 of them"),
    "targets": ({"task": "regression"}, "monotonic_cst: expected None with several targets .*, got 2 of them"),
    "projections": (
        {"projections": project.sparse_distribution(4)}, "monotonic_cst: expected None with projections",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_constraints(case):
    x, y = data(20)
    change, message = BAD[case]
    if case == "targets":
        y = np.stack([y, y], axis=1)
    with pytest.raises(ValueError, match=message):
        hforest.grow(x, y, 1, **{"monotonic_cst": SIGNS} | change)


def test_constraints_on_categories_and_windows_are_refused():
    x, y = data(20)
    with pytest.raises(
        ValueError, match="monotonic_cst: expected 0 for features that are categories, got -1 for"
    ):
        hforest.grow(hforest.samples(np.abs(x).round(), categorical=[1]), y, 1, monotonic_cst=SIGNS)
    (array, base, offset), _ = overlapping()
    with pytest.raises(ValueError, match="monotonic_cst: expected None with windows"):
        hforest.grow(
            hforest.samples(array, windows=(base, offset)), np.arange(len(base)) % 2, 1, monotonic_cst=[1] * 5
        )
    with pytest.raises(TypeError, match="monotonic_cst: expected"):
        hforest.grow(x, y, 1, monotonic_cst="rising")
