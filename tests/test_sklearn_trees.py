"""Estimators of grown forests: single trees, further trees, quantiles and intervals, importances."""
# ruff: noqa: E402 (modules that need scikit-learn are imported where it is known to be there)

import pickle

import numpy as np
import pytest
from conftest import same_bits

from hforest import growth, stats, tree

sklearn = pytest.importorskip("sklearn", minversion="1.6", reason="needs scikit-learn 1.6 or newer")

import scipy.sparse
from estimators import (
    BOOTSTRAPPED,
    CLASSIFIERS,
    GROWN,
    REGRESSORS,
    TARGETS,
    TEXT,
    X_TARGETS,
    X,
    Y,
    data,
    outputs,
    small,
)
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

pytestmark = pytest.mark.filterwarnings(
    "ignore:shape. expected the shape of a sample:UserWarning", "ignore:.*drawn by every tree:UserWarning"
)

FORESTS_OF_TARGETS = [name for name in GROWN if name in REGRESSORS]


def same_forests(a, b):
    return all(map(same_bits, a, b))


# --------------------------------------------------------------------------- single trees


@pytest.mark.parametrize("name", GROWN)
def test_trees_are_estimators_whose_mean_is_that_of_the_forest(name):
    x, y = data(name)
    model = small(name).fit(x, TEXT if name in CLASSIFIERS else y)
    assert len(model) == len(model.estimators_) == 8
    mean = np.mean([outputs(one, x) for one in model], axis=0)
    np.testing.assert_allclose(mean, outputs(model, x), rtol=1e-12, atol=1e-12)
    leaf = model.apply(x)
    for m in (0, 3, -1):
        one = model[m]
        assert type(one) is type(model)
        assert one.n_estimators == one.forest_.n_trees == len(one) == 1
        assert same_bits(one.apply(x)[:, 0], leaf[:, m])
        assert same_bits(one.estimators_samples_[0], model.estimators_samples_[m])
        assert same_bits(one.feature_importances_, tree.importance(one.forest_, by="gain"))
        tree.check(one.forest_)
    assert same_forests(tree.join([one.forest_ for one in model]), model.forest_)
    assert [one.get_depth() for one in model.estimators_[2:5]] == [model[m].get_depth() for m in (2, 3, 4)]
    assert model.get_depth() == max(one.get_depth() for one in model)
    assert model.get_n_leaves() == sum(one.get_n_leaves() for one in model) == len(model.forest_.value)
    with pytest.raises(IndexError, match="estimators_: expected a tree below 8, got 8"):
        model[8]


def test_depths_and_trees_of_forests_with_categories():
    x = np.random.default_rng(0).integers(0, 5, (150, 3))
    y = (x[:, 0] % 2) ^ (x[:, 1] > 2)
    model = small("RandomForestClassifier", categorical_features=[0, 1]).fit(x, y)
    assert model.forest_.category_bits.size
    assert same_forests(tree.join([one.forest_ for one in model]), model.forest_)
    assert small("RandomForestClassifier", max_depth=0).fit(x, y).get_depth() == 0
    assert small("RandomForestClassifier", max_depth=2).fit(x, y).get_depth() == 2
    for one in model:
        longest = max(len(tree.path(one.forest_, row)) for row in x)
        assert one.get_depth() == longest - 1


def test_an_estimator_without_a_fit_has_no_trees():
    for ask in (len, list, lambda model: model.estimators_, lambda model: model.estimators_samples_):
        with pytest.raises(NotFittedError):
            ask(small("RandomForestClassifier"))


@pytest.mark.parametrize("name", GROWN)
def test_samples_of_trees(name):
    x, y = data(name)
    model = small(name).fit(x, y)
    if name.startswith("Honest"):
        counts = model.counts_.structure + model.counts_.leaf
    elif getattr(model, "bootstrap", False):
        counts = growth.bootstrap_counts(len(x), 8, rng=0)
    else:
        counts = np.ones((8, len(x)), np.int64)
    for m, drawn in enumerate(model.estimators_samples_):
        assert drawn.dtype == np.int32
        assert np.bincount(drawn, minlength=len(x)).tolist() == counts[m].tolist()


