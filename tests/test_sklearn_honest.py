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
    with refused(ValueError, "^feature_groups: expected None with trees='patches'"):
        hs.HonestForestClassifier(2, trees="patches", feature_groups=[[0]], **shaped).fit(x, y)


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


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_groups_of_rows(task):
    x, y, _ = data()
    kind = hs.HonestForestClassifier if task == "classification" else hs.HonestForestRegressor
    target = y if task == "classification" else x[:, 0] ** 2
    group = [f"subject {i}" for i in np.arange(N) // 4]
    model = kind(N_TREES, in_bag=0.5, oob_score=True, random_state=0).fit(x, target, groups=group)
    counts = stats.honest_counts(
        y if task == "classification" else N, N_TREES, groups=group, in_bag=0.5, rng=0
    )
    assert_same_bits(list(model.counts_), list(counts))
    assert (model.oob_votes_.reshape(-1, 4) == model.oob_votes_[::4, None]).all()
    grown = kind(N_TREES // 2, in_bag=0.5, random_state=0, warm_start=True).fit(x, target, groups=group)
    grown.set_params(n_estimators=N_TREES).fit(x, target, groups=group)
    assert_same_bits(grown.forest_, model.forest_)
    assert "_groups" not in vars(model)
    with refused(ValueError, r"^groups: expected shape \(n_samples,\)"):
        kind(2).fit(x, target, groups=group[1:])


def test_groups_are_routed():
    import sklearn
    from sklearn.model_selection import GroupKFold, cross_validate

    x, y, _ = data()
    group = np.arange(N) // 4
    model = hs.HonestForestClassifier(5, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        model.set_fit_request(groups=True)
        found = cross_validate(model, x, y, cv=GroupKFold(3), params={"groups": group}, return_estimator=True)
    for one in found["estimator"]:
        counts = one.counts_.structure.reshape(5, -1, 4)
        assert (counts == counts[..., :1]).all()


@pytest.mark.filterwarnings("ignore:more than nine tenths of the variance:UserWarning")
def test_intervals_of_halves():
    x, y, _ = data()
    labels = np.array(["a", "b", "c"])[y]
    group = np.arange(N) // 2
    model = hs.HonestForestClassifier(200, trees_per_half=2, random_state=0).fit(x, labels, groups=group)
    got = model.predict_interval(x[:9], coverage=0.9)
    want = stats.confidence_intervals(
        model.forest_, model.counts_, x[:9], groups=group, trees_per_half=2, coverage=0.9
    )
    assert_same_bits(got.standard_error, want.standard_error)
    assert got.mean.shape == (9, 3)
    assert (got.low >= 0).all()
    assert (got.high <= 1).all()
    assert (want.low < 0).any()
    np.testing.assert_allclose(got.mean, model.predict_proba(x[:9]), rtol=1e-5)
    means = hs.HonestForestRegressor(200, trees_per_half=4, random_state=0).fit(x, x[:, 0])
    assert means.predict_interval(x[:9]).low.shape == (9,)
    with refused(
        ValueError, "^n_estimators: expected a multiple of trees_per_half = 4, got 6; grow whole halves"
    ):
        hs.HonestForestClassifier(6, trees_per_half=4).fit(x, y)
    with refused(ValueError, "^trees_per_half: expected an int in fit, got None"):
        hs.HonestForestClassifier(4).fit(x, y).predict_interval(x)
    with refused(ValueError, "^empty: expected a forest whose trees all vote"):
        hs.HonestForestClassifier(4, trees_per_half=2, empty="abstain").fit(x, y).predict_interval(x)
    with refused(TypeError, "use feature_groups"):
        hs.HonestForestClassifier(groups=[[0]])
