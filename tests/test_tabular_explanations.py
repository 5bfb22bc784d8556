"""Models of tables that explain themselves: importances, SHAP values, partial dependence, reports."""

import itertools
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from hforest import tabular
from hforest.__main__ import main
from hforest.tabular.evaluation import dependence, importances, metrics, reporting, svg
from hforest.tabular.evaluation import shap as shap_module

SVG = "{http://www.w3.org/2000/svg}"

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
        ({"score": lambda y, p: np.nan}, ValueError, "score: expected a finite number, got nan;"),
        ({"score": lambda y, p: "a"}, ValueError, "score: expected a finite number, got a;"),
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


@pytest.mark.libraries
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


# ------------------------------------------------------------------------------------------ charts


def texts(chart):
    return [element.text for element in ElementTree.fromstring(chart).iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (-3.0, 4.0, [-2, 0, 2, 4]),
        (1e9, 1e9 + 5, 1e9 + np.arange(6)),
        (-2e-7, 1e-7, [-2e-7, -1e-7, 0, 1e-7]),
    ],
)
def test_ticks_are_round_numbers_in_the_range(low, high, expected):
    found = svg.ticks(low, high)
    np.testing.assert_allclose(found, expected, atol=1e-12 * (high - low))
    assert not np.signbit(found[found == 0]).any()


def test_places_of_bars_and_curves():
    chart = svg.bars(["a<b", "c"], np.array([2.0, -1.0]), np.array([0.5, np.nan]), 'two "bars"')
    root = ElementTree.fromstring(chart)
    assert root.get("aria-label") == 'two "bars"'
    assert texts(chart) == ["a<b", "2", "c", "-1"]
    first, second = root.iter(f"{SVG}rect")
    assert float(first.get("width")) == pytest.approx(2 * float(second.get("width")), abs=0.2)
    assert float(second.get("x")) + float(second.get("width")) == pytest.approx(
        float(first.get("x")), abs=0.2
    )
    assert len(list(root.iter(f"{SVG}line"))) == 2  # an interval, and the line at 0
    x, y = np.array([0.0, 1.0, 2.0]), np.array([0.0, np.nan, 4.0])
    series = [svg.Series(x, y, "line", "one"), svg.Series(x, y + 1, "dots", "two", y, y + 2)]
    chart = svg.curves(series, "x & y", "y", "curves", x_ticks=(x, ["a", "b", "c"]))
    root = ElementTree.fromstring(chart)
    assert len(root.find(f"{SVG}polyline").get("points").split()) == 2  # NaN is left out
    assert {"a", "b", "c", "x & y", "one", "two"} <= set(texts(chart))
    assert svg.limits([np.array([3.0, 3.0])]) == (1.5, 4.5)
    assert svg.limits([np.array([np.nan])]) == (0.0, 1.0)


# ------------------------------------------------------------------------------- partial dependence


def test_dependence_is_the_mean_over_rows(models):
    x, model = table(300, 2), models["regression"]
    features = tabular.numbers(model.columns, x)
    plain = model._replace(columns=None)
    rows = np.random.default_rng(0).permutation(300)[:200]
    for j, n in ((1, 20), (3, 3), (4, 20)):
        of_column = np.flatnonzero(model.columns.source == j)
        found = dependence.of_column(model, features, of_column, model.columns)
        assert len(found.grid) == n
        place = n // 2
        value = found.grid[place] if not found.is_categorical else float(place)
        (row, *_) = np.flatnonzero(features[:, of_column[0]] == value)
        changed = features[rows].copy()
        changed[:, of_column] = features[row, of_column]
        np.testing.assert_allclose(found.mean[place, 0], tabular.predict(plain, changed).mean(), rtol=1e-6)
    assert found.texts[0] == str(np.datetime64(int(found.grid[0]), "D"))
    found = dependence.of_column(model, features, np.flatnonzero(model.columns.source == 3), model.columns)
    assert found.texts == ("blue", "green", "red")
    assert found.mean[2] > found.mean[0] + 1
    features[:, 1] = np.nan
    assert len(dependence.of_column(model, features, np.array([1]), model.columns).grid) == 0


