"""Samples of growth: bins, windows, cached representations, and arguments that are refused."""

import pickle

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse
from conftest import assert_same_bits
from growers import GROWERS, KINDS, both, grow, make, overlapping, problem, windows_of

import hforest
from hforest import co2, growth, project, tree
from hforest.core import blocks, dispatch

pytestmark = pytest.mark.kernels

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
    x, _ = problem(n, n_columns, 2, np.float64 if double else np.float32, seed, coarse)
    x[::3] *= -1  # zeros of either sign
    bins = hforest.samples(x, max_bins=most).bins()
    with hforest.using("reference"):
        assert_same_bits(bins, hforest.samples(x, max_bins=most).bins())
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
        assert hforest.samples(np.arange(n, dtype=np.float64)[:, None]).bins().bins.dtype == dtype


def test_bins_hold_about_as_many_samples_each():
    x = np.random.default_rng(0).normal(size=(10_000, 1))
    counts = np.bincount(hforest.samples(x, max_bins=100).bins().bins[0])
    assert len(counts) == 100
    assert 98 <= counts.min() <= counts.max() <= 102


def test_extreme_values_keep_their_order():
    tiny, most = np.nextafter(0, 1), np.finfo(float).max
    x = np.array([[most], [-tiny], [0.0], [tiny], [1.0], [np.nextafter(1, 2)], [-most]])
    assert hforest.samples(x).bins().bins[0].tolist() == [6, 1, 2, 3, 4, 5, 0]


def test_whole_numbers_are_encoded_as_others_are():
    rng = np.random.default_rng(4)
    x = rng.integers(0, 256, (600, 4)).astype(np.float64)
    x[:, 1] = -0.0
    x[:, 2] = rng.integers(250, 256, 600)
    for max_bins in (None, 256, 20):
        pixels, shifted = (hforest.samples(a, max_bins=max_bins).bins() for a in (x, x - 1000))
        assert pixels.bins.tobytes() == shifted.bins.tobytes()
        assert (pixels.low == shifted.low + 1000).all()
        assert (pixels.high == shifted.high + 1000).all()
        assert not np.signbit(pixels.low).any()


def test_bins_are_exact_on_few_values():
    x, y = problem(200, 5)
    x = np.round(4 * x)
    assert_same_bits(
        hforest.grow(hforest.samples(x, max_bins=256), y, 5, rng=0), hforest.grow(x, y, 5, rng=0)
    )


def test_few_samples_of_many_columns_are_encoded_in_few_calls(monkeypatch):
    # Each call may begin a parallel region, which waits for all threads.
    cpu = dispatch.backend("hforest.growth", np.empty(0))
    calls, encode = [], cpu.encode
    monkeypatch.setattr(cpu, "encode", lambda *args: calls.append(args[0].shape) or encode(*args))
    x = np.random.default_rng(0).normal(size=(10, 100_000))
    bins = hforest.samples(x).bins()
    assert len(calls) <= 2
    assert sum(n for _, n in calls) == 100_000
    rank = x[:, 77_777].argsort().argsort()
    assert bins.bins[77_777].tolist() == rank.tolist()


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("layout", ["array", "Fortran order", "every second"])
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
    given, encoded = hforest.samples(x), hforest.samples(x)
    settings = {"max_depth": 8, "max_features": None, "bootstrap": False, "rng": 0}
    first = hforest.grow(given, y, 1, **settings)
    made = given.bins(tables=False)
    assert (made.bins.dtype, made.low.size, np.shares_memory(made.values, given.x)) == (np.uint32, 0, True)
    assert_same_bits(given.bins()[:3], encoded.bins()[:3])
    assert given.bins().low is given.bins().high is given.bins().low
    for splitter in ("best", "random"):
        got, want = (hforest.grow(x, y, 1, splitter=splitter, **settings) for x in (given, encoded))
        assert_same_bits(got, want)
    assert_same_bits(first, hforest.grow(given, y, 1, **settings))


# ------------------------------------------------------------------------------------- growth on samples


@pytest.mark.parametrize("name", GROWERS)
@pytest.mark.parametrize("kind", ["?", "i1", "u2", "i8", "f2", "f4", "f8", "g"])
def test_large_samples_of_any_dtype_grow_the_forest_of_the_converted_ones(name, kind, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 2 if kind == "?" else 7, (90, 6)).astype(kind), rng.integers(0, 3, 90)
    want = GROWERS[name](x, y, 2, rng=0)
    monkeypatch.setattr(blocks, "CONVERTED", 100)
    assert_same_bits(GROWERS[name](np.asfortranarray(x), y, 2, rng=0), want)
    assert want.threshold.dtype == (np.float64 if kind in ("i8", "f8", "g") else np.float32)


