"""Models of tables that explain themselves: importances, SHAP values, partial dependence, reports."""

import numpy as np
import pytest

from hforest import tabular
from hforest.tabular import metrics

SMALL = {"n_members": 1, "n_trees": 20, "depth": 4, "n_projections": 0, "n_boosted": 5, "steps": 50, "rng": 0}


def table(n, seed=0):
    """Returns columns of which size, colour and day have an effect."""
    rng = np.random.default_rng(seed)
    return {
        "noise": rng.normal(size=n),
        "size": np.where(rng.random(n) < 0.05, np.nan, rng.normal(size=n)),
        "unit": np.full(n, "cm"),
        "colour": np.array(["red", "green", "blue"])[rng.integers(0, 3, n)],
        "day": np.datetime64("2024-01-01") + rng.integers(0, 300, n),
    }


def answer(x):
    """Returns targets of the rows of a table."""
    weekend = x["day"].astype(int) % 7 < 2
    return np.nan_to_num(x["size"]) + 2.0 * (x["colour"] == "red") + 1.0 * weekend


@pytest.fixture(scope="module")
def models():
    pytest.importorskip("polars")
    x = table(600)
    y = answer(x)
    labels = np.array(["low", "high"], object)[(y > 1).astype(int)]
    return {
        "regression": tabular.fit(x, y, task="regression", **SMALL),
        "classification": tabular.fit(x, labels, **SMALL),
    }


def answers(task, x):
    y = answer(x)
    return y if task == "regression" else np.array(["low", "high"], object)[(y > 1).astype(int)]


# -------------------------------------------------------------------------------------- importance


@pytest.mark.libraries
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_importances_are_of_columns_of_the_table(task, models):
    x, model = table(400, 1), models[task]
    y, features = answers(task, x), tabular.numbers(model.columns, x)
    found = tabular.importance(model, x, y, n_repeats=3, rng=5)
    assert found.names.tolist() == list(x)
    assert found.rises.shape == (5, 3)
    # By hand: all features of a column get the rows of the same permutation.
    rng = np.random.default_rng(5)
    plain = model._replace(columns=None)

    def loss(features):
        p = tabular.predict(plain, features)
        if task == "regression":
            return ((p - y) ** 2).mean()
        return -np.log(p[np.arange(400), (y == "low").astype(int)]).mean()

    for j in range(5):
        of_column = np.flatnonzero(model.columns.source == j)
        assert (len(of_column) > 1) == (j == 4)
        for k in range(3 if len(of_column) else 0):
            changed = features.copy()
            changed[:, of_column] = features[rng.permutation(400)][:, of_column]
            np.testing.assert_allclose(
                found.rises[j, k], loss(changed) - loss(features), rtol=1e-9, atol=1e-14
            )
    assert not found.rises[2].any()  # one value, without a feature
    np.testing.assert_allclose(found.mean, found.rises.mean(axis=1))
    np.testing.assert_allclose(found.error, found.rises.std(axis=1, ddof=1) / 3**0.5)
    assert set(np.argsort(-found.mean)[:3]) == {1, 3, 4}


def test_weights_and_scores_of_importances():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    model = tabular.fit(x[:200], x[:200, 1] > 0, **SMALL)
    x, y, weight = x[200:], x[200:, 1] > 0, rng.integers(0, 3, 100)
    repeated = np.repeat(np.arange(100), weight)
    seen = []

    def accuracy(y, p, sample_weight=None):
        seen.append((y.tolist(), p.shape, sample_weight))
        return np.average(p.argmax(axis=1) == y, weights=sample_weight)

    found = tabular.importance(model, x, y, sample_weight=weight, score=accuracy, n_repeats=2, rng=0)
    assert found.names.tolist() == ["0", "1", "2"]
    assert seen[0][:2] == (y.astype(int).tolist(), (100, 2))
    np.testing.assert_array_equal(seen[0][2], weight)
    whole = (tabular.predict(model, x).argmax(axis=1) == y)[repeated].mean()
    assert found.rises[1].min() > 0.2
    assert (whole - found.rises <= 1 + 1e-12).all()
    # Minus the log loss as a score is the default.
    score = lambda y, p, sample_weight: -np.average(metrics.log_losses(p, y), weights=sample_weight)  # noqa: E731
    for given in (score, None):
        found = tabular.importance(model, x, y, sample_weight=weight, score=given, rng=3)
        if given:
            np.testing.assert_array_equal(
                found.rises, tabular.importance(model, x, y, sample_weight=weight, rng=3).rises
            )
    alone = tabular.importance(model, x, y, n_repeats=1, rng=0)
    assert np.isnan(alone.error).all()
    done = tabular.importance(model, x, y, rng=0, progress=lambda done, total: done < 2)
    assert done.names.tolist() == ["0", "1"]
    np.testing.assert_array_equal(done.rises, tabular.importance(model, x, y, rng=0).rises[:2])


