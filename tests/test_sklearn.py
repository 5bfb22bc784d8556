"""Estimators: scikit-learn's checks and tools, agreement with the functions, bad input."""
# ruff: noqa: E402 (modules that need scikit-learn are imported where it is known to be there)

import importlib.util
import inspect
import pickle
import sys
import warnings
from functools import partial

import numpy as np
import pytest
from conftest import same_bits

import hforest
from hforest import cascade, co2, demo, growth, neural, project, stats, tabular, tree
from hforest.tabular import recipe

sklearn = pytest.importorskip("sklearn", minversion="1.6", reason="needs scikit-learn 1.6 or newer")

import joblib
import scipy.sparse
import scipy.special
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.inspection import permutation_importance
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import hforest.sklearn as hs

X, Y = load_iris(return_X_y=True)
X_TARGETS, TARGETS = (a[:150] for a in load_diabetes(return_X_y=True))
TEXT = np.array(["setosa", "versicolor", "virginica"], object)[Y]

# pytest.warns catches the warning if a test expects it.
pytestmark = pytest.mark.filterwarnings("ignore:shape. expected the shape of a sample:UserWarning")

# Small sizes by kind, and the arguments of the function of hforest that grows the same forest.
HINGE = {"n_members": 2, "n_projections": 10, "max_iter": 60, "max_depth": 4}
NETWORK = {"max_iter": 300, "max_depth": 4, "n_inner_products": 20}
SIZES = {
    "HingeForest": HINGE,
    "HingeNetwork": NETWORK,
    "NeuralForest": {"max_depth": 4, "max_iter": 4},
    "CascadeForest": {"n_forests": 1, "max_levels": 2},
}
KINDS = sorted(hs.__all__)
CLASSIFIERS = [name for name in KINDS if name.endswith("Classifier")]
REGRESSORS = [name for name in KINDS if name.endswith("Regressor")]
WEIGHTED = [name for name in KINDS if not name.startswith(("Honest", "HingeNetwork"))]
GROWN = [name for name in KINDS if not name.startswith(("Hinge", "Neural", "Cascade"))]
BOOTSTRAPPED = [name for name in GROWN if name in WEIGHTED]


def small(name, **settings):
    """Returns an estimator of eight trees."""
    kind = name.removesuffix("Classifier").removesuffix("Regressor")
    return getattr(hs, name)(**{"n_estimators": 8, "random_state": 0, **SIZES.get(kind, {}), **settings})


def data(name):
    return (X, Y) if name in CLASSIFIERS else (X_TARGETS, TARGETS)


def parts(name):
    """Returns training samples, their targets, and other samples."""
    x, y = data(name)
    return x[::2], y[::2], x[1::2]


def mixed(name, **settings):
    """Returns an estimator whose leaves have several classes or targets, so that weights change predictions."""
    return small(
        name, **settings, **({} if name.startswith(("Hinge", "Neural")) else {"min_samples_leaf": 8})
    )


def outputs(model, x):
    return model.predict_proba(x) if hasattr(model, "predict_proba") else model.predict(x)


# --------------------------------------------------------------------------- scikit-learn's own checks


DRAWN = "bootstrap samples of n samples with weights are not those of n repeated samples"
BATCHES = (
    "steps, batches and held-out parts count samples, and those of n samples are others of n repeated ones"
)
WEIGHTS = "check_sample_weight_equivalence_on_dense_data"
SPARSE_WEIGHTS = "check_sample_weight_equivalence_on_sparse_data"
WHAT_DRAWS = ("RandomForest", "ObliqueForest", "ManifoldForest")
WHAT_STEPS = ("CO2Forest", "HingeForest", "NeuralForest")
EXEMPT = {
    **{name: {WEIGHTS: DRAWN, SPARSE_WEIGHTS: DRAWN} for name in KINDS if name.startswith(WHAT_DRAWS)},
    **{name: {WEIGHTS: BATCHES} for name in KINDS if name.startswith(WHAT_STEPS)},
    "CascadeForestClassifier": {WEIGHTS: DRAWN},
}


def checks(estimators):
    """Returns the mark of a test that runs scikit-learn's checks of estimators."""
    return parametrize_with_checks(
        estimators, expected_failed_checks=lambda e: EXEMPT.get(type(e).__name__, {})
    )


CHECKS, DEFAULTS = checks([small(name) for name in KINDS]), checks([getattr(hs, name)() for name in KINDS])


# Warnings of the checks themselves: logarithms of 0, skipped checks.
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning", "ignore::FutureWarning")
# In scikit-learn 1.6 the checks are a generator, which pytest 9 warns of.
@pytest.mark.parametrize(CHECKS.args[0], list(CHECKS.args[1]), **CHECKS.kwargs)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


# The check sets max_iter to 1000, a minute of leaf updates; the default is smaller.
LONG = {("NeuralForestClassifier", "check_class_weight_classifiers")}


def default_cases():
    for case in DEFAULTS.args[1]:
        estimator, check = getattr(case, "values", case)
        if (type(estimator).__name__, check.func.__name__) not in LONG:
            yield case


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(DEFAULTS.args[0], list(default_cases()), **DEFAULTS.kwargs)
def test_checks_of_scikit_learn_at_default_settings(estimator, check):
    check(estimator)


# --------------------------------------------------------------------------- the functions below

EXTRA = {"splitter": "random", "bootstrap": False}
LEVEL = [partial(hforest.grow, n_trees=8, **more) for more in ({}, {**EXTRA, "max_features": 1})]
TABULAR = {"n_trees": 8, "n_members": 2, "n_projections": 10, "steps": 60, "depth": 4}


def of_forest(grow=hforest.grow, projections=None, **settings):
    def function(x, y, task):
        if projections is not None:
            settings["projections"] = projections(x.shape[1])
        return tree.predict(grow(x, y, 8, task=task, rng=0, **settings), x)

    return function


def of_neural(x, y, task):
    start = neural.linear_init(8, 4, x.shape[1], 3, x=x, rng=0)
    return neural.predict(neural.fit(start, x, y, epochs=4, lr=0.05, rng=0), x)


def of_honest(x, y, task):
    counts = stats.honest_counts(
        *((y, 8) if task == "classification" else (len(y), 8)),
        rng=0,
        **({} if task == "classification" else {"in_bag": 0.5}),
    )
    forest = hforest.grow(x, y, 8, task=task, bootstrap=counts.structure, rng=0)
    return tree.predict(tree.refit(forest, x, y, counts=counts.leaf, task=task), x)


def of_network(x, y, task):
    """Returns the outputs of the network, computed with explicit units and steps."""
    z = ((x - x.mean(axis=0, dtype=float)) / x.std(axis=0, dtype=float)).astype(np.float32)
    goal = y if task == "classification" else ((y - y.mean()) / y.std())[:, None]
    config = demo.Config(n_trees=8, depth=4, n_features=20, steps=300, eval_every=300, task=task, seed=0)
    state = demo.start(config, x.shape[1], 3 if task == "classification" else 1)
    order = np.random.default_rng([0, 1]).permutation(len(x))
    demo.train(config, state, z[order], goal[order], z[:1], goal[:1])
    scores = demo.predict(config, state, z)
    if task == "regression":
        return scores * np.full(1, y.std()) + np.full(1, y.mean())
    return scipy.special.softmax(scores, axis=1)


