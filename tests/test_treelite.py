"""Models of XGBoost, LightGBM and scikit-learn through treelite, and forests as models of treelite."""
# ruff: noqa: E402 (modules that need treelite are imported where it is known to be there)

import numpy as np
import pytest

import hforest
from hforest import project, tree

treelite = pytest.importorskip("treelite", minversion="4.4", reason="needs treelite 4.4 or newer")

from treelite.model_builder import Metadata, ModelBuilder, PostProcessorFunc, TreeAnnotation

import hforest.treelite as exchange

N, N_FEATURES, N_CATEGORIES = 1500, 7, 45


def samples(missing, seed=0, categories=False):
    """Returns samples, targets, two classes and four classes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, N_FEATURES)).astype(np.float32)
    y = x[:, 0] * x[:, 1] + 2 * x[:, 2]
    if categories:
        x[:, 6] = rng.integers(0, N_CATEGORIES, N)
        y += 3 * (x[:, 6] % 3 == 1)
    x[rng.random(x.shape) < missing] = np.nan
    return x, y, (y > 0).astype(int), np.digitize(y, [-2, 0, 2])


def leaf_by_rule(forest, m, row):
    """Returns the leaf of tree m that a sample reaches by the rule of a split, step by step."""
    root, v = int(forest.tree_start[m]), 0
    while forest.feature[root + v] != -1:
        at = root + v
        a = row[forest.feature[at]]
        words = (
            forest.category_bits[forest.category_indptr[at] : forest.category_indptr[at + 1]]
            if forest.category_indptr.size
            else ()
        )
        if np.isnan(a):
            left = forest.default_left[at] & 1
        elif len(words):
            known = a == int(a) and 0 <= a < 32 * len(words)
            left = int(words[int(a) // 32]) >> int(a) % 32 & 1 if known else forest.default_left[at] & 2
        else:
            left = a <= forest.threshold[at]
        v = int(forest.left[at]) + (not left)
    return v


def leaves_by_rule(forest, x):
    x = np.asarray(x, forest.threshold.dtype)
    return np.array([[leaf_by_rule(forest, m, row) for m in range(len(forest.tree_start) - 1)] for row in x])


def shares_of_model(model, x):
    return treelite.gtil.predict(model, x, nthread=1).reshape(len(x), -1)


def close(got, expected, dtype=np.float32):
    """Compares up to rounding of float32: XGBoost adds leaf values in float32, hforest in float64."""
    scale = max(1.0, float(np.abs(expected).max()))
    tolerance = 4e-6 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(np.squeeze(got), np.squeeze(expected), rtol=tolerance, atol=tolerance * scale)


# -------------------------------------------------------------------------------------------------- XGBoost

XGBOOST = {
    "reg:squarederror": ("y", {}),
    "binary:logistic": ("two", {}),
    "binary:logitraw": ("two", {}),
    "multi:softprob": ("four", {"num_class": 4}),
    "count:poisson": ("four", {}),
    "reg:gamma": ("positive", {}),
}


def xgboosts(objective, missing, categories=False, **more):
    xgboost = pytest.importorskip("xgboost", reason="needs xgboost")
    x, y, two, four = samples(missing, categories=categories)
    kind, settings = XGBOOST[objective]
    target = {"y": y, "two": two, "four": four, "positive": np.exp(y / 4)}[kind]
    types = {"feature_types": ["q"] * 6 + ["c"], "enable_categorical": True} if categories else {}
    data = xgboost.DMatrix(x, target, **types)
    settings = {"objective": objective, "max_depth": 5, "nthread": 1, "seed": 0, **settings, **more}
    booster = xgboost.train(settings, data, 15)
    return booster, treelite.frontend.from_xgboost(booster), x, data


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("objective", XGBOOST)
def test_xgboost(objective, missing):
    booster, model, x, data = xgboosts(objective, missing)
    ensemble = exchange.from_treelite(model)
    assert ensemble.forest.threshold.dtype == np.float32
    np.testing.assert_array_equal(
        tree.apply(ensemble.forest, x), treelite.gtil.predict_leaf(model, x, nthread=1)
    )
    margin = exchange.predict_margin(ensemble, x)
    assert margin.dtype == np.float32
    close(margin, booster.predict(data, output_margin=True))
    close(exchange.predict(ensemble, x), booster.predict(data))


@pytest.mark.parametrize("objective", ["reg:squarederror", "multi:softprob"])
def test_xgboost_with_categories(objective):
    booster, model, x, data = xgboosts(objective, 0.1, categories=True, max_cat_to_onehot=2)
    ensemble = exchange.from_treelite(model)
    assert ensemble.forest.category_bits.size
    close(exchange.predict(ensemble, x), booster.predict(data))


def test_thresholds_of_xgboost_are_less_than_exactly():
    """A sample that equals a threshold goes right in XGBoost; its lower neighbour goes left."""
    booster, model, _, _ = xgboosts("reg:squarederror", 0.0)
    ensemble = exchange.from_treelite(model)
    split = np.flatnonzero(ensemble.forest.feature == 2)
    below = ensemble.forest.threshold[split]
    at = np.nextafter(below, np.float32(np.inf))
    x = np.zeros((2 * len(split), N_FEATURES), np.float32)
    x[:, 2] = np.concatenate([below, at])
    np.testing.assert_array_equal(
        tree.apply(ensemble.forest, x), treelite.gtil.predict_leaf(model, x, nthread=1)
    )
    close(exchange.predict(ensemble, x), booster.inplace_predict(x))
    # Comparing with unchanged thresholds would fail the test.
    wrong = ensemble.forest._replace(
        threshold=np.where(
            ensemble.forest.feature >= 0, np.nextafter(ensemble.forest.threshold, np.float32(np.inf)), 0
        )
    )
    assert (tree.apply(wrong, x) != tree.apply(ensemble.forest, x)).any()


def test_several_targets_of_xgboost():
    xgboost = pytest.importorskip("xgboost", reason="needs xgboost")
    x, y, two, _ = samples(0.0)
    data = xgboost.DMatrix(x, np.stack([y, -2 * y, two], axis=1))
    for strategy in ("one_output_per_tree", "multi_output_tree"):
        settings = {"max_depth": 4, "nthread": 1, "multi_strategy": strategy, "tree_method": "hist"}
        booster = xgboost.train(settings, data, 8)
        try:
            model = treelite.frontend.from_xgboost(booster)
        except treelite.TreeliteError as error:
            pytest.skip(f"needs a treelite that reads {strategy}: {error}")
        ensemble = exchange.from_treelite(model)
        assert ensemble.n_classes.tolist() == [1, 1, 1]
        close(exchange.predict(ensemble, x), booster.predict(data))


# ------------------------------------------------------------------------------------------------- LightGBM

LIGHTGBM = {
    "regression": ("y", {}),
    "binary": ("two", {"sigmoid": 0.7}),
    "multiclass": ("four", {"num_class": 4}),
    "multiclassova": ("four", {"num_class": 4}),
    "poisson": ("four", {}),
    "cross_entropy_lambda": ("two", {}),
    "forest": (
        "y",
        {"objective": "regression", "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5},
    ),
    "root": ("y", {"objective": "regression", "reg_sqrt": True}),
}


def lightgbms(name, missing, **more):
    lightgbm = pytest.importorskip("lightgbm", reason="needs lightgbm")
    categories = "categorical_feature" in more
    x, y, two, four = samples(missing, categories=categories)
    kind, settings = LIGHTGBM[name]
    data = lightgbm.Dataset(
        x, {"y": y, "two": two, "four": four}[kind], categorical_feature=more.pop("categorical_feature", "auto"),
        params={"verbose": -1},
    )  # fmt: skip
    settings = {
        "objective": name,
        "num_leaves": 20,
        "num_threads": 1,
        "seed": 0,
        "verbose": -1,
        **settings,
        **more,
    }
    booster = lightgbm.train(settings, data, 12)
    return booster, treelite.frontend.from_lightgbm(booster), x


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("name", LIGHTGBM)
def test_lightgbm(name, missing):
    booster, model, x = lightgbms(name, missing)
    expected = booster.predict(x, num_threads=1)
    double = exchange.from_treelite(model)
    assert double.forest.threshold.dtype == np.float64
    close(exchange.predict(double, x), expected, np.float64)
    if name != "forest":  # whose raw scores are sums of a model that averages
        close(exchange.predict_margin(double, x), booster.predict(x, raw_score=True), np.float64)
    # Thresholds rounded down to float32 keep every leaf of float32 samples.
    single = exchange.from_treelite(model, dtype=np.float32)
    np.testing.assert_array_equal(tree.apply(single.forest, x), tree.apply(double.forest, x))
    close(exchange.predict(single, x), expected)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_prepared_ensembles(missing, dtype):
    _, model, x = lightgbms("regression", missing)
    ensemble = exchange.from_treelite(model, dtype=dtype)
    prepared = ensemble._replace(forest=tree.prepare(ensemble.forest))
    for n in (1, 2, 1000):
        want = exchange.predict(ensemble, x[:n])
        assert exchange.predict(prepared, x[:n]).tobytes() == want.tobytes()


@pytest.mark.parametrize("more", [{"use_missing": False}, {"zero_as_missing": True}])
def test_missing_values_of_lightgbm(more):
    """Without missing values LightGBM reads NaN as 0. Treelite lacks missing zeros, so none are tested."""
    booster, model, x = lightgbms("regression", 0.2, **more)
    if "zero_as_missing" in more:
        x = np.nan_to_num(x, nan=0.5)
    close(exchange.predict(exchange.from_treelite(model), x), booster.predict(x, num_threads=1), np.float64)


def test_lightgbm_with_categories():
    booster, model, x = lightgbms(
        "regression", 0.1, categorical_feature=[6], min_data_per_group=5, cat_smooth=1.0
    )
    ensemble = exchange.from_treelite(model)
    assert (np.diff(ensemble.forest.category_indptr) > 0).any()
    x[:20, 6], x[20:40, 6], x[40:60, 6] = -1, N_CATEGORIES + 10, 1000  # unknown
    close(exchange.predict(ensemble, x), booster.predict(x, num_threads=1), np.float64)


# --------------------------------------------------------------------------------------------- scikit-learn


@pytest.mark.parametrize(
    "name",
    [
        "RandomForestClassifier",
        "ExtraTreesRegressor",
        "GradientBoostingClassifier",
        "HistGradientBoostingRegressor",
    ],
)
def test_sklearn(name):
    ensembles = pytest.importorskip("sklearn.ensemble", reason="needs scikit-learn")
    x, y, _, four = samples(0.0)
    settings = {"max_iter": 8} if name.startswith("Hist") else {"n_estimators": 8, "max_depth": 6}
    estimator = getattr(ensembles, name)(random_state=0, **settings).fit(
        x, four if "Classifier" in name else y
    )
    model = treelite.sklearn.import_model(estimator)
    ensemble = exchange.from_treelite(model, dtype=np.float32)
    expected = estimator.predict_proba(x) if "Classifier" in name else estimator.predict(x)
    close(exchange.predict(ensemble, x), expected)
    if name == "RandomForestClassifier":
        np.testing.assert_array_equal(
            tree.apply(ensemble.forest, x), tree.apply(tree.from_sklearn(estimator), x)
        )


# --------------------------------------------------------------------------------------------- models by hand


def built(
    postprocessor="identity",
    opname="<=",
    threshold=0.25,
    average=False,
    base=0.5,
    default_left=True,
    **parameters,
):
    """Returns a split of feature 0 with leaves -1.5 (left) and 2, and a tree of one leaf of 0.25."""
    builder = ModelBuilder(
        threshold_type="float32",
        leaf_output_type="float32",
        metadata=Metadata(1, "kRegressor", average, 1, [1], (1, 1)),
        tree_annotation=TreeAnnotation(2, [0, 0], [0, 0]),
        postprocessor=PostProcessorFunc(postprocessor, **parameters),
        base_scores=[base],
    )
    builder.start_tree()
    builder.start_node(0)
    builder.numerical_test(
        0, threshold, default_left=default_left, opname=opname, left_child_key=2, right_child_key=1
    )
    builder.end_node()
    for key, value in ((1, 2.0), (2, -1.5)):
        builder.start_node(key)
        builder.leaf(value)
        builder.end_node()
    builder.end_tree()
    builder.start_tree()
    builder.start_node(0)
    builder.leaf(0.25)
    builder.end_node()
    builder.end_tree()
    return builder.commit()


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("identity", {}), ("signed_square", {}), ("hinge", {}), ("sigmoid", {"sigmoid_alpha": 0.3}), ("exponential", {}),
        ("exponential_standard_ratio", {"ratio_c": 2.5}), ("logarithm_one_plus_exp", {}),
    ],
)  # fmt: skip
def test_functions_of_the_margin(name, parameters):
    model, x = built(name, **parameters), np.array([[0.0], [1.0]], np.float32)
    close(
        exchange.predict(exchange.from_treelite(model), x)[:, 0], treelite.gtil.predict(model, x, nthread=1)
    )
    np.testing.assert_array_equal(
        exchange.predict_margin(exchange.from_treelite(model), x)[:, 0], [-0.75, 2.75]
    )


@pytest.mark.parametrize("default_left", [False, True])
@pytest.mark.parametrize("opname", ["<", "<=", ">", ">="])
def test_comparisons(opname, default_left):
    """Each is tested at the threshold, at both its neighbours, and for a missing value."""
    model = built(opname=opname, default_left=default_left)
    up, down = (np.nextafter(np.float32(0.25), np.float32(to)) for to in (1, -1))
    x = np.array([[0.25], [up], [down], [np.nan]], np.float32)
    ensemble = exchange.from_treelite(model)
    expected = treelite.gtil.predict(model, x, nthread=1).reshape(-1, 1)
    assert set(expected.ravel()) == {-0.75, 2.75}
    np.testing.assert_array_equal(exchange.predict(ensemble, x), expected)


def test_averages():
    model, x = built(average=True), np.array([[0.0], [1.0]], np.float32)
    got = exchange.predict(exchange.from_treelite(model), x)
    np.testing.assert_array_equal(got[:, 0], [-0.125, 1.625])
    np.testing.assert_array_equal(got, treelite.gtil.predict(model, x, nthread=1).reshape(-1, 1))


# ------------------------------------------------------------------------------------- forests as models


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_round_trip_of_a_forest(task, dtype):
    x, y, _, four = samples(0.0)
    x = x.astype(dtype)
    forest = hforest.grow(x, four.astype(np.int32) if task == "classification" else y, 6, task=task, rng=0)
    model = exchange.to_treelite(forest)
    np.testing.assert_allclose(shares_of_model(model, x), tree.predict(forest, x), rtol=1e-6, atol=1e-6)
    ensemble = exchange.from_treelite(model)
    for name in ("n_features", "tree_start", "feature", "threshold", "left", "value", "gain"):
        a, b = getattr(forest, name), getattr(ensemble.forest, name)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b, err_msg=name)
    np.testing.assert_array_equal(exchange.predict(ensemble, x), tree.predict(forest, x))


def with_categories(unknown_left, missing_left):
    """Returns two trees: a split by the categories 0, 2 and 63 above one by a number, and a single leaf."""
    default_left = np.array([missing_left + 2 * unknown_left, 0, 1 - missing_left, 0, 0, 0], np.uint8)
    return tree.Forest(
        n_features=np.array(2),
        tree_start=np.array([0, 5, 6]),
        feature=np.array([0, -1, 1, -1, -1, -1], np.int32),
        threshold=np.array([0, 0, 0.5, 0, 0, 0], np.float32),
        left=np.array([1, 0, 3, 1, 2, 0], np.int32),
        value=np.array([[1, 10], [2, 20], [3, 30], [5, 50]], np.float32),
        gain=np.array([3, 0, 2, 0, 0, 0], np.float32),
        indptr=np.zeros(0, np.int64),
        indices=np.zeros(0, np.int32),
        data=np.zeros(0, np.float32),
        default_left=default_left,
        category_indptr=np.array([0, 2, 2, 2, 2, 2, 2]),
        category_bits=np.array([0b101, 1 << 31], np.uint32),
    )


CATEGORIES = np.array(
    [[c, t] for c in (0, 1, 2, 3, 40, 63, 64, 1000, -1, np.nan) for t in (0, 1, np.nan)], np.float32
)


@pytest.mark.parametrize("missing_left", [0, 1])
@pytest.mark.parametrize("unknown_left", [0, 1])
def test_categories_and_missing_values_both_ways(unknown_left, missing_left):
    forest = with_categories(unknown_left, missing_left)
    leaf = leaves_by_rule(forest, CATEGORIES)
    assert len(set(leaf[:, 0])) == 3
    model = exchange.to_treelite(forest)
    expected = (forest.value[forest.left[leaf[:, 0]]] + forest.value[3]) / 2
    np.testing.assert_array_equal(shares_of_model(model, CATEGORIES), expected)
    back = exchange.from_treelite(model).forest
    np.testing.assert_array_equal(leaves_by_rule(back, CATEGORIES), leaf)
    np.testing.assert_array_equal(back.default_left, forest.default_left)
    np.testing.assert_array_equal(tree.apply(back, CATEGORIES), leaf)
    np.testing.assert_array_equal(tree.predict(forest, CATEGORIES), expected)


def test_an_empty_set_of_categories():
    forest = with_categories(0, 0)._replace(category_bits=np.zeros(2, np.uint32))
    back = exchange.from_treelite(exchange.to_treelite(forest)).forest
    assert (np.diff(back.category_indptr)[0], back.category_bits.tolist()) == (1, [0])
    np.testing.assert_array_equal(leaves_by_rule(back, CATEGORIES), leaves_by_rule(forest, CATEGORIES))


# -------------------------------------------------------------------------------------------------- bad input


def test_what_is_refused():
    x, _, two, _ = samples(0.0)
    oblique = hforest.grow(
        x, two.astype(np.int32), 2, projections=project.sparse_distribution(x.shape[1]), rng=0
    )
    for error, message, call in (
        (ValueError, "projections; treelite has no projections: pass a forest grown without projections", lambda: exchange.to_treelite(oblique)),
        (TypeError, "forest: expected a hforest.tree.Forest, got int", lambda: exchange.to_treelite(1)),
        (TypeError, "model: expected a treelite.Model, got dict; convert it first", lambda: exchange.from_treelite({})),
        (ValueError, "splits by <, <=, > or >=, got ==", lambda: exchange.from_treelite(built(opname="=="))),
        (ValueError, "expected float32, in which this model compares, got float64", lambda: exchange.from_treelite(built(), dtype=np.float64)),
        (TypeError, "dtype: expected float32 or float64, got int32", lambda: exchange.from_treelite(built(), dtype=np.int32)),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            call()
    strange = built()
    strange.get_header_accessor().set_field("postprocessor", "strange")
    with pytest.raises(ValueError, match="expected a postprocessor of identity, .*, got 'strange'"):
        exchange.from_treelite(strange)
    infinite = built()
    infinite.get_tree_accessor(1).set_field("leaf_value", np.array([np.inf], np.float32))
    with pytest.raises(ValueError, match="expected finite leaf values in the range of float32"):
        exchange.from_treelite(infinite)


def test_an_ensemble_is_checked():
    ensemble, row = exchange.from_treelite(built("softmax")), np.zeros((1, 1), np.float32)
    for error, message, call in (
        (TypeError, "ensemble: expected a hforest.treelite.Ensemble, got tuple", lambda: exchange.predict(tuple(ensemble), row)),
        (ValueError, r"ensemble.scale: expected shape \(n_outputs,\) = \(1,\), got \(2,\)", lambda: exchange.predict(ensemble._replace(scale=np.ones(2)), row)),
        (ValueError, "ensemble.n_classes: expected a sum of n_outputs = 1, got 3", lambda: exchange.predict(ensemble._replace(n_classes=np.array([3])), row)),
        (ValueError, "ensemble.postprocessor: expected one of identity, .*, got 'x'", lambda: exchange.predict(ensemble._replace(postprocessor=np.array("x")), row)),
        (ValueError, "x: expected", lambda: exchange.predict(ensemble, np.zeros((1, 2), np.float32))),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            call()


def test_public_classes_have_public_names():
    assert exchange.Ensemble.__module__ == "hforest.treelite"
    assert isinstance(exchange.from_treelite(built()), exchange.Ensemble)
    assert "treelite" not in hforest.__all__