@pytest.mark.libraries
@pytest.mark.parametrize("name", ["HingeForestClassifier", "HingeForestRegressor"])
def test_scikit_learn_draws_the_dependence_on_text_and_numbers(name):
    figure = pytest.importorskip("matplotlib.figure")
    pandas, inspection = pytest.importorskip("pandas"), pytest.importorskip("sklearn.inspection")
    import hforest.sklearn as estimators

    x = table(200)
    y = answer(x)
    frame = pandas.DataFrame({name: x[name] for name in ("noise", "colour", "day")})
    frame["kind"] = pandas.Categorical(np.where(x["noise"] > 0, "b", "a"))
    frame["flag"] = x["noise"] > 1
    y = y if name.endswith("Regressor") else np.array(["low", "mid", "high"], object)[np.digitize(y, [0, 1])]
    model = getattr(estimators, name)(10, n_members=1, max_iter=20, random_state=0).fit(frame, y)
    columns = ["noise", "colour", "kind", "flag", ("colour", "kind")]
    ax = figure.Figure(figsize=(9, 9)).subplots(1, 5)
    display = inspection.PartialDependenceDisplay.from_estimator(
        model,
        frame,
        columns,
        categorical_features=["colour", "kind", "flag"],
        grid_resolution=12,
        target="low",
        ax=ax,
    )
    found = dict(zip(columns, display.pd_results, strict=True))
    assert found["colour"]["grid_values"][0].tolist() == ["blue", "green", "red"]
    assert found["colour", "kind"]["average"].shape == (1 if name.endswith("Regressor") else 3, 3, 2)
    for column in ("noise", "colour", "kind", "flag"):
        for place, value in enumerate(found[column]["grid_values"][0]):
            changed = frame.copy()
            changed[column] = pandas.Series([value] * 200).astype(frame[column].dtype)
            p = model.predict(changed) if name.endswith("Regressor") else model.predict_proba(changed)
            np.testing.assert_allclose(found[column]["average"][..., place], p.mean(axis=0), atol=1e-6)


# ------------------------------------------------------------------------------------------ report


class Page(HTMLParser):
    """Checks that elements are closed, and collects their texts by tag."""

    def __init__(self, page):
        super().__init__()
        self.open, self.found, self.attributes = [], {}, []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.found.setdefault(self.open[-1] if self.open else "", []).append(data)


@pytest.mark.libraries
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_reports(task, models, tmp_path):
    x, model = table(300, 1), models[task]
    x["colour"][7] = "<pin>"
    y = answers(task, x)
    page = tabular.report(model, x, y)
    found = Page(page).found
    heads = [
        "Warnings",
        "Metrics",
        *(["Calibration", "Confusion"] if task == "classification" else ["Residuals"]),
    ]
    assert found["h2"] == [*heads, "Importances", "Partial dependence", "Columns of training"]
    assert any("unknown categories, read as missing values, such as '<pin>'" in text for text in found["li"])
    p = tabular.predict(model, x)
    if task == "classification":
        places = (y == "low").astype(int)
        expected = [*metrics.of_classes(p, places)]
        counts = metrics.confusion(p, places)
        assert [int(text) for text in found["td"] if text.isdigit()][:4] == counts.ravel().tolist()
    else:
        expected = [*metrics.of_targets(p, y)]
    for one in expected:
        assert found["td"][found["td"].index(one.name) + 1] == f"{one.value:.4g}"
    charts = re.findall("<svg.*?</svg>", page)
    assert len(charts) == 6  # calibration or residuals, importances, four columns that have features
    assert texts(charts[1])[:6:2] == found_names(model, x, y)
    assert all(ElementTree.fromstring(chart).get("aria-label") for chart in charts)
    assert "unit" not in "".join(texts("".join(charts[1])))
    assert len(page) < 100_000
    assert page._repr_html_() in page
    assert page._repr_html_().startswith("<div")
    assert repr(page) == f"Report({len(page.encode())} bytes of HTML)"
    # Nothing outside of the page is read.
    assert not re.search(r"(?:src|href|url\(|@import|<script|<link|<iframe)", page.replace("aria-", ""))
    path = tmp_path / "r.html"
    page.save(path)
    page.save(path)
    assert path.read_text(encoding="utf-8") == page
    assert reporting.is_report(path)
    assert not reporting.is_report(__file__)
    assert tabular.report(model, x, y) == page  # no random numbers of others
    assert "<h2>Importances" in tabular.report(model, x, y, progress=lambda done, total: done < 2)


