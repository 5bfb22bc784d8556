"""Honest forests, statistics of posteriors, and tests, against loops, known answers and other libraries."""

import functools
import itertools
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
import scipy.sparse
from conftest import assert_same_bits
from growers import assert_all_same, on_threads

import hforest
from hforest import co2, growth, project, scale, stats, tree
from hforest.core import draws, supervised
from hforest.stats import conditional, permutation, problem

N, N_TREES = 60, 30


def oblique(x, y, n_trees, **settings):
    """Returns a forest on sparse projections of any number of columns."""
    return hforest.grow(x, y, n_trees, projections=project.sparse_distribution(x.shape[1]), **settings)


GROWERS = {
    "best": hforest.grow,
    "random": functools.partial(hforest.grow, splitter="random"),
    "oblique": oblique,
    "co2": functools.partial(co2.grow, max_rounds=2),
}


def rows(n=N, d=4, seed=0, n_classes=2):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, (
        np.digitize(x[:, 0] + 0.5 * rng.normal(size=n), np.linspace(-0.5, 0.5, n_classes + 1)[1:-1])
    ).astype(int)


def null(n=N, d=4, seed=0, n_classes=2):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.permutation(np.arange(n) % n_classes)


def honest(x, y, n_trees=N_TREES, grow=hforest.grow, rng=0, **settings):
    counts = stats.honest_counts(y, n_trees, rng=rng, **settings)
    return grow(x, y, n_trees=n_trees, bootstrap=counts.structure, rng=rng), counts


# ------------------------------------------------------------------------------------------ draws


def test_philox_of_arrays_is_that_of_numbers():
    from hforest.core import philox

    key, counter = 2**63 + 12345, np.array([0, 1, 2**33 + 7], np.uint64)
    stream = np.array([[5], [2**62 + 1]], np.uint64)
    low, high = philox.words(key, counter, stream)
    for i, j in itertools.product(range(2), range(3)):
        assert (int(low[i, j]), int(high[i, j])) == philox.keys(
            philox.philox(key, int(counter[j]), int(stream[i, 0]))
        )


@pytest.mark.parametrize("draw", ["fixed", "bootstrap"])
def test_a_trees_draw_depends_on_its_number_alone(draw, monkeypatch):
    y = np.arange(50) % 3
    whole = stats.honest_counts(y, 20, draw=draw, rng=5)
    assert all(a.shape == (20, 50) and a.dtype == np.int32 for a in whole)
    part = stats.honest_counts(y, 6, draw=draw, first_tree=9, rng=5)
    assert_same_bits(part, [a[9:15] for a in whole])
    monkeypatch.setattr("hforest.core.draws._WORDS", 130)  # blocks of one or two trees
    assert_same_bits(stats.honest_counts(y, 20, draw=draw, rng=5), whole)
    assert not np.array_equal(whole.structure[0], whole.structure[1])
    assert not np.array_equal(stats.honest_counts(y, 20, draw=draw, rng=6).leaf, whole.leaf)


@pytest.mark.parametrize(
    ("in_bag", "share", "expected"), [(None, 0.5, ((4, 4), (8, 8))), (0.5, 0.2, ((1, 4), (2, 8)))]
)
def test_fixed_draws_have_the_same_numbers_of_each_class(in_bag, share, expected):
    y = np.array([7] * 20 + [-3] * 10)  # any labels
    structure, leaf = stats.honest_counts(y, 40, in_bag=in_bag, structure_share=share, rng=0)
    assert ((structure == 0) | (leaf == 0)).all()
    assert max(structure.max(), leaf.max()) == 1
    for label, (of_structure, of_leaf) in zip((-3, 7), expected, strict=True):
        assert (structure[:, y == label].sum(axis=1) == of_structure).all()
        assert (leaf[:, y == label].sum(axis=1) == of_leaf).all()
    # Each row is as likely as the others of its class.
    often = stats.honest_counts(30, 4000, rng=0).structure.mean(axis=0)
    np.testing.assert_allclose(often, 0.4, atol=0.04)


def test_bootstrap_draws_are_those_published():
    structure, leaf = stats.honest_counts(np.arange(200) % 2, 100, draw="bootstrap", rng=0)
    assert ((structure == 0) | (leaf == 0)).all()
    assert ((structure + leaf).sum(axis=1) == 320).all()
    assert abs((structure + leaf == 0).mean() - np.exp(-1.6)) < 0.01
    distinct = (structure > 0).sum(axis=1) / ((structure + leaf) > 0).sum(axis=1)
    assert (abs(distinct - 0.5) < 0.01).all()


