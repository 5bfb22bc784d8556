"""Forests of scikit-learn converted to arrays."""

import doctest
import re

import numpy as np
import pytest
from test_tree import inputs

import hforest
from hforest import project, tree

pytestmark = pytest.mark.kernels


# -------------------------------------------------------------------------------- conversion


@pytest.mark.libraries
@pytest.mark.parametrize("name", ["RandomForestClassifier", "RandomForestRegressor", "ExtraTreesClassifier"])
def test_scikit_learn_forests(name):
    ensemble = pytest.importorskip("sklearn.ensemble")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] > 0) + (x[:, 2] > 1) * 1
    model = getattr(ensemble, name)(n_estimators=7, random_state=0).fit(x, y)
    forest = tree.check(tree.from_sklearn(model))
    held = rng.normal(size=(500, 5)).astype(np.float32)
    # Inputs on thresholds too.
    held[:50, 0] = (
        model.estimators_[0].tree_.threshold[model.estimators_[0].tree_.feature == 0][:1].astype(np.float32)
    )
    want = model.predict_proba(held) if "Classifier" in name else model.predict(held)[:, None]
    np.testing.assert_allclose(tree.predict(forest, held), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        tree.importance(forest, by="gain"), model.feature_importances_, rtol=1e-4, atol=1e-6
    )


@pytest.mark.libraries
def test_scikit_learn_tree_and_strangers():
    trees = pytest.importorskip("sklearn.tree")
    x, y = inputs(40, 3, np.float32), np.arange(40) % 3
    model = trees.DecisionTreeClassifier(max_depth=3).fit(x, y)
    np.testing.assert_allclose(tree.predict(tree.from_sklearn(model), x), model.predict_proba(x), rtol=1e-6)
    with pytest.raises(TypeError, match="fitted"):
        tree.from_sklearn(trees.DecisionTreeClassifier())
    with pytest.raises(ValueError, match="one output"):
        tree.from_sklearn(trees.DecisionTreeClassifier().fit(x, np.stack([y, y], 1)))
    for stranger in (3, None, trees.DecisionTreeClassifier):
        with pytest.raises(TypeError, match="model: expected averaged trees of scikit-learn, got"):
            tree.from_sklearn(stranger)


def averaging():
    """Returns fitted models that average trees, and their predictions."""
    trees = pytest.importorskip("sklearn.tree")
    ensemble = pytest.importorskip("sklearn.ensemble")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 4)).astype(np.float32)
    y = x[:, 0] * x[:, 1] + x[:, 2]
    word = np.array(["no", "some", "yes"])[np.digitize(y, [-0.5, 0.5])]
    held = rng.normal(size=(200, 4)).astype(np.float32)

    class Subclass(ensemble.RandomForestClassifier):
        """A subclass without relevant changes."""

    classifiers = [
        *(trees.DecisionTreeClassifier(max_depth=4), trees.ExtraTreeClassifier(random_state=0)),
        *(ensemble.RandomForestClassifier(5), ensemble.ExtraTreesClassifier(5), Subclass(5)),
        ensemble.BaggingClassifier(n_estimators=5, max_samples=6, random_state=0),
        ensemble.BaggingClassifier(trees.ExtraTreeClassifier(max_depth=3), 5, bootstrap=False),
    ]
    regressors = [
        *(trees.DecisionTreeRegressor(max_depth=4), trees.ExtraTreeRegressor(random_state=0)),
        *(ensemble.RandomForestRegressor(5), ensemble.ExtraTreesRegressor(5)),
        ensemble.BaggingRegressor(n_estimators=5, random_state=0),
    ]
    for model in classifiers:
        yield model.fit(x, word), model.predict_proba(held), held
    for model in regressors:
        yield model.fit(x, y), model.predict(held)[:, None], held
        yield model.fit(x, np.stack([y, -y], 1)), model.predict(held), held


