"""Growth: bins, in-bag counts, and trees that equal those of the reference implementation."""

import contextlib
import itertools
import math
import pickle
from functools import partial

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse
from conftest import ON_GPU, entered, several_paths
from fuzz import leaks

import hforest
from hforest import classic, co2, growth, manifold, project, tree
from hforest.core import blocks, check, dispatch, machine, philox
from hforest.growth import cpu, gpu_builder, gpu_levels, gpu_small, gpu_structs

pytestmark = pytest.mark.kernels


def make(x, y, *, n_trees=3, n_classes=3, max_bins=None, **settings):
    """Returns trees on x; with n_classes None those of a regression."""
    bins = growth.encode(x, max_bins=max_bins)
    task = "regression" if n_classes is None else "classification"
    settings = {"max_features": min(2, x.shape[1]), "rng": 1} | settings
    return growth.grow(bins, y, n_trees, task=task, n_classes=n_classes, **settings)


def samples(n, n_features, n_classes, dtype, seed, coarse):
    rng = np.random.default_rng(seed)
    x = rng.integers(-2, 3, (n, n_features)) * 0.5 if coarse else rng.normal(size=(n, n_features))
    return x.astype(dtype), rng.integers(0, n_classes, n).astype(np.int32)


def assert_same(got, want):
    for name, a, b in zip(got._fields, got, want, strict=True):
        if name == "gain":
            np.testing.assert_allclose(a, b, rtol=1e-5 if a.dtype == np.float32 else 1e-9, atol=1e-9)
        else:
            np.testing.assert_array_equal(a, b, err_msg=name)


def both(*args, **settings):
    """Returns the same trees from the CPU backend and from the reference implementation."""
    got = make(*args, **settings)
    with hforest.using("reference"):
        want = make(*args, **settings)
    assert_same(got, want)
    return got


# -------------------------------------------------------------------------------------------- bins


@hypothesis.given(
    n=st.integers(1, 80),
    n_columns=st.integers(1, 4),
    most=st.sampled_from([None, 1, 2, 7, 256]),
    coarse=st.booleans(),
    double=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_bins(n, n_columns, most, coarse, double, seed):
    x, _ = samples(n, n_columns, 2, np.float64 if double else np.float32, seed, coarse)
    x[::3] *= -1  # zeros of either sign
    bins = growth.encode(x, max_bins=most)
    with hforest.using("reference"):
        expected = growth.encode(x, max_bins=most)
    for a, b in zip(bins, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert bins.dtype == x.dtype
    for f in range(n_columns):
        c = bins.bins[f]
        assert (bins.low[f, c] <= x[:, f]).all()
        assert (x[:, f] <= bins.high[f, c]).all()
        order = np.argsort(x[:, f], kind="stable")
        assert (np.diff(c[order].astype(int)) >= 0).all()
        if most is None:
            assert (bins.low[f, c] == x[:, f]).all()
        else:
            assert c.max() < most


def test_bins_take_the_smallest_type():
    for n, dtype in ((256, np.uint8), (257, np.uint16), (65536, np.uint16), (65537, np.uint32)):
        assert growth.encode(np.arange(n, dtype=np.float64)[:, None]).bins.dtype == dtype


def test_bins_hold_about_as_many_samples_each():
    x = np.random.default_rng(0).normal(size=(10_000, 1))
    counts = np.bincount(growth.encode(x, max_bins=100).bins[0])
    assert len(counts) == 100
    assert counts.min() >= 98
    assert counts.max() <= 102


def test_extreme_values_keep_their_order():
    tiny = np.nextafter(0, 1)
    x = np.array([np.finfo(float).max, -tiny, 0.0, tiny, 1.0, np.nextafter(1, 2), -np.finfo(float).max])[
        :, None
    ]
    assert growth.encode(x).bins[0].tolist() == [6, 1, 2, 3, 4, 5, 0]


# -------------------------------------------------------------------------------------------- counts


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
    given = None if weight[0] == 1 else weight
    whole = growth.bootstrap_counts(9, 6, n_draws=n_draws, sample_weight=given, first_tree=2, rng=3)
    assert whole.dtype == np.int32
    np.testing.assert_array_equal(
        whole, [reference_draws(check.seed(3), 2 + m, n_draws, weight) for m in range(6)]
    )
    monkeypatch.setattr(growth.drawing, "_DRAWS", 8)
    again = growth.bootstrap_counts(9, 2, n_draws=n_draws, sample_weight=given, first_tree=5, rng=3)
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


def test_draws_that_are_refused():
    with pytest.raises(ValueError, match="^n_draws: expected 1 to 2147483647, got 0"):
        growth.bootstrap_counts(5, 2, n_draws=0)
    with pytest.raises(TypeError, match="^n_draws: expected an int"):
        growth.bootstrap_counts(5, 2, n_draws=0.5)
    with pytest.raises(ValueError, match="^n_samples: expected at least 1 to draw from, got 0"):
        growth.bootstrap_counts(0, 2, n_draws=1)
    with pytest.raises(
        ValueError, match="^sample_weight: expected at least one weight above 0, got only zeros"
    ):
        growth.bootstrap_counts(2, 2, sample_weight=[0, 0])
    with pytest.raises(ValueError, match=r"^sample_weight: expected shape \(n_samples,\)"):
        growth.bootstrap_counts(2, 2, sample_weight=[1, 1, 1])


def test_poisson_counts(backend):
    whole = growth.poisson_counts(2001, 3, first_tree=5, rng=3)
    shares = np.bincount(whole.ravel(), minlength=5)[:5] / whole.size
    np.testing.assert_allclose(shares, np.exp(-1) / np.array([1, 1, 2, 6, 24]), atol=0.02)
    for first, n in ((0, 1), (1, 7), (1998, 3), (5, 0)):  # parts of rows, parts of trees
        part = growth.poisson_counts(n, 2, first_row=first, first_tree=6, rng=3)
        np.testing.assert_array_equal(part, whole[1:, first : first + n])
    x, y = np.arange(2001.0)[:, None], np.arange(2001) % 3 == 0
    drawn = classic.grow(x, y, 3, bootstrap="poisson", first_tree=5, max_depth=2, rng=3)
    given = classic.grow(x, y, 3, bootstrap=whole, first_tree=5, max_depth=2, rng=3)
    for a, b in zip(drawn, given, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="bootstrap: expected"):
        growth.grow(growth.encode(x), y, 1, bootstrap="bernoulli")


def test_the_table_of_poisson_counts():
    shares = np.cumsum([np.exp(-1) / math.factorial(k) for k in range(12)]) * 2.0**32
    words = [0, *(int(a) + d for a in shares for d in (-1, 1)), 2**32 - 1]
    found = [philox.poisson(word) for word in words]
    assert found == sorted(found)
    assert set(found) == set(range(13))


# ------------------------------------------------------------------------------------------- trees


@hypothesis.given(
    n=st.integers(1, 60),
    n_features=st.integers(1, 5),
    n_classes=st.integers(1, 4),
    criterion=st.sampled_from(["gini", "entropy"]),
    weighted=st.sampled_from(["ones", "whole", "floats", "zeros"]),
    bootstrap=st.booleans(),
    max_bins=st.sampled_from([None, 3, 256]),
    max_depth=st.sampled_from([None, 0, 1, 3]),
    min_samples_leaf=st.integers(1, 4),
    min_samples_split=st.sampled_from([2, 5]),
    min_impurity_decrease=st.sampled_from([0.0, 0.01]),
    min_weight_fraction_leaf=st.sampled_from([0.0, 0.0, 0.1, 0.3]),
    splitter=st.sampled_from(["best", "random"]),
    max_features=st.sampled_from(["sqrt", 1, None]),
    coarse=st.booleans(),
    double=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_trees_equal_the_reference(
    n, n_features, n_classes, criterion, weighted, bootstrap, max_bins, max_depth, min_samples_leaf,
    min_samples_split, min_impurity_decrease, min_weight_fraction_leaf, splitter, max_features, coarse, double,
    seed,
):  # fmt: skip
    x, y = samples(n, n_features, n_classes, np.float64 if double else np.float32, seed, coarse)
    rng = np.random.default_rng(seed)
    weights = {
        "ones": np.ones(n),
        "whole": rng.integers(1, 300, n).astype(float),
        "floats": rng.random(n) + 0.1,
        "zeros": (rng.random(n) < 0.7).astype(float),
    }[weighted]
    weights[0] = 1
    both(
        x, y, sample_weight=weights, n_classes=n_classes, criterion=criterion, bootstrap=bootstrap, rng=seed,
        max_bins=max_bins, max_depth=max_depth, min_samples_leaf=min_samples_leaf,
        min_samples_split=min_samples_split, min_impurity_decrease=min_impurity_decrease,
        min_weight_fraction_leaf=min_weight_fraction_leaf, splitter=splitter, max_features=max_features,
    )  # fmt: skip


@hypothesis.given(
    n=st.integers(1, 50),
    n_features=st.integers(1, 4),
    n_outputs=st.integers(1, 3),
    weighted=st.booleans(),
    bootstrap=st.booleans(),
    splitter=st.sampled_from(["best", "random"]),
    max_features=st.sampled_from(["sqrt", 1, None]),
    max_bins=st.sampled_from([None, 5]),
    seed=st.integers(0, 1000),
)
def test_regression_trees_equal_the_reference(
    n, n_features, n_outputs, weighted, bootstrap, splitter, max_features, max_bins, seed
):
    x, _ = samples(n, n_features, 2, np.float64, seed, False)
    rng = np.random.default_rng(seed)
    y = x @ rng.normal(size=(n_features, n_outputs)) + 100
    both(
        x, y, sample_weight=rng.random(n) + 0.5 if weighted else None, n_classes=None,
        bootstrap=bootstrap, splitter=splitter, max_features=max_features, max_bins=max_bins, rng=seed,
    )  # fmt: skip


@pytest.mark.slow
def test_larger_trees_equal_the_reference():
    # More samples than a byte of bins, more classes than a byte, more candidates than one draw of the generator.
    x, y = samples(260, 9, 257, np.float32, 0, False)
    both(x, y, n_trees=1, n_classes=257, max_features=6)
    x, y = samples(500, 9, 5, np.float64, 1, True)
    both(x, y, n_trees=2, n_classes=5, max_features=9, criterion="entropy")


def test_a_node_samples_on_while_candidates_are_constant():
    x = np.zeros((20, 8))
    x[:, 5] = np.arange(20)
    y = (np.arange(20) > 9).astype(np.int32)
    grown = both(x, y, n_classes=2, max_features=1, bootstrap=False, n_trees=4)
    assert grown.feature.tolist() == [5, -1, -1] * 4
    assert (grown.threshold[::3] == 9.5).all()


def test_exclusive_or_has_a_first_step_without_gain():
    x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], float)
    y = np.array([0, 1, 1, 0], np.int32)
    grown = both(x, y, n_classes=2, bootstrap=False)
    assert (np.diff(grown.tree_start) == 7).all()
    assert grown.gain[0] == 0


def test_thresholds_separate_neighbouring_floats():
    a = np.float32(1)
    b = np.nextafter(a, np.float32(2))
    x = np.array([[a], [b], [b]], np.float32)
    grown = both(x, np.array([0, 1, 1], np.int32), n_classes=2, bootstrap=False, n_trees=1)
    assert grown.threshold[0] == a


def test_thresholds_of_huge_numbers_do_not_overflow():
    big = np.finfo(np.float64).max
    x = np.array([[-big], [big * 0.99], [big]])
    grown = both(x, np.array([0, 1, 0], np.int32), n_classes=2, bootstrap=False, n_trees=1)
    assert np.isfinite(grown.threshold).all()
    assert len(grown.feature) == 5


def test_least_gain_is_a_share_of_the_trees_weight():
    x = np.arange(8.0)[:, None]
    y = np.array([0, 0, 0, 0, 0, 0, 0, 1], np.int32)
    # W H falls from 8 * 2 * 7 / 64 = 1.75 to 0: a gain of 1.75 / 8 a unit of weight.
    share = 1.75 / 8
    for least, nodes in ((share - 1e-9, 3), (share + 1e-9, 1)):
        grown = make(x, y, n_classes=2, n_trees=1, bootstrap=False, min_impurity_decrease=least)
        assert len(grown.feature) == nodes


def test_random_thresholds_are_uniform():
    x = np.array([[0.0], [1.0]])
    grown = make(x, np.array([0, 1], np.int32), n_classes=2, n_trees=4000, bootstrap=False, splitter="random")
    found = grown.threshold[::3]
    assert np.abs(np.quantile(found, [0.1, 0.5, 0.9]) - [0.1, 0.5, 0.9]).max() < 0.03
    assert 0 <= found.min() < found.max() < 1


# More than 256 values: nodes of few samples read them, large ones their ranks.
@pytest.mark.parametrize("weights", ["none", "whole", "real"])
@pytest.mark.parametrize("task", ["gini", "entropy", "regression"])
def test_extra_trees_equal_the_reference_at_every_number_of_threads(simd, threads, dtype, task, weights):
    x, y = samples(320, 5, 4, dtype, 3, False)
    x[:, 3] = 1
    rng = np.random.default_rng(0)
    given = {"none": None, "whole": rng.integers(0, 400, 320), "real": rng.random(320) + 0.1}[weights]
    settings = {"splitter": "random", "max_features": None, "bootstrap": False, "sample_weight": given}
    if task == "regression":
        y, settings["n_classes"] = x[:, 0] + y, None
    else:
        settings |= {"criterion": task, "n_classes": 4, "min_samples_leaf": 2}
    want = both(x, y, **settings)
    for path in ("plain", machine.simd_paths()[-1]):
        simd(path)
        for count in (1, 2, 7):
            threads(count)
            same_bits(make(x, y, **settings), want)


def test_extra_trees_on_one_feature_are_completely_random():
    x, y = samples(120, 4, 3, np.float64, 0, False)
    for a, b in zip(
        classic.grow_extra(x, y, 3, max_features=1, rng=0), classic.grow_random(x, y, 3, rng=0), strict=True
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_threads_do_not_change_trees(threads, task):
    x, y = samples(300, 6, 3, np.float32, 0, False)
    target = (y, 3) if task == "classification" else (x[:, :2].astype(float), None)
    found = []
    for count in (1, 2, 7):
        threads(count)
        found.append(make(x, target[0], n_classes=target[1], n_trees=20))
    for trees in found[1:]:
        for a, b in zip(trees, found[0], strict=True):
            np.testing.assert_array_equal(a, b)


def test_trees_do_not_depend_on_how_many_there_are():
    x, y = samples(100, 4, 3, np.float32, 0, False)
    few, many = make(x, y, n_trees=2), make(x, y, n_trees=30)
    stop = few.tree_start[-1]
    assert many.tree_start[2] == stop
    np.testing.assert_array_equal(many.threshold[:stop], few.threshold)


@pytest.mark.parametrize("stop", [False, np.False_])
def test_progress_and_its_end(stop):
    x, y = samples(50, 4, 3, np.float32, 0, False)
    calls = []

    def progress(done, n_trees):
        calls.append((done, n_trees))
        return stop if done >= 20 else None

    grown = make(x, y, n_trees=1000, progress=progress)
    assert calls[-1][1] == 1000
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})
    assert calls[-1][0] == len(grown.tree_start) - 1 < 1000
    assert calls[-1][0] >= 20
    whole = make(x, y, n_trees=calls[-1][0])
    np.testing.assert_array_equal(grown.threshold, whole.threshold)