def test_draws_that_leave_a_part_empty_are_refused():
    for y, settings, error, message in (
        ([0, 0, 0, 0, 1, 1], {}, ValueError,
         "y: expected classes of which each tree has rows for its splits.*got 2 rows of a class: 0, 1 and 1; "),
        (1, {"draw": "bootstrap", "rng": 0}, ValueError,
         "y: expected rows for the splits and for the leaves of each tree, got 1 distinct rows"),
        (np.zeros((3, 2), int), {}, ValueError, r"y: expected labels of shape \(n_samples,\)"),
        ([0.5, 1.5], {}, TypeError, r"y: expected labels of shape \(n_samples,\)"),
        (30, {"in_bag": 1.6}, ValueError, "in_bag: expected a finite number > 0 and <= 1, got 1.6"),
    ):  # fmt: skip
        with pytest.raises(error, match=f"^{message}"):
            stats.honest_counts(y, 3, **settings)


def test_permutations_and_normal_numbers():
    orders = np.array([draws.permutation(3, b, 4) for b in range(4800)])
    assert (np.sort(orders, axis=1) == np.arange(4)).all()
    _, often = np.unique(orders, axis=0, return_counts=True)
    assert len(often) == 24
    assert ((often - 200.0) ** 2 / 200).sum() < 50  # chi-squared of 23 degrees: 0.001 above
    numbers = draws.normals(1, 0, 100, 501)
    assert np.isfinite(numbers).all()
    assert abs(numbers.mean()) < 0.02
    assert abs(numbers.std() - 1) < 0.02
    assert_same_bits([draws.normals(1, 7, 2, 501)], [numbers[7:9]])


# ------------------------------------------------------------------------------------- posteriors


def reference_posterior(forest, x, y, counts, n_classes, weighting):
    leaf, result, votes = tree.apply(forest, x), np.zeros((len(x), n_classes)), np.zeros(len(x), int)
    for i, m in itertools.product(range(len(x)), range(leaf.shape[1])):
        if counts.structure[m, i] or counts.leaf[m, i]:
            continue
        held = np.zeros(n_classes)
        for j in np.flatnonzero(leaf[:, m] == leaf[i, m]):
            held[y[j]] += counts.leaf[m, j]
        if held.sum():
            result[i] += held if weighting == "counts" else held / held.sum()
            votes[i] += 1
    with np.errstate(invalid="ignore"):
        return result / result.sum(axis=1, keepdims=True), votes


@pytest.mark.parametrize("weighting", ["counts", "shares"])
@pytest.mark.parametrize("draw", ["fixed", "bootstrap"])
@pytest.mark.parametrize("kind", GROWERS)
def test_posteriors_are_those_of_loops(kind, draw, weighting):
    x, y = rows(40, n_classes=3)
    forest, counts = honest(x, y, 8, GROWERS[kind], draw=draw)
    got = stats.posterior(forest, x, y, counts, weighting=weighting)
    p, votes = reference_posterior(forest, x, y, counts, 3, weighting)
    np.testing.assert_array_equal(got.votes, votes)
    np.testing.assert_allclose(got.p, p, rtol=1e-12)
    assert got.p.dtype == np.float64
    assert np.isnan(got.p[votes == 0]).all()
    assert not np.isnan(got.p[votes > 0]).any()


def test_splits_see_structure_rows_alone():
    """Trees equal those of a forest in which all other rows have other labels."""
    x, y = rows()
    counts = stats.honest_counts(y, 1, rng=0)
    others = counts.structure[0] == 0
    for grow in GROWERS.values():
        first = grow(x, y, n_trees=1, bootstrap=counts.structure, rng=0)
        second = grow(x, np.where(others, 1 - y, y), n_trees=1, bootstrap=counts.structure, rng=0)
        assert_same_bits(first, second)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_ordinary_out_of_bag_predictions(task):
    x, y = rows()
    y = y if task == "classification" else x[:, :2] + 1
    counts = growth.bootstrap_counts(N, N_TREES, rng=0)
    forest = hforest.grow(x, y, N_TREES, bootstrap=counts, task=task, rng=1)
    p, votes = stats.posterior(
        forest, x, y, stats.HonestCounts(counts, counts), task=task, weighting="shares"
    )
    np.testing.assert_allclose(p, tree.out_of_bag(forest, x, counts), rtol=1e-12)
    np.testing.assert_array_equal(votes, (counts == 0).sum(axis=0))