@pytest.mark.parametrize("name", GROWERS)
@pytest.mark.parametrize("layout", ["array", "Fortran order", "large", "sparse", "windows"])
def test_samples_are_encoded_once(name, layout, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.integers(-3, 4, (90, 6)).astype(float), rng.integers(0, 3, 90)
    given = hforest.samples(x, windows=(np.arange(90) * 6, np.arange(6)))
    if layout == "sparse":
        if "co2" in name:
            pytest.skip("hyperplanes read all numbers")
        x = scipy.sparse.csr_array(x)
    elif layout in ("Fortran order", "large"):
        x = np.asfortranarray(x)
    if layout == "large":
        monkeypatch.setattr(blocks, "CONVERTED", 100)
    if layout != "windows":
        given = hforest.samples(x)
    assert hforest.samples(given) is given
    assert (len(given), given.shape, given.dtype, given.has_missing) == (90, (90, 6), np.float64, False)
    first = GROWERS[name](given, y, 2, rng=0)
    assert_same_bits(first, GROWERS[name](x, y, 2, rng=0))
    if layout == "sparse":
        message = "x: .*Columns in place of numbers: pass the data that the samples were made"
        with pytest.raises(TypeError, match=message):
            tree.predict(first, given)
    else:
        np.testing.assert_array_equal(tree.predict(first, given), tree.predict(first, x))
        assert layout != "array" or np.shares_memory(np.asarray(given), x)
    cpu = dispatch.backend("hforest.growth", np.empty(0))
    for function in ("encode", "prepare_columns", "prepare_projections"):
        monkeypatch.setattr(cpu, function, None)
    monkeypatch.setattr(growth.sparse, "encode", None)
    assert_same_bits(GROWERS[name](given, y, 2, rng=0), first)


@pytest.mark.parametrize("kind", ["features", "extra", "random"])
@pytest.mark.parametrize(("missing", "regression"), [(False, False), (True, True)])
def test_samples_give_the_forest_of_their_array(backend, dtype, kind, missing, regression):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 4)).astype(dtype)
    x[:, 2] = rng.integers(0, 5, 40)
    if missing:
        x[rng.random(x.shape) < 0.2] = np.nan
    y = rng.normal(size=40) if regression else rng.integers(0, 3, 40)
    task = "regression" if regression else "classification"
    got, want = (grow(a, y, 3, kind=kind, task=task, rng=1) for a in (hforest.samples(x), x))
    assert_same_bits(got, want)


def test_samples_know_other_weights_and_settings():
    x, y = problem(60, seed=3)
    given, rng = hforest.samples(x), np.random.default_rng(0)
    for weight in (None, rng.random(60), rng.integers(1, 4, 60)):
        for name in ("co2", "extra", "features"):
            settings = {"sample_weight": weight, "max_depth": 3, "rng": 0}
            assert_same_bits(GROWERS[name](given, y, 2, **settings), GROWERS[name](x, y, 2, **settings))
    for distribution in (
        project.sparse_distribution(4), project.patch_distribution((2, 2), patch_max=2),
        project.patch_distribution((4,), patch_max=2), project.probe_distribution(4, 0.5),
        project.kernel_distribution((2, 2), [[[0.5, -1]]]),
    ):  # fmt: skip
        got, want = (hforest.grow(a, y, 2, projections=distribution, rng=0) for a in (given, x))
        assert_same_bits(got, want)


def test_samples_are_pickled_without_what_was_made():
    x, y = problem(60, seed=3)
    windows = (np.arange(0, 200, 5), np.arange(3))
    gaps = np.where(np.abs(x) < 0.1, np.nan, x)
    for given in (
        hforest.samples(x, max_bins=8), hforest.samples(np.abs(x).round(), categorical=[0]),
        hforest.samples(gaps), hforest.samples(scipy.sparse.csr_array(x)),
        hforest.samples(x, windows=windows), hforest.samples(np.asfortranarray(x)),
    ):  # fmt: skip
        before = pickle.dumps(given)
        labels = y[: len(given)]
        first = hforest.grow(given, labels, 2, n_classes=3, rng=0)
        assert pickle.dumps(given) == before
        other = pickle.loads(before)
        assert repr(other) == repr(given)
        assert other.has_missing == given.has_missing
        assert_same_bits(hforest.grow(other, labels, 2, n_classes=3, rng=0), first)


