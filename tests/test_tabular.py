"""The recipe for tables: units of columns, training, early stopping, files."""

import functools
import sys
import threading
import types

import numpy as np
import pytest
from conftest import check_changed, same_bits
from growers import assert_all_same, on_threads

import hforest
from hforest import demo, tabular
from hforest.tabular import encoding, fitting, levels, recipe, start, training
from hforest.tabular.scaling import KINDS, measure, transformed

FAST = {"n_members": 1, "n_trees": 20, "depth": 4, "n_projections": 30, "steps": 200}


def table(n=600, seed=0):
    """Returns a table of three classes by an oblique and an axis-aligned split, with skewed and constant columns."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6))
    x[:, 3] = np.exp(2 * x[:, 3])
    x[:, 4] = rng.integers(0, 3, n)
    x[:, 5] = 7
    y = (x[:, 0] + x[:, 1] > 0).astype(int) + (np.log(x[:, 3]) > x[:, 4])
    return x, y


@functools.cache
def small_model():
    """Returns a model of 100 rows, which no test changes."""
    return tabular.fit(*table(100), n_classes=3, validation=0.0, **FAST, rng=0)


def target(n=600, seed=0):
    x, _ = table(n, seed)
    return x, x[:, 0] * 2 + abs(x[:, 1]) + 0.1 * np.random.default_rng(1).normal(size=n)


def error(model, x, y):
    return float((tabular.predict(model, x).argmax(axis=1) != y).mean())


def loss(model, x, y):
    """Returns the share of wrong labels, or the mean squared error of targets."""
    p = tabular.predict(model, x)
    return (p.argmax(axis=1) != y).mean() if y.dtype.kind == "i" else ((p - y) ** 2).mean()


# ------------------------------------------------------------------------------------------ columns


@pytest.mark.parametrize("kind", KINDS)
def test_columns_have_a_common_unit(kind):
    x, _ = table()
    z = transformed(measure(x, kind), x)
    assert z.dtype == np.float32
    assert abs(z[:, :5].mean(axis=0)).max() < 1e-6
    assert abs(z[:, :5].std(axis=0) - 1).max() < (1e-6 if kind == "deviations" else 0.02)
    assert not z[:, 5].any()
    long = (z.astype(float) ** 4).mean(axis=0)[3]
    assert (long > 12) == (kind == "deviations")


@pytest.mark.parametrize("factor", [1e-12, 1e-3, 1e12, 1e300, 1e-300])
@pytest.mark.parametrize("kind", KINDS)
def test_units_are_free_of_scale(kind, factor):
    x, _ = table(100)
    z, scaled = (transformed(measure(a, kind), a) for a in (x, factor * x))
    np.testing.assert_allclose(scaled, z, rtol=1e-5, atol=1e-5)


def test_columns_of_any_numbers_stay_finite():
    x = np.array([[1.7e308, 5e-324, 3.0], [-1.7e308, 0, 3.0], [0, 5e-324, 3.0]])
    for kind in KINDS:
        assert np.isfinite(transformed(measure(x, kind), x)).all()


def test_numbers_outside_of_the_range_are_taken_as_its_ends():
    x, _ = table(100)
    for kind in KINDS:
        scaling = measure(x, kind)
        far = np.array([x.max(axis=0) + 1e9, x.min(axis=0) - 1e9])
        ends = np.array([x.max(axis=0), x.min(axis=0)])
        assert (transformed(scaling, far) == transformed(scaling, ends)).all()


def test_normal_scores_keep_the_order_and_few_knots():
    x = np.random.default_rng(0).standard_cauchy((5000, 1))
    scaling = measure(x, "auto")
    assert 100 < len(scaling.knots) <= 256
    z = transformed(scaling, np.sort(x, axis=0))[:, 0]
    assert (np.diff(z) >= 0).all()
    quantiles = np.quantile(z, [0.025, 0.5, 0.975])
    np.testing.assert_allclose(quantiles, [-1.96, 0, 1.96], atol=0.05)


# ------------------------------------------------------------------------------------------- models


def test_classes_are_learned_better_than_by_the_start():
    x, y = table(900)
    start, model = (
        tabular.fit(x[:600], y[:600], **FAST | {"steps": steps}, share=1.0, rng=0) for steps in (0, 600)
    )
    p = tabular.predict(model, x[600:])
    assert p.shape == (300, 3)
    assert p.dtype == np.float64
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert error(model, x[600:], y[600:]) < min(0.1, error(start, x[600:], y[600:]))


@pytest.mark.parametrize("factor", [1.0, 1e-12, 1e12])
def test_targets_are_learned_in_any_unit(factor):
    x, y = target(900)
    model = tabular.fit(x[:600], factor * y[:600], task="regression", **FAST | {"steps": 500}, rng=0)
    p = tabular.predict(model, x[600:])
    assert p.shape == (300,)
    assert ((p / factor - y[600:]) ** 2).mean() < 0.1 * y[600:].var()


def test_several_targets():
    x, y = target()
    both = np.stack([y, np.full(len(y), 3.0), -1e6 * y], axis=1)
    p = tabular.predict(tabular.fit(x, both, task="regression", **FAST, rng=0), x)
    assert p.shape == both.shape
    np.testing.assert_allclose(p[:, 1], 3, atol=1e-4)
    assert ((p - both)[:, ::2].std(axis=0) < 0.4 * both[:, ::2].std(axis=0)).all()


def test_columns_of_any_scale_give_the_same_errors():
    x, y = table(1200)
    powers = 10.0 ** np.array([-12, 12, 3, -7, 9, 0])
    errors = [
        error(tabular.fit(a[:600], y[:600], **FAST, rng=0), a[600:], y[600:])
        for a in (x, x * powers + 5 * powers)
    ]
    assert abs(errors[0] - errors[1]) <= 0.003


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))])
def test_digits_of_any_scale_give_the_same_errors(seed):
    digits = demo.load_digits()
    powers = 10.0 ** np.random.default_rng(seed).uniform(-12, 12, 64)
    x = digits.x_train.astype(float)
    deviation = np.where(x.std(axis=0) > 0, x.std(axis=0), 1)
    errors = []
    for unit in (1 / deviation, powers):
        model = tabular.fit(unit * x, digits.y_train, rng=seed)
        errors.append(error(model, unit * digits.x_test, digits.y_test))
    assert abs(errors[0] - errors[1]) <= 0.003
    assert max(errors) < 0.03


def test_one_seed_gives_the_same_bits_at_every_number_of_threads(threads):
    x, y = table(200)
    settings = FAST | {"n_members": 2}
    models = on_threads(threads, lambda: tabular.fit(x, y, **settings, rng=5))
    assert_all_same(models)
    assert not same_bits(models[0], tabular.fit(x, y, **settings, rng=6))


def test_members_hold_out_other_rows():
    parts = fitting._parts(100, 4, 0.2, np.random.default_rng(0))
    assert [len(part) for part in parts] == [20] * 4
    assert len(np.unique(np.concatenate(parts))) == 80
    more = fitting._parts(100, 6, 0.4, np.random.default_rng(0))
    assert (more[0] == more[2]).all()
    assert [len(part) for part in fitting._parts(30, 2, 0.2, np.random.default_rng(0))] == [0, 0]


def test_training_ends_when_held_out_rows_say_so():
    x, y = table(400)
    noise = np.random.default_rng(0).permutation(y)
    seen = []
    model = tabular.fit(
        x, noise, **FAST | {"steps": 5000}, lr=0.01, progress=lambda d, t: seen.append((d, t)), rng=0
    )
    assert recipe.PATIENCE * recipe.JUDGE_EVERY <= seen[-1][0] < 3000
    assert seen[-1][1] == 5300
    # The best state is kept, here one close to the start.
    z = transformed(model.scaling, x)
    last = tabular.fit(x, noise, **FAST | {"steps": seen[-1][0]}, lr=0.01, validation=0.0, rng=0)
    size = [float((m.members[0].weights ** 2).sum()) for m in (model, last)]
    assert size[0] < size[1]
    assert len(z) == 400


def test_rows_of_ones_own_are_judged_by():
    x, y = table(400)
    kept = {}
    for name, labels in (("right", y[300:]), ("wrong", np.zeros(100, int))):
        kept[name] = tabular.fit(x[:300], y[:300], **FAST, validation=(x[300:], labels), rng=0)
    shares = {name: float(model.members[0].share) for name, model in kept.items()}
    assert shares["right"] > 0
    assert not same_bits(kept["right"], kept["wrong"])


@pytest.mark.parametrize("factor", [0.4, 0.6, 0.8, 1.0])
def test_scores_that_are_too_sure_are_lowered(factor):
    """On 1000 held-out rows with the true log-odds divided by a factor, this factor has the smallest loss."""
    share = np.repeat([0.1, 0.3, 0.7, 0.9], 250)
    y = (np.arange(1000) % 250 < 250 * share).astype(np.int32)
    scores = np.column_stack([0 * share, np.log(share / (1 - share)) / factor]).astype(np.float32)
    held = recipe.Rows(scores, y, None)
    settings = recipe.Settings("classification", 2, 1, 1, 0, 0, 1, 0.1, False, 1.0, 0)
    assert training._best_mixture(scores, np.full((1000, 2), 0.5), held, settings).factor == factor


def test_rows_of_weight_0_count_for_nothing():
    x, y = table(300)
    weight = np.r_[np.ones(200), np.zeros(100)]
    wild = x.copy()
    wild[200:] *= 1e6
    a = tabular.fit(wild, y, sample_weight=weight, n_classes=3, **FAST, rng=0)
    b = tabular.fit(x[:200], y[:200], n_classes=3, **FAST, rng=0)
    assert same_bits(a, b)


def test_class_weights_move_predictions():
    rng = np.random.default_rng(0)
    y = (rng.random(800) < 0.1).astype(int)
    x = rng.normal(size=(800, 3)) + y[:, None]
    plain, weighted = (
        tabular.predict(tabular.fit(x, y, class_weight=w, **FAST, rng=0), x)[:, 1].mean()
        for w in (None, "balanced")
    )
    assert weighted > 1.5 * plain
    by_hand = tabular.fit(x, y, sample_weight=np.where(y, 9.0, 1.0), **FAST, rng=0)
    assert tabular.predict(by_hand, x)[:, 1].mean() > 1.5 * plain


def test_progress_ends_training_with_what_is_finished(threads):
    x, y = table(300)
    seen = []
    threads(1)

    def stop(done, total):
        seen.append((done, total))
        return done < 230

    settings = FAST | {"n_members": 3, "validation": 0.0}
    model = tabular.fit(x, y, **settings, progress=stop, rng=0)
    assert seen == [(i, 600) for i in range(1, 231)]
    assert len(model.members) == 2
    whole = tabular.fit(x, y, **settings, rng=0)
    assert same_bits(whole.members[0], model.members[0])
    assert tabular.predict(model, x).shape == (300, 3)


def test_progress_keeps_boosted_trees_that_are_finished():
    x = np.random.default_rng(0).normal(size=(300, 8))
    y = (x > 0).sum(axis=1)
    settings = FAST | {"steps": 0, "n_projections": 0, "task": "regression"}
    model = tabular.fit(x, y, **settings, progress=lambda done, total: done < 50, rng=0)
    assert model.members[0].boosted is not None
    assert same_bits(model, tabular.fit(x, y, **settings, n_boosted=50, rng=0))


def test_interrupts_come_through():
    def interrupt(done, total):
        raise KeyboardInterrupt

    x, y = table(100)
    with pytest.raises(KeyboardInterrupt):
        tabular.fit(x, y, **FAST, progress=interrupt, rng=0)


@pytest.mark.parametrize("n_threads", [2, 3, 5])
def test_members_side_by_side_are_those_in_turn(threads, n_threads):
    x, y = table(300)
    settings, here = FAST | {"n_members": 3, "validation": 0.0}, threading.current_thread()
    threads(1)
    in_turn = tabular.fit(x, y, **settings, rng=0)
    seen = []
    threads(n_threads)
    before = hforest.get_num_threads()  # 1 in a build without OpenMP
    model = tabular.fit(
        x, y, **settings, progress=lambda d, t: seen.append((d, t, threading.current_thread())), rng=0
    )
    assert hforest.get_num_threads() == before
    assert same_bits(in_turn, model)
    assert [done for done, *_ in seen] == sorted(done for done, *_ in seen)
    assert seen[-1] == (600, 600, here)
    assert {thread for *_, thread in seen} == {here}


def test_progress_ends_members_side_by_side(threads):
    x, y = table(300)
    threads(2)
    settings = FAST | {"n_members": 20, "steps": 5000}
    model = tabular.fit(x, y, **settings, progress=lambda d, t: False, rng=0)
    assert 1 <= len(model.members) <= 3
    assert tabular.predict(model, x).shape == (300, 3)


def test_errors_of_members_side_by_side_come_through(monkeypatch, threads):
    x, y = table(300)
    real, begun = fitting.member_of, []

    def failing(*arguments):
        begun.append(len(begun))
        if len(begun) == 2:
            raise MemoryError("no memory for member 1")
        return real(*arguments)

    monkeypatch.setattr(fitting, "member_of", failing)
    threads(2)
    with pytest.raises(MemoryError, match="member 1"):
        tabular.fit(x, y, **FAST | {"n_members": 20}, rng=0)
    assert len(begun) <= 4


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_small_tables(n, task):
    x = np.arange(2.0 * n).reshape(n, 2)
    y = np.arange(n) if task == "classification" else np.arange(n) / 2
    p = tabular.predict(tabular.fit(x, y, task=task, **FAST, rng=0), x)
    assert len(p) == n
    assert np.isfinite(p).all()
    assert tabular.predict(tabular.fit(x, y, task=task, **FAST, rng=0), x[:0]).shape[0] == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_projections": 0}, None),
        ({"steps": 0}, None),
        ({"average": False}, None),
        ({"share": 0.0}, None),
        ({"share": 0.5, "validation": 0.0}, None),
        ({"scaling": "ranks"}, "scaling: expected one of 'auto', 'deviations', 'normal', got 'ranks'"),
        ({"depth": 30}, "depth: expected n_trees . 2..depth of at most"),
        ({"n_trees": 0}, "n_trees: expected"),
        ({"lr": 0.0}, "lr: expected"),
        ({"share": 1.5}, "share: expected"),
        ({"validation": 0.7}, "validation: expected"),
        ({"validation": (np.zeros((2, 5)), [0, 0])}, "validation.0.: expected the 6 columns of x, got 5"),
        (
            {"validation": (np.zeros((2, 6)), [0, 5])},
            "validation.1.: expected labels of the classes 0, 1, 2, got ",
        ),
        ({"validation": "no"}, "validation: expected a share of the rows or a pair"),
        ({"n_members": 0}, "n_members: expected"),
        ({"sample_weight": -np.ones(60)}, "sample_weight: expected"),
        ({"task": "ranking"}, "task: expected one of"),
        ({"task": "regression", "n_classes": 3}, "n_classes: expected None"),
    ],
)
def test_settings(settings, words):
    x, y = table(60)
    if words is None:
        p = tabular.predict(tabular.fit(x, y, **FAST | settings, rng=0), x)
        assert np.isfinite(p).all()
        return
    with pytest.raises((TypeError, ValueError, IndexError), match=f"^{words}"):
        tabular.fit(x, y, **FAST | settings, rng=0)


def test_parts_predict_as_the_settings_say():
    x, y = table(60)
    model = tabular.fit(x, y, **FAST, share=0.0, rng=0)
    member = model.members[0]
    z = transformed(model.scaling, x)
    z = np.hstack([z, z @ member.grown_kernel])
    np.testing.assert_allclose(tabular.predict(model, x), hforest.tree.predict(member.forest, z), atol=1e-6)


def test_steps_follow_from_the_rows():
    assert fitting.default_steps(100, 64) == fitting.MIN_STEPS
    assert fitting.default_steps(10**6, 64) == fitting.MAX_STEPS
    assert fitting.default_steps(6000, 128) == 15 * 6000 // 128 == 703


def test_batches_take_every_row_once_or_by_weight():
    rng = np.random.default_rng(0)
    rows = recipe.Rows(np.zeros((10, 1), np.float32), np.zeros(10, np.int32), None)
    first, second, *others = training._drawn(rows, 5, 7, rng)
    assert len(others) == 5
    assert sorted([*first, *second]) == list(range(10))
    assert sorted([*others[2], *others[3]]) == list(range(10))
    weighted = training._drawn(rows._replace(weight=np.r_[np.full(9, 1e-9), 1.0]), 5, 1, rng)
    assert (next(weighted) == 9).all()
    drawn = start.drawn(rows._replace(weight=np.r_[np.ones(9), 11.0]), rng)
    assert (drawn == 9).sum() in (5, 6)
    assert (start.drawn(rows, rng) == np.arange(10)).all()


@pytest.mark.parametrize("bad", [np.zeros((3, 5)), np.zeros(6), np.full((2, 6), np.inf), [["a"] * 6]])
def test_samples_that_do_not_fit(bad):
    x, y = table(60)
    model = tabular.fit(x, y, **FAST, rng=0)
    with pytest.raises((TypeError, ValueError), match="^x: expected .*; "):
        tabular.predict(model, bad)


def test_training_that_diverges_is_an_error(monkeypatch):
    x, y = table(100)
    trained = fitting.member_of

    def diverged(*arguments):
        member, going = trained(*arguments)
        return member._replace(weights=member.weights * np.float32(np.inf)), going

    monkeypatch.setattr(fitting, "member_of", diverged)
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="^lr: expected a learning rate with"):
        tabular.fit(x, y, **FAST, rng=0)


# ----------------------------------------------------------------------------------- missing values


def gaps(n=900, share=0.2, seed=0):
    """Returns two classes by a sum of columns, each of which two others predict; some values are missing."""
    rng = np.random.default_rng(seed)
    causes = rng.normal(size=(n, 3))
    x = np.hstack([causes, causes + 0.3 * rng.normal(size=(n, 3)), causes * 50 + 7])
    x[rng.random(x.shape) < share] = np.nan
    return x, (causes.sum(axis=1) > 0).astype(int)


def test_units_are_those_of_the_known_values():
    x, _ = gaps()
    x[:, 0] = np.exp(3 * x[:, 0])
    x = np.hstack([x, np.full((len(x), 1), np.nan)])
    for kind in KINDS:
        scaling = measure(x, kind)
        z = transformed(scaling, x)
        assert (np.isnan(z) == np.isnan(x)).all()
        for j in range(9):
            known = x[~np.isnan(x[:, j]), j : j + 1]
            alone = transformed(measure(known, kind), known)
            np.testing.assert_allclose(z[~np.isnan(x[:, j]), j], alone[:, 0], rtol=1e-5, atol=1e-6)
        assert scaling.low[9] == scaling.high[9] == 0


def test_missing_values_are_predicted_from_other_columns():
    x, _ = gaps()
    scaling = measure(x, "auto")
    z = transformed(scaling, x)
    model = encoding.fit_numbers(z[:600], 0)
    assert (model.imputed == np.arange(9)).all()
    whole = transformed(scaling, gaps(share=0.0)[0])[600:]
    missing = np.isnan(z[600:])
    filled = encoding.filled_in(model, z[600:])
    assert (filled[~missing] == z[600:][~missing]).all()
    by_medians = ((np.where(missing, model.fill, z[600:]) - whole)[missing] ** 2).mean()
    by_rounds = [
        ((encoding.filled_in(model._replace(slopes=model.slopes[:n]), z[600:]) - whole)[missing] ** 2).mean()
        for n in (1, 2)
    ]
    assert by_medians > 0.8
    assert by_rounds[0] < 0.4 * by_medians
    assert by_rounds[1] < 0.9 * by_rounds[0]
    far = np.where(np.eye(9, dtype=bool), np.nan, np.float32(1e6)).astype(np.float32)
    assert (np.diag(encoding.filled_in(model, far)) == model.high).all()


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_tables_with_missing_values_are_learned(task):
    x, y = gaps()
    y = y if task == "classification" else np.nan_to_num(x[:, 0]) + y
    model = tabular.fit(x[:600], y[:600], task=task, **FAST | {"steps": 500}, rng=0)
    assert loss(model, x[600:], y[600:]) / (1 if task == "classification" else y.var()) < 0.15
    more, state = tabular.partial_fit(model, x[600:], y[600:])
    assert int(state.n_steps) == 5
    assert not same_bits(more.members[0].weights, model.members[0].weights)
    assert np.isfinite(tabular.predict(more, np.full((2, 9), np.nan))).all()


def test_a_gap_alone_tells_of_the_class():
    # Only the forest can use it, since it reads NaN; for hinge trees a number replaces NaN.
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2))
    y = (rng.random(600) < 0.5).astype(int)
    x[y == 1, 0] = np.nan
    model = tabular.fit(x[:400], y[:400], **FAST, rng=0)
    assert error(model, x[400:], y[400:]) == 0


def test_tables_without_missing_values_are_fitted_as_before():
    x, y = table(200)
    model = tabular.fit(x, y, **FAST, rng=0)
    assert model.encoding is None
    member = model.members[0]
    assert int(member.forest.n_features) == len(member.kernel) + member.kernel.shape[1]
    # Missing values of other rows are the means of their columns.
    gap, mean = x[:3].copy(), x[:3].copy()
    gap[:, 0], mean[:, 0] = np.nan, x[:, 0].mean()
    np.testing.assert_allclose(tabular.predict(model, gap), tabular.predict(model, mean), atol=1e-4)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[:, :1],
        lambda x: np.where(np.arange(len(x))[:, None] % 50, x, np.nan)[:5],
        lambda x: np.where(np.arange(9) == 2, np.nan, x),
        lambda x: np.full_like(x, np.nan),
        lambda x: np.where(np.isnan(x), np.nan, 3.0),
        lambda x: np.where(np.arange(len(x))[:, None] == 7, np.nan, np.nan_to_num(x)),
    ],
)
def test_gaps_of_any_kind(change):
    x, y = gaps(60)
    x = change(x)
    y = y[: len(x)]
    y[:2] = 0, 1
    model = tabular.fit(x, y, n_classes=2, **FAST, rng=0)
    for rows in (x, np.full((2, x.shape[1]), np.nan), np.zeros((2, x.shape[1]))):
        assert np.isfinite(tabular.predict(model, rows)).all()
    tabular.partial_fit(model, x, y)


def test_rows_of_ones_own_may_have_gaps():
    x, y = gaps(400)
    settings = {"validation": (x[300:], y[300:]), **FAST}
    model = tabular.fit(x[:300], y[:300], **settings, rng=0)
    assert error(model, x[300:], y[300:]) < 0.25
    whole = np.nan_to_num(x[:300])
    assert tabular.fit(whole, y[:300], **settings, rng=0).encoding is None


# ------------------------------------------------------------------------------------- categories


def zones(n=900, seed=0):
    """Returns numbers, 60 zones and 4 kinds, whose effects are unrelated to their codes; all have missing values."""
    rng = np.random.default_rng(seed)
    effect, zone, kind = rng.normal(size=60), rng.integers(0, 60, n), rng.integers(0, 4, n)
    x = np.column_stack([rng.normal(size=n), 7 * zone, rng.normal(size=n), kind])
    score = x[:, 0] + 3 * effect[zone] + np.array([1, -1, 1, -1])[kind]
    x[rng.random(x.shape) < 0.05] = np.nan
    return x, score


@pytest.mark.parametrize("task", ["classification", "several classes", "regression", "two targets"])
def test_categories_are_learned(task):
    x, score = zones()
    y = score
    if task in ("classification", "several classes"):
        y = np.digitize(score, [0.0] if task == "classification" else [-2.0, 0.0, 2.0])
    if task == "two targets":
        y = np.column_stack([score, -score])
    words = "classification" if y.dtype.kind == "i" else "regression"
    wrong = []
    for categorical in (None, [1, 3]):
        model = tabular.fit(x[:600], y[:600], task=words, categorical=categorical, **FAST, rng=0)
        wrong.append(loss(model, x[600:], y[600:]))
    assert wrong[1] < 0.75 * wrong[0]
    more, state = tabular.partial_fit(model, x[600:], y[600:])
    assert int(state.n_steps) == 5
    assert not same_bits(more.members[0].weights, model.members[0].weights)


def test_categories_are_names():
    """Other codes in the same order are the same categories, also if missing numbers are filled in."""
    x, score = zones(300)
    other = np.column_stack([x[:, 0], x[:, 1] ** 2 / 7, x[:, 2:]])
    a, b = (tabular.fit(rows, score > 0, categorical=[1, 3], **FAST, rng=0) for rows in (x, other))
    assert np.isnan(x[:, [0, 2]]).any()
    assert tabular.predict(a, x).tobytes() == tabular.predict(b, other).tobytes()


def test_statistics_are_smoothed_means():
    place = np.array([0, 0, 1, 1, 1, 2])
    y, weight = np.array([[1.0], [1], [0], [0], [1], [1]]), np.array([1.0, 1, 1, 1, 2, 2])
    mean = 6 / 8
    expected = [
        (n * own + 10 * mean) / (n + 10) - mean for n, own in ((2, 1.0), (4, 0.5), (2, 1.0), (0, 0.0))
    ]
    np.testing.assert_allclose(levels._statistics(place, 4, y, weight)[:, 0], expected)


def test_statistics_at_training_rows_do_not_know_their_targets():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 400, (1000, 1)).astype(float), rng.normal(size=(1000, 1)).astype(np.float32)
    rows = recipe.Rows(x.astype(np.float32), y, None)
    found, at_rows = levels.fit_levels(rows, x, np.array([True]), "regression", 1, 0)
    later = levels.codes_of(found, x)
    assert abs(np.corrcoef(at_rows[:, 0], y[:, 0])[0, 1]) < 0.15
    assert np.corrcoef(later[:, 0], y[:, 0])[0, 1] > 0.5
    np.testing.assert_allclose(at_rows.std(), 1, rtol=1e-5)


def test_codes_of_categories():
    x = np.array([[3.0], [3], [9], [9], [9], [65535], [np.nan], [3], [9], [65535]])
    y = np.arange(10, dtype=np.float32)[:, None]
    rows = recipe.Rows(x.astype(np.float32), y, None)
    found, at_rows = levels.fit_levels(rows, x, np.array([True]), "regression", 1, 0)
    assert found.levels.tolist() == [-1, 3, 9, 65535]
    assert found.widths.tolist() == [1 + 4]
    codes = levels.codes_of(found, np.array([[3.0], [9], [65535], [np.nan], [4], [-1], [1e300], [9.5]]))
    assert (codes[3:] == codes[3]).all()
    indicators = codes[[3, 0, 1, 2], 1:]
    assert (indicators.argmax(axis=1) == np.arange(4)).all()
    assert (at_rows[:, 1:] == levels.codes_of(found, x)[:, 1:]).all()
    np.testing.assert_allclose(at_rows[:, 1:].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(at_rows[:, 1:].std(axis=0), 1, rtol=1e-5)
    # One of two categories has no indicator: the statistic has the same information.
    two = levels.fit_levels(rows, np.where(x == 3, 3.0, 9.0), np.array([True]), "regression", 1, 0)[0]
    assert two.widths.tolist() == [1]
    many = levels.fit_levels(
        rows._replace(x=x), x + np.arange(10)[:, None] * 20, np.array([True]), "regression", 1, 0
    )
    assert many[0].widths.tolist() == [1 + 10]


def test_a_mask_and_numbers_of_columns_are_the_same():
    x, score = zones(100)
    y = (score > 0).astype(int)
    by_numbers, by_mask = (
        tabular.fit(x, y, categorical=c, **FAST, rng=0) for c in ([3, 1], [False, True, False, True])
    )
    assert same_bits(by_numbers, by_mask)
    assert tabular.fit(np.nan_to_num(x), y, categorical=[], **FAST, rng=0).encoding is None
    for c, kind, words in (
        ([4], IndexError, "categorical: expected"),
        ([True], ValueError, "categorical: expected a boolean mask of length n_features = 4"),
        ("zone", TypeError, "categorical: expected"),
        ([0], ValueError, "x: expected whole numbers 0 to 65535 or NaN"),
    ):
        with pytest.raises(kind, match=f"^{words}"):
            tabular.fit(x, y, categorical=c, **FAST, rng=0)


@pytest.mark.parametrize("n", [1, 2, 5, 40])
@pytest.mark.parametrize("n_projections", [0, 30])
def test_small_tables_of_categories(n, n_projections):
    x, score = zones(40)
    x, y = x[:n, 1:2] if n_projections else x[:n], (score[:n] > 0).astype(int)
    settings = FAST | {"n_projections": n_projections, "categorical": [0] if n_projections else [1, 3]}
    model = tabular.fit(x, y, n_classes=2, sample_weight=np.arange(n) + 1.0, **settings, rng=0)
    for rows in (x, x[:0], np.full((3, x.shape[1]), np.nan), np.full((3, x.shape[1]), 1e308)):
        assert np.isfinite(tabular.predict(model, rows)).all()
    tabular.partial_fit(model, x, y)


# -------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_files_keep_every_bit(task, tmp_path):
    x, y = table(100)
    model = tabular.fit(x, y, task=task, **FAST | {"n_members": 2}, rng=0)
    tabular.save(tmp_path / "m.npz", model)
    back = tabular.load(tmp_path / "m.npz")
    assert same_bits(model, back)
    assert (tabular.predict(back, x) == tabular.predict(model, x)).all()


CHANGES = [
    ("fill", lambda a: a * np.nan, "encoding.fill: expected finite"),
    ("low", lambda a: a + 99, "encoding.low: expected minima"),
    ("imputed", lambda a: a[::-1].copy(), "encoding.imputed: expected"),
    ("imputed", lambda a: a + 3, "encoding.imputed: expected 0 <= row"),
    ("predictors", lambda a: a + 9, "encoding.predictors: expected 0 <= index"),
    ("predictors", lambda a: a[:, 1:], "encoding.slopes: expected"),
    ("slopes", lambda a: a[:, :1], "encoding.slopes: expected"),
    ("slopes", lambda a: a + np.inf, "encoding.slopes: expected finite"),
    ("slopes", None, "a file without the array 'encoding/slopes'"),
    ("fill", None, "kernel: expected shape"),
    ("levels/categorical", lambda a: ~a, "encoding.levels.start: expected"),
    ("levels/widths", lambda a: a * 0, "encoding.levels.widths: expected"),
    ("levels/widths", lambda a: a + 1, "encoding.levels.widths: expected"),
    ("levels/widths", lambda a: a * 2**60, "encoding.levels.widths: expected"),
    ("levels/start", lambda a: a - 1, "encoding.levels.start: expected"),
    ("levels/start", lambda a: a[::-1].copy(), "encoding.levels.start: expected"),
    ("levels/levels", lambda a: a * 0, "encoding.levels.levels: expected"),
    ("levels/levels", lambda a: a + 1, "encoding.levels.levels: expected"),
    ("levels/codes", lambda a: a[1:], "encoding.levels.codes: expected"),
    ("levels/codes", lambda a: a * np.nan, "encoding.levels.codes: expected finite"),
    ("levels/codes", None, "a file without the array 'encoding/levels/codes'"),
    ("levels/categorical", None, "features"),
]


@functools.cache
def model_of_gaps():
    """Returns a model of 100 rows with missing values and categories, which no test changes."""
    x, score = zones(100)
    x[::9, ::2] = np.nan
    return tabular.fit(x, score > 0, categorical=[1, 3], validation=0.0, **FAST, rng=0)


@pytest.mark.parametrize(("name", "change", "words"), CHANGES)
def test_changed_files_of_models_of_gaps_are_refused(name, change, words, tmp_path):
    path = tmp_path / "m.npz"
    tabular.save(path, model_of_gaps())
    assert same_bits(tabular.load(path), model_of_gaps())
    check_changed(path, tabular.load, {f"encoding/{name}": change}, words)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("members/0/features", lambda a: a + 99, "0 <= index < n_features \\+ n_projections"),
        ("members/0/weights", lambda a: a * np.nan, "members.0..weights: expected finite"),
        ("members/0/share", lambda a: a + 2, "share"),
        ("members/0/forest/left", lambda a: a * 0, "forest"),
        ("scaling/scale", lambda a: -a, "deviations above 0"),
        ("scaling/start", lambda a: a[::-1].copy(), "scaling.start"),
        ("scaling/knots", lambda a: a * 0, "ascend"),
        ("tabular_format", lambda a: a + 1, "in format 1 to "),
        ("n_members", lambda a: a * 0, "n_members"),
        ("task", lambda a: np.array("ranking"), "task"),
        ("target_scale", lambda a: a[:1], "target_scale"),
        ("task", None, "a file without the array 'task'"),
    ],
)
def test_changed_files_are_refused(name, change, words, tmp_path):
    path = tmp_path / "m.npz"
    tabular.save(path, small_model())
    check_changed(
        path, tabular.load, {name: change}, f"expected a model of a table that save wrote, .*{words}"
    )


def test_models_that_contradict_themselves_are_refused():
    x, y = table(60)
    model = tabular.fit(x, y, **FAST, rng=0)
    large = model.members[0]._replace(kernel=np.full_like(model.members[0].kernel, 3e38))
    far, tiny = np.full_like(model.scaling.scores, 1e308), np.full_like(model.scaling.scale, 1e-320)
    for broken, words in (
        (model._replace(members=()), "model.members: expected at least one"),
        (model._replace(members=3), "model.members: expected a tuple"),
        (model._replace(task="x"), "model.task"),
        (model._replace(scaling=None), "model.scaling: expected a Scaling"),
        (model._replace(members=(None,)), "model.members.0.: expected a Member"),
        (tuple(model), "model: expected a Model"),
        (model._replace(members=(large,)), "model: expected inner products"),
        (model._replace(scaling=model.scaling._replace(scores=far)), "model.scaling: expected d"),
        (model._replace(scaling=model.scaling._replace(scale=tiny)), "model.scaling: expected d"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^{words}"):
            tabular.predict(broken, x)


def test_levels_of_another_kind_are_refused():
    model = model_of_gaps()
    for other in (tuple(model.encoding.levels), model.scaling):
        broken = model._replace(encoding=model.encoding._replace(levels=other))
        kind = type(other).__name__
        with pytest.raises(TypeError, match=rf"^model\.encoding\.levels: expected Levels, got {kind}; pass"):
            tabular.predict(broken, np.zeros((2, 4)))


# ---------------------------------------------------------------------------------------- later rows


def flat(a):
    """Yields all arrays of nested tuples."""
    return [b for part in a for b in flat(part)] if isinstance(a, tuple) else [np.asarray(a)]


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("weighted", [False, True])
def test_steps_in_parts_are_those_of_one_call(task, weighted):
    x, y = table() if task == "classification" else target()
    model = tabular.fit(x[:200], y[:200], task=task, validation=0.0, **FAST | {"n_members": 2}, rng=0)
    before = [a.tobytes() for a in flat(model)]
    weight = np.random.default_rng(0).uniform(0.5, 2, 600) if weighted else None

    def fitted(rows, model, state=None):
        of_rows = None if weight is None else weight[rows]
        return tabular.partial_fit(model, x[rows], y[rows], state=state, sample_weight=of_rows, batch_size=20)

    # Rows that a step does not read catch up later, at the rate of that time, which is constant after 50 steps.
    begun = tabular.partial_fit(model, x[:200], y[:200], batch_size=4)
    whole = fitted(slice(200, 600), *begun)
    assert int(whole[1].n_steps) == 70
    parts = fitted(slice(340, 600), *fitted(slice(200, 340), *begun))
    for a, b in zip(flat(whole), flat(parts), strict=True):
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-5)
    assert before == [a.tobytes() for a in flat(model)]
    kept = np.arange(200, 600) % 3 > 0
    some = tabular.partial_fit(model, x[200:], y[200:], sample_weight=kept.astype(float))[0]
    alone = tabular.partial_fit(model, x[200:][kept], y[200:][kept])[0]
    assert [a.tobytes() for a in flat(some)] == [a.tobytes() for a in flat(alone)]


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_later_rows_are_learned(task):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(5000, 4))
    y = x[:, 0] * x[:, 1]
    y = (y > 0).astype(int) if task == "classification" else y
    model = tabular.fit(x[:300], y[:300], task=task, validation=0.0, share=1.0, **FAST, rng=0)
    start, state = loss(model, x[4000:], y[4000:]), None
    for first in range(300, 4000, 370):
        part = slice(first, first + 370)
        model, state = tabular.partial_fit(model, x[part], y[part], state=state)
    assert loss(model, x[4000:], y[4000:]) < 0.75 * start
    assert int(state.n_steps) == 10 * 6


def test_a_class_that_the_first_rows_lack():
    x, y = table()
    first = y[:200] < 2
    model = tabular.fit(x[:200][first], y[:200][first], n_classes=3, validation=0.0, share=1.0, **FAST, rng=0)
    state = None
    for _ in range(60):
        model, state = tabular.partial_fit(model, x[200:500], y[200:500], state=state)
    assert error(model, x[500:], y[500:]) < 0.35
    assert (tabular.predict(model, x[500:]).argmax(axis=1) == 2).any()


def wrong_moments(**arrays):
    def change(state):
        first = state.moments[0]
        trees = {name: a for name, a in arrays.items() if name in first.trees._fields}
        own = {name: a for name, a in arrays.items() if name not in trees}
        return state._replace(moments=(first._replace(trees=first.trees._replace(**trees), **own),))

    return change


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"x": np.zeros((3, 5))}, ValueError, "x: expected the 6 columns"),
        ({"y": [0, 1, 3]}, IndexError, "y: expected"),
        ({"sample_weight": [0, 0, 0]}, ValueError, "sample_weight: expected at least one weight above 0"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"lr": 2.0}, ValueError, "lr"),
        ({"state": 3}, TypeError, "state: expected a TrainingState, got int; pass"),
        ({"state": lambda s: s._replace(moments=())}, ValueError, "state.moments: expected one item per member, 1 in all"),
        ({"state": lambda s: s._replace(moments=(3,))}, TypeError, r"state.moments\[0\]: expected Moments"),
        ({"state": lambda s: s._replace(n_steps=np.array(-1))}, ValueError, "state.n_steps"),
        ({"state": lambda s: s._replace(moments=(s.moments[0]._replace(trees=()),))}, TypeError, "an AdamState, got tuple"),
        ({"state": wrong_moments(kernel_m=np.zeros((6, 3), np.float32))}, ValueError, r"state.moments\[0\].kernel_m"),
        ({"state": wrong_moments(features_m=7)}, TypeError, r"state.moments\[0\].trees: expected None"),
        ({"state": wrong_moments(weights_v=np.zeros((20, 16, 3)))}, TypeError, r"state.moments\[0\].weights_v"),
        ({"state": wrong_moments(weights_last=np.full((20, 16), 99))}, ValueError, "weights_last: expected steps from 0"),
    ],
)  # fmt: skip
def test_wrong_arguments_of_later_rows(settings, error, words):
    x, y = table(100)
    model = small_model()
    _, state = tabular.partial_fit(model, x[:3], y[:3])
    call = {"x": x[:3], "y": y[:3], "state": state, **settings}
    if not isinstance(call["state"], int):
        call["state"] = call["state"](state) if callable(call["state"]) else state
    with pytest.raises(error, match=words):
        tabular.partial_fit(model, call.pop("x"), call.pop("y"), **call)


def test_steps_on_a_gpu_are_refused(monkeypatch):
    cupy = types.ModuleType("cupy")
    cupy.ndarray = type("ndarray", (np.ndarray,), {"data": types.SimpleNamespace(device_id=0)})
    cupy.cuda = types.SimpleNamespace(runtime=types.SimpleNamespace(getDevice=lambda: 0))
    x, y = table(100)
    model, state = tabular.partial_fit(small_model(), x[:3], y[:3])
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    there = state._replace(n_steps=state.n_steps.view(cupy.ndarray))
    with pytest.raises(
        TypeError, match=r"^state\.n_steps: expected a numpy\.ndarray, got a CuPy array; .*asnumpy"
    ):
        tabular.partial_fit(model, x[:3], y[:3], state=there)


def test_a_fit_does_not_depend_on_the_threads_of_blas():
    threadpoolctl = pytest.importorskip("threadpoolctl")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 20))
    y = x[:, 0] + x[:, 1] * x[:, 2] > 0
    x[rng.random(x.shape) < 0.05] = np.nan  # which regressions on other columns fill in
    models, predictions = [], []
    for n in (1, 2):
        with threadpoolctl.threadpool_limits(limits=n, user_api="blas"):
            models.append(tabular.fit(x, y, n_members=1, n_trees=5, steps=20, validation=0.0, rng=0))
            predictions.append(tabular.predict(models[0], x))
    np.testing.assert_array_equal(*predictions)
    assert same_bits(models[0].members[0][:5], models[1].members[0][:5])