def test_means_of_targets_weigh_rows():
    x, _ = rows()
    y = np.random.default_rng(1).normal(size=(N, 2))
    counts = stats.honest_counts(N, 9, draw="bootstrap", rng=0)
    forest = hforest.grow(x, y, 9, bootstrap=counts.structure, task="regression", rng=0)
    whole = stats.posterior(forest, x, y, counts, task="regression")
    leaf, total, below = tree.apply(forest, x), np.zeros((N, 2)), np.zeros(N)
    for i, m in itertools.product(range(N), range(9)):
        if not counts.structure[m, i] and not counts.leaf[m, i]:
            weight = counts.leaf[m] * (leaf[:, m] == leaf[i, m])
            total[i] += weight @ y
            below[i] += weight.sum()
    some = below > 0
    np.testing.assert_allclose(whole.p[some], total[some] / below[some, None], rtol=1e-9)


def test_posteriors_have_the_same_bits_at_every_number_of_threads(threads):
    x, y = rows()

    def found():
        forest, counts = honest(x, y)
        return stats.posterior(forest, x, y, counts)

    assert_all_same(on_threads(threads, found))


def of_every_test(x, y, z, **settings):
    """Returns the results of all tests by name."""
    trees = {"n_trees": 20, "rng": 0, **settings}
    drawn = {**trees, "n_permutations": 19}
    both = np.column_stack([x, z])

    def sampler(x, z, rng):
        return rng.permutation(x)

    return {
        "permutation": functools.partial(stats.permutation_test, both, y, **drawn),
        "split": functools.partial(stats.split_test, both, y, **drawn),
        "no labels": functools.partial(stats.split_test, both, y, structure_share=0, **drawn),
        "correlation": functools.partial(
            stats.split_test, both, y, statistic="distance_correlation", **drawn
        ),
        "copies": functools.partial(stats.importance_test, both, y, columns=[[0, 1]], n_copies=19, **trees),
        "error": functools.partial(stats.importance_test, both, y, by="error", n_copies=19, **trees),
        "covariance": functools.partial(stats.conditional_test, x, y, z, n_bootstrap=19, **trees),
        "randomization": functools.partial(stats.conditional_randomization_test, x, y, z, sampler, **drawn),
    }


def test_the_same_p_values_over_processes(threads):
    """Trees of worker processes equal those of one call, and so do all results."""
    x, _ = rows()
    labels, targets = x[:, 0] > 0, x[:, 0] ** 2
    threads(1)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, context, initializer=hforest.set_num_threads, initargs=(1,)) as executor:
        here = functools.partial(hforest.grow, min_samples_leaf=2)

        def over_workers(x, y, n_trees, *, rng, **settings):
            grow = functools.partial(here, **settings)
            return scale.grow(executor, x, y, n_trees, grow=grow, n_tasks=2, rng=rng)

        for y, task in ((labels, "classification"), (targets, "regression")):
            one, two = (
                of_every_test(x[:, :2], y, x[:, 2:], task=task, grow=grow) for grow in (here, over_workers)
            )
            for name in ("permutation", "split", "copies", "error", "covariance"):
                assert_same_bits(one[name](), two[name]())


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_p_values_have_the_same_bits_at_every_number_of_threads(threads, task):
    x, y = rows()
    y = y if task == "classification" else x[:, 0] ** 2
    of = of_every_test(x[:, :2], y, x[:, 2:], task=task)
    assert_all_same(on_threads(threads, lambda: [call() for call in of.values()]))


def test_fixed_draws_have_no_bias_where_labels_do_not_depend_on_x():
    """In trees of one leaf every row has the shares of all rows; with other draws its own class has less."""
    _, y = null(48)
    x = np.zeros((48, 1))
    for draw in ("fixed", "bootstrap"):
        forest, counts = honest(x, y, 100, draw=draw)
        p = stats.posterior(forest, x, y, counts).p
        if draw == "fixed":
            np.testing.assert_array_equal(p, 0.5)
            assert stats.information(p, y) == 0
            assert stats.auc(p, y) == 0.5
        else:
            assert stats.auc(p, y) < 0.4
            assert stats.information(p, y) < 0


# ------------------------------------------------------------------------------------- statistics


