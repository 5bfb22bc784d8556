"""Estimators: tables, tools of scikit-learn, bad input, missing values and categories."""
# ruff: noqa: E402 (modules that need scikit-learn are imported where it is known to be there)

import importlib.util
import inspect
import pickle
import sys
import warnings

import numpy as np
import pytest
from conftest import same_bits

from hforest import tabular, tree

sklearn = pytest.importorskip("sklearn", minversion="1.6", reason="needs scikit-learn 1.6 or newer")

import joblib
import scipy.sparse
import scipy.special
from estimators import CLASSIFIERS, KINDS, REGRESSORS, TEXT, X, Y, data, outputs, small
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.inspection import permutation_importance
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import hforest.sklearn as hs

# pytest.warns catches the warning if a test expects it.
pytestmark = pytest.mark.filterwarnings("ignore:shape. expected the shape of a sample:UserWarning")


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
    if not small(name)._several:
        with pytest.raises(ValueError, match="should be a 1d array"):
            small(name).fit(X, np.stack([Y, Y], axis=1))


@pytest.mark.parametrize("name", KINDS)
def test_messages_name_the_parameters_of_estimators(name):
    x, y = data(name)
    for parameter, value in (
        ("n_estimators", 0), ("max_depth", -1), ("min_samples_leaf", 0), ("max_features", 1.5), ("criterion", "chance"),
        ("learning_rate", -1.0), ("last_learning_rate", 2.0), ("batch_size", 0), ("leaf_iterations", 0), ("max_iter", -3),
        ("validation_fraction", 0.9), ("class_weight", "heavy"), ("n_folds", 1), ("density", 0.0), ("nu", -1.0),
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
        if "oob_score" in small(name).get_params() and getattr(small(name), "bootstrap", True)
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
    both = {kind + task for kind in kinds for task in ("Classifier", "Regressor")}
    assert takes == both | {"AlternatingForestClassifier"}


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
