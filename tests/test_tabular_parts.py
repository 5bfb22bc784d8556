"""The recipe for tables: kinds of trees and their weights, the linear part."""

import numpy as np
import pytest
from conftest import check_changed, same_bits

import hforest
from hforest import tabular
from hforest.tabular import boosting, recipe, start

FAST = {"n_members": 1, "n_trees": 20, "depth": 4, "n_projections": 0, "steps": 0, "task": "regression"}


def smooth(n=400, seed=0):
    """Returns a table of five columns and a linear target with little noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 5))
    return x, x @ [2.0, -1.0, 0.5, 0.0, 1.0] + 0.05 * rng.normal(size=n)


def errors(n_kinds, n, n_outputs=1, seed=0):
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(1, n, n_outputs))
    return common + rng.normal(size=(n_kinds, n, n_outputs)) * rng.uniform(0.1, 3, (n_kinds, 1, 1))


# --------------------------------------------------------------------------------------- kinds of trees


@pytest.mark.parametrize("n_kinds", [1, 2, 3, 4])
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_no_other_weights_have_a_smaller_error(n_kinds, n_outputs, weighted, monkeypatch):
    monkeypatch.setattr(recipe, "STACKING_RIDGE", 0.0)
    rng = np.random.default_rng(n_kinds)
    for seed in range(5):
        e = errors(n_kinds, 200, n_outputs, seed)
        e[0, :7] = np.nan  # rows of which a kind has no out-of-bag prediction
        weight = rng.uniform(0.1, 3, 200) if weighted else None
        best = start._weights(e, weight, np.full(n_kinds, 1 / n_kinds))
        assert best.shape == (n_kinds,)
        assert (best >= 0).all()
        assert best.sum() == pytest.approx(1)

        others = np.concatenate([[best], rng.dirichlet(np.full(n_kinds, 0.5), 300)])
        squares = np.tensordot(others, e[:, 7:], 1) ** 2 * (1 if weight is None else weight[7:, None])
        losses = squares.sum(axis=(1, 2))
        assert losses[0] <= losses[1:].min() * (1 + 1e-9)


def test_few_rows_or_equal_predictions_have_the_default_weights():
    default = np.array([0.7, 0.3])
    few = errors(2, recipe.MIN_STACKED - 1)
    assert (start._weights(few, None, default) == default).all()
    exact = np.zeros((2, 99, 1))
    assert (start._weights(exact, None, default) == default).all()


def test_the_forest_is_the_weighted_mean_of_its_kinds(monkeypatch):
    x, y = smooth()
    forests = []
    for weights in ([1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0.1, 0.2, 0.3, 0.4]):
        monkeypatch.setattr(start, "_weights", lambda *_, w=weights: np.array(w))
        forests.append(tabular.fit(x, y, **FAST, rng=0).members[0].forest)
    *single, whole = (hforest.tree.predict(forest, x.astype(np.float32)) for forest in forests)
    assert [forest.n_trees for forest in forests] == [4, 3, 3, 10, 20]
    np.testing.assert_allclose(np.tensordot([0.1, 0.2, 0.3, 0.4], single, 1), whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n_trees", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_kinds_share_the_trees(n_trees, task, monkeypatch):
    monkeypatch.setattr(recipe, "MIN_STACKED", 2**40)  # no kind has weight 0
    x, y = smooth(60)
    y = y > 0 if task == "classification" else y
    model = tabular.fit(x, y, **FAST | {"n_trees": n_trees, "task": task}, rng=0)
    assert model.members[0].forest.n_trees == n_trees


# ------------------------------------------------------------------------------------------ linear part


def test_a_smooth_target_is_learned_by_its_linear_part(monkeypatch):
    (x, y), (x_test, y_test) = smooth(), smooth(seed=1)

    def error():
        model = tabular.fit(x, y, **FAST, rng=0)
        assert (model.members[0].boosted.linear is None) == (recipe.MAX_LINEAR == 0)
        return ((tabular.predict(model, x_test) - y_test) ** 2).mean()

    with_it = error()
    monkeypatch.setattr(recipe, "MAX_LINEAR", 0)
    assert with_it < 0.1 * error()


@pytest.mark.parametrize("weighted", [False, True])
def test_slopes_are_those_of_ridge_regression(weighted, monkeypatch):
    monkeypatch.setattr(boosting, "CHUNK", 64)  # sums of several blocks
    x, y = smooth(200)
    x, y = x.astype(np.float32), y[:, None] - y.mean()
    weight = np.random.default_rng(2).uniform(0.5, 2, 200) if weighted else None
    w = np.ones(200) if weight is None else weight / weight.mean()
    expected = np.linalg.solve((w * x.T) @ x + recipe.LINEAR_RIDGE * np.eye(5), (w * x.T) @ y)
    slopes = boosting._linear(recipe.Rows(x, y, weight), y)
    assert slopes.dtype == np.float32
    np.testing.assert_allclose(slopes, expected, rtol=1e-4, atol=1e-5)


def test_the_linear_part_reads_missing_values_as_they_are_imputed(tmp_path):
    x, y = smooth()
    x[::7, 1], x[3::11, 4] = np.nan, np.nan
    model = tabular.fit(x, y, **FAST, rng=0)
    assert model.members[0].boosted.linear.shape == (5, 1)
    assert np.isfinite(tabular.predict(model, x)).all()
    tabular.save(tmp_path / "m.npz", model)
    assert same_bits(tabular.load(tmp_path / "m.npz"), model)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a[1:], "boosted.linear: expected shape"),
        (lambda a: a * np.nan, "boosted.linear: expected finite"),
        (lambda a: a.astype(np.float64), "boosted.linear: expected dtype"),
    ],
)
def test_changed_slopes_are_refused(change, words, tmp_path):
    path = tmp_path / "m.npz"
    tabular.save(path, tabular.fit(*smooth(), **FAST, rng=0))
    check_changed(path, tabular.load, {"members/0/boosted/linear": change}, words)
