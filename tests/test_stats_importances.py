"""Importances of features from out-of-bag rows, and their tests by permuted copies."""

import itertools
import json

import numpy as np
import pytest
import scipy.stats
from conftest import assert_same_bits
from test_stats import GROWERS, N, rows, size

import hforest
from hforest import growth, stats, tree
from hforest.core import check, draws, supervised
from hforest.stats import permutation

# ---------------------------------------------------------------------------- sizes of tests


@pytest.mark.slow
@pytest.mark.parametrize("by", ["mdi_oob", "ufi"])
@pytest.mark.parametrize("grow", ["best", "oblique"])
def test_importance_tests_hold_their_level(by, grow):
    """Features have 2 or many values, beside an informative one; adjusted p-values are for all features together."""
    single = []

    def least(seed):
        rng = np.random.default_rng(seed)
        x = np.column_stack([rng.integers(0, 2, 60), rng.normal(size=(60, 2))])
        y = ((x[:, 2] > 0) ^ (rng.random(60) < 0.2)).astype(int)
        settings = {"by": by, "n_trees": 20, "n_copies": 59, "grow": GROWERS[grow], "rng": seed}
        test = stats.importance_test(x, y, **settings)
        single.append(test.p_value[:2])
        return test.adjusted[:2].min()

    assert size(least) <= 20
    assert ((np.array(single) <= 0.05).sum(axis=0) <= 20).all()


@pytest.mark.slow
@pytest.mark.parametrize("by", ["mdi_oob", "error"])
def test_importance_tests_of_sets_hold_their_level(by):
    """Three sets carry no information, and two of them share a column; another column is informative."""
    single = []

    def least(seed):
        rng = np.random.default_rng(seed)
        x = np.column_stack([rng.integers(0, 2, 60), rng.normal(size=(60, 5))])
        x[:, 2] += x[:, 1]
        y = ((x[:, 5] > 0) ^ (rng.random(60) < 0.2)).astype(int)
        settings = {"by": by, "n_trees": 20, "n_copies": 59, "rng": seed}
        test = stats.importance_test(x, y, columns=[[0, 1, 2], [3, 4], [3, 0, 1, 2]], **settings)
        single.append(test.p_value)
        return test.adjusted.min()

    assert size(least) <= 20
    assert ((np.array(single) <= 0.05).sum(axis=0) <= 20).all()


def test_the_bench_of_importances(script, monkeypatch, capsys):
    bench = script("stats")
    monkeypatch.setattr("sys.argv", ["stats.py", "--importances", "--sets", "3"])
    bench.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 2 * 3 * 4
    assert {line.count("|") for line in lines} == {4 + len(bench.CATEGORIES)}
    assert "nan" not in "".join(lines)


def test_the_bench_has_mdi_oob_as_published(script):
    """Li et al. 2019: the mean over out-of-bag rows of y times the changes of predictions by splits on the path."""
    bench = script("stats")
    x, y = rows(50, n_classes=3)
    counts = growth.bootstrap_counts(50, 4, rng=0)
    forest = hforest.grow(x, y, 4, bootstrap=counts, rng=0)
    goal = supervised.target(y, 50, "classification", 3)
    got = bench.importance_of(forest, tree.apply(forest, x), goal, counts, bench.as_published).mean
    want, values = np.zeros(4), np.eye(3)[y]
    for m in range(4):
        paths = [tree.path(forest, row, m) for row in x]
        in_bag = np.flatnonzero(counts[m])
        mean = {
            v: np.average(values[[i for i in in_bag if v in paths[i]]], axis=0,
                          weights=[counts[m, i] for i in in_bag if v in paths[i]])
            for v in {int(v) for path in paths for v in path}
        }  # fmt: skip
        oob = np.flatnonzero(counts[m] == 0)
        for i in oob:
            for above, below in itertools.pairwise(paths[i]):
                step = mean[int(below)] - mean[int(above)]
                want[forest.feature[forest.tree_start[m] + above]] += step @ values[i] / len(oob) / 4
    np.testing.assert_allclose(got, want)


