"""Estimators: scikit-learn's checks, and agreement with the functions."""
# ruff: noqa: E402 (modules that need scikit-learn are imported where it is known to be there)

import inspect
import pickle
from functools import partial

import numpy as np
import pytest
from conftest import same_bits

import hforest
from hforest import alternating, cascade, co2, demo, growth, neural, project, stats, tabular, tree

sklearn = pytest.importorskip("sklearn", minversion="1.6", reason="needs scikit-learn 1.6 or newer")

import scipy.sparse
import scipy.special
from estimators import (
    BOOTSTRAPPED,
    CLASSIFIERS,
    GROWN,
    KINDS,
    NETWORK,
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
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.metrics import balanced_accuracy_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import hforest.sklearn as hs

# pytest.warns catches the warning if a test expects it.
pytestmark = pytest.mark.filterwarnings("ignore:shape. expected the shape of a sample:UserWarning")


# --------------------------------------------------------------------------- scikit-learn's own checks


DRAWN = "bootstrap samples of n samples with weights are not those of n repeated samples"
BATCHES = (
    "steps, batches and held-out parts count samples, and those of n samples are others of n repeated ones"
)
WEIGHTS = "check_sample_weight_equivalence_on_dense_data"
SPARSE_WEIGHTS = "check_sample_weight_equivalence_on_sparse_data"
WHAT_DRAWS = ("RandomForest", "ObliqueForest", "ManifoldForest", "HonestForest")
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
    "AlternatingForest": of_forest(alternating.grow),
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
    "warm_start",
    "importance_type",
    "leaf_targets",
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
    "feature_groups",  # of columns; `groups` are of rows
}


@pytest.mark.parametrize("name", KINDS)
def test_every_parameter_reaches_its_function(name):
    estimator = small(name)
    functions = [estimator._function, hforest.samples, tree.prune]
    functions += {
        "Neural": [neural.linear_init],
        "Cascade": [hforest.grow],
        "Honest": [
            stats.honest_counts,
            project.sparse_distribution,
            project.grouped_distribution,
            project.patch_distribution,
            tree.refit,
        ],
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
        ("RandomForestClassifier", {"bootstrap_weights": "divide"}, "^bootstrap_weights: expected one of 'multiply', 'draw', got 'divide'"),
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
    model = small(name, feature_groups=groups, **settings).fit(x, y)
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
    again = small(name, feature_groups=named, **settings).fit(table, y)
    assert all(same_bits(a, b) for a, b in zip(again.forest_, forest, strict=True))


def test_honest_forests_that_are_refused():
    oblique = {"trees": "oblique"}
    for settings, n, message in (
        ({"feature_groups": [["c9"]], **oblique}, 150, "feature_groups: expected column names of X, got 'c9'; pass X as a DataFrame with these columns, or"),
        ({"feature_groups": [[0]], **oblique}, 150, "feature_groups: expected all of n_features = "),
        ({"feature_groups": [[0], [0]], **oblique}, 150, r"feature_groups\[1\]: expected columns that no earlier group has"),
        ({"feature_groups": 3, **oblique}, 150, "feature_groups: expected a list of groups of column indices, got int"),
        ({"feature_groups": [[0, 1, 2, 3]]}, 150, "feature_groups: expected None with trees='classic', got list; pass trees="),
        ({"trees": "random"}, 150, "trees: expected one of 'classic', 'extra', 'oblique', 'patches', got 'random'"),
        ({"draw": "all"}, 150, "draw: expected one of 'fixed'"),
        ({"in_bag": 2.0}, 150, "in_bag: expected a finite number"),
        ({"structure_share": 0.0}, 150, "structure_share: expected"),
        ({}, 102, "y: expected classes of which each tree has rows for its splits"),
        ({}, 2, "X: expected at least 3 samples, got 2 samples"),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=f"^{message}"):
            small("HonestForestClassifier", **settings).fit(X[:n], Y[:n])