def test_samples_of_trees_with_numbers_of_draws_and_weights():
    weight = (Y != 1).astype(float)
    settings = {"max_samples": 40, "bootstrap_weights": "draw"}
    model = small("RandomForestClassifier", **settings).fit(X, Y, sample_weight=weight)
    expected = growth.bootstrap_counts(150, 8, n_draws=40, sample_weight=weight, rng=0)
    drawn = [np.bincount(rows, minlength=150) for rows in model.estimators_samples_]
    assert (drawn == expected).all()
    assert all(len(rows) == 40 for rows in model.estimators_samples_)


# --------------------------------------------------------------------------- further trees


@pytest.mark.parametrize("name", [name for name in GROWN if "warm_start" in small(name).get_params()])
def test_further_trees_are_those_of_one_fit(name):
    x, y = data(name)
    more = {"bootstrap": True} if name in BOOTSTRAPPED else {}
    model = small(name, n_estimators=3, warm_start=True, **more).fit(x, y)
    model.set_params(n_estimators=8, oob_score=True).fit(x, y)
    whole = small(name, oob_score=True, **more).fit(x, y)
    assert same_forests(model.forest_, whole.forest_)
    assert model.oob_score_ == whole.oob_score_
    assert (model[5].estimators_samples_[0] == whole.estimators_samples_[5]).all()
    assert same_forests(model[5].forest_, whole[5].forest_)
    assert pickle.loads(pickle.dumps(model)).set_params(n_estimators=9).fit(x, y).forest_.n_trees == 9
    assert same_forests(model.set_params(warm_start=False, n_estimators=8).fit(x, y).forest_, whole.forest_)


def test_further_trees_of_a_seed_that_was_drawn():
    model = small("RandomForestClassifier", random_state=None, warm_start=True).fit(X, Y)
    first = model.forest_
    model.set_params(n_estimators=10).fit(X, Y)
    assert same_bits(model.forest_.feature[: len(first.feature)], first.feature)
    assert len({tuple(rows) for rows in model.estimators_samples_}) == 10


def test_no_further_trees():
    model = small("RandomForestClassifier", warm_start=True).fit(X, Y)
    before = model.forest_
    with pytest.warns(UserWarning, match="without increasing n_estimators"):
        model.set_params(oob_score=True).fit(X, Y)
    assert model.forest_ is before
    assert model.oob_score_ > 0.8
    with pytest.raises(ValueError, match="n_estimators: expected at least the 8 trees"):
        model.set_params(n_estimators=7).fit(X, Y)
    with pytest.raises(TypeError, match="n_estimators: expected"):
        model.set_params(n_estimators="many").fit(X, Y)


def test_further_trees_need_the_same_classes_and_samples():
    model = small("RandomForestClassifier", warm_start=True).fit(X, TEXT)
    model.set_params(n_estimators=9)
    with pytest.raises(ValueError, match="classes_: expected those of the first fit"):
        model.fit(X[:100], TEXT[:100])
    assert model.classes_.tolist() == sorted(set(TEXT))
    assert model.score(X, TEXT) > 0.9
    model.fit(X[::2], TEXT[::2])
    assert model.forest_.n_trees == 9
    assert len(model.estimators_samples_[8]) == 75
    with pytest.raises(ValueError, match="X: expected the samples of the first fit"):
        model.set_params(n_estimators=10, oob_score=True).fit(X[::2], TEXT[::2])
    with pytest.raises(TypeError, match="warm_start: expected True or False"):
        small("RandomForestClassifier", warm_start="yes").fit(X, Y)


# --------------------------------------------------------------------------- quantiles and intervals