def scores(seed, n=80, ties=True):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    score = np.clip(0.5 + 0.15 * rng.normal(size=n) + 0.15 * (y - 0.5), 0.01, 0.99)
    score = np.round(score, 1 if ties else 9)
    return np.stack([1 - score, score], axis=1), y


@pytest.mark.libraries
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_statistics_are_those_of_scikit_learn(seed, ties):
    metrics = pytest.importorskip("sklearn.metrics")
    p, y = scores(seed, ties=ties)
    assert stats.auc(p, y) == pytest.approx(metrics.roc_auc_score(y, p[:, 1]), abs=1e-12)
    for specificity in (0.0, 0.5, 0.9, 0.98):
        false, true, _ = metrics.roc_curve(y, p[:, 1], drop_intermediate=False)
        want = true[false <= 1 - specificity + 1e-12].max()
        assert stats.sensitivity(p, y, specificity=specificity) == pytest.approx(want, abs=1e-12)
        want = metrics.roc_auc_score(y, p[:, 1], max_fpr=1 - specificity)
        assert stats.partial_auc(p, y, specificity=specificity) == pytest.approx(want, abs=1e-12)
    want = np.log(2) - metrics.log_loss(y, p)
    assert stats.information(p, y) == pytest.approx(want, abs=1e-12)
    assert stats.accuracy(p, y) == pytest.approx((p.argmax(axis=1) == y).mean())
    assert stats.mse(p, np.eye(2)[y]) == pytest.approx(metrics.mean_squared_error(np.eye(2)[y], p))


def test_equal_scores_enter_together():
    p = [[0.2, 0.8], [0.4, 0.6], [0.4, 0.6], [0.4, 0.6], [0.9, 0.1]]
    y = [1, 1, 1, 0, 0]
    # Half of class 0 may pass: the tie of two of class 1 and one of class 0 passes as a whole, or not at all.
    assert stats.sensitivity(p, y, specificity=0.5) == 1
    assert stats.sensitivity(p, y, specificity=0.6) == pytest.approx(1 / 3)
    assert stats.auc(p, y) == pytest.approx((2 + 2 * 1.5) / 6)


def test_information_in_nats():
    y = np.array([0, 0, 1, 1])
    assert stats.information(np.eye(2)[y], y) == pytest.approx(np.log(2))
    assert stats.information(np.full((4, 2), 0.5), y) == 0
    assert stats.information(np.eye(2)[1 - y], y, least=0.01) == pytest.approx(np.log(2) + np.log(0.01))
    assert stats.mutual_information(np.eye(2)[1 - y], y) == pytest.approx(np.log(2))  # wrong, and sharp
    assert stats.mutual_information(np.full((4, 2), 0.5), y) == pytest.approx(0)
    shares = np.array([[0.7, 0.2, 0.1]] * 10)
    labels = np.repeat([0, 1, 2], [7, 2, 1])
    assert stats.information(shares, labels) == pytest.approx(0)


@pytest.mark.parametrize(
    "name", ["accuracy", "auc", "information", "mutual_information", "partial_auc", "sensitivity", "mse"]
)
def test_rows_without_a_vote(name):
    p, y = scores(0)
    function, target = getattr(stats, name), np.eye(2)[y] if name == "mse" else y
    some = np.arange(80) % 7 != 2
    want = function(p[some], target[some])
    p[~some] = np.nan
    with pytest.raises(
        ValueError,
        match="^p: expected a vote for every row, got NaN in 12 of 80 rows, the first 2; grow more trees, or",
    ):
        function(p, target)
    assert function(p, target, missing="omit") == want
    with pytest.raises(ValueError, match="^p: expected a vote for at least one row, got only NaN; "):
        function(p * np.nan, target, missing="omit")
    with pytest.raises(ValueError, match="^missing: expected one of 'error', 'omit', got 'drop'"):
        function(p, target, missing="drop")


def test_statistics_refuse():
    p, y = scores(0)
    for function, arguments, error, message in (
        (stats.information, (2 * p, y), ValueError, "p: expected numbers from 0 to 1, got"),
        (stats.auc, (np.full((80, 3), 1 / 3), y), ValueError, "p: expected two classes, got 3; pass numpy.stack"),
        (stats.sensitivity, (p, 0 * y), ValueError, "y: expected rows of both classes, got only class 0"),
        (functools.partial(stats.partial_auc, specificity=1.0), (p, y), ValueError,
         "specificity: expected a number below 1, got 1.0"),
        (stats.accuracy, (p[:, 0], y), ValueError, r"p: expected shape \(n_samples, n_classes\), got \(80,\)"),
        (stats.mse, (p[:, :0], p[:, :0]), ValueError, r"p: expected shape \(n_samples, n_outputs\), got \(80, 0\)"),
        (stats.mse, (p, y), ValueError, "y: expected n_outputs = 2 targets for each row, got 1"),
        (stats.accuracy, (p, y + 1), IndexError, "y: expected 0 <= label < n_classes = 2"),
    ):  # fmt: skip
        with pytest.raises(error, match=f"^{message}"):
            function(*arguments)


