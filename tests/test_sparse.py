"""Sparse matrices: bins, growing and walks are bit-identical to those of the dense array on every backend."""

import re
import subprocess
import sys
import textwrap

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse
from conftest import assert_same_bits, entered, several_paths
from growers import assert_all_same, grow, on_paths

import hforest
from hforest import growth, project, tree
from hforest.core import machine
from hforest.growth import sparse as stored_bins

pytestmark = pytest.mark.kernels

FORMATS = {
    "csr": scipy.sparse.csr_array,
    "csc": scipy.sparse.csc_array,
    "csr_matrix": scipy.sparse.csr_matrix,
    "unsorted": lambda x: unsorted(scipy.sparse.csc_array(x)),
}


def unsorted(a):
    """Returns the same matrix with columns in descending order."""
    for f in range(len(a.indptr) - 1):
        part = slice(a.indptr[f], a.indptr[f + 1])
        a.indices[part], a.data[part] = a.indices[part][::-1].copy(), a.data[part][::-1].copy()
    a.has_sorted_indices = False
    return a


def problem(seed, n, *, density=0.2, missing=False, dtype=np.float32, n_features=None, categories=0):
    """Returns an array with few nonzero numbers, and labels."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 30)) if n_features is None else n_features
    x = np.where(rng.random((n, d)) < density, np.round(rng.normal(size=(n, d)), 1), 0)
    x[:, :categories] = np.where(rng.random((n, categories)) < 0.5, rng.integers(0, 9, (n, categories)), 0)
    if missing:
        x[rng.random((n, d)) < 0.1] = np.nan
    return x.astype(dtype), rng.integers(0, 4, n)


# -------------------------------------------------------------------------------------------- bins


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", ["reference", "cpu"])
@hypothesis.given(
    n=st.integers(1, 60),
    density=st.sampled_from([0.0, 0.1, 0.6, 1.0]),
    missing=st.booleans(),
    double=st.booleans(),
    max_bins=st.sampled_from([None, 1, 3, 256]),
    categories=st.integers(0, 2),
    seed=st.integers(0, 10**6),
)
@hypothesis.settings(max_examples=25, suppress_health_check=[hypothesis.HealthCheck.differing_executors])
def test_bins_are_those_of_the_array(name, kind, n, density, missing, double, max_bins, categories, seed):
    x, _ = problem(
        seed, n, density=density, missing=missing, dtype=np.float64 if double else np.float32, n_features=4,
        categories=categories,
    )  # fmt: skip
    settings = {"max_bins": max_bins, "categorical": list(range(categories)) if categories else None}
    with entered(name):
        want, got = (hforest.samples(a, **settings).bins() for a in (x, FORMATS[kind](x)))
    assert got.shape == want.shape
    assert got.bins.dtype == want.bins.dtype
    full = stored_bins.all_bins(got)
    for field in ("bins", "low", "high", "missing", "categorical"):
        a, b = getattr(full, field), getattr(want, field)
        assert (a is None) == (b is None), field
        if a is not None:
            # Tables of an array have a place for missing values in every column.
            np.testing.assert_array_equal(a, b[:, : a.shape[1]] if b.ndim == 2 else b, err_msg=field)


def test_stored_zeros_are_zeros():
    a = scipy.sparse.csr_array(([0.0, -0.0, 2.0], ([0, 1, 2], [0, 1, 0])), shape=(3, 2))
    assert a.nnz == 3
    bins = hforest.samples(a).bins()
    np.testing.assert_array_equal(stored_bins.all_bins(bins).bins, [[0, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(bins.low, [[0, 2, 0]])


def test_the_matrix_of_the_caller_stays_as_it_is():
    x, y = problem(0, 50)
    a = unsorted(scipy.sparse.csc_array(x))
    before = a.copy()
    hforest.grow(a, y, 3, n_classes=4, rng=0)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(a, name), getattr(before, name))


# ------------------------------------------------------------------------------------------ growing


PROJECTIONS = {
    "sparse": lambda n: project.sparse_distribution(n, 3.0),
    "probe": lambda n: project.probe_distribution(n, 0.5),
    "kernels": lambda n: project.kernel_distribution((n,), [[1, -0.5], [1]]),
}
SETTINGS = st.fixed_dictionaries(
    {
        "criterion": st.sampled_from(["gini", "gini", "entropy"]),
        "min_samples_leaf": st.integers(1, 3),
        "min_weight_fraction_leaf": st.sampled_from([0.0, 0.0, 0.15]),
        "max_depth": st.sampled_from([None, 3]),
        "bootstrap": st.booleans(),
    }
)


@pytest.mark.parametrize("name", ["reference", "cpu"])
@hypothesis.given(
    n=st.integers(1, 60),
    density=st.sampled_from([0.05, 0.3, 1.0]),
    missing=st.booleans(),
    double=st.booleans(),
    max_bins=st.sampled_from([None, 5]),
    max_features=st.sampled_from(["sqrt", None, 1]),
    kind=st.sampled_from(["features", "extra"]),
    categories=st.integers(0, 2),
    weighted=st.sampled_from([None, "whole", "large", "real"]),
    settings=SETTINGS,
    seed=st.integers(0, 10**6),
)
@hypothesis.settings(max_examples=50, suppress_health_check=[hypothesis.HealthCheck.differing_executors])
def test_trees_are_those_of_the_array(
    name, n, density, missing, double, max_bins, max_features, kind, categories, weighted, settings, seed
):
    x, y = problem(
        seed, n, density=density, missing=missing, dtype=np.float64 if double else np.float32,
        categories=categories,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    weight = {
        None: None, "whole": rng.integers(1, 4, n), "large": rng.integers(1, 2000, n), "real": 0.1 + rng.random(n)
    }[weighted]  # fmt: skip
    settings = settings | {"n_classes": 4, "max_features": max_features, "rng": seed, "sample_weight": weight}

    def grown(x):
        x = hforest.samples(x, max_bins=max_bins, categorical=list(range(categories)) if categories else None)
        return grow(x, y, 3, kind=kind, **settings)

    want = grown(x)
    with entered(name):
        assert_same_bits(grown(scipy.sparse.csr_array(x)), want)


@pytest.mark.parametrize("name", ["reference", "cpu"])
@hypothesis.given(
    n=st.integers(1, 60),
    density=st.sampled_from([0.05, 0.3, 1.0]),
    missing=st.booleans(),
    double=st.booleans(),
    projection=st.sampled_from(["sparse", "sparse", "probe"]),
    splitter=st.sampled_from(["best", "best", "random"]),
    n_projections=st.sampled_from([None, 20]),
    regression=st.booleans(),
    settings=SETTINGS,
    seed=st.integers(0, 10**6),
)
@hypothesis.settings(max_examples=50, suppress_health_check=[hypothesis.HealthCheck.differing_executors])
def test_trees_on_projections_are_those_of_the_array(
    name, n, density, missing, double, projection, splitter, n_projections, regression, settings, seed
):
    x, y = problem(seed, n, density=density, missing=missing, dtype=np.float64 if double else np.float32)
    distribution = PROJECTIONS[projection](x.shape[1])
    settings = settings | {"rng": seed, "projections": distribution, "splitter": splitter, "n_classes": 4}
    settings["n_projections"] = n_projections
    if regression:
        settings |= {"task": "regression", "criterion": None, "n_classes": None}
        y = np.random.default_rng(seed).normal(size=n)
    want = hforest.grow(x, y, 3, **settings)
    with entered(name):
        assert_same_bits(hforest.grow(scipy.sparse.csc_array(x), y, 3, **settings), want)


def test_targets_bins_and_random_trees_are_those_of_the_array():
    x, _ = problem(3, 300)
    a, labels = scipy.sparse.csr_array(x), np.arange(300) % 3
    dense, stored = (hforest.samples(given, max_bins=7) for given in (x, a))
    for of_array, of_matrix, y, settings in (
        (x, a, np.random.default_rng(0).normal(size=(300, 2)), {"kind": "features", "task": "regression"}),
        (x, a, labels, {"kind": "random"}),
        (dense, stored, labels, {"kind": "features"}),
        (x, a, labels, {"kind": "sparse", "n_projections": 5}),
    ):
        assert_same_bits(grow(of_matrix, y, 4, rng=0, **settings), grow(of_array, y, 4, rng=0, **settings))


def test_sums_of_few_samples_in_float64_are_those_of_the_array():
    for seed in range(20):
        x, y = problem(seed, 20, density=0.05, dtype=np.float64, n_features=30)
        settings = {"n_classes": 4, "projections": PROJECTIONS["sparse"](30), "rng": seed}
        got, want = (hforest.grow(a, y, 5, **settings) for a in (scipy.sparse.csr_array(x), x))
        assert_same_bits(got, want)


@several_paths
@pytest.mark.parametrize("kind", ["features", "sparse"])
@pytest.mark.parametrize("n", [40, 700, pytest.param(5000, marks=pytest.mark.slow)])
def test_many_samples_give_the_same_bits_on_every_path_and_number_of_threads(n, kind, simd, threads):
    x, y = problem(1, n, density=0.15, n_features=60)
    x[:, 0] = np.random.default_rng(0).normal(size=n)  # a dense column
    a, settings = scipy.sparse.csr_array(x), {"kind": kind, "n_classes": 4, "rng": 0}
    found = [grow(x, y, 6, **settings)]
    for count in (1, 3):
        threads(count)
        found += on_paths(simd, lambda: grow(a, y, 6, **settings))
    assert_all_same(found)


@pytest.mark.skipif(machine._bodies_taken() is None, reason="bodies are counted with HFOREST_DEBUG=1 alone")
@pytest.mark.parametrize("kind", ["features", "sparse"])
def test_few_stored_numbers_are_scanned_alone(kind):
    x, y = problem(1, 400, density=0.05)
    scans = []
    for a in (scipy.sparse.csr_array(x), x):
        before = machine._bodies_taken().get("growth.stored_scan", 0)
        grow(a, y, 1, kind=kind, n_classes=4, rng=0)
        scans.append(machine._bodies_taken()["growth.stored_scan"] - before)
    assert scans[0] > scans[1] == 0


# -------------------------------------------------------------------------------------------- walks


@pytest.mark.parametrize("name", ["reference", "cpu"])
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("missing", [False, True])
def test_leaves_and_means_are_those_of_the_array(name, kind, missing):
    x, y = problem(5, 130, missing=missing)
    settings = {"n_classes": 4, "rng": 0}
    oblique = {"projections": PROJECTIONS["sparse"](x.shape[1])}
    for forest in (hforest.grow(x, y, 5, **given, **settings) for given in ({}, {"max_depth": 0}, oblique)):
        for function in (tree.apply, tree.predict, tree.vote_shares):
            want = function(forest, x)
            out = np.empty_like(want)
            with entered(name):
                got = function(forest, FORMATS[kind](x), out=out)
            assert got is out
            np.testing.assert_array_equal(got, want)


def test_no_rows_and_a_row_without_numbers():
    x, y = problem(5, 60)
    forest = hforest.grow(x, y, 5, n_classes=4, rng=0)
    assert tree.predict(forest, scipy.sparse.csr_array((0, x.shape[1]))).shape == (0, 4)
    empty = scipy.sparse.csr_array((1, x.shape[1]))
    want = tree.predict(forest, np.zeros((1, x.shape[1])))
    np.testing.assert_array_equal(tree.predict(forest, empty), want)


def test_out_of_bag_errors_take_what_apply_returns():
    x, y = problem(5, 200)
    a, counts = scipy.sparse.csr_array(x), growth.bootstrap_counts(200, 20, rng=0)
    forest = hforest.grow(a, y, 20, bootstrap=counts, n_classes=4, rng=0)
    np.testing.assert_array_equal(tree.apply(forest, a), tree.apply(forest, x))


# ------------------------------------------------------------------------------------------- errors


def matrix(**changes):
    a = scipy.sparse.csr_array(np.array([[1.0, 0], [0, 2], [3, 4]]))
    for name, value in changes.items():
        setattr(a, name, value)
    return a


@pytest.mark.parametrize(
    ("a", "error", "message"),
    [
        (matrix().tocoo(), TypeError, "x: expected a sparse matrix in CSR or CSC format, got COO; pass x.tocsr()"),
        (matrix().astype(complex), TypeError, "x: expected real numbers, got dtype complex128"),
        (scipy.sparse.csr_array(([1.0, 2.0, 3.0], [0, 0, 1], [0, 2, 2, 3]), shape=(3, 2)), ValueError,
            "x: expected each entry to be stored once, got entry (0, 0) repeatedly; call x.sum_duplicates()"),
        (scipy.sparse.csc_array(([1.0, 2.0, 3.0], [2, 0, 2], [0, 0, 3]), shape=(3, 2)), ValueError,
            "x: expected each entry to be stored once, got entry (2, 1) repeatedly"),
        (matrix(data=np.array([1.0, np.inf, 3, 4])), ValueError, "x.data: expected finite numbers, or NaN"),
        (matrix(indices=np.array([0, 1, 0, 7])), IndexError, "x.indices: expected 0 <= index < 2, got 0 to 7"),
        (matrix(indices=np.array([0, -1, 0, 1])), IndexError, "x.indices: expected 0 <= index < 2, got -1"),
        (matrix(indptr=np.array([0, 3, 2, 4])), ValueError, "x.indptr: expected 4 ascending numbers from 0"),
        (matrix(indptr=np.array([0, 1, 2, 99])), ValueError, "x.indptr: expected 4 ascending numbers from 0"),
        (matrix(indptr=np.array([0, 1])), ValueError, "x.indptr: expected 4 ascending numbers from 0"),
        (scipy.sparse.csr_array((0, 2)), ValueError, "x: expected 1 to 2**31 - 1 samples, got 0"),
        (scipy.sparse.csr_array((1, 2**31)), ValueError, "x: expected at most 2**31 - 1 samples and features"),
        (scipy.sparse.csr_array((3, 0)), ValueError, "x: expected 1 to 2**31 - 1 features, got 0"),
    ],
)  # fmt: skip
def test_matrices_that_are_refused(a, error, message):
    sparse = project.sparse_distribution(2)
    for call in (
        lambda: hforest.samples(a), lambda: hforest.grow(a, [0, 1, 1], 2),
        lambda: hforest.grow(a, [0, 1, 1], 2, projections=sparse),
    ):  # fmt: skip
        with pytest.raises(error, match=re.escape(message)):
            call()


def test_rows_that_are_refused():
    forest = hforest.grow(matrix(), [0, 1, 1], 3, rng=0)
    message = r"x: expected shape \(n_samples, n_features\) = \(n_samples, 2\), got \(4, 3\)"
    with pytest.raises(ValueError, match=message):
        tree.predict(forest, scipy.sparse.csr_array((4, 3)))
    with pytest.raises(ValueError, match=r"x\.data: expected finite numbers, or NaN .*, got inf .*drop"):
        tree.predict(forest, matrix(data=np.array([1.0, np.inf, 3, 4])))
    with pytest.raises(TypeError, match="in CSR or CSC format, got LIL"):
        tree.apply(forest, matrix().tolil())
    y = np.zeros((3, 2))
    with pytest.raises(ValueError, match="out"):
        tree.predict(forest, scipy.sparse.csr_array((y.ravel(), [0, 1] * 3, [0, 2, 4, 6])), out=y)


def test_functions_on_arrays_name_those_that_take_matrices():
    with pytest.raises(TypeError, match=r"x\.toarray\(\)"):
        hforest.co2.grow(matrix(), [0, 1, 1], 2)


@pytest.mark.slow
def test_memory_is_linear_in_what_is_stored():
    """A matrix of 100,000 x 100,000, 5 million numbers: bins, trees and predictions within 2 GB."""
    program = """
        import resource
        import numpy as np, scipy.sparse
        import hforest
        rng, n = np.random.default_rng(0), 100_000
        columns = rng.integers(0, n, (n, 50))
        x = scipy.sparse.csr_array(
            (rng.integers(1, 9, 50 * n).astype(np.float32), columns.ravel(), np.arange(0, 50 * n + 1, 50)), shape=(n, n)
        )
        x.sum_duplicates()
        y = (x @ rng.normal(size=n) > 0).astype(int)
        for projections in (None, hforest.project.sparse_distribution(n)):
            hforest.tree.predict(hforest.grow(x, y, 2, projections=projections, max_depth=20, rng=0), x)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) * 1024 < 2e9