def found_names(model, x, y):
    """Returns the names of the three most important columns."""
    features = tabular.numbers(model.columns, x)
    goals = y if model.task == "regression" else (y == "low").astype(int)
    found = importances.of_some_rows(model, features, goals)
    return found.names[importances.best(found, 3)].tolist()


@pytest.mark.parametrize("n_classes", [2, 26])
def test_reports_of_arrays_with_odd_names_stay_small(n_classes):
    rng = np.random.default_rng(0)
    names = [f"<script>alert({j})</script>&\"'" + "x" * 300 for j in range(60)]
    x = dict(zip(names, rng.normal(size=(60, 300)), strict=True))
    labels = np.array([f"<b>{k}</b>" for k in range(n_classes)], object)[np.arange(300) % n_classes]
    model = tabular.fit(x, labels, n_members=1, n_trees=3, n_projections=0, n_boosted=0, steps=0, rng=0)
    page = tabular.report(model, x, labels)
    assert "<script" not in page
    assert "<b>" not in page
    assert len(page.encode()) < 500_000
    assert ("<h2>Confusion" in page) == (n_classes == 2)
    Page(page)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_reports_of_few_rows_and_several_targets(task):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = np.arange(60) % 3 if task == "classification" else rng.normal(size=(60, 2))
    model = tabular.fit(x, y, task=task, n_members=1, n_trees=3, steps=0, rng=0)
    x[:, 1] = np.nan
    for rows in (slice(1), slice(2), slice(60)):
        Page(tabular.report(model, x[rows], y[rows]))
    if task == "classification":
        page = reporting.of_numbers(model, x, np.array([-1, -2] * 30))
        assert "no row can be compared" in page
        assert "30 of 60 rows have a label that the model does not know, and are not compared" in page
        assert "<h2>Metrics" not in page


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"model": 1}, TypeError, "model: expected a Model, got int"),
        ({"x": np.zeros((0, 3))}, ValueError, "x: expected 1 to .* samples, got 0"),
        ({"x": np.zeros((9, 2))}, ValueError, "x: expected the 3 columns"),
        ({"y": np.zeros(8, bool)}, ValueError, "y: expected shape"),
        ({"y": np.zeros((9, 2), bool)}, ValueError, "y: expected shape"),
        ({"y": np.arange(9)}, IndexError, "y: expected labels of the classes"),
        ({"progress": 3}, TypeError, "progress: expected"),
    ],
)
def test_wrong_arguments_of_reports(change, error, words):
    x = np.random.default_rng(0).normal(size=(9, 3))
    model = tabular.fit(x, x[:, 0] > 0, n_members=1, n_trees=2, steps=0, rng=0)
    with pytest.raises(error, match=words):
        tabular.report(**({"model": model, "x": x, "y": x[:, 0] > 0} | change))
    model = tabular.fit(x, x[:, 0], task="regression", n_members=1, n_trees=2, steps=0, rng=0)
    with pytest.raises(ValueError, match="y: expected the 1 targets of the model, got 2"):
        tabular.report(model, x, x[:, :2])


# ------------------------------------------------------------------------------------------ command