# ------------------------------------------------------------------------------- sequential p-values


def test_p_values_of_sequences():
    def run(values, **settings):
        settings = {"n_permutations": len(values), "max_exceed": None, "progress": None} | settings
        return problem.sequential(lambda b: (values[b - 1] if b else 1.0, 9), **settings)

    assert run([0.0] * 9).p_value == 0.1
    assert run([0, 2, 1, 0]).p_value == 3 / 5  # equal statistics count
    stopped = run([0, 2, 1, 0, 0], max_exceed=2)
    assert stopped.p_value == 2 / 3
    assert stopped.null.tolist() == [0, 2, 1]
    assert (stopped.statistic, stopped.n_rows) == (1.0, 9)
    assert run([2.0], max_exceed=1).p_value == 1
    seen = []
    part = run([0, 2, 0, 0], progress=lambda done, total: seen.append((done, total)) or done < 3)
    assert seen == [(1, 4), (2, 4), (3, 4)]
    assert part.p_value == 2 / 4


@pytest.mark.parametrize("max_exceed", [None, 3, 10])
def test_sequential_p_values_hold(max_exceed):
    """For exchangeable statistics, p-values are at or below a level at most as often as the level."""
    rng = np.random.default_rng(0)
    p = []
    for _ in range(3000):
        values = rng.normal(size=40)
        p.append(problem.sequential(lambda b, v=values: (v[b], 1), 39, max_exceed, None).p_value)
    for level in (0.025, 0.05, 0.1, 0.25, 0.5):
        share = np.mean(np.array(p) <= level)
        assert share < level + 3.5 * np.sqrt(level * (1 - level) / 3000)
        assert share > 0.5 * level
    assert min(p) > 0


# ---------------------------------------------------------------------------------- permutation test


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


# ----------------------------------------------------------------------------------------- split test


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


# ---------------------------------------------------------------------------------- conditional tests


def chain(n=150, seed=0, effect=0.0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3))
    x = np.stack([z[:, 0] + rng.normal(size=n), np.sin(z[:, 1]) + rng.normal(size=n)], axis=1)
    y = z[:, 0] + z[:, 1] + rng.normal(size=n) + effect * x[:, 1]
    return x, y, z


def test_covariances_have_the_variance_of_a_sum_over_pairs_of_rows():
    """Sums of residuals' products over ``sqrt(sum_ij Q[i, j]**2 e[i]**2 u[j]**2)``, in plain NumPy."""
    x, y, z = chain()
    test = stats.conditional_test(x, y, z, n_trees=50, n_bootstrap=4000, task="regression", rng=3)
    seed = supervised.check.seed(3)

    def residuals(target, number):
        """Returns residuals and the matrix that computes them."""
        of = draws.seed_of(seed, number)
        counts = growth.bootstrap_counts(150, 50, rng=of)
        settings = {"bootstrap": counts, "task": "regression", "rng": of}
        forest = hforest.grow(z, target, 50, min_samples_leaf=5, **settings)
        leaf, q = tree.apply(forest, z), np.eye(150)
        for i in range(150):
            out = np.flatnonzero(counts[:, i] == 0)
            for m in out:
                neighbors = counts[m] * (leaf[:, m] == leaf[i, m])
                q[i] -= neighbors / neighbors.sum() / len(out)
        left = target - tree.out_of_bag(forest, z, counts)[:, 0]
        np.testing.assert_allclose(q @ target, left, atol=1e-5)
        return q @ target, q

    u, of_y = residuals(y, 0)
    for j in range(2):
        e, of_x = residuals(x[:, j], 1 + j)
        error = np.sqrt(e**2 @ (of_x.T @ of_y) ** 2 @ u**2)
        assert test.covariances[j, 0] == pytest.approx(e @ u / error, rel=0.05)  # 1.1 % by 4,000 draws
        assert abs(error / np.sqrt((e * u) ** 2 @ np.ones(150)) - 1) > 0.02  # not the sample variance
    assert test.statistic == abs(test.covariances).max()
    assert test.n_rows == 150


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