def test_small_trees_without_progress_grow_in_one_batch(monkeypatch):
    # Each batch waits for its threads, which takes longer than these trees if other processes run.
    sizes = []
    grow = cpu.grow
    monkeypatch.setattr(cpu, "grow", lambda *args: (sizes.append(args[-1].n_trees), grow(*args))[1])
    x, y = samples(50, 3, 3, np.float32, 0, False)
    for progress in (None, False):
        sizes.clear()
        want = make(x, y, n_trees=2000, progress=progress)
        assert sizes == [2000]
    sizes.clear()
    assert_same(make(x, y, n_trees=2000, progress=lambda done, n_trees: True), want)
    assert max(sizes) == 4 * hforest.get_num_threads()


def test_what_progress_answers_else_goes_on():
    x, y = samples(50, 4, 3, np.float32, 0, False)
    for answer in (None, True, 0, ""):
        grown = make(x, y, n_trees=40, progress=lambda done, n_trees, answer=answer: answer)
        assert len(grown.tree_start) == 41


def test_progress_shows_a_bar(capsys):
    x, y = samples(50, 4, 3, np.float32, 0, False)
    make(x, y, n_trees=40, progress=True)
    assert "40" in capsys.readouterr().err


def test_what_is_no_progress_is_refused_before_the_work(monkeypatch):
    x, y = samples(50, 4, 3, np.float32, 0, False)
    bins = growth.encode(x)
    monkeypatch.setattr(growth.unchecked, "on_bins", None)
    with pytest.raises(TypeError, match="progress: expected None, True or a function, got str"):
        growth.grow(bins, y, 3, progress="yes")


def test_an_error_in_progress_ends_the_growth():
    x, y = samples(50, 4, 3, np.float32, 0, False)

    def interrupt(done, n_trees):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(x, y, n_trees=100, progress=interrupt)


def test_a_bootstrap_without_weight_takes_every_sample():
    x, y = samples(6, 2, 2, np.float64, 0, False)
    weights = np.array([1.0, 0, 0, 0, 0, 2])
    counts = np.array([[0, 3, 3, 0, 0, 0]], np.int32)
    grown = both(x, y, sample_weight=weights, n_classes=2, n_trees=1, bootstrap=counts)
    assert len(grown.feature) == (3 if y[0] != y[5] else 1)


@pytest.mark.parametrize(
    "grow", [classic.grow, classic.grow_extra, classic.grow_random, manifold.grow, co2.grow]
)
def test_a_tree_that_draws_no_sample_is_refused(grow):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 3)), rng.integers(0, 2, 30)
    counts = np.zeros((4, 30), np.int32)
    counts[:, :10] = 2
    some = grow(x, y, 4, bootstrap=counts, rng=0)
    same_bits(some, grow(x, y, 4, bootstrap=counts.astype(np.uint8), rng=0))
    counts[2] = 0
    with pytest.raises(
        ValueError,
        match="^bootstrap: expected at least one sample in each row, got only zeros in row 2; draw",
    ):
        grow(x, y, 4, bootstrap=counts, rng=0)


# ------------------------------------------------------------------------------- columns that do not stay in cache