@pytest.mark.libraries
def test_the_command_writes_a_report(models, tmp_path, capsys):
    polars = pytest.importorskip("polars")
    x = table(200, 3)
    y = answers("classification", x)
    y[0] = "unheard"
    data, page, model = tmp_path / "d.csv", tmp_path / "r.html", tmp_path / "m.npz"
    polars.DataFrame({**x, "price<>": y.tolist()}).write_csv(data)
    fit = ["--n-trees", "5", "--steps", "20", "--no-refit", "--save", str(model)]
    assert main(["--data", str(data), "--target", "price<>", *fit]) == 0
    predict = ["predict", str(model), str(data), "--report", str(page)]
    capsys.readouterr()
    for _ in range(2):  # an older report is replaced
        assert main(predict) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{page}: written\n" * 2
    found = Page(page.read_text(encoding="utf-8")).found
    assert found["h1"] == ["Classification of price<>"]
    assert any("of the rows are rows of training" in text for text in found["li"])
    assert re.search(r"error (\S+) %", captured.err)
    out = tmp_path / "p.csv"
    assert main([*predict, "--out", str(out)]) == 0
    assert len(out.read_text().splitlines()) == 201
    polars.DataFrame(x).write_csv(tmp_path / "bare.csv")
    capsys.readouterr()
    page.write_text("mine")
    for arguments, words in (
        (predict, "--report: expected a new file or a report written by hforest"),
        ([*predict[:-1], str(data)], "--report: expected a file of HTML"),
        (
            ["predict", str(model), str(tmp_path / "bare.csv"), "--report", str(tmp_path / "b.html")],
            "rows with the target",
        ),
        ([*predict[:-1], str(tmp_path / "no" / "b.html")], "b.html"),
    ):
        assert main(arguments) == 2
        assert words in capsys.readouterr().err
    assert page.read_text() == "mine"
    assert main([*predict, "--force"]) == 0
    assert reporting.is_report(page)


def test_a_report_of_an_archive_but_not_of_a_network(tmp_path, capsys):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 4))
    data, model, page = (str(tmp_path / name) for name in ("d.npz", "m.npz", "r.html"))
    for y, h1 in ((x[:, 0] > 0, "Classification of a table"), (x[:, 0], "Regression of a table")):
        np.savez(data, x=x, y=y)
        assert main(["--data", data, "--n-trees", "5", "--steps", "10", "--no-refit", "--save", model]) == 0
        assert main(["predict", model, data, "--report", page]) == 0
        assert Page((tmp_path / "r.html").read_text()).found["h1"] == [h1]
    np.savez(data, x=x, y=(x[:, 0] > 0).astype(int))
    network = ["--kind", "fern", "--n-trees", "3", "--steps", "5", "--train", "90", "--no-plot"]
    assert main(["--data", data, *network, "--save", str(tmp_path / "n.npz")]) == 0
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "n.npz"), data, "--report", page]) == 2
    assert "--report: expected a model of a table, got a network" in capsys.readouterr().err


# ------------------------------------------------------------------------------------- SHAP values


def shapley(model, row, background, sets):
    """Returns the mean over all orders of columns, one after the other."""
    plain = model._replace(columns=None)

    def value(some):
        hybrid = background.copy()
        for j in some:
            hybrid[:, sets[j]] = row[sets[j]]
        return tabular.predict(plain, hybrid).mean(axis=0)

    orders = list(itertools.permutations(range(len(sets))))
    phi = np.zeros((len(sets), np.size(value(()))))
    for order in orders:
        for k, j in enumerate(order):
            phi[j] += value(order[: k + 1]) - value(order[:k])
    return phi / len(orders)


@pytest.mark.libraries
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_shap_values_add_up_and_are_means_over_all_orders(task, models):
    model = models[task]
    x, background = table(6, 4), table(8, 5)
    shap = tabular.shap_values(model, x, background, n_permutations=40, rng=0)
    p = tabular.predict(model, x).reshape(6, -1)
    assert shap.values.shape == (6, 5, p.shape[1])
    np.testing.assert_allclose(shap.expected + shap.values.sum(axis=1), p, rtol=0, atol=1e-12)
    np.testing.assert_allclose(shap.expected, tabular.predict(model, background).reshape(8, -1).mean(axis=0))
    assert not shap.values[:, 2].any()
    features, others = (tabular.numbers(model.columns, a) for a in (x, background))
    sets = [np.flatnonzero(model.columns.source == j) for j in range(5)]
    for i in range(2):
        expected = shapley(model, features[i], others, sets)
        np.testing.assert_allclose(shap.values[i], expected, atol=0.03)
    if task == "classification":
        np.testing.assert_allclose(shap.values.sum(axis=2), 0, atol=1e-12)