def test_views_are_permuted_where_they_do_not_depend_on_each_other():
    rng = np.random.default_rng(0)
    z, noise = rng.normal(size=(2, 100, 2))
    y = noise[:, 0] + noise[:, 1] > 0
    settings = {"n_trees": 30, "n_permutations": 19, "rng": 0}

    def permute(x, z, rng):
        return rng.permutation(x)

    test = stats.conditional_randomization_test(noise, y, z, "permuted", **settings)
    assert test.p_value == 0.05
    assert_same_bits(test, stats.conditional_randomization_test(noise, y, z, permute, **settings))
    for x in (0.5 * z + noise, np.exp(5 * (np.sin(2 * z) + 0.3 * noise))):
        with pytest.raises(ValueError, match="^sampler: expected x that is independent of z, got a distance"):
            stats.conditional_randomization_test(x, y, z, "permuted", **settings)
        stats.conditional_randomization_test(x, y, z, permute, **settings)
    with pytest.raises(TypeError, match='^sampler: expected a function or "permuted", got str'):
        stats.conditional_randomization_test(noise, y, z, "shuffled", **settings)


def test_dependence_of_views_is_judged_by_some_of_many_rows():
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, 20000, 1))
    conditional._require_independent(x, z, 0)
    with pytest.raises(ValueError, match="^sampler: "):
        conditional._require_independent(x + 0.3 * z, z, 0)
    with pytest.raises(ValueError, match="^x: expected at least 4 rows, got 3"):
        conditional._require_independent(x[:3], z[:3], 0)


# ------------------------------------------------------------------------------------------ arguments