@pytest.mark.parametrize(
    ("shape", "grow", "settings"),
    [
        ((40, 14000), classic.grow, {"max_features": 300}),  # bins of 8 bits, read from columns
        ((40, 14000), classic.grow, {"max_features": 20}),  # and from rows
        ((300, 1000), classic.grow, {"max_features": 20}),  # bins of 16 bits
        ((300, 1000), classic.grow, {"max_features": 20, "task": "regression"}),
        ((40, 4000), manifold.grow, {"n_projections": 20}),
        ((40, 4000), manifold.grow, {"n_projections": 20, "task": "regression"}),
        ((40, 4000), manifold.grow, {"n_projections": 20, "projection": "patch", "shape": (4000,)}),
    ],
)
def test_columns_that_do_not_stay_in_cache(shape, grow, settings):
    """The next candidate is prefetched; trees are those of the reference implementation."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=shape).astype(np.float32), rng.integers(0, 3, shape[0])
    fast = grow(x, y, 2, max_depth=3, rng=0, **settings)
    with hforest.using("reference"):
        same_bits(fast, grow(x, y, 2, max_depth=3, rng=0, **settings))


# ------------------------------------------------------------------------------- one y for each tree


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("bootstrap", [True, False])
@pytest.mark.parametrize("grow", [classic.grow, manifold.grow])
@pytest.mark.parametrize("kind", ["labels", "weighted labels", "a target", "targets"])
def test_trees_learn_y_in_their_own_order(kind, grow, bootstrap, backend):
    """Each tree equals that of its number in a call with its y."""
    rng = np.random.default_rng(0)
    x, n, n_trees = rng.normal(size=(40, 4)), 40, 3
    y = {"a target": rng.normal(size=n), "targets": rng.normal(size=(n, 2))}.get(kind, rng.integers(0, 3, n))
    settings = {"bootstrap": bootstrap, "rng": 5, "n_classes": 3}
    if "target" in kind:
        settings = {"bootstrap": bootstrap, "rng": 5, "task": "regression"}
    if kind == "weighted labels":
        settings["sample_weight"] = rng.uniform(0.5, 2, n)
    order = np.stack([rng.permutation(n) for _ in range(n_trees)])
    order[0, :5] = 7  # no permutation
    with hforest.using(backend) if backend == "reference" else contextlib.nullcontext():
        together = grow(x, y, n_trees, y_order=order, **settings)
        alone = [grow(x, y[order[m]], 1, first_tree=m, **settings) for m in range(n_trees)]
    same_bits(together, hforest.tree.join(alone))


def test_orders_of_y_do_not_depend_on_batches_and_threads(threads):
    x, y = samples(50, 3, 3, np.float32, 0, False)
    order = np.random.default_rng(0).permuted(np.tile(np.arange(50), (100, 1)), axis=1)
    want = make(x, y, n_trees=100, y_order=order)
    for n_threads in (1, 2, 7):
        hforest.set_num_threads(n_threads)
        assert_same(make(x, y, n_trees=100, y_order=order, progress=lambda done, n_trees: True), want)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda a: a[:2], ValueError, r"y_order: expected shape \(n_trees, n_samples\) = \(3, 50\), got"),
        (lambda a: a + 1, IndexError, "y_order: expected sample indices below 50, got 1 to 50; sample"),
        (lambda a: a - 1, IndexError, "y_order: expected sample indices below 50, got -1 to 48; sample"),
        (lambda a: a / 2, TypeError, "y_order: expected an array of an integer dtype, got float64; pass"),
    ],
)
def test_wrong_orders_of_y(change, kind, message):
    x, y = samples(50, 3, 3, np.float32, 0, False)
    with pytest.raises(kind, match=message):
        make(x, y, n_trees=3, y_order=change(np.tile(np.arange(50), (3, 1))))


def test_orders_of_y_are_refused_beside_class_weights():
    x, y = samples(50, 3, 3, np.float32, 0, False)
    with pytest.raises(ValueError, match="class_weight: expected None with y_order, got class weights"):
        make(x, y, n_trees=1, y_order=np.arange(50)[None], class_weight="balanced")


# ------------------------------------------------------------------------------- extreme weights


def scaled_by(trees, target_exponent):
    """Returns trees of targets times 2**target_exponent."""
    return trees._replace(value=np.ldexp(trees.value, target_exponent))


def shares(trees):
    """Returns gains divided by the largest."""
    return trees.gain / trees.gain.max()


@pytest.mark.parametrize("weight_exponent", [-1000, -664, 0, 100, 328])
@pytest.mark.parametrize(
    ("dtype", "target_exponent"),
    [(np.float32, e) for e in (-80, 0, 60, 126)] + [(np.float64, e) for e in (-400, -80, 0, 60, 126, 328)],
)
@pytest.mark.parametrize("bootstrap", [True, False])
def test_regression_trees_of_extreme_numbers_are_the_scaled_ones(
    backend, dtype, weight_exponent, target_exponent, bootstrap
):
    x, _ = samples(40, 2, 2, dtype, 0, False)
    y, w = x @ [1.0, -0.5] + 0.1, 0.5 + np.arange(40) % 3
    settings = {"n_classes": None, "bootstrap": bootstrap, "n_trees": 2, "max_depth": 4}
    usual = make(x, y, sample_weight=w, **settings)
    extreme = make(
        x, np.ldexp(y, target_exponent), sample_weight=np.ldexp(w, weight_exponent), **settings
    )  # fmt: skip
    for name, a, b in zip(usual._fields, extreme, scaled_by(usual, target_exponent), strict=True):
        if name != "gain":
            np.testing.assert_array_equal(a, b, err_msg=name)
    assert np.isfinite(extreme.gain).all()
    tiny = np.finfo(dtype).tiny
    np.testing.assert_allclose(shares(extreme), shares(usual), rtol=1e-6, atol=1e4 * tiny)


@pytest.mark.parametrize("exponent", [-1000, -664, 100, 328])
@pytest.mark.parametrize("criterion", ["gini", "entropy"])
def test_classification_trees_of_extreme_weights_are_the_scaled_ones(backend, dtype, exponent, criterion):
    x, y = samples(40, 3, 3, dtype, 0, False)
    w = 0.5 + np.arange(40) % 3
    usual = make(x, y, sample_weight=np.ldexp(w, -3), criterion=criterion)
    extreme = make(x, y, sample_weight=np.ldexp(w, exponent), criterion=criterion)
    for name, a, b in zip(usual._fields, extreme, usual, strict=True):
        if name != "gain":
            np.testing.assert_array_equal(a, b, err_msg=name)
    np.testing.assert_allclose(shares(extreme), shares(usual), rtol=1e-6)


def test_float32_gains_of_large_targets_can_be_read_back(backend):
    # As masses of stars in kg, and charges of electrons in coulomb.
    x = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    expected = None
    for unit in (1.0, 2e30, 1.6e-19):
        for forest in (
            classic.grow(x, x[:, 0] * unit, 3, task="regression", rng=0),
            manifold.grow(x, x[:, 0] * unit, 3, projection="sparse", task="regression", rng=0),
        ):
            assert forest.gain.dtype == np.float32
            tree.check(forest)
        found = tree.importance(classic.grow(x, x[:, 0] * unit, 3, task="regression", rng=0), by="gain")
        expected = found if expected is None else expected
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_in_bag_counts_do_not_make_gains_overflow(backend):
    x, y = samples(10, 2, 2, np.float32, 0, False)
    counts = np.full((1, 10), 2**31 - 1, np.int32)
    for weight in (1.0, 2.0**100):
        grown = make(
            x, y * 2.0**55, n_trees=1, n_classes=None, bootstrap=counts, sample_weight=np.full(10, weight)
        )
        assert np.isfinite(grown.gain).all()
        assert grown.gain.max() > 0


def test_class_weights_times_weights_stay_in_range(backend):
    x, y = samples(40, 3, 2, np.float64, 0, False)
    bins = growth.encode(x)
    usual = classic.grow(x, y, 2, class_weight=[1.0, 0.5], rng=0)
    for by, factor in ((1e100, 2.0**332), (1e-200, 2.0**-664), (2.0**-1000, 2.0**-1000)):
        extreme = classic.grow(
            x, y, 2, sample_weight=np.full(40, by), class_weight=[factor, factor / 2], rng=0
        )
        np.testing.assert_array_equal(extreme.feature, usual.feature)
        np.testing.assert_allclose(extreme.value, usual.value, rtol=1e-12)
    with pytest.raises(
        ValueError, match=r"class_weight: expected weights that are 0 or within a factor of .*; set"
    ):
        classic.grow(x, y, 2, class_weight=[1.0, 1e-95], rng=0)
    with pytest.raises(
        ValueError, match=r"sample_weight: expected weights that are 0 or within a factor of .*; set"
    ):
        growth.grow(bins, y, 2, sample_weight=np.where(y > 0, 1e50, 1e-50), rng=0)


def test_the_greatest_factor_between_weights():
    x, y = samples(40, 3, 2, np.float64, 0, False)
    bins = growth.encode(x)
    growth.grow(bins, y, 2, sample_weight=np.where(y > 0, 2.0**300, 1.0), rng=0)
    more = np.nextafter(2.0**300, np.inf)
    with pytest.raises(
        ValueError, match=r"sample_weight: expected weights that are 0 or within .* of 2.03704e\+90"
    ):
        growth.grow(bins, y, 2, sample_weight=np.where(y > 0, more, 1.0), rng=0)


def test_targets_beyond_float32_are_refused():
    x, _ = samples(10, 2, 2, np.float32, 0, False)
    y = np.linspace(0, 1e39, 10)
    with pytest.raises(ValueError, match=r"y: expected numbers from -3.40282e\+38 to 3.40282e\+38"):
        make(x, y, n_classes=None)
    assert make(x.astype(np.float64), y, n_classes=None).value.max() > 1e38


# ------------------------------------------------------------------------------------------- chains


@pytest.mark.parametrize("n", [40, 60, 500])
@pytest.mark.parametrize(
    "settings", [{}, {"criterion": "entropy"}, {"sample_weight": 0.3}, {"n_classes": None}]
)
def test_chains_equal_the_reference(n, settings):
    # Labels that alternate along the only feature: each split separates one sample.
    x, y = np.arange(float(n))[:, None], np.arange(n, dtype=np.int32) % 2
    if "sample_weight" in settings:
        settings = {"sample_weight": np.full(n, settings["sample_weight"])}
    settings = {"n_classes": 2, "n_trees": 1, "bootstrap": False} | settings
    for order in (np.arange(n), np.random.default_rng(0).permutation(n)):
        got = make(x[order], y[order], **settings)
        assert len(got.feature) == 2 * n - 1
        if n < 100:
            both(x[order], y[order], **settings)


# --------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"y": np.zeros(9, np.int32)}, ValueError, r"y: expected shape \(n_samples,\) = \(10,\), got \(9,\)"),
        ({"y": np.zeros((10, 1), np.int32)}, ValueError, r"y: expected shape .*; pass numpy.ravel\(y\)"),
        ({"y": np.zeros(10)}, TypeError, "y: expected labels of an integer or bool dtype, got float64"),
        ({"y": np.array(list("abababcabb"))}, TypeError, "numpy.unique"),
        ({"y": np.full(10, 2, np.int32)}, IndexError, "n_classes = 2, got 2"),
        ({"y": np.full(10, -1, np.int32)}, IndexError, "got -1"),
        ({"y": np.arange(10) % 3 * 2, "n_classes": True}, TypeError, "n_classes: expected an int"),
        ({"sample_weight": -np.ones(10)}, ValueError, "sample_weight: expected numbers from 0 to 1e\\+100"),
        ({"sample_weight": np.full(10, np.nan)}, ValueError, "sample_weight: expected finite"),
        ({"sample_weight": np.zeros(10)}, ValueError, "sample_weight: expected at least one weight above 0"),
        ({"sample_weight": np.ones((10, 1))}, ValueError, "sample_weight: expected shape"),
        ({"sample_weight": ["1"] * 10}, TypeError, "sample_weight: expected an array of real numbers"),
        ({"n_trees": 0}, ValueError, "n_trees: expected"),
        ({"max_features": 4}, ValueError, "max_features: expected 1 to 3"),
        ({"max_features": True}, TypeError, "max_features: expected an int"),
        ({"max_features": "log2"}, ValueError, "max_features: expected one of 'sqrt'"),
        ({"max_bins": 257}, ValueError, "max_bins: expected 1 to 256, got 257"),
        ({"max_depth": -1}, ValueError, "max_depth"),
        ({"min_samples_leaf": 0}, ValueError, "min_samples_leaf"),
        ({"min_samples_split": 1}, ValueError, "min_samples_split"),
        ({"min_impurity_decrease": -0.1}, ValueError, "min_impurity_decrease"),
        ({"criterion": "squared_error"}, ValueError, "criterion: expected one of 'gini', 'entropy'"),
        ({"bootstrap": -np.ones((1, 10), np.int32)}, ValueError, "bootstrap: expected counts from 0"),
        ({"bootstrap": np.full((1, 10), 2**31)}, ValueError, "bootstrap: expected counts from 0"),
        ({"bootstrap": np.ones((2, 10), np.int32)}, ValueError, r"bootstrap: expected shape \(n_trees, n_samples\)"),
        ({"bootstrap": np.ones((1, 10))}, TypeError, "bootstrap: expected an array of an integer dtype"),
        ({"rng": "seed"}, TypeError, "rng: expected None, an int or a numpy.random.Generator"),
        ({"n_classes": None, "y": np.full((10, 1), 1e101)}, ValueError, "y: expected numbers"),
        ({"n_classes": None, "y": np.zeros((10, 0))}, ValueError, "n_outputs"),
        ({"n_classes": None, "criterion": "gini", "y": np.zeros(10)}, ValueError, "one of 'squared_error'"),
    ],
)  # fmt: skip
def test_bad_input(change, error, message):
    x = np.random.default_rng(0).normal(size=(10, 3))
    settings = {"y": np.arange(10, dtype=np.int32) % 2, "n_classes": 2, "n_trees": 1} | change
    with pytest.raises(error, match=message):
        make(x, settings.pop("y"), **settings)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.zeros((0, 3)), ValueError, r"expected 1 to 2\*\*31 - 1 samples, got 0"),
        (np.zeros((3, 0)), ValueError, r"expected 1 to 2\*\*31 - 1 features, got 0"),
        (np.zeros(3), ValueError, r"x: expected shape .*; pass \[x\] for one sample"),
        (np.zeros((3, 2), complex), TypeError, "x: expected an array of real numbers"),
        ([["a"]], TypeError, "x: expected an array of real numbers"),
        (np.array([[np.inf]]), ValueError, "x: expected finite"),
    ],
)
def test_bad_samples(x, error, message):
    with pytest.raises(error, match=message):
        growth.encode(x)
    if np.ndim(x) < 2 or np.size(x):
        with pytest.raises(error, match=message):
            growth.grow_projected(
                x,
                np.zeros(len(x), int),
                1,
                project.axis_distribution(max(1, np.shape(x)[-1])),
                n_projections=1,
            )


def test_bad_bins():
    bins = growth.encode(np.arange(6.0).reshape(3, 2))
    y = np.zeros(3, np.int32)
    for change, error, message in (
        ({"bins": bins.bins.astype(np.int64)}, TypeError, "uint8, uint16 or uint32"),
        ({"bins": bins.bins + np.uint8(1)}, IndexError, "bins: expected numbers below n_bins = 3, got 3"),
        ({"low": bins.low[:1].copy()}, ValueError, "low: expected shape"),
        ({"high": bins.high * np.nan}, ValueError, "high: expected finite"),
        (
            {"dtype": np.dtype(np.float16)},
            TypeError,
            "bins.dtype: expected float32 or float64 as a numpy.dtype",
        ),
    ):
        with pytest.raises(error, match=message):
            growth.grow(bins._replace(**change), y, 1)
    with pytest.raises(TypeError, match=r"bins: expected hforest\.growth\.Bins"):
        growth.grow(tuple(bins), y, 1)


# ------------------------------------------------------------------------------------ lenient input


class Table:
    """An object of numbers that converts itself to an array."""

    def __init__(self, a):
        self.a = a

    def __array__(self, dtype=None, copy=None):
        return np.array(self.a, dtype)


def layouts(a):
    """Returns the numbers of a matrix in other layouts."""
    wide = np.zeros((2 * a.shape[0], 2 * a.shape[1]), a.dtype)
    wide[::2, 1::2] = a
    yield np.asfortranarray(a)
    yield wide[::2, 1::2]
    yield np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1]
    yield a.astype(a.dtype.newbyteorder())
    yield Table(a)
    yield a.tolist() if a.dtype == np.float64 else Table(np.asfortranarray(a))


def test_layouts_change_nothing(dtype):
    x, y = samples(60, 5, 3, dtype, 0, False)
    want, wanted = make(x, y), projected(x, y, project.sparse_distribution(5))
    for other in layouts(x):
        bins = growth.encode(other)
        assert bins.dtype == dtype
        same_bits(growth.grow(bins, y, 3, max_features=2, n_classes=3, rng=1), want)
        got = projected(other, y, project.sparse_distribution(5))
        same_bits(got.trees, wanted.trees)
        assert got.data.tobytes() == wanted.data.tobytes()


@pytest.mark.parametrize(
    "given", [bool, np.int8, np.uint8, np.int16, np.uint16, np.float16, np.int32, np.uint64, "g"]
)
def test_dtypes_of_samples(given):
    x, y = samples(60, 5, 3, np.float64, 0, False)
    x = (20 * abs(x)).astype(given)
    exact = np.result_type(given, np.float32) == np.float32
    bins = growth.encode(x)
    assert bins.dtype == (np.float32 if exact else np.float64)
    want = make(x.astype(bins.dtype), y)
    same_bits(growth.grow(bins, y, 3, max_features=2, n_classes=3, rng=1), want)


@pytest.mark.parametrize("given", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4", bool, list, Table])
def test_dtypes_of_labels(given):
    x, y = samples(60, 5, 2, np.float32, 0, False)
    want = make(x, y, n_classes=2)
    other = y.tolist() if given is list else Table(y) if given is Table else y.astype(given)
    same_bits(make(x, other, n_classes=2), want)
    same_bits(growth.grow(growth.encode(x), other, 3, max_features=2, rng=1), want)
    strided = np.repeat(y, 2)[::2]
    same_bits(make(x, strided, n_classes=2), want)


def test_labels_that_leave_classes_out():
    x, y = samples(60, 5, 3, np.float32, 0, False)
    bins = growth.encode(x)
    with pytest.raises(
        ValueError, match="got none of class 0; renumber the classes with numpy.unique"
    ) as caught:
        growth.grow(bins, y + 1, 3)
    assert "pass n_classes=4" in str(caught.value)
    renumbered = np.unique(y + 1, return_inverse=True)[1]
    same_bits(growth.grow(bins, renumbered, 3, rng=0), growth.grow(bins, y, 3, rng=0))
    absent = growth.grow(bins, y + 1, 3, n_classes=5, rng=0)
    assert absent.value.shape[1] == 5
    np.testing.assert_array_equal(absent.value[:, 1:4], growth.grow(bins, y, 3, rng=0).value)


def test_dtypes_of_targets_weights_and_counts():
    x, y = samples(60, 5, 3, np.float32, 0, False)
    target = np.round(8 * x[:, 0]).astype(np.float64)
    want = make(x, target, n_classes=None)
    for other in (
        target.astype(np.int8),
        target.astype(np.float16),
        target[:, None],
        target.tolist(),
        Table(target),
    ):
        same_bits(make(x, other, n_classes=None), want)
    weight = np.arange(60) % 3
    want = make(x, y, sample_weight=weight.astype(np.float64))
    for other in (weight, weight.astype(np.float16), weight.tolist(), np.repeat(weight, 2)[::2]):
        same_bits(make(x, y, sample_weight=other), want)
    counts = growth.bootstrap_counts(60, 3, rng=1)
    want = make(x, y)
    for other in (
        counts,
        counts.astype(np.int64),
        counts.astype(np.uint8),
        np.asfortranarray(counts),
        counts.tolist(),
    ):
        same_bits(make(x, y, bootstrap=other), want)
    drawn = counts > 0
    same_bits(make(x, y, bootstrap=drawn), make(x, y, bootstrap=drawn.astype(np.int32)))


# ----------------------------------------------------------------------------------------- windows


def overlapping(n_rows=6, n_features=12, n_columns=5, dtype=np.float32, seed=0, coarse=True):
    """Windows with gaps in the rows of an array, and a copy of them."""
    x, _ = samples(n_rows, n_features, 2, dtype, seed, coarse)
    x[0, 0] *= -1
    offset = np.array([0, 1, 3, 4, 6][:n_columns])
    base = (np.arange(n_rows)[:, None] * n_features + np.arange(n_features - 6)).ravel()
    base = np.random.default_rng(seed).permutation(base)[: max(1, 2 * len(base) // 3)]
    return growth.Windows(x, base, offset), np.ascontiguousarray(x.ravel()[base[:, None] + offset])


@pytest.mark.parametrize("coarse", [True, False])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_bins": 4},
        {"max_bins": 256},
        {"criterion": "entropy"},
        {"splitter": "random", "bootstrap": False},
        {"max_features": 5, "min_samples_leaf": 3, "max_depth": 4},
    ],
)
def test_trees_on_windows_are_those_on_copies(dtype, settings, coarse):
    windows, copies = overlapping(dtype=dtype, coarse=coarse)
    n = len(copies)
    assert windows.shape == copies.shape
    y = np.random.default_rng(1).integers(0, 3, n).astype(np.int32)
    for weights in (None, np.random.default_rng(2).random(n)):
        got = both(windows, y, sample_weight=np.ones(n) if weights is None else weights, **settings)
        want = make(copies, y, sample_weight=weights, **settings)
        for a, b in zip(got, want, strict=True):
            assert a.tobytes() == b.tobytes()


def test_windows_of_more_values_than_small_keys_hold():
    windows, copies = overlapping(n_rows=9000, n_features=12, seed=3, coarse=False)
    y = np.random.default_rng(1).integers(0, 3, len(copies)).astype(np.int32)
    bins = growth.encode(windows)
    assert bins.bins.dtype == np.uint32
    assert bins.bins.shape == (1, 9000 * 12)
    weights = np.ones(len(y))
    got, want = (make(a, y, sample_weight=weights, n_trees=1, max_depth=5) for a in (windows, copies))
    for a, b in zip(got, want, strict=True):
        assert a.tobytes() == b.tobytes()


def test_bad_windows():
    windows, copies = overlapping()
    y, n = np.zeros(len(copies), np.int32), len(copies)
    for change, error, message in (
        ({"base": windows.base.astype(np.int32)}, TypeError, "base: expected dtype int64"),
        ({"base": windows.base + 12}, IndexError, "inside the 72 numbers of x"),
        ({"base": windows.base - 1}, IndexError, "got windows from -1"),
        ({"offset": windows.offset - 1}, IndexError, "got windows from -1"),
        ({"offset": windows.offset[:0]}, ValueError, "n_columns"),
        ({"x": windows.x.astype(np.int64)}, TypeError, "float32 or float64"),
        ({"x": windows.x * np.nan}, ValueError, "x: expected finite"),
    ):
        with pytest.raises(error, match=message):
            growth.encode(windows._replace(**change))
    bins = growth.encode(windows)
    for change, error, message in (
        ({"base": bins.base + 12}, IndexError, "inside the 72 numbers"),
        ({"base": None}, TypeError, "one without the other"),
        ({"offset": None}, TypeError, "one without the other"),
        ({"bins": bins.bins.reshape(2, -1)}, ValueError, "low: expected shape"),
        (
            {
                "bins": bins.bins.reshape(2, -1),
                **dict.fromkeys(("low", "high"), np.repeat(bins.low, 2, 0)),
            },
            ValueError,
            "one row of bins",
        ),
    ):
        with pytest.raises(error, match=message):
            growth.grow(bins._replace(**change), y, 1)
    with pytest.raises(ValueError, match='task: expected "classification" for windows'):
        growth.grow(bins, np.zeros(n), 1, task="regression")


def test_forests_of_the_trees_are_sound():
    x, y = samples(200, 5, 3, np.float32, 0, False)
    trees = make(x, y, n_trees=5, bootstrap=False)
    forest = tree.Forest(
        n_features=np.array(5),
        **trees._asdict(),
        indptr=np.zeros(0, np.int64),
        indices=np.zeros(0, np.int32),
        data=np.zeros(0, np.float32),
    )
    p = tree.predict(tree.check(forest), x)
    assert (p.argmax(axis=1) == y).all()


# --------------------------------------------------------------------------------------- CUDA backend


def same_bits(got, want):
    for name, a, b in zip(got._fields, got, want, strict=True):
        assert a.dtype == b.dtype, name
        assert a.tobytes() == b.tobytes(), name


def moved(a, move):
    """Returns an array, or a tuple with arrays, on another device."""
    if hasattr(a, "_fields"):
        return type(a)(*(moved(part, move) for part in a))
    return move(a) if hasattr(a, "dtype") else a


@pytest.fixture(params=["host", *ON_GPU])
def cuda(request):
    """Calls a function in the CUDA backend; arguments and results are NumPy arrays."""
    with entered(request.param):
        pass  # skips where it cannot run

    def call(function, *args, **settings):
        with entered(request.param) as backend:
            settings = {name: moved(a, backend.array) for name, a in settings.items()}
            return moved(function(*(moved(a, backend.array) for a in args), **settings), backend.numpy)

    return call


def test_host_poisson_counts(cuda):
    for n, n_trees, first in ((0, 2, 0), (1, 3, 2), (7, 0, 1), (1000, 5, 2**40 + 3)):
        settings = {"first_row": first, "first_tree": 4, "rng": 1}
        want = growth.poisson_counts(n, n_trees, **settings)
        np.testing.assert_array_equal(cuda(growth.poisson_counts, n, n_trees, **settings), want)


def test_host_bootstrap_counts(cuda):
    for n, n_trees in ((0, 2), (1, 3), (7, 0), (1000, 5)):
        for seed in range(4):  # seeds of the generator in either half of 64 bits
            want = growth.bootstrap_counts(n, n_trees, rng=seed)
            np.testing.assert_array_equal(cuda(growth.bootstrap_counts, n, n_trees, rng=seed), want)


@pytest.mark.parametrize("n", [1, 2, 300, 70_000])
@pytest.mark.parametrize("most", [None, 1, 5, 256])
def test_host_bins(cuda, dtype, n, most):
    x = np.concatenate([samples(n, 2, 2, dtype, n, coarse)[0] for coarse in (True, False)], axis=1)
    x[::3] *= -1  # zeros of either sign
    got, want = cuda(growth.encode, x, max_bins=most), growth.encode(x, max_bins=most)
    for a, b in zip(got[:4], want[:4], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("memory", [1, 1 << 30])
@pytest.mark.parametrize(
    ("n_outputs", "settings"),
    [
        (None, {}),
        (None, {"criterion": "entropy", "max_features": 5, "bootstrap": False}),
        (None, {"max_bins": 16, "min_samples_leaf": 4, "max_depth": 6}),
        (None, {"splitter": "random", "max_features": 1}),
        (None, {"splitter": "random", "max_features": 4, "criterion": "entropy", "min_samples_leaf": 3}),
        (1, {"min_impurity_decrease": 0.001}),
        (3, {"max_features": 5, "min_samples_split": 9}),
        (2, {"splitter": "random", "bootstrap": False}),
        (1, {"splitter": "random", "max_features": None, "max_bins": 16, "min_impurity_decrease": 0.001}),
    ],
)
@pytest.mark.parametrize("weights", ["one", "whole", "real"])
def test_host_trees_are_those_of_the_cpu(cuda, monkeypatch, dtype, n_outputs, settings, weights, memory):
    # Memory limits the number of trees that grow at a time; results do not depend on it.
    monkeypatch.setattr("hforest.growth.gpu_levels.memory", lambda xp: memory)
    rng = np.random.default_rng(0)
    x, y = samples(100, 6, 3, dtype, 0, False)
    x[:, 4] = np.round(x[:, 4])
    if n_outputs:
        y = rng.normal(size=(100, n_outputs)) + x[:, :1]
        settings = {"n_classes": None, **settings}
    given = {"one": np.ones(100), "whole": rng.integers(0, 4, 100).astype(float), "real": rng.random(100)}
    settings = {"sample_weight": given[weights], **settings}
    same_bits(cuda(make, x, y, **settings), make(x, y, **settings))


@pytest.fixture(params=[0, 100, gpu_small.SMALL])
def small(request, monkeypatch):
    """Samples of a node that a block grows to its leaves, at most."""
    for name in ("host.compiler.SMALL", "hforest.growth.gpu_small.SMALL"):
        monkeypatch.setattr(name, request.param)
    return request.param


@pytest.mark.parametrize("weights", ["one", "real"])
def test_host_levels_of_many_nodes_are_those_of_the_cpu(cuda, monkeypatch, dtype, weights):
    # More nodes than one block handles, and more than one block.
    monkeypatch.setattr("host.compiler.SMALL", 0)
    monkeypatch.setattr(gpu_small, "SMALL", 0)
    widths, level = [], gpu_levels._level
    monkeypatch.setattr(
        gpu_levels,
        "_level",
        lambda task, nodes, *more: widths.append(len(nodes.first)) or level(task, nodes, *more),
    )
    x, y = samples(1500, 3, 2, dtype, 0, False)
    rng = np.random.default_rng(0)
    weight = np.ones(1500) if weights == "one" else rng.random(1500)
    settings = {"n_trees": 40, "n_classes": 2, "max_depth": 11, "sample_weight": weight}
    same_bits(cuda(make, x, y, **settings), make(x, y, **settings))
    assert max(widths) > 2 * gpu_levels.NODES


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"n_classes": 20, "criterion": "entropy"},  # sums in global memory
        {"sample_weight": "whole", "min_samples_leaf": 5, "max_bins": 16},
        {"sample_weight": "real", "criterion": "entropy"},
        {"sample_weight": "real", "n_classes": 90},  # more sums than a block adds up
        {"task": 1, "min_weight_fraction_leaf": 0.01},
        {"task": 3, "max_bins": 16},
        {"task": 80},
        {"splitter": "random"},
        {"task": 1, "splitter": "random"},
        {"missing": True},
        {"missing": True, "task": 1},
        {"columns": "constant"},
    ],
    ids=lambda settings: "-".join(f"{name}={value}" for name, value in settings.items()) or "plain",
)
def test_host_trees_of_large_nodes(cuda, small, settings):
    """Nodes that blocks share: of more than 256 samples, in several runs, tiles and blocks."""
    settings, rng, n = dict(settings), np.random.default_rng(1), 5000
    x, n_classes = np.round(rng.normal(size=(n, 6)), 2), settings.pop("n_classes", 3)
    n_outputs, weight = settings.pop("task", None), settings.pop("sample_weight", None)
    y = (n_classes * rng.random(n) ** (1 + (x[:, 0] > 0))).astype(np.int32)
    if n_outputs:
        y, n_classes = rng.normal(size=(n, n_outputs)) + x[:, :1], None
    if settings.pop("missing", False):
        x[rng.random(x.shape) < 0.2] = np.nan
    if settings.pop("columns", None):
        x[:, :4] = 0
        x[4000:, 2] = 1
    if weight:
        settings["sample_weight"] = rng.integers(0, 9, n) * 1.0 if weight == "whole" else rng.random(n)
    settings |= {"n_classes": n_classes, "n_trees": 2, "max_features": 2, "max_depth": 5}
    same_bits(cuda(make, x, y, **settings), make(x, y, **settings))


@pytest.fixture
def launched(monkeypatch):
    """Names of the kernels of growth, as they are launched."""
    names, launch = [], gpu_builder.launch
    monkeypatch.setattr(gpu_builder, "launch", lambda *a, **more: names.append(a[1]) or launch(*a, **more))
    return names


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"criterion": "entropy", "weights": "whole", "max_bins": 256},
        {"n_classes": 20, "max_bins": 180},  # as much shared memory as there may be
        {"min_samples_leaf": 7, "max_features": 5, "min_impurity_decrease": 1e-4},
        {"min_weight_fraction_leaf": 0.01, "weights": "whole"},
        {"coarse": 1, "n_classes": 2},
        {"bootstrap": False, "max_features": 5, "n": 32},
        {"bootstrap": False, "max_features": 5, "n": 33},
        {"bootstrap": False, "max_features": 5, "n": 257},
        {"bootstrap": False, "weights": "great", "n": 400},  # sums of 32 bits
    ],
    ids=lambda settings: "-".join(f"{name}={value}" for name, value in settings.items()) or "plain",
)
def test_host_trees_of_counted_bins(cuda, small, launched, dtype, settings):
    """Bins of a byte and whole weights: nodes of several chunks, of one, and of few samples; nothing is sorted."""
    settings = {"n": 9000, "n_classes": 3, "max_bins": 255, "coarse": 30, "weights": "one", **settings}
    n, n_classes, coarse = (settings.pop(name) for name in ("n", "n_classes", "coarse"))
    rng = np.random.default_rng(n)
    x = np.round(rng.normal(size=(n, 6)) * coarse).astype(dtype)
    x[:, 2] = 1
    x[:, 4] = x[:, 3]
    x[:, 5] = rng.random(n)
    y = (n_classes * rng.random(n) ** (1 + (x[:, 0] > 0))).astype(np.int32)
    most = {"one": 2, "whole": 900, "great": 2**23}[settings.pop("weights")]
    weight = rng.integers(most == 2, most, n) * 1.0
    settings = {"n_trees": 2, "max_features": 2, "max_depth": 12, **settings}
    settings |= {"n_classes": n_classes, "sample_weight": weight}
    got = cuda(make, x, y, **settings)
    assert ("grow_counted" in launched) == (small > 0)
    assert ("score_bins" in launched) == (n > small)
    assert "count_bins" in launched or n <= max(small, 4096)
    assert not {"bin_keys", "count_runs", "scan_small", "grow_small"} & {*launched}
    same_bits(got, make(x, y, **settings))


@pytest.mark.parametrize(
    "settings",
    [
        {"n_classes": 30},  # more than shared memory holds
        {"weight": 2.0**24},  # more than 32 bits hold
        {"weight": 0.5},
        {"max_bins": None},
        {"splitter": "random"},
        {"missing": True},
        {"task": 1},
    ],
    ids=lambda settings: "-".join(f"{name}={value}" for name, value in settings.items()),
)
def test_host_trees_whose_bins_are_not_counted(cuda, small, launched, settings):
    settings, n, rng = {"n_classes": 3, "max_bins": 255, **settings}, 400, np.random.default_rng(0)
    x, y = rng.normal(size=(n, 3)), rng.integers(0, settings["n_classes"], n, np.int32)
    if settings.pop("missing", False):
        x[:9] = np.nan
    if settings.pop("task", None):
        y, settings["n_classes"] = rng.normal(size=(n, 1)), None
    settings |= {"n_trees": 2, "max_depth": 3, "sample_weight": np.full(n, settings.pop("weight", 1.0))}
    got = cuda(make, x, y, **settings)
    assert ("grow_small" if n <= small else "bin_keys") in launched
    assert not {"score_bins", "grow_counted"} & {*launched}
    same_bits(got, make(x, y, **settings))


FILLED = {"place", "default_left", "root_weight", "sample", "sample_weight", "other_sample", "other_weight"}
"""Members of Rooms that are written before a launch."""


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"sample_weight": "real", "n_classes": 20},  # sums in global memory
        {"max_bins": 255},
        {"splitter": "random"},
        {"splitter": "random", "missing": True},
        {"task": 2},
        {"distribution": "sparse"},
        {"distribution": "sparse", "missing": True},
    ],
    ids=lambda settings: "-".join(f"{name}={value}" for name, value in settings.items()) or "plain",
)
def test_host_blocks_of_small_nodes_write_to_places_of_their_own(monkeypatch, settings):
    """Blocks run one after the other on the host, so results do not show whether they would disturb each other."""
    settings, rng, launch, n_launches = dict(settings), np.random.default_rng(0), gpu_builder.launch, 0

    def written(args, b, *call, **more):
        """Writes of block b alone, by member."""
        small = next(a for a in args if isinstance(a, gpu_structs.Small))
        one = small._replace(
            n_nodes=1, **{k: a[b : b + 1] for k, a in small._asdict().items() if isinstance(a, np.ndarray)}
        )
        rooms = next(a for a in args if isinstance(a, gpu_small.Rooms))._asdict()
        rooms = {k: a.copy() if isinstance(a, np.ndarray) else a for k, a in rooms.items()}
        for name in {k for k, a in rooms.items() if isinstance(a, np.ndarray)} - FILLED:
            rooms[name].view(np.uint8).fill(0x5A)
        before = {k: a.copy() for k, a in rooms.items() if isinstance(a, np.ndarray)}
        new = {gpu_structs.Small: one, gpu_small.Rooms: gpu_small.Rooms(**rooms)}
        # Orders, and entries of projections, which are taken one after the other, are shared.
        copied = tuple(
            a._replace(**{k: m.copy() for k, m in a._asdict().items() if isinstance(m, np.ndarray)})
            if isinstance(a, gpu_structs.Kept | gpu_structs.Orders)
            else new.get(type(a), a)
            for a in args
        )
        launch(*call, 1, copied, **more)
        return {
            k: set(np.flatnonzero((a.view(np.uint8) != rooms[k].view(np.uint8)).ravel()) // a.itemsize)
            for k, a in before.items()
        }

    def spy(folder, name, real, n_blocks, args, **more):
        nonlocal n_launches
        if name in ("grow_small", "grow_counted"):
            n_launches += 1
            blocks = [written(args, b, folder, name, real, **more) for b in range(n_blocks)]
            assert len(blocks) > 5
            for member in blocks[0]:
                places = [block[member] for block in blocks]
                assert sum(map(len, places)) == len(set().union(*places)), member
        launch(folder, name, real, n_blocks, args, **more)

    monkeypatch.setattr(gpu_builder, "launch", spy)
    n, n_classes, n_outputs = 200, settings.pop("n_classes", 3), settings.pop("task", None)
    x, y = rng.normal(size=(n, 6)), rng.integers(0, n_classes, n).astype(np.int32)
    if settings.pop("missing", False):
        x[rng.random(x.shape) < 0.2] = np.nan
    if n_outputs:
        y, n_classes = rng.normal(size=(n, n_outputs)), None
    if settings.get("sample_weight"):
        settings["sample_weight"] = rng.random(n)
    with entered("host"):
        if kind := settings.pop("distribution", None):
            projected(x, y, DISTRIBUTIONS[kind](6), n_classes=n_classes, **settings)
        else:
            weight = settings.pop("sample_weight", np.ones(n))
            make(x, y, n_classes=n_classes, n_trees=2, sample_weight=weight, max_features=3, **settings)
    assert n_launches


@pytest.mark.slow
def test_host_bins_of_many_chunks_are_counted(cuda, launched):
    n = 4096 * 66
    x = np.random.default_rng(0).integers(0, 9, (n, 2)).astype(np.float32)
    y = (x[:, 0] > x[:, 1]).astype(np.int32)
    settings = {"sample_weight": np.ones(n), "n_trees": 1, "n_classes": 2, "max_depth": 2, "max_features": 2}
    got = cuda(make, x, y, **settings)
    assert "count_bins" in launched
    same_bits(got, make(x, y, **settings))


def test_host_trees_on_wide_bins_and_windows(cuda):
    x = np.arange(66_000.0)[:, None]
    y = (x[:, 0] > 40_000.5).astype(np.int32)
    settings = {"sample_weight": np.ones(66_000), "n_trees": 1, "n_classes": 2, "max_depth": 2}
    assert growth.encode(x).bins.dtype == np.uint32
    same_bits(cuda(make, x, y, **settings), make(x, y, **settings))
    windows, copies = overlapping()
    y = np.arange(len(copies), dtype=np.int32) % 3
    weights = np.ones(len(y))
    same_bits(cuda(make, windows, y, sample_weight=weights), make(copies, y, sample_weight=weights))


def test_host_nodes_sample_on_while_candidates_are_constant(cuda):
    x = np.zeros((20, 9))
    x[:, 5] = np.arange(20)
    y = (np.arange(20) > 9).astype(np.int32)
    for settings in ({}, {"splitter": "random"}):
        settings |= {"sample_weight": np.ones(20), "n_classes": 2, "max_features": 2, "n_trees": 5}
        same_bits(cuda(make, x, y, **settings), make(x, y, **settings))


def test_a_host_bootstrap_without_weight_takes_every_sample(cuda):
    x, y = samples(6, 2, 2, np.float64, 0, False)
    settings = {"sample_weight": np.array([1.0, 0, 0, 0, 0, 2]), "n_classes": 2, "n_trees": 2}
    settings["bootstrap"] = np.array([[0, 3, 3, 0, 0, 0], [1, 0, 0, 0, 0, 1]], np.int32)
    same_bits(cuda(make, x, y, **settings), make(x, y, **settings))


# ------------------------------------------------------------------------------------- projections


def of_views(distribution):
    """Returns the same for three views, one of a single column; a node samples four projections."""
    last = distribution.n_features - 1
    views = [[4, 0, 2], [1, 3, *range(5, last)], [last]]
    return project.grouped_distribution(distribution, views, [1, 2, 1])


DISTRIBUTIONS = {
    "axis": lambda n: project.axis_distribution(n),
    "sparse": lambda n: project.sparse_distribution(n),
    "dense": lambda n: project.sparse_distribution(n, 40.0),
    "probe": lambda n: project.probe_distribution(n),
    "probe and single": lambda n: project.probe_distribution(n, 0.4),
    "interval": lambda n: project.patch_distribution((n,), patch_max=min(n, 5)),
    "image": lambda n: project.patch_distribution((n // 6, 6), patch_min=(1, 2), patch_max=(2, 4)),
    "cyclic": lambda n: project.patch_distribution((n // 6, 6), patch_max=(2, 6), cyclic=True),
    "channels": lambda n: project.patch_distribution((n // 6, 3, 2), patch_max=(1, 3), channels=True),
    "box": lambda n: project.patch_distribution((n // 6, 3, 2), patch_max=(2, 2, 2)),
    "coloured box": lambda n: project.patch_distribution(
        (1, n // 6, 3, 2), patch_max=(1, 2, 3), channels=True, cyclic=True
    ),
    "views, axis": lambda n: of_views(project.axis_distribution(n)),
    "views, dense": lambda n: of_views(project.sparse_distribution(n, 40.0)),
    "views, probe": lambda n: of_views(project.probe_distribution(n, 0.4)),
}


def projected(x, y, distribution, *, n_classes=3, n_trees=2, **settings):
    """Returns trees on projections; with n_classes None those of a regression."""
    task = "regression" if n_classes is None else "classification"
    settings = {"n_projections": 4, "rng": 1} | settings
    return growth.grow_projected(x, y, n_trees, distribution, task=task, n_classes=n_classes, **settings)


def as_forest(grown, n_features):
    return tree.check(
        tree.Forest(
            n_features=np.array(n_features),
            **grown.trees._asdict(),
            indptr=grown.indptr,
            indices=grown.indices,
            data=grown.data,
        )
    )


@hypothesis.given(
    n=st.integers(1, 50),
    kind=st.sampled_from(list(DISTRIBUTIONS)),
    criterion=st.sampled_from(["gini", "entropy"]),
    values=st.sampled_from(["normal", "whole", "half", "huge"]),
    splitter=st.sampled_from(["best", "random"]),
    weighted=st.booleans(),
    bootstrap=st.booleans(),
    max_depth=st.sampled_from([None, 2]),
    min_samples_leaf=st.integers(1, 3),
    double=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_projected_trees_equal_the_reference(
    n, kind, criterion, values, splitter, weighted, bootstrap, max_depth, min_samples_leaf, double, seed
):
    rng = np.random.default_rng(seed)
    x = {
        "normal": lambda: rng.normal(size=(n, 12)),
        "whole": lambda: rng.integers(-3, 256, (n, 12)),
        "half": lambda: rng.integers(-2, 3, (n, 12)) / 2,
        "huge": lambda: rng.integers(0, 2**23, (n, 12)),
    }[values]().astype(np.float64 if double else np.float32)
    y = rng.integers(0, 3, n).astype(np.int32)
    settings = {
        "criterion": criterion, "splitter": splitter, "bootstrap": bootstrap, "max_depth": max_depth, "rng": seed,
        "min_samples_leaf": min_samples_leaf, "sample_weight": rng.random(n) + 0.1 if weighted else None,
    }  # fmt: skip
    got = projected(x, y, DISTRIBUTIONS[kind](12), **settings)
    with hforest.using("reference"):
        want = projected(x, y, DISTRIBUTIONS[kind](12), **settings)
    assert_same(got.trees, want.trees)
    for a, b in zip(got[1:], want[1:], strict=True):
        np.testing.assert_array_equal(a, b)


def test_projected_regression_equals_the_reference():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 12)), rng.normal(size=(60, 2))
    settings = {"n_classes": None, "sample_weight": rng.random(60)}
    got = projected(x, y, DISTRIBUTIONS["sparse"](12), **settings)
    with hforest.using("reference"):
        want = projected(x, y, DISTRIBUTIONS["sparse"](12), **settings)
    assert_same(got.trees, want.trees)
    np.testing.assert_array_equal(got.indices, want.indices)


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_projected_forests_partition_their_samples_as_they_were_grown(kind, dtype):
    # A sample that went left while growing goes left in prediction: a tree grown until leaves are pure predicts its labels.
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 12)).astype(dtype)
    y = rng.integers(0, 3, 200).astype(np.int32)
    grown = projected(x, y, DISTRIBUTIONS[kind](12), bootstrap=False, n_trees=5)
    assert (tree.predict(as_forest(grown, 12), x).argmax(axis=1) == y).all()


@pytest.mark.parametrize("kind", ["image", "views, dense"])
def test_projected_trees_do_not_depend_on_threads_or_their_number(threads, kind):
    x, y = samples(200, 12, 3, np.float32, 0, False)
    found = []
    for count in (1, 2, 7):
        threads(count)
        found.append(projected(x, y, DISTRIBUTIONS[kind](12), n_trees=30))
    for other in found[1:]:
        assert_same(other.trees, found[0].trees)
        np.testing.assert_array_equal(other.indices, found[0].indices)
    few = projected(x, y, DISTRIBUTIONS[kind](12), n_trees=2)
    np.testing.assert_array_equal(few.indptr, found[0].indptr[: len(few.indptr)])


def images_of(values, n_rows, n_features, dtype):
    """Windows of 12 numbers in two rows of the array, with gaps, and a copy of them."""
    rng = np.random.default_rng(3)
    x = {
        "normal": lambda: rng.normal(size=(n_rows, n_features)),
        "bytes": lambda: rng.integers(0, 256, (n_rows, n_features)),
        "whole": lambda: rng.integers(-300, 300, (n_rows, n_features)),
        "huge": lambda: rng.integers(0, 2**23, (n_rows, n_features)),
    }[values]().astype(dtype)
    offset = np.concatenate([np.arange(-6, 6, 2), n_features + np.arange(6)])
    base = rng.integers(6, x.size - n_features - 6, 200)
    return growth.Windows(x, base, offset), x.ravel()[base[:, None] + offset]


@pytest.mark.parametrize("values", ["normal", "bytes", "whole", "huge"])
@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_projected_trees_on_windows_are_those_on_copies(threads, dtype, kind, values):
    windows, copies = images_of(values, 9, 40, dtype)
    distribution, rng = DISTRIBUTIONS[kind](12), np.random.default_rng(1)
    y = rng.integers(0, 3, len(copies))
    y[copies[:, 2] > copies[:, 7]] = 2
    for settings in (
        {},
        {"splitter": "random"},
        {"sample_weight": rng.random(len(y)), "min_samples_leaf": 3},
    ):
        threads(1)
        want = projected(copies, y, distribution, **settings)
        for count in (1, 2, 7):
            threads(count)
            got = projected(windows, y, distribution, **settings)
            for a, b in zip((*got.trees, *got[1:]), (*want.trees, *want[1:]), strict=True):
                assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("values", ["normal", "bytes", "whole"])
def test_projected_trees_on_windows_of_a_large_array(dtype, values):
    # Numbers that a node's samples read are prefetched.
    windows, copies = images_of(values, 900, 1000, dtype)
    y = np.random.default_rng(1).integers(0, 3, len(copies))
    for kind in ("dense", "image"):
        got, want = (projected(x, y, DISTRIBUTIONS[kind](12)) for x in (windows, copies))
        for a, b in zip((*got.trees, *got[1:]), (*want.trees, *want[1:]), strict=True):
            assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("splitter", ["best", "random"])
def test_projected_trees_on_windows_equal_the_reference(dtype, splitter):
    windows, _ = images_of("normal", 9, 40, dtype)
    windows = windows._replace(base=windows.base[:50].copy())
    y = np.arange(50) % 3
    got = projected(windows, y, DISTRIBUTIONS["dense"](12), splitter=splitter)
    with hforest.using("reference"):
        want = projected(windows, y, DISTRIBUTIONS["dense"](12), splitter=splitter)
    assert_same(got.trees, want.trees)
    np.testing.assert_array_equal(got.indices, want.indices)


def test_host_projected_trees_on_windows(cuda):
    windows, copies = images_of("normal", 9, 40, np.float32)
    y = (np.arange(len(copies)) % 3).astype(np.int32)
    got = cuda(projected, windows, y, DISTRIBUTIONS["dense"](12))
    want = projected(copies, y, DISTRIBUTIONS["dense"](12))
    same_bits(got.trees, want.trees)
    np.testing.assert_array_equal(got.indices, want.indices)


def test_what_is_made_of_windows_serves_windows_elsewhere():
    windows, copies = images_of("bytes", 9, 40, np.float32)
    elsewhere = windows._replace(base=windows.base[::-1].copy())
    y, sparse = np.arange(len(copies)) % 3, DISTRIBUTIONS["sparse"](12)
    first = growth.samples(windows)
    projected(first, y, sparse), growth.grow(first, y, 1)
    moved_there = first.moved(elsewhere.base)
    assert moved_there.bins().bins is first.bins().bins
    for a, b in (
        (projected(moved_there, y, sparse).trees, projected(copies[::-1], y, sparse).trees),
        (growth.grow(moved_there, y, 2, rng=0), growth.grow(growth.encode(copies[::-1]), y, 2, rng=0)),
    ):
        assert all(p.tobytes() == q.tobytes() for p, q in zip(a, b, strict=True))
    # Bins of a draw are of that draw alone.
    coarse = growth.samples(windows, max_bins=4)
    growth.grow(coarse, y, 1)
    got, want = (
        growth.grow(x, y, 2, rng=0)
        for x in (coarse.moved(elsewhere.base), growth.samples(copies[::-1], max_bins=4))
    )
    assert all(p.tobytes() == q.tobytes() for p, q in zip(got, want, strict=True))


def test_targets_are_not_projected_on_windows():
    windows, copies = images_of("normal", 9, 40, np.float32)
    with pytest.raises(ValueError, match='task: expected "classification" for windows'):
        projected(windows, np.zeros(len(copies)), DISTRIBUTIONS["sparse"](12), n_classes=None)
    with pytest.raises(TypeError, match="x: expected numbers, got Bins"):
        projected(growth.encode(windows), np.arange(len(copies)) % 3, DISTRIBUTIONS["sparse"](12))


def test_sums_of_whole_numbers_by_table_and_one_by_one_agree():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (150, 64)).astype(np.float32)
    y = rng.integers(0, 4, 150).astype(np.int32)
    distribution = project.patch_distribution((8, 8), patch_max=6)
    by_table = projected(x, y, distribution, n_classes=4)
    # Halves are not whole, so they are added up one by one; the order of values is the same.
    one_by_one = projected(x / 2, y, distribution, n_classes=4)
    np.testing.assert_array_equal(by_table.trees.feature, one_by_one.trees.feature)
    np.testing.assert_array_equal(by_table.trees.threshold, 2 * one_by_one.trees.threshold)
    np.testing.assert_array_equal(by_table.indices, one_by_one.indices)


@pytest.mark.parametrize("memory", [1, 1 << 30])
@pytest.mark.parametrize("kind", DISTRIBUTIONS)
@pytest.mark.parametrize("values", ["real", "whole"])
@pytest.mark.parametrize("to_fit", ["gini", "entropy", "random", "regression"])
def test_host_projected_trees_are_those_of_the_cpu(cuda, monkeypatch, dtype, kind, values, to_fit, memory):
    monkeypatch.setattr("hforest.growth.gpu_levels.memory", lambda xp: memory)
    rng = np.random.default_rng(0)
    y, targets = rng.integers(0, 3, 80).astype(np.int32), rng.normal(size=(80, 2))
    x = rng.normal(size=(80, 12)) if values == "real" else rng.integers(0, 200, (80, 12))
    settings = {
        "gini": {"y": y, "min_samples_leaf": 2, "sample_weight": np.ones(80)},
        "entropy": {"y": y, "criterion": "entropy", "sample_weight": rng.random(80)},
        "random": {"y": y, "splitter": "random", "min_samples_leaf": 2},
        "regression": {"y": targets, "sample_weight": np.ones(80), "n_classes": None, "max_depth": 4},
    }[to_fit]
    call = {"x": x.astype(dtype), "distribution": DISTRIBUTIONS[kind](12), **settings}
    got, want = cuda(projected, **call), projected(**call)
    same_bits(got.trees, want.trees)
    for a, b in zip(got[1:], want[1:], strict=True):
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize(
    "settings",
    [
        {"class_weight": "balanced"},
        {"class_weight": {0: 2.0}, "criterion": "entropy", "max_bins": 256},
        {"task": "regression", "bootstrap": False},
    ],
)
def test_host_random_forests_are_those_of_the_cpu(cuda, dtype, settings):
    x, y = samples(150, 5, 3, dtype, 0, False)
    if "task" in settings:
        y = x[:, 0] + 100
    for function in (classic.grow, classic.grow_extra, classic.grow_random):
        some = {
            a: b
            for a, b in settings.items()
            if function is not classic.grow_random or a not in ("criterion", "max_bins")
        }
        want = function(x, y, 3, rng=1, **some)
        got = cuda(function, x, y, 3, rng=1, **some)
        same_bits(got, want)
        tree.check(got)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_host_manifold_forests_are_those_of_the_cpu(cuda, dtype, task):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 12)).astype(dtype)
    y = rng.integers(0, 3, 90).astype(np.int32) if task == "classification" else x[:, :2].copy()
    for settings in (
        {"projection": "patch", "shape": (2, 6), "patch_max": 2},
        {"projection": "sparse", "density": 2.0},
        {"projection": "probe", "sample_weight": rng.random(90).astype(dtype), "class_weight": "balanced"},
    ):
        if task == "regression":
            settings.pop("class_weight", None)
        want = manifold.grow(x, y, 3, task=task, rng=1, **settings)
        got = cuda(manifold.grow, x, y, 3, task=task, rng=1, **settings)
        same_bits(got, want)
        tree.check(got)


def test_bad_distributions():
    x, y = samples(20, 12, 3, np.float32, 0, False)
    with pytest.raises(TypeError, match=r"distribution: expected hforest\.project\.Distribution, got str"):
        projected(x, y, "patch")
    with pytest.raises(ValueError, match="distribution: expected n_features = 12, got 6"):
        projected(x, y, project.axis_distribution(6))
    patches = project.patch_distribution((3, 4), patch_max=2)
    for change, error, message in (
        ({"kind": 4}, ValueError, "distribution.kind: expected 0 to 3"),
        ({"kind": 1, "density": np.nan}, ValueError, "density: expected a finite number"),
        (
            {"n_features": 24},
            ValueError,
            "distribution.n_features: expected the product of its shape, 12, got 24",
        ),
        ({"patch_max": (9, 9, 9)}, ValueError, r"patch_max\[0\]"),
        ({"shape": (3, 4)}, ValueError, "distribution.shape: expected an int or 3"),
        ({"channels": 0}, ValueError, r"shape\[3\]"),
    ):
        with pytest.raises(error, match=message):
            projected(x, y, patches._replace(**change))


def test_what_follows_from_a_distribution_is_computed_again():
    # Numbers that kernels use to size their memory cannot be set by hand.
    x, y = samples(50, 12, 3, np.float32, 0, False)
    for distribution in (
        project.patch_distribution((3, 4), patch_max=2),
        project.sparse_distribution(12, 3.0),
    ):
        want = projected(x, y, distribution)
        got = projected(x, y, distribution._replace(max_entries=1, zero_probability=0.5))
        same_bits(got.trees, want.trees)


@pytest.mark.parametrize("most", [9, 9000])
def test_sums_over_corners_are_sums_of_patches(dtype, most):
    from hforest.growth import cpu

    shape, channels = (2, 3, 4), 2
    distribution = project.patch_distribution((*shape, channels), patch_max=shape, channels=True)
    x = np.random.default_rng(0).integers(0, most, (5, 48)).astype(dtype)
    corners = cpu.prepare_projections(x, distribution, False).corners
    assert corners.dtype == (np.uint16 if most < 256 else np.uint32)
    table = corners.reshape(5, channels, 2, 4, 5)
    planes = x.reshape(5, *shape, channels)
    for k, top, left in itertools.product(range(2), range(3), range(4)):
        for bottom, right in itertools.product(range(top + 1, 4), range(left + 1, 5)):
            for channel in range(channels):
                s = table[:, channel, k].astype(np.int64)
                got = s[:, bottom, right] - s[:, top, right] - s[:, bottom, left] + s[:, top, left]
                want = planes[:, k, top:bottom, left:right, channel].sum(axis=(1, 2))
                np.testing.assert_array_equal(got % 2 ** (8 * corners.itemsize), want)


@pytest.mark.parametrize(
    ("x", "kind"),
    [
        ([[0, 255]], 2), ([[0, 256]], 1), ([[-1, 3]], 1), ([[0.5, 1]], 0), ([[2**24, 0]], 1), ([[2**24, 1]], 0),
        ([[2**25, 0]], 0), ([[-(2**23), 2**23]], 1), ([[1, 2], [0, 300]], 1),
    ],
)  # fmt: skip
def test_whole_numbers(dtype, x, kind):
    from hforest.growth import cpu

    x = np.array(x, dtype)
    prepared = cpu.prepare_projections(x, project.axis_distribution(x.shape[1]), False)
    assert prepared.whole == (kind > 0)
    assert (prepared.numbers is not None) == (kind == 2)
    if kind == 2:
        np.testing.assert_array_equal(prepared.numbers, x)


# --------------------------------------------------------------------------------------- vector paths


@several_paths
@pytest.mark.parametrize("max_bins", [None, 256, 10])
@pytest.mark.parametrize(
    ("n", "n_classes", "heaviest", "min_samples_leaf"),
    [(40, 2, 1, 1), (900, 3, 4, 1), (900, 40, 1, 1), (3000, 10, 2, 1), (3000, 30, 60, 1), (1200, 5, 3, 4)],
)
def test_vector_paths_grow_the_same_trees(simd, max_bins, n, n_classes, heaviest, min_samples_leaf):
    # Few and many samples, few and too many classes, weights too large for counting, columns without a split.
    rng = np.random.default_rng(n + n_classes)
    x = rng.normal(size=(n, 40)).astype(np.float32)
    x[:, 5:15] = rng.integers(0, 3, (n, 10))
    x[:, 15:35] = rng.random((n, 20)) < 0.01
    x[:, 35:] = 7
    y = ((x[:, 0] > 0) + rng.integers(0, n_classes, n)).astype(np.int32) % n_classes
    bins = growth.encode(x, max_bins=max_bins)
    weights = rng.integers(1, heaviest + 1, n).astype(np.float64)
    grown = {}
    for path in machine.simd_paths():
        simd(path)
        grown[path] = growth.grow(
            bins, y, 3, sample_weight=weights, n_classes=n_classes, max_features=20, rng=1,
            min_samples_leaf=min_samples_leaf,
        )  # fmt: skip
        if n == 40:
            with hforest.using("reference"):
                expected = growth.grow(
                    bins, y, 3, sample_weight=weights, n_classes=n_classes, max_features=20, rng=1
                )
            assert all(a.tobytes() == b.tobytes() for a, b in zip(grown[path], expected, strict=True))
    for trees in grown.values():
        assert all(a.tobytes() == b.tobytes() for a, b in zip(trees, grown["plain"], strict=True))


@several_paths
@pytest.mark.parametrize("max_features", [3, 7, 40])
@pytest.mark.parametrize("max_bins", [256, 20])
def test_vector_paths_read_rows_and_columns_alike(simd, max_bins, max_features):
    # More bins than stay in cache, so that nodes of some hundred samples are read by rows; many equal bins and splits.
    rng = np.random.default_rng(max_features)
    x = rng.integers(0, 256, (3000, 200)) * (rng.random((3000, 200)) < 0.4)
    x[:, 100:] *= rng.random(100) < 0.5
    y = ((x[:, :50].sum(axis=1) // 400) % 9).astype(np.int32)
    bins = growth.encode(x.astype(np.float32), max_bins=max_bins)
    grown = []
    for path in machine.simd_paths():
        simd(path)
        grown.append(growth.grow(bins, y, 2, n_classes=9, max_features=max_features, rng=2))
    for trees in grown[1:]:
        assert all(a.tobytes() == b.tobytes() for a, b in zip(trees, grown[0], strict=True))


@several_paths
@pytest.mark.parametrize("coarse", [True, False])
@pytest.mark.parametrize(
    "settings",
    [{}, {"max_features": 1}, {"min_samples_leaf": 4}, {"splitter": "random"}, {"max_bins": 256}],
)
def test_vector_paths_grow_the_same_trees_on_windows(simd, coarse, settings):
    windows, _ = overlapping(n_rows=300, n_features=30, coarse=coarse, seed=5)
    y = np.random.default_rng(1).integers(0, 5, windows.shape[0]).astype(np.int32)
    y[windows.x.ravel()[windows.base] > 0.3] = 1
    grown = []
    for path in machine.simd_paths():
        simd(path)
        grown.append(
            make(
                windows,
                y,
                sample_weight=np.ones(len(y)),
                n_trees=2,
                n_classes=5,
                **{"max_features": 3} | settings,
            )
        )
    for trees in grown[1:]:
        assert all(a.tobytes() == b.tobytes() for a, b in zip(trees, grown[0], strict=True))


@several_paths
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_vector_paths_project_the_same(simd, dtype):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(333, 64)).astype(dtype)
    y = rng.integers(0, 3, 333, np.int32)
    distribution = project.patch_distribution((8, 8), patch_max=8)
    grown = []
    for path in machine.simd_paths():
        simd(path)
        grown.append(growth.grow_projected(x, y, 3, distribution, n_classes=3, n_projections=8, rng=1))
    for other in grown[1:]:
        assert other.indices.tobytes() == grown[0].indices.tobytes()
        assert all(a.tobytes() == b.tobytes() for a, b in zip(other.trees, grown[0].trees, strict=True))


def awkward(values, n, rng):
    """Samples whose projections fall into few or many, full or empty buckets."""
    x = rng.normal(size=(n, 12))
    if values == "grey":
        x = np.round(20 * x)
    elif values == "whole":
        x = np.round(3000 * x)
    elif values == "background":
        x = np.where(rng.random((n, 12)) < 0.7, -1, x)
    elif values == "whole background":
        x = np.where(rng.random((n, 12)) < 0.7, 0, np.round(900 * abs(x)))
    elif values == "outliers":
        x[rng.random((n, 12)) < 0.01] *= 1e20
    elif values == "huge":
        x = 1e38 * np.clip(x, -3, 3)
    elif values == "tiny":
        x *= 1e-44
    elif values == "zeros":
        x = np.where(rng.random((n, 12)) < 0.5, np.copysign(0, x), x)
    return x.astype(np.float32)


@several_paths
@pytest.mark.parametrize("n_classes", [2, 12, 40])
@pytest.mark.parametrize(
    "values",
    ["normal", "grey", "whole", "background", "whole background", "outliers", "huge", "tiny", "zeros"],
)
def test_buckets_lose_no_split(simd, values, n_classes):
    # Nodes of all sizes, with splits in full and in empty buckets, next to and at a value with a bucket of its own.
    rng = np.random.default_rng(n_classes)
    x = awkward(values, 1500, rng)
    y = ((x[:, 0] > x[:, 1]) + 2 * (x[:, 2] > 0) + rng.integers(0, n_classes, 1500)).astype(
        np.int32
    ) % n_classes
    weights = rng.integers(1, 20, 1500).astype(np.float64)
    weights[rng.random(1500) < 0.01] = 400
    grown = []
    for path in machine.simd_paths():
        simd(path)
        grown.append(
            projected(
                x,
                y,
                project.sparse_distribution(12, 1.5),
                n_classes=n_classes,
                n_projections=12,
                sample_weight=weights,
            )
        )
    for other in grown[1:]:
        assert other.indices.tobytes() == grown[0].indices.tobytes()
        assert all(a.tobytes() == b.tobytes() for a, b in zip(other.trees, grown[0].trees, strict=True))


@several_paths
@pytest.mark.parametrize("values", ["bytes", "floats"])
@pytest.mark.parametrize("kind", ["patches", "sparse"])
def test_rows_columns_and_tables_hold_the_same_values(simd, values, kind):
    # Nodes that are added up in order, that read columns, and whose rows stay near.
    rng = np.random.default_rng(6)
    n, side = 2000, 14
    x = np.where(rng.random((n, side * side)) < 0.5, 0, rng.integers(0, 256, (n, side * side)))
    x = (x if values == "bytes" else np.sqrt(x) - 3).astype(np.float32)
    y = rng.integers(0, 3, n, np.int32)
    shape = (side, side)
    distribution = project.patch_distribution(shape, patch_max=8)
    if kind == "sparse":
        distribution = project.sparse_distribution(side * side, 3.0)
    grown = []
    for path in machine.simd_paths():
        simd(path)
        grown.append(projected(x, y, distribution, n_projections=10))
    for other in grown[1:]:
        assert other.indices.tobytes() == grown[0].indices.tobytes()
        assert all(a.tobytes() == b.tobytes() for a, b in zip(other.trees, grown[0].trees, strict=True))


@several_paths
@pytest.mark.parametrize("n_projections", [1, 4, 6, 21])
@pytest.mark.parametrize("values", ["bytes", "whole", "floats"])
@pytest.mark.parametrize("distribution", ["patches", "cyclic", "sparse", "dense", "probe", "axis"])
def test_blocks_and_comparisons_change_no_tree(simd, distribution, values, n_projections):
    # Nodes above, in and below blocks of all sizes, candidates that fill vectors or not, more entries than are
    # drawn at once, samples that are alike, and many features for a few candidates.
    rng = np.random.default_rng(n_projections)
    n, shape = (5000, (6, 9)) if n_projections > 1 else (900, (20, 30))
    n_features = shape[0] * shape[1]
    x = rng.integers(0, 9, (n, n_features)) * (rng.random((n, n_features)) < 0.5)
    x[n // 2 :] = x[: n - n // 2]
    x = {"bytes": x, "whole": 500 * x - 700, "floats": np.sin(x) * (x > 3)}[values].astype(np.float32)
    y = ((x[:, :20].sum(axis=1) > x[:, 20:40].sum(axis=1)) + rng.integers(0, 6, n)).astype(np.int32)
    drawn = {
        "patches": lambda: project.patch_distribution(shape, patch_max=5),
        "cyclic": lambda: project.patch_distribution(shape, patch_max=4, cyclic=True),
        "sparse": lambda: project.sparse_distribution(n_features, 1.5),
        "dense": lambda: project.sparse_distribution(n_features, 7.0),
        "probe": lambda: project.probe_distribution(n_features),
        "axis": lambda: project.axis_distribution(n_features),
    }[distribution]()
    weights = rng.integers(1, 4, n).astype(np.float64)
    grown = []
    for path in machine.simd_paths():
        simd(path)
        grown.append(
            projected(x, y, drawn, n_trees=1, n_classes=7, n_projections=n_projections, sample_weight=weights)
        )
    for other in grown[1:]:
        assert other.indices.tobytes() == grown[0].indices.tobytes()
        assert all(a.tobytes() == b.tobytes() for a, b in zip(other.trees, grown[0].trees, strict=True))


def test_whole_numbers_are_encoded_as_others_are():
    rng = np.random.default_rng(4)
    x = rng.integers(0, 256, (600, 4)).astype(np.float64)
    x[:, 1] = -0.0
    x[:, 2] = rng.integers(250, 256, 600)
    for max_bins in (None, 256, 20):
        pixels, shifted = growth.encode(x, max_bins=max_bins), growth.encode(x - 1000, max_bins=max_bins)
        assert pixels.bins.tobytes() == shifted.bins.tobytes()
        assert (pixels.low == shifted.low + 1000).all()
        assert (pixels.high == shifted.high + 1000).all()
        assert not np.signbit(pixels.low).any()


def test_a_class_in_place_of_the_dtype_of_bins_is_refused():
    # numpy.float32 == numpy.dtype("float32"), but has no itemsize that a backend may read.
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    bins = growth.encode(x)._replace(dtype=np.float32)
    with pytest.raises(
        TypeError, match=r"bins\.dtype: expected float32 or float64 as a numpy\.dtype, got <class"
    ):
        growth.grow(bins, x[:, 0] > 0, 1, rng=0)


GROWERS = {
    "classic": classic.grow,
    "extra": classic.grow_extra,
    "random": classic.grow_random,
    "oblique": partial(manifold.grow, projection="sparse"),
    "patches": partial(manifold.grow, shape=(2, 3), patch_max=2),
    "co2": partial(co2.grow, max_depth=3),
    "paper's co2": partial(co2.grow, max_depth=3, standardize=False),
}


@pytest.mark.parametrize("name", GROWERS)
@pytest.mark.parametrize("kind", ["?", "i1", "u2", "i8", "f2", "f4", "f8", "g"])
def test_large_samples_of_any_dtype_grow_the_forest_of_the_converted_ones(name, kind, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 2 if kind == "?" else 7, (90, 6)).astype(kind), rng.integers(0, 3, 90)
    want = GROWERS[name](x, y, 2, rng=0)
    monkeypatch.setattr(blocks, "CONVERTED", 100)
    assert_same(want, GROWERS[name](np.asfortranarray(x), y, 2, rng=0))
    assert want.threshold.dtype == (np.float64 if kind in ("i8", "f8", "g") else np.float32)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("layout", ["array", "Fortran order", "every second"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bins_of_32_bits_read_thresholds_from_the_samples(dtype, layout, missing):
    """Trees on samples without a table of values equal those on bins, which have one."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((70_000, 3)).astype(dtype)
    x[:, 1] = np.round(x[:, 1], 1)
    y = x[:, 0] * x[:, 2] > 0
    x[rng.random(x.shape) < missing * 0.04] = np.nan
    if layout == "Fortran order":
        x = np.asfortranarray(x)
    elif layout == "every second":
        x = np.repeat(x, 2, 1)[:, ::2]
    given = growth.samples(x)
    settings = {"max_depth": 8, "max_features": None, "bootstrap": False, "rng": 0}
    first = classic.grow(given, y, 1, **settings)
    made = given.bins(tables=False)
    assert (made.bins.dtype, made.low.size, made.values is given.x) == (np.uint32, 0, True)
    encoded = growth.encode(x)
    for a, b in zip(given.bins()[:3], encoded[:3], strict=True):
        np.testing.assert_array_equal(a, b)
    assert given.bins().low is given.bins().high is given.bins().low
    for grow in (classic.grow, classic.grow_extra):
        assert_same(grow(given, y, 1, **settings), grow(encoded, y, 1, **settings))
    assert_same(first, classic.grow(given, y, 1, **settings))


