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

import hforest
from hforest import classic, growth, manifold, project, tree
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
        want = growth.encode(x, **settings)
        got = growth.encode(FORMATS[kind](x), **settings)
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
    bins = growth.encode(a)
    np.testing.assert_array_equal(stored_bins.all_bins(bins).bins, [[0, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(bins.low, [[0, 2, 0]])


def test_the_matrix_of_the_caller_stays_as_it_is():
    x, y = problem(0, 50)
    a = unsorted(scipy.sparse.csc_array(x))
    before = [part.copy() for part in (a.data, a.indices, a.indptr)]
    classic.grow(a, y, 3, n_classes=4, rng=0)
    for part, was in zip((a.data, a.indices, a.indptr), before, strict=True):
        np.testing.assert_array_equal(part, was)


# ------------------------------------------------------------------------------------------ growing


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
    function=st.sampled_from([classic.grow, classic.grow_extra]),
    categories=st.integers(0, 2),
    weighted=st.sampled_from([None, "whole", "large", "real"]),
    settings=SETTINGS,
    seed=st.integers(0, 10**6),
)
@hypothesis.settings(max_examples=50, suppress_health_check=[hypothesis.HealthCheck.differing_executors])
def test_trees_are_those_of_the_array(
    name, n, density, missing, double, max_bins, max_features, function, categories, weighted, settings, seed
):
    x, y = problem(
        seed, n, density=density, missing=missing, dtype=np.float64 if double else np.float32,
        categories=categories,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    weight = {
        None: None, "whole": rng.integers(1, 4, n), "large": rng.integers(1, 2000, n), "real": 0.1 + rng.random(n)
    }[weighted]  # fmt: skip
    settings = settings | {
        "n_classes": 4, "max_features": max_features, "max_bins": max_bins, "rng": seed, "sample_weight": weight,
        "categorical": list(range(categories)) if categories else None,
    }  # fmt: skip
    want = function(x, y, 3, **settings)
    with entered(name):
        got = function(scipy.sparse.csr_array(x), y, 3, **settings)
    assert_same_bits(got, want)


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
    settings = settings | {"rng": seed, "projection": projection, "splitter": splitter, "n_classes": 4}
    settings |= {"n_projections": n_projections, "density": 3.0}
    if regression:
        settings |= {"task": "regression", "criterion": None, "n_classes": None}
        y = np.random.default_rng(seed).normal(size=n)
    want = manifold.grow(x, y, 3, **settings)
    with entered(name):
        got = manifold.grow(scipy.sparse.csc_array(x), y, 3, **settings)
    assert_same_bits(got, want)


def test_targets_and_random_trees_are_those_of_the_array():
    x, _ = problem(3, 300)
    y = np.random.default_rng(0).normal(size=(300, 2))
    a = scipy.sparse.csr_array(x)
    assert_same_bits(
        classic.grow(a, y, 4, task="regression", rng=0), classic.grow(x, y, 4, task="regression", rng=0)
    )
    labels = np.arange(300) % 3
    assert_same_bits(classic.grow_random(a, labels, 9, rng=0), classic.grow_random(x, labels, 9, rng=0))
    bins, stored = growth.encode(x, max_bins=7), growth.encode(a, max_bins=7)
    assert_same_bits(growth.grow(stored, labels, 4, rng=0), growth.grow(bins, labels, 4, rng=0))
    distribution = project.sparse_distribution(x.shape[1], 2.0)
    got = growth.grow_projected(a, labels, 4, distribution, n_projections=5, rng=0)
    want = growth.grow_projected(x, labels, 4, distribution, n_projections=5, rng=0)
    assert_same_bits(got.trees, want.trees)
    np.testing.assert_array_equal(got.indices, want.indices)


def test_sums_of_few_samples_in_float64_are_those_of_the_array():
    for seed in range(20):
        x, y = problem(seed, 20, density=0.05, dtype=np.float64, n_features=30)
        settings = {"n_classes": 4, "projection": "sparse", "density": 3.0, "rng": seed}
        assert_same_bits(
            manifold.grow(scipy.sparse.csr_array(x), y, 5, **settings), manifold.grow(x, y, 5, **settings)
        )


@several_paths
@pytest.mark.parametrize("n", [40, 700, pytest.param(5000, marks=pytest.mark.slow)])
def test_many_samples_give_the_same_bits_on_every_path_and_number_of_threads(n, simd, threads):
    x, y = problem(1, n, density=0.15, n_features=60)
    x[:, 0] = np.random.default_rng(0).normal(size=n)  # a dense column
    a = scipy.sparse.csr_array(x)
    want = classic.grow(x, y, 6, n_classes=4, rng=0)
    oblique = manifold.grow(x, y, 6, n_classes=4, projection="sparse", rng=0)
    for path in machine.simd_paths():
        for count in (1, 3):
            simd(path)
            threads(count)
            assert_same_bits(classic.grow(a, y, 6, n_classes=4, rng=0), want)
            assert_same_bits(manifold.grow(a, y, 6, n_classes=4, projection="sparse", rng=0), oblique)


@pytest.mark.skipif(machine._bodies_taken() is None, reason="bodies are counted with HFOREST_DEBUG=1 alone")
def test_few_stored_numbers_are_scanned_alone():
    x, y = problem(1, 400, density=0.05)
    for grow in (classic.grow, manifold.grow):
        before = machine._bodies_taken().get("growth.stored_scan", 0)
        grow(scipy.sparse.csr_array(x), y, 1, n_classes=4, rng=0)
        assert machine._bodies_taken()["growth.stored_scan"] > before
        before = machine._bodies_taken()["growth.stored_scan"]
        grow(x, y, 1, n_classes=4, rng=0)
        assert machine._bodies_taken()["growth.stored_scan"] == before


# -------------------------------------------------------------------------------------------- walks


@pytest.mark.parametrize("name", ["reference", "cpu"])
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("missing", [False, True])
def test_leaves_and_means_are_those_of_the_array(name, kind, missing):
    x, y = problem(5, 130, missing=missing)
    settings = {"n_classes": 4, "rng": 0}
    forests = [
        classic.grow(x, y, 5, **settings),
        classic.grow(x, y, 5, max_depth=0, **settings),
        manifold.grow(x, y, 5, projection="sparse", density=3.0, **settings),
    ]
    for forest in forests:
        for function in (tree.apply, tree.predict, tree.vote_shares):
            want = function(forest, x)
            out = np.empty_like(want)
            with entered(name):
                got = function(forest, FORMATS[kind](x), out=out)
            assert got is out
            np.testing.assert_array_equal(got, want)


def test_no_rows_and_a_row_without_numbers():
    x, y = problem(5, 60)
    forest = classic.grow(x, y, 5, n_classes=4, rng=0)
    assert tree.predict(forest, scipy.sparse.csr_array((0, x.shape[1]))).shape == (0, 4)
    empty = scipy.sparse.csr_array((1, x.shape[1]))
    np.testing.assert_array_equal(
        tree.predict(forest, empty), tree.predict(forest, np.zeros((1, x.shape[1])))
    )


def test_out_of_bag_errors_take_what_apply_returns():
    x, y = problem(5, 200)
    a, counts = scipy.sparse.csr_array(x), growth.bootstrap_counts(200, 20, rng=0)
    forest = classic.grow(a, y, 20, bootstrap=counts, n_classes=4, rng=0)
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
        (
            scipy.sparse.csr_array(([1.0, 2.0, 3.0], [0, 0, 1], [0, 2, 2, 3]), shape=(3, 2)),
            ValueError,
            "x: expected each entry to be stored once, got entry (0, 0) repeatedly; call x.sum_duplicates()",
        ),
        (
            scipy.sparse.csc_array(([1.0, 2.0, 3.0], [2, 0, 2], [0, 0, 3]), shape=(3, 2)),
            ValueError,
            "x: expected each entry to be stored once, got entry (2, 1) repeatedly",
        ),
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
    calls = [
        lambda: classic.grow(a, [0, 1, 1], 2),
        lambda: growth.encode(a),
        lambda: manifold.grow(a, [0, 1, 1], 2, projection="sparse"),
    ]
    for call in calls:
        with pytest.raises(error, match=re.escape(message)):
            call()


def test_rows_that_are_refused():
    forest = classic.grow(matrix(), [0, 1, 1], 3, rng=0)
    with pytest.raises(
        ValueError, match=r"x: expected shape \(n_samples, n_features\) = \(n_samples, 2\), got \(4, 3\)"
    ):
        tree.predict(forest, scipy.sparse.csr_array((4, 3)))
    with pytest.raises(ValueError, match=r"x\.data: expected finite numbers, got nan .*impute or drop"):
        tree.predict(forest, matrix(data=np.array([1.0, np.nan, 3, 4])))
    with pytest.raises(TypeError, match="in CSR or CSC format, got LIL"):
        tree.apply(forest, matrix().tolil())
    y = np.zeros((3, 2))
    with pytest.raises(ValueError, match="out"):
        tree.predict(forest, scipy.sparse.csr_array((y.ravel(), [0, 1] * 3, [0, 2, 4, 6])), out=y)


def test_functions_on_arrays_name_those_that_take_matrices():
    with pytest.raises(TypeError, match=r"x\.toarray\(\)"):
        hforest.co2.grow(matrix(), [0, 1, 1], 2)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"indptr": np.array([0, 1, 9])}, IndexError, "bins.stored.indptr: expected 0, ..., 4"),
        ({"indices": np.array([0, 2, 1, 9], np.int32)}, IndexError, "bins.stored.indices: expected samples 0 to 2"),
        ({"indices": np.array([2, 0, 1, 2], np.int32)}, IndexError, "bins.stored.indices: expected samples 0 to 2"),
        ({"default": np.array([0, 9], np.int32)}, IndexError, "bins: expected bins below the number of bins"),
        ({"table": np.array([0, 6, 6])}, IndexError, "bins.stored.table: expected 0, ..., 6"),
        ({"n_samples": 0}, ValueError, "stored.n_samples: expected 1 to"),
        ({"default": np.zeros(2)}, TypeError, "bins.stored.default: expected dtype int32"),
    ],
)  # fmt: skip
def test_bins_that_are_refused(change, error, message):
    bins = growth.encode(matrix())
    damaged = bins._replace(stored=bins.stored._replace(**change))
    with pytest.raises(error, match=re.escape(message)):
        growth.grow(damaged, [0, 1, 1], 2)
    for name in ("low", "high"):
        with pytest.raises(ValueError, match=rf"bins\.{name}: expected finite"):
            growth.grow(bins._replace(**{name: getattr(bins, name) * np.nan}), [0, 1, 1], 2)
    with pytest.raises(TypeError, match=r"stored: expected hforest\.growth\.Stored, got tuple"):
        growth.grow(bins._replace(stored=(1, 2)), [0, 1, 1], 2)