# ------------------------------------------------------------------------------- importances


def reference_importance(forest, x, values, counts, by):
    """Returns importances, computed split by split and row by row."""
    total = np.zeros((len(counts), x.shape[1]))
    for m in range(len(counts)):
        first, stop = forest.tree_start[m : m + 2]
        below = {v: [] for v in range(stop - first)}
        for i in range(len(x)):
            for v in tree.path(forest, x[i], m):
                below[int(v)].append(i)
        oob = np.flatnonzero(counts[m] == 0)
        n_in = counts[m].sum()

        def parts(v, below=below, m=m):
            often = counts[m, below[v]]
            inside, outside = np.repeat(below[v], often), np.array(below[v])[often == 0]
            return values[inside].mean(axis=0), inside, outside

        def impurity(v, parts=parts, n_in=n_in):
            mean, inside, outside = parts(v)
            distances = [((values[rows] - mean) ** 2).sum(axis=1).mean() for rows in (inside, outside)]
            return len(inside) / n_in * sum(distances) / 2

        for v in range(stop - first):
            at = first + v
            if forest.feature[at] == -1:
                continue
            left = int(forest.left[at])
            if by == "mdi_oob":
                (a, _, of_a), (b, _, of_b) = parts(left), parts(left + 1)
                if not len(of_a) or not len(of_b):
                    continue
                # As in Li et al. 2019, the mean of the node is weighted by the out-of-bag rows of its sides.
                node = (len(of_a) * a + len(of_b) * b) / (len(of_a) + len(of_b))
                both = [*of_a, *of_b]
                products = [m @ values[i].sum(axis=0) for m, i in ((a, of_a), (b, of_b), (node, both))]
                gain = (products[0] + products[1] - products[2]) / len(oob)
            elif all(len(parts(u)[2]) for u in (left, left + 1)):
                gain = impurity(v) - impurity(left) - impurity(left + 1)
            else:
                continue
            features = [forest.feature[at]]
            if features == [-2]:
                features = forest.indices[forest.indptr[at] : forest.indptr[at + 1]]
            for f in features:
                total[m, f] += gain / len(features)
    return total.mean(axis=0), total.std(axis=0, ddof=1) / np.sqrt(len(counts))


@pytest.mark.parametrize("by", ["mdi_oob", "ufi"])
@pytest.mark.parametrize("kind", ["best", "oblique", "regression"])
def test_importances_are_those_of_loops(kind, by):
    x, y = rows(50, n_classes=3)
    counts = growth.bootstrap_counts(50, 4, rng=0)
    if kind == "regression":
        y = x[:, :2] + 100
        forest = hforest.grow(x, y, 4, bootstrap=counts, task="regression", rng=0)
        got = stats.oob_importance(forest, x, y, counts, by=by, task="regression")
        want = reference_importance(forest, x, y - y.mean(axis=0), counts, by)
    else:
        forest = GROWERS[kind](x, y, n_trees=4, bootstrap=counts, rng=0)
        got = stats.oob_importance(forest, x, y, counts, by=by)
        want = reference_importance(forest, x, np.eye(3)[y], counts, by)
    for one, two in zip(got, want, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-8)


