"""Permutation tests, split tests and conditional tests of dependence."""

import functools
import itertools

import numpy as np
import pytest
import scipy.sparse
from conftest import assert_same_bits
from test_stats import GROWERS, N, null, rows, size

import hforest
from hforest import growth, stats, tree
from hforest.core import draws, supervised
from hforest.stats import additive, conditional, permutation

# -------------------------------------------------------------------------- permutation test


def test_permutation_test_sees_dependence():
    x, y = rows(n_classes=3)
    test = stats.permutation_test(x, y, n_trees=40, n_permutations=19, rng=0)
    assert test.p_value == 0.05
    assert len(test.null) == 19
    assert test.statistic > test.null.max()
    assert test.n_rows == N
    again = stats.permutation_test(x, y, n_trees=40, n_permutations=19, rng=0)
    assert_same_bits(test, again)


def test_the_observed_statistic_is_that_of_the_parts():
    """The test computes the same as the public functions in sequence."""
    x, y = rows()
    test = stats.permutation_test(x, y, statistic="auc", n_trees=40, n_permutations=1, rng=7)
    seed = draws.seed_of(supervised.check.seed(7), 0)
    counts = stats.honest_counts(y, 40, rng=seed)
    forest = hforest.grow(x, y, 40, bootstrap=counts.structure, n_classes=2, rng=seed)
    assert test.statistic == stats.auc(stats.posterior(forest, x, y, counts).p, y)
    # And the statistic of the first permutation.
    order = draws.permutation(supervised.check.seed(7), 3, N)
    seed = draws.seed_of(supervised.check.seed(7), 2)
    counts = stats.honest_counts(y[order], 40, rng=seed)
    forest = hforest.grow(x, y[order], 40, bootstrap=counts.structure, n_classes=2, rng=seed)
    assert test.null[0] == stats.auc(stats.posterior(forest, x, y[order], counts).p, y[order])


@pytest.mark.parametrize("kind", GROWERS)
def test_any_grower(kind):
    x, y = rows()
    test = stats.permutation_test(x, y, grow=GROWERS[kind], n_trees=20, n_permutations=9, rng=0)
    assert test.p_value == 0.1
    test = stats.split_test(x, y, grow=GROWERS[kind], n_permutations=99, rng=1)
    assert test.p_value <= 0.05


@pytest.mark.parametrize("statistic", [None, "mse", lambda p, y: float(-abs(p - y).mean())])
def test_targets(statistic):
    x, _ = rows()
    y = x[:, :2] + 0.3
    for function in (stats.permutation_test, functools.partial(stats.split_test, structure_share=0.4)):
        settings = {"task": "regression", "statistic": statistic, "n_trees": 30, "n_permutations": 19}
        assert function(x, y, **settings, rng=0).p_value == 0.05
    null_y = np.random.default_rng(1).normal(size=N)
    test = stats.permutation_test(x, null_y, task="regression", n_trees=20, n_permutations=19, rng=0)
    assert len(test.null) < 19 or test.p_value > 0.05


@pytest.mark.parametrize(
    "statistic", ["information", "accuracy", "mutual_information", "auc", "sensitivity", "partial_auc"]
)
def test_every_statistic(statistic):
    x, y = rows(seed=3)
    settings = {"draw": "bootstrap", "weighting": "shares", "n_trees": 20, "n_permutations": 2, "rng": 0}
    by_name, by_function = (
        stats.permutation_test(x, y, statistic=given, **settings)
        for given in (statistic, getattr(stats, statistic))
    )
    assert_same_bits(by_name, by_function)


def test_sparse_matrices_and_samples():
    x, y = rows()
    x[abs(x) < 0.5] = 0
    settings = {"n_trees": 20, "n_permutations": 3, "rng": 0}
    dense = stats.permutation_test(x, y, **settings)
    for given in (scipy.sparse.csr_array(x), hforest.samples(x)):
        assert_same_bits(stats.permutation_test(given, y, **settings), dense)
    sparse, dense = (stats.split_test(a, y, n_permutations=9, rng=0) for a in (scipy.sparse.csc_array(x), x))
    assert_same_bits(sparse, dense)
    assert stats.permutation_test(hforest.samples(x, max_bins=2), y, **settings).p_value > 0


