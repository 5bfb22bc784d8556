"""Honest forests as estimators: weights, patches, empty leaves, probabilities of single trees."""

import warnings

import numpy as np
import pytest
from conftest import assert_same_bits, refused

import hforest
from hforest import project, stats, tree

pytest.importorskip("sklearn", minversion="1.6", reason="needs scikit-learn 1.6 or newer")

import hforest.sklearn as hs

N, N_TREES = 120, 40


def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 6))
    return x, np.digitize(x[:, 0] + 0.5 * rng.normal(size=N), [-0.5, 0.5]), rng.integers(0, 4, N) / 2 + 0.25


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_weights_are_those_of_the_functions(task):
    x, y, weight = data()
    kind = hs.HonestForestClassifier if task == "classification" else hs.HonestForestRegressor
    target = y if task == "classification" else x[:, 0] ** 2
    model = kind(N_TREES, in_bag=0.8, oob_score=True, random_state=0, min_samples_leaf=3)
    model.fit(x, target, weight.tolist())
    counts = stats.honest_counts(y if task == "classification" else N, N_TREES, rng=0)
    forest = hforest.grow(
        x,
        target,
        N_TREES,
        bootstrap=counts.structure,
        sample_weight=weight,
        task=task,
        min_samples_leaf=3,
        rng=0,
    )
    want = tree.refit(forest, x, target, counts=counts.leaf, sample_weight=weight, task=task)
    assert_same_bits(model.forest_, want)
    # The trees that a sample did not take part in predict it.
    alone = tree.out_of_bag(want, x, counts.structure + counts.leaf)
    got = model.oob_decision_function_ if task == "classification" else model.oob_prediction_[:, None]
    np.testing.assert_allclose(got, alone)
    assert not np.allclose(got, alone + 1e-3)


def test_weights_of_one_change_nothing():
    x, y, _ = data()
    plain, weighted = (
        hs.HonestForestClassifier(N_TREES, random_state=0).fit(x, y, w) for w in (None, np.ones(N))
    )
    assert_same_bits(weighted.forest_, plain.forest_)


def test_trees_without_weight_are_refused():
    x, y, _ = data()
    with refused(ValueError, "^sample_weight: expected samples of weight above 0 for the splits"):
        hs.HonestForestClassifier(N_TREES, random_state=0).fit(x, y, (np.arange(N) < 3) * 1.0)


def test_patches():
    x, y, _ = data()
    shaped = {"shape": (2, 3), "patch_max": (2, 2)}
    model = hs.HonestForestClassifier(N_TREES, trees="patches", n_projections=3, random_state=0, **shaped)
    model.fit(x, y)
    counts = stats.honest_counts(y, N_TREES, rng=0)
    forest = hforest.grow(
        x, y, N_TREES, bootstrap=counts.structure, projections=project.patch_distribution(**shaped),
        n_projections=3, rng=0,
    )  # fmt: skip
    assert_same_bits(model.forest_, tree.refit(forest, x, y, counts=counts.leaf))
    with pytest.warns(UserWarning, match="^shape: expected the shape of a sample"):
        hs.HonestForestClassifier(2, trees="patches").fit(x, y)
    with refused(ValueError, "^shape: expected sizes that multiply to n_features = 6"):
        hs.HonestForestClassifier(2, trees="patches", shape=(3, 3)).fit(x, y)
    with refused(ValueError, "^groups: expected None with trees='patches'"):
        hs.HonestForestClassifier(2, trees="patches", groups=[[0]], **shaped).fit(x, y)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("empty", ["prune", "abstain", "uniform", "prior"])
def test_empty_leaves(empty, weighted):
    x, y, weight = data()
    model = hs.HonestForestClassifier(
        N_TREES, in_bag=0.5, structure_share=0.8, empty=empty, oob_score=True, random_state=0
    )
    model.fit(x, y, weight if weighted else None)
    by_tree = model.predict_proba_per_tree(x)
    assert by_tree.shape == (N_TREES, N, 3)
    assert bool(np.isnan(by_tree).any()) == (empty == "abstain")
    np.testing.assert_allclose(np.nansum(by_tree, axis=2), (~np.isnan(by_tree[:, :, 0])) * 1.0, atol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_allclose(model.predict_proba(x), np.nanmean(by_tree, axis=0), rtol=1e-6)
    unused = (model.counts_.structure + model.counts_.leaf).T == 0
    by_tree[~unused.T] = np.nan
    np.testing.assert_array_equal(model.oob_votes_, (~np.isnan(by_tree[:, :, 0])).sum(axis=0))
    np.testing.assert_allclose(model.oob_decision_function_, np.nanmean(by_tree, axis=0), rtol=1e-6)
    if empty in ("uniform", "prior"):
        shares = np.bincount(y, weight if weighted else None)
        prior = np.full(3, 1 / 3) if empty == "uniform" else shares / shares.sum()
        assert np.isclose(model.forest_.value, prior).all(axis=1).any()


def test_samples_for_which_no_tree_votes_have_the_prior():
    x, y, _ = data()
    model = hs.HonestForestClassifier(
        1, in_bag=0.5, structure_share=0.9, empty="abstain", random_state=0
    ).fit(x, y)
    alone = np.isnan(model.predict_proba_per_tree(x)[0, :, 0])
    assert alone.any()
    np.testing.assert_allclose(model.predict_proba(x)[alone], np.tile(np.bincount(y) / N, (alone.sum(), 1)))


def test_regressors_have_a_prior_alone():
    x, _, weight = data()
    target = x[:, 0] ** 2
    model = hs.HonestForestRegressor(N_TREES, structure_share=0.8, empty="prior", random_state=0)
    model.fit(x, target, weight)
    assert np.isclose(model.forest_.value, np.average(target, weights=weight)).any()
    with refused(ValueError, '^empty: expected "prune" or "prior"'):
        hs.HonestForestRegressor(2, empty="abstain").fit(x, target)