def test_importances_of_classes_by_their_shares():
    """For labels, H of Zhou and Hooker is one minus the product of in-bag and out-of-bag shares."""
    x = np.array([[0.0], [0.0], [1.0], [1.0], [0.0], [1.0], [1.0], [1.0]])
    y = np.array([0, 0, 1, 1, 0, 1, 0, 1])
    counts = np.array([[1, 1, 1, 1, 0, 0, 0, 0]])
    forest = hforest.grow(x, y, 1, bootstrap=counts, rng=0)
    root = 1 - (0.5 * 0.5 + 0.5 * 0.5)
    left, right = 1 - 1, 1 - 2 / 3
    ufi = stats.oob_importance(forest, x, y, counts, by="ufi")
    assert ufi.mean[0] == pytest.approx(root - left / 2 - right / 2)
    assert np.isnan(ufi.error[0])  # of one tree
    # Three of four rows are on the right; means are (0, 1) and (1/3, 2/3), those in-bag (1, 0) and (0, 1).
    weight, product = 1 * 3 / 4 / 4, (1 - 0) * (1 - 1 / 3) + (0 - 1) * (0 - 2 / 3)
    assert stats.oob_importance(forest, x, y, counts).mean[0] == pytest.approx(weight * product)


@pytest.mark.parametrize("by", ["mdi_oob", "ufi"])
@pytest.mark.parametrize("signal", [False, True])
def test_features_that_tell_nothing_have_no_importance(by, signal):
    """Features have 2 to 1,000 categories, with and without an informative one; errors grow with the categories."""
    rng = np.random.default_rng(0)
    got, by_gain = [], []
    for seed in range(60):
        x = np.column_stack([rng.integers(0, k, 200) for k in (2, 10, 1000)] + [rng.normal(size=200)])
        y = (x[:, 3] > 0) ^ (rng.random(200) < 0.25) if signal else rng.integers(0, 2, 200)
        counts = growth.bootstrap_counts(200, 30, rng=seed)
        forest = hforest.grow(x, y, 30, bootstrap=counts, rng=seed)
        got.append(stats.oob_importance(forest, x, y, counts, by=by))
        by_gain.append(tree.importance(forest, by="gain"))
    assert (np.mean(by_gain, axis=0)[2] > 4 * np.mean(by_gain, axis=0)[0]).all()
    mean, error = np.stack(got, axis=1)[:, :, :3]
    deviation = mean.std(axis=0, ddof=1)
    assert (abs(mean.mean(axis=0)) < 3 * deviation / np.sqrt(60)).all()
    assert 2 < error[:, 2].mean() / error[:, 0].mean() < 4
    spread = (mean / error).std(axis=0)
    assert spread.max() < 1.7 * spread.min()


def check_copies(test, number, x, y, columns, n_copies, *, n_trees, by, grow=hforest.grow):
    """Checks the importances of a set of columns, which are tested as number `number`.

    Copies are the permuted columns; their forest has its own seed, and importances of a set are sums.
    """
    of = draws.seed_of(supervised.check.seed(0), number)
    order = np.argsort(draws.of_trees(of, 0, n_copies, len(x)), axis=1, kind="stable")
    place = draws.permutation(of, 0, n_copies)[0]
    order[place] = np.arange(len(x))
    wide = np.hstack([np.delete(x, columns, axis=1), *(x[rows][:, columns] for rows in order)])
    counts = growth.bootstrap_counts(len(x), n_trees, rng=of)
    forest = grow(wide, y, n_trees=n_trees, bootstrap=counts, rng=of)
    mean = stats.oob_importance(forest, wide, y, counts, by=by).mean[x.shape[1] - len(columns) :]
    mean = mean.reshape(n_copies, len(columns)).sum(axis=1)
    assert test.importance[number] == mean[place]
    np.testing.assert_array_equal(np.sort(test.null[number]), np.sort(np.delete(mean, place)))