@pytest.mark.parametrize("name", GROWERS)
@pytest.mark.parametrize("layout", ["array", "Fortran order", "large", "sparse"])
def test_samples_are_encoded_once(name, layout, monkeypatch):
    grow, rng = GROWERS[name], np.random.default_rng(0)
    x, y = rng.integers(-3, 4, (90, 6)).astype(float), rng.integers(0, 3, 90)
    if layout == "sparse":
        if "co2" in name:
            pytest.skip("hyperplanes read all numbers")
        x = scipy.sparse.csr_array(x)
    elif layout != "array":
        x = np.asfortranarray(x)
    if layout == "large":
        monkeypatch.setattr(blocks, "CONVERTED", 100)
    given = growth.samples(x)
    assert growth.samples(given) is given
    assert (len(given), given.shape, given.dtype, given.has_missing) == (90, (90, 6), np.float64, False)
    first = grow(given, y, 2, rng=0)
    assert_same(first, grow(x, y, 2, rng=0))
    if layout == "sparse":
        with pytest.raises(
            TypeError, match="x: .*Columns in place of numbers: pass the data that the samples were made"
        ):
            tree.predict(first, given)
    else:
        np.testing.assert_array_equal(tree.predict(first, given), tree.predict(first, x))
        assert layout != "array" or np.asarray(given) is x
    cpu = dispatch.backend("hforest.growth", np.empty(0))
    for function in ("encode", "prepare_columns", "prepare_projections"):
        monkeypatch.setattr(cpu, function, None)
    monkeypatch.setattr(growth.sparse, "encode", None)
    assert_same(first, grow(given, y, 2, rng=0))