@pytest.mark.slow
def test_memory_is_linear_in_what_is_stored():
    """A matrix of 100,000 x 100,000, 5 million numbers: bins, trees and predictions within 2 GB."""
    program = """
        import resource
        import numpy as np, scipy.sparse
        from hforest import classic, manifold, tree
        rng, n = np.random.default_rng(0), 100_000
        columns = rng.integers(0, n, (n, 50))
        x = scipy.sparse.csr_array(
            (rng.integers(1, 9, 50 * n).astype(np.float32), columns.ravel(), np.arange(0, 50 * n + 1, 50)), shape=(n, n)
        )
        x.sum_duplicates()
        y = (x @ rng.normal(size=n) > 0).astype(int)
        for forest in (classic.grow(x, y, 2, max_depth=20, rng=0), manifold.grow(x, y, 2, projection="sparse", max_depth=20, rng=0)):
            tree.predict(forest, x)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) * 1024 < 2e9


def test_indices_of_any_layout():
    x = scipy.sparse.csr_array(np.array([[0.0, 1, 0], [2, 0, 3], [0, 0, 0]]))
    forest = classic.grow(x, [0, 1, 0], 2, rng=0)
    expected = tree.predict(forest, x)
    for layout in (strided, unaligned):
        other = x.copy()
        other.indices, other.indptr, other.data = layout(x.indices), layout(x.indptr), layout(x.data)
        np.testing.assert_array_equal(tree.predict(forest, other), expected)
        np.testing.assert_array_equal(classic.grow(other, [0, 1, 0], 2, rng=0).value, forest.value)


def strided(a):
    wide = np.repeat(a, 2)[::2]
    assert not wide.flags.c_contiguous
    return wide


def unaligned(a):
    given = np.frombuffer(b"." + a.tobytes(), np.uint8)[1:].view(a.dtype)
    assert not given.flags.aligned
    return given