def test_missing_values_and_categories():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, (N, 2)).astype(float)
    y = (x[:, 0] > 2).astype(int)
    x[::9, 1] = np.nan
    samples = hforest.samples(x, categorical=[0])
    assert stats.permutation_test(samples, y, n_trees=30, n_permutations=19, rng=0).p_value == 0.05
    seen = []

    def grow(x, y, **settings):
        seen.append(x)
        return hforest.grow(x, y, **settings)

    assert stats.split_test(samples, y, grow=grow, n_permutations=19, rng=0).p_value == 0.05
    assert [x.categorical.tolist() for x in seen] == [[True, False]]


# -------------------------------------------------------------------------------- split test


@pytest.mark.parametrize("weighting", ["counts", "shares"])
def test_neighbors_are_those_of_loops(weighting):
    x, y = rows(30)
    forest = hforest.grow(x, y, 5, min_samples_leaf=4, rng=0)
    leaf = tree.apply(forest, x)
    want = np.zeros((30, 30))
    for i, j, m in itertools.product(range(30), range(30), range(5)):
        if i != j and leaf[i, m] == leaf[j, m]:
            want[i, j] += 1 if weighting == "counts" else 1 / (np.sum(leaf[:, m] == leaf[i, m]) - 1)
    np.testing.assert_allclose(permutation.neighbors(forest, leaf, weighting), want, rtol=1e-12)


def test_the_split_test_computes_what_loops_do():
    x, y = rows(40)
    test = stats.split_test(x, y, statistic="accuracy", n_permutations=5, rng=2)
    seed = supervised.check.seed(2)
    first, second = permutation.split_rows(y, 40, 0.5, seed)
    assert sorted([*first, *second]) == list(range(40))
    assert abs(np.bincount(y[first]) - np.bincount(y[second])).max() <= 1
    forest = hforest.grow(x[first], y[first], 100, n_classes=2, rng=draws.seed_of(seed, 1))
    leaf = tree.apply(forest, x[second])
    for b in range(-1, 5):
        labels = y[second] if b < 0 else y[second][draws.permutation(seed, 2 + b, len(second))]
        right = []
        for i in range(len(second)):
            held = np.zeros(2)
            for j in range(len(second)):
                held[labels[j]] += np.sum(leaf[i] == leaf[j]) * (i != j)
            if held.sum():
                right.append(held.argmax() == labels[i])
        assert (test.statistic if b < 0 else test.null[b]) == np.mean(right)
    assert test.p_value == (1 + np.sum(test.null >= test.statistic)) / 6


def test_split_test_reports_and_stops():
    x, y = rows(40)
    seen = []
    whole = stats.split_test(
        x, y, n_permutations=50, rng=0, progress=lambda done, total: seen.append((done, total))
    )
    assert seen[-1] == (50, 50)
    assert len(whole.null) == 50


@pytest.mark.parametrize("grow", [None, functools.partial(hforest.grow, min_samples_leaf=5)])
def test_trees_without_labels(grow):
    """The forest learns targets on all rows that do not depend on the labels."""
    x, y = rows(40, d=2)
    grown = []

    def noted(x, y, **settings):
        grown.append((grow or permutation._without_labels)(x, y, **settings))
        return grown[-1]

    settings = {"structure_share": 0, "statistic": "auc", "n_permutations": 19, "rng": 2}
    test = stats.split_test(x, y, grow=noted, **settings)
    assert test.p_value == 0.05
    assert test.n_rows == 40
    assert_same_bits(test, stats.split_test(x, y, grow=noted, **settings))
    stats.split_test(x, 1 - y, grow=noted, **settings)
    assert_same_bits(grown[0], grown[2])
    if grow is None:
        assert_same_bits(test, stats.split_test(x, y, **settings))
    weight = permutation.neighbors(grown[0], tree.apply(grown[0], x), "counts")
    assert test.statistic == stats.auc(weight @ np.eye(2)[y] / weight.sum(axis=1)[:, None], y)
    targets = stats.split_test(x, x[:, :2], task="regression", **(settings | {"statistic": "mse"}))
    assert targets.p_value == 0.05