def test_samples_know_other_weights_and_settings():
    x, y = samples(60, 4, 3, np.float64, 3, False)
    given = growth.samples(x)
    rng = np.random.default_rng(0)
    for weight in (None, rng.random(60), rng.integers(1, 4, 60)):
        for grow in (co2.grow, classic.grow_extra, classic.grow):
            settings = {"sample_weight": weight, "max_depth": 3, "rng": 0}
            assert_same(grow(given, y, 2, **settings), grow(x, y, 2, **settings))
    for projection, shape in (("sparse", None), ("patch", (2, 2)), ("patch", (4,)), ("probe", None)):
        settings = {"projection": projection, "shape": shape, "patch_max": 2, "rng": 0}
        assert_same(manifold.grow(given, y, 2, **settings), manifold.grow(x, y, 2, **settings))


def test_samples_are_pickled_without_what_was_made():
    x, y = samples(60, 4, 3, np.float64, 3, False)
    given = growth.samples(x, max_bins=8)
    before = pickle.dumps(given)
    first = classic.grow(given, y, 2, rng=0)
    assert pickle.dumps(given) == before
    assert_same(first, classic.grow(pickle.loads(before), y, 2, rng=0))


def test_samples_take_no_settings_of_another_encoding():
    x, y = samples(60, 4, 3, np.float64, 3, False)
    given = growth.samples(x, max_bins=8)
    assert repr(given) == "Samples(ndarray of shape (60, 4), float64)"
    for settings in ({"max_bins": 4}, {"categorical": [0]}):
        with pytest.raises(ValueError, match=f"{next(iter(settings))}: expected None for samples"):
            classic.grow(given, y, 1, **settings)
        with pytest.raises(ValueError, match=f"{next(iter(settings))}: expected None for bins"):
            classic.grow(given.bins(), y, 1, **settings)
    for other in (growth.samples(given.bins()), growth.samples(np.abs(x).round(), categorical=[0])):
        for grow in (manifold.grow, co2.grow):
            with pytest.raises(TypeError, match="x: expected numbers, got (Bins|columns of categories)"):
                grow(other, y, 1)
    with pytest.raises(TypeError, match=r"x: expected an array .*, got a sparse matrix; .* x.toarray\(\)"):
        co2.grow(growth.samples(scipy.sparse.csr_array(x)), y, 1)
    x[3, 2] = np.nan
    with pytest.raises(ValueError, match=r"x: expected finite.* at index \(3, 2\)"):
        co2.grow(growth.samples(x), y, 1)