def test_shap_values_of_two_columns_are_exact():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    model = tabular.fit(x, x[:, 0] * x[:, 1], task="regression", **SMALL)
    shap = tabular.shap_values(model, x[:3], x[10:15], rng=7)
    sets = [np.array([0]), np.array([1])]
    for i in range(3):
        np.testing.assert_allclose(shap.values[i], shapley(model, x[i], x[10:15], sets), atol=1e-6)
    again = tabular.shap_values(model, x[:1], x[10:15], rng=7)
    np.testing.assert_allclose(again.values, shap.values[:1], atol=1e-6)


def test_columns_with_the_values_of_the_background_have_no_part(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (300, 5)).astype(float)
    x[::7, 1] = np.nan
    model = tabular.fit(x, np.nan_to_num(x) @ [1.0, 0.5, 2, 3, -1], task="regression", **SMALL)
    rows = []
    predict = shap_module.predict
    monkeypatch.setattr(shap_module, "predict", lambda model, x: rows.append(len(x)) or predict(model, x))
    shap = tabular.shap_values(model, x[:1], x[:1], rng=0)
    assert not abs(shap.values).max() > 1e-6
    assert rows == [1, 1]  # nothing changes
    rows.clear()
    background = np.tile(x[:1], (4, 1))
    background[:, 3] = 1 - background[:, 3]
    shap = tabular.shap_values(model, x[:1], background, rng=0)
    assert abs(shap.values[0, [0, 1, 2, 4]]).max() < 1e-6
    assert abs(shap.values[0, 3, 0]) > 1
    assert sum(rows) <= 1 + 4 + 8
    # The same values in parts.
    whole = tabular.shap_values(model, x[:3], x[10:90], rng=0)
    monkeypatch.setattr(shap_module, "STEP_NUMBERS", 35)
    np.testing.assert_allclose(
        tabular.shap_values(model, x[:3], x[10:90], rng=0).values, whole.values, atol=1e-6
    )


@pytest.mark.libraries
def test_shap_values_are_drawn():
    pytest.importorskip("matplotlib")
    from hforest import plot

    x = np.random.default_rng(0).normal(size=(100, 3))
    model = tabular.fit(x, x[:, 1] > 0, **SMALL)
    shap = tabular.shap_values(model, x[:10], x[50:60], rng=0)
    ax = plot.importance(shap, feature_names=["a", "b", "c"])
    assert ax.get_yticklabels()[-1].get_text() == "b"
    done = tabular.shap_values(model, x[:10], x[50:60], rng=0, progress=lambda done, total: done < 4)
    np.testing.assert_allclose(done.values, shap.values[:4], atol=1e-12)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"model": 1}, TypeError, "model: expected a Model, got int"),
        ({"x": np.zeros((0, 3))}, ValueError, "x: expected 1 to .* samples, got 0"),
        ({"x": np.zeros((9, 2))}, ValueError, "x: expected the 3 columns"),
        ({"background": np.zeros((0, 3))}, ValueError, "background: expected 1 to .* samples, got 0"),
        ({"background": np.zeros((2, 2))}, ValueError, "background: expected the 3 columns of x, got 2"),
        ({"n_permutations": 0}, ValueError, "n_permutations: expected 1 to"),
        ({"progress": 3}, TypeError, "progress: expected"),
        ({"rng": "a"}, TypeError, "rng: expected"),
    ],
)
def test_wrong_arguments_of_shap_values(change, error, words):
    x = np.random.default_rng(0).normal(size=(9, 3))
    model = tabular.fit(x, x[:, 0] > 0, n_members=1, n_trees=2, steps=0, rng=0)
    with pytest.raises(error, match=words):
        tabular.shap_values(**({"model": model, "x": x, "background": x} | change))


def test_predictions_that_are_no_numbers_are_an_error_that_names_the_model():
    assert metrics.calibration(np.full((2, 2), np.nan), np.array([0, 1])).n_rows.tolist() == [2]
    x = np.random.default_rng(0).normal(size=(60, 2))
    model = tabular.fit(x, x[:, 0], task="regression", **SMALL)
    broken = model._replace(target_scale=np.full(1, 1e300))
    with pytest.raises(ValueError, match="^model: expected predictions of finite loss, got -inf; scale"):
        tabular.importance(broken, x, x[:, 0])
