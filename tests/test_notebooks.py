"""Tables of HTML that notebooks show for forests, models and results of tests."""

import pickle
from html.parser import HTMLParser

import numpy as np
import pytest

import hforest
from hforest import stats, tabular, tree
from hforest.core import notebooks

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = (X[:, 0] + RNG.normal(size=120) > 0).astype(np.int64)
FOREST = hforest.grow(X, Y, 20, rng=0)
COUNTS = stats.honest_counts(Y, 20, rng=0)


class Cells(HTMLParser):
    """Rows of the cells of a table; every other tag is an error."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def handle_starttag(self, tag, attrs):
        assert tag in ("table", "tr", "th", "td")
        assert not attrs
        if tag == "tr":
            self.rows.append([])
        elif tag != "table":
            self.rows[-1].append("")

    def handle_data(self, data):
        self.rows[-1][-1] += data


def cells(shown):
    """Returns the rows of the table that a notebook shows."""
    parser = Cells()
    parser.feed(shown._repr_html_())
    return parser.rows


@pytest.fixture(scope="module")
def model():
    table = {"<script>": X[:, 0], "a\x1bb": X[:, 1], "c": np.array(["u", "v"])[Y]}
    return tabular.fit(
        table, np.array(["no", "<b>yes"])[Y], n_members=2, n_trees=5, steps=20, n_boosted=0, rng=0
    )


def test_a_forest():
    rows = dict(cells(FOREST))
    depths = tree.depth(FOREST)
    assert rows["Forest"] == "float64"
    assert rows["trees"] == "20"
    assert rows["depth"] == f"{depths.min()} to {depths.max()}"
    assert rows["leaves"] == str(len(FOREST.value))
    assert rows["splits"] == f"{len(FOREST.feature) - len(FOREST.value)}, of which 0 by projections"
    assert (rows["features"], rows["outputs"]) == ("3", "2")
    oblique = hforest.grow(X, Y, 2, projections=hforest.project.sparse_distribution(3), rng=0)
    assert f"of which {(oblique.feature == -2).sum()} by projections" in dict(cells(oblique))["splits"]
    assert cells(FOREST._replace()) == cells(FOREST)


def test_what_is_no_forest_is_shown_as_text():
    """The text of repr is what notebooks show then."""
    for bad in (FOREST._replace(left=FOREST.left[:1]), tree.Forest(*[None] * 10)):
        assert bad._repr_html_() is None
        assert repr(bad)


def test_a_model_and_its_columns(model):
    rows = dict(cells(model))
    assert rows["Model"] == "classification"
    assert rows["members"] == "2"
    assert rows["columns"] == "3: <script>, a b, c"  # the parser reads &lt;
    assert rows["classes"] == "2: <b>yes, no"
    assert (rows["hinge trees"], rows["grown trees"], rows["boosted trees"]) == ("10", "10", "0")
    assert "<script" not in model._repr_html_() + model.columns._repr_html_()
    bare = dict(cells(model._replace(columns=None, classes=None)))
    assert (bare["columns"], bare["classes"]) == (str(len(model.scaling.low)), "2")
    assert cells(model.columns) == [
        ["kind", "columns", "features"],
        ["numbers", "2: <script>, a b", "2"],
        ["text", "1: c", "1"],
        ["all", "3", "3"],
    ]


def test_many_names_are_shortened():
    columns = tabular.columns({"k" * 50 + str(j): X[:, 0] for j in range(7)})
    first = ", ".join(["k" * 17 + "..."] * 5)
    assert cells(columns)[1] == ["numbers", f"7: {first}, ...", "7"]


def test_a_regression():
    fitted = tabular.fit(X, X[:, 1:], task="regression", n_members=1, n_trees=5, steps=20, rng=0)
    assert dict(cells(fitted))["targets"] == "2"


def test_samples():
    rows = dict(cells(hforest.samples(X, max_bins=7)))
    assert rows["Samples"] == "ndarray, float64"
    assert (rows["samples"], rows["columns"], rows["bins of a column"]) == ("120", "3", "at most 7")
    some = hforest.samples(np.where(X > 2, np.nan, np.rint(abs(X))), categorical=[0, 2])
    rows = dict(cells(some))
    assert (rows["columns of categories"], rows["missing numbers"]) == ("2", "some")
    assert rows["bins of a column"] == "exact"


def test_tests_of_dependence():
    test = stats.permutation_test(X, Y, n_trees=10, n_permutations=19, rng=0)
    rows = dict(cells(test))
    assert rows["p-value"] == f"{test.p_value:.4g}"
    assert rows["statistic"] == f"{test.statistic:.4g}"
    assert rows["their number"] == "19"
    assert rows["statistics under the null hypothesis"] == f"{test.null.min():.4g} to {test.null.max():.4g}"
    test = stats.conditional_test(X[:, :2], Y, X[:, 2:], n_trees=10, rng=0)
    rows = dict(cells(test))
    column, output = map(int, rows["of column, output"].split(", "))
    assert abs(test.covariances[column, output]) == test.statistic
    assert rows["p-value"] == f"{test.p_value:.4g}"
    test = stats.distance_correlation(*(abs(a[:, None] - a) for a in X[:, :2].T))
    assert cells(test)[1:] == [["statistic", f"{test.statistic:.4g}"], ["p-value", f"{test.p_value:.4g}"]]


def test_importances_show_the_largest(model):
    test = stats.importance_test(X, Y, n_trees=20, rng=0)
    head, *rows = cells(test)
    assert head[:2] == ["set (of 3)", f"importance ({test.null.shape[1]} null draws)"]
    assert [int(row[0]) for row in rows] == np.argsort(-test.importance).tolist()
    assert rows[0][2] == f"{test.p_value[int(rows[0][0])]:.4g}"
    mean = np.array([*range(20), np.nan])
    head, *rows = cells(stats.OobImportance(mean, mean / 2))
    assert head[0] == "feature (of 21)"
    assert rows == [[str(j), str(j), f"{j / 2:.4g}"] for j in range(19, 9, -1)]
    table = {"<script>": X[:, 0], "a\x1bb": X[:, 1], "c": np.array(["u", "v"])[Y]}
    found = tabular.importance(model, table, np.array(["no", "<b>yes"])[Y], n_repeats=2, rng=0)
    assert cells(found)[1][0] == {"a\x1bb": "a b"}.get(*[found.names[found.mean.argmax()]] * 2)


def test_posteriors_and_intervals():
    honest = hforest.grow(X, Y, 20, bootstrap=COUNTS.structure, rng=0)
    shown = stats.posterior(honest, X, Y, COUNTS)
    rows = dict(cells(shown))
    assert rows["rows without a vote"] == str((shown.votes == 0).sum())
    assert rows["votes of a row"] == f"{shown.votes.min()} to {shown.votes.max()}"
    a = np.array([[1.0], [2.0], [np.nan]])
    rows = dict(cells(stats.ConfidenceIntervals(a, a / 4, a - 1, a + 1, a)))
    assert (rows["rows"], rows["means"], rows["standard errors"]) == ("3", "1 to 2", "0.25 to 0.5")
    assert rows["intervals"] == "0 to 3"
    assert rows["intervals with too few trees"] == "2"
    none = np.full((2, 1), np.nan)
    assert dict(cells(stats.ConfidenceIntervals(*[none] * 5)))["means"] == "none"


def test_tuples_stay_tuples(model):
    for a in (FOREST, model, stats.DistanceCorrelation(0.5, 0.25)):
        assert len(a) == len(a._fields)
        assert not any("html" in field for field in a._fields)
        copy = pickle.loads(pickle.dumps(a))
        assert copy._repr_html_() == a._repr_html_()
    assert stats.DistanceCorrelation(0.5, 0.25) == (0.5, 0.25)


def test_tables_align_numbers_by_a_class():
    assert notebooks.table(["a", "b"], [["<", "1"]], 1) == (
        '<table><tr><th>a</th><th class="n">b</th></tr><tr><td>&lt;</td><td class="n">1</td></tr></table>'
    )