@pytest.mark.parametrize("by", ["mdi_oob", "ufi"])
def test_importances_beside_permuted_copies(by):
    x, y = rows(100, d=3)
    seen = []
    settings = {"by": by, "n_trees": 40, "rng": 0}
    test = stats.importance_test(x, y, progress=lambda *done: seen.append(done), **settings)
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert test.null.shape == (3, 99)
    assert test.p_value[0] == 0.01
    assert (test.p_value[1:] > 0.05).all()
    assert test.adjusted[0] == pytest.approx(0.03)
    want = (1 + (test.null >= test.importance[:, None]).sum(axis=1)) / 100
    np.testing.assert_array_equal(test.p_value, want)
    one = stats.importance_test(x, y, columns=[1], **settings)
    assert_same_bits([one.p_value, one.adjusted, one.null], [want[1:2], want[1:2], test.null[1:2]])
    part = stats.importance_test(x, y, progress=lambda done, total: False, **settings)
    assert_same_bits([part.p_value, part.adjusted], [want[:1], 3 * want[:1]])
    for wrong in ([[0, 3]], [[0], []], [0.5]):
        with pytest.raises((IndexError, ValueError, TypeError), match=r"^columns(\[\d\])?: expected"):
            stats.importance_test(x, y, columns=wrong, **settings)
    check_copies(test, 1, x, y, [1], 100, n_trees=40, by=by)


@pytest.mark.parametrize("by", ["mdi_oob", "error"])
def test_many_features_are_screened_on_other_rows(by):
    x, y = rows(120, d=30)
    seen = []
    settings = {"by": by, "n_trees": 60, "rng": 0}
    test = stats.importance_test(x, y, screen=4, progress=lambda *done: seen.append(done), **settings)
    tested = np.flatnonzero(~np.isnan(test.importance))
    assert len(tested) == 4
    assert 0 in tested
    assert seen[-1] == (4, 4)
    assert (test.p_value[np.isnan(test.importance)] == 1).all()
    assert (test.adjusted[np.isnan(test.importance)] == 1).all()
    assert np.isnan(test.null[np.isnan(test.importance)]).all()
    assert test.adjusted[0] == min(4 * test.p_value[0], 1) == 0.04
    # The rows for screening do not change the p-values of the others.
    _, second = permutation.split_rows(y.astype(int), len(y), 0.5, draws.seed_of(check.seed(0), 1))
    same = stats.importance_test(x[second], y[second], columns=tested, **settings)
    assert_same_bits(same, [a[tested] for a in test])
    part = stats.importance_test(x, y, screen=4, progress=lambda done, total: False, **settings)
    if by == "mdi_oob":
        assert (~np.isnan(part.importance)).sum() == 1
    for wrong in (0, 31):
        with pytest.raises(ValueError, match="^screen: expected"):
            stats.importance_test(x, y, screen=wrong, **settings)
    with pytest.raises(ValueError, match="^y: expected classes with at least 1 row"):
        stats.importance_test(x[:4], [0, 1, 1, 1], screen=2)


def test_adjusted_p_values_are_those_of_scipy():
    x, y = rows(60, d=12)
    settings = {"n_trees": 30, "n_copies": 99, "rng": 0}
    of = {word: stats.importance_test(x, y, adjust=word, **settings) for word in ("holm", "bh", "by")}
    p = of["holm"].p_value
    for word in ("bh", "by"):
        want = scipy.stats.false_discovery_control(p, method=word)
        np.testing.assert_allclose(of[word].adjusted, want, rtol=1e-12)
        assert_same_bits([of[word].p_value], [p])
    assert (of["bh"].adjusted <= of["holm"].adjusted).all()
    with pytest.raises(ValueError, match="^adjust: expected"):
        stats.importance_test(x, y, adjust="min", **settings)