def test_few_samples_of_many_columns_are_encoded_in_few_calls(monkeypatch):
    # Each call may begin a parallel region, which waits for all threads.
    cpu = dispatch.backend("hforest.growth", np.empty(0))
    calls, encode = [], cpu.encode
    monkeypatch.setattr(cpu, "encode", lambda *args: calls.append(args[0].shape) or encode(*args))
    x = np.random.default_rng(0).normal(size=(10, 100_000))
    bins = growth.encode(x)
    assert len(calls) <= 2
    assert sum(n for _, n in calls) == 100_000
    rank = x[:, 77_777].argsort().argsort()
    assert bins.bins[77_777].tolist() == rank.tolist()


# ------------------------------------------------------------------------------------------- arguments of wrong kinds


def test_bins_have_no_values_of_a_caller():
    bins = growth.encode(np.arange(6.0).reshape(3, 2))
    with pytest.raises(TypeError, match="^bins.values: expected None, got int; call encode"):
        growth.grow(bins._replace(values=-1), [0, 1, 0], 1)


@pytest.mark.parametrize("value", [None, 1, "yes", np.array([True, False]), np.zeros(0), {1}])
def test_flags_are_true_or_false(value):
    for name in ("channels", "cyclic"):
        with pytest.raises(TypeError, match=f"^{name}: expected True or False, got .*; pass"):
            project.patch_distribution((2, 2), **{name: value})