def test_samples_take_no_settings_of_another_encoding():
    x, y = problem(60, seed=3)
    given = hforest.samples(x, max_bins=8)
    assert repr(given) == "Samples(ndarray of shape (60, 4), float64)"
    for name, value in (("max_bins", 4), ("categorical", [0]), ("windows", (np.arange(3), np.arange(2)))):
        with pytest.raises(ValueError, match=f"^{name}: expected None for Samples, .*; pass the array"):
            hforest.samples(given, **{name: value})
    of_categories = hforest.samples(np.abs(x).round(), categorical=[0])
    for name in ("sparse", "patch", "co2"):
        with pytest.raises(TypeError, match="x: expected numbers, got columns of categories"):
            GROWERS[name](of_categories, y, 1)
    with pytest.raises(TypeError, match=r"x: expected an array .*, got a sparse matrix; .* x.toarray\(\)"):
        co2.grow(hforest.samples(scipy.sparse.csr_array(x)), y, 1)
    x[3, 2] = np.nan
    with pytest.raises(ValueError, match=r"x: expected finite.* at index \(3, 2\)"):
        co2.grow(hforest.samples(x), y, 1)


BAD = {
    "x without samples": (np.zeros((0, 3)), ValueError, r"expected 1 to 2\*\*31 - 1 samples, got 0"),
    "x without features": (np.zeros((3, 0)), ValueError, r"expected 1 to 2\*\*31 - 1 features, got 0"),
    "x of one axis": (np.zeros(3), ValueError, r"x: expected shape .*; pass \[x\] for one sample"),
    "complex": (np.zeros((3, 3), complex), TypeError, "x: expected an array of real numbers"),
    "text": ([["a", "b", "c"]], TypeError, "x: expected an array of real numbers"),
    "infinity": (np.full((3, 3), np.inf), ValueError, "x: expected finite"),
}


@pytest.mark.parametrize(("x", "error", "message"), BAD.values(), ids=BAD)
def test_bad_samples(x, error, message):
    with pytest.raises(error, match=message):
        hforest.samples(x)
    for settings in KINDS.values():
        with pytest.raises(error, match=message):
            hforest.grow(x, np.zeros(len(x), int), 1, **settings(3))


@pytest.mark.parametrize(
    ("max_bins", "error", "message"),
    [
        (0, ValueError, "^max_bins: expected 1 to 256, got 0"),
        (257, ValueError, "^max_bins: expected 1 to 256, got 257"),
        ("binned", TypeError, "^max_bins: expected an int"),
    ],
)
def test_bad_numbers_of_bins(max_bins, error, message):
    with pytest.raises(error, match=message):
        hforest.samples(np.zeros((3, 2)), max_bins=max_bins)


# ----------------------------------------------------------------------------------------- windows


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
        {"projections": project.kernel_distribution((5,), [[0.5, 0, -1.5], [2]])},
    ],
)
def test_trees_on_windows_are_those_on_copies(dtype, settings, coarse):
    windows, copies = overlapping(dtype=dtype, coarse=coarse)
    n = len(copies)
    assert windows_of(windows).shape == copies.shape
    y = np.random.default_rng(1).integers(0, 3, n).astype(np.int32)
    for weights in (None, np.random.default_rng(2).random(n)):
        got = both(windows, y, sample_weight=np.ones(n) if weights is None else weights, **settings)
        assert_same_bits(got, make(copies, y, sample_weight=weights, **settings))


def test_windows_of_more_values_than_small_keys_hold():
    windows, copies = overlapping(n_rows=9000, seed=3, coarse=False)
    y = np.random.default_rng(1).integers(0, 3, len(copies)).astype(np.int32)
    bins = windows_of(windows).bins().bins
    assert (bins.dtype, bins.shape) == (np.uint32, (1, 9000 * 12))
    settings = {"sample_weight": np.ones(len(y)), "n_trees": 1, "max_depth": 5}
    assert_same_bits(make(windows, y, **settings), make(copies, y, **settings))


def test_what_is_made_of_windows_serves_windows_elsewhere():
    (x, base, offset), _ = overlapping(n_rows=9, n_features=40)
    there = base[::-1].copy()
    copies = x.ravel()[there[:, None] + offset]
    y, kinds = np.arange(len(base)) % 3, ("features", "sparse")
    first = hforest.samples(x, windows=(base, offset))
    for kind in kinds:
        grow(first, y, 1, kind=kind)
    moved = first.moved(there)
    assert moved.bins().bins is first.bins().bins
    for kind in kinds:
        assert_same_bits(grow(moved, y, 2, kind=kind, rng=0), grow(copies, y, 2, kind=kind, rng=0))
    # Bins of a draw are of that draw alone.
    coarse = hforest.samples(x, windows=(base, offset), max_bins=4)
    hforest.grow(coarse, y, 1)
    got, want = (
        hforest.grow(a, y, 2, rng=0) for a in (coarse.moved(there), hforest.samples(copies, max_bins=4))
    )
    assert_same_bits(got, want)


PLACES = {"base": np.array([0, 5, 7]), "offset": np.array([0, 1])}