def maxima(x, y, sets, n_draws, n_trees):
    """Returns importances, those of permutations, and step-down p-values, permutation by permutation."""
    seed, n = supervised.check.seed(0), len(x)

    def importances(b):
        labels = y[draws.permutation(seed, b, n)] if b else y
        of = draws.seed_of(seed, b)
        counts = growth.bootstrap_counts(n, n_trees, rng=of)
        forest = hforest.grow(x, labels, n_trees, bootstrap=counts, n_classes=2, rng=of)
        mean = stats.oob_importance(forest, x, labels, counts).mean
        return np.array([sum(mean[j] for j in some) for some in sets])

    square = np.mean([importances(b) ** 2 for b in range(1, 21)], axis=0)
    scale = np.sqrt((square + square.mean()) / 2)
    observed, null = importances(0), []
    order = sorted(range(len(sets)), key=lambda j: -observed[j] / scale[j])
    p = np.zeros(len(sets))
    for b in range(n_draws):
        null.append(importances(21 + b))
        for k, j in enumerate(order):
            exceed = sum((a / scale)[order[k:]].max() >= observed[j] / scale[j] for a in null)
            if exceed == 10 and p[j] == 0:
                p[j] = 10 / len(null)
            elif exceed < 10 and b == n_draws - 1:
                p[j] = (1 + exceed) / (1 + n_draws)
        if p[order[0]] > 0:
            break
    for above, j in itertools.pairwise(order):
        p[j] = max(p[j], p[above])
    return observed, np.transpose(null), p