@pytest.mark.parametrize(
    "counts", [[[1], [1, 2]], [np.zeros((2, 2)), np.zeros((2, 3))], np.ma.ones((1, 2)), "all", None]
)
def test_counts_that_are_no_array(counts):
    x, y = np.zeros((2, 1)), [0, 1]
    for grow in (classic.grow, classic.grow_extra, classic.grow_random):
        with pytest.raises((TypeError, ValueError), match="^bootstrap: expected .*, got .*; "):
            grow(x, y, 1, bootstrap=counts)
    with pytest.raises(TypeError, match="^counts: expected .*, got .*; "):
        tree.out_of_bag(classic.grow(x, y, 1), x, counts)


@pytest.mark.parametrize(
    "value", [None, [0, 1], "a", np.zeros(2), np.zeros((1, 1, 1), np.int64), np.array(["a"])]
)
def test_fields_are_named_by_their_argument(value):
    windows = growth.Windows(np.zeros((2, 2), np.float32), np.array([0, 2]), np.array([0, 1]))
    bins = growth.encode(windows)
    for field in ("base", "offset"):
        with pytest.raises((TypeError, ValueError), match=rf"^x\.{field}: expected .*, got .*; "):
            growth.encode(windows._replace(**{field: value}))
    for field in ("bins", "low", "high", "base", "offset"):
        with pytest.raises((TypeError, ValueError), match=r"^bins\.\w+: expected .*"):
            growth.grow(bins._replace(**{field: value}), [0, 1], 1)
    with pytest.raises(TypeError, match=r"^x\.x: expected .*, got .*; "):
        growth.encode(windows._replace(x=None))