def reference_correlation(a, b):
    """Székely and Rizzo 2014, definition 2 and equation 2.3, entry by entry."""
    n = len(a)

    def centered(d):
        d = d - np.diag(np.diag(d))
        c = np.zeros((n, n))
        for i, j in itertools.permutations(range(n), 2):
            rows = d[i].sum() / (n - 2) + d[:, j].sum() / (n - 2)
            c[i, j] = d[i, j] - rows + d.sum() / ((n - 1) * (n - 2))
        return c

    a, b = centered(a), centered(b)
    return (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())


def test_distance_correlations_are_those_of_loops():
    from scipy.stats import chi2

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 12))
    a, b = abs(x[:, None] - x), abs(y[:, None] - y)
    for other in (b, a, a + 0.3 * b, (y[:, None] > 0) != (y > 0)):
        statistic, p = stats.distance_correlation(a, other)
        assert statistic == pytest.approx(reference_correlation(a, np.asarray(other, float)), abs=1e-12)
        assert p == pytest.approx(chi2.sf(12 * statistic + 1, 1))
    assert stats.distance_correlation(a, a).statistic == pytest.approx(1)
    # A kernel with the other sign, in any unit.
    assert stats.distance_correlation(a, 2.0**200 * (3 - b)).statistic == pytest.approx(
        -stats.distance_correlation(a, b).statistic
    )
    assert stats.distance_correlation(a, np.ones((12, 12))).statistic == 0
    for of_x, of_y, message in (
        (a, np.triu(b), r"of_y: expected a symmetric matrix, got an asymmetric one; pass \(of_y \+"),
        (a, b[1:, 1:], r"of_y: expected shape .* n_samples = 12, got \(11, 11\)"),
        (a[:3, :3], b, r"of_x: expected shape .* n_samples of at least 4, got \(3, 3\)"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            stats.distance_correlation(of_x, of_y)
    settings = {"statistic": "distance_correlation", "task": "regression", "structure_share": 0}
    with pytest.raises(
        ValueError, match="^y: expected at least 4 rows for the leaves, got 3; pass more rows"
    ):
        stats.split_test(x[:3, None], y[:3], **settings)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_distance_correlations_of_leaves(task):
    x, y = rows(60, n_classes=3)
    if task == "regression":
        y = x[:, :2] ** 2
    settings = {"statistic": "distance_correlation", "task": task, "n_permutations": 19, "rng": 2}
    test = stats.split_test(x, y, **settings)
    assert test.p_value == 0.05
    seed = supervised.check.seed(2)
    first, second = permutation.split_rows(y if task == "classification" else None, 60, 0.5, seed)
    n_classes = {"n_classes": 3} if task == "classification" else {}
    forest = hforest.grow(x[first], y[first], task=task, rng=draws.seed_of(seed, 1), **n_classes)
    of_x = 1 - tree.proximity(forest, x[second]).toarray()
    assert test.n_rows == len(second)
    for b in range(-1, 19):
        order = slice(None) if b < 0 else draws.permutation(seed, 2 + b, len(second))
        some = y[second][order].reshape(len(second), -1)
        if task == "classification":
            of_y = some != some.T
        else:
            of_y = np.sqrt(((some[:, None] - some) ** 2).sum(axis=2))
        want = stats.distance_correlation(of_x, of_y).statistic
        assert (test.statistic if b < 0 else test.null[b]) == pytest.approx(want, abs=1e-9)


# ------------------------------------------------------------------------- conditional tests


def chain(n=150, seed=0, effect=0.0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3))
    x = np.stack([z[:, 0] + rng.normal(size=n), np.sin(z[:, 1]) + rng.normal(size=n)], axis=1)
    y = z[:, 0] + z[:, 1] + rng.normal(size=n) + effect * x[:, 1]
    return x, y, z


def test_covariances_have_the_variance_of_a_sum_over_pairs_of_rows(monkeypatch):
    """Sums of residuals' products over ``sqrt(sum_ij Q[i, j]**2 e[i]**2 u[j]**2)``, in plain NumPy."""
    from scipy.interpolate import CubicSpline

    x, y, z = chain()
    settings = {"n_trees": 50, "task": "regression", "rng": 3}
    test = stats.conditional_test(x, y, z, **settings)
    seed = supervised.check.seed(3)
    node = (1 - np.cos(np.pi * np.arange(7) / 6)) / 2
    columns = [z[:, [0, 0, 1]] * z[:, [1, 2, 2]], z, np.ones((150, 1))]
    for of in z.T:
        columns.append(CubicSpline(np.quantile(of, node), np.eye(7), bc_type="natural")(of))
    splines = np.hstack(columns)

    def residuals(target, number):
        """Returns residuals and the matrix that computes them."""
        of = draws.seed_of(seed, number)
        counts = growth.bootstrap_counts(150, 50, rng=of)
        grown = {"bootstrap": counts, "task": "regression", "rng": of}
        forest = hforest.grow(z, target, 50, splitter="random", min_samples_leaf=2, **grown)
        leaf, q = tree.apply(forest, z), np.eye(150)
        for i in range(150):
            out = np.flatnonzero(counts[:, i] == 0)
            for m in out:
                neighbors = counts[m] * (leaf[:, m] == leaf[i, m])
                q[i] -= neighbors / neighbors.sum() / len(out)
        left = target - tree.out_of_bag(forest, z, counts)[:, 0]
        np.testing.assert_allclose(q @ target, left, atol=1e-5)
        q = q @ q @ (np.eye(150) - splines @ np.linalg.pinv(splines, 1e-10))
        return q @ target, q, np.sqrt((q**2).sum(axis=1))

    u, of_y, of_u = residuals(y, 0)
    for j in range(2):
        e, of_x, of_e = residuals(x[:, j], 1 + j)
        error = np.sqrt((e / of_e) ** 2 @ (of_x.T @ of_y) ** 2 @ (u / of_u) ** 2)
        assert test.covariances[j, 0] == pytest.approx(e @ u / error, rel=1e-6)
        assert abs(error / np.sqrt((e * u) ** 2 @ np.ones(150)) - 1) > 0.02  # not the sample variance
    assert test.statistic == abs(test.covariances).max()
    assert test.n_rows == 150
    # Of more rows the lengths and errors are estimated from 256 and 4,000 draws of signs.
    monkeypatch.setattr(conditional, "_EXACT", 0)
    of_factors = []
    for entries in (0, conditional._ENTRIES):
        monkeypatch.setattr(conditional, "_ENTRIES", entries)
        of_factors.append(stats.conditional_test(x, y, z, n_bootstrap=4000, **settings))
        assert of_factors[-1].covariances == pytest.approx(test.covariances, rel=0.05)
        assert of_factors[-1].p_value == pytest.approx(test.p_value, abs=0.03)
    assert of_factors[0].covariances == pytest.approx(of_factors[1].covariances, rel=1e-9)


def test_additive_models():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(400, 2))
    z[:, 1] = rng.integers(0, 5, 400)
    basis = additive.additive_basis(z, 400)
    # a constant, eight splines, four of the five values, and a product
    assert basis.shape == (400, 14)
    assert basis.T @ basis == pytest.approx(np.eye(14), abs=1e-10)

    def left(basis, f):
        """Returns the share of the variance of a function that is not in the basis."""
        return np.mean((f - basis @ (basis.T @ f)) ** 2) / np.var(f)

    few = rng.normal(size=5)[z[:, 1].astype(int)]
    assert max(left(basis, f) for f in (z[:, 0], few, z[:, 0] * z[:, 1])) < 1e-18
    assert left(basis, np.sin(2 * z[:, 0])) < 0.005
    assert left(basis, rng.normal(size=400)) > 0.9
    # the same with other units, in a sparse matrix, and with missing numbers, of which those of 0 have indicators
    same = additive.additive_basis(scipy.sparse.csr_array(z * [1e307, 1e-300]), 400)
    assert same @ same.T == pytest.approx(basis @ basis.T, abs=1e-6)
    missing = np.where(rng.random(z.shape) < 0.3, np.nan, z)
    some = np.isnan(missing[:, 0])
    assert left(additive.additive_basis(missing, 400), np.where(some, 3.0, missing[:, 0])) < 1e-18
    # at most half as many columns as groups
    for d, rank in ((10, 51), (50, 51), (51, 1)):
        assert additive.additive_basis(rng.normal(size=(100, d)), 100).shape == (100, rank)
    assert additive.additive_basis(z, 3).shape == (400, 1)
    assert additive.additive_basis(np.ones((9, 2)), 9).shape == (9, 1)
    assert additive.additive_basis(np.full((9, 1), np.nan), 9).shape == (9, 1)


