"""Trees of growth: equal to those of the reference implementation, known answers, extreme numbers."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse
from conftest import assert_same_bits
from growers import (
    GROWERS,
    KINDS,
    assert_all_same,
    assert_same,
    blobs,
    both,
    grow,
    make,
    on_paths,
    on_threads,
    problem,
)
from memory_in_use import in_use, mallinfo

import hforest
from hforest import demo, project, tree
from hforest.core import machine

pytestmark = pytest.mark.kernels

# -------------------------------------------------------------------------------- the reference implementation


@hypothesis.given(
    n=st.integers(1, 60),
    n_features=st.integers(1, 5),
    n_classes=st.integers(1, 4),
    criterion=st.sampled_from(["gini", "entropy"]),
    weighted=st.sampled_from(["ones", "whole", "floats", "zeros"]),
    max_features=st.sampled_from(["sqrt", 1, None]),
    coarse=st.booleans(),
    double=st.booleans(),
    seed=st.integers(0, 1000),
    settings=st.fixed_dictionaries({
        "bootstrap": st.booleans(),
        "max_bins": st.sampled_from([None, 3, 256]),
        "max_depth": st.sampled_from([None, 0, 1, 3]),
        "min_samples_leaf": st.integers(1, 4),
        "min_samples_split": st.sampled_from([2, 5]),
        "min_impurity_decrease": st.sampled_from([0.0, 0.01]),
        "min_weight_fraction_leaf": st.sampled_from([0.0, 0.0, 0.1, 0.3]),
        "splitter": st.sampled_from(["best", "random"]),
    }),
)  # fmt: skip
def test_trees_equal_the_reference(
    n, n_features, n_classes, criterion, weighted, max_features, coarse, double, seed, settings
):
    x, y = problem(n, n_features, n_classes, np.float64 if double else np.float32, seed, coarse)
    rng = np.random.default_rng(seed)
    weights = {
        "ones": np.ones(n),
        "whole": rng.integers(1, 300, n).astype(float),
        "floats": rng.random(n) + 0.1,
        "zeros": (rng.random(n) < 0.7).astype(float),
    }[weighted]
    weights[0] = 1
    both(
        x, y, sample_weight=weights, n_classes=n_classes, criterion=criterion, max_features=max_features,
        rng=seed, **settings,
    )  # fmt: skip


@hypothesis.given(
    n=st.integers(1, 50),
    n_features=st.integers(1, 4),
    n_outputs=st.integers(1, 3),
    weighted=st.booleans(),
    seed=st.integers(0, 1000),
    settings=st.fixed_dictionaries({
        "bootstrap": st.booleans(),
        "splitter": st.sampled_from(["best", "random"]),
        "max_features": st.sampled_from(["sqrt", 1, None]),
        "max_bins": st.sampled_from([None, 5]),
    }),
)  # fmt: skip
def test_regression_trees_equal_the_reference(n, n_features, n_outputs, weighted, seed, settings):
    x, _ = problem(n, n_features, 2, seed=seed)
    rng = np.random.default_rng(seed)
    y = x @ rng.normal(size=(n_features, n_outputs)) + 100
    weights = rng.random(n) + 0.5 if weighted else None
    both(x, y, sample_weight=weights, n_classes=None, rng=seed, **settings)


@pytest.mark.slow
def test_larger_trees_equal_the_reference():
    # More samples than a byte of bins, more classes than a byte, more candidates than one draw of the generator.
    both(*problem(260, 9, 257, np.float32), n_trees=1, n_classes=257, max_features=6)
    x, y = problem(500, 9, 5, seed=1, coarse=True)
    both(x, y, n_trees=2, n_classes=5, max_features=9, criterion="entropy")


@pytest.mark.parametrize(
    "projections", [None, project.sparse_distribution(4)], ids=["columns", "projections"]
)
@pytest.mark.parametrize("values", ["distinct", "whole", "usual", "skewed"])
@pytest.mark.parametrize("kind", ["targets", "outlier", "several", "weights", "classes", "leaves"])
def test_buckets_of_terms_pick_the_splits_of_the_reference(simd, kind, values, projections):
    x, y = problem(260, 4, 3, seed=4)
    rng = np.random.default_rng(5)
    settings = {"rng": 2, "n_trees": 2, "max_depth": 4, "n_classes": None, "projections": projections}
    targets = x[:, 0] + rng.normal(size=260)
    if values == "whole":
        x = np.round(5 * x)
    elif values == "usual":  # a value that most samples have
        x[:, :3] = np.where(rng.random((260, 3)) < 0.8, 0.5, x[:, :3])
    elif values == "skewed":
        x = np.exp(5 * x)
    if kind == "outlier":
        targets[7] = 1e12
    elif kind == "several":
        targets = np.stack([targets, y - 1.0, rng.normal(size=260)], axis=1)
    elif kind == "leaves":
        settings |= {"min_samples_leaf": 9, "min_weight_fraction_leaf": 0.05}
    elif kind in ("weights", "classes"):
        targets = y if kind == "classes" else (y > 0).astype(int)
        settings |= {"n_classes": 3, "sample_weight": rng.random(260) + 0.1}
    if projections is None:
        del settings["projections"]
    want = both(x, targets, **settings)
    assert_all_same([want, *on_paths(simd, lambda: make(x, targets, **settings))])


# More than 256 values: nodes of few samples read them, large ones their ranks.
@pytest.mark.parametrize("weights", ["none", "whole", "real"])
@pytest.mark.parametrize("task", ["gini", "entropy", "regression"])
def test_extra_trees_equal_the_reference_at_every_number_of_threads(simd, threads, dtype, task, weights):
    x, y = problem(320, 5, 4, dtype, 3)
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
        assert_all_same([want, *on_threads(threads, lambda: make(x, y, **settings))])


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
        got = (both if n < 100 else make)(x[order], y[order], **settings)
        assert len(got.feature) == 2 * n - 1


@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        # Bins of 8 bits, read from columns, and from rows.
        pytest.param((40, 14000), {"max_features": 300}, marks=pytest.mark.slow),
        pytest.param((40, 14000), {"max_features": 20}, marks=pytest.mark.slow),
        ((300, 1000), {"max_features": 20}),  # bins of 16 bits
        ((300, 1000), {"max_features": 20, "task": "regression"}),
        ((40, 4000), {"projections": project.sparse_distribution(4000)}),
        ((40, 4000), {"projections": project.sparse_distribution(4000), "task": "regression"}),
        ((40, 4000), {"projections": project.patch_distribution((4000,), patch_max=3)}),
    ],
)
def test_columns_that_do_not_stay_in_cache(shape, settings):
    """The next candidate is prefetched; trees are those of the reference implementation."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=shape).astype(np.float32), rng.integers(0, 3, shape[0])
    settings = {"max_depth": 2, "rng": 0, **settings}
    if "projections" in settings:
        settings["n_projections"] = 20
    fast = hforest.grow(x, y, 1, **settings)
    with hforest.using("reference"):
        assert_same_bits(hforest.grow(x, y, 1, **settings), fast)