@pytest.mark.parametrize(
    "value", [None, [0, 1], "a", 3, np.zeros(2), np.zeros((1, 1), np.int64), np.array(["a"])]
)
@pytest.mark.parametrize("name", PLACES)
def test_places_of_wrong_kinds(name, value):
    with pytest.raises((TypeError, ValueError), match=rf"^{name}: expected .*, got .*; "):
        hforest.samples(np.zeros((4, 3)), windows=tuple((PLACES | {name: value}).values()))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"base": PLACES["base"].astype(np.int32)}, TypeError, "^base: expected dtype int64"),
        ({"base": PLACES["base"] + 4}, IndexError, "^base: .* inside the 12 numbers of x, got windows from 4 to 12"),
        ({"base": PLACES["base"] - 1}, IndexError, "got windows from -1"),
        ({"base": PLACES["base"] - 1, "offset": PLACES["offset"] + 1}, IndexError, "got windows from -1"),
        ({"offset": PLACES["offset"] - 1}, IndexError, "got windows from -1"),
        ({"offset": PLACES["offset"][:0]}, ValueError, "^n_columns"),
        ({"base": PLACES["base"][:0]}, ValueError, "^n_samples"),
        ({"x": np.full((4, 3), np.inf)}, ValueError, "^x: expected finite"),
        ({"x": scipy.sparse.csr_array(np.eye(4, 3))}, TypeError, "^x: .* got csr_array; pass x.toarray"),
        ({"categorical": [0]}, ValueError, "^categorical: expected None for windows"),
        ({"windows": 3}, TypeError, r"^windows: expected \(base, offset\), got int; pass two arrays of int64"),
        ({"windows": "ab"}, TypeError, r"^windows: expected \(base, offset\), got str; "),
        ({"windows": (PLACES["base"],)}, ValueError, r"^windows: expected \(base, offset\), got 1 items; "),
        ({"max_bins": 257}, ValueError, "^max_bins: expected 1 to 256, got 257"),
    ],
)  # fmt: skip
def test_bad_windows(change, error, message):
    settings = PLACES | change
    windows = settings.pop("base"), settings.pop("offset")
    with pytest.raises(error, match=message):
        hforest.samples(settings.pop("x", np.zeros((4, 3))), **{"windows": windows} | settings)


@pytest.mark.parametrize(
    "x", [np.arange(12).reshape(4, 3), np.asfortranarray(np.eye(4, 3)), np.eye(4, 3).tolist()]
)
def test_windows_of_arrays_that_are_converted(x):
    samples = hforest.samples(x, windows=tuple(PLACES.values()))
    assert samples.dtype == np.float64
    copies = np.ravel(x)[PLACES["base"][:, None] + PLACES["offset"]].astype(float)
    assert_same_bits(hforest.grow(samples, [0, 1, 0], 3, rng=0), hforest.grow(copies, [0, 1, 0], 3, rng=0))


def test_places_belong_to_the_samples():
    x, (base, offset) = problem(20)[0], (PLACES["base"].copy(), PLACES["offset"].copy())
    samples = hforest.samples(x, windows=(base, offset))
    forest = hforest.grow(samples, [0, 1, 0], 3, rng=0)
    want = tree.apply(forest, samples)
    base[:] = offset[:] = 2**40
    np.testing.assert_array_equal(tree.apply(forest, samples), want)
    assert_same_bits(hforest.grow(samples, [0, 1, 0], 3, rng=0), forest)
    for a in samples.x[1:]:
        with pytest.raises(ValueError, match="read-only"):
            a[0] = 2**40


@pytest.mark.parametrize("name", GROWERS)
def test_growth_on_windows_has_labels_and_no_missing_values(name):
    windows, x = tuple(PLACES.values()), np.ones((4, 3))
    samples = hforest.samples(x, windows=windows)
    message = "^task: expected \"classification\" for windows, got 'regression'; copy"
    with pytest.raises(ValueError, match=message):
        GROWERS[name](samples, [0.5, 1, 2], 1, task="regression")
    with pytest.raises(ValueError, match="^task: expected one of"):
        GROWERS[name](samples, [0, 1, 0], 1, task=np.array(["classification", "regression"]))
    x[3, 2] = np.nan
    message = "^x: expected windows without NaN, got missing values; copy the windows"
    with pytest.raises(ValueError, match=message):
        GROWERS[name](hforest.samples(x, windows=windows), [0, 1, 0], 1)


def test_forests_read_windows_with_missing_values():
    x, y = problem(60, 2)
    x[::3, 1] = np.nan
    base, offset = np.arange(0, 100, 3), np.arange(2)
    windows, copies = hforest.samples(x, windows=(base, offset)), x.ravel()[base[:, None] + offset]
    assert windows.has_missing
    for known in (x, np.nan_to_num(x)):
        forest = hforest.grow(known, y, 5, rng=0)
        for function in (tree.apply, tree.predict, tree.vote_shares):
            np.testing.assert_array_equal(function(forest, windows), function(forest, copies))