def test_rows_that_no_tree_votes_for_are_left_out():
    x, y, z = chain()
    test = stats.conditional_test(x, y, z, n_trees=4, task="regression", rng=0)
    seed = supervised.check.seed(0)
    counts = [growth.bootstrap_counts(150, 4, rng=draws.seed_of(seed, number)) for number in range(3)]
    votes = np.all([(c == 0).any(axis=0) for c in counts], axis=0)
    assert test.n_rows == votes.sum() < 150
    full = growth.bootstrap_counts(150, 1, rng=0) * 0 + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth, "bootstrap_counts", lambda n, n_trees, rng: full)
        with pytest.raises(
            ValueError, match="^n_trees: expected rows that are out-of-bag in all forests, got 0"
        ):
            stats.conditional_test(x, y, z, n_trees=1, task="regression", rng=0)


def test_conditional_test_tells_what_z_explains_from_what_it_does_not():
    x, y, z = chain()
    assert stats.permutation_test(x, y > 0, n_trees=50, n_permutations=19, rng=0).p_value == 0.05
    assert stats.conditional_test(x, y, z, task="regression", rng=0).p_value > 0.05
    x, y, z = chain(effect=1.0)
    assert stats.conditional_test(x, y, z, task="regression", rng=0).p_value <= 0.005
    labels = np.digitize(y, [-1, 1])
    of_labels = stats.conditional_test(x, labels, z, rng=0)
    assert of_labels.p_value <= 0.05
    assert of_labels.covariances.shape == (2, 3)
    two = stats.conditional_test(x[:, 1], labels > 0, z, rng=0)
    assert two.covariances.shape == (1, 1)