def test_wrong_arguments():
    x, y = rows()
    few = lambda x, y, **settings: hforest.grow(x, y, 3)  # noqa: E731
    windows = hforest.samples(x, windows=(np.arange(N) * 4, np.arange(4)))
    for arguments, settings, error, message in (
        ((x, y), {"statistic": "mse"}, ValueError, "statistic: expected one of 'information', .*got 'mse'"),
        ((x, np.arange(N) % 3), {"statistic": "auc"}, ValueError,
         "statistic: expected one of 'information', 'accuracy', 'mutual_information', got 'auc'"),
        ((x, y), {"statistic": lambda p, y: np.nan, "n_trees": 20}, ValueError,
         "statistic: expected a function that returns a finite number, got nan"),
        ((x, y), {"statistic": lambda p: 1.0}, TypeError, r"statistic: expected a function that accepts \(p, y\)"),
        ((x, 0 * y), {}, ValueError, "y: expected labels of at least two classes, got one class"),
        ((x, y), {"grow": lambda x, y, **settings: None}, TypeError,
         "grow: expected a function that returns a hforest.tree.Forest, got NoneType"),
        ((x, y), {"grow": few, "n_trees": 20}, ValueError, "grow: expected a forest of n_trees = 20 trees, got 3"),
        *(((x, y), {"grow": functools.partial(hforest.grow, **{name: 3})}, TypeError,
           f"grow: expected a function that leaves {name} to its caller, got a functools.partial that binds {name}; ")
          for name in ("n_trees", "first_tree", "progress", "rng")),
        ((windows, y), {}, TypeError, "x: expected samples of an array, got Samples"),
        ((hforest.samples(scipy.sparse.csr_array(x)), y), {}, TypeError, "x: expected samples of an array, got Samples"),
        ((x[:6], [0, 0, 0, 1, 1, 1]), {"n_trees": 1, "rng": 0}, ValueError,
         "n_trees: expected votes for rows of different labels, got votes for"),
    ):  # fmt: skip
        with pytest.raises(error, match=f"^{message}"):
            stats.permutation_test(*arguments, **settings)
    for arguments, message in (
        ((x[:, 0], y, np.full((N, 2), np.inf)), "z: expected finite numbers, or NaN"),
        ((x[1:, 0], y, x), r"x: expected shape \(n_samples, n_columns\) with n_samples = 60, got \(59, 1\)"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            stats.conditional_test(*arguments)
    with pytest.raises(
        IndexError, match="^columns: expected feature indices below n_features = 4, got 4 to 4"
    ):
        stats.importance_test(x, y, columns=4)
    with pytest.raises(TypeError, match="^counts: expected a hforest.stats.HonestCounts, got tuple"):
        stats.posterior(hforest.grow(x, y, 2, rng=0), x, y, (np.ones((2, N), int),) * 2)


NAMES = list(of_every_test(np.zeros((4, 2)), np.zeros(4), np.zeros((4, 2))))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", NAMES)
def test_rows_that_tell_nothing_or_too_little(name):
    """One class, classes without rows, constant columns and targets raise an error or have a large p-value."""
    x, y = rows()

    def result(x, y, **settings):
        of = of_every_test(x[:, :2], y, x[:, 2:], **settings)[name]()
        return np.min(of.p_value)

    for part in (slice(None), slice(1)):
        with pytest.raises(ValueError, match="^y: expected labels of at least two classes, got one class; "):
            result(x[part], 0 * y[part])
    with pytest.raises(ValueError, match="^y: expected labels 0 to 7 that each occur, got none of class 1; "):
        result(x[:4], np.array([0, 7, 0, 7]))
    with pytest.raises(ValueError, match="^[xz]: expected 1 to .* samples, got 0; "):
        result(x[:0], y[:0])
    assert result(x, np.zeros(N), task="regression") == 1
    flat = result(0 * x, y)
    assert flat == 1 if name not in ("permutation", "randomization") else flat > 0.05
    if name in ("permutation", "randomization"):
        few = "^y: expected classes of which each tree has rows for its splits, for its leaves and out-of-bag, got 1"
    elif name in ("split", "correlation", "error"):
        few = "^y: expected classes with at least 1 row for the structure and 2 for the leaves, got 0 and 1"
    else:  # no class is divided
        assert 0 < result(x[:4], np.arange(4)) <= 1
        return
    with pytest.raises(ValueError, match=few):
        result(x[:4], np.arange(4))


def test_one_row_of_targets():
    x, y = np.zeros((1, 2)), np.zeros(1)
    with pytest.raises(
        ValueError, match="^n_trees: expected trees with out-of-bag rows, got none; grow more"
    ):
        stats.importance_test(x, y, task="regression", n_trees=20)
    with pytest.raises(ValueError, match="^n_trees: expected leaves with several rows, got votes for 0"):
        stats.split_test(x, y, task="regression", structure_share=0)
    with pytest.raises(ValueError, match="^n_trees: expected rows that are out-of-bag in all forests, got 0"):
        stats.conditional_test(x[:, :1], y, x[:, 1:], task="regression")


def test_a_bar_is_shown(capsys):
    x, y = rows()
    stats.permutation_test(x, y, n_trees=20, n_permutations=2, progress=True, rng=0)
    assert "2" in capsys.readouterr().err


# ------------------------------------------------------------------------------------- sizes of tests


def size(test, n_sets=200):
    """Returns the number of null data sets that a test rejects at the level 0.05."""
    return sum(test(seed) <= 0.05 for seed in range(n_sets))


@pytest.mark.slow
@pytest.mark.parametrize("statistic", ["information", "auc"])
def test_valid_tests_hold_their_level(statistic):
    """At the level 0.05, more than 20 of 200 null sets are rejected with probability 0.001."""

    def permuted(seed):
        settings = {"statistic": statistic, "n_trees": 30, "n_permutations": 99, "max_exceed": 5, "rng": seed}
        return stats.permutation_test(*null(40, 2, seed), **settings).p_value

    def split(seed, **more):
        settings = {"statistic": statistic, "n_trees": 30, "n_permutations": 99, "rng": seed}
        return stats.split_test(*null(40, 2, seed), **settings, **more).p_value

    for test in (permuted, split, functools.partial(split, structure_share=0)):
        assert size(test) <= 20


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


@pytest.mark.slow
def test_what_is_no_p_value_does_not_hold_a_level():
    """Such a value is that of labels permuted against one forest's posteriors."""

    def fixed_posteriors(seed):
        x, y = null(40, 2, seed)
        forest, counts = honest(x, y, 100, draw="bootstrap", rng=seed)
        p = stats.posterior(forest, x, y, counts).p
        observed = -stats.auc(p, y)  # the bias is negative
        drawn = [-stats.auc(p, draws.permutation(seed, b, 40) % 2) for b in range(99)]
        return (1 + np.sum(np.array(drawn) >= observed)) / 100

    assert size(fixed_posteriors, 100) > 15  # of a level of 0.05 with probability 1e-5


def test_the_bench_goes_on_with_its_record(script, tmp_path, monkeypatch, capsys):
    bench, path = script("stats"), tmp_path / "stats.json"
    names = [cell.name for cell in bench.cells()]
    assert len(names) == len(set(names)) == 132
    command = ["stats.py", "--cells", "split 64 1 *", "randomization 64 1 *", "--json", str(path)]
    monkeypatch.setattr(bench, "N_PERMUTATIONS", 9)
    monkeypatch.setattr("sys.argv", [*command, "--sets", "1"])
    bench.main()
    first = json.loads(path.read_text())["rows"]
    assert [len(row["p"]) for row in first] == [len(row["rank"]) for row in first] == [1, 1, 1, 1]
    monkeypatch.setattr("sys.argv", [*command, "--sets", "3"])
    bench.main()
    rows_now = json.loads(path.read_text())["rows"]
    for row, before in zip(rows_now, first, strict=True):
        assert row["p"][:1] == before["p"]
        assert len(row["p"]) == len(row["rank"]) == 3
        cell = bench.Cell(*(row[key] for key in bench.Cell._fields))
        assert (row["p"][2], row["rank"][2]) == bench.outcome(cell, 2)
    lines = list(bench.table([{**first[0], "p": [0.01, 0.05, 0.2, 1.0]}]))
    assert lines[2] == "| split | 64 | 1 | information | 4 | 0.500 | 0.250 |"
    assert lines[-1].startswith("| split | information | 4 | 0.500 | 0.250 | no | 0 of 1 | ")
    assert lines[0] in capsys.readouterr().out
    for test in ("no labels 64 1 distance_correlation", "importance 64 1 ufi", "importance 64 1 error"):
        cell = next(cell for cell in bench.cells() if cell.name == test)
        p, number = bench.outcome(cell, 0)
        assert p >= (1 + number) / 10  # ties count
        assert 0 <= number <= 9
        assert bench.outcome(cell, 0, effect=8.0) == (0.1, 0)
    x, _, z = bench.views("linear 0.9", 100000, np.random.default_rng(0))
    assert np.corrcoef(x.T, z.T)[:2, 2:] == pytest.approx(0.9 * np.eye(2), abs=0.02)
    for statistic in ("covariance", "view permuted"):
        assert 0.1 <= bench.outcome(bench.Cell("sine", 60, 2, statistic), 0)[0] <= 1
    for dependence, p in (("linear 0", 1.0), ("linear 0.9", 0.0)):
        assert bench.outcome(bench.Cell(dependence, 60, 2, "refused"), 0) == (p, 0)


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


def test_the_bench_of_correlations(script, monkeypatch, capsys):
    bench = script("stats")
    monkeypatch.setattr(bench, "N_PERMUTATIONS", 19)
    monkeypatch.setattr(bench, "CORRELATED", [(64, 1, "labels"), (32, 2, "targets")])
    monkeypatch.setattr("sys.argv", ["stats.py", "--correlations", "--sets", "2"])
    bench.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| 64, 1, labels", "| 32, 2, targets"]
    assert lines[2].startswith("| 64, 1, labels | 1.00, 1.00 | ")  # the forest knows the labels


def test_the_bench_compares_ranks(script):
    bench, rng = script("stats"), np.random.default_rng(0)
    null = np.array([1.0, 2.0, 2.0, 2.0, 3.0])
    numbers = [bench.rank(2.0, null, rng) for _ in range(400)]
    assert set(numbers) == {1, 2, 3, 4}  # ties broken at random
    assert np.bincount(numbers)[1:].min() > 60
    assert bench.uniform([(r, 99) for r in range(100)]) == pytest.approx(1)
    assert bench.uniform([(r, 99) for r in range(50)] * 2) < 1e-6
    assert bench.uniform([(r, 5) for r in range(6)] * 5) == pytest.approx(1)
    assert bench.uniform([(0, 5)] * 30) < 1e-6
    assert np.isnan(bench.uniform([]))


def test_unchecked():
    x, y = rows()
    with hforest.unchecked():
        test = stats.permutation_test(x, y, n_trees=20, n_permutations=2, rng=0)
    assert_same_bits(test, stats.permutation_test(x, y, n_trees=20, n_permutations=2, rng=0))


# ---------------------------------------------------------------------------------------- importances


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
    for n, size in ((1, 1), (10, 1), (10, 10), (1000, 400)):
        rows = draws.subset(3, 5, n, size)
        np.testing.assert_array_equal(rows, np.sort(draws.permutation(3, 5, n)[:size]))


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
