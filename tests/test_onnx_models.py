"""Models of tables and estimators as ONNX models, applied by onnxruntime and by the reference evaluator."""
# ruff: noqa: E402 (modules that need onnx are imported where it is known to be there)

import sys

import numpy as np
import pytest
import tables_for_export as tables

from hforest import tabular

onnx = pytest.importorskip("onnx", minversion="1.16", reason="needs onnx 1.16 or newer")

from onnx.reference import ReferenceEvaluator

import hforest.onnx as exchange


def run(model, x):
    """Returns all outputs of onnxruntime on one thread, for samples in the dtype of the model."""
    runtime = pytest.importorskip("onnxruntime", minversion="1.20", reason="needs onnxruntime 1.20 or newer")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    dtype = np.float64 if session.get_inputs()[0].type == "tensor(double)" else np.float32
    return session.run(None, {"x": x.astype(dtype)})


def differences(outputs, expected):
    """Returns the largest difference of each sample from predictions, in units of the largest one."""
    found = outputs[-1].reshape(expected.shape)
    return (abs(found - expected).reshape(len(expected), -1) / max(1.0, abs(expected).max())).max(axis=1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", tables.KINDS)
def test_models_of_tables(kind, dtype):
    model, x = tables.fitted(kind)
    x = x.astype(dtype)
    seen = set()
    for variant in tables.variants(model):
        expected = tabular.predict(variant, x)
        outputs = run(exchange.to_onnx(variant, dtype=dtype), x)
        # A product that is rounded otherwise may move a sample across a threshold.
        assert np.quantile(differences(outputs, expected), 0.99) < 1e-6
        seen.add(expected.tobytes())
        if model.task == "classification":
            np.testing.assert_array_equal(outputs[0], model.classes[expected.argmax(axis=1)])
    assert len(seen) == len(tables.variants(model))  # no variant hides another


def test_the_tables_have_every_kind_of_column_and_member():
    models = [tables.fitted(kind)[0] for kind in tables.KINDS]
    assert any(np.diff(model.scaling.start).any() for model in models)
    encodings = [model.encoding for model in models]
    assert any(a is None for a in encodings)
    assert any(a is not None and a.levels is None for a in encodings)
    assert any(a is not None and a.levels is not None and a.imputed.size for a in encodings)
    assert any(len(set(a.levels.widths.tolist())) == 3 for a in encodings if a is not None and a.levels)
    assert {model.mean for model in models} == {"arithmetic", "geometric"}
    assert any(member.boosted is not None for model in models for member in model.members)


@pytest.mark.parametrize("scaling", ["deviations", "normal"])
def test_scaling_of_all_columns(scaling):
    model, x = tables.fitted("missing", scaling=scaling)
    assert np.diff(model.scaling.start).astype(bool).all() == (scaling == "normal")
    assert differences(run(exchange.to_onnx(model), x), tabular.predict(model, x)).max() < 1e-6


def test_the_reference_evaluator_agrees():
    """The operators follow the standard, not one runtime."""
    model, x = tables.fitted("three classes")
    label, shares = ReferenceEvaluator(exchange.to_onnx(model)).run(None, {"x": x[:40]})
    expected = tabular.predict(model, x[:40])
    np.testing.assert_allclose(shares, expected, atol=1e-6)
    np.testing.assert_array_equal(label, expected.argmax(axis=1))


def test_other_labels():
    model, x = tables.fitted("text")
    label = run(exchange.to_onnx(model, classes=[7, 5]), x)[0]
    np.testing.assert_array_equal(label, np.array([7, 5])[tabular.predict(model, x).argmax(axis=1)])
    label = run(exchange.to_onnx(model._replace(classes=None)), x)[0]
    assert set(label.tolist()) == {0, 1}


def test_what_is_refused():
    model, _ = tables.fitted("regression")
    with pytest.raises(ValueError, match="classes: expected None of a regression, got labels; leave it out"):
        exchange.to_onnx(model, classes=[1])
    with pytest.raises(ValueError, match=r"model.members: expected at least one, got none"):
        exchange.to_onnx(model._replace(members=()))
    with pytest.raises(TypeError, match="model.scaling: expected a Scaling, got NoneType"):
        exchange.to_onnx(model._replace(scaling=None))


# ------------------------------------------------------------------------------------------- estimators


def estimators():
    """Yields estimators of every class, with settings that change the model."""
    sk = pytest.importorskip("hforest.sklearn", reason="needs scikit-learn")
    short = {
        "Cascade": {"n_forests": 1, "max_levels": 3, "n_iter_no_change": 2},
        "HingeForest": {"max_iter": 40, "n_projections": 8, "n_boosted": 20},
        "Network": {"max_iter": 40, "max_depth": 3, "n_inner_products": 6},
        "Neural": {"max_iter": 2, "max_depth": 3},
        "Manifold": {"shape": (6,)},
    }
    for name in sk.__all__:
        settings = {"n_estimators": 6, "random_state": 0}
        for part, more in short.items():
            settings |= more if part in name else {}
        yield getattr(sk, name)(**settings)
    network = {"max_iter": 40, "random_state": 0}
    yield sk.HingeNetworkClassifier(6, kind="fern", max_depth=3, **network)
    scalar = {"leaves": "scalar", "optimizer": "adagrad", "learning_rate": 0.1}
    yield sk.HingeNetworkClassifier(6, max_depth=3, **scalar, **network)
    yield sk.HingeNetworkClassifier(6, max_depth=3, n_inner_products=0, standardize=False, **network)
    yield sk.NeuralForestClassifier(6, max_depth=3, max_features=2, max_iter=2, random_state=0)
    yield sk.HonestForestClassifier(3, empty="abstain", random_state=0)


def samples(estimator):
    """Returns 300 samples and their labels or targets; columns in extreme units of neural forests."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 6))
    score = x[:, 0] * x[:, 1] + x[:, 2]
    if type(estimator).__name__ == "NeuralForestClassifier":
        x = 1e6 * x + 1e12
    is_classes = hasattr(estimator, "predict_proba")
    return x, np.array(["a", "b", "c"])[np.digitize(score, [-0.5, 0.5])] if is_classes else 10 * score


def answers(estimator, x):
    return estimator.predict_proba(x) if hasattr(estimator, "predict_proba") else estimator.predict(x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_estimators(dtype):
    for estimator in estimators():
        x, y = samples(estimator)
        x = x.astype(dtype)
        estimator.fit(x, y)
        others = x[::-1] + 0.01 * np.roll(x, 1, axis=0)
        outputs = run(exchange.to_onnx(estimator), others)
        error = differences(outputs, answers(estimator, others))
        assert np.quantile(error, 0.99) < 1e-6, type(estimator).__name__
        if hasattr(estimator, "predict_proba"):
            top = np.sort(estimator.predict_proba(others), axis=1)
            clear = top[:, -1] - top[:, -2] > 1e-5
            np.testing.assert_array_equal(outputs[0][clear], estimator.predict(others)[clear])


def test_estimators_of_data_frames():
    """The input is the matrix of `tabular.numbers`: categories that splits or indicators read, dates, NaN."""
    pd = pytest.importorskip("pandas", reason="needs pandas")
    pytest.importorskip("narwhals", reason="needs narwhals")
    rng = np.random.default_rng(0)
    x = pd.DataFrame({
        "number": rng.normal(size=300),
        "text": np.array(["x", "y", "z", "w"])[rng.integers(0, 4, 300)],
        "day": pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, 300), "D"),
    })  # fmt: skip
    y = (x.text == "x").astype(int) + (x.number > 0)
    for estimator in estimators():
        taken = x
        if estimator._finite == "allow-nan":
            taken = x.assign(number=x.number.where(np.arange(300) % 7 > 0))
        if "Manifold" in type(estimator).__name__:
            estimator.set_params(shape=None)
        with pytest.warns() if "Manifold" in type(estimator).__name__ else _quiet():
            estimator.fit(taken, y if hasattr(estimator, "predict_proba") else 10.0 * y)
        others = taken.assign(text=np.where(np.arange(300) < 5, "new", taken.text))
        numbers = tabular.numbers(estimator.columns_, others)
        assert np.isnan(numbers[:5]).any(axis=1).all()
        error = differences(run(exchange.to_onnx(estimator), numbers), answers(estimator, others))
        assert np.quantile(error, 0.99) < 1e-6, type(estimator).__name__


class _quiet:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def test_several_labels():
    sk = pytest.importorskip("hforest.sklearn", reason="needs scikit-learn")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 6))
    y = np.stack(
        [np.array(["a", "b", "c"])[rng.integers(0, 3, 300)], np.where(x[:, 0] > 0, "u", "v")], axis=1
    )
    estimator = sk.RandomForestClassifier(7, random_state=0).fit(x, y)
    label, shares = run(exchange.to_onnx(estimator), x)
    np.testing.assert_array_equal(label, estimator.predict(x))
    np.testing.assert_allclose(shares, np.hstack(estimator.predict_proba(x)), atol=1e-6)
    with pytest.raises(ValueError, match="classes: expected None of several labels a sample"):
        exchange.to_onnx(estimator, classes=["a", "b", "c", "u", "v"])
    numbers = sk.RandomForestClassifier(7, random_state=0).fit(x, (x[:, 0] > 0) * 0.5)
    assert set(run(exchange.to_onnx(numbers), x)[0].tolist()) == {0.0, 0.5}


def test_estimators_that_are_refused():
    sk = pytest.importorskip("hforest.sklearn", reason="needs scikit-learn")
    with pytest.raises(ValueError, match="model: expected a fitted estimator, got HingeForestRegressor"):
        exchange.to_onnx(sk.HingeForestRegressor())
    from sklearn.ensemble import RandomForestClassifier

    with pytest.raises(TypeError, match="model: expected a Forest, a tabular.Model or a fitted estimator"):
        exchange.to_onnx(RandomForestClassifier())


def test_translations_without_a_library(monkeypatch):
    pytest.importorskip("torch", reason="needs PyTorch")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match="translations: expected PyTorch and onnxscript, got no onnxscript"):
        exchange.translations()