FUNCTIONS = {
    "HingeNetwork": of_network,
    "HonestForest": of_honest,
    "RandomForest": of_forest(),
    "ExtraTrees": of_forest(**EXTRA),
    "CompletelyRandomForest": of_forest(**EXTRA, max_features=1),
    "ObliqueForest": of_forest(projections=project.sparse_distribution),
    "ManifoldForest": of_forest(projections=lambda n: project.patch_distribution((2, 2), patch_max=2)),
    "CO2Forest": of_forest(co2.grow),
    "HingeForest": lambda x, y, task: tabular.predict(tabular.fit(x, y, task=task, rng=0, **TABULAR), x),
    "NeuralForest": of_neural,
    "CascadeForest": lambda x, y, task: cascade.predict(cascade.grow(x, y, LEVEL, max_levels=2, rng=0), x),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", KINDS)
def test_estimators_predict_what_the_functions_predict(name, dtype):
    x, y = data(name)
    x = x[:, :4].astype(dtype)
    settings = {"shape": (2, 2), "patch_max": 2} if name.startswith("Manifold") else {}
    model = small(name, **settings).fit(x, y)
    task = "classification" if name in CLASSIFIERS else "regression"
    expected = FUNCTIONS[name.removesuffix("Classifier").removesuffix("Regressor")](x, y, task)
    expected = expected[:, 0] if expected.ndim == 2 and name in REGRESSORS else expected
    assert same_bits(outputs(model, x), expected)


def test_a_network_keeps_the_state_of_the_least_error_on_held_out_samples():
    settings = NETWORK | {"validation_fraction": 0.3, "eval_every": 20, "n_inner_products": 5}
    for name in ("HingeNetworkClassifier", "HingeNetworkRegressor"):
        x, y = data(name)
        model = small(name, **settings).fit(x, y)
        errors, best = model.validation_errors_, int(np.argmin(model.validation_errors_))
        assert len(errors) == len(model.loss_curve_) == 15
        assert model.state_["step"] == 20 * (best + 1) <= model.n_iter_ == 300
        held = np.random.default_rng([0, 1]).permutation(len(x))[:45]
        score = model.score(x[held], y[held])
        assert 1 - score == pytest.approx(errors[best], abs=1e-5)
    assert model.fit(x, y).validation_errors_ == errors
    assert small("HingeNetworkClassifier").fit(X, Y).validation_errors_ == []


def test_the_network_of_scalar_leaves_learns():
    settings = {"leaves": "scalar", "optimizer": "adagrad", "learning_rate": 0.1, "kind": "fern"}
    assert small("HingeNetworkClassifier", **settings).fit(X[::2], Y[::2]).score(X[1::2], Y[1::2]) > 0.85
    for share in (-0.1, 0.6, "some", True, np.nan):
        with pytest.raises(ValueError, match="validation_fraction: expected a share of 0 to 0.5, got "):
            small("HingeNetworkClassifier", validation_fraction=share).fit(X, Y)


# Parameters of an estimator that its function lacks.
OWN = {
    "n_jobs",
    "oob_score",
    "random_state",
    "early_stopping",
    "validation_fraction",
    "n_iter_no_change",
    "n_forests",
    "categorical_features",
    "max_samples",
    "bootstrap_weights",
    "trees",
    "standardize",
}


@pytest.mark.parametrize("name", KINDS)
def test_every_parameter_reaches_its_function(name):
    estimator = small(name)
    functions = [estimator._function, hforest.samples]
    functions += {
        "Neural": [neural.linear_init],
        "Cascade": [hforest.grow],
        "Honest": [stats.honest_counts, project.sparse_distribution, project.grouped_distribution],
        "Oblique": [project.sparse_distribution],
        "Manifold": [project.patch_distribution],
    }.get(name.partition("Forest")[0], [])
    known = {parameter for function in functions for parameter in inspect.signature(function).parameters}
    for parameter in estimator.get_params():
        if estimator._names.get(parameter, parameter) not in known:
            assert parameter in OWN, parameter


@pytest.mark.parametrize("name", KINDS)
def test_defaults_are_those_of_the_function(name):
    estimator = getattr(hs, name)()
    given = inspect.signature(estimator._function).parameters
    for parameter, value in estimator.get_params().items():
        theirs = estimator._names.get(parameter, parameter)
        if theirs not in given or (name.startswith("Neural") and theirs == "lr"):  # docs/sklearn.md names it
            continue
        # The predictions above test the meaning of None and "auto".
        default = (EXTRA if getattr(estimator, "_fixed", {}) else {}).get(theirs, given[theirs].default)
        assert default in (value, None, "auto"), parameter


@pytest.mark.parametrize("name", GROWN)
def test_settings_reach_the_growth(name):
    x, y = data(name)
    for settings in ({"max_depth": 2}, {"min_samples_leaf": 20}, {"min_samples_split": 60}):
        forest = small(name, **settings).fit(x, y).forest_
        assert forest.feature.size < small(name).fit(x, y).forest_.feature.size


def test_features_sampled_by_a_logarithm():
    x = np.random.default_rng(0).normal(size=(60, 20))
    y = x[:, 0] > 0
    a, b = (small("RandomForestClassifier", max_features=m).fit(x, y) for m in ("log2", 4))
    assert same_bits(a.predict_proba(x), b.predict_proba(x))


@pytest.mark.parametrize("name", REGRESSORS)
def test_several_targets(name):
    y = np.stack([TARGETS, -TARGETS, X_TARGETS[:, 2]], axis=1)
    model = small(name).fit(X_TARGETS, y)
    assert model.predict(X_TARGETS).shape == y.shape
    assert model.n_outputs_ == 3
    assert model.score(X_TARGETS, y) > 0.4


def test_a_column_of_targets_is_one_target():
    with pytest.warns(DataConversionWarning, match="numpy.ravel"):
        model = small("RandomForestRegressor").fit(X_TARGETS, TARGETS[:, None])
    flat = small("RandomForestRegressor").fit(X_TARGETS, TARGETS)
    assert same_bits(model.predict(X_TARGETS), flat.predict(X_TARGETS))


# --------------------------------------------------------------------------- leaves, paths, importances


@pytest.mark.parametrize("name", GROWN)
def test_leaves_paths_and_importances(name):
    x, y = data(name)
    model = small(name).fit(x, y)
    forest = model.forest_
    leaf = model.apply(x)
    assert same_bits(leaf, tree.apply(forest, x))
    path, start = model.decision_path(x)
    assert path.shape == (len(x), forest.feature.size)
    assert same_bits(start, forest.tree_start)
    for i in (0, 70, 149):
        expected = [start[m] + tree.path(forest, x[i], m) for m in range(8)]
        assert path[i].indices.tolist() == np.concatenate(expected).tolist()
        assert (path[i].data == 1).all()
    assert same_bits(model.feature_importances_, tree.importance(forest, by="gain"))


@pytest.mark.parametrize("name", BOOTSTRAPPED)
def test_out_of_bag_scores(name):
    x, y = data(name)
    model = small(name, n_estimators=40, bootstrap=True, oob_score=True).fit(x, y)
    expected = tree.out_of_bag(model.forest_, x, growth.bootstrap_counts(150, 40, rng=0))
    if name in CLASSIFIERS:
        assert same_bits(model.oob_decision_function_, expected)
        assert model.oob_score_ == (expected.argmax(axis=1) == y).mean()
    else:
        assert same_bits(model.oob_prediction_, expected[:, 0])
        error = ((expected[:, 0] - y) ** 2).sum() / ((y - y.mean()) ** 2).sum()
        assert model.oob_score_ == pytest.approx(1 - error)
    # The same estimates by hand: forests drawn by the function itself have these counts.
    assert model.oob_score_ < model.score(x, y)


def test_out_of_bag_scores_of_few_trees_and_other_metrics():
    model = small("RandomForestClassifier", n_estimators=2, oob_score=True)
    with pytest.warns(UserWarning, match="drawn by every tree"):
        model.fit(X, TEXT)
    seen = ~np.isnan(model.oob_decision_function_[:, 0])
    assert 0 < seen.sum() < 150
    right = model.classes_[model.oob_decision_function_[seen].argmax(axis=1)] == TEXT[seen]
    assert model.oob_score_ == right.mean()
    model = small("RandomForestClassifier", n_estimators=50, oob_score=balanced_accuracy_score).fit(X, TEXT)
    predicted = model.classes_[model.oob_decision_function_.argmax(axis=1)]
    assert model.oob_score_ == balanced_accuracy_score(TEXT, predicted)
    with pytest.raises(ValueError, match="oob_score: expected False with bootstrap=False"):
        small("ExtraTreesClassifier", oob_score=True).fit(X, Y)


# --------------------------------------------------------------------------- numbers of draws, draws by weights


@pytest.mark.filterwarnings("ignore:.*drawn by every tree:UserWarning")
@pytest.mark.parametrize("name", BOOTSTRAPPED)
def test_numbers_of_draws(name):
    x, y = data(name)

    def fitted(**settings):
        return small(name, bootstrap=True, **settings).fit(x, y)

    plain = outputs(fitted(), x)
    for max_samples in (150, 1.0):
        assert same_bits(outputs(fitted(max_samples=max_samples), x), plain)
    for max_samples, n_draws in ((20, 20), (0.3, 45), (1.6, 240), (1e-9, 1)):
        counts = growth.bootstrap_counts(150, 8, n_draws=n_draws, rng=0)
        model = fitted(max_samples=max_samples, oob_score=n_draws > 1)
        assert not same_bits(outputs(model, x), plain)
        if n_draws == 1:
            assert model.forest_.feature.size == 8  # trees of one sample
        elif name in CLASSIFIERS:
            assert same_bits(model.oob_decision_function_, tree.out_of_bag(model.forest_, x, counts))
        else:
            assert same_bits(model.oob_prediction_, tree.out_of_bag(model.forest_, x, counts)[:, 0])


def test_numbers_of_draws_that_are_refused():
    for name, settings, message in (
        ("RandomForestClassifier", {"max_samples": 0}, "^max_samples: expected 1 to"),
        ("RandomForestClassifier", {"max_samples": 0.0}, "^max_samples: expected a finite number > 0"),
        ("RandomForestClassifier", {"max_samples": np.inf}, "^max_samples: expected a finite number > 0"),
        ("RandomForestClassifier", {"max_samples": 1e300}, "^max_samples: expected 1 to"),
        ("ExtraTreesClassifier", {"max_samples": 5}, "^max_samples: expected None with bootstrap=False, got 5; pass"),
        ("ExtraTreesClassifier", {"bootstrap_weights": "draw"}, "^bootstrap_weights: expected 'multiply' with boot"),
        ("RandomForestClassifier", {"bootstrap_weights": "divide"}, "^bootstrap_weights: expected 'multiply' or 'draw', got 'divide'"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            small(name, **settings).fit(X, Y)
    for wrong in (True, "half", [3]):
        with pytest.raises(TypeError, match="^max_samples: expected"):
            small("RandomForestClassifier", max_samples=wrong).fit(X, Y)
    with pytest.raises(ValueError, match="^sample_weight: expected at least one weight above 0"):
        small("RandomForestClassifier", bootstrap_weights="draw").fit(X, Y, sample_weight=np.zeros(150))


@pytest.mark.parametrize("name", BOOTSTRAPPED)
def test_weights_that_draw_the_bootstrap(name):
    x, y = data(name)
    weight = np.arange(150) % 5 / 2.0
    model = small(name, bootstrap=True, bootstrap_weights="draw", max_samples=0.5)
    plain = outputs(clone(model).fit(x, y), x)
    assert same_bits(plain, outputs(small(name, bootstrap=True, max_samples=0.5).fit(x, y), x))
    counts = growth.bootstrap_counts(
        150, 8, n_draws=75, sample_weight=weight, rng=0
    )  # half of their sum, 150
    kind = name.removesuffix("Classifier").removesuffix("Regressor")
    if kind == "RandomForest":
        task = "classification" if name in CLASSIFIERS else "regression"
        expected = tree.predict(hforest.grow(x, y, 8, task=task, bootstrap=counts, rng=0), x)
        expected = expected if name in CLASSIFIERS else expected[:, 0]
        assert same_bits(outputs(clone(model).fit(x, y, sample_weight=weight), x), expected)
    # A sample of weight 0 changes only the units of CO2 forests.
    x_other, y_other = np.where(weight[:, None] > 0, x, x[:1]), np.where(weight > 0, y, y[0])
    one, other = (
        outputs(clone(model).fit(*data, sample_weight=weight), x) for data in ((x, y), (x_other, y_other))
    )
    assert same_bits(one, other) or kind == "CO2Forest"
    if name in CLASSIFIERS:
        by_class = clone(model).set_params(class_weight={0: 1, 1: 2, 2: 4}).fit(x, y)
        by_sample = clone(model).fit(x, y, sample_weight=2.0**y)
        assert same_bits(outputs(by_class, x), outputs(by_sample, x))
        model.set_params(max_samples=75)
        rare = np.where(y == 0, 0.25, 1.0)
        balanced = clone(model).set_params(class_weight="balanced").fit(x, y, sample_weight=rare)
        assert same_bits(outputs(balanced, x), outputs(clone(model).fit(x, y, sample_weight=np.ones(150)), x))


def test_weights_that_draw_are_as_samples_repeated():
    """As scikit-learn requires, forests on samples with whole weights and on repeated samples agree on average."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(60, 1))
    y, weight = x[:, 0] + rng.normal(size=60), rng.integers(0, 4, 60)
    new = np.linspace(0, 1, 5)[:, None]
    forest = hs.RandomForestRegressor(
        2000, max_samples=1.0, bootstrap_weights="draw", max_depth=2, random_state=0
    )
    weighed = clone(forest).fit(x, y, sample_weight=weight).predict(new)
    repeated = clone(forest).fit(np.repeat(x, weight, axis=0), np.repeat(y, weight)).predict(new)
    assert abs(weighed - repeated).max() < 0.06  # predictions of single trees deviate by 0.5
    unweighed = clone(forest).fit(x, y).predict(new)
    assert abs(weighed - unweighed).max() > 0.2


@pytest.mark.skipif(
    tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 9), reason="weights draw since scikit-learn 1.9"
)
@pytest.mark.parametrize("max_samples", [None, 1.0, 30])
def test_draws_by_weights_are_those_of_scikit_learn(max_samples):
    from sklearn.ensemble import RandomForestRegressor

    rng = np.random.default_rng(0)
    x, new = rng.uniform(size=(80, 2)), rng.uniform(size=(20, 2))
    y, weight = x[:, 0] + rng.normal(size=80), 4 * rng.uniform(size=80) ** 3
    settings = {"max_samples": max_samples, "max_depth": 3, "random_state": 0}

    def predicted(kind, **more):
        return kind(1500, **settings, **more).fit(x, y, sample_weight=weight).predict(new)

    theirs = predicted(RandomForestRegressor)
    # Two forests of scikit-learn of 3000 trees differ by .03 to .08.
    assert abs(predicted(hs.RandomForestRegressor, bootstrap_weights="draw") - theirs).max() < 0.15
    assert abs(predicted(hs.RandomForestRegressor) - theirs).max() > 0.25


# --------------------------------------------------------------------------- honest forests


@pytest.mark.parametrize("trees", ["classic", "extra", "oblique"])
@pytest.mark.parametrize("name", ["HonestForestClassifier", "HonestForestRegressor"])
def test_honest_forests_are_those_of_the_functions(name, trees):
    x, y = data(name)
    settings = {"density": 2.0, "n_projections": 3} if trees == "oblique" else {"max_features": 2}
    model = small(name, n_estimators=40, trees=trees, structure_share=0.4, oob_score=True, **settings)
    model.set_params(max_depth=3).fit(x, y)
    is_class = name in CLASSIFIERS
    counts = stats.honest_counts(
        y if is_class else 150, 40, in_bag=None if is_class else 0.5, structure_share=0.4, rng=0
    )
    for a, b in zip(model.counts_, counts, strict=True):
        assert same_bits(a, b)
    task = {"task": "classification" if is_class else "regression"}
    more = {
        "classic": {"max_features": 2}, "extra": {"max_features": 2, "splitter": "random"},
        "oblique": {"projections": project.sparse_distribution(x.shape[1], 2.0), "n_projections": 3},
    }[trees]  # fmt: skip
    forest = hforest.grow(x, y, 40, max_depth=3, bootstrap=counts.structure, rng=0, **task, **more)
    forest = tree.refit(forest, x, y, counts=counts.leaf, **task)
    assert all(same_bits(a, b) for a, b in zip(model.forest_, forest, strict=True))
    p, votes = stats.posterior(forest, x, y, counts, weighting="shares", **task)
    of_trees = tree.out_of_bag(forest, x, counts.structure + counts.leaf)
    np.testing.assert_allclose(p, of_trees, rtol=1e-5, atol=1e-6)  # pruned leaves: every tree votes
    assert same_bits(model.oob_votes_, votes)
    assert (votes == ((counts.structure + counts.leaf) == 0).sum(axis=0)).all()
    if is_class:
        assert same_bits(model.oob_decision_function_, p)
        assert model.oob_score_ == (p.argmax(axis=1) == y).mean() > 0.8
    else:
        assert same_bits(model.oob_prediction_, p[:, 0])


def test_intervals_of_few_trees():
    model = small("HonestForestRegressor").fit(X_TARGETS, TARGETS)
    with pytest.warns(
        UserWarning, match=r"of the variance is Monte Carlo bias for \d+ of 150 samples.*raise n_estimators"
    ):
        got = model.predict_interval(X_TARGETS)
    assert got.noise.max() > 1


@pytest.mark.filterwarnings("ignore:more than nine tenths of the variance:UserWarning")
def test_honest_intervals():
    model = small("HonestForestRegressor", n_estimators=900).fit(X_TARGETS[:120], TARGETS[:120])
    new = X_TARGETS[120:]
    got = model.predict_interval(new, coverage=0.8)
    expected = stats.confidence_intervals(model.forest_, model.counts_, new, coverage=0.8)
    assert isinstance(got, stats.ConfidenceIntervals)
    for a, b in zip(got, expected, strict=True):
        assert a.shape == (30,)
        assert same_bits(a, b[:, 0])
    np.testing.assert_allclose(got.mean, model.predict(new), rtol=1e-6)
    copy = pickle.loads(pickle.dumps(model)).predict_interval(new, coverage=0.8)
    assert all(same_bits(a, b) for a, b in zip(got, copy, strict=True))
    model.set_params(in_bag=0.3, n_estimators=3)  # sampled values stay
    assert same_bits(model.predict_interval(new, coverage=0.8).low, got.low)
    two = small("HonestForestRegressor", n_estimators=900).fit(
        X_TARGETS, np.stack([TARGETS, -TARGETS], axis=1)
    )
    low, high = two.predict_interval(new)[2:4]
    np.testing.assert_allclose(low[:, 0], -high[:, 1])
    with pytest.raises(ValueError, match="^coverage: expected a number below 1"):
        model.predict_interval(new, coverage=1.0)
    with pytest.raises(NotFittedError):
        small("HonestForestRegressor").predict_interval(new)
    with pytest.raises(NotFittedError):
        _ = small("HonestForestRegressor").counts_


@pytest.mark.parametrize("name", ["HonestForestClassifier", "HonestForestRegressor"])
def test_honest_forests_of_views(name):
    """The candidates of a node come from groups of columns, given by index or name."""
    x, y = data(name)
    groups = [[2, 0], list(range(3, x.shape[1])), [1]]
    settings = {"trees": "oblique", "density": 2.0, "n_projections": [1, 2, 1]}
    model = small(name, groups=groups, **settings).fit(x, y)
    task = {"task": "classification" if name in CLASSIFIERS else "regression"}
    views = project.grouped_distribution(project.sparse_distribution(x.shape[1], 2.0), groups, [1, 2, 1])
    forest = hforest.grow(x, y, 8, projections=views, bootstrap=model.counts_.structure, rng=0, **task)
    forest = tree.refit(forest, x, y, counts=model.counts_.leaf, **task)
    assert all(same_bits(a, b) for a, b in zip(model.forest_, forest, strict=True))
    several = np.diff(forest.indptr) > 1
    assert several.any()
    for node in np.flatnonzero(several):
        columns = set(forest.indices[forest.indptr[node] : forest.indptr[node + 1]])
        assert any(columns <= set(group) for group in groups)
    assert not same_bits(small(name, **settings | {"n_projections": 4}).fit(x, y).forest_.data, forest.data)
    table = pytest.importorskip("pandas").DataFrame(x, columns=[f"c{j}" for j in range(x.shape[1])])
    named = [[f"c{j}" for j in group] for group in groups]
    again = small(name, groups=named, **settings).fit(table, y)
    assert all(same_bits(a, b) for a, b in zip(again.forest_, forest, strict=True))


def test_honest_forests_that_are_refused():
    oblique = {"trees": "oblique"}
    for settings, n, message in (
        ({"groups": [["c9"]], **oblique}, 150, "groups: expected column names of X, got 'c9'; pass X as a DataFrame with these columns, or"),
        ({"groups": [[0]], **oblique}, 150, "groups: expected all of n_features = "),
        ({"groups": [[0], [0]], **oblique}, 150, r"groups\[1\]: expected columns that no earlier group has"),
        ({"groups": 3, **oblique}, 150, "groups: expected a list of groups of column indices, got int"),
        ({"groups": [[0, 1, 2, 3]]}, 150, "groups: expected None with trees='classic', got list; pass trees="),
        ({"trees": "random"}, 150, "trees: expected one of 'classic', 'extra', 'oblique', got 'random'"),
        ({"draw": "all"}, 150, "draw: expected one of 'fixed'"),
        ({"in_bag": 2.0}, 150, "in_bag: expected a finite number"),
        ({"structure_share": 0.0}, 150, "structure_share: expected"),
        ({}, 102, "y: expected classes of which each tree has rows for its splits"),
        ({}, 2, "X: expected at least 3 samples, got 2 samples"),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=f"^{message}"):
            small("HonestForestClassifier", **settings).fit(X[:n], Y[:n])


# --------------------------------------------------------------------------- labels, weights, seeds, threads


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize(
    "labels", [TEXT, TEXT.astype(str), Y - 7, Y == 1], ids=["objects", "text", "negative", "bools"]
)
def test_labels_of_any_kind(name, labels):
    model = small(name).fit(X, labels)
    plain = small(name).fit(X, np.unique(labels, return_inverse=True)[1])
    assert model.classes_.tolist() == np.unique(labels).tolist()
    assert model.predict(X).dtype == model.classes_.dtype
    assert (model.predict(X) == model.classes_[plain.predict(X)]).all()
    assert model.score(X, labels) > 0.85


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_one_class(name):
    model = small(name).fit(X, ["only"] * 150)
    assert (model.predict(X) == "only").all()
    assert model.predict_proba(X) == pytest.approx(1)


@pytest.mark.parametrize("name", sorted({*CLASSIFIERS} & {*WEIGHTED}))
def test_class_weight(name):
    def fitted(weight):
        return mixed(name, class_weight=weight).fit(X[::2], TEXT[::2]).predict_proba(X[1::2])

    plain, equal = fitted(None), fitted({"setosa": 1, "versicolor": 1, "virginica": 1})
    assert same_bits(plain, equal)
    skewed = fitted({"virginica": 50})  # others have 1
    assert skewed[:, 2].sum() > plain[:, 2].sum()
    with pytest.raises(ValueError, match="are not in class_weight"):
        fitted({"virginicaa": 50})
    x, y, x_test = parts(name)
    by_class = small(name, class_weight={0: 1, 1: 2, 2: 4}).fit(x, y)
    by_sample = small(name).fit(x, y, sample_weight=2.0**y)
    assert same_bits(by_class.predict_proba(x_test), by_sample.predict_proba(x_test))


@pytest.mark.parametrize("name", WEIGHTED)
def test_sample_weight(name):
    x, y, x_test = parts(name)
    plain = outputs(mixed(name).fit(x, y), x_test)
    assert same_bits(outputs(mixed(name).fit(x, y, sample_weight=3.0), x_test), plain)
    weight = np.where(np.arange(len(x)) % 2, 1, 1e-6)
    assert not same_bits(outputs(mixed(name).fit(x, y, sample_weight=weight), x_test), plain)
    with pytest.raises(ValueError, match="sample_weight: expected shape"):
        mixed(name).fit(x, y, sample_weight=weight[:-1])


@pytest.mark.parametrize("name", KINDS)
def test_seeds(name):
    x, y, x_test = parts(name)

    def fitted(random_state):
        return outputs(small(name, random_state=random_state).fit(x, y), x_test)

    assert same_bits(fitted(3), fitted(np.int64(3)))
    assert not same_bits(fitted(3), fitted(4))
    assert same_bits(fitted(np.random.RandomState(3)), fitted(np.random.RandomState(3)))
    state = np.random.RandomState(3)
    assert not same_bits(fitted(state), fitted(state))
    with pytest.raises(ValueError, match="cannot be used to seed"):
        fitted("three")


@pytest.mark.skipif(not hforest.show_config("dicts")["openmp"], reason="this build has one thread")
@pytest.mark.parametrize("name", KINDS)
def test_number_of_threads(name, threads):
    x, y = data(name)
    threads(3)
    model = small(name, n_jobs=2)
    seen = []

    class Watching(type(model)):
        def _learned(self, *arrays):
            seen.append(hforest.get_num_threads())
            return super()._learned(*arrays)

        def _outputs(self, x):
            seen.append(hforest.get_num_threads())
            return super()._outputs(x)

    watching = Watching(**model.get_params()).fit(x, y)
    found = outputs(watching, x)
    assert seen == [2, 2]
    assert hforest.get_num_threads() == 3
    with pytest.raises(ValueError, match="n_estimators"):
        watching.set_params(n_estimators=0).fit(x, y)
    assert hforest.get_num_threads() == 3
    assert same_bits(found, outputs(small(name).fit(x, y), x))


def test_numbers_of_threads():
    assert hs.base.number_of_threads(5) == 5
    assert hs.base.number_of_threads(-1) == joblib.cpu_count()
    assert hs.base.number_of_threads(-(10**6)) == 1
    for n_jobs, error in ((0, ValueError), (1025, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="n_jobs: expected .*; pass None"):
            small("RandomForestClassifier", n_jobs=n_jobs).fit(X, Y)


# --------------------------------------------------------------------------- training by steps


@pytest.mark.parametrize("name", ["HingeForestClassifier", "HingeForestRegressor"])
def test_steps_of_hinge_forests(name):
    x, y = data(name)
    assert small(name).fit(x, y).n_iter_ == 60
    assert small(name, max_iter=0).fit(x, y).n_iter_ == 0
    settings = {"n_members": 1, "max_iter": 1500, "learning_rate": 0.5}
    stopped = small(name, validation_fraction=0.3, **settings).fit(x, y)
    assert recipe.PATIENCE * recipe.JUDGE_EVERY <= stopped.n_iter_ < 1500
    assert stopped.n_iter_ % recipe.JUDGE_EVERY == 0
    assert small(name, validation_fraction=0.0, **settings).fit(x, y).n_iter_ == 1500


def test_early_stopping_of_neural_forests():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 5)), rng.integers(0, 2, 200)  # noise: the loss on held-out samples rises
    settings = {"max_iter": 60, "learning_rate": 0.1, "validation_fraction": 0.25, "n_iter_no_change": 3}
    model = small("NeuralForestClassifier", early_stopping=True, **settings).fit(x, y)
    losses = model.validation_losses_
    best = int(np.argmin(losses))
    assert len(losses) == len(model.loss_curve_) == model.n_iter_ == best + 1 + 3 < 60
    # The final model has the smallest loss, as the held-out samples, drawn again, show.
    from sklearn.model_selection import train_test_split

    _, held, _, labels = train_test_split(x, y, test_size=0.25, stratify=y, random_state=0)
    p = neural.predict(model.model_, held)[np.arange(len(held)), labels]
    assert -np.log(p.astype(float)).mean() == pytest.approx(losses[best])
    for settings, message in (
        ({"n_iter_no_change": 0}, "n_iter_no_change: expected an int of at least 1, got 0"),
        ({"validation_fraction": 1.5}, "validation_fraction: expected a share above 0 and below 1, got 1.5"),
    ):
        with pytest.raises(ValueError, match=message):
            small("NeuralForestClassifier", early_stopping=True, **settings).fit(x, y)
    assert not hasattr(small("NeuralForestClassifier").fit(x, y), "validation_losses_")


STEPPED = ["HingeForestClassifier", "HingeForestRegressor", "NeuralForestClassifier"]


def in_batches(model, x, y, n=5, **settings):
    """Returns the model after `partial_fit` with n batches."""
    for rows in np.array_split(np.arange(len(x)), n):
        model.partial_fit(x[rows], y[rows], **settings)
        settings = {}
    return model


@pytest.mark.parametrize("name", STEPPED)
def test_batches_are_learned(name):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 4)) * [1, 10, 1e-3, 1] + [0, 100, 0, 0]
    target = x[:, 0] * (x[:, 1] - 100)
    y = np.where(target > 0, "more", "less") if name in CLASSIFIERS else target * 1e6
    classes = {"classes": ["more", "less"]} if name in CLASSIFIERS else {}
    model = small(name, max_iter=None if name.startswith("Hinge") else 4)
    model.partial_fit(x[:300], y[:300], **classes)
    early = model.score(x[2500:], y[2500:])
    begun = pickle.loads(pickle.dumps(model))
    in_batches(model, x[300:2500], y[300:2500], 10)
    assert model.score(x[2500:], y[2500:]) > early + 0.01
    assert model.t_ == {"H": 10 * 4, "N": 5 + 10 * 4}[name[0]]
    # The state between calls is pickled, too.
    in_batches(begun, x[300:2500], y[300:2500], 10)
    assert same_bits(outputs(begun, x), outputs(model, x))


@pytest.mark.parametrize("name", STEPPED)
def test_batches_go_on_from_fit_and_fit_begins_anew(name):
    x, y = data(name)
    fitted = small(name).fit(x, y)
    expected, n_iter = outputs(fitted, x), fitted.n_iter_
    fitted.partial_fit(x, y)  # classes are known
    assert not same_bits(outputs(fitted, x), expected)
    assert fitted.t_ == 3
    assert fitted.score(x, y) > 0.6
    assert same_bits(outputs(fitted.fit(x, y), x), expected)
    assert fitted.n_iter_ == n_iter
    assert not hasattr(fitted, "t_")
    fitted.partial_fit(x, y)
    assert fitted.t_ == 3
    first = fitted.fit(x, y).partial_fit(x, y)
    again = small(name).fit(x, y).partial_fit(x, y)
    assert same_bits(outputs(first, x), outputs(again, x))


@pytest.mark.parametrize("name", STEPPED)
def test_weights_of_batches(name):
    order = np.random.default_rng(0).permutation(150)
    x, y = (a[order] for a in data(name))
    classes = {"classes": np.unique(y)} if name in CLASSIFIERS else {}

    def fitted(weight=None, **settings):
        model = small(name, **settings).partial_fit(x[:80], y[:80], sample_weight=weight, **classes)
        model.partial_fit(x[80:], y[80:], sample_weight=weight if np.ndim(weight) == 0 else weight[:70])
        return outputs(model, x)

    plain = fitted()
    assert same_bits(fitted(2.0), plain)
    weight = np.where(y[:80] == y.max(), 16, 1) if name in CLASSIFIERS else np.linspace(0.1, 2, 80)
    assert not same_bits(fitted(weight), plain)
    if name not in CLASSIFIERS:
        return
    heavy = fitted(class_weight={0: 1, 1: 1, 2: 16})
    assert heavy[:, 2].sum() > plain[:, 2].sum()
    with pytest.raises(
        ValueError, match="class_weight: expected None or a mapping in partial_fit, got 'balanced'"
    ):
        fitted(class_weight="balanced")


@pytest.mark.parametrize("name", [name for name in STEPPED if name in CLASSIFIERS])
def test_classes_of_batches(name):
    # The first batch lacks a class.
    first = Y < 2
    model = small(name).partial_fit(X[first], TEXT[first], classes=TEXT)
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert model.predict_proba(X).shape == (150, 3)
    order = np.random.default_rng(0).permutation(150)
    for _ in range(60):
        model.partial_fit(X[order], TEXT[order])
    assert (model.predict(X[Y == 2]) == "virginica").mean() > 0.5
    model.partial_fit(X, TEXT, classes=["virginica", "versicolor", "setosa"])
    for new, x, y, classes, message in (
        (
            model,
            X,
            TEXT,
            ["virginica", "setosa"],
            "classes: expected the classes of the first call, .*; pass None",
        ),
        (
            model,
            X[:1],
            ["rosa"],
            None,
            r"y: expected labels of classes = .*, got \['rosa'\]; pass the labels",
        ),
        (
            small(name),
            X,
            TEXT,
            None,
            "classes: expected labels in the first call of partial_fit, got None; pass",
        ),
        (model, X[:, :2], TEXT, None, "features"),
    ):
        with pytest.raises(ValueError, match=message):
            new.partial_fit(x, y, classes=classes)


def test_several_targets_in_batches():
    y = np.stack([TARGETS, -TARGETS], axis=1)
    model = in_batches(small("HingeForestRegressor"), X_TARGETS, y, 2)
    assert model.n_outputs_ == 2
    assert model.score(X_TARGETS, y) > 0.3
    with pytest.raises(ValueError, match="y: expected the 2 targets of the model, got 1; pass as many"):
        model.partial_fit(X_TARGETS, TARGETS)


@pytest.mark.parametrize("name", ["HingeForestClassifier", "HingeForestRegressor", "CascadeForestClassifier"])
def test_importances_of_grown_starts_and_first_levels(name):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5)) * [1, 1e3, 1, 1, 1]
    y = x[:, 1] > 0 if name in CLASSIFIERS else x[:, 1]
    with pytest.raises(NotFittedError):
        small(name).feature_importances_  # noqa: B018
    model = small(name).fit(x, y)
    found = model.feature_importances_
    assert found.shape == (5,)
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()
    assert found.argmax() == 1
    if name.startswith("Cascade"):
        first = [tree.importance(forest, by="gain") for forest in model.cascade_.levels[0]]
        assert found == pytest.approx(np.mean(first, axis=0))
        return
    by_hand = np.zeros(5)
    for member in model.model_.members:
        shares = tree.importance(member.forest, by="gain")
        by_hand += shares[:5]
        for j, share in enumerate(shares[5:]):
            size = abs(member.grown_kernel[:, j].astype(float))
            by_hand += share * size / size.sum()
    assert found == pytest.approx(by_hand / len(model.model_.members))


def test_cascades_name_the_class_of_few_samples():
    labels = TEXT.copy()
    labels[:2] = "rare"
    with pytest.raises(
        ValueError, match=r"y: expected at least n_folds = 3 .* 2 sample\(s\) of class rare; lower"
    ):
        small("CascadeForestClassifier").fit(X, labels)
    model = small("CascadeForestClassifier", class_vectors="out_of_bag").fit(X, labels)
    assert model.predict_proba(X).shape == (150, 4)
    for n_forests in (0, 10**30):
        with pytest.raises(
            ValueError, match=f"n_forests: expected an int of 1 to 65536, got {n_forests}; pass"
        ):
            small("CascadeForestClassifier", n_forests=n_forests).fit(X, TEXT)


def test_manifold_forests_take_samples_as_signals_by_default():
    with pytest.warns(
        UserWarning, match=r"^shape: expected the shape .*, got None: .* pass shape=\(4,\) if"
    ) as caught:
        a = small("ManifoldForestClassifier").fit(X, Y)
    assert caught[0].filename == __file__
    b = small("ManifoldForestClassifier", shape=(4,)).fit(X, Y)
    assert same_bits(a.predict_proba(X), b.predict_proba(X))
    assert small("ManifoldForestClassifier").fit(X[:, :1], Y).score(X[:, :1], Y) > 0.6
    with pytest.raises(ValueError, match="shape: expected sizes that multiply to n_features = 4"):
        small("ManifoldForestClassifier", shape=(3, 2), patch_max=2).fit(X, Y)


# --------------------------------------------------------------------------- tables


# scikit-learn 1.6 causes a warning of polars 1, and finds no names in frames of polars 2.
@pytest.mark.filterwarnings("ignore:Support for the dataframe interchange protocol:DeprecationWarning")
@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("name", KINDS)
def test_data_frames(name, library):
    frames = pytest.importorskip(library, reason=f"needs {library}")
    x, y = data(name)
    names = [f"column {i}" for i in range(x.shape[1])]
    frame = frames.DataFrame(dict(zip(names, x.T, strict=True)))
    target = frames.Series(TEXT.tolist() if name in CLASSIFIERS else y)
    model = small(name).fit(frame, target)
    assert model.n_features_in_ == x.shape[1]
    plain = small(name).fit(x, TEXT if name in CLASSIFIERS else y)
    assert same_bits(outputs(model, frame), outputs(plain, x))
    if library == "polars" and not hasattr(StandardScaler().fit(frame), "feature_names_in_"):
        assert sklearn.__version__.startswith("1.6.")
        return
    assert model.feature_names_in_.tolist() == names
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[names[::-1]])


def test_pipeline_of_pandas():
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c", "d"]).assign(
        kind=np.where(X[:, 3] > 1.3, "wide", "narrow")
    )
    columns = ColumnTransformer(
        [("numbers", StandardScaler(), ["a", "b"]), ("words", OneHotEncoder(sparse_output=False), ["kind"])]
    )
    with sklearn.config_context(transform_output="pandas"):
        model = make_pipeline(columns, small("ObliqueForestClassifier")).fit(frame, TEXT)
        score = cross_val_score(model, frame, TEXT, cv=3).mean()
    expected = ["numbers__a", "numbers__b", "words__kind_narrow", "words__kind_wide"]
    assert model[-1].feature_names_in_.tolist() == expected
    assert score > 0.8


# --------------------------------------------------------------------------- tools of scikit-learn


@pytest.mark.parametrize("name", KINDS)
def test_grids_and_cross_validation(name):
    x, y = data(name)
    grid = GridSearchCV(small(name), {"n_estimators": [2, 6]}, cv=2).fit(x, y)
    assert grid.best_estimator_.n_estimators in (2, 6)
    assert np.isfinite(grid.cv_results_["mean_test_score"]).all()
    pipeline = make_pipeline(StandardScaler(), small(name))
    with joblib.parallel_backend("threading"):
        scores = cross_val_score(pipeline, x, y, cv=2, n_jobs=2)
    assert same_bits(scores, cross_val_score(pipeline, x, y, cv=2))


@pytest.mark.parametrize("name", KINDS)
def test_permutation_importance(name):
    x = np.random.default_rng(0).normal(size=(150, 3))
    y = x[:, 1] > 0 if name in CLASSIFIERS else x[:, 1]
    found = permutation_importance(small(name).fit(x, y), x, y, n_repeats=2, random_state=0)
    assert found.importances_mean.argmax() == 1


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_calibration(name):
    model = CalibratedClassifierCV(small(name), cv=2).fit(X, TEXT)
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(1)
    assert model.score(X, TEXT) > 0.85


def test_grown_forests_are_prepared_once(tmp_path, monkeypatch):
    model = small("RandomForestClassifier").fit(X, TEXT)
    expected, text = outputs(model, X), pickle.dumps(model)
    sizes = sum(a.nbytes for a in model.forest_)
    assert len(text) < sizes + 5000  # the arrays are stored once
    assert isinstance(model._forest(), tree.Prepared)
    joblib.dump(model, tmp_path / "model.joblib")
    for again in (pickle.loads(text), joblib.load(tmp_path / "model.joblib")):
        assert again._forest().forest is again.forest_
        assert same_bits(outputs(again, X), expected)
    mapped = joblib.load(tmp_path / "model.joblib", mmap_mode="r")
    assert mapped._forest() is mapped.forest_
    with pytest.raises(ValueError, match="read-only"):
        model.forest_.value[:] = 0
    other = small("RandomForestClassifier", random_state=1).fit(X, TEXT)
    model.forest_ = other.forest_._replace(gain=other.forest_.gain.copy())
    assert same_bits(outputs(model, X), outputs(other, X))
    # A model of an earlier version has only its forest.
    state = {name: value for name, value in vars(other).items() if name != "_prepared"}
    old = object.__new__(type(other))
    old.__setstate__(state)
    assert isinstance(old._forest(), tree.Prepared)

    def fail(*arguments):
        raise AssertionError

    monkeypatch.setattr(tree.forest, "check_nodes", fail)
    other.predict(X[:1])
    other.apply(X)


@pytest.mark.parametrize("name", KINDS)
def test_pickle_joblib_and_clone(name, tmp_path):
    x, y = data(name)
    model = small(name).fit(x, y)
    expected = outputs(model, x)
    assert same_bits(outputs(pickle.loads(pickle.dumps(model)), x), expected)
    joblib.dump(model, tmp_path / "model.joblib")
    for mode in (None, "r"):
        assert same_bits(outputs(joblib.load(tmp_path / "model.joblib", mmap_mode=mode), x), expected)
    cloned = clone(model)
    with pytest.raises(NotFittedError):
        cloned.predict(x)
    assert same_bits(outputs(cloned.fit(x, y), x), expected)
    assert type(model).__module__ == "hforest.sklearn"


def test_metadata_routing():
    weight = np.where(Y == 2, 1, 1e-9)
    with sklearn.config_context(enable_metadata_routing=True):
        model = small("RandomForestClassifier", max_depth=0).set_fit_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        found = make_pipeline(scaler, model).fit(X, Y, sample_weight=weight)
    assert (found.predict_proba(X)[:, 2] > 0.99).all()
    assert (model.fit(X, Y).predict_proba(X)[:, 2] < 0.5).all()


@pytest.mark.slow
def test_worker_processes():
    model = GridSearchCV(small("RandomForestClassifier"), {"max_depth": [1, None]}, cv=2, n_jobs=2).fit(
        X, TEXT
    )
    assert model.best_params_ == {"max_depth": None}
    assert model.score(X, TEXT) > 0.95


# --------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("name", KINDS)
def test_bad_samples(name):
    x, y = data(name)
    model = small(name)
    takes_missing = model.__sklearn_tags__().input_tags.allow_nan
    bad, words = (np.inf, "contains infinity") if takes_missing else (np.nan, r"(?s)contains NaN.*imputer")
    missing = x.copy()
    missing[3, 1] = bad
    sparse = model.__sklearn_tags__().input_tags.sparse
    for wrong, error, message in (
        (missing, ValueError, words),
        *([] if sparse else [(csr_matrix(x), TypeError, r"Sparse data.*toarray")]),
        (x + 1j, ValueError, "Complex"),
        (np.where(x > 0, "a", "b"), ValueError, "to float|bytes/strings"),
    ):
        with pytest.raises(error, match=message):
            small(name).fit(wrong, y)
    model.fit(x, y)
    for wrong, error, message in (
        (missing, ValueError, words.removesuffix(".*imputer")),
        *([] if sparse else [(csr_matrix(x), TypeError, r"Sparse data.*toarray")]),
        (x[:, 1:], ValueError, "features"),
    ):
        with pytest.raises(error, match=message):
            model.predict(wrong)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_bad_labels(name):
    with pytest.raises(ValueError, match="Unknown label type"):
        small(name).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="should be a 1d array"):
        small(name).fit(X, np.stack([Y, Y], axis=1))


@pytest.mark.parametrize("name", KINDS)
def test_messages_name_the_parameters_of_estimators(name):
    x, y = data(name)
    for parameter, value in (
        ("n_estimators", 0), ("max_depth", -1), ("min_samples_leaf", 0), ("max_features", 1.5), ("criterion", "chance"),
        ("learning_rate", -1.0), ("last_learning_rate", 2.0), ("batch_size", 0), ("leaf_iterations", 0), ("max_iter", -3),
        ("validation_fraction", 0.9), ("class_weight", "balanced_subsample"), ("n_folds", 1), ("density", 0.0), ("nu", -1.0),
    ):  # fmt: skip
        if parameter not in small(name).get_params() or (name.startswith("Neural") and parameter[0] == "v"):
            continue
        settings = {"trees": "oblique"} if name.startswith("Honest") and parameter == "density" else {}
        with pytest.raises((TypeError, ValueError), match=f"^{parameter}: expected .*, got .*; "):
            small(name, **{parameter: value}, **settings).fit(x, y)


@pytest.mark.parametrize(
    "name", ["RandomForestClassifier", "HingeForestClassifier", "CascadeForestClassifier"]
)
def test_samples_that_are_no_numbers_have_a_remedy(name):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X)
    for column, words in (
        (pandas.date_range("2020", periods=len(X)), "convert dates to numbers"),
        (pandas.Categorical(["u", "v", "w"] * 50), "number the categories"),
        (np.array(["u", "v", "w"] * 50, object), "number the categories"),
        (np.array([0.5, 1, pandas.NA] * 50, object), "replace them by NaN"),
    ):
        with pytest.raises(
            (TypeError, ValueError), match=f"^X: expected numbers, got .* at index .*; .*{words}"
        ):
            small(name).fit(table.assign(last=column).to_numpy(object), Y)
    with pytest.raises(
        ValueError, match=r"^X: .* got \(150, 2, 2\); .*, X.reshape\(len\(X\), -1\) \(scikit-learn: "
    ):
        small(name).fit(X.reshape(150, 2, 2), Y)
    model = small(name).fit(X, Y)
    with pytest.raises(ValueError, match=r"^X: .* got \(150, 2, 2\); .*, X.reshape\(len\(X\), -1\)"):
        model.predict(X.reshape(150, 2, 2))
    # Others are those of scikit-learn.
    with pytest.raises(ValueError, match="^Found input variables with inconsistent numbers"):
        small(name).fit(X, Y[1:])


def test_without_scikit_learn(monkeypatch):
    def imported():
        spec = importlib.util.spec_from_file_location(
            "hforest.another", hs.__file__, submodule_search_locations=[]
        )
        spec.loader.exec_module(importlib.util.module_from_spec(spec))

    def none(patch):
        patch.setitem(sys.modules, "sklearn", None)

    def old(patch):
        patch.delattr(sklearn.utils.validation, "validate_data")
        patch.setattr(sklearn, "__version__", "1.5.2")

    for change, got in (
        (none, "none; install it with pip install -e '..sklearn.'"),
        (old, "1.5.2; install it"),
    ):
        with monkeypatch.context() as patch:
            change(patch)
            with pytest.raises(ImportError, match=f"expected scikit-learn 1.6 or newer, got {got}"):
                imported()


# ------------------------------------------------------------------------------- missing values, categories


def with_missing(n=300):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 4))
    x[:, 3] = rng.integers(0, 12, n)
    y = np.where(x[:, 3] % 2 == 0, "even", "odd")
    x[rng.random((n, 4)) < 0.1] = np.nan
    return x, y


@pytest.mark.parametrize(
    "name",
    ["RandomForest", "ExtraTrees", "CompletelyRandomForest", "ObliqueForest"],
)
@pytest.mark.parametrize("kind", ["Classifier", "Regressor"])
def test_missing_values_are_learned(name, kind):
    x, y = with_missing()
    target = y if kind == "Classifier" else (y == "odd").astype(float)
    model = getattr(hs, name + kind)(n_estimators=20, random_state=0)
    assert model.__sklearn_tags__().input_tags.allow_nan
    model.fit(x, target)
    assert np.isfinite(model.predict_proba(x) if kind == "Classifier" else model.predict(x)).all()
    assert model.score(x, target) > 0.8
    assert model.decision_path(x)[0].shape[0] == len(x)


def by_categories(name):
    """Returns models whose last column is categorical by number, mask and name, and their frame and targets."""
    pandas = pytest.importorskip("pandas")
    x, y = with_missing()
    target = y if name.endswith("Classifier") else (y == "odd").astype(float)
    frame = pandas.DataFrame(x, columns=list("abcd"))
    given = ([3], [False, False, False, True], ["d"])
    found = [small(name, categorical_features=columns).fit(frame, target) for columns in given]
    for model in found:
        assert same_bits(outputs(model, frame), outputs(found[0], frame))
    with pytest.raises(ValueError, match="categorical_features: expected column names of X, got 'e'"):
        small(name, categorical_features=["e"]).fit(frame, target)
    with pytest.raises(IndexError, match="categorical_features: expected feature indices"):
        small(name, categorical_features=[4]).fit(frame, target)
    return found, frame, target


@pytest.mark.parametrize(
    "name", ["RandomForestClassifier", "ExtraTreesClassifier", "CompletelyRandomForestClassifier"]
)
def test_columns_of_categories_have_numbers_masks_or_names(name):
    assert all(model.forest_.category_bits.size for model in by_categories(name)[0])


@pytest.mark.parametrize("name", ["HingeForestClassifier", "HingeForestRegressor"])
def test_hinge_forests_learn_missing_values_and_categories(name):
    found, frame, target = by_categories(name)
    for model in found:
        assert model.__sklearn_tags__().input_tags.allow_nan
        assert model.feature_importances_.shape == (4,)
        assert model.feature_importances_.argmax() == 3
        np.testing.assert_allclose(model.feature_importances_.sum(), 1)
        assert model.score(frame, target) > 0.5
    classes = {"classes": np.unique(target)} if name.endswith("Classifier") else {}
    model = small(name, categorical_features=["d"]).partial_fit(frame[:200], target[:200], **classes)
    model.partial_fit(frame[200:], target[200:])
    assert model.model_.encoding.levels.categorical.tolist() == [False, False, False, True]
    assert len(model.predict(frame)) == 300


READ_DTYPES = [
    name for name in KINDS if "categorical_features" in inspect.signature(getattr(hs, name)).parameters
]


def frame_of(n=120, categories=True):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("narwhals")
    rng = np.random.default_rng(0)
    table = {
        "size": rng.normal(size=n),
        "same": np.ones(n),
        "day": np.datetime64("2024-01-01") + rng.integers(0, 60, n),
    }
    if categories:
        table["colour"] = np.array(["red", "green", "blue"])[rng.integers(0, 3, n)]
    hue = table.get("colour", np.array(["red"]))
    return pandas.DataFrame(table), (table["size"] > 0) ^ (hue == "red")


@pytest.mark.parametrize("name", READ_DTYPES)
def test_columns_of_a_frame_are_read_by_their_dtypes(name):
    assert {"RandomForestClassifier", "ObliqueForestRegressor", "HingeForestClassifier"} <= set(READ_DTYPES)
    takes = small(name)._splits_by_categories()
    frame, y = frame_of(categories=takes)
    y = y.astype(float) if name in REGRESSORS else np.array(["no", "yes"])[y.astype(int)]
    model = small(name, categorical_features="from_dtype")
    assert clone(model).get_params() == model.get_params()
    model.fit(frame, y)
    assert model.n_features_in_ == frame.shape[1]
    assert model.feature_names_in_.tolist() == list(frame)
    columns = tabular.columns(frame)
    assert model.columns_.parts.tolist() == columns.parts.tolist()
    x = tabular.numbers(columns, frame)
    chosen = {"categorical_features": np.flatnonzero(columns.categorical).tolist()} if takes else {}
    plain = small(name, **chosen).fit(x, y)
    np.testing.assert_array_equal(outputs(model, frame), outputs(plain, x))
    importances = model.feature_importances_
    assert importances.shape == (frame.shape[1],)
    assert importances[1] == 0
    day = plain.feature_importances_[columns.source == 2].sum()
    np.testing.assert_allclose(importances[2], day)
    assert model.score(frame, y) > 0.3
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(outputs(back, frame), outputs(model, frame))
    for wrong, error, message in (
        (frame.assign(size=np.inf), ValueError, "^X, column 'size': expected finite numbers"),
        (frame.assign(day="today"), TypeError, "^X, column 'day': expected dates and times without a time zone, got text"),
        (frame.rename(columns={"size": "width"}), ValueError, "The feature names should match"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            model.predict(wrong)
    np.testing.assert_array_equal(outputs(small(name).fit(frame, y), frame), outputs(model, frame))


@pytest.mark.parametrize("name", KINDS)
def test_every_estimator_takes_text_categories_and_dates(name):
    if name.startswith("Manifold"):
        pytest.skip("its columns are pixels")
    frame, y = frame_of()
    days = frame["day"].dt.strftime("%d.%m.%Y")
    frame = frame.assign(day=days, colour=frame["colour"].astype("category"))
    y = y.astype(float) if name in REGRESSORS else np.array(["no", "yes"])[y.astype(int)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = small(name).fit(frame, y)
    assert model.score(frame, y) > (-1 if name in REGRESSORS else 0.5)
    assert model.columns_.kinds.tolist() == ["number", "number", "date", "category"]
    if hasattr(model, "feature_importances_"):
        assert model.feature_importances_.shape == (4,)
        assert model.feature_importances_[3] > 0
    unknown = model.predict(frame.assign(colour="grey"))
    assert len(unknown) == len(frame)
    with pytest.raises(TypeError, match="^X, column 'size': expected numbers, got text such as 'wide'"):
        model.predict(frame.assign(size="wide"))


def test_frames_of_text_dates_and_gaps_are_cross_validated():
    frame, y = frame_of(240)
    frame = frame.assign(day=frame["day"].dt.strftime("%d.%m.%Y"))
    frame.loc[::7, "size"] = np.nan
    frame.loc[::11, "colour"] = None
    model = hs.HingeForestClassifier(10, max_iter=100, random_state=0)
    scores = cross_val_score(model, frame, np.where(y, "yes", "no"), cv=3)
    assert scores.mean() > 0.75


def test_labels_of_several_kinds_are_refused():
    x = np.arange(12.0).reshape(6, 2)
    with pytest.raises(
        TypeError, match="^y: expected labels of one kind, got numbers such as 1 at index 0 and text"
    ):
        small("RandomForestClassifier").fit(x, [1, "1", 1, "1", 1, 1])
    half = small("RandomForestClassifier").fit(x, [0.5, 1.5, 0.5, 1.5, 0.5, 1.5])
    assert half.classes_.tolist() == [0.5, 1.5]
    with pytest.raises(
        ValueError, match="^y: expected classes of several rows each, got 60 classes in 60 rows"
    ):
        small("RandomForestClassifier").fit(np.zeros((60, 2)), [f"k{i}" for i in range(60)])


@pytest.mark.parametrize(("offset", "unit"), [(1.7e9, 1.0), (0.0, 1e-50), (0.0, 1e-200), (-1e15, 1e3)])
@pytest.mark.parametrize(
    "name", ["NeuralForestClassifier", "HingeNetworkClassifier", "HingeNetworkRegressor"]
)
def test_networks_learn_from_columns_in_any_unit(name, offset, unit):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(300, 2))
    y = (z[:, 0] > 0).astype(int) if name.endswith("Classifier") else offset + unit * z[:, 0]
    x = np.c_[offset + unit * z[:, 0], z[:, 1]]
    model = small(name, max_iter=10 if name.startswith("Neural") else 200, random_state=0).fit(x, y)
    assert model.score(x, y) > 0.8


def test_batches_have_the_columns_of_the_first_one():
    frame, y = frame_of(categories=False)
    model = small("HingeForestClassifier", categorical_features="from_dtype")
    for rows in (slice(0, 80), slice(80, 120)):
        model.partial_fit(frame[rows], y[rows], classes=[False, True])
    assert model.t_ > 0
    with pytest.raises(ValueError, match="^X, column 'size'"):
        model.partial_fit(frame.assign(size=np.inf), y)


@pytest.mark.parametrize("name", [name for name in KINDS if small(name).__sklearn_tags__().input_tags.sparse])
@pytest.mark.parametrize("kind", ["csr_array", "csc_matrix"])
def test_sparse_matrices_are_arrays_of_all_their_numbers(name, kind):
    x, y = data(name)
    x = np.where(x > 0, x, 0)
    sparse = getattr(scipy.sparse, kind)(x)
    settings = (
        {"oob_score": True}
        if hasattr(small(name), "oob_score") and getattr(small(name), "bootstrap", True)
        else {}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # eight trees all draw some samples
        model, dense = (small(name, **settings).fit(a, y) for a in (sparse, x))
    for function in ("predict", "apply"):
        np.testing.assert_array_equal(getattr(model, function)(sparse), getattr(dense, function)(x))
    assert model.n_features_in_ == x.shape[1]
    if settings:
        assert model.oob_score_ == dense.oob_score_
    assert (model.decision_path(sparse)[0] != dense.decision_path(x)[0]).nnz == 0


def test_which_estimators_take_sparse_matrices():
    takes = {name for name in KINDS if small(name).__sklearn_tags__().input_tags.sparse}
    kinds = (
        "RandomForest",
        "HonestForest",
        "ExtraTrees",
        "CompletelyRandomForest",
        "ObliqueForest",
        "ManifoldForest",
    )
    assert takes == {kind + task for kind in kinds for task in ("Classifier", "Regressor")}


@pytest.mark.parametrize("name", KINDS)
def test_flags_are_true_or_false(name):
    """Neither the first number of an array nor the truth value of a list is taken."""
    estimator, (x, y) = getattr(hs, name), data(name)
    for flag, value in estimator().get_params().items():
        if isinstance(value, bool) and flag != "bootstrap":  # the function has a longer message
            for given in ([1, 2], np.array([1, 2]), np.array([True]), 1, None):
                with pytest.raises(
                    TypeError, match=rf"^{flag}: expected True( or|,) False.*; pass one of them$"
                ):
                    estimator(**{flag: given}).fit(x, y)


@pytest.mark.parametrize(
    "name", ["CascadeForestClassifier", "NeuralForestClassifier", "RandomForestClassifier"]
)
def test_weights_of_text(name):
    settings = {"early_stopping": True} if name.startswith("Neural") else {}
    for weights in (["heavy"] * len(Y), np.array(["1"] * len(Y))):
        with pytest.raises(
            TypeError, match="^sample_weight: expected an array of real numbers, got dtype <U"
        ):
            getattr(hs, name)(**settings).fit(X, Y, sample_weight=weights)
