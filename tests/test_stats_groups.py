"""Groups of rows and strata: which rows share a part, which labels are permuted, and levels of the tests."""

import functools

import numpy as np
import pytest
from conftest import assert_same_bits
from test_stats import size

import hforest
from hforest import growth, stats, tree
from hforest.core import check, draws
from hforest.stats import groups as of_groups
from hforest.stats import permutation


def repeated(n_groups, seed, *, each=4, correlation=0.9, d=3, effect=0.0):
    """Returns normal columns with this correlation within groups of rows, a label for each group, and the groups."""
    rng = np.random.default_rng(seed)
    group = np.repeat(rng.permutation(n_groups), each)
    y = rng.permutation(np.arange(n_groups) % 2)[group]
    shared = rng.normal(size=(n_groups, d))[group]
    x = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * rng.normal(size=(len(group), d))
    x[:, 0] += effect * y
    return x, y, group


@pytest.mark.parametrize("draw", ["fixed", "bootstrap"])
def test_rows_of_a_group_are_in_the_same_part(draw):
    _, y, group = repeated(20, 0)
    counts = stats.honest_counts(y, 30, draw=draw, groups=group, rng=0)
    first = np.array([np.flatnonzero(group == g)[0] for g in range(20)])
    for of_rows, of_units in zip(counts, stats.honest_counts(y[first], 30, draw=draw, rng=0), strict=True):
        np.testing.assert_array_equal(of_rows, of_units[:, group])
    names = np.array([f"subject {g:02}" for g in range(20)])[group]
    assert_same_bits(list(stats.honest_counts(y, 30, draw=draw, groups=names, rng=0)), list(counts))
    single = stats.honest_counts(y, 30, draw=draw, groups=np.arange(80), rng=0)
    assert_same_bits(list(single), list(stats.honest_counts(y, 30, draw=draw, rng=0)))


def test_groups_with_several_labels_are_one_class():
    group, y = np.arange(40) // 4, np.arange(40) % 2
    counts = stats.honest_counts(y, 5, groups=group, rng=0)
    assert_same_bits(list(counts), [a[:, group] for a in stats.honest_counts(10, 5, rng=0)])


def test_labels_are_permuted_between_groups_and_within_strata():
    _, y, group = repeated(12, 0)
    site = np.array([0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2])[group]
    groups = of_groups.checked("groups", group, len(y))
    seen = set()
    for number in range(50):
        order = of_groups.Orders(groups, site, y).order(7, number)
        label, to = y[order], group[order]
        for g in range(12):
            assert len(set(label[group == g])) == len(set(to[group == g])) == 1
        np.testing.assert_array_equal(site[order], site)
        assert sorted(to[np.unique(group, return_index=True)[1]]) == list(range(12))
        seen.add(tuple(order))
    assert len(seen) == 50
    within = of_groups.Orders(of_groups.of_rows(6), np.array([0, 0, 0, 1, 1, 2]), np.arange(6))
    drawn = np.array([within.order(0, number) for number in range(600)])
    assert (drawn[:, 5] == 5).all()
    for at in range(3):
        assert np.bincount(drawn[:, at], minlength=3) == pytest.approx(200, abs=45)


def test_blocks_of_equal_size_swap_their_rows_in_order():
    group = np.array([3, 1, 3, 0, 1, 2, 0, 2, 3, 4])  # sizes 2, 2, 2, 3, 1
    groups = of_groups.checked("groups", group, len(group))
    orders = draws.orders(0, 0, 200, 5)
    swapped = of_groups.block_orders(groups, orders)
    taken = set()
    for order in swapped:
        np.testing.assert_array_equal(np.sort(order), np.arange(10))
        assert (order[[0, 2, 8, 9]] == [0, 2, 8, 9]).all()  # no other group of their size
        blocks = [tuple(order[group == g]) for g in range(3)]
        assert set(blocks) == {(3, 6), (1, 4), (5, 7)}
        taken.add(tuple(blocks))
    assert len(taken) == 6


def test_rows_of_a_group_do_not_predict_each_other():
    x, y, group = repeated(20, 1, effect=1.0)
    forest = hforest.grow(x, y, 20, rng=0)
    leaf = tree.apply(forest, x)
    groups = of_groups.checked("groups", group, len(y))
    plain = permutation.neighbors(forest, leaf, "counts")
    grouped = permutation.neighbors(forest, leaf, "counts", groups)
    same = group[:, None] == group
    assert not grouped[same].any()
    np.testing.assert_array_equal(grouped[~same], plain[~same])
    parts = permutation.split_rows(y, len(y), 0.5, 3, groups)
    assert not set(group[parts[0]]) & set(group[parts[1]])
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(y)))


@pytest.mark.parametrize(
    "test",
    [
        functools.partial(stats.permutation_test, n_trees=30, n_permutations=19),
        functools.partial(stats.split_test, n_permutations=19),
        functools.partial(stats.importance_test, columns=0, n_trees=30, n_copies=19),
        functools.partial(stats.importance_test, columns=0, n_trees=30, n_copies=19, screen=1),
    ],
)
def test_dependence_of_groups_is_found(test):
    x, y, group = repeated(30, 0, correlation=0.5, effect=3.0)
    assert test(x, y, groups=group, rng=0).p_value == 0.05
    single = np.arange(len(y))
    assert_same_bits(list(test(x, y, groups=single, rng=0)), list(test(x, y, rng=0)))