@pytest.mark.parametrize("effect", [0.0, 1.0])
def test_maxima_of_permuted_labels(effect):
    rng = np.random.default_rng(3)
    y = np.arange(60) % 2
    x = rng.normal(size=(60, 6))
    x[:, 0] += 2 * effect * y
    seen, sets = [], [[0], [1, 2], [3], [5, 4]]
    settings = {"columns": sets, "adjust": "max", "n_trees": 20, "n_copies": 39, "rng": 0}
    test = stats.importance_test(x, y, progress=lambda *done: seen.append(done), **settings)
    observed, null, adjusted = maxima(x, y, sets, 39, 20)
    assert_same_bits([test.importance, test.null], [observed, null])
    np.testing.assert_allclose(test.adjusted, adjusted)
    want = (1 + (null >= observed[:, None]).sum(axis=1)) / (1 + null.shape[1])
    np.testing.assert_allclose(test.p_value, want)
    if effect:
        assert seen == [(done, 59) for done in range(1, 60)]
        assert test.adjusted[0] == 0.025
        assert (test.adjusted[1:] > 0.05).all()
    else:
        assert null.shape[1] < 39  # the permutations ended
        assert test.adjusted.min() > 0.2
    part = stats.importance_test(x, y, progress=lambda done, total: done < 22, **settings)
    assert_same_bits([part.null], [null[:, :2]])
    part = stats.importance_test(x, y, progress=lambda done, total: False, **settings)
    assert part.null.shape == (4, 0)
    assert (part.adjusted == 1).all()
    with pytest.raises(ValueError, match="^by: expected"):
        stats.importance_test(x, y, adjust="max", by="error")
    with pytest.raises(ValueError, match="^groups: expected one label.*; pass adjust="):
        stats.importance_test(x, y, adjust="max", groups=np.arange(60) // 4)


@pytest.mark.slow
def test_maxima_hold_their_level():
    """Columns depend on each other, and have 2 or many values; labels depend on none."""

    def least(seed):
        rng = np.random.default_rng(seed)
        x = np.column_stack([rng.normal(size=(40, 6)), rng.integers(0, 2, 40)])
        x[:, 1:4] += x[:, :1]
        y = rng.integers(0, 2, 40)
        settings = {"adjust": "max", "n_trees": 20, "n_copies": 39, "rng": seed}
        return stats.importance_test(x, y, **settings).adjusted.min()

    assert size(least) <= 20


@pytest.mark.parametrize("grow", ["best", "oblique"])
def test_importances_of_sets_of_features(grow):
    """The copies of a set are permuted together, and importances are sums; sets may overlap."""
    x, y = rows(100, d=4)
    settings = {"n_trees": 30, "n_copies": 19, "grow": GROWERS[grow], "rng": 0}
    test = stats.importance_test(x, y, columns=[[3, 0], range(1, 3), [2]], **settings)
    assert test.null.shape == (3, 19)
    assert test.p_value[0] == 0.05
    assert (test.p_value[1:] > 0.05).all()
    np.testing.assert_allclose(test.adjusted[0], 0.15)
    check_copies(test, 0, x, y, [0, 3], 20, n_trees=30, by="mdi_oob", grow=GROWERS[grow])


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_importances_by_the_error_of_one_forest(task):
    """It is grown once on half of the rows; the others are predicted with permuted rows of a set."""
    x, y = rows(100, d=4)
    if task == "regression":
        y = np.stack([x[:, 0], x[:, 0] ** 2], axis=1)
    grown_on, seen = [], []

    def grow(x, y, **settings):
        grown_on.append((x.numbers, hforest.grow(x, y, **settings)))
        return grown_on[-1][1]

    settings = {"by": "error", "task": task, "grow": grow, "n_trees": 20, "n_copies": 39, "rng": 0}
    sets = [[0, 1], [2, 3], [1, 0]]
    test = stats.importance_test(x, y, columns=sets, progress=lambda *done: seen.append(done), **settings)
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert len(grown_on) == 1
    half, forest = grown_on[0]
    inside = (x[:, None] == half).all(axis=2).any(axis=1)
    others, actual = x[~inside], np.eye(2)[y[~inside]] if task == "classification" else y[~inside]
    if task == "classification":
        assert inside.sum() == len(half) == sum(np.bincount(y) // 2)
        assert y[inside].sum() == y.sum() // 2
    rise = tree.permutation_importance(
        forest, others, actual, columns=sets, task="regression", n_repeats=39,
        rng=draws.seed_of(supervised.check.seed(0), 1),
    )  # fmt: skip
    np.testing.assert_array_equal(test.p_value, (1 + (rise <= 0).sum(axis=1)) / 40)
    assert test.p_value[0] == test.p_value[2] == 1 / 40
    assert test.p_value[1] > 0.05
    np.testing.assert_allclose(test.importance, rise.mean(axis=1))
    np.testing.assert_allclose(test.null, rise.mean(axis=1)[:, None] - rise)
    part = stats.importance_test(x, y, columns=sets, progress=lambda done, total: False, **settings)
    assert_same_bits([part.p_value, part.adjusted], [test.p_value[:1], 3 * test.p_value[:1]])
    with pytest.raises(ValueError, match="^y: expected classes with at least 1 row for the structure"):
        stats.importance_test(x[:4], [0, 1, 1, 1], by="error")


def test_p_values_after_holm():
    """The smallest is multiplied by 5, the next ones by 4, 3, ...; none is smaller than the one before."""
    p = np.array([0.02, 0.01, 0.5, 0.04, 0.03])
    got = hforest.stats.importances._holm(p, 5)
    np.testing.assert_allclose(got, [0.08, 0.05, 0.5, 0.09, 0.09])


def test_p_values_do_not_depend_on_the_unit_of_targets():
    """Differences of 1e-30 are not rounding if all numbers are as small."""
    x, _ = rows(80, d=2)
    y = x[:, 0] + 0.3 * x[:, 1] ** 2
    settings = {"task": "regression", "n_trees": 10, "rng": 0}

    def tests(y):
        split = stats.split_test(x, y, n_permutations=19, **settings)
        copies = [stats.importance_test(x, y, n_copies=19, by=by, **settings) for by in ("mdi_oob", "error")]
        return [split.p_value, *(test.p_value for test in copies)]

    want = tests(y)
    assert want[0] == want[1][0] == want[2][0] == 0.05
    assert_same_bits(tests(2.0**-50 * y), want)


@pytest.mark.parametrize("kind", ["oblique", "co2", "regression", "categories"])
def test_importance_tests_of_any_forest(kind):
    x, _ = rows(100, d=2)
    y = x[:, 0] > 0
    settings = {"n_trees": 40, "n_copies": 19, "columns": 0, "rng": 0}
    if kind == "regression":
        settings |= {"task": "regression"}
        y = x[:, 0] ** 2
    elif kind == "categories":
        x[:, 0] = np.round(2 * x[:, 0]) + 20
        x[3, 1] = np.nan
        x = growth.samples(x, categorical=[0])
    else:
        settings["grow"] = GROWERS[kind]
    assert stats.importance_test(x, y, **settings).p_value[0] == 0.05


def test_importances_need_out_of_bag_rows():
    x, y = rows()
    forest = hforest.grow(x, y, 2, bootstrap=False, rng=0)
    ones = np.ones((2, N), int)
    with pytest.raises(ValueError, match="^counts: expected a tree with out-of-bag rows, got none"):
        stats.oob_importance(forest, x, y, ones)
    ones[0, 3] = 0  # the other tree is left out
    alone = hforest.grow(x, y, 1, bootstrap=False, rng=0)
    whole, part = stats.oob_importance(forest, x, y, ones), stats.oob_importance(alone, x, y, ones[:1])
    np.testing.assert_allclose(whole.mean, part.mean)


def test_rows_with_a_vote_for_some_classes_are_refused():
    with pytest.raises(
        ValueError, match="^p: expected rows without NaN, or of only NaN .* got both in row 1"
    ):
        stats.sensitivity([[0.5, 0.5], [np.inf, np.nan], [0.2, 0.8]], [0, 1, 1], missing="omit")


def test_subsets_are_the_first_rows_of_permutations():
    for n, n_rows in ((1, 1), (10, 1), (10, 10), (1000, 400)):
        some = draws.subset(3, 5, n, n_rows)
        np.testing.assert_array_equal(some, np.sort(draws.permutation(3, 5, n)[:n_rows]))


@pytest.mark.libraries
def test_the_bench_of_power(script, monkeypatch, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    bench, path = script("stats_power"), tmp_path / "power.json"
    monkeypatch.setattr(
        bench, "CELLS", [(64, 1, "mean", 0.0), (64, 1, "mean", 4.0), (64, 1, "deviation", 9.0)]
    )
    command = ["stats_power", "--sets", "2", "--json", str(path), "--plot", str(tmp_path / "power.png")]
    monkeypatch.setattr("sys.argv", command)
    bench.main()
    first = path.read_text()
    rows = json.loads(first)["rows"]
    for name in bench.TESTS:
        assert len(rows[0][name]["p"]) == 2
        assert max(rows[1][name]["p"]) <= 0.05
    assert min(rows[2]["t-test"]["p"]) > max(rows[2]["permutation, auc"]["p"])
    bench.main()  # no importance is computed again
    assert json.loads(path.read_text())["rows"] == rows
    assert (tmp_path / "power.png").stat().st_size > 1000
    assert "| 64 | 1 | mean 4 | 1.00" in capsys.readouterr().out


def test_the_bench_of_truth(script, monkeypatch, tmp_path, capsys):
    bench, path = script("stats_truth"), tmp_path / "truth.json"
    _, y, p = bench.rows_of(100000, 2, 1.0, np.random.default_rng(0))
    sure = p[:, 1] > 0.8
    assert y[sure].mean() == pytest.approx(p[sure, 1].mean(), abs=0.01)
    command = ["stats_truth", "--sets", "2", "--rows", "200", "--trees", "60", "--json", str(path)]
    monkeypatch.setattr("sys.argv", command)
    bench.main()
    rows = json.loads(path.read_text())["rows"]
    assert len(rows) == len(bench.COLUMNS) * 2 * (len(bench.LEAVES) + 1)
    assert max(row["auc"] for row in rows) < 0.2
    assert "| 64 | chosen | " in capsys.readouterr().out


def test_the_bench_of_speed_checks_bits(script):
    bench = script("stats_speed")
    grown = bench.grower(40, 5, hforest.grow)
    assert bench.same(grown(3), grown(3))
    assert not bench.same(grown(3), grown(4))
    assert not bench.same([grown(2)], [grown(2)._replace(threshold=grown(2).threshold + 1)])