def test_several_targets_have_the_mean_error():
    x = np.random.default_rng(0).normal(size=(200, 3))
    y = np.stack([x[:, 0], 5 * x[:, 1]], axis=1)
    model = tabular.fit(x, y, task="regression", **SMALL)
    found = tabular.importance(model, x, y, rng=0)
    assert found.mean.argmax() == 1
    squared = ((tabular.predict(model, x) - y) ** 2).mean()
    score = lambda y, p: -((p - y) ** 2).mean()  # noqa: E731
    np.testing.assert_allclose(
        tabular.importance(model, x, y, score=score, rng=0).rises, found.rises, rtol=1e-9
    )
    assert squared < found.mean[1]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"model": 1}, TypeError, "model: expected a Model, got int"),
        ({"x": np.zeros((0, 3))}, ValueError, "x: expected 1 to .* samples, got 0"),
        ({"x": np.zeros((9, 2))}, ValueError, "x: expected the 3 columns"),
        ({"y": np.arange(9)}, IndexError, "y: expected labels of the classes"),
        ({"y": np.zeros(8, bool)}, ValueError, "y: expected shape"),
        ({"n_repeats": 0}, ValueError, "n_repeats: expected 1 to"),
        ({"sample_weight": np.zeros(9)}, ValueError, "sample_weight: expected at least one weight"),
        ({"score": 1}, TypeError, "score: expected a function, got int"),
        ({"score": lambda y: 0}, TypeError, r"score: expected a function that accepts \(y, p\)"),
        ({"score": lambda y, p: 0, "sample_weight": np.ones(9)}, TypeError, "score: .*sample_weight=...\\)"),
        ({"score": lambda y, p: np.nan}, ValueError, "score: expected a finite number, got nan"),
        ({"score": lambda y, p: "a"}, ValueError, "score: expected a finite number, got 'a'"),
        ({"progress": 3}, TypeError, "progress: expected"),
        ({"rng": "a"}, TypeError, "rng: expected"),
    ],
)
def test_wrong_arguments_of_importances(change, error, words):
    x = np.random.default_rng(0).normal(size=(9, 3))
    model = tabular.fit(x, x[:, 0] > 0, n_members=1, n_trees=2, steps=0, rng=0)
    arguments = {"model": model, "x": x, "y": x[:, 0] > 0, "n_repeats": 1} | change
    with pytest.raises(error, match=words):
        tabular.importance(**arguments)


# ----------------------------------------------------------------------------------------- metrics


def test_metrics_of_classes_by_hand():
    p = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.2, 0.8], [0.55, 0.45]])
    y = np.array([0, 0, 1, 0, -1])
    found = {one.name: one for one in metrics.of_classes(p, y)}
    assert list(found) == ["error", "log loss", "AUC", "calibration error"]
    assert found["error"][1:] == (0.4, *metrics.wilson(2, 5))
    losses = -np.log([0.9, 0.6, 0.7, 0.2])
    np.testing.assert_allclose(found["log loss"].value, losses.mean())
    np.testing.assert_allclose(found["log loss"].high, losses.mean() + metrics.Z * losses.std() / 2)
    np.testing.assert_allclose(found["AUC"].value, 2 / 3)
    # Bins: 0.6 (1 of 1 right), 0.7 (1 of 1), 0.8 (0 of 1), 0.9 (1 of 1).
    np.testing.assert_allclose(found["calibration error"].value, (0.4 + 0.3 + 0.8 + 0.1) / 4)
    assert metrics.confusion(p, y).tolist() == [[2, 1], [0, 1]]
    assert [one.name for one in metrics.of_classes(p, np.full(5, -1))] == ["error"]


def test_auc_of_several_classes_is_a_mean_over_pairs():
    sklearn = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(4), 200), rng.integers(0, 4, 200)
    np.testing.assert_allclose(metrics.auc(p, y), sklearn.roc_auc_score(y, p, multi_class="ovo"))
    np.testing.assert_allclose(metrics.auc(p[:, :2], y % 2), sklearn.roc_auc_score(y % 2, p[:, 1]))
    assert np.isnan(metrics.auc(p, np.zeros(200, int)))


@pytest.mark.slow
def test_intervals_of_the_auc_have_their_share():
    rng = np.random.default_rng(0)
    hits, n, shift = 0, 600, 1.0
    truth = 0.7602499  # of normal scores with means that differ by 1: Phi(1 / sqrt(2))
    for _ in range(n):
        y = rng.permutation(np.arange(120) % 3 == 0).astype(int)
        low, high = metrics._auc_interval(rng.normal(size=120) + shift * y, y)
        hits += low <= truth <= high
    assert abs(hits / n - 0.95) < 0.03


def test_metrics_of_targets_by_hand():
    p, y = np.array([1.0, 2.0, 4.0]), np.array([1.0, 4.0, 3.0])
    found = {one.name: one for one in metrics.of_targets(p, y)}
    squared = np.array([0, 4, 1])
    np.testing.assert_allclose(found["RMSE"].value, squared.mean() ** 0.5)
    low, high = metrics.normal(squared)
    np.testing.assert_allclose(found["RMSE"][2:], (max(0, low) ** 0.5, high**0.5))
    np.testing.assert_allclose(found["mean absolute error"].value, 1)
    np.testing.assert_allclose(found["R2"].value, 1 - squared.mean() / y.var())