def test_groups_are_out_of_bag_together():
    """Counts of rows with groups are as if all rows of a group had been drawn."""
    x, y, group = repeated(30, 0)
    n, n_trees = len(y), 60
    counts = growth.bootstrap_counts(n, n_trees, n_draws=9, rng=0)
    forest = hforest.grow(x, y, n_trees, bootstrap=counts, rng=0)
    whole = np.stack([[row[group == g].sum() for g in group] for row in counts])
    p = tree.out_of_bag(forest, x, counts, groups=group)
    np.testing.assert_array_equal(p, tree.out_of_bag(forest, x, whole))
    assert (p != tree.out_of_bag(forest, x, counts)).any()
    both = stats.HonestCounts(counts, counts)
    of_groups_ = stats.posterior(forest, x, y, both, groups=group.astype(str), weighting="shares")
    np.testing.assert_allclose(of_groups_.p, p)
    assert (of_groups_.votes == (whole == 0).sum(axis=0)).all()
    assert_same_bits(
        stats.posterior(forest, x, y, both, groups=np.arange(n)), stats.posterior(forest, x, y, both)
    )


def test_bootstraps_of_groups():
    group = np.repeat([3, 1, 2], [1, 2, 3])
    counts = growth.bootstrap_counts(6, 50, groups=group, rng=0)
    np.testing.assert_array_equal(counts[:, [1, 3, 0]], growth.bootstrap_counts(3, 50, rng=0))
    assert (counts[:, 1] == counts[:, 2]).all()
    assert (counts[:, 3:] == counts[:, 3:4]).all()
    assert (
        growth.bootstrap_counts(6, 9, groups=group, n_draws=7, rng=0)[:, [0, 1, 3]].sum(axis=1) == 7
    ).all()
    with pytest.raises(ValueError, match="^groups: expected None with sample_weight, got both"):
        growth.bootstrap_counts(6, 2, groups=group, sample_weight=np.ones(6))
    with pytest.raises(ValueError, match=r"^groups: expected shape \(n_samples,\) = \(6,\)"):
        growth.bootstrap_counts(6, 2, groups=group[1:])


def test_conditional_test_draws_signs_of_groups():
    x, y, group = repeated(40, 0, effect=2.0)
    of_z = functools.partial(stats.conditional_test, x[:, 0], y, x[:, 1:], n_bootstrap=99, rng=0)
    assert of_z(groups=group).p_value == 0.01
    assert_same_bits(list(of_z(groups=np.arange(len(y)))), list(of_z()))
    assert of_z(groups=group).statistic < of_z().statistic


def test_wrong_groups():
    x, y, group = repeated(10, 0)
    test = functools.partial(stats.permutation_test, x, y, n_trees=20, n_permutations=3, rng=0)
    for settings, error, message in (
        ({"groups": group[1:]}, ValueError, r"groups: expected shape \(n_samples,\) = \(40,\), got \(39,\)"),
        ({"groups": np.zeros(40)}, ValueError, "groups: expected at least two different values, got 1"),
        ({"groups": np.arange(40) // 3}, ValueError, "groups: expected one label, or target, in each group"),
        ({"groups": [None, 1] * 20}, TypeError, "groups: expected numbers or texts"),
        (
            {"strata": np.arange(40)},
            ValueError,
            "strata: expected strata of several rows, or groups, got one",
        ),
        (
            {"groups": group, "strata": np.arange(40) % 2},
            ValueError,
            "strata: expected one stratum for each group",
        ),
    ):
        with pytest.raises(error, match=f"^{message}"):
            test(**settings)
    with pytest.raises(ValueError, match='^groups: expected None with by="error", got groups'):
        stats.importance_test(x, y, by="error", groups=group)
    assert check.seed(0)


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_tests_of_groups_hold_their_level(correlation):
    """Rows of a group have a common part and a common label; without groups the level is exceeded."""

    def data(seed):
        x, y, group = repeated(16, seed, correlation=correlation, d=2)
        return x, y, {"groups": group, "rng": seed}

    def permuted(seed):
        x, y, settings = data(seed)
        return stats.permutation_test(x, y, n_trees=20, n_permutations=19, max_exceed=5, **settings).p_value

    def split(seed):
        x, y, settings = data(seed)
        return stats.split_test(x, y, n_trees=20, n_permutations=39, **settings).p_value

    def importance(seed):
        x, y, settings = data(seed)
        return float(stats.importance_test(x, y, columns=0, n_trees=20, n_copies=39, **settings).p_value[0])

    for test in (permuted, split, importance):
        assert size(test) <= 20, test
    if correlation:

        def without(seed):
            x, y, _ = data(seed)
            return stats.split_test(x, y, n_trees=20, n_permutations=39, rng=seed).p_value

        assert size(without) > 40