@pytest.mark.parametrize("name", FORESTS_OF_TARGETS)
def test_quantiles_and_intervals(name):
    targets = np.stack([TARGETS, -TARGETS], axis=1)
    honest = name.startswith("Honest")
    more = {"leaf_targets": True, **({} if honest else {"bootstrap": True, "oob_score": True})}
    weight = {} if honest else {"sample_weight": np.arange(150) % 3}
    model = small(name, n_estimators=30, **more).fit(X_TARGETS, targets, **weight)
    held = tree.leaf_targets(
        model.forest_, X_TARGETS, targets, counts=model.counts_.leaf if honest else None, **weight
    )
    low = model.quantiles(X_TARGETS, [0.1, 0.5])
    assert same_bits(low, tree.quantiles(model.forest_, held, X_TARGETS, [0.1, 0.5]))
    one = clone(model).fit(X_TARGETS, TARGETS, **weight)
    assert one.quantiles(X_TARGETS, [0.1]).shape == (150, 1)
    if not honest:
        for fitted, y in ((model, targets), (one, TARGETS)):
            errors = (y - fitted.oob_prediction_).reshape(150, -1)
            expected = tree.prediction_intervals(fitted.forest_, X_TARGETS, errors, coverage=0.8)
            interval = fitted.predict_interval(X_TARGETS, coverage=0.8)
            assert all(map(same_bits, interval, (a.reshape(y.shape) for a in expected)))


def test_quantiles_and_intervals_need_a_fit_that_keeps_what_they_read():
    model = small("RandomForestRegressor").fit(X_TARGETS, TARGETS)
    with pytest.raises(ValueError, match="leaf_targets: expected True in fit"):
        model.quantiles(X_TARGETS, [0.5])
    with pytest.raises(ValueError, match="oob_score: expected True in fit"):
        model.predict_interval(X_TARGETS)
    model.set_params(leaf_targets=True, oob_score=True).fit(X_TARGETS, TARGETS)
    with pytest.raises(ValueError, match="leaf_targets: expected True in fit"):
        model[0].quantiles(X_TARGETS, [0.5])
    model.set_params(leaf_targets=False, oob_score=False).fit(X_TARGETS, TARGETS)
    with pytest.raises(ValueError, match="oob_score: expected True in fit"):
        model.predict_interval(X_TARGETS)
    with pytest.raises(TypeError, match="leaf_targets: expected True or False"):
        model.set_params(leaf_targets=1).fit(X_TARGETS, TARGETS)


# --------------------------------------------------------------------------- importances


@pytest.mark.parametrize("by", ["mdi_oob", "ufi"])
@pytest.mark.parametrize(
    "name", ["RandomForestClassifier", "ObliqueForestRegressor", "HonestForestClassifier"]
)
def test_importances_of_out_of_bag_samples(name, by):
    x, y = data(name)
    model = small(name, n_estimators=20, importance_type=by).fit(x, y)
    task = "classification" if name in CLASSIFIERS else "regression"
    counts = np.stack([np.bincount(rows, minlength=len(x)) for rows in model.estimators_samples_])
    expected = stats.oob_importance(model.forest_, x, y, counts, by=by, task=task).mean
    assert same_bits(model.feature_importances_, expected)
    model.set_params(importance_type="gain")
    assert same_bits(model.feature_importances_, tree.importance(model.forest_, by="gain"))


def test_importances_that_no_fit_computed():
    model = small("RandomForestClassifier").fit(X, Y).set_params(importance_type="ufi")
    with pytest.raises(AttributeError, match="importance_type='ufi'"):
        model.feature_importances_  # noqa: B018
    with pytest.raises(ValueError, match="importance_type: expected 'gain' with bootstrap=False"):
        small("ExtraTreesClassifier", importance_type="ufi").fit(X, Y)
    with pytest.raises(
        ValueError, match="importance_type: expected one of 'gain', 'mdi_oob', 'ufi', got 'best'"
    ):
        small("RandomForestClassifier", importance_type="best").fit(X, Y)


# --------------------------------------------------------------------------- labels and targets


@pytest.mark.parametrize("name", ["RandomForestClassifier", "RandomForestRegressor"])
def test_sparse_targets_are_refused(name):
    y = scipy.sparse.csr_array(np.eye(150)[:, :2])
    with pytest.raises(TypeError, match="y: expected a dense array, got csr_array; pass y.toarray"):
        small(name).fit(X, y)
