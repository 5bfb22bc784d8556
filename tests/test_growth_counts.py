"""In-bag counts: bootstraps, draws by weights, Poisson counts, and growth with counts of the caller."""

import math

import numpy as np
import pytest
from conftest import assert_same_bits, refused
from growers import GROWERS, Table, blobs, problem

import hforest
from hforest import growth, tree
from hforest.core import check, philox

pytestmark = pytest.mark.kernels


def test_bootstrap_counts():
    counts = growth.bootstrap_counts(1000, 5, rng=3)
    with hforest.using("reference"):
        np.testing.assert_array_equal(growth.bootstrap_counts(1000, 5, rng=3), counts)
    assert (counts.sum(axis=1) == 1000).all()
    # A sample stays out with probability (1 - 1 / n)**n, about 1 / e.
    assert abs((counts == 0).mean() - np.exp(-1)) < 0.03
    assert not np.array_equal(counts[0], counts[1])


def reference_draws(seed, tree, n_draws, weight):
    """Returns how often a tree draws each sample, computed draw by draw."""
    key, counts = philox.keys(philox.philox(seed, tree, 0))[0], np.zeros(len(weight), int)
    equal = all(w == weight[0] for w in weight)
    for i in range(n_draws):
        if equal:
            counts[philox.below(philox.philox(key, i // 4, 1)[i % 4], len(weight))] += 1
            continue
        share = (philox.keys(philox.philox(key, i // 2, 13))[i % 2] >> 11) * 2.0**-53 * sum(weight)
        row = 0
        while sum(weight[: row + 1]) <= share:
            row += 1
        counts[row] += 1
    return counts


@pytest.mark.parametrize("n_draws", [1, 7, 40, 333])
@pytest.mark.parametrize("weight", [[1] * 9, [4, 0, 1, 1, 2, 0, 0, 7, 0]], ids=["equal", "weights"])
def test_bootstraps_of_any_size_and_by_weights(n_draws, weight, monkeypatch):
    given = {"n_draws": n_draws, "sample_weight": None if weight[0] == 1 else weight, "rng": 3}
    whole = growth.bootstrap_counts(9, 6, first_tree=2, **given)
    assert whole.dtype == np.int32
    want = [reference_draws(check.seed(3), 2 + m, n_draws, weight) for m in range(6)]
    np.testing.assert_array_equal(whole, want)
    monkeypatch.setattr(growth.counts, "_DRAWS", 8)
    again = growth.bootstrap_counts(9, 2, first_tree=5, **given)
    np.testing.assert_array_equal(again, whole[3:5])


def test_bootstraps_of_as_many_draws_are_those_of_growth():
    for n in (1, 5, 1001):
        whole = growth.bootstrap_counts(n, 3, first_tree=4, rng=5)
        np.testing.assert_array_equal(growth.bootstrap_counts(n, 3, n_draws=n, first_tree=4, rng=5), whole)


def test_draws_by_weights_have_their_probabilities():
    weight = np.array([0, 1, 2, 3, 0])
    for scale in (1.0, 1e-99, 1e99):
        counts = growth.bootstrap_counts(5, 1, n_draws=60000, sample_weight=scale * weight, rng=1)[0]
        assert counts[weight == 0].sum() == 0
        expected = np.array([10000, 20000, 30000])
        assert ((counts[1:4] - expected) ** 2 / expected).sum() < 14  # chi-squared of 2 degrees: 0.001 above
    np.testing.assert_array_equal(growth.bootstrap_counts(3, 2, sample_weight=[0, 5, 0]), [[0, 3, 0]] * 2)


@pytest.mark.parametrize(
    ("sizes", "settings", "error", "message"),
    [
        ((5, 2), {"n_draws": 0}, ValueError, "^n_draws: expected 1 to 2147483647, got 0"),
        ((5, 2), {"n_draws": 0.5}, TypeError, "^n_draws: expected an int"),
        ((0, 2), {"n_draws": 1}, ValueError, "^n_samples: expected at least 1 to draw from, got 0"),
        ((2, 2), {"sample_weight": [0, 0]}, ValueError, "^sample_weight: expected at least one weight above 0, got only zeros"),
        ((2, 2), {"sample_weight": [1, 1, 1]}, ValueError, r"^sample_weight: expected shape \(n_samples,\)"),
    ],
)  # fmt: skip
def test_draws_that_are_refused(sizes, settings, error, message):
    with pytest.raises(error, match=message):
        growth.bootstrap_counts(*sizes, **settings)


def test_poisson_counts(backend):
    whole = growth.poisson_counts(2001, 3, first_tree=5, rng=3)
    shares = np.bincount(whole.ravel(), minlength=5)[:5] / whole.size
    np.testing.assert_allclose(shares, np.exp(-1) / np.array([1, 1, 2, 6, 24]), atol=0.02)
    for first, n in ((0, 1), (1, 7), (1998, 3), (5, 0)):  # parts of rows, parts of trees
        part = growth.poisson_counts(n, 2, first_row=first, first_tree=6, rng=3)
        np.testing.assert_array_equal(part, whole[1:, first : first + n])
    x, y = np.arange(2001.0)[:, None], np.arange(2001) % 3 == 0
    drawn, given = (
        hforest.grow(x, y, 3, bootstrap=bootstrap, first_tree=5, max_depth=2, rng=3)
        for bootstrap in ("poisson", whole)
    )
    assert_same_bits(drawn, given)


def test_the_table_of_poisson_counts():
    shares = np.cumsum([np.exp(-1) / math.factorial(k) for k in range(12)]) * 2.0**32
    words = [0, *(int(a) + d for a in shares for d in (-1, 1)), 2**32 - 1]
    found = [philox.poisson(word) for word in words]
    assert found == sorted(found)
    assert set(found) == set(range(13))


# ------------------------------------------------------------------------------- growth with in-bag counts


@pytest.mark.parametrize("name", GROWERS)
def test_forests_of_counts(name):
    x, y = problem(30, 3, 2)
    counts = growth.bootstrap_counts(30, 4, rng=3)
    want = GROWERS[name](x, y, 4, bootstrap=counts, rng=3)
    assert_same_bits(GROWERS[name](x, y, 4, bootstrap=True, rng=3), want)
    few = np.where(np.arange(30) < 10, 2, 0) * np.ones((4, 1), np.int32)
    some = GROWERS[name](x, y, 4, bootstrap=few, rng=0)
    assert_same_bits(GROWERS[name](x, y, 4, bootstrap=few.astype(np.uint8), rng=0), some)
    few[2] = 0
    message = "^bootstrap: expected at least one sample in each row, got only zeros in row 2; draw"
    with pytest.raises(ValueError, match=message):
        GROWERS[name](x, y, 4, bootstrap=few, rng=0)


@pytest.mark.parametrize("name", ["features", "sparse"])
def test_counts_of_any_dtype_and_layout(name):
    x, y = problem(60, 5, dtype=np.float32)
    counts, grow = growth.bootstrap_counts(60, 3, rng=1), GROWERS[name]
    want = grow(x, y, 3, rng=1)
    for other in (
        counts,
        counts.astype(int),
        counts.astype("u1"),
        np.asfortranarray(counts),
        counts.tolist(),
    ):
        assert_same_bits(grow(x, y, 3, bootstrap=other, rng=1), want)
    drawn = counts > 0
    assert_same_bits(
        grow(x, y, 3, bootstrap=drawn, rng=1), grow(x, y, 3, bootstrap=drawn.astype(np.int32), rng=1)
    )


# ------------------------------------------------------------------------------------- out-of-bag predictions


@pytest.mark.parametrize("name", ["features", "sparse"])
def test_out_of_bag_by_hand(name):
    x, y = blobs(30)
    forest = GROWERS[name](x, y, 3, bootstrap=True, rng=5)
    counts = growth.bootstrap_counts(30, 3, rng=5)
    got, leaf = tree.out_of_bag(forest, x, counts), tree.apply(forest, x)
    for i in range(30):
        rows = []
        for m in np.flatnonzero(counts[:, i] == 0):
            root = forest.tree_start[m]
            rows.append(forest.value[(root + m) // 2 + forest.left[root + leaf[i, m]]])
        if rows:
            np.testing.assert_allclose(got[i], np.mean(rows, axis=0), rtol=1e-12)
        else:
            assert np.isnan(got[i]).all()


def test_out_of_bag_converts_rows_to_the_forests_dtype(dtype):
    x, y = blobs(60, dtype=np.float32)
    forest = hforest.grow(x.astype(dtype), y, 5, rng=3)
    counts = growth.bootstrap_counts(60, 5, rng=3)
    want = tree.out_of_bag(forest, x.astype(dtype), counts)
    assert want.dtype == dtype
    for other in (x, x.astype(np.float64), np.asfortranarray(x), Table(x), x.tolist()):
        for many in (counts, counts.astype(np.int64), counts.astype(object), counts.tolist()):
            np.testing.assert_array_equal(tree.out_of_bag(forest, other, many), want)


@pytest.mark.parametrize(
    ("counts", "error", "message"),
    [
        (np.zeros((2, 19), np.int32), ValueError, r"counts: expected shape \(n_trees, n_samples\) = \(2, 20\)"),
        (np.zeros((2, 20)), TypeError, "counts: expected an array of an integer dtype"),
        (np.full((2, 20), -1), ValueError, "counts: expected counts from 0"),
    ],
)  # fmt: skip
def test_bad_counts(counts, error, message):
    x, y = blobs(20)
    with pytest.raises(error, match=message):
        tree.out_of_bag(hforest.grow(x, y, 2, rng=0), x, counts)


@pytest.mark.parametrize(
    "counts", [[[1], [1, 2]], [np.zeros((2, 2)), np.zeros((2, 3))], np.ma.ones((1, 2)), "all", None]
)
def test_counts_that_are_no_array(counts):
    x, y = np.zeros((2, 1)), [0, 1]
    for name in ("features", "extra", "random", "sparse", "co2"):
        with pytest.raises((TypeError, ValueError), match="^bootstrap: expected .*, got .*; "):
            GROWERS[name](x, y, 1, bootstrap=counts)
    with pytest.raises(TypeError, match="^counts: expected .*, got .*; "):
        tree.out_of_bag(hforest.grow(x, y, 1), x, counts)


@pytest.mark.parametrize(
    ("max_samples", "n_draws"), [(1, 1), (7, 7), (0.5, 30), (0.01, 1), (1.0, 60), (2.25, 135)]
)
def test_number_of_draws(max_samples, n_draws):
    x, y = problem(60, 3)
    counts = growth.bootstrap_counts(60, 4, n_draws=n_draws, first_tree=2, rng=5)
    settings = {"n_classes": 3, "first_tree": 2, "rng": 5}
    f = hforest.grow(x, y, 4, max_samples=max_samples, **settings)
    assert_same_bits(f, hforest.grow(x, y, 4, bootstrap=counts, **settings))
    with hforest.using("reference"):
        np.testing.assert_array_equal(
            growth.bootstrap_counts(60, 4, n_draws=n_draws, first_tree=2, rng=5), counts
        )


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"max_samples": 0}, ValueError, "max_samples: expected 1 to"),
        ({"max_samples": 0.0}, ValueError, "max_samples: expected a finite number > 0"),
        ({"max_samples": np.nan}, ValueError, "max_samples: expected a finite number > 0"),
        ({"max_samples": 1e300}, ValueError, "max_samples: expected 1 to"),
        ({"max_samples": "all"}, TypeError, "max_samples: expected None, an int or a float, got str"),
        ({"max_samples": True}, TypeError, "max_samples: expected None, an int or a float, got bool"),
        (
            {"max_samples": 5, "bootstrap": False},
            ValueError,
            "max_samples: expected None without bootstrap=True, got 5",
        ),
        ({"max_samples": 5, "bootstrap": "poisson"}, ValueError, "max_samples: expected None without"),
    ],
)
def test_bad_numbers_of_draws(settings, error, words):
    with refused(error, "^" + words):
        hforest.grow(*problem(60, 3), 4, **settings)
