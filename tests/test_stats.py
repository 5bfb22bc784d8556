"""Honest forests, statistics of posteriors, and tests, against loops, known answers and other libraries."""

import contextlib
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
from hforest.core import draws, machine, philox
from hforest.stats import permutation, problem

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


def test_words_are_those_of_counters_keys_and_streams():
    key, streams = 2**63 + 12345, np.array([[5], [2**62 + 1]], np.uint64)
    pairs = [
        [philox.keys(philox.philox(key, c, int(s))) for c in range(2**33, 2**33 + 4)] for s in streams.flat
    ]
    want = np.array(pairs, np.uint64).reshape(2, 1, 8)
    for first, n in itertools.product(range(3), range(6)):
        got = machine.words(key, streams, 2**34 + first, n)
        np.testing.assert_array_equal(got, want[..., first : first + n])
        np.testing.assert_array_equal(machine.words(key, 5, 2**34 + first, n), got[0, 0])
        np.testing.assert_array_equal(machine.words([key, key], 5, 2**34 + first, n), got[[0, 0], 0])
        assert machine.words([], 5, first, n).shape == (0, n)
        part = draws.of_rows(key, 2**34 + first, n)
        want32 = [philox.philox(key, (2**34 + r) // 4, philox.ROWS)[r % 4] for r in range(first, first + n)]
        assert part.tolist() == want32


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
def test_permutations_do_not_end_without_votes(monkeypatch):
    """Forests without votes for both classes are drawn anew; what no draw serves counts against rejection."""
    x, y = np.random.default_rng(0).normal(size=(8, 2)), np.arange(8) % 2
    settings = {"n_trees": 1, "n_permutations": 19, "max_exceed": None}
    tests = [stats.permutation_test(x, y, rng=seed, **settings) for seed in range(20)]
    assert np.isfinite([test.null for test in tests]).all()
    monkeypatch.setattr(permutation, "_DRAWS", 1)
    with pytest.raises(
        ValueError, match="^n_trees: expected votes for rows of different labels, got votes for"
    ):
        for seed in range(20):
            stats.permutation_test(x, y, rng=seed, **settings)
    larger = 0
    for seed, usual in enumerate(tests):
        with contextlib.suppress(permutation.FewVotesError):
            test = stats.permutation_test(x, y, rng=seed, **settings)
            drawn = np.isfinite(test.null)
            np.testing.assert_array_equal(test.null[drawn], usual.null[drawn])
            assert test.p_value == (1 + (test.null >= test.statistic).sum()) / 20
            assert test.p_value >= (1 + (~drawn).sum()) / 20
            larger += (~drawn).sum()
    assert larger


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
    assert len(names) == len(set(names)) == 153
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