# ----------------------------------------------------------------------------------------- known answers


def test_a_node_samples_on_while_candidates_are_constant():
    x = np.zeros((20, 8))
    x[:, 5] = np.arange(20)
    y = (np.arange(20) > 9).astype(np.int32)
    grown = both(x, y, n_classes=2, max_features=1, bootstrap=False, n_trees=4)
    assert grown.feature.tolist() == [5, -1, -1] * 4
    assert (grown.threshold[::3] == 9.5).all()


def test_exclusive_or_has_a_first_step_without_gain():
    x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], float)
    grown = both(x, np.array([0, 1, 1, 0]), n_classes=2, bootstrap=False)
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
    x, y = np.arange(8.0)[:, None], np.array([0, 0, 0, 0, 0, 0, 0, 1], np.int32)
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


def test_leaf_values_are_shares():
    x, y = blobs()
    np.testing.assert_allclose(hforest.grow(x, y, 5, max_depth=2, rng=0).value.sum(axis=1), 1)
    stump = hforest.grow(x, y, 1, max_depth=0, bootstrap=False, rng=0)
    np.testing.assert_allclose(stump.value[0], np.bincount(y) / len(y))


def test_a_weight_of_two_is_a_sample_twice():
    x, y = blobs(60)
    weights = np.random.default_rng(0).integers(0, 3, 60).astype(float)
    times = np.repeat(np.arange(60), weights.astype(int))
    settings = {"bootstrap": False, "max_features": None, "rng": 0}
    got = hforest.grow(x, y, 3, sample_weight=weights, **settings)
    want = hforest.grow(x[times], y[times], 3, **settings)
    for name in ("feature", "threshold", "left"):
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name), err_msg=name)
    np.testing.assert_allclose(got.value, want.value, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_of_weight_0_do_not_count(kind):
    x, y = demo.simulate_impulse(120, rng=0)
    weights = np.repeat(np.float32([1, 0]), 60)
    got = grow(x, y, 5, kind=kind, sample_weight=weights, bootstrap=False, rng=3)
    want = grow(x[:60], y[:60], 5, kind=kind, bootstrap=False, rng=3)
    np.testing.assert_array_equal(got.threshold, want.threshold)


def test_a_bootstrap_without_weight_takes_every_sample():
    x, y = problem(6, 2, 2)
    weights = np.array([1.0, 0, 0, 0, 0, 2])
    counts = np.array([[0, 3, 3, 0, 0, 0]], np.int32)
    grown = both(x, y, sample_weight=weights, n_classes=2, n_trees=1, bootstrap=counts)
    assert len(grown.feature) == (3 if y[0] != y[5] else 1)


@pytest.mark.parametrize("kind", KINDS)
def test_forests_partition_their_samples_as_they_were_grown(kind, dtype):
    # A sample that went left while growing goes left in prediction.
    x, y = problem(200, 12, dtype=dtype)
    forest = tree.check(grow(x, y, 5, kind=kind, bootstrap=False, rng=1))
    assert (tree.predict(forest, x).argmax(axis=1) == y).all()


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_threads_do_not_change_trees(threads, task):
    x, y = problem(300, 6, dtype=np.float32)
    y, n_classes = (y, 3) if task == "classification" else (x[:, :2].astype(float), None)
    assert_all_same(on_threads(threads, lambda: make(x, y, n_classes=n_classes, n_trees=20)))


def test_trees_do_not_depend_on_how_many_there_are():
    x, y = problem(100, dtype=np.float32)
    few, many = make(x, y, n_trees=2), make(x, y, n_trees=30)
    stop = few.tree_start[-1]
    assert many.tree_start[2] == stop
    np.testing.assert_array_equal(many.threshold[:stop], few.threshold)


def test_the_least_weight_chooses_the_split():
    # Of six samples only the splits next to the heavy ones leave a third of the weight on both sides.
    x = np.arange(6.0)[:, None]
    y, weight = [0, 0, 0, 1, 1, 1], [1.0, 1.0, 1.0, 1.0, 8.0, 8.0]
    settings = {"max_features": None, "bootstrap": False, "sample_weight": weight, "max_depth": 1, "rng": 0}
    for fraction, threshold in ((0.0, 2.5), (0.15, 2.5), (0.16, 3.5), (0.4, 4.5)):
        grown = hforest.grow(x, y, 1, **settings, min_weight_fraction_leaf=fraction)
        assert grown.threshold[0] == threshold
    assert hforest.grow(x, y, 1, **settings, min_weight_fraction_leaf=0.41).feature.tolist() == [-1]


LEAST = {
    "thresholds": ("features", {"max_features": None}),
    "entropy": ("features", {"max_features": None, "criterion": "entropy"}),
    "random thresholds": ("extra", {"max_features": None}),
    "targets": ("features", {"max_features": None, "task": "regression"}),
    "projections": ("sparse", {}),
    "random thresholds of projections": ("sparse", {"splitter": "random"}),
    "hyperplanes": ("co2", {"max_rounds": 2, "min_samples_oblique": 1, "standardize": False, "max_depth": None}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("weighted", ["ones", "whole", "floats"])
@pytest.mark.parametrize("kind", LEAST)
def test_leaves_have_their_least_weight(fast_backend, reference, kind, weighted):
    name, settings = LEAST[kind]
    rng = np.random.default_rng(3)
    x, y = problem(40, seed=3)
    weight = {"ones": np.ones(40), "whole": rng.integers(1, 9, 40), "floats": rng.random(40) + 0.1}[weighted]
    if kind == "targets":
        y = x[:, 0] + x[:, 1]

    def grown(array, fraction):
        return GROWERS[name](
            array(x), array(y), 3, sample_weight=array(weight.astype(float)), bootstrap=False, rng=0,
            min_weight_fraction_leaf=fraction, **settings,
        )  # fmt: skip

    for fraction in (0.05, 0.2, 0.5):
        got = tree.Forest(*map(fast_backend.numpy, grown(fast_backend.array, fraction)))
        want = reference(grown, np.asarray, fraction)
        if kind == "hyperplanes" and weighted == "floats":  # stumps are those of the reference to rounding
            np.testing.assert_array_equal(got.left, want.left)
            np.testing.assert_allclose(got.threshold, want.threshold, rtol=1e-9)
        else:
            assert_same(got, want)
        leaf = tree.apply(want, x)
        for m in range(3):
            in_leaf = np.bincount(leaf[:, m], weights=weight)
            assert (in_leaf[in_leaf > 0] >= fraction * weight.sum() * (1 - 1e-12)).all()
    assert (np.diff(want.tree_start) <= 3).all()


# ------------------------------------------------------------------------------- extreme weights and targets


def assert_scaled(extreme, usual, value_exponent=0, tiny=0.0):
    """Fails if a forest is not another with values times 2**value_exponent, and gains with other factors."""
    usual = usual._replace(value=np.ldexp(usual.value, value_exponent))
    assert_same_bits(extreme._replace(gain=usual.gain), usual)
    assert np.isfinite(extreme.gain).all()
    shares = (forest.gain / forest.gain.max() for forest in (extreme, usual))
    np.testing.assert_allclose(*shares, rtol=1e-6, atol=1e4 * tiny)


@pytest.mark.parametrize("weight_exponent", [-1000, -664, 0, 100, 328])
@pytest.mark.parametrize(
    ("dtype", "target_exponent"),
    [(np.float32, e) for e in (-80, 0, 60, 126)] + [(np.float64, e) for e in (-400, -80, 0, 60, 126, 328)],
)
@pytest.mark.parametrize("bootstrap", [True, False])
def test_regression_trees_of_extreme_numbers_are_the_scaled_ones(
    backend, dtype, weight_exponent, target_exponent, bootstrap
):
    x, _ = problem(40, 2, dtype=dtype)
    y, w = x @ [1.0, -0.5] + 0.1, 0.5 + np.arange(40) % 3
    settings = {"n_classes": None, "bootstrap": bootstrap, "n_trees": 2, "max_depth": 4}
    usual = make(x, y, sample_weight=w, **settings)
    extreme = make(
        x, np.ldexp(y, target_exponent), sample_weight=np.ldexp(w, weight_exponent), **settings
    )  # fmt: skip
    assert_scaled(extreme, usual, target_exponent, np.finfo(dtype).tiny)


@pytest.mark.parametrize("exponent", [-1000, -664, 100, 328])
@pytest.mark.parametrize("criterion", ["gini", "entropy"])
def test_classification_trees_of_extreme_weights_are_the_scaled_ones(backend, dtype, exponent, criterion):
    x, y = problem(40, 3, dtype=dtype)
    w = 0.5 + np.arange(40) % 3
    extreme, usual = (make(x, y, sample_weight=np.ldexp(w, e), criterion=criterion) for e in (exponent, -3))
    assert_scaled(extreme, usual)


def test_float32_gains_of_large_targets_can_be_read_back(backend):
    # As masses of stars in kg, and charges of electrons in coulomb.
    x = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    found = []
    for unit in (1.0, 2e30, 1.6e-19):
        forests = [
            grow(x, x[:, 0] * unit, 3, kind=k, task="regression", rng=0) for k in ("features", "sparse")
        ]
        for forest in forests:
            assert forest.gain.dtype == np.float32
            tree.check(forest)
        found.append(tree.importance(forests[0], by="gain"))
        np.testing.assert_allclose(found[-1], found[0], rtol=1e-5)


def test_in_bag_counts_do_not_make_gains_overflow(backend):
    x, y = problem(10, 2, 2, np.float32)
    settings = {"n_trees": 1, "n_classes": None, "bootstrap": np.full((1, 10), 2**31 - 1, np.int32)}
    for weight in (1.0, 2.0**100):
        grown = make(x, y * 2.0**55, sample_weight=np.full(10, weight), **settings)
        assert np.isfinite(grown.gain).all()
        assert grown.gain.max() > 0


def test_class_weights_times_weights_stay_in_range(backend):
    x, y = problem(40, 3, 2)
    usual = hforest.grow(x, y, 2, class_weight=[1.0, 0.5], rng=0)
    for by, factor in ((1e100, 2.0**332), (1e-200, 2.0**-664), (2.0**-1000, 2.0**-1000)):
        extreme = hforest.grow(
            x, y, 2, sample_weight=np.full(40, by), class_weight=[factor, factor / 2], rng=0
        )
        np.testing.assert_array_equal(extreme.feature, usual.feature)
        np.testing.assert_allclose(extreme.value, usual.value, rtol=1e-12)
    for settings in ({"class_weight": [1.0, 1e-95]}, {"sample_weight": np.where(y > 0, 1e50, 1e-50)}):
        message = f"{next(iter(settings))}: expected weights that are 0 or within a factor of .*; set"
        with pytest.raises(ValueError, match=message):
            hforest.grow(x, y, 2, **settings, rng=0)


def test_the_greatest_factor_between_weights():
    x, y = problem(40, 3, 2)
    hforest.grow(x, y, 2, sample_weight=np.where(y > 0, 2.0**300, 1.0), rng=0)
    more = np.nextafter(2.0**300, np.inf)
    message = r"sample_weight: expected weights that are 0 or within .* of 2.03704e\+90"
    with pytest.raises(ValueError, match=message):
        hforest.grow(x, y, 2, sample_weight=np.where(y > 0, more, 1.0), rng=0)


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
    oblique = {"projections": project.sparse_distribution(4), "n_projections": 3}
    for a, settings in (
        (hforest.samples(x, max_bins=max_bins), {"max_features": 2}), (x, oblique), (np.round(3 * x), oblique),
    ):  # fmt: skip
        whole, half = (
            hforest.grow(a, y, 2, max_depth=3, sample_weight=np.full(n, weight), rng=1, **settings)
            for weight in (2.0, 0.5)
        )
        assert_same_bits(half._replace(gain=4 * half.gain), whole)
        assert (whole.feature != -1).sum() > 4


# ------------------------------------------------------------------------------------------- memory


@pytest.mark.slow
@pytest.mark.skipif(mallinfo is None, reason="needs mallinfo2 of glibc")
@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("kind", ["features", "categories", "stored", "sparse", "co2", "extra"])
def test_trees_give_back_their_memory(kind, task, threads):
    # The bytes of the C library's heap in use after a call.
    rng = np.random.default_rng(0)
    x = rng.integers(0, 60, (60, 4)).astype(np.float64)
    y = rng.integers(0, 3, 60) if task == "classification" else rng.normal(size=60)
    more = {"max_rounds": 2} if kind == "co2" else {}
    if kind == "stored":
        x = scipy.sparse.csr_array(x * (rng.random(x.shape) < 0.3))
    threads(1)  # other threads have heaps of their own
    used = []
    for _ in range(5):
        given = hforest.samples(x, categorical=[0, 1]) if kind == "categories" else x
        GROWERS.get(kind, hforest.grow)(given, y, 100, task=task, **{"max_depth": 3, "rng": 0, **more})
        del given
        used.append(in_use()[1])
    # Each call would lose some; the least difference leaves out what else the process allocates.
    assert min(np.diff(used)[1:]) < 16 * 100  # bytes; the smallest block of the heap has 32