def test_a_task_that_is_an_array():
    windows = growth.Windows(np.zeros((2, 2), np.float32), np.array([0, 2]), np.array([0, 1]))
    with pytest.raises(ValueError, match="^task: expected one of"):
        classic.grow(windows, [0, 1], 1, task=np.array(["classification", "regression"]))


@pytest.mark.parametrize("table", ["low", "high"])
@pytest.mark.parametrize("change", ["order", "overlap"])
def test_tables_of_bins_that_contradict_themselves_are_refused(table, change):
    x = np.random.default_rng(0).normal(size=(30, 2))
    bins = growth.encode(x)
    wrong = getattr(bins, table).copy()
    if change == "order":
        wrong[0, [0, 5]] = wrong[0, [5, 0]]
    else:
        wrong[1, 4] = wrong[1, 5] if table == "high" else wrong[1, 3]
    with pytest.raises(
        ValueError, match=r"^bins\.low: expected bins in ascending order .*, got .*; call encode"
    ):
        growth.grow(bins._replace(**{table: wrong}), np.arange(30) % 2, 1, rng=0)
    for max_bins in (None, 5):
        growth.grow(growth.encode(np.round(x), max_bins=max_bins), np.arange(30) % 2, 1, rng=0)


# ------------------------------------------------------------------------------------------- scorers


@several_paths
@hypothesis.given(
    n=st.integers(2, 400),
    n_classes=st.sampled_from([2, 3, 7, 33]),
    n_values=st.sampled_from([2, 5, 40, 256]),
    heaviest=st.sampled_from([1, 3, 200]),
    max_features=st.integers(1, 19),
    seed=st.integers(0, 2**32),
)
def test_vector_paths_score_ties_and_weights_alike(n, n_classes, n_values, heaviest, max_features, seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, n_values, (n, 19)).astype(np.float64)
    x[:, rng.integers(0, 19, 4)] = 1  # constant features
    y = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n)])[:n]
    weights = rng.integers(1, heaviest + 1, n)
    common = {"n_classes": n_classes, "sample_weight": weights, "rng": seed}
    sparse = project.sparse_distribution(19)
    bins = growth.encode(x)

    def grown(path):
        """The arrays of trees on bins, and on projections of whole numbers and of floats of either width."""
        machine.set_simd(path)
        yield from growth.grow(bins, y, 2, max_features=max_features, **common)
        for numbers in (x, x / 7, (x / 7).astype(np.float32)):
            found = growth.grow_projected(numbers, y, 2, sparse, n_projections=max_features, **common)
            yield from (*found.trees, found.indptr, found.indices, found.data)

    before = machine.simd()
    try:
        expected = list(grown("plain"))
        for path in machine.simd_paths()[1:]:
            for a, b in zip(expected, grown(path), strict=True):
                np.testing.assert_array_equal(a, b)
    finally:
        machine.set_simd(before)


@pytest.mark.parametrize("max_bins", [None, 256, 64])
@pytest.mark.parametrize("n_classes", [2, 9])
def test_nodes_of_large_weight_equal_the_sorted_scan(max_bins, n_classes):
    # Weights of 2 have whole sums, those of 1/2 are scored in float64 by the sorted scan; scores differ by a
    # power of two alone.
    rng = np.random.default_rng(n_classes)
    n = 40_000
    x = rng.normal(size=(n, 4)).astype(np.float32)
    x[:, 1] = rng.integers(0, 30, n)
    x[:, 2] = np.exp(3 * x[:, 2])
    x[:, 3] = rng.random(n) < 0.3
    y = ((x[:, 0] > 0) + 2 * (x[:, 1] > 11) + (x[:, 2] > 1) * rng.integers(0, 9, n)).astype(int) % n_classes
    bins, sparse = growth.encode(x, max_bins=max_bins), project.sparse_distribution(4)
    grow = [
        lambda weight: growth.grow(bins, y, 2, max_depth=3, max_features=2, sample_weight=weight, rng=1),
        *(
            lambda weight, a=a: (
                growth.grow_projected(
                    a, y, 2, sparse, n_projections=3, max_depth=3, sample_weight=weight, rng=1
                ).trees
            )
            for a in (x, np.round(3 * x))
        ),
    ]
    for call in grow:
        whole, half = call(np.full(n, 2.0)), call(np.full(n, 0.5))
        for name in ("tree_start", "feature", "threshold", "left", "value"):
            np.testing.assert_array_equal(getattr(whole, name), getattr(half, name), err_msg=name)
        np.testing.assert_array_equal(whole.gain, 4 * half.gain)
        assert (whole.feature != -1).sum() > 4


LEAST = {
    "thresholds": (growth.grow, {}),
    "entropy": (growth.grow, {"criterion": "entropy"}),
    "random thresholds": (growth.grow, {"splitter": "random"}),
    "projections": (manifold.grow, {}),
    "random thresholds of projections": (manifold.grow, {"splitter": "random"}),
    "hyperplanes": (co2.grow, {"max_rounds": 2, "min_samples_oblique": 1, "standardize": False}),
}


@pytest.mark.slow
@pytest.mark.parametrize("weighted", ["ones", "whole", "floats"])
@pytest.mark.parametrize("kind", [*LEAST, "targets"])
def test_leaves_have_their_least_weight(fast_backend, reference, kind, weighted):
    function, settings = LEAST.get(kind, (growth.grow, {"task": "regression"}))
    rng = np.random.default_rng(3)
    x, y = samples(40, 4, 3, np.float64, 3, False)
    weight = {"ones": np.ones(40), "whole": rng.integers(1, 9, 40), "floats": rng.random(40) + 0.1}[weighted]
    if kind == "targets":
        y = x[:, 0] + x[:, 1]
    settings = {"bootstrap": False, "sample_weight": weight.astype(float), "rng": 0, **settings}

    def grow(array, fraction):
        given = {name: array(a) if name == "sample_weight" else a for name, a in settings.items()}
        if function is growth.grow:
            given["max_features"] = None
        first = growth.encode(array(x)) if function is growth.grow else array(x)
        return function(first, array(y), 3, **given, min_weight_fraction_leaf=fraction)

    for fraction in (0.05, 0.2, 0.5):
        got = grow(fast_backend.array, fraction)
        got = type(got)(*(fast_backend.numpy(a) for a in got))
        want = reference(grow, np.asarray, fraction)
        if kind == "hyperplanes" and weighted == "floats":  # stumps are those of the reference to rounding
            np.testing.assert_array_equal(got.left, want.left)
            np.testing.assert_allclose(got.threshold, want.threshold, rtol=1e-9)
        else:
            assert_same(got, want)
        forest = want
        if function is growth.grow:
            none = {"indptr": np.zeros(0, np.int64), "indices": np.zeros(0, np.int32), "data": np.zeros(0)}
            forest = tree.Forest(np.array(4), **want._asdict() | none)
        leaf = tree.apply(forest, x)
        for m in range(3):
            in_leaf = np.bincount(leaf[:, m], weights=weight)
            assert (in_leaf[in_leaf > 0] >= fraction * weight.sum() * (1 - 1e-12)).all()
    assert (np.diff(forest.tree_start) <= 3).all()


def test_the_least_weight_chooses_the_split():
    # Of six samples only the splits next to the heavy ones leave a third of the weight on both sides.
    x = np.arange(6.0)[:, None]
    y, weight = [0, 0, 0, 1, 1, 1], [1.0, 1.0, 1.0, 1.0, 8.0, 8.0]
    settings = {"max_features": None, "bootstrap": False, "sample_weight": weight, "max_depth": 1, "rng": 0}
    assert classic.grow(x, y, 1, **settings).threshold[0] == 2.5
    assert classic.grow(x, y, 1, **settings, min_weight_fraction_leaf=0.15).threshold[0] == 2.5
    assert classic.grow(x, y, 1, **settings, min_weight_fraction_leaf=0.16).threshold[0] == 3.5
    assert classic.grow(x, y, 1, **settings, min_weight_fraction_leaf=0.4).threshold[0] == 4.5
    assert classic.grow(x, y, 1, **settings, min_weight_fraction_leaf=0.41).feature.tolist() == [-1]


@pytest.mark.slow
@pytest.mark.skipif(leaks._mallinfo is None, reason="needs mallinfo2 of glibc")
@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize(
    "kind", ["numbers", "categories", "sparse", "projections", "hyperplanes", "random thresholds"]
)
def test_trees_give_back_their_memory(kind, task, threads):
    # Returns the bytes of the C library's heap in use after a call.
    rng = np.random.default_rng(0)
    x = rng.integers(0, 60, (60, 4)).astype(np.float64)
    y = rng.integers(0, 3, 60) if task == "classification" else rng.normal(size=60)
    grow = classic.grow
    if kind == "categories":
        grow = partial(classic.grow, categorical=[0, 1])
    elif kind == "sparse":
        x = scipy.sparse.csr_array(x * (rng.random(x.shape) < 0.3))
    elif kind == "projections":
        grow = manifold.grow
    elif kind == "hyperplanes":
        grow = partial(co2.grow, max_rounds=2)
    elif kind == "random thresholds":
        grow = classic.grow_extra
    threads(1)  # other threads have heaps of their own
    used = []
    for _ in range(4):
        grow(x, y, 100, task=task, max_depth=3, rng=0)
        used.append(leaks.in_use()[1])
    assert used[3] - used[2] < 16 * 100  # bytes; the smallest block of the heap has 32