@pytest.mark.libraries
def test_all_that_averages_trees_is_converted():
    found = 0
    for model, want, x in averaging():
        forest = tree.check(tree.from_sklearn(model))
        np.testing.assert_allclose(tree.predict(forest, x), want, rtol=1e-5, atol=1e-6, err_msg=str(model))
        found += 1
    assert found == 17


@pytest.mark.libraries
def test_bagged_trees_that_know_some_of_the_classes():
    ensemble = pytest.importorskip("sklearn.ensemble")
    trees = pytest.importorskip("sklearn.tree")
    x, y = inputs(60, 3, np.float32), np.arange(60) % 3
    model = ensemble.BaggingClassifier(n_estimators=2, random_state=0).fit(x, y)
    model.estimators_[1] = trees.DecisionTreeClassifier(max_depth=2).fit(x[y > 0], y[y > 0])
    np.testing.assert_allclose(tree.predict(tree.from_sklearn(model), x), model.predict_proba(x), atol=1e-6)


def others():
    """Returns models, by name, that do not or may not predict by an average of trees."""
    modules = "ensemble", "tree", "multiclass", "multioutput", "linear_model", "pipeline"
    loaded = [pytest.importorskip(f"sklearn.{name}") for name in modules]
    ensemble, trees, multiclass, multioutput, linear, pipeline = loaded
    one, number = trees.DecisionTreeClassifier(max_depth=3), trees.DecisionTreeRegressor(max_depth=3)
    named = [("a", one), ("b", trees.DecisionTreeClassifier(max_depth=2))]
    numbers = [("a", number), ("b", trees.DecisionTreeRegressor(max_depth=2))]
    bag, mean_bag = ensemble.BaggingClassifier, ensemble.BaggingRegressor

    class Changed(ensemble.RandomForestClassifier):
        def predict_proba(self, x):
            return super().predict_proba(x) ** 2

    class ChangedTree(trees.DecisionTreeRegressor):
        def predict(self, x):
            return 2 * super().predict(x)

    return {
        "isolation": ensemble.IsolationForest(n_estimators=5),
        "voting": ensemble.VotingClassifier(named, voting="soft", weights=[1, 5]),
        "voting-equal": ensemble.VotingClassifier(named, voting="soft"),
        "voting-regressor": ensemble.VotingRegressor(numbers, weights=[1, 5]),
        "one-vs-rest": multiclass.OneVsRestClassifier(one),
        "one-vs-one": multiclass.OneVsOneClassifier(one),
        "output-code": multiclass.OutputCodeClassifier(one),
        "multi-classifier": multioutput.MultiOutputClassifier(one),
        "multi-regressor": multioutput.MultiOutputRegressor(number),
        "regressor-chain": multioutput.RegressorChain(number),
        "classifier-chain": multioutput.ClassifierChain(one),
        "stacking": ensemble.StackingClassifier(named),
        "stacking-regressor": ensemble.StackingRegressor(numbers),
        "embedding": ensemble.RandomTreesEmbedding(5),
        "boosting": ensemble.GradientBoostingClassifier(n_estimators=2),
        "boosting-regressor": ensemble.GradientBoostingRegressor(n_estimators=2),
        "histograms": ensemble.HistGradientBoostingRegressor(max_iter=2),
        "ada-boost": ensemble.AdaBoostClassifier(one, n_estimators=3),
        "bagged-bootstrapped-features": bag(one, 5, bootstrap_features=True),
        "bagged-fewer-features": bag(one, 5, max_features=0.5),
        "bagged-fewer-features-regressor": mean_bag(number, 5, max_features=2),
        "bagged-forests": bag(ensemble.RandomForestClassifier(3), 3),
        "bagged-linear": bag(linear.LogisticRegression(), 3),
        "bagged-regressors": bag(number, 3),
        "means-of-classes": mean_bag(one, 3),
        "bagged-changed": mean_bag(ChangedTree(), 3),
        "pipeline": pipeline.make_pipeline(one),
        "linear": linear.LogisticRegression(),
        "changed": Changed(5),
        "changed-tree": ChangedTree(),
    }