def test_one_column_has_a_normal_distribution():
    from scipy.stats import norm

    x, y, z = chain()
    for j in range(2):
        test = stats.conditional_test(x[:, j], y, z, n_bootstrap=4000, task="regression", rng=1)
        assert test.p_value == pytest.approx(2 * norm.sf(test.statistic), abs=0.03)


def test_columns_that_do_not_vary():
    _, y, z = chain()
    test = stats.conditional_test(np.ones(150), y, z, task="regression", n_trees=20, rng=0)
    assert (test.p_value, test.statistic) == (1, 0)
    huge, plain = (
        stats.conditional_test(unit * z[:, 0], unit * y, z[:, 1:], task="regression", n_trees=20, rng=0)
        for unit in (2.0**300, 1.0)
    )
    assert huge.statistic == pytest.approx(plain.statistic, rel=1e-6)


def test_conditional_test_of_some_columns():
    x, y, z = chain()
    seen = []
    settings = {"n_trees": 20, "task": "regression", "rng": 0}
    part = stats.conditional_test(
        x, y, z, progress=lambda *numbers: seen.append(numbers) or False, **settings
    )
    assert seen == [(1, 2)]
    assert_same_bits(part, stats.conditional_test(x[:, :1], y, z, **settings))


def test_conditional_randomization():
    x, y, z = chain(80)

    def sampler(x, z, rng):
        return np.stack([z[:, 0], np.sin(z[:, 1])], axis=1) + rng.normal(size=x.shape)

    settings = {"task": "regression", "n_trees": 30, "n_permutations": 19, "rng": 0}
    assert stats.conditional_randomization_test(x, y, z, sampler, **settings).p_value > 0.05
    x, y, z = chain(80, effect=3.0)
    assert stats.conditional_randomization_test(x, y, z, sampler, **settings).p_value == 0.05
    with pytest.raises(
        ValueError, match=r"^sampler: expected a function that returns shape \(80, 2\), got \(80, 1\)"
    ):
        stats.conditional_randomization_test(x, y, z, lambda x, z, rng: x[:, :1], **settings)
    with pytest.raises(TypeError, match="^sampler: expected a function"):
        stats.conditional_randomization_test(x, y, z, None, **settings)