def test_indices_of_any_layout():
    x = scipy.sparse.csr_array(np.array([[0.0, 1, 0], [2, 0, 3], [0, 0, 0]]))
    forest = hforest.grow(x, [0, 1, 0], 2, rng=0)
    expected = tree.predict(forest, x)
    for layout in (strided, unaligned):
        other = x.copy()
        other.indices, other.indptr, other.data = layout(x.indices), layout(x.indptr), layout(x.data)
        np.testing.assert_array_equal(tree.predict(forest, other), expected)
        np.testing.assert_array_equal(hforest.grow(other, [0, 1, 0], 2, rng=0).value, forest.value)


def strided(a):
    wide = np.repeat(a, 2)[::2]
    assert not wide.flags.c_contiguous
    return wide


def unaligned(a):
    given = np.frombuffer(b"." + a.tobytes(), np.uint8)[1:].view(a.dtype)
    assert not given.flags.aligned
    return given


@pytest.mark.libraries
@pytest.mark.parametrize("by_columns", [False, True])
def test_estimators_sum_entries_that_are_stored_twice(by_columns):
    pytest.importorskip("sklearn")
    from hforest import sklearn as estimators

    rng = np.random.default_rng(0)
    place, data = rng.integers(0, 8, (60, 5)), rng.normal(size=300)
    x = scipy.sparse.csr_array((data, place.ravel(), np.arange(0, 301, 5)), shape=(60, 8))
    if by_columns:
        entry = np.lexsort((np.repeat(np.arange(60), 5), place.ravel()))
        starts = np.searchsorted(place.ravel()[entry], np.arange(9))
        x = scipy.sparse.csc_array((data[entry], entry // 5, starts), shape=(60, 8))
    y = (data[::5] > 0).astype(int)
    before = x.data.copy()
    model = estimators.RandomForestClassifier(5, random_state=0).fit(x, y)
    dense = estimators.RandomForestClassifier(5, random_state=0).fit(x.toarray(), y)
    np.testing.assert_array_equal(model.predict_proba(x), dense.predict_proba(x.toarray()))
    np.testing.assert_array_equal(x.data, before)