@pytest.mark.libraries
@pytest.mark.filterwarnings("ignore")
def test_models_that_do_not_average_trees_are_refused():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 4)).astype(np.float32)
    y = (x[:, 0] > 0) + (x[:, 1] > 0.5) * 1
    outcome = {}
    for name, model in others().items():
        several = name.startswith("multi") or name.endswith("chain")
        model.fit(x, np.stack([y > 0, y > 1], 1) * 1 if several else y)
        try:
            tree.from_sklearn(model)
        except TypeError as error:
            outcome[name] = str(error)
        else:
            outcome[name] = "converted"
    assert not [name for name, text in outcome.items() if text == "converted"]
    for text in outcome.values():
        assert re.match(r"model: expected .*, got .*; .+", text)


def test_the_text_of_a_chain_grows_with_its_length():
    depth = 20_000
    n = 2 * depth + 1
    split = np.arange(0, n - 2, 2)
    feature, left = np.full(n, -1, np.int32), np.zeros(n, np.int32)
    feature[split], left[split] = 0, split + 1  # node 2 k has the leaf 2 k + 1 and the node 2 k + 2
    left[feature == -1] = np.arange(depth + 1)
    forest = tree.Forest(
        np.array(1), np.array([0, n]), feature, np.zeros(n), left, np.arange(depth + 1.0)[:, None], np.zeros(n),
        np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0),
    )  # fmt: skip
    text = tree.to_text(forest)
    assert len(text) < 300 * n
    lines = text.split("\n")
    assert len(lines) == n
    assert lines[:4] == ["x[0] <= 0", "  yes: 0", "  no: x[0] <= 0", "    yes: 1"]
    assert lines[200] == "  " * 100 + "no: x[0] <= 0"
    assert lines[201] == "  " * 100 + "[101] yes: 100"
    assert lines[-1] == "  " * 100 + f"[{depth}] no: {depth}"


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_forests_of_numbers_that_are_not_finite_are_refused(backend, number):
    x, y = np.array([[0.0, 1], [1, 0], [1, 2], [2, 1]]), np.array([0.5, 0.25, 3, 4])
    settings = {"n_projections": 3, "bootstrap": False, "task": "regression", "rng": 0}
    forest = hforest.grow(x, y, 3, projections=project.probe_distribution(2, 0.5), **settings)
    assert forest.data.size
    value, data = forest.value.copy(), forest.data.copy()
    value[-1], data[-1] = number, number
    reads = {
        "value": (
            tree.predict,
            tree.vote_shares,
            lambda f, a: tree.permutation_importance(f, a, y, task="regression"),
        ),
        "data": (tree.apply, tree.predict, tree.vote_shares, lambda f, a: tree.path(f, a[0])),
    }
    for name, functions in reads.items():
        broken = forest._replace(**{name: value if name == "value" else data})
        for function in functions:
            function(forest, x)
            with pytest.raises(
                ValueError, match=f"forest.{name}: expected finite numbers, got .*; pass arrays"
            ):
                function(broken, x)
    tree.apply(forest._replace(value=value), x)  # it reads no values


@pytest.mark.libraries
def test_values_beyond_float32_are_refused():
    trees = pytest.importorskip("sklearn.tree")
    x = inputs(40, 2, np.float32)
    for scale, message in ((1e100, "leaf values"), (1e25, "gains")):
        model = trees.DecisionTreeRegressor(max_depth=2).fit(x, x[:, 0].astype(np.float64) * scale)
        with pytest.raises(ValueError, match=f"model: expected {message} in the range of float32"):
            tree.from_sklearn(model)


@pytest.mark.libraries
def test_the_example_of_from_sklearn_runs():
    # It is skipped where scikit-learn may be missing.
    pytest.importorskip("sklearn.tree")
    text = tree.from_sklearn.__doc__.replace("  # doctest: +SKIP", "")
    example = doctest.DocTestParser().get_doctest(text, {}, "from_sklearn", None, None)
    assert len(example.examples) == 6
    assert doctest.DocTestRunner().run(example).failed == 0