def test_views_are_permuted_only_by_those_who_ask_for_it():
    rng = np.random.default_rng(0)
    z, noise = rng.normal(size=(2, 100, 2))
    y = noise[:, 0] + noise[:, 1] > 0
    settings = {"n_trees": 30, "n_permutations": 19, "rng": 0}

    def permute(x, z, rng):
        return rng.permutation(x)

    test = stats.conditional_randomization_test(noise, y, z, "permuted", allow_invalid=True, **settings)
    assert test.p_value == 0.05
    assert_same_bits(test, stats.conditional_randomization_test(noise, y, z, permute, **settings))
    with pytest.raises(
        ValueError, match='^sampler: expected a function that draws x given z, got "permuted"'
    ):
        stats.conditional_randomization_test(noise, y, z, "permuted", **settings)
    with pytest.raises(TypeError, match='^sampler: expected a function or "permuted", got str'):
        stats.conditional_randomization_test(noise, y, z, "shuffled", **settings)
    with pytest.raises(TypeError, match="^allow_invalid: expected True or False, got str"):
        stats.conditional_randomization_test(noise, y, z, "permuted", allow_invalid="yes", **settings)


# ---------------------------------------------------------------------------- sizes of tests


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_distance_correlations_hold_their_level(share):
    def correlated(seed):
        settings = {"structure_share": share, "n_trees": 30, "n_permutations": 99, "rng": seed}
        return stats.split_test(*null(40, 2, seed), statistic="distance_correlation", **settings).p_value

    def by_chi_square(seed):
        x, y = null(40, 2, seed)
        forest = hforest.grow(x[:20], y[:20], 30, n_classes=2, rng=seed)
        of_x = 1 - tree.proximity(forest, x[20:]).toarray()
        return stats.distance_correlation(of_x, y[20:, None] != y[20:]).p_value

    assert size(correlated) <= 20
    if share:
        assert size(by_chi_square) <= 20


@pytest.mark.slow
@pytest.mark.parametrize("dependence", ["chain", "linear 0.9", "sine"])
def test_the_generalised_covariance_measure_holds_its_level(dependence, script):
    bench = script("stats")

    def conditional(seed):
        if dependence == "chain":
            x, y, z = chain(80, seed)
            y = y > 0
        else:
            x, y, z = bench.views(dependence, 200, np.random.default_rng(seed))
        return stats.conditional_test(x, y, z, n_trees=30, n_bootstrap=199, rng=seed).p_value

    assert size(conditional) <= 20


def test_the_bench_of_published_tests(script, monkeypatch):
    bench = script("stats")
    monkeypatch.setattr(bench, "N_PERMUTATIONS", 19)
    cells = [cell for cell in bench.cells() if any(map(cell.test.startswith, bench.PUBLISHED))]
    assert len(cells) == 7
    made = {cell.name: [bench.outcome(cell, number) for number in range(2)] for cell in cells}
    assert all(p <= 0.05 for word in ("chi-square", "permutations") for p, _ in made[f"KMERF 64 16 {word}"])
    assert all(abs(20 * p - 1 - rank) < 1.01 for found in made.values() for p, rank in found)
    assert bench.counted(2.0, [1.0, 2.0, 3.0]) == 0.75
