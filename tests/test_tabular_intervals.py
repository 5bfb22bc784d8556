"""Intervals of table models: order statistics, coverage, files, refusals."""

import math

import numpy as np
import pytest
from conftest import check_changed, same_bits

from hforest import tabular
from hforest.tabular import fitting

FAST = {"n_members": 2, "n_trees": 20, "depth": 3, "n_projections": 10, "steps": 50, "task": "regression"}


def noisy(n=900, seed=0, n_outputs=1):
    """Returns a table and targets whose noise grows with the second column."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    y = x[:, :1] * [1.0, -3.0][:n_outputs] + (0.05 + abs(x[:, 1:2])) * rng.normal(size=(n, n_outputs))
    return x, y[:, 0] if n_outputs == 1 else y


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("coverage", [0.6, 0.9])
@pytest.mark.parametrize("own_rows", [False, True])
def test_intervals_cover_and_are_wide_where_the_noise_is(n_outputs, coverage, own_rows):
    (x, y), (x_new, y_new) = noisy(n_outputs=n_outputs), noisy(4000, 1, n_outputs)
    more = {"validation": noisy(300, 2, n_outputs)} if own_rows else {}
    model = tabular.fit(x, y, **FAST | more, rng=0)
    low, high = tabular.predict_interval(model, x_new, coverage=coverage)
    assert low.shape == high.shape == y_new.shape
    assert low.dtype == np.float64
    inside = (low <= y_new) & (y_new <= high)
    assert (abs(inside.mean(axis=0) - coverage) < 0.05).all()
    calm, loud = abs(x_new[:, 1]) < 0.3, abs(x_new[:, 1]) > 1.2
    assert ((high - low)[loud].mean(axis=0) > 2 * (high - low)[calm].mean(axis=0)).all()


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_bounds_are_order_statistics(coverage):
    x, y = noisy(200)
    model = tabular.fit(x, y, **FAST, rng=0)
    n = 2 * int(0.15 * 200)
    assert model.held_out.shape == (n, 1)
    p = tabular.predict(model, x)
    low, high = (bound - p for bound in tabular.predict_interval(model, x, coverage=coverage))
    errors = np.sort(model.held_out[:, 0])
    k = math.floor((n + 1) * (1 - coverage) / 2 + 1e-9)
    expected = errors[k - 1], errors[n - k]
    # Each bound is an error multiplied by the same expected error of the row.
    np.testing.assert_allclose(low * expected[1], high * expected[0], rtol=1e-9)
    assert np.sign(low[0]) == np.sign(expected[0])


def test_errors_are_those_of_held_out_rows():
    x, y = noisy(300)
    rows = noisy(80, 3)
    model = tabular.fit(x, y, **FAST, validation=rows, rng=0)
    p = tabular.predict(model, rows[0])
    _, high = tabular.predict_interval(model, rows[0], coverage=0.5)
    greatest = np.sort(model.held_out[:, 0])[-math.floor(81 * 0.25)]
    np.testing.assert_allclose(
        model.held_out[:, 0] * (high - p) / greatest, rows[1] - p, rtol=1e-6, atol=1e-6
    )


def test_errors_of_a_member_are_of_its_own_rows_where_another_was_not_fitted(monkeypatch):
    x, y = noisy(200)
    settings = FAST | {"n_members": 3, "steps": 10}
    whole = tabular.fit(x, y, **settings, rng=0)
    fit_all = fitting._side_by_side
    monkeypatch.setattr(
        fitting, "_side_by_side", lambda *a: [m if i != 1 else None for i, m in enumerate(fit_all(*a))]
    )
    model = tabular.fit(x, y, **settings, rng=0)
    assert len(model.members) == 2
    np.testing.assert_array_equal(model.held_out, np.delete(whole.held_out, np.s_[30:60], axis=0))


def test_an_interval_of_a_constant_target_is_that_target():
    x, _ = noisy(200)
    low, high = tabular.predict_interval(tabular.fit(x, np.full(200, 3.0), **FAST, rng=0), x)
    np.testing.assert_allclose([low, high], 3.0, atol=1e-6)


def test_tables_with_missing_values_and_files(tmp_path):
    x, y = noisy(300)
    x[::5, 1] = np.nan
    model = tabular.fit(x, y, **FAST, rng=0)
    tabular.save(tmp_path / "m.npz", model)
    back = tabular.load(tmp_path / "m.npz")
    assert same_bits(back, model)
    assert same_bits(tabular.predict_interval(back, x), tabular.predict_interval(model, x))


def test_models_without_errors_are_refused():
    x, y = noisy(200)
    model = tabular.fit(x, y, **FAST, rng=0)
    later, _ = tabular.partial_fit(model, x, y)
    none = tabular.fit(x, y, **FAST, validation=0.0, rng=0)
    older = model._replace(members=tuple(member._replace(squares=None) for member in model.members))
    for bad in (later, none, older, model._replace(held_out=None)):
        with pytest.raises(
            ValueError, match="^model: expected one with errors of held-out rows, got none; fit"
        ):
            tabular.predict_interval(bad, x)
    of_classes = tabular.fit(x, y > 0, **FAST | {"task": "classification"}, rng=0)
    with pytest.raises(ValueError, match="^model: expected a model of a regression, got one of classes; use"):
        tabular.predict_interval(of_classes, x)


@pytest.mark.parametrize("coverage", [0.0, 1.1, np.nan, "a", 0.99, 1.0])
def test_coverages_that_cannot_be_had(coverage):
    x, y = noisy(200)
    model = tabular.fit(x, y, **FAST, rng=0)
    with pytest.raises((TypeError, ValueError), match=r"^coverage: expected .*, got .*; (pass|choose)"):
        tabular.predict_interval(model, x, coverage=coverage)
    most = 1 - 2 / (len(model.held_out) + 1)
    tabular.predict_interval(model, x, coverage=most)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("held_out", lambda a: a * np.nan, "held_out: expected finite"),
        ("held_out", lambda a: a[:, 0], "held_out: expected shape"),
        ("members/0/squares", lambda a: a - 99, "squares: expected numbers of at least 0"),
        ("members/1/squares", lambda a: a[1:], "squares: expected shape"),
        ("members/1/squares", lambda a: a * np.inf, "squares: expected finite"),
    ],
)
def test_changed_files_are_refused(name, change, words, tmp_path):
    path = tmp_path / "m.npz"
    tabular.save(path, tabular.fit(*noisy(100), **FAST, rng=0))
    check_changed(path, tabular.load, {name: change}, words)
